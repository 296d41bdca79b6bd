"""The memory of a hardware file, for layouts."""

from __future__ import annotations

from ndpsim.base.errors import InputError
from ndpsim.config import Hardware
from ndpsim.dimm.layout import Geometry


def geometry_of(hardware: Hardware) -> Geometry:
    """Channels, DIMMs and lanes of a machine.

    Raises:
        InputError: the file has no number of DIMMs, or a channel has none.
    """
    dimm, channels = hardware.system.dimm, hardware.system.host.channels
    return Geometry(channels, dimm.count, dimm.ranks, dimm.subchannels, hardware.lane_device())


def ensure_on_channel(hardware: Hardware) -> None:
    """Check that the host's memory is on channels.

    Raises:
        InputError: the memory is behind a CXL link.
    """
    if hardware.system.cxl is not None:
        problem = "not supported: the host has no channel to memory on a CXL link"
        raise InputError(problem, "unsupported", key="cxl")
