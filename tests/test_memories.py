"""LPDDR, HBM and GDDR against reference command traces of Ramulator 2.1 (validation/ramulator2/memories)."""

from __future__ import annotations

import csv
import hashlib
import io
import math
import re
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import yaml

import ndpsim
from builders.command_lines import named
from builders.one_channel import run_on
from mistakes import refused
from ndpsim.audit import check
from ndpsim.base.errors import InputError
from ndpsim.base.options.dram import ControllerOptions
from ndpsim.config import load_hardware
from ndpsim.dram.engines import FastController, ScanController, compare_channels
from ndpsim.dram.spec import Device, resolve
from ndpsim.dram.traces import CommandTrace, Requests, read_commands, read_requests, write_commands
from ndpsim.report import text
from ndpsim.simulate import Memory, TraceResult, run_requests, simulate_expert
from ndpsim.simulate.lane import check_refresh
from ndpsim.studies import ramulator

REFERENCE = Path(__file__).parents[1] / "validation" / "ramulator2" / "memories"
CASES = sorted(REFERENCE.glob("*.yaml"))
RUN = [case for case in CASES if case.stem.startswith(("gddr", "hbm", "lpddr"))]

COUNTERS = ("row_hits", "row_misses", "row_conflicts", "reads_forwarded", "writes_coalesced")
OF_LPDDR5 = ("cas_issued", "cas_skipped", "act2_deadline_forced", "act2_deferred")
COLUMNS = {
    4: ["clock", "command", "rank", "bankgroup", "bank", "row", "column"],
    5: ["clock", "command", "pseudochannel", "stack", "bankgroup", "bank", "row", "column"],
}


def memory_of(facts: dict, rules: str = "reference") -> Memory:
    """The memory of a case."""
    names = ("scheduler", "row_policy", "row_cap", "refresh", "read_buffer", "write_buffer", "wck", "rck")
    options = ControllerOptions(**{name: facts[name] for name in names if name in facts})
    place = (facts[name] for name in ("standard", "org", "timing", "ranks", "overrides", "mapper"))
    return Memory.named(*place, options=options, rules=rules)


def run(case: Path, exact_check: bool = False) -> tuple[dict, TraceResult, Memory]:
    facts = yaml.safe_load(case.read_text())
    memory = memory_of(facts)
    requests = read_requests(case.with_suffix("").with_suffix(".trace.gz"))
    return facts, run_requests(requests, memory, record_commands=True, exact_check=exact_check), memory


