"""HBM: a row bus and a column bus, each with one command a clock; the column bus has its turn first.

On each bus, active requests, the first waiting maintenance and the queue have their turns as in
`one_command`. If a clock has two ticks (HBM3), this happens on the rising edge, the first tick. On the
falling edge the row bus may issue a command that is allowed on any tick. Directly after a row command of a
rising edge, such a command must be for another rank or, if neither addresses a whole rank, for another bank.

The choice "all-bank commands apart": a row command to a whole rank does not issue together with a column
command of its rank.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ndpsim.base.jit import inlined
from ndpsim.dram import choosing
from ndpsim.dram import step as one
from ndpsim.dram.fast import step as fast
from ndpsim.dram.fast.choose import classes_ready, mode_changes
from ndpsim.dram.fast.fields import ACT, BANKS, BANKS_PER_RANK, PRE, PREAB, RD, REFAB, REFSB, WR
from ndpsim.dram.fast.shape import NOWHERE, issued
from ndpsim.dram.fast.signature import carry
from ndpsim.dram.fast.vectors import assume_nonnegative, either, filled, least, with_element
from ndpsim.dram.maintenance import own_place
from ndpsim.dram.sink import credit_clock
from ndpsim.dram.spec import Tables
from ndpsim.dram.spec.lower import BUS, CLOSES, CYCLES, IS_REFRESH, ON_ANY_TICK, SCOPE
from ndpsim.dram.spec.standard import (
    ACTIVATE,
    ONE_BANK,
    PRECHARGE,
    READ,
    READ_AP,
    WHOLE_RANK,
    WRITE,
    WRITE_AP,
)
from ndpsim.dram.state import BANK, FAR, PRIORITY, RANK

# State of the controller: the last row command of a rising edge.
_CLOCK, _COMMAND, _RANK, _BANK = range(4)

_NONE = -1

CHOICES = ("all-bank commands apart",)


class TwoBuses(NamedTuple):
    """The parameters."""

    apart: int  # 1: all-bank commands keep apart from column commands
    slots: int = 2
    words: int = 4

    @property
    def has_stacks(self) -> bool:
        """On the fast controller, also where the standard has none, so that all run the same machine code."""
        return True

    def on(self, tables: Tables) -> TwoBusesOnFast | None:
        """The parameters on the fast controller; None if commands differ from HBM's in buses or length."""
        commands = tables.commands
        columns = np.isin(np.arange(len(commands)), (READ, WRITE, READ_AP, WRITE_AP))
        closing = (commands[:, CLOSES] == 1) & ~columns
        rows = closing | (commands[:, IS_REFRESH] == 1)
        row_bus, column_bus = commands[ACTIVATE, BUS], commands[READ, BUS]
        alike = (
            (commands[columns, BUS] == column_bus).all()
            and (commands[rows, BUS] == row_bus).all()
            and len(set(commands[rows, CYCLES].tolist())) == 1
            and (tables.ticks == 1 or (commands[:, ON_ANY_TICK] == closing).all())
        )
        if not alike or row_bus == column_bus or tables.ticks > 2:
            return None
        cycles = int(commands[ACTIVATE, CYCLES]), int(commands[PRECHARGE, CYCLES])
        return TwoBusesOnFast(tables.ticks, *cycles, self.apart)


class TwoBusesOnFast(NamedTuple):
    """The parameters on the fast controller, with values from the tables."""

    ticks: int  # of a clock
    activate_cycles: int  # for which ACT occupies the row bus,
    other_cycles: int  # and for which other row commands occupy it
    apart: int  # as in `TwoBuses`


class OfEdge(NamedTuple):
    """The scheduler of a channel, restricted to the commands of a bus on an edge."""

    scheduler: Any
    commands: NDArray[np.int64]  # of the channel's tables
    bus: int
    is_falling: int
    rank: int  # the bank that accepts no command; -1: all banks,
    bank: int  # or only this bank; -1: all banks of the rank
    keeps_all_bank: int  # the rank that must not have a command to all its banks; -1: none


def of(options: Any, choices: frozenset[str]) -> TwoBuses:
    """The parameters."""
    return TwoBuses(int("all-bank commands apart" in choices))


