"""LPDDR5 and LPDDR5X by JESD209-5C: the commands of Ramulator 2.1 as corrected, and rules and values by hand."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from dataclasses import replace
from itertools import pairwise
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
from ndpsim.dram.engines import FastController, ScanController, compare_channels
from ndpsim.dram.fast.state import chunks_needed
from ndpsim.dram.spec import Device, lower, resolve
from ndpsim.dram.spec.standards.lpddr5 import AS_CORRECTED
from ndpsim.dram.state import make_policy
from ndpsim.dram.traces import CommandTrace, Requests, read_requests
from ndpsim.simulate import Memory, TraceResult, run_requests

CORRECTED = Path(__file__).parents[1] / "validation" / "ramulator2" / "corrected"

#: Fields of the page that differ where the corrected page keeps to the reference: it refreshes one bank of the
#: channel each tREFIpb, data of ranks may meet, and one data clock serves all ranks.
SETTINGS = {
    "lpddr5_5500_r2_mixed_wr30": AS_CORRECTED,
    "lpddr5_6400_r1_hot_closedcap_wckon": AS_CORRECTED,
    "lpddr5_6400_r1_onegroup_wr50": {},
    "lpddr5_6400_r1_random_perbank": AS_CORRECTED,
    "lpddr5_6400_r1_stream": {},
}
COUNTERS = ("row_hits", "row_misses", "row_conflicts", "reads_forwarded", "writes_coalesced")
COUNTERS += ("cas_issued", "cas_skipped", "act2_deadline_forced", "act2_deferred")
LPDDR5 = ("LPDDR5", "LPDDR5_16Gb_x16", "LPDDR5_6400")


def memory_like(memory: Memory, **fields: object) -> Memory:
    """The memory with other fields of its standard."""
    device = replace(memory.device, standard=replace(memory.device.standard, **fields))
    return Memory(device, memory.options, memory.mapper)


def random_requests(count: int, writes: float = 0.0) -> Requests:
    rng = np.random.default_rng(5)
    address = rng.integers(0, 1 << 25, count) << 5
    return Requests.of(address, (rng.random(count) < writes).astype(np.int64))


def run(requests: Requests, *names: str, ranks: int = 1, **options: object) -> tuple[TraceResult, Device]:
    memory = Memory.named(*names, ranks, options=ControllerOptions(**options))
    return run_requests(requests, memory, record_commands=True), memory.device


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.long] if "closedcap" in name else []) for name in SETTINGS],
)
def test_commands_and_counters_equal_the_corrected_reference(name):
    facts = yaml.safe_load((CORRECTED / f"{name}.yaml").read_text())
    options = {key: facts[key] for key in ("row_policy", "row_cap", "refresh", "wck") if key in facts}
    options["refresh_control"] = "reference"
    place = (facts[key] for key in ("standard", "org", "timing", "ranks", "overrides", "mapper"))
    memory = memory_like(Memory.named(*place, options=ControllerOptions(**options)), **SETTINGS[name])
    timings = memory.device.timings
    assert {timing: timings[timing] for timing in facts["resolved_timing"]} == facts["resolved_timing"]
    result = run_requests(read_requests(CORRECTED / f"{name}.trace.gz"), memory, record_commands=True)
    accepted = result.accepted
    assert [accepted[key] for key in ("cycles", "commands", *COUNTERS)] == [
        facts[key] for key in ("cycles", "commands", *COUNTERS)
    ]
    assert hashlib.sha256(text_until(result, facts["cycles"])).hexdigest() == facts["sha256"]


def text_until(result: TraceResult, clock: int) -> bytes:
    """The commands as the reference's CSV, up to a clock."""
    header = ["clock", "command", "rank", "bankgroup", "bank", "row", "column"]
    columns = result.command_traces[0].to_arrays()
    lines = zip(*(columns[name].tolist() for name in header), strict=True)
    rows = [header, *(line for line in lines if line[0] <= clock)]
    return "".join(",".join(map(str, row)) + "\n" for row in rows).encode()


# ---- Distances of what is run, measured in the commands


def distances(trace: CommandTrace) -> dict[str, int]:
    """The least distances in the commands of a rank, by name: of two commands, of the same bank or bank group."""
    least: dict[str, int] = defaultdict(lambda: 1 << 30)
    last: dict[tuple, int] = {}
    window: list[int] = []
    columns = trace.to_arrays()
    for clock, name, group, bank in zip(
        *(columns[key].tolist() for key in ("clock", "command", "bankgroup", "bank")), strict=True
    ):
        for (earlier, other_group, other_bank), at in last.items():
            same_bank = (group, bank) == (other_group, other_bank)
            where = "bank" if same_bank else "group" if group == other_group else "rank"
            key = f"{earlier} {name} {where}"
            least[key] = min(least[key], clock - at)
        if name in ("ACT1", "REFpb"):
            if len(window) >= 4:
                least["four"] = min(least["four"], clock - window[-4])
            window.append(clock)
        last[name, group, bank] = clock
    return least


