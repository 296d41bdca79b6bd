"""Updates a controller when another controller of the same banks issues a command.

Distances apply within the rank: both controllers use its command and data pins, but not the same buses
beyond it.
"""

from __future__ import annotations

from ndpsim.base.jit import inlined, outlined
from ndpsim.dram.fast.banks import (
    bank_bit,
    close_bank,
    close_banks,
    drop_pending,
    open_bank,
    release_bank,
    same_banks,
)
from ndpsim.dram.fast.fields import ACT, BANKS_PER_RANK, PRE, PREAB, PRESB, REFAB, TIMED_CLASSES
from ndpsim.dram.fast.one_chunk import ONE_CHUNK
from ndpsim.dram.fast.timing import (
    propagate_bank_in_rank,
    propagate_in_rank,
    propagate_same_banks_in_rank,
    update_window,
)
from ndpsim.dram.fast.vectors import assume_nonnegative
from ndpsim.dram.state import OPEN_CLOCKS, REFRESH_UNTIL


@inlined
def one_command_a_clock(state, rank, clock):
    """The command pins of the rank are occupied at `clock`."""
    rank = assume_nonnegative(rank)
    for command in range(TIMED_CLASSES):
        state.rank_ready[rank, command] = max(state.rank_ready[rank, command], clock + 1)


@outlined
def observe_column(state, command, bank, of_active, clock):
    """RD or WR; `of_active`: of a request that had activated the bank and held it."""
    bank = assume_nonnegative(bank)
    propagate_bank_in_rank(state, command, bank, clock)
    one_command_a_clock(state, bank // BANKS_PER_RANK, clock)
    if of_active:
        state.pinned_by_other[bank // BANKS_PER_RANK] &= ~bank_bit(bank)
        release_bank(ONE_CHUNK, state, bank)


@outlined
def observe_activate(shape, state, bank, row, clock):
    """ACT: the bank is held until the column command of the request that it was for."""
    bank = assume_nonnegative(bank)
    rank = bank // BANKS_PER_RANK
    state.value[OPEN_CLOCKS] -= clock
    propagate_bank_in_rank(state, ACT, bank, clock)
    update_window(shape, state, rank, clock)
    one_command_a_clock(state, rank, clock)
    state.pinned_by_other[rank] |= bank_bit(bank)
    open_bank(ONE_CHUNK, state, bank, row)


@outlined
def observe_precharge(state, bank, clock):
    """PRE of one bank."""
    bank = assume_nonnegative(bank)
    state.value[OPEN_CLOCKS] += clock
    propagate_bank_in_rank(state, PRE, bank, clock)
    one_command_a_clock(state, bank // BANKS_PER_RANK, clock)
    close_bank(ONE_CHUNK, state, bank)


@inlined
def forget_pending(shape, state, command, bank):
    """The first refresh of this class that waits for a bank, or for the rank it is the first of, is done."""
    for place in range(state.pending_size):
        here = place & (state.pending_bank.shape[0] - 1)
        if state.pending_class[here] == command and state.pending_bank[here] == bank:
            drop_pending(shape, state, here)
            return


@inlined
def release_closed(state, rank):
    """The other controller no longer holds banks of a rank that a refresh has closed."""
    closed = state.pinned_by_other[rank] & ~state.open_banks[rank]
    state.pinned_by_other[rank] &= ~closed
    state.pinned_banks[rank] &= ~closed


@outlined
def observe_maintenance(shape, state, command, first, clock):
    """PREAB, REFAB, PRESB or REFSB; `first`: the first bank of the rank, or of those of the command."""
    rank = assume_nonnegative(first) // BANKS_PER_RANK
    if command == PREAB or command == REFAB:
        propagate_in_rank(state, command, rank, clock)
    else:
        propagate_same_banks_in_rank(shape, state, command, first, clock)
    one_command_a_clock(state, rank, clock)
    if command == PREAB or command == PRESB:
        close_banks(shape.queues, state, rank, -1 if command == PREAB else same_banks(shape, first), clock)
        release_closed(state, rank)
    else:
        if command == REFAB or state.awaits_refresh[rank] & bank_bit(first) == 0:
            state.value[REFRESH_UNTIL] = clock + (shape.refresh_cycles if command == REFAB else 0)
        forget_pending(shape, state, command, first)
