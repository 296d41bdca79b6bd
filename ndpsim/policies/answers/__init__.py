"""Legal answers of a policy; what is wrong with others, by policy, step, layer and expert."""

from ndpsim.policies.answers.asking import Answering
from ndpsim.policies.answers.assignment import CheckedAssignment, checked_assignment
from ndpsim.policies.answers.migrations import (
    MIGRATION_KINDS,
    checked_migrations,
    checked_placement,
    checked_worth,
    legal_migrations,
)

__all__ = [
    "MIGRATION_KINDS",
    "Answering",
    "CheckedAssignment",
    "checked_assignment",
    "checked_migrations",
    "checked_placement",
    "checked_worth",
    "legal_migrations",
]
