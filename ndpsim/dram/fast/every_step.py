"""Runs without fast-forward: for row policies that close rows, and for long queues."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ndpsim.base.jit import inlined


class EveryStep(NamedTuple):
    """The transition table is empty."""

    table: NDArray[np.int64]


@inlined
def only_hits(skips, shape, state, source, clock):
    return False


@inlined
def fast_forward(skips, channel, clock, until_served, until_taken):
    return clock


@inlined
def run_hits(skips, channel, until_served, until_taken, clock, accepts):
    return clock, accepts
