"""Requests that can be generated: arrivals, lengths, and SPECs, ``poisson:rate=4,requests=300``.

Equal seeds give equal requests.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from os import PathLike
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ndpsim.base import settings
from ndpsim.base.errors import InputError
from ndpsim.base.limits import ensure_fits
from ndpsim.base.options.routing import SEED
from ndpsim.base.plugins import plugins_by_name
from ndpsim.base.settings import Setting, existing_file
from ndpsim.workload.requests import generators as _folder
from ndpsim.workload.requests.importing import import_requests
from ndpsim.workload.requests.requests import Requests

# ---- Random numbers of several distributions, from uniform ones
#
# Only `random` of NumPy's generators is used, since NumPy guarantees no other stream between releases.


Random = np.random.Generator
Floats = NDArray[np.float64]


def exponential(count: int, random: Random) -> Floats:
    """Numbers of mean 1 from the exponential distribution."""
    return -np.log1p(-random.random(count))


def normal(count: int, random: Random) -> Floats:
    """Numbers from the normal distribution of mean 0 and variance 1, by Box and Muller."""
    radius, angle = random.random((2, count))
    numbers: Floats = np.sqrt(-2.0 * np.log1p(-radius)) * np.cos(2.0 * np.pi * angle)
    return numbers


def gamma(shape: float, count: int, random: Random) -> Floats:
    """Numbers of mean 1 from the gamma distribution, by Marsaglia and Tsang (2000).

    For shapes below 1, a number of a shape above 1 is multiplied by a power of a uniform number.
    """
    drawn_shape = shape if shape >= 1.0 else shape + 1.0
    d = drawn_shape - 1.0 / 3.0
    c = 1.0 / np.sqrt(9.0 * d)
    accepted: list[Floats] = []
    while sum(map(len, accepted)) < count:
        x, u = normal(count, random), random.random(count)
        v = (1.0 + c * x) ** 3
        positive = np.where(v > 0.0, v, 1.0)
        taken = (v > 0.0) & (np.log1p(-u) < 0.5 * x * x + d - d * v + d * np.log(positive))
        accepted.append(d * v[taken])
    numbers = np.concatenate([np.zeros(0), *accepted])[:count]
    if shape < 1.0:
        numbers *= (1.0 - random.random(count)) ** (1.0 / shape)
    return numbers / shape


def lognormal(mean: float, sigma: float, count: int, random: Random) -> Floats:
    """Numbers of this mean whose logarithms have the standard deviation `sigma`."""
    numbers: Floats = mean * np.exp(sigma * normal(count, random) - sigma * sigma / 2.0)
    return numbers


# ---- Requests that can be generated: arrivals, lengths, and SPECs, ``poisson:rate=4,requests=300``


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


# Independent sources of random numbers.
_ARRIVALS, _INPUT, _OUTPUT, _FROM_FILE = range(4)
_REQUEST_BYTES = 128  # approximate bytes of arrays, of which not all are kept

Ints = NDArray[np.int64]


def _random(seed: int, use: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence((seed, use))))


def generate_requests(requests: str | RequestSpec = "poisson", seed: int = 1) -> Requests:
    """Generate requests to a serving system.

    >>> import ndpsim
    >>> ndpsim.generate_requests("closed-loop:concurrency=8,requests=100").closed_loop
    8

    Args:
        requests: a SPEC, see `ndpsim.workload.requests`.
        seed: a whole number from 0; the same seed gives the same requests, to the bit.

    Raises:
        InputError: the SPEC is impossible, or its file of lengths cannot be read.
    """
    spec, seed = parse_spec(requests), SEED.checked(seed)
    settings = spec.settings
    count = settings["requests"]
    ensure_fits(_REQUEST_BYTES * count, f"{count} requests", key="requests")
    arrivals = spec.generator.arrivals(count, settings, _random(seed, _ARRIVALS))
    prompts, outputs = _lengths(spec, count, seed)
    source = {"generated": str(spec), "seed": seed}
    return Requests(arrivals.arrival_ns, prompts, outputs, closed_loop=arrivals.closed_loop, source=source)


def _lengths(spec: RequestSpec, count: int, seed: int) -> tuple[Ints, Ints]:
    settings = spec.settings
    if not settings["lengths"]:
        return (
            _drawn("input", settings, count, _random(seed, _INPUT)),
            _drawn("output", settings, count, _random(seed, _OUTPUT)),
        )
    for name in LENGTH_KEYS:
        if name in spec.stated:
            raise InputError("cannot be given with lengths", "conflict", key=spec.generator.place(name))
    recorded = import_requests(settings["lengths"])
    chosen = (_random(seed, _FROM_FILE).random(count) * len(recorded)).astype(np.int64)
    return recorded.prompt_tokens[chosen], recorded.output_tokens[chosen]


def _drawn(which: str, settings: Mapping[str, Any], count: int, random: np.random.Generator) -> Ints:
    mean, sigma, most = (settings[f"{which}_{name}"] for name in ("tokens", "sigma", "most"))
    numbers = lognormal(mean, sigma, count, random) if sigma else np.full(count, mean)
    return np.clip(np.rint(numbers), 1, most).astype(np.int64)


def load_requests(requests: str | PathLike[str] | RequestSpec | Requests, seed: int = 1) -> Requests:
    """The given requests, or requests that are read from a file of any known format or generated.

    >>> len(ndpsim.load_requests("poisson:rate=2,requests=3"))
    3

    Args:
        requests: requests, a file, or a SPEC. A SPEC comes first; write ``./poisson`` for a file of that
            name.
        seed: the seed of generated requests.

    Raises:
        InputError: the file or generator does not exist; see `import_requests` and `generate_requests`.
    """
    if isinstance(requests, Requests):
        return requests
    if isinstance(requests, RequestSpec) or (isinstance(requests, str) and is_spec(requests)):
        return generate_requests(requests, seed)
    return import_requests(existing_file(requests, arrival_generators(), "requests"))
