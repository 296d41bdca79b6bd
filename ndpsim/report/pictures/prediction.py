"""A picture of a prediction: where the time of both phases goes, and what upgrades would give."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ndpsim.report.panels import DEFAULT_SIZE, chosen_panels
from ndpsim.report.pictures.canvas import Panel, compose, save
from ndpsim.report.pictures.colours import COLOURS, INK
from ndpsim.report.prediction import rate_words
from ndpsim.results.prediction import PhasePrediction, Prediction
from ndpsim.units import format_time

_COLOURS = {
    "attention and dense parts": "gpu",
    "shared experts": "hidden",
    "experts on the GPU": "experts",
    "experts on the CPU": "host",
    "experts on the CPU: computing": "host",
    "experts on the CPU: reading weights": "read",
    "experts on NDP units": "compute",
    "experts' copies to the GPU": "pcie",
    "activations over the link": "link",
    "hand-over between GPU and CPU": "idle",
}
_LEAST = 0.001  # of the time, that is drawn
_BAR_LINES = 2.0


def _draw_parts(axes: Axes, phase: PhasePrediction, name: str, what: str) -> None:
    left = 0.0
    for part, ns in phase.parts_ns.items():
        share = 100 * ns / phase.time_ns
        if share < 100 * _LEAST:
            continue
        colour = COLOURS[_COLOURS.get(part, "everything")]
        label = f"{part} {share:.1f}% ({format_time(ns)})"
        axes.barh(0, share, left=left, color=colour, height=1, label=label, edgecolor="white")
        left += share
    axes.set(yticks=[], xlim=(0, 100), ylim=(-0.5, 0.5))
    axes.spines["left"].set_visible(False)
    axes.set_xlabel(f"{name}: {rate_words(phase)}; where the time of a {what} goes (%)")


def _draw_upgrades(axes: Axes, result: Prediction) -> None:
    shown = [one for one in result.upgrades if not one.problem]
    for place, one in enumerate(shown):
        pairs = (("prefill", one.prefill_gain, -0.2), ("decode", one.decode_gain, 0.2))
        for phase, gain, offset in pairs:
            label = phase if place == 0 else None
            axes.barh(place + offset, gain, height=0.36, color=COLOURS[phase], label=label)
            axes.text(gain, place + offset, f" {gain:.2f}x", va="center", color=INK)
    axes.axvline(1, color=INK, linewidth=0.6)
    axes.set_yticks(range(len(shown)), [f"{one.name}:\n{one.change.split(',')[0]}" for one in shown])
    axes.tick_params(axis="y", length=0)
    most = max((max(one.prefill_gain, one.decode_gain) for one in shown), default=1.0)
    axes.set(
        xlabel="tokens/s over the machine as it is", xlim=(0, 1.15 * most), ylim=(len(shown) - 0.5, -0.5)
    )


def prediction_figure(
    result: Prediction, size: str = DEFAULT_SIZE, panels: Sequence[str] | None = None
) -> Figure:
    """Where the time goes, and what upgrades would give.

    Args:
        size, panels: see `panels.SIZES` and `panels.PANELS`.

    Raises:
        InputError: there is no such size or panel.
    """
    chosen = chosen_panels(panels, "predict")
    groups = {
        "prefill": [Panel(lambda axes: _draw_parts(axes, result.prefill, "prefill", "prompt"), _BAR_LINES)],
        "decode": [Panel(lambda axes: _draw_parts(axes, result.decode, "decode", "token"), _BAR_LINES)],
        "upgrades": [],
    }
    possible = sum(not one.problem for one in result.upgrades)
    if possible:
        groups["upgrades"] = [Panel(lambda axes: _draw_upgrades(axes, result), 3.2 * possible)]
    return compose(result.title, (groups,), size, chosen)


def draw_prediction(
    path: str, result: Prediction, size: str = DEFAULT_SIZE, panels: Sequence[str] | None = None
) -> None:
    """`prediction_figure` in a file.

    Raises:
        InputError: there is no such size or panel, or the file name ends in no picture format.
    """
    save(prediction_figure(result, size, panels), path, size)
