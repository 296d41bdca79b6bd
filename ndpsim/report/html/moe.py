"""The report of a run of a whole model: policies side by side, and the jobs of one layer of each."""

from __future__ import annotations

from collections.abc import Sequence

from ndpsim.base.reported import flattened
from ndpsim.base.units import Scale
from ndpsim.config import Hardware
from ndpsim.inference.layers.record import LayerRecord
from ndpsim.report.html.page import provenance, write_page
from ndpsim.report.html.parts import Cell, Folded, Row, Section, Table
from ndpsim.report.html.sections import columns, configuration, figures, measured_cell, plain_cell, timeline
from ndpsim.report.html.svg import picture
from ndpsim.report.metrics import metric_label
from ndpsim.report.moe import moe_notes, moe_table, moe_title, run_names
from ndpsim.report.moe_history import History, RunHistory
from ndpsim.report.pictures.moe import moe_figure
from ndpsim.report.routing import trace_title
from ndpsim.report.words import counted
from ndpsim.simulate.results import MoeResult, PolicyRun

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


def _compared(result: MoeResult, names: Sequence[str]) -> Table:
    """A line for each policy."""
    plain = [run.to_dict(flat=True) for run in result.runs]
    heads, cells = ["policy"], [[Cell(name) for name in names]]
    for metric in _COMPARED:
        values = [of_run.get(metric) for of_run in plain]
        if any(value is not None for value in values):
            unit, of_metric = figures(metric, values, (PolicyRun,))
            heads.append(metric_label(metric, Scale(unit), results=(PolicyRun,)))
            cells.append(of_metric)
    return Table(heads, list(zip(*cells, strict=True)))


def _jobs_table(name: str, layer: LayerRecord) -> Folded:
    """Jobs of each resource in a layer, and their times from the gate."""
    rows: list[Row] = [
        (
            job.resource,
            job.kind,
            plain_cell(None if job.expert < 0 else job.expert),
            plain_cell(job.tokens),
            Cell(f"{job.bytes:,}", job.bytes),
        )
        for job in layer.jobs
    ]
    where = f"step {layer.step}" if layer.phase == "decode" else "prefill"
    what = f"{name}, {counted(len(rows), 'job')} of layer {layer.layer}, {where}"
    heads = ("resource", "does", "expert", "tokens", "bytes")
    return timeline(what, heads, rows, layer.jobs, "--timeline, --log", layer.start_ns)


def _layers_table(name: str, run: RunHistory) -> Folded:
    """How long the experts of each layer took."""
    means_ns = run.means_ns()["layer"].tolist()
    names, times = columns({"time of its experts, mean": ("time_ns", means_ns)})
    rows = [(plain_cell(layer), *time) for layer, time in zip(run.layers, times, strict=True)]
    return Folded(f"Layers: {name}", Table(("layer", *names), rows, "--log"))


def write_moe_report(path: str, result: MoeResult, history: History, hardware: Hardware) -> None:
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
    sections = [
        Section(
            "Summary",
            _compared(result, names),
            Table(("", *names), [(what, *map(measured_cell, said)) for what, *said in moe_table(result)]),
            [*not_run, *moe_notes(result)],
        ),
        Section(
            "Policies and layers",
            picture("run", lambda: moe_figure(result, history), title),
            *(_jobs_table(name, run.shown) for name, run in histories if run.shown is not None),
            *(_layers_table(name, run) for name, run in histories),
        ),
        configuration(result.config, hardware, Folded("Policies", Table((), set_to))),
        provenance({"routing": routed}),
    ]
    write_page(path, title, f"ndpsim moe\n{routed}", sections)
