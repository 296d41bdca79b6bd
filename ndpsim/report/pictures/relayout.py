"""Pictures of relayouts: data over time, utilization of links and DRAM, and the energy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ndpsim.base.units import Scale, format_time, percent, times
from ndpsim.report.dram import refresh_interval_ns
from ndpsim.report.metrics import described, metric_label, scale_of
from ndpsim.report.panels import DEFAULT_SIZE
from ndpsim.report.pictures.bars import ROW, compare_energies, draw_bar, name_rows
from ndpsim.report.pictures.canvas import Panel, Panels, compose
from ndpsim.report.pictures.colours import COLOURS, INK, SERIES
from ndpsim.report.pictures.curves import draw_means, means_of
from ndpsim.report.pictures.points import logarithmic, room_pt
from ndpsim.report.text import title_of
from ndpsim.simulate import HostMove, RelayoutResult

_DATA = {"read": "read", "write": "write", "both": "read or write"}
_SAYS = {"read": "reads", "write": "writes", "both": "reads or writes"}
_HOST = "by the host"


def _draw_host(axes: Axes, result: RelayoutResult, scale: Scale) -> None:
    """Draw the mean bandwidth of a copy by the host over its time."""
    host = result.host
    if host is not None:
        end = host.time_ns / scale.divisor
        label = f"{_HOST}: {host.bandwidth_gbps:.1f} GB/s over {format_time(host.time_ns)}"
        how: Any = {"color": COLOURS["host"], "linestyle": ":", "label": label}
        axes.plot((0, end, end), (host.bandwidth_gbps, host.bandwidth_gbps, 0), **how)


def _bandwidth_label() -> str:
    return metric_label("bandwidth_gbps", Scale("GB/s"), results=(RelayoutResult,))


def _over_time(axes: Axes, result: RelayoutResult) -> None:
    """Reads and arrivals over time, beside the host."""
    curves = (
        (result.read_gbps, "-", "read", "read at the sources"),
        (result.written_gbps, "--", "write", "arrived at the targets"),
    )
    end_ns = _end_ns(result)
    scale, interval_ns = scale_of("time_ns", [end_ns]), refresh_interval_ns(result.config["hardware"])
    for gbps, style, meaning, label in curves if result.curve_ns else ():
        how = {"color": COLOURS[meaning], "linestyle": style, "label": label}
        draw_means(axes, result.curve_ns, gbps, interval_ns, scale, **how)
    _draw_host(axes, result, scale)
    by_host = 0.0 if result.host is None else result.host.bandwidth_gbps
    most = max(*result.read_gbps, *result.written_gbps, by_host, 0.0, 0.0) or 1.0
    axes.set(xlabel=metric_label("time_ns", scale), ylabel=_bandwidth_label())
    axes.set(xlim=(0, 1.02 * end_ns / scale.divisor), ylim=(0, 1.08 * most))


def _end_ns(result: RelayoutResult) -> float:
    return max(result.time_ns, 0.0 if result.host is None else result.host.time_ns) or 1.0


def _links(axes: Axes, result: RelayoutResult) -> None:
    """The utilization of each link that carried data."""
    names, busy = list(result.link_busy), [100 * share for share in result.link_busy.values()]
    axes.bar(range(len(busy)), busy, color=COLOURS["link"], edgecolor=INK, linewidth=0.3)
    axes.set(
        ylabel=metric_label("link_busy", Scale("%"), results=(RelayoutResult,)),
        ylim=(0, 100),
        xlim=(-0.7, max(len(names), 1) - 0.3),
        xlabel=f"wire of the {result.topology} (from DIMM > to DIMM)",
    )
    apart = 1.15 * float(axes.xaxis.get_major_ticks()[0].label1.get_fontsize())
    step = max(1, -(-len(names) * apart // room_pt(axes)[0])) if names else 1
    shown = range(0, len(names), int(step))
    short = [names[place].removeprefix("dimm ").replace(" to ", ">") for place in shown]
    axes.set_xticks(list(shown), short, rotation=90)


def _dram(axes: Axes, result: RelayoutResult) -> None:
    """The utilization of the busiest lane's data bus by each kind of data."""
    for place, (kind, share) in enumerate(result.dram_busy.items()):
        draw_bar(axes, place, 100 * share, percent(share), color=COLOURS[_DATA[kind]])
    name_rows(axes, [_SAYS[kind] for kind in result.dram_busy])
    axes.set(
        xlim=(0, 100), xlabel=f"busy: {metric_label('dram_busy', Scale('%'), results=(RelayoutResult,))}"
    )


_Ways = Mapping[str, tuple[Mapping[str, float | None] | None, float]]


def _energies(ways: _Ways) -> list[Panel]:
    known = {way: (parts, time_ns) for way, (parts, time_ns) in ways.items() if parts is not None}
    return [Panel(lambda axes: compare_energies(axes, known), ROW * len(known))] if known else []


def _host_way(host: HostMove | None) -> _Ways:
    return {} if host is None else {_HOST: (host.energy_nj, host.time_ns)}


