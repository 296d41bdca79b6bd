"""Bars of time and energy by part."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from matplotlib.axes import Axes

from ndpsim.base.units import format_energy, format_power, format_time
from ndpsim.report.metrics import metric_label, scale_of
from ndpsim.report.pictures.canvas import Panel
from ndpsim.report.pictures.colours import COLOURS, ENERGY, INK
from ndpsim.report.words import component_words, unknown_components

ROW = 1.25  # lines of text for each horizontal bar
_TIMES = {
    "data": "read",
    "refresh": "refresh",
    "rows": "rows",
    "FIFO full": "compute",
    "nothing to read": "idle",
}
_BAR_LINES = 1.3

Colour: TypeAlias = tuple[float, float, float]


def name_rows(axes: Axes, names: Sequence[str]) -> None:
    """Names beside horizontal bars, the first at the top."""
    axes.set_yticks(range(len(names)), names)
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(names) - 0.5, -0.5)


def draw_bar(axes: Axes, place: float, length: float, words: str, **how: Any) -> None:
    """A horizontal bar, with text after its end."""
    axes.barh(place, length, **{"height": 0.8, **how})
    axes.text(length, place, f" {words}", va="center", color=INK)


def white_edges(axes: Axes) -> dict[str, Any]:
    """Style of bars that touch each other."""
    return {"edgecolor": "white", "linewidth": 0.5 * float(axes.spines["left"].get_linewidth())}


def stack(
    axes: Axes, parts: Mapping[str, tuple[str | Colour, Sequence[float]]], **how: Any
) -> Sequence[float]:
    """Draw horizontal bars of parts, by label their colour and widths; returns the ends of the bars."""
    left: Any = 0.0
    for label, (colour, widths) in parts.items():
        axes.barh(range(len(widths)), widths, left=left, color=colour, height=0.7, label=label, **how)
        left = left + np.array(widths)
    return list(left)


def share_panel(draw: Callable[[Axes], None]) -> list[Panel]:
    """A panel of one bar."""
    return [Panel(draw, _BAR_LINES)]


def energy_panels(energy_nj: Mapping[str, float | None] | None, time_ns: float) -> list[Panel]:
    """The panel of `draw_energy`; empty without known energies."""
    if energy_nj is None:
        return []
    return share_panel(lambda axes: draw_energy(axes, energy_nj, time_ns))


def draw_shares(axes: Axes, parts: Mapping[str, tuple[float, str]], meanings: Mapping[str, str]) -> None:
    """One bar of 100%.

    Args:
        axes: the axes into which it is drawn.
        parts: sizes of the parts, and the text beside the share in the legend.
        meanings: keys of `COLOURS`, by part.
    """
    total, left = sum(size for size, _ in parts.values()), 0.0
    for name, (size, words) in parts.items():
        share = 100 * size / total
        label = f"{name} {share:.1f}% ({words})"
        colour = COLOURS[meanings[name]]
        axes.barh(0, share, left=left, color=colour, height=1, label=label, **white_edges(axes))
        left += share
    axes.set(yticks=[], xlim=(0, 100), ylim=(-0.5, 0.5))
    axes.spines["left"].set_visible(False)


def draw_bus_time(axes: Axes, parts_ns: Mapping[str, float], time_ns: float, bus: str) -> None:
    """The time of a data bus in ns, by its use: "data", "refresh", "rows", "FIFO full".

    The rest of `time_ns` is drawn as "nothing to read". `bus` says in words of which buses this is the mean.
    """
    parts = {**parts_ns, "nothing to read": max(0.0, time_ns - sum(parts_ns.values()))}
    draw_shares(axes, {name: (ns, format_time(ns)) for name, ns in parts.items()}, _TIMES)
    axes.set_xlabel(f"time of {bus} (%)")


def energy_parts(energy_nj: Mapping[str, float | None]) -> dict[str, float]:
    """Energies in nJ of the drawn parts: components above 0, with the NDP units' components as one."""
    parts = dict.fromkeys(ENERGY, 0.0)
    for name, nj in energy_nj.items():
        if name != "total":
            component = "NDP units" if name.startswith("ndp_") else component_words(name)
            parts[component] += nj or 0.0
    return {name: nj for name, nj in parts.items() if nj > 0}


def draw_energy(axes: Axes, energy_nj: Mapping[str, float | None], time_ns: float) -> None:
    """One bar of energies in nJ by component, with the power of each; the NDP units' components are one."""
    parts = energy_parts(energy_nj)
    total = sum(parts.values())
    draw_shares(axes, {name: (nj, format_power(nj / time_ns)) for name, nj in parts.items()}, ENERGY)
    unknown = unknown_components(energy_nj)
    without = f"; not known: {unknown}" if unknown else ""
    axes.set_xlabel(
        f"energy (% of {format_energy(total)}), mean power {format_power(total / time_ns)}{without}"
    )


def compare_energies(axes: Axes, ways: Mapping[str, tuple[Mapping[str, float | None], float]]) -> None:
    """A bar for each of several ways to do the same, from energies in nJ by component and the time in ns."""
    bars = {name: energy_parts(energy_nj) for name, (energy_nj, _) in ways.items()}
    totals = [sum(parts.values()) for parts in bars.values()]
    scale = scale_of("energy_nj", totals)
    drawn = {}
    for component, meaning in ENERGY.items():
        widths = [parts.get(component, 0.0) / scale.divisor for parts in bars.values()]
        if any(widths):
            drawn[component] = COLOURS[meaning], widths
    left = stack(axes, drawn, **white_edges(axes))
    for place, (end, nj, (_, time_ns)) in enumerate(zip(left, totals, ways.values(), strict=True)):
        words = f" {format_energy(nj)}, {format_power(nj / time_ns)}"
        axes.text(end, place, words, va="center", color=INK)
    axes.set(xlabel=metric_label("energy_nj", scale), xlim=(0, max(totals) / scale.divisor))
    name_rows(axes, list(bars))
