"""An expert on a DIMM: closed bounds, published figures, legality, and what must not depend on what."""

from __future__ import annotations

import gc
import itertools

import pytest

from builders.small_config import DDR4
from mistakes import refused
from ndpsim.audit import check
from ndpsim.base.errors import MismatchError
from ndpsim.config import load_hardware
from ndpsim.dimm.engines import SharedDimms
from ndpsim.dram.spec import standards
from ndpsim.simulate import MAX_TOKENS, ExpertResult, simulate_expert
from ndpsim.simulate.lane import Bus
from ndpsim.simulate.program import Queue
from ndpsim.workload.models import Expert
from pairs import all_pairs

COMMANDS = standards()["DDR5"].by_number

SMALL = Expert(512, 256)


@pytest.fixture(scope="module")
def qwen() -> ExpertResult:
    return simulate_expert("trimoe", "qwen3-235b-a22b", tokens=1)


def phase_end(result: ExpertResult, name: str) -> float:
    return max(phase.end_ns for phase in result.phases if phase.name == name)


# ---- one token of Qwen3-235B-A22B on TriMoE ----------------------------------------------------------


def test_every_weight_is_read_once(qwen):
    assert qwen.weight_bytes == 3 * 4096 * 1536 * 2 == 37_748_736
    assert qwen.commands["RD"] * 64 == qwen.weight_bytes
    assert qwen.weight_reads == 1


def test_never_faster_than_the_lanes_or_the_multipliers(qwen):
    assert qwen.time_ns > 37_748_736 / 153.6  # Table 1 of the trimoe paper: 153.6 GB/s
    assert qwen.time_ns > 2 * 3 * 4096 * 1536 / 256  # and 256 GFLOPS
    assert qwen.peak_bandwidth_gbps == pytest.approx(153.6, rel=1e-12)
    assert qwen.peak_gflops == 256.0


