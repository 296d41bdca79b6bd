"""What the router's scores of a layer say about its experts."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["score_sums"]


def score_sums(
    ids: NDArray[np.int16], scores: NDArray[np.floating[Any]], experts: int
) -> NDArray[np.float64]:
    """The sum of each expert's scores over all tokens that chose it, [expert].

    ids, scores: of each token's choices, [token, k].
    """
    return np.bincount(ids.ravel().astype(np.int64), scores.ravel(), minlength=experts).astype(np.float64)
