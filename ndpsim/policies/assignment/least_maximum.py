"""Assigns experts to engines so that the fullest resource has the least load.

An expert can be computed in up to three ways: on the GPU, on the CPU, or on NDP units. Each way takes time of
several resources. The first expert that takes a way adds a fixed cost (`opening`). The search begins with a
threshold rule, improves it by moves and exchanges, and then splits a few experts between two ways. Every step
lowers the load of the fullest resource, and raises no other one to it. Where several resources are nearly as
full and each expert uses two of them, no such step may be left. Then steps lower a norm of all loads instead.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ndpsim.base.jit import inlined, outlined

#: Ways, and their number.
GPU, CPU, NDP = 0, 1, 2
WAYS = 3

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_ROUNDING = 1e-9  # a load lower by no more than this share is not lower
_LEAST_GAIN = 1e-6  # and so is a norm
_SQUARINGS = 3  # norms begin with the eighth powers of loads


class Problem(NamedTuple):
    """Experts to be assigned, and what they take."""

    uses: Floats  # [expert, way, resource]: the time of a resource that an expert takes in a way
    overhead: Floats  # [expert, way, resource]: what each part takes; the rest of `uses` is divided by share
    allowed: NDArray[np.bool_]  # [expert, way]: of CPU and NDP units, each computes all experts or none
    base: Floats  # [resource]: its load without any of these experts
    opening: Floats  # [way, resource]: what a way takes as soon as any expert takes it
    here: int  # so many experts, the first ones, begin on the GPU; the others are in the order of thresholds


class Chosen(NamedTuple):
    """The ways of experts, and the loads that they make."""

    way: Ints  # [expert]
    split_way: Ints  # [expert]: its second way; -1: it has none
    split_parts: Ints  # [expert]: how many parts of it take the second way
    loads: Floats  # [resource]
    counts: Ints  # [way]: experts
    sums: Floats  # [expert + 1, way, resource], to work with


@outlined
def fill_loads(uses, base, opening, choice, loads, counts):
    """The load of each resource, and how many experts take each way."""
    counts[:] = 0
    for r in range(len(base)):
        loads[r] = base[r]
    for expert in range(len(choice)):
        way = choice[expert]
        counts[way] += 1
        for r in range(len(base)):
            loads[r] += uses[expert, way, r]
    for way in range(WAYS):
        if counts[way] > 0:
            for r in range(len(base)):
                loads[r] += opening[way, r]


@inlined
def change(uses, opening, counts, expert, source, target, r):
    """By how much the load of a resource grows when an expert moves from one way to another."""
    grows = uses[expert, target, r] - uses[expert, source, r]
    if counts[source] == 1:
        grows -= opening[source, r]
    if counts[target] == 0:
        grows += opening[target, r]
    return grows


@outlined
def begin_by_thresholds(uses, allowed, base, opening, here, choice, sums, of_here):
    """The first experts that the GPU lacks go there, the last to the NDP units, others to the CPU.

    All pairs of thresholds are tried. Experts that are `here`, the first ones, are the GPU's.

    sums: [expert + 1, way, resource], of the experts before each; of_here: [resource], of those `here`.
    """
    count, resources = len(choice), len(base)
    of_here[:] = 0.0
    for way in range(WAYS):
        for r in range(resources):
            sums[here, way, r] = 0.0
        for expert in range(here, count):
            for r in range(resources):
                sums[expert + 1, way, r] = sums[expert, way, r] + uses[expert, way, r]
    for expert in range(here):
        for r in range(resources):
            of_here[r] += uses[expert, GPU, r]
    best, first, last = np.inf, count, count
    for copied in range(here, count + 1):
        if copied > here and not allowed[copied - 1, GPU]:
            break
        for far in range(count, copied - 1, -1):
            if far < count and not allowed[far, NDP]:
                break
            if far > copied and not allowed[copied, CPU]:
                continue
            most = 0.0
            for r in range(resources):
                load = base[r] + of_here[r] + sums[copied, GPU, r]
                load += sums[far, CPU, r] - sums[copied, CPU, r]
                load += sums[count, NDP, r] - sums[far, NDP, r]
                if copied > 0:
                    load += opening[GPU, r]
                if far > copied:
                    load += opening[CPU, r]
                if far < count:
                    load += opening[NDP, r]
                most = max(most, load)
                if most >= best:
                    break
            if most < best:
                best, first, last = most, copied, far
    for expert in range(count):
        choice[expert] = GPU if expert < first else CPU if expert < last else NDP
    return best


@inlined
def fullest(loads):
    """The resource with the largest load."""
    most = 0
    for r in range(1, len(loads)):
        if loads[r] > loads[most]:
            most = r
    return most


@outlined
def move(uses, allowed, opening, choice, loads, counts):
    """Move an expert off the fullest resource if no other becomes as full. Returns whether one was moved.

    Of all moves the one that adds least work elsewhere for the work that it takes off the fullest resource;
    work counts as much as the resource that gets it is full then.
    """
    full = fullest(loads)
    limit, best, moved, to = loads[full] * (1.0 - _ROUNDING), np.inf, -1, 0
    for expert in range(len(choice)):
        source = choice[expert]
        for target in range(WAYS):
            if target == source or not allowed[expert, target]:
                continue
            off = -change(uses, opening, counts, expert, source, target, full)
            if off <= loads[full] * _ROUNDING:
                continue
            added, most = 0.0, best * off
            for r in range(len(loads)):
                grows = change(uses, opening, counts, expert, source, target, r)
                if grows > 0.0:
                    if loads[r] + grows >= limit:
                        added = np.inf
                    added += grows * (loads[r] + grows)
                if added >= most:
                    break
            if added < most:
                best, moved, to = added / off, expert, target
    if moved < 0:
        return False
    choice[moved] = to
    return True


@inlined
def exchanged(uses, first, second, source, target, r):
    """By how much the load of a resource grows when two experts exchange their ways."""
    return (
        uses[first, target, r] - uses[first, source, r] + (uses[second, source, r] - uses[second, target, r])
    )


@outlined
def exchange(uses, allowed, opening, choice, loads, counts):
    """Exchange the ways of two experts, by the same rule as `move`. Returns whether two were exchanged."""
    full, count = fullest(loads), len(choice)
    best, left, right = loads[full] * (1.0 - _ROUNDING), -1, -1
    for first in range(count):
        source = choice[first]
        if uses[first, source, full] == 0.0:
            continue
        for second in range(count):
            target = choice[second]
            if target == source or not (allowed[first, target] and allowed[second, source]):
                continue
            most = loads[full] + exchanged(uses, first, second, source, target, full)
            if most >= best:
                continue
            for r in range(len(loads)):
                grows = exchanged(uses, first, second, source, target, r)
                if grows > 0.0:
                    most = max(most, loads[r] + grows)
                if most >= best:
                    break
            if most < best:
                best, left, right = most, first, second
    if left < 0:
        return False
    choice[left], choice[right] = choice[right], choice[left]
    return True


@inlined
def in_norm(share, squarings):
    """The part of a load, as a share of the largest, in a norm of all loads: a power of it."""
    for _ in range(squarings):
        share *= share
    return share


@outlined
def lower_norm(uses, allowed, opening, choice, loads, counts, squarings):
    """Move the expert whose move lowers a norm of all loads most. Returns whether one was moved."""
    most = loads[fullest(loads)]
    if most <= 0.0:
        return False
    best, moved, to = -_LEAST_GAIN, -1, 0
    for expert in range(len(choice)):
        source = choice[expert]
        for target in range(WAYS):
            if target == source or not allowed[expert, target]:
                continue
            grows = 0.0
            for r in range(len(loads)):
                more = change(uses, opening, counts, expert, source, target, r)
                if more != 0.0:
                    grows += in_norm((loads[r] + more) / most, squarings) - in_norm(
                        loads[r] / most, squarings
                    )
            if grows < best:
                best, moved, to = grows, expert, target
    if moved < 0:
        return False
    choice[moved] = to
    return True


@inlined
def lower_maximum(uses, allowed, base, opening, choice, loads, counts):
    """Move and exchange experts as long as this lowers the largest load; returns it."""
    fill_loads(uses, base, opening, choice, loads, counts)
    while move(uses, allowed, opening, choice, loads, counts) or exchange(
        uses, allowed, opening, choice, loads, counts
    ):
        fill_loads(uses, base, opening, choice, loads, counts)
    return loads[fullest(loads)]


@inlined
def begun(overhead, opening, counts, expert, target, r):
    """Use of a resource by the first part of an expert on another way, however small the part is."""
    return overhead[expert, target, r] + (opening[target, r] if counts[target] == 0 else 0.0)


@inlined
def slope(uses, overhead, expert, source, target, r):
    """By how much the load of a resource grows when all of an expert but its overheads changes its way."""
    grows = uses[expert, target, r] - overhead[expert, target, r]
    return grows - (uses[expert, source, r] - overhead[expert, source, r])


@outlined
def best_share(uses, overhead, opening, loads, counts, expert, source, target):
    """The share of an expert on another way with which the largest load that this changes is least.

    Loads are lines over the share. Their upper envelope is followed from a share of 0 as long as it falls.
    """
    share, begins, grows = 0.0, -1.0, 0.0
    for r in range(len(loads)):
        fixed = begun(overhead, opening, counts, expert, target, r)
        other = slope(uses, overhead, expert, source, target, r)
        if (other != 0.0 or fixed > 0.0) and loads[r] + fixed > begins:
            begins, grows = loads[r] + fixed, other
    while grows < 0.0 and share < 1.0:
        share, next_begins, next_grows = 1.0, begins, 0.0
        for r in range(len(loads)):
            fixed = begun(overhead, opening, counts, expert, target, r)
            other = slope(uses, overhead, expert, source, target, r)
            if other > grows and (other != 0.0 or fixed > 0.0):
                crossing = (begins - loads[r] - fixed) / (other - grows)
                if crossing < share:
                    share, next_begins, next_grows = crossing, loads[r] + fixed, other
        begins, grows = next_begins, next_grows
    return share


@outlined
def split(problem, parts, chosen):
    """Split the expert between two ways after which the fullest resource is lowest. Whether one was."""
    uses, overhead, allowed, opening = problem.uses, problem.overhead, problem.allowed, problem.opening
    choice, split_way, loads, counts = chosen.way, chosen.split_way, chosen.loads, chosen.counts
    full = fullest(loads)
    best, found, to, of_parts = loads[full] * (1.0 - _ROUNDING), -1, 0, 0
    for expert in range(len(choice)):
        source = choice[expert]
        if split_way[expert] >= 0 or uses[expert, source, full] == 0.0:
            continue
        for target in range(WAYS):
            if target == source or not allowed[expert, target]:
                continue
            fixed = begun(overhead, opening, counts, expert, target, full)
            rises = slope(uses, overhead, expert, source, target, full)
            least = (parts - 1) / parts if rises < 0.0 else 1 / parts
            if loads[full] + (fixed + least * rises) >= best:
                continue  # no share is better
            share = best_share(uses, overhead, opening, loads, counts, expert, source, target)
            for whole in range(int(share * parts), int(share * parts) + 2):
                if not 0 < whole < parts:
                    continue
                most = 0.0
                for r in range(len(loads)):
                    grows = begun(overhead, opening, counts, expert, target, r)
                    grows += whole / parts * slope(uses, overhead, expert, source, target, r)
                    if grows > 0.0 or r == full:
                        most = max(most, loads[r] + grows)
                if most < best:
                    best, found, to, of_parts = most, expert, target, whole
    if found < 0:
        return False
    for r in range(len(loads)):
        loads[r] += begun(overhead, opening, counts, found, to, r)
        loads[r] += of_parts / parts * slope(uses, overhead, found, choice[found], to, r)
    counts[to] += 1
    split_way[found], chosen.split_parts[found] = to, of_parts
    return True


@inlined
def least_maximum(problem, splits, parts, chosen):
    """Choose a way for each expert, and a second one for up to `splits` of them; the largest load.

    Args:
        parts: a share is a whole number of these.
        chosen: is set; every expert has a way that is allowed.
    """
    uses, allowed, base, opening = problem.uses, problem.allowed, problem.base, problem.opening
    choice, loads, counts = chosen.way, chosen.loads, chosen.counts
    chosen.split_parts[:] = 0
    begin_by_thresholds(uses, allowed, base, opening, problem.here, choice, chosen.sums, loads)
    least = lower_maximum(uses, allowed, base, opening, choice, loads, counts)
    for squarings in range(_SQUARINGS, 0, -1):
        for expert in range(len(choice)):
            chosen.split_way[expert] = choice[expert]  # as it was before
        while lower_norm(uses, allowed, opening, choice, loads, counts, squarings):
            fill_loads(uses, base, opening, choice, loads, counts)
        most = lower_maximum(uses, allowed, base, opening, choice, loads, counts)
        if most < least * (1.0 - _LEAST_GAIN):
            least = most
        else:
            for expert in range(len(choice)):
                choice[expert] = chosen.split_way[expert]
            fill_loads(uses, base, opening, choice, loads, counts)
    chosen.split_way[:] = -1
    for _ in range(splits):
        if not split(problem, parts, chosen):
            break
    return loads[fullest(loads)]
