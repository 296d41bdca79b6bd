"""Functions of the chunks of queues; `one_chunk`, or `chunks` for long queues, defines them.

The number of a slot is the number of its chunk times SLOTS, plus its place in the chunk.
"""

from __future__ import annotations

from ndpsim.base.jit import by_type


@by_type
def chunk_of(queues, slot):
    """The chunk of a slot."""


@by_type
def chunks_in_use(queues, state, queue):
    """How many chunks of a queue have requests; one has none when the queue is empty."""


@by_type
def chunk_at(queues, state, queue, number):
    """A chunk of a queue by its number, the oldest first."""


@by_type
def chunks_with(queues, state, queue, bank):
    """The chunks with requests for a bank: bit n for chunk n."""


@by_type
def chunk_for(queues, state, queue):
    """The youngest chunk of a queue, whose next slot is free."""


@by_type
def chunk_by_age(queues, state, queue, arrived):
    """The chunk in which a request that arrived then has its place, with a free slot."""


@by_type
def record_added(queues, state, queue, chunk, bank):
    """A chunk has one more request for a bank."""


@by_type
def record_removed(queues, state, queue, chunk, bank):
    """A chunk has one request less for a bank."""


@by_type
def is_among_writes(queues, state, source, address):
    """Whether a write to `address` is in the write queue."""


@by_type
def sum_waits(queues, state, queue, until):
    """How long the requests of a queue have waited, summed."""


@by_type
def recheck_conflicts(queues, state, queue, rank):
    """The requests that wait for PRE of a bank of a rank may be ready."""


@by_type
def held_at_first(queues, state, queue, stalled_ranks):
    """The requests of a queue's only chunk that `banks.requests_held` finds; 0 if there are several."""


@by_type
def held_in(queues, state, queue, chunk, held, stalled_ranks):
    """The requests of a chunk that wait for a refresh; `held`: of `held_at_first`."""
