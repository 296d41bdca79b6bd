"""Options that mean nothing in a call, hints, and bad values and files by their kinds: one good line each."""

from __future__ import annotations

import gzip
import io
import json
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from ndpsim.cli.main import main
from ndpsim.config import data_path
from ndpsim.traces import HEADER

_COMMANDS = ",".join(HEADER) + "\n"


def refused(*arguments: str) -> str:
    """The one line with which a call must be refused, before anything runs."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err), pytest.raises(SystemExit) as caught:
        main(list(arguments))
    assert (caught.value.code, out.getvalue(), len(err.getvalue().splitlines())) == (2, "", 1), err.getvalue()
    return err.getvalue().removeprefix("ndpsim: error: ").rstrip("\n")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with good traces to be misused; nothing runs, and nothing is written in it."""

    def ran(*arguments: object, **options: object) -> None:
        raise AssertionError("ran before the mistake was found")

    monkeypatch.setattr("ndpsim.simulate.lane.run_channel", ran)
    monkeypatch.chdir(tmp_path)
    Path("addresses").write_text("LD 0x40\nST 0x80\n")
    Path("places").write_text("R 0,0,1,3,9674,61\n")
    Path("commands.csv").write_text(_COMMANDS + "1,ACT,0,0,0,0,-1\n")
    return tmp_path


# Options that mean nothing

_NAMED = ("--standard", "DDR5", "--org", "DDR5_16Gb_x8", "--timing", "DDR5_4800AN")

MEANINGLESS = [
    ("gemv --slice-clocks 1000", "--slice-clocks: needs --arbitration slice"),
    ("gemv --host-traffic 1 --slice-clocks 1000", "--slice-clocks: needs --arbitration slice"),
    (
        "gemv --host-traffic 1 --arbitration ndp-first --slice-clocks 9",
        "--slice-clocks: needs --arbitration slice",
    ),
    ("gemv --scale-bits 16", "--scale-bits: needs --group-size"),
    ("gemv --bits 4 --zero-point-bits 4", "--zero-point-bits: needs --group-size"),
    ("relayout --bits 4 --scale-bits 8", "--scale-bits: needs --group-size"),
    ("show layout striped --bits 4 --scale-bits 8", "--scale-bits: needs --group-size"),
    ("gemv --tokens 1 --tokens 2", "--tokens: is given 2 times"),
    ("gemv --group-size 0", "--group-size: 0 is not a whole number from 1"),
    ("show layout striped --bits 4 --group-size 0", "--group-size: 0 is not a whole number from 1"),
    ("gemv --bits gate=4,up=4,down=4,gate=8", "--bits: "),
    ("gemv --engine host-read --tokens 1", "--tokens: needs --engine ndp: the host only reads"),
    ("gemv --engine host-read --host-traffic 1", "--host-traffic: needs --engine ndp"),
    ("gemv --set dram.row_cap=4", "--set: dram.row_cap: is of row_policy: closed-cap, and rows stay open"),
    ("dram addresses --row-cap 4", "--row-cap: needs --row-policy closed-cap"),
    (
        "dram addresses --row-policy open --row-cap 4",
        "--row-cap: needs --row-policy closed-cap",
    ),
    ("dram addresses --commands-format ndpsim", "--commands-format: needs --commands"),
    ("dram addresses --channel 0", "--channel: needs --commands"),
    ("dram places --wrap", "--wrap: is for addresses; the requests of this trace have coordinates"),
    ("dram places --mapper RoBaRaCoCh", "--mapper: is for addresses; the requests of this trace have"),
    ("compare ramulator addresses --row-cap 2", "--row-cap: needs --row-policy closed-cap"),
    ("compare ramulator places --mapper MOP4CLXOR", "--mapper: is for addresses; the requests of this trace"),
    ("check commands.csv --hw trimoe --standard DDR5", "--standard: describes the DRAM, as --hw does"),
    ("check commands.csv --hw trimoe --lanes 8 --ranks 1", "--ranks: is of one channel; each of --lanes is"),
    ("relayout --topology all --set link.topology=mesh", "--topology: --set link.topology says it, too"),
    ("relayout --topology ring --set link.topology=ring", "--topology: --set link.topology says it, too"),
    ("import addresses --force", "--force: needs --out"),
    ("show hw trimoe --group-size 1", "--group-size: belongs to show layout and processor"),
    ("show model mixtral-8x7b --bits 16", "--bits: belongs to show layout and processor"),
]


