"""The edge paper's framework: experts over all NDP units, balanced with the GPU, prefetched after a prefill.

Wu et al., "A Scheduling Framework for Efficient MoE Inference on Edge GPU-NDP Systems", Sections III-B
(tensor parallelism), III-C (load balance, equations 1 and 2) and III-D (dataset-free prefetch, equation 3).
There is no released code. Of the equations' terms, T_w is estimated as the longer of an expert's way over
PCIe and the host's reading it; T_g and T_n as means over the activated experts, each by its tokens on the GPU
and on all NDP units together; T_a as a token's vector over PCIe alone; S are the tokens of the layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from ndpsim.policies.interface import Assignment, Migration, Part, PolicyParameters, parts_of
from ndpsim.policies.offline import mean_loads
from ndpsim.policies.offloading import Offloading
from ndpsim.policies.views import BackgroundView, Floats, Ints, LayerView, OfflineView, Placement

# Parts of an expert that E_g is rounded to: every other number of columns is another simulation, and half of
# such a part is less than 1% of the time that an expert takes.
_PARTS = 64
_ROUNDING = 1e-12  # of a fraction


class EdgeParameters(PolicyParameters):
    """Parameters of the edge paper's framework."""

    tp: bool = True
    """tensor parallelism (Section III-B): every expert is sharded over all NDP units; without: expert e on
    DIMM e mod N (the expert parallelism of MoNDE that the paper compares with), T_n of the equations then
    being an N-th of an expert's time on one"""

    balance: bool = True
    """load balance (Section III-C): T_w E_g + T_g E_g' + (S - 1) T_a N = (N + 1) T_a + T_n E_n, equation 2,
    and 1 with S = 1; the E_g experts with most tokens go to the GPU, of the last one a part of its columns
    (the paper does not say which experts; the GPU's time depends least on tokens)"""

    prefetch: bool = True
    """dataset-free prefetch (Section III-D): the experts of each layer that are activated most in the prefill
    are copied to the GPU after it; in decode the GPU computes those that are there, E_max at most, in whole
    experts, T_g E_max = (TopK - E_max) T_n + (1 + N) T_a (equation 3), and the NDP units the others; where
    none is there, load balance decides. A run without a prefill has them there from the start, by the offline
    trace"""

    prefetch_experts: Literal["memory", "topk"] = "memory"
    """experts of a layer that are prefetched. memory (the default, the strategy itself, Section III-D, step
    2): x from 1 up as long as the GPU's memory has room for x of every layer; topk: TopK, where there is room
    (the ablation, Section IV-D; one for Mixtral)"""

    prefill_experts: Literal["activated", "topk"] = "topk"
    """E_g + E_n of equation 2. topk (the default): TopK as printed, the rest of a layer's experts on the NDP
    units; activated: all activated experts, as the text defines TopK ('the number of activated experts per
    layer'), which a prefill has more of"""

    contention: bool = True
    """whether the host's reads and the NDP units slow each other down on a DIMM; the paper's equations leave
    it out, and false shows how much of the gain it takes"""


