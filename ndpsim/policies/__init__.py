"""Policies: they decide which engine computes which expert, and which experts move meanwhile.

A policy gets read-only views of what a real system could know at that moment, and returns its decisions. The
orchestrator checks every decision and simulates the time. `interface` defines arguments and results. Each
file or folder in `published` or `own` is one policy.
"""

from ndpsim.policies.choose import (
    ChosenPolicy,
    PolicyParameter,
    choose_policy,
    parameters_of,
    policies,
    policy_names,
)
from ndpsim.policies.conformance import PolicyCheck, check_policy
from ndpsim.policies.interface import Assignment, Migration, Part, Policy, PolicyParameters
from ndpsim.policies.offline import StatedPredictor
from ndpsim.policies.offloading import Offloading
from ndpsim.policies.views import (
    STRIPED,
    BackgroundView,
    Estimates,
    LayerPlacement,
    LayerView,
    Machine,
    OfflineView,
    Placement,
)

__all__ = [
    "STRIPED",
    "Assignment",
    "BackgroundView",
    "ChosenPolicy",
    "Estimates",
    "LayerPlacement",
    "LayerView",
    "Machine",
    "Migration",
    "OfflineView",
    "Offloading",
    "Part",
    "Placement",
    "Policy",
    "PolicyCheck",
    "PolicyParameter",
    "PolicyParameters",
    "StatedPredictor",
    "check_policy",
    "choose_policy",
    "parameters_of",
    "policies",
    "policy_names",
]
