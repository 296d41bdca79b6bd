"""GDDR7 SGRAM, JESD239D, with PAM3 data. A channel here is one of the four 8-bit channels of a device.

A clock is CK4; a burst takes two. The standard leaves most timings to the maker, and no data sheet
is public: those of the preset are Ramulator 2.1's, which calls them guesses (`cited`). No tFAW is known. What
JESD239D says of the change from read to write, of refreshes and of the read clock is here as a public page
quotes it (docs/memories.md names it). No public source was found for tRFC of 32 and 64 Gb, nor for timings of
other rates or of NRZ data.

Under `rules="reference"`, page and values are those of Ramulator 2.1 (python/ramulator/dram/gddr7.py, commit
c5b1c3a). Its tRTW of 12 clocks lets the data of a write meet those of a read; PREab waits for no ACT, read or
write; few rules bind RFM.
"""

from typing import Any

from ndpsim.dram.spec.standard import (
    ByDensity,
    Command,
    Every,
    EveryBank,
    Management,
    Organisation,
    Rule,
    Standard,
)

_READS, _WRITES = ("RD", "RDA"), ("WR", "WRA")
_COLUMN = _READS + _WRITES
_ALL_BANKS, _ONE_BANK = ("REFab", "RFMab"), ("REFpb", "RFMpb")
_AFTER_WRITE = "nWL + nBL + nWR"

# A channel has no ranks and no bank groups: rules of "the rank" bind all its banks.
_RULES = (
    # Column commands of all banks, and of one.
    Rule("tCCD", "rank", _READS, _READS, "nCCD"),
    Rule("tCCD", "rank", _WRITES, _WRITES, "nCCD"),
    Rule("tRTW", "rank", _READS, _WRITES, "nRTW"),
    Rule("tWTR", "rank", _WRITES, _READS, "nWL + nBL + nWTR"),
    Rule("tCCDSB", "bank", _READS, _READS, "nCCDSB"),
    Rule("tCCDSB", "bank", _WRITES, _WRITES, "nCCDSB"),
    Rule("tWTRSB", "bank", _WRITES, _READS, "nWL + nBL + nWTRSB"),
    # Rows.
    Rule("tRRD", "rank", ("ACT",), ("ACT", "REFpb"), "nRRD"),
    Rule("tPPD", "rank", ("PREpb", "PREab"), ("PREpb", "PREab"), "nPPD"),
    Rule("tRPD", "bank", ("PREpb",), ("ACT", "REFpb"), "nRPD", siblings=True),
    Rule("tRC", "bank", ("ACT",), ("ACT", *_ONE_BANK), "nRC"),
    Rule("tRCDRD", "bank", ("ACT",), _READS, "nRCDRD"),
    Rule("tRCDWR", "bank", ("ACT",), _WRITES, "nRCDWR"),
    Rule("tRAS", "bank", ("ACT",), ("PREpb",), "nRAS"),
    Rule("tRP", "bank", ("PREpb",), ("ACT", *_ONE_BANK), "nRP"),
    Rule("tRTPSB", "bank", ("RD",), ("PREpb",), "nRTPSB"),
    Rule("tWR", "bank", ("WR",), ("PREpb",), _AFTER_WRITE),
    Rule("tRTPSB + tRP", "bank", ("RDA",), ("ACT", *_ONE_BANK), "nRTPSB + nRP"),
    Rule("tWR + tRP", "bank", ("WRA",), ("ACT", *_ONE_BANK), f"{_AFTER_WRITE} + nRP"),
    # Refresh of all banks.
    Rule("tRC", "rank", ("ACT",), _ALL_BANKS, "nRC"),
    Rule("tRDREFab", "rank", _READS, ("REFab",), "nRDREFab"),
    Rule("tRP", "rank", ("PREpb", "PREab"), _ALL_BANKS, "nRP"),
    Rule("tRTPSB + tRP", "rank", ("RDA",), ("REFab",), "nRTPSB + nRP"),
    Rule("tWR + tRP", "rank", ("WRA",), ("REFab",), f"{_AFTER_WRITE} + nRP"),
    Rule("tRFCab", "rank", ("REFab",), ("ACT", "PREab", "REFab", "REFpb"), "nRFCab"),
    Rule("tRFMab", "rank", ("RFMab",), ("ACT", "PREab", *_ALL_BANKS, *_ONE_BANK), "nRFMab"),
    # Refresh of one bank.
    Rule("tRREFD", "rank", ("REFpb",), ("ACT", "REFpb"), "nRREFD"),
    Rule("tRFCpb", "rank", ("REFpb",), ("REFab",), "nRFCpb"),
    Rule("tRFCpb", "bank", ("REFpb",), ("ACT", "REFpb"), "nRFCpb"),
    Rule("tRFMpb", "bank", ("RFMpb",), ("ACT", *_ONE_BANK), "nRFMpb"),
    # The read clock.
    Rule("tRCKSTRT2RD", "rank", ("RCKSTRT",), _READS, "nRCKSTRT2RD"),
    Rule("tRD2RCKSTOP", "rank", _READS, ("RCKSTOP",), "nRD2RCKSTOP"),
    Rule("tRCKSP2ST", "rank", ("RCKSTOP",), ("RCKSTRT", *_READS), "nRCKSP2ST"),
    Rule("tRCKST2SP", "rank", ("RCKSTRT",), ("RCKSTOP",), "nRCKST2SP"),
)

