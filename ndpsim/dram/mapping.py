"""Physical addresses to coordinates, for whole arrays of addresses at once.

A mapping is data: the fields of a burst's address from the least significant bit up, each with how many
of its bits stand there, and optionally which fields are then XORed with bits of the column.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ndpsim.errors import InputError
from ndpsim.spec import Device

__all__ = ["MAPPERS", "Coordinates", "Mapping", "map_addresses"]

Ints = NDArray[np.int64]


class Coordinates(NamedTuple):
    """Where bursts lie, one array element a burst. `column` counts bursts within the row."""

    rank: Ints
    bankgroup: Ints
    bank: Ints
    row: Ints
    column: Ints


@dataclass(frozen=True)
class Mapping:
    """An address mapping.

    `order`: (field, bits) from the least significant bit; bits None takes all the field has left.
    `xor_with_column`: fields XORed, one after the other, with the column's bits from bit 0 up.
    """

    order: tuple[tuple[str, int | None], ...]
    xor_with_column: tuple[str, ...] = ()


MAPPERS = {
    "RoBaRaCoCh": Mapping(
        (("column", None), ("rank", None), ("bankgroup", None), ("bank", None), ("row", None))
    ),
    "ChRaBaRoCo": Mapping(
        (("column", None), ("row", None), ("bank", None), ("bankgroup", None), ("rank", None))
    ),
    "MOP4CLXOR": Mapping(
        (("column", 2), ("rank", None), ("bankgroup", None), ("bank", None), ("column", None), ("row", None)),
        xor_with_column=("rank", "bankgroup", "bank", "row"),
    ),
}


def _field_bits(device: Device) -> dict[str, int]:
    sizes = {
        "rank": device.ranks,
        "bankgroup": device.bankgroups,
        "bank": device.banks_per_group,
        "row": device.rows,
        "column": device.bursts_per_row,
    }
    for field, size in sizes.items():
        if size & (size - 1):
            raise InputError(f"an address mapping needs a power of two, not {size}", key=f"{field}s")
    return {field: size.bit_length() - 1 for field, size in sizes.items()}


def map_addresses(addresses: Ints, mapping: Mapping, device: Device) -> Coordinates:
    """The coordinates of byte addresses on one channel.

    Args:
        addresses: int64[n], bytes, each below `device.capacity_bytes`.
        mapping: one of `MAPPERS` or your own.

    Raises:
        InputError: a size of the device is not a power of two.
    """
    bits = _field_bits(device)
    left = dict(bits)
    rest = addresses >> (device.burst_bytes.bit_length() - 1)
    fields = {name: np.zeros(len(addresses), dtype=np.int64) for name in bits}
    for name, wanted in mapping.order:
        take = left[name] if wanted is None else min(wanted, left[name])
        fields[name] |= (rest & ((1 << take) - 1)) << (bits[name] - left[name])
        left[name] -= take
        rest = rest >> take
    shift = 0
    for name in mapping.xor_with_column:
        fields[name] ^= (fields["column"] >> shift) & ((1 << bits[name]) - 1)
        shift += bits[name]
    return Coordinates(**fields)
