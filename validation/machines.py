"""Tokens/s that owners of machines have published, beside what `ndpsim predict` says of the same machines.

``python validation/machines.py predict``: predicts all of machines.csv, into machines_predicted.csv.
``python validation/machines.py``: from both files, machines.md and ndpsim/prediction/measured.csv.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from ndpsim import predict
from ndpsim.results.prediction import Prediction

HERE = Path(__file__).parent
PREDICTED = HERE / "machines_predicted.csv"
MEASURED = HERE.parent / "ndpsim" / "prediction" / "measured.csv"
PHASES = ("prefill", "decode")
PROGRAMS = {
    "ik_llama.cpp": "ik_llama.cpp",
    "ik_llama.cpp-repacked": "ik_llama.cpp-repacked",
    "llama.cpp": "llama.cpp",
    "KTransformers": "ktransformers",
    "Krasis": "streaming",
}
ALL_LAYERS = 1000
FAR = 0.35

TEXT = """\
# Machines that people own

Made by `python validation/machines.py` from `machines.csv` (what owners published, each with its source) and
`machines_predicted.csv` (`python validation/machines.py predict`).

{runs} runs of 7 CPUs. Rates of parts come from data sheets and from measurements of kernels and memory
([cpu.md](cpu.md), [gpu.md](gpu.md)); nothing was fitted to these tokens/s. Their table was at hand while the
models were written, and the predictions were committed before they stood beside it. Errors are those of the
prediction against the measured rate. Median size of the error: prefill {prefill}, decode {decode}. What is
beyond {far} has a cause that an experiment names, below.
"""

Row = Mapping[str, str]


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
        "program": PROGRAMS[row["program"]],
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
        for row in rows_of(HERE / "machines.csv"):
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
    for row in rows_of(HERE / "machines.csv"):
        for phase in PHASES:
            ours = found[row["id"], phase]
            yield row, phase, float(row[phase]) / float(ours["tokens_per_s"]), ours


def write_ratios() -> None:
    """ndpsim/prediction/measured.csv: what the error band of predictions is made of."""
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
            runs=len(rows_of(HERE / "machines.csv")),
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
    lines += ["", "## Beyond 35%", ""]
    far = {row["id"]: [] for row, *_ in ratios()}
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    if sys.argv[1:] == ["predict"]:
        write_predictions()
    else:
        write_ratios()
        (HERE / "machines.md").write_text(text(), encoding="utf-8")
