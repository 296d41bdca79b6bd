"""A whole model under a policy: what must add up, what slows what down, and what is refused.

Logs are judged by the audit, which knows nothing of the orchestrator; small cases are worked out by hand from
what single calls take.
"""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import numpy as np
import pytest

import ndpsim
from argument_types import watch_argument_types
from builders.small_moe import (
    CACHE,
    EXPERT_BYTES,
    GIVEN,
    MODEL,
    OFF,
    Everything,
    alone_on,
    mean_ns,
    moe,
    of_kind,
    once_each,
    plain,
    recorded,
    trace_of,
)
from mistakes import mistake_of, refused
from ndpsim.audit.schedule import check_schedule
from ndpsim.base.errors import InputError
from ndpsim.inference.events.state import Jobs
from ndpsim.inference.layers.jobs import JobList
from ndpsim.inference.layers.log import writing_log
from ndpsim.inference.layers.record import LayerRecord, RunRecord
from ndpsim.inference.layers.run import run_moe
from ndpsim.policies import Assignment, Migration, Part, Placement, Policy
from ndpsim.policies.views import STRIPED
from ndpsim.workload.models import Attention, LinearAttention, MixedAttention, MoeShape
from ndpsim.workload.routing import generate_routing

# ---- What must add up -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", [*once_each(), Everything], ids=str)
@pytest.mark.parametrize(("prompt", "kv"), [(None, "gpu"), (8, "host")])
def test_whatever_the_policy_everything_adds_up(policy, prompt, kv, tmp_path, monkeypatch):
    watch_argument_types(monkeypatch)
    log = tmp_path / "log.jsonl.gz"
    layers: list[LayerRecord] = []
    with writing_log(log) as write:

        def observe(run: RunRecord, layer: LayerRecord) -> None:
            layers.append(layer)
            write(run, layer)

        (run,) = moe(policy, prompt=prompt, kv=kv, observer=observe).runs
    report = check_schedule(log)
    assert report.ok, report
    assert report.layers == len(layers) == 3 * (3 + (prompt is not None))
    pairs = 3 * 3 * 32 * 2 + (3 * 32 * 8 * 2 if prompt else 0)
    assert run.pairs == pairs == sum(run.pairs_by_engine.values())
    assert run.moe_ns == pytest.approx(run.prefill_moe_ns + run.decode_moe_ns)
    assert run.moe_ns == pytest.approx(sum(layer.end_ns - layer.start_ns for layer in layers))
    assert run.time_ns == run.prefill_ns + run.decode_ns
    assert (run.prefill_ns > 0) == (prompt is not None)
    assert run.tokens_per_s == pytest.approx(3 * 32 / run.decode_ns * 1e9)
    assert sum(layer.bound_ns for layer in layers) <= run.bound_ns * (1 + 1e-9)
    assert run.bound_ns <= run.moe_ns * (1 + 1e-9)
    for layer in layers:
        assert layer.bound_ns <= layer.end_ns - layer.start_ns
    assert all(0 <= share <= 1 + 1e-9 for share in run.utilization.values())
    assert sum(run.bottleneck.values()) == pytest.approx(1)
    # Layers and windows follow each other; the head comes after the last.
    for one, following in itertools.pairwise(layers):
        if one.layer != 3:
            assert following.start_ns == pytest.approx(one.end_ns + following.window_ns)
    assert run.time_ns > layers[-1].end_ns


def test_migrations_are_the_change_of_the_placement():
    run, layers, record = recorded("trimoe:budget=together", steps=8)
    lies, resident = record.placement.dimm.copy(), record.placement.resident.copy()
    count = 0
    for layer in layers:
        for one in layer.migrations:
            row = record.machine.layers.index(one.layer)
            count += 1
            if one.kind == "evict":
                resident[row, one.expert] = False
            elif one.target == "gpu":
                resident[row, one.expert] = True
            else:
                lies[row, one.expert] = STRIPED if one.target == "striped" else int(one.target.split()[1])
        row = record.machine.layers.index(layer.layer)
    row = record.machine.layers.index(layers[-1].layer)
    assert count
    assert (layers[-1].placement.dimm == lies[row]).all()
    assert sum(int(of_kind["count"]) for of_kind in run.migrations.values()) == count
    moved = {kind: of_kind for kind, of_kind in run.migrations.items() if kind != "evict"}
    assert all(of_kind["bytes"] == of_kind["count"] * EXPERT_BYTES for of_kind in moved.values())


