"""The problem of a search: a sweep's command and keys, objectives, constraints, and the number of points."""

from __future__ import annotations

import ast
import json
import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ndpsim.base.errors import InputError, shown, unknown
from ndpsim.base.reported import flattened
from ndpsim.config.keys import field_at
from ndpsim.report.metrics import is_number
from ndpsim.studies.sweeps.command import SweptCommand
from ndpsim.studies.sweeps.values import NUMBER, Definition, is_whole, one_value, rounded

# ---- Metrics of users: arithmetic over keys and metrics, ``dimm.count * (40 * dimm.ranks + 60)``


_BINARY: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: lambda base, exponent: math.pow(base, exponent),
}
_UNARY: dict[type[ast.unaryop], Callable[[float], float]] = {ast.USub: operator.neg, ast.UAdd: operator.pos}
_FUNCTIONS: dict[str, Callable[..., float]] = {
    "min": min,
    "max": max,
    "ceil": math.ceil,
    "floor": math.floor,
    "log2": math.log2,
    "sqrt": math.sqrt,
}
_LONGEST = 1000  # maximum characters of a formula
_ALLOWED = f"numbers, names, + - * / **, parentheses and {', '.join(_FUNCTIONS)}"


@dataclass(frozen=True)
class Formula:
    """A formula.

    Attributes:
        text: the formula as it was given.
        names: the keys and metrics in it; dashes in names of options are underscores.
    """

    text: str
    names: tuple[str, ...]

    def value(self, value_of: Callable[[str], Any]) -> float | None:
        """The value, where `value_of` gives those of names; None if a name or the result is not a number."""
        values = {name: value_of(name) for name in self.names}
        if not all(map(is_number, values.values())):
            return None
        try:
            value = _value(ast.parse(self.text, mode="eval").body, values)
        except (ArithmeticError, ValueError):
            return None
        return value if is_number(value) else None


def parse_formula(text: Any, key: str) -> Formula:
    """The formula of a text.

    Raises:
        InputError: the text is not a formula.
    """
    if not isinstance(text, str) or len(text) > _LONGEST:
        raise InputError(f"{shown(text)} is not a formula as text", "form", key=key)
    try:
        body = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise InputError(f"{shown(text)} is not a formula: {_ALLOWED}", "form", key=key) from None
    return Formula(text.strip(), tuple(dict.fromkeys(_names(body, key))))


def _dotted(node: ast.expr) -> str | None:
    """A dotted name, ``dimm.count``; None if it is something else."""
    if isinstance(node, ast.Attribute):
        before = _dotted(node.value)
        return None if before is None else f"{before}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else None


def _names(node: ast.expr, key: str) -> list[str]:
    """The names in a formula, which is also checked."""
    name = _dotted(node)
    if name is not None:
        return [name]
    if isinstance(node, ast.Constant) and is_number(node.value):
        return []
    return [name for part in _parts(node, key) for name in _names(part, key)]


def _parts(node: ast.expr, key: str) -> list[ast.expr]:
    if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
        return [node.left, node.right]
    if isinstance(node, ast.UnaryOp) and type(node.op) in _UNARY:
        return [node.operand]
    if isinstance(node, ast.Call) and _dotted(node.func) in _FUNCTIONS and node.args and not node.keywords:
        return node.args
    raise InputError(f"{shown(ast.unparse(node))} is not allowed in a formula: {_ALLOWED}", "form", key=key)


def _value(node: ast.expr, values: Mapping[str, float]) -> float:
    name = _dotted(node)
    if name is not None:
        return values[name]
    match node:
        case ast.BinOp():
            return _BINARY[type(node.op)](_value(node.left, values), _value(node.right, values))
        case ast.UnaryOp():
            return _UNARY[type(node.op)](_value(node.operand, values))
        case ast.Call():
            return _FUNCTIONS[str(_dotted(node.func))](*(_value(part, values) for part in node.args))
    assert isinstance(node, ast.Constant)
    assert isinstance(node.value, int | float)
    return node.value


# ---- The problem of a search: a sweep's command and keys, objectives, constraints, and the number of
# points


DIRECTIONS = ("minimize", "maximize")

_RANGE = re.compile(rf"(log:)?({NUMBER})\.\.({NUMBER})", re.ASCII)
_WHOLE_RANGE = re.compile(r"[-+]?[0-9]+\.\.[-+]?[0-9]+", re.ASCII)
_LIMIT = re.compile(rf"\s*(<=|>=)\s*({NUMBER})\s*", re.ASCII)


