"""The public simulations. Here, and nowhere else, configuration becomes kernels' integers."""

from ndpsim.layout import BITS
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
    "simulate_expert",
    "simulate_host_read",
    "simulate_relayout",
    "sweep_load",
]
