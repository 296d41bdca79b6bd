"""Stretches of a program that come again: their end is restored instead of simulated.

At marks of a program the state is written without its clock, its line and its row. If an earlier stretch
began in the same state and took the same lines, but for a distance of rows, and no refresh falls due, it ends
in the same state: commands are counted, and the clock moves on. States and lines are compared in full.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ndpsim.base.jit import by_reference, inlined, outlined
from ndpsim.dram.banks.lower import BARRIER, BankTables
from ndpsim.dram.banks.state import (
    ACTIVE,
    ANSWERS,
    BLOCKED,
    CLOCK,
    FIRST_ANSWER,
    KNOWN_LINE,
    LAST_PIM,
    LEFT,
    LINE,
    MODE,
    MOST_QUEUED,
    ON_WAY,
    PIM,
    POSITION,
    PROGRESS,
    READS,
    REFRESH_DUE,
    REFRESHED,
    STAMP,
    VERSION,
    WAKE,
    WRITE_MODE,
    WRITES,
    BankState,
    Ints,
    is_open,
)

_ROOM = 4 << 20  # integers of all stretches
_MOST = 1024  # stretches
_LINES = 192  # of a stretch at most
_ANSWERS = 4  # on their way at a mark at most
_HELD = 2 * MOST_QUEUED  # writes of the host that wait at a mark at most
_NONE = -1

# Places in `Repeats.value`.
NEXT_MARK, START, START_CLOCK, START_LINE, START_ROW, HASH, SKIPPED = range(7)
# Places in `Repeats.facts[entry]`.
_HASH, _WORDS, _END_WORDS, _TAKEN, _CLOCKS, _ROWS = range(6)


@by_reference
class Repeats(NamedTuple):
    """Stretches that were simulated. Without entries, nothing is skipped."""

    stride: int  # lines between marks; a barrier is followed by one, too
    writes: int  # 1: writes of the host may wait at a mark
    finals: Ints  # the commands of all lines
    value: Ints
    pairs: Ints  # [n, 2]: node and command of the rules that are in force
    windows: Ints  # [n, 3]: rule, node and number of the activations that count
    facts: Ints  # [entry, fact]
    begin: Ints  # [entry, word]
    end: Ints  # [entry, word]
    lines: Ints  # [entry, line, 2]: code and row
    issued: Ints  # [entry, channel, command]
    start: Ints  # [word]: the state at the last mark
    now: Ints  # [word]
    before: Ints  # [channel, command]


def make_repeats(
    tables: BankTables, state: BankState, stride: int, finals: Ints, writes: bool = True
) -> Repeats:
    """Room for stretches.

    stride: lines between marks, 0: nothing is skipped. finals: commands of all lines. writes: lines may be
    writes of the host.
    """
    channels, commands = state.issued.shape
    pairs, windows = _pairs(tables, _issued_for(tables, finals)), _windows(tables)
    queued = 3 * (_ANSWERS + MOST_QUEUED) + 4 * _HELD * writes
    words = 2 + channels * (11 + queued + tables.banks + len(pairs) + len(windows))
    entry = 2 * words + 2 * _LINES + channels * commands
    entries = min(_MOST, max(_ROOM // entry, 2)) if stride else 0

    def room(*shape: int) -> Ints:
        return np.empty(shape, dtype=np.int64)

    return Repeats(
        stride,
        int(writes),
        finals,
        np.zeros(7, dtype=np.int64),
        pairs,
        windows,
        np.zeros((entries, 6), dtype=np.int64),
        room(entries, words),
        room(entries, words),
        room(entries, _LINES, 2),
        room(entries, channels, commands),
        room(words),
        room(words),
        room(channels, commands),
    )


def repeats_for(repeats: Repeats, tables: BankTables, state: BankState) -> Repeats:
    """The same room, or a new one if channels have been divided."""
    if repeats.issued.shape[1] == len(state.channel):
        return repeats
    made = make_repeats(tables, state, repeats.stride, repeats.finals, repeats.writes == 1)
    made.value[[NEXT_MARK, SKIPPED]] = repeats.value[[NEXT_MARK, SKIPPED]]
    return made


def _issued_for(tables: BankTables, finals: Ints) -> list[int]:
    """The commands that lines with these commands may need, and those of refreshes."""
    found = {*finals.tolist(), tables.refresh, tables.precharge, tables.mode_change}
    # Activations have a second step, and some commands another before them, so three steps find all.
    for _ in range(3):
        for following in (tables.opened_by, tables.closed_by, tables.completed_by, tables.prepared_by):
            found |= {int(following[command]) for command in found if command >= 0}
    return sorted(command for command in found if command >= 0)


def _pairs(tables: BankTables, commands: list[int]) -> Ints:
    """Nodes and commands for which the first clocks of commands matter."""
    bounds = [*tables.base.tolist(), tables.nodes]
    found = [
        (node, command)
        for command in commands
        for index in range(tables.need_first[command], tables.need_first[command + 1])
        for node in range(bounds[tables.need_family[index]], bounds[tables.need_family[index] + 1])
    ]
    return np.array(found, dtype=np.int64).reshape(-1, 2)


def _windows(tables: BankTables) -> Ints:
    """Past activations that rules of several activations look at."""
    bounds = [*tables.base.tolist(), tables.nodes]
    found = [
        (rule, node, n)
        for rule, family in enumerate(tables.window_family.tolist())
        for node in range(bounds[family], bounds[family + 1])
        for n in range(tables.window_size[rule])
    ]
    return np.array(found, dtype=np.int64).reshape(-1, 3)


@inlined
def row_of(tables, program, line, base):
    """The row of a line from a base on; 0 if it uses none."""
    command = program.command[line]
    return program.row[line] - base if command >= 0 and tables.uses[command] else 0


@outlined
def base_row(tables, program, line, most):
    """The row of the next line that uses one."""
    for n in range(line, min(line + most, program.lines)):
        if program.command[n] >= 0 and tables.uses[program.command[n]]:
            return program.row[n]
    return 0


@outlined
def write_state(tables, program, state, repeats, clock, line, base):
    """Write the state at the end of a clock without clock, line and row; returns its words, -1: it has none.

    It has none while a refresh waits, or reads of the host or several rows of a bank do.
    """
    out = repeats.now
    out[0], out[1] = state.value[BLOCKED], state.value[POSITION]
    count = 2
    for channel in range(len(state.channel)):
        facts, size = state.channel[channel], state.size[channel]
        writes = size[WRITES] + size[ACTIVE]
        if size[READS] + facts[REFRESH_DUE] > 0 or facts[ANSWERS] > _ANSWERS:
            return _NONE
        if writes > _HELD * repeats.writes:
            return _NONE
        out[count], out[count + 1] = facts[REFRESHED] % tables.refresh_parts, facts[MODE]
        out[count + 2], out[count + 3] = facts[WRITE_MODE], facts[LAST_PIM]
        out[count + 4], out[count + 5] = facts[LEFT], max(facts[ON_WAY] - clock, 0)
        out[count + 6], out[count + 7] = max(state.synced[channel] - clock, -1), facts[ANSWERS]
        out[count + 8], out[count + 9], out[count + 10] = size[PIM], size[WRITES], size[ACTIVE]
        count += 11
        for n in range(facts[ANSWERS]):
            entry = state.answer[channel, (facts[FIRST_ANSWER] + n) % state.answer.shape[1]]
            if entry[1] < 0:
                return _NONE
            out[count], out[count + 1] = max(entry[0] - clock, 0), entry[1] - line
            out[count + 2] = program.code[entry[1]]
            count += 3
        begin = state.begin[channel, PIM]
        for slot in range(begin, begin + size[PIM]):
            other = state.line[channel, PIM, slot]
            out[count], out[count + 1] = other - line, program.code[other]
            out[count + 2] = row_of(tables, program, other, base)
            count += 3
        if writes > 0:
            count = write_queued(tables, program, state, repeats, channel, clock, line, base, count)
            if count < 0:
                return _NONE
        for bank in range(tables.banks):
            if state.several[channel, bank]:
                return _NONE
            is_row = is_open(state, channel, bank) and state.half[channel, bank] == 0
            out[count + bank] = (
                4 * (state.row[channel, bank] - base) if is_row else 1 + state.half[channel, bank]
            )
        count = write_times(tables, state, repeats, channel, clock, count + tables.banks)
    return count


@outlined
def write_queued(tables, program, state, repeats, channel, clock, line, base, count):
    """Write the writes of the host that wait; -1: a read whose row was activated is among them."""
    out = repeats.now
    for queue in (WRITES, ACTIVE):
        begin = state.begin[channel, queue]
        for slot in range(begin, begin + state.size[channel, queue]):
            other = state.line[channel, queue, slot]
            if tables.answers[program.command[other]]:
                return _NONE
            out[count], out[count + 1] = other - line, program.code[other]
            out[count + 2] = row_of(tables, program, other, base)
            out[count + 3] = clock - state.arrived[channel, queue, slot]
            count += 4
    return count


@outlined
def read_queued(state, channel, clock, line, words, count):
    """Restore the writes of the host that wait."""
    for queue in (WRITES, ACTIVE):
        for slot in range(state.size[channel, queue]):
            state.line[channel, queue, slot] = line + words[count]
            state.arrived[channel, queue, slot] = clock - words[count + 3]
            state.known[channel, queue, slot] = 0
            count += 4
    return count


@inlined
def write_times(tables, state, repeats, channel, clock, count):
    """Write for how long the rules of past commands hold."""
    out, pairs, windows, after = repeats.now, repeats.pairs, repeats.windows, state.after[channel]
    for n in range(len(pairs)):
        out[count + n] = max(after[pairs[n, 0], pairs[n, 1]] - clock, 0)
    count += len(pairs)
    for n in range(len(windows)):
        rule = windows[n, 0]
        until = state.window[channel, rule, windows[n, 1], windows[n, 2]] + tables.window_clocks[rule]
        out[count + n] = max(until - clock, 0)
    return count + len(windows)


@outlined
def read_state(tables, state, repeats, clock, line, base, words):
    """Restore a state from what `write_state` wrote."""
    state.value[BLOCKED], state.value[POSITION] = words[0], words[1]
    count = 2
    for channel in range(len(state.channel)):
        facts = state.channel[channel]
        facts[REFRESHED], facts[MODE] = words[count], words[count + 1]
        facts[WRITE_MODE], facts[LAST_PIM] = words[count + 2], words[count + 3]
        facts[LEFT], facts[ON_WAY] = words[count + 4], clock + words[count + 5]
        state.synced[channel] = clock + words[count + 6]
        facts[ANSWERS], facts[FIRST_ANSWER] = words[count + 7], 0
        state.begin[channel, :] = 0
        state.size[channel, PIM] = words[count + 8]
        state.size[channel, WRITES], state.size[channel, ACTIVE] = words[count + 9], words[count + 10]
        count += 11
        for n in range(facts[ANSWERS]):
            state.answer[channel, n, 0] = clock + words[count]
            state.answer[channel, n, 1] = line + words[count + 1]
            count += 3
        for slot in range(state.size[channel, PIM]):
            state.line[channel, PIM, slot] = line + words[count]
            state.arrived[channel, PIM, slot], state.known[channel, PIM, slot] = clock - 1, 0
            count += 3
        count = read_queued(state, channel, clock, line, words, count)
        facts[KNOWN_LINE], facts[WAKE] = -1, clock + 1
        read_rows(tables, state, channel, base, words[count : count + tables.banks])
        count = read_times(tables, state, repeats, channel, clock, words, count + tables.banks)
    return 0


@inlined
def read_rows(tables, state, channel, base, words):
    """Restore the rows of a channel."""
    facts = state.channel[channel]
    facts[STAMP] += 2  # later than all before
    facts[VERSION] += 1
    stamp = facts[STAMP]
    for bank in range(tables.banks):
        is_row = words[bank] % 4 == 0
        state.half[channel, bank] = 1 if words[bank] == 2 else 0
        state.latest[channel, bank], state.closed[channel, bank] = stamp, stamp - 1 if is_row else stamp
        if is_row:
            row = state.row[channel, bank] = base + words[bank] // 4
            if tables.row_sets and row < tables.rows:
                state.sets[channel, bank, row] = stamp


@inlined
def read_times(tables, state, repeats, channel, clock, words, count):
    """Restore for how long the rules of past commands hold."""
    pairs, windows, after = repeats.pairs, repeats.windows, state.after[channel]
    for n in range(len(pairs)):
        after[pairs[n, 0], pairs[n, 1]] = clock + words[count + n]
    count += len(pairs)
    for n in range(len(windows)):
        rule = windows[n, 0]
        last = clock + words[count + n] - tables.window_clocks[rule]
        state.window[channel, rule, windows[n, 1], windows[n, 2]] = last
    return count + len(windows)


@inlined
def mixed(result, word):
    """A hash of a hash and a word."""
    return result * 1000003 + word


@outlined
def hashed(tables, program, repeats, words, line, base):
    """A hash of the state at a mark, and of the lines up to the next mark and that at it."""
    result = words
    for n in range(words):
        result = mixed(result, repeats.now[n])
    for n in range(line, min(repeats.value[NEXT_MARK] + 1, program.lines)):
        result = mixed(mixed(result, program.code[n]), row_of(tables, program, n, base))
    return (result ^ (result >> 32)) & 0xFFFFFFFF


@outlined
def mark_after(program, mark, stride, line):
    """The first mark behind a line: `stride` lines after the one before, or behind a barrier."""
    while mark <= line:
        following = mark + stride
        for n in range(max(mark, 0), min(following, program.lines)):
            if program.command[n] == BARRIER:
                following = n + 1
                break
        mark = following
    return mark


@outlined
def note_stretch(tables, program, state, repeats, clock, line, words):
    """Note the stretch since the last mark, if it can come again; `now` has the state at its end."""
    value = repeats.value
    first, taken = value[START_LINE], line - value[START_LINE] + 1
    refresh = tables.refresh_clocks
    if first < 0 or taken > _LINES or line >= program.lines:
        return 0
    if refresh > 0 and clock // refresh != value[START_CLOCK] // refresh:
        return 0
    for n in range(first, line + 1):
        # A read looks for queued writes to its column, which is not compared.
        if program.host[n] and (repeats.writes == 0 or tables.answers[program.command[n]]):
            return 0
    entry = value[HASH] % len(repeats.facts)
    facts, base = repeats.facts[entry], value[START_ROW]
    facts[_HASH], facts[_WORDS], facts[_END_WORDS] = value[HASH], value[START], words
    facts[_TAKEN], facts[_CLOCKS] = taken, clock - value[START_CLOCK]
    facts[_ROWS] = base_row(tables, program, line, repeats.stride) - base
    for n in range(value[START]):
        repeats.begin[entry, n] = repeats.start[n]
    for n in range(words):
        repeats.end[entry, n] = repeats.now[n]
    for n in range(taken):
        repeats.lines[entry, n, 0] = program.code[first + n]
        repeats.lines[entry, n, 1] = row_of(tables, program, first + n, base)
    for channel in range(state.issued.shape[0]):
        for command in range(state.issued.shape[1]):
            repeats.issued[entry, channel, command] = (
                state.issued[channel, command] - repeats.before[channel, command]
            )
    return 0


@outlined
def find_stretch(tables, program, repeats, line, base, words, key):
    """The entry of an earlier stretch with this state and these lines; -1: there is none."""
    entry = key % len(repeats.facts)
    facts = repeats.facts[entry]
    taken = facts[_TAKEN]
    if facts[_HASH] != key or facts[_WORDS] != words or taken == 0 or line + taken > program.lines:
        return _NONE
    for n in range(words):
        if repeats.begin[entry, n] != repeats.now[n]:
            return _NONE
    for n in range(taken):
        if repeats.lines[entry, n, 0] != program.code[line + n]:
            return _NONE
        if repeats.lines[entry, n, 1] != row_of(tables, program, line + n, base):
            return _NONE
    return entry


@outlined
def skip_repeats(tables, program, state, repeats):
    """At a mark: note the stretch before it, and skip those from here on that came before.

    Returns whether any was skipped.
    """
    value, skipped = repeats.value, False
    while True:
        clock, line = state.value[CLOCK], state.value[LINE]
        if line < value[NEXT_MARK]:
            return skipped
        value[NEXT_MARK] = mark_after(program, value[NEXT_MARK], repeats.stride, line)
        if line >= program.lines:
            value[START] = 0
            return skipped
        base = base_row(tables, program, line, repeats.stride)
        words = write_state(tables, program, state, repeats, clock, line, base)
        if value[START] > 0 and words > 0:
            note_stretch(tables, program, state, repeats, clock, line, words)
        value[START] = 0
        if words < 0:
            return skipped
        key = hashed(tables, program, repeats, words, line, base)
        entry = find_stretch(tables, program, repeats, line, base, words, key)
        if entry < 0:
            begin_stretch(state, repeats, clock, line, base, words, key)
            return skipped
        facts, refresh = repeats.facts[entry], tables.refresh_clocks
        until = clock + facts[_CLOCKS]
        if refresh > 0 and until // refresh != clock // refresh:
            return skipped
        skipped = True
        value[SKIPPED] += facts[_CLOCKS]
        line += facts[_TAKEN] - 1
        state.value[CLOCK] = state.value[PROGRESS] = until
        state.value[LINE] = line
        base += facts[_ROWS]
        read_state(tables, state, repeats, until, line, base, repeats.end[entry])
        for channel in range(state.issued.shape[0]):
            for command in range(state.issued.shape[1]):
                state.issued[channel, command] += repeats.issued[entry, channel, command]


@inlined
def begin_stretch(state, repeats, clock, line, base, words, key):
    """Remember the state at a mark, from which a stretch begins."""
    value = repeats.value
    value[START], value[START_CLOCK], value[START_LINE] = words, clock, line
    value[START_ROW], value[HASH] = base, key
    for n in range(words):
        repeats.start[n] = repeats.now[n]
    for channel in range(state.issued.shape[0]):
        for command in range(state.issued.shape[1]):
            repeats.before[channel, command] = state.issued[channel, command]
