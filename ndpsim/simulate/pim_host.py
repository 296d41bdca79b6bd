"""A host beside a program of units in banks: its requests, and what both lose."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any

from ndpsim.base.arguments import instance
from ndpsim.base.errors import InputError, unknown
from ndpsim.base.options.host import PATTERNS, TrafficSettings, rate_gbps
from ndpsim.config.banks import BankHardware
from ndpsim.dimm.arbitrations import checked_arbitration
from ndpsim.dimm.banks.beside import Beside
from ndpsim.dram.banks.host import make_stream
from ndpsim.dram.banks.programs import Line
from ndpsim.dram.banks.run import BankRun, run_program

_AREA = 8  # the host's rows are the last of each bank: one part of so many


@dataclass(frozen=True)
class PimTraffic:
    """Host traffic on a device with units in its banks, the same on every channel."""

    hardware: BankHardware
    gbps: float | None  # of all channels; None: as much as possible
    read_share: float
    pattern: str
    arbitration: str

    def beside(self, channels: int, alone: bool = False) -> Beside:
        """The host for so many simulated channels; `alone`: it goes on when the units are done."""
        device, commands = self.hardware.device, self._commands()
        rows = max(device.sizes["rows"] // _AREA, 1)
        stream = make_stream(
            self._pace(),
            round(1000 * self.read_share),
            self.pattern == "random",
            alone,
            (commands[True], commands[False]),
            (device.sizes["rows"] - rows, rows, device.sizes["columns"]),
            channels,
        )
        return Beside(stream, self.arbitration, device.extension.controller == "look-ahead")

    def _pace(self) -> tuple[int, int]:
        """Clocks between requests of a channel, as a fraction; 0: as fast as queues take them."""
        device = self.hardware.device
        if self.gbps is None:
            return 0, 1
        share = Fraction(str(self.gbps)) / device.sizes["channels"]
        interval = (self.hardware.burst_bytes * 1000 / share / device.clock_ps).limit_denominator(1 << 20)
        return interval.numerator, interval.denominator

    def result(self, run: BankRun, cycles_alone: int) -> dict[str, Any]:
        """What host and units got, and what each gets alone, in GB/s and clocks."""
        words = self.hardware.device.extension.requests
        end = next((name for name, word in words.items() if word.ends or word.barrier), "")
        device = self.hardware.device
        idle = [Line(end, tuple(range(device.sizes["channels"])), column=0)]
        alone = run_program(idle, device, host=partial(self.beside, alone=True), until=run.cycles)
        reads, writes = self._bytes(run)
        ns = float(run.cycles * device.clock_ps / 1000)
        return {
            "asked_gbps": self.gbps,
            "read_share": self.read_share,
            "pattern": self.pattern,
            "arbitration": self.arbitration,
            "read_bytes": reads,
            "write_bytes": writes,
            "gbps": (reads + writes) / ns,
            "gbps_alone": sum(self._bytes(alone)) / ns,
            "units_cycles_alone": cycles_alone,
            "units_slowdown": run.cycles / cycles_alone,
        }

    def _commands(self) -> dict[bool, int]:
        """The numbers of the commands that read (True) and write for the host."""
        device = self.hardware.device
        host = {word.command for word in device.extension.requests.values() if word.host}
        return {command.answers: n for n, command in enumerate(device.commands) if command.name in host}

    def _bytes(self, run: BankRun) -> tuple[int, int]:
        """Bytes that the host read and wrote."""
        names, commands = self.hardware.device.names, self._commands()
        read, wrote = (run.counts.get(names[commands[reads]], 0) for reads in (True, False))
        return read * self.hardware.burst_bytes, wrote * self.hardware.burst_bytes


def traffic_of(host: Mapping[str, Any], hardware: BankHardware) -> PimTraffic:
    """Host traffic from the arguments of a call.

    Raises:
        InputError: an argument is unknown, or its value is not allowed.
    """
    given = dict(instance(host, "host", Mapping))  # type: ignore[type-abstract]
    known = TrafficSettings.__dataclass_fields__
    for name in given:
        if name not in known:
            raise unknown(name, known, "argument", key="host")
    settings = TrafficSettings(**given)
    device = hardware.device
    clocks = device.clocks("nBL") * device.clock_ps
    most = math.floor(1000 * hardware.burst_bytes * device.sizes["channels"] * device.shape[0] / clocks)
    pattern = str(settings.pattern)
    if pattern not in PATTERNS:
        problem = f"beside units in banks, addresses are {' or '.join(PATTERNS)}; a trace is not supported"
        raise InputError(problem, "unsupported", key="host-pattern")
    rate = rate_gbps(settings.host_gbps, most, "host_gbps")
    if rate == 0:
        raise InputError("0 is no traffic", "range", key="host_gbps")
    checked_arbitration(settings.arbitration)
    return PimTraffic(hardware, rate, settings.read_share, pattern, settings.arbiter)
