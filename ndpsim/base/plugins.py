"""Packages of plug-ins: every module is a plug-in, for example a standard or a format."""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path
from types import ModuleType
from typing import Any


def modules_by_name(folder: ModuleType) -> dict[str, ModuleType]:
    """The modules of the package `folder`, by their names in options."""
    names = sorted(module.name for module in pkgutil.iter_modules(folder.__path__))
    return {_option_name(name): importlib.import_module(f"{folder.__name__}.{name}") for name in names}


def plugins_by_module(folder: ModuleType, attribute: str) -> dict[str, Any]:
    """The objects `attribute` of the modules of the package `folder`, by the modules' names in options."""
    return {name: getattr(module, attribute) for name, module in modules_by_name(folder).items()}


def plugins(folder: ModuleType, attribute: str) -> list[Any]:
    """The objects of `plugins_by_module`, in order of the modules' names."""
    return list(plugins_by_module(folder, attribute).values())


def plugins_by_name(folder: ModuleType, attribute: str) -> dict[str, Any]:
    """`plugins` by their attribute `name`."""
    return {plugin.name: plugin for plugin in plugins(folder, attribute)}


def option_names(folder: str, first: str) -> tuple[str, ...]:
    """The option names of the modules of a package of ndpsim, `first` before others; none is imported."""
    found = pkgutil.iter_modules([str(Path(__file__).parents[1] / folder)])
    names = sorted(_option_name(module.name) for module in found)
    return first, *(name for name in names if name != first)


def _option_name(module: str) -> str:
    return module.replace("_", "-")
