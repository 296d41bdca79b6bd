"""Tokens/s that owners of machines have published, beside what `ndpsim predict` says of the same machines.

Each folder of machines/ is a machine. Its `machine.yaml` has published runs: the command that predicts a run,
what was measured, the source and a grade. A part that ndpsim does not have is a file in the same folder.

``python validation/machines.py predict [RUN]...``: predicts all runs, or those named, into
machines_predicted.csv. ``python validation/machines.py``: from both, machines.md and
ndpsim/inference/prediction/measured.csv.
"""

from __future__ import annotations

import contextlib
import csv
import functools
import io
import json
import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ndpsim.base.errors import InputError
from ndpsim.cli.main import main as command_line
from ndpsim.config.nodes import parse, plain_of
from ndpsim.inference.prediction.band import FEW, FEWEST, MOST_ERROR, covering
from ndpsim.workload.models import load_model

HERE = Path(__file__).parent
FOLDER = HERE / "machines"
PREDICTED = HERE / "machines_predicted.csv"
MEASURED = HERE.parent / "ndpsim" / "inference" / "prediction" / "measured.csv"
PHASES = ("prefill", "decode")
GRADES = ("A", "B", "C")
KEYS = ("name", "command", "measured", "grade", "source")
MAY_HAVE = ("fitted", "note")
FAR = 0.35
#: The CPU whose fitted decode phases give the waiting of threads for each other; its memory was measured.
BARRIER_CPU = "epyc-9355"

TEXT = """\
# Machines that people own

Made by `python validation/machines.py` from the folders of [`machines/`](machines), which have published runs
with their sources, and from `machines_predicted.csv` (`python validation/machines.py predict`).

There are {runs} runs of {machines} machines. An error is the predicted minus the measured rate, as a share of
the measured rate. Rates of parts come from data sheets and from measurements of kernels and memory
([cpu.md](cpu.md), [gpu.md](gpu.md)). A figure marked with * was used in one of these fits: it is neither part
of the medians nor of the interval that `ndpsim predict` prints. Grade A: set-up and log are complete; B:
something is missing; C: an anecdote.

**To add a machine**, add a folder with a `machine.yaml` as in the others, and files of parts that ndpsim does
not have. Then run `python validation/machines.py predict RUN` for its runs, and `python
validation/machines.py`.

## By kind

The goal is a median of 15% in decode and 20% in prefill. The interval goes from the lowest to the highest
ratio of measured to predicted rates, without a tenth at each end if there are enough runs. With fewer than
{fewest} runs of a kind, it is the interval of all kinds. "Within": runs inside the interval that the other
machines give. If the median of a kind, or with fewer than {few} runs of all kinds below it, is above
{most_error:.0%}, `ndpsim predict` names no rate but the interval alone. "GPU without measurements": no
kernel of the card's family was measured, so that it has the values of others.

| kind | phase | machines | runs | median size of the error | interval | within |
|---|---|---|---|---|---|---|
{kinds}

## Threads that wait for each other

In decode, a layer takes {barrier:.1f} us longer for each thread (`host.cpu_thread_overhead_us`): the median
of what would make {barrier_runs} runs of the EPYC 9355, whose memory was measured, exact ({barrier_range}).
All others are held out. Medians of what they lack with the value of `predict`, in us a thread and layer:
{barrier_others}.

## Every run

| run | machine | model, weights, program | phase | predicted | measured | error | longest part | grade |
|---|---|---|---|---|---|---|---|---|
{table}

Beyond {far}: {beyond}.

## Sources and notes

{notes}
"""


class Run(NamedTuple):
    """A published run; `machine`: its folder's name; `fitted`: phases that a constant was fitted to."""

    name: str
    machine: str
    command: tuple[str, ...]
    measured: dict[str, float]
    grade: str
    source: str
    fitted: tuple[str, ...] = ()
    note: str = ""

    @property
    def options(self) -> dict[str, str]:
        """The options of its command; of those given twice, the last."""
        words = self.command[2:]
        return {
            word.removeprefix("--"): after
            for word, after in zip(words, (*words[1:], "--"), strict=True)
            if word.startswith("--") and not after.startswith("--")
        }


