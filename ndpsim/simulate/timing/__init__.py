"""A timing kit: the first clock of a command, asked of the controller's tables and of the checker.

>>> from ndpsim.timing import Probe
>>> probe = Probe("DDR4", timing="DDR4_3200AA")
>>> opened = probe.issue("ACT", bank=0, row=5)
>>> probe.assert_earliest("RD", bank=0, clock=opened + 22)
>>> print(probe.why("RD", bank=0))
RD from clock 23: tRCD, nRCD = 22 clocks after ACT at clock 1
"""

from ndpsim.simulate.timing.probe import Earliest, Probe

__all__ = ["Earliest", "Probe"]
