"""The claims of papers as data: complete, of one form."""

from __future__ import annotations

import pytest

from mistakes import refused
from ndpsim.studies.claims.expression import Expression
from ndpsim.studies.claims.files import read_paper, read_papers, read_tolerances

SOURCES = read_papers()
PAPERS = {name: paper for name, paper in SOURCES.items() if paper.source == "paper"}
CLAIMS = [claim for source in SOURCES.values() for claim in source.claims]


def test_every_paper_has_its_claims_and_says_what_was_gone_through():
    assert set(PAPERS) == {"trimoe", "edge", "cxl", "cache", "dali"}
    for paper in PAPERS.values():
        places = " ".join(paper.counted)
        assert "Table 1" in places or "Table I" in places
        assert {claim.kind for claim in paper.claims} == {"exact", "simulated", "trend", "not-reproducible"}


def test_every_tolerance_is_one_of_the_classes_and_exact_claims_have_none():
    classes = read_tolerances()
    assert {claim.tolerance for claim in CLAIMS if claim.tolerance is not None} <= set(classes)
    assert {claim.tolerance for claim in CLAIMS if claim.kind == "exact"} == {"exact"}
    assert [name for name, one in classes.items() if one.share == 0] == ["exact"]


def test_no_class_of_tolerance_becomes_wider_unseen():
    shares = {name: one.share for name, one in read_tolerances().items()}
    assert shares == {"exact": 0, "stated": 0.05, "hardware": 0.15, "routing": 0.25, "systems": 0.5}


def test_no_exact_claim_reads_a_figure_that_the_hardware_file_takes_from_the_paper_as_published():
    for claim in CLAIMS:
        if claim.kind == "exact":
            assert "published" not in str(claim.ours), claim.name
            assert claim.runs, claim.name


def test_what_a_generator_of_routing_is_given_and_gives_back_is_fitted_and_all_else_is_a_prediction():
    for claim in SOURCES["skew"].claims:
        assert bool(claim.fitted) == claim.name.startswith("skew-given-"), claim.name


def test_the_cycles_of_unindp_are_its_accesses_and_what_it_counts_besides():
    figures = {claim.name: claim.published.value for claim in SOURCES["unindp"].claims}
    shapes = {name.split("-")[1] for name in figures if name.endswith("-stream")}
    assert len(shapes) == 7
    for shape in shapes:
        accesses, rows, stream = (
            figures[f"unindp-{shape}-{what}"] for what in ("accesses", "row-changes", "stream")
        )
        assert stream == 6 * accesses / 2 + 31 * rows / 16 / 2 + 67


# Expressions

METRICS = {
    "a": {"time_ns": 3.0, "busy.memory": 0.5, "utilization.ndp 0": 0.2, "utilization.ndp 1": 0.4, "x": None}
    | {"utilization.ndp 2": 0.2}
}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a.time_ns / 2", 1.5),
        ("a.busy.memory * 4 - 1", 1.0),
        ('metric(a, "utilization.ndp 1")', 0.4),
        ('metric(a, "utilization.ndp *")', pytest.approx(0.8 / 3)),
        ("max(a.time_ns, 5) ** 2", 25),
        ("mean(a.time_ns, 5)", 4.0),
        ("mean(a.time_ns, 6, a.time_ns)", 4.0),  # a repeated value counts twice
        ("2 < a.time_ns <= 3 and not a.time_ns == 4", True),
        ("a.time_ns > 3 or a.busy.memory > 1", False),
        ("-a.time_ns", -3.0),
    ],
)
def test_an_expression_is_worked_out_over_metrics(text, value):
    assert Expression(text).of(METRICS) == value
    assert Expression(text).runs == {"a"}


@pytest.mark.parametrize("text", ["a +", "a = 1", "", "a\0b"])
def test_an_expression_is_a_line_of_python(text):
    with refused("form"):
        Expression(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a.time", "unknown-name ? time_ns"),
        ("a.x", "type"),
        ("1 / (a.time_ns - 3)", "invalid"),
    ],
)
def test_what_cannot_be_worked_out_is_one_line(text, words):
    with refused(words):
        Expression(text).of(METRICS)


# Files

CLAIM = """\
paper: made
title: A paper
hardware: trimoe
counted: {Table 1: one claim}
claims:
  - name: made-link
    place: Table 1
    kind: exact
    published: {value: 25, unit: GB/s, quote: "25 GB/s"}
    runs: {hw: {command: hardware, given: {hw: trimoe}}}
    ours: hw.link.lanes * hw.link.lane_gbit_s / 8
    tolerance: exact
"""


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("name: made-link", "name: link", "form made.yaml:1"),
        ("kind: exact", "kind: exactly", "form made.yaml:8 claims.0.kind"),
        ("{value: 25, ", "{value: 25, low: 1, ", "form made.yaml:9 claims.0.published"),
        ("ours: hw.link", "ours: dimm.link", "form made.yaml:6 claims.0"),
        ("    tolerance: exact\n", "", "form made.yaml:6 claims.0"),
        (
            "    tolerance: exact\n",
            '    tolerance: exact\n    expected: "off"\n',
            "form made.yaml:6 claims.0",
        ),
        ("unit: GB/s", "units: GB/s", "form made.yaml:9 claims.0.published.units"),
        ("place: Table 1", "place: Table 1\n    given_by: x", "form made.yaml:6 claims.0"),
    ],
)
def test_a_mistake_in_a_claim_is_one_line_with_its_place(tmp_path, old, new, words):
    file = tmp_path / "made.yaml"
    file.write_text(CLAIM)
    assert read_paper(file).claims[0].name == "made-link"
    assert old in CLAIM
    file.write_text(CLAIM.replace(old, new, 1))
    with refused(words):
        read_paper(file)