@dataclass(frozen=True)
class Range:
    """The numbers from `low` to `high`, both included.

    Attributes:
        log: whether numbers are drawn by their logarithms.
        whole: whether all numbers are whole.
    """

    low: float
    high: float
    log: bool
    whole: bool

    def __str__(self) -> str:
        return f"{'log:' if self.log else ''}{self.low:g}..{self.high:g}"

    def taken(self, number: float) -> float:
        """The value of a drawn number, with digits that hardware files accept."""
        value = round(number) if self.whole else rounded(number)
        return min(max(value, self.low), self.high)


@dataclass(frozen=True)
class Axis:
    """A variable: a key, or keys whose values go together.

    Attributes:
        keys: the keys and metrics in it.
        values: a range, or the possible values of the keys in order.
        ordered: whether the values are growing numbers, so that neighbours are similar.
    """

    keys: tuple[str, ...]
    values: Range | tuple[Mapping[str, Any], ...]
    ordered: bool = False


@dataclass(frozen=True)
class Limit:
    """A constraint: the maximum or minimum of a metric."""

    at_most: bool
    value: float

    def excess(self, metric: float) -> float:
        """The violation of the limit by a metric, as a share of the limit; 0 or less without a violation."""
        beyond = metric - self.value if self.at_most else self.value - metric
        return beyond / (abs(self.value) or 1.0)

    def __str__(self) -> str:
        return f"{'<=' if self.at_most else '>='} {self.value:g}"


