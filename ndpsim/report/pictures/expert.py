"""Pictures of an expert: computed near the memory, beside the host, or read by the host."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ndpsim.base.units import Scale, format_time, percent, times
from ndpsim.report.metrics import metric_label, scale_of
from ndpsim.report.panels import DEFAULT_SIZE
from ndpsim.report.pictures.bars import bus_panel, energy_panel, row_panel
from ndpsim.report.pictures.canvas import Panel, Panels, compose
from ndpsim.report.pictures.colours import COLOURS, INK, tint
from ndpsim.report.pictures.curves import draw_means, phase_panel, read_panel, time_axis
from ndpsim.report.text import title_of
from ndpsim.report.words import counted, device_of, lane_name, refresh_interval_ns, to_host_name
from ndpsim.simulate import ContentionResult, ExpertResult, HostReadResult

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
