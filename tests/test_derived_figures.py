"""Values of results against sums computed from the command traces, or by hand from counts."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import pytest

from builders.data_sheet import SHEET, WATTS, io_watts, open_bank_watts, row_nj, sheet
from ndpsim.base.jit import kernel
from ndpsim.config import load_hardware
from ndpsim.dram import state
from ndpsim.dram.issuing import note_idle
from ndpsim.dram.spec import standards
from ndpsim.dram.traces import Requests
from ndpsim.simulate import (
    Memory,
    run_requests,
    run_trace,
    simulate_contention,
    simulate_expert,
    simulate_host_read,
    simulate_relayout,
)
from ndpsim.workload.models import Expert

COMMANDS = standards()["DDR5"].by_number

SMALL = Expert(384, 320)
SHEET_SETS = sheet()


class Replay:
    """Counts of a command trace up to a clock, command by command."""

    def __init__(self, traces: Any, end: int, timings: dict[str, int]) -> None:
        self.commands: Counter[str] = Counter()
        self.open_clocks = 0
        self.last_data = 0
        self.busy: list[int] = []  # of each trace that moves data: clocks of it, ...
        self.ends: list[int] = []  # ... and to the last of it, from the first command's clock
        for trace in traces:
            opened: dict[tuple[int, int, int], int] = {}
            data = end_of_data = 0
            for clock, number, rank, group, bank, _, _ in trace.columns().T.tolist():
                name = COMMANDS[number].name
                self.commands[name] += 1
                if name == "ACT":
                    opened[rank, group, bank] = clock
                for place in [*opened]:
                    if (name == "PREpb" and place == (rank, group, bank)) or (
                        name == "PREab" and place[0] == rank
                    ):
                        self.open_clocks += clock - opened.pop(place)
                if name in ("RD", "WR"):
                    data += timings["nBL"]
                    latency = timings["nCL" if name == "RD" else "nCWL"]
                    end_of_data = max(end_of_data, clock + latency + timings["nBL"])
            self.open_clocks += sum(end - clock for clock in opened.values())
            self.last_data = max(self.last_data, end_of_data)
            self.busy.append(data)
            self.ends.append(end_of_data - 1)

    def energy(
        self, rank_clocks: int, clock_ns: float, chips: int, banks: int, burst_ns: float
    ) -> dict[str, float]:
        """In nJ: W of a chip x ns."""
        of = self.commands
        each = {
            "activate": of["ACT"] * row_nj(banks),
            "read": of["RD"] * (WATTS["4R"] - WATTS["3N"]) * burst_ns,
            "write": of["WR"] * (WATTS["4W"] - WATTS["3N"]) * burst_ns,
            "refresh": of["REFab"] * (WATTS["5B"] - WATTS["2N"]) * SHEET["refresh_ns"],
            "background": (rank_clocks * WATTS["2N"] + self.open_clocks * open_bank_watts(banks)) * clock_ns,
            "io": (of["RD"] + of["WR"]) * io_watts() * burst_ns,
        }
        return {name: chips * nj for name, nj in each.items()}


def check_energy(found: Any, expected: dict[str, float]) -> None:
    for name, nj in expected.items():
        assert found[name] == pytest.approx(nj, rel=1e-9), name
    parts = [nj for name, nj in found.items() if name != "total" and nj is not None]
    assert found["total"] == pytest.approx(math.fsum(parts))


# ---- A request trace --------------------------------------------------------------------------------------


def rank_of(sorted_values: list[int], percent: int) -> int:
    """The least value that this many of 100 values do not exceed."""
    for place, value in enumerate(sorted_values, 1):
        if 100 * place >= percent * len(sorted_values):
            return value
    raise AssertionError


def timed_reads(count: int, span: int, seed: int) -> Requests:
    """Reads of different bursts, at clocks of which only a few are equal."""
    random = np.random.default_rng(seed)
    bursts = random.permutation(1 << 16)[:count]
    requests = Requests.of(bursts * 64, np.zeros(count, np.int64))
    return dataclasses.replace(requests, cycle=np.sort(random.permutation(span)[:count]).astype(np.int64))


@pytest.mark.parametrize(
    ("count", "channels"), [(1, 1), (2, 1), (10, 1), (99, 1), (100, 1), (101, 1), (350, 2)]
)
def test_latencies_are_those_of_each_read(count, channels):
    requests = timed_reads(count, count * 45, count)
    result = run_trace(requests, channels=channels, record_commands=True)
    place_of = {}
    for channel, trace in enumerate(result.command_traces):
        for clock, number, _, group, bank, row, column in trace.columns().T.tolist():
            if COMMANDS[number].name == "ACT":
                place_of[channel, group, bank] = row
            elif COMMANDS[number].name == "RD":
                place_of[channel, group, bank, place_of[channel, group, bank], column] = clock
    latencies = []
    for address, cycle in zip((requests.address // 64).tolist(), requests.cycle.tolist(), strict=True):
        # RoBaRaCoCh from below: channel, 64 columns, rank (one), 8 groups, 4 banks, rows.
        at, channel = divmod(address, channels)
        at, column = divmod(at, 64)
        at, group = divmod(at, 8)
        row, bank = divmod(at, 4)
        latencies.append(place_of[channel, group, bank, row, column] + 34 + 8 - cycle)
    latencies.sort()
    figures = result.read_latency_ns
    clocks = {name: ns * 2.4 for name, ns in figures.items()}
    assert clocks["mean"] == pytest.approx(sum(latencies) / count)
    for percent in (50, 90, 99):
        assert clocks[f"p{percent}"] == pytest.approx(rank_of(latencies, percent)), percent
    assert clocks["max"] == pytest.approx(latencies[-1])
    bars = result.read_latency_histogram
    assert len(bars) <= 40
    assert bars[0]["from_ns"] * 2.4 == pytest.approx(latencies[0])
    for bar in bars:
        begin, end = (round(bar[edge] * 2.4) for edge in ("from_ns", "to_ns"))
        assert bar["reads"] == sum(begin <= latency < end for latency in latencies)
        assert end - begin == math.ceil((latencies[-1] - latencies[0] + 1) / 40)
    assert bars[-1]["to_ns"] * 2.4 > latencies[-1]


def test_queues_are_counted_from_arrival_to_the_first_command():
    def run(addresses: list[int], write: int) -> Any:
        return run_trace((addresses, [write] * len(addresses)), refresh="none", record_commands=True)

    # A read leaves the read queue when its row is activated, at clock 1, or when it finds it open; the run has
    # 35 clocks to its last command.
    assert run([0], 0).queue_occupancy == pytest.approx({"read": 1 / 35, "write": 0})
    # Requests are taken one a clock, from clock 0.
    assert [run([64 * n for n in range(count)], 0).accepted["cycles"] for count in (1, 2, 9)] == [0, 1, 8]
    # Another row of the bank waits until it is activated: after tRTP and tRP of the first, clock 112 of 146.
    conflict = run([0, 1 << 20], 0)
    assert conflict.command_traces[0].clock.tolist() == [1, 35, 79, 112, 146]
    assert conflict.queue_occupancy == pytest.approx({"read": (1 + 111) / 146, "write": 0})
    assert run([0, 1 << 20], 1).queue_occupancy["write"] == pytest.approx((1 + 180) / 215)
    # Two channels with the same: the mean of a channel.
    both = run_trace(([0, 64], [0, 0]), channels=2, refresh="none")
    assert both.queue_occupancy == pytest.approx({"read": 1 / 35, "write": 0})
    written = run_trace(([0, 64], [1, 1]), channels=2, refresh="none")
    assert written.queue_occupancy["write"] == run([0], 1).queue_occupancy["write"] > 0


@pytest.mark.parametrize(("ranks", "channels"), [(1, 1), (2, 1), (1, 2), (2, 4)])
def test_figures_of_a_request_trace_follow_from_its_commands(ranks, channels):
    sets = (f"dimm.ranks={ranks}", f"host.channels={channels}", "dimm.subchannels=1", *SHEET_SETS)
    memory = Memory.of_hardware(load_hardware("trimoe", sets))
    random = np.random.default_rng(7)
    count = 4000
    write = (random.random(count) < 0.3).astype(np.int64)
    requests = Requests.of(random.integers(0, 1 << 13, count) * 64, write)
    result = run_requests(requests, memory, record_commands=True)
    timings, clock_ns = memory.device.timings, 1 / 2.4
    replays = [Replay([trace], result.cycles, timings) for trace in result.command_traces]
    together = Replay(result.command_traces, result.cycles, timings)
    assert len(result.command_traces) == channels
    assert (result.requests, result.reads, result.writes) == (count, count - write.sum(), write.sum())
    assert result.commands == dict(together.commands)
    # To the last beat of a read, or the last command.
    ends = []
    for trace in result.command_traces:
        reads = [
            clock + 40 + 8
            for clock, number in zip(trace.clock, trace.command, strict=True)
            if COMMANDS[number].name == "RD"
        ]
        ends.append(max(max(reads), int(trace.clock[-1])))
    assert result.cycles == max(ends)
    assert result.clock_ns == pytest.approx(clock_ns)
    assert result.time_ns == pytest.approx(max(ends) * clock_ns)
    moved = together.commands["RD"] + together.commands["WR"]
    assert result.bandwidth_gbps == pytest.approx(moved * 64 / (max(ends) * clock_ns))
    assert result.peak_bandwidth_gbps == pytest.approx(19.2 * channels)
    assert result.peak_fraction == pytest.approx(result.bandwidth_gbps / (19.2 * channels))
    assert result.reads_forwarded + result.writes_coalesced == count - moved
    assert together.commands["WR"] == result.writes - result.writes_coalesced
    assert (
        result.row_hits + result.row_misses + result.row_conflicts
        == count - result.reads_forwarded - result.writes_coalesced
    )
    assert sum(channel["requests"] for channel in result.per_channel) == count
    for channel, replay, end in zip(result.per_channel, replays, ends, strict=True):
        moved = replay.commands["RD"] + replay.commands["WR"]
        assert channel["cycles"] == end
        assert channel["bandwidth_gbps"] == pytest.approx(moved * 64 / (end * clock_ns))
    assert (result.accepted is None) == (channels > 1)
    if result.accepted is not None:
        assert result.accepted["cycles"] <= result.cycles
        before = result.command_traces[0].clock <= result.accepted["cycles"]
        kinds = Counter(COMMANDS[number].name for number in result.command_traces[0].command[before])
        assert result.accepted["commands"] == dict(kinds)
    rank_clocks = result.cycles * ranks * channels
    check_energy(result.energy_nj, together.energy(rank_clocks, clock_ns, 4, 32, 8 * clock_ns))


def test_accesses_that_close_their_row_move_data_as_well():
    random = np.random.default_rng(2)
    writes = (random.random(2000) < 0.4).astype(np.int64)
    # Under these rules a precharge waits longer than under the standard's, and many accesses close their row.
    rules = "reference"
    addresses = random.integers(0, 1 << 12, 2000) * 64
    result = run_trace((addresses, writes), row_policy="closed-cap", row_cap=1, rules=rules)
    plain = run_trace((np.arange(64) * 64, np.arange(64) % 2), record_commands=True, rules=rules)
    kinds = ("RD", "RDA", "WR", "WRA")
    reads, closing_reads, writes, closing_writes = (result.commands.get(kind, 0) for kind in kinds)
    assert min(closing_reads, closing_writes) > 100
    moved = reads + closing_reads + writes + closing_writes
    assert result.bandwidth_gbps == pytest.approx(moved * 64 / result.time_ns)
    each = {
        name: plain.energy_nj[name] / plain.commands[command]
        for name, command in (("read", "RD"), ("write", "WR"))
    }
    assert result.energy_nj["read"] == pytest.approx((reads + closing_reads) * each["read"])
    assert result.energy_nj["write"] == pytest.approx((writes + closing_writes) * each["write"])


def test_the_histogram_has_at_most_forty_bars_from_the_shortest_to_the_longest():
    # A miss of 1 + 40 + 34 + 8 clocks and a hit of 1 + 34 + 8: 40 clocks apart, 41 values.
    requests = dataclasses.replace(Requests.of([0, 64], [0, 0]), cycle=np.array([0, 500]))
    bars = run_trace(requests, refresh="none", overrides={"nRCD": 40}).read_latency_histogram
    edges = [(round(bar["from_ns"] * 2.4), round(bar["to_ns"] * 2.4), bar["reads"]) for bar in bars]
    assert edges[0] == (43, 45, 1)
    assert edges[-1] == (83, 85, 1)
    assert len(edges) == 21


def test_nothing_is_fast_forwarded_where_commands_are_recorded_and_a_share_where_they_are_not():
    number = np.arange(30_000)
    addresses = ((number // 8 // 64 * 8 + number % 8) * 64 + number // 8 % 64) * 64
    whole = run_trace((addresses, np.zeros_like(number)))
    assert 0.5 < whole.fast_forwarded < 1
    two = run_trace((addresses, np.zeros_like(number)), channels=2)
    assert 0 <= two.fast_forwarded < 1
    assert run_trace((addresses, np.zeros_like(number)), record_commands=True).fast_forwarded == 0


# ---- An expert ---------------------------------------------------------------------------------------------

MACHINES = {
    "trimoe": dict(lanes=8, tck_ns=1 / 2.4, burst_clocks=8, peak=8 * 19.2, gflops=256.0, chips=4, banks=32),
    "edge": dict(lanes=4, tck_ns=1 / 1.6, burst_clocks=4, peak=4 * 25.6, gflops=128.0, chips=8, banks=16),
    "cxl": dict(lanes=32, tck_ns=0.5, burst_clocks=8, peak=512.0, gflops=2048.0, chips=4, banks=32),
}


def lengths(result: Any, name: str) -> float:
    return sum(phase.end_ns - phase.start_ns for phase in result.phases if phase.name == name)


@pytest.mark.parametrize("tokens", [1, 5, 200])
@pytest.mark.parametrize(
    ("hw", "layout"),
    [
        ("trimoe", "localized"),
        ("trimoe", "sharded:3"),
        ("edge", "sharded:6"),
        ("edge", "localized"),
        ("cxl", "localized"),
    ],
)
def test_figures_of_an_expert_follow_from_its_commands(hw, layout, tokens):
    machine = MACHINES[hw]
    tokens = min(tokens, 9) if hw == "cxl" else tokens  # four at a time there
    dimms = int(layout.partition(":")[2] or 1)
    lanes, tck_ns = dimms * machine["lanes"], machine["tck_ns"]
    result = simulate_expert(hw, SMALL, tokens, layout, sets=SHEET_SETS, record_commands=True)
    timings = result.config["hardware"]["timings"]
    replay = Replay(result.command_traces, result.cycles + 1, timings)
    weights = 3 * 384 * 320
    reads = len(result.token_tiles)
    assert (result.dimms, result.lanes, len(result.command_traces)) == (dimms, lanes, lanes)
    assert sum(result.token_tiles) == result.tokens == tokens
    assert result.clock_ns == pytest.approx(tck_ns)
    assert result.time_ns == pytest.approx(result.cycles * tck_ns)
    last = max(phase.end_ns for phase in result.phases)
    assert 0 <= result.time_ns - last < tck_ns
    assert result.weight_bytes == weights * 2
    assert result.weight_reads == reads
    assert result.commands == dict(replay.commands)
    assert result.weight_bursts * reads == replay.commands["RD"]
    streamed = replay.last_data - 1
    assert result.bandwidth_gbps == pytest.approx(reads * weights * 2 / (streamed * tck_ns))
    assert result.peak_bandwidth_gbps == pytest.approx(dimms * machine["peak"])
    assert result.peak_fraction == pytest.approx(result.bandwidth_gbps / (dimms * machine["peak"]))
    assert result.gflops == pytest.approx(2 * weights * tokens / result.time_ns)
    assert result.peak_gflops == pytest.approx(dimms * machine["gflops"])
    assert result.bound == max(result.busy, key=lambda name: result.busy[name])
    assert all(0 <= share <= 1 for share in result.busy.values())
    # A lane waits for its first row and data; then there is data, or a reason for none.
    idle = sum(result.idle_ns.values()) / tck_ns
    begun = timings["nRCD"] + timings["nCL"]
    assert begun + np.mean(replay.busy) + idle == pytest.approx(np.mean(replay.ends))
    assert result.stall_ns == result.idle_ns["fifo"]
    rank_clocks = result.cycles * lanes
    burst_ns = machine["burst_clocks"] * tck_ns
    expected = replay.energy(rank_clocks, tck_ns, machine["chips"], machine["banks"], burst_ns)
    if hw != "cxl":
        # Inputs of all tokens to every DIMM and results from them, in bursts of 64 bytes over its data pins.
        bursts = sum(
            math.ceil(tile * 384 * 2 / 64) + tile * math.ceil(384 * 2 / 64) for tile in result.token_tiles
        )
        expected["host"] = dimms * bursts * expected["io"] / replay.commands["RD"]
        assert result.communication_bytes == dimms * tokens * 2 * 384 * 2
    check_energy(result.energy_nj, expected)
    assert result.energy_nj["ndp_fifo"] == pytest.approx(reads * weights * 2 * 1.875 / 1000)


@pytest.mark.parametrize(("hw", "buses", "burst_ns"), [("trimoe", 2, 8 / 2.4), ("edge", 1, 4 / 1.6)])
@pytest.mark.parametrize("tokens", [1, 7, 300])
def test_the_bus_to_the_host_and_the_multipliers_are_busy_for_what_they_carry_and_multiply(
    hw, buses, burst_ns, tokens
):
    result = simulate_expert(hw, SMALL, tokens)
    bursts_in = sum(math.ceil(math.ceil(tile * 384 * 2 / 64) / buses) for tile in result.token_tiles)
    bursts_out = sum(12 * math.ceil(tile / buses) for tile in result.token_tiles)
    assert result.busy["io"] * result.time_ns == pytest.approx((bursts_in + bursts_out) * burst_ns)
    # All multipliers work alike on an even share of the weights.
    peak = {"trimoe": 256, "edge": 128}[hw]
    assert result.busy["compute"] * result.time_ns == pytest.approx(
        2 * 3 * 384 * 320 * tokens / peak, rel=1e-3
    )
    # Nothing is multiplied while inputs are on their way, and behind the last sums.
    waits = lengths(result, "activations-in")
    ends = {
        name: [phase.end_ns for phase in result.phases if phase.name == name]
        for name in ("down", "result-out")
    }
    waits += sum(ends["result-out"]) - sum(ends["down"])
    assert result.communication_ns == pytest.approx(waits)


def test_the_link_and_the_arrays_are_busy_for_what_they_carry_and_multiply():
    for tokens in (1, 4):
        result = simulate_expert("cxl", SMALL, tokens)
        sent = tokens * 384 * 2
        wire = sent + math.ceil(sent / 64) * 21 + sent + tokens * 12 * 21
        assert result.busy["io"] * result.time_ns == pytest.approx(wire / 31.508)
        # Of the busiest lane: 80 and 48 tiles of 8 rows over 32 lanes are 3 and 2, of 384 and 320 inputs.
        assert result.busy["compute"] * result.time_ns == pytest.approx(3 * 384 + 2 * 320, rel=1e-3)
        waits = lengths(result, "activations-in")
        (down,), (out,) = (
            [one.end_ns for one in result.phases if one.name == name] for name in ("down", "result-out")
        )
        assert result.communication_ns == pytest.approx(waits + out - down)
        assert result.communication_bytes == 2 * sent
    # More tokens than rows: each tile of them on its own.
    result = simulate_expert("cxl", SMALL, 9)
    assert result.token_tiles == (3, 3, 3)


@pytest.mark.parametrize(("bits", "gate_up", "down"), [(16, 67, 4), (3, 13, 4)])
def test_arrays_take_no_less_than_their_steps_whatever_does_not_divide(bits, gate_up, down):
    # 8 rows of 67 weights are 1072 bytes in 17 bursts: 67 cycles, and not a part of a cycle less. Of 3 bits, 201
    # bits of a row are 13 words of 16, and 12 bits one, behind which four rows of sums leave in as many cycles.
    result = simulate_expert("cxl", Expert(67, 4), bits=bits, sets=["dram.refresh=none"])
    busy = result.busy["compute"] * result.time_ns
    assert gate_up + down <= busy + 1e-9 < gate_up + down + 1


class Reading(NamedTuple):
    read_latency: int
    burst: int


@kernel
def noted(reading, value, timed, credit, clock):
    note_idle(reading, value, timed, credit, clock)


@pytest.mark.parametrize(
    ("timed", "credit", "refresh", "refreshing", "full", "others"),
    [
        (88, 80, (0, 0), 0, 0, 30),
        (80, 118, (0, 0), 0, 30, 0),
        (80, 98, (0, 0), 0, 10, 20),
        (100, 110, (0, 0), 0, 10, 20),  # before 100 the bank was not ready either
        (105, 118, (90, 105), 15, 13, 2),
        (80, 80, (60, 95), 7, 0, 23),
        (80, 80, (95, 200), 23, 0, 7),
    ],
)
def test_a_bus_is_idle_for_a_refresh_then_for_what_takes_the_data_and_else_for_rows(
    timed, credit, refresh, refreshing, full, others
):
    """A read at clock 118; at 88 its data would have followed those before at once: 30 clocks have a reason."""
    value = np.zeros(state.COUNTERS, np.int64)
    value[state.DATA_END] = 100
    value[state.REFRESH_FROM], value[state.REFRESH_UNTIL] = refresh
    noted(Reading(20, 8), value, timed, credit, 118)
    names = state.IDLE_REFRESH, state.IDLE_CREDIT, state.IDLE_ROW
    assert [int(value[name]) for name in names] == [refreshing, full, others]
    for clock, end in ((88, 100), (118, -1)):
        value[:] = 0
        value[state.DATA_END] = end
        noted(Reading(20, 8), value, timed, credit, clock)
        assert not value[[*names]].any()


def test_memory_is_busy_except_while_full_fifos_hold_reads_back():
    for tokens in (1, 8):
        result = simulate_expert("trimoe", Expert(1024, 512), tokens, record_commands=True)
        replay = Replay(result.command_traces, 0, result.config["hardware"]["timings"])
        held = result.idle_ns["fifo"] / result.clock_ns  # of every lane: they are alike
        assert result.lanes_simulated == 1
        assert result.busy["memory"] == pytest.approx((replay.last_data - 1 - held) / result.cycles)


def test_of_unequal_lanes_the_one_that_is_held_back_least_says_how_busy_the_memory_is():
    # No refresh, and no row but the first of each bank group: what is neither data nor its beginning is the FIFO.
    sets = ["dram.refresh=none", "ndp.gemv.fifo_bursts=2"]
    result = simulate_expert("trimoe", Expert(67, 33), 40, sets=sets, record_commands=True)
    timings = result.config["hardware"]["timings"]
    replay = Replay(result.command_traces, 0, timings)
    begun = timings["nRCD"] + timings["nCL"]
    held = [end - begun - busy for end, busy in zip(replay.ends, replay.busy, strict=True)]
    assert len(set(held)) > 1
    assert result.idle_ns["rows"] < 8 * result.clock_ns
    streamed = max(replay.ends)
    assert result.busy["memory"] * result.cycles == pytest.approx(streamed - min(held), abs=8)
    assert max(held) - min(held) > 2 * 8


def test_the_peak_of_low_bits_is_that_of_the_slower_matrix_in_turn():
    # Cycles of a pass are as many as bits: half the bits, twice the products.
    assert simulate_expert("trimoe", SMALL, bits=8).peak_gflops == pytest.approx(512)
    assert simulate_expert("trimoe", SMALL, bits=4).peak_gflops == pytest.approx(1024)
    from ndpsim.dimm.layout import ExpertFormat

    mixed = simulate_expert("trimoe", SMALL, bits=ExpertFormat.of({"gate": 4, "up": 4, "down": 16}))
    assert mixed.peak_gflops == pytest.approx(3 / (1 / 1024 + 1 / 1024 + 1 / 256))
    arrays = simulate_expert("cxl", SMALL, bits=ExpertFormat.of({"gate": 4, "up": 4, "down": 8}))
    assert arrays.peak_gflops == pytest.approx(3 / (1 / 8192 + 1 / 8192 + 1 / 4096))


@pytest.mark.parametrize("hw", ["trimoe", "cxl", "beside the host"])
def test_hidden_values_are_activated_and_results_leave_from_the_first_that_is_known(hw):
    if hw == "beside the host":
        result: Any = simulate_contention("trimoe", SMALL, 3, host_gbps=2.0)
    else:
        result = simulate_expert(hw, SMALL, 3)
    of = {phase.name: phase for phase in result.phases}
    # The first rows are known after a small part of the time that all of them take.
    for first, every in (("activation", "gate-up"), ("result-out", "down")):
        whole = of[every].end_ns - of[every].start_ns
        assert 0 < of[first].start_ns - of[every].start_ns < 0.6 * whole
        assert of[first].end_ns > of[every].end_ns


def test_no_more_than_all_reads_are_fast_forwarded():
    # Tiles of one token, or of four, read the weights four times.
    long = Expert(2048, 768)
    tiled = simulate_expert("trimoe", long, 4, sets=["ndp.gemv.buffer_kib=6"])
    assert tiled.weight_reads == 4
    for result in (tiled, simulate_expert("cxl", long, 16), simulate_host_read("trimoe", long, "localized")):
        assert 0.26 < result.fast_forwarded <= 1


# ---- The host reads ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", ["localized", "striped", "sharded:3"])
@pytest.mark.parametrize(
    ("hw", "per_channel", "tck_ns", "chips"), [("trimoe", 2, 1 / 2.4, 4), ("edge", 1, 0.625, 8)]
)
def test_figures_of_a_read_by_the_host_follow_from_its_commands(hw, per_channel, tck_ns, chips, layout):
    result = simulate_host_read(hw, SMALL, layout, sets=SHEET_SETS, record_commands=True)
    hardware = result.config["hardware"]
    channels = {
        "localized": 1,
        "striped": hardware["host"]["channels"],
        "sharded:3": min(3, hardware["host"]["channels"]),
    }[layout]
    buses = channels * per_channel
    ranks = hardware["dimm"]["count"] // hardware["host"]["channels"] * 4
    replay = Replay(result.command_traces, result.cycles + 1, hardware["timings"])
    assert (result.channels, result.buses, result.ranks_per_bus) == (channels, buses, ranks)
    assert len(result.command_traces) == buses
    assert result.cycles == replay.last_data - 1
    assert result.clock_ns == pytest.approx(tck_ns)
    assert result.time_ns == pytest.approx(result.cycles * tck_ns)
    assert result.weight_bytes == 3 * 384 * 320 * 2
    assert result.weight_bursts == replay.commands["RD"]
    assert result.commands == dict(replay.commands)
    assert result.bandwidth_gbps == pytest.approx(result.weight_bytes / result.time_ns)
    peak = channels * {"trimoe": 38.4, "edge": 25.6}[hw]
    assert result.peak_bandwidth_gbps == pytest.approx(peak)
    assert result.peak_fraction == pytest.approx(result.bandwidth_gbps / peak)
    burst_ns = hardware["timings"]["nBL"] * tck_ns
    banks = {"trimoe": 32, "edge": 16}[hw]
    check_energy(
        result.energy_nj, replay.energy(result.cycles * ranks * buses, tck_ns, chips, banks, burst_ns)
    )
    idle = sum(result.idle_ns.values()) / tck_ns
    begun = hardware["timings"]["nRCD"] + hardware["timings"]["nCL"]
    assert begun + np.mean(replay.busy) + idle == pytest.approx(np.mean(replay.ends))


def test_why_a_bus_to_the_host_was_idle():
    quiet = simulate_host_read("trimoe", SMALL, "localized", sets=["dram.refresh=none"])
    assert quiet.idle_ns["refresh"] == 0 < quiet.idle_ns["rows"]
    often = simulate_host_read("trimoe", SMALL, "localized", sets=["dram.nREFI=3000"])
    refreshes = often.commands["REFab"] / (2 * 8)  # of a rank
    assert refreshes > 2
    assert often.idle_ns["refresh"] > 0.5 * refreshes * 986 / 2.4 > 5 * often.idle_ns["rows"]


def test_the_bus_with_most_ranks_says_how_many_there_are():
    result = simulate_host_read("edge", SMALL, "striped", sets=["dimm.count=5"])
    assert result.ranks_per_bus == 3 * 4  # three DIMMs on one channel, two on the other


# ---- A relayout --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("topology", ["ring", "groups"])
@pytest.mark.parametrize(
    ("source", "target"), [("localized", "striped"), ("localized", "sharded:4"), ("sharded:2", "localized")]
)
def test_figures_of_a_relayout_follow_from_its_commands(topology, source, target):
    sets = ("dimm.count=8", "host.channels=4", f"link.topology={topology}", "link.group_dimms=4", *SHEET_SETS)
    result = simulate_relayout(
        "trimoe", SMALL, 2, source, target, sets=(*sets, "dram.nREFI=4000"), record_commands=True
    )
    timings, tck_ns = result.config["hardware"]["timings"], 1 / 2.4
    traces = result.command_traces[0]
    replay = Replay(traces, result.cycles + 1, timings)
    assert len(traces) == 8 * 8
    assert result.commands == dict(replay.commands)
    weight_bytes = 2 * 3 * 384 * 320 * 2
    assert (result.experts, result.moved, result.waves) == (2, 2, 1)
    assert result.weight_bytes == result.read_bytes == result.written_bytes == weight_bytes
    assert result.sent_bytes + result.local_bytes == weight_bytes
    assert result.cycles == replay.last_data - 1
    assert result.time_ns == pytest.approx(result.cycles * tck_ns)
    assert result.bandwidth_gbps == pytest.approx(weight_bytes / result.time_ns)
    each = [Counter(COMMANDS[number].name for number in trace.command) for trace in traces]
    burst_ns = 8 * tck_ns
    bounds = result.bounds_ns
    assert bounds["source DRAM"] == pytest.approx(max(lane["RD"] for lane in each) * burst_ns)
    assert bounds["target DRAM"] == pytest.approx(max(lane["WR"] for lane in each) * burst_ns)
    assert bounds["DRAM"] == pytest.approx(max(lane["RD"] + lane["WR"] for lane in each) * burst_ns)
    assert bounds["links"] == pytest.approx(max(result.link_busy.values()) * result.time_ns)
    assert all(bound <= result.time_ns for bound in bounds.values())
    busiest = max(bounds, key=lambda name: bounds[name])
    if busiest == "links":
        assert result.bottleneck == f"link {max(result.link_busy, key=lambda name: result.link_busy[name])}"
    else:
        assert result.bottleneck == busiest
    assert result.dram_busy == pytest.approx(
        {
            "read": bounds["source DRAM"] / result.time_ns,
            "write": bounds["target DRAM"] / result.time_ns,
            "both": bounds["DRAM"] / result.time_ns,
        }
    )
    # Headers of 16 bytes, and a packet holds 256 bytes of payload at most.
    headers = (result.wire_bytes - result.sent_bytes) / 16
    assert headers == int(headers) >= result.sent_bytes / 256
    assert result.host_speedup == pytest.approx(result.host.time_ns / result.time_ns)
    assert result.host.bandwidth_gbps == pytest.approx(weight_bytes / result.host.time_ns)
    assert result.host.bus_busy == pytest.approx(result.host.bound_ns / result.host.time_ns)
    check_energy(result.energy_nj, replay.energy(result.cycles * 64, tck_ns, 4, 32, burst_ns))
    links = (
        sum(share for name, share in result.link_busy.items() if name.startswith("dimm"))
        * result.time_ns
        * 25
    )
    assert result.energy_nj["link"] == pytest.approx(links * 8 * 1.17 / 1000, rel=1e-4)
    channels = (
        sum(share for name, share in result.link_busy.items() if name.startswith("channel"))
        * result.time_ns
        * 38.4
    )
    assert ("host" in result.energy_nj) == (channels > 0)
    if channels:
        io = 4 * io_watts() * burst_ns
        assert result.energy_nj["host"] == pytest.approx(channels / 64 * io, rel=1e-2)
    # The curves hold every burst once, and stretches begin with the first command's data.
    width = np.diff([0, *result.curve_ns])
    assert result.curve_ns[-1] == pytest.approx(result.time_ns)
    assert width[:-1] == pytest.approx(
        np.full(len(width) - 1, width[0]), abs=tck_ns
    )  # each to the next clock
    assert 0 < width[-1] <= width[0] + tck_ns
    assert float(np.sum(width * result.read_gbps)) == pytest.approx(replay.commands["RD"] * 64)
    assert float(np.sum(width * result.written_gbps)) == pytest.approx(replay.commands["WR"] * 64)
    for name, command in (("read", "RD"), ("write", "WR")):
        stretches = {one.dimm: one for one in result.stretches if one.name == name}
        dimms = {lane // 8 for lane, kinds in enumerate(each) if kinds[command]}
        assert set(stretches) == dimms
        for dimm, stretch in stretches.items():
            clocks = np.concatenate(
                [
                    trace.clock[
                        np.isin(trace.command, [n for n, c in enumerate(COMMANDS) if c.name == command])
                    ]
                    for trace in traces[8 * dimm : 8 * dimm + 8]
                ]
            )
            if name == "read":  # data is in the buffer at an edge of its clock of 1 ns
                first, last = (
                    math.ceil(Fraction(int(clock) + 40 + 8) / Fraction(12, 5)) - tck_ns
                    for clock in (clocks.min(), clocks.max())
                )
                assert stretch.start_ns == pytest.approx(first)
                assert stretch.end_ns == pytest.approx(last)
            else:  # a write is activated and issued after it has arrived
                assert stretch.start_ns < (int(clocks.min()) - 1) * tck_ns
                assert stretch.end_ns < (int(clocks.max()) - 1) * tck_ns


def test_what_wires_carry_is_what_was_sent_and_nothing_that_stayed():
    sets = ("link.topology=full", "link.ports=15", "dram.refresh=none")
    result = simulate_relayout("trimoe", SMALL, 2, "localized", "striped", sets=sets, host=False)
    assert result.local_bytes > 0
    # Each packet passes one wire.
    carried = sum(result.link_busy.values()) * result.time_ns * 25
    assert result.wire_bytes == pytest.approx(carried)
    assert result.wire_bytes - result.sent_bytes >= 16 * math.ceil(result.sent_bytes / 256)


def test_what_passes_a_dimm_waits_in_its_transit_buffer():
    def transit(to: int) -> int:
        sets = ("dram.refresh=none", "link.topology=chain")
        return simulate_relayout(
            "trimoe", Expert(4, 4), 1, "localized", "localized", [0], [to], sets=sets, host=False
        ).transit_bytes

    assert transit(1) == 0
    assert transit(2) == transit(3) == 96 + 16


# ---- An expert beside the host -----------------------------------------------------------------------------


@pytest.fixture(scope="module", params=["host-first", "ndp-first", "slice"])
def beside(request: pytest.FixtureRequest) -> Any:
    return simulate_contention(
        "trimoe",
        SMALL,
        2,
        host_gbps=12.0,
        pattern="random",
        arbitration=request.param,
        sets=SHEET_SETS,
        record_commands=True,
    )


def split_by_owner(
    result: Any, last_row: int | None = None
) -> list[tuple[list[tuple[int, bool]], list[tuple[int, bool]]]]:
    """Of each lane, (clock, is a read) of the columns of the weights and of the host's, whose rows lie behind."""
    if last_row is None:
        last_row = math.ceil(3 * 384 * 320 * 2 / 64 / 8 / (64 * 32)) - 1
    found = []
    for trace in result.command_traces:
        ours: tuple[list[tuple[int, bool]], list[tuple[int, bool]]] = ([], [])
        open_row = {}
        for clock, number, _, group, bank, row, column in trace.columns().T.tolist():
            if COMMANDS[number].name == "ACT":
                open_row[group, bank] = row
            elif column >= 0:
                ours[open_row[group, bank] > last_row].append((clock, COMMANDS[number].name == "RD"))
        found.append(ours)
    return found


