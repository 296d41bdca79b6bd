"""``ndpsim import``: a configuration of another simulator as a hardware file."""

from __future__ import annotations

from pathlib import Path

import click

from ndpsim.cli.command import Command
from ndpsim.cli.given import refuse_given
from ndpsim.cli.options import check_outputs
from ndpsim.errors import InputError
from ndpsim.files import replacing


@click.command(
    cls=Command,
    examples=(
        "ndpsim import DDR4_8Gb_x8_3200.ini --out mine.yaml",
        "ndpsim import config.yaml --name mine",
    ),
)
@click.argument("file")
@click.option("--out", metavar="NAME.yaml", help="Write here.  [default: standard output]")
@click.option("--name", help="Name of the hardware.  [default: that of the file]")
@click.option("--force", is_flag=True, help="Replace --out where it exists.")
def command(file: str, out: str | None, name: str | None, force: bool) -> None:
    """Turn a DRAMsim3 INI file or a Ramulator 2 YAML file into a hardware file.

    Each value says which file and key it came from. What could not be carried over is listed on standard
    error, a line each.
    """
    from ndpsim.importers import import_hardware

    check_outputs({"--out": out})
    if out is None:
        refuse_given("replaces --out, which is not given", "force")
    if out is not None and not force and Path(out).exists():
        raise InputError(f"{out} exists; --force replaces it", key="--out")
    imported = import_hardware(file, name)
    for note in imported.notes:
        click.echo(f"ndpsim: note: {note}", err=True)
    if out is None:
        click.echo(imported.text, nl=False)
    else:
        with replacing(out) as stream:
            stream.write(imported.text.encode())
