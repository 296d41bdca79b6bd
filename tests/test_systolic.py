"""Systolic arrays: timing by hand and against a plain array; experts on a CXL device within closed bounds."""

from __future__ import annotations

import functools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mistakes import mistake_of, refused
from ndpsim.audit import check
from ndpsim.config import load_hardware
from ndpsim.dimm.layout import ExpertFormat
from ndpsim.dimm.units.systolic import Array, tile_timing
from ndpsim.simulate import ExpertResult, simulate_expert
from ndpsim.workload.models import Expert
from oracles.systolic_array import run_plain
from pairs import all_pairs

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


# ---- An expert on the arrays of a CXL device: closed bounds, the paper's figures, low bits, legality

WEIGHTS = 3 * 4096 * 14336  # of an expert of Mixtral-8x7B, table 1 of the cxl paper
FIXED = "ndp.systolic.low_bit_throughput=fixed"
WEIGHT_STATIONARY = "ndp.systolic.dataflow=weight-stationary"
ONE_REGISTER = "ndp.systolic.stationary_registers=1"
NO_REFRESH = "dram.refresh=none"
# A port for the weights of every element, so that one token can keep all of them at work.
ALL_ELEMENTS = (WEIGHT_STATIONARY, "ndp.systolic.load_rows=4")
SMALL = Expert(512, 256)


@functools.cache
def mixtral(bits: int = 16, tokens: int = 1, *sets: str) -> ExpertResult:
    return simulate_expert("cxl", "mixtral-8x7b", tokens, bits=bits, sets=sets)


# ---- one token at 16 bits ----------------------------------------------------------------------------


def test_never_faster_than_memory_arrays_and_link():
    result = mixtral()
    assert result.time_ns > 2 * WEIGHTS / 512
    assert result.time_ns > 2 * WEIGHTS / 2048
    assert result.peak_fraction < 1 - 820 / 7800  # tRFC / tREFI
    assert result.peak_fraction > 0.88
    assert result.bound == "memory"


def test_without_refresh_the_stream_reaches_the_bus():
    assert 0.995 < mixtral(16, 1, NO_REFRESH).peak_fraction < 1


# ---- low bits ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dataflow", [(), (WEIGHT_STATIONARY,)], ids=["output", "weight"])
@pytest.mark.parametrize("bits", [8, 4, 3, 2, 1])
def test_inverse_bits_is_faster_by_the_bytes_it_saves(bits, dataflow):
    whole, low = mixtral(16, 1, *dataflow), mixtral(bits, 1, *dataflow)
    assert low.weight_bytes * 16 == whole.weight_bytes * bits
    assert whole.time_ns / low.time_ns == pytest.approx(16 / bits, rel=0.01)
    assert low.bound == "memory"


@pytest.mark.parametrize("bits", [3, 2])
def test_scales_and_zero_points_cost_their_bytes(bits):
    grouped = ExpertFormat.of(bits, group_size=128, scale_bits=16, zero_point_bits=bits)
    low = simulate_expert("cxl", "mixtral-8x7b", bits=grouped)
    per_weight = bits + Fraction(16 + bits, 128)
    assert low.weight_bytes * 8 == WEIGHTS * per_weight
    assert mixtral().time_ns / low.time_ns == pytest.approx(float(16 / per_weight), rel=0.01)


@pytest.mark.parametrize("bits", [8, 4, 3, 2, 1])
def test_fixed_gains_nothing_where_weights_enter_at_an_edge(bits):
    """One token uses one row of every array: at 16 bits the arrays take what the memory gives."""
    ratio = mixtral(16, 1, NO_REFRESH).time_ns / mixtral(bits, 1, NO_REFRESH, FIXED).time_ns
    assert ratio == pytest.approx(1, rel=0.01)
    assert mixtral(bits, 1, FIXED).bound == "compute"
    # With refresh, which the arrays of the 16-bit run wait for, no more than what the memory loses to it.
    assert mixtral().time_ns / mixtral(bits, 1, FIXED).time_ns < 1 / mixtral().peak_fraction


