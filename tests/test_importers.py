"""Configurations of DRAMsim3 and Ramulator 2 as hardware files: nothing changed, nothing lost in silence."""

from __future__ import annotations

import configparser
import dataclasses
import json
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from calls import GIVEN, call, refused_call
from mistakes import mistake_of, refused
from ndpsim.base.errors import InputError
from ndpsim.config import Hardware, json_schema, load_hardware
from ndpsim.config.importers import Imported, import_hardware
from ndpsim.config.importers.formats import dramsim3
from ndpsim.config.importers.ramulator import AddressBits
from ndpsim.dram.spec import resolve, standards

Sections = dict[str, dict[str, object]]

# 4 Gb x8 devices, 1024 MB x 8 chips: half a GiB x 8 = 4 GiB a rank.
_INI = configparser.ConfigParser()
_INI.optionxform = str  # type: ignore[assignment,method-assign]
_INI.read(GIVEN / "dramsim3.ini")
INI: Sections = {name: dict(_INI[name]) for name in _INI.sections()}
# What the clocks above are called here (JEDEC names them alike in both).
CLOCKS = dict(
    nCL=17, nCWL=13, nRCD=18, nRP=19, nRAS=40, nRFC=311, nREFI=9361, nRRDS=5, nRRDL=7, nWTRS=6, nWTRL=8,
    nFAW=27, nWR=21, nRTP=10, nCCDS=6, nCCDL=9, nCS=3, nRC=40 + 19, nBL=8 // 2,
)  # fmt: skip

