"""Statistics of requests: rate, burstiness, lengths, and reusable parts of prompts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ndpsim.base.arguments import instance
from ndpsim.base.reported import Reported, quantity
from ndpsim.workload.requests.requests import Requests

_NS = 1e9


@dataclass(frozen=True)
class Lengths:
    """Tokens of prompts, or of outputs: their sum, mean, extremes and percentiles."""

    total: int
    mean: float
    min: int
    p50: float
    p90: float
    p99: float
    max: int


@dataclass(frozen=True)
class BlockReuse:
    """Blocks of the prompts of all requests.

    Attributes:
        tokens: the number of tokens of a block.
        count: blocks of all prompts.
        distinct: number of different blocks.
        reused_share: share of the blocks that an earlier prompt had, which an unlimited prefix cache saves.
    """

    tokens: int
    count: int
    distinct: int
    reused_share: float


@dataclass(frozen=True, repr=False, eq=False)
class RequestStatistics(Reported):
    """Statistics of requests.

    Attributes:
        source: the origin of the requests.
        requests: the number of requests.
        closed_loop: requests in the system at any time; None: they arrive at their own times.
        span_s: the time from the first arrival to the last.
        requests_per_s: mean rate; None: all arrive at once, or in a closed loop.
        peak_requests_per_s: maximum arrivals in a second, counted from the first arrival.
        burstiness: inverse of the squared coefficient of variation of the times between arrivals, as
            ``gamma`` takes it; 1 for a Poisson process, less in bursts. None: fewer than three requests, or
            no rate.
        prompt_tokens, output_tokens: lengths.
        blocks: reuse of the blocks of the prompts; None without blocks.
    """

    source: Mapping[str, Any] = field(metadata=quantity("source"))
    requests: int = field(metadata=quantity("requests"))
    closed_loop: int | None = field(metadata=quantity("requests in the closed loop"))
    span_s: float = field(metadata=quantity("first to last arrival"))
    requests_per_s: float | None = field(metadata=quantity("mean rate"))
    peak_requests_per_s: int | None = field(metadata=quantity("most arrivals in a second"))
    burstiness: float | None = field(metadata=quantity("burstiness"))
    prompt_tokens: Lengths = field(metadata=quantity("prompt tokens"))
    output_tokens: Lengths = field(metadata=quantity("output tokens"))
    blocks: BlockReuse | None = field(metadata=quantity("blocks of prompts"))


def describe_requests(requests: Requests) -> RequestStatistics:
    """Describe requests by their statistics.

    >>> ndpsim.describe_requests(ndpsim.generate_requests("poisson:requests=3")).requests
    3

    Raises:
        InputError: `requests` is not a `Requests`.
    """
    requests = instance(requests, "requests", Requests)
    since_ns = requests.arrival_ns - requests.arrival_ns[0]
    rate = requests.requests_per_s
    return RequestStatistics(
        source=dict(requests.source or {}),
        requests=len(requests),
        closed_loop=requests.closed_loop,
        span_s=float(since_ns[-1]) / _NS,
        requests_per_s=rate,
        peak_requests_per_s=None if rate is None else int(np.bincount((since_ns // _NS).astype(int)).max()),
        burstiness=None if rate is None else _burstiness(np.diff(since_ns)),
        prompt_tokens=_lengths(requests.prompt_tokens),
        output_tokens=_lengths(requests.output_tokens),
        blocks=_blocks(requests),
    )


def _burstiness(between_ns: NDArray[np.float64]) -> float | None:
    deviation = float(between_ns.std())
    return (float(between_ns.mean()) / deviation) ** 2 if len(between_ns) > 1 and deviation else None


def _lengths(tokens: NDArray[np.int64]) -> Lengths:
    p50, p90, p99 = (float(value) for value in np.percentile(tokens, (50, 90, 99)))
    return Lengths(
        int(tokens.sum()), float(tokens.mean()), int(tokens.min()), p50, p90, p99, int(tokens.max())
    )


def _blocks(requests: Requests) -> BlockReuse | None:
    if requests.blocks is None or requests.block_tokens is None:
        return None
    ids = np.concatenate(requests.blocks)
    distinct = len(np.unique(ids))
    return BlockReuse(requests.block_tokens, len(ids), distinct, 1.0 - distinct / len(ids))
