"""What answers of policies beyond engines and order do to a run: replicas of fewer bits, sequences, planning,
copies that stay, machines without contention, stated predictors, and all policies at once.
"""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import yaml

from builders.small_moe import (
    EXPERT_BYTES,
    MODEL,
    OFF,
    alone_on,
    mean_ns,
    moe,
    of_kind,
    once_each,
    plain,
    recorded,
    trace_of,
)
from mistakes import refused
from ndpsim.audit.schedule import check_schedule
from ndpsim.config import Hardware
from ndpsim.config.files import data_path
from ndpsim.inference.layers import layer_run
from ndpsim.inference.layers.log import writing_log
from ndpsim.inference.processors.devices import weight_bytes
from ndpsim.policies import Assignment, Migration, Placement, Policy, policies
from ndpsim.policies.offline import StatedPredictor
from ndpsim.workload.routing import Routing

ONE: dict[str, Any] = dict(batch=1, steps=1, layers=[1])


def judged(policy: Any, folder: Any, **others: Any) -> Any:
    """What the audit says of a run's log."""
    with writing_log(folder / "log.jsonl") as log:
        recorded_log = moe(policy, observer=log, **others)
    assert recorded_log.runs
    return check_schedule(folder / "log.jsonl")


# ---- Migrations that are decided at the gate ----


class AtTheGate(alone_on("gpu")):
    """Experts 0 and 1 in the first layer, 0 and 2 in the second, for which 2 is prefetched at the first gate."""

    name, moments = "at-the-gate", ("gate",)
    held: tuple[int, ...] = ()  # of the first layer, in the GPU's memory

    def place(self, view: Any) -> Placement:
        placement = super().place(view)
        placement.resident[0, list(self.held)] = placement.resident[1, 0] = True
        return placement

    def background(self, view: Any) -> list[Migration]:
        assert not view.copied.any()
        return [Migration("prefetch", 2, 2)]


TWO: dict[str, Any] = dict(
    batch=1,
    steps=1,
    layers=[1, 2],
    routing=Routing(16, (1, 2), np.array([[[[0, 1]], [[0, 2]]]], np.int16)),
    sets=["pcie.gbps=0.1"],
)


@pytest.mark.parametrize(("held", "copies"), [((), 2), ((0,), 1), ((0, 1), 0)])
def test_a_prefetch_of_the_gate_begins_there_behind_its_layers_own_copies(
    held, copies, tmp_path, monkeypatch
):
    monkeypatch.setattr(AtTheGate, "held", held)
    _, (first, second), _ = recorded(AtTheGate, **TWO)
    (prefetch,) = second.migrations
    assert prefetch.decided_ns == prefetch.start_ns == first.start_ns
    # 786,432 B at 0.1 GB/s take 7.9 ms; nothing else is on PCIe until the prefetch has arrived.
    pcie_ns = of_kind(recorded(alone_on("gpu"), **TWO)[1][0], "copy")[0].alone_ns
    assert pcie_ns == pytest.approx(EXPERT_BYTES / 0.1, rel=0.1)
    assert prefetch.end_ns == pytest.approx(first.start_ns + (copies + 1) * pcie_ns, rel=1e-3)
    computed = next(job for job in of_kind(second, "expert") if job.expert == 2)
    assert computed.start_ns == prefetch.end_ns
    assert judged(AtTheGate, tmp_path, **TWO).ok


def test_what_a_layer_awaits_comes_one_after_the_other_and_ends_it(tmp_path):
    class Awaits(AtTheGate):
        held = (0, 1)

        def assign(self, view: Any) -> Assignment:
            return Assignment(
                gpu=np.flatnonzero(view.loads).tolist(), awaits=np.flatnonzero(view.arriving).tolist()
            )

        def background(self, view: Any) -> list[Migration]:
            return [Migration("prefetch", 2, one) for one in (2, 3)] if view.layer == 1 else []

    _, (first, second), _ = recorded(Awaits, **TWO, gpu_experts=4)
    pcie_ns = of_kind(recorded(alone_on("gpu"), **TWO)[1][0], "copy")[0].alone_ns
    # Expert 2 is computed when it has arrived; expert 3 has no tokens, arrives as long after it, and the layer ends.
    computed = next(job for job in of_kind(second, "expert") if job.expert == 2)
    assert computed.start_ns == pytest.approx(first.start_ns + pcie_ns, rel=1e-3)
    assert second.end_ns == pytest.approx(first.start_ns + 2 * pcie_ns, rel=1e-3)
    assert second.bottleneck == "pcie-down"
    assert judged(Awaits, tmp_path, **TWO, gpu_experts=4).ok
    wrong = type(
        "Wrong", (Awaits,), {"assign": lambda self, view: Assignment(gpu=[0, view.layer], awaits=[5])}
    )
    with refused("policy policy at-the-gate: step 0, layer 1"):
        moe(wrong, **TWO, gpu_experts=4)


