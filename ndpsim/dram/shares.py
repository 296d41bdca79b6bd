"""The requests of a trace, mapped and put into the share of each channel, a bounded number at a time.

All fields of a place are XORs of address bits (`mapping`). The place of a burst is therefore the XOR of the
places of its address's bytes, which tables hold.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ndpsim.base.jit import inlined, kernel
from ndpsim.dram.mapping import Mapping, map_addresses
from ndpsim.dram.spec import Device
from ndpsim.dram.state import Source, pack_place, repeating_period

Ints = NDArray[np.int64]

_BYTE = 256
_CHANNEL_SHIFT = 32  # the second word of a table: the channel above the column


class Shares(NamedTuple):
    """Requests that wait in a buffer for each channel; all channels have the same room."""

    place: Ints  # [channel, number], see `state.pack_place`
    column: NDArray[np.int32]  # [channel, number]
    address: Ints  # [channel, number], as given, or a number for every burst
    cycle: Ints  # [channel, number]; of length 0 without times
    size: Ints  # [channel]: requests in the buffer


class MapTables(NamedTuple):
    """A mapping of addresses as tables."""

    words: Ints  # [byte of a burst's address, its value, word]: place; channel and column
    shift: int  # bits of an address within a burst
    capacity: int  # bytes
    wraps: int  # 1: larger addresses are taken modulo the capacity


def make_shares(channels: int, room: int, timed: bool) -> Shares:
    """Empty buffers; memory that is not used is not taken."""
    return Shares(
        place=np.empty((channels, room), dtype=np.int64),
        column=np.empty((channels, room), dtype=np.int32),
        address=np.empty((channels, room), dtype=np.int64),
        cycle=np.empty((channels, room if timed else 0), dtype=np.int64),
        size=np.zeros(channels, dtype=np.int64),
    )


def make_map_tables(mapping: Mapping, device: Device, channels: int, wraps: bool) -> MapTables:
    """The tables of a mapping; for arguments see `map_addresses`.

    Raises:
        InputError: the number of channels or a size of the device is not a power of two.
    """
    capacity, shift = channels * device.capacity_bytes, device.burst_bytes.bit_length() - 1
    bits = (capacity - 1 >> shift).bit_length()
    parts = -(-bits // 8) or 1
    byte = np.arange(_BYTE, dtype=np.int64)
    words = np.zeros((parts, _BYTE, 2), dtype=np.int64)
    for part in range(parts):
        coordinates = map_addresses(byte << 8 * part + shift, mapping, device, channels)
        rank, bankgroup, bank, row, column, channel = coordinates
        words[part, :, 0] = pack_place(rank, bankgroup, bank, row, np.zeros_like(row))
        words[part, :, 1] = channel << _CHANNEL_SHIFT | column
    return MapTables(words, shift, capacity, int(wraps))


@inlined
def _put(shares, channel, place, column, address):
    """Append a request to a share that has room; returns its number there."""
    number = shares.size[channel]
    shares.place[channel, number] = place
    shares.column[channel, number] = column
    shares.address[channel, number] = address
    shares.size[channel] = number + 1
    return number


@kernel
def share_addresses(tables, address, write, cycle, first, shares):
    """Put requests, from number `first` on, into the shares of their channels.

    Returns the number of the first request that is not: its channel has no room, or its address is beyond
    the capacity, or there is none.
    """
    words, room, timed = tables.words, shares.place.shape[1], cycle.shape[0] > 0
    for request in range(first, address.shape[0]):
        within = address[request]
        if within >= tables.capacity:
            if tables.wraps == 0:
                return request
            within %= tables.capacity
        burst, place, other = within >> tables.shift, np.int64(write[request]), 0
        for part in range(words.shape[0]):
            place ^= words[part, burst & 255, 0]
            other ^= words[part, burst & 255, 1]
            burst >>= 8
        channel = other >> 32
        if shares.size[channel] == room:
            return request
        number = _put(shares, channel, place, other & 0xFFFFFFFF, address[request])
        if timed:
            shares.cycle[channel, number] = cycle[request]
    return address.shape[0]


@kernel
def share_places(channel, place, column, number, cycle, first, shares):
    """`share_addresses` for requests with coordinates; `number`: that of the burst."""
    room, timed = shares.place.shape[1], cycle.shape[0] > 0
    for request in range(first, channel.shape[0]):
        if shares.size[channel[request]] == room:
            return request
        at = _put(shares, channel[request], place[request], column[request], number[request])
        if timed:
            shares.cycle[channel[request], at] = cycle[request]
    return channel.shape[0]


def source_of(shares: Shares, channel: int, period: int | None = None) -> Source:
    """The requests in the buffer of a channel, all admitted; `period`: as they were found to repeat."""
    size = int(shares.size[channel])
    if period is None:
        period = repeating_period(shares.place[channel, :size])
    return Source(
        place=shares.place[channel, :size],
        column=shares.column[channel, :size],
        address=shares.address[channel, :size],
        cycle=shares.cycle[channel, :size],
        admitted=np.array([size], dtype=np.int64),
        period=period,
    )


def drop_before(shares: Shares, channel: int, kept: Ints, first: int) -> None:
    """Drop the requests of a buffer before number `first`, except those with the numbers `kept`."""
    size, used = int(shares.size[channel]), len(kept)
    for values in (shares.place, shares.column, shares.address, shares.cycle):
        if values.shape[1]:
            row = values[channel]
            row[:used] = row[kept]
            row[used : used + size - first] = row[first:size]  # NumPy takes care of the overlap
    shares.size[channel] = used + size - first
