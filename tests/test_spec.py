"""Presets of all DRAM standards, their way into integer tables, and mistakes in a standard's page."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mistakes import refused
from ndpsim.base.errors import InputError
from ndpsim.dram.spec import NO_RULE, lower, resolve, standard_names, standards
from ndpsim.dram.spec.lower import BUSY, CLOCKS, COMPLETED_BY
from ndpsim.dram.spec.standard import latency_terms

COMMANDS = standards()["DDR5"].by_number

ACT, _, RD, WR, RDA, WRA, _, REFAB = range(8)

ORGS = [(standard, org) for standard in standard_names() for org in standards()[standard].organisations]
SPEEDS = [(standard, speed) for standard in standard_names() for speed in standards()[standard].speeds]


def device_of(standard: str, speed: str):
    """Of the first organisation."""
    return resolve(standard, next(iter(standards()[standard].organisations)), speed)


# Presets


@pytest.mark.parametrize(
    ("standard", "org"), [one for one in ORGS if one[0] not in ("HBM3", "HBM4", "LPDDR6")]
)
def test_banks_rows_columns_and_pins_make_the_density(standard, org):
    chip = standards()[standard].organisations[org]
    bits = chip.bankgroups * chip.banks_per_group * chip.rows * chip.columns * chip.dq
    channels = {"GDDR6": 2, "GDDR7": 4}.get(standard, 1)
    assert channels * bits == chip.density_mb << 20
    assert org == f"{standard}_{chip.density_mb >> 10}Gb_x{chip.dq}"


@pytest.mark.parametrize(("standard", "speed"), SPEEDS)
def test_a_preset_agrees_with_itself(standard, speed):
    known = standards()[standard]
    timings = device_of(standard, speed).timings
    rate, tck_ps = timings["rate"], timings["tCK_ps"]
    assert speed.startswith(f"{standard}_{rate * (2 if standard == 'MRDIMM' else 1)}")
    exact_ps = Fraction(1_000_000 * known.transfers_per_clock, rate)
    # To a whole ps; JESD209-5C has 1453 ps at 5500 MT/s, where 1454.5 ps are exact.
    assert abs(exact_ps - tck_ps) < (2 if speed == "LPDDR5_5500" else 1)
    assert abs(timings["nRC"] - timings["nRAS"] - timings["nRP"]) <= 1  # of GDDR6, one less
    assert timings[known.burst] == known.prefetch // known.transfers_per_clock
    assert all(
        isinstance(clocks, int) and clocks >= (name not in ("nCAS", "nDQERL", "nRPST"))
        for name, clocks in timings.items()
    )


# Rules


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("nCL", [(1, "nCL")]),
        ("nCL + nBL + 2 - nCWL", [(1, "nCL"), (1, "nBL"), (1, 2), (-1, "nCWL")]),
        (" nCL-nCWL ", [(1, "nCL"), (-1, "nCWL")]),
        ("-3 + nCCDS_WR", [(-1, 3), (1, "nCCDS_WR")]),
    ],
)
def test_a_latency_is_a_sum(text, terms):
    assert latency_terms(text) == tuple(terms)


@pytest.mark.parametrize("text", ["nCL nBL", "nCL +", "2nCL", "nCL * 2", "+", "nCL + (nBL)", "nCL ++ nBL"])
def test_what_is_no_sum_is_refused(text):
    with pytest.raises(ValueError, match="not a sum of timings"):
        latency_terms(text)


# Tables


@settings(deadline=None)
@given(clock=st.integers(0, 1 << 39), speed=st.sampled_from(SPEEDS))
def test_where_no_rule_stands_nothing_is_bound(clock, speed):
    device = device_of(*speed)
    tables = lower(device)
    for table in (tables.gap, tables.sibling_gap):
        free = table == NO_RULE
        assert free.any()
        assert (clock + table[free] < 0).all()  # in the past, whenever the earlier command was
        # What does bind is a distance that a run can live with, never below what two-cycle commands take off.
        assert (np.abs(table[~free]) < 1 << 20).all()


def test_every_bank_command_waits_for_itself_in_its_bank():
    for standard, speed in SPEEDS:
        tables = lower(device_of(standard, speed))
        second = int(tables.commands[ACT, COMPLETED_BY])  # of LPDDR, from which rows count
        for command in (ACT if second < 0 else second, RD, WR, RDA, WRA):
            assert tables.gap[:, command, command].max() >= tables.burst, (speed, command)


# Overrides


def test_an_override_changes_no_preset():
    resolve("DDR5", "DDR5_16Gb_x8", "DDR5_4800AN", overrides={"nCL": 40})
    assert resolve("DDR5", "DDR5_16Gb_x8", "DDR5_4800AN").timings["nCL"] == 34


def test_every_timing_can_be_overridden_by_its_name():
    for name in sorted(set(standards()["DDR5"].speeds["DDR5_4800AN"]) - {"rate", "tCK_ps"}):
        value = 77 + 34 * (name == "nRC")
        overrides = {"nRC": 154, name: value}
        timings = resolve("DDR5", "DDR5_16Gb_x8", "DDR5_4800AN", overrides=overrides).timings
        assert timings[name] == value, name


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("nCl", 40, "unknown-name nCl ? nCL"),
        ("nFAV", 40, "unknown-name nFAV ? nFAW"),
        ("tRCD", 40, "form tRCD"),
        ("tRDC", "14ns", "unknown-name tRDC ? tRC"),
        ("nRCD", "14", "type nRCD"),
        ("nRCD", "14 m", "type nRCD"),
        ("tRCD", "0.5s", "form tRCD"),
        ("tRCD", "9999999us", "range tRCD"),
        ("nRAS", 79, "conflict nRAS"),
        ("tRP", "15ns", "conflict tRP"),
        ("nRC", 109, "conflict nRC"),
        ("rate", 5000, "conflict rate"),
        ("tCK_ps", 400, "conflict tCK_ps"),
        ("tCK", "0.5ns", "conflict tCK"),
        *(("nCL", value, "range nCL") for value in (0, -5, 1_000_001)),
        *(("nCL", value, "type nCL") for value in (40.0, "40", True, None)),
        ("bankgrups", 4, "unknown-name bankgrups ? bankgroups"),
        ("rows", 100, "range rows"),
        ("banks", 12, "range banks"),
        ("width", 64, "range width"),
        ("columns", 8, "range columns"),
        ("density", "16", "form density"),
        ("density", "32Gb", "conflict density"),
        ("bankgroups", 2, "missing nRFC"),
        ("banks", 4, "conflict banks"),
    ],
)
def test_a_bad_override_is_refused_by_name(name, value, words):
    with refused(words):
        resolve("DDR5", "DDR5_16Gb_x8", "DDR5_4800AN", overrides={name: value})


@pytest.mark.parametrize("overrides", [{"nRAS": 90}, {"nRC": 100, "nRAS": 90}, {"nRAS": 90, "nRC": 1}])
def test_a_row_cycle_that_is_too_short_is_refused_with_one_that_would_do(overrides):
    """Also if nRC itself was given: "set nRC, too" would help nobody then."""
    with pytest.raises(InputError, match="set nRC to 124 or more"):
        resolve("DDR5", "DDR5_16Gb_x8", "DDR5_4800AN", overrides=overrides)
    assert resolve("DDR5", "DDR5_16Gb_x8", "DDR5_4800AN", overrides=overrides | {"nRC": 124})


@pytest.mark.parametrize(
    ("standard", "name", "time", "clocks", "words"),
    [
        # JESD79-5C, 13.2: 14160 x 997 / 416 / 1000 = 33.9, so 34 and not 35.
        ("DDR5", "tRCD", "14.16ns", 34, "14.16 ns -> 34 clocks, rounded by JESD79-5C, 13.2"),
        # 48000 x 997 / 416 / 1000 = 115.04; with the clock of 416.67 ps it would be 114.85.
        ("DDR5", "tFAW", "48ns", 116, "48 ns -> 116 clocks, rounded by JESD79-5C, 13.2"),
        ("DDR5", "nCCDL_WR", "20 ns", 48, "20 ns -> 48 clocks, rounded by JESD79-5C, 13.2"),
        ("DDR5", "tCCD_L_WR", "20ns", 48, "20 ns -> 48 clocks, rounded by JESD79-5C, 13.2"),
        ("DDR5", "tREFI", "3.9us", 9360, "3.9 us -> 9360 clocks, rounded down"),
        ("DDR4", "tAA", "13.75ns", 22, "13.75 ns -> 22 clocks, rounded up"),
        ("DDR4", "tRRD_L", "4.9ns", 8, "4.9 ns -> 8 clocks, rounded up"),
        # The second half of an activation comes no later; 5.6 clocks of 1.25 ns.
        ("LPDDR5", "tAAD", "7ns", 5, "7 ns -> 5 clocks, rounded down"),
    ],
)
def test_a_time_becomes_clocks_by_the_rule_of_its_standard(standard, name, time, clocks, words):
    org, timing = {
        "DDR5": ("DDR5_16Gb_x8", "DDR5_4800AN"),
        "DDR4": ("DDR4_8Gb_x8", "DDR4_3200AA"),
        "LPDDR5": ("LPDDR5_16Gb_x16", "LPDDR5_6400"),
    }[standard]
    device = resolve(standard, org, timing, overrides={name: time})
    (changed,) = device.rounded
    assert (device.timings[changed], device.rounded[changed], device.sources[changed]) == (
        clocks, words, "override"
    )  # fmt: skip


def test_a_timing_is_given_once():
    with refused("twice nRCD"):
        resolve("DDR5", "DDR5_16Gb_x8", "DDR5_4800AN", overrides={"tRCD": "14ns", "nRCD": 34})


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        # A chip of 8 groups of 4 banks, 65536 rows of 1024 columns of 8 bits.
        ({"rows": 32768}, (8192, 8, 8, 4, 32768, 1024)),
        ({"bankgroups": 4}, (8192, 8, 4, 4, 65536, 1024)),
        ({"banks": 64}, (32768, 8, 8, 8, 65536, 1024)),
        ({"banks": 32, "bankgroups": 4}, (16384, 8, 4, 8, 65536, 1024)),
        ({"banks": 32, "banks_per_group": 2}, (16384, 8, 16, 2, 65536, 1024)),
        ({"width": "x4", "density": "8Gb"}, (8192, 4, 8, 4, 65536, 1024)),
        ({"columns": 2048, "density": "32Gb"}, (32768, 8, 8, 4, 65536, 2048)),
        ({"density": "16384Mb"}, (16384, 8, 8, 4, 65536, 1024)),
    ],
)
def test_sizes_of_a_chip_are_changed_and_make_its_density(sizes, expected):
    device = resolve("DDR5", "DDR5_16Gb_x8", "DDR5_4800AN", overrides=sizes)
    chip = device.organisation
    found = chip.density_mb, chip.dq, chip.bankgroups, chip.banks_per_group, chip.rows, chip.columns
    assert found == expected
    assert device.org.startswith("DDR5_16Gb_x8 with ")
    assert all(f"{name}=" in device.org for name in sizes)


def test_derived_timings_follow_the_density_and_the_width():
    """tRFC of 8, 16 and 32 Gb is 195, 295 and 410 ns (JESD79-5)."""
    small, plain, large = (
        resolve("DDR5", "DDR5_16Gb_x8", "DDR5_4800AN", overrides={"rows": rows}).timings["nRFC"]
        for rows in (1 << 15, 1 << 16, 1 << 17)
    )
    of_presets = [
        resolve("DDR5", f"DDR5_{density}Gb_x8", "DDR5_4800AN").timings["nRFC"] for density in (8, 16, 32)
    ]
    assert [small, plain, large] == of_presets
    wide = resolve("DDR5", "DDR5_16Gb_x8", "DDR5_4800AN", overrides={"width": 16})
    assert wide.timings["nFAW"] == resolve("DDR5", "DDR5_16Gb_x16", "DDR5_4800AN").timings["nFAW"]
    # A density that the standard has no tRFC for needs one.
    own = {"bankgroups": 2, "tRFC": "120ns", "tRFCsb": "80ns"}
    timings = resolve("DDR5", "DDR5_16Gb_x8", "DDR5_4800AN", overrides=own).timings
    assert (timings["nRFC"], timings["nRFCsb"]) == (288, 192)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("DDR6", "DDR5_16Gb_x8", "DDR5_4800AN"), "unknown-name standard ? GDDR6"),
        (("DDR5", "DDR5_16GB_x8", "DDR5_4800AN"), "unknown-name org ? DDR5_16Gb_x8"),
        (("DDR5", "DDR4_8Gb_x8", "DDR5_4800AN"), "unknown-name org ? DDR5_8Gb_x8"),
        (("DDR5", "DDR5_16Gb_x8", "DDR5_4800A"), "unknown-name timing ? DDR5_4800AN"),
        (("DDR5", "DDR5_16Gb_x8", "DDR5_4800AN", 0), "range ranks"),
        (("DDR5", "DDR5_16Gb_x8", "DDR5_4800AN", 65), "range ranks"),
        (("DDR5", "DDR5_16Gb_x8", "DDR5_4800AN", 2.0), "type ranks"),
        (("DDR5", "DDR5_16Gb_x8", "DDR5_4800AN", True), "type ranks"),
    ],
)
def test_a_bad_name_or_number_is_refused(arguments, words):
    with refused(words):
        resolve(*arguments)


#: Densities whose tRFC no public source states; the reference takes that of another.
WITHOUT_TRFC = {("GDDR6", f"GDDR6_{gb}Gb_x{dq}") for gb in (16, 32) for dq in (8, 16)}
WITHOUT_TRFC |= {("GDDR7", f"GDDR7_{gb}Gb_x8") for gb in (32, 64)}


@pytest.mark.parametrize(("standard", "org"), [one for one in ORGS if one not in WITHOUT_TRFC])
def test_every_organisation_goes_with_every_speed(standard, org):
    for speed in standards()[standard].speeds:
        tables = lower(resolve(standard, org, speed))
        assert (tables.windows[:, CLOCKS:].max(axis=1, initial=0) > 0).all()
        assert (len(tables.windows) > 0) == (standard != "GDDR7")  # it has no tFAW
        assert tables.refresh_interval > tables.commands[REFAB, BUSY] > 0


@pytest.mark.parametrize(("standard", "org"), sorted(WITHOUT_TRFC))
def test_a_density_without_a_source_needs_its_trfc_from_the_user(standard, org):
    for speed in standards()[standard].speeds:
        with refused("missing nRFCab"):
            resolve(standard, org, speed)
        given = {"nRFCab": 300, "nRFCpb": 100}
        given |= {"nRFMab": 300, "nRFMpb": 100} if standard == "GDDR7" else {}
        assert resolve(standard, org, speed, overrides=given).timings["nRFCab"] == 300
        assert resolve(standard, org, speed, rules="reference").timings["nRFCab"] in (211, 315)


# Sources


@pytest.mark.parametrize("standard", standard_names())
def test_every_timing_of_every_preset_has_a_source(standard):
    page = standards()[standard]
    names = {speed: {*timings, *page.derived} - {"rate", "tCK_ps"} for speed, timings in page.speeds.items()}
    missing = {
        f"{speed}/{name}" for speed in names for name in names[speed] if not page.source_of(name, speed)
    }
    assert not missing
    # What is cited exists.
    presets = {f"{speed}/{name}" for speed in names for name in names[speed]}
    clock = {"rate", "tCK_ps"}
    cited = {name for name in page.cited if name.rpartition("/")[2] not in clock}
    assert cited <= presets | {name for known in names.values() for name in known}


def test_a_preset_of_one_set_of_rules_is_refused_under_the_other(monkeypatch):
    from ndpsim.dram.spec import device, pages

    page = standards()["DDR4"]
    speeds = dict(page.speeds)
    other = replace(
        page,
        speeds={name: speed for name, speed in speeds.items() if name != "DDR4_3200W"},
        reference={
            **page.reference,
            "speeds": {name: speeds[name] for name in speeds if name != "DDR4_3200AC"},
        },
    )
    monkeypatch.setattr(device, "standards", lambda: {**pages.standards(), "DDR4": other})
    for timing, rules, there in (
        ("DDR4_3200W", "standard", "reference"),
        ("DDR4_3200AC", "reference", "standard"),
    ):
        assert resolve("DDR4", "DDR4_8Gb_x8", timing, rules=there).timing == timing
        with refused("unsupported timing") as caught:
            resolve("DDR4", "DDR4_8Gb_x8", timing, rules=rules)
        assert str(caught.value).endswith(f"{timing} is a preset of --rules {there}, not of --rules {rules}")


# ---- A mistake in a standard's page gives one line with the page, the place, the value and what is allowed

DDR3 = re.search(
    r"^```python\n(.*?)^```$",
    (Path(__file__).parents[1] / "docs" / "adding" / "dram-standard.md").read_text(),
    re.DOTALL | re.MULTILINE,
)[1]


@pytest.fixture
def page(tmp_path, monkeypatch):
    """Reads DDR3's page with a text of it changed."""
    package = sys.modules["ndpsim.dram.spec.standards"]
    monkeypatch.setattr(package, "__path__", [*package.__path__, str(tmp_path)])
    file = tmp_path / "mine.py"

    def read(old, new):
        assert old in DDR3
        file.write_text(DDR3.replace(old, new))
        return standards()

    standards.cache_clear()
    yield read
    sys.modules.pop("ndpsim.dram.spec.standards.mine", None)
    vars(package).pop("mine", None)
    standards.cache_clear()


