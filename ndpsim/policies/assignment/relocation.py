"""Migrations of the next layer's experts, with the time that each saves: Section 4.3 of TriMoE.

Loads are predicted by a moving average. The engine on which an expert is expected to be fastest says where it
should lie. Each migration has a benefit; those with most benefit fill the window between two layers.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ndpsim.base.jit import by_reference, inlined, kernel, outlined
from ndpsim.policies.assignment.parts import sort_falling

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Ints = NDArray[np.int64]

#: Classes of experts.
COLD, WARM, HOT = range(3)

#: Kinds of migrations.
PREFETCH, RELAYOUT, REBALANCE = range(3)

#: No expert; instead of a DIMM: all of them, and the GPU.
NONE = -1
STRIPED, TO_GPU = -1, -2


class MoveRules(NamedTuple):
    """What a machine and a policy say of migrations; times in ns."""

    alpha: float  # weight of the latest load
    pcie_ns: float  # a copy to the GPU
    striped_read_ns: float  # the host reads an expert
    localized_read_ns: float
    to_striped_ns: float  # moves
    to_localized_ns: float
    rebalance_ns: float
    window_ns: float
    together: bool  # PCIe and links share the window
    overrun: bool  # the last migration may end after it
    steps: int  # in which its benefit must be larger than its time after the window
    skew: float  # share by which the busiest DIMM exceeds the mean where skew is detected
    prefetch: bool
    relayout: bool
    rebalance: bool


@by_reference
class Prediction(NamedTuple):
    """Predicted loads, what follows from them for one layer, and arrays to work with."""

    loads: NDArray[np.float32]  # [layer, expert]: moving average
    room: Ints  # [layer]: experts that count as hot at most
    computed: Floats  # [GPU, CPU or NDP; tokens]: time of an expert
    slope: Floats  # [as `computed`]: to the next number of tokens
    gain_by_tokens: Floats  # [tokens]: the least gain of an expert in the GPU's memory
    cold_by_tokens: Flags  # [tokens]
    striped: Floats  # [expert]: time with this location, as the next two
    localized: Floats  # [expert]
    resident: Floats  # [expert]
    ndp: Floats  # [expert]: time on its DIMM if that is best, else 0
    cold: Flags  # [expert]: better localized
    gain: Floats  # [expert]: in the GPU's memory
    worth: Floats  # [expert]: by which experts are sorted
    classes: Ints  # [expert]: predicted for the layer that comes
    classes_now: Ints  # [expert]: by the loads of the layer that is done
    dimm: Ints  # [expert]: where it will lie when current migrations are done
    here: Flags  # [expert]: whether the GPU will have it then
    movable: Flags  # [expert]
    busy: Floats  # [DIMM]: time of its experts
    order: Ints  # [expert]
    victims: Ints  # [expert]
    spare: Ints  # [3 x expert]
    tasks: Ints  # [task; kind, expert, DIMM it goes to, victim or DIMM it is on]: migrations with a benefit
    benefit_ns: Floats  # [task]
    by_benefit: Ints  # [3 x expert]: tasks, those that are taken first
    used: Flags  # [expert]: whether a task with it is taken
    soon: Ints  # [expert; expert, DIMM, `STRIPED` or `TO_GPU`]: under way for the layer that comes


class Locations(NamedTuple):
    """Where the experts of all layers are now, as in `BackgroundView`: arrays [layer, expert]."""

    dimm: NDArray[np.int16]
    resident: Flags
    moving: Flags


@outlined
def classify(gain, cold, room, classes, order, spare):
    """Set the class of each expert: at most `room` of those with the largest gains are hot."""
    count = 0
    for expert in range(len(gain)):
        classes[expert] = COLD if cold[expert] else WARM
        if gain[expert] > 0.0:
            order[count] = expert
            count += 1
    if count > room:
        sort_falling(gain, order, count, spare)
    for turn in range(min(count, room)):
        classes[order[turn]] = HOT


@inlined
def time_of(prediction, engine, whole, part):
    """The time of an expert on an engine, between two numbers of tokens."""
    return prediction.slope[engine, whole] * part + prediction.computed[engine, whole]


@inlined
def predict_costs(prediction, rules, row):
    """Find the times of a layer's experts by their locations: see `ExpertCosts`."""
    dimms, most = len(prediction.busy), prediction.computed.shape[1] - 1
    for expert in range(len(prediction.gain)):
        load = float(prediction.loads[row, expert])
        tokens = min(max(load, 1.0), float(most))
        whole, share = int(tokens), min(load, 1.0)
        part = tokens - whole
        gpu, cpu = time_of(prediction, 0, whole, part), time_of(prediction, 1, whole, part)
        ndp = time_of(prediction, 2, whole, part)
        fetched = min(max(gpu, rules.pcie_ns), cpu)
        striped, read = max(fetched, rules.striped_read_ns), max(fetched, rules.localized_read_ns)
        near = dimms > 0 and ndp <= read
        prediction.striped[expert] = striped * share
        prediction.localized[expert] = (ndp / dimms if near else read) * share if dimms > 0 else np.inf
        prediction.resident[expert] = gpu * share
        prediction.ndp[expert] = ndp * share if near else 0.0
        prediction.cold[expert] = prediction.localized[expert] < prediction.striped[expert]
        least = min(prediction.striped[expert], prediction.localized[expert])
        prediction.gain[expert] = least - prediction.resident[expert]


