"""``ndpsim dram``: run a request trace through a memory controller."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ndpsim.base.errors import InputError
from ndpsim.base.options import Flag, Kind, Parameter, Real, Whole, refuse, table
from ndpsim.base.options.dram import DRAM, JOBS
from ndpsim.base.options.hardware import SET
from ndpsim.cli.command import Options, taking
from ndpsim.cli.options import (
    COMMANDS,
    EXACT_CHECK,
    JSON,
    REPORT,
    Plot,
    answer,
    check_addressed,
    memory_of,
    naming,
    own_hardware,
    picture,
    plot_of,
    progress_of,
)

if TYPE_CHECKING:
    from ndpsim.dram.traces import RequestStream
    from ndpsim.simulate import Memory

_OUTPUTS = table(
    {
        "What is simulated": (SET,),
        "Trace": (
            Parameter("sweep-load", "Run the trace at increasing loads.", Flag()),
            JOBS,
            Parameter(
                "trace-mhz",
                "Clock in which the cycles of the trace count, as clkMhz of DRAMSys.",
                Real(1e-3, 1e6, form="MHZ"),
                otherwise="the DRAM's clock",
            ),
        ),
        "Results": (
            JSON,
            *picture("Draw read latencies and the energy, or the sweep.", "latencies", "sweep"),
            REPORT,
            COMMANDS,
            Parameter(
                "commands-format",
                "Format of --commands: a name of ndpsim list command-forms.",
                Kind(form="NAME"),
                "ndpsim",
                names="command-forms",
                needs="commands",
            ),
            Parameter(
                "channel",
                "With --commands: number of the channel.",
                Whole(0),
                otherwise="0, if there is only one",
                needs="commands",
            ),
        ),
        "Validation": (EXACT_CHECK,),
    }
)


@taking(
    DRAM,
    _OUTPUTS,
    examples=(
        "ndpsim dram trace.gz --ranks 2 --mapper MOP4CLXOR --set nCL=40",
        "ndpsim dram trace.gz --hw trimoe --sweep-load --plot loads.png",
    ),
)
def command(options: Options) -> None:
    """Simulate a memory and its controller until every request of a trace is served.

    TRACE has a format of Ramulator 2 (LD/ST, or R/W vectors), Ramulator 1, DRAMsim3 or DRAMSys, plain or
    gzip. A channel accepts at most one request a clock. Requests of a timed trace wait for their cycle. --set
    nCL=40 changes a timing, in clocks or as tRCD=14.16ns, and --set rows=32768 the size of a chip
    (bankgroups, banks_per_group, banks, rows, columns, width, density); with --hw, --set a.b=c changes the
    hardware.
    """
    sweeps = "sweep-load" in options
    if sweeps:
        refuse(options, "needs one run; --sweep-load makes several", "commands")
        refuse(options, "cannot be used with --sweep-load, which steps through every request", "exact-check")
        refuse(options, "cannot be used with --sweep-load, which runs on all cores", "jobs")

    from ndpsim.base.units import exact
    from ndpsim.dram.traces import check_command_form, stream_requests

    plot = plot_of(options, "sweep" if sweeps else "latencies")
    with naming(form="--commands-format"):
        check_command_form(options.get("commands-format", "ndpsim"))
    memory = memory_of(options)
    if "commands" in options and "channel" not in options and memory.channels > 1:
        raise InputError(
            f"choose one of the {memory.channels} channels with --channel", "missing", key="commands"
        )
    if options.get("channel", 0) >= memory.channels:
        problem = f"{options['channel']} is not a channel, 0 to {memory.channels - 1}"
        raise InputError(problem, key="channel", code="range")
    requests = stream_requests(options["trace"], options.get("format"))
    check_addressed(requests.by_place, options)
    if "trace-mhz" in options:
        with naming(requests="--trace-mhz"):
            requests = requests.at_clock(10**6 / (exact(options["trace-mhz"]) * memory.device.clock_ps))
    run = _sweep if sweeps else _run
    run(options, requests, memory, plot)


def _sweep(options: Options, requests: RequestStream, memory: Memory, plot: Plot | None) -> None:
    """`--sweep-load`."""
    from dataclasses import asdict

    from ndpsim.report.text import print_sweep
    from ndpsim.simulate import sweep_load

    with progress_of("sweeping") as progress:
        points = sweep_load(requests.joined(), memory, wrap="wrap" in options, progress=progress)
    outcome = {
        "sweep": [asdict(point) for point in points],
        "peak_bandwidth_gbps": memory.channels * memory.device.peak_gbps,
        "config": memory.to_dict(),
    }
    if plot is not None:
        from ndpsim.report.pictures.latencies import sweep_figure

        plot.draw(sweep_figure, points, memory)
    if "report" in options:
        from ndpsim.report.html.runs import write_load_report

        write_load_report(options["report"], points, memory, own_hardware(options))
    answer(options, lambda: outcome, lambda: print_sweep(points))


def _run(options: Options, requests: RequestStream, memory: Memory, plot: Plot | None) -> None:
    """Run the trace once."""
    from ndpsim.dram.traces import write_commands
    from ndpsim.report.text import print_result
    from ndpsim.report.timings import print_rounded
    from ndpsim.simulate import run_requests

    wrap, recorded, exact = "wrap" in options, "commands" in options, "exact-check" in options
    with progress_of("simulating") as progress:
        result = run_requests(requests, memory, wrap, recorded, exact, progress, jobs=options.get("jobs"))
    if recorded:
        number, form = options.get("channel", 0), options.get("commands-format", "ndpsim")
        write_commands(options["commands"], result.command_traces[number], form, number, memory.device)
    if plot is not None:
        from ndpsim.report.pictures.latencies import latencies_figure

        plot.draw(latencies_figure, result)
    if "report" in options:
        from ndpsim.report.html.runs import write_run_report

        write_run_report(options["report"], result, own_hardware(options), memory)

    def show() -> None:
        print_result(result)
        print_rounded(memory.device)

    answer(options, result.to_dict, show)
