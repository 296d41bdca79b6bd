"""How the result of a relayout follows from runs of the relayout engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ndpsim.config import Hardware
from ndpsim.energy import transfer_nj
from ndpsim.link.events import FAR
from ndpsim.link.requests import counts_between, spans
from ndpsim.results.relayout import HostMove, OtherDimms, RelayoutResult, Stretch
from ndpsim.results.stopwatch import Stopwatch
from ndpsim.simulate.lane import name_commands
from ndpsim.simulate.power import DramPower, Energy, dram_power
from ndpsim.simulate.program import FIRST_CLOCK
from ndpsim.simulate.relayout_run import Access, Run, Transfer
from ndpsim.simulate.samples import equal_clocks, sample_clocks

__all__ = [
    "HostMove",
    "OtherDimms",
    "RelayoutResult",
    "Stretch",
    "engine_energy",
    "host_move",
    "relayout_energy",
    "relayout_result",
]

Ints = NDArray[np.int64]
Narrow = NDArray[np.int32]


def _dram(
    power: DramPower, access: Access, runs: Sequence[Run], others: Mapping[str, float | None]
) -> Energy:
    """The energy of runs, whose lanes all draw power from the first to the last clock of each."""
    lanes = access.network.dimms * access.lanes * access.tables.ranks
    return power.split(
        np.sum([run.issued for run in runs], axis=0),
        sum(run.end - 1 for run in runs) * lanes,
        sum(run.open_clocks for run in runs),
        others,
    )


def engine_energy(
    hardware: Hardware, access: Access, busy: Ints, bits_read: int, time_ns: float
) -> dict[str, float | None]:
    """Energy in nJ of all relayout engines, of the links, and of channels that bridge groups, by component.

    Args:
        busy: ticks by wire.
        bits_read: bits of weights that were read to go elsewhere.
        time_ns: how long it took.
    """
    link, unit, network = hardware.system.link, hardware.relayout, access.network
    assert link is not None, "there is a network"
    bytes_over = [0.0, 0.0]  # links, channels
    wires = {hop.wire: hop for hop in network.hops}
    for wire, ticks in enumerate(busy):
        hop = wires[wire]
        over_channel = max(hop.source, hop.target) >= network.dimms
        bytes_over[over_channel] += access.timebase.to_ns(int(ticks)) * hop.gbps
    passed = 2 * bits_read // 8  # a buffer at each end
    static = None if unit.static_mw is None else unit.static_mw * network.dimms
    spent = {
        "ndp_relayout": None if unit.pj_per_byte is None else unit.pj_per_byte * passed / 1000,
        "ndp_static": None if static is None else static * time_ns / 1000,
        "link": transfer_nj(round(bytes_over[0]), link.pj_per_bit),
    }
    if bytes_over[1]:
        power = dram_power(hardware.lane_device(), hardware.power_changes)
        spent["host"] = power.io_nj(round(bytes_over[1] / access.device.burst_bytes))
    return spent


def relayout_energy(hardware: Hardware, access: Access, runs: Sequence[Run]) -> Energy:
    """The energy of all DIMMs, of the links, and of channels that bridge groups."""
    if not runs:
        return None, "nothing moved"
    busy: Ints = np.sum([run.busy for run in runs], axis=0)
    time_ns = access.timebase.to_ns(sum(run.end - 1 for run in runs) * access.timebase.ticks[0])
    others = engine_energy(hardware, access, busy, sum(run.bits.read for run in runs), time_ns)
    return _dram(dram_power(hardware.lane_device(), hardware.power_changes), access, runs, others)


def _commands(access: Access, runs: Sequence[Run]) -> dict[str, int]:
    """Commands of all runs by name."""
    issued = sum((run.issued for run in runs), np.zeros(len(access.tables.commands), dtype=np.int64))
    return name_commands(issued, access.device.standard)


def host_move(hardware: Hardware, access: Access, runs: Sequence[Run]) -> HostMove:
    """The runs of a host."""
    clock_ns = access.timebase.to_ns(access.timebase.ticks[0])
    time_ns = sum(run.end - 1 for run in runs) * clock_ns
    bound_ns = _bounds(access, runs)["DRAM"]
    return HostMove(
        time_ns=time_ns,
        bandwidth_gbps=sum(run.bits.written for run in runs) / 8 / time_ns,
        bus_busy=bound_ns / time_ns,
        bound_ns=bound_ns,
        commands=_commands(access, runs),
        energy_nj=_dram(dram_power(hardware.lane_device(), hardware.power_changes), access, runs, {})[0],
    )


def _bounds(access: Access, runs: Sequence[Run]) -> dict[str, float]:
    """The least time of each resource in ns, over waves that follow each other."""
    tick, burst = access.timebase.to_ns, access.tables.burst * access.timebase.ticks[0]
    return {
        "links": sum(tick(int(run.busy.max(initial=0))) for run in runs),
        "source DRAM": sum(tick(int(run.reads.max()) * burst) for run in runs),
        "target DRAM": sum(tick(int(run.writes.max()) * burst) for run in runs),
        "DRAM": sum(tick(int((run.reads + run.writes).max()) * burst) for run in runs),
    }


def _bottleneck(access: Access, runs: Sequence[Run], bounds: Mapping[str, float]) -> str:
    """The resource that needs longest; a wire by its name."""
    longest = max(bounds.values())
    if not longest:
        return "nothing"
    name = next(name for name, ns in bounds.items() if ns == longest)
    if name != "links":
        return name
    return f"link {access.network.wire_names[int(np.argmax(np.sum([run.busy for run in runs], axis=0)))]}"


def _curve(access: Access, ticks: Sequence[Ints], clocks: Sequence[int], edges: Ints) -> tuple[float, ...]:
    """Bursts that were somewhere at some ticks, as GB/s in each of the times between edges, in clocks.

    clocks: of each wave, the one at its tick 0.
    """
    counts, dram_ticks = np.zeros(len(edges) - 1, dtype=np.int64), access.timebase.ticks[0]
    for tick, clock in zip(ticks, clocks, strict=True):
        counts_between(tick, (edges - clock) * dram_ticks, counts)
    widths_ns = np.diff(edges) * access.timebase.to_ns(dram_ticks)
    return tuple((counts * access.device.burst_bytes / widths_ns).tolist())


def _stretches(
    access: Access, name: str, node: Sequence[Narrow], ticks: Sequence[Ints], clocks: Sequence[int]
) -> list[Stretch]:
    """From when to when bursts of each node were somewhere, wave by wave."""
    found, to_ns = [], access.timebase.to_ns
    for of, tick, clock in zip(node, ticks, clocks, strict=True):
        first, last = np.full(access.network.dimms, FAR), np.zeros(access.network.dimms, dtype=np.int64)
        spans(tick, of, first, last)
        begin = clock * access.timebase.ticks[0]
        found += [
            Stretch(name, int(dimm), to_ns(begin + first[dimm]), to_ns(begin + last[dimm]))
            for dimm in np.flatnonzero(last)
        ]
    return found


def relayout_result(
    access: Access,
    transfers: Sequence[Transfer],
    runs: Sequence[Run],
    host: HostMove | None,
    other_dimms: OtherDimms | None,
    energy: Energy,
    config: Mapping[str, Any],
    experts: int,
    stopwatch: Stopwatch,
) -> RelayoutResult:
    """The result of waves that went one after the other."""
    clock_ns, tick_ns = access.timebase.to_ns(access.timebase.ticks[0]), access.timebase.to_ns(1)
    ends = np.cumsum([0, *(run.end - 1 for run in runs)])
    cycles = int(ends[-1])
    time_ns = access.timebase.to_ns(cycles * access.timebase.ticks[0])
    edges = equal_clocks(cycles, sample_clocks(cycles, access.tables.refresh_interval))
    begins = (ends[:-1] - FIRST_CLOCK).tolist()  # a wave's tick 0 is a clock before its first command
    reads, writes = [run.read_tick for run in runs], [run.write_tick for run in runs]
    read, sent, _, written = (sum(run.bits[n] for run in runs) for n in range(4))
    wires = zip(
        access.network.wire_names, np.sum([run.busy for run in runs], axis=0) if runs else (), strict=False
    )
    bounds = _bounds(access, runs)
    dram = {"read": "source DRAM", "write": "target DRAM", "both": "DRAM"}
    return RelayoutResult(
        time_ns=time_ns,
        cycles=cycles,
        clock_ns=clock_ns,
        experts=experts,
        moved=len(transfers),
        waves=len(runs),
        weight_bytes=sum(sum(expert.source.weights.matrix_bits()) for expert in transfers) // 8,
        read_bytes=read // 8,
        sent_bytes=sent // 8,
        local_bytes=read // 8 - sent // 8,
        written_bytes=written // 8,
        wire_bytes=sum(run.wire_bytes for run in runs),
        bandwidth_gbps=written / 8 / time_ns if runs else 0.0,
        topology=access.network.topology,
        link_busy={name: float(ticks * tick_ns / time_ns) for name, ticks in wires if ticks},
        dram_busy={name: bounds[bound] / time_ns if runs else 0.0 for name, bound in dram.items()},
        bounds_ns=bounds,
        bottleneck=_bottleneck(access, runs, bounds),
        transit_bytes=max((int(run.most_waiting.max()) for run in runs), default=0),
        commands=_commands(access, runs),
        host=host,
        host_speedup=host.time_ns / time_ns if host else None,
        other_dimms=other_dimms,
        stretches=(
            *_stretches(access, "read", [run.read_node for run in runs], reads, begins),
            *_stretches(access, "write", [run.write_node for run in runs], writes, begins),
        ),
        energy_nj=energy[0],
        energy_note=energy[1],
        curve_ns=tuple((edges[1:] * clock_ns).tolist()),
        read_gbps=_curve(access, reads, begins, edges) if runs else (),
        written_gbps=_curve(access, writes, begins, edges) if runs else (),
        config=config,
        **stopwatch.times(),
        command_traces=tuple(run.traces for run in runs if run.traces),
    )
