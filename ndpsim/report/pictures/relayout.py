"""Pictures of relayouts: data over time, utilization of links and DRAM, and the energy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ndpsim.base.units import Scale, format_time, percent, times
from ndpsim.report.metrics import described, metric_label, scale_of
from ndpsim.report.panels import DEFAULT_SIZE
from ndpsim.report.pictures.bars import Ways, compare_energies, row_panel
from ndpsim.report.pictures.canvas import COLOURS, INK, SERIES, Panel, Panels, compose
from ndpsim.report.pictures.expert import draw_means, means_of, time_axis
from ndpsim.report.pictures.points import logarithmic, room_pt
from ndpsim.report.text import title_of
from ndpsim.report.words import refresh_interval_ns
from ndpsim.simulate import HostMove, RelayoutResult

_DATA = {
    "read": ("reads", "read"),
    "write": ("writes", "write"),
    "both": ("reads or writes", "read or write"),
}
_HOST = "by the host"
_EDGED: dict[str, Any] = {"edgecolor": INK, "linewidth": 0.3}
_OF = (RelayoutResult,)


def _draw_host(axes: Axes, host: HostMove | None, unit_ns: float) -> None:
    """Label the vertical axis, and draw the mean bandwidth of a copy by the host over its time."""
    axes.set_ylabel(metric_label("bandwidth_gbps", Scale("GB/s"), results=_OF))
    if host is not None:
        end = host.time_ns / unit_ns
        label = f"{_HOST}: {host.bandwidth_gbps:.1f} GB/s over {format_time(host.time_ns)}"
        how: Any = {"color": COLOURS["host"], "linestyle": ":", "label": label}
        axes.plot((0, end, end), (host.bandwidth_gbps, host.bandwidth_gbps, 0), **how)


def _over_time(axes: Axes, result: RelayoutResult) -> None:
    """Reads and arrivals over time, beside the host."""
    curves = (
        (result.read_gbps, "-", "read", "read at the sources"),
        (result.written_gbps, "--", "write", "arrived at the targets"),
    )
    unit_ns, interval_ns = (
        time_axis(axes, 1.02 * _end_ns(result)),
        refresh_interval_ns(result.config["hardware"]),
    )
    for gbps, style, meaning, label in curves if result.curve_ns else ():
        how = {"color": COLOURS[meaning], "linestyle": style, "label": label}
        draw_means(axes, result.curve_ns, gbps, interval_ns, unit_ns, **how)
    _draw_host(axes, result.host, unit_ns)
    by_host = 0.0 if result.host is None else result.host.bandwidth_gbps
    axes.set_ylim(0, 1.08 * max(*result.read_gbps, *result.written_gbps, by_host, 0.0, 0.0) or 1.0)


def _end_ns(result: RelayoutResult) -> float:
    return max(result.time_ns, 0.0 if result.host is None else result.host.time_ns) or 1.0


def _links(axes: Axes, result: RelayoutResult) -> None:
    """The utilization of each link that carried data."""
    names, busy = list(result.link_busy), [100 * share for share in result.link_busy.values()]
    axes.bar(range(len(busy)), busy, color=COLOURS["link"], **_EDGED)
    axes.set(
        ylabel=metric_label("link_busy", Scale("%"), results=_OF),
        ylim=(0, 100),
        xlim=(-0.7, max(len(names), 1) - 0.3),
        xlabel=f"wire of the {result.topology} (from DIMM > to DIMM)",
    )
    apart = 1.15 * float(axes.xaxis.get_major_ticks()[0].label1.get_fontsize())
    step = max(1, -(-len(names) * apart // room_pt(axes)[0])) if names else 1
    shown = range(0, len(names), int(step))
    short = [names[index].removeprefix("dimm ").replace(" to ", ">") for index in shown]
    axes.set_xticks(list(shown), short, rotation=90)


def _dram(result: RelayoutResult) -> Panel:
    """The utilization of the busiest lane's data bus by each kind of data."""
    names, meanings = zip(*(_DATA[kind] for kind in result.dram_busy), strict=True)
    shares = list(result.dram_busy.values())
    colours = [COLOURS[meaning] for meaning in meanings]
    parts = colours, [100 * share for share in shares], list(map(percent, shares))
    return row_panel(names, {"": parts}, f"busy: {metric_label('dram_busy', Scale('%'), results=_OF)}", 100)


def _by_host(host: HostMove | None) -> tuple[Ways, str]:
    """The energy and time of a copy by the host, and words for a title."""
    if host is None:
        return {}, ""
    return {_HOST: (host.energy_nj, host.time_ns)}, f"; by the host {format_time(host.time_ns)}"


