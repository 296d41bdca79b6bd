"""The public simulations. Here, and nowhere else, configuration becomes kernels' integers."""

from ndpsim.simulate.contention import ContentionResult, simulate_contention
from ndpsim.simulate.expert import BITS, MAX_TOKENS, simulate_expert
from ndpsim.simulate.load import LoadPoint, sweep_load
from ndpsim.simulate.memory import Memory
from ndpsim.simulate.result import ExpertResult, Phase
from ndpsim.simulate.trace import TraceResult, run_requests, run_trace

__all__ = [
    "BITS",
    "MAX_TOKENS",
    "ContentionResult",
    "ExpertResult",
    "LoadPoint",
    "Memory",
    "Phase",
    "TraceResult",
    "run_requests",
    "run_trace",
    "simulate_contention",
    "simulate_expert",
    "sweep_load",
]
