"""What has happened on a channel until now: to experts, to streams of the host, to relayouts, and energy."""

from __future__ import annotations

import numpy as np

from ndpsim.config import Hardware
from ndpsim.dimm import state as shared
from ndpsim.dimm.relayout import START, UNSERVED, Relayout
from ndpsim.link.requests import bits_by_stage
from ndpsim.results.session import ExpertRun, HostRun, RelayoutRun
from ndpsim.simulate.channel import Channel
from ndpsim.simulate.latencies import read_latencies
from ndpsim.simulate.power import Energy, UnitWork, unit_work
from ndpsim.simulate.program import FIRST_CLOCK, Job
from ndpsim.simulate.relayout_result import engine_energy

__all__ = ["channel_energy", "expert_run", "host_run", "relayout_run"]


def expert_run(run: Channel, job: Job) -> ExpertRun:
    """An expert."""
    dimm, ns = job.expert.dimm, run.machine.after_start_ns
    start, end = run.queues[dimm].spans.of_job(job)
    start_ns, end_ns = None if start is None else ns(start), None if end is None else ns(end)
    return ExpertRun(dimm, sum(job.tokens), start_ns, end_ns)


def host_run(run: Channel, stream: int) -> HostRun:
    """A stream of the host."""
    traffic, machine = run.dimms.agents.traffic, run.machine
    of_stream, end = traffic.tally[stream].sum(axis=0), int(traffic.tally[stream, :, shared.STREAM_END].max())
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
        end_ns=None if relayout.value[UNSERVED] else run.clock_ns(run.end_of(relayout)),
        read_bytes=read,
        written_bytes=written,
    )


def channel_energy(run: Channel, hardware: Hardware) -> Energy:
    """The energy of the DIMMs with NDP units; of relayouts, that of all engines and links of the machine."""
    machine, clock, dimms = run.machine, run.dimms.clock, len(run.queues)
    works, host_bursts = [UnitWork(0.0, 0, 0, 0)], run.moved()[1]
    host_bursts += sum(lanes.host_bursts for lanes in run.lanes)
    for job in run.experts:
        expert, ran = job.expert, run.queues[job.expert.dimm].spans.of_phase
        done = [
            tokens for tile, tokens in zip(job.tiles, job.tokens, strict=True) if ("result-out", tile) in ran
        ]
        read = len(done) * sum(region.bytes for region in expert.placed.interleaving.regions)
        works.append(unit_work(machine.unit, expert.weights, sum(done), read))
    work = UnitWork(*(sum(each) for each in zip(*works, strict=True)))
    others = machine.unit_energy.split(*work, dimms * run.clock_ns(clock))
    others["host"] = machine.dram_power.io_nj(host_bursts)
    for name, nj in _of_relayouts(run, hardware).items():
        before = others.get(name, 0.0)
        others[name] = None if before is None or nj is None else before + nj
    return machine.dram_power.split(
        run.issued(),
        (clock - FIRST_CLOCK) * machine.lanes * dimms,
        int(run.dimms.open_clocks(clock).sum()),
        others,
    )


def _of_relayouts(run: Channel, hardware: Hardware) -> dict[str, float | None]:
    """What engines and links have spent until now, by component."""
    if not run.waves:
        return {}
    bits = np.zeros(4, dtype=np.int64)
    for wave in run.waves:
        bits_by_stage(wave.engine, wave.packed.piece_bits, bits)
    busy = np.sum([wave.engine.packets.busy for wave in run.waves], axis=0)
    return engine_energy(hardware, run.waves[0].access, busy, int(bits[0]), run.clock_ns(run.dimms.clock))
