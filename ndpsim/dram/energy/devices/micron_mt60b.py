"""Micron MT60B2G8 (x8), 16 Gb DDR5 SDRAM: the currents of die revision A at 4800 MT/s.

The limits of the 16 Gb addendum of die revision A (Rev. D 02/2023, Table 6) are also part of public
simulators: PIMID quotes the x8 column with its pages; gem5 (DDR5_4400_4x8) has the same IDD2N, IDD3N and
IDD5B, and names IDD5C.
"""

from __future__ import annotations

from dataclasses import replace

from ndpsim.dram.energy.currents import Currents

_16GB = Currents(
    part="Micron MT60B2G8HB-48B:A, DDR5-4800",
    source=(
        "limits of die revision A, 16 Gb DDR5 SDRAM addendum, Table 6, as in PIMID; IDD5C as in gem5; "
        "tRAS, tRP of DDR5-4800B, tRFC: JESD79-5"
    ),
    VDD=1.1,
    VDDQ=1.1,
    VPP=1.8,
    IDD0=103,
    IDD2N=92,
    IDD3N=142,
    IDD4R=377,
    IDD4W=349,
    IDD5B=277,
    IDD5C=135,
    IPP0=8,
    IPP2N=6,
    IPP3N=7,
    IPP4R=9,
    IPP4W=36,
    IPP5B=28,
    activate_ns=32,
    precharge_ns=16,
    refresh_ns=295,
    same_bank_refresh_ns=130,
    driver_ohm=240 / 7,
    termination_ohm=240 / 5,
    assumptions={
        "IPP0, IPP4R, IPP4W, IPP5B": "found without the width of the part they are of; taken for x8",
        "driver_ohm": "RZQ/7 of JESD79-5, the driver that IDD loops use",
        "termination_ohm": "RZQ/5 of JESD79-5, a usual setting at both ends; half of the bits low",
    },
)

_32GB = replace(
    _16GB,
    part="Micron MT60B2G8HB-48B:A (16 Gb) in place of a 32 Gb part, DDR5-4800",
    refresh_ns=410,
    same_bank_refresh_ns=190,
    assumptions={
        "all": (
            "no data sheet of a 32 Gb part gives currents in public: those of 16 Gb, refreshes for as long "
            "as JESD79-5 gives a 32 Gb part"
        ),
        **_16GB.assumptions,
    },
)

_32GB_4000 = replace(
    _32GB,
    assumptions={
        "rate": "limits at 4000 MT/s are not in public: those at 4800, which are no lower",
        **_32GB.assumptions,
    },
)

CURRENTS = {("DDR5_16Gb_x8", 4800): _16GB, ("DDR5_32Gb_x8", 4800): _32GB, ("DDR5_32Gb_x8", 4000): _32GB_4000}
