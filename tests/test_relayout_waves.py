"""Experts that are relaid out in waves; `ndpsim relayout`."""

from __future__ import annotations

import functools
import itertools
import json
import random
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calls import call, refused_call
from ndpsim import check_lanes, load_hardware, read_commands, simulate_relayout
from ndpsim.dimm.layout import ExpertFormat, ExpertWeights
from ndpsim.simulate.machine import geometry_of
from ndpsim.simulate.relayout_plan import access_by_host, access_by_units, plan_transfers
from ndpsim.simulate.relayout_run import _uses_ns, choose_waves
from ndpsim.workload.models import Expert

EXPERT = Expert(1024, 256)
HARDWARE = load_hardware("trimoe", ["ndp.relayout.concurrent_experts=4"])
GEOMETRY = geometry_of(HARDWARE)
WEIGHTS = ExpertWeights(256, 48, ExpertFormat.of(16))


def move(source_dimms, target="striped", target_dimms=None, **options):
    experts = len(source_dimms)
    options.setdefault("host", False)
    return simulate_relayout(
        HARDWARE, EXPERT, experts, "localized", target, source_dimms, target_dimms, **options
    )


def test_the_order_of_experts_makes_no_difference():
    dimms = list(range(0, 16, 2))
    results = []
    for order in (dimms, dimms[::-1], [0, 4, 8, 12, 2, 6, 10, 14], [14, 12, 0, 2, 8, 6, 10, 4]):
        results.append(move(order, host=True))
        assert results[-1].config["source_dimms"] == order
    assert len({(result.time_ns, result.host.time_ns) for result in results}) == 1
    # As fast as the two halves that keep experts' ways on the ring apart, each by itself; from neighbours the
    # links of a half of the ring carry what those of all could, and it took 1.75 times as long.
    apart = sum(move(half).time_ns for half in ([0, 4, 8, 12], [2, 6, 10, 14]))
    assert results[0].time_ns == pytest.approx(apart, rel=0.002)


def test_experts_for_one_dimm_go_one_after_the_other():
    # Those for DIMM 8 and those for DIMM 9: one of each in each wave.
    sources, targets = [0, 1, 2, 3, 4, 5, 6, 7], [8, 8, 8, 8, 9, 9, 9, 9]
    hardware = load_hardware(
        "trimoe", ["ndp.relayout.concurrent_experts=2", "link.topology=full", "link.ports=15"]
    )
    access = access_by_units(hardware, GEOMETRY)
    transfers = plan_transfers(GEOMETRY, WEIGHTS, ("localized", sources), ("localized", targets))
    for wave in choose_waves(access, transfers, 2):
        assert sorted(transfers[expert].target.dimms for expert in wave) == [[8], [9]]


@pytest.mark.parametrize(("source", "target"), [("sharded:2", 2), ("striped", 5)])
def test_the_estimate_of_a_link_is_what_a_relayout_sends_over_it(source, target):
    weights = ExpertWeights(EXPERT.hidden, EXPERT.intermediate, ExpertFormat.of(16))
    access = access_by_units(HARDWARE, GEOMETRY)
    (transfer,) = plan_transfers(GEOMETRY, weights, (source, [0]), ("localized", [target]))
    wires_ns = _uses_ns(access, transfer)[GEOMETRY.dimms * GEOMETRY.lanes :]
    moved = simulate_relayout(HARDWARE, EXPERT, 1, source, "localized", [0], [target], host=False)
    assert moved.bounds_ns["links"] == pytest.approx(wires_ns.max() * 272 / 256, rel=0.01)  # with headers


def uses_ns(access, transfers):
    """By expert, how long it takes at least of each lane and wire, burst by burst and way by way."""
    burst_ns, found = access.timebase.to_ns(access.tables.burst * access.timebase.ticks[0]), []
    for source, target in transfers:
        of = Counter()
        for layout in (source, target):
            lanes = [
                int(access.dimm_lanes.lane[dimm * layout.geometry.lanes + lane])
                for dimm in layout.dimms
                for lane in range(layout.geometry.lanes)
            ]
            for lane in lanes:
                of[lane] += layout.bursts * burst_ns / len(lanes)
        for one in source.dimms:
            for other in target.dimms:
                for number in access.network.route(one, other) if access.network.dimms > 1 else []:
                    hop = access.network.hops[number]
                    share = 256 * 48 * 3 * 2 / len(source.dimms) / len(target.dimms) / hop.gbps
                    of["wire", hop.wire] += share
        found.append(of)
    return found


def least_ns(uses, waves):
    """What waves take at least: of each, its busiest wire or lane."""
    return sum(max(sum((uses[expert] for expert in wave), Counter()).values()) for wave in waves)


def exchanged(waves, at_once):
    """Pairs of waves, each before and after two of their experts change places, or one takes a free place."""
    for one, other in itertools.permutations(waves, 2):
        for a in one:
            rest = [expert for expert in one if expert != a]
            if rest and len(other) < at_once:
                yield (one, other), (rest, [*other, a])
            for b in other:
                yield (one, other), ([*rest, b], [a, *(expert for expert in other if expert != b)])


