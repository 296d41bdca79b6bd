"""The report of a run of a whole model: policies side by side, and the jobs of one layer of each."""

from __future__ import annotations

from collections.abc import Sequence

from ndpsim.config import Hardware
from ndpsim.orchestrator.record import LayerRecord
from ndpsim.report.html.page import folded, listed_notes, provenance, section, write_page
from ndpsim.report.html.parts import configuration, figures, measured_cell
from ndpsim.report.html.svg import picture
from ndpsim.report.html.tables import Cell, facts_table, table
from ndpsim.report.metrics import metric_label
from ndpsim.report.moe import moe_notes, moe_table, moe_title, run_names
from ndpsim.report.moe_history import History, RunHistory
from ndpsim.report.pictures.moe import moe_figure
from ndpsim.report.routing import trace_title
from ndpsim.report.words import counted
from ndpsim.reported import flattened
from ndpsim.results import MoeResult, PolicyRun
from ndpsim.units import Scale

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


def _compared(result: MoeResult, names: Sequence[str]) -> str:
    """A line for each policy."""
    plain = [run.to_dict(flat=True) for run in result.runs]
    columns, cells = ["policy"], [[Cell(name) for name in names]]
    for metric in _COMPARED:
        values = [of_run.get(metric) for of_run in plain]
        if any(value is not None for value in values):
            unit, of_metric = figures(metric, values, (PolicyRun,))
            columns.append(metric_label(metric, Scale(unit), results=(PolicyRun,)))
            cells.append(of_metric)
    return table(columns, list(zip(*cells, strict=True)))


def _jobs_table(name: str, layer: LayerRecord) -> str:
    """What each resource did in a layer, and when, from the gate."""
    jobs = layer.jobs
    starts, start_cells = figures("time_ns", [job.start_ns - layer.start_ns for job in jobs])
    ends, end_cells = figures("time_ns", [job.end_ns - layer.start_ns for job in jobs])
    rows = [
        (
            job.resource,
            job.kind,
            Cell("") if job.expert < 0 else Cell(str(job.expert), job.expert),
            Cell(str(job.tokens), job.tokens),
            Cell(f"{job.bytes:,}", job.bytes),
            start,
            end,
        )
        for job, start, end in zip(jobs, start_cells, end_cells, strict=True)
    ]
    columns = ("resource", "does", "expert", "tokens", "bytes", f"start ({starts})", f"end ({ends})")
    where = f"step {layer.step}" if layer.phase == "decode" else "prefill"
    title = f"Timeline: {name}, {counted(len(rows), 'job')} of layer {layer.layer}, {where}"
    return folded(title, table(columns, rows, "--timeline, --log"))


def _layers_table(name: str, run: RunHistory) -> str:
    """How long the experts of each layer took."""
    means = [float(ns / times) if times else 0.0 for ns, times in zip(run.layer_ns, run.times, strict=True)]
    unit, cells = figures("time_ns", means)
    rows = [(Cell(str(layer), layer), cell) for layer, cell in zip(run.layers, cells, strict=True)]
    return folded(f"Layers: {name}", table(("layer", f"time of its experts, mean ({unit})"), rows, "--log"))


def write_moe_report(path: str, result: MoeResult, history: History, hardware: Hardware) -> None:
    """The report of `run_moe`.

    Args:
        path: of the file.
        result: of the run.
        history: that observed it.
        hardware: that it ran on.

    Raises:
        InputError: the file cannot be written.
    """
    names, routed = run_names(result.runs), trace_title(result.routing["trace"])
    title = moe_title(result)
    not_run = [f"not run: {name}: {reason}" for name, reason in result.not_run.items()]
    parameters = {name: dict(run.parameters) for name, run in zip(names, result.runs, strict=True)}
    set_to = [(key, str(value)) for key, value in flattened(parameters).items()]
    histories = list(zip(names, history.runs, strict=True))
    sections = [
        section(
            "Summary",
            _compared(result, names),
            table(("", *names), [(what, *map(measured_cell, said)) for what, *said in moe_table(result)]),
            listed_notes([*not_run, *moe_notes(result)]),
        ),
        section(
            "Policies and layers",
            picture("run", lambda: moe_figure(result, history), title),
            *(_jobs_table(name, run.shown) for name, run in histories if run.shown is not None),
            *(_layers_table(name, run) for name, run in histories),
        ),
        configuration(result.config, hardware, folded("Policies", facts_table(set_to))),
        provenance({"routing": routed}),
    ]
    write_page(path, title, f"ndpsim moe\n{routed}", sections)
