"""Names of the parts of a machine, and the format of values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ndpsim.config.system import MULTIPLIERS

_COMPONENTS = {"io": "I/O", "gpu": "GPU", "cpu": "CPU", "pcie": "PCIe"}


def counted(number: int, what: str) -> str:
    """``1 token``, ``12,000 tokens``, ``2 misses``."""
    if number == 1:
        return f"1 {what}"
    return f"{number:,} {what}{'es' if what.endswith('s') else 's'}"


def listed(counts: Mapping[str, int]) -> str:
    """``14,008 ACT, 560 REFab``."""
    return ", ".join(f"{number:,} {name}" for name, number in counts.items())


def clocks_of(cycles: int, clock_ns: float, ticks: int = 1) -> str:
    """``664,965 DRAM clocks of 0.41667 ns (2400 MHz)``; with two `ticks` a clock, half clocks."""
    what = {1: "DRAM clock", 2: "half DRAM clock"}.get(ticks, "tick")
    return f"{counted(cycles, what)} of {clock_ns:.5g} ns ({1000 / (clock_ns * ticks):.0f} MHz)"


def to_host_name(hardware: Mapping[str, Any]) -> str:
    """The path between a DIMM or memory device and the host; `hardware` as in a result's config."""
    return "CXL link" if hardware["cxl"] else "host bus"


def lane_name(hardware: Mapping[str, Any]) -> str:
    """The name of the parts of a DIMM or memory device that read weights in parallel."""
    return "channel" if hardware["cxl"] else "lane"


def unit_of_phase(hardware: Mapping[str, Any]) -> dict[str, str]:
    """The phases of an expert program in order, with their units."""
    multiplies = next(kind.called for name, kind in MULTIPLIERS.items() if hardware["ndp"][name])
    return {
        "activations-in": to_host_name(hardware),
        "gate-up": multiplies,
        "activation": "activation unit",
        "down": multiplies,
        "result-out": to_host_name(hardware),
    }


def source_words(source: Mapping[str, Any], otherwise: str) -> str:
    """The origin of a trace: its generator or files, or else `otherwise`."""
    if "generated" in source:
        return f"{source['generated']}, seed {source['seed']}{', offline' if source.get('offline') else ''}"
    if "imported" in source:
        return f"{', '.join(source['files'])} ({source['imported']})"
    return str(source.get("captured", otherwise))


def component_words(name: str) -> str:
    """A component of energies for readers: ``NDP static`` for `ndp_static`."""
    return _COMPONENTS.get(name, name.replace("ndp_", "NDP ").replace("_", " "))


def unknown_components(energy_nj: Mapping[str, float | None]) -> str:
    """The components whose energy is not known, separated by commas."""
    return ", ".join(component_words(name) for name, nj in energy_nj.items() if nj is None)
