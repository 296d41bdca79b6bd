"""PrefixSplit: the bits of each expert's weights, for a given average.

Fan et al., "Context-Aware Mixture-of-Experts Inference on CXL-Enabled GPU-NDP Systems", section 4.2. Experts
are in order of importance, and none gets more bits than an expert before it. Each has 1 bit, and a budget of
R further bits is distributed: 3 n4 + 2 n3 + n2 = R.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ndpsim.base.errors import InputError

#: Possible bits of an expert's weights; the last axis of a table of losses.
BITS = (1, 2, 3, 4)

Rounding = Literal["floor", "nearest"]

_STEPS = BITS[-1] - BITS[0]  # maximum number of further bits of an expert
_ROUNDING = 1e-9  # tolerance below a whole number within which a budget is that number


def bit_budget(experts: int, mean_bits: float, rounding: Rounding = "floor") -> int:
    """R: the bits above 1 bit that `experts` experts get together, at most 3 each.

    The paper's R = experts x (mean_bits - 1) may not be a whole number; the paper has no rule for this case.
    "floor" never exceeds the average. "nearest" is the nearest whole number, the larger of two.
    """
    steps = experts * (mean_bits - BITS[0])
    whole = math.floor(steps + (0.5 if rounding == "nearest" else 0.0) + _ROUNDING)
    return min(max(whole, 0), _STEPS * experts)


def prefix_split(losses: NDArray[Any], mean_bits: float, rounding: Rounding = "floor") -> tuple[int, ...]:
    """Bits of each expert: the split with the largest gain that keeps the order and uses the whole budget.

    All (n4, n3) are tried; n2 and n1 follow from the budget. Combinations with n1 < 0 are excluded. A budget
    of 0 to 3 bits for each expert always has a split. Ties go to the split with fewest experts of 4 bits,
    then of 3 bits.

    Args:
        losses: losses of each expert, the most important first, with 1, 2, 3 and 4 bits: [expert, 4]. Any
            finite numbers; fewer bits may have a smaller loss.
        mean_bits: the requested average, limited to 1 to 4.
        rounding: rounding of the budget, see `bit_budget`.

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
