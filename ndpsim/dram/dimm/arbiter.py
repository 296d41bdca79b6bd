"""The arbiter of a shared DIMM on the fast controller: looks at a bus only when something can happen there.

See the package for what it decides, and `dram.dimm.readable` for the same, clock by clock.

A controller without a command to issue is asked again at the first clock at which it can have one (its
`wake`). One whose ready command has to wait for the first owner's is asked at every step of its bus: after
any command or new request there, and when the first owner may change.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ndpsim._jit import inlined, kernel, outlined
from ndpsim.dram.dimm.common import (
    DONE,
    LATE,
    RECORD_FULL,
    STUCK,
    admit,
    commands_at,
    data_sink,
    due,
    first_owner,
    host_source,
    is_reached,
    note_refilling,
    note_room,
    record_is_full,
    usual_owner,
)
from ndpsim.dram.dimm.staging import give_to_multipliers, lane_source, next_step, stage
from ndpsim.dram.dimm.state import (
    FIRST,
    HOST,
    JOBS,
    LAST_COLUMN,
    NDP,
    READ,
    REFILLING,
    ROWS_LOST,
    SLICE,
    TURNAROUNDS,
    WRITE,
)
from ndpsim.dram.dimm.transfers import carry_data, carry_job, has_job, next_command_at
from ndpsim.dram.maintenance import next_refresh
from ndpsim.dram.masks.banks import active_bank, take_back
from ndpsim.dram.masks.choose import (
    active_quiet_until,
    candidates,
    choose_maintenance,
    due_lines,
    mode_changes,
    quiet_until,
    quiet_until_of,
    sleep,
    spared,
)
from ndpsim.dram.masks.controller import accept, push_refresh, refresh, would_accept
from ndpsim.dram.masks.issue import issue_active, issue_maintenance, issue_queued
from ndpsim.dram.masks.observe import (
    observe_activate,
    observe_column,
    observe_maintenance,
    observe_precharge,
    release_closed,
)
from ndpsim.dram.masks.rows import set_lane
from ndpsim.dram.masks.slots import next_kind, slot_bank, wait_place
from ndpsim.dram.masks.state import (
    ACT,
    ACTIVE_ARRIVED,
    ACTIVE_BOUND,
    ACTIVE_REQUEST,
    ACTIVE_SIZE,
    AWAKE,
    BANKS,
    BANKS_PER_RANK,
    COMMANDS_OF_KINDS,
    HELD_BANKS,
    HELD_BY_OTHER,
    KINDS,
    OF_BANK,
    OPEN_ROW,
    PENDING,
    PENDING_BANK,
    PENDING_KIND,
    PENDING_SIZE,
    PRE,
    RANK_READY,
    RD,
    SLOT_ARRIVED,
    SLOT_REQUEST,
    SLOT_ROW,
    SLOTS,
    TAIL,
    USED,
    WAITING,
    WAITS,
    WR,
    WRITES,
)
from ndpsim.dram.masks.timing import bank_ready_at
from ndpsim.dram.masks.words import lowest, natural, ranks_of, rotate
from ndpsim.dram.state import FAR, NEXT_REFRESH, REFRESH_FROM, REFRESHES, SERVED, WRITE_MODE

__all__ = ["Asked", "make_asked", "run"]

Ints = NDArray[np.int64]

# Where a command comes from.
NOWHERE, FROM_ACTIVE, FROM_REFRESHES, FROM_QUEUE = range(4)


class Asked(NamedTuple):
    """When controllers are asked for their next command. Those of the lanes come first, then the host's."""

    wake: Ints  # [controller]: the clock before which it has none
    takes: Ints  # [controller]: 1 when it can take its next request
    withheld: Ints  # [controller]: 1 when it has one that waits for the first owner's
    since: Ints  # [controller]: the arrival of its oldest request
    due: Ints  # [bus]: the clock of its next step


