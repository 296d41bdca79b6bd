"""The command trace of DRAMPower 5 and later: clock, command, rank, bank group, bank, row, column, data.

There is no channel. The bank is numbered through the bank groups of its rank, ``bankgroup * banks per group
+ bank``; 0 stands where a command addresses nothing. Reads and writes must show their data; a command trace
has none, so the field is empty, ``0x``: DRAMPower then takes a burst of its toggling rate, or with toggling
rates off leaves the data bus out of the interface energy. The line ``END`` that may close a trace, so that
the idle time after the last command counts, is not written.

DRAMPower's LPDDR5 knows one ACT, which is the second half here, and no CAS: first halves and CAS are left
out. REFP2B is a refresh of a pair of banks, which its LPDDR5 takes to be eight apart.

There are no commands of refresh management (RFM): such a trace is refused.

Source: tukl-msd/DRAMPower 5.1 to 6.2, `parse_command_list` of its command line, `CmdTypeUtil`,
`DDR5Interface::handleData`.
"""

from __future__ import annotations

from collections.abc import Iterator

from ndpsim.dram.spec.standard import BANK_PAIR
from ndpsim.dram.traces.command_form import (
    CommandForm,
    Facts,
    check_clocks,
    check_names,
    fitting_device,
    named,
)
from ndpsim.dram.traces.command_trace import CommandTrace

_NAMES = {
    "ACT": "ACT",
    "PREpb": "PRE",
    "PREab": "PREA",
    "PREsb": "PRESB",
    "RD": "RD",
    "RDA": "RDA",
    "WR": "WR",
    "WRA": "WRA",
    "REFab": "REFA",
    "REFsb": "REFSB",
    "REFpb": "REFB",
    "ACT1": "",
    "ACT2": "ACT",
    "CAS_RD": "",
    "CAS_WR": "",
}
_PAIR_NAMES = _NAMES | {"REFpb": "REFP2B"}
_DATA = {"RD": ",0x", "RDA": ",0x", "WR": ",0x", "WRA": ",0x"}


def _check(trace: CommandTrace, facts: Facts) -> None:
    check_clocks(facts, "drampower5")
    check_names(trace, _NAMES, "drampower5")
    fitting_device(trace, facts, "drampower5")


def _lines(trace: CommandTrace, facts: Facts) -> Iterator[str]:
    device = fitting_device(trace, facts, "drampower5")
    per_group, standard = device.banks_per_group, device.standard
    has_pairs = any(standard.scope_of(command) == BANK_PAIR for command in standard.commands)
    for t, c, r, g, b, w, k in named(trace, _PAIR_NAMES if has_pairs else _NAMES):
        if not c:
            continue
        g, b = max(g, 0), max(b, 0)
        yield f"{t},{c},{r},{g},{g * per_group + b},{max(w, 0)},{max(k, 0)}{_DATA.get(c, '')}\n"


FORM = CommandForm("drampower5", "37,RD,0,2,10,123,32,0x", _lines, check=_check)
