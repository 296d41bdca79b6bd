"""Simulates a layer again in cycle-level sessions, one for each host channel, to measure the error of rates.

The experts of each DIMM run back to back from the start of its first one. The host's reads, for the CPU and
for copies to the GPU, begin at their recorded times, each with its own rate limit: each channel carries an
equal part of a striped read, and a copy has the mean rate that PCIe allowed. Earlier copies and relayouts run
beside the layer, relayouts one after the other on a channel. All other times are the recorded ones: computing
on GPU and CPU, transfers over PCIe, and reads of the host's own memory. Sessions begin in the middle between
two refreshes, because rates are means over all phases of refresh.

Differences of end times are relative to the layer's time; on the critical path they are relative to the job's
own time.

When the experts of a channel are done, and all earlier reads have ended by the rates, the remaining reads run
in a session without experts, which is the same for many channels.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from ndpsim.dimm.layout import ExpertFormat
from ndpsim.inference.layers.beside_host import add_traffic
from ndpsim.inference.layers.costs import Costs, in_turns
from ndpsim.inference.layers.location import Location
from ndpsim.inference.layers.record import JobRecord, LayerRecord, MovingRecord
from ndpsim.policies.views import STRIPED
from ndpsim.simulate import Session
from ndpsim.simulate.results.moe import CheckedEnd, LayerCheck
from ndpsim.workload.models import Expert

_MARGIN = 1.03  # factor by which experts may end later than by the rates
_SAME_NS = 1.0
_LATER_NS = 10_000.0  # between checks whether a relayout is done
_LEAST_GBPS = 1.0  # below this share, a copy hardly reads


class _Queued(NamedTuple):
    """An expert, or a slice of one, in the queue of a DIMM of a channel."""

    dimm: int
    columns: int
    tokens: int
    release_ns: float
    bits: int | ExpertFormat


class _Read(NamedTuple):
    """The part of a host read on a channel; `dimm`: its DIMM there, or `STRIPED`: all DIMMs."""

    number: int
    columns: int
    dimm: int
    gbps: float
    start_ns: float
    bits: int | ExpertFormat


class _Reading(NamedTuple):
    """A host read of a share of an expert's columns, at `gbps`; times are relative to the layer's begin.

    The expert is on `shards` DIMMs from `dimm` on, or `STRIPED`. `end_ns`: its end by the rates.
    """

    dimm: int
    shards: int
    share: float
    gbps: float
    start_ns: float
    end_ns: float
    bits: int | ExpertFormat


class _Move(NamedTuple):
    """An expert's move between layouts, of `columns`; DIMMs are numbered as in the session."""

    source: str
    target: str
    source_dimm: int
    target_dimm: int
    columns: int
    start_ns: float


class _Channel(NamedTuple):
    """The work of a session; reads are numbered over the layer. Equal sessions have equal results."""

    queued: tuple[_Queued, ...]
    reads: tuple[_Read, ...]
    moves: tuple[_Move, ...] = ()


class _Ends(NamedTuple):
    """The ends of the queues of DIMMs, and of reads by number."""

    of_dimms: dict[int, float]
    of_reads: dict[int, float]


