"""AttAcc on HBM3: units at every bank, bank group or pseudo-channel, a softmax unit a channel.

Source: the simulator of the authors (github.com/scale-snu/attacc_simulator, commit c600051, MIT), of "AttAcc!
Unleashing the Power of PIM for Batched Transformer-based Generative Model Inference" (ASPLOS 2024). AB
commands are of all banks of a channel, SB of the banks of one number in all bank groups, PB of one bank in
both pseudo-channels. Rules without an idealisation are those of HBM3 (JESD238), for each bank that a command
acts on.
"""

from typing import Any

from ndpsim.dram.spec.extension import LEVELS, SAME_BANK, Extension, Request, UnitCommand
from ndpsim.dram.spec.standard import Rule

_ACTS = ("ACT", "ACTAB", "ACTSB", "ACTPB")
_PRES = ("PRE", "PREA", "PRESB", "PREPB")
_MACS = ("MACAB", "MACSB", "MACPB")
_MOVES = ("WRGB", "MVSB", "MVGB")
_ONE, _SAME, _PAIR = LEVELS, ("bank",), ("rank", "bankgroup", "bank")
_PSEUDO = ("pseudochannel",)
_READ, _WRITTEN = "nCL + nBL", "nCWL + nBL + nWR"


def _commands(ideal: frozenset[str]) -> tuple[UnitCommand, ...]:
    """SFM and MVGB wait for what they need, and PRESB closes all that ACTSB opens, without idealisations."""
    unnamed = "" if "A9" in ideal else "row"
    softmax = () if "A3" in ideal else ("MVSB",)
    moved = () if "A3" in ideal else ("SFM",)
    host = dict[str, Any](uses=True, opened_by="ACT", closed_by="PRE")
    return (
        UnitCommand("ACT", _ONE, row=True, opens=True, bus="row"),
        UnitCommand("PRE", _ONE, closes=True, bus="row"),
        UnitCommand("PREA", closes=True, bus="row", checked_at_channel=True),
        UnitCommand(
            "REFab", _PSEUDO, refreshes=True, bus="row", closed_by="PREA", checked_at_channel=True
        ),
        UnitCommand("ACTAB", row=True, opens=True, bus="row"),
        UnitCommand("ACTSB", _SAME, row=True, opens=True, bus="row"),
        UnitCommand("ACTPB", _PAIR, row=True, opens=True, bus="row"),
        UnitCommand("PRESB", _PAIR if "A5" in ideal else _SAME, closes=True, bus=unnamed),
        UnitCommand("PREPB", _PAIR, closes=True, bus=unnamed),
        UnitCommand("RD", _ONE, True, True, **host, latency=_READ, answers=True, drives="nCL"),
        UnitCommand("WR", _ONE, True, True, **host, drives="nCWL"),
        UnitCommand("MACAB", (), True, True, uses=True, opened_by="ACTAB", closed_by="PREA"),
        UnitCommand("MACSB", _SAME, True, True, uses=True, opened_by="ACTSB", closed_by="PRESB"),
        UnitCommand("MACPB", _PAIR, True, True, uses=True, opened_by="ACTPB", closed_by="PREPB"),
        UnitCommand("WRGB", _ONE, drives="nCWL"),  # from outside: the simulator counts it on the interposer
        UnitCommand("MVSB", _ONE),
        UnitCommand("MVGB", _ONE, waits_for=moved),
        UnitCommand("SFM", _ONE, waits_for=softmax, checked_at_channel=True),
    )  # fmt: skip


