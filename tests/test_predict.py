"""`predict`: a machine of parts, phases and where their time goes, upgrades, bands; expected values by hand."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from calls import GIVEN, call
from docs_commands import without
from mistakes import refused
from ndpsim import load_model
from ndpsim.base.reported import quantities
from ndpsim.config.parts import load_part
from ndpsim.inference.prediction import band, kernels, phases, predict
from ndpsim.inference.prediction.machine import OwnMachine, parse_memory
from ndpsim.inference.prediction.programs import PROGRAMS
from ndpsim.inference.prediction.upgrades import UPGRADES
from ndpsim.inference.processors import Processors
from ndpsim.report.panels import PANELS
from ndpsim.report.pictures.moe import prediction_figure
from ndpsim.simulate.results.prediction import PhasePrediction, Prediction, Upgrade
from ndpsim.workload.models.blocks import BLOCKS
from ndpsim.workload.models.stored import Tensor
from ndpsim.workload.models.weights import weight_file

CONFIG = json.loads((GIVEN / "config.json").read_text())
#: In q8_0, 32 weights take 34 B.
EXPERT_BYTES = 3 * 1024 * 768 * 34 // 32
CHOSEN = 3 * 2  # experts of a token in all layers
#: A CPU whose cores and fabric hold up nothing, with four channels.
CPU = (GIVEN / "cpu.yaml").read_text()
#: Half of the channels' peak, and nothing else, limits what the CPU reads of an expert.
HALF = ("host.cpu_read_share=0.5", "host.cpu_expert_overhead_us=0")
EXPERTS_ON_CPU = ("experts on the CPU: reading weights", "experts on the CPU: computing")


@pytest.fixture(autouse=True)
def folder(here: Path) -> Path:
    Path("config.json").write_text(json.dumps(CONFIG))
    Path("cpu.yaml").write_text(CPU)
    return here


def predicted(**changed: Any) -> Prediction:
    usual: dict[str, Any] = dict(
        cpu="cpu.yaml", memory="ddr5-4800x2", gpu="rtx-4090", model="config.json", weights="q8_0",
        prompt=64, n_cpu_moe=3, upgrades=False,
    )  # fmt: skip
    return predict(**{**usual, **changed})


def expert_ns(parts_ns: Any) -> float:
    return sum(parts_ns.get(name, 0) for name in EXPERTS_ON_CPU)


LINE = (
    "predict", "--cpu", "cpu.yaml", "--memory", "ddr5-4800x2", "--gpu", "rtx-4090",
    "--model", "config.json", "--weights", "q8_0", "--prompt", 64,
)  # fmt: skip


# ---- Phases ----


@pytest.mark.parametrize(
    "changed", [{}, {"n_cpu_moe": 1}, {"n_cpu_moe": None}, {"gpu": "none"}, {"program": "streaming"}]
)
def test_parts_add_up_to_the_time_of_a_phase(changed):
    result = predicted(**changed)
    for phase, tokens in ((result.prefill, 64), (result.decode, 1)):
        assert sum(phase.parts_ns.values()) == pytest.approx(phase.time_ns)
        assert phase.tokens_per_s == pytest.approx(tokens / phase.time_ns * 1e9)
        assert phase.bound == max(phase.parts_ns, key=phase.parts_ns.__getitem__)
        assert min(phase.parts_ns.values()) >= 0
        assert list(phase.parts_ns.values()) == sorted(phase.parts_ns.values(), reverse=True)


@pytest.mark.parametrize("dimms", [1, 2, 4])
def test_a_decode_step_reads_each_chosen_expert_once_at_what_the_cpu_reads(dimms):
    result = predicted(memory=f"ddr5-4800x{dimms}", sets=HALF)
    peak_gbps = dimms * 4.8 * 8
    assert expert_ns(result.decode.parts_ns) == pytest.approx(
        CHOSEN * EXPERT_BYTES / (0.5 * peak_gbps), rel=0.01
    )


def test_twice_the_dimms_of_a_channel_read_no_faster():
    four, eight = (predicted(memory=f"ddr5-4800x{dimms}", sets=HALF).decode for dimms in (4, 8))
    assert expert_ns(eight.parts_ns) == pytest.approx(expert_ns(four.parts_ns), rel=0.01)


def test_two_sockets_have_the_channels_of_both():
    one = predicted(memory="ddr5-4800x4", sets=HALF).decode
    two = predicted(memory="ddr5-4800x8", sockets=2, sets=HALF).decode
    assert expert_ns(two.parts_ns) == pytest.approx(expert_ns(one.parts_ns) / 2, rel=0.01)


@pytest.mark.parametrize("cpu", ["cpu.yaml", "epyc-9355"])
def test_more_channels_are_never_slower_and_never_beyond_their_peak(cpu):
    before = 0.0
    for dimms in (1, 2, 4):
        rate = predicted(cpu=cpu, memory=f"ddr5-4800x{dimms}").decode.tokens_per_s
        assert before <= rate <= dimms * 4.8 * 8 * 1e9 / (CHOSEN * EXPERT_BYTES)
        before = rate


def test_memories_without_ranks_have_one_and_say_if_they_are_too_small():
    machine = OwnMachine("xeon-6980p", 1, "mrdimm-8800", 12, "none", "no link")
    hardware = machine.hardware(1)
    assert hardware.host_gbps == pytest.approx(12 * 8 * 8.8, rel=1e-3)
    assert hardware.system.dimm.ranks == 1
    with refused("too-large memory"):
        machine.hardware(hardware.capacity_bytes + 1)


def test_experts_in_the_hosts_memory_are_those_of_the_asked_layers():
    for layers in (0, 1, 3):
        assert predicted(n_cpu_moe=layers).host_bytes == layers * 16 * EXPERT_BYTES
    assert expert_ns(predicted(n_cpu_moe=0).decode.parts_ns) == 0


def test_a_cpu_alone_computes_everything_from_the_hosts_memory():
    alone = predicted(gpu="none", link="no link is read", n_cpu_moe=None, upgrades=True)
    assert "no GPU" in alone.title
    assert set(alone.decode.parts_ns) == {"experts on the CPU", "attention and dense parts"}
    assert (dict(alone.gpu_bytes), alone.upgrades) == ({}, ())
    assert alone.host_bytes > 3 * 16 * EXPERT_BYTES
    assert alone.decode.tokens_per_s <= 2 * 4.8 * 8 * 1e9 / (CHOSEN * EXPERT_BYTES)
    status, out, _ = call(*without(LINE, ["--gpu"]), "--gpu", "none")
    assert status == 0
    assert "GPU memory" not in out


# ---- A CPU alone, by hand ----

#: 64 cores x 4 GHz x 256 operations; two channels of DDR5-4800, of which the CPU reads half.
BY_HAND = (
    "host.cpu_read_share=0.5", "host.cpu_expert_overhead_us=3", "host.cpu_compute_efficiency=0.25",
    "host.cpu_layer_overhead_us=7", "host.cpu_thread_overhead_us=0", "host.cpu_added_tokens=0",
)  # fmt: skip
READ_GBPS = 0.5 * 2 * 8 * 4.8
HIDDEN, KV = 1024, 2 * 2 * 128  # keys and values of two heads of 128
#: Bytes of a layer's attention (q and o, k and v), of its gate in 32 bits, and of the head.
ATTENTION, GATE, HEAD = (2 * HIDDEN + KV) * HIDDEN * 34 // 32, 16 * HIDDEN * 4, 1000 * HIDDEN * 34 // 32


def test_a_cpu_alone_is_a_gpu_with_its_rates_and_overheads():
    machine = OwnMachine("cpu.yaml", 1, "ddr5-4800", 2, "none", "no link", sets=BY_HAND)
    gpu = machine.hardware(1).system.gpu
    assert (gpu.tflops, gpu.memory_tbps) == pytest.approx((65.536, READ_GBPS / 1000))
    assert (gpu.memory_efficiency, gpu.compute_efficiency, gpu.attention_efficiency) == (1, 0.25, 0.25)
    assert (gpu.kernel_overhead_us, gpu.expert_overhead_us, gpu.expert_calls) == (3, 3, "single")
    assert gpu.memory_gb * 1e9 == machine.hardware(1).capacity_bytes


def test_a_step_on_a_cpu_alone_reads_all_weights_and_the_cache_once():
    """Three layers of attention, gate and two experts; vectors of 2 KB and less are left out."""
    context = 2048
    given = dict(gpu="none", n_cpu_moe=None, prompt=context - 32, generated=64)
    usual = (BY_HAND[0], "host.cpu_expert_overhead_us=0", *BY_HAND[2:])
    free = predicted(**given, sets=usual).decode
    # Reading and two operations a weight, at a quarter of 65,536 in a nanosecond, one after the other.
    experts_ns = CHOSEN * (EXPERT_BYTES / READ_GBPS + 2 * 3 * 1024 * 768 / (0.25 * 65_536))
    assert free.parts_ns["experts on the CPU"] == pytest.approx(experts_ns, rel=1e-6)
    dense = 3 * (ATTENTION + GATE + context * KV * 2) + HEAD
    assert free.parts_ns["attention and dense parts"] == pytest.approx(dense / READ_GBPS, rel=0.02)
    assert free.time_ns == pytest.approx(experts_ns + dense / READ_GBPS, rel=0.01)
    # 2 us for each of 64 threads in each of three layers.
    waiting = predicted(**given, sets=(*usual, "host.cpu_thread_overhead_us=2")).decode
    assert waiting.time_ns - free.time_ns == pytest.approx(3 * 64 * 2000, rel=1e-6)
    # 3 us for each kernel: two norms, q k v, the cache's entries, attention, o and two of the gate in each layer,
    # two experts; a norm and the head.
    slow = predicted(**given, sets=BY_HAND).decode
    assert slow.time_ns - free.time_ns == pytest.approx(3000 * (3 * (8 + 2) + 2), rel=1e-6)


def test_a_cpu_alone_holds_all_weights_and_a_tenth_more():
    """The embedding has as many weights as the head; norms and the cache of 64 tokens are small."""
    alone = predicted(gpu="none", n_cpu_moe=None)
    weights = 3 * (16 * EXPERT_BYTES + ATTENTION + GATE) + 2 * HEAD
    assert alone.host_bytes == pytest.approx(weights + 3 * 128 * KV * 2, rel=0.01)
    file = weight_file("q8_0", load_model("config.json")).bytes
    assert file == pytest.approx(weights, rel=0.002)
    predicted(gpu="none", n_cpu_moe=None, memory_gb=1.1001 * file / 1e9)
    with refused("too-large memory_gb"):
        predicted(gpu="none", n_cpu_moe=None, memory_gb=1.0999 * file / 1e9)


def test_beside_a_gpu_the_host_has_to_hold_the_experts():
    experts = 3 * 16 * EXPERT_BYTES
    predicted(memory_gb=1.0001 * experts / 1e9)
    with refused("too-large memory_gb"):
        predicted(memory_gb=0.9999 * experts / 1e9)


def test_the_cache_has_the_asked_bits_and_tokens_the_experts_of_the_seed(runs):
    """The cache of 64 tokens and half of those generated, of three layers."""
    whole, half = (predicted(kv_bits=bits).gpu_bytes["kv_cache"] for bits in (16, 8))
    assert whole == 2 * half == 3 * (64 + 64) * KV * 2
    step_ns = {predicted(seed=seed, program="streaming").prefill.time_ns for seed in (1, 2, 3)}
    assert len(step_ns) > 1


def test_experts_on_the_cpu_read_or_compute_whichever_takes_longer():
    reading = predicted(sets=HALF).decode.parts_ns
    assert EXPERTS_ON_CPU[0] in reading
    assert EXPERTS_ON_CPU[1] not in reading
    slow = ("host.cpu_tflops=0.1", "host.cpu_compute_efficiency=0.5", "host.cpu_added_tokens=0", *HALF)
    computing = predicted(sets=slow).decode.parts_ns
    assert EXPERTS_ON_CPU[0] not in computing
    operations = CHOSEN * 2 * 3 * 1024 * 768
    reading_ns = CHOSEN * EXPERT_BYTES / (0.5 * 2 * 4.8 * 8)
    assert computing[EXPERTS_ON_CPU[1]] == pytest.approx(operations / (0.5 * 100) + reading_ns, rel=0.01)


def test_experts_that_the_channels_hold_up_are_read_though_computing_takes_longer_than_their_peak():
    # 4.72 MFLOP at 0.1417 TFLOPS take 33.3 us, 2.51 MB at the peak of 76.8 GB/s 32.6 us; refresh makes it 35.7.
    limits = ("tflops=0.1417", "compute_efficiency=1", "added_tokens=0", "read_share=1", "family=null")
    overheads = ("roofline_power=20", "expert_overhead_us=0", "layer_overhead_us=0", "thread_overhead_us=0")
    parts_ns = predicted(sets=[f"host.cpu_{text}" for text in (*limits, *overheads)]).decode.parts_ns
    assert EXPERTS_ON_CPU[1] not in parts_ns
    assert 33.4e3 * CHOSEN < parts_ns[EXPERTS_ON_CPU[0]] < 1.2 * 32.6e3 * CHOSEN


# ---- Chunks of a prompt ----


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int | None, int, int, float]]:
    """Of each run of a prediction: prompt, prefix, context, and the time of its prefill."""
    seen = []
    run_moe = phases.run_moe

    def recorded(*arguments: Any, **options: Any) -> Any:
        result = run_moe(*arguments, **options)
        asked = tuple(options[name] for name in ("prompt", "prefix", "context"))
        seen.append((*asked, result.runs[0].prefill_ns))
        return result

    monkeypatch.setattr(phases, "run_moe", recorded)
    return seen


def test_a_prompt_of_two_chunks_is_the_first_and_the_last(runs):
    result = predicted(chunk=32)
    (_, *chunks) = runs
    assert [chunk[:3] for chunk in chunks] == [(32, 0, 32), (32, 32, 64)]
    assert result.prefill.time_ns == pytest.approx(sum(chunk[3] for chunk in chunks))


def test_chunks_between_lie_between_the_first_and_the_last_and_the_rest_is_simulated(runs):
    result = predicted(prompt=4 * 32 + 16, chunk=32)
    (_, first, last, rest) = runs
    assert [chunk[:3] for chunk in (first, last, rest)] == [(32, 0, 32), (32, 96, 128), (16, 128, 144)]
    assert result.prefill.time_ns == pytest.approx(2 * first[3] + 2 * last[3] + rest[3])
    # A prompt of two chunks ends with what was the second of four, one of three with the third.
    runs.clear()
    for chunks in (2, 3):
        predicted(prompt=chunks * 32, chunk=32)
    second, third = (run for run in runs if run[1])
    assert second[3] + third[3] == pytest.approx(first[3] + last[3], rel=0.01)


def test_a_decoded_token_attends_to_the_prompt_and_half_of_what_is_generated(runs):
    predicted(prompt=100, generated=51)
    assert runs[0][:3] == (None, 0, 126)


def test_a_chunk_of_more_than_the_prompt_is_the_prompt(runs):
    predicted(prompt=20, chunk=4096)
    assert [run[0] for run in runs] == [None, 20]


# ---- Machines ----


def test_ranks_are_the_fewest_that_hold_the_weights():
    machine = OwnMachine("cpu.yaml", 1, "ddr5-4800", 2, "rtx-4090", "pcie-4-x16")
    rank_bytes = machine.hardware(1).capacity_bytes  # of one rank on each DIMM
    for ranks in (1, 2, 4, 8):
        assert machine.hardware(ranks * rank_bytes).system.dimm.ranks == ranks
    with refused("too-large memory"):
        machine.hardware(8 * rank_bytes + 1)


def test_copies_from_memory_that_is_not_pinned_are_as_fast_as_a_core():
    parts = ("cpu.yaml", 1, "ddr5-4800", 2, "rtx-4090", "pcie-4-x16")
    assert OwnMachine(*parts, pinned=False).hardware(1).system.pcie.gbps == 16
    assert OwnMachine(*parts, pinned=True).hardware(1).system.pcie.gbps == 31.508
    slow = replace(OwnMachine(*parts, pinned=False), link="pcie-3-x16")
    assert slow.hardware(1).system.pcie.gbps == load_part("pcie-3-x16").values["gbps"] < 16


def test_programs_without_amx_compute_with_vectors():
    parts = ("xeon-gold-6454s", 1, "ddr5-4800", 8, "rtx-4090", "pcie-4-x16")
    assert OwnMachine(*parts, matrix_units=True).hardware(1).system.host.cpu_isa == "amx"
    assert OwnMachine(*parts).hardware(1).system.host.cpu_isa == "avx512-vnni"


def test_programs_ask_for_their_policies():
    model = load_model("config.json")
    # 32 tokens an expert on average, of 16 experts of which a token has two.
    asked = {name: program.asked_policy(model, None) for name, program in PROGRAMS.items()}
    assert asked["ik_llama.cpp"] == "llama-cpp:offload_tokens=256"
    assert asked["ik_llama.cpp-repacked"] == "llama-cpp:offload=false"
    assert asked["llama.cpp"] == "llama-cpp"
    assert asked["ktransformers"] == "ktransformers"
    assert PROGRAMS["llama.cpp"].asked_policy(model, 2) == "llama-cpp:n_cpu_moe=2"
    assert PROGRAMS["ktransformers"].asked_policy(model, 2).endswith("gpu_share=0.333333")


def test_a_chunk_is_offloaded_from_whole_tokens_an_expert_on():
    # 32 tokens an expert, of 160 experts of which a token has six: 853.33 tokens.
    asked = PROGRAMS["ik_llama.cpp"].asked_policy(load_model("deepseek-v2"), None)
    assert asked == "llama-cpp:offload_tokens=854"


def test_layers_on_the_cpu_are_counted_from_the_first_with_dense_ones_in_every_program():
    """Of 60 layers the first is dense: 13 of the first on the CPU are 12 of 59 with experts, 47 on the GPU."""
    model = load_model("deepseek-v2")
    assert PROGRAMS["llama.cpp"].asked_policy(model, 13) == "llama-cpp:n_cpu_moe=13"
    share = float(PROGRAMS["ktransformers"].asked_policy(model, 13).rpartition("=")[2])
    assert round(share * 59 * 160) == 47 * 160
    for layers, there in ((0, 1), (1, 1), (60, 0), (99, 0)):
        assert PROGRAMS["ktransformers"].asked_policy(model, layers).endswith(f"gpu_share={there}")


def test_memory_is_a_part_and_a_number_of_dimms():
    assert parse_memory("ddr5-4800x16") == ("ddr5-4800", 16)
    assert parse_memory("my-x1.yamlx2") == ("my-x1.yaml", 2)


# ---- Upgrades ----


def test_every_upgrade_is_there_with_what_it_gives():
    result = predicted(upgrades=True, sets=HALF)
    upgrades = {one.name: one for one in result.upgrades}
    assert list(upgrades) == ["memory", "gpu", "link", "ndp", "banks"]
    assert [one.problem for one in result.upgrades] == [""] * 5
    for one in result.upgrades:
        assert one.decode_gain == pytest.approx(one.decode_tokens_per_s / result.decode.tokens_per_s)
        assert one.prefill_gain == pytest.approx(one.prefill_tokens_per_s / result.prefill.tokens_per_s)
    # Twice the channels halve the experts' time and nothing else.
    part = expert_ns(result.decode.parts_ns) / result.decode.time_ns
    assert upgrades["memory"].decode_gain == pytest.approx(1 / (1 - part / 2), rel=0.01)
    assert upgrades["memory"].change.startswith("4x ddr5-4800")
    # PCIe 5 is the slowest link of 1.5 times PCIe 4's rate and more; the RTX 4090 does not take it.
    assert upgrades["link"].change == "pcie-5-x16, and a card that takes it"


def test_twice_the_memory_of_a_full_machine_is_on_twice_the_channels():
    full = OwnMachine("cpu.yaml", 1, "ddr5-4800", 4, "rtx-4090", "pcie-4-x16")
    _, better, _ = UPGRADES["memory"](full)
    assert better.hardware(1).host_gbps == 2 * full.hardware(1).host_gbps == 2 * 4 * 4.8 * 8


def test_another_card_has_no_less_memory():
    """1.5 times an RTX 6000 Ada's 960 GB/s: the smallest card, an RTX 5090, has 32 GB of its 48."""
    own = OwnMachine("cpu.yaml", 1, "ddr5-4800", 4, "rtx-6000-ada", "pcie-4-x16")
    name, better, _ = UPGRADES["gpu"](own)
    before, after = (load_part(card).values for card in ("rtx-6000-ada", name))
    assert (better.gpu, after["memory_gb"] >= before["memory_gb"]) == (name, True)
    assert after["memory_tbps"] >= 1.5 * before["memory_tbps"]
    assert UPGRADES["gpu"](replace(own, gpu="rtx-4090"))[0] == "rtx-5090"