def test_the_page_of_the_docs_is_read(page):
    assert "DDR3" in page("DDR3", "DDR3")


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        # A missing timing, of a rule, of a preset, and of all.
        ("nRTP=5, ", "", ["rule tRTP: latency: unknown timing of DDR3_1333H 'nRTP'", "known: nBL, nCCD"]),
        ('"nRRD")', '"nRDD")', ["rule tRRD: latency: unknown timing of DDR3_1333H 'nRDD'; did you mean 'nRRD'?"]),
        ("nCWL=7, ", "", ["speed DDR3_1333H: states no nCWL, and nothing derives it"]),
        ('        "nREFI": Every(7800),\n', "", ["speed DDR3_1333H: states no nREFI"]),
        # A wrong level.
        ('Rule("tRRD", "rank"', 'Rule("tRRD", "ranks"', ["rule tRRD: level: unknown level 'ranks'; did you mean 'rank'?"]),
        ('"channel", "rank", "bankgroup", "bank"', '"channel", "rank", "bank"', ["has the levels channel, rank, bank; they are four"]),
        ('"channel", "rank", "bankgroup", "bank"', '"channel", "rank", "stack", "half", "bankgroup", "bank"', ["has the levels channel, rank, stack, half"]),
        # A wrong command, or none of the standard's.
        ('("ACT",), ("ACT",), "nRRD"', '("ACT",), ("ACTT",), "nRRD"', ["rule tRRD: next: unknown command 'ACTT'; did you mean 'ACT'?"]),
        ('("PREpb", "PREab"), ("REFab"', '("PREpb", "PREsb"), ("REFab"', ["rule tRP: previous: unknown command 'PREsb'"]),
        ('("ACT",), ("ACT",), "nRRD"', '("ACT",), "ACT", "nRRD"', ["rule tRRD: next: 'ACT' is no tuple of names"]),
        ('Command("ACT", "bank", opens=True)', 'Command("ACT", "bank")', ["no command opens one bank"]),
        ('Command("ACT", "bank", opens=True)', '"ACT"', ["commands: 'ACT' is no Command(...)"]),
        ('Command("ACT", "bank", opens=True)', 'Command("ACT", "bank", opens=True, cycles=1.5)', ["cycles of ACT: 1.5 is not a whole number"]),
        # Numbers that are not whole.
        ("Every(7800)", "Every(127.5)", ["derived nREFI: 127.5 is not a whole number"]),
        ("2048: 160", "2048: 127.5", ["derived nRFC: 127.5 is not a whole number"]),
        ("(1333, 20)", "(1333, 20.5)", ["derived nFAW: 20.5 is not a whole number"]),
        ("nRCD=9, ", "nRCD=13.5, ", ["speed DDR3_1333H: nRCD: 13.5 is not a whole number from 0"]),
        ("rate=1333, ", 'rate="1333", ', ["speed DDR3_1333H: rate: '1333' is not a whole number from 1"]),
        ("prefetch=8", "prefetch=7.5", ["prefetch: 7.5 is not a whole number"]),
        ("1024, 8, 1, 8, 1 << 14, 1024", "1024, 5, 1, 8, 1 << 14, 1024", ["organisation DDR3_1Gb_x8: dq: 5 does not divide"]),
        ('derived={', 'derived={"nXY": 12,', ["derived nXY: 12 is none of AtLeast, ByChannelDensity, ByDensity"]),
        ('"nCL + nCCD + 2 - nCWL"', '"nCL * 2"', ["rule tRTW: latency: 'nCL * 2' is not a sum of timings"]),
        # The page's own code.
        ("_ORGANISATIONS = {", "_ORGANISATIONS = {**{}['x']}\n_OLD = {", ["KeyError: 'x'"]),
        ("STANDARD = Standard(", "STANDARD = Standard(speed=1, ", ["TypeError: "]),
        ("STANDARD = Standard(", "OTHER = Standard(", ["STANDARD: the page does not end in STANDARD = Standard(...)"]),
        ("STANDARD = Standard(", "STANDARD = Standard((", ["SyntaxError: "]),
    ],
)  # fmt: skip
def test_what_is_wrong_is_one_line_that_names_page_place_and_value(page, old, new, words):
    with pytest.raises(InputError) as caught:
        page(old, new)
    problem = str(caught.value)
    assert re.search(r"/mine\.py(:\d+)?: ", problem), problem
    assert "\n" not in problem
    for word in words:
        assert word in problem


def test_an_error_of_the_pages_code_has_the_line_that_raised_it(page):
    before = DDR3.splitlines().index("_ORGANISATIONS = {")
    with refused(f"form mine.py:{before + 2}"):
        page("_ORGANISATIONS = {", "def _wrong():\n    return {}['x']\n_OLD = _wrong()\n_ORGANISATIONS = {")
