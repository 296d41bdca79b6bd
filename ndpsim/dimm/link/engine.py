"""The relayout engine, event by event; it is independent of controllers.

A *node* is a relayout unit with its buffer. A *flow* is all data from one node to another, or within a node.
A *piece* is the part of a read that belongs to one write. A *packet* has pieces of one flow.

- A read is offered when its node's buffer has a slot for it, in the node's order of reading. Its data is
  in the buffer a read latency after its RD, and the slot is free when all its pieces have left the node.
- A packet is ready to send when its reads are in the buffer and its flow has a credit: its target has places
  for so many packets of the flow. Within a node packets of a flow arrive in order, as they leave.
- A write is offered when all its pieces have arrived. A packet's place is free when the writes that it
  completed are in their lanes' write queues, and the source has the credit as long after as a packet without
  length takes. Pieces that have to wait for others wait beside these places.
- The unit acts at edges of its clock, and lanes see its actions at the next edge of theirs.

The caller that steps the lanes' controllers drives the engine. When all lanes have done their steps before
`clock`, and the engine knows of them:

    begin(engine)                             once, before the first step, which is at clock 1
    tick = known_until(engine, clock)
    advance(engine, tick - 1)
    for each of engine.offered_requests[:engine.offered_count[0]], in order, and then the count is 0 again:
        offer that request to its lane at steps after clock engine.offered_at[request], behind those before it
        that read, or write, as it does (numbers of reads come first, then those of writes)
    step every lane at each of the clocks from `clock` to ceil(tick / engine.dram_ticks), and
        where RD of a read issues at clock t:           read_issued(engine, read, t)
        where its write queue takes a write at clock t: write_taken(engine, write, t)
    the next `clock` is the one after these

`ndpsim.dimm.link.offers` has lists of the offered requests of each lane, and chooses the next one. Lanes may
be stepped in any order, clock by clock or one lane through all clocks, because no lane affects another before
the last of these clocks. Fewer clocks are allowed, too. The relayout is done when every request is served.
"""

from __future__ import annotations

from ndpsim.base.jit import inlined, outlined
from ndpsim.dimm.link.fabric import FAR, first_leaf, set_time
from ndpsim.dram.fast.vectors import assume_nonnegative

# ---- Packets of many flows over shared wires: the exact time at which each wire sends each packet
#
# A packet is at a node when all of it has arrived there (store and forward) and the latency of the hop has
# passed. It waits in the queue of its input: the previous hop, or its own flow at the source. A free wire
# immediately sends the first packet of one of its queues. The inputs have turns (round robin). The flows that
# begin at the node share one input and have turns on it. A packet occupies the wire for its bytes, including
# headers, at the wire's rate. Queues are first in, first out and unbounded; nothing is lost.
#
# Times are ticks; nothing changes between two ticks at which a wire starts to send.


@inlined
def next_start(fabric, packets, wire):
    """The tick at which a wire next starts to send, if it is known."""
    first, end = fabric.wire_first[wire], fabric.wire_first[wire + 1]
    start = FAR
    for number in range(fabric.input_first[first], fabric.input_first[end]):
        packet = packets.head[assume_nonnegative(number)]
        if packet >= 0:
            start = min(start, packets.due[assume_nonnegative(packet)])
    return max(start, packets.free[wire])


@inlined
def set_start(packets, wire, tick):
    """A wire next starts to send at a tick."""
    set_time(packets.times, packets.leaves_before + wire, tick)


