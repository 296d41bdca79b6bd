"""What other simulators take where a file says nothing, and how they round, transcribed from their sources.

DRAMsim3: src/configuration.cc. Ramulator 2.0: src/dram/impl/DDR4.cpp and DDR5.cpp, `JEDEC_rounding` and
`JEDEC_rounding_DDR5` of src/base/utils.h. Ramulator 2.1: `timing_params` of python/ramulator/dram/ddr4.py.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from mistakes import refused
from ndpsim.config import Hardware, load_hardware
from ndpsim.config.importers import Imported, import_hardware


def imported(folder: Path, name: str, text: str) -> tuple[Imported, Hardware]:
    path = folder / name
    path.write_text(text)
    result = import_hardware(path)
    again = folder / "imported.yaml"
    again.write_text(result.text)
    return result, load_hardware(str(again))


# DRAMsim3

SIZES = {"protocol": "DDR4", "bankgroups": 4, "banks_per_group": 4, "rows": 65536, "columns": 1024, "device_width": 8, "BL": 8}  # fmt: skip

# Config::InitTimingParams, and Config::InitSystemParams below.
TIMING_DEFAULTS = {
    "CL": ("nCL", 12), "CWL": ("nCWL", 12), "tCCD_L": ("nCCDL", 6), "tCCD_S": ("nCCDS", 4), "tRTRS": ("nCS", 2),
    "tRTP": ("nRTP", 5), "tWTR_L": ("nWTRL", 5), "tWTR_S": ("nWTRS", 5), "tWR": ("nWR", 10), "tRP": ("nRP", 10),
    "tRRD_L": ("nRRDL", 4), "tRRD_S": ("nRRDS", 4), "tRAS": ("nRAS", 24), "tRCD": ("nRCD", 10), "tRFC": ("nRFC", 74),
    "tREFI": ("nREFI", 7800), "tFAW": ("nFAW", 50),
}  # fmt: skip


def ini(**sections: dict[str, object]) -> str:
    return "".join(
        f"[{name}]\n" + "".join(f"{key} = {value}\n" for key, value in keys.items())
        for name, keys in sections.items()
    )


def test_dramsim3_without_timings_and_system(tmp_path):
    result, hardware = imported(tmp_path, "a.ini", ini(dram_structure=SIZES, timing={"tCK": 0.625}))
    timings = hardware.lane_device().timings
    expected = dict(TIMING_DEFAULTS.values()) | {"nRC": 24 + 10, "nBL": 4}
    assert {name: timings[name] for name in expected} == expected
    system = hardware.system
    # chrobabgraco
    assert system.dram.mapping.order == ["column", "rank", "bankgroup", "bank", "row", "channel"]
    assert (system.dram.row_policy, system.dram.refresh) == ("open", "staggered")
    assert (system.dram.read_buffer, system.dram.write_buffer) == (32, 32)
    # 1024 MB hold no whole rank of 8 GiB: DRAMsim3 takes one.
    assert (system.host.channels, system.dimm.count, system.dimm.ranks) == (1, 1, 1)
    for key, (ours, clocks) in TIMING_DEFAULTS.items():
        words = f"[timing] {key} is missing; DRAMsim3 takes {clocks} clocks, and so does this file"
        assert any(note.endswith(words) for note in result.notes), key
        origin = hardware.origins.get(f"dram.overrides.{ours}")
        assert origin is None or f"which is missing: DRAMsim3's default of {clocks}" in origin.text
    said = dict(channels=1, channel_size=1024, address_mapping="chrobabgraco", trans_queue_size=32)
    said |= dict(row_buf_policy="OPEN_PAGE", refresh_policy="RANK_LEVEL_STAGGERED")
    for key, default in said.items():
        words = f"[system] {key} is missing; DRAMsim3 takes {default}, and so does this file"
        assert any(note.endswith(words) for note in result.notes), key


@pytest.mark.parametrize(
    ("key", "default", "fits"),
    [("rows", 65536, True), ("columns", 1024, True), ("device_width", 8, True), ("BL", 8, True), ("bankgroups", 2, False), ("banks_per_group", 2, False)],
)  # fmt: skip
def test_dramsim3_without_a_size(tmp_path, key, default, fits):
    sizes = {name: value for name, value in SIZES.items() if name != key}
    path = tmp_path / "a.ini"
    path.write_text(ini(dram_structure=sizes, timing={"tCK": 0.625}))
    if not fits:
        with refused(f"conflict a.ini [dram_structure] {key}"):
            import_hardware(path)
        return
    result = import_hardware(path)
    assert "value: DDR4_8Gb_x8" in result.text
    assert any(f"{key} is missing; DRAMsim3 takes {default}" in note for note in result.notes) is (
        key != "BL"
    )


def test_dramsim3_without_a_clock_takes_a_nanosecond(tmp_path):
    path = tmp_path / "a.ini"
    path.write_text(ini(dram_structure=SIZES))
    # 2000 MT/s: no rate of DDR4 is within 2%.
    with refused("range a.ini [timing] tCK"):
        import_hardware(path)


@pytest.mark.parametrize(
    ("tck", "rate"),
    [
        ("0.6128", 3200),  # 3263.7 MT/s
        ("0.6127", None),  # 3264.2: 2% are 3264
        ("1.2755", 1600),  # 1568.01
        ("1.2756", None),  # 1567.9: 2% are 1568
        ("0.6522", 3200),  # 3066.5; half way between 2933 and 3200 no rate is near
    ],
)
def test_a_rate_is_at_most_two_percent_away(tmp_path, tck, rate):
    path = tmp_path / "a.ini"
    path.write_text(ini(dram_structure=SIZES, timing={"tCK": tck}))
    if rate is None or tck == "0.6522":
        with refused("range a.ini:10 [timing] tCK"):
            import_hardware(path)
    else:
        assert f"DDR4_{rate}" in import_hardware(path).text


@pytest.mark.parametrize(
    ("size_mb", "ranks", "made_mb"),
    [(8191, 1, 8192), (8192, 1, None), (16383, 1, 8192), (16384, 2, None), (24577, 3, 24576)],
)
def test_ranks_are_rounded_down_as_in_dramsim3(tmp_path, size_mb, ranks, made_mb):
    text = ini(dram_structure=SIZES, timing={"tCK": 0.625}, system={"channel_size": size_mb})
    result, hardware = imported(tmp_path, "a.ini", text)
    assert hardware.system.dimm.ranks == ranks
    said = [note for note in result.notes if "channel_size:" in note]
    assert bool(said) is (made_mb is not None)
    assert all(f"{size_mb} MB become {made_mb} MB, {ranks} x a rank of 8192 MB" in note for note in said)


def test_a_rank_has_as_many_chips_as_its_channel_is_wide(tmp_path):
    """Sixteen chips of 4 pins and 1 GB."""
    sizes = {**SIZES, "rows": 131072, "device_width": 4}
    text = ini(dram_structure=sizes, timing={"tCK": 0.625}, system={"channel_size": 32768})
    result, hardware = imported(tmp_path, "a.ini", text)
    assert hardware.system.dimm.ranks == 2
    assert not [note for note in result.notes if "channel_size:" in note]


# Ramulator 2.0


def rounding_ddr4(ns: float, tck_ps: int) -> int:
    return ((int(ns * 1000) * 1000 // tck_ps) + 974) // 1000


def rounding_ddr5(ns: float, tck_ps: int) -> int:
    return ((int(ns * 1000) * 997 // tck_ps) + 1000) // 1000


# By rate: tCK_ps = 1e6 / (rate / 2), nRRDS, nRRDL and nFAW by width, and what all speed bins share.
OLD_DDR4 = {
    1600: (1250, (4, 4, 5), (5, 5, 6), (16, 20, 28), "J", dict(nCL=10, nRAS=28, nRC=38, nWR=12, nRTP=6, nCWL=9, nCCDL=5, nWTRS=2, nWTRL=6)),
    1866: (1071, (4, 4, 5), (5, 5, 6), (16, 22, 28), "M", dict(nCL=13, nRAS=32, nRC=45, nWR=14, nRTP=7, nCWL=10, nCCDL=5, nWTRS=3, nWTRL=7)),
    2133: (938, (4, 4, 6), (6, 6, 7), (16, 23, 32), "R", dict(nCL=16, nRAS=36, nRC=52, nWR=16, nRTP=8, nCWL=11, nCCDL=6, nWTRS=3, nWTRL=8)),
    2400: (833, (4, 4, 7), (6, 6, 8), (16, 26, 36), "T", dict(nCL=18, nRAS=39, nRC=57, nWR=18, nRTP=9, nCWL=12, nCCDL=6, nWTRS=3, nWTRL=9)),
    2666: (750, (4, 4, 8), (7, 7, 9), (16, 28, 40), "U", dict(nCL=18, nRAS=43, nRC=61, nWR=20, nRTP=10, nCWL=14, nCCDL=7, nWTRS=4, nWTRL=10)),
    2933: (682, (4, 4, 8), (8, 8, 10), (16, 31, 44), "AA", dict(nCL=22, nRAS=47, nRC=69, nWR=22, nRTP=11, nCWL=16, nCCDL=8, nWTRS=4, nWTRL=11)),
    3200: (625, (4, 4, 9), (8, 8, 11), (16, 34, 48), "AC", dict(nCL=24, nRAS=52, nRC=76, nWR=24, nRTP=12, nCWL=16, nCCDL=8, nWTRS=4, nWTRL=12)),
}  # fmt: skip
OLD_DDR5 = {"AN": (24, 75, 22), "BN": (26, 77, 24), "C": (28, 79, 26)}  # nCL, nRC, nCWL


def old(standard: str, org: str, timing: str, **more: object) -> str:
    dram = {"impl": standard, "org": {"preset": org}, "timing": {"preset": timing, **more}}
    return yaml.safe_dump({"MemorySystem": {"impl": "GenericDRAM", "DRAM": dram}})


@pytest.mark.parametrize("rate", OLD_DDR4)
def test_presets_of_ddr4_in_ramulator_2_0(tmp_path, rate):
    tck_ps, rrd_s, rrd_l, faw, grade, shared = OLD_DDR4[rate]
    for place, dq in enumerate((4, 8, 16)):
        for gigabits, refresh_ns in ((2, 160), (4, 260), (8, 360), (16, 550)):
            if (dq + gigabits) % 3 and rate != 2133:  # elsewhere a third of all is enough
                continue
            expected = shared | dict(nBL=4, nCCDS=4, nCS=2, nRCD=shared["nCL"], nRP=shared["nCL"])
            expected |= dict(nRRDS=rrd_s[place], nRRDL=rrd_l[place], nFAW=faw[place])
            expected |= dict(nRFC=rounding_ddr4(refresh_ns, tck_ps), nREFI=rounding_ddr4(7800, tck_ps))
            text = old("DDR4", f"DDR4_{gigabits}Gb_x{dq}", f"DDR4_{rate}{grade}")
            result, hardware = imported(tmp_path, "a.yaml", text)
            timings = hardware.lane_device().timings
            assert {name: timings[name] for name in expected} == expected, (dq, gigabits)
            assert result.notes == ()  # these are presets of Ramulator 2.0 as published


@pytest.mark.parametrize("grade", OLD_DDR5)
def test_presets_of_ddr5_in_ramulator_2_0(tmp_path, grade):
    cl, rc, cwl = OLD_DDR5[grade]
    for dq, faw in ((4, 40), (8, 32), (16, 32)):
        for gigabits, refresh_ns in ((8, 195), (16, 295), (32, 410)):
            expected = dict(
                nBL=8, nCL=cl, nRCD=cl, nRP=cl, nRAS=52, nRC=rc, nWR=48, nRTP=12, nCWL=cwl, nPPD=2
            )
            # The distances from write to read there are nCWL + nBL and 4, 16 clocks more.
            expected |= dict(nCCDS=8, nCCDL=8, nCCDS_WR=8, nCCDL_WR=32 if dq == 4 else 16, nWTRS=4, nWTRL=16)
            expected |= dict(nRRDS=8, nRRDL=5, nFAW=faw, nCS=2, nREFSBRD=48)
            expected |= dict(nRFC=rounding_ddr5(refresh_ns, 625), nREFI=rounding_ddr5(3900, 625))
            text = old("DDR5", f"DDR5_{gigabits}Gb_x{dq}", f"DDR5_3200{grade}")
            result, hardware = imported(tmp_path, "a.yaml", text)
            timings = hardware.lane_device().timings
            assert {name: timings[name] for name in expected} == expected, (dq, gigabits)
            assert result.notes == ()  # these are presets of Ramulator 2.0 as published


@pytest.mark.parametrize(
    ("standard", "timing", "ns", "clocks"),
    [
        # DDR4: what is over by less than 2.6% of a clock is not counted.
        ("DDR4", "DDR4_3200AA", 13.75, 22),
        ("DDR4", "DDR4_3200AA", 13.766, 22),  # 22.0256 clocks
        ("DDR4", "DDR4_3200AA", 13.767, 23),  # 22.0272 clocks
        ("DDR4", "DDR4_3200AA", 13.7669, 22),  # whole picoseconds
        ("DDR4", "DDR4_3200AA", 13.74, 22),
        # 938 ps, not 937, at 2133 MT/s: 15.021 clocks instead of 15.037.
        ("DDR4", "DDR4_2133N", 14.09, 15),
        # DDR5: 0.3% of the time is taken off, and the rest rounded up.
        ("DDR5", "DDR5_3200AN", 15.0, 24),
        ("DDR5", "DDR5_3200AN", 15.045, 24),  # 23.9998 clocks after 0.3%
        ("DDR5", "DDR5_3200AN", 15.046, 25),  # 24.0014
        ("DDR5", "DDR5_3200AN", 14.9, 24),
        ("DDR5", "DDR5_3200AN", 14.4, 23),
    ],
)
def test_nanoseconds_in_ramulator_2_0_are_rounded_as_there(tmp_path, standard, timing, ns, clocks):
    org = f"{standard}_8Gb_x8"
    device = imported(tmp_path, "a.yaml", old(standard, org, timing, tRP=ns))[1].lane_device()
    assert device.timings["nRP"] == clocks
    assert clocks == (rounding_ddr4(ns, 938 if "2133" in timing else 625) if standard == "DDR4" else rounding_ddr5(ns, 625))  # fmt: skip


def test_turnarounds_are_less_the_latency_that_is_written(tmp_path):
    """nCCDS_WTR and nCCDL_WTR count from command to command: nCWL, written or the preset's, and nBL go off."""
    for more, cwl in (({}, 22), ({"nCWL": 25}, 25)):
        text = old("DDR5", "DDR5_16Gb_x8", "DDR5_3200AN", nCCDS_WTR=50, nCCDL_WTR=60, **more)
        timings = imported(tmp_path, "a.yaml", text)[1].lane_device().timings
        assert (timings["nWTRS"], timings["nWTRL"]) == (50 - cwl - 8, 60 - cwl - 8)


