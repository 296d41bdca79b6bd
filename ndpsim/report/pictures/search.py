"""Pictures of searches: the best value after each run."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ndpsim.report.metrics import metric_label, scale_of
from ndpsim.report.panels import DEFAULT_SIZE, chosen_size
from ndpsim.report.pictures.canvas import Panel, compose
from ndpsim.report.pictures.colours import INK, SERIES, tint
from ndpsim.report.pictures.points import plain_ticks
from ndpsim.report.sweep_plot import Row

_LINES = 16


def approach_figure(
    title: str,
    metric: str,
    results: Sequence[type],
    feasible: Sequence[Row],
    approach: Sequence[Row],
    size: str = DEFAULT_SIZE,
) -> Figure:
    """Every feasible run, and the best value after each run, of one objective.

    Args:
        title: title of the picture.
        metric: the objective.
        results: classes of results that may have the metric.
        feasible: rows of feasible runs, with their number `run`.
        approach: the rows that were better than all before.
        size: see `panels.SIZES`.

    Raises:
        InputError: there is no such size.
    """
    chosen_size(size)
    scale = scale_of(metric, [row[metric] for row in feasible], results)

    def draw(axes: Axes) -> None:
        runs = [row["run"] for row in feasible]
        axes.plot(
            runs,
            [row[metric] / scale.divisor for row in feasible],
            "o",
            color=tint(SERIES[0], 0.45),
            label="feasible points",
        )
        best = [row[metric] / scale.divisor for row in approach]
        axes.plot(
            [*(row["run"] for row in approach), runs[-1]],
            [*best, best[-1]],
            color=INK,
            drawstyle="steps-post",
            label="best so far",
        )
        axes.set(xlabel="run", ylabel=metric_label(metric, scale, results=results))
        for which in "xy":
            plain_ticks(axes, which)

    return compose(title, ({"approach": [Panel(draw, _LINES, stretches=True)]},), size)
