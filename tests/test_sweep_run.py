"""Sweeps without processes: what is found and what is run again, and the tables that come of it."""

from __future__ import annotations

import csv
import doctest
import io
import json
import logging
import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas
import polars
import pyarrow.parquet
import pytest

from builders.swept_fake import Fake, records_in, run_here, runs
from mistakes import refused
from ndpsim.base.options.swept import StudyOptions
from ndpsim.studies.sweeps import points as points_module
from ndpsim.studies.sweeps import records as records_module
from ndpsim.studies.sweeps import run as execute_module
from ndpsim.studies.sweeps import store as store_module
from ndpsim.studies.sweeps.commands import swept_commands
from ndpsim.studies.sweeps.executors import attempt, failure
from ndpsim.studies.sweeps.points import Progress
from ndpsim.studies.sweeps.run import defined, run_sweep, sweep
from ndpsim.studies.sweeps.table import SweepResult, parquet_of


@pytest.fixture(autouse=True)
def fake(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command is known, and points are run in this process."""
    monkeypatch.setitem(swept_commands(), "fake", Fake())
    monkeypatch.setattr(execute_module, "run_locally", run_here)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where points meet the test."""
    there = tmp_path / "meeting"
    there.mkdir()
    return there


def files(out: Path) -> dict[str, bytes]:
    """The tables and the definition."""
    return {path.name: path.read_bytes() for path in out.iterdir() if path.is_file()}


def cells(out: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO((out / "table.csv").read_text())))


def backwards(command: Any, tasks: Iterator[Any], jobs: int) -> Iterator[Any]:
    """Takes all tasks before it runs one, and the last one first."""
    for task in reversed(list(tasks)):
        yield task, attempt(command, task.settings, task.key)


# The table


def test_the_table_is_the_rows_in_the_order_of_points(tmp_path):
    out = tmp_path / "out"
    result = sweep("fake", {"n": [4, 2], "parts": [[1, 2], 3]}, baseline={"n": 4}, out=out)
    version = f'"{result[0]["version"]}"' if "," in result[0]["version"] else result[0]["version"]
    config = '"{""how"": null, ""n"": %d, ""parts"": %s}"'
    assert (out / "table.csv").read_text() == "\n".join(
        [
            "n,parts,status,reason,time_ns,energy_nj.total,bound,sum,speedup,version,config",
            f'4,"[1, 2]",ok,,25.0,16,memory,3,1.0,{version},{config % (4, "[1, 2]")}',
            f"4,3,ok,,25.0,16,memory,3,1.0,{version},{config % (4, 3)}",
            f'2,"[1, 2]",ok,,50.0,4,memory,3,0.5,{version},{config % (2, "[1, 2]")}',
            f"2,3,ok,,50.0,4,memory,3,0.5,{version},{config % (2, 3)}",
            "",
        ]
    )
    assert result.config(3) == {"how": None, "n": 2, "parts": 3}
    assert version.startswith("0.")
    assert json.loads((out / "sweep.json").read_text())["varied"] == {"n": [4, 2], "parts": [[1, 2], 3]}


def test_the_order_in_which_points_finish_changes_nothing(tmp_path, monkeypatch):
    sweep("fake", {"n": "1..6"}, out=tmp_path / "a")

    monkeypatch.setattr(execute_module, "run_locally", backwards)
    sweep("fake", {"n": "1..6"}, out=tmp_path / "b")
    assert files(tmp_path / "a") == files(tmp_path / "b")


def test_no_time_and_no_host_is_in_a_table_but_in_the_files_of_points(tmp_path):
    sweep("fake", {"n": [1]}, out=tmp_path)
    (record,) = records_in(tmp_path)
    assert record["wall_s"] > 0
    assert record["host"]["cores"] >= 1
    assert record["given"] == {"n": 1}
    assert not {"wall_s", "compile_s", "host", "finished"} & set(cells(tmp_path)[0])


