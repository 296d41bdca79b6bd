"""The state of the controller, as named tuples of integers and arrays.

The channel's hierarchy is numbered as *nodes*: 0 is the channel, then come its ranks, then the bank
groups of every rank, then the banks of every group (`Nodes`). All times are DRAM clocks unless a name
says ticks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ndpsim.caching import cached_by_identity
from ndpsim.dram import refresh_policies
from ndpsim.dram.controllers import make_step
from ndpsim.dram.refresh_policies import Refreshed, Schedule, make_schedule
from ndpsim.dram.row_policies import row_policy
from ndpsim.dram.schedulers import scheduler
from ndpsim.spec import Tables
from ndpsim.spec.checking import MOST_COMMANDS
from ndpsim.spec.lower import INTERVAL, IS_REFRESH, LENGTH, RANK_ORDER, SCOPE
from ndpsim.spec.standard import RANK_ORDERS

Ints = NDArray[np.int64]
Narrow = NDArray[np.int32]
AnyInts = NDArray[np.integer[Any]]

#: Later than anything that happens.
FAR = 1 << 60

# Room for maintenance: a precharge for every bank, and refreshes of this many intervals.
_REFRESHES_QUEUED = 16

# The queues, in the order in which the controller asks them; a standard's controller may have more behind
# them.
ACTIVE, PRIORITY, READS, WRITES = range(4)

# The fields of a queued request; RANK, GROUP and BANK are nodes (GROUP and BANK 0 for a whole rank).
# NOT_BEFORE: a clock before which its next command cannot issue.
RANK, GROUP, BANK, ROW, COLUMN, ARRIVED, INDEX, FINAL, COUNTED, NOT_BEFORE = range(10)
FIELDS = 10

# The fields of a bank's row state, `Channel.rows[bank, field]`.
(
    OPEN_ROW,  # -1: closed
    ACTIVE_COUNT,  # requests between activation and column command
    ACCESSES,  # column accesses since the row was opened
    CLOSING,  # 1: the row policy has asked to close it
    HIT_SINCE,  # arrival of the oldest queued row hit; scratch of FRFCFS-RowHit
    CLOSED_AT,  # clock at which the bank was last closed, perhaps still to come after an auto-precharge
    HELD_BY_OTHER,  # 1: another controller of the bank has a request between activation and column command
) = range(7)
ROW_FIELDS = 7

# Where the fields of `Source.place` begin, above bit 0: whether it writes. Each has eight bits, the row all
# that are left.
BANK_SHIFT, GROUP_SHIFT, RANK_SHIFT, ROW_SHIFT = 1, 9, 17, 25

# What keeps a controller off a rank that it shares, as bits behind the direction, 1 or 2, of the next data of
# the master that comes first there: the command bus is taken; a refresh of that master is pending, and its
# queue waits for no bank; whatever this controller has queued waits.
BUS_TAKEN, REFRESH_PENDING, HOST_WAITS = 4, 8, 16

# The fields of a recorded command.
RECORD_FIELDS = 5  # clock, command, node, row, column


_PERIOD_SAMPLE = 1 << 14  # requests that are looked at for a pattern


class Nodes(NamedTuple):
    """How many nodes there are and where the inner levels begin."""

    first_group: int
    first_bank: int
    total: int


def number_nodes(tables: Tables) -> Nodes:
    """The numbering of a channel's nodes."""
    groups = tables.ranks * tables.bankgroups
    first_bank = 1 + tables.ranks + groups
    return Nodes(1 + tables.ranks, first_bank, first_bank + groups * tables.banks_per_group)


# Places of a latency histogram, one for each clock that a read takes; those that take longer share the last.
LATENCIES = 1 << 16


class Policy(NamedTuple):
    """The settings of the controller, as numbers."""

    scheduler: Any  # parameters of the scheduler, a type of its own, see `schedulers`
    row_cap: int  # column accesses after which a row is closed; 0: rows stay open
    refresh: int  # number of the refresh policy
    read_slots: int
    write_slots: int
    write_mode_from: int  # more queued writes than this start write mode
    write_mode_below: int  # fewer queued writes than this end it, when reads wait
    rows: Any  # parameters of the row policy, a type of its own, see `row_policies`
    step: Any  # parameters of what a step does, a type of its own, see `controllers`


class Source(NamedTuple):
    """Requests in order of arrival, from the first again after the last.

    `admitted` has one element: requests from that number on, counted from the start, must wait.
    """

    place: Ints  # row, rank, bank group, bank and whether it writes, see `pack_place`
    column: Narrow
    address: Ints  # equal addresses forward and coalesce
    cycle: Ints  # the clock before which a request is not offered; empty: all at once
    admitted: Ints
    period: int  # requests after which the ranks and bank groups repeat, mostly; 0: nothing is skipped


