"""A row closes after so many column accesses: by auto-precharge with the next one, or by PRE before it.

Of a column command after the last access only the form with auto-precharge is issued. It may close the row
under an active request of the other direction, which then activates its bank again. As in the reference, the
bank is counted twice from then on: it is held while any request is active.
"""

from __future__ import annotations

from typing import NamedTuple

from ndpsim._jit import inlined, outlined
from ndpsim.dram import state
from ndpsim.dram.masks.banks import (
    active_bank,
    auto_precharge,
    close_banks,
    lower_active_bound,
    open_bank,
    release_bank,
    requeue_reads,
)
from ndpsim.dram.masks.choose import banks_that_wait, choose_active, choose_maintenance
from ndpsim.dram.masks.issue import (
    bank_node,
    count_command,
    drop_first,
    issue_active,
    issue_maintenance,
    write_down,
)
from ndpsim.dram.masks.slots import push_maintenance
from ndpsim.dram.masks.state import (
    ACCESSES,
    ACT,
    ACTIVE_ARRIVED,
    ACTIVE_REQUEST,
    ACTIVE_SIZE,
    BANKS,
    BANKS_PER_RANK,
    CAPPED,
    CAPPED_BOUND,
    DOUBLY_HELD,
    HELD_BANKS,
    KINDS,
    OPEN_BANKS,
    OPEN_ROW,
    PENDING_BANK,
    PENDING_KIND,
    PRE,
    RANK_READY,
    RANKS,
    RD,
    RDA,
)
from ndpsim.dram.masks.timing import bank_ready_at, note_activate, note_bank
from ndpsim.dram.masks.words import assume_nonnegative, lowest, ranks_of
from ndpsim.dram.queues import push_priority
from ndpsim.dram.sink import credit_clock
from ndpsim.dram.state import FAR, NEXT_REFRESH, OPEN_CLOCKS, ROW_SHIFT
from ndpsim.dram.timing import bank_ready_at as node_ready_at
from ndpsim.dram.timing import banks_per_rank, first_bank
from ndpsim.spec.standard import PRECHARGE, READ, READ_AP, WRITE, WRITE_AP

__all__ = ["ClosedCap", "of"]


class ClosedCap(NamedTuple):
    """The parameters."""

    cap: int  # column accesses, at least 1

    @staticmethod
    def parts() -> str:
        """The module of the parts of kernels."""
        return __name__


def of(cap: int) -> ClosedCap:
    """The parameters."""
    return ClosedCap(cap)


# ---- The general controller


@inlined
def close_due(rows, tables, channel, clock):
    """See `maintenance`: PRECHARGE, once, for every bank whose row has had its accesses."""
    wake = FAR
    ready, bank_rows = channel.ready, channel.rows
    start = first_bank(tables, 1)
    for bank in range(start, bank_rows.shape[0]):
        if bank_rows[bank, state.ACCESSES] < rows.cap or bank_rows[bank, state.CLOSING]:
            continue
        group = 1 + tables.ranks + (bank - start) // tables.banks_per_group
        rank = 1 + (bank - start) // banks_per_rank(tables)
        at = node_ready_at(ready, PRECHARGE, rank, group, bank)
        if at <= clock:
            if channel.size[state.PRIORITY] < channel.entry.shape[2]:
                push_priority(channel.entry, channel.size, PRECHARGE, rank, group, bank)
                bank_rows[bank, state.CLOSING] = 1
        else:
            wake = min(wake, at)
    return wake


@inlined
def column_command(rows, bank_rows, command, bank):
    """See `issuing`: that with auto-precharge after the last access."""
    if (command != READ and command != WRITE) or bank_rows[bank, state.ACCESSES] < rows.cap:
        return command
    return READ_AP if command == READ else WRITE_AP


# ---- The fast controller


