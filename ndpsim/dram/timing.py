"""The timing of commands: the hierarchy of nodes, and the distances between commands."""

from __future__ import annotations

from ndpsim.base.jit import inlined
from ndpsim.dram.spec.checking import MOST_COMMANDS
from ndpsim.dram.spec.lower import CLOCKS, COUNTED, LENGTH, LEVEL, SCOPE
from ndpsim.dram.spec.standard import BANK_PAIR, ONE_BANK, STACK, WHOLE_RANK


@inlined
def first_bank(tables, rank):
    """The node of a rank's first bank."""
    groups = tables.ranks * tables.bankgroups
    return 1 + tables.ranks + groups + (rank - 1) * tables.bankgroups * tables.banks_per_group


@inlined
def banks_per_rank(tables):
    """Banks in a rank."""
    return tables.bankgroups * tables.banks_per_group


@inlined
def bank_ready_at(ready, command, rank, group, bank):
    """The first clock at which `command` may go to one bank."""
    return max(max(ready[0, command], ready[rank, command]), max(ready[group, command], ready[bank, command]))


@inlined
def banks_of(tables, scope, rank, bank):
    """The nodes of the banks that a command of a scope addresses, as a range: first, end, stride."""
    if scope == ONE_BANK:
        return bank, bank + 1, 1
    if scope == WHOLE_RANK:
        first = first_bank(tables, rank)
        return first, first + banks_per_rank(tables), 1
    if scope == BANK_PAIR:
        half = banks_per_rank(tables) // 2
        first = first_bank(tables, rank)
        bank = first + (bank - first) % half
        return bank, bank + 2 * half, half
    return bank, bank + banks_per_rank(tables), tables.banks_per_group


@inlined
def ready_at(tables, ready, command, rank, group, bank):
    """The first clock at which `command` may go to all that it addresses."""
    scope = tables.commands[command, SCOPE]
    if scope == ONE_BANK:
        return bank_ready_at(ready, command, rank, group, bank)
    earliest = max(ready[0, command], ready[rank, command])
    if scope != WHOLE_RANK:
        first, end, stride = banks_of(tables, scope, rank, bank)
        for node in range(first, end, stride):
            earliest = max(earliest, ready[node, command])
    return earliest


@inlined
def carry_to_node(ready, gap, node, level, command, clock):
    """Carry the distances of `command`, issued at `clock`, to one node; `gap`: of nodes of its level."""
    for after in range(MOST_COMMANDS):
        ready[node, after] = max(ready[node, after], clock + gap[level, command, after])


@inlined
def carry_to_siblings(tables, ready, level, first, end, own, command, clock):
    """Carry the distances of `command` to the nodes from `first` to `end` but its own."""
    for node in range(first, end):
        if node != own:
            carry_to_node(ready, tables.sibling_gap, node, level, command, clock)


@inlined
def carry_to_stacks(tables, ready, rank, group, command, clock):
    """Carry the distances of `command` to the bank groups of its stack, and of the others of its rank."""
    first, per_stack = 1 + tables.ranks + (rank - 1) * tables.bankgroups, tables.groups_per_stack
    for node in range(first, first + tables.bankgroups):
        same = (node - first) // per_stack == (group - first) // per_stack
        carry_to_node(ready, tables.gap if same else tables.sibling_gap, node, STACK, command, clock)


@inlined
def note_windows(tables, ready, recent, command, rank, group, bank, clock):
    """Record a command that window rules count, and delay commands until the window has passed (tFAW)."""
    for window in range(tables.windows.shape[0]):
        if tables.windows[window, COUNTED + command] > 0:
            level = tables.windows[window, LEVEL]
            node = rank if level == 1 else group if level == 2 else bank if level == 3 else 0
            oldest = recent[window, node, 0]
            recent[window, node, oldest] = clock + tables.windows[window, COUNTED + command] - 1
            oldest = oldest % tables.windows[window, LENGTH] + 1
            recent[window, node, 0] = oldest
            for after in range(MOST_COMMANDS):
                until = recent[window, node, oldest] + tables.windows[window, CLOCKS + after]
                ready[node, after] = max(ready[node, after], until)


@inlined
def note_in_rank(tables, ready, command, rank, group, bank, clock):
    """Carry the distances of `command` to its bank group and bank, or to the banks that it addresses."""
    gap, scope = tables.gap, tables.commands[command, SCOPE]
    if group > 0 and scope != BANK_PAIR:
        carry_to_node(ready, gap, group, 2, command, clock)
        carry_to_node(ready, gap, bank, 3, command, clock)
        if tables.binds_siblings[2, command]:
            first = 1 + tables.ranks + (rank - 1) * tables.bankgroups
            carry_to_siblings(tables, ready, 2, first, first + tables.bankgroups, group, command, clock)
        if tables.binds_siblings[3, command]:
            first = first_bank(tables, 1) + (group - 1 - tables.ranks) * tables.banks_per_group
            carry_to_siblings(tables, ready, 3, first, first + tables.banks_per_group, bank, command, clock)
        if tables.groups_per_stack > 0:
            carry_to_stacks(tables, ready, rank, group, command, clock)
    elif bank > 0:
        first, end, stride = banks_of(tables, scope, rank, bank)
        for node in range(first, end, stride):
            carry_to_node(ready, gap, node, 3, command, clock)


@inlined
def note_timing(tables, ready, recent, command, rank, group, bank, clock):
    """Carry the distances of `command` to every node with a rule for it.

    group 0: several banks of a rank; with bank 0: the whole rank.
    """
    carry_to_node(ready, tables.gap, 0, 0, command, clock)
    carry_to_node(ready, tables.gap, rank, 1, command, clock)
    note_in_rank(tables, ready, command, rank, group, bank, clock)
    if tables.binds_siblings[1, command]:
        carry_to_siblings(tables, ready, 1, 1, 1 + tables.ranks, rank, command, clock)
    note_windows(tables, ready, recent, command, rank, group, bank, clock)


@inlined
def note_timing_in_rank(tables, ready, recent, command, rank, group, bank, clock):
    """`note_timing` within the rank only: the command came over another path."""
    carry_to_node(ready, tables.gap, rank, 0, command, clock)
    carry_to_node(ready, tables.gap, rank, 1, command, clock)
    note_in_rank(tables, ready, command, rank, group, bank, clock)
    note_windows(tables, ready, recent, command, rank, group, bank, clock)
