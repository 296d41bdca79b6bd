"""LPDDR5 and LPDDR6: two commands open a row, and a command restarts a stopped data clock before data moves.

After the first half of an activation, its bank accepts only the second half. Until the second half is due,
commands to other banks may issue before it, except activations. If the data clock has stopped, a command
announces a read or write, and the next step issues only that read or write.

What a standard leaves open is a choice of its page (`CHOICES`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ndpsim.base.jit import inlined
from ndpsim.dram import choosing
from ndpsim.dram import step as one
from ndpsim.dram.choosing import forget_all, forget_bank, prospect
from ndpsim.dram.fast.split_activation import (
    ANNOUNCED,
    DEFERRED,
    FORCED,
    UNANNOUNCED,
    OnFast,
)
from ndpsim.dram.fast.state import window_of_second
from ndpsim.dram.issuing import count_command, count_row, reads_or_writes
from ndpsim.dram.maintenance import own_place
from ndpsim.dram.management import note_activation
from ndpsim.dram.queues import copy_entry, remove
from ndpsim.dram.sink import credit_clock
from ndpsim.dram.spec import NO_RULE, Tables
from ndpsim.dram.spec.lower import (
    CLOCKS,
    COMPLETE_WITHIN,
    COMPLETED_BY,
    CYCLES,
    IS_REFRESH,
    KEEPS_PREPARED,
    PREPARED_AT,
    PREPARED_BY,
    SCOPE,
)
from ndpsim.dram.spec.standard import ACTIVATE, PRECHARGE, READ, READ_AP, WRITE, WRITE_AP
from ndpsim.dram.state import (
    ACTIVE,
    ACTIVE_COUNT,
    ARRIVED,
    BANK,
    FAR,
    FINAL,
    GROUP,
    NOT_BEFORE,
    OPEN_CLOCKS,
    OPEN_ROW,
    PRIORITY,
    RANK,
    READS,
    ROW,
    WRITES,
)
from ndpsim.dram.timing import bank_ready_at, banks_of, note_timing

#: The first half of an activation waits until the second could follow at once; no refresh issues between the
#: halves; a request that is between activation and column command may be announced before it is ready; the
#: second half issues as soon as it can, not when nothing else can or when it is due; it is due so early that
#: no command of several clocks makes it late.
CHOICES = (
    "waits-for-second-half",
    "no-refresh-between-halves",
    "announces-ahead",
    "second-half-at-once",
    "second-half-in-time",
)

#: Counters: announced and unannounced column commands; second halves that were due, and second halves that
#: issued because nothing else could.
COUNTED = ("cas_issued", "cas_skipped", "act2_deadline_forced", "act2_deferred")

# The queue of the request whose activation has begun: at most one.
_OPENING = 4

# State of the controller: the queue (from 1) and the slot of the announced request.
_DUE, _QUEUE, _SLOT, _PREPARED_UNTIL = range(4)  # the last by rank, the channel's at 0


class SplitActivation(NamedTuple):
    """The parameters."""

    is_always_prepared: int
    waits_for_second: int = 0  # see `CHOICES`, in their order
    keeps_refreshes: int = 0
    announces_ahead: int = 0
    opens_at_once: int = 0
    opens_in_time: int = 0
    slots: int = 1
    queues: int = 1
    words: int = 4 + 64

    def on(self, tables: Tables) -> OnFast | None:
        """The parameters on the fast controller; None if `step_alone` lacks a rule of its commands."""
        second = int(tables.commands[ACTIVATE, COMPLETED_BY])
        before = [int(tables.commands[command, PREPARED_BY]) for command in (READ, WRITE)]
        free = _without_bus(tables)
        if tables.groups_per_stack or not (
            _announce_only(free, before) and self._second_follows(free, second, before)
        ):
            return None
        from_first, from_second = _binds(free, ACTIVATE), _binds(free, second)
        if from_first and from_second:
            return None
        leads = np.maximum(tables.gap[0], tables.gap[3])
        cycles = int(tables.commands[ACTIVATE, CYCLES])
        return OnFast(
            self.is_always_prepared,
            int(tables.commands[ACTIVATE, COMPLETE_WITHIN]) - self.opens_in_time * (cycles - 1),
            int(tables.commands[READ, PREPARED_AT] > 0),
            int(tables.commands[READ, KEEPS_PREPARED]),
            int(tables.commands[WRITE, KEEPS_PREPARED]),
            max(cycles, *(int(tables.commands[number, KEEPS_PREPARED]) for number in before)),
            int(leads[before[0], READ]),
            int(leads[before[1], WRITE]),
            cycles,
            int(from_second),
            int(window_of_second(tables)),
            self.keeps_refreshes,
            self.announces_ahead if not self.is_always_prepared else 0,
            self.opens_at_once,
        )

    def _second_follows(self, tables: Tables, second: int, before: list[int]) -> bool:
        """Whether the second half of an activation may always follow the first one at once."""
        to_second = max(
            tables.gap[:, :, second].max(), tables.windows[:, CLOCKS + second].max(initial=NO_RULE)
        )
        if to_second == NO_RULE:
            return True
        # Nothing that may come between the halves makes the second later: the rest goes to other ranks.
        between = [READ, WRITE, READ_AP, WRITE_AP, PRECHARGE, *before]
        if not self.keeps_refreshes:
            between += np.flatnonzero(tables.commands[:, IS_REFRESH]).tolist()
        later = tables.gap[:3, between, second].max(), tables.gap[0, :, second].max()
        return bool(self.waits_for_second and max(*later, tables.sibling_gap[:, :, second].max()) == NO_RULE)


def _without_bus(tables: Tables) -> Tables:
    """The tables without the rule of a command bus on which all commands take as many clocks."""
    gap, cycles = tables.gap.copy(), tables.commands[:, CYCLES]
    if (cycles == cycles[0]).all():
        bus_gap = gap[0]
        bus_gap[bus_gap == cycles[0]] = NO_RULE
    return tables._replace(gap=gap)


def _binds(tables: Tables, command: int) -> bool:
    """Whether a distance counts from a command."""
    return bool(max(tables.gap[:, command].max(), tables.sibling_gap[:, command].max()) > NO_RULE)


def _announce_only(tables: Tables, before: list[int]) -> bool:
    """Whether the only rules of announcing commands are those to the commands that they announce."""
    gap = tables.gap.copy()
    for number in before:
        gap[3, number, np.flatnonzero(tables.commands[:, PREPARED_BY] == number)] = NO_RULE
    between_siblings = max(tables.sibling_gap[:, before].max(), tables.sibling_gap[:, :, before].max())
    return bool(max(gap[:, before].max(), gap[:, :, before].max(), between_siblings) == NO_RULE)


class Unopened(NamedTuple):
    """The scheduler of a channel, restricted while an activation has begun."""

    scheduler: Any
    is_opening: int  # an activation has begun
    kept: int  # mask of the commands that must not issue meanwhile
    second: int  # the second half, if the first waits until it could follow at once; else -1
    cycles: int  # of the first half on the command bus


def of(options: Any, choices: frozenset[str]) -> SplitActivation:
    """The parameters. With the refresh control own-bank, the second half issues as soon as it can."""
    if options.refresh_control == "own-bank":
        choices |= {"second-half-at-once"}
    return SplitActivation(int(options.wck == "always-on"), *(int(choice in choices) for choice in CHOICES))


@inlined
def step(rules, channel, clock):
    """An announced command, the second half of an activation, or the next command."""
    tables, state, commands = channel.shape, channel.state, channel.commands
    value, own = state.value, own_place(state.value)
    if value[own + _QUEUE] > 0:
        return issue_announced(channel, clock)
    ready_from = opens_from(tables, state)
    if ready_from <= clock and (rules.opens_at_once or value[own + _DUE] <= clock):
        complete(tables, state, commands, clock)
        value[FORCED] += 1
        return True, FAR
    scheduler = unopened_scheduler(rules, tables, channel.policy.scheduler, state)
    credit = credit_clock(channel.sink)
    issued = one.step(one.scheduled_by(channel, scheduler), None, credit, 0, clock)
    if issued.queue >= 0:
        return True, FAR
    slot, announced_from = announced_ahead(rules, tables, state, credit, clock)
    if slot >= 0:
        announce(tables, state, commands, ACTIVE, slot, state.entry[ACTIVE, FINAL, slot], clock)
        return True, FAR
    if ready_from <= clock:
        complete(tables, state, commands, clock)
        value[DEFERRED] += 1
        return True, FAR
    return False, min(issued.next_ready, min(ready_from, announced_from))


@inlined
def unopened_scheduler(rules, tables, scheduler, state):
    """The scheduler of the next step."""
    kept = 0
    for command in range(len(tables.commands)):
        kept |= (rules.keeps_refreshes & tables.commands[command, IS_REFRESH]) << command
    second = tables.commands[ACTIVATE, COMPLETED_BY] if rules.waits_for_second else -1
    cycles = tables.commands[ACTIVATE, CYCLES]
    return Unopened(scheduler, state.size[_OPENING], kept, second, cycles)


@inlined
def opens_from(tables, state):
    """The clock from which the second half of the begun activation may issue; FAR: there is none."""
    if state.size[_OPENING] == 0:
        return FAR
    entry, second = state.entry, tables.commands[ACTIVATE, COMPLETED_BY]
    rank, group, bank = entry[_OPENING, RANK, 0], entry[_OPENING, GROUP, 0], entry[_OPENING, BANK, 0]
    return bank_ready_at(state.ready, second, rank, group, bank)


@inlined
def opens_bank_of(tables, state, slot):
    """Whether an activation has begun in a bank that waiting maintenance addresses."""
    entry = state.entry
    if state.size[_OPENING] == 0:
        return False
    scope, bank = tables.commands[entry[PRIORITY, FINAL, slot], SCOPE], entry[_OPENING, BANK, 0]
    first, end, stride = banks_of(tables, scope, entry[PRIORITY, RANK, slot], entry[PRIORITY, BANK, slot])
    return first <= bank < end and (bank - first) % stride == 0


@inlined
def completes_within(rules, tables):
    """The clocks from the first half of an activation until the second is due."""
    return tables.commands[ACTIVATE, COMPLETE_WITHIN] - rules.opens_in_time * (
        tables.commands[ACTIVATE, CYCLES] - 1
    )


@inlined
def begin(rules, tables, state, commands, queue, slot, clock):
    """Issue the first half of an activation; its request leaves its queue."""
    entry, size, value = state.entry, state.size, state.value
    rank, group, bank = entry[queue, RANK, slot], entry[queue, GROUP, slot], entry[queue, BANK, slot]
    count_row(entry, state.rows, value, queue, slot)
    note_timing(tables, state.ready, state.recent, ACTIVATE, rank, group, bank, clock)
    count_command(state, commands, ACTIVATE, bank, entry[queue, ROW, slot], -1, clock)
    copy_entry(entry, _OPENING, 0, queue, slot)
    size[_OPENING] = 1
    remove(entry, size, queue, slot)
    if queue == ACTIVE and size[ACTIVE] == 0:
        forget_all(entry, size, state.bound)  # the counts of `choosing.holds_bank` may be at another bank
    value[own_place(value) + _DUE] = clock + completes_within(rules, tables)


@inlined
def complete(tables, state, commands, clock):
    """Issue the second half of the activation that has begun: the row is open, its request active."""
    entry, size, rows, bound = state.entry, state.size, state.rows, state.bound
    rank, group, bank = entry[_OPENING, RANK, 0], entry[_OPENING, GROUP, 0], entry[_OPENING, BANK, 0]
    row, second = entry[_OPENING, ROW, 0], tables.commands[ACTIVATE, COMPLETED_BY]
    note_timing(tables, state.ready, state.recent, second, rank, group, bank, clock)
    count_command(state, commands, second, bank, row, -1, clock)
    rows[bank, OPEN_ROW] = row
    rows[bank, ACTIVE_COUNT] += 1
    state.value[OPEN_CLOCKS] -= clock
    copy_entry(entry, ACTIVE, size[ACTIVE], _OPENING, 0)
    entry[ACTIVE, NOT_BEFORE, size[ACTIVE]] = 0
    size[ACTIVE] += 1
    size[_OPENING] = 0
    forget_bank(entry, size, bound, bank)
    for queue in (ACTIVE, READS, WRITES):
        bound[queue] = 0  # requests that only the activation delayed were not examined
    note_activation(tables, state, rank, group, bank, clock)


@inlined
def prepared_place(tables, state, rank, command):
    """The place of the clock until which such a column command needs no announcement."""
    own = own_place(state.value) + _PREPARED_UNTIL
    return own + (rank if tables.commands[command, PREPARED_AT] > 0 else 0)


@inlined
def keep_prepared(tables, state, rank, command, clock):
    """A column command issues: the data clock runs on."""
    index, until = prepared_place(tables, state, rank, command), tables.commands[command, KEEPS_PREPARED]
    state.value[index] = max(state.value[index], clock + until)


@inlined
def reserved_for(tables, first):
    """Clocks of the command bus that a command needs which announces another one."""
    return max(tables.commands[first, CYCLES], tables.commands[first, KEEPS_PREPARED])


@inlined
def announcing_from(tables, state, slot, command):
    """The clock from which an active request can be announced, as far as the announcing command goes."""
    entry, first = state.entry, tables.commands[command, PREPARED_BY]
    rank, group, bank = entry[ACTIVE, RANK, slot], entry[ACTIVE, GROUP, slot], entry[ACTIVE, BANK, slot]
    return bank_ready_at(state.ready, first, rank, group, bank)


@inlined
def announced_ahead(rules, tables, state, credit, clock):
    """The oldest active request to announce before it is ready: its slot or -1; when there may be one."""
    entry, size, value, best, first = state.entry, state.size, state.value, -1, FAR
    if not rules.announces_ahead or rules.is_always_prepared:
        return best, first
    for slot in range(size[ACTIVE]):
        command, ready = prospect(entry, state.ready, state.rows, size, credit, ACTIVE, slot)
        if not reads_or_writes(command):
            continue
        reserved = reserved_for(tables, tables.commands[command, PREPARED_BY])
        running_until = value[prepared_place(tables, state, entry[ACTIVE, RANK, slot], command)]
        announced_from = max(
            max(ready - reserved, running_until), announcing_from(tables, state, slot, command)
        )
        if size[_OPENING] > 0 and value[own_place(value) + _DUE] <= clock + reserved:
            continue  # the second half issues at once, and a step follows
        if announced_from > clock:
            first = min(first, announced_from)
        elif best < 0 or entry[ACTIVE, ARRIVED, slot] < entry[ACTIVE, ARRIVED, best]:
            best = slot
    return best, first


@inlined
def delays_any(tables, command):
    """Whether another command has to wait for more than a clock after this one."""
    for level in range(len(tables.gap)):
        for after in range(len(tables.commands)):
            if tables.gap[level, command, after] > 1:
                return True
    return False


@inlined
def announce(tables, state, commands, queue, slot, command, clock):
    """Issue the command before a column command, and reserve the next step for the column command."""
    entry, value, first = state.entry, state.value, tables.commands[command, PREPARED_BY]
    rank, group, bank = entry[queue, RANK, slot], entry[queue, GROUP, slot], entry[queue, BANK, slot]
    # A command that delays no other cannot be the reason why a bank was not ready.
    if delays_any(tables, first):
        note_timing(tables, state.ready, state.recent, first, rank, group, bank, clock)
    count_command(state, commands, first, bank, -1, -1, clock)
    own = own_place(value)
    value[own + _QUEUE], value[own + _SLOT] = queue + 1, slot


@inlined
def issue_announced(channel, clock):
    """A step between `announce` and its column command, or the step of that command."""
    tables, state = channel.shape, channel.state
    entry, value, own = state.entry, state.value, own_place(state.value)
    queue, slot = value[own + _QUEUE] - 1, value[own + _SLOT]
    rank, command = entry[queue, RANK, slot], entry[queue, FINAL, slot]
    earliest = bank_ready_at(state.ready, command, rank, entry[queue, GROUP, slot], entry[queue, BANK, slot])
    if command == READ:
        earliest = max(earliest, credit_clock(channel.sink))
    if earliest > clock:
        return False, earliest
    value[own + _QUEUE] = 0
    value[ANNOUNCED] += 1
    keep_prepared(tables, state, rank, command, clock)
    one.issue_chosen(channel, queue, slot, command, clock)
    return True, FAR


@inlined
def instead(rules, channel, queue, slot, command, clock):
    """Begin an activation, or announce a column command that is not prepared."""
    tables, state, commands = channel.shape, channel.state, channel.commands
    if command == ACTIVATE:
        begin(rules, tables, state, commands, queue, slot, clock)
        return True
    if not reads_or_writes(command):
        return False
    value, rank = state.value, state.entry[queue, RANK, slot]
    if rules.is_always_prepared or clock < value[prepared_place(tables, state, rank, command)]:
        value[UNANNOUNCED] += 1
        keep_prepared(tables, state, rank, command, clock)
        return False
    # An announced command needs the next steps; a second half that is due then could not issue.
    reserved = reserved_for(tables, tables.commands[command, PREPARED_BY])
    if opens_from(tables, state) <= clock and value[own_place(value) + _DUE] <= clock + reserved:
        complete(tables, state, commands, clock)
        value[DEFERRED] += 1
    else:
        announce(tables, state, commands, queue, slot, command, clock)
    return True


# ---- The scheduler: see `choosing`


@inlined
def only_clocks_delay(scheduler):
    """Whether no activation has begun."""
    return scheduler.is_opening == 0 and choosing.only_clocks_delay(scheduler.scheduler)


@inlined
def held_until(scheduler, state, queue, slot, command, earliest):
    """The first half of an activation may wait for the second."""
    if command != ACTIVATE or scheduler.second < 0:
        return earliest
    entry = state.entry
    rank, group, bank = entry[queue, RANK, slot], entry[queue, GROUP, slot], entry[queue, BANK, slot]
    return max(earliest, bank_ready_at(state.ready, scheduler.second, rank, group, bank) - scheduler.cycles)


@inlined
def takes(scheduler, tables, state, slot, command):
    """No refreshes between halves, nothing to a bank with a begun activation."""
    if (scheduler.is_opening and scheduler.kept >> command & 1) or opens_bank_of(tables, state, slot):
        return False
    return choosing.takes(scheduler.scheduler, tables, state, slot, command)


@inlined
def look_over(scheduler, state, queue):
    """The scheduler's part."""
    return choosing.look_over(scheduler.scheduler, state, queue)


@inlined
def may_issue(scheduler, state, queue, slot, command, overview):
    """The scheduler's answer, except that there is no second activation."""
    if scheduler.is_opening and command == ACTIVATE:
        return False
    return choosing.may_issue(scheduler.scheduler, state, queue, slot, command, overview)


@inlined
def comes_before(scheduler, state, queue, slot, rival, overview):
    """The scheduler's part."""
    return choosing.comes_before(scheduler.scheduler, state, queue, slot, rival, overview)