@inlined
def note_locations(prediction, row, places, under_way):
    """Note where a layer's experts will be when current migrations are done."""
    dimm, here, soon, gain = prediction.dimm, prediction.here, prediction.soon, prediction.gain
    for expert in range(len(here)):
        dimm[expert], here[expert] = places.dimm[row, expert], places.resident[row, expert]
    for move in range(under_way):
        if soon[move, 1] == TO_GPU:
            here[soon[move, 0]] = True
        else:
            dimm[soon[move, 0]] = soon[move, 1]
    for expert in range(len(here)):
        prediction.movable[expert] = not (here[expert] or places.moving[row, expert])
        kept = prediction.striped[expert] if dimm[expert] == STRIPED else prediction.localized[expert]
        gain[expert] = kept - prediction.resident[expert]


@inlined
def fill_busy(prediction):
    """How long each DIMM computes the experts for which it is best."""
    prediction.busy[:] = 0.0
    for expert in range(len(prediction.here)):
        if prediction.dimm[expert] != STRIPED and not prediction.here[expert]:
            prediction.busy[prediction.dimm[expert]] += prediction.ndp[expert]


@inlined
def add_task(prediction, count, kind, expert, to, victim, benefit_ns):
    """Add a migration; returns how many there are."""
    tasks = prediction.tasks
    tasks[count, 0], tasks[count, 1], tasks[count, 2], tasks[count, 3] = kind, expert, to, victim
    prediction.benefit_ns[count] = benefit_ns
    return count + 1


@inlined
def add_prefetches(prediction, row, moving, free, count):
    """Experts predicted as hot, the hottest first; without free room they replace those that gain least."""
    gain, worth, wanted, there = prediction.gain, prediction.worth, 0, 0
    for expert in range(len(gain)):
        worth[expert] = -gain[expert]
        if prediction.classes[expert] == HOT and prediction.movable[expert]:
            prediction.order[wanted] = expert
            wanted += 1
        elif prediction.here[expert] and not moving[row, expert]:
            prediction.victims[there] = expert
            there += 1
    if wanted == 0:
        return count
    sort_falling(gain, prediction.order, wanted, prediction.spare)
    sort_falling(worth, prediction.victims, there, prediction.spare)
    free = max(free, 0)
    for turn in range(min(wanted, free + there)):
        expert, victim = prediction.order[turn], NONE
        benefit_ns = gain[expert]
        if turn >= free:
            victim = prediction.victims[turn - free]
            benefit_ns -= gain[victim]
        if benefit_ns > 0.0:
            count = add_task(prediction, count, PREFETCH, expert, TO_GPU, victim, benefit_ns)
    return count


@inlined
def least_busy(busy):
    """The DIMM with the least to do; of equals the first."""
    least = 0
    for dimm in range(1, len(busy)):
        if busy[dimm] < busy[least]:
            least = dimm
    return least


@inlined
def add_relayouts(prediction, count):
    """Experts whose layout is not that of their best engine, those that gain most first.

    A striped expert goes to the least busy DIMM, the experts before it included.
    """
    saved, wanted = prediction.worth, 0
    for expert in range(len(saved)):
        grows = prediction.localized[expert] - prediction.striped[expert]
        saved[expert] = -grows if prediction.dimm[expert] == STRIPED else grows
        if saved[expert] > 0.0 and prediction.movable[expert]:
            prediction.order[wanted] = expert
            wanted += 1
    sort_falling(saved, prediction.order, wanted, prediction.spare)
    fill_busy(prediction)
    for turn in range(wanted):
        expert, to = prediction.order[turn], STRIPED
        if prediction.dimm[expert] == STRIPED:
            to = least_busy(prediction.busy)
            prediction.busy[to] += prediction.ndp[expert]
        count = add_task(prediction, count, RELAYOUT, expert, to, NONE, saved[expert])
    return count


@inlined
def is_skewed(busy, source, skew):
    """Whether a DIMM has to do more than the mean of all by more than a share."""
    total = 0.0
    for dimm in range(len(busy)):
        total += busy[dimm]
    return busy[source] > total / len(busy) * (1.0 + skew)


@inlined
def most_equal(prediction, source, to):
    """The expert of a DIMM whose move to another one makes the two most equal; of equals the first."""
    busy, least, chosen = prediction.busy, np.inf, NONE
    for expert in range(len(prediction.ndp)):
        ndp_ns = prediction.ndp[expert]
        if prediction.movable[expert] and ndp_ns > 0.0 and prediction.dimm[expert] == source:
            uneven_ns = abs(busy[source] - busy[to] - 2.0 * ndp_ns)
            if uneven_ns < least:
                least, chosen = uneven_ns, expert
    return chosen


