"""How long experts take on a processor, as text."""

from __future__ import annotations

from collections.abc import Sequence

from ndpsim.processors import ExpertTime
from ndpsim.report.printing import print_table, print_text
from ndpsim.units import format_bytes, format_time, percent


def _time(ns: float | None) -> str:
    return "" if ns is None else format_time(ns)


def print_expert_times(expert: str, hardware: str, times: Sequence[ExpertTime]) -> None:
    """The times of one expert by tokens, and what they have in them.

    `expert`: what it is called; `hardware`: whose processor it is.
    """
    first = times[0]
    title = f"One expert of {expert} on the {first.processor.upper()} of {hardware}"
    rows = [
        (
            f"{one.tokens:,}", _time(one.time_ns), _time(one.compute_ns), _time(one.weight_read_ns),
            _time(one.overhead_ns), f"{one.tflops:.1f} TFLOPS", percent(one.peak_fraction), one.bound,
        )
        for one in times
    ]  # fmt: skip
    columns = ("tokens", "time", "compute", "weights", "overhead", "reached", "of peak", "bound by")
    print_table(f"{title}: {format_bytes(first.weight_bytes)}, {first.source}", columns, rows, left=7)
    if not first.holds_weight_read:
        print_text("Its weights are read over the host's memory channels beside these times.")
