"""While a policy answers: whose answer it is, to which question, and what its values may be."""

from __future__ import annotations

import math
import numbers
import operator
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ndpsim.arguments import shown
from ndpsim.errors import InputError
from ndpsim.policies.interface import Parts
from ndpsim.policies.views import BackgroundView, LayerView


class At(NamedTuple):
    """Whose answer it is, to which question."""

    policy: str
    when: str

    def error(self, problem: str) -> InputError:
        return InputError(problem, "policy", key=f"policy {self.policy}: {self.when}")


def moment_of(view: LayerView | BackgroundView) -> str:
    return (
        f"prefill, layer {view.layer}" if view.phase == "prefill" else f"step {view.step}, layer {view.layer}"
    )


@contextmanager
def answering(policy: str, question: str, view: LayerView | BackgroundView | None = None) -> Iterator[None]:
    """While a policy answers: what it raises becomes a line that says where.

    Args:
        policy: its name.
        question: "place", "assign", "background" and so on.
        view: what it is shown, where that has a step and a layer.

    Raises:
        InputError: the policy raised anything; an InputError of its own stays as it is.
    """
    try:
        yield
    except InputError:
        raise
    except (Exception, SystemExit) as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        when = f"{moment_of(view)}: " if view is not None else ""
        problem = f"raises {type(error).__name__}: {' '.join(str(error).split())}"
        text = f"{problem} ({Path(frame.filename).name}, line {frame.lineno})"
        raise InputError(text, "policy", key=f"policy {policy}: {when}{question}") from error


def sequence(value: object, what: str, at: At) -> Sequence[Any]:
    if isinstance(value, list | tuple | range | Parts):
        return value
    if isinstance(value, np.ndarray) and value.ndim == 1:
        listed: list[Any] = value.tolist()
        return listed
    raise at.error(f"{what} is {shown(value)}, not a list")


def whole(value: object, what: str, at: At) -> int:
    if type(value) is int:
        return value
    try:
        if not isinstance(value, bool | np.bool_):
            return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        pass
    raise at.error(f"{what} is {shown(value)}, not a whole number")


def time_from(value: object, what: str, at: At) -> float:
    """A time in ns, or another number that is finite and not below 0."""
    if isinstance(value, numbers.Real) and not isinstance(value, bool):
        number = float(value)
        if 0 <= number < math.inf:
            return number
    raise at.error(f"{what} is {shown(value)}, not a number from 0")
