"""One step of the fast controller: it chooses a request and issues its command. Every run goes through it."""

from __future__ import annotations

from ndpsim.base.jit import inlined, overridable
from ndpsim.dram.fast.banks import active_bank
from ndpsim.dram.fast.choose import (
    active_next_ready,
    choose_active,
    choose_awaited,
    choose_pending,
    choose_queued,
    delay_active,
    drop_precharges,
    mode_changes,
    next_ready_of,
    ranks_with_lists,
)
from ndpsim.dram.fast.fields import ACT, BANKS, RD
from ndpsim.dram.fast.issue import issue_active, issue_maintenance, issue_queued
from ndpsim.dram.fast.points import (
    held_at_first,
    instead_of_active,
    instead_of_queued,
    lacks_rows,
    skips_active,
)
from ndpsim.dram.fast.shape import FROM_ACTIVE, FROM_MAINTENANCE, FROM_QUEUE, issued, nothing
from ndpsim.dram.fast.slots import slot_bank
from ndpsim.dram.fast.vectors import assume_nonnegative
from ndpsim.dram.state import FAR, WRITE_MODE

# ---- Functions that a row policy overrides if it may close the row of an active request


@overridable
def choose_first_active(rows, shape, state, credit, blocking, clock):
    """The active request that comes first, see `choose.choose_active`."""
    return choose_active(shape, state, credit, blocking, clock)


@overridable
def issue_first_active(rows, channel, active_list, place, clock):
    """Issue the next command of an active request."""
    issue_active(channel, active_list, place, clock)


# ---- The step


@inlined
def step(channel, blocking, credit, other_credit, clock):
    """One command at most: of the active requests, else of the first maintenance, else of reads or writes.

    Args:
        blocking: see `blocking`; credit: the clock from which the sink has a slot for a read; other_credit:
            the same of the sink of another controller of these banks.

    Returns:
        See `issued.Issued`.
    """
    policy, shape, state = channel.policy, channel.shape, channel.state
    rows = shape.rows
    active_list, place, blocked, later = -1, 0, 0, FAR
    if not skips_active(shape.step, state, lacks_rows(rows, shape, state)):
        if state.pending_size > 0:
            active_list, place = choose_awaited(shape, state, credit, blocking, clock)
        if active_list < 0:
            active_list, place, blocked, later = choose_first_active(
                rows, shape, state, credit, blocking, clock
            )
    if active_list >= 0:
        bank = assume_nonnegative(active_bank(state, active_list, place))
        row, request = state.open_row[bank], state.active_request[bank]
        if not instead_of_active(shape.step, channel, active_list, place, bank, clock):
            issue_first_active(rows, channel, active_list, place, clock)
        blocked_ranks = ranks_with_lists(shape, blocked)
        command = ACT if row < 0 else RD + (active_list & 1)
        return issued(FROM_ACTIVE, command, bank, row, request, FAR, blocked_ranks)
    # A blocked request does not give the clock at which another one of its list is ready.
    delay_active(state, blocked, later)
    blocked_ranks = ranks_with_lists(shape, blocked)
    maintained_from, stalled_ranks = FAR, 0
    if state.pending_size > 0:
        if policy.drops_precharges:
            drop_precharges(shape, state)
        place, command, maintained_from, bars, taken, stalled_ranks = choose_pending(
            shape, state, blocking, credit, other_credit, clock
        )
        blocked_ranks |= taken
        if command >= 0:
            bank = assume_nonnegative(state.pending_bank[place] & BANKS - 1)
            delay_active(state, blocked, clock)
            issue_maintenance(
                shape, state, channel.source, channel.sink, channel.commands, place, command, clock
            )
            return issued(FROM_MAINTENANCE, command, bank, -1, -1, FAR, blocked_ranks)
        if bars:
            next_ready = min(maintained_from, active_next_ready(shape, state, credit))
            delay_active(state, blocked, clock)
            if lacks_rows(rows, shape, state):
                next_ready = clock + 1
            return nothing(next_ready, blocked_ranks)
    if mode_changes(policy, state):
        state.value[WRITE_MODE] ^= 1
    queue = assume_nonnegative(state.value[WRITE_MODE] & 1)
    held = held_at_first(shape.queues, state, queue, stalled_ranks) if state.pending_size > 0 else 0
    slot, command, waiting, ranks = choose_queued(
        channel, queue, credit, blocking, held, stalled_ranks, clock
    )
    blocked_ranks |= ranks
    if slot >= 0:
        delay_active(state, blocked, clock)
        slot = assume_nonnegative(slot)
        bank = assume_nonnegative(slot_bank(state, queue, slot))
        row, request = state.slot_row[queue, slot], state.slot_request[queue, slot]
        if not instead_of_queued(shape.step, channel, queue, slot, command, bank, clock):
            issue_queued(channel, queue, slot, command, clock)
        return issued(FROM_QUEUE, command, bank, row, request, FAR, blocked_ranks)
    waiting |= held
    next_ready = clock + 1
    if not lacks_rows(rows, shape, state):
        next_ready = min(maintained_from, next_ready_of(shape, state, credit, waiting))
    delay_active(state, blocked, clock)
    return nothing(next_ready, blocked_ranks)


@overridable
def step_alone(rules, channel, ready, credit, clock):
    """`step` for a controller that has its ranks to itself; ready: the clocks, by class, before which nothing
    can issue.
    """
    return step(channel, None, credit, 0, clock)


@inlined
def issue_chosen(channel, active_list, place, queue, slot, clock):
    """Issue the column command of a request that was chosen in an earlier step, -1: of no active list."""
    if active_list >= 0:
        issue_active(channel, active_list, place, clock)
    else:
        issue_queued(channel, queue, slot, RD + queue, clock)
