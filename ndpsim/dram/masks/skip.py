"""Exact fast-forward through a stream of row hits.

While nothing but hits of reads wait and every RD takes the oldest, the times that decide the next RD are
few: those of RD at every rank and group, and those of the sink. When they stand, seen from the clock,
as they stood `span` reads ago, and the requests to come are on the same ranks and groups as those of
`span` reads ago, then all goes on as it went, shifted by the clocks that have passed. So the controller
may be set to where it will be many spans later. Nothing is assumed of what is not periodic: the age of
each queued request is accounted for, and every bank gets the distances of its last read.

The sink need not repeat if it keeps up: if it held none of the last `span` reads back, and at their pace
a slot of the FIFO and a server will always be free in time, then it never holds a read back, and each
burst is served on its arrival.
"""

from __future__ import annotations

from ndpsim._jit import inlined, outlined
from ndpsim.dram import sink as sinks
from ndpsim.dram.masks.slots import bank_of, slot_bank, wait_place
from ndpsim.dram.masks.state import (
    ANCHOR,
    BANK_READY,
    BANKS,
    BANKS_PER_GROUP,
    BANKS_PER_RANK,
    COUNTED,
    FINISHED_AT,
    GROUP_READY,
    GROUPS_PER_RANK,
    HISTORY,
    IN_ORDER,
    ISSUED,
    KINDS,
    LAST_HELD,
    OF_BANK,
    PREVIOUS,
    RANK_READY,
    RD,
    READ_AT,
    READ_BANK,
    READS,
    SAME_BANK,
    SIZE,
    SKIPPED,
    SLOT_ARRIVED,
    SLOT_BANK,
    SLOT_REQUEST,
    SLOT_ROW,
    SLOTS,
    TAIL,
    USED,
    VIEW_CLOCK,
    VIEW_CREDIT,
    VIEW_FREE,
    VIEW_GROUPS,
    VIEW_IDLE,
    VIEW_RANKS,
    VIEW_READS,
    VIEW_SINK,
    WAITING,
)
from ndpsim.dram.masks.timing import carry, note_bank
from ndpsim.dram.masks.words import lowest, rotate
from ndpsim.dram.sink import FINISHED, LAST_START, RELEASE, SERVER, SERVICE, SLOT, note_rows
from ndpsim.dram.state import (
    DATA_END,
    IDLE_CREDIT,
    IDLE_REFRESH,
    IDLE_ROW,
    LATENCIES,
    NEXT_REFRESH,
    PLACE,
    READ_LATENCY,
    READ_QUEUE,
    READS_SERVED,
    ROW_HITS,
    ROW_SHIFT,
    SERVED,
    TAKEN,
)

__all__ = ["note_hit", "skip"]

_MASK = HISTORY - 1
_ANCHORED = 64  # reads for which an anchor stays, at least


# ---- What repeats


@inlined
def capture(shape, state, view, clock):
    """Remember all that decides the next RD, as it looks from the clock."""
    state[view + VIEW_READS] = state[IN_ORDER]
    state[view + VIEW_CLOCK] = clock
    state[view + VIEW_IDLE] = state[IDLE_REFRESH]
    state[view + VIEW_IDLE + 1] = state[IDLE_CREDIT]
    state[view + VIEW_IDLE + 2] = state[IDLE_ROW]
    for rank in range(shape.ranks):
        state[view + VIEW_RANKS + rank] = max(state[RANK_READY + rank * KINDS + RD] - clock, 0)
        for group in range(rank * GROUPS_PER_RANK, rank * GROUPS_PER_RANK + shape.bankgroups):
            state[view + VIEW_GROUPS + group] = max(state[GROUP_READY + group * KINDS + RD] - clock, 0)


@inlined
def memory_repeats(shape, state, view, clock):
    """Whether the times of RD look as they did."""
    differs = 0
    for rank in range(shape.ranks):
        at = max(state[RANK_READY + rank * KINDS + RD] - clock, 0)
        differs |= at ^ state[view + VIEW_RANKS + rank]
        for group in range(rank * GROUPS_PER_RANK, rank * GROUPS_PER_RANK + shape.bankgroups):
            at = max(state[GROUP_READY + group * KINDS + RD] - clock, 0)
            differs |= at ^ state[view + VIEW_GROUPS + group]
    return differs == 0


@inlined
def after(place, number, size):
    """A place so many further on in a ring."""
    place += number
    return place - size if place >= size else place


@inlined
def next_read(place, over, span, clocks):
    """The read after one: (its place in the span that repeats, its clocks over the read there)."""
    place += 1
    return (0, over + clocks) if place == span else (place, over)


