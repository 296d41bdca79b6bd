"""Evaluates claims: runs, simulated figures, verdicts, and their sensitivity to assumptions."""

from __future__ import annotations

import itertools
import json
import math
import re
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

from ndpsim.base.errors import InputError, did_you_mean, shown
from ndpsim.studies.claims.claim import (
    Assumption,
    Claim,
    Expression,
    Metrics,
    Paper,
    PublishedFigure,
    ToleranceClass,
    parts_of,
    read_papers,
    read_tolerances,
)
from ndpsim.studies.claims.runs import (
    OTHER_MODELS,
    TIME_IS_UP,
    ResolvedRun,
    Result,
    filled,
    measured,
    takes,
)
from ndpsim.workload.models import load_model
from ndpsim.workload.routing.spec import default_routing

# ---- Compares simulated figures with published ones


#: Units of ratios of two times or similar: 1 means no effect.
RATIOS = ("x",)
#: Units of shares, with the value of the whole; "% more" is not a share.
_SHARES = {"%": 100.0, "share": 1.0}

_ROUNDED = 1e-12  # relative rounding error of doubles
_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?", re.ASCII)

_MISSING_EXTRA = "pip install 'ndpsim["  # of every message about an optional package


@dataclass(frozen=True)
class Outcome:
    """The outcome of a claim.

    Attributes:
        claim: the claim.
        paper: its paper and the place in it.
        ours: the simulated figure, or for a trend whether it is true; None: not computed.
        values: the value of each combination of `Claim.over`, by the combination in words.
        error: the relative difference between simulated and published figure, with its sign. For a published
            share above one half it is relative to the rest of the whole. 0 within an interval; None for a
            trend.
        tolerance: the allowed error; None for a trend.
        verdict: "holds", "off", "not-comparable" or "not-run".
        reason: the reason why there is no value.
        why: `Claim.why` with its figures.
        metrics: the values of the metrics in `Claim.ours`, of the combination that `Claim.why` speaks of.
    """

    claim: Claim
    paper: Paper
    ours: float | bool | None
    values: Mapping[str, float | bool]
    error: float | None
    tolerance: float | None
    verdict: str
    reason: str | None = None
    why: str | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)

    @property
    def is_skipped(self) -> bool:
        """Whether a run of it needs an optional package that is not installed."""
        return self.verdict == "not-run" and _MISSING_EXTRA in (self.reason or "")

    @property
    def is_omitted(self) -> bool:
        """Whether a run of it was not started, as the time was up."""
        return self.verdict == "not-run" and (self.reason or "").endswith(TIME_IS_UP)

    @property
    def is_news(self) -> bool:
        """Whether the verdict differs from the expected one, for the better or for the worse."""
        compared = self.claim.kind != "not-reproducible" and not self.is_skipped
        return compared and self.verdict != self.claim.expected

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        claim, published = self.claim, self.claim.published
        figure: Any = published.statement if published.value is None else published.value
        if published.low is not None:
            figure = [published.low, published.high]
        return {
            "name": claim.name,
            "paper": self.paper.paper,
            "source": self.paper.source,
            "place": claim.place,
            "kind": claim.kind,
            "transcribed": claim.is_transcribed,
            "published": figure,
            "unit": published.unit,
            "ours": self.ours,
            "error": self.error,
            "tolerance": self.tolerance,
            "fitted": list(claim.fitted),
            "given_by": claim.given_by,
            "falsified_by": claim.falsified_by and claim.falsified_by.says,
            "verdict": self.verdict,
            "expected": claim.expected,
            "why": self.why,
            "reason": self.reason,
            "values": dict(self.values),
            "metrics": dict(self.metrics),
        }


def _half_of_last_digit(value: float, quote: str) -> float:
    """Half of the last printed digit, the maximum rounding error: 0.05 of 2.1, 0.005 of 2.10, 0.5 of 62.

    If the quote has the number, the quote gives the number of digits.
    """
    printed = [Decimal(text) for text in _NUMBER.findall(quote.replace(",", ""))]
    same = [number for number in printed if float(number) == value]
    number = max(same, key=_decimals, default=Decimal(repr(value)).normalize())
    return 0.5 * 10.0 ** -_decimals(number)


