"""The picture of serving at several rates: latencies and throughput over the rate of arrivals."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ndpsim.base.units import Scale
from ndpsim.report.metrics import metric_label, scale_of
from ndpsim.report.panels import DEFAULT_SIZE
from ndpsim.report.pictures.canvas import Panel, Panels, compose
from ndpsim.report.pictures.colours import COLOURS, INK
from ndpsim.report.pictures.points import logarithmic
from ndpsim.report.serving import rates_notes, serving_title
from ndpsim.simulate.results.serving import ServingResult

_MARKED = {"p50": "o-", "p90": "s--", "p99": "^:"}
_COLOURS = {"ttft_ns": COLOURS["prefill"], "tpot_ns": COLOURS["decode"]}
_WIDE = 30  # An axis whose largest value exceeds the smallest by this factor is logarithmic.


def _rates(results: Sequence[ServingResult]) -> list[float]:
    return [one.offered_per_s or 0.0 for one in results]


def _latency(axes: Axes, results: Sequence[ServingResult], name: str) -> None:
    """Percentiles of a latency, and its limit."""
    found = [getattr(one, name) for one in results]
    level = (results[0].config["slo"] or {}).get(name)
    values = [of[part] for of in found if of for part in _MARKED]
    scale = scale_of(name, values, (ServingResult,))
    for part, line in _MARKED.items():
        pairs = [(rate, of[part]) for rate, of in zip(_rates(results), found, strict=True) if of]
        rates, ns = zip(*pairs, strict=True)
        axes.plot(rates, [one / scale.divisor for one in ns], line, color=_COLOURS[name], label=part)
    if level:
        axes.axhline(level / scale.divisor, color=INK, linestyle="-.", label="service level")
    axes.set(ylabel=metric_label(name, scale, results=(ServingResult,)))
    _spread(axes, "y", [*values, *([level] if level else [])])
    _across(axes, results)


def _throughput(axes: Axes, results: Sequence[ServingResult]) -> None:
    """The rates of requests that arrive, are served, and are within the service level."""
    rates = _rates(results)
    lines = {"requests_per_s": (COLOURS["read"], "o-"), "goodput_per_s": (COLOURS["compute"], "s--")}
    axes.plot(rates, rates, color=INK, linestyle=":", label="all that arrive")
    for name, (colour, line) in lines.items():
        values = [getattr(one, name) for one in results]
        if None not in values:
            axes.plot(rates, values, line, color=colour, label=metric_label(name, results=(ServingResult,)))
    axes.set(ylabel="requests (1/s)", ylim=(0, None))
    _across(axes, results)


def _across(axes: Axes, results: Sequence[ServingResult]) -> None:
    axes.set(xlabel=metric_label("offered_per_s", Scale("1/s"), results=(ServingResult,)))
    _spread(axes, "x", _rates(results))


def _spread(axes: Axes, which: str, values: Sequence[float]) -> None:
    """Make an axis logarithmic if its values are far apart; otherwise it begins at 0."""
    if max(values) > _WIDE * min(values) > 0:
        logarithmic(axes, which)
    elif which == "x":
        axes.set_xlim(0, None)
    else:
        axes.set_ylim(0, None)


def rates_figure(results: Sequence[ServingResult], size: str = DEFAULT_SIZE, panels: Panels = None) -> Figure:
    """Latencies and throughput over the rate of arrivals.

    Args:
        results: results of `run_serving` at different rates.
    """
    latencies = {"ttft": "ttft_ns"} | ({"tpot": "tpot_ns"} if any(one.tpot_ns for one in results) else {})
    over_rate = {
        panel: [Panel(partial(_latency, results=results, name=name), 8, stretches=True)]
        for panel, name in latencies.items()
    }
    throughput = {"throughput": [Panel(partial(_throughput, results=results), 7, stretches=True)]}
    requests, *growing = rates_notes(results)
    title = "\n".join((f"Serving {serving_title(results[0])}", requests.partition(";")[0], *growing))
    return compose(title, (over_rate, throughput), size, panels, "rates")