def test_the_same_seed_gives_the_same_result_and_policies_do_not_touch_each_other():
    both = plain(moe("trimoe", "monde"))
    again = plain(moe("trimoe", "monde"))
    assert both == again
    other = plain(moe("monde"))["runs"][0]
    beside = both["runs"][1]
    for run in (other, beside):
        for name in ("speedup", "speedup_prefill", "speedup_decode", "speedup_moe"):
            del run[name]
    assert other == beside
    assert plain(moe(seed=2)) != plain(moe())


def test_speed_ups_are_against_the_first_policy():
    first, second = moe("monde", "trimoe").runs
    assert (first.speedup, first.speedup_moe) == (1, 1)
    assert second.speedup == pytest.approx(first.time_ns / second.time_ns)
    assert second.speedup_moe == pytest.approx(first.moe_ns / second.moe_ns)
    assert second.speedup_decode == pytest.approx(first.decode_ns / second.decode_ns)


def test_twice_the_real_costs_leave_the_answers_as_they_are(monkeypatch):
    policy = "trimoe:relayout=false,rebalance=false,prefetch=false"
    _, once, _ = recorded(policy)
    ready = JobList.ready

    def doubled(self: JobList) -> Jobs:
        jobs = ready(self)
        jobs.left_ns[:] *= 2
        jobs.per_ns[:] /= 2
        return jobs

    monkeypatch.setattr(JobList, "ready", doubled)
    _, twice, _ = recorded(policy)
    assert [layer.assignment for layer in twice] == [layer.assignment for layer in once]
    assert sum(layer.end_ns - layer.start_ns for layer in twice) > 1.2 * sum(
        layer.end_ns - layer.start_ns for layer in once
    )


# ---- Time, by hand --------------------------------------------------------------------------------------------


def test_experts_of_a_dimm_run_one_after_the_other_each_for_its_simulated_time():
    class Queue(alone_on("ndp")):
        def place(self, view: Any) -> Placement:
            placement = super().place(view)
            placement.dimm[:, :4] = 0
            return placement

    _, (layer,), _ = recorded(Queue, routing=trace_of([0, 1, 0, 2, 0, 5]), batch=3, steps=1, layers=[1])
    up, down = of_kind(layer, "activations")[0], of_kind(layer, "results")[0]
    times = {tokens: mean_ns("trimoe", MODEL, tokens=tokens) for tokens in (1, 3)}
    first, second, third = of_kind(layer, "expert", "ndp 0")
    assert (first.expert, second.expert, third.expert) == (0, 1, 2)
    assert first.start_ns == up.end_ns
    assert first.end_ns - first.start_ns == pytest.approx(times[3], rel=OFF)
    assert second.start_ns == first.end_ns
    assert third.end_ns == pytest.approx(up.end_ns + times[3] + 2 * times[1], rel=OFF)
    assert down.start_ns == third.end_ns
    assert layer.end_ns == down.end_ns
    assert of_kind(layer, "expert", "ndp 5")[0].start_ns == up.end_ns
    # Activations go up once a token, and one vector a token comes back.
    assert up.bytes == down.bytes == 3 * MODEL.hidden * 2


def test_an_expert_on_the_cpu_takes_the_longer_of_computing_and_reading():
    _, (layer,), _ = recorded(alone_on("cpu"), routing=trace_of([0, 1] * 40), batch=40, steps=1, layers=[1])
    cpu = ndpsim.load_processors("trimoe").cpu
    read_ns = ndpsim.simulate_host_read("trimoe", MODEL, "striped", cache=CACHE).time_ns
    compute_ns = cpu.expert_time(MODEL.expert, 40).time_ns
    first, second = of_kind(layer, "expert", "cpu")
    assert first.end_ns - first.start_ns == pytest.approx(max(read_ns, compute_ns), rel=1e-6)
    assert second.start_ns == first.end_ns