def test_a_faster_link_comes_with_a_card_that_takes_it_and_units_with_what_uses_them():
    own = OwnMachine("cpu.yaml", 1, "ddr5-4800", 4, "rtx-4090", "pcie-4-x16")
    _, better, _ = UPGRADES["link"](own)
    system = better.hardware(1).system
    assert system.gpu.pcie_gbps == pytest.approx(load_part("pcie-5-x16").values["gbps"])
    assert system.pcie.gbps == pytest.approx(2 * own.hardware(1).system.pcie.gbps, rel=0.01)
    _, better, changed = UPGRADES["ndp"](own)
    assert (own.hardware(1).system.ndp, changed) == (None, {"policy": "monde"})
    assert better.hardware(1).system.ndp.gemv.multipliers == 256
    _, better, changed = UPGRADES["banks"](own)
    assert (better.hardware(1).system.banks.count, changed) == (5, {"attention": "ndp"})


def test_an_upgrade_that_there_is_not_says_why():
    upgrades = {one.name: one for one in predicted(gpu="b200", upgrades=True).upgrades}
    assert "no GPU of the parts is 1.5 times as fast as b200" in upgrades["gpu"].problem


# ---- The band ----


def test_the_band_is_the_prediction_times_the_measured_ratios_of_its_kind(tmp_path, monkeypatch):
    file = tmp_path / "measured.csv"
    rows = [("GPU and desktop", "decode", 0.5 + place / 10) for place in range(9)]
    rows += [("two sockets", "decode", 0.1), ("two sockets", "prefill", 2.0)]
    text = "# measured over predicted\nid,machine,kind,phase,measured_over_predicted\n"
    file.write_text(text + "".join(f"o1,m,{kind},{phase},{ratio}\n" for kind, phase, ratio in rows))
    monkeypatch.setattr(band, "_FILE", file)
    band._ratios.cache_clear()
    try:
        assert band.band_of("GPU and desktop", "decode", 20.0) == pytest.approx((10, 26, 9))
        assert band.band_of("two sockets", "decode", 20.0) == pytest.approx((2, 26, 10))
        assert band.band_of("GPU and server", "prefill", 20.0) == pytest.approx((40, 40, 1))
        result = predicted()
        assert result.config["machine"]["kind"] == "GPU and desktop"
        assert result.decode.band.low == pytest.approx(0.5 * 1e9 / result.decode.time_ns)
        band._ratios.cache_clear()
        monkeypatch.setattr(band, "_FILE", tmp_path / "none.csv")
        assert band.band_of("GPU and desktop", "decode", 20.0) is None
    finally:
        band._ratios.cache_clear()


