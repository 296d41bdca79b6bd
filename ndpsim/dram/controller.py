"""The channel controller, one step a clock at which anything can change.

A step reads: accept -> refresh -> close capped rows -> choose -> issue -> jump to the next step.
Nothing changes between two steps: queues, row state and write mode only change when a request is
accepted or a command issued, and either is followed by a step on the next clock. Otherwise the next
step is the earliest clock at which a candidate becomes ready or a refresh falls due.
"""

from __future__ import annotations

from ndpsim._jit import kernel
from ndpsim.dram.sink import credit_clock, take_burst
from ndpsim.dram.state import (
    ACCESSES,
    ACTIVE,
    ACTIVE_COUNT,
    ALL_BANK,
    ARRIVED,
    BANK,
    CLOCK,
    CLOSING,
    COALESCED,
    COLUMN,
    COUNTED,
    COUNTED_UNTIL,
    DATA_END,
    FAR,
    FIELDS,
    FINAL,
    FIRST_COMMAND,
    FORWARDED,
    GROUP,
    HIT_SINCE,
    IDLE_CREDIT,
    IDLE_REFRESH,
    IDLE_ROW,
    INDEX,
    LATENCIES,
    NEXT_REFRESH,
    NOT_BEFORE,
    OPEN_ROW,
    PLACE,
    PRIORITY,
    RANK,
    READ_LATENCY,
    READ_QUEUE,
    READS,
    READS_SERVED,
    REFRESH_FROM,
    REFRESH_UNTIL,
    REFRESHES,
    ROW,
    ROW_CONFLICTS,
    ROW_HITS,
    ROW_MISSES,
    SAME_BANK,
    SERVED,
    STAGGERED,
    TAKEN,
    WRITE_MODE,
    WRITE_QUEUE,
    WRITES,
)
from ndpsim.spec import COMMANDS
from ndpsim.spec.standard import ACT, PREAB, PREPB, PRESB, RD, RDA, REFAB, REFSB, WR, WRA

__all__ = ["DONE", "RECORD_FULL", "STUCK", "run"]

# What `run` returns.
DONE, RECORD_FULL, STUCK = range(3)

_KINDS = len(COMMANDS)

# ---- the hierarchy --------------------------------------------------------------------------------


@kernel
def first_bank(tables, rank):
    """The node of a rank's first bank."""
    groups = tables.ranks * tables.bankgroups
    return 1 + tables.ranks + groups + (rank - 1) * tables.bankgroups * tables.banks_per_group


@kernel
def banks_per_rank(tables):
    """Banks in a rank."""
    return tables.bankgroups * tables.banks_per_group


# ---- timing ---------------------------------------------------------------------------------------


@kernel
def bank_ready_at(ready, command, rank, group, bank):
    """The first clock at which `command` may go to one bank."""
    return max(max(ready[0, command], ready[rank, command]), max(ready[group, command], ready[bank, command]))


@kernel
def rank_ready_at(ready, command, rank):
    """The first clock at which `command` may go to a whole rank."""
    return max(ready[0, command], ready[rank, command])


@kernel
def same_banks_ready_at(tables, ready, command, rank, bank):
    """The first clock at which `command` may go to `bank` and its like in every other group of the rank."""
    at = rank_ready_at(ready, command, rank)
    for other in range(bank, bank + banks_per_rank(tables), tables.banks_per_group):
        at = max(at, ready[other, command])
    return at


@kernel
def push_back(ready, gap, node, level, command, clock):
    """Carry the distances of `command`, issued at `clock`, to one node of a level."""
    for after in range(_KINDS):
        ready[node, after] = max(ready[node, after], clock + gap[level, command, after])


