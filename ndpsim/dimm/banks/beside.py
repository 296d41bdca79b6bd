"""A host beside a program of units in banks; an arbitration decides which of the two is first."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ndpsim.base.jit import by_reference, inlined, kernel
from ndpsim.dimm.arbitration_points import (
    RECORDS,
    host_waits,
    master_changes_at,
    record_data,
    record_request,
    usual_master,
)
from ndpsim.dimm.arbitrations import Arbitration, make_arbitration
from ndpsim.dimm.state import HOST
from ndpsim.dram.banks import in_order, look_ahead
from ndpsim.dram.banks.host import LOGGED_AT_ONCE, HostStream, has_host_requests, offer_host, oldest_arrival
from ndpsim.dram.banks.lower import BankTables, Ints
from ndpsim.dram.banks.state import (
    ACTIVE,
    BLOCKED,
    CAPACITY,
    CLOCK,
    ENDED,
    FAR,
    HOST_FIRST,
    LINE,
    LINES_FOLLOW,
    LOGGED,
    MASTER,
    PIM,
    POSITION,
    READS,
    REFRESH_DUE,
    UNIT_ALONE,
    UNIT_FIRST,
    WAKE,
    WRITE_MODE,
    WRITES,
    BankProgram,
    BankState,
    stands_still,
)


@by_reference
class Sharing(NamedTuple):
    """A host with its arbitration. `records`: see `dimm.arbitration_points`, by channel."""

    arbitration: Arbitration
    records: Ints
    host: HostStream
    looks_ahead: int  # 1: the units have the controller that looks ahead


_PATIENCE = 1 << 14  # clocks; a request that has waited for longer makes its master first


class Beside:
    """A host with its arbitration, beside a program.

    Args:
        stream: the requests.
        arbitration: its name with parameters, see `dimm.arbitrations`.
        looks_ahead: whether the units have the controller that looks ahead.
    """

    def __init__(self, stream: HostStream, arbitration: str, looks_ahead: bool) -> None:
        records = np.zeros((len(stream.next) + 1, RECORDS), dtype=np.int64)
        self._sharing = Sharing(make_arbitration(arbitration), records, stream, int(looks_ahead))

    def run(self, tables: BankTables, program: BankProgram, state: BankState, until: int) -> int:
        """As the kernels of programs alone; see `run_beside`."""
        return run_beside(self._sharing, tables, program, state, until)


@inlined
def choose_master(sharing, state, channel, clock):
    """Note whose commands come first in a channel; returns the next clock at which that may change."""
    arbitration, records = sharing.arbitration, sharing.records
    facts = state.channel[channel]
    master = usual_master(arbitration, records, channel, facts[WRITE_MODE] == 1, clock)
    unit_late = oldest_arrival(state, channel, PIM) + _PATIENCE
    host_late = min(oldest_arrival(state, channel, READS), oldest_arrival(state, channel, WRITES))
    host_late = min(host_late, oldest_arrival(state, channel, ACTIVE)) + _PATIENCE
    is_usual = (unit_late < clock) == (host_late < clock)
    host_first = master == HOST if is_usual else host_late < clock
    facts[MASTER] = UNIT_FIRST
    if host_first:
        facts[MASTER] = HOST_FIRST
    elif is_usual and host_waits(arbitration):
        facts[MASTER] = UNIT_ALONE
    change = master_changes_at(arbitration, records, channel, clock)
    if unit_late >= clock:
        change = min(change, unit_late + 1)
    if host_late >= clock:
        change = min(change, host_late + 1)
    return max(change, clock + 1)


@inlined
def offer_requests(sharing, tables, program, state, channel, clock):
    """Queue the host's requests that have arrived; returns the clock at which the next one arrives."""
    while True:
        queue, arrival = offer_host(sharing.host, tables, program, state, channel, clock)
        if queue < 0:
            return arrival
        record_request(sharing.arbitration, sharing.records, channel, queue == READS, clock)


@inlined
def serve(sharing, tables, program, state, channel, clock):
    """Let a channel act in a clock; returns whether a decoder may act in the next one for that."""
    arbitration, records, host = sharing.arbitration, sharing.records, sharing.host
    facts = state.channel[channel]
    waiting = state.value[POSITION] > 0
    change = choose_master(sharing, state, channel, clock)
    reads, writes = state.issued[channel, host.read], state.issued[channel, host.write]
    decodes = False
    if sharing.looks_ahead:
        facts[WAKE] = look_ahead.serve(tables, program, state, channel, clock)
    else:
        decodes = in_order.serve(tables, program, state, channel, clock, waiting)
    if state.issued[channel, host.read] > reads:
        record_data(arbitration, records, channel, True, clock)
    if state.issued[channel, host.write] > writes:
        record_data(arbitration, records, channel, False, clock)
    if has_host_requests(state, channel) or state.size[channel, PIM] > 0:
        facts[WAKE] = min(facts[WAKE], change)
    return decodes


@inlined
def are_units_done(program, state):
    """Whether all requests for the units have issued."""
    if state.value[LINE] < program.lines or program.more or state.value[BLOCKED] > 0:
        return False
    for channel in range(len(state.channel)):
        if state.size[channel, PIM] > 0 or state.channel[channel, REFRESH_DUE] > 0:
            return False
    return True


@kernel
def run_beside(
    sharing: Sharing, tables: BankTables, program: BankProgram, state: BankState, until: int
) -> int:
    """Run until all requests for the units have issued (returns 1), the clock `until` or a full log (0), the
    end of the lines before more come (2), or for ever (-1).
    """
    value, channels = state.value, len(state.channel)
    room = min(len(state.log) - 2 * channels, LOGGED_AT_ONCE - 2 * channels)
    while value[CLOCK] < until and (len(state.log) == 0 or value[LOGGED] <= room):
        clock = value[CLOCK] + 1
        wake = FAR
        if sharing.looks_ahead:
            if look_ahead.offer(tables, program, state, clock):
                return 2
        elif value[LINE] >= program.lines and program.more == LINES_FOLLOW:
            return 2
        else:
            wake = in_order.decode(tables, program, state, clock)
        for channel in range(channels):
            arrival = offer_requests(sharing, tables, program, state, channel, clock)
            facts = state.channel[channel]
            if state.size[channel, ACTIVE] + 2 > CAPACITY:
                return -2
            if facts[WAKE] <= clock and serve(sharing, tables, program, state, channel, clock):
                wake = clock + 1
            wake = min(wake, arrival, facts[WAKE])
        value[CLOCK] = clock
        if sharing.host.alone == 0 and are_units_done(program, state):
            value[ENDED] = 1
            return 1
        if wake >= FAR or stands_still(tables, state, clock):
            return -1
        value[CLOCK] = wake - 1
    return 0
