"""The state of the controller, as named tuples of integers and arrays.

The channel's hierarchy is numbered as *nodes*: 0 is the channel, then come its ranks, then the bank
groups of every rank, then the banks of every group (`Nodes`). All times are DRAM clocks unless a name
says ticks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ndpsim.base.caching import cached_by_identity
from ndpsim.dram import refresh_policies
from ndpsim.dram.controllers import make_step
from ndpsim.dram.refresh_policies import Refreshed, Round, Schedule, make_schedule
from ndpsim.dram.row_policies import row_policy
from ndpsim.dram.schedulers import scheduler
from ndpsim.dram.sink import Sink
from ndpsim.dram.spec import Tables
from ndpsim.dram.spec.checking import MOST_COMMANDS
from ndpsim.dram.spec.lower import (
    INTERVAL,
    IS_REFRESH,
    LENGTH,
    PAUSE_FROM,
    RANK_ORDER,
    ROUND,
    ROUND_PAUSE,
    SCOPE,
)
from ndpsim.dram.spec.standard import PAUSES_FROM, RANK_ORDERS

Ints = NDArray[np.int64]
Narrow = NDArray[np.int32]
AnyInts = NDArray[np.integer[Any]]

#: Later than anything that happens.
FAR = 1 << 60

# Room for maintenance: a precharge for every bank, and refreshes of this many intervals.
_REFRESHES_QUEUED = 16

# The queues, in the order in which the controller examines them; a controller class may have further ones
# after them.
ACTIVE, PRIORITY, READS, WRITES = range(4)

# The fields of a queued request; RANK, GROUP and BANK are nodes (GROUP and BANK 0 for a whole rank).
# NOT_BEFORE: a clock before which its next command cannot issue.
RANK, GROUP, BANK, ROW, COLUMN, ARRIVED, INDEX, FINAL, COUNTED, NOT_BEFORE = range(10)
FIELDS = 10

# The fields of a bank's row state, `State.rows[bank, field]`.
(
    OPEN_ROW,  # -1: closed
    ACTIVE_COUNT,  # requests between activation and column command
    ACCESSES,  # column accesses since the row was opened
    CLOSING,  # 1: the row policy has requested PRE for it
    HIT_SINCE,  # arrival of the oldest queued row hit; scratch of FRFCFS-RowHit
    CLOSED_AT,  # clock at which the bank was last closed; after an auto-precharge perhaps in the future
    HELD_BY_OTHER,  # 1: another controller of the bank has a request between activation and column command
    RAA,  # the bank's counter of activations, see `management`
    AWAITS_REFRESH,  # waiting refreshes of the bank that hold back only its own requests
    OWED,  # of a rank: refreshes that are due, less those that have been requested, see `elastic`
    IDLE_SINCE,  # of a rank: clock since which it has no request, FAR: it has; of the channel: see `elastic`
) = range(11)
ROW_FIELDS = 11

# The first bits of the fields of `Source.place`. Bit 0: whether it writes. Each field has eight bits, the
# row all remaining ones.
BANK_SHIFT, GROUP_SHIFT, RANK_SHIFT, ROW_SHIFT = 1, 9, 17, 25

# Bits that block a controller on a shared rank, above the direction (1 or 2) of the first master's next data:
# the command bus is taken; a refresh of the first master is pending, and its queue waits for no bank; all
# queued requests of this controller wait.
BUS_TAKEN, REFRESH_PENDING, HOST_WAITS = 4, 8, 16

# The fields of a recorded command.
RECORD_FIELDS = 5  # clock, command, node, row, column


_PERIOD_SAMPLE = 1 << 14  # requests that are searched for a pattern


class Nodes(NamedTuple):
    """The number of nodes, and the first node of each inner level."""

    first_group: int
    first_bank: int
    total: int


def number_nodes(tables: Tables) -> Nodes:
    """The numbering of a channel's nodes."""
    groups = tables.ranks * tables.bankgroups
    first_bank = 1 + tables.ranks + groups
    return Nodes(1 + tables.ranks, first_bank, first_bank + groups * tables.banks_per_group)


