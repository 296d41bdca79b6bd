"""LPDDR6 SDRAM, JESD209-6, bank-group mode, WCK:CK 2:1. A channel here is a sub-channel of 12 bits.

A burst of 24 beats on 12 pins has 32 bytes of data and 4 of metadata; a long one (RD_L, WR_L: BL48) is two of
them, between whose data is room for another. No controller here issues long bursts. Every command takes two
clocks. nRP and nRPab include the update of the row's activation count (nACU). One CAS starts the data clock
for reads and for writes.

Timings have the names and, unless `reference` says otherwise, the values of Ramulator 2.1
(python/ramulator/dram/lpddr6.py, commit c5b1c3a). Under its rules:

- Rows count from ACT1; REFab follows PREab by tRPpb, and an activation by nRAS + nRPab.
- PREab does not wait for the end of an auto-precharge, nor a REFab for the REFab before it.
- A write waits nBL_min + nCS behind a read of another rank, so that its data lie on the read's; a read behind
  a write of another rank waits as if the read's latency came first. All ranks have one data clock.
- nODTLon of 27 and nODTon_min of 0 make reads to writes seven clocks shorter; they are not rounded to even.

Table 302 leaves tRFCab of dies (two sub-channels) of 4 Gb and of more than 32 Gb open.
"""

from typing import Any

from ndpsim.dram.spec.standard import (
    ByDensity,
    Command,
    Derivation,
    Every,
    Management,
    Organisation,
    Rule,
    Standard,
    Sum,
    with_rfm,
)

_SHORT_READS, _LONG_READS = ("RD_S", "RDA_S"), ("RD_L", "RDA_L")
_SHORT_WRITES, _LONG_WRITES = ("WR_S", "WRA_S"), ("WR_L", "WRA_L")
_READS, _WRITES = _SHORT_READS + _LONG_READS, _SHORT_WRITES + _LONG_WRITES

# Column commands, short and long.
_COLUMNS = (
    # The data bus carries one burst at a time.
    Rule("BL", "channel", _SHORT_READS, _READS, "nBL_min"),
    Rule("BL", "channel", _SHORT_WRITES, _WRITES, "nBL_min"),
    # The data clock starts.
    Rule("tCAS", "bank", ("CAS",), _READS + _WRITES, "nCAS"),
    # Within a rank.
    Rule("tCCD_S", "rank", _READS, _READS, "nCCDS"),
    Rule("tCCD_S_WR", "rank", _WRITES, _WRITES, "nCCDS_WR"),
    Rule("tRTW_S", "rank", _SHORT_READS, _WRITES, "nRTW_S"),
    Rule("tRTW_S", "rank", _LONG_READS, _WRITES, "nRTW_S_L"),
    Rule("tWTR_S", "rank", _SHORT_WRITES, _READS, "nWL + nBL_min + nWTRS"),
    Rule("tWTR_S", "rank", _LONG_WRITES, _READS, "nWL + nBL_min_L + nWTRS"),
    # Within a bank group.
    Rule("tCCD_L", "bankgroup", _SHORT_READS, _READS, "nCCDL"),
    Rule("tCCD_L", "bankgroup", _LONG_READS, _READS, "nCCDL_L"),
    Rule("tCCD_L_WR", "bankgroup", _SHORT_WRITES, _WRITES, "nCCDL_WR"),
    Rule("tCCD_L_WR", "bankgroup", _LONG_WRITES, _WRITES, "nCCDL_WR_L"),
    Rule("tRTW_L", "bankgroup", _SHORT_READS, _WRITES, "nRTW_L"),
    Rule("tRTW_L", "bankgroup", _LONG_READS, _WRITES, "nRTW_L_L"),
    Rule("tWTR_L", "bankgroup", _SHORT_WRITES, _READS, "nWL + nBL_max + nWTRL"),
    Rule("tWTR_L", "bankgroup", _LONG_WRITES, _READS, "nWL + nBL_max_L + nWTRL"),
)
_CLOSING_TIMES = (
    ("RD_S", "RDA_S", "tRTP", "nRTP"),
    ("RD_L", "RDA_L", "tRTP", "nRTP_L"),
    ("WR_S", "WRA_S", "tWTP", "nWL + nBL_max + nWTP"),
    ("WR_L", "WRA_L", "tWTP", "nWL + nBL_max_L + nWTP"),
)