def test_parquet_has_what_csv_has_with_types(tmp_path):
    sweep("fake", {"n": [1, 2], "how": ["refused", "ok"]}, out=tmp_path)
    table = pyarrow.parquet.read_table(tmp_path / "table.parquet")
    assert {field.name: str(field.type) for field in table.schema} == {
        "n": "int64",
        "how": "string",
        "status": "string",
        "reason": "string",
        "time_ns": "double",
        "energy_nj.total": "int64",
        "bound": "string",
        "version": "string",
        "config": "string",
    }
    as_text = [{name: "" if v is None else str(v) for name, v in row.items()} for row in table.to_pylist()]
    assert as_text == cells(tmp_path)


def test_a_column_of_parquet_has_one_type_whatever_its_values_are():
    rows = [
        {"mixed": 1, "large": 1 << 70, "flag": True, "none": None, "text": "a", "half": True},
        {"mixed": 2.5, "large": 3, "flag": False, "none": None, "text": 3, "half": 2},
        {"mixed": None, "large": None, "flag": None, "none": None, "text": None, "half": None},
    ]
    assert pyarrow.parquet.read_table(io.BytesIO(parquet_of(rows))).to_pydict() == {
        "mixed": [1.0, 2.5, None],
        "large": [float(1 << 70), 3.0, None],
        "flag": [True, False, None],
        "none": [None] * 3,
        "text": ["a", "3", None],
        "half": ["True", "2", None],
    }


def test_without_pyarrow_the_csv_is_written_alone_and_nothing_is_said(tmp_path, monkeypatch, caplog):
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with caplog.at_level(logging.WARNING, "ndpsim"):
        sweep("fake", {"n": [1, 2]}, out=tmp_path)
    assert (caplog.records, (tmp_path / "table.parquet").exists()) == ([], False)
    assert len(cells(tmp_path)) == 2


def test_tables_hold_what_is_finished_while_the_rest_is_run(tmp_path, monkeypatch):
    monkeypatch.setattr(points_module, "_FIRST_TABLE_S", 0.0)
    monkeypatch.setattr(points_module, "_TABLE_SHARE", 1e9)
    seen = []

    def watched(command: Any, tasks: Iterator[Any], jobs: int) -> Iterator[Any]:
        for task in reversed(list(tasks)):
            seen.append([row["n"] for row in cells(tmp_path)] if (tmp_path / "table.csv").exists() else [])
            yield task, attempt(command, task.settings, task.key)

    monkeypatch.setattr(execute_module, "run_locally", watched)
    sweep("fake", {"n": [1, 2, 3]}, out=tmp_path)
    assert seen == [[], ["3"], ["2", "3"]]


def test_a_speed_up_is_over_the_point_that_is_otherwise_the_same():
    by_n = sweep("fake", {"how": ["ok", "refused"], "n": [1, 2, 5]}, baseline={"n": 2})
    assert [row["speedup"] for row in by_n] == [0.5, 1.0, 2.5, None, None, None]
    failed = sweep("fake", {"how": ["ok", "refused"], "n": [1, 2]}, baseline={"how": "refused"})
    assert [row["speedup"] for row in failed] == [None] * 4
    together = sweep("fake", {"n": [1, 2], "how": ["ok", "x"]}, zip=True, baseline={"n": 1})
    assert [row["speedup"] for row in together] == [1.0, None]  # there is no point n=1, how=x
    assert "speedup" not in sweep("fake", {"n": [1, 2]}).columns
    of_sum = replace(defined("fake", {"parts": [4, 8]}, baseline={"parts": 8}), speedup_of="sum")
    assert [row["speedup"] for row in sweep(replace(of_sum, speedup_of=None))] == [1.0, 1.0]
    assert [row["speedup"] for row in run_sweep(of_sum, StudyOptions())] == [2.0, 1.0]


# What is found, and what is run again


