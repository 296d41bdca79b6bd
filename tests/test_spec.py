"""DRAM standards: presets against JESD79-4 and JESD79-5, and their way into integer tables.

Nanoseconds in the tables here are those of the JEDEC standards; clocks are worked out from them.
"""

from __future__ import annotations

import dataclasses
import math
import re
import sys
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from mistakes import refused
from ndpsim.errors import InputError
from ndpsim.simulate import run_trace
from ndpsim.simulate.lane import check_refresh
from ndpsim.spec import NO_RULE, Tables, lower, resolve, standard_names, standards
from ndpsim.spec.checking import check_standard
from ndpsim.spec.lower import BUSY, CLOCKS
from ndpsim.spec.standard import latency_terms

COMMANDS = standards()["DDR5"].by_number

REFERENCE = sorted((Path(__file__).parents[1] / "validation" / "ramulator2").glob("*.yaml"))
CHANNEL, RANK, BANKGROUP, BANK = range(4)
ACT, PREPB, RD, WR, RDA, WRA, PREAB, REFAB = range(8)

ORGS = [(standard, org) for standard in standard_names() for org in standards()[standard].organisations]
SPEEDS = [(standard, speed) for standard in standard_names() for speed in standards()[standard].speeds]
RULES = [(standard, rule) for standard in standard_names() for rule in standards()[standard].rules]

DDR4_RATES = (1600, 1866, 2133, 2400, 2666, 2933, 3200)

# JESD79-4, timing parameters by speed grade: (fewest clocks, ns for each of DDR4_RATES).
DDR4_NS = {
    ("nRRDS", 4): (4, (5, 4.2, 3.7, 3.3, 3, 2.7, 2.5)),
    ("nRRDS", 8): (4, (5, 4.2, 3.7, 3.3, 3, 2.7, 2.5)),
    ("nRRDS", 16): (4, (6, 5.3, 5.3, 5.3, 5.3, 5.3, 5.3)),
    ("nRRDL", 4): (4, (6, 5.3, 5.3, 4.9, 4.9, 4.9, 4.9)),
    ("nRRDL", 8): (4, (6, 5.3, 5.3, 4.9, 4.9, 4.9, 4.9)),
    ("nRRDL", 16): (4, (7.5, 6.4, 6.4, 6.4, 6.4, 6.4, 6.4)),
    ("nFAW", 4): (16, (20, 17, 15, 13, 12, 10.875, 10)),
    ("nFAW", 8): (20, (25, 23, 21, 21, 21, 21, 21)),
    ("nFAW", 16): (28, (35, 30, 30, 30, 30, 30, 30)),
    ("nCCDL", 8): (5, (6.25, 5.355, 5.355, 5, 5, 5, 5)),
    ("nWTRS", 8): (2, (2.5,) * 7),
    ("nWTRL", 8): (4, (7.5,) * 7),
    ("nRTP", 8): (4, (7.5,) * 7),
    ("nWR", 8): (1, (15,) * 7),
    ("nRAS", 8): (1, (35, 34, 33, 32, 32, 32, 32)),
}


def device_of(standard: str, speed: str, dq: int = 8):
    """Of the density nearest to 8 Gb, where there is none of this width of another."""
    known = standards()[standard].organisations
    of_width = {name: org for name, org in known.items() if org.dq == dq} or known
    org = min(of_width, key=lambda name: abs(of_width[name].density_mb - 8192))
    return resolve(standard, org, speed)


# Presets


@pytest.mark.parametrize(("standard", "org"), [one for one in ORGS if one[0].startswith("DDR")])
def test_banks_rows_columns_and_pins_make_the_density(standard, org):
    chip = standards()[standard].organisations[org]
    bits = chip.bankgroups * chip.banks_per_group * chip.rows * chip.columns * chip.dq
    assert bits == chip.density_mb << 20
    assert org == f"{standard}_{chip.density_mb >> 10}Gb_x{chip.dq}"