def check_layer(costs: Costs, record: LayerRecord, limit: float = 0.05) -> LayerCheck:
    """Simulate the DIMMs and the host reads of a layer again.

    Args:
        costs: the costs of the run, for its hardware, experts and arbitration.
        record: the layer as simulated by rates.
        limit: see `LayerCheck`.

    Raises:
        InputError: the experts of the layer do not fit on their DIMMs.
    """
    reading: list[JobRecord] = []
    copies: list[_Reading] = []
    if costs.hardware.host_reads_dimms:
        reading = [job for job in record.jobs if job.read_limit_gbps > 0]
        copies = [_copy_reading(costs, record, move) for move in record.moving if move.target == "gpu"]
    readings = [
        *(_job_reading(costs, record, job) for job in reading),
        *(one for one in copies if one.gbps > _LEAST_GBPS),
    ]
    per_channel = costs.hardware.system.host.channels
    ends = _run_all(costs, _channels(costs, record, readings), _cuts(record, readings, per_channel))
    rate_ns, dimm_ns = record.end_ns - record.start_ns, {}
    for number, of_channel in enumerate(ends):
        for dimm, end_ns in of_channel.of_dimms.items():
            dimm_ns[dimm * per_channel + number] = end_ns
    read_ns = [
        max(of.of_reads[number] for of in ends if number in of.of_reads) for number in range(len(reading))
    ]
    cycle_ns = _layer_ns(record, dimm_ns, dict(zip(map(id, reading), read_ns, strict=True)))

    on_path = [record.jobs[place] for place in record.critical_path]
    read_there = set(map(id, on_path))
    computed_there = {job.resource for job in on_path}

    def checked(name: str, by_rate_ns: float, by_cycle_ns: float, critical: bool) -> CheckedEnd:
        error = (by_rate_ns - by_cycle_ns) / (by_cycle_ns if critical else cycle_ns)
        return CheckedEnd(name, by_rate_ns, by_cycle_ns, error, critical)

    by_rate_ns = {dimm: max(job.end_ns for job in jobs) for dimm, jobs in _ndp_jobs(record).items()}
    return LayerCheck(
        step=record.step,
        layer=record.layer,
        limit=limit,
        rate_ns=rate_ns,
        cycle_ns=cycle_ns,
        error=rate_ns / cycle_ns - 1,
        ends=(
            *(
                checked(
                    f"dimm {dimm}",
                    by_rate_ns[dimm] - record.start_ns,
                    dimm_ns[dimm],
                    f"ndp {dimm}" in computed_there,
                )
                for dimm in sorted(dimm_ns)
            ),
            *(
                checked(
                    f"read {job.expert} {'cpu' if job.resource == 'cpu' else 'gpu'}",
                    job.end_ns - record.start_ns,
                    end_ns,
                    id(job) in read_there,
                )
                for job, end_ns in zip(reading, read_ns, strict=True)
            ),
        ),
    )


def _ndp_jobs(record: LayerRecord) -> dict[int, list[JobRecord]]:
    """The jobs of each DIMM, in their order."""
    found: dict[int, list[JobRecord]] = {}
    for job in sorted(record.jobs, key=lambda job: job.start_ns):
        kind, _, dimm = job.resource.partition(" ")
        if kind == "ndp":
            found.setdefault(int(dimm), []).append(job)
    return found