def test_the_same_call_runs_nothing_again(tmp_path, folder):
    out, vary, fixed = tmp_path / "out", {"n": "1..5"}, {"folder": str(folder)}
    first = sweep("fake", vary, fixed=fixed, out=out)
    before = files(out)
    second = sweep("fake", vary, fixed=fixed, out=out)
    assert (first.computed, first.found, second.computed, second.found) == (5, 0, 0, 5)
    assert (runs(folder), first == second, files(out) == before) == (5, True, True)
    more = sweep("fake", {"n": "3..8"}, fixed=fixed, out=out, force=True)
    assert (runs(folder), more.found, [row["n"] for row in more]) == (8, 3, [3, 4, 5, 6, 7, 8])


@pytest.mark.parametrize("finished", [0, 1, 7])
def test_what_was_finished_before_an_interruption_is_not_run_again(tmp_path, folder, monkeypatch, finished):
    vary, fixed = {"n": "1..8"}, {"folder": str(folder)}
    sweep("fake", vary, fixed={"folder": str(tmp_path)}, out=tmp_path / "undisturbed")

    def interrupted(command: Any, tasks: Iterator[Any], jobs: int) -> Iterator[Any]:
        for number, answer in enumerate(run_here(command, tasks, jobs)):
            if number == finished:
                raise KeyboardInterrupt
            yield answer

    with monkeypatch.context() as patch:
        patch.setattr(execute_module, "run_locally", interrupted)
        with pytest.raises(KeyboardInterrupt):
            sweep("fake", vary, fixed=fixed, out=tmp_path / "out")
    result = sweep("fake", vary, fixed=fixed, out=tmp_path / "out")
    assert (result.found, runs(folder)) == (finished, 9)  # one was run and not taken
    mine, others = files(tmp_path / "out"), files(tmp_path / "undisturbed")
    assert (mine["table.csv"], mine["table.parquet"]) == (others["table.csv"], others["table.parquet"])


def test_another_version_of_ndpsim_finds_nothing_and_loses_nothing(tmp_path, folder, monkeypatch):
    fixed = {"folder": str(folder)}
    before = sweep("fake", {"n": [1, 2]}, fixed=fixed, out=tmp_path / "out")
    with monkeypatch.context() as patch:
        patch.setattr(store_module, "version", lambda: "0" * 20)
        patch.setattr(points_module, "version", lambda: "0" * 20)
        other = sweep("fake", {"n": [1, 2]}, fixed=fixed, out=tmp_path / "out")
    again = sweep("fake", {"n": [1, 2]}, fixed=fixed, out=tmp_path / "out")
    assert (other.computed, again.computed, again == before) == (2, 0, True)
    assert other[0]["version"] != again[0]["version"]


def test_other_contents_of_a_file_are_another_point(tmp_path, folder):
    file = tmp_path / "input.txt"
    fixed = {"file": str(file), "folder": str(folder)}
    letters = []
    for text in ("abc", "abcde", "abc"):
        file.write_text(text)
        letters.append(sweep("fake", {"n": [1]}, fixed=fixed, out=tmp_path / "out")[0]["letters"])
    assert (letters, runs(folder)) == ([3, 5, 3], 2)


def test_a_file_that_changes_while_its_point_is_run_makes_no_result(tmp_path, folder, monkeypatch):
    file = tmp_path / "input.txt"
    file.write_text("abc")
    fixed = {"file": str(file), "folder": str(folder)}

    def changed(command: Any, tasks: Iterator[Any], jobs: int) -> Iterator[Any]:
        for task in tasks:
            file.write_text("abcde")
            yield task, attempt(command, task.settings, task.key)

    with monkeypatch.context() as patch:
        patch.setattr(execute_module, "run_locally", changed)
        result = sweep("fake", {"n": [1]}, fixed=fixed, out=tmp_path / "out")
    assert result[0]["reason"] == "a file that is named is not as it was when the sweep began"
    assert (result.failed, result[0]["status"], "letters" in result[0]) == (1, "failed", False)
    assert list((tmp_path / "out" / "points").iterdir()) == []
    file.write_text("abc")
    assert sweep("fake", {"n": [1]}, fixed=fixed, out=tmp_path / "out")[0]["letters"] == 3


