"""LPDDR6 by JESD209-6: the commands of Ramulator 2.1 as corrected, and rules and values by hand.

`test_memories` has the cases of Ramulator 2.1 itself.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml

from builders.command_lines import named
from builders.one_channel import run_on
from mistakes import refused
from ndpsim.audit import check
from ndpsim.base.options.dram import ControllerOptions
from ndpsim.dram.controllers.split_activation import CHOICES
from ndpsim.dram.energy import find_currents
from ndpsim.dram.engines import FastController, ScanController, compare_channels
from ndpsim.dram.fast.state import chunks_needed
from ndpsim.dram.spec import Device, lower, resolve
from ndpsim.dram.spec.standards.lpddr6 import AS_CORRECTED
from ndpsim.dram.state import make_policy
from ndpsim.dram.traces import CommandTrace, Requests, read_commands, read_requests, write_commands
from ndpsim.simulate import Memory, TraceResult, run_requests
from test_memories import COUNTERS, OF_LPDDR5, text_until

CASE = Path(__file__).parents[1] / "validation" / "ramulator2" / "corrected" / "lpddr6_r2_mixed_wr30"
LPDDR6 = "LPDDR6", "LPDDR6_16Gb_x12", "LPDDR6_10667_BL24"


def device_like(device: Device, **fields: object) -> Device:
    """The device with other fields of its standard."""
    return replace(device, standard=replace(device.standard, **fields))


def run(requests: Requests, ranks: int = 1, **options: object) -> tuple[TraceResult, Device]:
    memory = Memory.named(*LPDDR6, ranks, options=ControllerOptions(**options))
    return run_requests(requests, memory, record_commands=True), memory.device


def random_requests(count: int, writes: float = 0.0, bits: int = 26) -> Requests:
    rng = np.random.default_rng(5)
    return Requests.of(rng.integers(0, 1 << bits, count) << 5, (rng.random(count) < writes).astype(np.int64))


def test_commands_and_counters_equal_the_corrected_reference():
    facts = yaml.safe_load(CASE.with_suffix(".yaml").read_text())
    options = ControllerOptions(refresh_control="reference")
    memory = Memory.named(*LPDDR6, 2, mapper=facts["mapper"], options=options)
    timings = memory.device.timings
    assert {name: timings[name] for name in facts["resolved_timing"]} == facts["resolved_timing"]
    memory = Memory(device_like(memory.device, **AS_CORRECTED), memory.options, memory.mapper)
    result = run_requests(read_requests(CASE.with_suffix(".trace.gz")), memory, record_commands=True)
    keys = "cycles", "commands", *COUNTERS, *OF_LPDDR5
    assert [result.accepted[key] for key in keys] == [facts[key] for key in keys]
    assert hashlib.sha256(text_until(result, memory, facts["cycles"])).hexdigest() == facts["sha256"]


# ---- Both controllers, and the checker


@pytest.mark.parametrize("seed", range(24))
def test_both_controllers_agree_and_are_legal_whatever_the_choices(seed):
    rng = np.random.default_rng(seed)
    overrides = {"nAAD": int(rng.choice([3, 5, 8])), "nCAS": int(rng.choice([1, 2, 3, 5]))}
    device = resolve(*LPDDR6, int(rng.choice([1, 2, 4])), overrides)
    # The fast controller needs the first; a late second half is not legal, see below.
    free = [one for one in CHOICES if one not in (CHOICES[0], "second-half-in-time")]
    chosen = (CHOICES[0], "second-half-in-time", *(one for one in free if rng.random() < 0.5))
    device = device_like(device, choices=chosen)
    options = ControllerOptions(
        scheduler=str(rng.choice(["FRFCFS", "FRFCFS-RowHit"])),
        refresh=str(rng.choice(["none", "all-bank", "staggered"])),
        wck=str(rng.choice(["need-sync", "need-sync", "always-on"])),
    )
    policy = make_policy(options, device.standard.controller, chosen)
    is_fast = chunks_needed(lower(device), policy, False) > 0
    assert is_fast == ("no-refresh-between-halves" in chosen)
    if not is_fast:
        return
    count, rows = 1200, int(rng.choice([1, 2, 6]))
    sizes = (device.ranks, 4, int(rng.choice([1, 4])), rows, device.bursts_per_row)
    places = [rng.integers(0, size, count) for size in sizes]
    write = (rng.random(count) < rng.choice([0, 0.3])).astype(np.int64)
    requests = [*places, write, np.ravel_multi_index(places, sizes)]
    if rng.random() < 0.6:
        requests.append(np.cumsum(rng.integers(0, rng.choice([2, 30, 90]), count)))
    (scan, one), (fast, other) = (
        run_on(make, device, options, requests) for make in (ScanController, FastController)
    )
    assert one == other
    assert compare_channels(scan, fast) == []
    assert check(one, device, options.refresh).ok


def halves_apart(trace: CommandTrace) -> np.ndarray:
    columns = trace.to_arrays()
    first, second = (columns["clock"][columns["command"] == name] for name in ("ACT1", "ACT2"))
    return second - first


def test_second_halves_are_in_time_where_a_command_takes_two_clocks():
    # With the reference's control ACT2 goes as late as allowed.
    options = ControllerOptions(refresh="none", refresh_control="reference")
    requests = random_requests(3000)
    for rules, latest in (("standard", 5), ("reference", 6)):
        memory = Memory.named(*LPDDR6, 2, {"nAAD": 5}, options=options, rules=rules)
        trace = run_requests(requests, memory, record_commands=True).command_traces[0]
        assert halves_apart(trace).max() == (4 if rules == "standard" else latest)
        late = {one.rule for one in check(trace, memory.device, "none").violations}
        assert late == (set() if rules == "standard" else {"second half"})


def test_commands_are_two_clocks_apart_and_refreshes_leave_no_half_behind():
    result, device = run(random_requests(8000, 0.3), ranks=2)
    trace = result.command_traces[0]
    report = check(trace, device)
    assert report.ok
    assert report.tolerated_overlaps == 0
    assert np.diff(trace.clock).min() == 2
    assert min(result.commands["REFab"], result.commands["CAS"]) > 4


def test_random_reads_are_slower_with_refresh_and_faster_with_ranks():
    requests = random_requests(6000)
    by_ranks = [
        [run(requests, ranks, refresh=mode)[0].bandwidth_gbps for mode in ("none", "all-bank")]
        for ranks in (1, 2)
    ]
    assert all(without > refreshed for without, refreshed in by_ranks)
    assert by_ranks[0][1] < by_ranks[1][1]


# ---- Rules by hand


def rules_broken(device: Device, *commands: tuple) -> list[str]:
    trace = named(*commands, names=device.standard.names)
    return [one.rule for one in check(trace, device, "none").violations]


def opened(clock: int, group: int, bank: int = 0, rank: int = 0) -> list[tuple]:
    """A row, opened at a clock by its second half."""
    place = (rank, group, bank, 5, -1)
    return [(clock - 2, "ACT1", *place), (clock, "ACT2", *place)]


def test_rows_count_from_the_second_half():
    # JESD209-6, Tables 383, 391 and 414, at 375 ps: 18 and 8 ns to RD and WR, 20 ns to PRE, tACU + 18 ns after it.
    device = resolve(*LPDDR6)
    row, cas = opened(10, 0), ("CAS", 0, 0, 0, -1, -1)
    for name, least, rule in (("RD_S", 48, "tRCDr"), ("WR_S", 22, "tRCDw")):
        for clock, broken in ((10 + least, []), (9 + least, [rule])):
            assert rules_broken(device, *row, (clock - 2, *cas), (clock, name, 0, 0, 0, 5, 0)) == broken
    precharge = ("PREpb", 0, 0, 0, -1, -1)
    assert rules_broken(device, *row, (64, *precharge)) == []
    assert rules_broken(device, *row, (63, *precharge)) == ["tRAS"]
    assert rules_broken(device, *row, (64, *precharge), *opened(171, 0)) == []
    assert rules_broken(device, *row, (64, *precharge), *opened(170, 0)) == ["tRC", "tRPpb"]
    assert rules_broken(device, *row, *opened(20, 1)) == []
    assert rules_broken(device, *row, *opened(19, 1)) == ["tRRD"]
    # Figure 111: REFab waits for tRPab after PREab, and for tRAS + tRPab after an activation.
    closed = [*row, (64, "PREab", 0, -1, -1, -1, -1)]
    assert rules_broken(device, *closed, (179, "REFab", 0, -1, -1, -1, -1)) == []
    assert "tRPab" in rules_broken(device, *closed, (178, "REFab", 0, -1, -1, -1, -1))


def test_a_data_clock_of_each_rank_needs_a_cas_two_clocks_before_the_access():
    device = resolve(*LPDDR6, 2)
    rows = [*opened(10, 0), *opened(30, 0, rank=1)]
    cas, read = ("CAS", 0, 0, 0, -1, -1), ("RD_S", 0, 0, 0, 5, 0)
    assert rules_broken(device, *rows, (98, *cas), (100, *read)) == []
    assert rules_broken(device, *rows, (99, *cas), (100, *read)) == ["command bus", "tCAS"]
    # It runs for nRL + nBL_min + nWCKPST, 65 clocks, after a read; nWL in place of nRL after a write.
    assert rules_broken(device, *rows, (98, *cas), (100, *read), (164, *read)) == []
    assert rules_broken(device, *rows, (98, *cas), (100, *read), (165, *read)) == ["preparation"]
    # A read of another rank: nBL_min + nCS after it, with a CAS of its own.
    other, late = ("CAS", 1, 0, 0, -1, -1), ("RD_S", 1, 0, 0, 5, 0)
    assert rules_broken(device, *rows, (98, *cas), (100, *read), (106, *other), (108, *late)) == []
    assert rules_broken(device, *rows, (98, *cas), (100, *read), (105, *other), (107, *late)) == ["tCS"]
    assert rules_broken(device, *rows, (98, *cas), (100, *read), (110, *late)) == ["preparation"]


def long_bursts(*later: tuple[int, str, int]) -> list[tuple]:
    """A RD_L in bank group 0 at clock 102, with all rows open and CAS before; `later`: clock, name, group."""
    rows = [command for group in range(4) for command in opened(3 + 12 * group, group)]
    first = (100, "CAS", 0, 0, 0, -1, -1), (102, "RD_L", 0, 0, 0, 5, 2)
    return [*rows, *first, *((clock, name, 0, group, 0, 5, 3) for clock, name, group in later)]


def test_a_burst_lies_between_the_halves_of_a_long_one():
    # Data of RD_L: six clocks, six of room, six (JESD209-6, Table 381: BL/n_min of BL48 is 18).
    def broken(*later: tuple[int, str, int]) -> list[str]:
        return rules_broken(resolve(*LPDDR6), *long_bursts(*later))

    assert broken() == []
    assert broken((108, "RD_S", 1)) == []
    assert broken((108, "RD_L", 1)) == []
    assert broken((108, "RD_L", 1), (120, "RD_S", 2)) == ["data bus"]
    assert broken((108, "RD_L", 1), (126, "RD_S", 2)) == []
    assert broken((114, "RD_S", 1)) == ["data bus"]
    assert broken((109, "RD_S", 1)) == ["data bus"]
    assert broken((120, "RD_S", 1)) == []
    # Within the bank group: tCCD_L of 22 (Table 382).
    assert broken((124, "RD_S", 0)) == []
    assert broken((123, "RD_S", 0)) == ["tCCD_L"]


def test_long_bursts_hold_rows_and_the_data_clock_longer():
    device, precharge = resolve(*LPDDR6), ("PREpb", 0, 0, 0, -1, -1)
    # nRTP_L is 26, nRTP 14 (Tables 269 to 272).
    assert rules_broken(device, *long_bursts(), (128, *precharge)) == []
    assert rules_broken(device, *long_bursts(), (127, *precharge)) == ["tRTP"]
    # The data clock runs for nRL + nBL_min_L + nWCKPST, 77 clocks.
    assert rules_broken(device, *long_bursts((178, "RD_S", 1))) == []
    assert rules_broken(device, *long_bursts((179, "RD_S", 1))) == ["preparation"]
    # A write after it waits nRTW_S_L, 60 clocks.
    assert rules_broken(device, *long_bursts((162, "WR_L", 1))) == []
    assert rules_broken(device, *long_bursts((161, "WR_L", 1))) == ["tRTW_S"]


# ---- The page


def test_values_of_jesd209_6():
    # Tables 381 to 391, 414 and 302, at 375 ps.
    device = resolve(*LPDDR6)
    known = dict(
        nBL_min=6, nBL_max=12, nBL_min_L=18, nBL_max_L=24, nACU=59, nRAS=54, nRP=59 + 48, nRPab=59 + 56
    )
    known |= dict(nRC=54 + 107, nRRD=10, nFAW=40, nRCDr=48, nRCDw=22, nWTRS=17, nWTRL=32, nWTP=32)
    known |= dict(nRTW_S=48, nRTW_L=54, nRTW_S_L=60, nRTW_L_L=66, nCCDL_L=22, nRFC=1014, nREFI=10416)
    assert {name: device.timings[name] for name in known} == known
    # Twelve pins at 10667 MT/s, of which a ninth carries metadata; 16 Gb of data.
    assert device.peak_gbps == pytest.approx(12 * 10.667 / 8 * 8 / 9)
    assert (device.burst_bytes, device.bursts_per_row, device.capacity_bytes) == (32, 64, 2 << 30)
    # Sums follow what they are made of; reads to writes are rounded up to even.
    changed = resolve(*LPDDR6, overrides={"nACU": 60, "nRL": 57}).timings
    assert (changed["nRP"], changed["nRPab"], changed["nRC"]) == (108, 116, 162)
    assert (changed["nRTW_S"], changed["nRTW_L"]) == (50, 56)


def test_what_lpddr6_lacks_is_one_line():
    with refused("unknown-name refresh"):
        Memory.named(*LPDDR6, options=ControllerOptions(refresh="per-bank"))
    with refused("unknown-name timing"):
        resolve(LPDDR6[0], LPDDR6[1], "LPDDR6_6400")
    assert find_currents(resolve(*LPDDR6)) is None


def test_command_traces_have_a_line_for_cas(tmp_path):
    result, device = run(random_requests(500))
    write_commands(tmp_path / "c.csv", result.command_traces[0], device=device)
    lines = (tmp_path / "c.csv").read_text().splitlines()
    assert lines[0] == "clock,command,rank,bankgroup,bank,row,column"
    (cas,) = {tuple(line.split(",")[5:]) for line in lines if ",CAS," in line}
    assert cas == ("-1", "-1")
    assert read_commands(tmp_path / "c.csv", device) == result.command_traces[0]
