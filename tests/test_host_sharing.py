"""Streams of the host that share a channel: what each gets, against a max-min fair allocation, and its pace."""

from __future__ import annotations

import random

import pytest

from mistakes import refused
from ndpsim.config import load_hardware
from ndpsim.simulate import Session
from ndpsim.simulate.host_traffic import HostTraffic, host_round
from ndpsim.workload.models import Expert

BEGIN_NS, END_NS = 10_000, 40_000
LONG = Expert(512, 4096)  # the host reads it for longer than any window here


def max_min(asked: list[float], capacity: float) -> list[float]:
    """What each of those that share a capacity gets: the least askers all they ask for, the others the same."""
    got, left = [0.0] * len(asked), capacity
    ascending = sorted(range(len(asked)), key=asked.__getitem__)
    for place, one in enumerate(ascending):
        got[one] = min(asked[one], left / (len(asked) - place))
        left -= got[one]
    return got


def rates(session: Session, begin_ns: float = BEGIN_NS, end_ns: float = END_NS) -> list[float]:
    """GB/s of each stream in a window."""
    session.run(begin_ns)
    before = [stream.bytes for stream in session.hosts]
    session.run(end_ns)
    after = [stream.bytes for stream in session.hosts]
    return [(now - then) / (end_ns - begin_ns) for then, now in zip(before, after, strict=True)]


def add_stream(session: Session, draw: random.Random, dimm: int) -> float:
    """Add a random stream; returns the GB/s that it asks for."""
    asked = draw.choice([1.5, 4.0, 9.0, 12.0, 20.0, 38.4, float("inf")])
    gbps = "saturate" if asked == float("inf") else asked
    start_ns = draw.choice([0, 500, 4000])
    if draw.random() < 0.5:
        pattern, reads = draw.choice(["sequential", "random"]), draw.choice([0.5, 0.67, 1.0])
        session.host(pattern, gbps, reads, dimm, start_ns)
    else:
        layout = draw.choice(["localized", "striped"])
        model = LONG if layout == "localized" else Expert(512, 8 * 4096)
        session.host_read(model, layout, gbps, start_ns, dimm=dimm, behind=True)
    return asked


@pytest.mark.parametrize("seed", range(16))
def test_streams_in_any_mix_share_a_channel_max_min_fairly(seed):
    draw = random.Random(seed)
    session = Session("trimoe")
    asked = [add_stream(session, draw, draw.randrange(2)) for _ in range(draw.randrange(2, 5))]
    got = rates(session)
    assert got == pytest.approx(max_min(asked, sum(got)), rel=0.05)


def test_a_stream_that_asks_for_more_than_it_gets_starves_no_other():
    # Whatever it asks for, the read has as much of the 33.8 GB/s.
    for gbps in (38.4, 20.0, "saturate"):
        session = Session("trimoe")
        session.host("random", gbps)
        session.host_read(Expert(2048, 256))
        assert rates(session, 20_000, 120_000) == pytest.approx([16.9, 16.9], rel=0.03)


def test_a_short_read_is_done_soon_beside_traffic():
    # 98 kB: beside traffic that leaves it half of what a DIMM of one rank carries, 25.6 GB/s at most.
    session = Session("edge", sets=["dimm.ranks=1", "dimm.count=2"])
    session.host(gbps=15)
    session.run(20_000)
    session.host_read(Expert(128, 128), start_ns=20_000)
    session.run(60_000)
    read = session.hosts[1]
    assert read.is_done
    assert 98_304 / 25.6 < read.end_ns - read.start_ns < 98_304 / 8


def test_streams_that_end_leave_their_share_to_the_others():
    session = Session("trimoe")
    session.host_read(Expert(512, 256), "localized", behind=True)
    session.host_read(Expert(512, 1024), "localized", dimm=1, behind=True)
    session.run()
    short, long = session.hosts
    both_gbps = (short.bytes * 2) / short.end_ns
    rest_gbps = (long.bytes - short.bytes) / (long.end_ns - short.end_ns)
    assert both_gbps == pytest.approx(rest_gbps, rel=0.05)
    assert rest_gbps > 33


# ---- Pace


def trace_of(folder, requests: int) -> str:
    """A trace of so many requests, one burst behind the other."""
    path = folder / "few.trace"
    path.write_text("".join(f"{'ST' if n % 3 == 2 else 'LD'} {64 * n}\n" for n in range(requests)))
    return str(path)


