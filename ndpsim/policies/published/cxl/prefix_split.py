"""PrefixSplit: how many bits the weights of each expert get, for a given average.

Fan et al., "Context-Aware Mixture-of-Experts Inference on CXL-Enabled GPU-NDP Systems", section 4.2. Experts
stand in order of their importance, and none gets more bits than one before it. From 1 bit each, a budget of R
steps of a bit is spent: 3 n4 + 2 n3 + n2 = R.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ndpsim.errors import InputError

#: What the weights of an expert may be quantised to; the last axis of a table of losses.
BITS = (1, 2, 3, 4)

Rounding = Literal["floor", "nearest"]

_STEPS = BITS[-1] - BITS[0]  # of a bit, that an expert can get at most
_ROUNDING = 1e-9  # below a whole number by no more than this share of a step, a budget is that number


def bit_budget(experts: int, mean_bits: float, rounding: Rounding = "floor") -> int:
    """R: steps of a bit above 1 bit that `experts` experts get together, at most 3 each.

    The paper's R = experts x (mean_bits - 1) may be no whole number, and it does not say what then: "floor"
    never spends more than the average allows, "nearest" spends the nearest whole number, of two the larger.
    """
    steps = experts * (mean_bits - BITS[0])
    whole = math.floor(steps + (0.5 if rounding == "nearest" else 0.0) + _ROUNDING)
    return min(max(whole, 0), _STEPS * experts)


def prefix_split(losses: NDArray[Any], mean_bits: float, rounding: Rounding = "floor") -> tuple[int, ...]:
    """Bits of each expert, with the largest gain of all that keep to the order and spend the whole budget.

    All (n4, n3) are tried, n2 and n1 follow from the budget; those with n1 < 0, which the ranges of
    n4 and n3 do not exclude, are no split. A budget from 0 to 3 steps an expert always has one. Of equal
    gains the split with fewest experts of 4 bits, then of 3 bits, is taken.

    Args:
        losses: of each expert, the most important first, with 1, 2, 3 and 4 bits: [expert, 4]. Any finite
            numbers; fewer bits need not lose more.
        mean_bits: the average that is wanted; below 1 it is 1, above 4 it is 4.
        rounding: of a budget that is no whole number, see `bit_budget`.

    Raises:
        InputError: `losses` has another shape or is not finite.
    """
    losses = np.asarray(losses)
    if losses.ndim != 2 or losses.shape[1] != len(BITS) or not np.isfinite(losses.astype(float)).all():
        raise InputError(
            f"are not finite losses of experts with {len(BITS)} numbers of bits", "form", key="losses"
        )
    count = len(losses)
    budget = bit_budget(count, mean_bits, rounding)
    zero = np.zeros((1, _STEPS), losses.dtype)
    gains = np.concatenate([zero, np.cumsum(losses[:, :1] - losses[:, 1:], axis=0)])
    c2, c3, c4 = gains.T.tolist()
    best: tuple[Any, tuple[int, int, int]] | None = None
    for n4 in range(min(count, budget // 3) + 1):
        for n3 in range(min(count - n4, (budget - 3 * n4) // 2) + 1):
            n2 = budget - 3 * n4 - 2 * n3
            if n4 + n3 + n2 > count:
                continue
            upper = n4 + n3
            gain = c4[n4] + (c3[upper] - c3[n4]) + (c2[upper + n2] - c2[upper])
            if best is None or gain > best[0]:
                best = gain, (n4, n3, n2)
    assert best is not None
    n4, n3, n2 = best[1]
    return (4,) * n4 + (3,) * n3 + (2,) * n2 + (1,) * (count - n4 - n3 - n2)
