"""Pictures of routing."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ndpsim.base.reported import label_of
from ndpsim.base.units import Scale
from ndpsim.report.metrics import metric_label
from ndpsim.report.panels import DEFAULT_SIZE
from ndpsim.report.pictures.bars import name_rows
from ndpsim.report.pictures.canvas import Panel, Panels, compose
from ndpsim.report.pictures.colours import COLOURS, INK, tint
from ndpsim.report.routing import routing_title
from ndpsim.workload.routing import RoutingStatistics
from ndpsim.workload.routing.statistics import PhaseStatistics, Reuse

_PERCENT = Scale("%")
_SELECTIONS = metric_label("shares", _PERCENT, results=(PhaseStatistics,))
_CLASSES = ("hot", "warm", "cold")


def _ranks(axes: Axes, statistics: RoutingStatistics) -> None:
    """The cumulative share of selections of the most popular experts."""
    phases = {"decode": (statistics.decode, "o-"), "prefill": (statistics.prefill, "s--")}
    for name, (phase, style) in phases.items():
        if phase is not None:
            points = [
                (0.0, 0.0),
                *((100 * p.rank_fraction, 100 * p.cumulative_share) for p in phase.rank_curve),
            ]
            axes.plot(
                *zip(*points, strict=True), style, color=COLOURS[name], markerfacecolor="white", label=name
            )
    axes.plot((0, 100), (0, 100), color=INK, linestyle=":", label="if all were equally popular")
    axes.set(xlim=(0, 101), ylim=(0, 104))
    axes.set(xlabel="most popular experts (%)", ylabel=_SELECTIONS)


def _active(axes: Axes, statistics: RoutingStatistics) -> None:
    """The number of distinct experts that a batch chooses, by its size."""
    found, colour = statistics.active_experts, COLOURS["decode"]
    sizes, percent = [one.batch for one in found], 100 / statistics.trace["experts"]
    least, most = (
        [percent * value for value in of] for of in zip(*((a.least, a.most) for a in found), strict=True)
    )
    light = tint(colour, 0.4)
    axes.fill_between(sizes, least, most, color=light, linewidth=0, label="fewest to most")
    means = [percent * one.mean for one in found]
    axes.plot(sizes, means, "o-", color=colour, markerfacecolor="white", label="mean")
    axes.set_xscale("log", base=2)
    axes.set_xticks(sizes, [str(size) for size in sizes])
    axes.minorticks_off()
    axes.set(
        ylim=(0, 104),
        xlabel="tokens of a step",
        ylabel=metric_label("active_experts", _PERCENT, results=(RoutingStatistics,)),
    )


def _layers(axes: Axes, phase: PhaseStatistics) -> None:
    """Shares of selections by class and layer."""
    layers = [one.layer for one in phase.layers]
    bottom = np.zeros(len(layers))
    for name in _CLASSES:
        height = np.array([100 * getattr(one, name) for one in phase.layers])
        axes.bar(layers, height, width=0.8, bottom=bottom, color=COLOURS[name], label=name)
        bottom += height
    axes.set(xlim=(layers[0] - 0.6, layers[-1] + 0.6), ylim=(0, 100))
    axes.set(xlabel="layer of the model", ylabel=_SELECTIONS)


def _reuse(axes: Axes, statistics: RoutingStatistics) -> None:
    """The share of experts that tokens have in common with earlier tokens, and the share by chance."""
    phases = {"token_reuse": "decode", "step_reuse": "decode", "prefill_reuse": "prefill"}
    found = {name: reuse for name in phases if (reuse := getattr(statistics, name)) is not None}
    for place, (name, reuse) in enumerate(found.items()):
        error = 100 * (reuse.reuse.error or 0.0)
        axes.barh(
            place, 100 * reuse.reuse.value, xerr=error, color=COLOURS[phases[name]], ecolor=INK, height=0.6
        )
        label = None if place else label_of("independent", Reuse)
        at = 100 * reuse.independent.value
        axes.plot((at, at), (place - 0.4, place + 0.4), color=INK, linestyle=":", label=label)
    name_rows(axes, [label_of(name, RoutingStatistics) for name in found])
    axes.set(xlim=(0, None), xlabel=metric_label("reuse", _PERCENT, results=(Reuse,)))


def routing_figure(statistics: RoutingStatistics, size: str = DEFAULT_SIZE, panels: Panels = None) -> Figure:
    """Shares by rank and by layer, active experts by batch, and reuse.

    Args:
        statistics: of `describe_routing`.

    Raises:
        InputError: the panels would be empty.
    """
    phase = statistics.decode or statistics.prefill
    assert phase is not None
    reuses = [statistics.token_reuse, statistics.step_reuse, statistics.prefill_reuse]
    count = sum(reuse is not None for reuse in reuses)
    curves = {"ranks": [Panel(lambda axes: _ranks(axes, statistics), 9, stretches=True)]}
    if statistics.active_experts:
        curves["active"] = [Panel(lambda axes: _active(axes, statistics), 9, stretches=True)]
    bars = {"layers": [Panel(lambda axes: _layers(axes, phase), 6, stretches=True)]}
    if count:
        bars["reuse"] = [Panel(lambda axes: _reuse(axes, statistics), 1.6 * count)]
    return compose(f"Routing: {routing_title(statistics)}", (curves, bars), size, panels, "routing")
