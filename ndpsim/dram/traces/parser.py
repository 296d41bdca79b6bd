"""The loop over the bytes of a request trace, for any format that `RequestFormat` can describe."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ndpsim.base.jit import inlined, kernel, outlined
from ndpsim.dram.traces.chunks import LONGEST_LINE
from ndpsim.dram.traces.request_format import COORDINATES, RequestFormat

#: The largest address and cycle, and the largest coordinate.
LARGEST = (1 << 62) - 1
LARGEST_COORDINATE = (1 << 31) - 1

#: Faults of a line: not in the format; a number too large; a blank line before a request; a cycle before that
#: of the previous request; longer than `LONGEST_LINE`.
NO_FAULT, MALFORMED, TOO_LARGE, BLANK, BACKWARDS, LONG = range(6)

_OPERATION, _ADDRESS, _CYCLE, _DATA, _PLACE = range(5)
_NO_DIGIT = 99
_VALUES = {digit: int(digit, 16) for digit in "0123456789abcdefABCDEF"}
#: [character]: the value of a hexadecimal digit; _NO_DIGIT for other characters.
_DIGITS = np.array([_VALUES.get(chr(code), _NO_DIGIT) for code in range(256)], dtype=np.int64)

_NUMBER_OF = {"operation": _OPERATION, "address": _ADDRESS, "cycle": _CYCLE, "data": _DATA}


class Grammar(NamedTuple):
    """A format as arrays; the first five are indexed by field."""

    kind: NDArray[np.int64]  # _PLACE + n: coordinate n
    base: NDArray[np.int64]
    mark: NDArray[np.int64]  # the character after it, 0 for none
    gap: NDArray[np.int64]  # 1: blanks after it
    largest: NDArray[np.int64]
    word: NDArray[np.int64]  # by operation: its characters, with the first in the highest byte
    length: NDArray[np.int64]
    write: NDArray[np.int64]
    comments: NDArray[np.int64]  # of one element, like the next one
    blank_lines: NDArray[np.int64]
    overdue: NDArray[np.int64]
    digits: NDArray[np.int64]  # `_DIGITS`


class State(NamedTuple):
    """The position of the loop in a file, carried over from piece to piece; all arrays have one element."""

    position: NDArray[np.int64]  # of the next line in the piece
    line: NDArray[np.int64]  # lines done
    requests: NDArray[np.int64]
    skipped: NDArray[np.int64]  # lines of the last block without a request
    cycle: NDArray[np.int64]  # of the last request
    comment: NDArray[np.int64]  # the first comment line, 0 for none, like the next one
    blank: NDArray[np.int64]
    fault: NDArray[np.int64]
    fault_line: NDArray[np.int64]
    fault_start: NDArray[np.int64]  # index of that line's first byte in the piece
    fault_at: NDArray[np.int64]  # index of the fault in the line
    fault_field: NDArray[np.int64]


class RequestArrays(NamedTuple):
    """Requests of a block; arrays of properties that a format lacks are empty."""

    address: NDArray[np.int64]
    write: NDArray[np.int8]
    cycle: NDArray[np.int64]
    place: NDArray[np.int32]
    skipped: NDArray[np.int64]  # by skipped line: requests in the block before it


def grammar_of(format_: RequestFormat) -> Grammar:
    """The arrays of a format."""
    words = [(word, 0) for word in format_.reads] + [(word, 1) for word in format_.writes]
    after = [item.after for item in format_.fields]
    columns = (
        [
            _PLACE + COORDINATES.index(item.what) if item.what in COORDINATES else _NUMBER_OF[item.what]
            for item in format_.fields
        ],
        [item.base for item in format_.fields],
        [ord(mark[0]) if mark[0] != " " else 0 for mark in after],
        [int(mark.endswith(" ")) for mark in after],
        [LARGEST_COORDINATE if item.what in COORDINATES else LARGEST for item in format_.fields],
        [int.from_bytes(word.encode("ascii"), "big") for word, _ in words],
        [len(word) for word, _ in words],
        [write for _, write in words],
        [int(format_.comments)],
        [int(format_.blank_lines)],
        [int(format_.overdue)],
    )
    return Grammar(*(np.array(column, dtype=np.int64) for column in (*columns, _DIGITS)))


def no_format() -> Grammar:
    """A grammar that accepts only lines that may precede the first request in some format."""
    nothing, yes = np.empty(0, dtype=np.int64), np.ones(1, dtype=np.int64)
    return Grammar(*([nothing] * 8 + [yes, yes, np.zeros(1, dtype=np.int64), _DIGITS]))


def new_state() -> State:
    """The state at the beginning of a file."""
    return State(*(np.zeros(1, dtype=np.int64) for _ in State._fields))


def room_for(lines: int, format_: RequestFormat | None) -> RequestArrays:
    """Room for the requests of this many lines, in any format; without one, for lines without a request."""
    by_address = lines if format_ is not None and not format_.by_place else 0
    by_place = lines if format_ is not None and format_.by_place else 0
    timed = lines if format_ is not None and format_.timed else 0
    return RequestArrays(
        address=np.empty(by_address, dtype=np.int64),
        write=np.empty(lines, dtype=np.int8),
        cycle=np.empty(timed, dtype=np.int64),
        place=np.empty((by_place, len(COORDINATES)), dtype=np.int32),
        skipped=np.empty(lines, dtype=np.int64),
    )


@inlined
def _skip_blanks(data, position):
    """The first position from this one on that has neither a space nor a tab."""
    while data[position] == 32 or data[position] == 9:
        position += 1
    return position


@inlined
def _ends(data, position):
    """Whether the line ends here, with LF or CR LF."""
    return data[position] == 10 or (data[position] == 13 and data[position + 1] == 10)


@inlined
def _hexadecimal(data, position):
    """Whether 0x or 0X is here."""
    return data[position] == 48 and data[position + 1] | 32 == 120


@inlined
def _number(data, position, digits, base, largest):
    """A number, its end, and its fault."""
    if base != 10 and _hexadecimal(data, position):
        base = 16
        position += 2
    elif base == 0:
        base = 10
    first, value = position, 0
    before = largest >> 4 if base == 16 else largest // 10  # another digit would overflow a longer number
    digit = digits[data[position]]
    while digit < base:
        if value > before or value * base + digit > largest:
            return value, position, TOO_LARGE
        value = value * base + digit
        position += 1
        digit = digits[data[position]]
    return value, position, NO_FAULT if position > first else MALFORMED


@inlined
def _operation(data, position, grammar):
    """1 for a write or 0 for a read, the end of the word, and its fault."""
    first, word = position, np.int64(0)
    while data[position] > 32:
        word = (word << 8) | np.int64(data[position])
        position += 1
    for number in range(grammar.word.shape[0]):
        if word == grammar.word[number] and position - first == grammar.length[number]:
            return grammar.write[number], position, NO_FAULT
    return 0, first, MALFORMED


@outlined
def _data(data, position, digits):
    """The end of the hexadecimal data of a write, and its fault."""
    if not _hexadecimal(data, position):
        return position, MALFORMED
    position += 2
    first = position
    while digits[data[position]] < 16:
        position += 1
    return position, NO_FAULT if position > first else MALFORMED


@inlined
def _request(data, position, grammar, rows, row):
    """Read the fields of a line into a row; returns its end, its fault, and the field with the fault."""
    rows.write[row] = 0
    fault = NO_FAULT
    for field in range(grammar.kind.shape[0]):
        kind = grammar.kind[field]
        if kind == _OPERATION:
            write, position, fault = _operation(data, position, grammar)
            rows.write[row] = write
        elif kind == _DATA:
            if rows.write[row] == 1 and not _ends(data, position):
                position, fault = _data(data, position, grammar.digits)
        else:
            base, largest = grammar.base[field], grammar.largest[field]
            value, position, fault = _number(data, position, grammar.digits, base, largest)
            if kind == _ADDRESS:
                rows.address[row] = value
            elif kind == _CYCLE:
                rows.cycle[row] = value
            else:
                rows.place[row, kind - _PLACE] = value
        if fault == NO_FAULT and grammar.mark[field] > 0:
            fault = NO_FAULT if data[position] == grammar.mark[field] else MALFORMED
            position += fault == NO_FAULT
        if fault == NO_FAULT and grammar.gap[field] == 1:
            fault = NO_FAULT if data[position] <= 32 else MALFORMED
            position = _skip_blanks(data, position)
        if fault != NO_FAULT:
            return position, fault, field
    return position, NO_FAULT if _ends(data, position) else MALFORMED, grammar.kind.shape[0]


@inlined
def _is_skipped(data, begin, position, grammar, state):
    """Whether the line from `begin`, with text from `position` on, is blank or a comment; notes the first."""
    if data[begin] == 35 and grammar.comments[0] == 1:
        if state.comment[0] == 0:
            state.comment[0] = state.line[0]
        return True
    if _ends(data, position):
        if state.blank[0] == 0:
            state.blank[0] = state.line[0]
        return True
    return False


@kernel
def parse(data, grammar, state, rows):
    """Read the lines of `data` from `state.position` on, up to the first bad one, as far as there is room.

    `data` ends with a line end. Returns the number of requests read into `rows`. `state` has the position of
    the next line, and the kind and position of a fault.
    """
    row, skips, position, room = 0, 0, state.position[0], rows.write.shape[0]
    while position < data.shape[0] and row + skips < room and state.fault[0] == NO_FAULT:
        begin = position
        state.line[0] += 1
        position = _skip_blanks(data, position)
        fault, field, where = NO_FAULT, 0, 0
        if _is_skipped(data, begin, position, grammar, state):
            rows.skipped[skips] = row
            skips += 1
        elif grammar.blank_lines[0] == 0 and state.blank[0] > 0:
            fault = BLANK
        else:
            position, fault, field = _request(data, position, grammar, rows, row)
            where = position - begin
            if fault == NO_FAULT and rows.cycle.shape[0] > 0:
                if rows.cycle[row] >= state.cycle[0]:
                    state.cycle[0] = rows.cycle[row]
                elif grammar.overdue[0] != 0:
                    rows.cycle[row] = state.cycle[0]
                else:
                    fault = BACKWARDS
            row += fault == NO_FAULT
        if fault == NO_FAULT:
            while data[position] != 10:
                position += 1
            position += 1
            if position - begin > LONGEST_LINE:
                fault = LONG
        if fault != NO_FAULT:
            state.fault[0] = fault
            state.fault_line[0] = state.blank[0] if fault == BLANK else state.line[0]
            state.fault_start[0], state.fault_at[0], state.fault_field[0] = begin, where, field
    state.position[0] = position
    state.requests[0] += row
    state.skipped[0] = skips
    return row
