"""DALI's figures with an overhead of each expert on the CPU that was fitted to one of its tables.

``python validation/dali_overhead.py > validation/dali_overhead.md`` runs simulated claims on DALI once more,
with the overhead of `claims/dali.yaml` and with measured load curves.
"""

from __future__ import annotations

from collections.abc import Sequence

from ndpsim.studies.claims.claim import Assumption, Claim, Paper
from ndpsim.studies.claims.evaluate import Outcome, changed, chosen_claims, evaluate
from ndpsim.studies.claims.report import markdown_table
from ndpsim.studies.claims.words import row_of
from ndpsim.studies.sweeps.executors.local import chosen_jobs

OVERHEAD_KEY = "host.cpu_expert_overhead_us"
#: Load curves of models with as many experts; Mixtral has its own counts by default.
CURVES = {"deepseek-v2-lite": "ranks:olmoe-1b-7b", "qwen3-30b-a3b": "ranks:qwen3-235b-a22b"}

TEXT = """\
# DALI with an overhead fitted to Table 4

Made by `python validation/dali_overhead.py`: claims on DALI, each with `{key}={value}` and
with measured load curves ({curves}; Mixtral's own counts). Runs and tolerances are those of
[`claims/dali.yaml`](claims/dali.yaml).

The paper does not say what an expert on the CPU takes besides reading and computing. {value} µs were
chosen for the seconds of {fitted_to}, which are no predictions then. All other figures are: nothing was
fitted to them.

"""


def with_overhead(claim: Claim, overhead: Assumption) -> Claim:
    """The claim with the overhead, and with measured load curves."""
    curves = Assumption(key="routing", values=[CURVES], reason=overhead.reason)
    return changed(changed(claim, overhead, overhead.values[0]), curves, CURVES)


def table(outcomes: Sequence[Outcome]) -> None:
    """The figures, and the verdicts with and without the overhead."""
    names = ("claim", "place", "published", "ours", "error", "allowed", "verdict", "without the overhead")
    rows = [(*row_of(outcome)[:-1], outcome.verdict, outcome.claim.expected) for outcome in outcomes]
    print("\n".join(markdown_table(names, rows)))
    holds = sum(outcome.verdict == "holds" for outcome in outcomes)
    before = sum(outcome.claim.expected == "holds" for outcome in outcomes)
    print(f"\n{holds} of {len(outcomes)} hold; without the overhead and the curves {before}.\n")


def main() -> None:
    claims = chosen_claims(["dali"])
    (overhead,) = (one for one in claims[0][0].assumptions if one.key == OVERHEAD_KEY)
    asked: list[tuple[Paper, Claim]] = [
        (paper, with_overhead(claim, overhead))
        for paper, claim in claims
        if claim.kind == "simulated" and overhead in claim.assumptions
    ]
    outcomes = evaluate(asked, chosen_jobs(None))
    fitted = [outcome for outcome in outcomes if overhead.is_fitted_to(outcome.claim)]
    others = [outcome for outcome in outcomes if not overhead.is_fitted_to(outcome.claim)]
    curves = ", ".join(f"`{curve}` for {model}" for model, curve in CURVES.items())
    value, place = overhead.values[0], overhead.fitted_to
    print(TEXT.format(key=OVERHEAD_KEY, value=value, curves=curves, fitted_to=place), end="")
    print(f"## {place}: fitted\n")
    table(fitted)
    print("## All else: predicted\n")
    table(others)


if __name__ == "__main__":
    main()
