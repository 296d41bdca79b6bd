"""Migrations that TriMoE has begun (Section 4.3), and their benefit in another step.

A task is a migration, with the eviction that makes space for it. Its benefit is the gain of the layer's next
visit:

- prefetch: the gain of the expert in the GPU's memory, minus the gain of the evicted one;
- relayout: the difference between the two layouts;
- rebalance: the reduction of the later end of the two DIMMs.

`ndpsim.policies.assignment.relocation` chooses migrations. After that visit the benefit is computed again
with the actual loads, to judge the decision.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ndpsim.policies.interface import Migration
from ndpsim.policies.published.trimoe.makespan import ExpertCosts
from ndpsim.policies.views import STRIPED, Flags, Ints


@dataclass(eq=False)
class Task:
    """A migration, and the expert that it evicts from the GPU's memory or None.

    `dimm`, `resident`: [expert]: the locations that the decision assumed.
    """

    migration: Migration
    victim: int | None
    dimm: Ints
    resident: Flags

    @property
    def uses_pcie(self) -> bool:
        """Whether it occupies PCIe, and not the links between DIMMs."""
        return self.migration.kind == "prefetch"

    def benefit(self, costs: ExpertCosts) -> float:
        """The benefit of the move in another step, in ns."""
        move, dimm = self.migration, self.dimm
        if move.kind == "prefetch":
            gain = costs.gain(dimm)
            return float(gain[move.expert] - (0.0 if self.victim is None else gain[self.victim]))
        if move.kind == "relayout":
            saved = float(costs.localized[move.expert] - costs.striped[move.expert])
            return saved if move.to == STRIPED else -saved
        times = np.where(self.resident, 0.0, costs.ndp)
        busy = np.bincount(dimm - STRIPED, times, move.to + 2)[1:]
        source, ndp_ns = dimm[move.expert], costs.ndp[move.expert]
        before = max(busy[source], busy[move.to])
        return float(before - max(busy[source] - ndp_ns, busy[move.to] + ndp_ns))
