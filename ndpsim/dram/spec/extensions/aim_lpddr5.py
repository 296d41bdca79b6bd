"""AiM on LPDDR5: the commands of AiM, with activations in two steps and a data clock (WCK) that stops.

Source: as for `aim`. The rules of an activation begin at its first step.
"""

from dataclasses import replace

from ndpsim.dram.spec.extension import UnitCommand
from ndpsim.dram.spec.extensions import aim
from ndpsim.dram.spec.standard import Rule

_STEPS = {"ACT": "ACT-1", "ACT16": "ACT16-1"}
_SYNCED = {name: f"{data} + nBL" for name, data in (aim.READ_LATENCY | aim.WRITE_LATENCY).items()}
_ACTS = ("ACT-1", "ACT16-1")


def _commands(_: frozenset[str] = frozenset()) -> tuple[UnitCommand, ...]:
    found: list[UnitCommand] = []
    for command in aim.commands("nRPab"):
        opened_by = _STEPS.get(command.opened_by, command.opened_by)
        if command.name in _STEPS:
            first, second = _STEPS[command.name], _STEPS[command.name].replace("-1", "-2")
            opening = replace(command, column=True)
            found += [replace(opening, name=first, completed_by=second), replace(opening, name=second)]
        elif command.name in _SYNCED:
            starts = UnitCommand(f"CAS{command.name}", command.path, command.row, True, mode=command.mode)
            found += [
                starts,
                replace(command, opened_by=opened_by, prepared_by=starts.name, synced=_SYNCED[command.name]),
            ]
        else:
            found.append(replace(command, opened_by=opened_by))
    return tuple(found)


_ROWS = (
    Rule("tRRD", "channel", ("ACT-1",), ("ACT-1",), "nRRD"),
    Rule("tRC", "bank", ("ACT-1",), ("ACT-1",), "nRC"),
    Rule("tRC", "channel", _ACTS, ("ACT16-1",), "nRC"),
    Rule("tRC", "channel", ("ACT16-1",), ("ACT-1",), "nRC"),
    Rule("tRAS", "channel", _ACTS, ("PREA",), "nRAS"),
    Rule("tRAS", "channel", ("ACT16-1",), ("PRE",), "nRAS"),
    Rule("tRAS", "bank", ("ACT-1",), ("PRE",), "nRAS"),
    Rule("tRPab", "channel", ("PREA",), (*_ACTS, "REFab"), "nRPab"),
    Rule("tRPpb", "channel", ("PRE",), ("ACT16-1", "REFab"), "nRPpb"),
    Rule("tRPpb", "bank", ("PRE",), ("ACT-1", "PRE"), "nRPpb"),
    Rule("tWR + tRPab", "channel", ("WRA16",), (*_ACTS, "REFab"), "nCWL + nBL + nWR + nRPab"),
    Rule("tRC", "channel", _ACTS, ("REFab",), "nRC"),
    Rule("tRFCab", "channel", ("REFab",), (*_ACTS, "REFab"), "nRFCab"),
)


def _stepped(rules: tuple[Rule, ...]) -> tuple[Rule, ...]:
    def renamed(names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(_STEPS.get(name, name) for name in names)

    return tuple(replace(rule, previous=renamed(rule.previous), next=renamed(rule.next)) for rule in rules)


def _rules(ideal: frozenset[str]) -> tuple[Rule, ...]:
    rules = [
        *aim.columns("nCCD", "nCCD", "nBL + 2"),
        *aim.closing(older=False),
        *_ROWS,
        *_stepped(aim.opening("tRCD", RD="nRCD", WR="nRCD")),
        Rule("tMODCH", "channel", ("TMOD",), tuple(command.name for command in _commands()), "nMODCH"),
    ]
    if "C6" not in ideal:
        rules.append(Rule("tFAW", "channel", _ACTS, _ACTS, "nFAW", window=4))
    if "pins" not in ideal:
        rules += aim.pins()
    return tuple(rules)


EXTENSION = replace(
    aim.EXTENSION,
    name="aim-lpddr5",
    standard="LPDDR5",
    commands=_commands,
    rules=_rules,
    idealisations=aim.IDEALISATIONS,
)