def test_figures_of_both_sides_follow_from_the_commands(beside):
    tck_ns = 1 / 2.4
    cycles = round(beside.ndp_time_ns / tck_ns)
    assert beside.ndp_time_ns == pytest.approx(cycles * tck_ns)
    alone = simulate_expert("trimoe", SMALL, 2)
    assert (beside.ndp_alone_ns, beside.ndp_alone_gbps) == (alone.time_ns, alone.bandwidth_gbps)
    assert beside.ndp_slowdown == pytest.approx(beside.ndp_time_ns / alone.time_ns)
    assert beside.clock_ns == pytest.approx(tck_ns)
    assert (beside.lanes, len(beside.by_lane)) == (8, 8)
    weights = 3 * 384 * 320 * 2
    lanes = split_by_owner(beside)
    streamed = max(clock for ndp, _ in lanes for clock, _ in ndp) + 40 + 8 - 1
    assert beside.ndp_gbps == pytest.approx(weights / (streamed * tck_ns))
    assert beside.lanes_peak_gbps == pytest.approx(153.6)
    assert beside.ndp_peak_fraction == pytest.approx(beside.ndp_gbps / 153.6)
    assert beside.bus_peak_gbps == pytest.approx(38.4)
    assert beside.host_offered_gbps == 12.0
    in_time = []
    for (ndp, host), of_lane in zip(lanes, beside.by_lane, strict=True):
        assert of_lane["ndp_bytes"] == 64 * len(ndp)
        in_time.append(sum(clock <= cycles for clock, _ in host))
        assert of_lane["host_bytes"] == pytest.approx(64 * in_time[-1], abs=64)
    assert beside.lanes_fraction == pytest.approx(
        sum(sum(lane.values()) for lane in beside.by_lane) / beside.ndp_time_ns / 153.6
    )
    reads, writes = (
        sum(is_read == kind for _, host in lanes for _, is_read in host) for kind in (True, False)
    )
    assert beside.commands["RD"] == reads + weights // 64
    assert beside.commands["WR"] == writes
    assert (
        beside.rows["ndp"]["hits"] + beside.rows["ndp"]["misses"] + beside.rows["ndp"]["conflicts"]
        == weights // 64
    )
    carried = beside.host_gbps * beside.ndp_time_ns / 64
    assert carried == pytest.approx(12.0 * beside.ndp_time_ns / 64, rel=0.1)
    assert carried == pytest.approx(round(carried), abs=1e-6)
    assert beside.host_peak_fraction == pytest.approx(beside.host_gbps / 38.4)
    asked_for = 12.0 * beside.ndp_time_ns / 64
    waiting = {"host-first": 3, "slice": 30, "ndp-first": 100}[beside.config["arbitration"]]
    assert asked_for - waiting < beside.host_requests <= asked_for + 1
    assert beside.host_slowdown == pytest.approx(beside.host_time_ns / beside.host_alone_ns)
    assert beside.host_alone_gbps == pytest.approx(beside.host_requests * 64 / beside.host_alone_ns)
    width = np.diff([0.0, *beside.curve_ns])
    assert beside.curve_ns[-1] == pytest.approx(beside.ndp_time_ns)
    assert float(np.sum(width * beside.ndp_curve_gbps)) == pytest.approx(weights)
    assert float(np.sum(width * beside.host_curve_gbps)) == pytest.approx(
        beside.host_gbps * beside.ndp_time_ns
    )