@inlined
def add_rebalances(prediction, rules, count):
    """Moves of cold experts from the busiest DIMM to the least busy one, as long as there is skew."""
    fill_busy(prediction)
    busy, most = prediction.busy, 1 + int(rules.window_ns / max(rules.rebalance_ns, 1.0))
    for _ in range(most):
        source, to = 0, least_busy(busy)
        for dimm in range(1, len(busy)):
            if busy[dimm] > busy[source]:
                source = dimm
        if not is_skewed(busy, source, rules.skew):
            break
        expert = most_equal(prediction, source, to)
        if expert == NONE:
            break
        ndp_ns = prediction.ndp[expert]
        then_ns = max(busy[source] - ndp_ns, busy[to] + ndp_ns)
        benefit_ns = max(busy[source], busy[to]) - then_ns
        if benefit_ns <= 0.0:
            break
        count = add_task(prediction, count, REBALANCE, expert, to, source, benefit_ns)
        busy[source] -= ndp_ns
        busy[to] += ndp_ns
        prediction.dimm[expert], prediction.movable[expert] = to, False
    return count


@inlined
def take_tasks(prediction, rules, count, pcie_ns, links_ns):
    """Take tasks by benefit until their times fill the window, each expert once; returns how many.

    pcie_ns, links_ns: what earlier migrations take of the window.
    """
    tasks, taken, by_benefit = prediction.tasks, 0, prediction.by_benefit
    prediction.used[:] = False
    for task in range(count):
        by_benefit[task] = task
    sort_falling(prediction.benefit_ns, by_benefit, count, prediction.spare)
    for turn in range(count):
        task = by_benefit[turn]
        kind, expert = tasks[task, 0], tasks[task, 1]
        spent_ns = pcie_ns + links_ns if rules.together else pcie_ns if kind == PREFETCH else links_ns
        if prediction.used[expert] or spent_ns >= rules.window_ns:
            continue
        took_ns = rules.pcie_ns if kind == PREFETCH else rules.rebalance_ns
        if kind == RELAYOUT:
            took_ns = rules.to_striped_ns if tasks[task, 2] == STRIPED else rules.to_localized_ns
        behind_ns = spent_ns + took_ns - rules.window_ns
        if behind_ns <= 0.0 or (rules.overrun and rules.steps * prediction.benefit_ns[task] > behind_ns):
            if kind == PREFETCH:
                pcie_ns += took_ns
            else:
                links_ns += took_ns
            prediction.used[expert] = True
            by_benefit[taken] = task
            taken += 1
    return taken


@inlined
def count_right(prediction, row, loads):
    """How many experts of a layer have the class that was predicted for them."""
    right, most = 0, len(prediction.gain_by_tokens) - 1
    for expert in range(len(loads)):
        tokens = min(loads[expert], most)
        prediction.gain[expert] = prediction.gain_by_tokens[tokens]
        prediction.cold[expert] = prediction.cold_by_tokens[tokens]
    now = prediction.classes_now
    classify(prediction.gain, prediction.cold, prediction.room[row], now, prediction.order, prediction.spare)
    for expert in range(len(loads)):
        if now[expert] == prediction.classes[expert]:
            right += 1
    return right


@kernel
def look_ahead(prediction, rules, done, after, loads, judged, places, free, under_way, spent_ns):
    """Update the moving average of a layer, predict the next one, and choose migrations of its experts.

    Args:
        prediction: `Prediction`. Its `classes` become those of the next layer, `tasks` all migrations with a
            benefit, and `by_benefit` first those of them that are taken.
        rules: `MoveRules`.
        done, after: the row of the layer that is done, and of the next one.
        loads: [expert]: tokens of the layer that is done.
        judged: whether `classes` were predicted for this layer.
        places: `Locations`.
        free: room in the GPU's memory.
        under_way: entries of `soon`.
        spent_ns: what earlier migrations take of the window, on PCIe and on links.

    Returns:
        The number of right classes, of migrations with a benefit, and of those that are taken.
    """
    right = count_right(prediction, done, loads) if judged else 0
    for expert in range(len(loads)):
        average = prediction.loads[done, expert]
        prediction.loads[done, expert] = average + rules.alpha * (loads[expert] - average)
    predict_costs(prediction, rules, after)
    room, order, spare = prediction.room[after], prediction.order, prediction.spare
    classify(prediction.gain, prediction.cold, room, prediction.classes, order, spare)
    note_locations(prediction, after, places, under_way)
    count = 0
    if rules.prefetch:
        count = add_prefetches(prediction, after, places.moving, free, count)
    if rules.relayout:
        count = add_relayouts(prediction, count)
    if rules.rebalance and len(prediction.busy) > 0:
        count = add_rebalances(prediction, rules, count)
    return right, count, take_tasks(prediction, rules, count, spent_ns[0], spent_ns[1])
