"""The next command of a fast controller that shares ranks with another, out of the first owner's way."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ndpsim._jit import inlined
from ndpsim.dimm.state import BUS_TAKEN, HOST_WAITS, REFRESH_PENDING
from ndpsim.dram.masks.banks import active_bank
from ndpsim.dram.masks.choose import (
    active_quiet_until,
    choose_maintenance,
    due_active_queues,
    mode_changes,
    oldest_candidates,
    quiet_until_of,
    room_at,
    set_not_ready,
)
from ndpsim.dram.masks.rows import set_lane
from ndpsim.dram.masks.slots import next_kind, slot_bank, wait_place
from ndpsim.dram.masks.state import (
    ACT,
    ACTIVE_ARRIVED,
    ACTIVE_BOUND,
    ACTIVE_REQUEST,
    ACTIVE_SIZE,
    BANKS,
    BANKS_PER_RANK,
    HELD_BANKS,
    HELD_BY_OTHER,
    OF_BANK,
    OPEN_ROW,
    PENDING_BANK,
    PENDING_SIZE,
    RD,
    SLOT_ARRIVED,
    SLOT_REQUEST,
    SLOT_ROW,
    SLOTS,
    TAIL,
    USED,
    WAITING,
    WAITS,
    WRITES,
)
from ndpsim.dram.masks.timing import bank_ready_at
from ndpsim.dram.masks.words import assume_nonnegative, lowest, ranks_of, rotate
from ndpsim.dram.state import FAR, WRITE_MODE

__all__ = [
    "FROM_ACTIVE",
    "FROM_QUEUE",
    "FROM_REFRESHES",
    "NOWHERE",
    "Beside",
    "bank_of_command",
    "choose",
    "kind_of_command",
    "next_column",
    "oldest_arrival",
    "request_of_command",
    "row_of_command",
]

Ints = NDArray[np.int64]

# Where a command comes from.
NOWHERE, FROM_ACTIVE, FROM_REFRESHES, FROM_QUEUE = range(4)


class Beside(NamedTuple):
    """The first owners of the ranks of a controller, as far as it is second there."""

    states: Ints  # [controller, word]
    row: int  # in `states`, of the first owner of rank 0,
    stride: int  # and how many further that of the next rank is
    offset: int  # from the bank's number in its rank to that in the first owner's channel
    second: Ints  # [rank]: 1 where the controller is second
    # [rank]: of the first owner's next column command: 1 reads, 2 writes, 0 there is none; or BUS_TAKEN
    direction: Ints


# ---- What a controller waits for


@inlined
def oldest_arrival(shape, state):
    """The arrival of the oldest active or queued request that is served now, FAR without any."""
    oldest = FAR
    for active_queue in range(2 * ranks_of(shape)):
        if state[ACTIVE_SIZE + active_queue] > 0:
            oldest = min(oldest, state[ACTIVE_ARRIVED + active_bank(state, active_queue, 0)])
    queue = state[WRITE_MODE] & 1
    tail, queued = state[TAIL + queue], state[USED + queue]
    if queued != 0:
        slot = lowest(rotate(queued, tail)) + tail & SLOTS - 1
        oldest = min(oldest, state[SLOT_ARRIVED + queue * SLOTS + slot])
    return oldest


@inlined
def next_column(shape, state):
    """The oldest active or queued request whose row is open: (its rank, -1 if there is none; 1 if it reads,
    2 if it writes).
    """
    oldest, rank, direction = FAR, -1, 0
    for active_queue in range(2 * ranks_of(shape)):
        if state[ACTIVE_SIZE + active_queue] > 0:
            arrived = state[ACTIVE_ARRIVED + active_bank(state, active_queue, 0)]
            if arrived < oldest:
                oldest, rank, direction = arrived, active_queue // 2, 1 + active_queue % 2
    if state[PENDING_SIZE] > 0:
        return rank, direction
    queue, hits = state[WRITE_MODE] & 1, 0
    for number in range(ranks_of(shape)):
        hits |= state[WAITING + wait_place(queue, RD + queue, number)]
    if hits != 0:
        tail = state[TAIL + queue]
        slot = lowest(rotate(hits, tail)) + tail & SLOTS - 1
        if state[SLOT_ARRIVED + queue * SLOTS + slot] < oldest:
            rank, direction = slot_bank(state, queue, slot) // BANKS_PER_RANK, 1 + queue
    return rank, direction


@inlined
def is_wanted(first, direction, bank):
    """Whether the first owner's controller waits for a bank."""
    rank, bit = bank // BANKS_PER_RANK, 1 << bank % BANKS_PER_RANK
    if first[HELD_BANKS + rank] & ~first[HELD_BY_OTHER + rank] & bit != 0:
        return True
    queue = first[WRITE_MODE] & 1
    return direction & REFRESH_PENDING == 0 and first[OF_BANK + queue * BANKS + bank] != 0


