"""What the fast controller remembers: one array of integers, laid out by the constants here.

Banks are numbered with fixed strides, rank << 6 | bank group << 3 | bank, so that a rank, a bank group
and a bank's bit in a mask of its rank are shifts and masks. A *kind* is a command that the controller
needs while rows stay open: there are eight, so that the times of a node are one vector. What has several
places is indexed

    times    [node * KINDS + kind]
    slots    [queue * SLOTS + slot]
    of banks [queue * BANKS + bank]
    waits    [(queue * RANKS + rank) * WAITS + kind]
    lines    [rank * 2 + queue]

and a *mask* is 64 bits, one for each slot of a queue or each bank of a rank.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ndpsim.dram.state import CLOCK, COUNTERS, DATA_END, FAR, FIRST_COMMAND, PAUSE, Policy
from ndpsim.spec import COMMANDS, Tables, standard

__all__ = ["Shape", "fits", "issued_commands", "make_shape", "make_state", "open_banks"]

Ints = NDArray[np.int64]

# Kinds of commands; the first four are those that requests wait for. RD + WRITES is WR.
ACT, PRE, RD, WR, PREAB, REFAB, PRESB, REFSB = range(8)
KINDS = 8
WAITS = 4
COMMANDS_OF_KINDS = (
    standard.ACT,
    standard.PREPB,
    standard.RD,
    standard.WR,
    standard.PREAB,
    standard.REFAB,
    standard.PRESB,
    standard.REFSB,
)

# The queues.
READS, WRITES = range(2)

# The most there may be.
RANKS = 16
BANKS_PER_RANK = 64
BANKS_PER_GROUP = GROUPS_PER_RANK = 8
GROUPS = RANKS * GROUPS_PER_RANK
BANKS = RANKS * BANKS_PER_RANK
SLOTS = 64
PENDING = 16 * RANKS

# Queued writes are counted by the low bits of their address.
ADDRESSES = 1 << 12

# ---- The layout. Counters come first, by the places in `dram.state`; then commands issued by kind.
ISSUED = COUNTERS

# Distances in clocks, [previous kind * KINDS + next kind].
SAME_RANK = ISSUED + KINDS  # to the rank of the previous command: rules of channel and rank
OTHER_RANK = SAME_RANK + KINDS * KINDS  # to every other rank: rules of the channel and between ranks
SAME_GROUP = OTHER_RANK + KINDS * KINDS
SAME_BANK = SAME_GROUP + KINDS * KINDS

# Times: the earliest clock of a kind as far as this node goes.
RANK_READY = SAME_BANK + KINDS * KINDS
GROUP_READY = RANK_READY + RANKS * KINDS
BANK_READY = GROUP_READY + GROUPS * KINDS

RECENT_ACTS = BANK_READY + BANKS * KINDS  # [rank * 4 + n]: the last four ACTs
OLDEST_ACT = RECENT_ACTS + RANKS * 4  # [rank]: which of them is the oldest

OPEN_ROW = OLDEST_ACT + RANKS  # [bank], -1: closed
OPEN_BANKS = OPEN_ROW + BANKS  # [rank], mask of banks
HELD_BANKS = OPEN_BANKS + RANKS  # [rank], mask of banks with an active request

# Slots: the requests of a queue, in a ring by arrival.
SLOT_BANK = HELD_BANKS + RANKS
SLOT_ROW = SLOT_BANK + 2 * SLOTS
SLOT_ARRIVED = SLOT_ROW + 2 * SLOTS  # clock
SLOT_REQUEST = SLOT_ARRIVED + 2 * SLOTS  # its number in the source
USED = SLOT_REQUEST + 2 * SLOTS  # [queue], mask of slots
COUNTED = USED + 2  # [queue], mask of slots whose request was counted as hit, miss or conflict
TAIL = COUNTED + 2  # [queue]: the slot for the next request
SIZE = TAIL + 2  # [queue]
OF_BANK = SIZE + 2  # of banks: mask of the requests for it
WAITING = OF_BANK + 2 * BANKS  # waits: mask of the requests whose next command is of this kind
AWAKE = WAITING + 2 * RANKS * WAITS  # [queue]: mask of the requests whose bank may be ready
# The banks of the others, in the order in which they will be ready: a ring for each of waits. (Rows of
# waits and of times begin at multiples of their length.)
BOUND = AWAKE + KINDS  # waits: the clock of the first, FAR if there is none
ASLEEP_HEAD = BOUND + 2 * RANKS * WAITS  # waits: place of the first
ASLEEP_SIZE = ASLEEP_HEAD + 2 * RANKS * WAITS  # waits
ASLEEP = ASLEEP_SIZE + 2 * RANKS * WAITS  # [wait * SLOTS + place modulo SLOTS]: clock * BANKS + bank

# Lines: the requests between ACT and RD or WR, in order of arrival.
ACTIVE = ASLEEP + 2 * RANKS * WAITS * SLOTS  # [line * SLOTS + place modulo SLOTS]: bank
ACTIVE_HEAD = ACTIVE + 2 * RANKS * SLOTS  # lines: place of the oldest
ACTIVE_SIZE = ACTIVE_HEAD + 2 * RANKS  # lines
ACTIVE_BOUND = ACTIVE_SIZE + 2 * RANKS  # [rank * WAITS + kind]: the clock before which no bank is ready
ACTIVE_ARRIVED = ACTIVE_BOUND + RANKS * WAITS  # [bank]
ACTIVE_REQUEST = ACTIVE_ARRIVED + BANKS  # [bank]

# Refreshes that wait, in order.
PENDING_SIZE = ACTIVE_REQUEST + BANKS
PENDING_KIND = PENDING_SIZE + 1  # [place]
PENDING_BANK = PENDING_KIND + PENDING  # [place]: first bank of the rank, or of those of same-bank refresh

WRITES_AT = PENDING_BANK + PENDING  # [low bits of an address]: queued writes

# What `skip` remembers of the row hits that have been read in order.
HISTORY = 2048
SKIPPED = WRITES_AT + ADDRESSES  # reads that were skipped, of all
IN_ORDER = SKIPPED + 1  # reads since something else happened
LAST_HELD = IN_ORDER + 1  # the last of them that the sink may have held back
READ_AT = LAST_HELD + 1  # [read modulo HISTORY]: clock
READ_BANK = READ_AT + HISTORY  # [read modulo HISTORY]
FINISHED_AT = READ_BANK + HISTORY  # [read modulo HISTORY]: the tick at which the sink has served it
# Two views of what decides the next RD, as it looked from the clock of a read.
SINK_PLACES = 256
(VIEW_READS, VIEW_CLOCK, VIEW_IDLE, VIEW_SINK, VIEW_RANKS) = (0, 1, 2, 5, 7)
VIEW_GROUPS = VIEW_RANKS + RANKS
VIEW_CREDIT = VIEW_GROUPS + GROUPS
VIEW_FREE = VIEW_CREDIT + SINK_PLACES
_VIEW = VIEW_FREE + SINK_PLACES
PREVIOUS = FINISHED_AT + HISTORY  # a period ago
ANCHOR = PREVIOUS + _VIEW  # longer ago, with the sink
_WORDS = ANCHOR + _VIEW


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


def fits(tables: Tables, policy: Policy, with_sink: bool) -> bool:
    """Whether the fast controller can run such a channel."""
    # Requests whose data nobody has room for may have to return to the read queue, one a bank.
    returning = tables.ranks * tables.bankgroups * tables.banks_per_group if with_sink else 0
    return (
        policy.row_cap == 0
        and policy.read_slots + returning <= SLOTS
        and policy.write_slots <= SLOTS
        and tables.ranks <= RANKS
        and tables.bankgroups <= GROUPS_PER_RANK
        and tables.banks_per_group <= BANKS_PER_GROUP
    )


def make_shape(tables: Tables) -> Shape:
    """The shape of a channel with these tables."""
    return Shape(*(getattr(tables, name) for name in Shape._fields))


def _aligned(words: int) -> Ints:
    """Zeros whose rows do not straddle cache lines."""
    room = np.zeros(words + KINDS, dtype=np.int64)
    first = -room.ctypes.data // room.itemsize % KINDS
    return room[first : first + words]


def make_state(tables: Tables) -> Ints:
    """A channel at rest before clock 1: all banks closed, all queues empty."""
    state = _aligned(_WORDS)
    state[CLOCK], state[PAUSE] = 1, FAR
    state[[FIRST_COMMAND, DATA_END]] = -1
    state[OPEN_ROW : OPEN_ROW + BANKS] = -1
    state[RECENT_ACTS : RECENT_ACTS + RANKS * 4] = -FAR
    state[BOUND : BOUND + 2 * RANKS * WAITS] = FAR
    state[ACTIVE_BOUND : ACTIVE_BOUND + RANKS * WAITS] = FAR
    for place, gap in (
        (SAME_RANK, np.maximum(tables.gap[0], tables.gap[1])),
        (OTHER_RANK, np.maximum(tables.gap[0], tables.sibling_gap)),
        (SAME_GROUP, tables.gap[2]),
        (SAME_BANK, tables.gap[3]),
    ):
        state[place : place + KINDS * KINDS] = gap[np.ix_(COMMANDS_OF_KINDS, COMMANDS_OF_KINDS)].ravel()
    return state


def open_banks(state: Ints) -> int:
    """Banks with an open row."""
    return int(np.count_nonzero(state[OPEN_ROW : OPEN_ROW + BANKS] >= 0))


def issued_commands(state: Ints) -> Ints:
    """int64[command]: commands issued."""
    issued = np.zeros(len(COMMANDS), dtype=np.int64)
    issued[list(COMMANDS_OF_KINDS)] = state[ISSUED : ISSUED + KINDS]
    return issued
