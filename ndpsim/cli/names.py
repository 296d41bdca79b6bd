"""The names of what is bundled and known, by kind: for ``ndpsim list``, and for what the shell completes.

Their homes are imported when a kind is asked for. Policies, formats and the like are called by the names of
their files, so that nothing has to be imported which takes its time.
"""

from __future__ import annotations

from collections.abc import Callable

from ndpsim.parameters.layout import LAYOUTS
from ndpsim.plugins import option_names


def _hw() -> list[str]:
    from ndpsim.config import hardware_names

    return hardware_names()


def _parts() -> list[str]:
    from ndpsim.config.files import PART_KINDS, part_names

    return [name for kind in PART_KINDS for name in part_names(kind)]


def _rtl() -> list[str]:
    from ndpsim.config.files import rtl_names

    return rtl_names()


def _models() -> list[str]:
    from ndpsim.moe import model_names

    return model_names()


def _expert_times() -> list[str]:
    from ndpsim.processors import table_names

    return table_names()


def _standards() -> list[str]:
    from ndpsim.spec import standards

    return sorted(standards())


def _orgs() -> list[str]:
    from ndpsim.spec import standards

    return [org for standard in standards().values() for org in standard.organisations]


def _timings() -> list[str]:
    from ndpsim.spec import standards

    return [timing for standard in standards().values() for timing in standard.speeds]


def _routing() -> list[str]:
    from ndpsim.routing import routing_names

    return routing_names()


def _weights() -> list[str]:
    from ndpsim.moe.weights import weight_names

    return weight_names()


#: Kinds of ``ndpsim list`` in its order.
NAMES: dict[str, Callable[[], list[str]]] = {
    "hw": _hw,
    "parts": _parts,
    "rtl": _rtl,
    "models": _models,
    "expert-times": _expert_times,
    "layouts": lambda: sorted(LAYOUTS),
    "standards": _standards,
    "orgs": _orgs,
    "configuration-formats": lambda: sorted(option_names("importers/formats", "dramsim3")),
    "request-formats": lambda: sorted(option_names("traces/request_formats", "dramsim3")),
    "policies": lambda: sorted(
        (*option_names("policies/published", "trimoe"), *option_names("policies/own", "balance"))
    ),
    "routing": _routing,
    "routing-formats": lambda: list(option_names("routing/formats", "counts")),
    "workloads": lambda: list(option_names("workloads/generators", "poisson")),
    "workload-formats": lambda: list(option_names("workloads/formats", "csv")),
    "command-forms": lambda: sorted(option_names("traces/command_formats", "drampower")),
    "timings": _timings,
    "weights": _weights,
}
