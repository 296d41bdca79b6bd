"""Pictures of an expert: computed near the memory, beside the host, or read by the host."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from ndpsim.base.units import Scale, format_time, percent, times
from ndpsim.dram.spec import Device
from ndpsim.dram.spec.standard import READ, READ_AP
from ndpsim.dram.traces import CommandTrace
from ndpsim.report.metrics import metric_label, scale_of
from ndpsim.report.panels import DEFAULT_SIZE
from ndpsim.report.pictures.bars import bus_panel, energy_panel, name_rows, row_panel
from ndpsim.report.pictures.canvas import COLOURS, INK, Panel, Panels, compose, tint
from ndpsim.report.text import title_of
from ndpsim.report.words import (
    counted,
    device_of,
    lane_name,
    refresh_interval_ns,
    to_host_name,
    unit_of_phase,
)
from ndpsim.simulate import ContentionResult, ExpertResult, HostReadResult, Phase
from ndpsim.simulate.statistics import equal_clocks, sample_clocks

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_RANGES = 600  # number of bins of the range, where whole refresh intervals are shorter
_REFRESHES_APART = 150  # most intervals whose ranges can be distinguished in a column
_REFRESHES_SHOWN = 25  # with more intervals than this, means are over whole ones
_PARTS = 150  # a bar of a phase is no shorter than this part of the time
_WIDENED = 0.05  # share of the time that longer bars of short phases may add
_OF_REFRESH = 3  # The range in a bin is over times of nRFC / 3; two of these are within each refresh.


@dataclass(frozen=True, eq=False)
class ReadCurve:
    """Bytes read over time, from the clocks in which data was on the buses.

    Attributes:
        edges: edges of the bins, in DRAM clocks from the first command: [bin + 1].
        data_bytes: bytes on the buses in each bin; their sum is all bytes read.
        mean_gbps: mean bandwidth in each bin.
        range_edges: edges of finer bins, likewise.
        low_gbps, high_gbps: least and greatest bandwidth of short times within each finer bin.
        within_clocks: length of the short times.
        clock_ns: length of a DRAM clock.
    """

    edges: Ints
    data_bytes: Ints
    mean_gbps: Floats
    range_edges: Ints
    low_gbps: Floats
    high_gbps: Floats
    within_clocks: Fraction
    clock_ns: float


def _data_clocks(trace: CommandTrace, start_clock: int, device: Device, edges: Ints) -> Ints:
    """The number of clocks with read data on a bus, from the start to each edge.

    It is summed over the data buses of a channel.
    """
    reads = trace.take(np.flatnonzero(np.isin(trace.numbered(device.standard.names), (READ, READ_AP))))
    starts = reads.clock - start_clock + device.read_latency
    if not device.standard.own_data_buses:
        return _on_bus(np.sort(starts), device.burst_clocks, edges)
    buses = [np.sort(starts[reads.rank == rank]) for rank in np.unique(reads.rank)]
    return sum((_on_bus(bus, device.burst_clocks, edges) for bus in buses), np.zeros_like(edges))


def _on_bus(starts: Ints, burst: int, edges: Ints) -> Ints:
    if not len(starts):
        return np.zeros_like(edges)
    begun = np.searchsorted(starts, edges, side="right")
    last = np.clip(edges - starts[np.maximum(begun - 1, 0)], 0, burst)
    return np.where(begun > 0, (begun - 1) * burst + last, 0)


def reads_over_time(result: ExpertResult | HostReadResult) -> ReadCurve:
    """Bytes read in bins of equal length, from the recorded commands.

    Bins are whole refresh intervals, so that refreshes cause no pattern; in a run with few intervals, they
    are parts of one. The range shows refreshes, because its bins remain parts of an interval in longer runs.
    """
    hardware = result.config["hardware"]
    device = device_of(hardware)
    interval, burst = device.clocks("nREFI"), device.burst_clocks
    refresh = max(1, *(device.clocks(command.busy) for command in device.standard.commands))
    range_width = sample_clocks(result.cycles, interval, _RANGES)
    if result.cycles > _REFRESHES_APART * interval:
        range_width = max(range_width, Fraction(interval))
    while range_width < min(interval, 2 * refresh) and result.cycles > interval:
        range_width *= 2
    bins = max(1, interval // range_width) if result.cycles > _REFRESHES_SHOWN * interval else 1
    if result.cycles <= interval:
        range_width = Fraction(burst * -(-range_width // burst))
    parts = max(1, -(-_OF_REFRESH * range_width // refresh))
    fine = equal_clocks(result.cycles, range_width / parts)
    data = np.zeros(len(fine), dtype=np.int64)
    alike, start = Counter(map(id, result.command_traces)), result.config.get("start_clock", 1)
    for trace in {id(trace): trace for trace in result.command_traces}.values():
        data += alike[id(trace)] * _data_clocks(trace, start, device, fine)
    moved = np.diff(data) * device.burst_bytes // burst
    gbps = moved / (np.diff(fine) * result.clock_ns)
    in_range, in_bin = (np.arange(0, len(moved), count) for count in (parts, parts * bins))
    edges = np.append(fine[in_bin], fine[-1])
    data_bytes = np.add.reduceat(moved, in_bin)
    return ReadCurve(
        edges=edges,
        data_bytes=data_bytes,
        mean_gbps=data_bytes / (np.diff(edges) * result.clock_ns),
        range_edges=np.append(fine[in_range], fine[-1]),
        low_gbps=np.minimum.reduceat(gbps, in_range),
        high_gbps=np.maximum.reduceat(gbps, in_range),
        within_clocks=range_width / parts,
        clock_ns=result.clock_ns,
    )


def time_axis(axes: Axes, end_ns: float, more: str = "") -> float:
    """Make the horizontal axis that of the time until `end_ns`; returns the length of its unit in ns."""
    scale = scale_of("time_ns", [end_ns])
    axes.set(xlabel=f"{metric_label('time_ns', scale)}{more}", xlim=(0, end_ns / scale.divisor))
    return scale.divisor


def _draw_reads(axes: Axes, result: ExpertResult | HostReadResult) -> None:
    curve, unit_ns = reads_over_time(result), time_axis(axes, result.time_ns)
    peak, mean, read = result.peak_bandwidth_gbps, result.bandwidth_gbps, COLOURS["read"]
    within_ns = float(curve.within_clocks) * result.clock_ns
    bin_ns, clock = float(curve.edges[1]) * result.clock_ns, result.clock_ns / unit_ns
    if within_ns < 0.75 * bin_ns:
        how: dict[str, Any] = {"fill": True, "color": tint(read, 0.4), "linewidth": 0}
        label = f"range of means over {format_time(within_ns)}"
        axes.stairs(curve.high_gbps, curve.range_edges * clock, baseline=curve.low_gbps, label=label, **how)
    label = f"mean over {format_time(bin_ns)}"
    axes.stairs(curve.mean_gbps, curve.edges * clock, color=read, baseline=None, label=label)
    label = f"mean over the run {mean:.1f} GB/s, {percent(result.peak_fraction)} of peak"
    axes.axhline(mean, color=INK, linestyle=":", label=label)
    axes.axhline(peak, color=INK, linestyle="--", label=f"peak {peak:.1f} GB/s")
    bandwidth = metric_label("bandwidth_gbps", Scale("GB/s"), results=(ExpertResult,))
    axes.set(ylabel=f"weights read: {bandwidth}", ylim=(0, peak * 1.08))


def read_panel(result: ExpertResult | HostReadResult) -> Panel:
    """Reads over time, the range of shorter times, the mean of all and the peak."""
    return Panel(lambda axes: _draw_reads(axes, result), 8, stretches=True, axis="time")


def means_of(
    ends_ns: Sequence[float], gbps: Sequence[float], interval_ns: float
) -> tuple[Floats, Floats, bool]:
    """Means over time slices, or over whole refresh intervals if there are many slices.

    Args:
        ends_ns, gbps: ends and bandwidths of slices, which are whole intervals or equal parts of one.
        interval_ns: time from refresh to refresh.

    Returns:
        Edges in ns, the means, and whether they are over whole intervals.
    """
    edges, values = np.append(0.0, ends_ns), np.array(gbps)
    parts = round(interval_ns / ends_ns[0])
    if parts <= 1 or ends_ns[-1] <= _REFRESHES_SHOWN * interval_ns:
        return edges, values, False
    first = np.arange(0, len(values), parts)
    moved = np.add.reduceat(values * np.diff(edges), first)
    edges = np.append(edges[first], edges[-1])
    return edges, moved / np.diff(edges), True


def draw_means(
    axes: Axes,
    ends_ns: Sequence[float],
    gbps: Sequence[float],
    interval_ns: float,
    unit_ns: float,
    **how: Any,
) -> None:
    """Draw a curve of `means_of`; a lighter curve shows all slices if the means are over refresh intervals.

    Args:
        axes: the axes to draw into.
        ends_ns, gbps, interval_ns: as for `means_of`.
        unit_ns: length of the unit of the time axis.
        how: color, linestyle, label.
    """
    edges, values, whole = means_of(ends_ns, gbps, interval_ns)
    if whole:
        light = {**how, "color": tint(how["color"], 0.4), "label": None, "linestyle": "-"}
        axes.stairs(gbps, np.append(0.0, ends_ns) / unit_ns, baseline=None, **light)
    axes.stairs(values, edges / unit_ns, baseline=None, zorder=2.5, **how)


def phase_bars(spans: Sequence[tuple[float, float]], time_ns: float) -> tuple[Floats, Floats, Floats]:
    """Starts, lengths and heights, as shares of a row, of the bars for spans of time.

    A short span has a bar that can be seen. If such bars would fill much more of the row than the spans do,
    there is a bar for each part of the time instead, as high as the share of it that is within spans.
    """
    starts, ends = np.array(spans, float).reshape(-1, 2).T
    least_ns = time_ns / _PARTS
    lengths = np.maximum(ends - starts, least_ns)
    if (lengths - (ends - starts)).sum() <= _WIDENED * time_ns:
        return starts, lengths, np.ones(len(starts))
    edges = np.linspace(0.0, time_ns, _PARTS + 1)
    within_ns = np.clip(ends[:, None], edges[:-1], edges[1:]) - np.clip(
        starts[:, None], edges[:-1], edges[1:]
    )
    return edges[:-1], np.diff(edges), np.minimum(within_ns.sum(0) / least_ns, 1.0)


_KINDS = {"activations-in": "host", "activation": "activation unit", "result-out": "host"}  # others compute


def phase_panel(phases: Sequence[Phase], time_ns: float, hardware: Mapping[str, Any]) -> Panel:
    """The work of the units in the expert program, a row for each phase."""
    ran = {phase.name for phase in phases}
    units = {name: unit for name, unit in unit_of_phase(hardware).items() if name in ran}
    rows = {name: (row, COLOURS[_KINDS.get(name, "compute")]) for row, name in enumerate(units)}

    def draw(axes: Axes) -> None:
        unit_ns = time_axis(axes, time_ns)
        for name, (y, colour) in rows.items():
            spans = [(phase.start_ns, phase.end_ns) for phase in phases if phase.name == name]
            starts, lengths, heights = phase_bars(spans, time_ns)
            axes.barh(y, lengths / unit_ns, 0.7 * heights, starts / unit_ns, color=colour)
        name_rows(axes, [f"{name} ({unit})" for name, unit in units.items()])

    return Panel(draw, 6.5, axis="time")


_SIGHT = 5  # limits above all curves by more than this factor are only in the legend
_NDP, _HOST = COLOURS["compute"], COLOURS["host"]


def expert_figure(result: ExpertResult, size: str = DEFAULT_SIZE, panels: Panels = None) -> Figure:
    """Bandwidth over time, phases, and the parts of the data buses' time and of the energy.

    Args:
        result: a result with recorded commands.
    """
    hardware = result.config["hardware"]
    names = {"io": to_host_name(hardware)}
    busy = ", ".join(f"{names.get(name, name)} {percent(share)}" for name, share in result.busy.items())
    bound = names.get(result.bound, result.bound)
    title = f"{title_of(result)}\n{format_time(result.time_ns)}, bound by {bound}; busy: {busy}"
    reads = result.weight_bursts * result.weight_reads / result.lanes  # of a lane, in the mean
    parts = {
        "data": reads * device_of(hardware).burst_clocks * result.clock_ns,
        **{name: result.idle_ns[name] for name in ("refresh", "rows")},
        "FIFO full": result.idle_ns["fifo"],
    }
    phases = phase_panel(result.phases, result.time_ns, hardware)
    bus = bus_panel(parts, result.time_ns, f"a {lane_name(hardware)}'s data bus")
    went = {"bus": bus, "energy": energy_panel(result.energy_nj, result.time_ns)}
    return compose(title, ({"bandwidth": read_panel(result), "phases": phases}, went), size, panels, "expert")


def host_read_figure(result: HostReadResult, size: str = DEFAULT_SIZE, panels: Panels = None) -> Figure:
    """Traffic of all buses over time, the parts of the mean bus's time, and the energy by part.

    Args:
        result: a result with recorded commands.
    """
    over = f"{counted(result.channels, 'channel')}, {counted(result.buses, 'bus')}"
    title = f"{title_of(result)}\n{format_time(result.time_ns)} over {over}"
    burst_ns = device_of(result.config["hardware"]).burst_clocks * result.clock_ns
    parts = {"data": result.weight_bursts / result.buses * burst_ns, **result.idle_ns}
    bus = bus_panel(parts, result.time_ns, "a bus")
    went = {"bus": bus, "energy": energy_panel(result.energy_nj, result.time_ns)}
    return compose(title, ({"bandwidth": read_panel(result)}, went), size, panels, "host-read")


def _both_over_time(axes: Axes, result: ContentionResult) -> None:
    """Traffic of both sides, and the limits of the lanes and of the buses to the host."""
    sides = (
        ("NDP", _NDP, result.ndp_curve_gbps, result.ndp_gbps, result.ndp_alone_gbps),
        ("host", _HOST, result.host_curve_gbps, result.host_gbps, result.host_alone_gbps),
    )
    limits = (("lanes", "--", result.lanes_peak_gbps), ("host bus", ":", result.bus_peak_gbps))
    unit_ns, interval_ns = time_axis(axes, result.ndp_time_ns), refresh_interval_ns(result.config["hardware"])
    for name, colour, gbps, mean, alone in sides:
        label = f"{name}: mean {mean:.1f} GB/s, alone {alone:.1f} GB/s"
        draw_means(axes, result.curve_ns, gbps, interval_ns, unit_ns, color=colour, label=label)
    most = max(*result.ndp_curve_gbps, *result.host_curve_gbps)
    for name, style, peak in limits:
        axes.axhline(peak, color=INK, linestyle=style, label=f"peak of the {name} {peak:.1f} GB/s")
    in_sight = [peak for *_, peak in limits if peak < _SIGHT * most]
    axes.set_ylabel(metric_label("bandwidth_gbps", Scale("GB/s"), results=(ExpertResult,)))
    axes.set_ylim(0, 1.08 * max(most, *in_sight, 0.0))


def _both_times(result: ContentionResult) -> Panel:
    """The time of each side, alone and beside the other."""
    both = result.ndp_time_ns, result.host_time_ns
    alone = result.ndp_alone_ns, result.host_alone_ns
    ns = [alone[0], both[0], alone[1], both[1]]
    scale = scale_of("time_ns", both)
    words = list(map(format_time, ns))
    for row, slowdown in ((1, result.ndp_slowdown), (3, result.host_slowdown)):
        words[row] = "nothing asked for" if slowdown is None else f"{words[row]}, {times(slowdown)}"
    colours = [tint(_NDP, 0.35), _NDP, tint(_HOST, 0.35), _HOST]
    names = ["NDP alone", "NDP beside host", "host alone", "host beside NDP"]
    lengths = [time_ns / scale.divisor for time_ns in ns]
    label = f"{metric_label('time_ns', scale)}, for the same work"
    return row_panel(names, {"": (colours, lengths, words)}, label, lines=1.3)


def contention_figure(result: ContentionResult, size: str = DEFAULT_SIZE, panels: Panels = None) -> Figure:
    """Traffic of both sides over time, the expert's phases, both times, and the energy by part.

    Args:
        result: of `simulate_contention`.
    """
    host = "" if result.host_slowdown is None else f", host {times(result.host_slowdown)}"
    title = f"{title_of(result)}\nslowdown: NDP {times(result.ndp_slowdown)}{host}"
    over_time = {
        "bandwidth": Panel(lambda axes: _both_over_time(axes, result), 8, stretches=True, axis="time"),
        "phases": phase_panel(result.phases, result.ndp_time_ns, result.config["hardware"]),
    }
    energy = energy_panel(result.energy_nj, max(result.ndp_time_ns, result.host_time_ns))
    sums = {"time": _both_times(result), "energy": energy}
    return compose(title, (over_time, sums), size, panels, "contention")


#: The function that draws each kind of result.
FIGURES: Mapping[type, Callable[..., Figure]] = {
    ExpertResult: expert_figure,
    ContentionResult: contention_figure,
    HostReadResult: host_read_figure,
}