@kernel
def note_timing(tables, ready, recent_acts, command, rank, group, bank, clock):
    """Carry the distances of `command` to every node it binds.

    group 0: one bank of every group; bank 0 as well: the whole rank.
    """
    gap = tables.gap
    push_back(ready, gap, 0, 0, command, clock)
    push_back(ready, gap, rank, 1, command, clock)
    if group > 0:
        push_back(ready, gap, group, 2, command, clock)
        push_back(ready, gap, bank, 3, command, clock)
    elif bank > 0:
        for other in range(bank, bank + banks_per_rank(tables), tables.banks_per_group):
            push_back(ready, gap, other, 3, command, clock)
    if tables.ranks > 1:
        for other in range(1, tables.ranks + 1):
            if other != rank:
                for after in range(_KINDS):
                    ready[other, after] = max(ready[other, after], clock + tables.sibling_gap[command, after])
    if command == ACT:
        for place in range(3):
            recent_acts[rank, place] = recent_acts[rank, place + 1]
        recent_acts[rank, 3] = clock
        ready[rank, ACT] = max(ready[rank, ACT], recent_acts[rank, 0] + tables.activate_window)


# ---- queues ---------------------------------------------------------------------------------------


@kernel
def copy_entry(entry, to_queue, to_slot, queue, slot):
    """Copy a request from one slot to another."""
    for field in range(FIELDS):
        entry[to_queue, field, to_slot] = entry[queue, field, slot]


@kernel
def remove(entry, size, queue, slot):
    """Take a request out of a queue; order is kept in the priority queue only."""
    last = size[queue] - 1
    if queue == PRIORITY:
        for place in range(slot, last):
            copy_entry(entry, queue, place, queue, place + 1)
    elif slot != last:
        copy_entry(entry, queue, slot, queue, last)
    size[queue] = last


@kernel
def push_priority(entry, size, final, rank, group, bank):
    """Append a maintenance command to the priority queue."""
    slot = size[PRIORITY]
    entry[PRIORITY, FINAL, slot] = final
    entry[PRIORITY, RANK, slot] = rank
    entry[PRIORITY, GROUP, slot] = group
    entry[PRIORITY, BANK, slot] = bank
    entry[PRIORITY, COUNTED, slot] = 1
    size[PRIORITY] = slot + 1


@kernel
def is_queued_write(entry, size, addresses, address):
    """Whether a write to `address` waits in the write queue."""
    for slot in range(size[WRITES]):
        if addresses[entry[WRITES, INDEX, slot]] == address:
            return True
    return False


@kernel
def absorb(value, latencies, write):
    """A read forwarded from, or a write coalesced with, a queued write: done without a slot."""
    value[SERVED] += 1
    if write:
        value[COALESCED] += 1
    else:
        value[FORWARDED] += 1
        value[READS_SERVED] += 1
        value[READ_LATENCY] += 1
        latencies[1] += 1


@kernel
def is_due(source, value, clock):
    """Whether there is a next request that may be offered at `clock`."""
    if value[TAKEN] >= source.admitted[0]:
        return False
    return source.cycle.shape[0] == 0 or clock > source.cycle[value[PLACE]]


@kernel
def has_slot(policy, size, write):
    """Whether the queue for reads or writes has a free slot."""
    if write:
        return size[WRITES] < policy.write_slots
    return size[READS] < policy.read_slots


@kernel
def would_accept(policy, source, entry, size, value, clock):
    """Whether the next request will be taken at `clock`, if nothing happens before."""
    if not is_due(source, value, clock):
        return False
    request = value[PLACE]
    if has_slot(policy, size, source.write[request]):
        return True
    return is_queued_write(entry, size, source.address, source.address[request])


@kernel
def enqueue(source, entry, size, bound, request, clock):
    """Put a request into its queue. Its arrival is the clock before this step."""
    queue = WRITES if source.write[request] else READS
    slot = size[queue]
    entry[queue, RANK, slot] = source.rank[request]
    entry[queue, GROUP, slot] = source.group[request]
    entry[queue, BANK, slot] = source.bank[request]
    entry[queue, ROW, slot] = source.row[request]
    entry[queue, COLUMN, slot] = source.column[request]
    entry[queue, ARRIVED, slot] = clock - 1
    entry[queue, INDEX, slot] = request
    entry[queue, COUNTED, slot] = 0
    entry[queue, FINAL, slot] = WR if source.write[request] else RD
    entry[queue, NOT_BEFORE, slot] = 0
    bound[queue] = 0
    size[queue] = slot + 1


