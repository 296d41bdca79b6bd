"""Arithmetic expressions of claims over metrics of runs: ``klotski.moe_ns / trimoe.moe_ns``."""

from __future__ import annotations

import ast
import fnmatch
import functools
import itertools
import operator
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ndpsim.base.errors import InputError, one_of, unknown

#: The metrics of each run, by dotted name.
Metrics = Mapping[str, Mapping[str, Any]]

_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "abs": abs,
    "max": max,
    "mean": lambda *values: statistics.fmean(values),
    "min": min,
    "round": round,
}
_OPERATORS: Mapping[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.USub: operator.neg,
    ast.Not: operator.not_,
}
_METRIC = "metric"  # metric(run, "utilization.ndp *"): the mean of all metrics that match the name

#: Computes a value from metrics.
_Formula = Callable[[Metrics], Any]


@dataclass(frozen=True)
class Expression:
    """An expression, checked.

    It has numbers, ``RUN.METRIC`` (dots as in the metric's name), ``metric(RUN, "name with blanks or *")``
    (the mean of all that match), ``+ - * / **``, comparisons, ``and``, ``or``, ``not``, and the functions
    abs, max, mean, min and round.

    Raises:
        InputError: it has anything else.
    """

    text: str

    def __post_init__(self) -> None:
        self._formula(self._tree)

    @functools.cached_property
    def _tree(self) -> ast.expr:
        try:
            return ast.parse(self.text.strip(), mode="eval").body
        except (SyntaxError, ValueError) as error:
            raise InputError(f"'{self.text}' is no expression: {error}", "form") from None

    @property
    def runs(self) -> set[str]:
        """The names of the runs in the expression."""
        names = {node.id for node in ast.walk(self._tree) if isinstance(node, ast.Name)}
        return names - {*_FUNCTIONS, _METRIC}

    @property
    def is_one_metric(self) -> bool:
        """Whether the expression is a single metric, without arithmetic."""
        return isinstance(self._tree, ast.Attribute)

    def of(self, metrics: Metrics) -> Any:
        """Its value.

        Raises:
            InputError: a run or a metric is not there, is not known (None), or a division is by 0.
        """
        try:
            return self._formula(self._tree)(metrics)
        except ZeroDivisionError:
            raise InputError(f"'{self.text}' divides by 0", "invalid") from None

    def _formula(self, node: ast.expr) -> _Formula:
        """The function that computes a part of the expression."""
        if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
            number = node.value
            return lambda metrics: number
        if isinstance(node, ast.Attribute):
            run, _, name = ast.unparse(node).partition(".")
            if run.isidentifier():
                return lambda metrics: _metric(metrics, run, name)
        if isinstance(node, ast.Call):
            return self._call(node)
        if isinstance(node, ast.BinOp):
            return _applied(self._operator(node.op), [self._formula(node.left), self._formula(node.right)])
        if isinstance(node, ast.UnaryOp):
            return _applied(self._operator(node.op), [self._formula(node.operand)])
        if isinstance(node, ast.BoolOp):
            together = all if isinstance(node.op, ast.And) else any
            return _applied(lambda *values: together(values), [self._formula(part) for part in node.values])
        if isinstance(node, ast.Compare):
            parts = [self._formula(part) for part in (node.left, *node.comparators)]
            steps = zip(map(self._operator, node.ops), itertools.pairwise(parts), strict=True)
            return _applied(lambda *steps: all(steps), [_applied(compare, pair) for compare, pair in steps])
        raise InputError(f"'{self.text}' has something that an expression cannot have", "form")

    def _call(self, node: ast.Call) -> _Formula:
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if name == _METRIC:
            match node.args:
                case [ast.Name(id=run), ast.Constant(value=pattern)]:
                    return lambda metrics: _metric(metrics, run, str(pattern))
            raise InputError(f"'{self.text}': metric takes a run and a name in quotes", "form")
        if name not in _FUNCTIONS or node.keywords:
            raise unknown(name, [*_FUNCTIONS, _METRIC], "function")
        return _applied(_FUNCTIONS[name], [self._formula(part) for part in node.args])

    def _operator(self, node: ast.AST) -> Callable[..., Any]:
        if type(node) not in _OPERATORS:
            raise InputError(f"'{self.text}' has an operator that an expression cannot have", "form")
        return _OPERATORS[type(node)]


def _applied(function: Callable[..., Any], parts: Sequence[_Formula]) -> _Formula:
    return lambda metrics: function(*(part(metrics) for part in parts))


def _metric(metrics: Metrics, run: str, name: str) -> float:
    """A metric of a run, or the mean of all whose names match.

    Raises:
        InputError: there is none, or one of them is not known.
    """
    if run not in metrics:
        raise unknown(run, metrics, "run")
    of_run = metrics[run]
    names = [name] if name in of_run else fnmatch.filter(of_run, name)
    if not names:
        raise InputError(f"{run}: {one_of(name, of_run, 'metric')}", "unknown-name")
    missing = [one for one in names if not isinstance(of_run[one], int | float)]
    if missing:
        raise InputError(f"{run}.{missing[0]} is {of_run[missing[0]]!r}, no number", "type")
    return of_run[name] if names == [name] else statistics.fmean(of_run[one] for one in names)