@functools.cache
def access_over(topology, access, gbps=25):
    sets = [
        f"link.topology={topology}",
        "link.ports=15",
        f"link.link_gbps={gbps}",
        f"link.lane_gbit_s={gbps}",
    ]
    return access(load_hardware("trimoe", sets), GEOMETRY)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_waves_are_no_worse_than_simple_orders_and_no_exchange_of_two_experts_makes_them_better(data):
    topology = data.draw(st.sampled_from(["chain", "ring", "mesh", "full", "bus", "groups"]))
    by, gbps = (
        data.draw(st.sampled_from([access_by_units, access_by_host])),
        data.draw(st.sampled_from([25, 400])),
    )
    access = access_over(topology, by, gbps)  # with links that hold it up, or the DRAM
    experts, at_once = data.draw(st.integers(1, 9)), data.draw(st.integers(1, 5))
    layouts = data.draw(
        st.lists(st.sampled_from(["localized", "sharded:4", "striped"]), min_size=2, max_size=2)
    )
    last = {"localized": 15, "sharded:4": 12, "striped": 0}
    ends = [
        data.draw(st.lists(st.integers(0, last[layout]), min_size=experts, max_size=experts))
        for layout in layouts
    ]

    def planned(order):
        pairs = [(layout, [dimms[n] for n in order]) for layout, dimms in zip(layouts, ends, strict=True)]
        return plan_transfers(GEOMETRY, WEIGHTS, *pairs)

    def where(transfers, waves):
        return [
            [(layout.dimms, layout.base) for expert in wave for layout in transfers[expert]] for wave in waves
        ]

    transfers = planned(range(experts))
    waves, count = choose_waves(access, transfers, at_once), -(-len(transfers) // at_once)
    assert sorted(expert for wave in waves for expert in wave) == list(range(len(transfers)))
    assert len(waves) == count
    assert all(1 <= len(wave) <= at_once for wave in waves)
    everyone = np.arange(len(transfers))
    simple = [
        [everyone[n : n + at_once] for n in range(0, len(transfers), at_once)],
        [everyone[n::count] for n in range(count)],
    ]
    uses = uses_ns(access, transfers)
    assert all(least_ns(uses, waves) <= least_ns(uses, other) * (1 + 1e-6) for other in simple)
    for before, after in exchanged(waves, at_once):
        assert least_ns(uses, before) <= least_ns(uses, after) * (1 + 1e-6)
    shuffled = list(range(experts))
    random.Random(experts).shuffle(shuffled)
    again = planned(shuffled)
    assert where(transfers, waves) == where(again, choose_waves(access, again, at_once))


def test_five_experts_are_in_the_best_of_all_pairs_of_waves():
    # Exchanges alone end 17% above it when they begin with neighbours in different waves.
    access = access_over("ring", access_by_units)
    ends = ("sharded:4", [4, 2, 11, 0, 3]), ("localized", [9, 3, 4, 14, 3])
    transfers = plan_transfers(GEOMETRY, WEIGHTS, *ends)
    uses, everyone = uses_ns(access, transfers), set(range(5))
    firsts = (set(some) for size in (1, 2, 3, 4) for some in itertools.combinations(range(5), size))
    best = min(least_ns(uses, (first, everyone - first)) for first in firsts)
    assert least_ns(uses, choose_waves(access, transfers, 4)) == pytest.approx(best)


# ---- ``ndpsim relayout``: what it prints and writes, and what it refuses

SMALL = [
    "relayout", "--shape", "128,32", "--set", "dimm.count=4", "--set", "host.channels=2", "--set", "dimm.ranks=1"
]  # fmt: skip


def test_json_alone_is_printed():
    status, out, _ = call(*SMALL, "--experts", "2", "--json", "-", "--no-host")
    result = json.loads(out)
    assert (status, result["host"]) == (0, None)
    assert (result["moved"], result["weight_bytes"]) == (2, 2 * 3 * 128 * 32 * 2)
    assert result["topology"] == "ring"


def test_the_text_says_time_bottleneck_and_the_host():
    status, out, _ = call(*SMALL, "--from", "striped", "--to", "sharded:2")
    assert status == 0
    for words in (
        "1 expert of 128 x 32 on trimoe, striped to sharded:2",
        "bottleneck",
        "waves 1",
        "by the host",
    ):
        assert words in out


def test_all_topologies_with_the_ports_they_need():
    status, out, _ = call(*SMALL, "--topology", "all", "--json", "-")
    results = json.loads(out)
    assert (status, list(results)) == (0, ["chain", "ring", "mesh", "full", "bus", "groups"])
    assert [one["config"]["hardware"]["link"]["ports"] for one in results.values()] == [2, 2, 2, 3, 2, 2]
    assert len({json.dumps(one["host"]) for one in results.values()}) == 1
    assert all(one["host_speedup"] == one["host"]["time_ns"] / one["time_ns"] for one in results.values())
    status, out, _ = call(*SMALL, "--topology", "all")
    assert all(f"\n{name}" in out for name in results)


def test_files_are_written(tmp_path):
    commands, timeline, plot = tmp_path / "c.csv.gz", tmp_path / "t.json", tmp_path / "p.png"
    assert call(*SMALL, "--commands", commands, "--timeline", timeline, "--plot", plot).status == 0
    device = load_hardware("trimoe", ["dimm.ranks=1"]).lane_device()
    report = check_lanes(read_commands(str(commands)), device, lanes=8)
    assert report.ok
    assert report.commands > 0
    events = json.loads(timeline.read_text())["traceEvents"]
    assert {event["name"] for event in events if event["ph"] == "X"} == {"read", "write"}
    assert plot.read_bytes().startswith(b"\x89PNG")


def test_commands_of_experts_that_take_turns_are_refused_before_they_move(tmp_path, monkeypatch):
    monkeypatch.setattr("ndpsim.simulate.simulate_relayout", lambda *_, **__: pytest.fail("simulated"))
    assert refused_call(*SMALL, "--experts", 5, "--commands", tmp_path / "c.csv") == "unsupported --commands"
    assert list(tmp_path.iterdir()) == []
