"""Runs that are worked out by hand: a prefill, a KV cache with the host, a copy that stays, and moves of experts.

Nothing expected here comes from ndpsim: sizes are counted from the model, times from the rates in Table 1 of the
paper on trimoe. PCIe carries 1 GB/s in place of 64, so that it decides all times that it takes part in.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pytest

from builders import policy_machines
from builders.small_moe import CACHE, CACHED_BYTES, MODEL, moe, of_kind, recorded, trace_of
from mistakes import refused
from ndpsim.config import Hardware, load_hardware
from ndpsim.inference.layers.costs import Costs
from ndpsim.inference.layers.recorder import estimates_by_engine
from ndpsim.inference.layers.transfers import Transfers
from ndpsim.policies import Assignment, Migration, Part, Placement, Policy
from ndpsim.policies.answers import checked_assignment
from ndpsim.policies.views import STRIPED
from ndpsim.report.moe import moe_table
from ndpsim.workload.models import Expert
from ndpsim.workload.routing import Routing

EXPERT_BYTES = 3 * 512 * 256 * 2
GPU_GBPS = 2040 * 0.8  # memory_tbps, memory_efficiency
KERNEL_NS, EXPERT_NS = 3000, 18000


def pcie_ns(size: int) -> float:
    """Packets of 256 bytes with headers of 24 at 1 GB/s."""
    return -(-size // 256) * 280


# ---- A prefill and two steps on the GPU, with the KV cache in the host's memory -------------------------------

BATCH, PROMPT, CONTEXT, LAYERS, STEPS = 2, 3, 64, (1, 2), 2
COPY_NS = pcie_ns(EXPERT_BYTES)
COMPUTE_NS = EXPERT_BYTES / GPU_GBPS + EXPERT_NS
SHARED_NS = EXPERT_BYTES / GPU_GBPS + 3 * KERNEL_NS  # gate with up, activation, down
HEAD_NS = 1000 * 512 * 2 / GPU_GBPS + 2 * KERNEL_NS  # norm, and the vocabulary's 1000 x 512
# Two norms, q k v, the cache's entries, attention, o; the router's two kernels. Matrices are 512 x 256.
ATTENTION_NS = 4 * 512 * 256 * 2 / GPU_GBPS + 8 * KERNEL_NS


class Keeps(Policy):
    """Experts 0 and 1 on the GPU: 0 lies there, and the copy of 1 of the first layer stays from the prefill on."""

    name, title = "keeps", "a copy stays"
    contention = False

    def place(self, view: Any) -> Placement:
        placement = super().place(view)
        placement.resident[:, 0] = True
        return placement

    def assign(self, view: Any) -> Assignment:
        return Assignment(gpu=[0, 1])

    def background(self, view: Any) -> list[Migration]:
        return [Migration("keep", 1, 1)] if (view.phase, view.layer) == ("prefill", 1) else []


@pytest.fixture(scope="module")
def kept():
    shape = (len(LAYERS), BATCH * PROMPT, 2)
    trace = Routing(
        16,
        LAYERS,
        np.broadcast_to(np.array([0, 1], np.int16), (STEPS, len(LAYERS), BATCH, 2)).copy(),
        np.broadcast_to(np.array([0, 1], np.int16), shape).copy(),
        (PROMPT,) * BATCH,
    )
    given = dict(routing=trace, batch=BATCH, steps=STEPS, prompt=PROMPT, context=CONTEXT, layers=LAYERS)
    sets = ["pcie.gbps=1", "gpu.pcie_gbps=1", "dram.refresh=none"]
    run, layers, _ = recorded(Keeps, **given, kv="host", sets=sets)
    return run, layers, given, sets


def test_layers_take_what_their_copies_and_computing_take(kept):
    _, layers, _, _ = kept
    missing, there = COPY_NS + 500 + COMPUTE_NS, SHARED_NS + 2 * COMPUTE_NS
    took = [layer.end_ns - layer.start_ns for layer in layers]
    assert took == pytest.approx([missing, missing, there, missing, there, missing], rel=1e-3)
    assert [layer.phase for layer in layers] == ["prefill"] * 2 + ["decode"] * 4


def test_windows_take_the_longer_of_attention_and_the_caches_way_over_pcie(kept):
    _, layers, _, _ = kept
    # A prefill reads nothing of the cache. In decode, 63 tokens before the new one are read.
    read_ns = pcie_ns(BATCH * (CONTEXT - 1) * CACHED_BYTES) + 500
    windows = [layer.window_ns for layer in layers]
    assert windows[:2] == pytest.approx([ATTENTION_NS] * 2, rel=0.01)
    assert windows[2:] == pytest.approx([read_ns] * 4)


def test_prefill_and_steps_are_told_apart(kept):
    run, layers, _, _ = kept
    took = [layer.end_ns - layer.start_ns for layer in layers]
    windows = [layer.window_ns for layer in layers]
    assert run.prefill_moe_ns == pytest.approx(sum(took[:2]))
    assert run.decode_moe_ns == pytest.approx(sum(took[2:]))
    assert run.prefill_ns == pytest.approx(sum(took[:2] + windows[:2]) + HEAD_NS, abs=20)
    assert run.decode_ns == pytest.approx(sum(took[2:] + windows[2:]) + STEPS * HEAD_NS, abs=40)
    assert run.layer_ns["mean"] == pytest.approx(sum(took[2:]) / 4)
    assert run.tokens_per_s == pytest.approx(BATCH * STEPS / run.decode_ns * 1e9)


def test_the_table_has_a_steps_experts_without_those_of_the_prefill(kept):
    _, _, given, sets = kept
    shown = {row[0]: row[1] for row in moe_table(moe(Keeps, **given, kv="host", sets=sets))}
    missing, there = COPY_NS + 500 + COMPUTE_NS, SHARED_NS + 2 * COMPUTE_NS
    assert shown["experts' time in decode per step"] == f"{(missing + there) / 1e3:.1f} µs"
    assert shown["experts' time in prefill"] == f"{2 * missing / 1e6:.3f} ms"


def test_the_cache_is_read_towards_the_gpu_and_written_away_from_it(kept):
    run, _, _, _ = kept
    down = 4 * COPY_NS + STEPS * 2 * pcie_ns(BATCH * (CONTEXT - 1) * CACHED_BYTES)
    up = 2 * pcie_ns(BATCH * PROMPT * CACHED_BYTES) + STEPS * 2 * pcie_ns(BATCH * CACHED_BYTES)
    assert run.utilization["pcie-down"] * run.time_ns == pytest.approx(down, rel=1e-6)
    assert run.utilization["pcie-up"] * run.time_ns == pytest.approx(up, rel=1e-6)


def test_the_overhead_of_a_copy_makes_it_longer_and_occupies_no_wire(kept):
    plain, before, given, sets = kept
    run, layers, _ = recorded(Keeps, **given, kv="host", sets=[*sets, "pcie.copy_overhead_us=20"])
    for way in ("pcie-down", "pcie-up"):
        assert run.utilization[way] * run.time_ns == pytest.approx(
            plain.utilization[way] * plain.time_ns, rel=1e-6
        )
    longer = [
        (one.end_ns - one.start_ns) - (two.end_ns - two.start_ns)
        for one, two in zip(layers, before, strict=True)
    ]
    assert longer == pytest.approx([20_000, 20_000, 0, 20_000, 0, 20_000], abs=1)


class Guesses(Keeps):
    """Keeps, with an estimate of 7 ns of each layer, or of layer 2 only."""

    name, title = "guesses", "estimates"
    layers: ClassVar[tuple[int, ...]] = (1, 2)

    def assign(self, view: Any) -> Assignment:
        return Assignment(gpu=[0, 1], estimated_ns=7.0 if view.layer in self.layers else None)


def test_estimates_are_summed_over_layers_if_all_have_one(kept):
    _, _, given, sets = kept
    some = type("Some", (Guesses,), {"layers": (2,)})
    none, first = type("None_", (Guesses,), {"layers": ()}), type("First", (Guesses,), {"layers": (1,)})
    found = [
        moe(kind, **given, kv="host", sets=sets).runs[0].estimated_ns for kind in (Guesses, some, first, none)
    ]
    assert found == [pytest.approx(7.0 * 2 * (1 + STEPS)), None, None, None]


def test_a_copy_that_stays_counts_once(kept):
    run, _, _, _ = kept
    assert (run.experts["gpu_hit"], run.experts["gpu_miss"]) == (2 + 2 * 3, 4)
    assert run.pairs_by_engine["gpu_hit"] == 2 * BATCH * PROMPT + 2 * 3 * BATCH
    # The host's channels carry each copy once, and what is read of the cache and written to it.
    bursts = 4 * EXPERT_BYTES + STEPS * 2 * BATCH * (CONTEXT - 1) * CACHED_BYTES
    read_nj = 4 * (1.1 * (377 - 142) + 1.8 * (9 - 7)) / 1000 * 8 / 2.4  # IDD4R above IDD3N, 4 chips, 8 clocks
    assert run.energy_nj["read"] == pytest.approx(bursts / 64 * read_nj)


# ---- Moves of experts between DIMMs ---------------------------------------------------------------------------

WIRE_NS = EXPERT_BYTES / 256 * 272 / 25  # packets of 256 bytes with headers of 16 at 25 GB/s


class Moves(Policy):
    """Experts 0 and 1 on the GPU; `moves` (expert, where to) are decided after the first layer of step `at`."""

    name, title = "moves", "experts move"
    contention = False
    moves: ClassVar[dict[int, tuple[tuple[int, int], ...]]] = {}
    lies: ClassVar[dict[int, tuple[int, int]]] = {}

    def place(self, view: Any) -> Placement:
        placement = super().place(view)
        placement.resident[:, :2] = True
        for expert, (dimm, shards) in self.lies.items():
            placement.dimm[0, expert], placement.shards[0, expert] = dimm, shards
        return placement

    def assign(self, view: Any) -> Assignment:
        return Assignment(gpu=[0, 1])

    def background(self, view: Any) -> list[Migration]:
        return [
            Migration("relayout" if to == STRIPED else "rebalance", 1, expert, to)
            for expert, to in self.moves.get(view.step, ())
        ]


def moved(lies: dict[int, Any], moves: dict[int, Any], steps: int = 12, **given: Any) -> Any:
    policy = type("Moves", (Moves,), {"lies": lies, "moves": moves})
    trace = trace_of([0, 1], steps=steps)
    run, layers, _ = recorded(policy, routing=trace, batch=1, steps=steps, layers=[1], **given)
    return run, {one.expert: one for layer in layers for one in layer.migrations}


def test_no_more_experts_move_at_once_than_units_take():
    lies = {2 * n + 2: (2 * n, 1) for n in range(5)}
    goals = tuple((expert, dimm + 1) for expert, (dimm, _) in lies.items())
    run, done = moved(lies, {0: goals}, sets=["ndp.relayout.concurrent_experts=2"])
    first, second, third, fourth, fifth = (done[expert] for expert in sorted(lies))
    assert first.start_ns == second.start_ns == first.decided_ns
    assert (third.start_ns, fourth.start_ns, fifth.start_ns) == (first.end_ns, second.end_ns, third.end_ns)
    assert first.end_ns - first.start_ns == pytest.approx(WIRE_NS, rel=0.05)
    assert run.migrations["rebalance"]["count"] == 5
    assert run.migrations["rebalance"]["bytes"] == 5 * EXPERT_BYTES
    for dimm in range(0, 10, 2):
        used = run.utilization[f"dimm {dimm} to {dimm + 1}"] * run.time_ns
        assert used == pytest.approx(WIRE_NS, rel=1e-3)


def test_a_sharded_expert_goes_to_a_dimm_from_each_of_its_own():
    cost = Costs(load_hardware("trimoe", ["dram.refresh=none"]), MODEL, cache=CACHE).relayout(
        "sharded:2 4", "localized 8"
    )
    expected = {"dimm 4 to 5": WIRE_NS / 2} | {f"dimm {n} to {n + 1}": WIRE_NS for n in (5, 6, 7)}
    assert cost.wire_ns == pytest.approx(expected, rel=1e-3)
    moved_bytes = {dimm: gbps * cost.time_ns for dimm, gbps in cost.dimm_read_gbps.items()}
    assert moved_bytes == pytest.approx({4: EXPERT_BYTES / 2, 5: EXPERT_BYTES / 2})
    assert cost.dimm_written_gbps == pytest.approx({8: EXPERT_BYTES / cost.time_ns})


@pytest.mark.parametrize("to", [12, STRIPED])
def test_who_leaves_a_full_dimm_makes_room_for_one_of_its_size(to, monkeypatch):
    """DIMMs have room for one expert, and for a sixteenth of each of 15: 2 lies on DIMM 1, 3 on 5, 5 on 7."""
    monkeypatch.setattr(Hardware, "dimm_bytes", EXPERT_BYTES + 15 * EXPERT_BYTES // 16)
    lies = {2: (1, 1), 3: (5, 1), 5: (7, 1)}
    leaves, comes, too_many = (2, to), (3, 1), (5, 1)
    with refused("too-large policy: rebalance"):
        moved(lies, {0: (comes, leaves)})
    _, done = moved(lies, {0: (leaves,), 5: (comes,)})
    assert done[2].end_ns < done[3].decided_ns
    assert done[3].target == "localized 1"
    with refused("too-large policy: rebalance"):
        moved(lies, {0: (leaves,), 5: (comes,), 9: (too_many,)})


def test_an_expert_that_is_spread_over_a_ring_passes_less_of_it_over_each_wire_further_on():
    """From DIMM 11 of 16, odd: a sixteenth stays, seven go up the ring, seven down, and the one opposite down."""
    large = Expert(1024, 1408)
    hardware = load_hardware("trimoe", ["dimm.ranks=1", "dram.refresh=none"])
    costs = Costs(hardware, large, cache=CACHE)
    cost = costs.relayout("localized 11", "striped")
    assert not costs.relayouts._stripes_differ  # so that another relayout is simulated for it
    whole_ns = large.weight_bytes(16) / 256 * 272 / 25
    up = {f"dimm {(11 + n) % 16} to {(12 + n) % 16}": (7 - n) / 16 for n in range(7)}
    down = {f"dimm {(11 - n) % 16} to {(10 - n) % 16}": (8 - n) / 16 for n in range(8)}
    assert {name: ns / whole_ns for name, ns in cost.wire_ns.items()} == pytest.approx(up | down, rel=0.02)
    assert cost.dimm_read_gbps.keys() == {11}


# ---- Slowdowns between measured numbers of tokens ----------------------------------------------------------------


def test_slowdowns_lie_between_those_of_the_measured_numbers_of_tokens(monkeypatch):
    """Beside 10 of 10 GB/s, experts of 1, 2 and 4 tokens run at a half, 0.6 and 0.8: 3 lie ln 1.5 / ln 2 on the way."""
    from ndpsim.inference.layers.contention import shared_bandwidth

    none = shared_bandwidth(10.0)
    rows = np.array([[1, 0.5], [1, 0.6], [1, 0.8]])
    three = {
        name: np.repeat(getattr(none, name), 3, axis=-2)
        for name in ("ndp_speed_moving", "ndp_crowded", "moving_crowded")
    }
    table = none._replace(
        tokens=np.array([1, 2, 4]),
        ndp_speed=np.stack([rows] * len(none.streams)),
        host_speed=np.ones((len(none.streams), 3)),
        most_moved_gbps=np.repeat(none.most_moved_gbps, 3, axis=-1),
        **three,
    )
    monkeypatch.setattr(Costs, "contention", lambda self, shards=1: table)

    class Beside(Moves):
        contention = True

        def assign(self, view: Any) -> Assignment:
            return Assignment(cpu=[1], ndp=[0])

    for tokens, rate in ((1, 0.5), (2, 0.6), (3, 0.6 + 0.2 * np.log(1.5) / np.log(2)), (4, 0.8), (5, 0.8)):
        policy = type("Beside", (Beside,), {"lies": {0: (3, 1), 1: (3, 1)}})
        trace = trace_of([0, 1] * tokens)
        # The CPU reads expert 1 from the same DIMM at its channel's speed, and for longer than expert 0 takes.
        _, (layer,), _ = recorded(policy, routing=trace, batch=tokens, steps=1, layers=[1])
        (job,) = of_kind(layer, "expert", "ndp 3")
        (read,) = of_kind(layer, "expert", "cpu")
        assert read.end_ns > job.end_ns
        assert job.alone_ns / (job.end_ns - job.start_ns) == pytest.approx(rate, rel=1e-6), tokens


def test_rows_of_shards_come_after_those_of_whole_experts():
    table = type("T", (), {"tokens": np.array([1, 2, 5]), "vectors_ns": lambda self, tokens: (0.0, 0.0)})()
    transfers = Transfers.__new__(Transfers)
    transfers._costs = type("C", (), {"contention": lambda self: table})()
    found = transfers.beside([2, 4])
    assert [found[tokens, shards][:2] for tokens, shards in ((1, 1), (2, 2), (5, 4), (9, 2))] == [
        (0, 0.0), (1 + 3, 0.0), (2 + 6, 0.0), (2 + 3, 0.0)
    ]  # fmt: skip
    for _ in range(2):  # the second time it is only looked up
        assert found[3, 2][:2] == (1 + 3, pytest.approx(np.log(3 / 2) / np.log(5 / 2)))


# ---- Estimates of a layer -----------------------------------------------------------------------------------------


def test_estimates_of_engines_are_those_of_the_experts_and_parts_that_they_have():
    """Of n tokens: on the GPU 10 + n, or the 100 of a copy where it lacks the expert; on the CPU 8 + 4 n, NDP 20 n."""
    view = policy_machines.layer_view([[0, 1], [0, 2], [0, 3], [4, 5]], resident=[1], arriving=[2])
    answer = Assignment(gpu=[Part(0, 0.5), 1, 2], cpu=[Part(0, 0.5), 3], ndp=[Part(4, 1.0), 5])
    checked = checked_assignment("test", view, answer, policy_machines.machine())
    found = estimates_by_engine(policy_machines.estimates(), checked, view)
    assert found == {"gpu": 0.5 * 100 + 11 + 11, "cpu": 0.5 * 20 + 12, "ndp": 20 + 20}
