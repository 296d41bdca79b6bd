"""Words for the parts of a machine and for values, and the DRAM of a result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ndpsim.dram.spec import Device, resolve, standards

_COMPONENTS = {"io": "I/O", "gpu": "GPU", "cpu": "CPU", "pcie": "PCIe"}


def counted(number: int, what: str) -> str:
    """``1 token``, ``12,000 tokens``, ``2 misses``."""
    if number == 1:
        return f"1 {what}"
    return f"{number:,} {what}{'es' if what.endswith('s') else 's'}"


def clock_words(cycles: int, clock_ns: float, config: Mapping[str, Any]) -> str:
    """``664,965 DRAM clocks of 0.41667 ns (2400 MHz)``; `config` as in the result, which names the DRAM."""
    dram = config["hardware"]["dram"] if "hardware" in config else config
    ticks = standards()[dram["standard"]].ticks_per_clock
    what = {1: "DRAM clock", 2: "half DRAM clock"}.get(ticks, "tick")
    return f"{counted(cycles, what)} of {clock_ns:.5g} ns ({1000 / (clock_ns * ticks):.0f} MHz)"


def device_of(hardware: Mapping[str, Any]) -> Device:
    """The DRAM of a lane; `hardware` as in a result's config."""
    dram = hardware["dram"]
    rules, sizes = dram.get("rules", "standard"), dram.get("organisation") or {}
    overrides = dram["overrides"] | {name: size for name, size in sizes.items() if size is not None}
    return resolve(dram["standard"], dram["org"], dram["timing"], 1, overrides, rules)


def refresh_interval_ns(hardware: Mapping[str, Any]) -> float:
    """The time from refresh to refresh of a rank (tREFI)."""
    device = device_of(hardware)
    return float(device.clocks("nREFI") * device.clock_ps / 1000)


def to_host_name(hardware: Mapping[str, Any]) -> str:
    """The path between a DIMM or memory device and the host; `hardware` as in a result's config."""
    return "CXL link" if hardware["cxl"] else "host bus"


def lane_name(hardware: Mapping[str, Any]) -> str:
    """The name of the parts of a DIMM or memory device that read weights in parallel."""
    return "channel" if hardware["cxl"] else "lane"


def unit_of_phase(hardware: Mapping[str, Any]) -> dict[str, str]:
    """The phases of an expert program in order, with their units."""
    from ndpsim.config.system import MULTIPLIERS  # noqa: PLC0415 (takes its time; traces need none)

    multiplies = next(kind.called for name, kind in MULTIPLIERS.items() if hardware["ndp"][name])
    return {
        "activations-in": to_host_name(hardware),
        "gate-up": multiplies,
        "up": multiplies,
        "activation": "activation unit",
        "down": multiplies,
        "result-out": to_host_name(hardware),
    }


_FILES = 4  # of a trace that are named


def source_words(source: Mapping[str, Any], otherwise: str) -> str:
    """The origin of a trace: its generator or files, or else `otherwise`."""
    if "generated" in source:
        return f"{source['generated']}, seed {source['seed']}{', offline' if source.get('offline') else ''}"
    if "imported" in source:
        files = source["files"]
        listed = (
            files if len(files) <= _FILES else [*files[: _FILES - 1], f"{len(files) - _FILES + 1} others"]
        )
        return f"{', '.join(listed)} ({source['imported']})"
    return str(source.get("captured", otherwise))


def component_words(name: str) -> str:
    """A component of energies for readers: ``NDP static`` for `ndp_static`."""
    return _COMPONENTS.get(name, name.replace("ndp_", "NDP ").replace("_", " "))


def unknown_components(energy_nj: Mapping[str, float | None]) -> str:
    """The components whose energy is not known, separated by commas."""
    return ", ".join(
        component_words(name) for name, nj in energy_nj.items() if nj is None and name != "total"
    )
