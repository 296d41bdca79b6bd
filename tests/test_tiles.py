"""Tiles of weights on the channels of a device: nothing lost, nothing twice, interleaved evenly."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mistakes import refused
from ndpsim.config import load_hardware
from ndpsim.dimm.layout import PADDING, Address, ExpertFormat, ExpertWeights, Tiles, expert_regions
from ndpsim.dram.spec import standards
from ndpsim.simulate import place_expert, simulate_expert
from ndpsim.workload.models import Expert

COMMANDS = standards()["DDR5"].by_number

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


@given(sizes, sizes, st.integers(1, 9), st.integers(1, 12), st.sampled_from([16, 8, 6, 5, 4, 3, 2, 1]))
@settings(max_examples=150, deadline=None)
def test_every_tile_lies_once_and_nothing_lies_on_another(hidden, intermediate, lanes, rows, bits):
    tiles = tiles_of(hidden, intermediate, lanes, rows, bits=bits)
    count = sum(len(of_region) for of_region in tiles.bursts)
    seen = np.zeros(count, dtype=np.int64)
    for lane in range(lanes):
        place, *coordinates = tiles.coordinates(lane)
        of_burst = tiles.tiles_for_bursts(lane)
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
        first, last = tiles.tiles_for_bursts(group[0]), tiles.tiles_for_bursts(group[-1])
        assert (last - first == len(group) - 1).all()


def test_an_expert_larger_than_the_device_is_not_supported():
    with refused("too-large"):
        tiles_of(1 << 18, 1 << 16, 2, 8)


# ---- Addresses of tiles ----------------------------------------------------------------------------------

GROUPED = {"group_size": 24, "scale_bits": 16}


def by_hand(weights: ExpertWeights, lanes: int, tile_rows: int, word_bits: int, burst_bits: int) -> list:
    """Every bit of an expert in the order of a tile, one by one: (kind, matrix, row, column, bit) by lane and
    bit of the lane, None for padding.
    """
    memory: list[list] = [[] for _ in range(lanes)]
    for matrices, rows in (((0, 1), 2 * weights.intermediate), ((2,), weights.hidden)):
        for tile, first in enumerate(range(0, rows, tile_rows)):
            of_rows = []
            for row in range(first, min(first + tile_rows, rows)):
                matrix = matrices[row % len(matrices)]
                of_matrix, in_matrix = weights.format.matrices[matrix], row // len(matrices)
                steps: list[list] = []
                for column in range(weights.shape(matrix)[1]):
                    step = []
                    if of_matrix.group_size and column % of_matrix.group_size == 0:
                        group = column // of_matrix.group_size
                        for kind, bits in ((1, of_matrix.scale_bits), (2, of_matrix.zero_point_bits)):
                            step += [(kind, matrix, in_matrix, group, bit) for bit in range(bits)]
                    step += [(0, matrix, in_matrix, column, bit) for bit in range(of_matrix.bits)]
                    steps.append(step)
                if word_bits:
                    flat = [bit for step in steps for bit in step]
                    steps = [flat[at : at + word_bits] for at in range(0, len(flat), word_bits)]
                of_rows.append(steps)
            bits = [
                bit for step in itertools.zip_longest(*of_rows, fillvalue=[]) for row in step for bit in row
            ]
            memory[tile % lanes] += bits + [None] * (-len(bits) % burst_bits)
        longest = max(map(len, memory))
        for lane in memory:  # a region begins at the same place on all lanes
            lane += [None] * (longest - len(lane))
    return memory


@pytest.mark.parametrize("throughput", ["inverse-bits", "fixed"])
@pytest.mark.parametrize(
    ("hidden", "intermediate", "written", "sets"),
    [
        (80, 52, ExpertFormat.of(3, **GROUPED), []),
        (80, 52, ExpertFormat.of(16), []),
        (72, 19, ExpertFormat.of({"gate": 4, "up": 4, "down": 3}, **GROUPED), ["ndp.systolic.columns=3"]),
        (40, 33, ExpertFormat.of({"gate": 2, "up": 8, "down": 1}, zero_point_bits=0, **GROUPED), []),
        (64, 36, ExpertFormat.of({"gate": 2, "up": 8, "down": 1}), ["ndp.systolic.arrays=4", "dimm.subchannels=4", "ndp.systolic.columns=5"]),
    ],
)  # fmt: skip
def test_every_bit_lies_where_the_arrays_read_it(hidden, intermediate, written, sets, throughput):
    sets = [
        "dimm.subchannels=8",
        "ndp.systolic.arrays=16",
        f"ndp.systolic.low_bit_throughput={throughput}",
        *sets,
    ]
    layout = place_expert("cxl", Expert(hidden, intermediate), bits=written, sets=sets).layout
    geometry, device = layout.geometry, layout.geometry.device
    arrays = load_hardware("cxl", sets).ndp.systolic
    outputs = arrays.arrays // geometry.lanes * arrays.columns
    word = arrays.native_bits if throughput == "inverse-bits" else 0
    memory = by_hand(layout.weights, geometry.lanes, outputs, word, device.burst_bytes * 8)
    owners, first = [], {}
    for lane, bits in enumerate(memory):
        at = np.arange(len(bits))
        place, bit = np.divmod(at, device.burst_bytes * 8)
        zero = np.zeros_like(at)
        rank, *within = layout.parts[0].interleaving.coordinates(place)
        owner = layout.at(Address(zero, zero, rank, zero + lane, *within, bit))
        found = [
            tuple(of) if of[0] != PADDING else None
            for of in zip(*(part.tolist() for part in owner), strict=True)
        ]
        assert found == bits
        owners += [of for of in bits if of]
        first |= {
            of[:-1]: (lane, *of_bit)
            for of, *of_bit in zip(bits, place.tolist(), bit.tolist(), strict=True)
            if of and of[-1] == 0
        }
    assert len(owners) == len(set(owners)) == sum(layout.weights.matrix_bits())
    for kind, find in ((0, layout.find), (1, layout.find_scale)):
        mine = [of for of in first if of[0] == kind]
        if mine:
            _, matrix, row, column = np.array(mine).T
            address = find(matrix, row, column)
            found = zip(
                address.subchannel,
                layout.parts[0].interleaving.place(address.rank, *address[4:8]),
                address.bit,
                strict=True,
            )
            assert [tuple(map(int, one)) for one in found] == [first[of] for of in mine]


@pytest.mark.parametrize("bits", [16, 3, 1])
def test_a_layout_has_the_bursts_that_an_expert_reads_on_every_lane(bits):
    written = ExpertFormat.of(bits, group_size=0 if bits == 16 else 24)
    run = simulate_expert("cxl", Expert(200, 150), bits=written, record_commands=True)
    placed = place_expert("cxl", Expert(200, 150), bits=written)
    told = placed.to_dict()
    assert (told["bursts"], told["bytes"]) == (run.weight_bursts, run.weight_bytes)
    assert told["bytes"] - sum(told["matrix_bytes"].values()) in (0, 0.5)  # down begins on a byte of its own
    places, interleaving = placed.layout.places(), placed.layout.parts[0].interleaving
    for lane, trace in enumerate(run.command_traces):
        reads = trace.command == [command.name for command in COMMANDS].index("RD")
        at = trace.rank, trace.bankgroup, trace.bank, trace.row, trace.column
        read = interleaving.place(*(values[reads] for values in at))
        assert sorted(read.tolist()) == sorted(places.place[places.lane == lane].tolist())
    assert (placed.layout.burst_at(places) == np.arange(told["bursts"])).all()


def test_a_device_with_arrays_has_localized_only():
    with refused("unsupported layout"):
        place_expert("cxl", layout="striped")
