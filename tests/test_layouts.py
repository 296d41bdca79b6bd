"""Layouts of an expert on a machine's DIMMs: every bit has one place, every place at most one bit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mistakes import refused
from ndpsim.base.choices import BITS
from ndpsim.config import load_hardware
from ndpsim.dimm.layout import (
    MATRICES,
    PADDING,
    SCALE,
    WEIGHT,
    ZERO_POINT,
    Address,
    BurstPlaces,
    ExpertFormat,
    ExpertWeights,
    Geometry,
    Layout,
    WeightFormat,
    localized,
    make_layout,
    moves,
    sharded,
    striped,
)
from ndpsim.dram.spec import resolve
from ndpsim.simulate.machine import geometry_of
from ndpsim.workload.models import Expert

DDR5 = resolve("DDR5", "DDR5_16Gb_x8", "DDR5_4800AN")
DDR4 = resolve("DDR4", "DDR4_8Gb_x8", "DDR4_3200AA")
HBM3 = resolve("HBM3", "HBM3_8Gb_8hi", "HBM3_6400Mbps")
TRIMOE = geometry_of(load_hardware("trimoe"))
EDGE = geometry_of(load_hardware("edge"))
QWEN = ExpertWeights(4096, 1536, ExpertFormat.of(16))

geometries = st.builds(
    Geometry,
    channels=st.integers(1, 3),
    dimms=st.integers(1, 5),
    ranks=st.integers(1, 3),
    subchannels=st.integers(1, 2),
    device=st.sampled_from([DDR5, DDR4, HBM3]),
)
matrix_formats = st.builds(
    WeightFormat,
    bits=st.sampled_from(BITS[1:]),
    group_size=st.sampled_from([0, 1, 3, 8, 32]),
    scale_bits=st.sampled_from([1, 8, 16]),
    zero_point_bits=st.sampled_from([0, 3, 16]),
) | st.just(WeightFormat(16))
experts = st.builds(
    ExpertWeights,
    hidden=st.integers(1, 70),
    intermediate=st.integers(1, 70),
    format=st.builds(ExpertFormat, gate=st.none() | matrix_formats, up=matrix_formats, down=matrix_formats),
)


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    geometry, weights = draw(geometries), draw(experts)
    base = draw(st.sampled_from([0, 1, 1000]))
    unit = weights.format.down.group_size or 1
    most = min(geometry.dimms, -(-weights.intermediate // unit))
    choice = draw(st.sampled_from(["localized", "striped", "sharded"]))
    if choice == "localized":
        return localized(geometry, weights, draw(st.integers(0, geometry.dimms - 1)), base)
    if choice == "striped":
        return striped(geometry, weights, base)
    count = draw(st.integers(1, most))
    return sharded(geometry, weights, count, draw(st.integers(0, geometry.dimms - count)), base)


def every_weight(weights: ExpertWeights) -> np.ndarray:
    """(matrix, row, column) of every weight, int64[3, n]."""
    each = []
    for matrix in range(len(weights.format.names)):
        rows, columns = weights.shape(matrix)
        row, column = np.divmod(np.arange(rows * columns), columns)
        each.append(np.array([np.full_like(row, matrix), row, column]))
    return np.concatenate(each, axis=1)


def every_group(weights: ExpertWeights) -> np.ndarray:
    """(matrix, row, group) of every group."""
    each = [np.zeros((3, 0), dtype=np.int64)]
    for matrix, of_matrix in enumerate(weights.format.matrices):
        rows, columns = weights.shape(matrix)
        groups = of_matrix.groups(columns)
        if groups:
            row, group = np.divmod(np.arange(rows * groups), groups)
            each.append(np.array([np.full_like(row, matrix), row, group]))
    return np.concatenate(each, axis=1)


def every_bit(layout: Layout) -> tuple[np.ndarray, np.ndarray]:
    """Burst and bit of every bit of the bursts of a layout."""
    burst_bits = layout.geometry.device.burst_bytes * 8
    return tuple(np.divmod(np.arange(layout.bursts * burst_bits), burst_bits))


# ---- there and back ------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=150)
@given(layouts())
def test_every_weight_is_found_where_it_lies(layout):
    matrix, row, column = every_weight(layout.weights)
    address = layout.find(matrix, row, column)
    owner = layout.at(address)
    assert (owner.kind == WEIGHT).all()
    for found, asked in zip(owner[1:], (matrix, row, column, np.zeros_like(row)), strict=True):
        assert np.array_equal(found, asked)
    sizes = (
        layout.geometry.channels,
        layout.geometry.dimms,
        layout.geometry.ranks * layout.geometry.device.ranks,
        layout.geometry.subchannels,
        layout.geometry.device.bankgroups,
        layout.geometry.device.banks_per_group,
        layout.geometry.device.rows,
        layout.geometry.device.bursts_per_row,
        layout.geometry.device.burst_bytes * 8,
    )
    for values, size in zip(address, sizes, strict=True):
        assert values.min() >= 0
        assert values.max() < size


@settings(deadline=None)
@given(layouts())
def test_every_scale_is_found_where_it_lies(layout):
    matrix, row, group = every_group(layout.weights)
    owner = layout.at(layout.find_scale(matrix, row, group))
    assert (owner.kind == SCALE).all()
    for found, asked in zip(owner[1:], (matrix, row, group, np.zeros_like(row)), strict=True):
        assert np.array_equal(found, asked)


@settings(deadline=None, max_examples=150)
@given(layouts())
def test_no_two_share_a_bit_and_all_bits_are_there(layout):
    """Every bit of every burst tells whom it belongs to: each item has each of its bits once."""
    owner = layout.owner(*every_bit(layout))
    formats = layout.weights.format.matrices
    counted = 0
    for kind in (WEIGHT, SCALE, ZERO_POINT):
        items = every_weight(layout.weights) if kind == WEIGHT else every_group(layout.weights)
        for matrix, of_matrix in enumerate(formats):
            bits = (of_matrix.bits, of_matrix.scale_bits, of_matrix.zero_point_bits)[kind]
            wanted = np.count_nonzero(items[0] == matrix) * bits
            chosen = (owner.kind == kind) & (owner.matrix == matrix)
            whole = (owner.row[chosen] << 40) + (owner.column[chosen] << 10) + owner.bit[chosen]
            assert len(np.unique(whole)) == len(whole) == wanted
            if wanted:
                assert (owner.bit[chosen].min(), owner.bit[chosen].max()) == (0, bits - 1)
                assert owner.column[chosen].max() == items[2][items[0] == matrix].max()
            counted += wanted
    assert np.count_nonzero(owner.kind == PADDING) == len(owner.kind) - counted
    assert sum(layout.weights.matrix_bits()) == counted


@settings(deadline=None)
@given(layouts())
def test_the_bits_of_a_weight_follow_each_other_in_the_stream(layout):
    burst, bit = every_bit(layout)
    owner = layout.owner(burst, bit)
    burst_bits = layout.geometry.device.burst_bytes * 8
    begins = (owner.kind == WEIGHT) & (owner.bit == 0)
    found = layout.find_bit(owner.matrix[begins], owner.row[begins], owner.column[begins])
    of_weight = (burst * burst_bits + bit)[begins]
    assert np.array_equal(found[0] * burst_bits + found[1], of_weight)
    stays = owner.bit[1:] > 0
    same = (owner.row[1:] == owner.row[:-1]) & (owner.column[1:] == owner.column[:-1])
    assert (same & (owner.bit[1:] == owner.bit[:-1] + 1))[stays].all()


@settings(deadline=None)
@given(layouts())
def test_every_burst_has_a_place_of_its_own(layout):
    places = layout.places()
    assert len({*zip(*(values.tolist() for values in places), strict=True)}) == layout.bursts
    assert np.array_equal(layout.burst_at(places), np.arange(layout.bursts))
    assert places.place.min() == layout.base
    assert places.place.max() == layout.end - 1


@settings(deadline=None)
@given(layouts())
def test_where_nothing_lies_nothing_is_found(layout):
    geometry = layout.geometry
    taken = {*zip(*(values.tolist() for values in layout.places()), strict=True)}
    last = min(layout.end + 3, geometry.device.capacity_bytes // geometry.device.burst_bytes)
    around = range(max(0, layout.base - 2), last)
    for dimm in range(geometry.dimms):
        for lane in range(geometry.lanes):
            asked = BurstPlaces(*(np.full(len(around), value) for value in (dimm, lane)), np.array(around))
            found = layout.burst_at(asked) >= 0
            assert found.tolist() == [(dimm, lane, place) in taken for place in around]


@pytest.mark.parametrize("name", ["localized", "striped", "sharded:5", "sharded:16"])
@pytest.mark.parametrize(
    "format", [ExpertFormat.of(16), ExpertFormat.of(dict(gate=4, up=3, down=8), group_size=96)]
)
def test_any_weight_of_a_whole_expert(name, format):
    layout = make_layout(name, TRIMOE, ExpertWeights(4096, 1536, format))
    random = np.random.default_rng(1)
    matrix = random.integers(0, 3, 100_000)
    rows = np.where(matrix == 2, 4096, 1536)
    row, column = random.integers(0, rows), random.integers(0, 4096 + 1536 - rows)
    owner = layout.at(layout.find(matrix, row, column))
    assert (owner.kind == WEIGHT).all()
    assert (owner.bit == 0).all()
    for found, asked in zip(owner[1:4], (matrix, row, column), strict=True):
        assert np.array_equal(found, asked)


# ---- bytes ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("of_matrix", "columns", "bits"),
    [
        (WeightFormat(16), 100, 1600),
        (WeightFormat(3), 100, 300),
        (WeightFormat(4, 128, 16, 4), 4096, 4096 * 4 + 32 * 20),
        (WeightFormat(4, 128, 16, 0), 4096, 4096 * 4 + 32 * 16),
        (WeightFormat(2, 64, 16, 2), 100, 200 + 2 * 18),  # the second group has 36 weights
        (WeightFormat(1, 1, 8, 8), 3, 3 * 17),
    ],
)
def test_bits_of_a_row_by_hand(of_matrix, columns, bits):
    assert of_matrix.row_bits(columns) == bits


def test_a_row_of_groups_by_hand():
    """Two groups, of 3 and 2 weights of 4 bits, each behind a scale of 5 and a zero point of 2 bits."""
    owner = WeightFormat(4, 3, 5, 2).owner(np.arange(19 + 15))
    header = [SCALE] * 5 + [ZERO_POINT] * 2
    assert owner.kind.tolist() == header + [WEIGHT] * 12 + header + [WEIGHT] * 8
    assert owner.column.tolist() == [0] * 11 + [1] * 4 + [2] * 4 + [1] * 7 + [3] * 4 + [4] * 4
    of_header, of_weight = [0, 1, 2, 3, 4, 0, 1], [0, 1, 2, 3]
    assert owner.bit.tolist() == of_header + of_weight * 3 + of_header + of_weight * 2


def test_bytes_of_an_expert_by_hand():
    # gate and up: 1536 rows of 4096 weights in 32 groups; down: 4096 rows of 1536 in 12.
    four = ExpertWeights(4096, 1536, ExpertFormat.of(4, group_size=128))
    assert four.matrix_bits() == (1536 * (16384 + 640), 1536 * (16384 + 640), 4096 * (6144 + 240))
    assert localized(TRIMOE, four).bytes * 8 == sum(four.matrix_bits())
    assert localized(TRIMOE, QWEN).bytes == striped(TRIMOE, QWEN).bytes == sharded(TRIMOE, QWEN, 7).bytes
    assert localized(TRIMOE, QWEN).bytes == Expert(4096, 1536).weight_bytes() == 36 << 20
    mixed = ExpertWeights(4096, 1536, ExpertFormat.of(dict(gate=4, up=8, down=16), group_size=128))
    assert mixed.matrix_bits() == (1536 * (16384 + 640), 1536 * (32768 + 32 * 24), 4096 * 1536 * 16)


def test_a_zero_point_has_the_bits_of_its_weights_if_nothing_else_is_said():
    assert [one.zero_point_bits for one in ExpertFormat.of(3, 64).matrices] == [3, 3, 3]
    assert [one.zero_point_bits for one in ExpertFormat.of(3, 64, zero_point_bits=0).matrices] == [0, 0, 0]
    assert ExpertFormat.of(dict(gate=16, up=4, down=4), 64).gate == WeightFormat(16)


@settings(deadline=None)
@given(layouts())
def test_the_bits_of_each_matrix_in_bursts_and_on_lanes(layout):
    burst, bit = every_bit(layout)
    owner = layout.owner(burst, bit)
    told = layout.matrix_bits()
    for matrix in range(len(layout.weights.format.names)):
        counted = np.bincount(burst[owner.matrix == matrix], minlength=layout.bursts)
        assert np.array_equal(told[matrix], counted)
    on_lanes = layout.lane_bits()
    assert on_lanes.sum(axis=(0, 1)).tolist() == list(layout.weights.matrix_bits())
    places = layout.places()
    for dimm, lane in {*zip(places.dimm.tolist(), places.lane.tolist(), strict=True)}:
        here = (places.dimm == dimm) & (places.lane == lane)
        assert np.array_equal(on_lanes[dimm, lane], told[:, here].sum(axis=1))


# ---- who gets what -------------------------------------------------------------------------------------


def per_lane(layout: Layout) -> np.ndarray:
    """Bursts by DIMM and lane."""
    places, lanes = layout.places(), layout.geometry.lanes
    counts = np.bincount(places.dimm * lanes + places.lane, minlength=layout.geometry.dimms * lanes)
    return counts.reshape(layout.geometry.dimms, lanes)


@settings(deadline=None)
@given(layouts())
def test_bursts_by_dimm_are_those_whose_places_are_there(layout):
    assert layout.bursts_by_dimm().tolist() == per_lane(layout).sum(axis=1).tolist()


@settings(deadline=None)
@given(geometries, experts)
def test_striped_and_localized_are_even_to_a_burst_a_region(geometry, weights):
    assert np.ptp(per_lane(striped(geometry, weights))) <= 2
    assert np.ptp(per_lane(localized(geometry, weights))[0]) <= 2


@settings(deadline=None)
@given(experts, st.integers(1, 16))
def test_slices_differ_by_at_most_one_weight_or_group(weights, count):
    unit = weights.format.down.group_size or 1
    if -(-weights.intermediate // unit) < count:
        with refused("range layout"):
            weights.slices(count)
        return
    slices = weights.slices(count)
    assert [index for one in slices for index in one] == list(range(weights.intermediate))
    units = [-(-len(one) // unit) for one in slices]
    assert max(units) - min(units) <= 1
    assert all(one.start % unit == 0 for one in slices)


def test_a_shard_holds_its_rows_of_gate_and_up_and_its_columns_of_down():
    layout = sharded(EDGE, ExpertWeights(64, 10, ExpertFormat.of(16)), 4)
    assert [len(part.slice) for part in layout.parts] == [2, 3, 2, 3]
    matrix, row, column = every_weight(layout.weights)
    of_slice = np.where(matrix == 2, column, row)
    dimm = layout.find(matrix, row, column).dimm
    assert dimm.tolist() == [[0, 0, 1, 1, 1, 2, 2, 3, 3, 3][index] for index in of_slice]


def test_striped_goes_over_channels_then_subchannels_then_dimms_then_ranks():
    places = striped(TRIMOE, QWEN).places()
    dimm, lane, place = (values[:260].tolist() for values in places)
    assert dimm[:17] == [*range(8), *range(8), 8]
    assert lane[:33] == [0] * 8 + [1] * 8 + [0] * 8 + [1] * 8 + [2]
    assert place == [0] * 128 + [1] * 128 + [2] * 4
    assert (TRIMOE.channel_of(np.array([0, 7, 8, 15])) == [0, 7, 0, 7]).all()


def test_a_bus_of_the_host_has_each_rank_once_those_of_a_dimm_together():
    geometry = Geometry(channels=2, dimms=6, ranks=3, subchannels=2, device=DDR5)
    dimm, lane = (each.ravel() for each in np.indices((6, geometry.lanes)))
    rank = geometry.host_rank(dimm, lane)
    for channel in range(2):
        for subchannel in range(2):
            on_bus = (geometry.channel_of(dimm) == channel) & (lane % 2 == subchannel)
            assert rank[on_bus].tolist() == list(range(9))
            assert dimm[on_bus].tolist() == [channel + 2 * at for at in range(3) for _ in range(3)]


def test_localized_goes_over_lanes_then_bank_groups():
    address = localized(TRIMOE, QWEN, dimm=9).address(np.arange(80), np.zeros(80, dtype=np.int64))
    assert set(address.dimm) == {9}
    assert set(address.channel) == {1}
    assert (2 * address.rank + address.subchannel).tolist() == list(range(8)) * 10
    assert address.bankgroup[::8].tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 0, 1]
    assert address.column[::8].tolist() == [0] * 8 + [1] * 2


def test_gate_and_up_lie_row_by_row_in_turn_and_down_behind():
    layout = localized(TRIMOE, QWEN)
    burst, bit = layout.find_bit([0, 1, 0, 2], [0, 0, 1, 0], [0, 0, 33, 0])
    assert burst.tolist() == [0, 128, 256 + 1, 2 * 1536 * 4096 // 32]
    assert bit.tolist() == [0, 0, 16, 0]


def test_one_expert_lies_behind_another():
    first = localized(TRIMOE, QWEN)
    second = localized(TRIMOE, QWEN, base=first.end)
    assert first.end == 589_824 // 8
    one, other = first.places(), second.places()
    assert np.array_equal(one.place + first.end, other.place)
    assert (first.burst_at(other) == -1).all()


# ---- from one to another -------------------------------------------------------------------------------


@settings(deadline=None, max_examples=25)
@given(layouts(), st.data())
def test_moves_take_every_bit_to_where_it_belongs(source, data):
    geometry, weights = source.geometry, source.weights
    names = ["localized", "striped", "sharded:1"]
    unit = weights.format.down.group_size or 1
    most = min(geometry.dimms, -(-weights.intermediate // unit))
    names.append(f"sharded:{most}")
    target = make_layout(data.draw(st.sampled_from(names)), geometry, weights)
    moved = moves(source, target)

    owner = source.owner(*every_bit(source))
    in_use = owner.kind != PADDING
    keys = [np.array(values)[in_use] for values in owner]
    begins = [(owner.kind == kind) for kind in (WEIGHT, SCALE, ZERO_POINT)]
    assert sum(np.count_nonzero(one) for one in begins) == moved.bits.sum() == sum(weights.matrix_bits())

    def bursts_of(layout: Layout) -> dict[tuple[int, ...], int]:
        burst, bit = every_bit(layout)
        of_bit = layout.owner(burst, bit)
        rows = zip(*(values.tolist() for values in of_bit), burst.tolist(), strict=True)
        return {row[:5]: row[5] for row in rows if row[0] != PADDING}

    there, here = bursts_of(target), bursts_of(source)
    counted: dict[tuple[int, int], int] = {}
    for key in zip(*(values.tolist() for values in keys), strict=True):
        pair = here[key], there[key]
        counted[pair] = counted.get(pair, 0) + 1
    told = {(s, t): b for s, t, b in zip(*(values.tolist() for values in moved), strict=True)}
    assert told == counted
    assert len(moved.bits) == len(told)


def test_localized_to_striped_moves_whole_bursts():
    moved = moves(localized(TRIMOE, QWEN), striped(TRIMOE, QWEN))
    assert np.array_equal(moved.source, np.arange(589_824))
    assert np.array_equal(moved.target, moved.source)
    assert (moved.bits == 512).all()


# ---- what is refused -----------------------------------------------------------------------------------


def test_what_does_not_fit_is_refused_by_its_bytes():
    big = ExpertWeights(1 << 20, 1 << 16, ExpertFormat.of(16))  # 384 GiB
    with refused("too-large"):
        localized(TRIMOE, big)
    with refused("too-large"):
        striped(EDGE, big)
    striped(TRIMOE, big)
    sharded(TRIMOE, big, 4)
    with refused("too-large"):
        sharded(TRIMOE, big, 2)


def test_what_lies_before_takes_room():
    places = DDR5.capacity_bytes // 64
    geometry = Geometry(1, 1, 1, 1, DDR5)
    one = ExpertWeights(32, 1, ExpertFormat.of(16))  # 3 bursts, but down in rows of one weight: 64 bytes
    localized(geometry, one, base=places - 3)
    with refused("too-large"):
        localized(geometry, one, base=places - 2)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: make_layout("sharded:0", EDGE, QWEN), "range layout"),
        (lambda: make_layout("sharded:7", EDGE, QWEN), "range layout"),
        (lambda: make_layout("sharded:6", EDGE, QWEN, dimm=1), "range layout"),
        (lambda: localized(EDGE, QWEN, dimm=6), "range dimm"),
        (lambda: WeightFormat(7), "range bits"),
        (lambda: WeightFormat(True), "range bits"),
        (lambda: WeightFormat(16, 128), "conflict group_size"),
        (lambda: WeightFormat(4, -1), "range group_size"),
        (lambda: WeightFormat(4, 128, 0), "range scale_bits"),
        (lambda: WeightFormat(4, 128, 16, -1), "range zero_point_bits"),
        (lambda: ExpertFormat.of(16, 128), "conflict group_size"),
        (lambda: ExpertFormat.of(dict(gate=4, up=4)), "missing bits"),
        (lambda: ExpertFormat.of(dict(gate=4, up=4, dwn=4)), "unknown-name bits ? down"),
        (lambda: Geometry(0, 1, 1, 1, DDR5), "range channels"),
        (lambda: localized(EDGE, QWEN).find(0, 1536, 0), "range row"),
        (lambda: localized(EDGE, QWEN).find(2, 0, 1536), "range column"),
        (lambda: localized(EDGE, QWEN).find(3, 0, 0), "range matrix"),
        (lambda: localized(EDGE, QWEN).find_scale(1, 0, 0), "conflict matrix"),
        (
            lambda: moves(
                localized(EDGE, QWEN), localized(EDGE, ExpertWeights(4096, 1536, ExpertFormat.of(8)))
            ),
            "conflict layout",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(make, words):
    with refused(words):
        make()


def test_an_address_of_python_numbers():
    address = localized(EDGE, QWEN).find(MATRICES.index("down"), 5, 7)
    assert isinstance(address, Address)
    assert all(len(values) == 1 for values in address)
