"""Arithmetic expressions of claims over metrics of runs: ``klotski.moe_ns / trimoe.moe_ns``."""

from __future__ import annotations

import ast
import fnmatch
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ndpsim.errors import InputError, one_of, unknown

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
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.Div: lambda a, b: a / b,
    ast.Pow: lambda a, b: a**b,
    ast.Lt: lambda a, b: a < b,
    ast.LtE: lambda a, b: a <= b,
    ast.Gt: lambda a, b: a > b,
    ast.GtE: lambda a, b: a >= b,
    ast.Eq: lambda a, b: a == b,
    ast.NotEq: lambda a, b: a != b,
    ast.USub: lambda a: -a,
    ast.Not: lambda a: not a,
}
_METRIC = "metric"  # metric(run, "utilization.ndp *"): the mean of all metrics that match the name


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
        self._check(self._tree())

    def _tree(self) -> ast.expr:
        try:
            return ast.parse(self.text.strip(), mode="eval").body
        except (SyntaxError, ValueError) as error:
            raise InputError(f"'{self.text}' is no expression: {error}", "form") from None

    @property
    def runs(self) -> set[str]:
        """The names of the runs in the expression."""
        names = {node.id for node in ast.walk(self._tree()) if isinstance(node, ast.Name)}
        return names - {*_FUNCTIONS, _METRIC}

    @property
    def is_one_metric(self) -> bool:
        """Whether the expression is a single metric, without arithmetic."""
        return isinstance(self._tree(), ast.Attribute)

    def of(self, metrics: Metrics) -> Any:
        """Its value.

        Raises:
            InputError: a run or a metric is not there, is not known (None), or a division is by 0.
        """
        try:
            return _value(self._tree(), metrics)
        except ZeroDivisionError:
            raise InputError(f"'{self.text}' divides by 0", "invalid") from None

    def _check(self, node: ast.expr) -> None:
        parts: list[ast.expr | None]
        if isinstance(node, ast.Call):
            name = node.func.id if isinstance(node.func, ast.Name) else ""
            if name == _METRIC:
                run, pattern = [*node.args, None, None][:2]
                if isinstance(run, ast.Name) and isinstance(pattern, ast.Constant) and len(node.args) == 2:
                    return
                raise InputError(f"'{self.text}': metric takes a run and a name in quotes", "form")
            if name not in _FUNCTIONS or node.keywords:
                raise unknown(name, [*_FUNCTIONS, _METRIC], "function")
            parts = [*node.args]
        elif isinstance(node, ast.BinOp):
            parts = [node.left, node.right]
            self._check_operators([node.op])
        elif isinstance(node, ast.UnaryOp):
            parts = [node.operand]
            self._check_operators([node.op])
        elif isinstance(node, ast.Compare):
            parts = [node.left, *node.comparators]
            self._check_operators(node.ops)
        elif isinstance(node, ast.BoolOp):
            parts = [*node.values]
        elif isinstance(node, ast.Attribute):
            while isinstance(node, ast.Attribute):
                node = node.value
            parts = [] if isinstance(node, ast.Name) else [None]
        elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
            parts = []
        else:
            parts = [None]
        for part in parts:
            if part is None:
                raise InputError(f"'{self.text}' has something that an expression cannot have", "form")
            self._check(part)

    def _check_operators(self, operators: list[Any]) -> None:
        for operator in operators:
            if type(operator) not in _OPERATORS:
                raise InputError(f"'{self.text}' has an operator that an expression cannot have", "form")


def _value(node: ast.expr, metrics: Metrics) -> Any:
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Attribute):
        names: list[str] = []
        here: ast.expr = node
        while isinstance(here, ast.Attribute):
            names.insert(0, here.attr)
            here = here.value
        assert isinstance(here, ast.Name)
        return _metric(metrics, here.id, ".".join(names))
    if isinstance(node, ast.Call):
        assert isinstance(node.func, ast.Name)
        if node.func.id == _METRIC:
            run, name = node.args
            assert isinstance(run, ast.Name)
            assert isinstance(name, ast.Constant)
            return _metric(metrics, run.id, str(name.value))
        return _FUNCTIONS[node.func.id](*(_value(part, metrics) for part in node.args))
    if isinstance(node, ast.BinOp):
        return _OPERATORS[type(node.op)](_value(node.left, metrics), _value(node.right, metrics))
    if isinstance(node, ast.UnaryOp):
        return _OPERATORS[type(node.op)](_value(node.operand, metrics))
    if isinstance(node, ast.BoolOp):
        values = [bool(_value(part, metrics)) for part in node.values]
        return all(values) if isinstance(node.op, ast.And) else any(values)
    assert isinstance(node, ast.Compare)
    parts = [_value(part, metrics) for part in (node.left, *node.comparators)]
    steps = zip(node.ops, parts, parts[1:], strict=False)
    return all(_OPERATORS[type(operator)](one, other) for operator, one, other in steps)


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
