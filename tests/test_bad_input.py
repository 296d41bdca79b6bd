"""Hints, and bad values and files by their kinds: one good line each. Calls that are refused are in `refusals`."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from calls import refused_call
from ndpsim.config import data_path
from ndpsim.dram.traces import HEADER

_COMMANDS = ",".join(HEADER) + "\n"


@pytest.fixture(autouse=True)
def folder(here: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with valid traces to misuse; nothing is run or written in it."""

    def ran(*arguments: object, **options: object) -> None:
        raise AssertionError("ran before the mistake was found")

    monkeypatch.setattr("ndpsim.simulate.lane.run_channel", ran)
    Path("addresses").write_text("LD 0x40\nST 0x80\n")
    Path("commands.csv").write_text(_COMMANDS + "1,ACT,0,0,0,0,-1\n")
    return here


_NAMED = ("--standard", "DDR5", "--org", "DDR5_16Gb_x8", "--timing", "DDR5_4800AN")


def test_an_empty_name_is_not_a_default():
    assert refused_call("gemv", "--layout", "") == "unknown-name --layout"
    assert refused_call("show", "layout", "striped", "--hw", "") == "unknown-name --hw"
    assert refused_call("check", "commands.csv", *_NAMED, "--refresh", "") == "unknown-name --refresh"
    assert refused_call("gemv", "--bits", "") == "range --bits"


def test_a_number_of_thousands_of_digits_is_one_line():
    assert refused_call("dram", "addresses", "--set", "nCL=" + "9" * 5000) == "form --set"
    assert refused_call("gemv", "--bits", "4" * 5000) == "range --bits"
    assert refused_call("gemv", "--shape", "9" * 5000 + ",5") == "range --shape"


def test_a_key_of_a_file_in_the_wrong_section_is_found_in_the_right_one():
    text = data_path("hwconfigs", "trimoe").read_text()
    for key, meant in (("ranks", "dimm.ranks or host.memory.ranks"), ("nCL", "dram.overrides.nCL")):
        Path("own.yaml").write_text(f"{text}{key}: 2\n")
        line = len(text.splitlines()) + 1
        assert refused_call("show", "hw", "own.yaml") == f"unknown-key own.yaml:{line} {key} ? {meant}"


def test_a_timing_that_makes_no_sense_is_named_where_it_is_set():
    assert refused_call("gemv", "--set", "dram.nREFI=1") == "no-progress --set dram.nREFI"
    assert (
        refused_call("gemv", "--set", "dram.nRFC=1000000") == "no-progress trimoe.yaml dram.overrides.nREFI"
    )


# Values and files by their kinds

#: Codes of invalid values, by their kinds.
_OF_VALUES = ("type", "range", "form", "missing", "unknown-name", "unsupported")

_NO_NUMBERS = (
    "nan", ".nan", ".inf", "-.inf", "-1", "0", "1e400", "9" * 5000, "٤", "''", "' '", "yes", "true", "null",
    "[1]", "{a: 1}", "0x10", "1_000", "2001-01-01", "&a *a", "*a", "- 1", "'4'", "@", "%", "|", "16 16", "!!x 1",
)  # fmt: skip


@pytest.mark.parametrize("key", ["dimm.ranks", "link.link_gbps"])
@pytest.mark.parametrize("value", _NO_NUMBERS, ids=lambda value: value[:20])
def test_what_is_no_number_in_range_is_one_line_with_the_key(key, value):
    code, mistake = refused_call("show", "hw", "trimoe", "--set", f"{key}={value}").split(maxsplit=1)
    assert (code in _OF_VALUES, mistake) == (True, f"--set {key}")


