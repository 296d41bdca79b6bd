"""Use of resources by the experts of a layer: section 2 of `docs/balance.md`.

Resources are the GPU, PCIe, the host's channels together, the CPU, and the NDP units of each group of DIMMs.
What an expert uses follows from its tokens, whether the GPU has it, and the median tokens of the layer.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from ndpsim.policies.assignment.expert_uses import (
    CHANNELS_NS,
    CPU_NS,
    GPU_NS,
    GROUPS_NS,
    PCIE_NS,
    LayerTimes,
    fill_uses,
)
from ndpsim.policies.assignment.least_maximum import CPU, GPU, NDP
from ndpsim.policies.views import Estimates, Flags, Floats, Ints, Machine


class Uses:
    """Use of resources by experts that are sharded over a number of DIMMs.

    Attributes:
        shards: DIMMs of an expert.
        read_ns: the host reads an expert at its location.
        copy_ns: an expert's copy to the GPU: the longer of PCIe and the host's reading it.
        cpu_ns: an expert on the CPU, by tokens: the longer of computing and reading it (equation 1).
        groups: of DIMMs with experts of their own.
        allowed: [here, way]: whether an expert can be computed so; here 1: the GPU has it, or will have it.
    """

    def __init__(self, machine: Machine, estimates: Estimates, shards: int, losses: bool) -> None:
        self.machine, self.estimates, self.shards = machine, estimates, shards
        self.read_ns = estimates.sharded_read_ns(shards) if machine.dimms else estimates.striped_read_ns
        self.copy_ns = max(estimates.pcie_ns, self.read_ns)
        self.cpu_ns = np.maximum(estimates.cpu_ns, self.read_ns)
        self.groups = max(machine.dimms // shards, 1)
        self._uses, self._overhead = self._tables()
        self._layer_times = functools.cache(lambda typical: self._times_beside_reads(typical, losses))
        self.allowed = np.ones((2, 3), np.bool_)
        self.allowed[0, GPU] = machine.expert_buffers > 0
        self.allowed[:, CPU], self.allowed[:, NDP] = machine.has_cpu, machine.dimms > 0

    def _tables(self) -> tuple[Floats, Floats]:
        """Uses that all layers have: [here and tokens, way, resource]; overheads: [here and group, ...]."""
        machine, estimates = self.machine, self.estimates
        uses = np.zeros((2, len(self.cpu_ns), 3, GROUPS_NS + 1))
        overhead = np.zeros((2, 3, GROUPS_NS + 1))
        uses[:, :, GPU, GPU_NS], overhead[:, GPU, GPU_NS] = estimates.gpu_ns, estimates.gpu_part_ns
        uses[0, :, GPU, PCIE_NS], overhead[0, GPU, PCIE_NS] = self.copy_ns, estimates.pcie_part_ns
        uses[0, :, GPU, CHANNELS_NS] = self.read_ns
        if machine.has_cpu:
            uses[:, :, CPU, CPU_NS], overhead[:, CPU, CPU_NS] = self.cpu_ns, estimates.cpu_part_ns
            uses[:, :, CPU, CHANNELS_NS] = self.read_ns
            uses[:, :, CPU, PCIE_NS] = self._delay_ns(self.cpu_ns, self.copy_ns)
        if machine.dimms:
            uses[:, :, NDP, GROUPS_NS] = estimates.sharded_ns(self.shards)
            uses[:, :, NDP, CHANNELS_NS] = estimates.read_delay_ns(self.shards)
            overhead[:, NDP, GROUPS_NS] = estimates.ndp_part_ns(self.shards)
        return uses.reshape(-1, 3, GROUPS_NS + 1), self._by_group(overhead).reshape(
            -1, 3, GROUPS_NS + self.groups
        )

    def _by_group(self, own: Floats) -> Floats:
        """Resources with the units of all groups: [here, group, way, resource], of [here, way, resource]."""
        uses = np.zeros((2, self.groups, 3, GROUPS_NS + self.groups))
        uses[..., :GROUPS_NS] = own[:, None, :, :GROUPS_NS]
        for group in range(self.groups):
            uses[:, group, :, GROUPS_NS + group] = own[..., GROUPS_NS]
        return uses

    def fixed(self, loads: Ints, arriving: int) -> tuple[Floats, Floats]:
        """Use of resources in any case (equation 4), and by the first expert on a way: [way, resource].

        Args:
            loads: tokens of experts, the least first.
            arriving: experts on their way to the GPU.
        """
        estimates, machine = self.estimates, self.machine
        base, opening = np.zeros(GROUPS_NS + self.groups), np.zeros((3, GROUPS_NS + self.groups))
        base[GPU_NS] = estimates.shared_ns
        late = arriving - estimates.window_ns / self.copy_ns  # copies that windows have not hidden
        if late > 0:
            base[PCIE_NS], base[CHANNELS_NS] = late * self.copy_ns, late * self.read_ns
            if machine.has_cpu:
                base[CPU_NS] = late * self._delay_ns(self.copy_ns, self.cpu_ns[1])
        if len(loads):
            tokens = int(loads.sum()) // machine.model.experts_per_token
            vectors_ns = estimates.vector_ns + (tokens - 1) * estimates.token_ns
            opening[CPU, CPU_NS] = opening[NDP, GROUPS_NS:] = 2 * vectors_ns
            opening[CPU if machine.has_cpu else NDP, PCIE_NS] = vectors_ns
            opening[GPU, PCIE_NS] = estimates.gpu_ns[loads[0]]
        return base, opening

    def of(self, loads: Ints, here: Flags, groups: Ints, typical: int) -> tuple[Floats, Floats]:
        """Use of each expert (equations 1 to 3), and of any part of it: [expert, way, resource].

        typical: the median tokens of the layer.
        """
        times = self._layer_times(typical)
        uses, overhead = np.empty((2, len(loads), 3, GROUPS_NS + self.groups))
        fill_uses(self._uses, self._overhead, loads, here, groups, times, uses, overhead)
        return uses, overhead

    def alone_ns(self, base: Floats, uses: Floats) -> float:
        """Time of experts that the GPU has, without vectors to and from other engines."""
        return float((base + uses[:, GPU].sum(axis=0))[:CPU_NS].max())

    def _times_beside_reads(self, typical: int, losses: bool) -> LayerTimes:
        has_cpu, typical_ns = self.machine.has_cpu, float(self.cpu_ns[typical])
        cpu_delay_ns = float(self._delay_ns(self.copy_ns, typical_ns)) if has_cpu else 0.0
        if not self.machine.dimms or not losses:
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
