"""Pictures of runs of a whole model: policies side by side, time by layer, and one layer's jobs."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ndpsim.orchestrator.record import LayerRecord
from ndpsim.report.moe import moe_title, run_names
from ndpsim.report.moe_history import History, RunHistory
from ndpsim.report.panels import DEFAULT_SIZE, chosen_panels, chosen_size
from ndpsim.report.pictures.canvas import Panel, compose, save
from ndpsim.report.pictures.colours import COLOURS, INK, tint
from ndpsim.report.routing import trace_title
from ndpsim.results import MoeResult, PolicyRun
from ndpsim.units import TIMES, format_time

_ROW = 1.25  # lines for each horizontal bar
_LIGHT = 0.4
_DIMM_LABELS = 4
_EDGED = 0.004  # of the axes: narrower bars have no edge, which would hide them
_COMPARABLE = 4  # jobs of policies that differ by more in time have a time axis each

#: Of a group of resources: its colour, its line, and what it is called.
_GROUPS = {
    "gpu": ("gpu", "-", "GPU"),
    "cpu": ("host", "--", "CPU"),
    "ndp": ("compute", "-.", "NDP (busiest DIMM)"),
    "pcie-down": ("pcie", ":", "PCIe to the GPU"),
}
_ENGINES = {
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
_COLOUR_OF = {"gpu": "gpu", "pcie-down": "pcie", "pcie-up": "pcie", "cpu": "host", "ndp": "compute"}


def _names_at(axes: Axes, names: Sequence[str]) -> None:
    axes.set_yticks(range(len(names)), names)
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(names) - 0.5, -0.5)


def _speedups(axes: Axes, runs: Mapping[str, PolicyRun]) -> None:
    """How much faster each policy is than the first: all of it, and the experts alone."""
    for place, run in enumerate(runs.values()):
        label = place == 0
        everything = "everything" if label else None
        axes.barh(place, run.speedup, color=COLOURS["everything"], height=0.7, label=everything)
        ends = (place - 0.42, place + 0.42)
        both = (run.speedup_moe, run.speedup_moe)
        axes.plot(both, ends, color=COLOURS["experts"], label="experts alone" if label else None)
        words = f" {run.speedup:.2f}{TIMES}, experts {run.speedup_moe:.2f}{TIMES}"
        axes.text(max(run.speedup, run.speedup_moe), place, words, va="center", color=INK)
    _names_at(axes, list(runs))
    most = max(max(run.speedup, run.speedup_moe) for run in runs.values())
    axes.set(xlim=(0, 1.005 * most or 1), xlabel=f"speed-up over {next(iter(runs))}")


def _unit(most_ns: float) -> tuple[str, float]:
    """What times up to `most_ns` are drawn in, and how many ns that is."""
    return ("ms", 1e6) if most_ns >= 2e6 else ("µs", 1e3)


def _layers(axes: Axes, run: RunHistory, name: str, first: bool) -> None:
    """How long each layer's experts take, and how long resources were busy with them: means over steps."""
    times = np.maximum(run.times, 1)
    unit, ns = _unit(float((run.layer_ns / times).max()))
    ticks = range(len(run.layers))
    together = "experts of the layer" if first else None
    axes.step(ticks, run.layer_ns / times / ns, color=INK, where="mid", label=together)
    for group, (meaning, line, label) in _GROUPS.items():
        busy = run.busy_ns[group] / times / ns
        shown = f"{label} busy" if first else None
        axes.step(ticks, busy, color=COLOURS[meaning], linestyle=line, where="mid", label=shown)
    few = range(0, len(run.layers), max(1, -(-len(run.layers) // 12)))
    axes.set_xticks(list(few), [str(run.layers[place]) for place in few])
    axes.set(xlim=(-0.5, len(run.layers) - 0.5), ylim=(0, None))
    mean = "mean of steps" if run.phase == "decode" else "prefill"
    axes.set(
        xlabel=f"layer of the model, {mean}",
        ylabel=f"{_in_lines(name)}\n({unit})" if name else f"time ({unit})",
    )


def _engines(axes: Axes, runs: Mapping[str, PolicyRun]) -> None:
    """Which engine computed how many pairs of a token and an expert."""
    left = np.zeros(len(runs))
    thin = 0.5 * float(axes.spines["left"].get_linewidth())
    for engine, (label, colour) in _ENGINES.items():
        width = np.array([100 * run.pairs_by_engine.get(engine, 0) / run.pairs for run in runs.values()])
        axes.barh(
            range(len(runs)),
            width,
            left=left,
            color=colour,
            height=0.7,
            label=label,
            edgecolor="white",
            linewidth=thin,
        )
        left += width
    _names_at(axes, list(runs))
    axes.set(xlim=(0, 100), xlabel="pairs of a token and an expert (%)")


def _migrations(axes: Axes, sums: Mapping[str, Mapping[str, float]]) -> None:
    """How long migrations ran in windows, where they cost nothing, and beside experts."""
    most = max(of["hidden_ns"] + of["exposed_ns"] for of in sums.values()) / 1e6
    for place, of in enumerate(sums.values()):
        hidden, exposed = of["hidden_ns"] / 1e6, of["exposed_ns"] / 1e6
        label = place == 0
        axes.barh(place, hidden, color=COLOURS["hidden"], height=0.7, label="hidden" if label else None)
        axes.barh(
            place,
            exposed,
            left=hidden,
            color=COLOURS["exposed"],
            height=0.7,
            label="exposed" if label else None,
        )
        axes.text(hidden + exposed, place, f" {of['count']:,.0f}{TIMES}", va="center", color=INK)
    _names_at(axes, list(sums))
    axes.set(xlim=(0, most or 1), xlabel="time of all migrations together (ms)")


# ---- the jobs of a layer ----


def _places(layer: LayerRecord) -> dict[str, tuple[float, float]]:
    """Of each resource, how far down its row is, and how high; many DIMMs share the height of a few."""
    found = {job.resource for job in layer.jobs} | {move.resource for move in layer.moving}
    places = {name: (float(place), 0.8) for place, name in enumerate(n for n in _ROWS if n in found)}
    dimms = sorted((name for name in found if name.startswith("ndp ")), key=lambda name: int(name[4:]))
    high = min(1.0, _DIMM_LABELS / max(1, len(dimms)))
    below = len(places) - 0.1  # so that the label of the first DIMM has its line
    return places | {name: (below + (n + 0.5) * high, 0.8 * high) for n, name in enumerate(dimms)}


def _labels(places: Mapping[str, tuple[float, float]]) -> dict[str, float]:
    """What is written beside rows, and where: of many DIMMs, beside a few."""
    dimms = [name for name in places if name.startswith("ndp ")]
    shown = dimms[:: max(1, -(-len(dimms) // _DIMM_LABELS))]
    engines = {_ROWS[name]: at for name, (at, _) in places.items() if name in _ROWS}
    return engines | {f"DIMM {name[4:]}": places[name][0] for name in shown}


def _jobs(axes: Axes, layer: LayerRecord, name: str, until_ns: float) -> None:
    """What each resource did when; what is no expert is lighter."""
    places = _places(layer)
    unit, ns = _unit(until_ns)
    axes.set_xlim(0, until_ns / ns)
    for job in layer.jobs:
        at, high = places[job.resource]
        colour = COLOURS[_COLOUR_OF[job.resource.partition(" ")[0]]]
        light = job.kind not in ("expert", "copy")
        times = job.start_ns, job.end_ns
        _bar(axes, at, high, layer, times, ns, tint(colour, _LIGHT) if light else colour)
    if layer.moving:
        axes.plot([], [], color=COLOURS["exposed"], label="migrations")
    for move in layer.moving:
        at, high = places[move.resource]
        _bar(axes, at, high, layer, (move.start_ns, move.end_ns), ns, COLOURS["exposed"])
    bottom = max(at + high / 2 for at, high in places.values())
    labels = _labels(places)
    axes.set_yticks(list(labels.values()), list(labels))
    axes.tick_params(axis="y", length=0)
    axes.set(ylim=(bottom + 0.1, -0.6), xlim=(0, until_ns / ns), ylabel=_in_lines(name))
    axes.set_xlabel(f"time since the gate ({unit}); lighter: shared experts, activations, results")


def _bar(
    axes: Axes,
    at: float,
    high: float,
    layer: LayerRecord,
    times: tuple[float, float],
    unit_ns: float,
    colour: str | tuple[float, float, float],
) -> None:
    """From one time to another, as far as that is within the layer."""
    start, end = (np.clip(ns - layer.start_ns, 0, layer.end_ns - layer.start_ns) / unit_ns for ns in times)
    edged = end - start > _EDGED * axes.get_xlim()[1]
    thin = 0.4 * float(axes.spines["left"].get_linewidth()) if edged else 0.0
    axes.barh(at, end - start, left=start, height=high, color=colour, edgecolor="white", linewidth=thin)


def _in_lines(name: str) -> str:
    """A policy's name beside its axes, in short lines."""
    return re.sub(r"(?<=[-:,])", "\n", name)


def _job_panels(shown: Mapping[str, LayerRecord]) -> list[Panel]:
    times_ns = {name: layer.end_ns - layer.start_ns for name, layer in shown.items()}
    most_ns = max(times_ns.values(), default=0.0)
    comparable = all(most_ns <= _COMPARABLE * ns for ns in times_ns.values())

    def of(name: str, layer: LayerRecord) -> Panel:
        rows = len(_labels(_places(layer))) + 2
        until_ns = most_ns if comparable else times_ns[name]
        return Panel(
            lambda axes: _jobs(axes, layer, name, until_ns), 1.1 * rows, stretches=True, over_time=comparable
        )

    return [of(name, layer) for name, layer in shown.items()]


def _layer_panels(runs: Mapping[str, RunHistory], several: bool) -> list[Panel]:
    def of(place: int, name: str, run: RunHistory) -> Panel:
        return Panel(
            lambda axes: _layers(axes, run, name if several else "", place == 0),
            5,
            stretches=True,
            over_time=True,
            ends_axis=place == len(runs) - 1,
        )

    return [of(place, name, run) for place, (name, run) in enumerate(runs.items())]


def moe_figure(
    result: MoeResult, history: History, size: str = DEFAULT_SIZE, panels: Sequence[str] | None = None
) -> Figure:
    """Speed-ups, time by layer and resource, engines, migrations, and the jobs of one layer.

    Where the size has a height of its own, time by layer and jobs are of the first policy.

    Args:
        result: of `run_moe`.
        history: that observed the run.
        size, panels: see `panels.SIZES` and `panels.PANELS`.

    Raises:
        InputError: there is no such size or panel, or the run has nothing to show in them.
    """
    chosen = chosen_panels(panels, "moe")
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
    speedups = [Panel(lambda axes: _speedups(axes, runs), _ROW * len(runs))] if several else []
    by_layer = {
        "speedup": speedups,
        "layers": _layer_panels(histories, several),
        "engines": [Panel(lambda axes: _engines(axes, runs), _ROW * len(runs))],
    }
    moved = {
        "migrations": [Panel(lambda axes: _migrations(axes, sums), _ROW * len(sums))] if sums else [],
        "jobs": _job_panels(shown),
    }
    title = f"{moe_title(result)}\n{trace_title(result.routing['trace'])}{_title_of_jobs(shown, chosen)}"
    return compose(title, (by_layer, moved), size, chosen)


def _title_of_jobs(shown: Mapping[str, LayerRecord], chosen: Sequence[str]) -> str:
    if not shown or "jobs" not in chosen:
        return ""
    layer = next(iter(shown.values()))
    where = f"step {layer.step}" if layer.phase == "decode" else "prefill"
    times = ", ".join(f"{name} {format_time(of.end_ns - of.start_ns)}" for name, of in shown.items())
    return f"\njobs: of layer {layer.layer}, {where}; {times}"


def draw_moe(
    path: str,
    result: MoeResult,
    history: History,
    size: str = DEFAULT_SIZE,
    panels: Sequence[str] | None = None,
) -> None:
    """`moe_figure` in a file.

    Raises:
        InputError: as `moe_figure`, or the file name ends in no picture format.
    """
    save(moe_figure(result, history, size, panels), path, size)
