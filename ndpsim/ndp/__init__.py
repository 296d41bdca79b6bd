"""The units of a DIMM's buffer chip or of a memory device, in cycles of their own clock.

Systolic arrays are in `ndp.array` and `ndp.systolic`.
"""

from ndpsim.ndp.activation import ActivationUnit
from ndpsim.ndp.gemv import GemvUnit, Tiling
from ndpsim.ndp.pipeline import served_in_order

__all__ = ["ActivationUnit", "GemvUnit", "Tiling", "served_in_order"]
