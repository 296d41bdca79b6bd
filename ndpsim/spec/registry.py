"""Finds the standards: every module in `ndpsim/spec/standards/` that defines `STANDARD`."""

from __future__ import annotations

import functools
import importlib
import pkgutil

from ndpsim.spec import standards as _folder
from ndpsim.spec.standard import Standard

__all__ = ["standard_names", "standards"]


@functools.cache
def standards() -> dict[str, Standard]:
    """All standards by name."""
    found = {}
    for module in pkgutil.iter_modules(_folder.__path__):
        standard = importlib.import_module(f"{_folder.__name__}.{module.name}").STANDARD
        found[standard.name] = standard
    return found


def standard_names() -> list[str]:
    """The names of all standards, sorted."""
    return sorted(standards())
