"""Where time and energy went, as bars."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from matplotlib.axes import Axes

from ndpsim.report.pictures.canvas import Panel
from ndpsim.report.pictures.colours import COLOURS, ENERGY, INK
from ndpsim.units import format_energy, format_power, format_time

_TIMES = {
    "data": "read",
    "refresh": "refresh",
    "rows": "rows",
    "fifo full": "compute",
    "nothing to read": "idle",
}
_UNITS = (("J", 1e9), ("mJ", 1e6), ("µJ", 1e3), ("nJ", 1.0))
_BAR_LINES = 1.3


def share_panel(draw: Callable[[Axes], None]) -> list[Panel]:
    """A panel of one bar."""
    return [Panel(draw, _BAR_LINES)]


def energy_panels(energy_nj: Mapping[str, float | None] | None, time_ns: float) -> list[Panel]:
    """The panel of `draw_energy`; none where nothing is known."""
    if energy_nj is None:
        return []
    return share_panel(lambda axes: draw_energy(axes, energy_nj, time_ns))


def _shares(axes: Axes, parts: Mapping[str, tuple[float, str]], meanings: Mapping[str, str]) -> None:
    """One bar of 100%: parts with their sizes and what the legend says of each."""
    total, left = sum(size for size, _ in parts.values()), 0.0
    for name, (size, words) in parts.items():
        share = 100 * size / total
        label = f"{name} {share:.1f}% ({words})"
        axes.barh(0, share, left=left, color=COLOURS[meanings[name]], height=1, label=label)
        left += share
    for bar in axes.patches:
        bar.set(edgecolor="white", linewidth=0.5 * float(axes.spines["left"].get_linewidth()))
    axes.set(yticks=[], xlim=(0, 100), ylim=(-0.5, 0.5))
    axes.spines["left"].set_visible(False)


def draw_bus_time(axes: Axes, parts_ns: Mapping[str, float], time_ns: float, bus: str) -> None:
    """The time of a data bus, in ns by what it did: "data", "refresh", "rows", "fifo full".

    The rest of `time_ns` is drawn as "nothing to read". `bus`: in words, of which the mean is meant.
    """
    parts = {**parts_ns, "nothing to read": max(0.0, time_ns - sum(parts_ns.values()))}
    _shares(axes, {name: (ns, format_time(ns)) for name, ns in parts.items()}, _TIMES)
    axes.set_xlabel(f"where the time of {bus} went (%)")


def energy_parts(energy_nj: Mapping[str, float | None]) -> dict[str, float]:
    """Energies in nJ by what is drawn: components that are above 0, those of the NDP units together."""
    parts = dict.fromkeys(ENERGY, 0.0)
    for name, nj in energy_nj.items():
        if name != "total":
            parts["ndp" if name.startswith("ndp_") else name] += nj or 0.0
    return {name: nj for name, nj in parts.items() if nj > 0}


def draw_energy(axes: Axes, energy_nj: Mapping[str, float | None], time_ns: float) -> None:
    """Energies in nJ by component as one bar, those of the NDP units together, with the power of each."""
    parts = energy_parts(energy_nj)
    total = sum(parts.values())
    _shares(axes, {name: (nj, format_power(nj / time_ns)) for name, nj in parts.items()}, ENERGY)
    unknown = [name for name, nj in energy_nj.items() if nj is None]
    without = f"; not known: {', '.join(unknown)}" if unknown else ""
    axes.set_xlabel(
        f"where the energy went (%), {format_energy(total)}, {format_power(total / time_ns)}{without}"
    )


def compare_energies(axes: Axes, ways: Mapping[str, tuple[Mapping[str, float | None], float]]) -> None:
    """Energies in nJ by component, and the time in ns they are over, of several ways to do the same."""
    bars = {name: energy_parts(energy_nj) for name, (energy_nj, _) in ways.items()}
    most = max(sum(parts.values()) for parts in bars.values())
    unit, size = next(((unit, size) for unit, size in _UNITS if most >= size), _UNITS[-1])
    left = dict.fromkeys(bars, 0.0)
    thin = 0.5 * float(axes.spines["left"].get_linewidth())
    for component, meaning in ENERGY.items():
        widths = [parts.get(component, 0.0) / size for parts in bars.values()]
        if any(widths):
            axes.barh(
                range(len(bars)),
                widths,
                left=list(left.values()),
                color=COLOURS[meaning],
                edgecolor="white",
                linewidth=thin,
                height=0.7,
                label=component,
            )
            left = {name: at + width for (name, at), width in zip(left.items(), widths, strict=True)}
    for place, (name, (_, time_ns)) in enumerate(ways.items()):
        nj = sum(bars[name].values())
        words = f" {format_energy(nj)}, {format_power(nj / time_ns)}"
        axes.text(left[name], place, words, va="center", color=INK)
    axes.set(xlabel=f"energy ({unit})", xlim=(0, most / size), ylim=(len(bars) - 0.5, -0.5))
    axes.set_yticks(range(len(bars)), list(bars))
    axes.tick_params(axis="y", length=0)
