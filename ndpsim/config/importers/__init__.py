"""Configurations of other DRAM simulators, as hardware files.

>>> from ndpsim.config.importers import import_hardware
>>> imported = import_hardware("DDR4_8Gb_x8_3200.ini")  # doctest: +SKIP
>>> print(imported.text, *imported.notes, sep="\\n")  # doctest: +SKIP
"""

from ndpsim.config.importers.detect import import_hardware
from ndpsim.config.importers.sheet import Imported
