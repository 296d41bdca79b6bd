"""The result of serving: latencies of requests, throughput, and the engine over time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ndpsim.base.reported import Reported, quantity
from ndpsim.simulate.results.moe import ENGINES, RESOURCES

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class ServedRequest:
    """A request that was served.

    Attributes:
        id: its name.
        prompt_tokens, output_tokens: the number of its tokens.
        arrival_ns, admitted_ns: when it arrived, and when it was first scheduled.
        first_token_ns, end_ns: when its first and its last output token came.
        ttft_ns: from its arrival to its first output token.
        tpot_ns: mean time between its output tokens; None: it has only one.
        latency_ns: from its arrival to its last output token.
        reused_tokens: prompt tokens that were found in the KV cache.
        preemptions: how often it lost its blocks of the KV cache.
        engine: the engine that served it.
    """

    id: str
    prompt_tokens: int
    output_tokens: int
    arrival_ns: float
    admitted_ns: float
    first_token_ns: float
    end_ns: float
    ttft_ns: float
    tpot_ns: float | None
    latency_ns: float
    reused_tokens: int
    preemptions: int
    engine: int = 0


@dataclass(frozen=True, eq=False, repr=False)
class ServingResult(Reported):
    """Requests served by a machine under a policy.

    "Percentiles" are "mean", "p50", "p90" and "p99".

    Attributes:
        config: everything that was used.
        requests: the number of requests served.
        prompt_tokens, output_tokens: the tokens of all of them.
        steps: the number of steps of the engine.
        time_ns: the time from the first arrival to the last token.
        ttft_ns, tpot_ns, latency_ns: percentiles over requests, see `ServedRequest`. `tpot_ns` includes only
            requests with more than one output token; None: there are no such requests.
        itl_ns: percentiles of all times between two output tokens of a request.
        tokens_per_s, requests_per_s: output tokens, and requests, over `time_ns`.
        user_tokens_per_s: output tokens that one request gets in a second: 1 over the mean of `tpot_ns`.
        offered_per_s: rate of arrivals; None: all arrive at once, or in a closed loop.
        goodput_per_s: requests within the service level over `time_ns`; None: there is no level.
        growing: more requests arrive than are served: the queue at the last arrival is longer than after
            half of the arrivals, and has at least a quarter of all requests.
        preemptions: the number of times that a sequence lost its blocks of the KV cache.
        reused_tokens: prompt tokens that were found in the KV cache.
        mean_running: sequences with blocks, mean over time; `mean_queue`: sequences without blocks.
        most_running, most_queue, most_kv_blocks: maximum over the steps.
        over_time: means over equal parts of the time: `time_ns` (the middle of the part), `queue`, `running`,
            `batch` (sequences in a step), `tokens_per_step`, `kv_blocks`, and under a policy
            `resident_experts` (in the GPU's memory, or on their way there).
        per_request: the times of each request.
        pairs_by_engine, utilization, migrations, bottleneck, energy_nj, energy_note: as in `PolicyRun`.
        energy_per_token_nj: by component, over output tokens.
        policy_wall_s, wall_s, compile_s: as in `PolicyRun`.
    """

    config: Mapping[str, Any] = field(repr=False)
    requests: int = field(metadata=quantity("requests"))
    prompt_tokens: int = field(metadata=quantity("prompt tokens"))
    output_tokens: int = field(metadata=quantity("output tokens"))
    steps: int = field(metadata=quantity("steps"))
    time_ns: float = field(metadata=quantity("time"))
    ttft_ns: Mapping[str, float] = field(metadata=quantity("time to first token"))
    tpot_ns: Mapping[str, float] | None = field(metadata=quantity("time per output token"))
    itl_ns: Mapping[str, float] | None = field(metadata=quantity("time between tokens"))
    latency_ns: Mapping[str, float] = field(metadata=quantity("latency"))
    tokens_per_s: float = field(metadata=quantity("throughput"))
    user_tokens_per_s: float | None = field(metadata=quantity("throughput per user"))
    requests_per_s: float = field(metadata=quantity("requests served"))
    offered_per_s: float | None = field(metadata=quantity("requests arriving"))
    goodput_per_s: float | None = field(metadata=quantity("requests within the service level"))
    growing: bool = field(metadata=quantity("queue grows"))
    preemptions: int = field(metadata=quantity("preemptions"))
    reused_tokens: int = field(
        metadata=quantity("prompt tokens found in the KV cache", whole="prompt_tokens")
    )
    mean_running: float = field(metadata=quantity("running sequences"))
    mean_queue: float = field(metadata=quantity("waiting sequences"))
    most_running: int = field(repr=False, metadata=quantity("most running sequences"))
    most_queue: int = field(repr=False, metadata=quantity("most waiting sequences"))
    most_kv_blocks: int = field(repr=False, metadata=quantity("most blocks of the KV cache in use"))
    pairs_by_engine: Mapping[str, float] = field(metadata=quantity("pairs", parts=ENGINES))
    utilization: Mapping[str, float] = field(
        repr=False, metadata=quantity("utilization", "%", parts=RESOURCES)
    )
    migrations: Mapping[str, Mapping[str, float]] = field(repr=False, metadata=quantity("migrations"))
    bottleneck: Mapping[str, float] = field(metadata=quantity("share of the critical path", "%"))
    energy_nj: Mapping[str, float | None] = field(metadata=quantity("energy"))
    energy_per_token_nj: Mapping[str, float | None] = field(metadata=quantity("energy per output token"))
    energy_note: str = field(repr=False)
    policy_wall_s: float = field(repr=False)
    wall_s: float = field(metadata=quantity("simulated in"))
    over_time: Mapping[str, tuple[float, ...]] = field(repr=False)
    per_request: tuple[ServedRequest, ...] = field(repr=False)
    compile_s: float = field(default=0.0, repr=False, metadata=quantity("kernels compiled in"))


@dataclass(frozen=True, eq=False, repr=False)
class MeasuredComparison(Reported):
    """A simulated run beside what another program measured of the same requests.

    Latencies are those of the requests of which both are known; "percentiles" are those of `ServingResult`.

    Attributes:
        ttft_ns, tpot_ns, latency_ns: percentiles of `simulated` and `measured`, and `ratio`, the first over
            the second; None: not measured.
        tokens_per_s, requests_per_s: `simulated`, `measured` and `ratio`; None: the time is not known.
        compared: the number of requests of which a latency was measured.
        run: the simulated run.
    """

    ttft_ns: Mapping[str, Mapping[str, float]] | None = field(metadata=quantity("time to first token"))
    tpot_ns: Mapping[str, Mapping[str, float]] | None = field(metadata=quantity("time per output token"))
    latency_ns: Mapping[str, Mapping[str, float]] | None = field(metadata=quantity("latency"))
    tokens_per_s: Mapping[str, float] | None = field(metadata=quantity("throughput"))
    requests_per_s: Mapping[str, float] | None = field(metadata=quantity("requests served"))
    compared: int = field(metadata=quantity("requests compared"))
    run: ServingResult = field(repr=False)


@dataclass(frozen=True)
class TriedRate:
    """A rate of arrivals that was tried.

    Attributes:
        rate_per_s: requests a second.
        within_share: share of the requests that are within the service level.
        ttft_ns, tpot_ns: as in `ServingResult`.
    """

    rate_per_s: float
    within_share: float
    ttft_ns: Mapping[str, float]
    tpot_ns: Mapping[str, float] | None


@dataclass(frozen=True, eq=False, repr=False)
class FoundRate(Reported):
    """The highest rate of arrivals within a service level.

    Attributes:
        rate_per_s: the highest tried rate within the level; `beyond_per_s`: the lowest tried rate beyond it.
        attainment: share of the requests that must be within it.
        tries: the tried rates in order, without the first try, which has all requests at once.
        run: the run at `rate_per_s`.
    """

    rate_per_s: float = field(metadata=quantity("highest rate within the service level"))
    beyond_per_s: float = field(metadata=quantity("lowest rate beyond it"))
    attainment: float = field(metadata=quantity("requests within it", "%"))
    tries: tuple[TriedRate, ...] = field(repr=False)
    run: ServingResult = field(repr=False)


def percentiles(values: Floats) -> dict[str, float] | None:
    """The mean and percentiles; None of no values."""
    if not len(values):
        return None
    p50, p90, p99 = np.percentile(values, (50, 90, 99)).tolist()
    return {"mean": float(np.mean(values)), "p50": p50, "p90": p90, "p99": p99}
