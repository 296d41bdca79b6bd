"""Latencies of reads: statistics, a histogram and a distribution."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]

_HISTOGRAM_BINS = 40


def read_latencies(latencies: Any, total: int, clock_ns: float) -> dict[str, float] | None:
    """Mean, percentiles (nearest rank) and maximum of read latencies in ns; None without reads.

    Args:
        latencies: int64[channel, clocks], reads by latency; longer reads are counted in the last place.
        total: sum of all latencies, in clocks.
    """
    reads = np.sum(latencies, axis=0)
    count = int(np.sum(reads))
    if count == 0:
        return None
    upto = np.cumsum(reads)
    figures = {"mean": total / count * clock_ns}
    for percent in (50, 90, 99):
        figures[f"p{percent}"] = int(np.searchsorted(upto, -(-count * percent // 100))) * clock_ns
    figures["max"] = int(np.flatnonzero(reads)[-1]) * clock_ns
    return figures


def latency_histogram(reads: Ints, clock_ns: float) -> tuple[dict[str, float], ...]:
    """Reads by latency, in equal steps from the shortest to the longest.

    `reads`: int64[clocks], as in `read_latencies`.
    """
    seen = np.flatnonzero(reads)
    if not len(seen):
        return ()
    shortest, longest = int(seen[0]), int(seen[-1])
    step = -(-(longest - shortest + 1) // _HISTOGRAM_BINS)
    return tuple(
        {"from_ns": at * clock_ns, "to_ns": (at + step) * clock_ns, "reads": int(reads[at : at + step].sum())}
        for at in range(shortest, longest + 1, step)
    )


def latency_distribution(reads: Ints, clock_ns: float) -> tuple[dict[str, float], ...]:
    """The number of reads up to a latency, at equal shares of reads, and at smaller ones for the slowest."""
    upto = np.cumsum(reads)
    count = int(upto[-1])
    if count == 0:
        return ()
    longer = [count * tenth // 10 ** (decade + 2) for decade in range(19) for tenth in range(10, 101)]
    ranks = np.unique([count, 1, *(count - reads for reads in longer if reads > 0)])
    found = np.unique(np.searchsorted(upto, ranks[ranks > 0]))
    return tuple({"ns": at * clock_ns, "reads": int(upto[at])} for at in found.tolist())
