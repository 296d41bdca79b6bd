"""A closed loop: the system always has `concurrency` requests, and the next one arrives when one ends."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ndpsim.base.settings import Setting
from ndpsim.workload.requests.spec import ArrivalGenerator, ArrivalTimes


def _arrivals(count: int, settings: Mapping[str, Any], random: np.random.Generator) -> ArrivalTimes:
    return ArrivalTimes(np.zeros(count), settings["concurrency"])


GENERATOR = ArrivalGenerator(
    name="closed-loop",
    meaning="a constant number of requests in the system",
    settings=(Setting("concurrency", 32, "requests in the system", 1, 1 << 20),),
    arrivals=_arrivals,
)