def test_the_energy_of_a_shared_dimm_follows_from_all_its_commands(beside):
    tck_ns = 1 / 2.4
    timings = beside.config["hardware"]["timings"]
    # Up to the clock at which the last of the host's data has left.
    ends = [int(trace.clock[-1]) for trace in beside.command_traces]
    replay = Replay(beside.command_traces, max(ends), timings)
    expected = replay.energy(0, tck_ns, 4, 32, 8 * tck_ns)
    for name in ("activate", "read", "write", "refresh", "io"):
        assert beside.energy_nj[name] == pytest.approx(expected[name], rel=1e-9), name
    closed = 4 * WATTS["2N"] * 8 * max(beside.ndp_time_ns, beside.host_time_ns)
    opened = 4 * open_bank_watts(32) * replay.open_clocks * tck_ns
    assert beside.energy_nj["background"] == pytest.approx(closed + opened, rel=0.02)
    alone = simulate_expert("trimoe", SMALL, 2, sets=SHEET_SETS)
    for name, nj in alone.energy_nj.items():
        if name.startswith("ndp_"):
            assert beside.energy_nj[name] == nj
    transfers = beside.host_requests  # each over the bus, as is what the expert itself sends
    each = 4 * io_watts() * 8 * tck_ns
    assert beside.energy_nj["host"] == pytest.approx(alone.energy_nj["host"] + transfers * each, rel=0.02)


