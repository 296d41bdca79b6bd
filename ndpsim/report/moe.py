"""Runs of a whole model as text: the routing, then the policies side by side."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ndpsim.base.reported import quantity_of, with_unit
from ndpsim.base.units import format_bytes, format_time, percent
from ndpsim.inference.layers.record import LayerRecord, RunRecord
from ndpsim.report.metrics import value_words
from ndpsim.report.printing import print_table, print_text
from ndpsim.report.ranking import ranked_answer
from ndpsim.report.text import bits_of
from ndpsim.report.words import counted, unknown_components
from ndpsim.report.workload import trace_title
from ndpsim.simulate.results import CheckedEnd, LayerCheck, MoeResult, PolicyRun
from ndpsim.simulate.results.moe import ENGINES, RESOURCES

#: A quantity of runs: its name in the result, its label, and its value in each.
_Row: TypeAlias = tuple[str, str, list[str]]

_NONE = "-"
_BESIDE = 4  # With more runs than this, each run is a line with some of the quantities.
_IN_SHORT = ("prefill_ns", "decode_ns", "tokens_per_s", "speedup", "bottleneck")
_OF_DENSE = ("prefill_ns", "decode_ns", "tokens_per_s", "utilization.gpu")
_BOUNDS = {
    "linear-programme": "the bound is of all layers together, by linear programmes",
    "steps": "the bound treats each step alone; for a tighter one: pip install 'ndpsim[milp]'",
}
_ENDS = 8  # layers beyond the limit of a check that are named


def moe_title(result: MoeResult) -> str:
    """A title: the model and the machine."""
    config = result.config
    file = f"{config['weights']}: " if "weights" in config else ""
    return f"{config['model']} on {config['hardware']['name']}, {file}{bits_of(config)}"


def routed_title(result: MoeResult) -> str:
    """What the tokens choose, and how many there are."""
    if result.routing:
        return trace_title(result.routing["trace"])
    config = result.config
    decoded = f"{counted(config['steps'], 'step')} of {counted(config['batch'], 'sequence')}"
    return f"a dense model: its layers have no experts, and no policy has anything to assign; {decoded}"


def run_names(runs: Sequence[PolicyRun]) -> list[str]:
    """Names of runs: their policies, with parameters where a policy occurs twice."""
    names = []
    for run in runs:
        alike = [other.parameters for other in runs if other.policy == run.policy]
        differing = [key for key, value in run.parameters.items() if any(o.get(key) != value for o in alike)]
        settings = ",".join(f"{key}={value_words(run.parameters[key])}" for key in differing)
        names.append(f"{run.policy}:{settings}" if settings else run.policy)
    return names


def print_moe(result: MoeResult) -> None:
    """Print the result of `run_moe`."""
    print_text(moe_title(result), bold=True)
    print_text(routed_title(result), indent="  ")
    names = run_names(result.runs)
    durations = ("wall_s", "compile_s") if any(run.compile_s for run in result.runs) else ("wall_s",)
    rows = [*_rows(result), *(_row(name, result.runs) for name in durations)]
    if not result.routing:
        rows = [row for row in rows if row[0] in (*_OF_DENSE, *durations)]
    if answer := moe_answer(result):
        print_text(answer, bold=True)
    if len(names) > _BESIDE:
        short = [(label, cells) for name, label, cells in rows if name in _IN_SHORT]
        lines = list(zip(names, *(cells for _, cells in short), strict=True))
        order = sorted(range(len(names)), key=lambda number: result.runs[number].time_ns)
        heads = ("policy, best first", *(label for label, _ in short))
        print_table("", heads, [lines[number] for number in order], left=1)
        print_text("all quantities: --json, --report", indent="  ")
    else:
        print_table("", ("", *names), [(label, *cells) for _, label, cells in rows], left=1)
    for name, reason in result.not_run.items():
        print_text(f"not run: {name}: {reason}", indent="  ")
    for note in moe_notes(result):
        print_text(note, indent="  ")


def moe_answer(result: MoeResult) -> str:
    """Which policy is best, by how much, and what limits it; "" of a single run."""
    rows = [run.to_dict(flat=True) for run in result.runs]
    return ranked_answer(rows, run_names(result.runs), "time_ns", (PolicyRun,))


def moe_table(result: MoeResult) -> list[tuple[str, ...]]:
    """Rows of a table: the label of a quantity, and its value with each policy."""
    return [(label, *cells) for _, label, cells in _rows(result)]


def moe_notes(result: MoeResult) -> list[str]:
    """Notes on runs in sentences; a note on several runs appears once."""
    names = run_names(result.runs)
    notes: dict[str, list[str]] = {}
    for name, run in zip(names, result.runs, strict=True):
        for note in _notes(run):
            notes.setdefault(note, []).append(name)
    return [note if runs == names else f"{', '.join(runs)}: {note}" for note, runs in notes.items()]


def _label(name: str) -> str:
    return quantity_of(name, (PolicyRun,)).label


def _value(run: PolicyRun, name: str) -> Any:
    """The value with a dotted name in the result of a run; None if it is absent."""
    first, _, part = name.partition(".")
    value = getattr(run, first)
    return (value or {}).get(part) if part else value


def _row(name: str, runs: Sequence[PolicyRun], cells: Iterable[str] = (), label: str = "") -> _Row:
    """A quantity in its unit, or as a share of the field that its description names, or as `cells` say it."""
    label, cells = label or _label(name), list(cells)
    whole = quantity_of(name, (PolicyRun,)).whole
    if cells:
        return name, label, cells
    if whole:
        shares = [_part(_value(run, name), getattr(run, whole)) for run in runs]
        return name, f"{label} (% of {_label(whole)})", shares
    return name, label, [_figure(name, _value(run, name)) for run in runs]


def _rows(result: MoeResult) -> Iterator[_Row]:
    runs, steps = result.runs, int(result.config["steps"])
    for name in ("prefill_ns", "prefill_moe_ns") if any(run.prefill_ns for run in runs) else ():
        yield _row(name, runs)
    for name in ("decode_ns", "decode_moe_ns") if steps else ():
        cells = [_figure(name, getattr(run, name) / steps) for run in runs]
        yield _row(name, runs, cells, f"{_label(name)} per step")
    known = ("best_known_ns",) if any(run.best_known_ns is not None for run in runs) else ()
    both = ("speedup_prefill", "speedup_decode") if any(run.prefill_ns for run in runs) and steps else ()
    yield _row("layer_ns.mean", runs)
    yield _row("layer_ns.p99", runs)
    yield _row("tokens_per_s", runs, label=f"throughput of {'decode' if steps else 'prefill'}")
    for name in (*both, "speedup", "speedup_moe", "bound_ns", *known, "estimated_ns"):
        yield _row(name, runs)
    for group in RESOURCES:
        busy = [busy_share(run.utilization, group) for run in runs]
        if any(share is not None for share in busy):
            name = f"utilization.{group}"
            yield _row(name, runs, [_figure(name, share) for share in busy])
    for engine in ENGINES:
        yield _row(f"pairs_by_engine.{engine}", runs)
    yield _row("weight_bits", runs, map(_bits, runs))
    yield _row("cache.hit_rate", runs)
    for kind in dict.fromkeys(kind for run in runs for kind in run.migrations):
        name, sums = f"migrations.{kind}", [run.migrations.get(kind) for run in runs]
        yield _row(name, runs, map(_moved, sums))
        if any(times and times["hidden_ns"] + times["exposed_ns"] for times in sums):
            exposed = f"{_label(name)}, exposed (% of their time)"
            yield _row(f"{name}.exposed_ns", runs, map(_exposed, sums), exposed)
    yield _row("prediction.accuracy", runs)
    yield _row("bottleneck", runs, map(_bottleneck, runs), f"bottleneck ({_label('bottleneck')})")
    yield _row("energy_nj.total", runs)


def _bits(run: PolicyRun) -> str:
    """Bits of the weights that were computed with, once for all engines if they are equal."""
    bits = {ENGINES[name]: f"{mean:.3g}" for name, mean in run.weight_bits.items() if mean is not None}
    if len(set(bits.values())) == 1:
        return next(iter(bits.values()))
    return ", ".join(f"{engine} {mean}" for engine, mean in bits.items()) or _NONE


def _figure(name: str, value: Any) -> str:
    """A value in the unit of its field."""
    return _NONE if value is None else with_unit(name, value, PolicyRun)


def _part(value: float | None, whole: float) -> str:
    return _NONE if value is None or not whole else percent(value / whole)


def busy_share(utilization: Mapping[str, float], group: str) -> float | None:
    """The mean share of time in which the resources of a group are busy; None without such resources."""
    found = [share for name, share in utilization.items() if name.partition(" ")[0] == group]
    return sum(found) / len(found) if found else None


def _moved(sums: Mapping[str, float] | None) -> str:
    if not sums:
        return _NONE
    size = f", {format_bytes(sums['bytes'])}" if sums["bytes"] else ""
    return f"{sums['count']:,.0f}{size}"


def _exposed(sums: Mapping[str, float] | None) -> str:
    """The share of their time in which migrations ran beside experts."""
    return _part(sums["exposed_ns"], sums["hidden_ns"] + sums["exposed_ns"]) if sums else _NONE


def _bottleneck(run: PolicyRun) -> str:
    """The resource with the largest share of the layers' critical paths."""
    if not run.bottleneck:
        return _NONE
    name, share = max(run.bottleneck.items(), key=lambda item: item[1])
    return f"{name} {percent(share)}"


