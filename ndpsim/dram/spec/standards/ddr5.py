"""DDR5 SDRAM, JESD79-5. A channel here is one 32-bit sub-channel of a DIMM.

Sources, by their short names in `cited`: "R", the corrected DDR5 page of a public branch of Ramulator 2.1
(RichardLuo79/ramulator2-chia-hackathon, python/ramulator/dram/ddr5.py at 27714f27), which names tables of
JESD79-5C; "M", Micron's DDR5 core data sheet, Rev. E 11/2024, as gem5's issue 3490 quotes it.

Under `--rules reference` rules and values are those of Ramulator 2.1 (python/ramulator/dram/ddr5.py and
ddr5_rfm.py, commit c5b1c3a), and of its version 2.0 for REFsb. It has no bins B, and other values for BN and
C; its rates 3600, 4000, 4400, 5200 and 6000 are ndpsim's.
"""

from dataclasses import replace

from ndpsim.dram.spec.standard import (
    AtLeast,
    ByDensity,
    ByRate,
    ByWidth,
    Command,
    Derivation,
    Every,
    Management,
    Organisation,
    Rule,
    Standard,
    Sum,
)

_READS, _WRITES = ("RD", "RDA"), ("WR", "WRA")
_COLUMN = _READS + _WRITES
_PRECHARGES = ("PREpb", "PREab", "PREsb")

_SHARED = (
    # The data bus carries one burst at a time.
    Rule("BL", "channel", _READS, _READS, "nBL"),
    Rule("BL", "channel", _WRITES, _WRITES, "nBL"),
    # Column commands within a rank.
    Rule("tCCD_S", "rank", _READS, _READS, "nCCDS"),
    Rule("tCCD_S_WR", "rank", _WRITES, _WRITES, "nCCDS_WR"),
    Rule("tWTR_S", "rank", _WRITES, _READS, "nCWL + nBL + nWTRS"),
    # Another rank takes over the data bus.
    Rule("tCS", "rank", _WRITES, _READS, "nCWL + nBL + nCS - nCL", siblings=True),
    # Rows within a rank.
    Rule("tRRD_S", "rank", ("ACT",), ("ACT",), "nRRDS"),
    Rule("tRAS", "rank", ("ACT",), ("PREab",), "nRAS"),
    Rule("tRP", "rank", ("PREab",), ("ACT",), "nRP"),
    Rule("tPPD", "rank", _PRECHARGES, _PRECHARGES, "nPPD"),
    # Refresh.
    Rule("tRC", "rank", ("ACT",), ("REFab", "RFMab"), "nRC"),
    Rule("tRTP + tRP", "rank", ("RDA",), ("REFab", "RFMab"), "nRTP + nRP"),
    Rule("tWR + tRP", "rank", ("WRA",), ("REFab", "RFMab"), "nCWL + nBL + nWR + nRP"),
    # Same-bank refresh: REFsb takes one bank of every bank group; the others go on working.
    Rule("tRRD_L", "rank", ("ACT",), ("REFsb",), "nRRDL"),
    Rule("tREFSBRD", "rank", ("REFsb",), ("ACT",), "nREFSBRD"),
    Rule("tRP", "rank", ("PREab",), ("REFsb",), "nRP"),
    Rule("tRFCsb", "rank", ("REFsb",), ("REFsb", "REFab", "PREab"), "nRFCsb"),
    # Within a bank group.
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
    # The bank of every group that a same-bank command takes.
    Rule("tRAS", "bank", ("ACT",), ("PREsb",), "nRAS"),
    Rule("tRTP", "bank", ("RD",), ("PREsb",), "nRTP"),
    Rule("tWR", "bank", ("WR",), ("PREsb",), "nCWL + nBL + nWR"),
    Rule("tRP", "bank", ("PREsb",), ("ACT",), "nRP"),
    Rule("tRC", "bank", ("ACT",), ("REFsb",), "nRC"),
    Rule("tRP", "bank", ("PREpb", "PREsb"), ("REFsb",), "nRP"),
    Rule("tRTP + tRP", "bank", ("RDA",), ("REFsb",), "nRTP + nRP"),
    Rule("tWR + tRP", "bank", ("WRA",), ("REFsb",), "nCWL + nBL + nWR + nRP"),
    Rule("tRFCsb", "bank", ("REFsb",), ("ACT", "PREpb", "PREsb"), "nRFCsb"),
)