# Places of a latency histogram, one for each latency in clocks; longer latencies share the last place.
LATENCIES = 1 << 16


class Rfm(NamedTuple):
    """Refresh management as numbers, see `management`; threshold 0: none."""

    command: int = 0
    scope: int = 0  # `spec.standard.ONE_BANK`, `SAME_BANKS` or `WHOLE_RANK`
    threshold: int = 0  # activations of a bank after which RFM is due
    by_rfm: int = 0  # what a RFM takes off the counters of its banks,
    by_refresh: int = 0  # and what a refresh does
    clears: int = 0  # not 0: the counters are cleared when the RFM is requested instead
    own_bank: int = 0  # as `Policy.own_bank`


RFM_COMMAND, RFM_SCOPE, RFM_THRESHOLD, RFM_BY_RFM, RFM_BY_REFRESH, RFM_CLEARS, RFM_OWN_BANK = range(7)
NO_RFM = Rfm()
#: `Rfm.clears`: the counters of the RFM's banks; those of all ranks, if the RFM is of a rank.
ITS_BANKS, ALL_RANKS = 1, 2


class Policy(NamedTuple):
    """The settings of the controller, as numbers."""

    scheduler: Any  # parameters of the scheduler, see `schedulers`
    row_cap: int  # column accesses after which a row is closed; 0: rows stay open
    refresh: int  # number of the refresh policy
    read_slots: int
    write_slots: int
    write_mode_from: int  # more queued writes than this start write mode
    write_mode_below: int  # fewer queued writes than this end it, when reads wait
    rows: Any  # parameters of the row policy, see `row_policies`
    step: Any  # parameters of the controller class, see `controllers`
    own_bank: int  # 1: a waiting refresh of banks holds back only their requests; 0: all queued requests
    drops_precharges: int  # 1: a waiting PRECHARGE of the row policy is dropped when its bank has been closed
    rfm: Rfm = NO_RFM
    postpones: int = 0  # refreshes that a rank may owe; 0: they are requested when they are due
    pulls_in: int = 0  # refreshes that it may be ahead
    any_order: int = (
        0  # 1: of the banks left in a round, that with the fewest queued requests is refreshed first
    )


class Source(NamedTuple):
    """Requests in order of arrival; after the last one the source begins again with the first.

    `admitted` has one element: requests from that number on, counted from the start, must wait.
    """

    place: Ints  # row, rank, bank group, bank and whether it writes, see `pack_place`
    column: Narrow
    address: Ints  # equal addresses forward and coalesce
    cycle: Ints  # the clock before which a request is not offered; empty: all at once
    admitted: Ints
    period: int  # requests after which most ranks and bank groups repeat; 0: no fast-forward


# Places in `State.value`.
(
    CLOCK,  # the step to do next
    TAKEN,  # requests accepted from the source
    SERVED,  # requests after their RD or WR, or forwarded, or coalesced
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
    REFRESH_FROM,  # the last refresh: the clock from which it delayed the queues
    REFRESH_UNTIL,  # and the clock until which it did
    REFRESHES,  # refreshes that have been due
    READ_QUEUE,  # requests in the read queue, summed over clocks
    WRITE_QUEUE,  # likewise
    COUNTED_UNTIL,  # the clock up to which queues were summed
    PLACE,  # number of the next request in the source: TAKEN modulo its length
    OPEN_CLOCKS,  # sum of the clocks at which rows were closed minus the clocks at which they were opened
    PAUSE,  # a run of timed requests does no step from this clock on
    REFRESH_TURNS,  # turns of the refresh policy
    REFRESH_PERIOD,  # clocks after which they repeat
    REFRESH_SHIFT,  # clocks by which they are due sooner than these turns say
    PAUSED_UNTIL,  # no refresh is due before this clock; FAR: until the last of a round has issued
) = range(30)
COUNTERS = 40  # rounded up: the next values begin at a multiple of eight

# Places for the counters of a controller class, by the names in its module's COUNTED.
OWN_COUNTERS = 32

