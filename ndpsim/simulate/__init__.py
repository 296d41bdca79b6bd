"""The public simulations. Here, and nowhere else, configuration becomes kernels' integers."""

# Imported when first used: who simulates an expert needs neither traces nor contention.
from ndpsim._later import from_stub as _from_stub

__getattr__, __dir__, __all__ = _from_stub(__name__)
