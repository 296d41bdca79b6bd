"""Packets of many flows over shared wires: the exact time at which each wire sends each packet.

A packet is at a node when all of it has arrived there (store and forward) and the latency of the hop has
passed. It waits in the queue of its input: the previous hop, or its own flow at the source. A free wire
immediately sends the first packet of one of its queues. The inputs have turns (round robin). The flows that
begin at the node share one input and have turns on it. A packet occupies the wire for its bytes, including
headers, at the wire's rate. Queues are first in, first out and unbounded; nothing is lost.

Times are ticks; nothing changes between two ticks at which a wire starts to send.
"""

from __future__ import annotations

from ndpsim.base.jit import inlined
from ndpsim.dimm.link.events import FAR, set_time
from ndpsim.dram.fast.words import assume_nonnegative


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
