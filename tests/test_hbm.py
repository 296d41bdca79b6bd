"""HBM3 by JESD238 and HBM4 by JESD270-4: values, edges one by one, the pause of per-bank refresh, HBM3E rates."""

from __future__ import annotations

from fractions import Fraction
from math import ceil

import numpy as np
import pytest

from mistakes import refused
from ndpsim.base.options.dram import ControllerOptions
from ndpsim.dram.refresh_policies import make_schedule
from ndpsim.dram.spec import lower, resolve, standards
from ndpsim.dram.state import refreshed
from ndpsim.dram.traces import Requests
from ndpsim.simulate import Memory, run_requests
from ndpsim.simulate.timing import Probe

HBM3, HBM4 = ("HBM3", "HBM3_16Gb_8hi", "HBM3_6400Mbps"), ("HBM4", "HBM4_32Gb_8Hi", "HBM4_8000Mbps")
RATES = (6400, 8000, 9200, 9600)


# ---- Values


# Die, height and channel density in Gb, and tRFCab in ns: JESD238 Table 93, JESD270-4A Table 108.
@pytest.mark.parametrize(
    ("org", "channel_gb", "rfc"),
    [
        ("HBM3_16Gb_4hi", 4, 260),
        ("HBM3_4Gb", 4, 260),
        ("HBM3_8Gb_8hi", 4, 260),
        ("HBM3_16Gb_8hi", 8, 350),
        ("HBM3_16Gb_16hi", 16, 450),
        ("HBM3_32Gb_8hi", 16, 450),
        ("HBM3_32Gb_16hi", 32, 550),
        ("HBM4_32Gb_4Hi", 4, 400),
        ("HBM4_32Gb_8Hi", 8, 450),
        ("HBM4_32Gb_16Hi", 16, 530),
    ],
)
def test_refresh_takes_as_long_as_the_density_of_a_channel_asks(org, channel_gb, rfc):
    standard = org[:4]
    for timing in standards()[standard].speeds:
        device = resolve(standard, org, timing)
        assert device.capacity_bytes == channel_gb << 27
        clock = Fraction(4000, device.timings["rate"])
        assert device.timings["nRFC"] == device.timings["nRFMab"] == ceil(rfc / clock)
        assert (
            device.timings["nRFCpb"]
            == device.timings["nRFMpb"]
            == ceil((200 if standard == "HBM3" else 280) / clock)
        )
        assert device.timings["nRREFD"] == max(3, ceil(8 / clock))
        # Maximum intervals are rounded down.
        assert device.timings["nREFI"] == 3900 // clock
        assert device.timings["nREFIpb"] == 3900 / clock // (device.banks_per_rank)


def test_reads_to_writes_by_note_18():
    # CL + BL/4 - CWL + (max(-2 ns, -2 tCK) + 5 tCK + 25.2 ns) / 10 tCK, the quotient rounded up; by hand.
    by_hand = [20 + 2 - 10 + 5, 25 + 2 - 12 + 6, 28 + 2 - 13 + 7, 29 + 2 - 13 + 7]
    for rate, clocks in zip(RATES, by_hand, strict=True):
        assert resolve("HBM3", HBM3[1], f"HBM3_{rate}Mbps").timings["nRTW"] == clocks, rate
    # HBM4: CL + BL/4 - CWL + (5 tCK + 24 ns) / 10 tCK.
    assert resolve(*HBM4).timings["nRTW"] == 20 + 2 - 10 + 6


