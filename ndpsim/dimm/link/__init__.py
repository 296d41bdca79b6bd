"""Links, packet by packet: between DIMMs, to a GPU, to a CXL device."""

from __future__ import annotations

from ndpsim.dimm.link.fabric import link_ticks
from ndpsim.dimm.link.pcie import PcieLink, Pipe
from ndpsim.dimm.link.topology import TOPOLOGIES, Bridge, Network, make_network, ports_needed
