"""Outcomes with two assumptions changed at once, for the keys that change the most verdicts alone."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence

from ndpsim.studies.claims.claim import Claim, Paper
from ndpsim.studies.claims.evaluate import Outcome, Pair, Setting, changed, evaluate, runs_of
from ndpsim.studies.claims.runs import ResolvedRun
from ndpsim.studies.claims.words import Changes, changed_verdicts, value_in_words

_KEYS = 5
#: Maximum number of further runs: pairs then take minutes after the thousands of runs of single values.
_MOST_RUNS = 600


def pairs(
    claims: Sequence[tuple[Paper, Claim]],
    outcomes: Sequence[Outcome],
    changes: Changes,
    jobs: int,
    progress: Callable[[float], None] = lambda share: None,
    most_runs: int = _MOST_RUNS,
    seconds: float = math.inf,
) -> list[Pair]:
    """Outcomes of claims with two values at once, for the five keys that change the most verdicts.

    The values of these keys that change a verdict alone are paired, the strongest first, as long as at most
    `most_runs` further runs are needed. After `seconds` no run is started; pairs that lack one are left out.

    Args:
        outcomes: outcomes of the claims, in their order.
        changes: the result of `sensitivity` for them.

    Raises:
        InputError: a run of a claim can never be.
    """
    turned = {setting: sum(counts) for setting, counts in changed_verdicts(outcomes, changes).items()}
    by_key: dict[str, int] = {}
    for (key, _), count in turned.items():
        by_key[key] = by_key.get(key, 0) + count
    keys = sorted(by_key, key=lambda key: -by_key[key])[:_KEYS]
    strong = sorted((setting for setting in turned if setting[0] in keys), key=lambda s: -turned[s])
    both = [(first, second) for first, second in itertools.combinations(strong, 2) if first[0] != second[0]]
    both.sort(key=lambda pair: -sum(turned[setting] for setting in pair))

    known = _runs(claims) | _runs([(paper, variant) for paper, claim in claims for variant in _each(claim)])
    cases: dict[tuple[Setting, Setting], list[tuple[Paper, Claim]]] = {}
    for pair in both:
        case = [(paper, variant) for paper, claim in claims for variant in _with(claim, pair)]
        further = _runs(case) - known
        if case and len(further) <= most_runs:
            most_runs -= len(further)
            known |= further
            cases[pair] = case
    every = [claim for case in cases.values() for claim in case]
    results = iter(evaluate(every, jobs, progress, seconds))
    found = {pair: [next(results) for _ in case] for pair, case in cases.items()}
    before = {outcome.claim.name: outcome for outcome in outcomes}
    alone = _alone(changes)
    return [
        _pair(pair, theirs, before, alone)
        for pair, theirs in found.items()
        if not any(outcome.is_omitted for outcome in theirs)
    ]


def _runs(claims: Sequence[tuple[Paper, Claim]]) -> set[ResolvedRun]:
    return {run for _, claim in claims for named in runs_of(claim) for run in named.values()}


def _each(claim: Claim) -> list[Claim]:
    """The claim at each value of each assumption."""
    return [
        changed(claim, assumption, value) for assumption in claim.assumptions for value in assumption.values
    ]


def _with(claim: Claim, settings: Sequence[Setting]) -> list[Claim]:
    """The claim with settings; nothing if it does not depend on each of them."""
    for key, words in settings:
        found = [
            (assumption, value)
            for assumption in claim.assumptions
            for value in assumption.values
            if (assumption.key, value_in_words(value)) == (key, words)
        ]
        if not found:
            return []
        claim = changed(claim, *found[0])
    return [claim]


def _alone(changes: Changes) -> Mapping[tuple[str, Setting], str]:
    """The verdict of each claim, by its name, with each setting."""
    return {
        (name, (change.assumption.key, value_in_words(change.value))): change.outcome.verdict
        for name, outcomes in changes.items()
        for change in outcomes
    }


def _pair(
    settings: tuple[Setting, Setting],
    outcomes: Sequence[Outcome],
    before: Mapping[str, Outcome],
    alone: Mapping[tuple[str, Setting], str],
) -> Pair:
    turned = [
        (before[outcome.claim.name].verdict, outcome.verdict, outcome.claim.name)
        for outcome in outcomes
        if {before[outcome.claim.name].verdict, outcome.verdict} == {"holds", "off"}
    ]
    together = sum(all(alone.get((name, setting)) != now for setting in settings) for _, now, name in turned)
    mends = sum(was == "off" for was, _, _ in turned)
    return Pair(settings, mends, len(turned) - mends, together)