def test_the_gpu_computes_in_order_while_as_many_copies_arrive_as_have_buffers():
    experts = list(range(12))
    _, (layer,), record = recorded(
        alone_on("gpu"), routing=trace_of(experts), batch=6, steps=1, layers=[1], gpu_experts=0
    )
    copies, computed = of_kind(layer, "copy"), of_kind(layer, "expert", "gpu")
    assert [job.expert for job in computed] == experts
    buffers, engines = record.machine.expert_buffers, 2
    for number, copy in enumerate(copies):
        if number >= buffers:
            assert copy.start_ns >= computed[number - buffers].end_ns
        if number >= engines:
            assert copy.start_ns >= copies[number - engines].end_ns
        assert computed[number].start_ns >= copy.end_ns
    (shared,) = of_kind(layer, "shared")
    assert shared.start_ns == layer.start_ns
    # Nothing is off the GPU, so nothing goes to the host and back.
    assert not of_kind(layer, "activations") + of_kind(layer, "results")


def test_shares_of_an_expert_are_computed_at_once_on_several_engines():
    class Split(alone_on("ndp")):
        def assign(self, view: Any) -> Assignment:
            active = np.flatnonzero(view.loads).tolist()
            return Assignment(
                cpu=[Part(expert, 0.25) for expert in active], ndp=[Part(expert, 0.75) for expert in active]
            )

    run, (layer,), _ = recorded(Split, routing=trace_of([0, 1, 0, 1]), batch=2, steps=1, layers=[1])
    assert run.experts == {"gpu_hit": 0, "gpu_miss": 0, "cpu": 0.5, "ndp": 1.5}
    assert run.pairs_by_engine["cpu"] == pytest.approx(1)
    assert run.pairs == 4
    part = ndpsim.Expert(MODEL.hidden, round(0.75 * MODEL.expert_intermediate))
    alone = mean_ns("trimoe", part, tokens=2)
    job = of_kind(layer, "expert", "ndp 0")[0]
    assert job.alone_ns == pytest.approx(alone, rel=OFF)
    assert sum(job.bytes for job in of_kind(layer, "expert")) == 2 * EXPERT_BYTES


def test_a_sharded_expert_runs_on_all_its_dimms():
    class Sharded(alone_on("ndp")):
        def place(self, view: Any) -> Placement:
            placement = super().place(view)
            placement.dimm[:, :2], placement.shards[:, :2] = [4, 6], 2
            return placement

    _, (layer,), _ = recorded(Sharded, routing=trace_of([0, 1]), batch=1, steps=1, layers=[1])
    alone = mean_ns("trimoe", MODEL, tokens=1, layout="sharded:2")
    jobs = of_kind(layer, "expert", "ndp")
    assert [(job.resource, job.expert) for job in jobs] == [
        ("ndp 4", 0), ("ndp 5", 0), ("ndp 6", 1), ("ndp 7", 1)
    ]  # fmt: skip
    assert all(job.end_ns - job.start_ns == pytest.approx(alone, rel=OFF) for job in jobs)


class Moves(alone_on("ndp")):
    """Moves expert 15, which nothing needs, after the first layer."""

    kind, to = "relayout", STRIPED

    def background(self, view: Any) -> list[Migration]:
        first = (view.step, view.layer) == (0, 1)
        return [Migration(self.kind, 2, 15, self.to)] if first else []


def test_a_move_takes_the_time_of_a_relayout_and_counts_as_hidden_in_windows():
    # Nobody else uses links or these DIMMs: expert 15 is on DIMM 15, and experts 0 and 1 are computed.
    _, layers, _ = recorded(Moves, routing=trace_of([0, 1], (1, 2, 3), 2), batch=1, steps=2)
    (move,) = [one for layer in layers for one in layer.migrations]
    alone = ndpsim.simulate_relayout(
        "trimoe", MODEL, 1, "localized", "striped", source_dimms=[15], host=False, cache=CACHE
    ).time_ns
    assert move.end_ns - move.start_ns == pytest.approx(alone, rel=1e-3)
    assert move.start_ns == move.decided_ns == layers[0].end_ns
    window = min(layers[1].window_ns, move.end_ns - move.start_ns)
    assert move.hidden_ns >= window - 1e-6
    assert move.hidden_ns + move.exposed_ns == pytest.approx(move.end_ns - move.start_ns)


