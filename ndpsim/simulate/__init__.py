"""The public simulations. Here, and nowhere else, configuration becomes kernels' integers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ndpsim._later import import_home

if TYPE_CHECKING:
    from ndpsim.layout import BITS
    from ndpsim.simulate.contention import ContentionResult, simulate_contention
    from ndpsim.simulate.expert import MAX_TOKENS, simulate_expert
    from ndpsim.simulate.host import HostReadResult, simulate_host_read
    from ndpsim.simulate.load import LoadPoint, sweep_load
    from ndpsim.simulate.memory import Memory
    from ndpsim.simulate.placed import PlacedExpert, place_expert
    from ndpsim.simulate.relayout import MAX_EXPERTS, HostMove, RelayoutResult, Stretch, simulate_relayout
    from ndpsim.simulate.result import ExpertResult, Phase
    from ndpsim.simulate.trace import TraceResult, run_requests, run_trace

__all__ = [
    "BITS",
    "MAX_EXPERTS",
    "MAX_TOKENS",
    "ContentionResult",
    "ExpertResult",
    "HostMove",
    "HostReadResult",
    "LoadPoint",
    "Memory",
    "Phase",
    "PlacedExpert",
    "RelayoutResult",
    "Stretch",
    "TraceResult",
    "place_expert",
    "run_requests",
    "run_trace",
    "simulate_contention",
    "simulate_expert",
    "simulate_host_read",
    "simulate_relayout",
    "sweep_load",
]

# Imported when first used: who simulates an expert needs neither traces nor contention.
_HOMES = {
    "ndpsim.layout": ("BITS",),
    "ndpsim.simulate.contention": ("ContentionResult", "simulate_contention"),
    "ndpsim.simulate.expert": ("MAX_TOKENS", "simulate_expert"),
    "ndpsim.simulate.host": ("HostReadResult", "simulate_host_read"),
    "ndpsim.simulate.load": ("LoadPoint", "sweep_load"),
    "ndpsim.simulate.memory": ("Memory",),
    "ndpsim.simulate.placed": ("PlacedExpert", "place_expert"),
    "ndpsim.simulate.relayout": ("MAX_EXPERTS", "HostMove", "RelayoutResult", "Stretch", "simulate_relayout"),
    "ndpsim.simulate.result": ("ExpertResult", "Phase"),
    "ndpsim.simulate.trace": ("TraceResult", "run_requests", "run_trace"),
}


def __getattr__(name: str) -> Any:
    return import_home(__name__, _HOMES, name)
