"""The choice of the next command, and a clock before which no command can issue."""

from __future__ import annotations

from ndpsim.base.jit import inlined, outlined
from ndpsim.dram.fast import points
from ndpsim.dram.fast.banks import active_bank, bank_bit, bars_queues, drop_pending, same_banks
from ndpsim.dram.fast.blocking import is_blocked, is_bus_taken
from ndpsim.dram.fast.fields import (
    ACT,
    BANKS,
    BANKS_PER_GROUP,
    BANKS_PER_RANK,
    PRE,
    PREAB,
    PRESB,
    RD,
    READS,
    REFAB,
    REFSB,
    REQUEST_CLASSES,
    SLOTS,
    WR,
    WRITES,
)
from ndpsim.dram.fast.points import (
    allows,
    also_pinned,
    at_edges,
    avoids,
    barred,
    chunk_at,
    chunks_in_use,
    chunks_with,
    held_in,
    is_busy,
    keeps_maintenance,
    lacks_rows,
)
from ndpsim.dram.fast.slots import add_not_ready, bank_of, next_class, slot_bank, wait_row
from ndpsim.dram.fast.timing import bank_ready_at
from ndpsim.dram.fast.vectors import (
    assume_nonnegative,
    bits,
    both,
    either,
    filled,
    larger,
    least,
    lowest,
    merged,
    rotate,
    set_element,
    smaller,
    up_to,
    vector_at,
    where_none,
    with_element,
)
from ndpsim.dram.state import FAR, ROW_SHIFT, WRITE_MODE

# ---- The clock before which nothing can issue


@inlined
def free_slots_at(credit):
    """`credit` as a vector of classes: the clock before which the sink has no slot for RD."""
    return with_element(filled(0), RD, credit)


@inlined
def rank_ready_at(state, rank, slots_at):
    """The first clocks, by class, according to channel, rank and sink."""
    return larger(vector_at(state.rank_ready, assume_nonnegative(rank)), slots_at)


@inlined
def active_from(shape, state, rank, slots_at):
    """The clocks, by class, before which no active request of a rank can issue."""
    active = vector_at(state.active_not_ready_until, assume_nonnegative(rank))
    times = larger(rank_ready_at(state, rank, slots_at), active)
    return points.active_from(shape.step, state, rank, times)


@inlined
def queued_from(shape, state, queue, rank, slots_at, without):
    """The clocks, by class, before which no request of a queue for a rank can issue."""
    row, maybe_ready = wait_row(queue, rank), filled(0)
    for number in range(chunks_in_use(shape.queues, state, queue)):
        chunk = chunk_at(shape.queues, state, queue, number)
        of_chunk = filled(state.maybe_ready[chunk, queue] & ~without)
        maybe_ready = either(maybe_ready, both(vector_at(state.waiting[chunk], row), of_chunk))
    queued = both(vector_at(state.not_ready_until, row), where_none(maybe_ready))
    return larger(rank_ready_at(state, rank, slots_at), queued)


@inlined
def issue_from(shape, state, queue, rank, slots_at, without):
    """The clocks, by class, before which no active request of a rank, nor one of a queue, can issue."""
    queued = queued_from(shape, state, queue, rank, slots_at, without)
    return smaller(active_from(shape, state, rank, slots_at), queued)


@inlined
def active_next_ready(shape, state, credit):
    """The clock before which no active request can issue."""
    slots_at = free_slots_at(credit)
    next_ready = active_from(shape, state, 0, slots_at)
    for rank in range(1, shape.ranks):
        next_ready = smaller(next_ready, active_from(shape, state, rank, slots_at))
    return least(next_ready)


@inlined
def ready_from(shape, state, credit, without):
    """The clocks, by class, before which no active request can issue, nor one of the queue that is served.

    credit: the clock before which the sink has no room for a read; without: the mask of requests, of a queue
    of one chunk, that do not count.
    """
    queue, slots_at = assume_nonnegative(state.value[WRITE_MODE] & 1), free_slots_at(credit)
    times = issue_from(shape, state, queue, 0, slots_at, without)
    for rank in range(1, shape.ranks):
        times = smaller(times, issue_from(shape, state, queue, rank, slots_at, without))
    return at_edges(shape.step, times)


@inlined
def next_ready_of(shape, state, credit, without):
    """The first clock of `ready_from`."""
    return least(ready_from(shape, state, credit, without))


@inlined
def ready_after(policy, shape, state, credit, clock):
    """After a step at `clock`: `ready_from`, or the next clock if other things may happen then."""
    if is_busy(shape.step, state) or state.pending_size > 0:
        return filled(clock + 1)
    if mode_changes(policy, state) or lacks_rows(shape.rows, shape, state):
        return filled(clock + 1)
    return ready_from(shape, state, credit, 0)


