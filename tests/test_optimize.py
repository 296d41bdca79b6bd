"""Searches: the front against brute force, what is found again, what is infeasible, and mistakes in one line."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.swept_fake import Fake, run_here, runs
from calls import call, refused_call
from mistakes import mistake_of, refused
from ndpsim.report.metrics import is_number
from ndpsim.studies.search.problem import Range, limit_of, parse_formula
from ndpsim.studies.search.run import optimize, problem_of
from ndpsim.studies.search.sampling import Sampler, on_log_scale
from ndpsim.studies.sweeps import run as execute_module
from ndpsim.studies.sweeps.commands import swept_commands
from ndpsim.studies.sweeps.executors import attempt
from ndpsim.studies.sweeps.executors.local import run_locally
from ndpsim.studies.sweeps.run import sweep
from scripts import script

TRADE = {
    "time_ns": "minimize",
    "energy_nj.total": "minimize",
}  # 100 / n and n * n: all points are on the front
AXES = {"n": "1..6", "parts": [1, 2, 3, 5]}


@pytest.fixture(autouse=True)
def fake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The command is known, points are run in this process, and the current folder is empty."""
    monkeypatch.setitem(swept_commands(), "fake", Fake())
    monkeypatch.setattr(execute_module, "run_locally", run_here)
    monkeypatch.chdir(tmp_path)


def dominates(one: Mapping[str, Any], other: Mapping[str, Any], signs: Mapping[str, int]) -> bool:
    pairs = [(sign * one[name], sign * other[name]) for name, sign in signs.items()]
    return all(a <= b for a, b in pairs) and any(a < b for a, b in pairs)


def values(rows: Any, *names: str) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in names) for row in rows]


# What is found


@pytest.mark.parametrize("sampler", ["tpe", "nsga2", "random"])
@pytest.mark.parametrize("direction", ["minimize", "maximize"])
def test_the_front_of_a_small_grid_is_that_of_all_its_points(sampler, direction):
    derived = {"mixed": "(n - 3) ** 2 + parts", "gain": "n * parts - parts ** 2"}
    wanted = {"mixed": "minimize", "gain": direction}
    result = optimize("fake", AXES, wanted, derived=derived, budget=24, sampler=sampler)
    rows = [dict(row) for row in sweep("fake", AXES)]
    for row in rows:
        n, parts = row["n"], row["parts"]
        row |= {"mixed": (n - 3) ** 2 + parts, "gain": n * parts - parts**2}
    signs = {"mixed": 1, "gain": 1 if direction == "minimize" else -1}
    best = {
        (row["mixed"], row["gain"]) for row in rows if not any(dominates(other, row, signs) for other in rows)
    }
    assert sorted(best) == values(result.front, "mixed", "gain")
    assert len({(row["n"], row["parts"]) for row in result.points}) == 24


def test_a_search_ends_when_all_points_have_been_run():
    result = optimize("fake", {"n": "1..5"}, TRADE, budget=100)
    assert (len(result.points), result.points.computed) == (5, 5)
    assert values(result.front, "n") == [(n,) for n in (5, 4, 3, 2, 1)]


def test_one_objective_has_its_best_point_and_how_it_was_approached():
    result = optimize("fake", {"n": "1..40"}, {"time_ns": "minimize"}, budget=30)
    assert len(result.front) == 1
    times = [row["time_ns"] for row in result.points]
    assert result.front[0]["time_ns"] == min(times)
    best_so_far = list(dict.fromkeys(itertools.accumulate(times, min)))
    assert [row["time_ns"] for row in result.approach] == best_so_far
    assert len(result.approach) > 1
    assert result.shared() == {"n": result.front[0]["n"]}  # of the best alone


@pytest.mark.parametrize(("drawn", "taken"), [(2.6, 3), (2.4, 2), (0.7, 1), (9.4, 9), (9.6, 9)])
def test_a_whole_number_is_the_nearest_within_the_ends(drawn, taken):
    assert Range(1, 9, log=False, whole=True).taken(drawn) == taken


def test_no_more_points_are_run_than_asked_whatever_the_batch():
    assert len(optimize("fake", {"n": "1..40"}, TRADE, budget=7, batch=5).points) == 7


