"""Costs of experts, host reads and relayouts: results of the cycle-level model, and values derived from them."""

from __future__ import annotations

import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from mistakes import refused
from ndpsim.cli.notices import notices
from ndpsim.config import load_hardware
from ndpsim.inference.layers import contention, relayouts
from ndpsim.inference.layers.costs import Costs
from ndpsim.inference.layers.location import Location
from ndpsim.inference.layers.shared_dimm import measured_by
from ndpsim.inference.layers.transfers import _BesideOfTokens
from ndpsim.simulate import simulate_expert, simulate_host_read, simulate_relayout
from ndpsim.simulate.host_traffic import HostTraffic
from ndpsim.simulate.results import ResultCache
from ndpsim.simulate.results.cache import digest_of
from ndpsim.workload.models import Expert
from plans import SHORT

MODEL = Expert(96, 40)
LARGE = Expert(1024, 176)  # more than 1000 bursts on each lane of RING
RING = ("dimm.count=8", "host.channels=4", "dimm.ranks=1")
UNREFRESHED = "dram.refresh=none"
QUIET = load_hardware("trimoe", (UNREFRESHED,))


def costs(*sets, model=MODEL, **options):
    return Costs(load_hardware("trimoe", sets), model, cache=False, **options)


# ---- what tables of slowdowns are kept by ---------------------------------------------------------------


def test_a_table_of_slowdowns_is_kept_by_all_that_it_depends_on(monkeypatch):
    """The key of each call differs from that of the first, but for a name; nothing is simulated."""
    keys = []

    class Kept:
        def __init__(self, kind, cache, recording, given, labels):
            keys.append(digest_of(given))

        def find(self, *watching):
            return contention.shared_bandwidth(1.0)

    monkeypatch.setattr(contention, "Lookup", Kept)
    first = dict(hardware=QUIET, model=MODEL, bits=16, arbitration="host-first", cache=False, shards=1)
    others = [
        dict(hardware=load_hardware("trimoe")), dict(hardware=load_hardware("trimoe", (UNREFRESHED, "dram.nRC=142"))),
        dict(model=Expert(96, 41)), dict(model=Expert(98, 40)), dict(bits=8),
        dict(arbitration="slice"), dict(arbitration="ndp-first"), dict(shards=2), dict(shards=2, model=Expert(96, 80)),
        dict(traffic=HostTraffic(4.0, 0.67, "sequential")), dict(traffic=HostTraffic(8.0, 0.67, "sequential")),
    ]  # fmt: skip
    for changed in ({}, *others):
        contention.slowdown_table(**{**first, **changed})
    with measured_by(replace(SHORT, tokens=(1, 9))):
        contention.slowdown_table(**first)
    assert len(set(keys)) == len(others) + 2
    contention.slowdown_table(**{**first, "cache": True})
    assert keys[-1] == keys[0]


def test_the_mean_of_an_expert_is_kept_by_all_that_it_depends_on(monkeypatch):
    """As above; another GPU changes nothing, and a second machine finds what the first one has simulated."""
    cache, asked = ResultCache(disk_bytes=0), []
    simulated = Costs._simulated_over_refresh
    monkeypatch.setattr(
        Costs, "_simulated_over_refresh", lambda *given: asked.append(given) or simulated(*given)
    )

    def cost(*sets, model=MODEL, bits=16, tokens=3, shards=1, share=1.0):
        return Costs(load_hardware("trimoe", sets), model, bits, cache=cache).expert(tokens, shards, share)

    assert cost() == cost() == cost("gpu.memory_gb=20")
    assert len(asked) == 1
    for changed in (
        dict(tokens=4),
        dict(shards=2),
        dict(share=0.5),
        dict(bits=8),
        dict(model=Expert(98, 40)),
    ):
        cost(**changed)
    cost("dimm.ranks=2")
    cost(UNREFRESHED)
    assert len(asked) == 8


