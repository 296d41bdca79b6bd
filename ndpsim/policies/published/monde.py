"""MoNDE: GPU and NDP; weights of hot experts move to the GPU, tokens of cold ones to the NDP units.

Kim et al., "MoNDE: Mixture of Near-Data Experts for Large-Scale Sparse Models", DAC 2024; as a baseline:
TriMoE, section 5.1.2, "a system that balances load between GPU and NDP by modeling the cost trade-off between
weight migration (to GPU) and activation migration (to NDP)"; for one sequence on several NDP units: Wu et
al., "A Scheduling Framework for Efficient MoE Inference on Edge GPU-NDP Systems" (the edge paper), Sections
III-B, III-C and IV-B: `variant=bandwidth,placement=cyclic,residents=none`. There is no released code.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
from pydantic import Field

from ndpsim.base.errors import InputError
from ndpsim.policies.interface import Assignment, Migration, PolicyParameters
from ndpsim.policies.offline import descending, hottest, mean_loads, spread
from ndpsim.policies.offloading import Offloading, places, places_in
from ndpsim.policies.views import STRIPED, BackgroundView, Floats, Ints, LayerView, OfflineView, Placement

_DYNANDE_SHARE = 0.05882


class MondeParameters(PolicyParameters):
    """Parameters of MoNDE."""

    variant: Literal["batched", "bandwidth", "dynande"] = "batched"
    """how many of the experts with most tokens the GPU loads. batched: as many as minimise the longer of
    their copies over PCIe and the slowest NDP unit (assumption for batches, the paper's balance with times in
    place of bandwidths); bandwidth: alpha x K x B_pcie / (B_pcie + N x B_ndp) of K activated experts, with N
    NDP units (single batch); dynande: ceil(0.05882 x K), as DynaNDE-Simulator reimplements it"""

    alpha: float | None = Field(None, ge=0, le=1000)
    """for variant bandwidth: factor of the number of experts on the GPU. none (the default): 1 at first and
    in a prefill, then, from decode step to decode step, by 'a scaling factor based on historical data' (the
    edge paper, section III-C): what would have been best by the policy's estimates, in proportion to the
    rule, in all steps so far; no source gives the way or a value"""

    migrations: float = Field(0.0, ge=0, le=1000)
    """experts that change places with the GPU's memory, a layer and decoded token ('periodic adjustments
    based on historical profiles', the edge paper, section I). As soon as they add up to a whole one, the
    expert of the layer with most tokens so far that the memory lacks is prefetched, in place of the one with
    fewest that it has, where there is no room besides. 0: none (no source gives a number; the speed-ups of
    the cxl paper need 0.04 to 0.06)"""

    placement: Literal["balanced", "cyclic"] = "balanced"
    """the DIMM of an expert. balanced: by NDP time in the offline trace; cyclic: expert e on DIMM e
    mod N (expert parallelism, single batch)"""

    residents: Literal["hot", "none"] = "hot"
    """what the GPU's memory holds. hot: the experts with most tokens in the offline trace ('pin hot,
    compute-intensive experts in GPU HBM', Fan et al., section 2.2, of MoNDE and its like; so all policies use
    the same memory); none: experts are only loaded on demand, as in the edge paper ('transmitting activation
    values rather than model weights'), but for `migrations`"""

    contention: bool = True
    """whether the host's reads and the NDP units slow each other down on a DIMM; false: as in the rule for H,
    which leaves it out"""


class Monde(Offloading[MondeParameters]):
    """MoNDE: GPU and NDP, hot experts loaded as far as that balances the two.

    The experts with most tokens on the GPU, the others on their DIMMs.
    """

    name = "monde"
    paper = "Kim et al., DAC 2024; TriMoE, section 5.1.2; the edge paper, section IV-A"
    engines = ("gpu", "ndp")
    mixed_steps = "The rules for decode: alpha by the steps before, migrations by tokens."

    def setup(self) -> None:
        """Create the counts of tokens, and the state of alpha."""
        self.contention = self.parameters.contention
        #: Tokens so far, [layer, expert]; the offline trace's mean counts as one step.
        self.tokens: Floats = np.zeros(self.machine.shape)
        #: Decode steps: the last one, experts on the GPU by the rule without alpha and in the optimum, and
        #: alpha.
        self.step, self.by_rule, self.best, self.alpha = 0, 0.0, 0, 1.0
        #: Due migrations, including a fraction.
        self.due = 0.0

    @property
    def copy_ns(self) -> float:
        """An expert's weights over PCIe."""
        return self.estimates.pcie_ns

    def place(self, view: OfflineView) -> Placement:
        """Every expert is on one DIMM; hot ones are also in the GPU's memory."""
        loads = mean_loads(view)
        self.tokens = loads.copy()
        placement = super().place(view)
        dimms, experts = self.machine.dimms, self.machine.model.routed_experts
        if self.parameters.residents == "hot":
            placement.resident[:] = hottest(loads, self.machine.gpu_experts)
        for row, resident in enumerate(placement.resident):
            if self.parameters.placement == "cyclic":
                placement.dimm[row] = np.arange(experts) % dimms
            else:
                tokens = np.clip(np.rint(loads[row]).astype(np.int64), 1, self.estimates.most_tokens)
                work = np.where(resident, 0.0, self.estimates.ndp_ns[tokens])
                placement.dimm[row] = spread(work, dimms)
        return placement

    def assign(self, view: LayerView) -> Assignment:
        """Experts in the GPU's memory, and the H missing ones with most tokens, go to the GPU.

        The rest go to the NDP units, on each DIMM the expert with most tokens first.
        """
        active = self.by_tokens(view)
        there = view.placement.resident[active] | view.arriving[active]
        here, missing = active[there], active[~there]
        ends = self._ends(view, here, missing)
        taken = self._on_gpu(view, ends)
        return Assignment(
            gpu=[*here.tolist(), *self._by_channels(view, missing[:taken])],
            ndp=missing[taken:].tolist(),
            estimated_ns=float(ends[taken]),
        )

    def _by_channels(self, view: LayerView, experts: Ints) -> list[int]:
        """Missing experts, channel by channel in turn, so that concurrent copies read different channels."""
        channels = np.array(self.machine.channel)[view.placement.dimm[experts]]
        same = np.tril(channels[:, None] == channels, -1).sum(axis=1)  # before it, of the same channel
        order: list[int] = experts[np.argsort(same, kind="stable")].tolist()
        return order

    def _on_gpu(self, view: LayerView, ends: Floats) -> int:
        """H, a part of the K activated experts that the GPU's memory does not have."""
        if self.parameters.variant == "batched":
            return int(np.argmin(ends))
        missing = len(ends) - 1
        if self.parameters.variant == "dynande":
            wanted = math.ceil(_DYNANDE_SHARE * missing)
        else:
            pcie = 1 / self.estimates.pcie_ns
            ndp = self.machine.dimms / self.estimates.ndp_ns[1]
            by_rule = missing * pcie / (pcie + ndp)
            alpha = self.parameters.alpha
            if alpha is None:
                alpha = self._by_its_past(view, by_rule, int(np.argmin(ends)))
            wanted = round(alpha * by_rule)
        return min(wanted, missing)

    def _by_its_past(self, view: LayerView, by_rule: float, best: int) -> float:
        """alpha, from all earlier decode steps."""
        if view.phase == "prefill":
            return 1.0
        if view.step != self.step:
            self.step = view.step
            self.alpha = self.best / self.by_rule if self.by_rule else 1.0
        self.by_rule += by_rule
        self.best += best
        return self.alpha

    def _ends(self, view: LayerView, here: Ints, missing: Ints) -> Floats:
        """The end of the layer if the GPU loads the first 0, 1, ... of the missing experts.

        It is the longest of: the copies over PCIe, the reads of one host channel, the slowest NDP unit, and
        the GPU's computing, which decides if an expert has thousands of tokens.
        """
        estimates, count = self.estimates, len(missing)
        loads = view.loads[missing]
        begun = estimates.shared_ns + estimates.gpu_ns[view.loads[here]].sum()
        computing = begun + np.append(0.0, np.cumsum(estimates.gpu_ns[loads]))
        location = view.placement.dimm[missing]
        if (location == STRIPED).any():
            raise InputError(
                "an expert is striped, where no NDP unit can compute it", "conflict", key="policy monde"
            )
        channel = np.array(self.machine.channel)
        reads = np.zeros((int(channel.max()) + 1, count + 1))
        reads[channel[location], np.arange(1, count + 1)] = estimates.localized_read_ns
        reading = np.cumsum(reads, axis=1).max(axis=0)
        copying = np.maximum(np.arange(count + 1) * estimates.pcie_ns, reading)
        return np.asarray(np.maximum.reduce([computing, copying, self._slowest_rest_ns(view, missing)]))

    def background(self, view: BackgroundView) -> Sequence[Migration]:
        """Migrations that are due, by the tokens so far."""
        row = self.row[view.layer]
        self.tokens[row] += view.loads
        if view.phase == "prefill" or not self.parameters.migrations:
            return ()
        self.due += self.parameters.migrations * len(view.ids)
        still, resident = ~view.moving, view.placement.resident
        missing = descending(self.tokens[row], np.flatnonzero(still[row] & ~resident[row]))
        victims = places(still & resident)
        # Experts of other layers only if this one has none, the coldest first.
        victims.sort(key=lambda expert: (expert[0] != row, self.tokens[expert]))
        free = max(view.gpu_free, 0)
        count = min(int(self.due), len(missing), free + len(victims))
        self.due -= count
        return self.replacing("prefetch", places_in(row, missing[:count]), victims, free)


POLICY = Monde
