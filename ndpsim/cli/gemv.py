"""``ndpsim gemv``: simulate one expert on one or several DIMMs, or its reading by the host."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ndpsim.base.errors import InputError
from ndpsim.base.options import Parameter, Whole, refuse, table
from ndpsim.base.options.gemv import ALONE, GEMV, HOST, check_gemv
from ndpsim.base.options.hardware import SET
from ndpsim.cli.command import Options, taking
from ndpsim.cli.options import (
    COMMANDS,
    EXACT_CHECK,
    FIRST_US,
    JSON,
    REPORT,
    Plot,
    answer,
    check_format,
    hardware_of,
    picture,
    plot_commands,
    plot_of,
    progress_of,
    timeline,
)
from ndpsim.cli.pim import BANK_OUTPUTS, CHECK_UNITS, finish, records

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ndpsim.config import Hardware
    from ndpsim.report.command_slices import CommandSlices
    from ndpsim.simulate import ContentionResult, ExpertResult, HostReadResult

_OUTPUTS = table(
    {
        "What is simulated": (SET,),
        "Results": (
            JSON,
            *picture(
                "Draw bandwidth over time, and where time and energy went.",
                "expert",
                "contention",
                "host-read",
                "banks",
                commands=True,
            ),
            REPORT,
            COMMANDS,
            Parameter(
                "lane",
                "With --commands, --timeline or --plot-commands: only this lane, or this bus.",
                Whole(0),
                otherwise="all lanes; bus 0",
                needs="commands timeline plot-commands",
            ),
            timeline("the phases, and the first commands of each bank,"),
            FIRST_US,
        ),
        "Validation": (EXACT_CHECK, CHECK_UNITS),
    }
)


@taking(
    GEMV,
    _OUTPUTS,
    examples=(
        "ndpsim gemv --model mixtral-8x7b --bits 4 --group-size 128 --plot expert.png",
        "ndpsim gemv --hw edge --model mixtral-8x7b --layout sharded:6 --json result.json",
    ),
)
def command(options: Options) -> None:
    """Simulate one expert on one or several DIMMs, DRAM command by DRAM command.

    The NDP unit on the DIMM's buffer chip multiplies all weights of the expert (gate, up, down) as they are
    read from the ranks. With --layout sharded:N, each of N DIMMs has a slice of the weights. With
    --host-traffic the host reads and writes the same DIMM at the same time, and the result has the slowdown
    of each side. In a command trace of all lanes, each lane is a channel, and the column `rank` is the number
    of the lane, counted over all DIMMs.

    With --engine host-read the host reads the weights over its channels: all channels, one channel, or the
    channels of N DIMMs. In the command trace of a bus (a sub-channel of a channel), the column `rank` is the
    number of the rank, counted over the channel's DIMMs.

    With --hw aim, attacc or hbm-pim the units are in the banks of a DRAM (docs/banks.md); --set
    rules=reference runs as the units' own simulator does.
    """
    if _is_in_banks(options):
        _in_banks(options)
        return
    refuse(options, "applies only to units in banks; ndpsim check judges other commands", "check")
    check_gemv(options, "--")
    host_reads, beside = options.get("engine") == "host-read", "host-traffic" in options
    if host_reads:
        refuse(options, "needs --engine ndp: the host only reads", "timeline")
    if beside:
        refuse(options, "is not supported with --host-traffic", "exact-check")
    name = "host-read" if host_reads else "contention" if beside else "expert"
    plot = plot_of(options, name)
    check_format(options, "plot-commands")

    from ndpsim.studies.sweeps.command import expert_of, weight_format

    hardware = hardware_of(options, GEMV, None if host_reads else "gemv")
    call = {"hw": hardware, "model": expert_of(options), "bits": weight_format(options)}
    run = _host_read if host_reads else _beside_host if beside else _alone
    run(options, call, plot)


def _is_in_banks(options: Options) -> bool:
    from ndpsim.config.banks import is_bank_hardware

    return "hw" in options and is_bank_hardware(options["hw"])


def _in_banks(options: Options) -> None:
    """Run the expert on a device with units in its banks."""
    from ndpsim.config.banks import load_bank_hardware
    from ndpsim.simulate.bank_operands import simulate_bank_expert
    from ndpsim.studies.sweeps.command import expert_of

    own = "hw", "set", "model", "shape", "tokens", *BANK_OUTPUTS
    refuse(options, "cannot be used with units in banks", *(name for name in options if name not in own))
    plot = plot_of(options, "banks")
    hardware = load_bank_hardware(options["hw"], options.get("set", ()))
    tokens, record = GEMV.value(options, "tokens"), records(options)
    result = simulate_bank_expert(hardware, expert_of(options), tokens, record_commands=record)
    finish(options, hardware, result, plot)


def _check_lane(options: Options, lanes: int, what: str) -> None:
    """Raises InputError if the lane's number is too high."""
    if options.get("lane", 0) >= lanes:
        raise InputError(f"{options['lane']} is not {what}, 0 to {lanes - 1}", key="lane", code="range")


