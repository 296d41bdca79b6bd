"""Pictures of relayouts: data over time, how busy links and DRAM were, and the energy."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ndpsim.report.dram import refresh_interval_ns
from ndpsim.report.panels import DEFAULT_SIZE, chosen_panels
from ndpsim.report.pictures.bars import compare_energies
from ndpsim.report.pictures.canvas import Panel, compose, save
from ndpsim.report.pictures.colours import COLOURS, INK
from ndpsim.report.pictures.curves import draw_means
from ndpsim.report.relayout import relayout_title
from ndpsim.simulate import HostMove, RelayoutResult
from ndpsim.units import TIMES, format_time

_ROW = 1.25  # lines for each horizontal bar
_DATA = {"read": "read", "write": "write", "both": "read or write"}
_SAYS = {"read": "reads", "write": "writes", "both": "reads or writes"}


def _over_time(
    axes: Axes, result: RelayoutResult, end_ns: float, most_gbps: float, said: str = "", labels: bool = True
) -> None:
    """What is read and what arrives over time, and the mean bandwidth of the host over its own time."""
    curves = (
        (result.read_gbps, "-", "read", "read at the sources"),
        (result.written_gbps, "--", "write", "arrived at the targets"),
    )
    interval_ns = refresh_interval_ns(result.config["hardware"])
    for gbps, style, meaning, label in curves if result.curve_ns else ():
        how = {"color": COLOURS[meaning], "linestyle": style, "label": label if labels else None}
        draw_means(axes, result.curve_ns, gbps, interval_ns, **how)
    host = result.host
    if host is not None:
        label = f"by the host: {host.bandwidth_gbps:.1f} GB/s over {format_time(host.time_ns)}"
        axes.plot(
            (0, host.time_ns / 1000, host.time_ns / 1000),
            (host.bandwidth_gbps, host.bandwidth_gbps, 0),
            color=COLOURS["host"],
            linestyle=":",
            label=label if labels else None,
        )
    axes.set(xlabel="time (µs)", xlim=(0, 1.02 * end_ns / 1000), ylim=(0, 1.08 * most_gbps))
    axes.set_ylabel(said or "bandwidth (GB/s)")


def _end_ns(result: RelayoutResult) -> float:
    return max(result.time_ns, 0.0 if result.host is None else result.host.time_ns) or 1.0


def _most_gbps(result: RelayoutResult) -> float:
    by_host = 0.0 if result.host is None else result.host.bandwidth_gbps
    return max(*result.read_gbps, *result.written_gbps, by_host, 0.0, 0.0) or 1.0


def _links(axes: Axes, result: RelayoutResult) -> None:
    """How busy each link was, of those that carried anything."""
    names, busy = list(result.link_busy), [100 * share for share in result.link_busy.values()]
    axes.bar(range(len(busy)), busy, color=COLOURS["link"], edgecolor=INK, linewidth=0.3)
    axes.set(
        ylabel="busy (% of the time)",
        ylim=(0, 100),
        xlim=(-0.7, max(len(names), 1) - 0.3),
        xlabel=f"link of the {result.topology}, from DIMM>to DIMM",
    )
    figure = axes.get_figure(root=True)
    assert figure is not None
    points = 72 * axes.get_window_extent().width / figure.dpi
    apart = 1.15 * float(axes.xaxis.get_major_ticks()[0].label1.get_fontsize())
    step = max(1, -(-len(names) * apart // points)) if names else 1
    shown = range(0, len(names), int(step))
    short = [names[place].removeprefix("dimm ").replace(" to ", ">") for place in shown]
    axes.set_xticks(list(shown), short, rotation=90)


def _dram(axes: Axes, result: RelayoutResult) -> None:
    """How busy the data bus of the busiest lane was, for each kind of data."""
    for place, (kind, share) in enumerate(result.dram_busy.items()):
        axes.barh(place, 100 * share, height=0.8, color=COLOURS[_DATA[kind]])
        axes.text(100 * share, place, f" {100 * share:.1f}%", va="center", color=INK)
    axes.set_yticks(range(len(result.dram_busy)), [_SAYS[kind] for kind in result.dram_busy])
    axes.tick_params(axis="y", length=0)
    axes.set(
        xlim=(0, 100),
        ylim=(len(result.dram_busy) - 0.5, -0.5),
        xlabel="data bus of the busiest lane, busy (% of the time)",
    )


_Ways = Mapping[str, tuple[Mapping[str, float | None] | None, float]]


def _energies(ways: _Ways) -> list[Panel]:
    known = {way: (parts, time_ns) for way, (parts, time_ns) in ways.items() if parts is not None}
    return [Panel(lambda axes: compare_energies(axes, known), _ROW * len(known))] if known else []


def _host_way(host: HostMove | None) -> _Ways:
    return {} if host is None else {"by the host": (host.energy_nj, host.time_ns)}


def relayout_figure(
    result: RelayoutResult, size: str = DEFAULT_SIZE, panels: Sequence[str] | None = None
) -> Figure:
    """What was read and what arrived over time, how busy links and DRAM were, and the energy.

    Bandwidth and energy of the same move by the host stand beside it, where that was simulated.

    Args:
        result: of `simulate_relayout`.
        size, panels: see `panels.SIZES` and `panels.PANELS`.

    Raises:
        InputError: there is no such size or panel.
    """
    chosen = chosen_panels(panels, "relayout")
    by_host = "" if result.host is None else f"; by the host {format_time(result.host.time_ns)}"
    bound = result.bottleneck.replace("dimm", "DIMM")
    title = f"{relayout_title(result)}\n{format_time(result.time_ns)}, bound by {bound}{by_host}"
    end_ns, most = _end_ns(result), _most_gbps(result)
    over_time = {
        "bandwidth": [
            Panel(lambda axes: _over_time(axes, result, end_ns, most), 8, stretches=True, over_time=True)
        ],
        "links": [Panel(lambda axes: _links(axes, result), 6)],
    }
    sums = {
        "dram": [Panel(lambda axes: _dram(axes, result), 3 * _ROW)],
        "energy": _energies({"over links": (result.energy_nj, result.time_ns), **_host_way(result.host)}),
    }
    return compose(title, (over_time, sums), size, chosen)


def draw_relayout(
    path: str, result: RelayoutResult, size: str = DEFAULT_SIZE, panels: Sequence[str] | None = None
) -> None:
    """`relayout_figure` in a file.

    Raises:
        InputError: there is no such size or panel, or the file name ends in no picture format.
    """
    save(relayout_figure(result, size, panels), path, size)


# ---- the same over several topologies ----


def _times(axes: Axes, times_ns: Mapping[str, float]) -> None:
    """How long each way takes."""
    fastest = min(times_ns.values())
    for place, (way, ns) in enumerate(times_ns.items()):
        meaning = "host" if way == "by the host" else "link"
        axes.barh(place, ns / 1000, height=0.8, color=COLOURS[meaning], edgecolor=INK, linewidth=0.3)
        slower = f", {ns / fastest:.2f}{TIMES}" if fastest else ""
        axes.text(ns / 1000, place, f" {format_time(ns)}{slower}", va="center", color=INK)
    axes.set_yticks(range(len(times_ns)), list(times_ns))
    axes.tick_params(axis="y", length=0)
    axes.set(
        xlabel="time (µs)", ylim=(len(times_ns) - 0.5, -0.5), xlim=(0, max(times_ns.values()) / 1000 or 1)
    )


def _busy(axes: Axes, results: Mapping[str, RelayoutResult]) -> None:
    """How busy the busiest link and the busiest lane were, for each topology."""
    height = 0.4
    for place, result in enumerate(results.values()):
        busiest = 100 * max(result.link_busy.values(), default=0.0)
        both = 100 * result.dram_busy["both"]
        for offset, share, meaning in ((-0.5, busiest, "link"), (0.5, both, "read or write")):
            axes.barh(
                place + offset * height,
                share,
                height=height,
                color=COLOURS[meaning],
                edgecolor=INK,
                linewidth=0.3,
                label={"link": "busiest link", "read or write": "data bus of the busiest lane"}[meaning]
                if place == 0
                else None,
            )
    axes.set_yticks(range(len(results)), list(results))
    axes.tick_params(axis="y", length=0)
    axes.set(xlim=(0, 100), ylim=(len(results) - 0.5, -0.5), xlabel="busy (% of the time)")


def topologies_figure(
    results: Mapping[str, RelayoutResult], size: str = DEFAULT_SIZE, panels: Sequence[str] | None = None
) -> Figure:
    """The same relayout over several topologies, by name: all on the same axes of time and of bandwidth.

    Args:
        results: of `simulate_relayout`; the host's move is that of the first.
        size, panels: see `panels.SIZES` and `panels.PANELS`.

    Raises:
        InputError: there is no such size or panel.
    """
    chosen = chosen_panels(panels, "topologies")
    first = next(iter(results.values()))
    end_ns, most = max(map(_end_ns, results.values())), max(map(_most_gbps, results.values()))

    power = 10.0 ** math.floor(math.log10(most))
    round_gbps = most // power * power

    def draw(axes: Axes, name: str, result: RelayoutResult) -> None:
        _over_time(axes, result, end_ns, most, name, result is first)
        axes.set_yticks([round_gbps], [f"{round_gbps:g} GB/s"])  # there is little room, and all begin at 0

    def curve(name: str, result: RelayoutResult) -> Panel:
        return Panel(lambda axes: draw(axes, name, result), 3.2, stretches=True, over_time=True)

    times = {name: result.time_ns for name, result in results.items()}
    if first.host is not None:
        times["by the host"] = first.host.time_ns
    by_host = "" if first.host is None else f"; by the host {format_time(first.host.time_ns)}"
    fastest = min(results, key=lambda name: results[name].time_ns)
    title = (
        f"{relayout_title(first)}\n"
        f"fastest: {fastest}, {format_time(results[fastest].time_ns)}; "
        f"slowest: {format_time(max(result.time_ns for result in results.values()))}{by_host}"
    )
    energies = {name: (result.energy_nj, result.time_ns) for name, result in results.items()}
    over_time = {
        "bandwidth": [curve(name, result) for name, result in results.items()],
        "time": [Panel(lambda axes: _times(axes, times), _ROW * len(times))],
    }
    sums = {
        "busy": [Panel(lambda axes: _busy(axes, results), _ROW * len(results))],
        "energy": _energies({**energies, **_host_way(first.host)}),
    }
    return compose(title, (over_time, sums), size, chosen)


def draw_topologies(
    path: str,
    results: Mapping[str, RelayoutResult],
    size: str = DEFAULT_SIZE,
    panels: Sequence[str] | None = None,
) -> None:
    """`topologies_figure` in a file.

    Raises:
        InputError: there is no such size or panel, or the file name ends in no picture format.
    """
    save(topologies_figure(results, size, panels), path, size)
