"""Micron MT40A2G4 (x4), MT40A1G8 (x8) and MT40A512M16 (x16), 8 Gb DDR4 SDRAM.

The limits of the data sheet as public simulators carry them: DRAMsim3 those of all rates
(configs/DDR4_8Gb_x*.ini), gem5 those of 2400 MT/s (DDR4_2400_16x4, _8x8, _4x16) with IPP3N; both agree, and
PIMID gives die revision B for the x8 part at 2400 MT/s. So does Micron's data sheet of a module of it
(MTA18ASF2G72HZ, Rev. F 8/16, Table 15), from which IPP0 and IPP5B are. That of a module of x16 chips has the
same limits as DRAMsim3 at 2400 and 2666 MT/s, with IPP0 and IPP5B (validation/energy.md).
"""

from __future__ import annotations

from typing import Any

from ndpsim.dram.energy.currents import Currents

_LOOPS = ("IDD0", "IDD2N", "IDD3N", "IDD4R", "IDD4W")

# Data rate: (limits in mA in the order of the loops, tRP in ns of the rate's bin: 17, 19, 21 and 22 clocks).
_X4 = {2400: ((43, 34, 38, 110, 103), 14.16), 3200: ((52, 37, 47, 143, 130), 13.75)}
_X8 = {
    2400: ((48, 34, 43, 135, 123), 14.16),
    2666: ((51, 35, 46, 146, 132), 14.25),
    2933: ((54, 36, 49, 157, 141), 14.32),
    3200: ((57, 37, 52, 168, 150), 13.75),
}

_X16 = {
    2400: ((80, 34, 47, 243, 228), 14.16),
    2666: ((85, 35, 50, 263, 244), 14.25),
    2933: ((90, 36, 53, 283, 261), 14.32),
    3200: ((95, 37, 56, 302, 278), 13.75),
}

# IDD5B and IPP0 in mA, of all rates.
_AT_ALL_RATES = {"MT40A2G4": (250, 3), "MT40A1G8": (250, 3), "MT40A512M16": (280, 4)}

_ASSUMPTIONS = {
    "IPP2N": "not in the sources; that of IPP3N, whose limit holds for all standby loops",
    "IPP5B": "of the x8 part at 2400 MT/s; the x16 part has the same at 2400 and 2666 MT/s; taken for all",
    "driver_ohm": "RZQ/7 of JESD79-4, the driver that IDD loops use",
    "termination_ohm": "RZQ/5 of JESD79-4, a usual setting at both ends; half of the bits low",
}


def _chip(part: str, rate: int, limits: tuple[int, ...], precharge_ns: float) -> Currents:
    loops: dict[str, Any] = dict(zip(_LOOPS, limits, strict=True))
    refresh, word_lines = _AT_ALL_RATES[part]
    return Currents(
        part=f"Micron {part}, DDR4-{rate}",
        source=(
            "limits of the 8 Gb data sheet, as in DRAMsim3, IPP3N as in gem5, IPP5B of a module's data "
            "sheet; tRAS, tRFC: JESD79-4"
        ),
        **loops,
        VDD=1.2,
        VDDQ=1.2,
        VPP=2.5,
        IDD5B=refresh,
        IPP0=word_lines,
        IPP2N=3,
        IPP3N=3,
        IPP5B=28,
        activate_ns=32,
        precharge_ns=precharge_ns,
        refresh_ns=350,
        driver_ohm=240 / 7,
        termination_ohm=240 / 5,
        assumptions=_ASSUMPTIONS,
    )


CURRENTS = {
    (f"DDR4_8Gb_{width}", rate): _chip(part, rate, *values)
    for width, part, table in (("x4", "MT40A2G4", _X4), ("x8", "MT40A1G8", _X8), ("x16", "MT40A512M16", _X16))
    for rate, values in table.items()
}
