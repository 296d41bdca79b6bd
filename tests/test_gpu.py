"""GPU and CPU: times computed by hand, lower bounds, and values of their files."""

from __future__ import annotations

import csv
import dataclasses
import logging
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.small_moe import (
    CACHE,
    EXPERT_BYTES,
    GIVEN,
    MODEL,
    Everything,
    alone_on,
    moe,
    of_kind,
    recorded,
    trace_of,
)
from builders.small_moe import GPU as PLAIN_GPU
from mistakes import refused
from ndpsim.audit.schedule import check_schedule
from ndpsim.config import load_hardware
from ndpsim.config.system import GPU_FAMILIES, GPU_FITTED
from ndpsim.dimm.layout import ExpertFormat
from ndpsim.inference.layers.log import writing_log
from ndpsim.inference.layers.run import run_moe
from ndpsim.inference.processors import Cpu, Gpu, Step, load_processors
from ndpsim.inference.processors.cpu import PEAK_OPERATIONS, memory_gbps
from ndpsim.inference.processors.dense import operations, timed
from ndpsim.inference.processors.devices import weight_bytes
from ndpsim.inference.processors.fitted import ANY, FOLDER, fitted_values
from ndpsim.inference.processors.gpu import activation_bytes
from ndpsim.policies import Migration
from ndpsim.workload.models import Expert, load_model
from scripts import script
from test_moe_answers import SIX, judged

VALIDATION = Path(__file__).parents[1] / "validation"

# 250 operations a ns in a fused call.
GPU = replace(PLAIN_GPU, fused_efficiency=0.25, call_overhead_ns=70.0, slice_ns=3.0, tile_tokens=4)
FUSED = dataclasses.replace(GPU, fused=True)
# 144 weights in 288 B: 5.76 ns of reading; 5 tokens count as 8, which are 2304 operations.
SMALL = Expert(8, 6)


# ---- An expert ------------------------------------------------------------------------------------------------


def test_an_expert_by_hand() -> None:
    by_itself, in_call = GPU.expert_time(SMALL, 5), FUSED.expert_time(SMALL, 5)
    assert by_itself.time_ns == pytest.approx(max(2304 / 500, 5.76) + 40)
    # Activations of 5 tokens: 2 (3 x 8 + 6 x 6) bytes each, at 50 bytes a ns.
    assert in_call.time_ns == pytest.approx(max(2304 / 250, 5.76) + 3 + 12)
    assert (GPU.call_ns, FUSED.call_ns) == (0, 70)
    same = dataclasses.replace(FUSED, fused_efficiency=None).expert_time(SMALL, 5)
    assert same.time_ns == pytest.approx(max(2304 / 500, 5.76) + 3 + 12)
    slower = dataclasses.replace(FUSED, fused_memory_efficiency=GPU.memory_efficiency / 2)
    assert slower.expert_time(SMALL, 5).time_ns == pytest.approx(2 * 5.76 + 3 + 24)
    assert dataclasses.replace(slower, fused=False).expert_time(SMALL, 5) == by_itself


def test_narrow_numbers_are_multiplied_at_their_own_peak() -> None:
    # 2304 operations: at 1000, 2000 (half of 4000) and 8000 a ns; reading is faster than all of them.
    gpu = dataclasses.replace(
        GPU, peak_tflops=1.0, compute_efficiency=1.0, fp8_tflops=4.0, fp8_efficiency=0.5, fp4_tflops=8.0
    )

    def computing(bits: int | ExpertFormat) -> float | None:
        return gpu.expert_time(SMALL, 5, bits).compute_ns

    assert [computing(bits) for bits in (16, 8, 6, 4)] == pytest.approx([2.304, 1.152, 1.152, 0.288])
    mixed = ExpertFormat.of({"gate": 4, "up": 4, "down": 8})
    assert computing(mixed) == pytest.approx(1.152)
    assert dataclasses.replace(gpu, fp8_tflops=None).expert_time(SMALL, 5, 8).compute_ns == pytest.approx(
        2.304
    )
    assert dataclasses.replace(gpu, fp4_tflops=None).expert_time(SMALL, 5, 4).compute_ns == pytest.approx(
        1.152
    )


def test_reading_and_computing_hide_each_other_in_part() -> None:
    # 3, 4, 5: 150 B in 3 ns and 1000 operations in 4 ns of a fused call.
    partly = dataclasses.replace(FUSED, roofline_power=2.0)
    assert partly.together_ns(4, 3) == partly.together_ns(3, 4) == pytest.approx(5)
    assert partly.together_ns(0, 7) == 7
    assert partly.together_ns(0, 0) == 0
    assert dataclasses.replace(FUSED, roofline_power=1.0).together_ns(4, 3) == pytest.approx(7)
    assert FUSED.together_ns(4, 3) == 4
    assert partly.expert_time(SMALL, 5).time_ns == pytest.approx(math.hypot(2304 / 250, 5.76) + 3 + 12)


