"""Figures of papers redrawn: what is published beside ours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes

from ndpsim.report.panels import DEFAULT_SIZE
from ndpsim.report.pictures.canvas import Panel, compose, save
from ndpsim.report.pictures.colours import COLOURS, INK, tint

__all__ = ["ClaimBar", "draw_claims"]

_HEIGHT = 0.36  # of each of the two bars of a claim


@dataclass(frozen=True)
class ClaimBar:
    """A claim as it is drawn.

    Attributes:
        name: in words.
        low, high: what is published, twice the same for a single value.
        ours: what came of it; None: nothing.
        room: how far ours may be beyond the ends, as a share.
        holds: whether it does.
    """

    name: str
    low: float
    high: float
    ours: float | None
    room: float
    holds: bool


def draw_claims(path: str, title: str, unit: str, bars: Sequence[ClaimBar], size: str = DEFAULT_SIZE) -> None:
    """Published values, hollow, and ours below each, with the interval in which ours holds.

    Raises:
        InputError: the file name ends in no picture format, or cannot be written.
    """

    def draw(axes: Axes) -> None:
        for place, bar in enumerate(bars):
            _draw_bar(axes, place, bar)
        axes.set_yticks(range(len(bars)), [bar.name for bar in bars])
        axes.set(ylim=(len(bars) - 0.4, -0.6), xlabel=unit)
        axes.set_xlim(left=0)
        axes.tick_params(axis="y", length=0)

    panel = Panel(draw, 1.0 + 2.1 * len(bars), stretches=False)
    save(compose(title, ({"claims": [panel]},), size, ("claims",)), path, size)


def _draw_bar(axes: Axes, place: int, bar: ClaimBar) -> None:
    first = place == 0
    thin = float(axes.spines["left"].get_linewidth())
    axes.barh(
        place - _HEIGHT / 2,
        bar.high,
        height=_HEIGHT,
        facecolor="white",
        edgecolor=INK,
        linewidth=thin,
        label="published" if first else None,
    )
    if bar.low < bar.high:
        axes.barh(
            place - _HEIGHT / 2,
            bar.high - bar.low,
            left=bar.low,
            height=_HEIGHT,
            facecolor=tint(INK, 0.2),
            edgecolor=INK,
            linewidth=thin,
        )
    middle = (bar.low + bar.high) / 2
    reach = [[middle - bar.low * (1 - bar.room)], [bar.high * (1 + bar.room) - middle]]
    axes.errorbar(
        middle,
        place - _HEIGHT / 2,
        xerr=reach,
        fmt="none",
        ecolor=INK,
        elinewidth=thin,
        capsize=2 * thin,
        label="within tolerance" if first else None,
    )
    if bar.ours is not None:
        colour = COLOURS["compute"] if bar.holds else COLOURS["write"]
        axes.barh(place + _HEIGHT / 2, bar.ours, height=_HEIGHT, color=colour)
        axes.text(bar.ours, place + _HEIGHT / 2, f" {bar.ours:.3g}", va="center", color=INK)
    else:
        axes.text(0, place + _HEIGHT / 2, " not run", va="center", color=INK)