def test_the_approach_to_a_maximum_grows():
    result = optimize("fake", {"n": "1..40"}, {"energy_nj.total": "maximize"}, budget=30)
    energies = [row["energy_nj.total"] for row in result.points]
    assert result.front[0]["energy_nj.total"] == max(energies)
    best_so_far = list(dict.fromkeys(itertools.accumulate(energies, max)))
    assert [row["energy_nj.total"] for row in result.approach] == best_so_far


def test_ranges_are_drawn_within_their_ends_and_rounded_as_hardware_files_take_them():
    vary = {"dimm.ranks": [1, 2], "link.link_gbps": "log:10..1000", "ndp.gemv.clock_mhz": "100.0..200.0"}
    result = optimize("gemv", vary, TRADE, fixed={"shape": "64,64"}, budget=12, sampler="random")
    for row in result.points:
        assert 10 <= row["link.link_gbps"] <= 1000
        assert 100 <= row["ndp.gemv.clock_mhz"] <= 200
        assert row["link.link_gbps"] == round(row["link.link_gbps"], 3)
    assert len({row["link.link_gbps"] for row in result.points}) == 12


@pytest.mark.parametrize(("low", "high", "drawn"), [(0.3336, 0.3339, 0.3338), (1.2344, 2.0, 1.2344)])
def test_rounding_leads_to_no_value_beyond_the_ends_of_a_range(low, high, drawn):
    within = Range(low, high, log=False, whole=False)
    assert not low <= round(drawn, 3) <= high
    assert low <= within.taken(drawn) <= high


def test_without_a_base_a_row_is_compared_with_the_one_above_it():
    result = optimize("fake", {"n": "1..4"}, TRADE, budget=4)
    assert result.differences() == [{}, {"n": (4, 3)}, {"n": (3, 2)}, {"n": (2, 1)}]


@pytest.mark.parametrize("direction", ["minimize", "maximize"])
def test_of_equal_points_the_earliest_is_the_best_and_none_after_it_is_an_improvement(direction):
    derived = {"coarse": "floor(n / 4)", "finer": "0 - floor(n / 2)"}
    result = optimize("fake", {"n": "1..16"}, {"coarse": direction}, derived=derived, budget=16)
    found = [row["coarse"] for row in result.points]
    best = (min if direction == "minimize" else max)(found)
    assert result.front[0]["run"] == found.index(best) + 1
    improved = [row["run"] for row in result.approach]
    assert improved == [run for run, coarse in enumerate(found, 1) if coarse not in found[: run - 1]
                        and coarse == sorted(found[:run], reverse=direction == "maximize")[0]]  # fmt: skip
    both = {"coarse": direction, "finer": "minimize" if direction == "minimize" else "maximize"}
    result = optimize("fake", {"n": "1..16"}, both, derived=derived, budget=16)
    pairs = values(result.points, "coarse", "finer")
    for row in result.front:
        assert row["run"] == pairs.index((row["coarse"], row["finer"])) + 1
    assert len(set(values(result.front, "coarse", "finer"))) == len(result.front) > 1


@pytest.mark.parametrize("sampler", ["tpe", "nsga2", "random"])
def test_a_sampler_follows_its_seed(sampler):
    asked = {"vary": {"n": "1..1000", "parts": [*range(1, 51)]}, "objectives": TRADE, "budget": 6}
    first, again, other = (
        values(optimize("fake", **asked, sampler=sampler, seed=seed).points, "n", "parts")
        for seed in (1, 1, 2)
    )
    assert first == again
    assert not set(first) & set(other)


@pytest.mark.parametrize(("text", "middle"), [("log:1.0..1000000.0", 1000), ("1.0..1000000.0", 500_000)])
def test_a_point_that_replaces_an_equal_one_is_drawn_as_its_range_is(text, middle):
    """Of 200 points drawn near one that was run before, about half lie below the middle of the range."""
    problem = problem_of("gemv", {"link.link_gbps": text}, {"shape": "64,64"}, objectives=TRADE)
    sampler, points = Sampler(problem), []
    for _ in range(200):
        place = {"link.link_gbps": problem.ranges["link.link_gbps"].low}
        sampler._seen.add(sampler._identity(place))
        assert sampler._walk(place)
        points.append(place["link.link_gbps"])
    assert all(1 <= point <= 1_000_000 for point in points)
    assert 70 < sum(point < middle for point in points) < 130


