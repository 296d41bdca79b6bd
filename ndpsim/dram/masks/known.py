"""How a channel goes on, as far as that has been seen: one array of integers, laid out by the constants here.

A *situation* is all that decides what a channel does from the step on that takes the first request of a
span, seen from the clock, the row and the number of that request. A *passage* leads from a situation to
the one at the next span. Both are records, named by where they begin; 0 is none. New records follow
those that are there, until there is no room.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ndpsim.dram.masks.state import (
    BANKS_PER_RANK,
    GROUPS_PER_RANK,
    KINDS,
    LONGEST_ROUND,
    PENDING,
    SLOTS,
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
    Source,
)
from ndpsim.spec import Tables

__all__ = ["clear_known", "is_full", "make_known", "nothing_known", "recalls"]

Ints = NDArray[np.int64]

#: Requests between two situations.
SPAN = 16

#: Counters that are summed up when a run ends; OPEN_CLOCKS comes last.
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

# What stands at the front.
USED = 0  # words
LAST_SEEN = 1  # the passage that was last seen for the first time in this run
REACH = 2  # clocks after which a command no longer keeps banks and groups waiting; 0: nothing is recalled
ROOM = 3  # words that the next situation and passage may need
STEPS = 4  # passages taken so far, ever
FIRST_BUCKET = 8  # [bucket]: a situation
BUCKETS = 1 << 14
FIRST_RECORD = FIRST_BUCKET + BUCKETS  # a multiple of LINE

# A situation.
NEXT_IN_BUCKET = 0  # a situation
QUIET = 1  # the first of the passages in which no refresh falls due
REFRESHING = 2  # the first of the others
STEP = 3  # the passages that had been taken when it was last come to
LENGTH = 4  # of its words
SUM = 5  # of its words, so to speak
WORDS = 6

# A passage. Clocks, ticks and requests in it count from its beginning.
NEXT_PASSAGE = 0  # from the same situation
TO = 1  # a situation
CLOCKS = 2  # that it takes
DUE = 3  # when the next refresh falls due
TURN = 4  # and which
REFRESHED = 5  # refreshes that fall due
READS = 6
FIRST_READ = 7  # a request, when as many are read as are taken, one after the other; else NOTHING
REFRESHED_FROM = 8  # what is noted of a refresh, NOTHING if nothing is
REFRESHED_UNTIL = 9
TIMES = 10  # how often it was taken in this run instead of stepped through
CLOCK_SUM = 11  # and at which clocks, summed
SEEN = 12  # 1 from its first time in this run on, stepped through or not
SEEN_BEFORE = 13  # the passage that was seen for the first time before it
CLOSED = 14  # banks that it closes more than it opens
COMING = 15  # what `coming` says of the request after the last
PLACES = 16  # [number]: of the requests that it takes, by row from the first
READ = PLACES + SPAN  # [field * reads + number]
FINISHED, REQUEST, LATENCY, GAINS = range(4)  # the tick at which the sink has served it; request; clocks
# GAINS are no field of reads but follow them: of the counters in SUMMED, and of the commands by kind.

MOST_READS = 64
_PASSAGE_WORDS = READ + 3 * MOST_READS + len(SUMMED) + KINDS

NOTHING = -(1 << 60)
LINE = 8  # words of a cache line: records begin with one
_WORDS = 1 << 23


def _situation_words(tables: Tables, sink_places: int) -> int:
    """The most that a situation of such a channel can need."""
    rank = 16 + GROUPS_PER_RANK * KINDS + BANKS_PER_RANK * (KINDS + 4)
    return WORDS + 16 + tables.ranks * rank + 4 * SLOTS + 2 * PENDING + sink_places


def make_known(tables: Tables, sink_places: int) -> Ints:
    """Nothing, with room for more, of a channel whose sink has so many places."""
    known = np.zeros(_WORDS + LINE, dtype=np.int64)
    known = known[-known.ctypes.data // known.itemsize % LINE :][:_WORDS]
    known[REACH] = max(tables.gap[2].max(), tables.gap[3].max(), 1)
    known[ROOM] = _situation_words(tables, sink_places) + _PASSAGE_WORDS + 2 * LINE
    clear_known(known)
    return known


def clear_known(known: Ints) -> None:
    """Forget all."""
    known[USED], known[STEPS] = FIRST_RECORD, LONGEST_ROUND
    known[FIRST_BUCKET:FIRST_RECORD] = 0


def is_full(known: Ints) -> bool:
    """Whether there is no room for more."""
    return bool(known[USED] + known[ROOM] > len(known))


def recalls(source: Source, commands: Commands) -> bool:
    """Whether a run remembers: of a stream that repeats, when its commands are not written down."""
    return source.period > 0 and not len(source.cycle) and not len(commands.entry)


def nothing_known() -> Ints:
    """For runs that remember nothing."""
    return np.zeros(FIRST_RECORD, dtype=np.int64)