# What takes the path of columns. No rule holds SFM.
_COLUMNS = tuple(
    Rule(name, level, (*_MOVES, "SFM", "RD", "WR"), (*_MOVES, "RD", "WR"), latency)
    for name, level, latency in (
        ("BL", "pseudochannel", "nBL"), ("tCCDS", "rank", "nCCDS"), ("tCCDL", "bankgroup", "nCCDL"),
    )
)  # fmt: skip
_HOST = (
    Rule("tRRDS", "rank", ("ACT",), ("ACT",), "nRRDS"),
    Rule("tFAW", "rank", ("ACT",), ("ACT",), "nFAW", window=4),
    Rule("tRRDL", "bankgroup", ("ACT",), ("ACT",), "nRRDL"),
    Rule("tRC", "bank", ("ACT",), ("ACT",), "nRC"),
    Rule("tRCDRD", "bank", ("ACT",), ("RD",), "nRCDRD"),
    Rule("tRCDWR", "bank", ("ACT",), ("WR",), "nRCDWR"),
    Rule("tRAS", "bank", ("ACT",), ("PRE",), "nRAS"),
    Rule("tRTW", "rank", ("RD",), ("WR",), "nCL + nBL + 2 - nCWL"),
    Rule("tWTRS", "rank", ("WR",), ("RD",), "nCWL + nBL + nWTRS"),
    Rule("tWTRL", "bankgroup", ("WR",), ("RD",), "nCWL + nBL + nWTRL"),
    Rule("tRTP", "bank", ("RD",), ("PRE",), "nRTPL"),
    Rule("tWR", "bank", ("WR",), ("PRE",), _WRITTEN),
    Rule("tRP", "bank", ("PRE",), ("ACT",), "nRP"),
    *(Rule("tRP", level, ("PREA",), ("ACT",), "nRP") for level in ("pseudochannel", "rank")),
)
_MAC_RULES = (
    Rule("tCCDAB", "channel", ("MACAB",), ("MACAB",), "nCCDAB"),
    Rule("tCCDSB", "channel", ("MACSB",), ("MACSB",), "nCCDSB"),
    Rule("BL", "channel", ("MACPB",), ("MACPB",), "nBL"),
    Rule("tCCDS", "rank", ("MACPB",), ("MACPB",), "nCCDS"),
    Rule("tCCDL", "bankgroup", ("MACPB",), ("MACPB",), "nCCDL"),
)
# An activation takes the row bus for two clocks.
_BUS = (
    *(
        Rule("row bus", "channel", (name,), (name, "ACT", "PRE", "PREA", "REFab"), "2")
        for name in ("ACTAB", "ACTSB", "ACTPB")
    ),
    Rule("row bus", "channel", ("ACT",), ("ACT", "PRE", "PREA", "REFab", "PRESB"), "2"),
    Rule("row bus", "channel", ("ACTSB",), ("PRESB",), "2"),
    Rule("row bus", "channel", ("ACTPB",), ("PREPB",), "2"),
)


def _unit_rules(suffix: str, level: str, closing: str, marked: str) -> tuple[Rule, ...]:
    opening, mac = f"ACT{suffix}", f"MAC{suffix}"
    return (
        Rule("tRC", level, (opening,), (opening,), "nRC"),
        Rule("tRCDRD", level, (opening,), (mac,), "nRCDRD"),
        Rule("tRAS", level, (opening,), (closing,), "nRAS"),
        Rule("tRTP", marked, (mac,), (closing,), "nRTPL"),
        Rule("tRP", level, (closing,), (opening,), "nRP"),
    )


def _blind(ideal: frozenset[str]) -> tuple[Rule, ...]:
    """A1: commands of units and of the host have hardly a rule in common."""
    rules = [
        *_COLUMNS, *_HOST, *_MAC_RULES, *_BUS,
        *_unit_rules("AB", "channel", "PREA", "channel"),
        *_unit_rules("SB", "bank", "PRESB", SAME_BANK),
        *_unit_rules("PB", "bank", "PREPB", "bank"),
        Rule("tRFC", "pseudochannel" if "A7" in ideal else "channel", ("REFab",), _ACTS, "nRFC"),
    ]  # fmt: skip
    if "A2" not in ideal:
        rules += [
            Rule("tRP", "channel", _PRES, ("REFab",), "nRP"),
            Rule("tRAS", "channel", ("ACT", "ACTSB", "ACTPB"), ("PREA",), "nRAS"),
            Rule("tRTP", "channel", ("RD", "MACSB", "MACPB"), ("PREA",), "nRTPL"),
            Rule("tWR", "channel", ("WR",), ("PREA",), _WRITTEN),
        ]
    if "A8" not in ideal:
        rules.append(Rule("tFAW", "channel", _ACTS, _ACTS[1:], "nFAW"))
    return tuple(rules)


