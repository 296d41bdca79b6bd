"""The controller that takes unit commands in their order: one command a clock and channel, modes, answers.

After aim_simulator's controller (Ramulator 2). A decoder turns lines of the program into requests of all
their channels; some lines wait for the answers of all channels.
"""

from __future__ import annotations

from ndpsim.base.jit import inlined, kernel, outlined
from ndpsim.dram.banks.host import may_issue
from ndpsim.dram.banks.lower import ANY_MODE, NO_COMMAND, WAITS, BankTables
from ndpsim.dram.banks.repeats import NEXT_MARK, Repeats, skip_repeats
from ndpsim.dram.banks.state import (
    ACTIVE,
    ALONE,
    ANSWERS,
    BLOCKED,
    CAPACITY,
    CLOCK,
    ENDED,
    FAR,
    FIRST_ANSWER,
    HOST_FIRST,
    KNOWN_LINE,
    KNOWN_NEXT,
    KNOWN_VERSION,
    LEFT,
    LINE,
    LINES_FOLLOW,
    LOGGED,
    MASTER,
    MODE,
    MOST_QUEUED,
    ON_WAY,
    PIM,
    POSITION,
    PROGRESS,
    READS,
    REFRESH_DUE,
    VERSION,
    WAKE,
    WRITE_MODE,
    WRITES,
    BankProgram,
    BankState,
    all_closed,
    answer_later,
    append,
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


@inlined
def takes(tables, program, state, channel, line, column, clock):
    """Offer a request to a channel; returns whether it accepts it."""
    size, shared = state.size[channel], state.channel[channel, MASTER] != ALONE
    if program.host[line]:
        if size[PIM] > 0:
            return False
        command = program.command[line]
        if tables.answers[command] and tables.any_write_answers and size[WRITES] > 0:
            answer_later(state, channel, clock, -1)
            return True
        queue = READS if tables.answers[command] else WRITES
    else:
        if size[READS] + size[WRITES] > 0 and not shared:
            return False
        queue = PIM
    if size[queue] >= MOST_QUEUED:
        return False
    append(state, channel, queue, line, column, clock)
    return True


@outlined
def offer_line(tables, program, state, line, clock):
    """Offer what is left of a line to its channels; returns the requests that are still left.

    A channel with a request for its units acts no sooner: it takes these in their order.
    """
    left, listed = 0, program.listed[line]
    for index in range(program.first[listed], program.first[listed + 1]):
        channel = program.channel[index]
        facts = state.channel[channel]
        before, queued = facts[LEFT], state.size[channel, PIM]
        while facts[LEFT] > 0:
            if not takes(tables, program, state, channel, line, program.size[line] - facts[LEFT], clock):
                break
            facts[LEFT] -= 1
        if facts[LEFT] != before and queued == 0:
            facts[WAKE] = clock
        left += facts[LEFT]
    return left


@outlined
def decode(tables, program, state, clock):
    """Let the decoder act in a clock; returns the next clock in which it may act without a channel."""
    value = state.value
    if value[BLOCKED] > 0 and value[POSITION] == 0:
        return FAR
    if value[POSITION] > 0:  # requests of the current line are left
        value[POSITION] = offer_line(tables, program, state, value[LINE], clock)
        if value[POSITION] > 0:
            return FAR
        value[LINE] += 1
        return clock + 1
    if value[LINE] >= program.lines:
        return FAR
    line = value[LINE]
    if program.command[line] == NO_COMMAND:
        value[LINE] += 1
        return clock + 1
    listed = program.listed[line]
    for index in range(program.first[listed], program.first[listed + 1]):
        state.channel[program.channel[index], LEFT] = program.size[line]
        value[BLOCKED] += program.blocks[line] * program.size[line]
    value[POSITION] = offer_line(tables, program, state, line, clock)
    if value[POSITION] > 0:
        return FAR
    value[LINE] += 1
    return clock + 1


@inlined
def step_of(tables, program, state, channel, clock, line):
    """The next command for a line, the clock at which rules allow it, and when it would be another."""
    final, address = program.command[line], program.place
    p, r, g, b = address[line, 0], address[line, 1], address[line, 2], address[line, 3]
    facts = state.channel[channel]
    if facts[KNOWN_LINE] != line or facts[KNOWN_VERSION] != facts[VERSION]:
        found = next_command(tables, state, channel, final, program.row[line], p, r, g, b)
        facts[KNOWN_LINE], facts[KNOWN_VERSION], facts[KNOWN_NEXT] = line, facts[VERSION], found
    command, otherwise = facts[KNOWN_NEXT], FAR
    if command == final and tables.prepared_by[final] != NO_COMMAND:
        if clock > state.synced[channel]:
            command = tables.prepared_by[final]
        else:
            otherwise = state.synced[channel] + 1
    return command, in_mode_at(tables, state, channel, command, p, r, g, b), otherwise


@inlined
def in_mode_at(tables, state, channel, command, p, r, g, b):
    """The first clock at which rules allow a command, or the change of mode that it needs."""
    from_clock = ready_at(tables, state, channel, command, p, r, g, b)
    if not has_mode(tables, state, channel, command):
        from_clock = max(from_clock, ready_at(tables, state, channel, tables.mode_change, 0, 0, 0, 0))
    return from_clock


@inlined
def has_mode(tables, state, channel, command):
    """Whether a channel is in the mode that a command needs."""
    return tables.mode[command] == ANY_MODE or tables.mode[command] == state.channel[channel, MODE]


@outlined
def issue(tables, program, state, channel, clock, queue, slot, command):
    """Issue the next command of a request, or the change of mode that it needs."""
    line = state.line[channel, queue, slot]
    facts, address = state.channel[channel], program.place
    p, r, g, b = address[line, 0], address[line, 1], address[line, 2], address[line, 3]
    if changes_mode(tables, state, channel, clock, command):
        return 0
    log(state, clock, channel, command, line, state.column[channel, queue, slot])
    note_rules(tables, state, channel, command, clock, p, r, g, b)
    final = program.command[line]
    if tables.opens[command] or tables.closes[command]:
        note_rows(tables, state, channel, command, program.row[line], p, r, g, b)
    if tables.starts_clock[command]:
        state.synced[channel] = clock + tables.synced[final] + 1
        return 0
    if command == final:
        state.value[PROGRESS] = clock
        if tables.prepared_by[command] != NO_COMMAND:
            state.synced[channel] = clock + tables.synced[command]
        if tables.answers[command]:
            answer_later(state, channel, clock + tables.latency[command], line)
        else:
            facts[ON_WAY] = max(facts[ON_WAY], clock + tables.latency[command])
        remove(state, channel, queue, slot)
    elif program.host[line] and tables.opens[command] and queue != ACTIVE:
        column, arrived = state.column[channel, queue, slot], state.arrived[channel, queue, slot]
        remove(state, channel, queue, slot)
        append(state, channel, ACTIVE, line, column, arrived)
    return 0


@inlined
def changes_mode(tables, state, channel, clock, command):
    """Issue a change of mode instead of a command that finds the wrong mode; returns whether it did."""
    facts = state.channel[channel]
    if has_mode(tables, state, channel, command):
        return False
    log(state, clock, channel, tables.mode_change, -1, -1)
    note_rules(tables, state, channel, tables.mode_change, clock, 0, 0, 0, 0)
    if tables.closes[tables.mode_change]:
        note_rows(tables, state, channel, tables.mode_change, 0, 0, 0, 0, 0)
    facts[MODE] = 3 - facts[MODE]
    return True


@outlined
def first_ready(tables, program, state, channel, queue, clock):
    """The first ready request of a queue: its slot (-1: none), command, and a later clock of interest."""
    soonest, begin = FAR, state.begin[channel, queue]
    for slot in range(begin, begin + state.size[channel, queue]):
        line = state.line[channel, queue, slot]
        command, from_clock, otherwise = step_of(tables, program, state, channel, clock, line)
        if from_clock <= clock:
            return slot, command, soonest
        soonest = min(soonest, from_clock, otherwise)
    return -1, NO_COMMAND, soonest


@inlined
def answers(program, state, channel, clock):
    """Return the first answer, if its time has come."""
    facts = state.channel[channel]
    if facts[ANSWERS] == 0:
        return 0
    first = facts[FIRST_ANSWER]
    line = state.answer[channel, first, 1]
    waits = line >= 0 and program.command[line] == WAITS
    if state.answer[channel, first, 0] > clock or (waits and clock <= facts[ON_WAY]):
        return 0
    if line >= 0 and program.blocks[line]:
        state.value[BLOCKED] -= 1
    facts[FIRST_ANSWER] = (first + 1) % state.answer.shape[1]
    facts[ANSWERS] -= 1
    return 1


@inlined
def answer_at(program, state, channel, clock):
    """The clock of the next answer."""
    facts = state.channel[channel]
    if facts[ANSWERS] == 0:
        return FAR
    first = facts[FIRST_ANSWER]
    line, from_clock = state.answer[channel, first, 1], state.answer[channel, first, 0]
    if line >= 0 and program.command[line] == WAITS:
        from_clock = max(from_clock, facts[ON_WAY] + 1)
    return max(from_clock, clock + 1)


@outlined
def refresh(tables, state, channel, clock):
    """Issue the next command of a refresh that waits; returns whether it did, and when it can."""
    facts = state.channel[channel]
    command = tables.refresh if all_closed(tables, state, channel) else tables.precharge
    from_clock = in_mode_at(tables, state, channel, command, 0, 0, 0, 0)
    if from_clock > clock:
        return False, from_clock
    if not changes_mode(tables, state, channel, clock, command):
        log(state, clock, channel, command, -1, -1)
        note_rules(tables, state, channel, command, clock, 0, 0, 0, 0)
        if command == tables.refresh:
            facts[REFRESH_DUE] -= 1
        else:
            note_rows(tables, state, channel, command, 0, 0, 0, 0, 0)
    return True, FAR


@outlined
def is_protected(tables, program, state, channel, line, command):
    """Whether a request that has activated its row keeps a precharge of one bank from closing it."""
    if tables.closes[command] == 0 or tables.uses[command] or tables.fixed[command, 3] == 0:
        return False
    begin = state.begin[channel, ACTIVE]
    for slot in range(begin, begin + state.size[channel, ACTIVE]):
        same, other = True, state.line[channel, ACTIVE, slot]
        for level in range(4):
            same = same and program.place[other, level] == program.place[line, level]
        if same:
            return True
    return False


@outlined
def act(tables, program, state, channel, clock):
    """Issue a command of a channel; returns whether anything changed, and a later clock of interest."""
    facts = state.channel[channel]
    slot, command, soonest = first_ready(tables, program, state, channel, ACTIVE, clock)
    if slot >= 0:
        issue(tables, program, state, channel, clock, ACTIVE, slot, command)
        return True, FAR
    if facts[REFRESH_DUE] > 0:
        issued, from_clock = refresh(tables, state, channel, clock)
        return issued, min(soonest, from_clock)
    changed, host_first = False, facts[MASTER] == HOST_FIRST
    for turn in range(2):
        if (turn == 1) != host_first:
            changed = review_write_mode(state, channel) > 0
            issued, later = act_for_host(tables, program, state, channel, clock)
        else:
            issued, later = act_for_units(tables, program, state, channel, clock)
        if issued:
            return True, FAR
        soonest = min(soonest, later)
        if facts[MASTER] == ALONE and state.size[channel, PIM] > 0:
            break
    return changed, soonest


@inlined
def act_for_units(tables, program, state, channel, clock):
    """Issue the command of the first request for the units; returns whether it did, and when it can."""
    if state.size[channel, PIM] == 0:
        return False, FAR
    head = state.begin[channel, PIM]
    line = state.line[channel, PIM, head]
    if program.command[line] == WAITS:
        # Accesses of a program's own; a host beside it goes on.
        accesses = state.size[channel, ACTIVE] > 0 and state.channel[channel, MASTER] == ALONE
        if accesses and not tables.leaves_accesses:
            return False, FAR
        remove(state, channel, PIM, head)
        answer_later(state, channel, clock + 1, line)
        return True, FAR
    command, from_clock, otherwise = step_of(tables, program, state, channel, clock, line)
    if from_clock > clock:
        return False, min(from_clock, otherwise)
    if not may_issue(tables, state, channel, PIM, command):
        return False, FAR
    issue(tables, program, state, channel, clock, PIM, head, command)
    return True, FAR


@inlined
def act_for_host(tables, program, state, channel, clock):
    """Issue a command for the host; returns whether it did, and when it can."""
    queue = WRITES if state.channel[channel, WRITE_MODE] else READS
    slot, command, later = first_ready(tables, program, state, channel, queue, clock)
    if slot < 0 or not may_issue(tables, state, channel, queue, command):
        return False, later
    if is_protected(tables, program, state, channel, state.line[channel, queue, slot], command):
        return False, later
    issue(tables, program, state, channel, clock, queue, slot, command)
    return True, FAR


@inlined
def next_act(tables, program, state, channel, clock):
    """The first clock from `clock` on at which a channel may act, as it stands."""
    size, facts = state.size[channel], state.channel[channel]
    if size[ACTIVE] > 0 or size[PIM] == 0 or facts[REFRESH_DUE] > 0 or facts[MASTER] != ALONE:
        return clock
    line = state.line[channel, PIM, state.begin[channel, PIM]]
    if program.command[line] == WAITS:
        return clock
    _, from_clock, otherwise = step_of(tables, program, state, channel, clock, line)
    return max(clock, min(from_clock, otherwise))


@kernel
def run_in_order(
    tables: BankTables, program: BankProgram, state: BankState, repeats: Repeats, until: int
) -> int:
    """Run until the program's end (returns 1), the clock `until` or a full log (0), the end of the lines
    before more come (2), or for ever (-1).
    """
    value, channels = state.value, len(state.channel)
    room = len(state.log) - 2 * channels
    while value[CLOCK] < until and (len(state.log) == 0 or value[LOGGED] <= room):
        clock = value[CLOCK] + 1
        if value[LINE] >= program.lines and program.more == LINES_FOLLOW:
            return 2
        wake = decode(tables, program, state, clock)
        waiting = value[POSITION] > 0
        for channel in range(channels):
            facts = state.channel[channel]
            if state.size[channel, ACTIVE] + 2 > CAPACITY:
                return -2
            if facts[WAKE] <= clock and serve(tables, program, state, channel, clock, waiting):
                wake = clock + 1
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


@inlined
def serve(tables, program, state, channel, clock, waiting):
    """Let a channel act in a clock; returns whether the decoder may act in the next one for that.

    `waiting`: requests of the current line are left.
    """
    facts = state.channel[channel]
    returned = answers(program, state, channel, clock)
    refresh_at = due_refresh(tables, state, channel, clock)
    changed, later = act(tables, program, state, channel, clock)
    if changed:
        later = next_act(tables, program, state, channel, clock + 1)
    facts[WAKE] = clock + 1 if returned else min(later, refresh_at)
    facts[WAKE] = min(facts[WAKE], answer_at(program, state, channel, clock))
    return (changed and waiting) or (returned and state.value[BLOCKED] == 0)


@inlined
def is_done(program, state):
    """Whether the program has ended."""
    if state.value[LINE] < program.lines or program.more or state.value[BLOCKED] > 0:
        return False
    return program.ends == 1 or is_idle(state)


@inlined
def is_idle(state):
    """Whether no channel has a request or an answer left."""
    for channel in range(len(state.channel)):
        if state.channel[channel, ANSWERS] > 0:
            return False
        for queue in range(4):
            if state.size[channel, queue] > 0:
                return False
    return True
