"""Parts of machines, and policies, as text."""

from __future__ import annotations

from collections.abc import Iterable

from ndpsim.config import Part, load_part, part_names
from ndpsim.config.files import PART_KINDS
from ndpsim.config.keys import Row
from ndpsim.policies.choose import ENGINES, PolicyParameter, policies
from ndpsim.policies.interface import Policy
from ndpsim.report.metrics import value_words
from ndpsim.report.printing import print_table, print_text
from ndpsim.report.text import print_rows

# The keys shown for each kind.
_SHOWN = {
    "cpus": (
        "host.cpu_cores",
        "host.cpu_clock_ghz",
        "host.cpu_isa",
        "host.cpu_memory_channels",
        "host.cpu_memory_mtps",
        "derived.memory_peak",
        "host.cpu_fabric_gbps",
    ),
    "memories": ("dram.org", "dram.timing", "derived.channel_peak"),
    "gpus": ("gpu.tflops", "gpu.memory_gb", "gpu.memory_tbps", "gpu.pcie_gbps"),
    "links": ("pcie.gbps", "pcie.latency_ns", "pcie.packet_bytes", "pcie.header_bytes"),
}
_TITLES = {"cpus": "CPUs", "memories": "Memories", "gpus": "GPUs", "links": "Links"}


def print_parts() -> None:
    """Print a table for each kind of bundled parts, with their main values."""
    for kind in PART_KINDS:
        parts = [load_part(name) for name in part_names(kind)]
        rows = [{row.key: row for row in part.rows()} for part in parts]
        units = {key: row.unit for values in rows for key, row in values.items()}
        cells = [
            (part.name, part.title, *(_written(values.get(key)) for key in _SHOWN[kind]))
            for part, values in zip(parts, rows, strict=True)
        ]
        print_table(
            _TITLES[kind],
            ("part", "title", *(_heading(key, units.get(key, "")) for key in _SHOWN[kind])),
            cells,
            left=2,
        )


def _heading(key: str, unit: str) -> str:
    """The words of a key with its unit: ``memory TB/s`` for ``gpu.memory_tbps``."""
    words = key.rpartition(".")[2].removeprefix("cpu_").split("_")
    if words[-1] in (unit.replace("/s", "ps").lower(), "bytes"):
        words.pop()
    return " ".join([*words, unit]).strip()


def _written(row: Row | None) -> str:
    value = None if row is None else row.value
    return "-" if value is None else f"{value:.5g}" if isinstance(value, float) else str(value)


def print_part(part: Part) -> None:
    """Print every value of a part with its unit and source, and the values derived from them."""
    also = f", also {', '.join(part.also)}" if part.also else ""
    print_rows(f"{part.title} ({part.name}{also}; {part.file})", part.rows())


def print_policies() -> None:
    """Print a line for each bundled policy: its engines, requirements and paper."""
    columns = ("policy", "engines", "needs", "paper")
    rows = [
        (policy.name, " ".join(policy.engines), " ".join(policy.needs) or "-", policy.paper)
        for policy in policies().values()
    ]
    print_table("", columns, rows, left=4)


def print_policy(policy: type[Policy], parameters: Iterable[PolicyParameter]) -> None:
    """Print the title, paper and engines of a policy, and its parameters with defaults."""
    print_text(f"{policy.name}: {policy.title}{f' ({policy.paper})' if policy.paper else ''}", bold=True)
    needs = ", ".join(ENGINES[engine] for engine in policy.needs)
    print_text(f"computes on {', '.join(policy.engines)}; needs {needs or 'no more than a GPU'}", indent="  ")
    if policy.mixed_steps:
        print_text(f"in mixed steps of serving: {policy.mixed_steps}", indent="  ")
    rows = [(p.name, value_words(p.default), p.type, p.description) for p in parameters]
    if rows:
        print_table("", ("parameter", "default", "is", "meaning"), rows, left=4)
    else:
        print_text("it has no parameters")
