"""Times between arrivals from a gamma distribution of shape `burstiness`, as ``vllm bench serve`` draws them.

Shape 1 is a Poisson process; below 1 requests come in bursts, above 1 more evenly. The squared coefficient
of variation of the times is 1 / `burstiness`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ndpsim.base.settings import Setting
from ndpsim.workload.requests.spec import ArrivalGenerator, ArrivalTimes, gamma

_NS = 1e9


def _arrivals(count: int, settings: Mapping[str, Any], random: np.random.Generator) -> ArrivalTimes:
    between_ns = gamma(settings["burstiness"], count - 1, random) * (_NS / settings["rate"])
    return ArrivalTimes(np.concatenate(([0.0], np.rint(np.cumsum(between_ns)))))


GENERATOR = ArrivalGenerator(
    name="gamma",
    meaning="independent times between arrivals, in bursts or evenly",
    settings=(
        Setting("rate", 1.0, "mean requests a second", 1e-6, 1e6),
        Setting(
            "burstiness", 0.5, "shape of the gamma distribution; 1: Poisson, below: in bursts", 0.01, 1000
        ),
    ),
    arrivals=_arrivals,
)
