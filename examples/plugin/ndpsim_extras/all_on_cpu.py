"""A MoE policy: the CPU computes every expert."""

from __future__ import annotations

import numpy as np

from ndpsim.policies import Assignment, Policy, PolicyParameters


class AllOnCpu(Policy[PolicyParameters]):
    """Every expert on the CPU."""

    name = "all-on-cpu"
    engines = ("cpu",)
    needs = ("cpu",)

    def assign(self, view):
        """All experts with tokens, on the CPU."""
        return Assignment(cpu=np.flatnonzero(view.loads))


POLICY = AllOnCpu
