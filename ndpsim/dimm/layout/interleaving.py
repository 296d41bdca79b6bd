"""Bursts interleaved over lanes and, within a lane, over all bank groups.

Burst n of a region is on lane n mod lanes. Within a lane consecutive bursts rotate over its pseudo-channels,
if it has several, and in each over the bank groups of a stack, so that reads follow each other at tCCD_S and
never wait for tCCD_L. Then they fill the columns of the open rows, then the next bank of every group, then
the next stack, and then the next row. A bank is used again after all other banks, so its row change is hidden
by their bursts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ndpsim.base.arguments import instance, whole_number
from ndpsim.base.errors import InputError
from ndpsim.base.units import format_bytes
from ndpsim.dimm.layout.formats import ExpertFormat, WeightFormat, expert_format
from ndpsim.dram.spec import Device

# ---- An expert's weights as a stream for a GEMV unit: rows in the order in which the unit needs them


@dataclass(frozen=True)
class Region:
    """Rows of weights without gaps, beginning at the start of a burst.

    Attributes:
        name: "gate-up", "up" of an expert without a gate, or "down".
        rows: output rows of the matrices in the region.
        columns: weights in a row.
        formats: the formats of the rows, which alternate; `rows` is a multiple of their number.
        burst_bytes: bytes in a burst.
    """

    name: str
    rows: int
    columns: int
    formats: tuple[WeightFormat, ...]
    burst_bytes: int

    @cached_property
    def _begins(self) -> tuple[int, ...]:
        """The bit at which each row of a turn begins, and the end of the turn."""
        begins = [0]
        for form in self.formats:
            begins.append(begins[-1] + form.row_bits(self.columns))
        return tuple(begins)

    @property
    def bits(self) -> int:
        """Bits of weights, scales and zero points."""
        return self.rows // len(self.formats) * self._begins[-1]

    @property
    def bytes(self) -> int:
        """Bytes for these bits; the last one may be partly used."""
        return -(-self.bits // 8)

    @property
    def bursts(self) -> int:
        """Bursts that hold them."""
        return -(-self.bytes // self.burst_bytes)

    def row_at(self, row: Ints) -> Ints:
        """The bit at which rows begin."""
        turn, in_turn = np.divmod(row, len(self.formats))
        begins: Ints = turn * self._begins[-1] + np.array(self._begins)[in_turn]
        return begins

    def bit_at(self, row: Ints, within: Ints) -> Ints:
        """Locations of bits of rows; `within`: the bit's place in its row."""
        return self.row_at(row) + within

    def holds(self, bit: Ints) -> NDArray[np.bool_]:
        """Whether bits are used; bits may be after the last row."""
        held: NDArray[np.bool_] = bit < self.bits
        return held

    def burst_bits(self) -> Ints:
        """Number of bits of rows of each format in every burst: int64[formats, bursts]."""
        return np.diff(self.bits_before(np.arange(self.bursts + 1) * (self.burst_bytes * 8)))

    def row_of(self, bit: Ints) -> tuple[Ints, Ints]:
        """The row of each bit, and its place in the row."""
        turn, rest = np.divmod(bit, self._begins[-1])
        in_turn = np.searchsorted(self._begins, rest, "right") - 1
        return turn * len(self.formats) + in_turn, rest - np.array(self._begins)[in_turn]

    def bits_before(self, bit: Ints) -> Ints:
        """Number of bits before each bit that belong to rows of each format: int64[formats, n]."""
        turn, rest = np.divmod(np.minimum(bit, self.bits), self._begins[-1])
        begins = np.array(self._begins)[:, np.newaxis]
        length = np.diff(begins, axis=0)
        before: Ints = turn * length + np.clip(rest - begins[:-1], 0, length)
        return before

    def burst_rows(self, bursts: Ints) -> tuple[Ints, Ints]:
        """The first and the last row with weights in each of some bursts."""
        burst_bits = self.burst_bytes * 8
        first, last = (self.row_of(bit)[0] for bit in (bursts * burst_bits, (bursts + 1) * burst_bits - 1))
        return first, np.minimum(last, self.rows - 1)


def expert_regions(
    hidden: int, intermediate: int, bits: int | ExpertFormat, burst_bytes: int
) -> tuple[Region, Region]:
    """The two regions of an expert.

    Rows of gate and up alternate: a value of the hidden layer is complete, and can be activated, after its
    two rows have been read. Down follows.
    """
    *inward, down = (written := expert_format(bits)).matrices
    name = "-".join(written.names[:-1])
    return (
        Region(name, len(inward) * intermediate, hidden, tuple(inward), burst_bytes),
        Region("down", hidden, intermediate, (down,), burst_bytes),
    )


# ---- Bursts interleaved over lanes and, within a lane, over all bank groups


Ints = NDArray[np.int64]


@dataclass(frozen=True)
class LaneShare:
    """The number of bursts of each region on one lane: `bursts[region]`."""

    bursts: tuple[int, ...]

    @property
    def total(self) -> int:
        """Bursts over all regions."""
        return sum(self.bursts)


