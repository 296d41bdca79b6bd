"""The units of a DIMM's buffer chip, in cycles of their own clock."""

from ndpsim.ndp.activation import ActivationUnit
from ndpsim.ndp.gemv import GemvUnit, Tiling
from ndpsim.ndp.pipeline import served_in_order

__all__ = ["ActivationUnit", "GemvUnit", "Tiling", "served_in_order"]
