"""The result of serving, from the records of the engine."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Several
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ndpsim.base.options.serve import ServiceLevel
from ndpsim.inference.serving.engine import History
from ndpsim.inference.serving.sequence import Sequence
from ndpsim.simulate.results.serving import SERVED_SHARE, ServedRequest, ServingResult, percentiles
from ndpsim.workload.requests import Requests

Floats = NDArray[np.float64]

_NS = 1e9
_ROUNDING = 1e-9  # sequences, or a share of those present, that are a rounding error, not a queue
_PARTS = 200  # parts of the time, for the means of `over_time`
_GROWN = 0.25  # without a steady part, a growing queue has this share of all requests at the last arrival
_LATE = 90  # percentile of the latency: a run is steady this long after its first arrival
_ERRORS = 2  # standard errors of mean latencies by which they grow at least


def served(requests: Requests, sequences: Several[Sequence]) -> tuple[ServedRequest, ...]:
    """The outcome of each request."""
    return tuple(_served(requests.ids[one.number], one) for one in sequences)


def _served(name: str, one: Sequence) -> ServedRequest:
    between = one.output_tokens - 1
    return ServedRequest(
        id=name,
        prompt_tokens=one.prompt_tokens,
        output_tokens=one.output_tokens,
        arrival_ns=one.arrival_ns,
        admitted_ns=one.admitted_ns,
        first_token_ns=one.first_token_ns,
        end_ns=one.last_token_ns,
        ttft_ns=one.first_token_ns - one.arrival_ns,
        tpot_ns=(one.last_token_ns - one.first_token_ns) / between if between else None,
        latency_ns=one.last_token_ns - one.arrival_ns,
        reused_tokens=one.reused_tokens,
        preemptions=one.preemptions,
        engine=one.engine,
    )


def summary(
    config: Mapping[str, Any],
    requests: Requests,
    per_request: tuple[ServedRequest, ...],
    history: History,
    level: ServiceLevel | None,
    of_machine: Mapping[str, Any],
) -> ServingResult:
    """All fields of a result.

    of_machine: fields of the result on the machine, by name, and `energy_nj`.
    """
    first_ns, end_ns = per_request[0].arrival_ns, max(one.end_ns for one in per_request)
    time_ns = end_ns - first_ns
    tokens = sum(one.output_tokens for one in per_request)
    within = None if level is None else sum(level.is_met(one.ttft_ns, one.tpot_ns) for one in per_request)
    over_time, means = _over_time(per_request, history, first_ns, end_ns)
    steady = _Steady(growing=False) if requests.closed_loop is not None else _steady(per_request)

    def of_requests(name: str) -> Any:
        values = (getattr(one, name) for one in per_request)
        return percentiles(np.array([value for value in values if value is not None]))

    energy, tpot_ns = of_machine["energy_nj"], of_requests("tpot_ns")
    return ServingResult(
        config=config,
        requests=len(per_request),
        prompt_tokens=sum(one.prompt_tokens for one in per_request),
        output_tokens=tokens,
        steps=len(history.start_ns),
        time_ns=time_ns,
        ttft_ns=of_requests("ttft_ns"),
        tpot_ns=tpot_ns,
        latency_ns=of_requests("latency_ns"),
        itl_ns=percentiles(np.frombuffer(history.between_ns) if history.between_ns else np.zeros(0)),
        tokens_per_s=tokens / time_ns * _NS,
        user_tokens_per_s=None if tpot_ns is None else _NS / tpot_ns["mean"],
        requests_per_s=len(per_request) / time_ns * _NS,
        offered_per_s=None if requests.closed_loop is not None else requests.requests_per_s,
        goodput_per_s=None if within is None else within / time_ns * _NS,
        steady_requests=steady.requests,
        steady_share=steady.share,
        growing=(_grows(per_request) or None) if steady.growing is None else steady.growing,
        preemptions=sum(one.preemptions for one in per_request),
        reused_tokens=sum(one.reused_tokens for one in per_request),
        mean_running=means["running"],
        mean_queue=means["queue"],
        most_running=max(history.running),
        most_queue=_most_waiting(per_request, history),
        most_kv_blocks=max(history.kv_blocks),
        energy_per_token_nj={name: None if nj is None else nj / tokens for name, nj in energy.items()},
        over_time=over_time,
        per_request=per_request,
        **of_machine,
    )


def _most_waiting(per_request: Several[ServedRequest], history: History) -> int:
    """The longest queue, which is at the end of a step, since requests are admitted only then."""
    arrivals, lefts = (
        np.sort([getattr(one, name) for one in per_request]) for name in ("arrival_ns", "end_ns")
    )
    ends = np.frombuffer(history.end_ns)
    present = np.searchsorted(arrivals, ends) - np.searchsorted(lefts, ends)
    return int((present - np.array(history.running)).max())


class _Steady(NamedTuple):
    """The steady part: its requests, the rate served over the rate arriving, and whether latencies grow."""

    requests: int = 0
    share: float | None = None
    growing: bool | None = None


def _steady(per_request: Several[ServedRequest]) -> _Steady:
    """What is served of what arrives in the steady part of a run.

    The steady part begins one latency (that of `_LATE`) after the first arrival, when the machine has filled,
    and ends at the last arrival, from which on it empties. The n-th end is compared with the n-th arrival:
    their distance grows if fewer requests are served than arrive. Means over the two halves of the part give
    both rates, so that no single request decides. Latencies grow if they do by more than `_ERRORS` standard
    errors of these means.
    """
    arrivals, ends, latencies = (
        np.sort([getattr(request, name) for request in per_request])
        for name in ("arrival_ns", "end_ns", "latency_ns")
    )
    first = int(np.searchsorted(arrivals, arrivals[0] + np.percentile(latencies, _LATE)))
    last = int(np.searchsorted(ends, arrivals[-1], side="right"))
    middle = (first + last) // 2
    if middle <= first:
        return _Steady()
    arriving_ns, ending_ns = (
        float(times[middle:last].mean() - times[first:middle].mean()) for times in (arrivals, ends)
    )
    if not (arriving_ns and ending_ns):
        return _Steady()
    share, error_ns = arriving_ns / ending_ns, 2 * float(latencies.std()) / (last - first) ** 0.5
    grows = share < SERVED_SHARE and ending_ns - arriving_ns > _ERRORS * error_ns
    return _Steady(last - first, share, grows)


def _grows(per_request: Several[ServedRequest]) -> bool:
    """Whether the queue grows while requests arrive."""
    arrivals = np.array([request.arrival_ns for request in per_request])
    admitted = np.sort([request.admitted_ns for request in per_request])
    half, last = arrivals[len(arrivals) // 2], arrivals[-1]

    def queue(time_ns: float) -> int:
        arrived = np.searchsorted(arrivals, time_ns, side="right")
        return int(arrived - np.searchsorted(admitted, time_ns, side="right"))

    return bool(last > arrivals[0] and queue(last) > queue(half) and queue(last) >= _GROWN * len(arrivals))


def _over_time(
    per_request: Several[ServedRequest], history: History, first_ns: float, end_ns: float
) -> tuple[dict[str, tuple[float, ...]], dict[str, float]]:
    """Means over equal parts of the time, and over all of it."""
    edges = np.linspace(first_ns, end_ns, _PARTS + 1)
    starts, ends = np.frombuffer(history.start_ns), np.frombuffer(history.end_ns)

    def of_steps(values: Any) -> Floats:
        """The integral of a value of steps over each part; between steps it is 0."""
        area = np.concatenate([[0.0], np.cumsum(np.array(values) * (ends - starts))])
        points = np.column_stack([starts, ends]).ravel()
        until = np.column_stack([area[:-1], area[1:]]).ravel()
        return np.diff(np.interp(edges, points, until))

    arrivals = np.sort([one.arrival_ns for one in per_request])
    lefts = np.sort([one.end_ns for one in per_request])
    present = np.diff(_integral(arrivals, edges) - _integral(lefts, edges))
    areas = {name: of_steps(getattr(history, name)) for name in ("running", "batch", "kv_blocks")}
    waiting = present - areas["running"]
    part_ns = (end_ns - first_ns) / _PARTS
    areas["queue"] = np.where(waiting > _ROUNDING * (part_ns + present), waiting, 0.0)
    lines = {
        name: tuple((areas[name] / part_ns).tolist()) for name in ("queue", "running", "batch", "kv_blocks")
    }
    if history.residents:
        lines["resident_experts"] = _of_last_steps(history, edges)
    busy, tokens = of_steps(np.ones(len(starts))), of_steps(history.tokens)
    lines["tokens_per_step"] = tuple(np.divide(tokens, busy, out=np.zeros(_PARTS), where=busy > 0).tolist())
    means = {name: float(areas[name].sum() / (end_ns - first_ns)) for name in ("queue", "running")}
    return {"time_ns": tuple(((edges[:-1] + edges[1:]) / 2).tolist()), **lines}, means


def _of_last_steps(history: History, edges: Floats) -> tuple[float, ...]:
    """Mean number of experts in the GPU's memory in each part; between steps it is that of the last step."""
    starts = np.frombuffer(history.start_ns)
    lasts_ns = np.diff(np.append(starts, edges[-1]))
    area = np.concatenate([[0.0], np.cumsum(np.array(history.residents) * lasts_ns)])
    return tuple((np.diff(np.interp(edges, np.append(starts, edges[-1]), area)) / np.diff(edges)).tolist())


def _integral(events: Floats, edges: Floats) -> Floats:
    """At each edge, the sum of the times since all earlier events."""
    count = np.searchsorted(events, edges)
    area: Floats = count * edges - np.concatenate([[0.0], np.cumsum(events)])[count]
    return area
