"""The transition table of one controller: one array of integers, laid out by the constants here.

A *state signature* holds all that decides what a channel does from the step on that takes the first request
of a span, relative to that step's clock, to that request and to its row. A *transition* leads from one
signature to the signature at the next span. Both are records in the array, named by the place of their
first word; 0 means none. Records are appended and never removed; when the array is full, no more are added.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ndpsim._jit import inlined
from ndpsim.dram.fast.fields import (
    BANKS_PER_RANK,
    GROUPS_PER_RANK,
    LONGEST_PERIOD,
    REFRESHES_PENDING,
    REQUEST_CLASSES,
    SLOTS,
    TIMED_CLASSES,
)
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
from ndpsim.spec import Tables

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
UNCOMMITTED = 1  # the last taken of the transitions whose counts are yet to be added, 0 if there are none
REACH = 2  # clocks after which a command no longer delays others in its banks and groups; 0: no table
ROOM = 3  # words that the next signature and transition may need
STEPS = 4  # transitions taken so far
BANK_CLASSES = 5  # classes for which banks have times: those of requests, or of refreshes of banks, too
FIRST_FINGERPRINT = 8  # [low bits of a fingerprint]: the last that had them
FINGERPRINTS = 1 << 12
FIRST_BUCKET = FIRST_FINGERPRINT + FINGERPRINTS  # [bits of a fingerprint]: the first of a chain of signatures
BUCKETS = 1 << 12
FIRST_RECORD = FIRST_BUCKET + BUCKETS  # a multiple of LINE

# A signature.
NEXT_IN_BUCKET = 0
WITHOUT_REFRESH = 1  # the first of the transitions from here in which no refresh falls due
WITH_REFRESH = 2  # the first of the others
STEP = 3  # how many transitions had been taken when it was last reached
LENGTH = 4  # of its words
HASH = 5  # the fingerprint of the state
WORDS = 8  # a multiple of LINE; up to the next multiple, 0 follows them

# A transition. Its clocks, ticks and requests count from its beginning.
NEXT_TRANSITION = 0  # from the same signature
TO = 1  # a signature
CLOCKS = 2  # that it takes
DUE = 3  # when the next refresh fell due
DUE_SINCE = 4  # the first clock at which it might have, for all else to go as it did
TURN = 5  # and which
REFRESHED = 6  # refreshes that fall due
READS = 7
FIRST_READ = 8  # a request, when SPAN reads follow one another from it on; else NOTHING
LOWEST, HIGHEST = 9, 10  # of the requests that are read
REFRESHED_FROM = 11  # what REFRESH_FROM becomes, NOTHING if it does not change
REFRESHED_UNTIL = 12  # what REFRESH_UNTIL becomes, NOTHING if it does not change
TIMES = 13  # how often it was taken since the last commit
CLOCK_SUM = 14  # the clocks at which it was taken, summed
NEXT_UNCOMMITTED = 15
CLOSED = 16  # banks that it closes less those that it opens
FOLLOWING = 17  # what `request_after` says of the request after the last
PLACES = 18  # [number]: of the requests that it takes, by row from the first
READ = PLACES + SPAN  # [field * reads + number]
FINISHED, REQUEST, LATENCY, GAINS = range(4)  # the tick at which the sink has served it; request; clocks
# GAINS is no field of reads but follows them: what the counters in SUMMED and commands by command gain.

MOST_READS = 64
_TRANSITION_WORDS = READ + 3 * MOST_READS + len(SUMMED) + TIMED_CLASSES

NOTHING = -(1 << 60)
LINE = 8  # words of a cache line: records begin with one

#: Measured: less stops recording before long periods come round, more costs memory that is written once.
_WORDS = 1 << 19


@inlined
def next_line(place):
    """The first place from one on where a record may begin."""
    return -(-place // LINE) * LINE


def _signature_words(tables: Tables, sink_places: int) -> int:
    """The most that a signature of such a channel can need."""
    rank = 16 + GROUPS_PER_RANK * TIMED_CLASSES + BANKS_PER_RANK * (TIMED_CLASSES + 4)
    return WORDS + 16 + tables.ranks * rank + 4 * SLOTS + 2 * REFRESHES_PENDING + sink_places


def make_table(tables: Tables, policy: Policy, sink_places: int) -> Ints:
    """An empty table for a channel whose sink has so many places."""
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
    """For runs that step through everything."""
    return np.zeros(FIRST_RECORD, dtype=np.int64)