class Beside(NamedTuple):
    """The first owners of the ranks of a controller, as far as it is second there."""

    states: Ints  # [controller, word]
    row: int  # in `states`, of the first owner of rank 0,
    stride: int  # and how many further that of the next rank is
    offset: int  # from the bank's number in its rank to that in the first owner's channel
    second: Ints  # [rank]: 1 where the controller is second
    direction: Ints  # [rank]: of the first owner's next column command: 1 reads, 2 writes, 0 there is none


def make_asked(lanes: int, buses: int) -> Asked:
    """All are asked at the first clock."""

    count = lanes + buses
    wake, due = np.ones(count, dtype=np.int64), np.ones(buses, dtype=np.int64)
    takes, withheld = np.ones(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
    return Asked(wake, takes, withheld, np.full(count, FAR, dtype=np.int64), due)


# ---- What a controller waits for


@inlined
def oldest_arrival(shape, state):
    """The arrival of the oldest active or queued request that is served now, FAR without any."""
    oldest = FAR
    for line in range(2 * ranks_of(shape)):
        if state[ACTIVE_SIZE + line] > 0:
            oldest = min(oldest, state[ACTIVE_ARRIVED + active_bank(state, line, 0)])
    queue = state[WRITE_MODE] & 1
    tail, queued = state[TAIL + queue], state[USED + queue]
    if queued != 0:
        slot = lowest(rotate(queued, tail)) + tail & SLOTS - 1
        oldest = min(oldest, state[SLOT_ARRIVED + queue * SLOTS + slot])
    return oldest


@inlined
def next_column(shape, state):
    """The oldest active or queued request whose row is open: (its rank, -1 if there is none; 1 if it reads,
    2 if it writes).
    """
    oldest, rank, direction = FAR, -1, 0
    for line in range(2 * ranks_of(shape)):
        if state[ACTIVE_SIZE + line] > 0:
            arrived = state[ACTIVE_ARRIVED + active_bank(state, line, 0)]
            if arrived < oldest:
                oldest, rank, direction = arrived, line // 2, 1 + line % 2
    if state[PENDING_SIZE] > 0:
        return rank, direction
    queue, hits = state[WRITE_MODE] & 1, 0
    for number in range(ranks_of(shape)):
        hits |= state[WAITING + wait_place(queue, RD + queue, number)]
    if hits != 0:
        tail = state[TAIL + queue]
        slot = lowest(rotate(hits, tail)) + tail & SLOTS - 1
        if state[SLOT_ARRIVED + queue * SLOTS + slot] < oldest:
            rank, direction = slot_bank(state, queue, slot) // BANKS_PER_RANK, 1 + queue
    return rank, direction


@inlined
def is_wanted(first, bank):
    """Whether the first owner's controller waits for a bank."""
    rank, bit = bank // BANKS_PER_RANK, 1 << bank % BANKS_PER_RANK
    if first[HELD_BANKS + rank] & ~first[HELD_BY_OTHER + rank] & bit != 0:
        return True
    queue = first[WRITE_MODE] & 1
    return first[PENDING_SIZE] == 0 and first[OF_BANK + queue * BANKS + bank] != 0


@inlined
def in_the_way(beside, queue, is_active, bank):
    """Whether a request has to wait for those of the first owner of its rank."""
    rank = bank // BANKS_PER_RANK
    if not beside.second[rank]:
        return False
    turns = beside.direction[rank] & (1 if queue == WRITES else 2) != 0
    first = beside.states[beside.row + rank * beside.stride]
    wanted = is_wanted(first, bank % BANKS_PER_RANK + beside.offset)
    if is_active:
        return turns and not wanted
    return turns or wanted


# ---- The next command of a controller


@inlined
def pick_active(shape, state, credit, beside, clock):
    """The oldest ready active request that is in nobody's way: (its line or -1, its place in the line, 1 if
    one has to wait).
    """
    best, best_place, best_arrived, withheld = -1, 0, FAR, 0
    due_now = due_lines(shape, state, credit, clock)
    while due_now != 0:
        bit = natural(lowest(due_now))
        due_now &= due_now - 1
        line, kind = bit // WAITS * 2 + bit % WAITS - RD, bit % WAITS
        first = FAR
        for place in range(state[ACTIVE_SIZE + line]):
            bank = active_bank(state, line, place)
            ready_at = bank_ready_at(state, kind, bank)
            first = min(first, ready_at)
            if ready_at > clock:
                continue
            if in_the_way(beside, line & 1, True, bank):
                withheld = 1
                continue
            arrived = state[ACTIVE_ARRIVED + bank]
            if arrived < best_arrived:
                best, best_place, best_arrived = line, place, arrived
            break
        if first > clock:
            set_lane(state, ACTIVE_BOUND + line // 2 * WAITS, kind, first)
    return best, best_place, withheld


@inlined
def pick_queued(policy, shape, state, queue, credit, beside, clock):
    """The oldest ready request of a queue that is in nobody's way: (its slot or -1, the kind of its next
    command, the mask of those that have to wait).
    """
    queue = natural(queue)
    tail, awake = state[TAIL + queue], candidates(shape, state, queue, credit, clock)
    if policy.row_hit_first:
        awake &= ~spared(shape, state, queue)
    awake, withheld = rotate(awake, tail), 0
    while awake != 0:
        slot = natural(lowest(awake) + tail & SLOTS - 1)
        bank = natural(slot_bank(state, queue, slot))
        kind = natural(next_kind(state, queue, bank, state[SLOT_ROW + queue * SLOTS + slot]))
        ready_at = bank_ready_at(state, kind, bank)
        if ready_at > clock:
            awake &= ~rotate(sleep(state, queue, kind, bank, ready_at), tail)
        elif in_the_way(beside, queue, False, bank):
            same = state[OF_BANK + queue * BANKS + bank]
            withheld |= same
            awake &= ~rotate(same, tail)
        else:
            return slot, kind, withheld
    return -1, ACT, withheld


@inlined
def choose(policy, shape, state, credit, other_credit, beside, clock):
    """The next command, out of the first owner's way: (where it comes from; its line and place, or slot and
    kind; the clock before which there is no other; 1 if one has to wait).
    """
    line, place, withheld = pick_active(shape, state, credit, beside, clock)
    if line >= 0:
        return FROM_ACTIVE, line, place, clock + 1, withheld
    quiet = clock + 1 if withheld else active_quiet_until(shape, state, credit)
    if state[PENDING_SIZE] > 0:
        kind, at = choose_maintenance(shape, state, credit, other_credit, clock)
        if kind >= 0:
            return FROM_REFRESHES, 0, kind, clock + 1, withheld
        return NOWHERE, 0, 0, min(at, quiet), withheld
    if mode_changes(policy, state):
        state[WRITE_MODE] ^= 1
    queue = state[WRITE_MODE] & 1
    slot, kind, waiting = pick_queued(policy, shape, state, queue, credit, beside, clock)
    if slot >= 0:
        return FROM_QUEUE, slot, kind, clock + 1, withheld
    if withheld:
        return NOWHERE, 0, 0, quiet, withheld
    quiet = quiet_until_of(shape, state, queue, credit, state[AWAKE + queue] & ~waiting)
    return NOWHERE, 0, 0, quiet, 1 if waiting != 0 else 0


@inlined
def bank_of_command(state, origin, first, second):
    """The bank that a chosen command goes to; for a refresh, the first of its banks."""
    if origin == FROM_ACTIVE:
        return active_bank(state, first, second)
    if origin == FROM_REFRESHES:
        return state[PENDING_BANK] & (BANKS - 1)
    return slot_bank(state, state[WRITE_MODE] & 1, first)


@inlined
def kind_of_command(origin, first, second):
    """The kind of a chosen command."""
    return RD + first % 2 if origin == FROM_ACTIVE else second


@inlined
def request_of_command(state, origin, bank, first):
    """The request that a chosen column command or ACT is for."""
    if origin == FROM_ACTIVE:
        return state[ACTIVE_REQUEST + bank]
    return state[SLOT_REQUEST + (state[WRITE_MODE] & 1) * SLOTS + first]


@inlined
def row_of_command(state, origin, bank, first):
    """The row that a chosen ACT opens, or a column command uses."""
    if origin == FROM_QUEUE:
        return state[SLOT_ROW + (state[WRITE_MODE] & 1) * SLOTS + first]
    return state[OPEN_ROW + bank]


@inlined
def issue(policy, shape, state, latencies, source, sink, commands, origin, first, second, clock):
    """Issue a chosen command."""
    if origin == FROM_ACTIVE:
        issue_active(shape, state, latencies, source, sink, commands, first, second, clock)
    elif origin == FROM_REFRESHES:
        issue_maintenance(shape, state, source, sink, commands, second, clock)
    else:
        queue = state[WRITE_MODE] & 1
        issue_queued(policy, shape, state, latencies, source, sink, commands, queue, first, second, clock)


@inlined
def observe(shape, state, kind, bank, row, of_active, clock):
    """A controller learns of a command of the other. Returns whether it may have changed what can issue."""
    if kind == RD or kind == WR:
        observe_column(state, kind, bank, of_active, clock)
        return of_active
    if kind == ACT:
        observe_activate(shape, state, bank, row, clock)
    elif kind == PRE:
        observe_precharge(state, bank, clock)
    else:
        observe_maintenance(shape, state, kind, bank, clock)
    return True


@inlined
def note_command(tally, opened_by, owner, origin, kind, bank):
    """Count turns of a lane's data bus, and rows that one owner opened and the other's request closed."""
    if kind == RD or kind == WR:
        direction = READ if kind == RD else WRITE
        if tally[LAST_COLUMN] == 1 - direction:
            tally[TURNAROUNDS] += 1
        tally[LAST_COLUMN] = direction
    elif kind == ACT:
        opened_by[bank] = owner
    elif kind == PRE and origin == FROM_QUEUE and opened_by[bank] != owner:
        tally[ROWS_LOST + 1 - owner] += 1


@inlined
def next_asked(policy, shape, state, credit, clock):
    """The clock at which a controller is asked again that has issued a command at `clock`."""
    if state[PENDING_SIZE] > 0 or mode_changes(policy, state):
        return clock + 1
    return quiet_until(shape, state, state[WRITE_MODE] & 1, credit)


# ---- A lane, and the host


@inlined
def step_lane(setup, shapes, states, weights, transfers, claims, asked, commands, latencies, lane, clock):
    """A lane issues its next command, if it has one. Returns whether it has."""
    policy, shape, state = setup.policy, shapes[0], states[0][lane]
    count = states[1].shape[0]
    rank, bus = lane // count, lane % count
    host = states[1][bus]
    credit = claims.credit[lane]
    beside = Beside(
        states[1], bus, 0, rank * BANKS_PER_RANK, claims.lane_second[lane], claims.lane_direction[lane]
    )
    origin, first, second, wake, withheld = choose(policy, shape, state, credit[0], 0, beside, clock)
    asked.withheld[lane] = withheld
    asked.wake[lane] = wake
    if origin == NOWHERE:
        return False
    kind, bank = kind_of_command(origin, first, second), bank_of_command(state, origin, first, second)
    row, burst = row_of_command(state, origin, bank, first), request_of_command(state, origin, bank, first)
    note_command(claims.tally[lane], claims.opened_by[lane], NDP, origin, kind, bank)
    source, sink = lane_source(weights, lane), data_sink(claims, credit)
    trace = commands_at(commands, lane)
    issue(policy, shape, state, latencies, source, sink, trace, origin, first, second, clock)
    if origin == FROM_REFRESHES and credit[0] > clock:
        take_back(shape, state, source, clock)
    changes = observe(shapes[1], host, kind, rank * BANKS_PER_RANK + bank, row, origin == FROM_ACTIVE, clock)
    if kind == RD:
        stage(weights, lane, burst, clock + shape.read_latency)
        next_step(weights, lane, state)
        give_to_multipliers(setup, weights, transfers, lane)
        note_room(setup, weights, claims, lane)
        note_refilling(claims, lane, clock + 1)
    if changes or host[PENDING_SIZE] > 0:
        number = states[0].shape[0] + bus
        asked.wake[number] = min(asked.wake[number], clock + 1)
    asked.since[lane] = oldest_arrival(shape, state)
    asked.wake[lane] = next_asked(policy, shape, state, credit[0], clock)
    asked.takes[lane] = would_accept(policy, state, source, clock + 1)
    return True


@inlined
def step_host(setup, shapes, states, weights, buses, traffic, claims, asked, commands, latencies, bus, clock):
    """The host's controller issues its next command, if it has one. Returns whether it has."""
    policy, shape, state = setup.policy, shapes[1], states[1][bus]
    lanes, count = states[0].shape[0], states[1].shape[0]
    other_credit = 0
    if state[PENDING_SIZE] > 0:
        lane = (state[PENDING_BANK] & (BANKS - 1)) // BANKS_PER_RANK * count + bus
        other_credit = claims.credit[lane, 0] if lane < lanes else 0
    beside = Beside(states[0], bus, count, 0, claims.host_second[bus], claims.host_direction[bus])
    origin, first, second, wake, withheld = choose(policy, shape, state, 0, other_credit, beside, clock)
    number = lanes + bus
    asked.withheld[number] = withheld
    asked.wake[number] = wake
    if origin == NOWHERE:
        asked.since[number] = oldest_arrival(shape, state)  # of another queue, perhaps
        return False
    kind, bank = kind_of_command(origin, first, second), bank_of_command(state, origin, first, second)
    row, rank = row_of_command(state, origin, bank, first), bank // BANKS_PER_RANK
    source, sink = host_source(traffic, bus), data_sink(claims, claims.no_credit)
    trace = commands_at(commands, bus)
    issue(policy, shape, state, latencies[bus], source, sink, trace, origin, first, second, clock)
    if kind == RD or kind == WR:
        carry_data(setup, buses, bus, READ if kind == RD else WRITE, rank, clock)
    lane = rank * count + bus
    if lane < lanes:
        other, lane_bank = states[0][lane], bank % BANKS_PER_RANK
        note_command(claims.tally[lane], claims.opened_by[lane], HOST, origin, kind, lane_bank)
        claims.host_issued[lane, COMMANDS_OF_KINDS[kind]] += 1
        if observe(shapes[0], other, kind, lane_bank, row, origin == FROM_ACTIVE, clock):
            asked.wake[lane] = min(asked.wake[lane], clock + 1)
        if origin == FROM_REFRESHES:
            release_closed(state, rank)
            if claims.credit[lane, 0] > clock:
                take_back(shapes[0], other, lane_source(weights, lane), clock)
    asked.since[number] = oldest_arrival(shape, state)
    asked.wake[number] = next_asked(policy, shape, state, 0, clock)
    asked.takes[number] = would_accept(policy, state, source, clock + 1)
    return True


# ---- A bus and the lanes behind it


@inlined
def carry_jobs(setup, shape, state, buses, transfers, bus, clock):
    """Activations and results take the bus, and the host's commands wait until their data can follow."""
    while has_job(setup, buses, transfers, bus, clock):
        carry_job(setup, buses, transfers, bus)
        reads_at = next_command_at(setup, buses, bus, READ)
        writes_at = next_command_at(setup, buses, bus, WRITE)
        for rank in range(ranks_of(shape)):
            ready = RANK_READY + natural(rank) * KINDS
            set_lane(state, ready, RD, max(state[ready + RD], reads_at))
            set_lane(state, ready, WR, max(state[ready + WR], writes_at))


@inlined
def take_request(policy, shape, state, latencies, source, asked, number, clock):
    """A controller takes its next request, if it is due and has a slot. Returns whether it has."""
    if not would_accept(policy, state, source, clock):
        asked.takes[number] = 0
        return False
    asked.wake[number] = min(asked.wake[number], accept(state, latencies, source, clock))
    if mode_changes(policy, state):
        asked.wake[number] = min(asked.wake[number], clock)
    if asked.since[number] == FAR:
        asked.since[number] = oldest_arrival(shape, state)
    asked.takes[number] = would_accept(policy, state, source, clock + 1)
    return True


@inlined
def refresh_lanes(shape, host, lane_states, asked, before, bus, buses):
    """The refreshes that the host's controller has just asked of a rank are its lane's as well."""
    for place in range(before, host[PENDING_SIZE]):
        first = host[PENDING_BANK + (place & (PENDING - 1))]
        lane = first // BANKS_PER_RANK * buses + bus
        if lane < lane_states.shape[0]:
            state = lane_states[lane]
            if state[PENDING_SIZE] == 0:
                state[REFRESH_FROM] = host[REFRESH_FROM]
            push_refresh(state, host[PENDING_KIND + (place & (PENDING - 1))], first % BANKS_PER_RANK)
            asked.wake[lane] = 0


@inlined
def is_refresh_due(states, has_host, bus, clock):
    """Whether a refresh falls due on a rank of a bus."""
    if has_host:
        return clock >= states[1][bus, NEXT_REFRESH]
    for lane in range(bus, states[0].shape[0], states[1].shape[0]):
        if clock >= states[0][lane, NEXT_REFRESH]:
            return True
    return False


@outlined
def ask_for_refresh(setup, shapes, states, asked, has_host, bus, clock):
    """The refreshes that fall due on the ranks of a bus. False when they can never catch up.

    With the host away each lane keeps its own time; else they are the host's, and its lanes' as well.
    """
    lanes, count = states[0].shape[0], states[1].shape[0]
    host = states[1][bus]
    if has_host:
        before = host[PENDING_SIZE]
        asked.wake[lanes + bus] = 0
        if not refresh(shapes[1], setup.policy, host, clock):
            return False
        refresh_lanes(shapes[1], host, states[0], asked, before, bus, count)
        return True
    for lane in range(bus, lanes, count):
        if clock >= states[0][lane, NEXT_REFRESH]:
            asked.wake[lane] = 0
            if not refresh(shapes[0], setup.policy, states[0][lane], clock):
                return False
    return True


@inlined
def note_turns(setup, claims, asked, has_host, bus, buses, clock):
    """Whose turn comes first on each lane of a bus. Returns the first clock at which that may change."""
    lanes = claims.tally.shape[0]
    host_since, changes = asked.since[lanes + bus] if has_host else FAR, FAR
    usual = usual_owner(setup, clock)
    if setup.arbitration == SLICE:
        changes = ((clock - 1) // setup.slice_clocks + 1) * setup.slice_clocks + 1
    starves = host_since + setup.starvation_clocks + 1
    if starves > clock:
        changes = min(changes, starves)
    for lane in range(bus, lanes, buses):
        note_refilling(claims, lane, clock)
        tally, since = claims.tally[lane], asked.since[lane]
        first = first_owner(setup, usual, tally[REFILLING], since, host_since, clock)
        tally[FIRST] = first if has_host else NDP
        starves = since + setup.starvation_clocks + 1
        if claims.half_free[lane] > clock:
            changes = min(changes, claims.half_free[lane])
        if starves > clock:
            changes = min(changes, starves)
    return changes


@inlined
def keep_off_lanes(shape, lane_states, claims, bus, buses):
    """Where the host is second, and which way the lanes' next data goes there."""
    for lane in range(bus, lane_states.shape[0], buses):
        rank = lane // buses
        claims.host_second[bus, rank] = claims.tally[lane, FIRST] == NDP
        claims.host_direction[bus, rank] = 0
        if claims.tally[lane, FIRST] == NDP:
            claims.host_direction[bus, rank] = next_column(shape, lane_states[lane])[1]


@inlined
def keep_off_host(shape, host, claims, lane, rank):
    """Whether a lane is second, and which way the host's next data goes there."""
    claims.lane_second[lane, 0] = claims.lane_direction[lane, 0] = 0
    if claims.tally[lane, FIRST] == HOST:
        host_rank, host_direction = next_column(shape, host)
        claims.lane_second[lane, 0] = 1
        claims.lane_direction[lane, 0] = host_direction if host_rank == rank else 0


@inlined
def is_asked(asked, number, clock):
    """Whether a controller may have a command to issue."""
    return asked.wake[number] <= clock or asked.withheld[number] == 1


@inlined
def has_reads(weights, state, lane):
    """Whether a lane has weights to read, now or in a later step."""
    return state[SERVED] < weights.ends[lane, weights.ends.shape[1] - 1]


@inlined
def step_lanes(
    setup, shapes, states, weights, transfers, claims, asked, commands, latencies, has_host, bus, owner, clock
):
    """The lanes on which `owner` is first issue. One that has read all leaves its rank to the host.

    Returns whether there was a command.
    """
    issued, buses = False, states[1].shape[0]
    for lane in range(bus, states[0].shape[0], buses):
        if claims.tally[lane, FIRST] != owner or not is_asked(asked, lane, clock):
            continue
        if has_host and not has_reads(weights, states[0][lane], lane):
            asked.wake[lane], asked.withheld[lane] = FAR, 0
            continue
        keep_off_host(shapes[1], states[1][bus], claims, lane, lane // buses)
        issued |= step_lane(
            setup, shapes, states, weights, transfers, claims, asked, commands, latencies, lane, clock
        )
    return issued


@inlined
def lanes_due(states, asked, has_host, bus, clock):
    """The clock of the next step that the lanes of a bus need, and whether the command of one has to wait."""
    at, withheld = FAR, 0
    for lane in range(bus, states[0].shape[0], states[1].shape[0]):
        at = min(at, clock + 1 if asked.takes[lane] else asked.wake[lane])
        withheld |= asked.withheld[lane]
        if not has_host:
            at = min(at, states[0][lane, NEXT_REFRESH])
    return at, withheld


@inlined
def host_due(states, traffic, asked, bus, clock):
    """The clock of the next step that the host's controller of a bus needs."""
    number, admitted = states[0].shape[0] + bus, traffic.admitted[bus, 0]
    if asked.takes[number]:
        return clock + 1
    at = min(asked.wake[number], states[1][bus, NEXT_REFRESH])
    if admitted < traffic.offered[bus]:
        at = min(at, due(traffic, bus, admitted))
    return at


@inlined
def step_bus(
    setup,
    shapes,
    states,
    latencies,
    weights,
    buses,
    transfers,
    traffic,
    claims,
    asked,
    lane_commands,
    host_commands,
    bus,
    clock,
):
    """A step of a bus and of the lanes behind it. False when refresh can never catch up."""
    lanes, count = states[0].shape[0], states[1].shape[0]
    policy, host, has_host, happened = setup.policy, states[1][bus], traffic.offered[bus] > 0, False
    carry_jobs(setup, shapes[1], host, buses, transfers, bus, clock)
    if has_host:
        if traffic.admitted[bus, 0] < traffic.offered[bus]:
            admit(traffic, bus, clock)
            asked.takes[lanes + bus] = 1
        if asked.takes[lanes + bus]:
            source = host_source(traffic, bus)
            happened |= take_request(
                policy, shapes[1], host, latencies[1][bus], source, asked, lanes + bus, clock
            )
    for lane in range(bus, lanes, count):
        if asked.takes[lane]:
            source = lane_source(weights, lane)
            happened |= take_request(
                policy, shapes[0], states[0][lane], latencies[0], source, asked, lane, clock
            )
    refreshed = not is_refresh_due(states, has_host, bus, clock) or ask_for_refresh(
        setup, shapes, states, asked, has_host, bus, clock
    )
    if not refreshed:
        return False
    changes = note_turns(setup, claims, asked, has_host, bus, count, clock)
    # The lanes that are first, the host, and the lanes on which it is first.
    for owner in (NDP, HOST):
        if owner == HOST and has_host and is_asked(asked, lanes + bus, clock):
            keep_off_lanes(shapes[0], states[0], claims, bus, count)
            happened |= step_host(
                setup,
                shapes,
                states,
                weights,
                buses,
                traffic,
                claims,
                asked,
                host_commands,
                latencies[1],
                bus,
                clock,
            )
        happened |= step_lanes(
            setup,
            shapes,
            states,
            weights,
            transfers,
            claims,
            asked,
            lane_commands,
            latencies[0],
            has_host,
            bus,
            owner,
            clock,
        )
    at, withheld = FAR, 0
    if has_host:
        at, withheld = host_due(states, traffic, asked, bus, clock), asked.withheld[lanes + bus]
    of_lanes, held_back = lanes_due(states, asked, has_host, bus, clock)
    if withheld | held_back:
        at = min(at, clock + 1 if happened else changes)
    asked.due[bus] = max(min(at, of_lanes), clock + 1)
    return True


@inlined
def next_clock(setup, buses, transfers, asked):
    """The clock of the next step of any bus."""
    at = FAR
    for bus in range(buses.at.shape[0]):
        at = min(at, asked.due[bus])
        job = buses.at[bus]
        if job < transfers.value[JOBS]:
            at = min(at, (transfers.ready[job] + setup.dram_ticks - 1) // setup.dram_ticks)
    return at


@kernel
def run(
    setup,
    shapes,
    states,
    latencies,
    weights,
    buses,
    transfers,
    traffic,
    claims,
    asked,
    lane_commands,
    host_commands,
    goal,
    until_clock,
):
    """Run as `dram.dimm.readable.run` does; returns and can be taken up again as that.

    shapes, states, latencies: of the lanes, and of the host's controllers.
    """
    clock, refresh_kind = claims.clock[0], setup.policy.refresh
    for lane in range(states[0].shape[0]):
        state = states[0][lane]
        state[NEXT_REFRESH] = next_refresh(shapes[0], refresh_kind, state[REFRESHES])
        next_step(weights, lane, state)
        give_to_multipliers(setup, weights, transfers, lane)
        note_room(setup, weights, claims, lane)
    for bus in range(states[1].shape[0]):
        state = states[1][bus]
        state[NEXT_REFRESH] = next_refresh(shapes[1], refresh_kind, state[REFRESHES])
        traffic.admitted[bus, 0] = min(traffic.admitted[bus, 0], traffic.offered[bus])
    asked.wake[:], asked.takes[:], asked.due[:] = clock, 1, clock
    outcome = DONE
    while not is_reached(goal, weights, buses, transfers, states[1], traffic):
        clock = max(clock, next_clock(setup, buses, transfers, asked))
        if clock >= until_clock:
            clock, outcome = until_clock, LATE
            break
        if record_is_full(lane_commands) or record_is_full(host_commands):
            outcome = RECORD_FULL
            break
        for bus in range(states[1].shape[0]):
            job = has_job(setup, buses, transfers, bus, clock)
            if (job or asked.due[bus] <= clock) and not step_bus(
                setup,
                shapes,
                states,
                latencies,
                weights,
                buses,
                transfers,
                traffic,
                claims,
                asked,
                lane_commands,
                host_commands,
                bus,
                clock,
            ):
                outcome = STUCK
        if outcome == STUCK:
            break
        clock += 1
    claims.clock[0] = clock
    return outcome
