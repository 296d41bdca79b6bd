"""Verilog and the size of a unit as hardware: gates, transistors, memory bits, depth and area."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import yaml

from ndpsim.base.errors import InputError
from ndpsim.base.run_files import temporary_folder
from ndpsim.config import load_hardware
from ndpsim.config.banks import load_bank_hardware
from ndpsim.config.files import data_folder
from ndpsim.simulate.machine import lower_machine, named_weights, place_on_dimms
from ndpsim.simulate.rtl import units
from ndpsim.simulate.rtl.build import UnitSource, write_rtlil, yosys

#: The bundled machine of each unit, which gives lanes and bursts, and its key there.
MACHINES = {
    "trimoe_gemv": ("trimoe", "ndp.gemv"),
    "edge_gemv": ("edge", "ndp.gemv"),
    "trimoe_activation": ("trimoe", "ndp.activation"),
    "edge_activation": ("edge", "ndp.activation"),
    "cxl_activation": ("cxl", "ndp.activation"),
    "cxl_systolic": ("cxl", "ndp.systolic"),
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
    "tee -o depth.txt ltp -noff",
)


@dataclass(frozen=True)
class Area:
    """An area in a process, from dense cells to a usual utilisation.

    Attributes:
        process: its title.
        least_mm2, most_mm2: logic, without memories.
        memory_mm2: bits of memories with one port each; None: no source.
        source: of the area of a gate.
    """

    process: str
    least_mm2: float
    most_mm2: float
    memory_mm2: float | None
    source: str


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
        depth: gates between two registers or memories, the most in any module.
        deepest: the module with the most.
        areas: by process.
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
    areas: tuple[Area, ...]
    paper_mm2: float | None

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self)


@dataclass(frozen=True, eq=False)
class BuiltUnit:
    """A bundled unit with the sizes of a machine."""

    name: str
    module: Any
    sizes: Any
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
    hardware = load_hardware(machine_name, (*chosen, *sets), "gemv")
    with hardware.errors_at_origins():
        machine = lower_machine(hardware)
        if key == "ndp.activation":
            sizes = units.parameters(module, asdict(machine.activation))
        else:
            expert = place_on_dimms(machine, "localized", named_weights(model, bits)[0])
            most = max(machine.unit.tile(tokens, expert.weights.hidden, expert.slice))
            if key == "ndp.systolic":
                sizes = units.systolic_parameters(module, machine, expert.weights.format.up.bits, most)
            else:
                sizes = units.machine_parameters(module, machine, expert, most)
    return BuiltUnit(name, module, sizes, hardware.ndp.published.area_mm2)


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
        source = UnitSource(unit.name, {f"{module}.il": text}, module, checked=False)
        with temporary_folder() as folder:
            yosys(folder, _SCRIPT, source)
            found = _cells(json.loads((folder / "gates.json").read_text()), module)
            bits = _memories(json.loads((folder / "memories.json").read_text()), module)
            depth = re.search(r"length=(\d+)", (folder / "depth.txt").read_text())
        cells.update({kind: number * count for kind, number in found.items()})
        memories.update({f"{module}: {name}": number * count for name, number in bits.items()})
        depths[module] = int(depth[1]) if depth else 0
    transistors = sum(TRANSISTORS[kind] * number for kind, number in cells.items())
    equivalents = transistors / TRANSISTORS["NAND"]
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
        areas=_areas(equivalents, sum(memories.values())),
        paper_mm2=unit.paper_mm2,
    )


def _module(plain: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = plain["modules"][name]
    return found


def _cells(plain: Mapping[str, Any], module: str) -> dict[str, int]:
    """Gates and registers of a module by kind."""
    kinds = Counter(cell["type"] for cell in _module(plain, module)["cells"].values())
    names = {kind: kind.strip("$_").split("_")[0] for kind in kinds}
    return {name: kinds[kind] for kind, name in names.items() if name in TRANSISTORS}


def _memories(plain: Mapping[str, Any], module: str) -> dict[str, int]:
    """Bits of the memories of a module, by their names without numbers."""
    bits: Counter[str] = Counter()
    for name, cell in _module(plain, module)["cells"].items():
        if cell["type"].startswith("$mem"):
            width, size = (int(cell["parameters"][each], 2) for each in ("WIDTH", "SIZE"))
            bits[re.sub(r"\d+$", "", name.rpartition(".")[2])] += width * size
    return dict(bits)


def _areas(equivalents: float, memory_bits: int) -> tuple[Area, ...]:
    path = data_folder("validation") / "rtl" / "processes.yaml"
    processes = yaml.safe_load(path.read_text(encoding="utf-8"))
    areas = []
    for process in processes.values():
        dense = equivalents * process["nand2_um2"]["value"] / 1e6
        bit = process.get("sram_bit_um2", {}).get("value")
        memory = None if bit is None else memory_bits * bit / 1e6
        source = process["nand2_um2"]["source"]
        areas.append(Area(process["title"], dense, dense / _LEAST_UTILISATION, memory, source))
    return tuple(areas)
