"""Every number of every preset, against tables written out here; `test_checker_rules` has the rules.

Sources: speed and organisation presets of Ramulator 2.1 (python/ramulator/dram/ddr4.py and
ddr5.py) and, where it has none, of Ramulator 2.0 (src/dram/impl/DDR4.cpp, DDR5.cpp: tRFCsb, tREFSBRD) and
JESD79-5 (rates 3600, 4000, 4400, 5200, 6000; REFsb and PREsb). Clocks from nanoseconds are written out, too.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from mistakes import refused
from ndpsim.config import load_hardware
from ndpsim.spec import resolve, standards
from ndpsim.spec.standard import ByDensity, ByWidth

COMMANDS = standards()["DDR5"].by_number

# Presets: (density in Mb, dq, bank groups, banks in a group, rows, columns).
ORGANISATIONS = {
    "DDR4_2Gb_x4": (2048, 4, 4, 4, 32768, 1024),
    "DDR4_2Gb_x8": (2048, 8, 4, 4, 16384, 1024),
    "DDR4_2Gb_x16": (2048, 16, 2, 4, 16384, 1024),
    "DDR4_4Gb_x4": (4096, 4, 4, 4, 65536, 1024),
    "DDR4_4Gb_x8": (4096, 8, 4, 4, 32768, 1024),
    "DDR4_4Gb_x16": (4096, 16, 2, 4, 32768, 1024),
    "DDR4_8Gb_x4": (8192, 4, 4, 4, 131072, 1024),
    "DDR4_8Gb_x8": (8192, 8, 4, 4, 65536, 1024),
    "DDR4_8Gb_x16": (8192, 16, 2, 4, 65536, 1024),
    "DDR4_16Gb_x4": (16384, 4, 4, 4, 262144, 1024),
    "DDR4_16Gb_x8": (16384, 8, 4, 4, 131072, 1024),
    "DDR4_16Gb_x16": (16384, 16, 2, 4, 131072, 1024),
    "DDR5_8Gb_x4": (8192, 4, 8, 2, 65536, 2048),
    "DDR5_8Gb_x8": (8192, 8, 8, 2, 65536, 1024),
    "DDR5_8Gb_x16": (8192, 16, 4, 2, 65536, 1024),
    "DDR5_16Gb_x4": (16384, 4, 8, 4, 65536, 2048),
    "DDR5_16Gb_x8": (16384, 8, 8, 4, 65536, 1024),
    "DDR5_16Gb_x16": (16384, 16, 4, 4, 65536, 1024),
    "DDR5_32Gb_x4": (32768, 4, 8, 4, 131072, 2048),
    "DDR5_32Gb_x8": (32768, 8, 8, 4, 131072, 1024),
    "DDR5_32Gb_x16": (32768, 16, 4, 4, 131072, 1024),
}

DDR4_SPEEDS = """
        rate nBL nCL nRCD nRP nRAS nRC nWR nRTP nCWL nCCDS nCCDL nWTRS nWTRL nCS tCK_ps
