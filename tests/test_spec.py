"""Presets of all DRAM standards and their way into integer tables; `test_standard_tables` has their numbers."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mistakes import refused
from ndpsim.spec import NO_RULE, lower, resolve, standard_names, standards
from ndpsim.spec.lower import BUSY, CLOCKS, COMPLETED_BY
from ndpsim.spec.standard import latency_terms

COMMANDS = standards()["DDR5"].by_number

ACT, _, RD, WR, RDA, WRA, _, REFAB = range(8)

ORGS = [(standard, org) for standard in standard_names() for org in standards()[standard].organisations]
SPEEDS = [(standard, speed) for standard in standard_names() for speed in standards()[standard].speeds]


def device_of(standard: str, speed: str):
    """Of the first organisation."""
    return resolve(standard, next(iter(standards()[standard].organisations)), speed)


# Presets


@pytest.mark.parametrize(("standard", "org"), [one for one in ORGS if one[0] != "HBM3"])
def test_banks_rows_columns_and_pins_make_the_density(standard, org):
    chip = standards()[standard].organisations[org]
    bits = chip.bankgroups * chip.banks_per_group * chip.rows * chip.columns * chip.dq
    channels = 2 if standard == "GDDR6" else 1
    assert channels * bits == chip.density_mb << 20
    assert org == f"{standard}_{chip.density_mb >> 10}Gb_x{chip.dq}"


@pytest.mark.parametrize(("standard", "speed"), SPEEDS)
def test_a_preset_agrees_with_itself(standard, speed):
    known = standards()[standard]
    timings = known.speeds[speed]
    rate, tck_ps = timings["rate"], timings["tCK_ps"]
    assert speed.startswith(f"{standard}_{rate}")
    exact_ps = Fraction(1_000_000 * known.transfers_per_clock, rate)
    # To a whole ps; the reference has 570 for 571.4, as corrected 1453 (688 MHz) for 1454.5.
    rounding = 2 if standard == "GDDR6" or speed == "LPDDR5_5500" else 1
    assert abs(exact_ps - tck_ps) < rounding
    assert abs(timings["nRC"] - timings["nRAS"] - timings["nRP"]) <= 1  # of GDDR6, one less
    assert timings[known.burst] == known.prefetch // known.transfers_per_clock
    assert all(isinstance(clocks, int) and clocks >= (name != "nCAS") for name, clocks in timings.items())


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
        second = int(tables.commands[ACT, COMPLETED_BY])
        for command in (ACT if second < 0 else second, RD, WR, RDA, WRA):
            assert tables.gap[:, command, command].max() >= tables.burst, (speed, COMMANDS[command].name)


# Overrides


def test_an_override_changes_no_preset():
    resolve("DDR5", "DDR5_16Gb_x8", "DDR5_4800AN", overrides={"nCL": 40})
    assert resolve("DDR5", "DDR5_16Gb_x8", "DDR5_4800AN").timings["nCL"] == 34


@pytest.mark.parametrize("name", sorted(set(standards()["DDR5"].speeds["DDR5_4800AN"]) - {"rate", "tCK_ps"}))
def test_every_timing_can_be_overridden_by_its_name(name):
    assert resolve("DDR5", "DDR5_16Gb_x8", "DDR5_4800AN", overrides={name: 77}).timings[name] == 77


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("nCl", 40, "unknown-name nCl ? nCL"),
        ("nFAV", 40, "unknown-name nFAV ? nFAW"),
        ("tRCD", 40, "unknown-name tRCD ? nRCD"),
        ("rate", 5000, "conflict rate"),
        ("tCK_ps", 400, "conflict tCK_ps"),
        *(("nCL", value, "range nCL") for value in (0, -5, 1_000_001)),
        *(("nCL", value, "type nCL") for value in (40.0, "40", True, None)),
    ],
)
def test_a_bad_override_is_refused_by_name(name, value, words):
    with refused(words):
        resolve("DDR5", "DDR5_16Gb_x8", "DDR5_4800AN", overrides={name: value})


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


@pytest.mark.parametrize(("standard", "org"), ORGS)
def test_every_organisation_goes_with_every_speed(standard, org):
    for speed in standards()[standard].speeds:
        tables = lower(resolve(standard, org, speed))
        assert tables.windows[0, CLOCKS] > 0
        assert tables.refresh_interval > tables.commands[REFAB, BUSY] > 0