@outlined
def capture_sink(state, sink, view, clock):
    """Remember the sink, as it looks from the clock."""
    value, now = sink.value, clock * sink.dram_ticks
    state[view + VIEW_SINK] = max(value[LAST_START] - now, 0)
    state[view + VIEW_SINK + 1] = max(value[RELEASE] - now, 0)
    for number in range(sink.depth):
        credit = sink.credit[after(value[SLOT], number, sink.depth)]
        state[view + VIEW_CREDIT + number] = max(credit - clock, 0)
    for number in range(sink.servers):
        free = sink.free[after(value[SERVER], number, sink.servers)]
        state[view + VIEW_FREE + number] = max(free - now, 0)


@outlined
def sink_repeats(state, sink, view, clock):
    """Whether the sink looks as it did: edges of its clock, bursts that it holds, servers at work."""
    value, now = sink.value, clock * sink.dram_ticks
    differs = (now - state[view + VIEW_CLOCK] * sink.dram_ticks) % sink.unit_ticks
    differs |= state[view + VIEW_SINK] ^ max(value[LAST_START] - now, 0)
    differs |= state[view + VIEW_SINK + 1] ^ max(value[RELEASE] - now, 0)
    if differs != 0:
        return False
    for number in range(sink.depth):
        credit = sink.credit[after(value[SLOT], number, sink.depth)]
        differs |= state[view + VIEW_CREDIT + number] ^ max(credit - clock, 0)
    for number in range(sink.servers):
        free = sink.free[after(value[SERVER], number, sink.servers)]
        differs |= state[view + VIEW_FREE + number] ^ max(free - now, 0)
    return differs == 0


@inlined
def least_time(state, span, clocks, reads):
    """The least clocks in which so many reads follow a read, when the last `span` repeat."""
    first = state[IN_ORDER] - span
    laps = reads // span
    rest, least = reads - laps * span, laps * clocks + clocks
    for place in range(span):
        end, over = place + rest, laps * clocks
        if end >= span:
            end, over = end - span, over + clocks
        time = state[READ_AT + (first + end & _MASK)] + over - state[READ_AT + (first + place & _MASK)]
        least = min(least, time)
    return least


@inlined
def sink_keeps_up(shape, state, sink, span, clocks):
    """Whether the sink will never hold a read back, as long as the last `span` reads repeat.

    A burst starts at most a clock of the unit after its arrival. So its slot must not be needed again,
    nor its server, sooner than that, and those that are taken now must be free in time.
    """
    value, ticks, late = sink.value, sink.dram_ticks, sink.unit_ticks - 1
    if state[LAST_HELD] > state[IN_ORDER] - span:
        return False
    arrival = shape.read_latency * ticks
    if least_time(state, span, clocks, sink.depth) * ticks < arrival + late:
        return False
    if least_time(state, span, clocks, sink.servers) * ticks < value[SERVICE] + late:
        return False
    first, place, over = state[IN_ORDER] - span, 0, clocks
    for number in range(sink.servers):
        at = state[READ_AT + (first + place & _MASK)] + over
        if sink.free[after(value[SERVER], number, sink.servers)] > at * ticks + arrival:
            return False
        place, over = next_read(place, over, span, clocks)
    soonest = state[READ_AT + (first & _MASK)] + clocks
    for number in range(sink.depth - 1, -1, -1):
        credit = sink.credit[after(value[SLOT], number, sink.depth)]
        if credit <= soonest:
            break  # and so are those before it
        if credit > soonest + number // span * clocks:
            return False
    return max(value[LAST_START] - late, value[RELEASE]) <= soonest * ticks + arrival


@inlined
def alike(source, start, span, most):
    """How many requests, from one on and at most so many, have the place of those `span` before them."""
    count, block = 0, 32
    while count + block <= most:
        differs = 0
        for number in range(start + count, start + count + block):
            differs |= source.place[number] ^ source.place[number - span]
        if differs != 0:
            break
        count += block
    while count < most and source.place[start + count] == source.place[start + count - span]:
        count += 1
    return count


