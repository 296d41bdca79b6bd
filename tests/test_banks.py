"""Units in banks against reference cases (validation/banks), plain controllers, and the checker."""

from __future__ import annotations

import dataclasses
import gzip
import json
import shutil
from fractions import Fraction
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calls import call
from mistakes import refused
from ndpsim.audit.banks import check_units
from ndpsim.base.errors import InputError
from ndpsim.config.banks import bank_hardware_names, load_bank_hardware
from ndpsim.config.files import data_folder
from ndpsim.dimm.banks import aim, attacc, hbm_pim
from ndpsim.dimm.banks.shapes import Attention, Gemv, Units
from ndpsim.dram.banks import lines as bank_lines
from ndpsim.dram.banks.programs import Line, Program
from ndpsim.dram.banks.run import run_program
from ndpsim.dram.spec.extension import BankDevice, Request, Values, device_of, extension_named
from ndpsim.dram.traces.unit_commands import UnitCommands, read_unit_commands, write_unit_commands
from ndpsim.simulate.bank_layout import place_bank_operands
from ndpsim.simulate.bank_operands import simulate_bank_attention, simulate_bank_expert
from ndpsim.simulate.pim import run_pim
from ndpsim.studies.banks import compare_banks, first_difference, program_of, read_case
from ndpsim.workload.models import Expert, Index, load_model
from oracles.bank_units import run_in_order, run_look_ahead

CASES = Path(__file__).parents[1] / "validation" / "banks"
NAMES = sorted(path.stem for path in CASES.glob("*.yaml"))
# Clocks at which the reference's commands break the rules of a device: the page of the cases, section 6.
ILLEGAL = {
    "aim_every_command_small": (208,),
    "attacc_bg_attention_small": (234,),
    "attacc_bank_gemv_refresh_small": (5161, 5162, 5617),
    "attacc_host_beside_pim_small": (3, 4, 22, 24, 46, 65, 69, 88, 110, 129),
}
WITH_COMMANDS = [name for name in NAMES if (CASES / f"{name}.commands.csv.gz").exists()]


def test_there_are_reference_cases():
    assert len(NAMES) == 22
    assert len(WITH_COMMANDS) == 9


@pytest.mark.parametrize("name", NAMES)
def test_commands_counts_and_cycles_equal_the_reference(name):
    outcome = compare_banks(CASES / f"{name}.yaml")
    assert outcome.equal, outcome.first_difference
    assert (outcome.compared > 0) == (name in WITH_COMMANDS)
    if name in WITH_COMMANDS:
        assert outcome.illegal_clocks == ILLEGAL.get(name, ())


@pytest.mark.parametrize("name", WITH_COMMANDS)
def test_by_default_the_same_program_runs_legally(name):
    case = read_case(CASES / f"{name}.yaml")
    device = dataclasses.replace(case.hardware.device, ideal=frozenset())
    run = run_program(program_of(case), device, record_commands=True)
    report = check_units(run.commands, device)
    assert report.ok, report.violations[:3]
    units = {command.name for command in device.commands if not (command.opens or command.closes)}
    kept = units - {"REFab", "TMOD"} - {name for name in units if name.startswith("CAS")}
    reference = case.at("result", "commands")
    assert {n: run.counts.get(n, 0) for n in kept} == {n: reference.get(n, 0) for n in kept}


def test_a_changed_command_is_named():
    case = read_case(CASES / "aim_gemv_small.yaml")
    commands = run_program(program_of(case), case.hardware.device, record_commands=True).commands
    later = commands.columns.copy()
    later[0, 40:] += 1
    shown = ("clock", "command", "channel", "bankgroup", "bank", "row", "column")
    assert first_difference(commands, commands, shown) == ""
    words = first_difference(UnitCommands(later, commands.names), commands, shown)
    assert words.startswith(
        f"command 41 is WRGB at clock {later[0, 40]}, channel 0 column 39; in the reference"
    )
    shorter = UnitCommands(commands.columns[:, :-1], commands.names)
    assert first_difference(shorter, commands, shown).startswith("only the reference has command 288")


# ---- The kernels against plain controllers


def small_device(name: str, channels: int, ideal: frozenset[str], **timings: int) -> BankDevice:
    device = load_bank_hardware(name).device
    sizes = {**device.sizes, "channels": channels, "rows": 8192 * 2, "columns": 16}
    return BankDevice(
        extension_named(name), sizes, {**device.timings, **timings}, Fraction(500), device.refreshes, ideal
    )


def idealisations(name: str):
    every = sorted(extension_named(name).idealisations)
    if not every:
        return st.just(frozenset())
    return st.one_of(
        st.just(frozenset()), st.just(frozenset(every) - {"CENT"}), st.frozensets(st.sampled_from(every))
    )


@st.composite
def request_lines(draw):
    channels = st.sampled_from([(0,), (1,), (0, 1), (0, 1, 2), (1, 2)])
    words = st.sampled_from(
        ["MACAB"] * 4
        + ["MACSB"] * 4
        + ["MACPB"] * 4
        + ["RD", "WR"] * 3
        + ["WRGB", "MVSB", "MVGB", "SFM", "BARRIER"]
    )
    kind = draw(st.sampled_from(["MACAB", "MACSB", "MACPB", ""]))
    lines = []
    for _ in range(draw(st.integers(1, 50))):
        word = draw(words)
        if kind and word.startswith("MAC"):
            word = kind
        small = st.integers(0, 1)
        place = (draw(small), draw(small), draw(st.integers(0, 3)), draw(st.integers(0, 3)))
        line = Line(word, draw(channels), place, draw(small), draw(st.integers(0, 3)))
        lines += [line] * draw(st.sampled_from([1, 1, 2, 5]))
    return lines


@st.composite
def instruction_lines(draw, name: str):
    requests = extension_named(name).requests
    words = [*(word for word, request in requests.items() if not request.ends), "RD", "WR", "RD", "WR"]
    end = next(word for word, request in requests.items() if request.ends)
    lines = []
    for _ in range(draw(st.integers(1, 30))):
        word = requests[called := draw(st.sampled_from(words))]
        size = draw(st.sampled_from([1, 2, 16])) if word.sized else 1
        place = (0, 0, draw(st.integers(0, 1)), draw(st.integers(0, 1)))
        row = word.first_row if word.first_row >= 0 else draw(st.integers(0, 1))
        channels = draw(st.sampled_from([(0,), (1,), (0, 1), (0, 1, 2)]))
        line = Line(called, channels, place, row, 0 if word.sized else -1, size)
        lines += [line] * draw(st.sampled_from([1, 1, 2, 20]))
    return [*lines, Line(end, (0,))] if draw(st.booleans()) else lines


