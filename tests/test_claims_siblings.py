"""Claims of the same runs rest on the same assumptions; headlines stand on measured and on skewed loads."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest

from calls import refused_call, said
from ndpsim.studies.claims import evaluate
from ndpsim.studies.claims.claim import Assumption, Claim, ClaimRun, read_papers, read_tolerances
from ndpsim.studies.claims.evaluate import Change, changed, judged, loads_of, runs_of
from ndpsim.studies.claims.report import write_report
from ndpsim.studies.claims.runs import ResolvedRun, filled
from ndpsim.studies.claims.words import value_in_words

PAPERS = [paper for paper in read_papers().values() if paper.source == "paper"]
HEADLINES = [(paper, claim) for paper in PAPERS for claim in paper.claims if claim.is_headline]


def moe_runs(claim: Claim) -> set[ResolvedRun]:
    return {run for of in runs_of(claim) for run in of.values() if run.command == "moe"}


def policies(runs: set[ResolvedRun]) -> set[str]:
    return {json.loads(run.settings)["policy"] for run in runs}


def compares_systems(claim: Claim) -> bool:
    """Whether a claim is a simulated speed-up or comparison of speeds."""
    is_order = claim.kind == "trend" and claim.given_by is None
    return (is_order or claim.published.unit == "x") and len(policies(moe_runs(claim))) > 1


def rests_on(claim: Claim) -> dict[str, set[ResolvedRun]]:
    """The runs that each assumption changes, by key."""
    found: dict[str, set[ResolvedRun]] = {}
    for assumption in claim.assumptions:
        for value in assumption.values:
            found.setdefault(assumption.key, set()).update(
                moe_runs(claim) - moe_runs(changed(claim, assumption, value))
            )
    return found


def missing(headline: Claim, sibling: Claim) -> set[str]:
    """Assumptions of the headline in runs of its sibling that the sibling lacks."""
    keys = {key for key, runs in rests_on(headline).items() if runs & moe_runs(sibling)}
    return keys - {assumption.key for assumption in sibling.assumptions}


def test_the_figures_of_abstracts_and_introductions_are_headlines():
    assert {paper.paper for paper, _ in HEADLINES} == {"trimoe", "edge", "cxl", "cache", "dali"}
    assert len(HEADLINES) == 13


@pytest.mark.parametrize(("paper", "claim"), [pytest.param(*pair, id=pair[1].name) for pair in HEADLINES])
def test_claims_that_compare_systems_inruns_of_a_headline_rest_on_what_it_rests_on(paper, claim):
    siblings = [
        other for other in paper.claims if compares_systems(other) and moe_runs(other) <= moe_runs(claim)
    ]
    assert claim in siblings
    assert {other.name: missing(claim, other) for other in siblings if missing(claim, other)} == {}


def test_an_assumption_that_a_sibling_lacks_is_found():
    (most,) = (claim for _, claim in HEADLINES if claim.name == "trimoe-speedup-most")
    for key in ("routing", "kv"):
        without = [assumption for assumption in most.assumptions if assumption.key != key]
        assert missing(most, most.model_copy(update={"assumptions": without})) == {key}


@pytest.mark.parametrize(("paper", "claim"), [pytest.param(*pair, id=pair[1].name) for pair in HEADLINES])
def test_a_headline_stands_on_measured_and_on_skewed_loads(paper, claim):
    routing = [assumption for assumption in claim.assumptions if assumption.key == "routing"]
    others = {loads_of(changed(claim, one, value)) for one in routing for value in one.values}
    assert {"measured", "skewed"} <= {loads_of(claim), *others}


def test_a_report_changes_the_loads_of_headlines_alone(monkeypatch):
    asked = []
    monkeypatch.setattr(evaluate, "sensitivity", lambda claims, *_: asked.extend(claims) or {})
    evaluate.on_other_loads([(paper, claim) for paper in PAPERS for claim in paper.claims], 1)
    assert [claim.name for _, claim in asked] == [claim.name for _, claim in HEADLINES]
    assert {one.key for _, claim in asked for one in claim.assumptions} == {"routing"}


def test_a_value_by_model_is_that_of_each_run_s_model_and_leaves_others_as_they_are():
    given = {"model": "{model}", "routing": "skewed", "policy": "monde"}
    claim = Claim.model_validate(
        {
            "name": "made-one",
            "place": "Abstract",
            "kind": "simulated",
            "published": {"value": 1.0, "quote": "1.0"},
            "over": {"model": ["deepseek-v2", "mixtral-8x7b"]},
            "runs": {"run": {"command": "moe", "given": given}},
            "ours": "run.moe_ns",
            "tolerance": "systems",
        }
    )
    by_model = {"deepseek-v2": "ranks:deepseek-v3"}
    other = changed(claim, Assumption(key="routing", values=[by_model], reason="made"), by_model)
    assert [json.loads(of["run"].settings)["routing"] for of in runs_of(other)] == [
        "ranks:deepseek-v3",
        "skewed",
    ]
    assert (loads_of(claim), loads_of(other)) == ("skewed", None)
    unset = ClaimRun(command="moe", given={"model": "mixtral-8x7b", "routing": by_model})
    assert json.loads(filled(unset, {}).settings) == {"model": "mixtral-8x7b"}
    assert value_in_words(by_model | {"glm-4.5-air": "skewed"}) == "ranks:deepseek-v3, skewed"


def test_the_report_has_headlines_on_measured_loads_beside_skewed_ones(tmp_path):
    paper, claim = next(pair for pair in HEADLINES if pair[1].name == "trimoe-speedup-most")
    ours = judged(claim, paper, 2.9, {}, read_tolerances())
    measured = replace(ours, ours=1.2, verdict="off")
    routing = claim.assumptions[[one.key for one in claim.assumptions].index("routing")]
    changes = {claim.name: [Change(routing, value, measured, "measured") for value in routing.values[:1]]}
    write_report(tmp_path, [ours], changes, loads=changes)
    head = f"| {claim.name} | {claim.place} | 2.83 x | 2.900 x | +2.5% | holds |"
    assert f"{head} 1.200 x, off | 2.900 x, holds |" in (tmp_path / "REPORT.md").read_text()
    write_report(tmp_path, [ours], None, loads={})
    assert f"{head}  | 2.900 x, holds |" in (tmp_path / "REPORT.md").read_text()
    write_report(tmp_path, [ours], None)
    text = (tmp_path / "REPORT.md").read_text()
    assert f"{head}\n" in text
    assert "Made by `ndpsim validate --stated-loads --report validation`" in text
    assert not re.search("on (measured|skewed) loads", text)


def test_stated_loads_leave_out_the_runs_of_headlines_on_other_loads(monkeypatch, here):
    written = []
    monkeypatch.setattr(evaluate, "on_other_loads", lambda *_: {"other": []})
    monkeypatch.setattr("ndpsim.studies.claims.report.write_report", lambda *given: written.append(given[-1]))
    said("validate", "trimoe-link-bandwidth", "--report", "out")
    said("validate", "trimoe-link-bandwidth", "--report", "out", "--stated-loads")
    assert written == [{"other": []}, None]
    both = "--sensitivity", "--report", "out", "--stated-loads"
    assert refused_call("validate", "trimoe-link-bandwidth", *both) == "conflict --stated-loads"