def test_a_prefetch_that_is_still_on_its_way_is_waited_for_and_not_copied_again():
    class Late(alone_on("gpu")):
        def background(self, view: Any) -> list[Migration]:
            return [Migration("prefetch", 2, 0)] if (view.step, view.layer) == (0, 1) else []

    run, layers, _ = recorded(
        Late, routing=trace_of([0, 1], (1, 2, 3), 2), batch=1, steps=2, sets=["pcie.gbps=0.1"]
    )
    second = layers[1]
    assert [job.expert for job in of_kind(second, "copy")] == [1]
    (prefetch,) = [one for layer in layers for one in layer.migrations]
    compute = next(job for job in of_kind(second, "expert") if job.expert == 0)
    assert compute.start_ns >= prefetch.end_ns > second.start_ns
    assert prefetch.exposed_ns > 0
    assert layers[4].placement.resident[0]
    assert run.migrations["prefetch"]["count"] == 1


# ---- What changes what ----------------------------------------------------------------------------------------


@pytest.mark.long  # test_costs.py has the costs, which a run takes from there
def test_dram_timings_and_links_change_a_run_as_they_change_single_calls():
    slow = ["dram.nRFC=1900"]
    once, slower = (mean_ns("trimoe", MODEL, tokens=1, sets=sets) for sets in ((), slow))
    runs = [
        recorded(alone_on("ndp"), routing=trace_of([0, 1]), batch=1, steps=1, layers=[1], sets=sets)[1][0]
        for sets in ((), slow)
    ]
    ends = [of_kind(layer, "expert", "ndp 0")[0] for layer in runs]
    assert (ends[0].end_ns - ends[0].start_ns, ends[1].end_ns - ends[1].start_ns) == pytest.approx(
        (once, slower), rel=OFF
    )
    narrow = ["link.link_gbps=5", "link.lane_gbit_s=5"]
    moves = []
    for sets in ((), narrow):
        _, layers, _ = recorded(Moves, routing=trace_of([0, 1], (1, 2, 3), 2), batch=1, steps=2, sets=sets)
        moves += [one for layer in layers for one in layer.migrations]
    assert moves[1].end_ns - moves[1].start_ns > 3 * (moves[0].end_ns - moves[0].start_ns)


def test_a_kv_cache_with_the_host_makes_windows_longer():
    near, far = (recorded("trimoe", kv=kv, context=4096)[1] for kv in ("gpu", "host"))
    assert far[1].window_ns > 1.5 * near[1].window_ns


