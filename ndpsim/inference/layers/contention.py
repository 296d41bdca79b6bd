"""Mutual slowdown of NDP units, host reads and relayouts, measured in cycle-level sessions.

**Several host reads** share a channel equally, except for those that ask for less (max-min fairness), for
all layouts. Together they reach the rate of one read alone. Measured with two to four localized, striped,
paced and unpaced reads of deepseek-v2's experts on `trimoe`: 33.8 to 33.9 GB/s in total, and each read within
1% of the rule.

**An expert beside host reads.** The rate of the channel *while* it reads the expert's DIMM decides. A read
that has the channel to itself occupies a whole rank, so that even a compute-bound expert waits. A read at
half of this rate leaves enough. Therefore entries are by the total rate C of host reads on the channel. If
the share h of it is on the expert's DIMM, the expert runs at 1 - h (1 - rate(tokens, C)): striped reads are
on each of two DIMMs for half of the time.

**Streams.** A striped read visits the DIMMs of a channel in one stream. A sharded read is a stream on each
DIMM; their turns are so short that each DIMM loses nearly as much as by a read of its own. Therefore entries
are also by the number of concurrent streams: 1 and 2, and beside parts of sharded experts the number of DIMMs
of a channel, and twice that. If streams fill the channel, each always has requests in the queue of its DIMM,
even at a low rate: beside a read of 31 GB/s, a read of 2 GB/s on the other DIMM takes 0.31 of the speed of an
expert with one token there, and alone 0.05 (`trimoe`, deepseek-v2 over 8 DIMMs). On a full channel streams
therefore count equally, except streams that mostly have no request in the queue; on other channels they count
by their rates.

**A part of a sharded expert** is short and loses more than a whole expert, so parts are measured separately.

**A host read beside experts** waits for the activations and results of all DIMMs of the channel, which have
priority on the bus: each unit takes 2 to 6% of its channel with parts of deepseek-v2, and two units twice
that. A paced read catches up after short waits, but not after those of many tokens. Further losses of reads
are 0 to 5% with few tokens and many streams, and more with arbitrations other than host-first.

**Errors.** `validation/exact_layers.md` compares 44 layers with the cycle-level session. What remains comes
from the rhythm of reads and experts, which few entries cannot follow: a part of qwen3-235b-a22b over 16 DIMMs
loses 0.19 with 12 tokens, 0.12 with 8 and 0.04 with 16. On `edge`, with three DIMMs on a channel, this effect
is stronger.

**An expert beside a relayout** is slowed down by the reads of its DIMM for the relayout and, more, by writes.

**All three.** If host reads and a relayout are on the DIMM of an expert, expert and relayout lose more than
the sum of the separate losses: up to a fifth and a third, most if the host reads at half of its possible
rate. These losses are measured with the relayout of one link, and are proportional to H/C as those of an
expert.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ndpsim.config import Hardware
from ndpsim.dimm.layout import ExpertFormat
from ndpsim.inference.layers.shared_dimm import (
    Floats,
    Reached,
    Sessions,
    plan_in_use,
    simulation_threads,
)
from ndpsim.simulate.host_traffic import HostTraffic
from ndpsim.simulate.machine import named_weights
from ndpsim.simulate.results.cache import Lookup, ResultCache
from ndpsim.simulate.results.slowdown import SlowdownTable
from ndpsim.simulate.results.stopwatch import Stopwatch
from ndpsim.workload.models import Expert

_log = logging.getLogger("ndpsim")

_VECTOR_COLUMNS = 64  # of experts that are short, so that many vectors pass in a window


def slowdown_table(
    hardware: Hardware,
    model: Expert,
    bits: int | ExpertFormat,
    arbitration: str,
    cache: bool | ResultCache,
    shards: int = 1,
    traffic: HostTraffic | None = None,
) -> SlowdownTable:
    """The table of one model's experts on one hardware, measured by the plan in use.

    Args:
        hardware, model, bits, arbitration, cache: as in `simulate_contention`.
        shards: number of DIMMs, for parts of sharded experts; such a table has no entries beside relayouts.
        traffic: the host's own traffic on each DIMM; all speeds are relative to those beside it alone.

    Raises:
        InputError: the hardware has no host channel, or no NDP units.
    """
    plan = plan_in_use()
    part = model if shards == 1 else Expert(model.hidden, max(1, model.intermediate // shards))
    weights, _ = named_weights(part, bits)
    inputs = [hardware, weights, arbitration, shards > 1, plan, *([] if traffic is None else [traffic])]
    lookup = Lookup(SlowdownTable, cache, False, inputs, {})
    found = lookup.find(Stopwatch(), lambda share: None)
    if found is not None:
        return found
    short = Sessions(hardware, Expert(model.hidden, _VECTOR_COLUMNS), 16, arbitration, plan, traffic)
    sessions = Sessions(hardware, part, bits, arbitration, plan, traffic)
    return lookup.store(_Measured(sessions, short, shards > 1).table())


def joined(whole: SlowdownTable, *sharded: SlowdownTable) -> SlowdownTable:
    """A table with the rows of whole experts, followed by those of parts for the same numbers of tokens.

    Beside relayouts, parts have the entries of whole experts.
    """
    tables = (whole, *sharded)
    streams = max((table.streams for table in tables), key=len)
    axis = np.unique(np.concatenate([table.host_gbps for table in tables]))

    def on_axis(table: SlowdownTable, speeds: Floats) -> Floats:
        return np.apply_along_axis(lambda row: np.interp(axis, table.host_gbps, row), -1, speeds)

    def over_streams(speeds: Floats) -> Floats:
        return np.concatenate([speeds, *[speeds[-1:]] * (len(streams) - len(speeds))])

    def repeated(speeds: Floats, axis: int = -2) -> Floats:
        return np.concatenate([speeds] * len(tables), axis)

    table = whole._replace(
        tokens=np.tile(whole.tokens, len(tables)),
        host_gbps=axis,
        streams=streams,
        waiting_gbps=np.max([table.waiting_gbps for table in tables], axis=0),
        ndp_speed=np.concatenate([over_streams(on_axis(one, one.ndp_speed)) for one in tables], axis=-2),
        host_speed=np.concatenate([over_streams(one.host_speed) for one in tables], axis=-1),
        ndp_speed_moving=repeated(whole.ndp_speed_moving),
        ndp_crowded=repeated(on_axis(whole, whole.ndp_crowded)),
        moving_crowded=repeated(on_axis(whole, whole.moving_crowded)),
        most_moved_gbps=repeated(whole.most_moved_gbps, axis=-1),
    )
    # Numba compiles again for arrays with another layout.
    return SlowdownTable._make(map(np.ascontiguousarray, table))


def shared_bandwidth(gbps: float, queued_reads: int = 1, left: float = 0.0) -> SlowdownTable:
    """The table of a memory device: an expert loses the share of the bandwidth that others read.

    This is a conservative assumption, because sessions have no device behind a link: compute-bound experts
    would lose less. Copies over the link have priority and lose nothing.

    Args:
        queued_reads: maximum number of reads in the queue of a DIMM.
        left: speed of an expert beside reads of all of the bandwidth; 1: nothing slows it down.
    """
    both = np.ones((2, 1, 2))
    return SlowdownTable(
        tokens=np.array([1]),
        host_gbps=np.array([0.0, gbps]),
        streams=np.array([1.0, 2.0, 4.0]),
        waiting_gbps=np.array([gbps / queued_reads]),
        ndp_speed=np.array([[[1.0, left]]] * 3),
        host_speed=np.ones((3, 1)),
        moved_gbps=np.zeros(1),
        ndp_speed_moving=np.ones((2, 1, 1)),
        ndp_crowded=both,
        moving_crowded=both,
        most_moved_gbps=np.full((2, 1), np.inf),
        vector_tokens=np.array([1.0, 2.0]),
        vector_ns=np.zeros((2, 2)),
    )


class _Measured:
    """What sessions reach.

    Args:
        short: of short experts, whose vectors take the bus.
        is_part: experts are parts of sharded ones.

    Attributes:
        alone_gbps: rate of an unpaced host read alone.
        offered: rates that host reads ask for together, by their number; the last is unpaced.
        hosts: those of one read that are also measured beside a relayout.
        crowded, beside, moving, vectors: results by the arguments of `Sessions`; alone: GB/s by tokens.
    """

    def __init__(self, sessions: Sessions, short: Sessions, is_part: bool) -> None:
        self.sessions, self.plan, unpaced = sessions, sessions.plan, sessions.peak_gbps
        plan, dimms = sessions.plan, sessions.on_channel
        self.alone_gbps = alone_gbps = sessions.beside_host(1, 0, unpaced).host
        streams = sorted({*plan.streams, *((dimms, 2 * max(2, dimms)) if is_part else ())})
        shares = {count: plan.shares if count == 1 else plan.shares_of_several for count in streams}
        self.offered = {n: [*(share * alone_gbps for share in of), unpaced] for n, of in shares.items()}
        self.hosts = [self.offered[1][place] for place in plan.crowded]
        relayouts = [] if is_part else _relayouts(sessions.hardware)
        moved = [(writes, n) for writes in (False, True) for n in plan.relayout_tokens if relayouts]
        halves = alone_gbps / 2, unpaced
        reads = [(count, n, gbps) for count in streams for n in plan.tokens for gbps in self.offered[count]]
        self.crowded, self.beside, self.moving, self.vectors, alone = _simulated(
            (sessions.crowded, [(*one, gbps) for one in moved for gbps in (0.0, *self.hosts)]),
            (sessions.beside_host, reads),
            (sessions.beside_relayout, [(n, *ends) for n in plan.relayout_tokens for ends in relayouts]),
            (short.beside_vectors, [(n, gbps) for n in plan.vector_tokens for gbps in halves]),
            (sessions.without_others, [(n,) for n in plan.tokens]),
        )
        self.alone = {n: reached.ndp[0] for (n,), reached in alone.items()}

    def table(self) -> SlowdownTable:
        """Everything on common axes."""
        tokens, streams = self.plan.tokens, list(self.offered)
        axis = np.array([0.0, *self.offered[1][:-1], self.alone_gbps])
        lost_ns = [
            max(0.0, 1 - one.host / min(gbps, self.alone_gbps)) * one.expert_ns
            for (_, gbps), one in self.vectors.items()
        ]
        pause_ns, bus_ns = lost_ns[::2], lost_ns[1::2]
        moved_gbps, ndp_speed_moving, most_moved_gbps = self._beside_moves()
        queued_reads = self.sessions.hardware.system.dram.read_buffer
        return SlowdownTable(
            tokens=np.array(tokens, dtype=np.int64),
            host_gbps=axis,
            streams=np.array(streams, dtype=np.float64),
            waiting_gbps=np.array([self.alone_gbps / queued_reads]),
            ndp_speed=np.array([[self._ndp_speed(axis, count, n) for n in tokens] for count in streams]),
            host_speed=np.array([[self._host_speed(bus_ns, count, n) for n in tokens] for count in streams]),
            moved_gbps=moved_gbps,
            ndp_speed_moving=ndp_speed_moving,
            ndp_crowded=self._crowded(axis, of_relayout=False),
            moving_crowded=self._crowded(axis, of_relayout=True),
            most_moved_gbps=most_moved_gbps,
            vector_tokens=np.array(self.plan.vector_tokens, dtype=np.float64),
            vector_ns=np.array([bus_ns, pause_ns]),
        )

    def _ndp_speed(self, axis: Floats, count: int, tokens: int) -> Floats:
        """Of experts beside a number of reads, all of them on this DIMM, by their rate together."""
        dimms = min(count, self.sessions.on_channel)
        reads = [self.beside[count, tokens, gbps] for gbps in self.offered[count]]
        speeds = [one.mean_ndp(dimms) / self.alone[tokens] for one in reads]
        return 1.0 - dimms * (1.0 - _on_axis(axis, [one.host for one in reads], speeds))

    def _host_speed(self, bus_ns: Sequence[float], count: int, tokens: int) -> float:
        """Of a number of unpaced reads beside experts, without the time that vectors take."""
        dimms = min(count, self.sessions.on_channel)
        vectors_ns = dimms * float(np.interp(tokens, self.plan.vector_tokens, bus_ns))
        reached = self.beside[count, tokens, self.sessions.peak_gbps].host / self.alone_gbps
        return min(1.0, reached / max(1 - vectors_ns / self._expert_ns(tokens), reached))

    def _expert_ns(self, tokens: int) -> float:
        """Time of an expert without these reads."""
        alone = self.sessions.alone(tokens)
        if self.sessions.traffic is None:
            return alone.time_ns
        return alone.weight_bytes * alone.weight_reads / self.alone[tokens]

    def _beside_moves(self) -> tuple[Floats, Floats, Floats]:
        """`moved_gbps`, `ndp_speed_moving` and `most_moved_gbps`.

        From one DIMM to the other, the first reads and the second writes. From the stripes, the first writes.
        Towards them, the first reads, and the second writes what each of both does.
        """
        tokens, counts = self.plan.tokens, dict.fromkeys(n for n, *_ in self.moving)
        ways: list[dict[int, list[tuple[float, float]]]] = [{n: [] for n in counts} for _ in range(2)]
        for (n, source, target), reached in self.moving.items():
            (read, written), (first, second) = reached.moved, (ndp / self.alone[n] for ndp in reached.ndp[:2])
            if source == "localized":
                ways[0][n].append((read, first))
                written, first = written / (2 if target == "striped" else 1), second
            ways[1][n].append((written, first))
        rows = [{n: tuple(zip(*of, strict=True)) for n, of in way.items()} for way in ways]
        axis = np.unique(np.ceil([0.0, *(one for way in rows for gbps, _ in way.values() for one in gbps)]))
        speeds = [{n: _on_axis(axis, *row) for n, row in way.items()} for way in rows]
        # Experts with many tokens, which do not slow relayouts, set no limit.
        most = [{n: max(gbps) for n, (gbps, _) in way.items()} for way in rows]
        return (
            axis,
            np.stack([_over_tokens(tokens, of, np.ones(len(axis))) for of in speeds]),
            np.stack([_over_tokens(tokens, of, np.inf) for of in most]),
        )

    def _crowded(self, axis: Floats, of_relayout: bool) -> Floats:
        """The share of the speeds of experts, or of relayouts, that is left beside the host and the other."""

        def left(writes: bool, n: int, gbps: float) -> float:
            reached, without = self.crowded[writes, n, gbps], self.crowded[writes, n, 0.0]
            if of_relayout:
                return reached.moved[writes] / without.moved[writes]
            return reached.ndp[0] / (self.beside[1, n, gbps].ndp[0] * without.ndp[0] / self.alone[n])

        counts = self.plan.relayout_tokens if self.crowded else ()
        rows = [
            {n: _on_axis(axis, self.hosts, [left(writes, n, gbps) for gbps in self.hosts]) for n in counts}
            for writes in (False, True)
        ]
        return np.stack([_over_tokens(self.plan.tokens, of, np.ones(len(axis))) for of in rows])


def _simulated(*asked: tuple[Callable[..., Reached], Sequence[Any]]) -> Iterator[dict[Any, Reached]]:
    """For each function, its results by their arguments."""
    _log.info(
        "measuring how experts, host reads and relayouts slow each other on a DIMM: %d simulations ...",
        sum(len(cases) for _, cases in asked),
        extra={"notice": True},
    )
    with simulation_threads() as pool:
        begun = [pool.map(run, *zip(*cases, strict=True)) for run, cases in asked]
    return (dict(zip(cases, results, strict=True)) for (_, cases), results in zip(asked, begun, strict=True))


def _relayouts(hardware: Hardware) -> list[tuple[str, str]]:
    """The relayouts that are measured: none without links, or with one DIMM on a channel."""
    system = hardware.system
    two_dimms = system.dimm.count > system.host.channels
    if system.link is None or system.ndp is None or system.ndp.relayout is None or not two_dimms:
        return []
    return [("localized", "localized"), ("localized", "striped"), ("striped", "localized")]


def _on_axis(axis: Floats, gbps: Sequence[float], speeds: Sequence[float]) -> Floats:
    """Measured speeds, which begin with 1 at 0 GB/s, interpolated to the points of an axis."""
    order = np.argsort(gbps)
    rising, falling = np.array(gbps)[order], np.minimum(np.array(speeds)[order], 1.0)
    on_axis: Floats = np.interp(axis, [0.0, *rising], [1.0, *falling])
    return on_axis


def _over_tokens(tokens: Sequence[int], rows: Mapping[int, Any], otherwise: Any) -> Floats:
    """Rows, or single values, of some numbers of tokens as those of others."""
    if not rows:
        return np.array([otherwise] * len(tokens))
    columns = np.array(list(rows.values()))
    return np.apply_along_axis(lambda column: np.interp(tokens, list(rows), column), 0, columns)
