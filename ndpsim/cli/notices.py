"""Notices of a command on standard error: compilations, long measurements and warnings."""

from __future__ import annotations

import contextlib
import logging
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import click

from ndpsim.base.errors import one_line

# Compile times of slow kernels in seconds, on a free core of 2024; a slower or busy machine takes longer.
COMPILE_S = {
    "ndpsim.audit.kernels.find_early": 1,
    "ndpsim.audit.kernels.find_row_faults": 1,
    "ndpsim.dram.controller.run": 6,
    "ndpsim.dimm.arbiter.run": 8,
    "ndpsim.dimm.readable.run": 10,
    "ndpsim.dram.fast.controller.run": 10,
    "ndpsim.dram.energy.traces.sum_open": 1,
    "ndpsim.dram.traces.parser.parse": 4,
}
_SLOW_S = 3  # from here on each of several kernels is announced
_FAST = "ndpsim.dram.fast.controller.run"
_ARBITER = "ndpsim.dimm.arbiter.run"
#: The kernels that a command usually runs.
_OF_COMMAND = {
    "gemv": (_FAST,),
    "dram": ("ndpsim.dram.traces.parser.parse", _FAST),
    "compare": ("ndpsim.dram.traces.parser.parse", _FAST),
    "check": ("ndpsim.audit.kernels.find_early", "ndpsim.audit.kernels.find_row_faults"),
    "relayout": (_ARBITER,),
    "moe": (_FAST, _ARBITER, _ARBITER),  # relayouts alone, and beside experts and the host
}
#: The kernel that an option adds.
_OF_OPTION = {
    "host_gbps": _ARBITER,
    "energy": "ndpsim.dram.energy.traces.sum_open",
    "exact_check": "ndpsim.dram.controller.run",
}


def kernels_of(command: str, options: Mapping[str, Any]) -> Counter[str]:
    """The kernels that a command usually runs, each once; `options`: its options."""
    chosen = {option for option, value in options.items() if value is not None and value is not False}
    added = (kernel for option, kernel in _OF_OPTION.items() if option in chosen)
    return Counter((*_OF_COMMAND.get(command, ()), *added))


def _seconds(kernels: Counter[str]) -> int:
    """The least time to compile kernels."""
    return max(sum(COMPILE_S.get(name, 0) * number for name, number in kernels.items()), 1)


def _say(text: str) -> None:
    with contextlib.suppress(OSError):  # an error in a notice must not prevent the result
        click.echo(f"ndpsim: {one_line(text)}", err=True)


def announce_kernels(command: str, options: Mapping[str, Any]) -> None:
    """Announce the kernels that other processes, which print nothing, compile for a command first."""
    from ndpsim.base import jit

    missing = (
        kernels_of(command, {**options, "host_gbps": options.get("host-traffic")}) - jit.cached_kernels()
    )
    if missing:
        kernels = "a kernel is" if missing.total() == 1 else f"{missing.total()} kernels are"
        _say(f"{kernels} compiled first, once for this version; {_seconds(missing)} s or more ...")


class _Notices(logging.Handler):
    """Writes log records of the package to standard error, and announces kernels to compile."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self._group = click.get_current_context(silent=True)
        self._expected: Counter[str] = Counter()  # announced, but not yet compiled
        self._compiled = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Called by `logging`."""
        if hasattr(record, "compiling"):
            self._compiled += 1
            self._announce(record.compiling)
        elif record.levelno >= logging.WARNING or hasattr(record, "notice"):
            _say(record.getMessage())

    def _announce(self, kernel: str) -> None:
        """Announce a compilation: with the first one, all that usually follow; then how many are left."""
        if self._compiled == 1:
            expected = self._missing() | Counter([kernel])
            kernels = f"1 of about {expected.total()} kernels" if expected.total() > 1 else "a kernel"
            _say(f"compiling {kernels}, once for this version; {_seconds(expected)} s or more ...")
            self._expected = expected
        elif self._expected[kernel] > 0 and COMPILE_S[kernel] >= _SLOW_S:
            left, kernels = self._expected, "the last kernel"
            if left.total() > 1:
                kernels = f"one of about {left.total()} kernels that are left"
            _say(f"compiling {kernels}; {_seconds(left)} s or more ...")
        elif self._expected[kernel] == 0 and kernel in COMPILE_S:
            _say(f"compiling another kernel, once for this version; {COMPILE_S[kernel]} s or more ...")
        self._expected -= Counter([kernel])

    def _missing(self) -> Counter[str]:
        """The kernels that the command usually runs and that are not in the cache."""
        from ndpsim.base import jit

        context = click.get_current_context(silent=True)
        if context is not None:
            usual = kernels_of(context.info_name or "", context.params)
        else:  # compiled in another thread than the command's
            usual = kernels_of(self._group.invoked_subcommand or "", {}) if self._group else Counter()
        return usual - jit.cached_kernels()

    def finish(self) -> None:
        """Print the compile time, if something was compiled."""
        from ndpsim.base import jit

        if self._compiled:
            kernels = "1 kernel" if self._compiled == 1 else f"{self._compiled} kernels"
            _say(f"compiled {kernels} in {jit.compiling_s():.1f} s")


@contextmanager
def notices() -> Iterator[None]:
    """While the block runs, log records of the package go to standard error, one line each."""
    log = logging.getLogger("ndpsim")
    handler, level, propagates = _Notices(), log.level, log.propagate
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    log.propagate = False
    try:
        try:
            yield
        except click.exceptions.Exit:  # a check failed
            handler.finish()
            raise
        handler.finish()
    finally:
        log.removeHandler(handler)
        log.setLevel(level)
        log.propagate = propagates