def _decimals(number: Decimal) -> int:
    return max(-int(number.as_tuple().exponent), 0)


def interval_of(published: PublishedFigure) -> tuple[float, float]:
    """Both ends of the published interval, equal for a single value."""
    low = published.value if published.low is None else published.low
    high = published.value if published.high is None else published.high
    assert low is not None
    assert high is not None
    return low, high


def allowed_interval(published: PublishedFigure, share: float) -> tuple[float, float]:
    """The minimum and maximum of a simulated figure that holds.

    A ratio may be larger or smaller by a factor of 1 + `share`, but must be on the same side of 1. A
    published share may differ by `share` times the smaller of its distances to 0 and to the whole. Any other
    figure may differ by `share` times itself. The rounding error of a printed number is added.

    Args:
        published: the published figure of an exact or simulated claim.
        share: the share of its class of tolerance, with its reading error.
    """
    low, high = interval_of(published)
    least = low - _half_of_last_digit(low, published.quote) - _ROUNDED * abs(low)
    most = high + _half_of_last_digit(high, published.quote) + _ROUNDED * abs(high)
    if published.unit in RATIOS:
        floor, ceiling = math.nextafter(1, 2), math.nextafter(1, 0)
        above, below = least / (1 + share), most * (1 + share)
        return max(above, floor) if least > 1 else above, min(below, ceiling) if most < 1 else below
    return least - share * _scale(published, low), most + share * _scale(published, high)


def _scale(published: PublishedFigure, end: float) -> float:
    return min(abs(end), abs(_SHARES.get(published.unit, math.inf) - end))


def judged(
    claim: Claim, paper: Paper, ours: Any, values: Mapping[str, Any], tolerances: Mapping[str, ToleranceClass]
) -> Outcome:
    """The outcome of a claim with the simulated figure `ours`."""
    if claim.kind == "trend":
        verdict = "holds" if ours is True else "off"
        return Outcome(claim, paper, bool(ours), values, None, None, verdict)
    assert claim.tolerance is not None
    published = claim.published
    low, high = interval_of(published)
    nearest = min(max(low, ours), high)
    allowed = tolerances[claim.tolerance].share + published.reading_error
    least, most = allowed_interval(published, allowed)
    verdict = "holds" if least <= ours <= most else "off"
    error = float(ours - nearest) / (_scale(published, nearest) or 1.0)
    return Outcome(claim, paper, ours, values, error, allowed, verdict)


# ---- Evaluates claims: runs, simulated figures, verdicts, and their sensitivity to assumptions


Measured = Mapping[ResolvedRun, Result]
_REDUCE: Mapping[str, Callable[[list[Any]], Any]] = {
    "mean": statistics.fmean,
    "min": min,
    "max": max,
    "all": all,
}


@dataclass(frozen=True)
class Change:
    """The outcome of a claim with another value of an assumption; `loads`: see `loads_of`."""

    assumption: Assumption
    value: Any
    outcome: Outcome
    loads: str | None


#: A key of an assumption, and a value of it in words.
Setting = tuple[str, str]


@dataclass(frozen=True)
class Pair:
    """Outcomes of claims with values of two assumptions at once.

    Attributes:
        settings: both.
        mends, breaks: numbers of verdicts that change from off to holds, and from holds to off.
        together: number of these that neither value changes alone.
    """

    settings: tuple[Setting, Setting]
    mends: int
    breaks: int
    together: int


def chosen_claims(names: Sequence[str]) -> list[tuple[Paper, Claim]]:
    """The claims with the given names of claims or papers; without names, all.

    Raises:
        InputError: a name is neither a paper nor a claim.
    """
    papers = read_papers()
    every = [(paper, claim) for paper in papers.values() for claim in paper.claims]
    known = [*papers, *(claim.name for _, claim in every)]
    for name in names:
        if name not in known:
            hint = did_you_mean(name, known)
            problem = f"unknown paper or claim {shown(name)}{hint} (papers: {', '.join(papers)})"
            raise InputError(problem, "unknown-name", key="claim")
    return [(paper, claim) for paper, claim in every if not names or {paper.paper, claim.name} & set(names)]