def same(device: BankDevice, lines, plain) -> None:
    run = run_program(lines, device, record_commands=True)
    cycles, commands = plain(lines, device)
    ours = [(row[0], run.commands.names[row[1]], *row[2:]) for row in run.commands.columns.T.tolist()]
    assert ours == commands
    assert run.cycles == cycles
    if not device.ideal or not device.ideal - device.extension.of_results:
        report = check_units(run.commands, device)
        assert report.ok, report.violations[0].message


@given(request_lines(), idealisations("attacc"), st.sampled_from([500, 900, 5070]))
@settings(max_examples=30)
def test_the_kernel_that_looks_ahead_equals_the_plain_controller(lines, ideal, interval):
    device = small_device("attacc", 3, ideal, nREFI=interval, nRFC=90)
    try:
        same(device, lines, run_look_ahead)
    except InputError as error:  # under A1 a request may wait for ever, as in the reference
        assert error.code == "no-progress"
        assert "A1" in ideal


@pytest.mark.parametrize("name", ["aim", "aim-lpddr5", "hbm-pim"])
def test_the_kernel_in_order_equals_the_plain_controller(name):
    @given(instruction_lines(name), idealisations(name), st.sampled_from([500, 900, 3900]))
    @settings(max_examples=20)
    def check(lines, ideal, interval):
        device = small_device(name, 3, ideal, nREFI=interval, nRFC=60, nRFCab=60)
        same(device, lines, run_in_order)

    check()


def outcome(program, device: BankDevice, **options):
    """Cycles and commands of each channel, or the reason why there are none."""
    try:
        run = run_program(program, device, **options)
    except InputError as error:
        return str(error)
    return run.cycles, run.per_channel.tolist(), run.requests


def again(lines: list[Line], times: int) -> list[Line]:
    """The lines several times, two rows further each time."""
    return [
        line._replace(row=line.row + 2 * n) if line.row >= 0 else line for n in range(times) for line in lines
    ]


@given(request_lines(), idealisations("attacc"), st.sampled_from([900, 5070]), st.integers(2, 12))
@settings(max_examples=20)
def test_repeated_requests_are_skipped_exactly(lines, ideal, interval, times):
    device = small_device("attacc", 3, ideal, nREFI=interval, nRFC=90)
    program = again(lines, times)
    assert outcome(program, device) == outcome(program, device, skip=False)


@pytest.mark.parametrize("name", ["aim", "aim-lpddr5", "hbm-pim"])
def test_repeated_instructions_are_skipped_exactly(name):
    end = next(word for word, request in extension_named(name).requests.items() if request.ends)

    @given(instruction_lines(name), idealisations(name), st.sampled_from([900, 3900]), st.integers(2, 12))
    @settings(max_examples=15)
    def check(lines, ideal, interval, times):
        device = small_device(name, 3, ideal, nREFI=interval, nRFC=60, nRFCab=60)
        program = again([line for line in lines if line.word != end], times)
        assert outcome(program, device) == outcome(program, device, skip=False)

    check()


def test_layouts_repeat_and_most_of_their_clocks_are_skipped():
    for level in ("bank", "bankgroup", "buffer"):
        hardware = load_bank_hardware("attacc", ["channels=2", f"level={level}"])
        units = Units(level, 16, 1, 32, 16384, 2)
        program = attacc.attention(Attention(24, 1, 128, 512), units)
        run = run_program(program, hardware.device)
        assert outcome(program, hardware.device, skip=False) == (
            run.cycles,
            run.per_channel.tolist(),
            run.requests,
        )
        assert run.skipped > run.cycles / 4


@pytest.mark.parametrize("level", ["bank", "bankgroup", "buffer"])
def test_writes_of_new_tokens_are_skipped_exactly(level):
    device, units = (
        load_bank_hardware("attacc", [f"level={level}"]).device,
        Units(level, 16, 1, 32, 16384, 16),
    )
    program = attacc.appended(Attention(640, 1, 128, 500), units, 640)
    run = run_program(program, device)
    assert (run.cycles, run.per_channel.tolist(), run.requests) == outcome(program, device, skip=False)
    assert run.skipped > 0


def test_stretches_of_an_earlier_run_give_the_same_result():
    device, units = load_bank_hardware("attacc").device, Units("bank", 16, 1, 32, 16384, 16)
    runs = [
        partial(run_program, attacc.attention(Attention(heads, 1, 128, 512), units), device)
        for heads in (40, 72)
    ]
    alone = runs[1]()
    later = runs[1](earlier=runs[0]())
    assert (later.cycles, later.counts, later.requests) == (alone.cycles, alone.counts, alone.requests)
    assert later.skipped > alone.skipped


def test_words_of_a_program_only_say_which_state_matters():
    device, units = load_bank_hardware("attacc").device, Units("bank", 16, 1, 32, 16384, 16)
    program = attacc.attention(Attention(40, 1, 128, 512), units)
    known, unknown = run_program(program, device), run_program(Program(program.pieces), device)
    assert known.skipped == unknown.skipped > 0
    assert (known.cycles, known.counts) == (unknown.cycles, unknown.counts)
    with pytest.raises(AssertionError):
        run_program(Program(program.pieces, ("WRGB",)), device)


def test_a_program_that_comes_again_is_made_once():
    made = []
    program = Program(lambda: made.append(1) or iter([Line("EOC", (0,))])).held()
    assert [list(program) for _ in range(3)] == [[Line("EOC", (0,))]] * 3
    assert made == [1]


def test_a_program_in_small_pieces_gives_the_same_commands(monkeypatch):
    case = read_case(CASES / "attacc_bg_attention_small.yaml")
    whole = [run_program(program_of(case), case.hardware.device, record_commands=True)]
    whole.append(run_program(aim.gemv(Gemv(1040, 48), AIM), load_bank_hardware("aim").device, True))
    monkeypatch.setattr(bank_lines, "_FEWEST", 3)
    lines = list(program_of(case))
    made = Program(lambda: (line for line in lines))
    pieces = [run_program(made, case.hardware.device, record_commands=True)]
    pieces.append(run_program(aim.gemv(Gemv(1040, 48), AIM), load_bank_hardware("aim").device, True))
    for one, other in zip(whole, pieces, strict=True):
        assert np.array_equal(one.commands.columns, other.commands.columns)
        assert one.requests == other.requests


# ---- A host beside the units

AIM = Units("bank", 16, 32, 64, 16384, 32)
ARBITRATIONS = ("host-first", "ndp-first", "slice:clocks=300", "batch:reads=4,clocks=200")