@inlined
def step(rules, channel, clock):
    """A turn of the column bus and one of the row bus; on a falling edge only of the row bus."""
    tables = channel.shape
    row_bus = tables.commands[ACTIVATE, BUS]
    if is_falling_edge(tables, clock):
        rank, wake = turn(channel, row_bus, True, _NONE, clock)
        # `wake` does not include commands that wait for the rising edge.
        return rank != _NONE, min(wake, clock + 1)
    column_bus = tables.commands[READ, BUS]
    used, wake = turn(channel, column_bus, False, _NONE, clock)
    apart_from = used if rules.apart else _NONE
    row_rank, later = turn(channel, row_bus, False, apart_from, clock)
    return used != _NONE or row_rank != _NONE, min(wake, later)


@inlined
def is_falling_edge(rules, clock):
    """Whether a tick is not the first of its clock."""
    return rules.ticks > 1 and clock % 2 == 0


@inlined
def turn(channel, bus, is_falling, apart_from, clock):
    """A bus's turn on an edge: the rank of its command, -1: none, and then when it may have one.

    apart_from: the rank that must not have a command to all its banks.
    """
    tables, value = channel.shape, channel.state.value
    own = own_place(value)
    rank, bank = _NONE, _NONE
    if is_falling and clock - value[own + _CLOCK] == tables.commands[value[own + _COMMAND], CYCLES]:
        rank = value[own + _RANK]
        if tables.commands[value[own + _COMMAND], SCOPE] == ONE_BANK:
            bank = value[own + _BANK]
    scheduler = OfEdge(
        channel.policy.scheduler, tables.commands, bus, int(is_falling), rank, bank, apart_from
    )
    on_edge = one.scheduled_by(channel, scheduler)
    outcome = one.step(on_edge, None, credit_clock(channel.sink), 0, clock)
    if outcome.queue < 0:
        return _NONE, outcome.next_ready
    if not is_falling and tables.commands[outcome.command, BUS] != tables.commands[READ, BUS]:
        value[own + _CLOCK], value[own + _COMMAND] = clock, outcome.command
        value[own + _RANK], value[own + _BANK] = outcome.rank, outcome.bank
    return outcome.rank, outcome.next_ready


@inlined
def is_kept(rank, bank, held_rank, held_bank):
    """Whether this bank must wait, by itself or with its whole rank."""
    return rank == held_rank and (bank == _NONE or bank == held_bank)


# ---- The fast controller: see `fast.points`

# Places in `turn`: the bus with its turn, and the clock; the last row command of a rising edge: its clock,
# rank, bank (-1: all banks) and length in clocks; the rank that must not have a command to all its banks.
_WHOSE, _CLOCK_NOW, _AT, _OF_RANK, _OF_BANK, _LENGTH, _APART_FROM = range(7)
_OF_COLUMNS, _OF_ROWS, _FALLING = range(3)
_LONG_AGO = 1 << 20  # clocks


@inlined
def step_alone(rules, channel, ready, credit, clock):
    """As `step`, on the fast controller."""
    whose = channel.state.turn
    whose[_CLOCK_NOW] = clock
    whose[_APART_FROM] = _NONE
    latest, next_ready, request = NOWHERE, clock + 1, -1
    due = classes_ready(channel.policy, channel.state, ready, clock)
    if due == 0:
        return issued(NOWHERE, -1, -1, -1, -1, least(ready), 0)
    first = _FALLING if is_falling_edge(rules, clock) else _OF_COLUMNS
    for each in range(first, max(_FALLING, first + 1)):
        whose[_WHOSE] = each
        classes = 1 << RD | 1 << WR if each == _OF_COLUMNS else 1 << ACT | 1 << PRE
        if due & classes == 0 and not mode_changes(channel.policy, channel.state):
            continue
        outcome = fast.step(channel, None, credit_clock(channel.sink), 0, clock)
        next_ready = outcome.next_ready
        if outcome.origin == NOWHERE:
            continue
        latest, request = outcome.origin, outcome.request
        command, rank = outcome.command, outcome.bank // BANKS_PER_RANK
        if rules.apart and each == _OF_COLUMNS:
            whose[_APART_FROM] = rank
        if each == _OF_ROWS:
            whose[_AT], whose[_OF_RANK] = clock, rank
            whose[_OF_BANK] = -1 if command == PREAB or command == REFAB else outcome.bank
            whose[_LENGTH] = rules.activate_cycles if command == ACT else rules.other_cycles
    return issued(latest, -1, -1, -1, request, next_ready, 0)


@inlined
def skips_active(rules, state, lacks_rows):
    """Active requests have column commands, except those whose row was closed."""
    return state.turn[_WHOSE] != _OF_COLUMNS and not lacks_rows


