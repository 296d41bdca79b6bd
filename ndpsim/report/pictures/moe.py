"""Pictures of runs of a whole model: policies side by side, time by layer, and one layer's jobs."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
from matplotlib import rcParams
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ndpsim.base.units import TIMES, Scale, format_time, times
from ndpsim.inference.layers.record import JobRecord, LayerRecord, MovingRecord
from ndpsim.report.metrics import metric_label, scale_of
from ndpsim.report.moe import moe_title, run_names
from ndpsim.report.moe_history import History, RunHistory
from ndpsim.report.panels import DEFAULT_SIZE, chosen_size
from ndpsim.report.pictures.bars import ROW, Colour, name_rows, stack, white_edges
from ndpsim.report.pictures.canvas import Panel, Panels, compose
from ndpsim.report.pictures.colours import COLOURS, INK, tint
from ndpsim.report.pictures.points import logarithmic
from ndpsim.report.routing import trace_title
from ndpsim.simulate.results import MoeResult, PolicyRun

_LIGHT = 0.4
_DIMM_LABELS = 4
_EDGED = 0.004  # share of the axes: an edge would hide narrower bars
_COMPARABLE = 4  # above this ratio of times, layers have a logarithmic scale, and jobs one each
_BEHIND = 2.2  # width of the line of a layer's time, which that of an always busy resource covers

#: Colour, line and name of each group of resources.
_GROUPS = {
    "gpu": ("gpu", "-", "GPU"),
    "cpu": ("host", "--", "CPU"),
    "ndp": ("compute", "-.", "NDP (busiest DIMM)"),
    "pcie-down": ("pcie", ":", "PCIe to the GPU"),
}
_ENGINES: dict[str, tuple[str, str | Colour]] = {
    "gpu_hit": ("GPU, in its memory", COLOURS["gpu"]),
    "gpu_miss": ("GPU, copied", tint(COLOURS["gpu"], _LIGHT)),
    "cpu": ("CPU", COLOURS["host"]),
    "ndp": ("NDP", COLOURS["compute"]),
}
_ROWS = {
    "gpu": "GPU",
    "pcie-down": "PCIe to GPU",
    "pcie-up": "PCIe from GPU",
    "cpu": "CPU",
    "links": "DIMM links",
}
#: Words of the legend for jobs, which have the colours of their resources.
_KINDS = {
    "routed experts": INK,
    "lighter: other work": tint(INK, _LIGHT),
    "migrations": COLOURS["exposed"],
}
_COLOUR_OF = {"gpu": "gpu", "pcie-down": "pcie", "pcie-up": "pcie", "cpu": "host", "ndp": "compute"}


def _speedups(axes: Axes, runs: Mapping[str, PolicyRun]) -> None:
    """The speedup of each policy over the first, of everything and of the experts alone."""
    speedups = [run.speedup for run in runs.values()]
    axes.barh(range(len(runs)), speedups, color=COLOURS["everything"], height=0.7, label="everything")
    for place, run in enumerate(runs.values()):
        label = "experts alone" if place == 0 else None
        experts = (run.speedup_moe, run.speedup_moe)
        axes.plot(experts, (place - 0.42, place + 0.42), color=COLOURS["experts"], label=label)
        words = f" {times(run.speedup)}, experts {times(run.speedup_moe)}"
        axes.text(max(run.speedup, run.speedup_moe), place, words, va="center", color=INK)
    name_rows(axes, list(runs))
    most = max(max(run.speedup, run.speedup_moe) for run in runs.values())
    axes.set(xlim=(0, 1.005 * most or 1), xlabel=metric_label("speedup", Scale(TIMES), next(iter(runs))))


def _layers(axes: Axes, run: RunHistory, name: str, first: bool, limits_ns: tuple[float, float]) -> None:
    """Mean times, on the same scale for each policy; a logarithmic one begins above 0."""
    ticks, means, scale = range(len(run.layers)), run.means_ns(), scale_of("time_ns", limits_ns)
    wide = _BEHIND * float(rcParams["lines.linewidth"])
    lines = {"layer": (INK, "-", "experts of the layer", wide)} | {
        group: (COLOURS[meaning], line, f"{label} busy", wide / _BEHIND)
        for group, (meaning, line, label) in _GROUPS.items()
    }
    for group, (colour, line, label, width) in lines.items():
        how: Any = {"color": colour, "linestyle": line, "linewidth": width, "where": "mid"}
        axes.step(ticks, means[group] / scale.divisor, label=label if first else None, **how)
    few = range(0, len(run.layers), max(1, -(-len(run.layers) // 12)))
    axes.set_xticks(list(few), [str(run.layers[place]) for place in few])
    axes.set(xlim=(-0.5, len(run.layers) - 0.5), ylim=[ns / scale.divisor for ns in limits_ns])
    if limits_ns[0]:
        logarithmic(axes, "y")
    mean = "mean of steps" if run.phase == "decode" else "prefill"
    label = metric_label("time_ns", scale)
    axes.set(xlabel=f"layer of the model, {mean}", ylabel=f"{_in_lines(name)}\n{label}" if name else label)


def _engines(axes: Axes, runs: Mapping[str, PolicyRun]) -> None:
    """The number of pairs of a token and an expert that each engine computed."""
    parts = {
        label: (colour, [100 * run.pairs_by_engine.get(engine, 0) / run.pairs for run in runs.values()])
        for engine, (label, colour) in _ENGINES.items()
    }
    stack(axes, parts, **white_edges(axes))
    name_rows(axes, list(runs))
    axes.set(xlim=(0, 100), xlabel=metric_label("pairs_by_engine", Scale("%"), results=(PolicyRun,)))


def _migrations(axes: Axes, sums: Mapping[str, Mapping[str, float]]) -> None:
    """The times of migrations in windows, where they cost nothing, and beside experts."""
    totals = [of["hidden_ns"] + of["exposed_ns"] for of in sums.values()]
    scale = scale_of("time_ns", totals)
    parts = {
        part: (COLOURS[part], [of[f"{part}_ns"] / scale.divisor for of in sums.values()])
        for part in ("hidden", "exposed")
    }
    left = stack(axes, parts)
    for place, (end, ns, of) in enumerate(zip(left, totals, sums.values(), strict=True)):
        axes.text(end, place, f" {of['count']:,.0f} in {format_time(ns)}", va="center", color=INK)
    name_rows(axes, list(sums))
    axes.set(xlim=(0, max(left) or 1), xlabel=f"{metric_label('time_ns', scale)}, all migrations")


# ---- the jobs of a layer ----


def _places(layer: LayerRecord) -> dict[str, tuple[float, float]]:
    """The position and height of each resource's row; many DIMMs share the height of a few."""
    found = {job.resource for job in layer.jobs} | {move.resource for move in layer.moving}
    places = {name: (float(place), 0.8) for place, name in enumerate(n for n in _ROWS if n in found)}
    dimms = sorted((name for name in found if name.startswith("ndp ")), key=lambda name: int(name[4:]))
    high = min(1.0, _DIMM_LABELS / max(1, len(dimms)))
    below = len(places) - 0.1  # room for the label of the first DIMM
    return places | {name: (below + (n + 0.5) * high, 0.8 * high) for n, name in enumerate(dimms)}