@pytest.mark.parametrize(("bits", "gain"), [(8, 2), (4, 4), (3, 4), (2, 4), (1, 4)])
def test_fixed_is_capped_at_4_by_the_rate_of_products(bits, gain):
    """2048 GFLOPS are four times what one token of 16-bit weights at 512 GB/s asks for."""
    whole, low = (mixtral(of, 1, NO_REFRESH, FIXED, *ALL_ELEMENTS) for of in (16, bits))
    assert whole.time_ns / low.time_ns == pytest.approx(gain, rel=0.01)
    assert whole.time_ns / low.time_ns <= 4
    assert low.gflops <= low.peak_gflops == 2048


def test_matrices_of_different_bits_are_read_and_multiplied():
    mixed = ExpertFormat.of({"gate": 4, "up": 2, "down": 3})
    result = simulate_expert("cxl", "mixtral-8x7b", bits=mixed)
    assert result.weight_bytes == WEIGHTS * 3 // 8
    assert result.peak_gflops == pytest.approx(2048 * 16 / 3)
    # A tile waits for its widest rows: gate and up together take as long as gate and gate.
    slowest = WEIGHTS / 3 * (4 + 4 + 3) / 8 / 512
    assert slowest < result.time_ns < 1.15 * slowest


# ---- tokens and dataflow -----------------------------------------------------------------------------


def test_a_fifo_too_small_for_a_refresh_starves_arrays_that_could_catch_up():
    # 32 bursts of 7 ns do not cover the 410 ns of a refresh; 128 do, and the memory is 7/4 as fast as the arrays.
    bound_ns = WEIGHTS / (64 * 16) * 7
    assert mixtral(16, 7, WEIGHT_STATIONARY).time_ns > 1.05 * bound_ns
    deep = mixtral(16, 7, WEIGHT_STATIONARY, "ndp.systolic.fifo_bursts=128")
    assert deep.time_ns == pytest.approx(bound_ns, rel=0.01)


def test_four_tokens_take_the_time_of_one():
    assert mixtral(16, 4).time_ns == pytest.approx(mixtral().time_ns, rel=0.01)
    assert mixtral(16, 4).gflops > 3.9 * mixtral().gflops


def test_output_stationary_sums_of_more_tokens_than_rows_read_the_weights_again():
    result = mixtral(16, 7)
    assert result.token_tiles == (4, 3)
    assert result.commands["RD"] == 2 * result.weight_bursts
    assert result.time_ns == pytest.approx(2 * mixtral().time_ns, rel=0.01)


def test_weight_stationary_arrays_take_all_tokens_that_fit_the_buffer():
    result = mixtral(16, 7, WEIGHT_STATIONARY, NO_REFRESH)
    assert result.token_tiles == (7,)
    # 16 weights of an array serve 7 tokens in 7 cycles: 16 of 28 products that fit.
    assert result.time_ns == pytest.approx(WEIGHTS / (64 * 16) * 7, rel=0.01)
    assert 7 * (4096 + 14336) * 2 <= 256 * 1024 < 8 * (4096 + 14336) * 2
    assert mixtral(16, 8, WEIGHT_STATIONARY).token_tiles == (4, 4)


def test_one_weight_register_costs_fill_and_drain():
    # 11 cycles for 16 weights of an array instead of 4: see the table of the array.
    result = mixtral(16, 1, WEIGHT_STATIONARY, ONE_REGISTER, NO_REFRESH)
    assert result.time_ns == pytest.approx(WEIGHTS / (64 * 16) * 11, rel=0.005)
    assert result.bound == "compute"


def test_one_sum_register_costs_fill_and_drain_of_every_tile():
    sets = (NO_REFRESH, FIXED, ONE_REGISTER)
    one, two = mixtral(1, 1, *sets), mixtral(1, 1, NO_REFRESH, FIXED)
    # A tile of 8 rows is 4096 or 14336 steps, and 10 cycles more; 3584 and 512 tiles on 32 lanes.
    assert one.time_ns - two.time_ns == pytest.approx((3584 + 512) / 32 * 10, rel=0.02)