@kernel
def move_past(source, value):
    """The next request was taken."""
    value[TAKEN] += 1
    value[PLACE] += 1
    if value[PLACE] == source.rank.shape[0]:
        value[PLACE] = 0


@kernel
def accept(policy, source, entry, size, bound, value, latencies, clock):
    """Offer the next request, if it is due: it is absorbed, queued, or refused until later."""
    if not is_due(source, value, clock):
        return
    request = value[PLACE]
    if is_queued_write(entry, size, source.address, source.address[request]):
        absorb(value, latencies, source.write[request])
        move_past(source, value)
    elif has_slot(policy, size, source.write[request]):
        enqueue(source, entry, size, bound, request, clock)
        move_past(source, value)


# ---- maintenance ----------------------------------------------------------------------------------


@kernel
def sum_queues(size, value, clock):
    """Add up the queues' lengths over the clocks since they last changed."""
    clocks = clock - value[COUNTED_UNTIL]
    value[READ_QUEUE] += clocks * size[READS]
    value[WRITE_QUEUE] += clocks * size[WRITES]
    value[COUNTED_UNTIL] = clock


@kernel
def next_refresh(tables, kind, refreshes):
    """The clock at which the next refresh falls due, after `refreshes` of them."""
    interval = tables.refresh_interval
    if kind == STAGGERED:
        return refreshes // tables.ranks * interval + (refreshes % tables.ranks + 1) * (
            interval // tables.ranks
        )
    if kind == SAME_BANK:
        return (refreshes + 1) * interval // tables.banks_per_group
    return (refreshes + 1) * interval


@kernel
def refresh(tables, policy, entry, size, value, clock):
    """Ask for the refreshes that fall due.

    All-bank: every rank at each multiple of tREFI, in rank order. Staggered: one rank after the other,
    evenly over tREFI. Same-bank: one bank of every group of each rank after the other, all over tREFI.
    False when the priority queue has no room for them: refresh can then never catch up.
    """
    if clock < value[NEXT_REFRESH]:
        return True
    if size[PRIORITY] + tables.ranks > entry.shape[2]:
        return False
    if size[PRIORITY] == 0:
        value[REFRESH_FROM] = clock
    turn = value[REFRESHES]
    for rank in range(1, tables.ranks + 1):
        if policy.refresh == SAME_BANK:
            bank = first_bank(tables, rank) + turn % tables.banks_per_group
            push_priority(entry, size, REFSB, rank, 0, bank)
        elif policy.refresh == ALL_BANK or rank - 1 == turn % tables.ranks:
            push_priority(entry, size, REFAB, rank, 0, 0)
    value[REFRESHES] = turn + 1
    value[NEXT_REFRESH] = next_refresh(tables, policy.refresh, turn + 1)
    return True


@kernel
def close_capped_rows(tables, policy, channel, clock):
    """Ask for a PREpb, once, of every bank whose row has had its accesses, when it would be ready.

    Returns the first later clock at which another such bank becomes ready.
    """
    wake = FAR
    ready, rows = channel.ready, channel.rows
    start = first_bank(tables, 1)
    for bank in range(start, rows.shape[0]):
        if rows[bank, ACCESSES] < policy.row_cap or rows[bank, CLOSING]:
            continue
        group = 1 + tables.ranks + (bank - start) // tables.banks_per_group
        rank = 1 + (bank - start) // banks_per_rank(tables)
        at = bank_ready_at(ready, PREPB, rank, group, bank)
        if at <= clock:
            if channel.size[PRIORITY] < channel.entry.shape[2]:
                push_priority(channel.entry, channel.size, PREPB, rank, group, bank)
                rows[bank, CLOSING] = 1
        else:
            wake = min(wake, at)
    return wake


# ---- choosing -------------------------------------------------------------------------------------


