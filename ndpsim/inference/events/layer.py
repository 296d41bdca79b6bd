"""The jobs of a layer's experts: what each engine does, and what it waits for."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ndpsim.base.jit import inlined, kernel, outlined
from ndpsim.inference.events.rows import HERE, MISSING
from ndpsim.inference.events.state import (
    ACTIVATIONS,
    COPY,
    CPU,
    EXPERT,
    FIRST_NDP,
    GPU,
    HAND_OVER,
    NDP,
    PCIE_DOWN,
    PCIE_UP,
    PLANNING,
    RESULTS,
    SHARED,
)

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# Columns of the costs of a part. On GPU and CPU: the time of computing it, bytes of its weights, their share
# of the full weights' bytes; the kind of the copy or the host's read, and the time of that read of all of it;
# on the GPU the time of its weights over PCIe.
_NS, _BYTES, _SHARE, _PCIE_NS = range(4)
_KIND, _READ_NS = range(2)
# On NDP units: work, bus share and pause share of a job that is the first on its unit; of one behind another;
# `between` and `table` of both, bytes on each DIMM, and the number of DIMMs.
_FIRST, _BEHIND, _BETWEEN, _TABLE, _UNIT_BYTES, _DIMMS = 0, 3, 6, 7, 8, 9


class EngineParts(NamedTuple):
    """Parts of experts on an engine, in its order."""

    experts: Ints  # [part]
    shares: Floats  # [part]
    rows: Ints  # [part]: of its costs
    costs: Floats  # [row, column]


class Reads(NamedTuple):
    """The host's reads of whole experts, by parts of an engine."""

    rows: Ints  # [part]
    costs: Floats  # [row, column]


class Rules(NamedTuple):
    """The way in which a layer is computed."""

    listed: bool  # the GPU computes in the order of its list, else those first that arrive first
    sequential: bool  # the GPU computes, then the CPU, then the NDP units
    copy_engines: int
    expert_buffers: int
    call_ns: float  # a call of the GPU
    hand_over_ns: float  # a call of the CPU
    planning_ns: float
    shared_ns: float  # of the shared experts
    vector_bytes: int  # of activations to the host, and of results; 0: there are none
    vectors_ns: float  # of these over PCIe
    kind_up: int
    kind_down: int


class Copies(NamedTuple):
    """Copies that the layer makes, and the jobs that compute what they bring."""

    copies: Ints  # [copy]
    computed: Ints  # [copy]
    counts: Ints  # [2]: of both


@inlined
def add_job(jobs, added, resource, what, work_ns):
    """Add a job, beyond which the arrays have the usual values."""
    job = jobs.counts[0]
    jobs.counts[0] = job + 1
    jobs.work_ns[job] = work_ns
    added.given_left_ns[job] = work_ns
    added.alone_ns[job] = work_ns
    added.resource[job] = resource
    added.what[job] = what
    if resource <= CPU:
        jobs.server[job] = resource
    return job


@outlined
def add_part(jobs, added, loads, resource, what, work_ns, parts, part, size):
    """Add a job of an expert."""
    job = add_job(jobs, added, resource, what, work_ns)
    added.expert[job] = parts.experts[part]
    added.share[job] = parts.shares[part]
    added.bytes[job] = int(size)
    if what == EXPERT:
        added.tokens[job] = loads[parts.experts[part]]
    return job


@outlined
def let_wait(jobs, added, job, before):
    """A job waits for another that was added before it; -1: for none."""
    if before < 0:
        return
    place = jobs.counts[1]
    jobs.counts[1] = place + 1
    jobs.after[place] = job
    jobs.next_after[place] = -1
    if added.last_after[before] < 0:
        jobs.first_after[before] = place
    else:
        jobs.next_after[added.last_after[before]] = place
    added.last_after[before] = place
    added.given_waits[job] += 1


@outlined
def add_vectors(jobs, added, rules, resource, what, kind):
    """Activations to the host, or results to the GPU."""
    job = add_job(jobs, added, resource, what, rules.vectors_ns)
    added.bytes[job] = rules.vector_bytes
    jobs.kind[job] = kind
    jobs.per_ns[job] = 1.0
    return job


@inlined
def let_read(jobs, added, job, ns, size, share, way):
    """A job that takes so long without it transfers a share of an expert's weights meanwhile."""
    jobs.kind[job] = int(way[_KIND])
    jobs.per_ns[job] = share / ns
    added.alone_ns[job] = max(ns, share * way[_READ_NS])
    added.read_limit_gbps[job] = size / ns


@inlined
def add_copy(jobs, added, rules, loads, parts, part, way, begun, last, copies):
    """The copy of an expert to the GPU: copies go ahead as far as engines and buffers reach."""
    costs = parts.costs[parts.rows[part]]
    ns, size = costs[_PCIE_NS], costs[_BYTES]
    job = add_part(jobs, added, loads, PCIE_DOWN, COPY, ns, parts, part, size)
    let_read(jobs, added, job, ns, size, costs[_SHARE], way)
    if rules.sequential:
        let_wait(jobs, added, job, last)
    else:
        count, computed = copies.counts[0], copies.counts[1]
        let_wait(jobs, added, job, begun)
        if count >= rules.copy_engines:
            let_wait(jobs, added, job, copies.copies[count - rules.copy_engines])
        if computed >= rules.expert_buffers:
            let_wait(jobs, added, job, copies.computed[computed - rules.expert_buffers])
    copies.copies[copies.counts[0]] = job
    copies.counts[0] += 1
    return job


