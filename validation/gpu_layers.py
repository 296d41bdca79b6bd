"""The GPU's model against measured mixture-of-experts layers (gpu_measured/moe_layers.csv): fits, for gpu.py.

All experts of a layer are one call, and tokens choose them evenly. A benchmark repeats the call: weights that
fit into the L2 cache are not read from memory, so such calls are left out.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from gpu_fits import POWERS, START, Floats, best, fused_values, least_squares, rounded, rows, together
from ndpsim.inference.processors.gpu import activation_bytes

#: The keys that are fitted, in the order of `gpu_fits.FUSED`.
KEYS = ("fused_efficiency", "fused_memory_efficiency", "call_overhead_us", "slice_us")
#: Upper ends of ranges of tokens an expert.
RANGES = (1, 4, 8, 16, 32, 64, 128, 512, np.inf)
#: Bytes of a weight, and its products in the time of one of 16 bits. Scales: 32 bits for 128 x 128,
#: 8 bits for 16 weights of nvfp4.
NUMBERS = {
    "bfloat16": (2.0, 1), "fp8": (1.0, 2), "fp8_block": (1 + 4 / 128**2, 2), "nvfp4": (0.5 + 1 / 16, 4)
}  # fmt: skip
#: Experts of these models have two matrices: no gate.
UNGATED = {(2688, 1856), (2048, 5120), (1024, 2688)}


class Card(NamedTuple):
    """A measured card: its family, dense peak in 16 bits, memory and L2 cache, by its maker's data sheet."""

    name: str
    family: str
    tflops: float
    gbps: float
    l2_mb: float


CARDS = {
    "a100_sxm": Card("A100 SXM 80 GB", "ampere", 312, 2039, 40),
    "h100_sxm": Card("H100 SXM", "hopper", 989.4, 3350, 50),
    "h200_sxm": Card("H200", "hopper", 989.4, 4800, 50),
    "l40s": Card("L40S", "ada", 362, 864, 96),
    "rtx_pro_6000_server": Card("RTX PRO 6000 Blackwell Server", "blackwell", 480, 1597, 128),
    "b200_sxm": Card("B200", "b200", 2250, 8000, 126),
    "gb200": Card("GB200", "b200", 2500, 8000, 126),
}
#: Families whose values are fitted to layers, with the program that they were measured with.
FAMILIES = ("hopper", "ada", "blackwell", "b200")
PROGRAM = "vllm"


