"""Layers on several GPUs, which have equal parts of each matrix, of the KV cache and of each expert."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import pytest

import ndpsim
from calls import call
from mistakes import refused
from ndpsim.audit.schedule import check_schedule
from ndpsim.inference.layers.log import writing_log
from ndpsim.inference.processors import Processors, Step
from ndpsim.inference.processors.parallel import Exchange, with_exchanges

# No NDP units: the CPU, and GPUs with links of 32 GB/s. Copies have packets of 256 bytes with 24 of header.
HW = "dali-7532-3090"
MODEL = "qwen3-30b-a3b"  # 3 x 2048 x 768 weights, 48 layers, 32 heads, 4 of keys of 128


def run(count=2, policy="on-demand", observer=None, **named):
    given = {"batch": 8, "steps": 2, "layers": [0, 1], "bounds": False} | named
    sets = [f"gpu.count={count}", *given.pop("sets", ())]
    return ndpsim.run_moe(HW, MODEL, [policy], sets=sets, observer=observer, **given)


def jobs_of(count):
    """Jobs of the first layer of a run."""
    layers = []
    run(count, observer=lambda _, layer: layers.append(layer))
    return layers[0].jobs


def test_an_expert_s_parts_are_copied_and_computed_at_once():
    for count in (1, 2, 4):
        jobs = jobs_of(count)
        hardware = ndpsim.load_hardware(HW, [f"gpu.count={count}"])
        gpu, link = Processors(hardware).gpu, hardware.system.pcie
        part_bytes = 2 * 3 * 2048 * 768 // count
        packets = -(-part_bytes // link.packet_bytes)
        wire_ns = (part_bytes + packets * link.header_bytes) / link.gbps
        copies = [one for one in jobs if one.kind == "copy"]
        assert copies[0].alone_ns == pytest.approx(
            wire_ns + link.latency_ns + 1e3 * link.copy_overhead_us, rel=1e-6
        )
        assert copies[0].bytes == 2 * 3 * 2048 * 768  # of all GPUs
        (expert,) = [one for one in jobs if one.kind == "expert" and one.expert == copies[0].expert]
        compute_ns = (
            part_bytes
            * -(-expert.tokens // gpu.tile_tokens)
            * gpu.tile_tokens
            / (gpu.peak_tflops * gpu.compute_efficiency * 1e3)
        )
        read_ns = part_bytes / (gpu.memory_gbps * gpu.memory_efficiency)
        power = gpu.roofline_power
        both_ns = (compute_ns**power + read_ns**power) ** (1 / power)
        assert expert.alone_ns == pytest.approx(both_ns + gpu.expert_overhead_ns)


def test_gpus_add_up_vectors_twice_a_layer_and_collect_logits():
    hardware = ndpsim.load_hardware(HW, ["gpu.count=2", "gpu.link_gbps=10", "gpu.link_latency_us=3"])
    processors, step = Processors(hardware), Step(8, 512)
    part = processors.gpu_part(ndpsim.load_model(MODEL))
    alone = processors.step_time(part, step)
    both = with_exchanges(alone, part, step, processors.exchange)
    # A ring of two: each sends as many bytes as a vector has, 8 tokens of 2048 values.
    sum_ns = 3000 + 8 * 2048 * 2 / 10
    logits_ns = 3000 + 8 * 151936 / 2 * 2 / 10
    assert both.attention_ns == pytest.approx(alone.attention_ns + 2 * sum_ns)
    assert both.of_layer(5).time_ns == pytest.approx(alone.of_layer(5).time_ns + 2 * sum_ns)
    assert both.head_ns == pytest.approx(alone.head_ns + sum_ns + logits_ns)
    assert (both.router_ns, both.shared_ns) == (alone.router_ns, alone.shared_ns)
    assert sum(one.time_ns for one in both.operations if one.name == "sums_of_gpus") == pytest.approx(
        3 * sum_ns + logits_ns
    )
    assert with_exchanges(alone, part, step, Exchange(1, 10, 3000)) is alone


def test_each_gpu_has_a_part_of_the_weights_and_of_the_cache():
    one, two = (run(count).config["gpu_bytes"] for count in (1, 2))
    for name in ("attention", "embedding", "head", "kv_cache", "expert_buffers"):
        assert 2 * two[name] == one[name], name
    assert (two["router"], two["reserved"]) == (one["router"], one["reserved"])
    memory = ndpsim.load_hardware(HW).system.gpu.memory_gb * 1e9
    room = memory - sum(two.values())
    expected = room // (3 * 2048 * 384 * 2) * 2 // 48  # of 48 layers, two
    assert run(2).config["gpu_experts"] == expected > run(1).config["gpu_experts"]


def test_the_host_has_the_whole_cache_and_each_gpu_moves_its_heads():
    one, two = (ndpsim.load_hardware(HW, [f"gpu.count={count}"]) for count in (1, 2))
    whole = Processors(one).step_time(MODEL, Step(8, 4096), kv="host")
    part = Processors(two).step_time(
        Processors(two).gpu_part(ndpsim.load_model(MODEL)), Step(8, 4096), kv="host"
    )
    assert 2 * part.host_read_bytes == whole.host_read_bytes
    assert 2 * part.host_write_bytes == whole.host_write_bytes


@pytest.mark.parametrize("kv", ["gpu", "host"])
def test_the_log_of_several_gpus_is_consistent(tmp_path, kv):
    path = tmp_path / "log.jsonl"
    with writing_log(path) as observer:
        for policy in ("balance", "dali", "on-demand"):
            run(2, policy, observer, kv=kv, prompt=16)
    report = check_schedule(path)
    assert report.ok, report.findings


def test_more_gpus_are_no_slower_and_no_run_beats_its_bound():
    results = [
        run(count, "balance", bounds=True, sets=["gpu.link_latency_us=0"]).runs[0] for count in (1, 2, 4)
    ]
    assert all(first.moe_ns >= second.moe_ns for first, second in itertools.pairwise(results))
    assert all(one.bound_ns <= one.moe_ns for one in results)
    assert math.isclose(results[0].moe_ns, run(1, "balance").runs[0].moe_ns)


@pytest.mark.long
def test_a_layer_of_several_gpus_is_that_of_the_cycle_level_session():
    given = {"batch": 8, "steps": 1, "layers": [0], "sets": ["gpu.count=2"], "bounds": False}
    for run_of in ndpsim.run_moe("trimoe", MODEL, ["klotski", "trimoe"], check_layer=(0, 0), **given).runs:
        assert run_of.check.ok, run_of.policy


@pytest.mark.parametrize(
    ("hw", "named", "words"),
    [
        (HW, {"sets": ["gpu.count=3"]}, "unsupported sets gpu.count"),
        ("cxl", {"sets": ["gpu.count=2"]}, "unsupported sets gpu.count"),
        ("dgx-attacc", {"sets": ["gpu.count=2"], "attention": "ndp"}, "unsupported sets gpu.count"),
    ],
)
def test_gpus_that_cannot_share_a_model_are_refused(hw, named, words):
    with refused(words):
        ndpsim.run_moe(hw, MODEL, ["on-demand"], **named)


def test_a_dense_model_on_several_gpus_takes_less_time_and_is_printed():
    given = ["moe", "--hw", "trimoe", "--model", "llama-3.1-8b", "--batch", "4", "--steps", "1"]
    times = []
    for count in (1, 2):
        status, out, err = call(*given, "--set", f"gpu.count={count}")
        assert (status, "llama-3.1-8b on trimoe" in out) == (0, True), err
        sets = [f"gpu.count={count}", "gpu.link_latency_us=0"]
        times.append(ndpsim.run_moe("trimoe", "llama-3.1-8b", batch=4, steps=1, sets=sets).runs[0].time_ns)
    assert times[0] / 2 < times[1] < times[0]


def test_the_host_s_traffic_is_none_of_a_dense_model():
    with refused("conflict host_gbps"):
        ndpsim.run_moe("trimoe", "llama-3.1-8b", host_gbps=1.0)


def test_measured_power_is_of_all_gpus():
    hardware = ndpsim.load_hardware("cache-7960x-4090")
    two = replace(
        hardware,
        system=hardware.system.model_copy(
            update={"gpu": hardware.system.gpu.model_copy(update={"count": 2})}
        ),
    )
    one_w, two_w = (Processors(each).power_w("mixtral-8x7b") for each in (hardware, two))
    assert (two_w["cpu"], two_w["gpu"]) == (one_w["cpu"], 2 * one_w["gpu"])