@inlined
def add_gpu(jobs, added, rules, loads, parts, ways, arrival, begun, copies):
    """Shared experts first, then the others; returns the last to be computed, where they are in order.

    In the order of the list, each expert waits for the one before it. Otherwise experts have turns on the
    GPU: those that hold a buffer, or are on their way, before those that are in its memory.

    One fused call computes the experts that are there, and pays with the first of them. Whatever is
    waited for is a call of its own when it is there. Where it may interrupt the residents, these are
    launched once more after it.

    arrival: of each part, the job that brings it, or `HERE`, or `MISSING`.
    """
    last, count, called = begun, len(parts.experts), False
    copies.counts[:] = 0
    if rules.shared_ns > 0.0:
        job = add_job(jobs, added, GPU, SHARED, rules.shared_ns)
        let_wait(jobs, added, job, begun)
        if rules.listed:
            last = job
        else:
            jobs.turn[job] = 0
    for part in range(count):
        costs = parts.costs[parts.rows[part]]
        brought_by, ns, turn = arrival[part], costs[_NS], part + 1
        if brought_by == HERE:
            turn += count
            if not called:
                ns += rules.call_ns
            called = True
        else:
            ns += rules.call_ns if rules.listed else 2 * rules.call_ns
        if brought_by == MISSING:
            way = ways.costs[ways.rows[part]]
            brought_by = add_copy(jobs, added, rules, loads, parts, part, way, begun, last, copies)
        job = add_part(jobs, added, loads, GPU, EXPERT, ns, parts, part, costs[_BYTES])
        let_wait(jobs, added, job, last)
        let_wait(jobs, added, job, brought_by)
        if arrival[part] == MISSING:
            copies.computed[copies.counts[1]] = job
            copies.counts[1] += 1
        if rules.listed:
            last = job
        else:
            jobs.turn[job] = turn
    return last


@inlined
def add_cpu(jobs, added, rules, loads, parts, ways, sent, after_gpu):
    """One after the other, each reading its weights while it computes; the hand-over to threads first."""
    last = -1
    for part in range(len(parts.experts)):
        if part == 0 and rules.hand_over_ns > 0.0:
            last = add_job(jobs, added, CPU, HAND_OVER, rules.hand_over_ns)
            let_wait(jobs, added, last, sent)
            let_wait(jobs, added, last, after_gpu)
        costs = parts.costs[parts.rows[part]]
        ns, size = costs[_NS], costs[_BYTES]
        job = add_part(jobs, added, loads, CPU, EXPERT, ns, parts, part, size)
        let_read(jobs, added, job, ns, size, costs[_SHARE], ways.costs[ways.rows[part]])
        if last < 0:
            let_wait(jobs, added, job, sent)
            let_wait(jobs, added, job, after_gpu)
        let_wait(jobs, added, job, last)
        last = job
    return last


@inlined
def add_ndp(jobs, added, loads, parts, dimm, sent, after_gpu, after_cpu, last):
    """One after the other on each DIMM; a sharded expert on each of its DIMMs at its turn there.

    Args:
        dimm: of each expert, the first that has its weights.
        last: becomes the last job of each DIMM.
    """
    last[:] = -1
    for part in range(len(parts.experts)):
        costs, first = parts.costs[parts.rows[part]], dimm[parts.experts[part]]
        for unit in range(first, first + int(costs[_DIMMS])):
            column = _FIRST if last[unit] < 0 else _BEHIND
            ns = costs[column]
            job = add_part(jobs, added, loads, NDP, EXPERT, ns, parts, part, costs[_UNIT_BYTES])
            jobs.server[job] = FIRST_NDP + unit
            jobs.dimm[job] = unit
            jobs.bus_share[job] = costs[column + 1]
            jobs.pause_share[job] = costs[column + 2]
            jobs.between[job] = costs[_BETWEEN]
            jobs.table[job] = int(costs[_TABLE])
            if last[unit] < 0:
                let_wait(jobs, added, job, sent)
                let_wait(jobs, added, job, after_gpu)
                let_wait(jobs, added, job, after_cpu)
            let_wait(jobs, added, job, last[unit])
            last[unit] = job


@kernel
def add_layer(jobs, added, rules, loads, gpu, copied, arrival, copies, cpu, read, ndp, dimm, last):
    """Add the jobs of a layer.

    Args:
        loads: tokens by expert.
        gpu, cpu, ndp: `EngineParts`.
        copied: `Reads` of the parts that the layer copies to the GPU.
        arrival: see `add_gpu`.
        copies: `Copies` with room for all parts.
        read: `Reads` of the parts on the CPU.
        dimm: of each expert, the first that has its weights.
        last: room for a job of each DIMM.
    """
    begun = -1
    if rules.planning_ns > 0.0:
        begun = add_job(jobs, added, CPU, PLANNING, rules.planning_ns)
    sent = begun
    if rules.vector_bytes > 0:
        sent = add_vectors(jobs, added, rules, PCIE_UP, ACTIVATIONS, rules.kind_up)
        let_wait(jobs, added, sent, begun)
    last_gpu = add_gpu(jobs, added, rules, loads, gpu, copied, arrival, begun, copies)
    after_gpu = last_gpu if rules.sequential else -1
    last_cpu = add_cpu(jobs, added, rules, loads, cpu, read, sent, after_gpu)
    after_cpu = last_cpu if rules.sequential else -1
    add_ndp(jobs, added, loads, ndp, dimm, sent, after_gpu, after_cpu, last)
    if rules.vector_bytes > 0:
        results = add_vectors(jobs, added, rules, PCIE_DOWN, RESULTS, rules.kind_down)
        let_wait(jobs, added, results, last_cpu)
        for unit in range(len(last)):
            let_wait(jobs, added, results, last[unit])
