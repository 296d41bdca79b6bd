"""Whether a machine can meet a service level at all."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ndpsim.base.errors import InputError
from ndpsim.base.options.serve import ServiceLevel
from ndpsim.base.units import format_time
from ndpsim.inference.serving.engine import Arrivals, Engines
from ndpsim.inference.serving.scheduler import Scheduler
from ndpsim.inference.serving.steps import Steps
from ndpsim.workload.requests import Requests

_MOST_OUTPUT = 4  # output tokens whose contexts are near that of the prompt, with the least time for a token


def check_level(
    level: ServiceLevel,
    requests: Requests,
    steps_for: Callable[[Requests], Steps],
    schedulers: Callable[[Steps], Sequence[Scheduler]],
) -> None:
    """Check that the request with the shortest prompt, alone, is within the level.

    Raises:
        InputError: it exceeds the level.
    """
    shortest = int(np.argmin(requests.prompt_tokens))
    output = np.minimum(requests.output_tokens[[shortest]], _MOST_OUTPUT)
    alone = Requests(np.zeros(1), requests.prompt_tokens[[shortest]], output)
    steps, arrivals = steps_for(alone), Arrivals(alone, lambda _: ())
    engine = Engines(schedulers(steps), steps, arrivals, lambda _: None, lambda _: None)
    engine.run()
    (one,) = engine.sequences
    ttft_ns, between = one.first_token_ns, one.output_tokens - 1
    tpot_ns = (one.last_token_ns - ttft_ns) / between if between else None
    if not level.is_met(ttft_ns, tpot_ns):
        then = f", and a token every {format_time(tpot_ns)}" if tpot_ns else ""
        problem = (
            f"no request can be within it: alone, the one with the shortest prompt "
            f"('{requests.ids[shortest]}') has its first token after {format_time(ttft_ns)}{then}"
        )
        raise InputError(problem, "range", key="slo")
