"""Experts and parts of experts on the engines of a layer, as arrays."""

from __future__ import annotations

from ndpsim.base.jit import inlined, kernel, outlined
from ndpsim.policies.assignment.least_maximum import WAYS

#: By which shares of an expert may differ from 1 together.
ROUNDING = 1e-9

#: Engines, and sums of each: of experts (parts by their share), of token-expert pairs, and of the bits of
#: weights times these.
HITS, MISSES, ON_CPU, ON_NDP = range(4)
EXPERTS, PAIRS, BITS = range(3)


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
def are_legal(loads, columns, gpu, gpu_shares, cpu, cpu_shares, ndp, ndp_shares, sums, last):
    """Whether every expert with tokens is computed in full, no other one is, and none twice on an engine.

    Args:
        loads: tokens by expert.
        columns: of an expert; a part has at least one.
        gpu, cpu, ndp: experts of each engine, [part]; and the share of each.
        sums, last: [expert], to work with.
    """
    sums[:] = 0.0
    last[:] = -1
    legal = (
        add_shares(gpu, gpu_shares, columns, 0, sums, last)
        and add_shares(cpu, cpu_shares, columns, 1, sums, last)
        and add_shares(ndp, ndp_shares, columns, 2, sums, last)
    )
    for expert in range(len(loads)):
        wanted = 1.0 if loads[expert] > 0 else 0.0
        legal = legal and abs(sums[expert] - wanted) <= ROUNDING
    return legal


@inlined
def share_of_way(choice, split_way, split_parts, parts, place, way):
    """The share of an expert that takes a way."""
    moved = split_parts[place] / parts if split_parts[place] > 0 else 0.0
    if choice[place] == way:
        return 1.0 - moved
    return moved if split_way[place] == way else 0.0


@kernel
def list_ways(order, choice, split_way, split_parts, parts, experts, shares, ends):
    """List the experts of each way, as `least_maximum` has chosen the ways.

    Args:
        order: the experts, [place]; `choice`, `split_way`, `split_parts` and `parts` are as there.
        experts, shares: are set to the experts of the first way, the second and the third, and the share of
            each that takes this way. They have room for each expert twice.
        ends: [way]: is set to the end of each way's experts.
    """
    count = 0
    for way in range(WAYS):
        for place in range(len(order)):
            share = share_of_way(choice, split_way, split_parts, parts, place, way)
            if share > 0.0:
                experts[count] = order[place]
                shares[count] = share
                count += 1
        ends[way] = count


@outlined
def add_part(sums, engine, share, tokens, bits):
    """Add a part of an expert to the sums of its engine."""
    computed = tokens * share
    sums[engine, EXPERTS] += share
    sums[engine, PAIRS] += computed
    sums[engine, BITS] += computed * bits


@inlined
def add_read(reads, turns, dimm, shards, share):
    """Add what the host reads of an expert, by where it lies."""
    read = 0 if dimm < 0 else shards
    if turns[read] < 0:
        last = -1
        for other in range(len(turns)):
            last = max(last, turns[other])
        turns[read] = last + 1
    reads[read] += share


@kernel
def count_parts(
    loads, resident, arriving, dimm, shards, bits, usual_bits,
    gpu, gpu_shares, cpu, cpu_shares, ndp, ndp_shares, sums, reads, turns,
):  # fmt: skip
    """Add the experts of a layer to sums over layers.

    Args:
        loads, resident, arriving: of each expert: tokens, and whether the GPU has it, or will have it.
        dimm, shards: of each expert: the first DIMM, negative for a striped expert, and how many have it.
        bits: of each expert's weights that are read; `usual_bits`: of the full weights.
        gpu, cpu, ndp: experts of each engine, [part]; and the share of each.
        sums: [engine, sum], of `HITS`, `MISSES`, `ON_CPU` and `ON_NDP`; of `EXPERTS`, `PAIRS` and `BITS`.
        reads: experts that the host reads, by their number of DIMMs; 0: striped ones.
        turns: [as reads]: the turn in which each was first counted; -1: not yet.
    """
    for part in range(len(gpu)):
        expert, share = gpu[part], gpu_shares[part]
        there = resident[expert] or arriving[expert]
        add_part(sums, HITS if there else MISSES, share, loads[expert], bits[expert])
        if not there:
            add_read(reads, turns, dimm[expert], shards[expert], share * bits[expert] / usual_bits)
    for part in range(len(cpu)):
        expert, share = cpu[part], cpu_shares[part]
        add_part(sums, ON_CPU, share, loads[expert], bits[expert])
        add_read(reads, turns, dimm[expert], shards[expert], share * bits[expert] / usual_bits)
    for part in range(len(ndp)):
        expert = ndp[part]
        add_part(sums, ON_NDP, ndp_shares[part], loads[expert], bits[expert])
