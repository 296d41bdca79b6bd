"""Everything that follows from a command."""

from __future__ import annotations

from ndpsim._jit import inlined, outlined
from ndpsim.dram.issuing import note_idle
from ndpsim.dram.masks.banks import (
    activate_request,
    active_bank,
    close_bank,
    close_banks,
    leave_active_queue,
    requeue_reads,
    same_banks,
)
from ndpsim.dram.masks.row_points import (
    column_kind,
    finish_active,
    finish_queued,
    note_activated,
    note_column,
)
from ndpsim.dram.masks.segment_points import recheck_conflicts, segment_of
from ndpsim.dram.masks.slots import slot_bank, take_out
from ndpsim.dram.masks.state import (
    ACT,
    ACTIVE_ARRIVED,
    ACTIVE_REQUEST,
    BANKS,
    BANKS_PER_GROUP,
    BANKS_PER_RANK,
    COMMANDS_OF_KINDS,
    COUNTED,
    GROUPS_PER_RANK,
    ISSUED,
    KINDS,
    OPEN_ROW,
    PENDING_BANK,
    PENDING_KIND,
    PENDING_SIZE,
    PRE,
    PREAB,
    PRESB,
    RANK_READY,
    RD,
    READ_LOG,
    READ_LOG_FIELDS,
    READS,
    READS_LOGGED,
    RECORDING,
    REFAB,
    SLOT_ARRIVED,
    SLOT_REQUEST,
    SLOT_ROW,
    SLOTS,
)
from ndpsim.dram.masks.timing import bank_ready_at, note_activate, note_bank, note_rank, note_same_banks
from ndpsim.dram.masks.words import assume_nonnegative
from ndpsim.dram.sink import FINISHED, credit_clock, take_burst
from ndpsim.dram.state import (
    DATA_END,
    FIRST_COMMAND,
    OPEN_CLOCKS,
    READ_LATENCY,
    READ_QUEUE,
    READS_SERVED,
    REFRESH_UNTIL,
    ROW_CONFLICTS,
    ROW_HITS,
    ROW_MISSES,
    SERVED,
    WRITE_QUEUE,
)

__all__ = [
    "bank_node",
    "count_command",
    "drop_first",
    "is_full",
    "issue_active",
    "issue_maintenance",
    "issue_queued",
    "write_down",
]


@inlined
def bank_node(shape, bank):
    """The bank's number among all nodes, see `dram.state.Nodes`."""
    group = bank // BANKS_PER_RANK * shape.bankgroups + bank // BANKS_PER_GROUP % GROUPS_PER_RANK
    first = 1 + shape.ranks + shape.ranks * shape.bankgroups
    return first + group * shape.banks_per_group + bank % BANKS_PER_GROUP


@inlined
def is_full(commands):
    """Whether a trace is kept and has no room for another command."""
    return 0 < commands.entry.shape[0] == commands.length[0]


@outlined
def write_down(commands, kind, node, row, column, clock):
    """Append a command to the trace."""
    line = commands.length[0]
    commands.entry[line, 0] = clock
    commands.entry[line, 1] = COMMANDS_OF_KINDS[kind]
    commands.entry[line, 2] = node
    commands.entry[line, 3] = row
    commands.entry[line, 4] = column
    commands.length[0] = line + 1


@inlined
def count_command(state, kind, clock):
    """Count a command."""
    kind = assume_nonnegative(kind)
    state[ISSUED + kind] += 1
    if state[FIRST_COMMAND] < 0:
        state[FIRST_COMMAND] = clock


