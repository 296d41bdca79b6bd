"""Command traces in the forms of other tools: line by line, and as their readers parse them."""

from __future__ import annotations

import importlib
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ndpsim.dram.traces.commands
from builders.command_lines import NUMBER, named
from mistakes import mistake_of, refused
from ndpsim.dram.spec import Device, command_names, resolve
from ndpsim.dram.traces import CommandTrace, check_command_form, command_forms, write_commands

FORMS = ("drampower", "drampower5", "dramsim3", "ndpsim", "ramulator2")
DEVICE = resolve("DDR5", "DDR5_16Gb_x8", "DDR5_4800AN", ranks=2)  # 8 bank groups of 4 banks


# One of each command.
EVERY = named(
    (0, "ACT", 0, 2, 3, 0x800, -1),
    (37, "RD", 0, 2, 3, 0x800, 32),
    (50, "WR", 0, 2, 3, 0x800, 127),
    (100, "PREpb", 0, 2, 3, -1, -1),
    (120, "ACT", 0, 7, 0, 65535, -1),
    (160, "RDA", 0, 7, 0, 65535, 0),
    (200, "WRA", 0, 0, 1, 5, 6),
    (300, "PREab", 0, -1, -1, -1, -1),
    (340, "REFab", 0, -1, -1, -1, -1),
    (1000, "PREsb", 0, -1, 2, -1, -1),
    (1100, "REFsb", 0, -1, 2, -1, -1),
)

EXPECTED = {
    "ndpsim": """\
clock,command,rank,bankgroup,bank,row,column
0,ACT,0,2,3,2048,-1
37,RD,0,2,3,2048,32
50,WR,0,2,3,2048,127
100,PREpb,0,2,3,-1,-1
120,ACT,0,7,0,65535,-1
160,RDA,0,7,0,65535,0
200,WRA,0,0,1,5,6
300,PREab,0,-1,-1,-1,-1
340,REFab,0,-1,-1,-1,-1
1000,PREsb,0,-1,2,-1,-1
1100,REFsb,0,-1,2,-1,-1
""",
    "ramulator2": """\
clock,command,Channel,Rank,BankGroup,Bank,Row,Column,type,source
0,ACT,1,0,2,3,2048,-1,-1,-1
37,RD,1,0,2,3,2048,32,0,-1
50,WR,1,0,2,3,2048,127,1,-1
100,PREpb,1,0,2,3,-1,-1,-1,-1
120,ACT,1,0,7,0,65535,-1,-1,-1
160,RDA,1,0,7,0,65535,0,0,-1
200,WRA,1,0,0,1,5,6,1,-1
300,PREab,1,0,-1,-1,-1,-1,-1,-1
340,REFab,1,0,-1,-1,-1,-1,-1,-1
1000,PREsb,1,0,-1,2,-1,-1,-1,-1
1100,REFsb,1,0,-1,2,-1,-1,-1,-1
""",
    "dramsim3": """\
0                  activate               1   0   2   3    0x800     -0x1
37                 read                   1   0   2   3    0x800     0x20
50                 write                  1   0   2   3    0x800     0x7f
100                precharge              1   0   2   3     -0x1     -0x1
120                activate               1   0   7   0   0xffff     -0x1
160                read_p                 1   0   7   0   0xffff      0x0
200                write_p                1   0   0   1      0x5      0x6
300                precharge              1   0  -1  -1     -0x1     -0x1
340                refresh                1   0  -1  -1     -0x1     -0x1
1000               precharge              1   0  -1   2     -0x1     -0x1
1100               refresh_bank           1   0  -1   2     -0x1     -0x1
""",
    "drampower": """\
0,ACT,11
37,RD,11
50,WR,11
100,PRE,11
120,ACT,28
160,RDA,28
200,WRA,1
300,PREA,0
340,REF,0
""",
    "drampower5": """\
0,ACT,0,2,11,2048,0
37,RD,0,2,11,2048,32,0x
50,WR,0,2,11,2048,127,0x
100,PRE,0,2,11,0,0
120,ACT,0,7,28,65535,0
160,RDA,0,7,28,65535,0,0x
200,WRA,0,0,1,5,6,0x
300,PREA,0,0,0,0,0
340,REFA,0,0,0,0,0
1000,PRESB,0,0,2,0,0
1100,REFSB,0,0,2,0,0
""",
}


def what_it_has(form: str) -> CommandTrace:
    """The traces of each command that a form has."""
    return EVERY.take(np.arange(EXPECTED[form].count("\n") - (command_forms()[form].header is not None)))


def test_the_forms_are_those_promised():
    assert tuple(sorted(command_forms())) == FORMS
    assert set(EXPECTED) == set(FORMS)


@pytest.mark.parametrize("form", FORMS)
def test_each_command_is_written_as_by_hand(tmp_path, form):
    path = tmp_path / "commands"
    write_commands(path, what_it_has(form), form, 1, DEVICE)
    assert path.read_text() == EXPECTED[form]