def test_what_replaces_an_equal_point_follows_the_seed():
    problem = problem_of("gemv", {"link.link_gbps": "1.0..1000.0"}, {"shape": "64,64"}, objectives=TRADE)
    drawn = []
    for seed in (1, 1, 2):
        place = {"link.link_gbps": 1.0}
        assert Sampler(replace(problem, seed=seed))._walk(place)
        drawn.append(place["link.link_gbps"])
    assert drawn[0] == drawn[1] != drawn[2]


def test_keys_that_are_zipped_have_values_that_go_together():
    result = optimize("fake", {"n": [1, 5, 2], "parts": [7, 8, 9]}, TRADE, zip=True, budget=9)
    assert sorted(values(result.points, "n", "parts")) == [(1, 7), (2, 9), (5, 8)]


# Infeasible points


def test_failed_points_are_infeasible_and_on_no_front():
    vary = {"n": "1..6", "how": ["ok", "refused", "broken", "unresolved"]}
    result = optimize("fake", vary, TRADE, budget=24)
    assert (result.infeasible, result.points.failed, len(result.front)) == (18, 18, 6)
    assert all(row["how"] == "ok" for row in result.front)


def test_a_failed_point_is_infeasible_where_the_objective_is_a_key_that_it_has():
    vary = {"n": "1..6", "how": ["refused", "ok"]}
    result = optimize("fake", vary, {"n": "minimize", "time_ns": "minimize"}, budget=12)
    assert values(result.front, "n", "how") == [(n, "ok") for n in range(1, 7)]


def test_the_sampler_is_told_what_is_infeasible():
    """Nearly all of what is asked for once that is known lies where points do not fail."""
    vary = {"n": "1..200", "how": ["refused", "ok", "broken"]}
    result = optimize("fake", vary, {"time_ns": "minimize"}, budget=64)
    later = [row["how"] for row in result.points][32:]
    assert later.count("ok") > 0.6 * len(later)


def test_constraints_hold_on_the_front_and_the_best_is_at_their_edge():
    limit = {"energy_nj.total": "<= 400"}
    result = optimize("fake", {"n": "1..100"}, {"time_ns": "minimize"}, constraints=limit, budget=60)
    assert result.front[0]["n"] == 20
    assert result.infeasible == sum(row["energy_nj.total"] > 400 for row in result.points) > 0
    limit = {"energy_nj.total": ">= 400", "time_ns": ">= 3"}
    result = optimize("fake", {"n": "1..40"}, TRADE, constraints=limit, budget=40)
    assert values(result.front, "n") == [(n,) for n in range(33, 19, -1)]


def test_a_point_beyond_either_of_two_limits_is_infeasible():
    limits = {"energy_nj.total": "<= 100", "time_ns": "<= 25"}  # n <= 10, n >= 4
    result = optimize("fake", {"n": "1..12"}, TRADE, constraints=limits, budget=12)
    assert sorted(row["n"] for row in result.points if row["feasible"]) == [*range(4, 11)]
    assert (result.infeasible, values(result.front, "n")) == (5, [(n,) for n in range(10, 3, -1)])


@pytest.mark.parametrize(
    ("limit", "metric", "excess"),
    [
        ("<= 50", 60, 0.2), ("<= 50", 40, -0.2), (">= 50", 40, 0.2), (">= 50", 50, 0),
        ("<= -10", -8, 0.2), (">= -10", -12, 0.2), ("<= -10", -12, -0.2), ("<= 0", 3, 3), (">= 0", -3, 3),
    ],
)  # fmt: skip
def test_what_is_beyond_a_limit_is_a_share_of_its_size(limit, metric, excess):
    assert limit_of("x", limit).excess(metric) == pytest.approx(excess)


def test_the_sampler_is_told_the_sum_of_what_is_beyond_all_limits():
    limits = {"energy_nj.total": "<= 100", "time_ns": ">= 10", "n": "<= 60"}
    problem = problem_of("fake", {"n": "1..99"}, objectives=TRADE, constraints=limits)
    sampler = Sampler(problem)
    (trial,) = sampler.ask(1)
    row = {"status": "ok", "energy_nj.total": 400, "time_ns": 5, "n": 20}
    assert problem.excess(row) == pytest.approx([3, 0.5, -2 / 3])
    sampler.tell(trial, [5, 400], problem.excess(row))
    (told,) = sampler._study.trials
    assert list(told.constraints.values()) == [pytest.approx(3.5)]


