"""Speeds of all jobs between two events: shares of resources, and losses beside other traffic.

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


_NOTHING_GBPS = 1e-6
_NOTHING_MORE = 1e-9
_SATURATED = 1.0 - 1e-9
_LEAST_SPEED = 0.01  # losses are measured one by one, and may add up to more


@inlined
def of_tokens(values, row, between):
    """A value between the rows of a table."""
    return values[row] if between == 0.0 else values[row] + between * (values[row + 1] - values[row])


@inlined
def of_rate(table, row, between, column, part):
    """A value between the rows of a table, and so far from a column to the next."""
    low = table[row, column] + part * (table[row, column + 1] - table[row, column])
    if between == 0.0:
        return low
    high = table[row + 1, column] + part * (table[row + 1, column + 1] - table[row + 1, column])
    return low + between * (high - low)


@outlined
def interpolated(table, rates, row, between, rate):
    """A value between the rows and the columns of a table; beyond its last column, that of the last."""
    column = 0
    while column < len(rates) - 2 and rate > rates[column + 1]:
        column += 1
    if len(rates) == 1:
        return table[row, 0]
    part = min((rate - rates[column]) / (rates[column + 1] - rates[column]), 1.0)
    return of_rate(table, row, between, column, part)


@inlined
def place_of(streams, count):
    """A fractional index into `SlowdownTable.streams`: 1.25 is a quarter of the way from entry 1 to 2."""
    if count <= 1.0:
        return 0.0
    table, last = 0, len(streams) - 1
    while table < last and count > streams[table + 1]:
        table += 1
    if table == last:
        return float(last)
    return table + (count - streams[table]) / (streams[table + 1] - streams[table])


@inlined
def note_streams(jobs, kinds, slowdown, work):
    """How many streams the host has on each channel."""
    streams, channel, read_ns, first = work.streams, kinds.channel, kinds.read_ns, work.counts[5]
    for k in range(first, len(streams)):
        streams[k] = 0.0
    for place in range(work.counts[1]):
        kind = jobs.kind[work.moving[place]]
        over = kinds.stream_dimms[kind]
        if over > 0.0:
            for dimm in range(len(channel)):
                if read_ns[kind, dimm] > 0.0:
                    streams[channel[dimm]] += 1.0 / over
    for k in range(first, len(streams)):
        if streams[k] > 0.0:
            work.many[k] = place_of(slowdown.streams, streams[k])


@inlined
def note_reading(jobs, kinds, slowdown, work):
    """The share of channels that NDP jobs leave to host reads, and the slowdown of each DIMM."""
    note_streams(jobs, kinds, slowdown, work)
    streams, bus_left, pace_left, unit = work.streams, work.bus_left, work.pace_left, work.unit
    many, longer, channel, host_speed = work.many, work.longer, kinds.channel, slowdown.host_speed
    for k in range(work.counts[5], len(streams)):
        bus_left[k], pace_left[k] = 1.0, 1.0
    for dimm in range(len(unit)):
        job, k = unit[dimm], channel[dimm]
        if job >= 0 and streams[k] > 0.0:
            bus_left[k] -= jobs.bus_share[job]
            pace_left[k] -= jobs.pause_share[job]
    for dimm in range(len(unit)):
        job, k = unit[dimm], channel[dimm]
        if streams[k] > 0.0:
            speed = max(bus_left[k], _LEAST_SPEED)
            if job >= 0:
                row, between, first = jobs.table[job], jobs.between[job], int(many[k])
                of_host = of_tokens(host_speed[first], row, between)
                if many[k] - first > _NOTHING_MORE:
                    more = of_tokens(host_speed[first + 1], row, between)
                    of_host += (many[k] - first) * (more - of_host)
                speed *= of_host
            longer[dimm] = 1.0 / speed


@inlined
def note_uses(jobs, kinds, slowdown, work):
    """The use of resources by each transfer under way at full speed, beside the NDP units' current load."""
    note_reading(jobs, kinds, slowdown, work)
    for place in range(work.counts[1]):
        job = work.moving[place]
        kind, per_ns, most = jobs.kind[job], jobs.per_ns[job], 1.0
        for k in range(work.use.shape[1]):
            work.use[job, k] = kinds.shared_ns[kind, k] * per_ns
        if kinds.stream_dimms[kind] > 0.0:
            use, channel, longer, pace_left = work.use, kinds.channel, work.longer, work.pace_left
            for dimm in range(len(channel)):
                ns = kinds.read_ns[kind, dimm]
                if ns > 0.0:
                    use[job, channel[dimm]] += ns * per_ns * longer[dimm]
                    most = min(most, pace_left[channel[dimm]])
        work.most[job] = max(most, _LEAST_SPEED)
    note_in_use(work)


