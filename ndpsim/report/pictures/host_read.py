"""A picture of an expert that the host reads: bandwidth over time, and parts of time and energy."""

from __future__ import annotations

from ndpsim.report.dram import device_of
from ndpsim.report.pictures.bars import draw_bus_time, energy_panels, share_panel
from ndpsim.report.pictures.canvas import Drawing, figure
from ndpsim.report.pictures.curves import read_panels
from ndpsim.report.text import host_read_title
from ndpsim.report.words import counted
from ndpsim.simulate import HostReadResult
from ndpsim.units import format_time


@figure("host-read")
def host_read_figure(result: HostReadResult) -> Drawing:
    """Traffic of all buses over time, the parts of the mean bus's time, and the energy by part.

    Args:
        result: a result with recorded commands.
    """
    over = f"{counted(result.channels, 'channel')}, {counted(result.buses, 'bus')}"
    title = f"{host_read_title(result)}\n{format_time(result.time_ns)} over {over}"
    burst_ns = device_of(result.config["hardware"]).burst_clocks * result.clock_ns
    parts = {"data": result.weight_bursts / result.buses * burst_ns, **result.idle_ns}
    went = {
        "bus": share_panel(lambda axes: draw_bus_time(axes, parts, result.time_ns, "a bus")),
        "energy": energy_panels(result.energy_nj, result.time_ns),
    }
    return Drawing(title, ({"bandwidth": read_panels(result)}, went))