@inlined
def in_the_way(beside, queue, is_active, bank):
    """Whether a request has to wait for those of the first owner of its rank, or for a command bus."""
    rank = bank // BANKS_PER_RANK
    if beside.direction[rank] & BUS_TAKEN or (not is_active and beside.direction[rank] & HOST_WAITS):
        return True
    if not beside.second[rank]:
        return False
    turns = beside.direction[rank] & (1 if queue == WRITES else 2) != 0
    first = beside.states[beside.row + rank * beside.stride]
    wanted = is_wanted(first, beside.direction[rank], bank % BANKS_PER_RANK + beside.offset)
    if is_active:
        return turns and not wanted
    return turns or wanted


# ---- The next command of a controller


@inlined
def pick_active(shape, state, credit, beside, clock):
    """The oldest ready active request that is in no other's way: (its queue or -1, its place in it; the
    active queues with one that has to wait, as `due_active_queues` gives them; the clock before which no
    other of them is ready).
    """
    best, best_place, best_arrived, withheld, later = -1, 0, FAR, 0, FAR
    due_now = due_active_queues(shape, state, credit, clock)
    while due_now != 0:
        bit = assume_nonnegative(lowest(due_now))
        due_now &= due_now - 1
        active_queue, kind = bit // WAITS * 2 + bit % WAITS - RD, bit % WAITS
        first, ready = FAR, False
        for place in range(state[ACTIVE_SIZE + active_queue]):
            bank = active_bank(state, active_queue, place)
            ready_at = bank_ready_at(state, kind, bank)
            if ready_at > clock:
                first = min(first, ready_at)
                continue
            ready = True
            if in_the_way(beside, active_queue & 1, True, bank):
                withheld |= 1 << bit
                continue
            arrived = state[ACTIVE_ARRIVED + bank]
            if arrived < best_arrived:
                best, best_place, best_arrived = active_queue, place, arrived
            break
        if not ready:
            set_lane(state, ACTIVE_BOUND + active_queue // 2 * WAITS, kind, first)
        later = min(later, first)
    return best, best_place, withheld, later


@inlined
def bound_active(state, active_queues, clock):
    """Set the clock before which nothing of active queues, as `due_active_queues` gives them, is ready."""
    while active_queues != 0:
        bit = assume_nonnegative(lowest(active_queues))
        active_queues &= active_queues - 1
        set_lane(state, ACTIVE_BOUND + bit // WAITS * WAITS, bit % WAITS, clock)


@inlined
def ranks_with(shape, active_queues):
    """The mask of the ranks of active queues, as `due_active_queues` gives them."""
    ranks = 0
    for rank in range(ranks_of(shape)):
        ranks |= (active_queues >> rank * WAITS & (1 << WAITS) - 1 != 0) << rank
    return ranks


@inlined
def pick_queued(policy, shape, state, queue, credit, beside, clock):
    """The oldest ready request of a queue that is in no other's way: (its slot or -1, the kind of its next
    command; the mask of those that have to wait, the mask of their ranks).
    """
    queue, room = assume_nonnegative(queue), room_at(credit)
    tail, waiting, ranks = state[TAIL + queue], 0, 0
    maybe_ready = rotate(oldest_candidates(policy, shape, state, queue, room, clock), tail)
    while maybe_ready != 0:
        slot = assume_nonnegative(lowest(maybe_ready) + tail & SLOTS - 1)
        bank = assume_nonnegative(slot_bank(state, queue, slot))
        kind = assume_nonnegative(next_kind(state, queue, bank, state[SLOT_ROW + queue * SLOTS + slot]))
        ready_at = bank_ready_at(state, kind, bank)
        if ready_at > clock:
            passed = set_not_ready(shape.queues, state, queue, 0, kind, bank, ready_at)
            maybe_ready &= ~rotate(passed, tail)
        elif in_the_way(beside, queue, False, bank):
            same = state[OF_BANK + queue * BANKS + bank]
            waiting |= same
            ranks |= 1 << bank // BANKS_PER_RANK
            maybe_ready &= ~rotate(same, tail)
        else:
            return slot, kind, waiting, ranks
    return -1, ACT, waiting, ranks


@inlined
def choose_inactive(policy, shape, state, credit, other_credit, beside, clock):
    """As `choose`, a refresh or the command of a queued request."""
    if state[PENDING_SIZE] > 0:
        rank, kind, at = (state[PENDING_BANK] & BANKS - 1) // BANKS_PER_RANK, -1, FAR
        is_taken = beside.direction[rank] & BUS_TAKEN != 0
        if not is_taken:
            kind, at = choose_maintenance(shape, state, credit, other_credit, clock)
        quiet = min(at, active_quiet_until(shape, state, credit))
        return NOWHERE if kind < 0 else FROM_REFRESHES, 0, kind, quiet, is_taken << rank
    if mode_changes(policy, state):
        state[WRITE_MODE] ^= 1
    queue = state[WRITE_MODE] & 1
    slot, kind, waiting, ranks = pick_queued(policy, shape, state, queue, credit, beside, clock)
    if slot >= 0:
        return FROM_QUEUE, slot, kind, clock + 1, ranks
    quiet = quiet_until_of(shape, state, queue, credit, waiting)
    return NOWHERE, 0, 0, quiet, ranks


@inlined
def choose(policy, shape, state, credit, other_credit, beside, clock):
    """The next command, out of the first owner's way: (where it comes from; its queue and place, or slot and
    kind; the clock before which there is no other; the mask of the ranks on which one has to wait).
    """
    active_queue, place, withheld, later = pick_active(shape, state, credit, beside, clock)
    if active_queue >= 0:
        return FROM_ACTIVE, active_queue, place, clock + 1, ranks_with(shape, withheld)
    bound_active(state, withheld, later)
    origin, first, second, quiet, ranks = choose_inactive(
        policy, shape, state, credit, other_credit, beside, clock
    )
    bound_active(state, withheld, clock)
    return origin, first, second, quiet, ranks | ranks_with(shape, withheld)


@inlined
def bank_of_command(state, origin, first, second):
    """The bank that a chosen command goes to; for a refresh, the first of its banks."""
    if origin == FROM_ACTIVE:
        return active_bank(state, first, second)
    if origin == FROM_REFRESHES:
        return state[PENDING_BANK] & (BANKS - 1)
    return slot_bank(state, state[WRITE_MODE] & 1, first)


@inlined
def kind_of_command(origin, first, second):
    """The kind of a chosen command."""
    return RD + first % 2 if origin == FROM_ACTIVE else second


@inlined
def request_of_command(state, origin, bank, first):
    """The request that a chosen column command or ACT is for."""
    if origin == FROM_ACTIVE:
        return state[ACTIVE_REQUEST + bank]
    return state[SLOT_REQUEST + (state[WRITE_MODE] & 1) * SLOTS + first]


@inlined
def row_of_command(state, origin, bank, first):
    """The row that a chosen ACT opens, or a column command uses."""
    if origin == FROM_QUEUE:
        return state[SLOT_ROW + (state[WRITE_MODE] & 1) * SLOTS + first]
    return state[OPEN_ROW + bank]