def _combinations(claim: Claim) -> Iterator[dict[str, Any]]:
    for values in itertools.product(*claim.over.values()):
        yield dict(zip(claim.over, values, strict=True))


def runs_of(claim: Claim) -> list[dict[str, ResolvedRun]]:
    """The runs of each combination, by their names."""
    return [
        {name: filled(run, values) for name, run in claim.runs.items()} for values in _combinations(claim)
    ]


def loads_of(claim: Claim) -> str | None:
    """The loads of experts in moe runs: "measured" (published counts or curves), "skewed"; None: both."""
    runs = {run for named in runs_of(claim) for run in named.values() if run.command == "moe"}
    settings = [json.loads(run.settings) for run in runs]
    specs = [s.get("routing") or default_routing(load_model(s["model"])) for s in settings]
    kinds = {"skewed" if spec.startswith("skewed") else "measured" for spec in specs}
    return kinds.pop() if len(kinds) == 1 else None


@dataclass(frozen=True)
class _Case:
    """A combination of `Claim.over`, and the metrics of its runs."""

    keys: Mapping[str, Any]
    metrics: Metrics

    @property
    def name(self) -> str:
        return ", ".join(map(str, self.keys.values())) or "ours"


def _cases(claim: Claim, runs: Sequence[Mapping[str, ResolvedRun]], found: Measured) -> list[_Case]:
    """The combinations of a claim.

    Raises:
        InputError: a run has no result.
    """
    cases = []
    for combination, named in zip(_combinations(claim), runs, strict=True):
        metrics = {}
        for name, run in named.items():
            result = found[run]
            if isinstance(result, str):
                raise InputError(f"{name}: {result}", "missing")
            metrics[name] = result
        cases.append(_Case(combination, metrics))
    return cases


def _spoken_of(claim: Claim, cases: Sequence[_Case], ours: Any, values: Sequence[Any]) -> Sequence[_Case]:
    """The combinations that `Claim.why` speaks of."""
    if claim.reduce == "mean":
        return cases
    decides = False if claim.reduce == "all" else ours
    return [cases[values.index(decides) if decides in values else 0]]


def _figure(expression: Expression, cases: Sequence[_Case]) -> Any:
    """The value of an expression, or its mean over several cases."""
    values = [expression.of(case.metrics, case.keys) for case in cases]
    return values[0] if len(values) == 1 else statistics.fmean(values)


def _with_figures(text: str, cases: Sequence[_Case]) -> str:
    """A text with its figures in braces worked out."""
    return "".join(
        words if expression is None else words + format(_figure(expression, cases), spec)
        for words, expression, spec in parts_of(text)
    )


def evaluate(
    claims: Sequence[tuple[Paper, Claim]],
    jobs: int,
    progress: Callable[[float], None] = lambda share: None,
    seconds: float = math.inf,
) -> list[Outcome]:
    """The outcome of each claim, in their order; after `seconds` no run is started.

    Raises:
        InputError: a run of a claim can never be.
    """
    tolerances = read_tolerances()
    runs = [runs_of(claim) for _, claim in claims]
    found = measured(
        (run for case in runs for named in case for run in named.values()), jobs, progress, seconds
    )
    return [_outcome(*pair, named, found, tolerances) for pair, named in zip(claims, runs, strict=True)]


