"""A relayout in a session: alone it is that of `simulate_relayout`; and beside experts and the host on the same ranks."""

from __future__ import annotations

import numba
import numpy as np
import pytest

from mistakes import refused
from ndpsim.audit import CommandBuses, check_lanes
from ndpsim.base.errors import InputError
from ndpsim.config import load_hardware
from ndpsim.dimm.engines import ReadableDimms
from ndpsim.report.text import all_lanes
from ndpsim.simulate import Session, channel, simulate_dimm, simulate_relayout
from ndpsim.workload.models import Expert

MOVED, COMPUTED = Expert(256, 128), Expert(512, 128)
ONE_CHANNEL = ("dimm.count=2", "host.channels=1", "dimm.ranks=2", "link.ports=2")
MOVE = {"model": MOVED}


def of(commands):
    return [trace.columns() for trace in commands]


@pytest.mark.parametrize("start_ns", [0, 12345])
@pytest.mark.parametrize("bits", [16, 3])
def test_alone_the_commands_are_those_of_simulate_relayout(bits, start_ns):
    sets = [*ONE_CHANNEL, "dram.refresh=none"]
    alone = simulate_relayout("trimoe", MOVED, bits=bits, sets=sets, host=False, record_commands=True)
    result = simulate_dimm(
        "trimoe", relayout={**MOVE, "bits": bits, "start_ns": start_ns}, sets=sets, record_commands=True
    )
    (moved,) = result.relayouts
    assert moved.end_ns - moved.start_ns == pytest.approx(alone.time_ns)
    for ours, theirs in zip(of(result.command_traces), of(alone.command_traces[0]), strict=True):
        ours[0] -= ours[0].min(initial=1 << 40) - theirs[0].min(initial=1 << 40)
        assert np.array_equal(ours, theirs)


def test_refreshes_of_a_relayout_alone_are_those_of_simulate_relayout():
    alone = simulate_relayout("trimoe", COMPUTED, sets=list(ONE_CHANNEL), host=False, record_commands=True)
    result = simulate_dimm(
        "trimoe", relayout={"model": COMPUTED}, sets=list(ONE_CHANNEL), record_commands=True
    )
    assert result.relayouts[0].end_ns == pytest.approx(alone.time_ns)
    for ours, theirs in zip(of(result.command_traces), of(alone.command_traces[0]), strict=True):
        assert np.array_equal(ours[:, : theirs.shape[1]], theirs)


def test_from_a_layout_to_the_same_one_an_expert_goes_to_the_next_dimm():
    (moved,) = simulate_dimm(
        "trimoe", relayout={**MOVE, "target": "localized"}, sets=list(ONE_CHANNEL)
    ).relayouts
    assert moved.read_bytes == moved.written_bytes == 3 * 256 * 128 * 2


def test_the_same_kernels_serve_with_a_relayout_and_without():
    session = Session("trimoe", sets=ONE_CHANNEL)
    kinds = [numba.typeof(session._run.dimms.agents)]
    session.relayout(MOVED)
    kinds.append(numba.typeof(session._run.dimms.agents))
    assert kinds[0] == kinds[1]


OF_RELAYOUTS = ("ndp_relayout", "link")
STATIC = "ndp.relayout.static_mw=3"


def test_alone_the_energy_is_that_of_simulate_relayout():
    sets = [*ONE_CHANNEL, "dram.refresh=none", STATIC, "ndp.gemv.static_mw=0", "ndp.activation.static_mw=0"]
    alone = simulate_relayout("trimoe", MOVED, sets=sets, host=False).energy_nj
    ours = simulate_dimm("trimoe", relayout=MOVE, sets=sets).energy_nj
    for name in (*OF_RELAYOUTS, "activate", "write", "read", "io", "ndp_static"):
        assert ours[name] == pytest.approx(alone[name], rel=1e-6)
        assert ours[name] > 0


