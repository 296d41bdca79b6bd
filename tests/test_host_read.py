"""A host read of an expert: closed bounds, legal commands, conservation of bytes, and inputs that must change nothing."""

from __future__ import annotations

import numpy as np
import pytest

from calls import call, said
from ndpsim.audit import check
from ndpsim.base.errors import MismatchError
from ndpsim.config import load_hardware
from ndpsim.dimm.layout import ExpertFormat, ExpertWeights, make_layout
from ndpsim.dram.engines import FastController
from ndpsim.dram.refresh_policies import NAMES
from ndpsim.simulate import HostReadResult, simulate_host_read
from ndpsim.simulate.host import host_buses
from ndpsim.simulate.machine import geometry_of
from ndpsim.workload.models import Expert
from pairs import all_pairs

SMALL = Expert(1024, 256)
RFC = 986 / 9375  # tRFC / tREFI of trimoe: what one rank is not there for


@pytest.fixture(scope="module")
def one_channel() -> HostReadResult:
    return simulate_host_read("trimoe", layout="localized")


@pytest.fixture(scope="module")
def all_channels() -> HostReadResult:
    return simulate_host_read("trimoe", layout="striped")


def test_eight_channels_read_eight_times_as_fast_as_one(one_channel, all_channels):
    assert one_channel.time_ns / all_channels.time_ns == pytest.approx(8, rel=0.01)
    assert (one_channel.channels, all_channels.channels) == (1, 8)
    assert (one_channel.buses, all_channels.buses) == (2, 16)


def test_never_faster_than_the_channels(one_channel, all_channels):
    # Table 1 of the trimoe paper: 307.2 GB/s over 8 channels.
    assert one_channel.peak_bandwidth_gbps == pytest.approx(38.4, rel=1e-12)
    assert all_channels.peak_bandwidth_gbps == pytest.approx(307.2, rel=1e-12)
    for result in (one_channel, all_channels):
        # A rank's refresh cannot hide while the host reads on in that rank; row and rank changes do.
        assert 0.98 * (1 - RFC) < result.peak_fraction < 1 - 0.9 * RFC
        assert result.weight_bytes == 37_748_736
        assert result.commands["RD"] * 64 == result.weight_bytes


def test_without_refresh_only_the_changes_of_rank_are_left():
    result = simulate_host_read("trimoe", layout="striped", sets=["dram.refresh=none"])
    switches = 37_748_736 // 64 / 16 / 512  # a bus goes to another rank after 512 bursts
    floor = 37_748_736 / 64 / 16 * 8 + 2 * switches  # nBL is 8, nCS 2 clocks
    assert floor < result.cycles < 1.002 * floor


def test_a_slower_change_of_rank_takes_its_clocks():
    sets = ["dram.refresh=none"]
    fast = simulate_host_read("trimoe", layout="striped", sets=sets)
    slow = simulate_host_read("trimoe", layout="striped", sets=[*sets, "dram.nCS=12"])
    assert slow.cycles - fast.cycles == pytest.approx(10 * (72 - 1), abs=10)


def test_time_never_beats_the_data_bus_and_adds_up(all_channels):
    data_ns = all_channels.commands["RD"] / all_channels.buses * 8 * all_channels.clock_ns
    assert data_ns + sum(all_channels.idle_ns.values()) == pytest.approx(all_channels.time_ns, rel=1e-3)
    assert data_ns < all_channels.time_ns


@pytest.mark.parametrize("hw", ["trimoe", "edge"])
@pytest.mark.parametrize("layout", ["localized", "striped", "sharded:3"])
def test_every_burst_is_read_once(hw, layout):
    hardware = load_hardware(hw)
    weights = ExpertWeights(SMALL.hidden, SMALL.intermediate, ExpertFormat.of(4, group_size=64))
    laid = make_layout(layout, geometry_of(hardware), weights)
    buses = host_buses(laid)
    assert sorted(np.concatenate([bus.burst for bus in buses]).tolist()) == list(range(laid.bursts))
    places = laid.places()
    for bus in buses:
        dimm, lane, place = (values[bus.burst] for values in places)
        assert set(laid.geometry.channel_of(dimm)) == {bus.channel}
        assert set(lane % laid.geometry.subchannels) == {bus.subchannel}
        assert np.array_equal(bus.place, place)
        assert len({*zip(bus.rank.tolist(), bus.place.tolist(), strict=True)}) == len(place)
        assert bus.rank.max() < bus.ranks


