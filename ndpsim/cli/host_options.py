"""The options of ``ndpsim gemv`` that put a host's traffic beside the expert."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from ndpsim.errors import InputError
from ndpsim.plugins import options_in_words

F = TypeVar("F", bound=Callable[..., Any])

_ARBITRATIONS = options_in_words("dimm/arbitrations", "host-first")

# Option, its argument in `simulate_contention`, its form, its default, what it is.
_OPTIONS: tuple[tuple[str, str, str, str | int | float, str], ...] = (
    ("--host-reads", "read_share", "SHARE", 0.67, "The share of reads in it."),
    ("--host-pattern", "pattern", "NAME|FILE", "sequential", "sequential, random, or a request trace."),
    (
        "--arbitration",
        "arbitration",
        "NAME",
        "host-first",
        f"{_ARBITRATIONS}.",
    ),
    ("--slice-clocks", "slice_clocks", "N", 1000, "DRAM clocks of each turn under slice."),
)


def host_options(function: F) -> F:
    """``--host-traffic``, and how it comes and is arbitrated."""
    for option, name, form, default, words in reversed(_OPTIONS):
        described = f"{words}  [default: {default}]"
        function = click.option(option, name, type=type(default), metavar=form, help=described)(function)
    return click.option(
        "--host-traffic",
        "host_gbps",
        metavar="GBPS|saturate",
        help="Let the host read and write the DIMM meanwhile, at this rate.",
    )(function)


def host_traffic(given: Mapping[str, Any]) -> dict[str, Any] | None:
    """The arguments of `simulate_contention` that the options give; None where there is no host traffic.

    Raises:
        InputError: the rate is no number, or other options are given without a rate.
    """
    chosen = {name: value for name, value in given.items() if value is not None}
    if "host_gbps" not in chosen:
        for option, name, *_ in _OPTIONS:
            if name in chosen:
                raise InputError("is of --host-traffic, which is not given", key=option)
        return None
    if "slice_clocks" in chosen and chosen.get("arbitration") != "slice":
        raise InputError("is of --arbitration slice, which is not given", key="--slice-clocks")
    if "read_share" in chosen and chosen.get("pattern", "sequential") not in ("sequential", "random"):
        raise InputError("is of sequential and random; a trace says itself what it reads", key="--host-reads")
    if chosen["host_gbps"] != "saturate":
        try:
            chosen["host_gbps"] = float(chosen["host_gbps"])
        except ValueError:
            raise InputError(
                f"'{chosen['host_gbps']}' is neither 'saturate' nor a number of GB/s", key="--host-traffic"
            ) from None
    return chosen


#: The options by the arguments of `simulate_contention`.
OPTION_OF = {"host_gbps": "--host-traffic", **{name: option for option, name, *_ in _OPTIONS}}