def _channels(costs: Costs, record: LayerRecord, readings: Sequence[_Reading]) -> list[_Channel]:
    """The work of each channel."""
    count, peak_gbps = costs.hardware.system.host.channels, costs.hardware.dimm_host_gbps
    queued: list[list[_Queued]] = [[] for _ in range(count)]
    reads: list[list[_Read]] = [[] for _ in range(count)]

    def columns(share: float, slices: int) -> int:
        return max(1, round(share * costs.shape.intermediate / slices))

    for dimm, jobs in _ndp_jobs(record).items():
        release_ns = jobs[0].start_ns - record.start_ns
        for job in jobs:
            width = columns(job.share, int(record.placement.shards[job.expert]))
            bits = _bits_of(costs, record, job)
            queued[dimm % count].append(_Queued(dimm // count, width, job.tokens, release_ns, bits))
    for number, (dimm, shards, share, limit_gbps, start_ns, _, bits) in enumerate(readings):
        parts = count if dimm == STRIPED else shards
        gbps = round(min(limit_gbps / parts, peak_gbps), 3)
        for part in range(parts):
            channel = part if dimm == STRIPED else (dimm + part) % count
            at = STRIPED if dimm == STRIPED else (dimm + part) // count
            width = columns(share, 1 if dimm == STRIPED else shards)
            reads[channel].append(_Read(number, width, at, gbps, start_ns, bits))
    return [
        _Channel(tuple(queued[channel]), tuple(reads[channel]), tuple(_moves(costs, record, channel)))
        for channel in range(count)
    ]


def _moves(costs: Costs, record: LayerRecord, channel: int) -> Iterator[_Move]:
    """The remaining parts of relayouts that touch DIMMs of a channel.

    The session simulates the first channel: DIMMs are rotated so that this channel is the first one. On a
    ring of links nothing else changes.
    """
    dimms, channels = costs.hardware.system.dimm.count, costs.hardware.system.host.channels
    own = {STRIPED, *range(channel, dimms, channels)}
    for move in record.moving:
        if move.target == "gpu":
            continue
        ends = [Location.from_name(name).dimm for name in (move.source, move.target)]
        if own.intersection(ends):
            source, target = (0 if dimm == STRIPED else (dimm - channel) % dimms for dimm in ends)
            columns = max(1, round(move.share * costs.shape.intermediate))
            first, second = (name.partition(" ")[0] for name in (move.source, move.target))
            yield _Move(first, second, source, target, columns, move.start_ns - record.start_ns)


def _bits_of(costs: Costs, record: LayerRecord, job: JobRecord) -> int | ExpertFormat:
    """Bits of the weights that a job reads."""
    return record.assignment.bits.get(job.expert, costs.bits)


def _job_reading(costs: Costs, record: LayerRecord, job: JobRecord) -> _Reading:
    dimm, shards = int(record.placement.dimm[job.expert]), int(record.placement.shards[job.expert])
    gbps = job.read_limit_gbps * job.pcie_part
    times = job.start_ns - record.start_ns, job.end_ns - record.start_ns
    return _Reading(dimm, shards, job.share, gbps, *times, _bits_of(costs, record, job))


def _copy_reading(costs: Costs, record: LayerRecord, move: MovingRecord) -> _Reading:
    """The rest of a copy to the GPU that was decided before."""
    link, gpu = costs.hardware.system.pcie, costs.hardware.system.gpu
    assert link is not None  # otherwise nothing would remain to copy
    assert gpu is not None
    gbps = (
        gpu.count * link.gbps * link.packet_bytes / (link.packet_bytes + link.header_bytes) * move.pcie_part
    )
    return _Reading(
        *Location.from_name(move.source),
        move.share,
        gbps,
        move.start_ns - record.start_ns,
        move.end_ns - record.start_ns,
        costs.bits,
    )


def _cuts(record: LayerRecord, readings: Sequence[_Reading], channels: int) -> list[float]:
    """The first time on each channel, after its experts, at which no read is active by the rates."""
    experts_ns = [0.0] * channels
    for dimm, jobs in _ndp_jobs(record).items():
        end_ns = _MARGIN * (jobs[-1].end_ns - record.start_ns)
        experts_ns[dimm % channels] = max(experts_ns[dimm % channels], end_ns)
    spans = [(reading.start_ns, reading.end_ns) for reading in readings]
    quiet = [
        ns
        for ns in sorted({end_ns for _, end_ns in spans})
        if not any(begin < ns - _SAME_NS and end > ns + _SAME_NS for begin, end in spans)
    ]
    last_ns = max(experts_ns)
    return [
        next((ns for ns in quiet if ns >= (of_channel or last_ns)), math.inf) for of_channel in experts_ns
    ]


def _run_all(costs: Costs, channels: Sequence[_Channel], cuts: Sequence[float]) -> list[_Ends]:
    """The ends on each channel; reads after its cut run without experts. Equal sessions run once."""
    first_ns = min(cuts) - _SAME_NS
    heads = [
        channel._replace(reads=tuple(read for read in channel.reads if read.start_ns < cut - _SAME_NS))
        for channel, cut in zip(channels, cuts, strict=True)
    ]
    tails = [
        _Channel((), tuple(read for read in channel.reads if read.start_ns >= first_ns))
        for channel in channels
    ]
    different = [channel for channel in dict.fromkeys([*heads, *tails]) if any(channel)]
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        ends = dict(zip(different, pool.map(lambda channel: _run(costs, channel), different), strict=True))
    ends[_Channel((), ())] = _Ends({}, {})
    return [
        _Ends(ends[head].of_dimms, {**ends[tail].of_reads, **ends[head].of_reads})
        for head, tail in zip(heads, tails, strict=True)
    ]


def _run(costs: Costs, channel: _Channel) -> _Ends:
    """A session of one channel."""
    hidden = costs.shape.hidden
    session = Session(costs.hardware, arbitration=costs.arbitration, start_clock=costs.start_clock)
    for one in channel.queued:
        for tokens in in_turns(one.tokens):
            session.expert(Expert(hidden, one.columns), tokens, one.dimm, one.release_ns, one.bits)
    for read in channel.reads:
        layout, dimm = ("striped", 0) if read.dimm == STRIPED else ("localized", read.dimm)
        model = Expert(hidden, read.columns)
        session.host_read(model, layout, read.gbps, read.start_ns, read.bits, dimm, behind=True)
    add_traffic(session, costs.traffic)
    for move in sorted(channel.moves, key=lambda move: move.start_ns):
        _move(session, Expert(hidden, move.columns), move, costs)
    session.run()
    of_dimms: dict[int, float] = {}
    for job in session.jobs:
        of_dimms[job.dimm] = max(of_dimms.get(job.dimm, 0.0), job.end_ns or 0.0)
    ends = (stream.end_ns or 0.0 for stream in session.hosts[: len(channel.reads)])
    return _Ends(of_dimms, {read.number: end for read, end in zip(channel.reads, ends, strict=True)})


def _move(session: Session, expert: Expert, move: _Move, costs: Costs) -> None:
    """Start a relayout in a session after the previous one, because a session has one at a time."""
    if session.relayouts and session.now_ns < move.start_ns:
        session.run(move.start_ns)
    while session.relayouts and session.relayouts[-1].end_ns is None:
        session.run(session.now_ns + _LATER_NS)
    dimms = [move.source_dimm], [move.target_dimm]
    session.relayout(expert, 1, move.source, move.target, *dimms, bits=costs.bits, start_ns=move.start_ns)


def _layer_ns(record: LayerRecord, dimm_ns: dict[int, float], read_ns: dict[int, float]) -> float:
    """The time of the layer with these ends of DIMMs, and of the reads of jobs by their identity.

    Results leave as long after the last expert of CPU and DIMMs as in the record. The GPU computes in its
    order, and copied experts only after their arrival.
    """
    off_gpu = [job for job in record.jobs if job.resource == "cpu" or job.resource.startswith("ndp ")]
    by_rate_ns = max((job.end_ns for job in off_gpu), default=record.start_ns) - record.start_ns
    read_off_gpu = (read_ns[id(job)] for job in off_gpu if id(job) in read_ns)
    by_cycle_ns = max((*dimm_ns.values(), *read_off_gpu), default=by_rate_ns)
    arrived = {
        job.expert: read_ns.get(id(job), job.end_ns - record.start_ns)
        for job in record.jobs
        if job.kind == "copy"
    }
    ends, gpu_ns, before_ns = [by_cycle_ns, *read_ns.values()], 0.0, record.start_ns
    for job in record.jobs:
        if job.resource == "gpu":
            waited_ns = 0.0 if job.start_ns <= before_ns else job.start_ns - record.start_ns
            gpu_ns = max(gpu_ns, arrived.get(job.expert, waited_ns)) + job.end_ns - job.start_ns
            before_ns = job.end_ns
            ends.append(gpu_ns)
        elif job.kind == "results":
            ends.append(job.end_ns - record.start_ns + by_cycle_ns - by_rate_ns)
    return max(ends)
