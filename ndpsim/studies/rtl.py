"""Verilog and the size of a unit as hardware: gates, transistors, memory bits, depth and area.

Gates, memories and area of a machine's GEMV unit as hardware, without synthesis.

`validation/rtl/fit.py` synthesises modules of some units, and finds the gates of each bit of a register, an
adder and so on; these are added up. Its file has the error.
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

import yaml

from ndpsim.base.errors import InputError
from ndpsim.base.run_files import note_input, temporary_folder
from ndpsim.config import Hardware, load_hardware
from ndpsim.config.banks import load_bank_hardware
from ndpsim.config.files import data_folder
from ndpsim.dimm.layout import ExpertFormat, ExpertWeights
from ndpsim.dimm.units.gemv import GemvUnit
from ndpsim.simulate.machine import NdpMachine, lower_machine, named_weights, place_on_dimms
from ndpsim.simulate.rtl import units
from ndpsim.simulate.rtl.build import UnitSource, load_module, write_rtlil, yosys
from ndpsim.workload.models import Expert

#: The bundled machine of each unit, which gives lanes and bursts, and its key there.
MACHINES = {
    "trimoe_gemv": ("trimoe", "ndp.gemv"),
    "edge_gemv": ("edge", "ndp.gemv"),
    "trimoe_activation": ("trimoe", "ndp.activation"),
    "edge_activation": ("edge", "ndp.activation"),
    "cxl_activation": ("cxl", "ndp.activation"),
    "cxl_systolic": ("cxl", "ndp.systolic"),
    "trimoe_relayout": ("trimoe", "ndp.relayout"),
    "aim_bank": ("aim", "unit"),
}

#: Transistors of a cell in static CMOS, those that Yosys' `stat -tech cmos` counts.
TRANSISTORS = {
    "NOT": 2,
    "NAND": 4,
    "NOR": 4,
    "AND": 6,
    "OR": 6,
    "XOR": 12,
    "XNOR": 12,
    "MUX": 12,
    "DFF": 16,
}
#: Levels of 2-input NAND gates from an input of a cell to its output.
LEVELS = {"NOT": 1, "NAND": 1, "NOR": 1, "AND": 2, "OR": 2, "XOR": 3, "XNOR": 3, "MUX": 3}
_GATES = "AND,NAND,OR,NOR,XOR,XNOR,MUX"
_LEAST_UTILISATION = 0.7  # of the area by cells, between them and the wires; the other bound is 1
_SCRIPT = (
    "proc",
    "opt -full",
    "alumacc",
    "opt",
    "memory -nomap",
    "opt -full",
    "write_json memories.json",
    "techmap",
    "opt -fast",
    "dfflegalize -cell $_DFF_P_ 01",
    "opt_clean",
    f"abc -g {_GATES}",
    "opt_clean",
    "write_json gates.json",
)


@dataclass(frozen=True)
class InProcess:
    """A unit in a process.

    Attributes:
        process: its title.
        least_mm2, most_mm2: logic, without memories, from dense cells to a usual utilisation.
        memory_mm2: bits of memories with one port each; None: no source.
        least_mhz, most_mhz: clocks in which the deepest path settles, of the slow and the fast corner.
        sources: of the area of a gate, and of its delay.
    """

    process: str
    least_mm2: float
    most_mm2: float
    memory_mm2: float | None
    least_mhz: float
    most_mhz: float
    sources: tuple[str, str]


@dataclass(frozen=True)
class Synthesis:
    """The size of a unit.

    Attributes:
        unit: its name.
        sizes: its parameters.
        cells: cells by kind, over all modules.
        transistors: of these cells.
        gate_equivalents: transistors over those of a 2-input NAND.
        memories: bits by name; each of them may be in several modules.
        memory_bits: over all memories.
        depth: levels of 2-input NAND gates between two registers or memories, the most in any module.
        deepest: the module with the most.
        processes: area and clock by process.
        clock_mhz: the clock of the unit's model; None: it has none of its own.
        paper_mm2: the area of all units of a DIMM in the paper; None: it gives none.
    """

    unit: str
    sizes: Mapping[str, Any]
    cells: Mapping[str, int]
    transistors: int
    gate_equivalents: float
    memories: Mapping[str, int]
    memory_bits: int
    depth: int
    deepest: str
    processes: tuple[InProcess, ...]
    clock_mhz: float | None
    paper_mm2: float | None

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self)


@dataclass(frozen=True, eq=False)
class BuiltUnit:
    """A bundled unit with the sizes of a machine, and the clock that its model has there."""

    name: str
    module: Any
    sizes: Any
    clock_mhz: float | None = None
    paper_mm2: float | None = None

    def counts(self) -> dict[str, int]:
        """How often each module is in the unit."""
        counts: dict[str, int] = self.module.counts(self.sizes)
        return counts

    def sources(self) -> dict[str, str]:
        """RTLIL of each module, by file."""
        return write_rtlil(self.module.modules(self.sizes))


def build_unit(
    name: str,
    params: str | None = None,
    sets: Sequence[str] = (),
    model: Any = "qwen3-235b-a22b",
    bits: Any = 16,
    tokens: int = 1,
) -> BuiltUnit:
    """A bundled unit as hardware, for an expert on its machine.

    Args:
        name: a file of ``rtl_params`` that has hardware, or ``aim_bank``, the unit at a bank of ``aim``.
        params: another file of this form, instead of it.
        sets: changes to the machine, or to the device with units in its banks.
        model, bits, tokens: the expert; they give the widths of weights, and rows and tokens at once.

    Raises:
        InputError: there is no such unit, or it cannot be built.
    """
    if name not in MACHINES:
        known = ", ".join(MACHINES)
        raise InputError(f"'{name}' has no hardware; {known} have", "unknown-name", key="UNIT")
    machine_name, key = MACHINES[name]
    module = units.hardware_module(name)
    if key == "unit":
        if params:
            raise InputError("a unit at a bank has no file of rtl_params", "conflict", key="params")
        return BuiltUnit(name, module, units.bank_parameters(module, load_bank_hardware(machine_name, sets)))
    chosen = (f"{key}={params}",) if params else ()
    command = "relayout" if key == "ndp.relayout" else "gemv"
    hardware = load_hardware(machine_name, (*chosen, *sets), command)
    if key == "ndp.relayout":
        sizes = units.relayout_parameters(module, hardware)
    else:
        with hardware.errors_at_origins():
            sizes = _sizes(module, key, lower_machine(hardware), named_weights(model, bits)[0], tokens)
    clock_mhz = getattr(hardware.ndp, key.removeprefix("ndp.")).clock_mhz
    return BuiltUnit(name, module, sizes, clock_mhz, hardware.ndp.published.area_mm2)


def _sizes(module: Any, key: str, machine: NdpMachine, weights: ExpertWeights, tokens: int) -> Any:
    """The sizes of a machine's unit that multiplies or activates."""
    if key == "ndp.activation":
        return units.parameters(module, asdict(machine.activation))
    expert = place_on_dimms(machine, "localized", weights)
    most = max(machine.unit.tile(tokens, weights.hidden, expert.slice))
    if key == "ndp.systolic":
        return units.systolic_parameters(module, machine, weights.format.up.bits, most)
    return units.machine_parameters(module, machine, expert, most)


