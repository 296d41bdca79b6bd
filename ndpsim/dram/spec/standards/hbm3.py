"""HBM3 DRAM, JESD238. A channel here is one of HBM3, with both pseudo-channels of 32 bits.

JESD238 leaves most values of a preset to the maker, and no maker's data sheet is public: `cited` says "none
found" there. HBM3_6400Mbps then has the values of Ramulator 2.1 (python/ramulator/dram/hbm3.py, commit
c5b1c3a). The HBM3E rates have these nanoseconds in whole clocks, as gem5's HBM_9600_8H_1x64 has those of its
HBM_6400_8H_1x64, and no more than the next slower rate. Clauses and tables of JESD238 are cited as the pages
that docs/memories.md names do.

A clock (CK) is two ticks: commands come on both its edges, and an activation takes one and a half.
"""

from fractions import Fraction
from math import ceil

from ndpsim.dram.spec.standard import (
    AtLeast,
    ByChannelDensity,
    ByDensity,
    ByStacks,
    Command,
    Every,
    EveryBank,
    Management,
    Organisation,
    Rule,
    Standard,
)

_READS, _WRITES = ("RD", "RDA"), ("WR", "WRA")
_ALL_BANKS, _ONE_BANK = ("REFab", "RFMab"), ("REFpb", "RFMpb")
_WRITTEN = "nCWL + nBL + nWR"

# Under both sets of rules, and of HBM4 as well.
COMMON_RULES = (
    # The data bus of a pseudo-channel carries one burst at a time.
    Rule("BL", "pseudochannel", _READS, _READS, "nBL"),
    Rule("BL", "pseudochannel", _WRITES, _WRITES, "nBL"),
    Rule("tRTW", "pseudochannel", _READS, _WRITES, "nRTW"),
    Rule("tWTRS", "pseudochannel", _WRITES, _READS, "nCWL + nBL + nWTRS"),
    # Rows of a pseudo-channel.
    Rule("tRTP", "pseudochannel", ("RD",), ("PREab",), "nRTP"),
    Rule("tWR", "pseudochannel", ("WR",), ("PREab",), _WRITTEN),
    Rule("tRRDS", "pseudochannel", ("ACT",), ("ACT", *_ONE_BANK), "nRRDS"),
    Rule("tRAS", "pseudochannel", ("ACT",), ("PREab",), "nRAS"),
    Rule("tRP", "pseudochannel", ("PREab",), ("ACT",), "nRP"),
    Rule("tPPD", "pseudochannel", ("PREpb", "PREab"), ("PREpb", "PREab"), "nPPD"),
    # Refresh.
    Rule("tRC", "pseudochannel", ("ACT",), _ALL_BANKS, "nRC"),
    Rule("tRP", "pseudochannel", ("PREpb", "PREab"), _ALL_BANKS, "nRP"),
    Rule("tRTP + tRP", "pseudochannel", ("RDA",), _ALL_BANKS, "nRP + nRTP"),
    Rule("tWR + tRP", "pseudochannel", ("WRA",), _ALL_BANKS, f"{_WRITTEN} + nRP"),
    Rule("tRFCab", "pseudochannel", ("REFab",), ("ACT", "PREab"), "nRFC"),
    Rule("tRFMab", "pseudochannel", ("RFMab",), ("ACT", "PREab"), "nRFMab"),
    Rule("tRREFD", "pseudochannel", ("REFpb",), ("ACT", "REFpb"), "nRREFD"),
    Rule("tRREFD", "pseudochannel", ("RFMpb",), ("ACT",), "nRREFD"),
    # Within a stack, and from one to another.
    Rule("tCCDS", "stack", _READS, _READS, "nCCDS"),
    Rule("tCCDS", "stack", _WRITES, _WRITES, "nCCDS"),
    Rule("tCCDR", "stack", _READS, _READS, "nCCDR", siblings=True),
    # Within a bank group.
    Rule("tCCDL", "bankgroup", _READS, _READS, "nCCDL"),
    Rule("tCCDL", "bankgroup", _WRITES, _WRITES, "nCCDL"),
    Rule("tWTRL", "bankgroup", _WRITES, _READS, "nCWL + nBL + nWTRL"),
    Rule("tRRDL", "bankgroup", ("ACT",), ("ACT",), "nRRDL"),
    # Within a bank.
    Rule("tRC", "bank", ("ACT",), ("ACT", *_ONE_BANK), "nRC"),
    Rule("tRCDRD", "bank", ("ACT",), _READS, "nRCDRD"),
    Rule("tRCDWR", "bank", ("ACT",), _WRITES, "nRCDWR"),
    Rule("tRAS", "bank", ("ACT",), ("PREpb",), "nRAS"),
    Rule("tRP", "bank", ("PREpb",), ("ACT", *_ONE_BANK), "nRP"),
    Rule("tRTP", "bank", ("RD",), ("PREpb",), "nRTP"),
    Rule("tWR", "bank", ("WR",), ("PREpb",), _WRITTEN),
    Rule("tRTP + tRP", "bank", ("RDA",), ("ACT",), "nRTP + nRP"),
    Rule("tWR + tRP", "bank", ("WRA",), ("ACT",), f"{_WRITTEN} + nRP"),
    Rule("tRFCpb", "bank", ("REFpb",), ("ACT",), "nRFCpb"),
    Rule("tRFMpb", "bank", ("RFMpb",), ("ACT",), "nRFMpb"),
)

