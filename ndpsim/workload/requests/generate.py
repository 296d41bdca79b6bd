"""Generates requests from a SPEC; equal seeds give equal requests."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ndpsim.base.errors import InputError
from ndpsim.base.limits import ensure_fits
from ndpsim.base.options.routing import SEED
from ndpsim.base.settings import existing_file
from ndpsim.workload.requests.importing import import_requests
from ndpsim.workload.requests.requests import Requests
from ndpsim.workload.requests.spec import (
    LENGTH_KEYS,
    RequestSpec,
    arrival_generators,
    is_spec,
    lognormal,
    parse_spec,
)

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