1600J   1600   4  10   10  10   28  38  12    6    9     4     5     2     6   2   1250
1600K   1600   4  11   11  11   28  39  12    6    9     4     5     2     6   2   1250
1600L   1600   4  12   12  12   28  40  12    6    9     4     5     2     6   2   1250
1866L   1866   4  12   12  12   32  44  14    7   10     4     5     3     7   2   1071
1866M   1866   4  13   13  13   32  45  14    7   10     4     5     3     7   2   1071
1866N   1866   4  14   14  14   32  46  14    7   10     4     5     3     7   2   1071
2133N   2133   4  14   14  14   36  50  16    8   11     4     6     3     8   2    937
2133P   2133   4  15   15  15   36  51  16    8   11     4     6     3     8   2    937
2133R   2133   4  16   16  16   36  52  16    8   11     4     6     3     8   2    937
2400P   2400   4  15   15  15   39  54  18    9   12     4     6     3     9   2    833
2400R   2400   4  16   16  16   39  55  18    9   12     4     6     3     9   2    833
2400U   2400   4  17   17  17   39  56  18    9   12     4     6     3     9   2    833
2400T   2400   4  18   18  18   39  57  18    9   12     4     6     3     9   2    833
2666T   2666   4  17   17  17   43  60  20   10   14     4     7     4    10   2    750
2666U   2666   4  18   18  18   43  61  20   10   14     4     7     4    10   2    750
2666V   2666   4  19   19  19   43  62  20   10   14     4     7     4    10   2    750
2666W   2666   4  20   20  20   43  63  20   10   14     4     7     4    10   2    750
2933V   2933   4  19   19  19   47  66  22   11   16     4     8     4    11   2    682
2933W   2933   4  20   20  20   47  67  22   11   16     4     8     4    11   2    682
2933Y   2933   4  21   21  21   47  68  22   11   16     4     8     4    11   2    682
2933AA  2933   4  22   22  22   47  69  22   11   16     4     8     4    11   2    682
3200W   3200   4  20   20  20   52  72  24   12   16     4     8     4    12   2    625
3200AA  3200   4  22   22  22   52  74  24   12   16     4     8     4    12   2    625
3200AC  3200   4  24   24  24   52  76  24   12   16     4     8     4    12   2    625
"""
# 3600, 4000, 4400, 5200 and 6000: JESD79-5, bin A, tRAS 32 ns, tWR 30 ns, tRTP 7.5 ns, tCCD_L 5 ns, tCCD_L_WR
# 20 ns, tWTR_S 2.5 ns, tWTR_L 10 ns, CWL = CL - 2.
DDR5_SPEEDS = """
        rate nBL nCL nRCD nRP nRAS nRC nWR nRTP nCWL nPPD nCCDS nCCDL nCCDS_WR nCCDL_WR nWTRS nWTRL nCS tCK_ps