@pytest.mark.parametrize("tokens", [4, 7, 11])
def test_the_hosts_latencies_are_those_of_each_read(tmp_path, tokens):
    # Each read finds another row of its bank open, and waits longer than the one before; none waits to be taken.
    trace = tmp_path / "rows.trace"
    # RoBaRaCoCh from below: a bit of the sub-channel, 6 of the column, 2 of the rank, 3 and 2 of group and bank.
    trace.write_text(
        "".join(f"LD {((row << 5 | 3 << 3 | 5) << 2 | 1) << 7 << 6:#x}\n" for row in range(1, 41))
    )
    options: dict[str, Any] = dict(read_share=1.0, pattern=str(trace), record_commands=True)
    result = simulate_contention(
        "trimoe", Expert(4, 4), tokens, host_gbps=5.0, sets=("dram.refresh=none",), **options
    )
    reads = [clock for ndp, host in split_by_owner(result, last_row=0) for clock, _ in host]
    every = 64 / 5.0 * 2.4  # clocks from one to the next
    latencies = sorted(clock + 40 + 8 - math.floor(n * every) for n, clock in enumerate(sorted(reads)))
    assert len(latencies) == len(set(latencies)) == result.host_requests > 15
    for figures in (result.host_latency_ns, result.host_alone_latency_ns):
        clocks = {name: ns * 2.4 for name, ns in figures.items()}
        assert clocks["mean"] == pytest.approx(sum(latencies) / len(latencies))
        for name, value in (
            ("p50", rank_of(latencies, 50)),
            ("p99", rank_of(latencies, 99)),
            ("max", latencies[-1]),
        ):
            assert clocks[name] == pytest.approx(value), name
    # To the last beat, from clock 0, as `ndpsim dram` counts.
    end = (max(reads) + 40 + 8) / 2.4
    assert (result.host_time_ns, result.host_alone_ns) == (pytest.approx(end), pytest.approx(end))


