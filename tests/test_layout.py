"""Where weights lie: layouts, tiles, and `ndpsim show layout`."""

from __future__ import annotations

import itertools
import json
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from calls import said
from mistakes import refused
from ndpsim.base.choices import BITS
from ndpsim.base.errors import InputError
from ndpsim.config import load_hardware
from ndpsim.dimm.layout import (
    PADDING,
    Address,
    ExpertFormat,
    ExpertWeights,
    Interleaving,
    LaneShare,
    Region,
    Tiles,
    WeightFormat,
    expert_regions,
)
from ndpsim.dram.spec import Device, resolve, standards
from ndpsim.report.pictures.layout import layout_figure
from ndpsim.simulate import place_expert, simulate_expert
from ndpsim.workload.models import Expert

DEVICES = [
    # Under the rules of the reference: of large GDDR devices no source of tRFC is known.
    resolve(name, org, next(iter(standard.under("reference").speeds)), rules="reference")
    for name, standard in standards().items()
    for org in standard.under("reference").organisations
]
DDR5 = resolve("DDR5", "DDR5_16Gb_x8", "DDR5_4800AN")

devices = st.sampled_from(DEVICES)
formats = st.sampled_from(BITS).map(WeightFormat)
regions = st.builds(
    Region,
    name=st.just("w"),
    rows=st.integers(1, 70),
    columns=st.integers(1, 300),
    formats=formats.map(lambda one: (one,)),
    burst_bytes=st.just(64),
)
lanes = st.integers(1, 17)


def sizes_of(device: Device) -> tuple[int, ...]:
    """How many ranks, bank groups, banks, rows and columns a lane has, each in the one before."""
    of_bank = device.rows, device.bursts_per_row
    return device.ranks, device.bankgroups, device.banks_per_group, *of_bank


def some(*bursts: int) -> tuple[Region, ...]:
    """Regions of so many bursts."""
    return tuple(Region("w", count, 32, (WeightFormat(16),), 64) for count in bursts)


# Regions


