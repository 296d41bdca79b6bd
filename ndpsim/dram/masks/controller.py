"""The fast controller, one step a clock at which anything can change; see `dram.controller`."""

from __future__ import annotations

from ndpsim._jit import by_type, inlined, kernel, outlined
from ndpsim.dram.controller import DONE, PAUSED, RECORD_FULL, STUCK
from ndpsim.dram.maintenance import next_refresh, turn_of
from ndpsim.dram.masks.choose import (
    active_quiet_until,
    choose_queued,
    mode_changes,
    quiet_until,
)
from ndpsim.dram.masks.fast_forward import first_lookup
from ndpsim.dram.masks.issue import is_full, issue_queued
from ndpsim.dram.masks.row_points import (
    close_rows,
    issue_first_active,
    issue_first_maintenance,
    lacks_rows,
    next_maintenance,
)
from ndpsim.dram.masks.segment_points import is_among_writes, sum_waits
from ndpsim.dram.masks.slots import bank_of, enqueue, filter_place, push_maintenance
from ndpsim.dram.masks.state import (
    BANKS_PER_RANK,
    NEXT_LOOKUP,
    ONE_SEGMENT,
    PENDING,
    PENDING_SIZE,
    READS,
    REFRESHES_PENDING,
    SIZE,
    WRITES,
    WRITES_AT,
)
from ndpsim.dram.masks.transitions import commit
from ndpsim.dram.masks.words import assume_nonnegative, ranks_of
from ndpsim.dram.queues import absorb
from ndpsim.dram.sink import credit_clock
from ndpsim.dram.state import (
    CLOCK,
    COUNTED_UNTIL,
    FAR,
    NEXT_REFRESH,
    PAUSE,
    PLACE,
    READ_QUEUE,
    REFRESH_FROM,
    REFRESHES,
    ROW_SHIFT,
    SERVED,
    TAKEN,
    TURN_BANK,
    TURN_COMMAND,
    TURN_RANK,
    WRITE_MODE,
    WRITE_QUEUE,
)

__all__ = [
    "accept",
    "can_take",
    "count_waits",
    "offered_from",
    "queue_request",
    "refresh",
    "run",
    "take",
    "would_accept",
]


@inlined
def is_queued_write(queues, state, source, address):
    """Whether a write to `address` waits in the write queue."""
    if state[SIZE + WRITES] == 0 or state[WRITES_AT + filter_place(address)] == 0:
        return False
    return is_among_writes(queues, state, source, address)


@inlined
def can_take(policy, queues, state, source, clock):
    """Whether the next request will be taken at `clock`, if nothing happens before."""
    if state[TAKEN] >= source.admitted[0]:
        return False
    request = assume_nonnegative(state[PLACE])
    if source.cycle.shape[0] > 0 and source.cycle[request] >= clock:
        return False
    if source.place[request] & 1:
        if state[SIZE + WRITES] < policy.write_slots:
            return True
    elif state[SIZE + READS] < policy.read_slots:
        return True
    return state[SIZE + WRITES] > 0 and is_queued_write(queues, state, source, source.address[request])


@inlined
def would_accept(policy, state, source, clock):
    """As `can_take`, of queues of one segment."""
    return can_take(policy, ONE_SEGMENT, state, source, clock)


@inlined
def queue_request(queues, state, source, request, clock):
    """Queue a request that is taken; returns when it can issue, at the earliest, FAR in the other mode."""
    place = source.place[request]
    queue, bank = place & 1, bank_of(place)
    ready_at = enqueue(queues, state, source, queue, bank, place >> ROW_SHIFT, request, clock - 1)
    return ready_at if queue == state[WRITE_MODE] & 1 else FAR


@inlined
def take(queues, state, latencies, source, clock):
    """Take the next request: it is absorbed or queued; returns when it can issue, at the earliest."""
    request, at = assume_nonnegative(state[PLACE]), FAR
    if state[SIZE + WRITES] > 0 and is_queued_write(queues, state, source, source.address[request]):
        absorb(state, latencies, source.place[request] & 1)
    else:
        at = queue_request(queues, state, source, request, clock)
    state[TAKEN] += 1
    state[PLACE] = 0 if request + 1 == source.place.shape[0] else request + 1
    return at


@inlined
def accept(state, latencies, source, clock):
    """As `take`, of queues of one segment."""
    return take(ONE_SEGMENT, state, latencies, source, clock)


@outlined
def refresh(shape, policy, state, clock):
    """Ask for the refreshes that fall due; False when they can never catch up."""
    room = REFRESHES_PENDING if policy.row_cap == 0 else PENDING
    if state[PENDING_SIZE] + ranks_of(shape) > room:
        return False
    if state[PENDING_SIZE] == 0:
        state[REFRESH_FROM] = clock
    turn = assume_nonnegative(turn_of(state, state[REFRESHES]))
    kind, only, bank = state[turn + TURN_COMMAND], state[turn + TURN_RANK], max(state[turn + TURN_BANK], 0)
    for rank in range(ranks_of(shape)):
        if only < 0 or rank == only:
            push_maintenance(state, kind, rank * BANKS_PER_RANK + bank)
    state[REFRESHES] += 1
    state[NEXT_REFRESH] = next_refresh(state)
    return True


