"""How much NDP units, host reads and relayouts slow each other down, from cycle-level sessions.

**Host reads among themselves** share a channel equally, but for those that ask for less (max-min
fairness), whatever their layouts, and what they reach together is what one reaches alone: with two to
four localized, striped, paced and unpaced reads of deepseek-v2's experts on `trimoe`, 33.8 to 33.9 GB/s
in all and each within 1% of that rule.

**An expert beside host reads.** What counts is how fast the channel reads *while* it reads the expert's
DIMM: a read that has the channel to itself takes a whole rank while it is there, and an expert that
computes for longer than it reads still waits; one at half that speed leaves it enough. So entries are by
all that the host reads on the channel, C, measured with one localized read of the expert's DIMM. With H
of it on that DIMM the expert runs at 1 - H/C (1 - rate(tokens, C)): striped reads are on each of two
DIMMs for half of the time. Over 16 random layers of one channel (two DIMMs with 4 to 8 experts of 1 to 12
tokens, 5 to 15 striped and localized reads at 6 to 38 GB/s), ends of DIMMs differ from the cycle-level
session by at most 1.7% of the layer's time, ends of reads by 2.0%, the layer by 0.9%. By H alone it would
be 3.5% for DIMMs and 2.5% for the layer; by the sum over reads of what each costs by itself 5.0% and
2.2%; without any slowdown 15.7% and 7.4%.

**A host read beside experts** reaches 98 to 100% with host-first, and less with other arbitrations.

**An expert beside a relayout** is slowed by what its DIMM reads for it and, more, by what it writes.

**All three.** Where the host reads the DIMM of an expert and a relayout is there, too, expert and relayout
lose more than by each other and by the host: up to a fifth and a third, most where the host reads at half of
what it could. Such losses are measured with one link's relayout, and scale with H/C as those of an expert.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ndpsim.config import Hardware
from ndpsim.layout import ExpertFormat
from ndpsim.moe import Expert
from ndpsim.results.cache import Lookup, ResultCache
from ndpsim.results.shared_dimm import SharedDimmResult
from ndpsim.results.stopwatch import Stopwatch
from ndpsim.simulate import Session, simulate_expert
from ndpsim.simulate.weights import describe_weights, named_weights

__all__ = ["ContentionTable", "contention_table", "shared_bandwidth"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_TOKENS = 1, 2, 3, 5, 8, 16  # a tile of trimoe holds 16 to 18 tokens of deepseek-v2
_RELAYOUT_TOKENS = 1, 3, 8
_SHARES = 0.25, 0.5, 0.7, 0.85  # of what a host read reaches alone
_WINDOW_NS = 20_000.0, 180_000.0  # after the first activations, so that a read has been on all ranks
_RELAYOUT_WINDOW_NS = 20_000.0, 90_000.0
_CROWDED = 1, 3, 4  # of the rates of the host, those that are tried beside a relayout as well
_MOST_EXPERTS = 16  # in a queue; where they are short, the window is as well


@dataclass(frozen=True, eq=False)
class ContentionTable:
    """Rates of experts and of host reads beside each other: 1 is what they are alone.

    Between entries rates lie on a line; beyond the last, they are the last. The module says how to use them.

    Attributes:
        tokens: int64[n], ascending.
        host_gbps: float64[m], ascending from 0: what the host reads on the channel, all of it on this DIMM.
        ndp_rate: float64[n, m], of an expert with so many tokens beside it.
        host_rate: float64[n], of host reads that take all they get, where the DIMM's unit computes so many.
        relayout_gbps: float64[k], ascending from 0: what a relayout reads, or writes, on the DIMM.
        ndp_rate_beside_relayout: float64[n, k], where it reads.
        ndp_rate_beside_writes: float64[n, k], where it writes. Where it does both, losses add up.
        ndp_rate_crowded: float64[2, n, m], after the losses to each, what is left of an expert's rate where
            the host reads so much and a relayout reads the DIMM, and where one writes it.
        relayout_rate_crowded: float64[2, n, m], and what is left of the relayout's rate.
        most_relayout_gbps: float64[2, n], that a relayout reads, and writes, on the DIMM of such an expert.
    """

    tokens: Ints
    host_gbps: Floats
    ndp_rate: Floats
    host_rate: Floats
    relayout_gbps: Floats
    ndp_rate_beside_relayout: Floats
    ndp_rate_beside_writes: Floats
    ndp_rate_crowded: Floats
    relayout_rate_crowded: Floats
    most_relayout_gbps: Floats


def contention_table(
    hardware: Hardware,
    model: Expert,
    bits: int | ExpertFormat,
    arbitration: str,
    cache: bool | ResultCache,
) -> ContentionTable:
    """The table of one model's experts on one hardware; arguments as in `simulate_contention`.

    Raises:
        InputError: the hardware has no host channel, or no NDP units.
    """
    result = _shared_dimm(hardware, model, bits, arbitration, cache)
    tokens = np.array(result.tokens, dtype=np.int64)
    axis = np.array([0.0, *result.offered_gbps[:-1], result.host_alone_gbps])
    ndp_rate = [_on_axis(axis, *of) for of in zip(result.host_gbps, result.ndp_rate, strict=True)]
    reached = np.array([gbps[-1] for gbps in result.host_gbps]) / result.host_alone_gbps
    measured = [gbps for of in (*result.read_gbps, *result.written_gbps) for gbps in of]
    moved = np.unique(np.ceil([0.0, *measured]))
    beside = (
        (result.read_gbps, result.ndp_rate_beside_reads),
        (result.written_gbps, result.ndp_rate_beside_writes),
    )
    of_reads, of_writes = (
        _over_tokens(tokens, result.relayout_tokens, [_on_axis(moved, *of) for of in zip(*each, strict=True)])
        for each in beside
    )
    ndp_crowded, relayout_crowded = (
        np.stack([_crowded_on_axis(axis, tokens, result, rates) for rates in of_both])
        for of_both in (result.ndp_rate_crowded, result.relayout_rate_crowded)
    )
    return ContentionTable(
        tokens,
        axis,
        np.array(ndp_rate),
        np.minimum(reached, 1.0),
        moved,
        of_reads,
        of_writes,
        ndp_crowded,
        relayout_crowded,
        _most_on_tokens(tokens, result),
    )


def shared_bandwidth(gbps: float) -> ContentionTable:
    """The table of a memory device of such a bandwidth: an expert loses the share of it that others read.

    Sessions have no device behind a link, so that this is an assumption, and one on the safe side: experts
    that compute for longer than they read would lose less. Copies over the link come first and lose nothing.
    """
    one, both = np.ones((1, 1)), np.ones((2, 1, 2))
    axis, none = np.array([0.0, gbps]), np.zeros(1)
    most = np.full((2, 1), np.inf)
    alone = np.array([[1.0, 0.0]])
    return ContentionTable(np.array([1]), axis, alone, np.ones(1), none, one, one, both, both, most)


def _most_on_tokens(tokens: Ints, result: SharedDimmResult) -> Floats:
    """What was reached beside experts; with many tokens, when relayouts lose nothing, it is no limit."""
    if not result.relayout_tokens:
        return np.full((2, len(tokens)), np.inf)
    most = [[max(of_tokens) for of_tokens in of] for of in (result.read_gbps, result.written_gbps)]
    return np.array([np.interp(tokens, result.relayout_tokens, row) for row in most])


def _crowded_on_axis(
    axis: Floats, tokens: Ints, result: SharedDimmResult, rates: Sequence[Sequence[float]]
) -> Floats:
    if not rates:
        return np.ones((len(tokens), len(axis)))
    rows = [_on_axis(axis, result.crowded_gbps, of_tokens) for of_tokens in rates]
    return _over_tokens(tokens, result.relayout_tokens, rows)


def _on_axis(axis: Floats, gbps: Sequence[float], rates: Sequence[float]) -> Floats:
    """Rates where they were measured, from 1 at 0 GB/s on, as rates at the points of an axis."""
    order = np.argsort(gbps)
    rising, falling = np.array(gbps)[order], np.minimum(np.array(rates)[order], 1.0)
    on_axis: Floats = np.interp(axis, [0.0, *rising], [1.0, *falling])
    return on_axis


def _over_tokens(tokens: Ints, measured: Sequence[int], rates: Sequence[Floats]) -> Floats:
    """Rows for some numbers of tokens as rows for others."""
    if not rates:
        return np.ones((len(tokens), 1))
    columns = np.array(rates).T
    return np.array([np.interp(tokens, measured, column) for column in columns]).T


class _Reached(NamedTuple):
    """GB/s in the window: of each DIMM's unit, of the host, and what a relayout read and wrote."""

    ndp: tuple[float, ...]
    host: float
    read: float
    written: float


