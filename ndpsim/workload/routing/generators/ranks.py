"""Load curves by rank: published shares of the selections of the most popular experts.

The ranks of experts are random in each layer. Between two points of a curve, all experts are equally popular.
"""

from __future__ import annotations

import csv
import functools
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ndpsim.base.errors import unknown
from ndpsim.base.settings import Setting
from ndpsim.workload.routing.counts import BUNDLED
from ndpsim.workload.routing.drawing import filled, shuffled
from ndpsim.workload.routing.spec import Randoms, RoutingGenerator, RoutingShape, Shares

_FILE = BUNDLED / "rank_shares.csv"


@functools.cache
def _curves() -> dict[str, dict[str, NDArray[np.float64]]]:
    """Points of each curve, [point, (share of experts, share of selections)], by model and data."""
    points: dict[str, dict[str, list[tuple[float, float]]]] = {}
    with _FILE.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            curve = points.setdefault(row["model"], {}).setdefault(row["data"], [(0.0, 0.0)])
            curve.append((float(row["rank_fraction"]), float(row["cumulative_share"])))
    return {model: {name: np.array(curve) for name, curve in data.items()} for model, data in points.items()}


def _shares(
    shape: RoutingShape, name: str, parameters: Mapping[str, Any], stated: frozenset[str], randoms: Randoms
) -> Shares:
    curves = _curves()
    if name.lower() not in curves:
        raise unknown(name, curves, "rank curve", key="routing")
    by_data = curves[name.lower()]
    data = parameters["data"] or next(iter(by_data))
    if data not in by_data:
        raise unknown(data, by_data, f"data of {name}", key=GENERATOR.place("data"))
    fractions, cumulative = by_data[data].T
    ends = np.interp(np.arange(shape.experts + 1) / shape.experts, fractions, cumulative)
    by_rank = filled(np.diff(ends), shape.experts_per_token)
    return np.array([by_rank[shuffled(shape.experts, random)] for random in randoms])


GENERATOR = RoutingGenerator(
    name="ranks",
    meaning="shares of the selections by rank, as published for a model",
    settings=(Setting("data", "", "name of the data, for instance math; the first by default"),),
    shares=_shares,
    names=lambda: sorted(_curves()),
)
