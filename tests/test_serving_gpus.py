"""Serving on GPUs that hold all weights: dense models, tensor parallelism, and engines that meet in the experts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import yaml

import ndpsim
from builders.small_moe import MODEL
from mistakes import refused
from ndpsim.audit import check_serving
from ndpsim.base.options.serve import ServeSettings
from ndpsim.config import data_path
from ndpsim.inference.prediction.machine import OwnMachine
from ndpsim.inference.processors.banks import BankAttention
from ndpsim.inference.processors.parallel import Exchange, tensor_part
from ndpsim.inference.serving.gpus import Experts, GpuSteps
from ndpsim.inference.serving.log import writing_serving_log
from ndpsim.inference.serving.server import run_serving, set_up
from ndpsim.simulate.results.serving import ServingResult
from ndpsim.workload.models import Attention, CompressedAttention, Index, Matrix, Residual
from ndpsim.workload.requests import Requests
from ndpsim.workload.routing.sequences import SequenceRouting
from test_serving import requests

DENSE = "llama-3.1-8b"


def serve(asked: Requests, model: Any = DENSE, **more: Any) -> ServingResult:
    return run_serving("trimoe", model, asked, **more)


# ---- Dense models ------------------------------------------------------------------------------------------------


def test_a_step_of_a_dense_model_takes_all_layers_and_the_head():
    prompt = 100
    (one,) = serve(requests((prompt, 2))).per_request
    processors, model = ndpsim.load_processors("trimoe"), ndpsim.load_model(DENSE)

    def step_ns(context: int, new: int) -> float:
        time = processors.dense_time(model, 1, context, new)
        return 32 * (time.attention_ns + time.dense_layer_ns) + time.head_ns

    assert one.ttft_ns == pytest.approx(step_ns(prompt, prompt), rel=1e-12)
    assert one.tpot_ns == pytest.approx(step_ns(prompt + 1, 1), rel=1e-12)


def test_the_kv_cache_gets_what_weights_and_work_leave_of_the_share_of_the_memory():
    result = serve(requests((100, 2)), max_batch=128, max_tokens=2048)
    weights = 2 * 8_030_261_248 - 2 * 65 * 4096  # all parameters of the model's card but its norms, 2 B each
    token = 2 * 32 * 8 * 128 * 2  # keys and values of 32 layers
    # In work: of a token two vectors and what is inside a feed-forward network; the logits of each sequence.
    work = 2048 * (2 * 4096 + 3 * 14336) * 2 + 128 * 128256 * 4
    assert result.config["kv_blocks"] == int((80 * 2**30 - 8e9 - weights - work) // (16 * token))


def test_a_dense_model_has_no_policy_and_its_log_is_consistent(tmp_path: Path):
    asked = requests(*[(200, 20)] * 12, arrivals=np.arange(12) * 2e7)
    with writing_serving_log(tmp_path / "log.jsonl") as log:
        result = serve(asked, log=log, kv_blocks=50, max_batch=4, max_tokens=256)
    assert (result.config["policy"], result.config["routing"], result.pairs_by_engine) == (None, None, {})
    assert json.loads((tmp_path / "log.jsonl").read_text().splitlines()[0])["policy"] is None
    assert result.preemptions > 0
    report = check_serving(tmp_path / "log.jsonl")
    assert report.ok, report


def test_a_dense_model_needs_only_a_gpu_and_may_be_a_file(tmp_path: Path):
    whole = yaml.safe_load(data_path("hwconfigs", "trimoe").read_text())
    file, model = tmp_path / "gpu.yaml", tmp_path / "own.json"
    file.write_text(yaml.safe_dump({key: whole[key] for key in ("name", "dram", "gpu")}))
    model.write_text(
        json.dumps(
            {
                "model_type": "llama", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
                "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 100,
            }
        )
    )  # fmt: skip
    result = run_serving(file, model, requests((10, 3)))
    assert (result.config["model"], result.steps) == ("own", 3)
    assert result.utilization == {"gpu": pytest.approx(1)}


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"policy": "trimoe"}, "conflict policy"),
        ({"routing": "skewed"}, "conflict routing"),
        ({"bits": 8}, "conflict bits"),
        ({"weights": "q4_k_m"}, "conflict weights"),
        ({"gpu_experts": 1}, "conflict gpu_experts"),
        ({"kv": "host"}, "unsupported kv"),
        ({"kv_blocks": 2}, "too-large requests"),
    ],
)
def test_what_needs_experts_or_other_memory_is_refused(more: dict[str, Any], expected: str):
    with refused(expected):
        serve(requests((100, 2)), **more)


def test_an_expert_of_a_dense_model_is_refused():
    with refused("unsupported model"):
        ndpsim.simulate_expert(model=DENSE)


def test_layers_of_a_dense_model_take_as_long_as_served_ones_and_as_predicted_ones():
    (one,) = serve(requests((100, 2))).per_request
    (run,) = ndpsim.run_moe("trimoe", DENSE, batch=1, steps=2, prompt=100, context=101).runs
    assert (run.policy, run.pairs, run.moe_ns) == ("none", 0, 0)
    assert run.prefill_ns == pytest.approx(one.ttft_ns, rel=1e-12)
    assert run.decode_ns == pytest.approx(2 * one.tpot_ns, rel=1e-12)
    half = ndpsim.run_moe("trimoe", DENSE, batch=1, steps=2, context=101, layers=range(16)).runs[0]
    head_ns = ndpsim.load_processors("trimoe").dense_time(DENSE, 1, 101).head_ns
    assert half.decode_ns == pytest.approx(run.decode_ns / 2 + head_ns, rel=1e-12)
    parts = {"cpu": "ryzen-9-7950x", "gpu": "rtx-4090", "link": "pcie-4-x16"}
    sizes = {"prompt": 90, "generated": 20, "weights": "q8_0"}
    told = ndpsim.predict(**parts, memory="ddr5-5200x2", model=DENSE, **sizes)
    own = OwnMachine(**parts, sockets=1, memory="ddr5-5200", dimms=2).hardware(1)
    (alike,) = ndpsim.run_moe(own, DENSE, batch=1, steps=1, context=100, weights="q8_0").runs
    assert alike.decode_ns == pytest.approx(told.decode.time_ns, rel=1e-12)


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"routing": "skewed"}, "conflict routing"),
        ({"bits": 8}, "conflict bits"),
        ({"gpu_experts": 1}, "conflict gpu_experts"),
        ({"kv": "host"}, "unsupported kv"),
        ({"attention": "ndp"}, "unsupported attention"),
        ({"check_layer": (0, 0)}, "conflict check_layer"),
        ({"observer": print}, "conflict observer"),
        ({"batch": 10**6}, "too-large gpu.memory_gb"),
        ({"policies": ["nobody"]}, "unknown-name policy"),
    ],
)
def test_layers_of_a_dense_model_have_nothing_of_experts(more: dict[str, Any], expected: str):
    with refused(expected):
        ndpsim.run_moe("trimoe", DENSE, **more)


# ---- Several GPUs ------------------------------------------------------------------------------------------------

TWO = ("gpu.count=2", "gpu.link_gbps=10", "gpu.link_latency_us=5")


def exchange_ns(size: float) -> float:
    return 5000 + size / 10


def test_with_tensor_parallelism_gpus_have_halves_and_add_up_twice_a_layer():
    (one,) = serve(requests((100, 1)), sets=TWO).per_request
    whole = ndpsim.load_model(DENSE)
    half = replace(
        whole, attention=Attention(16, 4, 128, 128), dense_intermediate=14336 // 2, vocabulary=128256 // 2
    )
    time = ndpsim.load_processors("trimoe").dense_time(half, 1, 100, 100)
    work_ns = 32 * (time.attention_ns + time.dense_layer_ns) + time.head_ns
    # Sums of 100 x 4096 activations behind 2 x 32 parts and the embedding; half of the logits of one sequence.
    links_ns = 65 * exchange_ns(100 * 4096 * 2) + exchange_ns(128256 / 2 * 2)
    assert one.ttft_ns == pytest.approx(work_ns + links_ns, rel=1e-12)


def test_words_that_cannot_be_shared_evenly_are_shared_as_far_as_they_can():
    assert tensor_part(replace(MODEL, vocabulary=1001), 2).vocabulary == 501


def experts_ns(prompts: list[int], seed: int = 1) -> float:
    """The time of the small model's experts on two GPUs, each of which has 8 of 16: the slower one in each layer."""
    routed = SequenceRouting("skewed", MODEL, np.array(prompts), seed)
    tokens = [(number, place) for number, prompt in enumerate(prompts) for place in range(prompt)]
    ids = routed.ids(*np.array(tokens).T)
    gpu = ndpsim.load_processors("trimoe").gpu
    total = 0.0
    for layer in ids:
        times = [0.0, 0.0]
        for expert in range(16):
            load = int((layer == expert).sum())
            if load:
                times[expert // 8] += gpu.expert_time(MODEL.expert, load).time_ns
        total += max(times)
    return total


def test_experts_without_weights_take_no_time_of_gpus():
    model, prompts = replace(MODEL, zero_experts=8), [40, 40]
    routed = SequenceRouting("skewed", model, np.array(prompts), 1)
    ids = routed.ids(*np.array([(number, place) for number in range(2) for place in range(40)]).T)
    chosen = (ids[..., None] == np.arange(16)).sum(axis=(1, 2))  # [layer, expert]
    alike = serve(requests((40, 1), (40, 1)), model, sets=TWO, routing="skewed")
    assert alike.pairs_by_engine["gpu_hit"] == chosen.sum() < 3 * 2 * 80
    gpu, time = ndpsim.load_processors("trimoe").gpu, ndpsim.load_processors("trimoe").dense_time
    ns = np.array([0.0, *(gpu.expert_time(MODEL.expert, load).time_ns for load in range(1, 81))])
    layers_ns = ns[chosen].reshape(3, 2, 8).sum(axis=2).max(axis=1).sum()
    dense = time(model, 1, 40, 40)
    parts_ns = (
        4 * dense.attention_ns
        + dense.dense_layer_ns
        + 3 * (dense.router_ns + dense.shared_ns)
        + dense.head_ns
    )
    moved_ns = 2 * 3 * exchange_ns(40 * 512 * 2)
    assert alike.per_request[0].ttft_ns == pytest.approx(parts_ns + moved_ns + layers_ns, rel=1e-9)


@pytest.mark.parametrize("prompts", [[40], [40, 40], [40, 40, 40]])
def test_engines_meet_in_each_layer_and_the_slower_part_of_the_experts_counts(prompts: list[int]):
    result = serve(requests(*[(one, 1) for one in prompts]), MODEL, sets=TWO, routing="skewed")
    on_first = 40 * -(-len(prompts) // 2)  # tokens of the engine that has more
    time = ndpsim.load_processors("trimoe").dense_time(MODEL, on_first // 40, 40, 40)
    parts_ns = (
        4 * time.attention_ns + time.dense_layer_ns + 3 * (time.router_ns + time.shared_ns) + time.head_ns
    )
    moved_ns = 2 * 3 * exchange_ns(on_first * 512 * 2)
    assert [one.engine for one in result.per_request] == [0, 1, 0][: len(prompts)]
    (found,) = {one.ttft_ns for one in result.per_request}
    assert found == pytest.approx(parts_ns + moved_ns + experts_ns(prompts), rel=1e-9)
    assert result.pairs_by_engine["gpu_hit"] == 3 * 2 * sum(prompts)
    assert set(result.utilization) == {"gpu 0", "gpu 1"}
    assert all(0 < share < 1 for share in result.utilization.values())


@pytest.mark.parametrize(("gpus", "heads"), [(2, (16, 4)), (8, (4, 1)), (16, (2, 1))])
def test_a_gpu_has_its_part_of_the_heads_and_at_least_one_of_keys(gpus: int, heads: tuple[int, int]):
    part = tensor_part(replace(ndpsim.load_model(DENSE), vocabulary=8 * 16 + 1), gpus)
    assert (part.attention.heads, part.attention.kv_heads) == heads
    assert part.vocabulary == 128 // gpus + 1  # of 129, so that none is lost


def test_a_gpu_has_its_part_of_linear_attention_and_of_the_layers_with_softmax():
    # Qwen3-Next has 16 heads of keys and 32 of values in three of four layers, and 2 heads of keys in the fourth.
    linear, softmax = tensor_part(ndpsim.load_model("qwen3-next-80b-a3b"), 4).attention.kinds
    assert (linear.key_heads, linear.value_heads) == (4, 8)
    assert softmax.kv_heads == 1


def test_windows_and_what_compressors_keep_are_states_of_a_sequence():
    index = Index(8, heads=4, size=16)
    compressed = CompressedAttention(
        32, 64, 32, output_groups=4, output_rank=24, window=8, rate=2, index=index
    )
    block = (Matrix("fn", 24, 4 * 4096),)
    model = replace(
        ndpsim.load_model(DENSE),
        attention=compressed,
        residual=Residual(4, True, dense=block, attention=block),
    )
    (one,) = serve(requests((100, 2)), model).per_request
    time = ndpsim.load_processors("trimoe").dense_time(model, 1, 100, 100)
    assert one.ttft_ns == pytest.approx(32 * (time.attention_ns + time.dense_layer_ns) + time.head_ns)
    # A window of 8 x 64, and of 3 tokens two series of 64 + 16 with weights, or one of the tokens before.
    assert compressed.fixed_bits(16) == (8 * 64 + (2 + 1 * 2) * 2 * 80) * 16


def test_a_gpu_has_its_part_of_compressed_attention_and_the_whole_index():
    index = Index(8, heads=4, size=16)
    compressed = CompressedAttention(
        16, 64, 32, output_groups=4, output_rank=24, window=8, rate=2, index=index
    )
    part = tensor_part(replace(MODEL, attention=compressed), 2).attention
    assert part == replace(compressed, heads=8, output_groups=2)
    with refused("unsupported gpu.count"):
        tensor_part(replace(MODEL, attention=compressed), 8)


def test_the_call_for_the_experts_of_a_layer_takes_its_time_on_each_gpu():
    ids = np.array([[[0, 1], [1, 2]], [[2, 3], [2, 3]]])  # [layer, token, k]
    routing: Any = SimpleNamespace(ids=lambda sequences, positions: ids)
    experts = Experts(routing, np.array([0.0, 10.0, 15.0]), 100.0, np.array([0, 2]))
    chunk: Any = SimpleNamespace(sequence=SimpleNamespace(number=0), tokens=2, computed=0)
    layers_ns, pairs = experts.layers_ns([chunk], 4)
    assert (layers_ns.tolist(), pairs) == ([[125.0, 110.0], [100.0, 130.0]], 8)


def test_engines_wait_for_the_slower_one_before_each_layer_and_behind_the_last():
    time = ndpsim.load_processors("trimoe").dense_time(MODEL, 1, 40, 40)
    by_tokens = {
        1: replace(time, router_ns=100.0, shared_ns=0.0, head_ns=1000.0),
        5: replace(time, router_ns=500.0, shared_ns=0.0, head_ns=10.0),
    }
    steps = GpuSteps(MODEL, lambda step: by_tokens[step.tokens], 16, None, Exchange(2, np.inf, 0.0), 2)
    sequence = SimpleNamespace(number=0)
    chunks: list[Any] = [
        SimpleNamespace(sequence=sequence, tokens=tokens, computed=0) for tokens in by_tokens
    ]
    steps.run(0, [[one] for one in chunks])
    others_ns = 4 * time.attention_ns + time.dense_layer_ns
    assert steps.clock_ns == pytest.approx(others_ns + 3 * 500.0 + 1000.0)


@pytest.mark.parametrize(
    ("beside_ns", "waits_ns"), [(30.0, 2 * 100 + 500 + 2 * 40 - 30), (780.0, 0), (900.0, 0)]
)
def test_a_gpu_waits_for_attention_in_banks_beyond_its_own_work_beside_it(beside_ns, waits_ns):
    """In each of four layers: 100 B there, 500 ns, 40 B back, at 2 ns a byte."""
    time = ndpsim.load_processors("trimoe").dense_time(MODEL, 1, 40, 40)
    (attention,) = time.attention
    banks = BankAttention(10.0, beside_ns, 500.0, 100, 40)
    of_layers = {
        "without": time,
        "with": replace(time, attention=(replace(attention, in_banks=banks),)),
    }
    clocks = {}
    chunk: Any = SimpleNamespace(sequence=SimpleNamespace(number=0), tokens=40, computed=0)
    for name, of_layer in of_layers.items():
        exchange = Exchange(1, 1.0, 0.0)
        steps = GpuSteps(MODEL, lambda step, of=of_layer: of, 16, None, exchange, 1, lambda size: 2.0 * size)
        steps.run(0, [[chunk]])
        clocks[name] = steps.clock_ns
        share = steps.results(steps.clock_ns)["bottleneck"].get("banks", 0.0)
    assert clocks["with"] == pytest.approx(clocks["without"] + 4 * waits_ns)
    assert share == pytest.approx(4 * waits_ns / clocks["with"])


@pytest.mark.parametrize("ahead", [True, False])
def test_the_log_of_two_engines_is_consistent_and_an_idle_one_takes_part(tmp_path: Path, ahead: bool):
    asked = requests(*[(40, 20), (20, 3)] * 6, (30, 40), arrivals=[*np.arange(12) * 1e6, 1e9])
    with writing_serving_log(tmp_path / "log.jsonl") as log:
        result = serve(
            asked, MODEL, sets=TWO, log=log, kv_blocks=20, max_batch=3, max_tokens=48, async_scheduling=ahead
        )
    header, *lines = map(json.loads, (tmp_path / "log.jsonl").read_text().splitlines())
    assert (header["engines"], header["lockstep"], header["policy"]) == (2, True, None)
    steps = [line for line in lines if "step" in line]
    assert len(steps) == 2 * result.steps
    assert not all(line["scheduled"] for line in steps)
    assert {one.engine for one in result.per_request} == {0, 1}
    assert result.most_running <= 6
    report = check_serving(tmp_path / "log.jsonl")
    assert report.ok, report


def test_a_free_link_makes_two_gpus_faster_and_a_slow_one_slower_than_one():
    def ns(*sets: str) -> float:
        return serve(requests((2000, 20)), sets=sets).time_ns

    free = ns("gpu.count=2", "gpu.link_gbps=1e6", "gpu.link_latency_us=0")
    one = ns()
    assert one / 2 < free < one < ns("gpu.count=2", "gpu.link_gbps=1", "gpu.link_latency_us=0")


@pytest.mark.parametrize(
    ("model", "sets", "more", "expected"),
    [
        (DENSE, TWO, {"parallel": "data"}, "unsupported parallel"),
        (DENSE, (), {"parallel": "tensor"}, "conflict parallel"),
        (DENSE, TWO, {"parallel": "pipeline"}, "unknown-name parallel"),
        (DENSE, ("gpu.count=3",), {}, "unsupported gpu.count"),
        (MODEL, TWO, {"policy": "trimoe", "parallel": "data"}, "conflict parallel"),
        (MODEL, TWO, {"policy": "trimoe", "preemption": "swap"}, "unsupported preemption"),
        (DENSE, TWO, {"policy": "trimoe"}, "conflict policy"),
        (MODEL, TWO, {"gpu_experts": 1}, "conflict gpu_experts"),
        (MODEL, TWO, {"kv": "host"}, "unsupported kv"),
        ("deepseek-v2", TWO, {}, "too-large gpu.memory_gb"),
    ],
)
def test_what_several_gpus_cannot_do_is_refused(model: Any, sets: Any, more: dict[str, Any], expected: str):
    with refused(expected):
        serve(requests((100, 2)), model, sets=sets, **more)


@pytest.mark.parametrize(
    ("given", "policy"),
    [
        ({"model": "qwen3-30b-a3b"}, "trimoe"),
        ({"model": "qwen3-30b-a3b", "gpu.count": "2"}, None),
        ({"model": "qwen3-30b-a3b", "gpu.count": "2", "policy": "trimoe"}, "trimoe"),
        ({"model": "llama-3.1-8b"}, None),
        ({"model": "qwen3-30b-a3b", "policy": "balance"}, "balance"),
    ],
)
def test_a_point_of_a_sweep_names_the_policy_that_runs(given, policy):
    from ndpsim.studies.sweeps.commands.serve import COMMAND

    assert COMMAND.resolve({"requests": "poisson:rate=1", **given}).config["policy"] == policy


# ---- A policy with several GPUs ----------------------------------------------------------------------------------


def test_under_a_policy_each_gpu_has_half_of_a_block_and_of_an_expert():
    given = {"model": MODEL, "policy": "trimoe", "gpu_experts": 2, "parallel": None}
    one, two = (serve(requests((100, 2)), **given, sets=sets).config for sets in ((), TWO))
    assert (one["parallel"], two["parallel"], two["engines"]) == (None, "tensor", 1)
    for name in ("attention", "head", "kv_cache", "expert_buffers"):
        assert 2 * two["gpu_bytes"][name] == one["gpu_bytes"][name], name
    assert one["kv_blocks"] == two["kv_blocks"] == 7  # 102 tokens in blocks of 16


def test_two_gpus_have_room_for_more_experts():
    small = ["gpu.memory_gb=0.028", "gpu.reserved_gb=0"]
    found = [
        serve(requests(*[(60, 8)] * 8), MODEL, policy="balance", sets=[*small, f"gpu.count={count}"])
        for count in (1, 2)
    ]
    assert found[1].config["gpu_experts"] > found[0].config["gpu_experts"]
    hits = [one.pairs_by_engine["gpu_hit"] for one in found]
    assert hits[1] > hits[0]


@pytest.mark.parametrize("kv", ["auto", "host"])
@pytest.mark.parametrize("policy", ["trimoe", "balance", "dali"])
def test_the_log_of_two_gpus_under_a_policy_is_consistent(tmp_path: Path, kv: str, policy: str):
    with writing_serving_log(tmp_path / "log.jsonl") as log:
        serve(requests(*[(60, 8)] * 6), MODEL, policy=policy, kv=kv, sets=TWO, gpu_experts=2, log=log)
    report = check_serving(tmp_path / "log.jsonl")
    assert report.ok, report.findings


@pytest.mark.parametrize("sets", [(), TWO])
def test_the_host_has_the_whole_cache_of_several_gpus(sets: Sequence[str]):
    """8 sequences have 7 blocks of 16 tokens in 4 layers: keys and values of 4 heads of 64 values in 16 bits."""
    asked = requests(*[(60, 40)] * 8)
    settings = ServeSettings(
        hw="trimoe", model=MODEL, requests=asked, policy="trimoe", kv="host", sets=sets, max_batch=8
    )
    assert set_up(settings).room.memory.host_kv_bytes == 8 * 7 * 16 * 4 * 2 * 4 * 64 * 2