def test_energy_of_relayouts_rises_as_they_go_and_adds_up():
    session = Session("trimoe", sets=list(ONE_CHANNEL))
    assert not set(OF_RELAYOUTS) & set(session.result().energy_nj)
    told = []
    for _ in range(2):
        session.relayout(**MOVE)
        session.run(until_ns=session.now_ns + 600)
        told.append([session.result().energy_nj[name] for name in OF_RELAYOUTS])
        session.run()
        told.append([session.result().energy_nj[name] for name in OF_RELAYOUTS])
    half, one, three_halves, two = np.array(told)
    assert (half > 0).all()
    assert (half < one).all()
    assert (one < three_halves).all()
    assert two[0] == pytest.approx(2 * one[0])
    assert (three_halves < two).all()


def run(
    monkeypatch, readable, arbitration="host-first", sets=(), tokens=(1, 6), pattern="random", gbps=6,
    computed=COMPUTED, moved=MOVED,
):  # fmt: skip
    with monkeypatch.context() as patch:
        if readable:
            patch.setattr(channel, "make_dimms", ReadableDimms)
        session = Session("trimoe", arbitration=arbitration, sets=[*ONE_CHANNEL, *sets], record_commands=True)
    for dimm, count in enumerate(tokens):
        session.expert(computed, count, dimm)
    session.relayout(moved)
    if pattern is not None:
        session.host(pattern, gbps=gbps)
    session.run()
    return session.result()


@pytest.mark.parametrize(
    ("arbitration", "sets", "pattern"),
    [
        ("host-first", (), "random"),
        ("host-first", ("dimm.command_bus=shared",), "sequential"),
        ("host-first", ("dram.refresh=same-bank",), "random"),
        ("host-first", ("dram.nREFI=2500",), None),
        ("host-first", ("dram.write_buffer=2", "dram.refresh=none"), "sequential"),
        pytest.param("ndp-first", ("dimm.command_bus=shared",), "sequential", marks=pytest.mark.long),
        pytest.param("ndp-first", ("dram.refresh=same-bank",), "random", marks=pytest.mark.long),
        pytest.param(
            "ndp-first", ("dram.write_buffer=2", "dram.refresh=none"), "sequential", marks=pytest.mark.long
        ),
    ],
)
def test_the_fast_arbiter_moves_as_the_readable_one_does(monkeypatch, arbitration, sets, pattern):
    assert_same(*(run(monkeypatch, each, arbitration, sets, (1, 40), pattern) for each in (False, True)))


def random_session(seed):
    """A session with random experts, a random relayout, and in most cases a random stream of the host."""
    random = np.random.default_rng(seed)
    arbitration = random.choice(["host-first", "ndp-first", "slice", "batch"])
    sets = [*ONE_CHANNEL, f"dram.write_buffer={random.choice([2, 8, 32])}"]
    session = Session("trimoe", 2, arbitration, sets=sets, record_commands=True)
    for dimm in range(2):
        for _ in range(random.integers(0, 3)):
            columns, tokens = random.integers(16, 96), random.integers(1, 60)
            session.expert(Expert(256, int(columns)), int(tokens), dimm)
    ends = [("localized", "striped"), ("striped", "localized"), ("localized", "localized")]
    session.relayout(Expert(256, 64), 1, *random.choice(ends), start_ns=float(random.integers(0, 6000)))
    if random.random() < 0.8:
        session.host(random.choice(["random", "sequential"]), gbps=float(random.integers(1, 16)))
    return session


# With 64 and 226 it matters when a lane first has slots of its FIFO for all reads that it has taken.
@pytest.mark.parametrize(
    "seed", [*range(6), 64, 226, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(6, 60))]
)
def test_the_fast_arbiter_moves_as_the_readable_one_does_beside_anything(monkeypatch, seed):
    fast = random_session(seed)
    monkeypatch.setattr(channel, "make_dimms", ReadableDimms)
    readable = random_session(seed)
    for session in (fast, readable):
        session.run()
    assert_same(fast.result(), readable.result())


def test_a_lane_that_turns_to_requests_that_have_starved_is_first_at_the_next_clock(monkeypatch):
    sets, small = ("dimm.ranks=1", "dimm.command_bus=shared", "dram.write_buffer=2"), Expert(64, 64)
    work = ("host-first", (*sets, "dram.refresh=none"), (1, 1), "sequential", "saturate", small, small)
    assert_same(*(run(monkeypatch, each, *work) for each in (False, True)))


