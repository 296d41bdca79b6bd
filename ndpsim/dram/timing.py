"""When a command may go where: the hierarchy, and the distances that commands leave behind them."""

from __future__ import annotations

from ndpsim._jit import inlined
from ndpsim.spec import COMMANDS
from ndpsim.spec.standard import ACT

__all__ = [
    "bank_ready_at",
    "banks_per_rank",
    "first_bank",
    "note_timing",
    "note_timing_in_rank",
    "rank_ready_at",
    "same_banks_ready_at",
]

_KINDS = len(COMMANDS)


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
def rank_ready_at(ready, command, rank):
    """The first clock at which `command` may go to a whole rank."""
    return max(ready[0, command], ready[rank, command])


@inlined
def same_banks_ready_at(tables, ready, command, rank, bank):
    """The first clock at which `command` may go to `bank` and its like in every other group of the rank."""
    at = rank_ready_at(ready, command, rank)
    for other in range(bank, bank + banks_per_rank(tables), tables.banks_per_group):
        at = max(at, ready[other, command])
    return at


@inlined
def carry_to_node(ready, gap, node, level, command, clock):
    """Carry the distances of `command`, issued at `clock`, to one node of a level."""
    for after in range(_KINDS):
        ready[node, after] = max(ready[node, after], clock + gap[level, command, after])


@inlined
def note_window(tables, ready, recent_acts, rank, clock):
    """An ACT: the fourth after it must not come before the window (tFAW) has passed."""
    for place in range(3):
        recent_acts[rank, place] = recent_acts[rank, place + 1]
    recent_acts[rank, 3] = clock
    ready[rank, ACT] = max(ready[rank, ACT], recent_acts[rank, 0] + tables.activate_window)


@inlined
def note_banks(tables, ready, command, group, bank, clock):
    """Carry the distances of `command` to its bank group and bank, or to one bank of every group."""
    gap = tables.gap
    if group > 0:
        carry_to_node(ready, gap, group, 2, command, clock)
        carry_to_node(ready, gap, bank, 3, command, clock)
    elif bank > 0:
        for other in range(bank, bank + banks_per_rank(tables), tables.banks_per_group):
            carry_to_node(ready, gap, other, 3, command, clock)


@inlined
def note_timing(tables, ready, recent_acts, command, rank, group, bank, clock):
    """Carry the distances of `command` to every node it binds.

    group 0: one bank of every group; bank 0 as well: the whole rank.
    """
    carry_to_node(ready, tables.gap, 0, 0, command, clock)
    carry_to_node(ready, tables.gap, rank, 1, command, clock)
    note_banks(tables, ready, command, group, bank, clock)
    if tables.ranks > 1:
        for other in range(1, tables.ranks + 1):
            if other != rank:
                for after in range(_KINDS):
                    ready[other, after] = max(ready[other, after], clock + tables.sibling_gap[command, after])
    if command == ACT:
        note_window(tables, ready, recent_acts, rank, clock)


@inlined
def note_timing_in_rank(tables, ready, recent_acts, command, rank, group, bank, clock):
    """As `note_timing`, but nothing outside the rank is bound: the command came over a path of its own."""
    carry_to_node(ready, tables.gap, rank, 0, command, clock)
    carry_to_node(ready, tables.gap, rank, 1, command, clock)
    note_banks(tables, ready, command, group, bank, clock)
    if command == ACT:
        note_window(tables, ready, recent_acts, rank, clock)
