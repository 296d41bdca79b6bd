"""DRAM standards as data: levels, commands, timing rules, organisation and speed presets.

>>> from ndpsim.dram.spec import resolve
>>> device = resolve("DDR5", "DDR5_16Gb_x8", "DDR5_4800AN", ranks=2, overrides={"nCL": 40})
>>> device.timings["nRFC"], device.burst_bytes, device.banks
(710, 64, 64)
"""

from ndpsim.dram.spec.device import Device, resolve, row_times
from ndpsim.dram.spec.lower import NO_RULE, Tables, lower
from ndpsim.dram.spec.pages import command_names, standard_names, standards
from ndpsim.dram.spec.standard import Organisation, Rule, Standard