class _Sessions:
    """Sessions of one channel with the same experts in the queue of each DIMM."""

    def __init__(self, hardware: Hardware, model: Expert, bits: int | ExpertFormat, arbitration: str) -> None:
        self.hardware, self.model, self.bits, self.arbitration = hardware, model, bits, arbitration
        self.peak_gbps, device = hardware.dimm_host_gbps, hardware.lane_device()
        open_bytes = device.bankgroups * device.bursts_per_row * device.burst_bytes
        self._round_bytes = hardware.lanes * open_bytes  # of all ranks, whose turns come again then

    def run(
        self,
        tokens: int,
        dimms: int,
        add: Callable[[Session, float], object] = lambda session, end_ns: None,
        window_ns: tuple[float, float] = _WINDOW_NS,
    ) -> _Reached:
        """What is reached in the window by experts of so many tokens, 0: none, and by what `add` adds."""
        session, (begin_ns, end_ns) = Session(self.hardware, None, self.arbitration), window_ns
        if tokens:
            alone_ns = simulate_expert(self.hardware, self.model, tokens, bits=self.bits).time_ns
            shorter = min(1.0, (_MOST_EXPERTS - 1) * alone_ns / end_ns)
            begin_ns, end_ns = begin_ns * shorter, end_ns * shorter
            for number in range(dimms * (int(end_ns / alone_ns) + 2)):
                session.expert(self.model, tokens, number % dimms, bits=self.bits)
        add(session, end_ns)
        session.run(begin_ns)
        before = _moved(session)
        session.run(end_ns)
        rates = (_moved(session) - before) / (end_ns - begin_ns)
        return _Reached(tuple(rates[:-3].tolist()), *rates[-3:].tolist())

    def beside_host(self, tokens: int, gbps: float) -> _Reached:
        """With a localized host read of the first DIMM at a rate."""

        def add(session: Session, end_ns: float) -> None:
            columns = int(1.1 * gbps * end_ns / (6 * self.model.hidden)) + 1
            session.host_read(Expert(self.model.hidden, columns), "localized", gbps, behind=True)

        begin_ns, end_ns = _WINDOW_NS
        round_ns = self._round_bytes / gbps
        rounds = max(1, round((end_ns - begin_ns) / round_ns))
        return self.run(tokens, 1, add, (begin_ns, begin_ns + rounds * round_ns))

    def beside_relayout(self, tokens: int, source: str, target: str) -> _Reached:
        """With a relayout from, or to, the first DIMM; between localized ones, to the second."""
        second = self.hardware.system.host.channels

        def add(session: Session, end_ns: float) -> None:
            first_dimms = [0], [second if source == target else 0]
            # No more than the lanes of a DIMM could read or write until then.
            columns = int(self.hardware.dimm_peak_gbps * end_ns / (6 * self.model.hidden)) + 1
            moved = Expert(self.model.hidden, min(columns, self.model.intermediate))
            session.relayout(moved, 1, source, target, *first_dimms)

        return self.run(tokens, 2, add, _RELAYOUT_WINDOW_NS)

    def crowded(self, tokens: int, gbps: float, writes: bool) -> _Reached:
        """A relayout writes the first DIMM, or reads it, beside a localized host read at a rate; 0: none."""
        hidden = self.model.hidden

        def add(session: Session, end_ns: float) -> None:
            if gbps:
                columns = int(1.1 * gbps * end_ns / (6 * hidden)) + 1
                session.host_read(Expert(hidden, columns), "localized", gbps, behind=True)
            columns = int(self.hardware.dimm_peak_gbps * end_ns / (6 * hidden)) + 1
            ends = ([1], [0]) if writes else ([0], [1])
            session.relayout(Expert(hidden, columns), 1, "localized", "localized", *ends)

        return self.run(tokens, 1, add)


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


