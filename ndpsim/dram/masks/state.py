"""What the fast controller remembers: one array of integers, laid out by the constants here.

Banks are numbered with fixed strides, rank << 6 | bank group << 3 | bank, so that a rank, a bank group
and a bank's bit in a mask of its rank are shifts and masks. A *kind* is a command class: there are eight with
times of their own, so that the times of a node are one vector. What has several
places is indexed

    times    [node * KINDS + kind]
    slots    [queue * SLOTS + slot]
    of banks [queue * BANKS + bank]
    waits    [(queue * RANKS + rank) * WAITS + kind]
    active   [rank * 2 + queue]

A queue of more than 64 requests has several *segments*, each the youngest of their time: slots, and masks of
them, stand in the first as said here, and in those behind it SEGMENT words further on. The number of a slot
has its segment in it. A *mask* is 64 bits, one for each slot of a queue or each bank of a rank.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ndpsim.dram.refresh_policies import Schedule
from ndpsim.dram.row_policies import row_policy
from ndpsim.dram.schedulers.FRFCFS import FRFCFS
from ndpsim.dram.state import (
    CLOCK,
    COUNTERS,
    DATA_END,
    FAR,
    FIRST_COMMAND,
    OPEN_CLOCKS,
    PAUSE,
    TURN_FIELDS,
    TURNS,
    Policy,
    put_schedule,
    schedule_of,
)
from ndpsim.spec import NO_RULE, Tables
from ndpsim.spec.lower import BUSY, CLOCKS, CLOSES_FIRST, SCOPE
from ndpsim.spec.standard import (
    ACTIVATE,
    PRECHARGE,
    READ,
    READ_AP,
    SAME_BANKS,
    WHOLE_RANK,
    WRITE,
    WRITE_AP,
)

__all__ = [
    "ONE_SEGMENT",
    "OneRank",
    "Shape",
    "clocks_until_closed",
    "copy_at_rest",
    "fits",
    "issued_commands",
    "make_shape",
    "make_state",
    "make_states",
    "open_banks",
    "open_row",
    "segments_needed",
]

Ints = NDArray[np.int64]

# Command classes; the first four are those that requests wait for. RD + WRITES is WR, RDA + WRITES is WRA.
ACT, PRE, RD, WR, PREAB, REFAB, PRESB, REFSB, RDA, WRA = range(10)
KINDS = 8  # with times of their own: RDA may issue when RD may, WRA when WR may
ISSUED_KINDS = 10
WAITS = 4
# The numbers of PREAB, REFAB, PRESB and REFSB are those of a standard that has them, see `segments_needed`.
COMMANDS_OF_KINDS = ACTIVATE, PRECHARGE, READ, WRITE, 6, 7, 8, 9, READ_AP, WRITE_AP

# The queues.
READS, WRITES = range(2)

# The most there may be.
RANKS = 16
BANKS_PER_RANK = 64
BANKS_PER_GROUP = GROUPS_PER_RANK = 8
GROUPS = RANKS * GROUPS_PER_RANK
BANKS = RANKS * BANKS_PER_RANK
SLOTS = 64  # of a segment
SEGMENTS = 64
REFRESHES_PENDING = 16 * RANKS
PENDING = 4 * BANKS  # with a PRE or two for every bank

# Queued writes are counted by the low bits of their address.
ADDRESSES = 1 << 10

# ---- The layout. Counters and refreshes to come are first, as in `dram.state`; then commands issued by kind.
MOST_TURNS = 128
ISSUED = TURNS + MOST_TURNS * TURN_FIELDS

# Distances in clocks, [previous kind * KINDS + next kind].
DISTANCES = ISSUED_KINDS * KINDS
SAME_RANK = ISSUED + 2 * KINDS  # to the rank of the previous command: rules of channel and rank
OTHER_RANK = SAME_RANK + DISTANCES  # to every other rank: rules of the channel and between ranks
SAME_GROUP = OTHER_RANK + DISTANCES
SAME_BANK = SAME_GROUP + DISTANCES

# Times: the earliest clock of a kind as far as this node goes.
RANK_READY = SAME_BANK + DISTANCES
# (GROUP_READY and BANK_READY are below)

RECENT_ACTS = RANK_READY + RANKS * KINDS  # [rank * 4 + n]: the last four ACTs
OLDEST_ACT = RECENT_ACTS + RANKS * 4  # [rank]: which of them is the oldest

OPEN_BANKS = OLDEST_ACT + RANKS  # [rank], mask of banks
HELD_BANKS = OPEN_BANKS + RANKS  # [rank], mask of banks with an active request, whoever has it

HELD_BY_OTHER = HELD_BANKS + RANKS  # [rank], those of them whose active request another controller has

# Slots: the requests of a queue, in a ring by arrival.
SLOT_BANK = HELD_BY_OTHER + RANKS
SLOT_ROW = SLOT_BANK + 2 * SLOTS
SLOT_ARRIVED = SLOT_ROW + 2 * SLOTS  # clock
SLOT_REQUEST = SLOT_ARRIVED + 2 * SLOTS  # its number in the source
USED = SLOT_REQUEST + 2 * SLOTS  # [queue], mask of slots
COUNTED = USED + 2  # [queue], mask of slots whose request was counted as hit, miss or conflict
TAIL = COUNTED + 2  # [queue]: the slot for the next request
SIZE = TAIL + 2  # [queue]
WAITING = SIZE + 2  # waits: mask of the requests whose next command is of this kind
MAYBE_READY = WAITING + 2 * RANKS * WAITS  # [queue]: mask of the requests whose bank may be ready
# The banks of the others, in the order in which they will be ready: a ring for each of waits. (Rows of
# waits and of times begin at multiples of their length.)
BOUND = MAYBE_READY + KINDS  # waits: the clock of the first, FAR if there is none
NOT_READY_HEAD = BOUND + 2 * RANKS * WAITS  # waits: place of the first
NOT_READY_SIZE = NOT_READY_HEAD + 2 * RANKS * WAITS  # waits

# Active queues: the requests between ACT and RD or WR, in order of arrival.
ACTIVE_HEAD = NOT_READY_SIZE + 2 * RANKS * WAITS  # active: place of the oldest
ACTIVE_SIZE = ACTIVE_HEAD + 2 * RANKS  # active
ACTIVE_BOUND = ACTIVE_SIZE + 2 * RANKS  # [rank * WAITS + kind]: the clock before which no bank is ready

PENDING_SIZE = ACTIVE_BOUND + RANKS * WAITS  # maintenance commands that wait

WRITES_AT = PENDING_SIZE + 1  # [low bits of an address]: queued writes

TOUCHED = WRITES_AT + ADDRESSES  # [rank]: the clock of the last command to banks of it

# Fast-forward, see `fast_forward`.
FAST_FORWARDED = TOUCHED + RANKS  # reads that went as others of the run had gone
NEXT_LOOKUP = FAST_FORWARDED + 1  # the number of the request at which the transition table is consulted next
RECORDING = NEXT_LOOKUP + 1  # the signature from which the channel steps to the next, 0 if from none
LOSS = RECORDING + 1  # what lookups have cost beyond what they saved, 0 at least
PAUSE_SPANS = LOSS + 1  # spans without lookup when the loss was last too large, 0 if it was not

# Rows that are closed by their policy.
CAPPED = PAUSE_SPANS + 1  # [rank], mask of banks that are to be closed, as far as they are open
CAPPED_BOUND = CAPPED + RANKS  # the clock before which none of them is ready for PRE
DOUBLY_HELD = CAPPED_BOUND + 1  # [rank], mask of banks activated again for an active request

# The segments of a queue longer than SLOTS.
YOUNGER_SEGMENTS = DOUBLY_HELD + RANKS  # [queue]: segments in use but the oldest
SEGMENT_ORDER = YOUNGER_SEGMENTS + 2  # [queue * SEGMENTS + number]: by age, then those that are free

# Between arrays of a power of two words: processors tell addresses apart by their low bits first, and a
# bank must not have the same in all of them.
GAP = 5 * KINDS

# ---- What follows goes by rank: of ranks that there are not, it need not be set.
GROUP_READY = -(-(SEGMENT_ORDER + 2 * SEGMENTS) // KINDS) * KINDS
BANK_READY = GROUP_READY + GROUPS * KINDS + GAP
OPEN_ROW = BANK_READY + BANKS * KINDS + GAP  # [bank], -1: closed
OF_BANK = OPEN_ROW + BANKS + GAP  # of banks: mask of the requests for it
SEGMENTS_OF = OF_BANK + 2 * BANKS  # of banks: mask of the segments with requests for it
CLOSED_AT = SEGMENTS_OF + 2 * BANKS  # [bank]: when an auto-precharge has closed it or will close it
_BY_RANK = (
    (GROUP_READY, GROUPS_PER_RANK * KINDS),
    (BANK_READY, BANKS_PER_RANK * KINDS),
    (OPEN_ROW, BANKS_PER_RANK),
    (OF_BANK, BANKS_PER_RANK),
    (OF_BANK + BANKS, BANKS_PER_RANK),
    (SEGMENTS_OF, BANKS_PER_RANK),
    (SEGMENTS_OF + BANKS, BANKS_PER_RANK),
    (CLOSED_AT, BANKS_PER_RANK),
)

# ---- What follows is written before it is read, and so need not be set at first.
NOT_READY = CLOSED_AT + BANKS + GAP  # [wait * SLOTS + place modulo SLOTS]: clock * BANKS + bank
ACTIVE = NOT_READY + 2 * RANKS * WAITS * SLOTS + GAP  # [active queue * SLOTS + place modulo SLOTS]: bank
ACTIVE_ARRIVED = ACTIVE + 2 * RANKS * SLOTS + GAP  # [bank]
ACTIVE_REQUEST = ACTIVE_ARRIVED + BANKS + GAP  # [bank]
ACCESSES = ACTIVE_REQUEST + BANKS  # [bank]: column accesses since its row was opened

# Maintenance commands that wait, in order.
PENDING_KIND = ACCESSES + BANKS  # [place]
PENDING_BANK = PENDING_KIND + PENDING  # [place]: the bank, or the first of the rank or of same-bank refresh

# The last reads.
READS_LOGGED = 64
READ_LOG_FIELDS = 3  # request, latency in clocks, the tick at which the sink has served it
READ_LOG = PENDING_BANK + PENDING  # [read modulo READS_LOGGED * READ_LOG_FIELDS + field]

# The signature RECORDING: its clock, its open banks, its counters and its commands by kind.
SNAPSHOT_CLOCK = READ_LOG + READS_LOGGED * READ_LOG_FIELDS
SNAPSHOT_OPEN = SNAPSHOT_CLOCK + 1
SNAPSHOT = SNAPSHOT_OPEN + 1  # [place]
# The transitions that were taken last, and their clocks.
LONGEST_PERIOD = 8  # transitions
TAKEN_TRANSITION = SNAPSHOT + COUNTERS + KINDS  # [step modulo LONGEST_PERIOD]
TAKEN_CLOCK = TAKEN_TRANSITION + LONGEST_PERIOD  # [step modulo LONGEST_PERIOD]
WORDS = TAKEN_CLOCK + LONGEST_PERIOD


#: From a segment of a long queue to the next: the masks and slots of each are laid out as those of the first.
SEGMENT = -(-WORDS // SLOTS) * SLOTS
if SEGMENT // SLOTS % 2 == 0:
    SEGMENT += SLOTS  # see GAP


class OneSegment(NamedTuple):
    """Queues of up to 64 requests."""

    @staticmethod
    def parts() -> str:
        """The module of its parts of kernels."""
        return "ndpsim.dram.masks.one_segment"


class Segments(NamedTuple):
    """Longer queues."""

    segments: int  # that each of them has

    @staticmethod
    def parts() -> str:
        """The module of its parts of kernels."""
        return "ndpsim.dram.masks.segments"


ONE_SEGMENT = OneSegment()


class Shape(NamedTuple):
    """What of a channel never changes, besides its distances."""

    ranks: int
    bankgroups: int
    banks_per_group: int
    activate_window: int
    read_latency: int
    burst: int
    refresh_interval: int
    refresh_cycles: int
    queues: OneSegment | Segments
    rows: Any


class OneRank(Shape):
    """A shape of one rank, which is a type of its own: what loops over ranks need not be a loop then."""


def fits(tables: Tables, policy: Policy, with_sink: bool) -> bool:
    """Whether the fast controller can run such a channel with open rows and queues of one segment."""
    return policy.row_cap == 0 and segments_needed(tables, policy, with_sink) == 1


def segments_needed(tables: Tables, policy: Policy, with_sink: bool) -> int:
    """Segments that each queue needs; 0 if the fast controller cannot run such a channel."""
    if not isinstance(policy.scheduler, FRFCFS) or policy.step.slots > 1:
        return 0
    # Requests whose data nobody has room for may have to return to the read queue, one a bank.
    returning = tables.ranks * tables.bankgroups * tables.banks_per_group if with_sink else 0
    slots = max(policy.read_slots + returning, policy.write_slots)
    # Where more than half of the slots of all segments are free, two neighbours fit into one.
    segments = 1 if slots <= SLOTS else -(-slots // SLOTS) * 2
    small = tables.ranks <= RANKS and tables.bankgroups <= GROUPS_PER_RANK
    small = small and tables.banks_per_group <= BANKS_PER_GROUP and segments <= SEGMENTS
    return segments if small and _fits_kinds(tables, schedule_of(tables, policy)) else 0


def _fits_kinds(tables: Tables, schedule: Schedule) -> bool:
    """Whether all that may issue has a kind, and all that binds it a place in the state."""
    of_kinds = [(SAME_BANKS, REFSB, PRESB), (WHOLE_RANK, REFAB, PREAB)]
    known = [[scope, COMMANDS_OF_KINDS[one], COMMANDS_OF_KINDS[other]] for scope, one, other in of_kinds]
    asked = [
        [int(tables.commands[n, SCOPE]), n, int(tables.commands[n, CLOSES_FIRST])]
        for n in {turn.command for turn in schedule.turns}
    ]
    return (
        tables.windows[:, :CLOCKS].tolist() in ([], [[1, ACTIVATE, 4, ACTIVATE]])
        and all(one in known for one in asked)
        and not tables.binds_siblings[2:].any()
        and len(schedule.turns) <= MOST_TURNS
    )


def make_shape(tables: Tables, rows: Any = None, segments: int = 1) -> Shape:
    """The shape of a channel with these tables."""
    kind = OneRank if tables.ranks == 1 else Shape
    queues = ONE_SEGMENT if segments == 1 else Segments(segments)
    busy = tables.commands[COMMANDS_OF_KINDS[REFAB] :, BUSY]
    return kind(
        ranks=tables.ranks,
        bankgroups=tables.bankgroups,
        banks_per_group=tables.banks_per_group,
        activate_window=int(tables.windows[:, CLOCKS].max(initial=NO_RULE)),
        read_latency=tables.read_latency,
        burst=tables.burst,
        refresh_interval=tables.refresh_interval,
        refresh_cycles=int(busy[0]) if len(busy) else 0,
        queues=queues,
        rows=row_policy("open", 0) if rows is None else rows,
    )


def _aligned(words: int) -> Ints:
    """Words, not yet set, whose rows do not straddle cache lines."""
    room = np.empty(words + KINDS, dtype=np.int64)
    first = -room.ctypes.data // room.itemsize % KINDS
    return room[first : first + words]


def make_state(tables: Tables, schedule: Schedule) -> Ints:
    """A channel at rest before clock 1, refreshed by a schedule: all banks closed, all queues empty."""
    state = _aligned(WORDS)
    state[:] = 0
    state[CLOCK], state[PAUSE] = 1, FAR
    state[[FIRST_COMMAND, DATA_END]] = -1
    state[OPEN_ROW : OPEN_ROW + BANKS] = -1
    state[RECENT_ACTS : RECENT_ACTS + RANKS * 4] = -FAR
    state[BOUND : BOUND + 2 * RANKS * WAITS] = FAR
    state[ACTIVE_BOUND : ACTIVE_BOUND + RANKS * WAITS] = FAR
    state[CAPPED_BOUND] = FAR
    put_schedule(state, schedule, np.argsort(COMMANDS_OF_KINDS).tolist())
    for place, gap in (
        (SAME_RANK, np.maximum(tables.gap[0], tables.gap[1])),
        (OTHER_RANK, np.maximum(tables.gap[0], tables.sibling_gap[1])),
        (SAME_GROUP, tables.gap[2]),
        (SAME_BANK, tables.gap[3]),
    ):
        of_kinds = np.full((ISSUED_KINDS, ISSUED_KINDS), NO_RULE)
        known = min(ISSUED_KINDS, len(gap))
        of_kinds[:known, :known] = gap[:known, :known]
        state[place : place + DISTANCES] = of_kinds[
            np.ix_(COMMANDS_OF_KINDS, COMMANDS_OF_KINDS[:KINDS])
        ].ravel()
    return state


def make_states(tables: Tables, policy: Policy, count: int) -> Ints:
    """So many channels at rest, int64[channel, word]; none straddles the cache lines of another."""
    width = -(-WORDS // KINDS) * KINDS
    at_rest = make_state(tables, schedule_of(tables, policy))
    states = _aligned(count * width).reshape(count, width)
    _put_at_rest(states, at_rest, tables.ranks)
    return states


def _put_at_rest(states: Ints, at_rest: Ints, ranks: int) -> None:
    """Set what channels of so many ranks read before they write it: int64[..., word]."""
    for first, words in ((0, GROUP_READY), *((first, ranks * words) for first, words in _BY_RANK)):
        states[..., first : first + words] = at_rest[first : first + words]


def copy_at_rest(state: Ints, ranks: int, segments: int = 1) -> Ints:
    """Another channel of so many ranks at rest."""
    copy = _aligned(WORDS) if segments == 1 else np.zeros(segments * SEGMENT, dtype=np.int64)
    _put_at_rest(copy, state, ranks)
    if segments > 1:
        order = copy[SEGMENT_ORDER : SEGMENT_ORDER + 2 * SEGMENTS].reshape(2, SEGMENTS)
        order[:, :segments] = np.arange(segments) * SEGMENT
    return copy


def open_banks(state: Ints) -> int:
    """Banks with an open row."""
    return sum(mask.bit_count() for mask in state[OPEN_BANKS : OPEN_BANKS + RANKS].view(np.uint64).tolist())


def clocks_until_closed(state: Ints, ranks: int, end: int) -> int:
    """Clocks from `end` on until auto-precharges close their banks, summed."""
    return int(np.maximum(state[CLOSED_AT : CLOSED_AT + ranks * BANKS_PER_RANK] - end, 0).sum())


def open_row(state: Ints, rank: int, bankgroup: int, bank: int, row: int, clock: int) -> None:
    """A bank of a channel at rest has a row open from a clock on."""
    of_rank = bankgroup * BANKS_PER_GROUP + bank
    state[OPEN_ROW + rank * BANKS_PER_RANK + of_rank] = row
    state[OPEN_BANKS + rank : OPEN_BANKS + rank + 1].view(np.uint64)[0] |= np.uint64(1 << of_rank)
    state[OPEN_CLOCKS] -= clock


def issued_commands(states: Ints, tables: Tables) -> Ints:
    """int64[..., command]: commands issued by one channel, or by each of several."""
    issued = np.zeros((*states.shape[:-1], max(ISSUED_KINDS, len(tables.commands))), dtype=np.int64)
    issued[..., list(COMMANDS_OF_KINDS)] = states[..., ISSUED : ISSUED + ISSUED_KINDS]
    return issued[..., : len(tables.commands)]
