"""Controller classes, one module each: the parts of a step that data cannot describe.

The file of a standard names its class, and the choices that the standard leaves to it. A module has
`CHOICES`, the names of those it knows, and `of`, which returns the parameters for the options and choices: a
named tuple with `slots`, the maximum number of commands in a step. It has `step`, see `dram.controller`. It
may have `words` and `queues`, its own state (`dram.state`), `COUNTED`, the names of its counters, and
`instead`, see `dram.step`.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from ndpsim.base.errors import unknown


def own_counters(name: str) -> tuple[str, ...]:
    """Names of a controller's own counters."""
    return getattr(_module(name), "COUNTED", ())


def make_step(name: str, options: Any, choices: Sequence[str] = ()) -> Any:
    """The parameters of the controller of this name, under the `ControllerOptions` of a channel.

    Raises:
        InputError: there is none, or it does not know a choice.
    """
    module = _module(name)
    known = getattr(module, "CHOICES", ())
    for choice in choices:
        if choice not in known:
            raise unknown(choice, known, f"choice of the controller {name}", key="choices")
    return module.of(options, frozenset(choices))


def _module(name: str) -> Any:
    known = [module.name.replace("_", "-") for module in pkgutil.iter_modules(__path__)]
    if name not in known:
        raise unknown(name, known, "controller", key="controller")
    return import_module(f"{__name__}.{name.replace('-', '_')}")