def expert_us(
    load: Floats,
    compute_us: Floats,
    memory_us: Floats,
    values: Sequence[float],
    power: float | None,
    tile: int,
) -> Floats:
    """The time of experts in a call, by their tokens, with values of `KEYS`."""
    fused, memory, _, slice_us = values
    tokens = -(-load // tile) * tile
    return np.asarray(together(tokens * compute_us / fused, memory_us / memory, power)) + slice_us


class Layers:
    """Calls of measured layers.

    Args:
        cards, program, numbers: which.
    """

    def __init__(self, cards: Sequence[str], program: str, numbers: Sequence[str]) -> None:
        calls = [
            (card, row, tokens)
            for row in rows("moe_layers")
            if (card := row["card"]) in cards and row["program"] == program and row["numbers"] in numbers
            for tokens in map(int, filter(str.isdigit, row))
        ]  # fmt: skip
        fields = [call(CARDS[card], row, tokens) for card, row, tokens in calls]
        columns = dict(zip(_FIELDS, np.array(fields).T, strict=True))
        kept = columns.pop("active_mb") > np.array([CARDS[card].l2_mb for card, *_ in calls])
        self.columns: dict[str, Floats] = {name: column[kept] for name, column in columns.items()}
        self.models = np.array(
            [
                " ".join(row[key] for key in ("hidden", "intermediate", "experts", "top_k"))
                for _, row, _ in calls
            ]
        )[kept]
        self.cards = np.array([card for card, *_ in calls])[kept]
        self.us = self.columns["us"]

    def part(self, chosen: Floats) -> Layers:
        """Some of the calls."""
        part = Layers.__new__(Layers)
        part.columns = {name: column[chosen] for name, column in self.columns.items()}
        part.models, part.cards, part.us = self.models[chosen], self.cards[chosen], self.us[chosen]
        return part

    def predicted_us(self, values: Sequence[float], power: float | None, tile: int) -> Floats:
        """The times of the calls with values of `KEYS`."""
        _, memory, call_us, _ = values
        of = self.columns
        few = np.floor(of["load"])
        more = of["load"] - few  # this share of the experts has one token more

        def each(load: Floats) -> Floats:
            return expert_us(load, of["compute_us"], of["memory_us"], values, power, tile)

        experts = (1 - more) * each(few) + more * each(few + 1)
        return np.asarray(call_us + of["active"] * experts + of["activation_us"] / memory)

    def errors(self, values: Sequence[float], power: float | None, tile: int) -> Floats:
        """How far each call is from what was measured, as a share of it."""
        return self.predicted_us(values, power, tile) / self.us - 1

    def fit(self, power: float | None, tile: int) -> tuple[float, ...]:
        """Values of `KEYS` with the least squares of relative errors; each model of a card has equal weight.

        An error of more than a tenth counts less: a model whose kernel was not tuned does not decide.
        """
        sets = np.char.add(self.models, self.cards)
        _, number, count = np.unique(sets, return_inverse=True, return_counts=True)
        weights = count[number] ** -0.5

        def errors(place: Floats) -> Floats:
            off = np.log1p(self.errors(fused_values(place), power, tile))
            off = np.sign(off) * np.sqrt(2 * (np.sqrt(1 + (off / 0.1) ** 2) - 1)) * 0.1
            return np.append(weights * off, 1e-3 * (place - np.array(START)))

        return fused_values(least_squares(errors, START))

    def left_out(self, power: float | None, tile: int) -> Floats:
        """Errors of each model's calls with values that were fitted to the other models."""
        errors = np.empty(len(self.us))
        for model in np.unique(self.models):
            chosen = self.models == model
            values = self.part(~chosen).fit(power, tile)
            errors[chosen] = self.part(chosen).errors(values, power, tile)
        return errors


_FIELDS = ("us", "load", "active", "compute_us", "memory_us", "activation_us", "active_mb")


def call(card: Card, row: Mapping[str, str], tokens: int) -> tuple[float, ...]:
    """`_FIELDS` of a call: compute of a token, memory of an expert, activations of the whole call."""
    hidden, whole, experts, top_k, slices = (
        int(row[key]) for key in ("hidden", "intermediate", "experts", "top_k", "slices")
    )
    bytes_each, rate = NUMBERS[row["numbers"]]
    matrices = 2 if (hidden, whole) in UNGATED else 3
    columns = whole // slices
    weights = matrices * hidden * columns
    pairs = tokens * top_k
    active = min(experts, pairs)
    per_us = card.gbps * 1e3
    return (
        float(row[str(tokens)]), pairs / active, active, 2 * weights / (card.tflops * rate * 1e6),
        weights * bytes_each / per_us, pairs * activation_bytes(hidden, columns, matrices) / per_us,
        active * weights * bytes_each / 1e6,
    )  # fmt: skip


def of_family(family: str) -> list[str]:
    """The measured cards of a family."""
    return [name for name, card in CARDS.items() if card.family == family]


def by_range(load: Floats, errors: Floats) -> str:
    """Cells of a line: the median and the 90th percentile of errors in each range of tokens an expert."""
    cells, low = [], 0.0
    for high in RANGES:
        each = np.abs(errors[(load > low) & (load <= high)])
        cells.append(f"{np.median(each):.0%}, {np.quantile(each, 0.9):.0%}" if len(each) else "")
        low = high
    return " | ".join(cells)


def range_names() -> str:
    """The heads of these cells."""
    ends = [int(high) for high in RANGES[:-1]]
    between = [f"{low + 1} to {high}" for low, high in itertools.pairwise(ends)]
    return " | ".join([f"{ends[0]}", *between, f"above {ends[-1]}"])


def narrow_efficiency(family: str, numbers: str, values: tuple[float, ...], power: float, tile: int) -> float:
    """The share of the peak for narrower numbers that suits the measured layers, with all else of 16 bits."""
    layers = Layers(of_family(family), PROGRAM, [numbers])
    return rounded(best(lambda share: layers.errors((share, *values[1:]), power, tile), 0.05, 1.0))


def by_power(tile: int) -> dict[float | None, float]:
    """The median error of left-out models over all families, by exponent."""
    found = {}
    for power in POWERS:
        off = [
            np.abs(Layers(of_family(family), PROGRAM, ["bfloat16"]).left_out(power, tile))
            for family in FAMILIES
        ]
        found[power] = float(np.median(np.concatenate(off)))
    return found
