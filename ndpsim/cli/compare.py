"""``ndpsim compare``: run a request trace through another simulator too, and compare every command."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ndpsim.base.options import Choice, Parameter, table
from ndpsim.base.options.dram import MEMORY
from ndpsim.base.options.hardware import SET
from ndpsim.cli.command import Options, taking
from ndpsim.cli.memory_options import check_addressed, memory_of
from ndpsim.cli.options import JSON, answer

if TYPE_CHECKING:
    from ndpsim.studies.ramulator import Comparison

_SIMULATOR = Parameter(
    "simulator",
    "The simulator.",
    Choice(("ramulator",), "simulator", form="ramulator"),
    positional=True,
    required=True,
)


@taking(
    table({"What is simulated": (_SIMULATOR,)}),
    MEMORY,
    table({"What is simulated": (SET,), "Results": (JSON,)}),
    examples=(
        "ndpsim compare ramulator trace.gz",
        "ndpsim compare ramulator trace.gz --ranks 4 --refresh none --json compared.json",
    ),
)
def command(options: Options) -> None:
    """Run a request trace through ndpsim and through Ramulator 2.1, if its Python package is installed.

    Prints "identical" or the first command that differs, and the speed of both simulators. The exit status is
    1 if the commands differ.
    """
    from ndpsim.dram.traces import read_requests
    from ndpsim.studies.ramulator import compare

    memory = memory_of(options)
    requests = read_requests(options["trace"], options.get("format"))
    check_addressed(requests.address is None, options)
    outcome = compare(requests, memory)
    answer(options, outcome.to_dict, lambda: _print(outcome))
    if not outcome.identical:
        raise click.exceptions.Exit(1)


def _print(outcome: Comparison) -> None:
    from ndpsim.base.units import significant
    from ndpsim.report.printing import print_text
    from ndpsim.report.words import counted

    print_text("identical" if outcome.identical else f"different: {outcome.first_difference}")
    ours, theirs = significant(outcome.ours_mps), significant(outcome.ramulator_mps)
    print_text(
        f"{counted(outcome.commands, 'command')} compared; ours {ours} million requests/s, "
        f"Ramulator 2.1 {theirs}, {significant(outcome.ours_mps / outcome.ramulator_mps, 3)} times"
    )