# Rules that the reference lacks. JESD239D, 6.13: RFM keeps the distances of refreshes.
_LEFT_OUT = (
    Rule("BL", "rank", _READS, _WRITES, "nRL + nDQERL + nBL - nWL"),  # one burst at a time on the data bus
    Rule("tRTPSB", "rank", _READS, ("PREab",), "nRTPSB"),
    Rule("tWR", "rank", _WRITES, ("PREab",), _AFTER_WRITE),
    Rule("tRAS", "rank", ("ACT",), ("PREab",), "nRAS"),
    Rule("tRP", "rank", ("PREab",), ("ACT", *_ONE_BANK), "nRP"),
    Rule("tRRD", "rank", ("ACT",), ("RFMpb",), "nRRD"),
    Rule("tRPD", "bank", ("PREpb",), ("RFMpb",), "nRPD", siblings=True),
    Rule("tRDREFab", "rank", _READS, ("RFMab",), "nRDREFab"),
    Rule("tRTPSB + tRP", "rank", ("RDA",), ("RFMab",), "nRTPSB + nRP"),
    Rule("tWR + tRP", "rank", ("WRA",), ("RFMab",), f"{_AFTER_WRITE} + nRP"),
    Rule("tRFCab", "rank", ("REFab",), ("PREpb", "RFMab", "RFMpb"), "nRFCab"),
    Rule("tRFMab", "rank", ("RFMab",), ("PREpb",), "nRFMab"),
    Rule("tRREFD", "rank", ("REFpb",), ("RFMpb",), "nRREFD"),
    Rule("tRREFD", "rank", ("RFMpb",), ("ACT", *_ONE_BANK), "nRREFD"),
    Rule("tRFCpb", "rank", ("REFpb",), ("RFMab",), "nRFCpb"),
    Rule("tRFCpb", "bank", ("REFpb",), ("PREpb", "RFMpb"), "nRFCpb"),
    Rule("tRFMpb", "bank", ("RFMpb",), ("PREpb",), "nRFMpb"),
    Rule("tRFMpb", "rank", ("RFMpb",), _ALL_BANKS, "nRFMpb"),
)

_COMMON = dict(
    tCK_ps=571, nBL=2, nRL=24, nWL=6, nDQERL=0, nRCDRD=30, nRCDWR=19, nRP=30, nRAS=60, nRC=90, nWR=30,
    nRTPSB=4, nRRD=4, nRREFD=21, nWTR=9, nWTRSB=11, nCCD=2, nCCDSB=4, nPPD=2, nRPD=2, nRDREFab=28,
    nRCKSTRT2RD=2, nRCKPST=2, nRCKEN=6, nRCKSTOP_LAT=10, nRCK_LS=2, nRD2RCKSTOP=18, nRCKSP2ST=8, nRCKST2SP=26,
)  # fmt: skip

# Clocks of 28 Gb/s: 315 and 105.
_RFC_AB, _RFC_PB = ByDensity({16384: 180}), ByDensity({16384: 60})

_AS_GUESSED = "as Ramulator 2.1 c5b1c3a, which guesses it"
_GUESS = f"none found; {_AS_GUESSED}"
_BY_MAKER = f"none found (JESD239D Table 150 leaves it to the maker); {_AS_GUESSED}"
_GUESSED = (
    *("nRL", "nWL", "nDQERL", "nRCDRD", "nRCDWR", "nRP", "nRAS", "nWR", "nRTPSB", "nRRD", "nRREFD"),
    *("nWTR", "nWTRSB"),
)


