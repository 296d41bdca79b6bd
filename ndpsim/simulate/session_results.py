"""Results of a session: its experts, streams, relayouts and energy."""

from __future__ import annotations

import numpy as np

from ndpsim.config import Hardware
from ndpsim.dimm import state as shared
from ndpsim.dimm.link.engine_state import bits_by_stage
from ndpsim.dimm.relayout import START, UNSERVED, Relayout
from ndpsim.simulate.channel import Channel
from ndpsim.simulate.latencies import read_latencies
from ndpsim.simulate.power import Energy, engine_energy, unit_work
from ndpsim.simulate.program import FIRST_CLOCK, Job
from ndpsim.simulate.relayout_run import last_data
from ndpsim.simulate.results.session import ExpertRun, HostRun, RelayoutRun


def expert_run(run: Channel, job: Job) -> ExpertRun:
    """An expert."""
    dimm, ns = job.expert.dimm, run.machine.after_start_ns
    start, end = run.queues[dimm].span_of(job)
    start_ns, end_ns = None if start is None else ns(start), None if end is None else ns(end)
    return ExpertRun(dimm, sum(job.tokens), start_ns, end_ns)


def host_run(run: Channel, stream: int) -> HostRun:
    """A stream of the host."""
    traffic, machine = run.dimms.agents.traffic, run.machine
    of_buses = traffic.totals[stream]
    of_stream, end = of_buses.sum(axis=0), int(of_buses[:, shared.STREAM_END].max())
    served, latency = int(of_stream[shared.STREAM_SERVED]), int(of_stream[shared.STREAM_LATENCY])
    return HostRun(
        start_ns=run.clock_ns(int(traffic.pace[stream, 1])),
        end_ns=run.clock_ns(end) if end else None,
        requests=served,
        bytes=served * machine.device.burst_bytes,
        read_latency_ns=read_latencies(run.dimms.host_latencies[:, stream], latency, machine.clocks_ns(1)),
        is_done=served == int(traffic.offered[stream].sum()),
    )


def relayout_run(run: Channel, relayout: Relayout) -> RelayoutRun:
    """A relayout."""
    read, written = (int(of) * run.machine.device.burst_bytes for of in relayout.served.sum(axis=1))
    return RelayoutRun(
        start_ns=run.clock_ns(int(relayout.value[START]) + FIRST_CLOCK),
        end_ns=None if relayout.value[UNSERVED] else run.clock_ns(last_data(run.machine.device, relayout)),
        read_bytes=read,
        written_bytes=written,
    )


def channel_energy(run: Channel, hardware: Hardware) -> Energy:
    """The energy of DIMMs with NDP units; relayouts include all engines and links of the machine."""
    machine, works = run.machine, []
    for job in run.experts:
        expert, ran = job.expert, run.queues[job.expert.dimm].of_phase
        tiles = zip(job.tiles, job.tokens, strict=True)
        done = [tokens for tile, tokens in tiles if ("result-out", tile) in ran]
        read = len(done) * sum(region.bytes for region in expert.placed.interleaving.regions)
        works.append(unit_work(machine.unit, expert.weights, sum(done), read))
    products, activated, weight, values = (sum(each) for each in zip((0.0, 0, 0, 0), *works, strict=True))
    time_ns = len(run.queues) * run.clock_ns(run.dimms.clock)
    others = machine.unit_energy.split(products, activated, weight, values, time_ns)
    host_bursts = run.moved()[1] + sum(lanes.host_bursts for lanes in run.lanes)
    others["host"] = machine.dram_power.io_nj(host_bursts)
    for name, nj in _relayout_energy(run, hardware).items():
        before = others.get(name, 0.0)
        others[name] = None if before is None or nj is None else before + nj
    return run.energy(others)


def _relayout_energy(run: Channel, hardware: Hardware) -> dict[str, float | None]:
    """Energy of engines and links so far, by component."""
    if not run.waves:
        return {}
    bits_read = sum(bits_by_stage(wave.engine).read for wave in run.waves)
    busy = np.sum([wave.engine.packets.busy for wave in run.waves], axis=0)
    access = run.waves[0].access
    time_ns = run.clock_ns(run.dimms.clock)
    return engine_energy(hardware, access.network, access.timebase, busy, bits_read, time_ns)
