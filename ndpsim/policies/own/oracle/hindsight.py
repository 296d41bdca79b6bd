"""Placements by the loads of the run itself, which no real system knows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from ndpsim.policies.offline import hottest_of_each, spread
from ndpsim.policies.script import Visit
from ndpsim.policies.views import Estimates, Ints, Machine, Placement


def layouts(machine: Machine, estimates: Estimates, loads: Mapping[Visit, Ints]) -> Iterator[Placement]:
    """Placements with every expert on N DIMMs, for each divisor N of their number; without NDP units striped.

    The GPU has equal numbers of experts of each layer, those with most tokens in the run. Each other expert
    goes to the DIMMs with the least work.
    """
    by_row = [
        np.stack([visit_loads for visit, visit_loads in loads.items() if visit.layer == layer])
        for layer in machine.layers
    ]
    empty = Placement.striped(len(by_row), machine.model.routed_experts)
    tokens = np.array([tokens_of_row.sum(axis=0) for tokens_of_row in by_row])
    empty.resident[:] = hottest_of_each(tokens, [machine.gpu_experts // len(by_row)] * len(by_row))
    if not machine.dimms:
        yield empty
    for shards in (count for count in range(machine.dimms, 0, -1) if machine.dimms % count == 0):
        times = estimates.ndp_ns if shards == 1 else estimates.sharded_ns(shards)
        dimm, groups = empty.dimm.copy(), machine.dimms // shards
        for row, tokens_of_row in enumerate(by_row):
            work = np.where(empty.resident[row], 0.0, times[tokens_of_row].sum(axis=0))
            dimm[row] = shards * spread(work, groups)
        yield Placement(dimm, np.full_like(empty.shards, shards), empty.resident)
