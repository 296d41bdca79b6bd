"""The energy of a run: what memory draws at rest once, and what each expert, host read and relayout adds.

Expectations come from the limits of the data sheet (MT60B2G8 at 4800 MT/s) in mA and V, worked out here: a rank
of trimoe has 4 chips, a burst 64 bytes and 8 clocks of 1/2.4 ns, and 16 DIMMs have 4 ranks on 2 sub-channels.
"""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from builders.small_moe import CACHE, EXPERT_BYTES, MODEL, alone_on, moe, recorded, trace_of
from ndpsim.config import load_hardware
from ndpsim.dram.energy import count_trace
from ndpsim.inference.layers.costs import Costs
from ndpsim.inference.layers.record import MigrationRecord
from ndpsim.inference.layers.totals import Totals
from ndpsim.policies import Assignment, Migration, Part, Placement, Policy
from ndpsim.policies.answers import CheckedAssignment
from ndpsim.policies.interface import Parts
from ndpsim.policies.views import STRIPED, LayerPlacement, LayerView
from ndpsim.simulate import simulate_host_read, simulate_relayout

RANKS = 16 * 4 * 2
CLOSED_W = 4 * (1.1 * 92 + 1.8 * 6) / 1000  # IDD2N and IPP2N
OPEN_BANK_W = 4 * (1.1 * (142 - 92) + 1.8 * (7 - 6)) / 32 / 1000  # IDD3N has all 32 banks open
REFRESH_NJ = 4 * (1.1 * (277 - 92) + 1.8 * (28 - 6)) / 1000 * 410  # IDD5B, a part of 32 Gb
REFRESH_EACH_NS = 3900
BURST_NS = 8 / 2.4
READ_NJ = 4 * (1.1 * (377 - 142) + 1.8 * (9 - 7)) / 1000 * BURST_NS
WRITE_NJ = 4 * (1.1 * (349 - 142) + 1.8 * (36 - 7)) / 1000 * BURST_NS
BURSTS = EXPERT_BYTES // 64
ONE: dict[str, Any] = dict(batch=1, layers=[1])


def alone(engine: str) -> type[Policy]:
    """As `alone_on`, without slowdowns: no energy depends on them, and they take long to simulate."""
    return type("Alone", (alone_on(engine),), {"contention": False})


def at_rest_nj(time_ns: float) -> dict[str, float]:
    return {
        "background": RANKS * CLOSED_W * time_ns,
        "refresh": RANKS * REFRESH_NJ * time_ns / REFRESH_EACH_NS,
    }


class OnGpu(alone("gpu")):
    """All experts in the GPU's memory."""

    def place(self, view: Any) -> Placement:
        placement = super().place(view)
        placement.resident[:] = True
        return placement


def test_memory_that_nobody_reads_is_paid_for_over_the_whole_time():
    run = moe(OnGpu, gpu_experts=16, prompt=4).runs[0]
    expected = at_rest_nj(run.time_ns)
    known = {name: nj for name, nj in run.energy_nj.items() if nj and name != "total"}
    assert known == pytest.approx(expected, rel=0.003)  # tREFI is 9375 clocks, 0.16% more than 3900 ns
    assert run.energy_nj["total"] == pytest.approx(sum(known.values()))
    assert "standby of all memory over the whole time" in run.energy_note


def test_refreshes_that_are_switched_off_cost_nothing():
    run = moe(OnGpu, gpu_experts=16, sets=["dram.refresh=none"]).runs[0]
    assert run.energy_nj["refresh"] == 0
    assert run.energy_nj["background"] == pytest.approx(at_rest_nj(run.time_ns)["background"])


def test_twice_the_dimms_draw_twice_as_much_at_rest():
    one, two = (Costs(load_hardware("trimoe", [f"dimm.count={n}"]), MODEL).standby.over(1e6) for n in (8, 16))
    for name in ("background", "refresh"):
        assert two[name] == pytest.approx(2 * one[name])


@pytest.mark.parametrize("engine", ["cpu", "gpu", "ndp"])
def test_weights_cost_their_bursts_wherever_they_are_computed(engine):
    run = moe(alone(engine), routing=trace_of([0, 1, 2, 3], steps=3), steps=3, batch=2, layers=[1],
              gpu_experts=0).runs[0]  # fmt: skip
    assert run.energy_nj["read"] == pytest.approx(3 * 4 * BURSTS * READ_NJ)
    standby = at_rest_nj(run.time_ns)
    assert run.energy_nj["refresh"] == pytest.approx(standby["refresh"], rel=0.003)
    # No more than a third of the banks is open while they are read, of no more than all ranks.
    assert 1 < run.energy_nj["background"] / standby["background"] < 1 + OPEN_BANK_W * 11 / CLOSED_W


