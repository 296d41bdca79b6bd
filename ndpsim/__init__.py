"""Cycle-level simulation of DRAM and near-data processing for mixture-of-experts models.

>>> import ndpsim
>>> result = ndpsim.simulate_expert("trimoe", "qwen3-235b-a22b", tokens=1)
>>> result.weight_bytes, result.bound
(37748736, 'memory')
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ndpsim._later import import_home

if TYPE_CHECKING:
    from ndpsim.audit import check, check_lanes
    from ndpsim.config import Hardware, load_hardware
    from ndpsim.errors import InputError
    from ndpsim.moe import Expert, load_model
    from ndpsim.simulate import (
        ContentionResult,
        ExpertResult,
        HostReadResult,
        PlacedExpert,
        RelayoutResult,
        TraceResult,
        place_expert,
        run_trace,
        simulate_contention,
        simulate_expert,
        simulate_host_read,
        simulate_relayout,
    )
    from ndpsim.spec import Device, resolve
    from ndpsim.traces import CommandTrace, read_commands, write_commands

__all__ = [
    "CommandTrace",
    "ContentionResult",
    "Device",
    "Expert",
    "ExpertResult",
    "Hardware",
    "HostReadResult",
    "InputError",
    "PlacedExpert",
    "RelayoutResult",
    "TraceResult",
    "check",
    "check_lanes",
    "load_hardware",
    "load_model",
    "place_expert",
    "read_commands",
    "resolve",
    "run_trace",
    "simulate_contention",
    "simulate_expert",
    "simulate_host_read",
    "simulate_relayout",
    "write_commands",
]

# Imported when first used: Numba and pydantic take their time, and not every use needs them.
_HOMES = {
    "ndpsim.audit": ("check", "check_lanes"),
    "ndpsim.config": ("Hardware", "load_hardware"),
    "ndpsim.errors": ("InputError",),
    "ndpsim.moe": ("Expert", "load_model"),
    "ndpsim.simulate": (
        "ContentionResult",
        "ExpertResult",
        "HostReadResult",
        "PlacedExpert",
        "RelayoutResult",
        "TraceResult",
        "place_expert",
        "run_trace",
        "simulate_contention",
        "simulate_expert",
        "simulate_host_read",
        "simulate_relayout",
    ),
    "ndpsim.spec": ("Device", "resolve"),
    "ndpsim.traces": ("CommandTrace", "read_commands", "write_commands"),
}


def __getattr__(name: str) -> Any:
    return import_home(__name__, _HOMES, name)
