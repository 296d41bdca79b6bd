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

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ndpsim.config import Hardware
from ndpsim.dimm.layout import ExpertFormat
from ndpsim.inference.events.state import Slowdown
from ndpsim.inference.layers.shared_dimm import measure_shared_dimm
from ndpsim.simulate.results.cache import ResultCache
from ndpsim.simulate.results.shared_dimm import SharedDimmResult
from ndpsim.workload.models import Expert

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class ContentionTable:
    """Rates of experts and of host reads beside each other, relative to their rates alone.

    Rates are interpolated between entries, and constant beyond the last. The module describes their use.

    Attributes:
        tokens: int64[n], ascending.
        host_gbps: float64[m], ascending from 0: rate of host reads on the channel, all on this DIMM.
        streams: float64[s], ascending from 1: number of concurrent reads.
        ndp_rate: float64[s, n, m], rate of an expert with these tokens beside these host reads.
        host_rate: float64[s, n], rate of unpaced host reads while the DIMM's unit computes an expert with
            these tokens, without the time in `vector_ns`.
        relayout_gbps: float64[k], ascending from 0: rate of a relayout's reads, or writes, on the DIMM.
        ndp_rate_beside_relayout: float64[n, k], rate of an expert beside its reads.
        ndp_rate_beside_writes: float64[n, k], rate of an expert beside its writes. Losses by both add up.
        ndp_rate_crowded: float64[2, n, m], additional factor of an expert's rate if both the host and a
            relayout that reads, or one that writes, use the DIMM.
        relayout_rate_crowded: float64[2, n, m], the same factor for the relayout's rate.
        most_relayout_gbps: float64[2, n], maximum rate of a relayout's reads, and writes, on the DIMM of such
            an expert.
        vector_tokens: float64[v], ascending.
        vector_ns: float64[2, v], time that activations and results of these tokens take from host reads of
            the channel: from all reads together, and from a paced one.
    """

    tokens: Ints
    host_gbps: Floats
    streams: Floats
    ndp_rate: Floats
    host_rate: Floats
    relayout_gbps: Floats
    ndp_rate_beside_relayout: Floats
    ndp_rate_beside_writes: Floats
    ndp_rate_crowded: Floats
    relayout_rate_crowded: Floats
    most_relayout_gbps: Floats
    vector_tokens: Floats
    vector_ns: Floats

    def vectors_ns(self, tokens: int) -> tuple[float, float]:
        """`vector_ns` of a number of tokens; beyond the last entry on the line through the last two."""
        last = max(0, min(int(np.searchsorted(self.vector_tokens, tokens)), len(self.vector_tokens) - 1) - 1)
        (low, high), (low_ns, high_ns) = (
            self.vector_tokens[last : last + 2],
            self.vector_ns[:, last : last + 2].T,
        )
        bus_ns, pause_ns = low_ns + (tokens - low) / (high - low) * (high_ns - low_ns)
        return max(float(bus_ns), 0.0), max(float(pause_ns), 0.0)

    def ndp_rate_of(self, most_tokens: int, host_gbps: float, streams: float) -> Floats:
        """`ndp_rate` beside this many reads with a rate together, by tokens: float64[most_tokens + 1]."""
        place = float(np.interp(streams, self.streams, np.arange(len(self.streams))))
        low, high = self.ndp_rate[math.floor(place)], self.ndp_rate[math.ceil(place)]
        rates = [np.interp(host_gbps, self.host_gbps, row) for row in low + place % 1 * (high - low)]
        return self._for_each_count(most_tokens, rates)

    def host_rate_of(self, most_tokens: int) -> Floats:
        """`host_rate` of one read, by tokens: float64[most_tokens + 1]."""
        return self._for_each_count(most_tokens, self.host_rate[0])

    def _for_each_count(self, most_tokens: int, rates: Sequence[float] | Floats) -> Floats:
        """Rates for each number of tokens, interpolated linearly over the logarithm of `tokens`."""
        counts = np.log(np.maximum(np.arange(most_tokens + 1), 1))
        return np.asarray(np.interp(counts, np.log(self.tokens), rates))


