"""Links, packet by packet: between DIMMs, to a GPU, to a CXL device."""

from __future__ import annotations

from ndpsim.link.point_to_point import Pipe

__all__ = ["Pipe"]
