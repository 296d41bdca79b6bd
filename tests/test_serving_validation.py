"""Recorded runs of vLLM beside simulated ones: the tables are the source's, the page is the script's, and a run is as it says."""

from __future__ import annotations

import pytest

from scripts import ROOT, script

# Sums of the published records: input tokens, output tokens, output tokens/s, mean TTFT and TPOT in ms.
RECORDED = {
    "llama-3.1-8b": (257239, 195753, 2969.2, 7097.16, 32.46),
    "qwen3-32b-tp2": (258691, 199486, 1249.5, 36905.22, 80.31),
    "qwen3-30b-a3b-dp2": (258691, 199486, 3116.0, 1085.98, 47.29),
}


@pytest.mark.parametrize("name", RECORDED)
def test_tables_have_the_sums_of_the_records(name):
    page, runs = script("validation/serving.py"), script("validation/serving_runs.py")
    rows = runs.table(name)
    real = page.measured(next(run for run in page.RUNS if run.name == name))
    given, produced = (int(runs.column(rows, of).sum()) for of in ("input_tokens", "output_tokens"))
    found = (given, produced, real["tokens_per_s"], real["ttft_ms mean"], real["tpot_ms mean"])
    assert found == pytest.approx(RECORDED[name], rel=2e-4)
    assert len(rows) == 300


def test_the_committed_page_is_current():
    page = script("validation/serving.py")
    words = "python validation/serving.py writes it"
    assert (ROOT / "validation" / "serving.md").read_text(encoding="utf-8") == page.text(), words


def test_a_run_gives_what_the_page_says():
    page = script("validation/serving.py")
    run = page.RUNS[0]
    found = page.simulated(run, run.cases[0])
    assert found == pytest.approx(page.read_simulated()[run.name, run.cases[0].title], rel=1e-6)


def test_the_goals_are_reached_with_the_link_of_the_authors_and_even_experts():
    page = script("validation/serving.py")
    run, found = page.RUNS[2], page.read_simulated()
    errors = page.errors(run, run.cases[0], found)
    assert abs(errors["tokens_per_s"]) <= 0.10
    assert abs(errors["tpot_ms mean"]) <= 0.10
    assert abs(errors["ttft_ms p50"]) <= 0.25
    assert run.cases[0].title in page.goal(run, found)


def test_a_model_of_two_cards_is_served_by_two_gpus():
    runs = script("validation/serving_runs.py")
    for run in runs.RUNS:
        assert f"gpu.count={run.gpus}" in runs.sets_of(run, run.cases[0])
