"""Values of bundled hardware and models that no paper prints, defaults of hardware files, and units.

Printed values are in `test_hwconfigs`. The source of a value here is its file, which gives the reason for it,
or another source, which the test names.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import ndpsim.workload.models
from mistakes import refused
from ndpsim.base.errors import InputError
from ndpsim.base.units import Timebase, common_ticks, format_bytes, format_energy, format_power, format_time
from ndpsim.config import load_hardware
from ndpsim.workload.models import FAMILIES, load_model

# Hardware

_MULTIPLIER = {
    "buffer_kib": 256, "activation_bytes": 2, "fifo_bursts": 32, "native_bits": 16, "clock_mhz": 1000,
    "product_pj": 0.34 + 0.16, "buffer_pj_per_byte": 8.5 / 8, "fifo_pj_per_byte": 2 * 7.5 / 8,  # Jouppi, Table 2
    "static_mw": None, "area_mm2": None,
}  # fmt: skip
_ACTIVATION = {
    "cycles_per_value": 1,
    "latency_cycles": 12,
    "clock_mhz": 1000,
    "static_mw": None,
    "area_mm2": None,
}
# Exponent and reciprocal as two products with sums each, one sum, two products.
_VALUE_PJ = 6 * 0.34 + 5 * 0.16


def _under(section: str, values: dict[str, object]) -> dict[str, object]:
    return {f"{section}.{key}": value for key, value in values.items()}


_PCIE = {"latency_ns": 500, "copy_engines": 2, "packet_bytes": 256, "header_bytes": 24, "pj_per_bit": None}
_PCIE_OF_CONSUMERS = _PCIE | {"copy_engines": 1}
VALUES = {
    "trimoe": {
        "host.cpu_compute_efficiency": round(21 / 90.1, 5), "host.cpu_added_tokens": 12,
        "gpu.compute_efficiency": 0.7, "gpu.memory_efficiency": 0.8, "gpu.expert_buffers": 2,
        "gpu.attention_efficiency": 0.586,  # FlashMLA: 580 of an H800's 989.4 TFLOPS
        "gpu.expert_overhead_us": 18, "gpu.kernel_overhead_us": 18 / 6, "gpu.reserved_gb": 80 / 10,
        "dram.part": "ddr5-4800", "pcie.part": "pcie-5-x16",
        "dram.standard": "DDR5", "dram.org": "DDR5_32Gb_x8", "dram.timing": "DDR5_4800B", "dram.refresh": "all-bank",
        # Ramulator's DDR5_4800BN (15 ns) where it differs from the part's bin B, its 20 ns for writes of all widths,
        # its roundings of 410 ns, 3.9 us, 190 and 30 ns over 416 ps, and its distances between ranks.
        **_under("dram.overrides", {
            "nRCD": 36, "nRC": 77 + 36, "nCWL": 34, "nCCDL_WR": 48, "nRFC": -(-410_000 // 416), "nREFI": -(-3_900_000 // 416),
            "nRFCsb": -(-190_000 // 416), "nREFSBRD": -(-30_000 // 416), "nRTW_DR": 8 + 2, "nWTW_DR": 8,
        }),
        "dram.read_buffer": 32, "dimm.subchannels": 2,
        "link.pj_per_bit": 1.17,  # Poulton et al., JSSC 2019
        "link.topology": "ring", "link.ports": 2, "link.hop_latency_ns": 10, "link.packet_bytes": 256,
        "link.header_bytes": 16, "link.group_dimms": 8, "link.host_latency_ns": 100,
        **_under("pcie", _PCIE),
        "ndp.gemv.bit_serial_cycles": 16, "ndp.gemv.adder_tree_cycles": 11,
        **_under("ndp.gemv", _MULTIPLIER), **_under("ndp.activation", _ACTIVATION),
        "ndp.activation.units": 256, "ndp.activation.value_pj": _VALUE_PJ,
        "ndp.relayout.clock_mhz": 1000, "ndp.relayout.buffer_kib": 64, "ndp.relayout.pj_per_byte": 2 * 8.5 / 8,
        "ndp.relayout.static_mw": None, "ndp.relayout.area_mm2": None,
    },
    "edge": {
        # 8 cores with two vector units of 256 bits, and 12 with two of 128.
        "host.part": "core-i7-14700", "host.cpu_cores": 8 + 12 / 2, "host.cpu_clock_ghz": 5.3, "host.cpu_isa": "avx2",
        "host.cpu_family": "raptor-lake", "host.cpu_memory_channels": 2, "host.cpu_memory_mtps": 5600, "host.cpu_sockets_most": 1,
        "host.cpu_added_tokens": 0, "host.cpu_read_share": round(0.8203 * 0.7362, 4),
        "pcie.gbps": round(16 * 32 / 8 * 128 / 130, 3), **_under("pcie", _PCIE_OF_CONSUMERS),
        "gpu.reserved_gb": 16 / 10, "dram.part": "ddr4-3200", "gpu.part": "rtx-5080", "pcie.part": "pcie-5-x16",
        "dram.org": "DDR4_8Gb_x8", "dram.timing": "DDR4_3200AA", "dram.refresh": "all-bank", "dram.read_buffer": 32,
        "dimm.subchannels": 1, "host.channels": 2,
        **_under("host.memory", {"part": "ddr5-5600", "standard": "DDR5", "org": "DDR5_16Gb_x8", "timing": "DDR5_5600AN", "channels": 2, "dimms": 4, "ranks": 2}),
        "gpu.expert_overhead_us": 3 * 5, "gpu.kernel_overhead_us": 5, "gpu.expert_buffers": 2,
        "gpu.tflops": 98.9, "gpu.memory_tbps": 256 * 30 / 8 / 1000, "gpu.pcie_gbps": 16 * 32 / 8,
        "ndp.gemv.values_per_multiplier": 1, "ndp.gemv.bit_serial_cycles": 1, "ndp.gemv.adder_tree_cycles": 6,
        **_under("ndp.gemv", _MULTIPLIER), **_under("ndp.activation", _ACTIVATION),
        "ndp.activation.units": 64, "ndp.activation.value_pj": _VALUE_PJ,
    },
    "cxl": {
        "gpu.reserved_gb": 6, "gpu.expert_buffers": 2, "cxl.copy_engines": 2, "dram.part": "ddr5-4000", "gpu.part": "h100-sxm",
        "dram.standard": "DDR5", "dram.org": "DDR5_32Gb_x8", "dram.timing": "DDR5_4000AN", "dram.refresh": "all-bank",
        "dram.read_buffer": 32, "dimm.ranks": 1, "dimm.subchannels": 32,
        "gpu.memory_tbps": 3.35, "gpu.pcie_gbps": 16 * 16 / 8,
        "cxl.gbps": 31.508, "cxl.latency_ns": 100, "cxl.packet_bytes": 64, "cxl.header_bytes": 21, "cxl.pj_per_bit": None,
        "ndp.systolic.dataflow": "output-stationary", "ndp.systolic.low_bit_throughput": "inverse-bits",
        "ndp.systolic.stationary_registers": 2, "ndp.systolic.load_rows": 1,
        **_under("ndp.systolic", _MULTIPLIER), **_under("ndp.activation", _ACTIVATION),
        "ndp.activation.units": 64, "ndp.activation.value_pj": None,
    },
    "cache-7960x-4090": {
        "host.part": "threadripper-7960x", "host.cpu_clock_ghz": 4.2, "host.cpu_isa": "avx512-bf16", "host.cpu_family": "zen4",
        "host.cpu_memory_channels": 4, "host.cpu_memory_mtps": 5200, "host.cpu_sockets_most": 1,
        "host.cpu_fabric_gbps": 4 * 32 * 1.8,  # chiplets x bytes a clock x GHz
        "dram.part": "ddr5-4800", "gpu.part": "rtx-4090", "pcie.part": "pcie-4-x16",
        "dram.standard": "DDR5", "dram.org": "DDR5_16Gb_x8", "dram.timing": "DDR5_4800B", "dram.refresh": "all-bank",
        "dram.read_buffer": 32, "dimm.count": 4, "dimm.ranks": 2, "dimm.subchannels": 2,
        "host.channels": 4, "host.memory_bandwidth_gbps": 4 * 4.8 * 8, "host.memory_tb": 4 * 32 / 1024,
        "host.cpu_added_tokens": 0,
        "host.cpu_read_gbps": round(2 * 6 * 4096 * 14336 / 7.34e6),  # Table III, 24 threads
        "gpu.tflops": 165.2, "gpu.memory_tbps": 384 * 21 / 8 / 1000, "gpu.reserved_gb": 2, "gpu.kernel_overhead_us": 20,
        "gpu.attention_overhead_us": None, "gpu.expert_buffers": 2,
        **_under("pcie", _PCIE_OF_CONSUMERS), "pcie.gbps": 27.613, "pcie.latency_ns": 54555.825,
    },
    "dali-7532-3090": {
        "host.part": "epyc-7532", "host.cpu_clock_ghz": 2.4, "host.cpu_isa": "avx2", "host.cpu_family": "zen2",
        "host.cpu_memory_channels": 8, "host.cpu_memory_mtps": 3200, "host.cpu_sockets_most": 2,
        "host.cpu_fabric_gbps": 8 * 32 * 1.467,  # chiplets x bytes a clock x GHz
        "dram.part": "ddr4-3200", "gpu.part": "rtx-3090", "pcie.part": "pcie-4-x16",
        "dram.org": "DDR4_8Gb_x4", "dram.timing": "DDR4_3200AA", "dram.refresh": "all-bank", "dram.read_buffer": 32,
        "dimm.count": 8, "dimm.ranks": 2, "dimm.subchannels": 1,
        "host.channels": 8, "host.memory_bandwidth_gbps": 8 * 3.2 * 8, "host.cpu_added_tokens": 0,
        "host.cpu_read_share": round(0.6486 * 0.7362, 4),
        "gpu.tflops": 71.2, "gpu.expert_buffers": 2, "gpu.reserved_gb": 2.4, **_under("pcie", _PCIE_OF_CONSUMERS), "pcie.gbps": round(25 * 280 / 256, 3),
    },
}  # fmt: skip


@pytest.mark.parametrize("name", VALUES)
def test_every_value_that_no_paper_prints(name):
    hardware = load_hardware(name)
    found = {row.key: row.value for row in hardware.rows()}
    assert {key: found[key] for key in VALUES[name]} == {
        key: pytest.approx(value, rel=1e-12) if isinstance(value, float) else value
        for key, value in VALUES[name].items()
    }
    assumed = {key for key, origin in hardware.origins.items() if origin.kind == "assumption"}
    assert assumed <= set(VALUES[name])


@pytest.mark.parametrize(
    ("name", "clocks"),
    [
        # Of Table 1 where it says so; the rest of Ramulator's DDR5-4800BN: 36 clocks of 1/2.4 ns are 15 ns. Those that
        # follow keep its commands: 4 clocks between read and write, one distance for a bank group.
        ("trimoe", dict(nCL=40, nRCD=36, nRP=34, nRAS=77, nRC=113, nCWL=34, nWR=72, nRTP=18, nFAW=32, nRRDS=8, nRRDL=12, nCCDS=8, nCCDL=12, nBL=8, nRFC=986, nREFI=9375, nRFCsb=457, nREFSBRD=73, nRTW=40 + 8 - 34 + 4, nCCDM=12, nCCDL_WR=48, nCCDM_WR=48, nWTRL=24, nWTRM=24, nWTRS=6, nPPD=2)),
        ("edge", dict(nCL=22, nRCD=22, nRP=22, nRAS=52, nRC=74, nCWL=16, nWR=24, nRTP=12, nFAW=34, nRRDS=4, nRRDL=8, nCCDS=4, nCCDL=8, nBL=4, nRFC=560, nREFI=12480)),
        ("cache-7960x-4090", dict(nCL=40, nRCD=39, nRP=39, nBL=8, nFAW=32, nREFI=3900 * 24 // 10, nRFC=708)),
        ("dali-7532-3090", dict(nCL=22, nRCD=22, nRP=22, nBL=4, nRFC=560, nREFI=12480)),
        ("cxl", dict(nCL=28, nRCD=28, nRP=28, nRAS=64, nRC=92, nCWL=26, nWR=60, nRTP=15, nFAW=32, nRRDS=8, nRRDL=10, nCCDS=8, nCCDL=10, nBL=8, nRFC=818, nREFI=7800, nRFCsb=379)),
    ],
)  # fmt: skip
def test_clocks_of_the_bundled_hardware(name, clocks):
    timings = load_hardware(name).lane_device().timings
    assert {key: timings[key] for key in clocks} == clocks


@pytest.mark.parametrize(
    ("name", "derived"),
    [
        ("trimoe", dict(lanes=8, lane_ranks=1, data_pins=8 * 32, burst_bytes=64, dimm_bytes=128 << 30, lane_peak_gbps=19.2, dimm_peak_gbps=153.6, dimm_host_gbps=38.4, host_memory_gbps=307.2, gemv_gflops=256, systolic_gflops=None)),
        ("edge", dict(lanes=4, lane_ranks=1, data_pins=4 * 64, burst_bytes=64, dimm_bytes=32 << 30, lane_peak_gbps=25.6, dimm_peak_gbps=102.4, dimm_host_gbps=25.6, host_memory_gbps=89.6, gemv_gflops=128, systolic_gflops=None)),
        ("cache-7960x-4090", dict(lanes=4, lane_ranks=1, data_pins=4 * 32, burst_bytes=64, dimm_bytes=32 << 30, lane_peak_gbps=19.2, dimm_peak_gbps=76.8, dimm_host_gbps=38.4, host_memory_gbps=153.6, gemv_gflops=None, systolic_gflops=None)),
        ("dali-7532-3090", dict(lanes=2, lane_ranks=1, data_pins=2 * 64, burst_bytes=64, dimm_bytes=32 << 30, lane_peak_gbps=25.6, dimm_peak_gbps=51.2, dimm_host_gbps=25.6, host_memory_gbps=204.8, gemv_gflops=None, systolic_gflops=None)),
        ("cxl", dict(lanes=32, lane_ranks=1, data_pins=32 * 32, burst_bytes=64, dimm_bytes=512 << 30, lane_peak_gbps=16, dimm_peak_gbps=512, dimm_host_gbps=31.508, host_memory_gbps=31.508, gemv_gflops=None, systolic_gflops=2048)),
    ],
)  # fmt: skip
def test_what_follows_from_the_bundled_hardware(name, derived):
    hardware, device = load_hardware(name), load_hardware(name).lane_device()
    assert hardware.to_dict()["derived"] == derived
    rows = {row.key: (row.value, row.unit) for row in hardware.rows()}
    shown = {
        "lanes": (derived["lanes"], ""),
        "data_pins": (derived["data_pins"], ""),
        "dimm_capacity": (derived["dimm_bytes"] / 2**30, "GiB"),
        "lane_peak": (derived["lane_peak_gbps"], "GB/s"),
        "dimm_peak_inside": (derived["dimm_peak_gbps"], "GB/s"),
        "dimm_peak_host": (derived["dimm_host_gbps"], "GB/s"),
        "gemv_peak": derived["gemv_gflops"] and (derived["gemv_gflops"], "GFLOPS"),
        "systolic_peak": derived["systolic_gflops"] and (derived["systolic_gflops"], "GFLOPS"),
        "bankgroups": (device.bankgroups, ""),
        "banks_per_group": (4, ""),
    }
    assert {key: rows.get(f"derived.{key}") for key in shown} == shown


def test_a_device_on_a_link_gives_no_more_than_it_has():
    hardware = load_hardware("cxl", ["dimm.subchannels=1", "ndp.systolic.arrays=2"])
    assert (hardware.dimm_peak_gbps, hardware.dimm_host_gbps) == (16, 16)


def test_the_area_of_all_units_is_known_when_each_is():
    areas = ["ndp.systolic.area_mm2=2", "ndp.activation.area_mm2=0.5"]
    assert load_hardware("cxl", areas).ndp_area_mm2 == 2.5
    assert load_hardware("cxl", areas[:1]).ndp_area_mm2 is None


def test_what_a_hardware_file_need_not_say(tmp_path):
    path = tmp_path / "least.yaml"
    path.write_text("name: least\ndram: {standard: DDR4, org: DDR4_8Gb_x8, timing: DDR4_3200AA}\n")
    hardware = load_hardware(str(path))
    assert {row.key: row.value for row in hardware.rows() if row.origin.startswith("default, ")} == {
        "title": None, "paper": None, "dram.rules": "standard", "dram.wck": "need-sync",
        "dram.rck": "always-on", "dram.rck_idle": 32,
        "dram.refresh_control": None, "dram.rfm": "off", "dram.rfm_threshold": None,
        "dram.mapper": "RoBaRaCoCh", "dram.scheduler": "FRFCFS", "dram.row_policy": "open",
        "dram.row_cap": 4, "dram.refresh": "all-bank", "dram.read_buffer": 32, "dram.write_buffer": 32,
        "dimm.count": 1, "dimm.ranks": 1, "dimm.subchannels": 1, "dimm.command_bus": "private",
        "host.channels": 1, "host.memory_bandwidth_gbps": None, "host.memory_tb": None, "host.mapper": "RoBaCoRaCoBgCh",
        "host.cpu_tflops": None,
        "host.cpu_compute_efficiency": None, "host.cpu_added_tokens": 0, "host.cpu_expert_times": None,
        "host.measured_power": None, "dram.part": None,
        "host.part": None, "host.cpu_expert_overhead_us": 0, "host.cpu_layer_overhead_us": 0, "host.cpu_sockets": 1,
        **{f"host.cpu_{key}": None for key in (
            "family", "read_share", "clock_ghz", "isa", "fabric_gbps", "sockets_most", "read_gbps", "cores", "threads",
            "memory_channels", "memory_mtps", "memory_mtps_2dpc", "memory_gbps", "roofline_power",
        )},
        "host.cpu_thread_overhead_us": 0,
    }  # fmt: skip


def test_what_the_section_of_a_gpu_need_not_say(tmp_path):
    path = tmp_path / "least.yaml"
    text = "name: least\ndram: {standard: DDR4, org: DDR4_8Gb_x8, timing: DDR4_3200AA}\n"
    path.write_text(text + "gpu: {tflops: 100, memory_gb: 24, memory_tbps: 1, pcie_gbps: 32}\n")
    rows = load_hardware(str(path)).rows()
    found = {
        row.key: row.value
        for row in rows
        if row.origin.startswith("default, ") and row.key.startswith("gpu.")
    }
    assert found == {
        "gpu.compute_efficiency": None, "gpu.attention_efficiency": None, "gpu.memory_efficiency": None,
        "gpu.expert_overhead_us": 0, "gpu.kernel_overhead_us": 0, "gpu.expert_times": None,
        "gpu.reserved_gb": 0, "gpu.expert_buffers": 2, "gpu.part": None, "gpu.family": None,
        "gpu.fused_efficiency": None, "gpu.roofline_power": None, "gpu.tile_tokens": 1,
        "gpu.expert_calls": "single", "gpu.call_overhead_us": 0, "gpu.slice_us": 0,
        "gpu.fused_memory_efficiency": None, "gpu.fp8_tflops": None, "gpu.fp8_efficiency": None,
        "gpu.attention_memory_efficiency": None, "gpu.attention_power": None, "gpu.softmax_operations": None,
        "gpu.latent_efficiency": None,
        "gpu.fp4_tflops": None, "gpu.fp4_efficiency": None, "gpu.attention_overhead_us": None, "gpu.count": 1, "gpu.link_gbps": None, "gpu.link_latency_us": 20,
    }  # fmt: skip


# Models: what their config.json say on Hugging Face.

# Repository, family, intermediate size of dense layers and how many there are.
DENSE = {
    "deepseek-moe-16b": ("deepseek-ai/deepseek-moe-16b-base", "deepseek", 10944, 1),
    "deepseek-v2": ("deepseek-ai/DeepSeek-V2", "deepseek_v2", 12288, 1),
    "deepseek-v2-lite": ("deepseek-ai/DeepSeek-V2-Lite", "deepseek_v2", 10944, 1),
    "deepseek-v3": ("deepseek-ai/DeepSeek-V3", "deepseek_v3", 18432, 3),
    "glm-4.5-air": ("zai-org/GLM-4.5-Air", "glm4_moe", 10944, 1),
    "gpt-oss-120b": ("openai/gpt-oss-120b", "gpt_oss", 0, 0),
    "kimi-k2": ("moonshotai/Kimi-K2-Instruct", "kimi_k2", 18432, 1),
    "llama-4-maverick": ("meta-llama/Llama-4-Maverick-17B-128E-Instruct", "llama4_text", 16384, 24),
    "llama-4-scout": ("meta-llama/Llama-4-Scout-17B-16E-Instruct", "llama4_text", 0, 0),
    "minimax-m2": ("MiniMaxAI/MiniMax-M2", "minimax_m2", 0, 0),
    "mixtral-8x22b": ("mistralai/Mixtral-8x22B-v0.1", "mixtral", 0, 0),
    "mixtral-8x7b": ("mistralai/Mixtral-8x7B-v0.1", "mixtral", 0, 0),
    "phi-3.5-moe": ("microsoft/Phi-3.5-MoE-instruct", "phimoe", 0, 0),
    "qwen3-235b-a22b": ("Qwen/Qwen3-235B-A22B", "qwen3_moe", 0, 0),
    "qwen3-30b-a3b": ("Qwen/Qwen3-30B-A3B", "qwen3_moe", 0, 0),
    "qwen3-next-80b-a3b": ("Qwen/Qwen3-Next-80B-A3B-Instruct", "qwen3_next", 0, 0),
    "qwen3.5-122b-a10b": ("Qwen/Qwen3.5-122B-A10B", "qwen3_5_moe_text", 0, 0),
    "qwen3.5-35b-a3b": ("Qwen/Qwen3.5-35B-A3B", "qwen3_5_moe_text", 0, 0),
}
# Intermediate sizes that the files have though no layer uses them.
UNUSED = {"qwen3-235b-a22b": 12288, "qwen3-30b-a3b": 6144, "qwen3-next-80b-a3b": 5120}
# Files without an intermediate size of dense layers, or with one under another key.
OTHERWISE = {"qwen3.5-122b-a10b": None, "qwen3.5-35b-a3b": None, "llama-4-maverick": 8192}


@pytest.mark.parametrize("name", DENSE)
def test_repositories_families_and_dense_layers_of_the_bundled_models(name):
    model, (repository, *dense) = load_model(name), DENSE[name]
    assert [model.family, model.dense_intermediate, len(model.dense_layers)] == dense
    file = json.loads((Path(ndpsim.workload.models.__file__).parent / "models" / f"{name}.json").read_text())
    assert file["_source"] == repository
    size = UNUSED.get(name, model.dense_intermediate or model.expert_intermediate)
    assert file.get("intermediate_size") == OTHERWISE.get(name, size)


def test_keys_of_the_families():
    """After the configuration classes of Transformers and, for DeepSeek, of the model repositories."""
    deepseek = (
        "n_routed_experts",
        "moe_intermediate_size",
        "n_shared_experts",
        "",
        "first_k_dense_replace mlp_layer_types",
    )
    qwen3_next = ("num_experts", "moe_intermediate_size", "", "shared_expert_intermediate_size", "")
    plain = ("num_local_experts", "intermediate_size", "", "", "")
    without_experts = ("llama", "mistral", "qwen2", "qwen3")
    found = {
        name: tuple(
            " ".join(keys)
            for keys in (
                family.routed_experts, family.expert_intermediate, family.shared_experts, family.shared_intermediate,
                family.layer_pattern,
            )
        )
        for name, family in FAMILIES.items()
    }  # fmt: skip
    expected = {
        "mixtral": plain,
        "phimoe": plain,
        "minimax_m2": plain,
        "olmoe": ("num_experts num_local_experts", *plain[1:]),
        "gpt_oss": ("num_local_experts num_experts", *plain[1:]),
        "qwen2_moe": ("num_experts", "moe_intermediate_size", "", "shared_expert_intermediate_size", ""),
        "qwen3_moe": ("num_experts num_local_experts", "moe_intermediate_size", "", "", ""),
        "qwen3_next": qwen3_next,
        "qwen3_5_moe_text": qwen3_next,
        "llama4_text": (*plain[:4], "moe_layers interleave_moe_layer_step"),
        "deepseek": deepseek,
        "deepseek_v2": deepseek,
        "deepseek_v3": deepseek,
        "kimi_k2": deepseek,
        "glm4_moe": deepseek,
        **dict.fromkeys(without_experts, ("",) * 5),
    }
    # docs/model-types.md has those of every other type as they are read.
    assert {name: found[name] for name in expected} == expected
    for name in expected:
        family = FAMILIES[name]
        per_token = () if name in without_experts else ("num_experts_per_tok",)
        per_token += ("experts_per_token",) if name == "gpt_oss" else ()
        dense = "intermediate_size_mlp" if name == "llama4_text" else "intermediate_size"
        assert (family.experts_per_token, family.hidden, family.layers, family.dense_intermediate) == (
            per_token, ("hidden_size",), ("num_hidden_layers",), (dense,)
        )  # fmt: skip
        # Neither is in a config.json: Llama4TextMoe always has a shared expert, Qwen3NextAttention a gate.
        assert (family.always_shared, family.gated_attention) == (
            int(name == "llama4_text"), name in ("qwen3_next", "qwen3_5_moe_text")
        )  # fmt: skip


# Units


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"), (1024, "1.00 KiB"), (1 << 60, "1048576.00 TiB"), (1023.4, "1023 B"), (0.5, "0 B"), (1.5, "2 B"), (-1, "-1 B"), (-1024, "-1.00 KiB"), (1536, "1.50 KiB"),
        (1048575, "1024.00 KiB"), (1 << 20, "1.00 MiB"), ((1 << 30) - 1, "1024.00 MiB"), (1 << 30, "1.00 GiB"),
        (1 << 40, "1.00 TiB"), (1 << 50, "1024.00 TiB"),
    ],
)  # fmt: skip
def test_bytes_at_the_edges_of_their_units(count, text):
    assert format_bytes(count) == text


@pytest.mark.parametrize(
    ("value", "time", "energy"),
    [
        (0.0, "0 ns", "0 nJ"), (-0.0, "0 ns", "0 nJ"), (1.0, "1.000 ns", "1.000 nJ"), (0.5, "0.5000 ns", "0.5000 nJ"),
        (999.94, "999.9 ns", "999.9 nJ"), (999.96, "1.000 µs", "1.000 µJ"), (1000.0, "1.000 µs", "1.000 µJ"),
        (-1000.0, "-1.000 µs", "-1.000 µJ"), (-999.0, "-999.0 ns", "-999.0 nJ"), (12345.0, "12.35 µs", "12.35 µJ"),
        (12335.0, "12.34 µs", "12.34 µJ"), (999_949.0, "999.9 µs", "999.9 µJ"), (1e6, "1.000 ms", "1.000 mJ"),
        (4.248e6, "4.248 ms", "4.248 mJ"), (1e9, "1.000 s", "1.000 J"), (2.5e12, "2500 s", "2500 J"),
        (1.23456e14, "123,500 s", "123,500 J"),
    ],
)  # fmt: skip
def test_times_and_energies_at_the_edges_of_their_units(value, time, energy):
    # 12.345 is a little above, 12.335 a little above too, as doubles.
    assert (format_time(value), format_energy(value)) == (time, energy)


@pytest.mark.parametrize(
    ("watts", "text"),
    [
        (0, "0 W"), (-0.0, "0 W"), (1e-7, "0.1000 µW"), (1.574e-5, "15.74 µW"), (0.0001, "100.0 µW"), (0.00099996, "1.000 mW"),
        (0.99994, "999.9 mW"), (0.99996, "1.000 W"), (1, "1.000 W"), (-0.5, "-500.0 mW"), (-1, "-1.000 W"),
        (15.327, "15.33 W"), (2000, "2000 W"),
    ],
)  # fmt: skip
def test_power_has_the_largest_unit_of_which_it_is_one(watts, text):
    assert format_power(watts) == text


def test_ticks_become_the_nearest_double():
    # Three ticks of 1/3 ps are a picosecond; 10^17 + 1 of 1 ps are beyond what a double tells apart.
    from fractions import Fraction

    assert Timebase(Fraction(1, 3), (1,)).to_ns(3) == 0.001
    assert Timebase(Fraction(1), (1,)).to_ns(10**17 + 1) == 1e14
    assert common_ticks(Fraction(6), Fraction(4)) == Timebase(Fraction(2), (3, 2))
    assert common_ticks(Fraction(5)) == Timebase(Fraction(5), (1,))


# What one value may be beside another, at the end of its range and beyond.


@pytest.mark.parametrize(
    ("name", "sets", "words"),
    [
        ("trimoe", ["pcie.gbps=64"], None),
        ("trimoe", ["pcie.gbps=64.001"], "range sets pcie.gbps"),
        ("trimoe", ["gpu=null", "pcie.gbps=65"], None),
        ("trimoe", ["link.link_gbps=25"], None),
        ("trimoe", ["link.link_gbps=25.001"], "range sets link.link_gbps"),
        ("trimoe", ["link.lanes=9", "link.link_gbps=28.125"], None),
        ("trimoe", ["link.topology=groups", "link.group_dimms=16"], None),
        ("trimoe", ["link.topology=groups", "link.group_dimms=17"], "range sets link.group_dimms"),
        ("trimoe", ["link.topology=chain", "link.group_dimms=17"], None),
        ("cxl", ["ndp.systolic.load_rows=4"], None),
        ("cxl", ["ndp.systolic.load_rows=5"], "conflict sets ndp.systolic.load_rows"),
        ("cxl", ["ndp.systolic.rows=5", "ndp.systolic.load_rows=5"], None),
        ("cxl", ["cxl=null"], "conflict cxl.yaml cxl"),
        ("cxl", ["ndp.systolic=null"], "missing cxl.yaml ndp"),
        ("cxl", ["ndp.gemv=trimoe_gemv"], "conflict cxl.yaml ndp"),
        ("trimoe", ["dram.mapper=custom"], "missing sets dram.mapper"),
        ("trimoe", ["dram.mapping={order: [column, row, bank, bankgroup, rank]}"], "conflict sets dram.mapping"),
    ],
)  # fmt: skip
def test_values_that_belong_together(name, sets, words):
    if words is None:
        load_hardware(name, sets)
        return
    with refused(words):
        load_hardware(name, sets)


def test_a_unit_that_is_not_there_is_named():
    for name in ("cxl", "edge"):
        with refused(f"missing {name}.yaml ndp.relayout"):
            _ = load_hardware(name).relayout
    trimoe = load_hardware("trimoe")
    assert trimoe.relayout == trimoe.system.ndp.relayout


def test_what_multiplies_has_a_name():
    for name, unit in (("trimoe", "gemv"), ("cxl", "systolic")):
        ndp = load_hardware(name).ndp
        assert ndp.multiplier == (unit, getattr(ndp, unit))


def test_what_depends_on_units_that_are_not_there_is_none():
    memory = load_hardware("trimoe", ["ndp=null"])
    assert (memory.unit_gflops, memory.ndp_area_mm2) == ({"gemv": None, "systolic": None}, None)
    assert not [
        row
        for row in memory.rows()
        if row.key in ("derived.gemv_peak", "derived.systolic_peak", "derived.ndp_area")
    ]
    assert memory.power_changes == {}
    assert load_hardware("trimoe", ["dram.power.IDD0=99", "dram.power.VDD=1.2"]).power_changes == {
        "IDD0": 99,
        "VDD": 1.2,
    }


def test_a_channel_has_as_many_ranks_as_asked_for():
    hardware = load_hardware("trimoe")
    assert (hardware.lane_device().ranks, hardware.bus_device(8).ranks) == (1, 8)
    assert hardware.bus_device(8).timings == hardware.lane_device().timings


def test_an_error_of_a_value_is_told_where_the_value_stands():
    hardware = load_hardware("trimoe", ["dimm.ranks=2"])

    def told(problem: InputError) -> str:
        with pytest.raises(InputError) as caught, hardware.errors_at_origins():
            raise problem
        return str(caught.value)

    line = 1 + next(
        place for place, text in enumerate(Path(hardware.file).read_text().splitlines()) if "ports:" in text
    )
    assert told(InputError("too few", key="link.ports")) == f"{hardware.file}:{line}: link.ports: too few"
    assert told(InputError("too few", key="dimm.ranks")) == "sets: dimm.ranks: too few"
    assert told(InputError("too few", key="tokens")) == "tokens: too few"
    assert told(InputError("too few")) == "too few"
    elsewhere = InputError("too few", key="link.ports", file="other.yaml", line=3)
    assert told(elsewhere) == "other.yaml:3: link.ports: too few"
