"""The controller that looks ahead in its queues: a row and a column command a clock, barriers, refresh first.

After AttAcc's controller (Ramulator 2 with a queue for its units). Each clock has two searches, for the
second command of the other class. A channel sleeps until a clock in which something may change.
"""

from __future__ import annotations

from ndpsim.base.jit import inlined, kernel, outlined
from ndpsim.dram.banks.host import may_issue
from ndpsim.dram.banks.lower import BARRIER, COLUMN_BUS, NO_COMMAND, NONE, ROW_BUS, BankTables
from ndpsim.dram.banks.repeats import NEXT_MARK, Repeats, skip_repeats
from ndpsim.dram.banks.state import (
    ACTIVE,
    ALONE,
    ANSWERS,
    CAPACITY,
    CLOCK,
    ENDED,
    FAR,
    FIRST_ANSWER,
    HOST_FIRST,
    LAST_PIM,
    LINE,
    LINES_FOLLOW,
    LOGGED,
    MASTER,
    MOST_QUEUED,
    PIM,
    POSITION,
    PROGRESS,
    READS,
    REFRESH_DUE,
    REFRESHED,
    SEEN_COMMANDS,
    SEEN_LIMITED,
    SEEN_TO,
    SEEN_UNTIL,
    SEEN_VERSION,
    SEEN_WHILE,
    STAMPS,
    VERSION,
    WAKE,
    WRITE_MODE,
    WRITES,
    BankProgram,
    BankState,
    all_closed,
    answer_later,
    append,
    bank_of,
    due_refresh,
    log,
    next_command,
    note_rows,
    note_rules,
    ready_at,
    remove,
    review_write_mode,
    stands_still,
)

_REFRESH = 4  # the queue of refreshes, which has no slots
_NOTHING = -1
_NO_CLASS = 3  # wanted by a search that may issue nothing


@outlined
def is_queued_write(program, state, channel, line):
    """Whether a write to the full address of a line is queued."""
    begin = state.begin[channel, WRITES]
    for slot in range(begin, begin + state.size[channel, WRITES]):
        other = state.line[channel, WRITES, slot]
        same = program.row[other] == program.row[line] and program.column[other] == program.column[line]
        for level in range(4):
            same = same and program.place[other, level] == program.place[line, level]
        if same:
            return True
    return False


@inlined
def is_alike(program, line, other):
    """Whether two lines ask for the same command in the same row."""
    return program.code[line] == program.code[other] and program.row[line] == program.row[other]


@inlined
def stands_behind(program, state, channel, line):
    """Whether the last request in the queue for the units asks for the same, so that it comes first."""
    size = state.size[channel, PIM]
    last = state.line[channel, PIM, state.begin[channel, PIM] + size - 1]
    return size > 0 and is_alike(program, line, last)


@outlined
def offer(tables, program, state, clock):
    """Offer requests in the order of the program, until a channel refuses one.

    Returns whether the lines are used up while more follow.
    """
    value = state.value
    while value[LINE] < program.lines:
        line = value[LINE]
        listed = program.listed[line]
        first, last = program.first[listed], program.first[listed + 1]
        command, queue = program.command[line], PIM
        if program.host[line]:
            queue = READS if tables.answers[command] else WRITES
        while first + value[POSITION] < last:
            channel = program.channel[first + value[POSITION]]
            if queue == READS and is_queued_write(program, state, channel, line):
                answer_later(state, channel, clock, line)
                state.channel[channel, WAKE] = clock
            elif state.size[channel, queue] < MOST_QUEUED:
                if queue != PIM or not stands_behind(program, state, channel, line):
                    state.channel[channel, WAKE] = clock
                append(state, channel, queue, line, program.column[line], clock - 1)
            else:
                return False
            value[POSITION] += 1
        value[LINE] += 1
        value[POSITION] = 0
    return program.more == LINES_FOLLOW


