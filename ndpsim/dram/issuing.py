"""Issues commands and updates the state."""

from __future__ import annotations

from ndpsim.base.jit import by_type, inlined
from ndpsim.dram.choosing import bars_queues, end_refresh, forget_all, forget_bank
from ndpsim.dram.maintenance import end_round
from ndpsim.dram.management import lower_after_refresh, note_activation
from ndpsim.dram.queues import copy_entry, remove
from ndpsim.dram.sink import credit_clock, take_burst
from ndpsim.dram.spec.lower import BUSY, CLOSES, INTERVAL, IS_REFRESH, SCOPE
from ndpsim.dram.spec.standard import ACTIVATE, PRECHARGE, READ, READ_AP, WHOLE_RANK, WRITE, WRITE_AP
from ndpsim.dram.state import (
    ACCESSES,
    ACTIVE,
    ACTIVE_COUNT,
    ARRIVED,
    BANK,
    CLOSED_AT,
    CLOSING,
    COLUMN,
    COUNTED,
    DATA_END,
    FINAL,
    FIRST_COMMAND,
    GROUP,
    IDLE_CREDIT,
    IDLE_REFRESH,
    IDLE_ROW,
    INDEX,
    NOT_BEFORE,
    OPEN_CLOCKS,
    OPEN_ROW,
    PRIORITY,
    RANK,
    READ_LATENCY,
    READS,
    READS_SERVED,
    REFRESH_FROM,
    REFRESH_UNTIL,
    ROW,
    ROW_CONFLICTS,
    ROW_HITS,
    ROW_MISSES,
    SERVED,
)
from ndpsim.dram.timing import bank_ready_at, banks_of, banks_per_rank, note_timing


@inlined
def reads(command):
    """Whether a command moves data from its bank."""
    return command == READ or command == READ_AP


@inlined
def reads_or_writes(command):
    """Whether a command moves data."""
    return reads(command) or command == WRITE or command == WRITE_AP


@by_type
def column_command(rows, bank_rows, command, bank):
    """The row policy's form of a command to a bank: perhaps one that also closes the bank."""


@inlined
def count_row(entry, rows, value, queue, slot):
    """Hit, miss or conflict: what the request's first command finds."""
    if entry[queue, COUNTED, slot]:
        return
    row = rows[entry[queue, BANK, slot], OPEN_ROW]
    counter = ROW_MISSES if row < 0 else ROW_HITS if row == entry[queue, ROW, slot] else ROW_CONFLICTS
    value[counter] += 1
    entry[queue, COUNTED, slot] = 1


@inlined
def close_bank(rows, value, bank, clock):
    """A bank closes at `clock`, by whatever command."""
    if rows[bank, OPEN_ROW] >= 0:
        value[OPEN_CLOCKS] += clock
        rows[bank, CLOSED_AT] = clock
    rows[bank, OPEN_ROW] = -1
    rows[bank, ACCESSES] = 0
    rows[bank, CLOSING] = 0


@inlined
def closes_at(tables, ready, command, bank, clock):
    """The clock at which a command closes its bank; for an auto-precharge the first clock of a PRECHARGE."""
    if command == READ_AP:
        return max(ready[bank, PRECHARGE], clock + tables.gap[3, READ, PRECHARGE])
    if command == WRITE_AP:
        return max(ready[bank, PRECHARGE], clock + tables.gap[3, WRITE, PRECHARGE])
    return clock


@inlined
def note_rows(tables, state, command, rank, bank, row, clock):
    """Apply a command to the rows that it addresses."""
    rows, value = state.rows, state.value
    if command == ACTIVATE:
        rows[bank, OPEN_ROW] = row
        value[OPEN_CLOCKS] -= clock
    elif command == READ or command == WRITE:
        rows[bank, ACCESSES] += 1
    elif command <= WRITE_AP:
        close_bank(rows, value, bank, closes_at(tables, state.ready, command, bank, clock))
    elif tables.commands[command, CLOSES]:
        first, end, stride = banks_of(tables, tables.commands[command, SCOPE], rank, bank)
        for addressed in range(first, end, stride):
            close_bank(rows, value, addressed, clock)


@inlined
def forget_rows(tables, entry, size, bound, command, bank):
    """Discard stored ready clocks of requests to a bank that a command has opened or closed."""
    if command <= WRITE_AP:
        if command != READ and command != WRITE:
            forget_bank(entry, size, bound, bank)
    elif tables.commands[command, CLOSES]:
        forget_all(entry, size, bound)


@inlined
def count_command(state, commands, command, node, row, column, clock):
    """Count a command and append it to the trace, when one is kept."""
    state.issued[command] += 1
    if state.value[FIRST_COMMAND] < 0:
        state.value[FIRST_COMMAND] = clock
    if commands.entry.shape[0] == 0:
        return
    line = commands.length[0]
    commands.entry[line, 0] = clock
    commands.entry[line, 1] = command
    commands.entry[line, 2] = node
    commands.entry[line, 3] = row
    commands.entry[line, 4] = column
    commands.length[0] = line + 1


@inlined
def note_idle(tables, value, timed, credit, clock):
    """Record why the data bus idled before a read that issues at `clock`.

    `timed`: the clock from which its bank allowed it; `credit`: the clock from which the sink did.
    """
    idle_from = value[DATA_END] - tables.read_latency + tables.burst
    if value[DATA_END] < 0 or clock <= idle_from:
        return
    for_refresh = max(0, min(clock, value[REFRESH_UNTIL]) - max(idle_from, value[REFRESH_FROM]))
    rest = clock - idle_from - for_refresh
    for_credit = max(0, min(rest, credit - max(idle_from, timed)))
    value[IDLE_REFRESH] += for_refresh
    value[IDLE_CREDIT] += for_credit
    value[IDLE_ROW] += rest - for_credit


