"""GDDR7: the buses of `two_buses`, and a clock of read data (RCK) that may stop while nothing is read.

"start-with-read": the first read starts a stopped clock. "start-with-rckstrt": a command starts it when a
read waits, and no read issues before. In both modes another command stops it when no read waits and the last
one was `rck_idle` clocks ago. These commands come before others on the column bus. At first the clock is
stopped.

The modes are those of Ramulator 2.1 (`gddr7_controller.cpp`, commit c5b1c3a). "always-on" is `two_buses`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ndpsim.base.jit import inlined
from ndpsim.dram import choosing
from ndpsim.dram.controllers import two_buses
from ndpsim.dram.controllers.two_buses import TwoBuses, turn
from ndpsim.dram.issuing import count_command
from ndpsim.dram.maintenance import own_place
from ndpsim.dram.spec.lower import BUS, STARTED_BY, STOPPED_BY
from ndpsim.dram.spec.standard import ACTIVATE, READ, READ_AP
from ndpsim.dram.state import ACTIVE, FAR, FINAL, READS, READS_SERVED
from ndpsim.dram.step import scheduled_by
from ndpsim.dram.timing import note_timing, ready_at

#: What the standard leaves to a controller, see `two_buses`.
CHOICES = two_buses.CHOICES

# State of the controller, after that of `two_buses`: 1 while the clock runs; the clock of the last read, 0:
# there was none.
_RUNS, _LAST_READ = range(4, 6)

_NONE = -1
_RANK = 1  # the node of the only rank


class ReadClock(NamedTuple):
    """The parameters."""

    apart: int  # as in `TwoBuses`
    by_command: int  # 1: a command starts the clock, 0: a read does
    idle: int  # clocks without a read after which it stops
    slots: int = 2
    words: int = 6


class Reading(NamedTuple):
    """The scheduler of a channel, restricted while the clock is stopped."""

    scheduler: Any
    no_reads: int  # 1: no read may issue


def of(options: Any, choices: frozenset[str]) -> TwoBuses | ReadClock:
    """The parameters."""
    buses = two_buses.of(options, choices)
    if options.rck == "always-on":
        return buses
    return ReadClock(buses.apart, int(options.rck == "start-with-rckstrt"), options.rck_idle)


@inlined
def step(rules, channel, clock):
    """A command of the read clock or of the column bus, and one of the row bus."""
    tables, state = channel.shape, channel.state
    value, own = state.value, own_place(state.value)
    served, no_reads = value[READS_SERVED], int(rules.by_command == 1 and value[own + _RUNS] == 0)
    command, earliest = clock_command(rules, tables, state)
    used, wake = _NONE, FAR
    if earliest <= clock:
        note_timing(tables, state.ready, state.recent, command, _RANK, 0, 0, clock)
        count_command(state, channel.commands, command, _RANK, -1, -1, clock)
        value[own + _RUNS] = int(command == tables.commands[READ, STARTED_BY])
        used = _RANK
    else:
        reading = scheduled_by(channel, Reading(channel.policy.scheduler, no_reads))
        used, wake = turn(reading, tables.commands[READ, BUS], False, _NONE, clock)
        if value[READS_SERVED] > served:
            value[own + _RUNS], value[own + _LAST_READ] = 1, clock
    bus, apart_from = tables.commands[ACTIVATE, BUS], used if rules.apart else _NONE
    row_rank, later = turn(channel, bus, False, apart_from, clock)
    return used != _NONE or row_rank != _NONE, min(min(wake, earliest), later)


@inlined
def clock_command(rules, tables, state):
    """The next command that starts or stops the clock, and when it may issue; FAR: there is none."""
    own = own_place(state.value)
    last_read, waits = state.value[own + _LAST_READ], reads_wait(state)
    command, earliest = tables.commands[READ, STARTED_BY], 0
    may = rules.by_command == 1 and waits
    if state.value[own + _RUNS] == 1:
        command, earliest = tables.commands[READ, STOPPED_BY], last_read + rules.idle
        may = last_read > 0 and not waits
    if not may:
        return command, FAR
    return command, max(earliest, ready_at(tables, state.ready, command, _RANK, 0, 0))


@inlined
def reads_wait(state):
    """Whether a read is queued, or active."""
    if state.size[READS] > 0:
        return True
    for slot in range(state.size[ACTIVE]):
        if state.entry[ACTIVE, FINAL, slot] == READ:
            return True
    return False


# ---- The scheduler: see `choosing`


@inlined
def only_clocks_delay(scheduler):
    """No: the stopped clock delays reads as well."""
    return False


@inlined
def takes(scheduler, tables, state, slot, command):
    """The scheduler's part."""
    return choosing.takes(scheduler.scheduler, tables, state, slot, command)


@inlined
def look_over(scheduler, state, queue):
    """The scheduler's part."""
    return choosing.look_over(scheduler.scheduler, state, queue)


@inlined
def may_issue(scheduler, state, queue, slot, command, overview):
    """The scheduler's answer, except for a read while the clock is stopped."""
    if scheduler.no_reads == 1 and (command == READ or command == READ_AP):
        return False
    return choosing.may_issue(scheduler.scheduler, state, queue, slot, command, overview)


@inlined
def comes_before(scheduler, state, queue, slot, rival, overview):
    """The scheduler's part."""
    return choosing.comes_before(scheduler.scheduler, state, queue, slot, rival, overview)