# Commands that a rank does not accept during an all-bank refresh or RFM.
_ROW_COMMANDS = ("ACT", *_PRECHARGES, "REFab", "REFsb", "RFMab", "RFMsb")

_RULES = (
    *_SHARED,
    Rule("tRTW", "rank", _READS, _WRITES, "nRTW"),
    # Between the data of two ranks at least nCS, before a write its preamble, too.
    Rule("tCS", "rank", _READS, _READS, "nBL + nCS", siblings=True),
    Rule("tRTW_DR", "rank", _READS, _WRITES, "nRTW_DR", siblings=True),
    Rule("tWTW_DR", "rank", _WRITES, _WRITES, "nWTW_DR", siblings=True),
    Rule("tRTP", "rank", _READS, ("PREab",), "nRTP"),
    Rule("tWR", "rank", _WRITES, ("PREab",), "nCWL + nBL + nWR"),
    Rule("tFAW", "rank", ("ACT", "REFsb", "RFMsb"), ("ACT", "REFsb", "RFMsb"), "nFAW", window=4),
    Rule("tRP", "rank", _PRECHARGES, ("REFab", "RFMab"), "nRP"),
    Rule("tRFC", "rank", ("REFab",), _ROW_COMMANDS, "nRFC"),
    Rule("tRFM", "rank", ("RFMab",), _ROW_COMMANDS, "nRFM"),
    # RFMsb waits and delays as REFsb does; only one of them at a time in a rank.
    Rule("tRRD_L", "rank", ("ACT",), ("RFMsb",), "nRRDL"),
    Rule("tREFSBRD", "rank", ("RFMsb",), ("ACT",), "nREFSBRD"),
    Rule("tRP", "rank", ("PREab",), ("RFMsb",), "nRP"),
    Rule("tRFCsb", "rank", ("REFsb",), ("RFMsb", "RFMab"), "nRFCsb"),
    Rule("tRFMsb", "rank", ("RFMsb",), ("REFsb", "REFab", "PREab", "RFMsb", "RFMab"), "nRFMsb"),
    Rule("tRC", "bank", ("ACT",), ("RFMsb",), "nRC"),
    Rule("tRP", "bank", ("PREpb", "PREsb"), ("RFMsb",), "nRP"),
    Rule("tRTP + tRP", "bank", ("RDA",), ("RFMsb",), "nRTP + nRP"),
    Rule("tWR + tRP", "bank", ("WRA",), ("RFMsb",), "nCWL + nBL + nWR + nRP"),
    Rule("tRFMsb", "bank", ("RFMsb",), ("ACT", "PREpb", "PREsb"), "nRFMsb"),
    # Column commands to the same bank, and to another one of its group.
    Rule("tCCD_L", "bank", _READS, _READS, "nCCDL"),
    Rule("tCCD_L_WR", "bank", _WRITES, _WRITES, "nCCDL_WR"),
    Rule("tWTR_L", "bank", _WRITES, _READS, "nCWL + nBL + nWTRL"),
    Rule("tCCD_M", "bank", _READS, _READS, "nCCDM", siblings=True),
    Rule("tCCD_M_WR", "bank", _WRITES, _WRITES, "nCCDM_WR", siblings=True),
    Rule("tWTR_M", "bank", _WRITES, _READS, "nCWL + nBL + nWTRM", siblings=True),
)

_REFERENCE_RULES = (
    *_SHARED,
    Rule("tRTW", "rank", _READS, _WRITES, "nCL + nBL + 2 - nCWL + 2"),
    Rule("tCS", "rank", _READS, _COLUMN, "nBL + nCS", siblings=True),
    Rule("tRTP", "rank", ("RD",), ("PREab",), "nRTP"),
    Rule("tWR", "rank", ("WR",), ("PREab",), "nCWL + nBL + nWR"),
    Rule("tFAW", "rank", ("ACT",), ("ACT",), "nFAW", window=4),
    Rule("tRP", "rank", _PRECHARGES, ("REFab",), "nRP"),
    Rule("tRFC", "rank", ("REFab",), ("ACT", "PREab", "REFsb", "PREsb"), "nRFC"),
    Rule("tCCD_L", "bankgroup", _READS, _READS, "nCCDL"),
    Rule("tCCD_L_WR", "bankgroup", _WRITES, _WRITES, "nCCDL_WR"),
    Rule("tWTR_L", "bankgroup", _WRITES, _READS, "nCWL + nBL + nWTRL"),
    # Its RFM is of a whole rank or of one bank.
    Rule("tRP", "rank", ("PREpb", "PREab"), ("RFMab",), "nRP"),
    Rule("tRFM", "rank", ("RFMab",), ("ACT", "PREab"), "nRFM"),
    Rule("tRC", "bank", ("ACT",), ("RFMpb",), "nRC"),
    Rule("tRP", "bank", ("PREpb",), ("RFMpb",), "nRP"),
    Rule("tRTP + tRP", "bank", ("RDA",), ("RFMpb",), "nRTP + nRP"),
    Rule("tWR + tRP", "bank", ("WRA",), ("RFMpb",), "nCWL + nBL + nWR + nRP"),
    Rule("tRFMpb", "bank", ("RFMpb",), ("ACT", "PREpb"), "nRFMpb"),
)