def test_what_the_gpu_computes_is_left_alone_and_the_rest_may_go_at_once(tmp_path):
    def evicting(expert: int) -> type[Policy]:
        class Evicts(alone_on("gpu")):
            name, moments = "evicts", ("gate", "end")

            def place(self, view: Any) -> Placement:
                placement = super().place(view)
                placement.resident[:, [0, 3]] = True
                return placement

            def background(self, view: Any) -> list[Migration]:
                if view.moment == "end":
                    assert not view.in_use.any()
                    return []
                assert np.flatnonzero(view.in_use).tolist() == [0, view.layer]
                return [Migration("evict", 1, expert)] if view.layer == 1 else []

        return Evicts

    _, (first, _), _ = recorded(evicting(3), **TWO)
    (evicted,) = first.migrations
    assert evicted.decided_ns == evicted.end_ns == first.start_ns
    assert first.placement.resident[3]
    assert judged(evicting(3), tmp_path, **TWO).ok
    words = "policy policy evicts: beside step 0, layer 1"
    with refused(words):
        moe(evicting(0), **TWO)


# ---- Replicas ----


def replicas_on(engine: str) -> type[Policy]:
    """All on one engine, expert 0 read in 4 bits."""

    class Replicas(alone_on(engine)):
        def place(self, view: Any) -> Placement:
            placement = super().place(view)
            return Placement(placement.dimm, placement.shards, placement.resident, (4, 2))

        def assign(self, view: Any) -> Assignment:
            answer = super().assign(view)
            return Assignment(gpu=answer.gpu, cpu=answer.cpu, ndp=answer.ndp, bits={0: 4, 1: 16})

    return Replicas


Replicas = replicas_on("ndp")


def test_an_ndp_unit_reads_the_bits_of_a_replica(tmp_path):
    _, (layer,), _ = recorded(Replicas, routing=trace_of([0, 1]), **ONE)
    alone = {bits: mean_ns("trimoe", MODEL, tokens=1, bits=bits) for bits in (4, 16)}
    low, full = of_kind(layer, "expert", "ndp 0")[0], of_kind(layer, "expert", "ndp 1")[0]
    assert low.end_ns - low.start_ns == pytest.approx(alone[4], rel=OFF)
    assert full.end_ns - full.start_ns == pytest.approx(alone[16], rel=OFF)
    assert alone[4] < alone[16]
    assert low.bytes == weight_bytes(MODEL.expert, 4) < full.bytes == EXPERT_BYTES
    assert judged(Replicas, tmp_path, routing=trace_of([0, 1]), **ONE).ok


@pytest.mark.parametrize("engine", ["gpu", "cpu"])
def test_copies_and_the_cpu_read_the_bytes_of_a_replica(engine, tmp_path):
    _, (layer,), _ = recorded(replicas_on(engine), routing=trace_of([0, 1]), **ONE)
    kind = "copy" if engine == "gpu" else "expert"
    read = {job.expert: job for job in of_kind(layer, kind, "" if engine == "gpu" else "cpu")}
    assert read[0].bytes == weight_bytes(MODEL.expert, 4)
    assert read[1].bytes == EXPERT_BYTES
    assert read[0].alone_ns <= read[1].alone_ns
    assert judged(replicas_on(engine), tmp_path, routing=trace_of([0, 1]), **ONE).ok


