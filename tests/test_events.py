"""The event loop: who gets what of shared resources, and what happens when, against a readable twin."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ndpsim.base.jit import kernel
from ndpsim.inference.events.loop import DONE, STUCK, run_jobs
from ndpsim.inference.events.speeds import share_resources
from ndpsim.inference.events.state import Jobs, Kinds, Work
from ndpsim.inference.layers.jobs import make_work
from ndpsim.simulate.results.slowdown import SlowdownTable
from oracles.events import ReadableLoop, ensure_fair, shared_speeds

CHANNELS = 2
DIMMS = 4
SHARED = 2 + CHANNELS  # PCIe down and up, then channels
SERVERS = 2 + DIMMS


@kernel
def share(use, limit, level, in_use, demand, speed, jobs, count):
    share_resources(use, limit, level, in_use, demand, speed, jobs, count)


def fast_speeds(use: list[list[float]], limits: list[float]) -> list[float]:
    """Of the kernel, as `shared_speeds` of its twin."""
    count, resources = len(use), len(use[0])
    speed = np.zeros(count)
    table = np.array(use, dtype=np.float64).reshape(count, resources)
    share(
        table, np.array(limits, dtype=np.float64), np.zeros(resources), np.flatnonzero(table.any(axis=0)),
        np.zeros(count), speed, np.arange(count), count,
    )  # fmt: skip
    return speed.tolist()


BOTH = pytest.mark.parametrize("speeds_of", [fast_speeds, shared_speeds], ids=["kernel", "readable"])

AMOUNT = st.one_of(st.just(0.0), st.floats(0.01, 3))
SYSTEMS = st.integers(1, 6).flatmap(
    lambda resources: st.lists(
        st.tuples(
            st.lists(AMOUNT, min_size=resources, max_size=resources), st.one_of(st.just(1.0), st.floats(0, 1))
        ),
        min_size=1,
        max_size=7,
    )
)


@BOTH
def test_reads_of_one_channel_and_of_all_have_half_of_the_channel_they_share(speeds_of):
    # Weights as shares of a channel at full speed: one channel for the first, an eighth of eight for the second.
    use = [[1.0] + [0.0] * 7, [1.0] * 8]
    assert speeds_of(use, [1.0, 1.0]) == pytest.approx([0.5, 0.5], rel=1e-12)


@BOTH
def test_who_wants_less_than_an_equal_share_leaves_the_rest_to_others(speeds_of):
    assert speeds_of([[0.2], [0.9], [1.7]], [1.0, 1.0, 1.0]) == pytest.approx([1, 4 / 9, 4 / 17], rel=1e-12)


@BOTH
def test_a_job_held_back_elsewhere_leaves_its_share_to_others(speeds_of):
    # The second is held to a third by the other resource, so the first has two thirds of the shared one.
    use = [[1.0, 0.0], [1.0, 3.0]]
    assert speeds_of(use, [1.0, 1.0]) == pytest.approx([2 / 3, 1 / 3], rel=1e-12)


@BOTH
def test_without_contention_everybody_runs_at_its_limit(speeds_of):
    assert speeds_of([[0.3, 0.0], [0.7, 0.9]], [1.0, 0.5]) == [1.0, 0.5]


@given(SYSTEMS)
@settings(deadline=None)
def test_speeds_are_fair_and_those_of_the_twin(system):
    use, limits = [list(row) for row, _ in system], [limit for _, limit in system]
    fast, plain = fast_speeds(use, limits), shared_speeds(use, limits)
    ensure_fair(use, limits, fast)
    ensure_fair(use, limits, plain)
    assert fast == pytest.approx(plain, rel=1e-8, abs=1e-10)


@given(SYSTEMS, st.randoms())
@settings(deadline=None)
def test_the_order_of_jobs_changes_nothing(system, randoms):
    use, limits = [list(row) for row, _ in system], [limit for _, limit in system]
    order = list(range(len(use)))
    randoms.shuffle(order)
    shuffled = fast_speeds([use[job] for job in order], [limits[job] for job in order])
    straight = fast_speeds(use, limits)
    assert shuffled == pytest.approx([straight[job] for job in order], rel=1e-8, abs=1e-10)


# ---- Jobs


SLOWDOWN = SlowdownTable(
    tokens=np.array([1, 2]),
    host_gbps=np.array([0.0, 2.0, 4.0]),
    streams=np.array([1.0, 2.0, 5.0]),
    waiting_gbps=np.array([1.5]),
    ndp_speed=np.array(
        [
            [[1.0, 0.9, 0.7], [1.0, 0.95, 0.9]],
            [[1.0, 0.8, 0.5], [1.0, 0.95, 0.85]],
            [[1.0, 0.7, 0.6], [1.0, 0.85, 0.85]],
        ]
    ),
    host_speed=np.array([[0.8, 0.9], [0.7, 0.9], [0.65, 0.8]]),
    moved_gbps=np.array([0.0, 3.0]),
    ndp_speed_moving=np.array([[[1.0, 0.8], [1.0, 0.9]], [[1.0, 0.6], [1.0, 0.8]]]),
    ndp_crowded=np.array([[[1.0, 0.9, 0.8], [1.0, 0.95, 1.0]], [[1.0, 0.6, 0.5], [1.0, 0.7, 0.9]]]),
    moving_crowded=np.array([[[1.0, 0.9, 0.9], [1.0, 1.0, 1.0]], [[1.0, 0.5, 0.7], [1.0, 0.8, 0.9]]]),
    most_moved_gbps=np.array([[1.6, 4.0], [1.9, 3.0]]),
    vector_tokens=np.array([1.0, 2.0]),
    vector_ns=np.zeros((2, 2)),
)

CHANNEL = np.array([2 + dimm % CHANNELS for dimm in range(DIMMS)])
NO_MOVES = np.zeros((1, DIMMS, 2))
NO_KINDS = Kinds(
    CHANNEL, np.zeros((1, SHARED)), np.zeros((1, DIMMS)), np.zeros((1, DIMMS)), NO_MOVES, np.zeros(1)
)


def jobs_of(rows: list[dict[str, float]], before: list[tuple[int, int]] = []) -> Jobs:  # noqa: B006
    """Jobs from what is not usual of each; `before`: (job, one that waits for it)."""
    count = len(rows)
    after = [sorted(second for first, second in before if first == job) for job in range(count)]

    def column(name: str, usual: float, kind: type) -> np.ndarray:
        return np.array([row.get(name, usual) for row in rows], dtype=kind)

    work_ns = column("work_ns", 1.0, float)
    first = np.cumsum([0, *map(len, after)])
    number = np.arange(len(before))
    return Jobs(
        np.array([count, len(before)]),
        work_ns,
        work_ns.copy(),
        column("per_ns", 0.0, float),
        column("kind", -1, int),
        column("server", -1, int),
        column("dimm", -1, int),
        column("table", 0, int),
        column("between", 0.0, float),
        column("bus_share", 0.0, float),
        column("pause_share", 0.0, float),
        column("background", 0, int),
        np.array([sum(second == job for _, second in before) for job in range(count)], dtype=int),
        np.where(np.diff(first), first[:-1], -1),
        np.where(np.isin(number + 1, first), -1, number + 1),
        np.array([one for of_job in after for one in of_job], dtype=int),
        column("start_ns", -1.0, float),
        np.full(count, -1.0),
        np.full(count, -1),
        np.zeros(count),
        column("turn", -1, int),
    )


def work_of(jobs: Jobs, clock_ns: float = 100.0) -> Work:
    work = make_work(len(jobs.work_ns), SERVERS, SHARED, DIMMS)
    work.clock_ns[0] = clock_ns
    return work


def ran(jobs: Jobs, kinds: Kinds = NO_KINDS) -> tuple[list[float], list[float]]:
    """Ends from the beginning, and what was counted."""
    work = work_of(jobs, 0.0)
    assert run_jobs(jobs, kinds, SLOWDOWN, work, 2, SERVERS) == DONE
    return jobs.end_ns.tolist(), work.busy_ns.tolist()


def test_jobs_start_when_all_before_them_have_ended():
    jobs = jobs_of(
        [{"work_ns": 5}, {"work_ns": 3, "server": 0}, {"work_ns": 2, "server": 0}, {"work_ns": 0}],
        [(0, 2), (1, 2), (2, 3)],
    )
    ends, busy = ran(jobs)
    assert ends == [5, 3, 7, 7]
    assert jobs.cause.tolist() == [-1, -1, 0, 2]
    assert busy[0] == 5


def test_a_free_server_takes_the_lowest_turn_of_what_is_ready():
    """The first in turn, 0, is not ready until 4: 2 goes before it, and 3, of a later turn, after it."""
    jobs = jobs_of(
        [
            {"work_ns": 2, "server": 0, "turn": 1},
            {"work_ns": 4},
            {"work_ns": 5, "server": 0, "turn": 2},
            {"work_ns": 1, "server": 0, "turn": 3},
            {"work_ns": 3, "server": 0, "turn": 0},
        ],
        [(1, 4)],
    )
    ends, busy = ran(jobs)
    assert ends == [2, 4, 7, 11, 10]
    assert jobs.cause.tolist() == [-1, -1, 0, 4, 2]
    assert busy[0] == 11


def test_two_transfers_share_and_the_longer_one_is_alone_in_the_end():
    kinds = Kinds(
        CHANNEL, np.array([[1.0, 0, 0, 0]]), np.zeros((1, DIMMS)), np.zeros((1, DIMMS)), NO_MOVES, np.ones(1)
    )
    transfer = {"kind": 0}
    jobs = jobs_of([{"work_ns": 10, "per_ns": 1, **transfer}, {"work_ns": 4, "per_ns": 1, **transfer}])
    ends, busy = ran(jobs, kinds)
    assert ends == pytest.approx([14, 8])
    assert busy[SERVERS] == pytest.approx(14)
    assert jobs.allowed_ns.tolist() == pytest.approx([10, 4])


def test_the_background_yields_where_a_resource_knows_priorities_and_shares_where_it_does_not():
    reads = np.zeros((2, DIMMS))
    reads[1] = [1, 0, 0, 0]
    kinds = Kinds(
        CHANNEL,
        np.array([[1.0, 0, 0, 0], [0, 0, 0, 0]]),
        reads,
        np.zeros((2, DIMMS)),
        np.zeros((2, DIMMS, 2)),
        np.array([0.0, 1.0]),
    )
    for kind, ends in ((0, [4, 14]), (1, [8, 14])):
        jobs = jobs_of(
            [
                {"work_ns": 4, "per_ns": 1, "kind": kind},
                {"work_ns": 10, "per_ns": 1, "kind": kind, "background": 1},
                {"work_ns": 14},
            ]
        )
        assert ran(jobs, kinds)[0][:2] == pytest.approx(ends)
        # On a channel, nothing but the channel holds anyone back.
        assert jobs.allowed_ns[:2].tolist() == pytest.approx([4, 10] if kind == 0 else ends)


def test_a_run_ends_with_its_foreground_and_the_background_goes_on_later():
    jobs = jobs_of([{"work_ns": 4}, {"work_ns": 10, "background": 1}])
    ends, _ = ran(jobs)
    assert ends == [4, -1]
    assert jobs.left_ns.tolist() == [0, 6]
    again = jobs_of([{"work_ns": 10, "background": 1, "start_ns": 0}, {"work_ns": 9}])
    again.left_ns[0] = 6
    assert ran(again)[0] == [6, 9]
    assert again.start_ns[0] == 0


def test_an_ndp_job_is_slowed_down_by_what_the_host_reads_on_its_dimm():
    read_ns, read_bytes = np.zeros((2, DIMMS)), np.zeros((2, DIMMS))
    read_ns[0, 0], read_bytes[0, 0] = 8, 32
    read_ns[1, [0, 2]], read_bytes[1, [0, 2]] = 4, 16  # the same, striped over both DIMMs of the channel
    kinds = Kinds(
        CHANNEL, np.zeros((2, SHARED)), read_ns, read_bytes, np.zeros((2, DIMMS, 2)), np.array([1.0, 2.0])
    )
    ndp = {"dimm": 0, "server": 2, "work_ns": 100.0}
    # 32 B in 16 ns are 2 GB/s: the unit runs at 0.9; the channel is busy 8 / 0.8 of the 16 ns.
    ends, busy = ran(jobs_of([ndp, {"kind": 0, "per_ns": 1 / 16, "work_ns": 16.0}]), kinds)
    assert ends == pytest.approx([16 + (100 - 0.9 * 16), 16])
    assert busy[SERVERS + 2] == pytest.approx(10)
    # Half of it on this DIMM: the unit loses half as much.
    ends, _ = ran(jobs_of([ndp, {"kind": 1, "per_ns": 1 / 16, "work_ns": 16.0}]), kinds)
    assert ends == pytest.approx([16 + (100 - 0.95 * 16), 16])
    # Read as fast as the channel gives: 32 B in 8 / 0.8 ns are 3.2 GB/s, and the unit runs at 0.78.
    ends, _ = ran(jobs_of([ndp, {"kind": 0, "per_ns": 1.0, "work_ns": 1.0}]), kinds)
    assert ends == pytest.approx([10 + (100 - 0.78 * 10), 10])
    # On another DIMM of the same channel nothing is slowed down.
    ends, _ = ran(jobs_of([{**ndp, "dimm": 2}, {"kind": 0, "per_ns": 1.0, "work_ns": 1.0}]), kinds)
    assert ends == pytest.approx([100, 8])


def reads_of(*dimms: int) -> Kinds:
    """Reads of one DIMM each, 32 bytes in 8 ns."""
    read_ns, read_bytes = np.zeros((len(dimms), DIMMS)), np.zeros((len(dimms), DIMMS))
    for kind, dimm in enumerate(dimms):
        read_ns[kind, dimm], read_bytes[kind, dimm] = 8, 32
    moved = np.zeros((len(dimms), DIMMS, 2))
    return Kinds(CHANNEL, np.zeros((len(dimms), SHARED)), read_ns, read_bytes, moved, np.ones(len(dimms)))


def test_vectors_of_ndp_jobs_take_their_channel_from_host_reads():
    ndp = {"dimm": 2, "server": 4, "work_ns": 100.0, "bus_share": 0.25, "pause_share": 0.1}
    fast, paced = {"kind": 0, "per_ns": 1.0, "work_ns": 1.0}, {"kind": 0, "per_ns": 1 / 36, "work_ns": 36.0}
    # A read of another DIMM of the channel has three quarters of it.
    assert ran(jobs_of([ndp, fast]), reads_of(0))[0] == pytest.approx([100, 8 / 0.75])
    # With a pace of its own it makes up for most, and PCIe would have let it go at its pace.
    jobs = jobs_of([ndp, paced])
    assert ran(jobs, reads_of(0))[0] == pytest.approx([100, 40])
    assert jobs.allowed_ns[1] == pytest.approx(40)
    # A read of another channel loses nothing.
    assert ran(jobs_of([ndp, fast]), reads_of(1))[0] == pytest.approx([100, 8])


def test_streams_count_by_what_they_read_and_where_they_fill_the_channel_alike():
    units = [{"dimm": dimm, "server": 2 + dimm, "work_ns": 100.0} for dimm in (0, 2)]

    def first_end_ns(*gbps: float) -> float:
        """Of the NDP job of DIMM 2, while DIMMs 0 and 2 are read at such rates, or as fast as they can be."""
        reads = [{"kind": n, "per_ns": of / 32, "work_ns": 1000.0} for n, of in enumerate(gbps)]
        return ran(jobs_of([*units, *reads]), reads_of(0, 2))[0][1]

    # 1.5 and 0.5 GB/s are 4 / 2.5 equal streams: 0.6 of the way from 0.9 to 0.8 at 2 GB/s.
    assert first_end_ns(1.5, 0.5) == pytest.approx(100 / (1 - 0.25 * 0.16))
    # The channel is full at 0.7 of 4 GB/s. The first stream reads 2.3 GB/s and counts as 1.5, the second as
    # 0.5: 0.6 of the way from 0.82 to 0.68 at 2.8 GB/s.
    assert first_end_ns(32, 0.5) == pytest.approx(100 / (1 - 0.25 * 0.264))


def test_an_ndp_job_is_slowed_down_by_what_moves_on_its_dimm():
    moved = np.zeros((1, DIMMS, 2))
    moved[0, 1, 0] = 30
    kinds = Kinds(
        CHANNEL, np.array([[0, 1.0, 0, 0]]), np.zeros((1, DIMMS)), np.zeros((1, DIMMS)), moved, np.zeros(1)
    )
    ndp = {"dimm": 1, "server": 3, "work_ns": 100.0}
    ends, _ = ran(jobs_of([ndp, {"kind": 0, "per_ns": 1 / 20, "work_ns": 20.0}]), kinds)
    assert ends == pytest.approx([20 + (100 - 0.9 * 20), 20])  # 1.5 GB/s: half of the way from 1 to 0.8
    moved[0, 1, 1] = 15
    ends, _ = ran(jobs_of([ndp, {"kind": 0, "per_ns": 1 / 20, "work_ns": 20.0}]), kinds)
    assert ends == pytest.approx([20 + (100 - 0.8 * 20), 20])  # and 0.75 GB/s written: a quarter to 0.6


def test_a_relayout_moves_no_more_than_there_is_for_it_beside_an_ndp_job():
    moved = np.zeros((1, DIMMS, 2))
    moved[0, 1, 0] = 32
    kinds = Kinds(
        CHANNEL, np.zeros((1, SHARED)), np.zeros((1, DIMMS)), np.zeros((1, DIMMS)), moved, np.zeros(1)
    )
    move = {"kind": 0, "per_ns": 1 / 10, "work_ns": 10.0}
    # 3.2 GB/s would be read, and 1.6 can be.
    ends, _ = ran(jobs_of([{"dimm": 1, "server": 3, "work_ns": 100.0}, move]), kinds)
    assert ends[1] == pytest.approx(20)
    assert ran(jobs_of([{"dimm": 2, "server": 4, "work_ns": 100.0}, move]), kinds)[0][1] == pytest.approx(10)


def test_where_host_and_relayout_are_on_a_dimm_that_computes_all_lose_more():
    read_bytes, moved = np.zeros((2, DIMMS)), np.zeros((2, DIMMS, 2))
    read_bytes[0, 0] = 40  # 2 GB/s for 20 ns, without time on the channel
    moved[1, 0, 1] = 15
    kinds = Kinds(
        CHANNEL, np.zeros((2, SHARED)), np.zeros((2, DIMMS)), read_bytes, moved, np.array([1.0, 0.0])
    )
    read, move = {"kind": 0, "per_ns": 1 / 20, "work_ns": 20.0}, {"kind": 1, "per_ns": 0.1, "work_ns": 10.0}
    ndp = {"dimm": 0, "server": 2, "work_ns": 100.0}
    # The move has half of its speed. The unit has 0.9 beside the host, 0.6 of it beside both, and 0.9 of that
    # beside 0.75 GB/s that are written.
    ends, _ = ran(jobs_of([ndp, read, move]), kinds)
    assert ends == pytest.approx([20 + (100 - 20 * 0.9 * 0.6 * 0.9), 20, 20])
    # The unit of another DIMM computes, and nobody loses anything.
    assert ran(jobs_of([{**ndp, "dimm": 2}, read, move]), kinds)[0] == pytest.approx([100, 20, 10])


def test_jobs_that_wait_for_each_other_are_found():
    jobs = jobs_of([{}, {}], [(0, 1), (1, 0)])
    assert run_jobs(jobs, NO_KINDS, SLOWDOWN, work_of(jobs), 2, SERVERS) == STUCK
    assert not ReadableLoop(jobs_of([{}, {}], [(0, 1), (1, 0)]), NO_KINDS, SLOWDOWN, 0.0, 2).run()


def drawn(seed: int) -> tuple[Jobs, Kinds]:
    """Jobs of all sorts with dependencies of all sorts."""
    rng = random.Random(seed)
    kinds = 6
    shared, moved = np.zeros((kinds, SHARED)), np.zeros((kinds, DIMMS, 2))
    read_ns, read_bytes = np.zeros((kinds, DIMMS)), np.zeros((kinds, DIMMS))
    over = np.array([float(kind % 3 < 2) for kind in range(kinds)])
    for kind in range(kinds):
        if kind % 3 == 0:
            read_ns[kind] = rng.uniform(1, 5)
            over[kind] = rng.choice([1, DIMMS // CHANNELS])
            shared[kind, 0] = rng.choice([0, rng.uniform(1, 9)])
        elif kind % 3 == 1:
            read_ns[kind, rng.randrange(DIMMS)] = rng.uniform(4, 20)
        else:
            shared[kind, rng.randrange(2)] = rng.uniform(1, 9)
            moved[kind, :, rng.randrange(2)] = rng.uniform(0, 3)
        read_bytes[kind] = 4 * read_ns[kind]
    rows: list[dict[str, float]] = []
    before: list[tuple[int, int]] = []
    last: dict[int, int] = {}
    for job in range(rng.randrange(2, 50)):
        row: dict[str, float] = {"work_ns": rng.choice([0.0, rng.uniform(1, 50), rng.uniform(1, 50)])}
        what = rng.random()
        if what < 0.6:
            server = rng.randrange(SERVERS)
            row["server"] = server
            if server >= 2:
                row |= {"dimm": server - 2, "between": rng.choice([0.0, rng.random()])}
                row |= {"bus_share": rng.choice([0.0, rng.uniform(0, 0.6)])}
                row |= {"pause_share": rng.random() * row["bus_share"]}
            if server == 0:
                row["turn"] = rng.randrange(1000) * 1000 + job
            elif server in last:
                before.append((last[server], job))
            last[server] = job
        else:
            row |= {"kind": rng.randrange(kinds), "per_ns": rng.uniform(0.5, 2) / max(row["work_ns"], 1)}
            row["background"] = int(rng.random() < 0.2)
        if job and not row.get("background"):
            for one in {rng.randrange(job) for _ in range(rng.randrange(3))}:
                if not rows[one].get("background") and (one, job) not in before:
                    before.append((one, job))
        rows.append(row)
    return jobs_of(rows, before), Kinds(CHANNEL, shared, read_ns, read_bytes, moved, over)


@pytest.mark.parametrize("seed", range(5))
def test_what_the_loop_has_worked_with_before_changes_nothing(seed):
    jobs, kinds = drawn(seed)
    again, fresh = Jobs(*(array.copy() for array in jobs)), work_of(jobs)
    used = make_work(2 * len(jobs.work_ns), SERVERS, SHARED, DIMMS)
    for array in used:
        array.fill(3)
    used.clock_ns[0], used.busy_ns[:] = 100.0, 0.0
    assert run_jobs(jobs, kinds, SLOWDOWN, fresh, 2, SERVERS) == DONE
    assert run_jobs(again, kinds, SLOWDOWN, used, 2, SERVERS) == DONE
    assert all(np.array_equal(one, other) for one, other in zip(jobs, again, strict=True))
    assert (used.clock_ns[0], used.busy_ns.tolist()) == (fresh.clock_ns[0], fresh.busy_ns.tolist())


@given(st.integers(0, 1 << 32))
@settings(deadline=None, max_examples=60)
def test_the_loop_does_what_its_readable_twin_does(seed):
    jobs, kinds = drawn(seed)
    plain = Jobs(*(array.copy() for array in jobs))
    work = work_of(jobs)
    assert run_jobs(jobs, kinds, SLOWDOWN, work, 2, SERVERS) == DONE
    loop = ReadableLoop(plain, kinds, SLOWDOWN, 100.0, 2)
    assert loop.run()
    for field in ("start_ns", "end_ns", "left_ns", "allowed_ns"):
        assert getattr(jobs, field) == pytest.approx(getattr(plain, field), rel=1e-9, abs=1e-6), field
    busy = [
        loop.busy_ns.get(("server", n) if n < SERVERS else ("shared", n - SERVERS), 0.0)
        for n in range(SERVERS + SHARED)
    ]
    assert work.busy_ns.tolist() == pytest.approx(busy, rel=1e-9, abs=1e-6)
    # No resource was used for longer than there was time.
    assert max(busy) <= work.clock_ns[0] - 100 + 1e-6
    # Whatever was done was all of it: nothing ended before its work alone, or started before its cause ended.
    for job in np.flatnonzero(jobs.end_ns >= 0).tolist():
        assert jobs.end_ns[job] - jobs.start_ns[job] >= jobs.work_ns[job] - 1e-6
        cause = int(jobs.cause[job])
        assert math.isclose(jobs.start_ns[job], 100.0 if cause < 0 else jobs.end_ns[cause], abs_tol=1e-9)