# Density in Gb: (banks in a bank group, rows). A x16 device has four bank groups instead of eight.
_SHAPES = {8: (2, 1 << 16), 16: (4, 1 << 16), 32: (4, 1 << 17)}

_ORGANISATIONS = {
    f"DDR5_{gigabits}Gb_x{dq}": Organisation(
        gigabits * 1024, dq, 4 if dq == 16 else 8, banks, rows, 2048 if dq == 4 else 1024
    )
    for gigabits, (banks, rows) in _SHAPES.items()
    for dq in (4, 8, 16)
}

_COMMON = dict(nBL=8, nPPD=2, nCCDS=8, nCCDS_WR=8, nCS=2)

# By rate: CL and tRCD = tRP of the bins A (of devices without stacked dies: "AN"), B and C (R; 8400: Table
# 294). Bin BN has the CL of B for all three, where tRCD and tRP of B are 16 ns.
_BINS = {
    3200: {"AN": (24, 24), "B": (26, 26), "BN": (26, 26), "C": (28, 28)},
    3600: {"AN": (26, 26), "B": (30, 30), "C": (32, 32)},
    4000: {"AN": (28, 28), "B": (32, 32), "C": (36, 35)},
    4400: {"AN": (32, 32), "B": (36, 36), "C": (40, 39)},
    4800: {"AN": (34, 34), "B": (40, 39), "BN": (40, 40), "C": (42, 42)},
    5200: {"AN": (38, 38), "B": (42, 42), "C": (46, 46)},
    5600: {"AN": (40, 40), "B": (46, 45), "C": (50, 49)},
    6000: {"AN": (42, 42), "B": (48, 48), "C": (54, 53)},
    6400: {"AN": (46, 46), "B": (52, 52), "C": (56, 56)},
    6800: {"AN": (48, 48), "B": (56, 55), "C": (60, 60)},
    7200: {"AN": (52, 52), "B": (58, 58), "C": (64, 63)},
    7600: {"AN": (54, 54), "B": (62, 61), "C": (68, 67)},
    8000: {"AN": (56, 56), "B": (64, 64), "C": (70, 70)},
    8400: {"AN": (60, 60), "B": (68, 68), "C": (74, 74)},
    8800: {"AN": (62, 62), "B": (72, 71), "C": (78, 77)},
}
_FASTER = tuple(rate for rate in _BINS if rate > 6400)

# Rates with Ramulator's values: clocks that every bin of the rate shares, then CL = tRCD = tRP by bin.
_REFERENCE_SHARED = {
    3200: dict(tCK_ps=625, nRAS=52, nWR=48, nRTP=12, nCCDL=8, nCCDL_WR=32, nWTRS=6, nWTRL=16),
    4800: dict(tCK_ps=416, nRAS=77, nWR=72, nRTP=18, nCCDL=12, nCCDL_WR=48, nWTRS=6, nWTRL=24),
    5600: dict(tCK_ps=357, nRAS=90, nWR=84, nRTP=20, nCCDL=12, nCCDL_WR=56, nWTRS=5, nWTRL=28),
    6400: dict(tCK_ps=312, nRAS=103, nWR=96, nRTP=24, nCCDL=16, nCCDL_WR=64, nWTRS=5, nWTRL=32),
}
_REFERENCE_BINS = {
    3200: {"AN": 24, "BN": 26, "C": 28},
    4800: {"AN": 34, "BN": 36, "C": 38},
    5600: {"AN": 40},
    6400: {"AN": 46},
}
_BETWEEN = (3600, 4000, 4400, 5200, 6000)


