"""Mutual slowdown of NDP units, host reads and relayouts, measured in cycle-level sessions.

**Host reads among themselves** share a channel equally, except for those that ask for less (max-min
fairness), whatever their layouts, and what they reach together is what one reaches alone: with two to four
localized, striped, paced and unpaced reads of deepseek-v2's experts on `trimoe`, 33.8 to 33.9 GB/s in all and
each within 1% of that rule.

**An expert beside host reads.** What counts is how fast the channel reads *while* it reads the expert's
DIMM: a read that has the channel to itself takes a whole rank while it is there, and an expert that
computes for longer than it reads still waits; one at half that speed leaves it enough. So entries are by
all that the host reads on the channel, C. If h of it is on that DIMM the expert runs at
1 - h (1 - rate(tokens, C)): striped reads are on each of two DIMMs for half of the time.

**Streams.** A striped read goes over the DIMMs of a channel in one stream, and a sharded one is a stream on
each DIMM, in turns so fine that each DIMM loses nearly as much as by a read that it has to itself. So entries
are also by the number of streams that go on at once, for 1 and 2, and beside parts of sharded experts for as
many as a channel has DIMMs, and twice as many. Where they fill the channel, each has requests in the queue of
its DIMM all the time, however little it reads: beside a read of 31 GB/s, one of 2 GB/s on the other DIMM
takes 0.31 of the speed of an expert with one token there, and alone 0.05 (`trimoe`, deepseek-v2 over 8
DIMMs). So streams on a full channel count alike, except for those that have no request in the queue most of
the time; elsewhere they count by what they read.

**A part of a sharded expert** is short and loses more than a whole one, so parts are measured by
themselves.

**A host read beside experts** waits for their activations and results, which have the bus first, on
whichever DIMM of the channel they are: each unit takes 2 to 6% of its channel with parts of deepseek-v2,
and two units twice that. A read with a pace of its own makes up for short waits, not for those of many
tokens. What reads lose beside that, with few tokens and many streams, is 0 to 5%, and more with other
arbitrations than host-first.

**Errors.** With deepseek-v2 over 8 or 16 of the 16 DIMMs of `trimoe`, at batches of 1, 16 and 128, layers
where the CPU reads, the GPU copies, or both, differ from the cycle-level session by at most 0.6% (12
layers); with experts over 8 and over 16 DIMMs in one layer, and at qwen3-235b-a22b's batch of 128, by up to
2.3%. The largest end of a DIMM is off by 3.2% of the layer, of a read by 5.4%. What remains is the rhythm
of reads and experts: a part of qwen3-235b-a22b over 16 DIMMs loses 0.19 with 12 tokens, 0.12 with 8 and
0.04 with 16. On `edge` it is stronger: experts over all 6 DIMMs are right within 0.5% of the layer, but over
2 of 6 a DIMM ended by rates 8.4% later than in the session, before there were entries for two streams.

**An expert beside a relayout** is slowed by what its DIMM reads for it and, more, by what it writes.

**All three.** Where the host reads the DIMM of an expert and a relayout is there, too, expert and relayout
lose more than by each other and by the host: up to a fifth and a third, most where the host reads at half of
what it could. Such losses are measured with one link's relayout, and scale with H/C as those of an expert.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ndpsim.config import Hardware
from ndpsim.layout import ExpertFormat
from ndpsim.moe import Expert
from ndpsim.orchestrator.shared_dimm import measure_shared_dimm
from ndpsim.results.cache import ResultCache
from ndpsim.results.shared_dimm import SharedDimmResult

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class ContentionTable:
    """Rates of experts and of host reads beside each other: 1 is what they are alone.

    Rates are interpolated between entries, and constant beyond the last. The module says how to use them.

    Attributes:
        tokens: int64[n], ascending.
        host_gbps: float64[m], ascending from 0: what the host reads on the channel, all of it on this DIMM.
        streams: float64[s], reads that go on at once, ascending from 1.
        ndp_rate: float64[s, n, m], of an expert with this many tokens beside this many of them.
        host_rate: float64[s, n], of host reads that take all they get, where the DIMM's unit computes so
            many, apart from the time that `vector_ns` takes.
        relayout_gbps: float64[k], ascending from 0: what a relayout reads, or writes, on the DIMM.
        ndp_rate_beside_relayout: float64[n, k], where it reads.
        ndp_rate_beside_writes: float64[n, k], where it writes. Where it does both, losses add up.
        ndp_rate_crowded: float64[2, n, m], after the losses to each, what is left of an expert's rate where
            the host reads so much and a relayout reads the DIMM, and where one writes it.
        relayout_rate_crowded: float64[2, n, m], and what is left of the relayout's rate.
        most_relayout_gbps: float64[2, n], that a relayout reads, and writes, on the DIMM of such an expert.
        vector_tokens: float64[v], ascending.
        vector_ns: float64[2, v], that activations and results of this many tokens take from host reads of the
            channel: from all together, and from one with a pace of its own.
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
        """`vector_ns` of a number of tokens, on a line through the last two beyond the last one."""
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
        """Rates where `tokens` are, on lines over the logarithm of tokens."""
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

    shards: of parts of experts over this many DIMMs; beside relayouts such a table has no entries.

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
    # As if the DIMM had all of it.
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


