"""The distances that commands leave behind them, a row of eight kinds at a time."""

from __future__ import annotations

from ndpsim._jit import inlined
from ndpsim.dram.masks.rows import filled, larger, push_row, row_at, set_row, with_lane
from ndpsim.dram.masks.state import (
    ACT,
    BANK_READY,
    BANKS_PER_GROUP,
    BANKS_PER_RANK,
    GROUP_READY,
    KINDS,
    OLDEST_ACT,
    OTHER_RANK,
    RANK_READY,
    RECENT_ACTS,
    SAME_BANK,
    SAME_GROUP,
    SAME_RANK,
    TOUCHED,
)
from ndpsim.dram.masks.words import assume_nonnegative, ranks_of

__all__ = [
    "bank_ready_at",
    "carry_in_rank",
    "note_activate",
    "note_bank",
    "note_bank_in_rank",
    "note_rank",
    "note_same_banks",
    "note_same_banks_in_rank",
    "note_window",
]


@inlined
def carry(state, ready, distance, clock):
    """Carry the distances of a command issued at `clock` to one node."""
    push_row(state, ready, distance, clock, state[ready + KINDS - 1])


@inlined
def carry_in_rank(state, kind, rank, clock):
    """A command's distances within its rank."""
    carry(state, RANK_READY + rank * KINDS, SAME_RANK + kind * KINDS, clock)


@inlined
def note_rank(shape, state, kind, rank, clock):
    """A command's distances within its rank and to the others."""
    for other in range(assume_nonnegative(ranks_of(shape))):
        distances = SAME_RANK if other == rank else OTHER_RANK
        carry(state, RANK_READY + other * KINDS, distances + kind * KINDS, clock)


@inlined
def carry_in_bank(state, kind, bank, clock):
    """A command's distances within its bank group and its bank."""
    state[TOUCHED + bank // BANKS_PER_RANK] = clock
    group = bank // BANKS_PER_GROUP
    carry(state, GROUP_READY + group * KINDS, SAME_GROUP + kind * KINDS, clock)
    carry(state, BANK_READY + bank * KINDS, SAME_BANK + kind * KINDS, clock)


@inlined
def note_bank(shape, state, kind, bank, clock):
    """All distances of a command to one bank."""
    note_rank(shape, state, kind, bank // BANKS_PER_RANK, clock)
    carry_in_bank(state, kind, bank, clock)


@inlined
def note_bank_in_rank(state, kind, bank, clock):
    """The distances of a command to one bank, within its rank."""
    carry_in_rank(state, kind, bank // BANKS_PER_RANK, clock)
    carry_in_bank(state, kind, bank, clock)


@inlined
def note_window(shape, state, rank, clock):
    """An ACT: the fourth after it must not come before the window (tFAW) has passed."""
    oldest = state[OLDEST_ACT + rank] & 3
    state[RECENT_ACTS + rank * 4 + oldest] = clock
    oldest = (oldest + 1) & 3
    state[OLDEST_ACT + rank] = oldest
    window = state[RECENT_ACTS + rank * 4 + oldest] + shape.activate_window
    ready = RANK_READY + rank * KINDS
    set_row(state, ready, larger(row_at(state, ready), with_lane(filled(0), ACT, window)))


@inlined
def note_activate(shape, state, bank, clock):
    """All distances of an ACT, and the window of four (tFAW)."""
    bank = assume_nonnegative(bank)
    note_bank(shape, state, ACT, bank, clock)
    note_window(shape, state, bank // BANKS_PER_RANK, clock)


@inlined
def carry_in_same_banks(shape, state, kind, first, clock):
    """A command's distances within one bank of every group of a rank."""
    state[TOUCHED + first // BANKS_PER_RANK] = clock
    for group in range(shape.bankgroups):
        bank = first + group * BANKS_PER_GROUP
        carry(state, BANK_READY + bank * KINDS, SAME_BANK + kind * KINDS, clock)


@inlined
def note_same_banks(shape, state, kind, first, clock):
    """All distances of a command to one bank of every group of a rank."""
    note_rank(shape, state, kind, first // BANKS_PER_RANK, clock)
    carry_in_same_banks(shape, state, kind, first, clock)


@inlined
def note_same_banks_in_rank(shape, state, kind, first, clock):
    """The distances of a command to one bank of every group of a rank, within it."""
    carry_in_rank(state, kind, first // BANKS_PER_RANK, clock)
    carry_in_same_banks(shape, state, kind, first, clock)


@inlined
def bank_ready_at(state, kind, bank):
    """The first clock at which a kind may go to a bank, as far as its group and the bank itself go."""
    kind, bank = assume_nonnegative(kind), assume_nonnegative(bank)
    of_group = state[GROUP_READY + bank // BANKS_PER_GROUP * KINDS + kind]
    return max(of_group, state[BANK_READY + bank * KINDS + kind])