class Interleaving:
    """Places regions on lanes, each region beginning on lane 0.

    Args:
        regions: the regions, in the order of reading.
        device: the DRAM of one lane.
        lanes: number of lanes.
        base: the first free place within the lanes.
        holder: words for the lanes, for the message.

    Raises:
        InputError: the regions do not fit the lanes.
    """

    def __init__(
        self, regions: Sequence[Region], device: Device, lanes: int, base: int = 0, holder: str = "a DIMM"
    ) -> None:
        self.regions, self.device, self.lanes = tuple(regions), device, lanes
        per_lane = [-(-region.bursts // lanes) for region in regions]
        self._first = [base + sum(per_lane[:n]) for n in range(len(per_lane))]
        #: The first free place after the regions, on every lane.
        self.end = base + sum(per_lane)
        need, have = self.end * lanes * device.burst_bytes, lanes * device.capacity_bytes
        if need > have:
            behind = "" if base == 0 else f" behind {base * lanes * device.burst_bytes} bytes of others"
            need -= base * lanes * device.burst_bytes
            raise InputError(
                f"not supported: weights of {format_bytes(need)} ({need} bytes) do not fit {holder} of "
                f"{format_bytes(have)} ({have} bytes){behind}",
                "too-large",
            )
        self._before = np.cumsum([0] + [region.bursts for region in regions])

    @property
    def bursts(self) -> int:
        """Bursts over all regions."""
        return int(self._before[-1])

    def region_of(self, burst: Ints) -> tuple[Ints, Ints]:
        """The region of bursts counted over all regions, and their number within it."""
        region = np.searchsorted(self._before, burst, "right") - 1
        return region, burst - self._before[region]

    def first_burst(self, region: int) -> int:
        """The number of a region's first burst, counted over all regions."""
        return int(self._before[region])

    def locate(self, burst: Ints) -> tuple[Ints, Ints]:
        """Lane and place within the lane of bursts counted over all regions."""
        region, number = self.region_of(burst)
        turn, lane = np.divmod(number, self.lanes)
        return lane, np.array(self._first)[region] + turn

    def burst_at(self, lane: Ints, place: Ints) -> Ints:
        """The inverse of `locate`; -1 for places without a burst."""
        region = np.maximum(np.searchsorted(self._first, place, "right") - 1, 0)
        number = (place - np.array(self._first)[region]) * self.lanes + lane
        there = (number >= 0) & (number < np.diff(self._before)[region])
        return np.where(there, number + self._before[region], -1)

    def share(self, lane: int) -> LaneShare:
        """The bursts that lane `lane` holds."""
        return LaneShare(
            tuple((region.bursts - lane + self.lanes - 1) // self.lanes for region in self.regions)
        )

    def lane_bursts(self, share: LaneShare) -> Ints:
        """The places of a lane's bursts within the lane, int64[share.total], in the order of reading."""
        return np.concatenate(
            [
                first + np.arange(count, dtype=np.int64)
                for first, count in zip(self._first, share.bursts, strict=True)
            ]
        )

    def coordinates(self, place: Ints) -> tuple[Ints, Ints, Ints, Ints, Ints]:
        """(rank, bankgroup, bank, row, column) of places within a lane, int64[n] each."""
        device = self.device
        rest, rank = np.divmod(place, device.ranks)
        rest, group = np.divmod(rest, device.groups_per_stack)
        rest, column = np.divmod(rest, device.bursts_per_row)
        rest, bank = np.divmod(rest, device.banks_per_group)
        row, stack = np.divmod(rest, device.stacks)
        return rank, stack * device.groups_per_stack + group, bank, row, column

    def place(self, rank: Ints, bankgroup: Ints, bank: Ints, row: Ints, column: Ints) -> Ints:
        """The inverse of `coordinates`."""
        device = self.device
        stack, group = np.divmod(bankgroup, device.groups_per_stack)
        rest = (row * device.stacks + stack) * device.banks_per_group + bank
        rest = (rest * device.bursts_per_row + column) * device.groups_per_stack + group
        return rest * device.ranks + rank

    def rows(self, lanes: range, share: LaneShare | None = None) -> tuple[Ints, Ints]:
        """The first and last row of weights in every burst of a lane, in the order of reading.

        The rows are those of the bursts at the same place in any of `lanes`. After a region's last burst the
        first row is above the last.

        Args:
            lanes: neighbouring lanes with equal numbers of bursts. Rows are numbered over all regions.
            share: the bursts that are read from each, if there are more than the lane has.
        """
        first_rows, last_rows, before = [], [], 0
        for region, count in zip(self.regions, (share or self.share(lanes[0])).bursts, strict=True):
            burst = np.arange(count, dtype=np.int64) * self.lanes
            first_rows.append(before + np.minimum(region.burst_rows(burst + lanes[0])[0], region.rows))
            last_rows.append(before + region.burst_rows(burst + lanes[-1])[1])
            before += region.rows
        return np.concatenate(first_rows), np.concatenate(last_rows)


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