def test_a_rate_is_named_if_the_median_error_of_its_kind_is_small(tmp_path, monkeypatch):
    """Nine machines with two sockets are half as fast as predicted, ten others nearly as fast."""
    file = tmp_path / "measured.csv"
    rows = [("two sockets", "decode", 0.5)] * 9 + [("GPU and server", "decode", 1.1)] * 10
    text = "# measured over predicted\nid,machine,kind,phase,measured_over_predicted\n"
    file.write_text(text + "".join(f"o1,m,{kind},{phase},{ratio}\n" for kind, phase, ratio in rows))
    monkeypatch.setattr(band, "_FILE", file)
    band._ratios.cache_clear()
    two = dict(sockets=2, memory="ddr5-4800x4")
    try:
        assert [band.is_known(kind, "decode") for kind in ("two sockets", "GPU and server", "CPU alone")] == [
            False, True, True,
        ]  # fmt: skip
        assert band.is_known("two sockets", "prefill")  # nobody measured it
        result = predicted(**two, upgrades=True)
        assert (result.decode.tokens_per_s, result.upgrades[0].decode_tokens_per_s) == (None, None)
        assert result.decode.band.high == pytest.approx(0.5e9 / result.decode.time_ns)
        assert result.prefill.tokens_per_s > 0
        assert result.upgrades[0].decode_gain >= 1
        _, out, _ = call(*without(LINE, ["--memory"]), "--memory", "ddr5-4800x4", "--sockets", 2)
        (line,) = (line for line in out.splitlines() if line.startswith("decode:"))
        assert line.startswith("decode: throughput not known (")
        assert " of a token" not in line
        assert "The throughput of decode is not known: on measured machines with two sockets" in " ".join(
            out.split()
        )
    finally:
        band._ratios.cache_clear()


