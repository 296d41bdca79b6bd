"""The GPU's model against measured layers whose experts get tokens by a power law, for gpu.py.

Nothing is fitted to them: values are those of layers whose experts get the same number of tokens.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gpu_fits import Floats, rows
from gpu_layers import CARDS, by_range, call, expert_us

#: Exponent of the density of experts' shares, and draws for each call: as many as the benchmark has.
_EXPONENT, _DRAWS, _SEED = 1.2, 5, 1


def drawn_loads(tokens: int, experts: int, top_k: int, rng: np.random.Generator) -> Floats:
    """Tokens of each expert: shares with a density of x^-1.2, rounded to whole tokens.

    The least get what rounding lacks, one by one, and the most lose what is too much.
    """
    low, high = (1.0, 0.8 * tokens) if tokens * top_k > experts else (0.01, 2.0)
    power = 1 - _EXPONENT
    shares = (low**power + (high**power - low**power) * rng.random(experts)) ** (1 / power)
    loads = np.minimum(np.round(shares / shares.sum() * tokens * top_k), tokens)
    while (lack := tokens * top_k - loads.sum()) != 0:
        loads[loads.argmin() if lack > 0 else loads.argmax()] += np.sign(lack)
    return np.asarray(loads)


def _error(
    card: str, row: dict[str, str], tokens: int, values: Sequence[float], power: float, tile: int
) -> tuple[float, float] | None:
    """Tokens of an expert in the mean, and the error of a call; None: the L2 cache may have its weights."""
    about = CARDS[card]
    us, load, active, compute_us, memory_us, activation_us, active_mb = call(
        about, {**row, "numbers": "bfloat16"}, tokens
    )
    times, megabytes = [], []
    rng = np.random.default_rng(_SEED)
    for _ in range(_DRAWS):
        loads = drawn_loads(tokens, int(row["experts"]), int(row["top_k"]), rng)
        busy = loads[loads > 0]
        experts = expert_us(busy, np.array(compute_us), np.array(memory_us), values, power, tile)
        times.append(values[2] + experts.sum() + activation_us / values[1])
        megabytes.append(len(busy) * active_mb / active)
    return (load, np.mean(times) / us - 1) if min(megabytes) > about.l2_mb else None


def lines(family: str, values: Sequence[float], power: float, tile: int) -> list[str]:
    """A line of the page's table for each card of a family."""
    found = []
    for card, about in CARDS.items():
        table = [row for row in rows("moe_layers_uneven") if row["card"] == card]
        errors = [
            error
            for row in table
            for tokens in map(int, filter(str.isdigit, row))
            if about.family == family and (error := _error(card, row, tokens, values, power, tile))
        ]
        if errors:
            load, off = np.array(errors).T
            found.append(f"| {about.name} | {len(off)} | {by_range(load, off)} |")
    return found
