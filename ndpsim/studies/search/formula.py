"""Metrics of users: arithmetic over keys and metrics, ``dimm.count * (40 * dimm.ranks + 60)``."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ndpsim.base.errors import InputError, shown
from ndpsim.report.metrics import is_number

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
