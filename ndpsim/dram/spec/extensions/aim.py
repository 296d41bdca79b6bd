"""AiM on GDDR6: a unit at every bank, a global buffer of 2 KB a channel, and a mode for registers.

Source: aim_simulator (github.com/arkhadem/aim_simulator, commit 0f28a07, MIT). Commands that end in 16 are of
all 16 banks of a channel. `commands` and `rules` also make the page of LPDDR5.
"""

from typing import Any

from ndpsim.dram.spec.extension import Extension, Request, UnitCommand
from ndpsim.dram.spec.standard import Rule

_READS = ("RD", "RDMAC16", "RDAF16")
_WRITES = ("WR", "WRA16", "WRGB", "WRMAC16")
_READ_ALL = ("RDMAC16", "RDAF16", "MAC16", "EWMUL16")
_WRITE_ALL = ("WRA16", "WRMAC16", "EWMUL16")
_ONE = ("bankgroup", "bank")
READ_LATENCY = {"RD": "nCL", "RDMAC16": "nCLREG", "RDAF16": "nCLREG"}
WRITE_LATENCY = {"WR": "nCWL", "WRA16": "nCWL", "WRGB": "nCWLGB", "WRMAC16": "nCWLREG"}


def commands(all_precharge: str = "nRP") -> tuple[UnitCommand, ...]:
    """The commands; `all_precharge`: the time after PREA."""
    one: dict[str, Any] = dict(uses=True, opened_by="ACT", closed_by="PRE")
    every: dict[str, Any] = dict(row=True, uses=True, opened_by="ACT16", closed_by="PREA")
    registers: dict[str, Any] = dict(mode="register")
    times: dict[str, dict[str, Any]] = {
        name: dict(latency=f"{data} + nBL", drives=data, answers=name in READ_LATENCY)
        for name, data in (READ_LATENCY | WRITE_LATENCY).items()
    }
    times["WRA16"]["latency"] = f"nCWL + nBL + {all_precharge}"
    return (
        UnitCommand("ACT", _ONE, row=True, opens=True),
        UnitCommand("PRE", _ONE, closes=True),
        UnitCommand("PREA", closes=True),
        UnitCommand("ACT16", row=True, opens=True),
        UnitCommand("REFab", refreshes=True, closed_by="PREA"),
        UnitCommand("TMOD", mode=""),
        UnitCommand("RD", _ONE, True, **one, **times["RD"]),
        UnitCommand("WR", _ONE, True, **one, **times["WR"]),
        UnitCommand("MAC", _ONE, True, True, **one),
        UnitCommand("RDCP", _ONE, True, True, **one),
        UnitCommand("WRCP", _ONE, True, True, **one),
        UnitCommand("MAC16", column=True, **every),
        UnitCommand("EWMUL16", column=True, **every),
        UnitCommand("AF16", **every),
        UnitCommand("WRA16", closes=True, **every, **times["WRA16"]),
        UnitCommand("WRGB", column=True, **registers, **times["WRGB"]),
        UnitCommand("WRMAC16", **registers, **times["WRMAC16"]),
        UnitCommand("RDMAC16", **registers, **times["RDMAC16"]),
        UnitCommand("RDAF16", **registers, **times["RDAF16"]),
    )  # fmt: skip


