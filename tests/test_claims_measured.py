"""The claims of measured times: published values equal those of tables, and fits are marked."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest

from ndpsim.inference.processors import read_table
from ndpsim.studies.claims.files import read_papers

CLAIMS = read_papers()["measured"].claims
LAYERS = Path(__file__).parents[1] / "validation" / "rtxpro6000_qwen3-30b-a3b_moe_bf16.csv"


def _called(pattern):
    """The claims whose names match, with the numbers in the match."""
    found = [(claim, re.fullmatch(pattern, claim.name)) for claim in CLAIMS]
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
    fitted = {claim.name for claim in CLAIMS if claim.fitted}
    of_the_h100 = {claim.name for claim, _ in _called(r"measured-h100-mixtral-(\d+)")}
    assert fitted == of_the_h100 | {"measured-cpu-amx-bf16", "measured-pcie4-mixtral-dali"}


@pytest.mark.parametrize(
    "gpu", ["a6000", "rtx3090", "rtx4090", "rtxpro6000", "h200", "a100", "b200", "l40s", "h20"]
)
def test_a_gpu_that_nothing_was_fitted_to_has_its_own_peaks_and_the_efficiencies_of_the_file(gpu):
    runs = [
        run
        for claim in CLAIMS
        if claim.name.startswith(f"measured-{gpu}-") and not claim.name.endswith("by-table")
        for run in claim.runs.values()
    ]
    assert runs
    for run in runs:
        assert {"gpu.tflops", "gpu.memory_tbps"} <= set(run.given)
        assert not {key for key in run.given if "efficiency" in key or "overhead" in key}
