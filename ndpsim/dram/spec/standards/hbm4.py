"""HBM4 DRAM, JESD270-4: commands and controller of HBM3 (`hbm3.py`), two bank groups of eight banks a stack.

JESD270-4 leaves most values of a preset to the maker, and no maker's data sheet is public: `cited` says "none
found" there, and the value is that of Ramulator 2.1 (python/ramulator/dram/hbm4.py, commit c5b1c3a), which
has HBM3's nanoseconds at 8 Gb/s. Its preset for 16 Gb/s has twice these clocks and no other source:
`standard` refuses it. Clauses and tables of JESD270-4A are cited as the pages that docs/memories.md names do.
Dies of 24 Gb, and stacks of 12, are missing: they are no powers of two.
"""

from dataclasses import replace
from fractions import Fraction

from ndpsim.dram.spec.standard import (
    AtLeast,
    ByChannelDensity,
    ByStacks,
    Every,
    EveryBank,
    Management,
    Organisation,
    Rule,
)
from ndpsim.dram.spec.standards.hbm3 import COMMON_RULES, RULES, read_to_write
from ndpsim.dram.spec.standards.hbm3 import STANDARD as HBM3

_WRITES, _ONE_BANK = ("WR", "WRA"), ("REFpb", "RFMpb")

# The reference has some of the edges that it lacks in HBM3.
_REFERENCE_RULES = (
    *COMMON_RULES,
    Rule("tFAW", "pseudochannel", ("ACT",), ("ACT",), "nFAW", window=4),
    Rule("tRFCab", "pseudochannel", ("REFab",), ("REFpb",), "nRFC"),
    Rule("tRFMab", "pseudochannel", ("RFMab",), ("RFMpb",), "nRFMab"),
    Rule("tRREFD", "pseudochannel", ("RFMpb",), ("RFMpb",), "nRREFD"),
    Rule("tRRDL", "bankgroup", ("ACT",), _ONE_BANK, "nRRDL"),
    Rule("tRRDL", "bankgroup", _ONE_BANK, ("ACT",), "nRRDL"),
    Rule("tRTP + tRP", "bank", ("RDA",), _ONE_BANK, "nRTP + nRP"),
    Rule("tWR + tRP", "bank", ("WRA",), _ONE_BANK, "nCWL + nBL + nWR + nRP"),
)

# Stack height: stacks of 16 banks.
_STACKS = {"4Hi": 1, "8Hi": 2, "16Hi": 4}

# Times in clocks of 500 ps; the reference's at 250 ps are twice as many.
_AT_8000 = dict(
    nCL=20, nCWL=10, nRAS=57, nRP=33, nRCDRD=39, nRCDWR=19, nRRDL=7, nRRDS=5, nFAW=30, nRTP=12, nWR=42,
    nWTRL=13, nWTRS=9,
)  # fmt: skip
_SHARED = dict(nBL=2, nCCDS=2, nCCDL=4, nPPD=2)

_RFC = ByChannelDensity({3072: 360, 4096: 400, 6144: 410, 8192: 450, 9216: 450, 12288: 490, 16384: 530})
_AS_REFERENCE = "none found; as Ramulator 2.1 c5b1c3a"


def _speed_of_reference(times: int) -> dict[str, int]:
    """The reference's preset whose clock is this number of times as fast as that of 8000 MT/s."""
    clocks = {name: times * clocks for name, clocks in _AT_8000.items()}
    return dict(
        rate=8000 * times, tCK_ps=500 // times, **_SHARED, **clocks, nRC=90 * times, nCCDR=2,
        nRTW=25 * times, nRFCpb=560 * times, nRFMpb=560 * times,
    )  # fmt: skip


_ORGANISATIONS = {
    f"HBM4_32Gb_{height}": Organisation(32768, 32, 2, 8, 1 << 14, 256, stacks=stacks, ranks=2)
    for height, stacks in _STACKS.items()
}

STANDARD = replace(
    HBM3,
    name="HBM4",
    source="JESD270-4A",
    rules=(*RULES, Rule("tCCDS", "stack", _WRITES, _WRITES, "nCCDS", siblings=True)),
    organisations=_ORGANISATIONS,
    speeds={
        "HBM4_8000Mbps": dict(
            rate=8000, tCK_ps=500, **_SHARED, **_AT_8000, nRC=90,
            nRTW=read_to_write(8000, 20, 10, Fraction(24, 10), Fraction(0)),
        )
    },
    derived={
        "nCCDR": ByStacks({1: 2, 2: 4, 4: 4}),
        "nRREFD": AtLeast(3, {32: 8}),
        "nRFC": _RFC,
        "nRFMab": _RFC,
        "nRFCpb": Every(280),
        "nRFMpb": Every(280),
        "nREFI": Every(3900, "down"),
        "nREFIpb": EveryBank(3900, "down"),
    },
    management=Management(32, 3, 2, "JESD270-4: the vendor's; none found; the strictest that DDR5 has"),
    refused={
        "HBM4_16000Mbps": "no public source has timings of 16 Gb/s; --rules reference has Ramulator 2.1's, "
        "which are twice the clocks of 8 Gb/s",
    },
    cited={
        "nBL": "JESD270-4: burst length 8, four transfers in a CK",
        **dict.fromkeys(_AT_8000, _AS_REFERENCE),
        "nRC": "tRAS + tRP",
        "nCCDS": "JESD270-4A Table 108",
        "nCCDL": "4 as Ramulator 2.1; JESD270-4A Table 108, as quoted, has max(4 CK, 2.5 ns), 5 at 8 Gb/s",
        "nCCDR": "none found for several stacks (Table 108, Note 17); twice tCCDS; one stack: never counts",
        "nPPD": _AS_REFERENCE,
        "nRTW": "JESD270-4A Tables 107 and 108, Note 18, with CL and CWL of the preset",
        "nRREFD": "JESD270-4A Table 108: max(3 CK, 8 ns)",
        "nRFC": "JESD270-4A Table 108, by channel density",
        "nRFMab": "JESD270-4A Table 108: tRFCab",
        "nRFCpb": "JESD270-4A Table 108: 280 ns for dies of 32 Gb",
        "nRFMpb": "as tRFCpb",
        "nREFI": "JESD270-4A Table 108: at most 3.9 us",
        "nREFIpb": "JESD270-4A Table 108: tREFI by the banks of a pseudo-channel",
    },
    reference=dict(
        HBM3.reference,
        refused={},
        rules=_REFERENCE_RULES,
        organisations=_ORGANISATIONS,
        speeds={f"HBM4_{8000 * times}Mbps": _speed_of_reference(times) for times in (1, 2)},
        derived={
            "nRREFD": AtLeast(3, {32: 8}),
            "nRFC": _RFC,
            "nRFMab": _RFC,
            "nREFI": Every(3900),
            "nREFIpb": EveryBank(3900),
        },
    ),
)  # fmt: skip