def test_few_runs_of_a_kind_count_with_the_others(monkeypatch):
    few, many = (("CPU alone", 0.5),) * 2, (("GPU and server", 1.0),) * 3
    for runs, known in ((few, False), ((*few, *many), True), ((*few[:1], *many[:1], *few[:1]), False)):
        monkeypatch.setattr(band, "_ratios", lambda phase, runs=runs: runs)
        assert band.is_known("CPU alone", "decode") == known


@pytest.mark.parametrize(("runs", "left_out"), [(9, 0), (18, 0), (19, 1), (29, 2), (39, 3)])
def test_a_band_has_the_next_run_with_four_fifths_or_more(runs, left_out):
    """Order statistics: between the i-th and the j-th of n values lies the next one with (j - i) / (n + 1)."""
    low, high, used = band.covering([("kind", float(n)) for n in range(runs, 0, -1)], "kind")
    assert (low, high, used) == (1 + left_out, runs - left_out, runs)
    assert 5 * (high - low) >= 4 * (runs + 1) > 5 * (high - low - 2)


def test_what_was_measured_is_a_ratio_of_each_phase():
    with Path(band.__file__).with_name("measured.csv").open(encoding="utf-8", newline="") as opened:
        rows = list(csv.DictReader(line for line in opened if not line.startswith("#")))
    assert {row["phase"] for row in rows} == {"prefill", "decode"}
    assert all(0.1 < float(row["measured_over_predicted"]) < 10 for row in rows)