@kernel
def holds_bank(rows, size, bank):
    """Whether an active request keeps a bank from being closed.

    An auto-precharge may close a bank under its active request, which then activates it a second time
    and is counted twice; as in the reference, such a count only holds while any request is active.
    """
    return size[ACTIVE] > 0 and rows[bank, ACTIVE_COUNT] > 0


@kernel
def holds_any(rows, size, first, last, stride):
    """Whether an active request keeps one of several banks from being closed."""
    for bank in range(first, last, stride):
        if holds_bank(rows, size, bank):
            return True
    return False


@kernel
def all_closed(rows, first, last, stride):
    """Whether several banks are all closed."""
    for bank in range(first, last, stride):
        if rows[bank, OPEN_ROW] >= 0:
            return False
    return True


@kernel
def mark_hits(entry, size, rows, queue):
    """FRFCFS-RowHit: for every bank, the arrival of the oldest row hit in the queue."""
    for slot in range(size[queue]):
        rows[entry[queue, BANK, slot], HIT_SINCE] = FAR
    for slot in range(size[queue]):
        bank, arrived = entry[queue, BANK, slot], entry[queue, ARRIVED, slot]
        if rows[bank, OPEN_ROW] == entry[queue, ROW, slot]:
            rows[bank, HIT_SINCE] = min(rows[bank, HIT_SINCE], arrived)


@kernel
def prospect(entry, ready, rows, size, credit, queue, slot):
    """A request's next command, and the first clock at which it may issue, FAR while its bank is held.

    `credit`: the clock from which the sink has room for a read.
    """
    bank = entry[queue, BANK, slot]
    row = rows[bank, OPEN_ROW]
    if row == entry[queue, ROW, slot]:
        command = entry[queue, FINAL, slot]
    elif row < 0:
        command = ACT
    else:
        command = PREPB
        if queue != ACTIVE and holds_bank(rows, size, bank):
            return command, FAR
    at = bank_ready_at(ready, command, entry[queue, RANK, slot], entry[queue, GROUP, slot], bank)
    if command == RD:
        at = max(at, credit)
    return command, at


@kernel
def forget_bank(entry, size, bound, bank):
    """A bank's row or its active request changed: what was known of the requests for it holds no more."""
    for queue in (ACTIVE, READS, WRITES):
        for slot in range(size[queue]):
            if entry[queue, BANK, slot] == bank:
                entry[queue, NOT_BEFORE, slot] = 0
                bound[queue] = 0


@kernel
def forget_all(entry, size, bound):
    """Nothing that was known of the queued requests holds any more."""
    for queue in (ACTIVE, READS, WRITES):
        bound[queue] = 0
        for slot in range(size[queue]):
            entry[queue, NOT_BEFORE, slot] = 0


@kernel
def choose_oldest(channel, credit, queue, clock):
    """FRFCFS: the oldest ready request of a queue: (slot or -1, its command).

    Distances only ever move commands back. So a request that is not ready is not looked at again before
    the clock found here, unless its bank changes, and the queue not before the first of these clocks.
    """
    entry, size, ready, rows, bound = channel.entry, channel.size, channel.ready, channel.rows, channel.bound
    best, best_command, best_arrived, first = -1, -1, FAR, FAR
    for slot in range(size[queue]):
        known = entry[queue, NOT_BEFORE, slot]
        if known > clock:
            first = min(first, known)
            continue
        command, at = prospect(entry, ready, rows, size, credit, queue, slot)
        entry[queue, NOT_BEFORE, slot] = at
        arrived = entry[queue, ARRIVED, slot]
        if at <= clock and arrived < best_arrived:
            first = clock if best >= 0 else first  # the one passed over is ready, too
            best, best_command, best_arrived = slot, command, arrived
        else:
            first = min(first, at)
    bound[queue] = first
    return best, best_command


