"""Micron Y52P (MT62F1G32D2 and others), dies of 16 Gb LPDDR5X SDRAM: the currents of one at 7500 MT/s.

The limits of the data sheet (315b-441b-561b-563b LPDDR5X, Rev. H 03/2025, Table 18, x16, bank-group mode
without DVFS, BL16), as PIMID quotes them with their page; it quotes neither those at 8533 MT/s nor those of
refreshes of one bank.
"""

from __future__ import annotations

from ndpsim.dram.energy.currents import Currents, Supply

CURRENTS = {
    ("LPDDR5X_16Gb_x16", 7500): Currents(
        part="Micron Y52P, a die of 16 Gb, LPDDR5X-7500",
        source=(
            "limits of the data sheet Rev. H, Table 18, x16, as in PIMID; VDD, IDD: of VDD2H, VPP, IPP: of "
            "VDD1; tRAS, tRP: JESD209-5; tRFC: Table 6"
        ),
        VDD=1.05,
        VDDQ=0.5,
        VPP=1.8,
        IDD0=53,
        IDD2N=32.5,
        IDD3N=40,
        IDD4R=390,
        IDD4W=265,
        IDD5B=205,
        IPP0=3.8,
        IPP2N=1.5,
        IPP3N=2.8,
        IPP4R=18,
        IPP4W=16.5,
        IDDQ3N=0.6,
        IDDQ4R=111.9,
        activate_ns=42,
        precharge_ns=18,
        refresh_ns=280,
        standby_banks=1,
        burst_banks=2,
        further={"VDD2L": Supply(0.9, IDD0=0.2, IDD2N=0.2, IDD3N=0.2)},
        assumptions={
            "IPP5B": "not in the source: that of standby, so that a refresh costs more",
            "standby_banks": (
                "one bank is open in the loop of IDD3N; each further one is taken to draw as much more, so "
                "that many open banks cost less"
            ),
            "burst_banks": "two, in turn, of two bank groups: tCCD_L is two bursts",
            "IDDQ4R": "typical, not a limit; whoever writes is taken to spend as much",
            "VDD2L": "0.9 V of JESD209-5",
        },
    )
}