Write = Callable[[str, str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def written(name: str, text: str) -> Path:
        path = tmp_path / name
        path.write_text(text)
        return path

    return written


def changed(sections: Sections, **changes: object) -> Sections:
    """`sections` with ``section__key`` set; None takes the key away."""
    copy = {name: dict(keys) for name, keys in sections.items()}
    for name, value in changes.items():
        section, _, key = name.partition("__")
        copy.setdefault(section, {})
        if value is None:
            del copy[section][key]
        else:
            copy[section][key] = value
    return copy


def ini(**changes: object) -> str:
    lines = []
    for section, keys in changed(INI, **changes).items():
        lines += [f"[{section}]", *(f"{key} = {value}" for key, value in keys.items()), ""]
    return "\n".join(lines)


def loaded(imported: Imported, path: Path) -> Hardware:
    """The imported file, as read back."""
    file = path.with_name("imported.yaml")
    file.write_text(imported.text)
    return load_hardware(str(file))


def notes_on(imported: Imported, words: str) -> list[str]:
    return [note for note in imported.notes if words in note]


def decode(order: list[str], widths: dict[str, int], address: int) -> dict[str, int]:
    """The fields of a burst's address, taken apart bit by bit as `order` says."""
    taken = dict.fromkeys(widths, 0)
    fields = dict.fromkeys(widths, 0)
    for part in order:
        field, _, bits = part.partition(":")
        for _ in range(int(bits) if bits else widths[field] - taken[field]):
            fields[field] |= (address & 1) << taken[field]
            taken[field] += 1
            address >>= 1
    assert taken == widths
    return fields


def xored(fields: dict[str, int], xor: dict[str, list[str]]) -> dict[str, int]:
    done = dict(fields)
    for target, sources in xor.items():
        for source in sources:
            field, _, bits = source.partition(":")
            low, _, high = bits.partition("-")
            count = int(high or low) - int(low) + 1
            done[target] ^= (fields[field] >> int(low)) & ((1 << count) - 1)
    return done


# DRAMsim3


def test_every_value_of_an_ini_file_arrives(write: Write) -> None:
    path = write("mine.ini", ini())
    hardware = loaded(import_hardware(path), path)
    device, system = hardware.lane_device(), hardware.system
    assert {name: device.timings[name] for name in CLOCKS} == CLOCKS
    assert (device.timings["rate"], device.org) == (2400, "DDR4_4Gb_x8")
    assert (system.name, system.dimm.ranks, system.dimm.count, system.host.channels) == ("mine", 2, 2, 2)
    assert hardware.dimm_bytes == 8192 << 20
    assert system.dram.mapper == "custom"
    assert system.dram.mapping is not None
    assert system.dram.mapping.order == ["column", "bankgroup", "bank", "rank", "channel", "row"]
    assert (system.dram.row_policy, system.dram.refresh) == ("open", "staggered")
    assert (system.dram.read_buffer, system.dram.write_buffer) == (48, 48)
    assert system.ndp is None


def test_every_value_says_where_it_is_from(write: Write) -> None:
    path = write("mine.ini", ini())
    imported = import_hardware(path)
    hardware = loaded(imported, path)
    stated = {key: origin for key, origin in hardware.origins.items() if origin.kind != "default"}
    assert all(origin.kind == "source" and "mine.ini" in origin.text for origin in stated.values())
    assert {f"dram.overrides.{name}" for name in ("nRCD", "nRFC", "nREFI", "nCS", "nRC")} < stated.keys()
    assert stated["dram.overrides.nRCD"].text == "mine.ini, [timing] tRCD = 18"
    assert "[timing] tRAS + tRP = 59" in stated["dram.overrides.nRC"].text
    assert Draft202012Validator(json_schema()).is_valid(yaml.safe_load(imported.text))
    assert str(path.parent) not in imported.text


def test_a_timing_of_the_preset_is_no_override(write: Write) -> None:
    preset = resolve("DDR4", "DDR4_4Gb_x8", "DDR4_2400R").timings
    names = {"CL": "nCL", "tRCD": "nRCD", "tRP": "nRP", "tRAS": "nRAS", "tFAW": "nFAW", "tWR": "nWR"}
    path = write("a.ini", ini(**{f"timing__{key}": preset[name] for key, name in names.items()}))
    dram = loaded(import_hardware(path), path).system.dram
    assert dram.timing == "DDR4_2400R"
    assert dram.overrides.keys().isdisjoint(names.values())
    assert "nRFC" in dram.overrides


@pytest.mark.parametrize(
    ("tck", "rate"),
    [
        ("1.25", 1600),
        ("1.07", 1866),
        ("0.94", 2133),
        ("0.83", 2400),
        (".75", 2666),
        ("0.68", 2933),
        ("6.3e-1", 3200),
    ],
)
def test_the_nearest_rate_is_taken(write: Write, tck: str, rate: int) -> None:
    path = write("a.ini", ini(timing__tCK=tck))
    assert loaded(import_hardware(path), path).lane_device().timings["rate"] == rate


def test_additive_latency_is_folded_in(write: Write) -> None:
    path = write("a.ini", ini(timing__AL=4))
    imported = import_hardware(path)
    timings = loaded(imported, path).lane_device().timings
    assert [timings[name] for name in ("nCL", "nCWL", "nRTP", "nRCD")] == [17 + 4, 13 + 4, 10 + 4, 18 - 4]
    assert notes_on(imported, "[timing] AL is part of nCL")


def test_misspelt_refresh_interval_is_taken_and_said(write: Write) -> None:
    path = write("a.ini", ini(timing__tREFI=None, timing__REFI=7777))
    imported = import_hardware(path)
    assert loaded(imported, path).lane_device().timings["nREFI"] == 7777
    assert notes_on(imported, "[timing] REFI is taken as tREFI; DRAMsim3 does not read this name")
    both = import_hardware(write("b.ini", ini(timing__REFI=7777)))
    assert loaded(both, path).lane_device().timings["nREFI"] == 9361
    assert notes_on(both, "[timing] REFI is left out")


def test_all_ranks_may_be_refreshed_at_once(write: Write) -> None:
    path = write("a.ini", ini(system__refresh_policy="RANK_LEVEL_SIMULTANEOUS"))
    assert loaded(import_hardware(path), path).system.dram.refresh == "all-bank"


def test_without_bank_groups_all_banks_are_one(write: Write) -> None:
    path = write("a.ini", ini(dram_structure__bankgroup_enable="false"))
    with refused("conflict a.ini:3 [dram_structure] bankgroups") as caught:
        import_hardware(path)
    assert "bankgroups (4, not 1), banks_per_group (4, not 16)" in caught.value.problem


def test_closing_row_policy(write: Write) -> None:
    path = write("a.ini", ini(system__row_buf_policy="CLOSE_PAGE"))
    imported = import_hardware(path)
    dram = loaded(imported, path).system.dram
    assert (dram.row_policy, dram.row_cap) == ("closed-cap", 1)
    assert notes_on(imported, "becomes closed-cap with a cap of 1")


def test_a_burst_takes_the_clocks_of_its_standard(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    """BL8 at eight transfers a clock is one clock, of 8 / 2400 us."""
    faster = dataclasses.replace(standards()["DDR4"], transfers_per_clock=8)
    monkeypatch.setattr(dramsim3, "standards", lambda: {"DDR4": faster})
    imported = import_hardware(write("fast.ini", ini(timing__tCK=3.33)))
    assert re.search(r"nBL: {value: 1, .* BL / 8 = 1", imported.text)
    assert "3.33333 ns" in "".join(imported.notes)


@pytest.mark.parametrize("mapping", ["rochrababgco", "chrobabgraco", "corababgroch", "rorababgchco"])
def test_address_mapping_puts_every_bit_where_dramsim3_has_it(write: Write, mapping: str) -> None:
    path = write("a.ini", ini(system__address_mapping=mapping))
    order = loaded(import_hardware(path), path).system.dram.mapping.order  # type: ignore[union-attr]
    names = {"ch": "channel", "ra": "rank", "bg": "bankgroup", "ba": "bank", "ro": "row", "co": "column"}
    widths = {"ch": 1, "ra": 1, "bg": 2, "ba": 2, "ro": 15, "co": 10 - 3}  # columns less the bits of a burst
    tokens = [mapping[at : at + 2] for at in range(0, 12, 2)]
    rng = random.Random(1)
    for address in (rng.randrange(1 << sum(widths.values())) for _ in range(50)):
        # The last field stands lowest.
        place = {token: sum(widths[t] for t in tokens[tokens.index(token) + 1 :]) for token in tokens}
        expected = {names[t]: address >> place[t] & (1 << widths[t]) - 1 for t in tokens}
        assert decode(order, {names[t]: widths[t] for t in tokens}, address) == expected


@pytest.mark.parametrize(
    ("sections", "expected"),
    [
        ({"timing__tRFC2": 1, "timing__tRFC4": 2}, "[timing] tRFC2, tRFC4: left out: fine-granularity refresh"),
        ({"system__refresh_policy": "BANK_LEVEL_STAGGERED"}, "[system] refresh_policy is left out: DDR4 has no"),
        ({"timing__tFWA": 3}, "[timing] tFWA: left out: unknown key 'tFWA'; did you mean 'tFAW'?"),
        ({"colour__of_case": "red"}, "[colour] of_case: left out: unknown key 'of_case'"),
        ({"timing__tRTRS": 1}, "[timing] tRTRS is nCS, between ranks; from read to write within a rank it stays 2"),
    ],
)  # fmt: skip
def test_what_cannot_be_carried_over_is_listed(write: Write, sections: dict[str, Any], expected: str) -> None:
    path = write("a.ini", ini(**sections))
    imported = import_hardware(path)
    (note,) = notes_on(imported, expected)
    assert note.startswith(f"{path}:")
    assert "\n" not in note
    loaded(imported, path)


def test_nothing_is_said_of_what_is_carried_over(write: Write) -> None:
    path = write("a.ini", ini(timing__tCK="0.625", timing__tRTRS=2))
    assert import_hardware(path).notes == ()


def test_notes_follow_the_file(write: Write) -> None:
    notes = import_hardware(write("a.ini", ini(power__VDD=1, timing__tXP=3, other__a=1, system__x=1))).notes
    lines = [int(note.split(":")[1]) for note in notes]
    assert len(lines) > 3
    assert lines == sorted(lines)


def test_case_comments_and_spaces_are_as_in_dramsim3(write: Write) -> None:
    text = (
        ini()
        .replace("tRCD = 18", "TRCD=18 ; of the data sheet")
        .replace("[timing]", "# all clocks\n[ Timing ]")
    )
    path = write("a.ini", "\ufeff; mine\n" + text.replace("rows = 32768", "rows : 0x8000"))
    assert loaded(import_hardware(path), path).lane_device().timings["nRCD"] == 18


# Ramulator 2.0

OLD = (GIVEN / "ramulator20.yaml").read_text()


def swapped(text: str, *swaps: tuple[str, str]) -> str:
    for old, new in swaps:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


def test_ramulator_2_0(write: Write) -> None:
    path = write("old.yaml", OLD)
    imported = import_hardware(path)
    hardware = loaded(imported, path)
    dram, timings = hardware.system.dram, hardware.lane_device().timings
    assert (dram.org, dram.timing, hardware.system.dimm.ranks) == ("DDR4_8Gb_x8", "DDR4_3200AA", 2)
    # 13.75 ns / 0.625 ns are 22 clocks, as in the preset. Its tRFC is 360 ns in 2.0, 350 ns in JESD79-4.
    assert dram.overrides == {"nRCD": 20, "nRFC": 576}
    assert (timings["nRP"], timings["nCL"]) == (22, 22)
    controller = (dram.mapper, dram.scheduler, dram.row_policy, dram.refresh)
    assert controller == ("RoBaRaCoCh", "FRFCFS", "open", "all-bank")
    assert hardware.origins["dram.overrides.nRCD"].text == "old.yaml, MemorySystem.DRAM.timing.nRCD = 20"
    stated = [origin for origin in hardware.origins.values() if origin.kind != "default"]
    assert all(origin.kind == "source" and "old.yaml" in origin.text for origin in stated)
    assert [note.partition(": ")[2] for note in imported.notes] == [
        "Frontend: left out: traffic is no part of a hardware file",
        "MemorySystem.clock_ratio: left out: the clock of the front end is no part of a hardware file",
    ]


@pytest.mark.parametrize(
    ("old", "new", "key", "value"),
    [
        ("impl: OpenRowPolicy", "impl: ClosedRowPolicy\n      cap: 7", "dram.row_cap", 7),
        ("impl: OpenRowPolicy", "impl: ClosedRowPolicy\n      cap: 7", "dram.row_policy", "closed-cap"),
        ("impl: OpenRowPolicy", "impl: ClosedRowPolicy", "dram.row_policy", "open"),
        ("impl: OpenRowPolicy", "impl: ClosedCAP\n      cap: 2", "dram.row_cap", 2),
        ("impl: FRFCFS", "impl: FRFCFS-RowHit", "dram.scheduler", "FRFCFS-RowHit"),
        ("impl: AllBank", "impl: NoRefresh", "dram.refresh", "none"),
        ("impl: RoBaRaCoCh", "impl: MOP4CLXOR", "dram.mapper", "MOP4CLXOR"),
        ("impl: RoBaRaCoCh", "impl: ChRaBaRoCo", "dram.mapper", "ChRaBaRoCo"),
        ("channel: 1", "channel: 4", "host.channels", 4),
        ("rank: 2", "rank: 4", "dimm.ranks", 4),
        ("preset: DDR4_8Gb_x8", "preset: DDR4_8Gb_x8\n      row: 32768\n      density: 4096", "dram.org", "DDR4_4Gb_x8"),
        ("nRCD: 20", "nRCD: 20\n      tRFC: 350", "timings.nRFC", 560),
        ("preset: DDR4_3200AA", "rate: 3200", "dram.timing", "DDR4_3200W"),
        # JESD79-4 rounds 13.32 ns / 0.625 ns = 21.31 up.
        ("tRP: 13.75", "tRP: 13.32", "timings.nRP", 22),
    ],
)  # fmt: skip
def test_what_ramulator_2_0_can_say(write: Write, old: str, new: str, key: str, value: object) -> None:
    path = write("a.yaml", swapped(OLD, (old, new)))
    rows = {row.key: row.value for row in loaded(import_hardware(path), path).rows()}
    assert rows[key] == value


def test_names_of_ddr5_in_ramulator_2_0(write: Write) -> None:
    swaps = (("impl: DDR4", "impl: DDR5"), ("DDR4_8Gb_x8", "DDR5_16Gb_x8"), ("DDR4_3200AA", "DDR5_4800AN"))
    written = "      nRFC1: 700\n      nCCDS_WTR: 47\n      nCCDL_WTR: 65\n      nCL: 40\n"
    path = write("a.yaml", swapped(OLD, *swaps, ("      nRCD: 20\n      tRP: 13.75\n", written)))
    imported = import_hardware(path)
    timings = loaded(imported, path).lane_device().timings
    assert (timings["nRFC"], timings["nCL"]) == (700, 40)
    assert timings["nCWL"] + timings["nBL"] + timings["nWTRS"] == 47
    assert timings["nCWL"] + timings["nBL"] + timings["nWTRL"] == 65
    assert notes_on(imported, "timing.preset is no preset of Ramulator 2.0 as published")


def named_memory(name: str, org: str, timing: str, clocks: str = "") -> str:
    swaps = (
        ("rank: 2", "rank: 1"),
        ("impl: DDR4", f"impl: {name}"),
        ("DDR4_8Gb_x8", org),
        ("DDR4_3200AA", timing),
    )
    return swapped(OLD, *swaps, ("      nRCD: 20\n      tRP: 13.75\n", clocks))


def test_the_hbm3_of_ramulator_2_0_is_not_read(write: Write) -> None:
    path = write("a.yaml", OLD.replace("impl: DDR4", "impl: HBM3", 1))
    with refused("unsupported a.yaml:9 MemorySystem.DRAM.impl") as caught:
        import_hardware(path)
    assert "128 bits" in str(caught.value)


@pytest.mark.parametrize(
    ("names", "timing", "reason"),
    [
        (("LPDDR5", "LPDDR5_8Gb_x16", "LPDDR5_6400"), "LPDDR5_6400", "312 ps"),
        # The word 2000 stands for 14000 MT/s there: WCK at 570 ps a clock of commands.
        (("GDDR6", "GDDR6_8Gb_x8", "GDDR6_2000_1350mV_double"), "GDDR6_14000_1350mV_double", "1000 ps"),
    ],
)
def test_lpddr5_and_gddr6_of_ramulator_2_0_are_read_by_name(
    write: Write, names: tuple[str, str, str], timing: str, reason: str
) -> None:
    path = write("a.yaml", named_memory(*names))
    imported = import_hardware(path)
    device = loaded(imported, path).lane_device()
    assert (device.standard.name, device.org, device.timing) == (*names[:2], timing)
    assert notes_on(imported, "timing.preset has ndpsim's clocks")
    assert reason in str(imported.notes)
    path = write("b.yaml", named_memory(*names, clocks="      nRCD: 20\n"))
    with refused("unsupported b.yaml:16 MemorySystem.DRAM.timing.nRCD"):
        import_hardware(path)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("impl: FRFCFS", "impl: BLISS", "21: MemorySystem.Controller.Scheduler.impl: left out: unknown scheduler 'BLISS'"),
        ("impl: AllBank", "impl: PerBank", "23: MemorySystem.Controller.RefreshManager.impl: left out: unknown refresh"),
        ("impl: OpenRowPolicy", "impl: Timeout", "25: MemorySystem.Controller.RowPolicy.impl: left out: unknown row"),
        ("impl: OpenRowPolicy", "impl: ClosedRowPolicy\n      cap: 1", "25: MemorySystem.Controller.RowPolicy.impl: becomes"),
        ("impl: RoBaRaCoCh", "impl: Mine", "28: MemorySystem.AddrMapper.impl: left out: unknown address mapping 'Mine'"),
        ("impl: Generic\n", "impl: BHDRAMController\n", "19: MemorySystem.Controller.impl: left out: the controller"),
        ("plugins:", "plugins:\n      - ControllerPlugin:\n          impl: TraceRecorder\n          path: x", "27: MemorySystem.Controller.plugins[0]: left out: plugin TraceRecorder"),
        ("nRCD: 20", "nRCD: 20\n      tRCD: 12", "17: MemorySystem.DRAM.timing.tRCD: left out: nRCD has it in clocks"),
        ("nRCD: 20", "nRCB: 20", "16: MemorySystem.DRAM.timing.nRCB: left out: not known to ndpsim"),
        ("preset: DDR4_3200AA", "rate: 3200", "15: MemorySystem.DRAM.timing.rate: names no preset; DDR4_3200W gives what is not written: nBL, nCCDL"),
    ],
)  # fmt: skip
def test_what_ramulator_says_in_vain_is_listed(write: Write, old: str, new: str, expected: str) -> None:
    path = write("a.yaml", swapped(OLD, (old, new)))
    imported = import_hardware(path)
    assert any(note.startswith(f"{path}:{expected}") for note in imported.notes), imported.notes
    loaded(imported, path)


# Ramulator 2.1, as `python -m ramulator export` writes it

NEW: dict[str, Any] = {
    "frontend": {"impl": "SimpleO3", "clock_ratio": 8},
    "memory_system": {
        "impl": "GenericDRAM",
        "clock_ratio": 3,
        "channel_mapper": {"impl": "CacheLineInterleave", "interleave_bits": 0},
        "controllers": [
            {
                "impl": "GenericDDR",
                "wr_low_watermark": 0.2,
                "wr_high_watermark": 0.8,
                "read_buffer_size": 24,
                "write_buffer_size": 40,
                "scheduler": {"impl": "FRFCFS-RowHit"},
                "refresh_manager": {"impl": "AllBank", "scatter_interval": 0, "debug": False},
                "row_policy": {"impl": "ClosedCAP", "cap": 3},
                "addr_mapper": {"impl": "RoBaRaCoCh"},
                "dram": {
                    "impl": "DDR5",
                    "org": {"dq": 8, "count": [1, 2, 8, 4, 65536, 1024]},
                    "timing": [4800, 8, 41, 35, 37, 78, 116, 73, 19, 33, 3, 9, 13, 10, 49, 11, 14, 7, 25, 34, 711, 9376, 4, 416],
                    "channel_width": 32,
                    "read_latency": 49,
                },
            }
        ],
    },
}  # fmt: skip
# Its list by the names of timing_params in ramulator/dram/ddr5.py, less rate and tCK_ps.
NEW_CLOCKS = {
    "nBL": 8, "nCL": 41, "nRCD": 35, "nRP": 37, "nRAS": 78, "nRC": 116, "nWR": 73, "nRTP": 19, "nCWL": 33, "nPPD": 3,
    "nCCDS": 9, "nCCDL": 13, "nCCDS_WR": 10, "nCCDL_WR": 49, "nRRDS": 11, "nRRDL": 14, "nWTRS": 7, "nWTRL": 25,
    "nFAW": 34, "nRFC": 711, "nREFI": 9376, "nCS": 4,
}  # fmt: skip


def exported(*changes: tuple[str, Any], channels: int = 1) -> str:
    """NEW with dotted keys of the memory system or, behind ``*``, of its controller changed; None removes."""
    config = json.loads(json.dumps(NEW))
    for dotted, value in changes:
        here = config["memory_system"]
        if dotted == "controllers" and value is None:
            del here[dotted]
            return json.dumps(config, indent=1)
        *path, last = dotted.split(".")
        for key in path:
            here = here["controllers"][0] if key == "*" else here[key]
        if value is None:
            del here[last]
        else:
            here[last] = value
    config["memory_system"]["controllers"] *= channels
    return json.dumps(config, indent=1)


@pytest.mark.parametrize("write_as", [json.dumps, lambda config: yaml.safe_dump(config, sort_keys=False)])
def test_ramulator_2_1(write: Write, write_as: Callable[[Any], str]) -> None:
    path = write("new.yaml", write_as(NEW))
    imported = import_hardware(path)
    hardware = loaded(imported, path)
    dram, timings = hardware.system.dram, hardware.lane_device().timings
    assert {name: timings[name] for name in NEW_CLOCKS} == NEW_CLOCKS
    assert (timings["rate"], dram.org, hardware.system.dimm.ranks) == (4800, "DDR5_16Gb_x8", 2)
    assert (dram.read_buffer, dram.write_buffer, dram.scheduler) == (24, 40, "FRFCFS-RowHit")
    controller = (dram.row_policy, dram.row_cap, dram.refresh, dram.mapper)
    assert controller == ("closed-cap", 3, "all-bank", "RoBaRaCoCh")
    stated = [origin for origin in hardware.origins.values() if origin.kind != "default"]
    assert all(origin.kind == "source" and "new.yaml" in origin.text for origin in stated)
    assert len(imported.notes) == 3  # frontend, clock_ratio, read_latency


def test_every_preset_comes_back_from_its_list(write: Write) -> None:
    names = ("rate", *NEW_CLOCKS, "tCK_ps")
    for org in ("DDR5_8Gb_x4", "DDR5_32Gb_x16"):
        for timing in ("DDR5_3200BN", "DDR5_4800AN", "DDR5_6400AN"):
            device = resolve("DDR5", org, timing)
            one = device.organisation
            count = [1, 1, one.bankgroups, one.banks_per_group, one.rows, one.columns]
            values = [device.timings[name] for name in names]
            text = exported(("*.dram.timing", values), ("*.dram.org", {"dq": one.dq, "count": count}))
            path = write("a.yaml", text)
            dram = loaded(import_hardware(path), path).system.dram
            assert (dram.org, dram.timing, dram.overrides) == (org, timing, {})


# What `to_config()` of Ramulator 2.1 says of three memories (python/ramulator/dram, commit c5b1c3a).
OTHERS: dict[str, dict[str, Any]] = {
    "LPDDR5_16Gb_x16 LPDDR5_6400": {
        "impl": "LPDDR5", "channel_width": 16, "read_latency": 19,
        "org": {"dq": 16, "count": [1, 2, 4, 4, 65536, 1024]},
        "timing": [
            6400, 2, 4, 17, 15, 15, 17, 34, 49, 28, 8, 9, 2, 2, 4, 2, 4, 4, 4, 5, 10, 16, 224, 112, 3125, 391, 1, 0, 8,
            2, 1250, 72, 6,
        ],
    },
    "LPDDR6_16Gb_x12 LPDDR6_10667_BL24": {
        "impl": "LPDDR6", "channel_width": 12, "read_latency": 62, "data_payload_bytes": 32,
        "org": {"dq": 12, "count": [1, 2, 4, 4, 65536, 1024]},
        "timing": [
            10667, 6, 12, 18, 24, 56, 26, 59, 48, 22, 107, 115, 54, 169, 32, 14, 26, 4, 6, 10, 22, 6, 10, 22, 10, 17,
            32, 41, 47, 53, 59, 5, 0, 27, 0, 40, 1014, 10416, 3, 2, 8, 2, 375,
        ],
    },
    "GDDR6_16Gb_x8 GDDR6_14000_1250mV_double": {
        "impl": "GDDR6", "channel_width": 16, "read_latency": 26,
        "org": {"dq": 8, "count": [1, 4, 4, 32768, 2048]},
        "timing": [
            14000, 2, 24, 30, 20, 30, 60, 90, 30, 4, 6, 2, 4, 11, 11, 9, 11, 43, 106, 22, 3333, 570, 211, 2,
        ],
    },
    "GDDR7_16Gb_x8 GDDR7_28000_PAM3": {
        "impl": "GDDR7", "channel_width": 8, "read_latency": 27,
        "org": {"dq": 8, "count": [1, 16, 16384, 2048]},
        "timing": [
            28021, 2, 24, 6, 0, 30, 19, 30, 60, 90, 4, 21, 2, 4, 2, 30, 2, 4, 9, 11, 12, 3327, 207, 315, 105, 28, 315,
            105, 2, 18, 8, 26, 10, 6, 2, 2, 18, 571,
        ],
    },
    "HBM3_8Gb_8hi HBM3_6400Mbps": {
        "impl": "HBM3", "channel_width": 32, "read_latency": 44,
        "org": {"dq": 32, "count": [1, 2, 2, 4, 4, 8192, 256]},
        "timing": [
            6400, 4, 40, 62, 30, 52, 90, 144, 66, 18, 20, 4, 8, 6, 8, 10, 14, 20, 40, 48, 4, 832, 640, 832, 640, 16,
            12480, 390, 312,
        ],
    },
    "HBM4_32Gb_8Hi HBM4_8000Mbps": {
        "impl": "HBM4", "channel_width": 32, "read_latency": 44,
        "org": {"dq": 32, "count": [1, 2, 2, 2, 8, 16384, 256]},
        "timing": [
            8000, 4, 40, 78, 38, 66, 114, 180, 84, 24, 20, 4, 8, 4, 10, 14, 18, 26, 50, 60, 4, 1800, 1120, 1800, 1120,
            32, 15600, 488, 250,
        ],
    },
}  # fmt: skip


def dram_of(imported: Any) -> dict[str, Any]:
    """The section `dram` of an imported file, without sources."""

    def values(node: Any) -> Any:
        return node["value"] if "value" in node else {key: values(inner) for key, inner in node.items()}

    return values(yaml.safe_load(imported.text)["dram"])


@pytest.mark.parametrize("names", OTHERS)
def test_other_memories_come_back_from_their_lists(write: Write, names: str) -> None:
    org, timing = names.split()
    controllers = {"GDDR7": "GDDR7", "HBM3": "HBM34", "HBM4": "HBM34", "LPDDR5": "LPDDR5", "LPDDR6": "LPDDR6"}
    like = controllers.get(org.split("_")[0], "GenericDDR")
    imported = import_hardware(write("a.yaml", exported(("*.dram", OTHERS[names]), ("*.impl", like))))
    dram = dram_of(imported)
    assert (dram["org"], dram["timing"]) == (org, timing)
    # The standard states tRFC of GDDR6 for 8 Gb only.
    assert dram.get("overrides", {}) == ({"nRFCab": 211, "nRFCpb": 106} if org.startswith("GDDR6") else {})
    assert not any("controller" in note for note in imported.notes if "dram" not in note)
    # The interval of LPDDR5's REFpb is another in the standard.
    assert any("nREFIpb of 391 is Ramulator's own" in note for note in imported.notes) == (like == "LPDDR5")
    assert any("nRC of 169 is Ramulator's own" in note for note in imported.notes) == (like == "LPDDR6")


def test_the_data_clock_of_lpddr5_runs_as_it_did(write: Write) -> None:
    def mode(word: str) -> Imported:
        of_lpddr5 = OTHERS["LPDDR5_16Gb_x16 LPDDR5_6400"]
        changes = ("*.dram", of_lpddr5), ("*.impl", "LPDDR5"), ("*.wck_sync_mode", word)
        return import_hardware(write("a.yaml", exported(*changes)))

    assert dram_of(mode("always_on"))["wck"] == "always-on"
    assert dram_of(mode("need_sync"))["wck"] == "need-sync"
    with refused("unknown-name a.yaml:86 memory_system.controllers[0].wck_sync_mode"):
        mode("sometimes")


def test_changed_ticks_of_hbm3_are_clocks(write: Write) -> None:
    changed = json.loads(json.dumps(OTHERS["HBM3_8Gb_8hi HBM3_6400Mbps"]))
    changed["timing"][5] = 60
    path = write("a.yaml", exported(("*.dram", changed), ("*.addr_mapper.impl", "MOP4CLXOR"), channels=2))
    dram = dram_of(import_hardware(path))
    # The list's nRC is Ramulator's own and too short for this nRP: nRAS + nRP takes its place.
    assert dram["overrides"] == {"nRP": 30, "nRC": 45 + 30}
    order = ["channel", "column:2", "rank", "stack", "bankgroup", "bank", "column", "row"]
    assert dram["mapping"]["order"] == order
    assert dram["mapping"]["xor"]["stack"] == ["column:1"]
    changed["timing"][5] = 61
    text = mistake_of(lambda: import_hardware(write("b.yaml", exported(("*.dram", changed)))))
    assert text == "range b.yaml:51 memory_system.controllers[0].dram.timing"


@pytest.mark.parametrize(("names", "refresh"), [("LPDDR5", "PerBank"), ("HBM3", "HBM34PerBankRefresh"), ("GDDR6", "PerBank")])  # fmt: skip
def test_refreshes_of_one_bank_are_known_where_the_standard_has_them(write, names, refresh):
    dram = next(dram for dram in OTHERS.values() if dram["impl"] == names)
    path = write("a.yaml", exported(("*.dram", dram), ("*.refresh_manager", {"impl": refresh})))
    imported = import_hardware(path)
    assert dram_of(imported)["refresh"] == "per-bank"
    assert not any("unknown refresh manager" in note for note in imported.notes)


@pytest.mark.parametrize("names", [names for names in OTHERS if not names.startswith("HBM")])
def test_imported_lpddr5_and_gddr6_are_hardware(write: Write, names: str) -> None:
    path = write("a.yaml", exported(("*.dram", OTHERS[names])))
    hardware = loaded(import_hardware(path), path)
    assert hardware.lane_device().standard.name == names.split("_", maxsplit=1)[0]
    assert hardware.system.dimm.ranks == (2 if names.startswith("LPDDR") else 1)


def test_scattered_refresh_becomes_staggered(write: Write) -> None:
    path = write("a.yaml", exported(("*.refresh_manager.scatter_interval", 100)))
    imported = import_hardware(path)
    assert loaded(imported, path).system.dram.refresh == "staggered"
    assert notes_on(imported, "scatter_interval: becomes staggered")


def test_cap_of_ramulator_2_1_is_4_where_none_is_named(write: Write) -> None:
    path = write("a.yaml", exported(("*.row_policy.cap", None)))
    assert loaded(import_hardware(path), path).system.dram.row_cap == 4


@pytest.mark.parametrize(
    ("changes", "channels", "expected"),
    [
        ([("*.dram.impl", "HBM2")], 1, "unsupported a.yaml:36 memory_system.controllers[0].dram.impl"),
        ([("impl", "Other")], 1, "unsupported a.yaml:7 memory_system.impl"),
        ([("controllers", [])], 1, "missing a.yaml:13 memory_system.controllers"),
        ([("controllers", None)], 1, "missing a.yaml:6 memory_system.controllers"),
        ([("controllers", [NEW["memory_system"]["controllers"][0], {}])], 1, "unsupported a.yaml:78 memory_system.controllers[1]"),
        ([], 3, "range a.yaml:13 memory_system.controllers"),
        ([("*.dram.timing", [4800, 8])], 1, "form a.yaml:48 memory_system.controllers[0].dram.timing"),
        ([("*.dram.timing", "x")], 1, "type a.yaml:48 memory_system.controllers[0].dram.timing"),
        ([("*.dram.timing", [4700, *[8] * 23])], 1, "range a.yaml:48 memory_system.controllers[0].dram.timing"),
        ([("*.dram.org.count", [1, 2])], 1, "conflict a.yaml:37 memory_system.controllers[0].dram.org"),
        ([("*.dram.org.dq", None)], 1, "conflict a.yaml:37 memory_system.controllers[0].dram.org"),
        ([("*.dram.org.count", [1, 2, 8, 4, 65536, 4096])], 1, "conflict a.yaml:39 memory_system.controllers[0].dram.org.count"),
        ([("*.dram.channel_width", 64)], 1, "unsupported a.yaml:74 memory_system.controllers[0].dram.channel_width"),
        ([("channel_mapper.interleave_bits", 99)], 2, "range a.yaml:11 memory_system.channel_mapper.interleave_bits"),
        ([("*.read_buffer_size", 5000)], 1, "range a.yaml:18 memory_system.controllers[0].read_buffer_size"),
    ],
)  # fmt: skip
def test_wrong_export(write: Write, changes: list[Any], channels: int, expected: str) -> None:
    path = write("a.yaml", exported(*changes, channels=channels))
    assert mistake_of(import_hardware, path) == expected


def test_clock_that_is_not_that_of_the_rate_is_said(write: Write) -> None:
    values = [*NEW["memory_system"]["controllers"][0]["dram"]["timing"][:-1], 400]
    assert notes_on(import_hardware(write("a.yaml", exported(("*.dram.timing", values)))), "tCK_ps of 400")


# Address mappings of Ramulator with several channels

WIDTHS = {"channel": 2, "rank": 1, "bankgroup": 3, "bank": 2, "row": 16, "column": 6}  # DDR5_16Gb_x8, 2 ranks


def slicer(address: int) -> Callable[[int], int]:
    """Takes bits off `address` from the bottom, one call after the other."""
    rest = address

    def take(bits: int) -> int:
        nonlocal rest
        low, rest = rest & ((1 << bits) - 1), rest >> bits
        return low

    return take


def ramulator_maps(impl: str, address: int, fields: list[str]) -> dict[str, int]:
    """The mappers of Ramulator (linear_mappers.cpp), on the address of a burst; `fields` are its levels."""
    take, done = slicer(address), {}
    if impl == "ChRaBaRoCo":
        for field in reversed([*fields, "column"]):
            done[field] = take(WIDTHS[field])
        return done
    if impl == "RoBaRaCoCh":
        order = [field for field in ("channel", "column") if field in (*fields, "column")]
        for field in [*order, *(field for field in fields if field != "channel")]:
            done[field] = take(WIDTHS[field])
        return done
    low = take(2)
    for field in fields[:-1]:
        done[field] = take(WIDTHS[field])
    done["column"] = low + (take(WIDTHS["column"] - 2) << 2)
    done["row"] = take(WIDTHS["row"])
    shift = 0
    for field in fields:
        done[field] ^= (done["column"] >> shift) & ((1 << WIDTHS[field]) - 1)
        shift += WIDTHS[field]
    return done


LEVELS = ["channel", "rank", "bankgroup", "bank", "row"]


@pytest.mark.parametrize("impl", ["RoBaRaCoCh", "ChRaBaRoCo", "MOP4CLXOR"])
def test_channels_lie_where_ramulator_2_0_has_them(write: Write, impl: str) -> None:
    swaps = (("impl: DDR4", "impl: DDR5"), ("DDR4_8Gb_x8", "DDR5_16Gb_x8"), ("DDR4_3200AA", "DDR5_3200AN"))
    text = swapped(OLD, *swaps, ("channel: 1", "channel: 4"), ("impl: RoBaRaCoCh", f"impl: {impl}"))
    path = write("a.yaml", text)
    mapping = loaded(import_hardware(path), path).system.dram.mapping
    assert mapping is not None
    rng = random.Random(2)
    for address in (rng.randrange(1 << sum(WIDTHS.values())) for _ in range(200)):
        mapped = xored(decode(mapping.order, WIDTHS, address), mapping.xor)
        assert mapped == ramulator_maps(impl, address, LEVELS)


@pytest.mark.parametrize("impl", ["RoBaRaCoCh", "ChRaBaRoCo", "MOP4CLXOR"])
@pytest.mark.parametrize("low", [0, 1, 3, 9, 28])
def test_channels_lie_where_ramulator_2_1_has_them(write: Write, impl: str, low: int) -> None:
    changes = [("channel_mapper.interleave_bits", low), ("*.addr_mapper.impl", impl)]
    path = write("a.yaml", exported(*changes, channels=4))
    mapping = loaded(import_hardware(path), path).system.dram.mapping
    assert mapping is not None
    rng = random.Random(3)
    for address in (rng.randrange(1 << sum(WIDTHS.values())) for _ in range(200)):
        # CacheLineInterleave takes the channel out of the middle; the mapper sees the rest.
        channel = address >> low & 3
        inside = address >> (low + 2) << low | address & (1 << low) - 1
        expected = {"channel": channel, **ramulator_maps(impl, inside, LEVELS[1:])}
        assert xored(decode(mapping.order, WIDTHS, address), mapping.xor) == expected


def test_xor_stops_where_the_column_ends() -> None:
    bits = AddressBits({"column": 3, "rank": 1, "bank": 3, "row": 5})
    assert bits.xor(["rank", "bank", "row"]) == {"rank": ["column:0"], "bank": ["column:1-2"]}


# Which file is what


@pytest.mark.parametrize("name", ["true", "null", "1", "a b", "a: b #c", "é", "'\"", "no"])
def test_any_name_survives(write: Write, name: str) -> None:
    path = write("a.ini", ini())
    imported = import_hardware(path, name)
    hardware = loaded(imported, path)
    assert (imported.name, hardware.system.name) == (name, name)
    assert hardware.origins["name"].text == "given with --name"


def test_odd_file_names_end_up_in_no_syntax(tmp_path: Path) -> None:
    path = tmp_path / "a: 'b' \"c\" #\n\udcff\x85.ini"
    path.write_text(ini())
    assert loaded(import_hardware(path, "a"), path).system.name == "a"


@pytest.mark.parametrize("line", ["= 4", ": 4", "rows", "[system"])
def test_a_line_of_an_ini_file_without_a_key_or_a_value_is_refused(write: Write, line: str) -> None:
    path = write("a.ini", f"[system]\nchannels = 1\n{line}\n")
    assert mistake_of(import_hardware, path) == "form a.ini:3"


def test_a_configuration_of_ramulator_1_is_told_as_what_it_is(write: Write) -> None:
    """It has lines of key = value; colons in its comments are no YAML."""
    text = "# out: (default is off): on, off\n standard = DDR4\n speed = DDR4_2400R\n\n# below: only\n cpu_tick = 32\n"
    with refused("unsupported DDR4-config.cfg") as caught:
        import_hardware(write("DDR4-config.cfg", text))
    assert "Ramulator 1 (standard = DDR4)" in str(caught.value)


def test_names_that_are_refused(write: Write) -> None:
    path = write("a.ini", ini())
    assert mistake_of(lambda: import_hardware(path, "")) == "form --name"


FRAGMENTS = st.sampled_from(
    ["[timing]\n", "[dram_structure]\n", "protocol = DDR4\n", "CL = 3\n", "=", ":", "x", "\n"]
)
ROOTS = st.sampled_from(["MemorySystem: ", "MemorySystem:\n  DRAM: ", "memory_system:\n  controllers: "])
ANY_INI = st.text(max_size=80) | st.lists(FRAGMENTS, max_size=12).map("".join)
ANY_YAML = st.tuples(ROOTS, st.text("[]{}&*ab:,-0123 \t\n", max_size=60)).map("".join)


@given(st.tuples(st.just("any.ini"), ANY_INI) | st.tuples(st.just("any.yaml"), ANY_YAML))
@settings(max_examples=200)
def test_any_text_is_imported_or_refused_in_one_line(tmp_path_factory, file):
    name, text = file
    path = tmp_path_factory.getbasetemp() / name
    path.write_text(text, encoding="utf-8", errors="replace")
    try:
        import_hardware(path)
    except InputError as error:
        assert "\n" not in str(error)


# The command


def test_command_prints_the_file_and_its_notes(write: Write) -> None:
    path = write("mine.ini", ini(power__VDD=1.2))
    status, out, err = call("import", str(path), "--name", "other")
    assert status == 0
    assert out == import_hardware(path, "other").text
    assert yaml.safe_load(out)["name"]["value"] == "other"
    lines = err.splitlines()
    assert len(lines) == len(import_hardware(path).notes)
    assert all(line.startswith(f"ndpsim: note: {path}:") for line in lines)
    assert any("[power] VDD: left out" in line for line in lines)


def test_command_writes_a_file_that_loads_by_its_path(write: Write, tmp_path: Path) -> None:
    path, out = write("mine.ini", ini()), tmp_path / "hw.yaml"
    assert call("import", str(path), "--out", str(out))[:2] == (0, "")
    assert load_hardware(str(out)).system.name == "mine"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["hw.yaml", "mine.ini"]


def test_command_replaces_a_file_only_by_force(write: Write, tmp_path: Path) -> None:
    path, out = write("mine.ini", ini()), write("hw.yaml", "mine")
    assert refused_call("import", path, "--out", out) == "unwritable --out"
    assert out.read_text() == "mine"
    assert call("import", str(path), "--out", str(out), "--force")[0] == 0
    assert load_hardware(str(out)).system.name == "mine"


def test_command_leaves_nothing_where_it_fails(write: Write, tmp_path: Path) -> None:
    path = write("mine.ini", ini(dram_structure__protocol="HBM2"))
    wrong = refused_call("import", path, "--out", tmp_path / "hw.yaml", "--force")
    assert wrong == "unsupported mine.ini:2 [dram_structure] protocol"
    assert [p.name for p in tmp_path.iterdir()] == ["mine.ini"]


def test_gemv_on_a_plain_memory_is_refused_in_one_line(write: Write, tmp_path: Path) -> None:
    path, hw = write("mine.ini", ini()), tmp_path / "hw.yaml"
    call("import", str(path), "--out", str(hw))
    assert refused_call("gemv", "--hw", hw, "--shape", "64,64") == "missing hw.yaml:1 ndp.activation"
