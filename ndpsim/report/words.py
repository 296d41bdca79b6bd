"""What the parts of a machine are called."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["lane_name", "to_host_name", "unit_of_phase"]


def to_host_name(hardware: Mapping[str, Any]) -> str:
    """What is between a DIMM or memory device and the host; `hardware` as in a result's config."""
    return "CXL link" if hardware["cxl"] else "host bus"


def lane_name(hardware: Mapping[str, Any]) -> str:
    """What the weights of a DIMM or memory device are read over in parallel."""
    return "channel" if hardware["cxl"] else "lane"


def unit_of_phase(hardware: Mapping[str, Any]) -> dict[str, str]:
    """The phases of an expert program in order, and the unit that each is about."""
    multiplies = "systolic arrays" if hardware["ndp"]["systolic"] else "GEMV unit"
    return {
        "activations-in": to_host_name(hardware),
        "gate-up": multiplies,
        "activation": "activation unit",
        "down": multiplies,
        "result-out": to_host_name(hardware),
    }