def test_rows_count_from_the_second_half_of_an_activation():
    # JESD209-5C, Tables 340, 381 and 240 at 800 MHz: 18, 42, 60 and 5 ns; tFAW of 20 ns counts first halves.
    requests = random_requests(6000, 0.3)
    result, _ = run(requests, *LPDDR5, refresh="per-bank")
    least = distances(result.command_traces[0])
    assert least["ACT2 RD bank"] == 15
    assert least["ACT2 WR bank"] >= 15
    assert least["ACT2 PREpb bank"] >= 34
    assert least["ACT2 ACT2 bank"] >= 49
    assert min(least["ACT2 ACT2 group"], least["ACT2 ACT2 rank"]) >= 4
    assert least["four"] >= 16
    assert 15 <= least["PREpb ACT2 bank"] <= 23
    assert 1 <= least["ACT1 ACT2 bank"] <= 8
    # Table 237: tRRD to a refresh of another bank, tpbR2act of 7.5 ns after it; no refresh between the halves.
    assert min(least["ACT2 REFpb group"], least["ACT2 REFpb rank"]) >= 4
    assert min(least["REFpb ACT2 group"], least["REFpb ACT2 rank"]) >= 6
    # Table 340: WL + BL/n_min + 1 + nWR; Tables 347 and 350: RL + BL/n_max + 2 - WL in a bank group.
    assert least["WR PREpb bank"] == 9 + 2 + 1 + 28
    assert least["RD PREpb bank"] == 6
    assert min(least["RD WR bank"], least["RD WR group"]) >= 17 + 4 + 2 - 9
    assert least["RD WR rank"] >= 17 + 2 + 2 - 9


def rules_broken(device: Device, *commands: tuple) -> list[str]:
    trace = named(*commands, names=device.standard.names)
    return [one.rule for one in check(trace, device, "none").violations]


def opened(clock: int, group: int, bank: int, rank: int = 0) -> list[tuple]:
    """A row, opened at a clock by its second half."""
    place = (rank, group, bank, 5, -1)
    return [(clock - 1, "ACT1", *place), (clock, "ACT2", *place)]


def test_the_checker_counts_rows_from_the_second_half():
    device = resolve(*LPDDR5)
    read, refresh = ("RD", 0, 0, 0, 5, 3), ("REFpb", 0, 1, 0, -1, -1)

    def after(clock: int, *command: object) -> list[str]:
        return rules_broken(device, *opened(8, 0, 0), (8 + clock, *command))

    cas = (*opened(8, 0, 0), (21, "CAS_RD", 0, 0, 0, -1, -1))
    assert rules_broken(device, *cas, (22, *read)) == ["tRCD"]
    assert rules_broken(device, *opened(8, 0, 0), (22, "CAS_RD", 0, 0, 0, -1, -1), (23, *read)) == []
    assert after(33, "PREpb", 0, 0, 0, -1, -1) == ["tRAS"]
    assert after(34, "PREpb", 0, 0, 0, -1, -1) == []
    assert after(3, *refresh) == ["tRRD_S"]
    assert after(4, *refresh) == []
    # From the refresh of another bank to a second half, whose first half may come before that.
    refreshed = (1, *refresh)
    assert rules_broken(device, refreshed, *opened(6, 0, 0)) == ["tpbR2act"]
    assert rules_broken(device, refreshed, *opened(7, 0, 0)) == []
    # A refresh counts in the window of four.
    three = [command for n in range(3) for command in opened(7 + 4 * n, n, 1)]
    for first, broken in ((16, ["tFAW"]), (17, [])):
        fourth = (first, "ACT1", 0, 3, 1, 5, -1), (19, "ACT2", 0, 3, 1, 5, -1)
        assert rules_broken(device, (1, "REFpb", 0, 0, 0, -1, -1), *three, *fourth) == broken


