"""Refresh management (RFM): counters of activations, and the requests for RFM commands.

Each bank has a counter of its activations, the rolling accumulated ACT count (RAA) of JESD79-5, 4.41. At the
threshold (RAAIMT) the controller requests an RFM command, which waits and issues as a refresh does. When it
issues, and when a refresh issues, the counters of the banks that it addresses go down. With `RFM_CLEARS`, as
in the reference, they are cleared when the RFM is requested (`ALL_RANKS`: those of all ranks, if the command
is of a rank), and refreshes change nothing.

A channel has the settings as an array, so that the machine code is the same with and without RFM.
"""

from __future__ import annotations

from ndpsim.base.jit import inlined, outlined
from ndpsim.dram.choosing import is_barred
from ndpsim.dram.maintenance import push_refresh
from ndpsim.dram.spec.lower import SCOPE
from ndpsim.dram.spec.standard import BANK_PAIR, ONE_BANK, SAME_BANKS, WHOLE_RANK
from ndpsim.dram.state import (
    ALL_RANKS,
    BANK,
    FAR,
    FINAL,
    PRIORITY,
    RAA,
    RANK,
    REFRESH_FROM,
    RFM_BY_REFRESH,
    RFM_BY_RFM,
    RFM_CLEARS,
    RFM_COMMAND,
    RFM_OWN_BANK,
    RFM_SCOPE,
    RFM_THRESHOLD,
)
from ndpsim.dram.timing import banks_of, first_bank


@inlined
def note_activation(tables, state, rank, group, bank, clock):
    """Count an activation of a bank, and request RFM at the threshold."""
    threshold = state.rfm[RFM_THRESHOLD]
    if threshold > 0:
        state.rows[bank, RAA] += 1
        if state.rows[bank, RAA] >= threshold:
            request(tables, state, rank, group, bank, clock)


@inlined
def first_of(tables, scope, rank, bank):
    """The first of the banks that a command of this scope to a bank addresses."""
    first = first_bank(tables, rank)
    if scope == SAME_BANKS:
        return first + (bank - first) % tables.banks_per_group
    return banks_of(tables, scope, rank, bank)[0]


@outlined
def request(tables, state, rank, group, bank, clock):
    """Request RFM for a bank, unless it waits already. It delays other commands from the next clock on."""
    entry, size, rows, rfm = state.entry, state.size, state.rows, state.rfm
    command, scope = rfm[RFM_COMMAND], rfm[RFM_SCOPE]
    first = first_of(tables, scope, rank, bank)
    for slot in range(size[PRIORITY]):
        alike = entry[PRIORITY, FINAL, slot] == command and entry[PRIORITY, RANK, slot] == rank
        if alike and first_of(tables, scope, rank, entry[PRIORITY, BANK, slot]) == first:
            return
    if size[PRIORITY] == entry.shape[2]:
        return
    if (rfm[RFM_OWN_BANK] == 0 or scope == WHOLE_RANK) and not is_barred(entry, rows, size):
        state.value[REFRESH_FROM] = clock + 1
    in_group = scope == ONE_BANK or scope == BANK_PAIR
    addressed = 0 if scope == WHOLE_RANK else first if scope == SAME_BANKS else bank
    push_refresh(tables, rfm[RFM_OWN_BANK], state, command, rank, group if in_group else 0, addressed)
    if rfm[RFM_CLEARS]:
        all_ranks = rfm[RFM_CLEARS] == ALL_RANKS and scope == WHOLE_RANK
        for cleared in range(1, tables.ranks + 1):
            if cleared == rank or all_ranks:
                lower_counters(tables, state, scope, cleared, addressed, FAR)


@outlined
def lower_counters(tables, state, scope, rank, bank, amount):
    """Take an amount off the counters of the banks that a command of this scope addresses."""
    first, end, stride = banks_of(tables, scope, rank, bank)
    for addressed in range(first, end, stride):
        state.rows[addressed, RAA] = max(0, state.rows[addressed, RAA] - amount)


@inlined
def lower_after_refresh(tables, state, command, rank, bank):
    """Lower the counters of the banks that a refresh or RFM addresses."""
    rfm = state.rfm
    if rfm[RFM_THRESHOLD] > 0:
        amount = rfm[RFM_BY_RFM] if command == rfm[RFM_COMMAND] else rfm[RFM_BY_REFRESH]
        lower_counters(tables, state, tables.commands[command, SCOPE], rank, bank, amount)
