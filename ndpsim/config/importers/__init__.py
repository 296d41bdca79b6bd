"""Configurations of other DRAM simulators, as hardware files: the format is detected.

>>> from ndpsim.config.importers import import_hardware
>>> imported = import_hardware("DDR4_8Gb_x8_3200.ini")  # doctest: +SKIP
>>> print(imported.text, *imported.notes, sep="\\n")  # doctest: +SKIP
"""

from __future__ import annotations

import functools
import re
from os import PathLike

from ndpsim.base.arguments import path_of, text
from ndpsim.base.errors import InputError
from ndpsim.base.plugins import plugins_by_module
from ndpsim.config.importers import formats as _folder
from ndpsim.config.importers.sheet import Imported, Sheet
from ndpsim.config.importers.tree import Configuration, ConfigurationFormat
from ndpsim.config.nodes import read_text

_TREES = (".yaml", ".yml", ".json")  # if the text is no tree, the error names its line
_OF_RAMULATOR_1 = re.compile(r"^[ \t]*(standard)[ \t]*=[ \t]*(\w+)[ \t]*$", re.MULTILINE)
_EXPORT = "python -m ramulator export"


@functools.cache
def configuration_formats() -> dict[str, ConfigurationFormat]:
    """All formats of configurations by name."""
    return plugins_by_module(_folder, "FORMAT")


def import_hardware(path: str | PathLike[str], name: str | None = None) -> Imported:
    """Turn a configuration of another simulator into a hardware file.

    It reads INI files of DRAMsim3, JSON of DRAMSys 5, YAML files of Ramulator 2.0, and the YAML or JSON of
    Ramulator 2.1's ``python -m ramulator export``. An export may have DDR4, DDR5, GDDR6, HBM3, HBM4, LPDDR5
    or LPDDR6, DRAMsim3 and DRAMSys DDR4, and Ramulator 2.0 DDR4, DDR5, LPDDR5 or GDDR6. Other DRAM is
    refused.

    >>> imported = ndpsim.import_hardware("dramsim3.ini")  # doctest: +SKIP

    Args:
        path: the configuration.
        name: the name of the hardware; by default that of the file.

    Raises:
        InputError: the file cannot be read, has no known format, or has a value that ndpsim does not support.
    """
    path = path_of(path, "path")
    name = None if name is None else text(name, "name")
    if path.suffix == ".py":
        raise InputError(f"is a program; import what '{_EXPORT} {path.name}' writes", "form", file=path)
    file, sheet = Configuration(path, read_text(path)), Sheet(path)
    sheet.name(path.stem if name is None else name, by_option=name is not None)
    _format_of(file).read(file, sheet)
    return sheet.imported()


def _format_of(file: Configuration) -> ConfigurationFormat:
    """The first format, in order of file names, that recognises a configuration.

    Raises:
        InputError: there is none.
    """
    for format_ in configuration_formats().values():
        if format_.recognises(file):
            return format_
    if settings := dict(_OF_RAMULATOR_1.findall(file.text)):
        problem = (
            f"is a configuration of Ramulator 1 (standard = {settings['standard']}), which is not read; "
            "--standard, --org and --timing have its presets, under the same names where they exist"
        )
        raise InputError(problem, "unsupported", file=file.path)
    keys = file.root.value if file.path.suffix.lower() in _TREES else file.keys
    if isinstance(keys, dict) and "dram" in keys:
        problem = "is a hardware file already, or nearly"
        raise InputError(problem, "form", file=file.path, line=keys["dram"].line)
    known = "; ".join(f"{name} ({format_.meaning})" for name, format_ in configuration_formats().items())
    raise InputError(f"has no known format of configurations: {known}", "form", file=file.path)