def test_the_checker_holds_writes_back_behind_reads_of_their_bank_group():
    device = resolve(*LPDDR5)
    rows = [*opened(2, 0, 0), *opened(6, 0, 1), *opened(10, 1, 0)]
    read = [(30, "CAS_RD", 0, 0, 0, -1, -1), (31, "RD", 0, 0, 0, 5, 0)]
    assert rules_broken(device, *rows, *read, (44, "WR", 0, 0, 1, 5, 0)) == ["tRTW_L"]
    assert rules_broken(device, *rows, *read, (45, "WR", 0, 0, 1, 5, 0)) == []
    assert rules_broken(device, *rows, *read, (43, "WR", 0, 1, 0, 5, 0)) == []
    # The write's precharge.
    write = [*read, (45, "WR", 0, 0, 1, 5, 0)]
    assert rules_broken(device, *rows, *write, (84, "PREpb", 0, 0, 1, -1, -1)) == ["tWR"]
    assert rules_broken(device, *rows, *write, (85, "PREpb", 0, 0, 1, -1, -1)) == []


def test_data_of_two_ranks_are_apart():
    # Writes of two ranks in turn: nBL_min + nCS, where the reference has no rule.
    device = resolve(*LPDDR5, 2)
    rows = [*opened(2, 0, 0), *opened(6, 0, 0, rank=1)]
    wck = [(30 + 5 * rank, "CAS_WR", rank, 0, 0, -1, -1) for rank in (0, 1)]
    writes = [wck[0], (31, "WR", 0, 0, 0, 5, 0)]
    for clock, broken in ((34, ["tCS"]), (35, [])):
        late = [(clock - 1, *wck[1][1:]), (clock, "WR", 1, 0, 0, 5, 0)]
        assert rules_broken(device, *rows, *writes, *late) == broken


# ---- Refreshes of pairs


