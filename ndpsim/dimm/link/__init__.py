"""Links, packet by packet: between DIMMs, to a GPU, to a CXL device."""

from __future__ import annotations

from ndpsim.dimm.link.fabric import PcieLink, Pipe, link_ticks
from ndpsim.dimm.link.topology import TOPOLOGIES, Bridge, Network, make_network, ports_needed
