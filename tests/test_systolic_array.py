"""The timing of a systolic array against numbers worked out by hand and a plain array, which multiplies."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ndpsim.dimm.units.array import Array, tile_timing
from oracles.systolic_array import run_plain

OUTPUT_1, OUTPUT_2 = Array(4, 4, False, 1), Array(4, 4, False, 2)
WEIGHT_1, WEIGHT_2 = Array(4, 4, True, 1), Array(4, 4, True, 2)


def multiplied(array: Array, x, w, arrival=None):
    return run_plain(array, x.tolist(), w.tolist(), arrival)


def tiles(array: Array, tokens: int, inputs: int, count: int = 4, seed: int = 0):
    random = np.random.default_rng(seed)
    x = random.integers(-99, 100, (count, tokens, inputs))
    return x, random.integers(-99, 100, (count, inputs, array.columns))


# Worked out by hand. Output-stationary, K inputs: input k meets element (r, c) in cycle k + r + c, so the last
# product of element (3, 3) is in cycle K - 1 + 3 + 3 and K + 6 cycles have passed: K + R + C - 2. Then the four
# rows of sums leave, one a cycle: K + 10. Weight-stationary, M tokens: four cycles load the rows, token m meets
# element (r, c) in cycle 4 + m + r + c, and the sum of the last leaves the lowest row in cycle 4 + M - 1 + 3 + 3:
# M + 10. For both: 2R + C + length - 2, as SCALE-Sim has it (Samajdar et al., ISPASS 2020, equation 1).
HAND = [
    (OUTPUT_1, 1, 1, 11),
    (OUTPUT_1, 4, 1, 11),
    (OUTPUT_1, 4, 4, 14),
    (OUTPUT_1, 4, 10, 20),
    (OUTPUT_1, 2, 96, 106),
    (WEIGHT_1, 1, 4, 11),
    (WEIGHT_1, 4, 4, 14),
    (WEIGHT_1, 100, 4, 110),
    (Array(2, 3, False, 1), 2, 5, 10),  # 5 + 2 + 3 - 2 and 2 rows
    (Array(3, 2, True, 1), 5, 3, 11),  # 3 to load, 5 + 3 + 2 - 2
    (Array(1, 1, False, 1), 1, 7, 8),  # 7 products and the way out
    (Array(1, 1, True, 1), 7, 1, 8),  # the way in and 7 products
    (Array(4, 4, True, 1, load_rows=2), 4, 4, 12),  # 2 to load
    (Array(4, 4, True, 1, load_rows=4), 4, 4, 11),  # 1 to load
    (Array(4, 4, True, 1, load_rows=3), 4, 4, 12),  # 3 rows at once and then 1: 2 to load
]


@pytest.mark.parametrize(("array", "tokens", "inputs", "cycles"), HAND)
def test_a_tile_takes_the_cycles_worked_out_by_hand(array, tokens, inputs, cycles):
    timing = tile_timing(array, tokens, inputs)
    run = multiplied(array, *tiles(array, tokens, inputs, 1))
    assert timing.cycles + timing.latency == run.known[0] == cycles
    assert array.rows * 2 + array.columns + (tokens if array.weight_stationary else inputs) - 2 == cycles or (
        array.load_rows > 1
    )


@pytest.mark.parametrize(("array", "tokens", "inputs", "cycles"), HAND)
def test_one_register_works_off_tile_after_tile(array, tokens, inputs, cycles):
    run = multiplied(array, *tiles(array, tokens, inputs))
    assert run.known == [cycles, 2 * cycles, 3 * cycles, 4 * cycles]


# With two registers the first tile takes as long, and the next follow at the pace of what enters: K inputs or M
# tokens, but no faster than the rows drain, or load.
OVERLAPPED = [
    (OUTPUT_2, 4, 1, 11, 4),
    (OUTPUT_2, 4, 3, 13, 4),
    (OUTPUT_2, 1, 4, 14, 4),
    (OUTPUT_2, 4, 5, 15, 5),
    (OUTPUT_2, 4, 96, 106, 96),
    (WEIGHT_2, 1, 4, 11, 4),
    (WEIGHT_2, 4, 4, 14, 4),
    (WEIGHT_2, 9, 4, 19, 9),
    (Array(4, 4, True, 2, load_rows=2), 1, 4, 9, 2),
    (Array(4, 4, True, 2, load_rows=4), 1, 4, 8, 1),
    (Array(4, 4, True, 2, load_rows=4), 3, 4, 10, 3),
]


@pytest.mark.parametrize(("array", "tokens", "inputs", "first", "interval"), OVERLAPPED)
def test_two_registers_hide_fill_and_drain(array, tokens, inputs, first, interval):
    run = multiplied(array, *tiles(array, tokens, inputs))
    assert run.known == [first + n * interval for n in range(4)]


arrays = st.builds(
    Array,
    rows=st.integers(1, 5),
    columns=st.integers(1, 5),
    weight_stationary=st.booleans(),
    registers=st.integers(1, 2),
    load_rows=st.integers(1, 5),
).map(lambda array: array._replace(load_rows=min(array.load_rows, array.rows)))


@given(arrays, st.data())
@settings(max_examples=150, deadline=None)
def test_an_array_multiplies_whenever_its_steps_come(array, data):
    tokens = data.draw(st.integers(1, 7 if array.weight_stationary else array.rows))
    inputs = data.draw(st.integers(1, array.rows if array.weight_stationary else 9))
    count, outputs = data.draw(st.integers(1, 4)), data.draw(st.integers(1, array.columns))
    x, w = tiles(array, tokens, inputs, count, data.draw(st.integers(0, 99)))
    w = w[:, :, :outputs]
    steps = count * (array.load_steps if array.weight_stationary else inputs)
    waits = st.lists(st.integers(0, 12) | st.just(0), min_size=steps, max_size=steps)
    arrival = np.cumsum(np.array(data.draw(waits), dtype=np.int64))
    run = multiplied(array, x, w, arrival)
    assert np.array_equal(run.product, x @ w)
    assert (np.array(run.entered) >= arrival).all()


@pytest.mark.parametrize("bits", [8, 4, 3, 2, 1])
def test_words_of_low_bit_weights_take_their_share_of_the_cycles(bits):
    """A word of 16 bits is a step: a weight is multiplied with the word that brings its last bit."""
    inputs = 48
    x, w = tiles(OUTPUT_2, 4, inputs, 3)
    ends = [16 * (word + 1) // bits for word in range(inputs * bits // 16)]
    words = [range(first, end) for first, end in zip([0, *ends], ends, strict=False)]

    def dot(activations, weights):
        return sum(a * b for a, b in zip(activations, weights, strict=True)) if weights else 0

    packed_x = [[[row[word.start : word.stop] for word in words] for row in tile] for tile in x.tolist()]
    packed_w = [
        [list(zip(*tile[word.start : word.stop], strict=True)) for word in words] for tile in w.tolist()
    ]
    twin = run_plain(OUTPUT_2, packed_x, packed_w, multiply=dot)
    assert np.array_equal(np.array(twin.product), x @ w)
    assert np.diff(twin.known).tolist() == [max(inputs * bits // 16, 4)] * 2


@given(arrays, st.integers(1, 9), st.integers(1, 40))
@settings(max_examples=150, deadline=None)
def test_timing_of_a_tile_is_that_of_a_long_run(array, tokens, inputs):
    tokens = tokens if array.weight_stationary else min(tokens, array.rows)
    inputs = array.rows if array.weight_stationary else inputs
    timing, run = tile_timing(array, tokens, inputs), multiplied(array, *tiles(array, tokens, inputs, 6))
    assert timing == run.timing(array)
    assert np.diff(run.known)[2:].tolist() == [timing.cycles + timing.gap] * 3
    steps = len(run.entered) // 6
    work_ends = (
        run.entered[4 * steps] + timing.cycles if array.weight_stationary else run.entered[5 * steps - 1] + 1
    )
    assert run.known[4] == work_ends + timing.latency


@given(st.integers(1, 2), st.integers(1, 60), st.data())
@settings(max_examples=60, deadline=None)
def test_an_array_that_waits_for_weights_is_late_by_what_it_waited(registers, inputs, data):
    """What lets the simulation of an expert treat an output-stationary array as a server of its edge."""
    array, count = Array(4, 4, False, registers), 3
    waits = data.draw(st.lists(st.integers(0, 9), min_size=count * inputs, max_size=count * inputs))
    arrival = np.cumsum(np.array(waits, dtype=np.int64))
    run, timing = multiplied(array, *tiles(array, 2, inputs, count), arrival), tile_timing(array, 2, inputs)
    free = 0
    for tile in range(count):
        for step in range(tile * inputs, (tile + 1) * inputs):
            if step == (tile + 1) * inputs - 1 and registers == 2:
                free = max(free, run.entered[tile * inputs - 1] + 4 if tile else 0)
            free = max(free, int(arrival[step])) + 1
        assert run.known[tile] == free + timing.latency
        free += timing.gap if registers == 1 else 0