def test_a_moved_expert_is_kept_by_all_that_it_depends_on(monkeypatch):
    """As above; an expert of more bytes than move at once is kept by one of its slices."""
    keys = []

    class Kept:
        def __init__(self, kind, cache, recording, given, labels):
            keys.append(digest_of(given))

        def find(self, *watching):
            return relayouts.MovedExpert(1.0, 1, {}, None)

    monkeypatch.setattr(relayouts, "Lookup", Kept)
    first = dict(sets=(UNREFRESHED,), model=MODEL, bits=16, source=Location(0, 2), target=Location(2, 2))
    others = [
        dict(sets=()), dict(sets=(UNREFRESHED, "link.link_gbps=3")), dict(model=Expert(96, 41)), dict(bits=8),
        dict(model=Expert(98, 40)), dict(source=Location(4, 2)), dict(source=Location(0, 4)), dict(target=Location(4, 2)),
    ]  # fmt: skip
    for changed in ({}, *others):
        asked = {**first, **changed}
        ours = costs(*asked["sets"], model=asked["model"], bits=asked["bits"])
        ours.relayout(asked["source"].name, asked["target"].name)
    assert len(set(keys)) == len(keys) == len(others) + 1


# ---- each cost is a simulation's -----------------------------------------------------------------------


@pytest.mark.parametrize(("shards", "layout"), [(1, "localized"), (2, "sharded:2")])
def test_an_expert_takes_what_gemv_says(shards, layout):
    result, cost = simulate_expert(QUIET, MODEL, 3, layout), costs(UNREFRESHED).expert(3, shards)
    assert (cost.time_ns, cost.bytes) == (result.time_ns, result.weight_bytes)
    left_out = {"background", "refresh", "ndp_static", "total"}  # that a run counts once, but for open banks
    for name in set(result.energy_nj) - left_out:
        assert cost.added_nj[name] == result.energy_nj[name], name
    assert set(cost.added_nj) == set(result.energy_nj) - left_out | {"background"}


def test_a_share_of_an_expert_is_an_expert_with_that_share_of_its_columns():
    ours = costs(UNREFRESHED)
    quarter = ours.expert(2, share=0.25)
    assert quarter.time_ns == simulate_expert(QUIET, Expert(96, 10), 2).time_ns < ours.expert(2).time_ns
    assert costs().expert(2, share=0.001).bytes == simulate_expert("trimoe", Expert(96, 1), 2).weight_bytes


def test_more_tokens_than_one_simulation_takes_go_through_an_expert_in_turns(monkeypatch):
    monkeypatch.setattr("ndpsim.inference.layers.costs.MAX_TOKENS", 4)
    ours = costs(UNREFRESHED)
    assert ours.expert(9).time_ns == simulate_expert(QUIET, MODEL, [3, 3, 3]).time_ns
    assert ours.expert(9).bytes == ours.expert(4).bytes


@pytest.mark.parametrize(
    ("hw", "model", "bits", "tokens"),
    [
        ("trimoe", Expert(1024, 333), 2, 1),  # half a refresh interval
        ("trimoe", Expert(2048, 384), 4, 1),  # two
        ("trimoe", Expert(2048, 384), 4, 3),  # refreshes are hidden, partly
        ("edge", Expert(512, 512), 16, 1),
    ],
)
def test_an_expert_takes_the_mean_over_the_phases_of_refresh(hw, model, bits, tokens):
    cost = Costs(hw, model, bits, cache=False).expert(tokens)
    phases = simulate_expert(hw, model, tokens, bits=bits, refresh_phases=250).over_refresh
    assert cost.time_ns == pytest.approx(phases.mean_ns, rel=0.005)
    for name, off in (("activate", 0.1), ("read", 0.01), ("io", 0.01), ("ndp_multiply", 0.01)):
        assert cost.added_nj[name] == pytest.approx(phases.mean_energy_nj[name], rel=off)


def test_a_queue_of_short_experts_takes_the_sum_of_their_costs():
    model, count = Expert(1024, 333), 20
    queue, unrefreshed = (simulate_expert(hw, model, [1] * count, bits=2) for hw in ("trimoe", QUIET))
    cost, quiet = (costs(*sets, model=model, bits=2).expert(1) for sets in ((), (UNREFRESHED,)))
    # All but the first are read ahead while results of the one before leave, which saves 2.1% of each.
    assert queue.time_ns == pytest.approx(count * cost.time_ns, rel=0.02)
    assert queue.time_ns / unrefreshed.time_ns == pytest.approx(cost.time_ns / quiet.time_ns, rel=0.01)


