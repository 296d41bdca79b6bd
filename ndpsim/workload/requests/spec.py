"""Requests that can be generated: arrivals, lengths, and SPECs, ``poisson:rate=4,requests=300``."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ndpsim.base import settings
from ndpsim.base.plugins import plugins_by_name
from ndpsim.base.settings import Setting
from ndpsim.workload.requests import generators as _folder

_MOST_TOKENS = 1 << 24


class ArrivalTimes(NamedTuple):
    """Arrivals of requests; with `closed_loop`, see `Requests`, all are at 0."""

    arrival_ns: NDArray[np.float64]
    closed_loop: int | None = None


COMMON = (
    Setting("requests", 300, "how many requests", 1, _MOST_TOKENS),
    Setting("input_tokens", 1024.0, "mean tokens of a prompt", 1, _MOST_TOKENS),
    Setting("input_sigma", 0.0, "standard deviation of their logarithm; 0: all the same", 0, 5),
    Setting("input_most", _MOST_TOKENS, "longer prompts are cut to it", 1, _MOST_TOKENS),
    Setting("output_tokens", 128.0, "mean tokens that are generated for a request", 1, _MOST_TOKENS),
    Setting("output_sigma", 0.0, "standard deviation of their logarithm; 0: all the same", 0, 5),
    Setting("output_most", _MOST_TOKENS, "longer outputs are cut to it", 1, _MOST_TOKENS),
    Setting("lengths", "", "file of requests from which pairs of lengths are drawn"),
)
#: Settings without effect if lengths are drawn from a file.
LENGTH_KEYS = tuple(setting.name for setting in COMMON if setting.name.startswith(("input_", "output_")))


@dataclass(frozen=True)
class ArrivalGenerator(settings.Generator):
    """A kind of arrivals that can be generated.

    Attributes:
        arrivals: makes arrivals from the settings, random numbers and a number of requests. The first is at
            0.
    """

    arrivals: Callable[[int, Mapping[str, Any], np.random.Generator], ArrivalTimes]
    common = COMMON
    key = "requests"


class RequestSpec(settings.Spec[ArrivalGenerator]):
    """Requests to generate."""


@functools.cache
def arrival_generators() -> dict[str, ArrivalGenerator]:
    """All generators of arrivals by name."""
    return plugins_by_name(_folder, "GENERATOR")


def is_spec(text: str) -> bool:
    """Whether a text begins as a SPEC does."""
    return settings.begins_as_spec(text, arrival_generators())


def parse_spec(text: str | RequestSpec) -> RequestSpec:
    """A SPEC: ``poisson[:KEY=VALUE,...]``, ``gamma[:...]`` or ``closed-loop[:...]``.

    Raises:
        InputError: there is no such generator or key, or a value is invalid.
    """
    if isinstance(text, RequestSpec):
        return text
    generator, rest = settings.split_spec(text, arrival_generators(), "requests")
    return RequestSpec(generator, generator.read(rest))
