"""A layer of `ndpsim.policies.own.balance` once more, step by step with NumPy (docs/balance.md, section 2)."""

from __future__ import annotations

import itertools

import numpy as np
from numpy.typing import NDArray

from ndpsim.policies.assignment.expert_uses import (
    CHANNELS_NS,
    CPU_NS,
    GPU_NS,
    GROUPS_NS,
    PCIE_NS,
    RESIDENT,
)
from ndpsim.policies.assignment.least_maximum import CPU, GPU, NDP, Chosen, Problem, make_room
from ndpsim.policies.interface import Parts
from ndpsim.policies.own.balance.policy import Balance
from ndpsim.policies.own.balance.uses import Uses
from ndpsim.policies.views import Floats, Ints
from oracles.assignment_kernels import fill_uses, least_maximum, list_ways


def fixed(uses: Uses, loads: Ints, late: float, resident: bool) -> tuple[Floats, Floats]:
    """Use of resources in any case (equation 4), and by the first expert on a way: [way, resource].

    loads: tokens of experts, the least first; late: copies that windows have not hidden; resident: of any expert.
    """
    estimates, machine = uses.estimates, uses.machine
    base, opening = np.zeros(GROUPS_NS + uses.groups), np.zeros((3, GROUPS_NS + uses.groups))
    base[GPU_NS] = estimates.shared_ns - estimates.call_ns
    if late > 0:
        base[PCIE_NS], base[CHANNELS_NS] = late * uses.copy_ns, late * uses.read_ns
        if machine.has_cpu:
            wants, other = uses.read_ns / uses.copy_ns, uses.read_ns / uses.cpu_ns[1]
            gets, left = min(wants, max(0.5, 1 - other)), min(other, max(0.5, 1 - wants))
            base[CPU_NS] = late * (uses.read_ns / gets * (1.0 - left / other))
    if len(loads):
        tokens = int(loads.sum()) // machine.model.experts_per_token
        vectors_ns = estimates.vector_ns + (tokens - 1) * estimates.token_ns
        opening[CPU, CPU_NS] = opening[NDP, GROUPS_NS:] = 2 * vectors_ns
        opening[CPU, CPU_NS] += estimates.hand_over_ns
        opening[CPU if machine.has_cpu else NDP, PCIE_NS] = vectors_ns
        opening[GPU, PCIE_NS] = (
            estimates.gpu_ns[loads[0]] + estimates.call_ns
        )  # the order is that of the list
        opening[GPU, GPU_NS] = estimates.call_ns if resident else 0.0
    return base, opening


def shared_out(
    policy: Balance, loads: Ints, places: Ints, dimm: NDArray[np.int16], late: float
) -> tuple[float, list[Parts]]:
    """The largest load of a resource, and the parts of GPU, CPU and NDP units."""
    uses, parts, splits = policy.uses, policy.parameters.parts, policy.parameters.splits
    groups = np.maximum(dimm, 0) // uses.shards
    active = np.flatnonzero(loads)
    order = active[np.lexsort((-loads[active], places[active] < RESIDENT))]
    tokens, at, count = loads[order], places[order], len(order)
    by_tokens = np.sort(tokens)
    base, opening = fixed(uses, by_tokens, late, bool((at == RESIDENT).any()))
    if not count:
        return float(base.max()), [Parts(order)] * 3
    typical = int(by_tokens[count // 2] + by_tokens[~(count // 2)]) // 2
    of_each, overhead = np.empty((2, count, *opening.shape))
    times, own = uses.times_beside_reads(typical), groups[order].astype(np.int64)
    fill_uses(*uses.tables(), tokens, at, own, times, of_each, overhead)
    at_first = int(np.count_nonzero(at >= RESIDENT))
    allowed = uses.allowed.take(at, axis=0)
    problem = Problem(of_each, overhead, allowed, base, opening, at_first, np.arange(count))
    first, second, moved = np.zeros((3, count), np.int64)
    room = make_room(count, len(base))
    chosen = Chosen(first, second, moved, np.empty(len(base)), np.empty(3, np.int64), room)
    estimated_ns = least_maximum(problem, splits, parts, chosen)
    if at_first == count:
        on_gpu = base + of_each[:, GPU].sum(axis=0)
        on_gpu[GPU_NS] += opening[GPU, GPU_NS]
        alone_ns = float(on_gpu[:CPU_NS].max())
        if alone_ns <= estimated_ns:
            return alone_ns, [Parts(order), Parts(order[:0]), Parts(order[:0])]
    experts, shares, ends = np.empty(2 * count, np.int64), np.empty(2 * count), np.zeros(3, np.int64)
    list_ways(order, first, second, moved, parts, experts, shares, ends)
    borders = itertools.pairwise((0, *ends.tolist()))
    return estimated_ns, [Parts(experts[begin:end], shares[begin:end]) for begin, end in borders]
