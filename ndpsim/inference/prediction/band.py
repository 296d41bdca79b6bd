"""The range around a prediction, from the errors of predictions of measured machines.

`measured.csv`, which `python validation/machines.py` writes, has the ratio of measured to predicted tokens/s
for each published run, by the kind of machine (`OwnMachine.kind`). No constant was fitted to these runs. A
band is the prediction times the lowest and the highest of these ratios, without a tenth of them at each end:
the next machine of the kind is within it with a probability of 80% if it is like the others (order statistics
of n values; with fewer than `FEWEST` nothing can be left out). Kinds with fewer runs have the band of all
kinds.
"""

from __future__ import annotations

import csv
import functools
from collections.abc import Sequence
from pathlib import Path

from ndpsim.simulate.results.prediction import Band

_FILE = Path(__file__).parent / "measured.csv"

#: Runs from which a kind of machine has a band of its own: the range of nine values has the next with 80%.
FEWEST = 9


def band_of(kind: str, phase: str, tokens_per_s: float) -> Band | None:
    """The band around a prediction of "prefill" or "decode"; None if there are no measurements."""
    ratios = _ratios(phase)
    if not ratios:
        return None
    low, high, runs = covering(ratios, kind)
    return Band(low * tokens_per_s, high * tokens_per_s, runs)


def covering(ratios: Sequence[tuple[str, float]], kind: str) -> tuple[float, float, int]:
    """The range that contains the next ratio of a kind with 80%, and the number of runs it comes from.

    Args:
        ratios: kind of machine, and measured over predicted tokens/s, of each run; at least one.
    """
    own = [ratio for of_kind, ratio in ratios if of_kind == kind]
    used = sorted(own if len(own) >= FEWEST else [ratio for _, ratio in ratios])
    left_out = max(1, (len(used) + 1) // 10)  # the first of each end that is part of the range, from 1
    return used[left_out - 1], used[-left_out], len(used)


@functools.cache
def _ratios(phase: str) -> tuple[tuple[str, float], ...]:
    if not _FILE.is_file():
        return ()
    with _FILE.open(encoding="utf-8", newline="") as file:
        rows = csv.DictReader(line for line in file if not line.startswith("#"))
        return tuple(
            (row["kind"], float(row["measured_over_predicted"])) for row in rows if row["phase"] == phase
        )
