"""The units of a buffer chip by hand, and the expert program alone."""

from __future__ import annotations

import gc
import math
import re
import weakref
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ndpsim
from mistakes import refused
from ndpsim.dimm.layout import MATRICES
from ndpsim.dimm.units import ActivationUnit, GemvUnit, last_served
from ndpsim.simulate.program import DOWN, INWARD, Queue


def gemv(**changes: int) -> GemvUnit:
    """TriMoE's unit: 256 multipliers of 8 FP16 values in 16 cycles, 256 KiB."""
    usual = {
        "multipliers": 256,
        "values_per_multiplier": 8,
        "native_bits": 16,
        "bit_serial_cycles": 16,
        "adder_tree_cycles": 11,
        "buffer_bytes": 256 << 10,
        "activation_bytes": 2,
        "fifo_bursts": 32,
    }
    return GemvUnit(**(usual | changes))


times = st.integers(0, 1 << 40)


# One server


@given(st.lists(times, min_size=1, max_size=60), st.integers(0, 1 << 20))
def test_the_last_job_is_done_as_a_plain_loop_does_it(ready, service):
    done = 0
    for start in ready:
        done = max(done, start) + service
    assert last_served(np.array(ready, dtype=np.int64), service) == done


# Multipliers


@pytest.mark.parametrize(
    ("unit", "lanes", "burst_bytes", "bits", "work"),
    [
        # 32 of 256 multipliers a lane; a burst of 32 weights takes 4 of them: 8 bursts at once.
        (gemv(), 8, 64, 16, (8, 16)),
        (gemv(multipliers=64), 4, 64, 16, (4, 16)),
        # Weights of 8 bits: 64 in a burst, 8 multipliers, half the cycles.
        (gemv(), 8, 64, 8, (4, 8)),
        (gemv(), 8, 64, 4, (2, 4)),
        (gemv(), 8, 64, 2, (1, 2)),
        # Weights of 1 bit: 512 in a burst want 64 multipliers; 32 take them in two goes of one cycle.
        (gemv(), 8, 64, 1, (1, 2)),
        # 3 bits: 171 weights, the last one in part, want 22 multipliers.
        (gemv(), 8, 64, 3, (1, 3)),
        # One multiplier a lane: a burst goes through it in four.
        (gemv(multipliers=8), 8, 64, 16, (1, 64)),
        # 100 multipliers over 8 lanes: 12 each, 3 bursts.
        (gemv(multipliers=100), 8, 64, 16, (3, 16)),
        # Wider than native: more cycles in proportion.
        (gemv(native_bits=8, bit_serial_cycles=8), 8, 64, 16, (8, 16)),
    ],
)
def test_hand_worked_bursts(unit, lanes, burst_bytes, bits, work):
    assert unit.burst_work(lanes, burst_bytes, bits) == work