def beside(name: str, channels: int, lines, **host):
    hardware = load_bank_hardware(name, [f"channels={channels}"])
    result = run_pim(lines, hardware, record_commands=True, host=host)
    report = check_units(result.command_traces, hardware.device)
    assert report.ok, report.violations[0].message
    return result


@pytest.mark.parametrize("arbitration", ARBITRATIONS)
@pytest.mark.parametrize("name", ["aim", "hbm-pim", "attacc"])
def test_commands_of_a_host_beside_units_are_legal(name, arbitration):
    units = Units("bank", 16, 8, 32 if name != "aim" else 64, 16384, 2)
    layout = {"aim": aim, "hbm-pim": hbm_pim, "attacc": attacc}[name]
    shape = Gemv(256, 64)
    for pattern, gbps in (("sequential", "saturate"), ("random", 0.1)):
        if gbps == "saturate" and arbitration == "host-first":
            continue  # units wait for 16,384 clocks each time
        found = beside(
            name, 2, layout.gemv(shape, units), host_gbps=gbps, pattern=pattern, arbitration=arbitration,
            read_share=0.5,
        )  # fmt: skip
        alone = run_pim(layout.gemv(shape, units), load_bank_hardware(name, ["channels=2"]))
        assert found.host["units_cycles_alone"] == alone.cycles <= found.cycles
        assert found.host["gbps"] <= found.host["gbps_alone"] * 1.01
        moved = found.host["read_bytes"] + found.host["write_bytes"]
        assert found.host["gbps"] == pytest.approx(moved / found.time_ns)
        work = {"MAC16", "MACAB", "RDMAC16", "MVSB", "WRREG"} & set(alone.commands)
        assert {n: found.commands[n] for n in work} == {n: alone.commands[n] for n in work}


@pytest.mark.parametrize(
    ("name", "lines", "lost"),
    [
        # By hand: the read's ACT at clock 1, and tRC to the first ACT16.
        ("aim", [Line("MAC_ABK", (0,), row=0, column=0, size=64), Line("EOC", (0,))], 89),
        # By hand: the read's ACT at clock 1, and tRAS to the change of mode, which closes the row.
        ("hbm-pim", [Line("WR_CRF", (0,), column=0, size=2), Line("END", (0,))], 33),
    ],
)
def test_a_read_before_the_units_costs_what_its_row_costs(name, lines, lost):
    found = beside(name, 1, lines, host_gbps=0.001, read_share=1)
    assert found.cycles - found.host["units_cycles_alone"] == lost
    assert (found.host["read_bytes"], found.host["write_bytes"]) == (32, 0)


def test_units_first_leave_the_host_no_bandwidth_and_turns_share_it():
    lines = [Line("MAC_ABK", (0,), row=row, column=0, size=64) for row in range(40)] + [Line("EOC", (0,))]
    shares = []
    for arbitration in ("ndp-first", "slice:clocks=2000", "slice:clocks=1000"):
        host = beside("aim", 1, lines, host_gbps="saturate", read_share=1, arbitration=arbitration).host
        shares.append(host["gbps"] / host["gbps_alone"])
    assert shares[0] == 0
    # A turn of the host and one of the units are equally long; the units finish within one of theirs.
    assert 0.3 < shares[1] < 0.7
    assert 0.3 < shares[2] < 0.7


