"""The GPU's model against measured attention (gpu_measured/attention.csv): fits, for gpu.py.

A benchmark repeats a call: keys and values that fit into the L2 cache are not read from memory, so such calls
of decode are left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from gpu_fits import Floats, best, least_squares, rounded, rows
from gpu_layers import CARDS, of_family

KEYS = ("attention_efficiency", "attention_memory_efficiency", "attention_overhead_us")
#: Reading and computing add.
POWER = 1.0
#: Operations of 16 bits that a multiprocessor makes in a clock (peak over multiprocessors and clock, data
#: sheets), over its 16 exponentials (CUDA C++ Programming Guide, arithmetic instructions). H100: 989 TFLOPS
#: and 3.9 for exponentials (arXiv 2407.08608).
SOFTMAX = {"ampere": 128, "hopper": 256, "ada": 64, "blackwell": 64, "b200": 512, "h20": 64}
#: Families with a kernel for queries with latent vectors have no efficiency of their own.
LATENT = ("ada", "blackwell")
PREFILL, DECODE = (64, 256, 1024, 4096, 16384), (256, 1024, 4096, 16384)
START = (1.0, -0.5, 2.3)


class Attention:
    """Calls of measured attention of some cards.

    Args:
        family: of the cards.
        memory: `gpu.memory_efficiency`.
        latent: calls with latent vectors in place of those with keys and values.
    """

    def __init__(self, family: str, memory: float, latent: bool = False) -> None:
        calls = [
            (row, int(tokens))
            for row in rows("attention")
            if row["card"] in of_family(family) and (row["step"] == "latent") == latent
            for tokens in filter(str.isdigit, row)
            if row[tokens]
        ]
        columns = dict(zip(_FIELDS, np.array([_call(*one) for one in calls]).T, strict=True))
        kept = (columns["prefill"] > 0) | (columns["cache_mb"] > columns.pop("l2_mb"))
        self.columns: dict[str, Floats] = {name: column[kept] for name, column in columns.items()}
        self.models = np.array([" ".join(row[key] for key in _SHAPE) for row, _ in calls])[kept]
        self.cards = np.array([row["card"] for row, _ in calls])[kept]
        self.memory, self.softmax = memory, SOFTMAX[family]
        self.us = self.columns["us"]

    def part(self, chosen: Floats) -> Attention:
        """Some of the calls."""
        part = Attention.__new__(Attention)
        part.columns = {name: column[chosen] for name, column in self.columns.items()}
        part.models, part.cards, part.us = self.models[chosen], self.cards[chosen], self.us[chosen]
        part.memory, part.softmax = self.memory, self.softmax
        return part

    def predicted_us(self, values: Sequence[float]) -> Floats:
        """The times of the calls with values of `KEYS`."""
        efficiency, activations, overhead_us = values
        of = self.columns
        compute = (of["products_us"] + self.softmax * of["exponential_us"]) / efficiency
        memory = of["activation_us"] / activations + of["cache_us"] / self.memory
        return np.asarray(compute + memory + overhead_us)

    def errors(self, values: Sequence[float]) -> Floats:
        """How far each call is from what was measured, as a share of it."""
        return self.predicted_us(values) / self.us - 1

    def fit(self) -> tuple[float, ...]:
        """Values of `KEYS`, by least squares of relative errors; prefill and decode have equal weight.

        An error of more than a tenth counts less.
        """
        prefill = self.columns["prefill"] > 0
        weights = np.where(prefill, prefill.mean(), (~prefill).mean()) ** -0.5

        def errors(place: Floats) -> Floats:
            off = np.log1p(self.errors(_values(place)))
            off = np.sign(off) * np.sqrt(2 * (np.sqrt(1 + (off / 0.1) ** 2) - 1)) * 0.1
            return np.append(weights * off, 1e-3 * (place - np.array(START)))

        return _values(least_squares(errors, START))

    def left_out(self) -> Floats:
        """Errors of each shape's calls with values that were fitted to the other shapes."""
        errors = np.empty(len(self.us))
        for model in np.unique(self.models):
            chosen = self.models == model
            errors[chosen] = self.part(chosen).errors(self.part(~chosen).fit())
        return errors


_SHAPE = ("heads", "key_heads", "head_size")
_FIELDS = (
    "us", "prefill", "tokens", "products_us", "exponential_us", "activation_us", "cache_us", "cache_mb",
    "l2_mb",
)  # fmt: skip


def _values(place: Floats) -> tuple[float, ...]:
    """The values of `KEYS` of a place in the search: shares below 1, a time above 0."""
    return tuple((1 / (1 + np.exp(-place[:2]))).tolist() + np.exp(place[2:]).tolist())


def _call(row: Mapping[str, str], tokens: int) -> tuple[float, ...]:
    """`_FIELDS` of a call, times at the card's peaks."""
    card = CARDS[row["card"]]
    heads, key_heads, size, sequences = (int(row[key]) for key in (*_SHAPE, "sequences"))
    prefill = row["step"] == "prefill"
    new, pairs = (tokens, tokens * (tokens + 1) // 2) if prefill else (1, tokens)
    pairs *= sequences * heads
    around, cached = 2 * size, 2 * key_heads * size
    if row["step"] == "latent":
        around, cached = size + LATENT_RANK, size
    activations, cache = 2 * sequences * new * heads * around, 2 * sequences * tokens * cached
    per_us = card.gbps * 1e3
    return (
        float(row[str(tokens)]), float(prefill), tokens, 2 * pairs * around / (card.tflops * 1e6),
        pairs / (card.tflops * 1e6), activations / per_us, cache / per_us, cache / 1e6, card.l2_mb,
    )  # fmt: skip


LATENT_RANK = 512


def latent_efficiency(family: str, values: tuple[float, ...], memory: float) -> float:
    """The share of the peak that suits calls with latent vectors, with all else of keys and values."""
    calls = Attention(family, memory, latent=True)
    return rounded(best(lambda share: calls.errors((share, *values[1:])), 0.01, 1.0))


def cells(tokens: Floats, errors: Floats, lengths: Sequence[int]) -> str:
    """Cells of a line: the median and the 90th percentile of errors by tokens."""
    found = []
    for length in lengths:
        each = np.abs(errors[tokens == length])
        found.append(f"{np.median(each):.0%}, {np.quantile(each, 0.9):.0%}" if len(each) else "")
    return " | ".join(found)