@pytest.mark.parametrize(
    ("changed", "kind"),
    [
        ({}, "GPU and desktop"),
        ({"gpu": "none"}, "CPU alone"),
        ({"sockets": 2, "memory": "ddr5-4800x8"}, "two sockets"),
        ({"gpu": "rtx-2060"}, "GPU without measurements"),
        ({"cpu": "epyc-9355"}, "GPU and server"),
        ({"cpu": "xeon-gold-6454s", "program": "ktransformers-amx"}, "GPU and AMX"),
        ({"cpu": "epyc-9355", "program": "ktransformers-amx"}, "GPU and server"),
    ],
)
def test_a_machine_has_a_kind(changed, kind):
    parts = dict(cpu="cpu.yaml", sockets=1, memory="ddr5-4800", dimms=8, gpu="rtx-4090", link="pcie-4-x16")
    program = changed.pop("program", None)
    changed.pop("memory", None)
    machine = OwnMachine(**{**parts, **changed}, matrix_units=program == "ktransformers-amx")
    assert machine.kind == kind


# ---- Kernels by format, two sockets, full memories ----


def test_kernels_are_the_mean_time_of_their_weights():
    """Three quarters of the weights take as long as usual, one quarter twice as long and unpacks for a token."""
    formats = {"q4_k": (4, 1.0, 0.0), "iq3_s": (3, 0.5, 1.0)}
    tensors = [
        Tensor("a", 0, "gate", BLOCKS["q4_k"], 3, 256, 256),
        Tensor("b", 0, "up", BLOCKS["iq3_s"], 1, 256, 256),
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels, "_formats", lambda program: formats)
        found = kernels.kernels_of("made", tensors)
        assert found.efficiency == pytest.approx(1 / (0.75 + 0.25 / 0.5))
        assert found.added_tokens == pytest.approx((0.25 / 0.5) / (0.75 + 0.25 / 0.5))
        assert found.bits == pytest.approx(0.75 * 4.5 + 0.25 * 3.4375)
        # A format that is not known takes those with as many whole bits; one bit is taken as two, none here.
        assert kernels._of_format("made", BLOCKS["iq4_k"]) == (1.0, 0.0)
        assert kernels._of_format("made", BLOCKS["iq1_s"]) == pytest.approx((0.5**0.5, 0.5))
    assert kernels.kernels_of(None, tensors)[:2] == (1, 0)


