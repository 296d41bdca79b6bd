"""Physical addresses to coordinates, for whole arrays of addresses at once.

A mapping is data: the fields of a burst's address from the least significant bit up, each with its number of
bits, and the bits that are XORed with fields afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping as Dictionary
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ndpsim.base.errors import InputError
from ndpsim.dram.spec import Device

Ints = NDArray[np.int64]


class Coordinates(NamedTuple):
    """Locations of bursts, one array element a burst.

    `bankgroup` counts through the stacks of a rank, `column` bursts within the row.
    """

    rank: Ints
    bankgroup: Ints
    bank: Ints
    row: Ints
    column: Ints
    channel: Ints


@dataclass(frozen=True)
class Xor:
    """Bits of `source` XORed onto `target`.

    `at`: the lowest bit of the target. `low`: the lowest bit of the source; None: the bit after those that
    the mapping's earlier XORs used. `count`: number of bits; None: all bits of the target.
    """

    target: str
    source: str
    at: int = 0
    low: int | None = None
    count: int | None = None


@dataclass(frozen=True)
class Mapping:
    """An address mapping.

    `order`: (field, bits) from the least significant bit up; bits None: all remaining bits of the field.
    `xor`: the XORs afterwards, in order. Bits that a device does not have are left out.
    """

    order: tuple[tuple[str, int | None], ...]
    xor: tuple[Xor, ...] = ()


def _in_order(*fields: str) -> tuple[tuple[str, int | None], ...]:
    return tuple((field, None) for field in fields)


MAPPERS = {
    "RoBaRaCoCh": Mapping(_in_order("column", "rank", "stack", "bankgroup", "bank", "row")),
    "ChRaBaRoCo": Mapping(_in_order("column", "row", "bank", "bankgroup", "stack", "rank")),
    # Two bursts of every bank group of a rank, then of the next rank. This fills most gaps between bursts of
    # a bank group, and between reads and writes.
    "RoBaCoRaCoBgCh": Mapping(
        (("bankgroup", None), ("column", 1), *_in_order("rank", "stack", "column", "bank", "row"))
    ),
    "MOP4CLXOR": Mapping(
        (("column", 2), *_in_order("rank", "stack", "bankgroup", "bank", "column", "row")),
        xor=tuple(Xor(field, "column") for field in ("rank", "stack", "bankgroup", "bank", "row")),
    ),
}


def parse_mapping(order: Sequence[str], xor: Dictionary[str, Sequence[str]]) -> Mapping:
    """The mapping for ``order: ["column:2", ...]`` and ``xor: {bankgroup: ["row:0-1"]}`` in a file."""

    def split(word: str) -> tuple[str, str]:
        name, _, rest = word.partition(":")
        return name, rest

    parts = tuple((name, int(bits) if bits else None) for name, bits in map(split, order))
    xors = []
    for target, sources in xor.items():
        field, bit = split(target)
        for source in sources:
            name, bits = split(source)
            low, _, high = bits.partition("-")
            xors.append(Xor(field, name, int(bit or 0), int(low), int(high or low) - int(low) + 1))
    return Mapping(parts, tuple(xors))


def with_channel_lowest(mapping: Mapping) -> Mapping:
    """`mapping` with consecutive bursts on consecutive channels, unless it has the field `channel`."""
    if any(field == "channel" for field, _ in mapping.order):
        return mapping
    return Mapping((("channel", None), *mapping.order), mapping.xor)


def _field_bits(device: Device, channels: int) -> dict[str, int]:
    sizes = {
        "rank": device.ranks,
        "stack": device.stacks,
        "bankgroup": device.bankgroups // device.stacks,
        "bank": device.banks_per_group,
        "row": device.rows,
        "column": device.bursts_per_row,
        "channel": channels,
    }
    for field, size in sizes.items():
        if size & (size - 1):
            raise InputError(
                f"an address mapping needs a power of two, not {size}", "unsupported", key=f"{field}s"
            )
    return {field: size.bit_length() - 1 for field, size in sizes.items()}


def _apply_xors(mapping: Mapping, bits: dict[str, int], fields: dict[str, Ints]) -> None:
    taken = 0
    for xor in mapping.xor:
        low = taken if xor.low is None else xor.low
        room = max(0, bits[xor.target] - xor.at)
        count = room if xor.count is None else min(xor.count, room)
        taken = low + count
        if count > 0:
            fields[xor.target] ^= ((fields[xor.source] >> low) & ((1 << count) - 1)) << xor.at


def map_addresses(addresses: Ints, mapping: Mapping, device: Device, channels: int = 1) -> Coordinates:
    """The coordinates of byte addresses.

    Args:
        addresses: int64[n], bytes, each below `channels` times `device.capacity_bytes`.
        mapping: one of `MAPPERS` or your own.
        channels: channels that share the addresses; consecutive bursts go to consecutive channels unless
            the mapping says otherwise.

    Raises:
        InputError: the number of channels or a size of the device is not a power of two.
    """
    bits = _field_bits(device, channels)
    left = dict(bits)
    rest = addresses >> (device.burst_bytes.bit_length() - 1)
    fields = {name: np.zeros(len(addresses), dtype=np.int64) for name in bits}
    for name, wanted in with_channel_lowest(mapping).order:
        take = left[name] if wanted is None else min(wanted, left[name])
        if take == 0:
            continue
        fields[name] |= (rest & ((1 << take) - 1)) << (bits[name] - left[name])
        left[name] -= take
        rest = rest >> take
    _apply_xors(mapping, bits, fields)
    stack = fields.pop("stack")
    if bits["stack"] > 0:
        fields["bankgroup"] |= stack << bits["bankgroup"]
    return Coordinates(**fields)