@outlined
def refresh_commands(tables, program, state, channel, queue, most):
    """Find the next commands of the first requests again after rows have been opened or closed."""
    version, begin = state.channel[channel, VERSION], state.begin[channel, queue]
    last_line, last_next, known = -1, 0, state.known[channel, queue]
    end = first = begin + min(most, state.size[channel, queue])
    while first > begin and known[first - 1] != version:  # those before it are known
        first -= 1
    for slot in range(first, end):
        state.known[channel, queue, slot] = version
        line = state.line[channel, queue, slot]
        final = program.command[line]
        if final == BARRIER:
            state.next[channel, queue, slot] = BARRIER
            continue
        coordinates = program.place
        if (
            last_line < 0
            or program.command[last_line] != final
            or program.row[last_line] != program.row[line]
            or coordinates[last_line, 0] != coordinates[line, 0]
            or coordinates[last_line, 1] != coordinates[line, 1]
            or coordinates[last_line, 2] != coordinates[line, 2]
            or coordinates[last_line, 3] != coordinates[line, 3]
        ):
            last_next = next_command(
                tables,
                state,
                channel,
                final,
                program.row[line],
                coordinates[line, 0],
                coordinates[line, 1],
                coordinates[line, 2],
                coordinates[line, 3],
            )
            last_line = line
        state.next[channel, queue, slot] = last_next
    return 0


@inlined
def address(tables, program, line):
    """The number of the addressed bank of a line."""
    coordinates = program.place
    return bank_of(
        tables, coordinates[line, 0], coordinates[line, 1], coordinates[line, 2], coordinates[line, 3]
    )


@inlined
def line_ready(tables, program, state, channel, command, line):
    """The first clock at which rules allow a command to the place of a line."""
    coordinates = program.place
    return ready_at(
        tables,
        state,
        channel,
        command,
        coordinates[line, 0],
        coordinates[line, 1],
        coordinates[line, 2],
        coordinates[line, 3],
    )


@outlined
def look(tables, program, state, channel, queue, clock):
    """One look at a queue: its best request.

    Returns the slot (-1: none), the next command, whether it is ready, whether a barrier was dropped, and
    the first later clock at which one of the requests before it may be ready.
    """
    dropped = 0
    if state.size[channel, queue] == 0:
        return _NOTHING, NO_COMMAND, False, dropped, FAR
    refresh_commands(tables, program, state, channel, queue, 2)
    line, following = state.line[channel, queue], state.next[channel, queue]
    if following[state.begin[channel, queue]] == BARRIER:
        remove(state, channel, queue, state.begin[channel, queue])
        state.channel[channel, SEEN_VERSION] = 0
        dropped = 1
        if state.size[channel, queue] == 0:
            return _NOTHING, NO_COMMAND, False, dropped, FAR
    head = state.begin[channel, queue]
    if following[head] == BARRIER:
        return head, BARRIER, True, dropped, FAR
    best_at = line_ready(tables, program, state, channel, following[head], line[head])
    if queue == ACTIVE:
        best, best_at, soonest = best_active(tables, program, state, channel, best_at, clock)
        return best, following[best], best_at <= clock, dropped, soonest
    if best_at <= clock:  # nothing behind it is older
        return head, following[head], True, dropped, FAR
    refresh_commands(tables, program, state, channel, queue, state.size[channel, queue])
    best, soonest = first_ready(tables, program, state, channel, queue, clock)
    ready = best != _NOTHING
    if not ready:
        best = head
    return best, following[best], ready, dropped, min(soonest, best_at)


@outlined
def best_active(tables, program, state, channel, best_at, clock):
    """The best of the requests that have opened their rows: its slot, the clock at which it is ready, and
    the first later clock at which another one is.

    They stand in the order of their activations, not of their arrivals.
    """
    refresh_commands(tables, program, state, channel, ACTIVE, state.size[channel, ACTIVE])
    line, following, arrived = (
        state.line[channel, ACTIVE],
        state.next[channel, ACTIVE],
        state.arrived[channel, ACTIVE],
    )
    best = begin = state.begin[channel, ACTIVE]
    soonest = best_at if best_at > clock else FAR
    stamp = note_hits(tables, program, state, channel, ACTIVE)
    for slot in range(begin + 1, begin + state.size[channel, ACTIVE]):
        command, final = following[slot], program.command[line[slot]]
        hit = command == final and tables.uses[final] == 1
        if not hit and state.noted[channel, address(tables, program, line[slot])] >= stamp:
            continue
        from_clock = line_ready(tables, program, state, channel, command, line[slot])
        if from_clock > clock:
            soonest = min(soonest, from_clock)
        better = from_clock <= clock < best_at
        if not better and (from_clock <= clock) == (best_at <= clock):
            better = arrived[slot] < arrived[best]
        if better:
            best, best_at = slot, from_clock
    return best, best_at, soonest


