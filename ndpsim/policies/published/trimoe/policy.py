"""TriMoE: experts on GPU, AMX CPU and NDP by a cost model; layouts and DIMMs follow predicted loads.

After "TriMoE: Augmenting GPU with AMX-Enabled CPU and DIMM-NDP for High-Throughput MoE Inference via
Offloading", Sections 4.2 (scheduling, equations 1 to 7) and 4.3 (migrations, equation 8). Details that the
paper does not give are parameters; their descriptions give the reasons for the defaults.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from pydantic import Field

from ndpsim.policies.assignment.bottleneck import CPU
from ndpsim.policies.interface import Assignment, GivesRoom, Migration, Policy, PolicyParameters
from ndpsim.policies.offline import mean_loads
from ndpsim.policies.predictor import LoadPredictor, Predictions
from ndpsim.policies.published.trimoe.makespan import (
    HOT,
    CostModel,
    EngineCosts,
    ExpertCosts,
    Schedule,
    scheduled,
)
from ndpsim.policies.published.trimoe.relocation import (
    Coming,
    Task,
    Window,
    prefetches,
    rebalances,
    relayouts,
)
from ndpsim.policies.statistics import descending
from ndpsim.policies.views import (
    STRIPED,
    BackgroundView,
    Flags,
    Floats,
    Ints,
    LayerPlacement,
    LayerView,
    OfflineView,
    Placement,
)

_COUNTED = {
    "accuracy": (
        "experts of decode layers whose class, predicted when the layer before was done, was that of their "
        "load: hot (among those that gain most by the room in the GPU's memory), cold (NDP is best), or warm"
    ),
    "decision_accuracy": (
        "prefetches, relayouts and rebalances that would have been of benefit with the loads of the "
        "layer's next visit"
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
        self.room = [0] * len(machine.layers)
        #: Predictions for the next layer: its row, classes, and the tasks that were begun for it.
        self._expected: tuple[int, Ints, list[Task]] | None = None
        #: Tasks begun that may not have ended.
        self._under_way: list[Task] = []
        self._classes = Predictions()
        self._decisions = Predictions()

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
        self.room = self._rooms(all_costs)
        placement = Placement.striped(*loads.shape)
        held = np.zeros(self.machine.dimms, np.int64)
        for row, expert_costs in enumerate(all_costs):
            placement.resident[row] = expert_costs.classes(self.room[row]) == HOT
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
        """Greedy by equations 1 to 4, then refinement by equation 7; in the prefill all go to the GPU."""
        if view.phase == "prefill":
            return self._prefill(view)
        costs = self.costs.costs(view.loads, view.placement, view.arriving)
        limit = self.parameters.refine_limit if self.parameters.refine else 0
        schedule = self._scheduled(view, costs, limit)
        gpu, cpu, ndp = schedule.engines(_gpu_rank(view))
        details = {"greedy_ns": schedule.greedy_ns, "moves": schedule.moves}
        return Assignment(gpu, cpu, ndp, estimated_ns=schedule.makespan_ns, details=details)

    def _prefill(self, view: LayerView) -> Assignment:
        """The GPU "performs all inference computations" of the prefill (Section 4.1)."""
        loads = view.loads
        active = np.flatnonzero(loads)
        order = active[np.lexsort((-loads[active], _gpu_rank(view)[active]))].tolist()
        if loads.max() > self.estimates.most_tokens:
            return Assignment(order)
        costs = self.costs.costs(loads, view.placement, view.arriving)
        costs.time[CPU:] = np.inf
        schedule = self._scheduled(view, costs)
        return Assignment(order, estimated_ns=schedule.makespan_ns)

    def _scheduled(self, view: LayerView, costs: EngineCosts, limit: int = 0) -> Schedule:
        dimms, shared_ns = self.machine.dimms, self.estimates.shared_ns
        return scheduled(costs, view.placement, view.loads, dimms, shared_ns, limit)

    # ---- migrations (Section 4.3)

    def background(self, view: BackgroundView) -> Sequence[Migration]:
        """Prefetches, relayouts and rebalances for the next layer, by benefit, within the window."""
        wanted = self.parameters
        if view.phase == "prefill" or not (wanted.prefetch or wanted.relayout or wanted.rebalance):
            return ()
        row = self.row[view.layer]
        self._judge(row, view.loads)
        self.predictor.update(row, view.loads)  # eq. 8
        row = self.row[view.next_layer]
        expert_costs = self.costs.expert_costs(self.predictor.loads[row])
        classes = expert_costs.classes(self.room[row])
        window = self._window(view)
        tasks = window.taken(*self._tasks(view, row, expert_costs, classes == HOT, window))
        self._under_way += tasks
        self._expected = row, classes, tasks
        migrations = []
        for task in tasks:
            if task.victim is not None:
                migrations.append(Migration("evict", view.next_layer, task.victim))
            migrations.append(task.migration)
        return migrations

    def _window(self, view: BackgroundView) -> Window:
        """The window, minus the remaining time of earlier migrations."""
        wanted = self.parameters
        window = Window(
            self.estimates.window_ns, wanted.budget == "together", wanted.overrun, wanted.benefit_steps
        )
        moves = ((task, task.migration) for task in self._under_way)
        self._under_way = [task for task, to in moves if view.moving[self.row[to.layer], to.expert]]
        for task in self._under_way:
            window.spend(task)
        return window

    def _tasks(
        self, view: BackgroundView, row: int, expert_costs: ExpertCosts, hot: Flags, window: Window
    ) -> Iterator[Iterable[Task]]:
        """All tasks with a benefit whose resource is not full, by kind."""
        wanted, here = self.parameters, self._soon(view.placement.of_layer(row), view.next_layer)
        coming = Coming(
            view.next_layer, expert_costs, here, view.moving[row], self.machine.dimms, self.estimates
        )
        if wanted.prefetch and not window.full("pcie"):
            yield prefetches(coming, hot, view.gpu_free)
        if not self.machine.has_links or window.full("link"):
            return
        if wanted.relayout:
            yield relayouts(coming, window)
        if wanted.rebalance:
            most = 1 + int(window.budget_ns / max(self.estimates.rebalance_ns, 1.0))
            yield rebalances(coming, wanted.skew, most)

    def _soon(self, placement: LayerPlacement, layer: int) -> LayerPlacement:
        """The placement of a layer after all current migrations."""
        dimm, resident = placement.dimm.copy(), placement.resident.copy()
        for move in (task.migration for task in self._under_way):
            if move.layer == layer and move.kind == "prefetch":
                resident[move.expert] = True
            elif move.layer == layer:
                dimm[move.expert] = move.to
        return LayerPlacement(dimm, placement.shards, resident)

    def resident_worth(self, placement: Placement) -> Floats:
        """The predicted gain of a prefetch; experts of all layers with the least gain are evicted first."""
        rows = zip(self.predictor.loads, placement.dimm, strict=True)
        return np.array([self.costs.expert_costs(loads).gain(dimm) for loads, dimm in rows])

    # ---- accuracy of the prediction

    def _judge(self, row: int, loads: Ints) -> None:
        """Compare the predictions for a layer with its loads."""
        if self._expected is None or self._expected[0] != row:
            return
        _, classes, tasks = self._expected
        right = self.costs.classes(loads, self.room[row]) == classes
        self._classes.add(int(np.count_nonzero(right)), len(classes))
        if tasks:
            expert_costs = self.costs.expert_costs(loads)
            self._decisions.add(sum(task.benefit(expert_costs) > 0 for task in tasks), len(tasks))

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


def _gpu_rank(view: LayerView) -> Ints:
    """Rank on the GPU: present experts, then arriving ones, so that copies of others advance meanwhile."""
    return np.where(view.placement.resident, 0, np.where(view.arriving, 1, 2))


POLICY = TriMoE
