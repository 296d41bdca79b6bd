"""A row closes after `cap` column accesses: by auto-precharge of the last access, or by PRE.

After the last access, column commands are issued only with auto-precharge. Such a command may close the row
of an active request of the other direction, which then activates its bank again. As in the reference, the
bank then counts twice: it is held while any request is active.
"""

from __future__ import annotations

from typing import NamedTuple

from ndpsim.base.jit import inlined, outlined
from ndpsim.dram.fast.banks import (
    active_bank,
    auto_precharge,
    lower_active_not_ready_until,
    open_bank,
    release_bank,
)
from ndpsim.dram.fast.choose import choose_active
from ndpsim.dram.fast.fields import ACT, BANKS_PER_RANK, PRE, RD, RDA
from ndpsim.dram.fast.issue import bank_node, count_command, issue_active, note_activation, record_command
from ndpsim.dram.fast.points import allows
from ndpsim.dram.fast.slots import push_maintenance
from ndpsim.dram.fast.timing import bank_ready_at, propagate_activate
from ndpsim.dram.fast.vectors import assume_nonnegative, lowest
from ndpsim.dram.queues import push_priority
from ndpsim.dram.spec.standard import PRECHARGE, READ, READ_AP, WRITE, WRITE_AP
from ndpsim.dram.state import ACCESSES, CLOSING, FAR, NEXT_REFRESH, OPEN_CLOCKS, PRIORITY, ROW_SHIFT
from ndpsim.dram.timing import bank_ready_at as node_ready_at
from ndpsim.dram.timing import banks_per_rank, first_bank


class ClosedCap(NamedTuple):
    """The parameters."""

    cap: int  # column accesses, at least 1


def of(cap: int) -> ClosedCap:
    """The parameters."""
    return ClosedCap(cap)


# ---- The general controller


@inlined
def close_due(rows, tables, state, clock):
    """PRECHARGE, once, for every bank whose row has reached its number of accesses."""
    wake = FAR
    ready, bank_rows = state.ready, state.rows
    start = first_bank(tables, 1)
    for bank in range(start, bank_rows.shape[0]):
        if bank_rows[bank, ACCESSES] < rows.cap or bank_rows[bank, CLOSING]:
            continue
        group = 1 + tables.ranks + (bank - start) // tables.banks_per_group
        rank = 1 + (bank - start) // banks_per_rank(tables)
        earliest = node_ready_at(ready, PRECHARGE, rank, group, bank)
        if earliest <= clock:
            if state.size[PRIORITY] < state.entry.shape[2]:
                push_priority(state.entry, state.size, PRECHARGE, rank, group, bank)
                bank_rows[bank, CLOSING] = 1
        else:
            wake = min(wake, earliest)
    return wake


@inlined
def column_command(rows, bank_rows, command, bank):
    """The command with auto-precharge after the last access."""
    if (command != READ and command != WRITE) or bank_rows[bank, ACCESSES] < rows.cap:
        return command
    return READ_AP if command == READ else WRITE_AP


# ---- The fast controller: see `fast.points`, `fast.step` and `fast.issue`


