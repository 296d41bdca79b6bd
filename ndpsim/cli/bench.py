"""``ndpsim bench``: how fast the simulator is."""

from __future__ import annotations

import os
from collections.abc import Sequence

import click

from ndpsim.cli.command import Command
from ndpsim.cli.options import check_outputs, json_option, named_as_options, progress_of, write_json
from ndpsim.files import replacing


@click.command(
    cls=Command,
    examples=(
        "ndpsim bench --row stream_r1 --json -",
        "ndpsim bench --repeat 9 --markdown performance.md",
    ),
)
@click.option("--row", "rows", multiple=True, metavar="NAME", help="Only this row. Repeatable.")
@click.option(
    "--repeat",
    default=5,
    show_default=True,
    type=int,
    help="Runs of which the best counts; experts at least 20, Ramulator at most 3, compile 1.",
)
@json_option
@click.option(
    "--markdown", "markdown_to", metavar="FILE", help="Write the table, with machine and date, as Markdown."
)
def command(rows: tuple[str, ...], repeat: int, json_to: str | None, markdown_to: str | None) -> None:
    """Measure how fast the simulator is, row by row.

    The work of every row is pinned: its requests, cycles and commands must come out as they are known, the
    plain implementation must agree in every counter, and so must Ramulator 2.1 where its Python package
    `ramulator` can be imported. Exit status 1 when one does not.
    """
    check_outputs({"--json": json_to, "--markdown": markdown_to})
    from ndpsim.devtools.bench import run_rows
    from ndpsim.devtools.bench.table import COLUMNS, cells, machine, markdown
    from ndpsim.report.printing import print_table
    from ndpsim.report.words import counted

    with progress_of("measuring") as progress, named_as_options("row", "repeat"):
        measured = run_rows(rows, repeat, progress)
    if markdown_to is not None:
        with replacing(markdown_to) as file:
            file.write(markdown(measured, _command(rows, repeat, markdown_to)).encode())
    if json_to is not None:
        write_json({"rows": [row.to_dict() for row in measured], "machine": machine()}, json_to)
    if json_to != "-":
        print_table(f"best of {counted(repeat, 'run')}", COLUMNS, map(cells, measured))


def _command(rows: Sequence[str], repeat: int, markdown_to: str) -> str:
    """What to type for the same table."""
    options = [*(f"--row {name}" for name in rows), f"--repeat {repeat}"]
    return " ".join(["ndpsim bench", *options, f"--markdown {os.path.basename(markdown_to)}"])