@inlined
def note_read(channel, timed, request, arrived, clock):
    """Record that the sink will receive the data of a read."""
    tables, value, latencies = channel.shape, channel.state.value, channel.latencies
    note_idle(tables, value, timed, credit_clock(channel.sink), clock)
    end = clock + tables.read_latency
    value[DATA_END] = end
    value[READ_LATENCY] += end - arrived
    value[READS_SERVED] += 1
    latencies[min(end - arrived, latencies.shape[0] - 1)] += 1
    take_burst(channel.sink, request, end)


@inlined
def move_to_active(entry, size, bound, rows, banks, queue, slot):
    """After its ACTIVATE a request leaves its queue and waits in the active list for its column command."""
    if size[ACTIVE] >= banks:
        return
    rows[entry[queue, BANK, slot], ACTIVE_COUNT] += 1
    if queue != ACTIVE:
        copy_entry(entry, ACTIVE, size[ACTIVE], queue, slot)
        entry[ACTIVE, NOT_BEFORE, size[ACTIVE]] = 0
        bound[ACTIVE] = 0
        size[ACTIVE] += 1
        remove(entry, size, queue, slot)


@inlined
def release_active(policy, entry, size, bound, rows, bank):
    """An active request has issued its column command: its bank may be closed again."""
    rows[bank, ACTIVE_COUNT] -= 1
    if size[ACTIVE] == 1 and policy.row_cap > 0:
        forget_all(entry, size, bound)  # the counts of `holds_bank` may be at another bank
    else:
        forget_bank(entry, size, bound, bank)


@inlined
def note_refresh(tables, entry, rows, value, slot, clock):
    """Record until when waiting maintenance, which now issues, has delayed the queues if it is a refresh."""
    command = entry[PRIORITY, FINAL, slot]
    if tables.commands[command, IS_REFRESH] and bars_queues(entry, rows, slot):
        value[REFRESH_UNTIL] = clock + tables.commands[command, BUSY]


@inlined
def move_on(tables, policy, state, queue, slot, command, clock):
    """After its command a request leaves, becomes active, or stays for its next command."""
    entry, size, bound, rows, value = state.entry, state.size, state.bound, state.rows, state.value
    if command == ACTIVATE:
        move_to_active(entry, size, bound, rows, tables.ranks * banks_per_rank(tables), queue, slot)
    elif reads_or_writes(command):
        if queue == ACTIVE:
            release_active(policy, entry, size, bound, rows, entry[queue, BANK, slot])
        value[SERVED] += 1
        remove(entry, size, queue, slot)
    elif command == entry[queue, FINAL, slot]:
        note_refresh(tables, entry, rows, value, slot, clock)
        end_refresh(tables, entry, size, bound, rows, slot)
        if tables.commands[command, INTERVAL] > 0:
            end_round(tables, entry, size, value, clock)


@inlined
def requeue_reads(entry, size, bound, rows):
    """Return to the read queue the active requests whose row was closed while the sink had no room."""
    slot = 0
    while slot < size[ACTIVE]:
        bank = entry[ACTIVE, BANK, slot]
        if rows[bank, OPEN_ROW] >= 0:
            slot += 1
            continue
        rows[bank, ACTIVE_COUNT] -= 1
        copy_entry(entry, READS, size[READS], ACTIVE, slot)
        size[READS] += 1
        remove(entry, size, ACTIVE, slot)
    forget_all(entry, size, bound)


@inlined
def issue(channel, queue, slot, command, clock):
    """Issue a request's command at `clock` and update the state."""
    tables, state, sink = channel.shape, channel.state, channel.sink
    entry, ready, rows, value = state.entry, state.ready, state.rows, state.value
    bound = state.bound
    rank, group, bank = entry[queue, RANK, slot], entry[queue, GROUP, slot], entry[queue, BANK, slot]
    row = entry[queue, ROW, slot]
    count_row(entry, rows, value, queue, slot)
    if reads(command):
        timed = bank_ready_at(ready, READ, rank, group, bank)
        request, arrived = entry[queue, INDEX, slot], entry[queue, ARRIVED, slot]
        note_read(channel, timed, request, arrived, clock)
    note_timing(tables, ready, state.recent, command, rank, group, bank, clock)
    note_rows(tables, state, command, rank, bank, row, clock)
    forget_rows(tables, entry, state.size, bound, command, bank)
    whole_rank = command > WRITE_AP and tables.commands[command, SCOPE] == WHOLE_RANK
    if queue == PRIORITY and sink.servers > 0 and credit_clock(sink) > clock:
        requeue_reads(entry, state.size, bound, rows)
    to_column = reads_or_writes(command)
    row = row if to_column or command == ACTIVATE else -1
    column = entry[queue, COLUMN, slot] if to_column else -1
    count_command(state, channel.commands, command, rank if whole_rank else bank, row, column, clock)
    if command == ACTIVATE:
        note_activation(tables, state, rank, group, bank, clock)
    elif tables.commands[command, IS_REFRESH]:
        lower_after_refresh(tables, state, command, rank, bank)
    move_on(tables, channel.policy, state, queue, slot, command, clock)
