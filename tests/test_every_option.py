"""Options and printed figures of `serve`, `predict` and `optimize`, with values worked by hand.

A new option without a case fails, and so does a new figure. `serve` runs on a machine on which only launches take time: 5 us a kernel, 10 us an
expert. A step of the small model is 44 kernels: 6 of attention in each of 4 layers, 3 of the dense layer's network, 5 of
the router and the shared experts in each of 3 others, and 2 of the head. Its tokens choose two experts in each of these
3 layers. It takes 44 x 5 + 3 x 2 x 10 = 280 us, however many tokens it has.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import optuna
import pytest

from builders.small_moe import CACHED_BYTES, EXPERT_BYTES, MODEL
from builders.swept_fake import Fake, run_here, runs
from calls import GIVEN, said
from mistakes import refused
from ndpsim.base.options.predict import PREDICT
from ndpsim.base.options.serve import FIND, SERVE, ServeSettings, ServiceLevel
from ndpsim.base.options.swept import OPTIMIZE
from ndpsim.config import load_hardware
from ndpsim.inference.prediction import band, predict
from ndpsim.inference.serving.measured import compare_measured
from ndpsim.inference.serving.server import find_rate, run_serving, set_up
from ndpsim.policies import Assignment, Policy
from ndpsim.report.prediction import print_prediction
from ndpsim.report.serving import (
    found_note,
    latency_rows,
    measured_rows,
    print_measured,
    rates_table,
    serving_notes,
    serving_table,
    serving_title,
    tries_table,
)
from ndpsim.simulate.results.serving import FoundRate, TriedRate
from ndpsim.studies.search.run import optimize
from ndpsim.studies.sweeps import run as execute_module
from ndpsim.studies.sweeps.commands import swept_commands
from ndpsim.workload.models import load_model
from ndpsim.workload.requests import Measured, Requests
from ndpsim.workload.routing import Routing
from ndpsim.workload.routing.generate import find_routing
from test_serving import MACHINE, OnGpu, requests

# ---- serve

LAUNCHES = (
    "gpu.family=null", "gpu.tflops=1000000", "gpu.compute_efficiency=1", "gpu.attention_efficiency=1",
    "gpu.memory_tbps=1000", "gpu.memory_efficiency=1", "gpu.kernel_overhead_us=5", "gpu.expert_calls=single",
    "gpu.expert_overhead_us=10",
)  # fmt: skip
TWICE = (*LAUNCHES, "gpu.kernel_overhead_us=10")
STEP_US = 280
#: PCIe carries 1 GB/s, in packets of 256 bytes with headers of 24, after 1 us.
SLOW_PCIE = (
    "pcie.gbps=1", "gpu.pcie_gbps=1", "pcie.packet_bytes=256", "pcie.header_bytes=24", "pcie.latency_ns=1000",
    "pcie.copy_overhead_us=0",
)  # fmt: skip
BLOCK_BYTES = 16 * 4 * CACHED_BYTES
TWO_GPUS = ("gpu.count=2", "gpu.link_gbps=10", "gpu.link_latency_us=5")


def chosen(*experts: tuple[int, int]) -> Routing:
    """Recorded sequences, each with the same two experts for all tokens and layers."""
    ids = np.array(experts, np.int16)
    return Routing(16, (1, 2, 3), np.broadcast_to(ids, (4, 3, *ids.shape)).copy())


class OnCpu(Policy):
    """All experts on the CPU."""

    name = "on-cpu"

    def assign(self, view: Any) -> Assignment:
        return Assignment(cpu=np.flatnonzero(view.loads).tolist())


#: Two requests of 16 prompt and 3 output tokens, all at once: a step with both prompts, and two more.
USUAL: dict[str, Any] = dict(
    hw=MACHINE, model=MODEL, requests=requests((16, 3), (16, 3)), policy=OnGpu, routing=chosen((0, 1)),
    max_batch=8, max_tokens=64, sets=LAUNCHES, async_scheduling=False, kv_blocks=100,
)  # fmt: skip
APART = dict(requests=requests((16, 3), (16, 3), arrivals=[0.0, 100e3]))
#: The first leaves after a step, the second stays, and the third waits for one of them.
THREE = dict(requests=requests((16, 1), (16, 3), (16, 3)), max_batch=2)
SAME_BLOCK = dict(
    requests=requests(
        (17, 2), (17, 2), arrivals=[0.0, 1e9], block_tokens=16, blocks=tuple(np.array([[1, 2], [1, 3]]))
    )
)


class Case(NamedTuple):
    """A figure without an option and with it; `given`: what both runs have besides `USUAL`."""

    value: Any
    figure: Callable[[Any], float]
    before: float
    after: float
    given: Mapping[str, Any] = MappingProxyType({})


def time_us(result: Any) -> float:
    return float(result.time_ns) / 1000


def steps(result: Any) -> float:
    return float(result.steps)


def held(part: str) -> Callable[[Any], float]:
    return lambda result: result.config["gpu_bytes"][part]


def of_config(name: str) -> Callable[[Any], float]:
    return lambda result: result.config[name]


def exchanged_us(size: float) -> float:
    return 5 + size / 10_000


# On two engines with a request each, the first GPU has both experts, and each of three layers exchanges twice: 16
# tokens of 1 KB, then one. Sharing each matrix, they add up after the embedding and twice a layer, and collect logits
# of 2 x 500 values: 32 tokens of 1 KB, then two.
APART_US = 3 * STEP_US + 6 * (exchanged_us(16 * 1024) + 2 * exchanged_us(1024))
SHARED_US = 3 * STEP_US + 9 * (exchanged_us(32 * 1024) + 2 * exchanged_us(2 * 1024)) + 3 * exchanged_us(2000)

SERVED: dict[str, Case] = {
    "hw": Case(load_hardware(MACHINE, TWICE), time_us, 3 * 280, 3 * 500, dict(sets=(), hw=load_hardware(MACHINE, LAUNCHES))),
    "sets": Case(TWICE, time_us, 3 * 280, 3 * 500),
    # Without shared experts three layers have three kernels less.
    "model": Case(replace(MODEL, shared_intermediate=0), time_us, 840, 3 * (280 - 3 * 3 * 5)),
    "requests": Case(requests((16, 4), (16, 4)), steps, 3, 4),
    # 32 + 2 + 2 tokens, two experts each, in three layers.
    "policy": Case(OnCpu, lambda result: result.pairs_by_engine["cpu"], 0, 36 * 2 * 3),
    # The second request comes after 0.1 ms, within the first step, or after 1 ms, when the first has ended.
    "rate": Case(1000, time_us, 4 * 280, 1000 + 3 * 280, APART),
    "slo": Case("ttft=300us", lambda result: result.goodput_per_s, 2e6 / 1120, 1e6 / 1120, {**APART, "slo": "ttft=1s"}),
    # Each two are served to the end: three steps, and three for the last one.
    "scheduler": Case("static", steps, 4, 6, THREE),
    "max_batch": Case(1, steps, 3, 6),
    # 16 prompt tokens; 1 and 15; 1 and 1; then the second request alone.
    "max_tokens": Case(16, steps, 3, 5),
    # With three blocks the second request loses its block after a step, and waits for the end of the first.
    "preemption": Case(
        "swap", time_us, 5 * 280, 5 * 280 + 2 * (1 + BLOCK_BYTES * 280 / 256 / 1000),
        dict(kv_blocks=3, sets=(*LAUNCHES, *SLOW_PCIE)),
    ),
    "parallel": Case("tensor", time_us, APART_US, SHARED_US, dict(policy=None, sets=(*LAUNCHES, *TWO_GPUS))),
    "kv": Case("host", held("kv_cache"), 100 * BLOCK_BYTES, 0),
    "kv_bits": Case(8, held("kv_cache"), 100 * BLOCK_BYTES, 50 * BLOCK_BYTES),
    "kv_blocks": Case(3, lambda result: result.preemptions, 0, 1),
    # The last token is in no block: 18 of each request.
    "block_tokens": Case(4, lambda result: result.most_kv_blocks, 2 * 2, 2 * 5),
    "prefix_cache": Case(False, lambda result: result.reused_tokens, 16, 0, SAME_BLOCK),
    # The place of the first request is free only for the step after the next.
    "async_scheduling": Case(True, steps, 4, 5, THREE),
    "step_overhead_us": Case(100, time_us, 840, 840 + 3 * 100),
    # Sequences follow recorded ones of other experts: four in each layer of each step.
    "routing": Case(chosen((0, 1), (2, 3)), time_us, 840, 3 * (280 + 60), dict(seed=2)),
    # With this seed both follow the same one, except for tokens of prompts, which have choices of all.
    "seed": Case(1, time_us, 3 * 340, 340 + 2 * 280, dict(routing=chosen((0, 1), (2, 3)), seed=2)),
    # Buffers of two experts, and q, k, v and o of four layers.
    "bits": Case(8, held("expert_buffers"), 2 * EXPERT_BYTES, EXPERT_BYTES),
    "dense_bits": Case(8, held("attention"), 4 * 4 * 512 * 256 * 2, 4 * 4 * 512 * 256),
    "weights": Case("q8_0", held("expert_buffers"), 2 * EXPERT_BYTES, EXPERT_BYTES * 34 // 32),
    "gpu_experts": Case(2, of_config("gpu_experts"), 3 * 3, 3 * 2, dict(policy=OnCpu, gpu_experts=3)),
}  # fmt: skip
#: The test of an option whose value by hand needs more than a run.
ELSEWHERE = {
    "serve": {
        "host_gbps": "test_beside_host.test_requests_are_served_beside_traffic",
        "attention": "test_attention_device.test_serving_computes_the_attention_of_each_step",
        "arbitration": "test_every_option.test_the_arbitration_of_serving_is_that_of_its_costs",
        "find_rate": "test_serving_figures.test_the_highest_rate_is_found_within_the_64th_root_of_two",
        "attainment": "test_every_option.test_the_rate_is_that_at_which_the_asked_share_is_within_the_level",
    },
    "predict": {
        "memory_gb": "test_predict.test_beside_a_gpu_the_host_has_to_hold_the_experts",
        "upgrades": "test_predict.test_every_upgrade_is_there_with_what_it_gives",
        "seed": "test_every_option.test_a_prediction_reads_the_experts_that_the_prompt_of_a_seed_chooses",
    },
    "optimize": {
        "command": "test_every_option.test_a_search_has_as_many_points_as_asked_with_what_all_of_them_have",
        "sets": "test_every_option.test_a_search_has_as_many_points_as_asked_with_what_all_of_them_have",
        "vary": "test_every_option.test_a_search_has_as_many_points_as_asked_with_what_all_of_them_have",
        "budget": "test_every_option.test_a_search_has_as_many_points_as_asked_with_what_all_of_them_have",
        "sampler": "test_every_option.test_random_points_are_those_of_optuna_with_the_seed",
        "seed": "test_every_option.test_random_points_are_those_of_optuna_with_the_seed",
        "batch": "test_every_option.test_a_batch_is_run_before_anything_is_known",
        "out": "test_every_option.test_what_a_folder_has_is_run_once_and_again_if_it_failed",
        "retry_failed": "test_every_option.test_what_a_folder_has_is_run_once_and_again_if_it_failed",
        "force": "test_optimize.test_a_folder_of_another_search_is_refused_unless_forced",
        "jobs": "test_optimize.test_points_follow_from_seed_and_batch_and_not_from_the_number_of_processes",
        "cluster": "test_sweep_cluster.test_a_search_on_a_cluster_is_the_one_of_this_process",
    },
}


@pytest.mark.parametrize("option", SERVED)
def test_an_option_of_serving_changes_a_figure_as_by_hand(option):
    case = SERVED[option]
    usual = {**USUAL, **case.given}
    assert case.figure(run_serving(**usual)) == pytest.approx(case.before, rel=2e-4)
    assert case.figure(run_serving(**{**usual, option: case.value})) == pytest.approx(case.after, rel=2e-4)


@pytest.mark.parametrize("arbitration", ["host-first", "ndp-first"])
def test_the_arbitration_of_serving_is_that_of_its_costs(arbitration):
    """`test_costs` has what it makes of them."""
    machine: Any = set_up(ServeSettings(**USUAL, arbitration=arbitration)).machine
    assert machine.setup.costs.arbitration == arbitration


def test_a_level_has_to_hold_with_the_time_of_the_program():
    """A request alone has its first token after 280 us and those of the program."""
    asked = {**USUAL, "step_overhead_us": 100}
    run_serving(**asked, slo="ttft=381us")
    with refused("range slo"):
        run_serving(**asked, slo="ttft=379us")


def test_the_rate_is_that_at_which_the_asked_share_is_within_the_level(monkeypatch):
    """On a machine of 8 requests a second, of which 1 - r / 16 are within the level at r a second."""

    class Machine:
        def serve(self, rate: float) -> Any:
            good = 8.0 * max(1 - rate / 16, 0)
            return SimpleNamespace(
                requests=4,
                requests_per_s=8.0,
                goodput_per_s=good,
                steady_share=1.0,
                ttft_ns=None,
                tpot_ns=None,
            )

    monkeypatch.setattr("ndpsim.inference.serving.server.set_up", lambda settings: None)
    monkeypatch.setattr("ndpsim.inference.serving.server.Server", lambda settings, setup: Machine())
    for attainment, rate in ((0.9, 1.6), (0.75, 4.0), (0.5, 8.0)):
        found = find_rate(ServiceLevel(ttft_ns=1.0), attainment, requests="poisson:rate=2,requests=4")
        assert found.rate_per_s <= rate * (1 + 1e-9)
        assert found.beyond_per_s >= rate * (1 - 1e-9)
        assert found.beyond_per_s / found.rate_per_s == pytest.approx(2 ** (1 / 64))
        assert found.within_share == pytest.approx(1 - found.rate_per_s / 16)


# ---- predict

#: Only launches, the CPU's reads and PCIe take time: half of two channels of DDR5-4800, 3 us an expert, 7 us a layer;
#: packets of 256 bytes without headers, after 1 us, and 2 us more a copy.
PARTS: dict[str, Any] = dict(
    cpu="cpu.yaml", memory="ddr5-4800x2", gpu="rtx-4090", model="config.json", weights="q8_0", prompt=64, n_cpu_moe=3,
    upgrades=False, sets=(
        *LAUNCHES[:7], "host.cpu_read_share=0.5", "host.cpu_tflops=10000", "host.cpu_thread_overhead_us=0", "host.cpu_added_tokens=0", "host.cpu_expert_overhead_us=3", "host.cpu_layer_overhead_us=7",
        "pcie.packet_bytes=256", "pcie.header_bytes=0", "pcie.latency_ns=1000", "pcie.copy_overhead_us=2",
    ),
)  # fmt: skip
#: In q8_0, 32 weights take 34 B; keys and values of a token in three layers, two heads of 128, at 16 bits.
WEIGHTS = 3 * 1024 * 768
Q8, TOKEN_BYTES = WEIGHTS * 34 // 32, 3 * 2 * 2 * 128 * 2
READING = "experts on the CPU: reading weights"


def read_us(expert_bytes: float, gbps: float) -> float:
    """Six experts of a decoded token, two in each of three layers."""
    return 6 * (expert_bytes / gbps / 1000 + 3)


def expert_us(result: Any) -> float:
    return float(result.decode.parts_ns[READING]) / 1000


def kv_bytes(result: Any) -> float:
    return float(result.gpu_bytes["kv_cache"])


def dense_us(result: Any) -> float:
    """Kernels of the prompt: 8 in each of three layers, and 2 of the head."""
    return float(result.prefill.parts_ns["attention and dense parts"]) / 1000


def activations_us(gbps: float) -> float:
    """A vector of 2 KB to the CPU and one back in each of three layers."""
    return 6 * (1 + 2 + 2048 / gbps / 1000)


GBPS = 0.5 * 2 * 8 * 4.8
PREDICTED: dict[str, Case] = {
    "cpu": Case("slow.yaml", expert_us, read_us(Q8, GBPS), read_us(Q8, 10)),
    "memory": Case("ddr5-4800x4", expert_us, read_us(Q8, GBPS), read_us(Q8, 2 * GBPS)),
    # Without one, all experts are computed by what reads weights in the GPU's place.
    "gpu": Case("none", lambda result: len(result.gpu_bytes), 11, 0, dict(n_cpu_moe=None)),
    # Five layers for three.
    "model": Case("deep.json", lambda result: result.host_bytes, 3 * 16 * Q8, 5 * 16 * Q8, dict(n_cpu_moe=9)),
    "weights": Case("bf16", expert_us, read_us(Q8, GBPS), read_us(2 * WEIGHTS, GBPS)),
    "prompt": Case(128, kv_bytes, (64 + 64) * TOKEN_BYTES, (128 + 64) * TOKEN_BYTES),
    "sockets": Case(2, expert_us, read_us(Q8, 2 * GBPS), read_us(Q8, 4 * GBPS), dict(memory="ddr5-4800x8")),
    # A copy from memory that is not pinned reads it with a core first, at 16 GB/s: PCIe 3 has 15.754.
    "link": Case(
        "pcie-3-x16",
        lambda result: result.decode.parts_ns["activations over the link"] / 1000,
        activations_us(16),
        activations_us(15.754),
    ),
    "generated": Case(28, kv_bytes, (64 + 64) * TOKEN_BYTES, (64 + 14) * TOKEN_BYTES),
    # Chunks of 512 tokens, and of 8192: the prompt's are two or one.
    "program": Case("ktransformers", dense_us, 2 * 26 * 5, 26 * 5, dict(prompt=1024, n_cpu_moe=0)),
    "chunk": Case(16, dense_us, 26 * 5, 4 * 26 * 5),
    "n_cpu_moe": Case(1, lambda result: result.host_bytes, 3 * 16 * Q8, 16 * Q8),
    "kv_bits": Case(8, kv_bytes, 128 * TOKEN_BYTES, 64 * TOKEN_BYTES),
    "sets": Case((*PARTS["sets"], "gpu.kernel_overhead_us=10"), dense_us, 26 * 5, 26 * 10),
}


@pytest.fixture
def parts(here: Path) -> None:
    """Files of two CPUs, of which one reads 10 GB/s, and of models of three and of five layers."""
    cpu, model = (GIVEN / "cpu.yaml").read_text(), json.loads((GIVEN / "config.json").read_text())
    Path("cpu.yaml").write_text(cpu)
    Path("slow.yaml").write_text(f"{cpu}cpu_read_gbps: {{value: 10, assumption: made for a test}}\n")
    Path("config.json").write_text(json.dumps(model))
    Path("deep.json").write_text(json.dumps({**model, "num_hidden_layers": 5}))


@pytest.mark.usefixtures("parts")
@pytest.mark.parametrize("option", PREDICTED)
def test_an_option_of_predictions_changes_a_figure_as_by_hand(option):
    case = PREDICTED[option]
    usual = {**PARTS, **case.given}
    assert case.figure(predict(**usual)) == pytest.approx(case.before, rel=1e-3)
    assert case.figure(predict(**{**usual, option: case.value})) == pytest.approx(case.after, rel=1e-3)


@pytest.mark.usefixtures("parts")
@pytest.mark.parametrize("seed", [1, 2])
def test_a_prediction_reads_the_experts_that_the_prompt_of_a_seed_chooses(seed):
    """Each expert of a layer is read once, however many of the 64 tokens choose it."""
    prompt = find_routing(None, load_model("config.json"), batch=1, steps=1, prompt=64, seed=seed).prefill_ids
    experts = sum(len(np.unique(layer)) for layer in prompt)
    found = predict(**PARTS, seed=seed).prefill.parts_ns[READING] / 1000
    assert found == pytest.approx(experts * read_us(Q8, GBPS) / 6, rel=1e-3)


# ---- optimize: the time of point n is 100 / n, its energy n * n, and it has the sum of its parts


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch, here: Path) -> None:
    monkeypatch.setitem(swept_commands(), "fake", Fake())
    monkeypatch.setattr(execute_module, "run_locally", run_here)


TIME = {"time_ns": "minimize"}


@pytest.mark.usefixtures("fake")
def test_a_search_has_as_many_points_as_asked_with_what_all_of_them_have():
    for points, budget, parts in ((8, 3, [7, 8]), (8, 8, [1, 2]), (20, 20, [1])):
        result = optimize("fake", {"n": f"1..{points}"}, TIME, fixed={"parts": parts}, budget=budget)
        assert len(result.points) == budget
        assert {row["sum"] for row in result.points} == {sum(parts)}
        if budget == points:
            assert (result.front[0]["n"], result.front[0]["time_ns"]) == (points, 100 / points)


@pytest.mark.usefixtures("fake")
@pytest.mark.parametrize("seed", [1, 2])
def test_random_points_are_those_of_optuna_with_the_seed(seed):
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=seed))
    kind = {"n": optuna.distributions.IntDistribution(0, 3999)}
    drawn = [study.ask(kind).params["n"] + 1 for _ in range(20)]
    result = optimize("fake", {"n": "1..4000"}, TIME, sampler="random", seed=seed, budget=20)
    assert [row["n"] for row in result.points] == drawn
    # TPE draws ten points before it chooses: two batches of eight.
    other = [row["n"] for row in optimize("fake", {"n": "1..4000"}, TIME, seed=seed, budget=20).points]
    assert other[:16] == drawn[:16]
    assert other[16:] != drawn[16:]


@pytest.mark.usefixtures("fake")
@pytest.mark.parametrize("batch", [2, 5])
def test_a_batch_is_run_before_anything_is_known(tmp_path, batch):
    """That no point has the metric is known after the first batch."""
    with refused("unknown-name energy_nj.totel ? energy_nj.total"):
        optimize(
            "fake",
            {"n": "1..9"},
            {"energy_nj.totel": "minimize"},
            fixed={"folder": str(tmp_path)},
            batch=batch,
        )
    assert runs(tmp_path) == batch


@pytest.mark.usefixtures("fake")
def test_what_a_folder_has_is_run_once_and_again_if_it_failed(tmp_path):
    asked: dict[str, Any] = dict(fixed={"folder": str(tmp_path), "how": "until-mended"}, budget=4, out="here")
    found = []
    for retry, mended in ((False, False), (False, True), (True, True), (True, True)):
        if mended:
            (tmp_path / "mended").touch()
        result = optimize("fake", {"n": "1..4"}, TIME, **asked, retry_failed=retry)
        found.append((result.points.failed, runs(tmp_path)))
    assert found == [(4, 4), (4, 4), (0, 8), (0, 8)]


# ---- Figures: whole tables, so that one more fails
#
# Two requests of 16 prompt and 3 output tokens; the first comes after 50 us, the second 0.1 ms later
#
# us          0 to 280    280 to 560    560 to 840    840 to 1120
# request 0   prompt      token 2       token 3
# request 1   waits       prompt        token 2       token 3
# blocks      1           2 + 1         2 + 2         2


@pytest.fixture(scope="module")
def asked() -> Requests:
    measured = Measured(np.array([140e3, 230e3]), np.array([420e3, 510e3]), time_ns=2240e3)
    return Requests(np.array([50e3, 150e3]), np.array([16, 16]), np.array([3, 3]), measured=measured)


@pytest.fixture(scope="module")
def run(asked: Requests) -> Any:
    return run_serving(**{**USUAL, "requests": asked, "slo": "ttft=300us"})


def test_latencies_of_requests(run):
    """To the first token 280 and 460 us, to the last one 840 and 1020; steps of 280 us between tokens."""
    assert latency_rows(run) == [
        ("time to first token", "370.0 µs", "370.0 µs", "442.0 µs", "458.2 µs"),
        ("time per output token", "280.0 µs", "280.0 µs", "280.0 µs", "280.0 µs"),
        ("time between tokens", "280.0 µs", "280.0 µs", "280.0 µs", "280.0 µs"),
        ("latency", "930.1 µs", "930.1 µs", "1.002 ms", "1.018 ms"),
    ]


def test_the_table_of_a_run(run):
    """In 1.12 ms. Both run for 840 us, and one waits for 180. All 2 x (16 + 2) tokens choose experts on the GPU.

    The energy is that of the memory at rest, over six tokens.
    """
    rest_nj = run.energy_nj["background"] + run.energy_nj["refresh"]
    *rows, (simulated_in, _) = serving_table(run)
    assert simulated_in == "simulated in"
    assert rows == [
        ("throughput of output tokens", "5357 tokens/s"),
        ("decode throughput of a user", "3571 tokens/s"),
        ("requests served", "1786 1/s"),
        ("requests arriving", "10,000 1/s"),
        ("requests within the service level", "892.8 1/s"),
        ("time", "1.120 ms"),
        ("steps", "4"),
        ("running sequences", "1.500 in the mean, 2 at most"),
        ("waiting sequences", "0.1607 in the mean, 1 at most"),
        ("most blocks of the KV cache in use", "4 of 100"),
        ("preemptions", "0"),
        ("prompt tokens found in the KV cache", "0.0%"),
        ("utilization, GPU", "100.0%"),
        ("utilization, CPU", "0.0%"),
        ("utilization, NDP units", "0.0%"),
        ("utilization, PCIe to the GPU", "0.0%"),
        ("utilization, PCIe from the GPU", "0.0%"),
        ("utilization, host channels", "0.0%"),
        ("pairs, GPU without a copy", "100.0%"),
        ("pairs, GPU after a copy", "0.0%"),
        ("pairs, CPU", "0.0%"),
        ("pairs, NDP", "0.0%"),
        ("energy per output token", f"{rest_nj / 6 / 1e6:.4g} mJ"),
    ]


def test_what_is_said_of_a_run(run):
    assert serving_title(run) == "small on dali-7532-3090, 16 bits, on-gpu"
    assert serving_notes(run) == [
        "2 requests with 32 prompt and 6 output tokens; scheduler vllm, at most 8 sequences and 64 tokens a step",
        "too few requests to tell whether this rate can be served for long: they arrive for less than two latencies "
        "(1.002 ms, p90)",
        "energy without GPU, CPU, PCIe (not known)",
    ]


def test_what_an_engine_does_over_time(run):
    """The middles of 200 parts of 5.6 us: 50 in each step."""
    lines = run.over_time
    assert lines["time_ns"][0] == pytest.approx(52_800, rel=1e-3)
    in_steps = {
        "running": (1, 2, 2, 1), "batch": (1, 2, 2, 1), "tokens_per_step": (16, 17, 2, 1), "kv_blocks": (1, 3, 4, 2),
        "resident_experts": (48, 48, 48, 48),
    }  # fmt: skip
    for name, values in in_steps.items():
        assert [lines[name][25 + 50 * step] for step in range(4)] == pytest.approx(values), name
    # The second request comes in the 18th part, and waits until the end of the 50th.
    assert [lines["queue"][part] for part in (10, 30, 60)] == pytest.approx([0, 1, 0])
    assert lines.keys() == {"time_ns", "queue", *in_steps}


def test_the_table_of_several_rates(run):
    names, rows = rates_table([run, run])
    assert dict(zip(names, rows[1], strict=True)) == {
        "requests arriving": "10,000 1/s",
        "time to first token, p50": "370.0 µs",
        "time to first token, p99": "458.2 µs",
        "time per output token, p50": "280.0 µs",
        "time per output token, p99": "280.0 µs",
        "throughput of output tokens": "5357 tokens/s",
        "requests within the service level": "892.8 1/s",
    }


def test_a_run_beside_what_was_measured(run, asked, capsys):
    """Half of each time to the first token; latencies of 420 and 510 us, so that a token came each 140 us."""
    compared = compare_measured(run, asked)
    assert measured_rows(compared) == [
        ("time to first token", "simulated", "370.0 µs", "370.0 µs", "442.0 µs", "458.2 µs"),
        ("", "measured", "185.0 µs", "185.0 µs", "221.0 µs", "229.1 µs"),
        ("", "ratio", "2.00", "2.00", "2.00", "2.00"),
        ("time per output token", "simulated", "280.0 µs", "280.0 µs", "280.0 µs", "280.0 µs"),
        ("", "measured", "140.0 µs", "140.0 µs", "140.0 µs", "140.0 µs"),
        ("", "ratio", "2.00", "2.00", "2.00", "2.00"),
        ("latency", "simulated", "930.1 µs", "930.1 µs", "1.002 ms", "1.018 ms"),
        ("", "measured", "465.0 µs", "465.0 µs", "501.0 µs", "509.1 µs"),
        ("", "ratio", "2.00", "2.00", "2.00", "2.00"),
    ]
    print_measured(compared)
    rates = [line.split() for line in capsys.readouterr().out.splitlines()[-2:]]
    assert [row[-5:] for row in rates] == [
        ["5357", "tokens/s", "2679", "tokens/s", "2.00"],
        ["1786", "1/s", "892.9", "1/s", "2.00"],
    ]


def test_a_found_rate(run):
    tries = (
        TriedRate(10.0, 0.915, 0.975, {"p90": 2e6}, {"p90": 3e6}),
        TriedRate(20.0, 0.5, None, {"p90": 4e6}, None),
    )
    found = FoundRate(10.0, 20.0, 0.9, 0.915, tries, run)
    assert tries_table(found) == (
        ("requests/s", "within", "served, steady", "time to first token, p90", "time per output token, p90"),
        [("10.00", "91.5%", "97.5%", "2.000 ms", "3.000 ms"), ("20.00", "50.0%", "-", "4.000 ms", "-")],
    )
    assert found_note(found) == (
        "10.00 requests/s: 91.5% of the requests are within the service level (90.0% asked), and 0.0% of what arrives "
        "in the steady part of the run is served in it. At 20.00 requests/s only 50.0% are within it. Caution: the "
        "steady part has only 0 requests; use more requests, until it has 100."
    )


@pytest.mark.usefixtures("parts")
def test_what_a_prediction_prints(capsys, monkeypatch):
    """Kernels of 3 x 8 + 2, 130 us in each phase; CPU and GPU hand over in three layers, 7 us each.

    Decode: six experts of 65.28 us to read and 3 more. Prefill: 33 of 48 experts, which 64 tokens of seed 1 choose, and
    for each layer 3 us and 64 vectors of 2 KB at 16 GB/s there and back, which are 11.19 us. Nothing is computed, and no thread waits for another.
    """
    monkeypatch.setattr(band, "_ratios", lambda phase: (("any", 0.5 if phase == "prefill" else 1.25),))
    result = predict(**PARTS)
    reading, hand_over, dense = read_us(Q8, GBPS), 3 * 7, 130
    step = {READING: reading, "attention and dense parts": dense, "hand-over between GPU and CPU": hand_over}
    step["activations over the link"] = activations_us(16)
    assert {name: ns / 1000 for name, ns in result.decode.parts_ns.items()} == pytest.approx(step, rel=1e-3)
    print_prediction(result)
    lines = [re.sub(" +", " ", line) for line in capsys.readouterr().out.splitlines()]
    us = sum(step.values())
    assert lines[0] == "config.json on cpu.yaml, 2x ddr5-4800, rtx-4090 on pcie-4-x16"
    words = [line for line in lines if line.startswith(("prefill: ", "decode: "))]
    assert words[1] == (
        f"decode: throughput {1e6 / us:.0f} tokens/s (2,160 to 2,160), time 579.5 µs of a token, bottleneck {READING}"
    )
    for name, time_us in step.items():
        assert f"{name} {time_us:#.4g} µs {100 * time_us / us:.1f}%" in lines
    assert f"host memory: {3 * 16 * Q8 / 2**20:.2f} MiB of experts" in lines


STUDY = """\
command: fake
vary: {n: [1, 2, 3]}
objectives: {time_ns: minimize, energy_nj.total: minimize}
derived: {cost: 10 * n}
constraints: {cost: <= 20}
base: {n: 1}
"""


@pytest.mark.usefixtures("fake")
@pytest.mark.parametrize("objectives", [2, 1])
def test_what_a_search_prints(objectives, monkeypatch):
    """Points 1 and 2 cost at most 20. Run 1 is the base, and the other one has half the time and twice the cost."""
    monkeypatch.setenv("COLUMNS", "200")
    text = STUDY if objectives == 2 else STUDY.replace(", energy_nj.total: minimize", "")
    Path("study.yaml").write_text(text)
    two = next(
        row["run"]
        for row in json.loads(said("optimize", "study.yaml", "--json", "-"))["points"]
        if row["n"] == 2
    )
    answer, *table = [re.sub(" +", " ", line).strip() for line in said("optimize", "study.yaml").splitlines()]
    assert answer == f"Best by time: run {two}, 50.00 ns, 2.000\u00d7 better than run 1; limited by memory"
    files = "0 simulated, 3 reused; the table: study.optimize/front.csv, all points: study.optimize/runs.csv"
    if objectives == 2:
        assert table == [
            "minimize time_ns, minimize energy_nj.total, cost <= 20: 2 of 3 points are on the front; 1 infeasible",
            "run n time energy cost differs from the base",
            f"{two} 2 50.00 ns 4.000 nJ 20 n",
            "1 1 100.0 ns 1.000 nJ 10",
            files,
        ]
    else:
        assert table == [
            f"minimize time_ns, cost <= 20: the best of 3 points is run {two}; 1 infeasible",
            "run n time cost differs from the base",
            "1 1 100.0 ns 10",
            f"{two} 2 50.00 ns 20 n",
            "the best: n=2",
            files,
        ]


# ---- The list is whole


@pytest.mark.parametrize(
    ("command", "tables", "cases"),
    [("serve", (SERVE, FIND), SERVED), ("predict", (PREDICT,), PREDICTED), ("optimize", (OPTIMIZE,), {})],
)
def test_every_option_has_a_case(command, tables, cases):
    options = {
        parameter.argument or parameter.name.replace("-", "_") for one in tables for parameter in one.values()
    }
    elsewhere = ELSEWHERE[command]
    assert options | {"sets"} == cases.keys() | elsewhere.keys()
    assert not cases.keys() & elsewhere.keys()
    for place in elsewhere.values():
        module, _, name = place.partition(".")
        assert f"def {name}(" in (Path(__file__).parent / f"{module}.py").read_text()
