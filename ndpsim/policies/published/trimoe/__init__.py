"""TriMoE: `policy` is the policy; `makespan` has the equations of section 4.2, `relocation` those of 4.3."""

from ndpsim.policies.published.trimoe.policy import POLICY

__all__ = ["POLICY"]
