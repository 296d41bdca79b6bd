"""Packages of plugins: every module is one of a kind, a standard or a format."""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path
from types import ModuleType
from typing import Any


def plugins(folder: ModuleType, attribute: str) -> list[Any]:
    """The objects that modules of the package `folder` call `attribute`, by the modules' names."""
    names = sorted(module.name for module in pkgutil.iter_modules(folder.__path__))
    return [getattr(importlib.import_module(f"{folder.__name__}.{name}"), attribute) for name in names]


def plugins_by_name(folder: ModuleType, attribute: str) -> dict[str, Any]:
    """`plugins`, each by the `name` that it has."""
    return {plugin.name: plugin for plugin in plugins(folder, attribute)}


def option_names(folder: str, first: str) -> tuple[str, ...]:
    """The modules of a package of ndpsim as options call them, `first` before others; none is imported."""
    found = pkgutil.iter_modules([str(Path(__file__).parent / folder)])
    names = sorted(module.name.replace("_", "-") for module in found)
    return first, *(name for name in names if name != first)
