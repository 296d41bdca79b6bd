"""Schedulers, one module each: they choose the ready request of a queue that issues its command first.

A module has the scheduler's parameters, a named tuple of integers that `of` makes, and overrides functions of
`choosing`, whose defaults choose the oldest ready request. Schedulers run on the general controller; the fast
one supports only the type `FRFCFS`.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any


def scheduler(name: str) -> Any:
    """The parameters of the scheduler of this name."""
    return import_module(f"{__name__}.{name.replace('-', '_')}").of()
