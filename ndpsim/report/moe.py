"""Runs of a whole model as text: the routing, then the policies side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ndpsim.report.metrics import value_words
from ndpsim.report.printing import print_table, print_text
from ndpsim.report.routing import trace_title
from ndpsim.report.text import bits_of
from ndpsim.report.words import counted
from ndpsim.reported import quantity_of, with_unit
from ndpsim.results import CheckedEnd, LayerCheck, MoeResult, PolicyRun
from ndpsim.results.moe import ENGINES, RESOURCES
from ndpsim.units import format_bytes, format_time, percent

_NONE = "-"
_BESIDE = 5  # With more runs than this, each run is a line with some of the quantities.
_IN_SHORT = (
    "prefill_ns",
    "decode_ns",
    "decode_moe_ns",
    "tokens_per_s",
    "speedup",
    "bound_ns",
    "best_known_ns",
    *(f"pairs_by_engine.{engine}" for engine in ENGINES),
    "weight_bits",
    "bottleneck",
)
_BOUNDS = {
    "linear-programme": "bound: of all layers together, by linear programmes",
    "steps": "bound: each step by itself; all together need scipy: pip install 'ndpsim[milp]'",
}
_ENDS = 8  # layers beyond the limit of a check that are named


def moe_title(result: MoeResult) -> str:
    """A title: the model and the machine."""
    config = result.config
    file = f"{config['weights']}: " if "weights" in config else ""
    return f"{config['model']} on {config['hardware']['name']}, {file}{bits_of(config)}"


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
    print_text(trace_title(result.routing["trace"]), indent="  ")
    names = run_names(result.runs)
    rows = [*_rows(result), _row("wall_s")]
    if any(run.compile_s for run in result.runs):
        rows.append(_row("compile_s"))
    if len(names) > _BESIDE:
        short = [row for row in rows if row.name in _IN_SHORT]
        cells = [
            (name, *(row.say(run) for row in short)) for name, run in zip(names, result.runs, strict=True)
        ]
        print_table("", ("", *(row.label for row in short)), cells, left=1)
    else:
        print_table("", ("", *names), _cells(rows, result.runs), left=1)
    for name, reason in result.not_run.items():
        print_text(f"not run: {name}: {reason}", indent="  ")
    for note in moe_notes(result):
        print_text(note, indent="  ")


def moe_table(result: MoeResult) -> list[tuple[str, ...]]:
    """Rows of a table: the label of a quantity, and its value with each policy."""
    return _cells(_rows(result), result.runs)


def moe_notes(result: MoeResult) -> list[str]:
    """Notes on runs in sentences; a note on several runs appears once."""
    names = run_names(result.runs)
    notes: dict[str, list[str]] = {}
    for name, run in zip(names, result.runs, strict=True):
        for note in _notes(run):
            notes.setdefault(note, []).append(name)
    return [note if of == names else f"{', '.join(of)}: {note}" for note, of in notes.items()]


class _Row(NamedTuple):
    """A quantity of a run: its name in the result, its label, and the function that formats it."""

    name: str
    label: str
    say: Callable[[PolicyRun], str]


def _cells(rows: Sequence[_Row], runs: Sequence[PolicyRun]) -> list[tuple[str, ...]]:
    return [(row.label, *map(row.say, runs)) for row in rows]


def _label(name: str) -> str:
    return quantity_of(name, (PolicyRun,)).label


def _value(run: PolicyRun, name: str) -> Any:
    """The value with a dotted name in the result of a run; None if it is absent."""
    first, _, part = name.partition(".")
    value = getattr(run, first)
    return (value or {}).get(part) if part else value


def _row(name: str) -> _Row:
    """A row with a quantity in its unit, or as a share of the field that its description names."""
    whole = quantity_of(name, (PolicyRun,)).whole
    if whole:
        label = f"{_label(name)} (% of {_label(whole)})"
        return _Row(name, label, lambda run: _part(_value(run, name), getattr(run, whole)))
    return _Row(name, _label(name), lambda run: _figure(name, _value(run, name)))


def _rows(result: MoeResult) -> list[_Row]:
    runs, steps = result.runs, int(result.routing["trace"]["steps"])
    kinds = dict.fromkeys(kind for run in runs for kind in run.migrations)
    prefill = ("prefill_ns", "prefill_moe_ns") if any(run.prefill_ns for run in runs) else ()
    known = ("best_known_ns",) if any(run.best_known_ns is not None for run in runs) else ()
    return [
        *map(_row, prefill),
        *(_step_row(name, steps) for name in ("decode_ns", "decode_moe_ns") if steps),
        *map(_row, ("layer_ns.mean", "layer_ns.p99", "tokens_per_s", "speedup", "speedup_moe", "bound_ns")),
        *map(_row, (*known, "estimated_ns")),
        *(_busy_row(group) for group in RESOURCES if any(_busy(run, group) is not None for run in runs)),
        *(_row(f"pairs_by_engine.{engine}") for engine in ENGINES),
        _Row("weight_bits", _label("weight_bits"), _bits),
        _row("cache.hit_rate"),
        *(row for kind in kinds for row in _migration_rows(kind, runs)),
        _row("prediction.accuracy"),
        _Row("bottleneck", f"bottleneck ({_label('bottleneck')})", _bottleneck),
        _Row("energy_nj", _label("energy_nj"), _energy),
    ]


def _step_row(name: str, steps: int) -> _Row:
    return _Row(name, f"{_label(name)} per step", lambda run: _figure(name, getattr(run, name) / steps))


def _busy_row(group: str) -> _Row:
    name = f"utilization.{group}"
    return _Row(name, _label(name), lambda run: _figure(name, _busy(run, group)))


def _bits(run: PolicyRun) -> str:
    """Bits of the weights that were computed with, once for all engines if they are equal."""
    bits = {ENGINES[name]: f"{mean:.3g}" for name, mean in run.weight_bits.items() if mean is not None}
    if len(set(bits.values())) == 1:
        return next(iter(bits.values()))
    return ", ".join(f"{engine} {mean}" for engine, mean in bits.items()) or _NONE


def _migration_rows(kind: str, runs: Sequence[PolicyRun]) -> Iterator[_Row]:
    """Number and bytes of migrations, and the share of their time beside experts; evictions take no time."""
    name = f"migrations.{kind}"
    yield _Row(name, _label(name), lambda run: _moved(_value(run, name)))
    of_kind = [run.migrations.get(kind) for run in runs]
    if any(sums and sums["hidden_ns"] + sums["exposed_ns"] for sums in of_kind):
        exposed = f"{_label(name)}, exposed (% of their time)"
        yield _Row(f"{name}.exposed_ns", exposed, lambda run: _exposed(_value(run, name)))


def _figure(name: str, value: Any) -> str:
    """A row with a value in the unit of its field."""
    return _NONE if value is None else with_unit(name, value, PolicyRun)


def _part(value: float | None, whole: float) -> str:
    return _NONE if value is None or not whole else percent(value / whole)


def _busy(run: PolicyRun, group: str) -> float | None:
    """The mean share of time in which the resources of a group are busy."""
    found = [share for name, share in run.utilization.items() if name.partition(" ")[0] == group]
    return sum(found) / len(found) if found else None


def _moved(sums: Mapping[str, float] | None) -> str:
    if not sums:
        return _NONE
    size = f", {format_bytes(sums['bytes'])}" if sums["bytes"] else ""
    return f"{sums['count']:,.0f}{size}"


def _exposed(sums: Mapping[str, float] | None) -> str:
    """The share of their time in which migrations ran beside experts."""
    return _part(sums["exposed_ns"], sums["hidden_ns"] + sums["exposed_ns"]) if sums else _NONE


def _energy(run: PolicyRun) -> str:
    """The total energy of the known components."""
    known = [nj for nj in run.energy_nj.values() if nj is not None]
    return _figure("energy_nj", sum(known) if known else None)


def _bottleneck(run: PolicyRun) -> str:
    """The resource with the largest share of the layers' critical paths."""
    if not run.bottleneck:
        return _NONE
    name, share = max(run.bottleneck.items(), key=lambda item: item[1])
    return f"{name} {percent(share)}"


