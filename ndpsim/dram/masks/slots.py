"""Requests into, within and out of the slots of a queue."""

from __future__ import annotations

from ndpsim._jit import inlined, outlined
from ndpsim.dram.masks.rows import both, either, filled, row_at, set_row, smaller, with_lane
from ndpsim.dram.masks.state import (
    ACT,
    ACTIVE_REQUEST,
    ADDRESSES,
    ASLEEP,
    ASLEEP_HEAD,
    ASLEEP_SIZE,
    AWAKE,
    BANKS,
    BANKS_PER_RANK,
    BOUND,
    COUNTED,
    HELD_BANKS,
    KINDS,
    OF_BANK,
    OPEN_ROW,
    PRE,
    RANK_READY,
    RANKS,
    RD,
    READS,
    SIZE,
    SLOT_ARRIVED,
    SLOT_BANK,
    SLOT_REQUEST,
    SLOT_ROW,
    SLOTS,
    TAIL,
    USED,
    WAITING,
    WAITS,
    WRITES,
    WRITES_AT,
)
from ndpsim.dram.masks.timing import bank_ready_at
from ndpsim.dram.masks.words import natural
from ndpsim.dram.state import BANK_SHIFT, FAR, GROUP_SHIFT, RANK_SHIFT

__all__ = [
    "add_bits",
    "bank_of",
    "enqueue",
    "fall_asleep",
    "filter_place",
    "join",
    "leave",
    "next_kind",
    "put_back",
    "slot_bank",
    "take_out",
    "wait_place",
]


@inlined
def bank_of(place):
    """The bank of a request's place, numbered as in `masks.state`."""
    rank, group, bank = place >> RANK_SHIFT & 15, place >> GROUP_SHIFT & 7, place >> BANK_SHIFT & 7
    return rank << 6 | group << 3 | bank


@inlined
def wait_place(queue, kind, rank):
    """The place of what is indexed as waits, see `masks.state`."""
    return natural((queue * RANKS + rank) * WAITS + kind)


@inlined
def slot_bank(state, queue, slot):
    """The bank of a slot's request."""
    return state[natural(SLOT_BANK + queue * SLOTS + slot)] & (BANKS - 1)


@inlined
def next_kind(state, queue, bank, row):
    """The kind that a request for a row of a bank needs next."""
    open_row = state[OPEN_ROW + bank]
    of_open = RD + queue if open_row == row else PRE
    return ACT if open_row < 0 else of_open


@inlined
def add_bits(state, row, lane, mask):
    """Add to a mask of a row."""
    set_row(state, row, either(row_at(state, row), with_lane(filled(0), lane, mask)))


@inlined
def lower_bound(state, place, kind, clock):
    """The requests that are not awake may be ready at `clock`."""
    row = BOUND + place
    set_row(state, row, smaller(row_at(state, row), with_lane(filled(FAR), kind, clock)))