@settings(deadline=None)
@given(regions)
def test_the_rows_of_a_burst_are_those_whose_bits_it_holds(region):
    first, last = region.burst_rows(np.arange(region.bursts))
    row_bits, burst_bits = region.columns * region.formats[0].bits, region.burst_bytes * 8
    for burst in range(region.bursts):
        end = min((burst + 1) * burst_bits, region.rows * row_bits)
        assert (first[burst], last[burst]) == (burst * burst_bits // row_bits, (end - 1) // row_bits)
    assert (first[0], last[-1]) == (0, region.rows - 1)
    assert (first[1:] - last[:-1] <= 1).all()


@settings(deadline=None)
@given(regions)
def test_bytes_and_bursts_are_the_fewest_that_hold_the_bits(region):
    total = region.rows * region.columns * region.formats[0].bits
    assert (region.bytes - 1) * 8 < total <= region.bytes * 8
    assert (region.bursts - 1) * region.burst_bytes < region.bytes <= region.bursts * region.burst_bytes


@pytest.mark.parametrize(
    ("rows", "columns", "weight_bits", "first", "last"),
    [
        (3, 32, 16, [0, 1, 2], [0, 1, 2]),  # a row is a burst
        (2, 64, 16, [0, 0, 1, 1], [0, 0, 1, 1]),  # two bursts
        (4, 16, 16, [0, 2], [1, 3]),  # half a burst
        (3, 48, 16, [0, 0, 1, 2, 2], [0, 1, 1, 2, 2]),  # one and a half: burst 1 holds parts of two rows
        (3, 100, 3, [0, 1], [1, 2]),  # 300 bits each, 512 in a burst
        (1, 1, 1, [0], [0]),
    ],
)
def test_hand_worked_rows(rows, columns, weight_bits, first, last):
    region = Region("w", rows, columns, (WeightFormat(weight_bits),), 64)
    begin, end = region.burst_rows(np.arange(region.bursts))
    assert (begin.tolist(), end.tolist()) == (first, last)


def test_an_expert_is_gate_and_up_by_turns_and_then_down():
    gate_up, down = expert_regions(4096, 1536, 16, 64)
    assert (gate_up.name, gate_up.rows, gate_up.columns) == ("gate-up", 2 * 1536, 4096)
    assert (down.name, down.rows, down.columns) == ("down", 4096, 1536)
    # Qwen3-235B-A22B: 3 x 4096 x 1536 weights of 2 bytes are 36 MiB.
    assert gate_up.bytes + down.bytes == 36 << 20
    assert gate_up.bursts + down.bursts == 589_824


# Interleaving out over lanes


@settings(deadline=None)
@given(devices, st.lists(st.floats(0, 1, exclude_max=True), min_size=1, max_size=20))
def test_place_is_the_inverse_of_coordinates(device, shares):
    places = np.array([int(share * (device.capacity_bytes // device.burst_bytes)) for share in shares])
    layout = Interleaving(some(1), device, 1)
    coordinates = layout.coordinates(places)
    assert layout.place(*coordinates).tolist() == places.tolist()
    for values, size in zip(coordinates, sizes_of(device), strict=True):
        assert values.min() >= 0
        assert values.max() < size


@settings(deadline=None)
@given(devices, st.integers(0, 1 << 20))
def test_consecutive_bursts_go_to_different_bank_groups(device, start):
    count = device.ranks * device.groups_per_stack
    assume(count > 1)  # GDDR7 has neither ranks nor bank groups
    places = np.arange(start, start + 3 * count)
    rank, bankgroup, bank, _, _ = Interleaving(some(1), device, 1).coordinates(places)
    group = rank * device.groups_per_stack + bankgroup % device.groups_per_stack
    for first in range(count):  # any round of them takes every group of every rank once
        assert len(set(group[first : first + count].tolist())) == count
    bank_of_lane = ((rank * device.bankgroups + bankgroup) * device.banks_per_group + bank).tolist()
    assert all(one != other for one, other in pairwise(bank_of_lane))


@settings(deadline=None)
@given(devices)
def test_a_row_is_filled_before_the_next_and_all_banks_before_it_comes_again(device):
    banks = device.stacks * device.banks_per_group
    places = np.arange(2 * device.open_bursts * banks, dtype=np.int64)
    _, bankgroup, bank, row, _ = Interleaving(some(1), device, 1).coordinates(places)
    stack = bankgroup // device.groups_per_stack
    opened = ((row * device.stacks + stack) * device.banks_per_group + bank).reshape(-1, device.open_bursts)
    assert (opened == opened[:, :1]).all()  # the same rows stay open for as long as they have bursts
    assert opened[:, 0].tolist() == list(range(2 * banks))


@settings(deadline=None)
@given(st.lists(regions, min_size=1, max_size=3), lanes)
def test_the_lanes_share_every_burst(chosen, count):
    layout = Interleaving(chosen, DDR5, count)
    shares = [layout.share(lane) for lane in range(count)]
    for region, placed in enumerate(chosen):
        of_lanes = [share.bursts[region] for share in shares]
        assert sum(of_lanes) == placed.bursts
        assert max(of_lanes) - min(of_lanes) <= 1
        assert of_lanes == sorted(of_lanes, reverse=True)  # burst n lies on lane n mod lanes
    assert sum(share.total for share in shares) == sum(region.bursts for region in chosen)


@settings(deadline=None)
@given(st.lists(regions, min_size=1, max_size=3), lanes)
def test_the_rows_of_lanes_are_those_of_their_bursts(chosen, count):
    layout = Interleaving(chosen, DDR5, count)
    alike = [lane for lane in range(count) if layout.share(lane) == layout.share(0)]
    first, last = layout.rows(range(alike[0], alike[-1] + 1))
    place, before = 0, 0
    for region in chosen:
        dealt = [np.arange(region.bursts)[lane::count] for lane in alike]
        for bursts in zip(*dealt, strict=True):
            rows = [region.burst_rows(np.array([burst])) for burst in bursts]
            assert first[place] == before + min(int(low[0]) for low, _ in rows)
            assert last[place] == before + max(int(high[0]) for _, high in rows)
            place += 1
        before += region.rows
    assert place == len(first)


def test_hand_worked_shares():
    layout = Interleaving(some(10, 3), DDR5, 4)
    assert [layout.share(lane) for lane in range(4)] == [
        LaneShare((3, 1)),
        LaneShare((3, 1)),
        LaneShare((2, 1)),
        LaneShare((2, 0)),
    ]
    # Every region begins at the same place on every lane: after ceil(10 / 4) = 3 bursts.
    assert layout.lane_bursts(layout.share(0)).tolist() == [0, 1, 2, 3]
    assert layout.lane_bursts(layout.share(2)).tolist() == [0, 1, 3]
    assert layout.lane_bursts(layout.share(3)).tolist() == [0, 1]


def full(device: Device, count: int) -> int:
    return count * device.capacity_bytes // device.burst_bytes


@settings(deadline=None)
@given(devices, lanes)
def test_weights_fit_up_to_the_last_burst(device, count):
    Interleaving(some(full(device, count)), device, count)
    with refused("too-large"):
        Interleaving(some(full(device, count) + 1), device, count)


@settings(deadline=None)
@given(st.integers(1, 1000), st.integers(1, 1000), lanes)
def test_what_does_not_fill_its_round_over_the_lanes_still_needs_it(one, other, count):
    whole = -(-one // count) * count + -(-other // count) * count
    assume(whole < full(DDR5, count))
    Interleaving(some(one, other, full(DDR5, count) - whole), DDR5, count)
    with pytest.raises(InputError):
        Interleaving(some(one, other, full(DDR5, count) - whole + 1), DDR5, count)


# ---- `ndpsim show layout`: what it says, and that its picture shows what lies where


@pytest.mark.parametrize("name", ["localized", "striped", "sharded:5"])
def test_bytes_add_up_over_matrices_dimms_and_lanes(name):
    told = json.loads(said("show", "layout", name, "--bits", "4", "--group-size", "128", "--json", "-"))
    # 1536 rows of 4096 weights of 4 bits in 32 groups with 20 bits each, twice; 4096 rows of 1536 in 12.
    assert told["matrix_bytes"] == {"gate": 3268608, "up": 3268608, "down": 3268608}
    assert told["bytes"] == sum(told["matrix_bytes"].values())
    for matrix, size in told["matrix_bytes"].items():
        assert sum(dimm["matrix_bytes"][matrix] for dimm in told["dimms"]) == size
        for dimm in told["dimms"]:
            lanes = [lane["matrix_bytes"][matrix] for lane in dimm["lanes"]]
            assert sum(lanes) == dimm["matrix_bytes"][matrix]
    assert [dimm["dimm"] for dimm in told["dimms"]] == list(
        range({"localized": 1, "striped": 16, "sharded:5": 5}[name])
    )
    assert [dimm["channel"] for dimm in told["dimms"]] == [dimm["dimm"] % 8 for dimm in told["dimms"]]


def test_the_table_names_every_dimm():
    text = said("show", "layout", "sharded:5", "--hw", "edge", "--model", "mixtral-8x7b")
    assert "mixtral-8x7b on edge, sharded:5: 336.00 MiB, 16 bits" in text
    lines = [line.split() for line in text.splitlines()]
    assert [line[:2] for line in lines if line and line[0].isdigit()] == [
        ["0", "0"],
        ["1", "1"],
        ["2", "0"],
        ["3", "1"],
        ["4", "0"],
    ]


@pytest.mark.parametrize(
    ("hw", "name"),
    [
        ("trimoe", "striped"),
        ("edge", "sharded:3"),
        pytest.param("trimoe", "localized", marks=pytest.mark.long),
    ],
)
def test_the_picture_is_drawn(hw, name):
    for expert in (Expert(3, 5), Expert(512, 256)):
        assert layout_figure(place_expert(hw, expert, name, ExpertFormat.of(4, group_size=1))).axes


# ---- Tiles of weights on the channels of a device: nothing lost, nothing twice, interleaved evenly

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
WITHOUT_GATE = ExpertFormat(None, WeightFormat(3, 24), WeightFormat(4))


def by_hand(weights: ExpertWeights, lanes: int, tile_rows: int, word_bits: int, burst_bits: int) -> list:
    """Every bit of an expert in the order of a tile, one by one: (kind, matrix, row, column, bit) by lane and
    bit of the lane, None for padding.
    """
    memory: list[list] = [[] for _ in range(lanes)]
    *inward, down = range(len(weights.format.names))
    for matrices, rows in ((inward, len(inward) * weights.intermediate), ([down], weights.hidden)):
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
        (80, 52, WITHOUT_GATE, []),
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
    expert = Expert(hidden, intermediate, gated=written.gate is not None)
    layout = place_expert("cxl", expert, bits=written, sets=sets).layout
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