@pytest.mark.parametrize("clocks", [1000, 2000])
def test_units_and_a_host_that_always_asks_take_the_sum_of_their_times(clocks):
    lines = [Line("MAC_ABK", (0,), row=row, column=0, size=64) for row in range(40)] + [Line("EOC", (0,))]
    host = {"host_gbps": "saturate", "read_share": 1, "arbitration": f"slice:clocks={clocks}"}
    hardware = load_bank_hardware("aim", ["channels=1", "refresh=none"])
    found, timings = run_pim(lines, hardware, host=host), hardware.device.timings
    data = found.host["read_bytes"] // 32 * timings["nBL"]
    # By hand: a change to the host costs tRTP, tRP and tRCD, one to the units as much with their tRCD.
    change = 2 * (timings["nRTP"] + timings["nRP"]) + timings["nRCDRD"] + timings["nRCDRDMAC"]
    turns = -(-found.cycles // (2 * clocks))
    assert 0 < found.cycles - found.host["units_cycles_alone"] - data <= turns * change


@pytest.mark.parametrize(
    ("host", "key"),
    [
        ({"host_gbps": 0}, "host_gbps"),
        ({"host_gbps": 1e6}, "host_gbps"),
        ({"host_gbps": 1, "pattern": "trace.csv"}, "host-pattern"),
        ({"host_gbps": 1, "arbitration": "both"}, "arbitration"),
        ({"rate": 1}, "host"),
        (3, "host"),
    ],
)
def test_wrong_host_traffic_is_refused_in_one_line(host, key):
    with pytest.raises(InputError) as refused:
        run_pim([Line("EOC", (0,))], "aim", host=host)
    assert refused.value.key == key
    assert "\n" not in str(refused.value)


def test_a_program_with_accesses_of_the_host_does_not_run_beside_another_host():
    with pytest.raises(InputError) as refused:
        run_pim([Line("RD", (0,), row=0), Line("EOC", (0,))], "aim", host={"host_gbps": 1})
    assert refused.value.key == "program"


# ---- Bundled devices, programs and files


@pytest.mark.parametrize("rules", ["standard", "reference"])
@pytest.mark.parametrize("name", bank_hardware_names())
def test_bundled_devices_resolve_and_every_value_has_a_source(name, rules):
    hardware = load_bank_hardware(name, rules=rules)
    assert hardware.device.extension.name == name
    words = {"name", "title", "paper", "extension"}
    for key, stated in hardware.values.items():
        assert key in words or stated.origin.startswith(("source: ", "assumption: ")), key
    ideal = set(hardware.device.extension.idealisations) - {"CENT"}
    assert hardware.device.ideal == (ideal if rules == "reference" else set())
    assert hardware.device.refreshes == (rules == "standard" or name in ("attacc", "hbm-pim"))


def test_reference_values_of_lpddr5_are_those_of_the_cases():
    hardware = load_bank_hardware("aim-lpddr5", rules="reference")
    facts = read_case(CASES / "aim_lpddr5_gemv_4096x14336_refresh.yaml").facts["resolved_timing"]
    ours = hardware.device.timings
    assert {name: ours[name] for name in facts if name in ours} == {
        n: v for n, v in facts.items() if n in ours
    }
    # By default the times of AiM's commands in ns are those of GDDR6 at 500 ps.
    assert load_bank_hardware("aim-lpddr5").device.timings["nMODCH"] == -(-32 * 500 // 1250)


@pytest.mark.parametrize(
    ("sets", "code"),
    [
        ("nCCDAB=x", "type"),
        ("nCCDAC=4", "unknown-name"),
        ("nCCDAB", "form"),
        ("refresh=some", "unknown-name"),
        ("idealise=A99", "unknown-name"),
        ("channels=0", "range"),
        ("element_bytes=64", "range"),
    ],
)
def test_wrong_changes_are_refused_in_one_line(sets, code):
    with pytest.raises(InputError) as refused:
        load_bank_hardware("attacc", [sets])
    assert (refused.value.code, refused.value.file) == (code, "sets")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("key", ["nREFI", "nRCDRD"])
def test_a_device_without_a_timing_is_refused_with_its_file(key, tmp_path):
    file = tmp_path / "aim.yaml"
    file.write_text(
        (data_folder("hwconfigs") / "banks/aim.yaml").read_text().replace(f"  {key}:", f"  {key}x:")
    )
    with pytest.raises(InputError) as refused:
        load_bank_hardware(file)
    assert (refused.value.code, refused.value.file, refused.value.key) == ("missing", str(file), key)


@pytest.mark.parametrize(
    ("command", "change", "key"),
    [
        ("MAC16", {"opened_by": "ACT17"}, "aim: MAC16: opened_by"),
        ("MAC16", {"closed_by": ""}, "aim: MAC16: closed_by"),
        ("REFab", {"closed_by": ""}, "aim: REFab: closed_by"),
        ("MAC", {"path": ("bankgroup", "banks")}, "aim: MAC"),
        ("MAC", {"path": ("rank", "bankgroup", "bank")}, "aim: MAC"),
        ("RDMAC16", {"mode": "registers"}, "aim: RDMAC16"),
        ("RD", {"bus": "data"}, "aim: RD"),
        ("RD", {"latency": "nCL * 2"}, "aim"),
        ("", {"controller": "in order"}, "aim"),
        ("", {"levels": ("bankgroups", "bank")}, "aim: levels"),
        ("", {"mode_change": "TMODE"}, "aim: mode_change"),
        ("", {"requests": {"MAC": Request("MACS")}}, "aim: request MAC"),
    ],
)
def test_mistakes_of_a_page_are_refused_in_one_line(command, change, key):
    page = extension_named("aim")
    if command:
        commands = [
            dataclasses.replace(c, **change) if c.name == command else c for c in page.commands(frozenset())
        ]
        change = {"commands": lambda _: tuple(commands)}
    device = load_bank_hardware("aim").device
    values = Values({**device.sizes, "bankgroupss": 4}, device.timings, device.clock_ps, True)
    with pytest.raises(InputError) as refused:
        run_program([Line("EOC", (0,))], device_of(dataclasses.replace(page, **change), values, frozenset()))
    assert refused.value.key == key
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("ideal", "issued", "cycles"),
    # ACT 1, RD 1 + nRCDRD 36, its data nCL 50 + nBL 2 later; EOC joins the answers when RD has issued.
    [(frozenset(), ["ACT", "RD"], 90), (frozenset({"accesses"}), ["ACT"], 3)],
)
def test_the_end_waits_for_accesses_of_the_host(ideal, issued, cycles):
    device = dataclasses.replace(load_bank_hardware("aim").device, ideal=ideal)
    run = run_program([Line("RD", (0,), row=0), Line("EOC", (0,))], device, record_commands=True)
    assert [run.commands.names[number] for number in run.commands.columns[1]] == issued
    assert run.cycles == cycles


@pytest.mark.parametrize(
    ("line", "code", "key"),
    [
        ("RD_MAC,4,0,,", "range", "size"),
        ("MAC_ABK,65,0,,0", "range", "size"),
        ("MAC_ABK,0,0,,0", "range", "size"),
        ("MAC_ABK,4,32,,0", "range", "channels"),
        ("MAC_ABK,4,,,0", "missing", "channels"),
        ("MAC_ABK,4,3-1,,0", "range", "channels"),
        ("MAC_ABK,4,0 0,,0", "twice", "channels"),
        ("MAC_ABK,4,0,,16384", "range", "row"),
        ("MAC_SBK,4,0,16,0", "range", "bank"),
        ("MAC_SBK,4,0,-1,0", "type", "bank"),
        ("MAC_ALL,4,0,,0", "unknown-name", "instruction"),
        ("MAC_ABK,4,0,0", "form", None),
        ("EOC,,,,\nWR_BIAS,,0,,", "conflict", "instruction"),
    ],
)
def test_wrong_lines_of_a_program_are_named(tmp_path, line, code, key):
    program = tmp_path / "program.csv"
    program.write_text(f"instruction,size,channels,bank,row\nWR_BIAS,,0,,\n{line}\n")
    with pytest.raises(InputError) as refused:
        run_pim(program, "aim")
    assert (refused.value.code, refused.value.key, refused.value.file) == (code, key, str(program))
    assert str(refused.value).startswith(f"{program}:{3 + line.count(chr(10))}: ")


def test_commands_of_a_file_are_those_that_were_written(tmp_path):
    case = read_case(CASES / "attacc_bg_attention_small.yaml")
    commands = run_program(program_of(case), case.hardware.device, record_commands=True).commands
    for name in ("commands.csv", "commands.csv.gz"):
        write_unit_commands(tmp_path / name, commands, case.hardware.device)
        again = read_unit_commands(tmp_path / name, case.hardware.device)
        assert np.array_equal(again.columns, commands.columns)


# ---- The checker, one mistake at a time


def small_commands(name: str = "aim_gemv_small") -> tuple[np.ndarray, BankDevice]:
    case = read_case(CASES / f"{name}.yaml")
    run = run_program(program_of(case), case.hardware.device, record_commands=True)
    return run.commands.columns.copy(), case.hardware.device


def rules_broken(columns: np.ndarray, device: BankDevice) -> set[str]:
    return {one.rule for one in check_units(UnitCommands(columns, device.names), device, 1000).violations}


def index_of(columns: np.ndarray, device: BankDevice, name: str, number: int = 0) -> int:
    return int(np.flatnonzero(columns[1] == device.names.index(name))[number])


def test_a_command_in_the_wrong_mode_is_named():
    columns, device = small_commands()
    kept = np.arange(columns.shape[1]) != index_of(columns, device, "TMOD", 1)
    report = check_units(UnitCommands(columns[:, kept], device.names), device)
    assert {one.rule for one in report.violations} == {"mode"}
    assert "ACT16 needs the normal mode, the channel is in register" in report.violations[0].message


def test_each_mistake_breaks_its_rule():
    columns, device = small_commands()
    early = columns.copy()
    early[0, index_of(columns, device, "MAC16")] -= 1
    assert rules_broken(early, device) == {"tRCD"}
    other_row = columns.copy()
    other_row[7, index_of(columns, device, "MAC16", 3)] = 77
    assert rules_broken(other_row, device) == {"row state"}
    beyond = columns.copy()
    beyond[8, index_of(columns, device, "MAC16", 3)] = 64
    assert rules_broken(beyond, device) == {"coordinates"}
    together = columns.copy()
    together[0, index_of(columns, device, "WRGB", 1)] -= 1
    assert rules_broken(together, device) == {"BL", "tCCDS", "data bus"}
    unopened = columns[:, np.arange(columns.shape[1]) != index_of(columns, device, "ACT16")]
    assert rules_broken(unopened, device) == {"row state"}
    without = dataclasses.replace(device, refreshes=True, timings={**device.timings, "nREFI": 100})
    assert rules_broken(columns, without) == {"refresh debt"}


def test_a_stopped_data_clock_and_half_an_activation_are_found():
    columns, device = small_commands("aim_lpddr5_gemv_small")
    assert rules_broken(columns, device) == set()
    every = np.arange(columns.shape[1])
    assert rules_broken(columns[:, every != index_of(columns, device, "CASWRGB")], device) == {"preparation"}
    assert rules_broken(columns[:, every != index_of(columns, device, "ACT16-2")], device) == {"row state"}


def test_several_banks_opened_at_once_count_as_many_activations():
    device = load_bank_hardware("attacc").device
    opens = device.names.index("ACTAB"), device.names.index("PREA"), device.names.index("ACT")
    # ACTAB, PREA, then single banks, the first of them within tFAW of ACTAB if rows were kept shorter.
    short = dataclasses.replace(
        device, refreshes=False, timings={**device.timings, "nRAS": 4, "nRC": 8, "nRP": 4, "nFAW": 39}
    )
    rows = [(1, opens[0], 0, -1, -1, -1, -1, 0, -1), (9, opens[1], 0, -1, -1, -1, -1, -1, -1)]
    for clock, broken in ((39, {"tFAW"}), (40, set())):
        last = (clock, opens[2], 0, 0, 0, 0, 0, 5, -1)
        assert rules_broken(np.array([*rows, last]).T, short) == broken


# ---- Programs from operands


def expanded(lines) -> list[tuple]:
    return [
        (line.word, channel, line.place, max(line.row, 0), max(line.column, 0), line.size)
        for line in lines
        for channel in (() if line.word == "EOC" else line.channels)
    ]


def attacc_units(case) -> Units:
    sizes, ideal = case.hardware.device.sizes, frozenset(("A4", "A10", "A12"))
    level = case.hardware.unit["level"]
    return Units(level, 16, 1, sizes["columns"], sizes["rows"], sizes["channels"], ideal)


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith("attacc") and "host" not in name])
def test_layouts_of_attacc_give_the_programs_of_the_cases(name):
    case = read_case(CASES / f"{name}.yaml")
    work = case.facts["workload"]
    if work["kind"] == "GEMV":
        lines = attacc.gemv(Gemv(work["inputs"], work["outputs"]), attacc_units(case))
    else:
        shape = Attention(work["heads_in_stack"], 1, work["head_size"], work["context_length"])
        lines = attacc.attention(shape, attacc_units(case))
    assert expanded(lines) == expanded(program_of(case))
    counts: dict[str, int] = {}
    for line in lines:
        counts[line.word] = counts.get(line.word, 0) + len(line.channels)
    assert counts == case.facts["requests"]


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith("aim") and "every" not in name])
def test_layouts_of_aim_give_the_programs_of_the_cases(name):
    case = read_case(CASES / f"{name}.yaml")
    work, sizes = case.facts["workload"], case.hardware.device.sizes
    program = program_of(case)
    channels = len(program[0].channels)
    accumulators = 1 if work.get("order") == "one accumulator" else 32
    units = Units("bank", 16, accumulators, sizes["columns"], sizes["rows"], channels)
    if work["kind"] == "GEMV":
        lines = aim.gemv(Gemv(work["inputs"], work["outputs"]), units)
    else:
        heads, queries = work["kv_heads"], work["queries_a_kv_head"]
        lines = aim.attention(Attention(heads, queries, work["head_size"], work["context_length"]), units)
    assert expanded(lines) == expanded(program)


