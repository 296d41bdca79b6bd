"""Finds the standards: every module in `ndpsim/spec/standards/` that defines `STANDARD`."""

from __future__ import annotations

import functools

from ndpsim.plugins import plugins
from ndpsim.spec import standards as _folder
from ndpsim.spec.standard import Standard

_NEEDED = ("rate", "tCK_ps", "nBL", "nCL", "nCWL", "nRAS", "nRP", "nRC", "nREFI", "nRFC")

__all__ = ["standard_names", "standards"]


@functools.cache
def standards() -> dict[str, Standard]:
    """All standards by name."""
    found = {}
    for standard in plugins(_folder, "STANDARD"):
        _check(standard)
        found[standard.name] = standard
    return found


def _check(standard: Standard) -> None:
    """Whoever writes a standard is told what the simulator needs of it."""
    for preset, speed in standard.speeds.items():
        missing = [name for name in _NEEDED if name not in {*speed, *standard.derived}]
        if missing:
            raise ValueError(f"{standard.name}: preset {preset} states no {', '.join(missing)}")


def standard_names() -> list[str]:
    """The names of all standards, sorted."""
    return sorted(standards())
