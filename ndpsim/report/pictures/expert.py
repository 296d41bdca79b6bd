"""Pictures of an expert, computed near the memory or read by the host."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ndpsim.base.units import format_time, percent
from ndpsim.report.dram import device_of
from ndpsim.report.panels import DEFAULT_SIZE
from ndpsim.report.pictures.bars import draw_bus_time, energy_panels, share_panel
from ndpsim.report.pictures.canvas import Panels, compose
from ndpsim.report.pictures.curves import phase_panels, read_panels
from ndpsim.report.text import title_of
from ndpsim.report.words import counted, lane_name, to_host_name
from ndpsim.simulate import ExpertResult, HostReadResult


def _where(axes: Axes, result: ExpertResult) -> None:
    """Draw the time of a lane's data bus, mean over the lanes."""
    hardware = result.config["hardware"]
    reads = result.weight_bursts * result.weight_reads / result.lanes
    parts = {
        "data": reads * device_of(hardware).burst_clocks * result.clock_ns,
        "refresh": result.idle_ns["refresh"],
        "rows": result.idle_ns["rows"],
        "FIFO full": result.idle_ns["fifo"],
    }
    draw_bus_time(axes, parts, result.time_ns, f"a {lane_name(hardware)}'s data bus")


def expert_figure(result: ExpertResult, size: str = DEFAULT_SIZE, panels: Panels = None) -> Figure:
    """Bandwidth over time, phases, and the parts of the data buses' time and of the energy.

    Args:
        result: a result with recorded commands.
    """
    names = {"io": to_host_name(result.config["hardware"])}
    busy = ", ".join(f"{names.get(name, name)} {percent(share)}" for name, share in result.busy.items())
    bound = names.get(result.bound, result.bound)
    title = f"{title_of(result)}\n{format_time(result.time_ns)}, bound by {bound}; busy: {busy}"
    over_time = {
        "bandwidth": read_panels(result),
        "phases": phase_panels(result.phases, result.time_ns, result.config["hardware"]),
    }
    went = {
        "bus": share_panel(lambda axes: _where(axes, result)),
        "energy": energy_panels(result.energy_nj, result.time_ns),
    }
    return compose(title, (over_time, went), size, panels, "expert")


def host_read_figure(result: HostReadResult, size: str = DEFAULT_SIZE, panels: Panels = None) -> Figure:
    """Traffic of all buses over time, the parts of the mean bus's time, and the energy by part.

    Args:
        result: a result with recorded commands.
    """
    over = f"{counted(result.channels, 'channel')}, {counted(result.buses, 'bus')}"
    title = f"{title_of(result)}\n{format_time(result.time_ns)} over {over}"
    burst_ns = device_of(result.config["hardware"]).burst_clocks * result.clock_ns
    parts = {"data": result.weight_bursts / result.buses * burst_ns, **result.idle_ns}
    went = {
        "bus": share_panel(lambda axes: draw_bus_time(axes, parts, result.time_ns, "a bus")),
        "energy": energy_panels(result.energy_nj, result.time_ns),
    }
    return compose(title, ({"bandwidth": read_panels(result)}, went), size, panels, "host-read")