@pytest.mark.parametrize(
    *all_pairs(
        {
            "hw": ["trimoe", "edge"],
            "layout": ["localized", "striped", "sharded:5"],
            "refresh": ["all-bank", "staggered", "none"],
        }
    )
)
def test_every_bus_is_legal(hw, layout, refresh):
    hardware = load_hardware(hw, [f"dram.refresh={refresh}"])
    result = simulate_host_read(hardware, SMALL, layout, record_commands=True)
    assert len(result.command_traces) == result.buses
    assert sum(int((trace.column >= 0).sum()) for trace in result.command_traces) == result.weight_bursts
    for trace in result.command_traces[:2]:
        report = check(trace, hardware.bus_device(result.ranks_per_bus), refresh)
        assert report.ok, report.violations[0].message


def test_a_longer_change_of_rank_turns_the_checker_red():
    hardware = load_hardware("trimoe")
    trace = simulate_host_read(hardware, SMALL, "striped", record_commands=True).command_traces[0]
    assert len(np.unique(trace.rank)) == 8  # 2 DIMMs of 4 ranks
    assert check(trace, hardware.bus_device(8)).ok
    assert not check(trace, load_hardware("trimoe", ["dram.nCS=3"]).bus_device(8)).ok


def test_dimms_of_a_channel_are_ranks_of_its_bus():
    two = simulate_host_read("trimoe", SMALL, "striped", record_commands=True)
    one = simulate_host_read("trimoe", SMALL, "striped", sets=["dimm.count=8"], record_commands=True)
    assert (two.ranks_per_bus, one.ranks_per_bus) == (8, 4)
    per_rank = [np.bincount(trace.rank[trace.column >= 0]) for trace in two.command_traces]
    assert all(np.ptp(counts) <= 2 and len(counts) == 8 for counts in per_rank)


@pytest.mark.parametrize("shape", [(513, 257), (96, 40), (3, 5), (2048, 768)])
@pytest.mark.parametrize("layout", ["localized", "striped", "sharded:3"])
def test_the_plain_run_agrees(shape, layout):
    for hw in ("trimoe", "edge"):
        simulate_host_read(hw, Expert(*shape), layout, exact_check=True)


def test_a_difference_to_the_plain_run_is_found(monkeypatch):
    def without_refresh(tables, policy):
        return FastController(tables, policy._replace(refresh=NAMES.index("none")))

    monkeypatch.setattr("ndpsim.simulate.host.make_controller", without_refresh)
    with pytest.raises(MismatchError, match="bus 0 differs"):
        simulate_host_read("trimoe", Expert(2048, 768), exact_check=True)


def test_fewer_bits_take_less_time_and_scales_take_theirs(all_channels):
    four = simulate_host_read("trimoe", layout="striped", bits=4)
    grouped = simulate_host_read("trimoe", layout="striped", bits=ExpertFormat.of(4, group_size=128))
    assert four.time_ns / all_channels.time_ns == pytest.approx(1 / 4, rel=0.03)
    assert grouped.weight_bytes / four.weight_bytes == (512 + 20) / 512
    assert grouped.time_ns > four.time_ns


# ---- the command line ----------------------------------------------------------------------------------


def test_gemv_with_the_host_as_the_engine(tmp_path):
    trace = str(tmp_path / "bus.csv")
    arguments = ("gemv", "--engine", "host-read", "--shape", "1024,256")
    words = said(*arguments, "--commands", trace, "--lane", "15")
    assert "The host of trimoe reads one expert of 1024 x 256, striped, 16 bits" in words
    assert "channels 8" in words
    assert "legal; " in said("check", trace, "--hw", "trimoe", "--ranks", "8")
    assert call("check", trace, "--hw", "trimoe", "--ranks", "8", "--set", "dram.nRCD=60").status == 1
