"""Expressions of claims: a line of Python over metrics of runs, ``klotski.moe_ns / trimoe.moe_ns``."""

from __future__ import annotations

import ast
import fnmatch
import functools
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from types import CodeType
from typing import Any

from ndpsim.base.errors import InputError, one_of

#: The metrics of each run, by dotted name.
Metrics = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class _RunMetrics:
    """The metrics of a run; `before`: the beginning of a dotted name, up to a dot."""

    name: str
    metrics: Mapping[str, Any]
    before: str = ""

    def __getattr__(self, name: str) -> Any:
        name = self.before + name
        if name not in self.metrics and any(metric.startswith(f"{name}.") for metric in self.metrics):
            return _RunMetrics(self.name, self.metrics, f"{name}.")
        return _metric(self, name)


def _metric(run: _RunMetrics, name: str) -> float:
    """A metric of a run, or the mean of all whose names match.

    Raises:
        InputError: there is none, or one of them is not known (None).
    """
    names = [name] if name in run.metrics else fnmatch.filter(run.metrics, name)
    if not names:
        raise InputError(f"{run.name}: {one_of(name, run.metrics, 'metric')}", "unknown-name")
    values = [run.metrics[metric] for metric in names]
    for metric, value in zip(names, values, strict=True):
        if not isinstance(value, int | float):
            raise InputError(f"{run.name}.{metric} is {value!r}, no number", "type")
    return values[0] if names == [name] else statistics.fmean(values)


_FUNCTIONS = {
    "abs": abs,
    "max": max,
    "mean": lambda *values: statistics.fmean(values),
    "metric": _metric,  # metric(run, "utilization.ndp *")
    "min": min,
    "round": round,
}


@dataclass(frozen=True)
class Expression:
    """A line of Python with metrics as ``RUN.METRIC`` or ``metric(RUN, "name with blanks or *")``.

    It is code of the authors, as a test is: the files of claims come with ndpsim.

    Raises:
        InputError: it is no line of Python.
    """

    text: str

    def __post_init__(self) -> None:
        try:
            _ = self._code
        except (SyntaxError, ValueError) as error:
            raise InputError(f"'{self.text}' is no expression: {error}", "form") from None

    @functools.cached_property
    def _tree(self) -> ast.Expression:
        return ast.parse(self.text.strip(), mode="eval")

    @functools.cached_property
    def _code(self) -> CodeType:
        return compile(self._tree, "ours", "eval")

    @property
    def runs(self) -> set[str]:
        """The names of the runs in the expression."""
        return {node.id for node in ast.walk(self._tree) if isinstance(node, ast.Name)} - set(_FUNCTIONS)

    @property
    def is_one_metric(self) -> bool:
        """Whether the expression is a single metric, without arithmetic."""
        return isinstance(self._tree.body, ast.Attribute)

    def of(self, metrics: Metrics) -> Any:
        """Its value.

        Raises:
            InputError: a metric is not there, is not known (None), or a division is by 0.
        """
        runs = {name: _RunMetrics(name, values) for name, values in metrics.items()}
        try:
            return eval(self._code, {"__builtins__": {}}, {**_FUNCTIONS, **runs})
        except ZeroDivisionError:
            raise InputError(f"'{self.text}' divides by 0", "invalid") from None