def test_hbm_pim_takes_as_long_for_padding_as_for_outputs():
    """A tile of 8 outputs in each of 512 units has 64 columns a row; by hand 2,048 MACs, 4 clocks apart."""
    units = Units("bank", 16, 8, 32, 16384, 64)
    runs = [run_pim(hbm_pim.gemv(Gemv(4096, outputs), units), "hbm-pim") for outputs in (4096, 1536)]
    assert runs[0].cycles == runs[1].cycles > 2048 * 4
    assert runs[0].commands["MACAB"] == 64 * 2048
    assert runs[0].commands["WRREG"] == 64 * 256
    assert runs[0].commands["ACTAB"] >= 64 * 32
    # The reference's simulator has 13,166 clocks; its source may not be used, and what it adds is not known.
    assert 0.8 < runs[0].cycles / 13166 < 1


@pytest.mark.parametrize("name", ["aim", "hbm-pim", "attacc"])
def test_an_expert_reads_each_weight_once_a_token(name):
    one, two = (
        simulate_bank_expert(name, Expert(1024, 512), tokens, record_commands=True) for tokens in (1, 2)
    )
    weights = 3 * 1024 * 512 * 2
    assert weights <= one.unit_bytes < 5 * weights  # with padding, most to whole tiles of HBM-PIM
    assert two.unit_bytes == 2 * one.unit_bytes
    assert two.cycles > one.cycles
    assert check_units(one.command_traces, load_bank_hardware(name).device).ok


def test_attention_takes_longer_with_context_and_batch_and_fewer_units():
    def cycles(context: int, batch: int, *sets: str) -> int:
        return simulate_bank_attention("attacc", "mixtral-8x7b", context, batch, sets).cycles

    by_context = [cycles(context, 1) for context in (128, 256, 512)]
    by_batch = [cycles(128, batch) for batch in (1, 2, 4)]
    by_level = [cycles(128, 1, f"level={level}") for level in ("bank", "bankgroup", "buffer")]
    by_channels = [cycles(128, 2, f"channels={channels}") for channels in (16, 8, 4)]
    for found in (by_context, by_batch, by_level, by_channels):
        assert found == sorted(found)
        assert len(set(found)) == len(found)


