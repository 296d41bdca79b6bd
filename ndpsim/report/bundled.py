"""What `show` prints: parts of machines, policies, and experts: places, weights and times."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ndpsim.base.choices import BITS
from ndpsim.base.reported import label_of, table_of, with_unit
from ndpsim.base.text_files import FileFormat
from ndpsim.base.units import format_bytes, percent
from ndpsim.config import Part, load_part, part_names
from ndpsim.config.files import PART_KINDS
from ndpsim.config.keys import Row
from ndpsim.inference.processors import ExpertTime
from ndpsim.inference.processors.weights import expert_format_of
from ndpsim.policies.choose import ENGINES, PolicyParameter, policies
from ndpsim.policies.interface import Policy
from ndpsim.report.metrics import value_words
from ndpsim.report.printing import print_table, print_text
from ndpsim.report.text import print_rows
from ndpsim.report.words import counted
from ndpsim.simulate import PlacedExpert
from ndpsim.simulate.bank_layout import BankLayout
from ndpsim.simulate.machine import DimmPart, LanePart
from ndpsim.workload.models.weights import CLASSES, WeightFile

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


def print_formats(formats: Mapping[str, FileFormat]) -> None:
    """Print a line for each format: its program and file."""
    print_table("", ("format", "meaning"), [(name, form.meaning) for name, form in formats.items()], left=2)


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


# ---- Experts: their places, their weights in a file of a model, and their times on a processor


def layout_title(placed: PlacedExpert) -> str:
    """A title that says which weights are placed where."""
    layout, described = placed.layout, placed.described
    name = described["model"] or f"{described['hidden']} x {described['intermediate']}"
    bits = {str(values_of): None for values_of in layout.weights.format.matrices}
    written = (
        next(iter(bits))
        if len(bits) == 1
        else ", ".join(
            f"{matrix} {values_of}"
            for matrix, values_of in zip(
                layout.weights.format.names, layout.weights.format.matrices, strict=True
            )
        )
    )
    return (
        f"One expert of {name} on {placed.hardware}, {layout.name}: {format_bytes(layout.bytes)}, {written}"
    )


def print_layout(placed: PlacedExpert) -> None:
    """Print the bytes of every matrix on every DIMM, and how evenly the lanes of a DIMM share them."""
    layout = placed.layout
    columns = (
        "dimm",
        "channel",
        *(f"matrix_bytes.{name}" for name in layout.weights.format.names),
        "matrix_bytes",
    )
    labels = [*(label_of(name, DimmPart) for name in columns), label_of("matrix_bytes", LanePart)]
    rows = []
    for dimm in placed.dimms:
        lanes = [sum(lane.matrix_bytes.values()) for lane in dimm.lanes]
        share = f"{format_bytes(min(lanes))} to {format_bytes(max(lanes))}"
        rows.append((str(dimm.dimm), str(dimm.channel), *_sizes(dimm.matrix_bytes.values()), share))
    rows.append(("all", "", *_sizes(layout.lane_bits().sum(axis=(0, 1)) / 8), ""))
    on_lanes = f"{counted(layout.geometry.lanes, 'lane')} on each DIMM"
    print_table(f"{layout_title(placed)} in {counted(layout.bursts, 'burst')}, {on_lanes}", labels, rows)


def _sizes(matrices: Iterable[float]) -> list[str]:
    """The bytes of each matrix, and their sum."""
    sizes = list(matrices)
    return list(map(format_bytes, [*sizes, sum(sizes)]))


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
    if not file.of_class("gate") or file.bits["gate"] > BITS[0]:
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


def bank_layout_title(layout: BankLayout) -> str:
    """A title that says what is placed on which device."""
    return f"{layout.what} on {layout.hardware}: rows of {layout.rows:,} in each bank"


def print_bank_layout(layout: BankLayout) -> None:
    """Print the rows of each operand, and its bytes in a channel."""
    columns = ("operand", "first row", "rows", "banks of a channel", "channels", "bytes of a channel")
    rows = [
        (
            operand.name,
            f"{operand.first_row:,}",
            f"{operand.rows:,}",
            str(operand.banks),
            str(operand.channels),
            format_bytes(operand.bytes),
        )
        for operand in layout.operands
    ]
    print_table(bank_layout_title(layout), columns, rows)
