"""Schedulers, one module each: which ready request of a queue issues its command first.

A module has the scheduler's parameters, a named tuple of integers that `of` makes, and a part of its own for
each point at which `choosing` asks and is not to take the oldest ready request. Schedulers run on the general
controller; the fast one knows those of the type `FRFCFS`.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any


def scheduler(name: str) -> Any:
    """The parameters of the scheduler of this name."""
    return import_module(f"{__name__}.{name.replace('-', '_')}").of()
