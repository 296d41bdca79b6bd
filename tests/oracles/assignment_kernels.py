"""Parts of kernels of `ndpsim.policies.assignment`, each as a kernel by itself."""

from __future__ import annotations

from ndpsim.base.jit import kernel
from ndpsim.policies.assignment import bottleneck, expert_uses, parts
from ndpsim.policies.assignment import least_maximum as ways

_schedule, _fill_uses = bottleneck.schedule, expert_uses.fill_uses
_least_maximum, _list_ways = ways.least_maximum, parts.list_ways


@kernel
def schedule(time, read, memory, loads, limit, devices, busy, tried):
    return _schedule(time, read, memory, loads, limit, devices, busy, tried)


@kernel
def fill_uses(table, overheads, tokens, places, groups, times, uses, overhead):
    _fill_uses(table, overheads, tokens, places, groups, times, uses, overhead)


@kernel
def least_maximum(problem, splits, of_whole, chosen):
    return _least_maximum(problem, splits, of_whole, chosen)


@kernel
def list_ways(order, choice, split_way, split_parts, of_whole, experts, shares, ends):
    _list_ways(order, choice, split_way, split_parts, of_whole, experts, shares, ends)
