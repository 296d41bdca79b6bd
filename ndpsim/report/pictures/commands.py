"""A picture of DRAM commands: a row for each bank, and the data buses below."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ndpsim.base.units import format_time
from ndpsim.dram.spec import Device
from ndpsim.report.command_slices import Bank, CommandSlices
from ndpsim.report.panels import DEFAULT_SIZE
from ndpsim.report.pictures.bars import name_rows
from ndpsim.report.pictures.canvas import COLOURS, Panel, compose, tint
from ndpsim.report.pictures.expert import time_axis

_MOST_BANKS = 40  # more rows would not be read
_ROW = 0.9  # lines of text for a row


def commands_figure(title: str, slices: CommandSlices, size: str = DEFAULT_SIZE) -> Figure:
    """The commands of a channel or lane over the time since its first command.

    A row is drawn for each bank that a command names, and not for banks that only refreshes and precharges
    of a whole rank concern; at most 40, the first.

    Args:
        size: see `panels.SIZES`.
    """
    using = _of_one_bank(slices.device)
    named = [bank for bank, row in slices.banks.items() if any(each.command in using for each in row)]
    shown = named[:_MOST_BANKS] or list(slices.banks)[:_MOST_BANKS]
    rest = len(named) - len(shown)
    shown_ns = (slices.end_clock - slices.first_clock) * _clock_ns(slices)
    more = f"; {rest} more banks are not drawn" if rest > 0 else ""
    lines = [title, f"the first {format_time(shown_ns)}{more}"]
    panel = Panel(
        lambda axes: _draw(axes, slices, shown), _ROW * (len(shown) + len(slices.buses)), stretches=True
    )
    return compose("\n".join(lines), [{"commands": panel}], size)


def _clock_ns(slices: CommandSlices) -> float:
    return float(slices.device.clock_ps) / 1000


def _of_one_bank(device: Device) -> set[str]:
    """The commands that open, read or write a bank."""
    commands = device.standard.commands
    return {command.name for command in commands if command.opens or command.reads or command.writes}


def _draw(axes: Axes, slices: CommandSlices, shown: Sequence[Bank]) -> None:
    clock_ns = _clock_ns(slices)
    unit_ns = time_axis(axes, (slices.end_clock - slices.first_clock) * clock_ns, " since the first command")
    rows = [slices.banks[bank] for bank in shown] + list(slices.buses.values())
    kinds = _kinds(slices.device)
    spans: dict[str, list[list[tuple[float, float]]]] = {}
    for number, row in enumerate(rows):
        for each in row:
            start, lasts = each.start - slices.first_clock, each.end - each.start
            per_row = spans.setdefault(kinds[each.command], [[] for _ in rows])
            per_row[number].append((start * clock_ns / unit_ns, lasts * clock_ns / unit_ns))
    for kind, colour in _COLOURS.items():
        for number, bars in enumerate(spans.get(kind, ())):
            if bars:
                axes.broken_barh(bars, (number - 0.4, 0.8), facecolors=colour, linewidth=0)
        if kind in spans:
            axes.barh(0, 0, color=colour, label=kind)
    name_rows(
        axes, [", ".join(map(str, bank)) for bank in shown] + [slices.bus_name(rank) for rank in slices.buses]
    )
    _, rank, *_, group, bank_level = slices.device.standard.levels
    axes.set_ylabel(f"{rank}, {group}, {bank_level}")


#: The kinds of commands in the legend; reads and writes are also those on the data bus.
_COLOURS = {
    "activate": COLOURS["rows"],
    "precharge": tint(COLOURS["rows"], 0.4),
    "read": COLOURS["read"],
    "write": COLOURS["write"],
    "refresh": COLOURS["refresh"],
    "other": COLOURS["everything"],
}


def _kinds(device: Device) -> dict[str, str]:
    """The kind of each command of a device."""
    kinds = {}
    for command in device.standard.commands:
        effects = {
            "read": command.reads,
            "write": command.writes,
            "activate": command.opens or bool(command.completed_by),
            "refresh": command.refreshes or command.manages,
            "precharge": command.closes,
        }
        kinds[command.name] = next((kind for kind, has in effects.items() if has), "other")
    return kinds
