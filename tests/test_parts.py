"""Parts that hardware files name: how their values come into a hardware, and what the bundled ones say."""

from __future__ import annotations

import json
import logging
from collections import Counter
from pathlib import Path

import pytest
import yaml

from calls import refused_call, said
from mistakes import mistake, mistake_of, refused
from ndpsim.base.errors import InputError
from ndpsim.config import data_path, hardware_names, load_hardware, load_part, part_names
from ndpsim.config.files import PART_KINDS, PART_SECTIONS
from ndpsim.inference.processors import Processors
from ndpsim.inference.processors.fitted import fitted_values

MACHINE = """\
name: mine
dram: {part: ddr5-4800, org: DDR5_32Gb_x8}
dimm: {subchannels: 2}
"""
CARD = """\
name: card
title: A card
tflops: {value: 100, source: a data sheet}
memory_gb: {value: 24, source: a data sheet}
memory_tbps: 1
pcie_gbps: {value: 32, assumption: as others have}
"""
ALL = [(kind, name) for kind in PART_KINDS for name in part_names(kind)]


@pytest.fixture
def folder(here: Path) -> Path:
    Path("mine.yaml").write_text(MACHINE)
    Path("card.yaml").write_text(CARD)
    return here


def machine(more: str = "", *sets: str):
    Path("mine.yaml").write_text(MACHINE + more)
    return load_hardware("mine.yaml", list(sets))


def problem(more: str = "", *sets: str) -> str:
    with pytest.raises(InputError) as error:
        machine(more, *sets)
    return mistake(error.value)


# A machine and its parts


@pytest.mark.usefixtures("folder")
def test_part_gives_what_the_file_leaves_out_with_its_own_source():
    hardware = machine("gpu: {part: rtx-4090, reserved_gb: 2}\n")
    gpu = hardware.system.gpu
    assert (gpu.tflops, gpu.memory_tbps, gpu.pcie_gbps, gpu.reserved_gb) == (165.2, 1.008, 32, 2)
    origin = hardware.origins["gpu.tflops"]
    assert (origin.kind, Path(origin.file).name) == ("source", "rtx-4090.yaml")
    assert Path(origin.file).read_text().splitlines()[origin.line - 1].startswith("tflops:")
    rows = {row.key: row for row in hardware.rows()}
    assert rows["gpu.part"].value == "rtx-4090"
    assert "Ada architecture whitepaper" in rows["gpu.tflops"].origin


@pytest.mark.usefixtures("folder")
def test_value_of_the_file_wins_over_its_part():
    hardware = machine("gpu: {part: rtx-4090, tflops: {value: 150, source: measured}}\n")
    assert (hardware.system.gpu.tflops, hardware.system.gpu.memory_tbps) == (150, 1.008)
    assert str(hardware.origins["gpu.tflops"]) == "measured"
    assert hardware.system.dram.org == "DDR5_32Gb_x8"
    assert hardware.system.dram.timing == "DDR5_4800B"


@pytest.mark.usefixtures("folder")
def test_null_in_the_file_wins_over_its_part():
    assert machine("host: {part: epyc-9355, cpu_fabric_gbps: null}\n").system.host.cpu_fabric_gbps is None


@pytest.mark.usefixtures("folder")
def test_every_section_takes_its_kind_of_part():
    hardware = machine(
        "host: {part: epyc-9355, memory: {part: ddr5-6000, channels: 12, dimms: 12}}\n"
        "gpu: {part: rtx-5090}\npcie: {part: pcie-5-x16}\n"
    )
    system = hardware.system
    assert (system.host.cpu_cores, system.host.cpu_isa) == (32, "avx512-bf16")
    assert hardware.host_memory.host_gbps == pytest.approx(12 * 6 * 8)
    assert system.pcie.gbps == 63.015
    assert set(PART_SECTIONS) == {"dram", "host", "host.memory", "gpu", "pcie"}


@pytest.mark.usefixtures("folder")
def test_other_name_of_a_part_stands_for_it():
    assert machine("host: {part: 6454s}\n").system.host == machine("host: {part: xeon-gold-6454s}\n").system.host.model_copy(update={"part": "6454s"})  # fmt: skip


@pytest.mark.usefixtures("folder")
def test_number_is_a_name():
    assert machine("gpu: {part: 4090}\n").system.gpu.tflops == 165.2
    assert machine("", "gpu.part=4090", "host.part=6230").system.host.cpu_cores == 20
    assert load_part("4090").name == "rtx-4090"


