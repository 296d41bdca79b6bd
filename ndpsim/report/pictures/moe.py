"""Pictures of a whole model: runs under policies, predictions, and routing."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from matplotlib import rcParams
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ndpsim.base.reported import label_of, with_unit
from ndpsim.base.units import TIMES, Scale, format_time, times
from ndpsim.inference.layers.record import JobRecord, LayerRecord, MovingRecord
from ndpsim.report.metrics import metric_label, scale_of
from ndpsim.report.moe import MoeHistory, RunHistory, moe_title, run_names
from ndpsim.report.panels import DEFAULT_SIZE, chosen_size
from ndpsim.report.pictures.bars import Bars, row_panel, share_panel
from ndpsim.report.pictures.canvas import COLOURS, INK, Panel, Panels, compose, tint
from ndpsim.report.pictures.points import logarithmic
from ndpsim.report.prediction import parts_shown, rate_words
from ndpsim.report.workload import routing_title, trace_title
from ndpsim.simulate.results import MoeResult, PolicyRun
from ndpsim.simulate.results.prediction import PhasePrediction, Prediction
from ndpsim.workload.routing import RoutingStatistics
from ndpsim.workload.routing.statistics import PhaseStatistics, Reuse

_LIGHT = 0.4
_DETAILED = 3  # policies whose layers and jobs fit a page
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
#: Names and colours of the engines that compute pairs of a token and an expert.
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
#: Words of the legend for jobs, which have the colours of their resources.
_KINDS = {
    "routed experts": INK,
    "lighter: other work": tint(INK, _LIGHT),
    "migrations": COLOURS["exposed"],
}
_COLOUR_OF = {"gpu": "gpu", "pcie-down": "pcie", "pcie-up": "pcie", "cpu": "host", "ndp": "compute"}


def _speedups(runs: Mapping[str, PolicyRun]) -> Panel:
    """The speedup of each policy over the first, of everything and of the experts alone."""
    words = [f"{run.speedup:.2f}{TIMES}" for run in runs.values()]
    bars = COLOURS["everything"], [run.speedup for run in runs.values()], words
    experts = "experts alone", COLOURS["experts"], "-", [run.speedup_moe for run in runs.values()]
    label = metric_label("speedup", Scale(TIMES), next(iter(runs)))
    return row_panel(list(runs), {"everything": bars}, label, mark=experts, lines=_lines(len(runs)))


def _layers(axes: Axes, run: RunHistory, name: str, limits_ns: tuple[float, float]) -> None:
    """Mean times, on the same scale for each policy; a logarithmic one begins above 0."""
    ticks, means, scale = range(len(run.layers)), run.means_ns(), scale_of("time_ns", limits_ns)
    wide = float(rcParams["lines.linewidth"])
    lines = {"layer": (INK, "-", "experts of the layer", _BEHIND * wide)} | {
        group: (COLOURS[meaning], line, f"{label} busy", wide)
        for group, (meaning, line, label) in _GROUPS.items()
    }
    for group, (colour, line, label, width) in lines.items():
        how: Any = {"color": colour, "linestyle": line, "linewidth": width, "where": "mid", "label": label}
        axes.step(ticks, means[group] / scale.divisor, **how)
    few = range(0, len(run.layers), max(1, -(-len(run.layers) // 12)))
    axes.set_xticks(list(few), [str(run.layers[index]) for index in few])
    axes.set(xlim=(-0.5, len(run.layers) - 0.5), ylim=[ns / scale.divisor for ns in limits_ns])
    if limits_ns[0]:
        logarithmic(axes, "y")
    mean = "mean of steps" if run.phase == "decode" else "prefill"
    label = f"{_in_lines(name)}\n{metric_label('time_ns', scale)}".lstrip()
    axes.set(xlabel=f"layer of the model, {mean}", ylabel=label)


def _engines(runs: Mapping[str, PolicyRun]) -> Panel:
    """The number of pairs of a token and an expert that each engine computed."""
    parts: dict[str, Bars] = {
        label: (colour, [100 * run.pairs_by_engine.get(engine, 0) / run.pairs for run in runs.values()], ())
        for engine, (label, colour) in _ENGINES.items()
    }
    label = metric_label("pairs_by_engine", Scale("%"), results=(PolicyRun,))
    return row_panel(list(runs), parts, label, 100, lines=_lines(len(runs)))


def _summed_migrations(runs: Mapping[str, PolicyRun]) -> dict[str, dict[str, float]]:
    """The sums over all kinds of migrations of each policy that has any."""
    fields = ("count", "hidden_ns", "exposed_ns")
    sums = {
        name: {field: sum(windows[field] for windows in run.migrations.values()) for field in fields}
        for name, run in runs.items()
    }
    return {name: found for name, found in sums.items() if found["hidden_ns"] + found["exposed_ns"] > 0}


def _lines(rows: int) -> float:
    """The height of each of so many rows; many are lower, so that the picture fits a page."""
    return 1.25 if rows <= 2 * _DETAILED else 0.85


def _migrations(sums: Mapping[str, Mapping[str, float]]) -> Panel | None:
    """The times of migrations in windows, where they cost nothing, and beside experts."""
    if not sums:
        return None
    totals = [times["hidden_ns"] + times["exposed_ns"] for times in sums.values()]
    scale = scale_of("time_ns", totals)
    words = [
        f"{times['count']:,.0f} in {format_time(ns)}" for ns, times in zip(totals, sums.values(), strict=True)
    ]
    parts: dict[str, Bars] = {
        part: (COLOURS[part], [times[f"{part}_ns"] / scale.divisor for times in sums.values()], said)
        for part, said in {"hidden": (), "exposed": words}.items()
    }
    return row_panel(
        list(sums), parts, f"{metric_label('time_ns', scale)}, all migrations", lines=_lines(len(sums))
    )


# ---- the jobs of a layer ----


def _places(layer: LayerRecord) -> dict[str, tuple[float, float]]:
    """The position and height of each resource's row; many DIMMs share the height of a few."""
    found = {job.resource for job in layer.jobs} | {move.resource for move in layer.moving}
    places = {name: (float(y), 0.8) for y, name in enumerate(n for n in _ROWS if n in found)}
    dimms = sorted((name for name in found if name.startswith("ndp ")), key=lambda name: int(name[4:]))
    high = min(1.0, _DIMM_LABELS / max(1, len(dimms)))
    below = len(places) - 0.1  # room for the label of the first DIMM
    return places | {name: (below + (n + 0.5) * high, 0.8 * high) for n, name in enumerate(dimms)}