def verilog(unit: BuiltUnit) -> str:
    """The unit in Verilog.

    Raises:
        InputError: the extra is missing.
    """
    with temporary_folder() as folder:
        source = UnitSource(unit.name, unit.sources(), "unit")
        yosys(folder, [f"rename unit {unit.name}", "write_verilog -noattr unit.v"], source)
        return (folder / "unit.v").read_text(encoding="utf-8")


def synthesise(unit: BuiltUnit) -> Synthesis:
    """Map the unit to gates, each module once, and add up.

    Raises:
        InputError: the extra is missing.
    """
    cells: Counter[str] = Counter()
    memories: Counter[str] = Counter()
    depths: dict[str, int] = {}
    for (module, count), text in zip(unit.counts().items(), unit.sources().values(), strict=True):
        found, bits, depths[module] = map_module(module, text)
        cells.update({kind: number * count for kind, number in found.items()})
        memories.update({f"{module}: {name}": number * count for name, number in bits.items()})
    transistors, equivalents = _transistors(cells), gate_equivalents(cells)
    deepest = max(depths, key=depths.__getitem__)
    return Synthesis(
        unit=unit.name,
        sizes=asdict(unit.sizes),
        cells=dict(sorted(cells.items())),
        transistors=transistors,
        gate_equivalents=equivalents,
        memories=dict(memories),
        memory_bits=sum(memories.values()),
        depth=depths[deepest],
        deepest=deepest,
        processes=in_processes(equivalents, sum(memories.values()), depths[deepest]),
        clock_mhz=unit.clock_mhz,
        paper_mm2=unit.paper_mm2,
    )


def map_module(module: str, text: str) -> tuple[dict[str, int], dict[str, int], int]:
    """Cells by kind, bits of memories by name, and depth of a module in RTLIL, without the modules in it.

    Raises:
        InputError: the extra is missing.
    """
    source = UnitSource(module, {f"{module}.il": text}, module, checked=False)
    with temporary_folder() as folder:
        yosys(folder, _SCRIPT, source)
        gates, memories = (
            json.loads((folder / f"{name}.json").read_text())["modules"][module]["cells"]
            for name in ("gates", "memories")
        )
    return _cells(gates), _memories(memories), _depth(gates)


def gate_equivalents(cells: Mapping[str, int]) -> float:
    """Cells by kind as 2-input NAND gates, by their transistors."""
    return _transistors(cells) / TRANSISTORS["NAND"]


def _transistors(cells: Mapping[str, int]) -> int:
    return sum(TRANSISTORS[kind] * number for kind, number in cells.items())