def test_fewer_bits_of_the_cache_take_less_of_pcie():
    """The link binds windows: of 32 sequences 63 tokens are read, of 4 heads with 64 values in keys and values."""
    given = dict(kv="host", context=64, sets=["pcie.gbps=1", "gpu.pcie_gbps=1"])
    packets = [32 * 63 * 2 * 4 * 64 * bits // 8 // 256 for bits in (16, 4)]  # with headers of 24 bytes
    windows = [recorded("trimoe", kv_bits=bits, **given)[1][1].window_ns for bits in (16, 4)]
    assert windows[0] - windows[1] == pytest.approx(280 * (packets[0] - packets[1]))

    estimated = []

    class Watching(Everything):
        def setup(self) -> None:
            estimated.append(self.estimates)

    for bits in (16, 4):
        recorded(Watching, kv_bits=bits, **given)
    many, few = estimated
    assert many.cache_ns - few.cache_ns == pytest.approx(280 * (packets[0] - packets[1]))
    assert (many.cache_ns, many.copy_window_ns) == (many.window_ns, 0.0)  # copies of experts wait


def test_weights_in_fewer_bits_leave_room_for_experts_and_are_read_faster():
    """By hand: attention of 4 layers, routers and shared experts of 3, the dense layer, embedding and head."""
    weights = 4 * 4 * 512 * 256 + 3 * (16 * 512 + 3 * 512 * 256) + 3 * 512 * 512 + 2 * 1000 * 512
    given = dict(gpu_experts=None, steps=1, batch=1, context=16, sets=["gpu.memory_gb=8.25"])
    whole, few = (moe(dense_bits=bits, **given) for bits in (16, 4))
    gained = few.config["gpu_experts"] - whole.config["gpu_experts"]
    assert abs(gained * EXPERT_BYTES - weights * 12 // 8) <= EXPERT_BYTES
    assert few.config["window_ns"] < whole.config["window_ns"]
    assert (few.config["dense_bits"], few.config["bits"]) == (4, 16)


def test_a_prefill_needs_no_more_room_than_decode_steps():
    tight = dict(sets=["gpu.memory_gb=8.25"], gpu_experts=None, steps=1, layers=[1])
    with_prompt, without = (moe(prompt=prompt, context=1024, **tight) for prompt in (1024, None))
    assert with_prompt.config["gpu_experts"] == without.config["gpu_experts"] > 0
    assert with_prompt.runs[0].prefill_ns > 0


def test_layers_are_the_models_and_dense_ones_take_their_time():
    run, layers, _ = recorded("trimoe", layers=[0, 2], steps=1)
    assert [layer.layer for layer in layers] == [2]
    without, _, _ = recorded("trimoe", layers=[2], steps=1)
    dense = ndpsim.load_processors("trimoe").dense_time(MODEL, 32, 64)
    assert run.time_ns - without.time_ns == pytest.approx(dense.attention_ns + dense.dense_layer_ns)
    assert run.moe_ns == pytest.approx(without.moe_ns)


def test_windows_are_those_of_the_attention_of_each_layer():
    full = Attention(heads=4, kv_heads=4, head_size=64, value_size=64)
    linear = LinearAttention(key_heads=2, value_heads=4, key_size=64, value_size=64, convolution=4)
    kinds = (dataclasses.replace(full, window=16), full, linear)
    mixed = dataclasses.replace(MODEL, attention=MixedAttention(kinds, (0, 1, 0, 2)))
    dense = ndpsim.load_processors("trimoe").dense_time(mixed, 32, 1024)
    near, whole, state = (one.time_ns + dense.router_ns for one in dense.attention)
    _, layers, _ = recorded("trimoe", model=mixed, context=1024, steps=1)
    before = dense.attention[0].time_ns + dense.dense_layer_ns  # of layer 0, which has no experts
    assert [layer.window_ns for layer in layers] == pytest.approx([before + whole, near, state])
    # Over a slow link the cache takes longer: 15 and 1023 tokens of 1024 B, and states of 4 x 64 x 64 numbers of 4 B
    # and of three tokens of 512 channels; packets of 256 B with 24 B of headers.
    slow = dict(kv="host", context=1024, steps=1, sets=["pcie.gbps=1", "gpu.pcie_gbps=1"])
    _, layers, _ = recorded("trimoe", model=mixed, **slow)
    tokens, states = 32 * 1024 * 280 / 256, 32 * (65536 + 3 * 512 * 2) * 280 / 256
    expected = [1038 * tokens, 15 * tokens, states]
    assert [layer.window_ns for layer in layers] == pytest.approx(expected, rel=1e-2)


# ---- What is refused ------------------------------------------------------------------------------------------


def changed(**answer: Any) -> type[Policy]:
    class Changed(alone_on("ndp")):
        name = "mine"

        def assign(self, view: Any) -> Any:
            right = super().assign(view)
            return answer["assign"](right) if "assign" in answer else right

        def background(self, view: Any) -> Any:
            return answer["background"](view) if "background" in answer else ()

    return Changed


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ({"assign": lambda right: Assignment(ndp=right.ndp[1:])}, "policy policy mine: step 0, layer 1"),
        (
            {"assign": lambda right: Assignment(ndp=right.ndp, cpu=right.ndp[:1])},
            "policy policy mine: step 0, layer 1",
        ),
        ({"assign": lambda right: 1 / 0}, "policy policy mine: step 0, layer 1: assign"),
        ({"assign": lambda right: "nonsense"}, "policy policy mine: step 0, layer 1"),
        (
            {"background": lambda view: [Migration("relayout", 2, 99)]},
            "policy policy mine: after step 0, layer 1",
        ),
        (
            {"background": lambda view: [Migration("fetch", 2, e) for e in range(9)]},
            "policy policy mine: after step 0, layer 1",
        ),
    ],
)
def test_what_a_policy_gets_wrong_is_named(answer, words):
    assert mistake_of(moe, changed(**answer)) == words