@kernel
def choose_row_hit_first(channel, credit, queue, clock):
    """FRFCFS-RowHit: as FRFCFS, but no request closes a row on an older hit. Each hit bears on the others
    of its bank, so all requests are looked at every time.
    """
    entry, size, rows = channel.entry, channel.size, channel.rows
    mark_hits(entry, size, rows, queue)
    best, best_command, best_arrived, first = -1, -1, FAR, FAR
    for slot in range(size[queue]):
        command, at = prospect(entry, channel.ready, rows, size, credit, queue, slot)
        arrived = entry[queue, ARRIVED, slot]
        if command == PREPB and rows[entry[queue, BANK, slot], HIT_SINCE] <= arrived:
            continue
        if at > clock:
            first = min(first, at)
        elif arrived < best_arrived:
            best, best_command, best_arrived = slot, command, arrived
    channel.bound[queue] = first
    return best, best_command


@kernel
def choose_from(policy, channel, credit, queue, clock):
    """The request of a queue that comes next: (slot or -1, its command)."""
    if policy.row_hit_first:
        return choose_row_hit_first(channel, credit, queue, clock)
    if channel.bound[queue] > clock:
        return -1, -1
    return choose_oldest(channel, credit, queue, clock)


@kernel
def choose_refresh(tables, final, rank, bank, size, ready, rows):
    """The command that brings a refresh forward: (command, when it is ready, whether a request holds it)."""
    if final == REFAB:
        first, stride, precharge = first_bank(tables, rank), 1, PREAB
    else:
        first, stride, precharge = bank, tables.banks_per_group, PRESB
    last = first + banks_per_rank(tables)
    if all_closed(rows, first, last, stride):
        command, held = final, False
    else:
        command, held = precharge, holds_any(rows, size, first, last, stride)
    if final == REFAB:
        return command, rank_ready_at(ready, command, rank), held
    return command, same_banks_ready_at(tables, ready, command, rank, bank), held


@kernel
def choose_priority(tables, entry, size, ready, rows, clock):
    """The head of the priority queue: (0 or -1, its command, when it becomes ready)."""
    final = entry[PRIORITY, FINAL, 0]
    rank, bank = entry[PRIORITY, RANK, 0], entry[PRIORITY, BANK, 0]
    if final == PREPB:
        command, held = PREPB, holds_bank(rows, size, bank)
        at = bank_ready_at(ready, PREPB, rank, entry[PRIORITY, GROUP, 0], bank)
    else:
        command, at, held = choose_refresh(tables, final, rank, bank, size, ready, rows)
    if held:
        return -1, command, FAR
    return (0, command, FAR) if at <= clock else (-1, command, at)


@kernel
def set_write_mode(policy, size, value):
    """Enter or leave write mode by the watermarks."""
    if value[WRITE_MODE]:
        if size[WRITES] < policy.write_mode_below and size[READS] > 0:
            value[WRITE_MODE] = 0
    elif size[WRITES] > policy.write_mode_from or size[READS] == 0:
        value[WRITE_MODE] = 1


@kernel
def choose(tables, policy, channel, credit, clock):
    """Active list, else head of the priority queue, else reads or writes: (queue, slot, command, wake).

    `wake`: with slot -1, when one of them may become ready.
    """
    size, bound = channel.size, channel.bound
    slot, command = choose_from(policy, channel, credit, ACTIVE, clock)
    if slot >= 0:
        return ACTIVE, slot, command, FAR
    if size[PRIORITY] > 0:
        slot, command, wake = choose_priority(tables, channel.entry, size, channel.ready, channel.rows, clock)
        return PRIORITY, slot, command, min(wake, bound[ACTIVE])
    set_write_mode(policy, size, channel.value)
    queue = WRITES if channel.value[WRITE_MODE] else READS
    slot, command = choose_from(policy, channel, credit, queue, clock)
    return queue, slot, command, min(bound[ACTIVE], bound[queue])


# ---- issuing --------------------------------------------------------------------------------------


@kernel
def auto_precharge(policy, ready, rows, command, rank, group, bank, clock):
    """Under closed-cap a column command becomes its auto-precharge form when that is ready too."""
    if policy.row_cap == 0 or (command != RD and command != WR) or rows[bank, ACCESSES] < policy.row_cap:
        return command
    closing = RDA if command == RD else WRA
    return closing if bank_ready_at(ready, closing, rank, group, bank) <= clock else command


