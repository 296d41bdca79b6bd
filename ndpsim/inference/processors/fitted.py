"""Values fitted to measurements of processors, by family.

`fits/KIND.csv` has the columns family, key and value, and further ones about the measurements. The family of
a CPU's "compute_efficiency" is its instruction set. If a family has no row for a key, the value of the family
"any", fitted to all, applies.
"""

from __future__ import annotations

import csv
import functools
from collections.abc import Mapping
from pathlib import Path

#: The folder of the files.
FOLDER = Path(__file__).parent / "fits"
#: The family whose values apply to keys without a row for another family.
ANY = "any"


@functools.cache
def fitted_values(kind: str, family: str) -> Mapping[str, float]:
    """Values by key for a family of "gpu" or "cpu", completed by those of "any"."""
    rows = _rows(kind)
    values = {row["key"]: float(row["value"]) for row in rows if row["family"] == ANY}
    return values | {row["key"]: float(row["value"]) for row in rows if row["family"] == family}


@functools.cache
def measured_families(kind: str) -> frozenset[str]:
    """Families with values of their own, of "gpu" or "cpu"."""
    return frozenset(row["family"] for row in _rows(kind)) - {ANY}


@functools.cache
def _rows(kind: str) -> list[dict[str, str]]:
    with (FOLDER / f"{kind}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(line for line in file if not line.startswith("#")))
