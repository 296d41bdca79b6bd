"""While a policy answers: whose answer it is, to which question, and what its values may be."""

from __future__ import annotations

import math
import numbers
import operator
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np

from ndpsim.base.errors import InputError, shown
from ndpsim.policies.interface import Parts
from ndpsim.policies.views import BackgroundView, LayerView


class Call(NamedTuple):
    """Whose answer it is, to which question."""

    policy: str
    when: str

    def error(self, problem: str) -> InputError:
        return InputError(problem, "policy", key=f"policy {self.policy}: {self.when}")


def moment_of(view: LayerView | BackgroundView) -> str:
    return (
        f"prefill, layer {view.layer}" if view.phase == "prefill" else f"step {view.step}, layer {view.layer}"
    )


class Answering:
    """The time in which a policy answers: what it raises becomes a line that says where.

    An InputError of its own stays as it is.

    Args:
        policy: its name.
        question: "place", "assign", "background" and so on.
        view: what it is shown, where that has a step and a layer.

    Attributes:
        took_s: how long it took.

    Raises:
        InputError: the policy raised anything.
    """

    def __init__(self, policy: str, question: str, view: LayerView | BackgroundView | None = None) -> None:
        self._policy, self._question, self._view = policy, question, view
        self.took_s = 0.0

    def __enter__(self) -> Self:
        self._began = time.perf_counter()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.took_s = time.perf_counter() - self._began
        if not isinstance(error, Exception | SystemExit) or isinstance(error, InputError):
            return
        frame = traceback.extract_tb(error.__traceback__)[-1]
        when = f"{moment_of(self._view)}: " if self._view is not None else ""
        problem = f"raises {type(error).__name__}: {' '.join(str(error).split())}"
        text = f"{problem} ({Path(frame.filename).name}, line {frame.lineno})"
        raise InputError(text, "policy", key=f"policy {self._policy}: {when}{self._question}") from error


def sequence(value: object, what: str, call: Call) -> Sequence[Any]:
    if isinstance(value, list | tuple | range | Parts):
        return value
    if isinstance(value, np.ndarray) and value.ndim == 1:
        listed: list[Any] = value.tolist()
        return listed
    raise call.error(f"{what} is {shown(value)}, not a list")


def whole(value: object, what: str, call: Call) -> int:
    if type(value) is int:
        return value
    try:
        if not isinstance(value, bool | np.bool_):
            return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        pass
    raise call.error(f"{what} is {shown(value)}, not a whole number")


def time_from(value: object, what: str, call: Call) -> float:
    """A time in ns, or another number that is finite and not below 0."""
    if type(value) is float or (isinstance(value, numbers.Real) and not isinstance(value, bool)):
        number = float(value)
        if 0 <= number < math.inf:
            return number
    raise call.error(f"{what} is {shown(value)}, not a number from 0")
