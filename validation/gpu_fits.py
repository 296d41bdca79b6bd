"""The GPU's model against figures that others measured: fits of its values, for gpu.py."""

from __future__ import annotations

import csv
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ndpsim.inference.processors import Gpu, Step, read_table
from ndpsim.inference.processors.dense import timed
from ndpsim.inference.processors.fitted import ANY
from ndpsim.inference.processors.gpu import activation_bytes
from ndpsim.workload.models import MoeShape, load_model

Floats = NDArray[np.float64]

MEASURED = Path(__file__).parent / "gpu_measured"
FUSED = ("fused_efficiency", "memory_efficiency", "call_overhead_us", "slice_us")
POWERS, TILES = (1.0, 1.5, 2.0, 3.0, None), (1, 16, 32, 64)
# A family with few sets stays near what fits all: a value a factor of e away counts as an error of this much.
PRIOR = 0.05
START = (0.0, 2.0, 3.0, -1.5)
# Card, peak, GB/s: as their makers say, 16 bits without sparsity and with sums in 32 bits.
SINGLE = {
    "h100-mixtral": ("hopper", 989.4, 3350.0),
    "rtx-a6000": ("ampere", 154.8, 768.0),
    "rtx-3090": ("ampere", 71.0, 936.2),
}
H800_FP8_TFLOPS, H800_GBPS = 1978.9, 3350.0
LINKS_GBPS = {"3": 15.754, "4": 31.508, "5": 63.015}  # 16 lanes after line coding
SMALL_COPY, LARGE_COPY = 2_000_000, 30_000_000


def rows(file: str) -> list[dict[str, str]]:
    """Lines of a CSV of figures, without its comments."""
    with (MEASURED / f"{file}.csv").open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(line for line in lines if not line.startswith("#")))


# ---- the model of an expert, and how it is fitted ----


def together(compute: Any, memory: Any, power: float | None) -> Any:
    """Compute and memory at once, as `Gpu.together_ns` has it."""
    if power is None:
        return np.maximum(compute, memory)
    return (compute**power + memory**power) ** (1 / power)


def least_squares(errors: Callable[[Floats], Floats], start: Sequence[float]) -> Floats:
    """Where the sum of squares is least, by steps of Levenberg and Marquardt."""
    at, damping = np.array(start, dtype=float), 1e-3
    now = errors(at)
    for _ in range(60):
        slopes = np.stack([(errors(at + step) - now) / 1e-5 for step in 1e-5 * np.eye(len(at))], axis=1)
        square = slopes.T @ slopes
        step = np.linalg.solve(square + damping * (np.diag(np.diag(square)) + 1e-9), -slopes.T @ now)
        found = errors(at + np.clip(step, -1, 1))
        if found @ found < now @ now:
            gain = 1 - (found @ found) / (now @ now)
            at, now, damping = at + np.clip(step, -1, 1), found, damping / 5
            if gain < 1e-9:
                break
        else:
            damping *= 5
            if damping > 1e9:
                break
    return at


def fused_values(at: Floats) -> tuple[float, ...]:
    """The values of `FUSED` of a place in the search: shares below 1, times above 0."""
    return tuple((1 / (1 + np.exp(-at[:2]))).tolist() + np.exp(at[2:]).tolist())


def rounded(value: float) -> float:
    """To three digits, as the file of fits has it."""
    return float(f"{value:.3g}")


