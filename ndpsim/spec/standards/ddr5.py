"""DDR5 SDRAM, JESD79-5. A channel here is one 32-bit sub-channel of a DIMM.

The presets of 3200, 4800, 5600AN and 6400AN equal those of Ramulator 2.1 (python/ramulator/dram/ddr5.py,
commit c5b1c3a), so that the commands of both can be compared one by one. Where these differ from
JESD79-5 they are kept, for that reason: tRRD_L of 5 clocks at 3200; tRRD_S of 5 ns at 5600 and 6400 where
8 clocks are asked; tRTP of 20 clocks at 5600; tWTR_S of 5 or 6 clocks; tCCD_L of 12 clocks at 5600; tFAW
of 20 ns where x4 and x8 devices need 32 clocks; the CL of the BN and C bins. The other rates follow
JESD79-5: speed bin A, times in ns.
"""

from ndpsim.spec.standard import (
    AtLeast,
    ByDensity,
    ByRate,
    ByWidth,
    Command,
    Every,
    Organisation,
    Rule,
    Standard,
)

_READS, _WRITES = ("RD", "RDA"), ("WR", "WRA")
_COLUMN = _READS + _WRITES
_PRECHARGES = ("PREpb", "PREab", "PREsb")

_RULES = (
    # The data bus carries one burst at a time.
    Rule("BL", "channel", _READS, _READS, "nBL"),
    Rule("BL", "channel", _WRITES, _WRITES, "nBL"),
    # Column commands within a rank. Read to write: 1.5 clocks of read postamble (taken as 2) and a
    # write preamble of 2.
    Rule("tCCD_S", "rank", _READS, _READS, "nCCDS"),
    Rule("tCCD_S_WR", "rank", _WRITES, _WRITES, "nCCDS_WR"),
    Rule("tRTW", "rank", _READS, _WRITES, "nCL + nBL + 2 - nCWL + 2"),
    Rule("tWTR_S", "rank", _WRITES, _READS, "nCWL + nBL + nWTRS"),
    # Another rank takes over the data bus.
    Rule("tCS", "rank", _READS, _COLUMN, "nBL + nCS", siblings=True),
    Rule("tCS", "rank", _WRITES, _READS, "nCWL + nBL + nCS - nCL", siblings=True),
    # Rows within a rank.
    Rule("tRTP", "rank", ("RD",), ("PREab",), "nRTP"),
    Rule("tWR", "rank", ("WR",), ("PREab",), "nCWL + nBL + nWR"),
    Rule("tRRD_S", "rank", ("ACT",), ("ACT",), "nRRDS"),
    Rule("tFAW", "rank", ("ACT",), ("ACT",), "nFAW", window=4),
    Rule("tRAS", "rank", ("ACT",), ("PREab",), "nRAS"),
    Rule("tRP", "rank", ("PREab",), ("ACT",), "nRP"),
    Rule("tPPD", "rank", _PRECHARGES, _PRECHARGES, "nPPD"),
    # Refresh.
    Rule("tRC", "rank", ("ACT",), ("REFab",), "nRC"),
    Rule("tRP", "rank", _PRECHARGES, ("REFab",), "nRP"),
    Rule("tRTP + tRP", "rank", ("RDA",), ("REFab",), "nRTP + nRP"),
    Rule("tWR + tRP", "rank", ("WRA",), ("REFab",), "nCWL + nBL + nWR + nRP"),
    Rule("tRFC", "rank", ("REFab",), ("ACT", "PREab"), "nRFC"),
    # Same-bank refresh: REFsb takes one bank of every bank group; the others go on working.
    Rule("tRRD_L", "rank", ("ACT",), ("REFsb",), "nRRDL"),
    Rule("tREFSBRD", "rank", ("REFsb",), ("ACT",), "nREFSBRD"),
    Rule("tRP", "rank", ("PREab",), ("REFsb",), "nRP"),
    Rule("tRFC", "rank", ("REFab",), ("REFsb", "PREsb"), "nRFC"),
    Rule("tRFCsb", "rank", ("REFsb",), ("REFsb", "REFab", "PREab"), "nRFCsb"),
    # Within a bank group.
    Rule("tCCD_L", "bankgroup", _READS, _READS, "nCCDL"),
    Rule("tCCD_L_WR", "bankgroup", _WRITES, _WRITES, "nCCDL_WR"),
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

# Rates with Ramulator's values: clocks that every bin of the rate shares, then CL = tRCD = tRP by bin.
_SHARED = {
    3200: dict(tCK_ps=625, nRAS=52, nWR=48, nRTP=12, nCCDL=8, nCCDL_WR=32, nWTRS=6, nWTRL=16),
    4800: dict(tCK_ps=416, nRAS=77, nWR=72, nRTP=18, nCCDL=12, nCCDL_WR=48, nWTRS=6, nWTRL=24),
    5600: dict(tCK_ps=357, nRAS=90, nWR=84, nRTP=20, nCCDL=12, nCCDL_WR=56, nWTRS=5, nWTRL=28),
    6400: dict(tCK_ps=312, nRAS=103, nWR=96, nRTP=24, nCCDL=16, nCCDL_WR=64, nWTRS=5, nWTRL=32),
}
_BINS = {
    3200: {"AN": 24, "BN": 26, "C": 28},
    4800: {"AN": 34, "BN": 36, "C": 38},
    5600: {"AN": 40},
    6400: {"AN": 46},
}

# The rates in between, bin A (JESD79-5, speed bins by rate).
_A_BINS = {3600: 26, 4000: 28, 4400: 32, 5200: 38, 6000: 42}


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
        nCCDL_WR=clocks(200, 32),
        nWTRS=clocks(25, 4),
        nWTRL=clocks(100, 16),
    )