class Figure(NamedTuple):
    """A phase of a run: what was predicted, and measured over predicted.

    `waits`: threads x layers, whose operations threads end together: each takes host.cpu_thread_overhead_us.
    """

    run: Run
    phase: str
    kind: str
    tokens_per_s: float
    bound: str
    share_of_time: float
    waits: float

    @property
    def ratio(self) -> float:
        """Measured over predicted."""
        return self.run.measured[self.phase] / self.tokens_per_s

    @property
    def error(self) -> float:
        """Predicted over measured, less 1."""
        return 1 / self.ratio - 1

    @property
    def fitted(self) -> bool:
        """Whether a constant was fitted to it."""
        return self.phase in self.run.fitted

    @property
    def of_barrier(self) -> bool:
        """Whether the time that threads wait for each other is fitted to it."""
        return self.phase == "decode" and self.fitted and self.run.machine.startswith(BARRIER_CPU)


def _mistake(file: Path, key: str, problem: str) -> InputError:
    return InputError(problem, "form", file=str(file), key=key)


def run_of(file: Path, values: Any) -> Run:
    """A run of a machine.yaml.

    Raises:
        InputError: a key is missing or unknown, the command is no prediction, or a value is of another kind.
    """
    if not isinstance(values, dict):
        raise _mistake(file, "runs", "is not a list of runs")
    for key in KEYS:
        if key not in values:
            raise _mistake(file, key, "is missing")
    for key in values:
        if key not in (*KEYS, *MAY_HAVE):
            raise _mistake(file, key, f"is no key of a run ({', '.join((*KEYS, *MAY_HAVE))})")
    command, measured = tuple(shlex.split(str(values["command"]))), values["measured"]
    if command[:2] != ("ndpsim", "predict"):
        raise _mistake(file, "command", "does not begin with ndpsim predict")
    numbers = isinstance(measured, dict) and all(
        phase in PHASES and isinstance(rate, int | float) and rate > 0 for phase, rate in measured.items()
    )
    if not numbers or not measured:
        raise _mistake(file, "measured", f"is not tokens/s of {' or '.join(PHASES)}")
    if values["grade"] not in GRADES:
        raise _mistake(file, "grade", f"is not one of {', '.join(GRADES)}")
    fitted = tuple(values.get("fitted", ()))
    if not set(fitted) <= set(measured):
        raise _mistake(file, "fitted", "names a phase that was not measured")
    name, source, note = (str(values.get(key, "")) for key in ("name", "source", "note"))
    rates = {phase: float(rate) for phase, rate in measured.items()}
    return Run(name, file.parent.name, command, rates, values["grade"], source, fitted, note)


@functools.cache
def runs() -> tuple[Run, ...]:
    """The runs of all machines, by their names.

    Raises:
        InputError: a file is wrong, or two runs have one name.
    """
    found: dict[str, Run] = {}
    for file in sorted(FOLDER.glob("*/machine.yaml")):
        values = plain_of(parse(file.read_text(encoding="utf-8"), str(file)))
        if not isinstance(values, dict) or set(values) != {"machine", "runs"}:
            raise _mistake(file, "machine", "the keys are machine and runs")
        for of_run in values["runs"]:
            run = run_of(file, of_run)
            if run.name in found:
                raise _mistake(file, "name", f"{run.name} is a run of {found[run.name].machine}, too")
            found[run.name] = run
    return tuple(found[name] for name in sorted(found))


# Predictions


def predicted(run: Run, *more: str) -> dict[str, Any]:
    """What `ndpsim predict --json` says of a run; `more`: arguments that replace those of its command."""
    told = io.StringIO()
    with contextlib.chdir(FOLDER / run.machine), contextlib.redirect_stdout(told):
        try:
            command_line([*run.command[1:], *more, "--json", "-"])
        except SystemExit as done:
            if done.code:
                raise
    found: dict[str, Any] = json.loads(told.getvalue())
    return found


