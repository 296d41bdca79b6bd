"""Compares runs of units in banks with reference cases: the commands, counts and cycles of other simulators.

A case is a YAML file that describes its device, with a program and maybe the reference's commands beside it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from ndpsim.audit.banks import check_units
from ndpsim.base.arguments import number, path_of, plain_mapping, whole_number
from ndpsim.base.errors import InputError, shown
from ndpsim.base.reported import Reported, quantity
from ndpsim.base.units import exact
from ndpsim.config.banks import BankHardware, load_bank_hardware
from ndpsim.config.nodes import Node, parse, plain_of, read_text
from ndpsim.dimm.banks import attacc
from ndpsim.dimm.banks.shapes import Attention, Units
from ndpsim.dram.banks.programs import Line, Program, read_program
from ndpsim.dram.spec.extension import Extension, Values, device_of, extensions
from ndpsim.dram.traces.unit_commands import COLUMNS, UnitCommands, header_of, read_unit_commands
from ndpsim.simulate.pim import run_pim
from ndpsim.simulate.results.pim import PimResult

_NEIGHBOUR = re.compile(r"Program: that of (\w+)")
_ENGINES = {"bank": "bank", "bank group": "bankgroup", "pseudo-channel": "buffer"}
_MOST_CLOCKS = 1000  # illegal clocks in a result


@dataclass(frozen=True, eq=False, repr=False)
class BankComparison(Reported):
    """A case beside a run of its program on its device.

    Attributes:
        case: its name.
        equal: whether commands (if the case has them), counts and cycles are those of the reference.
        cycles: cycles of the run; `reference_cycles`: those of the reference.
        commands: commands by name; `reference_commands`: those of the reference.
        compared: commands that were compared one by one; 0: the case has none.
        first_difference: the first difference in words; empty: there is none.
        legal: whether the checker finds the commands legal; None: they were not recorded.
        illegal_clocks: clocks of commands that the checker finds illegal.
        run_s: duration of the run.
        result: the run, with its commands.
    """

    case: str
    equal: bool
    cycles: int = field(metadata=quantity("clock cycles", beside=("reference_cycles",)))
    reference_cycles: int = field(metadata=quantity("cycles of the reference"))
    commands: Mapping[str, int] = field(metadata=quantity("commands"))
    reference_commands: Mapping[str, int] | None = field(metadata=quantity("commands of the reference"))
    compared: int = field(metadata=quantity("compared commands"))
    first_difference: str
    legal: bool | None
    illegal_clocks: tuple[int, ...]
    run_s: float
    result: PimResult = field(repr=False)

    def _plain(self) -> dict[str, Any]:
        return {name: value for name, value in super()._plain().items() if name != "result"}


@dataclass(frozen=True)
class BankCase:
    """A case: its facts, its device, and the folder of its files."""

    facts: Mapping[str, Any]
    hardware: BankHardware
    file: Path

    def at(self, *keys: str) -> Any:
        """A value of the case, None if there is none."""
        return _at(self.facts, *keys)


def _at(facts: Any, *keys: str) -> Any:
    for key in keys:
        facts = facts.get(key) if isinstance(facts, Mapping) else None
    return facts


def _extension(facts: Mapping[str, Any], file: Path, root: Node) -> Extension:
    """The page of a case's controller and standard."""
    controller, standard = _at(facts, "controller"), str(_at(facts, "device", "standard"))
    for extension in extensions().values():
        names = extension.name, extension.name.partition("-")[0]
        if controller in names and standard.startswith(extension.standard):
            return extension
    line = (
        root.value["controller"].line if isinstance(root.value, dict) and "controller" in root.value else None
    )
    known = ", ".join(f"{found.name} on {found.standard}" for found in extensions().values())
    problem = f"ndpsim has no units of '{controller}' on {shown(standard)} (it has {known})"
    raise InputError(problem, "unsupported", file=file, line=line, key="controller")


def _numbers(facts: Mapping[str, Any]) -> tuple[dict[str, int], dict[str, int], Fraction]:
    """The sizes of a case's device, its timings in clocks, and its clock in ps.

    Raises:
        InputError: one of them is no such number.
    """
    device, timing = (plain_mapping(facts[key], key) for key in ("device", "resolved_timing"))
    sizes = {
        key: whole_number(value, f"device.{key}", 1)
        for key, value in device.items()
        if isinstance(value, int | float)
    }
    timings = {key: whole_number(value, f"resolved_timing.{key}", 0) for key, value in timing.items()}
    return sizes, timings, exact(number(facts["clock_ps"], "clock_ps", 1))


