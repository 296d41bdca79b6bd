"""Energy: two computations that must agree, values from tables of currents, data sheets, and DRAMPower."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ndpsim
from builders.command_lines import named
from calls import call, said
from mistakes import refused
from ndpsim.base.options.dram import ControllerOptions
from ndpsim.config.dram import Power
from ndpsim.dram import sink, state
from ndpsim.dram.energy import Currents, channel_energy, count_trace, find_currents, from_trace, split
from ndpsim.dram.energy.traces import sum_open
from ndpsim.dram.engines import ScanController, make_controller
from ndpsim.dram.spec import lower, resolve, standards
from ndpsim.dram.traces import CommandTrace, Requests
from ndpsim.simulate import Memory, run_requests, run_trace, simulate_expert
from ndpsim.simulate.lane import command_room, decode_commands, run_channel
from ndpsim.workload.models import Expert
from scripts import script

COMMANDS = standards()["DDR5"].by_number

DDR4 = ("DDR4", "DDR4_8Gb_x8", "DDR4_3200AA")
DDR5 = ("DDR5", "DDR5_16Gb_x8", "DDR5_4800AN")


NOTHING = CommandTrace.of(np.empty((7, 0), dtype=np.int64))


# ---- Two ways


REFRESH = {"DDR4": ["none", "all-bank", "staggered"], "DDR5": ["none", "all-bank", "staggered", "same-bank"]}


@st.composite
def works(draw: st.DrawFn):
    preset = draw(st.sampled_from([DDR4, ("DDR4", "DDR4_8Gb_x4", "DDR4_2400R"), DDR5]))
    ranks = draw(st.sampled_from([1, 2, 4]))
    overrides = {"nREFI": draw(st.sampled_from([1001, 1500])), "nRFC": draw(st.sampled_from([60, 200]))}
    # Short and long times between a column command and its precharge, and rows that must stay open for long.
    overrides |= {"nWR": draw(st.sampled_from([4, 90])), "nRTP": draw(st.sampled_from([2, 40]))}
    overrides |= {"nRAS": draw(st.sampled_from([30, 120]))}
    overrides["nRC"] = overrides["nRAS"] + 40
    if preset[0] == "DDR5":
        overrides["nRFCsb"] = draw(st.sampled_from([20, 100]))
    options = ControllerOptions(
        scheduler=draw(st.sampled_from(["FRFCFS", "FRFCFS-RowHit"])),
        row_policy=draw(st.sampled_from(["open", "closed-cap"])),
        row_cap=draw(st.integers(1, 4)),
        refresh=draw(st.sampled_from(REFRESH[preset[0]])),
        read_buffer=draw(st.sampled_from([1, 5, 32])),
    )
    memory = Memory.named(*preset, ranks, overrides, "RoBaRaCoCh", draw(st.sampled_from([1, 2])), options)
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    count = draw(st.integers(1, 200))
    address = rng.integers(0, draw(st.sampled_from([1 << 14, 1 << 21, 1 << 26])), count, dtype=np.int64)
    write = (rng.random(count) < draw(st.sampled_from([0.0, 0.3, 1.0]))).astype(np.int64)
    return memory, Requests.of(address * 64 % memory.capacity_bytes, write)


@settings(max_examples=120, deadline=None)
@given(work=works())
def test_counters_and_command_traces_give_the_same_energy(work):
    memory, requests = work
    result = run_requests(requests, memory, record_commands=True)
    chip = channel_energy(memory.device, find_currents(memory.device))
    counts = [count_trace(trace, memory.device, end=result.cycles) for trace in result.command_traces]
    # The channels that got no request recorded nothing, and are there all the same.
    while len(counts) < memory.channels:
        counts.append(count_trace(NOTHING, memory.device, end=result.cycles))
    summed = type(counts[0])(*map(sum, zip(*counts, strict=True)))
    parts = split(summed, chip)
    assert {name: result.energy_nj[name] for name in parts} == parts
    assert result.energy_nj["total"] == pytest.approx(sum(parts.values()))
    assert list(result.energy_nj) == [*parts, "total"]


#: Of no chip: numbers in the order of loops, so that no component is negative.
MADE_UP = dict(
    VDD=1.1, VDDQ=0.5, VPP=1.8, IDD0=60.0, IDD2N=30.0, IDD3N=46.0, IDD4R=300.0, IDD4W=250.0, IDD5B=200.0, IPP0=4.0,
    IPP2N=1.0, IPP3N=2.0, activate_ns=40.0, precharge_ns=20.0, refresh_ns=300.0, IDD5PB=90.0, bank_refresh_ns=100.0,
    IDDQ4R=100.0,
)  # fmt: skip


OTHERS = [
    ("GDDR6", "GDDR6_8Gb_x16", "GDDR6_14000_1250mV_double", 1),
    ("HBM3", "HBM3_8Gb_8hi", "HBM3_6400Mbps", 1),
    ("LPDDR5", "LPDDR5_8Gb_x16", "LPDDR5_6400", 2),
    ("LPDDR5X", "LPDDR5X_16Gb_x16", "LPDDR5X_8533", 2),
    ("LPDDR6", "LPDDR6_16Gb_x12", "LPDDR6_10667_BL24", 2),
]
#: Odd seeds have rows that close early, which only this file compiles but for GDDR6.
OF_OTHERS = [
    pytest.param(preset, seed, marks=[pytest.mark.long] if seed % 2 and preset[0] != "GDDR6" else [])
    for preset in OTHERS
    for seed in range(4)
]


@pytest.mark.parametrize(("preset", "seed"), OF_OTHERS)
def test_counters_and_command_traces_of_other_memories_give_the_same_energy(preset, seed):
    rng = np.random.default_rng(seed)
    options = ControllerOptions(
        row_policy=("open", "closed-cap")[seed % 2],
        refresh="all-bank" if preset[0] in ("GDDR6", "LPDDR6") or seed < 2 else "per-bank",
    )
    memory = Memory.named(*preset, options=options)
    memory = replace(memory, power=MADE_UP)
    address = rng.integers(0, 1 << (14, 22, 27, 18)[seed], 3000) * 32 % memory.capacity_bytes
    requests = Requests.of(address, (rng.random(3000) < 0.3).astype(np.int64))
    result = run_requests(requests, memory, record_commands=True)
    device = memory.device
    chip = channel_energy(device, find_currents(device, MADE_UP))
    parts = split(count_trace(result.command_traces[0], device, end=result.cycles), chip)
    assert parts == {name: result.energy_nj[name] for name in parts}
    assert min(parts.values()) > 0


@pytest.mark.parametrize("row_policy", ["open", "closed-cap"])
def test_both_controllers_and_the_trace_agree_on_open_banks_wherever_the_run_is_cut(row_policy):
    device = resolve(*DDR5, ranks=2, overrides={"nREFI": 1500, "nRFC": 200})
    tables = lower(device)
    policy = state.make_policy(ControllerOptions(row_policy=row_policy, row_cap=1))
    rng = np.random.default_rng(1)
    places = [rng.integers(0, most, 400) for most in (2, 8, 4, 3, 16, 2)]
    for make in (ScanController, make_controller):
        channel = make(tables, policy)
        source = state.make_source((*places, np.arange(400)))
        commands = command_room()
        for until in range(7, 400, 13):
            commands = run_channel(channel, source, sink.null_sink(), commands, until)
            trace = decode_commands(commands, tables, device.standard)
            for beyond in (0, 3, 1000):
                end = int(trace.clock[-1]) + beyond
                assert channel.open_clocks(end) == count_trace(trace, device, end=end).open_clocks


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), count=st.integers(0, 60))
def test_the_kernel_and_its_python_agree_on_any_trace(seed, count):
    rng = np.random.default_rng(seed)
    clock, command = np.cumsum(rng.integers(0, 9, count)), rng.integers(0, len(COMMANDS), count)
    reach, stride = rng.integers(1, 3, len(COMMANDS)), rng.integers(1, 3, len(COMMANDS))
    keeps = rng.integers(-1, 20, len(COMMANDS))
    first, end = rng.integers(0, 3, count), int(clock[-1]) + 3 if count else 3
    rules = np.column_stack((reach, stride, keeps))
    arguments = (clock, command, first, rules, int(rng.choice([0, len(COMMANDS) - 1])))
    results = {
        function(*arguments, np.full((6, 2), -1, dtype=np.int64), end)
        for function in (sum_open, sum_open.py_func)
    }
    assert len(results) == 1


# ---- By hand. A DDR4-3200 rank is 8 chips of 1.2 V and VPP 2.5 V (3 mA, in refresh 28); a clock is 0.625 ns.


@pytest.mark.parametrize(
    ("closing", "clock", "held"),
    [
        ("PREpb", 200, 200),
        ("PREab", 200, 200),
        ("RDA", 100, 100 + 12),  # nRTP
        ("RDA", 30, 52),  # not before nRAS
        ("WRA", 100, 100 + 16 + 4 + 24),  # nCWL + nBL + nWR
        ("REFab", 200, 1000),  # closes nothing
    ],
)
def test_a_bank_is_open_from_its_activate_to_its_precharge(closing, clock, held):
    device = resolve(*DDR4, ranks=2)
    opened = named((0, "ACT", 1, 2, 3), (clock, closing, 1, 2, 3))
    assert count_trace(opened, device, end=1000).open_clocks == held
    other = named((0, "ACT", 1, 2, 3), (clock, closing, 0, 2, 3))
    assert count_trace(other, device, end=1000).open_clocks == 1000


def test_a_same_bank_precharge_closes_its_bank_of_every_group():
    trace = named((0, "ACT", 0, 1, 2), (10, "ACT", 0, 5, 2), (20, "ACT", 0, 5, 3), (300, "PREsb", 0, -1, 2))
    assert count_trace(trace, resolve(*DDR5), end=1000).open_clocks == 300 + 290 + 980


def test_an_auto_precharge_after_the_end_counts_to_the_end():
    trace = named((0, "ACT", 0, 0, 0), (100, "WRA", 0, 0, 0))
    assert count_trace(trace, resolve(*DDR4), end=120).open_clocks == 120


def test_timings_of_the_run_do_not_change_what_a_command_costs():
    plain, slower = (
        channel_energy(device, find_currents(device))
        for device in (resolve(*DDR4), resolve(*DDR4, overrides={"nRAS": 80, "nRC": 200, "nRFC": 900}))
    )
    assert plain == slower


# ---- Data


def test_hardware_files_can_change_every_number_of_a_chip():
    numbers = {entry.name for entry in fields(Currents)} - {"part", "source", "assumptions", "further"}
    assert set(Power.model_fields) == numbers | {"scaled_from_mtps"}


def test_a_device_without_a_data_sheet_has_no_energy_and_says_so():
    result = run_trace((np.arange(10) * 64, np.zeros(10, dtype=np.int64)), org="DDR5_8Gb_x8")
    assert result.energy_nj is None
    assert result.energy_note.startswith("no data sheet's currents are known of DDR5_8Gb_x8 at 4800 MT/s")
    result = simulate_expert("edge", sets=["dram.timing=DDR4_1600K"])
    assert result.energy_nj is None
    assert result.time_ns > 0


def test_currents_of_a_device_without_a_data_sheet_can_be_given():
    device = resolve("DDR5", "DDR5_8Gb_x8", "DDR5_4800AN")
    known = find_currents(resolve(*DDR5))
    names = set(Power.model_fields) - {"scaled_from_mtps"}
    numbers = {name: getattr(known, name) for name in names if getattr(known, name) is not None}
    given = find_currents(device, numbers)
    assert channel_energy(device, given).read == channel_energy(resolve(*DDR5), known).read
    numbers.pop("IDD4W")
    with refused("missing dram.power") as caught:
        find_currents(device, numbers)
    assert "IDD4W" in caught.value.problem


def test_same_bank_refresh_without_its_current_has_no_energy():
    device = resolve(*DDR5)
    chip = find_currents(device)
    without = type(chip)(**{**vars(chip), "IDD5C": None})
    assert from_trace(named((0, "REFsb", 0, -1, 0)), device, without) is None
    assert from_trace(named((0, "REFab", 0, -1, -1)), device, without) is not None


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"IDD9": 3.0}, "unknown-name dram.power.IDD9 ? IDD0"),
        ({"IDD0": 20.0}, "range dram.power"),
        ({"IDD3N": 500.0}, "range dram.power"),
    ],
)
def test_currents_that_make_no_sense_are_refused(changes, problem):
    device = resolve(*DDR4)
    with refused(problem):
        channel_energy(device, find_currents(device, changes))


# ---- Around the DRAM


# ---- On the command line


def test_check_tells_the_energy_of_a_trace(tmp_path):
    trace, commands, told = tmp_path / "requests.trace", tmp_path / "commands.csv", tmp_path / "told.json"
    trace.write_text("".join(f"{'LD' if n % 3 else 'ST'} {n * 8256 * 64:#x}\n" for n in range(500)))
    assert (
        call("dram", trace, "--ranks", 2, "--commands", commands, "--json", tmp_path / "ran.json").status == 0
    )
    channel = ["--standard", "DDR5", "--org", "DDR5_16Gb_x8", "--timing", "DDR5_4800AN", "--ranks", 2]
    text = said("check", commands, *channel, "--energy", "--json", told)
    ran, checked = (json.loads(file.read_text()) for file in (tmp_path / "ran.json", told))
    assert checked["energy_nj"] == ran["energy_nj"]
    assert checked["time_ns"] == ran["time_ns"]
    assert checked["moved_bytes"] == 500 * 64
    assert checked["energy_note"] == ran["energy_note"]
    assert "pJ/bit" in text
    assert "background" in text


def test_check_tells_the_energy_of_lanes(tmp_path):
    commands, told = tmp_path / "commands.csv", tmp_path / "told.json"
    change = ("--set", "dram.power.IDD2N=91")
    ran = tmp_path / "ran.json"
    assert call("gemv", "--shape", "512,256", "--commands", commands, *change, "--json", ran).status == 0
    assert call("check", commands, "--hw", "trimoe", *change, "--energy", "--json", told).status == 0
    first, second = (json.loads(file.read_text())["energy_nj"] for file in (ran, told))
    for name in ("activate", "read", "refresh", "io"):
        assert first[name] == pytest.approx(second[name], rel=1e-12)
    assert "IDD2N as given" in json.loads(ran.read_text())["energy_note"]


def test_a_device_without_currents_is_told_of(tmp_path):
    commands = tmp_path / "commands.csv"
    commands.write_text("clock,command,rank,bankgroup,bank,row,column\n5,ACT,0,0,0,0,-1\n")
    channel = ["--standard", "DDR5", "--org", "DDR5_8Gb_x8", "--timing", "DDR5_4800AN"]
    assert "not known" in said("check", commands, *channel, "--energy")


def test_a_refresh_whose_current_is_not_known_is_told_of_everywhere(tmp_path):
    channel = ["--standard", "LPDDR5X", "--org", "LPDDR5X_16Gb_x16", "--timing", "LPDDR5X_7500"]
    trace, commands = tmp_path / "requests.trace", tmp_path / "commands.csv"
    ran, checked = tmp_path / "ran.json", tmp_path / "checked.json"
    trace.write_text("".join(f"LD {n * 8256 * 32:#x}\n" for n in range(500)))
    arguments = ("dram", trace, *channel, "--refresh", "per-bank", "--commands", commands, "--json", ran)
    assert call(*arguments).status == 0
    assert (
        call("check", commands, *channel, "--refresh", "per-bank", "--energy", "--json", checked).status == 0
    )
    for file in (ran, checked):
        told = json.loads(file.read_text())
        assert told["energy_nj"] is None
        assert told["energy_note"].startswith("IDD5PB, ")


def test_hardware_is_shown_with_its_currents():
    text = said("show", "hw", "edge")
    assert "power.IDD4R" in text
    assert "MT40A1G8" in text
    assert "derived.ndp_area" in text


def test_the_components_of_a_bar_make_all_of_it():
    from matplotlib.figure import Figure

    from ndpsim.report.pictures.bars import energy_panel

    result, axes = simulate_expert("trimoe"), Figure().subplots()
    energy_panel(result.energy_nj, result.time_ns).draw(axes)
    assert sum(bar.get_width() for bar in axes.patches) == pytest.approx(100)


# ---- The energy of command traces against DRAMPower's (validation/drampower.csv)

VALIDATION = Path(__file__).parents[1] / "validation"
DRAMPOWER: Any = script("validation/drampower.py")
STORED = DRAMPOWER.stored()
#: DRAMPower takes PREs that reach refreshed banks for precharges, as validation/drampower.md says.
PRECHARGED_IN_REFRESH = {
    "DDR4, a third writes, rows closed, 4 ranks": 17,
    "DDR5, a third writes, rows closed, 2 ranks": 33,
}


@pytest.mark.parametrize("workload", DRAMPOWER.WORKLOADS, ids=lambda workload: workload.name)
def test_energy_is_that_of_drampower(workload):
    stored = STORED[workload.name]
    assert len(DRAMPOWER.trace_of(workload)[0]) == stored["commands"], (
        "another trace: run validation/drampower.py"
    )
    assert DRAMPOWER.refreshed_and_precharged(workload)[0] == PRECHARGED_IN_REFRESH.get(workload.name, 0)
    errors = DRAMPOWER.errors(DRAMPOWER.as_drampower_counts(workload), stored, workload)
    assert set(errors) == {"activate", "read", "write", "refresh and background", "io", "sum"}
    assert DRAMPOWER.within(errors, workload), errors
    plain = DRAMPOWER.errors(DRAMPOWER.ours(workload), stored, workload)
    assert DRAMPOWER.within(plain, workload) == (workload.name not in PRECHARGED_IN_REFRESH)


def test_every_workload_of_the_table_is_there():
    assert list(STORED) == [workload.name for workload in DRAMPOWER.WORKLOADS]


def test_the_page_of_drampower_is_current():
    assert (VALIDATION / "drampower.md").read_text(encoding="utf-8") == DRAMPOWER.text()


# ---- The parts of the energy of every result, compared with each other

SMALL = Expert(512, 256)
DRAM = {"activate", "read", "write", "refresh", "background", "io"}


def total_of(parts):
    return sum(nj for name, nj in parts.items() if nj is not None and name != "total")


@pytest.fixture(scope="module")
def relayouts():
    return {
        name: ndpsim.simulate_relayout(
            model=SMALL, experts=2, source="localized", target="striped", sets=[f"link.topology={name}"]
        )
        for name in ("ring", "groups")
    }


def test_every_result_has_a_split_that_adds_up(relayouts):
    results = [
        ndpsim.simulate_expert("trimoe", SMALL),
        ndpsim.simulate_expert("edge", SMALL, layout="sharded:3"),
        ndpsim.simulate_expert("cxl", SMALL, bits=3),
        ndpsim.simulate_host_read("trimoe", SMALL),
        ndpsim.simulate_contention("trimoe", SMALL, host_gbps=5.0),
        *relayouts.values(),
        relayouts["ring"].host,
    ]
    for result in results:
        parts = result.energy_nj
        assert set(parts) >= DRAM | {"total"}
        assert parts["total"] == pytest.approx(total_of(parts))
        assert parts["read"] > 0


def test_shards_spend_together_what_one_dimm_does_but_for_background():
    one, three = (ndpsim.simulate_expert("edge", SMALL, layout=f"sharded:{n}").energy_nj for n in (1, 3))
    for name in ("read", "io", "ndp_multiply", "ndp_fifo", "ndp_activation"):
        assert three[name] == pytest.approx(one[name], rel=1e-3)


# ---- The energy model for the loops and examples of data sheets (validation/energy.md)

SHEETS_SCRIPT: Any = script("validation/energy.py")


@pytest.mark.parametrize("preset", SHEETS_SCRIPT.KNOWN, ids=" ".join)
def test_every_loop_of_a_data_sheet_draws_its_current(preset):
    device = resolve(*preset)
    loops = list(SHEETS_SCRIPT.measured(device, find_currents(device)))
    assert len(loops) == (7 if preset[0] == "DDR5" else 6)
    for name, sheet, ours in loops:
        assert ours == pytest.approx(sheet, rel=1e-12), name


def test_loops_that_the_model_is_not_made_from():
    # x8 at 2400 MT/s: clocks of 5/6 ns, tRAS 39, tRP 17, a burst 4, 16 banks in 4 x 26 clocks. An ACT with its
    # precharge and the bank's standby draws IDD0 for tRC.
    sheet = {name: ours for name, _, ours, _ in SHEETS_SCRIPT.predicted(*SHEETS_SCRIPT.SHEETS[0][1:])}
    row, burst = (48 - 34) * 56, (135 - 43) * 4
    assert sheet["IDD1, mA"] == pytest.approx(34 + (row + burst) / 56)
    assert sheet["IDD7, mA"] == pytest.approx(34 + 16 * (row + burst) / 104)
    assert sheet["IDD7, mW with VPP"] == pytest.approx(1.2 * sheet["IDD7, mA"] + 2.5 * 3)
    # By TN-40-07 a bank is open all the time.
    row = 48 * 56 - 43 * 39 - 34 * 17
    micron = {name: mA for name, _, _, mA in SHEETS_SCRIPT.predicted(*SHEETS_SCRIPT.SHEETS[0][1:])}
    assert micron["IDD7, mA"] == pytest.approx(43 + 16 * (row + burst) / 104)


def test_currents_of_the_sheet_are_those_that_are_known_of_the_part():
    _, device, chip, *_ = SHEETS_SCRIPT.SHEETS[0]
    known = find_currents(device)
    loops = ("IDD0", "IDD2N", "IDD3N", "IDD4R", "IDD4W", "IDD5B", "IPP0", "IPP3N", "IPP5B", "precharge_ns")
    assert {name: getattr(known, name) for name in loops} == {name: getattr(chip, name) for name in loops}


def test_microns_calculators_are_met_to_their_last_digit():
    for name, calculator, ours in SHEETS_SCRIPT.calculated():
        # A refresh among closed banks: they take off IDD3N where the standby is IDD2N.
        more = (45 - 42) * 1.5 * 160 / 7800 if name.startswith("REF") else 0
        assert ours - more == pytest.approx(calculator, abs=0.05), name
    for name, calculator, ours in SHEETS_SCRIPT.pins():
        assert ours == pytest.approx(calculator, abs=0.05), name


def test_the_page_of_data_sheets_is_current():
    assert (VALIDATION / "energy.md").read_text(encoding="utf-8") == SHEETS_SCRIPT.text()
