"""Reports of runs of experts, relayouts and request traces."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ndpsim.config import Hardware
from ndpsim.report.contention import contention_facts, contention_title
from ndpsim.report.html.page import provenance, write_page
from ndpsim.report.html.parts import Cell, Folded, Row, Section, Table
from ndpsim.report.html.sections import (
    columns,
    configuration,
    figures,
    jobs_table,
    measured_cell,
    phases_table,
    plain_cell,
    spans,
)
from ndpsim.report.html.svg import picture
from ndpsim.report.pictures.experts import figure_for
from ndpsim.report.pictures.latencies import latencies_figure, sweep_figure
from ndpsim.report.pictures.relayout import relayout_figure, topologies_figure
from ndpsim.report.relayout import relayout_facts, relayout_title, topologies_table
from ndpsim.report.text import (
    Timed,
    expert_facts,
    expert_title,
    host_read_facts,
    host_read_title,
    trace_facts,
    trace_run_title,
)
from ndpsim.report.words import counted
from ndpsim.reported import quantities
from ndpsim.simulate import (
    ContentionResult,
    ExpertResult,
    HostReadResult,
    LoadPoint,
    Memory,
    RelayoutResult,
    TraceResult,
)

#: For each kind of result of an expert: further words for its command, the title, and short facts.
_EXPERTS: Mapping[type, tuple[str, Callable[[Any], str], Callable[[Any], list[tuple[str, str, str]]]]] = {
    ExpertResult: ("", expert_title, expert_facts),
    ContentionResult: (", beside host traffic", contention_title, contention_facts),
    HostReadResult: (", read by the host", host_read_title, host_read_facts),
}


def _write(path: str, title: str, command: str, summary: Table, measured: Section, config: Section) -> None:
    write_page(path, title, command, [Section("Summary", summary), measured, config, provenance()])


def _energy_table(result: Timed) -> Folded:
    """The energy of each component, and its source."""
    parts = result.energy_nj or {}
    unit, cells = figures("energy_nj", list(parts.values()))
    rows = [
        (name, Cell("not known") if parts[name] is None else cell)
        for name, cell in zip(parts, cells, strict=True)
    ]
    note = Table((), [("", result.energy_note)] if parts else ())
    return Folded("Energy by component", Table(("component", f"energy ({unit})"), rows), note)


def write_expert_report(
    path: str, result: ExpertResult | ContentionResult | HostReadResult, hardware: Hardware
) -> None:
    """The report of an expert: of `simulate_expert`, `simulate_contention` or `simulate_host_read`.

    Raises:
        InputError: the file cannot be written.
    """
    how, title_of, facts_of = _EXPERTS[type(result)]
    title = title_of(result)
    drawn = picture("run", lambda: figure_for(result)(result), title)
    on_lanes = (
        () if isinstance(result, HostReadResult) else (jobs_table(result.jobs), phases_table(result.phases))
    )
    over_time = Section("Over time", drawn, *on_lanes, _energy_table(result))
    config = configuration(result.config, hardware)
    _write(path, title, f"ndpsim gemv{how}", Table((), facts_of(result)), over_time, config)


def _stretches_table(result: RelayoutResult) -> Folded:
    """Times at which each DIMM read and wrote."""
    names, times = columns(spans(result.stretches))
    rows: list[Row] = [
        (plain_cell(one.dimm), one.name, *when) for one, when in zip(result.stretches, times, strict=True)
    ]
    title = f"Timeline: {counted(len(rows), 'stretch')}"
    return Folded(title, Table(("DIMM", "does", *names), rows, "--timeline"))


def _links_table(results: Mapping[str, RelayoutResult]) -> Folded:
    rows = [
        (name, wire, Cell(f"{100 * share:.1f}", share))
        for name, result in results.items()
        for wire, share in result.link_busy.items()
    ]
    heads = ("topology", "link", "busy (% of the time)")
    return Folded(f"Links: {counted(len(rows), 'wire')}", Table(heads, rows, "--json"))


def write_relayout_report(path: str, result: RelayoutResult, hardware: Hardware) -> None:
    """The report of `simulate_relayout`.

    Raises:
        InputError: the file cannot be written.
    """
    title = relayout_title(result)
    over_time = Section(
        "Over time",
        picture("run", lambda: relayout_figure(result), title),
        _stretches_table(result),
        _links_table({result.topology: result}),
        _energy_table(result),
    )
    facts, config = Table((), relayout_facts(result)), configuration(result.config, hardware)
    _write(path, title, f"ndpsim relayout, {result.topology}", facts, over_time, config)


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
    title, (heads, rows) = relayout_title(first), topologies_table(results)
    summary = Table(heads, [tuple(map(measured_cell, row)) for row in rows])
    drawn = picture("run", lambda: topologies_figure(results), title)
    over_time = Section("Over time", drawn, _links_table(results))
    config = configuration(first.config, hardware)
    _write(path, title, f"ndpsim relayout, {', '.join(results)}", summary, over_time, config)


def _channels_table(result: TraceResult) -> Folded:
    """Figures of each channel; nothing for a single channel."""
    found = result.per_channel
    heads, rows = columns({name: (name, [one[name] for one in found]) for name in found[0]})
    numbered: list[Row] = [(plain_cell(number), *cells) for number, cells in enumerate(rows)]
    return Folded("Channels", Table(("channel", *heads), numbered if len(found) > 1 else ()))


def write_trace_report(path: str, result: TraceResult, memory: Memory, hardware: Hardware | None) -> None:
    """The report of `run_trace`.

    Args:
        path: the path of the file.
        result: the result of the run.
        memory: the memory of the run.
        hardware: the hardware of the memory; None: the memory was given by names.

    Raises:
        InputError: the file cannot be written.
    """
    title = trace_run_title(result)
    drawn = picture("run", lambda: latencies_figure(result), title)
    latencies = Section("Read latencies", drawn, _channels_table(result), _energy_table(result))
    config = _memory_section(result.config, memory, hardware)
    _write(path, title, "ndpsim dram", Table((), trace_facts(result)), latencies, config)


def _memory_section(config: Mapping[str, object], memory: Memory, hardware: Hardware | None) -> Section:
    device = memory.device
    timings = [
        (name, plain_cell(value), device.sources[name]) for name, value in device.reported_timings.items()
    ]
    heads = ("timing", "value (DRAM clocks, unless its name says otherwise)", "source")
    return configuration(config, hardware, Folded("Timings with their sources", Table(heads, timings)))


def write_load_report(
    path: str, points: Sequence[LoadPoint], memory: Memory, hardware: Hardware | None
) -> None:
    """The report of `sweep_load`: see `write_trace_report`.

    Raises:
        InputError: the file cannot be written.
    """
    device = memory.device
    title = f"{device.timing} {device.org}, latency against throughput"
    described = quantities(LoadPoint)
    names, rows = columns(
        {of.label: (name, [getattr(point, name) for point in points]) for name, of in described.items()}
    )
    drawn = Section("Latency against throughput", picture("run", lambda: sweep_figure(points, memory), title))
    config = _memory_section(memory.to_dict(), memory, hardware)
    _write(path, title, "ndpsim dram --sweep-load", Table(names, rows), drawn, config)
