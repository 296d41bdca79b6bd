"""Which command comes next."""

from __future__ import annotations

from ndpsim._jit import inlined, outlined
from ndpsim.dram.masks.banks import active_bank
from ndpsim.dram.masks.slots import slot_bank, wait_place
from ndpsim.dram.masks.state import (
    ACT,
    ACTIVE_ARRIVED,
    ACTIVE_BOUND,
    ACTIVE_SIZE,
    BANK_READY,
    BANKS,
    BANKS_PER_GROUP,
    BANKS_PER_RANK,
    BOUND,
    HELD_BANKS,
    KINDS,
    OF_BANK,
    OPEN_BANKS,
    PENDING_BANK,
    PENDING_KIND,
    PRE,
    PREAB,
    PRESB,
    RANK_QUIET,
    RANK_READY,
    RD,
    READS,
    REFAB,
    REFSB,
    SIZE,
    SLOTS,
    TAIL,
    WAITING,
    WAITS,
    WR,
    WRITES,
)
from ndpsim.dram.masks.timing import bank_ready_at
from ndpsim.dram.masks.words import lowest, natural, rotate
from ndpsim.dram.state import FAR, WRITE_MODE

__all__ = [
    "active_quiet_until",
    "choose_active",
    "choose_maintenance",
    "choose_queued",
    "look_again",
    "mode_changes",
    "quiet_until",
]

_NONE = SLOTS  # an offset that no request has


@inlined
def rank_quiet_until(state, queue, rank, credit):
    """The clock before which neither an active request of a rank nor one of a queue can issue."""
    rank = natural(rank)
    ready, active = RANK_READY + rank * KINDS, ACTIVE_BOUND + rank * WAITS
    queued = BOUND + wait_place(queue, ACT, rank)
    activate_at = max(state[queued + ACT], state[ready + ACT])
    precharge_at = max(state[queued + PRE], state[ready + PRE])
    read_at = max(min(state[active + RD], state[queued + RD]), max(state[ready + RD], credit))
    write_at = max(min(state[active + WR], state[queued + WR]), state[ready + WR])
    return min(min(activate_at, precharge_at), min(read_at, write_at))


@inlined
def active_quiet_until(shape, state, credit):
    """The clock before which no active request can issue."""
    quiet = FAR
    for number in range(shape.ranks):
        rank = natural(number)
        ready, active = RANK_READY + rank * KINDS, ACTIVE_BOUND + rank * WAITS
        quiet = min(quiet, max(state[active + RD], max(state[ready + RD], credit)))
        quiet = min(quiet, max(state[active + WR], state[ready + WR]))
    return quiet


@inlined
def quiet_until(shape, state, queue, credit):
    """The clock before which no rank can issue anything but refresh.

    credit: the clock before which the sink has no room for a read.
    """
    quiet = FAR
    for number in range(shape.ranks):
        rank = natural(number)
        at = rank_quiet_until(state, queue, rank, credit)
        state[RANK_QUIET + rank] = at
        quiet = min(quiet, at)
    return quiet


@inlined
def look_again(shape, state):
    """Forget until when the ranks are quiet: another queue is asked now."""
    for number in range(shape.ranks):
        rank = natural(number)
        state[RANK_QUIET + rank] = 0


