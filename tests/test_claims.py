"""The claims of papers as data: complete, of one form; those of measured times; pairs of assumptions."""

from __future__ import annotations

import csv
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from mistakes import refused
from ndpsim.inference.processors import read_table
from ndpsim.studies.claims import evaluate as evaluation
from ndpsim.studies.claims import pairs as pairing
from ndpsim.studies.claims.claim import (
    Assumption,
    Claim,
    ClaimRun,
    Expression,
    Paper,
    read_paper,
    read_papers,
    read_tolerances,
)
from ndpsim.studies.claims.evaluate import Pair, evaluate, sensitivity
from ndpsim.studies.claims.pairs import pairs
from ndpsim.studies.claims.report import write_report
from ndpsim.studies.claims.runs import TIME_IS_UP, ResolvedRun
from ndpsim.studies.claims.words import changed_verdicts, dependence, plain_data

pytestmark = pytest.mark.usefixtures("claims_run_here")

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
        ("place: Table 1", "place: Table 1\n    why: '{dimm.ranks}'", "form made.yaml:6 claims.0"),
        ("place: Table 1", "place: Table 1\n    why: '{hw.link +}'", "form made.yaml:6 claims.0"),
        ("place: Table 1", "place: Table 1\n    why: 'set {1, 2'", "form made.yaml:6 claims.0"),
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


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ("reduce: min", "2 ranks make 16, a half of 32"),
        ("reduce: max", "8 ranks make 64, a half of 128"),
        ("reduce: mean", "4.66667 ranks make 37.3333, a half of 74.6667"),
        ("reduce: all", "4 ranks make 32, a half of 64"),  # the first that is not so
    ],
)
def test_a_why_has_the_figures_of_the_combination_that_decides(tmp_path, how, told):
    trend = "all" in how
    text = CLAIM.replace(
        "    runs: {hw: {command: hardware, given: {hw: trimoe}}}\n    ours: hw.link.lanes * hw.link.lane_gbit_s / 8\n",
        "    over: {ranks: [2, 4, 8]}\n"
        "    runs: {hw: {command: hardware, given: {hw: trimoe, dimm.ranks: '{ranks}'}}}\n"
        f"    ours: hw.dimm.ranks * 8 {'< 32' if trend else ''}\n    {how}\n"
        "    expected: 'off'\n    why: '{ranks:g} ranks make {8 * hw.dimm.ranks:g}, a half of {16 * hw.dimm.ranks:g}'\n",
    )
    if trend:
        text = text.replace("exact\n    pub", "trend\n    pub").replace(
            "    tolerance: exact\n", "    given_by: x\n"
        )
        text = text.replace("{value: 25, unit: GB/s, quote", "{statement: few, quote")
    file = tmp_path / "made.yaml"
    file.write_text(text)
    paper = read_paper(file)
    outcome = evaluate([(paper, paper.claims[0])], 1)[0]
    assert outcome.verdict == "off", outcome.reason
    assert outcome.why == outcome.to_dict()["why"] == told
    assert outcome.metrics == {
        "hw.dimm.ranks": float(told.split()[0]) if trend else pytest.approx(float(told.split()[0]), abs=1e-4)
    }
    write_report(tmp_path, [outcome], None)
    report = (tmp_path / "REPORT.md").read_text()
    assert told in report
    assert ("hw.dimm.ranks 4 |" in report) == trend


# ---- The claims of measured times: published values equal those of tables, and fits are marked

MEASURED = read_papers()["measured"].claims
LAYERS = Path(__file__).parents[1] / "validation" / "rtxpro6000_qwen3-30b-a3b_moe_bf16.csv"


def _called(pattern):
    """The claims whose names match, with the numbers in the match."""
    found = [(claim, re.fullmatch(pattern, claim.name)) for claim in MEASURED]
    return [(claim, tuple(map(int, match.groups()))) for claim, match in found if match]


def test_times_of_an_expert_on_an_h100_are_those_of_the_table_that_the_efficiencies_are_fitted_to():
    table = read_table("h100_mixtral-8x7b", Path())
    claims = _called(r"measured-h100-mixtral-(\d+)")
    assert len(claims) == 6
    for claim, (tokens,) in claims:
        assert claim.published.value == table.time_ns(tokens)
        assert claim.runs["expert"].given["tokens"] == tokens
        assert claim.fitted


