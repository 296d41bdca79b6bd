"""The controllers of the lanes and of the host in the readable arbiter, their requests and refreshes."""

from __future__ import annotations

from typing import NamedTuple

from ndpsim.base.jit import by_reference, inlined, outlined
from ndpsim.dimm.common import admit, count_served, dimm_of, host_source, record_host_request, update_credit
from ndpsim.dimm.relayout import (
    admit_all,
    enqueue_request,
    may_take_weights,
    next_request,
    source_of,
    update_promises,
    weights_are_next,
)
from ndpsim.dimm.staging import next_step
from ndpsim.dram.choosing import bars_queues, end_refresh, forget_all, forget_bank, is_barred
from ndpsim.dram.issuing import note_rows, reads_or_writes
from ndpsim.dram.maintenance import end_round, push_refresh, refresh
from ndpsim.dram.queues import accept, would_accept
from ndpsim.dram.spec import Tables
from ndpsim.dram.spec.lower import BUSY, CLOSES, IS_REFRESH, SCOPE
from ndpsim.dram.spec.standard import ACTIVATE, ONE_BANK, PRECHARGE
from ndpsim.dram.state import (
    AWAITS_REFRESH,
    BANK,
    FINAL,
    GROUP,
    HELD_BY_OTHER,
    OPEN_ROW,
    PLACE,
    PRIORITY,
    RANK,
    RANK_SHIFT,
    READS,
    REFRESH_FROM,
    REFRESH_UNTIL,
    TAKEN,
    WRITES,
    Commands,
    Ints,
    State,
)
from ndpsim.dram.timing import banks_per_rank, first_bank, note_timing_in_rank


@by_reference
class ReadableControllers(NamedTuple):
    """The controllers of the lanes, or of the host's buses, and their command traces."""

    tables: Tables
    channels: State  # arrays have a further first dimension
    latencies: Ints  # [controller, stream, clocks]; of lanes one place for all
    commands: Commands


@inlined
def channel_at(controllers, number):
    """One of several channels."""
    channels = controllers.channels
    return State(
        channels.entry[number],
        channels.size[number],
        channels.bound[number],
        channels.ready[number],
        channels.rows[number],
        channels.recent[number],
        channels.value[number],
        channels.issued[number],
        channels.rfm[number],
    )


@inlined
def host_bank(setup, rank, bank):
    """The node in the host's channel of a lane's bank; 0 stays 0."""
    if bank == 0:
        return 0
    return first_bank(setup.host_tables, 1 + rank) + bank - first_bank(setup.lane_tables, 1)


@inlined
def host_group(setup, rank, group):
    """The node in the host's channel of a lane's bank group; 0 stays 0."""
    if group == 0:
        return 0
    return 1 + setup.host_tables.ranks + rank * setup.host_tables.bankgroups + group - 2


@inlined
def lane_bank(setup, rank, bank):
    """The node in its lane of a bank of the host's channel; 0 stays 0."""
    if bank == 0:
        return 0
    return first_bank(setup.lane_tables, 1) + bank - first_bank(setup.host_tables, 1 + rank)


@inlined
def lane_group(setup, rank, group):
    """The node in its lane of a bank group of the host's channel; 0 stays 0."""
    if group == 0:
        return 0
    return 2 + group - 1 - setup.host_tables.ranks - rank * setup.host_tables.bankgroups


# ---- New requests and refreshes


@inlined
def take_requests(setup, agents, lanes, hosts, bus, buses, clock):
    """Every controller of a bus takes its next request, if it is due and has a slot."""
    weights, traffic = agents.weights, agents.traffic
    value = hosts.channels.value[bus]
    admit(traffic, bus, value, clock)
    stream = traffic.next[bus]
    if stream >= 0:
        source = host_source(traffic, bus)
        location, taken, before = source.place[value[PLACE]], value[TAKEN], count_served(value)
        latencies = hosts.latencies[bus, stream]
        accept(hosts.tables, setup.policy, source, channel_at(hosts, bus), latencies, clock)
        if value[TAKEN] > taken:
            rank, is_read = location >> RANK_SHIFT & 255, location & 1 == 0
            record_host_request(setup, agents, bus, value, before, rank, is_read, clock)
    for lane in range(bus, lanes.channels.size.shape[0], buses):
        if weights.next_from[lane] <= clock:
            next_step(setup, weights, dimm_of(setup, lane, buses), lane, lanes.channels.value, buses, clock)
        take_lane_request(setup, agents, lanes, channel_at(lanes, lane), lane, clock)


