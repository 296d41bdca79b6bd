"""Every number of every preset, against tables written out here; `test_checker_rules` has the rules.

Sources under `--rules reference`: speed and organisation presets of Ramulator 2.1 (python/ramulator/dram/ddr4.py,
ddr5.py and ddr5_rfm.py) and, where it has none, of Ramulator 2.0 (src/dram/impl/DDR4.cpp, DDR5.cpp: tRFCsb,
tREFSBRD) and JESD79-5 (rates 3600, 4000, 4400, 5200, 6000; REFsb and PREsb). Under `--rules standard`: JESD79-4
and JESD79-5C, as `cited` of the pages says. Clocks from nanoseconds are written out, too.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from mistakes import refused
from ndpsim.base.choices import RULES
from ndpsim.config import load_hardware
from ndpsim.dram.spec import resolve, standards
from ndpsim.dram.spec.standard import ByDensity, ByWidth

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
2400T   2400   4  17   17  17   39  56  18    9   12     4     6     3     9   2    833
2400U   2400   4  18   18  18   39  57  18    9   12     4     6     3     9   2    833
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
DDR5_REFERENCE_SPEEDS = """
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


# JESD79-5C: tRAS 32 ns, tWR 30 ns, tRTP max(12 clocks, 7.5 ns), tCCD_L max(8 clocks, 5 ns), tWTR_S max(4 clocks,
# 2.5 ns) to 6400 and 8 clocks above, tWTR_L max(16 clocks, 10 ns), tPPD 4 from 7600 on; the write preamble is the
# shortest of the rate.
DDR5_RATES = """
     nRAS nWR nRTP nPPD nCCDL nWTRS nWTRL nWPRE tCK_ps
3200   52  48   12    2     8     4    16     2    625
3600   58  54   14    2     9     5    18     2    555
4000   64  60   15    2    10     5    20     2    500
4400   71  66   17    2    11     6    22     2    454
4800   77  72   18    2    12     6    24     2    416
5200   84  78   20    2    13     7    26     3    384
5600   90  84   21    2    14     7    28     3    357
6000   96  90   23    2    15     8    30     3    333
6400  103  96   24    2    16     8    32     3    312
6800  109 102   26    2    17     8    34     4    294
7200  116 108   27    2    18     8    36     4    277
7600  122 114   29    4    19     8    38     4    263
8000  128 120   30    4    20     8    40     4    250
8400  135 126   32    4    21     8    42     4    238
8800  141 132   33    4    22     8    44     4    227
"""
# CL and tRCD = tRP by bin.
DDR5_BINS = """
     AN    B     C
3200 24-24 26-26 28-28
3600 26-26 30-30 32-32
4000 28-28 32-32 36-35
4400 32-32 36-36 40-39
4800 34-34 40-39 42-42
5200 38-38 42-42 46-46
5600 40-40 46-45 50-49
6000 42-42 48-48 54-53
6400 46-46 52-52 56-56
6800 48-48 56-55 60-60
7200 52-52 58-58 64-63
7600 54-54 62-61 68-67
8000 56-56 64-64 70-70
8400 60-60 68-68 74-74
8800 62-62 72-71 78-77
"""
DDR5_BN = {3200: (26, 26), 4800: (40, 40)}


def table(text: str, standard: str) -> dict[str, dict[str, int]]:
    header, *lines = [line.split() for line in text.strip().splitlines()]
    return {f"{standard}_{name}": dict(zip(header, map(int, row), strict=True)) for name, *row in lines}


def ddr5_speeds() -> dict[str, dict[str, int]]:
    """The speeds under standard: clocks of the rate, those of the bin, and those of every speed."""
    speeds, grades, *lines = {}, *[line.split() for line in DDR5_BINS.strip().splitlines()]
    for rate, *bins in lines:
        every = dict(zip(grades, (tuple(map(int, one.split("-"))) for one in bins), strict=True))
        if int(rate) in DDR5_BN:
            every["BN"] = DDR5_BN[int(rate)]
        shared = table(DDR5_RATES, "DDR5")[f"DDR5_{rate}"] | dict(nBL=8, nCCDS=8, nCCDS_WR=8, nCS=2)
        for grade, (cl, rcd) in every.items():
            of_bin = dict(rate=int(rate), nCL=cl, nRCD=rcd, nRP=rcd, nRC=shared["nRAS"] + rcd, nCWL=cl - 2)
            speeds[f"DDR5_{rate}{grade}"] = shared | of_bin
    return speeds