# Going on


def cut_off(after: int) -> Any:
    """As `run_here`, interrupted behind some points."""

    def interrupted(command: Any, tasks: Iterator[Any], jobs: int) -> Iterator[Any]:
        for number, answer in enumerate(run_here(command, tasks, jobs)):
            if number == after:
                raise KeyboardInterrupt
            yield answer

    return interrupted


def test_an_interrupted_search_goes_on_and_runs_no_point_twice(tmp_path, monkeypatch):
    folder = tmp_path / "meeting"
    folder.mkdir()
    given = {"vary": {"n": "1..300"}, "objectives": TRADE, "fixed": {"folder": str(folder)}}
    with monkeypatch.context() as patch:
        patch.setattr(execute_module, "run_locally", cut_off(13))
        with pytest.raises(KeyboardInterrupt):
            optimize("fake", **given, budget=40, out="here")
    assert sum(len(file.read_text().splitlines()) for file in Path("here/points").glob("*.jsonl")) == 13
    result = optimize("fake", **given, budget=40, out="here")
    assert (result.points.found, result.points.computed) == (13, 27)
    assert runs(folder) in (40, 41)  # the one that was under way may have been run, and is not recorded
    assert result == optimize("fake", **given, budget=40)
    more = optimize("fake", **given, budget=60, out="here")
    assert (more.points.found, more.points.rows[:40]) == (40, result.points.rows)


def test_points_of_a_sweep_are_found_in_its_folder():
    sweep("fake", AXES, out="here")
    table = Path("here/table.csv").read_bytes()
    result = optimize("fake", AXES, TRADE, budget=20, out="here")
    assert (result.points.found, result.points.computed) == (20, 0)
    assert Path("here/table.csv").read_bytes() == table
    assert {"front.csv", "optimize.json", "runs.csv"} <= {path.name for path in Path("here").iterdir()}


def late_first(command: Any, tasks: Iterator[Any], jobs: int) -> Iterator[Any]:
    """As many tasks at once as there are, and the last one answered first."""
    while waiting := list(itertools.takewhile(lambda task: task is not None, tasks)):
        for task in reversed(waiting):
            yield task, attempt(command, task.settings, task.key)


def test_points_follow_from_seed_and_batch_and_not_from_the_order_in_which_they_finish(monkeypatch):
    given = {"vary": {"n": "1..1000", "parts": [1, 2, 3]}, "objectives": TRADE, "budget": 32}
    one = optimize("fake", **given)
    monkeypatch.setattr(execute_module, "run_locally", late_first)
    assert optimize("fake", **given) == one
    assert values(optimize("fake", **given, seed=2).points, "n") != values(one.points, "n")


def test_points_follow_from_seed_and_batch_and_not_from_the_number_of_processes(monkeypatch):
    given = {"vary": {"n": "1..1000", "how": ["ok", "refused"]}, "objectives": TRADE, "budget": 20}
    here = optimize("fake", **given)
    monkeypatch.setattr(execute_module, "run_locally", run_locally)
    assert optimize("fake", **given, jobs=2) == here


def test_the_base_is_run_first_and_points_are_compared_with_it():
    result = optimize("fake", AXES, TRADE, base={"n": 2, "parts": 5}, budget=10)
    assert values(result.points[:1], "n", "parts") == [(2, 5)]
    for row, difference in zip(result.shown, result.differences(), strict=True):
        changed = {
            key: pair
            for key, pair in (("n", (2, row["n"])), ("parts", (5, row["parts"])))
            if pair[0] != pair[1]
        }
        assert difference == changed


# Mistakes


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"vary": {}}, "missing vary"),
        ({"vary": {"n": "2.0..1.0"}}, "form n"),
        ({"vary": {"n": "log:0..4"}}, "form n"),
        ({"vary": {"n": "1.5..4.5"}}, "type n"),
        ({"vary": {"n": "1.0..4.5"}}, "type n"),
        ({"objectives": {}}, "missing objectives"),
        ({"constraints": {"time_ns": "< 50"}}, "form time_ns"),
        ({"derived": {"x": "n +"}}, "form x"),
        ({"derived": {"x": "open(n)"}}, "form x"),
        ({"derived": {"n": "2"}}, "twice n"),
        ({"base": {"n": 1}}, "missing base"),
        ({"base": {"n": 9, "parts": 1}}, "range base"),
        ({"base": {"k": 9}}, "unknown-key k"),
    ],
)
def test_a_mistake_is_refused_before_anything_is_run(change, words):
    given = {"vary": AXES, "objectives": TRADE, **change}
    with refused(words):
        problem_of("fake", **given)