@pytest.mark.usefixtures("folder")
def test_digest_does_not_depend_on_where_values_stand():
    named = machine("gpu: {part: rtx-4090}\n")
    stated = machine(
        "gpu: {family: ada, tflops: 165.2, memory_gb: 25.769803776, memory_tbps: 1.008, pcie_gbps: 32}\n"
    )
    assert named.digest == stated.digest
    assert "part" not in json.dumps(named.to_dict())


@pytest.mark.parametrize("name", hardware_names())
def test_digest_of_a_bundled_machine_is_that_of_its_values_written_out(name, tmp_path):
    hardware = load_hardware(name)
    written = hardware.system.model_dump()
    assert "part: " in data_path("hwconfigs", name).read_text()
    path = tmp_path / "plain.yaml"
    path.write_text(yaml.safe_dump(written))
    assert load_hardware(path).digest == hardware.digest


# --set


@pytest.mark.usefixtures("folder")
def test_set_part_takes_the_place_of_what_the_file_says(caplog):
    from ndpsim.config import parts

    parts._report_replaced.cache_clear()
    with caplog.at_level(logging.WARNING, "ndpsim"):
        hardware = machine("gpu: {part: rtx-4090, tflops: 150, reserved_gb: 2}\n", "gpu.part=rtx-5090")
    gpu = hardware.system.gpu
    assert (gpu.tflops, gpu.memory_tbps, gpu.pcie_gbps, gpu.reserved_gb) == (209.5, 1.792, 64, 2)
    said = [record.getMessage() for record in caplog.records]
    assert said == ["mine.yaml: gpu.part=rtx-5090 takes the place of gpu.tflops 150"]


@pytest.mark.usefixtures("folder")
def test_what_is_fitted_to_a_processor_or_measured_on_it_goes_with_it():
    text = (
        "gpu: {part: rtx-4090, memory_efficiency: 0.5, expert_times: [h100_mixtral-8x7b], reserved_gb: 2}\n"
    )
    kept, other = machine(text, "gpu.part=4090"), machine(text, "gpu.part=rtx-5090")
    assert (kept.system.gpu.memory_efficiency, kept.system.gpu.expert_times) == (0.5, ["h100_mixtral-8x7b"])
    assert (other.system.gpu.memory_efficiency, other.system.gpu.expert_times) == (None, None)
    assert (Processors(kept).gpu.memory_efficiency, other.system.gpu.reserved_gb) == (0.5, 2)
    assert Processors(other).gpu.memory_efficiency == fitted_values("gpu", "blackwell")["memory_efficiency"]
    assert machine(text, "gpu.part=rtx-5090", "gpu.memory_efficiency=0.6").system.gpu.memory_efficiency == 0.6
    host = load_hardware("trimoe", ["host.part=epyc-9654"]).system.host
    assert (host.cpu_tflops, host.cpu_compute_efficiency, host.cpu_cores) == (None, None, 96)


@pytest.mark.parametrize(
    ("same", "other"),
    [("host.part=threadripper-7960x", "host.part=epyc-9654"), ("gpu.part=4090", "gpu.part=rtx-5090")],
)
def test_power_measured_with_a_cpu_and_a_gpu_holds_for_no_others(same, other, caplog):
    def tables(*sets):
        return load_hardware("cache-7960x-4090", sets).system.host.measured_power

    assert tables(same) == tables() is not None
    assert tables(other) is None
    assert "host.measured_power" in caplog.records[-1].getMessage()
    assert tables(other, "host.measured_power=[mine.csv]") == ["mine.csv"]


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("order", [1, -1])
def test_other_sets_win_over_a_set_part(order):
    sets = ["gpu.tflops=42", "gpu.part=rtx-5090"][::order]
    gpu = machine("gpu: {part: rtx-4090}\n", *sets).system.gpu
    assert (gpu.tflops, gpu.memory_tbps) == (42, 1.792)


@pytest.mark.usefixtures("folder")
def test_values_of_the_old_part_go_with_it(folder):
    Path("card.yaml").write_text(CARD + "reserved_gb: 5\n")
    text = "gpu: {part: card.yaml}\n"
    assert machine(text).system.gpu.reserved_gb == 5
    hardware = machine(text, "gpu.part=rtx-4090")
    assert hardware.system.gpu.reserved_gb == 0
    assert hardware.origins["gpu.reserved_gb"].kind == "default"