@pytest.mark.parametrize(("call", "line"), MEANINGLESS)
def test_an_option_that_means_nothing_is_refused_as_it_is_typed(call, line):
    assert refused(*call.split()).startswith(line)


@pytest.mark.parametrize(
    ("call", "line"),
    [
        ("check commands.csv --hw trimoe --lanes 99999999", "--lanes: 99999999 is not a whole number from 1 to 128"),
        ("check commands.csv --hw trimoe --lanes 0", "--lanes: 0 is not a whole number from 1"),
        ("check commands.csv --hw trimoe --ranks 0", "--ranks: 0 is not a whole number from 1"),
        ("check commands.csv --hw trimoe --refresh x", "--refresh: unknown refresh 'x' (known: all-bank"),
        ("check commands.csv --hw trimoe --limit -1", "--limit: -1 is not a whole number from 0 to 1000000"),
        ("check commands.csv --hw trimo", "--hw: unknown hardware 'trimo'; did you mean 'trimoe'?"),
        ("check commands.csv --standard DDR5 --org X --timing Y", "--org: unknown DDR5 organisation 'X'"),
        ("dram addresses --org X", "--org: unknown DDR5 organisation 'X'"),
        ("dram addresses --set nCLL=4", "--set nCLL: unknown timing 'nCLL'; did you mean 'nCL'?"),
        ("dram addresses --set nCL=0", "--set nCL: 0 is not a whole number of clocks from 1 to 1000000"),
        ("dram addresses --set nCL=٤٠", "--set: 'nCL=٤٠' is not of the form nCL=40"),
        ("dram addresses --hw x", "--hw: unknown hardware 'x'"),
        ("compare ramulator addresses --format x", "--format: unknown request trace format 'x'"),
        ("relayout --hw x", "--hw: unknown hardware 'x'"),
        ("show hw x", "show hw: unknown hardware 'x'"),
        ("show model x", "show model: unknown model 'x'"),
        ("gemv --layout sharded:٤", "--layout: 'sharded:٤' does not say over how many DIMMs"),
        ("gemv --bits 1_6", "--bits: '1_6' is not one of 16"),
    ],
)  # fmt: skip
def test_messages_name_options_as_they_are_typed(call, line):
    assert refused(*call.split()).startswith(line)


def test_an_empty_name_is_not_a_default():
    assert refused("gemv", "--layout", "").startswith("--layout: unknown layout ''")
    assert refused("show", "layout", "striped", "--hw", "").startswith("--hw: unknown hardware ''")
    assert refused("check", "commands.csv", *_NAMED, "--refresh", "").startswith("--refresh: unknown")
    assert refused("gemv", "--bits", "").startswith("--bits: '' is not one of 16")


def test_a_number_of_thousands_of_digits_is_one_line():
    assert refused("dram", "addresses", "--set", "nCL=" + "9" * 5000).startswith("--set: 'nCL=999")
    assert refused("gemv", "--bits", "4" * 5000).startswith("--bits: '444")


# Hints

