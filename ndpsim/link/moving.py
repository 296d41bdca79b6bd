"""Reads, packets and writes of a relayout, together, window by window; exact.

A read's data comes a fixed number of clocks after its command: that is the length of a window. At the
beginning of a window it is therefore known which data comes within it, so which packets can be sent within
it, so when slots of the buffers become free and when packets arrive within it, so which requests the lanes
get within it; then the lanes run to its end. Nothing that happens in a window depends on anything that is
not known when it is worked on:

- A read is offered to its lane when its node's buffer has a slot for it, in the node's order of reading.
  The slot is free again when all packets with pieces of the burst have left the node.
- A packet may leave when all its reads are in the buffer, and its target has a place for it: each flow has
  as many as its window says, taken in order.
- A write is offered to its lane when all its pieces have arrived. Its place, that of the packet that brought
  the last one, is free when the lane has taken the write into its write queue. Units look at their lanes once
  a window, at its end, and a place is known at the source as long after as a packet without length takes.
  Pieces that have to wait for others wait beside these places.
- What comes from the unit is on an edge of the unit's clock, and then on one of the DRAM's.
- A lane takes its requests in the order in which they were offered; its controller orders them.
"""

from __future__ import annotations

from ndpsim._jit import inlined, kernel
from ndpsim.dram.controller import RECORD_FULL, STUCK
from ndpsim.dram.masks.controller import run
from ndpsim.dram.sink import Sink
from ndpsim.dram.state import FAR as FAR_CLOCK
from ndpsim.dram.state import PAUSE, SERVED, TAKEN, Commands, Source
from ndpsim.link.fabric import FAR
from ndpsim.link.sending import advance

__all__ = ["move"]


@inlined
def clock_at(tick, unit_ticks, dram_ticks):
    """The DRAM clock at or after the edge of the unit's clock at or after a tick."""
    edge = (tick + unit_ticks - 1) // unit_ticks * unit_ticks
    return (edge + dram_ticks - 1) // dram_ticks


@inlined
def let_go(work, packets, packet):
    """A packet may leave its source when its reads are done and its target has a place."""
    if work.reads_left[packet] == 0 and work.gate[packet] < FAR:
        packets.at[packet] = max(work.read_until[packet], work.gate[packet])


@inlined
def note_reads(work, lanes, packets, lane):
    """Packets learn which of a lane's reads are done."""
    first, taken = lanes.first[lane], lanes.state[lane, TAKEN]
    in_order = True
    for request in range(lanes.noted[lane], taken):
        at = first + request
        read = lanes.item[at]
        tick = lanes.done[at]
        if read >= 0 and tick > 0:
            lanes.done[at] = -tick
            for place in range(work.read_first[read], work.read_first[read + 1]):
                packet = work.read_packet[place]
                work.reads_left[packet] -= 1
                work.read_until[packet] = max(work.read_until[packet], tick)
                let_go(work, packets, packet)
        in_order = in_order and (read < 0 or tick != 0)
        if in_order:
            lanes.noted[lane] = request + 1


@inlined
def pass_within(work, packets, flow, horizon):
    """Packets that stay in their node have arrived as soon as they may leave."""
    before = 0
    for packet in range(work.arrived[flow], work.flow_packet[flow + 1]):
        tick = max(before, packets.at[packet])
        if tick >= horizon:
            break
        packets.sent[packet] = packets.arrived[packet] = before = tick


@inlined
def free_slot(work, node, tick):
    """A slot of a node's buffer is free from a tick on."""
    place = work.freed_count[node]
    while place > 0 and work.freed[node, place - 1] > tick:
        work.freed[node, place] = work.freed[node, place - 1]
        place -= 1
    work.freed[node, place] = tick
    work.freed_count[node] += 1


