"""Finds the standards: every module in `ndpsim/dram/spec/standards/` that defines `STANDARD`."""

from __future__ import annotations

import functools
import pkgutil

from ndpsim.dram.spec import standards as _folder
from ndpsim.dram.spec.pages import read_page
from ndpsim.dram.spec.standard import Standard


@functools.cache
def standards() -> dict[str, Standard]:
    """All standards by name.

    Raises:
        InputError: a page has no standard that can be simulated.
    """
    names = sorted(module.name for module in pkgutil.iter_modules(_folder.__path__))
    pages = [read_page(f"{_folder.__name__}.{name}") for name in names]
    return {standard.name: standard for standard in pages}


def standard_names() -> list[str]:
    """The names of all standards, sorted."""
    return sorted(standards())


def command_names() -> tuple[str, ...]:
    """The names of the commands of all standards, each once."""
    return tuple(dict.fromkeys(name for standard in standards().values() for name in standard.names))
