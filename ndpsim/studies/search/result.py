"""The result of a search: the points that no other beats, and their differences."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ndpsim.base.arguments import instance, whole_number
from ndpsim.report.metrics import metric_label, metric_text, value_words
from ndpsim.report.printing import aligned
from ndpsim.report.ranking import ranked_answer
from ndpsim.report.words import counted
from ndpsim.studies.search.problem import SearchProblem
from ndpsim.studies.sweeps.table import Listed, SweepResult, csv_of


class SearchResult(Listed):
    """The result of `optimize`: a row for each point that no other feasible point beats.

    A row is a mapping as in `SweepResult`. It also has the number of the `run` (from 1), `feasible`, and
    derived metrics. ``pandas.DataFrame(result)`` has these rows.

    Attributes:
        problem: the problem that was searched.
        points: all points that were run, in the order in which the sampler chose them.
        front: the Pareto front, sorted by the first objective, best first. If several points are equal in all
            objectives, it has the earliest. With one objective it is the best point.
        approach: each point that was better than all points before it; empty with several objectives.
    """

    def __init__(self, problem: SearchProblem, points: SweepResult, best: set[int]) -> None:
        self.problem = instance(problem, "problem", SearchProblem)
        self.points = instance(points, "points", SweepResult)
        runs = {whole_number(run, "best", 0) for run in instance(best, "best", set)}
        self.front = self.listed = self._distinct([row for row in points if row["run"] in runs])
        self.approach = self._improvements() if len(problem.objectives) == 1 else []

    def _distinct(self, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        first, sign = self._first
        found: dict[tuple[Any, ...], dict[str, Any]] = {}
        for row in rows:
            found.setdefault(tuple(row[name] for name in self.problem.objectives), row)
        return sorted(found.values(), key=lambda row: sign * row[first])

    @property
    def _first(self) -> tuple[str, int]:
        """The first objective, and the sign with which lower values are better."""
        name, direction = next(iter(self.problem.objectives.items()))
        return name, 1 if direction == "minimize" else -1

    def _improvements(self) -> list[dict[str, Any]]:
        name, sign = self._first
        rows: list[dict[str, Any]] = []
        for row in self.points:
            if row["feasible"] and (not rows or sign * row[name] < sign * rows[-1][name]):
                rows.append(row)
        return rows

    def answer(self) -> str:
        """Which point is best by the first objective, by how much, and what limits it; "" of one point."""
        name, sign = self._first
        rows = [row for row in self.points if row["feasible"]]
        names = [f"run {row['run']}" for row in rows]
        return ranked_answer(rows, names, name, self.problem.definition.results, sign < 0)

    @property
    def shown(self) -> list[dict[str, Any]]:
        """The rows of a table: the front, or the successive best points."""
        return self.approach or self.front

    @property
    def infeasible(self) -> int:
        """The number of points that failed, lack a value of an objective, or violate a constraint."""
        return sum(not row["feasible"] for row in self.points)

    def differences(self) -> list[dict[str, tuple[Any, Any]]]:
        """For each row of `shown`, the keys that differ from the base, with both values; without a base,
        those that differ from the previous row (none for the first).
        """
        rows, base = self.shown, dict(self.problem.base)
        others = [base] * len(rows) if base else [{}, *rows][: len(rows)]
        keys = self.problem.definition.varied
        return [
            {key: (base[key], row[key]) for key in keys if base and base[key] != row[key]}
            for row, base in zip(rows, others, strict=True)
        ]

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON: the problem, the front or the approach with its differences, all points."""
        problem = self.problem
        shown = [
            {"run": row["run"], **{name: row[name] for name in self._named}, "differs": difference}
            for row, difference in zip(self.shown, self.differences(), strict=True)
        ]
        return {
            **described(problem),
            "runs": len(self.points),
            "failed": self.points.failed,
            "infeasible": self.infeasible,
            "approach" if self.approach else "front": shown,
            "points": [{**row, "config": json.loads(row["config"])} for row in self.points],
        }

    @property
    def _named(self) -> tuple[str, ...]:
        """The main columns of a front: variables, objectives, constraints and derived metrics."""
        problem = self.problem
        names = (*problem.definition.varied, *problem.objectives, *problem.constraints, *problem.derived)
        return tuple(dict.fromkeys(names))

    def csv(self) -> bytes:
        """The front, or the approach, as CSV; `differs` is JSON."""
        differences = zip(self.shown, self.differences(), strict=True)
        return csv_of([{**row, "differs": difference} for row, difference in differences])

    def title(self) -> str:
        """A title that describes the result."""
        runs = counted(len(self.points), "point")
        aims = ", ".join(f"{direction} {name}" for name, direction in self.problem.objectives.items())
        limits = "".join(f", {name} {limit}" for name, limit in self.problem.constraints.items())
        out = f"; {self.infeasible} infeasible" if self.infeasible else ""
        if self.approach:
            return f"{aims}{limits}: the best of {runs} is run {self.front[0]['run']}{out}"
        return f"{aims}{limits}: {len(self.front)} of {runs} are on the front{out}"

    def cells(self, most: int) -> tuple[list[str], list[list[str]]]:
        """Labels and cells, with units, of the first rows of `shown`, without columns of equal values."""
        rows = self.shown[: whole_number(most, "most", 0)]
        keys = [
            key for key in self.problem.definition.varied if len({value_words(row[key]) for row in rows}) > 1
        ]
        metrics = [name for name in self._named if name not in self.problem.definition.varied]
        differs = "differs from the base" if self.problem.base else "differs from the row above"
        cells = [
            [
                str(row["run"]),
                *(value_words(row[key]) for key in keys),
                *(metric_text(name, row[name], self.problem.definition.results) for name in metrics),
                ", ".join(key.rpartition(".")[2] for key in difference),
            ]
            for row, difference in zip(rows, self.differences(), strict=False)
        ]
        labels = (metric_label(name, results=self.problem.definition.results) for name in metrics)
        return ["run", *keys, *labels, differs], cells

    def shared(self) -> dict[str, Any]:
        """The variables with one value in all rows of `shown`; with one objective, those of the best."""
        rows = self.front if self.approach else self.shown
        keys = self.problem.definition.varied
        return {key: rows[0][key] for key in keys if len({value_words(row[key]) for row in rows}) == 1}

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SearchResult):
            return NotImplemented
        return (self.problem, self.points) == (other.problem, other.points)

    def __repr__(self) -> str:
        names, cells = self.cells(20)
        return "\n".join([f"SearchResult: {self.title()}", *aligned(cells, None, names)])


def described(problem: SearchProblem) -> dict[str, Any]:
    """A problem as plain data."""
    definition = problem.definition
    varied: Mapping[str, Any] = {
        key: str(problem.ranges[key]) if key in problem.ranges else list(values)
        for key, values in definition.varied.items()
    }
    return {
        "command": definition.command,
        "fixed": dict(definition.fixed),
        "varied": varied,
        "objectives": dict(problem.objectives),
        "constraints": {name: str(limit) for name, limit in problem.constraints.items()},
        "derived": {name: formula.text for name, formula in problem.derived.items()},
        "base": dict(problem.base),
        "budget": problem.budget,
        "sampler": problem.sampler,
        "seed": problem.seed,
        "batch": problem.batch,
    }
