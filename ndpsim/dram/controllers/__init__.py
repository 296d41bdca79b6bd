"""Controllers, one module each: the parts of a step that no table can describe.

A standard's page names its controller. A module has the controller's parameters, a named tuple that `of`
makes of the options, with `slots`, the most commands of a step; and `step`, see `dram.controller`. It may
have `words` that it remembers and `queues` of its own (`dram.state`), `COUNTED`, the names of what it counts,
and `instead`, see `dram.step`. The fast controller knows "one-command" only.
"""

from __future__ import annotations

import pkgutil
from importlib import import_module
from typing import Any

from ndpsim.errors import unknown


def own_counters(name: str) -> tuple[str, ...]:
    """Names of what a controller counts besides what all controllers count."""
    return getattr(_module(name), "COUNTED", ())


def make_step(name: str, options: Any) -> Any:
    """The parameters of the controller of this name, under the `ControllerOptions` of a channel.

    Raises:
        InputError: there is none.
    """
    return _module(name).of(options)


def _module(name: str) -> Any:
    known = [module.name.replace("_", "-") for module in pkgutil.iter_modules(__path__)]
    if name not in known:
        raise unknown(name, known, "controller", key="controller")
    return import_module(f"{__name__}.{name.replace('-', '_')}")
