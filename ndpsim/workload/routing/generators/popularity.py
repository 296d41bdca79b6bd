"""Experts with the popularity of counts, which are bundled or in a file.

A counted layer has its own counts. Any other layer of the model has those of the nearest counted layer, with
experts in another order, so that layers do not share their popular experts.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ndpsim.base.errors import InputError, one_of
from ndpsim.base.settings import Setting
from ndpsim.base.text_files import read_json
from ndpsim.workload.routing.counts import BUNDLED, ExpertCounts, bundled_counts, parse_counts, read_counts
from ndpsim.workload.routing.drawing import shuffled
from ndpsim.workload.routing.spec import Randoms, RoutingGenerator, RoutingShape, Shares


def _find(name: str) -> ExpertCounts:
    if name.lower() in bundled_counts():
        file = f"{name.lower()}.json"
        return parse_counts(read_json(BUNDLED / file), file)
    path = Path(name)
    if path.suffix != ".json" and len(path.parts) < 2 and not os.path.exists(path):
        problem = one_of(name, bundled_counts(), "popularity")
        raise InputError(f"{problem}, nor a file of counts", "unknown-name", key="routing")
    return read_counts(path)


def _shape(name: str) -> RoutingShape | None:
    counts = _find(name)
    if counts.experts_per_token is None:
        return None
    layers = range(counts.model_layers) if counts.model_layers else counts.layers
    return RoutingShape(counts.table("").shape[1], counts.experts_per_token, tuple(layers))


def _shares(
    shape: RoutingShape, name: str, parameters: Mapping[str, Any], stated: frozenset[str], randoms: Randoms
) -> Shares:
    counts = _find(name)
    table = counts.table(parameters["data"])
    if table.shape[1] != shape.experts:
        problem = f"counts {table.shape[1]} experts, and the model has {shape.experts}"
        raise InputError(problem, "conflict", file=counts.file)
    shares = table / table.sum(axis=1, keepdims=True)
    _check_possible(shares, shape, counts)
    counted = np.array(counts.layers)
    rows = []
    for layer, random in zip(shape.layers, randoms, strict=True):
        nearest = int(np.argmin(np.abs(counted - layer)))
        order = shuffled(shape.experts, random)
        rows.append(shares[nearest] if counted[nearest] == layer else shares[nearest][order])
    return np.array(rows)


def _check_possible(shares: Shares, shape: RoutingShape, counts: ExpertCounts) -> None:
    limit = 1 / shape.experts_per_token
    if shares.max() > limit * (1 + 1e-9):
        row, expert = map(int, np.argwhere(shares == shares.max())[0])
        problem = (
            f"expert {expert} of layer {counts.layers[row]} has {100 * shares.max():.1f}%; "
            f"{100 * limit:.1f}% of the selections are possible where a token chooses "
            f"{shape.experts_per_token} different experts"
        )
        raise InputError(problem, "range", file=counts.file)
    fewest = int((shares > 0).sum(axis=1).min())
    if fewest < shape.experts_per_token:
        problem = f"has a layer with {fewest} experts in use, and a token chooses {shape.experts_per_token}"
        raise InputError(problem, "range", file=counts.file)


GENERATOR = RoutingGenerator(
    name="popularity",
    meaning="experts as popular as counts of a measured run say",
    settings=(
        Setting("data", "", "name of the data that was counted, for instance c4; the first by default"),
    ),
    shares=_shares,
    names=bundled_counts,
    shape=_shape,
)