_REFERENCE_RULES = (*COMMON_RULES, Rule("tFAW", "pseudochannel", ("ACT",), ("ACT",), "nFAW", window=4))

# Refresh and RFM are JESD238's Table 35. docs/memories.md goes through the edges one by one.
_ACTIVATING = ("ACT", *_ONE_BANK)
RULES = (
    *COMMON_RULES,
    Rule("tFAW", "pseudochannel", _ACTIVATING, _ACTIVATING, "nFAW", window=4),
    # An auto-precharge takes as long as the precharge that it replaces.
    Rule("tRTP", "pseudochannel", ("RDA",), ("PREab",), "nRTP"),
    Rule("tWR", "pseudochannel", ("WRA",), ("PREab",), _WRITTEN),
    Rule("tRTP + tRP", "bank", ("RDA",), _ONE_BANK, "nRTP + nRP"),
    Rule("tWR + tRP", "bank", ("WRA",), _ONE_BANK, f"{_WRITTEN} + nRP"),
    Rule("tRP", "pseudochannel", ("PREab",), _ONE_BANK, "nRP"),
    # Refreshes and RFM of all banks, and of one.
    Rule("tRFCab", "pseudochannel", ("REFab",), ("PREpb", *_ALL_BANKS, *_ONE_BANK), "nRFC"),
    Rule("tRFMab", "pseudochannel", ("RFMab",), ("PREpb", *_ALL_BANKS, *_ONE_BANK), "nRFMab"),
    Rule("tRFCpb", "pseudochannel", ("REFpb",), _ALL_BANKS, "nRFCpb"),
    Rule("tRFMpb", "pseudochannel", ("RFMpb",), _ALL_BANKS, "nRFMpb"),
    Rule("tRREFD", "pseudochannel", _ONE_BANK, _ONE_BANK, "nRREFD"),
    Rule("tRFCpb", "bank", ("REFpb",), ("PREpb", *_ONE_BANK), "nRFCpb"),
    Rule("tRFMpb", "bank", ("RFMpb",), ("PREpb", *_ONE_BANK), "nRFMpb"),
    Rule("tRRDL", "bankgroup", ("ACT",), _ONE_BANK, "nRRDL"),
)


