"""Pictures of programs of units in banks: bytes over time, and the commands."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ndpsim.base.units import Scale, format_time
from ndpsim.config.banks import BankHardware
from ndpsim.report.metrics import metric_label
from ndpsim.report.panels import DEFAULT_SIZE
from ndpsim.report.pictures.bars import row_panel
from ndpsim.report.pictures.canvas import COLOURS, Panel, Panels, compose
from ndpsim.report.pictures.expert import time_axis
from ndpsim.report.pim import pim_title
from ndpsim.simulate.pim import command_bytes
from ndpsim.simulate.results.expert import ExpertResult
from ndpsim.simulate.results.pim import PimResult

_PARTS = 100  # of the time
_WHERE = "in the banks", "across the pins"


def _over_time(axes: Axes, result: PimResult, hardware: BankHardware) -> None:
    """Bytes in the banks and across the pins, in equal parts of the time."""
    unit_ns = time_axis(axes, result.time_ns)
    edges = np.linspace(0.0, result.time_ns, _PARTS + 1)
    traces = result.command_traces
    assert traces is not None
    sizes = np.array([command_bytes(hardware, command) for command in hardware.device.commands], np.float64)
    times = traces.columns[0] * result.clock_ns
    for label, size, colour in zip(_WHERE, sizes.T, (COLOURS["read"], COLOURS["link"]), strict=True):
        totals, _ = np.histogram(times, edges, weights=size[traces.columns[1]])
        gbps = totals / np.diff(edges)
        mean = totals.sum() / result.time_ns
        axes.stairs(
            gbps, edges / unit_ns, baseline=None, color=colour, label=f"{label}: mean {mean:.1f} GB/s"
        )
    axes.set_ylabel(metric_label("bandwidth_gbps", Scale("GB/s"), results=(ExpertResult,)))
    axes.set_ylim(bottom=0)


def _commands(result: PimResult) -> Panel:
    """The number of each command."""
    counts = dict(sorted(result.commands.items(), key=lambda item: -item[1]))
    words = [f"{count:,}" for count in counts.values()]
    bars = COLOURS["compute"], list(map(float, counts.values())), words
    return row_panel(list(counts), {"": bars}, "commands over all channels")


def pim_figure(
    result: PimResult, hardware: BankHardware, size: str = DEFAULT_SIZE, panels: Panels = None
) -> Figure:
    """Bytes in the banks and across the pins over time, and the number of each command.

    Args:
        result: a result with recorded commands.
        hardware: the device of the run.
    """
    title = f"{pim_title(result)}\n{format_time(result.time_ns)}, {result.unit_gbps:,.0f} GB/s in the banks"
    over_time = {
        "bandwidth": Panel(lambda axes: _over_time(axes, result, hardware), 8, stretches=True, axis="time")
    }
    return compose(title, (over_time, {"commands": _commands(result)}), size, panels, "banks")
