"""Requests of a host beside a program: where they go, when they arrive, and whose command comes first."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ndpsim.base.jit import by_reference, inlined, outlined
from ndpsim.dram.banks.lower import ANY_MODE
from ndpsim.dram.banks.state import (
    ACTIVE,
    ALONE,
    CAPACITY,
    FAR,
    HOST_FIRST,
    MASTER,
    MODE,
    MOST_QUEUED,
    PIM,
    READS,
    UNIT_ALONE,
    WAKE,
    WRITES,
    BankProgram,
    Ints,
    append,
)

#: Lines at the beginning of a program for the host's requests of a channel, used in turn. At most
#: 2 * `MOST_QUEUED` + `CAPACITY` are on their way at once; the log has at most `LOGGED_AT_ONCE` commands, so
#: that its lines are still there.
RING = 1024
LOGGED_AT_ONCE = RING - 2 * (2 * MOST_QUEUED + CAPACITY)


@by_reference
class HostStream(NamedTuple):
    """A host that sends the same requests to every channel.

    Request n arrives at clock 1 + n * clocks // per.
    """

    clocks: int  # 0: as fast as queues take them
    per: int
    reads_of: int  # reads among 1,000 requests
    random: int  # 0: addresses count up
    alone: int  # 1: it goes on when the units are done
    read: int  # the commands
    write: int
    first_row: int
    rows: int
    columns: int
    next: Ints  # [channel]: the number of the next request


def make_stream(
    pace: tuple[int, int], reads_of: int, random: bool, alone: bool, commands: tuple[int, int],
    area: tuple[int, int, int], channels: int,
) -> HostStream:  # fmt: skip
    """A host; `commands`: those that read and write. `area`: its first row, its rows, columns of a row."""
    numbers = np.zeros(channels, dtype=np.int64)
    return HostStream(*pace, reads_of, int(random), int(alone), *commands, *area, numbers)


@inlined
def mixed(number, salt):
    """A number below 2^31 that looks random."""
    word = (number * 2654435761 + salt * 40503 + 12345) & 0x7FFFFFFF
    word = ((word ^ (word >> 15)) * 739982445) & 0x7FFFFFFF
    word = ((word ^ (word >> 12)) * 695872825) & 0x7FFFFFFF
    return word ^ (word >> 15)


@inlined
def locate(host, tables, program, line, number):
    """Write the address of a request into its line.

    Addresses that count up go round pseudo-channels and bank groups, then columns, banks, ranks and rows.
    """
    shape, place = tables.shape, program.place[line]
    if host.random:
        for level in range(4):
            place[level] = mixed(number, level) % shape[level]
        program.column[line] = mixed(number, 4) % host.columns
        program.row[line] = host.first_row + mixed(number, 5) % host.rows
        return
    rest = number
    place[0], rest = rest % shape[0], rest // shape[0]
    place[2], rest = rest % shape[2], rest // shape[2]
    program.column[line], rest = rest % host.columns, rest // host.columns
    place[3], rest = rest % shape[3], rest // shape[3]
    place[1], rest = rest % shape[1], rest // shape[1]
    program.row[line] = host.first_row + rest % host.rows


@outlined
def offer_host(host, tables, program, state, channel, clock):
    """Queue the next request of a channel if it has arrived and there is room.

    Returns its queue, -1: it is not queued; and the clock at which it arrives.
    """
    number = host.next[channel]
    arrival = 1 + number * host.clocks // host.per
    if arrival > clock:
        return -1, arrival
    reads = (number + 1) * host.reads_of // 1000 > number * host.reads_of // 1000
    queue = READS if reads else WRITES
    if state.size[channel, queue] >= MOST_QUEUED:
        return -1, FAR
    line = channel * RING + number % RING
    program.command[line] = host.read if reads else host.write
    locate(host, tables, program, line, number)
    append(state, channel, queue, line, program.column[line], clock - 1)
    state.channel[channel, WAKE] = clock
    host.next[channel] = number + 1
    return queue, arrival


@inlined
def may_issue(tables, state, channel, queue, command):
    """Whether a request of a queue may send its next command beside those of the master that is first.

    While that one has requests, the other neither opens nor closes rows, nor changes the mode.
    """
    facts, size = state.channel[channel], state.size[channel]
    master = facts[MASTER]
    if master == ALONE or command < 0:
        return True
    if queue == PIM:
        # A request of the host whose row was activated is completed.
        if size[ACTIVE] == 0 and (master != HOST_FIRST or size[READS] + size[WRITES] == 0):
            return True
    elif master == HOST_FIRST or size[PIM] == 0:
        return True
    elif master == UNIT_ALONE:
        return False
    mode = tables.mode[command]
    return tables.opens[command] + tables.closes[command] == 0 and (mode == ANY_MODE or mode == facts[MODE])


@inlined
def has_host_requests(state, channel):
    """Whether requests of the host wait in a channel."""
    size = state.size[channel]
    return size[READS] + size[WRITES] + size[ACTIVE] > 0


@inlined
def oldest_arrival(state, channel, queue):
    """The arrival of the first request of a queue; FAR: it has none."""
    if state.size[channel, queue] == 0:
        return FAR
    return state.arrived[channel, queue, state.begin[channel, queue]]


def reserve(program: BankProgram, channels: int) -> BankProgram:
    """A program with lines for the host's requests before its own."""
    count = RING * channels
    none = {
        name: np.zeros((count, *getattr(program, name).shape[1:]), dtype=np.int64)
        for name in ("command", "blocks", "place", "row", "column", "listed", "code")
    }
    none |= {"host": np.ones(count, dtype=np.int64), "size": np.ones(count, dtype=np.int64)}
    arrays: dict[str, Any] = {
        name: np.concatenate((array, getattr(program, name))) for name, array in none.items()
    }
    return program._replace(lines=program.lines + count, **arrays)
