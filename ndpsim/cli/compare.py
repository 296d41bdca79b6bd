"""``ndpsim compare``: the same trace through another simulator."""

from __future__ import annotations

from typing import Any

import click

from ndpsim.cli.command import Command
from ndpsim.cli.memory_options import check_addressed, memory_of, memory_options
from ndpsim.cli.options import (
    check_outputs,
    json_option,
    named_as_options,
    write_json,
)
from ndpsim.errors import InputError, one_of


@click.command(
    cls=Command,
    examples=(
        "ndpsim compare ramulator trace.gz",
        "ndpsim compare ramulator trace.gz --ranks 4 --refresh none --json compared.json",
    ),
)
@click.argument("simulator", metavar="ramulator")
@click.argument("trace", metavar="TRACE")
@memory_options
@click.option("--format", "form", help="The trace's format, when it should not be detected.")
@json_option
def command(
    simulator: str,
    trace: str,
    hw: str | None,
    sets: tuple[str, ...],
    form: str | None,
    json_to: str | None,
    **given: Any,
) -> None:
    """Run a request trace through ours and through Ramulator 2.1, when its Python package is installed.

    Prints "identical" or the first command in which they differ, and how fast both were. Exit status 1
    when they differ.
    """
    if simulator != "ramulator":
        raise InputError(one_of(simulator, ["ramulator"], "simulator"), key="compare")
    check_outputs({"--json": json_to})
    from ndpsim.devtools.peers.ramulator import compare
    from ndpsim.traces import read_requests

    memory = memory_of(hw, sets, given)
    with named_as_options(format="--format"):
        requests = read_requests(trace, form)
    check_addressed(requests)
    outcome = compare(requests, memory)
    if json_to is not None:
        write_json(outcome.to_dict(), json_to)
    if json_to != "-":
        from ndpsim.report.printing import print_text
        from ndpsim.report.words import counted
        from ndpsim.units import significant

        print_text("identical" if outcome.identical else f"different: {outcome.first_difference}")
        ours, theirs = significant(outcome.ours_mps), significant(outcome.ramulator_mps)
        print_text(
            f"{counted(outcome.commands, 'command')} compared; ours {ours} million requests/s, "
            f"Ramulator 2.1 {theirs}, {significant(outcome.ours_mps / outcome.ramulator_mps, 3)} times"
        )
    if not outcome.identical:
        raise click.exceptions.Exit(1)