@pytest.mark.parametrize(
    ("standard", "org", "timing", "rank_gib", "peak_gbps"),
    [
        # A rank of 64 (DDR4) or 32 (a DDR5 sub-channel) data pins; 8 bytes a transfer, and 4.
        ("DDR4", "DDR4_8Gb_x8", "DDR4_3200AA", 8, 25.6),
        ("DDR4", "DDR4_16Gb_x4", "DDR4_2400R", 32, 19.2),
        ("DDR5", "DDR5_16Gb_x8", "DDR5_4800AN", 8, 19.2),
        ("DDR5", "DDR5_32Gb_x8", "DDR5_6400AN", 16, 25.6),
        ("DDR5", "DDR5_32Gb_x4", "DDR5_5600AN", 32, 22.4),
        ("DDR5", "DDR5_16Gb_x16", "DDR5_3200AN", 4, 12.8),
    ],
)
def test_capacity_and_peak_bandwidth(standard, org, timing, rank_gib, peak_gbps):
    device = resolve(standard, org, timing, ranks=2)
    assert device.rank_bytes == rank_gib << 30
    assert device.capacity_bytes == 2 * device.rank_bytes
    assert device.devices_per_rank * device.organisation.density_mb == rank_gib * 8 * 1024
    assert device.burst_bytes == 64
    assert device.peak_gbps == pytest.approx(peak_gbps, rel=1e-12)


def test_page_sizes():
    # JESD79-5: pages of 1 KB in x4 and x8 devices, of 2 KB in x16; JESD79-4: 512 B, 1 KB and 2 KB.
    pages = {
        org: chip.columns * chip.dq // 8
        for name in ("DDR4", "DDR5")
        for org, chip in standards()[name].organisations.items()
    }
    assert {pages[f"DDR5_16Gb_x{dq}"] for dq in (4, 8)} == {1024}
    assert pages["DDR5_16Gb_x16"] == 2048
    assert [pages[f"DDR4_8Gb_x{dq}"] for dq in (4, 8, 16)] == [512, 1024, 2048]


@pytest.mark.parametrize(("standard", "speed"), SPEEDS)
def test_a_preset_agrees_with_itself(standard, speed):
    known = standards()[standard]
    timings = known.speeds[speed]
    rate, tck_ps = timings["rate"], timings["tCK_ps"]
    assert speed.startswith(f"{standard}_{rate}")
    exact_ps = Fraction(1_000_000 * known.transfers_per_clock, rate)
    rounding = 2 if standard == "GDDR6" else 1  # to a whole ps; the reference has 570 for 571.4
    assert abs(exact_ps - tck_ps) < rounding
    assert abs(timings["nRC"] - timings["nRAS"] - timings["nRP"]) <= 1  # of GDDR6, one less
    assert timings[known.burst] == known.prefetch // known.transfers_per_clock
    assert all(isinstance(clocks, int) and clocks >= (name != "nCAS") for name, clocks in timings.items())


@pytest.mark.parametrize(
    ("timing", "ns"),
    [
        ("DDR4_2400R", 13.32),
        ("DDR4_3200AA", 13.75),
        ("DDR4_1600K", 13.75),
        ("DDR5_4800AN", 14.166),
        ("DDR5_6400AN", 14.375),
    ],
)
def test_read_latency_of_a_speed_bin(timing, ns):
    device = device_of(timing[:4], timing)
    assert float(device.timings["nCL"] * device.clock_ps / 1000) == pytest.approx(ns, abs=0.015)


# What follows from width, rate and density


@pytest.mark.parametrize(("name", "dq"), DDR4_NS)
@pytest.mark.parametrize("rate", DDR4_RATES)
def test_ddr4_clocks_are_the_nanoseconds_of_the_standard(name, dq, rate):
    minimum, by_rate = DDR4_NS[name, dq]
    ns = Fraction(str(by_rate[DDR4_RATES.index(rate)]))
    # Nominal rates are rounded (2133 is 6400/3): JEDEC lets a count pass that is over by 2.5% of a clock.
    clocks = max(minimum, math.ceil(ns * rate / 2000 - Fraction(25, 1000)))
    speed = next(speed for speed in standards()["DDR4"].speeds if speed.startswith(f"DDR4_{rate}"))
    assert device_of("DDR4", speed, dq).timings[name] == clocks


# tRFC1 in ns by the Gb of a chip, and tREFI in ns. DDR4's 360 ns of 8 Gb: see the standard's file.
REFRESH_NS = {"DDR4": ({2: 160, 4: 260, 8: 360, 16: 550}, 7800), "DDR5": ({8: 195, 16: 295, 32: 410}, 3900)}


