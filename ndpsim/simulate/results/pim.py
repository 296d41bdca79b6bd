"""The result of a program of units in banks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ndpsim.base.reported import Reported, quantity
from ndpsim.dram.traces.unit_commands import UnitCommands


@dataclass(frozen=True, eq=False, repr=False)
class PimResult(Reported):
    """The result of a program of units in banks; all of its requests have issued.

    Attributes:
        cycles: clocks until the end of the program, from clock 1; `time_ns`: the same in ns; `clock_ns`: the
            clock period.
        skipped_share: share of the clocks that were not simulated, because a stretch of the program came
            again; the result is the same.
        requests: requests of the program, over all channels.
        commands: commands by name, over all channels.
        unit_bytes: bytes that units read or write in their banks; `unit_gbps`: the same over `time_ns`.
        pin_bytes: bytes that cross the pins of the channels.
        channels: channels with commands.
        simulated_channels: channels that were simulated; the others have the same requests as a neighbour.
        energy_nj: published energies of commands by name, of the pins (`io`) and of products (`multiply`);
            None: not known. `total`: the sum of those that are known. Data that do not cross the pins have
            no energy of the pins.
        host: beside host traffic: its GB/s with and without the units, its bytes, and the clocks and the
            slowdown of the units; None: the program ran alone.
        config: everything that was used.
        run_s: duration of the run. `compile_s`: compile time of kernels, which is not in `run_s`.
        command_traces: the commands, if requested.
    """

    cycles: int = field(metadata=quantity("clock cycles"))
    time_ns: float = field(metadata=quantity("time", beside=("cycles", "clock_ns")))
    clock_ns: float = field(metadata=quantity("clock period"))
    requests: int = field(metadata=quantity("requests"))
    commands: Mapping[str, int] = field(metadata=quantity("DRAM commands"))
    unit_bytes: int = field(metadata=quantity("bytes that units move in banks"))
    unit_gbps: float = field(metadata=quantity("bandwidth inside the banks"))
    pin_bytes: int = field(metadata=quantity("bytes across the pins"))
    channels: int = field(metadata=quantity("channels", beside=("simulated_channels",)))
    simulated_channels: int = field(metadata=quantity("simulated channels"))
    skipped_share: float = field(metadata=quantity("share of clocks that are repetitions"))
    config: Mapping[str, Any] = field(repr=False)
    energy_nj: Mapping[str, float | None] = field(repr=False)
    run_s: float
    compile_s: float = field(repr=False)
    command_traces: UnitCommands | None = field(default=None, repr=False)
    host: Mapping[str, Any] | None = field(default=None, repr=False)
