"""The public simulations. Only here are configurations converted to integers for kernels."""

# Imported when first used: simulating an expert needs neither traces nor contention.
from ndpsim.base._later import from_stub as _from_stub

__getattr__, __dir__, __all__ = _from_stub(__name__)
