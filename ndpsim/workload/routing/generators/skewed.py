"""Three classes of experts, hot, warm and cold, each with a share of the selections.

The default is the skew that the TriMoE paper describes: few hot experts, warm ones with most of the
selections, and 70% cold ones with 8% of them. Within a class all experts are equally popular.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ndpsim.base.errors import InputError
from ndpsim.base.settings import Setting
from ndpsim.workload.routing.drawing import class_counts, filled, shuffled
from ndpsim.workload.routing.spec import Randoms, RoutingGenerator, RoutingShape, Shares


def _densities(counts: tuple[int, int, int], parameters: Mapping[str, Any]) -> list[float]:
    """The share of each expert of a class; a class that would be more popular than the previous one joins it.

    With few experts, the single hot expert is more than its class's share of experts, and could be less
    popular than a warm one.
    """
    shares = [parameters["hot_share"], parameters["warm_share"]]
    shares.append(1 - sum(shares))
    merged: list[tuple[int, float]] = []
    for count, share in zip(counts, shares, strict=True):
        merged.append((count, share))
        while len(merged) > 1 and merged[-1][1] * merged[-2][0] > merged[-2][1] * merged[-1][0]:
            last, previous = merged.pop(), merged.pop()
            merged.append((last[0] + previous[0], last[1] + previous[1]))
    return [share / count for count, share in merged for _ in range(count)]


def _shares(
    shape: RoutingShape, name: str, parameters: Mapping[str, Any], stated: frozenset[str], randoms: Randoms
) -> Shares:
    if parameters["hot_share"] + parameters["warm_share"] > 1:
        raise _above_one("hot_share", "warm_share", parameters)
    if parameters["hot_experts"] + parameters["warm_experts"] > 1:
        raise _above_one("hot_experts", "warm_experts", parameters)
    counts = class_counts(shape.experts, parameters["hot_experts"], parameters["warm_experts"])
    densities = np.array(_densities(counts, parameters))
    own = stated & {setting.name for setting in GENERATOR.settings}
    limit = 1 / shape.experts_per_token
    if own and densities[0] > limit * (1 + 1e-9):
        problem = (
            f"one expert would get {100 * densities[0]:.1f}% of the selections; "
            f"{100 * limit:.1f}% are possible with {shape.experts_per_token} different experts a token"
        )
        raise InputError(problem, "range", key=GENERATOR.place(*sorted(own)))
    densities = filled(densities, shape.experts_per_token)
    return np.array([densities[shuffled(shape.experts, random)] for random in randoms])


def _above_one(first: str, second: str, parameters: Mapping[str, Any]) -> InputError:
    """The error of two shares that add up to more than 1."""
    problem = f"{parameters[first]:g} and {parameters[second]:g} add up to more than 1"
    return InputError(problem, "range", key=GENERATOR.place(first, second))


GENERATOR = RoutingGenerator(
    name="skewed",
    meaning="three classes of experts, hot, warm and cold, with shares of the selections",
    settings=(
        Setting("hot_experts", 0.05, "share of experts that are hot; at least one is"),
        Setting("warm_experts", 0.25, "share of experts that are warm; the rest is cold"),
        Setting("hot_share", 0.22, "share of selections that hot experts get together"),
        Setting("warm_share", 0.70, "share of selections that warm experts get; cold ones get the rest"),
    ),
    shares=_shares,
)