def _notes(run: PolicyRun) -> list[str]:
    """Sentences for below the table of a run."""
    notes = [_BOUNDS[run.bound]] if run.bound else []
    notes += _prediction_notes(run.prediction or {})
    if unknown := unknown_components(run.energy_nj):
        notes.append(f"energy without {unknown} (not known)")
    if run.check is not None:
        notes += _check_notes(run.check)
    return notes


def _check_notes(check: LayerCheck) -> list[str]:
    """Notes on the check by the other model; layers beyond the limit, the largest difference first."""
    largest = check.largest
    furthest = f"; furthest: {largest.name}, {_error(largest)}" if largest else ""
    verdict = "within" if check.ok else "beyond"
    note = (
        f"layer {check.layer} in step {check.step} takes {format_time(check.rate_ns)} by rates, "
        f"{format_time(check.cycle_ns)} in the cycle-level session ({_signed(check.error)}){furthest}, of "
        f"{counted(len(check.ends), 'end')}: {verdict} {percent(check.limit)} for ends, "
        f"{percent(check.layer_limit)} for the layer"
    )
    return [note, *map(_end_note, check.beyond[:_ENDS])]


def _error(end: CheckedEnd) -> str:
    return f"{_signed(end.error)} of {'its own time' if end.critical else 'the layer'}"