@pytest.mark.parametrize("form", FORMS)
def test_parts_of_a_trace_join_without_a_seam(tmp_path, form, monkeypatch):
    path = tmp_path / "commands"
    for size in (1, 2, 4):
        monkeypatch.setattr(ndpsim.dram.traces.commands, "_PART", size)
        write_commands(path, what_it_has(form), form, 1, DEVICE)
        assert path.read_text() == EXPECTED[form]


@pytest.mark.parametrize("form", FORMS)
def test_no_commands_make_a_file_of_the_header(tmp_path, form):
    path = tmp_path / "commands"
    write_commands(path, named((1, "ACT", 0, 0, 0, 0, 0)).take(np.arange(0)), form, 0, DEVICE)
    from ndpsim.dram.traces.command_form import Facts

    header = command_forms()[form].header
    assert path.read_text() == ("" if header is None else f"{header(Facts())}\n")


@pytest.mark.parametrize("form", FORMS)
def test_the_example_of_a_form_is_a_line_of_it(tmp_path, form):
    path = tmp_path / "commands"
    lines = [(37, "RD", 0, 2, 2, 123, 32), (1952, "ACT", 0, 0, 0, 0x800, -1)]
    write_commands(path, named(*lines), form, 0, DEVICE)
    assert command_forms()[form].example in path.read_text().splitlines()


# As their readers parse them.

COORDINATE = st.integers(-1, 2**17)
# DRAMsim3 and DRAMPower have no commands of refresh management.
_RFM = {"RFMab", "RFMsb"}
LINES = st.lists(
    st.tuples(
        st.integers(0, 10**15),
        st.sampled_from(sorted(set(NUMBER) - _RFM)),
        st.integers(0, 63),
        *[COORDINATE] * 4,
    ),
    min_size=1,
    max_size=20,
)


def written(tmp_path_factory, lines: list[tuple], *options: object) -> list[str]:
    path = tmp_path_factory.getbasetemp() / "commands"
    write_commands(path, named(*lines), *options)
    return path.read_text().splitlines()


@settings(max_examples=50, deadline=None)
@given(lines=LINES, channel=st.integers(0, 200))
def test_dramsims_own_script_can_take_its_form_apart(tmp_path_factory, lines, channel):
    # scripts/validation.py: eight elements between blanks; the row and the column are hexadecimal.
    text = written(tmp_path_factory, lines, "dramsim3", channel)
    for line, (clock, _, *place) in zip(text, lines, strict=True):
        elements = line.split()
        assert len(elements) == 8
        assert [int(elements[0]), *map(int, elements[2:6]), *(int(e, 16) for e in elements[6:])] == [
            clock,
            channel,
            *place,
        ]
        assert re.match(r"\d+ +[a-z_]+ {2,}", line)


def test_banks_are_numbered_as_the_device_has_them(tmp_path):
    small = resolve("DDR5", "DDR5_8Gb_x8", "DDR5_4800AN")  # two banks in a group
    path = tmp_path / "commands"
    write_commands(path, named((1, "ACT", 0, 3, 1, 5, -1)), "drampower", 0, small)
    assert path.read_text() == "1,ACT,7\n"


# Refusals.


def refusal(tmp_path, trace: CommandTrace, *options: object) -> str:
    """The mistake of writing a trace, which keeps an existing file."""
    path = tmp_path / "commands"
    path.write_text("old")
    wrong = mistake_of(write_commands, path, trace, *options)
    assert path.read_text() == "old"
    assert [item.name for item in tmp_path.iterdir()] == ["commands"]
    return wrong


def test_an_unknown_form_gets_the_nearest(tmp_path):
    assert refusal(tmp_path, EVERY, "dramsim") == "unknown-name form ? dramsim3"
    with refused("unknown-name form ? dramsim3") as caught:
        check_command_form("dramsim")
    assert all(name in caught.value.problem for name in FORMS)
    for form in FORMS:
        check_command_form(form)


@pytest.mark.parametrize(
    ("channel", "code"), [(-1, "range"), (1.0, "type"), ("0", "type"), (True, "type"), (None, "type")]
)
def test_a_channel_is_a_number(tmp_path, channel, code):
    assert refusal(tmp_path, EVERY, "ramulator2", channel) == f"{code} channel"


@pytest.mark.parametrize("form", ["drampower", "drampower5"])
def test_numbered_banks_need_the_device(tmp_path, form):
    assert refusal(tmp_path, what_it_has("drampower"), form) == "missing device"


@pytest.mark.parametrize("form", ["drampower", "drampower5"])
@pytest.mark.parametrize(("group", "bank"), [(8, 0), (0, 4)])
def test_a_bank_that_the_device_lacks_is_refused(tmp_path, form, group, bank):
    lines = [(1, "ACT", 0, 0, 0, 5, -1), (9, "ACT", 0, group, bank, 5, -1)]
    assert refusal(tmp_path, named(*lines), form, 0, DEVICE) == "conflict device"


@pytest.mark.parametrize("name", ["PREsb", "REFsb"])
def test_what_drampower_lacks_is_refused(tmp_path, name):
    trace = named((1, name, 0, -1, 2, -1, -1))
    assert refusal(tmp_path, trace, "drampower", 0, DEVICE) == "unsupported form"


