"""`localized` for systolic arrays: tiles of rows interleaved over the channels of a memory device.

A tile has as many rows of a region as the arrays of a channel multiply at once. Tile n is on lane n mod
lanes, after the earlier tiles of the lane, and begins at the start of a burst. The weights of a tile are in
the order in which they enter the arrays: step by step, and in each step row by row. Within a lane bursts are
placed as in `interleaving`.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ndpsim.base.errors import InputError
from ndpsim.base.units import format_bytes
from ndpsim.dimm.layout.interleaving import Interleaving, LaneShare
from ndpsim.dimm.layout.regions import Region
from ndpsim.dram.spec import Device

Ints = NDArray[np.int64]


class Tiles:
    """Places the tiles of regions on lanes; each region begins at the same place on all lanes.

    Args:
        regions: the regions, in the order of reading.
        device: the DRAM of one lane.
        lanes: lanes to interleave over.
        rows: rows of a tile; the last tile of a region may have fewer.
        base: the first free place within the lanes.

    Attributes:
        bursts: for each region int64[tile], the bursts of each tile.
        first_places: the first place of each region on every lane, and the end of all.

    Raises:
        InputError: the regions do not fit the lanes.
    """

    def __init__(
        self, regions: Sequence[Region], device: Device, lanes: int, rows: int, base: int = 0
    ) -> None:
        self.regions, self.device, self.lanes, self.rows = tuple(regions), device, lanes, rows
        self.bursts = tuple(self._bursts(region) for region in regions)
        longest = [max(int(bursts[lane::lanes].sum()) for lane in range(lanes)) for bursts in self.bursts]
        self.first_places = list(itertools.accumulate(longest, initial=base))
        self._interleaving = Interleaving((), device, lanes)
        need, have = self.first_places[-1] * lanes * device.burst_bytes, lanes * device.capacity_bytes
        if need > have:
            raise InputError(
                f"not supported: weights of {format_bytes(need)} ({need} bytes) do not fit a device of "
                f"{format_bytes(have)} ({have} bytes)",
                "too-large",
            )

    def _bursts(self, region: Region) -> Ints:
        ends = region.row_at(np.minimum(np.arange(self.tiles_of(region) + 1) * self.rows, region.rows))
        return -(-np.diff(ends) // (8 * self.device.burst_bytes))

    def tiles_of(self, region: Region) -> int:
        """Tiles of a region."""
        return -(-region.rows // self.rows)

    def share(self, lane: int) -> LaneShare:
        """The bursts that a lane holds."""
        return LaneShare(tuple(int(bursts[lane :: self.lanes].sum()) for bursts in self.bursts))

    def alike(self) -> list[range]:
        """Groups of neighbouring lanes whose tiles have equal numbers of bursts."""
        keys = [
            tuple(bursts[lane :: self.lanes].tobytes() for bursts in self.bursts)
            for lane in range(self.lanes)
        ]
        groups = [list(lanes) for _, lanes in itertools.groupby(range(self.lanes), keys.__getitem__)]
        return [range(lanes[0], lanes[-1] + 1) for lanes in groups]

    def coordinates(self, lane: int) -> tuple[Ints, ...]:
        """(place in the lane, *`Interleaving.coordinates`) of a lane's bursts, in the order of reading."""
        runs = zip(self.first_places, self.share(lane).bursts, strict=False)
        place = np.concatenate([first + np.arange(count, dtype=np.int64) for first, count in runs])
        return place, *self._interleaving.coordinates(place)

    def tiles_for_bursts(self, lane: int) -> Ints:
        """The tile of each of a lane's bursts, in the order of reading; tiles counted over all regions."""
        before, tiles = 0, []
        for bursts in self.bursts:
            mine = np.arange(lane, len(bursts), self.lanes)
            tiles.append(before + np.repeat(mine, bursts[mine]))
            before += len(bursts)
        return np.concatenate(tiles)