DDR4, DDR5 = table(DDR4_SPEEDS, "DDR4"), table(DDR5_REFERENCE_SPEEDS, "DDR5")
# RFM of Ramulator: 195 ns, and half of it, for every device.
for _speed in DDR5.values():
    _speed |= {"nRFM": -(-195_000 // _speed["tCK_ps"]), "nRFMpb": -(-97_500 // _speed["tCK_ps"])}
SPEEDS = {
    ("DDR4", "standard"): DDR4,
    ("DDR4", "reference"): DDR4 | {"DDR4_2400T": DDR4["DDR4_2400U"], "DDR4_2400U": DDR4["DDR4_2400T"]},
    ("DDR5", "standard"): ddr5_speeds(),
    ("DDR5", "reference"): DDR5,
}

# By data rate, for x4, x8 and x16.
DDR4_BY_WIDTH = {
    "nRRDS": {rate: (4, 4, x16) for rate, x16 in zip((1600, 1866, 2133, 2400, 2666, 2933, 3200), (5, 5, 6, 7, 8, 8, 9), strict=True)},
    "nRRDL": {1600: (5, 5, 6), 1866: (5, 5, 6), 2133: (6, 6, 7), 2400: (6, 6, 8), 2666: (7, 7, 9), 2933: (8, 8, 10), 3200: (8, 8, 11)},
    "nFAW": {1600: (16, 20, 28), 1866: (16, 22, 28), 2133: (16, 23, 32), 2400: (16, 26, 36), 2666: (16, 28, 40), 2933: (16, 31, 44), 3200: (16, 34, 48)},
}  # fmt: skip
DDR5_REFERENCE_BY_WIDTH = {
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
# Under standard, 8 Gb: 350 ns.
DDR4_350_NS = {1600: 280, 1866: 327, 2133: 374, 2400: 421, 2666: 467, 2933: 514, 3200: 560}
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


# Under standard. Nanoseconds are rounded as JESD79-5C, 13.2 says: 0.3% less, then up; tREFI down, at the exact clock.
DDR5_INTERVAL = {
    3200: 6240, 3600: 7020, 4000: 7800, 4400: 8580, 4800: 9360, 5200: 10140, 5600: 10920, 6000: 11700, 6400: 12480,
    6800: 13260, 7200: 14040, 7600: 14820, 8000: 15600, 8400: 16380, 8800: 17160,
}  # fmt: skip
DDR5_REFRESH_BY_13_2 = {
    # tRFC1 of 8, 16, 32 Gb; tRFCsb; tREFSBRD
    3200: ((312, 471, 655), (184, 208, 304), 48),
    3600: ((351, 530, 737), (207, 234, 342), 54),
    4000: ((389, 589, 818), (230, 260, 379), 60),
    4400: ((429, 648, 901), (253, 286, 418), 66),
    4800: ((468, 708, 983), (276, 312, 456), 72),
    5200: ((507, 766, 1065), (299, 338, 494), 78),
    5600: ((545, 824, 1146), (322, 364, 531), 84),
    6000: ((584, 884, 1228), (345, 390, 569), 90),
    6400: ((624, 943, 1311), (368, 416, 608), 96),
    6800: ((662, 1001, 1391), (390, 441, 645), 102),
    7200: ((702, 1062, 1476), (414, 468, 684), 108),
    7600: ((740, 1119, 1555), (436, 493, 721), 114),
    8000: ((778, 1177, 1636), (459, 519, 758), 120),
    8400: ((817, 1236, 1718), (482, 545, 796), 126),
    8800: ((857, 1296, 1801), (506, 571, 835), 132),
}
# tRRD_L, tCCD_M: max(8 clocks, 5 ns) to 6400; then 4.705, 4.444, 4.210, 4.000, 4.000, 3.863 ns.
DDR5_RRDL = {
    3200: 8, 3600: 9, 4000: 10, 4400: 11, 4800: 12, 5200: 13, 5600: 14, 6000: 15, 6400: 16,
    6800: 16, 7200: 16, 7600: 16, 8000: 16, 8400: 17, 8800: 17,
}  # fmt: skip


def derived(standard: str, rules: str, org: str, speed: dict[str, int]) -> dict[str, int]:
    density, dq, *_ = ORGANISATIONS[org]
    rate, gigabits, place = speed["rate"], density // 1024, (4, 8, 16).index(dq)
    if standard == "DDR4":
        clocks = {name: by_rate[rate][place] for name, by_rate in DDR4_BY_WIDTH.items()}
        refresh = {"nRFC": DDR4_REFRESH[rate][gigabits], "nREFI": DDR4_INTERVAL[rate]}
        if rules == "reference":
            return clocks | refresh
        if gigabits == 8:
            refresh["nRFC"] = DDR4_350_NS[rate]
        # 7.8 us at the clock of the rate's name
        refresh["nREFI"] = 7800 * rate // 2000
        return clocks | refresh | {"nRTW_DR": speed["nCL"] - speed["nCWL"] + 4 + 2 + 1, "nWTW_DR": 4 + 2}
    if rules == "reference":
        clocks = {name: by_rate[rate][place] for name, by_rate in DDR5_REFERENCE_BY_WIDTH.items()}
        all_bank, same_bank, between, interval = DDR5_REFRESH[rate]
        return clocks | {
            "nRFC": all_bank[gigabits],
            "nREFI": interval,
            "nRFCsb": same_bank[gigabits],
            "nREFSBRD": between,
        }
    of_density = (8, 16, 32).index(gigabits)
    (all_bank, same_bank, between), fast = DDR5_REFRESH_BY_13_2[rate], rate > 6400
    rmw = dq == 4  # a burst of x4 devices is half of what they correct errors in
    writes = -(-20 * rate // 2000) if rmw else -(-10 * rate // 2000)
    # CL - CWL is 2, a burst 8; 2 clocks, or nCS; the preamble, and above 4800 a longer postamble
    read_to_write = 2 + 8 + 2 + speed["nWPRE"] + (rate > 4800)
    return {
        "nRRDS": 8,
        "nRRDL": DDR5_RRDL[rate],
        "nFAW": (32, 32, 40)[place],
        "nCCDL_WR": writes,
        "nCCDM": DDR5_RRDL[rate],
        "nCCDM_WR": 64 if rmw and fast else writes,
        "nWTRM": 32 if fast else speed["nWTRL"],
        "nRTW": read_to_write,
        "nRTW_DR": read_to_write,
        "nWTW_DR": 10,
        "nRFC": all_bank[of_density],
        "nRFM": all_bank[of_density],
        "nRFCsb": same_bank[of_density],
        "nRFMsb": same_bank[of_density],
        "nREFSBRD": between,
        "nREFI": DDR5_INTERVAL[rate],
        "nREFI2": DDR5_INTERVAL[rate] // 2,
    }


def test_there_are_these_organisations_and_no_others():
    found = {
        name: (org.density_mb, org.dq, org.bankgroups, org.banks_per_group, org.rows, org.columns)
        for standard in ("DDR4", "DDR5")
        for name, org in standards()[standard].organisations.items()
    }
    assert found == ORGANISATIONS


@pytest.mark.parametrize(("standard", "rules"), SPEEDS)
def test_there_are_these_speeds_and_no_others(standard, rules):
    found = {name: dict(speed) for name, speed in standards()[standard].under(rules).speeds.items()}
    assert found == SPEEDS[standard, rules]


@pytest.mark.parametrize("rules", ["standard", "reference"])
@pytest.mark.parametrize("org", ORGANISATIONS)
def test_every_timing_of_an_organisation_at_every_speed(org, rules):
    standard = org[:4]
    for name, speed in SPEEDS[standard, rules].items():
        resolved = dict(resolve(standard, org, name, rules=rules).timings)
        assert resolved == speed | derived(standard, rules, org, speed), name


def test_a_preset_of_the_reference_alone_is_refused_by_name():
    with refused("unsupported timing") as caught:
        resolve("DDR5", "DDR5_16Gb_x8", "DDR5_4800B", rules="reference")
    assert "DDR5_4800B" in str(caught.value)
    # JESD79-5: 40-40-40, where Ramulator has 36.
    cl = {
        rules: resolve("DDR5", "DDR5_16Gb_x8", "DDR5_4800BN", rules=rules).timings["nCL"] for rules in RULES
    }
    assert cl == {"standard": 40, "reference": 36}


def test_a_sum_of_timings_follows_overrides():
    """tRTW from CL and CWL, the distances between banks of a group from those within a bank, RFM from tRFC."""
    device = resolve(
        "DDR5", "DDR5_16Gb_x8", "DDR5_4800AN", overrides=dict(nCL=40, nCCDL=14, nCCDL_WR=30, nRFC=700)
    )
    assert device.timings["nRTW"] == 40 + 8 - 32 + 2 + 2
    assert [device.timings[name] for name in ("nCCDM", "nCCDM_WR", "nRFM")] == [14, 30, 700]
    given = resolve("DDR5", "DDR5_16Gb_x8", "DDR5_4800AN", overrides=dict(nCL=40, nRTW=33))
    assert given.timings["nRTW"] == 33


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
        # They manage refreshes and are none.
        "RFMab": ("rank", False, False, False, False, False),
        "RFMsb": ("same-bank", False, False, False, False, False),
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
    monkeypatch.setattr("ndpsim.dram.spec.device.standards", lambda: {"DDR4": partial})


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
    derived_ones = set(derived("DDR5", "standard", "DDR5_16Gb_x8", SPEEDS["DDR5", "standard"]["DDR5_4800AN"]))
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
