"""Experts and parts of experts on the engines of a layer, as arrays."""

from __future__ import annotations

from ndpsim._jit import inlined, kernel, outlined

#: By which shares of an expert may differ from 1 together.
ROUNDING = 1e-9

_WAYS = 3


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
    for way in range(_WAYS):
        for place in range(len(order)):
            share = share_of_way(choice, split_way, split_parts, parts, place, way)
            if share > 0.0:
                experts[count] = order[place]
                shares[count] = share
                count += 1
        ends[way] = count
