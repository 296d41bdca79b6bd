"""Configurations of DRAMSys 5: what its files say arrives, and mistakes are told with their place.

The specification is made up; its shape is that of tukl-msd/DRAMSys @2107966, `configs`.
"""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from mistakes import refused
from ndpsim.base.errors import InputError
from ndpsim.config import Hardware, load_hardware
from ndpsim.config.importers import import_hardware

CLOCKS = {
    "RL": 16, "WL": 12, "RCD": 16, "RP": 16, "RAS": 39, "RC": 55, "FAW": 26, "WR": 18, "RTP": 9, "REFI": 9360,
    "RFC1": 312, "RFC2": 192, "RFC4": 132, "RRD_S": 4, "RRD_L": 6, "WTR_S": 3, "WTR_L": 9, "CCD_S": 4,
    "CCD_L": 6, "XP": 8, "AL": 0, "REFM": 1, "tCK": 833e-12,
}  # fmt: skip
SPEC = {
    "memoryType": "DDR4",
    "memoryId": "made_up",
    "memarchitecturespec": {
        "burstLength": 8, "dataRate": 2, "width": 8, "nbrOfDevices": 8, "nbrOfBankGroups": 4,
        "nbrOfBanks": 16, "nbrOfRows": 32768, "nbrOfColumns": 1024, "nbrOfRanks": 2, "nbrOfChannels": 2,
        "RefMode": 1,
    },
    "memtimingspec": CLOCKS,
}  # fmt: skip
# From bit 6 on: 2 of the column, channel, 5 of the column, 2 of the bank group, rank, 15 of the row, 2 of the bank.
MAPPING = {
    "BYTE_BIT": [0, 1, 2],
    "COLUMN_BIT": [3, 4, 5, 6, 7, 9, 10, 11, 12, 13],
    "CHANNEL_BIT": [8],
    "BANKGROUP_BIT": [14, 15],
    "RANK_BIT": 16,
    "ROW_BIT": list(range(17, 32)),
    "BANK_BIT": [32, 33],
}
CONTROLLER = {
    "PagePolicy": "Open", "Scheduler": "FrFcfs", "SchedulerBuffer": "ReadWrite", "RequestBufferSize": 24,
    "RequestBufferSizeWrite": 48, "RefreshPolicy": "AllBank", "RefreshMaxPostponed": 0, "CmdMux": "Oldest",
}  # fmt: skip
WHOLE = {
    "simulation": {
        "addressmapping": MAPPING,
        "mcconfig": CONTROLLER,
        "memspec": SPEC,
        "simconfig": {"AddressOffset": 0, "Debug": False},
        "simulationid": "made-up",
        "tracesetup": [{"type": "player", "clkMhz": 200, "name": "traces/example.stl"}],
    }
}


def changed(path: str, value: Any) -> dict[str, Any]:
    """The simulation with another value at a dotted path; None removes it."""
    whole = copy.deepcopy(WHOLE)
    *outer, last = path.split(".")
    part: Any = whole["simulation"]
    for key in outer:
        part = part[key]
    if value is None:
        del part[last]
    else:
        part[last] = value
    return whole


def imported(folder: Path, content: Any) -> tuple[Hardware, tuple[str, ...]]:
    path = folder / "a.json"
    path.write_text(json.dumps(content, indent=1))
    found = import_hardware(path)
    (folder / "a.yaml").write_text(found.text)
    return load_hardware(str(folder / "a.yaml")), found.notes


def test_every_part_of_a_simulation_arrives(tmp_path):
    hardware, notes = imported(tmp_path, WHOLE)
    dram = hardware.system.dram
    assert (dram.standard, dram.org, dram.scheduler) == ("DDR4", "DDR4_4Gb_x8", "FRFCFS")
    timings = hardware.lane_device().timings
    for name, ours in (("RAS", "nRAS"), ("RFC1", "nRFC"), ("WTR_L", "nWTRL"), ("RL", "nCL"), ("WL", "nCWL")):
        assert timings[ours] == CLOCKS[name]
    order = ["column:2", "channel", "column", "bankgroup", "rank", "row", "bank"]
    assert dram.mapping.order == order
    assert (dram.row_policy, dram.refresh, dram.read_buffer, dram.write_buffer) == (
        "open",
        "all-bank",
        24,
        48,
    )
    assert (hardware.system.dimm.count, hardware.system.dimm.ranks) == (2, 2)
    assert any("200 MHz" in note for note in notes)
    assert any("CmdMux: left out" in note for note in notes)


def test_parts_may_be_files_beside_it_and_a_specification_may_be_alone(tmp_path):
    whole = copy.deepcopy(WHOLE)
    for key in ("memspec", "addressmapping", "mcconfig"):
        (tmp_path / f"{key}.json").write_text(json.dumps({key: whole["simulation"][key]}))
        whole["simulation"][key] = f"{key}.json"
    together, _ = imported(tmp_path, WHOLE)
    apart, _ = imported(tmp_path, whole)
    assert apart.system == together.system
    alone, notes = imported(tmp_path, {"memspec": SPEC})
    assert alone.lane_device().timings == together.lane_device().timings
    assert alone.system.dram.mapper != "custom"
    assert any("XP: left out" in note for note in notes)


