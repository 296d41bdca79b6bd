"""Packages of plugins: every module is one of a kind, a standard or a format."""

from __future__ import annotations

import importlib
import pkgutil
from types import ModuleType
from typing import Any

__all__ = ["plugins"]


def plugins(folder: ModuleType, attribute: str) -> list[Any]:
    """What each module of the package `folder` calls `attribute`, by the modules' names."""
    names = sorted(module.name for module in pkgutil.iter_modules(folder.__path__))
    return [getattr(importlib.import_module(f"{folder.__name__}.{name}"), attribute) for name in names]