3200AN  3200   8  24   24  24   52  76  48   12   22    2     8     8        8       32     6    16   2    625
3200BN  3200   8  26   26  26   52  78  48   12   24    2     8     8        8       32     6    16   2    625
3200C   3200   8  28   28  28   52  80  48   12   26    2     8     8        8       32     6    16   2    625
3600AN  3600   8  26   26  26   58  84  54   14   24    2     8     9        8       36     5    18   2    555
4000AN  4000   8  28   28  28   64  92  60   15   26    2     8    10        8       40     5    20   2    500
4400AN  4400   8  32   32  32   71 103  66   17   30    2     8    11        8       44     6    22   2    454
4800AN  4800   8  34   34  34   77 111  72   18   32    2     8    12        8       48     6    24   2    416
4800BN  4800   8  36   36  36   77 113  72   18   34    2     8    12        8       48     6    24   2    416
4800C   4800   8  38   38  38   77 115  72   18   36    2     8    12        8       48     6    24   2    416
5200AN  5200   8  38   38  38   84 122  78   20   36    2     8    13        8       52     7    26   2    384
5600AN  5600   8  40   40  40   90 130  84   20   38    2     8    12        8       56     5    28   2    357
6000AN  6000   8  42   42  42   96 138  90   23   40    2     8    15        8       60     8    30   2    333
6400AN  6400   8  46   46  46  103 149  96   24   44    2     8    16        8       64     5    32   2    312
"""


def table(text: str, standard: str) -> dict[str, dict[str, int]]:
    header, *lines = [line.split() for line in text.strip().splitlines()]
    return {f"{standard}_{name}": dict(zip(header, map(int, row), strict=True)) for name, *row in lines}


SPEEDS = {"DDR4": table(DDR4_SPEEDS, "DDR4"), "DDR5": table(DDR5_SPEEDS, "DDR5")}

# By data rate, for x4, x8 and x16.
DDR4_BY_WIDTH = {
    "nRRDS": {rate: (4, 4, x16) for rate, x16 in zip((1600, 1866, 2133, 2400, 2666, 2933, 3200), (5, 5, 6, 7, 8, 8, 9), strict=True)},
    "nRRDL": {1600: (5, 5, 6), 1866: (5, 5, 6), 2133: (6, 6, 7), 2400: (6, 6, 8), 2666: (7, 7, 9), 2933: (8, 8, 10), 3200: (8, 8, 11)},
    "nFAW": {1600: (16, 20, 28), 1866: (16, 22, 28), 2133: (16, 23, 32), 2400: (16, 26, 36), 2666: (16, 28, 40), 2933: (16, 31, 44), 3200: (16, 34, 48)},
}  # fmt: skip
DDR5_BY_WIDTH = {
    # 8 nCK; Ramulator's 5 ns at 5600 and 6400.
    "nRRDS": {**dict.fromkeys((3200, 3600, 4000, 4400, 4800, 5200, 6000), (8, 8, 8)), 5600: (14, 14, 14), 6400: (16, 16, 16)},
    # 5 ns and at least 8 nCK; Ramulator's 5 clocks at 3200.
    "nRRDL": {rate: (clocks,) * 3 for rate, clocks in {3200: 5, 3600: 9, 4000: 10, 4400: 11, 4800: 12, 5200: 13, 5600: 14, 6000: 15, 6400: 16}.items()},
    # 32 nCK, 40 for x16; Ramulator's 20 and 25 ns at its rates.
    "nFAW": {3200: (32, 32, 40), 4800: (48, 48, 60), 5600: (56, 56, 70), 6400: (64, 64, 80), **dict.fromkeys((3600, 4000, 4400, 5200, 6000), (32, 32, 40))},
}  # fmt: skip

# By data rate, for each density in Gb: nanoseconds over tCK_ps, rounded up.
DDR4_REFRESH = {
    # tRFC1: 160, 260, 360 (Ramulator) and 550 ns
    1600: {2: 128, 4: 208, 8: 288, 16: 440},
    1866: {2: 150, 4: 243, 8: 337, 16: 514},
    2133: {2: 171, 4: 278, 8: 385, 16: 587},
    2400: {2: 193, 4: 313, 8: 433, 16: 661},
    2666: {2: 214, 4: 347, 8: 480, 16: 734},
    2933: {2: 235, 4: 382, 8: 528, 16: 807},
    3200: {2: 256, 4: 416, 8: 576, 16: 880},
}
DDR4_INTERVAL = {
    1600: 6240,
    1866: 7283,
    2133: 8325,
    2400: 9364,
    2666: 10400,
    2933: 11437,
    3200: 12480,
}  # 7.8 us
DDR5_REFRESH = {
    # tRFC1 195, 295, 410 ns; tRFCsb 115, 130, 190 ns; tREFSBRD 30 ns; tREFI 3.9 us
    3200: ({8: 312, 16: 472, 32: 656}, {8: 184, 16: 208, 32: 304}, 48, 6240),
    3600: ({8: 352, 16: 532, 32: 739}, {8: 208, 16: 235, 32: 343}, 55, 7028),
    4000: ({8: 390, 16: 590, 32: 820}, {8: 230, 16: 260, 32: 380}, 60, 7800),
    4400: ({8: 430, 16: 650, 32: 904}, {8: 254, 16: 287, 32: 419}, 67, 8591),
    4800: ({8: 469, 16: 710, 32: 986}, {8: 277, 16: 313, 32: 457}, 73, 9375),
    5200: ({8: 508, 16: 769, 32: 1068}, {8: 300, 16: 339, 32: 495}, 79, 10157),
    5600: ({8: 547, 16: 827, 32: 1149}, {8: 323, 16: 365, 32: 533}, 85, 10925),
    6000: ({8: 586, 16: 886, 32: 1232}, {8: 346, 16: 391, 32: 571}, 91, 11712),
    6400: ({8: 625, 16: 946, 32: 1315}, {8: 369, 16: 417, 32: 609}, 97, 12500),
}


def derived(standard: str, org: str, rate: int) -> dict[str, int]:
    density, dq, *_ = ORGANISATIONS[org]
    gigabits, place = density // 1024, (4, 8, 16).index(dq)
    by_width = DDR4_BY_WIDTH if standard == "DDR4" else DDR5_BY_WIDTH
    clocks = {name: by_rate[rate][place] for name, by_rate in by_width.items()}
    if standard == "DDR4":
        return clocks | {"nRFC": DDR4_REFRESH[rate][gigabits], "nREFI": DDR4_INTERVAL[rate]}
    all_bank, same_bank, between, interval = DDR5_REFRESH[rate]
    return clocks | {
        "nRFC": all_bank[gigabits],
        "nREFI": interval,
        "nRFCsb": same_bank[gigabits],
        "nREFSBRD": between,
    }


def test_there_are_these_organisations_and_no_others():
    found = {
        name: (org.density_mb, org.dq, org.bankgroups, org.banks_per_group, org.rows, org.columns)
        for standard in ("DDR4", "DDR5")
        for name, org in standards()[standard].organisations.items()
    }
    assert found == ORGANISATIONS


@pytest.mark.parametrize("standard", ["DDR4", "DDR5"])
def test_there_are_these_speeds_and_no_others(standard):
    assert {name: dict(speed) for name, speed in standards()[standard].speeds.items()} == SPEEDS[standard]


@pytest.mark.parametrize("org", ORGANISATIONS)
def test_every_timing_of_an_organisation_at_every_speed(org):
    standard = org[:4]
    for name, speed in SPEEDS[standard].items():
        resolved = dict(resolve(standard, org, name).timings)
        assert resolved == speed | derived(standard, org, speed["rate"]), name


@pytest.mark.parametrize(
    ("standard", "facts"),
    [
        # JESD79-4: 8n prefetch, 64 data pins, one cycle a command, eight refreshes postponed or pulled in.
        ("DDR4", (8, 64, {}, 8, 8)),
        # JESD79-5: 16n prefetch, two sub-channels of 32 pins, commands with a row or column take two cycles,
        # four refreshes (tREFI1).
        ("DDR5", (16, 32, dict.fromkeys(("ACT", "RD", "RDA", "WR", "WRA"), 2), 4, 4)),
    ],
)
def test_what_a_standard_says_once(standard, facts):
    said = standards()[standard]
    assert (said.name, said.source) == (standard, f"JESD79-{standard[3]}")
    assert facts == (
        said.prefetch,
        said.channel_bits,
        {one.name: one.cycles for one in said.commands if one.cycles > 1},
        said.max_postponed_refreshes,
        said.max_pulled_in_refreshes,
    )


def test_commands_do_what_the_truth_tables_say():
    # Name: (what it addresses, opens, closes, reads, writes, refreshes).
    assert {
        c.name: (c.scope, c.opens, c.closes, c.reads, c.writes, c.refreshes) for c in COMMANDS
    } == {
        "ACT": ("bank", True, False, False, False, False),
        "PREpb": ("bank", False, True, False, False, False),
        "PREab": ("rank", False, True, False, False, False),
        "RD": ("bank", False, False, True, False, False),
        "WR": ("bank", False, False, False, True, False),
        "RDA": ("bank", False, True, True, False, False),
        "WRA": ("bank", False, True, False, True, False),
        "REFab": ("rank", False, False, False, False, True),
        "PREsb": ("same-bank", False, True, False, False, False),
        "REFsb": ("same-bank", False, False, False, False, True),
    }  # fmt: skip


# How tables round.


@pytest.mark.parametrize(("ns", "tck_ps", "clocks"), [(1, 1000, 1), (1, 999, 2), (1, 1001, 1), (30, 416, 73)])
def test_nanoseconds_are_rounded_up_to_clocks_of_the_preset(ns, tck_ps, clocks):
    org = standards()["DDR5"].organisations["DDR5_16Gb_x8"]
    assert ByDensity({16384: ns}).clocks(org, 4800, tck_ps) == clocks


def test_a_table_says_nothing_of_other_devices():
    org = standards()["DDR5"].organisations["DDR5_16Gb_x8"]
    assert ByDensity({8192: 195}).clocks(org, 4800, 416) is None
    assert ByWidth({4: 8}).clocks(org, 4800, 416) is None


@pytest.fixture
def without_faw_of_x8(monkeypatch):
    """DDR4, in which tFAW of x8 devices is left open."""
    plain = standards()["DDR4"]
    partial = replace(plain, derived={**plain.derived, "nFAW": ByWidth({4: 16, 16: 28})})
    monkeypatch.setattr("ndpsim.spec.device.standards", lambda: {"DDR4": partial})


@pytest.mark.usefixtures("without_faw_of_x8")
def test_a_timing_that_a_standard_leaves_open_must_be_given():
    with refused("missing nFAW"):
        resolve("DDR4", "DDR4_8Gb_x8", "DDR4_3200AA")
    given = resolve("DDR4", "DDR4_8Gb_x8", "DDR4_3200AA", overrides={"nFAW": 33})
    assert (given.timings["nFAW"], given.sources["nFAW"]) == (33, "override")
    assert resolve("DDR4", "DDR4_8Gb_x4", "DDR4_3200AA").timings["nFAW"] == 16


@pytest.mark.usefixtures("without_faw_of_x8")
def test_a_timing_that_is_left_open_is_told_at_the_organisation(tmp_path):
    path = tmp_path / "a.yaml"
    path.write_text("name: a\ndram:\n  standard: DDR4\n  org: DDR4_8Gb_x8\n  timing: DDR4_3200AA\n")
    with refused("missing a.yaml:4 dram.overrides.nFAW"):
        load_hardware(str(path))
    assert load_hardware(str(path), ["dram.nFAW=33"]).lane_device().timings["nFAW"] == 33


def test_every_clock_says_where_it_is_from():
    device = resolve("DDR5", "DDR5_16Gb_x8", "DDR5_4800AN", overrides={"nCL": 40, "nRFC": 700})
    derived_ones = {"nRRDS", "nRRDL", "nFAW", "nREFI", "nRFCsb", "nREFSBRD"}
    for name, source in device.sources.items():
        if name in ("nCL", "nRFC"):
            assert source == "override"
        elif name in derived_ones:
            assert source == "derived for DDR5_16Gb_x8 at DDR5_4800AN"
        else:
            assert source == "preset DDR5_4800AN"
    assert set(device.sources) == set(device.timings)


def test_sizes_of_a_channel_by_hand():
    # 4 chips of 8 pins: 32 banks x 65536 rows x 1024 columns x 32 bits = 8 GiB a rank; BL16 x 32 bits = 64 bytes.
    device = resolve("DDR5", "DDR5_16Gb_x8", "DDR5_4800AN", ranks=3)
    assert (device.bankgroups, device.banks_per_group, device.banks_per_rank, device.banks) == (8, 4, 32, 96)
    assert (device.bursts_per_row, device.burst_bytes, device.devices_per_rank) == (64, 64, 4)
    assert (device.rank_bytes, device.capacity_bytes) == (8 << 30, 24 << 30)
    # A rank of DDR4 has 64 data pins: 16 chips of 16 Gb x4 are 32 GiB, at 2400 MT/s 19.2 GB/s.
    wide = resolve("DDR4", "DDR4_16Gb_x4", "DDR4_2400R")
    assert (wide.devices_per_rank, wide.rank_bytes, wide.peak_gbps) == (16, 32 << 30, 19.2)
    # 64 bytes in 8 clocks of 1250/3 ps.
    assert device.clock_ps == Fraction(1250, 3)
    assert device.peak_gbps == 19.2
    assert resolve("DDR5", "DDR5_16Gb_x8", "DDR5_4800AN", overrides={"nBL": 16}).peak_gbps == 9.6


def test_the_ends_of_what_is_allowed_are_allowed():
    assert [resolve("DDR5", "DDR5_16Gb_x8", "DDR5_4800AN", ranks).ranks for ranks in (1, 64)] == [1, 64]
    for clocks in (1, 1_000_000):
        device = resolve("DDR5", "DDR5_16Gb_x8", "DDR5_4800AN", overrides={"nRFC": clocks})
        assert device.timings["nRFC"] == clocks
