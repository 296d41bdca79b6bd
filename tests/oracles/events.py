"""The event loop and the sharing of resources once more, in plain Python, as their definition reads."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ndpsim.inference.events.state import Jobs, Kinds
from ndpsim.simulate.results.slowdown import SlowdownTable

Floats = NDArray[np.float64]

_ROUNDS = 200
_SAME = 1e-12
_NOTHING_NS = 1e-6
_NOTHING_GBPS = 1e-6
_LEAST_SPEED = 0.01


def _level(demands: Iterable[float]) -> float:
    """The cut at which demands add up to 1; infinite where they are no more than that."""
    ascending = sorted(demands)
    if sum(ascending) <= 1:
        return math.inf
    left = 1.0
    for place, demand in enumerate(ascending):
        level = left / (len(ascending) - place)
        if demand >= level:
            return level
        left -= demand
    return ascending[-1]


def shared_speeds(use: Sequence[Sequence[float]], limits: Sequence[float]) -> list[float]:
    """The speed of each job; `use`: of each job, its share of each resource at full speed."""
    levels = [math.inf] * (len(use[0]) if use else 0)

    def speed(job: int, without: int = -1) -> float:
        least = limits[job]
        for k, level in enumerate(levels):
            if k != without and use[job][k] * least > level:
                least = level / use[job][k]
        return least

    for _ in range(_ROUNDS):
        before = list(levels)
        for k in range(len(levels)):
            levels[k] = _level(use[job][k] * speed(job, k) for job in range(len(use)))
        pairs = zip(levels, before, strict=True)
        if all(one == other or abs(one - other) <= _SAME * one for one, other in pairs):
            break
    return [speed(job) for job in range(len(use))]


def ensure_fair(
    use: Sequence[Sequence[float]], limits: Sequence[float], speeds: Sequence[float], tolerance: float = 1e-9
) -> None:
    """The certificate of bottleneck max fairness.

    Raises:
        AssertionError: a resource is used beyond what there is, or a job neither runs at its limit nor has
            the largest share of a saturated resource.
    """
    resources = range(len(use[0]) if use else 0)
    shares = [[use[job][k] * speeds[job] for k in resources] for job in range(len(use))]
    totals = [sum(share[k] for share in shares) for k in resources]
    for k, total in enumerate(totals):
        if total > 1 + tolerance:
            raise AssertionError(f"resource {k} is used at {total} of what it has")
    for job, speed in enumerate(speeds):
        if speed > limits[job] * (1 + tolerance):
            raise AssertionError(f"job {job} runs at {speed}, its limit is {limits[job]}")
        if speed >= limits[job] * (1 - tolerance):
            continue
        held = [
            k
            for k in resources
            if totals[k] >= 1 - tolerance
            and shares[job][k] >= max(share[k] for share in shares) * (1 - tolerance)
        ]
        if not held:
            raise AssertionError(f"job {job} runs at {speed} of {limits[job]} and nothing holds it back")


class _Stream(NamedTuple):
    """What the host reads on a channel, of one DIMM or of several in turn."""

    gbps: float
    dimms: tuple[int, ...]


@dataclass
class ReadableLoop:
    """Runs jobs as `loop.run_jobs` does, and holds every sharing of resources to its certificate.

    What has happened is written into the arrays of `jobs`; `busy_ns` is by server and shared resource.
    """

    jobs: Jobs
    kinds: Kinds
    slowdown: SlowdownTable
    clock_ns: float
    prioritised: int
    busy_ns: dict[tuple[str, int], float] = field(default_factory=dict)
    _allowed: dict[int, float] = field(default_factory=dict)
    _ready_ns: dict[int, float] = field(default_factory=dict)
    _last_on: dict[int, int] = field(default_factory=dict)
    _full: set[int] = field(default_factory=set)

    def run(self) -> bool:
        """Until the foreground is done; False where what is left waits for ever."""
        jobs = self.jobs
        for job in range(len(jobs.work_ns)):
            if jobs.waits[job] == 0 and jobs.start_ns[job] < 0:
                self._ready(job, -1)
        self._serve()
        while any(jobs.end_ns[job] < 0 for job in self._all() if not jobs.background[job]):
            speeds = self._speeds()
            ends = [jobs.left_ns[job] / speed for job, speed in speeds.items() if speed > 0]
            ends += [0.0 for job in speeds if jobs.left_ns[job] <= _NOTHING_NS]
            if not ends:
                return False
            self._pass(min(ends), speeds)
            while finished := [job for job in self._active() if jobs.left_ns[job] <= _NOTHING_NS]:
                for job in finished:
                    self._finish(job)
            self._serve()
        return True

    def _all(self) -> range:
        return range(len(self.jobs.work_ns))

    def _active(self) -> list[int]:
        jobs = self.jobs
        return [job for job in self._all() if jobs.start_ns[job] >= 0 and jobs.end_ns[job] < 0]

    def _ready(self, job: int, cause: int) -> None:
        """A job that has no turn on its server starts."""
        self.jobs.cause[job] = cause
        if self.jobs.turn[job] < 0:
            self.jobs.start_ns[job] = self.clock_ns
        else:
            self._ready_ns[job] = self.clock_ns

    def _serve(self) -> None:
        """Servers that are free take the job whose turn it is."""
        jobs = self.jobs
        taken = {int(jobs.server[job]) for job in self._active() if jobs.turn[job] >= 0}
        for job in sorted(self._ready_ns, key=lambda job: int(jobs.turn[job])):
            server = int(jobs.server[job])
            if server not in taken:
                taken.add(server)
                jobs.start_ns[job] = self.clock_ns
                if self._ready_ns.pop(job) < self.clock_ns:
                    jobs.cause[job] = self._last_on[server]

    def _finish(self, job: int) -> None:
        jobs = self.jobs
        jobs.left_ns[job], jobs.end_ns[job] = 0.0, self.clock_ns
        if jobs.turn[job] >= 0:
            self._last_on[int(jobs.server[job])] = job
        place = jobs.first_after[job]
        while place >= 0:
            successor = jobs.after[place]
            place = jobs.next_after[place]
            jobs.waits[successor] -= 1
            if jobs.waits[successor] == 0:
                self._ready(int(successor), job)

    def _pass(self, ns: float, speeds: Mapping[int, float]) -> None:
        jobs, kinds = self.jobs, self.kinds
        self.clock_ns += ns
        units = self._units()
        for job, speed in speeds.items():
            jobs.left_ns[job] -= ns * speed
            if jobs.server[job] >= 0:
                self._count("server", int(jobs.server[job]), ns)
            if jobs.kind[job] >= 0:
                jobs.allowed_ns[job] += ns * self._allowed[job]
                for k in range(kinds.shared_ns.shape[1]):
                    self._count("shared", k, ns * speed * self._use(job, k, units))

    def _count(self, what: str, number: int, ns: float) -> None:
        self.busy_ns[what, number] = self.busy_ns.get((what, number), 0.0) + ns

    def _units(self) -> dict[int, int]:
        """The NDP job of each DIMM whose unit is at work."""
        return {int(self.jobs.dimm[job]): job for job in self._active() if self.jobs.dimm[job] >= 0}

    def _use(self, job: int, k: int, units: Mapping[int, int]) -> float:
        """The share of a resource that a transfer at full speed uses."""
        kinds, kind = self.kinds, self.jobs.kind[job]
        ns = float(kinds.shared_ns[kind, k])
        for dimm in range(len(kinds.channel)):
            if kinds.channel[dimm] == k:
                beside = self._host_speed(units[dimm], k) if dimm in units else 1.0
                ns += float(kinds.read_ns[kind, dimm]) / beside / self._left(self.jobs.bus_share, k, units)
        return ns * float(self.jobs.per_ns[job])

    def _host_speed(self, unit: int, channel: int) -> float:
        """Of reads of the DIMM of an NDP job, with as many streams as there are on its channel."""
        slowdown, count = self.slowdown, 0.0
        for job in self._active():
            kind = self.jobs.kind[job]
            if kind >= 0:
                read = np.flatnonzero(self.kinds.read_ns[kind] * (self.kinds.channel == channel))
                count += len(read) / max(float(self.kinds.stream_dimms[kind]), 1)
        return self._of_streams([self._of_tokens(row, unit) for row in slowdown.host_speed], count)

    def _of_streams(self, values: Sequence[float], count: float) -> float:
        """A value for a number of streams."""
        return float(np.interp(count, self.slowdown.streams, values))

    def _left(self, shares: Floats, channel: int, units: Mapping[int, int]) -> float:
        """What those at work on a channel leave of it, or of the pace of its reads."""
        taken = [float(shares[job]) for dimm, job in units.items() if self.kinds.channel[dimm] == channel]
        return max(1 - sum(taken), _LEAST_SPEED)

    def _paced(self, job: int, units: Mapping[int, int]) -> float:
        """The part of its pace that a read keeps on the channel that leaves it least."""
        read_ns = self.kinds.read_ns[self.jobs.kind[job]]
        channels = {int(self.kinds.channel[dimm]) for dimm in np.flatnonzero(read_ns)}
        return min((self._left(self.jobs.pause_share, k, units) for k in channels), default=1.0)

    def _of_tokens(self, column: Sequence[float] | Floats, job: int) -> float:
        row, between = int(self.jobs.table[job]), float(self.jobs.between[job])
        return float(column[row] + (between * (column[row + 1] - column[row]) if between else 0.0))

    def _speeds(self) -> dict[int, float]:
        """The speed of every job under way."""
        jobs, active, units = self.jobs, self._active(), self._units()
        moving = [job for job in active if jobs.kind[job] >= 0]
        use = [[self._use(job, k, units) for k in range(self.kinds.shared_ns.shape[1])] for job in moving]
        limits = self._limits(moving, use)
        speeds = self._with_pauses(moving, use, limits, units)
        crowd = [self._crowd_limit(job, speeds, units) for job in moving]
        limits = [min(limit, crowded) for limit, crowded in zip(limits, crowd, strict=True)]
        speeds = self._with_pauses(moving, use, limits, units)
        ndp = {job: self._ndp_speed(dimm, job, speeds) for dimm, job in units.items()}
        return {job: speeds.get(job, ndp.get(job, 1.0)) for job in active}

    def _with_pauses(
        self,
        moving: Sequence[int],
        use: Sequence[Sequence[float]],
        limits: Sequence[float],
        units: Mapping[int, int],
    ) -> dict[int, float]:
        """The speed of every transfer, at most what pauses leave of what it is allowed, which is noted."""
        shared = shared_speeds(use, limits)
        ensure_fair(use, limits, shared)
        self._note_allowed(moving, use, limits, shared)
        rates = list(zip(use, shared, strict=True))
        used = [sum(of[k] * speed for of, speed in rates) for k in range(self.kinds.shared_ns.shape[1])]
        self._full = {k for k, share in enumerate(used) if share >= 1 - 1e-9}
        return {
            job: min(speed, self._allowed[job] * self._paced(job, units))
            for job, speed in zip(moving, shared, strict=True)
        }

    def _limits(self, moving: Sequence[int], use: Sequence[Sequence[float]]) -> list[float]:
        """What priorities leave each transfer."""
        background = [bool(self.jobs.background[job]) for job in moving]
        limits = [1.0] * len(moving)
        if any(background):
            alone = shared_speeds(use, [0.0 if behind else 1.0 for behind in background])
            for k in range(self.prioritised):
                ahead = zip(use, alone, background, strict=True)
                left = max(1 - sum(of[k] * speed for of, speed, behind in ahead if not behind), 0.0)
                wanted = sum(of[k] for of, behind in zip(use, background, strict=True) if behind)
                part = 1.0 if wanted <= left else left / wanted
                limits = [
                    min(limit, part) if behind and of[k] > 0 else limit
                    for limit, of, behind in zip(limits, use, background, strict=True)
                ]
        return limits

    def _crowd_limit(self, job: int, speeds: Mapping[int, float], units: Mapping[int, int]) -> float:
        """Of a relayout, on DIMMs of it whose units compute, and more so where the host reads them."""
        jobs, slowdown = self.jobs, self.slowdown
        gbps = self.kinds.moved_bytes[jobs.kind[job]] * float(jobs.per_ns[job])
        left = [
            min(self._of_tokens(slowdown.most_moved_gbps[way], ndp) / float(gbps[dimm, way]), 1.0)
            * self._crowded(slowdown.moving_crowded[way], dimm, ndp, speeds)
            for dimm, ndp in units.items()
            for way in range(2)
            if gbps[dimm, way] > 0
        ]
        return max(min(left, default=1.0), _LEAST_SPEED)

    def _note_allowed(
        self,
        moving: Sequence[int],
        use: Sequence[Sequence[float]],
        limits: Sequence[float],
        speeds: Sequence[float],
    ) -> None:
        """The speed that the prioritised resources leave each job: its limit, or the largest share of one."""
        self._allowed = dict(zip(moving, limits, strict=True))
        for k in range(self.prioritised):
            shares = [of[k] * speed for of, speed in zip(use, speeds, strict=True)]
            if sum(shares) >= 1 - 1e-9:
                for job, of in zip(moving, use, strict=True):
                    if of[k] * self._allowed[job] > max(shares):
                        self._allowed[job] = max(shares) / of[k]

    def _streams(self, channel: int, moving: Mapping[int, float]) -> list[_Stream]:
        """Those of host reads on a channel: a read that lies striped has one, others one on each DIMM."""
        found = []
        for job, speed in moving.items():
            kind = self.jobs.kind[job]
            of_dimms = {
                dimm: float(self.kinds.read_bytes[kind, dimm] * self.jobs.per_ns[job]) * speed
                for dimm in range(len(self.kinds.channel))
                if self.kinds.channel[dimm] == channel and self.kinds.read_bytes[kind, dimm] * speed
            }
            if of_dimms and self.kinds.stream_dimms[kind] > 1:
                found.append(_Stream(sum(of_dimms.values()), tuple(of_dimms)))
            else:
                found += [_Stream(gbps, (dimm,)) for dimm, gbps in of_dimms.items()]
        return found

    def _weight(self, stream: _Stream, channel: int) -> float:
        """Where reads wait for the channel, every stream that asks for enough counts alike."""
        return min(stream.gbps, float(self.slowdown.waiting_gbps[0]) if channel in self._full else math.inf)

    def _crowded(self, table: Iterable[Floats], dimm: int, ndp: int, moving: Mapping[int, float]) -> float:
        """1 - h (1 - v), see `SlowdownTable`; 1 where the host reads nothing."""
        channel = int(self.kinds.channel[dimm])
        streams = self._streams(channel, moving)
        here = sum(self._weight(of, channel) / len(of.dimms) for of in streams if dimm in of.dimms)
        if not here:
            return 1.0
        gbps, rates = sum(of.gbps for of in streams), self.slowdown.host_gbps
        value = self._of_tokens([_interpolated(rates, row, gbps) for row in table], ndp)
        return 1 - here / sum(self._weight(of, channel) for of in streams) * (1 - value)

    def _equal_streams(self, channel: int, moving: Mapping[int, float]) -> float:
        """As how many equal ones the streams on a channel count."""
        weights = [self._weight(of, channel) for of in self._streams(channel, moving)]
        return sum(weights) ** 2 / sum(weight**2 for weight in weights) if weights else 1.0

    def _ndp_speed(self, dimm: int, job: int, moving: Mapping[int, float]) -> float:
        """Beside transfers at these speeds."""
        jobs, kinds, slowdown = self.jobs, self.kinds, self.slowdown
        speeds = [self._crowded(table, dimm, job, moving) for table in slowdown.ndp_speed]
        speed = self._of_streams(speeds, self._equal_streams(int(kinds.channel[dimm]), moving))
        left = 1.0
        for way, table in enumerate(slowdown.ndp_speed_moving):
            gbps = sum(
                float(kinds.moved_bytes[jobs.kind[one], dimm, way] * jobs.per_ns[one]) * of
                for one, of in moving.items()
            )
            if gbps > _NOTHING_GBPS:
                beside = self._of_tokens(
                    [_interpolated(slowdown.moved_gbps, row, gbps) for row in table], job
                )
                left -= 1 - beside
                speed *= self._crowded(slowdown.ndp_crowded[way], dimm, job, moving)
        return max(speed * left, _LEAST_SPEED)


def _interpolated(rates: Sequence[float] | Floats, values: Sequence[float] | Floats, rate: float) -> float:
    """The value at a rate; beyond the last rate, that of the last."""
    for (low, first), (high, last) in zip(
        zip(rates, values, strict=True), list(zip(rates, values, strict=True))[1:], strict=False
    ):
        if rate <= high:
            return float(first + (rate - low) / (high - low) * (last - first))
    return float(values[-1])