def test_ramulator_2_0_where_nothing_is_said(tmp_path):
    result, hardware = imported(tmp_path, "a.yaml", old("DDR4", "DDR4_8Gb_x8", "DDR4_3200AA"))
    assert result.notes == ()
    said = {key for key, origin in hardware.origins.items() if origin.kind != "default"}
    # 2.0 has 360 ns for tRFC of 8 Gb, JESD79-4 350 ns.
    assert said == {"name", "dram.standard", "dram.org", "dram.timing", "dram.overrides.nRFC"}
    assert (hardware.system.dimm.ranks, hardware.system.host.channels) == (1, 1)


# Ramulator 2.1

DDR4_ORDER = "rate nBL nCL nRCD nRP nRAS nRC nWR nRTP nCWL nCCDS nCCDL nRRDS nRRDL nWTRS nWTRL nFAW nRFC nREFI nCS tCK_ps"
DDR5_ORDER = "rate nBL nCL nRCD nRP nRAS nRC nWR nRTP nCWL nPPD nCCDS nCCDL nCCDS_WR nCCDL_WR nRRDS nRRDL nWTRS nWTRL nFAW nRFC nREFI nCS tCK_ps"


@pytest.mark.parametrize(
    ("standard", "order", "rate", "tck_ps", "org"),
    [
        ("DDR4", DDR4_ORDER, 2666, 750, {"dq": 8, "count": [1, 1, 4, 4, 65536, 1024]}),
        ("DDR5", DDR5_ORDER, 5600, 357, {"dq": 8, "count": [1, 1, 8, 4, 65536, 1024]}),
    ],
)
def test_a_timing_list_of_ramulator_2_1_is_read_in_its_order(tmp_path, standard, order, rate, tck_ps, org):
    written = {name: 101 + place for place, name in enumerate(order.split())}
    written |= {"rate": rate, "tCK_ps": tck_ps}
    written["nRC"] = written["nRAS"] + written["nRP"]  # less would contradict them
    dram = {"impl": standard, "org": org, "timing": list(written.values())}
    text = json.dumps({"memory_system": {"controllers": [{"dram": dram}]}})
    result, hardware = imported(tmp_path, "a.yaml", text)
    timings = hardware.lane_device().timings
    assert {name: timings[name] for name in written} == written
    assert result.notes == ()


