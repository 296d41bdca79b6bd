"""``ndpsim pim``: run a program of units in banks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ndpsim.base.options import Flag, Parameter, table
from ndpsim.base.options.pim import HOST, PIM
from ndpsim.cli.command import Options, taking
from ndpsim.cli.options import COMMANDS, JSON, REPORT, Plot, answer, picture, plot_of

if TYPE_CHECKING:
    from ndpsim.config.banks import BankHardware
    from ndpsim.simulate.results.pim import PimResult


CHECK_UNITS = Parameter("check", "Check the commands as ndpsim check does; exit 1 if one is illegal.", Flag())

#: Outputs of programs of units in banks.
BANK_OUTPUTS = table(
    {
        "Results": (
            JSON,
            *picture("Draw bytes over time, and the commands.", "banks"),
            REPORT,
            COMMANDS,
        ),
        "Validation": (CHECK_UNITS,),
    }
)


@taking(
    PIM,
    BANK_OUTPUTS,
    examples=(
        "ndpsim pim program.csv.gz --hw attacc --set nCCDAB=4 --commands commands.csv.gz",
        "ndpsim pim program.csv --hw aim --host-traffic 20 --arbitration slice",
    ),
)
def command(options: Options) -> None:
    """Simulate a program of a device with units in its banks: AiM, AttAcc or HBM-PIM.

    By default the commands keep all rules of the device. --rules reference runs as the units' own simulator
    does, command for command. With --host-traffic a host reads and writes other rows until the units are
    done. docs/banks.md has the forms of programs, the rules and the idealisations.
    """
    from ndpsim.config.banks import load_bank_hardware
    from ndpsim.simulate.pim import run_pim

    hardware = load_bank_hardware(
        PIM.value(options, "hw"), options.get("set", ()), PIM.value(options, "rules")
    )
    PIM.check_needs(options, "--")
    plot = plot_of(options, "banks")
    host = PIM.arguments(options, *HOST) if "host-traffic" in options else None
    result = run_pim(options["program"], hardware, record_commands=records(options), host=host)
    finish(options, hardware, result, plot)


def records(options: Options) -> bool:
    """Whether the commands are needed, for a file, a picture or the check."""
    return not options.keys().isdisjoint(("commands", "plot", "report", "check"))


def finish(options: Options, hardware: BankHardware, result: PimResult, plot: Plot | None) -> None:
    """Write the commands, the picture and the result, print it, and check the commands."""
    from ndpsim.dram.traces.unit_commands import write_unit_commands
    from ndpsim.report.pim import print_pim

    if "commands" in options and result.command_traces is not None:
        write_unit_commands(options["commands"], result.command_traces, hardware.device)
    if plot is not None:
        from ndpsim.report.pictures.banks import pim_figure

        plot.draw(pim_figure, result, hardware)
    if "report" in options:
        from ndpsim.report.html.runs import write_pim_report

        write_pim_report(options["report"], result, hardware)
    answer(options, result.to_dict, lambda: print_pim(result))
    if "check" in options and not _is_legal(hardware, result):
        raise click.exceptions.Exit(1)


def _is_legal(hardware: BankHardware, result: PimResult) -> bool:
    """Check the commands of a run, and print what is illegal; idealisations do not count."""
    from ndpsim.audit.banks import check_units

    assert result.command_traces is not None
    report = check_units(result.command_traces, hardware.device)
    for finding in report.found:
        click.echo(f"  {finding.message}", err=True)
    click.echo(f"check: {report.summary}", err=True)
    return report.ok
