"""Issues commands and updates the state."""

from __future__ import annotations

from ndpsim.base.jit import inlined, outlined, overridable
from ndpsim.dram.fast.banks import (
    activate_request,
    active_bank,
    bank_bit,
    bars_queues,
    close_bank,
    close_banks,
    drop_pending,
    is_barred,
    leave_active_queue,
    push_refresh,
    release_bank,
    requeue_reads,
    same_banks,
)
from ndpsim.dram.fast.fields import (
    ACT,
    BANKS,
    BANKS_PER_GROUP,
    BANKS_PER_RANK,
    GROUPS_PER_RANK,
    PRE,
    PREAB,
    RD,
    READS,
    READS_LOGGED,
    REFAB,
    REFSB,
    RFMAB,
    RFMSB,
    SLOTS,
)
from ndpsim.dram.fast.points import (
    chunk_of,
    column_class,
    finish_queued,
    may_close,
    recheck_conflicts,
    record_activated,
    record_column,
)
from ndpsim.dram.fast.slots import slot_bank, take_out
from ndpsim.dram.fast.state import COMMAND_OF_CLASS
from ndpsim.dram.fast.timing import (
    bank_ready_at,
    propagate_activate,
    propagate_bank,
    propagate_same_banks,
    propagate_to_ranks,
)
from ndpsim.dram.fast.vectors import assume_nonnegative, lowest
from ndpsim.dram.issuing import note_idle
from ndpsim.dram.maintenance import end_pause
from ndpsim.dram.sink import FINISHED, credit_clock, take_burst
from ndpsim.dram.spec.standard import SAME_BANKS
from ndpsim.dram.state import (
    ALL_RANKS,
    DATA_END,
    FAR,
    FIRST_COMMAND,
    OPEN_CLOCKS,
    PAUSED_UNTIL,
    READ_LATENCY,
    READ_QUEUE,
    READS_SERVED,
    REFRESH_FROM,
    REFRESH_UNTIL,
    RFM_BY_REFRESH,
    RFM_BY_RFM,
    RFM_CLEARS,
    RFM_COMMAND,
    RFM_OWN_BANK,
    RFM_SCOPE,
    RFM_THRESHOLD,
    ROW_CONFLICTS,
    ROW_HITS,
    ROW_MISSES,
    SERVED,
    WRITE_QUEUE,
)


@inlined
def bank_node(shape, bank):
    """The bank's number among all nodes, see `dram.state.Nodes`."""
    group = bank // BANKS_PER_RANK * shape.bankgroups + bank // BANKS_PER_GROUP % GROUPS_PER_RANK
    return shape.first_bank + group * shape.banks_per_group + bank % BANKS_PER_GROUP


@inlined
def is_full(commands):
    """Whether a recorded trace lacks room for the commands of another step, which are at most two."""
    return 0 < commands.entry.shape[0] <= commands.length[0] + 1


@outlined
def record_command(commands, command, node, row, column, clock):
    """Append a command to the trace."""
    line = commands.length[0]
    commands.entry[line, 0] = clock
    commands.entry[line, 1] = COMMAND_OF_CLASS[command]
    commands.entry[line, 2] = node
    commands.entry[line, 3] = row
    commands.entry[line, 4] = column
    commands.length[0] = line + 1


@inlined
def count_command(state, command, clock):
    """Count a command."""
    command = assume_nonnegative(command)
    state.issued[command] += 1
    if state.value[FIRST_COMMAND] < 0:
        state.value[FIRST_COMMAND] = clock