def stacked(whole: ContentionTable, sharded: Sequence[ContentionTable]) -> ContentionTable:
    """Entries of whole experts, and below them those of parts, in rows for the same numbers of tokens.

    Beside relayouts, parts have the entries of whole experts.
    """
    tables = (whole, *sharded)
    streams = max((table.streams for table in tables), key=len)
    axis = np.unique(np.concatenate([table.host_gbps for table in tables]))

    def on_axis(table: ContentionTable, rates: Floats) -> Floats:
        return np.array([np.interp(axis, table.host_gbps, row) for row in rates])

    def all_on_axis(table: ContentionTable, several: Floats) -> Floats:
        return np.stack([on_axis(table, rates) for rates in several])

    def over_streams(rates: Floats) -> Floats:
        return np.concatenate([rates, *[rates[-1:]] * (len(streams) - len(rates))])

    def repeated(rates: Floats) -> Floats:
        return np.concatenate([rates] * len(tables), axis=-2)

    def crowded(both: Floats) -> Floats:
        return repeated(all_on_axis(whole, both))

    return ContentionTable(
        whole.tokens,
        axis,
        streams,
        np.concatenate([over_streams(all_on_axis(table, table.ndp_rate)) for table in tables], axis=-2),
        np.concatenate([over_streams(table.host_rate) for table in tables], axis=-1),
        whole.relayout_gbps,
        repeated(whole.ndp_rate_beside_relayout),
        repeated(whole.ndp_rate_beside_writes),
        crowded(whole.ndp_rate_crowded),
        crowded(whole.relayout_rate_crowded),
        np.concatenate([whole.most_relayout_gbps] * len(tables), axis=-1),
        whole.vector_tokens,
        whole.vector_ns,
    )


def shared_bandwidth(gbps: float) -> ContentionTable:
    """The table of a memory device of such a bandwidth: an expert loses the share of it that others read.

    Sessions have no device behind a link, so that this is an assumption, and one on the safe side: experts
    that compute for longer than they read would lose less. Copies over the link come first and lose nothing.
    """
    one, both = np.ones((1, 1)), np.ones((2, 1, 2))
    axis, none = np.array([0.0, gbps]), np.zeros(1)
    most = np.full((2, 1), np.inf)
    streams = np.array([1.0, 2.0, 4.0])
    beside_host = axis, streams, np.array([[[1.0, 0.0]]] * 3), np.ones((3, 1))
    beside_relayout = none, one, one, both, both, most
    no_vectors = np.array([1.0, 2.0]), np.zeros((2, 2))
    return ContentionTable(np.array([1]), *beside_host, *beside_relayout, *no_vectors)


def _most_on_tokens(tokens: Ints, result: SharedDimmResult) -> Floats:
    """Rates beside experts; those with many tokens, where relayouts lose nothing, are no limit."""
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
