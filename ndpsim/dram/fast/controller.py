"""Runs a channel with one fast controller: one step at each clock at which anything can change."""

from __future__ import annotations

from ndpsim.base.jit import by_type, inlined, kernel, outlined
from ndpsim.dram.controller import DONE, PAUSED, RECORD_FULL, STUCK
from ndpsim.dram.fast.banks import is_barred, push_refresh, requests_for_banks, same_banks
from ndpsim.dram.fast.choose import class_of, mode_changes, ready_after, ready_with
from ndpsim.dram.fast.fast_forward import first_lookup
from ndpsim.dram.fast.fields import BANKS_PER_RANK, READS, REFRESHES_PENDING, REFSB, WRITES
from ndpsim.dram.fast.issue import is_full
from ndpsim.dram.fast.one_chunk import ONE_CHUNK
from ndpsim.dram.fast.points import close_rows, hits_from, is_among_writes, next_maintenance, sum_waits
from ndpsim.dram.fast.shape import NOWHERE
from ndpsim.dram.fast.slots import bank_of, enqueue, filter_place
from ndpsim.dram.fast.step import step_alone
from ndpsim.dram.fast.transition_table import commit
from ndpsim.dram.fast.vectors import assume_nonnegative, filled, least
from ndpsim.dram.maintenance import next_refresh, pause_refreshes, swap_banks, turn_after, turn_of
from ndpsim.dram.queues import absorb
from ndpsim.dram.sink import credit_clock
from ndpsim.dram.state import (
    CLOCK,
    COUNTED_UNTIL,
    DATA_END,
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
    Channel,
)


@inlined
def is_queued_write(queues, state, source, address):
    """Whether a write to `address` waits in the write queue."""
    if state.queued[WRITES] == 0 or state.writes_at[filter_place(address)] == 0:
        return False
    return is_among_writes(queues, state, source, address)


@inlined
def can_take(policy, queues, state, source, clock):
    """Whether the next request will be taken at `clock`, if nothing happens before."""
    if state.value[TAKEN] >= source.admitted[0]:
        return False
    request = assume_nonnegative(state.value[PLACE])
    if source.cycle.shape[0] > 0 and source.cycle[request] >= clock:
        return False
    if source.place[request] & 1:
        if state.queued[WRITES] < policy.write_slots:
            return True
    elif state.queued[READS] < policy.read_slots:
        return True
    return state.queued[WRITES] > 0 and is_queued_write(queues, state, source, source.address[request])


@inlined
def would_accept(policy, state, source, clock):
    """`can_take` for queues of one chunk."""
    return can_take(policy, ONE_CHUNK, state, source, clock)


@inlined
def queue_request(shape, state, source, request, clock):
    """Queue a request that is taken; returns when it can issue, at the earliest, FAR in the other mode."""
    place = source.place[request]
    queue, bank = place & 1, bank_of(shape, place)
    ready_at = enqueue(shape.queues, state, source, queue, bank, place >> ROW_SHIFT, request, clock - 1)
    return ready_at if queue == state.value[WRITE_MODE] & 1 else FAR


@inlined
def take(shape, state, latencies, source, clock):
    """Take the next request: it is absorbed or queued; returns when it can issue, at the earliest."""
    request, at = assume_nonnegative(state.value[PLACE]), FAR
    if state.queued[WRITES] > 0 and is_queued_write(shape.queues, state, source, source.address[request]):
        absorb(state.value, latencies, source.place[request] & 1)
    else:
        at = queue_request(shape, state, source, request, clock)
    state.value[TAKEN] += 1
    state.value[PLACE] = 0 if request + 1 == source.place.shape[0] else request + 1
    return at