def test_predict_takes_the_kernels_of_the_weights_and_of_the_program():
    found = {}
    for program in ("ik_llama.cpp", "ik_llama.cpp-repacked", "llama.cpp", "ktransformers-amx"):
        rates = predicted(program=program, weights="iq3_s").config["rates"]
        found[program] = rates["host.cpu_compute_efficiency"][0], rates["host.cpu_added_tokens"][0]
    usual, none = found["ktransformers-amx"]
    assert none == 0
    assert found["ik_llama.cpp"] == pytest.approx((0.583 * usual, 1.8), rel=1e-4)
    assert found["llama.cpp"] == pytest.approx((0.112 * usual, -0.32), rel=1e-4)
    # Repacked weights are multiplied faster, and a token of decode takes as long.
    (plain, plain_tokens), (faster, tokens) = found["ik_llama.cpp"], found["ik_llama.cpp-repacked"]
    assert faster / plain == pytest.approx(1.159, rel=2e-3)
    assert (1 + tokens) / faster == pytest.approx((1 + plain_tokens) / plain, rel=5e-3)


def test_two_sockets_read_half_over_their_link_or_each_a_copy():
    parts = dict(cpu="cpu.yaml", sockets=2, memory="ddr5-4800", dimms=8, gpu="rtx-4090", link="pcie-4-x16")
    spread, copied = OwnMachine(**parts), OwnMachine(**parts, copies=True)
    assert copied.hardware(1).system.host.cpu_memory_gbps is None
    one_gbps = Processors(replace(spread, sockets=1, dimms=4).hardware(1)).cpu.read_gbps
    assert Processors(copied.hardware(1)).cpu.read_gbps == pytest.approx(2 * one_gbps, rel=1e-3)
    both = 2 * one_gbps / (0.5 + 0.5 / 0.44)
    assert Processors(spread.hardware(1)).cpu.read_gbps == pytest.approx(both, rel=1e-3)
    given = replace(spread, sets=("host.cpu_memory_gbps=100",)).hardware(1)
    assert given.system.host.cpu_memory_gbps == 100
    rank_bytes = spread.hardware(1).capacity_bytes
    assert spread.hardware(rank_bytes).system.dimm.ranks == 1
    assert copied.hardware(rank_bytes).system.dimm.ranks == 2


