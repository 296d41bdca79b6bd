"""Cycle-level sessions of a DIMM with experts, host reads and relayouts: what each reaches beside others."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache as cache_results
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ndpsim.config import Hardware
from ndpsim.dimm.layout import ExpertFormat
from ndpsim.inference.layers.beside_host import add_traffic, dimms_on_channel
from ndpsim.simulate import Session, simulate_expert
from ndpsim.simulate.host_traffic import HostTraffic
from ndpsim.workload.models import Expert

# ---- Threads for simulations, whose kernels run without the interpreter lock


_MOST = 4  # some simulations of a large expert need 100 MB each


def simulation_threads() -> ThreadPoolExecutor:
    """A thread for each processor, within limits."""
    return ThreadPoolExecutor(min(os.cpu_count() or 1, _MOST))


# ---- Plans


@dataclass(frozen=True)
class Plan:
    """What is measured for a `SlowdownTable`.

    Windows begin after the first activations, so that a read has been on all ranks. With windows that end
    at 400 us, rates of experts of deepseek-v2 and qwen3-235b-a22b on `trimoe` differ by 0.7% on average, by
    3% at most, those of relayouts by 1.7% and 7%.

    Attributes:
        tokens: tokens of the experts; a tile of `trimoe` holds 16 to 18 tokens of deepseek-v2.
        relayout_tokens: those of `tokens` that are also measured beside relayouts.
        streams: numbers of concurrent host reads, from 1; parts of sharded experts have more.
        shares: rates that a host read asks for, as shares of its rate alone; an unpaced read follows.
        shares_of_several: the same for several reads together.
        crowded: indices of the rates of one read that are also measured beside a relayout.
        window_ns, relayout_window_ns: begin and end of measuring, without and with relayouts.
        vector_tokens: tokens of the short experts whose vectors take the bus from host reads; at least two.
        vector_experts: minimum number of these experts in a window.
    """

    tokens: tuple[int, ...] = (1, 3, 8, 20)
    relayout_tokens: tuple[int, ...] = (1, 3, 8)
    streams: tuple[int, ...] = (1, 2)
    shares: tuple[float, ...] = (0.25, 0.5, 0.7, 0.85)
    shares_of_several: tuple[float, ...] = (0.5, 0.75)
    crowded: tuple[int, ...] = (1, 4)
    window_ns: tuple[float, float] = (20_000.0, 100_000.0)
    relayout_window_ns: tuple[float, float] = (20_000.0, 55_000.0)
    vector_tokens: tuple[int, ...] = (1, 4, 16)
    vector_experts: int = 6


_PLAN: ContextVar[Plan] = ContextVar("plan")


def plan_in_use() -> Plan:
    """The plan by which tables are measured in this context."""
    return _PLAN.get(Plan())


@contextmanager
def measured_by(plan: Plan) -> Iterator[None]:
    """Measure tables by another plan; the cache keeps those of each plan apart."""
    before = _PLAN.set(plan)
    try:
        yield
    finally:
        _PLAN.reset(before)


# ---- Sessions


Floats = NDArray[np.float64]

_PERIODS = 3.3  # of experts that a window is at least as long as,
_LONGER = 1.0  # where they take no longer than so many windows
_MOST_EXPERTS = 16  # in a queue; where they are short, the window is as well
_FAR = 2.0  # an expert that takes so many windows has not read all of its weights at the end of one


class Reached(NamedTuple):
    """GB/s in the window: of each DIMM's unit, of the host, and what a relayout read and wrote.

    expert_ns: the window over the experts that it has, those that only begin or end in it as a half.
    """

    ndp: tuple[float, ...]
    host: float
    moved: tuple[float, float]
    expert_ns: float

    def mean_ndp(self, dimms: int) -> float:
        """Mean of `ndp` over the units of the first DIMMs."""
        return sum(self.ndp[:dimms]) / dimms


class Sessions:
    """Sessions of one channel with the same experts in the queue of each DIMM.

    Args:
        traffic: the host's own traffic on each DIMM, beside which everything runs; None: there is none.

    Attributes:
        on_channel: DIMMs of a channel.
        peak_gbps: rate of a host read that is not paced.
    """

    def __init__(
        self,
        hardware: Hardware,
        model: Expert,
        bits: int | ExpertFormat,
        arbitration: str,
        plan: Plan,
        traffic: HostTraffic | None = None,
    ) -> None:
        self.on_channel, self.traffic = dimms_on_channel(hardware), traffic
        self.hardware, self.model, self.bits, self.arbitration = hardware, model, bits, arbitration
        self.plan, self.peak_gbps, device = plan, hardware.dimm_host_gbps, hardware.lane_device()
        # Of all ranks, whose turns come again then.
        self._round_bytes = hardware.lanes * device.open_bursts * device.burst_bytes
        self.alone = cache_results(lambda tokens: simulate_expert(hardware, model, tokens, bits=bits))

    def run(
        self,
        tokens: int,
        dimms: int,
        window_ns: tuple[float, float],
        add: Callable[[Session, float], object] = lambda session, end_ns: None,
    ) -> Reached:
        """Rates in the window of experts of this many tokens, 0: none, and of all that `add` adds."""
        # Lanes of a DIMM without experts would take as much memory as those of one with experts.
        session, (begin_ns, end_ns) = Session(self.hardware, dimms, self.arbitration), window_ns
        read_bytes = 0.0
        if tokens:
            alone = self.alone(tokens)
            alone_ns, read_bytes = alone.time_ns, alone.weight_bytes * alone.weight_reads
            shorter = min(1.0, (_MOST_EXPERTS - 1) * alone_ns / end_ns)
            begin_ns, end_ns = begin_ns * shorter, end_ns * shorter
            if alone_ns < _LONGER * end_ns:
                end_ns = max(end_ns, begin_ns + _PERIODS * alone_ns)
            # One more than end, whose weights are read ahead; but none where the first does not end.
            each = 1 if alone_ns > _FAR * end_ns else int(end_ns / alone_ns) + 2
            for number in range(dimms * each):
                session.expert(self.model, tokens, number % dimms, bits=self.bits)
        add(session, end_ns)
        reads = len(session.hosts)
        add_traffic(session, self.traffic)
        session.run(begin_ns)
        before = _moved(session, reads)
        session.run(end_ns)
        *ndp, host, read, written = ((_moved(session, reads) - before) / (end_ns - begin_ns)).tolist()
        for dimm in range(dimms):
            ends = [job.end_ns for job in session.jobs if job.dimm == dimm and job.end_ns is not None]
            ends = [ns for ns in ends if begin_ns < ns <= end_ns]
            if len(ends) > 1:  # whole experts, each with its vectors
                ndp[dimm] = read_bytes * (len(ends) - 1) / (ends[-1] - ends[0])
        times = [ns for job in session.jobs for ns in (job.start_ns, job.end_ns) if ns is not None]
        halves = sum(begin_ns < ns <= end_ns for ns in times)
        return Reached(tuple(ndp), host, (read, written), 2 * (end_ns - begin_ns) / max(halves, 1))

    def without_others(self, tokens: int) -> Reached:
        """Run on one DIMM without other traffic."""
        return self.run(tokens, 1, self.plan.window_ns)

    def beside_host(self, streams: int, tokens: int, gbps: float) -> Reached:
        """Run beside localized host reads of one DIMM after the other, with this rate together."""
        of_each = gbps if gbps == self.peak_gbps else gbps / streams
        dimms = min(streams, self.on_channel)

        def add(session: Session, end_ns: float) -> None:
            for stream in range(streams):
                self._read(session, end_ns, of_each, stream % dimms)

        begin_ns, end_ns = self.plan.window_ns
        round_ns = self._round_bytes / of_each
        rounds = max(1, round((end_ns - begin_ns) / round_ns))
        return self.run(tokens, dimms, (begin_ns, begin_ns + rounds * round_ns), add)

    def beside_vectors(self, tokens: int, gbps: float) -> Reached:
        """Run experts on the first DIMM beside a localized host read of the last one."""
        alone_ns = self.alone(tokens).time_ns
        begin_ns, end_ns = self.plan.window_ns
        end_ns = max(end_ns, begin_ns + self.plan.vector_experts * alone_ns)
        return self.run(
            tokens,
            1,
            (begin_ns, end_ns),
            lambda session, until_ns: self._read(session, until_ns, gbps, self.on_channel - 1),
        )

    def _read(self, session: Session, end_ns: float, gbps: float, dimm: int) -> None:
        """A localized host read that does not end."""
        columns = self._columns(1.1 * gbps, end_ns)
        session.host_read(Expert(self.model.hidden, columns), "localized", gbps, dimm=dimm, behind=True)

    def _columns(self, gbps: float, end_ns: float) -> int:
        """Columns of an expert of 16 bits that this rate does not move before a time."""
        return int(gbps * end_ns / (6 * self.model.hidden)) + 1

    def beside_relayout(self, tokens: int, source: str, target: str) -> Reached:
        """Run beside a relayout of the first DIMM; between two localized layouts it goes to the second."""
        second = self.hardware.system.host.channels

        def add(session: Session, end_ns: float) -> None:
            first_dimms = [0], [second if source == target else 0]
            # No more than the lanes of a DIMM could read or write until then.
            columns = self._columns(self.hardware.dimm_peak_gbps, end_ns)
            moved = Expert(self.model.hidden, min(columns, self.model.intermediate))
            session.relayout(moved, 1, source, target, *first_dimms)

        return self.run(tokens, 2, self.plan.relayout_window_ns, add)

    def crowded(self, writes: bool, tokens: int, gbps: float) -> Reached:
        """A relayout writes the first DIMM, or reads it, beside a localized host read at a rate; 0: none."""
        link = self.hardware.system.link
        assert link is not None
        # 3.5 times what a link carries, so that only the first of three matrices is moved; a bridge between
        # groups of DIMMs may be faster, but no faster than a channel.
        most_gbps = min(self.hardware.dimm_peak_gbps, max(3.5 * link.link_gbps, self.peak_gbps))

        def add(session: Session, end_ns: float) -> None:
            if gbps:
                self._read(session, end_ns, gbps, 0)
            ends = ([1], [0]) if writes else ([0], [1])
            moved = Expert(self.model.hidden, self._columns(most_gbps, end_ns))
            session.relayout(moved, 1, "localized", "localized", *ends)

        return self.run(tokens, 1, self.plan.relayout_window_ns, add)


def _moved(session: Session, reads: int) -> Floats:
    """Bytes until now, as in `Reached`; the host's first streams are its reads."""
    relayouts = session.relayouts
    return np.array(
        [
            *session.ndp_bytes,
            sum(stream.bytes for stream in session.hosts[:reads]),
            sum(relayout.read_bytes for relayout in relayouts),
            sum(relayout.written_bytes for relayout in relayouts),
        ],
        dtype=np.float64,
    )
