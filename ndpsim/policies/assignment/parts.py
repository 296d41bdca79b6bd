"""Experts and parts of experts on the engines of a layer, as arrays."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ndpsim.base.jit import by_reference, inlined, kernel, outlined
from ndpsim.policies.assignment.least_maximum import WAYS

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Ints = NDArray[np.int64]

#: By which shares of an expert may differ from 1 together.
ROUNDING = 1e-9

#: Engines, and sums of each: of experts (parts by their share), of token-expert pairs, and of the bits of
#: weights times these.
HITS, MISSES, ON_CPU, ON_NDP = range(4)
EXPERTS, PAIRS, BITS = range(3)


class LayerWeights(NamedTuple):
    """The experts of a layer: tokens, and where their weights are."""

    loads: Ints  # [expert]: tokens
    resident: Flags  # [expert]: the GPU has it
    arriving: Flags  # [expert]: the GPU will have it
    dimm: NDArray[np.int16]  # [expert]: the first DIMM; negative: striped
    shards: NDArray[np.int16]  # [expert]: DIMMs that have it
    bits: Floats  # [expert]: bits of its weights that are read
    usual_bits: float  # of the full weights


@by_reference
class Sums(NamedTuple):
    """Sums over layers."""

    by_engine: Floats  # [`HITS`, `MISSES`, `ON_CPU`, `ON_NDP`; `EXPERTS`, `PAIRS`, `BITS`]
    reads: Floats  # experts that the host reads, by their number of DIMMs; 0: striped ones
    turns: Ints  # [as reads]: the turn in which each was first counted; -1: not yet


@inlined
def lie_on_dimms(experts, dimm):
    """Whether none of the experts is striped."""
    for expert in experts:
        if dimm[expert] < 0:
            return False
    return True


@outlined
def add_shares(experts, shares, columns, engine, sums, last):
    """Add the shares of an engine's experts to those of engines before it. Whether they are legal."""
    for part in range(len(experts)):
        expert, share = experts[part], shares[part]
        if not 0 <= expert < len(sums) or last[expert] == engine:
            return False
        if not (share * columns >= 1.0 and share <= 1.0):
            return False
        last[expert] = engine
        sums[expert] += share
    return True


@kernel
def are_legal(loads, dimm, columns, gpu, cpu, ndp, sums, last):
    """Whether every expert with tokens is computed in full, no other one is, and none twice on an engine.

    On NDP units none is striped.

    Args:
        loads, dimm: tokens, and the DIMM, by expert.
        columns: of an expert; a part has at least one.
        gpu, cpu, ndp: of each engine: experts, and the share of each, [part].
        sums, last: [expert], to work with.
    """
    sums[:] = 0.0
    last[:] = -1
    legal = (
        add_shares(*gpu, columns, 0, sums, last)
        and add_shares(*cpu, columns, 1, sums, last)
        and add_shares(*ndp, columns, 2, sums, last)
        and lie_on_dimms(ndp[0], dimm)
    )
    for expert in range(len(loads)):
        wanted = 1.0 if loads[expert] > 0 else 0.0
        legal = legal and abs(sums[expert] - wanted) <= ROUNDING
    return legal


@inlined
def share_of_way(choice, split_way, split_parts, parts, turn, way):
    """The share of an expert that takes a way."""
    moved = split_parts[turn] / parts if split_parts[turn] > 0 else 0.0
    if choice[turn] == way:
        return 1.0 - moved
    return moved if split_way[turn] == way else 0.0


@inlined
def list_ways(order, choice, split_way, split_parts, parts, experts, shares, ends):
    """List the experts of each way, as `least_maximum` has chosen the ways.

    Args:
        order: the experts; `choice`, `split_way`, `split_parts` and `parts` are as there.
        experts, shares: are set to the experts of the first way, the second and the third, and the share of
            each that takes this way. They have room for each expert twice.
        ends: [way]: is set to the end of each way's experts.
    """
    count = 0
    for way in range(WAYS):
        for turn in range(len(order)):
            share = share_of_way(choice, split_way, split_parts, parts, turn, way)
            if share > 0.0:
                experts[count] = order[turn]
                shares[count] = share
                count += 1
        ends[way] = count


@outlined
def add_part(sums, layer, engine, expert, share):
    """Add a part of an expert to the sums of its engine."""
    computed = layer.loads[expert] * share
    sums[engine, EXPERTS] += share
    sums[engine, PAIRS] += computed
    sums[engine, BITS] += computed * layer.bits[expert]


@inlined
def add_read(sums, layer, expert, share):
    """Add what the host reads of an expert, by where it lies."""
    reads, turns = sums.reads, sums.turns
    read = 0 if layer.dimm[expert] < 0 else layer.shards[expert]
    if turns[read] < 0:
        last = -1
        for other in range(len(turns)):
            last = max(last, turns[other])
        turns[read] = last + 1
    reads[read] += share * layer.bits[expert] / layer.usual_bits


@kernel
def count_parts(layer, gpu, cpu, ndp, sums):
    """Add the experts of a layer to sums over layers.

    Args:
        gpu, cpu, ndp: of each engine: experts, and the share of each, [part].
    """
    experts, shares = gpu
    for part in range(len(experts)):
        expert, share = experts[part], shares[part]
        there = layer.resident[expert] or layer.arriving[expert]
        add_part(sums.by_engine, layer, HITS if there else MISSES, expert, share)
        if not there:
            add_read(sums, layer, expert, share)
    experts, shares = cpu
    for part in range(len(experts)):
        expert, share = experts[part], shares[part]
        add_part(sums.by_engine, layer, ON_CPU, expert, share)
        add_read(sums, layer, expert, share)
    experts, shares = ndp
    for part in range(len(experts)):
        add_part(sums.by_engine, layer, ON_NDP, experts[part], shares[part])


# ---- A stable sort for kernels


@outlined
def sort_falling(worth, numbers, count, spare):
    """Sort the first `count` numbers by the worth of each, the largest first; equal ones keep their order.

    Args:
        worth: by number.
        spare: an array like `numbers` to work with.
    """
    width = 1
    while width < count:
        first = 0
        while first < count:
            middle, end = min(first + width, count), min(first + 2 * width, count)
            left, right = first, middle
            for turn in range(first, end):
                if left < middle and (right == end or worth[numbers[left]] >= worth[numbers[right]]):
                    spare[turn] = numbers[left]
                    left += 1
                else:
                    spare[turn] = numbers[right]
                    right += 1
            first = end
        for turn in range(count):
            numbers[turn] = spare[turn]
        width *= 2