def _aliases() -> bytes:
    lines = [b"a: &a [1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    lines += [b"%c: &%c [%s]" % (n, n, b", ".join([b"*%c" % (n - 1)] * 9)) for n in range(98, 110)]
    return b"\n".join(lines)


_GOOD = data_path("hwconfigs", "trimoe").read_bytes()

NO_HARDWARE = {
    "nothing": (b"", "form own.yaml"),
    "a mark alone": (b"\xef\xbb\xbf", "form own.yaml"),
    "NUL bytes": (b"\0\0\0", "form own.yaml:1"),
    "UTF-16": (_GOOD.decode().encode("utf-16"), "form own.yaml:1"),
    "Latin-1": (b"name: x\nd\xe4: 1\n", "form own.yaml:2"),
    "gzip": (gzip.compress(_GOOD), "form own.yaml:1"),
    "a list": (b"- 1\n", "type own.yaml:1"),
    "deep nesting": (b"a: " + b"[" * 100_000, "too-large own.yaml:1 a"),
    "a bomb of aliases": (_aliases(), "form own.yaml:5 e"),
    "much": (b"a: " + b"x" * (2 << 20), "too-large own.yaml"),
    "many values": (b"a: [" + b"1, " * 20_000 + b"]", "form own.yaml:1 a"),
    "a missing section": (b"name: x\n", "missing own.yaml:1 dram.standard"),
    "a date": (b"name: x\ndram: 2001-01-01\n", "type own.yaml:2 dram"),
    "a list for a section": (b"name: x\ndram: [1]\n", "type own.yaml:2 dram"),
}


@pytest.mark.parametrize(("data", "words"), NO_HARDWARE.values(), ids=NO_HARDWARE)
def test_what_is_no_hardware_file_is_one_line(data, words):
    Path("own.yaml").write_bytes(data)
    assert refused_call("show", "hw", "own.yaml") == words


_MODEL = {
    "model_type": "qwen3_moe",
    "hidden_size": 64,
    "moe_intermediate_size": 64,
    "num_hidden_layers": 4,
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "intermediate_size": 100,
}


@pytest.mark.parametrize(
    "data",
    [b"", b"[]", b"null", b"{'a': 1}", b'{"a": 1,}', b'{"a": 1', b'{"a": 1} x', b"\0" * 9, b'{"a": "\\x"}',
     b'{"hidden_size": ' + b"9" * 5000 + b"}", json.dumps(_MODEL).encode("utf-16"), gzip.compress(b"{}", mtime=0)],
)  # fmt: skip
def test_what_is_no_config_json_is_one_line(data):
    Path("m.json").write_bytes(data)
    assert refused_call("gemv", "--model", "m.json") in ("form m.json", "form m.json:1")


def test_a_trace_without_commands_is_not_legal():
    Path("commands.csv").write_text(_COMMANDS)
    assert refused_call("check", "commands.csv", "--hw", "trimoe") == "form commands.csv"


def test_an_activation_that_there_is_not_is_refused():
    Path("m.json").write_text(json.dumps(_MODEL | {"hidden_act": "frob"}, indent=1))
    assert refused_call("gemv", "--model", "m.json") == "unknown-name m.json:9 hidden_act"


def test_a_bad_command_is_found_beyond_the_first_piece_of_a_long_trace(monkeypatch):
    monkeypatch.setattr("ndpsim.dram.traces.commands._CHUNK", 1 << 10)
    rows = [f"{clock},RD,0,0,0,0,0" for clock in range(1000)]
    Path("commands.csv").write_text(_COMMANDS + "\n".join([*rows, "x,RD,0,0,0,0,0"]))
    assert refused_call("check", "commands.csv", "--hw", "trimoe") == "type commands.csv:1002 clock"


@pytest.mark.parametrize(
    "row",
    ["LD", "LD -1", "LD 0x", "LD 1.5", "LD 1e3", "LD nan", "LD " + "9" * 40, "LD 0xffffffffffff", "FOO 1",
     "LD 1 2", "LD ٤", "LD 0x40 # c", "R 0,0,0", "R 0,0,0,0,0,-1", "R 99,0,0,0,0,0", "R 0,0,0,0,0,1.5", "\0",
     "LD " + "0" * 70_000, "100: read", "0x1 READ -1", "[1]"],
    ids=lambda row: row[:20],
)  # fmt: skip
def test_what_is_no_request_is_one_line_with_its_number(row):
    Path("addresses").write_text(f"{row}\n")
    assert refused_call("dram", "addresses") in ("form addresses:1", "range addresses:1")


@pytest.mark.parametrize("command", [("dram",), ("check", "--hw", "trimoe"), ("import",), ("show", "hw")])
@pytest.mark.parametrize("name", ["./none.yaml", ".", "a\0b.yaml", "a" * 300 + ".yaml", "/proc/self/mem"])
def test_what_cannot_be_read_is_named(command, name):
    call = (*command, name) if command[0] == "show" else (command[0], name, *command[1:])
    code, *place = refused_call(*call).split()
    assert (code in ("unreadable", "form", "type"), len(place) <= 2) == (True, True)
