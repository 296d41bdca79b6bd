"""Division of shared resources among jobs: bottleneck max fairness.

Every job runs at its own limit, or has the largest share of a resource that is saturated: on each
bottleneck the jobs that it holds back have equal shares of it, as reads have that a memory controller takes
in turn. (Max-min fairness of the speeds themselves is another rule: beside a read of one channel it would
give a read that is striped over eight of them 8/9 of everything, instead of half of the channel they share.)

Each resource has a level, the largest share that anyone gets of it, and a job the least of what levels leave
it. Levels are set in turn, each to what saturates its resource when others leave as much as they do, until
none changes.
"""

from __future__ import annotations

import numpy as np

from ndpsim.base.jit import inlined, outlined

_ROUNDS = 200
_SAME = 1e-12


@inlined
def speed_without(use, limit, level, in_use, job, without):
    """The speed that all resources but one leave a job."""
    speed = limit
    for k in in_use:
        if k != without and use[job, k] * speed > level[k]:
            speed = level[k] / use[job, k]
    return speed


@inlined
def level_of(demand, jobs, count):
    """The level to which demands are cut so that their sum is 1; infinite if the sum is at most 1."""
    total = 0.0
    for place in range(count):
        total += demand[jobs[place]]
    if total <= 1.0:
        return np.inf
    level = 0.0
    left, holders = 1.0, count
    changed = True
    while changed and holders > 0:
        changed = False
        level = left / holders
        left, holders = 1.0, 0
        for place in range(count):
            if demand[jobs[place]] > level:
                holders += 1
            else:
                left -= demand[jobs[place]]
        changed = holders > 0 and left / holders > level * (1.0 + _SAME)
    return level


@outlined
def share_resources(use, limit, level, in_use, demand, speed, jobs, count):
    """Set the speed of the jobs in the first `count` places of `jobs`, within their limits.

    in_use: the resources that any of them uses.
    """
    for k in in_use:
        level[k] = np.inf
    for place in range(count):
        speed[jobs[place]] = limit[jobs[place]]
    for _ in range(_ROUNDS):
        changed = False
        for k in in_use:
            total = 0.0
            for place in range(count):
                total += use[jobs[place], k] * speed[jobs[place]]
            if total <= 1.0 + _SAME and level[k] == np.inf:
                continue
            for place in range(count):
                job = jobs[place]
                demand[job] = use[job, k] * speed_without(use, limit[job], level, in_use, job, k)
            new = level_of(demand, jobs, count)
            if new == level[k] or (new < np.inf and abs(new - level[k]) <= _SAME * new):
                continue
            level[k] = new
            changed = True
            for place in range(count):
                speed[jobs[place]] = speed_without(use, limit[jobs[place]], level, in_use, jobs[place], -1)
        if not changed:
            break
    # Rounding, or rounds that ran out, must not leave more than there is.
    for k in in_use:
        total = 0.0
        for place in range(count):
            total += use[jobs[place], k] * speed[jobs[place]]
        if total > 1.0:
            for place in range(count):
                if use[jobs[place], k] > 0.0:
                    speed[jobs[place]] /= total
