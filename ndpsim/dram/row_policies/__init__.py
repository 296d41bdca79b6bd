"""Row policies, one module each: they close rows without a request for another row.

A module has the policy's parameters, a named tuple of integers that `of` makes, and functions that the
controllers call: for the fast controller, those of `fast.points`, `fast.step` and `fast.issue`
that differ from the default, which keeps rows open; for the general one, those of `maintenance` and
`issuing`.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any


def row_policy(name: str, cap: int) -> Any:
    """The parameters of the policy of this name."""
    return import_module(f"{__name__}.{name.replace('-', '_')}").of(cap)