def _shared_dimm(
    hardware: Hardware,
    model: Expert,
    bits: int | ExpertFormat,
    arbitration: str,
    cache: bool | ResultCache,
) -> SharedDimmResult:
    stopwatch = Stopwatch()
    weights, _ = named_weights(model, bits)
    given = (hardware, weights, arbitration)
    lookup = Lookup(SharedDimmResult, cache, False, given, {})
    if (found := lookup.find(stopwatch, lambda share: None)) is not None:
        return found
    sessions = _Sessions(hardware, model, bits, arbitration)
    host_alone = sessions.beside_host(0, sessions.peak_gbps).host
    offered = *(share * host_alone for share in _SHARES), sessions.peak_gbps
    relayouts = _relayouts(hardware)
    with ThreadPoolExecutor(2) as pool:
        alone = dict(zip(_TOKENS, pool.map(lambda n: sessions.run(n, 1).ndp[0], _TOKENS), strict=True))
        asked = [(n, gbps) for n in _TOKENS for gbps in offered]
        beside = list(pool.map(lambda one: sessions.beside_host(*one), asked))
        moves = [(n, *ends) for n in _RELAYOUT_TOKENS for ends in relayouts]
        moved = list(pool.map(lambda one: sessions.beside_relayout(*one), moves))
        crowds = [
            (writes, n, gbps)
            for writes in ((False, True) if relayouts else ())
            for n in _RELAYOUT_TOKENS
            for gbps in (0.0, *(offered[of] for of in _CROWDED))
        ]
        crowded = list(pool.map(lambda one: sessions.crowded(one[1], one[2], one[0]), crowds))
    rows = [beside[at : at + len(offered)] for at in range(0, len(beside), len(offered))]
    reads, writes = _relayout_rows(moves, moved, alone)
    ndp_crowded, relayout_crowded = _crowded_rows(
        dict(zip(crowds, crowded, strict=True)), dict(zip(asked, beside, strict=True)), alone
    )
    result = SharedDimmResult(
        tokens=_TOKENS,
        offered_gbps=tuple(offered),
        host_alone_gbps=host_alone,
        host_gbps=tuple(tuple(one.host for one in row) for row in rows),
        ndp_rate=tuple(
            tuple(one.ndp[0] / alone[n] for one in row) for n, row in zip(_TOKENS, rows, strict=True)
        ),
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
    """What is left of the rates of experts, and of relayouts, in the order of `SharedDimmResult`.

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
    """By tokens, GB/s that a DIMM reads for a relayout, and the rate of its expert; likewise what it writes.

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
