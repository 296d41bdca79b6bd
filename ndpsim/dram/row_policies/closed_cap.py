"""A row closes after so many column accesses: by auto-precharge with the next one, or by PRE before it.

Of a column command after the last access only the form with auto-precharge is issued. It may close the row
under an active request of the other direction, which then activates its bank again. As in the reference, the
bank is counted twice from then on: it is held while any request is active.
"""

from __future__ import annotations

from ndpsim._jit import inlined, outlined
from ndpsim.dram.masks.banks import auto_precharge, release_bank
from ndpsim.dram.masks.slots import push_maintenance
from ndpsim.dram.masks.state import (
    ACCESSES,
    ACTIVE_SIZE,
    BANKS_PER_RANK,
    CAPPED,
    CAPPED_BOUND,
    DOUBLY_HELD,
    HELD_BANKS,
    KINDS,
    OPEN_BANKS,
    PRE,
    RANK_READY,
    RANKS,
    RD,
    RDA,
)
from ndpsim.dram.masks.timing import bank_ready_at
from ndpsim.dram.masks.words import lowest, natural, ranks_of
from ndpsim.dram.state import FAR

__all__: list[str] = []


@inlined
def precharge_ready_at(state, bank):
    """The first clock at which a bank is ready for PRE."""
    return max(state[RANK_READY + bank // BANKS_PER_RANK * KINDS + PRE], bank_ready_at(state, PRE, bank))


@inlined
def column_kind(rows, state, kind, bank):
    """See `points`."""
    return kind + (RDA - RD if state[ACCESSES + natural(bank)] >= rows.cap else 0)


@inlined
def finish_active(rows, queues, state, kind, bank, clock):
    """See `points`."""
    if kind >= RDA:
        state[HELD_BANKS + bank // BANKS_PER_RANK] &= ~(1 << bank % BANKS_PER_RANK)
        auto_precharge(queues, state, kind, bank, clock)
    else:
        release_bank(queues, state, bank)


@inlined
def finish_queued(rows, queues, state, kind, bank, clock):
    """See `points`."""
    if kind >= RDA:
        auto_precharge(queues, state, kind, bank, clock)


@inlined
def note_activated(rows, state, bank):
    """See `points`."""
    bank = natural(bank)
    state[ACCESSES + bank] = 0
    state[CAPPED + bank // BANKS_PER_RANK] &= ~(1 << bank % BANKS_PER_RANK)


@inlined
def note_column(rows, state, kind, bank):
    """See `points`."""
    bank = natural(bank)
    accesses = state[ACCESSES + bank] + 1
    state[ACCESSES + bank] = accesses
    if accesses == rows.cap:
        state[CAPPED + bank // BANKS_PER_RANK] |= 1 << bank % BANKS_PER_RANK
        state[CAPPED_BOUND] = min(state[CAPPED_BOUND], precharge_ready_at(state, bank))


@inlined
def next_close(rows, state):
    """See `points`."""
    return state[CAPPED_BOUND]


@outlined
def close_rows(rows, state, clock):
    """See `points`; each row is asked for once."""
    first = FAR
    for rank in range(RANKS):
        left = state[CAPPED + rank] & state[OPEN_BANKS + rank]
        state[CAPPED + rank] = left
        while left != 0:
            bit = left & -left
            left ^= bit
            bank = natural(rank * BANKS_PER_RANK + lowest(bit))
            at = precharge_ready_at(state, bank)
            if at <= clock:
                push_maintenance(state, PRE, bank)
                state[CAPPED + rank] ^= bit
            else:
                first = min(first, at)
    state[CAPPED_BOUND] = first


@inlined
def also_held(rows, shape, state, rank):
    """See `points`."""
    if state[DOUBLY_HELD + rank] == 0:
        return 0
    active = 0
    for line in range(2 * ranks_of(shape)):
        active += state[ACTIVE_SIZE + line]
    return state[DOUBLY_HELD + rank] if active > 0 else 0


@inlined
def lacks_rows(rows, shape, state):
    """See `points`."""
    lacking = 0
    for rank in range(natural(ranks_of(shape))):
        lacking |= state[HELD_BANKS + rank] & ~state[OPEN_BANKS + rank]
    return lacking != 0
