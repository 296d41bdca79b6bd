"""Tokens/s that owners of machines have published, beside what `ndpsim predict` says of the same machines.

``python validation/machines.py predict``: predicts all of machines.csv, into machines_predicted.csv.
``python validation/machines.py``: from both files, machines.md and ndpsim/inference/prediction/measured.csv.
"""

from __future__ import annotations

import csv
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ndpsim import predict
from ndpsim.simulate.results.prediction import Prediction

HERE = Path(__file__).parent
RUNS = HERE / "machines.csv"
PREDICTED = HERE / "machines_predicted.csv"
MEASURED = HERE.parent / "ndpsim" / "inference" / "prediction" / "measured.csv"
PHASES = ("prefill", "decode")
#: What `predict` calls a program whose measurements have another name.
PROGRAMS = {"KTransformers": "ktransformers", "Krasis": "streaming"}
ALL_LAYERS = 1000
FAR = 0.35

TEXT = """\
# Machines that people own

Made by `python validation/machines.py` from `machines.csv` (published runs with their sources) and
`machines_predicted.csv` (`python validation/machines.py predict`).

{runs} runs of 7 CPUs. Rates of parts come from data sheets and from measurements of kernels and memory
([cpu.md](cpu.md), [gpu.md](gpu.md)); nothing was fitted to these tokens/s. The published table was known
while the models were written. Predictions were committed before they were compared with it. After the
comparison three inputs were corrected from their sources: a limit of a fabric that had been taken as a
limit of the channels (7965WX), the memory of a 7950X, and the list of runs with repacked weights (`-rtr`
and `_R4` in the sources), whose prompts stay on the CPU. A fourth change came later: the fit of products
on CPUs includes the reading of weights. An error is the predicted minus the measured rate, as a share of
the measured rate. Median size of the error: prefill {prefill}, decode {decode}. Each error beyond {far}
has an experiment below, except the prefill of o25, whose cause was not found.
"""

Row = Mapping[str, str]


class Experiment(NamedTuple):
    """Runs predicted again with one thing changed, which names a cause of their error."""

    runs: tuple[str, ...]
    phases: tuple[str, ...]
    words: str
    changed: Callable[[Row], Mapping[str, object]]


def one_socket(row: Row) -> Mapping[str, object]:
    """The run on one of its two sockets."""
    memory, _, dimms = row["memory"].rpartition("x")
    return {"sockets": 1, "memory": f"{memory}x{int(dimms) // 2}"}


#: What a program reads that unpacks weights value by value, over what the memory gives: 17.3 of 64 GB/s.
VALUE_BY_VALUE = 17.3 / 64
#: What the CPUs of o25 and o26 can read: 0.649 of 170.6 and 0.830 of 51.2 GB/s (cpu.md).
LIMITS_GBPS = {"o25": 110.7, "o26": 42.5}

EXPERIMENTS = (
    Experiment(
        ("o01", "o02", "o03", "o05"),
        PHASES,
        "**Two sockets.** The experiment has one socket. KTransformers gives each of two sockets a copy "
        "of the weights. Measured, the second socket gives 1.40 times the tokens/s in decode and 1.53 "
        "times in prefill (o04 and o05); in the simulation it gives 1.64 times the tokens/s in decode and "
        "nearly twice in prefill. The simulation has no waiting between threads of two sockets.",
        one_socket,
    ),
    Experiment(
        ("o13", "o14", "o17"),
        ("decode",),
        "**Unpacking.** An expert of one token takes as long to compute as an expert of six tokens "
        "(`host.cpu_added_tokens=5`). o13 and o14 are one machine with files of about as many bytes: "
        "IQ4_K_R4 gives 12.3 tokens/s, UD-Q4_K_XL 15.0. The difference is the time to unpack a format, "
        "which is not modelled. The change is right for IQ4_K_R4 and too large for the others.",
        lambda row: {"sets": ("host.cpu_added_tokens=5",)},
    ),
    Experiment(
        ("o24",),
        ("prefill",),
        "**Chunks.** The source does not say how many tokens are computed at once. With 4,096 instead of "
        "the program's 512, the experts go over the link once.",
        lambda row: {"chunk": 4096},
    ),
    Experiment(
        ("o25", "o26"),
        ("decode",),
        "**Kernels of the program.** Krasis has CPU kernels of its own. The experiment has the share of "
        "the memory's rate of a program that unpacks weights value by value (0.27, a Ryzen 7 "
        "9800X3D, cpu.md):",
        lambda row: {"sets": (f"host.cpu_read_gbps={VALUE_BY_VALUE * LIMITS_GBPS[row['id']]:.4g}",)},
    ),
)


