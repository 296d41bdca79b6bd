"""Events at a bus and its lanes before commands: activations and results, requests, next steps of programs,
and due refreshes.
"""

from __future__ import annotations

from ndpsim.base.jit import inlined, outlined
from ndpsim.dimm.common import (
    admit,
    count_served,
    dimm_of,
    host_source,
    lane_ranks,
    record_host_request,
    update_credit,
)
from ndpsim.dimm.relayout import (
    enqueue_request,
    is_promised,
    mask_due_lanes,
    may_take_weights,
    next_request,
    source_of,
    update_promises,
    weights_are_next,
)
from ndpsim.dimm.staging import carry_transfer, has_reads, next_command_at, next_step, next_transfer
from ndpsim.dimm.state import READ, WRITE
from ndpsim.dimm.stepping import HOST_BIT, HOSTS, UNKNOWN, looks_for_requests, set_bit
from ndpsim.dram.fast.banks import bank_bit, bars_queues, is_barred, push_refresh
from ndpsim.dram.fast.choose import mode_changes
from ndpsim.dram.fast.controller import queue_request, refresh, take, would_accept
from ndpsim.dram.fast.fields import BANKS_PER_RANK, RD, READS, WR, WRITES
from ndpsim.dram.fast.slots import bank_of
from ndpsim.dram.fast.vectors import assume_nonnegative, lowest, set_element
from ndpsim.dram.state import FAR, NEXT_REFRESH, PLACE, REFRESH_FROM

_NONE = -1


# ---- Transfers and requests


@outlined
def carry_transfers(setup, buses, transfers, shape, state, bus, clock):
    """Activations and results take the bus; the host's commands wait until their data can follow."""
    dimm, ready_at = next_transfer(buses, transfers, bus)
    while ready_at <= clock * setup.dram_ticks:
        carry_transfer(setup, buses, transfers, bus, dimm, ready_at)
        reads_at = next_command_at(setup, buses, bus, READ)
        writes_at = next_command_at(setup, buses, bus, WRITE)
        for number in range(shape.ranks):
            rank = assume_nonnegative(number)
            set_element(state.rank_ready, rank, RD, max(state.rank_ready[rank, RD], reads_at))
            set_element(state.rank_ready, rank, WR, max(state.rank_ready[rank, WR], writes_at))
        dimm, ready_at = next_transfer(buses, transfers, bus)


@inlined
def record_request(policy, state, wakeups, bus, number, ready_at, clock):
    """A controller has taken a request, which can issue at `ready_at` at the earliest."""
    wake = clock if mode_changes(policy, state) else ready_at
    wakeups.wake[bus, number] = min(wakeups.wake[bus, number], wake)
    wakeups.next_active[bus] = min(wakeups.next_active[bus], wake)
    wakeups.column[bus, number, 0] = UNKNOWN


@inlined
def next_bank(shape, state, source):
    """The bank of a controller's next request."""
    return bank_of(shape, source.place[assume_nonnegative(state.value[PLACE])])


