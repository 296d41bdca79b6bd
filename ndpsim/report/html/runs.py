"""Reports of runs: experts, relayouts, request traces, whole models under policies, and serving."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from matplotlib.figure import Figure

from ndpsim.base.reported import flattened, quantities
from ndpsim.config import Hardware
from ndpsim.config.banks import BankHardware
from ndpsim.inference.layers.record import LayerRecord
from ndpsim.report.html.page import (
    Cell,
    Column,
    Folded,
    HtmlTable,
    Part,
    Section,
    configuration,
    count_cell,
    measured,
    picture,
    plain_cell,
    provenance,
    table_of,
    when,
    write_page,
)
from ndpsim.report.metrics import metric_label
from ndpsim.report.moe import (
    MoeHistory,
    RunHistory,
    moe_answer,
    moe_notes,
    moe_table,
    moe_title,
    run_names,
)
from ndpsim.report.pictures.banks import pim_figure
from ndpsim.report.pictures.expert import FIGURES
from ndpsim.report.pictures.latencies import latencies_figure, sweep_figure
from ndpsim.report.pictures.moe import moe_figure
from ndpsim.report.pictures.relayout import relayout_figure, topologies_figure
from ndpsim.report.pictures.serving import rates_figure, serving_figure
from ndpsim.report.pim import pim_rows, pim_title
from ndpsim.report.serving import (
    LATENCY_COLUMNS,
    found_note,
    latency_rows,
    rates_notes,
    rates_table,
    serving_notes,
    serving_table,
    serving_title,
    tries_table,
)
from ndpsim.report.text import Timed, facts_of, title_of, topologies_table
from ndpsim.report.words import component_words, counted, source_words
from ndpsim.report.workload import trace_title
from ndpsim.simulate import (
    ContentionResult,
    ExpertResult,
    HostReadResult,
    LoadPoint,
    Memory,
    RelayoutResult,
    TraceResult,
)
from ndpsim.simulate.results import MoeResult, PolicyRun
from ndpsim.simulate.results.pim import PimResult
from ndpsim.simulate.results.serving import FoundRate, ServedRequest, ServingResult

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


# ---- Reports of a whole model: runs under policies, and serving


_POLICIES = 5  # of a table with a column for each
#: Of each policy, in a table that sorts.
_COMPARED = (
    "tokens_per_s",
    "speedup",
    "speedup_moe",
    "time_ns",
    "moe_ns",
    "bound_ns",
    "layer_ns.mean",
    "layer_ns.p99",
    "energy_nj.total",
)


def _compared(result: MoeResult, names: Sequence[str]) -> HtmlTable:
    """A line for each policy."""
    plain, results = [run.to_dict(flat=True) for run in result.runs], (PolicyRun,)
    columns = [
        Column(metric_label(metric, results=results), [run.get(metric) for run in plain], metric, results)
        for metric in _COMPARED
        if any(run.get(metric) is not None for run in plain)
    ]
    return table_of(Column("policy", names), *columns)


def _jobs_table(name: str, layer: LayerRecord) -> Folded:
    """Jobs of each resource in a layer, and their times from the gate."""
    jobs, where = layer.jobs, f"step {layer.step}" if layer.phase == "decode" else "prefill"
    table = table_of(
        Column("resource", [job.resource for job in jobs]),
        Column("does", [job.kind for job in jobs]),
        Column("expert", [None if job.expert < 0 else job.expert for job in jobs]),
        Column("tokens", [job.tokens for job in jobs]),
        Column("bytes", [count_cell(job.bytes) for job in jobs]),
        *when(jobs, layer.start_ns),
        elsewhere="--timeline, --log",
    )
    return Folded(f"Timeline: {name}, {counted(len(jobs), 'job')} of layer {layer.layer}, {where}", table)


def _layers_table(name: str, run: RunHistory) -> Folded:
    """How long the experts of each layer took."""
    times = Column("time of its experts, mean", run.means_ns()["layer"].tolist(), "time_ns")
    return Folded(f"Layers: {name}", table_of(Column("layer", run.layers), times, elsewhere="--log"))


def write_moe_report(path: str, result: MoeResult, history: MoeHistory, hardware: Hardware) -> None:
    """The report of `run_moe`.

    Args:
        path: the path of the file.
        result: the result of the run.
        history: the observer of the run.
        hardware: the hardware of the run.

    Raises:
        InputError: the file cannot be written.
    """
    names, routed = run_names(result.runs), trace_title(result.routing["trace"])
    title = moe_title(result)
    not_run = [f"not run: {name}: {reason}" for name, reason in result.not_run.items()]
    parameters = {name: dict(run.parameters) for name, run in zip(names, result.runs, strict=True)}
    set_to = [(key, str(value)) for key, value in flattened(parameters).items()]
    histories = list(zip(names, history.runs, strict=True))
    answer = [moe_answer(result)] if len(names) > 1 else []
    rows = list(moe_table(result))
    tables = [  # few columns each, so that none is cut on a screen of 1,280 pixels
        measured(
            ("", *names[first : first + _POLICIES]),
            [(row[0], *row[1 + first : 1 + first + _POLICIES]) for row in rows],
        )
        for first in range(0, len(names), _POLICIES)
    ]
    sections = [
        Section("Summary", answer, _compared(result, names), *tables, [*not_run, *moe_notes(result)]),
        Section(
            "Policies and layers",
            picture("run", lambda: moe_figure(result, history), title),
            *(_jobs_table(name, run.shown) for name, run in histories if run.shown is not None),
            *(_layers_table(name, run) for name, run in histories),
        ),
        configuration(result.config, hardware, Folded("Policies", HtmlTable((), set_to))),
        provenance({"routing": routed}),
    ]
    write_page(path, title, f"ndpsim moe\n{routed}", sections)


# ---- serving ----


def write_serving_report(path: str, result: ServingResult, hardware: Hardware) -> None:
    """The report of `run_serving`.

    Raises:
        InputError: the file cannot be written.
    """
    _write_serving(path, result, hardware, Section("Summary", *_summary(result)), _over_time(result))


def write_found_rate_report(path: str, found: FoundRate, hardware: Hardware) -> None:
    """The report of `find_rate`.

    Raises:
        InputError: the file cannot be written.
    """
    tries = Folded(f"Search: {counted(len(found.tries), 'rate')}", measured(*tries_table(found)))
    summary = Section("Summary", found_note(found), *_summary(found.run), tries)
    _write_serving(path, found.run, hardware, summary, _over_time(found.run))


def write_rates_report(path: str, results: Sequence[ServingResult], hardware: Hardware) -> None:
    """The report of several results of `run_serving`, which differ in the rate of arrivals.

    Raises:
        InputError: the file cannot be written.
    """
    over_rate = picture("rates", lambda: rates_figure(results), serving_title(results[0]))
    summary = Section("Summary", measured(*rates_table(results)), rates_notes(results))
    _write_serving(path, results[0], hardware, summary, Section("Over the rate", over_rate))


def _write_serving(path: str, result: ServingResult, hardware: Hardware, *sections: Section) -> None:
    requests = source_words(result.config["requests"], "given as they are")
    routing = {"routing": routed} if (routed := result.config["routing"]) else {}
    origin = provenance({"requests": requests, **routing})
    page = [*sections, configuration(result.config, hardware), origin]
    write_page(path, serving_title(result), f"ndpsim serve\n{requests}", page)


def _summary(result: ServingResult) -> list[Part]:
    facts = measured((), serving_table(result))
    return [measured(LATENCY_COLUMNS, latency_rows(result)), facts, serving_notes(result)]


def _over_time(result: ServingResult) -> Section:
    drawn = picture("run", lambda: serving_figure(result), serving_title(result))
    return Section("Run", drawn, _requests_table(result.per_request))


def _requests_table(requests: Sequence[ServedRequest]) -> Folded:
    """When each request arrived, and its latencies."""
    first_ns = requests[0].arrival_ns
    table = table_of(
        Column("request", [request.id for request in requests]),
        Column("prompt tokens", [count_cell(request.prompt_tokens) for request in requests]),
        Column("output tokens", [count_cell(request.output_tokens) for request in requests]),
        Column("arrival", [request.arrival_ns - first_ns for request in requests], "time_ns"),
        Column("waited", [request.admitted_ns - request.arrival_ns for request in requests], "time_ns"),
        Column("to the first token", [request.ttft_ns for request in requests], "ttft_ns"),
        Column("per output token", [request.tpot_ns for request in requests], "tpot_ns"),
        Column("to the last token", [request.latency_ns for request in requests], "latency_ns"),
        Column("reused tokens", [request.reused_tokens for request in requests]),
        Column("preemptions", [request.preemptions for request in requests]),
        elsewhere="--json, --log",
    )
    return Folded(f"Requests: {len(requests):,}", table)