_CLOCKS = " or ".join(f"'ndp.{unit}.clock_mhz'" for unit in ("gemv", "systolic", "activation", "relayout"))


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("nCL", "'dram.nCL'"),
        ("ncl", "'dram.nCL'"),
        ("ranks", "'dimm.ranks' or 'host.memory.ranks'"),
        ("dimm.rank", "'dimm.ranks'"),
        ("dimm.channels", "'dimm.subchannels'"),
        ("dram.nCLL", "'dram.nCL'"),
        ("dram.timings.nCL", "'dram.nCL'"),
        ("dim.ranks", "'dimm.ranks' or 'host.memory.ranks'"),
        ("topology", "'link.topology'"),
        ("gemv.multipliers", "'ndp.gemv.multipliers'"),
        ("ndp.fifo_bursts", "'ndp.gemv.fifo_bursts'"),
        ("link.gbps", "'link.link_gbps'"),
        ("IDD4R", "'dram.power.IDD4R'"),
        ("arrays", "'ndp.systolic.arrays'"),
        ("gemv.clock_mhz", "'ndp.gemv.clock_mhz'"),
        ("clock_mhz", _CLOCKS),
    ],
)  # fmt: skip
def test_a_hint_is_the_nearest_key_of_the_section_then_of_any(written, meant):
    problem = refused("gemv", "--set", f"{written}=40")
    assert problem == f"--set: {written}: unknown key; did you mean {meant}?"


def test_a_key_of_a_file_in_the_wrong_section_is_found_in_the_right_one():
    text = data_path("hwconfigs", "trimoe").read_text()
    for key, meant in (("ranks", "dimm.ranks' or 'host.memory.ranks"), ("nCL", "dram.overrides.nCL")):
        Path("own.yaml").write_text(f"{text}{key}: 2\n")
        line = len(text.splitlines()) + 1
        assert refused("show", "hw", "own.yaml").startswith(
            f"own.yaml:{line}: {key}: unknown key '{key}'; did you mean '{meant}'?"
        )


def test_a_timing_that_makes_no_sense_is_named_where_it_is_set():
    problem = refused("gemv", "--set", "dram.nREFI=1")
    assert problem.startswith("--set: dram.nREFI: 1 clocks between refreshes leave no time")
    problem = refused("gemv", "--set", "dram.nRFC=1000000")
    assert "ddr5-4800.yaml:" in problem
    assert ": nREFI: 9375 clocks between refreshes leave no time" in problem


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("hello world\n", "bad.ini:1: 'hello world' is neither [section] nor key = value"),
        ("[dram_structure\nprotocol=DDR4\n", "bad.ini:1: '[dram_structure' is neither [section] nor"),
        ("a: [1\n", "bad.ini:1: a: comes before the first [section]"),
        ("\0\0", r"bad.ini:1: '\x00\x00' is neither [section] nor key = value"),
    ],
)
def test_a_malformed_ini_is_judged_as_an_ini(text, line):
    Path("bad.ini").write_text(text)
    assert refused("import", "bad.ini").startswith(line)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('{\n"hidden_size": 1,\n"hidden_size": 2}', "m.json:3: hidden_size: is given twice"),
        ('{"text_config":\n{"a": 1,\n"a": 1}}', "m.json:3: a: is given twice"),
        ('{"a": 1, "a": 2,\n "b": {"a": 3}}', "m.json: a: is given twice"),  # in which line is not sure
    ],
)
def test_a_key_that_json_has_twice_is_refused(text, line):
    Path("m.json").write_text(text)
    assert refused("gemv", "--model", "m.json") == line


# Values and files by their kinds

_NO_NUMBERS = (
    "nan", ".nan", ".inf", "-.inf", "-1", "0", "1e400", "9" * 5000, "٤", "''", "' '", "yes", "true", "null",
    "[1]", "{a: 1}", "0x10", "1_000", "2001-01-01", "&a *a", "*a", "- 1", "'4'", "@", "%", "|", "16 16", "!!x 1",
)  # fmt: skip