@outlined
def first_ready(tables, program, state, channel, queue, clock):
    """The first ready request behind the head of a queue, which stands in the order of arrivals.

    Returns its slot (-1: none), and a later clock before which no request becomes ready.

    Requests for the units that a search found not ready are passed over while rules keep them back, or
    another request that is queued. The search is forgotten when rows open or close, a barrier goes, or a
    request leaves from the middle.
    """
    line, following = state.line[channel, queue], state.next[channel, queue]
    facts, begin = state.channel[channel], state.begin[channel, queue]
    first, soonest, held_by, kept, limited, stamp = begin + 1, FAR, FAR, 0, False, -1
    finals, waits_for, after = program.command, tables.waits_for, state.after[channel, 0]
    if queue == PIM and is_seen(facts, after, begin, clock):
        first, soonest, held_by = max(first, facts[SEEN_TO]), facts[SEEN_UNTIL], facts[SEEN_WHILE]
        kept, limited = facts[SEEN_COMMANDS], facts[SEEN_LIMITED] == 1
    end = begin + state.size[channel, queue]
    for slot in range(first, end):
        if queue == PIM and is_alike(program, line[slot], line[slot - 1]):
            continue  # the one before it comes first
        command = following[slot]
        if command == BARRIER:
            limited = True
            continue
        if limited and tables.opens[command] + tables.closes[command] == 0:
            continue
        final = finals[line[slot]]
        if waits_for[final]:
            other = last_awaited(program, line, begin, slot, waits_for[final])
            if other != _NOTHING:
                held_by = min(held_by, other)
                continue
        if after[command] > clock:  # by the rules between all commands of a channel
            kept |= 1 << command
            continue
        from_clock = line_ready(tables, program, state, channel, command, line[slot])
        if from_clock > clock:
            soonest = min(soonest, from_clock)
            continue
        if command == final and tables.uses[final] == 1:
            return slot, soonest_of(after, kept, soonest)
        if stamp < 0:
            stamp = note_hits(tables, program, state, channel, queue)
        noted = state.noted[channel, address(tables, program, line[slot])] - stamp
        if noted < 0:
            return slot, soonest_of(after, kept, soonest)
        held_by = min(held_by, begin + noted)
    if queue == PIM:
        facts[SEEN_VERSION], facts[SEEN_TO], facts[SEEN_WHILE] = facts[VERSION], end, held_by
        facts[SEEN_UNTIL], facts[SEEN_COMMANDS], facts[SEEN_LIMITED] = soonest, kept, 1 if limited else 0
    return _NOTHING, soonest_of(after, kept, soonest)


@inlined
def is_seen(facts, after, begin, clock):
    """Whether what a search found about the first requests for the units still holds."""
    return (
        facts[SEEN_VERSION] == facts[VERSION]
        and facts[SEEN_WHILE] >= begin
        and soonest_of(after, facts[SEEN_COMMANDS], facts[SEEN_UNTIL]) > clock
    )


@inlined
def soonest_of(after, commands, soonest):
    """The first clock at which rules of the channel allow one of some commands, or `soonest`."""
    command = 0
    while commands >> command:
        if commands >> command & 1:
            soonest = min(soonest, after[command])
        command += 1
    return soonest


@inlined
def last_awaited(program, line, begin, slot, awaited):
    """The last slot before a request whose command is among those that it does not overtake; -1: none."""
    for other in range(slot - 1, begin - 1, -1):
        final = program.command[line[other]]
        if final >= 0 and awaited >> final & 1:
            return other
    return _NOTHING


@inlined
def note_hits(tables, program, state, channel, queue):
    """Mark the addressed banks for which a request of the queue has its row open.

    Returns the mark, from which on it counts the last such request in the queue.
    """
    begin, size = state.begin[channel, queue], state.size[channel, queue]
    stamp = state.value[STAMPS] + 1
    state.value[STAMPS] += size + 1
    for slot in range(begin, begin + size):
        command = state.next[channel, queue, slot]
        if command >= 0 and tables.uses[command] == 1:
            bank = address(tables, program, state.line[channel, queue, slot])
            state.noted[channel, bank] = stamp + slot - begin
    return stamp


@inlined
def bus_of(tables, command):
    """The class of a command; a barrier has none."""
    return NONE if command < 0 else tables.bus[command]


