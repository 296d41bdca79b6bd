"""The bundled hardware: what the paper prints, and that the printed figures agree with each other."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import yaml
from jsonschema import Draft202012Validator

from ndpsim.base.errors import InputError
from ndpsim.cli.main import main
from ndpsim.config import (
    Hardware,
    data_path,
    hardware_names,
    json_schema,
    load_hardware,
    rtl_names,
    schema_text,
)
from ndpsim.config.load import missing_of
from ndpsim.dimm.link import PcieLink
from ndpsim.inference.processors import Processors, load_processors
from ndpsim.inference.processors.fitted import fitted_values
from ndpsim.workload.models import load_model

DEFINITIONS = {"gemv": "Gemv", "systolic": "Systolic", "activation": "Activation", "relayout": "Relayout"}
UNITS = {
    "trimoe": ("gemv", "activation", "relayout"),
    "edge": ("gemv", "activation"),
    "cxl": ("systolic", "activation"),
    "cache-7960x-4090": (),
    "dali-7532-3090": (),
    "dgx-attacc": (),
    "aim-cards": (),
}

PRINTED: dict[str, dict[str, object]] = {
    # Table 1 (system configurations) and section 4.1 of the paper.
    "trimoe": {
        "dimm.count": 16,
        "dimm.ranks": 4,
        "host.channels": 8,
        "host.memory_bandwidth_gbps": 307.2,
        "host.memory_tb": 2,
        "host.cpu_tflops": 90.1,
        "gpu.tflops": 819.6,
        "gpu.memory_gb": 80,
        "gpu.memory_tbps": 2.04,
        "gpu.pcie_gbps": 64,
        "link.lanes": 8,
        "link.lane_gbit_s": 25,
        "link.link_gbps": 25,
        "pcie.gbps": 64,
        "dram.overrides.nCCDL": 12,
        "dram.overrides.nCCDS": 8,
        "dram.overrides.nRRDS": 8,
        "dram.overrides.nRRDL": 12,
        "dram.overrides.nFAW": 32,
        "dram.overrides.nRP": 34,
        "dram.overrides.nBL": 8,
        "dram.overrides.nCL": 40,
        "dram.overrides.nWR": 72,
        "ndp.published.gflops": 256,
        "ndp.published.bandwidth_gbps": 153.6,
        "ndp.published.area_mm2": 1.13,
        "ndp.gemv.multipliers": 256,
        "ndp.gemv.values_per_multiplier": 8,
        "ndp.gemv.native_bits": 16,
        "ndp.gemv.buffer_kib": 256,
        "ndp.activation.units": 256,
        "ndp.relayout.concurrent_experts": 4,
    },
    # Table I and section IV-A of the paper.
    "edge": {
        "dram.standard": "DDR4",
        "dimm.count": 6,
        "dimm.ranks": 4,
        "host.memory_bandwidth_gbps": 89.6,
        "host.memory_tb": 192 / 1024,
        "gpu.memory_gb": 16 * 2**30 / 10**9,
        "ndp.published.bandwidth_gbps": 102.4,
        "ndp.gemv.multipliers": 64,
    },
    # Table 2 of the paper.
    "cxl": {
        "dimm.count": 1,
        "gpu.tflops": 989.4,
        "gpu.memory_gb": 80 * 2**30 / 10**9,
        "ndp.published.bandwidth_gbps": 512,
        "ndp.published.memory_gb": 512,
        "ndp.systolic.arrays": 64,
        "ndp.systolic.rows": 4,
        "ndp.systolic.columns": 4,
        "ndp.systolic.clock_mhz": 1000,
    },
    # Tables I and III, sections III-C and IV-A of the paper; rows of the tables are in `test_processors`.
    "cache-7960x-4090": {
        "host.cpu_cores": 24,
        "host.cpu_threads": 24,
        "host.cpu_expert_times": "cache_cpu_mixtral-8x7b, cache_cpu_phi-3.5-moe",
        "host.measured_power": "cache_mixtral-8x7b, cache_phi-3.5-moe",
        "gpu.memory_gb": 24 * 2**30 / 10**9,
        "gpu.pcie_gbps": 64 / 2,
        "gpu.expert_times": "cache_gpu_mixtral-8x7b, cache_gpu_phi-3.5-moe",
        "pcie.copy_engines": 1,
    },
    # Table 1 and section 6.1 of the paper.
    "dali-7532-3090": {
        "dram.standard": "DDR4",
        "host.memory_tb": 256 / 1024,
        "host.cpu_cores": 16,
        "host.cpu_threads": 32,
        "gpu.memory_gb": 24 * 2**30 / 10**9,
        "gpu.memory_tbps": 0.936,
        "gpu.pcie_gbps": 32,
    },
    # src/config.py of attacc_simulator.
    "dgx-attacc": {
        "gpu.memory_tbps": 3.352,
        "banks.device": "attacc",
        "banks.count": 5,
        "banks.link_gbps": 600 / 2,
    },
    # aim_simulator's GDDR6_AiM.
    "aim-cards": {"dimm.subchannels": 32, "banks.device": "aim"},
}
UNSOURCED = {"name", "title", "paper"}
#: Endings of keys of units inside a DIMM whose values no paper gives.
UNPUBLISHED = ("product_pj", "pj_per_byte", "pj_per_bit", "value_pj", "static_mw", "area_mm2")
PLACES = {
    "trimoe": ("Table 1", "Section "),
    "edge": ("Table I,", "Section "),
    "cxl": ("Table 2, ",),
    "cache-7960x-4090": ("Table I:", "Table III", "Table IV", "Section "),
    "dali-7532-3090": ("Table 1, ", "Section 6.1, "),
    "dgx-attacc": ("attacc_simulator ", "NVIDIA, DGX A100 "),
    "aim-cards": ("aim_simulator ", "CENT, ", "AiM, "),
}

HARDWARE = {name: load_hardware(name) for name in PRINTED}


@pytest.mark.parametrize(
    ("name", "key"), [(name, key) for name, printed in PRINTED.items() for key in printed]
)
def test_printed_numbers_are_there_with_their_place(name: str, key: str) -> None:
    hardware = HARDWARE[name]
    assert {row.key: row.value for row in hardware.rows()}[key] == PRINTED[name][key]
    assert hardware.origins[key].kind == "source"
    assert hardware.origins[key].text.startswith(PLACES[name])


@pytest.mark.parametrize("name", PRINTED)
def test_every_value_has_a_source_an_assumption_or_the_reason_of_its_default(name: str) -> None:
    origins = {key: one for key, one in HARDWARE[name].origins.items() if key not in UNSOURCED}
    assert {origin.kind for origin in origins.values()} <= {"source", "assumption", "default"}
    assert all(len(origin.text.split()) > 1 for origin in origins.values())
    assert all(len(one.text.split()) > 3 for one in origins.values() if one.kind == "assumption")
    units = {key: one for key, one in origins.items() if key.startswith("ndp.") and "published" not in key}
    given = {key for key, one in units.items() if one.kind == "source"}
    assert [key for key in given if key.endswith(UNPUBLISHED)] == []


def test_printed_figures_of_trimoe_agree_with_what_the_parts_make() -> None:
    hardware = HARDWARE["trimoe"]
    system = hardware.system
    assert hardware.unit_gflops["gemv"] == system.ndp.published.gflops
    assert hardware.dimm_peak_gbps == system.ndp.published.bandwidth_gbps
    assert hardware.dimm_bytes == 128 * 2**30  # "128GB/DIMM"
    assert system.dimm.count * hardware.dimm_bytes == system.host.memory_tb * 2**40
    assert system.host.channels * hardware.dimm_host_gbps == pytest.approx(system.host.memory_bandwidth_gbps)
    assert system.link.lanes * system.link.lane_gbit_s / 8 == system.link.link_gbps
    # "8x host bandwidth" (section 4.1)
    assert system.dimm.count * hardware.dimm_peak_gbps == pytest.approx(8 * system.host.memory_bandwidth_gbps)
    # "128-bit multiplier" (section 4.1)
    assert system.ndp.gemv.values_per_multiplier * system.ndp.gemv.native_bits == 128
    products = system.ndp.gemv.multipliers * system.ndp.gemv.values_per_multiplier
    assert 2**system.ndp.gemv.adder_tree_cycles == products


def test_printed_figures_of_edge_agree_with_what_the_parts_make() -> None:
    hardware = HARDWARE["edge"]
    system = hardware.system
    assert hardware.dimm_peak_gbps == system.ndp.published.bandwidth_gbps
    assert hardware.dimm_bytes == 32 * 2**30  # "32GB"
    assert system.dimm.count * hardware.dimm_bytes == system.host.memory_tb * 2**40
    # 89.6 GB/s are DDR5-5600, 8 bytes a transfer, on each of two channels.
    assert hardware.host_memory.host_gbps == pytest.approx(system.host.memory_bandwidth_gbps)
    assert hardware.host_memory.host_gbps == pytest.approx(2 * 5.6 * 8)
    assert hardware.host_memory.capacity_bytes == 4 * 32 * 2**30
    # "Tensor Cores 336", "2.30 GHz"; 128 operations a clock.
    assert system.gpu.tflops == pytest.approx(336 * 2.30 * 128 / 1000, abs=0.05)
    # A product a clock from each of 64 multipliers at 1 GHz; a 16-bit weight is a product and a sum.
    assert hardware.unit_gflops["gemv"] == 2 * system.ndp.gemv.multipliers
    assert hardware.unit_gflops["gemv"] > hardware.dimm_peak_gbps
    assert 2**system.ndp.gemv.adder_tree_cycles == system.ndp.gemv.multipliers


def test_printed_figures_of_cxl_agree_with_what_the_parts_make() -> None:
    hardware = HARDWARE["cxl"]
    system = hardware.system
    assert hardware.dimm_peak_gbps == system.ndp.published.bandwidth_gbps
    assert hardware.dimm_bytes == system.ndp.published.memory_gb * 2**30
    assert hardware.unit_gflops["systolic"] == 64 * 16 * 2 * 1.0  # 64 x (4x4), a product and a sum, 1 GHz
    assert hardware.unit_gflops["gemv"] is None
    # Weights of 16 bits entering the columns of every array take what the memory gives.
    unit = system.ndp.systolic
    assert unit.arrays * unit.columns * 2 * unit.clock_mhz / 1000 == hardware.dimm_peak_gbps
    # PCIe Gen4 x16: 16 lanes of 16 GT/s, 128 of 130 bits.
    assert system.cxl.gbps == pytest.approx(16 * 16 / 8 * 128 / 130, abs=0.0005)
    assert hardware.dimm_host_gbps == system.cxl.gbps
    # A 68-byte flit has four slots: a header and four slots of data.
    assert system.cxl.packet_bytes + system.cxl.header_bytes == 5 * 68 // 4


def test_printed_figures_of_cache_7960x_4090_agree_with_what_the_parts_make() -> None:
    hardware = HARDWARE["cache-7960x-4090"]
    system, mixtral, phi = hardware.system, load_model("mixtral-8x7b"), load_model("phi-3.5-moe")
    assert system.dimm.count * hardware.dimm_bytes == system.host.memory_tb * 2**40
    assert system.host.channels * hardware.dimm_host_gbps == system.host.memory_bandwidth_gbps
    pcie = PcieLink(
        *(
            getattr(system.pcie, key)
            for key in ("gbps", "latency_ns", "packet_bytes", "header_bytes", "copy_engines")
        )
    )

    def copy_ms(size: int) -> float:
        return float(pcie.arrivals(np.zeros(1, dtype=np.int64), np.array([size]))[0] / 1e9)

    # Table III, Comm. time: 28.02 ms and 12.26 ms of two experts on the GPU; 0.11 ms on the CPU, there and back.
    assert copy_ms(mixtral.expert.weight_bytes(16)) == pytest.approx(28.02 / 2, rel=1e-9)
    assert copy_ms(phi.expert.weight_bytes(16)) == pytest.approx(6.285, abs=5e-4)  # 12.26 / 2 are 6.13
    assert round(2 * copy_ms(2 * mixtral.hidden), 2) == 0.11
    # "around 56 expert slots can be accommodated for the Mixtral 8x7B model" (section III-B)
    processors = Processors(hardware)
    assert processors.gpu_memory(mixtral, 1, 512).experts == 56
    # Table III: two experts of Mixtral in 7.34 ms, with 24 threads.
    assert (
        round(2 * mixtral.expert.weight_bytes(16) / 7.34e6)
        == system.host.cpu_read_gbps
        == processors.cpu.read_gbps
    )
    # 24 cores of 4.2 GHz with 64 products of BF16 a clock, a product being two operations.
    assert processors.cpu.peak_tflops == pytest.approx(24 * 4.2 * 64 * 2 / 1000)
    assert processors.cpu.compute_efficiency == fitted_values("cpu", "avx512-bf16")["compute_efficiency"]
    # Eight kernels of 20 us, and 84 MB of attention's weights at 0.909 of 1.008 TB/s, are in attention and router.
    dense = processors.dense_time(mixtral, 1, 512)
    assert dense.attention_ns + dense.router_ns == pytest.approx(8 * 20e3 + 84e6 / (0.909 * 1008), rel=0.05)


def test_printed_figures_of_dali_7532_3090_agree_with_what_the_parts_make() -> None:
    hardware = HARDWARE["dali-7532-3090"]
    system = hardware.system
    assert system.dimm.count * hardware.dimm_bytes == system.host.memory_tb * 2**40
    assert system.host.channels * hardware.dimm_host_gbps == system.host.memory_bandwidth_gbps == 204.8
    # 16 cores of 2.4 GHz with two units of eight products of FP32. What EPYC 7002 reads of its channels in tests of
    # memory is less than the fabric of eight chiplets carries, 375.6 GB/s; of that, programs of experts reach a share,
    # 0.7362 of 0.6486 when the claims were run.
    cpu = Processors(hardware).cpu
    assert cpu.peak_tflops == pytest.approx(16 * 2.4 * 2 * 8 * 2 / 1000)
    assert cpu.compute_efficiency == fitted_values("cpu", "avx2")["compute_efficiency"]
    assert fitted_values("cpu", "zen2")["read_share"] == 0.6486
    assert cpu.read_gbps == pytest.approx(round(0.6486 * 0.7362, 4) * 204.8)
    net = system.pcie.gbps * system.pcie.packet_bytes / (system.pcie.packet_bytes + system.pcie.header_bytes)
    assert net == pytest.approx(25, rel=1e-4)


def test_experts_that_the_papers_have_on_the_gpu_fit_there() -> None:
    # Edge, section IV-D: Mixtral-8x7B is limited to one expert a layer; TopK of the others. 512 in, 512 out.
    for name, of_layer in (
        ("mixtral-8x7b", 1),
        ("phi-3.5-moe", 2),
        ("qwen3-30b-a3b", 8),
        ("deepseek-moe-16b", 6),
    ):
        model = load_model(name)
        held = Processors(HARDWARE["edge"]).gpu_memory(model, 1, 1024)
        assert held.experts // model.moe_layers >= of_layer
        assert name != "mixtral-8x7b" or held.experts // model.moe_layers == 1
    # CXL, section 5.2: four of Mixtral-8x7B, two of Mixtral-8x22B.
    for name, of_layer in (("mixtral-8x7b", 4), ("mixtral-8x22b", 2)):
        model = load_model(name)
        assert Processors(HARDWARE["cxl"]).gpu_memory(model, 1, 512).experts >= of_layer * model.moe_layers


def test_parameters_of_table_1_of_the_cxl_paper_are_those_of_three_matrices() -> None:
    for layers, hidden, intermediate, billions in ((32, 4096, 14336, 45.1), (56, 6144, 16384, 135.5)):
        assert abs(layers * 8 * 3 * hidden * intermediate / 1e9 - billions) < 0.3


def test_weights_of_edge_are_16_bits() -> None:
    # "the expert weights activated per layer are 672 MB in Mixtral-8x7B", 2 experts of 3 matrices (section II-B)
    assert 2 * 3 * 4096 * 14336 * HARDWARE["edge"].system.ndp.gemv.native_bits == 672 * 2**20 * 8


def test_lane_of_trimoe_is_the_devices_of_table_1() -> None:
    device = HARDWARE["trimoe"].lane_device()
    assert (device.ranks, device.bankgroups, device.banks_per_group) == (1, 8, 4)
    assert device.timings["rate"] == 4800
    assert device.devices_per_rank == 4
    # 410 ns of JESD79-5 for 32 Gb, in clocks of 416 ps.
    assert device.timings["nRFC"] == -(-410_000 // 416)


def test_lane_of_edge_is_a_rank_of_ddr4_3200() -> None:
    device = HARDWARE["edge"].lane_device()
    assert device.timings["rate"] == 3200
    assert device.devices_per_rank == 8
    # DDR4 has 4 bank groups where Table I says 8; 4 banks in each.
    assert (device.ranks, device.bankgroups, device.banks_per_group) == (1, 4, 4)
    # Reads that rotate over these groups fill the bus.
    assert device.timings["nCCDS"] == device.timings["nBL"]
    assert device.bankgroups * device.timings["nBL"] >= device.timings["nCCDL"]


@pytest.mark.parametrize(
    "hardware",
    [one for one in HARDWARE.values() if one.system.ndp],
    ids=[name for name in UNITS if UNITS[name]],
)
def test_fifo_covers_the_reads_in_flight(hardware: Hardware) -> None:
    timings = hardware.lane_device().timings
    in_flight = (timings["nCL"] + timings["nBL"]) / timings["nBL"]
    unit = hardware.system.ndp.gemv or hardware.system.ndp.systolic
    assert unit.fifo_bursts > 2 * in_flight


def test_every_bundled_file_loads() -> None:
    assert set(HARDWARE) == set(hardware_names())
    assert {f"{name}_{unit}" for name in HARDWARE for unit in UNITS[name]} == set(rtl_names())
    for name in hardware_names():
        assert load_hardware(name).system.name == name


# schema.json


def accepted(content: object, definition: str | None = None) -> bool:
    schema = json_schema()
    if definition is not None:
        schema |= {
            "$ref": f"#/$defs/{definition}",
            "properties": {},
            "required": [],
            "additionalProperties": True,
        }
    return Draft202012Validator(schema).is_valid(content)


def test_schema_is_a_schema() -> None:
    Draft202012Validator.check_schema(json_schema())


def test_committed_schema_is_current() -> None:
    path = data_path("hwconfigs", "trimoe").with_name("schema.json")
    command = "ndpsim.config.schema_text() says what it must hold"
    assert path.read_text() == schema_text(), command
    assert json.loads(schema_text()) == json_schema()


def test_schema_takes_the_bundled_files() -> None:
    for name in hardware_names():
        assert accepted(yaml.safe_load(data_path("hwconfigs", name).read_text()))
    for name in rtl_names():
        definition = DEFINITIONS[name.partition("_")[2]]
        content = yaml.safe_load(data_path("rtl_params", name).read_text())
        assert accepted(content, definition)
        assert not accepted({**content, "clock_mhz": "fast"}, definition)


def test_schema_takes_a_plain_memory() -> None:
    dram = {"standard": "DDR4", "org": "DDR4_8Gb_x8", "timing": "DDR4_3200AA"}
    order = ["column:2", "rank", "bankgroup", "bank", "column", "row"]
    xor = {"bankgroup:1": ["row:0-1"], "bank": {"value": ["row:3"], "source": "s"}}
    assert accepted({"name": "a", "dram": dram})
    assert accepted({"name": "a", "dram": dram, "ndp": None})
    for mapping in ({"order": order}, {"order": {"value": order, "source": "s"}, "xor": xor}):
        assert accepted({"name": "a", "dram": {**dram, "mapper": "custom", "mapping": mapping}})
    assert not accepted({"dram": dram})
    assert not accepted({"name": "a"})
    for mapping in ({"order": "row"}, {"order": ["rowe"]}, {"xor": xor}):
        assert not accepted({"name": "a", "dram": {**dram, "mapper": "custom", "mapping": mapping}})
    for xor in ({"bnk": ["row:1"]}, {"bank": ["row"]}, {"bank": "row:1"}):
        assert not accepted({"name": "a", "dram": {**dram, "mapping": {"order": order, "xor": xor}}})


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("dimm", "ranks"), 17),
        (("dimm", "ranks"), "4"),
        (("dimm", "ranks"), {"value": 17, "source": "s"}),
        (("dimm", "ranks"), {"value": 4}),
        (("dimm", "ranks"), {"value": 4, "source": "s", "assumption": "a"}),
        (("dimm", "rank"), 4),
        (("dram", "overrides", "nCL"), 0),
        (("ndp", "gemv"), {"multipliers": 256}),
        (("ndp", "gemv"), None),
        (("ndp", "systolic"), "cxl_systolic"),
        (("gpu", "tflops"), 0),
        (("dram", "refresh"), "same"),
    ],
)
def test_schema_refuses_what_the_loader_refuses(path: tuple[str, ...], value: object) -> None:
    content = yaml.safe_load(data_path("hwconfigs", "trimoe").read_text())
    here = content
    for key in path[:-1]:
        here = here[key]
    here[path[-1]] = value
    assert not accepted(content)


def test_editor_finds_the_schema() -> None:
    for name in hardware_names():
        first = data_path("hwconfigs", name).read_text().splitlines()[0]
        assert first == "# yaml-language-server: $schema=schema.json"


OWN_PC = Path(__file__).parents[1] / "examples/hardware/own_pc.yaml"


def test_all_that_a_file_lacks_for_a_command_is_named_at_once(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("name: mine\ndram: {standard: DDR5}\ngpu: {tflops: 80}\n")
    required = {"dram.org", "dram.timing", "gpu.memory_gb", "gpu.memory_tbps", "gpu.family", "pcie.gbps"}
    for_policies = {"host.cpu_cores", "host.cpu_clock_ghz", "host.cpu_isa", "ndp.gemv", "ndp.activation"}
    missing = {one.key: one for one in missing_of(str(path), (), "moe")}
    assert required | for_policies <= set(missing)
    assert "gpu.tflops" not in missing
    assert {key for key, one in missing.items() if one.needed_by != "moe"} == for_policies
    assert all(one.example and one.look_up and one.allowed for one in missing.values())
    assert (missing["gpu.memory_tbps"].unit, missing["gpu.memory_tbps"].example[:5]) == ("TB/s", "1.008")
    with pytest.raises(InputError) as caught:
        load_hardware(path, command="moe")
    assert (caught.value.code, caught.value.line, caught.value.key) == ("missing", 2, "dram.org")
    assert all(key in str(caught.value) for key in required)
    assert {one.key for one in missing_of(str(path), (), "dram")} == {
        "dram.org",
        "dram.timing",
        "gpu.memory_gb",
        "gpu.memory_tbps",
        "gpu.pcie_gbps",
    }
    path.write_text("name: mine\ndram: {standard: DDR5}\ngpu: {tflopz: 80}\n")
    with pytest.raises(InputError) as caught:
        load_hardware(path, command="moe")
    assert (caught.value.code, caught.value.key) == ("unknown-key", "gpu.tflopz")


def test_the_example_of_a_machine_of_ones_own_lacks_nothing():
    assert all(missing_of(str(OWN_PC), (), command) == [] for command in ("moe", "gemv", "dram"))
    processors = load_processors(OWN_PC)
    assert processors.has_cpu
    assert processors.gpu.memory_bytes > 20 * 10**9


def test_show_hw_for_a_command_ends_with_1_where_it_cannot_run(capsys):
    def status(*more: str) -> int:
        with pytest.raises(SystemExit) as ended:
            main(["show", "hw", str(OWN_PC), *more])
        return int(ended.value.code or 0)

    assert status("--for", "moe", "--set", "gpu=null", "--json", "-") == 1
    keys = [one["key"] for one in json.loads(capsys.readouterr().out)["missing"]]
    assert {"gpu.tflops", "gpu.memory_gb"} <= set(keys)
    assert status("--for", "moe", "--set", "ndp=null") == 0  # GPU and CPU still run
    assert "ndp.gemv" in capsys.readouterr().out
    assert status("--for", "moe") == 0
    assert "gpu.tflops" in capsys.readouterr().out
    assert all(one != "pcie.gbps" for one in (each.key for each in missing_of("cxl", (), "moe")))
    assert status("--for", "fry") == 2