@inlined
def note_sent(work, packets, flow, node_of):
    """Slots learn which of a flow's packets have been sent."""
    packet, end = work.sent[flow], work.flow_packet[flow + 1]
    while packet < end and packets.sent[packet] < FAR:
        for place in range(work.packet_first[packet], work.packet_first[packet + 1]):
            read = work.packet_read[place]
            work.packets_left[read] -= 1
            work.sent_until[read] = max(work.sent_until[read], packets.sent[packet])
            if work.packets_left[read] == 0:
                free_slot(work, node_of[flow], work.sent_until[read])
        packet += 1
    work.sent[flow] = packet


@inlined
def add_event(work, events, clock, item):
    """A request is to be given to its lane at a clock; events are in order of their clocks."""
    place = events
    while place > 0 and work.event_clock[place - 1] > clock:
        work.event_clock[place] = work.event_clock[place - 1]
        work.event_item[place] = work.event_item[place - 1]
        place -= 1
    work.event_clock[place], work.event_item[place] = clock, item
    return events + 1


@inlined
def admit_reads(work, node, events, horizon, unit_ticks, dram_ticks):
    """Reads for the slots of a node that become free before the horizon; returns the events there are."""
    used = 0
    while used < work.freed_count[node] and work.freed[node, used] < horizon:
        if work.admitted[node] < work.node_read[node + 1]:
            clock = clock_at(work.freed[node, used], unit_ticks, dram_ticks)
            events = add_event(work, events, clock, work.admitted[node])
            work.admitted[node] += 1
        used += 1
    for place in range(used, work.freed_count[node]):
        work.freed[node, place - used] = work.freed[node, place]
    work.freed_count[node] -= used
    return events


@inlined
def free_place(work, packets, flow, packet, tick):
    """A packet's place at its target is free: the source of its flow will know."""
    later = packet + work.flow_window[flow]
    if later < work.flow_packet[flow + 1]:
        work.gate[later] = tick + work.flow_return[flow]
        let_go(work, packets, later)


@inlined
def note_arrivals(work, packets, flow, horizon):
    """Writes learn which of a flow's packets arrive before the horizon, and which packet is the last."""
    packet, end = work.arrived[flow], work.flow_packet[flow + 1]
    while packet < end and packets.arrived[packet] < horizon:
        tick = packets.arrived[packet]
        for place in range(work.write_first[packet], work.write_first[packet + 1]):
            write = work.packet_write[place]
            work.pieces_left[write] -= 1
            if tick >= work.write_from[write]:
                work.write_from[write], work.holder[write] = tick, packet
        packet += 1


@inlined
def take_arrivals(work, packets, flow, events, horizon, unit_ticks, dram_ticks):
    """Writes that a flow's packets complete before the horizon; returns the events there are."""
    packet, end = work.arrived[flow], work.flow_packet[flow + 1]
    while packet < end and packets.arrived[packet] < horizon:
        clock = clock_at(packets.arrived[packet], unit_ticks, dram_ticks)
        for place in range(work.write_first[packet], work.write_first[packet + 1]):
            write = work.packet_write[place]
            if work.pieces_left[write] == 0 and work.holder[write] == packet:
                work.held[packet] += 1
                events = add_event(work, events, clock, -1 - write)
        if work.held[packet] == 0:
            free_place(work, packets, flow, packet, horizon)
        packet += 1
    work.arrived[flow] = packet
    return events


@inlined
def give(lanes, requests, number, item, clock):
    """A lane gets a request."""
    lane = requests.lane[number]
    at = lanes.first[lane] + lanes.admitted[lane]
    lanes.place[at] = requests.place[number]
    lanes.column[at] = requests.column[number]
    lanes.address[at] = requests.address[number]
    lanes.cycle[at] = clock
    lanes.item[at] = item
    lanes.admitted[lane] += 1


