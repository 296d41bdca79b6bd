"""Pieces into packets."""

from __future__ import annotations

from ndpsim._jit import kernel

__all__ = ["pack"]


@kernel
def pack(flow, chunk, size, packet_bytes, packet):
    """Number the packets that pieces travel in; returns how many there are.

    A packet is filled in order until the next piece would not fit; it holds pieces of one flow, and of one
    chunk of its source's reads.

    Args:
        flow, chunk, size: [piece], those of a flow together and in order; size in bytes.
        packet: [piece]: the result.
    """
    packets, filled = 0, 0
    for piece in range(flow.shape[0]):
        begins = piece == 0 or flow[piece] != flow[piece - 1] or chunk[piece] != chunk[piece - 1]
        if begins or filled + size[piece] > packet_bytes:
            packets, filled = packets + 1, 0
        filled += size[piece]
        packet[piece] = packets - 1
    return packets