@inlined
def rotation_goes_on(state, source):
    """Whether the queued requests go on with the ranks and groups of the last reads, and with one another,
    and the youngest of them are the last that were taken from the source.
    """
    period, tail, number = source.period, state[TAIL + READS], state[IN_ORDER]
    queued = rotate(state[USED + READS], tail)
    differs, last = 0, 0
    while queued != 0:
        slot = (lowest(queued) + tail) & (SLOTS - 1)
        queued &= queued - 1
        bank = slot_bank(state, READS, slot)
        differs |= (bank ^ state[READ_BANK + (number - period & _MASK)]) // BANKS_PER_GROUP
        state[READ_BANK + (number & _MASK)] = bank
        last = state[PLACE] - 1 - state[SLOT_REQUEST + READS * SLOTS + slot]
        number += 1
        if number - state[IN_ORDER] == state[SIZE + READS] - period + 1 and last != period - 1:
            return False
    return differs == 0 and last == 0


@inlined
def laps_ahead(policy, state, source, sink, span, clocks, clock, until_served, until_taken):
    """How many more spans of reads will go as the last did; 0 when queue and sink would not turn over."""
    request, period = state[PLACE], source.period
    if state[SIZE + READS] + 1 != policy.read_slots or policy.read_slots <= period or request < period:
        return 0
    laps = (state[NEXT_REFRESH] - 1 - clock) // clocks
    most = min(laps * span, source.place.shape[0] - request)
    most = min(most, min(until_served - state[SERVED], until_taken - 1 - state[TAKEN]))
    most = min(most, source.admitted[0] - state[TAKEN])
    least = max(policy.read_slots, max(sink.depth, sink.servers))
    if most < least or span > HISTORY // 2 or not rotation_goes_on(state, source):
        return 0
    laps = alike(source, request, period, most) // span
    return laps if laps * span >= least else 0


# ---- What follows


@inlined
def skip_queued(shape, state, latencies, span, clocks):
    """The queued requests are read, each after its own wait."""
    first, place, over, tail = state[IN_ORDER] - span, 0, clocks, state[TAIL + READS]
    queued = rotate(state[USED + READS], tail)
    while queued != 0:
        slot = (lowest(queued) + tail) & (SLOTS - 1)
        queued &= queued - 1
        bank = slot_bank(state, READS, slot)
        at = state[READ_AT + (first + place & _MASK)] + over
        wait = at - state[SLOT_ARRIVED + READS * SLOTS + slot]
        state[READ_QUEUE] += wait
        state[READ_LATENCY] += wait + shape.read_latency
        latencies[min(wait + shape.read_latency, LATENCIES - 1)] += 1
        state[ROW_HITS] += 1 - (state[COUNTED + READS] >> slot & 1)
        carry(state, BANK_READY + bank * KINDS, SAME_BANK + RD * KINDS, at)
        state[OF_BANK + READS * BANKS + bank] = 0
        place, over = next_read(place, over, span, clocks)


@inlined
def skip_arrivals(shape, state, latencies, span, clocks, reads):
    """The requests that arrive and are read: each waits from the read that frees its slot to its own.

    reads: how many are skipped, those queued now among them.
    """
    size, first = state[SIZE + READS], state[IN_ORDER] - span
    arriving = reads - size
    state[ROW_HITS] += arriving
    often, rest = arriving // span, arriving % span
    for number in range(min(arriving, span)):
        read, freed = size + number + span, number + span - 1
        at = state[READ_AT + (first + read % span & _MASK)] + read // span * clocks
        arrived = state[READ_AT + (first + freed % span & _MASK)] + freed // span * clocks
        times, wait = often + (number < rest), at - arrived
        state[READ_QUEUE] += times * wait
        state[READ_LATENCY] += times * (wait + shape.read_latency)
        latencies[min(wait + shape.read_latency, LATENCIES - 1)] += times


@inlined
def skip_distances(shape, state, source, span, clocks, reads):
    """The last span of skipped reads leaves its distances behind."""
    size, first, over = state[SIZE + READS], state[IN_ORDER] - span, reads // span * clocks
    for place in range(span):
        number = reads - span + place
        # `rotation_goes_on` has noted the banks of the queued requests.
        bank = state[READ_BANK + (state[IN_ORDER] + number & _MASK)] & (BANKS - 1)
        if number >= size:
            bank = bank_of(source.place[state[PLACE] - size + number])
        note_bank(shape, state, RD, bank, state[READ_AT + (first + place & _MASK)] + over)


