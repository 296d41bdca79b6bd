"""Arbitrations between host and NDP unit, one module each: they decide whose command is first on a rank.

A module's `ARBITRATION` is a named tuple of its parameters, whole numbers with defaults. The module overrides
functions of `dimm.arbitration_points`, which both arbiters call.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Mapping
from types import ModuleType
from typing import Any, NamedTuple

from ndpsim.base.arguments import settings, text
from ndpsim.base.errors import InputError, one_of, unknown
from ndpsim.base.plugins import modules_by_name, option_names

#: The names of the arbitrations in options.
NAMES = option_names("dimm/arbitrations", "host-first")

_KEY = "arbitration"
_MOST = 1 << 30


class Arbitration(NamedTuple):
    """The chosen arbitration, by its place in `arbitrations`, and the parameters of each of them."""

    chosen: int
    parameters: tuple[Any, ...]


@functools.cache
def arbitrations() -> Mapping[str, ModuleType]:
    """The modules of all arbitrations by their names in options."""
    return modules_by_name(sys.modules[__name__])


def make_arbitration(named: str) -> Arbitration:
    """The arbitration that is called ``NAME`` or ``NAME:KEY=VALUE,...``.

    Raises:
        InputError: there is no such arbitration, or a parameter makes no sense.
    """
    name, _, rest = named.partition(":")
    if name not in NAMES:
        raise unknown(name, NAMES, "arbitration", key=_KEY)
    kinds: dict[str, Any] = {known: module.ARBITRATION for known, module in arbitrations().items()}
    kind, values = kinds[name], dict[str, int]()
    for key, value in settings(rest, f"{_KEY}: {name}").items():
        if key not in kind._fields:
            problem = one_of(key, kind._fields, "parameter") if kind._fields else f"has no parameter {key}"
            raise InputError(f"{name}: {problem}", "unknown-key", key=_KEY)
        if not value.isdecimal() or not 1 <= int(value) <= _MOST:
            problem = f"{name}: {key}={value} is not a whole number from 1 to {_MOST}"
            raise InputError(problem, "range", key=_KEY)
        values[key] = int(value)
    parameters = (make(**values) if known == name else make() for known, make in kinds.items())
    return Arbitration(list(kinds).index(name), tuple(parameters))


def checked_arbitration(value: Any) -> str:
    """The parameters of an arbitration given by a caller, checked.

    Raises:
        InputError: it makes no sense.
    """
    named = text(value, _KEY)
    make_arbitration(named)
    return named
