"""TriMoE: `policy` is the policy, with the migrations of section 4.3; `makespan` has the equations of 4.2."""

from ndpsim.policies.published.trimoe.policy import POLICY

__all__ = ["POLICY"]
