"""Machines whose units stand behind LPDDR5, LPDDR5X, HBM3 and GDDR6: what pins carry bounds what they read."""

from __future__ import annotations

import numpy as np
import pytest

import ndpsim
from builders.small_moe import moe
from mistakes import mistake_of, refused
from ndpsim.audit import check, check_lanes
from ndpsim.base.options.dram import ControllerOptions
from ndpsim.config import Hardware, load_hardware
from ndpsim.dram.traces import Requests
from ndpsim.inference.layers.costs import Costs
from ndpsim.report.text import all_lanes
from ndpsim.simulate import Memory, run_requests

# Data pins of a channel, and bits that each carries in a ns (JESD209-5, JESD238, JESD250).
PINS = {"LPDDR5": (16, 6.4), "LPDDR5X": (16, 8.533), "HBM3": (64, 6.4), "GDDR6": (16, 14.0)}
PRESETS = {
    "LPDDR5": ("LPDDR5_8Gb_x16", "LPDDR5_6400"),
    "LPDDR5X": ("LPDDR5X_16Gb_x16", "LPDDR5X_8533"),
    "HBM3": ("HBM3_4Gb", "HBM3_6400Mbps"),
    "GDDR6": ("GDDR6_8Gb_x16", "GDDR6_14000_1350mV_double"),
}
OTHERS = ("LPDDR5", "LPDDR5X", "HBM3")  # whose controllers issue otherwise than one command a clock
EXPERT = ndpsim.Expert(1024, 256)

each_memory = pytest.mark.parametrize("memory", PINS)


def sets_of(memory: str, *more: str, count: int = 2) -> list[str]:
    org, timing = PRESETS[memory]
    names = [f"dram.standard={memory}", f"dram.org={org}", f"dram.timing={timing}", "dram.overrides={}"]
    return [*names, "dimm.ranks=1", "dimm.subchannels=4", f"dimm.count={count}", *more]


def machine(memory: str, *more: str, name: str = "edge") -> Hardware:
    """Units behind four channels of a memory each, one on each of the host's two channels."""
    return load_hardware(name, sets_of(memory, *more))


@each_memory
def test_peaks_are_what_pins_carry(memory):
    hardware, (pins, gbit_s) = machine(memory), PINS[memory]
    derived = hardware.to_dict()["derived"]
    assert derived["data_pins"] == 4 * pins
    assert hardware.dimm_peak_gbps == pytest.approx(4 * pins * gbit_s / 8)
    assert hardware.dimm_host_gbps == hardware.dimm_peak_gbps  # there are no ranks to turn to


@pytest.mark.parametrize("refresh", ["all-bank", "per-bank", "none"])
@each_memory
def test_lanes_issue_legal_commands_alike_on_both_controllers_and_read_no_more_than_pins_carry(
    memory, refresh
):
    hardware = machine(memory, f"dram.refresh={refresh}", "ndp.gemv.multipliers=4096")
    result = ndpsim.simulate_expert(hardware, EXPERT, 1, record_commands=True, exact_check=True)
    pins, gbit_s = PINS[memory]
    assert 0.6 < result.weight_bytes / result.time_ns / (4 * pins * gbit_s / 8) < 1
    device = hardware.lane_device()
    for trace in result.command_traces:
        assert check(trace, device, refresh).ok
        assert len(set(trace.rank.tolist())) == device.ranks
    together = all_lanes(result.command_traces, device.ranks)
    report = check_lanes(together, device, len(result.command_traces), refresh)
    assert (report.ok, report.commands) == (True, sum(map(len, result.command_traces)))
    # A lane that is told as another's commands is found out.
    together.rank[0] += device.ranks
    assert not check_lanes(together, device, len(result.command_traces), refresh).ok


@each_memory
def test_tokens_bits_and_slices_agree_on_both_controllers(memory):
    hardware = machine(memory)
    for tokens, bits, layout in ((1, 4, "localized"), (9, 16, "localized"), (3, 8, "sharded:2")):
        ndpsim.simulate_expert(hardware, EXPERT, tokens, layout, bits, exact_check=True)
    ndpsim.simulate_expert(hardware, EXPERT, (2, 1, 5), exact_check=True)


@pytest.mark.long  # with the banks of two stacks, queues of several chunks are compiled anew for two buses
def test_an_expert_on_two_stacks_agrees_on_both_controllers():
    ndpsim.simulate_expert(machine("HBM3", "dram.org=HBM3_8Gb_8hi"), EXPERT, (2, 1, 5), exact_check=True)


@each_memory
def test_a_unit_with_many_tokens_is_what_binds(memory):
    result = ndpsim.simulate_expert(machine(memory), EXPERT, 64)
    assert result.busy["compute"] > 0.9 > 2 * result.busy["memory"]