@pytest.mark.parametrize(
    ("path", "value", "key", "expected"),
    [
        ("mcconfig.PagePolicy", "Closed", "row_policy", "closed-cap"),
        ("mcconfig.PagePolicy", "OpenAdaptive", "row_policy", "open"),
        ("mcconfig.RefreshPolicy", "NoRefresh", "refresh", "none"),
        ("mcconfig.RefreshPolicy", "Rankwise", "refresh", "all-bank"),
        ("memspec.memarchitecturespec.RefMode", 2, "nRFC", 192),
        ("memspec.memarchitecturespec.RefMode", 2, "nREFI", 4680),
        ("memspec.memarchitecturespec.RefMode", 4, "nRFC", 132),
        ("memspec.memarchitecturespec.RefMode", 4, "nREFI", 2340),
    ],
)
def test_what_a_controller_or_a_memory_can_say(tmp_path, path, value, key, expected):
    hardware, _ = imported(tmp_path, changed(path, value))
    timings = hardware.lane_device().timings
    assert (timings[key] if key in timings else getattr(hardware.system.dram, key)) == expected


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("mcconfig.Scheduler", "Fifo", "Scheduler: left out: Fifo"),
        ("mcconfig.SchedulerBuffer", "Bankwise", "SchedulerBuffer: left out: Bankwise queues"),
        ("mcconfig.RefreshMaxPulledin", 8, "RefreshMaxPulledin: left out"),
        ("mcconfig.RefreshManagement", True, "RefreshManagement: left out"),
        ("mcconfig.PagePolicy", "ClosedAdaptive", "RDA or WRA"),
        ("mcconfig.RefreshPolicy", "SameBank", "DDR4 has no SameBank"),
        ("mcconfig.ThinkDelayFw", 4, "ThinkDelayFw: left out"),
        ("simconfig.AddressOffset", 64, "AddressOffset: left out"),
        ("memspec.memtimingspec.tCK", 800e-12, "2500 MT/s"),
    ],
)
def test_what_cannot_be_carried_over_is_listed(tmp_path, path, value, words):
    _, notes = imported(tmp_path, changed(path, value))
    assert any(words in note for note in notes), notes


MISTAKES = [
    ("memspec.memoryType", "LPDDR4", "unsupported simulation.memspec.memoryType"),
    ("memspec.memoryType", None, "missing simulation.memspec.memoryType"),
    ("memspec.memtimingspec.RAS", None, "missing simulation.memspec.memtimingspec.RAS"),
    ("memspec.memtimingspec.RAS", 0, "range simulation.memspec.memtimingspec.RAS"),
    ("memspec.memtimingspec.RAS", 3.5, "type simulation.memspec.memtimingspec.RAS"),
    ("memspec.memtimingspec.AL", 4, "unsupported simulation.memspec.memtimingspec.AL"),
    ("memspec.memtimingspec.tCK", None, "missing simulation.memspec.memtimingspec.tCK"),
    ("memspec.memarchitecturespec.nbrOfRows", 1 << 20, "conflict simulation.memspec.memarchitecturespec.nbrOfRows"),
    ("memspec.memarchitecturespec.nbrOfDevices", 4, "unsupported simulation.memspec.memarchitecturespec.nbrOfDevices"),
    ("memspec.memarchitecturespec.nbrOfBanks", 15, "conflict simulation.memspec.memarchitecturespec.nbrOfBanks"),
    ("memspec.memarchitecturespec.burstLength", 4, "unsupported simulation.memspec.memarchitecturespec.burstLength"),
    ("memspec.memarchitecturespec.nbrOfChannels", 3, "range simulation.memspec.memarchitecturespec.nbrOfChannels"),
    ("memspec", "none.json", "unreadable simulation.memspec"),
    ("mcconfig.PagePolicy", "Ajar", "unknown-name simulation.mcconfig.PagePolicy"),
    ("addressmapping.BYTE_BIT", [0, 1], "conflict simulation.addressmapping.BYTE_BIT"),
    ("addressmapping.ROW_BIT", [17, 18], "conflict simulation.addressmapping.ROW_BIT"),
    ("addressmapping.BANK_BIT", [33, 32], "unsupported simulation.addressmapping.BANK_BIT"),
    ("addressmapping.BANK_BIT", [32, [33, 17]], "unsupported simulation.addressmapping.BANK_BIT"),
    ("addressmapping.BANK_BIT", [32, 34], "conflict simulation.addressmapping"),
    ("addressmapping.BANK_BIT", [32, "x"], "type simulation.addressmapping.BANK_BIT"),
    ("addressmapping.STACK_BIT", [35], "unsupported simulation.addressmapping.STACK_BIT"),
    ("addressmapping.COLUMN_BIT", [6, 7, 9, 10, 11, 12, 13, 3, 4, 5], "unsupported simulation.addressmapping.COLUMN_BIT"),
]  # fmt: skip


@pytest.mark.parametrize(("path", "value", "expected"), MISTAKES)
def test_a_mistake_is_told_with_its_key(tmp_path, path, value, expected):
    with pytest.raises(InputError) as caught:
        imported(tmp_path, changed(path, value))
    assert f"{caught.value.code} {caught.value.key}" == expected, caught.value
    assert caught.value.line


def test_a_part_that_a_file_lacks_is_named(tmp_path):
    (tmp_path / "other.json").write_text(json.dumps({"memspec": SPEC}))
    with refused("missing a.json:3 simulation.addressmapping"):
        imported(tmp_path, changed("addressmapping", "other.json"))
