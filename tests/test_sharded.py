"""An expert over several DIMMs, tensor-parallel; and the bits of its matrices."""

from __future__ import annotations

import numpy as np
import pytest

from mistakes import refused
from ndpsim.audit import check
from ndpsim.config import load_hardware
from ndpsim.dimm.layout import ExpertFormat
from ndpsim.simulate import simulate_expert
from ndpsim.workload.models import Expert
from pairs import all_pairs

SMALL = Expert(512, 256)
NO_WALL = ("wall_s", "compile_s", "config")


def same(one: dict, other: dict) -> bool:
    return {k: v for k, v in one.items() if k not in NO_WALL} == {
        k: v for k, v in other.items() if k not in NO_WALL
    }


# ---- speed-up ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dimms", range(1, 7))
def test_mixtral_on_the_edge_speeds_up_with_its_dimms(dimms):
    one = simulate_expert("edge", "mixtral-8x7b")
    many = simulate_expert("edge", "mixtral-8x7b", layout=f"sharded:{dimms}")
    # Refreshes come in whole numbers.
    assert 0.99 * dimms < one.time_ns / many.time_ns < 1.001 * dimms
    without = [result.time_ns - result.communication_ns for result in (one, many)]
    # Weights are read ahead during the communication that is taken off, and refreshes come in whole numbers:
    # 350 ns of each of 4 ranks at once.
    assert without[0] / dimms - without[1] < 350 + 346
    assert 0.9 * dimms < without[0] / without[1] < 1.001 * dimms
    assert many.weight_bytes == one.weight_bytes
    assert many.commands["RD"] == one.commands["RD"]
    assert many.peak_bandwidth_gbps == pytest.approx(dimms * 102.4)


@pytest.mark.parametrize("hw", ["trimoe", "edge"])
@pytest.mark.parametrize("tokens", [1, 5, 400])
def test_one_shard_is_localized_to_the_cycle(hw, tokens):
    one = simulate_expert(hw, SMALL, tokens)
    assert same(one.to_dict(), simulate_expert(hw, SMALL, tokens, "sharded:1").to_dict())


@pytest.mark.parametrize("dimms", [2, 3, 5])
def test_equal_slices_run_as_the_smaller_expert_alone(dimms):
    """Up to eight DIMMs of trimoe have a channel each: nothing is shared but the host's adding up."""
    many = simulate_expert("trimoe", Expert(512, 64 * dimms), 3, f"sharded:{dimms}")
    alone = simulate_expert("trimoe", Expert(512, 64), 3)
    assert (many.cycles, many.phases) == (alone.cycles, alone.phases)
    assert many.communication_ns == alone.communication_ns
    assert many.lanes_simulated == alone.lanes_simulated
    assert many.commands == {kind: dimms * count for kind, count in alone.commands.items()}
    assert many.gflops == pytest.approx(dimms * alone.gflops)
    assert many.peak_gflops == dimms * alone.peak_gflops
    assert many.busy == alone.busy
    assert many.idle_ns == pytest.approx(alone.idle_ns)


def test_the_slowest_slice_counts():
    # 7 rows of the intermediate dimension make slices of 2, 2 and 3.
    many = simulate_expert("trimoe", Expert(4096, 7), layout="sharded:3")
    alone = [simulate_expert("trimoe", Expert(4096, size)) for size in (2, 3)]
    assert many.cycles == max(result.cycles for result in alone)
    assert many.weight_bytes == 2 * alone[0].weight_bytes + alone[1].weight_bytes
    assert many.lanes_simulated == sum(result.lanes_simulated for result in alone)


# ---- communication -------------------------------------------------------------------------------------


def test_communication_by_hand():
    # 512 values of 2 bytes are 16 bursts in and 16 out; a burst holds an edge channel's bus for 4 clocks.
    one = simulate_expert("edge", SMALL)
    clock = one.clock_ns
    timings = one.config["hardware"]["timings"]
    start, end = ({p.name: getattr(p, at) for p in one.phases} for at in ("start_ns", "end_ns"))
    assert end["activations-in"] == (timings["nCWL"] + 16 * 4) * clock
    tail = end["result-out"] - end["down"]
    assert tail == pytest.approx((timings["nCL"] + 4) * clock)
    assert one.communication_ns == pytest.approx(end["activations-in"] + tail)
    assert one.communication_bytes == 2 * 512 * 2
    # Four DIMMs, two on each channel: both have the bus in turn, and their last bursts leave together.
    many = simulate_expert("edge", SMALL, layout="sharded:4")
    end = {p.name: p.end_ns for p in many.phases}
    assert end["activations-in"] == (timings["nCWL"] + 2 * 16 * 4) * clock
    assert end["result-out"] - end["down"] == pytest.approx((timings["nCL"] + 2 * 4) * clock)
    assert many.communication_bytes == 4 * 2 * 512 * 2
    assert start["gate-up"] < end["activations-in"]


