"""Parts that hardware files name, as text."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ndpsim.config import Part, load_part, part_names
from ndpsim.config.files import PART_KINDS
from ndpsim.report.printing import print_table
from ndpsim.report.text import print_rows

# The columns of each kind: what they are called, and the keys they show.
_COLUMNS = {
    "cpus": {
        "cores": "host.cpu_cores",
        "GHz": "host.cpu_clock_ghz",
        "instructions": "host.cpu_isa",
        "channels": "host.cpu_memory_channels",
        "MT/s": "host.cpu_memory_mtps",
        "GB/s": "derived.memory_peak",
        "fabric GB/s": "host.cpu_fabric_gbps",
    },
    "memories": {
        "organisation": "dram.org",
        "timing": "dram.timing",
        "channel GB/s": "derived.channel_peak",
    },
    "gpus": {
        "TFLOPS": "gpu.tflops",
        "GB": "gpu.memory_gb",
        "TB/s": "gpu.memory_tbps",
        "PCIe GB/s": "gpu.pcie_gbps",
    },
    "links": {
        "GB/s": "pcie.gbps",
        "latency ns": "pcie.latency_ns",
        "packet B": "pcie.packet_bytes",
        "header B": "pcie.header_bytes",
    },
}
_TITLES = {"cpus": "CPUs", "memories": "Memories", "gpus": "GPUs", "links": "Links"}


def print_parts() -> None:
    """All bundled parts, a table for each kind, with their main numbers."""
    for kind in PART_KINDS:
        parts = [load_part(name) for name in part_names(kind)]
        print_table(_TITLES[kind], ("part", "title", *_COLUMNS[kind]), _cells(kind, parts), left=2)


def _cells(kind: str, parts: Iterable[Part]) -> list[tuple[str, ...]]:
    rows = []
    for part in parts:
        values = {row.key: row.value for row in part.rows()}
        rows.append((part.name, part.title, *(_written(values.get(key)) for key in _COLUMNS[kind].values())))
    return rows


def _written(value: Any) -> str:
    return "-" if value is None else f"{value:.5g}" if isinstance(value, float) else str(value)


def print_part(part: Part) -> None:
    """Every value of a part with its unit and source, and what follows from them."""
    also = f", also {', '.join(part.also)}" if part.also else ""
    rows = [(row.key, row.value, row.unit, row.origin) for row in part.rows()]
    print_rows(f"{part.title} ({part.name}{also}; {part.file})", rows)