def test_a_prefetch_of_a_replica_moves_its_bytes_and_is_computed_in_its_bits(tmp_path):
    class InFewBits(AtTheGate):
        held = (0, 1)

        def place(self, view: Any) -> Placement:
            placement = super().place(view)
            return Placement(placement.dimm, placement.shards, placement.resident, (4,))

        def background(self, view: Any) -> list[Migration]:
            if view.layer == 2:
                return []
            return [Migration("prefetch", 2, 2, bits=4)]

    low = weight_bytes(MODEL.expert, 4)
    _, (first, second), _ = recorded(InFewBits, **TWO)
    (prefetch,) = second.migrations
    assert prefetch.bytes == low
    # 0.1 GB/s, but for packets' headers and the latency of the link.
    assert prefetch.end_ns - first.start_ns == pytest.approx(low / 0.1, rel=0.1)
    computed = {job.expert: job for job in of_kind(second, "expert")}
    assert (computed[0].bytes, computed[2].bytes) == (EXPERT_BYTES, low)
    assert judged(InFewBits, tmp_path, **TWO).ok
    for migration in (Migration("prefetch", 2, 2, bits=3), Migration("evict", 2, 0, bits=4)):
        monkeypatched = type("Wrong", (InFewBits,), {"background": lambda self, view, one=migration: [one]})
        with refused("policy policy at-the-gate: beside step 0, layer 1"):
            moe(monkeypatched, **TWO)


def test_replicas_take_room_on_dimms(monkeypatch):
    class Full(Replicas):
        contention = False

        def place(self, view: Any) -> Placement:
            placement = super().place(view)
            placement.dimm[:] = 0
            return placement

    size = 16 * 3 * (EXPERT_BYTES + sum(weight_bytes(MODEL.expert, bits) for bits in (4, 2)))
    monkeypatch.setattr(Hardware, "dimm_bytes", size - 1)
    with refused("too-large dimm"):
        moe(Full)
    monkeypatch.setattr(Hardware, "dimm_bytes", size)
    moe(Full, steps=1, layers=[1])


@pytest.mark.parametrize(
    ("bits", "problem"),
    [
        ({0: 3}, "policy policy alone-ndp: step 0, layer 1"),
        ({16: 4}, "policy policy alone-ndp: step 0, layer 1"),
    ],
)
def test_bits_that_do_not_lie_there_are_refused(bits, problem):
    class Wrong(Replicas):
        def assign(self, view: Any) -> Assignment:
            return Assignment(ndp=np.flatnonzero(view.loads), bits=bits)

    with refused(problem):
        moe(Wrong, routing=trace_of([0, 1]), **ONE)


@pytest.mark.parametrize("replicas", [(16,), (0,), (4, 4), (32,)])
def test_replicas_are_different_and_not_the_experts_own_bits(replicas):
    class Wrong(Replicas):
        def place(self, view: Any) -> Placement:
            placement = super().place(view)
            return Placement(placement.dimm, placement.shards, placement.resident, replicas)

    with refused("policy policy alone-ndp: place"):
        moe(Wrong, routing=trace_of([0, 1]), **ONE)


# ---- One after the other ----


def mixed(**further: Any) -> type[Policy]:
    """Experts 0 and 1 on the GPU, 2 and 3 on the CPU, 4 and 5 on the NDP units of DIMMs 4 and 5."""

    class Mixed(alone_on("ndp")):
        def assign(self, view: Any) -> Assignment:
            return Assignment(gpu=[0, 1], cpu=[2, 3], ndp=[4, 5], **further)

    return Mixed


SIX: dict[str, Any] = dict(routing=trace_of([0, 1, 2, 3, 4, 5]), batch=3, steps=1, layers=[1])


def test_what_is_sequential_never_overlaps(tmp_path):
    _, (layer,), _ = recorded(mixed(sequential=True), **SIX)
    jobs = [*of_kind(layer, "copy"), *of_kind(layer, "expert", "gpu"), *of_kind(layer, "expert", "cpu")]
    jobs.sort(key=lambda job: (job.start_ns, job.end_ns))
    assert [(job.kind, job.expert) for job in jobs] == [
        ("copy", 0), ("expert", 0), ("copy", 1), ("expert", 1), ("expert", 2), ("expert", 3)
    ]  # fmt: skip
    assert all(one.end_ns <= other.start_ns for one, other in itertools.pairwise(jobs))
    assert all(job.start_ns >= jobs[-1].end_ns for job in of_kind(layer, "expert", "ndp"))
    assert judged(mixed(sequential=True), tmp_path, **SIX).ok
    _, (beside,), _ = recorded(mixed(), **SIX)
    assert beside.end_ns - beside.start_ns < layer.end_ns - layer.start_ns


# ---- Planning ----


def test_everything_waits_for_the_planning_that_is_charged(tmp_path):
    _, (free,), _ = recorded(mixed(), **SIX)
    _, (charged,), _ = recorded(mixed(planning=5000.0), **SIX)
    assert charged.end_ns - charged.start_ns == pytest.approx(free.end_ns - free.start_ns + 5000)
    (planning,) = of_kind(charged, "planning")
    assert (planning.start_ns, planning.end_ns) == (charged.start_ns, charged.start_ns + 5000)
    assert all(job is planning or job.start_ns >= planning.end_ns for job in charged.jobs)
    assert judged(mixed(planning=5000.0), tmp_path, **SIX).ok


