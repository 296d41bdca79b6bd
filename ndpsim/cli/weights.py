"""Options that say how weights are written as bits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ndpsim.cli.options import F, named_as_options
from ndpsim.errors import InputError

if TYPE_CHECKING:
    from ndpsim.layout import ExpertFormat

__all__ = ["expert_format", "weight_options"]


def weight_options(function: F) -> F:
    """``--bits``, ``--group-size``, ``--scale-bits``, ``--zero-point-bits``."""
    for option in (
        click.option(
            "--zero-point-bits", type=int, help="Bits of a group's zero point.  [default: those of a weight]"
        ),
        click.option(
            "--scale-bits", default=16, show_default=True, type=int, help="Bits of a group's scale."
        ),
        click.option(
            "--group-size",
            default=0,
            type=int,
            help="Weights along a row that share a scale and a zero point.  [default: no groups]",
        ),
        click.option(
            "--bits",
            default="16",
            show_default=True,
            metavar="BITS|gate=BITS,up=BITS,down=BITS",
            help="Bits of a weight: 16, 8, 4, 3, 2 or 1.",
        ),
    ):
        function = option(function)
    return function


def expert_format(bits: str, group_size: int, scale_bits: int, zero_point_bits: int | None) -> ExpertFormat:
    """What the options say.

    Raises:
        InputError: it makes no sense.
    """
    from ndpsim.layout import ExpertFormat

    with named_as_options("bits", "group_size", "scale_bits", "zero_point_bits"):
        return ExpertFormat.of(_bits(bits), group_size, scale_bits, zero_point_bits)


def _bits(text: str) -> int | dict[str, int]:
    if "=" not in text:
        return _number(text)
    each = {}
    for part in text.split(","):
        name, _, value = part.partition("=")
        each[name.strip()] = _number(value)
    return each


def _number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise InputError(f"'{text}' is neither bits nor gate=BITS,up=BITS,down=BITS", key="bits") from None
