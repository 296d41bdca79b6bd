"""Experts on devices: each on its fastest engine, then moved off the busiest device while that helps.

This is Section 4.2 of TriMoE. Devices are the GPU, the CPU, and each DIMM. Reads of the host make DIMMs busy,
too: that of a striped expert all of them.
"""

from __future__ import annotations

import numpy as np

from ndpsim.base.jit import inlined, kernel, outlined

#: Devices; the first DIMM, of which others follow.
GPU, CPU, DIMM = 0, 1, 2

#: The device of an expert without tokens.
NOWHERE = -1

_ROUNDING = 1e-12  # a makespan lower by no more than this share is not lower


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


@kernel
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
