"""The memory that holds weights: channels, DIMMs, ranks, sub-channels and the DRAM of a lane."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ndpsim.base.arguments import instance, whole_number
from ndpsim.dram.spec import Device

Ints = NDArray[np.int64]

_MOST = 1 << 20  # of channels, DIMMs, ranks and sub-channels


class Address(NamedTuple):
    """Bits in the memory of a machine, one array element each.

    `channel`: the host's channel. `dimm`: numbered over all channels. `rank`, `subchannel`: within the DIMM;
    the pseudo-channels of a channel count as ranks. `bankgroup`, `bank`, `row`: within the rank, the group
    and the bank. `column`: the burst within the row. `bit`: within the burst.
    """

    channel: Ints
    dimm: Ints
    rank: Ints
    subchannel: Ints
    bankgroup: Ints
    bank: Ints
    row: Ints
    column: Ints
    bit: Ints


@dataclass(frozen=True)
class Geometry:
    """The memory of a machine.

    DIMM d is on channel d mod `channels`, so the first DIMMs are on different channels. Lane l of a DIMM is
    rank l // `subchannels` on sub-channel l mod `subchannels`, so neighbouring lanes are on different buses
    to the host.

    Attributes:
        channels: channels of the host.
        dimms: DIMMs on all of them.
        ranks: ranks of a DIMM.
        subchannels: sub-channels of a DIMM, and therefore independent buses of a channel.
        device: the DRAM of one lane.

    Raises:
        InputError: a count is not a whole number of at least 1.
    """

    channels: int
    dimms: int
    ranks: int
    subchannels: int
    device: Device

    def __post_init__(self) -> None:
        for name in ("channels", "dimms", "ranks", "subchannels"):
            object.__setattr__(self, name, whole_number(getattr(self, name), name, 1, _MOST))
        instance(self.device, "device", Device)

    @property
    def lanes(self) -> int:
        """Lanes of a DIMM."""
        return self.ranks * self.subchannels

    @property
    def dimm_bytes(self) -> int:
        """Capacity of a DIMM in bytes."""
        return self.lanes * self.device.capacity_bytes

    def dimms_of(self, channel: int) -> range:
        """The DIMMs on a channel."""
        return range(channel, self.dimms, self.channels)

    def channel_of(self, dimm: Ints) -> Ints:
        """The channel of each DIMM."""
        return dimm % self.channels

    def host_rank(self, dimm: Ints, lane: Ints) -> Ints:
        """The rank of each lane on its bus to the host: a channel's DIMMs one after another."""
        return dimm // self.channels * self.ranks + lane // self.subchannels