@inlined
def note_accepted(work, lanes, packets, lane, horizon):
    """Places become free whose writes a lane has taken by the end of the window."""
    first, taken = lanes.first[lane], lanes.state[lane, TAKEN]
    for request in range(lanes.accepted[lane], taken):
        item = lanes.item[first + request]
        if item < 0:
            packet = work.holder[-1 - item]
            work.held[packet] -= 1
            if work.held[packet] == 0:
                free_place(work, packets, packets.flow[packet], packet, horizon)
    lanes.accepted[lane] = taken


@inlined
def run_lane(policy, shape, lanes, lane, until, unit_ticks, dram_ticks):
    """Run a lane to a clock; returns how that ended."""
    first, end = lanes.first[lane], lanes.first[lane + 1]
    given = lanes.admitted[lane]
    if lanes.state[lane, SERVED] == given:
        return 0
    lanes.state[lane, PAUSE] = until
    source = Source(
        lanes.place[first:end],
        lanes.column[first:end],
        lanes.address[first:end],
        lanes.cycle[first:end],
        lanes.admitted[lane : lane + 1],
        0,
    )
    each = lanes.each[: end - first]
    sink = Sink(
        lanes.credit.shape[1],
        1,
        dram_ticks,
        unit_ticks,
        lanes.credit[lane],
        lanes.free[lane],
        each,
        each,
        each,
        lanes.done[first:end],
        lanes.value[lane],
    )
    commands = Commands(lanes.commands[lane], lanes.recorded[lane])
    return run(
        policy,
        shape,
        lanes.state[lane],
        lanes.latencies,
        source,
        sink,
        commands,
        lanes.known,
        end - first,
        FAR_CLOCK,
    )


@inlined
def fill_window(work, lanes, fabric, packets, node_of, horizon, unit_ticks, dram_ticks):
    """What lanes are given within a window; returns how many requests."""
    for lane in range(lanes.admitted.shape[0]):
        note_reads(work, lanes, packets, lane)
    advance(fabric, packets, horizon)
    events, flows = 0, work.flow_window.shape[0]
    for flow in range(flows):
        if work.flow_hops[flow] == 0:
            pass_within(work, packets, flow, horizon)
        note_sent(work, packets, flow, node_of)
        note_arrivals(work, packets, flow, horizon)
    for node in range(work.slots.shape[0]):
        events = admit_reads(work, node, events, horizon, unit_ticks, dram_ticks)
    for flow in range(flows):
        events = take_arrivals(work, packets, flow, events, horizon, unit_ticks, dram_ticks)
    for event in range(events):
        item, clock = work.event_item[event], work.event_clock[event]
        if item >= 0:
            give(lanes, work.reads, item, item, clock)
        else:
            give(lanes, work.writes, -1 - item, item, clock)
    return events


@kernel
def move(policy, shape, work, lanes, fabric, packets, node_of, unit_ticks, dram_ticks, windows):
    """Go on for `windows` windows, or until all is written: True.

    Ends early, with `step` set, where a command trace is full: give it more room and call again.

    Args:
        node_of: [flow], its source.

    Raises:
        RuntimeError: a lane cannot go on.
    """
    length = shape.read_latency
    lane_count, total = lanes.admitted.shape[0], lanes.place.shape[0]
    for _ in range(windows):
        until = work.clock[0] + length
        horizon = until * dram_ticks
        if work.step[0] == 0:
            fill_window(work, lanes, fabric, packets, node_of, horizon, unit_ticks, dram_ticks)
        work.step[0] = 0
        for lane in range(lane_count):
            outcome = run_lane(policy, shape, lanes, lane, until, unit_ticks, dram_ticks)
            if outcome == STUCK:
                raise RuntimeError("a lane cannot go on")
            if outcome == RECORD_FULL:
                work.step[0] = 1
        if work.step[0] == 1:
            return False
        served = 0
        for lane in range(lane_count):
            note_accepted(work, lanes, packets, lane, horizon)
            served += lanes.state[lane, SERVED]
        work.clock[0] = until
        if served == total:
            return True
    return False
