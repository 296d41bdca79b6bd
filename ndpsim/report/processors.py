"""Times of experts on a processor, as text."""

from __future__ import annotations

from collections.abc import Sequence

from ndpsim.base.reported import table_of, with_unit
from ndpsim.inference.processors import ExpertTime
from ndpsim.report.printing import print_table, print_text

_COLUMNS = (
    "tokens",
    "time_ns",
    "compute_ns",
    "weight_read_ns",
    "overhead_ns",
    "tflops",
    "peak_fraction",
    "bound",
)


def print_expert_times(expert: str, hardware: str, times: Sequence[ExpertTime]) -> None:
    """Print the times of one expert by tokens, with their parts.

    `expert` is its name; `hardware` has the processor.
    """
    first = times[0]
    size = with_unit("weight_bytes", first.weight_bytes, ExpertTime)
    title = f"One expert of {expert} on the {first.processor.upper()} of {hardware}: {size}, {first.source}"
    print_table(title, *table_of(times, *_COLUMNS), left=0)
    if not first.holds_weight_read:
        print_text("Its weights are read over the host's memory channels beside these times.")