@inlined
def take_lane_request(setup, agents, lanes, channel, lane, clock):
    """A lane takes a request of the relayout engine or a read of weights, in turn if both wait."""
    policy, weights, relayout = setup.policy, agents.weights, agents.relayout
    entry, size, value = channel.entry, channel.size, channel.value
    source, latencies = source_of(relayout, weights, lane), lanes.latencies[0, 0]
    update_promised_credit(setup, agents, channel, lane, clock)
    request = next_request(relayout, policy, lane, size[READS], size[WRITES], clock)
    may = would_accept(policy, source, entry, size, value, clock)
    may = may and may_take_weights(relayout, setup, weights, lane, value, clock)
    if request >= 0 and not (may and weights_are_next(relayout, lane)):
        kept = value[PLACE]
        value[PLACE] = enqueue_request(relayout, weights, lane, request, clock)
        accept(lanes.tables, policy, admit_all(relayout, source), channel, latencies, clock)
        value[PLACE] = kept
        value[TAKEN] -= 1
    elif may:
        accept(lanes.tables, policy, source, channel, latencies, clock)


@inlined
def update_promised_credit(setup, agents, channel, lane, clock):
    """Update the clock from which a lane's FIFO has room, if a relayout has changed it."""
    if update_promises(agents.relayout, setup, agents.weights, lane, channel.value, clock):
        update_credit(setup, agents, lane, clock)
        forget_all(channel.entry, channel.size, channel.bound)


@inlined
def fall_due(policy, tables, channel, clock):
    """Request the due refreshes of a controller. False if they can never catch up."""
    return refresh(tables, policy, channel, clock)


@inlined
def refresh_lane(setup, host, lane, rank, before):
    """Refreshes that the host's controller has just requested on a rank are pending for its lane, too."""
    entry, size = host.entry, host.size
    for slot in range(before, size[PRIORITY]):
        if entry[PRIORITY, RANK, slot] == 1 + rank:
            if bars_queues(entry, host.rows, slot) and not is_barred(lane.entry, lane.rows, lane.size):
                lane.value[REFRESH_FROM] = host.value[REFRESH_FROM]
            group = lane_group(setup, rank, entry[PRIORITY, GROUP, slot])
            bank = lane_bank(setup, rank, entry[PRIORITY, BANK, slot])
            command = entry[PRIORITY, FINAL, slot]
            push_refresh(setup.lane_tables, setup.policy.own_bank, lane, command, 1, group, bank)


@inlined
def ask_for_refresh(setup, lanes, host, has_host, bus, buses, clock):
    """Request the due refreshes on the ranks of a bus. False if they can never catch up.

    Without the host each lane has its own refresh times; with it they are the host's.
    """
    count = lanes.channels.size.shape[0]
    if has_host:
        before = host.size[PRIORITY]
        if not fall_due(setup.policy, setup.host_tables, host, clock):
            return False
        for number in range(bus, count, buses):
            refresh_lane(setup, host, channel_at(lanes, number), number // buses, before)
        return True
    for number in range(bus, count, buses):
        if not fall_due(setup.policy, setup.lane_tables, channel_at(lanes, number), clock):
            return False
    return True


# ---- Commands of the other controller of a rank


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
def record_pins(tables, rows, from_active, command, rank, bank):
    """Note which banks the other controller holds between activation and column command."""
    if command == ACTIVATE:
        rows[bank, HELD_BY_OTHER] = 1
    elif reads_or_writes(command):
        if from_active:
            rows[bank, HELD_BY_OTHER] = 0
    elif tables.commands[command, CLOSES] and tables.commands[command, SCOPE] != ONE_BANK:
        release_closed(tables, rows, rank)


@outlined
def observe(tables, channel, from_active, command, rank, group, bank, row, clock):
    """The other controller has issued a command at `clock`; `from_active`: for one of its active requests.

    The nodes are those of the observing controller. Distances apply within the rank: both controllers use its
    command and data pins, but not the same buses beyond it.
    """
    entry, size, rows, value = channel.entry, channel.size, channel.rows, channel.value
    note_timing_in_rank(tables, channel.ready, channel.recent, command, rank, group, bank, clock)
    one_command_a_clock(channel.ready, rank, clock)
    note_rows(tables, channel, command, rank, bank, row, clock)
    record_pins(tables, rows, from_active, command, rank, bank)
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
