"""``ndpsim``: finds the command, and says every mistake in one line.

Exit status: 0 done; 1 the answer is no (an illegal command trace); 2 bad input.
"""

from __future__ import annotations

import contextlib
import importlib
import keyword
import os
import sys
from collections.abc import Sequence
from importlib import metadata
from typing import Any

import click

from ndpsim.cli.notices import notices
from ndpsim.errors import InputError, MismatchError, nearest

__all__ = ["cli", "main"]

# Commands by name; each is `command` in a module of its own, imported when it is called.
_COMMANDS = {
    "gemv": "simulate one expert's GEMV on one DIMM or several, or its reading by the host",
    "relayout": "move experts from one layout to another over the links between DIMMs",
    "dram": "run a request trace through a memory controller, command for command the reference's",
    "compare": "run a request trace through another simulator as well and compare every command",
    "check": "check a command trace against every rule of its DRAM standard",
    "bench": "measure how fast the simulator is, on work whose outcome is known",
    "list": "list what is bundled and known: hardware, models, presets, formats",
    "show": "show one of them in full: hw, model, org, timing, schema, layout",
    "import": "turn a DRAMsim3 or Ramulator 2 configuration into a hardware file",
    "cache": "say where compiled kernels lie and how large they are; remove them",
}


class _Commands(click.Group):
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

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(_COMMANDS.items()))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and args[0] not in _COMMANDS:
            guess = nearest(args[0], _COMMANDS)
            hint = f"; did you mean '{guess}'?" if guess else ""
            raise InputError(f"there is no command '{args[0]}'{hint} (commands: {', '.join(_COMMANDS)})")
        return super().resolve_command(ctx, args)


@click.group(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    invoke_without_command=True,
)
@click.version_option(metadata.version("ndpsim"), prog_name="ndpsim")
@click.pass_context
def cli(context: click.Context) -> None:
    """Cycle-level simulation of DRAM and near-data processing for mixture-of-experts models."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit."""
    try:
        status = cli.main(arguments, prog_name="ndpsim", standalone_mode=False)
        sys.stdout.flush()
    except InputError as error:
        status = _refuse(str(error))
    except click.ClickException as error:
        status = _refuse(" ".join(error.format_message().split()))
    except MismatchError as error:
        click.echo(f"ndpsim: error: {error}", err=True)
        status = 1
    except (KeyboardInterrupt, click.Abort):
        click.echo("ndpsim: interrupted", err=True)
        status = 130
    except BrokenPipeError:  # the reader has seen enough, as in `ndpsim list models | head -1`
        _forget_output()
        status = 0
    except OSError as error:  # a full disk behind standard output
        _forget_output()
        status = _refuse(f"cannot write standard output: {error.strerror or error}")
    sys.exit(status)


def _forget_output() -> None:
    """Let what is still buffered go nowhere, so that closing standard output cannot fail again."""
    with contextlib.suppress(OSError):  # standard output may be no file at all
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _refuse(reason: str) -> int:
    click.echo(f"ndpsim: error: {reason}", err=True)
    return 2
