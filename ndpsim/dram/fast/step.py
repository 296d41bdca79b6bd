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
from ndpsim.dram.fast.chunk_points import held_at_first
from ndpsim.dram.fast.controller_points import (
    instead_of_active,
    instead_of_queued,
    skips_active,
)
from ndpsim.dram.fast.fields import ACT, BANKS, RD
from ndpsim.dram.fast.issue import issue_active, issue_maintenance, issue_queued
from ndpsim.dram.fast.row_policy_points import lacks_rows
from ndpsim.dram.fast.slots import slot_bank
from ndpsim.dram.fast.words import assume_nonnegative
from ndpsim.dram.state import FAR, WRITE_MODE

# The source of a command.
NOWHERE, FROM_ACTIVE, FROM_MAINTENANCE, FROM_QUEUE = range(4)

_NONE = -1


# ---- Functions that a row policy overrides if it may close the row of an active request


@overridable
def choose_first_active(rows, shape, state, credit, blocking, clock):
    """The active request that comes first, see `choose.choose_active`."""
    return choose_active(shape, state, credit, blocking, clock)


@overridable
def issue_first_active(rows, shape, state, latencies, source, sink, commands, active_list, place, clock):
    """Issue the next command of an active request."""
    issue_active(shape, state, latencies, source, sink, commands, active_list, place, clock)


# ---- The step


@inlined
def step(policy, shape, state, latencies, source, sink, commands, blocking, credit, other_credit, clock):
    """One command at most: of the active requests, else of the first maintenance, else of reads or writes.

    Args:
        blocking: see `blocking`; credit: the clock from which the sink has a slot for a read; other_credit:
            the same of the sink of another controller of these banks.

    Returns:
        Where the command comes from; its class, its bank or the first of them; the row and the request of
        a command for a request; where there is no command, the clock before which there is none; the mask of
        the ranks on which one is blocked.
    """
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
        if not instead_of_active(shape.step, shape, state, source, commands, active_list, place, bank, clock):
            issue_first_active(
                rows, shape, state, latencies, source, sink, commands, active_list, place, clock
            )
        blocked_ranks = ranks_with_lists(shape, blocked)
        command = ACT if row < 0 else RD + (active_list & 1)
        return FROM_ACTIVE, command, bank, row, request, FAR, blocked_ranks
    # A blocked request does not give the clock at which another one of its list is ready.
    delay_active(state, blocked, later)
    blocked_ranks = ranks_with_lists(shape, blocked)
    maintained_from, stalled_ranks = FAR, 0
    if state.pending_size > 0 and policy.drops_precharges:
        drop_precharges(shape, state)
    if state.pending_size > 0:
        place, command, maintained_from, bars, taken, stalled_ranks = choose_pending(
            shape, state, blocking, credit, other_credit, clock
        )
        blocked_ranks |= taken
        if command >= 0:
            bank = assume_nonnegative(state.pending_bank[place] & BANKS - 1)
            delay_active(state, blocked, clock)
            issue_maintenance(shape, state, source, sink, commands, place, command, clock)
            return FROM_MAINTENANCE, command, bank, _NONE, _NONE, FAR, blocked_ranks
        if bars:
            next_ready = min(maintained_from, active_next_ready(shape, state, credit))
            delay_active(state, blocked, clock)
            if lacks_rows(rows, shape, state):
                next_ready = clock + 1
            return NOWHERE, _NONE, _NONE, _NONE, _NONE, next_ready, blocked_ranks
    if mode_changes(policy, state):
        state.value[WRITE_MODE] ^= 1
    queue = assume_nonnegative(state.value[WRITE_MODE] & 1)
    held = held_at_first(shape.queues, state, queue, stalled_ranks) if state.pending_size > 0 else 0
    slot, command, waiting, ranks = choose_queued(
        policy, shape, state, queue, credit, blocking, held, stalled_ranks, clock
    )
    blocked_ranks |= ranks
    if slot >= 0:
        delay_active(state, blocked, clock)
        slot = assume_nonnegative(slot)
        bank = assume_nonnegative(slot_bank(state, queue, slot))
        row, request = state.slot_row[queue, slot], state.slot_request[queue, slot]
        if not instead_of_queued(
            shape.step, shape, state, source, commands, queue, slot, command, bank, clock
        ):
            issue_queued(policy, shape, state, latencies, source, sink, commands, queue, slot, command, clock)
        return FROM_QUEUE, command, bank, row, request, FAR, blocked_ranks
    waiting |= held
    next_ready = clock + 1
    if not lacks_rows(rows, shape, state):
        next_ready = min(maintained_from, next_ready_of(shape, state, credit, waiting))
    delay_active(state, blocked, clock)
    return NOWHERE, _NONE, _NONE, _NONE, _NONE, next_ready, blocked_ranks


@overridable
def step_alone(rules, policy, shape, state, latencies, source, sink, commands, credit, clock):
    """`step` for a controller that has its ranks to itself."""
    return step(policy, shape, state, latencies, source, sink, commands, None, credit, 0, clock)


@inlined
def issue_chosen(
    policy, shape, state, latencies, source, sink, commands, active_list, place, queue, slot, clock
):
    """Issue the column command of a request that was chosen in an earlier step, -1: of no active list."""
    if active_list >= 0:
        issue_active(shape, state, latencies, source, sink, commands, active_list, place, clock)
    else:
        command = RD + queue
        issue_queued(policy, shape, state, latencies, source, sink, commands, queue, slot, command, clock)
