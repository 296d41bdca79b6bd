"""`ndpsim show layout`: what it says, and that its picture shows what lies where."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from ndpsim.cli.main import cli
from ndpsim.errors import InputError
from ndpsim.layout import ExpertFormat
from ndpsim.moe import Expert
from ndpsim.report.pictures.layout import draw_layout
from ndpsim.simulate import place_expert


def run(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(cli, ("show", *arguments))
    if isinstance(done.exception, InputError):
        return 2, str(done.exception)
    return done.exit_code, done.output


@pytest.mark.parametrize("name", ["localized", "striped", "sharded:5"])
def test_bytes_add_up_over_matrices_dimms_and_lanes(name):
    status, said = run("layout", name, "--bits", "4", "--group-size", "128", "--json", "-")
    told = json.loads(said)
    assert status == 0
    # 1536 rows of 4096 weights of 4 bits in 32 groups with 20 bits each, twice; 4096 rows of 1536 in 12.
    assert told["matrix_bytes"] == {"gate": 3268608, "up": 3268608, "down": 3268608}
    assert told["bytes"] == sum(told["matrix_bytes"].values())
    for matrix, size in told["matrix_bytes"].items():
        assert sum(dimm["matrix_bytes"][matrix] for dimm in told["dimms"]) == size
        for dimm in told["dimms"]:
            lanes = [lane["matrix_bytes"][matrix] for lane in dimm["lanes"]]
            assert sum(lanes) == dimm["matrix_bytes"][matrix]
    assert [dimm["dimm"] for dimm in told["dimms"]] == list(
        range({"localized": 1, "striped": 16, "sharded:5": 5}[name])
    )
    assert [dimm["channel"] for dimm in told["dimms"]] == [dimm["dimm"] % 8 for dimm in told["dimms"]]


def test_the_table_names_every_dimm():
    status, said = run("layout", "sharded:5", "--hw", "edge", "--model", "mixtral-8x7b")
    assert status == 0
    assert "mixtral-8x7b on edge, sharded:5: 336.00 MiB, 16 bits" in said
    lines = [line.split() for line in said.splitlines()]
    assert [line[:2] for line in lines if line and line[0].isdigit()] == [
        ["0", "0"],
        ["1", "1"],
        ["2", "0"],
        ["3", "1"],
        ["4", "0"],
    ]


@pytest.mark.parametrize(
    ("hw", "name"), [("trimoe", "striped"), ("edge", "sharded:3"), ("trimoe", "localized")]
)
def test_the_picture_is_drawn(tmp_path, hw, name):
    for expert in (Expert(3, 5), Expert(1024, 512)):
        picture = tmp_path / "layout.png"
        draw_layout(str(picture), place_expert(hw, expert, name, ExpertFormat.of(4, group_size=1)))
        assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("layout", "stripd"), "show layout: unknown layout 'stripd'; did you mean 'striped'"),
        (
            ("layout", "sharded:9", "--hw", "edge"),
            "show layout: sharded:9 from DIMM 0 on is not possible with 6",
        ),
        (("layout", "localized", "--plot", "x.foo"), "--plot: 'foo' is no picture format"),
        (("layout", "localized", "--model", "qwen"), "--model: "),
        (
            ("hw", "trimoe", "--bits", "4"),
            "--bits: belongs to show layout and processor; a hw has no use for it",
        ),
        (("model", "mixtral-8x7b", "--plot", "x.png"), "--plot: belongs to show layout; a model has no use"),
        (("layou", "localized"), "unknown kind of thing 'layou'; did you mean 'layout'"),
    ],
)
def test_what_makes_no_sense_is_one_line(arguments, words):
    status, said = run(*arguments)
    assert (status, words in said) == (2, True), said
