"""HBM-PIM on HBM2: a unit for two banks of a pseudo-channel, with registers and an instruction buffer.

After the maker's papers: "Hardware Architecture and Software Stack for PIM Based on Commercial DRAM
Technology" (ISCA 2021) and "Aquabolt-XL HBM2-PIM, LPDDR5-PIM ..." (IEEE Micro 2022). A channel here is a
pseudo-channel. In the single-bank mode it is ordinary HBM2. In the all-bank mode a row command is of all
banks, and a column command makes every unit execute an instruction: a MAC takes a column of the even or of
the odd banks. Column commands of all banks are tCCD_L apart. The rules are those of HBM2, for each bank on
which a command acts. No simulator was used.
"""

from typing import Any

from ndpsim.dram.spec.extension import Extension, Request, UnitCommand
from ndpsim.dram.spec.standard import Rule

_ONE = ("bankgroup", "bank")
_ACTS, _PRES = ("ACT", "ACTAB"), ("PRE", "PREA", "MODE")
_READS, _WRITES = ("RD", "MACAB", "RDREG"), ("WR", "WRAB", "WRREG", "WRCRF")
_WRITTEN = "nWL + nBL + nWR"


def _commands(ideal: frozenset[str]) -> tuple[UnitCommand, ...]:
    """Registers are written and read over the pins; WRAB writes them to rows of all banks."""
    one: dict[str, Any] = dict(uses=True, opened_by="ACT", closed_by="PRE", mode="single-bank")
    every: dict[str, Any] = dict(
        row=True, column=True, uses=True, opened_by="ACTAB", closed_by="PREA", mode="all-bank"
    )
    read: dict[str, Any] = dict(latency="nRL + nBL", answers=True, drives="nRL")
    written: dict[str, Any] = dict(latency="nWL + nBL", drives="nWL")
    return (
        UnitCommand("ACT", _ONE, row=True, opens=True, mode="single-bank"),
        UnitCommand("PRE", _ONE, closes=True, mode="single-bank"),
        UnitCommand("PREA", closes=True, mode=""),
        UnitCommand("ACTAB", row=True, opens=True, mode="all-bank"),
        UnitCommand("REFab", refreshes=True, closed_by="PREA", mode=""),
        UnitCommand("MODE", closes=True, mode=""),
        UnitCommand("RD", _ONE, True, **one, **read),
        UnitCommand("WR", _ONE, True, **one, **written),
        UnitCommand("MACAB", **every),
        UnitCommand("WRAB", **every, latency="nWL + nBL"),
        UnitCommand("WRCRF", column=True, mode="all-bank", **written),
        UnitCommand("WRREG", column=True, mode="all-bank", **written),
        UnitCommand("RDREG", column=True, mode="all-bank", **read),
    )


def _rules(ideal: frozenset[str]) -> tuple[Rule, ...]:
    return (
        Rule("tCCDS", "channel", _READS, _READS, "nCCDS"),
        Rule("tCCDS", "channel", _WRITES, _WRITES, "nCCDS"),
        Rule("tCCDL", "bankgroup", _READS, _READS, "nCCDL"),
        Rule("tCCDL", "bankgroup", _WRITES, _WRITES, "nCCDL"),
        Rule("tRTW", "channel", _READS, _WRITES, "nRL + nBL + 2 - nWL"),
        Rule("tWTRS", "channel", _WRITES, _READS, "nWL + nBL + nWTRS"),
        Rule("tWTRL", "bankgroup", _WRITES, _READS, "nWL + nBL + nWTRL"),
        Rule("tRRDS", "channel", _ACTS, _ACTS, "nRRDS"),
        Rule("tRRDL", "bankgroup", _ACTS, _ACTS, "nRRDL"),
        Rule("tFAW", "channel", _ACTS, _ACTS, "nFAW", window=4),
        Rule("tRC", "bank", _ACTS, (*_ACTS, "REFab"), "nRC"),
        Rule("tRCDRD", "bank", _ACTS, ("RD", "MACAB"), "nRCDRD"),
        Rule("tRCDWR", "bank", _ACTS, ("WR", "WRAB"), "nRCDWR"),
        Rule("tRAS", "bank", _ACTS, _PRES, "nRAS"),
        Rule("tRTP", "bank", ("RD", "MACAB"), _PRES, "nRTPL"),
        Rule("tWR", "bank", ("WR", "WRAB"), _PRES, _WRITTEN),
        Rule("tRP", "bank", _PRES, (*_ACTS, "REFab"), "nRP"),
        Rule("tRFC", "channel", ("REFab",), (*_ACTS, "REFab", "MODE"), "nRFC"),
        # A mode changes by activations, precharges and a register write, which close all banks.
        Rule("mode", "channel", ("MODE",), tuple(command.name for command in _commands(ideal)), "nMODCH"),
        Rule("tRP", "channel", _PRES, ("MODE",), "nRP"),
        Rule("tWR", "channel", _WRITES, ("MODE",), _WRITTEN),
    )


EXTENSION = Extension(
    name="hbm-pim",
    standard="HBM2",
    source="ISCA 2021 and IEEE Micro 2022, by the maker",
    levels=_ONE,
    commands=_commands,
    rules=_rules,
    requests={
        "WR_CRF": Request("WRCRF", sized=True),
        "WR_REG": Request("WRREG", sized=True),
        "RD_REG": Request("RDREG", sized=True, blocks=True),
        "MAC": Request("MACAB", sized=True),
        "WR_ALL": Request("WRAB", sized=True),
        "RD": Request("RD", host=True),
        "WR": Request("WR", host=True),
        "END": Request(blocks=True, everywhere=True, ends=True),
    },
    controller="in-order",
    idealisations={},
    mode_change="MODE",
    modes=("single-bank", "all-bank"),
)
