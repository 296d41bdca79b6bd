"""HBM3 DRAM, JESD238. A channel here is one of HBM3, with both pseudo-channels of 32 bits.

Preset values equal those of Ramulator 2.1 (python/ramulator/dram/hbm3.py, commit c5b1c3a), so that the
commands of both can be compared one by one, under its rules (`rules="reference"`). These leave out what holds
refreshes of a bank and of all apart, and a refresh of a bank behind an auto-precharge or PREab. tRTW and
tRFCpb (200 ns) are the same for all.

A clock (CK) is two ticks: commands come on both its edges, and an activation takes one and a half.
"""

from ndpsim.spec.standard import ByDensity, Command, EveryBank, Management, Organisation, Rule, Standard

_READS, _WRITES = ("RD", "RDA"), ("WR", "WRA")

_RULES = (
    # The data bus of a pseudo-channel carries one burst at a time.
    Rule("BL", "pseudochannel", _READS, _READS, "nBL"),
    Rule("BL", "pseudochannel", _WRITES, _WRITES, "nBL"),
    Rule("tRTW", "pseudochannel", _READS, _WRITES, "nRTW"),
    Rule("tWTRS", "pseudochannel", _WRITES, _READS, "nCWL + nBL + nWTRS"),
    # Rows of a pseudo-channel.
    Rule("tRTP", "pseudochannel", ("RD",), ("PREab",), "nRTP"),
    Rule("tWR", "pseudochannel", ("WR",), ("PREab",), "nCWL + nBL + nWR"),
    Rule("tRRDS", "pseudochannel", ("ACT",), ("ACT", "REFpb", "RFMpb"), "nRRDS"),
    Rule("tFAW", "pseudochannel", ("ACT",), ("ACT",), "nFAW", window=4),
    Rule("tRAS", "pseudochannel", ("ACT",), ("PREab",), "nRAS"),
    Rule("tRP", "pseudochannel", ("PREab",), ("ACT",), "nRP"),
    Rule("tPPD", "pseudochannel", ("PREpb", "PREab"), ("PREpb", "PREab"), "nPPD"),
    # Refresh.
    Rule("tRC", "pseudochannel", ("ACT",), ("REFab", "RFMab"), "nRC"),
    Rule("tRP", "pseudochannel", ("PREpb", "PREab"), ("REFab", "RFMab"), "nRP"),
    Rule("tRTP + tRP", "pseudochannel", ("RDA",), ("REFab", "RFMab"), "nRP + nRTP"),
    Rule("tWR + tRP", "pseudochannel", ("WRA",), ("REFab", "RFMab"), "nCWL + nBL + nWR + nRP"),
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
    Rule("tRC", "bank", ("ACT",), ("ACT", "REFpb", "RFMpb"), "nRC"),
    Rule("tRCDRD", "bank", ("ACT",), _READS, "nRCDRD"),
    Rule("tRCDWR", "bank", ("ACT",), _WRITES, "nRCDWR"),
    Rule("tRAS", "bank", ("ACT",), ("PREpb",), "nRAS"),
    Rule("tRP", "bank", ("PREpb",), ("ACT", "REFpb", "RFMpb"), "nRP"),
    Rule("tRTP", "bank", ("RD",), ("PREpb",), "nRTP"),
    Rule("tWR", "bank", ("WR",), ("PREpb",), "nCWL + nBL + nWR"),
    Rule("tRTP + tRP", "bank", ("RDA",), ("ACT",), "nRTP + nRP"),
    Rule("tWR + tRP", "bank", ("WRA",), ("ACT",), "nCWL + nBL + nWR + nRP"),
    Rule("tRFCpb", "bank", ("REFpb",), ("ACT",), "nRFCpb"),
    Rule("tRFMpb", "bank", ("RFMpb",), ("ACT",), "nRFMpb"),
)

# What the reference leaves out.
_REFRESHES_APART = (
    Rule("tRFCab", "pseudochannel", ("REFab",), ("REFab", "REFpb"), "nRFC"),
    Rule("tRFCpb", "pseudochannel", ("REFpb",), ("REFab",), "nRFCpb"),
    Rule("tRFCpb", "bank", ("REFpb",), ("REFpb",), "nRFCpb"),
    Rule("tRP", "pseudochannel", ("PREab",), ("REFpb",), "nRP"),
    Rule("tRTP + tRP", "bank", ("RDA",), ("REFpb",), "nRTP + nRP"),
    Rule("tWR + tRP", "bank", ("WRA",), ("REFpb",), "nCWL + nBL + nWR + nRP"),
)

# Density of a die in Gb: stacks, and rows of a bank.
_SHAPES = {"4Gb": (1, 1 << 14), "8Gb_8hi": (2, 1 << 13), "16Gb_8hi": (2, 1 << 14), "32Gb_8hi": (2, 1 << 15)}
_SHAPES["32Gb_16hi"] = (4, 1 << 15)

# By the density of a stack, in ns.
_RFC = ByDensity({4096: 260, 8192: 350, 16384: 450, 32768: 550})

STANDARD = Standard(
    name="HBM3",
    source="JESD238",
    commands=(
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
            bus="row",
        ),
        Command("RFMab", "pseudochannel", manages=True, closes_first="PREab", busy="nRFMab", bus="row"),
        Command("RFMpb", "bank", manages=True, closes_first="PREpb", bus="row"),
    ),
    levels=("channel", "pseudochannel", "stack", "bankgroup", "bank"),
    transfers_per_clock=4,
    prefetch=8,
    channel_bits=32,
    rules=_RULES + _REFRESHES_APART,
    organisations={
        f"HBM3_{name}": Organisation(
            int(name.split("Gb")[0]) * 1024, 32, 4, 4, rows, 256, stacks=stacks, ranks=2
        )
        for name, (stacks, rows) in _SHAPES.items()
    },
    speeds={
        "HBM3_6400Mbps": dict(
            rate=6400, tCK_ps=625, nBL=2, nCL=20, nRCDRD=31, nRCDWR=15, nRP=26, nRAS=45, nRC=72, nWR=33,
            nRTP=9, nCWL=10, nCCDS=2, nCCDL=4, nCCDR=3, nRRDS=4, nRRDL=5, nFAW=24, nWTRS=7, nWTRL=10, nRTW=20,
            nRFCpb=320, nRFMpb=320, nRREFD=8, nREFI=6240, nPPD=2,
        )
    },
    derived={"nRFC": _RFC, "nRFMab": _RFC, "nREFIpb": EveryBank(3900)},
    max_postponed_refreshes=8,
    max_pulled_in_refreshes=8,
    controller="two-buses",
    own_data_buses=True,
    ticks_per_clock=2,
    management=Management(
        32, 3, 2, "JESD238A, 6.3.2.7: the vendor's (DEVICE_ID); none found; the strictest that DDR5 has"
    ),
    reference=dict(rules=_RULES),
)  # fmt: skip
