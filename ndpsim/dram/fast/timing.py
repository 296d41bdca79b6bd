"""The distances that commands leave behind them, the times of eight command classes at a time."""

from __future__ import annotations

from ndpsim.base.jit import inlined
from ndpsim.dram.fast.fields import (
    ACT,
    BANKS_PER_GROUP,
    BANKS_PER_RANK,
    BANKS_PER_STACK,
    CLASSES,
    GROUPS_PER_STACK,
    REFSB,
    STACKS_PER_RANK,
)
from ndpsim.dram.fast.shape import NOT_IN_WINDOW
from ndpsim.dram.fast.vectors import assume_nonnegative, raise_times


@inlined
def propagate_in_rank(state, command, rank, clock):
    """A command's distances within its rank."""
    raise_times(state.rank_ready, rank, state.of_ranks, command, clock)


@inlined
def propagate_to_ranks(shape, state, command, rank, clock):
    """A command's distances within its rank and to the others."""
    for other in range(assume_nonnegative(shape.ranks)):
        previous = assume_nonnegative(command if other == rank else CLASSES + command)
        raise_times(state.rank_ready, other, state.of_ranks, previous, clock)


@inlined
def propagate_in_bank(state, command, bank, clock):
    """A command's distances within its bank group and its bank."""
    bank, command = assume_nonnegative(bank), assume_nonnegative(command)
    state.last_command[bank // BANKS_PER_RANK] = clock
    raise_times(state.group_ready, bank // BANKS_PER_GROUP, state.same_group, command, clock)
    raise_times(state.bank_ready, bank, state.same_bank, command, clock)


@inlined
def has_stacks(state):
    """Whether a rank has stacks, as the type of the record says."""
    return state.stack_ready.shape[0] > 1


@inlined
def propagate_to_stacks(shape, state, command, bank, clock):
    """The distances of a command to the rest of the bank's group, its stack, and the others of its rank."""
    if shape.other_half:
        raise_times(state.group_ready, bank // BANKS_PER_GROUP ^ 1, state.same_group, command, clock)
    rank, own = bank // BANKS_PER_RANK, bank // BANKS_PER_STACK
    for number in range(shape.bankgroups // GROUPS_PER_STACK):
        stack = assume_nonnegative(rank * STACKS_PER_RANK + number)
        previous = assume_nonnegative(command if stack == own else CLASSES + command)
        raise_times(state.stack_ready, stack, state.of_stacks, previous, clock)


@inlined
def propagate_bank(shape, state, command, bank, clock):
    """All distances of a command to one bank."""
    propagate_to_ranks(shape, state, command, bank // BANKS_PER_RANK, clock)
    propagate_in_bank(state, command, bank, clock)
    if has_stacks(state):
        propagate_to_stacks(shape, state, command, bank, clock)


@inlined
def propagate_bank_in_rank(state, command, bank, clock):
    """The distances of a command to one bank, within its rank."""
    propagate_in_rank(state, command, bank // BANKS_PER_RANK, clock)
    propagate_in_bank(state, command, bank, clock)


@inlined
def update_window(shape, state, rank, clock):
    """A command of the window, as if an ACT: the fourth after it must not come before the window (tFAW)."""
    rank = assume_nonnegative(rank)
    oldest = assume_nonnegative(state.oldest_act[rank] & 3)
    state.recent_acts[rank, oldest] = clock
    oldest = assume_nonnegative((oldest + 1) & 3)
    state.oldest_act[rank] = oldest
    raise_times(state.rank_ready, rank, state.of_window, 0, state.recent_acts[rank, oldest])


@inlined
def propagate_activate(shape, state, bank, clock):
    """All distances of an ACT, and the window of four (tFAW)."""
    bank = assume_nonnegative(bank)
    propagate_bank(shape, state, ACT, bank, clock)
    update_window(shape, state, bank // BANKS_PER_RANK, clock)


@inlined
def propagate_in_same_banks(shape, state, command, first, clock):
    """A command's distances within one bank of every group of a rank."""
    first, command = assume_nonnegative(first), assume_nonnegative(command)
    state.last_command[first // BANKS_PER_RANK] = clock
    if command == REFSB and shape.refresh_in_window > NOT_IN_WINDOW:
        update_window(shape, state, first // BANKS_PER_RANK, clock + shape.refresh_in_window)
    for group in range(shape.groups_at_once):
        bank = assume_nonnegative(first + group * BANKS_PER_GROUP)
        raise_times(state.bank_ready, bank, state.same_bank, command, clock)
    if command == REFSB and shape.pair > 0:
        raise_times(state.bank_ready, first + shape.pair, state.same_bank, command, clock)
    elif shape.groups_at_once == 1:
        group = first // BANKS_PER_GROUP
        raise_times(state.group_ready, group, state.same_group, command, clock)
        if shape.other_half:
            raise_times(state.group_ready, group ^ 1, state.same_group, command, clock)


@inlined
def propagate_same_banks(shape, state, command, first, clock):
    """All distances of a command to one bank of every group of a rank."""
    propagate_to_ranks(shape, state, command, first // BANKS_PER_RANK, clock)
    propagate_in_same_banks(shape, state, command, first, clock)


@inlined
def propagate_same_banks_in_rank(shape, state, command, first, clock):
    """The distances of a command to one bank of every group of a rank, within it."""
    propagate_in_rank(state, command, first // BANKS_PER_RANK, clock)
    propagate_in_same_banks(shape, state, command, first, clock)


@inlined
def bank_ready_at(state, command, bank):
    """The first clock at which a command may go to a bank, as far as the bank, its group and stack go."""
    command, bank = assume_nonnegative(command), assume_nonnegative(bank)
    at = max(state.group_ready[bank // BANKS_PER_GROUP, command], state.bank_ready[bank, command])
    return max(at, state.stack_ready[bank // BANKS_PER_STACK, command]) if has_stacks(state) else at
