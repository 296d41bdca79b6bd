"""Results of simulations: dataclasses, their text, and a cache that finds them again."""

# Imported when first used: a result that is found in a cache needs the classes of its parts alone.
from ndpsim.base._later import from_stub as _from_stub

__getattr__, __dir__, __all__ = _from_stub(__name__)
