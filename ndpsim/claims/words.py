"""Claims and what came of them, in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ndpsim.claims.claim import Published
from ndpsim.claims.evaluate import Moved
from ndpsim.claims.verdict import Outcome
from ndpsim.report.printing import print_table, print_text
from ndpsim.report.words import counted
from ndpsim.units import significant

__all__ = ["COLUMNS", "figure_in_words", "plain_data", "print_outcomes", "row_of", "summary"]

COLUMNS = ("claim", "place", "published", "ours", "error", "allowed", "verdict")

_KINDS = {
    "exact": "exact claims",
    "simulated": "simulated claims",
    "trend": "trends",
}


def _number(value: Any) -> str:
    if isinstance(value, bool):
        return "so" if value else "not so"
    if isinstance(value, int) or float(value).is_integer():
        return f"{value:,.0f}"
    return significant(value)


def figure_in_words(published: Published) -> str:
    """What is published, with its unit."""
    if published.statement is not None:
        return published.statement
    low = published.value if published.low is None else published.low
    figure = _number(low) if published.low is None else f"{_number(low)} to {_number(published.high)}"
    return f"{figure} {published.unit}".rstrip()


def _share(value: float | None, signed: bool) -> str:
    if value is None:
        return ""
    return f"{100 * value:+.1f}%" if signed else f"{100 * value:.0f}%"


def row_of(outcome: Outcome) -> tuple[str, ...]:
    """The cells of `COLUMNS`."""
    claim, published = outcome.claim, outcome.claim.published
    ours = "" if outcome.ours is None else _number(outcome.ours)
    unit = f" {published.unit}" if published.unit and ours and published.statement is None else ""
    news = " (unexpected)" if outcome.is_news else ""
    fitted = " (fitted)" if claim.fitted else ""
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
    """How many claims of each kind hold, without fitted ones and with them; and what is not comparable."""
    lines = []
    for kind, words in _KINDS.items():
        of_kind = [one for one in outcomes if one.claim.kind == kind]
        if not of_kind:
            continue
        free = [one for one in of_kind if not one.claim.fitted]
        line = f"{_hold(free)} of {len(free)} {words} hold"
        if len(free) < len(of_kind):
            line += f"; with fitted ones {_hold(of_kind)} of {len(of_kind)}"
        not_run = sum(one.verdict == "not-run" for one in of_kind)
        lines.append(line + (f"; {not_run} not run" if not_run else ""))
    others = sum(one.claim.kind == "not-reproducible" for one in outcomes)
    if others:
        lines.append(f"{counted(others, 'claim')} cannot be reproduced here")
    news = [one for one in outcomes if one.is_news]
    if news:
        lines.append(f"not as expected: {', '.join(one.claim.name for one in news)}")
    return lines


def _hold(outcomes: Sequence[Outcome]) -> int:
    return sum(one.verdict == "holds" for one in outcomes)


def plain_data(outcomes: Sequence[Outcome], moved: Sequence[Moved]) -> dict[str, Any]:
    """Plain data for JSON."""
    claims = [one.to_dict() for one in outcomes]
    if moved:
        by_claim: dict[str, dict[str, Any]] = {}
        for one in moved:
            by_claim.setdefault(one.claim.name, {})[one.assumption.key] = dict(one.ours)
        claims = [claim | {"sensitivity": by_claim.get(claim["name"], {})} for claim in claims]
    return {"claims": claims, "summary": summary(outcomes)}


def print_outcomes(outcomes: Sequence[Outcome], moved: Sequence[Moved]) -> None:
    """Claims that can be compared as a table, and how many hold."""
    compared = [one for one in outcomes if one.claim.kind != "not-reproducible"]
    if compared:
        print_table("", COLUMNS, map(row_of, compared), left=3)
    for one in compared:
        if one.verdict == "not-run":
            print_text(f"{one.claim.name} is not run: {one.reason}")
    for change in moved:
        values = ", ".join(
            f"{value}: {'cannot be run' if ours is None else _number(ours)}"
            for value, ours in change.ours.items()
        )
        print_text(f"{change.claim.name} by {change.assumption.key}: {values}", indent="  ")
    for line in summary(outcomes):
        print_text(line)
