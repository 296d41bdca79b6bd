"""What can be set of a policy, as text."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ndpsim.policies.choose import PolicyParameter
from ndpsim.report.printing import print_table, print_text

__all__ = ["print_policy"]


def print_policy(name: str, title: str, paper: str, parameters: Iterable[PolicyParameter]) -> None:
    """A policy's title and paper, and its parameters with defaults."""
    print_text(f"{name}: {title}{f' ({paper})' if paper else ''}", bold=True)
    rows = [(one.name, _written(one.default), one.type, one.description) for one in parameters]
    if rows:
        print_table("", ("parameter", "default", "is", "meaning"), rows, left=4)
    else:
        print_text("it has no parameters")


def _written(value: Any) -> str:
    """As it is typed: ``true``, ``none``, ``0.3``."""
    return str(value).lower() if isinstance(value, bool | None) else str(value)
