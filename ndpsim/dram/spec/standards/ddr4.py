"""DDR4 SDRAM, JESD79-4. Clause numbers are those of JESD79-4.

Under `--rules reference` the rules and values are those of Ramulator 2.1 (python/ramulator/dram/ddr4.py,
commit c5b1c3a): 360 ns of tRFC at 8 Gb, CL of 2400T and 2400U exchanged, tREFI rounded up, and no distance
between the data of a read and of a write on another rank.
"""

from ndpsim.dram.spec.standard import (
    ByDensity,
    ByWidthAndRate,
    Command,
    Every,
    Organisation,
    Rule,
    Standard,
    Sum,
)

_READS, _WRITES = ("RD", "RDA"), ("WR", "WRA")
_COLUMN = _READS + _WRITES

_SHARED = (
    # The data bus carries one burst at a time.
    Rule("BL", "channel", _READS, _READS, "nBL"),
    Rule("BL", "channel", _WRITES, _WRITES, "nBL"),
    # Column commands within a rank (4.24-4.27).
    Rule("tCCD_S", "rank", _READS, _READS, "nCCDS"),
    Rule("tCCD_S", "rank", _WRITES, _WRITES, "nCCDS"),
    Rule("tRTW", "rank", _READS, _WRITES, "nCL + nBL + 2 - nCWL"),
    Rule("tWTR_S", "rank", _WRITES, _READS, "nCWL + nBL + nWTRS"),
    # Another rank takes over the data bus.
    Rule("tCS", "rank", _WRITES, _READS, "nCWL + nBL + nCS - nCL", siblings=True),
    # Rows within a rank.
    Rule("tRRD_S", "rank", ("ACT",), ("ACT",), "nRRDS"),
    Rule("tFAW", "rank", ("ACT",), ("ACT",), "nFAW", window=4),
    Rule("tRAS", "rank", ("ACT",), ("PREab",), "nRAS"),
    Rule("tRP", "rank", ("PREab",), ("ACT",), "nRP"),
    # Refresh.
    Rule("tRC", "rank", ("ACT",), ("REFab",), "nRC"),
    Rule("tRP", "rank", ("PREpb", "PREab"), ("REFab",), "nRP"),
    Rule("tRTP + tRP", "rank", ("RDA",), ("REFab",), "nRTP + nRP"),
    Rule("tWR + tRP", "rank", ("WRA",), ("REFab",), "nCWL + nBL + nWR + nRP"),
    # Within a bank group.
    Rule("tCCD_L", "bankgroup", _READS, _READS, "nCCDL"),
    Rule("tCCD_L", "bankgroup", _WRITES, _WRITES, "nCCDL"),
    Rule("tWTR_L", "bankgroup", _WRITES, _READS, "nCWL + nBL + nWTRL"),
    Rule("tRRD_L", "bankgroup", ("ACT",), ("ACT",), "nRRDL"),
    # Within a bank.
    Rule("tRC", "bank", ("ACT",), ("ACT",), "nRC"),
    Rule("tRCD", "bank", ("ACT",), _COLUMN, "nRCD"),
    Rule("tRAS", "bank", ("ACT",), ("PREpb",), "nRAS"),
    Rule("tRP", "bank", ("PREpb",), ("ACT",), "nRP"),
    Rule("tRTP", "bank", ("RD",), ("PREpb",), "nRTP"),
    Rule("tWR", "bank", ("WR",), ("PREpb",), "nCWL + nBL + nWR"),
    Rule("tRTP + tRP", "bank", ("RDA",), ("ACT",), "nRTP + nRP"),
    Rule("tWR + tRP", "bank", ("WRA",), ("ACT",), "nCWL + nBL + nWR + nRP"),
)

_RULES = (
    *_SHARED,
    Rule("tRTP", "rank", _READS, ("PREab",), "nRTP"),
    Rule("tWR", "rank", _WRITES, ("PREab",), "nCWL + nBL + nWR"),
    # Another rank takes over the data bus: between the data at least nCS, before a write its preamble, too.
    Rule("tCS", "rank", _READS, _READS, "nBL + nCS", siblings=True),
    Rule("tRTW_DR", "rank", _READS, _WRITES, "nRTW_DR", siblings=True),
    Rule("tWTW_DR", "rank", _WRITES, _WRITES, "nWTW_DR", siblings=True),
    # No valid command goes to a rank within tRFC.
    Rule("tRFC", "rank", ("REFab",), ("ACT", "PREpb", "PREab", "REFab"), "nRFC"),
)