@given(
    multipliers=st.integers(1, 4096),
    per_multiplier=st.integers(1, 64),
    native_bits=st.integers(1, 32),
    cycles=st.integers(1, 64),
    lanes=st.integers(1, 64),
    burst_bytes=st.sampled_from([8, 32, 64, 128]),
    bits=st.integers(1, 32),
)
def test_a_lane_is_never_faster_than_its_multipliers(
    multipliers, per_multiplier, native_bits, cycles, lanes, burst_bytes, bits
):
    unit = gemv(
        multipliers=multipliers,
        values_per_multiplier=per_multiplier,
        native_bits=native_bits,
        bit_serial_cycles=cycles,
    )
    if multipliers < lanes:
        with refused("conflict ndp.gemv.multipliers"):
            unit.burst_work(lanes, burst_bytes, bits)
        return
    servers, held = unit.burst_work(lanes, burst_bytes, bits)
    assert servers >= 1
    assert held >= unit.pass_cycles(bits) >= 1
    values = Fraction(burst_bytes * 8, bits)
    peak = Fraction(multipliers // lanes * per_multiplier, unit.pass_cycles(bits))
    assert servers * values / held <= peak
    # A burst on its own, and as many as there are servers, are worked on in the fewest goes there can be.
    wanted = -(-values // per_multiplier)
    assert servers == 1 or servers * wanted <= multipliers // lanes < (servers + 1) * wanted
    assert held == unit.pass_cycles(bits) * -(-wanted // (multipliers // lanes))


# Tiles


@given(
    tokens=st.integers(1, 16384),
    hidden=st.integers(1, 8192),
    intermediate=st.integers(1, 8192),
    buffer_bytes=st.integers(1 << 10, 1 << 20),
    activation_bytes=st.integers(1, 8),
)
def test_tiles_are_even_fit_and_are_the_fewest(tokens, hidden, intermediate, buffer_bytes, activation_bytes):
    unit = gemv(buffer_bytes=buffer_bytes, activation_bytes=activation_bytes)
    token_bytes = (hidden + intermediate) * activation_bytes
    if token_bytes > buffer_bytes:
        with refused("too-large ndp.gemv.buffer_kib"):
            unit.tile(tokens, hidden, intermediate)
        return
    tiles = unit.tile(tokens, hidden, intermediate)
    assert sum(tiles) == tokens
    assert max(tiles) - min(tiles) <= 1
    assert min(tiles) >= 1
    assert max(tiles) * token_bytes <= buffer_bytes
    # One tile fewer could not hold them all.
    assert (len(tiles) - 1) * (buffer_bytes // token_bytes) < tokens


# Activation


@given(
    ready=st.lists(st.integers(0, 1 << 20), min_size=1, max_size=40),
    unit=st.builds(ActivationUnit, st.integers(1, 300), st.integers(1, 10), st.integers(0, 40)),
    tokens=st.integers(1, 1000),
    cycle_ticks=st.integers(1, 50),
)
def test_activation_is_a_plain_loop_over_the_edges_of_its_clock(ready, unit, tokens, cycle_ticks):
    free = 0  # cycle
    for tick in ready:
        free = max(free, math.ceil(Fraction(tick, cycle_ticks)))
        free += math.ceil(Fraction(tokens, unit.units)) * unit.cycles_per_value
    done = unit.done(np.array(ready, dtype=np.int64), tokens, cycle_ticks)
    assert done == (free + unit.latency_cycles) * cycle_ticks


# Units as files


def test_nothing_but_the_units_own_files_asks_which_unit_it_is():
    package = Path(ndpsim.__file__).parent
    own = {
        "config/multipliers/systolic.py",
        "dimm/units/systolic.py",
        "dimm/units/__init__.py",
        "dimm/units/unit.py",
        # Hardware stands for one unit each.
        "simulate/rtl/units.py",
        "studies/rtl.py",
    }
    naming = {
        str(file.relative_to(package))
        for file in package.rglob("*.py")
        if re.search(r"\.systolic\b|\"systolic\"", file.read_text())
    }
    assert naming <= own


# ---- The expert program alone: what it asks for, when, and what it says of phases and jobs


class _Clockwork:
    """Writes take 10 ticks; row n of a region is summed 5 + n ticks after its release; results take 3."""

    rows_per_message, now = 2, 1

    def __init__(self, late=(0,)):
        self.asked, self.late = [], late

    def begin(self, job):
        self.asked.append(job.tokens)

    def write_activations(self, tokens, start):
        self.asked.append("write")
        yield 10
        return [start + 10 for _ in self.late]

    def multiply(self, region, tokens, release):
        self.asked.append(region)
        rows = 4 if region == INWARD else 3
        yield 5
        return [one + 5 + np.arange(rows) + late for one, late in zip(release, self.late, strict=True)]

    def read_results(self, tokens, known):
        self.asked.append([of_dimm.tolist() for of_dimm in known])
        yield 3
        return max(int(of_dimm[-1]) for of_dimm in known) + 3


def _activated(ready, tokens):
    return int(ready[-1]) + tokens


def _run(jobs, late=(0,)):
    """Jobs, each (tokens of its tiles, release)."""
    queue = Queue(_Clockwork(late), _activated)
    for tokens, release in jobs:
        queue.add(tokens, release, MATRICES)
    queue.advance()
    while queue.goal is not None:
        queue.advance()
    return queue.end, queue


def test_a_tile_goes_through_its_phases_in_order():
    end, queue = _run([((7,), 0)])
    # Written by 11; rows at 16..19; the last hidden value is known at 19, activated at 26; down at 31, 32, 33.
    assert queue.of_phase == {
        ("activations-in", 0): (1, 11),
        ("gate-up", 0): (11, 19),
        ("activation", 0): (17, 26),
        ("down", 0): (26, 33),
        ("result-out", 0): (32, 36),
    }
    assert end == 36
    assert queue.lanes.asked == [(7,), "write", INWARD, DOWN, [[32, 33]]]  # two results leave together


def test_without_a_gate_each_row_is_a_hidden_value():
    queue = Queue(_Clockwork(), _activated)
    queue.add((7,), 0, ("up", "down"))
    queue.advance()
    while queue.goal is not None:
        queue.advance()
    assert queue.of_phase["up", 0] == (11, 19)
    assert queue.of_phase["activation", 0] == (16, 26)  # from the first of four rows on, not the first two


def test_results_leave_no_sooner_than_those_before_them():
    class _OutOfOrder(_Clockwork):
        def multiply(self, region, tokens, release):
            yield 5
            return [np.array([4, 9, 2, 3])]

    lanes = _OutOfOrder()
    queue = Queue(lanes, _activated)
    queue.add((1,), 0, MATRICES)
    while lanes.asked[-1:] != [[[9, 9]]]:
        queue.advance()
    assert queue.goal == 3


def test_lanes_are_freed_at_once_when_their_queue_is_dropped_within_an_expert():
    lanes = _Clockwork()
    queue, freed = Queue(lanes, _activated), weakref.ref(lanes)
    queue.add((7,), 0, MATRICES)
    queue.advance()
    gc.disable()  # reference counts alone
    try:
        del queue, lanes
        assert freed() is None
    finally:
        gc.enable()


def test_each_answer_is_awaited():
    queue = Queue(_Clockwork(), _activated)
    goals = []
    for tokens, awaited in (((7, 7), [10, 5, 5, 3] * 2), ((1,), [10, 5, 5, 3])):
        queue.add(tokens, 0, MATRICES)
        goals.clear()
        queue.advance()
        while queue.goal is not None:
            goals.append(queue.goal)
            queue.advance()
        assert goals == awaited
    assert queue.end == 71 + 35 - 6  # as if both had been there from the start


def test_tiles_and_jobs_begin_when_the_results_before_them_have_left():
    end, queue = _run([((7, 7), 0), ((1,), 0)])
    starts = [queue.of_phase["activations-in", tile][0] for tile in range(3)]
    assert starts == [1, 36, 71]  # a tile of seven tokens takes 35 ticks
    assert end == 71 + 35 - 6  # of one token, six less in activation
    assert [tuple(vars(one).values()) for one in queue.job_times(float)] == [
        (14, 1.0, 71.0),
        (1, 71.0, 100.0),
    ]


def test_a_job_does_not_begin_before_it_is_released():
    end, queue = _run([((7,), 0), ((7,), 1000)])
    assert queue.of_phase["activations-in", 1] == (1000, 1010)
    assert end == 1035


@pytest.mark.parametrize("late", [(0, 100), (100, 0)])
def test_phases_of_several_dimms_last_from_the_first_start_to_the_last_end(late):
    end, queue = _run([((7,), 0)], late=late)
    assert queue.of_phase["gate-up", 0] == (11, 119)
    assert queue.of_phase["down", 0] == (26, 233)
    assert queue.of_phase["result-out", 0] == (32, 236)
    assert end == 236
    assert queue.communication_ticks() == 10 + 3