@pytest.mark.parametrize("key", ["dimm.ranks", "link.link_gbps", "dram.nCL", "ndp.gemv.fifo_bursts"])
@pytest.mark.parametrize("value", _NO_NUMBERS, ids=lambda value: value[:20])
def test_what_is_no_number_in_range_is_one_line_with_the_key(key, value):
    assert refused("show", "hw", "trimoe", "--set", f"{key}={value}").startswith(f"--set: {key}: ")


def _aliases() -> bytes:
    lines = [b"a: &a [1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    lines += [b"%c: &%c [%s]" % (n, n, b", ".join([b"*%c" % (n - 1)] * 9)) for n in range(98, 110)]
    return b"\n".join(lines)


_GOOD = data_path("hwconfigs", "trimoe").read_bytes()

NO_HARDWARE = {
    "nothing": (b"", ": is empty"),
    "a mark alone": (b"\xef\xbb\xbf", ": is empty"),
    "NUL bytes": (b"\0\0\0", ":1: not YAML"),
    "UTF-16": (_GOOD.decode().encode("utf-16"), ":1: is not a text file in UTF-8"),
    "Latin-1": (b"name: x\nd\xe4: 1\n", ":2: is not a text file in UTF-8"),
    "gzip": (gzip.compress(_GOOD), ":1: is not a text file in UTF-8"),
    "a list": (b"- 1\n", ":1: must be a mapping"),
    "two documents": (_GOOD + b"\n---\na: 1\n", "holds more than one document"),
    "a key twice": (_GOOD + b"\nname: x\n", ": name: is given twice, first in line"),
    "deep nesting": (b"a: " + b"[" * 100_000, ":1: a: is nested more than 50 levels deep"),
    "a bomb of aliases": (_aliases(), "holds more than 10000 values, aliases expanded"),
    "an alias in itself": (b"a: &a [*a]\n", "lies inside its own anchor"),
    "much": (b"a: " + b"x" * (2 << 20), ": is larger than 1048576 bytes"),
    "tabs": (b"a:\n\tb: 1\n", ":2: not YAML"),
    "a missing section": (b"name: x\n", ":1: dram.standard: is missing"),
    "a date": (b"name: x\ndram: 2001-01-01\n", ":2: dram: '2001-01-01' is not a mapping"),
    "a list for a section": (b"name: x\ndram: [1]\n", ":2: dram: a list is not a mapping"),
    "an unknown key": (_GOOD + b"\nfoo: 1\n", ": foo: unknown key 'foo'"),
}


@pytest.mark.parametrize(("data", "words"), NO_HARDWARE.values(), ids=NO_HARDWARE)
def test_what_is_no_hardware_file_is_one_line(data, words):
    Path("own.yaml").write_bytes(data)
    problem = refused("show", "hw", "own.yaml")
    assert problem.startswith("own.yaml")
    assert words in problem


_MODEL = {
    "model_type": "qwen3_moe",
    "hidden_size": 64,
    "moe_intermediate_size": 64,
    "num_hidden_layers": 4,
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "intermediate_size": 100,
}
_SIZES = [key for key in _MODEL if key not in ("model_type", "intermediate_size")]


@pytest.mark.parametrize("key", _SIZES)
@pytest.mark.parametrize("value", [None, -1, 0, 1.5, "8", True, [], {}, 10**30, float("nan"), float("inf")])
def test_what_is_no_size_of_a_model_is_one_line_with_the_key(key, value):
    Path("m.json").write_text(json.dumps(_MODEL | {key: value}, indent=1))
    line = 2 + list(_MODEL).index(key)
    assert refused("gemv", "--model", "m.json").startswith(f"m.json:{line}: {key}: ")


@pytest.mark.parametrize(
    "data",
    [b"", b"[]", b"null", b"{'a': 1}", b'{"a": 1,}', b'{"a": 1', b'{"a": 1} x', b"\0" * 9, b'{"a": "\\x"}',
     b'{"hidden_size": ' + b"9" * 5000 + b"}", json.dumps(_MODEL).encode("utf-16"), gzip.compress(b"{}", mtime=0)],
)  # fmt: skip
def test_what_is_no_config_json_is_one_line(data):
    Path("m.json").write_bytes(data)
    assert refused("gemv", "--model", "m.json").startswith("m.json:")


@pytest.mark.parametrize(
    "row",
    ["9" * 40 + ",RD,0,0,0,0,0", "1.5,ACT,0,0,0,0,-1", "1,ACT,0,0,0", "1,ACT,0,0,0,0,-1,7", "1,FOO,0,0,0,0,-1",
     "1,act,0,0,0,0,-1", "1,ACT,nan,0,0,0,-1", "1,ACT,,0,0,0,-1", "", " ", "1, ACT,0,0,0,0,-1",
     "0x1,ACT,0,0,0,0,-1", "1_0,ACT,0,0,0,0,-1", "1e3,ACT,0,0,0,0,-1", "1;ACT;0;0;0;0;-1", "# c",
     "1,ACT,0,0,0,0,-1\0", "\u0661,ACT,0,0,0,0,-1", ",,,,,,", "+1,ACT,0,0,0,0,-1", "1" * 70_000],
    ids=lambda row: row[:20],
)  # fmt: skip
def test_what_is_no_command_is_one_line_with_its_number(row):
    Path("commands.csv").write_text(f"{_COMMANDS}1,ACT,0,0,0,0,-1\r\n{row}\n", newline="")
    assert refused("check", "commands.csv", "--hw", "trimoe").startswith("commands.csv:3: ")


def test_a_trace_without_commands_is_not_legal():
    Path("commands.csv").write_text(_COMMANDS)
    assert refused("check", "commands.csv", "--hw", "trimoe") == "commands.csv: holds no commands"


def test_an_activation_that_there_is_not_is_refused():
    Path("m.json").write_text(json.dumps(_MODEL | {"hidden_act": "frob"}, indent=1))
    line = refused("gemv", "--model", "m.json")
    assert line.startswith("m.json:9: hidden_act: unknown activation 'frob'")


def test_a_bad_command_is_found_beyond_the_first_piece_of_a_long_trace(monkeypatch):
    monkeypatch.setattr("ndpsim.traces.commands._CHUNK", 1 << 10)
    rows = [f"{clock},RD,0,0,0,0,0" for clock in range(1000)]
    Path("commands.csv").write_text(_COMMANDS + "\n".join([*rows, "x,RD,0,0,0,0,0"]))
    assert refused("check", "commands.csv", "--hw", "trimoe").startswith("commands.csv:1002: clock: 'x'")


@pytest.mark.parametrize(
    "row",
    ["LD", "LD -1", "LD 0x", "LD 1.5", "LD 1e3", "LD nan", "LD " + "9" * 40, "LD 0xffffffffffff", "FOO 1",
     "LD 1 2", "LD ٤", "LD 0x40 # c", "R 0,0,0", "R 0,0,0,0,0,-1", "R 99,0,0,0,0,0", "R 0,0,0,0,0,1.5", "\0",
     "LD " + "0" * 70_000, "100: read", "0x1 READ -1", "[1]"],
    ids=lambda row: row[:20],
)  # fmt: skip
def test_what_is_no_request_is_one_line_with_its_number(row):
    Path("addresses").write_text(f"{row}\n")
    assert refused("dram", "addresses").startswith("addresses:1: ")


@pytest.mark.parametrize("command", [("dram",), ("check", "--hw", "trimoe"), ("import",), ("show", "hw")])
@pytest.mark.parametrize("name", ["./none.yaml", ".", "a\0b.yaml", "a" * 300 + ".yaml", "/proc/self/mem"])
def test_what_cannot_be_read_is_named(command, name):
    problem = refused(command[0], *([command[1], name] if command[0] == "show" else [name, *command[1:]]))
    named = (name.removeprefix("./"), repr(name), f"{command[0]}: {name}", f"path: {name!r}")
    assert problem.startswith(named)
