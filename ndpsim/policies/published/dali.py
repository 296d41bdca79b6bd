"""DALI: experts on CPU and GPU by their tokens, a cache that follows the loads, and predicted prefetches.

After Zhu et al., "DALI: A Workload-Aware Offloading Framework for Efficient MoE Inference on Local PCs":
assignment (section 4.1, equations 3 to 9, algorithm 1), prefetching (section 4.2, equations 10 and 11) and
cache replacement (section 4.3, algorithm 2). A separate stream prefetches for the next layer while experts
are computed (section 4): prefetches are decided at the gate, replacements when the layer is done.

Equations 3 to 9 are min max(T_gpu, T_cpu), each expert on one of the two. The GPU computes at most as many
missing experts as fit its memory. There are three methods: algorithm 1 (greedy), integer programming
(optimal), and beam search (appendix A.2).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, field_validator

from ndpsim.base.arrays import product_sum, read_npz
from ndpsim.base.errors import InputError
from ndpsim.policies.interface import Assignment, Migration, PolicyParameters
from ndpsim.policies.offline import Predictions, StatedPredictor, descending, mean_loads
from ndpsim.policies.offloading import Offloading, Place, cache_slots
from ndpsim.policies.views import (
    BackgroundView,
    Estimates,
    Flags,
    Floats,
    Ints,
    LayerView,
    Machine,
    OfflineView,
    Placement,
)


@dataclass(frozen=True, eq=False)
class TwoEngines:
    """The experts of a layer: arrays [expert].

    Attributes:
        gpu_ns, cpu_ns: time of each expert there; both are 0 for experts without tokens, whose engine does
            not matter.
        missing: flags of experts that are not in the GPU's memory.
        room: maximum number of missing experts that the GPU may compute (equation 9).
    """

    gpu_ns: Floats
    cpu_ns: Floats
    missing: Flags
    room: int

    @property
    def active(self) -> Flags:
        """The experts with tokens."""
        return np.asarray((self.gpu_ns != 0) | (self.cpu_ns != 0))

    def makespan_ns(self, on_gpu: Flags) -> float:
        """The longer of T_gpu (equation 5) and T_cpu (equation 4)."""
        return float(max(self.gpu_ns[on_gpu].sum(), self.cpu_ns[~on_gpu].sum()))


def times_of(
    loads: Ints, there: Flags, arrives_ns: Floats, estimates: Estimates, room: int | None = None
) -> TwoEngines:
    """Equations 4 to 6 from a profile.

    t_gpu is the longer of the copy and the computation. The copy takes no time if the GPU's memory has the
    expert (section 4.3), and the remaining time if the copy has begun.

    Args:
        loads: tokens by expert.
        there: flags [expert]: in the GPU's memory, or being copied.
        arrives_ns: remaining copy time of experts that are being copied; 0 for others.
        room: missing experts that the GPU may compute; None: all.
    """
    copy_ns = estimates.copy_ns
    some = loads > 0
    gpu_ns = np.maximum(estimates.gpu_ns[loads], np.where(there, arrives_ns, copy_ns))
    cpu_ns = estimates.on_cpu_ns[loads]
    missing = some & ~there
    return TwoEngines(
        np.where(some, gpu_ns, 0.0),
        np.where(some, cpu_ns, 0.0),
        missing,
        int(missing.sum()) if room is None else room,
    )


def _in_order(engines: TwoEngines) -> list[int]:
    """Line 5 of algorithm 1: experts by the difference between the engines; ties go to the first expert."""
    order: list[int] = descending(
        np.abs(engines.gpu_ns - engines.cpu_ns), np.flatnonzero(engines.active)
    ).tolist()
    return order


def greedy(engines: TwoEngines) -> Flags:
    """Algorithm 1: flags [expert] of experts on the GPU.

    The algorithm does not mention equation 9: an expert that does not fit goes to the CPU.
    """
    on_gpu = np.zeros(len(engines.gpu_ns), np.bool_)
    gpu_ns, cpu_ns, missing = engines.gpu_ns.tolist(), engines.cpu_ns.tolist(), engines.missing.tolist()
    gpu_sum_ns = cpu_sum_ns = 0.0
    room = engines.room
    for expert in _in_order(engines):
        fits = not missing[expert] or room > 0
        if fits and gpu_sum_ns + gpu_ns[expert] <= cpu_sum_ns + cpu_ns[expert]:
            on_gpu[expert] = True
            gpu_sum_ns += gpu_ns[expert]
            room -= missing[expert]
        else:
            cpu_sum_ns += cpu_ns[expert]
    return on_gpu


def beam(engines: TwoEngines, size: int = 2) -> Flags:
    """Beam search in the order of algorithm 1, which keeps the `size` partial assignments of least time.

    The paper gives only the size and the score. Ties go to the assignment with less work in sum.
    """
    gpu_ns, cpu_ns, missing = engines.gpu_ns.tolist(), engines.cpu_ns.tolist(), engines.missing.tolist()
    beams: list[tuple[float, float, int, tuple[int, ...]]] = [(0.0, 0.0, engines.room, ())]
    for expert in _in_order(engines):
        longer = []
        for gpu_sum_ns, cpu_sum_ns, room, chosen in beams:
            longer.append((gpu_sum_ns, cpu_sum_ns + cpu_ns[expert], room, chosen))
            if not missing[expert] or room > 0:
                longer.append(
                    (gpu_sum_ns + gpu_ns[expert], cpu_sum_ns, room - missing[expert], (*chosen, expert))
                )
        longer.sort(key=lambda partial: (max(partial[:2]), partial[0] + partial[1], partial[3]))
        beams = longer[:size]
    on_gpu = np.zeros(len(gpu_ns), np.bool_)
    on_gpu[list(beams[0][3])] = True
    return on_gpu


def milp_solver(policy: str) -> Any:
    """`scipy.optimize`, whose integer programming is HiGHS.

    Raises:
        InputError: scipy is not installed.
    """
    try:
        from scipy import optimize  # noqa: PLC0415 (an extra: nothing else needs it)
    except ImportError:
        problem = "needs scipy: pip install 'ndpsim[milp]'"
        raise InputError(problem, "not-installed", key=f"policy {policy}") from None
    return optimize


def optimal(engines: TwoEngines, solver: Any, gap: float = 0.0, nodes: int = 100_000) -> Flags:
    """The 0-1 programme of equations 3 to 9, with a whole number for equal experts; no worse than greedy.

    Args:
        solver: the result of `milp_solver`.
        gap: accepted difference from the optimum, as a share of it.
        nodes: maximum number of nodes of the search tree.
    """
    best = greedy(engines)
    active = np.flatnonzero(engines.active)
    if not len(active):
        return best
    keys = np.stack([engines.gpu_ns[active], engines.cpu_ns[active], engines.missing[active]], axis=1)
    kinds, members, counts = np.unique(keys, axis=0, return_inverse=True, return_counts=True)
    numbers = _numbers_on_gpu(kinds, counts, engines, solver, (gap, nodes), engines.makespan_ns(best))
    if numbers is None:
        return best
    found = np.zeros(len(best), np.bool_)
    for kind, number in enumerate(numbers.tolist()):
        found[active[members.ravel() == kind][:number]] = True
    fits = int((found & engines.missing).sum()) <= engines.room
    return found if fits and engines.makespan_ns(found) < engines.makespan_ns(best) else best


def _numbers_on_gpu(
    kinds: Floats,
    counts: NDArray[Any],
    engines: TwoEngines,
    solver: Any,
    limits: tuple[float, int],
    scale: float,
) -> NDArray[np.int64] | None:
    """The number of experts of each kind on the GPU; None: no solution was found. The last variable is T."""
    last = len(kinds)
    gpu, cpu = kinds[:, 0] / scale, kinds[:, 1] / scale
    rows = np.vstack([np.append(gpu, -1.0), np.append(-cpu, -1.0), np.append(kinds[:, 2], 0.0)])
    most = [0.0, -product_sum(cpu, counts), float(engines.room)]
    found = solver.milp(
        np.eye(1, last + 1, last)[0],
        integrality=np.append(np.ones(last), 0),
        bounds=solver.Bounds(0, np.append(counts, np.inf)),
        constraints=solver.LinearConstraint(rows, -np.inf, most),
        options={"mip_rel_gap": limits[0], "node_limit": limits[1]},
    )
    return None if found.x is None else np.rint(found.x[:last]).astype(np.int64)


# ---- Prediction of the next layer's experts from residuals, with recorded hidden states of a real model
#
# Equations 10 and 11: the input of a layer's gate, plus the mean change by residual connections over a
# calibration set, is the input of the next layer's gate. A file has the arrays; its rows are the run's layers
# with experts, in order.

Numbers = NDArray[np.floating[Any]]

_KEY = "policy dali:residual"

_AXES = {
    "hidden": ("step", "layer", "token", "dim"),
    "gates": ("layer", "experts", "dim"),
    "residuals": ("layer", "dim"),
    "calibration": ("layer", "token", "dim"),
}


@dataclass(frozen=True, eq=False)
class ResidualPredictor:
    """Predicts the experts that tokens choose in the next layer.

    Attributes:
        hidden: inputs of the gates in decode steps, [step, layer, token, dim].
        gates: weights of the gates, [layer, experts, dim].
        residuals: values added to a layer's inputs, [layer, dim] (equation 11); the last row is not used.
        chosen: number of experts that a token chooses.
    """

    hidden: Numbers
    gates: Numbers
    residuals: Numbers
    chosen: int

    def loads(self, step: int, row: int) -> Ints:
        """Expected tokens by expert in the layer after `row` (equation 10).

        It reads only the hidden states of `row`.

        Raises:
            InputError: the file has no such step.
        """
        if step >= len(self.hidden):
            raise InputError(
                f"hidden has {len(self.hidden)} steps, the run has more", "conflict", key="policy dali"
            )
        inputs = self.hidden[step, row].astype(np.float64) + self.residuals[row]
        logits = inputs @ self.gates[row + 1].astype(np.float64).T
        ids = np.argsort(-logits, axis=1, kind="stable")[:, : self.chosen]
        return np.bincount(ids.ravel(), minlength=logits.shape[1])


def load_residual(file: str, machine: Machine) -> ResidualPredictor:
    """Read a file of hidden states, gates, and residuals or calibration states.

    Args:
        file: .npz with `hidden` [step, layer, token, dim], `gates` [layer, experts, dim], and either
            `residuals` [layer, dim] or `calibration` [layer, token, dim], hidden states of a calibration set.

    Raises:
        InputError: the file cannot be read, an array is missing, or its shape is not that of the run.
    """
    path = Path(file)
    try:
        content = read_npz(path, lambda name: True)
    except InputError as error:
        raise InputError(error.problem, "unreadable", file=path, key=_KEY) from None
    correction = "residuals" if "residuals" in content else "calibration"
    model = machine.model
    sizes = {"layer": len(machine.layers), "experts": model.routed_experts, "dim": model.hidden}
    arrays = {name: _checked(content, name, sizes, path) for name in ("hidden", "gates", correction)}
    residuals = arrays[correction].astype(np.float64)
    if correction == "calibration":
        residuals = np.vstack([np.diff(residuals, axis=0).mean(axis=1), np.zeros((1, model.hidden))])
    return ResidualPredictor(arrays["hidden"], arrays["gates"], residuals, model.experts_per_token)


def _checked(content: dict[str, NDArray[Any]], name: str, sizes: dict[str, int], path: Path) -> NDArray[Any]:
    """An array of numbers of the right shape."""
    key, axes = f"{_KEY}: {name}", _AXES[name]
    if name not in content:
        missing = "residuals or calibration" if name == "calibration" else name
        listed = ", ".join(sorted(content)) or "nothing"
        raise InputError(f"has no array {missing}, only {listed}", "missing", file=path, key=_KEY)
    array = content[name]
    expected = tuple(sizes.get(axis, size) for axis, size in zip(axes, array.shape, strict=False))
    if array.shape != expected or len(axes) != array.ndim or not array.size:
        words = ", ".join(f"{axis} {sizes[axis]}" if axis in sizes else axis for axis in axes)
        raise InputError(f"has the shape {array.shape}; the run needs ({words})", "form", file=path, key=key)
    if array.dtype.kind != "f" or not np.isfinite(array).all():
        problem = f"is of {array.dtype}, or not all finite; give finite floats"
        raise InputError(problem, "type", file=path, key=key)
    return array


# ---- The policy

_FEW_EXPERTS = 16  # of a layer: as Mixtral, which has 8; the paper's others have 64 and 128
_ACCURACY = {"qwen": 0.933}
_OTHER_ACCURACY = 0.795
_COUNTED = (
    "share of the experts predicted for the next layer that are among its experts with most tokens (as many "
    "as were predicted; of equal tokens, those with lower numbers)"
)


class DaliParameters(PolicyParameters):
    """Parameters of DALI."""

    assignment: Literal["greedy", "optimal", "beam"] = "greedy"
    """greedy: algorithm 1; optimal: the 0-1 programme of eqs. 3 to 9 (needs scipy); beam: beam search of size
    2 scored by execution time (appendix A.2)"""

    gap: float = Field(0.0, ge=0, le=1)
    """for optimal: accepted distance from the best solution, as a share of it"""

    charge: Literal["none", "measured"] | float = "none"
    """time of a decision before the layer begins. none: 0, as table 4 compares; measured: as long as it takes
    on this computer; a number: of ns (section 6.3: greedy 4.5% of inference, optimal 55%)"""

    gpu_memory: Literal["held", "streamed"] = "streamed"
    """eq. 9. streamed: a copy's buffer is used again when its expert is computed, so that it always holds
    (default: algorithm 1 does not ask, and t_gpu is that of a pipeline); held: what the GPU computes of a
    layer is there at once, in free room and the buffers"""

    cache_share: float = Field(1.0, ge=0, le=1)
    """share of each layer's experts that is cached, if there is room (cache_size, section 4); 1: as many as
    fit, so that all policies use the same memory; figure 12 has 0.5, figure 19 0.25"""

    initial: Literal["random", "hottest"] = "random"
    """the cache at first. random: as section 4 says; hottest: by an offline trace"""

    replace: bool = True
    """workload-aware cache replacement (algorithm 2)"""

    swap: Literal["always", "better"] = "always"
    """always: a window ends with u swaps, as algorithm 2 has it; better: only swaps whose new expert has a
    higher score than the evicted one"""

    w: int = Field(4, ge=1)
    """steps of a window (w_size; section 6.4: 4 for all models)"""

    u: int | None = Field(None, ge=0)
    """experts that are replaced at once (u_size); none: 1 where a layer has up to 16 experts (section 6.4:
    Mixtral), else 8 (DeepSeek and Qwen)"""

    evict: Literal["lowest", "topk"] = "lowest"
    """cached experts that are evicted: those with the lowest scores, as section 4.3 says (default: the cache
    is to hold experts with many tokens), or with the highest, as line 11 of algorithm 2 has it"""

    first: Literal["skip", "fire"] = "skip"
    """skip: replace after each w steps, as section 4.3 says (default: eq. 12 sums w steps); fire: where i mod
    w = 0, as line 9 of algorithm 2 has it, so after the first step, too"""

    prefetch: int | None = Field(None, ge=0, le=1024)
    """experts with most predicted tokens that are prefetched for the next layer; none: 1 where a layer has up
    to 16 experts, else 4 (figure 12)"""

    accuracy: float | None = Field(None, ge=0, le=1)
    """accuracy of predictions; none: 0.933 for Qwen models (table 5), else 0.795, DeepSeek's (table 5):
    Mixtral's is in a picture only (figure 16), and DeepSeek's is the lower of the two in print"""

    residual: str | None = None
    """predict by eqs. 10 and 11 in decode steps instead: an .npz file with `hidden` [step, layer, token,
    dim], the inputs of the gates, `gates` [layer, experts, dim], and `residuals` [layer, dim] or
    `calibration` [layer, token, dim]"""

    seed: int = Field(1, ge=0)
    """seed of the first cache and of predictions"""

    @field_validator("charge")
    @classmethod
    def _no_time_below_0(cls, value: str | float) -> str | float:
        if isinstance(value, float) and value < 0:
            raise ValueError(f"{value:g} ns is below 0; give none, measured, or a number of ns from 0")
        return value


class Dali(Offloading[DaliParameters]):
    """DALI: greedy assignment to CPU and GPU, residual-based prefetching, workload-aware cache.

    The policy of DALI's plan solver, prefetch tool and cache tool.
    """

    name = "dali"
    paper = "Zhu et al., DALI: A Workload-Aware Offloading Framework for Efficient MoE Inference on Local PCs"
    mixed_steps = "The rules for decode: assignment, prefetch and replacement, by all tokens of the step."
    moments = ("gate", "end")

    @classmethod
    def check(cls, machine: Machine, parameters: DaliParameters) -> None:
        """Refuse a file that cannot be read, and an optimum without its solver."""
        if parameters.assignment == "optimal":
            milp_solver(cls.name)
        if parameters.residual:
            load_residual(parameters.residual, machine)

    def setup(self) -> None:
        """The cache, predictors, and what was prefetched."""
        machine, parameters = self.machine, self.parameters
        layers, experts = machine.shape
        few = experts <= _FEW_EXPERTS
        wanted = parameters.prefetch
        self.prefetch = min((1 if few else 4) if wanted is None else wanted, experts, machine.gpu_experts)
        self.u = (1 if few else 8) if parameters.u is None else parameters.u
        # Prefetched experts of the current layer and of the next one need space at the same time.
        self.slots = cache_slots(machine, parameters.cache_share, 2 * self.prefetch)
        self.solver = milp_solver(self.name) if parameters.assignment == "optimal" else None
        self.residual = load_residual(parameters.residual, machine) if parameters.residual else None
        if self.prefetch and self.residual is None:
            accuracy = parameters.accuracy
            if accuracy is None:
                accuracy = _ACCURACY.get(machine.model.family[:4], _OTHER_ACCURACY)
            self.stated_predictor = StatedPredictor(accuracy, self.prefetch, parameters.seed)
        #: The experts of each layer that are cached, or being copied into the cache.
        self.cached: list[set[int]] = [set() for _ in range(layers)]
        #: Eq. 12 of each layer, and the decode steps that it has seen.
        self.scores: Floats = np.zeros((layers, experts))
        self.seen = [0] * layers
        #: Prefetched experts outside the cache, and the remaining time of the latest copies.
        self.prefetched: list[Place] = []
        self.left_ns: dict[Place, float] = {}
        self.spare_ns = 0.0  # the part of the layer's time in which its own copies do not use PCIe
        self.free = machine.gpu_experts
        self.expected: tuple[int, tuple[int, ...]] = (-1, ())
        self.predictions = Predictions()

    def place(self, view: OfflineView) -> Placement:
        """All experts in the host's memory, striped; some of each layer cached (section 4)."""
        if self.residual is not None and self.residual.hidden.shape[2] != view.batch:
            tokens = self.residual.hidden.shape[2]
            problem = f"has the hidden states of {tokens} tokens a step; the run has {view.batch}"
            raise InputError(
                problem, "conflict", file=self.parameters.residual, key="policy dali:residual: hidden"
            )
        random, loads = np.random.default_rng(self.parameters.seed), mean_loads(view)
        resident = np.zeros(loads.shape, np.bool_)
        for row, slots in enumerate(self.slots):
            is_random = self.parameters.initial == "random"
            order = random.permutation(len(loads[row])) if is_random else descending(loads[row])
            self.cached[row] = set(order[:slots].tolist())
            resident[row, order[:slots]] = True
        self.free -= sum(self.slots)
        return self.residents(resident)

    # ---- assignment (section 4.1)

    def assign(self, view: LayerView) -> Assignment:
        """Algorithm 1, or another solution of equations 3 to 9; missing experts last, as they are copied."""
        row = self.row[view.layer]
        self._judge(row, view)
        resident, arriving = view.placement.resident, view.arriving
        left_ns = np.zeros(len(view.loads))
        for expert in np.flatnonzero(arriving & ~resident).tolist():
            left_ns[expert] = self.left_ns.get((row, expert), self.copy_ns)
        layer = times_of(view.loads, resident | arriving, left_ns, self.estimates, self._room())
        if self.parameters.assignment == "optimal":
            on_gpu = optimal(layer, self.solver, self.parameters.gap)
        else:
            on_gpu = greedy(layer) if self.parameters.assignment == "greedy" else beam(layer)
        order = self.by_arrival(view)
        makespan = max(self.estimates.shared_ns + layer.gpu_ns[on_gpu].sum(), layer.makespan_ns(on_gpu))
        self.spare_ns = max(0.0, makespan - int((on_gpu & layer.missing).sum()) * self.copy_ns)
        charge = self.parameters.charge
        return Assignment(
            gpu=order[on_gpu[order]].tolist(),
            cpu=order[~on_gpu[order]].tolist(),
            estimated_ns=float(makespan),
            planning=0.0 if charge == "none" else charge,
        )

    def _room(self) -> int | None:
        """Missing experts that the GPU may compute (eq. 9); None: all."""
        buffers = self.machine.expert_buffers
        if not buffers:
            return 0
        return None if self.parameters.gpu_memory == "streamed" else self.free + buffers

    # ---- migrations

    def background(self, view: BackgroundView) -> Sequence[Migration]:
        """At the gate, prefetch for the next layer, and evict prefetched experts of finished layers.
        At the end, update the layer's cache.
        """
        evicted, fetched, wanted = list[Place](), list[Place](), list[Place]()
        if view.moment == "end":
            evicted, fetched = self._replaced(view)
        else:
            evicted = self.done_with(self.prefetched, view, (self.row[view.layer], self.row[view.next_layer]))
            self.prefetched = [expert for expert in self.prefetched if expert not in evicted]
            wanted = self._prefetches(view, view.gpu_free + len(evicted))
            pending, until_ns = int(view.moving.sum()), self.spare_ns + self.estimates.window_ns
            self.left_ns = {
                expert: min(self.copy_ns, max(0.0, (pending + n) * self.copy_ns - until_ns))
                for n, expert in enumerate(wanted, 1)
            }
        self.free = view.gpu_free + len(evicted) - len(fetched) - len(wanted)
        return [*self.moves("evict", evicted), *self.moves("prefetch", wanted), *self.moves("fetch", fetched)]

    def _replaced(self, view: BackgroundView) -> tuple[list[Place], list[Place]]:
        """Algorithm 2 for the finished layer: evictions and fetches."""
        row, wanted = self.row[view.layer], self.parameters
        if view.phase == "prefill" or not wanted.replace:
            return [], []
        self.scores[row] += view.loads  # eq. 12
        step = self.seen[row]
        self.seen[row] += 1
        if (step if wanted.first == "fire" else step + 1) % wanted.w:
            return [], []
        scores, cached = self.scores[row].copy(), self.cached[row]
        self.scores[row] = 0
        resident, moving = view.placement.resident[row], view.moving[row]
        inside = np.zeros(len(scores), np.bool_)
        inside[list(cached)] = True
        goes = _top(scores if wanted.evict == "topk" else -scores, inside & resident & ~moving, self.u)
        comes = _top(scores, ~inside, self.u)
        swaps = [*zip(goes, comes, strict=False)]
        if wanted.swap == "better":
            swaps = [(out, into) for out, into in swaps if scores[into] > scores[out]]
        goes, comes = [out for out, _ in swaps], [into for _, into in swaps]
        self.cached[row] = cached - set(goes) | set(comes)
        self.prefetched = [(layer, e) for layer, e in self.prefetched if layer != row or e not in comes]
        return [(row, e) for e in goes], [(row, e) for e in comes if not (resident | moving)[e]]

    def _prefetches(self, view: BackgroundView, room: int) -> list[Place]:
        """Experts with most predicted tokens in the next layer; none after the last layer (section 4.2)."""
        row = self.row[view.next_layer]
        self.expected = (-1, ())
        if row == 0 or not self.prefetch:
            return []
        predicted = view.predicted
        if self.residual is not None:
            if view.phase == "prefill":
                return []
            loads = self.residual.loads(view.step, self.row[view.layer])
            predicted = tuple(_top(loads, loads > 0, self.prefetch))
        self.expected = row, predicted
        there = view.placement.resident[row] | view.moving[row]
        missing = [(row, expert) for expert in predicted if not there[expert]][: max(room, 0)]
        self.prefetched += missing
        return missing

    # ---- accuracy of predictions

    def _judge(self, row: int, view: LayerView) -> None:
        if self.expected[0] == row:
            predicted = self.expected[1]
            most = _top(view.loads, view.loads > 0, len(predicted))
            self.predictions.add(len(set(predicted) & set(most)), len(predicted))

    def prediction(self) -> Mapping[str, Any] | None:
        """The share of predicted experts that were right."""
        if not self.predictions.made:
            return None
        counted = {"accuracy": _COUNTED, "experts": self.predictions.made}
        return {"accuracy": self.predictions.share, "counted": counted}


def _top(scores: Any, among: Flags, count: int) -> list[int]:
    """Experts with the highest scores among some; ties go to the first."""
    chosen: list[int] = descending(scores, np.flatnonzero(among))[:count].tolist()
    return chosen


POLICY = Dali
