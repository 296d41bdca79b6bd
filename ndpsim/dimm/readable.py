"""The readable arbiter of shared DIMMs: it runs the general controller clock by clock, with any policy.

The package describes its decisions. It is the twin of `dimm.arbiter`.
"""

from __future__ import annotations

from ndpsim.base.jit import inlined, kernel, outlined
from ndpsim.dimm.arbitration_points import host_waits
from ndpsim.dimm.common import (
    DONE,
    LATE,
    RECORD_FULL,
    STUCK,
    commands_at,
    count_served,
    data_sink,
    dimm_of,
    find_first,
    has_work,
    host_source,
    is_reached,
    record_command,
    record_host_data,
    record_is_full,
    serve_lane,
    slot_after,
    take_command_bus,
    update_credit,
)
from ndpsim.dimm.readable_channels import (
    ask_for_refresh,
    channel_at,
    host_bank,
    host_group,
    lane_bank,
    lane_group,
    observe,
    release_closed,
    take_requests,
)
from ndpsim.dimm.relayout import offer_requests, source_of
from ndpsim.dimm.staging import (
    carry_transfer,
    give_to_multipliers,
    next_command_at,
    next_step,
    next_transfer,
)
from ndpsim.dimm.state import FIRST, HOST, NDP, READ, WRITE
from ndpsim.dram.choosing import RankClaims, forget_all, is_barred
from ndpsim.dram.issuing import reads, reads_or_writes, requeue_reads
from ndpsim.dram.maintenance import close_due, next_refresh
from ndpsim.dram.spec import standard
from ndpsim.dram.spec.standard import ACTIVATE, PRECHARGE
from ndpsim.dram.state import (
    ACTIVE,
    ARRIVED,
    AWAITS_REFRESH,
    BANK,
    BUS_TAKEN,
    FAR,
    FINAL,
    HOST_WAITS,
    NEXT_REFRESH,
    OPEN_ROW,
    PRIORITY,
    RANK,
    READS,
    ROW,
    WRITE_MODE,
    WRITES,
    Channel,
)
from ndpsim.dram.step import step
from ndpsim.dram.timing import banks_per_rank, first_bank

# ---- Which master is first


@inlined
def current_queue(channel):
    """The queue that a controller serves."""
    return WRITES if channel.value[WRITE_MODE] else READS


@inlined
def oldest_arrival(channel):
    """The arrival of the oldest active or queued request that is served now, FAR without any."""
    oldest = FAR
    for queue in (ACTIVE, current_queue(channel)):
        for slot in range(channel.size[queue]):
            oldest = min(oldest, channel.entry[queue, ARRIVED, slot])
    return oldest


@inlined
def next_column(channel):
    """The oldest active or queued request whose row is open: (its rank node, 0 if there is none; 1 if it
    reads, 2 if it writes).
    """
    entry, oldest, rank, direction = channel.entry, FAR, 0, 0
    for queue in (ACTIVE, current_queue(channel)):
        if queue != ACTIVE and is_barred(entry, channel.rows, channel.size):
            break
        for slot in range(channel.size[queue]):
            bank, arrived = entry[queue, BANK, slot], entry[queue, ARRIVED, slot]
            if queue != ACTIVE and channel.rows[bank, AWAITS_REFRESH] > 0:
                continue
            if arrived < oldest and channel.rows[bank, OPEN_ROW] == entry[queue, ROW, slot]:
                oldest, rank = arrived, entry[queue, RANK, slot]
                direction = 2 if entry[queue, FINAL, slot] == standard.WRITE else 1
    return rank, direction


@inlined
def want(tables, channel, rank, wanted, offset, clock):
    """Mark the banks of a rank that the first master waits for, or its refreshes that hold back only requests
    for their banks; `offset`: from its nodes to the other's.
    """
    entry, start = channel.entry, first_bank(tables, rank)
    for bank in range(start, start + banks_per_rank(tables)):
        if channel.rows[bank, AWAITS_REFRESH] > 0:
            wanted[bank + offset] = clock
    for queue in (ACTIVE, current_queue(channel)):
        if queue != ACTIVE and is_barred(entry, channel.rows, channel.size):
            break
        for slot in range(channel.size[queue]):
            if entry[queue, RANK, slot] == rank:
                wanted[entry[queue, BANK, slot] + offset] = clock


