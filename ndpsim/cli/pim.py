"""``ndpsim pim``: run a program of units in banks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ndpsim.base.options import table
from ndpsim.base.options.pim import HOST, PIM
from ndpsim.cli.command import Options, taking
from ndpsim.cli.options import COMMANDS, JSON, answer

if TYPE_CHECKING:
    from ndpsim.config.banks import BankHardware
    from ndpsim.simulate.results.pim import PimResult


@taking(
    PIM,
    table({"Results": (JSON, COMMANDS)}),
    examples=(
        "ndpsim pim program.csv.gz --hw attacc --set nCCDAB=4 --commands commands.csv.gz",
        "ndpsim pim program.csv --hw aim --rules reference --json -",
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
    host = PIM.arguments(options, *HOST) if "host-traffic" in options else None
    result = run_pim(options["program"], hardware, record_commands="commands" in options, host=host)
    finish(options, hardware, result)


def finish(options: Options, hardware: BankHardware, result: PimResult) -> None:
    """Write the commands and the result, and print it."""
    from ndpsim.dram.traces.unit_commands import write_unit_commands
    from ndpsim.report.pim import print_pim

    if result.command_traces is not None:
        write_unit_commands(options["commands"], result.command_traces, hardware.device)
    answer(options, result.to_dict, lambda: print_pim(result))
