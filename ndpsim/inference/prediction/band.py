"""The range around a prediction, from the errors of predictions of measured machines.

`measured.csv`, which `python validation/machines.py` writes, has the ratio of measured to predicted tokens/s
for each published run, by the kind of machine (`OwnMachine.kind`). No constant was fitted to these runs. A
band is the prediction times the lowest and the highest of these ratios, without a tenth of them at each end:
the next machine of the kind is within it with a probability of 80% if it is like the others (order statistics
of n values; with fewer than `FEWEST` nothing can be left out). Kinds with fewer runs have the band of all
kinds.

If the median error of a kind's runs is above `MOST_ERROR`, the rate is not known: the band alone says what to
expect. With fewer than `FEW` runs, the runs of the kinds whose rates are known decide.
"""

from __future__ import annotations

import csv
import functools
import statistics
from collections.abc import Sequence
from pathlib import Path

from ndpsim.simulate.results.prediction import Band

_FILE = Path(__file__).parent / "measured.csv"

#: Runs from which a kind of machine has a band of its own: the range of nine values has the next with 80%.
FEWEST = 9

#: Runs from which a kind's median error counts.
FEW = 3

#: Median size of the errors, predicted over measured less 1, from which on no rate is named.
MOST_ERROR = 0.25


def band_of(kind: str, phase: str, tokens_per_s: float) -> Band | None:
    """The band around a prediction of "prefill" or "decode"; None if there are no measurements."""
    ratios = _ratios(phase)
    if not ratios:
        return None
    low, high, runs = covering(ratios, kind)
    return Band(low * tokens_per_s, high * tokens_per_s, runs)


def is_known(kind: str, phase: str) -> bool:
    """Whether predictions of a kind of machine and a phase are near enough to name a rate."""
    errors: dict[str, list[float]] = {}
    for of_kind, ratio in _ratios(phase):
        errors.setdefault(of_kind, []).append(abs(1 / ratio - 1))
    if len(errors.get(kind, ())) >= FEW:
        return statistics.median(errors[kind]) <= MOST_ERROR
    others = [own for own in errors.values() if len(own) < FEW or statistics.median(own) <= MOST_ERROR]
    return not others or statistics.median(error for own in others for error in own) <= MOST_ERROR


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
