"""Popularity of experts: limited to possible shares, changed by exchange, or with a given cosine."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from ndpsim.base.errors import InputError
from ndpsim.base.sums import product_sum

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

UNIT_BITS = 32
#: Chance 1 to be chosen by a token; chances are whole numbers of 1 / UNIT, so that sums are exact.
UNIT = 1 << UNIT_BITS


def class_counts(experts: int, first: float = 0.05, second: float = 0.25) -> tuple[int, int, int]:
    """Numbers of experts in three classes, from shares: at least one in the first, the rest in the third."""
    hot = min(max(1, round(first * experts)), experts)
    warm = min(round(second * experts), experts - hot)
    return hot, warm, experts - hot - warm


def shuffled(count: int, random: np.random.Generator) -> Ints:
    """The numbers below `count` in random order."""
    return np.argsort(random.random(count), kind="stable")


def filled(shares: Floats, experts_per_token: int) -> Floats:
    """Shares of a layer, limited to 1/k: any excess is spread over the others in proportion.

    Raises:
        InputError: fewer than k experts have a share above 0.
    """
    shares = shares / shares.sum()
    limit = 1 / experts_per_token
    full = np.zeros(len(shares), bool)
    while (over := (shares > limit * (1 + 1e-12)) & ~full).any():
        full |= over
        others = shares[~full].sum()
        if others <= 0:
            problem = (
                f"{np.count_nonzero(shares)} experts have a share, and a token chooses {experts_per_token}"
            )
            raise InputError(problem, "range", key="routing")
        shares = np.where(full, limit, shares * ((1 - limit * full.sum()) / others))
    return shares


def in_units(shares: Floats, experts_per_token: int) -> Ints:
    """The chance of each expert to be among a token's k: whole numbers that add up to k `UNIT`s."""
    wanted = np.minimum(shares * experts_per_token, 1.0) * UNIT
    chances = wanted.astype(np.int64)
    missing = experts_per_token * UNIT - int(chances.sum())
    for expert in np.argsort(chances - wanted, kind="stable"):  # the most rounded down first
        if missing == 0:
            break
        added = int(np.clip(missing, -chances[expert], UNIT - chances[expert])) if wanted[expert] else 0
        chances[expert] += added
        missing -= added
    return chances


def exchanged(shares: Floats, share_of_experts: float, random: np.random.Generator) -> Floats:
    """Shares of a layer after random pairs of experts, on average this share of all, exchange theirs."""
    pairs = int(share_of_experts * len(shares) / 2 + random.random())
    order = shuffled(len(shares), random)[: 2 * min(pairs, len(shares) // 2)]
    changed = shares.copy()
    changed[order] = shares[order.reshape(-1, 2)[:, ::-1].ravel()]
    return changed


def cosine(first: Floats, second: Floats) -> float:
    """The cosine of the angle between two vectors."""
    product = product_sum(first, first) * product_sum(second, second)
    return product_sum(first, second) / math.sqrt(product)


def like(shares: Floats, wanted: float, random: np.random.Generator) -> Floats:
    """Shares of a layer whose cosine with `shares` is `wanted`: pairs exchange shares, the last pair in part.

    The most popular expert pairs with the least popular, and so on; which pairs exchange is random.

    Raises:
        InputError: even with all pairs exchanged the cosine is larger.
    """
    if wanted >= 1:
        return shares
    order = np.argsort(-shares, kind="stable")
    pairs = np.stack([order, order[::-1]], axis=1)[: len(shares) // 2]
    changed = shares.copy()
    for popular, rare in pairs[shuffled(len(pairs), random)]:
        if cosine(shares, changed) <= wanted:
            return changed
        before = changed.copy()
        changed[[popular, rare]] = shares[[rare, popular]]
        if cosine(shares, changed) < wanted:
            return _between(shares, before, changed, wanted)
    least = cosine(shares, changed)
    if least > wanted + 1e-9:
        problem = f"{wanted:g} is below {least:.3f}, the least that a popularity of these shares can have"
        raise InputError(problem, "range", key="prefill_cosine")
    return changed


def _between(shares: Floats, above: Floats, below: Floats, wanted: float) -> Floats:
    """The point between `above` and `below` whose cosine is `wanted`, by bisection."""
    low, high = 0.0, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        if cosine(shares, above + middle * (below - above)) > wanted:
            low = middle
        else:
            high = middle
    return above + low * (below - above)
