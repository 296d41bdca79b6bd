"""How fast a machine that someone owns is with a model, and what would make it faster."""

# Imported when first used: the names of programs stand in help and completion.
from ndpsim._later import from_stub as _from_stub

__getattr__, __dir__, __all__ = _from_stub(__name__)
