"""Text on standard output: neither padded nor cut, as wide as `COLUMNS` says."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ndpsim.cli.main import main
from ndpsim.config import data_path
from ndpsim.report.printing import aligned, line_width, print_table, print_text, wrapped
from ndpsim.report.words import counted

CHANNEL = ["--standard", "DDR5", "--org", "DDR5_16Gb_x8", "--timing", "DDR5_4800AN"]
LONG = "a-model-whose-name-is-" + "very-" * 30 + "long"


@pytest.fixture
def folder(here: Path) -> Path:
    """The current folder, with inputs of long names."""
    Path("trace").write_text("LD 0x12340\nST 4096\nLD 0x99990000\n")
    Path("legal.csv").write_text("clock,command,rank,bankgroup,bank,row,column\n0,ACT,0,0,0,1,-1\n")
    shape = {"hidden_size": 64, "moe_intermediate_size": 32, "num_hidden_layers": 2, "num_experts": 4}
    Path(f"{LONG}.json").write_text(json.dumps(shape | {"num_experts_per_tok": 2}))
    text = data_path("hwconfigs", "trimoe").read_text()
    Path(f"{LONG}.yaml").write_text(re.sub(r"(?m)^name:.*$", f"name: {LONG[:100]}", text))
    return here


SMALL = ["--shape", "64,64"]
CALLS = [
    ["gemv", "--model", f"{LONG}.json", "--hw", f"./{LONG}.yaml"],
    ["gemv", "--shape", "512,256", "--tokens", "700"],
    ["gemv", *SMALL, "--hw", "edge", "--layout", "sharded:3", "--bits", "gate=4,up=4,down=8"],
    ["gemv", *SMALL, "--host-traffic", "saturate", "--arbitration", "slice"],
    ["relayout", *SMALL, "--topology", "all", "--experts", "2"],
    ["dram", "trace"],
    ["dram", "trace", "--sweep-load"],
    ["check", "legal.csv", *CHANNEL, "--energy"],
    ["show", "hw", f"./{LONG}.yaml"],
    ["show", "model", f"{LONG}.json"],
    ["show", "timing", "DDR5_4800AN"],
    ["show", "layout", "striped"],
    ["list"],
]


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit):
        main(arguments)
    text = capsys.readouterr().out
    assert text
    return text


#: Not told where columns do not fit.
HEADER = {"key", "value", "unit", "where", "it", "comes", "from", "all", "timing"}


def words(text: str) -> set[str]:
    """The words of a text, whatever lines and columns they are in, but for what differs from run to run."""
    told = re.sub(r"simulated\s+in.*", "", text, flags=re.DOTALL)
    return {word.rstrip(":") for word in told.split()}


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("arguments", CALLS, ids=lambda call: " ".join(call)[:60])
def test_text_is_neither_padded_nor_cut_and_as_wide_as_columns_says(arguments, capsys, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    whole = printed(capsys, *arguments)
    monkeypatch.setenv("COLUMNS", "60")
    narrow = printed(capsys, *arguments)
    for text in (whole, narrow):
        assert all(line == line.rstrip() for line in text.splitlines())
        assert "…" not in text
        assert "..." not in text
        assert "\x1b" not in text
        assert not re.search(r"(?<![\w.])-0(\.0+)?(?![\w.])", text)
    for line in narrow.splitlines():
        assert len(line) <= 60 or len(line.split()) == 1, line
    assert words(whole) - HEADER <= words(narrow)
    assert not re.search(
        r"\d$\n *(ns|µs|ms|GB/s|GFLOPS|[KMG]iB|[mµ]?W|[mµn]J|pJ/bit)\b", narrow, re.MULTILINE
    )


def test_thousands_are_apart_and_one_is_singular():
    assert [counted(n, "miss") for n in (0, 1, 2, 1234567)] == [
        "0 misses",
        "1 miss",
        "2 misses",
        "1,234,567 misses",
    ]
    assert counted(1, "token") == "1 token"


# Lines


@pytest.mark.parametrize(
    ("text", "width", "lines"),
    [
        ("one two three", 7, ["one two", "three"]),
        ("one two three", 5, ["one", "two", "three"]),
        ("/a/long/path is whole", 6, ["/a/long/path", "is", "whole"]),
        ("takes 277.1 us or more", 12, ["takes", "277.1 us or", "more"]),
        ("of (2400 MHz), 3 is one", 10, ["of", "(2400 MHz),", "3 is one"]),
        ("x4 x8 x16 y32", 6, ["x4 x8", "x16", "y32"]),
        ("a  b", None, ["a  b"]),
        ("one\ntwo\x1b[31m", None, ["one two [31m"]),
        ("", 3, [""]),
    ],
)
def test_lines_end_between_words_but_not_before_a_unit(text, width, lines):
    assert wrapped(text, width) == lines


def test_further_lines_are_indented_where_that_leaves_room():
    assert wrapped("one two abcdefgh", 8, "    ") == ["one two", "abcdefgh"]
    assert wrapped("one two three", 9, "    ") == ["one two", "    three"]


CELLS = st.text(st.sampled_from("ab1 ."), max_size=12)


@given(
    st.lists(st.tuples(CELLS, CELLS, CELLS), min_size=1, max_size=4), st.integers(1, 40), st.integers(0, 3)
)
def test_any_table_keeps_its_words_within_the_width(rows, width, left):
    header = ("name", "value", "much longer")
    for lines in (aligned(rows, width, header, left), aligned(rows, None, header, left)):
        text = "\n".join(lines)
        for row in rows:
            for cell in row:
                for word in cell.split():
                    assert word in text
        assert all(line == line.rstrip() for line in lines)
    for line in aligned(rows, width, header, left):
        parts = line.split()
        one = len(parts) == 1 or (len(parts) == 2 and re.fullmatch(r"[\d.]+", parts[0]))
        assert len(line) <= width or one


def test_columns_are_below_their_names_and_figures_end_flush():
    rows = [("a", "1 ns"), ("bcd", "20 ns")]
    assert aligned(rows, None, ("name", "time"), left=1) == ["name   time", "a      1 ns", "bcd   20 ns"]


def test_where_columns_do_not_fit_cells_stand_below_each_other():
    rows = [("ring", "16.95 us", "98.6%")]
    header = ("topology", "time", "busiest wire")
    assert aligned(rows, 20, header) == ["topology ring", "  time: 16.95 us", "  busiest wire:", "  98.6%"]
    values = [("dram.overrides.nCL", "40", "clocks", "Table 1"), ("name", "trimoe", "", "")]
    header = ("key", "value", "unit", "where it comes from")
    assert aligned(values, 30, header, heading=3) == [
        "dram.overrides.nCL: 40 clocks",
        "  Table 1",
        "name: trimoe",
    ]


@pytest.mark.parametrize(
    ("columns", "width"),
    [("60", 60), ("0", None), ("", None), ("-5", None), ("6.5", None), ("9" * 5000, None), ("², ", None)],
)
def test_only_a_whole_number_of_columns_counts(columns, width, capsys, monkeypatch):
    if not columns.isascii() and sys.getfilesystemencoding() == "ascii":
        pytest.skip("no variable of the environment can have this value here")
    monkeypatch.setenv("COLUMNS", columns)
    assert line_width() == width


def test_without_a_standard_output_nothing_is_printed(monkeypatch):
    monkeypatch.setattr(sys, "stdout", None)
    print_text("x", bold=True)
    print_table("title", ("a", "b"), [("1", "2")])


def test_what_an_encoding_lacks_is_escaped(folder):
    code = "from ndpsim.report.printing import print_text; print_text('caf\\u00e9 \\udcff')"
    for encoding, text in (("ascii", b"caf\\xe9 \\udcff\n"), ("utf-8", "café \\udcff\n".encode())):
        environment = {**os.environ, "PYTHONIOENCODING": encoding}
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, env=environment, check=True)
        assert done.stdout == text


def on_a_terminal(code: str, columns: int, **environment: str) -> str:
    """What Python code prints to a terminal of that many columns."""
    import fcntl
    import struct
    import termios

    outer, inner = pty.openpty()
    fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    given = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "NO_COLOR")}
    given |= {"TERM": "xterm", **environment}
    subprocess.run([sys.executable, "-c", code], stdout=inner, env=given, check=True)
    os.close(inner)
    text = b""
    while True:
        try:
            part = os.read(outer, 65536)
        except OSError:  # all is read, and nobody holds the other end
            break
        if not part:
            break
        text += part
    os.close(outer)
    return text.decode().replace("\r\n", "\n")


BOLD = "from ndpsim.report.printing import print_text; print_text('one two three four', bold=True)"


def test_a_terminal_gets_its_width_and_bold_titles():
    assert on_a_terminal(BOLD, 10) == "\x1b[1mone two\x1b[0m\n\x1b[1mthree four\x1b[0m\n"
    assert on_a_terminal(BOLD, 10, COLUMNS="5", NO_COLOR="1") == "one\ntwo\nthree\nfour\n"
    assert on_a_terminal(BOLD, 80, NO_COLOR="1") == "one two three four\n"
    assert on_a_terminal(BOLD, 80, TERM="dumb") == "one two three four\n"
    assert on_a_terminal(BOLD, 0, NO_COLOR="1") == "one two three four\n"
