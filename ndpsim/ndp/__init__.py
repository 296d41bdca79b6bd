"""The units of a DIMM's buffer chip or of a memory device, in cycles of their own clock.

Systolic arrays are in `ndp.array` and `ndp.systolic`.
"""

from ndpsim.ndp.activation import ActivationUnit
from ndpsim.ndp.gemv import GemvUnit, Tiling
from ndpsim.ndp.pipeline import last_served

__all__ = ["ActivationUnit", "GemvUnit", "Tiling", "last_served"]
