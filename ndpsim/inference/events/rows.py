"""Rows of costs of the parts of experts in a layer, from tables that grow over a run."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ndpsim.base.jit import by_reference, inlined, kernel

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: `arrival` of an expert in the GPU's memory, and of one that is copied by the layer.
HERE, MISSING = -1, -2

#: A row of costs that is not known.
UNKNOWN = -1

#: The number of an entry of `KnownRows` that has no row.
FREE = -1

#: Tables of costs: of parts on GPU, CPU and NDP units, and of the host's reads of whole experts that the GPU
#: has copied, and that the CPU computes.
OF_GPU, OF_CPU, OF_NDP, OF_COPIES, OF_CPU_READS = range(5)

#: Above any number of DIMMs of an expert: tokens or a DIMM, times this, and DIMMs are one number.
RADIX = 1 << 10


@by_reference
class KnownRows(NamedTuple):
    """Rows by number and share, in as many entries as a power of two, of which most are free.

    A row is in the first free entry from `first_entry` on, beyond the last one from the beginning.
    """

    numbers: Ints
    shares: Floats
    rows: Ints


class LayerExperts(NamedTuple):
    """The experts of a layer, as in `LayerView`."""

    loads: Ints  # [expert]
    dimm: NDArray[np.int16]  # [expert]
    shards: NDArray[np.int16]  # [expert]
    resident: NDArray[np.bool_]  # [expert]
    coming: Ints  # [expert]: the job that brings it to the GPU, or `MISSING`
    ids: NDArray[np.int16]  # [token, k]


class EngineParts(NamedTuple):
    """Parts of experts on an engine, in its order."""

    experts: Ints  # [part]
    shares: Floats  # [part]
    rows: Ints  # [part]: of its `PartCost`
    reads: Ints  # [part]: of the `ReadCost` of its expert; NDP units: not used


class Engines(NamedTuple):
    """The parts of a layer."""

    gpu: EngineParts
    cpu: EngineParts
    ndp: EngineParts


class Room(NamedTuple):
    """Arrays for the jobs of a layer, from one kernel to the next."""

    arrival: Ints  # [part on the GPU]: the job that brings it, or `HERE`, or `MISSING`
    chosen: NDArray[np.bool_]  # [expert]
    copies: Ints  # [copy]: copies that the layer makes
    computed: Ints  # [copy]: the jobs that compute what they bring
    counts: Ints  # [2]: of both
    last: Ints  # [DIMM]: its last job


def first_entry(number, share, entries):
    """Where to look first for a number and a share among so many entries."""
    mixed = number * 40503 + int(share * 65521.0)
    mixed ^= mixed >> 10
    mixed ^= mixed >> 20
    return mixed & (entries - 1)


_first_entry = inlined(first_entry)


@inlined
def find_row(known, number, share):
    """The row of a number and a share, or `UNKNOWN`."""
    entries = len(known.numbers)
    entry = _first_entry(number, share, entries)
    while known.numbers[entry] != FREE:
        if known.numbers[entry] == number and known.shares[entry] == share:
            return known.rows[entry]
        entry = (entry + 1) & (entries - 1)
    return UNKNOWN


@inlined
def location_number(layer, expert):
    """The number of an expert's location."""
    return (int(layer.dimm[expert]) + 1) * RADIX + layer.shards[expert]


@inlined
def find_rows_on_gpu(known, layer, gpu, arrival):
    """`find_rows` of jobs on the GPU."""
    all_known = True
    for part in range(len(gpu.experts)):
        expert = gpu.experts[part]
        gpu.rows[part] = find_row(known[OF_GPU], layer.loads[expert], gpu.shares[part])
        all_known = all_known and gpu.rows[part] != UNKNOWN
        arrival[part] = HERE if layer.resident[expert] else layer.coming[expert]
        if arrival[part] == MISSING:
            gpu.reads[part] = find_row(known[OF_COPIES], location_number(layer, expert), 1.0)
            all_known = all_known and gpu.reads[part] != UNKNOWN
    return all_known


@inlined
def tokens_with(ids, cpu, ndp, chosen):
    """How many tokens have an expert among those of CPU or NDP units.

    Args:
        ids: of the experts of each token, [token, k].
        chosen: [expert], also of those without weights, to work with.
    """
    chosen[:] = False
    for expert in cpu:
        chosen[expert] = True
    for expert in ndp:
        chosen[expert] = True
    count = 0
    for token in range(ids.shape[0]):
        for k in range(ids.shape[1]):
            if chosen[ids[token, k]]:
                count += 1
                break
    return count


@kernel
def find_rows(known, layer, engines, room):
    """Find the rows of costs of experts, and what else the jobs of a layer need.

    Args:
        known: `KnownRows` of each table. Numbers are tokens on GPU and CPU; tokens and DIMMs on NDP units;
            locations of reads.
        layer: `LayerExperts`.
        engines: `Engines`, whose rows and reads are set.
        room: `Room`, whose `arrival` is set.

    Returns:
        Whether all rows are known, the most jobs that parts have, and how many tokens have an expert on
        another engine than the GPU.
    """
    gpu, cpu, ndp = engines.gpu, engines.cpu, engines.ndp
    all_known = find_rows_on_gpu(known, layer, gpu, room.arrival)
    for part in range(len(cpu.experts)):
        expert = cpu.experts[part]
        cpu.rows[part] = find_row(known[OF_CPU], layer.loads[expert], cpu.shares[part])
        cpu.reads[part] = find_row(known[OF_CPU_READS], location_number(layer, expert), 1.0)
        all_known = all_known and cpu.rows[part] != UNKNOWN and cpu.reads[part] != UNKNOWN
    most = 2 * len(gpu.experts) + len(cpu.experts)
    for part in range(len(ndp.experts)):
        expert = ndp.experts[part]
        number = layer.loads[expert] * RADIX + layer.shards[expert]
        ndp.rows[part] = find_row(known[OF_NDP], number, ndp.shares[part])
        all_known = all_known and ndp.rows[part] != UNKNOWN
        most += layer.shards[expert]
    return all_known, most, tokens_with(layer.ids, cpu.experts, ndp.experts, room.chosen)
