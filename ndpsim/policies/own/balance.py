"""Balance: every expert on every engine at full speed, and the fullest resource as empty as possible.

`docs/balance.md` has the method, equation by equation. Experts are sharded over DIMMs that cover all channels
of the host: the host reads such an expert as fast as a striped one, and NDP units compute it at nearly full
efficiency. So each layer may choose among all ways of an expert, and none has to move between DIMMs.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from ndpsim.assignment.least_maximum import CPU, GPU, NDP, least_maximum
from ndpsim.policies.interface import (
    Assignment,
    GpuOrder,
    Migration,
    Policy,
    PolicyParameters,
    experts_and_parts,
)
from ndpsim.policies.offline import halves, hottest, hottest_of_each, mean_loads, spread
from ndpsim.policies.predictor import LoadPredictor
from ndpsim.policies.views import BackgroundView, Flags, Floats, Ints, LayerView, OfflineView, Placement

# Resources; the NDP units of each group of DIMMs follow.
_GPU, _PCIE, _CHANNELS, _CPU, _GROUPS = range(5)

#: Experts, and the share of each.
_Shares = list[tuple[int, float]]

_SAMPLED = 128  # layers of the offline trace, by which placements are judged, at most


class BalanceParameters(PolicyParameters):
    """Parameters of balance."""

    gpu_order: GpuOrder = "arrived"
    """of the experts that the GPU computes (docs/balance.md, section 4). listed: residents first; arrived:
    those that were copied first, as soon as they are there"""

    shards: int = Field(0, ge=0)
    """DIMMs over which every expert is sharded (section 1); 0: the number with the least estimated time"""

    splits: int = Field(3, ge=0, le=64)
    """experts of a layer that are split, at most (section 3)"""

    parts: int = Field(16, ge=2, le=1024)
    """a share of an expert is a whole number of these parts"""

    losses: bool = True
    """whether a read of the host counts on the NDP units that it slows (equation 3)"""

    prefetch: bool = True
    """whether experts are copied before their layer (section 5)"""

    alpha: float = Field(0.3, gt=0, le=1)
    """weight of the last step in the moving average of loads (equation 8)"""

    charge: Literal["none", "measured"] = "none"
    """whether a layer waits for the decision as long as it takes here"""

    foresight: bool = False
    """whether the next layer's loads are known, which no real system knows"""