@pytest.mark.parametrize("gbps", [0.5, 2.0, 10 / 3, 11.0])
@pytest.mark.parametrize("requests", [1, 7, 64])
def test_a_paced_stream_keeps_its_pace_over_hundreds_of_rounds(tmp_path, gbps, requests):
    session = Session("trimoe")
    session.host(trace_of(tmp_path, requests), gbps)
    rounds_ns = 300 * requests * 64 / gbps
    for number in range(4):
        (got,) = rates(session, number * rounds_ns, (number + 1) * rounds_ns)
        # Requests under way at both ends of the window: no more than the queues hold.
        assert got * rounds_ns == pytest.approx(300 * requests * 64, abs=64 * 64)


def test_generated_traffic_keeps_its_pace_when_it_comes_again():
    # A round is 65,536 requests, 4.2 MB: 210 us at 20 GB/s.
    session = Session("trimoe")
    session.host("sequential", 20.000000000000004)
    for begin_ns in (0, 150_000, 300_000):
        assert rates(session, begin_ns, begin_ns + 150_000) == pytest.approx([20.0], rel=0.005)


def test_a_request_is_taken_no_sooner_than_its_pace_allows(tmp_path):
    # Reads of one row at 1 GB/s: one every 64 ns, each on an idle DIMM; the first waits for its row.
    path = tmp_path / "row.trace"
    path.write_text("".join(f"LD {2 * 64 * 32 * n}\n" for n in range(4)))
    session = Session("trimoe", sets=["dram.refresh=none"])
    session.host(str(path), 1.0)
    for count in (1, 5, 100, 1001):
        session.run(64 * count - 1)
        assert session.hosts[0].requests in (count - 1, count)


# ---- Sequence and chance


@pytest.mark.parametrize(
    ("hw", "sets", "least"),
    [
        # Of the peak; refreshes take a tenth of it.
        ("trimoe", ["dram.refresh=none"], 0.98),
        ("trimoe", [], 0.86),
        ("edge", ["dram.refresh=none"], 0.945),  # data of two ranks are nCS apart, also of two writes
        ("edge", [], 0.9),
    ],
)
def test_requests_in_sequence_come_near_the_peak_of_the_bus(hw, sets, least):
    for read_share in (0.67, 1.0):
        sequence, chance = Session(hw, sets=sets), Session(hw, sets=sets)
        sequence.host("sequential", read_share=read_share)
        chance.host("random", read_share=read_share)
        ((in_sequence,), (at_random,)) = rates(sequence), rates(chance)
        assert least < in_sequence / sequence.hardware.dimm_host_gbps <= 1
        assert in_sequence > 0.99 * at_random


@pytest.mark.parametrize(("hw", "times"), [("trimoe", 1.05), ("edge", 1.8)])
def test_in_one_rank_sequence_is_faster_than_chance(hw, times):
    sequence, chance = (Session(hw, sets=["dimm.ranks=1", "dimm.count=8"]) for _ in range(2))
    sequence.host("sequential")
    chance.host("random")
    assert rates(sequence)[0] > times * rates(chance)[0]


@pytest.mark.parametrize("share", [0.25, 0.5, 0.67, 0.75, 0.9])
def test_every_bus_and_bank_group_has_its_share_of_reads(share):
    hardware = load_hardware("trimoe")
    requests = host_round(hardware, HostTraffic.of(20.0, share, "sequential", 38.4), 0)
    for field in (requests.at.channel, requests.at.bankgroup, requests.at.rank):
        for value in set(field.tolist()):
            assert 1 - requests.write[field == value].mean() == pytest.approx(share, abs=0.002)


def test_requests_go_to_rows_of_the_dimm_behind_its_weights():
    hardware = load_hardware("trimoe")
    device, traffic = hardware.lane_device(), HostTraffic.of(20.0, 0.5, "random", 38.4)
    bursts_of_row = 32 * 4096 // 64  # in each of the 32 banks, 4 KiB over the chips of a sub-channel
    weights = 3 * device.rows // 4
    row = host_round(
        hardware, traffic, weights * bursts_of_row - 1
    ).at.row  # the last row has room for one more
    assert weights <= row.min() < row.max() < device.rows
    with refused("too-large pattern"):
        host_round(hardware, traffic, device.rows * bursts_of_row)


def test_what_the_controller_is_told_of_its_mapping_is_for_the_host_where_it_asks_for_it():
    traffic = HostTraffic.of(20.0, 1.0, "sequential", 38.4)
    as_dram = host_round(load_hardware("trimoe", ["host.mapper=dram"]), traffic, 0)
    as_named = host_round(load_hardware("trimoe", ["host.mapper=RoBaRaCoCh"]), traffic, 0)
    assert as_dram.at.column.tolist() == as_named.at.column.tolist()
    # Bursts alternate between the two buses, and go on in one row there.
    assert as_dram.at.column[:6].tolist() == [0, 0, 1, 1, 2, 2]
    default = host_round(load_hardware("trimoe"), traffic, 0)
    assert default.at.bankgroup[:8].tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