def _labels(places: Mapping[str, tuple[float, float]]) -> dict[str, float]:
    """The names beside rows and their positions; of many DIMMs, only some are named."""
    dimms = [name for name in places if name.startswith("ndp ")]
    shown = dimms[:: max(1, -(-len(dimms) // _DIMM_LABELS))]
    engines = {_ROWS[name]: at for name, (at, _) in places.items() if name in _ROWS}
    return engines | {f"DIMM {name[4:]}": places[name][0] for name in shown}


def _jobs(axes: Axes, layer: LayerRecord, name: str, until_ns: float, first: bool) -> None:
    """Jobs of each resource over time; jobs other than experts are lighter."""
    places = _places(layer)
    scale = scale_of("time_ns", [until_ns])
    axes.set_xlim(0, until_ns / scale.divisor)

    def bar(of: JobRecord | MovingRecord, colour: str | tuple[float, float, float]) -> None:
        """Draw the part of a job or migration that is within the layer."""
        at, high = places[of.resource]
        times_ns = np.clip((of.start_ns, of.end_ns), layer.start_ns, layer.end_ns) - layer.start_ns
        start, end = times_ns / scale.divisor
        edged = end - start > _EDGED * axes.get_xlim()[1]
        thin = 0.4 * float(axes.spines["left"].get_linewidth()) if edged else 0.0
        axes.barh(at, end - start, left=start, height=high, color=colour, edgecolor="white", linewidth=thin)

    for job in layer.jobs:
        colour = COLOURS[_COLOUR_OF[job.resource.partition(" ")[0]]]
        bar(job, colour if job.kind in ("expert", "copy") else tint(colour, _LIGHT))
    for move in layer.moving:
        bar(move, COLOURS["exposed"])
    if first:
        for label, meant in _KINDS.items():
            axes.bar(np.nan, 0, color=meant, label=label)
    bottom = max(at + high / 2 for at, high in places.values())
    labels = _labels(places)
    axes.set_yticks(list(labels.values()), list(labels))
    axes.tick_params(axis="y", length=0)
    axes.set(ylim=(bottom + 0.1, -0.6), xlim=(0, until_ns / scale.divisor), ylabel=_in_lines(name))
    where = f"step {layer.step}" if layer.phase == "decode" else "prefill"
    axes.set_xlabel(f"{metric_label('time_ns', scale)}, since the gate of layer {layer.layer}, {where}")


def _in_lines(name: str) -> str:
    """A policy's name beside its axes, in short lines."""
    return re.sub(r"(?<=[-:,])", "\n", name)


def _job_panels(shown: Mapping[str, LayerRecord], several: bool) -> list[Panel]:
    times_ns = {name: layer.end_ns - layer.start_ns for name, layer in shown.items()}
    most_ns = max(times_ns.values(), default=0.0)
    comparable = all(most_ns <= _COMPARABLE * ns for ns in times_ns.values())

    return [
        Panel(
            partial(
                _jobs,
                layer=layer,
                name=name if several else "",
                until_ns=most_ns if comparable else times_ns[name],
                first=place == 0,
            ),
            1.1 * (len(_labels(_places(layer))) + 2),
            stretches=True,
            axis="time since the gate" if comparable else "",
        )
        for place, (name, layer) in enumerate(shown.items())
    ]


def _layer_panels(runs: Mapping[str, RunHistory], several: bool) -> list[Panel]:
    longest_ns = [max(float(max(ns)) for ns in run.means_ns().values()) for run in runs.values()]
    most, least = max(longest_ns), min(longest_ns)
    limits_ns = (0.0, 1.05 * most or 1.0) if most <= _COMPARABLE * least else (0.1 * least, 1.5 * most)

    draw = partial(_layers, limits_ns=limits_ns)
    return [
        Panel(
            partial(draw, run=run, name=name if several else "", first=place == 0),
            5,
            stretches=True,
            axis="layer",
        )
        for place, (name, run) in enumerate(runs.items())
    ]


def moe_figure(
    result: MoeResult, history: History, size: str = DEFAULT_SIZE, panels: Panels = None
) -> Figure:
    """Speed-ups, time by layer and resource, engines, migrations, and the jobs of one layer.

    If the size has a height, time by layer and jobs are only of the first policy.

    Args:
        result: of `run_moe`.
        history: the observer of the run.
        size, panels: see `panels.SIZES` and `panels.PANELS`.

    Raises:
        InputError: there is no such size or panel, or the panels would be empty.
    """
    names = run_names(result.runs)
    runs = dict(zip(names, result.runs, strict=True))
    most = len(names) if chosen_size(size).height_in is None else 1
    histories = dict(itertools.islice(zip(names, history.runs, strict=True), most))
    shown = {name: of.shown for name, of in histories.items() if of.shown is not None}
    several = len(runs) > 1
    sums = {
        f"{name}: {kind}" if several else kind: of
        for name, run in runs.items()
        for kind, of in run.migrations.items()
        if of["hidden_ns"] + of["exposed_ns"] > 0
    }
    speedups = [Panel(lambda axes: _speedups(axes, runs), ROW * len(runs))] if several else []
    by_layer = {
        "speedup": speedups,
        "layers": _layer_panels(histories, several),
        "engines": [Panel(lambda axes: _engines(axes, runs), ROW * len(runs))],
    }
    moved = {
        "migrations": [Panel(lambda axes: _migrations(axes, sums), ROW * len(sums))] if sums else [],
        "jobs": _job_panels(shown, several),
    }
    policies = f"policies {', '.join(names)}" if several else f"policy {names[0]}"
    routed = trace_title(result.routing["trace"])
    title = f"Inference with {moe_title(result)}, {policies}\nrouting: {routed}"
    return compose(title, (by_layer, moved), size, panels, "moe")
