"""A picture of a relayout: data over time, how busy wires and DRAM were, and the energy."""

from __future__ import annotations

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ndpsim.report.pictures.bars import compare_energies
from ndpsim.report.pictures.canvas import BLUE, GREEN, ORANGE, SKY, VERMILION, save, set_title
from ndpsim.report.relayout import relayout_title
from ndpsim.simulate import RelayoutResult
from ndpsim.units import format_time

__all__ = ["draw_relayout"]

_WIRES_NAMED = 52


def _over_time(axes: Axes, result: RelayoutResult) -> None:
    edges_us = np.append(0.0, result.curve_ns) / 1000
    axes.stairs(result.read_gbps, edges_us, color=BLUE, label="read at the sources")
    axes.stairs(result.written_gbps, edges_us, color=VERMILION, label="arrived at the targets")
    axes.set(xlabel="time (us)", ylabel="GB/s", xlim=(0, edges_us[-1]), ylim=(0, None))
    axes.legend(
        ncols=2, frameon=False, fontsize=8, loc="lower right", bbox_to_anchor=(1.0, 1.0), borderaxespad=0.1
    )


def _wires(axes: Axes, result: RelayoutResult) -> None:
    names, busy = list(result.link_busy), [100 * share for share in result.link_busy.values()]
    axes.bar(range(len(busy)), busy, color=ORANGE)
    axes.set(ylabel="busy (%)", ylim=(0, 105), xlabel=f"wires ({result.topology})")
    short = [name.removeprefix("dimm ").replace(" to ", ">") for name in names]
    if len(names) <= _WIRES_NAMED:
        axes.set_xticks(range(len(names)), short, rotation=90, fontsize=7)
    else:
        axes.set_xticks([])


def _dram(axes: Axes, result: RelayoutResult) -> None:
    """How busy the data bus of the busiest lane was, for each kind of data."""
    busy = [100 * share for share in result.dram_busy.values()]
    bars = axes.bar(range(len(busy)), busy, color=(BLUE, SKY, GREEN))
    axes.bar_label(bars, fmt="%.1f", fontsize=7)
    axes.set_xticks(range(len(busy)), list(result.dram_busy), fontsize=8)
    axes.set(ylim=(0, 105), xlabel="DRAM bus,\nbusiest lane")


def draw_relayout(path: str, result: RelayoutResult) -> None:
    """What was read and what arrived over time, how busy wires and DRAM were, and the energy.

    The energy of the same move by the host stands beside it, where that was simulated.

    Raises:
        InputError: the file name ends in no picture format.
    """
    ways = {"over links": (result.energy_nj, result.time_ns)}
    if result.host is not None:
        ways["by the host"] = result.host.energy_nj, result.host.time_ns
    known = {way: (parts, time_ns) for way, (parts, time_ns) in ways.items() if parts is not None}
    mosaic: Any = [["time", "time"], ["wires", "dram"], *([["energy", "energy"]] if known else [])]
    heights = (3, 3, 0.35 * (len(known) + 1))[: len(mosaic)]
    figure: Figure
    figure, axes = plt.subplot_mosaic(
        mosaic,
        figsize=(10, 1 + 1.05 * sum(heights)),
        height_ratios=heights,
        width_ratios=(6, 1),
        layout="constrained",
    )
    if result.curve_ns:
        _over_time(axes["time"], result)
    _wires(axes["wires"], result)
    _dram(axes["dram"], result)
    if known:
        compare_energies(axes["energy"], known)
    by_host = "" if result.host is None else f"; by the host {format_time(result.host.time_ns)}"
    done = f"{format_time(result.time_ns)}, bound by {result.bottleneck}{by_host}"
    set_title(figure, f"{relayout_title(result)}\n{done}")
    save(figure, path)