@kernel
def count_row(entry, rows, value, queue, slot):
    """Hit, miss or conflict: what the request's first command finds."""
    if entry[queue, COUNTED, slot]:
        return
    row = rows[entry[queue, BANK, slot], OPEN_ROW]
    place = ROW_MISSES if row < 0 else ROW_HITS if row == entry[queue, ROW, slot] else ROW_CONFLICTS
    value[place] += 1
    entry[queue, COUNTED, slot] = 1


@kernel
def close_bank(rows, bank):
    """A bank closes, by whatever command."""
    rows[bank, OPEN_ROW] = -1
    rows[bank, ACCESSES] = 0
    rows[bank, CLOSING] = 0


@kernel
def note_rows(tables, rows, command, rank, bank, row):
    """What a command does to the rows it addresses."""
    if command == ACT:
        rows[bank, OPEN_ROW] = row
    elif command == RD or command == WR:
        rows[bank, ACCESSES] += 1
    elif command == PREAB:
        start = first_bank(tables, rank)
        for other in range(start, start + banks_per_rank(tables)):
            close_bank(rows, other)
    elif command == PRESB:
        for other in range(bank, bank + banks_per_rank(tables), tables.banks_per_group):
            close_bank(rows, other)
    elif command != REFAB and command != REFSB:
        close_bank(rows, bank)


@kernel
def record_command(commands, command, node, row, column, clock):
    """Append a command to the trace, when one is kept."""
    if commands.entry.shape[0] == 0:
        return
    line = commands.length[0]
    to_column = command == RD or command == WR or command == RDA or command == WRA
    commands.entry[line, 0] = clock
    commands.entry[line, 1] = command
    commands.entry[line, 2] = node
    commands.entry[line, 3] = row if to_column or command == ACT else -1
    commands.entry[line, 4] = column if to_column else -1
    commands.length[0] = line + 1


@kernel
def note_idle(tables, value, timed, credit, clock):
    """Say why the data bus idled before a read that issues at `clock`.

    `timed`: when its bank allowed it; `credit`: when the sink did.
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


@kernel
def note_read(tables, value, latencies, sink, timed, request, arrived, clock):
    """A read's data is on its way to the sink."""
    note_idle(tables, value, timed, credit_clock(sink), clock)
    end = clock + tables.read_latency
    value[DATA_END] = end
    value[READ_LATENCY] += end - arrived
    value[READS_SERVED] += 1
    latencies[min(end - arrived, LATENCIES - 1)] += 1
    take_burst(sink, request, end)


@kernel
def move_to_active(entry, size, bound, rows, banks, queue, slot):
    """After its ACT a request leaves its queue and waits in the active list for its column command."""
    if size[ACTIVE] >= banks:
        return
    rows[entry[queue, BANK, slot], ACTIVE_COUNT] += 1
    if queue != ACTIVE:
        copy_entry(entry, ACTIVE, size[ACTIVE], queue, slot)
        entry[ACTIVE, NOT_BEFORE, size[ACTIVE]] = 0
        bound[ACTIVE] = 0
        size[ACTIVE] += 1
        remove(entry, size, queue, slot)


@kernel
def let_go(policy, entry, size, bound, rows, bank):
    """An active request has had its column command: its bank may be closed again."""
    rows[bank, ACTIVE_COUNT] -= 1
    if size[ACTIVE] == 1 and policy.row_cap > 0:
        forget_all(entry, size, bound)  # counts that `holds_bank` speaks of may stand on other banks
    else:
        forget_bank(entry, size, bound, bank)


@kernel
def move_on(tables, policy, entry, size, bound, rows, value, queue, slot, command, clock):
    """After its command a request retires, becomes active, or stays to issue its next one."""
    if command == ACT:
        move_to_active(entry, size, bound, rows, tables.ranks * banks_per_rank(tables), queue, slot)
    elif command == RD or command == WR or command == RDA or command == WRA:
        if queue == ACTIVE:
            let_go(policy, entry, size, bound, rows, entry[queue, BANK, slot])
        value[SERVED] += 1
        remove(entry, size, queue, slot)
    elif command == REFAB:
        value[REFRESH_UNTIL] = clock + tables.refresh_cycles
        remove(entry, size, queue, slot)
    elif command == REFSB:
        value[REFRESH_UNTIL] = clock
        remove(entry, size, queue, slot)
    elif queue == PRIORITY and command == PREPB:
        remove(entry, size, queue, slot)