def test_planning_may_be_measured():
    _, (layer,), _ = recorded(mixed(planning="measured"), **SIX)
    (planning,) = of_kind(layer, "planning")
    assert 0 < planning.end_ns - planning.start_ns < 1e9


@pytest.mark.parametrize("planning", [-1, "slow", float("nan")])
def test_planning_is_a_time(planning):
    with refused("policy policy alone-ndp: step 0, layer 1"):
        moe(mixed(planning=planning), **SIX)


# ---- Copies that stay ----


class Keeps(alone_on("gpu")):
    """Keeps expert 0 of the first layer, and gives it up after the second step."""

    def background(self, view: Any) -> list[Migration]:
        if view.layer != 1:
            return []
        if view.step == 0:
            assert np.flatnonzero(view.copied).tolist() == [0, 1]
            return [Migration("keep", 1, 0)]
        return [Migration("evict", 1, 0)] if view.step == 1 else []


def test_a_copy_that_stays_is_not_copied_again(tmp_path):
    given: dict[str, Any] = dict(routing=trace_of([0, 1], (1, 2, 3), 4), batch=1, steps=4)
    run, layers, _ = recorded(Keeps, **given)
    copied = [[job.expert for job in of_kind(layer, "copy")] for layer in layers if layer.layer == 1]
    assert copied == [[0, 1], [1], [0, 1], [0, 1]]
    assert {kind: of["bytes"] for kind, of in run.migrations.items()} == {"keep": 0, "evict": 0}
    assert judged(Keeps, tmp_path, **given).ok


def test_only_what_the_layer_has_copied_can_stay():
    class Wrong(Keeps):
        def background(self, view: Any) -> list[Migration]:
            return [Migration("keep", 1, 5)]

    with refused("policy policy alone-gpu: after step 0, layer 1"):
        moe(Wrong, routing=trace_of([0, 1], (1, 2, 3)), batch=1, steps=1)


def test_the_audit_knows_what_was_copied(tmp_path):
    given: dict[str, Any] = dict(routing=trace_of([0, 1], (1, 2, 3), 2), batch=1, steps=2)
    assert judged(Keeps, tmp_path, **given).ok
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    keep = next(one for line in lines[1:] for one in line["migrations"] if one["kind"] == "keep")
    keep["expert"] = 7
    (tmp_path / "log.jsonl").write_text("\n".join(map(json.dumps, lines)))
    report = check_schedule(tmp_path / "log.jsonl")
    assert any("has not copied the expert in full" in one.message for one in report.findings)


# ---- A machine without contention ----


def test_without_contention_ndp_units_take_their_time_alone_beside_host_reads():
    def beside(contention: bool) -> float:
        class Beside(alone_on("ndp")):
            def __init__(self, *given: Any) -> None:
                super().__init__(*given)
                self.contention = contention

            def assign(self, view: Any) -> Assignment:
                return Assignment(cpu=[1], ndp=[0])

            def place(self, view: Any) -> Placement:
                placement = super().place(view)
                placement.dimm[:] = 0
                return placement

        _, (layer,), _ = recorded(Beside, routing=trace_of([0, 1]), **ONE)
        job = of_kind(layer, "expert", "ndp 0")[0]
        return (job.end_ns - job.start_ns) / job.alone_ns

    assert beside(contention=True) > 1.05
    assert beside(contention=False) == pytest.approx(1)


# ---- Scores and predictions ----


def test_policies_see_which_tokens_chose_what():
    seen: list[Any] = []

    class Looks(alone_on("gpu")):
        def assign(self, view: Any) -> Assignment:
            seen.append(view)
            return super().assign(view)

        def background(self, view: Any) -> list[Migration]:
            seen.append(view)
            return []

    trace = trace_of([3, 1, 3, 2], (1, 2, 3), 1)
    moe(Looks, routing=trace, batch=2, steps=1, layers=[1, 2])
    assert all(view.ids.tolist() == [[3, 1], [3, 2]] and view.scores is None for view in seen)
    assert not any(view.ids.flags.writeable for view in seen)


