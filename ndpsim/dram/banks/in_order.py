"""The controller that takes unit commands in their order: one command a clock and channel, modes, answers.

After aim_simulator's controller (Ramulator 2). A decoder turns lines of the program into requests of all
their channels; some lines wait for the answers of all channels.
"""

from __future__ import annotations

from ndpsim.base.jit import inlined, kernel, outlined
from ndpsim.dram.banks.lower import ANY_MODE, NO_COMMAND, WAITS, BankTables
from ndpsim.dram.banks.state import (
    ACTIVE,
    ANSWERS,
    BLOCKED,
    CAPACITY,
    CLOCK,
    ENDED,
    FAR,
    FIRST_ANSWER,
    KNOWN_LINE,
    KNOWN_NEXT,
    KNOWN_VERSION,
    LEFT,
    LINE,
    LOGGED,
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
    copy,
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
    size = state.size[channel]
    if program.host[line]:
        if size[PIM] > 0:
            return False
        command = program.command[line]
        if tables.answers[command] and tables.any_write_answers and size[WRITES] > 0:
            answer_later(state, channel, clock, -1)
            return True
        queue = READS if tables.answers[command] else WRITES
    else:
        if size[READS] + size[WRITES] > 0:
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
    left = 0
    for index in range(program.first[line], program.first[line + 1]):
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
    for index in range(program.first[line], program.first[line + 1]):
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
        last = state.size[channel, ACTIVE]
        copy(state, channel, ACTIVE, last, queue, slot)
        state.size[channel, ACTIVE] = last + 1
        remove(state, channel, queue, slot)
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
    soonest = FAR
    for slot in range(state.size[channel, queue]):
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
    for slot in range(state.size[channel, ACTIVE]):
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
    if state.size[channel, PIM] > 0:
        line = state.line[channel, PIM, 0]
        if program.command[line] == WAITS:
            remove(state, channel, PIM, 0)
            answer_later(state, channel, clock + 1, line)
            return True, FAR
        command, from_clock, otherwise = step_of(tables, program, state, channel, clock, line)
        if from_clock <= clock:
            issue(tables, program, state, channel, clock, PIM, 0, command)
            return True, FAR
        return False, min(soonest, from_clock, otherwise)
    changed = review_write_mode(state, channel) > 0
    queue = WRITES if facts[WRITE_MODE] else READS
    slot, command, later = first_ready(tables, program, state, channel, queue, clock)
    if slot >= 0 and not is_protected(
        tables, program, state, channel, state.line[channel, queue, slot], command
    ):
        issue(tables, program, state, channel, clock, queue, slot, command)
        return True, FAR
    return changed, min(soonest, later)


@inlined
def next_act(tables, program, state, channel, clock):
    """The first clock from `clock` on at which a channel may act, as it stands."""
    size = state.size[channel]
    if size[ACTIVE] > 0 or size[PIM] == 0 or state.channel[channel, REFRESH_DUE] > 0:
        return clock
    line = state.line[channel, PIM, 0]
    if program.command[line] == WAITS:
        return clock
    _, from_clock, otherwise = step_of(tables, program, state, channel, clock, line)
    return max(clock, min(from_clock, otherwise))


@kernel
def run_in_order(tables: BankTables, program: BankProgram, state: BankState, until: int) -> int:
    """Run until the program's end (returns 1), the clock `until` or a full log (0), or for ever (-1)."""
    value, channels = state.value, len(state.channel)
    room = len(state.log) - 2 * channels
    while value[CLOCK] < until and (len(state.log) == 0 or value[LOGGED] <= room):
        clock = value[CLOCK] + 1
        wake = decode(tables, program, state, clock)
        waiting = value[POSITION] > 0
        for channel in range(channels):
            facts = state.channel[channel]
            if state.size[channel, ACTIVE] + 2 > CAPACITY:
                return -2
            if facts[WAKE] <= clock:
                returned = answers(program, state, channel, clock)
                refresh_at = due_refresh(tables, state, channel, clock)
                changed, later = act(tables, program, state, channel, clock)
                if changed:
                    later = next_act(tables, program, state, channel, clock + 1)
                facts[WAKE] = clock + 1 if returned else min(later, refresh_at)
                facts[WAKE] = min(facts[WAKE], answer_at(program, state, channel, clock))
                if (changed and waiting) or (returned and value[BLOCKED] == 0):
                    wake = clock + 1
            wake = min(wake, facts[WAKE])
        value[CLOCK] = clock
        if value[LINE] >= program.lines and value[BLOCKED] == 0 and (program.ends or is_idle(state)):
            value[ENDED] = 1
            return 1
        if wake >= FAR or stands_still(tables, state, clock):
            return -1
        value[CLOCK] = wake - 1
    return 0


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
