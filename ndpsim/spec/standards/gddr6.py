"""GDDR6 SGRAM, JESD250. A channel here is one of the two 16-bit channels of a device, or of two in clamshell.

Preset values equal those of Ramulator 2.1 (python/ramulator/dram/gddr6.py, commit c5b1c3a), so that the
commands of both can be compared one by one. Where these differ from JESD250 they are kept, for that reason: a
write waits tCL + 1 behind a read, whatever tCWL is; tRFCab is 120 ns and tRFCpb 60 ns at every density; no
rule binds REFab to a PREpb before it. REFpb has rules but no interval (tREFIpb), so that nothing asks for it.
"""

from ndpsim.spec.standard import Command, Organisation, Rule, Standard

_READS, _WRITES = ("RD", "RDA"), ("WR", "WRA")
_COLUMN = _READS + _WRITES

# A channel has no ranks: what binds "the rank" binds all its banks.
_RULES = (
    # The data bus carries one burst at a time.
    Rule("BL", "channel", _READS, _READS, "nBL"),
    Rule("BL", "channel", _WRITES, _WRITES, "nBL"),
    # Column commands.
    Rule("tCCDS", "rank", _READS, _READS, "nCCDS"),
    Rule("tCCDS", "rank", _WRITES, _WRITES, "nCCDS"),
    Rule("tRTW", "rank", _READS, _WRITES, "nCL + 1"),
    Rule("tWTRS", "rank", _WRITES, _READS, "nCWL + nBL + nWTRS"),
    # Rows.
    Rule("tRTP", "rank", ("RD",), ("PREab",), "nRTP"),
    Rule("tWR", "rank", ("WR",), ("PREab",), "nCWL + nBL + nWR"),
    Rule("tRRDS", "rank", ("ACT",), ("ACT", "REFpb"), "nRRDS"),
    Rule("tFAW", "rank", ("ACT",), ("ACT", "REFpb"), "nFAW", window=4),
    Rule("tFAW", "rank", ("REFpb",), ("ACT", "REFpb"), "nFAW", window=4),
    Rule("tRAS", "rank", ("ACT",), ("PREab",), "nRAS"),
    Rule("tRP", "rank", ("PREab",), ("ACT",), "nRP"),
    Rule("tPPD", "rank", ("PREpb", "PREab"), ("PREpb", "PREab"), "nPPD"),
    # Refresh.
    Rule("tRC", "rank", ("ACT",), ("REFab",), "nRC"),
    Rule("tRP", "rank", ("PREab",), ("REFab", "REFpb"), "nRP"),
    Rule("tRTP + tRP", "rank", ("RDA",), ("REFab", "REFpb"), "nRTP + nRP"),
    Rule("tWR + tRP", "rank", ("WRA",), ("REFab", "REFpb"), "nCWL + nBL + nWR + nRP"),
    Rule("tRFCab", "rank", ("REFab",), ("ACT", "PREab", "PREpb", *_COLUMN, "REFab", "REFpb"), "nRFCab"),
    Rule("tRREFD", "rank", ("REFpb",), ("ACT", "REFpb"), "nRREFD"),
    Rule("tRFCpb", "rank", ("REFpb",), ("REFab",), "nRFCpb"),
    # Within a bank group.
    Rule("tCCDL", "bankgroup", _READS, _READS, "nCCDL"),
    Rule("tCCDL", "bankgroup", _WRITES, _WRITES, "nCCDL"),
    Rule("tWTRL", "bankgroup", _WRITES, _READS, "nCWL + nBL + nWTRL"),
    Rule("tRRDL", "bankgroup", ("ACT",), ("ACT", "REFpb"), "nRRDL"),
    # Within a bank.
    Rule("tRC", "bank", ("ACT",), ("ACT", "REFpb"), "nRC"),
    Rule("tRCDRD", "bank", ("ACT",), _READS, "nRCDRD"),
    Rule("tRCDWR", "bank", ("ACT",), _WRITES, "nRCDWR"),
    Rule("tRAS", "bank", ("ACT",), ("PREpb",), "nRAS"),
    Rule("tRP", "bank", ("PREpb",), ("ACT", "REFpb"), "nRP"),
    Rule("tRTP", "bank", ("RD",), ("PREpb",), "nRTP"),
    Rule("tWR", "bank", ("WR",), ("PREpb",), "nCWL + nBL + nWR"),
    Rule("tRTP + tRP", "bank", ("RDA",), ("ACT", "REFpb"), "nRTP + nRP"),
    Rule("tWR + tRP", "bank", ("WRA",), ("ACT", "REFpb"), "nCWL + nBL + nWR + nRP"),
    Rule("tRFCpb", "bank", ("REFpb",), ("ACT", "REFpb"), "nRFCpb"),
)

# Density of a device in Gb, of which a channel has half, or in clamshell (x8) all of two: rows and columns.
_SHAPES = {
    "8Gb_x8": (1 << 14, 2048),
    "8Gb_x16": (1 << 14, 1024),
    "16Gb_x8": (1 << 15, 2048),
    "16Gb_x16": (1 << 14, 2048),
    "32Gb_x8": (1 << 16, 2048),
    "32Gb_x16": (1 << 15, 2048),
}

_ORGANISATIONS = {
    f"GDDR6_{name}": Organisation(
        int(name.split("Gb")[0]) * 1024, int(name.split("_x")[1]), 4, 4, rows, columns, ranks=1
    )
    for name, (rows, columns) in _SHAPES.items()
}

# By the supply's voltage; double and quad data rates differ in the clock of the data alone.
_COMMON = dict(
    rate=14000, tCK_ps=570, nBL=2, nCL=24, nCWL=6, nRTP=4, nCCDS=2, nCCDL=4, nWTRS=9, nWTRL=11, nREFI=3333,
    nRFCab=211, nRFCpb=106,
)  # fmt: skip
_AT = {
    1350: dict(
        nRCDRD=27, nRCDWR=16, nRP=27, nRAS=53, nRC=79, nWR=27, nRRDS=8, nRRDL=8, nFAW=29, nRREFD=15, nPPD=1,
    ),
    1250: dict(
        nRCDRD=30, nRCDWR=20, nRP=30, nRAS=60, nRC=90, nWR=30, nRRDS=11, nRRDL=11, nFAW=43, nRREFD=22, nPPD=2,
    ),
}  # fmt: skip

STANDARD = Standard(
    name="GDDR6",
    source="JESD250",
    commands=(
        Command("ACT", "bank", opens=True),
        Command("PREpb", "bank", closes=True),
        Command("PREab", "rank", closes=True),
        Command("RD", "bank", reads=True),
        Command("WR", "bank", writes=True),
        Command("RDA", "bank", reads=True, closes=True),
        Command("WRA", "bank", writes=True, closes=True),
        Command("REFab", "rank", refreshes=True, closes_first="PREab", busy="nRFCab"),
        Command("REFpb", "bank", refreshes=True, closes_first="PREpb", interval=""),
    ),
    levels=("channel", "rank", "bankgroup", "bank"),
    transfers_per_clock=8,
    prefetch=16,
    channel_bits=16,
    rules=_RULES,
    organisations=_ORGANISATIONS,
    speeds={
        f"GDDR6_14000_{millivolts}mV_{kind}": _COMMON | timings
        for kind in ("double", "quad")
        for millivolts, timings in _AT.items()
    },
    derived={},
    max_postponed_refreshes=8,
    max_pulled_in_refreshes=8,
)
