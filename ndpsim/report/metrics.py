"""What metrics of a sweep and keys that it varies are called in print: words, units, readable scales.

A metric's name tells its unit by how its parts end: ``time_ns``, ``energy_nj.total``, ``layer_ns.p99``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ndpsim.config.keys import field_at, unit_of
from ndpsim.units import significant

TIMES = "\N{MULTIPLICATION SIGN}"


@dataclass(frozen=True)
class Scale:
    """A value divided by `divisor` is in `unit`."""

    unit: str
    divisor: float = 1.0


_PERCENT = Scale("%", 0.01)
_TIME = (Scale("ns"), Scale("µs", 1e3), Scale("ms", 1e6), Scale("s", 1e9))
_ENERGY = (Scale("nJ"), Scale("µJ", 1e3), Scale("mJ", 1e6), Scale("J", 1e9))
_BYTES = (Scale("B"), Scale("KiB", 2.0**10), Scale("MiB", 2.0**20), Scale("GiB", 2.0**30))

#: Scales by how a part of a name ends, the smallest unit first.
_ENDINGS: tuple[tuple[str, tuple[Scale, ...]], ...] = (
    ("_ns", _TIME),
    ("_nj", _ENERGY),
    ("bytes", _BYTES),
    ("_gbps", (Scale("GB/s"),)),
    ("gflops", (Scale("GFLOPS"),)),
    ("_mm2", (Scale("mm²"),)),
    ("tokens_per_s", (Scale("tokens/s"),)),
    ("_per_s", (Scale("1/s"),)),
    ("_w", (Scale("W"),)),
    ("_usd", (Scale("USD"),)),
    ("_fraction", (_PERCENT,)),
    ("_rate", (_PERCENT,)),
    ("_share", (_PERCENT,)),
)
_SHARES = ("busy", "utilization", "link_busy", "dram_busy", "bottleneck", "fast_forwarded")
_RATIOS = ("speedup", "slowdown")

#: Metrics whose names alone do not say enough.
_WORDS = {
    "energy_nj.total": "energy",
    "gflops": "compute",
    "peak_gflops": "peak compute",
    "peak_fraction": "bandwidth, of the peak",
    "tokens_per_s": "throughput",
    "moe_ns": "time of experts",
    "speedup": "speed-up",
}
_OF_SECTION = ("count", "channels", "ports")  # which say of what only with their section
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
    """Whether something can be drawn: a finite number, and no truth value."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _scales(metric: str) -> tuple[Scale, ...]:
    parts = metric.split(".")
    if parts[0] in _SHARES:
        return (_PERCENT,)
    if any(parts[-1].startswith(ratio) or parts[-1].endswith(f"_{ratio}") for ratio in _RATIOS):
        return (Scale(TIMES),)
    for part in reversed(parts):
        for ending, scales in _ENDINGS:
            if part == ending.lstrip("_") or part.endswith(ending):
                return scales
    return (Scale(""),)


def scale_of(metric: str, values: Iterable[Any] = ()) -> Scale:
    """The largest unit of which the largest of some values is 1 or more."""
    largest = max((abs(value) for value in values if is_number(value)), default=0.0)
    scales = _scales(metric)
    return max(
        (one for one in scales if largest >= one.divisor), key=lambda one: one.divisor, default=scales[0]
    )


def metric_words(metric: str) -> str:
    """A metric without its unit: ``energy, read`` for ``energy_nj.read``."""
    if metric in _WORDS:
        return _WORDS[metric]
    return ", ".join(_part_words(part) for part in metric.split("."))


def _part_words(part: str) -> str:
    for ending, _ in _ENDINGS:
        if ending.startswith("_") and part.endswith(ending):
            part = part.removesuffix(ending)
    return part.replace("_", " ").replace("speedup", "speed-up")


def metric_label(metric: str, scale: Scale, baseline: str = "") -> str:
    """For an axis: ``time (µs)``; of a speed-up, over what."""
    over = f" over {baseline}" if baseline and metric == "speedup" else ""
    return f"{metric_words(metric)}{over}" + (f" ({scale.unit})" if scale.unit else "")


def with_unit(metric: str, value: Any, digits: int = 4) -> str:
    """A value of a metric in its best unit: ``13.27 µs``; anything but a number as it is."""
    if not is_number(value):
        return "" if value is None else str(value)
    scale = scale_of(metric, (value,))
    if not scale.unit:
        return f"{value:,}" if isinstance(value, int) else significant(value, digits)
    apart = "" if scale.unit in ("%", TIMES) else " "
    return f"{significant(value / scale.divisor, digits)}{apart}{scale.unit}"


def higher_is_better(metric: str) -> bool:
    """Whether more of it is wanted: of rates, shares of a peak and speed-ups; of all else, less."""
    unit = _scales(metric)[0].unit
    return unit in ("GB/s", "GFLOPS", "tokens/s", "1/s", "%") or "speedup" in metric


def key_label(key: str) -> str:
    """A key that varies, for an axis: what the hardware file says of it with its unit, else the option."""
    path = tuple(key.split("."))
    field = field_at(path) if len(path) > 1 else None
    if field is None:
        return _KEYS.get(key, key.replace("-", " "))
    words = field.description or ""
    unit = unit_of(path)
    words = words if words and len(words) <= _LONGEST_DESCRIPTION and ";" not in words else key
    return words + (f" ({unit})" if unit else "")


def name_of(values: Mapping[str, Any]) -> str:
    """Values of keys for a legend: words alone, numbers with what they are of: ``ranks 4, link 25 GB/s``."""
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
    """A value of a key: numbers as one writes them, lists with commas."""
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    if isinstance(value, list | tuple):
        return ",".join(map(value_words, value))
    return f"{value:g}" if isinstance(value, float) and abs(value) < 1e15 else str(value)
