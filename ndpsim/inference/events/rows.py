"""Rows of costs of the parts of experts in a layer, from tables that grow over a run."""

from __future__ import annotations

from ndpsim.base.jit import inlined, kernel

#: `arrival` of an expert in the GPU's memory, and of one that is copied by the layer.
HERE, MISSING = -1, -2

#: A row of costs that no number tells.
UNKNOWN = -1

#: Tables of costs: of parts on GPU, CPU and NDP units, and of the host's reads of whole experts that the GPU
#: has copied, and that the CPU computes.
OF_GPU, OF_CPU, OF_NDP, OF_COPIES, OF_CPU_READS = range(5)

#: Above any number of DIMMs of an expert: tokens or a DIMM, times this, and DIMMs are one number.
RADIX = 1 << 10


@inlined
def find_row(known, number, share):
    """The row of a whole expert's number, where it is known."""
    return known[number] if share == 1.0 and number < len(known) else UNKNOWN


@inlined
def location_number(dimm, shards, expert):
    """The number of an expert's location."""
    return (int(dimm[expert]) + 1) * RADIX + shards[expert]


@inlined
def find_rows_on_gpu(known, loads, dimm, shards, resident, coming, experts, shares, rows, arrival):
    """See `find_rows`."""
    all_known = True
    for part in range(len(experts)):
        expert = experts[part]
        rows[OF_GPU, part] = find_row(known[OF_GPU], loads[expert], shares[part])
        all_known = all_known and rows[OF_GPU, part] != UNKNOWN
        arrival[part] = HERE if resident[expert] else coming[expert]
        if arrival[part] == MISSING:
            row = find_row(known[OF_COPIES], location_number(dimm, shards, expert), 1.0)
            rows[OF_COPIES, part] = row
            all_known = all_known and row != UNKNOWN
    return all_known


@inlined
def tokens_with(ids, cpu, ndp, chosen):
    """How many tokens have an expert among those of CPU or NDP units.

    Args:
        ids: of the experts of each token, [token, k].
        chosen: [expert], to work with.
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
def find_rows(
    known, loads, dimm, shards, resident, coming, ids,
    gpu, gpu_shares, cpu, cpu_shares, ndp, ndp_shares, rows, arrival, chosen,
):  # fmt: skip
    """Find the rows of costs of whole experts, and what else the jobs of a layer need.

    Args:
        known: of each table, the row of each number, or `UNKNOWN`; larger numbers are not known. Numbers are
            tokens on GPU and CPU; tokens and DIMMs on NDP units; locations of reads.
        loads, dimm, shards, resident: of each expert, as in `LayerView`.
        coming: of each expert, the job that brings it to the GPU, or `MISSING`.
        ids: of the experts of each token, [token, k].
        gpu, cpu, ndp: experts of each engine, [part]; and the share of each.
        rows: [table, part]: are set; `UNKNOWN` also where the share is not 1.
        arrival: [part on the GPU]: is set, see `add_gpu`.
        chosen: [expert], to work with.

    Returns:
        Whether all rows are known, the most jobs that parts have, and how many tokens have an expert on
        another engine than the GPU.
    """
    all_known = find_rows_on_gpu(known, loads, dimm, shards, resident, coming, gpu, gpu_shares, rows, arrival)
    for part in range(len(cpu)):
        expert = cpu[part]
        rows[OF_CPU, part] = find_row(known[OF_CPU], loads[expert], cpu_shares[part])
        rows[OF_CPU_READS, part] = find_row(known[OF_CPU_READS], location_number(dimm, shards, expert), 1.0)
        all_known = all_known and rows[OF_CPU, part] != UNKNOWN and rows[OF_CPU_READS, part] != UNKNOWN
    most = 2 * len(gpu) + len(cpu)
    for part in range(len(ndp)):
        expert = ndp[part]
        rows[OF_NDP, part] = find_row(known[OF_NDP], loads[expert] * RADIX + shards[expert], ndp_shares[part])
        all_known = all_known and rows[OF_NDP, part] != UNKNOWN
        most += shards[expert]
    return all_known, most, tokens_with(ids, cpu, ndp, chosen)
