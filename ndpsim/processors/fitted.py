"""Values that were fitted to measurements of processors, by their family.

`fits/KIND.csv` has the columns family, key, value, measurements and worst_error. A key that a family has no
row of is that of the family "any", fitted to all.
"""

from __future__ import annotations

import csv
import functools
from collections.abc import Mapping
from pathlib import Path

#: The folder of the files.
FOLDER = Path(__file__).parent / "fits"
#: The family whose values stand for keys that another has no row of.
ANY = "any"


@functools.cache
def fitted_values(kind: str, family: str) -> Mapping[str, float]:
    """Values by key for a family of "gpu" or another kind; those of "any" where it has none."""
    with (FOLDER / f"{kind}.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(line for line in file if not line.startswith("#")))
    values = {row["key"]: float(row["value"]) for row in rows if row["family"] == ANY}
    return values | {row["key"]: float(row["value"]) for row in rows if row["family"] == family}