def columns(short: str, long: str, gap: str) -> tuple[Rule, ...]:
    """Rules between column commands; `gap`: clocks between data of a read and of a write."""
    rules = [
        Rule("BL", "channel", _READS, _READS, "nBL"),
        Rule("BL", "channel", _WRITES, _WRITES, "nBL"),
        Rule("tCCDS", "channel", *2 * ((*_READS, "MAC", "MAC16", "RDCP"),), short),
        Rule("tCCDS", "channel", *2 * ((*_WRITES, "WRCP"),), short),
        Rule("tCCDL", "channel", _READ_ALL, (*_READ_ALL, "RD", "MAC", "RDCP"), long),
        Rule("tCCDL", "channel", ("RD", "MAC", "RDCP"), _READ_ALL, long),
        Rule("tCCDL", "channel", _WRITE_ALL, (*_WRITE_ALL, "WR", "WRCP"), long),
        Rule("tCCDL", "channel", ("WR", "WRCP"), _WRITE_ALL, long),
        Rule("tCCDL", "bankgroup", *2 * (("RD", "MAC", "RDCP"),), long),
        Rule("tCCDL", "bankgroup", *2 * (("WR", "WRCP"),), long),
    ]  # fmt: skip
    rules += [
        Rule("tRTW", "channel", (read,), (write,), f"{r} + {gap} - {w}")
        for read, r in READ_LATENCY.items()
        for write, w in WRITE_LATENCY.items()
    ]
    for write, w in WRITE_LATENCY.items():
        rules.append(Rule("tWTRS", "channel", (write,), _READS, f"{w} + nBL + nWTRS"))
        after = {"WR": _READS[1:], "WRA16": _READS, "WRMAC16": _READS, "WRGB": ()}[write]
        if after:
            rules.append(Rule("tWTRL", "channel", (write,), after, f"{w} + nBL + nWTRL"))
    rules.append(Rule("tWTRL", "bankgroup", ("WR",), ("RD",), "nCWL + nBL + nWTRL"))
    return tuple(rules)


def pins() -> tuple[Rule, ...]:
    """Data of commands with unlike latencies do not meet on the pins."""
    return tuple(
        Rule("data bus", "channel", (before,), (after,), f"{first} + nBL - {second}")
        for latencies in (READ_LATENCY, WRITE_LATENCY)
        for before, first in latencies.items()
        for after, second in latencies.items()
        if first != second
    )


def closing(older: bool) -> tuple[Rule, ...]:
    near = "bankgroup" if older else "bank"
    return (
        Rule("tRTP", "channel", ("RD", "RDCP", "MAC", "MAC16", "AF16", "EWMUL16"), ("PREA",), "nRTP"),
        Rule("tRTP", "channel", ("MAC16", "AF16", "EWMUL16"), ("PRE",), "nRTP"),
        Rule("tRTP", near, ("RD", "RDCP", "MAC"), ("PRE",), "nRTP"),
        Rule("tWR", "channel", ("WR", "WRCP"), ("PREA",), "nCWL + nBL + nWR"),
        Rule("tWR", near, ("WR", "WRCP"), ("PRE",), "nCWL + nBL + nWR"),
        Rule("tWR", "channel", ("EWMUL16",), ("PRE", "PREA"), "nCWL + nWR"),
    )


def opening(column: str, **delays: str) -> tuple[Rule, ...]:
    """From activation to columns."""
    every = {"MAC16": "nRCDRDMAC", "AF16": "nRCDRDAF", "EWMUL16": "nRCDEWMUL", "WRA16": delays["WR"]}
    one = {"MAC": "nRCDRDMAC", "RDCP": "nRCDRDCP", "WRCP": "nRCDWRCP", **delays}
    return (
        *(Rule(column, "channel", ("ACT", "ACT16"), (name,), clocks) for name, clocks in every.items()),
        *(Rule(column, "channel", ("ACT16",), (name,), clocks) for name, clocks in one.items()),
        *(Rule(column, "bank", ("ACT",), (name,), clocks) for name, clocks in one.items()),
    )


