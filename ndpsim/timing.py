"""The kit for tests of timings, by the name under which users import it."""

from ndpsim.simulate.timing import Earliest, Probe

__all__ = ["Earliest", "Probe"]