def _outcome(
    paper: Paper,
    claim: Claim,
    runs: Sequence[Mapping[str, ResolvedRun]],
    found: Measured,
    tolerances: Mapping[str, ToleranceClass],
) -> Outcome:
    nothing = Outcome(claim, paper, None, {}, None, None, "not-comparable", claim.why, claim.why)
    if claim.kind == "not-reproducible":
        return nothing
    assert claim.ours is not None
    try:
        cases, expression = _cases(claim, runs, found), Expression(claim.ours)
        values = {case.name: expression.of(case.metrics) for case in cases}
        ours = _REDUCE[claim.reduce](list(values.values()))
        told = _spoken_of(claim, cases, ours, list(values.values()))
        why = claim.why and _with_figures(claim.why, told)
        metrics = {name: _figure(Expression(name), told) for name in expression.metrics}
    except InputError as error:
        return replace(nothing, verdict="not-run", reason=str(error))
    return replace(judged(claim, paper, ours, values, tolerances), why=why, metrics=metrics)


def sensitivity(
    claims: Sequence[tuple[Paper, Claim]],
    jobs: int,
    progress: Callable[[float], None] = lambda share: None,
    seconds: float = math.inf,
) -> dict[str, list[Change]]:
    """Outcomes of claims, by name, at each value of each assumption that they rest on, one at a time.

    Headlines come first, then the first value of each assumption, then its second one. After `seconds` no run
    is started; what lacks a run is not run. A further call goes on there: results are kept in the cache.

    Raises:
        InputError: a run of a claim can never be.
    """
    tolerances = read_tolerances()
    cases = []
    for paper, claim in claims:
        as_it_is = runs_of(claim)
        for assumption in claim.assumptions:
            for place, value in enumerate(assumption.values):
                variant = changed(claim, assumption, value)
                runs = runs_of(variant)
                if runs != as_it_is:  # a mapping by model may change no run
                    loads = loads_of(variant) if claim.is_headline else None
                    cases.append((place, paper, claim, assumption, value, loads, runs))
    first = sorted(cases, key=lambda case: (not case[2].is_headline, case[0]))
    every = (run for *_, runs in first for each in runs for run in each.values())
    found = measured(every, jobs, progress, seconds)
    changes: dict[str, list[Change]] = {}
    for _, paper, claim, assumption, value, loads, runs in cases:
        outcome = _outcome(paper, claim, runs, found, tolerances)
        changes.setdefault(claim.name, []).append(Change(assumption, value, outcome, loads))
    return changes


def on_other_loads(
    claims: Sequence[tuple[Paper, Claim]], jobs: int, progress: Callable[[float], None] = lambda share: None
) -> dict[str, list[Change]]:
    """`sensitivity` of the headlines among the claims to the routing of their assumptions alone."""
    headlines = [
        (
            paper,
            claim.model_copy(
                update={"assumptions": [one for one in claim.assumptions if one.key == "routing"]}
            ),
        )
        for paper, claim in claims
        if claim.is_headline
    ]
    return sensitivity(headlines, jobs, progress)


def changed(claim: Claim, assumption: Assumption, value: Any) -> Claim:
    """The claim with another value in the runs that an assumption names, or in all that have its key."""
    names = assumption.runs or [name for name, run in claim.runs.items() if takes(run, assumption.key)]
    updates = {name: {"given": _with(claim.runs[name].given, assumption.key, value)} for name in names}
    runs = {name: run.model_copy(update=updates.get(name)) for name, run in claim.runs.items()}
    return claim.model_copy(update={"runs": runs})


def with_settings(
    claims: Sequence[tuple[Paper, Claim]], settings: Mapping[str, str]
) -> list[tuple[Paper, Claim]]:
    """The claims with other values of keys in all of their runs that have the key.

    Args:
        settings: values by key, as in ``ndpsim sweep``.

    Raises:
        InputError: no run of the claims has a key.
    """
    for key, value in settings.items():
        runs = [run for _, claim in claims for run in claim.runs.values()]
        if not any(takes(run, key) for run in runs):
            raise InputError("is a key of no run of these claims", "unknown-key", key=key)
        assumption = Assumption(key=key, values=[value], reason="a change of the call")
        claims = [(paper, changed(claim, assumption, value)) for paper, claim in claims]
    return list(claims)


def _with(settings: Mapping[str, Any], key: str, value: Any) -> dict[str, Any]:
    if isinstance(value, dict) and key in settings:
        value = {OTHER_MODELS: settings[key], **value}
    return {**settings, key: value}