_REFERENCE_RULES = (
    *_SHARED,
    Rule("tRTP", "rank", ("RD",), ("PREab",), "nRTP"),
    Rule("tWR", "rank", ("WR",), ("PREab",), "nCWL + nBL + nWR"),
    Rule("tCS", "rank", _READS, _COLUMN, "nBL + nCS", siblings=True),
    Rule("tRFC", "rank", ("REFab",), ("ACT", "PREab"), "nRFC"),
)

# Density: (rows of a x4, x8, x16 device); a x16 device has two bank groups instead of four.
_ROWS = {2: (1 << 15, 1 << 14, 1 << 14), 4: (1 << 16, 1 << 15, 1 << 15), 8: (1 << 17, 1 << 16, 1 << 16)}
_ROWS[16] = (1 << 18, 1 << 17, 1 << 17)

_ORGANISATIONS = {
    f"DDR4_{gigabits}Gb_x{dq}": Organisation(gigabits * 1024, dq, 2 if dq == 16 else 4, 4, rows[index], 1024)
    for gigabits, rows in _ROWS.items()
    for index, dq in enumerate((4, 8, 16))
}

# By data rate: clocks that every speed bin of the rate shares (JESD79-4 tables of section 10).
_RATES = {
    1600: dict(tCK_ps=1250, nRAS=28, nWR=12, nRTP=6, nCWL=9, nCCDL=5, nWTRS=2, nWTRL=6),
    1866: dict(tCK_ps=1071, nRAS=32, nWR=14, nRTP=7, nCWL=10, nCCDL=5, nWTRS=3, nWTRL=7),
    2133: dict(tCK_ps=937, nRAS=36, nWR=16, nRTP=8, nCWL=11, nCCDL=6, nWTRS=3, nWTRL=8),
    2400: dict(tCK_ps=833, nRAS=39, nWR=18, nRTP=9, nCWL=12, nCCDL=6, nWTRS=3, nWTRL=9),
    2666: dict(tCK_ps=750, nRAS=43, nWR=20, nRTP=10, nCWL=14, nCCDL=7, nWTRS=4, nWTRL=10),
    2933: dict(tCK_ps=682, nRAS=47, nWR=22, nRTP=11, nCWL=16, nCCDL=8, nWTRS=4, nWTRL=11),
    3200: dict(tCK_ps=625, nRAS=52, nWR=24, nRTP=12, nCWL=16, nCCDL=8, nWTRS=4, nWTRL=12),
}

# Speed bins: CL = tRCD = tRP in clocks.
_BINS = {
    1600: {"J": 10, "K": 11, "L": 12},
    1866: {"L": 12, "M": 13, "N": 14},
    2133: {"N": 14, "P": 15, "R": 16},
    2400: {"P": 15, "R": 16, "T": 17, "U": 18},
    2666: {"T": 17, "U": 18, "V": 19, "W": 20},
    2933: {"V": 19, "W": 20, "Y": 21, "AA": 22},
    3200: {"W": 20, "AA": 22, "AC": 24},
}

_SPEEDS = {
    f"DDR4_{rate}{grade}": dict(
        rate=rate,
        nBL=4,
        nCCDS=4,
        nCS=2,
        nCL=cl,
        nRCD=cl,
        nRP=cl,
        nRC=_RATES[rate]["nRAS"] + cl,
        **_RATES[rate],
    )
    for rate, grades in _BINS.items()
    for grade, cl in grades.items()
}

_REFERENCE_SPEEDS = {
    **_SPEEDS,
    "DDR4_2400T": _SPEEDS["DDR4_2400U"],
    "DDR4_2400U": _SPEEDS["DDR4_2400T"],
}

_RRD_S = {4: ((3200, 4),), 8: ((3200, 4),), 16: ((1866, 5), (2133, 6), (2400, 7), (2933, 8), (3200, 9))}
_RRD_L_NARROW = ((1866, 5), (2400, 6), (2666, 7), (3200, 8))
_RRD_L = {
    4: _RRD_L_NARROW,
    8: _RRD_L_NARROW,
    16: ((1866, 6), (2133, 7), (2400, 8), (2666, 9), (2933, 10), (3200, 11)),
}
_FAW = {
    4: ((3200, 16),),
    8: ((1600, 20), (1866, 22), (2133, 23), (2400, 26), (2666, 28), (2933, 31), (3200, 34)),
    16: ((1866, 28), (2133, 32), (2400, 36), (2666, 40), (2933, 44), (3200, 48)),
}

