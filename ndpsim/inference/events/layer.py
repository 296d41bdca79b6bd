"""The jobs of a layer's experts: what each engine does, and what it waits for."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ndpsim.base.jit import by_reference, inlined, kernel, outlined
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

#: The cost of a part of an expert on an engine. On an NDP unit, the first job and one behind another have
#: different times and shares.
PartCost = np.dtype(
    [
        ("tokens", np.int64),
        ("bytes", np.int64),  # of weights; on each DIMM
        ("ns", np.float64),  # of computing it
        ("of_full", np.float64),  # GPU, CPU: the share of the full weights' bytes
        ("pcie_ns", np.float64),  # GPU: its weights over PCIe
        ("bus_share", np.float64),  # NDP: see `Jobs`, as the rest
        ("pause_share", np.float64),
        ("ns_behind", np.float64),
        ("bus_share_behind", np.float64),
        ("pause_share_behind", np.float64),
        ("between", np.float64),
        ("table", np.int64),
        ("dimms", np.int64),
    ]
)

#: The host's read of a whole expert, for the GPU or the CPU: the kind of the transfer, and its time.
ReadCost = np.dtype([("kind", np.int64), ("ns", np.float64)])


@by_reference
class CostTables(NamedTuple):
    """Costs by rows: `PartCost` of each engine, and `ReadCost` of copies to the GPU, and for the CPU."""

    gpu: NDArray[np.void]
    cpu: NDArray[np.void]
    ndp: NDArray[np.void]
    copies: NDArray[np.void]
    cpu_reads: NDArray[np.void]


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
def add_part(jobs, added, resource, what, work_ns, parts, part, cost):
    """Add a job of an expert."""
    job = add_job(jobs, added, resource, what, work_ns)
    added.expert[job] = parts.experts[part]
    added.share[job] = parts.shares[part]
    added.bytes[job] = cost["bytes"]
    if what == EXPERT:
        added.tokens[job] = cost["tokens"]
    return job


@outlined
def let_wait(jobs, added, job, before):
    """A job waits for another that was added before it; -1: for none."""
    if before < 0:
        return
    dependency = jobs.counts[1]
    jobs.counts[1] = dependency + 1
    jobs.after[dependency] = job
    jobs.next_after[dependency] = -1
    if added.last_after[before] < 0:
        jobs.first_after[before] = dependency
    else:
        jobs.next_after[added.last_after[before]] = dependency
    added.last_after[before] = dependency
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
def let_read(jobs, added, job, ns, cost, read):
    """A job that takes so long without it transfers a share of an expert's weights meanwhile."""
    jobs.kind[job] = read["kind"]
    jobs.per_ns[job] = cost["of_full"] / ns
    added.alone_ns[job] = max(ns, cost["of_full"] * read["ns"])
    added.read_limit_gbps[job] = cost["bytes"] / ns


@inlined
def add_copy(jobs, added, rules, costs, gpu, part, after, room):
    """The copy of an expert to the GPU: copies go ahead as far as engines and buffers reach."""
    cost = costs.gpu[gpu.rows[part]]
    ns = cost["pcie_ns"]
    job = add_part(jobs, added, PCIE_DOWN, COPY, ns, gpu, part, cost)
    let_read(jobs, added, job, ns, cost, costs.copies[gpu.reads[part]])
    let_wait(jobs, added, job, after)
    if not rules.sequential:
        count, computed = room.counts[0], room.counts[1]
        if count >= rules.copy_engines:
            let_wait(jobs, added, job, room.copies[count - rules.copy_engines])
        if computed >= rules.expert_buffers:
            let_wait(jobs, added, job, room.computed[computed - rules.expert_buffers])
    room.copies[room.counts[0]] = job
    room.counts[0] += 1
    return job


