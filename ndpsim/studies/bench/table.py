"""Measured rows as a table with units, and as a page that names the machine."""

from __future__ import annotations

import contextlib
import datetime
import os
import platform
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

from ndpsim.base.units import format_time, significant
from ndpsim.studies.bench.row import BenchRow
from ndpsim.studies.bench.rows import ROWS
from ndpsim.studies.bench.traffic import RAMULATOR_RUNS

COLUMNS = (
    "row",
    "work",
    "requests",
    "time",
    "million requests/s",
    "x plain",
    "x Ramulator 2.1",
    "x RTL",
    "x hardware",
)
_NOTHING = "-"

_EXPLANATION = f"""\
Every row runs once before it is measured, so that nothing of it is compiled, and then as often as the
command says (experts at least 20 times, Ramulator at most {RAMULATOR_RUNS} times, `compile` once); the \
best run counts.
Only the controllers are timed, on both sides: not the reading or making of requests. A row is an error when
its requests, clocks and commands by kind are not the pinned ones, when any counter or latency differs from
the plain implementation's, or when a counter or the clock in which the last request is taken differs from
Ramulator's.

- *x plain*: times faster than the controller that looks at every queued request at every step, on the same
  work; for an expert, with every lane laid out and run on its own and every read stepped through.
- *x Ramulator 2.1*: times faster than it; - where it was not installed or cannot run the work.
- *x RTL*: speed of the closed loop over that of the compiled hardware in it alone.
- *x hardware*: time that the simulated hardware needs, over the time to simulate it.

Requests of an expert are bursts of weights over all its lanes. Those of a layer are its pairs of a token and
an expert; its time is the processor's, and its experts were simulated before. Rows of traffic are of one
channel under FR-FCFS, open rows, all-bank refresh, queues of 32 and Ramulator's rules: DDR5_16Gb_x8 at
DDR5_4800AN, LPDDR5_16Gb_x16, LPDDR6_16Gb_x12, HBM3_16Gb_8hi, HBM4_32Gb_8Hi,
GDDR6_16Gb_x16 or GDDR7_16Gb_x8.
"""


def _ratio(value: float | None) -> str:
    if value is None:
        return _NOTHING
    return significant(value, 3)


def cells(row: BenchRow) -> list[str]:
    """A row under `COLUMNS`."""
    return [
        row.name,
        ROWS[row.name].about,
        f"{row.work.requests:,}",
        format_time(row.seconds * 1e9),
        significant(row.rate_mps) if row.work.requests > 1 else _NOTHING,
        _ratio(row.ratio_plain),
        _ratio(row.ratio_ramulator),
        _ratio(row.ratio_rtl),
        _ratio(None if row.simulated_s is None else row.simulated_s / row.seconds),
    ]


def machine() -> dict[str, str | int]:
    """The machine of the measurement: its processor and cores, and the versions that made the code."""
    model = platform.processor() or platform.machine()
    with contextlib.suppress(OSError):  # Linux only
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                model = line.partition(":")[2].strip()
                break
    versions = {name: metadata.version(name) for name in ("ndpsim", "numba", "numpy")}
    return {"cpu": model, "cores": os.cpu_count() or 1, "python": platform.python_version(), **versions}


def markdown(rows: Sequence[BenchRow], command: str) -> str:
    """A page with the measured rows, the command, the date and the machine."""
    on = machine()
    facts = {
        "command": f"`{command}`",
        "date": datetime.date.today().isoformat(),
        "machine": f"{on['cpu']}, {on['cores']} cores",
        "versions": f"Python {on['python']}, Numba {on['numba']}, NumPy {on['numpy']}",
    }
    table = [COLUMNS, ["---", "---", *["---:"] * (len(COLUMNS) - 2)], *map(cells, rows)]
    return "\n".join(
        [
            "# How fast ndpsim is",
            "",
            *(f"- {name}: {fact}" for name, fact in facts.items()),
            "",
            *(f"| {' | '.join(line)} |" for line in table),
            "",
            _EXPLANATION,
        ]
    )