def test_a_share_of_an_expert_costs_its_share():
    class Half(alone("gpu")):
        def assign(self, view: Any) -> Assignment:
            return Assignment(gpu=[Part(0, 0.25), 1], cpu=[Part(0, 0.75)])

    run = moe(Half, routing=trace_of([0, 1]), steps=1, gpu_experts=0, **ONE).runs[0]
    assert run.energy_nj["read"] == pytest.approx(2 * BURSTS * READ_NJ)


def test_parts_and_whole_experts_on_ndp_units_cost_their_own_bursts():
    class Quarter(alone("ndp")):
        def assign(self, view: Any) -> Assignment:
            return Assignment(cpu=[Part(0, 0.75)], ndp=[Part(0, 0.25), 1, 2, 3])

    run = moe(Quarter, routing=trace_of([0, 1, 2, 3]), steps=1, batch=2, layers=[1], gpu_experts=0).runs[0]
    assert run.energy_nj["read"] == pytest.approx(4 * BURSTS * READ_NJ)


def test_a_copy_that_stays_is_read_once():
    class Keeps(alone("gpu")):
        def background(self, view: Any) -> list[Migration]:
            return [Migration("keep", 1, 0)] if view.step == 0 else []

    run = moe(Keeps, routing=trace_of([0, 1], steps=3), steps=3, **ONE).runs[0]
    assert run.migrations["keep"]["count"] == 1
    assert run.energy_nj["read"] == pytest.approx((2 + 1 + 1) * BURSTS * READ_NJ)


def test_a_prefetch_is_a_host_read():
    class Fetches(alone("cpu")):
        def background(self, view: Any) -> list[Migration]:
            return [Migration("prefetch", 1, expert) for expert in (4, 5)] if view.step == 0 else []

    run = moe(Fetches, routing=trace_of([0, 1], steps=4), steps=4, **ONE).runs[0]
    assert run.migrations["prefetch"]["count"] == 2
    assert run.energy_nj["read"] == pytest.approx((4 * 2 + 2) * BURSTS * READ_NJ)


def test_a_kv_cache_with_the_host_is_read_there_and_not_with_the_gpu():
    host, gpu = (moe(OnGpu, gpu_experts=16, kv=kv, layers=[1, 3]).runs[0] for kv in ("host", "gpu"))
    # Keys and values of 4 heads of 64, 16 bits each, of 63 tokens before the new one: 32 sequences, 2 layers, 3 steps.
    cached_bytes = 2 * 4 * 64 * 2 * 63 * 32 * 2 * 3
    assert host.energy_nj["read"] == pytest.approx(cached_bytes / 64 * READ_NJ)
    assert not gpu.energy_nj.get("read")


# ---- Relayouts -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("most", [1 << 26, EXPERT_BYTES // 7])
def test_a_relayout_moves_every_burst_once_in_whatever_slices(most, monkeypatch):
    monkeypatch.setattr("ndpsim.inference.layers.relayouts._MOST_MOVED", most)
    costs = Costs("trimoe", MODEL, cache=CACHE)
    cost = costs.relayout("localized 0", "localized 1")
    assert costs.relayouts._slices == (1 if most > EXPERT_BYTES else 8)  # the first that divides 256 columns
    assert cost.bytes == EXPERT_BYTES
    assert cost.added_nj["read"] == pytest.approx(BURSTS * READ_NJ)
    assert cost.added_nj["write"] == pytest.approx(BURSTS * WRITE_NJ)
    assert 0 < cost.added_nj["background"] < 0.2 * 16 * 8 * CLOSED_W * cost.time_ns
    packets = EXPERT_BYTES / 256
    assert cost.added_nj["link"] == pytest.approx((EXPERT_BYTES + 16 * packets) * 8 * 1.17 / 1000, rel=1e-3)