@inlined
def update_ready(fabric, packets, queue, tick):
    """Record that the first packet of a queue can leave it from a tick on."""
    wire = assume_nonnegative(fabric.queue_wire[queue])
    tick = max(tick, packets.free[wire])
    if tick < packets.times[packets.times.shape[0] // 2 + packets.leaves_before + wire]:
        set_start(packets, wire, tick)


@inlined
def ready_queue(fabric, packets, in_, tick):
    """The queue of an input with the turn at `tick`; -1: none has a packet."""
    first, end = fabric.input_first[in_], fabric.input_first[in_ + 1]
    queue = assume_nonnegative(packets.granted_queue[in_])
    for _ in range(end - first):
        packet = packets.head[queue]
        if packet >= 0 and packets.due[assume_nonnegative(packet)] <= tick:
            return queue
        queue = assume_nonnegative(first if queue + 1 == end else queue + 1)
    return -1


@inlined
def choose_queue(fabric, packets, wire, tick):
    """The queue with the turn at `tick`; the turn passes to the next queue."""
    first, end = fabric.wire_first[wire], fabric.wire_first[wire + 1]
    in_ = assume_nonnegative(packets.turn[wire])
    for _ in range(end - first):
        queue = ready_queue(fabric, packets, in_, tick)
        after = assume_nonnegative(first if in_ + 1 == end else in_ + 1)
        if queue >= 0:
            packets.turn[wire] = after
            next_queue = queue + 1
            if next_queue == fabric.input_first[in_ + 1]:
                next_queue = fabric.input_first[in_]
            packets.granted_queue[in_] = next_queue
            return queue
        in_ = after
    return -1


@inlined
def move_on(fabric, packets, packet, tick):
    """Move a packet to its next node at `tick`: to its target, or into its next queue."""
    packets.hop[packet] += 1
    flow = assume_nonnegative(packets.flow[packet])
    step = fabric.path_first[flow] + packets.hop[packet]
    if step == fabric.path_first[flow + 1]:
        packets.arrived[packet] = tick
        return
    queue = assume_nonnegative(fabric.path[assume_nonnegative(step)])
    packets.due[packet], packets.behind[packet] = tick, -1
    if packets.head[queue] < 0:
        packets.head[queue] = packet
        update_ready(fabric, packets, queue, tick)
    else:
        packets.behind[packets.tail[queue]] = packet
    packets.tail[queue] = packet
    packets.waiting[queue] += packets.size[packet]
    packets.most[queue] = max(packets.most[queue], packets.waiting[queue])


@inlined
def send(fabric, packets, wire, tick):
    """A wire sends a packet of the queue with the turn; returns the packet."""
    queue = assume_nonnegative(choose_queue(fabric, packets, wire, tick))
    packet = assume_nonnegative(packets.head[queue])
    packets.head[queue] = packets.behind[packet]
    on_wire = packets.size[packet] * fabric.byte_ticks[wire]
    packets.free[wire] = tick + on_wire
    packets.busy[wire] += on_wire
    if packets.hop[packet] == 0:
        packets.sent[packet] = tick + on_wire
    else:
        packets.waiting[queue] -= packets.size[packet]
    move_on(fabric, packets, packet, tick + on_wire + fabric.queue_latency[queue])
    set_start(packets, wire, next_start(fabric, packets, wire))
    return packet


# ---- The relayout engine, event by event; it is independent of controllers


@inlined
def next_edge(engine, tick):
    """The tick of the unit's first edge at or after a tick."""
    return (tick + engine.unit_ticks - 1) // engine.unit_ticks * engine.unit_ticks


@inlined
def offer(engine, request, tick):
    """Offer a request to its lane, from the unit's next edge and then the lane's next edge on."""
    engine.offered_at[request] = (next_edge(engine, tick) + engine.dram_ticks - 1) // engine.dram_ticks
    engine.offered_requests[assume_nonnegative(engine.offered_count[0])] = request
    engine.offered_count[0] += 1


@inlined
def use_slot(engine, node, tick):
    """A slot of a node's buffer is free: offer the node's next read."""
    read = assume_nonnegative(engine.next_read[node])
    if read < engine.packed.node_read[node + 1]:
        engine.next_read[node] = read + 1
        offer(engine, read, tick)


@outlined
def begin(engine):
    """Offer the first reads of every node: all slots are free."""
    for node in range(engine.next_read.shape[0]):
        for _ in range(engine.slots):
            use_slot(engine, node, 0)


@inlined
def is_local(engine, flow):
    """Whether a flow stays in its node."""
    return engine.fabric.path_first[flow] == engine.fabric.path_first[flow + 1]


@inlined
def has_credit(engine, flow, packet):
    """Whether a flow has a credit for a packet now, or from a known tick on."""
    before = packet - engine.flow_credits[flow]
    if before < engine.packed.flow_packet[flow]:
        return True
    return before < engine.arriving[flow] and engine.not_taken[before] == 0


@inlined
def ready_to_send(engine, flow, packet):
    """A packet whose reads have issued and whose flow has a credit for it is ready to send from a tick on."""
    fabric, packets = engine.fabric, engine.packets
    tick, before = engine.read_until[packet], packet - engine.flow_credits[flow]
    if before >= engine.packed.flow_packet[flow]:
        tick = max(tick, next_edge(engine, engine.place_free[before] + engine.credit_ticks[flow]))
    packets.due[packet] = tick
    if is_local(engine, flow):
        if engine.arriving[flow] == packet:
            set_time(packets.times, flow, tick)
    else:
        queue = assume_nonnegative(fabric.path[fabric.path_first[flow]])
        if packets.head[queue] == packet:
            update_ready(fabric, packets, queue, tick)


@inlined
def free_place(engine, packet):
    """Free a packet's place at its target: the flow has a credit for a later packet."""
    flow = assume_nonnegative(engine.packets.flow[packet])
    later = packet + engine.flow_credits[flow]
    if later < engine.packed.flow_packet[flow + 1] and engine.packed.unread[later] == 0:
        engine.without_credit[1 if is_local(engine, flow) else 0] -= 1
        ready_to_send(engine, flow, later)


@inlined
def leave(engine, packet, tick):
    """A packet has left its source: free the slots of reads whose pieces have all left."""
    node = assume_nonnegative(engine.flow_node[assume_nonnegative(engine.packets.flow[packet])])
    for number in range(engine.packed.packet_first[packet], engine.packed.packet_first[packet + 1]):
        piece = assume_nonnegative(number)
        read = assume_nonnegative(engine.packed.piece_read[piece])
        engine.packed.unsent[read] -= 1
        if engine.packed.unsent[read] == 0:
            use_slot(engine, node, tick)


@inlined
def next_arrival(engine, flow, packet, tick):
    """The tick at which the next packet of a flow arrives, if it is known."""
    if packet == engine.packed.flow_packet[flow + 1]:
        return FAR
    if is_local(engine, flow):
        return max(tick, engine.packets.due[packet])
    return engine.packets.arrived[packet] if engine.packets.arrived[packet] > 0 else FAR


@inlined
def arrive(engine, flow, tick):
    """A flow's next packet arrives: offer the writes that now have all their pieces."""
    packet = assume_nonnegative(engine.arriving[flow])
    engine.arriving[flow] = packet + 1
    if is_local(engine, flow):
        engine.packets.sent[packet] = engine.packets.arrived[packet] = tick
        leave(engine, packet, tick)
    for number in range(engine.packed.packet_first[packet], engine.packed.packet_first[packet + 1]):
        piece = assume_nonnegative(number)
        write = assume_nonnegative(engine.packed.piece_write[piece])
        engine.packed.missing[write] -= 1
        if engine.packed.missing[write] == 0:
            engine.completed_by[write] = packet
            engine.write_tick[write] = tick
            engine.not_taken[packet] += 1
            offer(engine, engine.packed.unsent.shape[0] + write, tick)
    engine.place_free[packet] = tick
    if engine.not_taken[packet] == 0:
        free_place(engine, packet)
    set_time(engine.packets.times, flow, next_arrival(engine, flow, packet + 1, tick))


@inlined
def start_to_send(engine, wire, tick):
    """A wire sends its next packet; record when it leaves its source, and when it arrives at its target."""
    packets = engine.packets
    packet = send(engine.fabric, packets, wire, tick)
    if packets.hop[packet] == 1:
        engine.leaving[wire] = packet
        set_time(packets.times, engine.arriving.shape[0] + wire, packets.sent[packet])
    flow = assume_nonnegative(packets.flow[packet])
    if packets.arrived[packet] > 0 and engine.arriving[flow] == packet:
        set_time(packets.times, flow, packets.arrived[packet])


@outlined
def advance(engine, until):
    """Process all events up to and including the tick `until`.

    The events of a tick are processed in this order: arrivals, packets that have left, wires that start to
    send. All ready packets are known before a wire starts.
    """
    times = engine.packets.times
    flows, wires = engine.arriving.shape[0], engine.leaving.shape[0]
    while times[1] <= until:
        tick, leaf = times[1], assume_nonnegative(first_leaf(times))
        if leaf < flows:
            arrive(engine, leaf, tick)
        elif leaf < flows + wires:
            set_time(times, leaf, FAR)
            leave(engine, engine.leaving[leaf - flows], tick)
        else:
            start_to_send(engine, leaf - flows - wires, tick)


@inlined
def read_issued(engine, read, clock):
    """RD of a read has issued: its data is in the buffer a read latency later, at the unit's next edge."""
    tick = next_edge(engine, (clock + engine.read_latency) * engine.dram_ticks)
    engine.read_tick[read] = tick
    for piece in range(engine.packed.read_first[read], engine.packed.read_first[read + 1]):
        packet = assume_nonnegative(engine.packed.read_packet[assume_nonnegative(piece)])
        engine.packed.unread[packet] -= 1
        engine.read_until[packet] = max(engine.read_until[packet], tick)
        if engine.packed.unread[packet] == 0:
            flow = assume_nonnegative(engine.packets.flow[packet])
            if has_credit(engine, flow, packet):
                ready_to_send(engine, flow, packet)
            else:
                engine.without_credit[1 if is_local(engine, flow) else 0] += 1


@inlined
def write_taken(engine, write, clock):
    """A lane has taken a write into its write queue."""
    packet = assume_nonnegative(engine.completed_by[write])
    engine.place_free[packet] = max(engine.place_free[packet], clock * engine.dram_ticks)
    engine.not_taken[packet] -= 1
    if engine.not_taken[packet] == 0:
        free_place(engine, packet)


@inlined
def known_until(engine, clock):
    """The tick before which all events are known, regardless of what lanes do from the step at `clock` on.

    Data of a read comes a read latency after its RD. A write that is taken gives a credit, which matters at
    once only to a packet whose reads have issued already: one that stays in its node, or one over links.
    """
    now, tick = clock * engine.dram_ticks, (clock + engine.read_latency) * engine.dram_ticks
    if engine.without_credit[1] > 0:
        return now
    if engine.without_credit[0] > 0:
        return min(tick, now + engine.least_credit_ticks)
    return tick
