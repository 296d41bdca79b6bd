"""A data sheet of no chip, whose every entry shows in an energy: V, mA, ns and ohm."""

from __future__ import annotations

SHEET = {
    "VDD": 1.0, "VPP": 2.0, "VDDQ": 1.1,
    "IDD0": 200.0, "IDD2N": 50.0, "IDD3N": 100.0, "IDD4R": 500.0, "IDD4W": 600.0, "IDD5B": 300.0, "IDD5C": 150.0,
    "IPP0": 9.0, "IPP2N": 5.0, "IPP3N": 6.0, "IPP4R": 16.0, "IPP4W": 17.0, "IPP5B": 40.0,
    "activate_ns": 30.0, "precharge_ns": 10.0, "refresh_ns": 400.0, "same_bank_refresh_ns": 200.0,
    "driver_ohm": 40.0, "termination_ohm": 60.0,
}  # fmt: skip
#: W of a chip in each loop, on both supplies; a same-bank refresh draws no more than standby on VPP.
WATTS = {loop: (SHEET[f"IDD{loop}"] + 2 * SHEET[f"IPP{loop}"]) / 1000 for loop in ("0", "2N", "3N", "4R", "4W", "5B")}  # fmt: skip
WATTS["5C"] = (SHEET["IDD5C"] + 2 * SHEET["IPP2N"]) / 1000


def sheet(**changes: float) -> tuple[str, ...]:
    """Settings of a hardware file with this data sheet."""
    return tuple(f"dram.power.{name}={value}" for name, value in {**SHEET, **changes}.items())


def io_watts(dq: int = 8) -> float:
    """W of a chip's pins: half of its data lines and one of the strobe's two are low, over both resistances."""
    return (dq / 2 + 1) * SHEET["VDDQ"] ** 2 / (SHEET["driver_ohm"] + SHEET["termination_ohm"])


def row_nj(banks: int) -> float:
    """Of a chip's ACT and the precharge behind it; what the bank draws while it is open is background."""
    return (WATTS["0"] - WATTS["2N"]) * (30 + 10) - open_bank_watts(banks) * 30


def open_bank_watts(banks: int) -> float:
    """W of a chip by bank that is open; in the loop of IDD3N, all are."""
    return (WATTS["3N"] - WATTS["2N"]) / banks