def commands(pause_from: str) -> tuple[Command, ...]:
    """The commands of HBM3 and HBM4; a set of REFpb has one for each bank of a stack."""
    return (
        Command("ACT", "bank", opens=True, cycles=3, bus="row"),
        Command("PREpb", "bank", closes=True, bus="row", on_any_tick=True),
        Command("PREab", "pseudochannel", closes=True, bus="row", on_any_tick=True),
        Command("RD", "bank", reads=True, cycles=2, bus="column"),
        Command("WR", "bank", writes=True, cycles=2, bus="column"),
        Command("RDA", "bank", reads=True, closes=True, cycles=2, bus="column"),
        Command("WRA", "bank", writes=True, closes=True, cycles=2, bus="column"),
        Command("REFab", "pseudochannel", refreshes=True, closes_first="PREab", busy="nRFC", bus="row"),
        Command(
            "REFpb",
            "bank",
            refreshes=True,
            closes_first="PREpb",
            interval="nREFIpb",
            ranks="a clock apart",
            round_of="stack",
            pause="nRFCpb",
            pause_from=pause_from,
            bus="row",
        ),
        Command("RFMab", "pseudochannel", manages=True, closes_first="PREab", busy="nRFMab", bus="row"),
        Command("RFMpb", "bank", manages=True, closes_first="PREpb", bus="row"),
    )


# Gb of a die and stack height: stacks of 16 banks, and rows of a bank. HBM3_4Gb, named by its channel, is
# HBM3_16Gb_4hi. Stacks of 12 dies, and dies of 24 Gb, are missing: their stacks or rows are no power of two.
_SHAPES = {"4Gb": (1, 1 << 14), "8Gb_8hi": (2, 1 << 13), "16Gb_8hi": (2, 1 << 14), "32Gb_8hi": (2, 1 << 15)}
_SHAPES["32Gb_16hi"] = (4, 1 << 15)
_ONLY_STANDARD = {"16Gb_4hi": (1, 1 << 14), "16Gb_16hi": (4, 1 << 14)}


def _organisations(shapes: dict[str, tuple[int, int]]) -> dict[str, Organisation]:
    return {
        f"HBM3_{name}": Organisation(
            int(name.split("Gb")[0]) * 1024, 32, 4, 4, rows, 256, stacks=stacks, ranks=2
        )
        for name, (stacks, rows) in shapes.items()
    }


_HBM3E = (8000, 9200, 9600)
# Times of HBM3_6400Mbps as the reference has them, in clocks of 625 ps.
_AT_6400 = dict(
    nCL=20, nRCDRD=31, nRCDWR=15, nRP=26, nRAS=45, nWR=33, nRTP=9, nCWL=10, nRRDS=4, nRRDL=5, nFAW=24,
    nWTRS=7, nWTRL=10,
)  # fmt: skip
_SHARED = dict(nBL=2, nCCDS=2, nPPD=2)


def read_to_write(rate: int, cl: int, cwl: int, output_ns: Fraction, input_ns: Fraction) -> int:
    """nRTW by Note 18 of the AC timings: CL + BL/4 - CWL, half a clock, and the spread of data and strobes.

    `output_ns`: the latest read data after its clock, and their jitter. `input_ns`: ten times the earliest
    write strobe before its clock, if the note counts it.
    """
    clock = Fraction(4000, rate)
    return cl + 2 - cwl + ceil((input_ns + 5 * clock + 10 * output_ns) / (10 * clock))


