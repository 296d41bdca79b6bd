"""Row policies, one module each: when a row closes that no request asks to close.

A module has the policy's parameters, a named tuple of integers that `of` makes, and the policy's part at
each point at which a controller asks: `fast.row_policy_points`, `fast.step` and `fast.issue` in the fast
one, where what a policy lacks keeps rows open; `maintenance` and `issuing` in the general one.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any


def row_policy(name: str, cap: int) -> Any:
    """The parameters of the policy of this name."""
    return import_module(f"{__name__}.{name.replace('-', '_')}").of(cap)
