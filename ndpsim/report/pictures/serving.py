"""Pictures of serving: a run over time with the distributions of latencies, and several rates of arrivals."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ndpsim.base.reported import with_unit
from ndpsim.base.units import Scale
from ndpsim.report.metrics import metric_label, scale_of
from ndpsim.report.panels import DEFAULT_SIZE
from ndpsim.report.pictures.canvas import COLOURS, INK, Panel, Panels, compose
from ndpsim.report.pictures.expert import time_axis
from ndpsim.report.pictures.points import logarithmic
from ndpsim.report.serving import rates_notes, serving_title
from ndpsim.report.words import counted
from ndpsim.simulate.results.serving import ServingResult

#: By panel: its lines of text, vertical axis, and the colours and words of lines by names in `over_time`.
_OVER_TIME = {
    "sequences": (5, "sequences", {"running": ("decode", "running"), "queue": ("exposed", "waiting")}),
    "tokens": (4, "tokens", {"tokens_per_step": ("prefill", "tokens of a step")}),
    "blocks": (4, "KV blocks", {"kv_blocks": ("read", "blocks in use")}),
}
_LATENCIES = {
    "ttft_ns": (COLOURS["prefill"], "to the first token"),
    "tpot_ns": (COLOURS["decode"], "per output token"),
    "latency_ns": (INK, "to the last token"),
}
_MARKED = {"p50": "o-", "p90": "s--", "p99": "^:"}
_WIDE = 30  # An axis whose largest value exceeds the smallest by this factor is logarithmic.
_OF = (ServingResult,)


def _over_time(axes: Axes, result: ServingResult, panel: str) -> None:
    """Draw means over parts of the time; and the capacity of the KV cache if it is not far above its use."""
    _, label, lines = _OVER_TIME[panel]
    unit_ns = time_axis(axes, result.time_ns)
    times = np.array(result.over_time["time_ns"]) - result.per_request[0].arrival_ns
    for name, (colour, words) in lines.items():
        axes.plot(times / unit_ns, result.over_time[name], color=COLOURS[colour], label=words)
    blocks = result.config["engines"] * result.config["kv_blocks"]
    if panel == "blocks" and blocks < 2 * result.most_kv_blocks:
        axes.axhline(blocks, color=INK, linestyle=":", label="all blocks")
    axes.set(ylabel=label, ylim=(0, None))


def _spread(axes: Axes, result: ServingResult) -> None:
    """Draw the share of requests within each time."""
    level = result.config["slo"] or {}
    scale = scale_of("time_ns", [result.latency_ns["p50"]])
    for name, (colour, words) in _LATENCIES.items():
        values = [getattr(request, name) for request in result.per_request]
        known = np.sort([value for value in values if value is not None]) / scale.divisor
        if len(known):
            shares = 100 * np.arange(1, len(known) + 1) / len(known)
            axes.step(known, shares, where="post", color=colour, label=words)
        if level.get(name):
            axes.axvline(level[name] / scale.divisor, color=colour, linestyle=":", label=f"limit {words}")
    axes.set(xlabel=metric_label("time_ns", scale), ylabel="requests (%)", ylim=(0, 100))
    logarithmic(axes, "x")


def serving_figure(result: ServingResult, size: str = DEFAULT_SIZE, panels: Panels = None) -> Figure:
    """Sequences, tokens and blocks over time, and the distributions of latencies.

    Args:
        result: of `run_serving`.
        size, panels: see `panels.SIZES` and `panels.PANELS`.

    Raises:
        InputError: there is no such size or panel.
    """

    def over_time(panel: str) -> Panel:
        return Panel(lambda axes: _over_time(axes, result, panel), _OVER_TIME[panel][0], True, "time")

    spread = {"latencies": Panel(lambda axes: _spread(axes, result), 8, stretches=True)}
    served = with_unit("tokens_per_s", result.tokens_per_s)
    title = f"Serving {serving_title(result)}\n{counted(result.requests, 'request')}, {served}"
    return compose(title, ({name: over_time(name) for name in _OVER_TIME}, spread), size, panels, "serve")


# ---- several rates ----


def _latency(axes: Axes, results: Sequence[ServingResult], name: str) -> None:
    """Percentiles of a latency over the rate of arrivals, and its limit."""
    found = [
        (run.offered_per_s or 0.0, percentiles) for run in results if (percentiles := getattr(run, name))
    ]
    level = (results[0].config["slo"] or {}).get(name)
    values = [percentiles[part] for _, percentiles in found for part in _MARKED]
    scale = scale_of(name, values, _OF)
    for part, line in _MARKED.items():
        ns = [percentiles[part] / scale.divisor for _, percentiles in found]
        axes.plot([rate for rate, _ in found], ns, line, color=_LATENCIES[name][0], label=part)
    if level:
        axes.axhline(level / scale.divisor, color=INK, linestyle="-.", label="service level")
    axes.set_ylabel(metric_label(name, scale, results=_OF))
    _spread_axis(axes, "y", [*values, *([level] if level else [])])
    _across(axes, results)


def _throughput(axes: Axes, results: Sequence[ServingResult]) -> None:
    """The rates of requests that arrive, are served, and are within the service level."""
    rates = [run.offered_per_s or 0.0 for run in results]
    lines = {"requests_per_s": (COLOURS["read"], "o-"), "goodput_per_s": (COLOURS["compute"], "s--")}
    axes.plot(rates, rates, color=INK, linestyle=":", label="all that arrive")
    for name, (colour, line) in lines.items():
        values = [getattr(run, name) for run in results]
        if None not in values:
            axes.plot(rates, values, line, color=colour, label=metric_label(name, results=_OF))
    axes.set(ylabel="requests (1/s)", ylim=(0, None))
    _across(axes, results)


def _across(axes: Axes, results: Sequence[ServingResult]) -> None:
    axes.set_xlabel(metric_label("offered_per_s", Scale("1/s"), results=_OF))
    _spread_axis(axes, "x", [run.offered_per_s or 0.0 for run in results])


def _spread_axis(axes: Axes, which: str, values: Sequence[float]) -> None:
    """Make an axis logarithmic if its values are far apart; otherwise it begins at 0."""
    if max(values) > _WIDE * min(values) > 0:
        logarithmic(axes, which)
    else:
        axes.set(**{f"{which}lim": (0, None)})


def rates_figure(results: Sequence[ServingResult], size: str = DEFAULT_SIZE, panels: Panels = None) -> Figure:
    """Latencies and throughput over the rate of arrivals.

    Args:
        results: results of `run_serving` at different rates.
    """
    over_rate = {"ttft": Panel(lambda axes: _latency(axes, results, "ttft_ns"), 8, stretches=True)}
    if any(run.tpot_ns for run in results):
        over_rate["tpot"] = Panel(lambda axes: _latency(axes, results, "tpot_ns"), 8, stretches=True)
    throughput = {"throughput": Panel(lambda axes: _throughput(axes, results), 7, stretches=True)}
    requests, *growing = rates_notes(results)
    title = "\n".join((f"Serving {serving_title(results[0])}", requests.partition(";")[0], *growing))
    return compose(title, (over_rate, throughput), size, panels, "rates")