def _row_rules(opened: str, refreshed_after: str) -> tuple[Rule, ...]:
    """Rules of rows, which count from and to this half of an activation."""
    act = (opened,)
    rules = [
        Rule("tRRD", "rank", act, act, "nRRD"),
        Rule("tFAW", "rank", act, act, "nFAW", window=4),
        Rule("tRAS", "rank", act, ("PREab",), "nRAS"),
        Rule("tRPab", "rank", ("PREab",), act, "nRPab"),
        Rule("tPPD", "rank", ("PREpb", "PREab"), ("PREpb", "PREab"), "nPPD"),
        Rule("tRC", "rank", act, ("REFab",), refreshed_after),
        Rule("tRPpb", "rank", ("PREpb", "PREab"), ("REFab",), "nRP"),
        Rule("tRFCab", "rank", ("REFab",), (opened, "PREab"), "nRFC"),
        Rule("tRC", "bank", act, act, "nRC"),
        Rule("tRCDr", "bank", act, _READS, "nRCDr"),
        Rule("tRCDw", "bank", act, _WRITES, "nRCDw"),
        Rule("tRAS", "bank", act, ("PREpb",), "nRAS"),
        Rule("tRPpb", "bank", ("PREpb",), act, "nRP"),
    ]
    for column, with_precharge, name, clocks in _CLOSING_TIMES:
        rules += [
            Rule(name, "rank", (column,), ("PREab",), clocks),
            Rule(name, "bank", (column,), ("PREpb",), clocks),
            Rule(f"{name} + tRPpb", "bank", (with_precharge,), act, f"{clocks} + nRP"),
            Rule(f"{name} + tRPpb", "rank", (with_precharge,), ("REFab",), f"{clocks} + nRP"),
        ]
    return tuple(rules)


# Only under the rules of the standard.
_CLOSED_BEFORE_REFRESH = (
    Rule("tRPab", "rank", ("PREab",), ("REFab",), "nRPab"),
    Rule("tRFCab", "rank", ("REFab",), ("PREpb", "REFab"), "nRFC"),
    *(Rule(name, "rank", (column,), ("PREab",), clocks) for _, column, name, clocks in _CLOSING_TIMES),
)
_STANDARD_ONLY = (
    *_CLOSED_BEFORE_REFRESH,
    # A long burst leaves room for another one between its halves; the checker looks at their data.
    Rule("BL", "channel", _LONG_READS, _READS, "nBL_min"),
    Rule("BL", "channel", _LONG_WRITES, _WRITES, "nBL_min"),
    # Another rank takes over the data bus.
    Rule("tCS", "rank", _SHORT_READS, _READS, "nBL_min + nCS", siblings=True),
    Rule("tCS", "rank", _LONG_READS, _READS, "nBL_min_L + nCS", siblings=True),
    Rule("tCS", "rank", _SHORT_READS, _WRITES, "nRL + nBL_min + nCS - nWL", siblings=True),
    Rule("tCS", "rank", _LONG_READS, _WRITES, "nRL + nBL_min_L + nCS - nWL", siblings=True),
    Rule("tCS", "rank", _SHORT_WRITES, _READS, "nWL + nBL_min + nCS - nRL", siblings=True),
    Rule("tCS", "rank", _LONG_WRITES, _READS, "nWL + nBL_min_L + nCS - nRL", siblings=True),
    Rule("tCS", "rank", _SHORT_WRITES, _WRITES, "nBL_min + nCS", siblings=True),
    Rule("tCS", "rank", _LONG_WRITES, _WRITES, "nBL_min_L + nCS", siblings=True),
)
_REFERENCE_ONLY = (
    Rule("BL", "channel", _LONG_READS, _READS, "nBL_min + nBL_min"),
    Rule("BL", "channel", _LONG_WRITES, _WRITES, "nBL_min + nBL_min"),
    Rule("tCS", "rank", _SHORT_READS, _READS + _WRITES, "nBL_min + nCS", siblings=True),
    Rule("tCS", "rank", _LONG_READS, _READS + _WRITES, "nBL_min + nBL_min + nCS", siblings=True),
    Rule("tCS", "rank", _SHORT_WRITES, _READS, "nRL + nBL_min + nCS - nWL", siblings=True),
    Rule("tCS", "rank", _LONG_WRITES, _READS, "nRL + nBL_min + nBL_min + nCS - nWL", siblings=True),
)


