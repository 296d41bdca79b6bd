"""Use of resources by the experts of a layer, from tables by tokens: see `docs/balance.md`, section 2."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ndpsim.base.jit import by_reference, inlined, kernel
from ndpsim.policies.assignment.least_maximum import CPU, GPU, NDP, WAYS, Chosen, Problem, Room, least_maximum
from ndpsim.policies.assignment.parts import list_ways, sort_falling

Flags = NDArray[np.bool_]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: Resources; the NDP units of each group of DIMMs follow. In tables an expert has one: that of its own group.
GPU_NS, PCIE_NS, CHANNELS_NS, CPU_NS, GROUPS_NS = range(5)

#: Where the GPU has an expert: not at all, on its way or to come for later steps, in its memory, on its way
#: for this layer; and the number of these. Those before `RESIDENT` the layer lacks.
MISSING, COMING, RESIDENT, ARRIVING = range(4)
PLACES = 4


class LayerTimes(NamedTuple):
    """Times that depend on the layer's median tokens."""

    read_ns: float  # the host reads an expert
    typical_ns: float  # an expert with the median tokens on the CPU
    cpu_delay_ns: float  # by how much a copy delays it
    lost_to_gpu_ns: float  # what units lose while the host reads an expert for the GPU
    lost_to_cpu_ns: float  # and for the CPU


class FixedUses(NamedTuple):
    """What a layer uses in any case, and what it opens; times in ns."""

    shared_ns: float  # the shared experts
    call_ns: float  # the GPU's call for others
    late_call_ns: float  # the GPU's calls for an expert that it waits for
    copy_ns: float
    read_ns: float  # the host reads an expert
    late_cpu_ns: float  # by how much a late copy delays the CPU
    vector_ns: float  # of a layer's activations over PCIe
    token_ns: float  # and of each further token
    hand_over_ns: float  # of the CPU, before its first expert
    choices: int  # experts of a token
    has_cpu: bool
    shards: int  # DIMMs of a group


@by_reference
class Sharing(NamedTuple):
    """Tables of `fill_uses`, and arrays to work with."""

    table: Floats  # [place and tokens, way, resource]
    overheads: Floats  # [place and group, way, resource]
    allowed: Flags  # [place, way]
    times: Floats  # [tokens; fields of `LayerTimes`]: by the median tokens; NaN: not known yet
    gpu_ns: Floats  # [tokens]
    active: Ints  # [expert]: those with tokens in the order of thresholds, as the next
    tokens: Ints
    groups: Ints
    places: Ints  # of its weights: `MISSING` or another of these
    uses: Floats  # [expert, way, resource]
    overhead: Floats  # [expert, way, resource]
    allowed_ways: Flags  # [expert, way]
    base: Floats  # [resource]
    opening: Floats  # [way, resource]
    way: Ints  # [expert]: see `Chosen`, as the next
    split_way: Ints
    split_parts: Ints
    loads: Floats
    counts: Ints
    room: Room
    like: Ints  # [expert]: see `Problem`
    worth: Floats  # [expert]
    by_tokens: Ints  # [expert]
    spare: Ints  # [expert]
    ends: Ints  # [way]


@inlined
def fill_uses(table, overheads, tokens, places, groups, times, uses, overhead):
    """Set the use of resources by each expert, and by any part of it.

    Args:
        table: uses that all layers have, [place and tokens, way, resource].
        overheads: of parts, [place and group, way, resource].
        tokens, places, groups: of each expert, [expert].
        times: `LayerTimes`.
        uses, overhead: [expert, way, resource]: are set.
    """
    counts, resources, groups_of_table = len(table) // PLACES, uses.shape[2], len(overheads) // PLACES
    for expert in range(len(tokens)):
        place, own = places[expert], GROUPS_NS + groups[expert]
        row, group = (
            place * counts + min(tokens[expert], counts - 1),
            place * groups_of_table + groups[expert],
        )
        for way in range(WAYS):
            for r in range(resources):
                uses[expert, way, r] = table[row, way, r] if r < GROUPS_NS else 0.0
                overhead[expert, way, r] = overheads[group, way, r]
        uses[expert, GPU, CPU_NS] = times.cpu_delay_ns if place == MISSING else 0.0
        uses[expert, GPU, own] = times.lost_to_gpu_ns if place == MISSING else 0.0
        uses[expert, CPU, own] = times.lost_to_cpu_ns
        uses[expert, NDP, own] = table[row, NDP, GROUPS_NS]
        uses[expert, NDP, CPU_NS] = uses[expert, NDP, CHANNELS_NS] * times.read_ns / times.typical_ns


_FIRST = 2.0**40  # more than any tokens


@inlined
def order_experts(sharing, loads, places, dimm, shards):
    """Note the experts with tokens: those that the GPU has, then others, each by tokens; their number."""
    count = 0
    for expert in range(len(loads)):
        sharing.worth[expert] = loads[expert] + (0.0 if places[expert] < RESIDENT else _FIRST)
        if loads[expert] > 0:
            sharing.active[count] = expert
            count += 1
    sort_falling(sharing.worth, sharing.active, count, sharing.spare)
    for turn in range(count):
        expert = sharing.active[turn]
        sharing.tokens[turn], sharing.places[turn] = loads[expert], places[expert]
        sharing.groups[turn] = max(dimm[expert], 0) // shards
        for way in range(WAYS):
            sharing.allowed_ways[turn, way] = sharing.allowed[places[expert], way]
        sharing.by_tokens[turn], sharing.worth[turn] = turn, loads[expert]
    note_alike(sharing.tokens, sharing.places, sharing.groups, count, sharing.like)
    sort_falling(sharing.worth, sharing.by_tokens, count, sharing.spare)
    return count


