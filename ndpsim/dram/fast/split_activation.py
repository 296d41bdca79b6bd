"""The fast controller of LPDDR5 and LPDDR6: activations in two halves, and a data clock that stops."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ndpsim.base.jit import inlined, outlined
from ndpsim.dram.fast import step as fast
from ndpsim.dram.fast.banks import activate_request, active_bank, bank_bit, leave_active_queue, same_banks
from ndpsim.dram.fast.choose import classes_ready, ready_from
from ndpsim.dram.fast.fields import (
    ACT,
    BANKS,
    BANKS_PER_RANK,
    BEFORE_RD,
    OTHER_HALF,
    PRE,
    QUEUES,
    RANKS,
    RD,
    READS,
    REFAB,
    REFSB,
    SLOTS,
)
from ndpsim.dram.fast.issue import bank_node, count_first, leave_queue, note_activation, record_command
from ndpsim.dram.fast.issue import count_command as count_fast
from ndpsim.dram.fast.points import chunk_at, chunks_in_use, lacks_rows, record_activated
from ndpsim.dram.fast.shape import FROM_QUEUE, NOWHERE, issued
from ndpsim.dram.fast.signature import carry
from ndpsim.dram.fast.slots import slot_bank
from ndpsim.dram.fast.timing import bank_ready_at as fast_ready_at
from ndpsim.dram.fast.timing import propagate_bank, update_window
from ndpsim.dram.fast.vectors import (
    assume_nonnegative,
    filled,
    larger,
    lowest,
    plus,
    raise_times,
    smaller,
    with_element,
)
from ndpsim.dram.state import (
    FAR,
    OPEN_CLOCKS,
    OWN_COUNTERS,
    PLACE,
    ROW_MISSES,
    ROW_SHIFT,
)

_IN_QUEUE = QUEUES * RANKS  # place of an announced request: from here on in a queue, below in an active list
#: Places in `value` of the counters of `dram.controllers.split_activation`.
ANNOUNCED, UNANNOUNCED, FORCED, DEFERRED = range(OWN_COUNTERS, OWN_COUNTERS + 4)


class OnFast(NamedTuple):
    """The parameters on the fast controller, with values from the tables; times in clocks."""

    is_always_prepared: int
    within: int  # from the first half of an activation to the second
    of_rank: int  # 1: each rank has its own data clock
    keeps_reads: int  # for which the data clock runs on after a read
    keeps_writes: int
    reserved: int  # of the announcing command on the command bus
    leads_reads: int  # from the announcing command to its read
    leads_writes: int
    cycles: int  # of every command on the command bus
    from_second: int  # 1: distances of an activation count from its second half
    window_of_second: int  # 1: so does the window (tFAW)
    keeps_refreshes: int  # 1: no refresh issues between the halves
    announces_ahead: int  # 1: see `announced_ahead`
    opens_at_once: int  # 1: the second half issues as soon as it can


# Places in `opening`.
_IS_OPENING, _BANK, _ROW, _REQUEST, _ARRIVED, _QUEUE_OF, _DUE_AT, _BUS_FREE = range(8)
# What is announced, as places in `announced`: the active list of the request, counted from 1, and its place;
# or behind those lists its queue, and its number in the source.
_WHERE, _WHICH = range(2)


def request_numbers(state: Any) -> list[NDArray[np.int64]]:
    """Views of the numbers of requests in the source that `opening` and `announced` have."""
    of_announced = state["announced"][_WHICH : _WHICH + 1]
    of_queue = [of_announced] if state["announced"][_WHERE] > _IN_QUEUE else []
    return [state["opening"][_REQUEST : _REQUEST + 1], *of_queue]


@inlined
def step_alone(rules, channel, ready, credit, clock):
    """A step of a channel without agents, see `fast.step`."""
    shape, state, commands = channel.shape, channel.state, channel.commands
    value, opening = state.value, state.opening
    if state.announced[_WHERE] > 0:
        at = issue_what_is_announced(rules, channel, credit, clock)
        if at <= clock:
            opening[_BUS_FREE] = clock + rules.cycles
        return other_command(FROM_QUEUE if at <= clock else NOWHERE, at)
    opens_from = opening[_BUS_FREE] if opening[_IS_OPENING] else FAR
    if opens_from <= clock and (rules.opens_at_once or opening[_DUE_AT] <= clock):
        open_row(rules, shape, state, commands, clock)
        value[FORCED] += 1
        return other_command(FROM_QUEUE, FAR)
    if opens_from <= clock and is_alone(channel, credit, clock):
        open_row(rules, shape, state, commands, clock)
        value[DEFERRED] += 1
        return other_command(FROM_QUEUE, FAR)
    outcome = fast.step(channel, None, credit, 0, clock)
    if outcome.origin != NOWHERE:
        opening[_BUS_FREE] = clock + rules.cycles
        return outcome
    if rules.announces_ahead:
        active_list, place = announced_ahead(rules, shape, state, credit, clock)
        if active_list >= 0:
            bank = assume_nonnegative(active_bank(state, active_list, place))
            announce(rules, channel, active_list % QUEUES, bank, active_list, place, clock)
            return other_command(FROM_QUEUE, FAR)
    if opens_from <= clock:
        open_row(rules, shape, state, commands, clock)
        value[DEFERRED] += 1
        return other_command(FROM_QUEUE, FAR)
    return other_command(NOWHERE, min(outcome.next_ready, opens_from))


@inlined
def is_alone(channel, credit, clock):
    """Whether no command but an activation may be ready. `ready` does not tell: to carry it takes longer."""
    policy, shape, state = channel.policy, channel.shape, channel.state
    if state.pending_size > 0 or lacks_rows(shape.rows, shape, state):
        return False
    return classes_ready(policy, state, ready_from(shape, state, credit, 0), clock) & ~(1 << ACT) == 0


@inlined
def other_command(origin, next_ready):
    """A step with a command that has no class, or without one."""
    return issued(origin, -1, -1, -1, -1, next_ready, 0)


@inlined
def issue_what_is_announced(rules, channel, credit, clock):
    """Issue the column command that was announced, if it is ready; returns when it is."""
    shape, state = channel.shape, channel.state
    where, place, slot = state.announced[_WHERE] - 1, state.announced[_WHICH], 0
    active_list, queue = where, where & 1
    if where >= _IN_QUEUE:
        active_list, slot = -1, slot_of(shape, state, queue, place)
        bank = slot_bank(state, queue, slot)
    else:
        bank = active_bank(state, active_list, place)
    bank, command = assume_nonnegative(bank), RD + queue
    at = max(state.rank_ready[bank // BANKS_PER_RANK, command], fast_ready_at(state, command, bank))
    if command == RD:
        at = max(at, credit)
    if at <= clock:
        state.value[ANNOUNCED] += 1
        keep_clock(rules, state, queue, bank, clock)
        fast.issue_chosen(channel, active_list, place, queue, slot, clock)
        state.announced[_WHERE] = 0
    return at


@inlined
def clock_of(rules, bank):
    """The place of a bank's data clock in `prepared_until`."""
    return 1 + bank // BANKS_PER_RANK if rules.of_rank else 0