@pytest.mark.usefixtures("folder")
def test_set_part_makes_a_section():
    assert machine("", "gpu.part=rtx-4090").system.gpu.tflops == 165.2
    assert machine("gpu: {part: rtx-4090}\n", "gpu=null").system.gpu is None


@pytest.mark.usefixtures("folder")
def test_last_of_several_set_parts_counts():
    assert machine("", "gpu.part=rtx-4090", "gpu.part=rtx-3090").system.gpu.tflops == 71.2


def test_overrides_belong_to_the_timing_of_the_own_memory():
    assert load_hardware("trimoe").dropped == {}
    other = load_hardware("trimoe", ["dram.part=ddr5-5600", "dram.nRP=50", "dram.nRC=140"])
    assert other.dropped["nCL"] == 40
    assert other.lane_device().timings["nCL"] == 40  # of DDR5-5600AN, 14.286 ns
    assert other.lane_device().timings["nRP"] == 50
    assert load_hardware("trimoe", ["dram.part=ddr5-4800"]).dropped == {}


@pytest.mark.usefixtures("folder")
def test_overrides_of_the_part_that_gives_the_timing_stay():
    Path("fast.yaml").write_text(
        "name: fast\ntitle: Fast\nstandard: DDR5\norg: DDR5_16Gb_x8\ntiming: DDR5_6400AN\n"
        "overrides: {nCL: 33}\n"
    )
    text = MACHINE.replace("DDR5_32Gb_x8", "DDR5_32Gb_x8, overrides: {nRP: 30}")
    Path("mine.yaml").write_text(text)
    hardware = load_hardware("mine.yaml", ["dram.part=fast.yaml"])
    assert hardware.system.dram.overrides == {"nCL": 33}
    assert hardware.dropped == {"nRP": 30}


@pytest.mark.usefixtures("folder")
def test_a_part_with_a_timing_that_its_standard_leaves_open_is_shown():
    part = (
        "name: dense\ntitle: Dense\nstandard: GDDR6\norg: GDDR6_16Gb_x16\ntiming: GDDR6_14000_1350mV_double\n"
    )
    Path("dense.yaml").write_text(f"{part}overrides: {{nRFCab: 211, nRFCpb: 106}}\n")
    rows = {row.key: row.value for row in load_part("dense.yaml").rows()}
    assert (rows["dram.overrides.nRFCab"], rows["derived.channel_peak"]) == (211, pytest.approx(28, rel=1e-3))
    Path("dense.yaml").write_text(part)
    with refused("missing nRFCab"):
        load_part("dense.yaml").rows()


# Files of one's own


def test_path_of_a_part_is_relative_to_the_file_or_with_set_to_the_current_folder(folder, monkeypatch):
    machine_folder = folder / "machines"
    machine_folder.mkdir()
    (machine_folder / "m.yaml").write_text(MACHINE + "gpu: {part: ../card.yaml}\n")
    assert load_hardware("machines/m.yaml").system.gpu.tflops == 100
    assert load_hardware("machines/m.yaml", ["gpu.part=card.yaml"]).system.gpu.tflops == 100
    monkeypatch.chdir(machine_folder)
    assert load_hardware("m.yaml").system.gpu.tflops == 100
    with refused("unreadable sets gpu.part"):
        load_hardware("m.yaml", ["gpu.part=card.yaml"])


@pytest.mark.usefixtures("folder")
def test_changed_part_is_read_again():
    import os

    hardware = machine("gpu: {part: card.yaml}\n")
    for name in ("mine.yaml", "card.yaml"):
        os.utime(name, ns=(1, 1))
    assert load_hardware("mine.yaml").system.gpu.tflops == hardware.system.gpu.tflops == 100
    Path("card.yaml").write_text(CARD.replace("100", "200"))
    assert load_hardware("mine.yaml").system.gpu.tflops == 200


@pytest.mark.usefixtures("folder")
def test_tables_that_a_part_names_lie_beside_it():
    from ndpsim.inference.processors import Processors

    table = Path("tables/times.csv")
    table.parent.mkdir()
    Path("tables/card.yaml").write_text(
        CARD + "expert_times: times.csv\ncompute_efficiency: 1\nmemory_efficiency: 1\n"
    )
    Path("mine.yaml").write_text(MACHINE + "gpu: {part: tables/card.yaml}\n")
    with refused("unreadable card.yaml:7 gpu.expert_times"):
        Processors(load_hardware("mine.yaml")).gpu  # noqa: B018


