"""Arbitrations between host and NDP unit, one module each: they decide whose command is first on a rank.

A module's `ARBITRATION` is a named tuple of its parameters, whole numbers with defaults. The module overrides
functions of `dimm.arbitration_points`, which both arbiters call.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from ndpsim.arguments import settings, text
from ndpsim.errors import InputError, one_of, unknown
from ndpsim.plugins import option_names

#: The names of the arbitrations in options.
NAMES = option_names("dimm/arbitrations", "host-first")

_KEY = "arbitration"
_MOST = 1 << 30


def make_arbitration(named: str) -> Any:
    """The parameters of the arbitration that is called ``NAME`` or ``NAME:KEY=VALUE,...``.

    Raises:
        InputError: there is no such arbitration, or a parameter makes no sense.
    """
    name, _, rest = named.partition(":")
    if name not in NAMES:
        raise unknown(name, NAMES, "arbitration", key=_KEY)
    kind: Any = import_module(f"{__name__}.{name.replace('-', '_')}").ARBITRATION
    given: dict[str, int] = {}
    for key, value in settings(rest, f"{_KEY}: {name}").items():
        if key not in kind._fields:
            problem = one_of(key, kind._fields, "parameter") if kind._fields else f"has no parameter {key}"
            raise InputError(f"{name}: {problem}", "unknown-key", key=_KEY)
        if not value.isdecimal() or not 1 <= int(value) <= _MOST:
            problem = f"{name}: {key}={value} is not a whole number from 1 to {_MOST}"
            raise InputError(problem, "range", key=_KEY)
        given[key] = int(value)
    return kind(**given)


def checked_arbitration(value: Any) -> str:
    """The parameters of an arbitration given by a caller, checked.

    Raises:
        InputError: it makes no sense.
    """
    named = text(value, _KEY)
    make_arbitration(named)
    return named
