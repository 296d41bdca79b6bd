"""``ndpsim import``: turn a DRAMsim3 or Ramulator 2 configuration into a hardware file."""

from __future__ import annotations

import os

import click

from ndpsim.base.errors import InputError
from ndpsim.base.files import replacing
from ndpsim.base.options import Flag, Kind, Output, Parameter, table
from ndpsim.cli.command import Options, taking

_IMPORT = table(
    {
        "Results": (
            Parameter(
                "file", "The configuration.", Kind(form="FILE"), positional=True, required=True, files=("",)
            ),
            Parameter("out", "Hardware file.", Output(form="NAME.yaml"), otherwise="standard output"),
            Parameter("name", "Name of the hardware.", Kind(), otherwise="the name of the file"),
            Parameter("force", "Replace --out if it exists.", Flag(), needs="out"),
        )
    }
)


@taking(
    _IMPORT,
    examples=("ndpsim import DDR4_8Gb_x8_3200.ini --out mine.yaml", "ndpsim import config.yaml --name mine"),
)
def command(options: Options) -> None:
    """Convert a DRAMsim3 INI file or a Ramulator 2 YAML file into a hardware file.

    Each value has a source: file and key. For each setting that cannot be converted, a line is printed on
    standard error.
    """
    from ndpsim.config.importers import import_hardware

    out = options.get("out")
    if out is not None and "force" not in options and os.path.exists(out):
        raise InputError(f"{out} exists; --force replaces it", key="out", code="unwritable")
    imported = import_hardware(options["file"], options.get("name"))
    for note in imported.notes:
        click.echo(f"ndpsim: note: {note}", err=True)
    if out is None:
        click.echo(imported.text, nl=False)
    else:
        with replacing(out, new="force" not in options) as stream:
            stream.write(imported.text.encode())
