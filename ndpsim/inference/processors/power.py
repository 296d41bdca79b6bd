"""Measured power of CPU and GPU while a model runs, from a CSV file with its source.

The file begins with lines ``# key: value``: `what` and `source` in words; `hidden` and `intermediate` of the
model's experts. Then come ``threads,cpu_w,gpu_w`` and the threads of the CPU, rising.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ndpsim.inference.processors.sheet import chosen_threads, read_sheet, rising_threads
from ndpsim.workload.models import Expert

_FOLDER = Path(__file__).parent / "measured_power"
_HEADER = "threads,cpu_w,gpu_w"
_NUMBERS = {"hidden": 1 << 24, "intermediate": 1 << 24}
_WORDS: dict[str, tuple[str, ...]] = {"what": (), "source": ()}


@dataclass(frozen=True)
class PowerTable:
    """Power in W, on average while models with such an expert run with this many threads on the CPU."""

    file: str
    what: str
    source: str
    expert: Expert
    threads: int
    cpu_w: float
    gpu_w: float


def read_power(name: str, folder: Path, threads: int | None = None) -> PowerTable:
    """A bundled file by its name, or the one ending in .csv, its path relative to `folder`.

    Args:
        threads: threads of the CPU; None: the largest measured number.

    Raises:
        InputError: there is none, a line of it is wrong, or nothing was measured with this many threads.
    """
    sheet = read_sheet(name, folder, _FOLDER, [_HEADER], _WORDS, _NUMBERS, {})
    found: dict[int, tuple[float, float]] = {}
    for row in sheet.rows:
        of_row = rising_threads(sheet, row, list(found))
        if of_row in found:
            raise sheet.error(f"{of_row} is given twice", row, "threads", code="twice")
        cpu_w, gpu_w = (sheet.above_zero(row, column, "a power in W") for column in ("cpu_w", "gpu_w"))
        found[of_row] = cpu_w, gpu_w
    if not found:
        raise sheet.error("has no measured power", code="missing")
    chosen, said = chosen_threads(sheet, list(found), threads), sheet.said
    expert = Expert(int(said["hidden"]), int(said["intermediate"]))
    return PowerTable(sheet.file, said["what"], said["source"], expert, chosen, *found[chosen])