# After the counters come the turns of the refresh policy, `value[TURNS + turn * TURN_FIELDS + field]`, as in
# `refresh_policies.Due`, with the controller's numbers of commands.
TURNS = COUNTERS
TURN_CLOCK, TURN_COMMAND, TURN_RANK, TURN_BANK, TURN_PAUSE = range(5)
TURN_FIELDS = 5
# After the turns comes the state of a controller class (`own_place`).


class Commands(NamedTuple):
    """Recorded commands, `entry[n] = clock, command, node, row, column`; `length` has one element."""

    entry: Ints
    length: Ints


class State(NamedTuple):
    """Everything that changes while a channel runs on the general controller."""

    entry: Ints  # [queue, field, slot]: queued requests; only the priority queue is in order
    size: Ints  # [queue]: slots in use, from 0
    bound: Ints  # [queue]: the clock before which none of its requests can issue a command
    ready: Ints  # [node, command]: the earliest clock of a command, according to this node
    rows: Ints  # [node, field]: row state of the banks
    recent: Ints  # [window, node, place]: clocks of commands in a window; place 0: the place of the oldest
    value: Ints  # counters, by the places above, and the turns of the refresh policy
    issued: Ints  # [command]: commands issued
    rfm: Ints  # as `Rfm`


class Channel(NamedTuple):
    """A channel, and all that its controller works with."""

    policy: Policy
    shape: Any  # what never changes: `Tables`, or `fast.shape.Shape`
    state: Any  # what changes: `State`, or a record of the fast controller (`fast.fields`)
    latencies: Ints  # [clocks]: reads by latency, from arrival to the last beat
    source: Source
    sink: Sink
    commands: Commands


def make_policy(
    options: Any,
    controller: str = "one-command",
    choices: Sequence[str] = (),
    rules: str = "standard",
    rfm: Rfm = NO_RFM,
    elastic: tuple[int, int] = (0, 0),
) -> Policy:
    """The settings of `ControllerOptions` as numbers; `controller`, `choices`, `rules`: of the standard.

    `rfm`: its refresh management, see `simulate.memory.rfm_of`. `elastic`: how many refreshes it lets a
    controller postpone, and pull in.

    Watermarks are 0.8 and 0.2 of the write queue in single precision.
    """
    high = np.float32(0.8) * np.float32(options.write_buffer)
    low = np.float32(0.2) * np.float32(options.write_buffer)
    elastic = elastic if refresh_policies.is_elastic(options.refresh) else (0, 0)
    control = options.refresh_control or ("reference" if rules == "reference" else "own-bank")
    own_bank = int(control == "own-bank")
    return Policy(
        scheduler=scheduler(options.scheduler),
        row_cap=options.row_cap if options.row_policy == "closed-cap" else 0,
        refresh=refresh_policies.NAMES.index(options.refresh),
        read_slots=options.read_buffer,
        write_slots=options.write_buffer,
        write_mode_from=int(np.floor(high)),
        write_mode_below=int(np.ceil(low)),
        rows=row_policy(options.row_policy, options.row_cap),
        step=make_step(controller, replace(options, refresh_control=control), choices),
        own_bank=own_bank,
        drops_precharges=own_bank,
        rfm=rfm._replace(own_bank=own_bank),
        postpones=elastic[0],
        pulls_in=elastic[1],
        any_order=own_bank & int(refresh_policies.takes_any_order(options.refresh)),
    )


def pack_place(rank: AnyInts, bankgroup: AnyInts, bank: AnyInts, row: AnyInts, write: AnyInts) -> Ints:
    """The coordinates of a request, and whether it writes, in one word."""
    word = np.array(row, dtype=np.int64)
    for values, bits in ((rank, 8), (bankgroup, 8), (bank, 8), (write, 1)):
        word <<= bits
        word |= values
    return word


def repeating_period(places: Ints) -> int:
    """The smallest power of two, up to 64, after which most places of the first requests repeat; or 0."""
    first = places[:_PERIOD_SAMPLE]
    for period in (1, 2, 4, 8, 16, 32, 64):
        same = np.count_nonzero(first[period:] == first[:-period])
        if 2 * same > len(first):
            return period
    return 0


