"""An expert beside the host's traffic: bounds, conservation, legality, and no change without traffic."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from builders.small_config import DDR4
from calls import said
from mistakes import refused
from ndpsim.audit import check_lanes
from ndpsim.config import load_hardware
from ndpsim.dimm.building import bus_bubbles
from ndpsim.dram.spec import lower
from ndpsim.dram.traces import Requests
from ndpsim.report.text import all_lanes
from ndpsim.simulate import (
    ContentionResult,
    Memory,
    Session,
    contention,
    run_requests,
    simulate_contention,
    simulate_expert,
)
from ndpsim.simulate.channel import Channel
from ndpsim.simulate.host_traffic import HostTraffic, host_round
from ndpsim.simulate.machine import lower_machine, named_weights, place_on_dimms
from ndpsim.workload.models import Expert
from pairs import all_pairs

SMALL = Expert(512, 256)
MIDDLE = Expert(1024, 512)
ARBITRATIONS = ("host-first", "ndp-first", "slice", "batch")
ONE_RANK = ("dimm.ranks=1",)


@pytest.fixture(scope="module")
def saturated() -> dict[str, ContentionResult]:
    """A medium-sized expert on a TriMoE DIMM with saturating traffic of the host, a third of it writes."""
    return {
        name: simulate_contention(model=MIDDLE, pattern="random", arbitration=name, record_commands=True)
        for name in ARBITRATIONS
    }


# ---- without host traffic nothing changes ------------------------------------------------------------


def run_quietly(hardware, expert, tokens, arbitration, bits):
    """The expert on the shared DIMM, without traffic of the host."""
    machine = lower_machine(hardware)
    weights, _ = named_weights(expert, bits)
    run = Channel(machine, {"slice": "slice:clocks=100"}.get(arbitration, arbitration), recording=True)
    run.add_expert(0, weights, tokens)
    run.run_to_end()
    phases = run.queues[0].phases(machine.after_start_ns)
    return run.dimms.clock - 1, phases, run.command_traces()


SHAPES = ((512, 256), (513, 257), (96, 40), (3, 5))
LOADS = ((1, 16), (2, 3), (400, 16))  # tokens, bits
#: Changes to the hardware.
CHANNELS = {
    "ddr5": (),
    "ddr4": DDR4,
    "tight": ("dram.nREFI=2000", "ndp.gemv.fifo_bursts=7"),
    "same-bank": ("dram.refresh=same-bank",),
    "closed-cap": ("dram.scheduler=FRFCFS-RowHit", "dram.row_policy=closed-cap"),
}
#: Every shape with every load on every channel, once each; the arbitration changes from one to the next.
ALONE = [
    pytest.param(ARBITRATIONS[(row + column + place) % 4], shape, *load, sets, id=f"{name}-{shape}-{load}")
    for row, shape in enumerate(SHAPES)
    for column, load in enumerate(LOADS)
    for place, (name, sets) in enumerate(CHANNELS.items())
]


@pytest.mark.parametrize(("arbitration", "shape", "tokens", "bits", "sets"), ALONE)
def test_without_host_traffic_nothing_changes_to_the_cycle(arbitration, shape, tokens, bits, sets):
    hardware = load_hardware("trimoe", sets)
    if hardware.system.dram.row_policy == "closed-cap":
        tokens = min(tokens, 8)  # nothing is fast-forwarded there
    usual = simulate_expert(hardware, Expert(*shape), tokens, bits=bits, record_commands=True)
    cycles, phases, traces = run_quietly(hardware, Expert(*shape), tokens, arbitration, bits)
    assert (cycles, phases) == (usual.cycles, usual.phases)
    for ours, alone in zip(traces, usual.command_traces, strict=True):
        # A lane that has read its last weight is refreshed until the results are out, too.
        assert np.array_equal(ours.columns()[:, : len(alone)], alone.columns())
        assert (ours.column[len(alone) :] < 0).all()


@pytest.mark.parametrize("arbitration", ARBITRATIONS)
def test_a_host_that_asks_for_nothing_changes_nothing(arbitration):
    alone = simulate_expert("trimoe", MIDDLE, 3)
    beside = simulate_contention(model=MIDDLE, tokens=3, host_gbps=0, arbitration=arbitration)
    assert (beside.ndp_time_ns, beside.phases, beside.ndp_gbps) == (
        alone.time_ns,
        alone.phases,
        alone.bandwidth_gbps,
    )
    assert (beside.ndp_slowdown, beside.host_slowdown, beside.host_requests) == (1, None, 0)
    assert beside.energy_nj["read"] == alone.energy_nj["read"]


@pytest.mark.parametrize("arbitration", ARBITRATIONS)
def test_a_host_that_asks_for_next_to_nothing_costs_next_to_no_energy(arbitration):
    alone = simulate_expert("trimoe", MIDDLE).energy_nj
    beside = simulate_contention(model=MIDDLE, host_gbps=0.01, arbitration=arbitration).energy_nj
    assert set(beside) == set(alone)
    for name in ("activate", "read", "background", "io", "ndp_multiply", "total"):
        assert beside[name] == pytest.approx(alone[name], rel=0.03)
    assert beside["total"] > alone["total"]


# ---- bounds and conservation -------------------------------------------------------------------------


@pytest.mark.parametrize(
    *all_pairs(
        {
            "pattern": ["sequential", "random"],
            "read_share": [0.0, 0.67, 1.0],
            "arbitration": ["host-first", "slice"],
            "sets": [(), DDR4],
        }
    )
)
def test_both_bandwidths_together_stay_within_bus_and_lanes(pattern, read_share, arbitration, sets):
    result = simulate_contention(
        model=SMALL, pattern=pattern, read_share=read_share, arbitration=arbitration, sets=sets
    )
    assert result.host_gbps <= result.bus_peak_gbps
    assert result.ndp_gbps + result.host_gbps <= result.lanes_peak_gbps
    assert result.lanes_fraction < 1
    lane_bytes = result.lanes_peak_gbps / result.lanes * result.ndp_time_ns
    assert max(sum(lane.values()) for lane in result.by_lane) <= lane_bytes
    assert result.host_alone_gbps <= result.bus_peak_gbps


def test_the_bus_is_the_limit_of_reads_that_no_row_holds_up():
    # Neighbours in other banks: only refresh and changes of rank keep the bus from its 38.4 GB/s.
    result = simulate_contention(model=SMALL, read_share=1.0, sets=["dram.refresh=none"])
    assert 0.75 < result.host_alone_gbps / 38.4 < 1
    assert result.bus_peak_gbps == pytest.approx(38.4)


@pytest.mark.parametrize("arbitration", ARBITRATIONS)
def test_every_weight_and_every_request_passes_once(saturated, arbitration):
    result = saturated[arbitration]
    weights = 3 * 1024 * 512 * 2 // 64
    reads = result.commands["RD"] - weights
    # Writes may still wait in their queues, and some requests met a write in a queue.
    assert 0 < reads <= result.host_requests
    assert result.commands.get("WR", 0) <= result.host_requests - reads
    assert sum(lane["ndp_bytes"] for lane in result.by_lane) == 64 * weights
    found = {
        owner: sum(rows[name] for name in ("hits", "misses", "conflicts"))
        for owner, rows in result.rows.items()
    }
    assert found["ndp"] == weights
    assert reads <= found["host"] <= result.host_requests
    assert {name: len(trace) for name, trace in enumerate(result.command_traces)}.keys() == set(range(8))
    assert sum(len(trace) for trace in result.command_traces) == sum(result.commands.values())


@pytest.mark.parametrize(
    *all_pairs(
        {
            "channel": ["ddr5", "same-bank", "ddr4"],
            "arbitration": ARBITRATIONS,
            "pattern": ["sequential", "random"],
        }
    )
)
def test_the_commands_of_every_lane_are_legal(channel, arbitration, pattern):
    refresh = "same-bank" if channel == "same-bank" else "all-bank"
    hardware = load_hardware("trimoe", CHANNELS[channel])
    result = simulate_contention(
        hardware, SMALL, arbitration=arbitration, pattern=pattern, slice_clocks=300, record_commands=True
    )
    report = check_lanes(
        all_lanes(result.command_traces), hardware.lane_device(), hardware.lanes, refresh=refresh
    )
    assert report.count == 0, report.violations[0]


def test_a_rate_below_what_the_dimm_carries_is_carried(saturated):
    result = simulate_contention(model=MIDDLE, host_gbps=5.0, pattern="random")
    assert result.host_gbps == pytest.approx(5.0, rel=0.02)
    assert result.host_slowdown == pytest.approx(1.0, abs=0.01)
    assert 1 < result.ndp_slowdown < saturated["host-first"].ndp_slowdown


def test_more_traffic_slows_the_ndp_unit_down_more():
    slow = [
        simulate_contention(model=MIDDLE, host_gbps=rate, read_share=1.0).ndp_slowdown for rate in (1, 8, 24)
    ]
    assert slow == sorted(slow)
    assert slow[0] < 1.1


# ---- whose turn it is ---------------------------------------------------------------------------------


def test_host_first_hardly_slows_the_host(saturated):
    result = saturated["host-first"]
    assert result.host_slowdown < 1.05
    light = simulate_contention(model=MIDDLE, host_gbps=5.0, pattern="random", read_share=1.0)
    assert light.host_latency_ns["p50"] < 1.1 * light.host_alone_latency_ns["p50"]


def test_ndp_first_hardly_slows_the_ndp_unit(saturated):
    assert 1 <= saturated["ndp-first"].ndp_slowdown < 1.15
    assert saturated["ndp-first"].host_slowdown > saturated["slice"].host_slowdown
    # Also over a whole expert: the turns of a host that starves cost little.
    whole = simulate_contention(arbitration="ndp-first", pattern="random")
    assert 1 <= whole.ndp_slowdown < 1.08


def test_slices_lie_between(saturated):
    first, slices, last = (saturated[name] for name in ("ndp-first", "slice", "host-first"))
    assert first.ndp_slowdown < slices.ndp_slowdown < last.ndp_slowdown
    assert last.host_slowdown < slices.host_slowdown < first.host_slowdown


def test_reads_that_gather_wait_for_others_or_until_their_time_has_come():
    # A read every 64 ns at random: alone in its rank for most of the time, it waits for as long as it may.
    paced = {"model": MIDDLE, "host_gbps": 1.0, "pattern": "random", "read_share": 1.0}
    clock_ns = 1 / 2.4
    waits = {
        clocks: simulate_contention(
            **paced, arbitration=f"batch:reads=30,most=30,clocks={clocks}"
        ).host_latency_ns
        for clocks in (500, 2000)
    }
    at_once = simulate_contention(**paced, arbitration="host-first").host_latency_ns
    assert at_once["p50"] < 100
    for clocks, waited in waits.items():
        # None beyond its time, that of a drain before it, and refreshes.
        assert waited["p50"] > 0.4 * clocks * clock_ns
        assert waited["p90"] < 2.1 * clocks * clock_ns + at_once["max"]
    single = simulate_contention(**paced, arbitration="batch:reads=1").host_latency_ns
    assert single["mean"] < 2 * at_once["mean"]


def test_gathered_reads_cost_the_unit_less_where_single_ones_make_rows_ping_pong():
    # Three DIMMs of edge on a channel, one token through short experts, and 10 GB/s of weights to the host.
    rates = {}
    for arbitration in ("host-first", "batch"):
        session = Session("edge", arbitration=arbitration)
        for number in range(60):
            session.expert(Expert(2048, 128), 1, number % 3)
        for dimm in range(3):
            session.host_read(Expert(2048, 512), "localized", 10 / 3, dimm=dimm, behind=True)
        session.run(60_000)
        rates[arbitration] = sum(session.ndp_bytes)
    assert rates["batch"] > 1.2 * rates["host-first"]


@pytest.mark.parametrize(
    *all_pairs(
        {
            "slice_clocks": [200, 1000, 5000],
            "pattern": ["sequential", "random"],
            "read_share": [0.67, 1.0],
        }
    )
)
def test_nobody_starves_under_slices(slice_clocks, pattern, read_share):
    # One rank: either side alone could take the whole lane, so each has about half of what it has alone.
    result = simulate_contention(
        model=MIDDLE,
        pattern=pattern,
        read_share=read_share,
        arbitration="slice",
        slice_clocks=slice_clocks,
        sets=ONE_RANK,
    )
    assert result.ndp_slowdown < 2.7
    assert result.host_slowdown < 2.5


@pytest.mark.parametrize("arbitration", ["host-first", "ndp-first"])
def test_nobody_waits_for_ever(arbitration):
    # Writes alone, on the one rank: without patience the first owner would have every clock.
    result = simulate_contention(model=SMALL, read_share=0.0, arbitration=arbitration, sets=ONE_RANK)
    assert result.ndp_slowdown < 100
    assert result.by_lane[0]["host_bytes"] > 0


def test_a_host_that_leaves_next_to_nothing_is_an_error(monkeypatch):
    monkeypatch.setattr(contention, "_MOST_SLOWDOWN", 2)
    with refused("unsupported host_gbps"):
        simulate_contention(model=MIDDLE, read_share=0.0, sets=ONE_RANK)


def test_a_compute_bound_expert_leaves_the_lanes_to_the_host():
    result = simulate_contention(
        model=SMALL, tokens=16, arbitration="ndp-first", pattern="random", read_share=1.0
    )
    assert result.ndp_slowdown < 1.02
    assert result.host_slowdown < 2


# ---- lanes, buses, times by hand ----------------------------------------------------------------------


def test_lanes_are_not_alike_beside_host_traffic(saturated):
    lengths = {len(trace) for trace in saturated["host-first"].command_traces}
    assert len(lengths) > 1
    usual = simulate_expert(model=MIDDLE)
    assert usual.lanes_simulated == 1


def test_a_lonely_read_takes_what_its_commands_take():
    # A read every 1.3 us, nearly always to a row of its own: PRE, ACT, RD, and its data on the bus.
    result = simulate_contention(
        model=MIDDLE, host_gbps=0.05, read_share=1.0, pattern="random", sets=["dram.refresh=none"]
    )
    closed = 1 + 36 + 40 + 8  # nRCD + nCL + nBL of Table 1 and its bin, from the clock before the ACT
    assert result.host_alone_latency_ns["p50"] == pytest.approx(closed * result.clock_ns)
    assert result.host_alone_latency_ns["max"] <= (closed + 34) * result.clock_ns + 1e-9  # and nRP


@pytest.mark.parametrize(
    *all_pairs(
        {
            "pattern": ["sequential", "random"],
            "mapper": ["RoBaCoRaCoBgCh", "RoBaRaCoCh", "MOP4CLXOR"],
            "host_gbps": ["saturate", 7.5],
        }
    )
)
def test_the_host_alone_is_a_channel_with_the_ranks_of_all_its_dimms(pattern, mapper, host_gbps):
    # Edge: a sub-channel, two ranks a DIMM, and as many DIMMs a channel as the file says.
    hardware = load_hardware("edge", [f"host.mapper={mapper}"])
    result = simulate_contention(hardware, SMALL, host_gbps=host_gbps, pattern=pattern, read_share=0.8)
    geometry = lower_machine(hardware).geometry
    device = hardware.bus_device(len(geometry.dimms_of(0)) * geometry.ranks)
    traffic = HostTraffic.of(host_gbps, 0.8, pattern, hardware.dimm_host_gbps)
    machine = lower_machine(hardware)
    weights, _ = named_weights(SMALL, 16)
    requests = host_round(hardware, traffic, place_on_dimms(machine, "localized", weights).end)
    count = result.host_requests
    again = np.arange(count) % len(requests.write)
    pace, per = requests.pace
    alone = run_requests(
        Requests(
            address=None,
            write=requests.write[again],
            place=np.stack(
                [
                    np.zeros(count, dtype=np.int64),
                    *(
                        getattr(requests.at, name)[again]
                        for name in ("rank", "bankgroup", "bank", "row", "column")
                    ),
                ],
                axis=1,
            ),
            cycle=None if host_gbps == "saturate" else np.arange(count) * pace // per,
        ),
        Memory(device),
    )
    assert result.host_alone_ns == pytest.approx(alone.time_ns, rel=1e-12)
    assert result.host_alone_latency_ns == pytest.approx(alone.read_latency_ns)


def test_what_a_bus_loses_between_transfers():
    # DDR5-4800 with nCL 40, nCWL 34, nBL 8: nCS 2 between ranks; RD to WR nCL + nBL + 2 - nCWL + 2 leaves 4;
    # WR to RD of another rank nCWL + nBL + nCS - nCL leaves 2.
    device = load_hardware("trimoe").lane_device()
    bubbles = bus_bubbles(lower(device), device.timings["nCL"], device.timings["nCWL"])
    assert bubbles.tolist() == [[[0, 2], [4, 4]], [[2, 2], [0, 2]]]


def test_activations_and_results_share_the_bus_with_the_host():
    quiet = simulate_expert(model=SMALL, tokens=64)
    result = simulate_contention(model=SMALL, tokens=64, pattern="random", arbitration="ndp-first")

    def length(phases, name):
        return sum(phase.end_ns - phase.start_ns for phase in phases if phase.name == name)

    late = length(result.phases, "activations-in") - length(quiet.phases, "activations-in")
    assert 0 <= late < 100  # behind the one transfer that has the bus


# ---- patterns, input, output --------------------------------------------------------------------------


def test_the_addresses_of_a_trace_come_again_and_again(tmp_path):
    trace = tmp_path / "trace"
    trace.write_text("".join(f"{'LD' if n % 4 else 'ST'} {64 * n}\n" for n in range(600)))
    result = simulate_contention(model=MIDDLE, host_gbps=10, pattern=str(trace))
    assert result.host_requests > 2 * 600
    assert result.config["read_share"] is None
    assert 0.15 < result.commands["WR"] / result.host_requests < 0.26


def test_the_same_call_gives_the_same_result(saturated):
    again = simulate_contention(model=MIDDLE, pattern="random", record_commands=True)
    first = saturated["host-first"].to_dict()
    untimed = {"wall_s": 0, "compile_s": 0}
    assert again.to_dict() | untimed == first | untimed


def test_a_trace_by_coordinates_is_refused(tmp_path):
    trace = tmp_path / "trace"
    trace.write_text("R 0,0,1,3,9674,61\n")
    with refused("unsupported trace"):
        simulate_contention(model=SMALL, pattern=str(trace))


def test_weights_that_leave_the_host_no_row_are_refused():
    hardware = load_hardware("trimoe")
    places = hardware.lane_device().capacity_bytes // hardware.lane_device().burst_bytes
    with refused("too-large pattern"):
        host_round(hardware, HostTraffic(None, 1.0, "random"), places)


def test_the_command_line_tells_both_slowdowns(tmp_path):
    commands, timeline = tmp_path / "c.csv", tmp_path / "t.json"
    arguments = ["gemv", "--shape", "96,40", "--host-traffic", "saturate", "--arbitration", "slice"]
    out = said(*arguments, "--commands", commands, "--timeline", timeline)
    assert "NDP slowdown" in out
    assert "host slowdown" in out
    assert timeline.exists()
    assert "legal" in said("check", commands, "--hw", "trimoe")
    told = json.loads(said(*arguments, "--json", "-"))
    assert set(told) == {f.name for f in dataclasses.fields(ContentionResult)} - {"command_traces"}
    assert told["ndp_slowdown"] >= 1
    assert told["energy_nj"]["total"] > 0


@pytest.mark.parametrize("read_share", [0.0, 1.0])
def test_one_request_of_the_host_between_activations_and_results_changes_the_rank_twice(read_share):
    """On its sub-channel the bus goes to the buffer chip, to the rank and back; on each it turns for the results."""
    run = simulate_contention(
        model=Expert(256, 128), host_gbps=1e-4, read_share=read_share, sets=("dimm.ranks=1",)
    )
    assert run.host_requests == 1
    assert (run.bus_rank_switches, run.bus_turnarounds) == (2, 2)
