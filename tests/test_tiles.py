"""Tiles of weights on the channels of a device: nothing lost, nothing twice, dealt out evenly."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ndpsim.config import load_hardware
from ndpsim.errors import InputError
from ndpsim.layout import ExpertFormat, Tiles, expert_regions

DEVICE = load_hardware("cxl").lane_device()


def tiles_of(hidden: int, intermediate: int, lanes: int, rows: int, **bits: object) -> Tiles:
    regions = expert_regions(hidden, intermediate, ExpertFormat.of(**bits), DEVICE.burst_bytes)
    return Tiles(regions, DEVICE, lanes, rows)


def test_an_expert_of_mixtral_fills_bursts_without_padding():
    tiles = tiles_of(4096, 14336, 32, 8)
    assert [len(of_region) for of_region in tiles.bursts] == [2 * 14336 // 8, 4096 // 8]
    # 8 rows of 4096 weights of 2 bytes, and of 14336, in bursts of 64 bytes.
    assert [set(of_region.tolist()) for of_region in tiles.bursts] == [{1024}, {3584}]
    assert [tiles.share(lane).bursts for lane in (0, 31)] == [(114688, 57344)] * 2
    assert tiles.alike() == [range(32)]


def test_scales_and_zero_points_take_their_place():
    plain, grouped = (
        tiles_of(4096, 14336, 32, 8, bits=3, **groups)
        for groups in ({}, {"group_size": 128, "scale_bits": 16, "zero_point_bits": 3})
    )
    # A row of 4096 weights of 3 bits, and 32 groups of 19 bits more.
    assert plain.bursts[0][0] == 8 * 4096 * 3 // 512
    assert grouped.bursts[0][0] == -(-8 * (4096 * 3 + 32 * 19) // 512)


sizes = st.integers(1, 90)


@given(sizes, sizes, st.integers(1, 9), st.integers(1, 12), st.sampled_from([16, 8, 4, 3, 2, 1]))
@settings(max_examples=150, deadline=None)
def test_every_tile_lies_once_and_nothing_lies_on_another(hidden, intermediate, lanes, rows, bits):
    tiles = tiles_of(hidden, intermediate, lanes, rows, bits=bits)
    count = sum(len(of_region) for of_region in tiles.bursts)
    seen = np.zeros(count, dtype=np.int64)
    for lane in range(lanes):
        place, *coordinates = tiles.coordinates(lane)
        of_burst = tiles.tile_of_bursts(lane)
        assert len(place) == len(of_burst) == tiles.share(lane).total
        assert len(set(place.tolist())) == len(place)
        assert len(set(zip(*(each.tolist() for each in coordinates), strict=True))) == len(place)
        assert (np.diff(of_burst) >= 0).all()
        np.add.at(seen, of_burst, 1)
    assert np.array_equal(seen, np.concatenate(tiles.bursts))
    for of_region, region in zip(tiles.bursts, tiles.regions, strict=True):
        assert region.bits <= of_region.sum() * 512 < region.bits + 512 * len(of_region)


@given(sizes, sizes, st.integers(1, 9), st.integers(1, 12))
@settings(max_examples=100, deadline=None)
def test_lanes_that_are_alike_read_alike(hidden, intermediate, lanes, rows):
    mixed = {"gate": 4, "up": 2, "down": 3}
    tiles = tiles_of(hidden, intermediate, lanes, rows, bits=mixed)
    groups = tiles.alike()
    assert [lane for group in groups for lane in group] == list(range(lanes))
    for group in groups:
        places = [tiles.coordinates(lane)[0] for lane in group]
        assert all(np.array_equal(places[0], other) for other in places)
        first, last = tiles.tile_of_bursts(group[0]), tiles.tile_of_bursts(group[-1])
        assert (last - first == len(group) - 1).all()


def test_regions_begin_at_the_same_place_on_all_lanes():
    tiles = tiles_of(64, 20, 7, 3)
    begins = {
        tuple(tiles.coordinates(lane)[0][[0, tiles.share(lane).bursts[0]]].tolist()) for lane in range(4)
    }
    assert len(begins) == 1


def test_an_expert_larger_than_the_device_is_not_supported():
    with pytest.raises(InputError, match="not supported: weights of .* do not fit a device of 32.00 GiB"):
        tiles_of(1 << 18, 1 << 16, 2, 8)
