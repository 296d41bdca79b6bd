"""Links, packet by packet: between DIMMs, to a GPU, to a CXL device."""

from __future__ import annotations

from ndpsim.link.fabric import link_ticks
from ndpsim.link.pcie import Pcie
from ndpsim.link.point_to_point import Pipe
from ndpsim.link.topology import TOPOLOGIES, Bridge, Network, make_network, ports_needed
