"""The event loop: until nothing of the foreground is left, find speeds, go on to the next end, start what it
sets free.
"""

from __future__ import annotations

import numpy as np

from ndpsim.base.jit import inlined, kernel, outlined
from ndpsim.inference.events.speeds import find_speeds

#: How a run ended: all of the foreground is done, or what is left waits for ever.
DONE, STUCK = 0, 1

_NOTHING_NS = 1e-6  # less than this is left by rounding alone


@inlined
def make_ready(jobs, work, job, cause):
    """A job that waits for no other job starts, or waits for its server."""
    jobs.cause[job] = cause
    if jobs.turn[job] < 0:
        begin(jobs, work, job)
    else:
        work.waiting[work.counts[2]] = job
        work.counts[2] += 1
        server = jobs.server[job]
        work.queued[server] += 1
        if work.queued[server] == 1 and work.holder[server] < 0:
            work.counts[6] += 1


@inlined
def begin(jobs, work, job):
    """A job starts."""
    jobs.start_ns[job] = work.clock_ns[0]
    work.active[work.counts[0]] = job
    work.counts[0] += 1
    if jobs.dimm[job] >= 0:
        work.unit[jobs.dimm[job]] = job
        work.counts[4] = 1
    if jobs.kind[job] >= 0:
        work.moving[work.counts[1]] = job
        work.counts[1] += 1
        work.counts[4] = 1


@outlined
def serve(jobs, work, began_ns):
    """Each server that is free takes, of the jobs that wait for it, the one with the lowest turn."""
    while work.counts[6] > 0:
        chosen = -1
        for place in range(work.counts[2]):
            job = work.waiting[place]
            if work.holder[jobs.server[job]] < 0 and (chosen < 0 or jobs.turn[job] < jobs.turn[chosen]):
                chosen = job
        work.counts[2] = remove(work.waiting, work.counts[2], chosen)
        server, cause = jobs.server[chosen], jobs.cause[chosen]
        ready_ns = jobs.end_ns[cause] if cause >= 0 else began_ns
        if ready_ns < work.clock_ns[0]:
            jobs.cause[chosen] = work.freed_by[server]
        work.holder[server] = chosen
        work.queued[server] -= 1
        work.counts[6] -= 1
        begin(jobs, work, chosen)


@inlined
def remove(places, count, job):
    """Take a job out of a list, which stays in order."""
    found = 0
    for place in range(count):
        if places[place] == job:
            found = 1
        elif found == 1:
            places[place - 1] = places[place]
    return count - 1


@inlined
def finish(jobs, work, job):
    """A job ends, and what waited for it alone starts."""
    jobs.left_ns[job] = 0.0
    jobs.end_ns[job] = work.clock_ns[0]
    work.counts[0] = remove(work.active, work.counts[0], job)
    if jobs.kind[job] >= 0:
        work.counts[1] = remove(work.moving, work.counts[1], job)
        work.counts[4] = 1
    if jobs.dimm[job] >= 0:
        work.unit[jobs.dimm[job]] = -1
        work.counts[4] = 1
    if jobs.turn[job] >= 0:
        server = jobs.server[job]
        work.holder[server], work.freed_by[server] = -1, job
        if work.queued[server] > 0:
            work.counts[6] += 1
    place = jobs.first_after[job]
    while place >= 0:
        successor = jobs.after[place]
        jobs.waits[successor] -= 1
        if jobs.waits[successor] == 0:
            make_ready(jobs, work, successor, job)
        place = jobs.next_after[place]


@inlined
def next_end(jobs, work):
    """How long until the next job ends; infinite where none moves on."""
    least = np.inf
    for place in range(work.counts[0]):
        job = work.active[place]
        if jobs.left_ns[job] <= _NOTHING_NS:
            return 0.0
        if work.speed[job] > 0.0:
            least = min(least, jobs.left_ns[job] / work.speed[job])
    return least


@inlined
def go_on(jobs, work, ns, servers):
    """Let a time pass at the current speeds."""
    work.clock_ns[0] += ns
    for place in range(work.counts[0]):
        job = work.active[place]
        jobs.left_ns[job] -= ns * work.speed[job]
        if jobs.server[job] >= 0:
            work.busy_ns[jobs.server[job]] += ns
    for place in range(work.counts[1]):
        job = work.moving[place]
        jobs.allowed_ns[job] += ns * work.demand[job]
        for k in work.in_use[: work.counts[3]]:
            work.busy_ns[servers + k] += ns * work.speed[job] * work.use[job, k]


@kernel
def run_jobs(jobs, kinds, slowdown, work, prioritised, servers):
    """Run until all jobs of the foreground are done; returns `DONE` or `STUCK`.

    Jobs that have started before, of the background, go on.

    prioritised: the number of shared resources, the first ones, of which the foreground gets what it wants.
    """
    count, began_ns = jobs.counts[0], work.clock_ns[0]
    open_jobs = 0
    work.counts[:] = 0
    work.counts[5] = work.use.shape[1]
    for dimm in range(len(kinds.channel)):
        work.counts[5] = min(work.counts[5], kinds.channel[dimm])
    work.holder[:] = -1
    work.queued[:] = 0
    work.freed_by[:] = -1
    work.unit[:] = -1
    for job in range(count):
        open_jobs += 1 - jobs.background[job]
        work.speed[job] = 1.0
    for job in range(count):
        if jobs.waits[job] == 0:
            started = jobs.start_ns[job]
            make_ready(jobs, work, job, -1)
            if started >= 0.0:
                jobs.start_ns[job] = started
    serve(jobs, work, began_ns)
    while open_jobs > 0:
        if work.counts[0] == 0:
            return STUCK
        if work.counts[4] == 1:
            find_speeds(jobs, kinds, slowdown, work, prioritised)
            work.counts[4] = 0
        ns = next_end(jobs, work)
        if ns == np.inf:
            return STUCK
        go_on(jobs, work, ns, servers)
        place = 0
        while place < work.counts[0]:
            job = work.active[place]
            if jobs.left_ns[job] <= _NOTHING_NS:
                open_jobs -= 1 - jobs.background[job]
                finish(jobs, work, job)
            else:
                place += 1
        serve(jobs, work, began_ns)
    return DONE
