"""Recorded runs of vLLM beside simulated ones: the tables are the source's, the page is the script's, and a run is as it says."""

from __future__ import annotations

import itertools

import numpy as np
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


def test_experts_of_a_layer_take_the_mean_over_all_even_choices():
    runs = script("validation/serving_runs.py")
    run, tokens = runs.RUNS[2], 3
    case, model = run.cases[0], run.part
    gpu, share = case.card.gpu, model.experts_per_token / model.routed_experts
    expected = gpu.call_ns
    for chosen in itertools.product((False, True), repeat=tokens):  # by each token, of one expert
        chance = np.prod([share if one else 1 - share for one in chosen])
        if any(chosen):
            time_ns = gpu.expert_time(model.expert, sum(chosen)).time_ns
            expected += chance * time_ns * model.routed_experts / 2
    assert runs.experts_ns(case, model, tokens, 2) == pytest.approx(expected, rel=1e-6)


def test_the_cards_of_data_parallelism_serve_every_request_once():
    runs = script("validation/serving_runs.py")
    run = runs.RUNS[2]
    outcome = runs.served(run, run.cases[2])
    assert [one.number for one in outcome.sequences] == list(range(300))
    assert all(one.produced == one.output_tokens for one in outcome.sequences)
    assert (np.diff(outcome.end_ns) > 0).all()
    assert outcome.running.max() <= 2 * runs.LIMITS.sequences
