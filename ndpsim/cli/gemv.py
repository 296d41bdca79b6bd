"""``ndpsim gemv``: one expert on DIMMs that compute, alone or beside the host, or read by the host."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from ndpsim.cli.command import Command
from ndpsim.cli.given import refuse_given
from ndpsim.cli.host_options import OPTION_OF, host_options, host_traffic
from ndpsim.cli.options import (
    check_outputs,
    exact_check_option,
    json_option,
    named_as_options,
    progress_of,
    report_option,
    sets_option,
    write_json,
)
from ndpsim.cli.picture_options import Plot, picture_options, plot_of
from ndpsim.cli.weights import expert_format, weight_options
from ndpsim.errors import InputError, one_of

if TYPE_CHECKING:
    from ndpsim.config import Hardware
    from ndpsim.layout import ExpertFormat
    from ndpsim.moe import Expert
    from ndpsim.simulate import ContentionResult, ExpertResult


@dataclass(frozen=True)
class _Outputs:
    """What the results go to: files, or None; `lane` is that of `commands`."""

    json: str | None
    commands: str | None
    lane: int | None
    timeline: str | None
    plot: Plot | None
    report: str | None

    @property
    def draws(self) -> bool:
        """Whether there are pictures, in a file of their own or in a report."""
        return self.plot is not None or self.report is not None

    def check(self) -> None:
        """Raises InputError where a file cannot be written."""
        check_outputs(
            {
                "--commands": self.commands,
                "--timeline": self.timeline,
                "--plot": None if self.plot is None else self.plot.file,
                "--report": self.report,
                "--json": self.json,
            }
        )
        if self.lane is not None and self.commands is None:
            raise InputError("chooses a lane of --commands, which is not given", key="--lane")

    def check_lane(self, dimms: int, lanes: int) -> None:
        """Raises InputError where the lane is not one of so many DIMMs."""
        if self.lane is not None and not 0 <= self.lane < dimms * lanes:
            of = "the DIMM" if dimms == 1 else f"{dimms} DIMMs"
            raise InputError(f"{self.lane} is not a lane of {of}, 0 to {dimms * lanes - 1}", key="--lane")

    def write_of_lanes(self, result: ExpertResult | ContentionResult) -> None:
        """Commands, timeline and data of an expert on lanes."""
        if self.commands is not None:
            from ndpsim.report import traces

            traces.write_lanes(self.commands, result, self.lane)
        if self.timeline is not None:
            from ndpsim.report import timeline

            timeline.write_timeline(self.timeline, result)
        if self.json is not None:
            write_json(result.to_dict(), self.json)


class _Numbers(click.types.StringParamType):
    """A number, or several with commas between them: `kind` is int or float."""

    def __init__(self, kind: type) -> None:
        self._of_one = click.types.convert_type(kind)
        self.name = f"{self._of_one.name}[,...]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """A number, or a list of several."""
        numbers = [self._of_one.convert(part, param, ctx) for part in str(value).split(",")]
        return numbers[0] if len(numbers) == 1 else numbers


@click.command(
    cls=Command,
    examples=(
        "ndpsim gemv --model mixtral-8x7b --bits 4 --group-size 128 --plot expert.png",
        "ndpsim gemv --hw edge --model mixtral-8x7b --layout sharded:6 --json result.json",
    ),
)
@click.option("--hw", default="trimoe", show_default=True, metavar="NAME|FILE", help="The hardware.")
@click.option(
    "--model", metavar="NAME|FILE", help="A bundled model or a config.json.  [default: qwen3-235b-a22b]"
)
@click.option("--shape", metavar="HIDDEN,INTERMEDIATE", help="An expert of this shape, instead of a model's.")
@click.option(
    "--tokens",
    default="1",
    show_default=True,
    type=_Numbers(int),
    help="Tokens that go through the expert; 3,1,2: through three experts in turn.",
)
@click.option(
    "--release-ns",
    default="0",
    show_default=True,
    type=_Numbers(float),
    help="Nothing is done for the experts before; 0,100,200: for each of three of --tokens.",
)
@click.option(
    "--start-clock",
    default=1,
    show_default=True,
    type=int,
    help="The DRAM clock at which it begins; refreshes fall due after whole intervals from 0 on.",
)
@click.option(
    "--refresh-phases",
    metavar="N",
    type=int,
    help="Run from N clocks over one period of refreshes, too: mean, least and most time.",
)
@click.option(
    "--engine", default="ndp", show_default=True, help="ndp, or host-read: the host reads the weights."
)
@click.option(
    "--layout",
    metavar="NAME",
    help="localized, sharded:N or striped.  [default: localized; host-read: striped]",
)
@weight_options
@sets_option
@json_option
@report_option
@click.option(
    "--commands", "commands_to", metavar="FILE", help="Write every DRAM command as CSV (.gz compresses)."
)
@click.option(
    "--lane", type=int, help="Of --commands: this lane only, or this bus.  [default: all lanes; bus 0]"
)
@click.option(
    "--timeline", "timeline_to", metavar="FILE", help="Write the phases as a Chrome/Perfetto trace."
)
@exact_check_option
@picture_options(
    "Draw bandwidth over time, and where time and energy went.", "expert", "contention", "host-read"
)
@host_options
def command(
    hw: str,
    model: str | None,
    shape: str | None,
    tokens: int | list[int],
    release_ns: float | list[float],
    start_clock: int,
    refresh_phases: int | None,
    engine: str,
    layout: str | None,
    bits: str,
    group_size: int | None,
    scale_bits: int,
    zero_point_bits: int | None,
    weights: str | None,
    sets: tuple[str, ...],
    json_to: str | None,
    report_to: str | None,
    commands_to: str | None,
    lane: int | None,
    timeline_to: str | None,
    exact_check: bool,
    plot_to: str | None,
    size: str | None,
    panels: str | None,
    **host_given: Any,
) -> None:
    """Simulate one expert's GEMV on one DIMM or several, from DRAM commands up.

    All weights of the expert (gate, up, down) are read from the DIMM's ranks and multiplied on its buffer
    chip; with --layout sharded:N, each of N DIMMs has a slice of them. In a trace of all lanes the column
    `rank` holds the lane: each lane is a channel of its own, DIMM after DIMM. With --host-traffic the host
    reads and writes the DIMM meanwhile, and both slowdowns are the result.

    With --engine host-read the host only reads them, over its channels: all, one, or those of N DIMMs. In
    the trace of a bus (a channel's sub-channel) the column `rank` counts the ranks of the channel's DIMMs.
    """
    check_outputs({"--plot": plot_to})
    plot = plot_of(plot_to, size, panels, _picture(engine, host_given))
    outputs = _Outputs(json_to, commands_to, lane, timeline_to, plot, report_to)
    outputs.check()
    if model is not None and shape is not None:
        raise InputError("give a model or a shape, not both", key="--shape")
    if engine not in ("ndp", "host-read"):
        raise InputError(one_of(engine, ("ndp", "host-read"), "engine"), key="--engine")
    beside = host_traffic(host_given)

    from ndpsim.config import load_hardware
    from ndpsim.moe import parse_shape

    formats = expert_format(bits, group_size, scale_bits, zero_point_bits, weights, model)
    with named_as_options("hw"):
        hardware = load_hardware(hw, sets)
    expert = parse_shape(shape) if shape is not None else "qwen3-235b-a22b" if model is None else model
    if engine == "host-read":
        refuse_given(
            "belongs to --engine ndp: the host only reads",
            "tokens",
            "release_ns",
            "start_clock",
            "refresh_phases",
            "timeline_to",
            "host_gbps",
        )
        _host_read(hardware, expert, "striped" if layout is None else layout, formats, outputs, exact_check)
    elif beside is not None:
        unsupported = "exact_check", "start_clock", "refresh_phases"
        refuse_given("is not supported with --host-traffic", *unsupported)
        layout = "localized" if layout is None else layout
        _beside_host(hardware, expert, tokens, release_ns, layout, formats, outputs, beside)
    else:
        layout = "localized" if layout is None else layout
        when = {"release_ns": release_ns, "start_clock": start_clock, "refresh_phases": refresh_phases}
        _alone(hardware, expert, tokens, when, layout, formats, outputs, exact_check)


def _picture(engine: str, host_given: Mapping[str, Any]) -> str:
    """Which of the pictures of `report.panels` is drawn."""
    if engine == "host-read":
        return "host-read"
    return "expert" if host_given["host_gbps"] is None else "contention"


def _alone(
    hardware: Hardware,
    expert: str | Expert,
    tokens: int | list[int],
    when: dict[str, Any],
    layout: str,
    formats: ExpertFormat,
    outputs: _Outputs,
    exact_check: bool,
) -> None:
    """The expert on DIMMs that do nothing else; `when`: arguments of `simulate_expert`."""
    from ndpsim.layout import parse_layout
    from ndpsim.simulate import simulate_expert

    with named_as_options("layout"):
        outputs.check_lane(max(1, parse_layout(layout)[1]), hardware.lanes)
    with (
        progress_of("simulating") as progress,
        named_as_options("tokens", *when, "bits", "layout", "model"),
    ):
        result = simulate_expert(
            hardware,
            expert,
            tokens,
            layout,
            formats,
            record_commands=outputs.commands is not None or outputs.draws,
            exact_check=exact_check,
            progress=progress,
            **when,
        )
    outputs.write_of_lanes(result)
    if outputs.plot is not None:
        from ndpsim.report.pictures.expert import draw_expert

        draw_expert(outputs.plot.file, result, outputs.plot.size, outputs.plot.panels)
    if outputs.report is not None:
        from ndpsim.report.html.runs import write_expert_report

        write_expert_report(outputs.report, result, hardware)
    if outputs.json != "-":
        from ndpsim.report import text

        text.print_expert(result)


def _beside_host(
    hardware: Hardware,
    expert: str | Expert,
    tokens: int | list[int],
    release_ns: float | list[float],
    layout: str,
    formats: ExpertFormat,
    outputs: _Outputs,
    beside: dict[str, Any],
) -> None:
    """`--host-traffic`."""
    from ndpsim.simulate import simulate_contention

    outputs.check_lane(1, hardware.lanes)
    with (
        progress_of("simulating") as progress,
        named_as_options("tokens", "release_ns", "bits", "layout", "model", **OPTION_OF),
    ):
        result = simulate_contention(
            hardware,
            expert,
            tokens,
            layout=layout,
            bits=formats,
            record_commands=outputs.commands is not None,
            progress=progress,
            release_ns=release_ns,
            **beside,
        )
    outputs.write_of_lanes(result)
    if outputs.plot is not None:
        from ndpsim.report.pictures.contention import draw_contention

        draw_contention(outputs.plot.file, result, outputs.plot.size, outputs.plot.panels)
    if outputs.report is not None:
        from ndpsim.report.html.runs import write_contention_report

        write_contention_report(outputs.report, result, hardware)
    if outputs.json != "-":
        from ndpsim.report import contention

        contention.print_contention(result)


def _host_read(
    hardware: Hardware,
    expert: str | Expert,
    layout: str,
    formats: ExpertFormat,
    outputs: _Outputs,
    exact_check: bool,
) -> None:
    """`--engine host-read`."""
    from ndpsim.simulate import place_expert, simulate_host_read
    from ndpsim.simulate.host import host_buses

    if outputs.lane is not None:
        with named_as_options("bits", "layout", "model"):
            buses = len(host_buses(place_expert(hardware, expert, layout, formats).layout))
        if not 0 <= outputs.lane < buses:
            problem = f"{outputs.lane} is not a bus that takes part, 0 to {buses - 1}"
            raise InputError(problem, key="--lane")
    with (
        progress_of("reading") as progress,
        named_as_options("bits", "layout", "model"),
    ):
        result = simulate_host_read(
            hardware,
            expert,
            layout,
            formats,
            record_commands=outputs.commands is not None or outputs.draws,
            exact_check=exact_check,
            progress=progress,
        )
    if outputs.commands is not None:
        from ndpsim.traces import write_commands

        write_commands(outputs.commands, result.command_traces[outputs.lane or 0])
    if outputs.json is not None:
        write_json(result.to_dict(), outputs.json)
    if outputs.plot is not None:
        from ndpsim.report.pictures.host_read import draw_host_read

        draw_host_read(outputs.plot.file, result, outputs.plot.size, outputs.plot.panels)
    if outputs.report is not None:
        from ndpsim.report.html.runs import write_host_read_report

        write_host_read_report(outputs.report, result, hardware)
    if outputs.json != "-":
        from ndpsim.report import text

        text.print_host_read(result)