def relayout_figure(result: RelayoutResult, size: str = DEFAULT_SIZE, panels: Panels = None) -> Figure:
    """Reads and arrivals over time, utilization of links and DRAM, and the energy.

    If the same move by the host was simulated, its bandwidth and energy are shown, too.

    Args:
        result: of `simulate_relayout`.
    """
    way, by_host = _by_host(result.host)
    bound = result.bottleneck.replace("dimm", "DIMM")
    title = f"Relayout of {title_of(result)}\n{format_time(result.time_ns)}, bound by {bound}{by_host}"
    over_time = {
        "bandwidth": Panel(lambda axes: _over_time(axes, result), 8, stretches=True),
        "links": Panel(lambda axes: _links(axes, result), 6),
    }
    energy = compare_energies({"over links": (result.energy_nj, result.time_ns), **way})
    return compose(title, (over_time, {"dram": _dram(result), "energy": energy}), size, panels, "relayout")


# ---- the same over several topologies ----


def _all_over_time(axes: Axes, results: Mapping[str, RelayoutResult]) -> None:
    """Arrivals over time, on logarithmic scales since topologies differ by factors."""
    unit_ns = time_axis(axes, max(map(_end_ns, results.values())))
    moving = {name: result for name, result in results.items() if result.curve_ns}
    most = 0.0
    for index, (name, result) in enumerate(moving.items()):
        interval_ns = refresh_interval_ns(result.config["hardware"])
        edges, means, _ = means_of(result.curve_ns, result.written_gbps, interval_ns)
        most = max(most, float(means.max()))
        style, colour = ("-", "--", "-.")[index % 3], SERIES[index % len(SERIES)]
        how: Any = {"color": colour, "linestyle": style, "label": name}
        axes.stairs(means, edges / unit_ns, baseline=None, **how)
    _draw_host(axes, next(iter(results.values())).host, unit_ns)
    if moving:
        ends = [_end_ns(result) for result in results.values()] + [run.time_ns for run in moving.values()]
        low = 0.4 * min(result.bandwidth_gbps for result in moving.values())
        axes.set(xlim=(0.1 * min(ends) / unit_ns, 1.1 * max(ends) / unit_ns), ylim=(low, 1.5 * most))
        logarithmic(axes, "x")
        logarithmic(axes, "y")


def _times(times_ns: Mapping[str, float]) -> Panel:
    """The time with each topology, and of the host."""
    fastest, scale = min(times_ns.values()), scale_of("time_ns", times_ns.values())
    words = [
        f"{format_time(ns)}, {times(ns / fastest)}" if fastest else format_time(ns)
        for ns in times_ns.values()
    ]
    colours = [COLOURS["host" if way == _HOST else "link"] for way in times_ns]
    bars = colours, [ns / scale.divisor for ns in times_ns.values()], words
    return row_panel(list(times_ns), {"": bars}, metric_label("time_ns", scale), **_EDGED)


def _busy(results: Mapping[str, RelayoutResult]) -> Panel:
    """The utilization of the busiest wire and the busiest lane with each topology."""
    wires = [100 * max(run.link_busy.values(), default=0.0) for run in results.values()]
    lanes = [100 * run.dram_busy["both"] for run in results.values()]
    parts = {
        "busiest wire": (COLOURS["link"], wires, ()),
        described("dram_busy", _OF).label: (COLOURS["read or write"], lanes, ()),
    }
    return row_panel(list(results), parts, metric_label("busy", Scale("%")), 100, beside=True, **_EDGED)


def topologies_figure(
    results: Mapping[str, RelayoutResult], size: str = DEFAULT_SIZE, panels: Panels = None
) -> Figure:
    """The same relayout over several topologies, by name, on the same axes.

    Args:
        results: of `simulate_relayout`; the host's move is that of the first.
    """
    first = next(iter(results.values()))
    way, by_host = _by_host(first.host)
    times_ns = {name: result.time_ns for name, result in results.items()}
    fastest = min(times_ns, key=times_ns.__getitem__)
    title = (
        f"Relayout of {title_of(first)}, over several topologies\n"
        f"fastest: {fastest}, {format_time(times_ns[fastest])}; "
        f"slowest: {format_time(max(times_ns.values()))}{by_host}"
    )
    ways = {**{name: (result.energy_nj, result.time_ns) for name, result in results.items()}, **way}
    over_time = {
        "bandwidth": Panel(lambda axes: _all_over_time(axes, results), 10, stretches=True),
        "time": _times(times_ns | {name: ns for name, (_, ns) in way.items()}),
    }
    return compose(
        title,
        (over_time, {"busy": _busy(results), "energy": compare_energies(ways)}),
        size,
        panels,
        "topologies",
    )
