"""The expert program alone: what it asks for, when, and what it says of phases and jobs."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

from ndpsim.simulate.program import DOWN, GATE_UP, Queue


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
        rows = 4 if region == GATE_UP else 3
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
        queue.add(tokens, release)
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
    assert queue.lanes.asked == [(7,), "write", GATE_UP, DOWN, [[32, 33]]]  # two results leave together


def test_results_leave_no_sooner_than_those_before_them():
    class _OutOfOrder(_Clockwork):
        def multiply(self, region, tokens, release):
            yield 5
            return [np.array([4, 9, 2, 3])]

    lanes = _OutOfOrder()
    queue = Queue(lanes, _activated)
    queue.add((1,), 0)
    while lanes.asked[-1:] != [[[9, 9]]]:
        queue.advance()
    assert queue.goal == 3


def test_lanes_are_freed_at_once_when_their_queue_is_dropped_within_an_expert():
    lanes = _Clockwork()
    queue, freed = Queue(lanes, _activated), weakref.ref(lanes)
    queue.add((7,), 0)
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
        queue.add(tokens, 0)
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
