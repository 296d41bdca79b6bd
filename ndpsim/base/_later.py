"""Names of a package that are imported when they are first used."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any


def from_stub(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """`__getattr__`, `__dir__` and `__all__` of a package whose public names its stub imports.

    The stub ``__init__.pyi`` is the one list of them, for type checkers and for users alike: what it imports
    by the same name, and its functions, with their modules beside them.
    """
    file = sys.modules[package].__file__
    assert file is not None
    with open(f"{file}i", encoding="utf-8") as stub:
        lines = [line.split() for line in stub if not line.startswith(" ")]
    homes = {words[3]: words[1] for words in lines if words[:1] == ["from"] and words[4:5] == ["as"]}
    homes |= {words[1].rstrip("("): words[-1] for words in lines if words[:1] == ["def"]}  # def NAME(  # HOME
    names = sorted(homes)
    if package == "ndpsim":
        homes["__version__"] = "ndpsim.base.version"

    def find(name: str) -> Any:
        return import_home(package, {homes[name]: (name,)} if name in homes else {}, name)

    return find, lambda: list(names), names


def import_home(package: str, homes: Mapping[str, tuple[str, ...]], name: str) -> Any:
    """Import the object that a package calls `name` from its module in `homes`, and keep it in the package.

    Raises:
        AttributeError: no module of `homes` has it.
    """
    for home, names in homes.items():
        if name in names:
            value = getattr(importlib.import_module(home), name)
            setattr(importlib.import_module(package), name, value)
            return value
    raise AttributeError(f"module '{package}' has no attribute '{name}'")
