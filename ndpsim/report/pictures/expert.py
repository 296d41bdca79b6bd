"""A picture of an expert: bandwidth over time, phases, and parts of time and energy."""

from __future__ import annotations

from matplotlib.axes import Axes

from ndpsim.report.dram import device_of
from ndpsim.report.pictures.bars import draw_bus_time, energy_panels, share_panel
from ndpsim.report.pictures.canvas import Drawing, figure
from ndpsim.report.pictures.curves import phase_panels, read_panels
from ndpsim.report.text import expert_title
from ndpsim.report.words import lane_name, to_host_name
from ndpsim.simulate import ExpertResult
from ndpsim.units import format_time, percent


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


@figure("expert")
def expert_figure(result: ExpertResult) -> Drawing:
    """Bandwidth over time, phases, and the parts of the data buses' time and of the energy.

    Args:
        result: a result with recorded commands.
    """
    names = {"io": to_host_name(result.config["hardware"])}
    busy = ", ".join(f"{names.get(name, name)} {percent(share)}" for name, share in result.busy.items())
    bound = names.get(result.bound, result.bound)
    title = f"{expert_title(result)}\n{format_time(result.time_ns)}, bound by {bound}; busy: {busy}"
    over_time = {
        "bandwidth": read_panels(result),
        "phases": phase_panels(result.phases, result.time_ns, result.config["hardware"]),
    }
    went = {
        "bus": share_panel(lambda axes: _where(axes, result)),
        "energy": energy_panels(result.energy_nj, result.time_ns),
    }
    return Drawing(title, (over_time, went))
