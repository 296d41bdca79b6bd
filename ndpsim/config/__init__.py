"""Hardware descriptions: typed, checked, each value with its origin.

>>> from ndpsim.config import load_hardware
>>> hardware = load_hardware("trimoe", ["dimm.ranks=2"])
>>> hardware.lanes, hardware.dimm_peak_gbps, hardware.origins["ndp.gemv.multipliers"].kind
(4, 76.8, 'source')
"""

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
