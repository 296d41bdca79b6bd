"""Where the fast controller asks for the segments of its queues: `one_segment`, or `segments` of long ones.

A segment is named by how many words its slots and masks stand behind those of the first.
"""

from __future__ import annotations

from ndpsim._jit import by_type

__all__ = [
    "is_among_writes",
    "note_added",
    "note_removed",
    "recheck_conflicts",
    "segment_at",
    "segment_for",
    "segment_of",
    "segment_of_age",
    "segments_in_use",
    "segments_with",
    "sum_waits",
]


@by_type
def segment_of(queues, slot):
    """The segment of a slot."""


@by_type
def segments_in_use(queues, state, queue):
    """How many segments of a queue have requests; one has none when the queue is empty."""


@by_type
def segment_at(queues, state, queue, number):
    """A segment of a queue by its number, the oldest first."""


@by_type
def segments_with(queues, state, queue, bank):
    """The segments with requests for a bank: bit n for the one that is n * SEGMENT words behind the first."""


@by_type
def segment_for(queues, state, queue):
    """The youngest segment of a queue, whose next slot is free."""


@by_type
def segment_of_age(queues, state, queue, arrived):
    """The segment in which a request that arrived then has its place, with a free slot."""


@by_type
def note_added(queues, state, queue, segment, bank):
    """A segment has a request for a bank more."""


@by_type
def note_removed(queues, state, queue, segment, bank):
    """A segment has a request for a bank less."""


@by_type
def is_among_writes(queues, state, source, address):
    """Whether a write to `address` is in the write queue."""


@by_type
def sum_waits(queues, state, queue, until):
    """How long the requests of a queue have waited, summed."""


@by_type
def recheck_conflicts(queues, state, queue, rank):
    """The requests that wait for PRE of a bank of a rank may be ready."""