def assert_same(fast, readable):
    assert fast.relayouts == readable.relayouts
    assert (fast.jobs, fast.host, fast.commands) == (readable.jobs, readable.host, readable.commands)
    for one, other in zip(of(fast.command_traces), of(readable.command_traces), strict=True):
        assert np.array_equal(one, other)


@pytest.mark.parametrize("arbitration", ["host-first", pytest.param("ndp-first", marks=pytest.mark.long)])
@pytest.mark.parametrize("command_bus", ["private", "shared"])
def test_commands_of_experts_host_and_relayout_together_are_legal(monkeypatch, command_bus, arbitration):
    result = run(monkeypatch, False, arbitration, (f"dimm.command_bus={command_bus}",))
    hardware = load_hardware("trimoe", ONE_CHANNEL)
    report = check_lanes(
        all_lanes(result.command_traces), hardware.lane_device(), 8, buses=CommandBuses(command_bus, 2, 2)
    )
    assert report.ok, report.violations[:3]
    assert report.commands == sum(result.commands.values())


def test_everybody_gets_all_that_it_asks_for_and_slows_the_others(monkeypatch):
    together = run(monkeypatch, False)
    without = run(monkeypatch, False, pattern=None, tokens=())
    experts = simulate_dimm(
        "trimoe",
        [{"model": COMPUTED, "tokens": tokens, "dimm": dimm} for dimm, tokens in enumerate((1, 6))],
        sets=list(ONE_CHANNEL),
    )
    (moved,), (alone,) = together.relayouts, without.relayouts
    assert moved.read_bytes == moved.written_bytes == alone.read_bytes == 3 * 256 * 128 * 2
    assert moved.end_ns > alone.end_ns
    for beside, by_itself in zip(together.jobs, experts.jobs, strict=True):
        assert beside.end_ns > by_itself.end_ns
    data = sum(together.commands[name] for name in ("RD", "WR")) * 64
    weights = 2 * 3 * 512 * 128 * 2
    assert data == weights + 2 * moved.read_bytes + round(together.host_gbps * together.time_ns)


def test_what_waits_for_the_multipliers_does_not_hold_a_relayout_up(monkeypatch):
    without = run(monkeypatch, False, pattern=None, tokens=(), sets=["dram.refresh=none"])
    beside = run(monkeypatch, False, pattern=None, tokens=(400,), sets=["dram.refresh=none"])
    assert beside.jobs[0].end_ns > 20 * without.relayouts[0].end_ns
    assert beside.relayouts[0].end_ns < 2 * without.relayouts[0].end_ns


def test_dimms_of_other_channels_read_and_write_at_once():
    sets = ["dimm.count=2", "host.channels=2", "dimm.ranks=2"]
    whole = simulate_relayout("trimoe", MOVED, sets=sets, host=False)
    half = simulate_dimm("trimoe", relayout=MOVE, sets=sets, record_commands=True)
    (moved,) = half.relayouts
    assert (moved.read_bytes, moved.written_bytes) == (3 * 256 * 128 * 2, 3 * 256 * 128)
    assert moved.end_ns <= whole.time_ns
    assert len(half.command_traces) == 4


def test_a_relayout_can_follow_another_and_is_placed_behind_what_is_there():
    session = Session("trimoe", sets=list(ONE_CHANNEL), record_commands=True)
    session.expert(COMPUTED)
    session.relayout(MOVED)
    with refused("conflict relayout"):
        session.relayout(MOVED)
    session.run()
    session.relayout(MOVED, source_dimms=[1])
    session.run()
    first, second = session.relayouts
    assert first.end_ns <= second.start_ns < second.end_ns
    rows = [set(trace.row[trace.column >= 0].tolist()) for trace in session.result().command_traces]
    assert all(max(each) >= 1 for each in rows)


@pytest.mark.parametrize(
    ("arguments", "key"),
    [
        ({"experts": 0}, "experts"),
        ({"source_dimms": [7]}, "source_dimms"),
        ({"source": "striped"}, "target"),
        ({"start_ns": -1}, "start_ns"),
        ({"layout": "striped"}, "relayout"),
    ],
)
def test_senseless_relayouts_are_refused(arguments, key):
    with pytest.raises(InputError) as refused:
        simulate_dimm("trimoe", relayout={**MOVE, **arguments}, sets=list(ONE_CHANNEL))
    assert refused.value.key == key
