"""The energy of a command trace, by the name under which users import it."""

from ndpsim.dram.energy import from_trace

__all__ = ["from_trace"]
