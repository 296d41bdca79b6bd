"""Functions that the fast controller calls, and that modules of its parts override by the same names.

Here they are for one command a clock and for rows that stay open. The class of a standard's controller, or
the module of a row policy, overrides them. Functions of chunks have no default: `one_chunk` defines them, and
`chunks` for long queues. The number of a slot is the number of its chunk times SLOTS, plus its place there.
"""

from __future__ import annotations

from ndpsim.base.jit import by_type, overridable
from ndpsim.dram.state import NEXT_REFRESH


@overridable
def barred(rules, state, slots_at):
    """The clocks, by class, before which no queued request can issue, according to sink and controller."""
    return slots_at


@overridable
def hits_from(rules, clock):
    """The first clock, from this one on, at which RD may issue."""
    return clock


@overridable
def at_edges(rules, times):
    """The first clocks, by class, from these on, at which commands of the class may issue."""
    return times


@overridable
def active_from(rules, state, rank, times):
    """The clocks, by class, before which no command for an active request of a rank can issue; `times`: those
    before which its RD or WR cannot.
    """
    return times


@overridable
def is_busy(rules, state):
    """Whether the next step has a command to issue that is in no queue and no list."""
    return False


@overridable
def keeps_maintenance(rules, shape, state, place, command):
    """Whether this command of the maintenance that waits at a place has to wait for the controller."""
    return False


@overridable
def avoids(rules, state, bank):
    """Whether a queued request for a bank has to wait for the controller."""
    return False


@overridable
def skips_active(rules, state, lacks_rows):
    """Whether no active request can issue now; `lacks_rows`: see below."""
    return False


@overridable
def allows(rules, state, command):
    """Whether a command of an active request can issue now, where the row of one was closed."""
    return True


@overridable
def may_close(rules, state):
    """Whether a column command may become that with auto-precharge."""
    return True


@overridable
def instead_of_active(rules, channel, active_list, place, bank, clock):
    """Whether something else is issued than the column command of an active request."""
    return False


@overridable
def instead_of_queued(rules, channel, queue, slot, command, bank, clock):
    """Whether something else is issued than the command of a queued request."""
    return False


@overridable
def latest_opening(rules, state):
    """The number of the read whose row is being opened, -1: there is none; FAR: it is a write."""
    return -1


@overridable
def carry_controller(rules, state, table, at, row, clock, writes):
    """Write the controller's own state into a signature, or read it (`signature`); returns its end."""
    return at


# ---- Points of row policies: the module of one overrides them. Those here are for rows that stay open


@overridable
def column_class(rows, state, command, bank):
    """The class of a column command to a bank: RD or WR, or the class with auto-precharge."""
    return command


@overridable
def finish_queued(rows, queues, state, command, bank, clock):
    """A queued request has had its column command, of this class."""


@overridable
def record_activated(rows, state, bank):
    """A row of a bank is opened."""


@overridable
def record_column(rows, state, command, bank):
    """A column command of this class has gone to a bank."""


@overridable
def next_maintenance(rows, state):
    """The clock before which no refresh is due and no row is due to close."""
    return state.value[NEXT_REFRESH]


@overridable
def close_rows(rows, state, clock):
    """Request PRE for rows that are due to close and ready at `clock`; returns whether any row is due."""
    return False


@overridable
def also_pinned(rows, shape, state, rank):
    """Banks of a rank without an active request that requests for other rows must not close."""
    return 0


@overridable
def lacks_rows(rows, shape, state):
    """Whether the row of an active request has been closed before its column command."""
    return False


# ---- Points of the chunks of queues, which `one_chunk`, or `chunks` for long queues, define


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