def _check_lane_of(options: Options, dimms: int, hardware: Hardware) -> None:
    machine = "the DIMM" if dimms == 1 else f"{dimms} DIMMs"
    _check_lane(options, dimms * hardware.lanes, f"a lane of {machine}")


def _write_lanes(options: Options, result: ExpertResult | ContentionResult) -> None:
    """Write the commands and the timeline of an expert on lanes, and draw the commands."""
    if "commands" in options:
        from ndpsim.report.text import write_lanes

        write_lanes(options["commands"], result, options.get("lane"))
    if "timeline" in options:
        from ndpsim.report.timelines import write_timeline

        write_timeline(options["timeline"], result, _slices(options, result))
    _plot_commands(options, result)


def _slices(
    options: Options, result: ExpertResult | ContentionResult | HostReadResult
) -> Iterator[tuple[str, CommandSlices]]:
    from ndpsim.report.command_slices import lane_slices
    from ndpsim.report.words import device_of

    device = device_of(result.config["hardware"])
    return lane_slices(result, device, _OUTPUTS.value(options, "first-us"), options.get("lane"))


def _plot_commands(options: Options, result: ExpertResult | ContentionResult | HostReadResult) -> None:
    from ndpsim.report.text import title_of

    plot_commands(options, title_of(result), _slices(options, result))


def _show(options: Options, result: Any, hardware: Hardware, plot: Plot | None) -> None:
    """Draw, report and print the result of an expert."""
    from ndpsim.report.text import print_result

    if plot is not None:
        from ndpsim.report.pictures.expert import FIGURES

        plot.draw(FIGURES[type(result)], result)
    if "report" in options:
        from ndpsim.report.html.runs import write_run_report

        write_run_report(options["report"], result, hardware)
    answer(options, result.to_dict, lambda: print_result(result))


def _records(options: Options) -> bool:
    """Whether the commands are needed, for a file or a picture."""
    return not options.keys().isdisjoint(("commands", "plot", "report", "timeline", "plot-commands"))


def _alone(options: Options, call: dict[str, Any], plot: Plot | None) -> None:
    """Run the expert on DIMMs without host traffic."""
    from ndpsim.dimm.layout import parse_layout
    from ndpsim.simulate import simulate_expert

    _check_lane_of(options, max(1, parse_layout(options.get("layout", "localized"))[1]), call["hw"])
    arguments = GEMV.arguments(options, "tokens", "release-ns", "layout", *ALONE)
    arguments |= {"record_commands": _records(options), "exact_check": "exact-check" in options}
    with progress_of("simulating") as progress:
        result = simulate_expert(**call, **arguments, progress=progress)
    _write_lanes(options, result)
    _show(options, result, call["hw"], plot)


def _beside_host(options: Options, call: dict[str, Any], plot: Plot | None) -> None:
    """`--host-traffic`."""
    from ndpsim.simulate import simulate_contention

    _check_lane_of(options, 1, call["hw"])
    arguments = GEMV.arguments(options, "tokens", "release-ns", "layout", *HOST)
    arguments["record_commands"] = not options.keys().isdisjoint(("commands", "timeline", "plot-commands"))
    with progress_of("simulating") as progress:
        result = simulate_contention(**call, **arguments, progress=progress)
    _write_lanes(options, result)
    _show(options, result, call["hw"], plot)


def _host_read(options: Options, call: dict[str, Any], plot: Plot | None) -> None:
    """`--engine host-read`."""
    from ndpsim.dram.traces import write_commands
    from ndpsim.simulate import place_expert, simulate_host_read
    from ndpsim.simulate.host import host_buses

    call["layout"] = options.get("layout", "striped")
    if "lane" in options:
        buses = len(host_buses(place_expert(**call).layout))
        _check_lane(options, buses, "a bus that takes part")
    call |= {"record_commands": _records(options), "exact_check": "exact-check" in options}
    with progress_of("reading") as progress:
        result = simulate_host_read(**call, progress=progress)
    if "commands" in options:
        write_commands(options["commands"], result.command_traces[options.get("lane", 0)])
    _plot_commands(options, result)
    _show(options, result, call["hw"], plot)