@inlined
def precharge_ready_at(state, bank):
    """The first clock at which a bank is ready for PRE."""
    return max(state.rank_ready[bank // BANKS_PER_RANK, PRE], bank_ready_at(state, PRE, bank))


@inlined
def column_class(rows, state, command, bank):
    return command + (RDA - RD if state.accesses[assume_nonnegative(bank)] >= rows.cap else 0)


@inlined
def finish_active(rows, queues, state, command, bank, clock):
    if command >= RDA:
        state.pinned_banks[bank // BANKS_PER_RANK] &= ~(1 << bank % BANKS_PER_RANK)
        auto_precharge(queues, state, command, bank, clock)
    else:
        release_bank(queues, state, bank)


@inlined
def finish_queued(rows, queues, state, command, bank, clock):
    if command >= RDA:
        auto_precharge(queues, state, command, bank, clock)


@inlined
def record_activated(rows, state, bank):
    bank = assume_nonnegative(bank)
    state.accesses[bank] = 0
    state.capped[bank // BANKS_PER_RANK] &= ~(1 << bank % BANKS_PER_RANK)


@inlined
def record_column(rows, state, command, bank):
    """Count an access; a row that has had all of them is to be closed."""
    bank = assume_nonnegative(bank)
    accesses = state.accesses[bank] + 1
    state.accesses[bank] = accesses
    if accesses == rows.cap:
        state.capped[bank // BANKS_PER_RANK] |= 1 << bank % BANKS_PER_RANK
        state.capped_next_ready = min(state.capped_next_ready, precharge_ready_at(state, bank))


@inlined
def next_maintenance(rows, state):
    return min(state.value[NEXT_REFRESH], state.capped_next_ready)


@inlined
def close_rows(rows, state, clock):
    if clock < state.capped_next_ready:
        return False
    close_capped(state, clock)
    return True


@outlined
def close_capped(state, clock):
    """Request PRE for the capped rows for which it is ready, once for each row."""
    first = FAR
    for rank in range(state.capped.shape[0]):
        left = state.capped[rank] & state.open_banks[rank]
        state.capped[rank] = left
        while left != 0:
            bit = left & -left
            left ^= bit
            bank = assume_nonnegative(rank * BANKS_PER_RANK + lowest(bit))
            earliest = precharge_ready_at(state, bank)
            if earliest <= clock:
                push_maintenance(state, PRE, bank)
                state.capped[rank] ^= bit
            else:
                first = min(first, earliest)
    state.capped_next_ready = first


@inlined
def also_pinned(rows, shape, state, rank):
    """Banks whose row an active request needs again."""
    if state.reactivated[rank] == 0:
        return 0
    active = 0
    for active_queue in range(2 * shape.ranks):
        active += state.active_size[active_queue]
    return state.reactivated[rank] if active > 0 else 0


@inlined
def lacks_rows(rows, shape, state):
    lacking = 0
    for rank in range(assume_nonnegative(shape.ranks)):
        lacking |= state.pinned_banks[rank] & ~state.open_banks[rank]
    return lacking != 0


@outlined
def choose_reactivation(shape, state, credit, clock):
    """`choose_active` if some of the active requests need ACT again."""
    best, best_place, best_arrived = -1, 0, FAR
    for active_list in range(2 * shape.ranks):
        for index in range(state.active_size[active_list]):
            bank, command = assume_nonnegative(active_bank(state, active_list, index)), RD + active_list % 2
            if state.open_row[bank] < 0:
                command = ACT
            earliest = max(state.rank_ready[active_list // 2, command], bank_ready_at(state, command, bank))
            arrived = state.active_arrived[bank]
            if not allows(shape.step, state, command):
                continue
            if max(earliest, credit if command == RD else 0) <= clock and arrived < best_arrived:
                best, best_place, best_arrived = active_list, index, arrived
    return best, best_place


@inlined
def choose_first_active(rows, shape, state, credit, blocking, clock):
    if lacks_rows(rows, shape, state):
        active_list, index = choose_reactivation(shape, state, credit, clock)
        return active_list, index, 0, FAR
    return choose_active(shape, state, credit, blocking, clock)


@outlined
def activate_again(shape, state, source, commands, active_list, index, clock):
    """ACT of an active request whose row was closed before its column command."""
    bank, active = assume_nonnegative(active_bank(state, active_list, index)), 0
    row = source.place[assume_nonnegative(state.active_request[bank])] >> ROW_SHIFT
    count_command(state, ACT, clock)
    if commands.entry.shape[0] > 0:
        record_command(commands, ACT, bank_node(shape, bank), row, -1, clock)
    for number in range(2 * shape.ranks):
        active += state.active_size[number]
    banks = shape.ranks * shape.bankgroups * shape.banks_per_group
    if active < banks:
        state.reactivated[bank // BANKS_PER_RANK] |= 1 << bank % BANKS_PER_RANK
    state.value[OPEN_CLOCKS] -= clock
    propagate_activate(shape, state, bank, clock)
    record_activated(shape.rows, state, bank)
    lower_active_not_ready_until(state, RD + active_list % 2, bank)
    open_bank(shape.queues, state, bank, row)
    note_activation(shape, state, bank, clock)


@inlined
def issue_first_active(rows, channel, active_list, index, clock):
    """A column command, or ACT if the row was closed before it."""
    state = channel.state
    if state.open_row[active_bank(state, active_list, index)] < 0:
        activate_again(channel.shape, state, channel.source, channel.commands, active_list, index, clock)
    else:
        issue_active(channel, active_list, index, clock)