# Mistakes


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("more", "sets", "words"),
    [
        ("gpu: {part: rtx-4909}\n", [], "unknown-name mine.yaml:4 gpu.part ? rtx-4090"),
        ("host: {part: rtx-4090}\n", [], "unknown-name mine.yaml:4 host.part"),
        ("", ["dram.part=ddr5-4801"], "unknown-name sets dram.part ? ddr5-4800"),
        ("", ["pcie.part=pcie-4-x61"], "unknown-name sets pcie.part ? pcie-4-x16"),
        ("gpu: {part: none.yaml}\n", [], "unreadable mine.yaml:4 gpu.part"),
        ("gpu: {part: 4909}\n", [], "unknown-name mine.yaml:4 gpu.part ? 4090"),
        ("gpu: {part: [a10]}\n", [], "type mine.yaml:4 gpu.part"),
        ("", ["gpu.prt=x"], "unknown-key sets gpu.prt ? gpu.part"),
    ],
)
def test_part_that_is_not_there(more, sets, words):
    assert problem(more, *sets) == words


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("tfops: 5", "unknown-key card.yaml:7 tfops ? tflops"),
        ("cpu_cores: 5", "unknown-key card.yaml:7 cpu_cores"),
        ("part: rtx-4090", "unknown-key card.yaml:7 part"),
        ("reserved_gb: many", "range card.yaml:7 gpu.reserved_gb"),
        ("also: five", "type card.yaml:7 also"),
        ("reserved_gb: {value: 5}", "form card.yaml:7 gpu.reserved_gb"),
        ("reserved_gb: [", "form card.yaml:7"),
    ],
)
def test_mistake_in_a_part_is_said_with_its_place(line, words):
    Path("card.yaml").write_text(CARD + line + "\n")
    assert problem("gpu: {part: card.yaml}\n").split()[1:] == words.split()[1:]
    assert mistake_of(load_part, "card.yaml") == words


@pytest.mark.usefixtures("folder")
def test_part_without_a_title_is_refused():
    Path("card.yaml").write_text(CARD.replace("title: A card\n", ""))
    assert problem("gpu: {part: card.yaml}\n") == "missing mine.yaml:4 gpu.part"


# The bundled parts


def test_bundled_parts_load_and_every_value_says_where_it_is_from():
    for kind, name in ALL:
        part = load_part(name)
        assert (part.kind, part.name) == (kind, name)
        assert part.values, name
        for key in part.values:
            origin = part.draft.origin((*part.section, *key.split(".")))
            assert origin.kind in ("source", "assumption"), (name, key)
            assert len(origin.text.split()) >= 3, (name, key)
            if origin.kind == "source":
                assert any(letter.isupper() for letter in origin.text), (name, key)


@pytest.mark.parametrize("kind", PART_KINDS)
def test_bundled_parts_make_a_machine(kind):
    path = next(section for section, of in PART_SECTIONS.items() if of == kind and section != "host.memory")
    needs = ["gpu.part=h200", "gpu.pcie_gbps=1000"] if kind == "links" else []
    base = ["dram.part=ddr5-4800"] if kind != "memories" else []
    for name in part_names(kind):
        section = load_hardware("cxl", [*base, *needs, f"{path}.part={name}"]).system
        for key in path.split("."):
            section = getattr(section, key)
        values = load_part(name).values
        assert {key: getattr(section, key) for key in values} == values, name


def test_names_of_bundled_parts_are_unique():
    names = [name for _, part in ALL for name in (part, *load_part(part).also)]
    assert [name for name, count in Counter(names).items() if count > 1] == []


def test_names_of_bundled_parts_are_whole_numbers_or_words_that_yaml_leaves_alone():
    for _, name in ALL:
        for word in (name, *load_part(name).also):
            assert word == word.lower()
            assert " " not in word
            assert word.isdigit() or isinstance(yaml.safe_load(word), str)