def test_failures_have_their_reasons_and_the_others_go_on(tmp_path):
    how = ["refused", "broken", "exits", "unresolved", "ok"]
    result = sweep("fake", {"how": how}, fixed={"n": 3}, out=tmp_path)
    assert [row["reason"] for row in result] == [
        "n: 3 is refused",
        "ZeroDivisionError: two lines",
        "SystemExit: 3",
        "how: there is no such point",
        None,
    ]
    assert [row["status"] for row in result] == ["failed"] * 4 + ["ok"]
    assert (result.failed, len(records_in(tmp_path))) == (4, 5)


def test_a_failure_is_found_again_and_run_again_when_that_is_asked_for(tmp_path, folder):
    call = {"fixed": {"folder": str(folder)}, "out": tmp_path / "out"}
    vary = {"n": [1, 2], "how": ["until-mended", "ok"]}
    assert sweep("fake", vary, **call).failed == 2
    (folder / "mended").touch()
    found = sweep("fake", vary, **call)
    assert (found.failed, found.found, runs(folder)) == (2, 4, 4)
    mended = sweep("fake", vary, retry_failed=True, **call)
    assert (mended.failed, mended.found, runs(folder)) == (0, 2, 6)
    assert sweep("fake", vary, **call) == mended


def test_a_result_is_not_lost_to_a_failure_of_another_sweep(tmp_path, monkeypatch):
    """Two sweeps run a point at once; one of them fails for reasons of its own."""

    def beaten(command: Any, tasks: Iterator[Any], jobs: int) -> Iterator[Any]:
        for task in tasks:
            with monkeypatch.context() as patch:
                patch.setattr(execute_module, "run_locally", run_here)
                sweep("fake", {"n": [1]}, out=tmp_path)
            yield task, failure("out of memory")

    with monkeypatch.context() as patch:
        patch.setattr(execute_module, "run_locally", beaten)
        assert sweep("fake", {"n": [1]}, out=tmp_path).failed == 0
    assert sweep("fake", {"n": [1]}, out=tmp_path).found == 1


def test_a_damaged_point_is_run_again_with_the_same_table(tmp_path, caplog):
    sweep("fake", {"n": [1, 2, 3]}, out=tmp_path)
    before = files(tmp_path)
    (damaged,) = (tmp_path / "points").glob("*.jsonl")
    damaged.write_text(damaged.read_text().replace("memory", "compute", 1))
    with caplog.at_level(logging.WARNING, "ndpsim"):
        result = sweep("fake", {"n": [1, 2, 3]}, out=tmp_path)
    assert (result.computed, files(tmp_path) == before) == (1, True)
    assert damaged.name in caplog.text


def test_a_finished_sweep_is_opened_without_resolving_its_points(tmp_path, monkeypatch):
    vary = {"n": [1, 2, 3], "how": ["ok", "refused"]}
    first = sweep("fake", vary, out=tmp_path)
    before = files(tmp_path)
    resolved: list[Any] = []
    resolve = Fake.resolve
    monkeypatch.setattr(
        Fake, "resolve", lambda fake, given: (resolved.append(given), resolve(fake, given))[1]
    )
    again = sweep("fake", vary, out=tmp_path)
    assert (again.found, again.computed, again, resolved) == (6, 0, first, [])
    assert files(tmp_path) == before
    sweep("fake", vary, out=tmp_path, retry_failed=True)
    assert {(given["how"], given["n"]) for given in resolved} == {("refused", n) for n in (1, 2, 3)}


def test_rows_of_a_finished_sweep_are_read_when_they_are_used(tmp_path, monkeypatch):
    vary = {"n": [1, 2, 3], "how": ["ok", "refused"]}
    first = sweep("fake", vary, baseline={"n": 1}, out=tmp_path)
    read: list[str] = []
    record_of = records_module._record_of
    monkeypatch.setattr(
        records_module, "_record_of", lambda line, name: (read.append(name), record_of(line, name))[1]
    )
    again = sweep("fake", vary, baseline={"n": 1}, out=tmp_path)
    assert (len(again), again.failed, again.found, len(read)) == (6, 3, 6, 0)
    assert (again[4], len(read)) == (first[4], 1)
    assert (again[-2:], len(read)) == (first[-2:], 3)
    assert again.columns == first.columns
    assert again == first
    read.clear()
    assert (again.rows, read) == (first.rows, [])


