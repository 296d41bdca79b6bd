"""Names of a package that are imported when they are first used."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

__all__ = ["import_home"]


def import_home(package: str, homes: Mapping[str, tuple[str, ...]], name: str) -> Any:
    """What a package calls `name`, from the module whose names, in `homes`, it is one of; kept there.

    Raises:
        AttributeError: it is of none of them.
    """
    for home, names in homes.items():
        if name in names:
            value = getattr(importlib.import_module(home), name)
            setattr(importlib.import_module(package), name, value)
            return value
    raise AttributeError(f"module '{package}' has no attribute '{name}'")