@outlined
def choose_bank(shape, state, turn):
    """Give a turn that bank, of those still due in the round, for which the fewest requests wait."""
    value = state.value
    only, best, fewest, other = value[turn + TURN_RANK], turn, FAR, turn
    while other >= 0 and fewest > 0:
        waiting = 0
        for rank in range(shape.ranks):
            if only < 0 or rank == only:
                first = assume_nonnegative(rank * BANKS_PER_RANK + value[other + TURN_BANK])
                waiting += requests_for_banks(shape, state, rank, same_banks(shape, first))
        if waiting < fewest:
            best, fewest = other, waiting
        other = turn_after(value, turn, assume_nonnegative(other))
    swap_banks(value, turn, assume_nonnegative(best))


@outlined
def refresh(shape, policy, state, clock):
    """Ask for the refreshes that fall due; False when they can never catch up."""
    few = policy.row_cap == 0 and policy.rfm.threshold == 0
    room = REFRESHES_PENDING if few else state.pending_bank.shape[0]
    if state.pending_size + shape.ranks > room:
        return False
    value = state.value
    turn = assume_nonnegative(turn_of(value, value[REFRESHES]))
    if policy.any_order:
        choose_bank(shape, state, turn)
    command, only, bank = value[turn + TURN_COMMAND], value[turn + TURN_RANK], max(value[turn + TURN_BANK], 0)
    if (policy.own_bank == 0 or command != REFSB) and not is_barred(state):
        value[REFRESH_FROM] = clock
    for rank in range(shape.ranks):
        if only < 0 or rank == only:
            push_refresh(policy.own_bank, shape, state, command, rank * BANKS_PER_RANK + bank)
    state.value[REFRESHES] += 1
    pause_refreshes(state.value, turn)
    return True


@inlined
def count_waits(queues, state, sign):
    """Add to the queues' summed lengths, or take from them, the requests that are still queued."""
    state.value[READ_QUEUE] += sign * sum_waits(queues, state, READS, state.value[COUNTED_UNTIL])
    state.value[WRITE_QUEUE] += sign * sum_waits(queues, state, WRITES, state.value[COUNTED_UNTIL])


@inlined
def offered_from(state, source, clock):
    """The step at which the next request of a timed source is first offered, FAR when that has passed."""
    if source.cycle.shape[0] == 0 or state.value[TAKEN] >= source.admitted[0]:
        return FAR
    cycle = source.cycle[state.value[PLACE]]
    return cycle + 1 if cycle >= clock else FAR


@inlined
def step_of(channel, ready, clock):
    """A step of a controller that has its ranks to itself, and after it: the clocks, by class, before which
    no other can issue, and the first of them.

    ready: these clocks before the step.
    """
    policy, shape, state, sink = channel.policy, channel.shape, channel.state, channel.sink
    issued = step_alone(shape.step, channel, ready, credit_clock(sink), clock)
    ready = ready_after(policy, shape, state, credit_clock(sink), clock)
    if issued.origin != NOWHERE:
        return issued, ready, least(ready)
    return issued, ready, clock + 1 if mode_changes(policy, state) else issued.next_ready


@inlined
def due_since(shape, state, credit, is_first, stepped, clock):
    """The first clock at which a refresh might have fallen due that did at `clock`, for all to go as it did.

    There was no command at `clock`, and none was possible since the step at `stepped` or since the last read
    in `hits`. Therefore an earlier refresh would not issue at once either. It would not change the cause of
    idle time while data of that read is on the bus. credit: the clock from which the sink has room, see
    `choose.banks_that_wait`; is_first: whether no maintenance waited before.
    """
    read = state.value[DATA_END] - shape.read_latency
    if not is_first or clock > read + shape.burst:
        return clock
    since = max(stepped, read) + 1
    return max(since, credit) if credit <= clock else since


@by_type
def fast_forward(skips, channel, clock, until_served, until_taken):
    """Fast-forward at the step that takes the first request of a span; returns the next step's clock."""


@by_type
def only_hits(skips, shape, state, source, clock):
    """Whether the next steps may be those of `run_hits`."""


@by_type
def run_hits(skips, channel, until_served, until_taken, clock, accepts):
    """Steps until something other than a hit is offered or due: (the step to do next, whether it
    takes a request).
    """


