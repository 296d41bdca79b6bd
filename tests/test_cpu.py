"""The CPU: peak, reads, overheads, and values of its file, computed by hand."""

from __future__ import annotations

import csv
import logging
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.small_moe import CACHE, GIVEN, alone_on, of_kind, recorded
from mistakes import refused
from ndpsim.config import load_hardware
from ndpsim.inference.layers.run import run_moe
from ndpsim.inference.processors import Cpu, load_processors
from ndpsim.inference.processors.cpu import PEAK_OPERATIONS
from ndpsim.inference.processors.fitted import FOLDER
from ndpsim.workload.models import Expert
from scripts import script
from test_moe_answers import SIX, judged

VALIDATION = Path(__file__).parents[1] / "validation"
# The channels of dali-7532-3090: eight of DDR4-3200, 8 B each.
CHANNELS_GBPS = 8 * 3.2 * 8
# Without that file's values of its CPU.
BARE = ("part", "cpu_tflops", "cpu_compute_efficiency", "cpu_read_gbps", "cpu_cores", "cpu_threads")
FITTED = {
    (row["key"], row["family"]): float(row["value"])
    for row in csv.DictReader((FOLDER / "cpu.csv").read_text().splitlines())
}
# Achieved shares and rates, if the file has neither.
PROGRAMS = FITTED["expert_read_share", "any"]


def cpu_of(**host: object) -> Cpu:
    """The CPU of a machine with this host."""
    keys = {**dict.fromkeys(BARE, "null"), **host}
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
    assert ("read_share", "granite-rapids") not in FITTED
    expected = PROGRAMS * FITTED["read_share", "any"] * CHANNELS_GBPS
    assert reads(cpu_family="granite-rapids") == pytest.approx(expected)


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


def test_the_committed_fits_are_current():
    fits = script("validation/cpu.py")
    words = "python validation/cpu.py writes it"
    assert (FOLDER / "cpu.csv").read_text(encoding="utf-8") == fits.fits(), words
    assert (VALIDATION / "cpu.md").read_text(encoding="utf-8") == fits.text(), words


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
