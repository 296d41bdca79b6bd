"""What each key of a hardware file means to a simulation: worked out by hand, key by key.

Experts of two bursts, of which every step is known in advance, are timed to the tick for values that no other
test has; what has no formula is held against a bound or a count in the command trace. Every key of the schema is
in `CHECKED` or in `DESCRIPTIVE`, so that a new one cannot be forgotten.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from builders.data_sheet import SHEET, WATTS, io_watts, row_nj, sheet
from mistakes import refused
from ndpsim.base.options.dram import ControllerOptions
from ndpsim.config import load_hardware
from ndpsim.config.consistency import DECIDED
from ndpsim.config.keys import section_of
from ndpsim.config.system import System
from ndpsim.dimm.layout import ExpertFormat
from ndpsim.dram.spec.standard import ACTIVATE as ACT
from ndpsim.dram.spec.standard import READ as RD
from ndpsim.dram.spec.standard import WRITE as WR
from ndpsim.dram.traces import Requests
from ndpsim.simulate import (
    Memory,
    run_requests,
    simulate_contention,
    simulate_expert,
    simulate_host_read,
    simulate_relayout,
    sweep_load,
)
from ndpsim.simulate.machine import geometry_of
from ndpsim.simulate.relayout_plan import access_by_host, access_by_units
from ndpsim.workload.models import Expert

TINY = Expert(4, 4)  # gate and up make a burst, down another
SMALL = Expert(256, 128)
QUIET = ("dram.refresh=none",)
TCK = Fraction(5, 12)  # ns, the clock of DDR5-4800

CHECKED: set[str] = set()


def of(*keys: str) -> Callable[[Any], Any]:
    """Marks what the test is about."""

    def note(test: Any) -> Any:
        CHECKED.update(keys)
        return test

    return note


def phases_of(result: Any) -> dict[str, tuple[float, float]]:
    return {phase.name: (phase.start_ns, phase.end_ns) for phase in result.phases}


def up_to(time: Fraction, period: Fraction) -> Fraction:
    """The edge of a clock at or after a time."""
    return -(-time // period) * period


def settings(values: dict[str, Any], before: tuple[str, ...] = QUIET) -> tuple[str, ...]:
    return (*before, *(f"{key}={value}" for key, value in values.items()))


# ---- A DIMM that multiplies, by hand -------------------------------------------------------------------

DIMM = {
    "dram.nRCD": 36,
    "dram.nCL": 40,
    "dram.nCWL": 34,
    "dram.nBL": 8,
    "dimm.ranks": 4,
    "dimm.subchannels": 2,
    "ndp.gemv.multipliers": 256,
    "ndp.gemv.values_per_multiplier": 8,
    "ndp.gemv.native_bits": 16,
    "ndp.gemv.bit_serial_cycles": 16,
    "ndp.gemv.adder_tree_cycles": 11,
    "ndp.gemv.row_sum_cycles": 0,
    "ndp.gemv.clock_mhz": 1000,
    "ndp.gemv.activation_bytes": 2,
    "ndp.activation.units": 256,
    "ndp.activation.cycles_per_value": 1,
    "ndp.activation.latency_cycles": 12,
    "ndp.activation.clock_mhz": 1000,
}


def phases_by_hand(
    changes: dict[str, Any], tokens: int, bits: int, tck_ns: Fraction
) -> dict[str, tuple[Fraction, Fraction]]:
    """The phases of TINY on a DIMM, in ns after clock 1."""
    value = {**DIMM, **changes}
    unit, activation = (
        Fraction(1000) / Fraction(str(value[f"ndp.{n}.clock_mhz"])) for n in ("gemv", "activation")
    )
    n_bl, buses = value["dram.nBL"], value["dimm.subchannels"]
    lanes = value["dimm.ranks"] * buses
    # The host writes the inputs of all tokens, spread over the buses in bursts of 64 bytes.
    bursts = math.ceil(tokens * 4 * value["ndp.gemv.activation_bytes"] / 64)
    there = (1 + value["dram.nCWL"] + math.ceil(bursts / buses) * n_bl) * tck_ns
    # ACT at clock 1; the lane's multipliers work on the burst as many at once as there are.
    data = (1 + value["dram.nRCD"] + value["dram.nCL"] + n_bl) * tck_ns
    of_lane = value["ndp.gemv.multipliers"] // lanes
    rounds = math.ceil(math.ceil(math.ceil(512 / bits) / value["ndp.gemv.values_per_multiplier"]) / of_lane)
    cycles = math.ceil(value["ndp.gemv.bit_serial_cycles"] * bits / value["ndp.gemv.native_bits"])
    summed = tokens * rounds * cycles * unit + value["ndp.gemv.adder_tree_cycles"] * unit
    # Of the 8 rows of gate and up and the 4 of down, which are complete together, each leaves after the one before.
    later = tokens * value["ndp.gemv.row_sum_cycles"] * unit
    known = up_to(max(there, data), unit) + summed + 7 * later
    # The activation unit takes each value when it comes.
    values = (
        (1 if later else 4)
        * math.ceil(tokens / value["ndp.activation.units"])
        * value["ndp.activation.cycles_per_value"]
    )
    hidden = (
        up_to(known + values * activation, activation) + value["ndp.activation.latency_cycles"] * activation
    )
    down = up_to(hidden, unit) + summed + 3 * later
    out = down + (math.ceil(tokens / buses) * n_bl + value["dram.nCL"]) * tck_ns
    ends = {
        "activations-in": (tck_ns, there),
        "gate-up": (there, known),
        "activation": (known - 6 * later, hidden),
        "down": (hidden, down),
        "result-out": (down, out),
    }
    return {name: (start - tck_ns, end - tck_ns) for name, (start, end) in ends.items()}


def in_ns(phases: dict[str, tuple[Fraction, Fraction]]) -> dict[str, Any]:
    return {
        name: pytest.approx((float(start), float(end)), abs=1e-9) for name, (start, end) in phases.items()
    }


@of(*DIMM, "dram.overrides")
@pytest.mark.parametrize(
    ("changes", "tokens", "bits"),
    [
        ({}, 1, 16),
        ({}, 3, 16),
        ({}, 9, 8),  # ten bursts of inputs and results share two buses
        ({"dram.nRCD": 100}, 1, 16),
        ({"dram.nCL": 77}, 1, 16),
        ({"dram.nCWL": 301}, 1, 16),
        ({"dimm.ranks": 2}, 1, 16),
        ({"dimm.subchannels": 1}, 40, 16),
        ({"dimm.subchannels": 1}, 300, 16),
        ({"ndp.gemv.multipliers": 24}, 2, 16),  # three a lane, for four that a burst asks for
        ({"ndp.gemv.multipliers": 8}, 2, 16),
        ({"ndp.gemv.values_per_multiplier": 3, "ndp.gemv.multipliers": 16}, 2, 16),
        ({"ndp.gemv.native_bits": 32}, 2, 16),
        ({"ndp.gemv.native_bits": 12}, 5, 4),
        ({"ndp.gemv.bit_serial_cycles": 5}, 7, 3),
        ({"ndp.gemv.adder_tree_cycles": 29}, 1, 16),
        ({"ndp.gemv.adder_tree_cycles": 0}, 1, 16),
        ({"ndp.gemv.row_sum_cycles": 1}, 1, 16),
        ({"ndp.gemv.row_sum_cycles": 5}, 3, 16),
        ({"ndp.gemv.clock_mhz": 700}, 2, 16),
        ({"ndp.gemv.clock_mhz": 333.333}, 2, 16),
        ({"ndp.gemv.activation_bytes": 8}, 3, 16),
        ({"ndp.activation.units": 2}, 5, 16),
        ({"ndp.activation.cycles_per_value": 9}, 1, 16),
        ({"ndp.activation.latency_cycles": 100}, 1, 16),
        ({"ndp.activation.latency_cycles": 0}, 1, 16),
        ({"ndp.activation.clock_mhz": 130}, 2, 16),
        ({"ndp.gemv.clock_mhz": 900, "ndp.activation.clock_mhz": 1100}, 3, 16),
    ],
)
def test_the_phases_of_two_bursts_are_those_worked_out_by_hand(changes, tokens, bits):
    result = simulate_expert("trimoe", TINY, tokens, bits=bits, sets=settings(changes))
    expected = phases_by_hand(changes, tokens, bits, TCK)
    assert phases_of(result) == in_ns(expected)
    assert result.cycles == math.ceil(expected["result-out"][1] / TCK)
    assert result.time_ns == pytest.approx(result.cycles / 2.4)


@of("dram.timing", "dram.standard", "dram.org")
def test_the_preset_is_the_clock_and_the_timings_of_the_phases():
    ddr4 = {
        "dram.standard": "DDR4",
        "dram.org": "DDR4_8Gb_x8",
        "dram.timing": "DDR4_3200AA",
        "dram.overrides": "{}",
    }
    clocks = {"dram.nRCD": 22, "dram.nCL": 22, "dram.nCWL": 16, "dram.nBL": 4}  # JESD79-4, 3200AA
    result = simulate_expert("trimoe", TINY, 2, sets=settings({**ddr4, "dram.nCWL": 16}))
    # DDR4 moves 64 bytes over 64 bits: the lanes are as many, and a burst takes as many bytes.
    expected = phases_by_hand(clocks, 2, 16, Fraction(5, 8))
    assert phases_of(result) == in_ns(expected)
    assert result.clock_ns == 0.625
    slow = simulate_expert("trimoe", TINY, 2, sets=settings({"dram.timing": "DDR5_3200BN"}))
    assert slow.clock_ns == 0.625


@of("ndp.gemv.buffer_kib")
@pytest.mark.parametrize(
    ("kib", "activation_bytes", "tokens", "tiles"),
    [
        (1, 2, 64, (64,)),
        (1, 2, 65, (33, 32)),
        (1, 4, 100, (25, 25, 25, 25)),
        (2, 2, 128, (128,)),
        (2, 2, 129, (65, 64)),
    ],
)
def test_tokens_are_tiled_to_the_buffer(kib, activation_bytes, tokens, tiles):
    # A token needs 4 inputs and 4 hidden values: 16 bytes, of which 1 KiB holds 64.
    changes = {"ndp.gemv.buffer_kib": kib, "ndp.gemv.activation_bytes": activation_bytes}
    result = simulate_expert("trimoe", TINY, tokens, sets=settings(changes))
    assert result.token_tiles == tiles
    assert result.commands["RD"] == 2 * len(tiles)
    assert result.weight_reads == len(tiles)


@of("ndp.gemv.fifo_bursts", "ndp.systolic.fifo_bursts")
@pytest.mark.parametrize(
    ("hw", "unit", "depth"), [("trimoe", "gemv", 5), ("trimoe", "gemv", 9), ("cxl", "systolic", 6)]
)
def test_no_more_reads_than_the_fifo_holds_wait_for_the_activations(hw, unit, depth):
    # Activations arrive late, so that multipliers take nothing: on a lane, the FIFO's depth is read and no more.
    late = "dram.nCWL=20000" if hw == "trimoe" else "cxl.latency_ns=9000"
    result = simulate_expert(
        hw, Expert(512, 256), sets=(*QUIET, late, f"ndp.{unit}.fifo_bursts={depth}"), record_commands=True
    )
    begins = phases_of(result)["gate-up"][0]
    for trace in result.command_traces:
        assert np.count_nonzero((trace.command == RD) & (trace.clock * result.clock_ns < begins)) == depth


# ---- A device with systolic arrays, by hand -------------------------------------------------------------

DEVICE = {
    "cxl.gbps": 31.508,
    "cxl.latency_ns": 100,
    "cxl.packet_bytes": 64,
    "cxl.header_bytes": 21,
    "ndp.systolic.rows": 4,
    "ndp.systolic.columns": 4,
    "ndp.systolic.clock_mhz": 1000,
    "ndp.systolic.native_bits": 16,
    "ndp.systolic.activation_bytes": 2,
    "ndp.activation.units": 64,
    "ndp.activation.latency_cycles": 12,
    "ndp.activation.clock_mhz": 1000,
}


def message_ns(value: dict[str, Any], sizes: list[int]) -> float:
    """Of messages one behind the other, to the arrival of the last."""
    wire = sum(
        size + math.ceil(size / value["cxl.packet_bytes"]) * value["cxl.header_bytes"] for size in sizes
    )
    return wire / value["cxl.gbps"] + value["cxl.latency_ns"]


@of(*DEVICE)
@pytest.mark.parametrize(
    ("changes", "tokens"),
    [
        ({}, 1),
        ({}, 3),
        ({"cxl.gbps": 2.5}, 4),
        ({"cxl.latency_ns": 333}, 1),
        ({"cxl.packet_bytes": 16, "cxl.header_bytes": 100}, 4),
        ({"cxl.packet_bytes": 4}, 2),
        ({"cxl.header_bytes": 1}, 2),
        ({"ndp.systolic.clock_mhz": 300}, 2),
        ({"ndp.systolic.rows": 7}, 2),
        ({"ndp.systolic.columns": 9}, 2),
        ({"ndp.systolic.native_bits": 4}, 2),  # a word of 4 bits a step: 16 steps for 4 weights
        ({"ndp.systolic.activation_bytes": 4}, 3),
        ({"ndp.activation.units": 1}, 3),
        ({"ndp.activation.latency_cycles": 50}, 1),
        ({"ndp.activation.clock_mhz": 250}, 1),
    ],
)
def test_the_phases_of_two_tiles_on_arrays_are_those_worked_out_by_hand(changes, tokens):
    value = {**DEVICE, **changes}
    result = simulate_expert("cxl", TINY, tokens, sets=settings(changes))
    cycle = 1000 / value["ndp.systolic.clock_mhz"]
    activation = 1000 / value["ndp.activation.clock_mhz"]
    size = value["ndp.systolic.activation_bytes"]
    steps = 4 * 16 // value["ndp.systolic.native_bits"]
    # The last step goes down the rows and across the columns, and the sums leave over the rows.
    latency = 2 * value["ndp.systolic.rows"] + value["ndp.systolic.columns"] - 2
    grain = 2 * max(cycle, activation) + 0.1  # clock edges, and the grain of a tick
    there = message_ns(value, [4 * size * tokens])
    known = there + (steps + latency) * cycle
    values = 4 * math.ceil(tokens / value["ndp.activation.units"])
    hidden = known + (values + value["ndp.activation.latency_cycles"]) * activation
    down = hidden + (steps + latency) * cycle
    together = max(1, value["cxl.packet_bytes"] // size)  # results that share a packet
    out = down + message_ns(
        value, [size * len(range(4)[at : at + together]) for at in range(0, 4, together)] * tokens
    )
    found = phases_of(result)
    for name, expected in zip(
        ("activations-in", "gate-up", "activation", "down", "result-out"),
        (there, known, hidden, down, out),
        strict=True,
    ):
        assert expected - 1e-6 <= found[name][1] <= expected + grain, name


@of("ndp.systolic.arrays")
def test_arrays_of_a_lane_work_on_neighbouring_outputs():
    # 8 rows of gate and up: one tile where a lane has 2 arrays of 4 columns, two of them where it has one.
    for arrays, lanes in ((64, 1), (32, 2), (128, 1)):
        result = simulate_expert(
            "cxl", TINY, sets=settings({"ndp.systolic.arrays": arrays}), record_commands=True
        )
        assert sum(1 for trace in result.command_traces if len(trace)) == lanes
        assert result.peak_gflops == arrays * 16 * 2


@of(
    "ndp.systolic.dataflow",
    "ndp.systolic.load_rows",
    "ndp.systolic.stationary_registers",
    "ndp.systolic.low_bit_throughput",
)
def test_how_arrays_take_weights_in():
    def down_ns(*sets: str, tokens: int = 1, bits: int = 16) -> float:
        start, end = phases_of(
            simulate_expert("cxl", Expert(64, 4), tokens, bits=bits, sets=(*QUIET, *sets))
        )["gate-up"]
        return end - start

    ws = "ndp.systolic.dataflow=weight-stationary"
    one = "ndp.systolic.stationary_registers=1"
    # 64 inputs: 64 steps, or 16 blocks of 4 weights each that enter in 4, 2 or 1 cycles.
    assert down_ns() == pytest.approx(64 + 10, abs=1.1)
    for rows, interval in ((1, 4), (2, 2), (4, 1)):
        assert down_ns(ws, f"ndp.systolic.load_rows={rows}") == pytest.approx(16 * interval, abs=14)
    # With one register a block waits for the sums of the one before: at least down the rows and across the columns.
    assert down_ns(ws, one) >= 16 * (4 + 4 + 3)
    # Of 4-bit weights a word holds four, which enter together; or not.
    assert down_ns(bits=4) == pytest.approx(16 + 10, abs=1.1)
    assert down_ns("ndp.systolic.low_bit_throughput=fixed", bits=4) == pytest.approx(64 + 10, abs=1.1)
    # One sum register: the tiles behind one another drain apart.
    pair, apart = (
        simulate_expert("cxl", Expert(8, 512), sets=(*QUIET, *sets)).busy["compute"] for sets in ((), (one,))
    )
    assert apart > pair


@of("ndp.systolic.buffer_kib")
def test_tokens_are_tiled_to_the_buffer_of_the_arrays():
    ws = "ndp.systolic.dataflow=weight-stationary"
    for kib, tokens, tiles in ((1, 64, (64,)), (1, 65, (33, 32)), (2, 128, (128,))):
        result = simulate_expert("cxl", TINY, tokens, sets=(*QUIET, ws, f"ndp.systolic.buffer_kib={kib}"))
        assert result.token_tiles == tiles


# ---- A relayout, by hand --------------------------------------------------------------------------------

MOVE = {
    "dram.nRCD": 36,
    "dram.nCL": 40,
    "dram.nCWL": 34,
    "dram.nBL": 8,
    "dram.nRRDS": 8,
    "link.link_gbps": 25,
    "link.hop_latency_ns": 10,
    "link.header_bytes": 16,
    "ndp.relayout.clock_mhz": 1000,
}


def move(*sets: str, to: int = 1, model: Expert = TINY, **options: Any) -> Any:
    options.setdefault("host", False)
    return simulate_relayout(
        "trimoe",
        model,
        1,
        "localized",
        "localized",
        [0],
        [to],
        sets=(*QUIET, *sets),
        record_commands=True,
        **options,
    )


@of(*MOVE, "link.topology", "link.ports", "link.lanes", "link.lane_gbit_s")
@pytest.mark.parametrize(
    ("changes", "to", "hops"),
    [
        ({}, 1, 1),
        ({}, 15, 1),  # a ring
        ({}, 3, 3),
        ({"link.topology": "chain"}, 15, 15),
        ({"link.topology": "full", "link.ports": 15}, 3, 1),
        ({"link.topology": "mesh", "link.ports": 4}, 5, 2),
        ({"link.link_gbps": 3.2, "link.lane_gbit_s": 3.2}, 2, 2),
        ({"link.link_gbps": 12.5, "link.lanes": 4}, 1, 1),
        ({"link.hop_latency_ns": 77}, 2, 2),
        ({"link.header_bytes": 160}, 1, 1),
        ({"ndp.relayout.clock_mhz": 90}, 1, 1),
        ({"ndp.relayout.clock_mhz": 1234.5}, 1, 1),
        ({"dram.nCWL": 50}, 1, 1),
        ({"dram.nCL": 61}, 1, 1),
        ({"dram.nRCD": 49}, 1, 1),
        ({"dram.nRRDS": 11}, 1, 1),
    ],
)
def test_two_bursts_move_in_the_time_worked_out_by_hand(changes, to, hops):
    value = {**MOVE, **{key: each for key, each in changes.items() if key in MOVE}}
    result = move(*settings(changes, ()), to=to)
    unit = 1000 / Fraction(str(value["ndp.relayout.clock_mhz"]))
    # Of the second of two reads in neighbouring bank groups; the packet of both leaves when it is there.
    data = 1 + value["dram.nRRDS"] + value["dram.nRCD"] + value["dram.nCL"] + value["dram.nBL"]
    leaves = up_to(data * TCK, unit)
    hop = (96 + value["link.header_bytes"]) / Fraction(str(value["link.link_gbps"])) + value[
        "link.hop_latency_ns"
    ]
    offered = math.ceil(up_to(leaves + hops * hop, unit) / TCK)
    # A write is activated a clock after it is offered.
    end = offered + 1 + value["dram.nRRDS"] + value["dram.nRCD"] + value["dram.nCWL"] + value["dram.nBL"]
    assert result.cycles == end - 1
    assert result.time_ns == pytest.approx(float((end - 1) * TCK))
    assert result.wire_bytes == 96 + value["link.header_bytes"]
    assert result.link_busy == dict.fromkeys(
        result.link_busy, pytest.approx(float(hop - value["link.hop_latency_ns"]) / result.time_ns)
    )
    assert len(result.link_busy) == hops


@of("link.packet_bytes")
@pytest.mark.parametrize("packet", [64, 128, 200, 256, 4096])
def test_packets_hold_as_many_whole_bursts_as_fit(packet):
    # 60 bursts of one flow. A packet of 200 bytes holds three of them.
    buffer = ("ndp.relayout.buffer_kib=1024",)
    result = move(*buffer, f"link.packet_bytes={packet}", model=Expert(64, 10))
    assert result.weight_bytes == 60 * 64
    assert (result.wire_bytes - result.weight_bytes) // 16 == math.ceil(60 / (packet // 64))


def reads_before_writes(result: Any) -> list[int]:
    """Of each lane, where no packet arrives before 100 us."""
    traces = result.command_traces[0]
    first = min(int(trace.clock[trace.command == WR][0]) for trace in traces if (trace.command == WR).any())
    assert first * float(TCK) > 100_000
    return [int(np.count_nonzero((trace.command == RD) & (trace.clock < first))) for trace in traces]


@of("ndp.relayout.buffer_kib")
@pytest.mark.parametrize("kib", [2, 4])
def test_a_buffer_holds_half_of_itself_between_reading_and_sending_and_half_of_what_arrives(kib):
    # Until the first packet arrives, one half of the buffer has gone out and is not free at the target, and the
    # other half has been read.
    result = move(f"ndp.relayout.buffer_kib={kib}", "link.hop_latency_ns=100000", model=SMALL)
    assert sum(reads_before_writes(result)) == kib * 1024 // 64


def test_packets_from_several_dimms_share_the_buffer_of_their_target():
    # Halves of 1 KiB: of four packets that may be on their way, each of two sources has two, with eight bursts,
    # and 16 bursts more in its own buffer.
    sets = ("ndp.relayout.buffer_kib=2", "link.hop_latency_ns=100000", "link.topology=full", "link.ports=15")
    result = simulate_relayout(
        "trimoe",
        SMALL,
        1,
        "sharded:2",
        "localized",
        [0],
        [5],
        sets=(*QUIET, *sets),
        host=False,
        record_commands=True,
    )
    before = reads_before_writes(result)
    assert [sum(before[8 * dimm : 8 * dimm + 8]) for dimm in (0, 1)] == [8 + 16, 8 + 16]


@of("ndp.relayout.concurrent_experts")
@pytest.mark.parametrize(("at_once", "waves"), [(1, 3), (2, 2), (3, 1)])
def test_experts_beyond_those_at_once_wait_for_a_wave_of_their_own(at_once, waves):
    sets = (*QUIET, f"ndp.relayout.concurrent_experts={at_once}")
    each = [move(to=1).cycles, move().cycles]
    result = simulate_relayout(
        "trimoe", TINY, 3, "localized", "localized", [0, 2, 4], [1, 3, 5], sets=sets, host=False
    )
    assert result.waves == waves
    assert result.cycles == waves * each[0]  # DIMMs of their own: a wave takes as long as one expert


@of("link.group_dimms", "link.host_latency_ns", "host.channels", "dimm.count")
def test_groups_are_chains_bridged_over_the_channels_of_the_host():
    sets = (
        "link.topology=groups",
        "dimm.count=8",
        "host.channels=4",
        "link.group_dimms=4",
        "link.host_latency_ns=300",
    )

    def time_ns(*more: str, to: int) -> float:
        return float(move(*sets, *more, to=to).time_ns)

    wire = (96 + 16) / 38.4  # two sub-channels of 19.2 GB/s
    link = 112 / 25 + 10
    within, across = time_ns(to=3), time_ns(to=5)
    grain = 1.5  # edges of the unit's clock and the DRAM's
    assert across - within == pytest.approx(2 * wire + 300 - 3 * link, abs=grain)
    assert time_ns("link.host_latency_ns=800", to=5) - across == pytest.approx(500, abs=grain)
    # In groups of two DIMM 3 is of another group, and of six DIMM 5 is not.
    assert time_ns("link.group_dimms=2", to=3) == pytest.approx(across, abs=grain)
    assert time_ns("link.group_dimms=8", to=5) - within == pytest.approx(2 * link, abs=grain)
    busy = move(*sets, to=5).link_busy
    assert set(busy) == {"channel 0", "channel 1"}  # DIMM 5 is on channel 5 mod 4
    assert set(move(*sets, "host.channels=8", to=5).link_busy) == {"channel 0", "channel 5"}
    with refused("range target_dimms"):
        move(*sets, to=8)


@of("host.channels", "dimm.count")
def test_the_host_moves_two_bursts_in_the_time_worked_out_by_hand():
    host = move(host=True).host
    read = 1 + 8 + 36 + 40 + 8  # clock 1, nRRDS, nRCD, nCL, nBL
    end = read + 1 + 36 + 34 + 8  # a clock, nRCD, nCWL, nBL, on another channel
    assert host.time_ns == pytest.approx(float((end - 1) * TCK))
    assert host.bandwidth_gbps == pytest.approx(96 / host.time_ns)
    assert host.bound_ns == pytest.approx(float(2 * 8 * TCK))
    assert host.bus_busy == pytest.approx(host.bound_ns / host.time_ns)
    # On one channel both halves share a bus: 2 reads and 2 writes.
    shared = move("host.channels=1", "dimm.count=2", host=True).host
    assert shared.bound_ns == pytest.approx(float(4 * 8 * TCK))


@of("dram.read_buffer", "dram.write_buffer")
def test_the_hosts_buffers_are_the_queues_of_its_buses():
    # One expert on one DIMM: 2 buses, so 2 slots for reads, each taken for a read's nCL + nBL at least.
    def host_ns(*sets: str) -> float:
        return float(move(*sets, to=1, model=SMALL, host=True).host.time_ns)

    sets = ("dimm.count=2", "host.channels=2")
    bursts = 3 * 256 * 128 * 2 // 64
    free = host_ns(*sets)
    few = host_ns(*sets, "dram.read_buffer=1")
    assert few >= bursts / (4 * 1) * (40 + 8) * float(TCK) > 2 * free
    assert host_ns(*sets, "dram.read_buffer=2") >= bursts / (4 * 2) * (40 + 8) * float(TCK)
    assert free < host_ns(*sets, "dram.write_buffer=1")


# ---- Controllers ----------------------------------------------------------------------------------------


def mixed(count: int = 3000, seed: int = 3) -> Requests:
    """Reads and writes of few rows, so that every policy finds something to decide."""
    random = np.random.default_rng(seed)
    return Requests.of(random.integers(0, 1 << 16, count) * 64, (random.random(count) < 0.4).astype(np.int64))


@of(
    "dram.scheduler",
    "dram.row_policy",
    "dram.row_cap",
    "dram.refresh",
    "dram.refresh_control",
    "dram.rfm",
    "dram.rfm_threshold",
    "dram.read_buffer",
    "dram.write_buffer",
    "dram.mapper",
    "host.channels",
    "dimm.ranks",
    "dimm.subchannels",
)
@pytest.mark.parametrize(
    ("sets", "options", "others"),
    [
        ((), {}, {}),
        (("dram.scheduler=FRFCFS-RowHit",), {"scheduler": "FRFCFS-RowHit"}, {}),
        (("dram.row_policy=closed-cap",), {"row_policy": "closed-cap"}, {}),
        (("dram.row_policy=closed-cap", "dram.row_cap=2"), {"row_policy": "closed-cap", "row_cap": 2}, {}),
        (("dram.refresh=same-bank",), {"refresh": "same-bank"}, {}),
        (("dram.refresh=staggered",), {"refresh": "staggered"}, {}),
        (
            ("dram.refresh=same-bank", "dram.refresh_control=reference"),
            {"refresh": "same-bank", "refresh_control": "reference"},
            {},
        ),
        (("dram.rfm=all-bank", "dram.rfm_threshold=8"), {"rfm": "all-bank", "rfm_threshold": 8}, {}),
        (("dram.rfm=same-bank", "dram.rfm_threshold=8"), {"rfm": "same-bank", "rfm_threshold": 8}, {}),
        (("dram.read_buffer=5",), {"read_buffer": 5}, {}),
        (("dram.write_buffer=11",), {"write_buffer": 11}, {}),
        (("dram.mapper=MOP4CLXOR",), {}, {"mapper": "MOP4CLXOR"}),
        (("dram.mapper=ChRaBaRoCo",), {}, {"mapper": "ChRaBaRoCo"}),
        (("dimm.ranks=2",), {}, {"ranks": 2}),
        (("host.channels=1",), {}, {"channels": 2}),
        (("dimm.subchannels=1",), {}, {"channels": 2}),
        (("dram.nRCD=60",), {}, {"overrides": {"nRCD": 60}}),
    ],
)
def test_the_memory_of_a_hardware_file_is_the_one_that_its_values_name(sets, options, others):
    base = ("host.channels=2", "dimm.ranks=4", "dram.overrides={}")
    memory = Memory.of_hardware(load_hardware("trimoe", (*base, *sets)))
    named = {"ranks": 4, "overrides": {}, "mapper": "RoBaRaCoCh", "channels": 4, **others}
    same = Memory.named("DDR5", "DDR5_32Gb_x8", "DDR5_4800B", **named, options=ControllerOptions(**options))
    assert memory.to_dict() == same.to_dict()
    ours, theirs = (run_requests(mixed(), one) for one in (memory, same))
    plain = run_requests(mixed(), Memory.of_hardware(load_hardware("trimoe", base)))
    assert (ours.cycles, ours.commands, ours.row_hits) == (theirs.cycles, theirs.commands, theirs.row_hits)
    assert not sets or (ours.cycles, ours.commands) != (plain.cycles, plain.commands)


@of("dram.rck", "dram.rck_idle")
def test_the_read_clock_of_a_hardware_file_stops_and_starts_as_it_says():
    names = ("GDDR7", "GDDR7_16Gb_x8", "GDDR7_28000_PAM3")
    channel = [f"dram.{key}={name}" for key, name in zip(("standard", "org", "timing"), names, strict=True)]
    alone = ("dram.overrides={}", "dimm.ranks=1", "dimm.subchannels=1", "host.channels=1", "dimm.count=1")
    rare = replace(mixed(300), cycle=np.arange(300) * 200)

    def commands(**options: Any) -> Any:
        sets = (*channel, *alone, *(f"dram.{key}={value}" for key, value in options.items()))
        ours = run_requests(rare, Memory.of_hardware(load_hardware("trimoe", sets)))
        named = Memory.named(*names, options=ControllerOptions(**options))
        assert ours.commands == run_requests(rare, named).commands
        return ours.commands

    assert "RCKSTRT" not in commands()
    often = commands(rck="start-with-rckstrt", rck_idle=1)["RCKSTRT"]
    assert often > commands(rck="start-with-rckstrt", rck_idle=1000)["RCKSTRT"] > 0


@of("host.mapper")
def test_traffic_beside_an_expert_lies_as_the_mapper_of_the_host_says():
    # A round of reads in sequence: all bank groups in turn, or one row after the other.
    activates = {
        mapper: simulate_contention(
            "trimoe", Expert(64, 64), read_share=1.0, sets=[f"host.mapper={mapper}"], record_commands=True
        ).command_traces
        for mapper in ("RoBaCoRaCoBgCh", "RoBaRaCoCh", "dram")
    }
    lanes = {
        mapper: sum(bool((trace.command == RD).any()) for trace in traces)
        for mapper, traces in activates.items()
    }
    assert lanes["RoBaCoRaCoBgCh"] == 8
    assert (
        [trace.clock.tolist() for trace in activates["dram"]]
        == [trace.clock.tolist() for trace in activates["RoBaRaCoCh"]]
        != [trace.clock.tolist() for trace in activates["RoBaCoRaCoBgCh"]]
    )


@of("dram.mapping")
def test_a_mapping_of_ones_own_places_bursts_as_it_says():
    order = "[channel, column:1, bankgroup, column, bank, rank, row]"
    sets = (
        *QUIET,
        "host.channels=1",
        "dimm.subchannels=1",
        "dram.mapper=custom",
        f"dram.mapping.order={order}",
    )
    for more, groups in (((), [0, 0, 1]), (("dram.mapping.xor={bankgroup: ['bank:0']}",), [0, 1, 1])):
        memory = Memory.of_hardware(load_hardware("trimoe", (*sets, *more)))
        # A bit of the column, 3 of the group and 5 of the column lie below the bank's.
        bursts = np.array([0, 1 << 1, 1 << 9])
        found = run_requests(Requests.of(bursts * 64, np.zeros(3, np.int64)), memory, record_commands=True)
        trace = found.command_traces[0]
        assert sorted(trace.bankgroup[trace.command == RD].tolist()) == groups


ENGINES: dict[str, Callable[..., Any]] = {
    "expert": lambda *sets: simulate_expert("trimoe", Expert(512, 512), sets=sets, record_commands=True),
    "arrays": lambda *sets: simulate_expert("cxl", Expert(2048, 512), sets=sets, record_commands=True),
    "host-read": lambda *sets: simulate_host_read(
        "trimoe", Expert(512, 512), sets=sets, record_commands=True
    ),
    "shared": lambda *sets: simulate_contention(
        "trimoe",
        Expert(512, 512),
        sets=("host.mapper=RoBaRaCoCh", *sets),
        arbitration="ndp-first",  # with rows that close early, each arbitration is compiled anew
        record_commands=True,
    ),
    "relayout": lambda *sets: simulate_relayout("trimoe", Expert(512, 512), 1, sets=sets, host=False),
}


@of("dram.refresh", "dram.row_policy", "dram.row_cap", "dram.read_buffer")
@pytest.mark.parametrize("engine", ENGINES)
def test_every_engine_has_the_controller_of_the_file(engine):
    often = ("dram.nREFI=2500",)
    run = ENGINES[engine]
    usual, none, same_bank = (
        run(*often, f"dram.refresh={mode}") for mode in ("all-bank", "none", "same-bank")
    )
    assert (usual.commands["REFab"] > 0, usual.commands.get("REFsb", 0)) == (True, 0)
    assert {"REFab", "REFsb"} & set(none.commands) == set()
    assert (same_bank.commands.get("REFab", 0), same_bank.commands["REFsb"] > 0) == (0, True)
    if engine == "relayout":  # it would be compiled anew for rows that close early
        hardware = load_hardware("trimoe", ("dram.row_policy=closed-cap", "dram.row_cap=3"))
        for access in (access_by_units, access_by_host):
            policy = access(hardware, geometry_of(hardware)).policy
            assert (type(policy.rows).__name__, policy.row_cap) == ("ClosedCap", 3)
        return
    counts = [
        run(*QUIET, "dram.row_policy=closed-cap", f"dram.row_cap={cap}").commands["ACT"] for cap in (1, 4)
    ]
    assert counts[0] > 2 * counts[1] > 2 * run(*QUIET).commands["ACT"]


@of("dram.read_buffer")
@pytest.mark.parametrize(("engine", "bursts"), [("expert", 512), ("arrays", 512), ("host-read", 192)])
def test_a_row_is_opened_no_further_ahead_than_the_queue_reaches(engine, bursts):
    ahead = []
    for slots in (1, 8, 32):
        trace = ENGINES[engine](*QUIET, f"dram.read_buffer={slots}").command_traces[0]
        ninth = trace.clock[trace.command == ACT][8]  # the first behind the bursts of a row in every group
        ahead.append(bursts - int(np.count_nonzero(trace.clock[trace.command == RD] < ninth)))
    assert ahead[0] <= 1 < ahead[1] <= 8 < ahead[2] <= 32


# ---- Channels of a load sweep, and the host beside an expert --------------------------------------------


@of("host.channels")
@pytest.mark.parametrize("channels", [1, 2, 4])
def test_a_sweep_offers_each_load_to_all_channels_together(channels):
    memory = Memory.named(
        "DDR5", "DDR5_16Gb_x8", "DDR5_4800AN", 1, {}, "MOP4CLXOR", channels, ControllerOptions(refresh="none")
    )
    number = np.arange(4000)
    points = sweep_load(Requests.of(number * 64, np.zeros_like(number)), memory, loads=(0.1, 0.5))
    for point, load in zip(points, (0.1, 0.5), strict=True):
        assert point.load == load
        assert point.offered_gbps == pytest.approx(load * channels * 19.2)
        assert point.bandwidth_gbps == pytest.approx(point.offered_gbps, rel=0.05)
    # A read that meets nothing: a clock, nRCD, nCL, nBL.
    assert points[0].mean_ns >= (34 + 8) / 2.4
    assert points[0].mean_ns <= (1 + 34 + 34 + 8) / 2.4
    assert points[0].p99_ns <= points[1].p99_ns


def test_a_point_of_a_sweep_is_a_run_at_its_pace():
    memory = Memory.named("DDR5", "DDR5_16Gb_x8", "DDR5_4800AN", 1, {}, "MOP4CLXOR", 2, ControllerOptions())
    requests = mixed(4000)
    for load in (0.3, 1.0):
        (point,) = sweep_load(requests, memory, loads=(load,))
        # A burst takes 8 clocks, and two channels take two in that time.
        paced = dataclasses.replace(
            requests, cycle=np.array([math.floor(n * 8 / 2 / load) for n in range(4000)])
        )
        run = run_requests(paced, memory)
        assert run.read_latency_ns["p90"] < run.read_latency_ns["p99"]
        assert point.bandwidth_gbps == pytest.approx(run.bandwidth_gbps, rel=1e-3)
        assert point.mean_ns == pytest.approx(run.read_latency_ns["mean"], rel=0.02)
        assert point.p99_ns == pytest.approx(run.read_latency_ns["p99"], rel=0.02)


@pytest.mark.parametrize("pattern", ["sequential", "random"])
@pytest.mark.parametrize("model", [SMALL, Expert(1024, 512)])
def test_the_hosts_rows_are_not_those_of_the_weights(pattern, model):
    result = simulate_contention(
        model=model, read_share=0.0, pattern=pattern, record_commands=True, sets=QUIET
    )
    read = {int(row) for trace in result.command_traces for row in trace.row[trace.command == ACT]}
    assert read
    alone = simulate_expert(model=model, record_commands=True, sets=QUIET)
    weights = {int(row) for trace in alone.command_traces for row in trace.row[trace.command == ACT]}
    last = max(weights)
    # All rows up to the last of the weights are theirs; what the host writes lies behind it, from the next on.
    for trace in result.command_traces:
        place = {}
        for command, group, bank, row in zip(
            trace.command, trace.bankgroup, trace.bank, trace.row, strict=True
        ):
            if command == ACT:
                place[int(group), int(bank)] = int(row)
            elif command == WR:
                assert place[int(group), int(bank)] > last
            elif command == RD:
                assert place[int(group), int(bank)] <= last
    assert last + 1 in read or pattern == "random"


# ---- Energy -----------------------------------------------------------------------------------------------

CHIPS = 4  # of a rank on a sub-channel of 32 bits, x8


@of(*(f"dram.power.{name}" for name in SHEET))
@pytest.mark.parametrize("refresh", ["all-bank", "same-bank"])
def test_every_key_of_the_data_sheet_costs_what_its_loop_says(refresh):
    sets = (
        "host.channels=1",
        "dimm.subchannels=1",
        "dimm.ranks=2",
        "dram.nREFI=3000",
        f"dram.refresh={refresh}",
    )
    result = run_requests(mixed(), Memory.of_hardware(load_hardware("trimoe", (*sets, *sheet()))))
    count, burst_ns = result.commands, 8 / 2.4
    command, loop, ns = {"all-bank": ("REFab", "5B", 400), "same-bank": ("REFsb", "5C", 200)}[refresh]
    expected = {
        "activate": count["ACT"] * row_nj(banks=32),
        "read": count["RD"] * (WATTS["4R"] - WATTS["3N"]) * burst_ns,
        "write": count["WR"] * (WATTS["4W"] - WATTS["3N"]) * burst_ns,
        "refresh": count[command] * (WATTS[loop] - WATTS["2N"]) * ns,
        "io": (count["RD"] + count["WR"]) * io_watts() * burst_ns,
    }
    assert {name: result.energy_nj[name] for name in expected} == pytest.approx(
        {name: CHIPS * nj for name, nj in expected.items()}
    )
    # Of two ranks, some banks are open some of the time.
    standby = 2 * CHIPS * result.time_ns
    assert standby * WATTS["2N"] < result.energy_nj["background"] < standby * WATTS["3N"]


@of("dram.power.scaled_from_mtps")
def test_scaled_currents_make_bursts_shorter_and_activations_cost_the_same():
    def run(timing: str, *sets: str) -> Any:
        own = ("dram.org=DDR5_16Gb_x8", f"dram.timing={timing}", "dram.overrides={}", *sets)
        return run_requests(mixed(), Memory.of_hardware(load_hardware("trimoe", own)))

    known, scaled = run("DDR5_4800AN"), run("DDR5_6400AN", "dram.power.scaled_from_mtps=4800")
    for component, commands, ratio in (("io", ("RD", "WR"), 4800 / 6400), ("activate", ("ACT",), 1)):
        each = [one.energy_nj[component] / sum(map(one.commands.get, commands)) for one in (known, scaled)]
        assert each[1] / each[0] == pytest.approx(ratio)


OF_LPDDR5 = ("IDD5PB", "bank_refresh_ns", "IDDQ3N", "IDDQ4R", "standby_banks", "burst_banks")


@of(*(f"dram.power.{name}" for name in OF_LPDDR5), "dram.rules", "dram.wck")
def test_keys_of_other_memories_cost_what_their_loops_say():
    def lpddr5(*sets: str, refresh: str = "per-bank", **changes: float) -> Any:
        names = ("standard=LPDDR5", "org=LPDDR5_8Gb_x16", "timing=LPDDR5_6400", "overrides={}")
        more = {"IDD5PB": 120.0, "bank_refresh_ns": 100.0, "IDDQ3N": 1.0, "IDDQ4R": 50.0, **changes}
        sets = (*(f"dram.{name}" for name in names), "dimm.ranks=1", *sets, *sheet(**more))
        memory = Memory.of_hardware(load_hardware("trimoe", (*sets, f"dram.refresh={refresh}")))
        return run_requests(mixed(), memory)

    base = lpddr5()
    refreshed, burst_ns = base.commands["REFpb"], 16 / 6.4
    bursts = base.commands["RD"] + base.commands["WR"]

    def more(component: str, **changes: float) -> float:
        return lpddr5(**changes).energy_nj[component] - base.energy_nj[component]

    # One chip of x16 makes a channel; mA x V x ns = pJ.
    assert more("refresh", IDD5PB=130.0) == pytest.approx(refreshed * 10 * 1.0 * 100 / 1000)
    assert more("refresh", bank_refresh_ns=200.0) == pytest.approx(refreshed * (120 - 50) * 1.0 * 100 / 1000)
    assert more("io", IDDQ4R=60.0) == pytest.approx(bursts * 10 * 1.1 * burst_ns / 1000)
    assert more("io", IDDQ3N=11.0) == pytest.approx(-bursts * 10 * 1.1 * burst_ns / 1000)
    # With two banks in the loop of a burst instead of all 16, less of its current is standby.
    an_open_bank = ((0.1 - 0.05) * 1.0 + (0.006 - 0.005) * 2.0) / 16
    assert more("read", burst_banks=2) == pytest.approx(base.commands["RD"] * 14 * an_open_bank * burst_ns)
    assert more("background", standby_banks=8) > 0
    running = lpddr5("dram.wck=always-on").commands
    assert base.commands["CAS_RD"] > 0 == running.get("CAS_RD", 0)
    # The reference's rows count from the first half of an activation.
    late = [f"dram.rules={rules}" for rules in ("reference", "standard")]
    of_reference, of_standard = (
        lpddr5(rules, "dram.refresh_control=reference", refresh="none") for rules in late
    )
    assert of_reference.cycles < of_standard.cycles


def test_a_relayout_over_the_host_pays_for_its_reads_and_writes():
    host = simulate_relayout("trimoe", SMALL, 1, sets=sheet()).host
    bursts = 3 * 256 * 128 * 2 // 64
    for name, loop in (("read", "4R"), ("write", "4W")):
        assert host.energy_nj[name] == pytest.approx(bursts * CHIPS * (WATTS[loop] - WATTS["3N"]) * 8 / 2.4)
    assert host.energy_nj["io"] == pytest.approx(2 * bursts * CHIPS * io_watts() * 8 / 2.4)


UNITS = {
    "ndp.activation.value_pj on arrays": ("cxl", "ndp_activation", lambda h, i, t: i * t),
    "ndp.gemv.product_pj": ("trimoe", "ndp_multiply", lambda h, i, t: 3 * h * i * t),
    "ndp.gemv.buffer_pj_per_byte": ("trimoe", "ndp_buffer", lambda h, i, t: 3 * h * i * t * 2),
    "ndp.gemv.fifo_pj_per_byte": ("trimoe", "ndp_fifo", lambda h, i, t: 3 * h * i * 2),
    "ndp.activation.value_pj": ("trimoe", "ndp_activation", lambda h, i, t: i * t),
    "ndp.systolic.product_pj": ("cxl", "ndp_multiply", lambda h, i, t: 3 * h * i * t),
    "ndp.systolic.buffer_pj_per_byte": ("cxl", "ndp_buffer", lambda h, i, t: 3 * h * i * t * 2),
    "ndp.systolic.fifo_pj_per_byte": ("cxl", "ndp_fifo", lambda h, i, t: 3 * h * i * 2),
}


@of(*(key for key in UNITS if " " not in key))
@pytest.mark.parametrize("key", UNITS)
def test_a_unit_spends_by_what_passes_it(key):
    hw, component, count = UNITS[key]
    key = key.partition(" ")[0]
    result = simulate_expert(hw, SMALL, 3, sets=[f"{key}=7.5"])
    assert result.energy_nj[component] == pytest.approx(count(256, 128, 3) * 7.5 / 1000)
    unknown = simulate_expert(hw, SMALL, 3, sets=[f"{key}=null"])
    assert unknown.energy_nj[component] is None
    assert result.energy_nj["total"] - unknown.energy_nj["total"] == pytest.approx(
        result.energy_nj[component]
    )


@pytest.mark.parametrize("hw", ["trimoe", "cxl"])
def test_each_matrix_multiplies_for_less_by_its_own_bits(hw):
    mixed_bits = ExpertFormat.of({"gate": 4, "up": 4, "down": 8})
    full, part = (
        simulate_expert(hw, SMALL, 2, bits=bits).energy_nj["ndp_multiply"] for bits in (16, mixed_bits)
    )
    assert part == pytest.approx(full * (0.25 + 0.25 + 0.5) / 3)


@of("ndp.gemv.static_mw", "ndp.activation.static_mw", "ndp.systolic.static_mw", "ndp.relayout.static_mw")
@pytest.mark.parametrize(
    ("hw", "unit", "dimms"), [("trimoe", "gemv", 1), ("trimoe", "gemv", 3), ("cxl", "systolic", 1)]
)
def test_static_power_is_drawn_by_every_dimm_all_the_time(hw, unit, dimms):
    layout = "localized" if dimms == 1 else f"sharded:{dimms}"
    both = [f"ndp.{unit}.static_mw=30", "ndp.activation.static_mw=12.5"]
    result = simulate_expert(hw, SMALL, layout=layout, sets=both)
    assert result.energy_nj["ndp_static"] == pytest.approx(dimms * 42.5e-3 * result.time_ns)
    for half in both:
        assert simulate_expert(hw, SMALL, layout=layout, sets=[half]).energy_nj["ndp_static"] is None
    moved = simulate_relayout("trimoe", SMALL, 1, sets=["ndp.relayout.static_mw=20"], host=False)
    assert moved.energy_nj["ndp_static"] == pytest.approx(16 * 20e-3 * moved.time_ns)


@of("link.pj_per_bit", "ndp.relayout.pj_per_byte", "cxl.pj_per_bit")
def test_links_and_buffers_spend_by_the_bits_that_pass_them():
    for to, hops in ((1, 1), (3, 3)):
        moved = move("link.pj_per_bit=2.5", "ndp.relayout.pj_per_byte=3.5", to=to, model=SMALL)
        assert moved.energy_nj["link"] == pytest.approx(hops * moved.wire_bytes * 8 * 2.5 / 1000, rel=1e-4)
        assert moved.energy_nj["ndp_relayout"] == pytest.approx(2 * moved.weight_bytes * 3.5 / 1000)
    result = simulate_expert("cxl", SMALL, 3, sets=["cxl.pj_per_bit=4"])
    assert result.communication_bytes == 2 * 3 * 256 * 2
    assert result.energy_nj["link"] == pytest.approx(result.communication_bytes * 8 * 4 / 1000)


_SIZES = ["bankgroups", "banks_per_group", "banks", "rows", "columns", "width", "density"]


@of(*(f"dram.organisation.{name}" for name in _SIZES))
def test_sizes_of_a_chip_are_those_of_the_machine():
    """A chip of 32 Gb: 8 groups of 4 banks, 131072 rows of 1024 columns of 8 bits; DDR5 reads 16 columns at once."""

    def lane(*sizes: str) -> tuple[int, ...]:
        hardware = load_hardware("trimoe", [f"dram.organisation.{size}" for size in sizes])
        device = hardware.lane_device()
        assert device.capacity_bytes == hardware.bus_device(1).capacity_bytes
        return (
            device.bankgroups, device.banks_per_group, device.rows, device.bursts_per_row,
            device.devices_per_rank, device.capacity_bytes >> 30,
        )  # fmt: skip

    assert lane() == (8, 4, 131072, 64, 4, 16)
    assert lane("bankgroups=4") == lane("banks=16", "bankgroups=4") == (4, 4, 131072, 64, 4, 8)
    assert lane("banks_per_group=2") == lane("banks=16") == (8, 2, 131072, 64, 4, 8)
    assert lane("rows=65536") == lane("rows=65536", "density=16Gb") == (8, 4, 65536, 64, 4, 8)
    assert lane("columns=512") == (8, 4, 131072, 32, 4, 8)
    assert lane("width=4") == (8, 4, 131072, 64, 8, 16)
    with refused("conflict sets dram.organisation.density"):
        lane("density=16Gb")


# ---- Every key --------------------------------------------------------------------------------------------

#: Used by no simulation, as the hardware files say; most only by `show hw`. By section or by the start of a key.
_DESCRIBED = {
    "": "name title paper",
    "dimm.": "command_bus",
    "dram.": "part",
    "host.": "part memory_bandwidth_gbps memory_tb measured_power",
    "host.cpu_": "tflops compute_efficiency added_tokens expert_times read_gbps read_share expert_overhead_us "
    "layer_overhead_us thread_overhead_us memory_gbps roofline_power sockets sockets_most cores clock_ghz isa family memory_channels memory_mtps "
    "memory_mtps_2dpc fabric_gbps threads",
    "host.memory.": "part standard org timing channels dimms ranks",
    "gpu.": "part tflops memory_gb memory_tbps pcie_gbps count link_gbps link_latency_us compute_efficiency "
    "attention_efficiency memory_efficiency expert_overhead_us kernel_overhead_us family fused_efficiency "
    "roofline_power tile_tokens expert_calls call_overhead_us slice_us attention_overhead_us expert_times "
    "attention_memory_efficiency attention_power softmax_operations latent_efficiency "
    "reserved_gb expert_buffers fused_memory_efficiency fp8_tflops fp8_efficiency fp4_tflops fp4_efficiency",
    "banks.": "device count level computes link_gbps link_latency_ns",
    "cxl.": "copy_engines copy_overhead_us",
    "pcie.": "part copy_overhead_us gbps latency_ns copy_engines packet_bytes header_bytes pj_per_bit",
    **dict.fromkeys((f"ndp.{unit}." for unit in ("gemv", "systolic", "activation", "relayout")), "area_mm2"),
    "ndp.published.": "gflops bandwidth_gbps memory_gb area_mm2",
}
DESCRIPTIVE = {section + key for section, keys in _DESCRIBED.items() for key in keys.split()}


def keys_of(model: Any, before: str = "") -> set[str]:
    found = set()
    for name, field in model.model_fields.items():
        section = section_of(field)
        whole = section is None or before + name == "dram.mapping"
        found |= {before + name} if whole else keys_of(section, f"{before}{name}.")
    return found


def test_every_key_is_worked_out_here_or_means_nothing_to_a_simulation():
    timings = {key for key in CHECKED if key.startswith("dram.n")}
    assert keys_of(System) == (CHECKED - timings) | DESCRIPTIVE
    assert not CHECKED & DESCRIPTIVE


@pytest.mark.parametrize("hw", ["trimoe", "cxl"])
def test_what_only_describes_the_machine_changes_no_figure(hw):
    hardware = load_hardware(hw)
    given = {key for key in DESCRIPTIVE if key in hardware.origins}
    texts = {"name", "title", "paper", "dimm.command_bus", "gpu.expert_times", "host.cpu_expert_times"}
    texts |= {"host.measured_power", "gpu.family", "gpu.expert_calls"}
    texts |= DECIDED.keys()  # refused without those that decide
    counts = {"pcie.copy_engines", "cxl.copy_engines", "gpu.expert_buffers", "host.cpu_added_tokens"}
    counts |= {"host.cpu_cores", "host.cpu_threads", "host.cpu_sockets", "host.cpu_sockets_most"}
    counts |= {"host.cpu_memory_channels", "gpu.tile_tokens", "gpu.count"}
    counts |= {"host.cpu_memory_mtps", "host.cpu_memory_mtps_2dpc"}
    texts |= {"host.cpu_isa", "host.cpu_family"} | {key for key in given if key.endswith(".part")}
    shares = {key for key in given if key.endswith(("_efficiency", "_share"))}
    numbers = {key for key in given - texts - counts - shares if not key.endswith("_bytes")}
    sets = (
        [f"{key}=3.5" for key in sorted(numbers)] + [f"{key}=0.35" for key in sorted(shares)] + ["name=other"]
    )
    usual, other = (simulate_expert(hw, SMALL, sets=changes) for changes in ((), sets))
    apart = {"config": None, "wall_s": 0.0, "fast_forwarded": 0.0}
    assert dataclasses.replace(usual, **apart) == dataclasses.replace(other, **apart)
