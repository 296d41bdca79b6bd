"""``ndpsim bench``: measure the speed of the simulator on work with known results."""

from __future__ import annotations

import os
from collections.abc import Sequence

from ndpsim.base.files import replacing
from ndpsim.base.options import Choice, Kind, Output, Parameter, Real, Whole, refuse, table
from ndpsim.cli.command import Options, taking
from ndpsim.cli.options import JSON, answer, picture, plot_of, progress_of

_BENCH = table(
    {
        "What is simulated": (
            Parameter(
                "row",
                "Measure only this row. Repeatable.",
                Kind(form="NAME"),
                names="bench-rows",
                repeatable=True,
            ),
            Parameter(
                "only",
                "speed: rows with known results; growth: the same work in several sizes; scale: long and "
                "large work, with its memory, for hours.",
                Choice(("speed", "growth", "scale"), "kind of rows"),
                "speed",
            ),
            Parameter(
                "share",
                "Size of the work of --only scale, as a share of the full size.",
                Real(1e-6, 1.0),
                1.0,
                needs="only=scale",
            ),
            Parameter(
                "repeat",
                "Number of runs; the fastest is used. Experts run at least 20 times, Ramulator at most 3, "
                "compile once; --only growth at most 3 times.",
                Whole(1),
                5,
            ),
        ),
        "Results": (
            JSON,
            *picture("Draw the time of each row for a request; of growth, the time of each size.", "bench"),
            Parameter("markdown", "Write the table, with machine and date, as Markdown.", Output()),
        ),
    }
)


@taking(
    _BENCH,
    examples=("ndpsim bench --row stream_r1 --json -", "ndpsim bench --repeat 9 --markdown performance.md"),
)
def command(options: Options) -> None:
    """Measure the speed of the simulator, row by row.

    Requests, cycles and commands of every row must equal known values. The plain implementation must agree in
    every counter, and also Ramulator 2.1 if its Python package `ramulator` is installed. The exit status is 1
    if a value differs.
    """
    others = {"growth": _measure_growth, "scale": _measure_scale}
    if (measure := others.get(_BENCH.value(options, "only"))) is not None:
        measure(options)
        return
    from ndpsim.report.printing import print_table
    from ndpsim.report.words import counted
    from ndpsim.studies.bench import run_rows
    from ndpsim.studies.bench.table import COLUMNS, cells, machine, markdown

    rows, repeat = options.get("row", ()), _BENCH.value(options, "repeat")
    plot = plot_of(options, "bench")
    with progress_of("measuring") as progress:
        measured = run_rows(rows, repeat, progress)
    if plot is not None:
        from ndpsim.report.pictures.claims import bench_figure

        plot.draw(bench_figure, {row.name: row.seconds / row.work.requests * 1e9 for row in measured})
    if "markdown" in options:
        with replacing(options["markdown"]) as file:
            file.write(markdown(measured, _command(rows, repeat, options["markdown"])).encode())
    answer(
        options,
        lambda: {"rows": [row.to_dict() for row in measured], "machine": machine()},
        lambda: print_table(f"best of {counted(repeat, 'run')}", COLUMNS, map(cells, measured)),
    )


def _measure_growth(options: Options) -> None:
    """Measure how processor time grows with the size of the work."""
    refuse(options, "applies only to --only speed", "markdown")
    from ndpsim.base.units import format_time
    from ndpsim.report.printing import print_table
    from ndpsim.studies.bench.growth import run_growth

    plot = plot_of(options, "bench")
    with progress_of("measuring") as progress:
        measured = run_growth(options.get("row", ()), min(3, _BENCH.value(options, "repeat")), progress)
    if plot is not None:
        from ndpsim.report.pictures.claims import growth_figure

        plot.draw(growth_figure, {row.name: (row.sizes, row.cpu_s) for row in measured})
    rows = []
    for row in measured:
        powers = ["", *(f"{power:.2f}" for power in row.exponents)]
        for size, seconds, power in zip(row.sizes, row.cpu_s, powers, strict=True):
            rows.append((row.name, row.about, f"{size:,}", format_time(seconds * 1e9), power))
    answer(
        options,
        lambda: {"rows": [row.to_dict() for row in measured]},
        lambda: print_table("growth", ("row", "work", "size", "CPU", "power of the size"), rows),
    )


def _measure_scale(options: Options) -> None:
    """Measure long and large work, each kind in a process of its own."""
    refuse(options, "applies only to --only speed", "repeat", "plot", "markdown")
    from ndpsim.base.units import format_bytes, format_time
    from ndpsim.report.printing import print_table
    from ndpsim.studies.bench.scale import run_scale

    with progress_of("measuring") as progress:
        measured = run_scale(options.get("row", ()), _BENCH.value(options, "share"), progress)
    columns = ("row", "work", "size", "CPU", "wall", "memory")
    rows = [
        (row.name, row.about, f"{row.count:,}", *(format_time(s * 1e9) for s in (row.cpu_s, row.wall_s)))
        for row in measured
    ]
    cells = [(*cells, format_bytes(row.peak_bytes)) for cells, row in zip(rows, measured, strict=True)]
    answer(
        options,
        lambda: {"rows": [row.to_dict() for row in measured]},
        lambda: print_table("long and large work", columns, cells),
    )


def _command(rows: Sequence[str], repeat: int, markdown_to: str) -> str:
    """The command that prints the same table."""
    options = [*(f"--row {name}" for name in rows), f"--repeat {repeat}"]
    return " ".join(["ndpsim bench", *options, f"--markdown {os.path.basename(markdown_to)}"])
