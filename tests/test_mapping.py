"""Addresses to coordinates."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mistakes import refused
from ndpsim.dram.mapping import MAPPERS, Coordinates, Mapping, Xor, map_addresses, parse_mapping
from ndpsim.dram.spec import Device, resolve
from ndpsim.dram.spec.standard import Organisation

DDR5 = resolve("DDR5", "DDR5_16Gb_x8", "DDR5_4800AN", ranks=4)
DDR4 = resolve("DDR4", "DDR4_8Gb_x8", "DDR4_2400R", ranks=2)

FIELDS = ("rank", "bankgroup", "bank", "row", "column")


def sizes(device: Device) -> dict[str, int]:
    return {
        "rank": device.ranks,
        "bankgroup": device.bankgroups,
        "bank": device.banks_per_group,
        "row": device.rows,
        "column": device.bursts_per_row,
    }


def small(ranks: int, bankgroups: int, banks: int, rows: int, bursts: int) -> Device:
    """A device of any size; DDR5 bursts take 16 columns."""
    return replace(
        DDR5, ranks=ranks, organisation=Organisation(16384, 8, bankgroups, banks, rows, bursts * 16)
    )


def numbers(places: Coordinates, device: Device) -> np.ndarray:
    """Coordinates as one number each, by a formula of its own: different places give different numbers."""
    number = np.zeros(len(places.rank), dtype=np.int64)
    for field, size in sizes(device).items():
        number = number * size + getattr(places, field)
    return number


def power(most: int) -> st.SearchStrategy[int]:
    return st.integers(0, most).map(lambda exponent: 1 << exponent)


orders = st.permutations(FIELDS).flatmap(
    lambda names: st.tuples(*(st.sampled_from([(name, None), (name, 1), (name, 2)]) for name in names)).map(
        lambda part: (*part, *((name, None) for name in names))
    )
)
mappings = st.sampled_from(sorted(MAPPERS)).map(MAPPERS.__getitem__) | st.builds(
    Mapping,
    orders,
    st.lists(st.sampled_from(("rank", "bankgroup", "bank", "row")), max_size=4, unique=True).map(
        lambda names: tuple(Xor(name, "column") for name in names)
    ),
)


@settings(deadline=None)
@given(mappings, power(2), power(3), power(2), power(4), power(4))
def test_a_mapping_is_one_to_one_over_a_whole_device(mapping, ranks, bankgroups, banks, rows, bursts):
    device = small(ranks, bankgroups, banks, rows, bursts)
    addresses = np.arange(0, device.capacity_bytes, device.burst_bytes, dtype=np.int64)
    places = map_addresses(addresses, mapping, device)
    for field, size in sizes(device).items():
        values = getattr(places, field)
        assert values.min() >= 0
        assert values.max() < size
    assert len(np.unique(numbers(places, device))) == len(addresses)


@settings(deadline=None)
@given(
    st.sampled_from([DDR4, DDR5]),
    st.sampled_from(sorted(MAPPERS)),
    st.lists(st.integers(0, (1 << 34) - 1), min_size=2, max_size=50, unique_by=lambda address: address >> 6),
)
def test_different_bursts_of_a_real_device_lie_in_different_places(device, name, addresses):
    assert device.capacity_bytes >= 1 << 34
    places = map_addresses(np.array(addresses, dtype=np.int64), MAPPERS[name], device)
    assert all(
        0 <= getattr(places, field).min() <= getattr(places, field).max() < size
        for field, size in sizes(device).items()
    )
    assert len(np.unique(numbers(places, device))) == len(addresses)


@pytest.mark.parametrize("name", sorted(MAPPERS))
def test_bytes_of_a_burst_lie_together(name):
    addresses = np.arange(0x12345640, 0x12345680, dtype=np.int64)
    places = map_addresses(addresses, MAPPERS[name], DDR5)
    assert all(len(np.unique(values)) == 1 for values in places)


# 0x12345678 / 64 is burst 0x48D159 = 1 0010 0011 0100 0101 01 | 01 1001. DDR5 16 Gb x8 with 4 ranks has 6 bits
# of column, 2 of rank, 3 of bank group, 2 of bank and 16 of row.
@pytest.mark.parametrize(
    ("name", "rank", "bankgroup", "bank", "row", "column"),
    [
        # From the low end: column 011001, rank 01, bank group 001, bank 10, the rest.
        ("RoBaRaCoCh", 1, 1, 2, 0x48D159 >> 13, 25),
        # Column 011001, row 0x2345, bank 01, bank group 000, rank 00.
        ("ChRaBaRoCo", 0, 0, 1, 0x2345, 25),
        # Column low 01, rank 10, bank group 101, bank 10, column high 1000, the rest. Column 100001: rank is
        # XORed with its bits 1-0 (01), bank group with bits 4-2 (000), bank with bit 5 (1).
        ("MOP4CLXOR", 2 ^ 1, 5, 2 ^ 1, 0x48D159 >> 13, 33),
    ],
)
def test_hand_worked_address(name, rank, bankgroup, bank, row, column):
    places = map_addresses(np.array([0x12345678]), MAPPERS[name], DDR5)
    assert [int(values[0]) for values in places] == [rank, bankgroup, bank, row, column, 0]


def test_mop4clxor_turns_the_row_when_column_bits_are_left():
    device = resolve("DDR5", "DDR5_16Gb_x8", "DDR5_4800AN", ranks=1)
    # Column low 11, bank group 000, bank 00, column high 1111, row 100: column 63 = 1|11|111.
    burst = 0b100_1111_00_000_11
    places = map_addresses(np.array([burst * 64]), MAPPERS["MOP4CLXOR"], device)
    assert [int(values[0]) for values in places] == [0, 0b111, 0b11, 0b100 ^ 1, 63, 0]


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        # What changes from burst to burst, and what after a row's 64 bursts, on a DDR5 rank of its own.
        ("RoBaRaCoCh", ({"column"}, {"column", "bankgroup"})),
        ("ChRaBaRoCo", ({"column"}, {"column", "row"})),
    ],
)
def test_a_stream_fills_a_row_and_then_goes_on(name, changed):
    device = resolve("DDR5", "DDR5_16Gb_x8", "DDR5_4800AN", ranks=1)
    places = map_addresses(np.array([0, 64, 63 * 64, 64 * 64]), MAPPERS[name], device)

    def differ(one: int, other: int) -> set[str]:
        return {field for field in FIELDS if getattr(places, field)[one] != getattr(places, field)[other]}

    assert (differ(0, 1), differ(2, 3)) == changed


def test_mop4_takes_four_bursts_of_a_row_at_a_time():
    device = resolve("DDR5", "DDR5_16Gb_x8", "DDR5_4800AN", ranks=1)
    places = map_addresses(np.arange(32, dtype=np.int64) * 64, MAPPERS["MOP4CLXOR"], device)
    groups = places.bankgroup.reshape(8, 4)
    assert places.column.tolist() == [0, 1, 2, 3] * 8
    # Each block of four visits four groups by the XOR with its columns; all eight are visited evenly.
    assert all(len(set(block)) == 4 for block in groups.tolist())
    assert np.bincount(places.bankgroup).tolist() == [4] * 8


def test_an_order_of_ones_own():
    mapping = Mapping(
        (("bankgroup", None), ("column", 1), ("rank", None), ("bank", None), ("column", None), ("row", None))
    )
    places = map_addresses(np.array([0b11_00001_10_01_1_101 * 64]), mapping, DDR5)
    assert [int(values[0]) for values in places] == [0b01, 0b101, 0b10, 0b11, 0b000011, 0]


@pytest.mark.parametrize("name", sorted(MAPPERS))
def test_three_ranks_are_refused(name):
    device = resolve("DDR5", "DDR5_16Gb_x8", "DDR5_4800AN", ranks=3)
    with refused("unsupported ranks"):
        map_addresses(np.array([0]), MAPPERS[name], device)


def test_the_addresses_given_are_left_alone():
    addresses = np.array([0x12345678, 64])
    map_addresses(addresses, MAPPERS["MOP4CLXOR"], DDR5)
    assert addresses.tolist() == [0x12345678, 64]


def test_a_mapping_of_words_is_the_mapping_it_says():
    words = parse_mapping(
        ["column:2", "rank", "bankgroup", "bank", "column", "row"],
        {"rank": ["column:0"], "bankgroup": ["column:1-3"], "bank": ["column:4-5"]},
    )
    built_in = Mapping(MAPPERS["MOP4CLXOR"].order, MAPPERS["MOP4CLXOR"].xor[:4])
    device = resolve("DDR5", "DDR5_16Gb_x8", "DDR5_4800AN", ranks=2)
    addresses = np.random.default_rng(1).integers(0, device.capacity_bytes, 5000)
    for one, other in zip(
        map_addresses(addresses, words, device), map_addresses(addresses, built_in, device), strict=True
    ):
        assert (one == other).all()


def test_an_xor_starts_at_the_bit_it_names():
    mapping = parse_mapping(["column", "bankgroup", "bank", "rank", "row"], {"bankgroup:1": ["row:2-3"]})
    device = resolve("DDR5", "DDR5_16Gb_x8", "DDR5_4800AN")
    places = map_addresses(np.array([0b1100 << (6 + 6 + 3 + 2)]), mapping, device)
    assert int(places.row[0]) == 0b1100
    assert int(places.bankgroup[0]) == 0b110


def test_an_xor_of_all_bits_ends_with_the_bits_of_its_target():
    """Three bits of a bank group: from its bit 1 on, two of the row's."""
    order = parse_mapping(["column", "bankgroup", "bank", "rank", "row"], {}).order
    device = resolve("DDR5", "DDR5_16Gb_x8", "DDR5_4800AN")
    mapping = Mapping(order, (Xor("bankgroup", "row", at=1),))
    places = map_addresses(np.array([0b111 << (6 + 6 + 3 + 2)]), mapping, device)
    assert int(places.row[0]) == 0b111
    assert int(places.bankgroup[0]) == 0b110


def test_consecutive_bursts_go_to_consecutive_channels():
    places = map_addresses(np.arange(8, dtype=np.int64) * 64, MAPPERS["RoBaRaCoCh"], DDR5, channels=4)
    assert places.channel.tolist() == [0, 1, 2, 3, 0, 1, 2, 3]
    assert places.column.tolist() == [0, 0, 0, 0, 1, 1, 1, 1]
