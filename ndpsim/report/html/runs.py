"""Reports of runs of experts, relayouts and request traces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ndpsim.base.reported import quantities
from ndpsim.config import Hardware
from ndpsim.report.html.page import provenance, write_page
from ndpsim.report.html.parts import Cell, Folded, Part, Section, Table
from ndpsim.report.html.sections import columns, configuration, figures, measured_cell, plain_cell, timeline
from ndpsim.report.html.svg import picture
from ndpsim.report.pictures.expert import FIGURES
from ndpsim.report.pictures.latencies import latencies_figure, sweep_figure
from ndpsim.report.pictures.relayout import relayout_figure, topologies_figure
from ndpsim.report.relayout import topologies_table
from ndpsim.report.text import Timed, facts_of, title_of
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

#: The command of each kind of result.
_COMMANDS = {
    ExpertResult: "gemv",
    ContentionResult: "gemv, beside host traffic",
    HostReadResult: "gemv, read by the host",
    RelayoutResult: "relayout",
    TraceResult: "dram",
}


_FIGURES = {**FIGURES, RelayoutResult: relayout_figure, TraceResult: latencies_figure}


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
        Section("Summary", Table((), facts_of(result))),
        Section(
            "Read latencies" if isinstance(result, TraceResult) else "Over time",
            drawn,
            *_tables(result),
            _energy_table(result),
        ),
        configuration(result.config, hardware, *([_timings(memory)] if memory else ())),
    )


def _tables(result: Timed) -> list[Part]:
    """What happened when, and the figures of each wire or channel."""
    if isinstance(result, TraceResult):
        return [_channels_table(result)]
    if isinstance(result, RelayoutResult):
        rows = [(plain_cell(one.dimm), one.name) for one in result.stretches]
        stretches = counted(len(rows), "stretch")
        times = timeline(stretches, ("DIMM", "does"), rows, result.stretches, "--timeline")
        return [times, _links_table({result.topology: result})]
    if isinstance(result, HostReadResult):
        return []
    phases = [(phase.name, plain_cell(phase.tile)) for phase in result.phases]
    jobs = [(plain_cell(number), plain_cell(job.tokens)) for number, job in enumerate(result.jobs)]
    of_jobs, of_phases = f"{counted(len(jobs), 'expert')} in turn", counted(len(phases), "phase")
    return [
        *(
            [timeline(of_jobs, ("expert", "tokens"), jobs, result.jobs, "--json", length=True)]
            if len(jobs) > 1
            else []
        ),
        timeline(of_phases, ("phase", "tile"), phases, result.phases, "--timeline, --json", length=True),
    ]


def _energy_table(result: Timed) -> Folded:
    """The energy of each component, and its source."""
    parts = result.energy_nj or {}
    unit, cells = figures("energy_nj", list(parts.values()))
    rows = [
        (component_words(name), Cell("not known") if parts[name] is None else cell)
        for name, cell in zip(parts, cells, strict=True)
    ]
    note = Table((), [("", result.energy_note)] if parts else ())
    return Folded("Energy by component", Table(("component", f"energy ({unit})"), rows), note)


def _links_table(results: Mapping[str, RelayoutResult]) -> Folded:
    rows = [
        (name, wire, Cell(f"{100 * share:.1f}", share))
        for name, result in results.items()
        for wire, share in result.link_busy.items()
    ]
    heads = ("topology", "link", "busy (% of the time)")
    return Folded(f"Links: {counted(len(rows), 'wire')}", Table(heads, rows, "--json"))


def _channels_table(result: TraceResult) -> Folded:
    """Figures of each channel; nothing for a single channel."""
    found = result.per_channel
    heads, rows = columns({name: (name, [one[name] for one in found]) for name in found[0]})
    numbered = [(plain_cell(number), *cells) for number, cells in enumerate(rows)]
    return Folded("Channels", Table(("channel", *heads), numbered if len(found) > 1 else ()))


def _timings(memory: Memory) -> Folded:
    device = memory.device
    timings = [
        (name, plain_cell(value), device.sources[name]) for name, value in device.reported_timings.items()
    ]
    heads = ("timing", "value (DRAM clocks, unless its name says otherwise)", "source")
    return Folded("Timings with their sources", Table(heads, timings))


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
    title, (heads, rows) = title_of(first), topologies_table(results)
    drawn = picture("run", lambda: topologies_figure(results), title)
    _write(
        path,
        title,
        f"relayout, {', '.join(results)}",
        Section("Summary", Table(heads, [tuple(map(measured_cell, row)) for row in rows])),
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
    described = quantities(LoadPoint)
    heads, rows = columns(
        {of.label: (name, [getattr(point, name) for point in points]) for name, of in described.items()}
    )
    _write(
        path,
        title,
        "dram --sweep-load",
        Section("Summary", Table(heads, rows)),
        Section("Latency against throughput", picture("run", lambda: sweep_figure(points, memory), title)),
        configuration(memory.to_dict(), hardware, _timings(memory)),
    )
