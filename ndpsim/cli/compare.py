"""``ndpsim compare``: compare every command with another simulator's, run here or recorded in a case."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ndpsim.base.errors import InputError
from ndpsim.base.options import table
from ndpsim.base.options.dram import MEMORY
from ndpsim.base.options.hardware import SET
from ndpsim.base.options.pim import CASES
from ndpsim.cli.command import Options, group, taking
from ndpsim.cli.options import COMMANDS, JSON, answer, check_addressed, memory_of

if TYPE_CHECKING:
    from ndpsim.studies.banks import BankComparison
    from ndpsim.studies.ramulator import Comparison


@group(
    "ndpsim compare ramulator trace.gz --ranks 4 --refresh none",
    "ndpsim compare banks case.yaml --json -",
)
def command() -> None:
    """Compare every command with another simulator's: run beside, or recorded in a reference case."""


@taking(
    MEMORY,
    table({"What is simulated": (SET,), "Results": (JSON,)}),
    examples=(
        "ndpsim compare ramulator trace.gz",
        "ndpsim compare ramulator trace.gz --ranks 4 --refresh none --json compared.json",
    ),
)
def ramulator(options: Options) -> None:
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


@taking(
    CASES,
    table({"Results": (JSON, COMMANDS)}),
    examples=(
        "ndpsim compare banks case.yaml --commands ours.csv.gz",
        "ndpsim compare banks cases/first.yaml cases/second.yaml --json compared.json",
    ),
)
def banks(options: Options) -> None:
    """Run cases of units in banks on their own devices, with the idealisations of their references.

    A case is a YAML file with its program, and maybe the reference's commands, beside it. Prints "equal" or
    the first command that differs, and the clocks at which the checker finds commands illegal. --commands
    writes the commands of one case. The exit status is 1 if a case differs, or has units or a workload that
    ndpsim lacks.
    """
    from ndpsim.dram.traces.unit_commands import write_unit_commands
    from ndpsim.studies.banks import compare_banks, read_case

    paths = options["cases"]
    if "commands" in options and len(paths) > 1:
        raise InputError("is of one case", "conflict", key="--commands")
    outcomes: list[BankComparison] = []
    refused: list[InputError] = []
    for path in paths:
        try:
            case = read_case(path)
            outcome = compare_banks(case, record_commands="commands" in options)
        except InputError as error:
            if error.code != "unsupported":
                raise
            refused.append(error)
            continue
        outcomes.append(outcome)
        if "commands" in options and outcome.result.command_traces is not None:
            write_unit_commands(options["commands"], outcome.result.command_traces, case.hardware.device)
    plain: list[dict[str, Any]] = [outcome.to_dict() for outcome in outcomes]
    plain += [{"case": error.file, "equal": None, "not_compared": str(error)} for error in refused]
    answer(options, lambda: plain if len(paths) > 1 else plain[0], lambda: _print_banks(outcomes, refused))
    if refused or not all(outcome.equal for outcome in outcomes):
        raise click.exceptions.Exit(1)


def _print_banks(outcomes: list[BankComparison], refused: list[InputError]) -> None:
    from ndpsim.report.printing import print_text
    from ndpsim.report.words import counted

    for outcome in outcomes:
        verdict = "equal" if outcome.equal else f"different: {outcome.first_difference}"
        each = f"{counted(outcome.compared, 'command')} compared, " if outcome.compared else ""
        print_text(f"{outcome.case}: {verdict}; {each}{counted(outcome.cycles, 'clock')}", indent="  ")
        if outcome.legal is False:
            clocks = ", ".join(map(str, outcome.illegal_clocks))
            print_text(f"{outcome.case}: illegal for the device at clocks {clocks}", indent="  ")
    for error in refused:
        print_text(f"not compared: {error}", indent="  ")


for _command in (ramulator, banks):
    command.add_command(_command)