@inlined
def refill(shape, state, source, span, clocks, reads):
    """The queue holds the requests after those that were skipped, each since the read that freed its slot."""
    size, first = state[SIZE + READS], state[IN_ORDER] - span
    for rank in range(shape.ranks):
        state[WAITING + wait_place(READS, RD, rank)] = 0
    state[COUNTED + READS] = 0
    state[USED + READS] = rotate(-1 << SLOTS - size, -state[TAIL + READS])
    number = reads - size - 1 + span  # the read that freed the slot of the oldest
    place, over = number % span, number // span * clocks
    for age in range(size):
        slot = (state[TAIL + READS] - size + age) & (SLOTS - 1)
        request = state[PLACE] - size + reads + age
        bank = bank_of(source.place[request])
        state[SLOT_BANK + READS * SLOTS + slot] = bank
        state[SLOT_ROW + READS * SLOTS + slot] = source.place[request] >> ROW_SHIFT
        state[SLOT_REQUEST + READS * SLOTS + slot] = request
        state[SLOT_ARRIVED + READS * SLOTS + slot] = state[READ_AT + (first + place & _MASK)] + over
        state[OF_BANK + READS * BANKS + bank] |= 1 << slot
        state[WAITING + wait_place(READS, RD, bank // BANKS_PER_RANK)] |= 1 << slot
        place, over = next_read(place, over, span, clocks)


@inlined
def served_at(sink, arrival):
    """When a burst that finds a free server is done, and when it leaves the FIFO, in ticks."""
    start = (arrival * sink.dram_ticks + sink.unit_ticks - 1) // sink.unit_ticks * sink.unit_ticks
    return start + sink.value[SERVICE], start


@inlined
def goes_on(state, sink, request, younger, tail):
    """Whether the next younger request belongs to the row of a request, so that it is served later."""
    if younger == 0:
        return False
    slot = (lowest(younger) + tail) & (SLOTS - 1)
    return sink.first_row[state[SLOT_REQUEST + READS * SLOTS + slot]] == sink.last_row[request]


@inlined
def serve_queued(shape, state, sink, span, clocks, keeps_up):
    """The bursts of the queued requests are served: of each row, the last, and of neighbours in the queue
    that are none in the stream, both.
    """
    first, place, over, tail = state[IN_ORDER] - span, 0, clocks, state[TAIL + READS]
    queued = rotate(state[USED + READS], tail)
    while queued != 0:
        slot = (lowest(queued) + tail) & (SLOTS - 1)
        queued &= queued - 1
        request = state[SLOT_REQUEST + READS * SLOTS + slot]
        if sink.first_row[request] == sink.last_row[request] and goes_on(state, sink, request, queued, tail):
            pass
        elif keeps_up:
            arrival = state[READ_AT + (first + place & _MASK)] + over + shape.read_latency
            note_rows(sink, request, served_at(sink, arrival)[0])
        else:
            note_rows(sink, request, state[FINISHED_AT + (first + place & _MASK)] + over * sink.dram_ticks)
        place, over = next_read(place, over, span, clocks)


@inlined
def serve_arrivals(shape, state, sink, span, clocks, reads, keeps_up):
    """The bursts of the requests that arrive and are read are served: of each row, the last."""
    size, request, first = state[SIZE + READS], state[PLACE], state[IN_ORDER] - span
    arriving = reads - size
    place, over, number = size % span - 1, clocks + size // span * clocks, -1
    for row in range(sink.first_row[request], sink.last_row[request + arriving - 1] + 1):
        last = min(sink.row_end[row] - request, arriving - 1)
        place += last - number
        while place >= span:
            place, over = place - span, over + clocks
        number = last
        if sink.last_row[request + last] < row:
            continue  # a row of other lanes
        if keeps_up:
            arrival = state[READ_AT + (first + place & _MASK)] + over + shape.read_latency
            finish = served_at(sink, arrival)[0]
        else:
            finish = state[FINISHED_AT + (first + place & _MASK)] + over * sink.dram_ticks
        sink.done[row] = max(sink.done[row], finish)


@inlined
def leave_busy(shape, state, sink, span, clocks, reads):
    """What the last skipped bursts leave in the FIFO and at the servers of a sink that keeps up."""
    value, slot, server = sink.value, sink.value[SLOT], sink.value[SERVER]
    first, place, over = state[IN_ORDER] - span, span - 1, reads // span * clocks + shape.read_latency
    now = state[READ_AT + (first + place & _MASK)] + reads // span * clocks
    for number in range(min(max(sink.depth, sink.servers), reads)):
        finish, start = served_at(sink, state[READ_AT + (first + place & _MASK)] + over)
        if number == 0:
            value[LAST_START], value[FINISHED] = start, finish
        slot = slot - 1 if slot > 0 else sink.depth - 1
        server = server - 1 if server > 0 else sink.servers - 1
        if number < sink.depth:
            sink.credit[slot] = (start + sink.dram_ticks - 1) // sink.dram_ticks
        if number < sink.servers:
            sink.free[server] = finish
        if finish <= now * sink.dram_ticks:
            break  # and so are those before it
        place -= 1
        if place < 0:
            place, over = span - 1, over - clocks


@inlined
def shift_sink(sink, clocks):
    """All that a sink that repeats has under way is so many clocks later."""
    ticks = clocks * sink.dram_ticks
    for slot in range(sink.depth):
        sink.credit[slot] += clocks
    for server in range(sink.servers):
        sink.free[server] += ticks
    sink.value[LAST_START] += ticks
    sink.value[FINISHED] += ticks


@outlined
def skip_laps(shape, state, latencies, source, sink, view, clock, laps, keeps_up):
    """Set the channel and its sink to where they will be so many spans later; returns the clock."""
    span, clocks = state[IN_ORDER] - state[view + VIEW_READS], clock - state[view + VIEW_CLOCK]
    reads = laps * span
    if sink.servers > 0:
        serve_queued(shape, state, sink, span, clocks, keeps_up)
        serve_arrivals(shape, state, sink, span, clocks, reads, keeps_up)
        if keeps_up:
            leave_busy(shape, state, sink, span, clocks, reads)
        else:
            shift_sink(sink, laps * clocks)
        sink.value[sinks.BUSY] += reads * sink.value[SERVICE]
        sink.value[sinks.TAKEN] += reads
    skip_queued(shape, state, latencies, span, clocks)
    skip_arrivals(shape, state, latencies, span, clocks, reads)
    skip_distances(shape, state, source, span, clocks, reads)
    refill(shape, state, source, span, clocks, reads)
    for place, total in ((VIEW_IDLE + 1, IDLE_CREDIT), (VIEW_IDLE + 2, IDLE_ROW)):
        state[total] += (state[total] - state[view + place]) * laps
    state[PLACE] = after(state[PLACE], reads, source.place.shape[0])
    for total in (TAKEN, SERVED, READS_SERVED, ISSUED + RD, SKIPPED):
        state[total] += reads
    state[DATA_END] += laps * clocks
    state[IN_ORDER] = 0
    return clock + laps * clocks


# ---- When


@inlined
def note_hit(state, sink, bank, in_order, held, clock):
    """A hit has been read at the clock; held: perhaps no sooner because the sink had no room."""
    number = state[IN_ORDER] if in_order else 0
    if held or number == 0:
        state[LAST_HELD] = number + 1
    state[READ_AT + (number & _MASK)] = clock
    state[READ_BANK + (number & _MASK)] = bank
    state[FINISHED_AT + (number & _MASK)] = sink.value[FINISHED]
    state[IN_ORDER] = number + 1


@inlined
def laps_since(policy, shape, state, source, sink, view, clock, until_served, until_taken):
    """How many more times what happened since a view will happen again."""
    if not memory_repeats(shape, state, view, clock) or state[IDLE_REFRESH] != state[view + VIEW_IDLE]:
        return 0
    span, clocks = state[IN_ORDER] - state[view + VIEW_READS], clock - state[view + VIEW_CLOCK]
    return laps_ahead(policy, state, source, sink, span, clocks, clock, until_served, until_taken)


@inlined
def skip(policy, shape, state, latencies, source, sink, clock, until_served, until_taken):
    """After a read in order: skip what will repeat; returns the clock of the last read, skipped or not."""
    number, period = state[IN_ORDER], source.period
    if number != 1 and number != state[PREVIOUS + VIEW_READS] + period:
        return clock
    laps, view, keeps_up = 0, PREVIOUS, True
    if number == 1:
        state[ANCHOR + VIEW_READS] = 0
    else:
        clocks = clock - state[PREVIOUS + VIEW_CLOCK]
        keeps_up = sink.servers == 0 or sink_keeps_up(shape, state, sink, period, clocks)
        view = PREVIOUS if keeps_up else ANCHOR
        if keeps_up or (state[ANCHOR + VIEW_READS] > 0 and sink_repeats(state, sink, ANCHOR, clock)):
            laps = laps_since(policy, shape, state, source, sink, view, clock, until_served, until_taken)
    if laps > 0:
        return skip_laps(shape, state, latencies, source, sink, view, clock, laps, keeps_up)
    capture(shape, state, PREVIOUS, clock)
    anchored = state[ANCHOR + VIEW_READS]
    if not keeps_up and (anchored == 0 or number > anchored + max(_ANCHORED, anchored)):
        capture(shape, state, ANCHOR, clock)
        capture_sink(state, sink, ANCHOR, clock)
    return clock
