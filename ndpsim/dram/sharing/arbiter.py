"""A lane: whose command comes next, and what follows from it."""

from __future__ import annotations

from ndpsim._jit import inlined
from ndpsim.dram.choosing import (
    choose_priority,
    forget_all,
    forget_bank,
    mark_hits,
    prospect,
    set_write_mode,
)
from ndpsim.dram.issuing import issue, take_back
from ndpsim.dram.maintenance import close_capped_rows, refresh
from ndpsim.dram.queues import accept, would_accept
from ndpsim.dram.sharing.bus import note_return
from ndpsim.dram.sharing.state import (
    HOST,
    HUNGRY,
    LAST_COLUMN,
    NDP,
    NDP_FIRST,
    READ,
    ROWS_LOST,
    SLICE,
    TURNAROUNDS,
    WRITE,
)
from ndpsim.dram.sharing.weights import give_to_multipliers, lane_credit, lane_source, next_step, shelve
from ndpsim.dram.sink import Sink
from ndpsim.dram.state import (
    ACTIVE,
    ARRIVED,
    BANK,
    FAR,
    FINAL,
    HIT_SINCE,
    INDEX,
    NEXT_REFRESH,
    NOT_BEFORE,
    OPEN_ROW,
    PRIORITY,
    READS,
    ROW,
    WRITE_MODE,
    WRITES,
    Channel,
    Commands,
)
from ndpsim.spec.standard import ACT, PREAB, PREPB, PRESB, RD, WR

__all__ = ["channel_of", "step_lane"]


@inlined
def channel_of(lanes, owner, lane):
    """The channel of a lane as one of its owners sees it."""
    return Channel(
        lanes.entry[owner, lane],
        lanes.size[owner, lane],
        lanes.bound[owner, lane],
        lanes.ready[lane],
        lanes.rows[lane],
        lanes.recent_acts[lane],
        lanes.value[owner, lane],
        lanes.issued[owner, lane],
        lanes.latencies[owner],
    )


@inlined
def sink_of(lanes, weights, owner, lane):
    """What the controller needs to know of an owner's sink: the credit. Bursts are shelved, not taken."""
    credit, rows = lanes.credit[owner, lane], weights.first_row[lane]
    return Sink(1, 0, 1, 1, credit, credit, rows, rows, rows, credit, lanes.nothing)