@inlined
def direction_of(command):
    """The direction of a command's data; -1: it has none."""
    return -1 if not reads_or_writes(command) else READ if reads(command) else WRITE


# ---- A lane, and the host


@outlined
def step_lane(setup, agents, lanes, hosts, rank, bus, clock):
    """A lane issues its next command, if it has one."""
    weights, claims, buses = agents.weights, agents.claims, hosts.channels.size.shape[0]
    lane = rank * buses + bus
    channel, host, credit = channel_at(lanes, lane), channel_at(hosts, bus), claims.credit[lane]
    policy, trace = setup.policy, commands_at(lanes.commands, lane)
    blocking = RankClaims(claims.lane_wanted[lane], claims.lane_direction[lane])
    source, sink = source_of(agents.relayout, weights, lane), data_sink(claims, credit)
    whole = Channel(policy, setup.lane_tables, channel, lanes.latencies[0, 0], source, sink, trace)
    queue, command, _, group, bank, row, burst, _ = step(whole, blocking, credit[0], 0, clock)
    if queue < 0:
        return
    opens, closes = command == ACTIVATE, command == PRECHARGE and queue != PRIORITY
    direction = direction_of(command)
    record_command(claims.totals[lane], claims.opened_by[lane], NDP, direction, opens, closes, bank)
    take_command_bus(setup, claims, rank, bus, command, clock)
    claims.last_rank[rank // setup.dimm_ranks, bus] = rank
    if queue == PRIORITY and credit[0] > clock:
        requeue_reads(channel.entry, channel.size, channel.bound, channel.rows)
    if setup.lane_tables.ranks == 1:  # a lane with several ranks has no host
        observe(
            setup.host_tables,
            host,
            queue == ACTIVE,
            command,
            1 + rank,
            host_group(setup, rank, group),
            host_bank(setup, rank, bank),
            row,
            clock,
        )
    if direction >= 0:
        values, dimm = lanes.channels.value, rank // setup.dimm_ranks
        if serve_lane(setup, agents, channel.value, values, lane, dimm, burst, buses, clock):
            forget_all(channel.entry, channel.size, channel.bound)


@inlined
def give(setup, agents, channel, lane, dimm, clock):
    """Give staged bursts to the multipliers of a lane; the clock from which its reads have room may change.

    clock: the next clock at which the change counts.
    """
    if give_to_multipliers(setup, agents.weights, agents.transfers, dimm, lane):
        forget_all(channel.entry, channel.size, channel.bound)
    update_credit(setup, agents, lane, clock)


@inlined
def other_credit_of(agents, host, lanes, bus, buses):
    """The clock from which the lane has room whose refresh the host's controller would issue next."""
    if host.size[PRIORITY] == 0:
        return FAR
    lane = (host.entry[PRIORITY, RANK, 0] - 1) * buses + bus
    return agents.claims.credit[lane, 0] if lane < lanes.channels.size.shape[0] else 0


@outlined
def step_host(setup, agents, lanes, hosts, bus, clock):
    """The host's controller issues its next command, if it has one."""
    claims, buses = agents.claims, hosts.channels.size.shape[0]
    host, value = channel_at(hosts, bus), hosts.channels.value[bus]
    blocking = RankClaims(claims.host_wanted[bus], claims.host_direction[bus])
    sink, trace = data_sink(claims, claims.no_credit), commands_at(hosts.commands, bus)
    before = count_served(value)
    other_credit = other_credit_of(agents, host, lanes, bus, buses)
    source, no_latencies = host_source(agents.traffic, bus), lanes.latencies[0, 0]
    whole = Channel(setup.policy, setup.host_tables, host, no_latencies, source, sink, trace)
    queue, command, rank, group, bank, row, request, _ = step(whole, blocking, 0, other_credit, clock)
    if queue < 0:
        return
    rank -= 1
    take_command_bus(setup, claims, rank, bus, command, clock)
    direction = direction_of(command)
    if direction >= 0:
        record_host_data(setup, agents, bus, request, rank, direction, value, before, hosts.latencies, clock)
    lane = rank * buses + bus
    if lane >= lanes.channels.size.shape[0]:
        return  # a rank without NDP unit
    lane_channel = channel_at(lanes, lane)
    group, bank = lane_group(setup, rank, group), lane_bank(setup, rank, bank)
    opens, closes = command == ACTIVATE, command == PRECHARGE and queue != PRIORITY
    record_command(claims.totals[lane], claims.opened_by[lane], HOST, direction, opens, closes, bank)
    claims.host_issued[lane, command] += 1
    observe(setup.lane_tables, lane_channel, queue == ACTIVE, command, 1, group, bank, row, clock)
    if queue == PRIORITY:
        release_closed(setup.host_tables, host.rows, 1 + rank)
    if queue == PRIORITY and claims.credit[lane, 0] > clock:
        requeue_reads(lane_channel.entry, lane_channel.size, lane_channel.bound, lane_channel.rows)


@inlined
def update_grants(setup, claims, lanes, host, has_host, bus, buses, clock):
    """Find the master that is first on each lane of a bus."""
    starving_since, records = clock - setup.starvation_clocks, claims.grant_records[bus]
    host_starves, writes = has_host and oldest_arrival(host) < starving_since, host.value[WRITE_MODE] != 0
    for lane in range(bus, lanes.channels.size.shape[0], buses):
        oldest = oldest_arrival(channel_at(lanes, lane))
        rank, starves = lane // buses, oldest < starving_since
        first = find_first(
            setup, claims, lane, rank, records, writes, starves, host_starves, oldest == FAR, clock
        )
        claims.totals[lane, FIRST] = first if has_host else NDP
        claims.lane_direction[lane, 0] = 0


@inlined
def mask_lanes(setup, claims, lanes, bus, buses, clock):
    """Mark for the host the banks that first lanes wait for, and command buses that are taken."""
    for lane in range(bus, lanes.channels.size.shape[0], buses):
        rank, channel = lane // buses, channel_at(lanes, lane)
        claims.host_direction[bus, rank] = 0
        if claims.totals[lane, FIRST] == NDP:
            offset = first_bank(setup.host_tables, 1 + rank) - first_bank(setup.lane_tables, 1)
            want(setup.lane_tables, channel, 1, claims.host_wanted[bus], offset, clock)
            claims.host_direction[bus, rank] = next_column(channel)[1]
            if host_waits(setup.arbitration):
                claims.host_direction[bus, rank] |= HOST_WAITS
        if claims.bus_free[rank // setup.dimm_ranks, bus] > clock:
            claims.host_direction[bus, rank] |= BUS_TAKEN


@inlined
def mask_host(setup, claims, lanes, host, bus, buses, clock):
    """Mark for lanes that are second the banks that the host waits for."""
    host_rank, host_direction = next_column(host)
    for lane in range(bus, lanes.channels.size.shape[0], buses):
        rank = lane // buses
        if claims.totals[lane, FIRST] == HOST:
            offset = first_bank(setup.lane_tables, 1) - first_bank(setup.host_tables, 1 + rank)
            want(setup.host_tables, host, 1 + rank, claims.lane_wanted[lane], offset, clock)
            claims.lane_direction[lane, 0] = host_direction if host_rank == 1 + rank else 0


@outlined
def step_lanes(setup, agents, lanes, hosts, bus, master, clock):
    """The lanes on which `master` is first issue. A lane without reads leaves its rank to the host."""
    claims, weights, buses = agents.claims, agents.weights, hosts.channels.size.shape[0]
    for dimm in range(weights.steps.shape[0]):
        rank, turn = slot_after(setup, claims, master, dimm, bus, buses, -1)
        while rank >= 0 and claims.bus_free[dimm, bus] <= clock:
            lane = rank * buses + bus
            if not agents.traffic.takes_part[bus] or has_work(agents, lanes.channels.value[lane], lane):
                step_lane(setup, agents, lanes, hosts, rank, bus, clock)
            rank, turn = slot_after(setup, claims, master, dimm, bus, buses, turn)


@inlined
def carry_transfers(setup, agents, host, bus, clock):
    """Activations and results take the bus; the host's commands wait until their data can follow."""
    buses, transfers = agents.buses, agents.transfers
    dimm, ready = next_transfer(buses, transfers, bus)
    while ready <= clock * setup.dram_ticks:
        carry_transfer(setup, buses, transfers, bus, dimm, ready)
        for command in (standard.READ, standard.READ_AP, standard.WRITE, standard.WRITE_AP):
            direction = READ if reads(command) else WRITE
            earliest = next_command_at(setup, buses, bus, direction)
            host.ready[0, command] = max(host.ready[0, command], earliest)
        dimm, ready = next_transfer(buses, transfers, bus)


@outlined
def step_bus(setup, agents, lanes, hosts, bus, clock):
    """Run a clock of a bus and of the lanes behind it. False if refresh can never catch up."""
    policy, claims, buses = setup.policy, agents.claims, hosts.channels.size.shape[0]
    host, has_host = channel_at(hosts, bus), agents.traffic.takes_part[bus]
    carry_transfers(setup, agents, host, bus, clock)
    take_requests(setup, agents, lanes, hosts, bus, buses, clock)
    if not ask_for_refresh(setup, lanes, host, has_host, bus, buses, clock):
        return False
    close_due(policy.rows, setup.host_tables, host, clock)
    for lane in range(bus, lanes.channels.size.shape[0], buses):
        close_due(policy.rows, setup.lane_tables, channel_at(lanes, lane), clock)
    update_grants(setup, claims, lanes, host, has_host, bus, buses, clock)
    step_lanes(setup, agents, lanes, hosts, bus, NDP, clock)
    if has_host:
        mask_lanes(setup, claims, lanes, bus, buses, clock)
        step_host(setup, agents, lanes, hosts, bus, clock)
        mask_host(setup, claims, lanes, host, bus, buses, clock)
        step_lanes(setup, agents, lanes, hosts, bus, HOST, clock)
    return True


# ---- All buses


@kernel
def run(setup, agents, lanes, hosts, goals, until_clock):
    """Run until one of `goals` is reached (`dimm.common.is_reached`), or to the clock `until_clock`.

    Returns DONE, or LATE if the clock came first; RECORD_FULL if a command trace needs more room; STUCK if
    refresh can never catch up. In each case the channel is before its next clock, so the run can be
    continued.
    """
    claims, buses = agents.claims, hosts.channels.size.shape[0]
    clock = claims.clock[0]
    for lane in range(lanes.channels.size.shape[0]):
        channel, dimm = channel_at(lanes, lane), dimm_of(setup, lane, buses)
        channel.value[NEXT_REFRESH] = next_refresh(channel.value)
        next_step(setup, agents.weights, dimm, lane, lanes.channels.value, buses, clock)
        give(setup, agents, channel, lane, dimm, clock)
    for bus in range(buses):
        hosts.channels.value[bus, NEXT_REFRESH] = next_refresh(hosts.channels.value[bus])
    outcome = DONE
    while not is_reached(goals, agents):
        if clock >= until_clock:
            outcome = LATE
            break
        if record_is_full(lanes.commands, 1) or record_is_full(hosts.commands, 1):
            outcome = RECORD_FULL
            break
        offer_requests(agents.relayout, clock)
        for bus in range(buses):
            if not step_bus(setup, agents, lanes, hosts, bus, clock):
                outcome = STUCK
        if outcome == STUCK:
            break
        clock += 1
    claims.clock[0] = clock
    return outcome