def test_hbm3e_has_the_nanoseconds_of_6400_and_no_rate_longer_ones_than_a_slower_one():
    names = ("nCL", "nCWL", "nRCDRD", "nRCDWR", "nRP", "nRAS", "nRC", "nWR", "nRTP", "nFAW", "nWTRL", "nRTW")
    slower = resolve(*HBM3).timings
    # Clocks at 8000, 9200 and 9600 MT/s, by hand: times 5 / 4, 23 / 20 and 24 / 23, each rounded down.
    by_hand = {"nCL": (25, 28, 29), "nRP": (32, 36, 37), "nRAS": (56, 64, 66), "nFAW": (30, 34, 35)}
    for place, rate in enumerate(RATES[1:]):
        timings = resolve("HBM3", HBM3[1], f"HBM3_{rate}Mbps").timings
        assert {name: timings[name] for name in by_hand} == {name: of[place] for name, of in by_hand.items()}
        for name in names:
            assert timings[name] * slower["rate"] <= slower[name] * rate, (rate, name)
        slower = timings
        assert timings["nCCDL"] == max(4, ceil(Fraction(5, 2) * rate / 4000))  # max(4 CK, 2.5 ns)
        assert resolve("HBM3", HBM3[1], f"HBM3_{rate}Mbps").peak_gbps == pytest.approx(rate * 64 / 8000)
        with refused("unsupported timing") as caught:
            resolve("HBM3", HBM3[1], f"HBM3_{rate}Mbps", rules="reference")
        assert f"HBM3_{rate}Mbps" in str(caught.value)
    with refused("unsupported timing") as caught:
        resolve("HBM4", HBM4[1], "HBM4_16000Mbps")
    assert "HBM4_16000Mbps" in str(caught.value)


# ---- Edges


# Before and after, the place of the second beside bank 0 of group 0, and the latency. ACT takes 3 ticks, RDA
# and WRA 2, all others 1; a latency counts between last ticks. Some are those of Ramulator's issue 272.
SAME, BANK, GROUP, STACK = {}, {"bank": 1}, {"bankgroup": 1}, {"stack": 1}
EDGES = [
    ("RFMpb", "RFMpb", BANK, "nRREFD"),
    ("RFMpb", "REFpb", GROUP, "nRREFD"),
    ("REFpb", "RFMpb", STACK, "nRREFD"),
    ("REFpb", "REFpb", SAME, "nRFCpb"),
    ("RFMpb", "REFpb", SAME, "nRFMpb"),
    ("REFab", "REFpb", SAME, "nRFC"),
    ("REFab", "REFab", SAME, "nRFC"),
    ("RFMab", "RFMpb", SAME, "nRFMab"),
    ("REFpb", "REFab", SAME, "nRFCpb"),
    ("RFMpb", "RFMab", SAME, "nRFMpb"),
    ("ACT", "REFpb", BANK, "nRRDL"),
    ("ACT", "RFMpb", BANK, "nRRDL"),
    ("ACT", "REFpb", GROUP, "nRRDS"),
    ("REFpb", "ACT", BANK, "nRREFD"),
    ("PREab", "REFpb", SAME, "nRP"),
    ("RDA", "REFpb", SAME, "nRTP + nRP"),
    ("WRA", "RFMpb", SAME, "nCWL + nBL + nWR + nRP"),
    ("RDA", "PREab", SAME, "nRTP"),
    ("WRA", "PREab", SAME, "nCWL + nBL + nWR"),
]
TICKS = {"ACT": 3, "RDA": 2, "WRA": 2}


@pytest.mark.parametrize(("before", "after", "place", "latency"), EDGES)
@pytest.mark.parametrize("presets", [HBM3, HBM4])
def test_an_edge_is_as_long_as_its_table_asks(presets, before, after, place, latency):
    device = resolve(*presets, overrides={"nPPD": 1})
    probe = Probe(*presets, overrides={"nPPD": 1}, rows=False)
    probe.issue(before, clock=1)
    at = 1 + device.clocks(latency) + TICKS.get(before, 1) - TICKS.get(after, 1)
    if not after.startswith("PRE"):  # others come on rising edges, which are odd
        at += 1 - at % 2
    probe.assert_earliest(after, clock=at, **place)


def test_the_window_counts_refreshes_of_banks():
    overrides = {"nFAW": 60, "nRREFD": 4, "nRRDS": 4}
    for rules, waits in (("standard", True), ("reference", False)):
        probe = Probe(*HBM3, overrides=overrides, rules=rules, rows=False)
        for number, name in enumerate(("ACT", "REFpb", "ACT", "REFpb")):
            probe.issue(name, clock=1 + 20 * number, bankgroup=number)
        # 60 clocks from the last tick of the first ACT to that of the fifth.
        assert (probe.earliest("ACT", stack=1) == 1 + 120) == waits, rules


