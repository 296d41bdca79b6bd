"""Units as hardware against their models, outside the closed loop: clocks of each job, and numbers.

Whatever the model takes in, and the clock of it, is given to the hardware; the clocks at which it takes and
gives are compared. What a unit does reaches the DRAM only through these clocks. Equal ones for the same input
therefore make the closed loop equal, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ndpsim.dimm.units import ActivationUnit
from ndpsim.simulate.rtl.build import load_module

Ints = NDArray[np.int64]

_BENCH: Any = load_module(Path(__file__).with_name("bench.py"))


def first_difference(what: str, model: Ints, hardware: Ints) -> list[str]:
    """The first clock in which both differ, in words; none if they are equal."""
    if len(model) != len(hardware):
        return [f"{what}: {len(model)} in the model, {len(hardware)} in hardware"]
    differs = np.flatnonzero(model != hardware)
    if not len(differs):
        return []
    first = int(differs[0])
    return [f"{what} {first}: clock {model[first]} in the model, {hardware[first]} in hardware"]


# ---- The activation unit


@dataclass(frozen=True, eq=False)
class Activated:
    """Rows that an activation unit as hardware has activated.

    `starts`, `ends`: int64[row], the edge before the first beat of a row is taken, and the edge after which
    its last result is there. `results`: int64[row, token].
    """

    starts: Ints
    ends: Ints
    results: Ints


def activate(
    module: Any, unit: Any, ready: Ints, gates: Ints, ups: Ints, stalled: frozenset[int] = frozenset()
) -> Activated:
    """Run rows through an activation unit as hardware.

    Args:
        module: `activation.py`, and `unit` of it.
        ready: int64[row], the edge after which gate and up of a row are there.
        gates, ups: int64[row, token].
        stalled: edges at which no result can leave.
    """
    rows, tokens = gates.shape
    units = unit.parameters.units
    beats = -(-tokens // units)
    padded = [np.pad(each, ((0, 0), (0, beats * units - tokens))).reshape(-1, units) for each in (gates, ups)]
    taken, ends, results = list[int](), list[int](), list[list[int]]()

    def step(edge: int, get: Any, put: Any) -> bool:
        beat = len(taken)
        valid = beat < rows * beats and edge > ready[beat // beats]
        put("out_ready", int(edge not in stalled))
        put("in_valid", int(valid))
        if valid:
            put("in_gate", _BENCH.joined(padded[0][beat].tolist(), module.BITS))
            put("in_up", _BENCH.joined(padded[1][beat].tolist(), module.BITS))
            put("in_tag", beat)
            if get("in_ready"):
                taken.append(edge)
        if get("out_valid") and edge not in stalled:
            if get("out_tag") != len(results):
                raise AssertionError(f"beat {get('out_tag')} comes out for {len(results)}, at clock {edge}")
            results.append(_BENCH.parted(get("out_value"), module.RESULT_BITS, units))
            ends.append(edge - 1)
        return len(results) == rows * beats

    _BENCH.run_clocks(unit, step)
    return Activated(
        np.array(taken[::beats]) - 1,
        np.array(ends[beats - 1 :: beats]),
        np.array(results).reshape(rows, -1)[:, :tokens],
    )


def compare_activation(model: ActivationUnit, hardware: Activated, ready: Ints, tokens: int) -> list[str]:
    """Differences between the clocks of rows in the model and in hardware; `ready` as in `activate`."""
    ends = np.array([model.done(ready[: row + 1], tokens, 1) for row in range(len(ready))])
    service = -(-tokens // model.units) * model.cycles_per_value
    return [
        *first_difference("start of row", ends - service - model.latency_cycles, hardware.starts),
        *first_difference("end of row", ends, hardware.ends),
    ]
