"""Generators, their settings, and SPECs, ``skewed:hot_share=0.3,drift=0.2``."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ndpsim.base import settings
from ndpsim.base.errors import InputError
from ndpsim.base.plugins import plugins_by_name
from ndpsim.base.settings import Setting
from ndpsim.workload.models import MoeShape
from ndpsim.workload.routing import generators as _folder

#: Shares of selections by expert, float64 [layer, expert], which add up to 1 in each layer.
Shares = NDArray[np.float64]

#: A source of random numbers for each layer. Only its `random` is used: NumPy promises no more from release
#: to release.
Randoms = Sequence[np.random.Generator]


@dataclass(frozen=True)
class RoutingShape:
    """The properties of a model that routing needs; `layers`: numbers of its layers with experts."""

    experts: int
    experts_per_token: int
    layers: tuple[int, ...]


COMMON = (
    Setting(
        "token_stickiness", 0.0, "chance that a token repeats the choices of the token before it", most=0.99
    ),
    Setting(
        "step_stickiness", 0.0, "chance that a sequence repeats the choices of the step before", most=0.99
    ),
    Setting("step_drift", 0.0, "share of experts that exchange their popularity from one step to the next"),
    # Fitted to the ablation of trimoe; the paper does not say how old its offline trace is.
    Setting("drift", 0.08, "share of experts with another popularity in the offline trace"),
    Setting("prefill_cosine", 1.0, "cosine of the popularity in prefill and in decode"),
)


@dataclass(frozen=True)
class RoutingGenerator(settings.Generator):
    """A kind of routing that can be generated.

    Attributes:
        names: names of the data to generate from; empty if it needs none.
        shares: makes shares from the shape, the name, the settings, the names of the stated ones, and random
            numbers for each layer.
        shape: the shape for a name, if no model is given; None: a model is needed.
    """

    shares: Callable[[RoutingShape, str, Mapping[str, Any], frozenset[str], Randoms], Shares]
    names: Callable[[], list[str]] = list
    shape: Callable[[str], RoutingShape | None] = lambda name: None
    common = COMMON
    key = "routing"


class RoutingSpec(settings.Spec[RoutingGenerator]):
    """A routing to generate."""


@functools.cache
def generators() -> dict[str, RoutingGenerator]:
    """All generators by name."""
    return plugins_by_name(_folder, "GENERATOR")


def routing_names() -> list[str]:
    """Beginnings of SPECs: each generator with each of its names."""
    return [
        f"{kind}:{name}" if name else kind
        for kind, generator in sorted(generators().items())
        for name in generator.names() or [""]
    ]


def parse_spec(text: str | RoutingSpec) -> RoutingSpec:
    """A SPEC: ``skewed[:KEY=VALUE,...]``, ``popularity:NAME[:KEY=VALUE,...]`` or
    ``ranks:NAME[:KEY=VALUE,...]``.

    NAME of `popularity` is the name of bundled counts, or a JSON file of counts.

    Raises:
        InputError: there is no such generator, name or key, or a value is invalid.
    """
    if isinstance(text, RoutingSpec):
        return text
    generator, rest = settings.split_spec(text, generators(), "routing")
    name = ""
    if generator.names():
        before, colon, last = rest.rpartition(":")
        name, rest = (before, last) if colon and "=" in last else (rest, "")
        if not name:
            problem = (
                f"'{text}' names nothing to start from; {generator.name}:{generator.names()[0]}, for instance"
            )
            raise InputError(problem, "missing", key="routing")
    return RoutingSpec(generator, generator.read(rest), name)


def default_routing(model: MoeShape) -> str:
    """The SPEC for a model: its bundled counts, else its published load curve by rank, else ``skewed``."""
    for kind in ("popularity", "ranks"):
        if model.name.lower() in generators()[kind].names():
            return f"{kind}:{model.name.lower()}"
    return "skewed"
