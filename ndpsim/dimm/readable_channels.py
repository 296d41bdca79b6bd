"""The controllers of the lanes and of the host in the readable arbiter, their requests and refreshes."""

from __future__ import annotations

from typing import NamedTuple

from ndpsim.base.jit import by_reference, inlined
from ndpsim.dimm.arbitration_points import record_request
from ndpsim.dimm.common import (
    admit,
    dimm_of,
    host_source,
    record_served,
    record_taken,
    update_credit,
)
from ndpsim.dimm.relayout import admit_all, enqueue_request, next_request, source_of
from ndpsim.dimm.relayout_weights import may_take_weights, update_promises, weights_are_next
from ndpsim.dimm.staging import next_step
from ndpsim.dram.choosing import bars_queues, forget_all, is_barred
from ndpsim.dram.maintenance import push_refresh, refresh
from ndpsim.dram.queues import accept, would_accept
from ndpsim.dram.spec import Tables
from ndpsim.dram.state import (
    BANK,
    FINAL,
    GROUP,
    PLACE,
    PRIORITY,
    RANK,
    RANK_SHIFT,
    READ_LATENCY,
    READS,
    READS_SERVED,
    REFRESH_FROM,
    SERVED,
    TAKEN,
    WRITES,
    Commands,
    Ints,
    State,
)
from ndpsim.dram.timing import first_bank


@by_reference
class Controllers(NamedTuple):
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
        place, taken, served = source.place[value[PLACE]], value[TAKEN], value[SERVED]
        read, latency = value[READS_SERVED], value[READ_LATENCY]
        latencies = hosts.latencies[bus, stream]
        accept(hosts.tables, setup.policy, source, channel_at(hosts, bus), latencies, clock)
        record_served(traffic, stream, bus, value, served, read, latency, 0)
        if value[TAKEN] > taken:
            if value[SERVED] == served:
                rank, records = place >> RANK_SHIFT & 255, agents.claims.grant_records[bus]
                record_request(setup.arbitration, records, rank, place & 1 == 0, clock)
            record_taken(traffic, bus, value, clock)
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
        place = value[PLACE]
        value[PLACE] = enqueue_request(relayout, weights, lane, request, clock)
        accept(lanes.tables, policy, admit_all(relayout, source), channel, latencies, clock)
        value[PLACE] = place
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