def test_an_expert_of_many_refresh_intervals_is_simulated_once(monkeypatch):
    runs = []

    def counted(*args, **options):
        runs.append(options["refresh_phases"])
        return simulate_expert(*args, **options)

    monkeypatch.setattr("ndpsim.inference.layers.costs.simulate_expert", counted)
    costs(model=Expert(4096, 1536)).expert(1)
    assert runs == [1]


@pytest.mark.parametrize(
    ("shards", "layout", "channels"), [(None, "striped", 8), (1, "localized", 1), (2, "sharded:2", 2)]
)
def test_a_host_read_takes_what_the_host_engine_says(shards, layout, channels):
    result, cost = simulate_host_read("trimoe", MODEL, layout), costs().host_read(shards)
    assert (cost.time_ns, cost.channels) == (result.time_ns, channels)
    assert cost.gbps_per_channel * channels * cost.time_ns == pytest.approx(cost.bytes)


@pytest.mark.parametrize(
    ("source", "target", "given"),
    [
        ("localized 3", "striped", ("localized", "striped", [3], [0])),
        ("striped", "sharded:2 4", ("striped", "sharded:2", [0], [4])),
        ("localized 0", "localized 5", ("localized", "localized", [0], [5])),
    ],
)
def test_a_relayout_takes_what_the_relayout_engine_says(source, target, given):
    result = simulate_relayout("trimoe", MODEL, 1, *given, host=False)
    cost = costs().relayout(source, target)
    assert (cost.time_ns, cost.bytes) == (result.time_ns, 3 * 2 * 96 * 40)
    moved_gbps = sum(cost.dimm_read_gbps.values()) + sum(cost.dimm_written_gbps.values())
    assert moved_gbps * cost.time_ns >= 2 * cost.bytes
    assert cost.wire_ns == {name: share * cost.time_ns for name, share in result.link_busy.items()}


