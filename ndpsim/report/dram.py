"""The DRAM of a result: words, clocks and refresh for pictures and texts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ndpsim.dram.spec import Device, resolve, standards
from ndpsim.report.words import clocks_of


def clock_words(cycles: int, clock_ns: float, config: Mapping[str, Any]) -> str:
    """The clocks of a result with their period, in words; its config names the DRAM."""
    dram = config["hardware"]["dram"] if "hardware" in config else config
    return clocks_of(cycles, clock_ns, standards()[dram["standard"]].ticks_per_clock)


def device_of(hardware: Mapping[str, Any]) -> Device:
    """The DRAM of a lane; `hardware` as in a result's config."""
    dram = hardware["dram"]
    rules, sizes = dram.get("rules", "standard"), dram.get("organisation") or {}
    overrides = dram["overrides"] | {name: size for name, size in sizes.items() if size is not None}
    return resolve(dram["standard"], dram["org"], dram["timing"], 1, overrides, rules)


def refresh_clocks(device: Device) -> int:
    """The clocks of a refresh (tRFC), at least 1."""
    return max(1, *(device.clocks(command.busy) for command in device.standard.commands))


def refresh_interval_ns(hardware: Mapping[str, Any]) -> float:
    """The time from refresh to refresh of a rank (tREFI)."""
    device = device_of(hardware)
    return float(device.clocks("nREFI") * device.clock_ps / 1000)
