"""``ndpsim``: finds the command, and prints a mistake in one line.

Exit status: 0 done; 1 a check failed (an illegal command trace); 2 bad input.
"""

from __future__ import annotations

import importlib
import keyword
import logging
import os
import re
import sys
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import click

from ndpsim.base.errors import InputError, MismatchError, one_line
from ndpsim.base.run_files import inputs_protected
from ndpsim.cli.command import CommandGroup, group
from ndpsim.cli.notices import notices
from ndpsim.cli.process import StandardOutputError, forget_output

_SUMMARY = re.compile(r'"""``ndpsim ([a-z]+)``: (.+?)\.?(?:"""|$)')


def _summaries() -> Iterator[tuple[str, str]]:
    """The name and description of each command, from the first lines of the modules; none is imported."""
    for path in sorted(Path(__file__).parent.glob("*.py")):
        with path.open(encoding="utf-8") as source:
            if found := _SUMMARY.match(source.readline().rstrip()):
                yield found[1], found[2]


# Each command is `command` in a module of its name, which is imported when the command is called.
_COMMANDS = dict(_summaries())

_EXAMPLES = ("ndpsim gemv --hw trimoe --model qwen3-235b-a22b --tokens 1", "ndpsim show hw trimoe")


class _Commands(CommandGroup):
    """Imports a command only when it is called, so that each starts fast."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in _COMMANDS:
            return None
        module = f"{name}_" if keyword.iskeyword(name) else name
        command: click.Command = importlib.import_module(f"ndpsim.cli.{module}").command
        return command

    def invoke(self, ctx: click.Context) -> Any:
        with notices():
            return super().invoke(ctx)

    def command_rows(self) -> list[tuple[str, str]]:
        return list(_COMMANDS.items())


@group(*_EXAMPLES, cls=_Commands, invoke_without_command=True)
@click.option(
    "--plugin", metavar="FILE.py", help="Use a plug-in; may be anywhere in a call, and several times."
)
@click.version_option(metadata.version("ndpsim"), prog_name="ndpsim")
@click.pass_context
def cli(context: click.Context, plugin: str | None) -> None:
    """Cycle-level simulation of DRAM and near-data processing for mixture-of-experts models."""
    if plugin is not None:
        raise InputError("is taken when a process starts, not by a call in it", "unsupported", key="--plugin")
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit."""
    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # no lines about its font cache
    try:
        status = _status_of(arguments)
        print(end="", flush=True)
    except StandardOutputError as error:
        forget_output()
        # A closed pipe, as in `ndpsim list models | head -1`, is no mistake.
        status = 0 if error.broken_pipe else _refuse(str(error))
    except OSError as error:
        status = _refuse(f"{error.filename}: {error.strerror}" if error.filename else _without_name(error))
    sys.exit(status)


def _status_of(arguments: Sequence[str] | None) -> int:
    """The exit status of the call; mistakes and interruptions are printed."""
    try:
        with inputs_protected():
            return cli.main(arguments, prog_name="ndpsim", standalone_mode=False) or 0
    except InputError as error:
        return _refuse(str(error))
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.ctx.get_help() if error.ctx else error.format_message())
        return 0
    except click.ClickException as error:
        return _refuse(error.format_message())
    except MismatchError as error:
        click.echo(f"ndpsim: error: {one_line(str(error))}", err=True)
        return 1
    except (KeyboardInterrupt, click.Abort):
        click.echo("ndpsim: interrupted", err=True)
        return 130
    except MemoryError:
        return _refuse("the machine has no memory left for this; what is asked for is too large")


def _without_name(error: OSError) -> str:
    """The message of an error without the name of its file."""
    try:
        os.getcwd()
    except OSError:
        return "the current folder does not exist any more"
    return error.strerror or str(error)


def _refuse(reason: str) -> int:
    click.echo(f"ndpsim: error: {one_line(reason)}", err=True)
    return 2
