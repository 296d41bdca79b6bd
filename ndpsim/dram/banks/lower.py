"""A device with units in its banks as integers, for kernels.

A rule holds at nodes of a *family*: a set of levels whose coordinates two commands must have in common.
Without any level that is the channel. The families of a rule follow from its level and from the paths of its
commands: banks that agree wherever both commands have a coordinate are banks on which both act.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ndpsim.base.caching import cached_by_identity
from ndpsim.base.errors import InputError, unknown
from ndpsim.base.jit import by_reference
from ndpsim.dram.spec.extension import LEVELS, SAME_BANK, BankDevice, UnitCommand
from ndpsim.dram.spec.standard import Rule

Ints = NDArray[np.int64]

NONE, ROW_BUS, COLUMN_BUS = range(3)  # classes of commands
ANY_MODE = 0  # the modes of a channel are 1 and 2; it begins in 1
_BUSES = {"": NONE, "row": ROW_BUS, "column": COLUMN_BUS}

#: No command; and as a word of a program: a barrier, and a word that only waits for answers.
NO_COMMAND, BARRIER, WAITS = -1, -2, -3


@by_reference
class BankTables(NamedTuple):
    """A device. Arrays are indexed by command unless said otherwise."""

    shape: Ints  # pseudo-channels, ranks, bank groups and banks
    banks: int
    bus: Ints
    mode: Ints
    opens: Ints
    closes: Ints
    uses: Ints
    fixed: Ints  # [command, level]: 1: it addresses this level
    opened_by: Ints
    closed_by: Ints
    completed_by: Ints
    completes: Ints  # 1: the second step of an activation
    prepared_by: Ints
    starts_clock: Ints  # 1: prepares another command
    synced: Ints
    latency: Ints
    answers: Ints  # 1: its data come back
    waits_for: Ints  # bits of the commands that it does not overtake
    mark_first: Ints  # where the marks of a command start in the next four
    mark_family: Ints
    mark_next: Ints
    mark_clocks: Ints
    mark_misplaced: Ints
    need_first: Ints  # where the families that bind a command start in the next
    need_family: Ints
    base: Ints  # [family]: the first of its nodes
    stride: Ints  # [family, level]; 0: the family has all of it in a node
    nodes: int
    window_family: Ints  # [window rule]
    window_clocks: Ints  # [window rule]
    window_size: Ints  # [window rule]
    window_weight: Ints  # [window rule, command]: activations of a node that it counts as
    window_binds: Ints  # [window rule, command]
    refresh: int  # the command, and that which closes its banks
    precharge: int
    mode_change: int
    refresh_clocks: int  # between refreshes; 0: none
    refresh_parts: int  # pseudo-channels that are refreshed on their own
    row_sets: int  # 1: an open bank may open further rows
    reopens: int  # 1: an activation of several banks may find some of them open
    refresh_waits: int  # 1: commands of an open row overtake a refresh that waits
    any_write_answers: int  # 1: any queued write answers a read
    leaves_accesses: int  # 1: words that wait for answers do not wait for active accesses of the host
    rows: int


def _flags(values: Iterator[int]) -> Ints:
    return np.array(list(values), dtype=np.int64)


def _coordinates(level: str) -> frozenset[str]:
    """The coordinates that are fixed at a level of a rule."""
    if level == "channel":
        return frozenset()
    if level == SAME_BANK:
        return frozenset(("bank",))
    if level not in LEVELS:
        raise unknown(level, ("channel", *LEVELS, SAME_BANK), "level", key="rule")
    return frozenset(LEVELS[: LEVELS.index(level) + 1])


class _Bound(NamedTuple):
    """A rule between two commands: the family in which it holds."""

    previous: int
    next: int
    family: frozenset[str]
    rule: Rule
    misplaced: bool = False


def _bound(device: BankDevice) -> Iterator[_Bound]:
    """The rules by pairs of commands."""
    extension, commands = device.extension, device.commands
    number = {name: index for index, name in enumerate(device.names)}
    only_paths = extension.paths in device.ideal
    for misplaced, rules in ((False, device.rules), (True, extension.misplaced(device.ideal))):
        for rule in rules:
            level = _coordinates(rule.level)
            for name in (*rule.previous, *rule.next):
                if name not in number:
                    raise unknown(name, number, "command", key=f"rule {rule.name}")
            for previous in (commands[number[name]] for name in rule.previous):
                for following in (commands[number[name]] for name in rule.next):
                    family = level
                    if not only_paths:
                        family = level & _path(previous) & _path(following)
                    elif following.checked_at_channel and level:
                        continue
                    yield _Bound(number[previous.name], number[following.name], family, rule, misplaced)


def _path(command: UnitCommand) -> frozenset[str]:
    return frozenset(command.path)


def _sizes(device: BankDevice, family: frozenset[str]) -> tuple[int, Ints]:
    """Number of nodes of a family, and the stride of each level."""
    strides, count = np.zeros(4, dtype=np.int64), 1
    for level in reversed(range(4)):
        if LEVELS[level] in family:
            strides[level] = count
            count *= device.shape[level]
    return count, strides


def _weight(device: BankDevice, command: UnitCommand, family: frozenset[str], window: int) -> int:
    """Activations of a node that a command counts as: the banks that it opens there, at most a window."""
    banks = 1
    for level, size in zip(LEVELS, device.shape, strict=True):
        if level not in command.path and level not in family:
            banks *= size
    return min(banks, window)


@cached_by_identity(16)
def lower(device: BankDevice) -> BankTables:
    """The device as integers.

    Raises:
        InputError: the page names an unknown command or level, or needs a timing that the device lacks.
    """
    extension, names = device.extension, device.names
    refreshing = [n for n, command in enumerate(device.commands) if command.refreshes]
    if len(refreshing) != 1 and device.refreshes:
        raise InputError("needs exactly one command that refreshes", "unsupported", key=extension.name)
    refresh = refreshing[0] if refreshing else NO_COMMAND
    is_alone = refresh >= 0 and device.commands[refresh].path
    return BankTables(
        shape=np.array(device.shape, dtype=np.int64),
        banks=device.banks,
        **_effects(device),
        **_rules(device),
        refresh=refresh,
        precharge=NO_COMMAND if refresh < 0 else names.index(device.commands[refresh].closed_by),
        mode_change=names.index(extension.mode_change) if extension.mode_change else NO_COMMAND,
        refresh_clocks=device.clocks("nREFI") if device.refreshes else 0,
        refresh_parts=device.shape[0] if is_alone else 1,
        row_sets=int(extension.row_sets in device.ideal),
        reopens=int(extension.reopens in device.ideal),
        refresh_waits=int(extension.refresh_waits in device.ideal),
        any_write_answers=int(extension.any_write_answers in device.ideal),
        leaves_accesses=int(extension.leaves_accesses in device.ideal),
        rows=device.sizes["rows"],
    )


def _effects(device: BankDevice) -> dict[str, Any]:
    """The fields of `BankTables` about commands alone."""
    commands, names = device.commands, device.names

    def numbers(field: str) -> Ints:
        return _flags(names.index(name) if name else -1 for name in (getattr(c, field) for c in commands))

    def flat(field: str) -> Ints:
        return _flags(int(getattr(command, field)) for command in commands)

    completed, prepared = numbers("completed_by"), numbers("prepared_by")
    every = range(len(names))
    return dict(
        bus=_flags(_BUSES[command.bus] for command in commands),
        mode=_flags(_mode(device, command) for command in commands),
        opens=flat("opens"),
        closes=flat("closes"),
        uses=flat("uses"),
        fixed=np.array([[level in command.path for level in LEVELS] for command in commands], dtype=np.int64),
        opened_by=numbers("opened_by"),
        closed_by=numbers("closed_by"),
        completed_by=completed,
        completes=_flags(int(n in completed) for n in every),
        prepared_by=prepared,
        starts_clock=_flags(int(n in prepared) for n in every),
        synced=_flags(device.clocks(c.synced) if c.synced else 0 for c in commands),
        latency=_flags(device.clocks(c.latency) for c in commands),
        answers=flat("answers"),
        waits_for=_flags(sum(1 << names.index(name) for name in c.waits_for) for c in commands),
    )


def _mode(device: BankDevice, command: UnitCommand) -> int:
    modes = device.extension.modes
    if not command.mode or not device.extension.mode_change:
        return ANY_MODE
    if command.mode not in modes:
        raise unknown(command.mode, modes, "mode", key=command.name)
    return modes.index(command.mode) + 1


def _rules(device: BankDevice) -> dict[str, Any]:
    """The fields of `BankTables` about rules and their nodes."""
    every, commands = list(_bound(device)), range(len(device.names))
    windows = [_coordinates(rule.level) for rule in device.rules if rule.window > 1]
    families = list(dict.fromkeys([frozenset[str](), *windows, *(bound.family for bound in every)]))
    sizes = [_sizes(device, family) for family in families]
    base = np.cumsum([0, *(count for count, _ in sizes)])
    simple = [bound for bound in every if bound.rule.window == 1]
    marks = [[b for b in simple if b.previous == n] for n in commands]
    needs = [
        sorted({families.index(b.family) for b in simple if b.next == n and not b.misplaced})
        for n in commands
    ]
    of_marks = [b for marked in marks for b in marked]
    return dict(
        mark_first=np.cumsum([0, *map(len, marks)]),
        mark_family=_flags(families.index(b.family) for b in of_marks),
        mark_next=_flags(b.next for b in of_marks),
        mark_clocks=_flags(_rule_clocks(device, b.rule) for b in of_marks),
        mark_misplaced=_flags(int(b.misplaced) for b in of_marks),
        need_first=np.cumsum([0, *map(len, needs)]),
        need_family=_flags(family for found in needs for family in found),
        base=base[:-1].copy(),
        stride=np.array([stride for _, stride in sizes], dtype=np.int64),
        nodes=int(base[-1]),
        **_windows(device, families),
    )


def _rule_clocks(device: BankDevice, rule: Rule) -> int:
    """The clocks of a rule; those of refreshes count only where there are some."""
    refreshes = all(device.commands[device.names.index(name)].refreshes for name in rule.previous)
    return device.clocks(rule.latency) if device.refreshes or not refreshes else 0


def _windows(device: BankDevice, families: list[frozenset[str]]) -> dict[str, Ints]:
    """The rules of several activations in a time."""
    rules = [rule for rule in device.rules if rule.window > 1]
    weight = np.zeros((len(rules), len(device.names)), dtype=np.int64)
    binds = np.zeros_like(weight)
    for index, rule in enumerate(rules):
        family = _coordinates(rule.level)
        for number, command in enumerate(device.commands):
            counted = _weight(device, command, family, rule.window)
            weight[index, number] = counted * (command.name in rule.previous)
            binds[index, number] = counted * (command.name in rule.next)
    return dict(
        window_family=_flags(families.index(_coordinates(rule.level)) for rule in rules),
        window_clocks=_flags(device.clocks(rule.latency) for rule in rules),
        window_size=_flags(rule.window for rule in rules),
        window_weight=weight,
        window_binds=binds,
    )
