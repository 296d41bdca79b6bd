"""Pictures of the authors: figures of papers redrawn with simulated ones, and the speed of `bench`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib import rcParams
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ndpsim.base.units import format_time
from ndpsim.report.panels import DEFAULT_SIZE
from ndpsim.report.pictures.bars import name_rows
from ndpsim.report.pictures.canvas import COLOURS, INK, SERIES, Panel, Panels, compose, save, tint
from ndpsim.report.words import counted

_HEIGHT = 0.36  # height of each of the two bars of a claim


@dataclass(frozen=True)
class ClaimBar:
    """A claim as it is drawn.

    Attributes:
        name: the words for the claim.
        published: both ends of the published interval; equal for a single value.
        ours: the simulated value, if any.
        allowed: the interval of simulated values in which the claim holds.
        holds: whether the claim holds.
        fitted: whether a parameter was fitted to this value.
        reach: the interval of simulated values under other assumptions; None if unknown.
    """

    name: str
    published: tuple[float, float]
    ours: float | None
    allowed: tuple[float, float]
    holds: bool
    fitted: bool = False
    reach: tuple[float, float] | None = None


def draw_claims(
    path: str,
    title: str,
    unit: str,
    bars: Sequence[ClaimBar],
    no_effect: float | None = None,
    size: str = DEFAULT_SIZE,
) -> None:
    """Draw published values, hollow, with the allowed interval, each above the simulated one with its reach.

    Args:
        no_effect: position of a line, 1 for ratios; None: no line.

    Raises:
        InputError: the file name ends in no picture format, or cannot be written.
    """

    def draw(axes: Axes) -> None:
        for y, bar in enumerate(bars):
            _draw_published(axes, y - _HEIGHT / 2, bar)
            _draw_ours(axes, y + _HEIGHT / 2, bar)
        name_rows(axes, [bar.name for bar in bars])
        axes.set_xlabel(unit)
        for x, style in ((0.0, "-"), (no_effect, ":")):
            if x is not None:
                axes.axvline(x, color=INK, linewidth=rcParams["axes.linewidth"], linestyle=style)

    save(compose(title, ({"claims": Panel(draw, 1.0 + 2.6 * len(bars))},), size), path, size)


def _draw_published(axes: Axes, y: float, bar: ClaimBar) -> None:
    low, high = bar.published
    outline: dict[str, Any] = {"height": _HEIGHT, "edgecolor": INK, "linewidth": rcParams["axes.linewidth"]}
    axes.barh(y, high, facecolor="white", label="published", **outline)
    if low < high:
        axes.barh(y, high - low, left=low, facecolor=tint(INK, 0.2), **outline)
    _draw_span(axes, y, bar.allowed, "allowed", (0, (2, 1)))


def _draw_ours(axes: Axes, y: float, bar: ClaimBar) -> None:
    if bar.ours is None:
        axes.text(0, y, " not run", va="center", color=INK)
        return
    label, colour = ("ours, holds", SERIES[0]) if bar.holds else ("ours, off", SERIES[1])
    style: dict[str, Any] = {"color": colour}
    if bar.fitted:
        label += ", fitted"
        style = {"facecolor": tint(colour, 0.4), "edgecolor": colour, "hatch": "////"}
    axes.barh(y, bar.ours, height=_HEIGHT, label=label, **style)
    end = bar.ours if bar.reach is None else max(bar.ours, bar.reach[1])
    if bar.reach is not None and bar.reach[0] < bar.reach[1]:
        _draw_span(axes, y, bar.reach, "ours, other assumptions", "solid")
    axes.text(max(end, 0.0), y, f"  {bar.ours:.3g}", va="center", color=INK)


def _draw_span(axes: Axes, y: float, ends: tuple[float, float], label: str, style: Any) -> None:
    width = rcParams["axes.linewidth"]
    how: Any = {"ecolor": INK, "elinewidth": 1.5 * width, "capsize": 2 * width, "zorder": 3, "label": label}
    middle, reach = (ends[0] + ends[1]) / 2, (ends[1] - ends[0]) / 2
    drawn = axes.errorbar(middle, y, xerr=reach, fmt="none", **how)
    drawn.lines[2][0].set_linestyle(style)


# ---- The picture of a benchmark: the time of each row for a request


def bench_figure(ns: Mapping[str, float], size: str = DEFAULT_SIZE, panels: Panels = None) -> Figure:
    """The time of each row for a request, on a logarithmic axis.

    Args:
        ns: by row, from top to bottom.
    """

    def draw(axes: Axes) -> None:
        names = list(ns)[::-1]
        bars = axes.barh(names, [ns[name] for name in names], color=tint(COLOURS["read"], 0.4))
        axes.bar_label(bars, [format_time(ns[name]) for name in names], padding=2)
        axes.set(xscale="log", xlabel="time for a request (ns)")
        axes.set_xlim(min(ns.values()) / 2, max(ns.values()) * 8)

    title = f"Time of the simulator for a request: {counted(len(ns), 'row')} of ndpsim bench"
    return compose(title, ({"rows": Panel(draw, 2 + 1.6 * len(ns), stretches=True)},), size, panels, "bench")


def growth_figure(
    measured: Mapping[str, tuple[Sequence[int], Sequence[float]]],
    size: str = DEFAULT_SIZE,
    panels: Panels = None,
) -> Figure:
    """Processor time over the size of the work, on logarithmic axes.

    Args:
        measured: by row, sizes and the seconds of each.
    """

    def draw(axes: Axes) -> None:
        for number, (name, (sizes, seconds)) in enumerate(measured.items()):
            style = ("-", "--", ":")[number // len(SERIES) % 3]
            axes.plot(
                sizes, seconds, marker=".", label=name, color=SERIES[number % len(SERIES)], linestyle=style
            )
        axes.set(xscale="log", yscale="log", xlabel="size of the work", ylabel="processor time (s)")

    title = f"Time of the simulator as work grows: {counted(len(measured), 'row')} of ndpsim bench"
    return compose(title, ({"rows": Panel(draw, 24, stretches=True)},), size, panels, "bench")
