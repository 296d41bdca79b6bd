"""Policies and their parameters as text."""

from __future__ import annotations

from collections.abc import Iterable

from ndpsim.policies.choose import ENGINES, PolicyParameter, policies
from ndpsim.policies.interface import Policy
from ndpsim.report.metrics import value_words
from ndpsim.report.printing import print_table, print_text


def print_policies() -> None:
    """Print a line for each bundled policy: its engines, requirements and paper."""
    columns = ("policy", "engines", "needs", "paper")
    rows = [
        (policy.name, " ".join(policy.engines), " ".join(policy.needs) or "-", policy.paper)
        for policy in policies().values()
    ]
    print_table("", columns, rows, left=4)


def print_policy(policy: type[Policy], parameters: Iterable[PolicyParameter]) -> None:
    """Print the title, paper and engines of a policy, and its parameters with defaults."""
    print_text(f"{policy.name}: {policy.title}{f' ({policy.paper})' if policy.paper else ''}", bold=True)
    needs = ", ".join(ENGINES[engine] for engine in policy.needs)
    print_text(f"computes on {', '.join(policy.engines)}; needs {needs or 'no more than a GPU'}", indent="  ")
    if policy.mixed_steps:
        print_text(f"in mixed steps of serving: {policy.mixed_steps}", indent="  ")
    rows = [(one.name, value_words(one.default), one.type, one.description) for one in parameters]
    if rows:
        print_table("", ("parameter", "default", "is", "meaning"), rows, left=4)
    else:
        print_text("it has no parameters")