def test_dense_parts_overlap_so_too_and_attention_has_an_overhead_of_its_own() -> None:
    partly = dataclasses.replace(GPU, roofline_power=2.0, attention_overhead_ns=25.0)
    times, usual = (
        {one.name: one for one in timed(gpu, MODEL, Step(5, 7), "gpu", 16).operations}
        for gpu in (partly, GPU)
    )
    head = times["lm_head"]
    assert head.time_ns == pytest.approx(math.hypot(head.flops / 500, head.bytes / 50) + 10)
    attend = times["attend"]
    assert attend.time_ns == pytest.approx(math.hypot(attend.flops / 250, attend.bytes / 50) + 25)
    assert usual["attend"].time_ns == pytest.approx(max(attend.flops / 250, attend.bytes / 50) + 10)


def test_attention_adds_its_softmax_and_moves_queries_and_results_more_slowly() -> None:
    """Of 5 sequences: a query meets 7 keys; a prompt of 7 tokens has 28 pairs. Each has an exponential a head."""
    attention = MODEL.attention_kinds[0]
    slow = dict(attention_power=1.0, softmax_operations=100.0, attention_memory_efficiency=0.1)
    gpu = dataclasses.replace(GPU, latent_efficiency=0.01, **slow)
    for new, pairs in ((1, 7), (7, 28)):
        (attend,) = (one for one in operations(MODEL, Step(5, 7, new)) if one.name == "attend")
        assert attend.exponentials == 5 * pairs * attention.heads
        compute_ns = (attend.flops + 100 * attend.exponentials) / 250
        memory_ns = attend.cache_bytes / 50 + attend.activation_bytes / 10
        (time_ns,) = (
            one.time_ns
            for one in timed(gpu, MODEL, Step(5, 7, new), "gpu", 16).operations
            if one.name == "attend"
        )
        assert time_ns == pytest.approx(compute_ns + memory_ns + 10)
    # Latent vectors in decode, keys and values in a prefill.
    latent = load_model("deepseek-v2")
    for new, efficiency in ((1, 0.01), (7, GPU.attention_efficiency)):
        (attend,) = (one for one in operations(latent, Step(5, 7, new)) if one.name == "attend")
        assert attend.latent == (new == 1)
        (time_ns,) = (
            one.time_ns
            for one in timed(gpu, latent, Step(5, 7, new), "gpu", 16).operations
            if one.name == "attend"
        )
        compute_ns = (attend.flops + 100 * attend.exponentials) / (efficiency * GPU.peak_tflops * 1e3)
        memory_ns = attend.cache_bytes / 50 + attend.activation_bytes / 10
        assert time_ns == pytest.approx(compute_ns + memory_ns + 10)