@inlined
def next_ready_after(policy, shape, state, credit, clock):
    """After a step at `clock`: the clock before which no other can issue a command or change the mode."""
    return least(ready_after(policy, shape, state, credit, clock))


@inlined
def class_of(shape, state, place):
    """The class of the command that a request that is taken needs next."""
    return next_class(state, place & 1, bank_of(shape, place), place >> ROW_SHIFT)


@inlined
def ready_with(shape, ready, command, clock):
    """`ready_from` with a further request, which may have its command of this class from `clock` on."""
    return smaller(ready, at_edges(shape.step, with_element(filled(FAR), command, clock)))


@inlined
def classes_ready(policy, state, ready, clock):
    """The mask of the classes of which a command may be ready at `clock`; all if the mode changes."""
    return (1 << REQUEST_CLASSES) - 1 if mode_changes(policy, state) else bits(up_to(ready, clock))


@inlined
def mode_changes(policy, state):
    """Whether the watermarks end or begin write mode."""
    reads, writes = state.queued[READS], state.queued[WRITES]
    if state.value[WRITE_MODE]:
        return writes < policy.write_mode_below and reads > 0
    return writes > policy.write_mode_from or reads == 0


# ---- Active requests


@inlined
def due_active_lists(shape, state, credit, clock):
    """The active lists to look at: bit rank * REQUEST_CLASSES + class."""
    slots_at, due = free_slots_at(credit), 0
    for rank in range(shape.ranks):
        active = vector_at(state.active_not_ready_until, assume_nonnegative(rank))
        ready = up_to(larger(rank_ready_at(state, rank, slots_at), active), clock)
        due |= (bits(ready) & (1 << RD | 1 << WR)) << rank * REQUEST_CLASSES
    return due