@kernel
def issue(tables, policy, channel, sink, commands, queue, slot, command, clock):
    """Issue a request's command at `clock` and carry out everything that follows from it."""
    entry, ready, rows, value = channel.entry, channel.ready, channel.rows, channel.value
    bound = channel.bound
    rank, group, bank = entry[queue, RANK, slot], entry[queue, GROUP, slot], entry[queue, BANK, slot]
    row = entry[queue, ROW, slot]
    command = auto_precharge(policy, ready, rows, command, rank, group, bank, clock)
    count_row(entry, rows, value, queue, slot)
    if command == RD or command == RDA:
        timed = bank_ready_at(ready, RD, rank, group, bank)
        request, arrived = entry[queue, INDEX, slot], entry[queue, ARRIVED, slot]
        note_read(tables, value, channel.latencies, sink, timed, request, arrived, clock)
    note_timing(tables, ready, channel.recent_acts, command, rank, group, bank, clock)
    note_rows(tables, rows, command, rank, bank, row)
    if command == PREAB or command == PRESB:
        forget_all(entry, channel.size, bound)
    elif command != RD and command != WR and command != REFAB and command != REFSB:
        forget_bank(entry, channel.size, bound, bank)
    whole_rank = command == PREAB or command == REFAB
    record_command(commands, command, rank if whole_rank else bank, row, entry[queue, COLUMN, slot], clock)
    channel.issued[command] += 1
    if value[FIRST_COMMAND] < 0:
        value[FIRST_COMMAND] = clock
    move_on(tables, policy, entry, channel.size, bound, rows, value, queue, slot, command, clock)


# ---- the loop -------------------------------------------------------------------------------------


@kernel
def offered_from(source, value):
    """The step at which the next request of a timed source is first offered, FAR when that has passed."""
    if source.cycle.shape[0] == 0 or value[TAKEN] >= source.admitted[0]:
        return FAR
    request = value[PLACE]
    return source.cycle[request] + 1 if source.cycle[request] >= value[COUNTED_UNTIL] else FAR


@kernel
def run(tables, policy, source, channel, sink, commands, until_served, until_taken):
    """Run until `until_served` requests are served, or into the step that accepts request `until_taken`.

    Returns DONE; RECORD_FULL when the command trace needs more room; STUCK when nothing can ever happen
    again. The channel stands before its next step in every case, so a run can be taken up again.
    """
    entry, size, value = channel.entry, channel.size, channel.value
    clock = value[CLOCK]
    while value[SERVED] < until_served:
        if 0 < commands.entry.shape[0] == commands.length[0]:
            value[CLOCK] = clock
            return RECORD_FULL
        sum_queues(size, value, clock - 1)
        accept(policy, source, entry, size, channel.bound, value, channel.latencies, clock)
        if value[TAKEN] >= until_taken:
            break
        sum_queues(size, value, clock)
        if not refresh(tables, policy, entry, size, value, clock):
            value[CLOCK] = clock
            return STUCK
        capped = close_capped_rows(tables, policy, channel, clock) if policy.row_cap > 0 else FAR
        queue, slot, command, wake = choose(tables, policy, channel, credit_clock(sink), clock)
        if slot >= 0:
            issue(tables, policy, channel, sink, commands, queue, slot, command, clock)
        if slot >= 0 or would_accept(policy, source, entry, size, value, clock + 1):
            clock += 1
        else:
            wake = min(min(wake, capped), min(value[NEXT_REFRESH], offered_from(source, value)))
            clock = max(clock + 1, wake)
            if clock >= FAR:
                value[CLOCK] = clock
                return STUCK
    value[CLOCK] = clock
    return DONE
