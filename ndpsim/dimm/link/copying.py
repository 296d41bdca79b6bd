"""Copies over one link; each copy engine sends the packets of its copies one after the other."""

from __future__ import annotations

from ndpsim.base.jit import kernel
from ndpsim.dimm.link.events import FAR


@kernel
def send_copies(ready, size, packet_bytes, header_bytes, byte_ticks, latency, engine_state, done):
    """Send copies until all have arrived; times are ticks.

    Copies are assigned in order to the next free engine. Engines with a ready copy take turns on the link,
    packet by packet.

    Args:
        ready, size: [copy].
        packet_bytes, header_bytes: maximum payload and header of a packet.
        byte_ticks, latency: ticks of a byte on the link, and from the last byte to a packet's arrival.
        engine_state: [3, engine]: scratch: its copy or -1, the bytes left, and the tick from which it can
            send.
        done: [copy]: the tick at which each copy has arrived.
    """
    copy_of, left, since = engine_state[0], engine_state[1], engine_state[2]
    engines, copies = len(copy_of), len(ready)
    copy_of[:] = -1
    taken, sent, free, turn = 0, 0, 0, 0
    while sent < copies:
        tick = FAR
        for engine in range(engines):
            if copy_of[engine] < 0 and taken < copies:
                copy_of[engine], left[engine] = taken, size[taken]
                since[engine] = ready[taken]
                taken += 1
            if copy_of[engine] >= 0:
                tick = min(tick, since[engine])
        tick = max(tick, free)
        while copy_of[turn] < 0 or since[turn] > tick:
            turn = 0 if turn + 1 == engines else turn + 1
        payload = min(left[turn], packet_bytes)
        free = tick + (payload + header_bytes) * byte_ticks
        left[turn] -= payload
        if left[turn] == 0:
            done[copy_of[turn]] = free + latency
            copy_of[turn] = -1
            sent += 1
        turn = 0 if turn + 1 == engines else turn + 1
