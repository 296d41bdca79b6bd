"""Context-aware MoE inference on a GPU and a CXL device with NDP: placement and bits by the prefill.

Fan et al., "Context-Aware Mixture-of-Experts Inference on CXL-Enabled GPU-NDP Systems", algorithm 1. The
routing of a sequence's prefill decides once which K experts of a layer the GPU has in full precision, and the
number of bits in which the NDP reads each other expert (PrefixSplit, section 4.2). There is no released code.

The paper does not state the following decisions. Norm divides by the sum of a layer's counts or scores. The
statistics of a batch are sums over its sequences. In the prefill, before bits are chosen, all weights have
full precision; the GPU loads the experts with most tokens, as many as balance GPU and NDP. Initially the GPU
has the K experts with most tokens in the offline trace, as after an earlier sequence. Further experts that
the prefill chooses are moved once. A trace without scores is ranked by counts alone. In a run without a
prefill the offline trace replaces it.

Losses are in a CSV file, which may begin with comment lines ``# ...``. Its columns are
``layer,expert,bits,loss``, with a line for every layer of the run, every expert and each of 1, 2, 3 and 4
bits. Without the column `layer` the lines apply to all layers. If they have only n experts, expert e has the
losses of expert e mod n; the bundled table therefore fits any model. An NPZ file has an array `loss`
[layer, expert, bits], with the model's layers from 0.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, field_validator

from ndpsim.base.arguments import is_finite
from ndpsim.base.arrays import as_array, read_npz
from ndpsim.base.errors import InputError, shown
from ndpsim.base.text_files import numbered_lines
from ndpsim.policies.interface import Assignment, Migration, PolicyParameters
from ndpsim.policies.offline import descending, mean_loads, score_sums, spread
from ndpsim.policies.offloading import Offloading, places_in
from ndpsim.policies.views import BackgroundView, Floats, Ints, LayerView, Machine, OfflineView, Placement

#: Possible bits of an expert's weights; the last axis of a table of losses.
BITS = (1, 2, 3, 4)
_BUNDLED = Path(__file__).parent / "quantisation_loss_synthetic.csv"
_COLUMNS = ("expert", "bits", "loss")


def read_losses(file: str | None, layers: tuple[int, ...], experts: int) -> Floats:
    """Losses [layer, expert, bits], rows as in `layers`; None: those of the bundled, synthetic table.

    Raises:
        InputError: the file cannot be read, a number of it is wrong, or a layer, expert or bits are missing.
    """
    path = _BUNDLED if file is None else Path(file)
    read = _read_array if path.suffix == ".npz" else _read_lines
    return read(path, layers, experts)


def _read_array(path: Path, layers: tuple[int, ...], experts: int) -> Floats:
    try:
        arrays = read_npz(path, lambda name: name == "loss")
    except InputError as error:
        raise InputError(error.problem, "unreadable", file=path, key=error.key) from None
    if not arrays:
        raise InputError("has no array 'loss'", "missing", file=path)
    losses = arrays["loss"]
    wanted = layers[-1] + 1, experts, len(BITS)
    fits = losses.ndim == 3 and losses.shape[0] >= wanted[0] and losses.shape[1:] == wanted[1:]
    if losses.dtype.kind not in "fiu" or not fits:
        problem = f"has the shape {losses.shape}, not {wanted} (layers or more, experts, bits) of numbers"
        raise InputError(problem, "form", file=path, key="loss")
    losses = losses.astype(np.float64)
    if not np.isfinite(losses).all():
        raise InputError("has losses that are not finite", "range", file=path, key="loss")
    return np.asarray(losses[list(layers)])


def _read_lines(path: Path, layers: tuple[int, ...], experts: int) -> Floats:
    rows = [(number, text) for number, text in numbered_lines(path) if text[0] != "#"]
    header, first = rows[0] if rows else (None, "")
    columns = tuple(part.strip() for part in first.split(","))
    if columns not in (_COLUMNS, ("layer", *_COLUMNS)):
        problem = "the columns are not expert,bits,loss or layer,expert,bits,loss"
        raise InputError(problem, "form", file=path, line=header)
    per_layer, found = "layer" in columns, dict[tuple[int, ...], float]()
    for number, text in rows[1:]:
        *numbers, loss = _numbers(text, columns, path, number)
        cell = (*([] if per_layer else [0]), *map(int, numbers))
        if cell in found:
            raise InputError(f"{shown(text)} is given twice", "twice", file=path, line=number)
        found[cell] = loss
    repeats = experts if per_layer else max((expert for _, expert, _ in found), default=0) + 1
    try:
        return np.array(
            [
                [[found[layer if per_layer else 0, expert % repeats, bits] for bits in BITS]
                 for expert in range(experts)]
                for layer in layers
            ]
        )  # fmt: skip
    except KeyError as error:
        layer, expert, bits = error.args[0]
        what = f"layer {layer}, expert {expert}" if per_layer else f"expert {expert}"
        raise InputError(f"has no loss of {what} with {bits} bits", "missing", file=path) from None


def _numbers(text: str, columns: tuple[str, ...], path: Path, line: int) -> list[float]:
    """The numbers of a line: whole ones, and a loss."""
    parts = next(csv.reader([text]))
    if len(parts) != len(columns):
        raise InputError(f"has {len(parts)} values for {len(columns)} columns", "form", file=path, line=line)
    numbers: list[float] = []
    for part, column in zip(parts, columns, strict=True):
        try:
            value = float(part) if column == "loss" else int(part)
        except ValueError:
            value = np.nan
        if (
            not is_finite(value)
            or (column == "bits" and value not in BITS)
            or (column != "loss" and value < 0)
        ):
            allowed = {"bits": f"one of {', '.join(map(str, BITS))}", "loss": "a number"}
            wanted = allowed.get(column, "a whole number from 0")
            raise InputError(
                f"{shown(part.strip())} is not {wanted}", "range", file=path, line=line, key=column
            )
        numbers.append(value)
    return numbers


# ---- PrefixSplit: the bits of each expert's weights, for a given average (section 4.2)
#
# Experts are in order of importance, and none gets more bits than an expert before it. Each has 1 bit, and a
# budget of R further bits is distributed: 3 n4 + 2 n3 + n2 = R.

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
    losses = as_array(losses)
    of_numbers = losses.dtype.kind in "fiu" and losses.ndim == 2 and losses.shape[1] == len(BITS)
    if not of_numbers or not np.isfinite(losses).all():
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


#: Section 5.1: "for Mixtral-8x7B we place four hot experts per layer on the GPU ...".
# ---- The policy

_GPU_EXPERTS = {"mixtral-8x7b": 4, "mixtral-8x22b": 2}


class CxlParameters(PolicyParameters):
    """Parameters of the policy."""

    bits: float = Field(3.0, ge=1, le=16)
    """average bits of a weight on the NDP, from 1 to 4; 16: no quantisation. 3 and 2 are 'Ours-3bit' and
    'Ours-2bit' (section 5.2; 3, the more accurate, is the default)"""

    budget: Literal["floor", "nearest"] = "floor"
    """how R = E_NDP x (bits - 1) is rounded (section 4.2 does not say). floor: the average is not exceeded;
    nearest: to the nearest whole number. Only splits with n1 >= 0 are taken"""

    loss: str | None = None
    """table of losses by layer, expert and bits, a CSV or NPZ file (algorithm 1, lines 1 to 8: measured on a
    calibration set); none: the bundled one, which is synthetic"""

    alpha: float = Field(0.5, ge=0, le=1)
    """importance S = alpha x counts + (1 - alpha) x scores, both normalised (section 4.1; 0.5 in 5.3)"""

    gpu_experts_per_layer: int | None = Field(None, ge=0, le=1024)
    """K, never more than fit; none: 4 of Mixtral-8x7B and 2 of Mixtral-8x22B (section 5.1), of other models
    as many as fit, evenly over layers (algorithm 1: 'GPU-side expert budget')"""

    migration: Literal["after", "during"] = "after"
    """when the experts that a sequence's prefill chooses move to the GPU. after: when it ends (algorithm 1);
    during: those of a layer as soon as its prefill is done, beside the prefill of later layers; copies that
    the prefill has made stay. Both choose the same experts"""

    arriving: Literal["ndp", "wait"] = "ndp"
    """where a decode step computes an expert that is on its way to the GPU. ndp: in full precision on the
    NDP device that still has it (section 4.1: 'on the device [that] hosts the selected experts'); wait: on
    the GPU, when it has arrived (section 4.2: placement is 'completed before the decoding stage')"""

    @field_validator("bits")
    @classmethod
    def _of_replicas_or_full(cls, bits: float) -> float:
        if not (bits <= BITS[-1] or bits == 16):
            raise ValueError(f"{bits:g} is neither from 1 to 4 nor 16")
        return bits


class Cxl(Offloading[CxlParameters]):
    """Context-aware: the prefill's important experts on the GPU, the others in 1 to 4 bits on NDP."""

    name = "cxl"
    paper = "Fan et al., Context-Aware MoE Inference on CXL-Enabled GPU-NDP Systems"
    engines = ("gpu", "ndp")
    mixed_steps = "The rules for decode: nothing moves, since only a prefill chooses what is fetched."

    @classmethod
    def check(cls, machine: Machine, parameters: CxlParameters) -> None:
        """Refuse a table of losses that cannot be read."""
        read_losses(parameters.loss, machine.layers, machine.shape[1])

    def setup(self) -> None:
        """Create the statistics of the prefill and the decisions."""
        machine, parameters = self.machine, self.parameters
        layers, experts = machine.shape
        wanted = parameters.gpu_experts_per_layer
        if wanted is None:
            wanted = _GPU_EXPERTS.get(machine.model.name, experts)
        room = np.arange(layers + 1) * machine.gpu_experts // max(layers, 1)
        #: K of each layer: the experts that fit are divided evenly.
        self.on_gpu: list[int] = np.minimum(np.diff(room), min(wanted, experts)).tolist()
        self.replicas = () if parameters.bits == 16 else tuple(bits for bits in BITS if bits < machine.bits)
        self.losses = read_losses(parameters.loss, machine.layers, experts)
        self.counts: Floats = np.zeros((layers, experts))
        self.scores: Floats = np.zeros((layers, experts))
        self.hot = np.zeros((layers, experts), np.bool_)
        self.bits = np.full((layers, experts), machine.bits)

    @property
    def copy_ns(self) -> float:
        """An expert's weights over PCIe."""
        return self.estimates.pcie_ns

    # Algorithm 1

    def _decide(self, rows: Iterable[int]) -> None:
        """Lines 12 to 22: experts on the GPU, and the bits of all others, by the statistics so far."""
        importance = self._importance()
        for row in rows:
            self.hot[row], self.bits[row] = False, self.machine.bits
            hot, cold = np.split(descending(importance[row]), [self.on_gpu[row]])
            self.hot[row, hot] = True
            if self.replicas:
                split = prefix_split(self.losses[row, cold], self.parameters.bits, self.parameters.budget)
                self.bits[row, cold] = np.minimum(split, self.machine.bits)

    def _importance(self) -> Floats:
        """Lines 14 and 15, S [layer, expert]."""
        counts = _normalised(self.counts)
        if not self.scores.any():
            return counts
        alpha = self.parameters.alpha
        return alpha * counts + (1 - alpha) * _normalised(self.scores)

    def place(self, view: OfflineView) -> Placement:
        """Every expert is on one DIMM, with replicas in all bits, spread by tokens. The K experts of each
        layer with most tokens in the offline trace are in the GPU's memory.
        """
        loads = mean_loads(view)
        self.counts[:] = loads
        self._decide(range(len(loads)))
        self.counts[:] = 0.0
        placement = super().place(view)
        placement.resident[:] = self.hot
        for row, tokens in enumerate(loads):
            placement.dimm[row] = spread(tokens, self.machine.dimms)
        return Placement(placement.dimm, placement.shards, placement.resident, self.replicas)

    def assign(self, view: LayerView) -> Assignment:
        """Every expert on the device that has it; in the prefill, the GPU also loads others."""
        active = self.by_tokens(view)
        there = view.placement.resident[active].copy()
        if view.phase == "prefill":
            self._learn(view)
            there |= view.arriving[active]
            return self._balanced(view, active[there], active[~there])
        if self.parameters.arriving == "wait":
            there |= view.arriving[active]
        here, cold = active[there], active[~there]
        bits = self.bits[self.row[view.layer], cold]
        # Time is proportional to the bits that are read: factors of about 16/3 and 16/2 (section 5.2).
        units = np.zeros((self.machine.dimms, len(cold)))
        times = self.estimates.ndp_ns[view.loads[cold]] * (bits / self.machine.bits)
        units[view.placement.dimm[cold], np.arange(len(cold))] = times
        busy = self.estimates.shared_ns + float(self.estimates.gpu_ns[view.loads[here]].sum())
        return Assignment(
            gpu=here.tolist(),
            ndp=cold.tolist(),
            bits=dict(zip(cold.tolist(), bits.tolist(), strict=True)),
            estimated_ns=max(busy, float(units.sum(axis=1).max(initial=0.0))),
        )

    def _learn(self, view: LayerView) -> None:
        """Lines 10 and 11: counts P and sums W of scores, over all sequences."""
        row = self.row[view.layer]
        self.counts[row] += view.loads
        if view.scores is not None:
            self.scores[row] += score_sums(view.ids, view.scores, len(view.loads))

    def _balanced(self, view: LayerView, here: Ints, missing: Ints) -> Assignment:
        """The GPU gets missing experts, by their tokens, as many as give the earliest end of the layer."""
        estimates, count = self.estimates, len(missing)
        begun = estimates.shared_ns + float(estimates.gpu_ns[view.loads[here]].sum())
        computing = begun + np.append(0.0, np.cumsum(estimates.gpu_ns[view.loads[missing]]))
        copying = np.arange(count + 1) * max(estimates.pcie_ns, estimates.localized_read_ns)
        ends = np.maximum.reduce([computing, copying, self._slowest_rest_ns(view, missing)])
        if not self.machine.expert_buffers:
            ends = ends[:1]
        taken = int(np.argmin(ends))
        return Assignment(
            gpu=[*here.tolist(), *missing[:taken].tolist()],
            ndp=missing[taken:].tolist(),
            estimated_ns=float(ends[taken]),
        )

    def background(self, view: BackgroundView) -> Sequence[Migration]:
        """The only migrations: experts chosen by the prefill are fetched, layer by layer."""
        if view.phase != "prefill":
            return ()
        if self.parameters.migration == "during":
            rows = [self.row[view.layer]]
        elif view.layer == self.machine.layers[-1]:
            rows = [*self.row.values()]
        else:
            return ()
        self._decide(rows)
        return [migration for row in rows for migration in self._moves(view, row)]

    def _moves(self, view: BackgroundView, row: int) -> list[Migration]:
        """Migrations after which a layer's experts on the GPU are the chosen ones."""
        there, hot = view.placement.resident[row], self.hot[row]
        wanted = hot & ~there
        stays = wanted & (view.copied if row == self.row[view.layer] else False)
        moves = (("evict", there & ~hot), ("keep", stays), ("fetch", wanted & ~stays))
        return [
            move for kind, flags in moves for move in self.moves(kind, places_in(row, flags.nonzero()[0]))
        ]


def _normalised(statistics: Floats) -> Floats:
    """Norm of line 14: shares of each layer's sum."""
    sums = statistics.sum(axis=1, keepdims=True)
    return np.asarray(statistics / np.where(sums > 0, sums, 1.0))


POLICY = Cxl
