"""Moves an expert from one layout to another: the source burst and the target burst of every bit."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ndpsim.base.errors import InputError
from ndpsim.dimm.layout.layouts import Layout

Ints = NDArray[np.int64]


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
