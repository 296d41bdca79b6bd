"""Finds the standards: every module in `ndpsim/spec/standards/` that defines `STANDARD`."""

from __future__ import annotations

import functools

from ndpsim.plugins import plugins
from ndpsim.spec import standards as _folder
from ndpsim.spec.checking import check_standard
from ndpsim.spec.standard import Standard

__all__ = ["command_names", "standard_names", "standards"]


@functools.cache
def standards() -> dict[str, Standard]:
    """All standards by name."""
    found = {}
    for standard in plugins(_folder, "STANDARD"):
        check_standard(standard)
        found[standard.name] = standard
    return found


def standard_names() -> list[str]:
    """The names of all standards, sorted."""
    return sorted(standards())


def command_names() -> tuple[str, ...]:
    """The names of the commands of all standards, each once."""
    return tuple(dict.fromkeys(name for standard in standards().values() for name in standard.names))
