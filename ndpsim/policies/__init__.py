"""Policies: which engine computes which expert, and what moves meanwhile.

A policy sees frozen views of what its system could know at that moment and gives plain answers; the
orchestrator checks every answer and owns the time. `interface` says what it sees and what it answers; one
file or folder in `published`, or in `own`, is one policy.
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
from ndpsim.policies.offloading import Offloading
from ndpsim.policies.predictor import StatedPredictor
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
