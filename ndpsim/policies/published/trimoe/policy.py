"""TriMoE: experts on GPU, AMX CPU and NDP by a cost model; layouts and DIMMs follow predicted loads.

After "TriMoE: Augmenting GPU with AMX-Enabled CPU and DIMM-NDP for High-Throughput MoE Inference via
Offloading", Sections 4.2 (scheduling, equations 1 to 7) and 4.3 (migrations, equation 8). Details that the
paper does not give are parameters; their descriptions give the reasons for the defaults.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from pydantic import Field

from ndpsim.base.jit import same_types
from ndpsim.policies.assignment.bottleneck import LayerState, schedule_layer
from ndpsim.policies.assignment.relocation import (
    HOT,
    NONE,
    PREFETCH,
    REBALANCE,
    RELAYOUT,
    TO_GPU,
    Locations,
    MoveRules,
    look_ahead,
)
from ndpsim.policies.interface import Assignment, GivesRoom, Migration, Parts, Policy, PolicyParameters
from ndpsim.policies.offline import LoadPredictor, Predictions, descending, mean_loads
from ndpsim.policies.published.trimoe.makespan import CostModel, ExpertCosts
from ndpsim.policies.views import (
    STRIPED,
    BackgroundView,
    Flags,
    Floats,
    Ints,
    LayerView,
    OfflineView,
    Placement,
)

# ---- Migrations that TriMoE has begun (Section 4.3), and their benefit in another step
#
# A task is a migration, with the eviction that makes space for it. Its benefit is the gain of the layer's
# next visit:
#
# - prefetch: the gain of the expert in the GPU's memory, minus the gain of the evicted one;
# - relayout: the difference between the two layouts;
# - rebalance: the reduction of the later end of the two DIMMs.
#
# `ndpsim.policies.assignment.relocation` chooses migrations. After that visit the benefit is computed again
# with the actual loads, to judge the decision.


@dataclass(eq=False)
class Task:
    """A migration, and the expert that it evicts from the GPU's memory or None.

    `dimm`, `resident`: [expert]: the locations that the decision assumed.
    """

    migration: Migration
    victim: int | None
    dimm: Ints
    resident: Flags

    @property
    def uses_pcie(self) -> bool:
        """Whether it occupies PCIe, and not the links between DIMMs."""
        return self.migration.kind == "prefetch"

    def benefit(self, costs: ExpertCosts) -> float:
        """The benefit of the move in another step, in ns."""
        move, dimm = self.migration, self.dimm
        if move.kind == "prefetch":
            gain = costs.gain(dimm)
            return float(gain[move.expert] - (0.0 if self.victim is None else gain[self.victim]))
        if move.kind == "relayout":
            saved = float(costs.localized[move.expert] - costs.striped[move.expert])
            return saved if move.to == STRIPED else -saved
        times = np.where(self.resident, 0.0, costs.ndp)
        busy = np.bincount(dimm - STRIPED, times, move.to + 2)[1:]
        source, ndp_ns = dimm[move.expert], costs.ndp[move.expert]
        before = max(busy[source], busy[move.to])
        return float(before - max(busy[source] - ndp_ns, busy[move.to] + ndp_ns))


# ---- The policy

_COUNTED = {
    "accuracy": (
        "share of experts whose class, predicted one layer ahead, was right; hot: gains most from the GPU's "
        "memory, cold: NDP is fastest, warm: all others"
    ),
    "decision_accuracy": (
        "share of prefetches, relayouts and rebalances that pay off with the loads of the layer's next visit"
    ),
}


class TriMoEParameters(PolicyParameters):
    """Parameters of TriMoE."""

    refine: bool = True
    """bottleneck-aware refinement (Section 4.2)"""

    relayout: bool = True
    """dynamic relayout (Section 4.3)"""

    rebalance: bool = True
    """cold expert rebalancing (Section 4.3)"""

    prefetch: bool = True
    """hot expert prefetching (Section 4.3)"""

    cpu: bool = True
    """experts on the CPU; without: the GPU-NDP baseline of Figure 8"""

    alpha: float = Field(0.3, gt=0, le=1)
    """weight of the latest load (equation 8)"""

    contention: Literal["part", "whole"] = "part"
    """what a striped read adds to each DIMM (equation 6): the time in which the DIMM serves its part of the
    bytes, or all of T_DRAM; the paper does not say: a DIMM is busy when serving, and those of a channel serve
    in turn"""

    refine_limit: int = Field(1000, ge=0)
    """moves of a refinement at most; the paper gives no limit: more than were ever needed, so that refinement
    ends where no move lowers the makespan"""

    hot_experts: int | None = Field(None, ge=0)
    """experts of a layer that count as hot at most; the paper does not say: as many as the GPU's memory has
    room for, layers sharing it evenly, since an expert there is never slower (equation 1)"""

    skew: float = Field(0.25, ge=0)
    """share by which the predicted time of the busiest DIMM exceeds the mean where skew is detected; the
    paper gives none: at batch 512, 8% of 3072 pairs over 16 DIMMs are 15 cold tokens each, which by chance
    alone vary by 11% in their moving average, the most of 16 DIMMs by 20%"""

    budget: Literal["apart", "together"] = "apart"
    """whether prefetches and moves between DIMMs fill one window budget together; the paper does not say:
    PCIe and DIMM-Link work at the same time, and it is DIMM-Link that it calls limited"""

    overrun: bool = True
    """the migration that fills the window may end after it, if its benefit is greater than the time by which
    it does; the paper executes migrations until they fill the window, and with one link each way no relayout
    of DeepSeek-V2 would fit"""

    benefit_steps: int = Field(3, ge=1)
    """steps of predicted benefit that are compared with a migration's time after the window; the paper does
    not say: after three steps equation 8 has replaced two thirds of what it knew"""


class TriMoE(Policy[TriMoEParameters], GivesRoom):
    """TriMoE: greedy makespan scheduling with refinement, predicted relayout, rebalancing, prefetch."""

    name = "trimoe"
    paper = (
        "TriMoE: Augmenting GPU with AMX-Enabled CPU and DIMM-NDP for High-Throughput MoE Inference via "
        "Offloading"
    )
    needs = ("cpu", "ndp")
    mixed_steps = "The rules for decode: schedule, prefetches, relayouts and rebalances."

    def setup(self) -> None:
        """Create the cost model, the predictor, and the records of migrations."""
        machine, parameters = self.machine, self.parameters
        experts = machine.model.routed_experts
        self.costs = CostModel(
            self.estimates, machine.dimms, parameters.cpu, whole_reads=parameters.contention == "whole"
        )
        self.predictor = LoadPredictor(len(machine.layers), experts, parameters.alpha)
        #: Number of experts of each layer that fit the GPU's memory.
        self.room = np.zeros(len(machine.layers), np.int64)
        self._scheduling = self.costs.scheduling(experts)
        self._prediction = self.costs.predicting(self.predictor.loads, self.room)
        self._schedule, self._look_ahead = same_types(schedule_layer), same_types(look_ahead)
        self._rules, self._in_full = self._move_rules(), np.ones(experts)
        #: The row for which classes are predicted, and the tasks that were begun for it.
        self._expected = -1, list[Task]()
        #: Tasks begun that may not have ended.
        self.under_way: list[Task] = []
        self._classes = Predictions()
        self._decisions = Predictions()

    def _move_rules(self) -> MoveRules:
        wanted, estimates, links = self.parameters, self.estimates, self.machine.has_links
        return MoveRules(
            wanted.alpha,
            float(estimates.pcie_ns),
            float(estimates.striped_read_ns),
            float(estimates.localized_read_ns),
            float(estimates.to_striped_ns),
            float(estimates.to_localized_ns),
            float(estimates.rebalance_ns),
            float(estimates.window_ns),
            wanted.budget == "together",
            wanted.overrun,
            wanted.benefit_steps,
            wanted.skew,
            wanted.prefetch,
            wanted.relayout and links,
            wanted.rebalance and links,
        )

    # ---- the first layout (Section 4.3: "an optimized initial layout via offline trace analysis")

    def place(self, view: OfflineView) -> Placement:
        """Hot experts are in the GPU's memory, cold ones localized, the others striped, by offline loads.

        Layers share the GPU's memory evenly, because every step visits each of them. The cold experts of a
        layer are divided into groups: the longest first, each joins the group with the least time. The group
        with most experts goes to the DIMM with fewest experts of other layers.
        """
        loads = mean_loads(view)
        self.predictor.begin(loads)
        all_costs = [self.costs.expert_costs(row) for row in loads]
        self.room[:] = self._rooms(all_costs)
        placement = Placement.striped(*loads.shape)
        held = np.zeros(self.machine.dimms, np.int64)
        for row, expert_costs in enumerate(all_costs):
            placement.resident[row] = expert_costs.classes(int(self.room[row])) == HOT
            cold = np.flatnonzero(expert_costs.cold & ~placement.resident[row])
            # Mean loads below one token count as one: an active expert has at least one.
            times = np.maximum(expert_costs.ndp[cold], self.estimates.ndp_ns[1])
            placement.dimm[row, cold] = self._spread(times, held)
        return placement

    def _rooms(self, all_costs: Sequence[ExpertCosts]) -> list[int]:
        """The number of experts of each layer for the GPU's memory."""
        layers, experts = len(all_costs), self.machine.model.routed_experts
        hot = self.parameters.hot_experts
        most = experts if hot is None else min(hot, experts)
        each, left = divmod(self.machine.gpu_experts, layers)
        if each >= most:
            return [most] * layers
        # The remaining space goes to the layers whose next expert gains most.
        gains = [np.partition(-o.gain(np.full(experts, STRIPED)), each)[each] for o in all_costs]
        more = set(np.argsort(gains, kind="stable")[:left].tolist())
        return [each + (row in more) for row in range(layers)]

    def _spread(self, times: Floats, held: Ints) -> Ints:
        """The DIMMs of a layer's cold experts; `held`: number of experts on each DIMM, which is updated."""
        if not len(times):
            return np.empty(0, np.int64)
        busy, groups = [0.0] * len(held), np.empty(len(times), np.int64)
        for expert in descending(times).tolist():
            group = busy.index(min(busy))
            groups[expert] = group
            busy[group] += float(times[expert])
        counts = np.bincount(groups, minlength=len(held))
        dimm_of = np.empty(len(held), np.int64)
        dimm_of[descending(counts)] = np.argsort(held, kind="stable")
        held[dimm_of] += counts
        return dimm_of[groups]

    # ---- scheduling (Section 4.2)

    def assign(self, view: LayerView) -> Assignment:
        """Greedy by equations 1 to 4, then refinement by equation 7.

        In the prefill the GPU "performs all inference computations" (Section 4.1). On the GPU, experts that
        it has come first, then those on their way, so that copies of others advance meanwhile.
        """
        limit = self.parameters.refine_limit if self.parameters.refine else 0
        layer = LayerState(view.loads, view.placement.resident, view.arriving, view.placement.dimm)
        order, prefill = np.empty(len(view.loads), np.int64), view.phase == "prefill"
        in_any_case = float(self.estimates.shared_ns), float(self.estimates.call_ns)
        moves, greedy_ns, makespan_ns, *ends = self._schedule(
            self._scheduling, layer, *in_any_case, limit, prefill, order
        )
        gpu, cpu, ndp = [
            Parts(order[first:end], self._in_full[: end - first]) for first, end in pairwise((0, *ends))
        ]
        if prefill:
            known = view.loads.max() <= self.estimates.most_tokens
            return Assignment(gpu, estimated_ns=makespan_ns if known else None)
        details = {"greedy_ns": greedy_ns, "moves": moves}
        return Assignment(gpu, cpu, ndp, estimated_ns=makespan_ns, details=details)

    # ---- migrations (Section 4.3)

    def background(self, view: BackgroundView) -> Sequence[Migration]:
        """Prefetches, relayouts and rebalances for the next layer, by benefit, within the window."""
        wanted = self.parameters
        if view.phase == "prefill" or not (wanted.prefetch or wanted.relayout or wanted.rebalance):
            return ()
        row, after = self.row[view.layer], self.row[view.next_layer]
        expected, tasks = self._expected
        if tasks and expected == row:
            expert_costs = self.costs.expert_costs(view.loads)
            self._decisions.add(sum(task.benefit(expert_costs) > 0 for task in tasks), len(tasks))
        under_way, spent_ns = self._still_under_way(view)
        places = Locations(view.placement.dimm, view.placement.resident, view.moving)
        layer = row, after, view.loads, expected == row, places, int(view.gpu_free)
        right, *counts = self._look_ahead(self._prediction, self._rules, *layer, under_way, spent_ns)
        if expected == row:
            self._classes.add(right, len(view.loads))
        tasks = self._tasks(view.next_layer, *counts)
        self.under_way += tasks
        self._expected = after, tasks
        migrations = []
        for task in tasks:
            if task.victim is not None:
                migrations.append(Migration("evict", view.next_layer, task.victim))
            migrations.append(task.migration)
        return migrations

    def _still_under_way(self, view: BackgroundView) -> tuple[int, tuple[float, float]]:
        """Note unfinished tasks of the next layer; their number, and the time of all on PCIe and links."""
        if not self.under_way:
            return 0, (0.0, 0.0)
        moves = ((task, task.migration) for task in self.under_way)
        self.under_way = [task for task, to in moves if view.moving[self.row[to.layer], to.expert]]
        pcie_ns, links_ns, soon = 0.0, 0.0, self._prediction.soon
        count = 0
        for task in self.under_way:
            move = task.migration
            if task.uses_pcie:
                pcie_ns += move.estimated_ns
            else:
                links_ns += move.estimated_ns
            if move.layer == view.next_layer:
                soon[count] = move.expert, TO_GPU if task.uses_pcie else move.to
                count += 1
        return count, (pcie_ns, links_ns)

    def _tasks(self, layer: int, count: int, taken: int) -> list[Task]:
        """The tasks that `look_ahead` has taken for a layer, of all `count` with a benefit."""
        if not taken:
            return []
        prediction = self._prediction
        tasks, dimm, resident = (
            prediction.tasks[:count].tolist(),
            prediction.dimm.copy(),
            prediction.here.copy(),
        )
        before: list[Ints] = []
        for kind, expert, _, source in reversed(tasks):
            if kind == REBALANCE:  # each knows those before it
                dimm = dimm.copy()
                dimm[expert] = source
            before.append(dimm)
        found = []
        for number in prediction.by_benefit[:taken].tolist():
            move = self._migration(layer, *tasks[number][:3])
            victim = tasks[number][3] if move.kind == "prefetch" else NONE
            found.append(Task(move, None if victim == NONE else victim, before[count - 1 - number], resident))
        return found

    def _migration(self, layer: int, kind: int, expert: int, to: int) -> Migration:
        rules = self._rules
        if kind == PREFETCH:
            return Migration("prefetch", layer, expert, estimated_ns=rules.pcie_ns)
        if kind == RELAYOUT:
            took_ns = rules.to_striped_ns if to == STRIPED else rules.to_localized_ns
            return Migration("relayout", layer, expert, to, took_ns)
        return Migration("rebalance", layer, expert, to, rules.rebalance_ns)

    def resident_worth(self, placement: Placement) -> Floats:
        """The predicted gain of a prefetch; experts of all layers with the least gain are evicted first."""
        rows = zip(self.predictor.loads, placement.dimm, strict=True)
        return np.array([self.costs.expert_costs(loads).gain(dimm) for loads, dimm in rows])

    # ---- accuracy of the prediction

    def prediction(self) -> Mapping[str, Any] | None:
        """Candidates for the paper's "predictor accuracy" of 78%: shares of right classes, and decisions."""
        if not self._classes.made:
            return None
        return {
            "accuracy": self._classes.share,
            "decision_accuracy": self._decisions.share,
            "counted": {
                **_COUNTED,
                "experts": self._classes.made,
                "migrations": self._decisions.made,
            },
        }


POLICY = TriMoE
