"""Recorded runs of vLLM beside simulated ones: the tables are the source's, the page is the script's, and runs of the page
and of the claims are what they say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ndpsim.config.nodes import scalar
from ndpsim.studies.claims.claim import Claim
from ndpsim.studies.claims.evaluate import chosen_claims, evaluate, runs_of
from scripts import ROOT, script

pytestmark = pytest.mark.usefixtures("claims_run_here")

# Sums of the published records: input tokens, output tokens, output tokens/s, mean TTFT and TPOT in ms.
RECORDED = {
    "llama-3.1-8b": (257239, 195753, 2969.2, 7097.16, 32.46),
    "llama-3.1-8b-rtx-4090": (257239, 195753, 1066.4, 65456.6, 32.447),
    "qwen3-32b-tp2": (258691, 199486, 1249.5, 36905.22, 80.31),
    "qwen3-30b-a3b-dp2": (258691, 199486, 3116.0, 1085.98, 47.29),
}
# The names of the runs in claims.
IN_CLAIMS = {"llama-3.1-8b": "llama", "qwen3-32b-tp2": "qwen3-32b", "qwen3-30b-a3b-dp2": "qwen3-30b-a3b"}


def run_named(name: str) -> Any:
    """A recorded run of the page."""
    return next(run for run in script("validation/serving_runs.py").RUNS if run.name == name)


@pytest.mark.parametrize("name", RECORDED)
def test_tables_have_the_sums_of_the_records(name):
    page, runs = script("validation/serving.py"), script("validation/serving_runs.py")
    run = run_named(name)
    asked, real = runs.requests_of(run), page.measured(run)
    tokens = (asked.prompt_tokens.sum(), asked.output_tokens.sum())
    found = (*tokens, real["tokens_per_s"], real["ttft_ms mean"], real["tpot_ms mean"])
    assert found == pytest.approx(RECORDED[name], rel=2e-4)
    assert asked.ids == tuple(row["id"] for row in runs.table(name))
    assert len(asked) == 300


def test_the_committed_page_is_current():
    page = script("validation/serving.py")
    words = "python validation/serving.py writes it"
    assert (ROOT / "validation" / "serving.md").read_text(encoding="utf-8") == page.text(), words


@pytest.mark.long  # claims have the figures of the page, below
def test_a_run_gives_what_the_page_says():
    page = script("validation/serving.py")
    run = page.RUNS[0]
    found = page.simulated(run, run.cases[0])
    assert found == pytest.approx(page.read_simulated()[run.name, run.cases[0].title], rel=1e-6)


def test_the_goals_are_reached_with_the_link_of_the_authors_and_even_experts():
    page = script("validation/serving.py")
    run, found = run_named("qwen3-30b-a3b-dp2"), page.read_simulated()
    errors = page.errors(run, run.cases[0], found)
    assert abs(errors["tokens_per_s"]) <= 0.10
    assert abs(errors["tpot_ms mean"]) <= 0.10
    assert abs(errors["ttft_ms p50"]) <= 0.25
    assert run.cases[0].title in page.goal(run, found)


def test_a_model_of_two_cards_is_served_by_two_gpus():
    runs = script("validation/serving_runs.py")
    for run in runs.RUNS:
        assert f"gpu.count={run.gpus}" in runs.sets_of(run, run.cases[0])


def claims_on(run: str, source: str = "serving") -> dict[str, Claim]:
    """The claims of a run, by what they compare."""
    prefix = f"{source}-{IN_CLAIMS[run]}-"
    of_source = [claim for _, claim in chosen_claims([source])]
    return {one.name.removeprefix(prefix): one for one in of_source if one.name.startswith(prefix)}


def quantity_on_page(compared: str) -> str:
    """A quantity of the page, by what a claim compares."""
    return "tokens_per_s" if compared == "throughput" else compared.replace("-", "_ms ")


@pytest.mark.parametrize("run", IN_CLAIMS)
def test_claims_publish_all_that_the_records_give(run):
    page = script("validation/serving.py")
    recorded = page.measured(run_named(run))
    published = {quantity_on_page(name): one.published.value for name, one in claims_on(run).items()}
    assert published == pytest.approx({name: recorded[name] for name in published}, abs=0.06)
    assert set(recorded) - set(published) == {"running mean", "running max"}


@pytest.mark.parametrize("run", IN_CLAIMS)
def test_claims_of_another_simulator_are_its_figures_with_the_errors_that_it_prints(run):
    rows = [row for row in script("validation/serving_runs.py").table("authors") if row["run"] == run]
    printed = {row["quantity"].removesuffix("_ms"): row for row in rows if row["of"] == "mean"}
    claims = claims_on(run, "llmservingsim")
    assert set(claims) == set(printed)
    for name, claim in claims.items():
        row = printed[name]
        assert claim.published.value == float(row["simulated_ms"])
        words = [row["measured_ms"], row["simulated_ms"], f"{float(row['error_percent']):+}%"]
        assert claim.published.quote.split()[2:] == words


@pytest.mark.parametrize("run", IN_CLAIMS)
def test_claims_serve_the_recorded_requests_on_the_cards_of_the_page(run):
    runs = script("validation/serving_runs.py")
    of_page = run_named(run)
    case = of_page.cases[0]
    wanted = dict(one.split("=") for one in runs.sets_of(of_page, case)) | {
        "hw": "trimoe",
        "model": of_page.model,
    }
    recorded = (runs.MEASURED / f"{run}-requests.csv").read_bytes()
    for claim in (*claims_on(run).values(), *claims_on(run, "llmservingsim").values()):
        given = json.loads(runs_of(claim)[0]["served"].settings)
        assert given.pop("routing", None) == case.routing
        assert Path(given.pop("requests")).read_bytes() == recorded
        assert {"gpu.count": 1, **given} == {key: scalar(value) for key, value in wanted.items()}


@pytest.mark.parametrize(
    "run",
    [name if name == "llama-3.1-8b" else pytest.param(name, marks=pytest.mark.long) for name in IN_CLAIMS],
)
def test_claims_have_the_figures_of_the_page_and_the_expected_verdicts(run):
    page = script("validation/serving.py")
    found = page.read_simulated()[run, run_named(run).cases[0].title]
    claims = claims_on(run) | claims_on(run, "llmservingsim")
    for outcome in evaluate(chosen_claims([one.name for one in claims.values()]), 1):
        compared = next(name for name, one in claims.items() if one is outcome.claim)
        quantity = quantity_on_page(compared) if outcome.paper.paper == "serving" else f"{compared}_ms mean"
        assert outcome.ours == pytest.approx(found[quantity], rel=1e-4)
        assert not outcome.is_news