@inlined
def oldest_active(state, line, kind, clock):
    """The first place of a line whose request's bank is ready, or its size if none is.

    Then the line is not asked again before the first clock at which one can be ready.
    """
    line, kind = natural(line), natural(kind)
    size, first = state[ACTIVE_SIZE + line], FAR
    for place in range(size):
        ready_at = bank_ready_at(state, kind, active_bank(state, line, place))
        if ready_at <= clock:
            return place
        first = min(first, ready_at)
    state[ACTIVE_BOUND + line // 2 * WAITS + kind] = first
    return size


@inlined
def choose_active(shape, state, credit, clock):
    """The oldest ready active request: (its line or -1, its place in the line)."""
    best, best_place, best_arrived = -1, 0, FAR
    for number in range(shape.ranks):
        rank = natural(number)
        if state[RANK_QUIET + rank] > clock:
            continue
        for queue in range(2):
            line, kind = rank * 2 + queue, RD + queue
            at = max(state[ACTIVE_BOUND + rank * WAITS + kind], state[RANK_READY + rank * KINDS + kind])
            if at <= clock and (queue == WRITES or credit <= clock):
                place = oldest_active(state, line, kind, clock)
                if place < state[ACTIVE_SIZE + line]:
                    arrived = state[ACTIVE_ARRIVED + active_bank(state, line, place)]
                    if arrived < best_arrived:
                        best, best_place, best_arrived = line, place, arrived
    return best, best_place


@inlined
def oldest_ready(state, queue, kind, rank, clock):
    """The oldest request that waits for a kind and whose bank is ready, as an offset in age.

    _NONE if none is; then they are not asked again before the first clock at which one can be ready.
    """
    tail, first = state[TAIL + queue], FAR
    place = wait_place(queue, kind, rank)
    mask = rotate(state[WAITING + place], tail)
    while mask != 0:
        offset = lowest(mask)
        bank = slot_bank(state, queue, (offset + tail) & (SLOTS - 1))
        ready_at = bank_ready_at(state, kind, bank)
        if ready_at <= clock:
            return offset
        first = min(first, ready_at)
        mask &= ~rotate(state[OF_BANK + queue * BANKS + bank], tail)
    state[BOUND + place] = first
    return _NONE


@inlined
def oldest_conflict(state, queue, rank, skipped, clock):
    """The oldest request that waits for PRE and whose bank is ready: (its offset in age, the clock before
    which no other can be). Closing a bank keeps no other from being closed: so that clock is worth knowing.

    _NONE if none is; then they are not asked again before that clock.
    skipped: requests that are no candidates.
    """
    tail, first, oldest, kind = state[TAIL + queue], FAR, _NONE, PRE
    place = wait_place(queue, kind, rank)
    mask = rotate(state[WAITING + place] & ~skipped, tail)
    while mask != 0:
        offset = lowest(mask)
        bank = slot_bank(state, queue, (offset + tail) & (SLOTS - 1))
        ready_at = bank_ready_at(state, kind, bank)
        mask &= ~rotate(state[OF_BANK + queue * BANKS + bank], tail)
        if ready_at <= clock and oldest == _NONE:
            oldest = offset
        else:
            first = min(first, ready_at)
    if oldest == _NONE:
        state[BOUND + place] = first
    return oldest, first


@outlined
def behind_hits(state, queue, rank):
    """FRFCFS-RowHit: the requests of a rank that would close a row on an older hit."""
    tail = state[TAIL + queue]
    conflicts = rotate(state[WAITING + wait_place(queue, PRE, rank)], tail)
    hits = rotate(state[WAITING + wait_place(queue, RD + queue, rank)], tail)
    skipped = 0
    while conflicts != 0:
        bit = conflicts & -conflicts
        bank = slot_bank(state, queue, (lowest(conflicts) + tail) & (SLOTS - 1))
        same = rotate(state[OF_BANK + queue * BANKS + bank], tail)
        if same & hits & (bit - 1) != 0:
            skipped |= same
        conflicts &= ~same
    return rotate(skipped, -tail)


@inlined
def choose_queued(policy, shape, state, queue, credit, clock):
    """The oldest ready request of a queue: (its slot or -1, the kind of its next command).

    What else waits for that kind is not asked again before one of it can be ready.
    """
    queue = natural(queue)
    best, best_kind, best_bound, others_at = _NONE, ACT, BOUND, FAR
    has_room = queue == WRITES or credit <= clock
    for number in range(shape.ranks):
        rank = natural(number)
        if state[RANK_QUIET + rank] > clock:
            continue
        ready, bound, column = RANK_READY + rank * KINDS, BOUND + wait_place(queue, ACT, rank), RD + queue
        if has_room and max(state[bound + column], state[ready + column]) <= clock:
            offset = oldest_ready(state, queue, column, rank, clock)
            if offset < best:
                best, best_kind, best_bound, others_at = offset, column, bound + column, clock
        if max(state[bound + ACT], state[ready + ACT]) <= clock:
            offset = oldest_ready(state, queue, ACT, rank, clock)
            if offset < best:
                best, best_kind, best_bound, others_at = offset, ACT, bound + ACT, clock
        if max(state[bound + PRE], state[ready + PRE]) <= clock:
            skipped = behind_hits(state, queue, rank) if policy.row_hit_first else 0
            offset, first = oldest_conflict(state, queue, rank, skipped, clock)
            if offset < best:
                best, best_kind, best_bound, others_at = offset, PRE, bound + PRE, first
    if best == _NONE:
        return -1, best_kind
    state[natural(best_bound)] = others_at
    return (best + state[TAIL + queue]) & (SLOTS - 1), best_kind


@inlined
def same_banks(shape, first):
    """The mask of a bank and its like in every group of its rank."""
    mask = 0
    for group in range(shape.bankgroups):
        mask |= 1 << group * BANKS_PER_GROUP
    return mask << first % BANKS_PER_RANK


@outlined
def choose_maintenance(shape, state, credit, clock):
    """The next command of the first refresh that waits: (its kind or -1, when it becomes ready).

    An active request holds its bank only while the sink has room for its data: it might wait long for
    room, and refresh cannot.
    """
    final, first = state[PENDING_KIND], state[PENDING_BANK] & (BANKS - 1)
    rank = first // BANKS_PER_RANK
    banks = -1 if final == REFAB else same_banks(shape, first)
    to_close = state[OPEN_BANKS + rank] & banks != 0
    if to_close and state[HELD_BANKS + rank] & banks != 0 and credit <= clock:
        return -1, FAR
    kind = final
    if to_close:
        kind = PREAB if final == REFAB else PRESB
    at = state[RANK_READY + rank * KINDS + kind]
    if final == REFSB:
        for group in range(shape.bankgroups):
            at = max(at, state[BANK_READY + (first + group * BANKS_PER_GROUP) * KINDS + kind])
    return (kind, at) if at <= clock else (-1, at)


@inlined
def mode_changes(policy, state):
    """Whether the watermarks end or begin write mode."""
    reads, writes = state[SIZE + READS], state[SIZE + WRITES]
    if state[WRITE_MODE]:
        return writes < policy.write_mode_below and reads > 0
    return writes > policy.write_mode_from or reads == 0