class Calls:
    """Fused calls of some sets: tokens choose experts evenly and by themselves.

    Args:
        sets: names of sets, each of equal weight.
    """

    def __init__(self, sets: Sequence[str]) -> None:
        about = {one["set"]: one for one in rows("fused_sets")}
        points = [one for one in rows("fused_calls") if one["set"] in sets]
        self.sets = [one["set"] for one in points]
        self.us = np.array([float(one["time_us"]) for one in points])
        self.weights = np.array([self.sets.count(name) ** -0.5 for name in self.sets])
        loads, counts, starts, compute, memory, passed = [], [], [], [], [], []
        for point in points:
            given = about[point["set"]]
            starts.append(sum(map(len, loads)))
            load, count = expert_loads(given, int(point["tokens"]), point["active_experts"])
            loads.append(load)
            counts.append(count)
            matrices, columns, hidden = (int(given[key]) for key in ("matrices", "intermediate", "hidden"))
            size = matrices * columns * hidden
            compute.append(np.full(len(load), 2 * size / (float(given["peak_tflops"]) * 1e6)))
            byte_us = int(given["weight_bytes"]) / (float(given["memory_gbps"]) * 1e3)
            memory.append(np.full(len(load), size * byte_us))
            token_us = activation_bytes(hidden, columns, matrices) / (float(given["memory_gbps"]) * 1e3)
            passed.append(load * token_us)
        self.loads, self.counts, self.starts = np.concatenate(loads), np.concatenate(counts), starts
        self.compute_us, self.memory_us = np.concatenate(compute), np.concatenate(memory)
        self.activation_us = np.concatenate(passed)

    def predicted_us(self, values: Sequence[float], power: float | None, tile: int) -> Floats:
        """The times of the calls with values of `FUSED`."""
        fused, memory, call_us, slice_us = values
        tokens = -(-self.loads // tile) * tile
        each = together(tokens * self.compute_us / fused, self.memory_us / memory, power) + slice_us
        each = each + self.activation_us / memory
        return np.asarray(call_us + np.add.reduceat(self.counts * each, self.starts))

    def errors(self, values: Sequence[float], power: float | None, tile: int) -> Floats:
        """How far each call is from what was measured, as a share of it."""
        return self.predicted_us(values, power, tile) / self.us - 1

    def fit(self, power: float | None, tile: int, prior: Floats | None = None) -> Floats:
        """The place in the search with the least squares of relative errors."""

        def errors(at: Floats) -> Floats:
            off = self.weights * np.log1p(self.errors(fused_values(at), power, tile))
            near = np.array(START) if prior is None else prior
            return np.append(off, (PRIOR if prior is not None else 1e-3) * (at - near))

        return least_squares(errors, START if prior is None else prior.tolist())


def expert_loads(given: Mapping[str, str], tokens: int, active: str) -> tuple[Floats, Floats]:
    """Numbers of tokens that an expert may have, and how many experts have so many."""
    experts = int(active or given["experts"])
    share = min(1.0, int(given["top_k"]) / experts)
    load = np.arange(1, tokens + 1)
    logs = np.concatenate([[0.0], np.cumsum(np.log(load))])
    if share == 1:
        return np.array([float(tokens)]), np.array([float(experts)])
    chance = np.exp(
        logs[tokens] - logs[load] - logs[tokens - load]
        + load * np.log(share) + (tokens - load) * np.log1p(-share)
    )  # fmt: skip
    if active:  # they are known to have tokens
        chance /= chance.sum()
    kept = chance > 1e-9
    return load[kept].astype(float), experts * chance[kept]


class FusedFits(NamedTuple):
    """The exponent, the tile, places of the search by family, and errors of each set when left out."""

    power: float | None
    tile: int
    by_family: dict[str, Floats]
    left_out: dict[str, tuple[str, Floats]]

    def values(self, family: str) -> tuple[float, ...]:
        """The values of `FUSED` of a family, rounded."""
        return tuple(map(rounded, fused_values(self.by_family[family])))

    def errors(self, name: str, family: str) -> Floats:
        """Of a set with the values of a family."""
        return Calls([name]).errors(self.values(family), self.power, self.tile)


def families() -> dict[str, list[str]]:
    """Sets of fused calls by family."""
    found: dict[str, list[str]] = {}
    for one in rows("fused_sets"):
        found.setdefault(one["family"], []).append(one["set"])
    return found


def by_family(power: float | None, tile: int) -> dict[str, Floats]:
    """Fits of all sets, and of each family's near them."""
    of_family = families()
    common = Calls([name for names in of_family.values() for name in names]).fit(power, tile)
    return {ANY: common} | {
        family: Calls(names).fit(power, tile, common) for family, names in of_family.items()
    }


def mean_error(power: float | None, tile: int) -> float:
    """The mean over sets of what a point of it is off, with the values of its family."""
    fits = by_family(power, tile)
    means = [
        np.abs(Calls([name]).errors(fused_values(fits[family]), power, tile)).mean()
        for family, names in families().items()
        for name in names
    ]
    return float(np.mean(means))


def fused_fits(power: float | None, tile: int) -> FusedFits:
    """Fits of all families, and of all but each set."""
    of_family, left_out = families(), {}
    for family, names in of_family.items():
        for name in names:
            others = [one for sets in of_family.values() for one in sets if one != name]
            place, source = Calls(others).fit(power, tile), ANY
            if len(names) > 1:
                rest = [one for one in names if one != name]
                place, source = Calls(rest).fit(power, tile, place), family
            left_out[name] = source, Calls([name]).errors(fused_values(place), power, tile)
    return FusedFits(power, tile, by_family(power, tile), left_out)


# ---- experts launched by themselves ----


def single_times() -> dict[str, tuple[int, Floats, Floats]]:
    """Of each set: weights of the expert, tokens and us."""
    table = read_table("h100_mixtral-8x7b", Path())
    found = {"h100-mixtral": (table.expert.weights, np.array(table.tokens), np.array(table.times_ns) / 1e3)}
    for name in ("rtx-a6000", "rtx-3090"):
        of_set = [one for one in rows("single_experts") if one["set"] == name]
        tokens, us = ([float(one[key]) for one in of_set] for key in ("tokens", "time_us"))
        found[name] = (3 * 4096 * 960, np.array(tokens), np.array(us))
    return {name: (weights, tokens.astype(float), us) for name, (weights, tokens, us) in found.items()}


def single_errors(name: str, compute: float, overhead_us: float, memory: float, fused: FusedFits) -> Floats:
    """How far experts of a set are off with these efficiencies, as a share."""
    weights, tokens, us = single_times()[name]
    _, tflops, gbps = SINGLE[name]
    tiles = -(-tokens // fused.tile) * fused.tile
    compute_us = 2 * weights * tiles / (compute * tflops * 1e6)
    return np.asarray(
        (together(compute_us, 2 * weights / (memory * gbps * 1e3), fused.power) + overhead_us) / us - 1
    )


def single_fit(names: Iterable[str], fused: FusedFits) -> tuple[float, float]:
    """compute_efficiency and expert_overhead_us that suit these sets, beside the families' memory."""
    names = list(names)

    def errors(at: Floats) -> Floats:
        off = []
        for name in names:
            memory = fused.values(SINGLE[name][0])[1]
            one = single_errors(name, float(np.exp(at[0])), float(np.exp(at[1])), memory, fused)
            off.append(np.log1p(one) / len(one) ** 0.5)
        return np.concatenate(off)

    compute, overhead = np.exp(least_squares(errors, (-0.4, 2.3)))
    return float(compute), float(overhead)


# ---- kernels of dense parts ----


class Card(NamedTuple):
    """A card whose kernels of dense parts were measured.

    Attributes:
        name: of its files; `model` that was measured.
        tflops, gbps: peaks of the card.
    """

    name: str
    family: str
    model: MoeShape
    tflops: float
    gbps: float

    def gpu(
        self,
        fused: FusedFits,
        compute: float,
        kernel_us: float,
        attention: Sequence[float] = (0.5, 0.5, 0.0),
        softmax: float = 0.0,
    ) -> Gpu:
        """The card with these values; `attention`: of `gpu_attention.KEYS`."""
        return Gpu(
            peak_tflops=self.tflops, compute_efficiency=compute, tables=(), memory_gbps=self.gbps,
            memory_efficiency=fused.values(self.family)[1], attention_efficiency=attention[0],
            expert_overhead_ns=0, kernel_overhead_ns=kernel_us * 1e3, memory_bytes=96 * 10**9,
            reserved_bytes=0, expert_buffers=2, roofline_power=fused.power,
            attention_memory_efficiency=attention[1], attention_overhead_ns=attention[2] * 1e3,
            attention_power=1, softmax_operations=softmax,
        )  # fmt: skip

    def dense_errors(self, gpu: Gpu) -> dict[tuple[str, int], float]:
        """By operation and tokens."""
        found = {}
        for one in rows(f"dense_{self.name}"):
            operation, tokens = one["operation"], int(one["tokens"])
            times = self._times_ns(gpu, Step(tokens, 1))
            ours = times["norms"] / 2 if operation == "layernorm" else times[operation]
            found[operation, tokens] = ours / 1e3 / float(one["time_us"]) - 1
        return found

    def attention_errors(self, gpu: Gpu) -> dict[tuple[int, int, int], float]:
        """By sequences, new tokens and context."""
        found = {}
        for one in rows(f"attention_{self.name}"):
            sequences, new, context = (int(one[key]) for key in ("sequences", "new_tokens", "context"))
            ours = self._times_ns(gpu, Step(sequences, context, new))["attend"]
            found[sequences, new, context] = ours / 1e3 / float(one["time_us"]) - 1
        return found

    def _times_ns(self, gpu: Gpu, step: Step) -> dict[str, float]:
        operations = timed(gpu, self.model, step, "gpu", 16).operations
        return {one.name: one.time_ns for one in operations}


# The Server Edition: four times the 120 TFLOPS in 32 bits of its data sheet.
RTX_PRO_6000 = Card("rtxpro6000", "blackwell", load_model("qwen3-30b-a3b"), 480.0, 1597.0)
RTX_4090 = Card("rtx4090", "ada", load_model("llama-3.1-8b"), 165.2, 1008.0)


def best(errors: Callable[[float], Iterable[float]], low: float, high: float) -> float:
    """The value between two with the least squares of relative errors, by golden section."""
    ratio = (5**0.5 - 1) / 2

    def squares(value: float) -> float:
        return float(sum(np.log1p(one) ** 2 for one in errors(value)))

    one, other = high - ratio * (high - low), low + ratio * (high - low)
    of_one, of_other = squares(one), squares(other)
    while high - low > 1e-3 * high:
        if of_one < of_other:
            high, other, of_other = other, one, of_one
            one = high - ratio * (high - low)
            of_one = squares(one)
        else:
            low, one, of_one = one, other, of_other
            other = low + ratio * (high - low)
            of_other = squares(other)
    return (low + high) / 2


def in_compute(key: tuple[str, int]) -> bool:
    """Whether an operation's time shows compute or the memory: weights of others lie in the L2 cache."""
    operation, tokens = key
    return operation == "lm_head" or (operation != "layernorm" and tokens >= 256)


def h800_errors(compute: float, memory: float, kernel_us: float, power: float | None) -> dict[str, float]:
    """Of FP8 products on an H800, by their shape."""
    found = {}
    for one in rows("gemm_h800_fp8"):
        groups, m, n, k = (int(one[key]) for key in ("groups", "m_per_group", "n", "k"))
        flops, size = 2 * groups * m * n * k, groups * (m * k + n * k + 2 * m * n)
        us = flops / (float(one["tflops"]) * 1e6)
        ours = together(flops / (compute * H800_FP8_TFLOPS * 1e6), size / (memory * H800_GBPS * 1e3), power)
        found[f"{one['layout']} {groups} x {m} x {n} x {k}"] = float((ours + kernel_us) / us - 1)
    return found


# ---- copies ----


def copy_us(one: Mapping[str, str]) -> float:
    """How long a copy took."""
    return int(one["bytes"]) / (float(one["gbps"]) * 1e3)


def copy_overheads() -> dict[str, list[tuple[float, float]]]:
    """Of each set with small and large copies: what each small one took beyond the rate of large ones, and
    all that it took, in us.
    """
    found: dict[str, list[tuple[float, float]]] = {}
    for one in rows("copies"):
        if int(one["bytes"]) > SMALL_COPY:
            continue
        name = one["set"].removesuffix(" Windows")
        large = [
            float(other["gbps"])
            for other in rows("copies")
            if other["set"].startswith(name)
            and other["direction"] == one["direction"]
            and int(other["bytes"]) >= LARGE_COPY
        ]
        us = copy_us(one)
        found.setdefault(name, []).append((us - int(one["bytes"]) / (max(large) * 1e3), us))
    return found


def link_shares() -> dict[str, list[float]]:
    """The share of the link that large copies reach, by generation of PCIe."""
    found: dict[str, list[float]] = {}
    for one in rows("copies"):
        if int(one["bytes"]) >= LARGE_COPY:
            found.setdefault(one["generation"], []).append(float(one["gbps"]) / LINKS_GBPS[one["generation"]])
    return found


def copy_overhead_us(without: str = "") -> float:
    """The median over sets of what a small copy takes besides, one of them left out."""
    each = [np.mean([us for us, _ in of_set]) for name, of_set in copy_overheads().items() if name != without]
    return float(statistics.median(each))
