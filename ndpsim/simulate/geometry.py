"""The memory of a hardware file as layouts see it."""

from __future__ import annotations

from ndpsim.config import Hardware
from ndpsim.layout import Geometry

__all__ = ["geometry_of"]


def geometry_of(hardware: Hardware) -> Geometry:
    """Channels, DIMMs and lanes of a machine.

    Raises:
        InputError: the file does not say how many DIMMs there are, or a channel has none.
    """
    dimm, channels = hardware.system.dimm, hardware.system.host.channels
    return Geometry(channels, dimm.count, dimm.ranks, dimm.subchannels, hardware.lane_device())
