"""Sums that do not depend on the number of cores, as those of a library for linear algebra do.

Its threads add up in another order, and for small arrays they wait longer than they compute.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def product_sum(values: NDArray[np.float64], others: NDArray[np.float64]) -> float:
    """The sum of the products of two vectors."""
    return float(np.sum(values * others))