@outlined
def is_protected(tables, program, state, channel, queue, slot, command):
    """Whether a request that has activated its row keeps a command from closing it."""
    if tables.closes[command] == 0 or tables.uses[command]:
        return False
    own, begin = state.line[channel, queue, slot], state.begin[channel, ACTIVE]
    for other in range(begin, begin + state.size[channel, ACTIVE]):
        line = state.line[channel, ACTIVE, other]
        if tables.row_sets:
            if address(tables, program, line) == address(tables, program, own):
                return True
            continue
        if queue == ACTIVE and other == slot:
            continue
        meets = True
        for level in range(4):
            if tables.fixed[command, level] and program.place[line, level] != program.place[own, level]:
                meets = False
        if meets:
            return True
    return False


@outlined
def issue(tables, program, state, channel, clock, queue, slot, command):
    """Issue the next command of a request."""
    if command == BARRIER:
        remove(state, channel, queue, slot)
        state.channel[channel, SEEN_VERSION] = 0
        return 0
    line = state.line[channel, queue, slot]
    coordinates, row = program.place, program.row[line]
    p, r, g, b = coordinates[line, 0], coordinates[line, 1], coordinates[line, 2], coordinates[line, 3]
    log(state, clock, channel, command, line, state.column[channel, queue, slot])
    note_rules(tables, state, channel, command, clock, p, r, g, b)
    if tables.opens[command] or tables.closes[command]:
        note_rows(tables, state, channel, command, row, p, r, g, b)
    if command == program.command[line]:
        state.value[PROGRESS] = clock
        if tables.answers[command]:
            answer_later(state, channel, clock + tables.latency[command], line)
        remove(state, channel, queue, slot)
    elif tables.opens[command] and program.host[line]:
        arrived, column = state.arrived[channel, queue, slot], state.column[channel, queue, slot]
        if queue != ACTIVE or state.channel[channel, LAST_PIM] == 0:
            remove(state, channel, queue, slot)
            append(state, channel, ACTIVE, line, column, arrived)
    return 0


@outlined
def issue_refresh(tables, state, channel, clock, command):
    """Issue the next command of a refresh that waits."""
    facts = state.channel[channel]
    part = facts[REFRESHED] % tables.refresh_parts
    log(state, clock, channel, command, -1 - part, -1)
    note_rules(tables, state, channel, command, clock, part, 0, 0, 0)
    if command == tables.refresh:
        facts[REFRESHED] += 1
        facts[REFRESH_DUE] -= 1
    else:
        note_rows(tables, state, channel, command, 0, 0, 0, 0, 0)
    return 0


@inlined
def refresh_step(tables, state, channel):
    """The next command of a refresh that waits, and the first clock at which rules allow it."""
    command = tables.refresh if all_closed(tables, state, channel) else tables.precharge
    part = state.channel[channel, REFRESHED] % tables.refresh_parts
    return command, ready_at(tables, state, channel, command, part, 0, 0, 0)


@outlined
def search(tables, program, state, channel, clock, wanted, soonest):
    """One search; `wanted`: the class of the command, -1: any.

    Returns the class of the command looked at last, the queue of what it issues (-1: nothing), its slot,
    its command, whether anything but a command changed, and the first later clock of interest. A ready
    command of another class makes that the next one.
    """
    looked, changed, facts = NONE, 0, state.channel[channel]
    slot, command, ready, _, later = look(tables, program, state, channel, ACTIVE, clock)
    soonest = min(soonest, later)
    if slot >= 0:
        looked = bus_of(tables, command)
        if ready and (wanted < 0 or looked == wanted):
            return looked, ACTIVE, slot, command, changed, soonest
        if ready:
            soonest = clock + 1
    if facts[REFRESH_DUE] > 0:
        command, from_clock = refresh_step(tables, state, channel)
        looked = ROW_BUS
        if from_clock > clock:
            soonest = min(soonest, from_clock)
        if wanted < 0 or wanted == ROW_BUS:
            queue = _REFRESH if from_clock <= clock else _NOTHING
            return looked, queue, 0, command, changed, soonest
        if tables.refresh_waits == 0:
            return looked, _NOTHING, 0, command, changed, soonest
    host_first = facts[MASTER] == HOST_FIRST
    for turn in range(2):
        queue = PIM
        if (turn == 1) != host_first:
            changed += review_write_mode(state, channel)
            queue = WRITES if facts[WRITE_MODE] else READS
        slot, command, ready, dropped, later = look(tables, program, state, channel, queue, clock)
        changed += dropped
        soonest = min(soonest, later)
        if slot >= 0:
            looked = bus_of(tables, command)
            wants = ready and (wanted < 0 or looked == wanted)
            if wants and may_issue(tables, state, channel, queue, command):
                return looked, queue, slot, command, changed, soonest
            if ready and not wants:
                soonest = clock + 1
        elif turn == 1:
            looked = NONE
    return looked, _NOTHING, 0, NO_COMMAND, changed, soonest