def test_a_record_that_was_damaged_without_a_trace_is_named(tmp_path):
    vary = {"n": [1, 2]}
    sweep("fake", vary, out=tmp_path)
    (damaged,) = (tmp_path / "points").glob("*.jsonl")
    times = damaged.stat()
    damaged.write_text(damaged.read_text().replace("memory", "memoRy", 1))
    os.utime(damaged, ns=(times.st_atime_ns, times.st_mtime_ns))
    again = sweep("fake", vary, out=tmp_path)
    assert again[1]["n"] == 2
    with refused("form"):
        assert again[0]


@pytest.mark.parametrize("change", ["definition", "version", "file", "note", "current folder"])
def test_a_note_of_something_else_does_not_count(tmp_path, folder, monkeypatch, change):
    file, out = tmp_path / "read", tmp_path / "out"
    file.write_text("a")
    vary, fixed = {"n": [1, 2]}, {"folder": str(folder), "file": str(file)}
    sweep("fake", vary, fixed=fixed, out=out)
    ran = runs(folder)
    resolved: list[Any] = []
    resolve = Fake.resolve
    monkeypatch.setattr(
        Fake, "resolve", lambda fake, given: (resolved.append(given), resolve(fake, given))[1]
    )
    if change == "definition":
        vary["n"] = [2, 1]
    elif change == "version":
        monkeypatch.setattr(store_module, "version", lambda: "another")
    elif change == "file":
        file.write_text("b")
    elif change == "current folder":  # from which relative names of files count
        monkeypatch.chdir(out)
    else:
        (out / "points" / "finished.json").write_text("[]")
    result = sweep("fake", vary, fixed=fixed, out=out)
    assert len(resolved) >= 2
    assert runs(folder) == ran + (2 if change in ("file", "version") else 0)
    assert [row["n"] for row in result] == vary["n"]


def test_tables_of_a_finished_sweep_are_written_again_if_they_were_changed(tmp_path):
    sweep("fake", {"n": [1, 2]}, out=tmp_path)
    before = files(tmp_path)
    (tmp_path / "table.csv").write_text("n\n")
    assert sweep("fake", {"n": [1, 2]}, out=tmp_path).found == 2
    assert files(tmp_path) == before


@pytest.mark.parametrize("executor", [run_here, backwards])
def test_points_that_are_the_same_are_run_once(tmp_path, folder, monkeypatch, executor):
    monkeypatch.setattr(execute_module, "run_locally", executor)
    vary = {"called": ["a", "b"], "n": [1, 2], "how": ["ok", "refused"]}
    result = sweep("fake", vary, fixed={"folder": str(folder)}, out=tmp_path / "out")
    assert (len(result), runs(folder)) == (8, 4)
    assert [row["called"] for row in result] == ["a"] * 4 + ["b"] * 4
    assert [row["time_ns"] for row in result] == [100.0, None, 50.0, None] * 2
    assert result.failed == 4


