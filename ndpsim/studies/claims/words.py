"""Claims and their outcomes in words and tables."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ndpsim.base.arguments import setting_text
from ndpsim.base.units import significant
from ndpsim.report.printing import print_table, print_text
from ndpsim.studies.claims.claim import Claim, Paper, PublishedFigure, ToleranceClass
from ndpsim.studies.claims.evaluate import (
    Change,
    Outcome,
    Pair,
    Setting,
    allowed_interval,
    interval_of,
    runs_of,
)
from ndpsim.studies.claims.runs import ResolvedRun
from ndpsim.studies.sweeps.commands import swept_commands

#: By the names of claims.
Changes = Mapping[str, Sequence[Change]]

COLUMNS = ("claim", "place", "published", "ours", "error", "allowed", "verdict")

SENSITIVITY_COLUMNS = ("claim", "published", "ours", "least", "most", "published inside", "verdict depends")

#: Numbers of verdicts that a value changes from off to holds, and from holds to off.
VALUE_COLUMNS = ("assumption", "value", "mends", "breaks")

#: The same numbers for two values at once, and the number of verdicts that neither changes alone.
PAIR_COLUMNS = ("value", "and", "mends", "breaks", "neither alone")

_SOURCES = {"paper": "papers", "simulator": "other simulators", "measurement": "measurements"}
_KINDS = {
    "exact": "exact claims",
    "transcribed": "transcribed figures",
    "simulated": "simulated claims",
    "trend": "trends",
    "given": "trends that inputs make true",
}


def number_in_words(value: Any) -> str:
    """A number as in tables, or a truth in words."""
    if isinstance(value, bool):
        return "so" if value else "not so"
    if isinstance(value, int) or float(value).is_integer():
        return f"{value:,.0f}"
    return significant(value)


def value_in_words(value: Any) -> str:
    """A value of an assumption; for a mapping by model all of its values."""
    return ", ".join(dict.fromkeys(map(str, value.values()))) if isinstance(value, dict) else str(value)


def figure_in_words(published: PublishedFigure) -> str:
    """The published figure, with its digits and its unit."""
    if published.statement is not None:
        return published.statement
    low, high = (f"{end:,.15g}" for end in interval_of(published))
    return f"{low if published.low is None else f'{low} to {high}'} {published.unit}".rstrip()


def _share(value: float | None, signed: bool) -> str:
    if value is None:
        return ""
    return f"{100 * value:+.1f}%" if signed else f"{100 * value:.0f}%"


def command_of(claim: Claim) -> str:
    """The command that makes the simulated figure of a claim."""
    return f"ndpsim validate {claim.name}"


#: Quantities of claims that a command prints, and those commands.
_PRINTED = {
    "hardware": "ndpsim show hw {hw}",
    "model": "ndpsim show model {model}",
}


def run_commands(claim: Claim) -> dict[str, list[str]]:
    """The commands of each run of a claim, for each combination of `Claim.over`; []: no command runs it."""
    found: dict[str, list[str]] = {name: [] for name in claim.runs}
    for named in runs_of(claim):
        for name, run in named.items():
            command = _run_command(run)
            if command is not None and command not in found[name]:
                found[name].append(command)
    return found


def _run_command(run: ResolvedRun) -> str | None:
    settings = json.loads(run.settings)
    if run.command in _PRINTED:
        return _PRINTED[run.command].format(
            hw=settings.get("hw", "NAME"), model=settings.get("model", "NAME")
        )
    command = swept_commands().get(run.command)
    if command is None:
        return None
    words = ["ndpsim", run.command]
    for key, value in settings.items():
        text = ",".join(map(setting_text, value)) if isinstance(value, list) else setting_text(value)
        if key not in command.parameters:
            words += ["--set", f"{key}={setting_text(value)}"]
        elif command.parameters[key].positional:
            words.append(text)
        elif value is True:
            words.append(f"--{key}")
        elif value is not None and value is not False:
            words += [f"--{key}", text]
    return shlex.join(words)


def claim_dict(paper: Paper, claim: Claim) -> dict[str, Any]:
    """A claim as plain data, with the commands that make the simulated figure."""
    return {
        "paper": paper.paper,
        **claim.model_dump(exclude={"runs"}),
        "command": None if claim.kind == "not-reproducible" else command_of(claim),
        "runs": run_commands(claim),
    }


def print_claim(paper: Paper, claim: Claim, tolerances: Mapping[str, ToleranceClass]) -> None:
    """Print a claim: its quote and reading, the tolerance, the verdict of the report, and its commands."""
    published = claim.published
    print_text(f"{claim.name}: {paper.title} ({paper.paper}), {claim.place}", bold=True)
    rows = [
        ("published", figure_in_words(published)),
        ("quote", f'"{published.quote}"'),
        ("reading", published.reading + (f": {published.derivation}" if published.derivation else "")),
        ("kind", claim.kind),
        ("simulated figure", claim.ours or "none"),
        ("over", "; ".join(f"{key}: {value_in_words(value)}" for key, value in claim.over.items())),
    ]
    if claim.tolerance is not None:
        rule = tolerances[claim.tolerance]
        share = rule.share + published.reading_error
        least, most = allowed_interval(published, share)
        allowed = (
            f"{100 * share:.0f}% ({claim.tolerance}), {number_in_words(least)} to {number_in_words(most)}"
        )
        rows.append(("tolerance", allowed))
    verdict = "not comparable" if claim.kind == "not-reproducible" else claim.expected
    rows.append(("verdict in REPORT.md", verdict + (f": {claim.why}" if claim.why else "")))
    rows += [(f"assumes {rests.key}", rests.reason) for rests in claim.assumptions]
    print_table("", ("", ""), [row for row in rows if row[1]], left=2)
    if claim.kind == "not-reproducible":
        return
    print_text(f"figure and verdict: {command_of(claim)}")
    print_text(f"with another value: {command_of(claim)} --set KEY=VALUE")
    for name, commands in run_commands(claim).items():
        for command in commands:
            print_text(f"run {name}: {command}", indent="  ")


def row_of(outcome: Outcome) -> tuple[str, ...]:
    """The cells of `COLUMNS`."""
    claim, published = outcome.claim, outcome.claim.published
    ours = "" if outcome.ours is None else number_in_words(outcome.ours)
    unit = f" {published.unit}" if published.unit and ours and published.statement is None else ""
    news = " (unexpected)" if outcome.is_news else ""
    fitted = " (fitted)" if claim.fitted else " (given)" if claim.given_by else ""
    return (
        claim.name,
        claim.place,
        figure_in_words(published),
        ours + unit,
        _share(outcome.error, signed=True),
        _share(outcome.tolerance, signed=False),
        outcome.verdict + fitted + news,
    )


def summary(outcomes: Sequence[Outcome]) -> list[str]:
    """The numbers of claims of each kind that hold, without and with fitted ones, by kind of source."""
    lines = []
    for source, name in _SOURCES.items():
        theirs = [outcome for outcome in outcomes if outcome.paper.source == source]
        parts = [
            _counts([outcome for outcome in theirs if _kind_of(outcome.claim) == kind], words)
            for kind, words in _KINDS.items()
        ]
        others = sum(outcome.claim.kind == "not-reproducible" for outcome in theirs)
        if others:
            parts.append(f"{others} cannot be reproduced here")
        if theirs:
            lines.append(f"{name}: {'; '.join(filter(None, parts))}")
    news = [outcome.claim.name for outcome in outcomes if outcome.is_news]
    if news:
        lines.append(f"not as expected: {', '.join(news)}")
    return lines


def _kind_of(claim: Claim) -> str:
    if claim.is_transcribed:
        return "transcribed"
    return claim.kind if claim.given_by is None else "given"


def _counts(outcomes: Sequence[Outcome], words: str) -> str:
    free = [outcome for outcome in outcomes if not outcome.claim.fitted]
    text = f"{_hold(free)} of {len(free)} {words} hold" if outcomes else ""
    if len(free) < len(outcomes):
        text += f" ({_hold(outcomes)} of {len(outcomes)} with fitted ones)"
    not_run = sum(outcome.verdict == "not-run" for outcome in outcomes)
    return text + (f", {not_run} not run" if not_run else "")


def _hold(outcomes: Sequence[Outcome]) -> int:
    return sum(outcome.verdict == "holds" for outcome in outcomes)


def range_of(outcome: Outcome, changes: Sequence[Change]) -> tuple[float, float] | None:
    """Minimum and maximum of the simulated figure over all values of assumptions; None: it is no number."""
    values = [
        each.ours for each in (outcome, *(change.outcome for change in changes)) if each.ours is not None
    ]
    if outcome.claim.kind == "trend" or not values:
        return None
    return float(min(values)), float(max(values))


def _is_inside(outcome: Outcome, changes: Sequence[Change]) -> bool | None:
    """Whether the published figure is within the range of simulated ones; None: these are no numbers."""
    reach = range_of(outcome, changes)
    if reach is None:
        return None
    low, high = interval_of(outcome.claim.published)
    return low <= reach[1] and reach[0] <= high


def dependence(outcome: Outcome, changes: Sequence[Change]) -> str:
    """The assumptions on which the verdict depends."""
    others = [change for change in changes if change.outcome.verdict != outcome.verdict]
    if not changes:
        return "rests on no assumption"
    if not others:
        return f"{outcome.verdict} with every assumption"
    verdicts = dict.fromkeys(change.outcome.verdict for change in others)
    parts = []
    for verdict in verdicts:
        by_key: dict[str, list[str]] = {}
        for change in others:
            if change.outcome.verdict == verdict:
                fitted = " (fitted)" if change.assumption.is_fitted_to(outcome.claim) else ""
                value = value_in_words(change.value) + fitted
                by_key.setdefault(change.assumption.key, []).append(value)
        parts.append(f"{verdict} with " + ", ".join(f"{k}={' or '.join(v)}" for k, v in by_key.items()))
    return "; ".join(parts)


def sensitivity_row(outcome: Outcome, changes: Sequence[Change]) -> tuple[str, ...]:
    """The cells of `SENSITIVITY_COLUMNS`."""
    reach, inside = range_of(outcome, changes), _is_inside(outcome, changes)
    return (
        outcome.claim.name,
        figure_in_words(outcome.claim.published),
        "" if outcome.ours is None else number_in_words(outcome.ours),
        *(("", "") if reach is None else map(number_in_words, reach)),
        "" if inside is None else ("yes" if inside else "no"),
        dependence(outcome, changes),
    )


def changed_verdicts(outcomes: Sequence[Outcome], changes: Changes) -> dict[Setting, tuple[int, int]]:
    """The verdicts that each value mends and breaks, for values that change a verdict.

    A verdict with values that were fitted to the claim's own figure is not counted.
    """
    counts: dict[Setting, tuple[int, int]] = {}
    for outcome in outcomes:
        for change in changes.get(outcome.claim.name, ()):
            verdicts = outcome.verdict, change.outcome.verdict
            fitted = change.assumption.is_fitted_to(outcome.claim)
            if not fitted and verdicts in (("off", "holds"), ("holds", "off")):
                setting = change.assumption.key, value_in_words(change.value)
                mends, breaks = counts.get(setting, (0, 0))
                breaking = verdicts[0] == "holds"
                counts[setting] = mends + (not breaking), breaks + breaking
    return dict(sorted(counts.items(), key=lambda item: -sum(item[1])))


def decided_by_value(outcomes: Sequence[Outcome], changes: Changes) -> list[tuple[str, ...]]:
    """The cells of `VALUE_COLUMNS`, for each value of an assumption that changes a verdict."""
    counts = changed_verdicts(outcomes, changes)
    return [(key, value, str(mends), str(breaks)) for (key, value), (mends, breaks) in counts.items()]


def omitted(outcomes: Sequence[Outcome], changes: Changes) -> str | None:
    """The number of values that were not run, as the time was up, and of which papers; None: all were run."""
    every = [
        (outcome.paper.paper, change.outcome)
        for outcome in outcomes
        for change in changes.get(outcome.claim.name, ())
    ]
    left = Counter(paper for paper, changed in every if changed.is_omitted)
    if not left:
        return None
    papers = ", ".join(f"{count} of {paper}" for paper, count in left.items())
    words = f"{sum(left.values())} of {len(every)} changes were not run, as the time was up ({papers})"
    return f"{words}; another call with a cache goes on there"


def decided_by_pair(pairs: Sequence[Pair]) -> list[tuple[str, ...]]:
    """The cells of `PAIR_COLUMNS`, for each pair that changes a verdict."""
    turning = [pair for pair in pairs if pair.mends + pair.breaks]
    return [
        (*map("=".join, pair.settings), *map(str, (pair.mends, pair.breaks, pair.together)))
        for pair in sorted(turning, key=lambda pair: -pair.mends - pair.breaks)
    ]


def _sensitivity(outcome: Outcome, changes: Sequence[Change]) -> dict[str, Any]:
    reach = range_of(outcome, changes)
    return {
        "low": None if reach is None else reach[0],
        "high": None if reach is None else reach[1],
        "published_inside": _is_inside(outcome, changes),
        "depends": dependence(outcome, changes),
        "changes": [
            {
                "assumption": change.assumption.key,
                "value": change.value,
                "why": change.assumption.reason,
                "ours": change.outcome.ours,
                "error": change.outcome.error,
                "verdict": change.outcome.verdict,
            }
            for change in changes
        ],
    }


def plain_data(
    outcomes: Sequence[Outcome], changes: Changes | None, pairs: Sequence[Pair] = ()
) -> dict[str, Any]:
    """Plain data for JSON; `changes`, `pairs`: outcomes with other values, if these were run."""
    claims = [outcome.to_dict() for outcome in outcomes]
    if changes is not None:
        for outcome, claim in zip(outcomes, claims, strict=True):
            claim["sensitivity"] = _sensitivity(outcome, changes.get(outcome.claim.name, ()))
    data = {"claims": claims, "summary": summary(outcomes)}
    if changes is not None:
        values = decided_by_value(outcomes, changes)
        data["by_value"] = [dict(zip(VALUE_COLUMNS, row, strict=True)) for row in values]
        data["by_pair"] = [asdict(pair) for pair in pairs]
        data["omitted"] = omitted(outcomes, changes)
    return data


def print_outcomes(outcomes: Sequence[Outcome], changes: Changes | None, pairs: Sequence[Pair] = ()) -> None:
    """Print a table of the claims that can be compared, and the numbers that hold."""
    compared = [outcome for outcome in outcomes if outcome.claim.kind != "not-reproducible"]
    if compared:
        print_table("", COLUMNS, map(row_of, compared), left=3)
    for outcome in compared:
        if outcome.verdict == "not-run":
            what = "skipped" if outcome.is_skipped else "not run"
            print_text(f"{outcome.claim.name} is {what}: {outcome.reason}")
    if changes is not None:
        rows = [sensitivity_row(outcome, changes.get(outcome.claim.name, ())) for outcome in compared]
        print_table("", SENSITIVITY_COLUMNS, rows, left=1)
        print_table("verdicts by value", VALUE_COLUMNS, decided_by_value(outcomes, changes), left=2)
        if rows := decided_by_pair(pairs):
            print_table("verdicts by two values", PAIR_COLUMNS, rows, left=2)
        if left := omitted(outcomes, changes):
            print_text(left)
    for line in summary(outcomes):
        print_text(line)