def contention_table(
    hardware: Hardware,
    model: Expert,
    bits: int | ExpertFormat,
    arbitration: str,
    cache: bool | ResultCache,
    shards: int = 1,
) -> ContentionTable:
    """The table of one model's experts on one hardware; arguments as in `simulate_contention`.

    shards: number of DIMMs, for parts of sharded experts; such a table has no entries beside relayouts.

    Raises:
        InputError: the hardware has no host channel, or no NDP units.
    """
    part = model if shards == 1 else Expert(model.hidden, max(1, model.intermediate // shards))
    result = measure_shared_dimm(hardware, part, bits, arbitration, cache, shards > 1)
    tokens = np.array(result.tokens, dtype=np.int64)
    axis = np.array([0.0, *result.offered_gbps[:-1], result.host_alone_gbps])
    ndp_rate = [
        [_on_axis(axis, *of) for of in zip(*of_streams, strict=True)]
        for of_streams in zip(result.host_gbps, result.ndp_rate, strict=True)
    ]
    # All host reads are on this DIMM.
    dimms = np.minimum(result.streams, -(-hardware.system.dimm.count // hardware.system.host.channels))
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
        np.array(result.streams, dtype=np.float64),
        1.0 - dimms[:, None, None] * (1.0 - np.array(ndp_rate)),
        np.array(result.host_rate),
        moved,
        of_reads,
        of_writes,
        ndp_crowded,
        relayout_crowded,
        _most_on_tokens(tokens, result),
        np.array(result.vector_tokens, dtype=np.float64),
        np.array([result.bus_ns, result.pause_ns]),
    )


def slowdown_of(
    channel: Ints, whole: ContentionTable, sharded: Sequence[ContentionTable], queued_reads: int
) -> Slowdown:
    """Entries of whole experts, followed by those of parts, in rows for the same numbers of tokens.

    Beside relayouts, parts have the entries of whole experts.

    channel: the channel of each DIMM. queued_reads: the maximum number of reads in the queue of a DIMM.
    """
    tables = (whole, *sharded)
    streams = max((table.streams for table in tables), key=len)
    axis = np.unique(np.concatenate([table.host_gbps for table in tables]))

    def on_axis(table: ContentionTable, rates: Floats) -> Floats:
        return np.apply_along_axis(lambda row: np.interp(axis, table.host_gbps, row), -1, rates)

    def over_streams(rates: Floats) -> Floats:
        return np.concatenate([rates, *[rates[-1:]] * (len(streams) - len(rates))])

    def repeated(rates: Floats, axis: int = -2) -> Floats:
        return np.concatenate([rates] * len(tables), axis)

    entries = (
        axis,
        streams,
        axis[-1:] / queued_reads,
        np.concatenate([over_streams(on_axis(table, table.ndp_rate)) for table in tables], axis=-2),
        np.concatenate([over_streams(table.host_rate) for table in tables], axis=-1),
        whole.relayout_gbps,
        repeated(np.stack([whole.ndp_rate_beside_relayout, whole.ndp_rate_beside_writes])),
        repeated(on_axis(whole, whole.ndp_rate_crowded)),
        repeated(on_axis(whole, whole.relayout_rate_crowded)),
        repeated(whole.most_relayout_gbps, axis=-1),
    )
    # Numba compiles again for arrays with another layout.
    return Slowdown(channel, *map(np.ascontiguousarray, entries))


def shared_bandwidth(gbps: float, left: float = 0.0) -> ContentionTable:
    """The table of a memory device: an expert loses the share of the bandwidth that others read.

    This is a conservative assumption, because sessions have no device behind a link: compute-bound experts
    would lose less. Copies over the link have priority and lose nothing.

    left: rate of an expert beside reads of all of the bandwidth; 1: nothing slows it down.
    """
    one, both = np.ones((1, 1)), np.ones((2, 1, 2))
    axis, none = np.array([0.0, gbps]), np.zeros(1)
    most = np.full((2, 1), np.inf)
    streams = np.array([1.0, 2.0, 4.0])
    beside_host = axis, streams, np.array([[[1.0, left]]] * 3), np.ones((3, 1))
    beside_relayout = none, one, one, both, both, most
    no_vectors = np.array([1.0, 2.0]), np.zeros((2, 2))
    return ContentionTable(np.array([1]), *beside_host, *beside_relayout, *no_vectors)


def _most_on_tokens(tokens: Ints, result: SharedDimmResult) -> Floats:
    """Limits of rates beside experts; experts with many tokens, which do not slow relayouts, set none."""
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
    """Measured rates, which begin with 1 at 0 GB/s, interpolated to the points of an axis."""
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
