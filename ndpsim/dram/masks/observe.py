"""What a controller learns of a command that another controller of the same banks has issued.

Distances bind within the rank: its command and data pins are those of both controllers, while the buses
beyond it are not.
"""

from __future__ import annotations

from ndpsim._jit import inlined, outlined
from ndpsim.dram.masks.banks import close_bank, close_banks, open_bank, release_bank, same_banks
from ndpsim.dram.masks.rows import filled, larger, row_at, set_row
from ndpsim.dram.masks.state import (
    ACT,
    BANKS_PER_RANK,
    HELD_BANKS,
    HELD_BY_OTHER,
    KINDS,
    ONE_SEGMENT,
    OPEN_BANKS,
    PENDING,
    PENDING_BANK,
    PENDING_KIND,
    PENDING_SIZE,
    PRE,
    PREAB,
    PRESB,
    RANK_READY,
    REFAB,
    WAITS,
)
from ndpsim.dram.masks.timing import carry_in_rank, note_bank_in_rank, note_same_banks_in_rank, note_window
from ndpsim.dram.masks.words import assume_nonnegative
from ndpsim.dram.state import OPEN_CLOCKS, REFRESH_UNTIL

__all__ = ["observe_activate", "observe_column", "observe_maintenance", "observe_precharge", "release_closed"]


@inlined
def one_command_a_clock(state, rank, clock):
    """The command path of the rank is taken at `clock`."""
    ready = RANK_READY + assume_nonnegative(rank) * KINDS
    for half in range(0, KINDS, WAITS):
        set_row(state, ready + half, larger(row_at(state, ready + half), filled(clock + 1)))


@inlined
def held_bit(bank):
    """The bank's bit in the masks of its rank."""
    return 1 << bank % BANKS_PER_RANK


@outlined
def observe_column(state, kind, bank, of_active, clock):
    """RD or WR; `of_active`: of a request that had activated the bank and held it."""
    bank = assume_nonnegative(bank)
    note_bank_in_rank(state, kind, bank, clock)
    one_command_a_clock(state, bank // BANKS_PER_RANK, clock)
    if of_active:
        state[HELD_BY_OTHER + bank // BANKS_PER_RANK] &= ~held_bit(bank)
        release_bank(ONE_SEGMENT, state, bank)


@outlined
def observe_activate(shape, state, bank, row, clock):
    """ACT: the bank is held until the column command of the request that it was for."""
    bank = assume_nonnegative(bank)
    rank = bank // BANKS_PER_RANK
    state[OPEN_CLOCKS] -= clock
    note_bank_in_rank(state, ACT, bank, clock)
    note_window(shape, state, rank, clock)
    one_command_a_clock(state, rank, clock)
    state[HELD_BY_OTHER + rank] |= held_bit(bank)
    open_bank(ONE_SEGMENT, state, bank, row)


@outlined
def observe_precharge(state, bank, clock):
    """PRE of one bank."""
    bank = assume_nonnegative(bank)
    state[OPEN_CLOCKS] += clock
    note_bank_in_rank(state, PRE, bank, clock)
    one_command_a_clock(state, bank // BANKS_PER_RANK, clock)
    close_bank(ONE_SEGMENT, state, bank)


@inlined
def forget_pending(state, kind, bank):
    """The first refresh of this kind that waits for a bank, or the rank that it is the first of, is done."""
    found = 0
    for place in range(state[PENDING_SIZE]):
        here = place & (PENDING - 1)
        if found == 0 and state[PENDING_KIND + here] == kind and state[PENDING_BANK + here] == bank:
            found = 1
        elif found == 1:
            state[PENDING_KIND + here - 1] = state[PENDING_KIND + here]
            state[PENDING_BANK + here - 1] = state[PENDING_BANK + here]
    state[PENDING_SIZE] -= found


@inlined
def release_closed(state, rank):
    """What the other controller held of a rank it holds no longer where a refresh has closed the bank."""
    closed = state[HELD_BY_OTHER + rank] & ~state[OPEN_BANKS + rank]
    state[HELD_BY_OTHER + rank] &= ~closed
    state[HELD_BANKS + rank] &= ~closed


@outlined
def observe_maintenance(shape, state, kind, first, clock):
    """PREAB, REFAB, PRESB or REFSB; `first`: the first bank of the rank, or of those of the command."""
    rank = assume_nonnegative(first) // BANKS_PER_RANK
    if kind == PREAB or kind == REFAB:
        carry_in_rank(state, kind, rank, clock)
    else:
        note_same_banks_in_rank(shape, state, kind, first, clock)
    one_command_a_clock(state, rank, clock)
    if kind == PREAB or kind == PRESB:
        close_banks(shape.queues, state, rank, -1 if kind == PREAB else same_banks(shape, first), clock)
        release_closed(state, rank)
    else:
        state[REFRESH_UNTIL] = clock + (shape.refresh_cycles if kind == REFAB else 0)
        forget_pending(state, kind, first)
