"""A Poisson process: the times between arrivals are exponential, and independent of each other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ndpsim.base.settings import Setting
from ndpsim.workload.requests.spec import ArrivalGenerator, ArrivalTimes, exponential

_NS = 1e9


def _arrivals(count: int, settings: Mapping[str, Any], random: np.random.Generator) -> ArrivalTimes:
    between_ns = exponential(count - 1, random) * (_NS / settings["rate"])
    return ArrivalTimes(np.concatenate(([0.0], np.rint(np.cumsum(between_ns)))))


GENERATOR = ArrivalGenerator(
    name="poisson",
    meaning="a Poisson process",
    settings=(Setting("rate", 1.0, "mean requests a second", 1e-6, 1e6),),
    arrivals=_arrivals,
)
