"""Whether ours is what is published."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from ndpsim.claims.claim import Claim, Paper, Published, ToleranceClass

__all__ = ["Outcome", "interval_of", "judged"]


_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?", re.ASCII)


@dataclass(frozen=True)
class Outcome:
    """What came of a claim.

    Attributes:
        claim: what is claimed.
        paper: where.
        ours: the value that was worked out, a truth for a trend; None: none was.
        values: of each combination of `Claim.over`, by its values in words.
        error: how far ours is from what is published, as a share of it, with its sign; 0 within an interval;
            None for a trend.
        tolerance: how large the error may be; None for a trend.
        verdict: "holds", "off", "not-comparable" or "not-run".
        reason: why there is no value.
    """

    claim: Claim
    paper: Paper
    ours: float | bool | None
    values: Mapping[str, float | bool]
    error: float | None
    tolerance: float | None
    verdict: str
    reason: str | None = None

    @property
    def is_news(self) -> bool:
        """Whether the verdict is another one than expected, for the better or for the worse."""
        return self.claim.kind != "not-reproducible" and self.verdict != self.claim.expected

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
            "published": figure,
            "unit": published.unit,
            "ours": self.ours,
            "error": self.error,
            "tolerance": self.tolerance,
            "fitted": list(claim.fitted),
            "verdict": self.verdict,
            "expected": claim.expected,
            "why": claim.why,
            "reason": self.reason,
            "values": dict(self.values),
        }


def _half_of_last_digit(value: float, quote: str) -> float:
    """What rounding to the digits of a printed number can hide: 0.05 of 2.1, 0.005 of 2.10, 0.5 of 62.

    How many digits there are says the quote, where it has the number.
    """
    printed = [Decimal(text) for text in _NUMBER.findall(quote.replace(",", ""))]
    same = [number for number in printed if float(number) == value]
    number = max(same, key=_decimals, default=Decimal(repr(value)).normalize())
    return 0.5 * 10.0 ** -_decimals(number)


def _decimals(number: Decimal) -> int:
    return max(-int(number.as_tuple().exponent), 0)


def interval_of(published: Published) -> tuple[float, float]:
    """Both ends of what is published, twice the same for a value."""
    low = published.value if published.low is None else published.low
    high = published.value if published.high is None else published.high
    assert low is not None
    assert high is not None
    return low, high


def judged(
    claim: Claim, paper: Paper, ours: Any, values: Mapping[str, Any], tolerances: Mapping[str, ToleranceClass]
) -> Outcome:
    """The outcome of a claim for which `ours` was worked out."""
    if claim.kind == "trend":
        verdict = "holds" if ours is True else "off"
        return Outcome(claim, paper, bool(ours), values, None, None, verdict)
    assert claim.tolerance is not None
    low, high = interval_of(claim.published)
    end = low if ours < low else high
    distance = 0.0 if low <= ours <= high else float(ours) - end
    allowed = tolerances[claim.tolerance].share + claim.published.reading_error
    room = allowed * abs(end) + _half_of_last_digit(end, claim.published.quote)
    verdict = "holds" if abs(distance) <= room * (1 + 1e-12) else "off"
    error = distance / abs(end) if end else distance
    return Outcome(claim, paper, ours, values, error, allowed, verdict)