def _notes(run: PolicyRun) -> list[str]:
    """Sentences for below the table of a run."""
    notes = [_BOUNDS[run.bound]]
    notes += _prediction_notes(run.prediction or {})
    unknown = [name for name, nj in run.energy_nj.items() if nj is None]
    if unknown:
        notes.append(f"energy without {', '.join(unknown)} (not known)")
    if run.check is not None:
        notes += _check_notes(run.check)
    return notes


def _check_notes(check: LayerCheck) -> list[str]:
    """Notes on the check by the other model; layers beyond the limit, the largest difference first."""
    largest = check.largest
    furthest = f"; furthest: {largest.name}, {_error(largest)}, of" if largest else ", of"
    note = (
        f"layer {check.layer} in step {check.step} takes {format_time(check.rate_ns)} by rates, "
        f"{format_time(check.cycle_ns)} in the cycle-level session ({_signed(check.error)}){furthest} "
        f"{counted(len(check.ends), 'end')}: {_verdict(check)}"
    )
    return [note, *map(_end_note, check.beyond[:_ENDS])]


def _verdict(check: LayerCheck) -> str:
    limits = f"{percent(check.limit)} for ends, {percent(check.layer_limit)} for the layer"
    return f"within {limits}" if check.ok else f"beyond {limits}"


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