@inlined
def record_read(channel, bank, request, arrived, clock):
    """Record that the sink will receive the data of a read."""
    shape, state, sink, latencies = channel.shape, channel.state, channel.sink, channel.latencies
    at_rank, value = state.rank_ready[bank // BANKS_PER_RANK, RD], state.value
    note_idle(shape, value, max(at_rank, bank_ready_at(state, RD, bank)), credit_clock(sink), clock)
    end = clock + shape.read_latency
    value[DATA_END] = end
    value[READ_LATENCY] += end - arrived
    latencies[min(end - arrived, latencies.shape[0] - 1)] += 1
    take_burst(sink, request, end)
    if state.recording != 0:
        log = state.read_log[assume_nonnegative(value[READS_SERVED] & READS_LOGGED - 1)]
        log[0], log[1], log[2] = request, end - arrived, sink.value[FINISHED]
    value[READS_SERVED] += 1


@inlined
def issue_column(channel, queue, bank, row, request, arrived, clock):
    """RD or WR, or that with auto-precharge; returns which."""
    shape, state, commands = channel.shape, channel.state, channel.commands
    command = RD + queue
    if may_close(shape.step, state):
        command = column_class(shape.rows, state, command, bank)
    if queue == READS:
        record_read(channel, bank, request, arrived, clock)
    propagate_bank(shape, state, command, bank, clock)
    record_column(shape.rows, state, command, bank)
    state.value[SERVED] += 1
    count_command(state, command, clock)
    if commands.entry.shape[0] > 0:
        record_command(commands, command, bank_node(shape, bank), row, channel.source.column[request], clock)
    return command


@overridable
def finish_active(rows, queues, state, command, bank, clock):
    """An active request has issued its column command of this class: its bank is no longer pinned."""
    release_bank(queues, state, bank)


@inlined
def issue_active(channel, active_queue, place, clock):
    """The column command of an active request."""
    shape, state = channel.shape, channel.state
    bank, queue = assume_nonnegative(active_bank(state, active_queue, place)), active_queue & 1
    row, request = state.open_row[bank], assume_nonnegative(state.active_request[bank])
    arrived = state.active_arrived[bank]
    command = issue_column(channel, queue, bank, row, request, arrived, clock)
    leave_active_queue(state, active_queue, place)
    finish_active(shape.rows, shape.queues, state, command, bank, clock)


@inlined
def count_first(queues, state, queue, slot, place):
    """Hit, miss or conflict: what the request's first command finds."""
    chunk, slot = assume_nonnegative(chunk_of(queues, slot)), slot & SLOTS - 1
    if not state.counted[chunk, queue] >> slot & 1:
        state.value[place] += 1
        state.counted[chunk, queue] |= 1 << slot


@inlined
def leave_queue(queues, state, source, queue, slot, bank, arrived, clock):
    """A request leaves its queue; its wait is added to the queue's length summed over clocks."""
    state.value[READ_QUEUE if queue == READS else WRITE_QUEUE] += clock - arrived
    take_out(queues, state, source, queue, slot, bank)


@inlined
def note_activation(shape, state, bank, clock):
    """The twin of that of `dram.management`."""
    threshold, bank = state.rfm[RFM_THRESHOLD], assume_nonnegative(bank)
    if threshold > 0:
        state.raa[bank] += 1
        if state.raa[bank] >= threshold:
            request_rfm(shape, state, bank, clock)


@inlined
def first_managed(shape, state, bank):
    """The first of the banks that RFM for a bank addresses."""
    of_rank = bank % BANKS_PER_RANK
    if state.rfm[RFM_COMMAND] == REFAB:
        return bank - of_rank
    if state.rfm[RFM_SCOPE] == SAME_BANKS:
        return bank - of_rank + bank % BANKS_PER_GROUP
    if shape.pair > 0:
        return bank - of_rank + of_rank % shape.pair
    return bank


@outlined
def request_rfm(shape, state, bank, clock):
    """The twin of `dram.management.request`."""
    command, first = state.rfm[RFM_COMMAND], first_managed(shape, state, bank)
    for place in range(state.pending_size):
        alike = state.pending_class[place] == command and state.pending_bank[place] >= BANKS
        if alike and first_managed(shape, state, state.pending_bank[place] - BANKS) == first:
            return
    if state.pending_size == state.pending_bank.shape[0]:
        return
    if (state.rfm[RFM_OWN_BANK] == 0 or command == REFAB) and not is_barred(state):
        state.value[REFRESH_FROM] = clock + 1
    push_refresh(state.rfm[RFM_OWN_BANK], shape, state, command, BANKS + first)
    if state.rfm[RFM_CLEARS]:
        of_all = state.rfm[RFM_CLEARS] == ALL_RANKS and command == REFAB
        rank = bank // BANKS_PER_RANK
        for other in range(shape.ranks):
            if other == rank or of_all:
                lower_counters(shape, state, command, first + (other - rank) * BANKS_PER_RANK, FAR)


@outlined
def lower_counters(shape, state, command, first, amount):
    """See `dram.management`; command: REFAB or REFSB."""
    rank = first // BANKS_PER_RANK
    banks = -1 if command == REFAB else same_banks(shape, first)
    while banks != 0:
        bank = assume_nonnegative(rank * BANKS_PER_RANK + lowest(banks))
        banks &= banks - 1
        state.raa[bank] = max(0, state.raa[bank] - amount)


@inlined
def issue_queued(channel, queue, slot, command, clock):
    """The next command of a queued request."""
    shape, state, source, commands = channel.shape, channel.state, channel.source, channel.commands
    queue, slot, command = assume_nonnegative(queue), assume_nonnegative(slot), assume_nonnegative(command)
    bank, row = assume_nonnegative(slot_bank(state, queue, slot)), state.slot_row[queue, slot]
    request, arrived = assume_nonnegative(state.slot_request[queue, slot]), state.slot_arrived[queue, slot]
    if command == RD + queue:
        count_first(shape.queues, state, queue, slot, ROW_HITS)
        leave_queue(shape.queues, state, source, queue, slot, bank, arrived, clock)
        command = issue_column(channel, queue, bank, row, request, arrived, clock)
        if channel.policy.scheduler.row_hit_first:  # a row that this request kept open may be closed now
            recheck_conflicts(shape.queues, state, queue, bank // BANKS_PER_RANK)
        finish_queued(shape.rows, shape.queues, state, command, bank, clock)
        return
    count_command(state, command, clock)
    if commands.entry.shape[0] > 0:
        record_command(commands, command, bank_node(shape, bank), row if command == ACT else -1, -1, clock)
    if command == ACT:
        count_first(shape.queues, state, queue, slot, ROW_MISSES)
        leave_queue(shape.queues, state, source, queue, slot, bank, arrived, clock)
        state.value[OPEN_CLOCKS] -= clock
        propagate_activate(shape, state, bank, clock)
        record_activated(shape.rows, state, bank)
        activate_request(shape.queues, state, queue, bank, row, request, arrived)
        note_activation(shape, state, bank, clock)
    else:
        count_first(shape.queues, state, queue, slot, ROW_CONFLICTS)
        propagate_bank(shape, state, PRE, bank, clock)
        state.value[OPEN_CLOCKS] += clock
        close_bank(shape.queues, state, bank)


@inlined
def end_round(state, clock):
    """A refresh has issued and is no longer pending; it may be the last of a round."""
    if state.value[PAUSED_UNTIL] < FAR:
        return
    for place in range(state.pending_size):
        refreshes = state.pending_class[place] == REFAB or state.pending_class[place] == REFSB
        if refreshes and state.pending_bank[place] < BANKS:  # no RFM
            return
    end_pause(state.value, clock)


@outlined
def issue_maintenance(shape, state, source, sink, commands, place, command, clock):
    """The next command of waiting maintenance."""
    first = assume_nonnegative(state.pending_bank[place] & BANKS - 1)
    rank, command = first // BANKS_PER_RANK, assume_nonnegative(command)
    to_rank = command == PREAB or command == REFAB
    refreshes = command == REFAB or command == REFSB
    is_rfm, named = refreshes and state.pending_bank[place] >= BANKS, command
    if is_rfm:
        named = RFMAB if command == REFAB else RFMSB
    count_command(state, named, clock)
    if commands.entry.shape[0] > 0:
        record_command(commands, named, 1 + rank if to_rank else bank_node(shape, first), -1, -1, clock)
    if refreshes and state.rfm[RFM_THRESHOLD] > 0:
        amount = state.rfm[RFM_BY_RFM] if is_rfm else state.rfm[RFM_BY_REFRESH]
        lower_counters(shape, state, command, first, amount)
    if to_rank:
        propagate_to_ranks(shape, state, command, rank, clock)
    elif command == PRE:
        propagate_bank(shape, state, PRE, first, clock)
    else:
        propagate_same_banks(shape, state, command, first, clock)
    if refreshes:
        if bars_queues(state, place):
            state.value[REFRESH_UNTIL] = clock + (shape.refresh_cycles if command == REFAB else 0)
        drop_pending(shape, state, place)
        if not is_rfm:
            end_round(state, clock)
    else:
        is_one = command == PRE or shape.pair > 0
        banks = -1 if to_rank else bank_bit(first) if is_one else same_banks(shape, first)
        close_banks(shape.queues, state, rank, banks, clock)
        if command == PRE:
            drop_pending(shape, state, place)
    if sink.servers > 0 and credit_clock(sink) > clock:
        requeue_reads(shape, state, source, clock)
