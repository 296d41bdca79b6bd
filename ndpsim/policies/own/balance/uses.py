"""Use of resources by the experts of a layer: section 2 of `docs/balance.md`.

Resources are the GPU, PCIe, the host's channels together, the CPU, and the NDP units of each group of DIMMs.
What an expert uses follows from its tokens, whether the GPU has it, and the median tokens of the layer.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ndpsim.base.jit import same_types
from ndpsim.policies.assignment.expert_uses import (
    ARRIVING,
    CHANNELS_NS,
    COMING,
    CPU_NS,
    GPU_NS,
    GROUPS_NS,
    MISSING,
    PCIE_NS,
    PLACES,
    FixedUses,
    LayerTimes,
    Sharing,
    share_out,
)
from ndpsim.policies.assignment.least_maximum import CPU, GPU, NDP, WAYS, make_room
from ndpsim.policies.interface import GpuOrder, Parts
from ndpsim.policies.views import Estimates, Floats, Ints, Machine


class Uses:
    """Use of resources by experts that are sharded over a number of DIMMs.

    Attributes:
        shards: DIMMs of an expert.
        read_ns: the host reads an expert at its location.
        copy_ns: an expert's copy to the GPU: the longer of PCIe and the host's reading it.
        cpu_ns: an expert on the CPU, by tokens: the longer of computing and reading it (equation 1).
        groups: of DIMMs with experts of their own.
        allowed: [place, way]: whether an expert can be computed so.
        late_call_ns: calls of the GPU for an expert that it waits for.
    """

    def __init__(
        self, machine: Machine, estimates: Estimates, shards: int, losses: bool, gpu_order: GpuOrder
    ) -> None:
        self.machine, self.estimates, self.shards = machine, estimates, shards
        self.read_ns = estimates.sharded_read_ns(shards) if machine.dimms else estimates.striped_read_ns
        self.copy_ns = max(estimates.pcie_ns, self.read_ns)
        self.cpu_ns = np.maximum(estimates.cpu_ns, self.read_ns)
        self.groups = max(machine.dimms // shards, 1)
        self._losses, self._share_out = losses, same_types(share_out)
        #: One call; in the order of arrival it may interrupt that of the residents, which begins again.
        self.late_call_ns = (1 if gpu_order == "listed" else 2) * estimates.call_ns
        self.allowed = np.ones((PLACES, WAYS), np.bool_)
        self.allowed[MISSING, GPU], self.allowed[COMING, GPU] = machine.expert_buffers > 0, False
        self.allowed[:, CPU], self.allowed[:, NDP] = machine.has_cpu, machine.dimms > 0
        self._sharing, self._fixed = self._make_sharing(), self._fixed_uses()

    def tables(self) -> tuple[Floats, Floats]:
        """Uses that all layers have: [place and tokens, way, resource]; overheads: [place and group, ...]."""
        machine, estimates = self.machine, self.estimates
        uses = np.zeros((PLACES, len(self.cpu_ns), WAYS, GROUPS_NS + 1))
        overhead = np.zeros((PLACES, WAYS, GROUPS_NS + 1))
        uses[:, :, GPU, GPU_NS], overhead[:, GPU, GPU_NS] = estimates.gpu_ns, estimates.gpu_part_ns
        for place in (MISSING, ARRIVING):
            uses[place, :, GPU, GPU_NS] += self.late_call_ns
            overhead[place, GPU, GPU_NS] += self.late_call_ns
        uses[MISSING, :, GPU, PCIE_NS], overhead[MISSING, GPU, PCIE_NS] = self.copy_ns, estimates.pcie_part_ns
        uses[MISSING, :, GPU, CHANNELS_NS] = self.read_ns
        if machine.has_cpu:
            uses[:, :, CPU, CPU_NS], overhead[:, CPU, CPU_NS] = self.cpu_ns, estimates.cpu_part_ns
            uses[:, :, CPU, CHANNELS_NS] = self.read_ns
            uses[:, :, CPU, PCIE_NS] = self._delay_ns(self.cpu_ns, self.copy_ns)
        if machine.dimms:
            uses[:, :, NDP, GROUPS_NS] = estimates.sharded_ns(self.shards)
            uses[:, :, NDP, CHANNELS_NS] = estimates.read_delay_ns(self.shards)
            overhead[:, NDP, GROUPS_NS] = estimates.ndp_part_ns(self.shards)
        return uses.reshape(-1, WAYS, GROUPS_NS + 1), self._by_group(overhead).reshape(
            -1, WAYS, GROUPS_NS + self.groups
        )

    def _by_group(self, own: Floats) -> Floats:
        """Resources with units of all groups: [place, group, way, resource], of [place, way, resource]."""
        uses = np.zeros((PLACES, self.groups, WAYS, GROUPS_NS + self.groups))
        uses[..., :GROUPS_NS] = own[:, None, :, :GROUPS_NS]
        for group in range(self.groups):
            uses[:, group, :, GROUPS_NS + group] = own[..., GROUPS_NS]
        return uses

    def _make_sharing(self) -> Sharing:
        experts, resources = self.machine.model.routed_experts, GROUPS_NS + self.groups
        uses, overhead = np.empty((2, experts, WAYS, resources))

        def numbers(size: int = experts) -> Ints:
            return np.zeros(size, np.int64)

        return Sharing(
            *self.tables(),
            allowed=self.allowed,
            times=np.full((len(self.cpu_ns), len(LayerTimes._fields)), np.nan),
            gpu_ns=np.ascontiguousarray(self.estimates.gpu_ns),
            active=numbers(),
            tokens=numbers(),
            groups=numbers(),
            places=numbers(),
            uses=uses,
            overhead=overhead,
            allowed_ways=np.zeros((experts, WAYS), np.bool_),
            base=np.zeros(resources),
            opening=np.zeros((WAYS, resources)),
            way=numbers(),
            split_way=numbers(),
            split_parts=numbers(),
            loads=np.zeros(resources),
            counts=numbers(WAYS),
            room=make_room(experts, resources),
            like=numbers(),
            worth=np.zeros(experts),
            by_tokens=numbers(),
            spare=numbers(),
            ends=numbers(WAYS),
        )

    def _fixed_uses(self) -> FixedUses:
        estimates, machine = self.estimates, self.machine
        return FixedUses(
            float(estimates.shared_ns - estimates.call_ns),
            float(estimates.call_ns),
            float(self.late_call_ns),
            float(self.copy_ns),
            float(self.read_ns),
            float(self._delay_ns(self.copy_ns, self.cpu_ns[1])) if machine.has_cpu else 0.0,
            float(estimates.vector_ns),
            float(estimates.token_ns),
            float(estimates.hand_over_ns),
            machine.model.experts_per_token,
            machine.has_cpu,
            self.shards,
        )

    def share_out(
        self, loads: Ints, places: Ints, dimm: NDArray[np.int16], late: float, splits: int, parts: int
    ) -> tuple[float, list[Parts]]:
        """The largest load of a resource, and the parts of GPU, CPU and NDP units, most tokens first.

        For arguments see the kernel `share_out`.
        """
        experts, shares = np.empty(2 * len(loads), np.int64), np.empty(2 * len(loads))
        layer = loads, places, dimm, float(late), splits, parts, experts, shares
        typical, estimated_ns, *ends = self._share_out(self._sharing, self._fixed, *layer)
        if typical < 0:
            self._sharing.times[-typical] = self.times_beside_reads(-typical)
            _, estimated_ns, *ends = self._share_out(self._sharing, self._fixed, *layer)
        borders = itertools.pairwise((0, *ends))
        return estimated_ns, [Parts(experts[first:end], shares[first:end]) for first, end in borders]

    def times_beside_reads(self, typical: int) -> LayerTimes:
        """Times for the median tokens of a layer."""
        has_cpu, typical_ns = self.machine.has_cpu, float(self.cpu_ns[typical])
        cpu_delay_ns = float(self._delay_ns(self.copy_ns, typical_ns)) if has_cpu else 0.0
        if not self.machine.dimms or not self._losses:
            return LayerTimes(self.read_ns, typical_ns, cpu_delay_ns, 0.0, 0.0)
        to_cpu_ns = self.lost_ns(typical, typical_ns, self.copy_ns) if has_cpu else 0.0
        to_gpu_ns = self.lost_ns(typical, self.copy_ns, typical_ns)
        return LayerTimes(self.read_ns, typical_ns, cpu_delay_ns, to_gpu_ns, to_cpu_ns)

    def _delay_ns(self, reading_ns: Floats | float, other_ns: Floats | float) -> Any:
        """By how much a read that takes `reading_ns` alone delays one that takes `other_ns` (equation 2)."""
        wants, other = self.read_ns / reading_ns, self.read_ns / other_ns
        gets = np.minimum(wants, np.maximum(0.5, 1.0 - other))
        left = np.minimum(other, np.maximum(0.5, 1.0 - wants))
        return self.read_ns / gets * (1.0 - left / other)

    def lost_ns(self, tokens: int, read_ns: float, other_ns: float) -> float:
        """Time that units with an expert of so many tokens lose to a read beside another (equation 3)."""
        lost = self.estimates.lost_ns(self.shards, read_ns, other_ns)
        return float(lost[tokens]) if isinstance(lost, np.ndarray) else lost