@inlined
def note_alike(tokens, places, groups, count, like):
    """Set the first expert with the tokens, place and group of each; experts are in order of tokens."""
    for turn in range(count):
        like[turn], before = turn, turn - 1
        while before >= 0 and tokens[before] == tokens[turn] and like[turn] == turn:
            if places[before] == places[turn] and groups[before] == groups[turn]:
                like[turn] = like[before]
            before -= 1


@inlined
def fill_fixed(sharing, fixed, count, late):
    """Use of resources in any case (equation 4), and by the first expert on a way."""
    base, opening = sharing.base, sharing.opening
    base[:], opening[:] = 0.0, 0.0
    base[GPU_NS] = fixed.shared_ns
    if late > 0.0:
        base[PCIE_NS], base[CHANNELS_NS] = late * fixed.copy_ns, late * fixed.read_ns
        if fixed.has_cpu:
            base[CPU_NS] = late * fixed.late_cpu_ns
    if count > 0:
        pairs = 0
        for turn in range(count):
            pairs += sharing.tokens[turn]
        vectors_ns = fixed.vector_ns + (pairs // fixed.choices - 1) * fixed.token_ns
        opening[CPU, CPU_NS] = 2 * vectors_ns + fixed.hand_over_ns
        for r in range(GROUPS_NS, len(base)):
            opening[NDP, r] = 2 * vectors_ns
        opening[CPU if fixed.has_cpu else NDP, PCIE_NS] = vectors_ns
        for turn in range(count):
            if sharing.places[turn] == RESIDENT:
                opening[GPU, GPU_NS] = fixed.call_ns
        fewest = sharing.tokens[sharing.by_tokens[count - 1]]
        opening[GPU, PCIE_NS] = sharing.gpu_ns[min(fewest, len(sharing.gpu_ns) - 1)] + fixed.late_call_ns


@inlined
def time_on_gpu(base, call_ns, uses):
    """Time of experts that the GPU has, without vectors to and from other engines."""
    most = 0.0
    for r in range(CPU_NS):
        total = call_ns if r == GPU_NS else 0.0
        for expert in range(len(uses)):
            total += uses[expert, GPU, r]
        most = max(most, base[r] + total)
    return most


@kernel
def share_out(sharing, fixed, loads, places, dimm, late, splits, parts, experts, shares):
    """Choose the ways of a layer's experts; all on the GPU where that is faster.

    Args:
        sharing, fixed: `Sharing` and `FixedUses`.
        loads, places, dimm: [expert]: tokens, where the GPU has it, and its first DIMM.
        late: copies on their way to the GPU that the window has not hidden.
        splits, parts: see `least_maximum`.
        experts, shares: see `list_ways`.

    Returns:
        The median tokens, negative where their `times` are not known and nothing is chosen; the estimated
        time; and the ends in `experts` of the three ways.
    """
    count, ends = order_experts(sharing, loads, places, dimm, fixed.shards), sharing.ends
    fill_fixed(sharing, fixed, count, late)
    base, uses, overhead = sharing.base, sharing.uses[:count], sharing.overhead[:count]
    ends[:] = 0
    if count == 0:
        most = base[0]
        for r in range(1, len(base)):
            most = max(most, base[r])
        return 0, most, ends[0], ends[1], ends[2]
    by_tokens, tokens, middle = sharing.by_tokens, sharing.tokens, count // 2
    typical = (tokens[by_tokens[count - 1 - middle]] + tokens[by_tokens[middle]]) // 2
    typical = min(typical, len(sharing.times) - 1)
    times = sharing.times[typical]
    if np.isnan(times[0]):
        return -typical, 0.0, ends[0], ends[1], ends[2]
    beside = LayerTimes(times[0], times[1], times[2], times[3], times[4])
    at_places, groups = sharing.places[:count], sharing.groups[:count]
    fill_uses(sharing.table, sharing.overheads, tokens[:count], at_places, groups, beside, uses, overhead)
    at_first = 0
    for turn in range(count):
        at_first += 0 if at_places[turn] < RESIDENT else 1
    way, split_way, split_parts = sharing.way[:count], sharing.split_way[:count], sharing.split_parts[:count]
    allowed = sharing.allowed_ways[:count]
    problem = Problem(uses, overhead, allowed, base, sharing.opening, at_first, sharing.like)
    chosen = Chosen(way, split_way, split_parts, sharing.loads, sharing.counts, sharing.room)
    estimated_ns = least_maximum(problem, splits, parts, chosen)
    if at_first == count:
        alone_ns = time_on_gpu(base, sharing.opening[GPU, GPU_NS], uses)
        if alone_ns <= estimated_ns:
            estimated_ns = alone_ns
            way[:], split_parts[:] = GPU, 0
    list_ways(sharing.active[:count], way, split_way, split_parts, parts, experts, shares, ends)
    return typical, estimated_ns, ends[0], ends[1], ends[2]