def _end_note(end: CheckedEnd) -> str:
    rate, cycle = format_time(end.rate_ns), format_time(end.cycle_ns)
    return f"{end.name} ends after {rate} by rates, {cycle} in the session: {_error(end)}"


def _signed(share: float) -> str:
    return f"{100 * share:+z.1f}%"


def _prediction_notes(prediction: Mapping[str, Any]) -> list[str]:
    """Notes on the definition of a prediction, and on further shares."""
    counted_as = prediction.get("counted", {})
    words = counted_as if isinstance(counted_as, Mapping) else {"accuracy": counted_as}
    notes = []
    for key, what in words.items():
        share = prediction.get(key)
        if isinstance(share, float):
            notes.append(f"{_label(f'prediction.{key}')} {percent(share)}: {what}")
    return notes


#: Groups of resources whose times are summed; for NDP units, that of the busiest in each layer.
GROUPS = ("gpu", "cpu", "ndp", "pcie-down")


@dataclass(eq=False)
class RunHistory:
    """Sums by layer over the decode steps of one policy's run, or over the prefill of a run without steps.

    Attributes:
        run, phase: of the summed layers.
        shown: the layer whose jobs are drawn; None if it did not run.
        layers: numbers of the layers in the model.
        times: how often each layer ran.
        ns: times of each layer: of its experts from the gate to the last result ("layer"), and in which each
            of `GROUPS` was busy during these.
    """

    run: RunRecord
    phase: str
    shown: LayerRecord | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        self.layers = self.run.machine.layers
        self.times = np.zeros(len(self.layers), np.int64)
        self.ns = {name: np.zeros(len(self.layers)) for name in ("layer", *GROUPS)}

    def means_ns(self) -> dict[str, NDArray[np.float64]]:
        """The means of `ns` over the times that a layer ran."""
        return {name: ns / np.maximum(self.times, 1) for name, ns in self.ns.items()}


class MoeHistory:
    """An observer that collects data for pictures.

    Args:
        layer: step and layer whose jobs are drawn; None: the middle layer of the last step.
    """

    def __init__(self, layer: tuple[int, int] | None = None) -> None:
        self.runs: list[RunHistory] = []
        self._layer = layer

    def __call__(self, run: RunRecord, layer: LayerRecord) -> None:
        if not self.runs or self.runs[-1].run is not run:
            self.runs.append(RunHistory(run, layer.phase))
        elif self.runs[-1].phase != layer.phase:  # The prefill comes first; the first step replaces it.
            self.runs[-1] = RunHistory(run, layer.phase)
        history = self.runs[-1]
        row = history.layers.index(layer.layer)
        history.times[row] += 1
        for name, ns in {"layer": layer.end_ns - layer.start_ns, **_busy(layer)}.items():
            history.ns[name][row] += ns
        middle = history.layers[len(history.layers) // 2]
        if (layer.step, layer.layer) == (self._layer or (layer.step, middle)):
            history.shown = layer


def _busy(layer: LayerRecord) -> dict[str, float]:
    """The busy time of each group of resources during a layer's experts; of several NDP units, the longest.

    PCIe includes migrations to the GPU.
    """
    intervals: dict[str, list[tuple[float, float]]] = {}
    for job in layer.jobs:
        if job.kind != "attention":
            intervals.setdefault(job.resource, []).append((job.start_ns, job.end_ns))
    to_gpu = [(move.start_ns, move.end_ns) for move in layer.moving if move.target == "gpu"]
    intervals.setdefault("pcie-down", []).extend(to_gpu)
    found = dict.fromkeys(GROUPS, 0.0)
    for resource, spans in intervals.items():
        group = resource.partition(" ")[0]
        if group in found:
            found[group] = max(found[group], _covered(spans))
    return found


def _covered(intervals: list[tuple[float, float]]) -> float:
    """The length of the union of the intervals."""
    together, until = 0.0, -np.inf
    for start, end in sorted(intervals):
        together += max(0.0, end - max(start, until))
        until = max(until, end)
    return float(together)
