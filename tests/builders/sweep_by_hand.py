"""Sweeps with rows made by hand, for tests of pictures and reports."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from typing import Any

from ndpsim.studies.sweeps.values import Definition


class Result(list):
    """Rows, with the other attributes of a `SweepResult`."""

    def __init__(self, definition: Definition, rows: list[dict[str, Any]]) -> None:
        super().__init__(rows)
        self.definition = definition

    @property
    def columns(self) -> list[str]:
        return list(dict.fromkeys(name for row in self for name in row))


def row(point: Mapping[str, Any], **metrics: Any) -> dict[str, Any]:
    """The row of a finished point, with its configuration."""
    config = json.dumps({"hardware": {"name": "trimoe"}, "tokens": point.get("tokens", 1)}, sort_keys=True)
    said = {"status": "ok", "reason": None, **metrics}
    return {**point, **said, "version": "0.1.0 0123456789", "config": config}


def gemv(**changes: Any) -> Result:
    """Ranks x tokens x bits: 24 points whose times are 1000 tokens x bits / ranks ns."""
    varied = {"dimm.ranks": (1, 2, 4), "tokens": (1, 4, 16, 64), "bits": (16, 4)}
    given = {"fixed": {"hw": "trimoe", "model": "mixtral-8x7b"}, "varied": varied} | changes
    definition = Definition("gemv", **given)
    rows = []
    for values in itertools.product(*definition.varied.values()):
        point = dict(zip(definition.varied, values, strict=True))
        ns = 1000.0 * point["tokens"] * point["bits"] / point["dimm.ranks"]
        energy = {"energy_nj.total": 2e5 * point["bits"] * point["dimm.ranks"]}
        rows.append(row(point, time_ns=ns, **energy, peak_fraction=0.5, bound="memory"))
    return Result(definition, rows)


def moe(**changes: Any) -> Result:
    """Policies x batches: throughput, time and speed-up."""
    varied = {"policy": ("trimoe", "monde", "all-on-the-gpu-of-the-machine"), "batch": (64, 128)}
    given = {"varied": varied, "baseline": {"policy": "trimoe"}} | changes
    definition = Definition("moe", **given)
    rows = []
    for point in definition.points():
        place = definition.varied["policy"].index(point["policy"]) + 1
        times = {"time_ns": 1e9 / place, "speedup": float(place)}
        rows.append(row(point, tokens_per_s=100.0 * point["batch"] * place, **times))
    return Result(definition, rows)


def fail(result: Result, count: int, reason: str = "hw: no such machine") -> Result:
    """The same result with its first points failed."""
    others = {*result.definition.varied, "status", "reason", "version", "config"}
    metrics = [name for name in result.columns if name not in others]
    for one in result[:count]:
        one.update(dict.fromkeys(metrics), status="failed", reason=reason)
    return result
