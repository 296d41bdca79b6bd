"""A picture of a prediction: the parts of the time of both phases, and the gains of upgrades."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ndpsim.base.reported import with_unit
from ndpsim.base.units import TIMES, Scale, times
from ndpsim.report.metrics import metric_label
from ndpsim.report.panels import DEFAULT_SIZE
from ndpsim.report.pictures.bars import draw_bar, draw_shares, name_rows
from ndpsim.report.pictures.canvas import Panel, Panels, compose
from ndpsim.report.pictures.colours import COLOURS, INK
from ndpsim.report.prediction import parts_shown, rate_words
from ndpsim.simulate.results.prediction import PhasePrediction, Prediction

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
_BAR_LINES = 2.0


def _draw_parts(axes: Axes, phase: PhasePrediction, name: str, what: str) -> None:
    parts = {
        part: (ns, with_unit("parts_ns", ns, PhasePrediction)) for part, ns in parts_shown(phase).items()
    }
    draw_shares(axes, parts, {part: _COLOURS.get(part, "everything") for part in parts})
    time = metric_label("time_ns", Scale("%"), results=(PhasePrediction,))
    axes.set_xlabel(f"{name}, {rate_words(phase)}: {time} of a {what}")


def _draw_upgrades(axes: Axes, result: Prediction) -> None:
    shown = [one for one in result.upgrades if not one.problem]
    for place, one in enumerate(shown):
        pairs = (("prefill", one.prefill_gain, -0.2), ("decode", one.decode_gain, 0.2))
        for phase, gain, offset in pairs:
            how = {"color": COLOURS[phase], "label": phase if place == 0 else None, "height": 0.36}
            draw_bar(axes, place + offset, gain, times(gain), **how)
    axes.axvline(1, color=INK, linewidth=0.6)
    name_rows(axes, [f"{one.name}:\n{one.change.split(',')[0]}" for one in shown])
    most = max((max(one.prefill_gain, one.decode_gain) for one in shown), default=1.0)
    axes.set(xlabel=metric_label("speedup", Scale(TIMES), "the machine as it is"), xlim=(0, most))


def prediction_figure(result: Prediction, size: str = DEFAULT_SIZE, panels: Panels = None) -> Figure:
    """The parts of the time, and the gains of upgrades."""
    groups = {
        "prefill": [Panel(lambda axes: _draw_parts(axes, result.prefill, "prefill", "prompt"), _BAR_LINES)],
        "decode": [Panel(lambda axes: _draw_parts(axes, result.decode, "decode", "token"), _BAR_LINES)],
        "upgrades": [],
    }
    possible = sum(not one.problem for one in result.upgrades)
    if possible:
        groups["upgrades"] = [Panel(lambda axes: _draw_upgrades(axes, result), 3.2 * possible)]
    return compose(f"Prediction for {result.title}", (groups,), size, panels, "predict")