def test_both_pseudochannels_of_a_lane_read_half_of_it():
    result = ndpsim.simulate_expert(machine("HBM3"), EXPERT, 1, record_commands=True)
    for trace in result.command_traces:
        reads = trace.numbered(["RD"]) >= 0
        assert np.bincount(trace.rank[reads]).tolist() == [result.weight_bursts // 8] * 2


@pytest.mark.parametrize("layout", ["localized", "striped"])
@each_memory
def test_the_host_reads_an_expert_over_the_same_pins(memory, layout):
    hardware, (pins, gbit_s) = machine(memory), PINS[memory]
    result = ndpsim.simulate_host_read(hardware, EXPERT, layout, record_commands=True, exact_check=True)
    assert result.channels == (2 if layout == "striped" else 1)
    assert 0.6 < result.bandwidth_gbps / (result.channels * 4 * pins * gbit_s / 8) < 1
    for trace in result.command_traces:
        assert check(trace, hardware.bus_device(1)).ok


@pytest.mark.parametrize("memory", [*OTHERS, pytest.param("GDDR6", marks=pytest.mark.long)])
def test_policies_run_on_it(memory):
    result = moe("monde", "klotski", "edge", hw="trimoe", sets=sets_of(memory, "link=null", count=8))
    assert all(run.time_ns > 0 for run in result.runs)
    assert any(run.pairs_by_engine["ndp"] > 0 for run in result.runs)


@pytest.mark.parametrize("memory", OTHERS)
def test_units_beside_the_host_lose_the_share_it_reads_where_both_are_not_simulated_together(memory):
    costs = Costs(machine(memory), EXPERT, cache=False)
    table = costs.contention()
    assert table.host_gbps.tolist() == [0, costs.host_read(1).gbps_per_channel]
    assert table.ndp_speed.tolist() == [[[1, 0]]] * 3
    assert table.vectors_ns(100) == (0, 0)
    with refused("conflict arbitration"):
        Costs(machine(memory), EXPERT, arbitration="slice", cache=False).contention()


@pytest.mark.parametrize("memory", OTHERS)
def test_what_is_not_simulated_is_refused_in_a_line(memory):
    hardware = machine(memory)
    assert mistake_of(ndpsim.simulate_contention, hardware, EXPERT) == "unsupported dram.standard"
    eight = machine(memory, "dimm.count=8", name="trimoe")
    assert mistake_of(ndpsim.simulate_relayout, eight, EXPERT) == "unsupported sets dram.standard"


@pytest.mark.parametrize("memory", ["HBM3", "GDDR6"])
def test_a_channel_without_ranks_ends_at_one_package(memory):
    assert mistake_of(machine, memory, "dimm.ranks=2") == "range sets dimm.ranks"
    assert mistake_of(machine, memory, "dimm.count=3") == "range sets dimm.count"
    load_hardware("edge", sets_of("LPDDR5", "dimm.ranks=2", "dimm.count=4"))  # which has ranks


@pytest.mark.long  # a host with one rank is compiled anew; test_contention.py has the same of DDR4 and DDR5
def test_host_and_units_share_gddr6_command_by_command():
    result = ndpsim.simulate_contention(machine("GDDR6"), EXPERT, 4, host_gbps=20, record_commands=True)
    assert result.ndp_slowdown > 1
    assert all(check(trace, machine("GDDR6").lane_device()).ok for trace in result.command_traces)


def test_a_hardware_file_chooses_rules_and_data_clock():
    at = ["dram.rules=reference", "dram.wck=always-on"]
    memory = Memory.of_hardware(machine("LPDDR5", *at))
    named = Memory.named(
        "LPDDR5",
        *PRESETS["LPDDR5"],
        channels=8,
        rules="reference",
        options=ControllerOptions(wck="always-on"),
    )
    assert memory.to_dict() == named.to_dict()
    requests = Requests(np.arange(40, dtype=np.int64) * 4096, np.zeros(40, dtype=np.int8))
    assert "CAS_RD" in run_requests(requests, Memory.of_hardware(machine("LPDDR5"))).commands
    assert "CAS_RD" not in run_requests(requests, memory).commands
    result = ndpsim.simulate_expert(machine("LPDDR5", "dram.wck=always-on"), EXPERT, 1)
    assert "CAS_RD" not in result.commands
    assert "CAS_RD" in ndpsim.simulate_expert(machine("LPDDR5"), EXPERT, 1).commands
    with refused("unknown-name sets dram.rules"):
        machine("LPDDR5", "dram.rules=jedec")


def test_activations_come_over_the_data_buses_of_both_pseudochannels():
    # 1024 activations of 2 bytes are 64 bursts over 4 x 2 buses, each for 4 ticks, behind nCWL of 20 ticks.
    first = ndpsim.simulate_expert(machine("HBM3"), EXPERT, 1).phases[0]
    assert (first.name, first.end_ns - first.start_ns) == ("activations-in", (8 * 4 + 20) * 0.3125)


@pytest.mark.parametrize(
    "memory",
    ["LPDDR5", "HBM3", *(pytest.param(name, marks=pytest.mark.long) for name in ("LPDDR5X", "GDDR6"))],
)
def test_a_host_with_very_many_channels_runs_a_trace_on_all_of_them(memory):
    hardware = machine(memory, "host.channels=32", "dimm.count=32", "dimm.subchannels=8")
    requests = Requests(np.arange(1024, dtype=np.int64) * 32, np.zeros(1024, dtype=np.int8))
    result = run_requests(requests, Memory.of_hardware(hardware), exact_check=True)
    assert sum(count for name, count in result.commands.items() if name.startswith("RD")) == 1024
    pins, gbit_s = PINS[memory]
    assert result.peak_bandwidth_gbps == pytest.approx(256 * pins * gbit_s / 8)
