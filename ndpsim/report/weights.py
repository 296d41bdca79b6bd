"""A weight file of a model, as text."""

from __future__ import annotations

from typing import Any

from ndpsim.base.units import format_bytes, percent
from ndpsim.inference.processors.weights import expert_format_of
from ndpsim.report.printing import print_table, print_text
from ndpsim.workload.models.weights import CLASSES, WeightFile

_WORDS = {
    "gate": "routed experts: gate",
    "up": "routed experts: up",
    "down": "routed experts: down",
    "mla_copies": "keys and values again",
}


def _formats(file: WeightFile, group: str) -> dict[str, float]:
    """Formats and their shares of a class's weights, the largest first."""
    counted = file.blocks(group)
    return {name: count / counted.total() for name, count in counted.most_common()}


def weight_file_dict(file: WeightFile) -> dict[str, Any]:
    """A weight file as plain data."""
    classes = {
        group: {
            "bits": float(file.bits[group]),
            "bytes": sum(tensor.bytes for tensor in file.of_class(group)),
            "formats": _formats(file, group),
        }
        for group in CLASSES
        if group in file.bits
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
    form = expert_format_of(file)
    kinds = dict.fromkeys((f"gate and up {form.gate}", f"down {form.down}"))
    print_text(f"Simulated in every layer as: {'; '.join(kinds)}.")