def relayout_figure(result: RelayoutResult, size: str = DEFAULT_SIZE, panels: Panels = None) -> Figure:
    """Reads and arrivals over time, utilization of links and DRAM, and the energy.

    If the same move by the host was simulated, its bandwidth and energy are shown, too.

    Args:
        result: of `simulate_relayout`.
    """
    by_host = "" if result.host is None else f"; by the host {format_time(result.host.time_ns)}"
    bound = result.bottleneck.replace("dimm", "DIMM")
    title = f"Relayout of {title_of(result)}\n{format_time(result.time_ns)}, bound by {bound}{by_host}"
    over_time = {
        "bandwidth": [Panel(lambda axes: _over_time(axes, result), 8, stretches=True)],
        "links": [Panel(lambda axes: _links(axes, result), 6)],
    }
    sums = {
        "dram": [Panel(lambda axes: _dram(axes, result), 3 * ROW)],
        "energy": _energies({"over links": (result.energy_nj, result.time_ns), **_host_way(result.host)}),
    }
    return compose(title, (over_time, sums), size, panels, "relayout")


# ---- the same over several topologies ----


def _all_over_time(axes: Axes, results: Mapping[str, RelayoutResult]) -> None:
    """Arrivals over time, on logarithmic scales since topologies differ by factors."""
    scale = scale_of("time_ns", map(_end_ns, results.values()))
    moving = {name: result for name, result in results.items() if result.curve_ns}
    most = 0.0
    for place, (name, result) in enumerate(moving.items()):
        interval_ns = refresh_interval_ns(result.config["hardware"])
        edges, means, _ = means_of(result.curve_ns, result.written_gbps, interval_ns)
        most = max(most, float(means.max()))
        style, colour = ("-", "--", "-.")[place % 3], SERIES[place % len(SERIES)]
        how: Any = {"color": colour, "linestyle": style, "label": name}
        axes.stairs(means, edges / scale.divisor, baseline=None, **how)
    _draw_host(axes, next(iter(results.values())), scale)
    axes.set(xlabel=metric_label("time_ns", scale), ylabel=_bandwidth_label())
    if moving:
        ends = [_end_ns(result) for result in results.values()] + [one.time_ns for one in moving.values()]
        low = 0.4 * min(result.bandwidth_gbps for result in moving.values())
        axes.set(xlim=(0.1 * min(ends) / scale.divisor, 1.1 * max(ends) / scale.divisor))
        axes.set(ylim=(low, 1.5 * most))
        logarithmic(axes, "x")
        logarithmic(axes, "y")


def _times(axes: Axes, times_ns: Mapping[str, float]) -> None:
    """The time with each topology, and of the host."""
    fastest, scale = min(times_ns.values()), scale_of("time_ns", times_ns.values())
    for place, (way, ns) in enumerate(times_ns.items()):
        slower = f", {times(ns / fastest)}" if fastest else ""
        how = {"color": COLOURS["host" if way == _HOST else "link"], "edgecolor": INK, "linewidth": 0.3}
        draw_bar(axes, place, ns / scale.divisor, f"{format_time(ns)}{slower}", **how)
    name_rows(axes, list(times_ns))
    axes.set(xlabel=metric_label("time_ns", scale), xlim=(0, max(times_ns.values()) / scale.divisor or 1))


def _busy(axes: Axes, results: Mapping[str, RelayoutResult]) -> None:
    """The utilization of the busiest wire and the busiest lane with each topology."""
    height = 0.4
    shares = {
        "busiest wire": ("link", [max(one.link_busy.values(), default=0.0) for one in results.values()]),
        described("dram_busy", (RelayoutResult,)).label: (
            "read or write",
            [one.dram_busy["both"] for one in results.values()],
        ),
    }
    for offset, (label, (meaning, busy)) in zip((-0.5, 0.5), shares.items(), strict=True):
        places = [place + offset * height for place in range(len(busy))]
        how: Any = {"color": COLOURS[meaning], "edgecolor": INK, "linewidth": 0.3, "label": label}
        axes.barh(places, [100 * share for share in busy], height=height, **how)
    name_rows(axes, list(results))
    axes.set(xlim=(0, 100), xlabel=metric_label("busy", Scale("%")))


def topologies_figure(
    results: Mapping[str, RelayoutResult], size: str = DEFAULT_SIZE, panels: Panels = None
) -> Figure:
    """The same relayout over several topologies, by name, on the same axes.

    Args:
        results: of `simulate_relayout`; the host's move is that of the first.
    """
    first = next(iter(results.values()))
    times_ns = {name: result.time_ns for name, result in results.items()}
    if first.host is not None:
        times_ns[_HOST] = first.host.time_ns
    by_host = "" if first.host is None else f"; by the host {format_time(first.host.time_ns)}"
    fastest = min(results, key=lambda name: results[name].time_ns)
    title = (
        f"Relayout of {title_of(first)}, over several topologies\n"
        f"fastest: {fastest}, {format_time(results[fastest].time_ns)}; "
        f"slowest: {format_time(max(result.time_ns for result in results.values()))}{by_host}"
    )
    energies = {name: (result.energy_nj, result.time_ns) for name, result in results.items()}
    over_time = {
        "bandwidth": [Panel(lambda axes: _all_over_time(axes, results), 10, stretches=True)],
        "time": [Panel(lambda axes: _times(axes, times_ns), ROW * len(times_ns))],
    }
    sums = {
        "busy": [Panel(lambda axes: _busy(axes, results), ROW * len(results))],
        "energy": _energies({**energies, **_host_way(first.host)}),
    }
    return compose(title, (over_time, sums), size, panels, "topologies")
