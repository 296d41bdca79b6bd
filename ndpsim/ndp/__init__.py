"""The units of a DIMM's buffer chip or of a memory device, in cycles of their own clock."""

from ndpsim.ndp.activation import ActivationUnit
from ndpsim.ndp.array import Array, TileTiming
from ndpsim.ndp.gemv import GemvUnit, Tiling
from ndpsim.ndp.pipeline import served_in_order
from ndpsim.ndp.systolic import SystolicUnit

__all__ = ["ActivationUnit", "Array", "GemvUnit", "SystolicUnit", "TileTiming", "Tiling", "served_in_order"]