@pytest.mark.parametrize(
    ("name", "sets", "mac", "macs", "other", "pins"),
    [
        # 3 x 1024 x 512 weights of 2 bytes. Inputs go to each channel, 16 in 32 bytes; AiM writes and reads
        # accumulators of 16 banks, for 1,024 outputs of each matrix and two pieces of 512.
        ("aim", (), "MAC16", 3 * 1024 * 512 // (16 * 16), 0, 32 * (32 * (64 + 32) + 2 * 128)),
        ("attacc", ("level=bank",), "MACAB", 3 * 1024 * 512 // (16 * 64), 0, 32 * 16 * (64 + 32)),
        ("attacc", ("level=bankgroup",), "MACSB", 3 * 1024 * 512 // (16 * 16), 0, 32 * 16 * (64 + 32)),
        # Outputs are padded to 8 for each of 512 units; 16 partial sums of each are written.
        ("hbm-pim", (), "MACAB", 4096 * (1024 + 512) // (8 * 16), 2 * 4096 * 16 * 2, None),
    ],
)
def test_bytes_and_products_of_an_expert_by_hand(name, sets, mac, macs, other, pins):
    found = simulate_bank_expert(name, Expert(1024, 512), sets=sets)
    units = {"MAC16": 16, "MACSB": 16}.get(mac, 8 if name == "hbm-pim" else 64)
    assert found.commands[mac] == macs
    assert found.unit_bytes == 32 * units * macs + other  # a product takes 2 bytes
    assert pins is None or found.pin_bytes == pins


@pytest.mark.parametrize(
    ("name", "level", "opening"),
    [("aim", "bank", 0), ("attacc", "bank", 64), ("attacc", "bankgroup", 16), ("attacc", "buffer", 2)],
)
def test_bytes_of_attention_by_hand(name, level, opening):
    # Each of 32 queries reads keys and values of 128 elements for 256 tokens. On AttAcc one multiplication
    # more opens the first row of each of 16 channels early.
    sets = (f"level={level}",) if name == "attacc" else ()
    found = simulate_bank_attention(name, "mixtral-8x7b", 256, sets=sets)
    assert found.unit_bytes == 32 * 2 * 256 * 128 * 2 + 16 * opening * 32
    if name == "attacc":
        assert found.pin_bytes == 32 * 128 * 2  # the queries


@given(
    st.sampled_from(["aim", "attacc bank", "attacc bankgroup", "attacc buffer"]),
    st.integers(1, 200),
    st.integers(1, 2),
    st.integers(1, 100),
)
@settings(max_examples=8)
def test_more_work_or_fewer_channels_are_never_faster(device, context, batch, more):
    name, _, level = device.partition(" ")
    sets = ("refresh=none", f"level={level or 'bank'}")

    def cycles(context: int, batch: int, *changes: str) -> int:
        return simulate_bank_attention(name, "qwen3-30b-a3b", context, batch, (*sets, *changes)).cycles

    usual = cycles(context, batch)
    assert cycles(context + more, batch) >= usual
    assert cycles(context, batch + 1) >= usual
    assert cycles(context, batch, "channels=8") >= usual


def test_operands_that_do_not_fit_are_refused():
    for run, key in (
        (lambda: simulate_bank_attention("attacc", "mixtral-8x7b", 128, 1000), "context"),
        (lambda: simulate_bank_attention("hbm-pim", "mixtral-8x7b", 128), "hw"),
        (lambda: simulate_bank_attention("aim", "deepseek-v2", 128), "model"),
        (lambda: simulate_bank_attention("attacc", "mixtral-8x7b", 1 << 20, 8), "context"),
        (lambda: simulate_bank_expert("aim", Expert(1 << 20, 1 << 20)), None),
        (lambda: simulate_bank_expert("attacc", Expert(64, 64), sets=["level=buffer"]), "engine"),
    ):
        with pytest.raises(InputError) as refused:
            run()
        assert refused.value.key == key
        assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "level", "written"),
    [
        # By hand: a key of 128 elements is 8 columns, and so is a value; a head of keys has 4 queries with
        # copies of them. AiM writes 8 heads of keys, and 8 values a bank for each head.
        ("attacc", "bank", {"WR": 3 * 8 * 4 * 16}),
        ("attacc", "bankgroup", {"WR": 3 * 8 * 4 * 16}),
        ("attacc", "buffer", {"WR": 3 * 8 * 4 * 16}),
        ("aim", "bank", {"WR": 3 * 8 * 8, "WRA16": 3 * 8 * 8}),
    ],
)
def test_a_new_token_is_written_where_attention_reads_it(name, level, written):
    hardware = load_bank_hardware(name, [f"level={level}", "refresh=none"])
    run = {
        append: simulate_bank_attention(hardware, "mixtral-8x7b", 40, 3, record_commands=True, append=append)
        for append in (False, True)
    }
    assert check_units(run[True].command_traces, hardware.device).ok
    assert {word: count for word, count in run[True].commands.items() if word.startswith("WR")} == written
    opened = [set(rows_opened(run[append].command_traces)) for append in (False, True)]
    assert opened[1]
    assert opened[1] <= opened[0]


@pytest.mark.parametrize(
    ("name", "written"),
    [
        # By hand: as above for each token; AiM writes the values of 16 tokens in the columns of all banks.
        ("attacc", {"WR": 40 * 8 * 4 * 16}),
        ("aim", {"WR": 40 * 8 * 8, "WRA16": 3 * 8 * 8}),
    ],
)
def test_a_prompt_is_written_where_attention_reads_it(name, written):
    hardware = load_bank_hardware(name, ["refresh=none"])
    run, read = (
        simulate_bank_attention(
            hardware, "mixtral-8x7b", 40, record_commands=True, append=append, append_tokens=40
        )
        for append in (True, False)
    )
    assert check_units(run.command_traces, hardware.device).ok
    assert {word: count for word, count in run.commands.items() if word.startswith("WR")} == written
    assert set(rows_opened(run.command_traces)) == set(rows_opened(read.command_traces))


@pytest.mark.parametrize("name", ["attacc", "aim"])
def test_weights_of_an_expert_lie_behind_the_cache_in_the_same_banks(name):
    hardware, model = load_bank_hardware(name), load_model("qwen3-30b-a3b")
    asked = partial(simulate_bank_attention, hardware, model, 40, record_commands=True)
    expert = simulate_bank_expert(hardware, model, 1)
    alone, both = asked(), asked(expert_tokens=1)
    assert check_units(both.command_traces, hardware.device).ok
    read = "MACAB" if name == "attacc" else "MAC16"
    assert both.commands[read] == alone.commands[read] + expert.commands[read]
    of_cache, of_both = (rows_opened(run.command_traces) for run in (alone, both))
    weights = set(of_both[len(of_cache) :]) - set(of_cache)
    assert min(row for _, row in weights) > max(row for _, row in of_cache)
    with refused("too-large"):
        simulate_bank_attention(
            load_bank_hardware(name, ["rows=8226" if name == "attacc" else "rows=1035"]),
            model,
            40,
            expert_tokens=1,
        )


def test_latent_vectors_of_a_new_token_are_written_once():
    run = simulate_bank_attention("attacc", "deepseek-v2", 40, 2, append=True)
    assert run.commands["WR"] == 2 * (512 + 64) * 2 // 32
    assert run.pin_bytes == 2 * (512 + 64) * 2


def rows_opened(commands: UnitCommands) -> list[tuple[int, int]]:
    """Channel and row of each activation."""
    names, columns = np.array(commands.names), commands.columns
    opens = np.char.startswith(names[columns[1]], "ACT")
    return list(zip(columns[2][opens].tolist(), columns[7][opens].tolist(), strict=True))


def test_queries_of_a_head_share_reads_if_units_multiply_with_several_vectors():
    """By hand: a token's key has 2 columns over 4 banks, its value 2; 128 tokens are 8 a group."""

    def run(vectors: int):
        sets = ["channels=8", f"vectors={vectors}"]
        return simulate_bank_attention("attacc", "mixtral-8x7b", 128, sets=sets)

    one, four = run(1), run(4)
    extra = 8  # the first row opens early
    assert one.commands["MACAB"] == 8 * 4 * (8 * 2 + 8 * 2) + extra
    assert four.commands["MACAB"] == 8 * (8 * 2 + 8 * 2)
    assert {n: four.commands[n] for n in ("WRGB", "MVSB", "SFM")} == {
        n: one.commands[n] for n in ("WRGB", "MVSB", "SFM")
    }
    assert four.cycles < one.cycles


def test_latent_vectors_are_read_once_for_keys_and_values():
    """By hand: a key of 512 + 64 elements has 9 columns over 4 banks, 8 of which are the value."""
    run = simulate_bank_attention("attacc", "deepseek-v2", 32, sets=["channels=1"], record_commands=True)
    assert run.commands["MACAB"] == 128 * 2 * (9 + 8) + 1
    assert run.commands["SFM"] == 128
    rows = run.command_traces.columns[7, run.command_traces.columns[1] == 4]
    assert rows.max() == 0


@pytest.mark.parametrize(
    ("limit", "context", "attended"),
    [({"window": 65}, 500, 65), ({"window": 65}, 65, 65), ({"chunk": 64}, 129, 1), ({"chunk": 64}, 128, 64)],
)
def test_tokens_beyond_a_window_or_a_chunk_are_left_out(limit, context, attended):
    shape = load_model("mixtral-8x7b")
    limited = dataclasses.replace(shape, attention=dataclasses.replace(shape.attention, **limit))
    found = simulate_bank_attention("attacc", limited, context)
    assert found.commands == simulate_bank_attention("attacc", shape, attended).commands


@pytest.mark.parametrize("name", ["mixtral-8x7b", "deepseek-v2"])
def test_units_in_banks_do_not_choose_tokens(name):
    shape = load_model(name)
    indexed = dataclasses.replace(shape.attention, index=Index(64, heads=2, size=6))
    with refused("unsupported model"):
        simulate_bank_attention("attacc", dataclasses.replace(shape, attention=indexed), 32)


def test_bytes_across_the_pins_are_those_of_registers_and_buffers():
    for name, moved in (("aim", ("WRGB", "WRMAC16", "RDMAC16")), ("attacc", ("WRGB",))):
        result = simulate_bank_expert(name, Expert(256, 256))
        assert result.pin_bytes == 32 * sum(result.commands[word] for word in moved)


def test_energy_is_that_of_banks_commands_pins_and_products():
    result = simulate_bank_expert("attacc", Expert(256, 256))
    energy, commands = result.energy_nj, result.commands
    # By hand: 64 banks of 32 bytes at 0.55 pJ a bit; the interposer has 0.3; a product 0.32 pJ.
    assert energy["MACAB"] == pytest.approx(commands["MACAB"] * 64 * 256 * 0.55 / 1000)
    assert energy["io"] == pytest.approx(commands["WRGB"] * 256 * 0.3 / 1000)
    assert energy["multiply"] == pytest.approx(commands["MACAB"] * 64 * 16 * 0.32 / 1000)
    assert energy["total"] == pytest.approx(sum(nj for n, nj in energy.items() if n != "total" and nj))
    aim_energy = simulate_bank_expert("aim", Expert(256, 256))
    assert aim_energy.energy_nj["ACT16"] == pytest.approx(aim_energy.commands["ACT16"] * 16 * 2.95035)
    assert aim_energy.energy_nj["TMOD"] is None
    unknown = simulate_bank_expert("hbm-pim", Expert(256, 256)).energy_nj
    assert {name for name, nj in unknown.items() if nj} == set()


def test_operands_lie_where_programs_read_them():
    """By hand: 4,096 tokens of 128 elements of 2 bytes are 1 MiB, in 16 rows of 1 KiB of 64 banks; 32 queries."""
    placed = place_bank_operands("attacc", "mixtral-8x7b", "attention")
    assert [(o.name, o.first_row, o.rows, o.banks, o.channels, o.bytes) for o in placed.operands] == [
        ("keys", 0, 32, 64, 16, 2 << 20),
        ("values", 8192, 32, 64, 16, 2 << 20),
    ]
    assert set(placed.columns[:, :32].ravel().tolist()) == {32}
    aim_values = place_bank_operands("aim", "mixtral-8x7b", "attention").operands[1]
    assert (aim_values.rows, aim_values.bytes) == (32, 1 << 20)


# ---- The command line


def test_cases_are_compared_on_the_command_line(here):
    cases = [str(CASES / f"{name}.yaml") for name in ("aim_gemv_small", "attacc_bg_attention_small")]
    status, out, err = call("compare", "banks", *cases)
    assert (status, err) == (0, "")
    assert "aim_gemv_small: equal; 288 commands compared, 1,248 clocks" in out
    assert "attacc_bg_attention_small: illegal for the device at clocks 234" in out
    for file in CASES.glob("aim_gemv_small*"):
        shutil.copy(file, here)
    case = Path("aim_gemv_small.yaml")
    case.write_text(case.read_text().replace("cycles: 1248", "cycles: 1249"))
    status, out, _ = call("compare", "banks", str(case), "--json", "-", "--commands", "ours.csv.gz")
    found = json.loads(out)
    assert (status, found["equal"], found["compared"]) == (1, False, 288)
    assert found["first_difference"] == "the run ends at clock 1248, the reference at 1249"
    ours, reference = (
        gzip.decompress(Path(name).read_bytes()) for name in ("ours.csv.gz", f"{case.stem}.commands.csv.gz")
    )
    assert ours == reference


def test_a_case_with_wrong_cycles_is_refused_in_one_line(here):
    text = (CASES / "aim_gemv_small.yaml").read_text()
    Path("wrong.yaml").write_text(text.replace("cycles: 1248", "cycles: many"))
    status, _, err = call("compare", "banks", "wrong.yaml")
    assert status == 2
    assert err.startswith("ndpsim: error: wrong.yaml: result.cycles: 'many' is not a whole number")


def test_programs_run_and_are_checked_on_the_command_line(here):
    program = CASES / "attacc_bg_attention_small.program.csv.gz"
    for rules, legal in (("standard", 0), ("reference", 1)):
        words = [
            "pim",
            str(program),
            "--hw",
            "attacc",
            "--rules",
            rules,
            "--json",
            "-",
            "--commands",
            "c.csv",
        ]
        status, out, err = call(*words)
        assert (status, err) == (0, "")
        assert json.loads(out)["commands"]["MACSB"] == 64
        status, out, _ = call("check", "c.csv", "--hw", "attacc")
        assert status == legal
        assert ("clock 234: row state" in out) == (legal == 1)
    assert call("check", "c.csv")[0] == 2
    assert call("check", "c.csv", "--hw", "attacc", "--ranks", "2")[0] == 2
    assert call("compare", "banks", "none.yaml")[0] == 2
    other = (CASES / "aim_gemv_small.yaml").read_text().replace("controller: aim", "controller: newton")
    Path("other.yaml").write_text(other)
    status, out, _ = call("compare", "banks", "other.yaml")
    assert status == 1
    assert out.startswith("not compared: other.yaml:")
    assert call("gemv", "--hw", "aim", "--shape", "64,64", "--layout", "striped")[0] == 2
    status, out, _ = call(
        "attention", "--hw", "aim", "--model", "mixtral-8x7b", "--context", "64", "--json", "-"
    )
    assert (status, json.loads(out)["config"]["workload"]["context"]) == (0, 64)


def test_a_program_runs_beside_a_host_on_the_command_line(here):
    program = Path("program.csv")
    program.write_text("instruction,size,channels,bank,row\nMAC_ABK,64,0-1,,0\nEOC,,,,\n")
    words = ("pim", str(program), "--hw", "aim", "--set", "channels=2")
    status, out, err = call(*words, "--host-traffic", "1", "--arbitration", "ndp-first", "--json", "-")
    assert (status, err) == (0, "")
    assert json.loads(out)["host"]["arbitration"] == "ndp-first"
    status, out, _ = call(*words, "--host-traffic", "1")
    assert "GB/s alone; units" in out
    assert call(*words, "--arbitration", "ndp-first")[0] == 2
    assert call(*words, "--host-traffic", "x")[0] == 2


def test_layouts_are_shown_on_the_command_line(here):
    words = ("show", "layout", "attention", "--model", "mixtral-8x7b", "--hw", "aim")
    status, out, err = call(*words, "--plot", "banks.svg")
    assert (status, err) == (0, "")
    assert "values   1,000        32" in out
    assert Path("banks.svg").stat().st_size > 1000
    for wrong in (("striped", "--hw", "aim"), ("attention", "--hw", "hbm-pim"), ("gemv", "--hw", "trimoe")):
        status, _, err = call("show", "layout", wrong[0], "--model", "mixtral-8x7b", *wrong[1:])
        assert (status, err.count("\n")) == (2, 1)
    assert call("show", "layout", "gemv", "--hw", "aim", "--bits", "4")[0] == 2


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ("a: 1", "begins with 'a: 1'"),
        ("\xe3", "is not ASCII text"),
        ("", "begins with an empty line"),
        ("instruction,size,channels,bank,row\nEOC,,,,\n", "is a program of units in banks"),
        ("clock,command\n", "give --standard"),
    ],
)
def test_check_says_of_a_file_that_it_reads_no_such_file_before_it_asks_for_options(tmp_path, content, named):
    (tmp_path / "file").write_text(content)
    assert named in call("check", tmp_path / "file").err


