"""Names in print of a sweep's metrics and of the keys that it varies: words, units, readable scales."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ndpsim.base.arguments import is_finite
from ndpsim.base.reported import Quantity, quantity_of, with_unit
from ndpsim.base.units import TIMES, Scale, scale_for
from ndpsim.config.keys import field_at, unit_of

_NO_UNIT = Scale("")
_SPEEDUP = Quantity("speed-up", TIMES)
_OF_SECTION = ("count", "channels", "ports")  # These are ambiguous without their section.
_LONGEST_DESCRIPTION = 40
_KEYS = {
    "bits": "bits of a weight",
    "batch": "sequences in a batch",
    "context": "context (tokens)",
    "host-traffic": "host traffic (GB/s)",
    "hw": "hardware",
    "prompt": "prompt tokens of a sequence",
    "release-ns": "release (ns)",
    "steps": "decode steps",
}


def is_number(value: Any) -> bool:
    """Whether a value can be drawn: a finite number, and not a Boolean."""
    return isinstance(value, int | float) and not isinstance(value, bool) and is_finite(value)


# In all functions below `results` are the classes of results that may have the metric.


def described(metric: str, results: Iterable[type] = ()) -> Quantity:
    """The description of a metric, from the result that has it; sweeps describe `speedup` themselves."""
    return _SPEEDUP if metric == "speedup" else quantity_of(metric, results)


def metric_text(metric: str, value: Any, results: Iterable[type] = ()) -> str:
    """A value of a metric with its unit; empty without a value."""
    return "" if value is None else with_unit(metric, value, *results)


def scale_of(metric: str, values: Iterable[Any] = (), results: Iterable[type] = ()) -> Scale:
    """The largest unit in which the largest value is at least 1."""
    largest = max((abs(value) for value in values if is_number(value)), default=0.0)
    return scale_for(described(metric, results).unit, largest)


def metric_label(
    metric: str, scale: Scale = _NO_UNIT, baseline: str = "", results: Iterable[type] = ()
) -> str:
    """The name of a metric for an axis or a column: ``time (µs)``; a speed-up is followed by its baseline."""
    over = f" over {baseline}" if baseline and metric == "speedup" else ""
    return f"{described(metric, results).label}{over}" + (f" ({scale.unit})" if scale.unit else "")


def higher_is_better(metric: str, results: Iterable[type] = ()) -> bool:
    """Whether a higher value is better, as for rates, shares of a peak and speed-ups."""
    unit = described(metric, results).unit
    return unit in ("GB/s", "GFLOPS", "tokens/s", "1/s", "%") or "speedup" in metric


def key_label(key: str) -> str:
    """A varied key for an axis: its description in the hardware file with its unit, or the option's name."""
    path = tuple(key.split("."))
    field = field_at(path) if len(path) > 1 else None
    if field is None:
        return _KEYS.get(key, key.replace("-", " "))
    words = field.description or ""
    unit = unit_of(path)
    words = words if words and len(words) <= _LONGEST_DESCRIPTION and ";" not in words else key
    return words + (f" ({unit})" if unit and not words.endswith(unit) else "")


def name_of(values: Mapping[str, Any]) -> str:
    """Values of keys for a legend: words alone, numbers with their keys: ``ranks 4, link 25 GB/s``."""
    return ", ".join(_named(key, value) for key, value in values.items())


def _named(key: str, value: Any) -> str:
    words = value_words(value)
    if isinstance(value, str) and not value[:1].isdigit():
        return words
    *section, last = key.split(".")
    unit = unit_of(tuple(key.split("."))) if section else ""
    if unit:
        last = last.rpartition("_")[0]
    if section and last in ("", *_OF_SECTION):
        last = f"{section[-1]} {last}".strip()
    return f"{last.replace('_', ' ').replace('-', ' ')} {words}" + (f" {unit}" if unit else "")


def value_words(value: Any) -> str:
    """A value of a key as text; lists are separated by commas."""
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    if isinstance(value, list | tuple):
        return ",".join(map(value_words, value))
    return f"{value:g}" if isinstance(value, float) and abs(value) < 1e15 else str(value)