def text_until(result: TraceResult, memory: Memory, clock: int) -> bytes:
    """The commands as the reference's CSV, up to a clock."""
    columns = result.command_traces[0].to_arrays()
    header = COLUMNS[len(memory.device.standard.levels)]
    groups = columns["bankgroup"]
    of_stack = memory.device.bankgroups // memory.device.stacks
    columns["pseudochannel"] = columns["rank"]
    columns["stack"] = np.where(groups < 0, -1, groups // of_stack)
    columns["bankgroup"] = np.where(groups < 0, -1, groups % of_stack)
    table = io.StringIO()
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow(header)
    for line in zip(*(columns[name].tolist() for name in header), strict=True):
        if line[0] <= clock:
            writer.writerow(line)
    return table.getvalue().encode()


def commands_of(device: Device, places: list[tuple[int, int, int]], row: int, write: int) -> CommandTrace:
    """The commands for requests to bank 0 of (rank, stack, bank group), one after the other."""
    rank, stack, group = np.array(places).T
    number = np.arange(len(places))
    groups, none = stack * (device.bankgroups // device.stacks) + group, np.zeros_like(number)
    requests = [rank, groups, none, none + row, number, none + write, number]
    return run_on(ScanController, device, ControllerOptions(refresh="none"), requests)[1]


def test_there_are_reference_cases():
    assert len(RUN) == 9 + 8 + 9 + 7 + 12 + 8


#: Rows that close early: only these tests compile them for HBM3 and LPDDR5. Others do for GDDR6 and DDR.
COMPILED_ANEW = ("hbm3_8hi_mixed_closedcap", "lpddr5_r2_mixed_closedcap")
REFERENCES = [
    pytest.param(case, marks=[pytest.mark.long] if case.stem in COMPILED_ANEW else [], id=case.stem)
    for case in RUN
]


@pytest.mark.parametrize("case", REFERENCES)
def test_commands_and_counters_equal_the_reference(case):
    facts, result, memory = run(case)
    accepted = result.accepted
    assert accepted["cycles"] == facts["cycles"]
    for counter in COUNTERS + OF_LPDDR5 * ("wck" in facts):
        assert accepted[counter] == facts[counter], counter
    assert accepted["commands"] == facts["commands"]
    commands = text_until(result, memory, facts["cycles"])
    assert hashlib.sha256(commands).hexdigest() == facts["sha256"]


@pytest.mark.skipif(find_spec("ramulator") is None, reason="Ramulator is not installed")
@pytest.mark.parametrize(
    "name", ["gddr6_mixed_closedcap", "hbm3_16hi_mixed_overrides", "lpddr5_r2_random_overrides"]
)
def test_ramulator_itself_issues_these_commands(name):
    facts = yaml.safe_load((REFERENCE / f"{name}.yaml").read_text())
    compared = ramulator.compare(read_requests(REFERENCE / f"{name}.trace.gz"), memory_of(facts))
    assert compared.first_difference is None
    assert ("cas_issued" in compared.counters) == name.startswith("lpddr5")
    assert compared.commands == sum(facts["commands"].values())


def test_ramulator_is_given_all_timings_that_overrides_change():
    overrides = {"nACU": 70, "nRL": 60, "nRTW_S": 30}
    device = resolve("LPDDR6", "LPDDR6_16Gb_x12", "LPDDR6_10667_BL24", 1, overrides, "reference")
    sums = {"nRP": 118, "nRPab": 126, "nRC": 180, "nRTW_L": 51, "nRTW_S_L": 57, "nRTW_L_L": 63}
    assert ramulator.changed_timings(device) == overrides | sums


@pytest.mark.skipif(find_spec("ramulator") is None, reason="Ramulator is not installed")
def test_ramulator_itself_follows_overrides_of_which_others_are_sums():
    facts = yaml.safe_load((REFERENCE / "lpddr6_r2_mixed_wr30.yaml").read_text())
    memory = memory_of(facts | {"overrides": {"nACU": 45, "nRL": 78}})
    requests = read_requests(REFERENCE / "lpddr6_r2_mixed_wr30.trace.gz")
    assert ramulator.compare(requests, memory).first_difference is None


@pytest.mark.skipif(find_spec("ramulator") is None, reason="Ramulator is not installed")
@pytest.mark.parametrize(
    ("timing", "overrides"),
    [("DDR5_5200AN", {}), ("DDR5_4800AN", {"nRFCsb": 200})],
    ids=["preset", "override"],
)
def test_ramulator_is_not_asked_for_what_its_page_lacks(timing, overrides):
    memory = Memory.named("DDR5", "DDR5_16Gb_x8", timing, 1, overrides, rules="reference")
    with refused("unsupported compare ramulator"):
        ramulator.compare(Requests.of([0], [0]), memory)


@pytest.mark.parametrize("case", RUN, ids=lambda case: case.stem)
def test_timings_and_sizes_are_those_of_the_reference(case):
    facts = yaml.safe_load(case.read_text())
    device = memory_of(facts).device
    assert {name: device.timings[name] for name in facts["resolved_timing"]} == facts["resolved_timing"]
    levels = facts["levels"]
    sizes = {
        "bankgroup": device.bankgroups // device.stacks,
        "bank": device.banks_per_group,
        "row": device.rows,
        "column": device.bursts_per_row,
        "rank": device.ranks,
        "pseudochannel": device.ranks,
        "stack": device.stacks,
    }
    assert {name: sizes[name] for name in levels} == levels
    assert device.burst_bytes == facts["burst_bytes"]
    assert device.standard.ticks_per_clock == facts["ticks_per_clock"]


SMALL = [
    ("GDDR6", "GDDR6_8Gb_x16", "GDDR6_14000_1250mV_double"),
    ("LPDDR5", "LPDDR5_8Gb_x16", "LPDDR5_6400"),
    ("HBM3", "HBM3_8Gb_8hi", "HBM3_6400Mbps"),
    ("LPDDR5X", "LPDDR5X_32Gb_x16", "LPDDR5X_8533"),
    ("HBM3", "HBM3_32Gb_16hi", "HBM3_6400Mbps"),
    ("GDDR7", "GDDR7_16Gb_x8", "GDDR7_28000_PAM3"),
    ("LPDDR6", "LPDDR6_16Gb_x12", "LPDDR6_10667_BL24"),
    ("HBM4", "HBM4_32Gb_16Hi", "HBM4_8000Mbps"),
    ("HBM4", "HBM4_32Gb_4Hi", "HBM4_8000Mbps"),
]


def knows_bank_refresh(device: Device) -> bool:
    """Whether the refresh of a bank has an interval, which GDDR6 of the reference lacks."""
    return any(one.name == "REFpb" and one.interval for one in device.standard.commands)


SHORT = {
    "nREFI": [900, 1500],
    "nRFC": [60, 168],
    "nRFCab": [60, 211],
    "nREFIpb": [130, 391],
    "nFAW": [16, 60],
}
SHORT |= {"nCCDR": [3, 9], "nPPD": [1, 5], "nRREFD": [8, 30], "nRPD": [2, 25], "nRTPSB": [4, 20]}
SHORT |= {
    "nAAD": [1, 2, 3, 8],
    "nWCKPST": [1, 40],
    "nCAS": [1, 2, 5],
    "nRRDL": [4, 20],
    "nRTP": [8, 40],
    "nRFCpb": [40, 90],
}


@pytest.mark.parametrize("seed", range(80))
def test_both_controllers_agree_on_random_channels(seed):
    row_policies = ["open", "closed-cap"] if seed % len(SMALL) == 0 else ["open"]
    assert_controllers_agree(seed, row_policies, [1, 5, 32])


@pytest.mark.long  # each row policy and each length of a queue is compiled anew for each standard
@pytest.mark.parametrize("seed", range(80))
def test_both_controllers_agree_on_random_channels_of_every_kind(seed):
    assert_controllers_agree(seed, ["open", "closed-cap"], [1, 5, 32, 130])


def assert_controllers_agree(seed, row_policies, slots):
    """Both controllers issue the same commands, on a channel that is drawn with these row policies and queues."""
    rng = np.random.default_rng(seed)
    preset = SMALL[seed % len(SMALL)]
    pick = lambda values: values[rng.integers(len(values))]  # noqa: E731
    rules = pick(["standard", "reference"])
    known = resolve(*preset, rules=rules).timings
    overrides = {name: pick(values) for name, values in SHORT.items() if name in known and rng.random() < 0.6}
    ranks = pick([1, 2, 4]) if preset[0].startswith("LPDDR") else 1
    device = resolve(*preset, ranks, overrides, rules)
    options = ControllerOptions(
        scheduler=pick(["FRFCFS", "FRFCFS-RowHit"]),
        row_policy=pick(row_policies),
        row_cap=pick([1, 2, 4]),
        refresh=pick(["none", "all-bank", "staggered"] + ["per-bank"] * knows_bank_refresh(device)),
        read_buffer=pick(slots),
        write_buffer=pick([1, 8, 32]),
        wck=pick(["need-sync", "need-sync", "always-on"]),
        refresh_control=pick([None, "own-bank", "reference"]),
    )
    try:
        check_refresh(device, options.refresh)
    except InputError:  # refreshes would pile up; users are refused such an interval
        overrides.pop("nREFI", None)
        device = resolve(*preset, ranks, overrides, rules)
    count, rows = 1500, pick([1, 2, 6])
    sizes = (device.ranks, device.bankgroups, pick([1, device.banks_per_group]), rows, device.bursts_per_row)
    places = [rng.integers(0, size, count) for size in sizes]
    write = (rng.random(count) < pick([0, 0.3, 0.7])).astype(np.int64)
    address = np.ravel_multi_index(places, sizes)
    cycle = np.cumsum(rng.integers(0, pick([1, 30, 90]), count)) if rng.random() < 0.6 else None
    requests = [*places, write, address, *([] if cycle is None else [cycle])]
    (scan, one), (fast, other) = (
        run_on(make, device, options, requests) for make in (ScanController, FastController)
    )
    assert one == other
    assert compare_channels(scan, fast) == []


def test_stacks_of_a_pseudo_channel_bind_each_other_and_not_those_of_the_other():
    device = resolve("HBM3", "HBM3_8Gb_8hi", "HBM3_6400Mbps", overrides={"nCCDR": 9, "nCCDS": 3})
    place = {"row": 0, "write": 0}
    # Pseudo-channel, stack and bank group of reads whose rows are open, and the ticks between them by hand.
    for one, other, ticks in (
        ((0, 0, 0), (0, 0, 1), 2 * 3),  # the same stack: nCCDS
        ((0, 0, 0), (0, 1, 0), 2 * 9),  # the other: nCCDR
        ((0, 0, 0), (1, 1, 0), 4),  # the other pseudo-channel: the row bus, 3 ticks an ACT, and rising edges
        ((0, 0, 0), (0, 0, 0), 2 * 4),  # the same bank group: nCCDL
    ):
        trace = commands_of(device, [one, other] * 8, **place)
        reads = trace.take(np.flatnonzero(trace.to_arrays()["command"] == "RD"))
        assert (reads.clock % 2 == 1).all()
        node = reads.rank * device.bankgroups + reads.bankgroup
        apart = np.diff(reads.clock)[(np.diff(node) != 0) == (one != other)]
        assert apart.min() == ticks, (one, other, reads)


def test_rows_close_on_falling_edges_and_all_else_issues_on_rising_ones():
    _, result, _ = run(REFERENCE / "hbm3_16hi_random_norefresh.yaml")
    trace = result.command_traces[0]
    names = trace.to_arrays()["command"]
    falling = names[trace.clock % 2 == 0]
    assert set(falling) == {"PREpb"}
    assert 0.1 < len(falling) / (names == "PREpb").sum() < 0.9
    _, count = np.unique(trace.clock, return_counts=True)
    assert count.max() == 2


@pytest.mark.long  # rows that close early are compiled anew for two buses
def test_closed_rows_and_writes_do_not_lock_hbm3():
    # The reference stops at request 2,463: an active request whose row was closed is never activated again.
    rng = np.random.default_rng(7)
    memory = Memory.named(
        "HBM3", "HBM3_4Gb", "HBM3_6400Mbps", options=ControllerOptions(row_policy="closed-cap", row_cap=2)
    )
    address = (rng.integers(0, 16, 6000) << 20 | rng.integers(0, 64, 6000) << 5) % memory.capacity_bytes
    requests = Requests.of(address, (rng.random(6000) < 0.3).astype(np.int64))
    result = run_requests(requests, memory, record_commands=True)
    moved = sum(result.commands.get(name, 0) for name in ("RD", "RDA", "WR", "WRA"))
    assert moved + result.reads_forwarded + result.writes_coalesced == 6000


# ---- The checker


JUDGED = [
    "gddr6_mixed_closedcap",
    "hbm3_16hi_mixed_wr30_perbank",
    "lpddr5_r2_mixed_wr30_perbank",
    "lpddr5_r2_hot_wr50_rowhit",
]


@pytest.mark.parametrize("rules", ["standard", "reference"])
@pytest.mark.parametrize("name", JUDGED)
def test_what_is_run_is_legal(name, rules):
    facts = yaml.safe_load((REFERENCE / f"{name}.yaml").read_text())
    if rules == "standard" and name.startswith("gddr6"):
        # No source states tRFC of a device of 32 Gb.
        facts["overrides"] = {"tRFCab": "350ns", "tRFCpb": "175ns", **facts["overrides"]}
    memory = memory_of(facts, rules)
    result = run_requests(read_requests(REFERENCE / f"{name}.trace.gz"), memory, record_commands=True)
    # The reference refreshes a bank of two ranks every 15.6 us instead of 3.9.
    is_late = rules == "reference" and name == "lpddr5_r2_mixed_wr30_perbank"
    report = check(result.command_traces[0], memory.device, facts["refresh"])
    assert {one.rule for one in report.violations} == ({"refresh debt"} if is_late else set())
    assert (report.tolerated_overlaps > 0) == (rules == "reference" and name.startswith("lpddr5"))


@pytest.mark.parametrize("rules", ["standard", "reference"])
@pytest.mark.parametrize("timing", ["LPDDR5X_7500", "LPDDR5X_8533"])
def test_what_lpddr5x_runs_is_legal_by_either_controller(timing, rules):
    rng = np.random.default_rng(11)
    options = ControllerOptions(refresh="all-bank")
    memory = Memory.named("LPDDR5X", "LPDDR5X_32Gb_x16", timing, 2, options=options, rules=rules)
    address = rng.integers(0, 1 << 12, 20000) << 5 | rng.integers(0, 4, 20000) << 28
    requests = Requests.of(address, (rng.random(20000) < 0.3).astype(np.int64))
    result = run_requests(requests, memory, record_commands=True, exact_check=True)
    report = check(result.command_traces[0], memory.device, "all-bank")
    assert report.ok
    assert min(result.commands["REFab"], result.commands["CAS_RD"]) > 4
    assert (report.tolerated_overlaps > 0) == (rules == "reference")


@pytest.mark.parametrize(("rate", "tck_ps", "wr"), [(7500, 1067, 32), (8533, 938, 37)])
def test_lpddr5x_has_the_times_of_its_standard(rate, tck_ps, wr):
    # Nanoseconds of JESD209-5B; a register of the device holds nWR, by the same standard.
    ns = dict(
        nRCD=18, nRP=18, nRPab=21, nRAS=42, nRC=60, nWR=34, nWTRS=6.25, nWTRL=12, nRRDS=3.75, nRRDL=3.75
    )
    ns |= dict(nFAW=15, nPBR2ACT=7.5, nPBR2PBR=90)
    for org, rfc, rfcpb in (("LPDDR5X_16Gb_x16", 280, 140), ("LPDDR5X_32Gb_x16", 380, 190)):
        device = resolve("LPDDR5X", org, f"LPDDR5X_{rate}")
        for name, time in (ns | dict(nRFC=rfc, nRFCpb=rfcpb)).items():
            assert device.timings[name] == math.ceil(time * 1000 / tck_ps), name
        assert device.timings["nRTP"] == 2 + math.ceil((7500 - 2 * tck_ps) / tck_ps)
        assert device.timings["nREFI"] == 3_906_000 // tck_ps  # the longest that is allowed
        assert device.timings["nWR"] == wr
        assert device.peak_gbps == pytest.approx(2 * rate / 1000, rel=1e-3)
        assert device.capacity_bytes == int(org.split("_")[1][:-2]) << 27


def rules_broken(device: Device, *commands: tuple) -> list[str]:
    """What commands break, each (clock, name, then rank, bank group, bank, row and column as far as not 0)."""
    trace = named(*commands, names=device.standard.names)
    return [one.rule for one in check(trace, device, "none").violations]


def test_halves_of_an_activation_belong_together_and_come_in_time():
    device = resolve("LPDDR5", "LPDDR5_16Gb_x16", "LPDDR5_6400")
    first, second = ("ACT1", 0, 0, 0, 5, -1), ("ACT2", 0, 0, 0, 5, -1)
    announced = (24, "CAS_RD", 0, 0, 0, -1, -1), (25, "RD", 0, 0, 0, 5, 3)  # nRCD is 15
    assert rules_broken(device, (1, *first), (9, *second), *announced) == []  # nAAD is 8
    assert rules_broken(device, (1, *first), (10, *second), *announced[:1]) == ["second half"]
    assert rules_broken(device, (1, *first), (2, "ACT2", 0, 0, 0, 6, -1)) == ["row state"]
    assert rules_broken(device, (1, *second)) == ["row state"]
    assert rules_broken(device, (1, *first), *announced)[-1:] == ["row state"]
    assert rules_broken(device, (1, *first), (40, "PREpb", 0, 0, 0, -1, -1)) == ["row state"]
    assert rules_broken(device, (1, *first), (2, *second), (60, *first)) == ["row state"]


def test_a_read_is_announced_unless_the_data_clock_runs():
    device = resolve("LPDDR5", "LPDDR5_16Gb_x16", "LPDDR5_6400", ranks=2)
    opened = [
        (clock + half, f"ACT{half}", rank, 0, 0, 5, -1) for clock, rank in ((1, 0), (8, 1)) for half in (1, 2)
    ]
    cas, read = ("CAS_RD", 0, 0, 0, -1, -1), ("RD", 0, 0, 0, 5, 3)
    first = [*opened, (29, *cas), (30, *read)]
    assert rules_broken(device, *first) == []
    # The clock runs for nCL + nBL_max + nWCKPST, 22 clocks.
    assert rules_broken(device, *first, (51, *read)) == []
    assert rules_broken(device, *first, (52, *read)) == ["preparation"]
    assert rules_broken(device, *first, (52, *cas), (53, *read)) == []
    # Each rank has its own; in the reference there is one.
    other = (40, "RD", 1, 0, 0, 5, 3)
    assert rules_broken(device, *first, other) == ["preparation"]
    assert (
        rules_broken(resolve("LPDDR5", "LPDDR5_16Gb_x16", "LPDDR5_6400", 2, None, "reference"), *first, other)
        == []
    )
    # A clock that always runs needs no command.
    assert rules_broken(device, *opened, (30, *read), (200, *read)) == []


def test_only_what_closes_rows_issues_on_a_falling_edge():
    device = resolve("HBM3", "HBM3_4Gb", "HBM3_6400Mbps")
    opened, read = (1, "ACT", 0, 0, 0, 5, -1), ("RD", 0, 0, 0, 5, 3)
    closed = ("PREpb", 0, 0, 0, -1, -1)
    assert rules_broken(device, opened, (65, *read), (100, *closed)) == []
    assert rules_broken(device, opened, (66, *read)) == ["clock edge"]
    # Data of the pseudo-channels are on pins of their own.
    other = (5, "ACT", 1, 0, 0, 5, -1)
    assert rules_broken(device, opened, other, (69, *read), (71, "RD", 1, 0, 0, 5, 3)) == []
    assert rules_broken(device, opened, other, (69, *read), (70, "RD", 1, 0, 0, 5, 3)) == [
        "command bus",
        "clock edge",
    ]
    assert device.peak_gbps == pytest.approx(51.2)


def test_files_have_the_levels_of_the_standard(tmp_path):
    device = resolve("HBM3", "HBM3_16Gb_8hi", "HBM3_6400Mbps")
    lines = [(1, "ACT", 1, 6, 2, 7, -1), (65, "RD", 1, 6, 2, 7, 3), (300, "PREab", 1, -1, -1, -1, -1)]
    trace = named(*lines, names=device.standard.names)
    write_commands(tmp_path / "c.csv", trace, device=device)
    text = (tmp_path / "c.csv").read_text().splitlines()
    assert text == [
        ",".join(COLUMNS[5]),
        "1,ACT,1,1,2,2,7,-1",
        "65,RD,1,1,2,2,7,3",
        "300,PREab,1,-1,-1,-1,-1,-1",
    ]
    assert read_commands(tmp_path / "c.csv", device) == trace
    with refused("form c.csv:1"):
        read_commands(tmp_path / "c.csv")
    # A stack that is not there is a violation, not another bank.
    (tmp_path / "c.csv").write_text("\n".join([text[0], "1,ACT,1,2,2,2,7,-1", "9,ACT,1,0,4,2,7,-1"]))
    report = check(read_commands(tmp_path / "c.csv", device), device)
    assert [one.rule for one in report.violations] == ["coordinates", "coordinates"]


@pytest.mark.parametrize("standard", ["GDDR6", "HBM3"])
def test_a_memory_without_ranks_refuses_more_than_one(standard):
    org, timing = (
        ("GDDR6_8Gb_x8", "GDDR6_14000_1350mV_quad") if standard == "GDDR6" else ("HBM3_4Gb", "HBM3_6400Mbps")
    )
    with refused("range ranks"):
        resolve(standard, org, timing, 2)


def test_results_show_the_ranks_that_were_given_and_pseudo_channels(capsys):
    memory = Memory.named("HBM3", "HBM3_4Gb", "HBM3_6400Mbps")
    result = run_requests(Requests.of(np.arange(64) * 32, np.zeros(64, dtype=np.int8)), memory)
    assert (result.config["ranks"], result.config["pseudochannels"]) == (1, 2)
    text.print_result(result)
    assert "1 channel, ranks 1, pseudochannels 2" in capsys.readouterr().out
    assert re.search("pseudochannels +2 of 256", repr(memory.device))
    assert list(Memory.named().to_dict())[:4] == ["standard", "org", "timing", "ranks"]
    assert "pseudochannels" not in Memory.named().to_dict()


def test_what_a_memory_lacks_is_one_line():
    def memory(*names, **options):
        return Memory.named(*names, options=ControllerOptions(**options))

    gddr6, hbm3 = ("GDDR6", "GDDR6_8Gb_x8", "GDDR6_14000_1350mV_quad"), ("HBM3", "HBM3_4Gb", "HBM3_6400Mbps")
    with refused("unknown-name refresh"):
        Memory.named(*gddr6, options=ControllerOptions(refresh="per-bank"), rules="reference")
    with refused("unknown-name refresh"):
        memory(*hbm3, refresh="same-bank")
    with refused("unknown-name wck"):
        memory(*gddr6, wck="off")
    with refused("unknown-name rules"):
        resolve(*hbm3, rules="jedec")
    with refused("no-progress nREFIpb"):
        Memory.named(*hbm3, overrides={"nRREFD": 400}, options=ControllerOptions(refresh="per-bank"))
    lpddr5 = ("LPDDR5", "LPDDR5_16Gb_x16", "LPDDR5_6400")
    for preset in (lpddr5, hbm3):
        with refused("no-progress nREFIpb"):
            Memory.named(*preset, overrides={"nRFCpb": 9000}, options=ControllerOptions(refresh="per-bank"))
        Memory.named(*preset, overrides={"nRFCpb": 2900}, options=ControllerOptions(refresh="per-bank"))


@pytest.mark.parametrize("refresh", ["all-bank", "per-bank"])
@pytest.mark.parametrize("row_policy", ["open", pytest.param("closed-cap", marks=pytest.mark.long)])
def test_an_expert_runs_on_lanes_of_lpddr5(row_policy, refresh):
    changes = {"standard": "LPDDR5", "org": "LPDDR5_16Gb_x16", "timing": "LPDDR5_6400"}
    changes |= {"row_policy": row_policy, "refresh": refresh}
    hardware = load_hardware("edge", [f"dram.{key}={value}" for key, value in changes.items()])
    result = simulate_expert(hardware, ndpsim.Expert(512, 128), 2, record_commands=True, exact_check=True)
    for trace in result.command_traces:
        assert check(trace, hardware.lane_device(), refresh).ok
