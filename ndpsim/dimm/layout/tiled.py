"""The location of each bit in the tiles that systolic arrays read: the addresses behind `layout.tiled`.

At each step every row of a tile gives the input of its column of the array: a word of `word_bits` bits, or
one weight. The scale and zero point of a group come before its first weight. A tile has its steps in order,
and each step has the bits of its rows, row by row. Rows with fewer bits end sooner.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ndpsim.base.errors import InputError
from ndpsim.base.units import format_bytes
from ndpsim.dimm.layout.formats import ExpertWeights, WeightFormat
from ndpsim.dimm.layout.interleaving import Geometry, Interleaving, LaneShare, Region
from ndpsim.dimm.layout.layouts import Layout, Shard
from ndpsim.dram.spec import Device

# ---- `localized` for systolic arrays: tiles of rows interleaved over the channels of a memory device
#
# A tile has as many rows of a region as the arrays of a channel multiply at once. Tile n is on lane n mod
# lanes, after the earlier tiles of the lane, and begins at the start of a burst. The weights of a tile are in
# the order in which they enter the arrays: step by step, and in each step row by row. Within a lane bursts
# are placed as in `interleaving`.


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


# ---- The location of each bit in the tiles that systolic arrays read: the addresses behind `layout.tiled`


Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class TiledRegion(Region):
    """A region whose rows are in tiles, step by step; each tile begins at the start of a burst.

    Attributes:
        tile_rows: rows of a tile; the last may have fewer.
        word_bits: bits that a row gives at a step; 0: a weight.
        tile_bursts: bursts of each tile, as in `Tiles`.
    """

    tile_rows: int
    word_bits: int
    tile_bursts: tuple[int, ...]

    @cached_property
    def tile_first(self) -> Ints:
        """The first burst of each tile, and the bursts of all: int64[tiles + 1]."""
        return np.cumsum((0, *self.tile_bursts))

    @property
    def bursts(self) -> int:
        """Bursts that hold the tiles."""
        return int(self.tile_first[-1])

    @cached_property
    def _step_begins(self) -> Ints:
        """Beginnings of steps in a row of each format, and the row's end: int64[formats, steps + 1]."""
        each = [self._steps(form) for form in self.formats]
        longest = max(map(len, each))
        return np.array([np.pad(begins, (0, longest - len(begins)), "edge") for begins in each])

    def _steps(self, form: WeightFormat) -> Ints:
        bits = form.row_bits(self.columns)
        if self.word_bits:
            return np.minimum(np.arange(-(-bits // self.word_bits) + 1) * self.word_bits, bits)
        column = np.arange(self.columns)
        begins = form.weight_at(column)
        if form.group_size:
            begins -= np.where(column % form.group_size == 0, form.of_group, 0)
        return np.append(begins, bits)

    def _rows_before(self, tile: Ints, row: Ints) -> Ints:
        """The number of rows of each format before row `row` of tiles: int64[formats, n]."""
        turns = len(self.formats)
        behind = (np.arange(turns)[:, np.newaxis] - tile * self.tile_rows) % turns
        return (row - behind + turns - 1) // turns

    def _rows_in(self, tile: Ints) -> Ints:
        return np.minimum(self.rows - tile * self.tile_rows, self.tile_rows)

    def row_at(self, row: Ints) -> Ints:
        """Locations of the first bits of rows."""
        return self.bit_at(row, np.zeros_like(row))

    def bit_at(self, row: Ints, within: Ints) -> Ints:
        tile, in_tile = np.divmod(row, self.tile_rows)
        step = np.empty_like(row)
        for number, begins in enumerate(self._step_begins):
            mine = row % len(self.formats) == number
            step[mine] = np.searchsorted(begins, within[mine], "right") - 1
        at_step = self._step_begins[:, step]
        long = self._step_begins[:, step + 1] - at_step
        before = (
            self._rows_before(tile, self._rows_in(tile)) * at_step + self._rows_before(tile, in_tile) * long
        )
        in_step = within - self._step_begins[row % len(self.formats), step]
        bits: Ints = self.tile_first[tile] * self.burst_bytes * 8 + before.sum(axis=0) + in_step
        return bits

    def holds(self, bit: Ints) -> Bools:
        tile, in_tile = self._tile_of(bit)
        rows = self._rows_before(tile, self._rows_in(tile))
        held: Bools = in_tile < (rows * self._step_begins[:, -1:]).sum(axis=0)
        return held

    def row_of(self, bit: Ints) -> tuple[Ints, Ints]:
        tile, in_tile = self._tile_of(bit)
        row, within = np.empty_like(bit), np.empty_like(bit)
        for chosen, example in self._alike(tile):
            tile_row, within[chosen], _ = self._find(example, in_tile[chosen])
            row[chosen] = tile[chosen] * self.tile_rows + tile_row
        return row, within

    def burst_bits(self) -> Ints:
        bits = np.zeros((len(self.formats), self.bursts), dtype=np.int64)
        for chosen, example in self._alike(np.arange(len(self.tile_bursts))):
            count = self.tile_bursts[int(example[0])]
            ends = np.arange(count + 1) * self.burst_bytes * 8
            total = (self._rows_before(example, self._rows_in(example)) * self._step_begins[:, -1:]).sum()
            *_, before = self._find(example, np.minimum(ends, total))
            bursts = self.tile_first[chosen][:, np.newaxis] + np.arange(count)
            bits[:, bursts] = np.diff(before)[:, np.newaxis, :]
        return bits

    def _tile_of(self, bit: Ints) -> tuple[Ints, Ints]:
        """The tile of each bit, and its place in the tile."""
        tile = np.searchsorted(self.tile_first, bit // (self.burst_bytes * 8), "right") - 1
        return tile, bit - self.tile_first[tile] * self.burst_bytes * 8

    def _alike(self, tile: Ints) -> list[tuple[Ints, Ints]]:
        """Groups of tiles that begin with the same format and have equal rows: their places, and one tile."""
        kind = self._rows_in(tile) * len(self.formats) + tile * self.tile_rows % len(self.formats)
        chosen = [np.flatnonzero(kind == value) for value in np.unique(kind)]
        return [(places, tile[places[:1]]) for places in chosen]

    def _find(self, tile: Ints, bit: Ints) -> tuple[Ints, Ints, Ints]:
        """For bits of tiles like `tile`: row of the tile, bit of the row, bits of each format before it."""
        turns = len(self.formats)
        order = (int(tile[0]) * self.tile_rows + np.arange(turns)) % turns
        rows = self._rows_before(tile, self._rows_in(tile))
        totals = (rows * self._step_begins).sum(axis=0)
        step = np.searchsorted(totals, bit, "right") - 1
        at_step = self._step_begins[:, step]
        long = self._step_begins[:, np.minimum(step + 1, len(totals) - 1)] - at_step
        ends = np.concatenate((np.zeros((1, len(bit)), np.int64), np.cumsum(long[order], axis=0)))
        turn, rest = np.divmod(bit - totals[step], np.maximum(ends[-1], 1))
        number = (rest >= ends[1:]).sum(axis=0)  # of the turn; all of them only after the last row
        row = turn * turns + number
        in_step = rest - np.take_along_axis(ends, number[np.newaxis], axis=0)[0]
        mine = order[np.minimum(number, turns - 1)]
        before = rows * at_step + self._rows_before(tile, row) * long
        before[mine, np.arange(len(bit))] += in_step
        return row, at_step[mine, np.arange(len(bit))] + in_step, before


class TiledInterleaving(Interleaving):
    """`Tiles` with the addresses of every burst, counted tile by tile."""

    def __init__(self, tiles: Tiles, word_bits: int) -> None:
        self.tiles, self.device, self.lanes = tiles, tiles.device, tiles.lanes
        pairs = zip(tiles.regions, tiles.bursts, strict=True)
        self.regions: tuple[TiledRegion, ...] = tuple(
            TiledRegion(
                region.name,
                region.rows,
                region.columns,
                region.formats,
                region.burst_bytes,
                tiles.rows,
                word_bits,
                tuple(bursts.tolist()),
            )
            for region, bursts in pairs
        )
        *self._first, self.end = tiles.first_places
        self._before = np.cumsum([0] + [region.bursts for region in self.regions])
        self._tile_place = [self._places(bursts) for bursts in tiles.bursts]

    def _places(self, bursts: Ints) -> Ints:
        """The place of the first burst of each tile, relative to the region's first on its lane."""
        turns = -(-len(bursts) // self.lanes)
        table = np.pad(bursts, (0, turns * self.lanes - len(bursts))).reshape(turns, self.lanes)
        before: Ints = (np.cumsum(table, axis=0) - table).ravel()[: len(bursts)]
        return before

    def locate(self, burst: Ints) -> tuple[Ints, Ints]:
        region, number = self.region_of(burst)
        lane, place = np.empty_like(burst), np.empty_like(burst)
        for which, tiled in enumerate(self.regions):
            mine = np.flatnonzero(region == which)
            tile = np.searchsorted(tiled.tile_first, number[mine], "right") - 1
            lane[mine] = tile % self.lanes
            in_tile = number[mine] - tiled.tile_first[tile]
            place[mine] = self._first[which] + self._tile_place[which][tile] + in_tile
        return lane, place

    def burst_at(self, lane: Ints, place: Ints) -> Ints:
        region = np.maximum(np.searchsorted(self._first, place, "right") - 1, 0)
        burst = np.full_like(place, -1)
        for which, on_lane in {*zip(region.ravel().tolist(), lane.ravel().tolist(), strict=True)}:
            mine = np.nonzero((region == which) & (lane == on_lane))
            begins = self._tile_place[which][on_lane :: self.lanes] if 0 <= on_lane < self.lanes else []
            if not len(begins):
                continue
            tile = (
                np.searchsorted(begins, place[mine] - self._first[which], "right") - 1
            ) * self.lanes + on_lane
            in_tile = place[mine] - self._first[which] - self._tile_place[which][tile]
            there = (in_tile >= 0) & (in_tile < self.tiles.bursts[which][tile])
            found = self._before[which] + self.regions[which].tile_first[tile] + in_tile
            burst[mine] = np.where(there, found, -1)
        return burst

    def share(self, lane: int) -> LaneShare:
        return self.tiles.share(lane)


class TiledLayout(Layout):
    """`localized` on a device with systolic arrays: the tiles that the arrays read, on all its lanes.

    Args:
        geometry: the device; it is the first DIMM.
        weights: the expert.
        tiles: of the expert, on the lanes of the device.
        word_bits: bits that a row gives the arrays at a step; 0: a weight.
    """

    def __init__(self, geometry: Geometry, weights: ExpertWeights, tiles: Tiles, word_bits: int) -> None:
        self.name, self.geometry, self.weights = "localized", geometry, weights
        self.base = tiles.first_places[0]
        interleaving = TiledInterleaving(tiles, word_bits)
        lane = np.arange(tiles.lanes, dtype=np.int64)
        self.parts = (Shard(range(weights.intermediate), interleaving, np.zeros_like(lane), lane, 0),)
        self.bursts = interleaving.bursts
