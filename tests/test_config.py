"""Reading hardware files: merging, origins, `--set`, and one-line errors for all mistakes."""

from __future__ import annotations

import json
import logging
import os
import pickle
import string
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from calls import GIVEN
from mistakes import mistake_of, refused
from ndpsim.base.errors import InputError
from ndpsim.config import Origin, data_path, files, load_hardware
from ndpsim.config.keys import section_of
from ndpsim.config.nodes import parse
from ndpsim.config.origins import ANNOTATION, default_reason
from ndpsim.config.system import System
from ndpsim.dram.mapping import parse_mapping

GOOD, UNIT = ((GIVEN / name).read_text() for name in ("hw.yaml", "unit.yaml"))

Write = Callable[..., str]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes a hardware file from GOOD with replacements, beside its unit; returns its path."""

    def written(*swaps: tuple[str, str], unit: str = UNIT) -> str:
        text = GOOD
        for old, new in swaps:
            assert text.count(old) == 1, old
            text = text.replace(old, new)
        (tmp_path / "unit.yaml").write_text(unit)
        path = tmp_path / "hw.yaml"
        path.write_text(text)
        return str(path)

    return written


# Good files


def test_values_come_from_the_file_and_the_units_it_names(write: Write) -> None:
    hardware = load_hardware(write())
    assert hardware.system.dimm.ranks == 4
    assert hardware.system.ndp.gemv.clock_mhz == 933.333
    assert hardware.system.ndp.activation.units == 256
    assert hardware.system.dram.read_buffer == 32
    assert hardware.system.ndp.published.gflops is None


def test_origins_name_file_line_and_kind(write: Write) -> None:
    path = write()
    origins = load_hardware(path, ["dimm.count=3"]).origins
    unit = str(Path(path).with_name("unit.yaml"))
    assert origins["dimm.ranks"] == Origin(path, 12, "Table 1", "source")
    assert origins["dimm.subchannels"] == Origin(path, 13, "two a DIMM", "assumption")
    assert origins["host.channels"] == Origin(path, 15, "", "stated")
    assert origins["ndp.gemv.buffer_kib"] == Origin(unit, 7, "data sheet", "source")
    assert origins["dimm.count"] == Origin("sets", None, "--set dimm.count=3", "set")
    assert origins["dram.read_buffer"].kind == "default"
    assert origins["ndp.activation.units"].file == str(data_path("rtl_params", "trimoe_activation"))


def test_every_key_that_may_be_left_out_says_why_its_default_is_what_it_is() -> None:
    def optional(section: type, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
        for key, field in section.model_fields.items():
            inner = section_of(field)
            if inner is not None:
                yield from optional(inner, (*path, key))
            elif not field.is_required():
                yield (*path, key)

    leaves = [path for path in optional(System) if path[-1] not in ("overrides", "xor")]  # mappings: no leaf
    assert len(leaves) > 50
    for path in leaves:
        assert len(default_reason(path).split()) > 1, path
    with pytest.raises(KeyError, match="dram.timing"):
        default_reason(("dram", "timing"))


def test_every_leaf_has_an_origin_and_a_row(write: Write) -> None:
    hardware = load_hardware(write())
    rows = hardware.rows()
    assert {row.key for row in rows if not row.key.startswith(("derived.", "timings."))} == set(
        hardware.origins
    )
    assert all(row.origin for row in rows)
    named = {row.key: row for row in rows}
    assert named["dimm.ranks"] == ("dimm.ranks", 4, "", "Table 1")
    assert named["dimm.subchannels"].origin == "assumption: two a DIMM"
    assert named["ndp.gemv.clock_mhz"].unit == "MHz"
    assert named["ndp.published.area_mm2"].unit == "mm2"
    assert named["dram.read_buffer"].origin.startswith("default, as the controller of Ramulator 2.1")
    assert named["timings.nCL"][1:] == (40, "clocks = 16.6667 ns", named["dram.overrides.nCL"].origin)
    assert named["timings.nRCD"].origin == "preset DDR5_4800AN"


def test_derived_quantities(write: Write) -> None:
    hardware = load_hardware(write())
    assert hardware.lanes == 8
    # 4800 MT/s on 32 bits; 16 Gb x 4 devices a lane.
    assert hardware.lane_peak_gbps == 19.2
    assert (hardware.dimm_peak_gbps, hardware.dimm_host_gbps) == (153.6, 38.4)
    assert hardware.dimm_bytes == 8 * 4 * 16 * 2**30 // 8
    assert hardware.unit_gflops["gemv"] == pytest.approx(128 * 8 / 16 * 2 * 0.933333)
    assert hardware.lane_device().ranks == 1


def test_to_dict_is_json_and_says_nothing_of_files(write: Write) -> None:
    hardware = load_hardware(write(), ["dram.nRP=30"])
    text = json.dumps(hardware.to_dict(), allow_nan=False)
    assert str(Path(hardware.file).parent) not in text
    assert json.loads(text)["timings"]["nRP"] == 30
    assert load_hardware(write(("nCL: 40", "nCL: 40\n    nRP: 30"))).to_dict() == hardware.to_dict()
    assert load_hardware(write(), ["dram.nRP=31"]).to_dict() != hardware.to_dict()


def test_hardware_travels_between_processes(write: Write) -> None:
    hardware = load_hardware(write())
    assert pickle.loads(pickle.dumps(hardware)) == hardware


def test_values_are_frozen(write: Write) -> None:
    with pytest.raises(ValidationError):
        load_hardware(write()).system.dimm.ranks = 2


def test_unit_written_in_place(write: Write) -> None:
    inline = "{units: 1, cycles_per_value: 2, latency_cycles: 0, clock_mhz: 1}"
    hardware = load_hardware(write(("trimoe_activation", inline)))
    assert hardware.system.ndp.activation.cycles_per_value == 2


def test_numbers_as_yaml_1_2_writes_them(write: Write) -> None:
    assert load_hardware(write(("memory_gb: 80", "memory_gb: 8e1"))).system.gpu.memory_gb == 80
    assert load_hardware(write(("count: 2", "count: 010"))).system.dimm.count == 10


def test_byte_order_mark_and_aliases_are_fine(write: Write) -> None:
    path = write(("count: 2", "count: &two 2"), ("channels: 1", "channels: *two"))
    Path(path).write_text("\ufeff" + Path(path).read_text())
    hardware = load_hardware(path)
    assert hardware.system.host.channels == 2
    assert hardware.origins["host.channels"].line == 15


def test_alias_shares_no_state_with_its_anchor(write: Write) -> None:
    inline = "{clock_mhz: 1, buffer_kib: 1, concurrent_experts: 1}"
    path = write(("nCL: 40", "nCL: &x 40\n    nRP: *x"), ("relayout: trimoe_relayout", f"relayout: {inline}"))
    overrides = load_hardware(path, ["dram.nRP=30"]).system.dram.overrides
    assert (overrides["nCL"], overrides["nRP"]) == (40, 30)


def test_path_and_name_find_the_same_hardware() -> None:
    by_name, by_path = load_hardware("trimoe"), load_hardware(str(data_path("hwconfigs", "trimoe")))
    assert by_name == by_path


def test_files_in_the_wheel_come_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "ndpsim"
    for folder in (package / "_data" / "hwconfigs", tmp_path / "hwconfigs", tmp_path / "rtl_params"):
        folder.mkdir(parents=True)
    (package / "_data" / "hwconfigs" / "wheel.yaml").touch()
    (tmp_path / "hwconfigs" / "checkout.yaml").touch()
    (tmp_path / "rtl_params" / "unit.yaml").touch()
    monkeypatch.setattr(files, "_PACKAGE", package)
    assert files.hardware_names() == ["wheel"]
    assert files.rtl_names() == ["unit"]
    assert files.data_path("hwconfigs", "wheel") == package / "_data" / "hwconfigs" / "wheel.yaml"


def test_no_key_of_a_section_looks_like_an_annotation() -> None:
    def keys(model: type[BaseModel]) -> set[str]:
        inner = [section_of(field) for field in model.model_fields.values()]
        return set(model.model_fields).union(*(keys(section) for section in inner if section is not None))

    assert keys(System).isdisjoint(ANNOTATION)
    assert {"fifo_bursts", "overrides"} <= keys(System)


# --set


@pytest.mark.parametrize(
    ("option", "key", "value"),
    [
        ("dimm.ranks=2", "dimm.ranks", 2),
        ("dimm.ranks = 2", "dimm.ranks", 2),
        ("dram.overrides.nCL=38", "dram.overrides.nCL", 38),
        ("dram.nCL=38", "dram.overrides.nCL", 38),
        ("dram.nRFC=700", "timings.nRFC", 700),
        ("dram.refresh=none", "dram.refresh", "none"),
        ("ndp.gemv.fifo_bursts=2", "ndp.gemv.fifo_bursts", 2),
        ("ndp.gemv.clock_mhz=1.5e3", "ndp.gemv.clock_mhz", 1500),
        ("ndp.published.gflops=3", "ndp.published.gflops", 3),
        ("dimm={count: 1, ranks: 1, subchannels: 1}", "dimm.count", 1),
        ("title='a=b'", "title", "a=b"),
    ],
)
def test_set(write: Write, option: str, key: str, value: object) -> None:
    values = {row.key: row.value for row in load_hardware(write(), [option]).rows()}
    assert values[key] == value


def test_later_set_wins(write: Write) -> None:
    assert load_hardware(write(), ["dimm.ranks=2", "dimm.ranks=1"]).system.dimm.ranks == 1


def test_set_replaces_a_whole_mapping(write: Write) -> None:
    assert load_hardware(write(), ["dram.overrides={nRP: 30}"]).system.dram.overrides == {"nRP": 30}


def test_unit_is_chosen_before_its_keys_are_set(write: Write) -> None:
    hardware = load_hardware(write(), ["ndp.gemv.fifo_bursts=2", "ndp.gemv=trimoe_gemv"])
    assert (hardware.system.ndp.gemv.multipliers, hardware.system.ndp.gemv.fifo_bursts) == (256, 2)


def test_unit_path_in_set_starts_at_the_current_folder(write, tmp_path, monkeypatch):
    path = write()
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "unit.yaml").write_text(UNIT.replace("fifo_bursts: 8", "fifo_bursts: 9"))
    monkeypatch.chdir(tmp_path / "here")
    assert load_hardware(path).system.ndp.gemv.fifo_bursts == 8
    assert load_hardware(path, ["ndp.gemv=unit.yaml"]).system.ndp.gemv.fifo_bursts == 9


def test_set_of_undecodable_bytes(write: Write) -> None:
    text = mistake_of(lambda: load_hardware(write(), ["title=\udcff"]))
    assert text == "form sets title"


def test_set_that_is_no_yaml(write: Write) -> None:
    assert mistake_of(load_hardware, write(), ["dimm.ranks=[2"]) == "form sets dimm.ranks"


def test_dimms_that_share_channels_unevenly_count_as_on_the_fullest(caplog: pytest.LogCaptureFixture) -> None:
    rates = ["host.cpu_memory_mtps=4800", "host.cpu_memory_mtps_2dpc=4300"]
    with caplog.at_level(logging.WARNING, "ndpsim"):
        load_hardware("trimoe", ["dimm.count=12", *rates])  # on eight channels
    assert "has 4800 MT/s with 2 DIMMs a channel" in caplog.text


# Bad values in a file


def test_unit_file_reports_its_own_lines(write: Write) -> None:
    path = write(unit=UNIT.replace("fifo_bursts: 8", "fifo_burst: 8"))
    text = mistake_of(load_hardware, path)
    assert text == "unknown-key unit.yaml:9 ndp.gemv.fifo_burst ? fifo_bursts"


def test_clock_of_more_than_three_decimals(write: Write) -> None:
    path = write(unit=UNIT.replace("933.333", "933.3333"))
    assert mistake_of(load_hardware, path) == "invalid unit.yaml:6 ndp.gemv.clock_mhz"


def test_missing_unit_file_is_told_where_it_is_named(write: Write, tmp_path: Path) -> None:
    path = write(("unit.yaml", "other/unit.yaml"))
    with refused("unreadable hw.yaml:34 ndp.gemv") as caught:
        load_hardware(path)
    assert str(tmp_path / "other" / "unit.yaml") in caught.value.problem


# A memory without anything around it


CUSTOM = "  mapper: custom\n"
PLAIN, _, _MAPPING = (GIVEN / "mapping.yaml").read_text().partition(CUSTOM)
CUSTOM += _MAPPING


@pytest.fixture
def plain_file(tmp_path: Path) -> Callable[[str], str]:
    """Writes PLAIN with further lines under dram; returns its path."""

    def written(more: str = "") -> str:
        path = tmp_path / "plain.yaml"
        path.write_text(PLAIN + more)
        return str(path)

    return written


def test_a_name_and_a_dram_make_a_hardware_file(plain_file: Callable[[str], str]) -> None:
    hardware = load_hardware(plain_file(""))
    system = hardware.system
    assert (system.title, system.paper, system.gpu, system.link, system.ndp) == (None,) * 5
    assert (system.dimm.count, system.dimm.ranks, system.dimm.subchannels) == (1, 1, 1)
    assert (system.host.channels, system.host.cpu_tflops) == (1, None)
    assert (hardware.lanes, hardware.lane_peak_gbps, hardware.unit_gflops["gemv"]) == (1, 25.6, None)
    named = {row.key: row for row in hardware.rows()}
    assert named["dram.scheduler"][1:3] == ("FRFCFS", "")
    assert named["dram.row_cap"][1:3] == (4, "accesses")
    assert not any(key.startswith(("gpu", "link", "ndp", "dram.mapping")) for key in named)
    assert "derived.gemv_peak" not in named
    assert json.loads(json.dumps(hardware.to_dict(), allow_nan=False))["ndp"] is None


def test_missing_ndp_is_said_with_the_file(plain_file: Callable[[str], str], write: Write) -> None:
    path = plain_file("")
    assert mistake_of(lambda: load_hardware(path).ndp) == "missing plain.yaml ndp"
    hardware = load_hardware(write())
    assert hardware.ndp is hardware.system.ndp


def test_empty_section_is_a_missing_one(plain_file: Callable[[str], str]) -> None:
    assert load_hardware(plain_file("gpu:\nndp: null\n")).system.ndp is None


def test_units_can_be_set_onto_a_plain_memory(plain_file: Callable[[str], str]) -> None:
    units = [f"ndp.{unit}=trimoe_{unit}" for unit in ("gemv", "activation", "relayout")]
    assert load_hardware(plain_file(""), units).ndp.gemv.multipliers == 256


def test_mapping_as_data(plain_file: Callable[[str], str]) -> None:
    hardware = load_hardware(plain_file(CUSTOM))
    mapping = hardware.system.dram.mapping
    assert mapping is not None
    assert mapping.order == ["column:2", "channel", "rank", "bankgroup", "bank", "column", "row"]
    assert mapping.xor == {"bankgroup": ["row:0-1", "row:5"], "bank:1": ["row:7"]}
    origins = hardware.origins
    assert origins["dram.mapping.order"] == Origin(hardware.file, 8, "data sheet", "source")
    assert origins["dram.mapping.xor.bankgroup"].kind == "stated"
    assert origins["dram.mapping.xor.bank:1"].kind == "assumption"
    named = {row.key: row.value for row in hardware.rows()}
    assert named["dram.mapping.xor.bankgroup"] == "row:0-1, row:5"
    assert json.loads(json.dumps(hardware.to_dict()))["dram"]["mapping"]["xor"] == mapping.xor


def test_a_range_of_one_bit_is_that_bit(plain_file: Callable[[str], str]) -> None:
    custom = ["dram.mapping.xor.bankgroup=[row:5-5]"]
    mapping = load_hardware(plain_file(CUSTOM), custom).system.dram.mapping
    assert mapping is not None
    assert parse_mapping(mapping.order, {"bankgroup": mapping.xor["bankgroup"]}) == parse_mapping(
        mapping.order, {"bankgroup": ["row:5"]}
    )


def test_mapping_can_be_set(plain_file: Callable[[str], str]) -> None:
    order = "dram.mapping.order=[column, row, bank, bankgroup, rank]"
    mapping = load_hardware(plain_file(""), ["dram.mapper=custom", order]).system.dram.mapping
    assert mapping is not None
    assert mapping.order[0] == "column"
    sets = ["dram.mapper=MOP4CLXOR", "dram.mapping=null"]
    assert load_hardware(plain_file(CUSTOM), sets).system.dram.mapping is None


# Bad files


def test_depth_counts_through_aliases(tmp_path: Path) -> None:
    path = tmp_path / "hw.yaml"
    path.write_text("a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}]\n" for n in range(1, 60)))
    assert mistake_of(lambda: load_hardware(str(path))) == "too-large hw.yaml:49 a48"


def test_file_that_never_ends() -> None:
    assert mistake_of(lambda: load_hardware(os.devnull)) == "unreadable null"


def test_unreadable_file(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write()

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    assert mistake_of(load_hardware, path) == "unreadable hw.yaml"


@pytest.mark.parametrize("name", ["a\0b.yaml", "x" * 5000 + ".yaml", "", "x" * 5000])
def test_name_that_no_file_can_have(name: str) -> None:
    with pytest.raises(InputError) as caught:
        load_hardware(name)
    assert len(str(caught.value).splitlines()) == 1


def test_unknown_data_file() -> None:
    assert mistake_of(lambda: data_path("rtl_params", "trimoe_gem")) == "unknown-name ? trimoe_gemv"
    assert mistake_of(lambda: data_path("rtl_params", "../hwconfigs/trimoe"))


# Properties


def outcome(call: Callable[[], object]) -> str:
    """The message of the InputError in which `call` ends; empty without an error."""
    try:
        call()
    except InputError as error:
        return str(error)
    return ""


def plain(node: object) -> object:
    value = getattr(node, "value", node)
    if isinstance(value, dict):
        return {key: plain(child) for key, child in value.items()}
    return [plain(child) for child in value] if isinstance(value, list) else value


WORDS = st.text(string.ascii_letters + string.digits + " :#-'\"é", min_size=1, max_size=12)
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-(10**20), 10**20)
    | st.floats(allow_nan=False, allow_infinity=False)
    | WORDS
)
TREES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WORDS, inner, max_size=4),
    max_leaves=20,
)


@given(TREES)
def test_json_is_read_as_json(tree: object) -> None:
    # JSON is a part of YAML 1.2.
    assert plain(parse(json.dumps(tree, ensure_ascii=False), "f")) == tree


@given(st.text(max_size=60) | st.text("[]{}&*ab:,-\n \t!|>'\"", max_size=60))
@settings(max_examples=300)
def test_any_text_is_read_or_refused_in_one_line(text: str) -> None:
    assert "\n" not in outcome(lambda: parse(text, "f"))


@given(st.text(string.printable, max_size=30))
@settings(max_examples=200)
def test_any_set_is_taken_or_refused_in_one_line(option: str) -> None:
    for text in (option, f"dimm.ranks={option}", f"dram.{option}=1"):
        assert "\n" not in outcome(lambda text=text: load_hardware("trimoe", [text]))


def test_every_key_says_what_it_may_be_when_it_is_something_else():
    from ndpsim.config.keys import allowed, field_at, leaves
    from ndpsim.config.load import all_keys

    assert [key for key in all_keys() if not allowed(field_at(key))] == []
    path = ("host", "cpu_threads")
    assert path in dict(leaves(load_hardware("trimoe").system))
    with refused("type sets host.cpu_threads"):
        load_hardware("trimoe", ["host.cpu_threads=x"])
