"""Pictures of serving: a run over time, and the distributions of latencies."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ndpsim.report.metrics import metric_label, scale_of
from ndpsim.report.panels import DEFAULT_SIZE
from ndpsim.report.pictures.canvas import Panel, compose
from ndpsim.report.pictures.colours import COLOURS, INK
from ndpsim.report.pictures.points import logarithmic
from ndpsim.report.serving import serving_title
from ndpsim.report.words import counted
from ndpsim.reported import with_unit
from ndpsim.results.serving import ServingResult

_LATENCIES = {"ttft_ns": COLOURS["prefill"], "tpot_ns": COLOURS["decode"], "latency_ns": INK}
_WORDS = {"ttft_ns": "to the first token", "tpot_ns": "per output token", "latency_ns": "to the last token"}


def _over_time(axes: Axes, result: ServingResult, lines: Sequence[tuple[str, str, str]], label: str) -> None:
    """Draw means over parts of the time; `lines`: names in `over_time`, colours and labels."""
    scale = scale_of("time_ns", [result.time_ns])
    times = np.array(result.over_time["time_ns"])
    times = (times - result.per_request[0].arrival_ns) / scale.divisor
    for name, colour, words in lines:
        axes.plot(times, result.over_time[name], color=colour, label=words)
    axes.set(xlabel=metric_label("time_ns", scale), ylabel=label)
    axes.set(xlim=(0, result.time_ns / scale.divisor), ylim=(0, None))


def _sequences(axes: Axes, result: ServingResult) -> None:
    lines = (("running", COLOURS["decode"], "running"), ("queue", COLOURS["exposed"], "waiting"))
    _over_time(axes, result, lines, "sequences")


def _tokens(axes: Axes, result: ServingResult) -> None:
    _over_time(axes, result, (("tokens_per_step", COLOURS["prefill"], "tokens of a step"),), "tokens")


def _blocks(axes: Axes, result: ServingResult) -> None:
    """Used blocks of the KV cache, and the capacity if it is not far above."""
    _over_time(axes, result, (("kv_blocks", COLOURS["read"], "blocks in use"),), "KV blocks")
    blocks = result.config["engines"] * result.config["kv_blocks"]
    if blocks < 2 * result.most_kv_blocks:
        axes.axhline(blocks, color=INK, linestyle=":", label="all blocks")


def _spread(axes: Axes, result: ServingResult) -> None:
    """Draw the share of requests within each time."""
    level = result.config["slo"] or {}
    scale = scale_of("time_ns", [result.latency_ns["p50"]])
    for name, colour in _LATENCIES.items():
        values = [getattr(one, name) for one in result.per_request]
        known = np.sort([value for value in values if value is not None]) / scale.divisor
        if len(known):
            axes.step(
                known,
                100 * np.arange(1, len(known) + 1) / len(known),
                where="post",
                color=colour,
                label=_WORDS[name],
            )
        if level.get(name):
            axes.axvline(
                level[name] / scale.divisor, color=colour, linestyle=":", label=f"limit {_WORDS[name]}"
            )
    axes.set(xlabel=metric_label("time_ns", scale), ylabel="requests (%)", ylim=(0, 100))
    logarithmic(axes, "x")


def serving_figure(
    result: ServingResult, size: str = DEFAULT_SIZE, panels: Sequence[str] | None = None
) -> Figure:
    """Sequences, tokens and blocks over time, and the distributions of latencies.

    Args:
        result: of `run_serving`.
        size, panels: see `panels.SIZES` and `panels.PANELS`.

    Raises:
        InputError: there is no such size or panel.
    """
    over_time = {
        "sequences": [Panel(lambda axes: _sequences(axes, result), 5, stretches=True, axis="time")],
        "tokens": [Panel(lambda axes: _tokens(axes, result), 4, stretches=True, axis="time")],
        "blocks": [Panel(lambda axes: _blocks(axes, result), 4, stretches=True, axis="time")],
    }
    spread = {"latencies": [Panel(lambda axes: _spread(axes, result), 8, stretches=True)]}
    served = with_unit("tokens_per_s", result.tokens_per_s)
    title = f"Serving {serving_title(result)}\n{counted(result.requests, 'request')}, {served}"
    return compose(title, (over_time, spread), size, panels, "serve")