def test_refreshes_take_pairs_of_banks_and_eight_of_them_stand_for_one_of_all():
    requests = random_requests(12_000)
    result, device = run(requests, *LPDDR5, ranks=2, refresh="per-bank")
    trace = result.command_traces[0]
    assert check(trace, device, "per-bank").ok
    columns = trace.to_arrays()
    refreshes = columns["command"] == "REFpb"
    assert set(columns["bankgroup"][refreshes]) == {0, 1}
    # Each of two ranks gets eight in every tREFI of 3,124 clocks, 390 apart.
    # The last of each rank may still wait.
    assert 0 <= 2 * (int(trace.clock[-1]) // 390) - refreshes.sum() <= 2
    # No bank of a pair opens until tRFCpb, 112 clocks, has passed.
    busy: dict[tuple[int, int, int], int] = {}
    for clock, name, rank, group, bank in zip(
        *(columns[key].tolist() for key in ("clock", "command", "rank", "bankgroup", "bank")), strict=True
    ):
        if name == "REFpb":
            for other in (group, group + 2):
                busy[rank, other, bank] = clock + 112
        elif name == "ACT2":
            assert clock >= busy.get((rank, group, bank), 0)


def test_the_checker_judges_both_banks_of_a_pair():
    device = resolve(*LPDDR5)
    refresh = (60, "REFpb", 0, 1, 2, -1, -1)
    for group in (1, 3):
        assert rules_broken(device, *opened(2, group, 2), refresh) == ["row state"]
        closed = (45, "PREpb", 0, group, 2, -1, -1)
        assert rules_broken(device, *opened(2, group, 2), closed, (59, *refresh[1:])) == ["tRPpb"]
        assert rules_broken(device, *opened(2, group, 2), closed, refresh) == []
        assert rules_broken(device, refresh, *opened(171, group, 2)) == ["tRFCpb"]
        assert rules_broken(device, refresh, *opened(172, group, 2)) == []
    assert rules_broken(device, refresh, *opened(66, 0, 2)) == []
    # Without the refreshes of bank groups 1 and 3, those banks are late; each pair counts for both of its banks.
    interval = device.timings["nREFIpb"]
    due = [(1 + n * interval, "REFpb", 0, n % 8 // 4, n % 4, -1, -1) for n in range(8, 96)]
    every, half = named(*due, names=device.standard.names), [one for one in due if one[3] == 0]
    assert check(every, device, "per-bank").ok
    late = check(named(*half, names=device.standard.names), device, "per-bank")
    assert {one.rule for one in late.violations} == {"refresh debt"}
    assert late.count == 8


# ---- Choices of the controller


def test_the_second_half_at_once_opens_rows_sooner():
    requests = random_requests(5000)
    memory = Memory.named(*LPDDR5, options=ControllerOptions(refresh_control="reference"))
    at_once = (*memory.device.standard.choices, "second-half-at-once")
    late, soon = (
        run_requests(requests, memory_like(memory, choices=choices), record_commands=True)
        for choices in (memory.device.standard.choices, at_once)
    )
    trace = soon.command_traces[0].to_arrays()
    first, second = (trace["clock"][trace["command"] == name] for name in ("ACT1", "ACT2"))
    assert (second - first <= 2).all()
    assert late.cycles > soon.cycles


def test_a_read_is_announced_before_it_is_ready():
    requests = Requests.of(np.array([0]), np.array([0]))
    memory = Memory.named(*LPDDR5, options=ControllerOptions(refresh="none"))
    for choices, clocks in ((memory.device.standard.choices, (1, 2, 16, 17)), (CHOICES[:1], (1, 2, 17, 18))):
        result = run_requests(requests, memory_like(memory, choices=choices), record_commands=True)
        columns = result.command_traces[0].to_arrays()
        assert columns["command"].tolist() == ["ACT1", "ACT2", "CAS_RD", "RD"]
        assert tuple(columns["clock"].tolist()) == clocks


@pytest.mark.parametrize("seed", range(24))
def test_both_controllers_agree_whatever_the_choices(seed):
    rng = np.random.default_rng(seed)
    device = resolve(*LPDDR5, int(rng.choice([1, 2, 4])), {"nAAD": int(rng.choice([2, 3, 8]))})
    # The fast controller needs the first; all others are free.
    chosen = tuple(one for one in CHOICES if one == CHOICES[0] or rng.random() < 0.5)
    fields = AS_CORRECTED if rng.random() < 0.4 else {}
    device = replace(device, standard=replace(device.standard, **fields, choices=chosen))
    refresh = str(rng.choice(["none", "all-bank", "per-bank"]))
    options = ControllerOptions(
        scheduler=str(rng.choice(["FRFCFS", "FRFCFS-RowHit"])),
        refresh=refresh,
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
    assert fields or check(one, device, refresh).ok


# ---- Presets


def test_values_of_jesd209_5c():
    # Tables 225, 240, 340 and 381, x16, bank groups: ns of LPDDR5 at a clock of 1,453 and of 1,250 ps.
    ns = dict(
        nRCD=18, nRP=18, nRPab=21, nRAS=42, nWR=34, nWTRS=6.25, nWTRL=12, nRRDS=5, nFAW=20, nPBR2ACT=7.5
    )
    ns |= dict(nPBR2PBR=90, nRFC=380, nRFCpb=190)
    for timing, tck_ps in (("LPDDR5_5500", 1453), ("LPDDR5_6400", 1250)):
        device = resolve("LPDDR5", "LPDDR5_32Gb_x16", timing)
        for one, time in ns.items():
            assert device.timings[one] == -(-time * 1000 // tck_ps), one
        assert device.timings["nRC"] == device.timings["nRAS"] + device.timings["nRP"]
        assert device.timings["nRTP"] == 2 + 4
        assert device.timings["nREFI"] == 3_906_000 // tck_ps
        assert device.timings["nREFIpb"] == 488_000 // tck_ps
        assert device.capacity_bytes == 4 << 30
    with refused("unsupported timing") as caught:
        resolve("LPDDR5", "LPDDR5_16Gb_x16", "LPDDR5_5500", rules="reference")
    assert "LPDDR5_5500" in str(caught.value)
    with refused("unsupported org") as caught:
        resolve("LPDDR5", "LPDDR5_32Gb_x16", "LPDDR5_6400", rules="reference")
    assert "LPDDR5_32Gb_x16" in str(caught.value)


def test_a_grade_without_a_source_is_refused_with_the_reason():
    with refused("unsupported timing") as caught:
        resolve("LPDDR5X", "LPDDR5X_16Gb_x16", "LPDDR5X_9600")
    assert "LPDDR5X_9600: no public source of its read and write latency" in str(caught.value)


GRADES = ["LPDDR5_5500", "LPDDR5_6400", "LPDDR5X_7500", "LPDDR5X_8533"]


def test_random_reads_are_faster_with_the_grade_and_slower_with_refresh():
    requests = random_requests(6000)

    def gbps(grade: str, refresh: str) -> float:
        standard = grade.split("_", maxsplit=1)[0]
        result, _ = run(requests, standard, f"{standard}_16Gb_x16", grade, refresh=refresh)
        return result.bandwidth_gbps

    free = [gbps(grade, "none") for grade in GRADES]
    assert free == sorted(free)
    for grade, without in zip(GRADES, free, strict=True):
        assert gbps(grade, "all-bank") <= gbps(grade, "per-bank") < without
    assert all(one < other for one, other in pairwise(free))