def test_times_of_a_layer_s_call_and_the_tokens_of_an_expert_are_those_of_the_table():
    with LAYERS.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(line for line in file if not line.startswith("#")))
    table = {(int(row["tokens"]), int(row["activated_experts"])): float(row["time_us"]) for row in rows}
    claims = _called(r"measured-rtxpro6000-qwen3-(\d+)-(\d+)(?:-one-by-one)?")
    assert len(claims) == 12
    for claim, (tokens, experts) in claims:
        assert claim.published.value == table[tokens, experts]
        assert claim.runs["expert"].given["tokens"] * experts == 8 * tokens
        assert claim.ours is not None
        assert claim.ours.startswith(f"{experts} * ")


def test_what_efficiencies_and_links_are_fitted_to_is_no_prediction_and_all_else_is():
    fitted = {claim.name for claim in MEASURED if claim.fitted}
    of_the_h100 = {claim.name for claim, _ in _called(r"measured-h100-mixtral-(\d+)")}
    assert fitted == of_the_h100 | {"measured-cpu-amx-bf16", "measured-pcie4-mixtral-dali"}


@pytest.mark.parametrize(
    "gpu", ["a6000", "rtx3090", "rtx4090", "rtxpro6000", "h200", "a100", "b200", "l40s", "h20"]
)
def test_a_gpu_that_nothing_was_fitted_to_has_its_own_peaks_and_the_efficiencies_of_the_file(gpu):
    runs = [
        run
        for claim in MEASURED
        if claim.name.startswith(f"measured-{gpu}-") and not claim.name.endswith("by-table")
        for run in claim.runs.values()
    ]
    assert runs
    for run in runs:
        assert {"gpu.tflops", "gpu.memory_tbps"} <= set(run.given)
        assert not {key for key in run.given if "efficiency" in key or "overhead" in key}


# ---- Two values of assumptions at once: the choice of pairs, and their results

PAPER = Paper.model_validate(
    {"paper": "made", "title": "A paper", "hardware": "trimoe", "counted": {}, "claims": []}
)
#: 80 GB less 8 GB are ours.
MADE = [
    (
        PAPER,
        Claim.model_validate(
            {
                "name": f"made-{value}",
                "place": "Table 1",
                "kind": "simulated",
                "published": {"value": float(value), "quote": f"{value}.0"},
                "runs": {"hw": {"command": "hardware", "given": {"hw": "trimoe", "gpu.memory_gb": 80}}},
                "ours": "hw.gpu.memory_gb - hw.gpu.reserved_gb",
                "tolerance": "stated",
                "assumptions": [
                    {"key": "gpu.memory_gb", "values": [48, 40], "reason": "made"},
                    {"key": "gpu.reserved_gb", "values": [12, 4], "reason": "made"},
                ],
            }
        ),
    )
    for value in (36, 40, 68)
]
MEMORY, RESERVED = ("gpu.memory_gb", "48"), ("gpu.reserved_gb", "12")


def test_values_that_turn_a_verdict_alone_are_paired():
    """48 GB mend the claim of 40, 12 GB kept free that of 68, both that of 36; 40 GB and 4 GB mend none alone."""
    outcomes, changes = evaluate(MADE, 1), sensitivity(MADE, 1)
    assert changed_verdicts(outcomes, changes) == {MEMORY: (1, 0), RESERVED: (1, 0)}
    assert pairs(MADE, outcomes, changes, 1) == [Pair((MEMORY, RESERVED), mends=1, breaks=0, together=1)]


def test_a_pair_that_needs_more_runs_than_are_left_is_left_out():
    outcomes, changes = evaluate(MADE, 1), sensitivity(MADE, 1)
    assert pairs(MADE, outcomes, changes, 1, most_runs=0) == []
    assert len(pairs(MADE, outcomes, changes, 1, most_runs=1)) == 1


def test_a_pair_that_breaks_what_one_value_mends_counts_nothing_for_it():
    """Of the claim of 40, which 48 GB mend, both values leave 36."""
    outcomes, changes = evaluate(MADE, 1), sensitivity(MADE, 1)
    only = [MADE[1], MADE[2]]
    assert pairs(only, outcomes[1:], changes, 1) == [Pair((MEMORY, RESERVED), 0, 0, 0)]


