"""Cycle-level sessions of a DIMM with experts, host reads and relayouts: what each reaches beside others."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache as cache_results
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ndpsim.config import Hardware
from ndpsim.dimm.layout import ExpertFormat
from ndpsim.simulate import Session, simulate_expert
from ndpsim.simulate.results.cache import Lookup, ResultCache
from ndpsim.simulate.results.shared_dimm import SharedDimmResult
from ndpsim.simulate.results.stopwatch import Stopwatch
from ndpsim.simulate.weights import describe_weights, named_weights
from ndpsim.workload.models import Expert

# ---- Threads for simulations, whose kernels run without the interpreter lock


_MOST = 4  # some simulations of a large expert need 100 MB each


def simulation_threads() -> ThreadPoolExecutor:
    """A thread for each processor, within limits."""
    return ThreadPoolExecutor(min(os.cpu_count() or 1, _MOST))


# ---- Measurements


_log = logging.getLogger("ndpsim")

Floats = NDArray[np.float64]

_TOKENS = 1, 3, 8, 20  # a tile of trimoe holds 16 to 18 tokens of deepseek-v2
_RELAYOUT_TOKENS = 1, 3, 8
_SHARES = 0.25, 0.5, 0.7, 0.85  # of what a host read reaches alone,
_SHARES_OF_SEVERAL = 0.5, 0.75  # and of several, which have less of a channel each
# After the first activations, so that a read has been on all ranks. With windows that end at 400 us, rates of
# experts of deepseek-v2 and qwen3-235b-a22b on `trimoe` differ by 0.7% on average, by 3% at most, those of
# relayouts by 1.7% and 7%.
_WINDOW_NS = 20_000.0, 100_000.0
_RELAYOUT_WINDOW_NS = 20_000.0, 55_000.0
_CROWDED = 1, 4  # of the rates of the host, those that are tried beside a relayout as well
_PERIODS = 3.3  # of experts that a window is at least as long as,
_LONGER = 1.0  # where they take no longer than so many windows
_MOST_EXPERTS = 16  # in a queue; where they are short, the window is as well
_FAR = 2.0  # an expert that takes so many windows has not read all of its weights at the end of one
_VECTOR_TOKENS = 1, 4, 16  # what their vectors take is on lines between these, and on beyond the last
_VECTOR_COLUMNS = 64  # of experts that are short, so that many vectors pass in a window
_VECTOR_EXPERTS = 6  # in a window, at least


class _Reached(NamedTuple):
    """GB/s in the window: of each DIMM's unit, of the host, and what a relayout read and wrote.

    expert_ns: the window over the experts that it has, those that only begin or end in it as a half.
    """

    ndp: tuple[float, ...]
    host: float
    read: float
    written: float
    expert_ns: float

    def mean_ndp(self, dimms: int) -> float:
        """Mean of `ndp` over the units of the first DIMMs."""
        return sum(self.ndp[:dimms]) / dimms


class _Sessions:
    """Sessions of one channel with the same experts in the queue of each DIMM."""

    def __init__(self, hardware: Hardware, model: Expert, bits: int | ExpertFormat, arbitration: str) -> None:
        self.on_channel = -(-hardware.system.dimm.count // hardware.system.host.channels)
        self.hardware, self.model, self.bits, self.arbitration = hardware, model, bits, arbitration
        self.peak_gbps, device = hardware.dimm_host_gbps, hardware.lane_device()
        # Of all ranks, whose turns come again then.
        self._round_bytes = hardware.lanes * device.open_bursts * device.burst_bytes
        self.alone = cache_results(lambda tokens: simulate_expert(hardware, model, tokens, bits=bits))

    def run(
        self,
        tokens: int,
        dimms: int,
        window_ns: tuple[float, float],
        add: Callable[[Session, float], object] = lambda session, end_ns: None,
    ) -> _Reached:
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
        session.run(begin_ns)
        before = _moved(session)
        session.run(end_ns)
        *ndp, host, read, written = ((_moved(session) - before) / (end_ns - begin_ns)).tolist()
        for dimm in range(dimms):
            ends = [job.end_ns for job in session.jobs if job.dimm == dimm and job.end_ns is not None]
            ends = [ns for ns in ends if begin_ns < ns <= end_ns]
            if len(ends) > 1:  # whole experts, each with its vectors
                ndp[dimm] = read_bytes * (len(ends) - 1) / (ends[-1] - ends[0])
        times = [ns for job in session.jobs for ns in (job.start_ns, job.end_ns) if ns is not None]
        halves = sum(begin_ns < ns <= end_ns for ns in times)
        return _Reached(tuple(ndp), host, read, written, 2 * (end_ns - begin_ns) / max(halves, 1))

    def beside_host(self, tokens: int, gbps: float, streams: int = 1) -> _Reached:
        """Run beside localized host reads of one DIMM after the other, with this rate together."""
        of_each = gbps if gbps == self.peak_gbps else gbps / streams
        dimms = min(streams, self.on_channel)

        def add(session: Session, end_ns: float) -> None:
            for stream in range(streams):
                self._read(session, end_ns, of_each, stream % dimms)

        begin_ns, end_ns = _WINDOW_NS
        round_ns = self._round_bytes / of_each
        rounds = max(1, round((end_ns - begin_ns) / round_ns))
        return self.run(tokens, dimms, (begin_ns, begin_ns + rounds * round_ns), add)

    def beside_vectors(self, tokens: int, gbps: float) -> _Reached:
        """Run experts on the first DIMM beside a localized host read of the last one."""
        alone_ns = self.alone(tokens).time_ns
        begin_ns, end_ns = _WINDOW_NS
        end_ns = max(end_ns, begin_ns + _VECTOR_EXPERTS * alone_ns)
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

    def beside_relayout(self, tokens: int, source: str, target: str) -> _Reached:
        """Run beside a relayout of the first DIMM; between two localized layouts it goes to the second."""
        second = self.hardware.system.host.channels

        def add(session: Session, end_ns: float) -> None:
            first_dimms = [0], [second if source == target else 0]
            # No more than the lanes of a DIMM could read or write until then.
            columns = self._columns(self.hardware.dimm_peak_gbps, end_ns)
            moved = Expert(self.model.hidden, min(columns, self.model.intermediate))
            session.relayout(moved, 1, source, target, *first_dimms)

        return self.run(tokens, 2, _RELAYOUT_WINDOW_NS, add)

    def crowded(self, tokens: int, gbps: float, writes: bool) -> _Reached:
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

        return self.run(tokens, 1, _RELAYOUT_WINDOW_NS, add)


def _moved(session: Session) -> Floats:
    """Bytes until now; as in `_Reached`."""
    relayouts = session.relayouts
    return np.array(
        [
            *session.ndp_bytes,
            sum(stream.bytes for stream in session.hosts),
            sum(relayout.read_bytes for relayout in relayouts),
            sum(relayout.written_bytes for relayout in relayouts),
        ],
        dtype=np.float64,
    )


def measure_shared_dimm(
    hardware: Hardware,
    model: Expert,
    bits: int | ExpertFormat,
    arbitration: str,
    cache: bool | ResultCache,
    is_part: bool,
) -> SharedDimmResult:
    """Rates of experts beside host reads and relayouts, and of host reads beside their vectors.

    is_part: of an expert over several DIMMs; nothing is measured beside relayouts. Other
    arguments are those of `contention_table`.
    """
    stopwatch = Stopwatch()
    weights, _ = named_weights(model, bits)
    lookup = Lookup(SharedDimmResult, cache, False, (hardware, weights, arbitration, is_part), {})
    if (found := lookup.find(stopwatch, lambda share: None)) is not None:
        return found
    sessions = _Sessions(hardware, model, bits, arbitration)
    streams: tuple[int, ...] = (1, 2)
    if is_part:
        streams = tuple(sorted({*streams, sessions.on_channel, 2 * max(2, sessions.on_channel)}))
    host_alone = sessions.beside_host(0, sessions.peak_gbps).host
    offered = *(share * host_alone for share in _SHARES), sessions.peak_gbps
    of_several = *(share * host_alone for share in _SHARES_OF_SEVERAL), sessions.peak_gbps
    offered_by = {count: offered if count == 1 else of_several for count in streams}
    relayouts = [] if is_part else _relayouts(hardware)
    asked = [(count, n, gbps) for count in streams for n in _TOKENS for gbps in offered_by[count]]
    short = _Sessions(hardware, Expert(model.hidden, _VECTOR_COLUMNS), 16, arbitration)
    halves = [(n, gbps) for n in _VECTOR_TOKENS for gbps in offered[1::3]]
    moves = [(n, *ends) for n in _RELAYOUT_TOKENS for ends in relayouts]
    crowds = [
        (writes, n, gbps)
        for writes in ((False, True) if relayouts else ())
        for n in _RELAYOUT_TOKENS
        for gbps in (0.0, *(offered[of] for of in _CROWDED))
    ]
    _log.info(
        "measuring how experts, host reads and relayouts slow each other on a DIMM: %d simulations ...",
        len(crowds) + len(asked) + len(moves) + len(halves) + len(_TOKENS),
        extra={"notice": True},
    )
    with simulation_threads() as pool:
        of_crowds = pool.map(lambda one: sessions.crowded(one[1], one[2], one[0]), crowds)
        of_asked = pool.map(lambda one: sessions.beside_host(one[1], one[2], one[0]), asked)
        of_moves = pool.map(lambda one: sessions.beside_relayout(*one), moves)
        of_halves = pool.map(lambda one: short.beside_vectors(*one), halves)
        of_tokens = pool.map(lambda n: sessions.run(n, 1, _WINDOW_NS).ndp[0], _TOKENS)
    crowded, moved, vectors = list(of_crowds), list(of_moves), list(of_halves)
    alone, beside = dict(zip(_TOKENS, of_tokens, strict=True)), dict(zip(asked, of_asked, strict=True))
    lost = [
        max(0.0, 1 - one.host / min(gbps, host_alone)) * one.expert_ns
        for (_, gbps), one in zip(halves, vectors, strict=True)
    ]
    reads, writes = _relayout_rows(moves, moved, alone)
    ndp_crowded, relayout_crowded = _crowded_rows(
        dict(zip(crowds, crowded, strict=True)),
        {(n, gbps): beside[1, n, gbps] for n in _TOKENS for gbps in offered},
        alone,
    )
    bus_ns = lost[1::2]

    def tabled(value: Callable[[int, int, float], float]) -> Rates:
        return tuple(
            tuple(tuple(value(count, n, gbps) for gbps in offered_by[count]) for n in _TOKENS)
            for count in streams
        )

    def host_rate(count: int, tokens: int) -> float:
        expert_ns = sessions.alone(tokens).time_ns
        vectors_ns = min(count, sessions.on_channel) * float(np.interp(tokens, _VECTOR_TOKENS, bus_ns))
        reached = beside[count, tokens, offered[-1]].host / host_alone
        return min(1.0, reached / max(1 - vectors_ns / expert_ns, reached))

    result = SharedDimmResult(
        tokens=_TOKENS,
        offered_gbps=tuple(offered),
        host_alone_gbps=host_alone,
        streams=streams,
        host_gbps=tabled(lambda count, n, gbps: beside[count, n, gbps].host),
        host_rate=tuple(tuple(host_rate(count, n) for n in _TOKENS) for count in streams),
        ndp_rate=tabled(
            lambda count, n, gbps: beside[count, n, gbps].mean_ndp(min(count, sessions.on_channel)) / alone[n]
        ),
        vector_tokens=_VECTOR_TOKENS,
        bus_ns=tuple(bus_ns),
        pause_ns=tuple(lost[::2]),
        relayout_tokens=_RELAYOUT_TOKENS if relayouts else (),
        read_gbps=tuple(tuple(gbps for gbps, _ in row) for row in reads),
        ndp_rate_beside_reads=tuple(tuple(rate for _, rate in row) for row in reads),
        written_gbps=tuple(tuple(gbps for gbps, _ in row) for row in writes),
        ndp_rate_beside_writes=tuple(tuple(rate for _, rate in row) for row in writes),
        crowded_gbps=tuple(offered[of] for of in _CROWDED),
        ndp_rate_crowded=ndp_crowded,
        relayout_rate_crowded=relayout_crowded,
        config={
            "hardware": hardware.to_dict(),
            **describe_weights(weights, None),
            "arbitration": arbitration,
            "is_part": is_part,
            "window_ns": _WINDOW_NS,
        },
        **stopwatch.times(),
    )
    return lookup.store(result)


def _relayouts(hardware: Hardware) -> list[tuple[str, str]]:
    """The relayouts that are measured: none without links, or with one DIMM on a channel."""
    system = hardware.system
    two_dimms = system.dimm.count > system.host.channels
    if system.link is None or system.ndp is None or system.ndp.relayout is None or not two_dimms:
        return []
    return [("localized", "localized"), ("localized", "striped"), ("striped", "localized")]


Rates = tuple[tuple[tuple[float, ...], ...], ...]


def _crowded_rows(
    crowded: dict[tuple[bool, int, float], _Reached],
    beside_host: dict[tuple[int, float], _Reached],
    alone: dict[int, float],
) -> tuple[Rates, Rates]:
    """Remaining rates of experts, and of relayouts, in the order of `SharedDimmResult`.

    crowded: by whether the relayout writes, tokens and the host's rate; 0: without it.
    """
    hosts = sorted({gbps for _, _, gbps in crowded if gbps})

    def moved(writes: bool, tokens: int, gbps: float) -> float:
        reached = crowded[writes, tokens, gbps]
        return reached.written if writes else reached.read

    def ndp_left(writes: bool, tokens: int, gbps: float) -> float:
        expected = beside_host[tokens, gbps].ndp[0] * crowded[writes, tokens, 0.0].ndp[0] / alone[tokens]
        return crowded[writes, tokens, gbps].ndp[0] / expected

    def rows(left: Callable[[bool, int, float], float]) -> Rates:
        counts = _RELAYOUT_TOKENS if crowded else ()
        return tuple(
            tuple(tuple(left(writes, tokens, gbps) for gbps in hosts) for tokens in counts)
            for writes in (False, True)
        )

    return rows(ndp_left), rows(
        lambda writes, tokens, gbps: moved(writes, tokens, gbps) / moved(writes, tokens, 0.0)
    )


Rows = list[list[tuple[float, float]]]


def _relayout_rows(
    moves: Sequence[tuple[int, str, str]], moved: Sequence[_Reached], alone: dict[int, float]
) -> tuple[Rows, Rows]:
    """Rows by tokens: GB/s that a DIMM reads for a relayout, and the rate of its expert; the same for writes.

    From one DIMM to the other, the first reads and the second writes. From the stripes, the first writes.
    Towards them, the first reads, and the second writes what each of both does.
    """
    reads: dict[int, list[tuple[float, float]]] = {n: [] for n, *_ in moves}
    writes: dict[int, list[tuple[float, float]]] = {n: [] for n, *_ in moves}
    for (n, source, target), reached in zip(moves, moved, strict=True):
        first, second = (ndp / alone[n] for ndp in reached.ndp[:2])
        if source == "localized":
            reads[n].append((reached.read, first))
            writes[n].append((reached.written / (2 if target == "striped" else 1), second))
        else:
            writes[n].append((reached.written, first))
    return list(reads.values()), list(writes.values())
