"""The transition table of one controller: one array of integers, laid out by the constants here.

A *state signature* contains everything that decides the commands of a channel, from the step that takes the
first request of a span on. It is relative to that step's clock, to that request and to its row. A
*transition* leads from one signature to the signature at the next span. Both are records in the array; the
place of the first word is their number, and 0 means none. Records are appended and never removed; when the
array is full, no more are added.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ndpsim.base.jit import inlined
from ndpsim.dram.fast.fields import (
    BANKS_PER_RANK,
    GROUPS_PER_RANK,
    LONGEST_PERIOD,
    REFRESHES_PENDING,
    REQUEST_CLASSES,
    SLOTS,
    TIMED_CLASSES,
)
from ndpsim.dram.spec import Tables
from ndpsim.dram.state import (
    IDLE_CREDIT,
    IDLE_REFRESH,
    IDLE_ROW,
    OPEN_CLOCKS,
    READ_LATENCY,
    READ_QUEUE,
    ROW_CONFLICTS,
    ROW_HITS,
    ROW_MISSES,
    Commands,
    Policy,
    Source,
    schedule_of,
)

Ints = NDArray[np.int64]

#: Requests between two signatures.
SPAN = 16

#: Counters that transitions add to; OPEN_CLOCKS comes last.
SUMMED = (
    ROW_HITS,
    ROW_MISSES,
    ROW_CONFLICTS,
    READ_LATENCY,
    IDLE_REFRESH,
    IDLE_CREDIT,
    IDLE_ROW,
    READ_QUEUE,
    OPEN_CLOCKS,
)

# The header.
USED = 0  # words
UNCOMMITTED = 1  # the last applied transition whose counts are not yet added; 0: none
REACH = 2  # clocks after which a command cannot delay others in its banks and groups; 0: no table
ROOM = 3  # words that the next signature and transition may need
STEPS = 4  # transitions applied so far
BANK_CLASSES = 5  # classes for which banks have times: those of requests, or of refreshes of banks, too
FIRST_FINGERPRINT = 8  # [low bits of a fingerprint]: the last that had them
FINGERPRINTS = 1 << 12
FIRST_BUCKET = FIRST_FINGERPRINT + FINGERPRINTS  # [bits of a fingerprint]: the first of a chain of signatures
BUCKETS = 1 << 12
FIRST_RECORD = FIRST_BUCKET + BUCKETS  # a multiple of LINE

# A signature.
NEXT_IN_BUCKET = 0
WITHOUT_REFRESH = 1  # the first transition from here without a refresh
WITH_REFRESH = 2  # the first of the others
STEP = 3  # transitions applied before it was last reached
LENGTH = 4  # of its words
HASH = 5  # the fingerprint of the state
WORDS = 8  # a multiple of LINE; up to the next multiple, 0 follows them

# A transition. Its clocks, ticks and requests count from its beginning.
NEXT_TRANSITION = 0  # from the same signature
TO = 1  # a signature
CLOCKS = 2  # that it takes
DUE = 3  # the clock at which the next refresh was due
DUE_SINCE = 4  # the first clock at which it could have been due without other changes
TURN = 5  # its turn
REFRESHED = 6  # refreshes that are due in it
READS = 7
FIRST_READ = 8  # the first of SPAN reads in order; else NOTHING
LOWEST, HIGHEST = 9, 10  # of the requests that are read
REFRESHED_FROM = 11  # what REFRESH_FROM becomes, NOTHING if it does not change
REFRESHED_UNTIL = 12  # what REFRESH_UNTIL becomes, NOTHING if it does not change
TIMES = 13  # number of times that it was applied since the last commit
CLOCK_SUM = 14  # sum of the clocks at which it was applied
NEXT_UNCOMMITTED = 15
CLOSED = 16  # banks that it closes minus banks that it opens
FOLLOWING = 17  # `request_after` of its last request
PLACES = 18  # [number]: of the requests that it takes, by row from the first
READ = PLACES + SPAN  # [field * reads + number]
FINISHED, REQUEST, LATENCY, GAINS = range(4)  # the tick at which the sink has served it; request; clocks
# GAINS follows the fields of reads: the increases of the counters in SUMMED, and the commands by kind.

MOST_READS = 64
_TRANSITION_WORDS = READ + 3 * MOST_READS + len(SUMMED) + TIMED_CLASSES

NOTHING = -(1 << 60)
LINE = 8  # words of a cache line: records begin with one

#: Measured: with less, recording ends before long periods repeat; more only uses memory.
_WORDS = 1 << 19


@inlined
def next_line(place):
    """The first place from one on where a record may begin."""
    return -(-place // LINE) * LINE


def _signature_words(tables: Tables, sink_places: int) -> int:
    """The maximum number of words of a signature of such a channel."""
    rank = 16 + GROUPS_PER_RANK * TIMED_CLASSES + BANKS_PER_RANK * (TIMED_CLASSES + 4)
    return WORDS + 16 + tables.ranks * rank + 4 * SLOTS + 2 * REFRESHES_PENDING + sink_places


def make_table(tables: Tables, policy: Policy, sink_places: int) -> Ints:
    """An empty table for a channel whose sink has this number of places."""
    refreshes_banks = any(turn.bank >= 0 for turn in schedule_of(tables, policy).turns)
    room = _signature_words(tables, sink_places) + _TRANSITION_WORDS + 2 * LINE
    words = max(_WORDS, FIRST_RECORD + 4 * room)
    table = np.empty(words + LINE, dtype=np.int64)  # records are written before they are read
    table = table[-table.ctypes.data // table.itemsize % LINE :][:words]
    table[:FIRST_RECORD] = 0
    table[USED], table[STEPS] = FIRST_RECORD, LONGEST_PERIOD
    table[REACH] = max(tables.gap[2].max(), tables.gap[3].max(), 1)
    table[ROOM] = room
    table[BANK_CLASSES] = TIMED_CLASSES if refreshes_banks else REQUEST_CLASSES
    return table


def can_fast_forward(source: Source, commands: Commands) -> bool:
    """Whether a run may use a table: its source repeats, is not timed, and no commands are recorded."""
    return source.period > 0 and not len(source.cycle) and not len(commands.entry)


def no_table() -> Ints:
    """A table for runs without fast-forward."""
    return np.zeros(FIRST_RECORD, dtype=np.int64)