def _times(rate: int) -> dict[str, int]:
    """The times of 6400 MT/s at another rate: never longer than at the next slower one."""
    times, slower = dict(_AT_6400), 6400
    for faster in _HBM3E:
        if faster <= rate:
            times = {name: clocks * faster // slower for name, clocks in times.items()}
            slower = faster
    return times


def _speed(rate: int) -> dict[str, int]:
    """A preset: these times, and those that JESD238 gives in nanoseconds."""
    times = _times(rate)
    clock = Fraction(4000, rate)  # ns
    earliest = max(Fraction(-2), -2 * clock)
    return dict(
        rate=rate, tCK_ps=4_000_000 // rate, **_SHARED, **times, nRC=times["nRAS"] + times["nRP"],
        nCCDL=max(4, ceil(Fraction(5, 2) / clock)),
        nRTW=read_to_write(rate, times["nCL"], times["nCWL"], Fraction(252, 100), earliest),
    )  # fmt: skip


_RFC = ByChannelDensity({4096: 260, 6144: 310, 8192: 350, 12288: 410, 16384: 450, 32768: 550})
_REFERENCE_RFC = ByDensity({4096: 260, 8192: 350, 16384: 450, 32768: 550})
_AS_REFERENCE = "none found; as Ramulator 2.1 c5b1c3a"
_CARRIED = "none found; the ns of HBM3_6400Mbps, rounded down, as gem5 carries HBM3's to 9.6 Gb/s"

STANDARD = Standard(
    name="HBM3",
    source="JESD238",
    commands=commands("issue"),
    levels=("channel", "pseudochannel", "stack", "bankgroup", "bank"),
    transfers_per_clock=4,
    prefetch=8,
    channel_bits=32,
    rules=RULES,
    organisations=_organisations(_SHAPES | _ONLY_STANDARD),
    speeds={f"HBM3_{rate}Mbps": _speed(rate) for rate in (6400, *_HBM3E)},
    derived={
        "nCCDR": ByStacks({1: 2, 2: 3, 4: 3}),
        "nRREFD": AtLeast(3, {32: 8}),
        "nRFC": _RFC,
        "nRFMab": _RFC,
        "nRFCpb": Every(200),
        "nRFMpb": Every(200),
        "nREFI": Every(3900, "down"),
        "nREFIpb": EveryBank(3900, "down"),
    },
    max_postponed_refreshes=8,
    max_pulled_in_refreshes=8,
    controller="two-buses",
    derives_exactly=True,
    own_data_buses=True,
    ticks_per_clock=2,
    management=Management(
        32, 3, 2, "JESD238A, 6.3.2.7: the vendor's (DEVICE_ID); none found; the strictest that DDR5 has"
    ),
    choices=("all-bank commands apart",),
    cited={
        "nBL": "JESD238: burst length 8, four transfers in a CK",
        **dict.fromkeys(_AT_6400, _CARRIED),
        **{f"HBM3_6400Mbps/{name}": _AS_REFERENCE for name in _AT_6400},
        "nRC": "tRAS + tRP",
        "nCCDS": "JESD238 Table 93",
        "nCCDL": "JESD238 Table 93 (JESD238B.01, as gem5 quotes it): max(4 CK, 2.5 ns)",
        "nCCDR": _AS_REFERENCE + ", a clock more than tCCDS; one stack: never counts",
        "nPPD": _AS_REFERENCE,
        "nRTW": "JESD238 Tables 92 and 93, Note 18, with CL and CWL of the preset",
        "nRREFD": "JESD238 Table 93: max(3 CK, 8 ns)",
        "nRFC": "JESD238 Table 93 by channel density; 32 Gb a channel: none found, as Ramulator 2.1 at most",
        "nRFMab": "JESD238 Table 93: tRFCab",
        "nRFCpb": "JESD238 Table 93: 200 ns for dies of 16 Gb; of 8 and 32 Gb: none found, the same",
        "nRFMpb": "as tRFCpb",
        "nREFI": "JESD238 Table 93: at most 3.9 us",
        "nREFIpb": "JESD238 Table 93: tREFI by the banks of a pseudo-channel",
    },
    reference=dict(
        commands=commands("request"),
        rules=_REFERENCE_RULES,
        organisations=_organisations(_SHAPES),
        speeds={
            "HBM3_6400Mbps": dict(
                rate=6400, tCK_ps=625, **_SHARED, **_AT_6400, nRC=72, nCCDL=4, nCCDR=3, nRTW=20,
                nRFCpb=320, nRFMpb=320, nRREFD=8, nREFI=6240,
            )
        },
        derived={"nRFC": _REFERENCE_RFC, "nRFMab": _REFERENCE_RFC, "nREFIpb": EveryBank(3900)},
        derives_exactly=False,
        choices=(),
    ),
)  # fmt: skip