@inlined
def precharge_ready_at(state, bank):
    """The first clock at which a bank is ready for PRE."""
    return max(state[RANK_READY + bank // BANKS_PER_RANK * KINDS + PRE], bank_ready_at(state, PRE, bank))


@inlined
def column_kind(rows, state, kind, bank):
    """See `masks.row_points`."""
    return kind + (RDA - RD if state[ACCESSES + assume_nonnegative(bank)] >= rows.cap else 0)


@inlined
def finish_active(rows, queues, state, kind, bank, clock):
    """See `masks.row_points`."""
    if kind >= RDA:
        state[HELD_BANKS + bank // BANKS_PER_RANK] &= ~(1 << bank % BANKS_PER_RANK)
        auto_precharge(queues, state, kind, bank, clock)
    else:
        release_bank(queues, state, bank)


@inlined
def finish_queued(rows, queues, state, kind, bank, clock):
    """See `masks.row_points`."""
    if kind >= RDA:
        auto_precharge(queues, state, kind, bank, clock)


@inlined
def note_activated(rows, state, bank):
    """See `masks.row_points`."""
    bank = assume_nonnegative(bank)
    state[ACCESSES + bank] = 0
    state[CAPPED + bank // BANKS_PER_RANK] &= ~(1 << bank % BANKS_PER_RANK)


@inlined
def note_column(rows, state, kind, bank):
    """See `masks.row_points`."""
    bank = assume_nonnegative(bank)
    accesses = state[ACCESSES + bank] + 1
    state[ACCESSES + bank] = accesses
    if accesses == rows.cap:
        state[CAPPED + bank // BANKS_PER_RANK] |= 1 << bank % BANKS_PER_RANK
        state[CAPPED_BOUND] = min(state[CAPPED_BOUND], precharge_ready_at(state, bank))


@inlined
def next_maintenance(rows, state):
    """See `masks.row_points`."""
    return min(state[NEXT_REFRESH], state[CAPPED_BOUND])


@inlined
def close_rows(rows, state, clock):
    """See `masks.row_points`."""
    if clock < state[CAPPED_BOUND]:
        return False
    close_capped(state, clock)
    return True


@outlined
def close_capped(state, clock):
    """Ask for PRE of the capped rows for which it is ready; each row is asked for once."""
    first = FAR
    for rank in range(RANKS):
        left = state[CAPPED + rank] & state[OPEN_BANKS + rank]
        state[CAPPED + rank] = left
        while left != 0:
            bit = left & -left
            left ^= bit
            bank = assume_nonnegative(rank * BANKS_PER_RANK + lowest(bit))
            at = precharge_ready_at(state, bank)
            if at <= clock:
                push_maintenance(state, PRE, bank)
                state[CAPPED + rank] ^= bit
            else:
                first = min(first, at)
    state[CAPPED_BOUND] = first


@inlined
def also_held(rows, shape, state, rank):
    """See `masks.row_points`."""
    if state[DOUBLY_HELD + rank] == 0:
        return 0
    active = 0
    for active_queue in range(2 * ranks_of(shape)):
        active += state[ACTIVE_SIZE + active_queue]
    return state[DOUBLY_HELD + rank] if active > 0 else 0


@inlined
def lacks_rows(rows, shape, state):
    """See `masks.row_points`."""
    lacking = 0
    for rank in range(assume_nonnegative(ranks_of(shape))):
        lacking |= state[HELD_BANKS + rank] & ~state[OPEN_BANKS + rank]
    return lacking != 0


@outlined
def choose_of_all_active(shape, state, credit, clock):
    """As `choose_active`, where some of the active requests need ACT again."""
    best, best_place, best_arrived = -1, 0, FAR
    for active_queue in range(2 * ranks_of(shape)):
        for place in range(state[ACTIVE_SIZE + active_queue]):
            bank, kind = active_bank(state, active_queue, place), RD + active_queue % 2
            if state[OPEN_ROW + bank] < 0:
                kind = ACT
            at = max(state[RANK_READY + active_queue // 2 * KINDS + kind], bank_ready_at(state, kind, bank))
            arrived = state[ACTIVE_ARRIVED + bank]
            if max(at, credit if kind == RD else 0) <= clock and arrived < best_arrived:
                best, best_place, best_arrived = active_queue, place, arrived
    return best, best_place


@outlined
def activate_again(shape, state, source, commands, active_queue, place, clock):
    """ACT of an active request whose row was closed before its column command."""
    bank, active = assume_nonnegative(active_bank(state, active_queue, place)), 0
    row = source.place[assume_nonnegative(state[ACTIVE_REQUEST + bank])] >> ROW_SHIFT
    count_command(state, ACT, clock)
    if commands.entry.shape[0] > 0:
        write_down(commands, ACT, bank_node(shape, bank), row, -1, clock)
    for other in range(2 * shape.ranks):
        active += state[ACTIVE_SIZE + other]
    banks = shape.ranks * shape.bankgroups * shape.banks_per_group
    if active < banks:
        state[DOUBLY_HELD + bank // BANKS_PER_RANK] |= 1 << bank % BANKS_PER_RANK
    state[OPEN_CLOCKS] -= clock
    note_activate(shape, state, bank, clock)
    note_activated(shape.rows, state, bank)
    lower_active_bound(state, RD + active_queue % 2, bank)
    open_bank(shape.queues, state, bank, row)


@inlined
def issue_first_active(rows, shape, state, latencies, source, sink, commands, credit, clock):
    """See `masks.row_points`."""
    if lacks_rows(rows, shape, state):
        active_queue, place = choose_of_all_active(shape, state, credit, clock)
    else:
        active_queue, place = choose_active(shape, state, credit, clock)
    if active_queue >= 0:
        if state[OPEN_ROW + active_bank(state, active_queue, place)] < 0:
            activate_again(shape, state, source, commands, active_queue, place, clock)
        else:
            issue_active(shape, state, latencies, source, sink, commands, active_queue, place, clock)
    return active_queue >= 0


@outlined
def issue_close(shape, state, source, sink, commands, clock):
    """PRE, for which a row policy has asked, of the first maintenance that waits."""
    bank = assume_nonnegative(state[PENDING_BANK] & (BANKS - 1))
    count_command(state, PRE, clock)
    if commands.entry.shape[0] > 0:
        write_down(commands, PRE, bank_node(shape, bank), -1, -1, clock)
    note_bank(shape, state, PRE, bank, clock)
    close_banks(shape.queues, state, bank // BANKS_PER_RANK, 1 << bank % BANKS_PER_RANK, clock)
    drop_first(state)
    if sink.servers > 0 and credit_clock(sink) > clock:
        requeue_reads(shape, state, source, clock)


@inlined
def issue_first_maintenance(rows, shape, state, source, sink, commands, credit, clock):
    """See `masks.row_points`."""
    if state[PENDING_KIND] == PRE:
        bank = assume_nonnegative(state[PENDING_BANK] & BANKS - 1)
        rank = bank // BANKS_PER_RANK
        if banks_that_wait(shape, state, rank, credit <= clock, False) >> bank % BANKS_PER_RANK & 1:
            at = FAR
        else:
            at = precharge_ready_at(state, bank)
        if at <= clock:
            issue_close(shape, state, source, sink, commands, clock)
    else:
        kind, at = choose_maintenance(shape, state, credit, 0, clock)
        if kind >= 0:
            issue_maintenance(shape, state, source, sink, commands, kind, clock)
    if at <= clock:
        return clock
    return clock + 1 if lacks_rows(rows, shape, state) else at
