"""Options that say how weights are written as bits."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click

from ndpsim.cli.given import refuse_given
from ndpsim.cli.options import F, named_as_options
from ndpsim.errors import InputError

if TYPE_CHECKING:
    from ndpsim.layout import ExpertFormat


def weight_options(function: F) -> F:
    """``--bits``, ``--group-size``, ``--scale-bits``, ``--zero-point-bits``, ``--weights``."""
    for option in (
        click.option(
            "--weights",
            metavar="NAME",
            help="A weight file instead, which says the format of each matrix: q4_k_m; see list weights.",
        ),
        click.option(
            "--zero-point-bits", type=int, help="Bits of a group's zero point.  [default: those of a weight]"
        ),
        click.option(
            "--scale-bits", default=16, show_default=True, type=int, help="Bits of a group's scale."
        ),
        click.option(
            "--group-size",
            type=int,
            help="Weights along a row that share a scale and a zero point.  [default: no groups]",
        ),
        click.option(
            "--bits",
            default="16",
            show_default=True,
            metavar="BITS|gate=BITS,up=BITS,down=BITS",
            help="Bits of a weight: 16, 8, 6, 5, 4, 3, 2 or 1. Where a GEMV unit's multipliers bind, 3 are "
            "slower than 4: they fill fewer of them.",
        ),
    ):
        function = option(function)
    return function


def expert_format(
    bits: str,
    group_size: int | None,
    scale_bits: int,
    zero_point_bits: int | None,
    weights: str | None,
    model: str | None,
) -> ExpertFormat:
    """What the options of the command under way say; `model`: None: the default one.

    Raises:
        InputError: it makes no sense.
    """
    from ndpsim.layout import ExpertFormat

    if weights is not None:
        refuse_given("is said by --weights", "bits", "group_size", "scale_bits", "zero_point_bits")
        refuse_given("is of no model, and --weights is for one", "shape")
        from ndpsim.moe.weights import weight_file
        from ndpsim.processors.weights import expert_format_of

        with named_as_options("weights", "model"):
            return expert_format_of(weight_file(weights, "qwen3-235b-a22b" if model is None else model))
    if group_size is None:
        refuse_given("is of --group-size, which is not given", "scale_bits", "zero_point_bits")
    elif group_size < 1:
        problem = f"{group_size} is not a whole number from 1; leave it out for no groups"
        raise InputError(problem, key="--group-size")
    with named_as_options("bits", "group_size", "scale_bits", "zero_point_bits"):
        return ExpertFormat.of(_bits(bits), group_size or 0, scale_bits, zero_point_bits)


def _bits(text: str) -> int | dict[str, int]:
    if "=" not in text:
        return _number(text)
    each: dict[str, int] = {}
    for part in text.split(","):
        name, _, value = (of_part.strip() for of_part in part.partition("="))
        if name in each:
            raise InputError(f"'{name}' is given twice", key="bits")
        each[name] = _number(value)
    return each


def _number(text: str) -> int:
    if not re.fullmatch(r"\s*[0-9]{1,9}\s*", text, re.ASCII):
        raise InputError(f"'{text[:40]}' is neither bits nor gate=BITS,up=BITS,down=BITS", key="bits")
    return int(text)