def test_weights_above_four_fifths_of_the_memory_are_told(caplog):
    experts = 3 * 16 * EXPERT_BYTES
    predicted(memory_gb=1.26 * experts / 1e9)
    assert "of the memory" not in caplog.text
    predicted(memory_gb=1.24 * experts / 1e9)
    assert "the weights take 81% of the memory" in caplog.text


# ---- Mistakes ----


def test_a_cpu_whose_channels_are_not_known_is_refused():
    Path("cpu.yaml").write_text(CPU.replace("cpu_memory_channels: {value: 4", "cpu_threads: {value: 4"))
    with refused("missing cpu"):
        predicted()


# ---- The command ----


def test_json_has_rates_parts_and_upgrades():
    status, out, err = call(*LINE, "--n-cpu-moe", 3, "--json", "-")
    assert status == 0, err
    told = json.loads(out)
    for phase in ("prefill", "decode"):
        assert told[phase]["tokens_per_s"] > 0
        assert sum(told[phase]["parts_ns"].values()) == pytest.approx(told[phase]["time_ns"])
    assert [one["name"] for one in told["upgrades"]] == ["memory", "gpu", "link", "ndp", "banks"]
    assert told["config"]["machine"]["memory"] == "ddr5-4800"
    assert told["config"]["rates"]["gpu.memory_tbps"][:2] == [1.008, "TB/s"]