def _commands(round_of: str) -> tuple[Command, ...]:
    """All commands; `round_of`: see `spec.standard.Command`."""
    bank_refresh: dict[str, Any] = dict(
        closes_first="PREpb", interval="nREFIpb", round_of=round_of, pause="nRFCpb"
    )
    return (
        Command("ACT", "bank", opens=True, cycles=2, bus="row"),
        Command("PREpb", "bank", closes=True, bus="row"),
        Command("PREab", "rank", closes=True, bus="row"),
        Command("RD", "bank", reads=True, cycles=2, bus="column", started_by="RCKSTRT", stopped_by="RCKSTOP"),
        Command("WR", "bank", writes=True, cycles=2, bus="column"),
        Command("RDA", "bank", reads=True, closes=True, cycles=2, bus="column"),
        Command("WRA", "bank", writes=True, closes=True, cycles=2, bus="column"),
        Command("REFab", "rank", refreshes=True, closes_first="PREab", busy="nRFCab", bus="row"),
        Command("REFpb", "bank", refreshes=True, bus="row", **bank_refresh),
        Command("RFMab", "rank", manages=True, closes_first="PREab", busy="nRFMab", bus="row"),
        Command("RFMpb", "bank", manages=True, closes_first="PREpb", bus="row"),
        Command("RCKSTRT", "rank", cycles=2, bus="column"),
        Command("RCKSTOP", "rank", cycles=2, bus="column"),
    )


STANDARD = Standard(
    name="GDDR7",
    source="JESD239D",
    commands=_commands("rank"),
    levels=("channel", "rank", "bankgroup", "bank"),
    transfers_per_clock=16,
    prefetch=32,
    channel_bits=8,
    rules=_RULES + _LEFT_OUT,
    # Density of a device in Gb (a channel has a quarter of it): rows of a bank.
    organisations={
        f"GDDR7_{density}Gb_x8": Organisation(density * 1024, 8, 1, 16, rows, 2048, ranks=1)
        for density, rows in ((16, 1 << 14), (32, 1 << 15), (64, 1 << 16))
    },
    speeds={"GDDR7_28000_PAM3": dict(rate=28000, nRTW=24) | _COMMON},
    derived={
        "nREFI": Every(1900, "down"),
        "nREFIpb": EveryBank(1900, "down"),
        "nRFCab": _RFC_AB,
        "nRFCpb": _RFC_PB,
        "nRFMab": _RFC_AB,
        "nRFMpb": _RFC_PB,
    },
    management=Management(32, 3, 2, "JESD239D, 6.13: the vendor's; none found; the strictest that DDR5 has"),
    max_postponed_refreshes=8,
    max_pulled_in_refreshes=8,
    controller="read-clock",
    read_latency="1 + nRL + nDQERL",
    write_latency="1 + nWL",
    derives_exactly=True,
    cited={
        "nBL": "JESD239D: 32 transfers of 8 bits in two CK4, PAM3",
        **dict.fromkeys(("nCCD", "nCCDSB", "nPPD", "nRPD"), "JESD239D Table 150"),
        "nREFI": "JESD239D Table 150: 1.9 us",
        "nREFIpb": "JESD239D Table 150: tREFI / 16",
        "nRC": "tRAS + tRP",
        "nRTW": "JESD239D Table 150: RL + DQERL + BL + 3 - WL; and one clock of turnaround, none found",
        "nRDREFab": "JESD239D: RL + DQERL + BL + 2",
        **dict.fromkeys(("nRFCab", "nRFCpb"), _BY_MAKER),
        "nRFMab": "none found; as tRFCab",
        "nRFMpb": "none found; as tRFCpb",
        "nRCKSTRT2RD": "JESD239D, as Ramulator 2.1 has it",
        "nRCKPST": "JESD239D, as Ramulator 2.1 has it",
        "nRD2RCKSTOP": "RL + DQERL + BL + tRCKPST - tRCKSTOP_LAT, as Ramulator 2.1 has it",
        "nRCKST2SP": "JESD239D Table 150 Note 24: RL + tRCKSTRT2RD",
        **dict.fromkeys(("nRCKEN", "nRCKSTOP_LAT", "nRCK_LS", "nRCKSP2ST"), _BY_MAKER),
        **dict.fromkeys(_GUESSED, _GUESS),
    },
    reference=dict(
        commands=_commands(""),
        rules=_RULES,
        speeds={
            "GDDR7_28000_PAM3": _COMMON
            | dict(
                rate=28021, nRTW=12, nREFI=3327, nREFIpb=207, nRFCab=315, nRFCpb=105, nRFMab=315, nRFMpb=105,
                nRCK_HS=18,
            )
        },
        derived={},
        derives_exactly=False,
    ),
)  # fmt: skip
