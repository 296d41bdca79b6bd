"""The units of a DIMM's buffer chip or of a memory device, in cycles of their own clock.

Each multiplier unit is a module, found by its name in hardware files (`ndp.unit.find_unit`).
"""

from ndpsim.dimm.units.gemv import GemvUnit
from ndpsim.dimm.units.unit import ActivationUnit, MultiplierUnit, find_unit, last_served