@inlined
def note_read(shape, state, latencies, sink, bank, request, arrived, clock):
    """A read's data is on its way to the sink."""
    at_rank = state[RANK_READY + bank // BANKS_PER_RANK * KINDS + RD]
    note_idle(shape, state, max(at_rank, bank_ready_at(state, RD, bank)), credit_clock(sink), clock)
    end = clock + shape.read_latency
    state[DATA_END] = end
    state[READ_LATENCY] += end - arrived
    latencies[min(end - arrived, latencies.shape[0] - 1)] += 1
    take_burst(sink, request, end)
    if state[RECORDING] != 0:
        log = READ_LOG + (state[READS_SERVED] & READS_LOGGED - 1) * READ_LOG_FIELDS
        state[log], state[log + 1], state[log + 2] = request, end - arrived, sink.value[FINISHED]
    state[READS_SERVED] += 1


@inlined
def issue_column(shape, state, latencies, source, sink, commands, queue, bank, row, request, arrived, clock):
    """RD or WR, or that with auto-precharge; returns which."""
    kind = column_kind(shape.rows, state, RD + queue, bank)
    if queue == READS:
        note_read(shape, state, latencies, sink, bank, request, arrived, clock)
    note_bank(shape, state, kind, bank, clock)
    note_column(shape.rows, state, kind, bank)
    state[SERVED] += 1
    count_command(state, kind, clock)
    if commands.entry.shape[0] > 0:
        write_down(commands, kind, bank_node(shape, bank), row, source.column[request], clock)
    return kind


@inlined
def issue_active(shape, state, latencies, source, sink, commands, active_queue, place, clock):
    """The column command of an active request."""
    bank, queue = active_bank(state, active_queue, place), active_queue & 1
    row, request = state[OPEN_ROW + bank], assume_nonnegative(state[ACTIVE_REQUEST + bank])
    arrived = state[ACTIVE_ARRIVED + bank]
    kind = issue_column(
        shape, state, latencies, source, sink, commands, queue, bank, row, request, arrived, clock
    )
    leave_active_queue(state, active_queue, place)
    finish_active(shape.rows, shape.queues, state, kind, bank, clock)


@inlined
def count_first(queues, state, queue, slot, place):
    """Hit, miss or conflict: what the request's first command finds."""
    counted, slot = COUNTED + queue + segment_of(queues, slot), slot & SLOTS - 1
    if not state[counted] >> slot & 1:
        state[place] += 1
        state[counted] |= 1 << slot


@inlined
def leave_queue(queues, state, source, queue, slot, bank, arrived, clock):
    """A request leaves its queue; its wait is added to the queue's length summed over clocks."""
    state[READ_QUEUE if queue == READS else WRITE_QUEUE] += clock - arrived
    take_out(queues, state, source, queue, slot, bank)


@inlined
def issue_queued(policy, shape, state, latencies, source, sink, commands, queue, slot, kind, clock):
    """The next command of a queued request."""
    queue, slot, kind = assume_nonnegative(queue), assume_nonnegative(slot), assume_nonnegative(kind)
    at, bank = queue * SLOTS + slot, slot_bank(state, queue, slot)
    row, request = state[SLOT_ROW + at], assume_nonnegative(state[SLOT_REQUEST + at])
    arrived = state[SLOT_ARRIVED + at]
    if kind == RD + queue:
        count_first(shape.queues, state, queue, slot, ROW_HITS)
        leave_queue(shape.queues, state, source, queue, slot, bank, arrived, clock)
        kind = issue_column(
            shape, state, latencies, source, sink, commands, queue, bank, row, request, arrived, clock
        )
        if policy.scheduler.row_hit_first:  # a row that this request kept open may be closed now
            recheck_conflicts(shape.queues, state, queue, bank // BANKS_PER_RANK)
        finish_queued(shape.rows, shape.queues, state, kind, bank, clock)
        return
    count_command(state, kind, clock)
    if commands.entry.shape[0] > 0:
        write_down(commands, kind, bank_node(shape, bank), row if kind == ACT else -1, -1, clock)
    if kind == ACT:
        count_first(shape.queues, state, queue, slot, ROW_MISSES)
        leave_queue(shape.queues, state, source, queue, slot, bank, arrived, clock)
        state[OPEN_CLOCKS] -= clock
        note_activate(shape, state, bank, clock)
        note_activated(shape.rows, state, bank)
        activate_request(shape.queues, state, queue, bank, row, request, arrived)
    else:
        count_first(shape.queues, state, queue, slot, ROW_CONFLICTS)
        note_bank(shape, state, PRE, bank, clock)
        state[OPEN_CLOCKS] += clock
        close_bank(shape.queues, state, bank)


@inlined
def drop_first(state):
    """The first maintenance that waits is done."""
    state[PENDING_SIZE] -= 1
    for place in range(state[PENDING_SIZE]):
        state[PENDING_KIND + place] = state[PENDING_KIND + place + 1]
        state[PENDING_BANK + place] = state[PENDING_BANK + place + 1]


@outlined
def issue_maintenance(shape, state, source, sink, commands, kind, clock):
    """The next command of the first refresh that waits."""
    first = state[PENDING_BANK] & (BANKS - 1)
    rank = first // BANKS_PER_RANK
    to_rank = kind == PREAB or kind == REFAB
    count_command(state, kind, clock)
    if commands.entry.shape[0] > 0:
        write_down(commands, kind, 1 + rank if to_rank else bank_node(shape, first), -1, -1, clock)
    if to_rank:
        note_rank(shape, state, kind, rank, clock)
    else:
        note_same_banks(shape, state, kind, first, clock)
    if kind == PREAB or kind == PRESB:
        close_banks(shape.queues, state, rank, -1 if to_rank else same_banks(shape, first), clock)
    else:
        state[REFRESH_UNTIL] = clock + (shape.refresh_cycles if kind == REFAB else 0)
        drop_first(state)
    if sink.servers > 0 and credit_clock(sink) > clock:
        requeue_reads(shape, state, source, clock)