# By hand, from the makers' data sheets.
SHEETS = {
    # NVIDIA A100 80GB SXM: 312 TFLOPS of BF16, 80 GB, 2,039 GB/s, PCIe Gen4 64 GB/s both ways.
    "a100-sxm-80gb": dict(tflops=312, memory_gb=80 * 1.073741824, memory_tbps=2.039, pcie_gbps=64 / 2),
    # NVIDIA L4: 242 TFLOPS of BF16 with sparsity, 24 GB, 300 GB/s, PCIe Gen4 x16.
    "l4": dict(tflops=242 / 2, memory_gb=24 * 1.073741824, memory_tbps=0.3, pcie_gbps=32),
    # NVIDIA GeForce RTX 5090: 512 bits, 28 Gb/s, 32 GB; PCIe Gen5 x16.
    "rtx-5090": dict(memory_gb=32 * 1.073741824, memory_tbps=512 / 8 * 28 / 1000, pcie_gbps=64),
    # AMD EPYC 7763: 64 cores, 2.45 GHz, 8 channels up to 3200 MHz, 204.8 GB/s, 1P/2P.
    "epyc-7763": dict(
        cpu_cores=64, cpu_clock_ghz=2.45, cpu_memory_channels=204.8 / (3.2 * 8), cpu_memory_mtps=3200,
        cpu_isa="avx2", cpu_sockets_most=2,
    ),
    # Intel Xeon Platinum 8480+: 56 cores, 2.00 GHz, 8 channels, DDR5 4800 MT/s 1DPC and 4400 MT/s 2DPC, AMX.
    "xeon-platinum-8480-plus": dict(
        cpu_cores=56, cpu_clock_ghz=2.0, cpu_memory_channels=8, cpu_memory_mtps=4800, cpu_memory_mtps_2dpc=4400,
        cpu_isa="amx",
    ),
    # PCI Express 3.0: 8 GT/s a lane, 128 of 130 bits, 8 bits a byte.
    "pcie-3-x8": dict(gbps=round(8 * 8 / 8 * 128 / 130, 3)),
}  # fmt: skip


@pytest.mark.parametrize("name", SHEETS)
def test_values_of_data_sheets(name):
    values = load_part(name).values
    assert {key: values[key] for key in SHEETS[name]} == {
        key: pytest.approx(value) if isinstance(value, float) else value
        for key, value in SHEETS[name].items()
    }


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        ("epyc-9654", "memory_peak", 460.8),  # AMD: per socket memory bandwidth 460.8 GB/s
        ("core-i9-14900k", "memory_peak", 89.6),  # Intel: max memory bandwidth 89.6 GB/s
        ("xeon-gold-6454s", "memory_peak_2dpc", 8 * 4.4 * 8),
        ("ddr5-5600", "dimm_peak", 44.8),  # PC5-44800
        ("ddr4-3200", "channel_peak", 25.6),  # PC4-25600
        ("ddr4-2400", "channel_peak", 19.2),  # PC4-19200
        ("h100-sxm", "ridge", 989.4 / 3.35),
        ("pcie-4-x16", "net", 31.508 * 256 / 280),
    ],
)
def test_what_follows_from_a_part(name, key, value):
    rows = {row.key: row.value for row in load_part(name).rows()}
    assert rows[f"derived.{key}"] == pytest.approx(value, abs=6e-4)


# Commands


def test_list_parts_has_a_line_for_each():
    lines = said("list", "parts").splitlines()
    first = [line.split()[0] for line in lines]
    assert [name for _, name in ALL if name not in first] == []
    assert {"CPUs", "Memories", "GPUs", "Links"} <= set(lines)
    line = next(line for line in lines if line.startswith("rtx-4090 "))
    assert line.split()[-4:] == ["165.2", "25.77", "1.008", "32"]


def test_show_part_has_every_value_with_unit_and_source():
    shown = json.loads(said("show", "part", "epyc-9355", "--json", "-"))
    assert (shown["kind"], shown["name"], shown["title"]) == ("cpus", "epyc-9355", "AMD EPYC 9355")
    assert shown["values"]["host.cpu_clock_ghz"]["unit"] == "GHz"
    assert shown["values"]["host.cpu_clock_ghz"]["origin"].startswith(
        "AMD product page, EPYC 9355: base clock"
    )
    text = said("show", "part", "epyc-9355")
    assert "AMD EPYC 9355" in text
    assert all(key in text for key in shown["values"])


def test_show_part_that_is_unknown_names_the_nearest():
    assert refused_call("show", "part", "rtx-4909") == "unknown-name show part ? rtx-4090"
