"""Predicts the speed of a model on a machine built from parts, and the gain from upgrades."""

# Imported when first used: help and completion only need the names of programs.
from ndpsim.base._later import from_stub as _from_stub

__getattr__, __dir__, __all__ = _from_stub(__name__)