def test_refresh_and_rows_cost_what_they_must(qwen):
    # tRFC / tREFI is 986 / 9375; row changes hide behind the other bank groups.
    assert 0.86 < qwen.peak_fraction < 1 - 986 / 9375
    assert qwen.commands["REFab"] == 8 * (qwen.cycles // 9375)
    assert qwen.bound == "memory"


REFRESHED_TO_THE_END = [
    # FIFOs that hold all weights: they are read at once, and multiplied long after.
    ("trimoe", SMALL, 64, ["ndp.gemv.fifo_bursts=4096"]),
    # 6 bursts on 8 lanes: two lanes have none.
    ("trimoe", Expert(32, 2), 4000, []),
    ("cxl", Expert(512, 256), 60, ["ndp.systolic.fifo_bursts=4096"]),
    ("edge", Expert(512, 256), 64, ["ndp.gemv.fifo_bursts=4096", "dram.row_policy=closed-cap"]),
]


@pytest.mark.parametrize(("hw", "model", "tokens", "sets"), REFRESHED_TO_THE_END)
def test_every_lane_is_refreshed_until_the_last_result(hw, model, tokens, sets):
    result = simulate_expert(hw, model, tokens, sets=sets, record_commands=True, exact_check=True)
    timings = load_hardware(hw, sets).lane_device().timings
    due, late = divmod(result.cycles, timings["nREFI"])
    assert due > 2
    assert late > timings["nRP"] + 2  # the last is not only due, but begun
    assert len(result.command_traces) == result.lanes
    last_read = 0
    for trace in result.command_traces:
        names = [COMMANDS[number].name for number in trace.command]
        assert names.count("REFab") == due
        assert trace.clock.max() <= result.cycles
        last_read = max(last_read, *trace.clock[[name == "RD" for name in names]], 0)
        assert check(trace, load_hardware(hw, sets).lane_device()).ok
    assert last_read < due * timings["nREFI"]
    assert result.commands["REFab"] == result.lanes * due
    unrefreshed = simulate_expert(hw, model, tokens, sets=[*sets, "dram.refresh=none"])
    assert result.energy_nj["refresh"] > 0 == unrefreshed.energy_nj["refresh"]


def test_weights_stream_as_fast_as_the_reference_reads_them(qwen):
    # One lane's share through Ramulator 2.1, ddr5_trimoe_lane_stream_mop4: 667439 clocks.
    assert 0.98 < phase_end(qwen, "down") / (667_439 / 2.4) < 1.0


def test_without_refresh_the_stream_reaches_the_bus():
    result = simulate_expert(sets=["dram.refresh=none"])
    assert 0.97 < result.peak_fraction < 1.0
    assert "REFab" not in result.commands


def test_eight_tokens_take_the_time_of_their_arithmetic():
    result = simulate_expert(tokens=8)
    floor_ns = 2 * 8 * 3 * 4096 * 1536 / 256
    assert floor_ns < result.time_ns < 1.05 * floor_ns
    assert result.bound == "compute"
    assert result.stall_ns > 0.5 * result.time_ns


def test_where_the_time_of_a_data_bus_went_adds_up(qwen):
    data_ns = qwen.commands["RD"] / qwen.lanes * 8 * qwen.clock_ns
    parts = data_ns + sum(qwen.idle_ns.values())
    assert parts == pytest.approx(qwen.time_ns, rel=1e-3)
    assert parts < qwen.time_ns


def test_static_power_is_that_of_both_units_if_both_are_known():
    known = simulate_expert(model=SMALL, sets=["ndp.gemv.static_mw=3", "ndp.activation.static_mw=1"])
    assert known.energy_nj["ndp_static"] == pytest.approx(4 * known.time_ns / 1000)  # mW x ns is pJ
    half = simulate_expert(model=SMALL, sets=["ndp.gemv.static_mw=3", "ndp.activation.static_mw=null"])
    assert half.energy_nj["ndp_static"] is None


def test_energy_of_links_is_that_of_all_devices():
    # 2 tokens of 512 values of 2 B go to each of two devices, and as many partial sums come back.
    sets = ["ndp.systolic=null", "ndp.gemv=trimoe_gemv", "dimm.count=2", "cxl.pj_per_bit=5"]
    result = simulate_expert("cxl", SMALL, 2, "sharded:2", sets=sets)
    assert result.energy_nj["link"] == pytest.approx(2 * 2 * (2 * 512 * 2) * 8 * 5 / 1000)


# ---- what changes with what -------------------------------------------------------------------------


def test_time_never_falls_as_tokens_rise():
    times = [simulate_expert(model=SMALL, tokens=tokens).time_ns for tokens in range(1, 65)]
    assert all(fewer <= more for fewer, more in itertools.pairwise(times))


def test_half_the_ranks_take_twice_as_long(qwen):
    half = simulate_expert(sets=["dimm.ranks=2"])
    assert half.time_ns / qwen.time_ns == pytest.approx(2.0, rel=0.01)


def test_a_faster_clock_shortens_the_stream_in_proportion(qwen):
    fast = simulate_expert(sets=["dram.timing=DDR5_6400AN"])
    assert qwen.time_ns / fast.time_ns == pytest.approx(6400 / 4800, rel=0.01)


@pytest.mark.parametrize(("bits", "share"), [(8, 1 / 2), (4, 1 / 4), (2, 1 / 8), (1, 1 / 16)])
def test_fewer_bits_take_less_time_in_proportion_to_the_bytes(qwen, bits, share):
    result = simulate_expert(bits=bits)
    assert result.weight_bytes == qwen.weight_bytes * share
    assert result.time_ns / qwen.time_ns == pytest.approx(share, rel=0.02)


def test_three_bits_are_slower_than_four_by_an_eighth_where_multipliers_bind_and_faster_where_memory_does():
    def time_ns(bits, tokens):
        return simulate_expert(model=Expert(1024, 512), tokens=tokens, bits=bits).time_ns

    # A lane works on 2 bursts of 128 weights in 4 cycles, or on one of 512 / 3 weights in 3.
    assert time_ns(3, 64) / time_ns(4, 64) == pytest.approx((2 * 128 / 4) / (512 / 3 / 3), rel=0.01)
    assert time_ns(3, 1) < 0.9 * time_ns(4, 1)


def test_a_fifo_below_the_latency_of_a_read_costs_bandwidth_and_never_time_below_the_bound():
    times = [
        simulate_expert(model=SMALL, sets=[f"ndp.gemv.fifo_bursts={depth}"]).time_ns
        for depth in (2, 3, 4, 6, 12)
    ]
    assert times == sorted(times, reverse=True)
    assert times[0] > 2 * times[-1]


def test_time_is_from_the_first_command_to_the_last_result(qwen):
    assert qwen.cycles == -(-phase_end(qwen, "result-out") // qwen.clock_ns)
    assert qwen.time_ns == pytest.approx(qwen.cycles / 2.4, rel=1e-12)


def test_phases_wait_for_what_they_need(qwen):
    start = {phase.name: phase.start_ns for phase in qwen.phases}
    assert start["gate-up"] >= phase_end(qwen, "activations-in")
    assert start["down"] >= phase_end(qwen, "activation") > phase_end(qwen, "gate-up")
    assert phase_end(qwen, "result-out") > phase_end(qwen, "down") > start["result-out"]


# ---- tiles, odd shapes, unequal lanes ---------------------------------------------------------------


def test_tokens_beyond_the_buffer_are_tiled_and_weights_read_once_a_tile():
    result = simulate_expert(model=SMALL, tokens=400)
    most = 256 * 1024 // ((512 + 256) * 2)
    assert result.token_tiles == (134, 133, 133)
    assert max(result.token_tiles) <= most < 400 / 2
    assert result.commands["RD"] == 3 * result.weight_bursts
    assert [phase.tile for phase in result.phases if phase.name == "down"] == [0, 1, 2]


@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (513, 257), (100, 31)])
@pytest.mark.parametrize("bits", [16, 3])
@pytest.mark.parametrize("inward", [1, 2])
def test_odd_shapes_read_every_burst_once(shape, bits, inward):
    result = simulate_expert(model=Expert(*shape, gated=inward == 2), bits=bits)
    hidden, intermediate = shape
    regions = [-(-inward * intermediate * hidden * bits // 8), -(-hidden * intermediate * bits // 8)]
    assert result.weight_bytes == sum(regions)
    assert result.commands["RD"] == sum(-(-size // 64) for size in regions)


def test_equal_lanes_are_simulated_once_and_unequal_ones_apart(qwen):
    assert qwen.lanes_simulated == 1
    uneven = simulate_expert(model=Expert(513, 257), record_commands=True)
    assert uneven.lanes_simulated > 1
    reads = [int((trace.column >= 0).sum()) for trace in uneven.command_traces]
    assert sum(reads) == uneven.weight_bursts
    assert len(set(reads)) > 1


@pytest.mark.parametrize(
    *all_pairs(
        {
            "shape": [(512, 256), (513, 257), (96, 40), (3, 5)],
            "tokens": [1, 2, 5],
            "sets": [(), DDR4, ("dram.nREFI=2000", "ndp.gemv.fifo_bursts=7")],
            "gated": [True, False],
        }
    )
)
def test_the_plain_run_of_every_lane_agrees(shape, tokens, sets, gated):
    """Every lane on its own, every queue scanned, every read stepped through; unequal shares among them."""
    simulate_expert(
        "trimoe", Expert(*shape, gated), tokens, sets=sets, bits=4 if tokens == 2 else 16, exact_check=True
    )


def test_the_plain_run_of_a_long_stream_agrees_with_what_was_skipped():
    result = simulate_expert("trimoe", Expert(2048, 768), 2, exact_check=True)
    assert 0.3 < result.fast_forwarded < 1


@pytest.mark.usefixtures("without_refresh")
def test_a_difference_to_the_plain_run_is_found():
    with pytest.raises(MismatchError, match="plain run"):
        simulate_expert("trimoe", Expert(2048, 768), exact_check=True)


def test_a_lane_alone_and_among_equals_issues_the_same_commands():
    # 4 ranks read a quarter each of what 1 rank reads of a quarter of the expert, with as many multipliers.
    whole = simulate_expert(model=Expert(512, 1024), record_commands=True)
    sets = ["dimm.ranks=1", "ndp.gemv.multipliers=64"]
    alone = simulate_expert(model=Expert(512, 256), sets=sets, record_commands=True)
    shared, single = whole.command_traces[0], alone.command_traces[0]
    gate_up = 512 * 1024 * 2 * 2 // 64 // 8
    reads = [trace.columns()[:, trace.column >= 0][:, :gate_up] for trace in (shared, single)]
    assert (reads[0] == reads[1]).all()


# ---- legality ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    *all_pairs(
        {
            "ranks": [1, 3, 8],
            "fifo": [2, 7, 32],
            "standard": ["DDR4", "DDR5"],
        }
    )
)
def test_every_lane_is_legal(standard, ranks, fifo):
    sets = [*(DDR4 if standard == "DDR4" else ()), f"dimm.ranks={ranks}", f"ndp.gemv.fifo_bursts={fifo}"]
    hardware = load_hardware("trimoe", sets)
    result = simulate_expert(hardware, Expert(768, 320), tokens=3, record_commands=True)
    assert len(result.command_traces) == ranks * (1 if standard == "DDR4" else 2)
    for trace in result.command_traces:
        report = check(trace, hardware.lane_device())
        assert report.ok, report.violations[0].message


def test_a_longer_timing_turns_the_checker_red():
    hardware = load_hardware("trimoe")
    trace = simulate_expert(hardware, SMALL, record_commands=True).command_traces[0]
    assert check(trace, hardware.lane_device()).ok
    for name in ("nRCD", "nRRDS", "nCCDS"):
        longer = hardware.lane_device().timings[name] + 1
        stricter = load_hardware("trimoe", [f"dram.{name}={longer}"]).lane_device()
        assert not check(trace, stricter).ok, name


@pytest.mark.parametrize("refresh", ["all-bank", "staggered", "same-bank", "none"])
@pytest.mark.parametrize("controller", [["dram.scheduler=FRFCFS-RowHit"], ["dram.row_policy=closed-cap"], []])
def test_every_controller_reads_every_weight_legally(refresh, controller):
    hardware = load_hardware("trimoe", [f"dram.refresh={refresh}", *controller])
    result = simulate_expert(hardware, SMALL, tokens=2, record_commands=True)
    assert result.commands["RD"] + result.commands.get("RDA", 0) == result.weight_bursts
    report = check(result.command_traces[0], hardware.lane_device(), refresh)
    assert report.ok, report.violations[0].message


@pytest.mark.parametrize("refresh", ["all-bank", "same-bank"])
@pytest.mark.parametrize("row_policy", ["open", "closed-cap"])
def test_multipliers_too_slow_for_a_refresh_interval_do_not_hold_refresh_back(refresh, row_policy):
    # 100 tokens of 16 cycles at 200 MHz: a burst holds its multipliers for 8 us, a refresh is due every 3.9 us.
    slow = ["ndp.gemv.clock_mhz=200", "ndp.gemv.multipliers=16", "ndp.gemv.fifo_bursts=2"]
    hardware = load_hardware("trimoe", [*slow, f"dram.refresh={refresh}", f"dram.row_policy={row_policy}"])
    result = simulate_expert(hardware, Expert(300, 200), tokens=100, record_commands=True)
    for trace in result.command_traces:
        report = check(trace, hardware.lane_device(), refresh)
        assert report.ok, report.violations[0].message


# ---- bad input --------------------------------------------------------------------------------------


@pytest.mark.parametrize("tokens", [0, -3, MAX_TOKENS + 1, 10**9, 1.0, True, float("nan"), "1"])
def test_senseless_tokens_are_refused(tokens):
    with refused("range tokens" if type(tokens) is int else "type tokens"):
        simulate_expert(tokens=tokens)


def test_an_expert_larger_than_the_dimm_is_not_supported():
    with refused("too-large"):
        simulate_expert(model=Expert(1 << 18, 1 << 16), sets=["dimm.ranks=1"])


def test_an_activation_larger_than_the_buffer_is_not_supported():
    with refused("too-large trimoe_gemv.yaml ndp.gemv.buffer_kib"):
        simulate_expert(model=Expert(1 << 17, 256))


def test_refresh_that_leaves_no_time_is_refused():
    with refused("no-progress sets dram.nREFI"):
        simulate_expert(sets=["dram.nREFI=500"])


@pytest.mark.parametrize("command_bus", ["private", "shared"])
def test_what_a_run_took_is_free_when_it_ends(command_bus):
    # Memory that waits for the collector of cycles is new memory for the next run, which takes longer to get.
    kinds = {Queue, Bus, SharedDimms, *Bus.__subclasses__(), *SharedDimms.__subclasses__()}

    gc.disable()
    gc.freeze()  # what is there already is not listed
    try:
        simulate_expert(model=Expert(96, 40), sets=[f"dimm.command_bus={command_bus}"])
        assert not any(type(one) in kinds for one in gc.get_objects())
    finally:
        gc.unfreeze()
        gc.enable()
