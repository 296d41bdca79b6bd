"""Gates, memories and area of a machine's GEMV unit as hardware, without synthesis.

`validation/rtl/fit.py` synthesises modules of some units, and finds the gates of each bit of a register, an
adder and so on; these are added up. Its file has the error.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ndpsim.base.errors import InputError
from ndpsim.base.run_files import note_input
from ndpsim.config import Hardware
from ndpsim.config.files import data_folder
from ndpsim.dimm.layout import ExpertFormat
from ndpsim.dimm.units.gemv import GemvUnit
from ndpsim.simulate.machine import lower_machine, named_weights, place_on_dimms
from ndpsim.simulate.rtl import units
from ndpsim.simulate.rtl.build import load_module
from ndpsim.studies.rtl import in_processes
from ndpsim.workload.models import Expert

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
