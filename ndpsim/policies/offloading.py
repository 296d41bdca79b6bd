"""Policies whose experts are in the host's memory, with copies of some in the GPU's memory."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import ClassVar

import numpy as np

from ndpsim.policies.interface import COPIES, Migration, Parameters_co, Policy
from ndpsim.policies.offline import descending
from ndpsim.policies.views import BackgroundView, Flags, Floats, Ints, LayerView, Machine, Placement

#: A row of `Machine.layers`, and an expert.
Place = tuple[int, int]


def cache_slots(machine: Machine, share: float, reserved: int = 0) -> list[int]:
    """Experts of each layer in the GPU's memory: a share of its experts, or as many as fit.

    Layers share the space evenly. The remainder goes to the first layers.

    Args:
        share: maximum share of a layer's experts.
        reserved: space, in experts, that stays free.
    """
    layers, experts = machine.shape
    most = round(share * experts)
    each, left = divmod(max(machine.gpu_experts - reserved, 0), layers)
    return [min(most, each + (row < left)) for row in range(layers)]


def places(flags: Flags) -> list[Place]:
    """The places [layer, expert] at which flags are set, in order."""
    return [(row, expert) for row, expert in np.argwhere(flags).tolist()]


def places_in(row: int, experts: Ints) -> list[Place]:
    """The places of some experts of a layer, in their order."""
    return [(row, expert) for expert in experts.tolist()]


class Offloading(Policy[Parameters_co]):
    """A policy that copies experts from the host's memory to the GPU, for one layer or to stay there.

    A policy needs all of its `engines`, unless its class sets `needs`.
    """

    engines: ClassVar[tuple[str, ...]] = ("gpu", "cpu")
    needs: ClassVar[tuple[str, ...]] = ("cpu",)

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "needs" not in cls.__dict__ and isinstance(cls.__dict__.get("engines"), tuple):
            cls.needs = tuple(engine for engine in cls.engines if engine != "gpu")

    @property
    def copy_ns(self) -> float:
        """Time of a copy of a striped expert. A policy with other layouts overrides it."""
        return self.estimates.copy_ns

    def residents(self, resident: Flags) -> Placement:
        """All experts are striped; the experts with a flag [layer, expert] are also in the GPU's memory."""
        placement = Placement.striped(*resident.shape)
        placement.resident[:] = resident
        return placement

    @staticmethod
    def by_tokens(view: LayerView) -> Ints:
        """The layer's active experts, experts with most tokens first."""
        return descending(view.loads, np.flatnonzero(view.loads))

    def by_arrival(self, view: LayerView) -> Ints:
        """Active experts in three groups, each by tokens: in the GPU's memory, being copied, and missing."""
        order = self.by_tokens(view)
        here = np.where(view.placement.resident[order], 0, np.where(view.arriving[order], 1, 2))
        return order[np.argsort(here, kind="stable")]

    def times_ns(
        self, view: LayerView, gpu: Ints | Sequence[int], cpu: Ints | Sequence[int] = ()
    ) -> tuple[float, float, float]:
        """Times of a layer on the GPU, on PCIe and on the CPU, each alone.

        The layer takes the longest of them if they overlap, else their sum.
        """
        estimates, there = self.estimates, view.placement.resident | view.arriving
        gpu, cpu = np.asarray(gpu, np.int64), np.asarray(cpu, np.int64)
        begun_ns = estimates.shared_ns - (0.0 if len(gpu) else estimates.call_ns)
        gpu_ns = begun_ns + float(estimates.gpu_ns[view.loads[gpu]].sum())
        cpu_ns = float(estimates.on_cpu_ns[view.loads[cpu]].sum()) if len(cpu) else 0.0
        return gpu_ns, np.count_nonzero(~there[gpu]) * self.copy_ns, cpu_ns

    def moves(self, kind: str, places: Iterable[Place]) -> list[Migration]:
        """Migrations of one kind; copies have the time of a copy."""
        took = self.copy_ns if kind in COPIES else 0.0
        return [Migration(kind, self.machine.layers[row], e, estimated_ns=took) for row, e in places]

    @staticmethod
    def least_first(flags: Flags, worth: Floats | Ints, most: int) -> list[Place]:
        """The places [layer, expert] at which flags are set, least worth first; at most `most`."""
        if most < 1:
            return []
        order = np.argsort(worth[flags], kind="stable")[:most]
        return [(row, expert) for row, expert in np.argwhere(flags)[order].tolist()]

    def _slowest_rest_ns(self, view: LayerView, experts: Ints) -> Floats:
        """Time of the slowest NDP unit with localized experts, without the first 0, 1, ... of them."""
        units = np.zeros((self.machine.dimms, len(experts) + 1))
        times_ns = self.estimates.ndp_ns[view.loads[experts]]
        units[view.placement.dimm[experts], np.arange(len(experts))] = times_ns
        return np.asarray(np.cumsum(units[:, ::-1], axis=1)[:, ::-1].max(axis=0))

    def replacing(
        self,
        kind: str,
        wanted: Iterable[Place],
        victims: Iterable[Place],
        free: int,
        worth: Floats | None = None,
    ) -> list[Migration]:
        """Migrations that bring wanted experts to the GPU, and evict victims if there is no room.

        They end if no victim is left, or if the next victim is worth as much as the wanted expert.

        Args:
            victims: the experts in the order of eviction.
            free: free space in experts.
            worth: [layer, expert]; None: victims are always evicted.
        """
        answer, leaving = list[Migration](), iter(victims)
        for expert in wanted:
            if free < 1:
                victim = next(leaving, None)
                if victim is None or (worth is not None and worth[victim] >= worth[expert]):
                    break
                answer += self.moves("evict", [victim])
                free += 1
            answer += self.moves(kind, [expert])
            free -= 1
        return answer

    @staticmethod
    def done_with(prefetched: Sequence[Place], view: BackgroundView, stay: Collection[int]) -> list[Place]:
        """Prefetched experts that have arrived and whose layer is done.

        stay: rows of the next layer, and of the current one.
        """
        there = view.placement.resident & ~view.moving
        return [expert for expert in prefetched if expert[0] not in stay and there[expert]]
