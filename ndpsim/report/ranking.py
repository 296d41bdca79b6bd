"""Which of several runs is best, by how much, and what limits it, in a sentence."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ndpsim.base.units import percent, times
from ndpsim.report.metrics import described, higher_is_better, is_number, metric_text, value_words
from ndpsim.simulate.results.moe import RESOURCES

#: Of several points, the first of these metrics that they have is the one that decides.
_DECIDING = ("speedup", "tokens_per_s", "time_ns", "bandwidth_gbps", "energy_nj.total")
#: Points with other work are compared by what they do in a second, not by their time.
_WORK = frozenset(
    ("tokens", "batch", "steps", "context", "prompt", "prefix", "shape", "model", "bits", "experts")
)
_RATES = ("speedup", "tokens_per_s", "gflops", "bandwidth_gbps")
_LIMITS = ("bound", "bottleneck")  # metrics in words that tell what limits a run


def best_of(
    rows: Sequence[Mapping[str, Any]],
    metric: str,
    results: Sequence[type] = (),
    higher: bool | None = None,
) -> int | None:
    """The number of the row with the best value of a metric; None if no row has one.

    `higher`: whether a higher value is better; None: as for this metric.
    """
    found = {number: row[metric] for number, row in enumerate(rows) if is_number(row.get(metric))}
    if not found:
        return None
    if higher_is_better(metric, results) if higher is None else higher:
        return max(found, key=found.__getitem__)
    return min(found, key=found.__getitem__)


def deciding_metric(metrics: Sequence[str], varied: Iterable[str]) -> str | None:
    """The metric by which points are compared if none is named; `varied`: the keys in which they differ."""
    candidates = _DECIDING if _WORK.isdisjoint(varied) else _RATES
    return next((name for name in candidates if name in metrics), None)


def ranked_answer(
    rows: Sequence[Mapping[str, Any]],
    names: Sequence[str],
    metric: str,
    results: Sequence[type] = (),
    higher: bool | None = None,
) -> str:
    """Which row is best by a metric, by how much, and what limits it; "" with fewer than two values.

    Args:
        rows: metrics of each run.
        names: a name for each row.
        higher: see `best_of`.
    """
    known = [number for number, row in enumerate(rows) if is_number(row.get(metric))]
    higher = higher_is_better(metric, results) if higher is None else higher
    best = best_of(rows, metric, results, higher)
    if best is None or len(known) < 2:
        return ""
    ordered = sorted(known, key=lambda number: rows[number][metric], reverse=higher)
    value = metric_text(metric, rows[best][metric], results)
    answer = f"Best by {described(metric, results).label}: {names[best]}, {value}"
    answer += _ahead(rows[best][metric], rows[ordered[1]][metric], names[ordered[1]])
    if len(ordered) > 2:
        answer += _ahead(rows[best][metric], rows[ordered[-1]][metric], f"{names[ordered[-1]]}, the last")
    return answer + _limit(rows[best])


def _ahead(best: float, other: float, name: str) -> str:
    """``, 1.23x better than NAME``; as good as it if they are equal."""
    low, high = sorted((abs(best), abs(other)))
    if low == high:
        return f", as good as {name}"
    return f", {times(high / low)} better than {name}" if low else f", better than {name}"


def _limit(row: Mapping[str, Any]) -> str:
    """What limits a run: its bottleneck in words, or the resource with most of the critical path."""
    shares = {
        name.removeprefix("bottleneck."): share
        for name, share in row.items()
        if name.startswith("bottleneck.") and is_number(share)
    }
    if not shares:  # of an expert or a relayout, whose results have it in words
        words = next((row[name] for name in _LIMITS if isinstance(row.get(name), str)), "")
        return f"; limited by {words}" if words else ""
    resource = max(shares, key=shares.__getitem__)
    group, _, number = resource.partition(" ")
    words = f"{RESOURCES.get(group, group)}{f' {number}' if number else ''}"
    return f"; limited by {words} ({percent(shares[resource])} of the critical path)"


def point_name(row: Mapping[str, Any], keys: Sequence[str]) -> str:
    """The values of a point: ``tokens=8, dimm.ranks=4``."""
    return ", ".join(f"{key}={value_words(row[key])}" for key in keys)