@pytest.mark.parametrize("host", [None, {"host_gbps": 40.0}])
def test_a_program_beside_one_on_other_channels_has_the_commands_that_it_has_alone(tmp_path, host):
    hardware = load_bank_hardware("attacc", ["channels=4"])
    files = [tmp_path / "long.csv", tmp_path / "short.csv"]
    for file, channels, rows in zip(files, ("0 3", "1"), (60, 9), strict=True):
        lines = [f"MACAB,{channels},0,0,0,0,{row},{column}" for row in range(rows) for column in range(32)]
        file.write_text("\n".join(["request,channels,pseudochannel,rank,bankgroup,bank,row,column", *lines]))
    both = run_pim(files, hardware, record_commands=True, host=host)
    long, short = (run_pim(file, hardware, record_commands=True, host=host) for file in files)
    assert (both.cycles, both.requests) == (long.cycles, long.requests + short.requests)
    assert long.cycles > short.cycles + hardware.device.timings["nREFI"]
    found, of_long, of_short = (r.command_traces.columns for r in (both, long, short))
    assert np.array_equal(found[:, found[2] % 3 == 0], of_long[:, of_long[2] % 3 == 0])
    early = found[:, (found[2] == 1) & (found[0] <= short.cycles)]
    assert np.array_equal(early, of_short[:, of_short[2] == 1])
    # Behind its end a program's channel is refreshed, and so is one without a program.
    late = [both.command_traces.names[n] for n in found[1, (found[2] == 1) & (found[0] > short.cycles)]]
    assert "REFab" in late
    assert "MACAB" not in late
    assert both.commands["MACAB"] == 32 * (2 * 60 + 9)
    assert check_units(both.command_traces, hardware.device).ok
    if host is not None:
        assert both.host["units_cycles_alone"] == run_pim(files[0], hardware).cycles


def test_two_programs_do_not_share_a_channel(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = "request,channels,pseudochannel,rank,bankgroup,bank,row,column\nMACAB,{},0,0,0,0,1,1\n"
    for name, channels in (("a", "0-2"), ("b", "2-3")):
        Path(f"{name}.csv").write_text(text.format(channels))
    done = call("pim", "a.csv", "b.csv", "--hw", "attacc")
    assert done.status == 2
    assert "programs 1 and 2 have commands for channel 2" in done.err