def make_source(requests: Sequence[AnyInts], cycle: AnyInts | None = None, period: int = 0) -> Source:
    """A source of requests, all admitted.

    `requests`: rank, bank group, bank, row, column, whether they write, and address; of each an array, one
    element a request.
    """
    rank, bankgroup, bank, row, column, write, address = requests
    return Source(
        place=pack_place(rank, bankgroup, bank, row, write),
        column=np.ascontiguousarray(column, dtype=np.int32),
        address=np.ascontiguousarray(address, dtype=np.int64),
        cycle=np.ascontiguousarray([] if cycle is None else cycle, dtype=np.int64),
        admitted=np.array([len(rank)], dtype=np.int64),
        period=period,
    )


def refreshed(tables: Tables) -> Refreshed:
    """The channel of a refresh policy."""
    commands: dict[int, tuple[int, int]] = {}
    orders: dict[int, str] = {}
    rounds: dict[int, Round] = {}
    for number, fields in enumerate(tables.commands.tolist()):
        if fields[IS_REFRESH] and fields[INTERVAL] > 0:
            commands.setdefault(fields[SCOPE], (number, fields[INTERVAL]))
            orders.setdefault(fields[SCOPE], RANK_ORDERS[fields[RANK_ORDER]])
            its_round = Round(fields[ROUND], fields[ROUND_PAUSE], PAUSES_FROM[fields[PAUSE_FROM]])
            rounds.setdefault(fields[SCOPE], its_round)
    return Refreshed(tables.ranks, tables.bankgroups, tables.banks_per_group, commands, orders, rounds)


@cached_by_identity(16)
def schedule_of(tables: Tables, policy: Policy) -> Schedule:
    """The refresh schedule of a channel."""
    return make_schedule(refresh_policies.NAMES[policy.refresh], refreshed(tables))


def put_schedule(value: Ints, schedule: Schedule, numbers: Sequence[int]) -> None:
    """Write the schedule into and after the counters; `numbers`: the controller's number of each command."""
    value[REFRESH_TURNS], value[REFRESH_PERIOD] = len(schedule.turns), schedule.period
    value[TURNS : TURNS + len(schedule.turns) * TURN_FIELDS] = [
        word for turn in schedule.turns for word in turn._replace(command=numbers[turn.command])
    ]


def make_state(tables: Tables, policy: Policy, schedule: Schedule | None = None) -> State:
    """A channel at rest before clock 1: all banks closed, all queues empty.

    `schedule`: the times of its refreshes; None: those of the policy.
    """
    nodes = number_nodes(tables).total
    # An active read of every bank may have to return to the read queue.
    slots = max(policy.read_slots + nodes, policy.write_slots, 2 * nodes + _REFRESHES_QUEUED * tables.ranks)
    longest = int(tables.windows[:, LENGTH].max(initial=1))
    recent = np.full((len(tables.windows), nodes, 1 + longest), -FAR, dtype=np.int64)
    recent[:, :, 0] = 1
    rows = np.zeros((nodes, ROW_FIELDS), dtype=np.int64)
    rows[:, OPEN_ROW] = -1
    rows[:, IDLE_SINCE] = FAR
    schedule = schedule_of(tables, policy) if schedule is None else schedule
    words = len(schedule.turns) * TURN_FIELDS + getattr(policy.step, "words", 0)
    value = np.zeros(COUNTERS + words, dtype=np.int64)
    put_schedule(value, schedule, range(len(tables.commands)))
    value[CLOCK], value[PAUSE] = 1, FAR
    value[FIRST_COMMAND] = value[DATA_END] = -1
    queues = 4 + getattr(policy.step, "queues", 0)
    return State(
        entry=np.zeros((queues, FIELDS, slots), dtype=np.int64),
        size=np.zeros(queues, dtype=np.int64),
        bound=np.zeros(queues, dtype=np.int64),
        ready=np.zeros((nodes, MOST_COMMANDS), dtype=np.int64),
        rows=rows,
        recent=recent,
        value=value,
        issued=np.zeros(len(tables.commands), dtype=np.int64),
        rfm=np.array(policy.rfm, dtype=np.int64),
    )
