"""Experts on devices: each on its fastest engine, then moved off the busiest device while that helps.

This is Section 4.2 of TriMoE. Devices are the GPU, the CPU, and each DIMM. Reads of the host make DIMMs busy,
too: that of a striped expert all of them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ndpsim.base.jit import by_reference, inlined, kernel, outlined
from ndpsim.policies.assignment.parts import sort_falling

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: Devices; the first DIMM, of which others follow.
GPU, CPU, DIMM = 0, 1, 2

#: The device of an expert without tokens.
NOWHERE = -1

#: Where the GPU has an expert: not at all, on its way, in its memory.
MISSING, ARRIVING, RESIDENT = range(3)

_ROUNDING = 1e-12  # a makespan lower by no more than this share is not lower


@by_reference
class Scheduling(NamedTuple):
    """Costs of experts by their state, and arrays to work with.

    A state is twice `MISSING`, `ARRIVING` or `RESIDENT`, and 1 more if the expert is localized.
    """

    time: Floats  # [engine, state, tokens]: of GPU, CPU and NDP; infinite: the engine cannot compute it
    read: Floats  # [engine, state]: how long the host's read for GPU or CPU makes the expert's DIMMs busy
    expert_time: Floats  # [engine, expert]
    expert_read: Floats  # [engine, expert]
    memory: Ints  # [expert]: see `schedule`, as the next three
    devices: Ints  # [expert]
    busy: Floats  # [device, and one for striped reads]
    tried: Floats  # [device, and one]
    worth: Floats  # [expert]: by which experts of a device are sorted
    sorted: Ints  # [expert]
    spare: Ints  # [expert]
    ends: Ints  # [group]: of experts in their order


class LayerState(NamedTuple):
    """The experts of a layer, as in `LayerView`."""

    loads: Ints
    resident: NDArray[np.bool_]
    arriving: NDArray[np.bool_]
    dimm: NDArray[np.int16]


@outlined
def fastest(time, memory, expert):
    """The device on which an expert takes least time; of equals NDP before the CPU before the GPU."""
    device, least = memory[expert], time[DIMM, expert]
    for engine in (CPU, GPU):
        if time[engine, expert] < least:
            device, least = engine, time[engine, expert]
    return device


@outlined
def count(time, read, memory, expert, device, sign, busy):
    """Add an expert on a device to `busy`, or with a `sign` of -1 take it off."""
    busy[device] += sign * time[min(device, DIMM), expert]
    if device < DIMM:
        busy[memory[expert]] += sign * read[device, expert]


@inlined
def total(busy, device):
    """How long a device is busy. The last number of `busy` is that of striped reads."""
    return busy[device] + busy[len(busy) - 1] if device >= DIMM else busy[device]


@outlined
def busiest(busy):
    """The device that is busy longest; of equals the first."""
    most = GPU
    for device in range(1, len(busy) - 1):
        if total(busy, device) > total(busy, most):
            most = device
    return most


@outlined
def most_costly(time, devices, device):
    """The expert on a device that takes most time; of equals the first; -1: there is none."""
    engine, found = min(device, DIMM), -1
    for expert in range(len(devices)):
        if devices[expert] == device and (found < 0 or time[engine, expert] > time[engine, found]):
            found = expert
    return found


@outlined
def best_move(time, read, memory, expert, source, busy, tried):
    """The device with the least makespan, of equals with the least increase; and that makespan."""
    best, least, least_added = -1, np.inf, np.inf
    for engine in range(DIMM + 1):
        device = engine if engine < DIMM else memory[expert]
        if device == source or time[engine, expert] == np.inf:
            continue
        for other in range(len(busy)):
            tried[other] = busy[other]
        count(time, read, memory, expert, source, -1.0, tried)
        count(time, read, memory, expert, device, 1.0, tried)
        makespan, added = total(tried, busiest(tried)), total(tried, device) - total(busy, device)
        if makespan < least or (makespan == least and added < least_added):
            best, least, least_added = device, makespan, added
    return best, least


@inlined
def schedule(time, read, memory, loads, limit, devices, busy, tried):
    """Put each expert with tokens on its fastest device, and then move experts to shorten the makespan.

    A move takes the most costly expert of the busiest device to a better one. Moves end where none lowers the
    makespan.

    Args:
        time: [engine, expert], of GPU, CPU and NDP; infinite where the engine cannot compute it.
        read: [engine, expert]: how long the host's read for GPU or CPU makes the expert's DIMMs busy.
        memory: [expert]: its DIMM as a device; the last number of `busy` for a striped one.
        loads: [expert]: its tokens.
        limit: moves at most.
        devices: [expert]: is set; `NOWHERE` without tokens.
        busy: [device, and one for striped reads]: how long each is without these experts; is changed.
        tried: an array like `busy` to work with.

    Returns:
        The moves, and the makespan before them.
    """
    for expert in range(len(loads)):
        devices[expert] = NOWHERE
        if loads[expert] > 0:
            devices[expert] = fastest(time, memory, expert)
            count(time, read, memory, expert, devices[expert], 1.0, busy)
    moves, full = 0, busiest(busy)
    before = makespan = total(busy, full)
    while moves < limit:
        expert = most_costly(time, devices, full)
        if expert < 0:
            break
        device, least = best_move(time, read, memory, expert, full, busy, tried)
        if device < 0 or least >= makespan * (1.0 - _ROUNDING):
            break
        count(time, read, memory, expert, full, -1.0, busy)
        count(time, read, memory, expert, device, 1.0, busy)
        devices[expert] = device
        moves, full = moves + 1, busiest(busy)
        makespan = total(busy, full)
    return moves, before


@inlined
def find_costs(tables, layer, gpu_only):
    """Find the costs of each expert at its location, and its DIMM as a device."""
    most, striped = tables.time.shape[2] - 1, len(tables.busy) - 1
    for expert in range(len(layer.loads)):
        there = RESIDENT if layer.resident[expert] else ARRIVING if layer.arriving[expert] else MISSING
        dimm, tokens = layer.dimm[expert], min(layer.loads[expert], most)
        state = 2 * there + (1 if dimm >= 0 else 0)
        tables.memory[expert] = DIMM + dimm if dimm >= 0 else striped
        for engine in range(DIMM + 1):
            possible = engine == GPU or not gpu_only
            tables.expert_time[engine, expert] = tables.time[engine, state, tokens] if possible else np.inf
        for engine in range(DIMM):
            tables.expert_read[engine, expert] = tables.read[engine, state]


@inlined
def group_of(tables, layer, expert):
    """The group of an expert in the order of `list_devices`."""
    device = tables.devices[expert]
    if device != GPU:
        return RESIDENT + device
    return 0 if layer.resident[expert] else 1 if layer.arriving[expert] else 2


@inlined
def list_devices(tables, layer, order):
    """List the experts with tokens: on the GPU those that it has, those on their way, and the others; then
    those of the CPU and of each DIMM. In each of these groups, those with most `worth` come first.
    """
    active, ends = 0, tables.ends
    ends[:] = 0
    for expert in range(len(layer.loads)):
        if tables.devices[expert] != NOWHERE:
            tables.sorted[active] = expert
            active += 1
            ends[group_of(tables, layer, expert)] += 1
    sort_falling(tables.worth, tables.sorted, active, tables.spare)
    first = 0
    for group in range(len(ends)):
        first, ends[group] = first + ends[group], first
    for turn in range(active):
        expert = tables.sorted[turn]
        group = group_of(tables, layer, expert)
        order[ends[group]] = expert
        ends[group] += 1


@kernel
def schedule_layer(tables, layer, shared_ns, call_ns, limit, gpu_only, order):
    """Schedule the experts of a layer (`schedule`), and list those of each device.

    Args:
        tables: `Scheduling`.
        layer: `LayerState`.
        shared_ns: for which the GPU is busy in any case, with a call for residents.
        call_ns: of this call, which a layer without residents on the GPU does not make.
        gpu_only: the GPU computes all experts, those with most tokens first.
        order: [expert]: is set to experts with tokens as `list_devices` lists them; without `gpu_only`, the
            most costly of a group first.

    Returns:
        The moves, the makespan before and after them, and the ends in `order` of the experts on the GPU, on
        the CPU, and of all.
    """
    find_costs(tables, layer, gpu_only)
    busy, devices, worth = tables.busy, tables.devices, tables.worth
    busy[:] = 0.0
    busy[GPU] = shared_ns
    costs = tables.expert_time, tables.expert_read, tables.memory
    moves, before = schedule(*costs, layer.loads, limit, devices, busy, tables.tried)
    for expert in range(len(devices)):
        engine = max(min(devices[expert], DIMM), GPU)
        worth[expert] = layer.loads[expert] if gpu_only else tables.expert_time[engine, expert]
    list_devices(tables, layer, order)
    ends = tables.ends
    if ends[0] == 0:
        busy[GPU] -= call_ns
    return moves, before, total(busy, busiest(busy)), ends[RESIDENT], ends[RESIDENT + CPU], ends[-1]
