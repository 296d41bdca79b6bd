"""Copies over one link: each copy engine sends the packets of one copy after another."""

from __future__ import annotations

from ndpsim._jit import kernel
from ndpsim.link.events import FAR


@kernel
def send_copies(ready, size, packet_bytes, header_bytes, byte_ticks, latency, engine_state, done):
    """Send copies until all have arrived; times are ticks.

    The engines take the copies in their order, each when it is done with the one before. The link sends a
    packet of one engine after the other, of those that have a copy that is ready.

    Args:
        ready, size: [copy].
        packet_bytes, header_bytes: payload, at most, and header of a packet.
        byte_ticks, latency: ticks of a byte on the link, and from its end to a packet's arrival.
        engine_state: [3, engine]: scratch: its copy or -1, bytes left of it, from when it can send.
        done: [copy]: the tick at which each has arrived.
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
