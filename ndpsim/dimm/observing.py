"""Updates a controller for a command that another controller of the same banks has issued."""

from __future__ import annotations

from ndpsim.base.jit import inlined, outlined
from ndpsim.dram.choosing import end_refresh, forget_all, forget_bank
from ndpsim.dram.issuing import note_rows, reads_or_writes
from ndpsim.dram.maintenance import end_round
from ndpsim.dram.spec.lower import BUSY, CLOSES, IS_REFRESH, SCOPE
from ndpsim.dram.spec.standard import ACTIVATE, ONE_BANK, PRECHARGE
from ndpsim.dram.state import (
    AWAITS_REFRESH,
    BANK,
    FINAL,
    HELD_BY_OTHER,
    OPEN_ROW,
    PRIORITY,
    RANK,
    REFRESH_UNTIL,
)
from ndpsim.dram.timing import banks_per_rank, first_bank, note_timing_in_rank


@inlined
def forget_maintenance(tables, channel, final, rank, bank):
    """The first maintenance command of this kind that waits for a rank, or a bank, has been issued."""
    entry, size = channel.entry, channel.size
    for slot in range(size[PRIORITY]):
        if entry[PRIORITY, FINAL, slot] != final or entry[PRIORITY, RANK, slot] != rank:
            continue
        if entry[PRIORITY, BANK, slot] == bank:
            end_refresh(tables, entry, size, channel.bound, channel.rows, slot)
            return


@inlined
def one_command_a_clock(ready, rank, clock):
    """The command pins of the rank are occupied at `clock`."""
    for command in range(ready.shape[1]):
        ready[rank, command] = max(ready[rank, command], clock + 1)


@inlined
def release_closed(tables, rows, rank):
    """The other controller no longer holds banks of a rank that a refresh has closed."""
    start = first_bank(tables, rank)
    for bank in range(start, start + banks_per_rank(tables)):
        if rows[bank, OPEN_ROW] < 0:
            rows[bank, HELD_BY_OTHER] = 0


@inlined
def record_pins(tables, rows, of_active, command, rank, bank):
    """Note which banks the other controller holds between activation and column command."""
    if command == ACTIVATE:
        rows[bank, HELD_BY_OTHER] = 1
    elif reads_or_writes(command):
        if of_active:
            rows[bank, HELD_BY_OTHER] = 0
    elif tables.commands[command, CLOSES] and tables.commands[command, SCOPE] != ONE_BANK:
        release_closed(tables, rows, rank)


@outlined
def observe(tables, channel, of_active, command, rank, group, bank, row, clock):
    """The other controller has issued a command at `clock`; `of_active`: for one of its active requests.

    The nodes are those of the observing controller. Distances apply within the rank: both controllers use its
    command and data pins, but not the same buses beyond it.
    """
    entry, size, rows, value = channel.entry, channel.size, channel.rows, channel.value
    note_timing_in_rank(tables, channel.ready, channel.recent, command, rank, group, bank, clock)
    one_command_a_clock(channel.ready, rank, clock)
    note_rows(tables, channel, command, rank, bank, row, clock)
    record_pins(tables, rows, of_active, command, rank, bank)
    if tables.commands[command, IS_REFRESH]:
        if rows[bank, AWAITS_REFRESH] == 0:
            value[REFRESH_UNTIL] = clock + tables.commands[command, BUSY]
        forget_maintenance(tables, channel, command, rank, bank)
        end_round(tables, entry, size, value, clock)
    elif tables.commands[command, SCOPE] != ONE_BANK:
        forget_all(entry, size, channel.bound)
    else:
        if command == PRECHARGE:
            forget_maintenance(tables, channel, command, rank, bank)
        forget_bank(entry, size, channel.bound, bank)
