"""Controllers, each a module of its name here: what they do in a step that no table can say.

A standard's page names its controller. A module has the controller's parameters, a named tuple that `of`
makes, with `slots`, the most commands of a step; and `step`, see `dram.controller`. The fast controller knows
"one-command" only.
"""

from __future__ import annotations

import pkgutil
from importlib import import_module
from typing import Any

from ndpsim.errors import InputError, one_of

__all__ = ["make_step"]


def make_step(name: str) -> Any:
    """The parameters of the controller of this name.

    Raises:
        InputError: there is none.
    """
    known = [module.name.replace("_", "-") for module in pkgutil.iter_modules(__path__)]
    if name not in known:
        raise InputError(one_of(name, known, "controller"), key="controller")
    return import_module(f"{__name__}.{name.replace('-', '_')}").of()
