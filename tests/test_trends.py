"""Trends: each can be false, and each of its comparisons alone can make it so."""

from __future__ import annotations

import ast
import fnmatch

import pytest

from ndpsim.studies.claims.claim import Expression, read_papers, read_tolerances
from ndpsim.studies.claims.evaluate import judged
from ndpsim.studies.claims.report import write_report

TRENDS = [claim for paper in read_papers().values() for claim in paper.claims if claim.falsified_by]


def metrics_of(text: str) -> set[tuple[str, str]]:
    """The runs and metrics of an expression, a pattern of names as it stands there."""
    tree = ast.parse(text.strip(), mode="eval")
    calls = [node.args for node in ast.walk(tree) if isinstance(node, ast.Call) and node.func.id == "metric"]
    names = {ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    longest = {name for name in names if not any(other.startswith(name + ".") for other in names)}
    return {(run.id, name.value) for run, name in calls} | {tuple(name.split(".", 1)) for name in longest}


def value(text: str, figures: dict[str, float]):
    """The expression's, with figures by name or pattern, the last that fits; 1 where none does."""
    metrics: dict[str, dict[str, float]] = {}
    for run, name in metrics_of(text):
        fits = [key for key in figures if f"{run}.{name}" == key or fnmatch.fnmatchcase(f"{run}.{name}", key)]
        metrics.setdefault(run, {})[name] = figures[fits[-1]] if fits else 1.0
    return Expression(text).of(metrics)


def comparisons(text: str) -> int:
    """How many pairs of sides an expression compares."""
    tree = ast.parse(text.strip(), mode="eval")
    return sum(len(node.ops) for node in ast.walk(tree) if isinstance(node, ast.Compare))


class Without(ast.NodeTransformer):
    """An expression without one of its comparisons, which is so instead."""

    def __init__(self, number: int) -> None:
        self.number = number

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        sides = [node.left, *node.comparators]
        steps: list[ast.expr] = []
        for place, operator in enumerate(node.ops):
            self.number -= 1
            dropped = self.number == -1
            step = ast.Compare(sides[place], [operator], [sides[place + 1]])
            steps.append(ast.parse("1 == 1", mode="eval").body if dropped else step)
        return ast.BoolOp(ast.And(), steps) if len(steps) > 1 else steps[0]


def without(text: str, number: int) -> str:
    return ast.unparse(ast.fix_missing_locations(Without(number).visit(ast.parse(text.strip(), mode="eval"))))


def undecided(text: str, so: dict[str, float], not_so: list[dict[str, float]]) -> list[int]:
    """The comparisons that are the only one to fail in none of the cases."""
    cases = [so | changes for changes in not_so]
    return [
        number
        for number in range(comparisons(text))
        if not any(value(without(text, number), case) and not value(text, case) for case in cases)
    ]


def test_a_comparison_that_no_case_tries_is_found():
    assert value("1 < a.x < b.y", {"a.*": 2, "b.y": 3}) is True
    assert undecided("1 < a.x < b.y", {"a.x": 2, "b.y": 3}, [{"a.x": 0.5}, {"b.y": 1.5}]) == []
    assert undecided("1 < a.x < b.y", {"a.x": 2, "b.y": 3}, [{"a.x": 0.5}]) == [1]
    assert undecided("1 < a.x < b.y", {"a.x": 2, "b.y": 3}, [{"a.x": 0.5, "b.y": 0.1}]) == [0, 1]
    assert metrics_of('metric(a, "p *") + b.c.d') == {("a", "p *"), ("b", "c.d")}


@pytest.mark.parametrize("claim", [pytest.param(claim, id=claim.name) for claim in TRENDS])
def test_a_trend_is_false_with_the_figures_that_would_make_it_so(claim):
    tried, figures = claim.falsified_by, [claim.falsified_by.so, *claim.falsified_by.not_so]
    assert value(claim.ours, tried.so) is True
    assert [value(claim.ours, tried.so | changes) for changes in tried.not_so] == [False] * len(tried.not_so)
    assert undecided(claim.ours, tried.so, tried.not_so) == []
    names = [f"{run}.{name}" for run, name in metrics_of(claim.ours)]
    unknown = [key for each in figures for key in each if key not in names and not fnmatch.filter(names, key)]
    assert unknown == []


def test_the_report_says_what_would_make_a_trend_false_or_makes_it_true(tmp_path):
    paper = read_papers()["edge"]
    trends = {claim.name: claim for claim in paper.claims if claim.kind == "trend"}
    pair = trends["edge-tensor-parallelism-wins"], trends["edge-same-load"]
    write_report(tmp_path, [judged(claim, paper, True, {}, read_tolerances()) for claim in pair], None)
    text = (tmp_path / "REPORT.md").read_text()
    assert f"| edge-tensor-parallelism-wins | {pair[0].falsified_by.says} |  | holds |" in text
    assert f"| edge-same-load | given by {pair[1].given_by} |  | holds |" in text
