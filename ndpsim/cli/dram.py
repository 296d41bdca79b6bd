"""``ndpsim dram``: a request trace through a memory controller."""

from __future__ import annotations

from typing import Any

import click

from ndpsim.cli.command import Command
from ndpsim.cli.given import refuse_given
from ndpsim.cli.memory_options import check_addressed, hardware_of, memory_of, memory_options
from ndpsim.cli.options import (
    check_outputs,
    exact_check_option,
    json_option,
    named_as_options,
    progress_of,
    report_option,
    write_json,
)
from ndpsim.cli.picture_options import picture_options, plot_of
from ndpsim.errors import InputError


@click.command(
    cls=Command,
    examples=(
        "ndpsim dram trace.gz --ranks 2 --mapper MOP4CLXOR --set nCL=40",
        "ndpsim dram trace.gz --hw trimoe --sweep-load --plot loads.png",
    ),
)
@click.argument("trace", metavar="TRACE")
@memory_options
@click.option("--format", "form", help="The trace's format, when it should not be detected.")
@click.option("--wrap", is_flag=True, help="Fold addresses beyond the memory back into it.")
@json_option
@report_option
@click.option("--commands", "commands_to", metavar="FILE", help="Write the command trace (.gz compresses).")
@click.option(
    "--commands-format", default="ndpsim", show_default=True, help="Whose format; see `list command-forms`."
)
@click.option("--channel", type=int, help="Of --commands: this channel.  [default: 0, the only one]")
@click.option("--sweep-load", is_flag=True, help="Offer the trace at rising loads instead.")
@exact_check_option
@picture_options("Draw read latencies and the energy, or the sweep.", "latencies", "sweep")
def command(
    trace: str,
    hw: str | None,
    sets: tuple[str, ...],
    form: str | None,
    wrap: bool,
    json_to: str | None,
    report_to: str | None,
    commands_to: str | None,
    commands_format: str,
    channel: int | None,
    sweep_load: bool,
    exact_check: bool,
    plot_to: str | None,
    size: str | None,
    panels: str | None,
    **given: Any,
) -> None:
    """Run a request trace through the controller of a memory until every request is served.

    TRACE is read as Ramulator 2 (LD/ST, or R/W vectors), Ramulator 1, DRAMsim3 or DRAMSys writes it, plain
    or gzip. Requests are offered one a clock and channel as fast as they are taken; a timed trace's not
    before their cycle. --set nCL=40 changes a timing; with --hw, --set a.b=c changes the hardware.
    """
    check_outputs({"--commands": commands_to, "--plot": plot_to, "--report": report_to, "--json": json_to})
    if sweep_load and commands_to is not None:
        raise InputError("a sweep has many runs; leave out --sweep-load", key="--commands")
    if sweep_load and exact_check:
        raise InputError("a sweep offers every request at its time, and skips none", key="--exact-check")
    if commands_to is None:
        refuse_given("chooses a channel of --commands, which is not given", "channel")
        refuse_given("is of --commands, which is not given", "commands_format")

    from ndpsim.simulate import run_requests
    from ndpsim.simulate import sweep_load as run_sweep
    from ndpsim.traces import check_command_form, read_requests, write_commands

    plot = plot_of(plot_to, size, panels, "sweep" if sweep_load else "latencies")
    with named_as_options(form="--commands-format"):
        check_command_form(commands_format)
    memory = memory_of(hw, sets, given)
    if commands_to is not None and channel is None and memory.channels > 1:
        raise InputError(f"choose one of the {memory.channels} channels with --channel", key="--commands")
    if channel is not None and not 0 <= channel < memory.channels:
        raise InputError(f"{channel} is not a channel, 0 to {memory.channels - 1}", key="--channel")
    with named_as_options(format="--format"):
        requests = read_requests(trace, form)
    check_addressed(requests)
    if sweep_load:
        with progress_of("sweeping") as progress:
            points = run_sweep(requests, memory, wrap=wrap, progress=progress)
        outcome = {
            "sweep": [point._asdict() for point in points],
            "peak_bandwidth_gbps": memory.channels * memory.device.peak_gbps,
            "config": memory.to_dict(),
        }
        if plot is not None:
            from ndpsim.report.pictures.latencies import draw_sweep

            draw_sweep(plot.file, points, memory, plot.size, plot.panels)
        if report_to is not None:
            from ndpsim.report.html.runs import write_load_report

            write_load_report(report_to, points, memory, hardware_of(hw, sets))
    else:
        with progress_of("simulating") as progress:
            result = run_requests(requests, memory, wrap, commands_to is not None, exact_check, progress)
        outcome = result.to_dict()
        if commands_to is not None:
            number = channel or 0
            write_commands(commands_to, result.command_traces[number], commands_format, number, memory.device)
        if plot is not None:
            from ndpsim.report.pictures.latencies import draw_latencies

            draw_latencies(plot.file, result, plot.size, plot.panels)
        if report_to is not None:
            from ndpsim.report.html.runs import write_trace_report

            write_trace_report(report_to, result, memory, hardware_of(hw, sets))
    if json_to is not None:
        write_json(outcome, json_to)
    if json_to != "-":
        from ndpsim.report import text

        if sweep_load:
            text.print_sweep(points)
        else:
            text.print_trace(result)