@inlined
def note_in_use(work):
    """List the resources that any transfer uses: they are few of all."""
    work.counts[3] = 0
    for k in range(work.use.shape[1]):
        for place in range(work.counts[1]):
            if work.use[work.moving[place], k] > 0.0:
                work.in_use[work.counts[3]] = k
                work.counts[3] += 1
                break


@inlined
def share(work, count):
    """Share all resources among the first `count` transfers."""
    in_use = work.in_use[: work.counts[3]]
    share_resources(work.use, work.limit, work.level, in_use, work.demand, work.speed, work.moving, count)


@inlined
def left_by_foreground(jobs, work, k):
    """The part of what the background wants of a resource that the foreground leaves it, at most 1."""
    left, wanted = 1.0, 0.0
    for place in range(work.counts[1]):
        job = work.moving[place]
        if jobs.background[job] == 0:
            left -= work.use[job, k] * work.speed[job]
        else:
            wanted += work.use[job, k]
    left = max(left, 0.0)
    return 1.0 if wanted <= left else left / wanted


@inlined
def note_allowed(work, prioritised):
    """Note as `demand` what prioritised resources let transfers do: a limit, or the largest share of one."""
    for place in range(work.counts[1]):
        work.demand[work.moving[place]] = work.limit[work.moving[place]]
    for k in range(prioritised):
        total, most = 0.0, 0.0
        for place in range(work.counts[1]):
            share_of_k = work.use[work.moving[place], k] * work.speed[work.moving[place]]
            total += share_of_k
            most = max(most, share_of_k)
        for place in range(work.counts[1]):
            job = work.moving[place]
            if total >= _SATURATED and work.use[job, k] * work.demand[job] > most:
                work.demand[job] = most / work.use[job, k]


@inlined
def share_with_pauses(work, prioritised):
    """Share all resources among all transfers; a read is no faster than pauses of its channels leave it."""
    share(work, work.counts[1])
    note_allowed(work, prioritised)
    for k in range(work.counts[5], len(work.used)):
        work.used[k] = 0.0
        if work.streams[k] > 0.0:
            for place in range(work.counts[1]):
                work.used[k] += work.use[work.moving[place], k] * work.speed[work.moving[place]]
    for place in range(work.counts[1]):
        job = work.moving[place]
        work.speed[job] = min(work.speed[job], work.most[job] * work.demand[job])


@outlined
def find_transfer_speeds(jobs, kinds, slowdown, work, prioritised):
    """The speed of every transfer. Of the first `prioritised` resources, the foreground has what it wants."""
    note_uses(jobs, kinds, slowdown, work)
    count, behind = work.counts[1], 0
    for place in range(count):
        background = jobs.background[work.moving[place]]
        behind += background
        work.limit[work.moving[place]] = 1.0 - background
    if behind > 0:
        share(work, count)  # as if the foreground were alone
        for place in range(count):
            work.limit[work.moving[place]] = 1.0
        for k in range(prioritised):
            part = left_by_foreground(jobs, work, k)
            for place in range(count):
                job = work.moving[place]
                if jobs.background[job] == 1 and work.use[job, k] > 0.0:
                    work.limit[job] = min(work.limit[job], part)
    share_with_pauses(work, prioritised)


@inlined
def crowded(kinds, work, table, row, between, dimm):
    """The share of a speed that is left with host, relayout and NDP job on one DIMM; see `SlowdownTable`."""
    channel = kinds.channel[dimm]
    left = of_rate(table, row, between, work.column[channel], work.part[channel])
    return 1.0 - work.host_weight[dimm] / work.channel_weight[channel] * (1.0 - left)


@inlined
def ndp_speed(jobs, kinds, slowdown, work, dimm, job):
    """The speed of an NDP job beside what the host reads and relayouts move; see `SlowdownTable`."""
    row, between, speed = jobs.table[job], jobs.between[job], 1.0
    if work.host_weight[dimm] > 0.0:
        many = work.many[kinds.channel[dimm]]
        first = int(many)
        speed = crowded(kinds, work, slowdown.ndp_speed[first], row, between, dimm)
        if many - first > _NOTHING_MORE:
            more = crowded(kinds, work, slowdown.ndp_speed[first + 1], row, between, dimm)
            speed += (many - first) * (more - speed)
    left = 1.0
    for way in range(2):
        gbps = work.moved_gbps[dimm, way]
        if gbps > _NOTHING_GBPS:
            table = slowdown.ndp_speed_moving[way]
            left -= 1.0 - interpolated(table, slowdown.moved_gbps, row, between, gbps)
            if work.host_weight[dimm] > 0.0:
                speed *= crowded(kinds, work, slowdown.ndp_crowded[way], row, between, dimm)
    return max(speed * left, _LEAST_SPEED)