def _speed(rate: int, cl: int, shared: dict[str, int]) -> dict[str, int]:
    return dict(rate=rate, nCL=cl, nRCD=cl, nRP=cl, nRC=shared["nRAS"] + cl, nCWL=cl - 2, **shared, **_COMMON)


_SPEEDS = {
    f"DDR5_{rate}{grade}": _speed(rate, cl, _SHARED[rate])
    for rate, grades in _BINS.items()
    for grade, cl in grades.items()
} | {f"DDR5_{rate}AN": _speed(rate, cl, _in_ns(rate)) for rate, cl in _A_BINS.items()}

_WIDTHS = (4, 8, 16)
_EIGHT_CLOCKS = ByWidth(dict.fromkeys(_WIDTHS, 8))
_FIVE_NS = AtLeast(8, dict.fromkeys(_WIDTHS, 5))

STANDARD = Standard(
    name="DDR5",
    source="JESD79-5",
    commands=(
        Command("ACT", "bank", opens=True, cycles=2),
        Command("PREpb", "bank", closes=True),
        Command("PREab", "rank", closes=True),
        Command("RD", "bank", reads=True, cycles=2),
        Command("WR", "bank", writes=True, cycles=2),
        Command("RDA", "bank", reads=True, closes=True, cycles=2),
        Command("WRA", "bank", writes=True, closes=True, cycles=2),
        Command("REFab", "rank", refreshes=True, closes_first="PREab", busy="nRFC"),
        Command("PREsb", "same-bank", closes=True),
        Command("REFsb", "same-bank", refreshes=True, closes_first="PREsb"),
    ),
    levels=("channel", "rank", "bankgroup", "bank"),
    transfers_per_clock=2,
    prefetch=16,
    channel_bits=32,
    rounding="JESD79-5C",
    rules=_RULES,
    organisations=_ORGANISATIONS,
    speeds=_SPEEDS,
    derived={
        "nRRDS": ByRate(dict.fromkeys((3200, 4800, *_A_BINS), _EIGHT_CLOCKS), otherwise=_FIVE_NS),
        "nRRDL": ByRate({3200: ByWidth(dict.fromkeys(_WIDTHS, 5))}, otherwise=_FIVE_NS),
        "nFAW": ByRate(
            dict.fromkeys(_A_BINS, ByWidth({4: 32, 8: 32, 16: 40})),
            otherwise=AtLeast(32, {4: 20, 8: 20, 16: 25}),
        ),
        "nRFC": ByDensity({8192: 195, 16384: 295, 32768: 410}),
        "nREFI": Every(3900),
        "nRFCsb": ByDensity({8192: 115, 16384: 130, 32768: 190}),
        "nREFSBRD": Every(30),
    },
    max_postponed_refreshes=4,
    max_pulled_in_refreshes=4,
    # No valid command goes to a rank within tRFC, but PREpb of a closing row policy do in the reference.
    checked_rules=(Rule("tRFC", "rank", ("REFab",), ("REFab",), "nRFC"),),
)
