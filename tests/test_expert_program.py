"""The expert program alone: what it asks for, when, and what it says of phases and jobs."""

from __future__ import annotations

import numpy as np

from ndpsim.simulate.program import (
    DOWN,
    GATE_UP,
    Job,
    Multiply,
    ReadResults,
    Spans,
    WriteActivations,
    expert_program,
    run_in_step,
)


class _Clockwork:
    """Writes take 10 ticks; row n of a region is summed 5 + n ticks after its release; results take 3."""

    def __init__(self, late=(0,)):
        self.asked, self.late = [], late

    def write_activations(self, steps):
        self.asked.append([type(step) for step in steps])
        return [step.start + 10 for step in steps]

    def multiply(self, steps):
        self.asked.append([step.region for step in steps])
        rows = 4 if steps[0].region == GATE_UP else 3
        return [
            step.release + 5 + np.arange(rows) + late for step, late in zip(steps, self.late, strict=True)
        ]

    def read_results(self, steps):
        self.asked.append([step.known.tolist() for step in steps])
        return [max(int(step.known[-1]) for step in steps) + 3] * len(steps)


def _activated(ready, tokens):
    return int(ready[-1]) + tokens


def _run(jobs, late=(0,)):
    spans, runner = Spans(), _Clockwork(late)
    programs = [expert_program(jobs, 2, _activated, spans, 1) for _ in late]
    return run_in_step(programs, runner), spans, runner


def test_a_tile_goes_through_its_phases_in_order():
    end, spans, runner = _run([Job((7,))])
    # Written by 11; rows at 16..19; the last hidden value is known at 19, activated at 26; down at 31, 32, 33.
    assert spans.of_phase == {
        ("activations-in", 0): (1, 11),
        ("gate-up", 0): (11, 19),
        ("activation", 0): (17, 26),
        ("down", 0): (26, 33),
        ("result-out", 0): (32, 36),
    }
    assert end == 36
    assert runner.asked == [[WriteActivations], [GATE_UP], [DOWN], [[32, 33]]]  # two results leave together


def test_results_leave_no_sooner_than_those_before_them():
    program = expert_program([Job((1,))], 2, _activated, Spans(), 0)
    assert isinstance(next(program), WriteActivations)
    assert isinstance(program.send(0), Multiply)
    assert isinstance(program.send(np.zeros(2, np.int64)), Multiply)
    read = program.send(np.array([4, 9, 2, 3]))
    assert isinstance(read, ReadResults)
    assert read.known.tolist() == [9, 9]


def test_tiles_and_jobs_begin_when_the_results_before_them_have_left():
    end, spans, _ = _run([Job((7, 7)), Job((1,))])
    starts = [spans.of_phase["activations-in", tile][0] for tile in range(3)]
    assert starts == [1, 36, 71]  # a tile of seven tokens takes 35 ticks
    assert end == 71 + 35 - 6  # of one token, six less in activation
    assert [tuple(vars(one).values()) for one in spans.job_times([Job((7, 7)), Job((1,))], float)] == [
        (14, 1.0, 71.0),
        (1, 71.0, 100.0),
    ]


def test_a_job_does_not_begin_before_it_is_released():
    end, spans, _ = _run([Job((7,)), Job((7,), release=1000)])
    assert spans.of_phase["activations-in", 1] == (1000, 1010)
    assert end == 1035


def test_phases_of_several_dimms_last_from_the_first_start_to_the_last_end():
    end, spans, _ = _run([Job((7,))], late=(0, 100))
    assert spans.of_phase["gate-up", 0] == (11, 119)
    assert spans.of_phase["down", 0] == (26, 233)
    assert spans.of_phase["result-out", 0] == (32, 236)
    assert end == 236
    assert spans.communication_ticks() == 10 + 3
