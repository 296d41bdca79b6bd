"""Row policies: each is a module here, which says when rows close that no request asks to close.

A module has the type of the policy's parameters, of which `of` makes one, and for the fast controller a
function for each of `points`. Names are those of the modules.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from ndpsim.dram.row_policies.open import OPEN

__all__ = ["OPEN", "RowPolicy", "row_policy"]

#: The parameters of a policy, a named tuple of integers.
RowPolicy = tuple[int, ...]

#: The names of all, as options say them.
NAMES = tuple(
    sorted(module.name.replace("_", "-") for module in iter_modules(__path__) if module.name != "points")
)


def row_policy(name: str, cap: int) -> Any:
    """The policy of this name."""
    return import_module(f"{__name__}.{name.replace('-', '_')}").of(cap)
