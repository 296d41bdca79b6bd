"""Pseudorandom numbers that depend only on their arguments."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.uint64]


def mixed(numbers: Numbers) -> Numbers:
    """Pseudorandom numbers, equal for equal arguments (Steele et al., SplitMix64, OOPSLA 2014)."""
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> np.uint64(31))