class Balance(Policy[BalanceParameters]):
    """Balance: sharded experts, each layer's fullest resource as empty as possible.

    Least maximum over the resources of a layer, with experts sharded over all channels.
    """

    name = "balance"
    mixed_steps = "All rules, by all tokens of the step."

    def setup(self) -> None:
        """The predictor, and what `place` and `background` decide."""
        self.sees_the_future = self.parameters.foresight
        layers, experts = self.machine.shape
        self.predictor = LoadPredictor(layers, experts, self.parameters.alpha)
        #: DIMMs over which an expert is sharded, and residents by layer.
        self.shards, self.quota = 1, [0] * layers
        #: Prefetches for the layer that comes, in their order; whether each layer copied experts last time.
        self.prefetched: list[int] = []
        self.copies = np.ones(layers, np.bool_)

    # Before the first step

    def place(self, view: OfflineView) -> Placement:
        """Residents and the number of shards with the least estimated time; groups by least expected work."""
        loads = mean_loads(view)
        self.predictor.begin(loads)
        learned, judged = halves(view, _SAMPLED)
        self.shards, residents = min(
            itertools.product(self._divisors(), (self._evenly, self._hottest)),
            key=lambda chosen: self._estimated_ns(chosen[0], chosen[1](learned), learned, judged),
        )
        placement = super().place(view)
        placement.resident[:] = residents(loads)
        self.quota = placement.resident.sum(axis=1).tolist()
        if self.machine.dimms:
            placement.dimm[:], placement.shards[:] = self._groups(placement.resident, loads), self.shards
        return placement

    def _divisors(self) -> list[int]:
        """Numbers of DIMMs that may share an expert: divisors that cover all channels of the host."""
        dimms = self.machine.dimms
        if self.parameters.shards or not dimms:
            return [max(1, min(self.parameters.shards, dimms))]
        channel = self.machine.channel
        return [
            n
            for n in range(1, dimms + 1)
            if dimms % n == 0 and all({*channel[at : at + n]} == {*channel} for at in range(0, dimms, n))
        ]

    @cached_property
    def prefetches(self) -> int:
        """Copies that are under way at once in the window between two layers.

        They take the room of residents: none where these save more copying in a step than windows hide.
        """
        window_ns, copy_ns = self.estimates.window_ns, self.estimates.copy_ns
        if not self.parameters.prefetch or len(self.machine.layers) * window_ns <= copy_ns:
            return 0
        return min(math.ceil(window_ns / copy_ns), self.machine.gpu_experts // 2)

    def _evenly(self, loads: Floats) -> Flags:
        """The hottest experts of each layer, as many of each, beside the room for prefetches."""
        each, more = divmod(self.machine.gpu_experts - self.prefetches, len(loads))
        return hottest_of_each(loads, [each + (row < more) for row in range(len(loads))])

    def _hottest(self, loads: Floats) -> Flags:
        """The hottest experts of all layers, beside the room for prefetches."""
        return hottest(loads, self.machine.gpu_experts - self.prefetches)

    def _estimated_ns(
        self, shards: int, resident: Flags, loads: Floats, judged: Sequence[tuple[int, Ints]]
    ) -> float:
        """Estimated time of layers with experts over this many DIMMs, and with these residents."""
        self.shards = shards
        groups = self._groups(resident, loads) // shards if self.machine.dimms else np.zeros(loads.shape, int)
        return sum(self._shared_out(of, resident[row], (), groups[row])[0] for row, of in judged)

    def _groups(self, resident: Flags, loads: Floats) -> NDArray[np.int16]:
        """The first DIMM of each expert: groups have equal expected work of the experts not on the GPU."""
        tokens = np.arange(self.estimates.most_tokens + 1)
        work = np.interp(loads, tokens, self.estimates.sharded_ns(self.shards))
        groups = self.machine.dimms // self.shards
        rows = [spread(np.where(there, 0.0, of), groups) for there, of in zip(resident, work, strict=True)]
        return np.asarray(np.array(rows) * self.shards, np.int16)

    # A layer

    def assign(self, view: LayerView) -> Assignment:
        """The ways of least maximum; all on the GPU where that is faster."""
        arriving = [expert for expert in self.prefetched if view.arriving[expert]]
        groups = np.maximum(view.placement.dimm, 0) // self.shards
        resident = view.placement.resident
        estimated_ns, shares = self._shared_out(view.loads, resident, arriving, groups)
        self.copies[self.row[view.layer]] = not resident[[expert for expert, _ in shares[GPU]]].all()
        place = {expert: place for place, expert in enumerate(arriving)}
        shares[GPU].sort(key=lambda part: place.get(part[0], len(place)))
        gpu, cpu, ndp = map(experts_and_parts, shares)
        charge = self.parameters.charge
        return Assignment(
            gpu, cpu, ndp, estimated_ns=estimated_ns, planning=0.0 if charge == "none" else charge
        )

    def _shared_out(
        self, loads: Ints, resident: Flags, arriving: Sequence[int], groups: NDArray[np.integer]
    ) -> tuple[float, tuple[_Shares, _Shares, _Shares]]:
        """The largest load of a resource, and what each engine computes, those with most tokens first."""
        here = resident.copy()
        here[list(arriving)] = True
        active = np.flatnonzero(loads)
        order = active[np.lexsort((active, -loads[active], ~here[active]))]
        count, there, parts = len(order), int(here[order].sum()), self.parameters.parts
        base, opening = self._fixed(loads[order], len(arriving))
        if not count:
            return float(base.max()), ([], [], [])
        uses, overhead = self._uses(loads[order], here[order], groups[order])
        allowed = np.ones((count, 3), np.bool_)
        allowed[:, GPU] = here[order] | (self.machine.expert_buffers > 0)
        allowed[:, CPU], allowed[:, NDP] = self.machine.has_cpu, self.machine.dimms > 0
        way, other, moved, taken = (np.zeros(size, np.int64) for size in (count, count, count, 3))
        full, sums = np.zeros(len(base)), np.zeros((count + 1, *opening.shape))
        estimated_ns = least_maximum(
            uses, overhead, allowed, base, opening, there, self.parameters.splits, parts,
            way, other, moved, full, taken, sums,
        )  # fmt: skip
        alone_ns = float((base + uses[:, GPU].sum(axis=0))[:_CPU].max())
        if there == count and alone_ns <= estimated_ns:
            return alone_ns, ([(expert, 1.0) for expert in order.tolist()], [], [])
        lists: tuple[_Shares, _Shares, _Shares] = ([], [], [])
        for expert, first, second, number in zip(
            order.tolist(), way.tolist(), other.tolist(), moved.tolist(), strict=True
        ):
            lists[first].append((expert, 1.0 - number / parts))
            if number:
                lists[second].append((expert, number / parts))
        return estimated_ns, lists

    def _fixed(self, loads: Ints, arriving: int) -> tuple[Floats, Floats]:
        """Use of resources in any case (equation 4), and by the first expert on a way: [way, resource]."""
        estimates, machine = self.estimates, self.machine
        resources = _GROUPS + max(machine.dimms // self.shards, 1)
        base, opening = np.zeros(resources), np.zeros((3, resources))
        late = max(0.0, arriving - estimates.window_ns / self.copy_ns)  # copies that windows have not hidden
        base[_GPU], base[_PCIE], base[_CHANNELS] = (
            estimates.shared_ns,
            late * self.copy_ns,
            late * self.read_ns,
        )
        if machine.has_cpu:
            base[_CPU] = late * self._delay_ns(self.copy_ns, self.cpu_ns[1])
        if len(loads):
            tokens = int(loads.sum()) // machine.model.experts_per_token
            vectors_ns = estimates.vector_ns + (tokens - 1) * estimates.token_ns
            opening[CPU, _CPU] = opening[NDP, _GROUPS:] = 2 * vectors_ns
            opening[CPU if machine.has_cpu else NDP, _PCIE] = vectors_ns
            opening[GPU, _PCIE] = estimates.gpu_ns[loads.min()]
        return base, opening

    def _uses(self, loads: Ints, here: Flags, groups: NDArray[np.integer]) -> tuple[Floats, Floats]:
        """Use of each expert (equations 1 to 3), and of any part of it: [expert, way, resource]."""
        estimates, machine = self.estimates, self.machine
        experts, units = np.arange(len(loads)), _GROUPS + groups
        uses = np.zeros((len(loads), 3, _GROUPS + max(machine.dimms // self.shards, 1)))
        overhead = np.zeros_like(uses)
        missing, typical = ~here, int(np.median(loads))
        copy_ns, cpu_ns = self.copy_ns, self.cpu_ns
        typical_ns = float(cpu_ns[typical])
        uses[:, GPU, _GPU], overhead[:, GPU, _GPU] = estimates.gpu_ns[loads], estimates.gpu_part_ns
        uses[missing, GPU, _PCIE], overhead[missing, GPU, _PCIE] = copy_ns, estimates.pcie_part_ns
        uses[missing, GPU, _CHANNELS] = self.read_ns
        if machine.has_cpu:
            uses[:, CPU, _CPU], overhead[:, CPU, _CPU] = cpu_ns[loads], estimates.cpu_part_ns
            uses[:, CPU, _CHANNELS] = self.read_ns
            uses[:, CPU, _PCIE] = self._delay_ns(cpu_ns[loads], copy_ns)
            uses[missing, GPU, _CPU] = self._delay_ns(copy_ns, typical_ns)
        if machine.dimms:
            uses[experts, NDP, units] = estimates.sharded_ns(self.shards)[loads]
            uses[:, NDP, _CHANNELS] = _for_tokens(estimates.read_delay_ns(self.shards), loads)
            uses[:, NDP, _CPU] = uses[:, NDP, _CHANNELS] * self.read_ns / typical_ns
            overhead[experts, NDP, units] = estimates.ndp_part_ns(self.shards)
            if self.parameters.losses:
                uses[experts, GPU, units] = missing * self._lost_ns(typical, copy_ns, typical_ns)
                if machine.has_cpu:
                    uses[experts, CPU, units] = self._lost_ns(typical, typical_ns, copy_ns)
        return uses, overhead

    @property
    def read_ns(self) -> float:
        """The host's reading of an expert at its location."""
        estimates = self.estimates
        return estimates.sharded_read_ns(self.shards) if self.machine.dimms else estimates.striped_read_ns

    @property
    def copy_ns(self) -> float:
        """An expert's copy to the GPU: the longer of PCIe and the host's reading it."""
        return max(self.estimates.pcie_ns, self.read_ns)

    @property
    def cpu_ns(self) -> Floats:
        """An expert on the CPU, by tokens: the longer of computing and reading it."""
        return np.maximum(self.estimates.cpu_ns, self.read_ns)

    def _delay_ns(self, reading_ns: Floats | float, other_ns: Floats | float) -> Any:
        """By how much a read that takes `reading_ns` alone delays one that takes `other_ns` (equation 2)."""
        wants, other = self.read_ns / reading_ns, self.read_ns / other_ns
        gets = np.minimum(wants, np.maximum(0.5, 1.0 - other))
        left = np.minimum(other, np.maximum(0.5, 1.0 - wants))
        return self.read_ns / gets * (1.0 - left / other)

    def _lost_ns(self, tokens: int, read_ns: float, other_ns: float) -> Any:
        return _for_tokens(self.estimates.lost_ns(self.shards, read_ns, other_ns), tokens)

    # Between layers

    def background(self, view: BackgroundView) -> Sequence[Migration]:
        """The hottest experts of the layer that is done stay; the hottest missing ones of the next come."""
        row, after = self.row[view.layer], self.row[view.next_layer]
        self.predictor.update(row, view.loads)
        migrations = list(self._stay(view, row))
        room = view.gpu_free
        for one in migrations:
            room += 1 if one.kind == "evict" else -1
        self.prefetched = self._wanted(view, after, room)
        for expert in self.prefetched:
            migrations.append(Migration("prefetch", view.next_layer, expert, estimated_ns=self.copy_ns))
        return migrations

    def _stay(self, view: BackgroundView, row: int) -> Iterator[Migration]:
        """Keep as many of the hottest experts, of residents and copied ones, as the layer's quota allows."""
        resident = view.placement.resident[row] & ~view.moving[row]
        heat = np.where(resident | view.copied, self.predictor.loads[row], -1.0)
        kept = np.zeros(len(heat), np.bool_)
        kept[np.argsort(-heat, kind="stable")[: self.quota[row]]] = True
        for expert in np.flatnonzero(resident & ~kept).tolist():
            yield Migration("evict", view.layer, expert)
        for expert in np.flatnonzero(view.copied & kept & ~resident).tolist():
            yield Migration("keep", view.layer, expert)

    def _wanted(self, view: BackgroundView, row: int, room: int) -> list[int]:
        """Experts of the next layer that are copied meanwhile."""
        heat = self.predictor.loads[row] if view.next_loads is None else view.next_loads
        there = view.placement.resident[row] | view.moving[row]
        coming = np.argsort(-np.where(there, -1.0, heat), kind="stable")[: max(min(room, self.prefetches), 0)]
        hidden, wanted = self.estimates.window_ns / self.estimates.copy_ns, []
        for expert in coming.tolist():
            if there[expert] or heat[expert] <= 0 or not self._pays(row, heat[expert], hidden):
                break
            wanted.append(expert)
            hidden -= 1
        return wanted

    def _pays(self, row: int, heat: float, hidden: float) -> bool:
        """Whether a copy is hidden, or if only in part, saves more than it costs (equation 9)."""
        if hidden >= 1:
            return True
        unused, tokens = math.exp(-heat), math.ceil(heat)
        if not self.copies[row] or unused >= hidden:
            return False
        if not self.machine.dimms:
            return True
        lost_ns = self._lost_ns(tokens, self.copy_ns, float(self.cpu_ns[tokens]))
        saved_ns = self.estimates.sharded_ns(self.shards)[tokens]
        return bool((1 - unused) * saved_ns > (1 - hidden) * lost_ns)


def _for_tokens(by_tokens: Floats | float, tokens: Ints | int) -> Any:
    return by_tokens[tokens] if isinstance(by_tokens, np.ndarray) else by_tokens


POLICY = Balance
