"""Balance: every expert on every engine at full speed, and the fullest resource as empty as possible.

`docs/balance.md` has the method, equation by equation. Experts lie sharded over DIMMs that cover all channels
of the host: the host reads such an expert as fast as a striped one, and NDP units compute it at nearly full
efficiency. So each layer may choose among all ways of an expert, and none has to move between DIMMs.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from ndpsim.assignment.least_maximum import CPU, GPU, NDP, least_maximum
from ndpsim.policies.interface import (
    Assignment,
    BackgroundView,
    Estimates,
    Flags,
    Floats,
    GpuOrder,
    Ints,
    LayerView,
    Machine,
    Migration,
    OfflineView,
    Part,
    Placement,
    Policy,
    PolicyParameters,
)
from ndpsim.policies.offline import hottest, mean_loads, spread
from ndpsim.policies.predictor import LoadPredictor
from ndpsim.routing.trace import loads_of

__all__ = ["POLICY"]

# Resources; the NDP units of each group of DIMMs follow.
_GPU, _PCIE, _CHANNELS, _CPU, _GROUPS = range(5)

_SAMPLED = 128  # layers of the offline trace, by which placements are judged, at most


class BalanceParameters(PolicyParameters):
    """What can be set of balance."""

    gpu_order: GpuOrder = Field(
        "arrived",
        description="of the experts that the GPU computes. listed: as the policy lists them; arrived: those "
        "that were copied first, as soon as they are there, so that their buffers are free sooner",
    )
    shards: int = Field(
        0,
        ge=0,
        description="DIMMs over which every expert lies; 0: the number with the least estimated time",
    )
    splits: int = Field(3, ge=0, le=64, description="experts of a layer that two ways may share, at most")
    parts: int = Field(16, ge=2, le=1024, description="a share of an expert is a whole number of these parts")
    losses: bool = Field(True, description="whether a read of the host counts on the NDP units that it slows")
    prefetch: bool = Field(True, description="whether experts are copied before their layer")
    alpha: float = Field(
        0.3, gt=0, le=1, description="weight of the last step in the moving average of loads"
    )
    foresight: bool = Field(
        False, description="whether the next layer's loads are known, which no real system knows"
    )


class Balance(Policy):
    """Least maximum over the resources of a layer, with experts sharded over all channels."""

    name = "balance"
    title = "Balance: sharded experts, each layer's fullest resource as empty as possible"
    Parameters = BalanceParameters

    parameters: BalanceParameters

    def __init__(self, machine: Machine, estimates: Estimates, parameters: BalanceParameters) -> None:
        super().__init__(machine, estimates, parameters)
        self.sees_the_future = parameters.foresight
        self.predictor = LoadPredictor(len(machine.layers), machine.model.routed_experts, parameters.alpha)
        self.asked: list[int] = []  # prefetches for the layer that comes, in their order
        self.copied = np.ones(
            len(machine.layers), np.bool_
        )  # whether a layer copied experts when last visited
        self.shards = 1
        self.quota = [0] * len(machine.layers)  # residents by layer

    # Before the first step

    def place(self, view: OfflineView) -> Placement:
        """Residents and the number of shards with the least estimated time; groups by least expected work."""
        loads = mean_loads(view)
        self.predictor.begin(loads)
        learned, judged = self._halves(view)
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

    def _halves(self, view: OfflineView) -> tuple[Floats, list[tuple[int, Ints]]]:
        """Mean loads of the first steps of the offline trace; of the others, some layers: row and loads."""
        trace = view.trace
        if trace.steps < 2:
            return mean_loads(view), []
        rows = [trace.row(layer) for layer in self.machine.layers]
        loads = loads_of(trace.ids[:, rows], trace.experts)
        first, others = loads[: trace.steps // 2], loads[trace.steps // 2 :].reshape(-1, trace.experts)
        chosen = range(0, len(others), max(1, len(others) // _SAMPLED))
        return first.mean(axis=0), [(place % len(rows), others[place]) for place in chosen]

    def _divisors(self) -> list[int]:
        """Numbers of DIMMs that an expert may lie over: divisors that cover all channels of the host."""
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
        ranks = np.argsort(np.argsort(-loads, axis=1, kind="stable"), axis=1)
        return np.asarray(ranks < each + (np.arange(len(loads)) < more)[:, None])

    def _hottest(self, loads: Floats) -> Flags:
        """The hottest experts of all layers, beside the room for prefetches."""
        return hottest(loads, self.machine.gpu_experts - self.prefetches)

    def _estimated_ns(
        self, shards: int, resident: Flags, loads: Floats, judged: Sequence[tuple[int, Ints]]
    ) -> float:
        """What layers take with experts over so many DIMMs, and with these residents."""
        self.shards = shards
        groups = self._groups(resident, loads) // shards if self.machine.dimms else np.zeros(loads.shape, int)
        none = np.zeros(0, np.int64)
        times = (
            self._shared_out(of_layer, self._tokens(of_layer), resident[row], none, groups[row])[0]
            for row, of_layer in judged
        )
        return sum(times)

    def _tokens(self, loads: Ints) -> int:
        return int(loads.sum()) // self.machine.model.experts_per_token

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
        arriving = [expert for expert in self.asked if view.arriving[expert]]
        groups = np.maximum(view.placement.dimm, 0) // self.shards
        here = view.placement.resident
        estimated_ns, parts = self._shared_out(
            view.loads, view.tokens, here, np.array(arriving, np.int64), groups
        )
        gpu, cpu, ndp = parts
        self.copied[self.row[view.layer]] = any(not here[part.expert] for part in gpu)
        late = {expert: place for place, expert in enumerate(arriving)}
        gpu.sort(key=lambda part: late.get(part.expert, len(late)))
        return Assignment(gpu, cpu, ndp, estimated_ns=estimated_ns)

    def _shared_out(
        self, loads: Ints, tokens: int, resident: Flags, arriving: Ints, groups: NDArray[np.integer]
    ) -> tuple[float, tuple[list[Part], list[Part], list[Part]]]:
        """The largest load of a resource, and the parts of each engine, those with most tokens first."""
        here = resident.copy()
        here[arriving] = True
        active = np.flatnonzero(loads)
        order = active[np.lexsort((active, -loads[active], ~here[active]))]
        lists: tuple[list[Part], list[Part], list[Part]] = ([], [], [])
        base, opening = self._fixed(tokens, loads[order])
        if not len(order):
            return float(base.max()), lists
        late = max(0.0, len(arriving) - self.estimates.window_ns / self.copy_ns)  # copies that are not done
        base[_PCIE] += late * self.copy_ns
        base[_CHANNELS] += late * self.read_ns
        if self.machine.has_cpu:
            base[_CPU] += late * self._delay_ns(self.copy_ns, max(self.estimates.cpu_ns[1], self.read_ns))
        uses, overhead = self._uses(loads[order], here[order], groups[order])
        allowed = np.ones((len(order), 3), np.bool_)
        allowed[:, GPU] = here[order] | (self.machine.expert_buffers > 0)
        allowed[:, CPU], allowed[:, NDP] = self.machine.has_cpu, self.machine.dimms > 0
        count = int(here[order].sum())
        choice, second, moved = (np.zeros(len(order), np.int64) for _ in range(3))
        full, counts, sums = (
            np.zeros(len(base)),
            np.zeros(3, np.int64),
            np.zeros((len(order) + 1, *uses.shape[1:])),
        )
        splits, parts = self.parameters.splits, self.parameters.parts
        estimated_ns = least_maximum(
            uses, overhead, allowed, base, opening, count, splits, parts,
            choice, second, moved, full, counts, sums,
        )  # fmt: skip
        alone_ns = float((base + uses[:, GPU].sum(axis=0))[:_CPU].max())
        if count == len(order) and alone_ns <= estimated_ns:
            lists[GPU].extend(map(Part, order.tolist()))
            return alone_ns, lists
        for expert, way, other, number in zip(
            order.tolist(), choice.tolist(), second.tolist(), moved.tolist(), strict=True
        ):
            share = number / parts
            lists[way].append(Part(expert, 1.0 - share))
            if number:
                lists[other].append(Part(expert, share))
        return estimated_ns, lists

    def _fixed(self, tokens: int, loads: Ints) -> tuple[Floats, Floats]:
        """What resources bear in any case; and what is added when a way is taken: [way, resource].

        CPU and NDP units wait for activations, and results go back over PCIe after them. The GPU computes the
        expert that arrives last when PCIe has ended.
        """
        estimates, groups = self.estimates, max(self.machine.dimms // self.shards, 1)
        base, opening = np.zeros(_GROUPS + groups), np.zeros((3, _GROUPS + groups))
        base[_GPU] = estimates.shared_ns
        vectors_ns = estimates.vector_ns + (tokens - 1) * estimates.token_ns
        opening[CPU, _CPU] = opening[NDP, _GROUPS:] = 2 * vectors_ns
        opening[CPU if self.machine.has_cpu else NDP, _PCIE] = vectors_ns
        if len(loads):
            opening[GPU, _PCIE] = estimates.gpu_ns[loads.min()]
        return base, opening

    def _uses(self, loads: Ints, here: Flags, groups: NDArray[np.integer]) -> tuple[Floats, Floats]:
        """What each expert takes of each resource, and what of that any part of it takes: [expert, way, resource]."""
        estimates, machine = self.estimates, self.machine
        units = np.arange(len(loads)), _GROUPS + groups
        uses = np.zeros((len(loads), 3, _GROUPS + max(machine.dimms // self.shards, 1)))
        overhead = np.zeros_like(uses)
        missing = np.where(here, 0.0, 1.0)
        typical = int(np.clip(np.median(loads), 1, estimates.most_tokens))
        cpu_ns = np.maximum(estimates.cpu_ns, self.read_ns)
        uses[:, GPU, _GPU] = estimates.gpu_ns[loads]
        uses[:, GPU, _PCIE] = missing * self.copy_ns
        uses[:, GPU, _CHANNELS] = missing * self.read_ns
        overhead[:, GPU, _GPU], overhead[:, GPU, _PCIE] = (
            estimates.gpu_part_ns,
            missing * estimates.pcie_part_ns,
        )
        if machine.has_cpu:
            uses[:, CPU, _CPU] = cpu_ns[loads]
            uses[:, CPU, _CHANNELS] = self.read_ns
            uses[:, GPU, _CPU] = missing * self._delay_ns(self.copy_ns, cpu_ns[typical])
            uses[:, CPU, _PCIE] = self._delay_ns(cpu_ns[loads], self.copy_ns)
            overhead[:, CPU, _CPU] = estimates.cpu_part_ns
        if machine.dimms:
            uses[units[0], NDP, units[1]] = estimates.sharded_ns(self.shards)[loads]
            overhead[units[0], NDP, units[1]] = estimates.ndp_part_ns(self.shards)
            if self.parameters.losses:
                uses[units[0], GPU, units[1]] = missing * self._lost_ns(typical, self.copy_ns)
                if machine.has_cpu:
                    uses[units[0], CPU, units[1]] = self._lost_ns(typical, float(cpu_ns[typical]))
        return uses, overhead

    def _delay_ns(self, reading_ns: Floats | float, other_ns: float) -> Floats | float:
        """How much longer a reader that alone takes `other_ns` an expert takes beside one that takes `reading_ns`.

        Channels that do not suffice for both are shared equally, but for a reader that wants less.
        """
        wants, other = self.read_ns / reading_ns, self.read_ns / other_ns
        gets = np.minimum(wants, np.maximum(0.5, 1.0 - other))
        left = np.minimum(other, np.maximum(0.5, 1.0 - wants))
        return reading_ns * wants / gets * (1.0 - left / other)

    @property
    def read_ns(self) -> float:
        """The host's reading of an expert as experts lie."""
        if not self.machine.dimms:
            return self.estimates.striped_read_ns
        return self.estimates.sharded_read_ns(self.shards)

    @property
    def copy_ns(self) -> float:
        """An expert's copy to the GPU: the longer of PCIe and the host's reading it."""
        return max(self.estimates.pcie_ns, self.read_ns)

    def _lost_ns(self, tokens: int, read_ns: float) -> float:
        lost = self.estimates.lost_ns(self.shards, read_ns)
        return float(lost[tokens]) if isinstance(lost, np.ndarray) else lost

    # Between layers

    def background(self, view: BackgroundView) -> Sequence[Migration]:
        """The hottest of the layer that is done stay with the GPU; the hottest that the next one lacks come."""
        row, after = self.row[view.layer], self.row[view.next_layer]
        self.predictor.update(row, view.loads)
        migrations = list(self._stay(view, row))
        room = view.gpu_free
        for one in migrations:
            room += 1 if one.kind == "evict" else -1
        self.asked = self._wanted(view, after, room)
        for expert in self.asked:
            migrations.append(Migration("prefetch", view.next_layer, expert, estimated_ns=self.copy_ns))
        return migrations

    def _stay(self, view: BackgroundView, row: int) -> Iterator[Migration]:
        """Of residents and what was copied, as many of the hottest as the layer's quota has."""
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
            sure = self.copied[row] and math.exp(-heat[expert]) < hidden
            if there[expert] or heat[expert] <= 0 or (hidden < 1 and not sure):
                break
            wanted.append(expert)
            hidden -= 1
        return wanted


POLICY = Balance