# Places in `Channel.value`.
(
    CLOCK,  # the step to do next
    TAKEN,  # requests accepted from the source
    SERVED,  # requests whose data is read or written, or that were forwarded or coalesced
    WRITE_MODE,
    NEXT_REFRESH,  # its clock; follows from REFRESHES
    ROW_HITS,
    ROW_MISSES,
    ROW_CONFLICTS,
    FORWARDED,
    COALESCED,
    READ_LATENCY,  # summed over reads, clocks
    READS_SERVED,
    FIRST_COMMAND,  # clock, -1: none yet
    DATA_END,  # clock of the last beat of read data so far, -1: none yet
    IDLE_REFRESH,  # clocks the read data bus idled: for refresh,
    IDLE_CREDIT,  # because the sink had no room,
    IDLE_ROW,  # and for rows, turnarounds and an empty queue
    REFRESH_FROM,  # the last refresh: from when it held the queues
    REFRESH_UNTIL,  # until its rank was ready again
    REFRESHES,  # refreshes that have fallen due
    READ_QUEUE,  # requests in the read queue, summed over clocks
    WRITE_QUEUE,  # likewise
    COUNTED_UNTIL,  # the clock up to which queues were summed
    PLACE,  # of the next request in the source: TAKEN modulo its length
    OPEN_CLOCKS,  # clocks at which rows were closed less those at which they were opened, summed over banks
    PAUSE,  # a run of timed requests does no step from this clock on
    REFRESH_TURNS,  # turns of the refresh policy
    REFRESH_PERIOD,  # clocks after which they come again
) = range(28)
COUNTERS = 32  # with places to spare: what follows them in memory begins at a multiple of eight

# Places for what the controller of a standard counts besides, by the names of its module's COUNTED.
OWN_COUNTERS = 28

# Behind the counters are the turns of the refresh policy, `value[TURNS + turn * TURN_FIELDS + field]`, as in
# `refresh_policies.Due`; commands are numbered as the controller does.
TURNS = COUNTERS
TURN_CLOCK, TURN_COMMAND, TURN_RANK, TURN_BANK = range(4)
TURN_FIELDS = 4
# Behind the turns is what the controller of a standard remembers from step to step (`own_place`).


class Commands(NamedTuple):
    """Recorded commands, `entry[n] = clock, command, node, row, column`; `length` has one element."""

    entry: Ints
    length: Ints


class Channel(NamedTuple):
    """Everything that changes while a channel runs."""

    entry: Ints  # [queue, field, slot]: queued requests, in no order but in the priority queue
    size: Ints  # [queue]: slots in use, from 0
    bound: Ints  # [queue]: the clock before which none of its requests can issue anything
    ready: Ints  # [node, command]: the earliest clock of a command as far as this node goes
    rows: Ints  # [node, field]: row state of the banks
    recent: Ints  # [window, node, place]: clocks of commands that a rule counts; place 0 names the oldest
    value: Ints  # counters, by the places above, and the turns of the refresh policy
    issued: Ints  # [command]: commands issued
    latencies: Ints  # [clocks]: reads by latency, from arrival to the last beat


@dataclass(frozen=True)
class ControllerOptions:
    """Settings of a controller.

    Attributes:
        scheduler: a module of `schedulers`: "FRFCFS", "FRFCFS-RowHit", ...
        row_policy: "open" or "closed-cap".
        row_cap: column accesses after which "closed-cap" closes a row.
        refresh: one of `refresh_policies.NAMES`.
        read_buffer: slots of the read queue.
        write_buffer: slots of the write queue.
        wck: for LPDDR5: the data clock runs always ("always-on"), or a command starts it when it has stopped
            ("need-sync").
    """

    scheduler: str = "FRFCFS"
    row_policy: str = "open"
    row_cap: int = 4
    refresh: str = "all-bank"
    read_buffer: int = 32
    write_buffer: int = 32
    wck: str = "need-sync"


def make_policy(options: ControllerOptions, controller: str = "one-command") -> Policy:
    """The numbers of `options` under a controller of `controllers`.

    Watermarks are 0.8 and 0.2 of the write queue in single precision.
    """
    high = np.float32(0.8) * np.float32(options.write_buffer)
    low = np.float32(0.2) * np.float32(options.write_buffer)
    return Policy(
        scheduler=scheduler(options.scheduler),
        row_cap=options.row_cap if options.row_policy == "closed-cap" else 0,
        refresh=refresh_policies.NAMES.index(options.refresh),
        read_slots=options.read_buffer,
        write_slots=options.write_buffer,
        write_mode_from=int(np.floor(high)),
        write_mode_below=int(np.ceil(low)),
        rows=row_policy(options.row_policy, options.row_cap),
        step=make_step(controller, options),
    )


