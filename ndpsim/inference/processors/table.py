"""Measured times of an expert by tokens, from a CSV file with their source.

The file begins with lines ``# key: value``: `what` and `source` in words; `hidden`, `intermediate` and `bits`
of the expert; `weight_read`, "included" or "excluded": whether the times include the reading of weights;
`experts_per_time`: number of experts of each time, one after the other (default 1); and `outside`, "refuse"
(default), "extend" or "roofline". Then come ``tokens,time_ns`` and the measured counts in ascending order, or
``threads,tokens,time_ns``, sorted by the threads of a CPU and then by counts.

Between two counts, times are interpolated. Outside the counts, the default is an error. With the other values
of `outside`, fewer tokens have the time of the smallest count. For more tokens, ``outside: extend`` uses the
line through the last two counts. ``outside: roofline`` uses the larger of the last count's time and the
roofline's computing time: weights are read once, and the last count's time includes this.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from pathlib import Path

from ndpsim.base.errors import InputError
from ndpsim.dimm.layout import ExpertFormat
from ndpsim.inference.processors.sheet import (
    Sheet,
    SheetLine,
    chosen_threads,
    read_sheet,
    rising_threads,
    sheet_names,
)
from ndpsim.workload.models import Expert

_FOLDER = Path(__file__).parent / "tables"
_MAX_TOKENS = 1 << 24
_HEADERS = ("tokens,time_ns", "threads,tokens,time_ns")
_NUMBERS = {"hidden": 1 << 24, "intermediate": 1 << 24, "bits": 64, "experts_per_time": 64}
_WORDS = {
    "what": (),
    "source": (),
    "weight_read": ("included", "excluded"),
    "outside": ("refuse", "extend", "roofline"),
}
_DEFAULTS = {"outside": "refuse", "experts_per_time": "1"}


@dataclass(frozen=True)
class ExpertTable:
    """Times in ns of one expert by tokens.

    `tokens`: ascending. `times_ns`: times of one expert. `holds_weight_read`: whether the times include the
    reading of weights. `threads`: CPU threads of these times; None: the file has no threads. `outside`: the
    treatment of other counts: "refuse", "extend" or "roofline".
    """

    file: str
    what: str
    source: str
    expert: Expert
    bits: int
    holds_weight_read: bool
    outside: str
    threads: int | None
    tokens: tuple[int, ...]
    times_ns: tuple[float, ...]

    def is_of(self, expert: Expert, form: ExpertFormat) -> bool:
        """Whether the table has the times of such an expert; no table has weights with scales."""
        plain = all(of_matrix.group_size == 0 for of_matrix in form.matrices)
        return plain and (expert, form.bits()) == (self.expert, self.bits)

    def goes_on_by_roofline(self, tokens: int) -> bool:
        """Whether this number of tokens is beyond the measured ones and `outside` is "roofline"."""
        return self.outside == "roofline" and tokens > self.tokens[-1]

    def time_ns(self, tokens: int) -> float:
        """The time for a number of tokens; beyond the last with ``outside: roofline``, the last count's time.

        Raises:
            InputError: the number is outside the measured ones, and the table refuses this.
        """
        counts, times = self.tokens, self.times_ns
        if self.outside == "refuse" and not counts[0] <= tokens <= counts[-1]:
            problem = f"{tokens} are beyond the {counts[0]} to {counts[-1]} that were measured"
            raise InputError(problem, "range", file=self.file, key="tokens")
        if tokens <= counts[0]:
            return times[0]
        if self.goes_on_by_roofline(tokens):
            return times[-1]
        high = min(bisect_left(counts, tokens), len(counts) - 1)
        step = (times[high] - times[high - 1]) / (counts[high] - counts[high - 1])
        return times[high] + step * (tokens - counts[high])


def table_names() -> list[str]:
    """The names of the bundled tables, sorted."""
    return sheet_names(_FOLDER)


def read_table(name: str, folder: Path, threads: int | None = None) -> ExpertTable:
    """A bundled table by its name, or the one in a file ending in .csv, its path relative to `folder`.

    Args:
        threads: threads of the CPU, if the table has times by threads; None: the largest number.

    Raises:
        InputError: there is none, a line of it is wrong, or it has no times for this number of threads.
    """
    sheet = read_sheet(name, folder, _FOLDER, _HEADERS, _WORDS, _NUMBERS, _DEFAULTS)
    said, by_threads = sheet.said, _by_threads(sheet)
    chosen = chosen_threads(sheet, list(by_threads), threads)
    times = by_threads[chosen]
    return ExpertTable(
        file=sheet.file,
        what=said["what"],
        source=said["source"],
        expert=Expert(int(said["hidden"]), int(said["intermediate"])),
        bits=int(said["bits"]),
        holds_weight_read=said["weight_read"] == "included",
        outside=said["outside"],
        threads=chosen or None,
        tokens=tuple(times),
        times_ns=tuple(time_ns / int(said["experts_per_time"]) for time_ns in times.values()),
    )


def _by_threads(sheet: Sheet) -> dict[int, dict[int, float]]:
    """Times in ns by threads and tokens, as the file has them; threads 0: it says nothing of threads."""
    found: dict[int, dict[int, float]] = {}
    last: dict[int, SheetLine] = {}
    for row in sheet.rows:
        threads = rising_threads(sheet, row, list(found))
        times = found.setdefault(threads, {})
        tokens = sheet.whole(row, "tokens", _MAX_TOKENS)
        if times and tokens <= max(times):
            raise sheet.error(
                f"{tokens} does not come after {max(times)}: counts rise", row, "tokens", code="conflict"
            )
        times[tokens] = sheet.above_zero(row, "time_ns", "a time in ns")
        last[threads] = row
    outside = sheet.said["outside"]
    fewest, words = (1, "no") if outside == "roofline" else (2, "fewer than two")
    if not found or min(map(len, found.values())) < fewest:
        raise sheet.error(f"has {words} measured counts of tokens", code="missing")
    for threads, times in found.items():
        before, end = (0.0, *times.values())[-2:]
        if outside == "extend" and end < before:
            raise sheet.error(
                "the last two times fall, and cannot be extended", last[threads], "time_ns", code="form"
            )
    return found
