"""The fast controller's loop for long queues and for rows that a policy closes: every step is chosen anew.

It has no steps of hits alone and no fast-forward; queues may have several segments.
"""

from __future__ import annotations

from ndpsim._jit import inlined, kernel, outlined
from ndpsim.dram.controller import DONE, PAUSED, RECORD_FULL, STUCK
from ndpsim.dram.maintenance import next_refresh
from ndpsim.dram.masks.banks import active_bank
from ndpsim.dram.masks.choose import (
    active_quiet_until,
    banks_that_wait,
    choose_active,
    choose_maintenance,
    mode_changes,
    rank_ready_at,
    room_at,
)
from ndpsim.dram.masks.controller import can_take, count_waits, offered_from, refresh, take
from ndpsim.dram.masks.issue import (
    activate_again,
    is_full,
    issue_active,
    issue_close,
    issue_maintenance,
    issue_queued,
)
from ndpsim.dram.masks.row_points import also_held, close_rows, lacks_rows, next_close
from ndpsim.dram.masks.rows import (
    bits,
    both,
    either,
    filled,
    larger,
    least,
    merged,
    row_at,
    set_lane,
    smaller,
    up_to,
    where_none,
)
from ndpsim.dram.masks.segment_points import segment_at, segments_in_use, segments_with
from ndpsim.dram.masks.slots import (
    add_not_ready,
    next_kind,
    slot_bank,
    wait_place,
)
from ndpsim.dram.masks.state import (
    ACT,
    ACTIVE_ARRIVED,
    ACTIVE_BOUND,
    ACTIVE_SIZE,
    BANKS,
    BANKS_PER_RANK,
    BOUND,
    KINDS,
    MAYBE_READY,
    NOT_READY,
    NOT_READY_HEAD,
    NOT_READY_SIZE,
    OF_BANK,
    OPEN_ROW,
    PENDING_BANK,
    PENDING_KIND,
    PENDING_SIZE,
    PRE,
    RANK_READY,
    RD,
    SEGMENT,
    SLOT_ROW,
    SLOTS,
    TAIL,
    WAITING,
    WAITS,
)
from ndpsim.dram.masks.timing import bank_ready_at
from ndpsim.dram.masks.words import assume_nonnegative, lowest, ranks_of, rotate
from ndpsim.dram.sink import credit_clock
from ndpsim.dram.state import (
    CLOCK,
    COUNTED_UNTIL,
    FAR,
    NEXT_REFRESH,
    PAUSE,
    SERVED,
    TAKEN,
    WRITE_MODE,
)

__all__ = ["run"]


# ---- Queued requests


@outlined
def recheck(shape, state, queue, kind, rank, clock):
    """The requests that wait for a kind and whose bank has become ready are no longer not ready."""
    place = wait_place(queue, ACT, rank)
    wait = assume_nonnegative(place + kind)
    head, size, first = state[NOT_READY_HEAD + wait], state[NOT_READY_SIZE + wait], FAR
    while size > 0:
        entry = state[NOT_READY + wait * SLOTS + (head & SLOTS - 1)]
        if entry // BANKS > clock:
            first = entry // BANKS
            break
        segments = segments_with(shape.queues, state, queue, entry & BANKS - 1)
        while segments != 0:
            segment = assume_nonnegative(lowest(segments) * SEGMENT)
            segments &= segments - 1
            of_bank = state[OF_BANK + queue * BANKS + (entry & BANKS - 1) + segment]
            state[MAYBE_READY + queue + segment] |= of_bank & state[WAITING + wait + segment]
        head += 1
        size -= 1
    state[NOT_READY_HEAD + wait] = head
    state[NOT_READY_SIZE + wait] = size
    set_lane(state, BOUND + place, kind, first)


