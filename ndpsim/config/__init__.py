"""Hardware descriptions: typed, checked, each value with its origin.

>>> from ndpsim.config import load_hardware
>>> hardware = load_hardware("trimoe", ["dimm.ranks=2"])
>>> hardware.lanes, hardware.dimm_peak_gbps, hardware.origins["ndp.gemv.multipliers"].kind
(4, 76.8, 'source')
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ndpsim._later import import_home

if TYPE_CHECKING:
    from ndpsim.config.files import data_path, hardware_names, rtl_names
    from ndpsim.config.hardware import Hardware, Row
    from ndpsim.config.load import load_hardware
    from ndpsim.config.origins import Origin
    from ndpsim.config.schema import json_schema, schema_text
    from ndpsim.config.system import (
        ADDRESS_FIELDS,
        Activation,
        AddressMapping,
        Cxl,
        Dimm,
        Dram,
        Gemv,
        Gpu,
        Host,
        Link,
        Ndp,
        Pcie,
        Published,
        Relayout,
        System,
        Systolic,
    )

__all__ = [
    "ADDRESS_FIELDS",
    "Activation",
    "AddressMapping",
    "Cxl",
    "Dimm",
    "Dram",
    "Gemv",
    "Gpu",
    "Hardware",
    "Host",
    "Link",
    "Ndp",
    "Origin",
    "Pcie",
    "Published",
    "Relayout",
    "Row",
    "System",
    "Systolic",
    "data_path",
    "hardware_names",
    "json_schema",
    "load_hardware",
    "rtl_names",
    "schema_text",
]

# Imported when first used: pydantic takes its time, and names of files need none of it.
_HOMES = {
    "ndpsim.config.files": ("data_path", "hardware_names", "rtl_names"),
    "ndpsim.config.hardware": ("Hardware", "Row"),
    "ndpsim.config.load": ("load_hardware",),
    "ndpsim.config.origins": ("Origin",),
    "ndpsim.config.schema": ("json_schema", "schema_text"),
    "ndpsim.config.system": (
        "ADDRESS_FIELDS",
        "Activation",
        "AddressMapping",
        "Cxl",
        "Dimm",
        "Dram",
        "Gemv",
        "Gpu",
        "Host",
        "Link",
        "Ndp",
        "Pcie",
        "Published",
        "Relayout",
        "System",
        "Systolic",
    ),
}


def __getattr__(name: str) -> Any:
    return import_home(__name__, _HOMES, name)
