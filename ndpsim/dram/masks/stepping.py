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
    fall_asleep,
    next_kind,
    slot_bank,
    wait_place,
)
from ndpsim.dram.masks.state import (
    ACT,
    ACTIVE_ARRIVED,
    ACTIVE_BOUND,
    ACTIVE_SIZE,
    ASLEEP,
    ASLEEP_HEAD,
    ASLEEP_SIZE,
    AWAKE,
    BANKS,
    BANKS_PER_RANK,
    BOUND,
    KINDS,
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
from ndpsim.dram.masks.words import lowest, natural, ranks_of, rotate
from ndpsim.dram.sink import credit_clock
from ndpsim.dram.state import (
    CLOCK,
    COUNTED_UNTIL,
    FAR,
    NEXT_REFRESH,
    PAUSE,
    REFRESHES,
    SERVED,
    TAKEN,
    WRITE_MODE,
)

__all__ = ["run"]


# ---- Queued requests


@outlined
def wake(shape, state, queue, kind, rank, clock):
    """Wake the requests that wait for a kind and whose bank is ready."""
    place = wait_place(queue, ACT, rank)
    line = natural(place + kind)
    head, size, first = state[ASLEEP_HEAD + line], state[ASLEEP_SIZE + line], FAR
    while size > 0:
        entry = state[ASLEEP + line * SLOTS + (head & SLOTS - 1)]
        if entry // BANKS > clock:
            first = entry // BANKS
            break
        segments = segments_with(shape.queues, state, queue, entry & BANKS - 1)
        while segments != 0:
            segment = natural(lowest(segments) * SEGMENT)
            segments &= segments - 1
            of_bank = state[OF_BANK + queue * BANKS + (entry & BANKS - 1) + segment]
            state[AWAKE + queue + segment] |= of_bank & state[WAITING + line + segment]
        head += 1
        size -= 1
    state[ASLEEP_HEAD + line] = head
    state[ASLEEP_SIZE + line] = size
    set_lane(state, BOUND + place, kind, first)


@inlined
def wake_due(shape, state, queue, room, clock):
    """Wake the requests whose bank may have become ready."""
    due = 0
    for rank in range(natural(ranks_of(shape))):
        bound = row_at(state, BOUND + wait_place(queue, ACT, rank))
        due |= bits(up_to(larger(rank_ready_at(state, rank, room), bound), clock)) << rank * WAITS
    while due != 0:
        bit = natural(lowest(due))
        due &= due - 1
        wake(shape, state, queue, bit % WAITS, bit // WAITS, clock)


@outlined
def sleep(shape, state, queue, kind, bank, ready_at):
    """A bank is not ready for a kind before `ready_at`."""
    place = wait_place(queue, ACT, bank // BANKS_PER_RANK)
    if not fall_asleep(state, place, kind, bank, ready_at):
        return
    segments = segments_with(shape.queues, state, queue, bank)
    while segments != 0:
        segment = natural(lowest(segments) * SEGMENT)
        segments &= segments - 1
        of_bank = state[OF_BANK + queue * BANKS + bank + segment]
        state[AWAKE + queue + segment] &= ~(of_bank & state[WAITING + place + kind + segment])


@inlined
def older_hit(shape, state, queue, bank, number):
    """Whether a segment before the one of this number has a hit for a bank."""
    hits = 0
    for older in range(number):
        segment = segment_at(shape.queues, state, queue, older)
        waiting = WAITING + wait_place(queue, RD + queue, bank // BANKS_PER_RANK) + segment
        hits |= state[natural(waiting)] & state[OF_BANK + queue * BANKS + bank + segment]
    return hits != 0


@outlined
def spare(shape, state, queue):
    """FRFCFS-RowHit: what would close a row on an older hit sleeps until a hit is served."""
    for number in range(segments_in_use(shape.queues, state, queue)):
        segment = segment_at(shape.queues, state, queue, number)
        tail, younger = state[TAIL + queue + segment], 0
        for rank in range(natural(ranks_of(shape))):
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
        state[AWAKE + queue + segment] &= ~younger


@inlined
def ready_requests(shape, state, queue, segment, room, clock):
    """The requests of a segment that are awake and whose rank is ready."""
    found = filled(0)
    for rank in range(natural(ranks_of(shape))):
        waiting = row_at(state, WAITING + wait_place(queue, ACT, rank) + segment)
        found = either(found, both(up_to(rank_ready_at(state, rank, room), clock), waiting))
    return merged(found) & state[AWAKE + queue + segment]


@inlined
def choose_queued(policy, shape, state, queue, credit, clock):
    """The oldest ready request of a queue: (its slot or -1, the kind of its next command)."""
    queue, room = natural(queue), room_at(credit)
    wake_due(shape, state, queue, room, clock)
    if policy.row_hit_first:
        spare(shape, state, queue)
    for number in range(segments_in_use(shape.queues, state, queue)):
        segment = segment_at(shape.queues, state, queue, number)
        tail = state[TAIL + queue + segment]
        awake = rotate(ready_requests(shape, state, queue, segment, room, clock), tail)
        while awake != 0:
            slot = natural(segment + (lowest(awake) + tail & SLOTS - 1))
            bank = natural(slot_bank(state, queue, slot))
            rank = bank // BANKS_PER_RANK
            kind = natural(next_kind(state, queue, bank, state[SLOT_ROW + queue * SLOTS + slot]))
            ready_at = bank_ready_at(state, kind, bank)
            held = kind == PRE and also_held(shape.rows, shape, state, rank) >> bank % BANKS_PER_RANK & 1
            if ready_at <= clock and not held:
                return slot, kind
            if ready_at > clock:
                sleep(shape, state, queue, kind, bank, ready_at)
            same = state[WAITING + wait_place(queue, kind, rank) + segment]
            awake &= ~rotate(same & state[OF_BANK + queue * BANKS + bank + segment], tail)
    return -1, ACT


@inlined
def issue_from(shape, state, queue, rank, room):
    """The clocks, by kind, before which no active request of a rank, nor one of a queue, can issue."""
    place, awake = wait_place(queue, ACT, rank), filled(0)
    for number in range(segments_in_use(shape.queues, state, queue)):
        segment = segment_at(shape.queues, state, queue, number)
        waiting = row_at(state, WAITING + place + segment)
        awake = either(awake, both(waiting, filled(state[AWAKE + queue + segment])))
    queued = both(row_at(state, BOUND + place), where_none(awake))
    waiting = smaller(row_at(state, ACTIVE_BOUND + natural(rank) * WAITS), queued)
    return larger(rank_ready_at(state, rank, room), waiting)


@inlined
def quiet_until(shape, state, queue, credit):
    """The clock before which neither an active request nor one of a queue can issue."""
    queue, room = natural(queue), room_at(credit)
    quiet = issue_from(shape, state, queue, 0, room)
    for rank in range(1, natural(ranks_of(shape))):
        quiet = smaller(quiet, issue_from(shape, state, queue, rank, room))
    return least(quiet)


# ---- Active requests and maintenance


@outlined
def choose_of_all_active(shape, state, credit, clock):
    """As `choose_active`, where some of the active requests need ACT again."""
    best, best_place, best_arrived = -1, 0, FAR
    for line in range(2 * ranks_of(shape)):
        for place in range(state[ACTIVE_SIZE + line]):
            bank, kind = active_bank(state, line, place), RD + line % 2
            if state[OPEN_ROW + bank] < 0:
                kind = ACT
            at = max(state[RANK_READY + line // 2 * KINDS + kind], bank_ready_at(state, kind, bank))
            arrived = state[ACTIVE_ARRIVED + bank]
            if max(at, credit if kind == RD else 0) <= clock and arrived < best_arrived:
                best, best_place, best_arrived = line, place, arrived
    return best, best_place


@inlined
def choose_next_maintenance(shape, state, credit, clock):
    """The next command of the first maintenance that waits: (its kind or -1, when it becomes ready)."""
    if state[PENDING_KIND] != PRE:
        return choose_maintenance(shape, state, credit, 0, clock)
    bank = natural(state[PENDING_BANK] & BANKS - 1)
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
        line, place = choose_of_all_active(shape, state, credit, clock)
    else:
        line, place = choose_active(shape, state, credit, clock)
    if line >= 0:
        if lacking and state[OPEN_ROW + active_bank(state, line, place)] < 0:
            activate_again(shape, state, source, commands, line, place, clock)
        else:
            issue_active(shape, state, latencies, source, sink, commands, line, place, clock)
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
    state[NEXT_REFRESH] = next_refresh(shape, policy.refresh, state[REFRESHES])
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