@inlined
def begins_with_barrier(program, state, channel):
    """Whether a barrier is the first request for the units."""
    head = state.line[channel, PIM, state.begin[channel, PIM]]
    return state.size[channel, PIM] > 0 and program.command[head] == BARRIER


@outlined
def serve(tables, program, state, channel, clock):
    """Let a channel act in a clock; returns the next clock in which it may act."""
    facts = state.channel[channel]
    if facts[ANSWERS] > 0 and state.answer[channel, facts[FIRST_ANSWER], 0] <= clock:
        facts[FIRST_ANSWER] = (facts[FIRST_ANSWER] + 1) % state.answer.shape[1]
        facts[ANSWERS] -= 1
    refresh_at = due_refresh(tables, state, channel, clock)
    soonest, wanted, acted, is_known = FAR, -1, 0, False
    for _ in range(2):
        looked, queue, slot, command, changed, soonest = search(
            tables, program, state, channel, clock, wanted, soonest
        )
        passed = facts[REFRESH_DUE] == 0 or (wanted >= 0 and wanted != ROW_BUS and tables.refresh_waits == 1)
        if queue == PIM or queue == READS or queue == WRITES or (queue == _NOTHING and passed):
            facts[LAST_PIM] = 1 if queue == PIM else 0
        if queue == _REFRESH:
            issue_refresh(tables, state, channel, clock, command)
            changed += 1
        elif queue != _NOTHING and not (
            command >= 0 and is_protected(tables, program, state, channel, queue, slot, command)
        ):
            issue(tables, program, state, channel, clock, queue, slot, command)
            changed += 1
        acted += changed
        # Nothing is ready and no refresh waits: a second search would find and change nothing, and neither
        # would a later one before the clocks that were seen. A host beside may come first in the next clock.
        is_known = queue == _NOTHING and changed == 0 and facts[REFRESH_DUE] == 0 and facts[MASTER] == ALONE
        if is_known:
            break
        wanted = _NO_CLASS if looked == NONE else ROW_BUS if looked == COLUMN_BUS else COLUMN_BUS
        if wanted == _NO_CLASS and queue == _NOTHING and not begins_with_barrier(program, state, channel):
            break  # a second search would find and change nothing
    wake = min(soonest, refresh_at)
    if facts[ANSWERS] > 0:
        wake = min(wake, max(clock + 1, state.answer[channel, facts[FIRST_ANSWER], 0]))
    return clock + 1 if acted and not is_known else wake


@inlined
def is_done(program, state):
    """Whether nothing is left to offer, to issue or to return."""
    if state.value[LINE] < program.lines or program.more:
        return False
    for channel in range(len(state.channel)):
        if state.channel[channel, ANSWERS] > 0 or state.channel[channel, REFRESH_DUE] > 0:
            return False
        for queue in range(4):
            if state.size[channel, queue] > 0:
                return False
    return True


@kernel
def run_look_ahead(
    tables: BankTables, program: BankProgram, state: BankState, repeats: Repeats, until: int
) -> int:
    """Run until the program's end (returns 1), the clock `until` or a full log (0), the end of the lines
    before more come (2), or for ever (-1).
    """
    value, channels = state.value, len(state.channel)
    room = len(state.log) - 2 * channels
    while value[CLOCK] < until and (len(state.log) == 0 or value[LOGGED] <= room):
        clock = value[CLOCK] + 1
        if offer(tables, program, state, clock):
            return 2
        wake = FAR
        for channel in range(channels):
            facts = state.channel[channel]
            if state.size[channel, ACTIVE] + 2 > CAPACITY:
                return -2
            if facts[WAKE] <= clock:
                facts[WAKE] = serve(tables, program, state, channel, clock)
                if value[LINE] < program.lines:
                    wake = clock + 1  # there may be room for the next request
            wake = min(wake, facts[WAKE])
        value[CLOCK] = clock
        if is_done(program, state):
            value[ENDED] = 1
            return 1
        if wake >= FAR or stands_still(tables, state, clock):
            return -1
        is_mark = len(repeats.facts) > 0 and value[LINE] >= repeats.value[NEXT_MARK]
        if not is_mark or not skip_repeats(tables, program, state, repeats):
            value[CLOCK] = wake - 1
    return 0
