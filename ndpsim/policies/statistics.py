"""The order of a layer's experts, and statistics of them from the router's scores."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ndpsim.policies.views import Floats, Ints, Shorts


def descending(worth: NDArray[Any], among: Ints | None = None) -> Ints:
    """The numbers of experts, those with the largest worth first; of equal ones the first.

    among: only these experts; equal ones stay in order; None: all.
    """
    if among is None:
        return (-worth).argsort(kind="stable")
    return among[(-worth[among]).argsort(kind="stable")]


def score_sums(ids: Shorts, scores: NDArray[np.floating[Any]], experts: int) -> Floats:
    """The sum of each expert's scores over all tokens that chose it, [expert].

    ids, scores: of each token's choices, [token, k].
    """
    return np.bincount(ids.ravel().astype(np.int64), scores.ravel(), minlength=experts).astype(np.float64)


def ranked_above(ids: Shorts, scores: NDArray[np.floating[Any]] | None) -> tuple[Ints, Floats]:
    """The expert of each choice of all tokens, and the share of the token's scores ranked above it.

    ids, scores: of each token's choices, [token, k]; without scores each choice weighs the same.
    """
    tokens, choices = ids.shape
    weights = np.full((tokens, choices), 1 / choices) if scores is None else scores.astype(np.float64)
    order = np.argsort(-weights, axis=1, kind="stable")
    ranked = np.take_along_axis(weights, order, axis=1)
    sums = ranked.sum(axis=1, keepdims=True)
    shares = np.divide(ranked, sums, out=np.full_like(ranked, 1 / choices), where=sums > 0)
    above = np.cumsum(shares, axis=1) - shares
    return np.take_along_axis(ids, order, axis=1).ravel().astype(np.int64), above.ravel()


def least_above(chosen: Ints, above: Floats, experts: int) -> Floats:
    """The least share by expert that `ranked_above` has for its choices; infinite without any."""
    least = np.full(experts, np.inf)
    np.minimum.at(least, chosen, above)
    return least