def figures_of(run: Run) -> Iterator[Figure]:
    """The phases of a run that were measured, predicted now."""
    found = predicted(run)
    waits = waits_of(found)
    for phase in run.measured:
        of_phase = found[phase]
        share = of_phase["parts_ns"][of_phase["bound"]] / of_phase["time_ns"]
        tokens = found["config"]["work"]["prompt"] if phase == "prefill" else 1
        kind, rate = found["config"]["machine"]["kind"], tokens / of_phase["time_ns"] * 1e9
        yield Figure(run, phase, kind, rate, of_phase["bound"], share, waits)


def waits_of(found: dict[str, Any]) -> float:
    """Threads x layers of a decode step: all layers on a CPU alone, else those with experts on the CPU."""
    values = {key: value for key, (value, *_) in found["config"]["rates"].items()}
    cores = values["host.cpu_sockets"] * values["host.cpu_cores"]
    threads = min(values.get("host.cpu_threads") or cores, cores)
    if found["config"]["machine"]["gpu"] == "none":
        return float(threads * load_model(found["config"]["work"]["model"]).layers)
    layer_us = values["host.cpu_layer_overhead_us"] + threads * values["host.cpu_thread_overhead_us"]
    hand_over_us = found["decode"]["parts_ns"].get("hand-over between GPU and CPU", 0) / 1000
    return float(threads * round(hand_over_us / layer_us))


@functools.cache
def overhead_now_us() -> float:
    """host.cpu_thread_overhead_us of `predict`."""
    file = HERE.parent / "ndpsim" / "inference" / "prediction" / "machine.yaml"
    values = plain_of(parse(file.read_text(encoding="utf-8"), str(file)))
    return float(values["host"]["cpu_thread_overhead_us"]["value"])


def wanted_us() -> list[float]:
    """What host.cpu_thread_overhead_us would make each of the fitted decode phases exact."""
    return [overhead_now_us() + missing_us(one) for one in read_predictions() if one.of_barrier]


def missing_us(one: Figure) -> float:
    """What a layer and thread lacks in a predicted decode step, in us."""
    return 1e6 * (1 / one.run.measured[one.phase] - 1 / one.tokens_per_s) / one.waits


def write_predictions(names: Sequence[str]) -> None:
    """machines_predicted.csv, a row for each run and phase: of all runs anew, or of those of these names."""
    chosen = [run for run in runs() if not names or run.name in names]
    known = {figure.run.name for figure in read_predictions()} - {run.name for run in chosen}
    kept = [figure for figure in read_predictions() if figure.run.name in known]
    for run in chosen:
        kept += figures_of(run)
        print(
            *(f"{one.run.name} {one.phase} {one.tokens_per_s:.4g} {one.error:+.0%}" for one in kept[-2:]),
            flush=True,
        )
        _write(sorted(kept, key=lambda figure: figure.run.name))


def _write(figures: Sequence[Figure]) -> None:
    with PREDICTED.open("w", encoding="utf-8", newline="") as file:
        file.write("# python validation/machines.py predict\n")
        out = csv.writer(file, lineterminator="\n")
        out.writerow(("id", *Figure._fields[1:]))
        for run, phase, kind, rate, bound, share, waits in figures:
            out.writerow((run.name, phase, kind, f"{rate:.5g}", bound, f"{share:.3f}", f"{waits:g}"))


def read_predictions() -> list[Figure]:
    """The rows of machines_predicted.csv whose runs are still there."""
    of_name, found = {run.name: run for run in runs()}, []
    if PREDICTED.is_file():
        with PREDICTED.open(encoding="utf-8", newline="") as file:
            for row in csv.DictReader(line for line in file if not line.startswith("#")):
                run = of_name.get(row["id"])
                if run is not None and row["phase"] in run.measured:
                    rate, share, waits = (
                        float(row[key]) for key in ("tokens_per_s", "share_of_time", "waits")
                    )
                    found.append(Figure(run, row["phase"], row["kind"], rate, row["bound"], share, waits))
    return found


# What they give


