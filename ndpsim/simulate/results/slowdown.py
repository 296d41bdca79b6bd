"""How much NDP units, host reads and relayouts slow each other down on a DIMM."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ndpsim.base.jit import by_reference

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class BesideTraffic:
    """A time in ns, or a factor, beside the host's traffic."""

    value: float


@by_reference
class SlowdownTable(NamedTuple):
    """Speeds of NDP jobs, host reads and relayouts beside each other, relative to their speeds alone.

    The cache of results, estimates for policies and the event loop have the same table. Each row is for a
    number of tokens of an expert. Speeds are interpolated between entries, and constant beyond the last.

    Beside host reads of C GB/s on its channel, of which its DIMM has the share h, an NDP job has the speed
    1 - h (1 - v), with v of `ndp_speed` at C: the rate of the channel while it reads the DIMM decides. A
    stream of g GB/s has the weight w = g. On a busy channel, each stream has requests in its queue, and w is
    at most `waiting_gbps`. The reads count as sum(w)^2 / sum(w^2) equal streams.

    Losses beside what a relayout reads on the DIMM, and beside what it writes there, add up. If the host and
    a relayout use the DIMM, NDP job and relayout have 1 - h (1 - v) of the speed that they had otherwise,
    with v of `ndp_crowded` and `moving_crowded` at C.
    """

    tokens: Ints  # [row]: ascending
    host_gbps: Floats  # [rate]: of the host on a channel, ascending from 0
    streams: Floats  # [streams]: numbers of concurrent reads on a channel, ascending from 1
    waiting_gbps: Floats  # [1]: a stream with less has not always a request in the queue of a busy channel
    ndp_speed: Floats  # [streams, row, rate]: of an NDP job whose DIMM has all of these reads
    host_speed: Floats  # [streams, row]: of unpaced reads beside an NDP job, without the time in `vector_ns`
    moved_gbps: Floats  # [rate]: of a relayout's reads, or writes, on the DIMM, ascending from 0
    ndp_speed_moving: Floats  # [2, row, rate]: of an NDP job beside its reads, and beside its writes
    ndp_crowded: Floats  # [2, row, host's rate]: of an NDP job beside the host and its reads, its writes
    moving_crowded: Floats  # [2, row, host's rate]: of a relayout that reads, and writes, beside both
    most_moved_gbps: Floats  # [2, row]: that a relayout reads, and writes, beside an NDP job
    vector_tokens: Floats  # [vectors]: ascending
    vector_ns: Floats  # [2, vectors]: that activations and results take from all host reads, and a paced one

    def vectors_ns(self, tokens: int) -> tuple[float, float]:
        """`vector_ns` of a number of tokens; beyond the last entry on the line through the last two."""
        last = max(0, min(int(np.searchsorted(self.vector_tokens, tokens)), len(self.vector_tokens) - 1) - 1)
        (low, high), (low_ns, high_ns) = (
            self.vector_tokens[last : last + 2],
            self.vector_ns[:, last : last + 2].T,
        )
        bus_ns, pause_ns = low_ns + (tokens - low) / (high - low) * (high_ns - low_ns)
        return max(float(bus_ns), 0.0), max(float(pause_ns), 0.0)

    def ndp_speed_of(self, most_tokens: int, host_gbps: float, streams: float) -> Floats:
        """`ndp_speed` beside this many reads with a rate together, by tokens: float64[most_tokens + 1]."""
        place = float(np.interp(streams, self.streams, np.arange(len(self.streams))))
        low, high = self.ndp_speed[math.floor(place)], self.ndp_speed[math.ceil(place)]
        speeds = [np.interp(host_gbps, self.host_gbps, row) for row in low + place % 1 * (high - low)]
        return self._for_each_count(most_tokens, speeds)

    def host_speed_of(self, most_tokens: int) -> Floats:
        """`host_speed` of one read, by tokens: float64[most_tokens + 1]."""
        return self._for_each_count(most_tokens, self.host_speed[0])

    def _for_each_count(self, most_tokens: int, speeds: Sequence[float] | Floats) -> Floats:
        """Speeds for each number of tokens, interpolated linearly over the logarithm of `tokens`."""
        counts = np.log(np.maximum(np.arange(most_tokens + 1), 1))
        return np.asarray(np.interp(counts, np.log(self.tokens), speeds))
