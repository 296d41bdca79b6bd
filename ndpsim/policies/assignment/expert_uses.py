"""Use of resources by the experts of a layer, from tables by tokens: see `docs/balance.md`, section 2."""

from __future__ import annotations

from typing import NamedTuple

from ndpsim.base.jit import kernel
from ndpsim.policies.assignment.least_maximum import CPU, GPU, NDP, WAYS

#: Resources; the NDP units of each group of DIMMs follow. In tables an expert has one: that of its own group.
GPU_NS, PCIE_NS, CHANNELS_NS, CPU_NS, GROUPS_NS = range(5)


class LayerTimes(NamedTuple):
    """Times that depend on the layer's median tokens."""

    read_ns: float  # the host reads an expert
    typical_ns: float  # an expert with the median tokens on the CPU
    cpu_delay_ns: float  # by how much a copy delays it
    lost_to_gpu_ns: float  # what units lose while the host reads an expert for the GPU
    lost_to_cpu_ns: float  # and for the CPU


@kernel
def fill_uses(table, overheads, tokens, there, groups, times, uses, overhead):
    """Set the use of resources by each expert, and by any part of it.

    Args:
        table: uses that all layers have, [here and tokens, way, resource].
        overheads: of parts, [here and group, way, resource].
        tokens, there, groups: of each expert, [expert]; `there`: the GPU has it, or will have it.
        times: `LayerTimes`.
        uses, overhead: [expert, way, resource]: are set.
    """
    counts, resources, groups_of_table = len(table) // 2, uses.shape[2], len(overheads) // 2
    for expert in range(len(tokens)):
        here, own = 1 if there[expert] else 0, GROUPS_NS + groups[expert]
        row, group = here * counts + min(tokens[expert], counts - 1), here * groups_of_table + groups[expert]
        for way in range(WAYS):
            for r in range(resources):
                uses[expert, way, r] = table[row, way, r] if r < GROUPS_NS else 0.0
                overhead[expert, way, r] = overheads[group, way, r]
        uses[expert, GPU, CPU_NS] = 0.0 if there[expert] else times.cpu_delay_ns
        uses[expert, GPU, own] = 0.0 if there[expert] else times.lost_to_gpu_ns
        uses[expert, CPU, own] = times.lost_to_cpu_ns
        uses[expert, NDP, own] = table[row, NDP, GROUPS_NS]
        uses[expert, NDP, CPU_NS] = uses[expert, NDP, CHANNELS_NS] * times.read_ns / times.typical_ns