@inlined
def leave(state, queue, bank, mask):
    """Requests for a bank no longer wait for a command."""
    row = WAITING + wait_place(queue, ACT, bank // BANKS_PER_RANK)
    set_row(state, row, both(row_at(state, row), filled(~mask)))


@inlined
def fall_asleep(state, place, kind, bank, ready_at):
    """Note when a bank will be ready for the requests that wait for a kind; False if there is no room."""
    line = natural(place + kind)
    head, size = state[ASLEEP_HEAD + line], state[ASLEEP_SIZE + line]
    if size == SLOTS:
        return False
    ring, entry = ASLEEP + line * SLOTS, ready_at * BANKS + bank
    while size > 0 and state[ring + (head + size - 1 & SLOTS - 1)] > entry:
        state[ring + (head + size & SLOTS - 1)] = state[ring + (head + size - 1 & SLOTS - 1)]
        size -= 1
    state[ring + (head + size & SLOTS - 1)] = entry
    state[ASLEEP_SIZE + line] += 1
    lower_bound(state, place, kind, ready_at)
    return True


@outlined
def join(state, queue, kind, bank, mask, clock):
    """Requests for a bank now wait for a kind; returns when the first can issue, at the earliest.

    They are awake if the bank is ready at `clock`. So are hits: of what keeps them from being read, most
    is between banks.
    """
    bank, kind = natural(bank), natural(kind)
    rank = bank // BANKS_PER_RANK
    place, ready_at = wait_place(queue, ACT, rank), bank_ready_at(state, kind, bank)
    add_bits(state, WAITING + place, kind, mask)
    awake = kind >= RD or ready_at <= clock or not fall_asleep(state, place, kind, bank, ready_at)
    state[AWAKE + queue] = state[AWAKE + queue] & ~mask | (mask if awake else 0)
    return max(state[RANK_READY + rank * KINDS + kind], ready_at)


@inlined
def classify(state, queue, bit, bank, row, clock):
    """A new request begins to wait; returns when it can issue, at the earliest.

    It waits for nothing, yet, while its bank is held for another row.
    """
    kind = next_kind(state, queue, bank, row)
    if kind == PRE and state[HELD_BANKS + bank // BANKS_PER_RANK] >> bank % BANKS_PER_RANK & 1:
        return FAR
    return join(state, queue, kind, bank, bit, clock)


@inlined
def move_bit(state, place, source, target):
    """What a mask says of one slot it now says of another."""
    mask = state[place]
    state[place] = mask & ~(1 << source) | (mask >> source & 1) << target


@inlined
def move_slot(state, queue, source, target):
    """Move a request to a free slot."""
    a, b = queue * SLOTS + source, queue * SLOTS + target
    bank = slot_bank(state, queue, source)
    for field in (SLOT_BANK, SLOT_ROW, SLOT_ARRIVED, SLOT_REQUEST):
        state[field + b] = state[field + a]
    move_bit(state, USED + queue, source, target)
    move_bit(state, COUNTED + queue, source, target)
    move_bit(state, AWAKE + queue, source, target)
    move_bit(state, OF_BANK + queue * BANKS + bank, source, target)
    for kind in range(WAITS):
        place = wait_place(queue, kind, bank // BANKS_PER_RANK)
        move_bit(state, WAITING + place, source, target)


@outlined
def compact(state, queue):
    """Close the holes, so that the slots behind the youngest request are free again."""
    tail = state[TAIL + queue]
    target = tail
    for back in range(1, SLOTS + 1):
        slot = (tail - back) & (SLOTS - 1)
        if state[USED + queue] >> slot & 1:
            target = (target - 1) & (SLOTS - 1)
            if slot != target:
                move_slot(state, queue, slot, target)


@inlined
def fill_slot(state, queue, slot, bank, row, arrived, request):
    """Put a request into a free slot; returns when it can issue, at the earliest."""
    at, bit = natural(queue * SLOTS + slot), 1 << slot
    state[SLOT_BANK + at] = bank
    state[SLOT_ROW + at] = row
    state[SLOT_ARRIVED + at] = arrived
    state[SLOT_REQUEST + at] = request
    state[USED + queue] |= bit
    state[OF_BANK + queue * BANKS + bank] |= bit
    state[SIZE + queue] += 1
    return classify(state, queue, bit, bank, row, arrived)


@inlined
def filter_place(address):
    """Where queued writes to `address`, among others, are counted, after WRITES_AT."""
    return (address ^ (address >> 6)) & (ADDRESSES - 1)


@inlined
def enqueue(state, source, queue, bank, row, request, arrived):
    """Put the youngest request into its queue; returns when it can issue, at the earliest."""
    slot = state[TAIL + queue] & (SLOTS - 1)
    if state[USED + queue] >> slot & 1:
        compact(state, queue)
    if queue == WRITES:
        state[WRITES_AT + filter_place(source.address[request])] += 1
    state[TAIL + queue] = slot + 1
    return fill_slot(state, queue, slot, bank, row, arrived, request)


@outlined
def put_back(state, bank, row, arrived):
    """Return an active read to the place in the read queue that its age gives it."""
    compact(state, READS)
    free = (state[TAIL + READS] - state[SIZE + READS] - 1) & (SLOTS - 1)
    for _ in range(state[SIZE + READS]):
        after = (free + 1) & (SLOTS - 1)
        if state[SLOT_ARRIVED + READS * SLOTS + after] > arrived:
            break
        move_slot(state, READS, after, free)
        free = after
    fill_slot(state, READS, free, bank, row, arrived, state[ACTIVE_REQUEST + bank])
    state[COUNTED + READS] |= 1 << free


@inlined
def take_out(state, source, queue, slot, bank):
    """Take a request out of its queue."""
    queue, slot, bank = natural(queue), natural(slot), natural(bank)
    keep = ~(1 << slot)
    state[USED + queue] &= keep
    state[COUNTED + queue] &= keep
    state[OF_BANK + queue * BANKS + bank] &= keep
    leave(state, queue, bank, ~keep)
    state[SIZE + queue] -= 1
    if queue == WRITES:
        request = state[SLOT_REQUEST + WRITES * SLOTS + slot]
        state[WRITES_AT + filter_place(source.address[request])] -= 1