@given(
    tokens=st.integers(1, 300),
    bits=st.sampled_from([4, 8, 16]),
    power=st.sampled_from([None, 1.0, 1.5, 2.0, 64.0]),
    tile=st.integers(1, 64),
    fused=st.booleans(),
)
def test_no_expert_is_faster_than_the_peaks_nor_slower_than_all_in_turn(tokens, bits, power, tile, fused):
    gpu = dataclasses.replace(FUSED, fused=fused, roofline_power=power, tile_tokens=tile)
    time_ns = gpu.expert_time(SMALL, tokens, bits).time_ns
    size, flops = weight_bytes(SMALL, ExpertFormat.of(bits)), 2.0 * SMALL.weights * tokens
    assert time_ns >= max(size / 100, flops / 1000)
    tiles = -(-tokens // tile) * tile
    passed = tokens * activation_bytes(8, 6) / 50 if fused else 0
    slower = 2.0 * SMALL.weights * tiles / 250 + size / 50 + 40 + passed
    assert time_ns <= slower * (1 + 1e-9)
    assert gpu.expert_time(SMALL, tokens, bits).time_ns <= gpu.expert_time(SMALL, tokens + 1, bits).time_ns
    of_tiles = gpu.expert_time(SMALL, tiles, bits).time_ns - (tiles * passed / tokens)
    assert of_tiles == pytest.approx(time_ns - passed)
    longer = dataclasses.replace(gpu, roofline_power=None).expert_time(SMALL, tokens, bits).time_ns
    assert longer <= time_ns


@given(loads=st.lists(st.integers(1, 200), min_size=1, max_size=9), overhead=st.floats(0, 1e3))
def test_a_fused_call_exceeds_the_same_experts_by_its_activations_at_most(loads, overhead):
    fused = dataclasses.replace(
        FUSED, fused_efficiency=None, slice_ns=0, call_overhead_ns=overhead, expert_overhead_ns=overhead
    )
    alone = dataclasses.replace(fused, fused=False)
    call = fused.call_ns + sum(fused.expert_time(SMALL, load).time_ns for load in loads)
    passed = sum(loads) * activation_bytes(8, 6) / 50
    assert call <= (sum(alone.expert_time(SMALL, load).time_ns for load in loads) + passed) * (1 + 1e-9)


def test_activations_of_a_call_by_hand() -> None:
    # Read 8 and write 2 x 6; read these and write 6; read these and write 8; read 8 for the sum: 2 bytes each.
    assert activation_bytes(8, 6) == 2 * (8 + 12 + 12 + 6 + 6 + 8 + 8)
    assert activation_bytes(8, 6, matrices=2) == 2 * (8 + 6 + 6 + 6 + 6 + 8 + 8)  # without a gate
    assert activation_bytes(8, 6, matrices=1) == 2 * (8 + 6)  # a product by itself


# ---- Values of a family ---------------------------------------------------------------------------------------

BARE = "name: bare\ndram: {standard: DDR4, org: DDR4_8Gb_x8, timing: DDR4_3200AA}\n"


def of_family(folder: Path, family: str, *sets: str) -> Gpu:
    path = folder / "bare.yaml"
    path.write_text(
        f"{BARE}gpu: {{tflops: 100, memory_gb: 24, memory_tbps: 1, pcie_gbps: 32, family: {family}}}\n"
    )
    return load_processors(str(path), sets).gpu


def test_values_of_the_family_stand_where_the_file_says_nothing(tmp_path: Path) -> None:
    with (FOLDER / "gpu.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(line for line in file if not line.startswith("#")))
    values = {(row["family"], row["key"]): float(row["value"]) for row in rows}
    gpu = of_family(tmp_path, "hopper", "gpu.memory_efficiency=0.5")
    assert gpu.fused_efficiency == values["hopper", "fused_efficiency"]
    assert gpu.expert_overhead_ns == pytest.approx(1000 * values["hopper", "expert_overhead_us"])
    assert gpu.attention_efficiency == values["hopper", "attention_efficiency"]
    assert gpu.attention_power == values[ANY, "attention_power"]
    assert gpu.memory_efficiency == 0.5
    assert (gpu.tile_tokens, gpu.fused) == (values[ANY, "tile_tokens"], False)
    assert of_family(tmp_path, "hopper", "gpu.kernel_overhead_us=0").kernel_overhead_ns == 0


@pytest.mark.parametrize("family", GPU_FAMILIES)
def test_every_family_has_all_values(family: str, tmp_path: Path) -> None:
    gpu = of_family(tmp_path, family)
    of_some = {"fused_memory_efficiency", "fp8_efficiency", "fp4_efficiency", "latent_efficiency"}
    assert set(GPU_FITTED) - fitted_values("gpu", family).keys() <= of_some
    shares = gpu.compute_efficiency, gpu.memory_efficiency, gpu.attention_efficiency, gpu.fused_efficiency
    assert all(share is not None and 0 < share <= 1 for share in shares)


def test_without_a_family_nothing_fitted_is_used() -> None:
    gpu = load_processors("trimoe").gpu
    assert (gpu.tile_tokens, gpu.roofline_power, gpu.call_overhead_ns, gpu.fused) == (1, None, 0, False)
    words = "missing sets gpu.compute_efficiency"
    with refused(words):
        _ = load_processors(load_hardware("trimoe", ["gpu.compute_efficiency=null"])).gpu


# ---- A layer --------------------------------------------------------------------------------------------------

CALLS = ["gpu.expert_calls=fused", "gpu.call_overhead_us=30", "gpu.slice_us=0.5"]


def computed(layer: Any) -> list[tuple[int, float]]:
    return [(job.expert, job.end_ns - job.start_ns) for job in of_kind(layer, "expert", "gpu")]


def test_experts_that_are_there_are_one_call_and_each_that_arrives_is_another() -> None:
    class TwoThere(alone_on("gpu")):
        def place(self, view: Any) -> Any:
            placement = super().place(view)
            placement.resident[:, [1, 3]] = True
            return placement

    _, (layer,), _ = recorded(
        TwoThere, routing=trace_of([0, 1, 2, 3]), batch=2, steps=1, layers=[1], sets=CALLS
    )
    bare = load_processors("trimoe", CALLS).gpu.expert_time(MODEL.expert, 1).time_ns
    assert computed(layer) == [(0, pytest.approx(bare + 30_000)), (1, pytest.approx(bare + 30_000)),
                               (2, pytest.approx(bare + 30_000)), (3, pytest.approx(bare))]  # fmt: skip


def test_an_expert_on_its_way_is_a_call_of_its_own() -> None:
    class Late(alone_on("gpu")):
        def background(self, view: Any) -> list[Migration]:
            return [Migration("prefetch", 2, 0)] if (view.step, view.layer) == (0, 1) else []

    _, layers, _ = recorded(
        Late,
        routing=trace_of([0, 1], (1, 2), 1),
        batch=1,
        steps=1,
        layers=[1, 2],
        sets=[*CALLS, "pcie.gbps=0.1"],
    )
    bare = load_processors("trimoe", CALLS).gpu.expert_time(MODEL.expert, 1).time_ns
    assert [ns for _, ns in computed(layers[1])] == pytest.approx([bare + 30_000] * 2)


def test_a_run_with_fused_calls_adds_up_and_is_above_its_bound(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    sets = [*CALLS, "gpu.roofline_power=2", "gpu.tile_tokens=16", "pcie.copy_overhead_us=12"]
    layers: list[Any] = []
    with writing_log(log) as write:

        def observe(run: Any, layer: Any) -> None:
            layers.append(layer)
            write(run, layer)

        moe(Everything, observer=observe, sets=sets)
    assert check_schedule(log).ok
    assert layers
    assert all(0 < layer.bound_ns <= layer.end_ns - layer.start_ns for layer in layers)


def test_policies_expect_no_call_of_a_layer_without_experts_on_the_gpu() -> None:
    """Of fused calls of 900 us, balance and fiddler expect none where the CPU computes all experts."""
    for name in ("balance:prefetch=false", "fiddler:experts=cpu"):
        sets = [*CALLS, "gpu.call_overhead_us=900"]
        run, _, _ = recorded(name, hw="dali-7532-3090", gpu_experts=0, sets=sets)
        assert run.experts["gpu_hit"] == run.experts["gpu_miss"] == 0
        assert run.estimated_ns < 1.1 * run.moe_ns


def test_policies_expect_one_call_a_layer() -> None:
    run, layers, _ = recorded("ktransformers", gpu_experts=16, sets=CALLS)
    assert run.experts["gpu_hit"] == sum(run.experts.values())
    assert run.estimated_ns == pytest.approx(run.moe_ns)
    assert all(one.end_ns - one.start_ns > 30_000 for one in layers)


def test_a_copy_takes_its_packets_and_the_overhead() -> None:
    given: dict[str, Any] = dict(routing=trace_of([0, 1]), batch=1, steps=1, layers=[1], gpu_experts=0)
    (_, (plain,), _), (_, (longer,), _) = (
        recorded(alone_on("gpu"), sets=sets, **given) for sets in ([], ["pcie.copy_overhead_us=12"])
    )
    for before, after in zip(of_kind(plain, "copy"), of_kind(longer, "copy"), strict=True):
        assert after.alone_ns == pytest.approx(before.alone_ns + 12_000, abs=1)
        assert (
            after.end_ns - after.start_ns >= 12_000 + EXPERT_BYTES / load_hardware("trimoe").system.pcie.gbps
        )
        assert after.bytes == EXPERT_BYTES


# ---- What values are fitted to --------------------------------------------------------------------------------


def test_the_script_fits_the_gpu_that_is_simulated() -> None:
    fits = script("validation/gpu_fits.py")
    calls = fits.Calls(["h200-gemma4"])
    values = (0.4, 0.9, 20.0, 0.3)
    gpu = dataclasses.replace(
        GPU, peak_tflops=989.4, memory_gbps=4800.0, memory_efficiency=0.9, fused=True, fused_efficiency=0.4,
        call_overhead_ns=20_000.0, slice_ns=300.0, tile_tokens=16, roofline_power=2.0,
    )  # fmt: skip
    expert, first = Expert(2816, 704), slice(0, calls.starts[1])
    each = [gpu.expert_time(expert, int(load)).time_ns / 1e3 for load in calls.loads[first]]
    expected = gpu.call_ns / 1e3 + float(calls.counts[first] @ np.array(each))
    assert calls.predicted_us(values, 2.0, 16)[0] == pytest.approx(expected)
    # 16 tokens with 8 of 128 experts each: 128 pairs, and 128 (1 - (15 / 16)^16) experts with any.
    assert float(calls.counts[first] @ calls.loads[first]) == pytest.approx(128, rel=1e-6)
    assert float(calls.counts[first].sum()) == pytest.approx(128 * (1 - (15 / 16) ** 16), rel=1e-6)


def test_fits_find_values_that_calls_were_made_with() -> None:
    fits = script("validation/gpu_fits.py")
    calls = fits.Calls(["h200-gemma4", "h200-qwen3-235b-tp8", "h100-mixtral-tp2"])
    values = (0.5, 0.8, 15.0, 0.4)
    calls.us = calls.predicted_us(values, 2.0, 16)
    assert fits.fused_values(calls.fit(2.0, 16)) == pytest.approx(values, rel=1e-3)


def test_a_measured_layer_by_hand() -> None:
    layers = script("validation/gpu_layers.py")
    calls = layers.Layers(["h200_sxm"], "vllm", ["bfloat16"])
    # 256 tokens choose 8 of 128 experts of 3 x 2048 x 768 weights: 16 each. 4800 GB/s, 989.4 TFLOPS.
    of, whole = calls.columns, calls.columns["memory_us"] > 1.9
    call = (calls.models == "2048 768 128 8") & (of["load"] == 16) & whole
    assert call.sum() == 1
    compute, memory = 16 * 2 * 3 * 2048 * 768 / 989.4e6, 2 * 3 * 2048 * 768 / 4.8e6
    passed = 256 * 8 * 2 * (3 * 2048 + 6 * 768) / 4.8e6
    by_hand = 20 + 128 * (math.hypot(compute / 0.5, memory / 0.8) + 0.3) + passed / 0.8
    assert calls.part(call).predicted_us((0.5, 0.8, 20.0, 0.3), 2.0, 16) == pytest.approx(by_hand)
    # Weights that stay in the L2 cache of 50 MB between two calls are no measure of the memory.
    assert (calls.columns["active"] * calls.columns["memory_us"] * 4.8e6).min() > 50e6


def test_uneven_loads_have_all_pairs_and_follow_the_power_law() -> None:
    uneven = script("validation/gpu_uneven.py")
    rng = np.random.default_rng(7)
    for tokens, experts, top_k in ((1, 128, 8), (16, 128, 8), (300, 8, 2), (4096, 128, 8)):
        loads = uneven.drawn_loads(tokens, experts, top_k, rng)
        assert (loads.sum(), len(loads)) == (tokens * top_k, experts)
        assert 0 <= loads.min() <= loads.max() <= tokens
    # Half of the shares lie below the median of a density of x^-1.2 between 1 and 3,276.8: 11.7.
    draws = np.concatenate([uneven.drawn_loads(4096, 4000, 16, rng) for _ in range(5)])
    median = ((1 + 3276.8**-0.2) / 2) ** -5
    mean = 0.2 / 0.8 * (3276.8**0.8 - 1) / (1 - 3276.8**-0.2)
    assert np.median(draws) == pytest.approx(4096 * 16 / 4000 * median / mean, abs=1)


def test_an_uneven_call_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    uneven = script("validation/gpu_uneven.py")
    monkeypatch.setattr(uneven, "drawn_loads", lambda *given: np.array([40.0, 17.0, 0.0, 7.0]))
    row = {
        "hidden": "4096",
        "intermediate": "14336",
        "experts": "4",
        "top_k": "2",
        "slices": "1",
        "32": "3000",
    }
    load, error = uneven._error("h200_sxm", row, 32, (0.5, 0.8, 20.0, 0.3), 2.0, 16)
    weights = 3 * 4096 * 14336
    each = [
        math.hypot(tokens * 2 * weights / 989.4e6 / 0.5, 2 * weights / 4.8e6 / 0.8) for tokens in (48, 32, 16)
    ]
    passed = 64 * 2 * (3 * 4096 + 6 * 14336) / 4.8e6 / 0.8
    assert (load, error) == (16, pytest.approx((20 + sum(each) + 3 * 0.3 + passed) / 3000 - 1))


def test_layers_give_the_values_that_they_were_made_with() -> None:
    calls = script("validation/gpu_layers.py").Layers(["l40s"], "vllm", ["bfloat16"])
    values = (0.5, 0.8, 15.0, 0.4)
    calls.us = calls.predicted_us(values, 2.0, 16)
    assert calls.fit(2.0, 16) == pytest.approx(values, rel=1e-2)


def test_the_script_fits_the_attention_that_is_simulated() -> None:
    attention = script("validation/gpu_attention.py")
    calls = attention.Attention("hopper", 0.9)
    gpu = dataclasses.replace(
        GPU, peak_tflops=989.4, memory_gbps=4800.0, memory_efficiency=0.9, attention_efficiency=0.8,
        attention_memory_efficiency=0.3, attention_overhead_ns=9000.0, attention_power=1, softmax_operations=256,
    )  # fmt: skip
    model = load_model("qwen3-30b-a3b")  # 32 heads, 4 of keys, 128 values
    of, shape = calls.columns, (calls.models == "32 4 128") & (calls.cards == "h200_sxm")
    for tokens, prefill, step in ((1024, 1, Step(8, 1024, 1024)), (4096, 0, Step(64, 4096))):
        (expected,) = (
            one.time_ns for one in timed(gpu, model, step, "gpu", 16).operations if one.name == "attend"
        )
        call = shape & (of["tokens"] == tokens) & (of["prefill"] == prefill)
        assert expected / 1e3 == pytest.approx(
            calls.part(call).predicted_us((0.8, 0.3, 9.0))[-2 if prefill else -1]
        )


def test_attention_gives_the_values_that_it_was_made_with() -> None:
    calls = script("validation/gpu_attention.py").Attention("ada", 0.9)
    values = (0.5, 0.3, 15.0)
    calls.us = calls.predicted_us(values)
    assert calls.fit() == pytest.approx(values, rel=1e-2)


@pytest.mark.long
def test_the_committed_fits_are_current() -> None:
    page = script("validation/gpu.py")
    words = "python validation/gpu.py writes it"
    assert (VALIDATION / "gpu.md").read_text(encoding="utf-8") == page.text(), words
    assert (FOLDER / "gpu.csv").read_text(encoding="utf-8") == page.fits_text(), words


# ---- The CPU: peak, reads, overheads, and values of its file, computed by hand

# The channels of dali-7532-3090: eight of DDR4-3200, 8 B each.
CHANNELS_GBPS = 8 * 3.2 * 8
# Without that file's values of its CPU.
UNKNOWN = (
    "part", "cpu_tflops", "cpu_compute_efficiency", "cpu_read_gbps", "cpu_read_share", "cpu_cores", "cpu_threads",
)  # fmt: skip
FITTED = {
    (row["key"], row["family"]): float(row["value"])
    for row in csv.DictReader((FOLDER / "cpu.csv").read_text().splitlines())
}
# Achieved shares and rates, if the file has neither.
PROGRAMS = FITTED["expert_read_share", "any"]


def cpu_of(**host: object) -> Cpu:
    """The CPU of a machine with this host."""
    keys = {**dict.fromkeys(UNKNOWN, "null"), **host}
    return load_processors("dali-7532-3090", [f"host.{key}={value}" for key, value in keys.items()]).cpu


# ---- Peak ----


@pytest.mark.parametrize(
    ("isa", "operations"),
    [
        # two units a core x values in a register x a product and a sum
        ("avx2", 2 * 8 * 2),
        ("avx512", 2 * 16 * 2),
        ("avx512-vnni", 2 * 64 * 2),
        ("avx512-bf16", 2 * 32 * 2),
        # rows x columns x pairs of a tile, a tile in 16 clocks
        ("amx", 16 * 16 * 32 * 2 // 8),
    ],
)
def test_cores_clock_and_instructions_make_the_peak(isa, operations):
    assert PEAK_OPERATIONS[isa] == operations
    cpu = cpu_of(cpu_cores=16, cpu_clock_ghz=4.5, cpu_isa=isa)
    assert cpu.peak_tflops == pytest.approx(16 * 4.5 * operations / 1000)
    assert cpu.compute_efficiency == FITTED["compute_efficiency", isa]


def test_sockets_multiply_and_threads_share_the_peak():
    given = dict(cpu_cores=16, cpu_clock_ghz=4, cpu_isa="avx2")
    assert cpu_of(**given, cpu_sockets=2).peak_tflops == pytest.approx(2 * 16 * 4 * 32 / 1000)
    assert cpu_of(**given, cpu_sockets=2, cpu_threads=8).peak_tflops == pytest.approx(8 * 4 * 32 / 1000)
    assert cpu_of(**given, cpu_threads=99).peak_tflops == pytest.approx(16 * 4 * 32 / 1000)
    stated = dict(cpu_tflops=3, cpu_compute_efficiency=0.5, cpu_sockets=2)
    assert cpu_of(**stated, cpu_cores=8, cpu_threads=4).peak_tflops == pytest.approx(2 * 3 * 4 / 16)


def test_what_is_stated_goes_before_what_is_fitted():
    cpu = cpu_of(cpu_cores=4, cpu_clock_ghz=2, cpu_isa="amx", cpu_tflops=7, cpu_compute_efficiency=0.25)
    assert (cpu.peak_tflops, cpu.compute_efficiency) == (7, 0.25)


@pytest.mark.parametrize("left_out", ["cpu_cores", "cpu_clock_ghz", "cpu_isa"])
def test_without_one_of_them_there_is_no_peak(left_out):
    given = dict(cpu_cores=16, cpu_clock_ghz=4, cpu_isa="avx2", cpu_compute_efficiency=0.5)
    del given[left_out]
    with refused("missing sets host.cpu_tflops"):
        cpu_of(**given)


def test_a_cpu_known_by_its_cores_computes_no_experts_behind_a_cxl_link():
    sets = ["host.cpu_cores=8", "host.cpu_clock_ghz=3", "host.cpu_isa=avx2"]
    with refused("conflict sets host.cpu_isa"):
        run_moe(hw="cxl", sets=sets, policies=("trimoe",), **{**GIVEN, "cache": CACHE})


# ---- Reading ----


def reads(**host: object) -> float | None:
    """The read bandwidth of a CPU with 16 cores."""
    return cpu_of(**{"cpu_cores": 16, "cpu_clock_ghz": 4, "cpu_isa": "avx2", **host}).read_gbps


def test_the_least_of_channels_fabric_cores_and_what_is_stated_limits_the_reading():
    assert reads() is None
    assert reads(cpu_read_share=0.5) == pytest.approx(CHANNELS_GBPS / 2)
    assert reads(cpu_read_share=0.5, cpu_fabric_gbps=60) == 60
    assert reads(cpu_read_share=0.5, cpu_fabric_gbps=60, cpu_sockets=2) == pytest.approx(CHANNELS_GBPS / 2)
    assert reads(cpu_fabric_gbps=60, cpu_read_gbps=40) == 40
    share, core_gbps = FITTED["read_share", "zen4"], FITTED["core_read_gbps", "zen4"]
    assert reads(cpu_family="zen4") == pytest.approx(PROGRAMS * share * CHANNELS_GBPS)
    assert reads(cpu_family="zen4", cpu_threads=3) == pytest.approx(PROGRAMS * 3 * core_gbps)
    assert reads(cpu_family="zen4", cpu_threads=3, cpu_cores=2) == pytest.approx(PROGRAMS * 2 * core_gbps)
    assert reads(cpu_family="zen4", cpu_cores=2, cpu_sockets=2) == pytest.approx(PROGRAMS * 4 * core_gbps)
    assert reads(cpu_family="zen4", cpu_read_gbps=150) == 150
    assert reads(cpu_family="zen4", cpu_read_share=0.25) == pytest.approx(0.25 * CHANNELS_GBPS)


def test_a_family_that_nothing_was_measured_of_has_the_mean_of_all():
    assert ("read_share", "sapphire-rapids") not in FITTED
    expected = PROGRAMS * FITTED["read_share", "any"] * CHANNELS_GBPS
    assert reads(cpu_family="sapphire-rapids") == pytest.approx(expected)


def test_what_the_memory_gives_and_what_the_program_reads_are_two_things():
    assert reads(cpu_memory_gbps=100) == 100
    assert reads(cpu_memory_gbps=100, cpu_read_gbps=90) == 90
    assert reads(cpu_family="zen4", cpu_memory_gbps=100) == pytest.approx(100 * PROGRAMS)
    assert reads(cpu_family="zen4", cpu_memory_gbps=100, cpu_fabric_gbps=80) == pytest.approx(80 * PROGRAMS)
    assert reads(cpu_family="zen4", cpu_memory_gbps=100, cpu_read_share=0.25) == pytest.approx(51.2)


def test_some_threads_wait_for_the_same_channels():
    """100 GB/s of 16 cores of 25 GB/s: alone 4 read sqrt(1/2) of it, and all 4 / sqrt(17) of it."""
    assert memory_gbps([100, None, 300], 16, 16, 25) == pytest.approx(100)
    assert memory_gbps([100], 4, 16, 25) == pytest.approx(100 * (17 / 16 / 2) ** 0.5)
    assert memory_gbps([100], 1, 16, 25) == pytest.approx(25 * (17 / 16 * 16 / 17) ** 0.5)
    assert memory_gbps([1000], 2, 2, 25) == 50
    assert (memory_gbps([], 2, 4, 25), memory_gbps([None, 7], None, None, 25), memory_gbps([], None, None, 0)) == (
        50, 7, None,
    )  # fmt: skip


def test_reading_and_computing_add_with_a_power_of_one():
    given = dict(cpu_tflops=1, cpu_compute_efficiency=0.5, cpu_read_gbps=50, cpu_added_tokens=-0.25)
    expert = Expert(100, 50)  # 15,000 weights, 30,000 B
    # 600 ns of reading; 3.75 tokens of 60 ns each.
    assert cpu_of(**given).expert_time(expert, 4).time_ns == pytest.approx(600)
    assert cpu_of(**given, cpu_roofline_power=1).expert_time(expert, 4).time_ns == pytest.approx(825)


def test_threads_lengthen_a_layer():
    given = dict(
        cpu_cores=16, cpu_clock_ghz=4, cpu_isa="avx2", cpu_layer_overhead_us=40, cpu_thread_overhead_us=2
    )
    assert cpu_of(**given).layer_overhead_ns == pytest.approx(40_000 + 16 * 2_000)
    assert cpu_of(**given, cpu_threads=5).layer_overhead_ns == pytest.approx(40_000 + 5 * 2_000)


@given(
    tokens=st.integers(1, 4096),
    more=st.integers(0, 512),
    family=st.sampled_from(["zen2", "zen5", "raptor-lake", "other"]),
    threads=st.integers(1, 128),
    overhead_us=st.floats(0, 100),
)
def test_an_expert_is_never_faster_than_the_channels_and_takes_longer_with_more_tokens(
    tokens, more, family, threads, overhead_us
):
    cpu = cpu_of(
        cpu_cores=64, cpu_clock_ghz=3, cpu_isa="amx", cpu_family=family, cpu_threads=threads,
        cpu_expert_overhead_us=f"{overhead_us:.3f}",
    )  # fmt: skip
    expert = Expert(1024, 512)
    few, many = (cpu.expert_time(expert, count).time_ns for count in (tokens, tokens + more))
    assert expert.weight_bytes(16) / CHANNELS_GBPS <= few <= many
    assert few >= 2 * expert.weights * tokens / (cpu.peak_tflops * 1e3)


# ---- Overheads ----


def test_an_expert_takes_its_overhead_besides():
    given = dict(cpu_tflops=1, cpu_compute_efficiency=0.5, cpu_read_gbps=50)
    expert = Expert(100, 50)  # 15,000 weights, 30,000 B
    assert cpu_of(**given).expert_time(expert, 1).time_ns == pytest.approx(30_000 / 50)
    slow = cpu_of(**given, cpu_expert_overhead_us=2.5).expert_time(expert, 1)
    assert slow.time_ns == pytest.approx(30_000 / 50 + 2_500)
    assert slow.overhead_ns == 2_500


def test_a_layer_with_experts_on_the_cpu_is_handed_over_once(tmp_path):
    given = dict(SIX, hw="dali-7532-3090")  # whose DIMMs do not compute
    slow = dict(given, sets=["host.cpu_layer_overhead_us=40"])
    _, (layer,), _ = recorded(alone_on("cpu"), **slow)
    (handed,) = of_kind(layer, "hand-over")
    assert (handed.resource, handed.end_ns - handed.start_ns) == ("cpu", pytest.approx(40_000))
    on_cpu = of_kind(layer, "expert", "cpu")
    assert len(on_cpu) == 6
    assert all(job.start_ns >= handed.end_ns for job in on_cpu)
    (sent,) = of_kind(layer, "activations")
    assert handed.start_ns == pytest.approx(sent.end_ns)
    assert judged(alone_on("cpu"), tmp_path, **slow).ok
    _, (usual,), _ = recorded(alone_on("cpu"), **given)
    assert not of_kind(usual, "hand-over")


# ---- Values of a file ----


def reading(tmp_path, gbps: str) -> Path:
    """dali-7532-3090, whose file says that its CPU reads this many GB/s."""
    text = Path(load_hardware("dali-7532-3090").file).read_text(encoding="utf-8")
    line = f'  cpu_read_gbps: {{value: {gbps}, assumption: "made"}}'
    path = tmp_path / "made.yaml"
    path.write_text(text.replace("\nhost:\n", f"\nhost:\n{line}\n"), encoding="utf-8")
    return path


def test_a_cpu_that_reads_more_than_its_channels_carry_is_refused(tmp_path):
    path = reading(tmp_path, "204.9")
    line = 1 + path.read_text().splitlines().index('  cpu_read_gbps: {value: 204.9, assumption: "made"}')
    with refused(f"range made.yaml:{line} host.cpu_read_gbps"):
        load_hardware(path)
    assert load_hardware(reading(tmp_path, "204.8"))
    assert load_hardware("dali-7532-3090", ["host.cpu_read_gbps=665.6"])  # what another memory would do
    assert load_hardware("dali-7532-3090", ["host.channels=1"])


def test_more_cpus_than_a_mainboard_has_are_refused():
    with refused("range sets host.cpu_sockets"):
        load_hardware("trimoe", ["host.cpu_sockets=3", "host.cpu_sockets_most=2"])
    assert load_hardware("trimoe", ["host.cpu_sockets=2", "host.cpu_sockets_most=2"])


@pytest.mark.parametrize(
    ("rates", "said"),
    [
        # trimoe: 16 DIMMs of DDR5-4800 on 8 channels
        (
            ("cpu_memory_mtps=4800", "cpu_memory_mtps_2dpc=4400"),
            "2 DIMMs a channel, and host.cpu_memory_mtps_2dpc is 4400",
        ),
        (("cpu_memory_mtps=4800",), None),
        (("cpu_memory_mtps=5600", "cpu_memory_mtps_2dpc=4800"), None),
        (("cpu_memory_mtps=4000",), "4800 MT/s with 2 DIMMs a channel, and host.cpu_memory_mtps is 4000"),
    ],
)
def test_dram_faster_than_the_cpu_takes_it_gets_a_notice(caplog, rates, said):
    with caplog.at_level(logging.WARNING, logger="ndpsim"):
        load_hardware("trimoe", [f"host.{rate}" for rate in rates])
    notices = [record.getMessage() for record in caplog.records]
    assert len(notices) == (said is not None)
    assert said is None or said in notices[0]


# ---- Fits ----


def test_the_committed_fits_of_cpus_are_current():
    fits = script("validation/cpu.py")
    words = "python validation/cpu.py writes it"
    assert (FOLDER / "cpu.csv").read_text(encoding="utf-8") == fits.fits(), words
    assert (VALIDATION / "cpu.md").read_text(encoding="utf-8") == fits.text(), words


def test_the_committed_fits_of_weight_formats_are_current():
    fits = script("validation/cpu_formats.py")
    words = "python validation/cpu_formats.py writes it"
    assert (FOLDER / "formats.csv").read_text(encoding="utf-8") == fits.fits_text(), words
    assert (VALIDATION / "cpu_formats.md").read_text(encoding="utf-8") == fits.text(), words


def test_a_line_finds_the_costs_that_made_it():
    layer_us, expert_us = script("validation/cpu.py").line([3, 10, 50], [100 + 7 * n for n in (3, 10, 50)])
    assert (layer_us, expert_us) == (pytest.approx(100), pytest.approx(7))


def test_what_is_left_out_is_predicted_from_the_others():
    errors = script("validation/cpu.py").left_out([("a", 2.0), ("a", 8.0), ("b", 1.0)])
    # From the other of its group; b from the mean of a, 4.
    assert errors == [pytest.approx(3), pytest.approx(-0.75), pytest.approx(3)]


def test_the_operations_of_a_prompt_are_those_of_the_active_weights():
    # DeepSeek-V2-Lite activates 2.4e9 of its weights (its README), with a head of 102,400 x 2048 that makes products
    # for the last token only; attention to up to 512 tokens adds a little.
    experts, together = script("validation/cpu.py").flops("deepseek-v2-lite", 512)
    weights = 2.4e9 - 102_400 * 2048
    assert together / 512 == pytest.approx(2 * weights, rel=0.05)
    assert experts == 2 * 6 * 3 * 2048 * 1408 * 26 * 512