def test_reports_have_the_pairs_that_turn_a_verdict(tmp_path):
    outcomes, changes = evaluate(MADE, 1), sensitivity(MADE, 1)
    found = [Pair((MEMORY, RESERVED), 1, 0, 1), Pair((MEMORY, ("bits", "4")), 0, 0, 0)]
    write_report(tmp_path, outcomes, changes, found)
    text = (tmp_path / "REPORT.md").read_text()
    assert "| gpu.memory_gb=48 | gpu.reserved_gb=12 | 1 | 0 | 1 |" in text
    assert "bits=4" not in text
    assert [one["together"] for one in plain_data(outcomes, changes, found)["by_pair"]] == [1, 0]


def fitted(claim: Claim, place: str) -> Claim:
    """The claim with all values fitted to a place."""
    assumptions = [one.model_copy(update={"fitted_to": place}) for one in claim.assumptions]
    return claim.model_copy(update={"assumptions": assumptions})


@pytest.mark.parametrize(("place", "turned"), [("Table 1", {}), ("Table 4", {MEMORY: (1, 0)})])
def test_values_fitted_to_a_claim_s_own_place_turn_no_verdict_of_it(place, turned):
    claims = [(PAPER, fitted(MADE[1][1], place))]
    outcomes, changes = evaluate(claims, 1), sensitivity(claims, 1)
    assert changed_verdicts(outcomes, changes) == turned
    marked = "gpu.memory_gb=48 (fitted)" in dependence(outcomes[0], changes["made-40"])
    assert marked == (place == "Table 1")


def test_assumptions_of_a_paper_are_those_of_its_claims_that_simulate_something():
    of_paper = read_papers()["dali"].assumptions
    assert [one.key for one in of_paper] == ["host.cpu_expert_overhead_us"]
    for claim in read_papers()["dali"].claims:
        simulates = any(run.command == "moe" for run in claim.runs.values())
        assert claim.assumptions.count(of_paper[0]) == simulates, claim.name


SLOW = MADE[0][1].model_copy(
    update={
        "runs": {"one": ClaimRun(command="gemv", given={"shape": "128,128", "bits": 16})},
        "ours": "one.time_ns",
        "assumptions": [
            Assumption(key="bits", values=[5, 6], reason="made"),
            Assumption(key="tokens", values=[3], reason="made"),
        ],
    }
)


def test_values_without_a_run_when_the_time_is_up_are_named_and_turn_no_verdict(tmp_path):
    claims = [(PAPER, SLOW), MADE[1]]
    outcomes = evaluate(claims, 1, seconds=0)
    changes = sensitivity(claims, 1, seconds=0)
    assert [outcome.verdict for outcome in outcomes] == ["not-run", "off"]
    assert [change.outcome.is_omitted for change in changes[SLOW.name]] == [True] * 3
    assert changed_verdicts(outcomes, changes) == {MEMORY: (1, 0)}
    said = f"3 of 7 changes were not run, as the time was up (3 of {PAPER.paper})"
    assert plain_data(outcomes, changes)["omitted"].startswith(said)
    write_report(tmp_path, outcomes, changes)
    assert said in (tmp_path / "REPORT.md").read_text()
    assert plain_data(outcomes[1:], {"made-40": changes["made-40"]})["omitted"] is None


def test_pairs_without_a_run_when_the_time_is_up_are_left_out(monkeypatch):
    outcomes, changes = evaluate(MADE, 1), sensitivity(MADE, 1)
    late = [replace(outcome, verdict="not-run", reason=TIME_IS_UP) for outcome in outcomes]
    monkeypatch.setattr(pairing, "evaluate", lambda claims, *others: late[: len(claims)])
    assert pairs(MADE, outcomes, changes, 1, seconds=0) == []


def test_headlines_and_first_values_are_run_first(monkeypatch):
    asked: list[ResolvedRun] = []

    def measured(runs, *others):
        asked.extend(runs)
        return dict.fromkeys(asked, "not now")

    monkeypatch.setattr(evaluation, "measured", measured)
    headline = SLOW.model_copy(update={"name": "made-headline", "place": "Abstract"})
    other = SLOW.model_copy(
        update={"runs": {"one": ClaimRun(command="gemv", given={"shape": "256,128", "bits": 16})}}
    )
    sensitivity([(PAPER, other), (PAPER, headline)], 1)
    found = [json.loads(run.settings) for run in asked]
    assert [given["shape"] for given in found] == ["128,128"] * 3 + ["256,128"] * 3
    assert [(given["bits"], given.get("tokens")) for given in found[3:]] == [(5, None), (16, 3), (6, None)]