def _rules(ideal: frozenset[str]) -> tuple[Rule, ...]:
    if "A1" in ideal:
        return _blind(ideal)
    counted = ("ACT",) if "A8" in ideal else _ACTS
    rules = [
        *_COLUMNS, *_MAC_RULES,
        Rule("tCCDAB", "channel", ("MACAB", "MACSB"), ("MACAB", "MACSB"), "nCCDAB"),
        Rule("tCCDL", "bankgroup", _MACS, ("RD", "WR"), "nCCDL"),
        Rule("tCCDL", "bankgroup", ("RD", "WR"), _MACS, "nCCDL"),
        Rule("row bus", "channel", _ACTS, (*_ACTS, *_PRES, "REFab"), "2"),
        Rule("tRRDS", "rank", _ACTS, _ACTS, "nRRDS"),
        Rule("tRRDL", "bankgroup", _ACTS, _ACTS, "nRRDL"),
        Rule("tFAW", "rank", counted, counted, "nFAW", window=4),
        Rule("tRC", "bank", _ACTS, _ACTS, "nRC"),
        Rule("tRCDRD", "bank", _ACTS, (*_MACS, "RD"), "nRCDRD"),
        Rule("tRCDWR", "bank", _ACTS, ("WR",), "nRCDWR"),
        Rule("tRAS", "bank", _ACTS, _PRES, "nRAS"),
        Rule("tRTP", "bank", (*_MACS, "RD"), _PRES, "nRTPL"),
        Rule("tWR", "bank", ("WR",), _PRES, _WRITTEN),
        Rule("tRP", "bank", _PRES, _ACTS, "nRP"),
        # The data bus of a pseudo-channel.
        Rule("data bus", "pseudochannel", ("RD",), ("WR", "WRGB"), "nCL + nBL - nCWL"),
        Rule("tRTW", "rank", ("RD",), ("WR", "WRGB"), "nCL + nBL + 2 - nCWL"),
        Rule("tWTRS", "rank", ("WR",), ("RD",), "nCWL + nBL + nWTRS"),
        Rule("tWTRL", "bankgroup", ("WR",), ("RD",), "nCWL + nBL + nWTRL"),
    ]  # fmt: skip
    rules.append(Rule("tRFC", "pseudochannel", ("REFab",), (*_ACTS, "REFab"), "nRFC"))
    if "A2" not in ideal:
        rules.append(Rule("tRP", "pseudochannel", _PRES, ("REFab",), "nRP"))
        rules.append(Rule("tRC", "pseudochannel", _ACTS, ("REFab",), "nRC"))
    if "A3" not in ideal:
        rules.append(Rule("softmax", "channel", ("SFM",), ("MVGB",), "nSFM"))
        rules.append(Rule("tCCDL", "channel", ("MVSB",), ("SFM",), "nCCDL"))
    return tuple(rules)


EXTENSION = Extension(
    name="attacc",
    standard="HBM3",
    source="AttAcc, ASPLOS 2024, and its simulator at c600051",
    levels=LEVELS,
    commands=_commands,
    rules=_rules,
    misplaced=lambda ideal: (
        (Rule("tRTP", "bank", ("MACPB",), ("PREPB",), "nRTPL"),) if {"A1", "A6"} <= ideal else ()
    ),
    requests={
        **{name: Request(name, host=True) for name in ("RD", "WR")},
        **{name: Request(name) for name in (*_MACS, *_MOVES, "SFM")},
        "BARRIER": Request(barrier=True),
    },
    controller="look-ahead",
    paths="A1",
    row_sets="A1",
    refresh_waits="A11",
    of_results=frozenset(("A3",)),
    idealisations={
        "A1": "row commands of units and host do not know each other; a bank may have several open rows",
        "A2": "a refresh follows PREA at once, which waits for neither tRAS nor tRTP of single banks",
        "A3": "softmax takes no time and does not wait for results; results do not wait for softmax",
        "A5": "PRESB closes one bank in both pseudo-channels, where ACTSB opened 16",
        "A6": "tRTP of MACPB is also kept at a wrong bank (with A1)",
        "A7": "activations of all banks look at tRFC of the addressed pseudo-channel only (with A1)",
        "A8": "activations of several banks are outside of tFAW",
        "A9": "PRESB and PREPB share a clock with no other command",
        "A11": "commands of an open row overtake a refresh that waits",
        "A4": "layout of attention: the second head of a pair reads the values of the first",
        "A10": "layout of attention: heads are spaced by elements instead of bytes",
        "A12": "layout of attention: moves that cannot be shared equally among parts are left out",
    },
)
