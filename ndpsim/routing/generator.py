"""What a generator of routing is: a name, parameters, and the popularity that it asks for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ndpsim.errors import InputError, one_of

#: Shares of a layer's selections by expert, float64 [layer, expert]; those of a layer add up to 1.
Shares = NDArray[np.float64]

#: A source of random numbers for each layer. Only its `random` is used: NumPy promises no more from release
#: to release.
Randoms = Sequence[np.random.Generator]


@dataclass(frozen=True)
class Parameter:
    """A number, or a name, that a generator can be given as ``key=value``.

    Attributes:
        default: its value when it is not given; a text for parameters that are names.
        least, most: of a number.
        meaning: in words.
    """

    name: str
    default: float | str
    meaning: str
    least: float = 0.0
    most: float = 1.0

    def read(self, text: str) -> float | str:
        """The value that `text` gives.

        Raises:
            InputError: it is none.
        """
        if isinstance(self.default, str):
            return text
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        if not self.least <= value <= self.most:
            problem = f"'{text[:40]}' is not a number from {self.least:g} to {self.most:g} ({self.meaning})"
            raise InputError(problem, key=self.name)
        return value


@dataclass(frozen=True)
class Shape:
    """Of a model, what routing needs: `layers` are its numbers of those with experts."""

    experts: int
    experts_per_token: int
    layers: tuple[int, ...]


@dataclass(frozen=True)
class Generator:
    """A kind of routing that can be generated.

    Attributes:
        name: as a SPEC begins.
        meaning: in a line.
        parameters: its own, beside those in `COMMON`.
        names: of what it is generated from; empty where it needs none.
        shares: from the shape, the name, the parameters, which of them were given, and random numbers of each
            layer.
        shape: that belongs to a name, where no model is given; None: a model is needed.
    """

    name: str
    meaning: str
    parameters: tuple[Parameter, ...]
    shares: Callable[[Shape, str, Mapping[str, Any], frozenset[str], Randoms], Shares]
    names: Callable[[], list[str]] = list
    shape: Callable[[str], Shape | None] = lambda name: None

    def all_parameters(self) -> dict[str, Parameter]:
        """By name, in the order in which they are listed."""
        return {one.name: one for one in (*self.parameters, *COMMON)}

    def parameter(self, name: str) -> Parameter:
        """The parameter of this name.

        Raises:
            InputError: there is none.
        """
        known = self.all_parameters()
        if name not in known:
            raise InputError(one_of(name, known, f"key of {self.name}"), key="routing")
        return known[name]


COMMON = (
    Parameter(
        "token_stickiness", 0.0, "chance that a token repeats the choices of the token before it", most=0.99
    ),
    Parameter(
        "step_stickiness", 0.0, "chance that a sequence repeats the choices of the step before", most=0.99
    ),
    Parameter("step_drift", 0.0, "share of experts that exchange their popularity from one step to the next"),
    # Fitted to the ablation of trimoe; the paper does not say how old its offline trace is.
    Parameter("drift", 0.08, "share of experts with another popularity in the offline trace"),
    Parameter("prefill_cosine", 1.0, "cosine of the popularity in prefill and in decode"),
)