def _in_ns(rate: int) -> dict[str, int]:
    """The clocks of a rate from the nanoseconds of JESD79-5 at the exact clock."""

    def clocks(tenths_of_ns: int, minimum: int = 0) -> int:
        return max(minimum, -(-tenths_of_ns * rate // 20_000))

    return dict(
        tCK_ps=2_000_000 // rate,
        nRAS=clocks(320),
        nWR=clocks(300),
        nRTP=clocks(75, 12),
        nCCDL=clocks(50, 8),
        # 2.5 ns to 6400; above, the clocks of a burst.
        nWTRS=clocks(25, 4) if rate <= 6400 else 8,
        nWTRL=clocks(100, 16),
    )


def _speed(rate: int, cl: int, rcd: int, shared: dict[str, int]) -> dict[str, int]:
    return dict(
        rate=rate, nCL=cl, nRCD=rcd, nRP=rcd, nRC=shared["nRAS"] + rcd, nCWL=cl - 2, **shared, **_COMMON
    )


def _of_standard(rate: int) -> dict[str, int]:
    """Clocks of a rate that its bins share, with the shortest write preamble and tPPD."""
    preamble = 2 if rate <= 4800 else 3 if rate <= 6400 else 4
    return {**_in_ns(rate), "nWPRE": preamble}


_SPEEDS = {
    f"DDR5_{rate}{grade}": {**_speed(rate, cl, rcd, _of_standard(rate)), "nPPD": 2 if rate < 7600 else 4}
    for rate, grades in _BINS.items()
    for grade, (cl, rcd) in grades.items()
}


def _with_rfm(speed: dict[str, int]) -> dict[str, int]:
    """RFM of the reference: 195 ns and half of it, at any density."""
    return {**speed, "nRFM": -(-195_000 // speed["tCK_ps"]), "nRFMpb": -(-97_500 // speed["tCK_ps"])}


_REFERENCE_SPEEDS = {
    name: _with_rfm(speed)
    for name, speed in (
        {
            f"DDR5_{rate}{grade}": _speed(rate, cl, cl, _REFERENCE_SHARED[rate])
            for rate, grades in _REFERENCE_BINS.items()
            for grade, cl in grades.items()
        }
        | {
            f"DDR5_{rate}AN": _speed(
                rate,
                *_BINS[rate]["AN"],
                {**_in_ns(rate), "nCCDL_WR": max(32, -(-rate // 100))},
            )
            for rate in _BETWEEN
        }
    ).items()
}

_WIDTHS = (4, 8, 16)
_EIGHT_CLOCKS = ByWidth(dict.fromkeys(_WIDTHS, 8))
_FIVE_NS = AtLeast(8, dict.fromkeys(_WIDTHS, 5))
_PAGES = ByWidth({4: 32, 8: 32, 16: 40})

# 4.705, 4.444, 4.210, 4.000, 4.000 and 3.863 ns at 6800 to 8800 in clocks.
_M_OF_READS = {
    rate: ByWidth(dict.fromkeys(_WIDTHS, clocks))
    for rate, clocks in zip(_FASTER, (16, 16, 16, 16, 17, 17), strict=True)
}

_DERIVED: dict[str, Derivation] = {
    "nRRDS": _EIGHT_CLOCKS,
    "nRRDL": ByRate(_M_OF_READS, otherwise=_FIVE_NS),
    "nFAW": _PAGES,
    "nCCDL_WR": AtLeast({4: 32, 8: 16, 16: 16}, {4: 20, 8: 10, 16: 10}),
    # Between banks of a group; up to 6400 as within a bank. Only writes of x4 devices read first.
    "nCCDM": ByRate(_M_OF_READS, otherwise=Sum("nCCDL")),
    "nCCDM_WR": ByRate(
        dict.fromkeys(_FASTER, ByWidth({4: 64, 8: "nCCDL_WR", 16: "nCCDL_WR"})), otherwise=Sum("nCCDL_WR")
    ),
    "nWTRM": ByRate(dict.fromkeys(_FASTER, ByWidth(dict.fromkeys(_WIDTHS, 32))), otherwise=Sum("nWTRL")),
    # 2 clocks and the write preamble; above 4800 the read postamble is a clock longer.
    "nRTW": ByRate(
        dict.fromkeys((3200, 3600, 4000, 4400, 4800), Sum("nCL + nBL - nCWL + 2 + nWPRE")),
        otherwise=Sum("nCL + nBL - nCWL + 3 + nWPRE"),
    ),
    "nRTW_DR": ByRate(
        dict.fromkeys((3200, 3600, 4000, 4400, 4800), Sum("nCL + nBL - nCWL + nCS + nWPRE")),
        otherwise=Sum("nCL + nBL - nCWL + nCS + 1 + nWPRE"),
    ),
    "nWTW_DR": Sum("nBL + nCS"),
    "nRFC": ByDensity({8192: 195, 16384: 295, 32768: 410}, "JESD79-5C"),
    "nRFCsb": ByDensity({8192: 115, 16384: 130, 32768: 190}, "JESD79-5C"),
    "nREFSBRD": Every(30, "JESD79-5C"),
    "nRFM": Sum("nRFC"),
    "nRFMsb": Sum("nRFCsb"),
    "nREFI": Every(3900, "down", exact=True),
    "nREFI2": Every(1950, "down", exact=True),
}

_REFERENCE_DERIVED = {
    "nRRDS": ByRate(dict.fromkeys((3200, 4800, *_BETWEEN), _EIGHT_CLOCKS), otherwise=_FIVE_NS),
    "nRRDL": ByRate({3200: ByWidth(dict.fromkeys(_WIDTHS, 5))}, otherwise=_FIVE_NS),
    "nFAW": ByRate(dict.fromkeys(_BETWEEN, _PAGES), otherwise=AtLeast(32, {4: 20, 8: 20, 16: 25})),
    "nRFC": ByDensity({8192: 195, 16384: 295, 32768: 410}),
    "nREFI": Every(3900),
    "nRFCsb": ByDensity({8192: 115, 16384: 130, 32768: 190}),
    "nREFSBRD": Every(30),
}

_CITED = {
    "rate": "JESD79-5C speed bins (R)",
    "tCK_ps": "JESD79-5C speed bins: tCK(avg).MIN in whole ps (R)",
    "nBL": "JESD79-5: BL16 on both edges of 8 clocks",
    "nCL": "JESD79-5C speed bins (R)",
    "nRCD": "JESD79-5C speed bins (R)",
    "nRP": "JESD79-5C speed bins (R)",
    "nRAS": "JESD79-5C speed bins: 32 ns (R)",
    "nRC": "JESD79-5C speed bins: tRAS + tRP (R)",
    "nWR": "JESD79-5C: 30 ns (R)",
    "nRTP": "JESD79-5C: max(12 clocks, 7.5 ns) (R)",
    "nCWL": "JESD79-5C: CL - 2 (R)",
    "nPPD": "JESD79-5C: 2 clocks, from 7600 on 4 (R)",
    "nCCDS": "JESD79-5C: 8 clocks (R)",
    "nCCDS_WR": "JESD79-5C: 8 clocks (R); M: WBL/2",
    "nCCDL": "JESD79-5C Tables 330-334: max(8 clocks, 5 ns) (R)",
    "nCCDL_WR": "M: max(32 clocks, 20 ns), x4; without read-modify-write (tCCD_L_WR2) max(16 clocks, 10 ns)",
    "nCCDM": "JESD79-5C Tables 330-334: tCCD_L to 6400, then max(8 clocks, 4.705 to 3.863 ns) (R)",
    "nCCDM_WR": "JESD79-5C Tables 330-334 (R), M: tCCD_L_WR to 6400, then 64 clocks; x8, x16: M, tCCD_L_WR2",
    "nWTRS": "JESD79-5C (R), M Table 494: max(4 clocks, 2.5 ns) to 6400, then 8 clocks",
    "nWTRL": "JESD79-5C: max(16 clocks, 10 ns) (R)",
    "nWTRM": "JESD79-5C Tables 330-334: tWTR_L to 6400, then 9.411 to 7.272 ns = 32 clocks (R)",
    "nWPRE": "R: the shortest write preamble of the rate, 2, 3 (above 4800) or 4 clocks (above 6400)",
    "nRTW": "JESD79-5B tCCD_S_RTW: CL - CWL + BL/2 + 2 + (tRPST - 0.5) + tWPRE, DQS offset 0 (R)",
    "nRTW_DR": "none found (a choice of the system): as nRTW, with nCS for its 2 clocks",
    "nWTW_DR": "none found (a choice of the system): BL/2 + nCS",
    "nCS": "none found (a choice of the system); as Ramulator 2.1 c5b1c3a",
    "nRRDS": "JESD79-5C: 8 clocks (R)",
    "nRRDL": "JESD79-5C: max(8 clocks, 5 ns) to 6400, then as tCCD_M (R)",
    "nFAW": "JESD79-5C: 32 clocks, 40 with pages of 2 KB (x16) (R)",
    "nRFC": "JESD79-5C: tRFC1 195, 295, 410 ns at 8, 16, 32 Gb, rounded by 13.2 (R)",
    "nRFCsb": "JESD79-5C: tRFCsb 115, 130, 190 ns at 8, 16, 32 Gb, rounded by 13.2 (R)",
    "nREFSBRD": "JESD79-5C: 30 ns, rounded by 13.2 (R)",
    "nRFM": "JESD79-5C Table 169: tRFM1 = tRFC1 (R)",
    "nRFMsb": "JESD79-5C Table 169: tRFMsb = tRFCsb (R)",
    "nREFI": "JESD79-5C: tREFI1 3.9 us, a maximum",
    "nREFI2": "JESD79-5B: tREFI2 1.95 us, of the fine granularity mode, which REFsb needs; a maximum",
    **{
        f"DDR5_{rate}BN/{name}": "bin BN: B's CL for tRCD and tRP, too (16.25 ns at 3200, 16.666 ns at 4800)"
        for rate in (3200, 4800)
        for name in ("nRCD", "nRP")
    },
}

_COMMANDS = (
    Command("ACT", "bank", opens=True, cycles=2),
    Command("PREpb", "bank", closes=True),
    Command("PREab", "rank", closes=True),
    Command("RD", "bank", reads=True, cycles=2),
    Command("WR", "bank", writes=True, cycles=2),
    Command("RDA", "bank", reads=True, closes=True, cycles=2),
    Command("WRA", "bank", writes=True, closes=True, cycles=2),
    Command("REFab", "rank", refreshes=True, closes_first="PREab", busy="nRFC"),
    Command("PREsb", "same-bank", closes=True),
)
# Values of registers, which differ by vendor.
_MANAGEMENT = Management(
    threshold=32,
    multiple=3,
    refreshes=2,
    source=(
        "JESD79-5C, MR58, MR59: RAAIMT 32 to 80, RAAMMT 3 to 6 times it, REF takes off all or half of it; "
        "no data sheet found: the strictest of each"
    ),
)
_RFMAB = Command("RFMab", "rank", manages=True, closes_first="PREab", busy="nRFM")

STANDARD = Standard(
    name="DDR5",
    source="JESD79-5",
    commands=(
        *_COMMANDS,
        # In the fine granularity mode: every bank once in tREFI2.
        Command("REFsb", "same-bank", refreshes=True, closes_first="PREsb", interval="nREFI2"),
        _RFMAB,
        Command("RFMsb", "same-bank", manages=True, closes_first="PREsb"),
    ),
    levels=("channel", "rank", "bankgroup", "bank"),
    transfers_per_clock=2,
    prefetch=16,
    channel_bits=32,
    rounding="JESD79-5C",
    rules=_RULES,
    organisations=_ORGANISATIONS,
    speeds=_SPEEDS,
    derived=_DERIVED,
    max_postponed_refreshes=4,
    max_pulled_in_refreshes=4,
    management=_MANAGEMENT,
    cited=_CITED,
    reference=dict(
        commands=(
            *_COMMANDS,
            Command("REFsb", "same-bank", refreshes=True, closes_first="PREsb"),
            _RFMAB,
            Command("RFMpb", "bank", manages=True, closes_first="PREpb"),
        ),
        rules=_REFERENCE_RULES,
        speeds=_REFERENCE_SPEEDS,
        derived=_REFERENCE_DERIVED,
        # No valid command goes to a rank within tRFC, but PREpb of a closing row policy do in the reference.
        checked_rules=(Rule("tRFC", "rank", ("REFab",), ("REFab",), "nRFC"),),
        management=replace(_MANAGEMENT, threshold=80, source="Ramulator 2.1 c5b1c3a, RFMManager: rfm_thresh"),
        cited={},
    ),
)