# ---- The controller


def random_requests(memory: Memory, count: int = 3000, write: float = 0.3) -> Requests:
    rng = np.random.default_rng(3)
    address = rng.integers(0, memory.capacity_bytes // 32, count) * 32
    return Requests.of(address, (rng.random(count) < write).astype(np.int64))


def trace_of(presets, rules="standard", count=3000, overrides=None, **options):
    memory = Memory.named(*presets, 1, overrides, options=ControllerOptions(**options), rules=rules)
    return run_requests(random_requests(memory, count), memory, record_commands=True)


@pytest.mark.parametrize("control", ["own-bank", "reference"])
def test_refreshes_pause_after_a_round_and_catch_up(control):
    # An interval of 60 clocks; the pause of 320 clocks is longer than five of them.
    result = trace_of(
        ("HBM3", "HBM3_4Gb", "HBM3_6400Mbps"),
        overrides={"nREFIpb": 60},
        refresh="per-bank",
        refresh_control=control,
    )
    columns = result.command_traces[0].to_arrays()
    refresh = columns["command"] == "REFpb"
    clock = [columns["clock"][refresh & (columns["rank"] == rank)] for rank in (0, 1)]
    rounds = min(len(one) for one in clock) // 16 - 1
    assert rounds > 3
    apart = []
    for n in range(1, rounds + 1):
        ended = max(one[16 * n - 1] for one in clock)
        apart += [min(one[16 * n] for one in clock) - ended]
        # All that was missed comes before the round ends.
        assert max(one[16 * n + 15] for one in clock) < (16 * (n + 1) + 8) * 120
    assert min(apart) >= 2 * 320
    assert min(apart) < 2 * 320 + 120


def test_the_pause_of_the_reference_is_in_its_schedule():
    # With one stack it counts from the clock at which the 16th is due in the second pseudo-channel.
    for pause, period in ((320, 16 * 780), (500, 15 * 780 + 1 + 1000)):
        device = resolve("HBM3", "HBM3_4Gb", HBM3[2], overrides={"nRFCpb": pause}, rules="reference")
        assert make_schedule("per-bank", refreshed(lower(device))).period == period


def test_commands_to_all_banks_are_never_in_the_clock_of_a_column_command():
    # JESD238 forbids it, and the page's choice does. tRTP and tWR hold PREab back anyway.
    columns = trace_of(HBM3, count=20000).command_traces[0].to_arrays()
    of_data = np.isin(columns["command"], ("RD", "WR"))
    data = set(zip(columns["clock"][of_data], columns["rank"][of_data], strict=True))
    whole = np.isin(columns["command"], ("PREab", "REFab"))
    assert whole.sum() > 10
    assert not data.intersection(zip(columns["clock"][whole], columns["rank"][whole], strict=True))


def seconds(presets, traffic: str, refresh: str) -> float:
    # Bank groups in turn: in one group 9200 MT/s are slower than 8000, as tCCDL of 2.5 ns is 6 clocks, 2.6 ns.
    options = ControllerOptions(refresh=refresh)
    memory = Memory.named(*presets, mapper="MOP4CLXOR", options=options)
    requests = random_requests(memory, 20000, 0)
    if traffic == "stream":
        requests = Requests.of(np.arange(20000) * 32, np.zeros(20000, dtype=np.int64))
    return run_requests(requests, memory, record_commands=True).time_ns


@pytest.mark.parametrize("traffic", ["stream", "random"])
def test_bandwidth_rises_with_the_rate_and_falls_with_refresh(traffic):
    times = [seconds(("HBM3", HBM3[1], f"HBM3_{rate}Mbps"), traffic, "all-bank") for rate in RATES]
    assert times == sorted(times, reverse=True)
    for presets in (HBM3, HBM4):
        assert seconds(presets, traffic, "none") < seconds(presets, traffic, "all-bank")