def rows_of(path: Path) -> list[dict[str, str]]:
    """The rows of a table whose comments begin with #."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(line for line in file if not line.startswith("#")))


def predicted(row: Row, **changed: object) -> Prediction:
    """The prediction of a row, or of the row with something changed."""
    placement = row["placement"]
    arguments: dict[str, object] = {
        "cpu": row["cpu"],
        "sockets": int(row["sockets"]),
        "memory": row["memory"],
        "gpu": row["gpu"],
        "link": row["link"],
        "model": row["model"],
        "weights": row["weights"],
        "program": PROGRAMS.get(row["program"], row["program"]),
        "chunk": int(row["chunk"]),
        "prompt": int(row["prompt"]),
        "generated": int(row["generated"]),
        "n_cpu_moe": int(placement) if placement.isdigit() else ALL_LAYERS,
        "upgrades": False,
    }
    return predict(**(arguments | changed))  # type: ignore[arg-type]


def write_predictions() -> None:
    """machines_predicted.csv, a row for each run and phase."""
    with PREDICTED.open("w", encoding="utf-8", newline="") as file:
        file.write("# python validation/machines.py predict\n")
        out = csv.writer(file, lineterminator="\n")
        out.writerow(("id", "phase", "tokens_per_s", "bound", "share_of_time"))
        for row in rows_of(RUNS):
            result = predicted(row)
            for name, phase in (("prefill", result.prefill), ("decode", result.decode)):
                share = phase.parts_ns[phase.bound] / phase.time_ns
                out.writerow((row["id"], name, f"{phase.tokens_per_s:.5g}", phase.bound, f"{share:.3f}"))
            print(
                row["id"],
                f"{result.prefill.tokens_per_s:.4g}",
                f"{result.decode.tokens_per_s:.4g}",
                flush=True,
            )


def ratios() -> Iterator[tuple[Row, str, float, Row]]:
    """Each run and phase: its row, the phase, measured over predicted, the row of the prediction."""
    found = {(row["id"], row["phase"]): row for row in rows_of(PREDICTED)}
    for row in rows_of(RUNS):
        for phase in PHASES:
            ours = found[row["id"], phase]
            yield row, phase, float(row[phase]) / float(ours["tokens_per_s"]), ours


def write_ratios() -> None:
    """ndpsim/inference/prediction/measured.csv: what the error band of predictions is made of."""
    with MEASURED.open("w", encoding="utf-8", newline="") as file:
        file.write("# Measured over predicted tokens/s: python validation/machines.py\n")
        out = csv.writer(file, lineterminator="\n")
        out.writerow(("id", "phase", "measured_over_predicted"))
        out.writerows((row["id"], phase, f"{ratio:.4f}") for row, phase, ratio, _ in ratios())


def error(ratio: float) -> float:
    """Predicted over measured, less 1."""
    return 1 / ratio - 1


def medians() -> dict[str, float]:
    """Of the size of errors, by phase."""
    sizes: dict[str, list[float]] = {phase: [] for phase in PHASES}
    for _, phase, ratio, _ in ratios():
        sizes[phase].append(abs(error(ratio)))
    return {phase: float(np.median(of_phase)) for phase, of_phase in sizes.items()}


def text() -> str:
    """machines.md."""
    middle = medians()
    lines = [
        TEXT.format(
            runs=len(rows_of(RUNS)),
            far=f"{FAR:.0%}",
            **{k: f"{v:.1%}" for k, v in middle.items()},
        ),
        "| run | machine | model, weights | program | phase | predicted | measured | error | longest part |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row, phase, ratio, ours in ratios():
        sockets = f"{row['sockets']}x " if row["sockets"] != "1" else ""
        machine = f"{sockets}{row['cpu']}, {row['memory']}, {row['gpu']}"
        lines.append(
            f"| {row['id']} | {machine} | {row['model']}, {row['weights']} | {row['program']} | {phase} | "
            f"{float(ours['tokens_per_s']):.4g} | {float(row[phase]):.4g} | {error(ratio):+.0%} | "
            f"{ours['bound']} {float(ours['share_of_time']):.0%} |"
        )
    far = [f"{row['id']} {phase}" for row, phase, ratio, _ in ratios() if abs(error(ratio)) > FAR]
    lines += [
        "",
        f"## Beyond {FAR:.0%}",
        "",
        f"{len(far)} of {2 * len(rows_of(RUNS))}: {', '.join(far)}.",
        "",
    ]
    for experiment in EXPERIMENTS:
        lines += [*textwrap.wrap(experiment.words, 118), "", *experiment_lines(experiment), ""]
    return "\n".join(lines).rstrip() + "\n"


def experiment_lines(experiment: Experiment) -> list[str]:
    """A table of the runs of an experiment."""
    found = {row["id"]: row for row in rows_of(RUNS)}
    lines = ["| run | phase | as it is | with the change | measured |", "|---|---|---|---|---|"]
    before = {(row["id"], phase): float(ours["tokens_per_s"]) for row, phase, _, ours in ratios()}
    for name in experiment.runs:
        result = predicted(found[name], **experiment.changed(found[name]))
        for phase in experiment.phases:
            changed = getattr(result, phase).tokens_per_s
            measured = float(found[name][phase])
            cells = (
                name,
                phase,
                f"{before[name, phase]:.4g}",
                f"{changed:.4g} ({changed / measured - 1:+.0%})",
                f"{measured:.4g}",
            )
            lines.append(f"| {' | '.join(cells)} |")
    return lines


if __name__ == "__main__":
    if sys.argv[1:] == ["predict"]:
        write_predictions()
    else:
        write_ratios()
        (HERE / "machines.md").write_text(text(), encoding="utf-8")