# What has no place in a hardware file, and why.

LEFT_OUT_OF_DRAMSIM3 = {
    "dram_structure": "num_dies",
    "timing": "tRFC2 tRFC4 tCKE tCKESR tXS tXP tRPRE tWPRE tRFCb tREFIb tPPD t32AW tRCDRD tRCDWR tWR2 tCKSRE "
    "ideal_memory_latency",
    "power": "VDD IDD0 IPP0 IDD2P IDD6x",
    "thermal": "const_logic_power amb_temp",
    "hmc": "num_links block_size",
    "system": "queue_structure cmd_queue_size write_buf_size enable_self_refresh sref_threshold",
    "other": "epoch_period output_level",
}


@pytest.mark.parametrize("section", LEFT_OUT_OF_DRAMSIM3)
def test_each_key_of_dramsim3_without_a_place_is_noted_with_a_reason(tmp_path, section):
    path = tmp_path / "a.ini"
    for key in LEFT_OUT_OF_DRAMSIM3[section].split():
        sections = {"dram_structure": SIZES, "timing": {"tCK": 0.625}}
        sections[section] = {**sections.get(section, {}), key: 1}
        path.write_text(ini(**sections))
        line = path.read_text().splitlines().index(f"{key} = 1") + 1
        (note,) = [note for note in import_hardware(path).notes if note.startswith(f"{path}:{line}: ")]
        assert f": [{section}] {key}: left out: " in note
        assert "unknown key" not in note


