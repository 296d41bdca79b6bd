"""A picture of an expert: bandwidth over time, phases, and where time and energy went."""

from __future__ import annotations

from matplotlib.axes import Axes

from ndpsim.report.pictures.bars import draw_bus_time, draw_energy
from ndpsim.report.pictures.canvas import save, stacked
from ndpsim.report.pictures.curves import draw_phases, draw_reads
from ndpsim.report.text import expert_title
from ndpsim.report.words import lane_name, to_host_name
from ndpsim.simulate import ExpertResult
from ndpsim.units import format_time

__all__ = ["draw_expert"]


def _where(axes: Axes, result: ExpertResult) -> None:
    """The time of a lane's data bus, mean over the lanes."""
    hardware = result.config["hardware"]
    reads = result.weight_bursts * result.weight_reads / result.lanes
    parts = {
        "data": reads * hardware["timings"]["nBL"] * result.clock_ns,
        "refresh": result.idle_ns["refresh"],
        "rows": result.idle_ns["rows"],
        "fifo full": result.idle_ns["fifo"],
    }
    draw_bus_time(axes, parts, result.time_ns, f"a {lane_name(hardware)}'s data bus")


def _title(result: ExpertResult) -> str:
    names = {"io": to_host_name(result.config["hardware"])}
    busy = ", ".join(f"{names.get(name, name)} {100 * share:.1f}%" for name, share in result.busy.items())
    bound = names.get(result.bound, result.bound)
    return f"{expert_title(result)}\n{format_time(result.time_ns)}, bound by {bound}; busy: {busy}"


def draw_expert(path: str, result: ExpertResult) -> None:
    """Bandwidth over time, the phases under it, and where the time of the data buses and the energy went.

    Raises:
        InputError: the file name ends in no picture format.
    """
    heights = (3, 1.5, 0.6) if result.energy_nj is None else (3, 1.5, 0.6, 0.6)
    figure, (top, middle, bottom, *rest) = stacked(_title(result), heights)
    draw_reads(top, result)
    top.tick_params(labelbottom=False)  # the axis of the phases serves both
    draw_phases(middle, result.phases, result.time_ns, result.config["hardware"])
    _where(bottom, result)
    if result.energy_nj is not None:
        draw_energy(rest[0], result.energy_nj, result.time_ns)
    save(figure, path)