@pytest.mark.parametrize(
    ("others", "words"),
    [
        ({"policies": ()}, "missing policies"),
        ({"steps": 0}, "range steps"),
        ({"layers": [0]}, "invalid layers"),
        ({"layers": [4]}, "range layers"),
        ({"check_layer": (3, 1)}, "range check_layer"),
        ({"check_layer": (0, 0)}, "range check_layer"),
        ({"dense_bits": 0}, "range dense_bits"),
        ({"kv_bits": 33}, "range kv_bits"),
        ({"gpu_experts": 17}, "range gpu_experts"),
        ({"kv": "disk"}, "unknown-name kv"),
        ({"arbitration": "nobody"}, "unknown-name arbitration"),
        ({"routing": trace_of([0, 1], (1, 2, 3), 3)}, "range batch"),
        ({"hw": "cxl"}, "conflict"),
        ({"sets": ["gpu.memory_gb=8.001"]}, "too-large gpu.memory_gb"),
    ],
)
def test_wrong_arguments_are_refused_by_name(others, words):
    with refused(words):
        run_moe(**{"policies": ("trimoe",), **GIVEN, **others})


def test_what_does_not_fit_the_dimms_is_not_supported_by_bytes():
    class Crowd(alone_on("ndp")):
        def place(self, view: Any) -> Placement:
            placement = Policy.place(self, view)
            placement.dimm[:] = 3
            return placement

    big = MoeShape(**{**vars(MODEL), "routed_experts": 16_384})
    small = {"sets": ["dram.org=DDR5_8Gb_x8", "dimm.ranks=1"], "gpu_experts": 0, "steps": 1}
    assert mistake_of(moe, Crowd, model=big, **small) == "too-large dimm"


def test_a_run_of_a_trace_takes_batch_steps_and_layers_from_it_unless_told(tmp_path):
    path = tmp_path / "F.npz"
    given = {**GIVEN, "policies": ("trimoe",), "routing": path}
    del given["batch"], given["steps"]
    generate_routing("skewed", MODEL, 8, 2).for_model(MODEL, layers=(1, 3)).save(path)
    config = run_moe(**given).config
    assert (config["batch"], config["steps"], config["layers"]) == (8, 2, [1, 3])
    config = run_moe(**given, batch=5, steps=1, layers=[3]).config
    assert (config["batch"], config["steps"], config["layers"]) == (5, 1, [3])
    generate_routing("skewed", MODEL, 8, 2).save(path)
    assert run_moe(**given).config["layers"] == [0, 1, 2, 3]
    for more, has in ({"batch": 9}, "range batch"), ({"steps": 3}, "range steps"):
        with refused(has) as caught:
            run_moe(**given, **more)
        assert (caught.value.code, caught.value.key) == ("range", *more)
    generate_routing("skewed", MODEL, 8, 0, prompt=2).save(path)
    with pytest.raises(InputError) as caught:
        run_moe(**given)
    assert (caught.value.code, caught.value.key) == ("missing", "routing")


def test_what_the_cpu_computes_with_nothing_beside_it_takes_what_its_record_has_of_it_alone():
    _, (layer,), _ = recorded(alone_on("cpu"), batch=1, steps=1, layers=[1], routing=trace_of([0, 1]))
    jobs = of_kind(layer, "expert", "cpu")
    assert [job.expert for job in jobs] == [0, 1]
    for job in jobs:
        assert job.end_ns - job.start_ns == pytest.approx(job.alone_ns)