@inlined
def next_step(policy, shape, state, source, next_ready, clock):
    """The step after one at `clock`: (its clock, whether it takes a request).

    next_ready: the clock before which nothing that waits can issue, and the mode does not change.
    """
    clock += 1
    accepts = can_take(policy, shape.queues, state, source, clock)
    if not accepts:
        wake = min(
            next_ready, min(next_maintenance(shape.rows, state), offered_from(state, source, clock - 1))
        )
        clock = max(clock, wake)
        accepts = source.cycle.shape[0] > 0 and can_take(policy, shape.queues, state, source, clock)
    return clock, accepts


@kernel
def run(of_one, skips, until_served, until_taken):
    """Run until `until_served` requests are served, or into the step that accepts request `until_taken`.

    Returns as `dram.controller.run`, and can be continued in the same way.
    of_one: the `Channel`, whose state is an array of one record. skips: `fast_forward.FastForward`, or
    `every_step.EveryStep`.
    """
    policy, shape, state, latencies = of_one.policy, of_one.shape, of_one.state[0], of_one.latencies
    source, sink, commands = of_one.source, of_one.sink, of_one.commands
    channel = Channel(policy, shape, state, latencies, source, sink, commands)
    first_lookup(state, skips.table)
    state.value[NEXT_REFRESH] = next_refresh(state.value)
    count_waits(shape.queues, state, -1)
    clock, next_ready, hits, outcome = state.value[CLOCK], 0, False, DONE
    ready = filled(0)
    stepped = clock
    accepts = can_take(policy, shape.queues, state, source, clock)
    while state.value[SERVED] < until_served:
        if clock >= state.value[PAUSE]:
            outcome = STUCK if state.value[PAUSE] >= FAR else PAUSED
            break
        if is_full(commands):
            outcome = RECORD_FULL
            break
        if accepts and state.value[TAKEN] >= state.next_lookup:
            clock = fast_forward(skips, channel, clock, until_served, until_taken)
            hits, next_ready = only_hits(skips, shape, state, source, clock), 0
            ready = ready_after(policy, shape, state, credit_clock(sink), clock - 1)
        if hits:
            until = min(until_taken, state.next_lookup + 1)
            clock, accepts = run_hits(skips, channel, until_served, until, clock, accepts)
            hits, next_ready = False, 0
            ready = ready_after(policy, shape, state, credit_clock(sink), clock - 1)
            continue
        if accepts:
            command = class_of(shape, state, source.place[assume_nonnegative(state.value[PLACE])])
            ready_at = take(shape, state, latencies, source, clock)
            next_ready, ready = min(next_ready, ready_at), ready_with(shape, ready, command, ready_at)
            if state.value[TAKEN] >= until_taken:
                state.value[COUNTED_UNTIL] = clock - 1
                break
        state.value[COUNTED_UNTIL] = clock
        is_due, is_first = clock >= state.value[NEXT_REFRESH], state.pending_size == 0
        if is_due:
            next_ready, ready = clock, filled(clock)
            if not refresh(shape, policy, state, clock):
                outcome = STUCK
                break
        if close_rows(shape.rows, state, clock):
            next_ready, ready = clock, filled(clock)
        if clock >= next_ready or mode_changes(policy, state):
            issued, ready, next_ready = step_of(channel, ready, clock)
            if is_due:
                idle = issued.origin == NOWHERE and hits_from(shape.step, clock) == clock
                credit = credit_clock(sink)
                state.due_since = due_since(shape, state, credit, is_first, stepped, clock) if idle else clock
            stepped = clock
            hits = only_hits(skips, shape, state, source, clock)
        clock, accepts = next_step(policy, shape, state, source, next_ready, clock)
    commit(state, latencies, skips.table)
    count_waits(shape.queues, state, 1)
    state.value[CLOCK] = state.value[COUNTED_UNTIL] + 1
    return outcome
