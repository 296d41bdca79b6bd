"""Bars of time and energy by part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from matplotlib import rcParams
from matplotlib.axes import Axes

from ndpsim.base.units import format_energy, format_power, format_time
from ndpsim.report.metrics import metric_label, scale_of
from ndpsim.report.pictures.canvas import CHARACTER, COLOURS, ENERGY, INK, Panel, filled
from ndpsim.report.words import component_words, unknown_components

_ROW, _SHARES = 1.25, 1.3  # lines of text for each horizontal bar, and for one of shares
_NAMES = 0.42  # most of a picture's width for the names of rows, where a row has room for several lines
_TIMES = {
    "data": "read",
    "refresh": "refresh",
    "rows": "rows",
    "FIFO full": "compute",
    "nothing to read": "idle",
}

#: Colour of the bars, or of each; their lengths; and texts after their ends.
Bars: TypeAlias = tuple[Any, Sequence[float], Sequence[str]]
#: Energy in nJ of each component, and the time in ns, of a way to do something; None: not known.
Ways: TypeAlias = Mapping[str, tuple[Mapping[str, float | None] | None, float]]


def name_rows(axes: Axes, names: Sequence[str], lines: float = 1.0) -> None:
    """Names beside bars, the first at the top; long ones are broken if a row has `lines` enough."""
    if lines >= 2:
        figure = axes.get_figure(root=True)
        assert figure is not None
        room = _NAMES * 72 * figure.get_figwidth() / (CHARACTER * rcParams["font.size"])
        names = [filled(name, int(room)) for name in names]
    axes.set_yticks(range(len(names)), names)
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(names) - 0.5, -0.5)


def white_edges() -> dict[str, Any]:
    """Style of bars that touch each other."""
    return {"edgecolor": "white", "linewidth": 0.5 * rcParams["axes.linewidth"]}


def row_panel(
    names: Sequence[str],
    parts: Mapping[str, Bars],
    label: str,
    most: float | None = None,
    mark: tuple[str, str, str, Sequence[float]] | None = None,
    beside: bool = False,
    lines: float = _ROW,
    **how: Any,
) -> Panel:
    """Horizontal bars of parts in rows.

    Args:
        names: names of the rows.
        parts: the bars of each part, by its name in the legend; "" has none.
        label: label of the axis.
        most: end of the axis; None: that of the longest bar.
        mark: name in the legend, colour, line style and positions of a mark in each row.
        beside: whether the parts of a row are below each other; else each begins at the end of the last one.
        lines: height of a row, in lines of text.
        how: further style of the bars.
    """
    share = len(parts) if beside else 1
    style = {**white_edges(), **how}

    def draw(axes: Axes) -> None:
        ends, longest = np.zeros(len(names)), 0.0
        for number, (part, (colour, lengths, words)) in enumerate(parts.items()):
            places = np.arange(len(names)) + (number - (share - 1) / 2) * 0.8 / share * beside
            left = 0.0 if beside else ends
            axes.barh(places, lengths, 0.8 / share, left, color=colour, label=part or None, **style)
            ends = left + np.array(lengths)
            reached = np.maximum(ends, mark[3]) if mark else ends
            longest = max(longest, *reached)
            for y, end, text in zip(places, reached, words, strict=False):
                axes.text(end, y, f" {text}", va="center", color=INK)
        for y, position in enumerate(mark[3] if mark else ()):
            name, colour, line, _ = mark or ("", "", "", ())
            axes.plot((position, position), (y - 0.42, y + 0.42), line, color=colour, label=name)
        name_rows(axes, names, lines)
        axes.set(xlabel=label, xlim=(0, most or longest or 1))

    return Panel(draw, lines * len(names))


def share_panel(
    parts: Mapping[str, tuple[float, str]], meanings: Mapping[str, str], label: str, lines: float = _SHARES
) -> Panel:
    """One bar of 100%.

    Args:
        parts: sizes of the parts, and the text beside the share in the legend.
        meanings: keys of `COLOURS`, by part.
        label: label of the axis.
        lines: height of the bar, in lines of text.
    """
    total = sum(size for size, _ in parts.values())

    def draw(axes: Axes) -> None:
        left = 0.0
        for name, (size, words) in parts.items():
            share, how = 100 * size / total, {"color": COLOURS[meanings[name]], **white_edges()}
            axes.barh(0, share, 1, left, label=f"{name} {share:.1f}% ({words})", **how)
            left += share
        axes.set(yticks=[], xlim=(0, 100), ylim=(-0.5, 0.5), xlabel=label)
        axes.spines["left"].set_visible(False)

    return Panel(draw, lines)


def bus_panel(parts_ns: Mapping[str, float], time_ns: float, bus: str) -> Panel:
    """The time of a data bus in ns, by its use: "data", "refresh", "rows", "FIFO full".

    The rest of `time_ns` is drawn as "nothing to read". `bus`: words for the buses whose mean it is.
    """
    parts = {**parts_ns, "nothing to read": max(0.0, time_ns - sum(parts_ns.values()))}
    said = {name: (ns, format_time(ns)) for name, ns in parts.items()}
    return share_panel(said, _TIMES, f"time of {bus} (%)")


def energy_parts(energy_nj: Mapping[str, float | None]) -> dict[str, float]:
    """Energies in nJ of the drawn parts: components above 0, with the NDP units' components as one."""
    parts = dict.fromkeys(ENERGY, 0.0)
    for name, nj in energy_nj.items():
        if name != "total":
            component = "NDP units" if name.startswith("ndp_") else component_words(name)
            parts[component] += nj or 0.0
    return {name: nj for name, nj in parts.items() if nj > 0}


def energy_panel(energy_nj: Mapping[str, float | None] | None, time_ns: float) -> Panel | None:
    """One bar of energies in nJ by component, with the power of each; None without known energies."""
    if energy_nj is None:
        return None
    parts = energy_parts(energy_nj)
    total, unknown = sum(parts.values()), unknown_components(energy_nj)
    without = f"; not known: {unknown}" if unknown else ""
    label = f"energy (% of {format_energy(total)}), mean power {format_power(total / time_ns)}{without}"
    said = {name: (nj, format_power(nj / time_ns)) for name, nj in parts.items()}
    return share_panel(said, ENERGY, label)


def compare_energies(ways: Ways) -> Panel | None:
    """A bar of energies by component for each way; None without known energies."""
    bars = {way: energy_parts(energy_nj) for way, (energy_nj, _) in ways.items() if energy_nj is not None}
    totals = {way: sum(parts.values()) for way, parts in bars.items()}
    if not bars:
        return None
    scale = scale_of("energy_nj", totals.values())
    drawn: dict[str, Bars] = {
        component: (COLOURS[meaning], [way.get(component, 0.0) / scale.divisor for way in bars.values()], ())
        for component, meaning in ENERGY.items()
        if any(component in way for way in bars.values())
    }
    words = [f"{format_energy(nj)}, {format_power(nj / ways[way][1])}" for way, nj in totals.items()]
    last = list(drawn)[-1]
    drawn[last] = (*drawn[last][:2], words)
    return row_panel(list(bars), drawn, metric_label("energy_nj", scale))
