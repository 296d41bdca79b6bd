"""A row closes after so many column accesses: by auto-precharge with the next one, or by PRE before it.

Of a column command after the last access only the form with auto-precharge is issued. It may close the row
under an active request of the other direction, which then activates its bank again. As in the reference, the
bank is counted twice from then on: it is held while any request is active.
"""

from __future__ import annotations

from typing import NamedTuple

from ndpsim._jit import inlined, outlined
from ndpsim.dram import state
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
from ndpsim.dram.masks.words import assume_nonnegative, lowest, ranks_of
from ndpsim.dram.queues import push_priority
from ndpsim.dram.state import FAR
from ndpsim.dram.timing import bank_ready_at as node_ready_at
from ndpsim.dram.timing import banks_per_rank, first_bank
from ndpsim.spec import standard
from ndpsim.spec.standard import PREPB

__all__ = ["ClosedCap", "of"]


class ClosedCap(NamedTuple):
    """The parameters."""

    cap: int  # column accesses, at least 1

    @staticmethod
    def parts() -> str:
        """The module of the parts of kernels."""
        return __name__


def of(cap: int) -> ClosedCap:
    """The parameters."""
    return ClosedCap(cap)


# ---- The general controller


@inlined
def close_due(rows, tables, channel, clock):
    """See `maintenance`: a PREpb, once, for every bank whose row has had its accesses."""
    wake = FAR
    ready, bank_rows = channel.ready, channel.rows
    start = first_bank(tables, 1)
    for bank in range(start, bank_rows.shape[0]):
        if bank_rows[bank, state.ACCESSES] < rows.cap or bank_rows[bank, state.CLOSING]:
            continue
        group = 1 + tables.ranks + (bank - start) // tables.banks_per_group
        rank = 1 + (bank - start) // banks_per_rank(tables)
        at = node_ready_at(ready, PREPB, rank, group, bank)
        if at <= clock:
            if channel.size[state.PRIORITY] < channel.entry.shape[2]:
                push_priority(channel.entry, channel.size, PREPB, rank, group, bank)
                bank_rows[bank, state.CLOSING] = 1
        else:
            wake = min(wake, at)
    return wake


@inlined
def column_command(rows, bank_rows, command, bank):
    """See `issuing`: that with auto-precharge after the last access."""
    if (command != standard.RD and command != standard.WR) or bank_rows[bank, state.ACCESSES] < rows.cap:
        return command
    return standard.RDA if command == standard.RD else standard.WRA


# ---- The fast controller


@inlined
def precharge_ready_at(state, bank):
    """The first clock at which a bank is ready for PRE."""
    return max(state[RANK_READY + bank // BANKS_PER_RANK * KINDS + PRE], bank_ready_at(state, PRE, bank))


@inlined
def column_kind(rows, state, kind, bank):
    """See `masks.row_points`."""
    return kind + (RDA - RD if state[ACCESSES + assume_nonnegative(bank)] >= rows.cap else 0)


@inlined
def finish_active(rows, queues, state, kind, bank, clock):
    """See `masks.row_points`."""
    if kind >= RDA:
        state[HELD_BANKS + bank // BANKS_PER_RANK] &= ~(1 << bank % BANKS_PER_RANK)
        auto_precharge(queues, state, kind, bank, clock)
    else:
        release_bank(queues, state, bank)


@inlined
def finish_queued(rows, queues, state, kind, bank, clock):
    """See `masks.row_points`."""
    if kind >= RDA:
        auto_precharge(queues, state, kind, bank, clock)


@inlined
def note_activated(rows, state, bank):
    """See `masks.row_points`."""
    bank = assume_nonnegative(bank)
    state[ACCESSES + bank] = 0
    state[CAPPED + bank // BANKS_PER_RANK] &= ~(1 << bank % BANKS_PER_RANK)


@inlined
def note_column(rows, state, kind, bank):
    """See `masks.row_points`."""
    bank = assume_nonnegative(bank)
    accesses = state[ACCESSES + bank] + 1
    state[ACCESSES + bank] = accesses
    if accesses == rows.cap:
        state[CAPPED + bank // BANKS_PER_RANK] |= 1 << bank % BANKS_PER_RANK
        state[CAPPED_BOUND] = min(state[CAPPED_BOUND], precharge_ready_at(state, bank))


@inlined
def next_close(rows, state):
    """See `masks.row_points`."""
    return state[CAPPED_BOUND]


@outlined
def close_rows(rows, state, clock):
    """See `masks.row_points`; each row is asked for once."""
    first = FAR
    for rank in range(RANKS):
        left = state[CAPPED + rank] & state[OPEN_BANKS + rank]
        state[CAPPED + rank] = left
        while left != 0:
            bit = left & -left
            left ^= bit
            bank = assume_nonnegative(rank * BANKS_PER_RANK + lowest(bit))
            at = precharge_ready_at(state, bank)
            if at <= clock:
                push_maintenance(state, PRE, bank)
                state[CAPPED + rank] ^= bit
            else:
                first = min(first, at)
    state[CAPPED_BOUND] = first


@inlined
def also_held(rows, shape, state, rank):
    """See `masks.row_points`."""
    if state[DOUBLY_HELD + rank] == 0:
        return 0
    active = 0
    for active_queue in range(2 * ranks_of(shape)):
        active += state[ACTIVE_SIZE + active_queue]
    return state[DOUBLY_HELD + rank] if active > 0 else 0


@inlined
def lacks_rows(rows, shape, state):
    """See `masks.row_points`."""
    lacking = 0
    for rank in range(assume_nonnegative(ranks_of(shape))):
        lacking |= state[HELD_BANKS + rank] & ~state[OPEN_BANKS + rank]
    return lacking != 0