def test_times_on_wires_are_bytes_with_headers_at_the_speed_of_the_link():
    cost = costs(model=LARGE).relayout("localized 0", "localized 2")
    packets = -(-cost.bytes // 256)
    assert cost.wire_ns == pytest.approx(
        dict.fromkeys(("dimm 0 to 1", "dimm 1 to 2"), (cost.bytes + 16 * packets) / 25), rel=0.01
    )
    assert cost.dimm_read_gbps == pytest.approx({0: cost.bytes / cost.time_ns})
    assert cost.dimm_written_gbps == pytest.approx({2: cost.bytes / cost.time_ns})


@pytest.mark.parametrize("changed", ["dram.overrides.nRFC=1500", "dram.overrides.nCL=60"])
def test_what_the_hardware_file_says_of_the_memory_changes_costs_as_it_changes_simulations(changed):
    hardware = load_hardware("trimoe", (changed,))
    slow, usual = costs(changed, model=LARGE), costs(model=LARGE)
    assert slow.expert(1).time_ns > usual.expert(1).time_ns
    assert slow.host_read(1).time_ns > usual.host_read(1).time_ns
    over = simulate_expert(hardware, LARGE, refresh_phases=250).over_refresh
    assert slow.expert(1).time_ns == pytest.approx(over.mean_ns, rel=0.02)  # nRFC is a sixth of nREFI
    assert slow.host_read(1).time_ns == simulate_host_read(hardware, LARGE, "localized").time_ns
    moved_ns = slow.relayout("localized 0", "striped").time_ns  # links bind it
    assert moved_ns == simulate_relayout(hardware, LARGE, host=False).time_ns


def test_the_width_of_a_link_changes_relayouts_as_it_changes_the_relayout_engine():
    sets = ("link.lanes=4", "link.link_gbps=12.5")
    narrow = costs(*sets, model=LARGE).relayout("localized 0", "striped").time_ns
    assert narrow == simulate_relayout(load_hardware("trimoe", sets), LARGE, host=False).time_ns
    assert narrow > 1.8 * costs(model=LARGE).relayout("localized 0", "striped").time_ns


def test_every_cost_is_simulated_once(monkeypatch):
    calls = []

    def counted(*args, **options):
        calls.append(args[2])
        return simulate_expert(*args, **options)

    monkeypatch.setattr("ndpsim.inference.layers.costs.simulate_expert", counted)
    ours = costs(UNREFRESHED)
    assert [ours.expert(n) for n in (3, 4, 3)] == [ours.expert(n) for n in (3, 4, 3)]
    assert calls == [[3], [4]]


def test_costs_come_from_the_cache_of_results(tmp_path):
    cache = ResultCache(tmp_path)
    hardware = load_hardware("trimoe", RING)

    def asked():
        ours = Costs(hardware, MODEL, cache=cache)
        return ours.expert(2), ours.host_read(None), ours.relayout("localized 1", "striped")

    first, computed = asked(), cache.misses
    assert asked() == first
    assert cache.misses == computed


def test_what_the_hardware_cannot_do_is_said():
    with refused("range layout"):
        costs().expert(1, shards=32)
    with refused("conflict target"):
        costs().relayout("localized 1", "localized 1")


# ---- relayouts that are alike --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "target", "exact"),
    [
        ("localized 3", "localized 5", True),
        ("localized 6", "localized 2", True),  # to the DIMM opposite, up
        ("localized 7", "localized 3", True),  # and down
        ("localized 5", "striped", False),
        ("striped", "localized 3", False),
        ("striped", "localized 4", False),
    ],
)
def test_relayouts_alike_on_a_ring_take_the_same_on_the_wires_that_their_packets_take(source, target, exact):
    sets = load_hardware("trimoe", RING)
    (first, _, a), (second, _, b) = source.partition(" "), target.partition(" ")
    result = simulate_relayout(sets, LARGE, 1, first, second, [int(a or 0)], [int(b or 0)], host=False)
    cost = Costs(sets, LARGE, cache=False).relayout(source, target)
    wire_ns = {name: share * result.time_ns for name, share in result.link_busy.items()}
    assert cost.time_ns == pytest.approx(result.time_ns, rel=1e-12 if exact else 1e-2)
    assert cost.wire_ns == pytest.approx(wire_ns, rel=1e-9 if exact else 1e-2)


@pytest.mark.parametrize(("hop_ns", "simulated"), [(10, [1, 4]), (500, [1, 2, 3, 4])])
def test_only_the_nearest_and_the_farthest_dimm_are_simulated_if_distance_hardly_matters(
    hop_ns, simulated, monkeypatch
):
    sets, model, targets = (*RING, f"link.hop_latency_ns={hop_ns}"), Expert(1024, 512), []
    # On a chain, which has these routes, every relayout is simulated.
    chain = Costs(load_hardware("trimoe", (*sets, "link.topology=chain")), model, cache=False)
    each = {n: chain.relayout("localized 0", f"localized {n}") for n in (1, 2, 3, 4)}

    def counted(*args, **options):
        targets.extend(args[6])
        return simulate_relayout(*args, **options)

    monkeypatch.setattr("ndpsim.inference.layers.relayouts.simulate_relayout", counted)
    ring = Costs(load_hardware("trimoe", sets), model, cache=False)
    for n, expected in each.items():
        cost = ring.relayout("localized 0", f"localized {n}")
        assert cost.time_ns == pytest.approx(expected.time_ns, rel=1e-5)
        assert cost.wire_ns == pytest.approx(expected.wire_ns, rel=1e-9)
        assert cost.dimm_written_gbps == pytest.approx(expected.dimm_written_gbps, rel=1e-5)
        assert cost.added_nj == pytest.approx(expected.added_nj, rel=1e-3)
    assert sorted(targets) == simulated