def test_results_share_the_bus_of_their_channel():
    """With 64 tokens the results of six DIMMs take longer over two channels than over six."""
    wide = ("host.channels=6",)
    shared = simulate_expert("edge", Expert(1024, 48), 64, "sharded:6")
    apart = simulate_expert("edge", Expert(1024, 48), 64, "sharded:6", sets=wide)
    bus_ns = 1024 * 64 * 2 / 25.6  # a DIMM's activations in, or its results out
    more = shared.time_ns - apart.time_ns
    assert 2 * bus_ns < more <= 4 * bus_ns + 1
    assert shared.communication_ns - apart.communication_ns <= more + 1


def test_tiles_are_as_many_as_the_largest_slice_needs():
    one = simulate_expert("trimoe", SMALL, 200)
    many = simulate_expert("trimoe", SMALL, 200, "sharded:4")
    assert len(one.token_tiles) == 2
    assert many.token_tiles == (200,)
    assert many.commands["RD"] == one.commands["RD"] / 2


# ---- exactness and legality ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    *all_pairs(
        {
            "hw": ["trimoe", "edge"],
            "dimms": [2, 3, 5],
            "shape": [(512, 257), (96, 41), (3, 5)],
        }
    )
)
def test_the_plain_run_of_every_lane_agrees(hw, dimms, shape):
    simulate_expert(hw, Expert(*shape), 2, f"sharded:{dimms}", exact_check=True)


def test_the_lanes_of_all_dimms_are_legal_and_read_every_burst():
    hardware = load_hardware("edge")
    result = simulate_expert(hardware, Expert(512, 257), 2, "sharded:5", record_commands=True)
    assert len(result.command_traces) == result.lanes == 20
    reads = [int((trace.column >= 0).sum()) for trace in result.command_traces]
    assert sum(reads) == result.weight_bursts == result.commands["RD"]
    for trace in result.command_traces:
        report = check(trace, hardware.lane_device())
        assert report.ok, report.violations[0].message


# ---- bits ----------------------------------------------------------------------------------------------


def test_scales_and_zero_points_are_read_as_well():
    plain = simulate_expert(model=Expert(4096, 1536), bits=4)
    grouped = simulate_expert(model=Expert(4096, 1536), bits=ExpertFormat.of(4, group_size=128))
    assert grouped.weight_bytes == plain.weight_bytes * (512 + 16 + 4) / 512
    assert grouped.commands["RD"] * 64 == grouped.weight_bytes
    assert grouped.time_ns / plain.time_ns == pytest.approx(532 / 512, rel=0.01)


@pytest.mark.parametrize("down", [1, 2, 3, 8, 16])
def test_down_may_have_bits_of_its_own(down):
    """With multipliers slow enough to bind, so that their number a burst matters."""
    written = ExpertFormat.of(dict(gate=4, up=4, down=down))
    sets = ["ndp.gemv.multipliers=64"]
    mixed = simulate_expert(model=Expert(1024, 256), tokens=3, bits=written, sets=sets, exact_check=True)
    same_bits = simulate_expert(model=Expert(1024, 256), tokens=3, bits=4, sets=sets)
    only_down = simulate_expert(model=Expert(1024, 256), tokens=3, bits=down, sets=sets)

    def length(result, name):
        return next(p.end_ns - p.start_ns for p in result.phases if p.name == name)

    assert length(mixed, "gate-up") == length(same_bits, "gate-up")
    assert length(mixed, "down") == pytest.approx(length(only_down, "down"), rel=0.03)
    assert mixed.weight_bytes == 1024 * 256 * (4 + 4 + down) / 8
    assert mixed.busy["compute"] < 1
    assert 1 / mixed.peak_gflops == pytest.approx(
        2 / 3 / same_bits.peak_gflops + 1 / 3 / only_down.peak_gflops
    )


def test_the_bits_are_in_the_result():
    written = ExpertFormat.of(dict(gate=4, up=4, down=8), group_size=64)
    config = simulate_expert(model=SMALL, bits=written).config
    assert config["bits"] == {"gate": 4, "up": 4, "down": 8}
    assert config["formats"]["down"] == {"bits": 8, "group_size": 64, "scale_bits": 16, "zero_point_bits": 8}
    assert simulate_expert(model=SMALL).config["bits"] == 16


@pytest.mark.parametrize("bits", [0, 7, True, 16.0, "16", None, [16]])
def test_senseless_bits_are_refused(bits):
    with refused("range bits"):
        simulate_expert(model=SMALL, bits=bits)


def test_striped_does_not_compute():
    with refused("unsupported layout"):
        simulate_expert(layout="striped")


def test_slices_cut_no_group():
    written = ExpertFormat.of(4, group_size=128)
    with refused("range layout"):
        simulate_expert(model=SMALL, layout="sharded:3", bits=written)
    assert np.isclose(
        simulate_expert(model=SMALL, layout="sharded:2", bits=written).weight_bytes,
        3 * 512 * 256 / 8 * (4 + 20 / 128),
    )
