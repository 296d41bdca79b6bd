"""The timings of a preset, as a table and as plain data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ndpsim.base.units import dram_period_ps, in_decimals, plain_number
from ndpsim.dram.spec import Device, Standard
from ndpsim.dram.spec.timing_rows import TimingRow
from ndpsim.report.printing import print_grid, print_table, print_text

#: Words for a value whose page names no source.
NO_SOURCE = "none stated"


def in_ns(ns: float) -> str:
    """Nanoseconds to a whole ps."""
    return f"{ns:.3f}".rstrip("0").rstrip(".")


def print_rounded(device: Device) -> None:
    """Print how times of overrides became clocks, if there are any."""
    for name, words in device.rounded.items():
        print_text(f"{name}: {words}")


def print_timings(
    standard: Standard, preset: str, org: str | None, rules: Sequence[str], rows: Sequence[TimingRow]
) -> None:
    """Print every timing: clocks, ns, the reference's clocks where they differ, the source."""
    page = standard.under(rules[0])
    rate = page.speeds[preset]["rate"]
    clock = in_decimals(dram_period_ps(rate, page.transfers_per_clock))
    organisation = f" of {org}" if org is not None else ""
    print_text(f"{preset}{organisation}, {standard.name}, --rules {' and '.join(rules)}", bold=True)
    print_grid([("rate", f"{rate} MT/s"), ("tCK_ps", clock)])
    differ = len(rules) > 1 and any(row.standard != row.reference for row in rows)
    some = any(row.of for row in rows)
    columns = ["timing", *["of"] * some, "clocks", "in ns", *["reference"] * differ, "source"]
    cells = []
    for row in rows:
        clocks = row.standard if row.standard is not None else row.reference
        theirs = "" if row.reference == row.standard else "-" if row.reference is None else str(row.reference)
        cell = [row.name, *[row.of] * some, str(clocks), in_ns(row.ns), *[theirs] * differ]
        cells.append([*cell, row.source or NO_SOURCE])
    print_table("", columns, cells, left=None, heading=3)


def timings_dict(
    standard: Standard, preset: str, org: str | None, rules: Sequence[str], rows: Sequence[TimingRow]
) -> dict[str, Any]:
    """The same as plain data: values that all devices share by name, and every row."""
    page = standard.under(rules[0])
    rate = page.speeds[preset]["rate"]
    clock = plain_number(dram_period_ps(rate, page.transfers_per_clock))
    first = {
        row.name: row.standard if row.standard is not None else row.reference for row in rows if not row.of
    }
    every = [{**row._asdict(), "source": row.source or NO_SOURCE} for row in rows]
    return {
        "standard": standard.name,
        "rules": list(rules),
        "org": org,
        "rate": rate,
        "tCK_ps": clock,
        **first,
        "timings": every,
    }
