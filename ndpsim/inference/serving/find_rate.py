"""``find_rate``: the highest rate of arrivals at which requests are served within a service level."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ndpsim.base.arguments import progress_function
from ndpsim.base.errors import InputError
from ndpsim.base.options.serve import FIND, ServeSettings
from ndpsim.inference.serving.server import Server, set_up
from ndpsim.simulate.results.serving import FoundRate, ServingResult, TriedRate

_AT_ONCE = 1e9  # requests a second
_MOST_HALVINGS = 12
_BISECTIONS = 6  # bisections of a factor of 2, to within 1.1%


def find_rate(
    slo: Any, attainment: float = 0.9, progress: Callable[[float], None] | None = None, **asked: Any
) -> FoundRate:
    """Find the highest rate at which a given share of the requests is within a service level, by bisection.

    In the first try, all requests arrive at once, which gives the maximum throughput of the machine. From
    there, the rate is halved until enough requests are within the level, and then bisected. The pattern of
    arrivals is always the same.

    Args:
        slo: as in `run_serving`.
        attainment: share of the requests that must be within the level: 90% as in DistServe (Zhong et al.,
            OSDI 2024).
        progress: called with the number of finished runs, as a share of their maximum number.
        asked: settings of the server, the arguments of `run_serving` that are no listeners, except `rate`.

    Raises:
        InputError: as for `run_serving`; or no rate is low enough, or requests have no rate.
    """
    progress = progress_function(progress)
    if slo is None:
        raise InputError("is needed: the rate is the highest within it", "missing", key="slo")
    attainment = FIND["attainment"].checked(attainment)
    tries: list[tuple[TriedRate, ServingResult]] = []
    settings = ServeSettings(slo=slo, **asked)
    if settings.rate is not None:
        raise InputError("is what is looked for", "conflict", key="rate")
    server = Server(settings, set_up(settings))

    def tried(rate: float) -> bool:
        result = server.serve(rate)
        share = (result.goodput_per_s or 0.0) / result.requests_per_s
        tries.append((TriedRate(rate, share, result.ttft_ns, result.tpot_ns), result))
        progress(len(tries) / (_MOST_HALVINGS + _BISECTIONS + 1))
        return share >= attainment

    tried(_AT_ONCE)
    high = 2 * tries[0][1].requests_per_s
    low = high / 2
    while not tried(low):
        high, low = low, low / 2
        if len(tries) > _MOST_HALVINGS:
            problem = f"{low:.3g} requests/s are too many for {100 * attainment:g}% of them to be within it"
            raise InputError(problem, "range", key="slo")
    for _ in range(_BISECTIONS):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if tried(middle) else (low, middle)
    progress(1.0)
    best = next(result for one, result in tries if one.rate_per_s == low)
    ordered = sorted((one for one, _ in tries[1:]), key=lambda one: one.rate_per_s)
    return FoundRate(low, high, attainment, tuple(ordered), best)