@pytest.mark.parametrize(("standard", "org"), [one for one in ORGS if one[0] in REFRESH_NS])
def test_refresh_by_density_and_rate(standard, org):
    by_density, interval_ns = REFRESH_NS[standard]
    refresh_ns = by_density[int(org.split("_")[1].partition("Gb")[0])]
    for speed in standards()[standard].speeds:
        rate = int(re.findall("[0-9]{4}", speed)[0])
        clock_ps = {2933: 682}.get(rate, 2_000_000 // rate)  # JEDEC drops fractions of a ps, except there
        device = resolve(standard, org, speed)
        clocks = [-(-ns * 1000 // clock_ps) for ns in (refresh_ns, interval_ns)]
        assert [device.timings["nRFC"], device.timings["nREFI"]] == clocks
        assert device.sources["nRFC"] == f"derived for {org} at {speed}"


@pytest.mark.parametrize(
    ("timing", "dq", "nRRDS", "nRRDL", "nFAW"),
    [
        # The four rates whose presets equal Ramulator's: 20 ns of tFAW (25 ns for x16), at least 32 clocks.
        ("DDR5_3200AN", 4, 8, 5, 32),
        ("DDR5_3200C", 8, 8, 5, 32),
        ("DDR5_3200AN", 16, 8, 5, 40),
        ("DDR5_4800AN", 8, 8, 12, 48),
        ("DDR5_4800BN", 16, 8, 12, 60),
        ("DDR5_5600AN", 8, 14, 14, 56),
        ("DDR5_6400AN", 16, 16, 16, 80),
    ],
)
def test_ddr5_activation_limits_where_presets_equal_the_reference(timing, dq, nRRDS, nRRDL, nFAW):
    timings = device_of("DDR5", timing, dq).timings
    assert (timings["nRRDS"], timings["nRRDL"], timings["nFAW"]) == (nRRDS, nRRDL, nFAW)


@pytest.mark.parametrize(
    ("timing", "nRRDL"),
    [("DDR5_3600AN", 9), ("DDR5_4000AN", 10), ("DDR5_4400AN", 11), ("DDR5_5200AN", 13), ("DDR5_6000AN", 15)],
)
@pytest.mark.parametrize(("dq", "nFAW"), [(4, 32), (8, 32), (16, 40)])
def test_ddr5_activation_limits_of_the_other_rates_are_those_of_the_standard(timing, nRRDL, dq, nFAW):
    # JESD79-5: tRRD_S 8 nCK; tRRD_L max(8 nCK, 5 ns); tFAW max(32 nCK, 14.545 ns) at 4400 MT/s for pages of
    # 1 KB and max(40 nCK, 18.181 ns) for 2 KB: the nanoseconds are those of 32 and 40 clocks at every rate.
    timings = device_of("DDR5", timing, dq).timings
    assert (timings["nRRDS"], timings["nRRDL"], timings["nFAW"]) == (8, nRRDL, nFAW)


@pytest.mark.parametrize(
    ("timing", "clocks"),
    [
        # JESD79-5: tRAS 32 ns, tWR 30 ns, tRTP max(12 nCK, 7.5 ns), tCCD_L max(8 nCK, 5 ns), tCCD_L_WR
        # max(32 nCK, 20 ns), tWTR_S max(4 nCK, 2.5 ns), tWTR_L max(16 nCK, 10 ns), CWL = CL - 2.
        (
            "DDR5_4400AN",
            dict(nCL=32, nCWL=30, nRAS=71, nWR=66, nRTP=17, nCCDL=11, nCCDL_WR=44, nWTRS=6, nWTRL=22),
        ),
        (
            "DDR5_4000AN",
            dict(nCL=28, nCWL=26, nRAS=64, nWR=60, nRTP=15, nCCDL=10, nCCDL_WR=40, nWTRS=5, nWTRL=20),
        ),
        (
            "DDR5_6000AN",
            dict(nCL=42, nCWL=40, nRAS=96, nWR=90, nRTP=23, nCCDL=15, nCCDL_WR=60, nWTRS=8, nWTRL=30),
        ),
    ],
)
def test_ddr5_rates_in_between_follow_the_standard(timing, clocks):
    timings = device_of("DDR5", timing).timings
    assert {name: timings[name] for name in clocks} == clocks


@pytest.mark.parametrize("case", REFERENCE, ids=lambda case: case.stem)
def test_resolved_timings_equal_the_reference(case):
    facts = yaml.safe_load(case.read_text())
    device = resolve(facts["standard"], facts["org"], facts["timing"], facts["ranks"], facts["overrides"])
    assert {name: device.timings[name] for name in facts["resolved_timing"]} == facts["resolved_timing"]


def test_there_are_references():
    assert len(REFERENCE) > 10


# Rules


@pytest.mark.parametrize(("standard", "rule"), RULES, ids=lambda part: getattr(part, "name", part))
def test_a_rule_speaks_of_known_things_in_every_preset(standard, rule):
    known = standards()[standard]
    names = {term for _, term in latency_terms(rule.latency) if isinstance(term, str)}
    assert names
    for speed in known.speeds.values():
        assert names <= set(speed) | set(known.derived)
    assert rule.level in known.levels
    assert {*rule.previous, *rule.next} <= set(known.names)
    assert rule.previous
    assert rule.next


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


@pytest.fixture(scope="module")
def ddr5() -> Tables:
    return lower(resolve("DDR5", "DDR5_16Gb_x8", "DDR5_4800AN", ranks=2))


@pytest.fixture(scope="module")
def ddr4() -> Tables:
    return lower(resolve("DDR4", "DDR4_8Gb_x8", "DDR4_2400R", ranks=2))


# DDR5-4800AN, 16 Gb x8: CL = RCD = RP 34, CWL 32, BL 8, RAS 77, RC 111, RTP 18, WR 72. A command of two
# cycles (ACT, RD, RDA, WR, WRA) takes effect in its second.
@pytest.mark.parametrize(
    ("level", "before", "after", "clocks"),
    [
        (BANK, RD, PREPB, 18 + 1),
        (RANK, RD, PREAB, 18 + 1),
        (BANK, WR, PREPB, 32 + 8 + 72 + 1),
        (BANK, ACT, PREPB, 77 + 1),
        (RANK, ACT, REFAB, 111 + 1),
        (RANK, RDA, REFAB, 18 + 34 + 1),
        (RANK, WRA, REFAB, 32 + 8 + 72 + 34 + 1),
        (BANK, PREPB, ACT, 34 - 1),
        (RANK, PREAB, ACT, 34 - 1),
        (RANK, REFAB, ACT, 710 - 1),
        (RANK, REFAB, PREAB, 710),
        (RANK, PREPB, REFAB, 34),
        (RANK, PREPB, PREPB, 2),
        (BANK, ACT, RD, 34),
        (BANK, ACT, WRA, 34),
        (BANK, ACT, ACT, 111),
        (BANK, RDA, ACT, 18 + 34),
        (BANK, WRA, ACT, 32 + 8 + 72 + 34),
        (BANKGROUP, RD, RD, 12),
        (RANK, RD, RDA, 8),
        (CHANNEL, RD, RD, 8),
        (BANKGROUP, WR, WR, 48),
        (RANK, RD, WR, 34 + 8 + 2 - 32 + 2),
        (RANK, WR, RD, 32 + 8 + 6),
        (BANKGROUP, WR, RD, 32 + 8 + 24),
        (RANK, ACT, ACT, 8),
        (BANKGROUP, ACT, ACT, 12),
        # The command bus is taken for two cycles.
        (CHANNEL, RD, ACT, 2),
        (CHANNEL, ACT, REFAB, 2),
        (CHANNEL, WRA, PREPB, 2),
        # Nothing binds these.
        (CHANNEL, PREPB, ACT, NO_RULE),
        (CHANNEL, REFAB, REFAB, NO_RULE),
        (BANK, RD, RD, NO_RULE),
        (BANK, RDA, PREPB, NO_RULE),
    ],
)
def test_ddr5_distances(ddr5, level, before, after, clocks):
    assert ddr5.gap[level, before, after] == clocks


@pytest.mark.parametrize(
    ("level", "before", "after", "clocks"),
    [
        # DDR4-2400R: CL = RCD = RP 16, CWL 12, BL 4, RAS 39, RC 55, RTP 9, WR 18; every command one cycle.
        (BANK, RD, PREPB, 9),
        (BANK, WR, PREPB, 12 + 4 + 18),
        (BANK, ACT, RD, 16),
        (BANK, PREPB, ACT, 16),
        (BANKGROUP, RD, RD, 6),
        (RANK, RD, RD, 4),
        (RANK, RD, WR, 16 + 4 + 2 - 12),
        (RANK, WR, RD, 12 + 4 + 3),
        (BANKGROUP, WR, RD, 12 + 4 + 9),
        (RANK, REFAB, ACT, 433),
        (CHANNEL, ACT, RD, NO_RULE),
    ],
)
def test_ddr4_distances(ddr4, level, before, after, clocks):
    assert ddr4.gap[level, before, after] == clocks


def test_ranks_hand_over_the_data_bus(ddr5, ddr4):
    assert ddr5.sibling_gap[RANK, RD, RD] == ddr5.sibling_gap[RANK, RD, WR] == 8 + 2
    assert ddr5.sibling_gap[RANK, WR, RD] == 32 + 8 + 2 - 34
    assert ddr5.sibling_gap[RANK, WR, WR] == NO_RULE
    assert ddr4.sibling_gap[RANK, RD, RDA] == 4 + 2
    assert ddr4.sibling_gap[RANK, WR, RD] == 12 + 4 + 2 - 16
    assert (ddr5.sibling_gap[RANK, [ACT, PREPB, PREAB, REFAB]] == NO_RULE).all()


def test_the_window_of_four_activates(ddr5, ddr4):
    for tables, clocks in ((ddr5, 48), (ddr4, 26)):  # both ends take two cycles; 21 ns
        assert tables.windows.tolist() == [[RANK, ACT, 4, ACT, clocks]]
    wider = lower(resolve("DDR5", "DDR5_16Gb_x8", "DDR5_4800AN", overrides={"nFAW": 32}))
    assert wider.windows[0, CLOCKS] == 32


def test_scalars(ddr5):
    assert (ddr5.ranks, ddr5.bankgroups, ddr5.banks_per_group) == (2, 8, 4)
    assert (ddr5.read_latency, ddr5.burst) == (34 + 8, 8)
    assert (ddr5.refresh_interval, ddr5.commands[REFAB, BUSY]) == (9375, 710)


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
        for command in (ACT, RD, WR, RDA, WRA):
            assert tables.gap[:, command, command].max() >= tables.burst, (
                standard,
                speed,
                COMMANDS[command].name,
            )


# Overrides


def test_an_override_goes_over_preset_and_derived_values():
    device = resolve("DDR5", "DDR5_16Gb_x8", "DDR5_4800AN", overrides={"nCL": 40, "nRFC": 999})
    assert (device.timings["nCL"], device.timings["nRFC"]) == (40, 999)
    assert device.sources["nCL"] == device.sources["nRFC"] == "override"
    assert device.sources["nRCD"] == "preset DDR5_4800AN"
    assert lower(device).read_latency == 40 + 8


def test_an_override_changes_no_preset():
    resolve("DDR5", "DDR5_16Gb_x8", "DDR5_4800AN", overrides={"nCL": 40})
    assert resolve("DDR5", "DDR5_16Gb_x8", "DDR5_4800AN").timings["nCL"] == 34


@pytest.mark.parametrize("name", sorted(set(standards()["DDR5"].speeds["DDR5_4800AN"]) - {"rate", "tCK_ps"}))
def test_every_timing_can_be_overridden_by_its_name(name):
    assert resolve("DDR5", "DDR5_16Gb_x8", "DDR5_4800AN", overrides={name: 77}).timings[name] == 77


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ({"nCl": 40}, ["nCl: unknown timing 'nCl'", "did you mean 'nCL'?"]),
        ({"nFAV": 40}, ["did you mean 'nFAW'?"]),
        ({"tRCD": 40}, ["did you mean 'nRCD'?"]),
        ({"rate": 5000}, ["rate: is fixed by the speed preset"]),
        ({"tCK_ps": 400}, ["tCK_ps: is fixed by the speed preset"]),
        ({"nCL": 0}, ["nCL: 0 is not a whole number of clocks from 1 to 1000000"]),
        ({"nCL": -5}, ["nCL: -5 is not"]),
        ({"nCL": 1_000_001}, ["nCL: 1000001 is not"]),
        ({"nCL": 40.0}, ["nCL: 40.0 is not"]),
        ({"nCL": "40"}, ["nCL: '40' is not"]),
        ({"nCL": True}, ["nCL: True is not"]),
        ({"nCL": None}, ["nCL: None is not"]),
    ],
)
def test_a_bad_override_is_refused_by_name(override, words):
    with pytest.raises(InputError) as caught:
        resolve("DDR5", "DDR5_16Gb_x8", "DDR5_4800AN", overrides=override)
    for word in words:
        assert word in str(caught.value)


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


# A new standard

TOY = """
from ndpsim.spec.standard import Command, Every, Organisation, Rule, Standard

STANDARD = Standard(
    name="TOY1",
    source="a test",
    commands=(
        Command("ACT", "bank", opens=True),
        Command("PREpb", "bank", closes=True),
        Command("PREab", "rank", closes=True),
        Command("RD", "bank", reads=True),
        Command("RDA", "bank", reads=True, closes=True),
        Command("WR", "bank", writes=True),
        Command("WRA", "bank", writes=True, closes=True),
        Command("REFab", "rank", refreshes=True, closes_first="PREab", busy="nRFC", cycles=3),
    ),
    levels=("channel", "rank", "bankgroup", "bank"),
    transfers_per_clock=2,
    prefetch=4,
    channel_bits=16,
    rules=(
        Rule("bus", "channel", ("RD", "RDA"), ("RD", "RDA"), "nBL"),
        Rule("open", "bank", ("ACT",), ("RD", "RDA"), "nRCD"),
        Rule("close", "bank", ("RD",), ("PREpb",), "nRTP + 1"),
        Rule("close", "rank", ("RD",), ("PREab",), "nRTP + 1"),
        Rule("reopen", "bank", ("PREpb",), ("ACT",), "nRP"),
        Rule("reopen", "rank", ("PREab",), ("ACT", "REFab"), "nRP"),
        Rule("refresh", "rank", ("REFab",), ("ACT",), "nRFC"),
    ),
    organisations={"TOY1_1Mb_x16": Organisation(1, 16, 2, 2, 64, 256)},
    speeds={"TOY1_800": dict(rate=800, tCK_ps=2500, nBL=2, nCL=5, nCWL=4, nRCD=6, nRP=7, nRTP=3, nRAS=9, nRC=16)},
    derived={"nRFC": Every(50), "nREFI": Every(2000)},
    max_postponed_refreshes=8,
    max_pulled_in_refreshes=8,
)
"""


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "toy1.py").write_text(TOY)
    package = sys.modules["ndpsim.spec.standards"]
    monkeypatch.setattr(package, "__path__", [*package.__path__, str(tmp_path)])
    standards.cache_clear()
    yield
    sys.modules.pop("ndpsim.spec.standards.toy1", None)
    vars(package).pop("toy1", None)
    standards.cache_clear()


