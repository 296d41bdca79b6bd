"""A simulated run beside the latencies that another program measured of the same requests."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ndpsim.base.arguments import instance
from ndpsim.base.errors import InputError
from ndpsim.simulate.results.serving import MeasuredComparison, ServingResult, percentiles
from ndpsim.workload.requests import Requests

Floats = NDArray[np.float64]


def compare_measured(run: ServingResult, requests: Requests) -> MeasuredComparison:
    """Set a run beside the latencies of its requests' recording.

    The time per output token is that from the first to the last token over the number of tokens after the
    first. Both sides have the same requests, so failed requests of the recording are missing in both.

    Example:
        >>> requests = ndpsim.import_requests("profile_export.jsonl")  # doctest: +SKIP
        >>> run = ndpsim.run_serving(model="qwen3-30b-a3b", requests=requests)  # doctest: +SKIP
        >>> ndpsim.compare_measured(run, requests)  # doctest: +SKIP

    Raises:
        InputError: the requests have no measured latencies, or are not those of the run.
    """
    requests = instance(requests, "requests", Requests)
    measured = requests.measured
    if measured is None:
        raise InputError("has no latencies that were measured", "missing", key="requests")
    simulated = {served.id: served for served in instance(run, "run", ServingResult).per_request}
    if set(simulated) != set(requests.ids):
        raise InputError("are not those of the run", "conflict", key="requests")
    ordered = [simulated[name] for name in requests.ids]
    between = requests.output_tokens - 1
    with np.errstate(divide="ignore", invalid="ignore"):
        tpot_ns = np.where(between > 0, (measured.latency_ns - measured.ttft_ns) / between, np.nan)
    none = float("nan")
    pairs: dict[str, tuple[list[float], Floats]] = {
        "ttft_ns": ([served.ttft_ns for served in ordered], measured.ttft_ns),
        "tpot_ns": ([none if served.tpot_ns is None else served.tpot_ns for served in ordered], tpot_ns),
        "latency_ns": ([served.latency_ns for served in ordered], measured.latency_ns),
    }
    latencies: dict[str, Any] = {
        name: _compared(np.array(own), other) for name, (own, other) in pairs.items()
    }
    rates = {
        "tokens_per_s": (run.tokens_per_s, run.output_tokens),
        "requests_per_s": (run.requests_per_s, run.requests),
    }
    throughput: dict[str, Any] = {
        name: _rates(own, count / measured.time_ns * 1e9) if measured.time_ns else None
        for name, (own, count) in rates.items()
    }
    known = int((~np.isnan(measured.ttft_ns) | ~np.isnan(measured.latency_ns)).sum())
    return MeasuredComparison(**latencies, **throughput, compared=known, run=run)


def _compared(simulated: Floats, measured: Floats) -> dict[str, dict[str, float]] | None:
    known = ~np.isnan(simulated) & ~np.isnan(measured)
    own, other = percentiles(simulated[known]), percentiles(measured[known])
    if own is None or other is None:
        return None
    ratio = {name: own[name] / other[name] if other[name] else float("nan") for name in own}
    return {"simulated": own, "measured": other, "ratio": ratio}


def _rates(simulated: float, measured: float) -> dict[str, float]:
    return {"simulated": simulated, "measured": measured, "ratio": simulated / measured}