def test_without_a_folder_nothing_is_stored(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert len(sweep("fake", {"n": [1, 2]})) == 2
    assert list(tmp_path.iterdir()) == []


def test_progress_counts_every_point_once(tmp_path):
    states: list[Progress] = []
    vary = {"n": [1, 2], "how": ["ok", "refused", "unresolved"]}
    run_sweep(defined("fake", {"n": [1], "how": ["ok"]}), StudyOptions(out=tmp_path))
    run_sweep(defined("fake", vary), StudyOptions(out=tmp_path), states.append)
    assert states[0] == Progress(6, 0, 0, 0)
    assert states[-1] == Progress(6, 6, 1, 4)
    assert [state.done for state in states] == sorted(state.done for state in states)
    shares: list[float] = []
    sweep("fake", vary, progress=shares.append)
    assert (shares[0], shares[-1]) == (0.0, 1.0)


def test_the_example_of_its_documentation_runs():
    (example,) = doctest.DocTestFinder(recurse=False).find(sweep, "sweep", globs={})
    assert doctest.DocTestRunner().run(example) == doctest.TestResults(failed=0, attempted=3)


# Definitions


def test_a_file_is_swept_with_other_values_in_place_of_its_own(tmp_path):
    file = tmp_path / "study.yaml"
    file.write_text(
        "command: fake\nfixed: {how: ok}\nvary: {n: [1, 2], called: [a, b]}\nbaseline: {n: 1}\nzip: true\n"
    )
    assert [(row["n"], row["called"]) for row in sweep(file)] == [(1, "a"), (2, "b")]
    assert [row["n"] for row in sweep(file, {"n": [5, 1]})] == [5, 1]
    one = sweep(str(file), fixed={"n": 7})
    assert ([row["called"] for row in one], one[0]["time_ns"]) == (["a", "b"], 100 / 7)
    assert "speedup" not in one.columns
    definition = replace(defined(file), zipped=())
    assert len(sweep(definition)) == 4
    assert [row["how"] for row in sweep(definition, {"how": ["ok", "x"]}, fixed={"n": 1, "called": "a"})] == [
        "ok",
        "x",
    ]


@pytest.mark.parametrize(
    ("arguments", "options", "words"),
    [
        (("fak", {"n": [1]}), {}, "unknown-name command ? fake"),
        (("fake", {"n": [0]}), {}, "range n"),
        (("fake", {"n": [1]}), {"fixed": {"n": 1}}, "conflict n"),
        (("fake", {"n": [1]}), {"jobs": 1, "cluster": "tcp://x:1"}, "conflict jobs"),
    ],
)
def test_a_mistake_is_refused_before_anything_is_run(arguments, options, words, tmp_path):
    with refused(words):
        sweep(*arguments, out=tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


# The result


@pytest.fixture(scope="module")
def many() -> SweepResult:
    """More points than polars looks at to tell types, the last ones unlike the first."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(swept_commands(), "fake", Fake())
        patch.setattr(execute_module, "run_locally", run_here)
        return sweep("fake", {"how": ["refused", "ok", "broken"], "n": range(1, 151)})


def test_pandas_and_polars_take_a_result(many):
    for frame in (pandas.DataFrame(many), many.to_pandas(), polars.DataFrame(many).to_pandas()):
        assert (list(frame.columns), len(frame)) == (list(many.columns), 450)
        assert frame["time_ns"].notna().sum() == 150
        assert frame["time_ns"][151] == 50.0
        assert frame["reason"][449] == "ZeroDivisionError: two lines"
    assert polars.DataFrame(many)["energy_nj.total"].dtype == polars.Int64


def test_a_result_is_a_sequence_of_rows(many):
    assert (len(many), many[-1]["how"], [row["n"] for row in many[:2]]) == (450, "broken", [1, 2])
    assert many.failed == 300
    assert many.metrics == ("time_ns", "energy_nj.total", "bound")
    assert sum(row["status"] == "ok" for row in many) == 150
    with pytest.raises(TypeError, match="unhashable"):
        hash(many)


def test_a_result_is_shown_with_units_in_80_columns(many):
    shown = repr(many).splitlines()
    assert shown[0] == "SweepResult: 450 points of fake by how, n; 300 failed"
    assert shown[-1] == "... and 430 more"
    assert all(len(line) <= 80 for line in shown)
    few = repr(sweep("fake", {"n": [1]})).splitlines()
    assert [line.split() for line in few[1:]] == [
        ["n", "time", "energy"],
        ["1", "100.0", "ns", "1.000", "nJ"],
    ]


def test_a_result_is_escaped_in_notebooks():
    words = sweep("fake", {"called": ["<b>"]})._repr_html_()
    assert "&lt;b&gt;" in words
    assert "<b>" not in words


def test_a_result_as_json_has_configurations(many):
    plain = json.loads(json.dumps(many.to_dict(), allow_nan=False))
    assert plain["points"][0]["config"] == {"how": "refused", "n": 1, "parts": None}
    assert (plain["command"], plain["failed"], len(plain["points"])) == ("fake", 300, 450)


@pytest.mark.parametrize(
    ("vary", "fixed", "problem"),
    [
        ({"how": ["ok"]}, {}, "unwritable out"),
        ({"n": [1, 3]}, {}, "unwritable out"),
        ({"n": [1, 2]}, {"parts": 1}, "unwritable out"),
    ],
)
def test_a_folder_of_another_sweep_is_refused_unless_forced(tmp_path, vary, fixed, problem):
    sweep("fake", {"n": [1, 2]}, out=tmp_path, jobs=1)
    before = (tmp_path / "table.csv").read_text()
    with refused(problem):
        sweep("fake", vary, fixed=fixed, out=tmp_path, jobs=1)
    assert (tmp_path / "table.csv").read_text() == before
    sweep("fake", vary, fixed=fixed, out=tmp_path, jobs=1, force=True)
    assert (tmp_path / "table.csv").read_text() != before


@pytest.mark.parametrize("forced", [False, True])
def test_tables_are_those_of_the_run_that_took_the_folder_last(tmp_path, forced):
    """Another run begins and ends while one runs; it has more values, or is another sweep."""
    vary = {"how": ["ok"]} if forced else {"n": [1, 2, 3]}

    def other(share: float) -> None:
        if share == 1 and not took:
            took.append(sweep("fake", vary, out=tmp_path, jobs=1, force=forced))

    took: list[SweepResult] = []
    if forced:
        with refused("unwritable out"):
            sweep("fake", {"n": [1, 2]}, out=tmp_path, jobs=1, progress=other)
    else:
        assert len(sweep("fake", {"n": [1, 2]}, out=tmp_path, jobs=1, progress=other)) == 2
    described = json.loads((tmp_path / "sweep.json").read_text())
    header, *rows = (tmp_path / "table.csv").read_text().splitlines()
    assert (described["varied"], len(rows)) == (vary, len(took[0]))
    assert header.startswith(f"{next(iter(vary))},")


def test_a_forced_run_of_fewer_values_gives_way_to_the_one_with_all(tmp_path):
    def other(share: float) -> None:
        if share == 1 and not took:
            took.append(sweep("fake", {"n": [2]}, out=tmp_path, jobs=1, force=True))

    took: list[SweepResult] = []
    sweep("fake", {"n": [1, 2]}, out=tmp_path, jobs=1, progress=other)
    assert json.loads((tmp_path / "sweep.json").read_text())["varied"] == {"n": [1, 2]}
    assert len((tmp_path / "table.csv").read_text().splitlines()) == 3


def test_no_table_of_another_run_stands_beside_a_description(tmp_path):
    sweep("fake", {"n": [1, 2]}, out=tmp_path, jobs=1)

    def killed(share: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sweep("fake", {"how": ["ok"]}, out=tmp_path, jobs=1, force=True, progress=killed)
    assert json.loads((tmp_path / "sweep.json").read_text())["varied"] == {"how": ["ok"]}
    assert not (tmp_path / "table.csv").exists()


def test_values_may_be_added_to_a_sweep(tmp_path):
    sweep("fake", {"n": [1, 2]}, out=tmp_path, jobs=1)
    assert len(sweep("fake", {"n": [2, 3, 1]}, out=tmp_path, jobs=1)) == 3


def test_a_table_that_no_sweep_has_written_is_not_replaced(tmp_path):
    (tmp_path / "table.csv").write_text("mine\n")
    with refused("unwritable out"):
        sweep("fake", {"n": [1]}, out=tmp_path, jobs=1)
    assert (tmp_path / "table.csv").read_text() == "mine\n"