@pytest.mark.parametrize("word", ["true", "yes", "on", "1", "TRUE", "false", "no", "off", "0", "False"])
def test_words_for_yes_and_no(tmp_path, word):
    path, keys = tmp_path / "a.ini", ("unified_queue", "aggressive_precharging_enabled")
    path.write_text(ini(dram_structure=SIZES, timing={"tCK": 0.625}, system=dict.fromkeys(keys, word)))
    notes = " ".join(import_hardware(path).notes)
    yes = word.lower() in ("true", "yes", "on", "1")
    assert [f"[system] {key} is left out: " in notes for key in keys] == [yes, yes]


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        ("RFM", {"BRC": 2}, "RFM: left out: refresh management is not modelled"),
        ("current", "x", "current: left out: energy follows from the data sheet"),
        ("colour", "red", "colour: left out: not known to ndpsim"),
    ],
)
def test_each_key_of_ramulator_2_0_without_a_place_is_noted_with_the_reason(tmp_path, key, value, why):
    config = yaml.safe_load(old("DDR4", "DDR4_8Gb_x8", "DDR4_3200AA"))
    config["MemorySystem"]["DRAM"][key] = value
    notes = imported(tmp_path, "a.yaml", yaml.safe_dump(config))[0].notes
    (note,) = notes
    assert f"MemorySystem.DRAM.{why}" in note