def write_ratios() -> None:
    """ndpsim/inference/prediction/measured.csv: what the intervals of predictions are made of."""
    with MEASURED.open("w", encoding="utf-8", newline="") as file:
        file.write("# Measured over predicted tokens/s: python validation/machines.py\n")
        out = csv.writer(file, lineterminator="\n")
        out.writerow(("id", "machine", "kind", "phase", "measured_over_predicted"))
        for one in read_predictions():
            if not one.fitted:
                out.writerow((one.run.name, one.run.machine, one.kind, one.phase, f"{one.ratio:.4f}"))


def _kind_line(kind: str, phase: str, figures: Sequence[Figure]) -> str:
    """A kind and a phase: the error, the interval, and runs within the interval of the other machines."""
    of_phase = [(one.run.machine, one.kind, one.ratio) for one in figures if one.phase == phase]
    own = [one for one in figures if one.phase == phase and kind in (one.kind, "all kinds")]
    if not own:
        return f"| {kind} | {phase} | 0 | 0 | | | |"
    within = 0
    for one in own:
        others = [row[1:] for row in of_phase if row[0] != one.run.machine]
        low, high, _ = covering(others or [(one.kind, np.nan)], one.kind)
        within += low <= one.ratio <= high
    low, high, _ = covering([row[1:] for row in of_phase], kind)
    median = float(np.median([abs(one.error) for one in own]))
    machines = len({one.run.machine for one in own})
    return (
        f"| {kind} | {phase} | {machines} | {len(own)} | {median:.0%} | {low:.2f} to {high:.2f} | "
        f"{within} of {len(own)} |"
    )


def kind_lines() -> str:
    """The table by kind."""
    held_out = [one for one in read_predictions() if not one.fitted]
    kinds = [*sorted({one.kind for one in held_out}), "all kinds"]
    return "\n".join(_kind_line(kind, phase, held_out) for kind in kinds for phase in PHASES)


def _run_line(one: Figure) -> str:
    options = one.run.options
    work = ", ".join(options.get(key, "") for key in ("model", "weights"))
    program = options.get("program", "ik_llama.cpp")
    mark = "*" if one.fitted else ""
    return (
        f"| {one.run.name} | {one.run.machine} | {work}, {program} | {one.phase} | {one.tokens_per_s:.4g} | "
        f"{one.run.measured[one.phase]:.4g}{mark} | {one.error:+.0%} | {one.bound} {one.share_of_time:.0%} | "
        f"{one.run.grade} |"
    )


def barrier_words(figures: Sequence[Figure]) -> dict[str, Any]:
    """The values of the text on threads that wait for each other."""
    wanted = wanted_us()
    others = [one for one in figures if one.phase == "decode" and not one.fitted and one.waits]
    by_kind = {
        kind: np.median([missing_us(one) for one in others if one.kind == kind])
        for kind in sorted({one.kind for one in others})
    }
    return {
        "barrier": float(np.median(wanted)) if wanted else float("nan"),
        "barrier_runs": len(wanted),
        "barrier_range": f"{min(wanted):.1f} to {max(wanted):.1f}" if wanted else "none",
        "barrier_others": ", ".join(f"{kind} {median:+.1f}" for kind, median in by_kind.items()),
    }


def text() -> str:
    """machines.md."""
    figures = read_predictions()
    beyond = [f"{one.run.name} {one.phase} {one.error:+.0%}" for one in figures if abs(one.error) > FAR]
    notes = [f"- {run.name}: {run.source}{'; ' + run.note if run.note else ''}." for run in runs()]
    return TEXT.format(
        runs=len(runs()),
        machines=len({run.machine for run in runs()}),
        fewest=FEWEST,
        most_error=MOST_ERROR,
        few=FEW,
        kinds=kind_lines(),
        table="\n".join(map(_run_line, figures)),
        **barrier_words(figures),
        far=f"{FAR:.0%}",
        beyond=f"{len(beyond)} of {len(figures)}: {', '.join(beyond)}",
        notes="\n".join(notes),
    )


if __name__ == "__main__":
    if sys.argv[1:2] == ["predict"]:
        write_predictions(sys.argv[2:])
    else:
        write_ratios()
        (HERE / "machines.md").write_text(text(), encoding="utf-8")
