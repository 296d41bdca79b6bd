"""GDDR6 SGRAM, JESD250C. A channel is one of the two 16-bit channels of a device, or of two in clamshell.

JESD250C leaves most timings to the maker. Those here are of Samsung's K4Z80325BC, 8 Gb at 14 Gb/s, revision
1.3, as a public page quotes them (`cited`; docs/memories.md names it). No public source was found for tRFC of
16 and 32 Gb, nor for timings of other rates. REFp2b, the refresh of two banks, is missing.

Under `rules="reference"`, values and rules are those of Ramulator 2.1 (python/ramulator/dram/gddr6.py, commit
c5b1c3a): a write waits tCL + 1 behind a read, whatever tCWL is; tRFCab is 120 ns and tRFCpb 60 ns at every
density; no rule binds REFab to a PREpb before it, or PREab to an auto-precharge; REFpb has a window (tFAW) of
its own and no interval (tREFIpb), so that nothing asks for it.
"""

from typing import Any

from ndpsim.dram.spec.standard import ByDensity, Command, Every, EveryBank, Organisation, Rule, Standard

_READS, _WRITES = ("RD", "RDA"), ("WR", "WRA")
_COLUMN = _READS + _WRITES

# A channel has no ranks: rules of "the rank" bind all its banks.
_RULES = (
    # The data bus carries one burst at a time.
    Rule("BL", "channel", _READS, _READS, "nBL"),
    Rule("BL", "channel", _WRITES, _WRITES, "nBL"),
    # Column commands.
    Rule("tCCDS", "rank", _READS, _READS, "nCCDS"),
    Rule("tCCDS", "rank", _WRITES, _WRITES, "nCCDS"),
    Rule("tWTRS", "rank", _WRITES, _READS, "nCWL + nBL + nWTRS"),
    # Rows.
    Rule("tRTP", "rank", ("RD",), ("PREab",), "nRTP"),
    Rule("tWR", "rank", ("WR",), ("PREab",), "nCWL + nBL + nWR"),
    Rule("tRRDS", "rank", ("ACT",), ("ACT", "REFpb"), "nRRDS"),
    Rule("tFAW", "rank", ("ACT",), ("ACT", "REFpb"), "nFAW", window=4),
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

_REFERENCE_ONLY = (
    Rule("tRTW", "rank", _READS, _WRITES, "nCL + 1"),
    Rule("tFAW", "rank", ("REFpb",), ("ACT", "REFpb"), "nFAW", window=4),
)

# Rules that the reference lacks or has in another form.
_STANDARD_ONLY = (
    Rule("tRTW", "rank", _READS, _WRITES, "nRTW"),
    Rule("BL", "rank", _READS, _WRITES, "nCL + nBL - nCWL"),  # if an override makes nRTW too short
    # An auto-precharge takes as long as the precharge that it replaces (DRAMSys: CheckerGDDR6).
    Rule("tRTP", "rank", ("RDA",), ("PREab",), "nRTP"),
    Rule("tWR", "rank", ("WRA",), ("PREab",), "nCWL + nBL + nWR"),
    # Banks are idle for tRP before REFab; PREab does not meet the refresh of a bank (DRAMSys: CheckerGDDR6).
    Rule("tRP", "rank", ("PREpb",), ("REFab",), "nRP"),
    Rule("tRFCpb", "rank", ("REFpb",), ("PREab",), "nRFCpb"),
    Rule("tRFCpb", "bank", ("REFpb",), ("PREpb",), "nRFCpb"),
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
_COMMON = dict(rate=14000, nBL=2, nCL=24, nCWL=6, nRTP=4, nCCDS=2, nCCDL=4)
_AT = {
    1350: dict(
        nRCDRD=27, nRCDWR=16, nRP=27, nRAS=53, nRC=79, nWR=27, nRRDS=8, nRRDL=8, nFAW=29, nRREFD=15, nPPD=1,
    ),
    1250: dict(
        nRCDRD=30, nRCDWR=20, nRP=30, nRAS=60, nRC=90, nWR=30, nRRDS=11, nRRDL=11, nFAW=43, nRREFD=22, nPPD=2,
    ),
}  # fmt: skip


def _speeds(**others: int) -> dict[str, dict[str, int]]:
    """All presets, with these timings as well."""
    return {
        f"GDDR6_14000_{millivolts}mV_{kind}": _COMMON | others | timings
        for kind in ("double", "quad")
        for millivolts, timings in _AT.items()
    }


def _commands(**bank_refresh: Any) -> tuple[Command, ...]:
    """All commands; `bank_refresh`: when REFpb is due."""
    return (
        Command("ACT", "bank", opens=True),
        Command("PREpb", "bank", closes=True),
        Command("PREab", "rank", closes=True),
        Command("RD", "bank", reads=True),
        Command("WR", "bank", writes=True),
        Command("RDA", "bank", reads=True, closes=True),
        Command("WRA", "bank", writes=True, closes=True),
        Command("REFab", "rank", refreshes=True, closes_first="PREab", busy="nRFCab"),
        Command("REFpb", "bank", refreshes=True, closes_first="PREpb", **bank_refresh),
    )


_SHEET = "K4Z80325BC rev. 1.3, Tables 92 (1.35 V) and 93 (1.25 V)"

STANDARD = Standard(
    name="GDDR6",
    source="JESD250C",
    commands=_commands(interval="nREFIpb", round_of="rank", pause="nRFCpb"),
    levels=("channel", "rank", "bankgroup", "bank"),
    transfers_per_clock=8,
    prefetch=16,
    channel_bits=16,
    rules=_RULES + _STANDARD_ONLY,
    organisations=_ORGANISATIONS,
    speeds=_speeds(tCK_ps=571, nRTW=25, nWTRS=10, nWTRL=12),
    derived={
        "nREFI": Every(1900, "down"),
        "nREFIpb": EveryBank(1900, "down"),
        "nRFCab": ByDensity({8192: 120}),
        "nRFCpb": ByDensity({8192: 60}),
    },
    max_postponed_refreshes=8,
    max_pulled_in_refreshes=8,
    derives_exactly=True,
    cited={
        **dict.fromkeys(_AT[1350], _SHEET),
        **dict.fromkeys(("nCL", "nCWL", "nRTP", "nCCDS", "nCCDL", "nWTRS", "nWTRL"), _SHEET),
        "nBL": "JESD250C 4.3: 16 transfers, eight in a CK",
        "nRTW": "K4Z80325BC, JESD250C Table 73 Note 38: CL + 2 BL - CWL + 3, no turnaround of the system",
        "nREFI": "JESD250C Table 73: at most 1.9 us",
        "nREFIpb": "JESD250C 7.17 and Table 73: tREFI / 16",
        "nRFCab": "K4Z80325BC rev. 1.3, Tables 92 and 93: 120 ns, 8 Gb; other densities: none found",
        "nRFCpb": "K4Z80325BC rev. 1.3, Tables 92 and 93: 60 ns, 8 Gb; other densities: none found",
    },
    reference=dict(
        commands=_commands(interval=""),
        rules=_RULES + _REFERENCE_ONLY,
        speeds=_speeds(tCK_ps=570, nWTRS=9, nWTRL=11, nREFI=3333, nRFCab=211, nRFCpb=106),
        derived={},
        derives_exactly=False,
    ),
)
