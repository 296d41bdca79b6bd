"""The rows of ``ndpsim bench``: the speed of the simulator on work with known results."""

from ndpsim.studies.bench.rows import ROWS, run_rows
