"""Two values of assumptions at once: the choice of pairs, and their results."""

from __future__ import annotations

from ndpsim.studies.claims.claim import Claim, Paper
from ndpsim.studies.claims.evaluate import Pair, evaluate, sensitivity
from ndpsim.studies.claims.pairs import pairs
from ndpsim.studies.claims.report import write_report
from ndpsim.studies.claims.words import changed_verdicts, plain_data

PAPER = Paper.model_validate(
    {"paper": "made", "title": "A paper", "hardware": "trimoe", "counted": {}, "claims": []}
)
#: 80 GB less 8 GB are ours.
CLAIMS = [
    (
        PAPER,
        Claim.model_validate(
            {
                "name": f"made-{value}",
                "place": "Table 1",
                "kind": "simulated",
                "published": {"value": float(value), "quote": f"{value}.0"},
                "runs": {"hw": {"command": "hardware", "given": {"hw": "trimoe"}}},
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
    outcomes, changes = evaluate(CLAIMS, 1), sensitivity(CLAIMS, 1)
    assert changed_verdicts(outcomes, changes) == {MEMORY: (1, 0), RESERVED: (1, 0)}
    assert pairs(CLAIMS, outcomes, changes, 1) == [Pair((MEMORY, RESERVED), mends=1, breaks=0, together=1)]


def test_a_pair_that_needs_more_runs_than_are_left_is_left_out():
    outcomes, changes = evaluate(CLAIMS, 1), sensitivity(CLAIMS, 1)
    assert pairs(CLAIMS, outcomes, changes, 1, most_runs=0) == []
    assert len(pairs(CLAIMS, outcomes, changes, 1, most_runs=1)) == 1


def test_a_pair_that_breaks_what_one_value_mends_counts_nothing_for_it():
    """Of the claim of 40, which 48 GB mend, both values leave 36."""
    outcomes, changes = evaluate(CLAIMS, 1), sensitivity(CLAIMS, 1)
    only = [CLAIMS[1], CLAIMS[2]]
    assert pairs(only, outcomes[1:], changes, 1) == [Pair((MEMORY, RESERVED), 0, 0, 0)]


def test_reports_have_the_pairs_that_turn_a_verdict(tmp_path):
    outcomes, changes = evaluate(CLAIMS, 1), sensitivity(CLAIMS, 1)
    found = [Pair((MEMORY, RESERVED), 1, 0, 1), Pair((MEMORY, ("bits", "4")), 0, 0, 0)]
    write_report(tmp_path, outcomes, changes, found)
    text = (tmp_path / "REPORT.md").read_text()
    assert "| gpu.memory_gb=48 | gpu.reserved_gb=12 | 1 | 0 | 1 |" in text
    assert "bits=4" not in text
    assert [one["together"] for one in plain_data(outcomes, changes, found)["by_pair"]] == [1, 0]
