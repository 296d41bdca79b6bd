"""All bundled names by kind, for ``ndpsim list`` and completion in the shell.

The module of a kind is imported when its names are needed. Policies and formats have the names of their
files, so listing them imports nothing slow.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from ndpsim.base.choices import LAYOUTS
from ndpsim.base.plugins import option_names


def _from(home: str, function: str) -> Callable[[], list[str]]:
    """A function that imports a module and returns the names that the module's function gives."""
    return lambda: list(getattr(import_module(f"ndpsim.{home}"), function)())


def _parts() -> list[str]:
    from ndpsim.config.files import PART_KINDS, part_names

    return [name for kind in PART_KINDS for name in part_names(kind)]


def _of_standards(presets: str) -> list[str]:
    from ndpsim.dram.spec import standards

    return [name for standard in standards().values() for name in getattr(standard, presets)]


#: Kinds of ``ndpsim list`` in its order.
NAMES: dict[str, Callable[[], list[str]]] = {
    "hw": _from("config", "hardware_names"),
    "parts": _parts,
    "rtl": _from("config.files", "rtl_names"),
    "models": _from("workload.models", "model_names"),
    "expert-times": _from("inference.processors", "table_names"),
    "layouts": lambda: sorted(LAYOUTS),
    "standards": lambda: sorted(_from("dram.spec", "standards")()),
    "orgs": lambda: _of_standards("organisations"),
    "configuration-formats": lambda: sorted(option_names("config/importers/formats", "dramsim3")),
    "request-formats": lambda: sorted(option_names("dram/traces/request_formats", "dramsim3")),
    "pim-hw": _from("config.banks", "bank_hardware_names"),
    "policies": lambda: sorted(
        (*option_names("policies/published", "trimoe"), *option_names("policies/own", "balance"))
    ),
    "routing": _from("workload.routing", "routing_names"),
    "routing-formats": lambda: list(option_names("workload/routing/formats", "counts")),
    "workloads": lambda: list(option_names("workload/requests/generators", "poisson")),
    "workload-formats": lambda: list(option_names("workload/requests/formats", "csv")),
    "command-forms": lambda: sorted(option_names("dram/traces/command_formats", "drampower")),
    "timings": lambda: _of_standards("speeds"),
    "weights": _from("workload.models.weights", "weight_names"),
}
