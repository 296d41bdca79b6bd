"""`ndpsim show layout`: what it says, and that its picture shows what lies where."""

from __future__ import annotations

import json

import pytest

from calls import said
from ndpsim.dimm.layout import ExpertFormat
from ndpsim.report.pictures.layout import layout_figure
from ndpsim.simulate import place_expert
from ndpsim.workload.models import Expert


@pytest.mark.parametrize("name", ["localized", "striped", "sharded:5"])
def test_bytes_add_up_over_matrices_dimms_and_lanes(name):
    told = json.loads(said("show", "layout", name, "--bits", "4", "--group-size", "128", "--json", "-"))
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
    text = said("show", "layout", "sharded:5", "--hw", "edge", "--model", "mixtral-8x7b")
    assert "mixtral-8x7b on edge, sharded:5: 336.00 MiB, 16 bits" in text
    lines = [line.split() for line in text.splitlines()]
    assert [line[:2] for line in lines if line and line[0].isdigit()] == [
        ["0", "0"],
        ["1", "1"],
        ["2", "0"],
        ["3", "1"],
        ["4", "0"],
    ]


@pytest.mark.parametrize(
    ("hw", "name"),
    [
        ("trimoe", "striped"),
        ("edge", "sharded:3"),
        pytest.param("trimoe", "localized", marks=pytest.mark.long),
    ],
)
def test_the_picture_is_drawn(hw, name):
    for expert in (Expert(3, 5), Expert(512, 256)):
        assert layout_figure(place_expert(hw, expert, name, ExpertFormat.of(4, group_size=1))).axes