def test_time_of_arithmetic_is_the_steps_of_the_tiles():
    result = mixtral(1, 1, NO_REFRESH, FIXED)
    steps = (3584 * 4096 + 512 * 14336) / 32
    assert steps < result.time_ns < steps + 2000


def test_time_never_falls_as_tokens_rise():
    for sets in ((), (WEIGHT_STATIONARY,)):
        times = [simulate_expert("cxl", SMALL, tokens, sets=sets).time_ns for tokens in range(1, 20)]
        assert times == sorted(times)


# ---- the plain run, legality -------------------------------------------------------------------------


@pytest.mark.parametrize(
    *all_pairs(
        {
            "shape": [(512, 256), (513, 257), (96, 40), (3, 5), (1, 1)],
            "sets": [
                (),
                (WEIGHT_STATIONARY,),
                (FIXED, ONE_REGISTER),
                (WEIGHT_STATIONARY, ONE_REGISTER, "ndp.systolic.rows=3", "ndp.systolic.columns=5"),
                ("dram.nREFI=3000", "ndp.systolic.fifo_bursts=7", "ndp.systolic.clock_mhz=933.333"),
            ],
            "tokens, bits": [(1, 16), (5, 3)],
        }
    )
)
def test_the_plain_run_of_every_lane_agrees(shape, sets, tokens, bits):
    four = ("dimm.subchannels=4", "ndp.systolic.arrays=8")
    result = simulate_expert("cxl", Expert(*shape), tokens, bits=bits, sets=[*four, *sets], exact_check=True)
    assert result.commands["RD"] == result.weight_bursts * result.weight_reads


def test_the_plain_run_of_a_long_stream_agrees_with_what_was_skipped():
    sets = ["dimm.subchannels=2", "ndp.systolic.arrays=4"]
    result = simulate_expert("cxl", Expert(1024, 512), 2, sets=sets, exact_check=True)
    assert 0.3 < result.fast_forwarded < 1


def test_every_lane_is_legal():
    hardware = load_hardware("cxl", ["dimm.subchannels=4", "ndp.systolic.arrays=8"])
    for tokens, shape in ((1, (768, 320)), (6, (515, 33))):
        result = simulate_expert(hardware, Expert(*shape), tokens, bits=4, record_commands=True)
        assert len(result.command_traces) == 4
        for trace in result.command_traces:
            report = check(trace, hardware.lane_device())
            assert report.ok, report.violations[0].message


# ---- bad input ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("ndp.systolic.rows=3.5", "type sets ndp.systolic.rows"),
        ("ndp.systolic.columns=0", "range sets ndp.systolic.columns"),
        ("ndp.systolic.load_rows=5", "conflict sets ndp.systolic.load_rows"),
        (
            "ndp.systolic.dataflow=input-stationary",
            "unknown-name sets ndp.systolic.dataflow ? output-stationary",
        ),
        ("cxl.latency_ns=-1", "range sets cxl.latency_ns"),
        ("cxl=null", "conflict cxl.yaml cxl"),
        ("dimm.subchannels=20", "conflict cxl_systolic.yaml ndp.systolic.arrays"),
        ("dimm.ranks=2", "unsupported sets dimm.ranks"),
    ],
)
def test_hardware_that_makes_no_sense_is_refused(change, words):
    assert mistake_of(simulate_expert, "cxl", SMALL, sets=[change]) == words


def test_bits_and_layouts_that_arrays_do_not_have_are_refused():
    assert mistake_of(simulate_expert, "cxl", SMALL, bits=7) == "range bits"
    assert mistake_of(simulate_expert, "cxl", SMALL, layout="sharded:1") == "unsupported layout"


def test_an_activation_larger_than_the_buffer_is_not_supported():
    with refused("too-large cxl_systolic.yaml ndp.systolic.buffer_kib"):
        simulate_expert("cxl", Expert(1 << 17, 256))
