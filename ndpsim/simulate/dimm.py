"""Experts, host traffic and a relayout on the DIMMs of a channel, in one call."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from os import PathLike
from typing import Any

from ndpsim.base.arguments import several, shown
from ndpsim.base.errors import InputError, unknown
from ndpsim.config import Hardware
from ndpsim.dimm.engines import OpenRow
from ndpsim.simulate.results.session import DimmResult
from ndpsim.simulate.session import Session


def simulate_dimm(
    hw: str | PathLike[str] | Hardware = "trimoe",
    experts: Sequence[Mapping[str, Any]] = (),
    host: Sequence[Mapping[str, Any]] = (),
    host_reads: Sequence[Mapping[str, Any]] = (),
    relayout: Mapping[str, Any] | None = None,
    until_ns: float | None = None,
    dimms: int | None = None,
    arbitration: str = "host-first",
    slice_clocks: int = 1000,
    start_clock: int = 1,
    open_rows: Iterable[OpenRow] = (),
    sets: Sequence[str] = (),
    record_commands: bool = False,
) -> DimmResult:
    """Simulate experts on the DIMMs of a host channel, with the host and a relayout, on one clock.

    Args:
        hw: as in `simulate_expert`.
        experts: arguments of `Session.expert` for each, in the order of the queues: ``{"tokens": 3}``.
        host: arguments of `Session.host` for each stream: ``{"gbps": 4, "start_ns": 1000}``.
        host_reads: arguments of `Session.host_read` for each.
        relayout: arguments of `Session.relayout`; None: nothing moves.
        until_ns: as in `Session.run`.
        dimms, arbitration, slice_clocks, start_clock, open_rows, sets, record_commands: as in `Session`.

    Raises:
        InputError: an argument is invalid.
    """
    session = Session(hw, dimms, arbitration, slice_clocks, start_clock, open_rows, sets, record_commands)
    for add, key, calls in (
        (session.expert, "experts", experts),
        (session.host, "host", host),
        (session.host_read, "host_reads", host_reads),
        (session.relayout, "relayout", () if relayout is None else (relayout,)),
    ):
        for arguments in several(calls, key, _mapping):
            _call(add, key, arguments)
    session.run(until_ns)
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