@inlined
def count_waits(queues, state, sign):
    """Add to the queues' summed lengths, or take from them, the requests that are still queued."""
    state[READ_QUEUE] += sign * sum_waits(queues, state, READS, state[COUNTED_UNTIL])
    state[WRITE_QUEUE] += sign * sum_waits(queues, state, WRITES, state[COUNTED_UNTIL])


@inlined
def offered_from(state, source, clock):
    """The step at which the next request of a timed source is first offered, FAR when that has passed."""
    if source.cycle.shape[0] == 0 or state[TAKEN] >= source.admitted[0]:
        return FAR
    cycle = source.cycle[state[PLACE]]
    return cycle + 1 if cycle >= clock else FAR


@inlined
def choose_and_issue(policy, shape, state, latencies, source, sink, commands, clock):
    """One command at most: of the active requests, else of the first maintenance, else of reads or writes.

    Returns the clock before which no other can issue.
    """
    rows, credit = shape.rows, credit_clock(sink)
    if issue_first_active(rows, shape, state, latencies, source, sink, commands, credit, clock):
        pass
    elif state[PENDING_SIZE] > 0:
        at = issue_first_maintenance(rows, shape, state, source, sink, commands, credit, clock)
        if at > clock:
            return min(at, active_quiet_until(shape, state, credit))
    else:
        if mode_changes(policy, state):
            state[WRITE_MODE] ^= 1
        queue = state[WRITE_MODE] & 1
        slot, kind = choose_queued(policy, shape, state, queue, credit, clock)
        if slot >= 0:
            issue_queued(policy, shape, state, latencies, source, sink, commands, queue, slot, kind, clock)
    quiet = quiet_until(shape, state, state[WRITE_MODE] & 1, credit_clock(sink))
    return clock + 1 if state[PENDING_SIZE] > 0 or lacks_rows(rows, shape, state) else quiet


@by_type
def fast_forward(skips, shape, state, source, sink, clock, until_served, until_taken):
    """At the step that takes the first request of a span: go on as before; returns the next step's clock."""


@by_type
def only_hits(skips, shape, state, source):
    """Whether the steps to come may be those of `run_hits`."""


@by_type
def run_hits(
    skips, policy, shape, state, latencies, source, sink, commands, until_served, until_taken, clock, accepts
):
    """Steps until something else than a hit is offered or falls due: (the step to do next, whether it
    takes a request).
    """


@inlined
def next_step(policy, shape, state, source, quiet, clock):
    """The step after one at `clock`: (its clock, whether it takes a request).

    quiet: the clock before which nothing that waits can issue.
    """
    clock += 1
    accepts = can_take(policy, shape.queues, state, source, clock)
    if not (accepts or mode_changes(policy, state)):
        wake = min(quiet, min(next_maintenance(shape.rows, state), offered_from(state, source, clock - 1)))
        clock = max(clock, wake)
        accepts = source.cycle.shape[0] > 0 and can_take(policy, shape.queues, state, source, clock)
    return clock, accepts


@kernel
def run(policy, shape, state, latencies, source, sink, commands, skips, until_served, until_taken):
    """Run until `until_served` requests are served, or into the step that accepts request `until_taken`.

    Returns and can be taken up again as `dram.controller.run`.
    skips: `fast_forward.FastForward`, or `every_step.EveryStep`.
    """
    first_lookup(state, skips.table)
    state[NEXT_REFRESH] = next_refresh(state)
    count_waits(shape.queues, state, -1)
    clock, quiet, hits, outcome = state[CLOCK], 0, False, DONE
    accepts = can_take(policy, shape.queues, state, source, clock)
    while state[SERVED] < until_served:
        if clock >= state[PAUSE]:
            outcome = STUCK if state[PAUSE] >= FAR else PAUSED
            break
        if is_full(commands):
            outcome = RECORD_FULL
            break
        if accepts and state[TAKEN] >= state[NEXT_LOOKUP]:
            clock = fast_forward(skips, shape, state, source, sink, clock, until_served, until_taken)
            hits, quiet = only_hits(skips, shape, state, source), 0
        if hits:
            clock, accepts = run_hits(
                skips,
                policy,
                shape,
                state,
                latencies,
                source,
                sink,
                commands,
                until_served,
                min(until_taken, state[NEXT_LOOKUP] + 1),
                clock,
                accepts,
            )
            hits, quiet = False, 0
            continue
        if accepts:
            quiet = min(quiet, take(shape.queues, state, latencies, source, clock))
            if state[TAKEN] >= until_taken:
                state[COUNTED_UNTIL] = clock - 1
                break
        state[COUNTED_UNTIL] = clock
        if clock >= state[NEXT_REFRESH]:
            quiet = clock
            if not refresh(shape, policy, state, clock):
                outcome = STUCK
                break
        if close_rows(shape.rows, state, clock):
            quiet = clock
        if clock >= quiet or mode_changes(policy, state):
            quiet = choose_and_issue(policy, shape, state, latencies, source, sink, commands, clock)
            hits = only_hits(skips, shape, state, source)
        clock, accepts = next_step(policy, shape, state, source, quiet, clock)
    commit(state, latencies, skips.table)
    count_waits(shape.queues, state, 1)
    state[CLOCK] = state[COUNTED_UNTIL] + 1
    return outcome