@dataclass(frozen=True)
class SearchProblem:
    """A search.

    Attributes:
        definition: the command, the shared keys, and the values of each variable; both ends of a range.
        objectives: a direction of `DIRECTIONS` for each metric.
        ranges: the keys whose values are ranges.
        constraints: limits by metric.
        derived: metrics computed by formulas of keys and metrics.
        base: a point that runs first, and with which others are compared; empty without one.
        budget: number of different points to run.
        sampler: one of `SAMPLERS`.
        seed: seed of the sampler; equal seeds give equal points.
        batch: number of points that are chosen together, before their results are known.
    """

    definition: Definition
    objectives: Mapping[str, str]
    ranges: Mapping[str, Range]
    constraints: Mapping[str, Limit]
    derived: Mapping[str, Formula]
    base: Mapping[str, Any]
    budget: int
    sampler: str
    seed: int
    batch: int

    def axes(self) -> list[Axis]:
        """The variables in order."""
        return [self._axis([dict(pairs) for pairs in choice]) for choice in self.definition.choices()]

    def _axis(self, values: list[dict[str, Any]]) -> Axis:
        keys = tuple(values[0])
        if keys[0] in self.ranges:
            return Axis(keys, self.ranges[keys[0]])
        numbers = [value[keys[0]] for value in values]
        grows = all(map(is_number, numbers)) and numbers == sorted(numbers)
        return Axis(keys, tuple(values), ordered=grows and len(keys) == 1)

    def judged(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """A row of a sweep's table with objectives, constraints, derived metrics, and whether it is feasible.

        A point is feasible if it has a number for every objective and satisfies every constraint.
        """
        known = _known(row, self.definition.fixed)
        derived = {name: formula.value(known.get) for name, formula in self.derived.items()}
        known |= derived
        wanted = {name: known.get(name) for name in (*self.objectives, *self.constraints)}
        excess = self.excess({**wanted, "status": row["status"]})
        judged = {key: row[key] for key in self.definition.varied}
        judged["feasible"] = max(excess, default=0.0) <= 0
        return {**judged, **wanted, **derived, **{key: row[key] for key in row if key not in judged}}

    def excess(self, row: Mapping[str, Any]) -> list[float]:
        """The violation of each constraint by a row; infinite if the row failed or lacks the metric."""
        names = (*self.objectives, *self.constraints)
        if row["status"] != "ok" or not all(is_number(row[name]) for name in names):
            return [math.inf]
        return [limit.excess(row[name]) for name, limit in self.constraints.items()]

    def more_is_better(self) -> tuple[str, ...]:
        """The objectives that are maximized."""
        return tuple(name for name, direction in self.objectives.items() if direction == "maximize")


def _known(row: Mapping[str, Any], fixed: Mapping[str, Any]) -> dict[str, Any]:
    """All named values of a point; a dash in the name of an option may be an underscore."""
    config = json.loads(row["config"])
    known = {**flattened(config), **flattened(config.get("hardware", {})), **fixed, **row}
    return {**{key.replace("-", "_"): value for key, value in known.items()}, **known}


def range_of(command: SweptCommand, key: str, text: Any) -> Range | None:
    """The range that a text describes: ``0.5..2.0``, ``log:10..1000``; None for other texts.

    Raises:
        InputError: the range ends before it begins, or the key cannot have a value at one of its ends.
    """
    found = _RANGE.fullmatch(text.strip()) if isinstance(text, str) else None
    if found is None or _WHOLE_RANGE.fullmatch(text.strip()):
        return None
    log, low, high = bool(found[1]), float(found[2]), float(found[3])
    if not low < high:
        raise InputError(f"'{text}' ends before it begins", "form", key=key)
    if log and low <= 0:
        raise InputError(f"'{text}' is not log:LOW..HIGH with 0 < LOW", "form", key=key)
    whole = is_whole(command, key) and low.is_integer() and high.is_integer()
    ends = (int(low), int(high)) if whole else (low, high)
    return Range(one_value(command, key, ends[0]), one_value(command, key, ends[1]), log, whole)


def limit_of(name: str, text: Any) -> Limit:
    """The constraint that a text describes: ``>= 50``.

    Raises:
        InputError: the text is not a constraint.
    """
    found = _LIMIT.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        raise InputError(f"{shown(text)} is not of the form '>= 50' or '<= 50'", "form", key=name)
    return Limit(found[1] == "<=", float(found[2]))


def check_problem(problem: SearchProblem, command: SweptCommand) -> SearchProblem:
    """Check a problem, and return it with the values of its base as the command takes them.

    Raises:
        InputError: there is no objective, a name is not a metric, or the base is not a point of the search.
    """
    if not problem.objectives:
        wrong = "nothing is optimized; give a metric and its direction, time_ns: minimize"
        raise InputError(wrong, "missing", key="objectives")
    for name, direction in problem.objectives.items():
        if direction not in DIRECTIONS:
            raise unknown(direction, DIRECTIONS, "direction", key=name)
    for name in problem.derived:
        if name in problem.definition.varied or name in command.metric_beginnings():
            raise InputError("is the name of a key or a metric already", "twice", key=name)
    for name in (*problem.objectives, *problem.constraints):
        _check_name(name, problem, command, name)
    for axis in ("x", "y"):
        if axis in problem.definition.plot:
            _check_name(problem.definition.plot[axis], problem, command, f"plot.{axis}")
    for name, formula in problem.derived.items():
        for used in formula.names:
            _check_name(used, problem, command, name)
    base = {key: one_value(command, key, value) for key, value in problem.base.items()}
    _check_base(base, problem)
    return replace(problem, base=base)


def _check_name(name: str, problem: SearchProblem, command: SweptCommand, key: str) -> None:
    """Check that a name can be a metric or a key of the command."""
    options = {option.replace("-", "_") for option in command.parameters} | set(command.parameters)
    if "." not in name or field_at(tuple(name.split("."))) is None:
        command.check_metric(name, key, (*problem.derived, *problem.definition.varied, *options))


def _check_base(base: Mapping[str, Any], problem: SearchProblem) -> None:
    """Check that a base, if any, is a point of the search."""
    if not base:
        return
    for key in base:
        if key not in problem.definition.varied:
            raise unknown(key, problem.definition.varied, "key that varies", key="base")
    missing = [key for key in problem.definition.varied if key not in base]
    if missing:
        wrong = f"has no value of {missing[0]}; it needs one of each key that varies"
        raise InputError(wrong, "missing", key="base")
    for axis in problem.axes():
        if isinstance(axis.values, Range):
            within = (
                is_number(base[axis.keys[0]]) and axis.values.low <= base[axis.keys[0]] <= axis.values.high
            )
            allowed: Iterable[str] = (f"{axis.values.low:g} to {axis.values.high:g}",)
        else:
            within = {key: base[key] for key in axis.keys} in axis.values
            allowed = (" / ".join(str(part) for part in value.values()) for value in axis.values)
        if not within:
            values = " / ".join(str(base[key]) for key in axis.keys)
            wrong = f"{values} is no value of {', '.join(axis.keys)} ({', '.join(allowed)})"
            raise InputError(wrong, "range", key="base")
