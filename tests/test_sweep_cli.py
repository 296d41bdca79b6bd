"""``ndpsim sweep``: its output, its error messages and its exit status."""

from __future__ import annotations

import io
import json
import os
import re
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

import calls
from builders.swept_fake import Fake, run_here
from calls import Done
from ndpsim.base.options.swept import SWEPT
from ndpsim.cli import sweep
from ndpsim.cli.main import cli
from ndpsim.cli.notices import announce_kernels
from ndpsim.studies.sweeps import run as execute_module
from ndpsim.studies.sweeps.commands import swept_commands


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def fake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The command is known, points are run in this process, and the current folder is empty."""
    monkeypatch.setitem(swept_commands(), "fake", Fake())
    monkeypatch.setattr(execute_module, "run_locally", run_here)
    monkeypatch.chdir(tmp_path)


def call(*arguments: str, err: io.StringIO | None = None) -> Done:
    return calls.call("sweep", *arguments, err=err)


def test_the_table_is_printed_with_units_and_says_where_the_rest_is():
    done = call("fake", "--vary", "n=1..3", "--how", "ok", "--baseline", "n=1")
    assert (done.status, done.err) == (0, "")
    answer, *lines = done.out.splitlines()
    assert answer == (
        "Best by speed-up: n=3, 3.000\N{MULTIPLICATION SIGN}, 1.500\N{MULTIPLICATION SIGN} better than n=2, "
        "3.000\N{MULTIPLICATION SIGN} better than n=1, the last; limited by memory"
    )
    assert [line.split() for line in lines] == [
        ["3", "points", "of", "fake", "by", "n"],
        ["n", "speed-up", "time", "energy"],
        ["1", "1.000\N{MULTIPLICATION SIGN}", "100.0", "ns", "1.000", "nJ"],
        ["2", "2.000\N{MULTIPLICATION SIGN}", "50.00", "ns", "4.000", "nJ"],
        ["3", "3.000\N{MULTIPLICATION SIGN}", "33.33", "ns", "9.000", "nJ"],
        ["3", "simulated,", "0", "reused;", "all", "metrics:", "fake.sweep/table.csv"],
    ]
    assert "0 simulated, 3 reused" in call("fake", "--vary", "n=1..3", "--how", "ok").out


def test_a_long_table_is_cut_and_says_where_the_rest_is():
    lines = call("fake", "--vary", "n=1..50").out.splitlines()
    assert lines[-2:] == [
        "and 10 more in fake.sweep/table.csv",
        "50 simulated, 0 reused; all metrics: fake.sweep/table.csv",
    ]
    assert len(lines) == 3 + 40 + 2


def test_failed_points_make_the_status_1_and_their_first_reasons_are_said():
    done = call("fake", "--vary", "n=1..4", "--vary", "how=ok,refused")
    assert done.status == 1
    assert done.err.splitlines() == [
        *[f"ndpsim: n={n}, how=refused: n: {n} is refused" for n in (1, 2, 3)],
        "ndpsim: 4 of 8 points failed; see fake.sweep/table.csv",
    ]
    assert [line.split() for line in done.out.splitlines()[2:5]] == [
        ["n", "how", "status", "time", "energy"],
        ["1", "ok", "ok", "100.0", "ns", "1.000", "nJ"],
        ["1", "refused", "failed"],
    ]


def test_failed_points_are_run_again_when_that_is_asked_for():
    arguments = ["fake", "--vary", "n=1..4", "--how", "until-mended", "--folder", "."]
    assert call(*arguments).status == 1
    Path("mended").touch()
    assert call(*arguments).status == 1
    assert call(*arguments, "--retry-failed").status == 0


def test_json_on_standard_output_is_all_that_is_there():
    done = call("fake", "--vary", "n=1..50", "--json", "-", "--out", "here")
    assert (done.status, done.err) == (0, "")
    plain = json.loads(done.out)
    assert (plain["command"], len(plain["points"]), plain["points"][3]["time_ns"]) == ("fake", 50, 25.0)
    assert sorted(os.listdir("here")) == ["points", "sweep.json", "table.csv", "table.parquet"]


def test_a_file_is_swept_with_options_in_place_of_what_it_says():
    Path("study.yaml").write_text("command: fake\nfixed: {how: refused}\nvary: {n: [1, 2]}\n")
    assert call("study.yaml").status == 1
    done = call("study.yaml", "--set", "how=ok", "--vary", "n=5", "--force", "--json", "-")
    assert (done.status, [row["n"] for row in json.loads(done.out)["points"]]) == (0, [5])
    assert os.path.isdir("study.sweep")


def slowly(command: Any, tasks: Iterator[Any], jobs: int) -> Iterator[Any]:
    for answer in run_here(command, tasks, jobs):
        time.sleep(0.02)
        yield answer


def test_progress_is_a_line_now_and_then_where_there_is_no_terminal(monkeypatch):
    monkeypatch.setattr(sweep, "_LINES_S", 0.03)
    monkeypatch.setattr(execute_module, "run_locally", slowly)
    lines = call("fake", "--vary", "n=1..8", "--vary", "how=refused,ok").err.splitlines()[:-4]
    assert 2 <= len(lines) <= 16
    later = [line for line in lines if line != "ndpsim: 0 of 16 points, 0 points/s"]  # before the first
    assert later
    for line in later:
        assert re.fullmatch(
            r"ndpsim: [0-9]+ of 16 points, [0-9.]+ points/s, [0-9]+ s left, [0-9]+ failed", line
        )


def test_progress_is_a_bar_on_a_terminal(monkeypatch):
    monkeypatch.setattr(execute_module, "run_locally", slowly)
    monkeypatch.setenv("TERM", "xterm")
    err = Terminal()
    call("fake", "--vary", "n=1..8", "--out", "there", err=err)
    assert "of 8 points" in err.getvalue()
    assert "points/s" in err.getvalue()


def test_what_is_compiled_first_is_announced(monkeypatch, capsys):
    monkeypatch.setattr("ndpsim.base.jit.cached_kernels", Counter)
    announce_kernels("gemv", {})
    announce_kernels("gemv", {"host-traffic": 5})
    announce_kernels("fake", {})
    assert capsys.readouterr().err.splitlines() == [
        "ndpsim: a kernel is compiled first, once for this version; 10 s or more ...",
        "ndpsim: 2 kernels are compiled first, once for this version; 18 s or more ...",
    ]


def test_kernels_are_announced_only_when_a_point_has_to_be_computed(monkeypatch):
    monkeypatch.setattr("ndpsim.cli.sweep.announce_kernels", lambda *_: click.echo("announced", err=True))
    assert call("fake", "--vary", "n=1..3", "--out", "there").err == "announced\n"
    assert call("fake", "--vary", "n=1..3", "--out", "there").err == ""
    assert calls.refused_call("sweep", "fake", "--vary", "how=ok", "--out", "there") == "unwritable --out"


def test_options_of_a_swept_command_are_no_options_of_every_sweep():
    group = cli.get_command(click.Context(cli), "sweep")
    for name in ("gemv", "moe", "relayout", "dram"):
        command = group.get_command(click.Context(group), name)
        options = [option for parameter in command.params for option in parameter.opts]
        assert len(set(options)) == len(options)
        assert swept_commands()[name].parameters is SWEPT[name]
        assert {f"--{key}" for key in swept_commands()[name].parameters} < set(options)