def test_drampower_has_one_rank(tmp_path):
    lines = [(1, "ACT", 1, 0, 0, 5, -1), (9, "ACT", 0, 0, 0, 5, -1)]
    assert refusal(tmp_path, named(*lines), "drampower", 0, DEVICE) == "unsupported form"
    write_commands(tmp_path / "commands", named(*lines).take(np.array([0])), "drampower", 0, DEVICE)
    assert (tmp_path / "commands").read_text() == "1,ACT,0\n"


@pytest.mark.parametrize("number", [-1, len(command_names())])
def test_a_command_of_no_name_is_an_error_of_the_caller(tmp_path, number):
    trace = CommandTrace(*[np.array([value]) for value in (1, number, 0, 0, 0, 0, 0)])
    for form in FORMS:
        with refused("range trace"):
            write_commands(tmp_path / "commands", trace, form, 0, DEVICE)
    assert list(tmp_path.iterdir()) == []


# Forms are files.


def test_a_new_form_is_a_new_file(tmp_path, new_format):
    new_format(
        "command_forms",
        "from ndpsim.dram.traces.command_form import CommandForm\n"
        "FORM = CommandForm('clocks', '5', lambda trace, setting: (f'{t}\\n' for t in trace.clock))\n",
    )
    write_commands(tmp_path / "out", EVERY, "clocks")
    assert (tmp_path / "out").read_text().split() == [str(clock) for clock in EVERY.clock]


@pytest.mark.parametrize("form", FORMS)
def test_every_command_has_a_name_or_is_refused(form):
    module = importlib.import_module(f"ndpsim.dram.traces.command_formats.{form}")
    assert form in ("ndpsim", "ramulator2") or set(module._NAMES) <= set(command_names())
    missing = set(NUMBER) - set(getattr(module, "_NAMES", NUMBER))
    lacks = {"drampower": {"PREsb", "REFsb", *_RFM}, "drampower5": _RFM, "dramsim3": _RFM}
    assert missing == lacks.get(form, set())


# Other memories.

HBM3 = resolve("HBM3", "HBM3_8Gb_8hi", "HBM3_6400Mbps")
GDDR6 = resolve("GDDR6", "GDDR6_8Gb_x16", "GDDR6_14000_1350mV_double")
GDDR7 = resolve("GDDR7", "GDDR7_16Gb_x8", "GDDR7_28000_PAM3")
LPDDR5 = resolve("LPDDR5", "LPDDR5_8Gb_x16", "LPDDR5_6400", ranks=2)


def written_of(path, device: Device, form: str, *lines: tuple) -> str:
    """Commands of a device in a form."""
    write_commands(path, named(*lines, names=device.standard.names), form, 0, device)
    return path.read_text()


@pytest.mark.parametrize(
    ("device", "bank", "levels", "place"),
    [
        (HBM3, (1, 6, 2), "Channel,PseudoChannel,Sid,BankGroup,Bank", "0,1,1,2,2"),
        (GDDR6, (0, 3, 2), "Channel,BankGroup,Bank", "0,3,2"),
        (GDDR7, (0, 0, 14), "Channel,Bank", "0,14"),
    ],
    ids=["HBM3", "GDDR6", "GDDR7"],
)
def test_ramulators_levels_are_those_of_the_standard(tmp_path, device, bank, levels, place):
    lines = (1, "ACT", *bank, 7, -1), (65, "RD", *bank, 7, 3), (130, "WR", *bank, 7, 3)
    assert written_of(tmp_path / "c", device, "ramulator2", *lines).splitlines() == [
        f"clock,command,{levels},Row,Column,type,source",
        f"1,ACT,{place},7,-1,-1,-1",
        f"65,RD,{place},7,3,0,-1",
        f"130,WR,{place},7,3,1,-1",
    ]


def test_drampower_takes_the_second_half_of_an_activation_for_it(tmp_path):
    lines = (
        (1, "ACT1", 1, 2, 3, 7, -1),
        (2, "ACT2", 1, 2, 3, 7, -1),
        (20, "CAS_RD", 1, 2, 3, -1, -1),
        (21, "RD", 1, 2, 3, 7, 5),
        (90, "PREpb", 1, 2, 3, -1, -1),
        (200, "REFpb", 0, 1, 0, -1, -1),
    )
    text = written_of(tmp_path / "c", LPDDR5, "drampower5", *lines)
    assert text == "2,ACT,1,2,11,7,0\n21,RD,1,2,11,7,5,0x\n90,PRE,1,2,11,0,0\n200,REFP2B,0,1,4,0,0\n"
    for form in ("drampower", "dramsim3"):
        with refused("unsupported form"):
            written_of(tmp_path / "c", LPDDR5, form, *lines)


@pytest.mark.parametrize("form", ["drampower", "drampower5", "dramsim3"])
def test_half_clocks_are_refused_where_a_form_has_whole_ones(tmp_path, form):
    with refused("unsupported form"):
        written_of(tmp_path / "c", HBM3, form, (1, "ACT", 0, 0, 0, 7, -1))
