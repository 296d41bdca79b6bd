"""A machine file's own clocks belong to its speed grade; another grade takes its preset's."""

from __future__ import annotations

import json
from fractions import Fraction

import pytest

import ndpsim
from ndpsim.cli.main import main
from ndpsim.config import load as loading
from ndpsim.config import load_hardware
from ndpsim.config.files import data_names
from ndpsim.dram.spec import resolve, standards

#: Of TriMoE; test_bundled_values has their values.
OWN = dict(load_hardware("trimoe").system.dram.overrides)


@pytest.fixture
def show(capsys):
    """What `ndpsim show` prints, and says besides."""

    def shown(*words):
        with pytest.raises(SystemExit):
            main(["show", *words])
        return capsys.readouterr()

    return shown


@pytest.fixture(autouse=True)
def _nothing_said_before():
    loading._report_dropped.cache_clear()
    loading._loaded._entries.clear()


@pytest.mark.parametrize("hw", data_names("hwconfigs"))
def test_another_grade_has_the_clocks_of_its_preset_on_every_machine(hw):
    dram = load_hardware(hw).system.dram
    for grade in standards()[dram.standard].speeds:
        timings = load_hardware(hw, [f"dram.timing={grade}"]).lane_device().timings
        own = dram.overrides if grade == dram.timing else {}
        assert timings == resolve(dram.standard, dram.org, grade, overrides=own).timings, grade


def test_another_clock_leaves_the_others_of_the_file():
    hardware = load_hardware("trimoe", ["dram.timing=DDR5_4800B", "dram.nRCD=37"])
    assert hardware.system.dram.overrides == {**OWN, "nRCD": 37}


@pytest.mark.parametrize(
    "given",
    [["dram.timing=DDR5_6400AN", "dram.nCL=50"], ["dram.overrides.nCL=50", "dram.timing=DDR5_6400AN"]],
)
def test_clocks_given_with_the_grade_stay(given):
    hardware = load_hardware("trimoe", given)
    assert hardware.system.dram.overrides == {"nCL": 50}
    assert hardware.lane_device().timings["nRP"] == 46
    assert hardware.dropped == {name: clocks for name, clocks in OWN.items() if name != "nCL"}


def test_one_line_says_what_was_dropped(caplog):
    for ranks in (1, 2, 4):
        load_hardware("trimoe", ["dram.timing=DDR5_6400AN", f"dimm.ranks={ranks}"])
    load_hardware("edge", ["dram.timing=DDR4_2400R"])  # has no clocks of its own
    (record,) = caplog.records
    assert record.getMessage().endswith(
        "trimoe.yaml: overrides of DDR5_4800B are dropped at DDR5_6400AN: nCL 40, nRP 34, nBL 8, nCCDS 8, "
        "nCCDL 12, nRRDS 8, nRRDL 12, nFAW 32, nWR 72, nRCD 36, nRC 113, nCWL 34, nCCDL_WR 48, nRFC 986, "
        "nREFI 9375, nRFCsb 457, nREFSBRD 73, nRTW_DR 10, nWTW_DR 8"
    )


def test_the_command_line_says_it_and_shows_it(show):
    out, err = show("hw", "trimoe", "--set", "dram.timing=DDR5_6400AN", "--json", "-")
    shown = json.loads(out)
    assert (shown["timings"]["nCL"], shown["timings"]["nRP"]) == (46, 46)
    assert shown["dropped_overrides"] == OWN
    assert err.count("\n") == 1
    assert "overrides of DDR5_4800B are dropped at DDR5_6400AN" in err
    rows = {row.key: row for row in load_hardware("trimoe", ["dram.timing=DDR5_6400AN"]).rows()}
    assert rows["timings.nCL"].origin.endswith("; 40 in the file belongs to its own grade")


def test_equal_hardware_has_equal_digests_whatever_was_dropped():
    dropped = load_hardware("trimoe", ["dram.timing=DDR5_6400AN"])
    cleared = load_hardware("trimoe", ["dram.timing=DDR5_6400AN", "dram.overrides={}"])
    assert cleared.dropped == {}
    assert dropped.digest == cleared.digest


def test_a_sweep_over_grades_compares_presets(caplog):
    grades, fixed = ["DDR5_3200AN", "DDR5_6400AN"], {"hw": "trimoe", "shape": "256,128"}
    swept = ndpsim.sweep("gemv", {"dram.timing": grades, "dimm.ranks": [2, 4]}, fixed=fixed, jobs=1)
    assert swept.failed == 0
    said = [record.getMessage() for record in caplog.records]
    assert [text.partition(" at ")[2][:11] for text in said] == grades  # once a grade, not once a point
    for row in swept:
        sets = ["dram.overrides={}", f"dram.timing={row['dram.timing']}", f"dimm.ranks={row['dimm.ranks']}"]
        expected = ndpsim.simulate_expert("trimoe", ndpsim.Expert(256, 128), sets=sets)
        assert row["time_ns"] == expected.time_ns


@pytest.mark.parametrize("standard", sorted(standards()))
def test_the_clock_that_is_shown_is_the_one_that_is_simulated(standard, show):
    for grade, speed in standards()[standard].speeds.items():
        period = Fraction(1_000_000 * standards()[standard].transfers_per_clock, speed["rate"])
        (line,) = (line for line in show("timing", grade).out.splitlines() if line.startswith("tCK_ps "))
        assert Fraction(line.split()[1]) == period
        assert json.loads(show("timing", grade, "--json", "-").out)["tCK_ps"] == float(period)


def test_described_hardware_and_memories_have_the_clock_that_is_simulated():
    hardware = load_hardware("trimoe", ["dram.timing=DDR5_6400AN"])
    assert hardware.to_dict()["timings"]["tCK_ps"] == 312.5
    assert ndpsim.Memory.named(timing="DDR5_6400AN").to_dict()["timings"]["tCK_ps"] == 312.5
    assert {row.key: row.value for row in hardware.rows()}["timings.tCK_ps"] == 312.5
    # Times turn into clocks at JEDEC's rounded clock all the same (JESD79-5C, 13.2).
    assert hardware.lane_device().timings["nRFC"] == (410_000 * 997 // 312 + 1000) // 1000