class Edge(Offloading[EdgeParameters]):
    """Edge GPU-NDP: tensor parallelism, load balance by E_g, dataset-free prefetch.

    NDP units compute every expert together; the GPU takes as much of the work as balances the two.
    """

    name = "edge"
    paper = "Wu et al., A Scheduling Framework for Efficient MoE Inference on Edge GPU-NDP Systems"
    engines = ("gpu", "ndp")
    mixed_steps = "The rules for decode; only a prefill counts experts and prefetches the most activated."

    def setup(self) -> None:
        """Choose the number of prefetched experts, and prepare the counts of the prefill."""
        machine, parameters = self.machine, self.parameters
        self.contention = parameters.contention
        layers, model = len(machine.layers), machine.model
        each = machine.gpu_experts // layers
        if parameters.prefetch_experts == "topk":
            each = min(each, model.experts_per_token)
        self.prefetched = min(each, model.routed_experts) if parameters.prefetch else 0
        #: Tokens by expert in the prefill so far, [layer, expert].
        self.activated: Ints = np.zeros((layers, model.routed_experts), np.int64)

    @property
    def copy_ns(self) -> float:
        """T_w."""
        estimates = self.estimates
        read_ns = estimates.striped_read_ns if self.parameters.tp else estimates.localized_read_ns
        return max(estimates.pcie_ns, read_ns)

    def place(self, view: OfflineView) -> Placement:
        """Over all NDP units, or one after the other in turn."""
        placement = super().place(view)
        if self.parameters.tp:
            placement.dimm[:] = 0
            placement.shards[:] = self.machine.dimms
        else:
            placement.dimm[:] = np.arange(placement.dimm.shape[1]) % self.machine.dimms
        if not view.prefill_tokens:
            for row, experts in enumerate(self._most(mean_loads(view))):
                placement.resident[row, experts] = True
        return placement

    def _most(self, loads: Floats | Ints) -> Ints:
        """The experts of each layer for the GPU's memory, [layer, x], most tokens first."""
        return np.argsort(-loads, axis=1, kind="stable")[:, : self.prefetched]

    def _ndp_ns(self) -> Floats:
        """An expert by tokens, at its location."""
        return self.estimates.sharded_ns(self.machine.dimms) if self.parameters.tp else self.estimates.ndp_ns

    # ---- engines (Section III-C, and step 3 of III-D)

    def assign(self, view: LayerView) -> Assignment:
        """Experts in the GPU's memory go to the GPU, up to E_max; without such experts, E_g experts do."""
        active = np.flatnonzero(view.loads)
        order = active[np.lexsort((active, -view.loads[active], view.arriving[active]))]
        resident = view.placement.resident[order]
        balance = self._balance(view, self._shared_out(view, len(order)))
        if resident.any():
            most = int(balance.most_present())
            present = order[resident]
            on_gpu: list[int | Part] = present[:most].tolist()
            on_ndp: list[int | Part] = [*order[~resident].tolist(), *present[most:].tolist()]
            details = {"e_max": balance.most_present()}
        else:
            wanted = 0.0
            if self.parameters.balance and self.machine.expert_buffers:
                wanted = balance.on_gpu()
            on_gpu, on_ndp = self._split(order.tolist(), wanted)
            details = {"e_g": wanted}
        return Assignment(
            gpu=on_gpu, ndp=on_ndp, estimated_ns=self._layer_ns(view, on_gpu, on_ndp), details=details
        )

    def _shared_out(self, view: LayerView, activated: int) -> int:
        """E_g + E_n."""
        if view.phase == "prefill" and self.parameters.prefill_experts == "topk":
            return min(self.machine.model.experts_per_token, activated)
        return activated

    def _balance(self, view: LayerView, experts: int) -> LoadBalance:
        """The equations' terms for this layer."""
        loads = view.loads[view.loads > 0]
        ndp_ns = float(self._ndp_ns()[loads].sum()) / len(loads)
        return LoadBalance(
            transfer_ns=self.copy_ns,
            gpu_ns=float(self.estimates.gpu_ns[loads].sum()) / len(loads),
            vector_ns=self.estimates.vector_ns,
            ndp_ns=ndp_ns if self.parameters.tp else ndp_ns / self.machine.dimms,
            units=self.machine.dimms,
            tokens=view.tokens,
            experts=experts,
        )

    def _split(self, order: list[int], on_gpu: float) -> tuple[list[int | Part], list[int | Part]]:
        """The first `on_gpu` experts go to the GPU, the last of them perhaps with a part of its columns.

        A part is a whole number of 64ths of an expert's columns, and leaves each NDP unit at least one.
        """
        columns = self.machine.model.expert_intermediate
        step = -(-columns // _PARTS)
        whole = int(on_gpu)
        rest = round((on_gpu - whole) * columns / step) * step
        if columns - rest < self.machine.dimms:
            whole, rest = whole + 1, 0
        if not rest:
            return list(order[:whole]), list(order[whole:])
        share = rest / columns
        gpu: list[int | Part] = [*order[:whole], Part(order[whole], share)]
        return gpu, [Part(order[whole], 1 - share), *order[whole + 1 :]]

    def _layer_ns(self, view: LayerView, gpu: Sequence[int | Part], ndp: Sequence[int | Part]) -> float:
        """The time that the policy expects the layer to take."""
        estimates, loads, resident = self.estimates, view.loads, view.placement.resident
        computing, copying = estimates.shared_ns, 0.0
        for expert, share in parts_of(gpu):
            ns = share * float(estimates.gpu_ns[loads[expert]])
            copying += 0.0 if resident[expert] else share * self.copy_ns
            computing = max(computing, copying) + ns
        units = np.zeros(self.machine.dimms)
        for expert, share in parts_of(ndp):
            first, shards = int(view.placement.dimm[expert]), int(view.placement.shards[expert])
            units[first : first + shards] += share * float(self._ndp_ns()[loads[expert]])
        vectors = (self.machine.dimms + 1) * estimates.vector_ns if ndp else 0.0
        return max(computing, vectors + float(units.max()))

    # ---- prefetch (steps 1 and 2 of Section III-D)

    def background(self, view: BackgroundView) -> Sequence[Migration]:
        """Count experts in the prefill; after it, copy the most activated ones, one of each layer in turn."""
        if view.phase != "prefill":
            return ()
        self.activated[self.row[view.layer]] += view.loads
        if view.layer != self.machine.layers[-1]:
            return ()
        most = self._most(self.activated).T.tolist()
        return self.moves("prefetch", [expert for experts in most for expert in enumerate(experts)])


@dataclass(frozen=True)
class LoadBalance:
    """The number of experts for the GPU: equations 1 to 3, solved exactly; equation 1 is 2 for one token.

    Attributes:
        transfer_ns: T_w, transfer of an expert's weights to the GPU.
        gpu_ns: T_g, an expert on the GPU.
        vector_ns: T_a, a token's vector.
        ndp_ns: T_n, an expert on all NDP units together.
        units: N, the NDP units.
        tokens: S, the tokens of the layer.
        experts: experts to distribute, E_g + E_n.
    """

    transfer_ns: float
    gpu_ns: float
    vector_ns: float
    ndp_ns: float
    units: int
    tokens: int
    experts: int

    def on_gpu(self) -> float:
        """E_g, from 0 to all experts.

        It solves T_w E_g + T_g E_g' + (S - 1) T_a N = (N + 1) T_a + T_n E_n. E_g' is one N-th of E_g's
        fractional part; 1 / N where E_g is a multiple of N.

        Between whole numbers the left side grows linearly; at each whole number that is not a multiple of N
        it falls by T_g / N. There may be several solutions: this is the largest one, with the earliest end of
        the layer. Without a solution, all experts go to the side that ends first with all of them.
        """
        both = self.transfer_ns + self.ndp_ns
        # The time to distribute after the vectors of both sides have been sent.
        vectors = self.units + 1 - (self.tokens - 1) * self.units
        left = vectors * self.vector_ns + self.ndp_ns * self.experts
        if left <= 0:
            return 0.0
        for whole in range(int(min(left // both, self.experts)), -1, -1):
            fraction = (left - both * whole) / (both + self.gpu_ns / self.units)
            if fraction > 1 + _ROUNDING:
                break
            found = whole + fraction
            # At a multiple of N, E_g' is not 0, although the fraction is.
            at_a_jump = int(found) == whole and found % self.units == 0
            if fraction >= 0 and found <= self.experts and not at_a_jump:
                return found
        return float(self.experts)

    def most_present(self) -> float:
        """E_max of equation 3: the maximum number of experts in the GPU's memory that it computes."""
        vectors = (1 + self.units) * self.vector_ns
        return (self.experts * self.ndp_ns + vectors) / (self.gpu_ns + self.ndp_ns)


POLICY = Edge