class Moves(alone("gpu")):
    """Four relayouts after the first step, and all experts on the GPU."""

    moved: tuple[int, ...] = ()

    def place(self, view: Any) -> Placement:
        placement = Policy.place(self, view)
        placement.resident[:] = True
        placement.dimm[:] = np.arange(16) // 2 * 2
        return placement

    def background(self, view: Any) -> list[Migration]:
        return [Migration("rebalance", 1, n, n // 2 * 2 + 1) for n in self.moved] if view.step == 0 else []


@pytest.mark.parametrize("moved", [(0,), (0, 1, 8, 12)])
def test_relayouts_at_once_add_what_each_adds_to_one_standby(moved):
    given = dict(routing=trace_of([0, 1], steps=30), steps=30, gpu_experts=16, sets=["dram.refresh=none"])
    run, layers, _ = recorded(type("Moves", (Moves,), {"moved": moved}), **given, **ONE)
    done = [one for layer in layers for one in layer.migrations]
    assert len(done) == len(moved)
    assert len({one.start_ns for one in done}) == 1  # all begin at once
    one = Costs(load_hardware("trimoe", ["dram.refresh=none"]), MODEL).relayout("localized 0", "localized 1")
    for name, nj in one.added_nj.items():
        expected = len(moved) * (nj or 0)
        if name == "background":
            expected += at_rest_nj(run.time_ns)[name]
        assert run.energy_nj[name] == pytest.approx(expected, rel=1e-9), name
    assert run.energy_nj["write"] == pytest.approx(len(moved) * BURSTS * WRITE_NJ)


def test_four_relayouts_at_once_are_four_single_ones_but_for_their_standby():
    four = simulate_relayout(
        "trimoe", MODEL, 4, "localized", "localized", [0, 4, 8, 12], [1, 5, 9, 13], host=False, cache=CACHE
    )
    costs = Costs("trimoe", MODEL, cache=CACHE)
    added = costs.standby.above(four.energy_nj, 16, four.time_ns)
    single = costs.relayout("localized 0", "localized 1").added_nj
    assert added == pytest.approx({name: 4 * nj for name, nj in single.items()}, rel=0.02)


# ---- What is at rest, and what is not ------------------------------------------------------------------------


@pytest.mark.parametrize(("shards", "layout"), [(1, "localized"), (None, "striped")])
def test_what_a_host_read_adds_to_background_are_the_banks_that_it_holds_open(shards, layout):
    hardware = load_hardware("trimoe")
    result = simulate_host_read(hardware, MODEL, layout, record_commands=True)
    device = hardware.bus_device(4 * 2)  # of both DIMMs of a channel
    open_clocks = sum(
        count_trace(trace, device, end=result.cycles + 1, start=1).open_clocks
        for trace in result.command_traces
    )
    added = Costs(hardware, MODEL, cache=CACHE).host_read(shards).added_nj
    assert added["background"] == pytest.approx(open_clocks / 2.4 * OPEN_BANK_W, rel=1e-6)
    assert "refresh" not in added


def test_without_a_data_sheet_the_memory_is_not_known():
    run = moe(OnGpu, gpu_experts=16, steps=1, sets=["dram.timing=DDR5_3200AN"]).runs[0]
    assert run.energy_nj["dram"] is None
    assert "background" not in run.energy_nj


def test_a_read_of_few_bits_costs_its_share_of_a_read_in_full():
    """A CPU computes half of an expert in 4 of 16 bits, and a replica of a quarter of the bytes is prefetched."""
    one = np.zeros(1, np.int16)
    placement = LayerPlacement(one + STRIPED, one + 1, np.zeros(1, np.bool_))
    nowhere = np.zeros(1, np.bool_)
    view = LayerView("decode", 0, 1, np.array([3]), 3, placement, nowhere, np.zeros((3, 1), np.int16))
    totals = Totals(16, 1000, 1, 4)
    none, half = Parts(np.array([], np.int64), np.array([])), Parts(np.array([0]), np.array([0.5]))
    layer: Any = SimpleNamespace(
        view=view,
        assigned=CheckedAssignment(none, half, none, None, {0: 4}, False, 0.0, []),
        began_ns=0.0,
        end_ns=1.0,
        visit=SimpleNamespace(shared_ns=0.0),
        path=SimpleNamespace(waited_ns={}),
        on_ndp=none.experts,
    )
    totals.layer_done(layer)
    reads = SimpleNamespace(
        at_rest_nj=lambda time_ns: {},
        host_read=lambda shards: SimpleNamespace(added_nj={"read": 80.0}),
        standby=SimpleNamespace(note=""),
    )
    assert totals.energy(reads, None, 1.0)[0]["read"] == 80 * 0.5 * 4 / 16
    moved = MigrationRecord("prefetch", 1, 0, "striped", "gpu", 250, 0.0, 0.0, 1.0, 0.0)
    totals.migrated([moved])
    assert totals.energy(reads, None, 1.0)[0]["read"] == 80 * (0.5 * 4 / 16 + 250 / 1000)


def test_migrations_of_a_kind_are_added_up() -> None:
    totals = Totals(16, 1000, 1, 4)
    one = MigrationRecord("prefetch", 0, 0, "striped", "gpu", 1000, 0.0, 10.0, 50.0, 30.0)
    totals.migrated([one, replace(one, start_ns=60.0, end_ns=80.0, hidden_ns=5.0)])
    assert totals.migrations["prefetch"] == {"count": 2, "bytes": 2000, "hidden_ns": 35.0, "exposed_ns": 25.0}
