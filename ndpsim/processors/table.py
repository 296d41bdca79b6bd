"""Measured times of an expert by tokens, read from a CSV file that says where they come from.

The file begins with lines ``# key: value``: `what` and `source` in words; `hidden`, `intermediate` and
`bits` of the expert; `weight_read`, "included" or "excluded": whether the times have the reading of the
weights in them; and `outside`, "refuse" (where it is left out) or "extend". Then come ``tokens,time_ns``
and the measured counts, rising.

Between two counts, times lie on the line between theirs. Beyond them a table is refused, unless it says
``outside: extend``: then the least count's time stands for fewer tokens, and the line through the last two
goes on.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass
from pathlib import Path

from ndpsim.errors import InputError, one_of
from ndpsim.moe import Expert

__all__ = ["ExpertTable", "read_table", "table_names"]

_FOLDER = Path(__file__).parent / "tables"
_MAX_BYTES = 1 << 20
_MAX_TOKENS = 1 << 24
_HEADER = "tokens,time_ns"
_NUMBERS = {"hidden": 1 << 24, "intermediate": 1 << 24, "bits": 64}
_WORDS = {"weight_read": ("included", "excluded"), "outside": ("refuse", "extend")}
_KEYS = ("what", "source", *_NUMBERS, *_WORDS)


@dataclass(frozen=True)
class ExpertTable:
    """Times in ns of one expert by tokens.

    `tokens` rise. `holds_weight_read`: the times have the reading of the weights in them. `extend`: counts
    beyond the measured ones have times, too.
    """

    file: str
    what: str
    source: str
    expert: Expert
    bits: int
    holds_weight_read: bool
    extend: bool
    tokens: tuple[int, ...]
    times_ns: tuple[float, ...]

    def check(self, expert: Expert, weight_bits: object) -> None:
        """Refuse another expert than the one that was measured.

        Raises:
            InputError: its shape or its bits differ.
        """
        if expert != self.expert or weight_bits != self.bits:
            measured = f"{self.expert.hidden} x {self.expert.intermediate} with {self.bits} bits"
            asked = f"{expert.hidden} x {expert.intermediate} with {weight_bits} bits"
            raise InputError(f"has times of an expert of {measured}, not of {asked}", file=self.file)

    def time_ns(self, tokens: int) -> float:
        """The time for a count of tokens.

        Raises:
            InputError: it was not measured for so few or so many, and the table does not extend.
        """
        counts, times = self.tokens, self.times_ns
        if not (self.extend or counts[0] <= tokens <= counts[-1]):
            problem = f"{tokens} are beyond the {counts[0]} to {counts[-1]} that were measured"
            raise InputError(problem, file=self.file, key="tokens")
        if tokens <= counts[0]:
            return times[0]
        high = min(bisect_left(counts, tokens), len(counts) - 1)
        step = (times[high] - times[high - 1]) / (counts[high] - counts[high - 1])
        return times[high] + step * (tokens - counts[high])


def table_names() -> list[str]:
    """The names of the bundled tables, sorted."""
    return sorted(path.stem for path in _FOLDER.glob("*.csv"))


def read_table(name: str, folder: Path) -> ExpertTable:
    """A bundled table by its name, or the one in a file ending in .csv, its path relative to `folder`.

    Raises:
        InputError: there is none, or a line of it is wrong.
    """
    if not name.endswith(".csv"):
        if name not in table_names():
            raise InputError(f"{one_of(name, table_names(), 'table')}; a path ends in .csv")
        path, shown = _FOLDER / f"{name}.csv", f"{name}.csv"
    else:
        path, shown = folder / name, str(folder / name)
    try:
        if not path.is_file():
            raise InputError("is no file" if path.exists() else "no such file", file=shown)
        if path.stat().st_size > _MAX_BYTES:
            raise InputError(f"larger than {_MAX_BYTES >> 20} MiB: no table of times", file=shown)
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError:
        raise InputError("is not UTF-8 text", file=shown) from None
    except (OSError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"cannot be read: {getattr(error, 'strerror', None) or error}", file=shown) from None
    return _parsed(lines, shown)


def _parsed(lines: list[str], file: str) -> ExpertTable:
    said = _comments(lines, file)
    rows = [(number, line) for number, line in enumerate(lines, 1) if line.strip() and line[0] != "#"]
    if not rows or rows[0][1].strip() != _HEADER:
        line = rows[0][0] if rows else None
        raise InputError(f"the columns are not {_HEADER}", file=file, line=line)
    counts: list[int] = []
    times: list[float] = []
    for number, text in rows[1:]:
        tokens, time_ns = _row(text, file, number)
        if counts and tokens <= counts[-1]:
            problem = f"{tokens} does not come after {counts[-1]}: counts rise"
            raise InputError(problem, file=file, line=number, key="tokens")
        counts.append(tokens)
        times.append(time_ns)
    if len(counts) < 2:
        raise InputError("has fewer than two measured counts of tokens", file=file)
    if said["outside"] == "extend" and times[-1] < times[-2]:
        problem = "the last two times fall, and cannot be extended"
        raise InputError(problem, file=file, line=rows[-1][0], key="time_ns")
    return ExpertTable(
        file=file,
        what=said["what"],
        source=said["source"],
        expert=Expert(int(said["hidden"]), int(said["intermediate"])),
        bits=int(said["bits"]),
        holds_weight_read=said["weight_read"] == "included",
        extend=said["outside"] == "extend",
        tokens=tuple(counts),
        times_ns=tuple(times),
    )


def _comments(lines: list[str], file: str) -> dict[str, str]:
    """What the lines ``# key: value`` say; each key is there once."""
    said: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        if not line.startswith("#"):
            continue
        key, colon, value = (part.strip() for part in line[1:].partition(":"))
        if not colon or key not in _KEYS:
            raise InputError(one_of(key, _KEYS, "key"), file=file, line=number)
        if key in said:
            raise InputError("is given twice", file=file, line=number, key=key)
        if problem := _wrong(key, value):
            raise InputError(problem, file=file, line=number, key=key)
        said[key] = value
    said.setdefault("outside", "refuse")
    for key in _KEYS:
        if key not in said:
            raise InputError(f"is missing; give it in a line '# {key}: ...'", file=file, key=key)
    return said


def _wrong(key: str, value: str) -> str | None:
    if key in _WORDS:
        return None if value in _WORDS[key] else one_of(value, _WORDS[key], "value")
    if key in _NUMBERS:
        number = _whole(value)
        right = number is not None and 1 <= number <= _NUMBERS[key]
        return None if right else f"'{value[:40]}' is not a whole number from 1 to {_NUMBERS[key]}"
    return None if value else "says nothing"


def _whole(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else None


def _row(text: str, file: str, line: int) -> tuple[int, float]:
    cells = [cell.strip() for cell in text.split(",")]
    if len(cells) != 2:
        raise InputError(f"'{text[:40]}' is not {_HEADER}", file=file, line=line)
    tokens = _whole(cells[0])
    if tokens is None or not 1 <= tokens <= _MAX_TOKENS:
        problem = f"'{cells[0][:40]}' is not a whole number from 1 to {_MAX_TOKENS}"
        raise InputError(problem, file=file, line=line, key="tokens")
    try:
        time_ns = float(cells[1])
    except ValueError:
        time_ns = math.nan
    if not (0 < time_ns < math.inf):
        problem = f"'{cells[1][:40]}' is not a time in ns above 0"
        raise InputError(problem, file=file, line=line, key="time_ns")
    return tokens, time_ns