@inlined
def add_gpu(jobs, added, rules, costs, gpu, begun, room):
    """Shared experts first, then the others; returns the last to be computed, where they are in order.

    In the order of the list, each expert waits for the one before it. Otherwise experts have turns on the
    GPU: those that hold a buffer, or are on their way, before those that are in its memory.

    One fused call computes the experts that are there, and pays with the first of them. Whatever is
    waited for is a call of its own when it is there. Where it may interrupt the residents, these are
    launched once more after it.
    """
    last, count, called = begun, len(gpu.experts), False
    room.counts[:] = 0
    if rules.shared_ns > 0.0:
        job = add_job(jobs, added, GPU, SHARED, rules.shared_ns)
        let_wait(jobs, added, job, begun)
        if rules.listed:
            last = job
        else:
            jobs.turn[job] = 0
    for part in range(count):
        cost = costs.gpu[gpu.rows[part]]
        brought_by, ns, turn = room.arrival[part], cost["ns"], part + 1
        if brought_by == HERE:
            turn += count
            if not called:
                ns += rules.call_ns
            called = True
        else:
            ns += rules.call_ns if rules.listed else 2 * rules.call_ns
        if brought_by == MISSING:
            after = last if rules.sequential else begun
            brought_by = add_copy(jobs, added, rules, costs, gpu, part, after, room)
        job = add_part(jobs, added, GPU, EXPERT, ns, gpu, part, cost)
        let_wait(jobs, added, job, last)
        let_wait(jobs, added, job, brought_by)
        if room.arrival[part] == MISSING:
            room.computed[room.counts[1]] = job
            room.counts[1] += 1
        if rules.listed:
            last = job
        else:
            jobs.turn[job] = turn
    return last


@inlined
def add_cpu(jobs, added, rules, costs, cpu, sent, after_gpu):
    """One after the other, each reading its weights while it computes; the hand-over to threads first."""
    last = -1
    for part in range(len(cpu.experts)):
        if part == 0 and rules.hand_over_ns > 0.0:
            last = add_job(jobs, added, CPU, HAND_OVER, rules.hand_over_ns)
            let_wait(jobs, added, last, sent)
            let_wait(jobs, added, last, after_gpu)
        cost = costs.cpu[cpu.rows[part]]
        ns = cost["ns"]
        job = add_part(jobs, added, CPU, EXPERT, ns, cpu, part, cost)
        let_read(jobs, added, job, ns, cost, costs.cpu_reads[cpu.reads[part]])
        if last < 0:
            let_wait(jobs, added, job, sent)
            let_wait(jobs, added, job, after_gpu)
        let_wait(jobs, added, job, last)
        last = job
    return last


@inlined
def add_ndp(jobs, added, costs, ndp, dimm, before, last):
    """One after the other on each DIMM; a sharded expert on each of its DIMMs at its turn there.

    Args:
        dimm: of each expert, the first that has its weights.
        before: jobs for which the first of each DIMM waits; -1: for none.
        last: becomes the last job of each DIMM.
    """
    last[:] = -1
    for part in range(len(ndp.experts)):
        cost, first = costs.ndp[ndp.rows[part]], dimm[ndp.experts[part]]
        for unit in range(first, first + cost["dimms"]):
            is_first = last[unit] < 0
            ns = cost["ns"] if is_first else cost["ns_behind"]
            job = add_part(jobs, added, NDP, EXPERT, ns, ndp, part, cost)
            jobs.server[job] = FIRST_NDP + unit
            jobs.dimm[job] = unit
            jobs.bus_share[job] = cost["bus_share"] if is_first else cost["bus_share_behind"]
            jobs.pause_share[job] = cost["pause_share"] if is_first else cost["pause_share_behind"]
            jobs.between[job] = cost["between"]
            jobs.table[job] = cost["table"]
            if is_first:
                for other in before:
                    let_wait(jobs, added, job, other)
            let_wait(jobs, added, job, last[unit])
            last[unit] = job


@kernel
def add_layer(jobs, added, rules, costs, layer, engines, room):
    """Add the jobs of a layer, whose rows of costs `find_rows` has found.

    Args:
        costs: `CostTables`.
        layer, engines, room: `LayerExperts`, `Engines` and `Room`.
    """
    begun = -1
    if rules.planning_ns > 0.0:
        begun = add_job(jobs, added, CPU, PLANNING, rules.planning_ns)
    sent = begun
    if rules.vector_bytes > 0:
        sent = add_vectors(jobs, added, rules, PCIE_UP, ACTIVATIONS, rules.kind_up)
        let_wait(jobs, added, sent, begun)
    last_gpu = add_gpu(jobs, added, rules, costs, engines.gpu, begun, room)
    after_gpu = last_gpu if rules.sequential else -1
    last_cpu = add_cpu(jobs, added, rules, costs, engines.cpu, sent, after_gpu)
    before = (sent, after_gpu, last_cpu if rules.sequential else -1)
    add_ndp(jobs, added, costs, engines.ndp, layer.dimm, before, room.last)
    if rules.vector_bytes > 0:
        results = add_vectors(jobs, added, rules, PCIE_DOWN, RESULTS, rules.kind_down)
        let_wait(jobs, added, results, last_cpu)
        for unit in range(len(room.last)):
            let_wait(jobs, added, results, room.last[unit])
