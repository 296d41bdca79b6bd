"""Options of a command for sweeps and the command line."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ndpsim.base.arguments import is_flag
from ndpsim.base.errors import InputError
from ndpsim.base.inputs import note_input
from ndpsim.base.options import Table, refuse
from ndpsim.base.options.gemv import DEFAULT_MODEL
from ndpsim.config import Hardware, load_hardware
from ndpsim.config.banks import BankHardware, load_bank_hardware
from ndpsim.config.nodes import scalar
from ndpsim.dimm.layout import ExpertFormat
from ndpsim.inference.processors.weights import expert_format_of
from ndpsim.workload.models import Expert, parse_shape
from ndpsim.workload.models.weights import weight_file

#: Keys of a device with units in its banks, as in its file.
BANK_KEYS = r"(device|unit|timings)\.\w+|refresh|clock_ps|idealise"


def plain(value: Any) -> Any:
    """A value of Python, where texts are read as YAML."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if hasattr(value, "item") and getattr(value, "shape", None) == ():
        return value.item()  # a number of NumPy
    return scalar(value.strip()) if isinstance(value, str) else value


def expert_of(settings: Mapping[str, Any]) -> str | Expert:
    """The given model or shape.

    Raises:
        InputError: both are given.
    """
    if "shape" in settings:
        if "model" in settings:
            raise InputError("give a model or a shape, not both", "conflict", key="shape")
        return parse_shape(settings["shape"])
    return str(settings.get("model", DEFAULT_MODEL))


def weight_format(settings: Mapping[str, Any]) -> ExpertFormat:
    """The format that the options of `ndpsim.base.options.weights` describe.

    Raises:
        InputError: the options are invalid.
    """
    if "weights" in settings:
        said = "bits", "group-size", "scale-bits", "zero-point-bits", "shape"
        refuse(settings, "is not for weights of a file of a model", *said)
        return expert_format_of(weight_file(settings["weights"], settings.get("model", DEFAULT_MODEL)))
    return ExpertFormat.of(
        settings.get("bits", 16),
        settings.get("group-size", 0),
        settings.get("scale-bits", 16),
        settings.get("zero-point-bits"),
    )


def hardware_of(settings: Mapping[str, Any], parameters: Table) -> Hardware:
    """The given or default hardware, with given keys.

    Raises:
        InputError: there is no such hardware.
    """
    return load_hardware(parameters.value(settings, "hw"), hardware_sets(settings, parameters))


def bank_hardware_of(settings: Mapping[str, Any], parameters: Table, rules: str = "standard") -> BankHardware:
    """The device with units in its banks, with given keys.

    Raises:
        InputError: there is no such device, or no such key.
    """
    return load_bank_hardware(parameters.value(settings, "hw"), hardware_sets(settings, parameters), rules)


def _setting(value: Any) -> str:
    """A value in the form of ``--set``."""
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_setting, value))}]"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key}: {_setting(inner)}' for key, inner in value.items())}}}"
    return (
        {None: "null", True: "true", False: "false"}[value] if value is None or is_flag(value) else str(value)
    )


def hardware_sets(settings: Mapping[str, Any], parameters: Table) -> list[str]:
    """The given keys of the hardware, in the form of ``--set``."""
    return [f"{key}={_setting(value)}" for key, value in settings.items() if key not in parameters]


def file_digests(*paths: str | os.PathLike[str]) -> list[str | None]:
    """Digests of the contents of files; None for names that are not files, such as bundled ones."""
    return [_file_digest(Path(path)) for path in paths]


def _file_digest(path: Path) -> str | None:
    note_input(path)
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "blake2b").hexdigest()
    except (OSError, ValueError):
        return None