def _rows(older: bool) -> tuple[Rule, ...]:
    again = "nRRDL" if older else "nRC"
    rules = [
        Rule("tRRDS", "channel", ("ACT",), ("ACT",), "nRRDS"),
        Rule("tRRDL", "bankgroup", ("ACT",), ("ACT",), "nRRDL"),
        Rule("tRC", "channel", ("ACT", "ACT16"), ("ACT16",), again),
        Rule("tRC", "channel", ("ACT16",), ("ACT",), again),
        Rule("tRAS", "channel", ("ACT", "ACT16"), ("PREA",), "nRAS"),
        Rule("tRAS", "channel", ("ACT16",), ("PRE",), "nRAS"),
        Rule("tRAS", "bank", ("ACT",), ("PRE",), "nRAS"),
        Rule("tRP", "channel", ("PRE", "PREA"), ("ACT16",), "nRP"),
        Rule("tRP", "channel", ("PREA",), ("ACT", "PRE", "PREA"), "nRP"),
        Rule("tRP", "bank", ("PRE",), ("ACT",), "nRP"),
        Rule("tRP", "channel", ("PRE",), ("PREA",), "nRP"),
        Rule("tRP", "channel" if older else "bank", ("PRE",), ("PRE",), "nRP"),
        Rule("tWR + tRP", "channel", ("WRA16",), ("ACT", "ACT16", "REFab"), "nCWL + nBL + nWR + nRP"),
        Rule("tRC", "channel", ("ACT", "ACT16"), ("REFab",), "nRC"),
        Rule("tRP", "channel", ("PRE", "PREA"), ("REFab",), "nRP"),
        Rule("tRFC", "channel", ("REFab",), ("ACT", "ACT16"), "nRFC"),
    ]
    if not older:
        rules.append(Rule("tRC", "bank", ("ACT",), ("ACT",), "nRC"))
    return tuple(rules)


def _rules(ideal: frozenset[str]) -> tuple[Rule, ...]:
    older = "CENT" in ideal
    rules = [
        *columns("nCCDS", "nCCDL", "nBL + 3 + nWPRE"),
        *closing(older),
        *_rows(older),
        *opening("tRCD", RD="nRCDRD", WR="nRCDWR"),
        Rule("tMODCH", "channel", ("TMOD",), tuple(command.name for command in commands()), "nMODCH"),
    ]
    if "C6" not in ideal:
        rules.append(Rule("tFAW", "channel", ("ACT", "ACT16"), ("ACT", "ACT16"), "nFAW", window=4))
    if "pins" not in ideal:
        rules += pins()
    return tuple(rules)


REQUESTS = {
    "WR_GB": Request("WRGB", sized=True),
    "WR_BIAS": Request("WRMAC16"),
    "RD_MAC": Request("RDMAC16", blocks=True),
    "RD_AF": Request("RDAF16", blocks=True),
    "MAC_SBK": Request("MAC", sized=True),
    "MAC_ABK": Request("MAC16", sized=True),
    "EWMUL": Request("EWMUL16", sized=True),
    "AF": Request("AF16", first_row=1 << 29),
    "COPY_BKGB": Request("RDCP", sized=True),
    "COPY_GBBK": Request("WRCP", sized=True),
    "WR_ABK": Request("WRA16"),
    "RD_SBK": Request("RD", host=True),
    "WR_SBK": Request("WR", host=True),
    "RD": Request("RD", host=True),
    "WR": Request("WR", host=True),
    "SYNC": Request(blocks=True, everywhere=True),
    "EOC": Request(blocks=True, everywhere=True, ends=True),
    **{name: Request() for name in ("EWADD", "WR_GPR", "RD_GPR", "WR_CFR", "RD_CFR")},
}

IDEALISATIONS = {
    "C3": "ACT16 opens its row in banks that are open already",
    "C4": "a read of the host behind any queued write is answered without a command",
    "C6": "activations are outside of tFAW",
    "accesses": "SYNC and EOC do not wait for accesses of the host whose row is open for them",
    "pins": "data of the host and of registers may meet on the pins",
}
ALWAYS = {
    "C7": "every instruction begins at column 0; the program has no other",
    "C8": "tables of the activation function are rows from 2^29 on, beside those of the device",
    "C9": "EWMUL16 opens all 16 banks; no source says which four it needs",
    "C10": "EWADD and accesses to registers take a clock of decoding; no source has their time",
}

EXTENSION = Extension(
    name="aim",
    standard="GDDR6",
    source="aim_simulator at 0f28a07",
    levels=_ONE,
    commands=lambda _: commands(),
    rules=_rules,
    requests=REQUESTS,
    controller="in-order",
    idealisations=IDEALISATIONS | {"CENT": "distances between rows as at aim_simulator's commit 2eb1ee0"},
    reopens="C3",
    any_write_answers="C4",
    leaves_accesses="accesses",
    mode_change="TMOD",
    table_rows=1 << 29,
    always=ALWAYS,
)
