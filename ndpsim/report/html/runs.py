"""Reports of runs of experts, relayouts and request traces."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from matplotlib.figure import Figure

from ndpsim.base.reported import quantities
from ndpsim.config import Hardware
from ndpsim.config.banks import BankHardware
from ndpsim.report.html.page import (
    Cell,
    Column,
    Folded,
    HtmlTable,
    Part,
    Section,
    configuration,
    measured,
    picture,
    plain_cell,
    provenance,
    table_of,
    when,
    write_page,
)
from ndpsim.report.pictures.banks import pim_figure
from ndpsim.report.pictures.expert import FIGURES
from ndpsim.report.pictures.latencies import latencies_figure, sweep_figure
from ndpsim.report.pictures.relayout import relayout_figure, topologies_figure
from ndpsim.report.pim import pim_rows, pim_title
from ndpsim.report.text import Timed, facts_of, title_of, topologies_table
from ndpsim.report.words import component_words, counted
from ndpsim.simulate import (
    ContentionResult,
    ExpertResult,
    HostReadResult,
    LoadPoint,
    Memory,
    RelayoutResult,
    TraceResult,
)
from ndpsim.simulate.results.pim import PimResult

#: The command of each kind of result.
_COMMANDS = {
    ExpertResult: "gemv",
    ContentionResult: "gemv, beside host traffic",
    HostReadResult: "gemv, read by the host",
    RelayoutResult: "relayout",
    TraceResult: "dram",
}


_FIGURES: Mapping[type, Callable[..., Figure]] = {
    **FIGURES,
    RelayoutResult: relayout_figure,
    TraceResult: latencies_figure,
}


def _write(path: str, title: str, command: str, *sections: Section) -> None:
    write_page(path, title, f"ndpsim {command}", [*sections, provenance()])


def write_run_report(
    path: str, result: Timed, hardware: Hardware | None, memory: Memory | None = None
) -> None:
    """The report of an expert, alone, beside the host or read by it, of a relayout, or of a request trace.

    Args:
        path: the path of the file.
        result: the result of the run.
        hardware: the hardware of the run; None: the memory was given by names.
        memory: the memory of a request trace.

    Raises:
        InputError: the file cannot be written.
    """
    title, command = title_of(result), _COMMANDS[type(result)]
    if isinstance(result, RelayoutResult):
        command += f", {result.topology}"
    drawn = picture("run", lambda: _FIGURES[type(result)](result), title)
    _write(
        path,
        title,
        command,
        Section("Summary", HtmlTable((), facts_of(result))),
        Section(
            "Read latencies" if isinstance(result, TraceResult) else "Over time",
            drawn,
            *_tables(result),
            _energy_table(result),
        ),
        configuration(result.config, hardware, *([_timings(memory)] if memory else ())),
    )


def write_pim_report(path: str, result: PimResult, hardware: BankHardware) -> None:
    """The report of a program of units in banks, with recorded commands.

    Raises:
        InputError: the file cannot be written.
    """
    title = pim_title(result)
    drawn = picture("run", lambda: pim_figure(result, hardware), title)
    values = [(key, plain_cell(stated.value), stated.origin) for key, stated in hardware.values.items()]
    sources = HtmlTable(("key", "value", "source, or what is assumed"), values)
    _write(
        path,
        title,
        "on units in banks",
        Section("Summary", HtmlTable((), pim_rows(result))),
        Section("Over time", drawn),
        configuration(result.config, None, Folded(f"Device: {hardware.name}", sources)),
    )


def _tables(result: Timed) -> list[Part]:
    """What happened when, and the figures of each wire or channel."""
    if isinstance(result, TraceResult):
        return [_channels_table(result)]
    if isinstance(result, RelayoutResult):
        moved = result.stretches
        did = Column("DIMM", [move.dimm for move in moved]), Column("does", [move.name for move in moved])
        times = table_of(*did, *when(moved), elsewhere="--timeline")
        stretches = Folded(f"Timeline: {counted(len(moved), 'stretch')}", times)
        return [stretches, _links_table({result.topology: result})]
    if isinstance(result, HostReadResult):
        return []
    jobs, phases = result.jobs if len(result.jobs) > 1 else (), result.phases
    job_columns = Column("expert", range(len(jobs))), Column("tokens", [job.tokens for job in jobs])
    names, tiles = [phase.name for phase in phases], [phase.tile for phase in phases]
    phase_columns = Column("phase", names), Column("tile", tiles)
    return [
        Folded(
            f"Timeline: {counted(len(jobs), 'expert')} in turn",
            table_of(*job_columns, *when(jobs, length=True), elsewhere="--json"),
        ),
        Folded(
            f"Timeline: {counted(len(phases), 'phase')}",
            table_of(*phase_columns, *when(phases, length=True), elsewhere="--timeline, --json"),
        ),
    ]


def _energy_table(result: Timed) -> Folded:
    """The energy of each component, and its source."""
    parts = result.energy_nj or {}
    energies = ["not known" if nj is None else nj for nj in parts.values()]
    table = table_of(
        Column("component", map(component_words, parts)), Column("energy", energies, "energy_nj")
    )
    return Folded("Energy by component", table, HtmlTable((), [("", result.energy_note)] if parts else ()))


def _links_table(results: Mapping[str, RelayoutResult]) -> Folded:
    rows = [
        (name, wire, Cell(f"{100 * share:.1f}", share))
        for name, result in results.items()
        for wire, share in result.link_busy.items()
    ]
    heads = ("topology", "link", "busy (% of the time)")
    return Folded(f"Links: {counted(len(rows), 'wire')}", HtmlTable(heads, rows, "--json"))


def _channels_table(result: TraceResult) -> Folded:
    """Figures of each channel; nothing for a single channel."""
    channels = result.per_channel if len(result.per_channel) > 1 else ()
    figures = [Column(name, [channel[name] for channel in channels], name) for name in result.per_channel[0]]
    return Folded("Channels", table_of(Column("channel", range(len(channels))), *figures))


def _timings(memory: Memory) -> Folded:
    timings, sources = memory.device.reported_timings, memory.device.sources
    value = Column("value (DRAM clocks, unless its name says otherwise)", timings.values())
    source = Column("source", [sources[name] for name in timings])
    return Folded("Timings with their sources", table_of(Column("timing", timings), value, source))


def write_topologies_report(path: str, results: Mapping[str, RelayoutResult], hardware: Hardware) -> None:
    """The report of the same relayout over several topologies, by name.

    Args:
        path: the path of the file.
        results: results of `simulate_relayout`.
        hardware: their hardware, except for values that a topology changes.

    Raises:
        InputError: the file cannot be written.
    """
    first = next(iter(results.values()))
    title = title_of(first)
    drawn = picture("run", lambda: topologies_figure(results), title)
    _write(
        path,
        title,
        f"relayout, {', '.join(results)}",
        Section("Summary", measured(*topologies_table(results))),
        Section("Over time", drawn, _links_table(results)),
        configuration(first.config, hardware),
    )


def write_load_report(
    path: str, points: Sequence[LoadPoint], memory: Memory, hardware: Hardware | None
) -> None:
    """The report of `sweep_load`: see `write_run_report`.

    Raises:
        InputError: the file cannot be written.
    """
    title = f"{memory.device.timing} {memory.device.org}, latency against throughput"
    figures = [
        Column(quantity.label, [getattr(point, name) for point in points], name)
        for name, quantity in quantities(LoadPoint).items()
    ]
    _write(
        path,
        title,
        "dram --sweep-load",
        Section("Summary", table_of(*figures)),
        Section("Latency against throughput", picture("run", lambda: sweep_figure(points, memory), title)),
        configuration(memory.to_dict(), hardware, _timings(memory)),
    )