@pytest.mark.parametrize("name", ["time_nss", "wall_s", "energy", "cost_usd"])
@pytest.mark.parametrize("command", ["gemv", "moe", "relayout", "dram"])
def test_a_metric_that_a_command_has_not_is_refused_before_anything_is_run(command, name):
    for change in (
        {"objectives": {name: "minimize"}},
        {"constraints": {name: "<= 1"}},
        {"derived": {"x": name}},
    ):
        given = {"objectives": {"time_ns": "minimize"}, **change}
        wrong = mistake_of(problem_of, command, {"hw": ["trimoe", "edge"]}, **given)
        assert wrong.split(" ?")[0] == f"unknown-name {'x' if 'derived' in change else name}"


def test_a_metric_that_no_point_has_ends_the_search_at_its_first_points(tmp_path):
    with refused("unknown-name energy_nj.totel ? energy_nj.total"):
        optimize("fake", AXES, {"energy_nj.totel": "minimize"}, fixed={"folder": str(tmp_path)}, batch=4)
    assert runs(tmp_path) == 4


# Parts


@given(st.lists(st.floats(-1e12, 1e12, allow_subnormal=False), min_size=2, max_size=2))
def test_the_scale_on_which_objectives_are_told_keeps_their_order(pair):
    low, high = sorted(pair)
    assert on_log_scale(low) <= on_log_scale(high)
    if high > 0 and low > 1e-3 and high > 1.001 * low:
        assert on_log_scale(low) < on_log_scale(high)


@given(st.integers(-50, 50), st.integers(1, 50))
def test_formulas_are_what_python_makes_of_them(a, b):
    for text in (
        "a.x + b * 2 - -a.x",
        "max(a.x, b, 3) / b ** 2",
        "ceil(a.x / b) * (a.x + 1)",
        "min(b, 2) ** -1",
        "floor(a.x / b) + log2(b) - sqrt(b)",
    ):
        known = {"a.x": a, "b": b}
        functions = {name: getattr(math, name) for name in ("ceil", "floor", "log2", "sqrt")}
        meant = eval(text.replace("a.x", "a"), {"a": a, "b": b, **functions})
        assert parse_formula(text, "x").value(known.get) == pytest.approx(meant)
    for text in ("a.x / (b - b)", "missing + 1", "(0 - b) ** 0.5", "10 ** 400 + b"):
        assert not is_number(parse_formula(text, "x").value(known.get))
    assert parse_formula("b", "x").value({"b": 10**400}.get) is None  # no float has as many digits


def test_formulas_have_metrics_before_fixed_keys_before_the_configuration():
    problem = problem_of(
        "gemv", {"tokens": "1..2"}, {"release-ns": 5.0}, False,
        objectives={"all": "minimize"}, derived={"all": "release_ns * tokens + time_ns + dimm.count"},
    )  # fmt: skip
    config = {"release-ns": 7.0, "tokens": 9, "hardware": {"dimm": {"count": 1000}}}
    row = {"tokens": 2, "status": "ok", "time_ns": 100.0, "config": json.dumps(config)}
    assert problem.judged(row)["all"] == 5 * 2 + 100 + 1000


# The command line


STUDY = """\
command: fake
vary: {n: 1..30}
objectives:
  time_ns: minimize
  energy_nj.total: minimize
constraints: {n: <= 10}
budget: 20
"""


def test_the_front_is_printed_written_and_drawn():
    Path("study.yaml").write_text(STUDY)
    done = call("optimize", "study.yaml", "--plot", "front.svg")
    assert (done.status, done.err) == (0, "")
    answer, *lines = done.out.splitlines()
    assert answer.startswith("Best by time: run ")
    assert lines[0].startswith("minimize time_ns, minimize energy_nj.total, n <= 10: ")
    assert lines[1].split() == ["run", "n", "time", "energy", "differs", "from", "the", "row", "above"]
    assert lines[-1].startswith("20 simulated, 0 reused;")
    assert Path("front.svg").stat().st_size > 1000
    rows = Path("study.optimize/front.csv").read_text().splitlines()
    assert len(rows) == len(lines) - 2
    plain = json.loads(call("optimize", "study.yaml", "--json", "-").out)
    assert (plain["runs"], len(plain["points"]), len(plain["front"])) == (20, 20, len(rows) - 1)
    assert plain["front"][1]["differs"] == {"n": [plain["front"][0]["n"], plain["front"][1]["n"]]}


