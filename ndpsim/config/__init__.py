"""Hardware descriptions: typed, checked, each value with its origin.

>>> from ndpsim.config import load_hardware
>>> hardware = load_hardware("trimoe", ["dimm.ranks=2"])
>>> hardware.lanes, hardware.dimm_peak_gbps, hardware.origins["ndp.gemv.multipliers"].kind
(4, 76.8, 'source')
"""

# Imported when first used: importing pydantic is slow, and names of files do not need it.
from ndpsim.base._later import from_stub as _from_stub

__getattr__, __dir__, __all__ = _from_stub(__name__)
