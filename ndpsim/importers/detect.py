"""Which simulator a configuration is for."""

from __future__ import annotations

import re
from os import PathLike

from ndpsim.arguments import path_of
from ndpsim.arguments import text as as_text
from ndpsim.config.nodes import Node, parse, read_text
from ndpsim.errors import InputError
from ndpsim.importers import dramsim3, ramulator20, ramulator21
from ndpsim.importers.sheet import Imported, Sheet
from ndpsim.importers.tree import Tree

_EXPORT = "python -m ramulator export"
_KNOWN = "a DRAMsim3 INI file or a Ramulator 2 YAML file"
_SECTION = re.compile(r"^[ \t]*\[[ \t]*\w+[ \t]*\][ \t]*([;#].*)?$", re.MULTILINE)


def import_hardware(path: str | PathLike[str], name: str | None = None) -> Imported:
    """Turn a configuration of another simulator into a hardware file.

    It reads INI files of DRAMsim3, YAML files of Ramulator 2.0, and the YAML or JSON of Ramulator 2.1's
    ``python -m ramulator export``. An export may have DDR4, DDR5, GDDR6, HBM3 or LPDDR5, the others DDR4 or
    DDR5; other DRAM is refused.

    Args:
        path: the configuration.
        name: of the hardware; by default that of the file.

    Raises:
        InputError: the file cannot be read, is neither, or says something ndpsim cannot do.
    """
    path = path_of(path, "path")
    name = None if name is None else as_text(name, "name")
    if path.suffix == ".py":
        raise InputError(f"is a program; import what '{_EXPORT} {path.name}' writes", "form", file=path)
    text = read_text(path)
    sheet = Sheet(path)
    sheet.name(path.stem if name is None else name, given=name is not None)
    if path.suffix.lower() == ".ini" or _SECTION.search(text):
        dramsim3.read(text, sheet)
    else:
        _read_yaml(parse(text, str(path)), sheet)
    return sheet.imported()


def _read_yaml(root: Node, sheet: Sheet) -> None:
    keys = root.value if isinstance(root.value, dict) else {}
    if ramulator20.ROOT in keys:
        ramulator20.read(Tree(root, sheet.file), sheet)
    elif ramulator21.ROOT in keys:
        ramulator21.read(Tree(root, sheet.file), sheet)
    elif "dram" in keys:
        problem = "is a hardware file already, or nearly"
        raise InputError(problem, "form", file=sheet.file, line=keys["dram"].line)
    else:
        raise InputError(f"is not {_KNOWN}", "form", file=sheet.file)