@pytest.mark.parametrize(("model", "sets"), [(MODEL, RING), (LARGE, (*RING, "link.topology=chain"))])
def test_relayouts_that_are_not_alike_are_simulated_each(model, sets):
    hardware = load_hardware("trimoe", sets)
    cost = Costs(hardware, model, cache=False).relayout("localized 5", "striped")
    result = simulate_relayout(hardware, model, 1, "localized", "striped", [5], [0], host=False)
    assert cost.time_ns == result.time_ns


# ---- what a policy may expect --------------------------------------------------------------------------


def test_expected_times_are_simulated_ones_at_their_points_and_on_lines_between():
    ours = costs()
    expected, error = ours.expected_ns(20)
    assert len(expected) == 21
    assert expected[0] == 0
    for tokens in (1, 2, 3, 4, 6, 8, 12, 16, 20):
        assert expected[tokens] == ours.expert(tokens).time_ns
    assert expected[14] == pytest.approx((expected[12] + expected[16]) / 2)
    between = [abs(expected[n] / ours.expert(n).time_ns - 1) for n in (5, 7, 10, 14, 18)]
    assert error == max(between)


def test_expected_times_beyond_the_last_point_go_on_along_the_line(monkeypatch):
    monkeypatch.setattr("ndpsim.inference.layers.costs._LAST_SIMULATED", 8)
    ours = costs()
    expected, error = ours.expected_ns(30)
    assert expected[10] == pytest.approx(expected[8] + (expected[8] - expected[6]))
    assert error >= abs(expected[16] / ours.expert(16).time_ns - 1)


# ---- contention ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tables():
    """The table of a memory-bound and a compute-bound expert by arbitration; for one, also beside relayouts."""
    model = Expert(1024, 512)
    found = {"host-first": costs(model=model).contention()}
    with measured_by(replace(SHORT, relayout_tokens=())):
        found["ndp-first"] = costs(model=model, arbitration="ndp-first").contention()
    return found


def test_an_expert_loses_more_to_the_host_the_more_it_reads_and_the_less_it_computes(tables):
    table = tables["host-first"]
    assert table.streams.tolist() == [1, 2]
    assert table.ndp_speed.shape == (2, len(table.tokens), len(table.host_gbps)) == (2, 2, 6)
    assert (table.ndp_speed[:, :, 0] == 1).all()
    ndp_speed = table.ndp_speed[0]  # beside one read
    assert (np.diff(ndp_speed[0]) < 0.05).all()  # the rhythm of reads and experts, see the module
    assert ndp_speed[0, -1] < ndp_speed[0, 2] < ndp_speed[0, 1]
    assert (ndp_speed[0, 1:] < ndp_speed[1, 1:]).all()
    assert table.host_gbps[-1] == pytest.approx(33.9, abs=0.8)  # what a localized host read reaches alone
    # The host takes at least its own bursts of the lanes' time, and at most whole ranks.
    assert 1 - 34 / 136 - 0.06 < ndp_speed[0, -1] < 1 - 34 / 153.6 + 0.06


def test_the_host_reads_as_if_alone_where_it_is_first_and_hardly_where_it_is_not(tables):
    assert (tables["host-first"].host_speed[0] > 0.97).all()
    assert tables["ndp-first"].host_speed[0, 0] < 0.3
    assert tables["ndp-first"].ndp_speed[0, 0].min() > tables["host-first"].ndp_speed[0, 0].min()


def test_vectors_take_the_bus_from_host_reads_for_at_least_as_long_as_they_last(tables):
    """In and out, 1024 values of 2 bytes of each token at 38.4 GB/s, and turns of the bus."""
    for tokens in (1, 4, 16, 64):
        way_ns = 2 * tokens * 1024 * 2 / 38.4
        bus_ns, pause_ns = tables["host-first"].vectors_ns(tokens)
        assert 0.9 * way_ns < bus_ns < 1.4 * way_ns + 1000
        assert 0 <= pause_ns < bus_ns


def test_long_measuring_is_announced(monkeypatch, capsys):
    def stop():
        raise InterruptedError

    monkeypatch.setattr(contention, "simulation_threads", stop)
    with pytest.raises(InterruptedError), notices():
        contention.slowdown_table(QUIET, MODEL, 16, "host-first", False)
    assert re.fullmatch(r"ndpsim: measuring .* \d+ simulations \.\.\.\n", capsys.readouterr().err)


