"""LPDDR5: two commands open a row, and a command restarts a stopped data clock before a read or write.

After the first half of an activation, its bank accepts only the second half. Until the second half is due,
commands to other banks may issue before it, except activations. If the data clock has stopped, a command
announces a read or write, and the next step issues only that read or write.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ndpsim._jit import inlined
from ndpsim.dram import choosing
from ndpsim.dram import step as one
from ndpsim.dram.choosing import forget_all, forget_bank
from ndpsim.dram.fast.split_activation import (
    ANNOUNCED,
    DEFERRED,
    FORCED,
    UNANNOUNCED,
    OnFast,
)
from ndpsim.dram.issuing import count_command, count_row, reads_or_writes
from ndpsim.dram.maintenance import own_place
from ndpsim.dram.management import note_activation
from ndpsim.dram.queues import copy_entry, remove
from ndpsim.dram.sink import credit_clock
from ndpsim.dram.state import (
    ACTIVE,
    ACTIVE_COUNT,
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
from ndpsim.spec import NO_RULE, Tables
from ndpsim.spec.lower import COMPLETE_WITHIN, COMPLETED_BY, KEEPS_PREPARED, PREPARED_AT, PREPARED_BY, SCOPE
from ndpsim.spec.standard import ACTIVATE, READ, READ_AP, WRITE

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
    slots: int = 1
    queues: int = 1
    words: int = 4 + 64

    def on(self, tables: Tables) -> OnFast | None:
        """The parameters on the fast controller; None if `step_alone` lacks a rule of its commands."""
        second = int(tables.commands[ACTIVATE, COMPLETED_BY])
        before = [int(tables.commands[command, PREPARED_BY]) for command in (READ, WRITE)]
        gap = tables.gap.copy()
        for number, command in zip(before, (READ, WRITE), strict=True):
            gap[3, number, [command, command + READ_AP - READ]] = NO_RULE
        own = [second, *before]
        if (
            tables.groups_per_stack
            or max(gap[:, own].max(), gap[:, :, own].max(), tables.sibling_gap[:, own].max()) > NO_RULE
        ):
            return None
        return OnFast(
            self.is_always_prepared,
            int(tables.commands[ACTIVATE, COMPLETE_WITHIN]),
            int(tables.commands[READ, PREPARED_AT] > 0),
            int(tables.commands[READ, KEEPS_PREPARED]),
            int(tables.commands[WRITE, KEEPS_PREPARED]),
            max(1, *(int(tables.commands[number, KEEPS_PREPARED]) for number in before)),
            int(tables.gap[3, before[0], READ]),
            int(tables.gap[3, before[1], WRITE]),
        )


class Unopened(NamedTuple):
    """The scheduler of a channel, restricted while an activation has begun."""

    scheduler: Any
    is_opening: int  # an activation has begun
    keeps_maintenance: int  # in a bank of the waiting maintenance


def of(options: Any, choices: frozenset[str]) -> SplitActivation:
    """The parameters."""
    return SplitActivation(int(options.wck == "always-on"))


@inlined
def step(rules, tables, policy, channel, sink, commands, clock):
    """See `dram.controller`."""
    value, own = channel.value, own_place(channel.value)
    if value[own + _QUEUE] > 0:
        return issue_announced(tables, policy, channel, sink, commands, clock)
    ready_from = opens_from(tables, channel)
    if ready_from <= clock and value[own + _DUE] <= clock:
        complete(tables, channel, commands, clock)
        value[FORCED] += 1
        return True, FAR
    scheduler = Unopened(policy.scheduler, channel.size[_OPENING], is_in_head(tables, channel))
    unopened = one.scheduled_by(policy, scheduler)
    issued = one.step(tables, unopened, channel, sink, commands, None, credit_clock(sink), 0, clock)
    if issued[0] >= 0:
        return True, FAR
    if ready_from <= clock:
        complete(tables, channel, commands, clock)
        value[DEFERRED] += 1
        return True, FAR
    return False, min(issued[7], ready_from)


@inlined
def opens_from(tables, channel):
    """The clock from which the second half of the begun activation may issue; FAR: there is none."""
    if channel.size[_OPENING] == 0:
        return FAR
    entry, second = channel.entry, tables.commands[ACTIVATE, COMPLETED_BY]
    rank, group, bank = entry[_OPENING, RANK, 0], entry[_OPENING, GROUP, 0], entry[_OPENING, BANK, 0]
    return bank_ready_at(channel.ready, second, rank, group, bank)


@inlined
def is_in_head(tables, channel):
    """Whether an activation has begun in a bank that the maintenance at the head of its queue addresses."""
    entry, size = channel.entry, channel.size
    if size[_OPENING] == 0 or size[PRIORITY] == 0:
        return 0
    scope, bank = tables.commands[entry[PRIORITY, FINAL, 0], SCOPE], entry[_OPENING, BANK, 0]
    first, end, stride = banks_of(tables, scope, entry[PRIORITY, RANK, 0], entry[PRIORITY, BANK, 0])
    return 1 if first <= bank < end and (bank - first) % stride == 0 else 0


@inlined
def begin(tables, channel, commands, queue, slot, clock):
    """Issue the first half of an activation; its request leaves its queue."""
    entry, size, value = channel.entry, channel.size, channel.value
    rank, group, bank = entry[queue, RANK, slot], entry[queue, GROUP, slot], entry[queue, BANK, slot]
    count_row(entry, channel.rows, value, queue, slot)
    note_timing(tables, channel.ready, channel.recent, ACTIVATE, rank, group, bank, clock)
    count_command(channel, commands, ACTIVATE, bank, entry[queue, ROW, slot], -1, clock)
    copy_entry(entry, _OPENING, 0, queue, slot)
    size[_OPENING] = 1
    remove(entry, size, queue, slot)
    if queue == ACTIVE and size[ACTIVE] == 0:
        forget_all(entry, size, channel.bound)  # the counts of `choosing.holds_bank` may be at another bank
    value[own_place(value) + _DUE] = clock + tables.commands[ACTIVATE, COMPLETE_WITHIN]


@inlined
def complete(tables, channel, commands, clock):
    """Issue the second half of the activation that has begun: the row is open, its request active."""
    entry, size, rows, bound = channel.entry, channel.size, channel.rows, channel.bound
    rank, group, bank = entry[_OPENING, RANK, 0], entry[_OPENING, GROUP, 0], entry[_OPENING, BANK, 0]
    row, second = entry[_OPENING, ROW, 0], tables.commands[ACTIVATE, COMPLETED_BY]
    note_timing(tables, channel.ready, channel.recent, second, rank, group, bank, clock)
    count_command(channel, commands, second, bank, row, -1, clock)
    rows[bank, OPEN_ROW] = row
    rows[bank, ACTIVE_COUNT] += 1
    channel.value[OPEN_CLOCKS] -= clock
    copy_entry(entry, ACTIVE, size[ACTIVE], _OPENING, 0)
    entry[ACTIVE, NOT_BEFORE, size[ACTIVE]] = 0
    size[ACTIVE] += 1
    size[_OPENING] = 0
    forget_bank(entry, size, bound, bank)
    for queue in (ACTIVE, READS, WRITES):
        bound[queue] = 0  # requests that only the activation delayed were not examined
    note_activation(tables, channel, rank, group, bank, clock)


@inlined
def prepared_place(tables, channel, rank, command):
    """The place of the clock until which such a column command needs no announcement."""
    own = own_place(channel.value) + _PREPARED_UNTIL
    return own + (rank if tables.commands[command, PREPARED_AT] > 0 else 0)


@inlined
def keep_prepared(tables, channel, rank, command, clock):
    """A column command issues: the data clock runs on."""
    place, until = prepared_place(tables, channel, rank, command), tables.commands[command, KEEPS_PREPARED]
    channel.value[place] = max(channel.value[place], clock + until)


@inlined
def delays_any(tables, command):
    """Whether another command has to wait for more than a clock after this one."""
    for level in range(len(tables.gap)):
        for after in range(len(tables.commands)):
            if tables.gap[level, command, after] > 1:
                return True
    return False


@inlined
def announce(tables, channel, commands, queue, slot, command, clock):
    """Issue the command before a column command, and reserve the next step for the column command."""
    entry, value, first = channel.entry, channel.value, tables.commands[command, PREPARED_BY]
    rank, group, bank = entry[queue, RANK, slot], entry[queue, GROUP, slot], entry[queue, BANK, slot]
    # A command that delays no other cannot be the reason why a bank was not ready.
    if delays_any(tables, first):
        note_timing(tables, channel.ready, channel.recent, first, rank, group, bank, clock)
    count_command(channel, commands, first, bank, -1, -1, clock)
    own = own_place(value)
    value[own + _QUEUE], value[own + _SLOT] = queue + 1, slot


@inlined
def issue_announced(tables, policy, channel, sink, commands, clock):
    """A step between `announce` and its column command, or the step of that command."""
    entry, value, own = channel.entry, channel.value, own_place(channel.value)
    queue, slot = value[own + _QUEUE] - 1, value[own + _SLOT]
    rank, command = entry[queue, RANK, slot], entry[queue, FINAL, slot]
    at = bank_ready_at(channel.ready, command, rank, entry[queue, GROUP, slot], entry[queue, BANK, slot])
    if command == READ:
        at = max(at, credit_clock(sink))
    if at > clock:
        return False, at
    value[own + _QUEUE] = 0
    value[ANNOUNCED] += 1
    keep_prepared(tables, channel, rank, command, clock)
    one.issue_chosen(tables, policy, channel, sink, commands, queue, slot, command, clock)
    return True, FAR


@inlined
def instead(rules, tables, channel, commands, queue, slot, command, clock):
    """See `dram.step`."""
    if command == ACTIVATE:
        begin(tables, channel, commands, queue, slot, clock)
        return True
    if not reads_or_writes(command):
        return False
    value, rank = channel.value, channel.entry[queue, RANK, slot]
    if rules.is_always_prepared or clock < value[prepared_place(tables, channel, rank, command)]:
        value[UNANNOUNCED] += 1
        keep_prepared(tables, channel, rank, command, clock)
        return False
    # An announced command needs the next steps; a second half that is due then could not issue.
    reserved = max(1, tables.commands[tables.commands[command, PREPARED_BY], KEEPS_PREPARED])
    if opens_from(tables, channel) <= clock and value[own_place(value) + _DUE] <= clock + reserved:
        complete(tables, channel, commands, clock)
        value[DEFERRED] += 1
    else:
        announce(tables, channel, commands, queue, slot, command, clock)
    return True


# ---- See `choosing`


@inlined
def only_clocks_delay(scheduler):
    """See `choosing`: true while no activation has begun."""
    return scheduler.is_opening == 0 and choosing.only_clocks_delay(scheduler.scheduler)


@inlined
def takes(scheduler, command):
    """See `choosing`: only commands that address no bank with a begun activation."""
    return scheduler.keeps_maintenance == 0 and choosing.takes(scheduler.scheduler, command)


@inlined
def look_over(scheduler, channel, queue):
    """The scheduler's part; see `choosing`."""
    return choosing.look_over(scheduler.scheduler, channel, queue)


@inlined
def may_issue(scheduler, channel, queue, slot, command, overview):
    """The scheduler's answer, except that there is no second activation."""
    if scheduler.is_opening and command == ACTIVATE:
        return False
    return choosing.may_issue(scheduler.scheduler, channel, queue, slot, command, overview)


@inlined
def comes_before(scheduler, channel, queue, slot, other, overview):
    """The scheduler's part; see `choosing`."""
    return choosing.comes_before(scheduler.scheduler, channel, queue, slot, other, overview)