_BY_WIDTH = {
    "nRRDS": ByWidthAndRate(_RRD_S),
    "nRRDL": ByWidthAndRate(_RRD_L),
    "nFAW": ByWidthAndRate(_FAW),
}

_CITED = {
    "rate": "JESD79-4 speed bins",
    "tCK_ps": "JESD79-4 speed bins: tCK(avg).MIN in whole ps",
    "nBL": "JESD79-4: BL8 on both edges of 4 clocks",
    "nCL": "JESD79-4 speed bins, CL of the bin's name",
    "nRCD": "JESD79-4 speed bins, equal to CL",
    "nRP": "JESD79-4 speed bins, equal to CL",
    "nRAS": "JESD79-4 speed bins: 35, 34, 33 ns at 1600, 1866, 2133, then 32 ns",
    "nRC": "JESD79-4: tRAS + tRP",
    "nWR": "JESD79-4: 15 ns",
    "nRTP": "JESD79-4: max(4 clocks, 7.5 ns)",
    "nCWL": "JESD79-4, CWL table (MR2), first set",
    "nCCDS": "JESD79-4: 4 clocks",
    "nCCDL": "JESD79-4: max(5 clocks, 6.25 ns at 1600; 5.355 ns at 1866, 2133; 5 ns)",
    "nWTRS": "JESD79-4: max(2 clocks, 2.5 ns)",
    "nWTRL": "JESD79-4: max(4 clocks, 7.5 ns)",
    "nCS": "none found (a choice of the system); as Ramulator 2.1 c5b1c3a",
    "nRRDS": "JESD79-4: 5, 4.2, 3.7, 3.3, 3, 2.7, 2.5 ns by rate, 4 clocks at least; x16 6, then 5.3 ns",
    "nRRDL": "JESD79-4: 6, 5.3, 5.3, then 4.9 ns by rate, 4 clocks at least; x16 7.5, then 6.4 ns",
    "nFAW": "JESD79-4: x4 16 clocks; x8 25, 23, then 21 ns; x16 35 ns at 1600, then 30 ns",
    "nRTW_DR": "none found (a choice of the system): CL + BL/2 - CWL + nCS + a write preamble of 1",
    "nWTW_DR": "none found (a choice of the system): BL/2 + nCS",
    "nRFC": "JESD79-4, refresh parameters by density: tRFC1 160, 260, 350, 550 ns",
    "nREFI": "JESD79-4: tREFI 7.8 us, a maximum",
}

STANDARD = Standard(
    name="DDR4",
    source="JESD79-4",
    commands=(
        Command("ACT", "bank", opens=True),
        Command("PREpb", "bank", closes=True),
        Command("PREab", "rank", closes=True),
        Command("RD", "bank", reads=True),
        Command("WR", "bank", writes=True),
        Command("RDA", "bank", reads=True, closes=True),
        Command("WRA", "bank", writes=True, closes=True),
        Command("REFab", "rank", refreshes=True, closes_first="PREab", busy="nRFC"),
    ),
    levels=("channel", "rank", "bankgroup", "bank"),
    transfers_per_clock=2,
    prefetch=8,
    channel_bits=64,
    rules=_RULES,
    organisations=_ORGANISATIONS,
    speeds=_SPEEDS,
    derived={
        **_BY_WIDTH,
        "nRTW_DR": Sum("nCL + nBL - nCWL + nCS + 1"),
        "nWTW_DR": Sum("nBL + nCS"),
        "nRFC": ByDensity({2048: 160, 4096: 260, 8192: 350, 16384: 550}),
        "nREFI": Every(7800, "down", exact=True),
    },
    max_postponed_refreshes=8,
    max_pulled_in_refreshes=8,
    cited=_CITED,
    reference=dict(
        rules=_REFERENCE_RULES,
        speeds=_REFERENCE_SPEEDS,
        derived={
            **_BY_WIDTH,
            "nRFC": ByDensity({2048: 160, 4096: 260, 8192: 360, 16384: 550}),
            "nREFI": Every(7800),
        },
        # No valid command goes to a rank within tRFC, but PREpb of a closing row policy do in the reference.
        checked_rules=(Rule("tRFC", "rank", ("REFab",), ("REFab",), "nRFC"),),
        cited={},
    ),
)