def pack_place(rank: AnyInts, bankgroup: AnyInts, bank: AnyInts, row: AnyInts, write: AnyInts) -> Ints:
    """All that the controller needs to know about a request, in one word."""
    word = np.array(row, dtype=np.int64)
    for values, bits in ((rank, 8), (bankgroup, 8), (bank, 8), (write, 1)):
        word <<= bits
        word |= values
    return word


def repeating_period(place: Ints) -> int:
    """The least power of two, up to 64, after which most places of the first requests repeat; 0 if none."""
    first = place[:_PERIOD_SAMPLE]
    for period in (1, 2, 4, 8, 16, 32, 64):
        same = np.count_nonzero(first[period:] == first[:-period])
        if 2 * same > len(first):
            return period
    return 0


def make_source(
    tables: Tables,
    rank: AnyInts,
    bankgroup: AnyInts,
    bank: AnyInts,
    row: AnyInts,
    column: AnyInts,
    write: AnyInts,
    address: AnyInts,
    cycle: AnyInts | None = None,
    period: int = 0,
) -> Source:
    """A source of requests from their coordinates, one array element a request, all admitted."""

    return Source(
        place=pack_place(rank, bankgroup, bank, row, write),
        column=np.ascontiguousarray(column, dtype=np.int32),
        address=np.ascontiguousarray(address, dtype=np.int64),
        cycle=np.ascontiguousarray([] if cycle is None else cycle, dtype=np.int64),
        admitted=np.array([len(rank)], dtype=np.int64),
        period=period,
    )


def refreshed(tables: Tables) -> Refreshed:
    """The facts about a channel that a refresh policy is told."""
    commands: dict[int, tuple[int, int]] = {}
    orders: dict[int, str] = {}
    for number, fields in enumerate(tables.commands.tolist()):
        if fields[IS_REFRESH] and fields[INTERVAL] > 0:
            commands.setdefault(fields[SCOPE], (number, fields[INTERVAL]))
            orders.setdefault(fields[SCOPE], RANK_ORDERS[fields[RANK_ORDER]])
    return Refreshed(tables.ranks, tables.bankgroups, tables.banks_per_group, commands, orders)


@cached_by_identity(16)
def schedule_of(tables: Tables, policy: Policy) -> Schedule:
    """The refresh schedule of a channel."""
    return make_schedule(refresh_policies.NAMES[policy.refresh], refreshed(tables))


def put_schedule(value: Ints, schedule: Schedule, numbers: Sequence[int]) -> None:
    """Write refreshes to come into and behind the counters; `numbers`: by command, the controller's own."""
    value[REFRESH_TURNS], value[REFRESH_PERIOD] = len(schedule.turns), schedule.period
    value[TURNS : TURNS + len(schedule.turns) * TURN_FIELDS] = [
        word for turn in schedule.turns for word in turn._replace(command=numbers[turn.command])
    ]


def make_channel(
    tables: Tables, policy: Policy, latency_places: int = LATENCIES, schedule: Schedule | None = None
) -> Channel:
    """A channel at rest before clock 1: all banks closed, all queues empty.

    `schedule`: of its refreshes; None: that of the policy.
    """
    nodes = number_nodes(tables).total
    # The read queue may have to take back an active request of every bank.
    slots = max(policy.read_slots + nodes, policy.write_slots, 2 * nodes + _REFRESHES_QUEUED * tables.ranks)
    longest = int(tables.windows[:, LENGTH].max(initial=1))
    recent = np.full((len(tables.windows), nodes, 1 + longest), -FAR, dtype=np.int64)
    recent[:, :, 0] = 1
    rows = np.zeros((nodes, ROW_FIELDS), dtype=np.int64)
    rows[:, OPEN_ROW] = -1
    schedule = schedule_of(tables, policy) if schedule is None else schedule
    words = len(schedule.turns) * TURN_FIELDS + getattr(policy.step, "words", 0)
    value = np.zeros(COUNTERS + words, dtype=np.int64)
    put_schedule(value, schedule, range(len(tables.commands)))
    value[CLOCK], value[PAUSE] = 1, FAR
    value[FIRST_COMMAND] = value[DATA_END] = -1
    queues = 4 + getattr(policy.step, "queues", 0)
    return Channel(
        entry=np.zeros((queues, FIELDS, slots), dtype=np.int64),
        size=np.zeros(queues, dtype=np.int64),
        bound=np.zeros(queues, dtype=np.int64),
        ready=np.zeros((nodes, MOST_COMMANDS), dtype=np.int64),
        rows=rows,
        recent=recent,
        value=value,
        issued=np.zeros(len(tables.commands), dtype=np.int64),
        latencies=np.zeros(latency_places, dtype=np.int64),
    )