@inlined
def recheck_due(shape, state, queue, room, clock):
    """Look for requests whose bank has become ready."""
    due = 0
    for rank in range(assume_nonnegative(ranks_of(shape))):
        bound = row_at(state, BOUND + wait_place(queue, ACT, rank))
        due |= bits(up_to(larger(rank_ready_at(state, rank, room), bound), clock)) << rank * WAITS
    while due != 0:
        bit = assume_nonnegative(lowest(due))
        due &= due - 1
        recheck(shape, state, queue, bit % WAITS, bit // WAITS, clock)


@outlined
def set_not_ready(shape, state, queue, kind, bank, ready_at):
    """A bank is not ready for a kind before `ready_at`."""
    place = wait_place(queue, ACT, bank // BANKS_PER_RANK)
    if not add_not_ready(state, place, kind, bank, ready_at):
        return
    segments = segments_with(shape.queues, state, queue, bank)
    while segments != 0:
        segment = assume_nonnegative(lowest(segments) * SEGMENT)
        segments &= segments - 1
        of_bank = state[OF_BANK + queue * BANKS + bank + segment]
        state[MAYBE_READY + queue + segment] &= ~(of_bank & state[WAITING + place + kind + segment])


@inlined
def older_hit(shape, state, queue, bank, number):
    """Whether a segment before the one of this number has a hit for a bank."""
    hits = 0
    for older in range(number):
        segment = segment_at(shape.queues, state, queue, older)
        waiting = WAITING + wait_place(queue, RD + queue, bank // BANKS_PER_RANK) + segment
        hits |= state[assume_nonnegative(waiting)] & state[OF_BANK + queue * BANKS + bank + segment]
    return hits != 0


@outlined
def filter_row_hits(shape, state, queue):
    """FRFCFS-RowHit: what would close a row on an older hit is not ready until a hit is served."""
    for number in range(segments_in_use(shape.queues, state, queue)):
        segment = segment_at(shape.queues, state, queue, number)
        tail, younger = state[TAIL + queue + segment], 0
        for rank in range(assume_nonnegative(ranks_of(shape))):
            place = wait_place(queue, ACT, rank) + segment
            waiting = state[WAITING + place + PRE]
            conflicts, hits = rotate(waiting, tail), rotate(state[WAITING + place + RD + queue], tail)
            while conflicts != 0:
                bit = conflicts & -conflicts
                slot = segment + (lowest(conflicts) + tail & SLOTS - 1)
                bank = slot_bank(state, queue, slot)
                same = state[OF_BANK + queue * BANKS + bank + segment]
                conflicts &= ~rotate(same, tail)
                if rotate(same, tail) & hits & (bit - 1) != 0 or older_hit(shape, state, queue, bank, number):
                    younger |= same & waiting
        state[MAYBE_READY + queue + segment] &= ~younger


@inlined
def ready_requests(shape, state, queue, segment, room, clock):
    """The requests of a segment that may be ready and whose rank is."""
    found = filled(0)
    for rank in range(assume_nonnegative(ranks_of(shape))):
        waiting = row_at(state, WAITING + wait_place(queue, ACT, rank) + segment)
        found = either(found, both(up_to(rank_ready_at(state, rank, room), clock), waiting))
    return merged(found) & state[MAYBE_READY + queue + segment]


@inlined
def choose_queued(policy, shape, state, queue, credit, clock):
    """The oldest ready request of a queue: (its slot or -1, the kind of its next command)."""
    queue, room = assume_nonnegative(queue), room_at(credit)
    recheck_due(shape, state, queue, room, clock)
    if policy.row_hit_first:
        filter_row_hits(shape, state, queue)
    for number in range(segments_in_use(shape.queues, state, queue)):
        segment = segment_at(shape.queues, state, queue, number)
        tail = state[TAIL + queue + segment]
        maybe_ready = rotate(ready_requests(shape, state, queue, segment, room, clock), tail)
        while maybe_ready != 0:
            slot = assume_nonnegative(segment + (lowest(maybe_ready) + tail & SLOTS - 1))
            bank = assume_nonnegative(slot_bank(state, queue, slot))
            rank = bank // BANKS_PER_RANK
            kind = assume_nonnegative(next_kind(state, queue, bank, state[SLOT_ROW + queue * SLOTS + slot]))
            ready_at = bank_ready_at(state, kind, bank)
            held = kind == PRE and also_held(shape.rows, shape, state, rank) >> bank % BANKS_PER_RANK & 1
            if ready_at <= clock and not held:
                return slot, kind
            if ready_at > clock:
                set_not_ready(shape, state, queue, kind, bank, ready_at)
            same = state[WAITING + wait_place(queue, kind, rank) + segment]
            maybe_ready &= ~rotate(same & state[OF_BANK + queue * BANKS + bank + segment], tail)
    return -1, ACT


@inlined
def issue_from(shape, state, queue, rank, room):
    """The clocks, by kind, before which no active request of a rank, nor one of a queue, can issue."""
    place, maybe_ready = wait_place(queue, ACT, rank), filled(0)
    for number in range(segments_in_use(shape.queues, state, queue)):
        segment = segment_at(shape.queues, state, queue, number)
        waiting = row_at(state, WAITING + place + segment)
        maybe_ready = either(maybe_ready, both(waiting, filled(state[MAYBE_READY + queue + segment])))
    queued = both(row_at(state, BOUND + place), where_none(maybe_ready))
    waiting = smaller(row_at(state, ACTIVE_BOUND + assume_nonnegative(rank) * WAITS), queued)
    return larger(rank_ready_at(state, rank, room), waiting)


@inlined
def quiet_until(shape, state, queue, credit):
    """The clock before which neither an active request nor one of a queue can issue."""
    queue, room = assume_nonnegative(queue), room_at(credit)
    quiet = issue_from(shape, state, queue, 0, room)
    for rank in range(1, assume_nonnegative(ranks_of(shape))):
        quiet = smaller(quiet, issue_from(shape, state, queue, rank, room))
    return least(quiet)


# ---- Active requests and maintenance


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


@inlined
def choose_next_maintenance(shape, state, credit, clock):
    """The next command of the first maintenance that waits: (its kind or -1, when it becomes ready)."""
    if state[PENDING_KIND] != PRE:
        return choose_maintenance(shape, state, credit, 0, clock)
    bank = assume_nonnegative(state[PENDING_BANK] & BANKS - 1)
    rank = bank // BANKS_PER_RANK
    if banks_that_wait(shape, state, rank, credit <= clock, False) >> bank % BANKS_PER_RANK & 1:
        return -1, FAR
    at = max(state[RANK_READY + rank * KINDS + PRE], bank_ready_at(state, PRE, bank))
    return (PRE, at) if at <= clock else (-1, at)


@inlined
def choose_and_issue(policy, shape, state, latencies, source, sink, commands, clock):
    """One command at most: of the active requests, else of the first maintenance, else of reads or writes.

    Returns the clock before which no other can issue.
    """
    credit, lacking = credit_clock(sink), lacks_rows(shape.rows, shape, state)
    if lacking:
        active_queue, place = choose_of_all_active(shape, state, credit, clock)
    else:
        active_queue, place = choose_active(shape, state, credit, clock)
    if active_queue >= 0:
        if lacking and state[OPEN_ROW + active_bank(state, active_queue, place)] < 0:
            activate_again(shape, state, source, commands, active_queue, place, clock)
        else:
            issue_active(shape, state, latencies, source, sink, commands, active_queue, place, clock)
    elif state[PENDING_SIZE] > 0:
        kind, at = choose_next_maintenance(shape, state, credit, clock)
        if kind < 0:
            return clock + 1 if lacking else min(at, active_quiet_until(shape, state, credit))
        if kind == PRE:
            issue_close(shape, state, source, sink, commands, clock)
        else:
            issue_maintenance(shape, state, source, sink, commands, kind, clock)
    else:
        if mode_changes(policy, state):
            state[WRITE_MODE] ^= 1
        queue = state[WRITE_MODE] & 1
        slot, kind = choose_queued(policy, shape, state, queue, credit, clock)
        if slot >= 0:
            issue_queued(policy, shape, state, latencies, source, sink, commands, queue, slot, kind, clock)
    if state[PENDING_SIZE] > 0 or lacks_rows(shape.rows, shape, state):
        return clock + 1
    return quiet_until(shape, state, state[WRITE_MODE] & 1, credit_clock(sink))


@inlined
def next_step(policy, shape, state, source, quiet, clock):
    """The step after one at `clock`: (its clock, whether it takes a request).

    quiet: the clock before which nothing that waits can issue.
    """
    clock += 1
    takes = can_take(policy, shape.queues, state, source, clock)
    if not (takes or mode_changes(policy, state)):
        due = min(state[NEXT_REFRESH], next_close(shape.rows, state))
        clock = max(clock, min(quiet, min(due, offered_from(state, source, clock - 1))))
        takes = source.cycle.shape[0] > 0 and can_take(policy, shape.queues, state, source, clock)
    return clock, takes


@kernel
def run(policy, shape, state, latencies, source, sink, commands, until_served, until_taken):
    """Run until `until_served` requests are served, or into the step that accepts request `until_taken`.

    Returns and can be taken up again as `dram.controller.run`.
    """
    state[NEXT_REFRESH] = next_refresh(state)
    count_waits(shape.queues, state, -1)
    clock, quiet, outcome = state[CLOCK], 0, DONE
    takes = can_take(policy, shape.queues, state, source, clock)
    while state[SERVED] < until_served:
        if clock >= state[PAUSE]:
            outcome = STUCK if state[PAUSE] >= FAR else PAUSED
            break
        if is_full(commands):
            outcome = RECORD_FULL
            break
        if takes:
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
        if clock >= next_close(shape.rows, state):
            quiet = clock
            close_rows(shape.rows, state, clock)
        if clock >= quiet or mode_changes(policy, state):
            quiet = choose_and_issue(policy, shape, state, latencies, source, sink, commands, clock)
        clock, takes = next_step(policy, shape, state, source, quiet, clock)
    count_waits(shape.queues, state, 1)
    state[CLOCK] = state[COUNTED_UNTIL] + 1
    return outcome
