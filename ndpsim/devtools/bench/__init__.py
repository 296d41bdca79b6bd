"""How fast the simulator is, on work whose outcome is known: the rows of ``ndpsim bench``."""

from ndpsim.devtools.bench.rows import ROWS, run_rows