@pytest.mark.parametrize(
    ("where", "key"),
    [
        ("", "clock_ratio"),
        ("controller", "priority_buffer_size"),
        ("dram", "command_cycles"),
        ("dram", "read_latency"),
        ("dram", "timing_constraints"),
    ],
)
def test_each_key_of_ramulator_2_1_without_a_place_is_noted(tmp_path, where, key):
    device = dict.fromkeys(DDR4_ORDER.split(), 9) | {"rate": 3200, "tCK_ps": 625, "nRC": 9 + 9}
    org = {"dq": 8, "count": [1, 1, 4, 4, 65536, 1024]}
    dram = {"impl": "DDR4", "org": org, "timing": list(device.values())}
    controller = {"dram": dram}
    memory = {"controllers": [controller]}
    {"": memory, "controller": controller, "dram": dram}[where][key] = 7
    (note,) = imported(tmp_path, "a.yaml", json.dumps({"memory_system": memory}))[0].notes
    assert f"{key}: left out: " in note


@pytest.mark.parametrize(("key", "fixed"), [("wr_low_watermark", 0.2), ("wr_high_watermark", 0.8)])
def test_watermarks_are_fixed(tmp_path, key, fixed):
    for level in (fixed, 0.5):
        config = yaml.safe_load(old("DDR4", "DDR4_8Gb_x8", "DDR4_3200AA"))
        config["MemorySystem"]["Controller"] = {"impl": "Generic", key: level}
        notes = imported(tmp_path, "a.yaml", yaml.safe_dump(config))[0].notes
        assert [note.partition(": left out: ")[2] for note in notes] == (
            [] if level == fixed else [f"it is {fixed} here, not 0.5"]
        )


@pytest.mark.parametrize("channels", [1, 8])
def test_channels_and_ranks_of_ramulator(tmp_path, channels):
    config = yaml.safe_load(old("DDR4", "DDR4_8Gb_x8", "DDR4_3200AA"))
    config["MemorySystem"]["DRAM"]["org"] |= {"channel": channels, "rank": 16}
    before = imported(tmp_path, "a.yaml", yaml.safe_dump(config))[1].system
    timing = dict.fromkeys(DDR4_ORDER.split(), 9) | {"rate": 3200, "tCK_ps": 625, "nRC": 9 + 9}
    org = {"dq": 8, "count": [1, 16, 4, 4, 65536, 1024]}
    controller = {"dram": {"impl": "DDR4", "org": org, "timing": list(timing.values())}}
    memory = {"controllers": [controller] * channels}
    now = imported(tmp_path, "b.yaml", json.dumps({"memory_system": memory}))[1].system
    for system in (before, now):
        assert (system.host.channels, system.dimm.count, system.dimm.ranks) == (channels, channels, 16)
        assert system.dimm.subchannels == 1