def read_case(path: str | PathLike[str]) -> BankCase:
    """Read a case: its device is resolved with all idealisations of its reference.

    Raises:
        InputError: the file is malformed, or names units that ndpsim lacks.
    """
    file = path_of(path, "case")
    root = parse(read_text(file), str(file))
    facts = plain_of(root)
    for keys in (("device",), ("resolved_timing",), ("clock_ps",), ("result", "cycles"), ("controller",)):
        if _at(facts, *keys) is None:
            raise InputError("is missing", "missing", file=file, key=".".join(keys))
    extension = _extension(facts, file, root)
    bundled = load_bank_hardware(extension.name)
    try:
        sizes, timings, clock_ps = _numbers(facts)
        whole_number(_at(facts, "result", "cycles"), "result.cycles", 0)
    except InputError as error:
        raise error.at(file) from None
    burst = int(sizes.pop("burst_bytes", bundled.burst_bytes))
    ideal = frozenset(extension.idealisations) - {"CENT"}
    if str(_at(facts, "reference", "repository")).endswith("/CENT"):
        ideal |= {"CENT"}
    values = Values(
        sizes,
        {**bundled.device.timings, **timings},
        clock_ps,
        str(_at(facts, "refresh")) == "all-bank",
    )
    try:
        device = device_of(extension, values, ideal)
    except InputError as error:
        raise error.at(file) from None
    unit = {"level": _ENGINES.get(str(_at(facts, "units", "level")), "bank")}
    name = str(_at(facts, "name") or file.stem)
    hardware = BankHardware(name, name, device, burst, {**bundled.unit, **unit}, "reference", {}, {}, {})
    return BankCase(facts, hardware, file)


def program_of(case: BankCase) -> list[Line] | Program:
    """The program of a case: its own file, that of the case which its notes name, or made from its workload.

    Raises:
        InputError: there is none, or it is malformed.
    """
    name = case.at("program", "file")
    notes = case.at("notes") or []
    if name is None:
        named = next(filter(None, (_NEIGHBOUR.search(str(note)) for note in notes)), None)
        name = None if named is None else f"{named[1]}.program.csv.gz"
    if name is not None:
        return read_program(case.file.parent / os.path.basename(str(name)), case.hardware.device)
    heads, context = case.at("workload", "heads_in_stack"), case.at("workload", "context_length")
    if case.hardware.device.extension.name != "attacc" or heads is None or context is None:
        problem = "has no program, and no layout of its workload is known"
        raise InputError(problem, "unsupported", file=case.file, key="program")
    sizes, unit = case.hardware.device.sizes, case.hardware.unit
    units = Units(
        unit["level"], 16, 1, sizes["columns"], sizes["rows"], sizes["channels"], case.hardware.device.ideal
    )
    return attacc.attention(Attention(heads, 1, case.at("workload", "head_size"), context), units)


def compare_banks(case: str | PathLike[str] | BankCase, record_commands: bool = False) -> BankComparison:
    """Run the program of a case on its device, with the idealisations of its reference, and compare.

    Args:
        case: a case, or its file.
        record_commands: keep the commands, also where the case has none to compare with.

    Raises:
        InputError: the case or its files are malformed.
    """
    if not isinstance(case, BankCase):
        case = read_case(case)
    device = case.hardware.device
    name = case.at("commands", "file")
    result = run_pim(program_of(case), case.hardware, record_commands=record_commands or name is not None)
    counts, cycles = case.at("result", "commands"), case.at("result", "cycles")
    difference, compared = "", 0
    legal: bool | None = None
    clocks: tuple[int, ...] = ()
    if name is not None and result.command_traces is not None:
        reference = read_unit_commands(case.file.parent / os.path.basename(str(name)), device)
        compared = len(reference)
        difference = first_difference(result.command_traces, reference, header_of(device))
        report = check_units(result.command_traces, device, _MOST_CLOCKS)
        legal, clocks = report.ok, tuple(dict.fromkeys(fault.clock for fault in report.violations))
    if not difference and isinstance(counts, Mapping):
        difference = _count_difference(result.commands, counts)
    if not difference and result.cycles != cycles:
        difference = f"the run ends at clock {result.cycles}, the reference at {cycles}"
    return BankComparison(
        case=case.hardware.name,
        equal=not difference,
        cycles=result.cycles,
        reference_cycles=cycles,
        commands=result.commands,
        reference_commands=counts if isinstance(counts, Mapping) else None,
        compared=compared,
        first_difference=difference,
        legal=legal,
        illegal_clocks=clocks,
        run_s=result.run_s,
        result=result,
    )


def first_difference(ours: UnitCommands, reference: UnitCommands, shown: Sequence[str]) -> str:
    """The first command that differs, in words; empty if none does."""
    rows = [COLUMNS.index(name) for name in shown]
    both = min(len(ours), len(reference))
    differ = (ours.columns[rows, :both] != reference.columns[rows, :both]).any(axis=0)
    if not differ.any():
        if len(ours) == len(reference):
            return ""
        longer, which = (ours, "only ndpsim") if len(ours) > both else (reference, "only the reference")
        return f"{which} has command {both + 1}: {_words(longer, both, shown)}"
    index = int(np.argmax(differ))
    theirs = _words(reference, index, shown)
    return f"command {index + 1} is {_words(ours, index, shown)}; in the reference {theirs}"


def _words(commands: UnitCommands, index: int, shown: Sequence[str]) -> str:
    values = dict(zip(COLUMNS, commands.columns[:, index].tolist(), strict=True))
    name = commands.names[values["command"]]
    rest = " ".join(f"{key} {values[key]}" for key in shown[2:] if values[key] >= 0)
    return f"{name} at clock {values['clock']}, {rest}"


def _count_difference(ours: Mapping[str, int], reference: Mapping[str, int]) -> str:
    for name in sorted({*ours, *reference}):
        if ours.get(name, 0) != reference.get(name, 0):
            return f"{ours.get(name, 0)} commands {name}, {reference.get(name, 0)} in the reference"
    return ""
