"""Runs of a whole model as text: what was routed, then policies side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ndpsim.report.printing import print_table, print_text
from ndpsim.report.routing import trace_title
from ndpsim.report.text import bits_of
from ndpsim.report.words import counted
from ndpsim.results import CheckedEnd, LayerCheck, MoeResult, PolicyRun
from ndpsim.units import format_bytes, format_energy, format_time, percent, times

_NONE = "-"
_BESIDE = 5  # runs that have columns; more have a line each, with some of the rows
_BEST = "best known time (% of time)"
_IN_SHORT = (
    "prefill",
    "step, mean",
    "step: experts",
    "tokens/s",
    "speed-up",
    "lower bound (% of experts' time)",
    _BEST,
    *(f"token-expert pairs: {engine}" for engine in ("GPU, in its memory", "GPU, copied", "CPU", "NDP")),
    "bits of weights",
    "bottleneck",
)
_BOUNDS = {
    "linear-programme": "bound: of all layers together, by linear programmes",
    "layers": "bound: each layer by itself; all together need scipy: pip install 'ndpsim[milp]'",
}
_ENDS = 8  # beyond the limit of a check, that are told
_ENGINES = {"gpu_hit": "GPU, in its memory", "gpu_miss": "GPU, copied", "cpu": "CPU", "ndp": "NDP"}

#: Groups of resources in words, by how the names of those in it begin.
BUSY = {
    "gpu": "GPU",
    "cpu": "CPU",
    "ndp": "NDP units",
    "pcie-down": "PCIe to the GPU",
    "pcie-up": "PCIe from the GPU",
    "channel": "host channels",
    "host": "memory of the host",
    "memory": "memory of the device",
}


def moe_title(result: MoeResult) -> str:
    """What ran where, in a line."""
    config = result.config
    file = f"{config['weights']}: " if "weights" in config else ""
    return f"{config['model']} on {config['hardware']['name']}, {file}{bits_of(config)}"


def run_names(runs: Sequence[PolicyRun]) -> list[str]:
    """What runs are called beside each other: their policies, with what is set of those that occur twice."""
    names = []
    for run in runs:
        alike = [other.parameters for other in runs if other.policy == run.policy]
        differing = [key for key, value in run.parameters.items() if any(o.get(key) != value for o in alike)]
        settings = ",".join(f"{key}={_value(run.parameters[key])}" for key in differing)
        names.append(f"{run.policy}:{settings}" if settings else run.policy)
    return names


def _value(value: object) -> str:
    return str(value).lower() if isinstance(value, bool | None) else str(value)


def print_moe(result: MoeResult) -> None:
    """The result of `run_moe`."""
    print_text(moe_title(result), bold=True)
    print_text(trace_title(result.routing["trace"]), indent="  ")
    names = run_names(result.runs)
    simulated = ("simulated in", *(format_time(1e9 * run.wall_s) for run in result.runs))
    compiled = ("kernels compiled in", *(format_time(1e9 * run.compile_s) for run in result.runs))
    table = [*moe_table(result), simulated]
    if any(run.compile_s for run in result.runs):
        table.append(compiled)
    if len(names) > _BESIDE:
        short = [row for row in table if row[0] in _IN_SHORT]
        columns = ("", *(row[0] for row in short))
        print_table("", columns, zip(names, *(row[1:] for row in short), strict=True), left=1)
    else:
        print_table("", ("", *names), table, left=1)
    for name, reason in result.not_run.items():
        print_text(f"not run: {name}: {reason}", indent="  ")
    for note in moe_notes(result):
        print_text(note, indent="  ")


def moe_table(result: MoeResult) -> list[tuple[str, ...]]:
    """What there is to say, and its figure of each policy."""
    return [(what, *map(say, result.runs)) for what, say in _rows(result.runs, _steps(result))]


def moe_notes(result: MoeResult) -> list[str]:
    """What runs have to say in sentences, of those in common once."""
    names = run_names(result.runs)
    notes: dict[str, list[str]] = {}
    for name, run in zip(names, result.runs, strict=True):
        for note in _notes(run):
            notes.setdefault(note, []).append(name)
    return [note if of == names else f"{', '.join(of)}: {note}" for note, of in notes.items()]


def _steps(result: MoeResult) -> int:
    return int(result.routing["trace"]["steps"])


_Row = tuple[str, Callable[[PolicyRun], str]]  # what it is, and what is said of a run


def _rows(runs: Sequence[PolicyRun], steps: int) -> list[_Row]:
    kinds = dict.fromkeys(kind for run in runs for kind in run.migrations)
    return [
        *_times(any(run.prefill_ns for run in runs), steps),
        ("tokens/s", lambda run: f"{run.tokens_per_s:,.1f}"),
        ("speed-up", lambda run: times(run.speedup)),
        ("speed-up of experts", lambda run: times(run.speedup_moe)),
        ("lower bound (% of experts' time)", lambda run: _part(run.bound_ns, run.moe_ns)),
        *_best_known(runs),
        ("policy's estimate (% of experts' time)", lambda run: _part(run.estimated_ns, run.moe_ns)),
        *(_busy_row(group) for group in BUSY if any(_busy(run, group) is not None for run in runs)),
        *(_pairs_row(engine) for engine in _ENGINES),
        ("bits of weights", _bits),
        ("GPU cache: hit rate", lambda run: _or_none(run.cache.get("hit_rate"), percent)),
        *(row for kind in kinds for row in _migration_rows(kind, runs)),
        ("prediction accuracy", lambda run: _or_none((run.prediction or {}).get("accuracy"), percent)),
        ("bottleneck", _bottleneck),
        ("energy", _energy),
    ]


def _best_known(runs: Sequence[PolicyRun]) -> list[_Row]:
    """The best time that is known, beside the time of all."""
    if all(run.best_known_ns is None for run in runs):
        return []
    return [(_BEST, lambda run: _part(run.best_known_ns, run.time_ns))]


def _times(prefill: bool, steps: int) -> list[_Row]:
    rows: list[_Row] = []
    if prefill:
        rows.append(("prefill", lambda run: format_time(run.prefill_ns)))
        rows.append(("prefill: experts", lambda run: format_time(run.prefill_moe_ns)))
    if steps:
        rows.append(("step, mean", lambda run: format_time(run.decode_ns / steps)))
        rows.append(("step: experts", lambda run: format_time(run.decode_moe_ns / steps)))
    rows.append(("layer's experts, mean", lambda run: format_time(run.layer_ns["mean"])))
    rows.append(("layer's experts, p99", lambda run: format_time(run.layer_ns["p99"])))
    return rows


def _busy_row(group: str) -> _Row:
    return f"utilization: {BUSY[group]}", lambda run: _or_none(_busy(run, group), percent)


def _pairs_row(engine: str) -> _Row:
    label = f"token-expert pairs: {_ENGINES[engine]}"
    return label, lambda run: _part(run.pairs_by_engine.get(engine, 0.0), run.pairs)


def _bits(run: PolicyRun) -> str:
    """Of the weights that pairs were computed with: of all engines, or where they differ of each."""
    words = {"gpu_hit": "GPU", "gpu_miss": "copied", "cpu": "CPU", "ndp": "NDP"}
    bits = {words[name]: f"{mean:.3g}" for name, mean in run.weight_bits.items() if mean is not None}
    if len(set(bits.values())) == 1:
        return next(iter(bits.values()))
    return ", ".join(f"{engine} {mean}" for engine, mean in bits.items()) or _NONE


def _migration_rows(kind: str, runs: Sequence[PolicyRun]) -> Iterator[_Row]:
    """How many, how much, and how much of their time was beside experts; evictions take none."""
    of_kind = [run.migrations.get(kind) for run in runs]
    yield kind, lambda run: _moved(run.migrations.get(kind))
    if any(sums and sums["hidden_ns"] + sums["exposed_ns"] for sums in of_kind):
        yield f"{kind}: exposed", lambda run: _exposed(run.migrations.get(kind))


def _or_none(value: float | None, say: Callable[[float], str]) -> str:
    return _NONE if value is None else say(value)


def _part(value: float | None, whole: float) -> str:
    return _NONE if value is None or not whole else percent(value / whole)


def _busy(run: PolicyRun, group: str) -> float | None:
    """The mean over the resources of a group."""
    found = [share for name, share in run.utilization.items() if name.partition(" ")[0] == group]
    return sum(found) / len(found) if found else None


def _moved(sums: Mapping[str, float] | None) -> str:
    if not sums:
        return _NONE
    size = f", {format_bytes(sums['bytes'])}" if sums["bytes"] else ""
    return f"{sums['count']:,.0f}{size}"


def _exposed(sums: Mapping[str, float] | None) -> str:
    """How much of their time migrations ran beside experts."""
    together = sums["hidden_ns"] + sums["exposed_ns"] if sums else 0.0
    return _part(sums["exposed_ns"], together) if sums else _NONE


def _energy(run: PolicyRun) -> str:
    """Of all components that are known."""
    known = [nj for nj in run.energy_nj.values() if nj is not None]
    return format_energy(sum(known)) if known else _NONE


def _bottleneck(run: PolicyRun) -> str:
    """The resource with most of the time of the layers' critical paths."""
    if not run.bottleneck:
        return _NONE
    name, share = max(run.bottleneck.items(), key=lambda item: item[1])
    return f"{name} {percent(share)}"


def _notes(run: PolicyRun) -> list[str]:
    """What a run has to say in sentences."""
    notes = [_BOUNDS[run.bound]]
    notes += _prediction_notes(run.prediction or {})
    unknown = [name for name, nj in run.energy_nj.items() if nj is None]
    if unknown:
        notes.append(f"energy without {', '.join(unknown)} (not known)")
    if run.check is not None:
        notes += _check_notes(run.check)
    return notes


def _check_notes(check: LayerCheck) -> list[str]:
    """A layer by both models; what is beyond the limit, the furthest first."""
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
    """What was counted as a prediction; further shares, each with what it is of."""
    counted_as = prediction.get("counted", {})
    words = counted_as if isinstance(counted_as, Mapping) else {"accuracy": counted_as}
    notes = []
    for key, what in words.items():
        share = prediction.get(key)
        if isinstance(share, float):
            name = "prediction accuracy" if key == "accuracy" else key.replace("_", " ")
            notes.append(f"{name} {percent(share)}: {what}")
    return notes