def _commands(wck_of: str) -> tuple[Command, ...]:
    """The commands; `wck_of`: the level with a data clock."""
    cas: dict[str, Any] = dict(cycles=2, prepared_by="CAS", prepared_at=wck_of)
    long = dict(second_burst="nBL_min + nBL_min")
    read, write = (cas | dict(keeps_prepared=f"{latency} + nBL_min + nWCKPST") for latency in ("nRL", "nWL"))
    long_read, long_write = (
        cas | long | dict(keeps_prepared=f"{latency} + nBL_min_L + nWCKPST") for latency in ("nRL", "nWL")
    )
    return (
        Command("ACT1", "bank", cycles=2, opens=True, completed_by="ACT2", complete_within="nAAD"),
        Command("ACT2", "bank", cycles=2),
        Command("PREpb", "bank", cycles=2, closes=True),
        Command("PREab", "rank", cycles=2, closes=True),
        Command("CAS", "bank", cycles=2, keeps_prepared="nCAS"),
        Command("RD_S", "bank", reads=True, **read),
        Command("WR_S", "bank", writes=True, **write),
        Command("RDA_S", "bank", reads=True, closes=True, **read),
        Command("WRA_S", "bank", writes=True, closes=True, **write),
        Command("RD_L", "bank", reads=True, **long_read),
        Command("WR_L", "bank", writes=True, **long_write),
        Command("RDA_L", "bank", reads=True, closes=True, **long_read),
        Command("WRA_L", "bank", writes=True, closes=True, **long_write),
        Command("REFab", "rank", cycles=2, refreshes=True, closes_first="PREab", busy="nRFC"),
    )


def _turns(rounded_to: int) -> dict[str, Derivation]:
    """Reads to writes, whose data are terminated in the device."""
    return {
        name: Sum(f"nRL + {burst} + nWCK2DQO + nRPST - nODTLon - nODTon_min + 1", multiple=rounded_to)
        for name, burst in (
            ("nRTW_S", "nBL_min"),
            ("nRTW_L", "nBL_max"),
            ("nRTW_S_L", "nBL_min_L"),
            ("nRTW_L_L", "nBL_max_L"),
        )
    }


_DERIVED: dict[str, Derivation] = {
    "nACU": Every(22),
    "nRAS": Every(20),
    # tACU plus 18 and 21 ns.
    "nRP": Sum("nACU + 48"),
    "nRPab": Sum("nACU + 56"),
    "nRC": Sum("nRAS + nRP"),
    "nCCDL_L": Sum("nCCDL + 12"),
    "nCCDL_WR_L": Sum("nCCDL_WR + 12"),
    # By the density of a sub-channel, half of the die that Table 302 names.
    "nRFC": ByDensity({3072: 210, 4096: 210, 6144: 280, 8192: 280, 12288: 380, 16384: 380}),
    "nREFI": Every(3906, rounding="down"),
}
_SPEED = dict(
    rate=10667, tCK_ps=375, nBL_min=6, nBL_max=12, nBL_min_L=18, nBL_max_L=24, nRL=56, nWL=26, nRCDr=48,
    nRCDw=22, nWTP=32, nRTP=14, nRTP_L=26, nPPD=4, nCCDS=6, nCCDL=10, nCCDS_WR=6, nCCDL_WR=10, nRRD=10,
    nWTRS=17, nWTRL=32, nWCK2DQO=5, nRPST=0, nODTLon=16, nODTon_min=4, nFAW=40, nWCKPST=3, nCAS=2, nAAD=8,
    nCS=2,
)  # fmt: skip