@inlined
def choose_active(shape, state, credit, blocking, clock):
    """The oldest ready active request that no other master blocks.

    Returns its active list, or -1; its place there; the lists with a request that is blocked, as bits of
    `due_active_lists`; the clock before which no other of these lists is ready.
    """
    best, best_place, best_arrived, blocked, later = -1, 0, FAR, 0, FAR
    due = due_active_lists(shape, state, credit, clock)
    while due != 0:
        bit = assume_nonnegative(lowest(due))
        due &= due - 1
        active_list, command = bit // REQUEST_CLASSES * 2 + bit % REQUEST_CLASSES - RD, bit % REQUEST_CLASSES
        active_list, first, is_ready = assume_nonnegative(active_list), FAR, False
        for place in range(state.active_size[active_list]):
            bank = active_bank(state, active_list, place)
            ready_at = bank_ready_at(state, command, bank)
            if ready_at > clock:
                first = min(first, ready_at)
                continue
            is_ready = True
            if is_blocked(blocking, active_list & 1, True, bank):
                blocked |= 1 << bit
                continue
            arrived = state.active_arrived[assume_nonnegative(bank)]
            if arrived < best_arrived:
                best, best_place, best_arrived = active_list, place, arrived
            break
        if not is_ready:
            set_element(state.active_not_ready_until, active_list // 2, command, first)
        later = min(later, first)
    return best, best_place, blocked, later


@outlined
def choose_awaited(shape, state, credit, blocking, clock):
    """The oldest ready active request whose bank waits for its refresh: its active list, or -1; its place."""
    best, best_place, best_arrived = -1, 0, FAR
    for active_list in range(2 * shape.ranks):
        rank, command = assume_nonnegative(active_list // 2), RD + active_list % 2
        if not allows(shape.step, state, command):
            continue
        ready_from = max(state.rank_ready[rank, command], credit if command == RD else 0)
        for place in range(state.active_size[active_list] * (state.awaits_refresh[rank] != 0)):
            bank = assume_nonnegative(active_bank(state, active_list, place))
            arrived = state.active_arrived[bank]
            if state.awaits_refresh[rank] & bank_bit(bank) == 0 or arrived >= best_arrived:
                continue
            if state.open_row[bank] < 0 or is_blocked(blocking, active_list & 1, True, bank):
                continue
            if max(ready_from, bank_ready_at(state, command, bank)) <= clock:
                best, best_place, best_arrived = active_list, place, arrived
    return best, best_place


@inlined
def delay_active(state, lists, clock):
    """Set the clock before which nothing of these active lists (bits of `due_active_lists`) is ready."""
    while lists != 0:
        bit = assume_nonnegative(lowest(lists))
        lists &= lists - 1
        set_element(state.active_not_ready_until, bit // REQUEST_CLASSES, bit % REQUEST_CLASSES, clock)


@inlined
def ranks_with_lists(shape, lists):
    """The mask of the ranks of active lists (bits of `due_active_lists`)."""
    ranks = 0
    for rank in range(shape.ranks):
        ranks |= (lists >> rank * REQUEST_CLASSES & (1 << REQUEST_CLASSES) - 1 != 0) << rank
    return ranks


# ---- Queued requests


@inlined
def waiting_for(state, queue, chunk, row, command, bank):
    """The requests of a chunk for a bank that wait for a command; row: of the queue and the bank's rank."""
    command = assume_nonnegative(command)
    return state.waiting[chunk, row, command] & state.of_bank[chunk, queue, assume_nonnegative(bank)]


@inlined
def recheck(queues, state, queue, command, rank, clock):
    """Mark requests as perhaps ready if their banks have become ready for a command."""
    row, command = wait_row(queue, rank), assume_nonnegative(command)
    ring = state.not_ready[row, command]
    head, size, first = state.not_ready_head[row, command], state.not_ready_size[row, command], FAR
    while size > 0:
        entry = ring[assume_nonnegative(head & SLOTS - 1)]
        if entry // BANKS > clock:
            first = entry // BANKS
            break
        bank = assume_nonnegative(entry & BANKS - 1)
        chunks = chunks_with(queues, state, queue, bank)
        while chunks != 0:
            chunk = assume_nonnegative(lowest(chunks))
            chunks &= chunks - 1
            state.maybe_ready[chunk, queue] |= waiting_for(state, queue, chunk, row, command, bank)
        head += 1
        size -= 1
    state.not_ready_head[row, command] = head
    state.not_ready_size[row, command] = size
    set_element(state.not_ready_until, row, command, first)


@inlined
def oldest_candidates(channel, queue, slots_at, clock):
    """The requests of the oldest chunk that may be ready and whose rank is; all chunks are rechecked."""
    shape, state = channel.shape, channel.state
    oldest, found, due = chunk_at(shape.queues, state, queue, 0), filled(0), 0
    for rank in range(shape.ranks):
        row, ready = wait_row(queue, rank), rank_ready_at(state, rank, slots_at)
        found = either(found, both(up_to(ready, clock), vector_at(state.waiting[oldest], row)))
        due_from = larger(ready, vector_at(state.not_ready_until, row))
        due |= bits(up_to(due_from, clock)) << rank * REQUEST_CLASSES
    while due != 0:  # classes of ranks for which a bank may have become ready
        bit = assume_nonnegative(lowest(due))
        due &= due - 1
        recheck(shape.queues, state, queue, bit % REQUEST_CLASSES, bit // REQUEST_CLASSES, clock)
    if channel.policy.scheduler.row_hit_first:
        filter_row_hits(shape, state, queue)
    return merged(found) & state.maybe_ready[oldest, queue]


@inlined
def candidates(shape, state, queue, chunk, slots_at, clock):
    """`oldest_candidates` for another chunk after it."""
    found = filled(0)
    for rank in range(shape.ranks):
        waiting = vector_at(state.waiting[chunk], wait_row(queue, rank))
        found = either(found, both(up_to(rank_ready_at(state, rank, slots_at), clock), waiting))
    return merged(found) & state.maybe_ready[chunk, queue]


@inlined
def set_not_ready(queues, state, queue, chunk, command, bank, ready_at):
    """A bank is not ready for a command before `ready_at`; returns a chunk's requests that wait for that."""
    row = wait_row(queue, bank // BANKS_PER_RANK)
    waiting = waiting_for(state, queue, chunk, row, command, bank)
    if add_not_ready(state, row, command, bank, ready_at):
        chunks = chunks_with(queues, state, queue, bank)
        while chunks != 0:
            each = assume_nonnegative(lowest(chunks))
            chunks &= chunks - 1
            state.maybe_ready[each, queue] &= ~waiting_for(state, queue, each, row, command, bank)
    return waiting


@inlined
def older_hit(shape, state, queue, bank, number):
    """Whether a chunk before the one of this number has a hit for a bank."""
    hits, row = 0, wait_row(queue, bank // BANKS_PER_RANK)
    for older in range(number):
        chunk = chunk_at(shape.queues, state, queue, older)
        hits |= waiting_for(state, queue, chunk, row, RD + queue, bank)
    return hits != 0


@outlined
def filter_row_hits(shape, state, queue):
    """FRFCFS-RowHit: a request that would close the row of an older hit waits until a hit is served."""
    queue = assume_nonnegative(queue)
    for number in range(chunks_in_use(shape.queues, state, queue)):
        chunk = chunk_at(shape.queues, state, queue, number)
        tail, younger = state.tail[chunk, queue], 0
        for rank in range(assume_nonnegative(shape.ranks)):
            row = wait_row(queue, rank)
            waiting = state.waiting[chunk, row, PRE]
            conflicts, hits = rotate(waiting, tail), rotate(state.waiting[chunk, row, RD + queue], tail)
            while conflicts != 0:
                bit = conflicts & -conflicts
                slot = chunk * SLOTS + (lowest(conflicts) + tail & SLOTS - 1)
                bank = assume_nonnegative(slot_bank(state, queue, slot))
                same = state.of_bank[chunk, queue, bank]
                conflicts &= ~rotate(same, tail)
                if rotate(same, tail) & hits & (bit - 1) != 0 or older_hit(shape, state, queue, bank, number):
                    younger |= same & waiting
        state.maybe_ready[chunk, queue] &= ~younger


@inlined
def choose_queued(channel, queue, credit, blocking, held, stalled_ranks, clock):
    """The oldest ready request of a queue that no other master blocks.

    Returns its slot, or -1; its next command; the mask of those that are blocked, of the last chunk looked
    at; the mask of their ranks.
    """
    shape, state = channel.shape, channel.state
    queue, slots_at = assume_nonnegative(queue), barred(shape.step, state, free_slots_at(credit))
    maybe_ready, blocked, ranks = oldest_candidates(channel, queue, slots_at, clock), 0, 0
    for number in range(chunks_in_use(shape.queues, state, queue)):
        chunk = chunk_at(shape.queues, state, queue, number)
        if number > 0:
            maybe_ready = candidates(shape, state, queue, chunk, slots_at, clock)
        maybe_ready &= ~held_in(shape.queues, state, queue, chunk, held, stalled_ranks)
        tail = state.tail[chunk, queue]
        maybe_ready = rotate(maybe_ready, tail)
        while maybe_ready != 0:
            slot = assume_nonnegative(chunk * SLOTS + (lowest(maybe_ready) + tail & SLOTS - 1))
            bank = assume_nonnegative(slot_bank(state, queue, slot))
            command = assume_nonnegative(next_class(state, queue, bank, state.slot_row[queue, slot]))
            ready_at, rank = bank_ready_at(state, command, bank), bank // BANKS_PER_RANK
            if ready_at > clock:
                passed = set_not_ready(shape.queues, state, queue, chunk, command, bank, ready_at)
            elif is_blocked(blocking, queue, False, bank):
                passed = state.of_bank[chunk, queue, bank]
                blocked |= passed
                ranks |= 1 << rank
            elif avoids(shape.step, state, bank):
                passed = state.of_bank[chunk, queue, bank]
            elif command == PRE and also_pinned(shape.rows, shape, state, rank) & bank_bit(bank) != 0:
                passed = waiting_for(state, queue, chunk, wait_row(queue, rank), PRE, bank)
            else:
                return slot, command, blocked, ranks
            maybe_ready &= ~rotate(passed, tail)
    return -1, ACT, blocked, ranks


# ---- Maintenance


@inlined
def activated_writes(state, rank):
    """The banks of a rank with an active write."""
    banks, active_list = 0, rank * 2 + WRITES
    for place in range(state.active_size[active_list]):
        banks |= bank_bit(active_bank(state, active_list, place))
    return banks


@inlined
def banks_that_wait(shape, state, rank, has_room, other_has_room):
    """The banks that maintenance must not close yet.

    An active read pins its bank only while the sink has room for its data: it might wait long for room,
    and refresh cannot. `other_has_room`: the same of the sink of another controller of these banks.
    """
    others = state.pinned_by_other[rank]
    own = state.pinned_banks[rank] & ~others | also_pinned(shape.rows, shape, state, rank)
    if not has_room:
        own &= activated_writes(state, rank)
    return own | others if other_has_room else own


@inlined
def maintenance_ready_at(shape, state, command, first):
    """The first clock at which maintenance may go to its banks, of which `first` is the first."""
    at = state.rank_ready[first // BANKS_PER_RANK, command]
    if command == PRE:
        at = max(at, bank_ready_at(state, PRE, first))
    elif command == PRESB or command == REFSB:
        for group in range(shape.groups_at_once):
            at = max(at, state.bank_ready[first + group * BANKS_PER_GROUP, command])
        if command == REFSB and shape.pair > 0:
            at = max(at, state.bank_ready[first + shape.pair, command])
        if shape.groups_at_once == 1:
            at = max(at, state.group_ready[first // BANKS_PER_GROUP, command])
    return at


@inlined
def turn_to_open(shape, state, place):
    """Of a pair of banks to refresh, put the open one into waiting maintenance, else the first."""
    bank = assume_nonnegative(state.pending_bank[place] & BANKS - 1)
    of_rank = bank % BANKS_PER_RANK
    first = bank - of_rank + of_rank % shape.pair
    open_banks = state.open_banks[bank // BANKS_PER_RANK]
    first_is_open, other_is_open = open_banks & bank_bit(first), open_banks & bank_bit(first + shape.pair)
    chosen = first + shape.pair if first_is_open == 0 and other_is_open != 0 else first
    state.pending_bank[place] += chosen - bank


@outlined
def choose_maintenance(shape, state, place, credit, other_credit, clock):
    """The next command of waiting maintenance: (its class, when it becomes ready; -1, FAR while
    active requests keep it from closing banks).

    credit, other_credit: the clocks from which the sinks have room, see `banks_that_wait`.
    """
    final = state.pending_class[place]
    if final == REFSB and shape.pair > 0:
        turn_to_open(shape, state, place)
    first = assume_nonnegative(state.pending_bank[place] & BANKS - 1)
    rank = first // BANKS_PER_RANK
    banks = -1 if final == REFAB else bank_bit(first) if final == PRE else same_banks(shape, first)
    command = final
    if final == REFSB and shape.pair > 0:
        banks = bank_bit(first)  # the first of the pair that is open, if one is
    if final == PRE or state.open_banks[rank] & banks != 0:
        if banks_that_wait(shape, state, rank, credit <= clock, other_credit <= clock) & banks != 0:
            return -1, FAR
        command = PREAB if final == REFAB else PRESB if final == REFSB else PRE
    return command, maintenance_ready_at(shape, state, command, first)


@inlined
def waits_until(shape, state, place, clock):
    """The twin of `dram.choosing.waits_until`."""
    if shape.refresh_after_third == FAR:
        return 0
    first = assume_nonnegative(state.pending_bank[place] & BANKS - 1)
    rank = first // BANKS_PER_RANK
    third_last = state.recent_acts[rank, assume_nonnegative(state.oldest_act[rank] + 1 & 3)]
    if third_last + shape.refresh_after_third >= clock:
        return 0
    until = state.bank_ready[first, REFSB] + state.of_window[0, ACT] // 2
    return until if until > clock else 0


@outlined
def drop_precharges(shape, state):
    """Drop waiting PREs of banks that another command has closed."""
    place = 0
    while place < state.pending_size:
        bank = assume_nonnegative(state.pending_bank[place] & BANKS - 1)
        if state.pending_class[place] == PRE and state.open_row[bank] < 0:
            drop_pending(shape, state, place)
        else:
            place += 1


@outlined
def choose_pending(shape, state, blocking, credit, other_credit, clock):
    """The first waiting maintenance that can issue, see `dram.choosing.choose_priority`.

    Returns its place, or -1; the class of its command; the clock before which none is ready; whether queued
    requests have to wait; the masks of the ranks whose command bus is taken, and on which activations have to
    wait.
    """
    next_ready, taken, behind, stalled_ranks = FAR, 0, 0, 0
    rank_of_first = assume_nonnegative(state.pending_bank[0] & BANKS - 1) // BANKS_PER_RANK
    for place in range(state.pending_size):
        bank, bars = assume_nonnegative(state.pending_bank[place] & BANKS - 1), bars_queues(state, place)
        rank = bank // BANKS_PER_RANK
        if is_bus_taken(blocking, rank):
            taken |= 1 << rank
        elif blocking is None or rank == rank_of_first:
            command, ready_at = choose_maintenance(shape, state, place, credit, other_credit, clock)
            in_order = command != REFSB or behind >> rank & 1 == 0
            waits = 0
            if command == REFSB and state.pending_bank[place] < BANKS and in_order and not bars:  # no RFM
                waits = waits_until(shape, state, place, max(ready_at, clock))
            ready_at = max(ready_at, waits)
            is_ready = in_order and ready_at <= clock
            if is_ready and not keeps_maintenance(shape.step, shape, state, place, command):
                return place, command, FAR, bars, taken, 0
            next_ready = min(next_ready, ready_at)
            in_turn = command == REFSB and in_order and waits == 0
            if in_turn and ready_at < clock + shape.activate_to_refresh:
                stalled_ranks |= 1 << rank
        if bars:
            return -1, -1, next_ready, True, taken, 0
        behind |= 1 << rank
    return -1, -1, next_ready, False, taken, stalled_ranks