@inlined
def allows(rules, state, command):
    if command == ACT:
        return state.turn[_WHOSE] == _OF_ROWS
    return state.turn[_WHOSE] == _OF_COLUMNS


@inlined
def barred(rules, state, slots_at):
    """Commands of the other bus are barred, and those not allowed on a falling edge."""
    if state.turn[_WHOSE] == _OF_COLUMNS:
        return with_element(with_element(slots_at, ACT, FAR), PRE, FAR)
    slots = with_element(with_element(slots_at, RD, FAR), WR, FAR)
    return with_element(slots, ACT, FAR if state.turn[_WHOSE] == _FALLING else 0)


@inlined
def at_edges(rules, times):
    """See `fast.points`: rising edges are at odd clocks."""
    if rules.ticks == 1:
        return times
    return either(times, with_element(filled(1), PRE, 0))


@inlined
def hits_from(rules, clock):
    """The next rising edge."""
    return clock + is_falling_edge(rules, clock)


@inlined
def is_just_behind(state, rank, bank):
    """Whether the last row command forbids a command to this bank, or to the rank whose first bank it is."""
    turn = state.turn
    if turn[_WHOSE] != _FALLING or turn[_CLOCK_NOW] - turn[_AT] != turn[_LENGTH]:
        return False
    return turn[_OF_RANK] == rank and (turn[_OF_BANK] < 0 or turn[_OF_BANK] == bank)


@inlined
def avoids(rules, state, bank):
    return is_just_behind(state, bank // BANKS_PER_RANK, bank)


@inlined
def keeps_maintenance(rules, shape, state, index, command):
    """Maintenance needs the row bus; only precharges may issue on a falling edge."""
    first = assume_nonnegative(state.pending_bank[index] & BANKS - 1)
    if state.turn[_WHOSE] != _FALLING:
        whole_rank = command == REFAB or command == PREAB
        apart = whole_rank and first // BANKS_PER_RANK == state.turn[_APART_FROM]
        return state.turn[_WHOSE] == _OF_COLUMNS or apart
    if command == REFAB or command == REFSB:
        return True
    # A command to a whole rank has no bank to avoid.
    bank = -2 if command == PREAB else first
    return is_just_behind(state, first // BANKS_PER_RANK, bank)


@inlined
def carry_controller(rules, state, table, at, row, clock, writes):
    """See `fast.points`: the edge, and a row command that still forbids one behind it."""
    turn = state.turn
    ago = clock - turn[_AT] if clock - turn[_AT] <= turn[_LENGTH] else _LONG_AGO
    carry(table, at, clock % rules.ticks, writes)
    ago = carry(table, at + 1, ago, writes)
    turn[_AT] = clock - ago
    at += 2
    for number in range(_OF_RANK, _LENGTH + 1):
        turn[number] = carry(table, at, 0 if ago == _LONG_AGO else turn[number], writes)
        at += 1
    return at


# ---- See `choosing`


@inlined
def only_clocks_delay(scheduler):
    """No: edges, and buses within a tick, delay requests as well."""
    return False


@inlined
def goes(scheduler, command):
    """Whether a command uses this bus and is allowed on this edge."""
    if scheduler.commands[command, BUS] != scheduler.bus:
        return False
    return scheduler.is_falling == 0 or scheduler.commands[command, ON_ANY_TICK] == 1


@inlined
def takes(scheduler, tables, state, slot, command):
    """A command of this bus and edge that is not too close after a row command."""
    rank, bank = state.entry[PRIORITY, RANK, slot], state.entry[PRIORITY, BANK, slot]
    if rank == scheduler.keeps_all_bank and scheduler.commands[command, SCOPE] == WHOLE_RANK:
        return False
    return goes(scheduler, command) and not is_kept(scheduler.rank, scheduler.bank, rank, bank)


@inlined
def look_over(scheduler, state, queue):
    """The scheduler's part."""
    return choosing.look_over(scheduler.scheduler, state, queue)


@inlined
def may_issue(scheduler, state, queue, slot, command, overview):
    """The scheduler's answer, if the command's bus is free and no row command is too close before it."""
    rank, bank = state.entry[queue, RANK, slot], state.entry[queue, BANK, slot]
    if not goes(scheduler, command) or is_kept(scheduler.rank, scheduler.bank, rank, bank):
        return False
    return choosing.may_issue(scheduler.scheduler, state, queue, slot, command, overview)


@inlined
def comes_before(scheduler, state, queue, slot, rival, overview):
    """The scheduler's part."""
    return choosing.comes_before(scheduler.scheduler, state, queue, slot, rival, overview)