_ROW = "as Ramulator 2.1 c5b1c3a, whose rule names JESD209-6, Tables 383, 391 and 414"
_COLUMN = "as Ramulator 2.1 c5b1c3a, whose rule names JESD209-6"
_TURN = "RL + BL/n + tWCK2DQO + tRPST - ODTLon - tODTon_min + 1, rounded up to even; JESD209-6"
_NONE = "none found; as Ramulator 2.1 c5b1c3a"
_GUESS = f"{_NONE}, which guesses it"
CITED = {
    "rate": "JESD209-6, Tables 414 and 415: the grade of 9600 to 10667 MT/s",
    "tCK_ps": "the clock of the grade, WCK:CK 2:1, rounded down to ps",
    "nBL_min": "BL/n_min of BL24; JESD209-6, Table 381",
    "nBL_max": "BL/n_max of BL24 above 3200 MT/s; JESD209-6, Tables 381 and 382",
    "nBL_min_L": "BL/n_min of BL48 above 3200 MT/s; JESD209-6, Tables 381 and 382",
    "nBL_max_L": "BL/n_max of BL48 above 3200 MT/s; JESD209-6, Tables 381 and 382",
    "nRL": "read latency of the row of nRTP; JESD209-6, Tables 269 to 272",
    "nWL": _NONE,
    "nRCDr": f"18 ns; {_ROW}",
    "nRCDw": f"8 ns; {_ROW}",
    "nACU": "22 ns, the update of the activation count; JESD209-6, Tables 414 and 415",
    "nRAS": "20 ns, at least 4 clocks; JESD209-6, Table 414",
    "nRP": "tACU + 18 ns; JESD209-6, Table 414",
    "nRPab": "tACU + 21 ns; JESD209-6, Table 414",
    "nRC": "tRAS + tRPpb; JESD209-6, Table 414",
    "nRRD": f"3.75 ns; {_ROW}",
    "nFAW": f"15 ns; {_ROW}",
    "nWTP": f"12 ns; {_ROW}",
    "nRTP": "at RL 56, BL24; JESD209-6, Tables 269 to 272",
    "nRTP_L": "at RL 56, BL48; JESD209-6, Tables 269 to 272",
    "nPPD": _NONE,
    "nCCDS": "BL/n_min; JESD209-6, Table 385",
    "nCCDS_WR": "BL/n_min; JESD209-6, Table 385",
    "nCCDL": f"{_COLUMN}, Tables 382 to 384",
    "nCCDL_WR": f"{_COLUMN}, Tables 382 to 384",
    "nCCDL_L": "tCCD_L + 12 clocks above 3200 MT/s; JESD209-6, Table 382",
    "nCCDL_WR_L": "tCCD_L_WR + 12 clocks above 3200 MT/s; JESD209-6, Table 382",
    "nWTRS": f"6.25 ns; {_COLUMN}, Table 385",
    "nWTRL": f"12 ns; {_COLUMN}, Tables 383 and 384",
    "nRTW_S": f"{_TURN}, Table 390",
    "nRTW_L": f"{_TURN}, Table 389",
    "nRTW_S_L": f"{_TURN}, Table 390",
    "nRTW_L_L": f"{_TURN}, Table 389",
    "nWCK2DQO": "JESD209-6, Tables 319, 320 and 477",
    "nODTLon": "ODT on, high frequency; JESD209-6, Tables 319, 320 and 477",
    "nODTon_min": "ODT on, high frequency; JESD209-6, Tables 319, 320 and 477",
    "nRPST": _GUESS,
    "nCAS": "JESD209-6, Table 394",
    "nWCKPST": _NONE,
    "nAAD": _GUESS,
    "nCS": f"left to the system; {_GUESS}",
    "nRFC": "tRFCab by the density of the die, two sub-channels; JESD209-6, Table 302",
    "nREFI": "3906 ns, rounded down as a maximum; JESD209-6, Table 302",
    "nRFMab": "none found; tRFCab",
}

STANDARD = Standard(
    name="LPDDR6",
    source="JESD209-6",
    commands=(
        *_commands("rank"),
        Command("RFMab", "rank", cycles=2, manages=True, closes_first="PREab", busy="nRFMab"),
    ),
    levels=("channel", "rank", "bankgroup", "bank"),
    transfers_per_clock=4,
    prefetch=24,
    channel_bits=12,
    payload_bytes=32,
    rules=with_rfm(
        _COLUMNS + _row_rules("ACT2", "nRAS + nRPab") + _STANDARD_ONLY,
        {"REFab": "RFMab"},
        {"nRFC": "nRFMab"},
    ),
    organisations={"LPDDR6_16Gb_x12": Organisation(16384, 12, 4, 4, 1 << 16, 64 * 24)},
    speeds={"LPDDR6_10667_BL24": _SPEED},
    derived=_DERIVED | _turns(2) | {"nRFMab": Sum("nRFC")},
    max_postponed_refreshes=8,
    max_pulled_in_refreshes=8,
    controller="split-activation",
    choices=("waits-for-second-half", "no-refresh-between-halves", "announces-ahead", "second-half-in-time"),
    cited=CITED,
    management=Management(32, 2, 1, "JESD209-6: the vendor's; none found; as LPDDR5"),
    burst="nBL_min",
    read_latency="nRL",
    write_latency="nWL",
    reference=dict(
        choices=(),
        management=None,
        commands=_commands("channel"),
        rules=_COLUMNS + _row_rules("ACT1", "nRC") + _REFERENCE_ONLY,
        speeds={"LPDDR6_10667_BL24": _SPEED | dict(nODTLon=27, nODTon_min=0)},
        derived=_DERIVED | _turns(1) | {"nRC": Sum("nRAS + nRPab"), "nREFI": Every(3906)},
    ),
)

#: The fields of a controller whose ranks are as in the reference: as Ramulator 2.1's page is corrected from
#: the standard elsewhere.
AS_CORRECTED: dict[str, Any] = dict(
    commands=_commands("channel"),
    rules=_COLUMNS + _row_rules("ACT2", "nRAS + nRPab") + _REFERENCE_ONLY + _CLOSED_BEFORE_REFRESH,
)
