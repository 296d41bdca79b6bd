"""Whether ours is what is published."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from ndpsim.devtools.claims.claim import Claim, Paper, Published, ToleranceClass

#: Units of ratios of two times, or the like: 1 is no effect.
RATIOS = ("x",)
#: Units of shares, with what all is; "% more" is none of them.
_SHARES = {"%": 100.0, "share": 1.0}

_ROUNDED = 1e-12  # what arithmetic in doubles may lose, as a share
_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?", re.ASCII)


@dataclass(frozen=True)
class Outcome:
    """The outcome of a claim.

    Attributes:
        claim: what is claimed.
        paper: the paper and the place in it.
        ours: the value that was worked out, a truth for a trend; None: none was.
        values: of each combination of `Claim.over`, by its values in words.
        error: how far ours is from what is published, as a share of it, or where that is a share above a
            half, of what is left to all; with its sign; 0 within an interval; None for a trend.
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
            "why": claim.why,
            "reason": self.reason,
            "values": dict(self.values),
        }


def _half_of_last_digit(value: float, quote: str) -> float:
    """The most that rounding to the printed digits can hide: 0.05 of 2.1, 0.005 of 2.10, 0.5 of 62.

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


def allowed_interval(published: Published, share: float) -> tuple[float, float]:
    """The least and the most that ours may be.

    A ratio may be 1 + `share` times more or less, on its side of 1; a share, such a part of the nearer of its
    distances to nothing and to all; any other figure, of itself. What rounding of a printed number hides is
    added.

    Args:
        published: of an exact or simulated claim.
        share: of its class of tolerance, with its reading error.
    """
    low, high = interval_of(published)
    least = low - _half_of_last_digit(low, published.quote) - _ROUNDED * abs(low)
    most = high + _half_of_last_digit(high, published.quote) + _ROUNDED * abs(high)
    if published.unit in RATIOS:
        floor, ceiling = math.nextafter(1, 2), math.nextafter(1, 0)
        above, below = least / (1 + share), most * (1 + share)
        return max(above, floor) if least > 1 else above, min(below, ceiling) if most < 1 else below
    return least - share * _scale(published, low), most + share * _scale(published, high)


def _scale(published: Published, end: float) -> float:
    return min(abs(end), abs(_SHARES.get(published.unit, math.inf) - end))


def judged(
    claim: Claim, paper: Paper, ours: Any, values: Mapping[str, Any], tolerances: Mapping[str, ToleranceClass]
) -> Outcome:
    """The outcome of a claim for which `ours` was worked out."""
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
