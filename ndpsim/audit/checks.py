"""The checks: each searches a trace for one sort of mistake, and returns what it found."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ndpsim.audit.kernels import RuleSet, find_early, find_row_faults, find_unmanaged
from ndpsim.audit.report import (
    COORDINATES,
    Breach,
    Case,
    CommandTable,
    Found,
    counted,
    flags,
    too_early,
    wrong_coordinates,
)
from ndpsim.base.caching import cached_by_identity
from ndpsim.dram.spec import Device, Rule
from ndpsim.dram.spec.checking import check_rule
from ndpsim.dram.spec.management import Managed
from ndpsim.dram.spec.standard import BANK_PAIR, ONE_BANK, READ, SAME_BANKS, WHOLE_RANK

# The form of a trace: commands and coordinates.


def _unknown_commands(case: Case) -> Found:
    """Numbers without a command, and commands that the standard does not have."""
    standard, trace = case.device.standard, case.trace
    count = len(standard.names)
    found = np.flatnonzero((trace.command < 0) | (trace.command >= count))
    first = []
    for index in found[: case.limit].tolist():
        named = 0 <= trace.command[index] < len(trace.names)
        detail = f"{standard.name} has no such command" if named else f"numbers go from 0 to {count - 1}"
        first.append(Breach(index, "command", 0, detail))
    return Found(len(found), first)


def _coordinates(case: Case) -> Found:
    device = case.device
    sizes = (device.ranks, device.bankgroups, device.banks_per_group, device.rows, device.bursts_per_row)
    found = np.argwhere(wrong_coordinates(case.trace, device, case.kinds).T)
    first = []
    for index, coordinate in found[: case.limit].tolist():
        name, kind = COORDINATES[coordinate], int(case.trace.command[index])
        value = getattr(case.trace, name)[index]
        if case.kinds.addressed[kind, coordinate]:
            detail = f"{name} {value} is not within 0 to {sizes[coordinate] - 1}"
        else:
            detail = f"{name} is {value}, but {case.kinds.names[kind]} addresses none (-1)"
        first.append(Breach(index, "coordinates", 0, detail))
    return Found(len(found), first)


# Buses.


def _command_bus(case: Case) -> Found:
    """One command at a time on each bus, in the order of time.

    It is enough to compare with the previous line and with the previous command on the same bus: if a command
    overlaps an earlier one, the line between them overlaps that one, too, or is out of order.
    """
    clock = case.trace.clock
    known = np.clip(case.trace.command, 0, len(case.kinds.names) - 1)
    bus, end = case.kinds.bus[known], clock + case.kinds.cycles[known]
    start = np.concatenate((np.zeros(1, dtype=np.int64), clock[:-1]))[: len(clock)]
    holder = np.arange(len(clock)) - 1
    for number in np.unique(bus):
        on_bus = np.flatnonzero(bus == number)
        start[on_bus[1:]] = np.maximum(start[on_bus[1:]], end[on_bus[:-1]])
        holder[on_bus[1:]] = on_bus[:-1]
    found = np.flatnonzero(clock < start)
    first = []
    for i in found[: case.limit].tolist():
        short = int(start[i] - clock[i])
        if i == 0:
            first.append(Breach(i, "clock order", short, "clocks count from 0"))
        elif clock[i] <= clock[i - 1] and (clock[i] < clock[i - 1] or holder[i] == i - 1):
            detail = f"clocks must increase, the line before is at clock {clock[i - 1]}"
            first.append(Breach(i, "clock order", short, detail))
        else:
            before = int(holder[i])
            held = f"{case.text(before)} holds the command bus for {start[i] - clock[before]} clocks"
            first.append(Breach(i, "command bus", short, f"{too_early(short)}, {held}"))
    return Found(len(found), first)


def _ticks(case: Case) -> Found:
    """A command comes at the first tick of a clock, unless it may come at any."""
    ticks, clock = case.device.standard.ticks_per_clock, case.part.clock
    late = (clock - 1) % ticks
    found = np.flatnonzero((late > 0) & (case.kinds.on_any_tick[case.part.command] == 0))
    first = []
    for index in found[: case.limit].tolist():
        detail = f"{counted(int(late[index]), 'tick')} into a clock of {ticks}"
        first.append(Breach(case.origin(index), "clock edge", 0, detail))
    return Found(len(found), first)


def _overlaps(start: NDArray[np.int64], length: int) -> NDArray[np.int64]:
    """The pairs of bursts that overlap, as rows (earlier, later) in the order of the later burst."""
    order = np.argsort(start, kind="stable")
    pairs = [np.empty((0, 2), dtype=np.int64)]
    # Within `length` clocks at most `length` commands start their first burst, and as many their second.
    for distance in range(1, min(4 * length, len(start))):
        first, second = order[:-distance], order[distance:]
        close = start[second] - start[first] < length
        if not close.any():
            break
        pairs.append(np.sort(np.stack((first[close], second[close]), axis=1), axis=1))
    every = np.concatenate(pairs)
    return every[np.lexsort((every[:, 0], every[:, 1]))]


def _data_bus(case: Case) -> Found:
    """No two bursts on the data bus at once; a burst starts nCL or nCWL after its command's last cycle.

    One overlap is tolerated and counted: a read, then a write on another rank. The standards leave the
    change between ranks to the system. The reference's tCS requires only nBL + nCS between the two commands:
    with nCL > nCWL + nCS the write's data overlap the read's. The timing check applies tCS to such pairs.
    """
    device, length = case.device, case.device.burst_clocks
    reads, writes = case.kinds.reads, case.kinds.writes
    columns = np.flatnonzero(case.kinds.columns[case.part.command])
    # Some commands have a second burst, and those of others may come between the two.
    later_by = flags(device.clocks(command.second_burst) for command in device.standard.by_number)
    columns = np.repeat(columns, 1 + (later_by[case.part.command[columns]] > 0))
    is_second = np.diff(columns, prepend=-1) == 0
    kind, rank = case.part.command[columns], case.part.rank[columns]
    latency = np.where(reads[kind] == 1, device.read_latency, device.write_latency)
    start = case.part.clock[columns] + case.kinds.cycles[kind] - 1 + latency + is_second * later_by[kind]
    bus = rank if device.standard.own_data_buses else np.zeros_like(rank)
    # Buses one after the other in time, too far apart for overlaps.
    spacing = int(start.max(initial=0)) + length + 1
    pairs = _overlaps(start + bus * spacing, length)
    earlier, later = pairs.T
    passed = (reads[kind[earlier]] == 1) & (writes[kind[later]] == 1) & (rank[earlier] != rank[later])
    pairs = pairs[~passed]
    first = []
    for before, after in pairs[: case.limit].tolist():
        # A burst that starts later does not overlap the earlier one.
        short = int(start[before] + length - start[after])
        ours, theirs = (f"{start[x]} to {start[x] + length - 1}" for x in (after, before))
        culprit = case.text(case.origin(columns[before]))
        detail = f"{too_early(short)}, its data at clocks {ours} meet those of {culprit} at {theirs}"
        first.append(Breach(case.origin(columns[after]), "data bus", short, detail))
    return Found(len(pairs), first, int(passed.sum()))


# Timing rules.


def _unset(*shape: int) -> NDArray[np.int64]:
    return np.full(shape, -1, dtype=np.int64)


def _starts(lengths: list[int]) -> NDArray[np.int64]:
    return np.concatenate(([0], np.cumsum(lengths))).astype(np.int64)


def _rules_of(device: Device) -> tuple[Rule, ...]:
    return device.standard.rules + device.standard.checked_rules


@cached_by_identity(16)
def _rules(device: Device, kinds: CommandTable) -> RuleSet:
    rules, level_of = _rules_of(device), device.standard.level_of
    for rule in rules:
        check_rule(device.standard, rule)
    binding = [[k for k, rule in enumerate(rules) if name in rule.next] for name in kinds.names]
    previous = [[kinds.names.index(name) for name in rule.previous] for rule in rules]
    return RuleSet(
        first=_starts([len(numbers) for numbers in binding]),
        binding=flags(k for numbers in binding for k in numbers),
        previous_first=_starts([len(numbers) for numbers in previous]),
        previous=flags(p for numbers in previous for p in numbers),
        level=flags(level_of(rule.level) for rule in rules),
        window=flags(rule.window for rule in rules),
        siblings=flags(rule.siblings for rule in rules),
        clocks=flags(device.clocks(rule.latency) for rule in rules),
        cycles=kinds.cycles,
        rank_wide=flags(kinds.scope == WHOLE_RANK),
        apart=_apart(device, kinds),
        children=flags([1, device.ranks, device.bankgroups, device.banks_per_group, device.stacks]),
    )


def _apart(device: Device, kinds: CommandTable) -> NDArray[np.int64]:
    """By command, the distance between the banks of a rank that it addresses; 0: one bank, or all."""
    return np.select(
        [kinds.scope == SAME_BANKS, kinds.scope == BANK_PAIR],
        [device.banks_per_group, device.banks_per_rank // 2],
    )


def _nodes(case: Case) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The node of each usable command by level (-1: none), and the first node of each level.

    The second array ends with the number of nodes. A command to several banks has the first of them.
    """
    device, part = case.device, case.part
    sizes = [1, device.ranks, device.ranks * device.bankgroups, device.banks, device.ranks * device.stacks]
    base = _starts(sizes)
    group = part.rank * device.bankgroups + part.bankgroup
    stack = group // (device.bankgroups // device.stacks)
    scope, first_of_rank = case.kinds.scope[part.command], part.rank * device.banks_per_rank
    one_bank = scope == ONE_BANK
    bank = part.bank + np.where(one_bank | (scope == BANK_PAIR), part.bankgroup * device.banks_per_group, 0)
    bank = np.where(scope == BANK_PAIR, bank % (device.banks_per_rank // 2), bank)
    node = np.stack(
        (
            np.zeros_like(part.rank),
            base[1] + part.rank,
            np.where(one_bank, base[2] + group, -1),
            np.where(part.bank >= 0, base[3] + first_of_rank + bank, -1),
            np.where(one_bank, base[4] + stack, -1),
        )
    )
    return node, base


def _timing(case: Case) -> Found:
    node, base = _nodes(case)
    rules = _rules(case.device, case.kinds)
    last, before, rows = _unset(base[-1], len(case.kinds.names)), _unset(*node.shape), _unset(case.limit, 4)
    count = find_early(case.part.clock, case.part.command, node, base, rules, last, before, rows)
    first = []
    for index, rule, earlier, short in rows[:count].tolist():
        allowed = case.part.clock[index] + short
        name = _rules_of(case.device)[rule].name
        detail = f"{too_early(short)}, {case.text(case.origin(earlier))} allows it from clock {allowed}"
        first.append(Breach(case.origin(index), name, short, detail))
    return Found(int(count), first)


# Rows.


def addressed_banks(case: Case) -> tuple[NDArray[np.int64], ...]:
    """The first bank of each usable command; by kind, the range of its banks and their distance."""
    device, part, kinds = case.device, case.part, case.kinds
    within = np.maximum(part.bankgroup, 0) * device.banks_per_group + np.maximum(part.bank, 0)
    is_pair = kinds.scope[part.command] == BANK_PAIR
    within = np.where(is_pair, within % (device.banks_per_rank // 2), within)
    bank = part.rank * device.banks_per_rank + within
    reach = np.where(kinds.scope == ONE_BANK, 1, device.banks_per_rank)
    return bank, reach, np.maximum(_apart(device, kinds), 1)


def _row_state(case: Case) -> Found:
    device, part, kinds = case.device, case.part, case.kinds
    bank, reach, stride = addressed_banks(case)
    closed = kinds.refreshes | kinds.manages  # commands that need closed banks
    effects = (kinds.opens, kinds.closes, kinds.columns, closed, reach, stride)
    touched, rows = _unset(device.banks), _unset(case.limit, 3)
    count = find_row_faults(part.command, bank, part.row, *effects, touched, rows)
    first = []
    for index, bank_number, last in rows[:count].tolist():
        group, number = divmod(bank_number % device.banks_per_rank, device.banks_per_group)
        name = f"bankgroup {group} bank {number}"
        if last < 0:
            detail = f"{name} was never opened"
        elif kinds.opens[part.command[last]] == 2:
            detail = f"{name} has half of {case.text(case.origin(last))}, for row {part.row[last]}"
        elif kinds.opens[part.command[last]]:
            detail = f"{name} has row {part.row[last]} open since {case.text(case.origin(last))}"
        else:
            detail = f"{name} was closed by {case.text(case.origin(last))}"
        first.append(Breach(case.origin(index), "row state", 0, detail))
    return Found(int(count), first)


def _completed(case: Case) -> Found:
    """The second half of an activation comes in time."""
    standard, part = case.device.standard, case.part
    first = []
    for number, command in enumerate(standard.by_number):
        if not command.completed_by:
            continue
        within = case.device.clocks(command.complete_within)
        second = standard.names.index(command.completed_by)
        node = (part.rank * case.device.bankgroups + part.bankgroup) * case.device.banks_per_group + part.bank
        indices = np.flatnonzero(np.isin(part.command, (number, second)))
        indices = indices[np.argsort(node[indices], kind="stable")]
        before, after = indices[:-1], indices[1:]
        pairs = (part.command[before] == number) & (part.command[after] == second)
        pairs &= node[before] == node[after]
        late = part.clock[after] - part.clock[before] - within
        for index in np.flatnonzero(pairs & (late > 0)).tolist():
            short, half = int(late[index]), case.text(case.origin(before[index]))
            detail = f"{counted(short, 'clock')} too late, {half} waits {within} at most"
            first.append(Breach(case.origin(after[index]), "second half", short, detail))
    first.sort(key=lambda finding: finding.number)
    return Found(len(first), first[: case.limit])


def _prepared(case: Case) -> Found:
    """Accesses without a preparing command, if the trace has such commands; a clock that runs needs none."""
    standard, device, part = case.device.standard, case.device, case.part
    commands = standard.by_number
    number_of = {name: number for number, name in enumerate(standard.names)}
    preparing = [number_of.get(command.prepared_by, -1) for command in commands]
    if not np.isin(part.command, [number for number in preparing if number >= 0]).any():
        return Found(0, [])
    moves = part.command[case.kinds.columns[part.command] == 1]
    keeps = flags(device.clocks(command.keeps_prepared) for command in commands)
    at_rank = np.array([command.prepared_at == standard.levels[1] for command in commands])
    columns = np.flatnonzero(case.kinds.columns[part.command] == 1)
    node = np.where(at_rank[moves], part.rank[columns], 0)
    until = part.clock[columns] + keeps[moves]
    prepared = np.zeros(len(columns), dtype=np.bool_)
    for number in np.unique(node):
        on_node = np.flatnonzero(node == number)
        latest = np.maximum.accumulate(until[on_node])[:-1]
        prepared[on_node[1:]] = part.clock[columns][on_node[1:]] < latest
    before = np.maximum(columns - 1, 0)
    announced = part.command[before] == np.array(preparing)[moves]
    announced &= (part.rank[before] == part.rank[columns]) & (part.bank[before] == part.bank[columns])
    bare = columns[~prepared & ~(announced & (part.bankgroup[before] == part.bankgroup[columns]))]
    first = [
        Breach(
            case.origin(index), "preparation", 0, f"{commands[part.command[index]].prepared_by} is missing"
        )
        for index in bare[: case.limit].tolist()
    ]
    return Found(len(bare), first)


def _started(case: Case) -> Found:
    """Reads while the clock of their data is stopped, if the trace has a command that starts it."""
    standard, part, starts = case.device.standard, case.part, case.device.standard.by_number[READ].started_by
    if not starts or not (part.command == standard.names.index(starts)).any():
        return Found(0, [])
    effect = np.zeros(len(standard.names), dtype=np.int64)
    effect[standard.names.index(starts)] = 1
    effect[standard.names.index(standard.by_number[READ].stopped_by)] = -1
    late = []
    for rank in np.unique(part.rank):
        in_rank = np.flatnonzero(part.rank == rank)
        changes = effect[part.command[in_rank]]
        # The last command that started or stopped the clock; before the first one the clock is stopped.
        last = np.maximum.accumulate(np.where(changes != 0, np.arange(len(in_rank)), -1))
        runs = (last >= 0) & (changes[np.maximum(last, 0)] == 1)
        late += in_rank[~runs & (case.kinds.reads[part.command[in_rank]] == 1)].tolist()
    late.sort()
    detail = f"{starts} is missing"
    first = [Breach(case.origin(index), "read clock", 0, detail) for index in late[: case.limit]]
    return Found(len(late), first)


#: The checks that need no more than the trace and its device.
CHECKS = (
    _unknown_commands,
    _coordinates,
    _command_bus,
    _ticks,
    _data_bus,
    _timing,
    _row_state,
    _completed,
    _prepared,
    _started,
)


# ---- Whether banks get refresh management (RFM), or a refresh, before they have too many activations


def unmanaged(case: Case, rfm: Managed) -> Found:
    """Find activations of banks whose counter (RAA) is at its maximum (RAAMMT).

    The counter goes up by one with each activation, and down with RFM (by RAAIMT) and with a refresh. An
    activation is a finding if the counter was at its maximum; later ones are not, until it goes down.
    """
    kinds, device = case.kinds, case.device
    bank, reach, stride = addressed_banks(case)
    opens = (kinds.opens == 1) | (kinds.opens == 3)
    change = opens - rfm.threshold * kinds.manages - rfm.by_refresh * kinds.refreshes
    counters, rows = np.zeros(device.banks, dtype=np.int64), np.full((case.limit, 2), -1, dtype=np.int64)
    count = find_unmanaged(case.part.command, bank, change, reach, stride, rfm.maximum, counters, rows)
    first = []
    for index, bank_number in rows[: min(count, case.limit)].tolist():
        group, number = divmod(bank_number % device.banks_per_rank, device.banks_per_group)
        detail = (
            f"bankgroup {group} bank {number} has more than {rfm.maximum} activations (RAAMMT) "
            "that no RFM or refresh took off"
        )
        first.append(Breach(case.origin(index), "refresh management", 0, detail))
    return Found(int(count), first)
