"""LPDDR5 SDRAM, JESD209-5, bank-group mode, WCK:CK 4:1. A channel here is one of 16 bits, with its ranks.

Preset values equal those of Ramulator 2.1 (python/ramulator/dram/lpddr5.py, commit c5b1c3a), so that the
commands of both can be compared one by one, under its rules (`rules="reference"`). They depart from it here:

- A write waits nBL_min + nCS behind a read of another rank, so that its data lie on the read's; a read behind
  a write of another rank waits as if the read's latency came first.
- The data clock (WCK) is one for all ranks, where each rank needs a CAS of its own; and a second half of
  an activation comes late where CAS comes more than a clock before its read or write (nCAS).
- Each tREFIpb one bank of the channel is refreshed: a bank of two ranks every 15.6 us, where 3.9 us are
  asked. JEDEC's REFpb takes a pair of banks and goes to every rank. Here it goes to every rank, to one bank,
  and twice as often.
- REFab follows PREab by tRPpb, not tRPab; no rule holds REFpb back behind an auto-precharge or PREab.

All rows count from ACT1, as there. nFAW is four times nRRD and binds nothing.
"""

from typing import Any

from ndpsim.spec.standard import AtLeast, ByDensity, Command, Derivation, Every, Organisation, Rule, Standard

_READS, _WRITES = ("RD", "RDA"), ("WR", "WRA")
_COLUMN = _READS + _WRITES

_RULES = (
    # The data bus carries one burst at a time.
    Rule("BL", "channel", _READS, _READS, "nBL_min"),
    Rule("BL", "channel", _WRITES, _WRITES, "nBL_min"),
    # The data clock starts.
    Rule("tWCKENL", "bank", ("CAS_RD",), _READS, "nCAS"),
    Rule("tWCKENL", "bank", ("CAS_WR",), _WRITES, "nCAS"),
    # Column commands within a rank.
    Rule("tCCD_S", "rank", _READS, _READS, "nCCDS"),
    Rule("tCCD_S_WR", "rank", _WRITES, _WRITES, "nCCDS_WR"),
    Rule("tRTW", "rank", _READS, _WRITES, "nCL + nBL_min + 2 - nCWL"),
    Rule("tWTR_S", "rank", _WRITES, _READS, "nCWL + nBL_min + nWTRS"),
    # Rows within a rank.
    Rule("tRBTP", "rank", ("RD",), ("PREab",), "nRTP"),
    Rule("tWR", "rank", ("WR",), ("PREab",), "nCWL + nBL_min + nWR"),
    Rule("tRRD_S", "rank", ("ACT1",), ("ACT1",), "nRRDS"),
    Rule("tFAW", "rank", ("ACT1",), ("ACT1",), "nFAW", window=4),
    Rule("tRAS", "rank", ("ACT1",), ("PREab",), "nRAS"),
    Rule("tRPab", "rank", ("PREab",), ("ACT1",), "nRPab"),
    Rule("tPPD", "rank", ("PREpb", "PREab"), ("PREpb", "PREab"), "nPPD"),
    # Refresh.
    Rule("tRC", "rank", ("ACT1",), ("REFab",), "nRC"),
    Rule("tRPpb", "rank", ("PREpb", "PREab"), ("REFab",), "nRP"),
    Rule("tRBTP + tRPpb", "rank", ("RDA",), ("REFab",), "nRP + nRTP"),
    Rule("tWR + tRPpb", "rank", ("WRA",), ("REFab",), "nCWL + nBL_min + nWR + nRP"),
    Rule("tRFCab", "rank", ("REFab",), ("ACT1", "PREab", "REFpb", "REFab"), "nRFC"),
    Rule("tpbR2pbR", "rank", ("REFpb",), ("REFpb",), "nPBR2PBR"),
    Rule("tRFCpb", "rank", ("REFpb",), ("REFab",), "nRFCpb"),
    Rule("tpbR2act", "rank", ("REFpb",), ("ACT1",), "nPBR2ACT"),
    # Within a bank group.
    Rule("tCCD_L", "bankgroup", _READS, _READS, "nCCDL"),
    Rule("tCCD_L_WR", "bankgroup", _WRITES, _WRITES, "nCCDL_WR"),
    Rule("tWTR_L", "bankgroup", _WRITES, _READS, "nCWL + nBL_max + nWTRL"),
    Rule("tRRD_L", "bankgroup", ("ACT1",), ("ACT1",), "nRRDL"),
    # Within a bank.
    Rule("tRC", "bank", ("ACT1",), ("ACT1", "REFpb"), "nRC"),
    Rule("tRCD", "bank", ("ACT1",), _COLUMN, "nRCD"),
    Rule("tRAS", "bank", ("ACT1",), ("PREpb",), "nRAS"),
    Rule("tRPpb", "bank", ("PREpb",), ("ACT1", "REFpb"), "nRP"),
    Rule("tRBTP", "bank", ("RD",), ("PREpb",), "nRTP"),
    Rule("tWR", "bank", ("WR",), ("PREpb",), "nCWL + nBL_min + nWR"),
    Rule("tRBTP + tRPpb", "bank", ("RDA",), ("ACT1",), "nRTP + nRP"),
    Rule("tWR + tRPpb", "bank", ("WRA",), ("ACT1",), "nCWL + nBL_min + nWR + nRP"),
    Rule("tRFCpb", "bank", ("REFpb",), ("ACT1",), "nRFCpb"),
)