def test_the_text_says_where_the_time_goes_and_what_upgrades_give():
    status, out, err = call(*LINE, "--n-cpu-moe", 3)
    assert status == 0, err
    for words in ("on cpu.yaml, 2x ddr5-4800", "prefill: ", "decode: "):
        assert words in out
    for kind in (Prediction, PhasePrediction, Upgrade):
        assert all(of.label in out for of in quantities(kind).values())


def test_a_picture_has_every_panel():
    result = predicted(upgrades=True)
    shown = [axes.get_xlabel().partition(" ")[0].strip(",") for axes in prediction_figure(result).axes]
    assert shown == ["prefill", "decode", "speed-up"]
    assert len(shown) == len(PANELS["predict"])
    (decode,) = prediction_figure(result, panels=("decode",)).axes
    widths = [patch.get_width() for patch in decode.patches]
    shares = [100 * ns / result.decode.time_ns for ns in result.decode.parts_ns.values()]
    assert widths == pytest.approx([share for share in shares if share >= 0.1])


def test_a_model_without_experts_is_computed_by_one_processor() -> None:
    """Decode reads all weights but the embedding once a step; products and waiting threads are a seventh."""
    parts = dict(
        cpu="ryzen-9-7950x", memory="ddr5-5200x2", model="llama-3.1-8b", weights="q4_k_s", upgrades=False
    )
    alone, on_gpu = predict(**parts, gpu="none"), predict(**parts, gpu="rtx-4090")
    file = weight_file("q4_k_s", "llama-3.1-8b")
    read = file.bytes - sum(tensor.bytes for tensor in file.of_class("embedding"))
    for found, where in ((alone, "CPU"), (on_gpu, "GPU")):
        assert set(found.decode.parts_ns) == {f"all layers on the {where}"}
        assert sum(found.decode.parts_ns.values()) == pytest.approx(found.decode.time_ns)
    rate = alone.config["rates"]["gpu.memory_tbps"][0] * 1000
    assert read / rate <= alone.decode.time_ns < 8 / 7 * read / rate
    assert on_gpu.decode.time_ns < alone.decode.time_ns / 4
    # Of a token, 32 layers keep keys and values of 8 heads of 128: those of the prompt and of half of what follows.
    long = predict(**parts, gpu="none", prompt=4096, generated=2048)
    # They are read, and then multiplied with 32 queries of 128: a product and a sum for each key, and for each value.
    more = 4096 + 1024 - 512 - 64
    gflops = (
        9216 * 0.366945
    )  # 16 cores x 4.5 GHz x 128 operations; measured with q4_k (validation/cpu_formats.md)
    added_ns = 32 * 2 * 8 * 128 * 2 * more / rate + 32 * 2 * 2 * 32 * 128 * more / gflops
    assert long.decode.time_ns - alone.decode.time_ns == pytest.approx(added_ns, rel=1e-6)
    with refused("conflict n_cpu_moe"):
        predict(**parts, gpu="rtx-4090", n_cpu_moe=3)
    with refused("too-large gpu.memory_gb"):
        predict(**parts | {"model": "qwen3-32b", "weights": "bf16"}, gpu="rtx-4090")
