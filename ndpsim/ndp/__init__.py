"""The units of a DIMM's buffer chip or of a memory device, in cycles of their own clock.

Each multiplier unit is a module, found by its name in hardware files (`ndp.unit.find_unit`).
"""

from ndpsim.ndp.activation import ActivationUnit
from ndpsim.ndp.gemv import GemvUnit
from ndpsim.ndp.pipeline import last_served
from ndpsim.ndp.unit import MultiplierUnit, find_unit
