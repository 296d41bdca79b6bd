"""A picture of a relayout: data over time, and how busy each wire was."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ndpsim.report.draw import _COLOURS, _save
from ndpsim.report.relayout import relayout_title
from ndpsim.simulate import RelayoutResult
from ndpsim.units import format_time

__all__ = ["draw_relayout"]

_WIRES_NAMED = 40


def _over_time(axes: Axes, result: RelayoutResult) -> None:
    edges_us = np.append(0.0, result.curve_ns) / 1000
    axes.stairs(result.read_gbps, edges_us, color=_COLOURS["data"], label="read at the sources")
    axes.stairs(result.written_gbps, edges_us, color=_COLOURS["fifo full"], label="arrived at the targets")
    axes.set(xlabel="time (us)", ylabel="GB/s", xlim=(0, edges_us[-1]), ylim=(0, None))
    axes.legend(frameon=False, fontsize=8)


def _wires(axes: Axes, result: RelayoutResult) -> None:
    names, busy = list(result.link_busy), [100 * share for share in result.link_busy.values()]
    axes.bar(range(len(busy)), busy, color=_COLOURS["refresh"])
    axes.set(ylabel="busy (%)", ylim=(0, 100), xlabel=f"wires ({result.topology})")
    if len(names) <= _WIRES_NAMED:
        short = [name.removeprefix("dimm ").replace(" to ", ">") for name in names]
        axes.set_xticks(range(len(names)), short, rotation=90, fontsize=7)


def draw_relayout(path: str, result: RelayoutResult) -> None:
    """What was read and what arrived over time, and how busy each wire was.

    Raises:
        InputError: the file name ends in no picture format.
    """
    figure: Figure
    figure, (top, bottom) = plt.subplots(2, 1, figsize=(10, 6), layout="constrained")
    if result.curve_ns:
        _over_time(top, result)
    _wires(bottom, result)
    figure.suptitle(
        f"{relayout_title(result)}: {format_time(result.time_ns)}, bound by {result.bottleneck}",
        fontsize=11,
        parse_math=False,
    )
    _save(figure, path)
