"""Random numbers of several distributions, from uniform ones.

Only `random` of NumPy's generators is used, since NumPy guarantees no other stream between releases.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

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
