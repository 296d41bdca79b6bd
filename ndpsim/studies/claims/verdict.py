"""Compares simulated figures with published ones."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from ndpsim.studies.claims.claim import Claim, Paper, PublishedFigure, ToleranceClass

#: Units of ratios of two times or similar: 1 means no effect.
RATIOS = ("x",)
#: Units of shares, with the value of the whole; "% more" is not a share.
_SHARES = {"%": 100.0, "share": 1.0}

_ROUNDED = 1e-12  # relative rounding error of doubles
_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?", re.ASCII)


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
        """Whether the verdict differs from the expected one, for the better or for the worse."""
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
