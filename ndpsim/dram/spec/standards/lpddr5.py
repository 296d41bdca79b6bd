"""LPDDR5 SDRAM, JESD209-5C, bank-group mode, WCK:CK 4:1. A channel here is one of 16 bits, with its ranks.

Rules and values are those that public controller software quotes from JESD209-5C (`cited`). Times of rows
count from the second half of an activation, which carries the row's low bits; only tFAW counts from the
first. REFpb refreshes a pair of banks, one bank group and the one two above, in every rank at once: eight of
them stand for a REFab.

Where the standard leaves the controller free (`choices`), the first half of an activation waits until the
second could follow at once, no refresh comes between the halves, and a CAS may come before its read or write
is ready. Nothing in the standard says how ranks take over the data bus. Here the data of two ranks are nCS
clocks apart, and each rank has a data clock (WCK) of its own.

Under `rules="reference"` commands and values equal those of Ramulator 2.1 (python/ramulator/dram/lpddr5.py,
commit c5b1c3a): all rows count from ACT1, one data clock serves all ranks, data of a write may lie on
those of a read of another rank, and each tREFIpb one bank of the channel is refreshed.
"""

from typing import Any

from ndpsim.dram.spec.standard import (
    AtLeast,
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

_READS, _WRITES = ("RD", "RDA"), ("WR", "WRA")
_COLUMN = _READS + _WRITES

_COLUMN_RULES = (
    # The data bus carries one burst at a time.
    Rule("BL", "channel", _READS, _READS, "nBL_min"),
    Rule("BL", "channel", _WRITES, _WRITES, "nBL_min"),
    # The data clock starts.
    Rule("tWCKENL", "bank", ("CAS_RD",), _READS, "nCAS"),
    Rule("tWCKENL", "bank", ("CAS_WR",), _WRITES, "nCAS"),
    # Within a rank.
    Rule("tCCD_S", "rank", _READS, _READS, "nCCDS"),
    Rule("tCCD_S_WR", "rank", _WRITES, _WRITES, "nCCDS_WR"),
    Rule("tRTW", "rank", _READS, _WRITES, "nCL + nBL_min + 2 - nCWL"),
    Rule("tWTR_S", "rank", _WRITES, _READS, "nCWL + nBL_min + nWTRS"),
    # Within a bank group.
    Rule("tCCD_L", "bankgroup", _READS, _READS, "nCCDL"),
    Rule("tCCD_L_WR", "bankgroup", _WRITES, _WRITES, "nCCDL_WR"),
    Rule("tWTR_L", "bankgroup", _WRITES, _READS, "nCWL + nBL_max + nWTRL"),
    # Precharges, and refreshes after refreshes.
    Rule("tRBTP", "rank", ("RD",), ("PREab",), "nRTP"),
    Rule("tRBTP", "bank", ("RD",), ("PREpb",), "nRTP"),
    Rule("tPPD", "rank", ("PREpb", "PREab"), ("PREpb", "PREab"), "nPPD"),
    Rule("tRBTP + tRPpb", "rank", ("RDA",), ("REFab",), "nRP + nRTP"),
    Rule("tRFCab", "rank", ("REFab",), ("PREab", "REFpb", "REFab"), "nRFC"),
    Rule("tpbR2pbR", "rank", ("REFpb",), ("REFpb",), "nPBR2PBR"),
    Rule("tRFCpb", "rank", ("REFpb",), ("REFab",), "nRFCpb"),
    Rule("tRPpb", "rank", ("PREpb",), ("REFab",), "nRP"),
    Rule("tRPpb", "bank", ("PREpb",), ("REFpb",), "nRP"),
)


def _row_rules(opening: str, recovery: str) -> tuple[Rule, ...]:
    """The rules that count from and to a half of an activation; `recovery`: from WR to its precharge."""
    half = (opening,)
    return (
        # Within a rank.
        Rule("tRRD_S", "rank", half, half, "nRRDS"),
        Rule("tRAS", "rank", half, ("PREab",), "nRAS"),
        Rule("tRPab", "rank", ("PREab",), half, "nRPab"),
        Rule("tWR", "rank", ("WR",), ("PREab",), recovery),
        Rule("tWR + tRPpb", "rank", ("WRA",), ("REFab",), f"{recovery} + nRP"),
        Rule("tRFCab", "rank", ("REFab",), half, "nRFC"),
        Rule("tpbR2act", "rank", ("REFpb",), half, "nPBR2ACT"),
        # Within a bank group.
        Rule("tRRD_L", "bankgroup", half, half, "nRRDL"),
        # Within a bank.
        Rule("tRC", "bank", half, (opening, "REFpb"), "nRC"),
        Rule("tRCD", "bank", half, _COLUMN, "nRCD"),
        Rule("tRAS", "bank", half, ("PREpb",), "nRAS"),
        Rule("tRPpb", "bank", ("PREpb",), half, "nRP"),
        Rule("tWR", "bank", ("WR",), ("PREpb",), recovery),
        Rule("tRBTP + tRPpb", "bank", ("RDA",), half, "nRTP + nRP"),
        Rule("tWR + tRPpb", "bank", ("WRA",), half, f"{recovery} + nRP"),
        Rule("tRFCpb", "bank", ("REFpb",), half, "nRFCpb"),
    )


_RECOVERY = "nCWL + nBL_min + 1 + nWR"
_ONLY_IN_STANDARD = (
    Rule("tRTW_L", "bankgroup", _READS, _WRITES, "nCL + nBL_max + 2 - nCWL"),
    Rule("tFAW", "rank", ("ACT1", "REFpb"), ("ACT1", "REFpb"), "nFAW", window=4),
    Rule("tRRD_S", "rank", ("ACT2",), ("REFpb",), "nRRDS"),
    Rule("tRAS + tRPab", "rank", ("ACT2",), ("REFab",), "nRAS + nRPab"),
    Rule("tRPab", "rank", ("PREab",), ("REFab", "REFpb"), "nRPab"),
    Rule("tRBTP + tRPpb", "bank", ("RDA",), ("REFpb",), "nRTP + nRP"),
    Rule("tWR + tRPpb", "bank", ("WRA",), ("REFpb",), f"{_RECOVERY} + nRP"),
    # No command goes to a bank that is being refreshed.
    Rule("tRFCab", "rank", ("REFab",), ("PREpb",), "nRFC"),
    Rule("tRFCpb", "bank", ("REFpb",), ("PREpb",), "nRFCpb"),
)
_ONLY_IN_REFERENCE = (
    Rule("tFAW", "rank", ("ACT1",), ("ACT1",), "nFAW", window=4),
    Rule("tRC", "rank", ("ACT1",), ("REFab",), "nRC"),
    Rule("tRPpb", "rank", ("PREab",), ("REFab",), "nRP"),
)

# Another rank takes over the data bus: its data come nCS clocks after those before.
_BETWEEN_RANKS = (
    Rule("tCS", "rank", _READS, _READS, "nBL_min + nCS", siblings=True),
    Rule("tCS", "rank", _READS, _WRITES, "nCL + nBL_min + nCS - nCWL", siblings=True),
    Rule("tCS", "rank", _WRITES, _READS, "nCWL + nBL_min + nCS - nCL", siblings=True),
    Rule("tCS", "rank", _WRITES, _WRITES, "nBL_min + nCS", siblings=True),
)
_BETWEEN_RANKS_IN_REFERENCE = (
    Rule("tCS", "rank", _READS, _COLUMN, "nBL_min + nCS", siblings=True),
    Rule("tCS", "rank", _WRITES, _READS, "nCL + nBL_min + nCS - nCWL", siblings=True),
)


def _commands(wck_of: str, announced: str, burst: str, refreshed: str, ranks: str) -> tuple[Command, ...]:
    """The commands.

    `wck_of`: the level with a data clock; `announced`: clocks that a CAS keeps the bus for; `burst`: the one
    after which the data clock may stop; `refreshed`, `ranks`: scope and order of REFpb.
    """
    wck: dict[str, Any] = dict(prepared_at=wck_of)
    read = wck | dict(prepared_by="CAS_RD", keeps_prepared=f"nCL + {burst} + nWCKPST")
    write = wck | dict(prepared_by="CAS_WR", keeps_prepared=f"nCWL + {burst} + nWCKPST")
    return (
        Command("ACT1", "bank", opens=True, completed_by="ACT2", complete_within="nAAD"),
        Command("ACT2", "bank"),
        Command("PREpb", "bank", closes=True),
        Command("PREab", "rank", closes=True),
        Command("CAS_RD", "bank", keeps_prepared=announced),
        Command("CAS_WR", "bank", keeps_prepared=announced),
        Command("RD", "bank", reads=True, **read),
        Command("WR", "bank", writes=True, **write),
        Command("RDA", "bank", reads=True, closes=True, **read),
        Command("WRA", "bank", writes=True, closes=True, **write),
        Command("REFab", "rank", refreshes=True, closes_first="PREab", busy="nRFC"),
        Command("REFpb", refreshed, refreshes=True, closes_first="PREpb", interval="nREFIpb", ranks=ranks),
    )


def _derived(least: int, window: int, interval: Derivation, per_bank: Derivation) -> dict[str, Derivation]:
    """Timings in clocks; `least`, `window`: minimum of tRRD, tFAW; `interval`, `per_bank`: of refreshes."""
    return {
        "nRRDS": AtLeast(least, {16: 5}),
        "nRRDL": AtLeast(least, {16: 5}),
        "nFAW": AtLeast(window, {16: 20}),
        "nRFC": ByDensity({2048: 130, 4096: 180, 8192: 210, 16384: 280, 32768: 380}),
        "nRFCpb": ByDensity({2048: 60, 4096: 90, 8192: 120, 16384: 140, 32768: 190}),
        "nREFI": interval,
        "nREFIpb": per_bank,
        "nPBR2PBR": ByDensity({2048: 60, 4096: 90, 8192: 90, 16384: 90, 32768: 90}),
    }


_LPDDR5_6400 = dict(
    rate=6400, tCK_ps=1250, nBL_min=2, nBL_max=4, nCL=17, nRCD=15, nRP=15, nRPab=17, nRAS=34, nRC=49, nWR=28,
    nRTP=6, nCWL=9, nPPD=2, nCCDS=2, nCCDL=4, nCCDS_WR=2, nCCDL_WR=4, nWTRS=5, nWTRL=10, nWCKPST=1, nCAS=0,
    nAAD=8, nCS=2, nPBR2ACT=6,
)  # fmt: skip
_ORGANISATIONS = {
    f"LPDDR5_{gigabits}Gb_x16": Organisation(gigabits * 1024, 16, 4, 4, rows, 1024)
    for gigabits, rows in ((8, 1 << 15), (16, 1 << 16), (32, 1 << 17))
}

CITED = {
    "rate": "JESD209-5C, Table 381",
    "tCK_ps": "the clock of the grade, rounded down to ps",
    "nBL_min": "BL/n_min of BL16, CKR 4:1, WCK above 1600 MHz; JESD209-5C, Table 339",
    "nBL_max": "BL/n_max of BL16, CKR 4:1, WCK above 1600 MHz; JESD209-5C, Table 339",
    "nCL": "read latency set 0, x16, CKR 4:1; JESD209-5C, its table not quoted",
    "nCWL": "write latency set A, CKR 4:1; JESD209-5C, its table not quoted",
    "nRCD": "18 ns; JESD209-5C, Table 381",
    "nRP": "tRPpb, 18 ns; JESD209-5C, Table 381",
    "nRPab": "21 ns; JESD209-5C, Table 381",
    "nRAS": "42 ns; JESD209-5C, Table 381",
    "nRC": "tRAS + tRPpb; JESD209-5C, Table 381",
    "nWR": "34 ns; JESD209-5C, its table not quoted",
    "nRTP": "BL/n_min + nRBTP; JESD209-5C, Tables 225 and 340",
    "nPPD": "JESD209-5C, Table 381",
    "nCCDS": "BL/n_min; JESD209-5C, Table 342",
    "nCCDS_WR": "BL/n_min; JESD209-5C, Table 342",
    "nCCDL": "BL/n_max; JESD209-5C, Tables 340 and 341",
    "nCCDL_WR": "BL/n_max; JESD209-5C, Tables 340 and 341",
    "nWTRS": "6.25 ns; JESD209-5C, Table 342",
    "nWTRL": "12 ns; JESD209-5C, Tables 340 and 341",
    "nRRDS": "5 ns, at least 2 clocks; JESD209-5C, Table 381",
    "nRRDL": "5 ns, at least 2 clocks; JESD209-5C, Table 381",
    "nFAW": "20 ns; JESD209-5C, Table 381",
    "nRFC": "tRFCab; JESD209-5C, Table 240",
    "nRFCpb": "JESD209-5C, Table 240",
    "nREFI": "3906 ns, rounded down as a maximum; JESD209-5C, Table 240",
    "nREFIpb": "488 ns, an eighth of tREFI, rounded down as a maximum; JESD209-5C, Table 240",
    "nPBR2PBR": "JESD209-5C, Table 240",
    "nRFMab": "none found; tRFCab (280 ns at 16 Gb, as AMD's DDRMC5 is configured)",
    "nRFMpb": "190 ns at 16 Gb, as AMD's DDRMC5 is configured; 8 Gb: LPDDR4's; 32 Gb: none found, as 16 Gb",
    "nPBR2ACT": "7.5 ns; JESD209-5C, Table 240",
    "nWCKPST": "none found; as Ramulator 2.1 c5b1c3a",
    "nCAS": "the access follows its CAS at once; JESD209-5C, Tables 361 and 362",
    "nAAD": "JESD209-5C, Section 7.3.1",
    "nCS": "none found, left to the system; as Ramulator 2.1 c5b1c3a, which guesses it",
}

STANDARD = Standard(
    name="LPDDR5",
    source="JESD209-5C",
    commands=(
        *_commands("rank", "nCAS", "nBL_max", "bank-pair", "together"),
        Command("RFMab", "rank", manages=True, closes_first="PREab", busy="nRFMab"),
        Command("RFMpb", "bank-pair", manages=True, closes_first="PREpb"),
    ),
    levels=("channel", "rank", "bankgroup", "bank"),
    transfers_per_clock=8,
    prefetch=16,
    channel_bits=16,
    rules=with_rfm(
        _COLUMN_RULES + _row_rules("ACT2", _RECOVERY) + _ONLY_IN_STANDARD + _BETWEEN_RANKS,
        {"REFab": "RFMab", "REFpb": "RFMpb"},
        {"nRFC": "nRFMab", "nRFCpb": "nRFMpb"},
    ),
    organisations=_ORGANISATIONS,
    speeds={
        "LPDDR5_5500": _LPDDR5_6400 | dict(
            rate=5500, tCK_ps=1453, nCL=15, nRCD=13, nRP=13, nRPab=15, nRAS=29, nRC=42, nWR=24, nCWL=8,
            nWTRL=9,
        ),
        "LPDDR5_6400": _LPDDR5_6400,
    },
    derived=_derived(2, 1, Every(3906, "down"), Every(488, "down"))
    | {"nRFMab": Sum("nRFC"), "nRFMpb": ByDensity({8192: 170, 16384: 190, 32768: 190})},
    max_postponed_refreshes=8,
    max_pulled_in_refreshes=8,
    controller="split-activation",
    choices=("waits-for-second-half", "no-refresh-between-halves", "announces-ahead"),
    management=Management(
        threshold=32,
        multiple=2,
        refreshes=1,
        source=(
            "JESD209-5, MR27: RAAIMT 8 to 248, RAAMMT 2 to 8 times it, REF takes off RAAIMT; "
            "no data sheet found: 32 as DDR5, RAAMMT the strictest"
        ),
    ),
    cited=CITED,
    burst="nBL_min",
    reference=dict(
        commands=_commands("channel", "", "nBL_min", "bank", "in turn"),
        rules=(
            _COLUMN_RULES
            + _row_rules("ACT1", "nCWL + nBL_min + nWR")
            + _ONLY_IN_REFERENCE
            + _BETWEEN_RANKS_IN_REFERENCE
        ),
        organisations={name: _ORGANISATIONS[name] for name in ("LPDDR5_8Gb_x16", "LPDDR5_16Gb_x16")},
        speeds={"LPDDR5_6400": _LPDDR5_6400 | dict(nRTP=8)},
        derived=_derived(4, 16, Every(3906), Every(488)),
        choices=(),
        management=None,
    ),
)  # fmt: skip

#: The fields of a controller whose ranks are as in the reference, and which refreshes one bank of the channel
#: each tREFIpb: as Ramulator 2.1's pages are corrected from the standard elsewhere.
AS_CORRECTED: dict[str, Any] = dict(
    commands=_commands("channel", "", "nBL_max", "bank", "in turn"),
    rules=(_COLUMN_RULES + _row_rules("ACT2", _RECOVERY) + _ONLY_IN_STANDARD + _BETWEEN_RANKS_IN_REFERENCE),
)
