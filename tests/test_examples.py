"""Files of `examples/`: sweeps can be read, and a small point of each runs; traces are what their commands write."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from builders.small_config import write_config
from ndpsim.cli.main import cli
from ndpsim.studies.sweeps.commands import swept_commands
from ndpsim.studies.sweeps.file import read_definition

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.yaml"))


def smaller(command: str, folder: Path) -> dict[str, Any]:
    """What makes a point of an example small enough for a test: a smaller model, fewer sequences and steps."""
    small_model = {"model": write_config(folder), "batch": 2, "steps": 1, "prompt": None, "routing": None}
    return {
        "gemv": {"shape": "256,256", "model": None},
        "relayout": {"shape": "256,256", "experts": 1},
        "moe": small_model,
    }[command]


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_every_point_of_an_example_can_be(file):
    definition = read_definition(file)
    command = swept_commands()[definition.command]
    keys = [command.resolve(definition.given(point)).key for point in definition.points()]
    assert len(set(keys)) == len(keys) > 5


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_the_last_point_of_an_example_runs_when_it_is_made_small(file, tmp_path):
    definition = read_definition(file)
    command = swept_commands()[definition.command]
    given = definition.given(definition.points()[-1]) | smaller(definition.command, tmp_path)
    metrics = command.measure({key: value for key, value in given.items() if value is not None})
    for metric in (command.time_metric, definition.speedup_of):
        assert metric is None or metrics[metric] > 0
    if definition.plot["y"] != "speedup":
        assert metrics[definition.plot["y"]] > 0
    for one in definition.published:
        assert metrics[one.metric] > 0


def test_the_lane_beside_the_examples_is_what_its_command_writes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    command = ["gemv", "--shape", "256,128", "--commands", "lane.csv.gz", "--lane", "0"]
    assert " ".join(["ndpsim", *command]) in (EXAMPLES[0].parent / "README.md").read_text(encoding="utf-8")
    assert CliRunner().invoke(cli, command).exit_code == 0
    assert gzip.decompress(Path("lane.csv.gz").read_bytes()) == gzip.decompress(
        (EXAMPLES[0].parent / "lane.csv.gz").read_bytes()
    )


def test_requests_and_routing_beside_the_examples_are_what_their_block_writes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = (EXAMPLES[0].parent / "README.md").read_text(encoding="utf-8")
    exec(page.partition("```python\n")[2].partition("```")[0], {})
    assert Path("requests.trace").read_bytes() == (EXAMPLES[0].parent / "requests.trace").read_bytes()
    written, there = (np.load(folder / "routed_experts.npz") for folder in (Path(), EXAMPLES[0].parent))
    assert np.array_equal(written["routed_experts"], there["routed_experts"])
