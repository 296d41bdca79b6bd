"""Where weights lie."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from mistakes import refused
from ndpsim.base.errors import InputError
from ndpsim.base.options.weights import BITS
from ndpsim.dimm.layout import Interleaving, LaneShare, Region, WeightFormat, expert_regions
from ndpsim.dram.spec import Device, resolve, standards

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
