"""``ndpsim validate``: runs of claims, verdicts, what assumptions decide, reports."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click import Context

from calls import call, refused_call, said
from mistakes import refused
from ndpsim.cli.main import cli
from ndpsim.studies.claims import evaluate as evaluation
from ndpsim.studies.claims import runs as claim_runs
from ndpsim.studies.claims.claim import Claim, ClaimRun, Expression, Paper, read_papers, read_tolerances
from ndpsim.studies.claims.evaluate import (
    chosen_claims,
    evaluate,
    interval_of,
    judged,
    runs_of,
    sensitivity,
    with_settings,
)
from ndpsim.studies.claims.quantities import QUANTITIES, reuse_of
from ndpsim.studies.claims.report import write_report
from ndpsim.studies.claims.runs import filled, takes
from ndpsim.studies.claims.words import dependence, figure_in_words, run_commands, summary

pytestmark = pytest.mark.usefixtures("claims_run_here")

SOURCES = read_papers()
EVERY = [(source, claim) for source in SOURCES.values() for claim in source.claims]
EXACT = [pair for pair in EVERY if pair[1].kind == "exact"]
NUMBERS = [pair for pair in EVERY if pair[1].kind in ("exact", "simulated")]
TRENDS = [pair for pair in EVERY if pair[1].kind == "trend"]
TOLERANCES = read_tolerances()


def by_paper(pairs):
    """The pairs of each paper, together in one test."""
    names = dict.fromkeys(paper.paper for paper, _ in pairs)
    return [pytest.param([pair for pair in pairs if pair[0].paper == name], id=name) for name in names]


def published(claim: Claim, **changes) -> Claim:
    return claim.model_copy(update={"published": claim.published.model_copy(update=changes)})


def claim_of(name: str) -> tuple[Paper, Claim]:
    return next(pair for pair in EVERY if pair[1].name == name)


def outcome_of(paper: Paper, claim: Claim):
    return evaluate([(paper, claim)], 1)[0]


# Exact claims are run here, all of them


@pytest.fixture(scope="module")
def exact_outcomes():
    return {one.claim.name: one for one in evaluate(EXACT, 1)}


@pytest.mark.parametrize("pairs", by_paper(EXACT))
def test_an_exact_claim_is_equal_or_off_for_the_reason_that_it_gives(pairs, exact_outcomes):
    for _, claim in pairs:
        outcome = exact_outcomes[claim.name]
        assert outcome.verdict == claim.expected, (claim.name, outcome.ours, outcome.reason)
        assert outcome.tolerance == 0
        assert claim.expected == "holds" or claim.why


def changed_metrics(claim: Claim, factor: float):
    """The verdicts of an exact claim with each metric that it reads another one, one at a time."""
    paper, runs = claim_of(claim.name)[0], evaluation.runs_of(claim)
    found = claim_runs.measured((run for of in runs for run in of.values()), 1)
    for name, metric in re.findall(r"\b([a-z]\w*)\.([\w.]+)", claim.ours):
        other = {run: dict(found[run]) for of in runs for run in of.values()}
        for of in runs:
            other[of[name]][metric] *= factor
        yield evaluation._outcome(paper, claim, runs, other, TOLERANCES).verdict


@pytest.mark.parametrize("pairs", by_paper(EXACT))
def test_an_exact_claim_rests_on_values_of_ours(pairs, exact_outcomes):
    """One of what its expression reads changed by a tenth, or doubled where it is rounded, changes its verdict."""
    for _, claim in pairs:
        ours = exact_outcomes[claim.name]
        if ours.verdict == "holds" and ours.ours:
            assert "off" in {*changed_metrics(claim, 1.1), *changed_metrics(claim, 2)}, claim.name


# Verdicts


@pytest.mark.parametrize("pairs", by_paper(NUMBERS))
def test_another_published_value_has_another_verdict(pairs):
    for paper, claim in pairs:
        low, high = interval_of(claim.published)
        assert judged(claim, paper, high, {}, TOLERANCES).verdict == "holds", claim.name
        assert judged(claim, paper, low, {}, TOLERANCES).verdict == "holds", claim.name
        allowed = TOLERANCES[claim.tolerance].share + claim.published.reading_error
        factor = (1 + allowed) / max(1 - allowed, 0.1) * 1.2
        for moved in (low / factor - 2, high * factor + 2):
            other = published(claim, value=moved, low=None, high=None)
            assert judged(other, paper, (low + high) / 2, {}, TOLERANCES).verdict == "off", claim.name


def test_a_trend_holds_when_it_is_so():
    paper, claim = TRENDS[0]
    assert judged(claim, paper, True, {}, TOLERANCES).verdict == "holds"
    assert judged(claim, paper, False, {}, TOLERANCES).verdict == "off"


@pytest.mark.parametrize(
    ("value", "quote", "ours", "verdict"),
    [
        (2.1, "2.1 times", 2.149, "holds"),
        (2.1, "2.1 times", 2.151, "off"),
        (2.1, "2.10 times", 2.149, "off"),
        (2.0, "2.00 and 2 and 12.0", 2.006, "off"),
        (62.0, "62x", 62.5, "holds"),
        (62.0, "62x", 62.6, "off"),
        (2048.0, "2,048 GB", 2048.6, "off"),
        (-3.0, "a loss of 3", -3.4, "holds"),
        (0.0, "-", 0, "holds"),
        (0.0, "-", 1, "off"),
    ],
)
def test_a_printed_number_hides_half_of_its_last_digit_and_no_more(value, quote, ours, verdict):
    paper, claim = claim_of("trimoe-link-bandwidth")
    other = published(claim, value=value, quote=quote)
    assert judged(other, paper, ours, {}, TOLERANCES).verdict == verdict


@pytest.mark.parametrize(
    ("value", "unit", "ours", "error", "verdict"),
    [
        # A ratio: 1.5 times more or less of it, and never on the other side of 1.
        (3.0, "x", 4.49, 0.4967, "holds"),
        (3.0, "x", 4.6, 0.5333, "off"),
        (3.0, "x", 2.01, -0.33, "holds"),
        (3.0, "x", 1.9, -0.3667, "off"),
        (1.32, "x", 1.01, -0.2348, "holds"),
        (1.32, "x", 1.0, -0.2424, "off"),
        (1.32, "x", 0.99, -0.25, "off"),
        (0.9, "x", 1.1, 0.2222, "off"),
        (1.0, "x", 0.9, -0.1, "holds"),
        (3.0, "x", 0.0, -1.0, "off"),
        # A share: of what is left to all where it is above a half.
        (80.0, "%", 71.0, -0.45, "holds"),
        (80.0, "%", 69.0, -0.55, "off"),
        (80.0, "%", 89.0, 0.45, "holds"),
        (20.0, "%", 11.0, -0.45, "holds"),
        (0.9, "share", 0.84, -0.6, "off"),
        # Any other figure: of itself.
        (80.0, "% more", 60.0, -0.25, "holds"),
        (80.0, "ms", 41.0, -0.4875, "holds"),
        (80.0, "ms", 39.0, -0.5125, "off"),
    ],
)
def test_a_figure_is_judged_by_what_it_is(value, unit, ours, error, verdict):
    paper, claim = claim_of("trimoe-link-bandwidth")
    other = published(claim, value=value, unit=unit, quote=f"{value}0").model_copy(
        update={"tolerance": "systems"}
    )
    outcome = judged(other, paper, ours, {}, TOLERANCES)
    assert outcome.verdict == verdict
    assert outcome.error == pytest.approx(error, abs=1e-4)


def test_a_figure_read_from_a_plot_may_differ_by_the_error_of_reading_as_well():
    paper, claim = claim_of("trimoe-link-bandwidth")
    drawn = published(claim, value=100.0, unit="ms", quote="100", reading="drawn", reading_error=0.1)
    for ours, verdict in ((114.9, "holds"), (116.0, "off")):  # 5% and 10%, and half of the last digit
        outcome = judged(drawn.model_copy(update={"tolerance": "stated"}), paper, ours, {}, TOLERANCES)
        assert (outcome.verdict, outcome.tolerance) == (verdict, pytest.approx(0.15))


def test_errors_are_from_the_nearer_end():
    paper, claim = claim_of("trimoe-link-bandwidth")
    between = published(claim, value=None, low=10.0, high=20.0)
    errors = [judged(between, paper, ours, {}, TOLERANCES).error for ours in (5, 10, 15, 20, 30)]
    assert errors == [-0.5, 0, 0, 0, 0.5]


def test_a_verdict_is_news_when_it_is_not_the_expected_one_for_better_or_worse():
    paper, claim = claim_of("trimoe-link-bandwidth")
    off = claim.model_copy(update={"expected": "off", "why": "a reason"})
    assert not judged(claim, paper, 25.0, {}, TOLERANCES).is_news
    assert judged(claim, paper, 30.0, {}, TOLERANCES).is_news
    assert judged(off, paper, 25.0, {}, TOLERANCES).is_news
    assert not judged(off, paper, 30.0, {}, TOLERANCES).is_news
    not_run = replace(judged(claim, paper, 25.0, {}, TOLERANCES), verdict="not-run", reason="no such file")
    assert not_run.is_news
    assert not not_run.is_skipped
    without = replace(not_run, reason="optimal: policy dali: needs scipy: pip install 'ndpsim[milp]'")
    assert (without.is_skipped, without.is_news) == (True, False)


# Runs

GEMV = {"hw": "trimoe", "shape": "64,256", "dimm.count": 1, "dimm.ranks": 1}
MADE = Claim.model_validate(
    {
        "name": "made-speed",
        "place": "Table 1",
        "kind": "simulated",
        "published": {"value": 1.0, "quote": "1.0", "unit": "x"},
        "over": {"tokens": [1, 2]},
        "runs": {
            "one": {"command": "gemv", "given": {**GEMV, "tokens": "{tokens}"}},
            "same": {"command": "gemv", "given": {**GEMV, "tokens": "{tokens}"}},
        },
        "ours": "one.time_ns / same.time_ns",
        "tolerance": "stated",
        "assumptions": [
            {"key": "ndp.gemv.clock_mhz", "values": [500, 250], "runs": ["one"], "reason": "not said"}
        ],
    }
)
PAPER = Paper.model_validate(
    {"paper": "made", "title": "A paper", "hardware": "trimoe", "counted": {}, "claims": []}
)


@pytest.fixture
def counted_runs(monkeypatch):
    """How many runs were run, not found."""
    ran = []
    original = claim_runs.run_locally

    def counting(command, tasks, jobs):
        for task, answer in original(command, tasks, jobs):
            ran.append(task.settings)
            yield task, answer

    monkeypatch.setattr(claim_runs, "run_locally", counting)
    return ran


@pytest.fixture
def entries(monkeypatch):
    """Results that are stored and found in a dictionary."""
    stored: dict[str, bytes] = {}

    class Entries:
        def read(self, name):
            return stored.get(name)

        def write(self, name, content):
            stored[name] = content

    monkeypatch.setattr(claim_runs, "stored_beside_results", Entries)
    return stored


def test_equal_runs_are_run_once_and_found_again(counted_runs, entries):
    first = outcome_of(PAPER, MADE)
    assert (first.verdict, first.ours) == ("holds", 1.0)
    assert first.values == {"1": 1.0, "2": 1.0}
    assert len(counted_runs) == len(entries) == 2
    assert outcome_of(PAPER, MADE) == first
    assert len(counted_runs) == 2


def test_an_assumption_moves_the_runs_that_it_names(counted_runs, entries):
    changes = sensitivity([(PAPER, MADE)], 1)["made-speed"]
    assert [change.value for change in changes] == [500, 250]
    slow, slower = (change.outcome for change in changes)
    assert 1 < slow.ours < slower.ours
    assert slower.verdict == "off"
    base = outcome_of(PAPER, MADE)
    assert dependence(base, changes) == "off with ndp.gemv.clock_mhz=250"
    assert dependence(base, []) == "rests on no assumption"
    assert dependence(slower, changes) == "holds with ndp.gemv.clock_mhz=500"


@pytest.mark.parametrize(
    ("given", "words"),
    [({**GEMV, "tokens": 0}, "tokens"), ({**GEMV, "layout": "nowhere"}, "unknown layout 'nowhere'")],
)
def test_a_run_that_can_never_be_is_a_line_or_a_claim_that_is_not_run(given, words, entries):
    claim = MADE.model_copy(
        update={"over": {}, "runs": dict.fromkeys(MADE.runs, ClaimRun(command="gemv", given=given))}
    )
    try:
        outcome = outcome_of(PAPER, claim)
    except Exception as error:
        assert words in str(error)
        assert "\n" not in str(error)
    else:
        assert outcome.verdict == "not-run"
        assert outcome.is_news
        assert words in outcome.reason


def test_a_metric_that_is_not_there_is_a_claim_that_is_not_run(entries):
    runs = {name: ClaimRun(command="gemv", given=GEMV) for name in MADE.runs}
    outcome = outcome_of(PAPER, MADE.model_copy(update={"over": {}, "runs": runs, "ours": "one.times_ns"}))
    assert outcome.verdict == "not-run"
    assert "did you mean 'time_ns'" in outcome.reason


def test_a_claim_may_serve_requests():
    requests = "poisson:rate={rate},requests=3,output_tokens=4"
    given = {"hw": "trimoe", "model": "llama-3.1-8b", "requests": requests}
    found = [filled(ClaimRun(command="serve", given=given), {"rate": rate}) for rate in (1, 2)]
    metrics = claim_runs.measured(found, 1)
    ours = Expression("(slow.time_ns - fast.time_ns) / slow.time_ns")
    assert 0.4 < ours.of({"slow": metrics[found[0]], "fast": metrics[found[1]]}) < 0.5


def test_places_are_filled_with_values_of_their_own_type():
    run = ClaimRun(command="moe", given={"batch": "{batch}", "policy": "cache:ways={ways},in_flight=miss"})
    given = json.loads(filled(run, {"batch": 4, "ways": 2}).settings)
    assert given == {"batch": 4, "policy": "cache:ways=2,in_flight=miss"}


@pytest.mark.parametrize("pairs", by_paper([pair for pair in EVERY if pair[1].assumptions]))
def test_an_assumption_is_a_key_of_the_runs_that_it_is_of(pairs):
    for _, claim in pairs:
        keys = [(assumption.key, tuple(assumption.runs)) for assumption in claim.assumptions]
        assert len(set(keys)) == len(keys), claim.name
        for assumption in claim.assumptions:
            runs = [claim.runs[name] for name in assumption.runs] or list(claim.runs.values())
            takers = [run for run in runs if takes(run, assumption.key)]
            assert takers if not assumption.runs else takers == runs, (claim.name, assumption.key)


# Statistics of a routing, values of machines and models


def test_quantities_by_hand():
    def of(command, expression, **given):
        claim = Claim.model_validate(
            {
                **MADE.model_dump(),
                "over": {},
                "assumptions": [],
                "runs": {"run": {"command": command, "given": given}},
                "ours": expression,
            }
        )
        return outcome_of(PAPER, claim).ours

    assert of("model", "run.expert_weight_bytes", model="mixtral-8x7b", bits=8) == 3 * 4096 * 14336
    assert of("model", "run.parameters / 1e9", model="mixtral-8x7b") == pytest.approx(46.70, abs=0.01)
    assert of("hardware", "run.derived.dimm_peak_gbps", hw="trimoe") == 153.6
    # A roofline by hand: 0.8 of 2.04 TB/s for the bytes of one expert, and 18 us besides.
    expert_bytes = 3 * 5120 * 1536 * 2
    assert of("processor", "run.time_ns", hw="trimoe", model="deepseek-v2", tokens=1) == pytest.approx(
        expert_bytes / (0.8 * 2040) + 18_000
    )
    share = of(
        "routing", "run.decode.shares.hot.value", model="mixtral-8x7b", routing="skewed", batch=8, steps=2
    )
    assert 0 < share < 1


def test_how_long_experts_stay_by_hand():
    # One sequence, one layer, one expert a token. Steps 3 to 7 are looked at: 3 has the expert of the three steps
    # before, 5 that of the one before, 6 that of the two before; 4 and 7 change.
    ids = np.array([0, 0, 0, 0, 1, 1, 1, 2], np.int16).reshape(8, 1, 1, 1)
    assert reuse_of(ids) == {"two_before": 1 / 3, "three_before": 1 / 3}
    assert reuse_of(ids[4:]) == {"two_before": None, "three_before": None}


@pytest.mark.parametrize(
    ("policy", "gpu_experts", "share"), [("llama-cpp", 8, 1.0), ("llama-cpp", 0, None), ("on-demand", 0, 0.0)]
)
def test_experts_that_the_gpu_computes_are_there_or_copied(policy, gpu_experts, share):
    given = {"hw": "dali-7532-3090", "gpu.memory_gb": 128, "model": "mixtral-8x7b", "policy": policy}
    given |= {"layers": [3], "gpu-experts": gpu_experts, "batch": 2, "steps": 17}
    found = QUANTITIES["residency"].measure(given)
    rates = {found[f"{group}.{name}"] for group in ("first", "last") for name in ("mean", "best")}
    assert (rates, found["experts"]) == ({share}, gpu_experts)


# The command


def test_a_claim_that_holds_is_printed_beside_what_is_published():
    status, out, _ = call("validate", "trimoe-link-bandwidth")
    assert status == 0
    row = next(line for line in out.splitlines() if line.startswith("trimoe-link-bandwidth"))
    assert re.split(r"  +", row)[2:] == ["25 GB/s", "25 GB/s", "+0.0%", "0%", "holds"]
    assert "papers: 1 of 1 transcribed figures hold" in out


def test_json_has_the_keys_of_the_contract():
    status, out, _ = call("validate", "trimoe-link-bandwidth", "--json", "-")
    claim = json.loads(out)["claims"][0]
    assert status == 0
    assert {"name", "place", "kind", "error", "tolerance", "fitted"} <= set(claim)
    found = [claim[key] for key in ("paper", "published", "ours", "verdict")]
    assert found == ["trimoe", 25, 25, "holds"]


def test_what_cannot_be_reproduced_is_not_comparable_and_says_why():
    name = next(claim.name for _, claim in EVERY if claim.kind == "not-reproducible")
    status, out, _ = call("validate", name, "--json", "-")
    claim = json.loads(out)["claims"][0]
    assert status == 0
    assert (claim["kind"], claim["verdict"], claim["ours"]) == ("not-reproducible", "not-comparable", None)
    assert claim["why"]


@pytest.mark.parametrize("change", [{"value": 30.0}, None])
def test_an_unexpected_verdict_ends_with_status_1(change, monkeypatch):
    paper, claim = claim_of("trimoe-link-bandwidth")
    off = claim.model_copy(update={"expected": "off", "why": "a reason"})
    other = off if change is None else published(claim, **change)
    changed = {"trimoe": paper.model_copy(update={"claims": [other]})}
    monkeypatch.setattr(evaluation, "read_papers", lambda: changed)
    status, out, _ = call("validate", "trimoe")
    assert status == 1
    assert "(unexpected)" in out
    assert "not as expected: trimoe-link-bandwidth" in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["trimo"], "unknown-name PAPER|CLAIM ? trimoe"),
        (["trimoe-link-bandwith"], "unknown-name PAPER|CLAIM ? trimoe-link-bandwidth"),
        (["trimoe-link-bandwidth", "--jobs", "0"], "range --jobs"),
        (["trimoe-link-bandwidth", "--json", "/nowhere/x.json"], "unwritable --json"),
        (["trimoe-link-bandwidth", "--report", __file__], "unwritable --report"),
    ],
)
def test_a_mistake_is_one_line_before_anything_runs(arguments, words, monkeypatch):
    monkeypatch.setattr(evaluation, "measured", lambda *_: pytest.fail("runs"))
    assert refused_call("validate", *arguments) == words


def test_claims_are_chosen_by_paper_and_by_name():
    chosen = [claim.name for _, claim in chosen_claims(["trimoe-link-bandwidth", "cxl"])]
    assert chosen.count("trimoe-link-bandwidth") == 1
    assert len(chosen) == 1 + len(SOURCES["cxl"].claims)
    assert len(chosen_claims([])) == len(EVERY)


# Reports


def test_a_report_has_every_claim_and_a_picture_of_each_figure(tmp_path, entries):
    drawn = [
        published(MADE.model_copy(update={"name": f"made-{n}", "figure": "Figure 2"}), value=float(n))
        for n in (1, 2)
    ]
    pairs = [(PAPER, claim) for claim in drawn]
    outcomes, changes = evaluate(pairs, 1), sensitivity(pairs, 1)
    other = replace(outcomes[0], paper=SOURCES["trimoe"]), replace(outcomes[1], paper=SOURCES["trimoe"])
    write_report(tmp_path, other, changes)
    text = (tmp_path / "REPORT.md").read_text()
    assert "| made-1 | Table 1 | 1 x | 1 x | +0.0% | 5% | holds |" in text
    assert "| made-2 | Table 1 | 2 x | 1 x | -50.0% | 5% | off (unexpected) |" in text
    assert re.search(r"\| made-1 \| ndp.gemv.clock_mhz \| 500: [0-9.]+, holds; 250: [0-9.]+, off \|", text)
    assert "](figures/trimoe-figure-2-x.svg)" in text
    assert (tmp_path / "figures" / "trimoe-figure-2-x.svg").read_text().count("made-") == 2
    files = tmp_path / "REPORT.md", tmp_path / "figures" / "trimoe-figure-2-x.svg"
    first = [file.read_bytes() for file in files]
    write_report(tmp_path, other, changes)
    assert [file.read_bytes() for file in files] == first


def test_the_summary_counts_fitted_claims_apart():
    paper, claim = claim_of("trimoe-link-bandwidth")
    fitted = claim.model_copy(update={"fitted": ["a parameter"], "kind": "simulated"})
    free = claim.model_copy(update={"kind": "simulated"})
    outcomes = [judged(free, paper, 30.0, {}, TOLERANCES), judged(fitted, paper, 25.0, {}, TOLERANCES)]
    assert summary(outcomes)[0] == "papers: 0 of 1 simulated claims hold (1 of 2 with fitted ones)"


def test_the_summary_counts_transcribed_figures_apart():
    names = ("trimoe-top-k-qwen3", "trimoe-link-bandwidth", "trimoe-ndp-bandwidth")
    outcomes = [outcome_of(*claim_of(name)) for name in names]
    line = "papers: 1 of 1 exact claims hold; 2 of 2 transcribed figures hold"
    assert summary(outcomes)[0] == line


REPORT = Path(__file__).parents[1] / "validation" / "REPORT.md"


def test_the_report_in_the_checkout_is_of_these_claims():
    """Names, published figures and verdicts; the runs themselves take minutes."""
    rows = [line.split(" | ") for line in REPORT.read_text().splitlines() if line.startswith("| ")]
    rows = [row for row in rows if row[-1].startswith(("command", "`ndpsim validate"))]
    cells = {row[0].removeprefix("| "): row for row in reversed(rows)}  # sensitivity follows the verdicts
    for _, claim in NUMBERS + TRENDS:
        row = cells.pop(claim.name)
        assert row[2] == figure_in_words(claim.published)
        assert row[6].split()[0] == claim.expected
        assert ("(fitted)" in row[6]) == bool(claim.fitted)
        assert row[7] == f"`ndpsim validate {claim.name}` |"
    assert set(cells) == {"claim"}


def test_accuracy_says_what_the_report_counts():
    counts = [line for line in REPORT.read_text().splitlines() if re.match("- (papers|other|measure)", line)]
    page = (REPORT.parents[1] / "docs" / "accuracy.md").read_text()
    assert len(counts) >= 3
    assert [line for line in dict.fromkeys(counts[:3]) if line not in page.splitlines()] == []


# ---- From a claim to its run


def test_a_claim_is_shown_with_its_quote_its_tolerance_and_its_commands():
    shown = said("show", "claim", "cxl-decode-largest")
    for words in ("8.7 x", "up to 8.7", "printed", "50% (systems)", "ndpsim validate cxl-decode-largest"):
        assert words in shown
    assert (
        "ndpsim moe --batch 1 --gpu-experts 4 --hw cxl --model mixtral-8x7b --policy cxl:bits=3 --steps 16"
        in shown
    )


def test_every_command_of_a_claim_can_be_typed():
    """Each begins with a command of ndpsim, and each of its options is one of that command."""
    for _, claim in chosen_claims(["cxl", "trimoe", "edge"]):
        for commands in run_commands(claim).values():
            for command in commands:
                program, name, *words = shlex.split(command)
                assert program == "ndpsim"
                known = cli.get_command(Context(cli), name).table
                assert {word[2:] for word in words if word.startswith("--")} <= set(known) | {"set"}


def test_a_key_is_changed_in_the_runs_that_have_it():
    (claim,) = [claim for _, claim in with_settings(chosen_claims(["cxl-decode-largest"]), {"batch": "4"})]
    assert {run.given["batch"] for run in claim.runs.values()} == {"4"}
    assert {json.loads(run.settings)["batch"] for named in runs_of(claim) for run in named.values()} == {4}
    with refused("unknown-key nope"):
        with_settings(chosen_claims(["cxl-decode-largest"]), {"nope": "4"})