# Another rank takes over the data bus.
_BETWEEN_RANKS = (
    Rule("tCS", "rank", _READS, _READS, "nBL_min + nCS", siblings=True),
    Rule("tCS", "rank", _READS, _WRITES, "nCL + nBL_min + nCS - nCWL", siblings=True),
    Rule("tCS", "rank", _WRITES, _READS, "nCWL + nBL_min + nCS - nCL", siblings=True),
)
_BETWEEN_RANKS_IN_REFERENCE = (
    Rule("tCS", "rank", _READS, _COLUMN, "nBL_min + nCS", siblings=True),
    Rule("tCS", "rank", _WRITES, _READS, "nCL + nBL_min + nCS - nCWL", siblings=True),
)

# What the reference leaves out.
_CLOSED_BEFORE_REFRESH = (
    Rule("tRPab", "rank", ("PREab",), ("REFab", "REFpb"), "nRPab"),
    Rule("tRBTP + tRPpb", "bank", ("RDA",), ("REFpb",), "nRTP + nRP"),
    Rule("tWR + tRPpb", "bank", ("WRA",), ("REFpb",), "nCWL + nBL_min + nWR + nRP"),
)


def _commands(wck_of: str, announced: str, ranks: str) -> tuple[Command, ...]:
    """The commands: whose data clock one is, clocks that a CAS keeps the bus for, the order of REFpb."""
    wck: dict[str, Any] = dict(prepared_at=wck_of)
    read = wck | dict(prepared_by="CAS_RD", keeps_prepared="nCL + nBL_min + nWCKPST")
    write = wck | dict(prepared_by="CAS_WR", keeps_prepared="nCWL + nBL_min + nWCKPST")
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
        Command("REFpb", "bank", refreshes=True, closes_first="PREpb", interval="nREFIpb", ranks=ranks),
    )


_DERIVED: dict[str, Derivation] = {
    "nRRDS": AtLeast(4, {16: 5}),
    "nRRDL": AtLeast(4, {16: 5}),
    "nFAW": AtLeast(16, {16: 20}),
    "nRFC": ByDensity({2048: 130, 4096: 180, 8192: 210, 16384: 280, 32768: 380}),
    "nRFCpb": ByDensity({2048: 60, 4096: 90, 8192: 120, 16384: 140, 32768: 190}),
    "nREFI": Every(3906),
    "nPBR2PBR": ByDensity({2048: 60, 4096: 90, 8192: 90, 16384: 90, 32768: 90}),
}

STANDARD = Standard(
    name="LPDDR5",
    source="JESD209-5",
    commands=_commands("rank", "nCAS", "together"),
    levels=("channel", "rank", "bankgroup", "bank"),
    transfers_per_clock=8,
    prefetch=16,
    channel_bits=16,
    rules=_RULES + _BETWEEN_RANKS + _CLOSED_BEFORE_REFRESH,
    organisations={
        f"LPDDR5_{gigabits}Gb_x16": Organisation(gigabits * 1024, 16, 4, 4, rows, 1024)
        for gigabits, rows in ((8, 1 << 15), (16, 1 << 16))
    },
    speeds={
        "LPDDR5_6400": dict(
            rate=6400, tCK_ps=1250, nBL_min=2, nBL_max=4, nCL=17, nRCD=15, nRP=15, nRPab=17, nRAS=34, nRC=49,
            nWR=28, nRTP=8, nCWL=9, nPPD=2, nCCDS=2, nCCDL=4, nCCDS_WR=2, nCCDL_WR=4, nWTRS=5, nWTRL=10,
            nWCKPST=1, nCAS=0, nAAD=8, nCS=2, nPBR2ACT=6,
        )
    },
    # A sixteenth of 3906 ns, rounded down.
    derived=_DERIVED | {"nREFIpb": Every(243)},
    max_postponed_refreshes=8,
    max_pulled_in_refreshes=8,
    controller="split-activation",
    burst="nBL_min",
    reference=dict(
        commands=_commands("channel", "", "in turn"),
        rules=_RULES + _BETWEEN_RANKS_IN_REFERENCE,
        derived=_DERIVED | {"nREFIpb": Every(488)},
    ),
)  # fmt: skip
