"""The arrays of the event loop, and the critical path of jobs that have ended."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ndpsim.base.jit import by_reference, kernel

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: Exclusive resources; the NDP units of DIMM 0, 1 and so on follow.
GPU, CPU, FIRST_NDP = 0, 1, 2

#: The resources of jobs; NDP units are one. The exclusive ones come first, in the order above.
RESOURCES = (
    "gpu", "cpu", "ndp", "pcie-down", "pcie-up", "links", "none", "banks", "banks-in", "banks-out",
)  # fmt: skip
NDP, PCIE_DOWN, PCIE_UP = 2, 3, 4

#: What jobs are.
WHAT = (
    "expert",
    "copy",
    "shared",
    "activations",
    "results",
    "planning",
    "hand-over",
    "attention",
    "cache",
    "idle",
    "prefetch",
    "fetch",
    "relayout",
    "rebalance",
)
EXPERT, COPY, SHARED, ACTIVATIONS, RESULTS, PLANNING, HAND_OVER = range(7)


@by_reference
class Kinds(NamedTuple):
    """The channels of DIMMs, and amounts that whole transfers use, by kind: a layout that is read, a copy to
    the GPU, a relayout.

    A job with `Jobs.per_ns` p at full speed uses p x these amounts in every ns.
    """

    channel: Ints  # [DIMM]: its channel, among the shared resources
    shared_ns: Floats  # [kind, shared]: ns of the shared resource; those of channels are in `read_ns`
    read_ns: Floats  # [kind, DIMM]: ns of the DIMM's channel for its bytes, with no NDP unit at work
    read_bytes: Floats  # [kind, DIMM]: that the host reads of the DIMM
    moved_bytes: Floats  # [kind, DIMM, 2]: that a relayout reads of the DIMM, and writes to it
    stream_dimms: Floats  # [kind]: DIMMs of a channel that a stream of a host read goes over; 0: none is read


@by_reference
class Jobs(NamedTuple):
    """Jobs with dependencies, in arrays with room for more of both."""

    counts: Ints  # [2]: jobs, and dependencies
    work_ns: Floats  # [job]: alone
    left_ns: Floats  # [job]
    per_ns: Floats  # [job]: share of the whole transfer of its kind in a ns at full speed
    kind: Ints  # [job]: of transfer; -1: none
    server: Ints  # [job]: the exclusive resource whose time it takes; -1: none
    dimm: Ints  # [job]: whose NDP unit it runs on; -1: none
    table: Ints  # [job]: NDP: the row of `SlowdownTable`,
    between: Floats  # [job]: and the fraction of the way to the next row
    bus_share: Floats  # [job]: NDP: share of its time in which its vectors have the channel,
    pause_share: Floats  # [job]: and the share that paced reads of the channel lose for good
    background: Ints  # [job]: 1: yields to others where a resource knows priorities, and is not waited for
    waits: Ints  # [job]: the number of others that it waits for
    first_after: Ints  # [job]: the first of its dependencies: of those that wait for it; -1: there is none
    next_after: Ints  # [dependency]: the next one of the same job; -1: it is the last
    after: Ints  # [dependency]: the job that waits
    start_ns: Floats  # [job]: when it started; negative: not yet
    end_ns: Floats  # [job]: negative: not yet
    cause: Ints  # [job]: whose end started it; -1: the beginning
    allowed_ns: Floats  # [job]: work possible with the prioritised resources received, alone
    turn: Ints  # [job]: waits for its server to be free, where the lowest turn is first; -1: starts at once


@by_reference
class Added(NamedTuple):
    """Jobs as they were added: what `run_jobs` changes in `Jobs`, and what they are, for records."""

    given_left_ns: Floats  # [job]: `Jobs.left_ns` before the loop
    given_start_ns: Floats  # [job]: `Jobs.start_ns` before the loop
    given_waits: Ints  # [job]: `Jobs.waits` before the loop
    last_after: Ints  # [job]: the last of its dependencies; -1: there is none
    resource: Ints  # [job]: of `RESOURCES`
    what: Ints  # [job]: of `WHAT`
    expert: Ints  # [job]: -1: none
    share: Floats  # [job]: of the expert
    tokens: Ints  # [job]
    bytes: Ints  # [job]
    alone_ns: Floats  # [job]
    read_limit_gbps: Floats  # [job]: see `JobRecord`


@by_reference
class Work(NamedTuple):
    """Working arrays and counters of the loop."""

    clock_ns: Floats  # [1]
    busy_ns: Floats  # [server], then [shared]: time that it was used, in full
    active: Ints  # [job]: those under way
    moving: Ints  # [job]: those of them with a transfer
    speed: Floats  # [job]
    limit: Floats  # [job]: of its speed
    use: Floats  # [job, shared]
    in_use: Ints  # [shared]: those that any transfer uses
    level: Floats  # [shared]: the largest share that anyone gets of a saturated resource; infinite: it is not
    demand: Floats  # [job]
    most: Floats  # [job]: of a read, what pauses of its channels leave of the speed that it may have
    unit: Ints  # [DIMM]: the NDP job under way; -1: none
    streams: Floats  # [shared]: of the host on a channel
    longer: Floats  # [DIMM]: than alone, that the host reads it
    used: Floats  # [shared]: by transfers that are never paused
    bus_left: Floats  # [shared]: of a channel, what vectors of NDP jobs leave
    pace_left: Floats  # [shared]: and what their pauses leave of the pace of a read
    channel_gbps: Floats  # [shared]: of the host
    host_weight: Floats  # [DIMM]: of the host's streams
    channel_weight: Floats  # [shared]
    channel_squares: Floats  # [shared]: sum of the squares of the weights of its streams
    column: Ints  # [shared]: of the tables of `SlowdownTable`, for what the host reads on a channel,
    part: Floats  # [shared]: the fraction of the way to the next column,
    many: Floats  # [shared]: fractional index into `SlowdownTable.streams`: 1.25 is between 1 and 2
    moved_gbps: Floats  # [DIMM, 2]
    #: [7]: jobs active, those that transfer, those that wait for their server; `in_use`; 1: speeds may have
    #: changed; the first channel, behind which all shared resources are channels; free servers with jobs that
    #: wait
    counts: Ints
    waiting: Ints  # [job]: those that wait for their server
    queued: Ints  # [server]: how many wait for it
    holder: Ints  # [server]: the job with a turn that is on it; -1: none
    freed_by: Ints  # [server]: the job with a turn that was on it last; -1: none


@kernel
def find_path(jobs, added, began_ns, path, resources, times_ns):
    """Find jobs of the foreground, each of which started when the one before it ended, up to the last end.

    Args:
        began_ns: only time from then on counts.
        path: becomes the jobs, in order; room for all.
        resources: become the resources on the path, in the order in which they come on it.
        times_ns: becomes the time of each resource of `RESOURCES` on the path.

    Returns:
        The number of jobs on the path, and of resources.
    """
    job, count, used = -1, 0, 0
    for other in range(jobs.counts[0]):
        if jobs.background[other] == 0 and (job < 0 or jobs.end_ns[other] > jobs.end_ns[job]):
            job = other
    while job >= 0:
        path[count] = job
        count += 1
        job = jobs.cause[job]
    for place in range(count // 2):
        path[place], path[count - 1 - place] = path[count - 1 - place], path[place]
    times_ns[:] = -1.0
    for place in range(count):
        job = path[place]
        resource, ns = added.resource[job], jobs.end_ns[job] - max(jobs.start_ns[job], began_ns)
        if times_ns[resource] < 0.0:
            resources[used] = resource
            used += 1
            times_ns[resource] = 0.0
        times_ns[resource] += ns
    return count, used
