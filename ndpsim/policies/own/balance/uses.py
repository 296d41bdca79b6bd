"""Use of resources by the experts of a layer: section 2 of `docs/balance.md`.

Resources are the GPU, PCIe, the host's channels together, the CPU, and the NDP units of each group of DIMMs.
What an expert uses follows from its tokens, whether the GPU has it, and the median tokens of the layer.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ndpsim.assignment.least_maximum import CPU, GPU, NDP
from ndpsim.policies.views import Estimates, Flags, Floats, Ints, Machine

# Resources; the NDP units of each group of DIMMs follow. In tables an expert has one: that of its own group.
_GPU, _PCIE, _CHANNELS, _CPU, _GROUPS = range(5)
_OWN = _GROUPS


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
        self._beside = functools.cache(lambda typical: self._beside_reads(typical, losses))
        self.allowed = np.ones((2, 3), np.bool_)
        self.allowed[0, GPU] = machine.expert_buffers > 0
        self.allowed[:, CPU], self.allowed[:, NDP] = machine.has_cpu, machine.dimms > 0

    def _tables(self) -> tuple[Floats, Floats]:
        """Uses that all layers have: [here and tokens, way, resource]; overheads: [here and group, ...]."""
        machine, estimates = self.machine, self.estimates
        uses = np.zeros((2, len(self.cpu_ns), 3, _OWN + 1))
        overhead = np.zeros((2, 3, _OWN + 1))
        uses[:, :, GPU, _GPU], overhead[:, GPU, _GPU] = estimates.gpu_ns, estimates.gpu_part_ns
        uses[0, :, GPU, _PCIE], overhead[0, GPU, _PCIE] = self.copy_ns, estimates.pcie_part_ns
        uses[0, :, GPU, _CHANNELS] = self.read_ns
        if machine.has_cpu:
            uses[:, :, CPU, _CPU], overhead[:, CPU, _CPU] = self.cpu_ns, estimates.cpu_part_ns
            uses[:, :, CPU, _CHANNELS] = self.read_ns
            uses[:, :, CPU, _PCIE] = self._delay_ns(self.cpu_ns, self.copy_ns)
        if machine.dimms:
            uses[:, :, NDP, _OWN] = estimates.sharded_ns(self.shards)
            uses[:, :, NDP, _CHANNELS] = estimates.read_delay_ns(self.shards)
            overhead[:, NDP, _OWN] = estimates.ndp_part_ns(self.shards)
        of_groups = np.tile(np.arange(self.groups), 2)
        return uses.reshape(-1, 3, _OWN + 1), self._by_group(overhead.repeat(self.groups, axis=0), of_groups)

    def fixed(self, loads: Ints, arriving: int) -> tuple[Floats, Floats]:
        """Use of resources in any case (equation 4), and by the first expert on a way: [way, resource]."""
        estimates, machine = self.estimates, self.machine
        base, opening = np.zeros(_GROUPS + self.groups), np.zeros((3, _GROUPS + self.groups))
        base[_GPU] = estimates.shared_ns
        late = arriving - estimates.window_ns / self.copy_ns  # copies that windows have not hidden
        if late > 0:
            base[_PCIE], base[_CHANNELS] = late * self.copy_ns, late * self.read_ns
            if machine.has_cpu:
                base[_CPU] = late * self._delay_ns(self.copy_ns, self.cpu_ns[1])
        if len(loads):
            tokens = int(loads.sum()) // machine.model.experts_per_token
            vectors_ns = estimates.vector_ns + (tokens - 1) * estimates.token_ns
            opening[CPU, _CPU] = opening[NDP, _GROUPS:] = 2 * vectors_ns
            opening[CPU if machine.has_cpu else NDP, _PCIE] = vectors_ns
            opening[GPU, _PCIE] = estimates.gpu_ns[loads.min()]
        return base, opening

    def of(self, loads: Ints, here: Flags, groups: NDArray[np.integer]) -> tuple[Floats, Floats]:
        """Use of each expert (equations 1 to 3), and of any part of it: [expert, way, resource]."""
        at, missing = here.astype(np.int64), ~here
        uses = self._uses.take(at * len(self.cpu_ns) + loads, axis=0)
        ordered, middle = np.sort(loads), len(loads) // 2
        typical = int(ordered[middle] + ordered[~middle]) // 2
        typical_ns, cpu_delay_ns, lost_to_gpu_ns, lost_to_cpu_ns = self._beside(typical)
        uses[:, GPU, _CPU], uses[:, GPU, _OWN] = missing * cpu_delay_ns, missing * lost_to_gpu_ns
        uses[:, CPU, _OWN] = lost_to_cpu_ns
        uses[:, NDP, _CPU] = uses[:, NDP, _CHANNELS] * self.read_ns / typical_ns
        overhead = self._overhead.take(at * self.groups + groups, axis=0)
        return self._by_group(uses, groups), overhead

    def alone_ns(self, base: Floats, uses: Floats) -> float:
        """Time of experts that the GPU has, without vectors to and from other engines."""
        return float((base + uses[:, GPU].sum(axis=0))[:_CPU].max())

    def _by_group(self, own: Floats, groups: NDArray[np.integer]) -> Floats:
        """Resources with the units of all groups, of which an expert uses its own."""
        if self.groups == 1:
            return own
        uses = np.zeros((len(own), 3, _GROUPS + self.groups))
        uses[..., :_OWN] = own[..., :_OWN]
        uses[np.arange(len(own)), :, _OWN + groups] = own[..., _OWN]
        return uses

    def _beside_reads(self, typical: int, losses: bool) -> tuple[float, float, float, float]:
        """What depends on the layer's median tokens.

        Returns:
            The time of such an expert on the CPU; by how much a copy delays it; and the time that units lose
            while the host reads an expert for the GPU, and for the CPU.
        """
        has_cpu, typical_ns = self.machine.has_cpu, float(self.cpu_ns[typical])
        cpu_delay_ns = float(self._delay_ns(self.copy_ns, typical_ns)) if has_cpu else 0.0
        if not self.machine.dimms or not losses:
            return typical_ns, cpu_delay_ns, 0.0, 0.0
        to_cpu_ns = self.lost_ns(typical, typical_ns, self.copy_ns) if has_cpu else 0.0
        return typical_ns, cpu_delay_ns, self.lost_ns(typical, self.copy_ns, typical_ns), to_cpu_ns

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
