"""Assigns experts to engines so that the fullest resource has the least load.

An expert can be computed in up to three ways: on the GPU, on the CPU, or on NDP units. Each way takes time of
several resources. The first expert that takes a way adds a fixed cost (`opening`). The search begins with a
threshold rule, improves it by moves and exchanges, and then splits a few experts between two ways. Every step
lowers the load of the fullest resource, and raises no other one to it. Where several resources are nearly as
full and each expert uses two of them, no such step may be left. Then steps lower a norm of all loads instead.

What a step does is the same for all experts with equal use on the same way, found for the first of them.
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
Flags = NDArray[np.bool_]
Ints = NDArray[np.int64]

_ROUNDING = 1e-9  # a load lower by no more than this share is not lower
_LEAST_GAIN = 1e-6  # and so is a norm
_SQUARINGS = 3  # norms begin with the eighth powers of loads


class Problem(NamedTuple):
    """Experts to be assigned, and what they take."""

    uses: Floats  # [expert, way, resource]: the time of a resource that an expert takes in a way
    overhead: Floats  # [expert, way, resource]: what each part takes; the rest of `uses` is divided by share
    allowed: Flags  # [expert, way]: of CPU and NDP units, each computes all experts or none
    base: Floats  # [resource]: its load without any of these experts
    opening: Floats  # [way, resource]: what a way takes as soon as any expert takes it
    here: int  # so many experts, the first ones, begin on the GPU; the others are in the order of thresholds
    like: Ints  # [expert]: the first expert with the same uses, overhead and allowed ways


class Room(NamedTuple):
    """Arrays to work with."""

    sums: Floats  # [expert + 1, way, resource]: uses of the experts before each
    grows: Floats  # [expert, way, way, resource]: of the first of those alike: its use on the second way less
    before: Ints  # [expert]: its way in the best choice until now
    next: Ints  # [expert]: the next one like it; -1: it is the last
    met: Ints  # [expert, way]: the first expert like it on a way; -1: there is none
    first: Ints  # [expert]: the first one like it on its way, of those that are not split
    off: Floats  # [expert, way]: what a move takes off the fullest resource,
    added: Floats  # [expert, way]: and adds to others; infinite: another move is better
    again: Flags  # [expert]: whether its move was the best: one like it may be better, by rounding
    least: Floats  # [way, way]: see `least_growth`
    helps: Flags  # [way]: whether an exchange with an expert on it may lower the largest load
    norms: Floats  # [resource]: the part of each load in a norm


class Chosen(NamedTuple):
    """The ways of experts, and the loads that they make."""

    way: Ints  # [expert]
    split_way: Ints  # [expert]: its second way; -1: it has none
    split_parts: Ints  # [expert]: how many parts of it take the second way
    loads: Floats  # [resource]
    counts: Ints  # [way]: experts
    room: Room


def make_room(experts: int, resources: int) -> Room:
    """Arrays for so many experts and resources, at most."""
    return Room(
        sums=np.zeros((experts + 1, WAYS, resources)),
        grows=np.zeros((experts, WAYS, WAYS, resources)),
        before=np.zeros(experts, np.int64),
        next=np.zeros(experts, np.int64),
        met=np.zeros((experts, WAYS), np.int64),
        first=np.zeros(experts, np.int64),
        off=np.zeros((experts, WAYS)),
        added=np.zeros((experts, WAYS)),
        again=np.zeros(experts, np.bool_),
        least=np.zeros((WAYS, WAYS)),
        helps=np.zeros(WAYS, np.bool_),
        norms=np.zeros(resources),
    )


@outlined
def fill_loads(uses, base, opening, choice, loads, counts):
    """The load of each resource; three at a time are added up together."""
    last = len(base) - 1
    for first in range(0, len(base), 3):
        second, third = min(first + 1, last), min(first + 2, last)
        a, b, c = base[first], base[second], base[third]
        for expert in range(len(choice)):
            way = choice[expert]
            a += uses[expert, way, first]
            b += uses[expert, way, second]
            c += uses[expert, way, third]
        for way in range(WAYS):
            if counts[way] > 0:
                a += opening[way, first]
                b += opening[way, second]
                c += opening[way, third]
        loads[first], loads[second], loads[third] = a, b, c


@outlined
def find_alike(uses, like, room):
    """Set `grows` and `next` of `Room`."""
    for expert in range(len(uses)):
        room.next[expert] = room.first[expert] = -1
        if like[expert] == expert:
            for source in range(WAYS):
                for target in range(WAYS):
                    for r in range(uses.shape[2]):
                        more = uses[expert, target, r] - uses[expert, source, r]
                        room.grows[expert, source, target, r] = more
        else:
            room.next[room.first[like[expert]]] = expert
        room.first[like[expert]] = expert  # the last one until now


@inlined
def find_first(kind, chosen):
    """Set `first` of `Room` for the experts that are like one."""
    met, expert = chosen.room.met, kind
    for way in range(WAYS):
        met[kind, way] = -1
    while expert >= 0:
        way = chosen.way[expert]
        if met[kind, way] < 0 and chosen.split_way[expert] < 0:
            met[kind, way] = expert
        chosen.room.first[expert] = met[kind, way]
        expert = chosen.room.next[expert]


@inlined
def take_way(problem, chosen, expert, way):
    """Let an expert take another way, without the loads."""
    chosen.counts[chosen.way[expert]] -= 1
    chosen.counts[way] += 1
    chosen.way[expert] = way
    find_first(problem.like[expert], chosen)


@inlined
def see_loads(problem, chosen):
    """Find the loads of the present ways."""
    fill_loads(problem.uses, problem.base, problem.opening, chosen.way, chosen.loads, chosen.counts)


@outlined
def see_ways(problem, chosen):
    """Find all that follows from the ways of experts, of which none is split."""
    chosen.counts[:] = 0
    for expert in range(len(chosen.way)):
        chosen.counts[chosen.way[expert]] += 1
        if problem.like[expert] == expert:
            find_first(expert, chosen)
    see_loads(problem, chosen)


@inlined
def change(grows, opening, counts, source, target, r):
    """By how much the load of a resource grows when an expert moves from one way to another.

    grows: of the expert, [way, way, resource].
    """
    more = grows[source, target, r]
    if counts[source] == 1:
        more -= opening[source, r]
    if counts[target] == 0:
        more += opening[target, r]
    return more


@outlined
def begin_by_thresholds(problem, choice, sums, of_here):
    """The first experts that the GPU lacks go there, the last to the NDP units, others to the CPU.

    All pairs of thresholds are tried, but those that leave a resource with more than the best pair has
    whatever the CPU gets. Experts that are `here`, the first ones, are the GPU's.

    sums: see `Room`; of_here: [resource], of those `here`.
    """
    uses, allowed, base, opening = problem.uses, problem.allowed, problem.base, problem.opening
    here, count, resources = problem.here, len(choice), len(base)
    of_here[:] = 0.0
    rises = True
    for way in range(WAYS):
        for r in range(resources):
            sums[here, way, r] = 0.0
        for expert in range(here, count):
            for r in range(resources):
                sums[expert + 1, way, r] = sums[expert, way, r] + uses[expert, way, r]
                rises = rises and uses[expert, way, r] >= 0.0
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
            most, full = 0.0, 0
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
                    full = r
                    break
            if most < best:
                best, first, last = most, copied, far
            elif rises:
                load = base[full] + of_here[full] + sums[copied, GPU, full]
                load += sums[count, NDP, full] - sums[far, NDP, full]
                if load >= best:
                    break
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
def move(problem, chosen):
    """Move an expert off the fullest resource if no other becomes as full. Returns whether one was moved.

    Of all moves the one that adds least work elsewhere for the work that it takes off the fullest resource;
    work counts as much as the resource that gets it is full then.
    """
    allowed, opening, choice = problem.allowed, problem.opening, chosen.way
    loads, counts, room = chosen.loads, chosen.counts, chosen.room
    full = fullest(loads)
    limit, best, moved, to = loads[full] * (1.0 - _ROUNDING), np.inf, -1, 0
    for expert in range(len(choice)):
        source, first, grows = choice[expert], room.first[expert], room.grows[problem.like[expert]]
        if first == expert:
            room.again[expert] = False
        elif not room.again[first]:
            continue
        for target in range(WAYS):
            if target == source or not allowed[expert, target]:
                continue
            if first == expert:
                off = -change(grows, opening, counts, source, target, full)
                added, most = np.inf, 0.0
                if off > loads[full] * _ROUNDING:
                    added, most = 0.0, best * off
                for r in range(len(loads)):
                    if added >= most:
                        added = np.inf
                        break
                    more = change(grows, opening, counts, source, target, r)
                    if more > 0.0:
                        added += more * (loads[r] + more) if loads[r] + more < limit else np.inf
                room.off[expert, target], room.added[expert, target] = off, added
            off, added = room.off[first, target], room.added[first, target]
            if added < best * off:
                best, moved, to, room.again[first] = added / off, expert, target, True
    if moved < 0:
        return False
    take_way(problem, chosen, moved, to)
    return True


@inlined
def least_growth(problem, chosen, full):
    """Set `least` of `Room`: how much the fullest resource gets at least of an expert that moves.

    By its way before and after.
    """
    least, allowed = chosen.room.least, problem.allowed
    least[:] = np.inf
    for expert in range(len(chosen.way)):
        now, grows = chosen.way[expert], chosen.room.grows[problem.like[expert]]
        for way in range(WAYS):
            if chosen.room.first[expert] == expert and way != now and allowed[expert, way]:
                least[now, way] = min(least[now, way], grows[now, way, full])


@outlined
def exchange(problem, chosen):
    """Exchange the ways of two experts, by the same rule as `move`. Returns whether two were exchanged."""
    uses, allowed, like, choice = problem.uses, problem.allowed, problem.like, chosen.way
    loads, room, full = chosen.loads, chosen.room, fullest(chosen.loads)
    grows, first_like, helps = room.grows, room.first, room.helps
    least_growth(problem, chosen, full)
    best, left, right = loads[full] * (1.0 - _ROUNDING), -1, -1
    for first in range(len(choice)):
        source = choice[first]
        if first_like[first] != first or uses[first, source, full] == 0.0:
            continue
        helpful = False
        for target in range(WAYS):
            more = grows[like[first], source, target, full] + room.least[target, source]
            helps[target] = allowed[first, target] and loads[full] + more < best
            helpful = helpful or helps[target]
        if not helpful:
            continue
        for second in range(len(choice)):
            target = choice[second]
            if first_like[second] != second or not (helps[target] and allowed[second, source]):
                continue
            if second < first and uses[second, target, full] != 0.0:
                continue  # the same was tried with the second one first
            there, back = grows[like[first], source, target], grows[like[second], target, source]
            most = loads[full] + (there[full] + back[full])
            if most >= best:
                continue
            for r in range(len(loads)):
                more = there[r] + back[r]
                if more > 0.0:
                    most = max(most, loads[r] + more)
                if most >= best:
                    break
            if most < best:
                best, left, right = most, first, second
    if left < 0:
        return False
    source, target = choice[left], choice[right]
    take_way(problem, chosen, left, target)
    take_way(problem, chosen, right, source)
    return True


@inlined
def in_norm(share, squarings):
    """The part of a load, as a share of the largest, in a norm of all loads: a power of it."""
    for _ in range(squarings):
        share *= share
    return share


@outlined
def lower_norm(problem, chosen, squarings):
    """Move the expert whose move lowers a norm of all loads most. Returns whether one was moved."""
    allowed, opening, choice = problem.allowed, problem.opening, chosen.way
    loads, counts, norms, room = chosen.loads, chosen.counts, chosen.room.norms, chosen.room
    most = loads[fullest(loads)]
    if most <= 0.0:
        return False
    for r in range(len(loads)):
        norms[r] = in_norm(loads[r] / most, squarings)
    best, moved, to = -_LEAST_GAIN, -1, 0
    for expert in range(len(choice)):
        if room.first[expert] != expert:
            continue
        source, grows = choice[expert], room.grows[problem.like[expert]]
        for target in range(WAYS):
            if target == source or not allowed[expert, target]:
                continue
            lower = 0.0
            for r in range(len(loads)):
                more = change(grows, opening, counts, source, target, r)
                if more != 0.0:
                    lower += in_norm((loads[r] + more) / most, squarings) - norms[r]
            if lower < best:
                best, moved, to = lower, expert, target
    if moved < 0:
        return False
    take_way(problem, chosen, moved, to)
    return True


@inlined
def lower_maximum(problem, chosen):
    """Move and exchange experts as long as this lowers the largest load; returns it."""
    while move(problem, chosen) or exchange(problem, chosen):
        see_loads(problem, chosen)
    return chosen.loads[fullest(chosen.loads)]


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
        if chosen.room.first[expert] != expert or uses[expert, source, full] == 0.0:
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
    find_first(problem.like[found], chosen)
    return True


@inlined
def least_maximum(problem, splits, parts, chosen):
    """Choose a way for each expert, and a second one for up to `splits` of them; the largest load.

    Args:
        parts: a share is a whole number of these.
        chosen: is set; every expert has a way that is allowed.
    """
    choice, before = chosen.way, chosen.room.before
    chosen.split_way[:], chosen.split_parts[:] = -1, 0
    begin_by_thresholds(problem, choice, chosen.room.sums, chosen.loads)
    find_alike(problem.uses, problem.like, chosen.room)
    see_ways(problem, chosen)
    least = lower_maximum(problem, chosen)
    for squarings in range(_SQUARINGS, 0, -1):
        for expert in range(len(choice)):
            before[expert] = choice[expert]
        if not lower_norm(problem, chosen, squarings):
            continue
        see_loads(problem, chosen)
        while lower_norm(problem, chosen, squarings):
            see_loads(problem, chosen)
        most = lower_maximum(problem, chosen)
        if most < least * (1.0 - _LEAST_GAIN):
            least = most
        else:
            for expert in range(len(choice)):
                choice[expert] = before[expert]
            see_ways(problem, chosen)
    for _ in range(splits):
        if not split(problem, parts, chosen):
            break
    return chosen.loads[fullest(chosen.loads)]