def test_relayouts_slow_experts_and_writing_more_than_reading(tables):
    table = tables["host-first"]
    assert table.moved_gbps[0] == 0
    assert table.ndp_speed_moving.shape == (2, 2, len(table.moved_gbps))
    assert (table.ndp_speed_moving[:, :, 0] == 1).all()
    assert (table.ndp_speed_moving[:, 0, -1] < 0.9).all()
    beside_reads, beside_writes = table.ndp_speed_moving
    assert (beside_writes[:, -1] < beside_reads[:, -1]).all()
    for crowded in (table.ndp_crowded, table.moving_crowded):
        assert crowded.shape == (2, 2, len(table.host_gbps))
        assert (crowded[:, :, 0] == 1).all()
        assert 0.3 < crowded.min() < 0.98
    assert (table.most_moved_gbps > 1).all()


def test_without_links_there_is_nothing_beside_relayouts():
    with measured_by(replace(SHORT, tokens=(1,), window_ns=(200.0, 2000.0))):
        table = costs("dimm.count=8").contention()  # one DIMM on a channel
    assert table.ndp_speed_moving.tolist() == [[[1.0]], [[1.0]]]
    assert (table.ndp_crowded == 1).all()
    assert (table.moving_crowded == 1).all()
    assert np.isinf(table.most_moved_gbps).all()


def test_contention_comes_from_the_cache_and_depends_on_the_memory_and_the_plan(tmp_path):
    cache, plan = ResultCache(tmp_path), replace(SHORT, tokens=(1,), relayout_tokens=(), window_ns=(1e3, 8e3))

    def asked(*sets, cache=cache, **others):
        with measured_by(replace(plan, **others)):
            return Costs(load_hardware("trimoe", sets), LARGE, cache=cache).contention()

    first = asked()
    for again in (asked(), asked(cache=ResultCache(tmp_path))):  # from memory, and from the folder
        for name, array in first._asdict().items():
            assert getattr(again, name).tolist() == array.tolist(), name
            assert getattr(again, name).dtype == array.dtype, name
    assert cache.hits == 1
    assert asked("dram.nRFC=2000").ndp_speed.tolist() != first.ndp_speed.tolist()
    assert asked(tokens=(2,)).tokens.tolist() == [2]


@pytest.mark.long  # commands of the pages that show output have the plan of users, too
def test_users_have_more_entries_that_say_the_same(tables, plan_of_users):
    whole, short = costs(model=Expert(1024, 512)).contention(), tables["host-first"]
    assert whole.tokens.tolist() == [1, 3, 8, 20]
    assert whole.vector_tokens.tolist() == [1, 4, 16]
    assert whole.ndp_speed.shape == (2, 4, 6)
    assert whole.ndp_crowded.shape == whole.moving_crowded.shape == (2, 4, 6)
    assert whole.ndp_speed_moving.shape == (2, 4, len(whole.moved_gbps))
    assert whole.host_gbps / whole.host_gbps[-1] == pytest.approx([0, 0.25, 0.5, 0.7, 0.85, 1])
    assert whole.host_gbps == pytest.approx(short.host_gbps, rel=0.03)
    assert whole.ndp_speed[0, 0] == pytest.approx(short.ndp_speed[0, 0], abs=0.1)


def test_between_measured_numbers_of_tokens_slowdowns_go_by_the_logarithm():
    table = SimpleNamespace(tokens=np.array([1, 4, 16]), vectors_ns=lambda tokens: (0.0, 0.0))
    found = _BesideOfTokens(table, (1, 2))
    assert [(found[count, 1].row, found[count, 1].between) for count in (1, 2, 4, 8, 16, 99)] == [
        (0, 0.0), (0, 0.5), (1, 0.0), (1, 0.5), (2, 0.0), (2, 0.0)
    ]  # fmt: skip
    assert (found[2, 2].row, found[2, 2].between) == (3, 0.5)
