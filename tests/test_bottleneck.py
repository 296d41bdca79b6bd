"""Schedules of TriMoE's kernel: against their plain twin."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from ndpsim.policies.assignment.bottleneck import DIMM, NOWHERE, schedule
from oracles.bottleneck import Layer
from oracles.bottleneck import schedule as readable


def drawn(seed: int) -> Layer:
    """Whole numbers, so that sums are exact in any order; few of them, so that many are equal."""
    random = np.random.default_rng(seed)
    experts, dimms, most = (int(random.integers(1, limit)) for limit in (12, 5, 40))
    dimm = [None if at == dimms else at for at in random.integers(0, dimms + 1, experts).tolist()]
    time = random.integers(1, most + 1, (3, experts)).astype(float)
    time[1, random.random(experts) < 0.2] = math.inf
    time[2, [at is None for at in dimm]] = math.inf
    read = random.integers(0, 10, (2, experts)).astype(float)
    loads = random.integers(0, 3, experts).tolist()
    return Layer(time.tolist(), read.tolist(), dimm, loads, dimms, float(random.integers(0, 10)))


@given(st.integers(0, 1 << 32), st.sampled_from([0, 1, 3, 100]))
@settings(deadline=None, max_examples=300)
def test_the_kernel_makes_the_schedules_of_its_readable_twin(seed: int, limit: int) -> None:
    layer = drawn(seed)
    devices, busy = np.zeros(len(layer.loads), np.int64), np.zeros(DIMM + layer.dimms + 1)
    busy[0] = layer.shared
    memory = np.array([DIMM + (layer.dimms if at is None else at) for at in layer.dimm])
    moves, greedy = schedule(
        np.array(layer.time), np.array(layer.read), memory, np.array(layer.loads), limit, devices, busy,
        np.zeros_like(busy),
    )  # fmt: skip
    on, moved = readable(layer, limit)
    assert devices.tolist() == [on.get(expert, NOWHERE) for expert in range(len(devices))]
    busy[DIMM:] += busy[-1]
    assert busy[:-1].tolist() == layer.busy(on)
    assert (moves, greedy) == (moved, max(layer.busy(readable(layer, 0)[0])))