def _labels(places: Mapping[str, tuple[float, float]]) -> dict[str, float]:
    """The names beside rows and their positions; of many DIMMs, only some are named."""
    dimms = [name for name in places if name.startswith("ndp ")]
    shown = dimms[:: max(1, -(-len(dimms) // _DIMM_LABELS))]
    engines = {_ROWS[name]: y for name, (y, _) in places.items() if name in _ROWS}
    return engines | {f"DIMM {name[4:]}": places[name][0] for name in shown}


def _jobs(axes: Axes, layer: LayerRecord, name: str, until_ns: float) -> None:
    """Jobs of each resource over time; jobs other than experts are lighter."""
    places, scale = _places(layer), scale_of("time_ns", [until_ns])
    until = until_ns / scale.divisor

    def bar(job: JobRecord | MovingRecord, colour: str | tuple[float, float, float]) -> None:
        """Draw the part of a job or migration that is within the layer."""
        y, high = places[job.resource]
        times_ns = np.clip((job.start_ns, job.end_ns), layer.start_ns, layer.end_ns) - layer.start_ns
        start, end = times_ns / scale.divisor
        edge = 0.4 * rcParams["axes.linewidth"] if end - start > _EDGED * until else 0.0
        axes.barh(y, end - start, high, start, color=colour, edgecolor="white", linewidth=edge)

    for job in layer.jobs:
        colour = COLOURS[_COLOUR_OF[job.resource.partition(" ")[0]]]
        bar(job, colour if job.kind in ("expert", "copy") else tint(colour, _LIGHT))
    for move in layer.moving:
        bar(move, COLOURS["exposed"])
    for label, meant in _KINDS.items():
        axes.bar(np.nan, 0, color=meant, label=label)
    labels = _labels(places)
    axes.set_yticks(list(labels.values()), list(labels))
    axes.tick_params(axis="y", length=0)
    bottom = max(y + high / 2 for y, high in places.values())
    where = f"step {layer.step}" if layer.phase == "decode" else "prefill"
    since = f"{metric_label('time_ns', scale)}, since the gate of layer {layer.layer}, {where}"
    axes.set(ylim=(bottom + 0.1, -0.6), xlim=(0, until), ylabel=_in_lines(name), xlabel=since)


def _in_lines(name: str) -> str:
    """A policy's name beside its axes, in short lines."""
    return re.sub(r"(?<=[-:,])", "\n", name)


def _job_panels(shown: Mapping[str, LayerRecord], several: bool) -> list[Panel]:
    times_ns = {name: layer.end_ns - layer.start_ns for name, layer in shown.items()}
    most_ns = max(times_ns.values(), default=0.0)
    comparable = all(most_ns <= _COMPARABLE * ns for ns in times_ns.values())
    axis = "time since the gate" if comparable else ""
    panels = []
    for name, layer in shown.items():
        until_ns = most_ns if comparable else times_ns[name]
        draw = partial(_jobs, layer=layer, name=name if several else "", until_ns=until_ns)
        panels.append(Panel(draw, 1.1 * (len(_labels(_places(layer))) + 2), stretches=True, axis=axis))
    return panels


def _layer_panels(runs: Mapping[str, RunHistory], several: bool) -> list[Panel]:
    longest_ns = [max(float(max(ns)) for ns in run.means_ns().values()) for run in runs.values()]
    most, least = max(longest_ns), min(longest_ns)
    limits_ns = (0.0, 1.05 * most or 1.0) if most <= _COMPARABLE * least else (0.1 * least, 1.5 * most)
    draws = [
        partial(_layers, run=run, name=name if several else "", limits_ns=limits_ns)
        for name, run in runs.items()
    ]
    return [Panel(draw, 5, stretches=True, axis="layer") for draw in draws]


def _in_detail(result: MoeResult, names: Sequence[str], size: str) -> list[str]:
    """The policies whose layers and jobs are drawn."""
    if chosen_size(size).height_in is not None:
        return list(names[:1])
    if len(names) <= _DETAILED:
        return list(names)
    return [names[min(range(len(names)), key=lambda index: result.runs[index].time_ns)]]


def moe_figure(
    result: MoeResult, history: MoeHistory, size: str = DEFAULT_SIZE, panels: Panels = None
) -> Figure:
    """Speed-ups, time by layer and resource, engines, migrations, and the jobs of one layer.

    Of more than three policies, time by layer and jobs are of the fastest alone, and migrations are not
    told apart by kind, so that the picture fits a page. If the size has a height, layers and jobs are of the
    first policy.

    Args:
        result: of `run_moe`.
        history: the observer of the run.
        size, panels: see `panels.SIZES` and `panels.PANELS`.

    Raises:
        InputError: there is no such size or panel, or the panels would be empty.
    """
    names = run_names(result.runs)
    runs = dict(zip(names, result.runs, strict=True))
    in_detail = _in_detail(result, names, size) if history.runs else []
    histories = {name: history.runs[names.index(name)] for name in in_detail}
    shown = {name: history.shown for name, history in histories.items() if history.shown is not None}
    several = len(runs) > 1
    sums = (
        _summed_migrations(runs)
        if len(names) > _DETAILED
        else {
            f"{name}: {kind}" if several else kind: windows
            for name, run in runs.items()
            for kind, windows in run.migrations.items()
            if windows["hidden_ns"] + windows["exposed_ns"] > 0
        }
    )
    by_layer = {
        "speedup": _speedups(runs) if several else None,
        "layers": _layer_panels(histories, several) if histories else None,
        "engines": _engines(runs),
    }
    moved = {"migrations": _migrations(sums), "jobs": _job_panels(shown, several)}
    policies = f"policy {names[0]}"
    if several:
        policies = f"policies {', '.join(names)}" if len(names) <= _DETAILED else f"{len(names)} policies"
    routed = trace_title(result.routing["trace"])
    title = f"Inference with {moe_title(result)}, {policies}\nrouting: {routed}"
    if 0 < len(histories) < len(names):
        title += f"\nlayers and jobs: {' and '.join(histories)}"
    return compose(title, (by_layer, moved), size, panels, "moe")


# ---- predictions ----

_PART_COLOURS = {
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


def _parts(phase: PhasePrediction, name: str, what: str) -> Panel:
    said = {part: (ns, with_unit("parts_ns", ns, PhasePrediction)) for part, ns in parts_shown(phase).items()}
    time = metric_label("time_ns", Scale("%"), results=(PhasePrediction,))
    meanings = {part: _PART_COLOURS.get(part, "everything") for part in said}
    return share_panel(said, meanings, f"{name}, {rate_words(phase)}: {time} of a {what}", lines=2.0)


def _upgrades(result: Prediction) -> Panel | None:
    shown = [upgrade for upgrade in result.upgrades if not upgrade.problem]
    if not shown:
        return None
    gains = {
        phase: [getattr(upgrade, f"{phase}_gain") for upgrade in shown] for phase in ("prefill", "decode")
    }
    parts = {phase: (COLOURS[phase], values, list(map(times, values))) for phase, values in gains.items()}
    names = [f"{upgrade.name}: {upgrade.change.split(',')[0]}" for upgrade in shown]
    label = metric_label("speedup", Scale(TIMES), "the machine as it is")
    as_it_is = "", INK, "-", [1.0] * len(shown)
    return row_panel(names, parts, label, mark=as_it_is, beside=True, lines=3.2)


def prediction_figure(result: Prediction, size: str = DEFAULT_SIZE, panels: Panels = None) -> Figure:
    """The parts of the time, and the gains of upgrades."""
    groups = {
        "prefill": _parts(result.prefill, "prefill", "prompt"),
        "decode": _parts(result.decode, "decode", "token"),
        "upgrades": _upgrades(result),
    }
    return compose(f"Prediction for {result.title}", (groups,), size, panels, "predict")


# ---- routing ----

_PERCENT = Scale("%")
_SELECTIONS = metric_label("shares", _PERCENT, results=(PhaseStatistics,))
_REUSES = {"token_reuse": "decode", "step_reuse": "decode", "prefill_reuse": "prefill"}


def _ranks(axes: Axes, statistics: RoutingStatistics) -> None:
    """The cumulative share of selections of the most popular experts."""
    phases = {"decode": (statistics.decode, "o-"), "prefill": (statistics.prefill, "s--")}
    for name, (phase, style) in phases.items():
        if phase is not None:
            experts = [0.0, *(100 * point.rank_fraction for point in phase.rank_curve)]
            shares = [0.0, *(100 * point.cumulative_share for point in phase.rank_curve)]
            axes.plot(experts, shares, style, color=COLOURS[name], markerfacecolor="white", label=name)
    axes.plot((0, 100), (0, 100), color=INK, linestyle=":", label="if all were equally popular")
    axes.set(xlim=(0, 101), ylim=(0, 104), xlabel="most popular experts (%)", ylabel=_SELECTIONS)


def _active(axes: Axes, statistics: RoutingStatistics) -> None:
    """The number of distinct experts that a batch chooses, by its size."""
    found, colour = statistics.active_experts, COLOURS["decode"]
    sizes, percent = [estimate.batch for estimate in found], 100 / statistics.trace["experts"]
    least, mean, most = (
        [percent * getattr(estimate, name) for estimate in found] for name in ("least", "mean", "most")
    )
    light = tint(colour, 0.4)
    axes.fill_between(sizes, least, most, color=light, linewidth=0, label="fewest to most")
    axes.plot(sizes, mean, "o-", color=colour, markerfacecolor="white", label="mean")
    axes.set_xscale("log", base=2)
    axes.set_xticks(sizes, [str(size) for size in sizes])
    axes.minorticks_off()
    label = metric_label("active_experts", _PERCENT, results=(RoutingStatistics,))
    axes.set(ylim=(0, 104), xlabel="tokens of a step", ylabel=label)


def _classes(axes: Axes, phase: PhaseStatistics) -> None:
    """Shares of selections by class and layer."""
    layers = [shares.layer for shares in phase.layers]
    bottom = np.zeros(len(layers))
    for name in ("hot", "warm", "cold"):
        height = np.array([100 * getattr(shares, name) for shares in phase.layers])
        axes.bar(layers, height, 0.8, bottom, color=COLOURS[name], label=name)
        bottom += height
    axes.set(xlim=(layers[0] - 0.6, layers[-1] + 0.6), ylim=(0, 100))
    axes.set(xlabel="layer of the model", ylabel=_SELECTIONS)


def _reuse(statistics: RoutingStatistics) -> Panel | None:
    """The share of experts that tokens have in common with earlier tokens, and the share by chance."""
    found = {name: reuse for name in _REUSES if (reuse := getattr(statistics, name)) is not None}
    if not found:
        return None
    colours = [COLOURS[_REUSES[name]] for name in found]
    bars = colours, [100 * reuse.reuse.value for reuse in found.values()], ()
    by_chance = [100 * reuse.independent.value for reuse in found.values()]
    errors = [100 * (reuse.reuse.error or 0.0) for reuse in found.values()]
    names = [label_of(name, RoutingStatistics) for name in found]
    mark = label_of("independent", Reuse), INK, ":", by_chance
    most = 1.03 * max(map(sum, zip(bars[1], errors, strict=True)))
    label = metric_label("reuse", _PERCENT, results=(Reuse,))
    return row_panel(names, {"": bars}, label, most, mark, lines=1.6, xerr=errors, ecolor=INK)


def routing_figure(statistics: RoutingStatistics, size: str = DEFAULT_SIZE, panels: Panels = None) -> Figure:
    """Shares by rank and by layer, active experts by batch, and reuse.

    Args:
        statistics: of `describe_routing`.

    Raises:
        InputError: the panels would be empty.
    """
    phase = statistics.decode or statistics.prefill
    assert phase is not None
    curves = {"ranks": Panel(lambda axes: _ranks(axes, statistics), 9, stretches=True)}
    if statistics.active_experts:
        curves["active"] = Panel(lambda axes: _active(axes, statistics), 9, stretches=True)
    bars = {
        "layers": Panel(lambda axes: _classes(axes, phase), 6, stretches=True),
        "reuse": _reuse(statistics),
    }
    return compose(f"Routing: {routing_title(statistics)}", (curves, bars), size, panels, "routing")
