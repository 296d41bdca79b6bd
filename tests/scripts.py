"""Scripts of the checkout, which are not modules of the package."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[1]


def script(file: str) -> ModuleType:
    """A script, by its path in the checkout, as a module."""
    path = ROOT / file
    spec = importlib.util.spec_from_file_location(f"{path.parent.name}_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # data classes look up their module
    spec.loader.exec_module(module)
    return module
