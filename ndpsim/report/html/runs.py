"""Reports of runs of experts, relayouts and request traces."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ndpsim.config import Hardware
from ndpsim.report.contention import contention_facts, contention_title
from ndpsim.report.html.page import folded, provenance, section, write_page
from ndpsim.report.html.parts import configuration, figures, jobs_table, measured_cell, phases_table
from ndpsim.report.html.svg import picture
from ndpsim.report.html.tables import Cell, facts_table, table
from ndpsim.report.pictures.contention import contention_figure
from ndpsim.report.pictures.expert import expert_figure
from ndpsim.report.pictures.host_read import host_read_figure
from ndpsim.report.pictures.latencies import latencies_figure, sweep_figure
from ndpsim.report.pictures.relayout import relayout_figure, topologies_figure
from ndpsim.report.relayout import relayout_facts, relayout_title, topologies_table
from ndpsim.report.text import (
    expert_facts,
    expert_title,
    host_read_facts,
    host_read_title,
    trace_facts,
    trace_run_title,
)
from ndpsim.report.words import counted
from ndpsim.simulate import (
    ContentionResult,
    ExpertResult,
    HostReadResult,
    LoadPoint,
    Memory,
    RelayoutResult,
    TraceResult,
)


def _summary(facts: Iterable[Sequence[str]]) -> str:
    return section("Summary", facts_table(facts))


def _energy_table(parts: Mapping[str, float | None] | None, note: str) -> str:
    """The energy of each component, and what it rests on."""
    if parts is None:
        return ""
    unit, cells = figures("energy_nj", list(parts.values()))
    rows = [
        (name, Cell("not known") if parts[name] is None else cell)
        for name, cell in zip(parts, cells, strict=True)
    ]
    return folded(
        "Energy by component", table(("component", f"energy ({unit})"), rows), facts_table([("", note)])
    )


def _of_gemv(
    result: ExpertResult | ContentionResult | HostReadResult,
    facts: Iterable[Sequence[str]],
    hardware: Hardware,
    *over_time: str,
) -> list[str]:
    """The sections of a report of `ndpsim gemv`; `over_time`: its picture and tables."""
    energy = _energy_table(result.energy_nj, result.energy_note)
    return [
        _summary(facts),
        section("Over time", *over_time, energy),
        configuration(result.config, hardware),
        provenance(),
    ]


def write_expert_report(path: str, result: ExpertResult, hardware: Hardware) -> None:
    """The report of `simulate_expert`, whose commands are recorded.

    Raises:
        InputError: the file cannot be written.
    """
    title = expert_title(result)
    drawn = picture("run", lambda: expert_figure(result), title)
    tables = jobs_table(result.jobs), phases_table(result.phases)
    sections = _of_gemv(result, expert_facts(result), hardware, drawn, *tables)
    write_page(path, title, "ndpsim gemv", sections)


def write_contention_report(path: str, result: ContentionResult, hardware: Hardware) -> None:
    """The report of `simulate_contention`.

    Raises:
        InputError: the file cannot be written.
    """
    title = contention_title(result)
    drawn = picture("run", lambda: contention_figure(result), title)
    tables = jobs_table(result.jobs), phases_table(result.phases)
    sections = _of_gemv(result, contention_facts(result), hardware, drawn, *tables)
    write_page(path, title, "ndpsim gemv, beside host traffic", sections)


def write_host_read_report(path: str, result: HostReadResult, hardware: Hardware) -> None:
    """The report of `simulate_host_read`, whose commands are recorded.

    Raises:
        InputError: the file cannot be written.
    """
    title = host_read_title(result)
    drawn = picture("run", lambda: host_read_figure(result), title)
    sections = _of_gemv(result, host_read_facts(result), hardware, drawn)
    write_page(path, title, "ndpsim gemv, read by the host", sections)


def _stretches_table(result: RelayoutResult) -> str:
    """When each DIMM read and wrote."""
    found = result.stretches
    starts = figures("time_ns", [one.start_ns for one in found])
    ends = figures("time_ns", [one.end_ns for one in found])
    rows = [
        (Cell(str(one.dimm), one.dimm), one.name, start, end)
        for one, start, end in zip(found, starts[1], ends[1], strict=True)
    ]
    columns = ("DIMM", "does", f"start ({starts[0]})", f"end ({ends[0]})")
    return folded(f"Timeline: {counted(len(rows), 'stretch')}", table(columns, rows, "--timeline"))


def _links_table(results: Mapping[str, RelayoutResult]) -> str:
    rows = [
        (name, wire, Cell(f"{100 * share:.1f}", share))
        for name, result in results.items()
        for wire, share in result.link_busy.items()
    ]
    columns = ("topology", "link", "busy (% of the time)")
    return folded(f"Links: {counted(len(rows), 'wire')}", table(columns, rows, "--json"))


def write_relayout_report(path: str, result: RelayoutResult, hardware: Hardware) -> None:
    """The report of `simulate_relayout`.

    Raises:
        InputError: the file cannot be written.
    """
    title = relayout_title(result)
    sections = [
        _summary(relayout_facts(result)),
        section(
            "Over time",
            picture("run", lambda: relayout_figure(result), title),
            _stretches_table(result),
            _links_table({result.topology: result}),
            _energy_table(result.energy_nj, result.energy_note),
        ),
        configuration(result.config, hardware),
        provenance(),
    ]
    write_page(path, title, f"ndpsim relayout, {result.topology}", sections)


def write_topologies_report(path: str, results: Mapping[str, RelayoutResult], hardware: Hardware) -> None:
    """The report of the same relayout over several topologies, by name.

    Args:
        path: of the file.
        results: of `simulate_relayout`.
        hardware: of all of them, but for what a topology changes.

    Raises:
        InputError: the file cannot be written.
    """
    first = next(iter(results.values()))
    title, (columns, rows) = relayout_title(first), topologies_table(results)
    cells = [tuple(map(measured_cell, row)) for row in rows]
    sections = [
        section("Summary", table(columns, cells)),
        section(
            "Over time",
            picture("run", lambda: topologies_figure(results), title),
            _links_table(results),
        ),
        configuration(first.config, hardware),
        provenance(),
    ]
    write_page(path, title, f"ndpsim relayout, {', '.join(results)}", sections)


def _channels_table(result: TraceResult) -> str:
    if len(result.per_channel) < 2:
        return ""
    names = list(result.per_channel[0])
    columns = {name: figures(name, [one[name] for one in result.per_channel]) for name in names}
    heads = ("channel", *(f"{name} ({unit})" if unit else name for name, (unit, _) in columns.items()))
    rows = [
        (Cell(str(number), number), *cells)
        for number, cells in enumerate(zip(*(cells for _, cells in columns.values()), strict=True))
    ]
    return folded("Channels", table(heads, rows))


def write_trace_report(path: str, result: TraceResult, memory: Memory, hardware: Hardware | None) -> None:
    """The report of `run_trace`.

    Args:
        path: of the file.
        result: of the run.
        memory: that it ran on.
        hardware: that the memory is of; None: it was put together from names.

    Raises:
        InputError: the file cannot be written.
    """
    title = trace_run_title(result)
    sections = [
        _summary(trace_facts(result)),
        section(
            "Read latencies",
            picture("run", lambda: latencies_figure(result), title),
            _channels_table(result),
            _energy_table(result.energy_nj, result.energy_note),
        ),
        _memory_section(result.config, memory, hardware),
        provenance(),
    ]
    write_page(path, title, "ndpsim dram", sections)


def _memory_section(config: Mapping[str, object], memory: Memory, hardware: Hardware | None) -> str:
    device = memory.device
    timings = [
        (name, Cell(str(value), value), device.sources[name])
        for name, value in device.reported_timings.items()
    ]
    columns = ("timing", "value (DRAM clocks, unless its name says otherwise)", "source")
    return configuration(config, hardware, folded("Timings with their sources", table(columns, timings)))


def write_load_report(
    path: str, points: Sequence[LoadPoint], memory: Memory, hardware: Hardware | None
) -> None:
    """The report of `sweep_load`: see `write_trace_report`.

    Raises:
        InputError: the file cannot be written.
    """
    device = memory.device
    title = f"{device.timing} {device.org}, latency against throughput"
    columns = {
        "offered": figures("bandwidth_gbps", [point.offered_gbps for point in points]),
        "carried": figures("bandwidth_gbps", [point.bandwidth_gbps for point in points]),
        "mean read latency": figures("mean_ns", [point.mean_ns for point in points]),
        "99th percentile": figures("p99_ns", [point.p99_ns for point in points]),
    }
    names = [f"{name} ({unit})" for name, (unit, _) in columns.items()]
    rows = list(zip(*(cells for _, cells in columns.values()), strict=True))
    sections = [
        section("Summary", table(names, rows)),
        section("Latency against throughput", picture("run", lambda: sweep_figure(points, memory), title)),
        _memory_section(memory.to_dict(), memory, hardware),
        provenance(),
    ]
    write_page(path, title, "ndpsim dram --sweep-load", sections)
