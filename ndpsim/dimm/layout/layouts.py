"""The layout of an expert on the DIMMs of a machine: maps every bit of a weight to its location, and back.

Layouts by name:

- `localized`: the expert is on one DIMM, its bursts interleaved over the DIMM's lanes. Best for NDP units.
- `striped`: its bursts are interleaved over the lanes of all DIMMs: channel by channel, then over the
  sub-channels, then over the DIMMs of a channel, then over their ranks. Best for the host.
- `sharded:N`: tensor-parallel over N DIMMs. DIMM k has slice k of the `intermediate` dimension: those rows
  of gate and up (columns of the weights as frameworks that store inputs first write them), and the matching
  columns of down. It computes alone up to the sums of down, which the host adds. Slices differ by at most
  one weight, or by one group if weights of down have groups: no group is divided. Each slice is stored on its
  DIMM like a `localized` expert.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ndpsim.base.arguments import text
from ndpsim.base.choices import LAYOUTS
from ndpsim.base.errors import InputError, unknown
from ndpsim.base.limits import ensure_fits
from ndpsim.dimm.layout.formats import PADDING, ExpertWeights
from ndpsim.dimm.layout.interleaving import Address, Geometry, Interleaving, expert_regions

Ints = NDArray[np.int64]

_BYTES_OF_A_BURST = 96  # memory for the location of a burst: measured, and rounded up


class Owner(NamedTuple):
    """The owners of bits in memory, one array element each.

    `kind`: `WEIGHT`, `SCALE`, `ZERO_POINT`, or `PADDING` for unused bits (the other fields are then -1).
    `matrix`: its number in `weights.format.names`. `row`, `column`: those of the weight; for a scale or a
    zero point `column` is the group. `bit`: the bit within it.
    """

    kind: Ints
    matrix: Ints
    row: Ints
    column: Ints
    bit: Ints


class BurstPlaces(NamedTuple):
    """Bursts in memory, one array element each: DIMM, lane of the DIMM, place within the lane."""

    dimm: Ints
    lane: Ints
    place: Ints


@dataclass(frozen=True, eq=False)
class Shard:
    """A slice of an expert, stored like a separate expert and interleaved over lanes.

    Attributes:
        slice: its range of the `intermediate` dimension.
        interleaving: its bursts on the lanes.
        dimm, lane: the DIMM, and the lane on it, of each lane of the interleaving.
        first_burst: number of bursts of all earlier parts.
    """

    slice: range
    interleaving: Interleaving
    dimm: Ints
    lane: Ints
    first_burst: int


class Layout:
    """The locations of an expert's weights. Bursts are numbered in the order of the stream, part after part.

    Args:
        name: the name of the layout.
        geometry: the machine's memory.
        weights: the expert.
        lanes: for each slice, the (DIMM, lane) pairs over which it is interleaved.
        base: the first free place within those lanes: `end` of the layout of an earlier expert.

    Raises:
        InputError: the weights do not fit.
    """

    def __init__(
        self,
        name: str,
        geometry: Geometry,
        weights: ExpertWeights,
        lanes: Sequence[Sequence[tuple[int, int]]],
        base: int = 0,
    ) -> None:
        self.name, self.geometry, self.weights, self.base = name, geometry, weights, base
        burst_bytes = geometry.device.burst_bytes
        parts: list[Shard] = []
        self.bursts = 0  #: Bursts of the expert.
        for piece, over in zip(weights.slices(len(lanes)), lanes, strict=True):
            regions = expert_regions(weights.hidden, len(piece), weights.format, burst_bytes)
            dimm, lane = np.array(over, dtype=np.int64).T
            dimms = len({number for number, _ in over})
            holder = "a DIMM" if dimms == 1 else f"{dimms} DIMMs"
            interleaving = Interleaving(regions, geometry.device, len(over), base, holder)
            parts.append(Shard(piece, interleaving, dimm, lane, self.bursts))
            self.bursts += interleaving.bursts
        self.parts = tuple(parts)

    @property
    def end(self) -> int:
        """The first place after the expert that is free on all its lanes."""
        return max(part.interleaving.end for part in self.parts)

    @property
    def bytes(self) -> int:
        """Bytes of weights, scales and zero points, each region of each part rounded up to whole bytes."""
        return sum(region.bytes for part in self.parts for region in part.interleaving.regions)

    @property
    def dimms(self) -> list[int]:
        """The DIMMs that hold weights of the expert."""
        return sorted({int(dimm) for part in self.parts for dimm in part.dimm})

    def bursts_by_dimm(self) -> Ints:
        """Bursts that each DIMM of the machine holds of the expert: int64[DIMM]."""
        bursts = np.zeros(self.geometry.dimms, np.int64)
        for part in self.parts:
            for lane, dimm in enumerate(part.dimm.tolist()):
                bursts[dimm] += part.interleaving.share(lane).total
        return bursts

    @cached_property
    def _part_starts(self) -> tuple[Ints, Ints]:
        """The first column of each part's slice, and each part's first burst."""
        return (
            np.array([part.slice.start for part in self.parts]),
            np.array([part.first_burst for part in self.parts]),
        )

    # From weights to addresses.

    def find(self, matrix: ArrayLike, row: ArrayLike, column: ArrayLike) -> Address:
        """The address of the first bit of weights; their other bits follow it in the stream.

        Args:
            matrix: numbers in `weights.format.names`.
            row, column: within the matrix; whole numbers, or arrays of equal shape.

        Raises:
            InputError: an index is beyond its matrix.
        """
        return self.address(*self.find_bit(matrix, row, column))

    def find_scale(self, matrix: ArrayLike, row: ArrayLike, group: ArrayLike) -> Address:
        """The address of the scales of groups; their zero points follow them in the stream.

        Raises:
            InputError: an index is beyond its matrix, or the matrix has no groups.
        """
        formats, names = self.weights.format.matrices, self.weights.format.names
        for number in np.unique(matrix):
            if 0 <= number < len(names) and not formats[number].group_size:
                raise InputError(f"{names[number]} has no groups with scales", "conflict", key="matrix")
        size = np.array([form.group_size for form in formats])[np.asarray(matrix) % len(names)]
        burst, bit = self.find_bit(matrix, row, np.asarray(group, dtype=np.int64) * size, scales=True)
        return self.address(burst, bit)

    def find_bit(
        self, matrix: ArrayLike, row: ArrayLike, column: ArrayLike, scales: bool = False
    ) -> tuple[Ints, Ints]:
        """Burst and bit within the burst at which weights begin; with `scales`, at which the scales of the
        groups begin whose first weights these are. See `find`.
        """
        matrices, rows, columns = (
            np.ascontiguousarray(values, dtype=np.int64)
            for values in np.broadcast_arrays(np.atleast_1d(matrix), row, column)
        )
        self._check_within(matrices, rows, columns)
        down = self.weights.down
        across = np.where(matrices == down, columns, rows)
        in_part = np.searchsorted(self._part_starts[0], across, "right") - 1
        burst, bit = np.empty_like(rows), np.empty_like(rows)
        for number, part in enumerate(self.parts):
            for which, written in enumerate(self.weights.format.matrices):
                chosen = np.flatnonzero((in_part == number) & (matrices == which))
                if not len(chosen):
                    continue
                row_, column_ = rows[chosen], columns[chosen]
                if which == down:
                    region, row_of_region, column_ = 1, row_, column_ - part.slice.start
                else:
                    region, row_of_region = 0, down * (row_ - part.slice.start) + which
                regions = part.interleaving.regions
                within = (
                    written.scale_at(column_ // written.group_size) if scales else written.weight_at(column_)
                )
                begins = regions[region].bit_at(row_of_region, within)
                number_of, bit[chosen] = np.divmod(begins, regions[region].burst_bytes * 8)
                burst[chosen] = number_of + part.interleaving.first_burst(region) + part.first_burst
        return burst, bit

    def _check_within(self, matrix: Ints, row: Ints, column: Ints) -> None:
        matrices = len(self.weights.format.names)
        sizes = np.array([self.weights.shape(number) for number in range(matrices)]).T
        for name, values, size in (
            ("matrix", matrix, np.full_like(matrix, matrices)),
            ("row", row, sizes[0][matrix % matrices]),
            ("column", column, sizes[1][matrix % matrices]),
        ):
            beyond = np.flatnonzero((values < 0) | (values >= size))
            if len(beyond):
                first = beyond[0]
                raise InputError(f"{values[first]} is not within 0 to {size[first] - 1}", "range", key=name)

    def locate(self, burst: Ints) -> BurstPlaces:
        """DIMM, lane and place of bursts, counted over all parts."""
        in_part = np.searchsorted(self._part_starts[1], burst, "right") - 1
        dimm, lane, place = (np.empty_like(burst) for _ in range(3))
        for number, part in enumerate(self.parts):
            chosen = slice(None) if len(self.parts) == 1 else np.flatnonzero(in_part == number)
            on_lane, place[chosen] = part.interleaving.locate(burst[chosen] - part.first_burst)
            dimm[chosen], lane[chosen] = part.dimm[on_lane], part.lane[on_lane]
        return BurstPlaces(dimm, lane, place)

    def places(self) -> BurstPlaces:
        """DIMM, lane and place of every burst, in the order of the stream: int64[bursts] each.

        Raises:
            InputError: there are more bursts than fit in the allowed memory.
        """
        ensure_fits(self.bursts * _BYTES_OF_A_BURST, f"an expert of {self.bursts} bursts")
        return self.locate(np.arange(self.bursts, dtype=np.int64))

    def address(self, burst: Ints, bit: Ints) -> Address:
        """The addresses of bits of bursts."""
        dimm, lane, place = self.locate(burst)
        rank, subchannel = np.divmod(lane, self.geometry.subchannels)
        channel = self.geometry.channel_of(dimm)
        lane_rank, bankgroup, bank, row, column = self.parts[0].interleaving.coordinates(place)
        rank = rank * self.geometry.device.ranks + lane_rank
        return Address(channel, dimm, rank, subchannel, bankgroup, bank, row, column, bit)

    def matrix_bits(self) -> Ints:
        """Bits of each matrix in every burst, in the order of the stream: int64[matrices, bursts]."""
        found = []
        for part in self.parts:
            inward, down = (region.burst_bits() for region in part.interleaving.regions)
            found += [np.concatenate((inward, np.zeros((1, inward.shape[1]), np.int64)))]
            found += [np.concatenate((np.zeros((len(inward), down.shape[1]), np.int64), down))]
        return np.concatenate(found, axis=1)

    def lane_bits(self) -> Ints:
        """Bits of each matrix on every lane: int64[DIMMs, lanes, matrices]."""
        places, geometry = self.places(), self.geometry
        held = np.zeros((geometry.dimms, geometry.lanes, self.weights.down + 1), dtype=np.int64)
        np.add.at(held, (places.dimm, places.lane), self.matrix_bits().T)
        return held

    # From addresses to weights.

    def burst_at(self, places: BurstPlaces) -> Ints:
        """The inverse of `locate`; -1 where there is no burst."""
        burst = np.full_like(places.place, -1)
        lanes = self.geometry.lanes
        lane = places.dimm * lanes + places.lane
        for part in self.parts:
            number = np.full(self.geometry.dimms * lanes, -1, dtype=np.int64)
            number[part.dimm * lanes + part.lane] = np.arange(len(part.dimm))
            on_lane = number[lane]
            found = part.interleaving.burst_at(on_lane, places.place)
            burst = np.where((on_lane >= 0) & (found >= 0), found + part.first_burst, burst)
        return burst

    def at(self, address: Address) -> Owner:
        """The owners of bits in memory: the inverse of `find` and `find_scale`, for any bit."""
        rank, lane_rank = np.divmod(address.rank, self.geometry.device.ranks)
        lane = rank * self.geometry.subchannels + address.subchannel
        within = address.bankgroup, address.bank, address.row, address.column
        place = self.parts[0].interleaving.place(lane_rank, *within)
        return self.owner(self.burst_at(BurstPlaces(address.dimm, lane, place)), address.bit)

    def owner(self, burst: Ints, bit: Ints) -> Owner:
        """The owners of bits of bursts; burst -1 has none."""
        owner = Owner(np.full_like(burst, PADDING), *(np.full_like(burst, -1) for _ in range(4)))
        in_part = np.searchsorted(self._part_starts[1], burst, "right") - 1
        for number, part in enumerate(self.parts):
            region, region_burst = part.interleaving.region_of(burst - part.first_burst)
            for which, lying in enumerate(part.interleaving.regions):
                region_bit = region_burst * (lying.burst_bytes * 8) + bit
                mine = np.flatnonzero((burst >= 0) & (in_part == number) & (region == which))
                chosen = mine[lying.holds(region_bit[mine])]
                row, within = lying.row_of(region_bit[chosen])
                self._fill(owner, chosen, part, which, row, within)
        return owner

    def _fill(self, owner: Owner, chosen: Ints, part: Shard, region: int, row: Ints, within: Ints) -> None:
        """Write into `owner` the owners of bits of one region of one part."""
        turns = self.weights.down if region == 0 else 1
        for turn in range(turns):
            matrix = turn if region == 0 else self.weights.down
            mine = np.flatnonzero(row % turns == turn)
            written = self.weights.format.matrices[matrix]
            kind, column, bit = written.owner(within[mine])
            in_row = row[mine] // turns
            if region == 0:
                in_row = in_row + part.slice.start
            else:
                groups = part.slice.start // written.group_size if written.group_size else 0
                column = column + np.where(kind == 0, part.slice.start, groups)
            values = (kind, np.full_like(kind, matrix), in_row, column, bit)
            for into, value in zip(owner, values, strict=True):
                into[chosen[mine]] = value


def localized(geometry: Geometry, weights: ExpertWeights, dimm: int = 0, base: int = 0) -> Layout:
    """An expert on one DIMM; see `Layout`."""
    return Layout("localized", geometry, weights, [_all_lanes(geometry, dimm)], base)


def striped(geometry: Geometry, weights: ExpertWeights, base: int = 0) -> Layout:
    """An expert over all DIMMs; see `Layout`."""
    order = sorted(
        ((dimm, lane) for dimm in range(geometry.dimms) for lane in range(geometry.lanes)),
        key=lambda lane: (
            lane[1] // geometry.subchannels,
            lane[0] // geometry.channels,
            lane[1] % geometry.subchannels,
            lane[0] % geometry.channels,
        ),
    )
    return Layout("striped", geometry, weights, [order], base)


def sharded(
    geometry: Geometry, weights: ExpertWeights, count: int, first_dimm: int = 0, base: int = 0
) -> Layout:
    """An expert over `count` DIMMs, `first_dimm` and the next ones; see `Layout`.

    Raises:
        InputError: there are not this many DIMMs, or they do not all get weights.
    """
    if not 1 <= count <= geometry.dimms - first_dimm:
        problem = f"sharded:{count} from DIMM {first_dimm} on is not possible with {geometry.dimms} DIMMs"
        raise InputError(problem, "range", key="layout")
    over = [_all_lanes(geometry, first_dimm + n) for n in range(count)]
    return Layout(f"sharded:{count}", geometry, weights, over, base)


def _all_lanes(geometry: Geometry, dimm: int) -> list[tuple[int, int]]:
    if not 0 <= dimm < geometry.dimms:
        raise InputError(f"{dimm} is not a DIMM, 0 to {geometry.dimms - 1}", "range", key="dimm")
    return [(dimm, lane) for lane in range(geometry.lanes)]


def parse_layout(name: str) -> tuple[str, int]:
    """The kind of a layout's name, and the number of DIMMs of "sharded:N" (else 0).

    Raises:
        InputError: there is no such layout.
    """
    kind, colon, count = text(name, "layout").partition(":")
    if kind == "sharded" and count.isascii() and count.isdecimal() and 0 < len(count) < 10:
        return kind, int(count)
    if kind == "sharded":
        problem = f"'{name}' needs a number of DIMMs: sharded:2, sharded:4, ..."
        raise InputError(problem, "missing", key="layout")
    if colon or kind not in LAYOUTS:
        raise unknown(name, LAYOUTS, "layout", key="layout")
    return kind, 0


def make_layout(
    name: str, geometry: Geometry, weights: ExpertWeights, dimm: int = 0, base: int = 0
) -> Layout:
    """A layout by its name; `dimm`: its first DIMM (`striped` uses all).

    Raises:
        InputError: there is no such layout, or the weights do not fit.
    """
    kind, count = parse_layout(name)
    if kind == "sharded":
        return sharded(geometry, weights, count, dimm, base)
    if kind == "localized":
        return localized(geometry, weights, dimm, base)
    return striped(geometry, weights, base)


class Moves(NamedTuple):
    """Bits that go from a burst of one layout to a burst of another, each pair of bursts once.

    Bursts are counted as in `Layout`; pairs are in the order of the target's bursts, then the source's.
    """

    source: Ints
    target: Ints
    bits: Ints


def moves(source: Layout, target: Layout) -> Moves:
    """The moves of all bits of an expert's weights, scales and zero points; padding does not move.

    Raises:
        InputError: the layouts are not of the same expert and machine.
    """
    if (source.weights, source.geometry) != (target.weights, target.geometry):
        problem = "both layouts need the same weights and machine"
        raise InputError(problem, "conflict", key="layout")
    (from_at, from_burst), (to_at, to_burst) = _pieces(source), _pieces(target)
    begins, source_burst, target_burst = from_at, from_burst, to_burst
    if not np.array_equal(from_at, to_at):
        begins = _merged(from_at, to_at)
        source_burst = from_burst[np.searchsorted(from_at, begins, "right") - 1]
        target_burst = to_burst[np.searchsorted(to_at, begins, "right") - 1]
    bits = np.diff(np.append(begins, sum(source.weights.matrix_bits())))
    pair = target_burst * source.bursts + source_burst
    if np.all(pair[1:] > pair[:-1]):
        return Moves(source_burst, target_burst, bits)
    order = np.argsort(pair, kind="stable")
    first = np.flatnonzero(np.diff(pair[order], prepend=-1))
    unique = pair[order][first]
    return Moves(unique % source.bursts, unique // source.bursts, np.add.reduceat(bits[order], first))


def _merged(first: Ints, second: Ints) -> Ints:
    """The different values of two sorted arrays, sorted."""
    both = np.concatenate((first, second))
    both.sort(kind="stable")  # merges two sorted runs fast
    return both[np.flatnonzero(np.diff(both, prepend=-1))]


def _pieces(layout: Layout) -> tuple[Ints, Ints]:
    """Runs of bits that are together in a burst: the first bit of each run, ascending, and its burst.

    Bits are numbered over the whole expert as if it had one part: rows of gate and up alternate, then down.
    """
    weights = layout.weights
    inward_bits = sum(weights.matrix_bits()[:-1])
    down_row_bits = weights.format.down.row_bits(weights.intermediate)
    begins, bursts = [], []
    for part in layout.parts:
        inward, down = part.interleaving.regions
        burst_bits = inward.burst_bytes * 8
        begin = np.arange(inward.bursts, dtype=np.int64) * burst_bits
        rows_before = inward_bits // weights.intermediate * part.slice.start
        begins.append(rows_before + begin)
        bursts.append(part.first_burst + begin // burst_bits)

        row_bits = weights.format.down.row_bits(len(part.slice))
        cuts = np.arange(down.bursts, dtype=np.int64) * burst_bits
        begin = _merged(cuts, np.arange(down.rows, dtype=np.int64) * row_bits)
        row, within = np.divmod(begin, row_bits)
        before = weights.format.down.row_bits(part.slice.start)  # whole groups
        begins.append(inward_bits + row * down_row_bits + before + within)
        bursts.append(part.first_burst + part.interleaving.first_burst(1) + begin // burst_bits)
    first_bits = np.concatenate(begins)
    order = np.argsort(first_bits, kind="stable")
    return first_bits[order], np.concatenate(bursts)[order]
