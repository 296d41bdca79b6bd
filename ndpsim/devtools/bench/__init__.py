"""How fast the simulator is, on work whose outcome is known: the rows of ``ndpsim bench``."""

from ndpsim.devtools.bench.row import Row
from ndpsim.devtools.bench.rows import ROWS, run_rows

__all__ = ["ROWS", "Row", "run_rows"]