def test_a_stated_predictor_is_right_as_often_as_it_says():
    predictor = StatedPredictor(0.7, 4, seed=3)
    random = np.random.default_rng(1)
    for step in range(2000):
        loads = random.integers(0, 9, 16)
        predicted = predictor.predict(loads, step, 5)
        assert len(set(predicted)) == len(predicted) == 4
    assert predictor.predictions.share == pytest.approx(0.7, abs=0.02)
    assert StatedPredictor(1.0, 3).predict(np.array([1, 9, 0, 5, 7]), 0, 0) == (1, 4, 3)
    assert not {1, 4} & set(StatedPredictor(0.0, 2).predict(np.array([1, 9, 0, 5, 7]), 0, 0))


def test_what_is_predicted_reaches_the_policy_that_says_how_well():
    predicted: list[Any] = []

    class Predicts(alone_on("gpu")):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            self.stated_predictor = StatedPredictor(1.0, 2)

        def background(self, view: Any) -> list[Migration]:
            predicted.append((view.next_layer, view.predicted, view.next_loads))
            return []

    moe(Predicts, routing=trace_of([3, 1, 3, 2], (1, 2, 3), 1), batch=2, steps=1)
    assert predicted == [(2, (3, 1), None), (3, (3, 1), None)]


# ---- All policies ----


def test_all_stands_for_every_policy_that_can_be_run():
    result = moe("monde", "all", batch=4, steps=1)
    assert [run.policy for run in result.runs] == [
        "monde",
        *(
            name
            for name, policy in policies().items()
            if name != "monde" and name not in result.not_run and not policy.rehearses
        ),
    ]
    assert result.runs[0].speedup == 1


def test_what_a_machine_lacks_is_said_in_one_line(tmp_path):
    class Needs(alone_on("ndp")):
        name, needs = "needs", ("ndp",)

    content = yaml.safe_load(data_path("hwconfigs", "trimoe").read_text())
    del content["ndp"], content["link"]
    content["name"] = "mine"
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(content))
    with refused("conflict"):
        moe(Needs, hw=tmp_path / "mine.yaml")


def test_measured_power_counts_over_the_whole_time():
    given: dict[str, Any] = dict(hw="cache-7960x-4090", model="mixtral-8x7b", batch=1, steps=1, layers=[0])
    (run,) = moe("klotski", **given, gpu_experts=None).runs
    # Table IV of the cache paper, Mixtral with 24 threads.
    assert run.energy_nj["cpu"] == pytest.approx(147.5 * run.time_ns)
    assert run.energy_nj["gpu"] == pytest.approx(97.9 * run.time_ns)
    assert run.energy_nj["pcie"] is None
    assert "cpu and gpu: measured power over the whole time" in run.energy_note


@pytest.mark.parametrize("engine", ["ndp", "cpu"])
def test_a_checked_layer_reads_the_bits_of_replicas(engine):
    given: dict[str, Any] = dict(ONE, check_layer=(0, 1), routing=trace_of([0, 1]))
    check = moe(replicas_on(engine), **given).runs[0].check
    assert check is not None
    assert check.ok, check


@pytest.mark.parametrize("policy", ["edge", "klotski", "cxl:bits=2", "trimoe"])
def test_however_many_waiting_copies_are_tried_at_once_the_run_is_the_same(policy, monkeypatch):
    def run(copies: int) -> dict[str, Any]:
        monkeypatch.setattr(layer_run, "_COPIES", copies)
        return plain(moe(policy, prompt=4, steps=4, gpu_experts=6, batch=4, sets=["pcie.gbps=30"]))

    assert run(1) == run(3) == run(1000)


# ---- Experts without weights


@pytest.mark.parametrize("policy", [name for name in once_each() if not name.startswith("oracle")])
def test_experts_without_weights_are_chosen_and_cost_nothing(policy, tmp_path):
    """Each token chooses one of 16 experts, and one of 8 further ones."""
    model = replace(MODEL, zero_experts=8)
    random = np.random.default_rng(3)
    real, zero = (random.integers(*ids, (2, 3, 32)) for ids in ((0, 16), (16, 24)))
    routing = Routing(24, (1, 2, 3), np.stack([real, zero], axis=3).astype(np.int16))
    report = judged(policy, tmp_path, model=model, routing=routing, steps=2)
    assert report.ok, report
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert lines[0]["zero_experts"] == 8
    counted = [np.bincount(of_layer, minlength=16).tolist() for of_step in real for of_layer in of_step]
    assert [line["loads"] for line in lines[1:]] == counted
