"""A picture of an expert that the host reads: bandwidth over time, and where time and energy went."""

from __future__ import annotations

from ndpsim.report.pictures.bars import draw_bus_time, draw_energy
from ndpsim.report.pictures.canvas import save, stacked
from ndpsim.report.pictures.curves import draw_reads
from ndpsim.report.text import host_read_title
from ndpsim.simulate import HostReadResult
from ndpsim.units import format_time

__all__ = ["draw_host_read"]


def draw_host_read(path: str, result: HostReadResult) -> None:
    """What the buses carry over time together, and where the time of one, in the mean, and the energy went.

    Raises:
        InputError: the file name ends in no picture format.
    """
    channels = "1 channel" if result.channels == 1 else f"{result.channels} channels"
    buses = "1 bus" if result.buses == 1 else f"{result.buses} buses"
    title = f"{host_read_title(result)}\n{format_time(result.time_ns)} over {channels}, {buses}"
    figure, (top, middle, *rest) = stacked(title, (3, 0.6) if result.energy_nj is None else (3, 0.6, 0.6))
    draw_reads(top, result)
    top.set_xlabel("time (us)")
    burst_ns = result.config["hardware"]["timings"]["nBL"] * result.clock_ns
    parts = {"data": result.weight_bursts / result.buses * burst_ns, **result.idle_ns}
    draw_bus_time(middle, parts, result.time_ns, "a bus")
    if result.energy_nj is not None:
        draw_energy(rest[0], result.energy_nj, result.time_ns)
    save(figure, path)