@pytest.mark.parametrize(
    "other",
    [("--seed", 2), ("--set", "parts=2"), ("--vary", "n=1..9")],
)
def test_a_folder_of_another_search_is_refused_unless_forced(other):
    Path("study.yaml").write_text(STUDY)
    assert call("optimize", "study.yaml", "--runs", 3).status == 0
    before = Path("study.optimize/runs.csv").read_text()
    assert refused_call("optimize", "study.yaml", "--runs", 3, *other) == "unwritable --out"
    assert Path("study.optimize/runs.csv").read_text() == before
    assert call("optimize", "study.yaml", "--runs", 3, *other, "--force").status == 0
    assert json.loads(Path("study.optimize/optimize.json").read_text())


@pytest.mark.parametrize(
    ("command", "name", "content", "words"),
    [
        ("optimize", "bad.json", '{"command": "fake", "vary": 3}', "form bad.json:1 vary"),
        ("sweep", "bad.json", '{"command": "fake", "vary": 3}', "form bad.json:1 vary"),
        ("sweep", "bad.json", '{"command": "fake",\n"vary": {"m": [1]}}', "unknown-key bad.json:2 m"),
        ("optimize", "bad.json", '{"command": "fake", ', "form bad.json:1"),
        ("optimize", "bad.txt", STUDY, "unknown-name FILE.yaml"),
        ("sweep", "bad.txt", STUDY, "unknown-name sweep"),
    ],
)
def test_a_mistake_in_a_file_is_told_by_the_file_and_its_key(command, name, content, words):
    Path(name).write_text(content)
    assert refused_call(command, name) == words


def test_one_objective_is_printed_and_drawn_as_it_was_approached():
    Path("study.yaml").write_text(STUDY.replace("  energy_nj.total: minimize\n", ""))
    done = call("optimize", "study.yaml", "--plot", "best.svg")
    assert done.status == 0
    assert "the best of 20 points is run" in done.out
    assert "the best: n=10" in done.out
    assert Path("best.svg").stat().st_size > 1000


def test_no_feasible_point_is_status_1():
    Path("study.yaml").write_text(STUDY.replace("n: <= 10", "n: <= 0"))
    done = call("optimize", "study.yaml")
    assert (done.status, done.err) == (1, "ndpsim: no point is feasible; see study.optimize/runs.csv\n")


# Examples


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), min_size=1, max_size=8))
def test_the_example_measures_hypervolumes_as_counting_cells_does(points):
    known_grid = script("examples/optimize/known_grid.py")
    cells = sum(any(x <= i and y <= j for x, y in points) for i, j in itertools.product(range(10), repeat=2))
    inside = [point for point in points if max(point) < 10]
    assert known_grid.hypervolume(inside, (10, 10)) == cells


def test_the_example_of_a_known_grid_runs_on_a_small_one(capsys, monkeypatch):
    known_grid = script("examples/optimize/known_grid.py")
    monkeypatch.setattr(known_grid, "SEEDS", range(1, 2))
    small = {
        "dimm.ranks": 4,
        "dram.refresh": "all-bank",
        "ndp.gemv.fifo_bursts": 16,
        "ndp.gemv.clock_mhz": 1000,
    }
    shares = known_grid.main("grid", vary={"tokens": "1..8"}, fixed=small)
    assert set(shares) == {"tpe", "nsga2", "random"}
    assert all(0 < share <= 1 for of_seeds in shares.values() for share in of_seeds)
    assert "80 points; 4 runs are 5.0% of them" in capsys.readouterr().out


def test_the_cheapest_machine_is_a_search_of_points_that_can_be():
    file = Path(__file__).parents[1] / "examples" / "optimize" / "cheapest_trimoe.yaml"
    problem = problem_of(file)
    command = swept_commands()["moe"]
    command.resolve(problem.definition.settings(problem.base))
    assert problem.objectives == {"cost_usd": "minimize"}