@inlined
def add_read(kinds, slowdown, work, kind, per_ns):
    """Add the host's reads of each DIMM, and the weights of its streams."""
    over, channel, read_bytes, used = kinds.stream_dimms[kind], kinds.channel, kinds.read_bytes, work.used
    channel_gbps, host_weight = work.channel_gbps, work.host_weight
    channel_weight, channel_squares = work.channel_weight, work.channel_squares
    waiting_gbps = slowdown.waiting_gbps[0] / over
    for dimm in range(len(channel)):
        gbps = read_bytes[kind, dimm] * per_ns
        if gbps > 0.0:
            k = channel[dimm]
            weight = min(gbps, waiting_gbps) if used[k] >= _SATURATED else gbps
            channel_gbps[k] += gbps
            host_weight[dimm] += weight
            channel_weight[k] += weight
            channel_squares[k] += weight * weight * over


@inlined
def note_traffic(jobs, kinds, slowdown, work):
    """Note the traffic of host reads and relayouts, at the speeds that transfers have."""
    for k in range(work.counts[5], len(work.channel_gbps)):
        work.channel_gbps[k] = 0.0
        work.channel_weight[k] = 0.0
        work.channel_squares[k] = 0.0
    for dimm in range(len(work.unit)):
        work.host_weight[dimm] = 0.0
        work.moved_gbps[dimm, 0] = 0.0
        work.moved_gbps[dimm, 1] = 0.0
    for place in range(work.counts[1]):
        job = work.moving[place]
        kind, per_ns = jobs.kind[job], jobs.per_ns[job] * work.speed[job]
        if kinds.stream_dimms[kind] > 0.0:
            add_read(kinds, slowdown, work, kind, per_ns)
        else:
            for dimm in range(len(work.unit)):
                for way in range(2):
                    work.moved_gbps[dimm, way] += kinds.moved_bytes[kind, dimm, way] * per_ns
    note_places(slowdown, work)


@inlined
def note_places(slowdown, work):
    """Note the place in the tables of the host's reads on each channel."""
    rates = slowdown.host_gbps
    for channel in range(work.counts[5], len(work.channel_gbps)):
        gbps = work.channel_gbps[channel]
        if gbps > 0.0:
            column = 0
            while column < len(rates) - 2 and gbps > rates[column + 1]:
                column += 1
            work.column[channel] = column
            work.part[channel] = min((gbps - rates[column]) / (rates[column + 1] - rates[column]), 1.0)
            equal = work.channel_weight[channel] ** 2 / work.channel_squares[channel]
            work.many[channel] = place_of(slowdown.streams, equal)


@inlined
def limit_relayouts(jobs, kinds, slowdown, work):
    """Relayouts lose speed on DIMMs whose unit computes, more where the host reads. Whether there are any."""
    found = False
    for place in range(work.counts[1]):
        job = work.moving[place]
        kind = jobs.kind[job]
        for dimm in range(len(work.unit)):
            ndp = work.unit[dimm]
            if ndp < 0:
                continue
            row, between = jobs.table[ndp], jobs.between[ndp]
            for way in range(2):
                gbps = kinds.moved_bytes[kind, dimm, way] * jobs.per_ns[job]
                if gbps > 0.0:
                    left = min(of_tokens(slowdown.most_moved_gbps[way], row, between) / gbps, 1.0)
                    if work.host_weight[dimm] > 0.0:
                        left *= crowded(kinds, work, slowdown.moving_crowded[way], row, between, dimm)
                    work.limit[job] = min(work.limit[job], max(left, _LEAST_SPEED))
                    found = True
    return found


@inlined
def computes_anywhere(work):
    """Whether an NDP unit is at work, so that it matters what transfers do to DIMMs."""
    for dimm in range(len(work.unit)):
        if work.unit[dimm] >= 0:
            return True
    return False


@outlined
def find_speeds(jobs, kinds, slowdown, work, prioritised):
    """The speed of every job under way."""
    if work.counts[1] == 0:
        for dimm in range(len(work.unit)):
            if work.unit[dimm] >= 0:
                work.speed[work.unit[dimm]] = 1.0
        return
    find_transfer_speeds(jobs, kinds, slowdown, work, prioritised)
    if not computes_anywhere(work):
        return
    note_traffic(jobs, kinds, slowdown, work)
    if limit_relayouts(jobs, kinds, slowdown, work):
        share_with_pauses(work, prioritised)
        note_traffic(jobs, kinds, slowdown, work)
    for dimm in range(len(work.unit)):
        if work.unit[dimm] >= 0:
            work.speed[work.unit[dimm]] = ndp_speed(jobs, kinds, slowdown, work, dimm, work.unit[dimm])