@inlined
def note_hunger(setup, weights, tally, lane, credit, clock):
    """The NDP unit is hungry from when half of its FIFO is free until it is full.

    Returns the clock from which half of it is free.
    """
    half_free = lane_credit(setup, weights, lane, (setup.fifo_bursts - 1) // 2)
    if half_free <= clock:
        tally[HUNGRY] = 1
    elif credit > clock:
        tally[HUNGRY] = 0
    return half_free


@inlined
def oldest_arrival(channel, queue):
    """The arrival of the oldest active or queued request of an owner, FAR without any."""
    oldest = FAR
    for waiting in (ACTIVE, queue):
        for slot in range(channel.size[waiting]):
            oldest = min(oldest, channel.entry[waiting, ARRIVED, slot])
    return oldest


@inlined
def first_owner(setup, hungry, ndp_since, host_since, clock):
    """Whose turn is first at a clock, who have waited since these clocks."""
    if setup.arbitration == SLICE:
        owner = NDP if (clock - 1) // setup.slice_clocks % 2 else HOST
    else:
        owner = NDP if setup.arbitration == NDP_FIRST else HOST
    if not hungry:
        return HOST
    ndp_late, host_late = clock - ndp_since > setup.patience, clock - host_since > setup.patience
    if ndp_late == host_late:
        return owner
    return NDP if ndp_late else HOST


@inlined
def late_from(setup, since, clock):
    """The clock from which a wait since a clock is too long; FAR when that has passed."""
    return since + setup.patience + 1 if since + setup.patience >= clock else FAR


@inlined
def next_slice(setup, clock):
    """The first clock of the next slice, FAR where there are none."""
    if setup.arbitration != SLICE:
        return FAR
    return ((clock - 1) // setup.slice_clocks + 1) * setup.slice_clocks + 1


@inlined
def queue_of(owner, host):
    """The queue from which an owner is served, besides his active requests."""
    return WRITES if owner == HOST and host.value[WRITE_MODE] else READS


@inlined
def note_wants(channel, queue, wanted, clock):
    """Mark the banks that the first owner waits for with one of his queues.

    Returns which directions he has open rows for: bit 0 to read from, bit 1 to write to.
    """
    entry, rows = channel.entry, channel.rows
    directions = 0
    for slot in range(channel.size[queue]):
        bank = entry[queue, BANK, slot]
        wanted[bank] = clock
        if rows[bank, OPEN_ROW] == entry[queue, ROW, slot]:
            directions |= 2 if entry[queue, FINAL, slot] == WR else 1
    return directions


@inlined
def in_the_way(entry, wanted, directions, queue, slot, clock):
    """Whether a request of the second owner has to wait for the first, who is marked in `wanted`."""
    asked_for = wanted[entry[queue, BANK, slot]] == clock
    turns = directions & (1 if entry[queue, FINAL, slot] == WR else 2)
    if queue == ACTIVE:
        return not asked_for and turns != 0
    return asked_for or turns != 0


@inlined
def pick(policy, channel, both, credit, queue, wanted, directions, clock):
    """The oldest ready request of a queue that may go: (slot or -1, its command, when one may be ready).

    As `choosing.choose_oldest` and `choosing.choose_row_hit_first`, for one of two owners.
    """
    entry, rows = channel.entry, channel.rows
    if policy.row_hit_first:
        mark_hits(entry, channel.size, rows, queue)
    best, best_command, best_arrived, wake = -1, -1, FAR, FAR
    for slot in range(channel.size[queue]):
        if in_the_way(entry, wanted, directions, queue, slot, clock):
            continue
        known = entry[queue, NOT_BEFORE, slot]
        if known > clock:
            wake = min(wake, known)
            continue
        command, at = prospect(entry, channel.ready, rows, both, credit, queue, slot)
        entry[queue, NOT_BEFORE, slot] = at
        arrived = entry[queue, ARRIVED, slot]
        if command == PREPB and policy.row_hit_first and rows[entry[queue, BANK, slot], HIT_SINCE] <= arrived:
            continue
        if at > clock:
            wake = min(wake, at)
        elif arrived < best_arrived:
            best, best_command, best_arrived = slot, command, arrived
    return best, best_command, wake


@inlined
def sum_owners(ndp, host, both):
    """Requests of both owners, queue by queue."""
    for queue in range(both.shape[0]):
        both[queue] = ndp.size[queue] + host.size[queue]


@inlined
def choose(setup, ndp, host, both, wanted, ndp_credit, hungry, clock):
    """Whose command comes next: (owner, queue, slot or -1, command, when one may become ready).

    Active requests first, then a refresh, then the queues; and of each, the first owner's before the
    other's. A pending refresh keeps the queues of both waiting.
    """
    policy = setup.policy
    refreshing = ndp.size[PRIORITY] > 0
    if not refreshing:
        set_write_mode(policy, both, host.value)
    ndp_since, host_since = oldest_arrival(ndp, READS), oldest_arrival(host, queue_of(HOST, host))
    owner = first_owner(setup, hungry, ndp_since, host_since, clock)
    first, second = (host, ndp) if owner == HOST else (ndp, host)
    credit, other_credit = (0, ndp_credit) if owner == HOST else (ndp_credit, 0)
    # Nothing is marked as wanted on this clock yet: an owner does not stand in his own way.
    slot, command, wake = pick(policy, first, both, credit, ACTIVE, wanted, 0, clock)
    if slot >= 0:
        return owner, ACTIVE, slot, command, wake
    wake = min(wake, min(late_from(setup, ndp_since, clock), late_from(setup, host_since, clock)))
    if not refreshing:
        queue = queue_of(owner, host)
        slot, command, at = pick(policy, first, both, credit, queue, wanted, 0, clock)
        wake = min(wake, at)
        if slot >= 0:
            return owner, queue, slot, command, wake
    directions = note_wants(first, ACTIVE, wanted, clock)
    if not refreshing:
        directions |= note_wants(first, queue_of(owner, host), wanted, clock)
    slot, command, at = pick(policy, second, both, other_credit, ACTIVE, wanted, directions, clock)
    wake = min(wake, at)
    if slot >= 0:
        return 1 - owner, ACTIVE, slot, command, wake
    if refreshing:
        held_until = 0 if host.size[ACTIVE] > 0 else ndp_credit
        slot, command, at = choose_priority(
            setup.tables, ndp.entry, both, ndp.ready, ndp.rows, held_until, clock
        )
        return NDP, PRIORITY, slot, command, min(wake, at)
    queue = queue_of(1 - owner, host)
    slot, command, at = pick(policy, second, both, other_credit, queue, wanted, directions, clock)
    return 1 - owner, queue, slot, command, min(wake, at)


@inlined
def note_turnaround(tally, command):
    """A column command that moves data the other way than the last."""
    if command == RD or command == WR:
        direction = READ if command == RD else WRITE
        if tally[LAST_COLUMN] == 1 - direction:
            tally[TURNAROUNDS] += 1
        tally[LAST_COLUMN] = direction


@inlined
def note_rows_lost(tally, opened_by, owner, queue, command, bank):
    """Who opened a row, and whose row was closed by the other's request."""
    if command == ACT:
        opened_by[bank] = owner
    elif command == PREPB and queue != PRIORITY and opened_by[bank] != owner:
        tally[ROWS_LOST + 1 - owner] += 1


@inlined
def forget(policy, channel, command, bank):
    """What a command of one owner changed for the other's requests."""
    if command == PREAB or command == PRESB or policy.row_cap > 0:
        forget_all(channel.entry, channel.size, channel.bound)
    else:
        forget_bank(channel.entry, channel.size, channel.bound, bank)


@inlined
def carry_out(setup, lanes, weights, buses, transfers, commands, lane, owner, queue, slot, command, clock):
    """Issue the chosen command, and tell the other owner, the FIFO or the bus."""
    mine, other = channel_of(lanes, owner, lane), channel_of(lanes, 1 - owner, lane)
    bank, burst = mine.entry[queue, BANK, slot], mine.entry[queue, INDEX, slot]
    arrived = mine.entry[queue, ARRIVED, slot]
    data_sink = sink_of(lanes, weights, owner, lane)
    trace = Commands(commands.entry[lane], commands.length[lane : lane + 1])
    note_turnaround(lanes.tally[lane], command)
    note_rows_lost(lanes.tally[lane], lanes.opened_by[lane], owner, queue, command, bank)
    issue(setup.tables, setup.policy, mine, data_sink, trace, queue, slot, command, clock)
    if queue == PRIORITY and lanes.credit[NDP, lane, 0] > clock:
        take_back(mine.entry, mine.size, mine.bound, mine.rows)
    forget(setup.policy, other, command, bank)
    if command == RD and owner == HOST:
        note_return(buses, lane, clock + setup.column_latency, arrived)
    elif command == RD:
        shelve(weights, lane, burst, clock + setup.tables.read_latency)
        next_step(weights, lane, mine.value)
        give_to_multipliers(setup, lanes, weights, transfers, lane)


@inlined
def step_lane(setup, lanes, weights, buses, transfers, commands, lane, clock):
    """A step of a lane. False when refresh can never catch up."""
    tables, policy = setup.tables, setup.policy
    ndp, host = channel_of(lanes, NDP, lane), channel_of(lanes, HOST, lane)
    source = lane_source(weights, lane)
    accept(tables, policy, source, ndp.entry, ndp.size, ndp.bound, ndp.value, ndp.latencies, clock)
    if not refresh(tables, policy, ndp.entry, ndp.size, ndp.value, clock):
        return False
    capped = close_capped_rows(tables, policy, ndp, clock) if policy.row_cap > 0 else FAR
    both = lanes.both[lane]
    sum_owners(ndp, host, both)
    credit = lane_credit(setup, weights, lane, 0)
    lanes.credit[NDP, lane, 0] = credit
    tally = lanes.tally[lane]
    half_free = note_hunger(setup, weights, tally, lane, credit, clock)
    owner, queue, slot, command, wake = choose(
        setup, ndp, host, both, lanes.wanted[lane], credit, tally[HUNGRY], clock
    )
    if half_free > clock:
        wake = min(wake, half_free)
    if slot >= 0:
        carry_out(setup, lanes, weights, buses, transfers, commands, lane, owner, queue, slot, command, clock)
    if slot >= 0 or would_accept(policy, source, ndp.entry, ndp.size, ndp.value, clock + 1):
        lanes.due[lane] = clock + 1
    else:
        wake = min(min(wake, capped), min(ndp.value[NEXT_REFRESH], next_slice(setup, clock)))
        lanes.due[lane] = max(clock + 1, wake)
    return True
