"""Values that no argument takes, made anew for each attempt."""

from __future__ import annotations

import sys
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np


class Failing:
    """An object of which nothing can be had without an error of its own."""

    def __repr__(self) -> str:
        raise RuntimeError("no text")

    def __iter__(self) -> Any:
        raise RuntimeError("no elements")

    def __array__(self, *arguments: Any, **named: Any) -> Any:
        raise RuntimeError("no array")

    def __fspath__(self) -> str:
        raise RuntimeError("no path")

    def __len__(self) -> int:
        raise RuntimeError("no length")

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("not comparable")

    __hash__ = None  # type: ignore[assignment]


class FailingInside:
    """An object that answers no attribute that it lacks and no conversion without an error of its own."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)

    def __iter__(self) -> Any:
        return iter((self, 1))

    def __index__(self) -> int:
        raise RuntimeError("no number")

    def __float__(self) -> float:
        raise RuntimeError("no number")


class BytesPath:
    def __fspath__(self) -> bytes:
        return b"\xff"


def _itself() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


LONG = 100_000  # characters

ODD: dict[str, Callable[[], Any]] = {
    "a generator": lambda: (object() for _ in [0]),
    "an object": object,
    "a failing object": Failing,
    "an object of failing attributes": FailingInside,
    "a path of bytes": BytesPath,
    "a function of nothing": lambda: lambda: None,
    "a module": lambda: sys,
    "a number of no real value": lambda: 1j,
    "a decimal": lambda: Decimal("NaN"),
    "a date": lambda: np.datetime64("2001-01-01"),
    "a view": lambda: memoryview(b"ab"),
    "half a surrogate pair": lambda: "\ud800",
    "a NUL": lambda: "a\0b",
    "a long text": lambda: "x" * LONG,
    "a long text of wide characters": lambda: "\U0001f600" * LONG,
    "many words": lambda: "a b " * LONG,
    "many digits": lambda: "9" * LONG,
    "a list of itself": _itself,
    "long texts": lambda: ["y" * LONG] * 3,
    "deep lists": lambda: [[[[]]]],
    "an array of objects": lambda: np.array([object()]),
    "records": lambda: np.zeros(2, [("a", int)]),
    "a table": lambda: np.zeros((2, 2)),
    "a set": lambda: {1},
    "a mapping of objects": lambda: {1: object()},
    "a mapping of sets": lambda: {"x": {1}},
    "a long key": lambda: {"k" * LONG: 1},
}
