"""The range around a prediction, from the errors of predictions of measured machines.

`measured.csv`, which `python validation/machines.py` writes, has the ratio of measured to predicted tokens/s
for each published run. A band is the prediction times the tenth and the ninetieth percentile of these ratios.
"""

from __future__ import annotations

import csv
import functools
from pathlib import Path

import numpy as np

from ndpsim.simulate.results.prediction import Band

_FILE = Path(__file__).parent / "measured.csv"


def band_of(phase: str, tokens_per_s: float) -> Band | None:
    """The band around a prediction of "prefill" or "decode"; None if there are no measurements."""
    ratios = _ratios(phase)
    if not ratios:
        return None
    low, high = np.percentile(ratios, (10, 90))
    return Band(float(low) * tokens_per_s, float(high) * tokens_per_s, len(ratios))


@functools.cache
def _ratios(phase: str) -> tuple[float, ...]:
    if not _FILE.is_file():
        return ()
    with _FILE.open(encoding="utf-8", newline="") as file:
        rows = csv.DictReader(line for line in file if not line.startswith("#"))
        return tuple(float(row["measured_over_predicted"]) for row in rows if row["phase"] == phase)
