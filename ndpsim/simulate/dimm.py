"""Experts, host traffic and a relayout on the DIMMs of a channel, in one call."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from ndpsim.base.arguments import several
from ndpsim.base.errors import InputError, shown, unknown
from ndpsim.base.options.session import DimmSettings, SessionSettings
from ndpsim.base.options.settings import called_with, fields_of
from ndpsim.simulate.results.session import DimmResult
from ndpsim.simulate.session import Session


@called_with(DimmSettings)
def simulate_dimm(settings: DimmSettings) -> DimmResult:
    """Simulate experts on the DIMMs of a host channel, with the host and a relayout, on one clock.

    Args:

    Raises:
        InputError: an argument is invalid.
    """
    session = Session(**fields_of(SessionSettings, settings))
    for add, key, calls in (
        (session.expert, "experts", settings.experts),
        (session.host, "host", settings.host),
        (session.host_read, "host_reads", settings.host_reads),
        (session.relayout, "relayout", () if settings.relayout is None else (settings.relayout,)),
    ):
        for arguments in several(calls, key, _mapping):
            _call(add, key, arguments)
    session.run(settings.until_ns)
    return session.result()


def _mapping(value: Any, name: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise InputError(f"{shown(value)} is not a mapping of arguments", "type", key=name)
    return value


def _call(function: Callable[..., int], key: str, arguments: Mapping[str, Any]) -> None:
    """Call a function with the arguments of a mapping.

    Raises:
        InputError: the function has no such argument.
    """
    allowed = list(inspect.signature(function).parameters)
    for name in arguments:
        if name not in allowed:
            raise unknown(str(name), allowed, "argument", key=key)
    function(**arguments)