@inlined
def update_promised_credit(setup, agents, lanes, wakeups, lane, bus, buses, clock):
    """Update the clock from which a lane's FIFO has room, if a relayout has changed it."""
    if update_promises(agents.relayout, setup, agents.weights, lane, lanes.states[lane].value, clock):
        update_credit(setup, agents, lane, clock)
        wakeups.wake[bus, lane // buses] = wakeups.next_active[bus] = clock


@inlined
def take_lane_requests(setup, agents, lanes, wakeups, bus, buses, clock):
    """Every lane of a bus takes its next request, if it is due and has a slot.

    Returns the mask of lanes whose request may be for a bank that the host has pinned, which may make it
    ready.
    """
    policy, weights, relayout, woken = setup.policy, agents.weights, agents.relayout, 0
    due = mask_due_lanes(relayout, bus, buses, lane_ranks(setup, agents.claims), clock)
    mask = wakeups.takes[bus] & ~HOST_BIT | due
    while mask != 0:
        rank = assume_nonnegative(lowest(mask))
        bit = mask & -mask
        mask ^= bit
        lane = assume_nonnegative(rank * buses + bus)
        state, source = lanes.states[lane], source_of(relayout, weights, lane)
        pinned, ready_at = state.pinned_by_other[0], FAR
        if not is_promised(relayout, lane) or has_reads(weights, state.value, lane):
            update_promised_credit(setup, agents, lanes, wakeups, lane, bus, buses, clock)
        request = next_request(relayout, policy, lane, state.queued[READS], state.queued[WRITES], clock)
        may = would_accept(policy, state, source, clock)
        may = may and may_take_weights(relayout, setup, weights, lane, state.value, clock)
        if request >= 0 and not (may and weights_are_next(relayout, lane)):
            # No burst is read or written twice: it is queued without a look at the addresses of others.
            slot = enqueue_request(relayout, weights, lane, request, clock)
            ready_at = queue_request(lanes.shape, state, source, slot, clock)
        elif may:
            pinned &= bank_bit(next_bank(lanes.shape, state, source))
            ready_at = take(lanes.shape, state, lanes.latencies[0, 0], source, clock)
        else:
            request, pinned = _NONE, 0
        takes = looks_for_requests(setup, relayout, state, source, weights, lane, clock + 1)
        wakeups.takes[bus] = set_bit(wakeups.takes[bus], bit, takes)
        if may or request >= 0:
            record_request(policy, state, wakeups, bus, rank, ready_at, clock)
        woken |= (pinned != 0) << rank
    return woken


@inlined
def take_host_request(setup, agents, hosts, wakeups, bus, clock):
    """The host's controller takes its next request, if it is due and has a slot.

    Returns the mask of the lane that holds the bank which the request is for.
    """
    policy, state, traffic = setup.policy, hosts.states[bus], agents.traffic
    if traffic.next[bus] < 0:
        admit(traffic, bus, state.value, clock)
        if traffic.next[bus] >= 0:
            wakeups.takes[bus] |= HOST_BIT
    if wakeups.takes[bus] & HOST_BIT == 0:
        return 0
    source = host_source(traffic, bus)
    if not would_accept(policy, state, source, clock):
        wakeups.takes[bus] &= ~HOST_BIT
        return 0
    stream, bank = traffic.next[bus], next_bank(hosts.shape, state, source)
    rank = assume_nonnegative(bank // BANKS_PER_RANK)
    before = count_served(state.value)
    is_read = source.place[state.value[PLACE]] & 1 == 0
    ready_at = take(hosts.shape, state, hosts.latencies[bus, stream], source, clock)
    if record_host_request(setup, agents, bus, state.value, before, rank, is_read, clock):
        wakeups.next_active[bus] = clock
    if traffic.next[bus] < 0:
        wakeups.next_active[bus] = min(wakeups.next_active[bus], traffic.due[bus])
    wakeups.takes[bus] = set_bit(wakeups.takes[bus], HOST_BIT, would_accept(policy, state, source, clock + 1))
    record_request(policy, state, wakeups, bus, HOSTS, ready_at, clock)
    return (state.pinned_by_other[rank] & bank_bit(bank) != 0) << rank


@outlined
def begin_steps(setup, weights, lanes, wakeups, bus, buses, clock):
    """Let lanes take the requests of their next step, if it may be read now."""
    wakeups.next_from[bus] = FAR
    for lane in range(bus, lanes.states.shape[0], buses):
        if weights.next_from[lane] <= clock:
            next_step(setup, weights, dimm_of(setup, lane, buses), lane, lanes.values, buses, clock)
            wakeups.takes[bus] |= 1 << lane // buses
            wakeups.next_active[bus] = clock
        wakeups.next_from[bus] = min(wakeups.next_from[bus], weights.next_from[lane])


# ---- Due refreshes


@inlined
def refresh_lanes(policy, host, lanes, before, bus, buses):
    """Refreshes that the host's controller has just requested on a rank are pending for its lane, too."""
    size = host.pending_bank.shape[0]
    for index in range(before, host.pending_size):
        first = host.pending_bank[index & size - 1]
        lane = first // BANKS_PER_RANK * buses + bus
        if lane < lanes.states.shape[0]:
            state = lanes.states[lane]
            if bars_queues(host, index & size - 1) and not is_barred(state):
                state.value[REFRESH_FROM] = host.value[REFRESH_FROM]
            push_refresh(
                policy.own_bank,
                lanes.shape,
                state,
                host.pending_class[index & size - 1],
                first % BANKS_PER_RANK,
            )


@inlined
def refresh_due(lanes, hosts, has_host, bus, buses, ranks):
    """The clock at which the next refresh is due on a rank of a bus.

    Without the host each lane has its own refresh times; with it they are the host's.
    """
    if has_host:
        return hosts.values[bus, NEXT_REFRESH]
    clock = FAR
    for rank in range(ranks):
        clock = min(clock, lanes.values[rank * buses + bus, NEXT_REFRESH])
    return clock


@outlined
def ask_for_refresh(setup, lanes, hosts, wakeups, has_host, bus, clock):
    """Request the due refreshes on the ranks of a bus. False if they can never catch up."""
    count, buses, policy = lanes.states.shape[0], wakeups.due.shape[0], setup.policy
    wakeups.next_active[bus] = clock
    wakeups.column[bus, :, 0] = UNKNOWN
    if has_host:
        wakeups.wake[bus, :] = 0
        host = hosts.states[bus]
        before = host.pending_size
        if not refresh(hosts.shape, policy, host, clock):
            return False
        refresh_lanes(policy, host, lanes, before, bus, buses)
        return True
    for lane in range(bus, count, buses):
        if clock >= lanes.values[lane, NEXT_REFRESH]:
            wakeups.wake[bus, lane // buses] = 0
            if not refresh(lanes.shape, policy, lanes.states[lane], clock):
                return False
    return True