def test_weights_that_are_read_again_count_again():
    sets = ("dram.refresh=none", "ndp.gemv.buffer_kib=1")
    result = simulate_contention("trimoe", Expert(4, 4), 65, host_gbps=0, sets=sets, record_commands=True)
    assert result.token_tiles == (33, 32)
    last = max(int(trace.clock[-1]) for trace in result.command_traces if len(trace))
    assert result.ndp_gbps == pytest.approx(2 * 96 / ((last + 40 + 8 - 1) / 2.4))


def test_the_hosts_requests_lie_within_the_dimm_wherever_their_addresses_do(tmp_path):
    capacity = 128 << 30
    found = []
    for beyond in (0, capacity, 5 * capacity):
        trace = tmp_path / f"{beyond}.trace"
        trace.write_text("".join(f"LD {beyond + capacity - 64 * n:#x}\n" for n in range(1, 40)))
        result = simulate_contention(
            "trimoe", Expert(4, 4), host_gbps=8.0, pattern=str(trace), record_commands=True
        )
        device = load_hardware("trimoe").lane_device()
        assert max(int(trace.row.max()) for trace in result.command_traces if len(trace)) < device.rows
        found.append([trace.columns().tobytes() for trace in result.command_traces])
    assert found[0] == found[1] == found[2]