@pytest.mark.usefixtures("toy")
def test_a_new_standard_is_a_new_file_and_nothing_else():
    assert "TOY1" in standard_names()
    device = resolve("TOY1", "TOY1_1Mb_x16", "TOY1_800", overrides={"nRTP": 4})
    assert (device.burst_bytes, device.bursts_per_row, device.capacity_bytes) == (8, 64, 1 << 17)
    assert (device.timings["nRFC"], device.timings["nREFI"]) == (20, 800)
    tables = lower(device)
    assert tables.gap[BANK, RD, PREPB] == 4 + 1
    assert tables.gap[RANK, REFAB, ACT] == 20 + 2  # begins its effect in its third cycle
    assert tables.gap[RANK, PREAB, REFAB] == 7 - 2
    assert tables.gap[CHANNEL, REFAB, RD] == 3
    assert not len(tables.windows)


@pytest.mark.usefixtures("toy")
def test_commands_levels_and_clock_are_those_of_the_standard():
    device = resolve("TOY1", "TOY1_1Mb_x16", "TOY1_800")
    assert device.clock_ps == 2500
    slower = dataclasses.replace(device, standard=dataclasses.replace(device.standard, transfers_per_clock=8))
    assert slower.clock_ps == 10000
    assert slower.peak_gbps == device.peak_gbps / 4
    with refused("unknown-name refresh"):
        check_refresh(device, "same-bank")
    stacked = dataclasses.replace(
        device.standard, levels=("channel", "pseudochannel", "sid", "half", "group", "bank")
    )
    with refused("unsupported TOY1"):
        check_standard(stacked)


@pytest.mark.usefixtures("toy")
def test_the_engine_runs_a_new_standard():
    # Row 0 of bank 0 and then row 1: ACT at 1, RD 6 later, PREpb 4 after that, ACT 7 later, RD 6 later.
    addresses = np.array([0, 1 << 11], dtype=np.int64)
    result = run_trace(
        (addresses, np.zeros_like(addresses)), "TOY1", "TOY1_1Mb_x16", "TOY1_800", record_commands=True
    )
    trace = result.command_traces[0]
    names = trace.to_arrays()["command"].tolist()
    assert names == ["ACT", "RD", "PREpb", "ACT", "RD"]
    assert np.diff(trace.clock).tolist() == [6, 4, 7, 6]


def test_the_registry_forgets_the_toy_again():
    assert standard_names() == sorted({standard for standard, _ in ORGS})
