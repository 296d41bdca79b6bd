"""Runs a search: batches of points are chosen, and then run, stored and reused like those of a sweep."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

from pydantic import Field

from ndpsim.base.arguments import path_of, plain_mapping
from ndpsim.base.errors import InputError, did_you_mean, shown
from ndpsim.base.options.settings import called_with
from ndpsim.base.options.swept import (
    BATCH,
    BUDGET,
    OPTIMIZE,
    SAMPLER,
    SEED,
    STUDIES,
    SearchOptions,
    StudyOptions,
)
from ndpsim.report.metrics import is_number
from ndpsim.studies.search.problem import SearchProblem, check_problem, limit_of, parse_formula, range_of
from ndpsim.studies.search.result import SearchResult, described
from ndpsim.studies.search.sampling import Sampler, Trial
from ndpsim.studies.sweeps.commands import swept_commands
from ndpsim.studies.sweeps.executors import Tasks
from ndpsim.studies.sweeps.file import SharedKeys, placed, read_file
from ndpsim.studies.sweeps.points import SweepPoint, SweepRun, shares
from ndpsim.studies.sweeps.run import defined, execute, no_study
from ndpsim.studies.sweeps.table import OWN_COLUMNS, SweepResult

_SECTIONS = ("fixed", "vary", "objectives", "constraints", "derived", "base")


class SearchKeys(SharedKeys):
    """The keys of a file, a sweep's with objectives; see `SearchProblem`.

    ```yaml
    command: moe
    fixed: {model: deepseek-v2, steps: 2}
    vary:                                # whole numbers with a step, a range, or values
      dimm.count: 8..32:8
      host.cpu_tflops: 10.0..200.0       # log:10.0..200.0: drawn by its logarithm
      policy: [monde, trimoe]
    derived: {cost_usd: dimm.count * 100}
    objectives: {tokens_per_s: maximize, cost_usd: minimize}
    constraints: {layer_ns.p99: <= 2e6}
    base: {dimm.count: 16, host.cpu_tflops: 90.1, policy: trimoe}
    budget: 100
    ```
    """

    objectives: dict[str, str]
    constraints: dict[str, str] = Field(default_factory=dict)
    derived: dict[str, Any] = Field(default_factory=dict)
    base: dict[str, Any] = Field(default_factory=dict)
    budget: int = BUDGET
    sampler: str = SAMPLER
    seed: int = SEED
    batch: int = BATCH


@called_with(SearchOptions)
def optimize(
    command: str | PathLike[str],
    vary: Mapping[str, Any] | None = None,
    objectives: Mapping[str, str] | None = None,
    *,
    fixed: Mapping[str, Any] | None = None,
    constraints: Mapping[str, str] | None = None,
    derived: Mapping[str, str] | None = None,
    zip: bool | Sequence[Sequence[str]] = False,
    base: Mapping[str, Any] | None = None,
    settings: SearchOptions,
    progress: Callable[[float], None] | bool | None = None,
) -> SearchResult:
    """Search a sweep for the points with the best metrics; only a few points run.

    Needs the extra `optimize`. The points depend on the problem, its seed and its batch alone, not on `jobs`,
    the cluster or the time of points. A point that cannot be run, or has no number for an objective, is
    infeasible; the sampler takes this into account. The same call, or one with a larger budget, continues the
    search in `out`.

    >>> keys = {"tokens": [8], "dimm.ranks": [1, 2, 4]}
    >>> found = ndpsim.optimize("gemv", keys, objectives={"time_ns": "minimize"})  # doctest: +SKIP

    Args:
        command: gemv, moe, relayout, dram or serve; or a YAML file that describes a search, which the other
            arguments override.
        vary: the variables, each with its values as in `sweep`, or with a range as text: "0.5..2.0", or
            "log:10..1000" for a logarithmic scale.
        objectives: "minimize" or "maximize" by metric: a metric of a sweep's table, or a derived one. Names
            contain units.
        fixed: keys with the same value at all points.
        constraints: "<= 50" or ">= 50" by metric.
        derived: further metrics, as formulas of keys and metrics: {"power_w": "energy_nj.total / time_ns"}.
            With + - * / **, min, max, ceil, floor, log2 and sqrt; dashes in names of options are underscores.
        zip: as in `sweep`.
        base: a value of each variable: this point runs first and is the reference for other points.
        progress: called with the share of the budget that is run.

    Returns:
        The Pareto front, or with one objective the best point, and all points that were run.

    Raises:
        InputError: the search is invalid, Optuna is not installed, or `out` cannot be written, or
            holds another search.
    """
    problem = problem_of(
        command,
        vary,
        fixed,
        zip,
        objectives=objectives,
        constraints=constraints,
        derived=derived,
        base=base,
        **{name: getattr(settings, name) for name in SearchOptions.first.split()},
    )
    return run_search(problem, settings, shares(progress))


def problem_of(
    command: str | os.PathLike[str],
    vary: Mapping[str, Any] | None = None,
    fixed: Mapping[str, Any] | None = None,
    zipped: bool | Sequence[Sequence[str]] = False,
    **said: Any,
) -> SearchProblem:
    """The problem that the arguments of `optimize` describe.

    Args:
        said: all other keys of a search's file; None: not given.

    Raises:
        InputError: the arguments are invalid.
    """
    overriding = {name: value for name, value in said.items() if value is not None}
    for name in overriding.keys() & {"objectives", "constraints", "derived", "base"}:
        overriding[name] = plain_mapping(overriding[name], name)
    name = os.fspath(path_of(command, "command"))
    vary, fixed = plain_mapping(vary, "vary"), plain_mapping(fixed, "fixed")
    if name.endswith(STUDIES) and name not in swept_commands():
        keys, root = read_file(name, SearchKeys)
        try:
            return _problem(keys.model_copy(update=overriding), vary, fixed, zipped)
        except InputError as error:
            raise placed(error, Path(name), root, _SECTIONS) from None
    if name not in swept_commands():
        raise no_study(name)
    keys = SearchKeys.model_construct(command=name, vary={}, **{"objectives": {}, **overriding})
    return _problem(keys, vary, fixed, zipped)


def _problem(
    said: SearchKeys,
    vary: dict[str, Any],
    fixed: dict[str, Any],
    zipped: bool | Sequence[Sequence[str]],
) -> SearchProblem:
    for key in fixed.keys() & vary.keys():
        raise InputError("has a fixed value and varies; give one of them", "conflict", key=key)
    definition = said.definition(vary)
    command = definition.swept
    ranges = {
        key: range_of(command, key, text) for key, text in definition.varied.items() if key not in fixed
    }
    known = {key: found for key, found in ranges.items() if found is not None}
    ends = {key: (found.low, found.high) for key, found in known.items()}
    definition = defined(replace(definition, varied={**definition.varied, **ends}), {}, fixed, zipped)
    for key in (key for group in definition.zipped for key in group):
        if key in known:
            wrong = f"{key} is a range, which cannot be zipped with other keys"
            raise InputError(wrong, "conflict", key="zip")
    problem = SearchProblem(
        definition,
        dict(said.objectives),
        known,
        {name: limit_of(name, limit) for name, limit in said.constraints.items()},
        {name: parse_formula(text, name) for name, text in said.derived.items()},
        {key: value for key, value in said.base.items() if key not in fixed},
        OPTIMIZE["runs"].checked(said.budget),
        OPTIMIZE["sampler"].checked(said.sampler),
        OPTIMIZE["seed"].checked(said.seed),
        OPTIMIZE["batch"].checked(said.batch),
    )
    return check_problem(problem, command)


def run_search(problem: SearchProblem, options: StudyOptions, *watching: Callable[..., Any]) -> SearchResult:
    """Run the search of a problem from `problem_of`; see `optimize`, and for `watching` see `SweepRun`.

    Raises:
        InputError: Optuna is not installed, an objective is not a metric, the folder cannot be written, or
            the cluster does not exist.
    """
    run = _SearchRun(problem, options, *watching)
    execute(run, "optimize.json", described(problem))
    return run.found(run.result())


class _SearchRun(SweepRun):
    """A run whose points are chosen by a sampler, batch by batch."""

    table = "runs"
    others = ("front.csv",)

    def __init__(self, problem: SearchProblem, options: StudyOptions, *watching: Callable[..., Any]) -> None:
        self._problem, self._sampler = problem, Sampler(problem)
        super().__init__(problem.definition, [], options, *watching)
        self._trials: list[Trial] = []
        self._had: set[str] = set()  # metrics of any point so far

    @property
    def planned(self) -> int:
        """The number of points to run."""
        return self._problem.budget

    def tasks(self) -> Tasks:
        """Tasks, batch by batch; None while results of a batch are missing."""
        while len(self._points) < self._problem.budget:
            trials = self._sampler.ask(min(self._problem.batch, self._problem.budget - len(self._points)))
            if not trials:
                return
            batch = [SweepPoint(dict(trial.values)) for trial in trials]
            self._points += batch
            self._trials += trials
            yield from self._tasks_of(batch)
            while any(point.outcome is None for point in batch):
                yield None
            self._tell(trials, batch)

    def _tell(self, trials: Sequence[Trial], batch: Sequence[SweepPoint]) -> None:
        rows = [self._problem.judged(row) for row in self._rows_of(batch)]
        for name in (*self._problem.objectives, *self._problem.constraints):
            self._check_metric(name, rows)
        for trial, row in zip(trials, rows, strict=True):
            objectives = [row[name] for name in self._problem.objectives]
            self._sampler.tell(trial, objectives, self._problem.excess(row))

    def _check_metric(self, name: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Check that a metric whose existence depends on results is in some result.

        Raises:
            InputError: no point so far has the metric.
        """
        ran = [row for row in rows if row["status"] == "ok"]
        if any(is_number(row[name]) for row in ran):
            self._had.add(name)
        if name in self._had or not ran:
            return
        known = [metric for metric, value in ran[0].items() if is_number(value) and metric not in OWN_COLUMNS]
        hint = did_you_mean(name, known)
        problem = f"is {shown(ran[0][name])}" if ran[0][name] is not None else "has no value"
        raise InputError(
            f"'{name}' {problem} at the first points that were run{hint}", "unknown-name", key=name
        )

    def _rows(self) -> list[dict[str, Any]]:
        finished = [number for number, point in enumerate(self._points, 1) if point.outcome is not None]
        rows = self._rows_of(self._points)
        return [
            {"run": number, **self._problem.judged(row)} for number, row in zip(finished, rows, strict=True)
        ]

    def best(self) -> set[int]:
        """The numbers of the runs that no other feasible run beats."""
        best = self._sampler.best()
        return {number for number, trial in enumerate(self._trials, 1) if trial.trial.number in best}

    def _tables_of(self, rows: list[dict[str, Any]], all_done: bool) -> Iterator[tuple[str, bytes]]:
        yield from super()._tables_of(rows, all_done)
        if all_done:
            yield self.others[0], self.found(SweepResult(self._definition, rows)).csv()

    def found(self, points: SweepResult) -> SearchResult:
        """The result of the search; the values of a range are the drawn ones."""
        drawn = {key: tuple(sorted({row[key] for row in points})) for key in self._problem.ranges}
        definition = replace(points.definition, varied={**points.definition.varied, **drawn})
        runs = SweepResult(definition, points.rows, points.computed, points.found)
        return SearchResult(self._problem, runs, self.best())
