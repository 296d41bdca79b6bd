"""`localized` for systolic arrays: tiles of rows interleaved over the channels of a memory device.

The rows of a region are divided into tiles of as many rows as the arrays of a channel work on at once. Tile n
is on lane n mod lanes, one tile of a lane behind the other, each beginning on a burst of its own. The weights
of a tile are in the order in which they enter the arrays: step by step, and of each step those of all its
rows. Within a lane bursts are placed as in `interleaving`.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ndpsim.errors import InputError
from ndpsim.layout.interleaving import Interleaving, LaneShare
from ndpsim.layout.regions import Region
from ndpsim.spec import Device
from ndpsim.units import format_bytes

Ints = NDArray[np.int64]


class Tiles:
    """Places the tiles of regions on lanes, each region beginning at the same place on all of them.

    Args:
        regions: what to place, in the order of reading.
        device: the DRAM of one lane.
        lanes: lanes to interleave over.
        rows: rows of a tile; the last tile of a region may have fewer.
        base: the first place within the lanes that is free.

    Attributes:
        bursts: of each region int64[tile], the bursts that each tile takes.
        first_places: where each region begins on every lane, and where all end.

    Raises:
        InputError: the regions do not fit the lanes.
    """

    def __init__(
        self, regions: Sequence[Region], device: Device, lanes: int, rows: int, base: int = 0
    ) -> None:
        self.regions, self.device, self.lanes, self.rows = tuple(regions), device, lanes, rows
        self.bursts = tuple(self._bursts(region) for region in regions)
        longest = [
            max(int(of_region[lane::lanes].sum()) for lane in range(lanes)) for of_region in self.bursts
        ]
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
        return LaneShare(tuple(int(of_region[lane :: self.lanes].sum()) for of_region in self.bursts))

    def alike(self) -> list[range]:
        """Neighbouring lanes whose tiles take equally many bursts, one after the other."""
        keys = [
            tuple(of_region[lane :: self.lanes].tobytes() for of_region in self.bursts)
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
        for of_region in self.bursts:
            mine = np.arange(lane, len(of_region), self.lanes)
            tiles.append(before + np.repeat(mine, of_region[mine]))
            before += len(of_region)
        return np.concatenate(tiles)
