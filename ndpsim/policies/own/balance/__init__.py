"""Balance: `policy` decides; `uses` has the costs of experts."""

from ndpsim.policies.own.balance.policy import POLICY

__all__ = ["POLICY"]