@inlined
def keep_clock(rules, state, queue, bank, clock):
    """The twin of `keep_prepared`."""
    at, keeps = clock_of(rules, bank), rules.keeps_writes if queue else rules.keeps_reads
    state.prepared_until[at] = max(state.prepared_until[at], clock + keeps)


@outlined
def slot_of(shape, state, queue, request):
    """The slot of a queued request; its queue may have been compacted since the choice."""
    for number in range(chunks_in_use(shape.queues, state, queue)):
        chunk = chunk_at(shape.queues, state, queue, number)
        mask = state.used[chunk, queue]
        while mask != 0:
            slot = chunk * SLOTS + (lowest(mask) & SLOTS - 1)
            if state.slot_request[queue, slot] == request:
                return slot
            mask &= mask - 1
    return 0


@inlined
def count_and_record(shape, state, commands, command, bank, row, clock):
    """Count a command to a bank and append it to the trace, when one is kept."""
    count_fast(state, command, clock)
    if commands.entry.shape[0] > 0:
        record_command(commands, command, bank_node(shape, bank), row, -1, clock)


@inlined
def take_bus(rules, shape, state, clock):
    """Another command may follow when the bus is free."""
    if rules.cycles > 1:
        for rank in range(assume_nonnegative(shape.ranks)):
            raise_times(state.rank_ready, rank, state.of_bus, 0, clock)


