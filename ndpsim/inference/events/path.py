"""The critical path of jobs that have ended."""

from __future__ import annotations

from ndpsim.base.jit import kernel


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
