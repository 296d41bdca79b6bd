"""Experts as text: their weights in a file of a model, and their times on a processor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ndpsim.base.reported import table_of, with_unit
from ndpsim.base.units import format_bytes, percent
from ndpsim.inference.processors import ExpertTime
from ndpsim.inference.processors.weights import expert_format_of
from ndpsim.report.printing import print_table, print_text
from ndpsim.workload.models.weights import CLASSES, WeightFile

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
_WORDS = {
    "gate": "routed experts: gate",
    "up": "routed experts: up",
    "down": "routed experts: down",
    "mla_copies": "keys and values again",
}


def weight_file_dict(file: WeightFile) -> dict[str, Any]:
    """A weight file as plain data."""
    classes = {}
    for group in (group for group in CLASSES if group in file.bits):
        blocks = file.blocks(group)
        classes[group] = {
            "bits": float(file.bits[group]),
            "bytes": sum(tensor.bytes for tensor in file.of_class(group)),
            "formats": {block.name: count / blocks.total() for block, count in blocks.most_common()},
        }
    about = {"name": file.name, "model": file.model, "source": file.source, "bytes": file.bytes}
    return {**about, "classes": classes}


def print_weight_file(file: WeightFile) -> None:
    """Print the content of each class of tensors, and the format in which a routed expert is simulated."""
    rows = []
    for group, described in weight_file_dict(file)["classes"].items():
        formats = described["formats"]
        named = [f"{name} {percent(share)}" if share < 1 else name for name, share in formats.items()]
        words = _WORDS.get(group, group.replace("_", " "))
        rows.append((words, f"{described['bits']:.4g}", format_bytes(described["bytes"]), ", ".join(named)))
    title = f"{file.name} of {file.model}: {format_bytes(file.bytes)}, from {file.source}"
    print_table(title, ("tensors", "bits", "bytes", "formats"), rows, left=3)
    if not file.of_class("gate"):
        return
    form = expert_format_of(file)
    kinds = dict.fromkeys((f"gate and up {form.gate}", f"down {form.down}"))
    print_text(f"Simulated in every layer as: {'; '.join(kinds)}.")


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
