"""Pictures of serving: a run over time, and the distributions of latencies."""

from __future__ import annotations

from functools import partial

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ndpsim.base.reported import with_unit
from ndpsim.report.metrics import metric_label, scale_of
from ndpsim.report.panels import DEFAULT_SIZE
from ndpsim.report.pictures.canvas import Panel, Panels, compose
from ndpsim.report.pictures.colours import COLOURS, INK
from ndpsim.report.pictures.points import logarithmic
from ndpsim.report.serving import serving_title
from ndpsim.report.words import counted
from ndpsim.simulate.results.serving import ServingResult

#: By panel: the vertical axis, and the colours and words of lines by their names in `over_time`.
_OVER_TIME = {
    "sequences": ("sequences", {"running": ("decode", "running"), "queue": ("exposed", "waiting")}),
    "tokens": ("tokens", {"tokens_per_step": ("prefill", "tokens of a step")}),
    "blocks": ("KV blocks", {"kv_blocks": ("read", "blocks in use")}),
}
_LATENCIES = {"ttft_ns": COLOURS["prefill"], "tpot_ns": COLOURS["decode"], "latency_ns": INK}
_WORDS = {"ttft_ns": "to the first token", "tpot_ns": "per output token", "latency_ns": "to the last token"}


def _over_time(axes: Axes, result: ServingResult, panel: str) -> None:
    """Draw means over parts of the time; and the capacity of the KV cache if it is not far above its use."""
    label, lines = _OVER_TIME[panel]
    scale = scale_of("time_ns", [result.time_ns])
    times = np.array(result.over_time["time_ns"]) - result.per_request[0].arrival_ns
    for name, (colour, words) in lines.items():
        axes.plot(times / scale.divisor, result.over_time[name], color=COLOURS[colour], label=words)
    blocks = result.config["engines"] * result.config["kv_blocks"]
    if panel == "blocks" and blocks < 2 * result.most_kv_blocks:
        axes.axhline(blocks, color=INK, linestyle=":", label="all blocks")
    axes.set(xlabel=metric_label("time_ns", scale), ylabel=label)
    axes.set(xlim=(0, result.time_ns / scale.divisor), ylim=(0, None))


def _spread(axes: Axes, result: ServingResult) -> None:
    """Draw the share of requests within each time."""
    level = result.config["slo"] or {}
    scale = scale_of("time_ns", [result.latency_ns["p50"]])
    for name, colour in _LATENCIES.items():
        values = [getattr(one, name) for one in result.per_request]
        known = np.sort([value for value in values if value is not None]) / scale.divisor
        if len(known):
            shares = 100 * np.arange(1, len(known) + 1) / len(known)
            axes.step(known, shares, where="post", color=colour, label=_WORDS[name])
        if level.get(name):
            limit = level[name] / scale.divisor
            axes.axvline(limit, color=colour, linestyle=":", label=f"limit {_WORDS[name]}")
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
    draw = partial(_over_time, result=result)
    over_time = {
        panel: [Panel(partial(draw, panel=panel), lines, stretches=True, axis="time")]
        for panel, lines in {"sequences": 5, "tokens": 4, "blocks": 4}.items()
    }
    spread = {"latencies": [Panel(lambda axes: _spread(axes, result), 8, stretches=True)]}
    served = with_unit("tokens_per_s", result.tokens_per_s)
    title = f"Serving {serving_title(result)}\n{counted(result.requests, 'request')}, {served}"
    return compose(title, (over_time, spread), size, panels, "serve")