def _kind(cell: Mapping[str, Any]) -> str:
    """``$_NAND_``: NAND."""
    return str(cell["type"]).strip("$_").split("_")[0]


def _cells(cells: Mapping[str, Any]) -> dict[str, int]:
    """Gates and registers of a module by kind."""
    kinds = Counter(map(_kind, cells.values()))
    return {kind: number for kind, number in kinds.items() if kind in TRANSISTORS}


def _memories(cells: Mapping[str, Any]) -> dict[str, int]:
    """Bits of the memories of a module, by their names without numbers."""
    bits: Counter[str] = Counter()
    for name, cell in cells.items():
        if cell["type"].startswith("$mem"):
            width, size = (int(cell["parameters"][each], 2) for each in ("WIDTH", "SIZE"))
            bits[re.sub(r"\d+$", "", name.rpartition(".")[2])] += width * size
    return dict(bits)


def _depth(cells: Mapping[str, Any]) -> int:
    """The longest path through gates, in `LEVELS`."""
    gates = {name: cell for name, cell in cells.items() if _kind(cell) in LEVELS}
    driver = {bit: name for name, cell in gates.items() for bit in cell["connections"]["Y"]}
    inputs = {
        name: [
            driver[bit]
            for port, bits in cell["connections"].items()
            if port != "Y"
            for bit in bits
            if bit in driver
        ]
        for name, cell in gates.items()
    }
    depth: dict[str, int] = {}
    for name in TopologicalSorter(inputs).static_order():
        depth[name] = LEVELS[_kind(gates[name])] + max(map(depth.__getitem__, inputs[name]), default=0)
    return max(depth.values(), default=0)


def in_processes(equivalents: float, memory_bits: int, depth: int) -> tuple[InProcess, ...]:
    """Area and clock of a unit in the processes of `validation/rtl/processes.yaml`, in their order."""
    found = []
    for process in _processes().values():
        gate, delay = process["nand2_um2"], process["nand2_ps"]
        dense = equivalents * gate["value"] / 1e6
        bit = process.get("sram_bit_um2", {}).get("value")
        found.append(
            InProcess(
                process=process["title"],
                least_mm2=dense,
                most_mm2=dense / _LEAST_UTILISATION,
                memory_mm2=None if bit is None else memory_bits * bit / 1e6,
                least_mhz=1e6 / (max(1, depth) * delay["slow"]),
                most_mhz=1e6 / (max(1, depth) * delay["fast"]),
                sources=(gate["source"], delay["source"]),
            )
        )
    return tuple(found)


@functools.cache
def _processes() -> dict[str, Any]:
    path = data_folder("validation") / "rtl" / "processes.yaml"
    found: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return found


# ---- Sizes of units in sweeps


#: The metrics of `unit_size`.
METRICS = ("rtl_gate_equivalents", "rtl_memory_bits", "rtl_area_mm2")


_FILES = ("gemv_sizes.py", "gemv_sizes.json", "processes.yaml")


def data_digest() -> str:
    """A digest of the files that sizes come from; they are noted as inputs."""
    for name in _FILES:
        note_input(_folder() / name)
    return _digest()


@functools.cache
def _digest() -> str:
    return hashlib.blake2b(b"".join((_folder() / name).read_bytes() for name in _FILES)).hexdigest()


def _folder() -> Path:
    return data_folder("validation") / "rtl"


@functools.cache
def fit() -> tuple[Any, dict[str, Any]]:
    """The module with the sizes of the unit, and the content of the file of the fit."""
    content: dict[str, Any] = json.loads((_folder() / "gemv_sizes.json").read_text(encoding="utf-8"))
    return load_module(_folder() / "gemv_sizes.py"), content


def unit_size(
    hardware: Hardware,
    expert: str | Expert,
    bits: ExpertFormat,
    layout: str = "localized",
    tokens: int | Sequence[int] = 1,
) -> dict[str, float | None]:
    """Size of the GEMV unit of a DIMM, by name of `METRICS`; None: the hardware has none, or cannot be built.

    The area is that of the first process of `validation/rtl/processes.yaml`: logic at the usual utilisation,
    and memories with one port.
    """
    machine = lower_machine(hardware)
    if not isinstance(machine.unit, GemvUnit):
        return dict.fromkeys(METRICS)
    module, content = fit()
    placed = place_on_dimms(machine, layout, named_weights(expert, bits)[0])
    most_tokens = tokens if isinstance(tokens, int) else max(tokens)
    most = max(machine.unit.tile(most_tokens, placed.weights.hidden, placed.slice))
    try:
        sizes = units.machine_parameters(module, machine, placed, most)
    except InputError:
        return dict.fromkeys(METRICS)
    gates, memory_bits = module.gates(sizes, content["factors"]), module.memory_bits(sizes)
    area = in_processes(gates, memory_bits, depth=1)[0]
    assert area.memory_mm2 is not None
    return dict(zip(METRICS, (gates, memory_bits, area.most_mm2 + area.memory_mm2), strict=True))