@outlined
def open_row(rules, shape, state, commands, clock):
    """The second half of an activation: the row is open (`complete` of the plain controller)."""
    opening = state.opening
    bank, row, queue = (
        assume_nonnegative(opening[_BANK]),
        opening[_ROW],
        assume_nonnegative(opening[_QUEUE_OF]),
    )
    count_and_record(shape, state, commands, OTHER_HALF, bank, row, clock)
    state.value[OPEN_CLOCKS] -= clock
    opening[_IS_OPENING], opening[_BUS_FREE] = 0, clock + rules.cycles
    if rules.from_second:
        propagate_bank(shape, state, ACT, bank, clock)
    else:
        take_bus(rules, shape, state, clock)
    if rules.window_of_second:
        update_window(shape, state, bank // BANKS_PER_RANK, clock)
    record_activated(shape.rows, state, bank)
    activate_request(shape.queues, state, queue, bank, row, opening[_REQUEST], opening[_ARRIVED])
    note_activation(shape, state, bank, clock)


@inlined
def barred(rules, state, slots_at):
    """See `fast.points`: no second activation."""
    return with_element(slots_at, ACT, FAR if state.opening[_IS_OPENING] else 0)


@inlined
def is_busy(rules, state):
    return state.opening[_IS_OPENING] + state.announced[_WHERE] != 0


@inlined
def keeps_maintenance(rules, shape, state, place, command):
    if state.opening[_IS_OPENING] == 0:
        return False
    if rules.keeps_refreshes and (command == REFAB or command == REFSB):
        return True
    bank, first = state.opening[_BANK], assume_nonnegative(state.pending_bank[place] & BANKS - 1)
    if bank // BANKS_PER_RANK != first // BANKS_PER_RANK:
        return False
    return state.pending_class[place] == REFAB or same_banks(shape, first) & bank_bit(bank) != 0


@inlined
def prepare(rules, channel, queue, bank, where, which, clock):
    """The twin of `instead`, of a column command."""
    state = channel.state
    opening = state.opening
    can_open = opening[_BUS_FREE] <= clock and opening[_IS_OPENING]
    opening[_BUS_FREE] = clock + rules.cycles  # one command or another issues now
    if rules.is_always_prepared or clock < state.prepared_until[clock_of(rules, bank)]:
        state.value[UNANNOUNCED] += 1
        keep_clock(rules, state, queue, bank, clock)
        return False
    if can_open and opening[_DUE_AT] <= clock + rules.reserved:
        open_row(rules, channel.shape, state, channel.commands, clock)
        state.value[DEFERRED] += 1
        return True
    announce(rules, channel, queue, bank, where, which, clock)
    return True


@inlined
def announce(rules, channel, queue, bank, where, which, clock):
    """Announce column commands to a rank (`dram.controllers.split_activation`)."""
    state = channel.state
    count_and_record(channel.shape, state, channel.commands, BEFORE_RD + queue, bank, -1, clock)
    state.opening[_BUS_FREE] = clock + rules.cycles
    leads = rules.leads_writes if queue else rules.leads_reads
    if leads > 1:  # as in `announce`
        state.bank_ready[bank, RD + queue] = max(state.bank_ready[bank, RD + queue], clock + leads)
    state.announced[_WHERE], state.announced[_WHICH] = where + 1, which


@inlined
def active_from(rules, state, rank, times):
    """See `fast.points`: if its data clock has stopped, a request may be announced earlier."""
    if rules.announces_ahead == 0:
        return times
    running_until = state.prepared_until[1 + rank if rules.of_rank else 0]
    return smaller(times, larger(plus(times, filled(-rules.reserved)), filled(running_until)))


@outlined
def announced_ahead(rules, shape, state, credit, clock):
    """The oldest active request that will be ready right after its announcement: its active list, or -1; its
    place. See `dram.controllers.split_activation`.
    """
    if state.opening[_BUS_FREE] > clock:
        return -1, 0
    if state.opening[_IS_OPENING] and state.opening[_DUE_AT] <= clock + rules.reserved:
        return -1, 0
    best, best_place, best_arrived, ready_from = -1, 0, FAR, clock + rules.reserved
    for active_list in range(QUEUES * shape.ranks):
        rank, command = active_list // QUEUES, RD + active_list % QUEUES
        at_rank = max(state.rank_ready[rank, command], credit if command == RD else 0)
        running_until = state.prepared_until[1 + rank if rules.of_rank else 0]
        if max(at_rank, state.active_not_ready_until[rank, command]) > ready_from or running_until > clock:
            continue
        for place in range(state.active_size[active_list]):
            bank = assume_nonnegative(active_bank(state, active_list, place))
            arrived = state.active_arrived[bank]
            is_ready = state.open_row[bank] >= 0 and fast_ready_at(state, command, bank) <= ready_from
            if is_ready and arrived < best_arrived:
                best, best_place, best_arrived = active_list, place, arrived
    return best, best_place


@inlined
def instead_of_active(rules, channel, active_list, place, bank, clock):
    state = channel.state
    if state.open_row[bank] >= 0:
        return prepare(rules, channel, active_list & 1, bank, active_list, place, clock)
    # Its row was closed: it is active again after the row is opened, and its bank then counts twice.
    request, arrived = state.active_request[bank], state.active_arrived[bank]
    row = channel.source.place[assume_nonnegative(request)] >> ROW_SHIFT
    leave_active_queue(state, active_list, place)
    state.pinned_banks[bank // BANKS_PER_RANK] &= ~bank_bit(bank)
    state.reactivated[bank // BANKS_PER_RANK] |= bank_bit(bank)
    begin_opening(rules, channel, active_list & 1, bank, row, request, arrived, clock)
    return True


@inlined
def begin_opening(rules, channel, queue, bank, row, request, arrived, clock):
    """The first half of an activation (`begin` of the plain controller)."""
    shape, state = channel.shape, channel.state
    opening = state.opening
    count_and_record(shape, state, channel.commands, ACT, bank, row, clock)
    if rules.from_second:
        take_bus(rules, shape, state, clock)
    else:
        propagate_bank(shape, state, ACT, bank, clock)
    if not rules.window_of_second:
        update_window(shape, state, bank // BANKS_PER_RANK, clock)
    opening[_IS_OPENING], opening[_BANK], opening[_ROW], opening[_REQUEST] = 1, bank, row, request
    opening[_ARRIVED], opening[_QUEUE_OF], opening[_DUE_AT] = arrived, queue, clock + rules.within


@inlined
def instead_of_queued(rules, channel, queue, slot, command, bank, clock):
    shape, state = channel.shape, channel.state
    if command == PRE:
        return False
    request = state.slot_request[queue, slot]
    if command != ACT:
        return prepare(rules, channel, queue, bank, _IN_QUEUE + queue, request, clock)
    row, arrived = state.slot_row[queue, slot], state.slot_arrived[queue, slot]
    count_first(shape.queues, state, queue, slot, ROW_MISSES)
    leave_queue(shape.queues, state, channel.source, queue, slot, bank, arrived, clock)
    begin_opening(rules, channel, queue, bank, row, request, arrived, clock)
    return True


@inlined
def latest_opening(rules, state):
    if state.opening[_IS_OPENING] == 0:
        return -1
    return FAR if state.opening[_QUEUE_OF] else state.opening[_REQUEST]


@inlined
def carry_opening(state, table, at, row, clock, writes):
    """The request whose activation has begun."""
    opening, first, old = state.opening, state.value[PLACE], state.opening[_IS_OPENING] == 0
    opening[_IS_OPENING] = carry(table, at, opening[_IS_OPENING], writes)
    opening[_BANK] = carry(table, at + 1, 0 if old else opening[_BANK], writes)
    opening[_ROW] = row + carry(table, at + 2, 0 if old else opening[_ROW] - row, writes)
    opening[_REQUEST] = first + carry(table, at + 3, 0 if old else opening[_REQUEST] - first, writes)
    opening[_ARRIVED] = clock + carry(table, at + 4, 0 if old else opening[_ARRIVED] - clock, writes)
    opening[_DUE_AT] = clock + carry(table, at + 5, 0 if old else max(opening[_DUE_AT] - clock, 0), writes)
    opening[_QUEUE_OF] = READS
    return at + 6


@inlined
def carry_controller(rules, state, table, at, row, clock, writes):
    opening, announced, first = state.opening, state.announced, state.value[PLACE]
    at = carry_opening(state, table, at, row, clock, writes)
    opening[_BUS_FREE] = clock + carry(table, at, max(opening[_BUS_FREE] - clock, 0), writes)
    announced[_WHERE] = carry(table, at + 1, announced[_WHERE], writes)
    origin = first if announced[_WHERE] > _IN_QUEUE else 0  # of the place of an active request, or its number
    which = 0 if announced[_WHERE] == 0 else announced[_WHICH] - origin
    announced[_WHICH] = origin + carry(table, at + 2, which, writes)
    at += 3
    for number in range(1 + RANKS if rules.of_rank else 1):
        until = carry(table, at + number, max(state.prepared_until[number] - clock, 0), writes)
        state.prepared_until[number] = clock + until
    return at + (1 + RANKS if rules.of_rank else 1)


@inlined
def allows(rules, state, command):
    return command != ACT or state.opening[_IS_OPENING] == 0


@inlined
def may_close(rules, state):
    """See `fast.points`: an announced command has no auto-precharge."""
    return state.announced[_WHERE] == 0
