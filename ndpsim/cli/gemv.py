"""``ndpsim gemv``: one expert on DIMMs that compute, or read by the host."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ndpsim.cli.options import (
    check_outputs,
    exact_check_option,
    json_option,
    named_as_options,
    progress_of,
    sets_option,
    write_json,
)
from ndpsim.cli.weights import expert_format, weight_options
from ndpsim.errors import InputError, one_of

if TYPE_CHECKING:
    from ndpsim.config import Hardware
    from ndpsim.layout import ExpertFormat
    from ndpsim.moe import Expert

__all__ = ["command"]


@click.command()
@click.option("--hw", default="trimoe", show_default=True, metavar="NAME|FILE", help="The hardware.")
@click.option(
    "--model", metavar="NAME|FILE", help="A bundled model or a config.json.  [default: qwen3-235b-a22b]"
)
@click.option("--shape", metavar="HIDDEN,INTERMEDIATE", help="An expert of this shape, instead of a model's.")
@click.option("--tokens", default=1, show_default=True, type=int, help="Tokens that go through the expert.")
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
@click.option("--plot", "plot_to", metavar="FILE", help="Draw bandwidth over time and where the time went.")
def command(
    hw: str,
    model: str | None,
    shape: str | None,
    tokens: int,
    engine: str,
    layout: str | None,
    bits: str,
    group_size: int,
    scale_bits: int,
    zero_point_bits: int | None,
    sets: tuple[str, ...],
    json_to: str | None,
    commands_to: str | None,
    lane: int | None,
    timeline_to: str | None,
    exact_check: bool,
    plot_to: str | None,
) -> None:
    """Simulate one expert's GEMV on one DIMM or several, from DRAM commands up.

    All weights of the expert (gate, up, down) are read from the DIMM's ranks and multiplied on its buffer
    chip; with --layout sharded:N, each of N DIMMs has a slice of them. In a trace of all lanes the column
    `rank` holds the lane: each lane is a channel of its own, DIMM after DIMM.

    With --engine host-read the host only reads them, over its channels: all, one, or those of N DIMMs. In
    the trace of a bus (a channel's sub-channel) the column `rank` counts the ranks of the channel's DIMMs.
    """
    check_outputs(
        {"--commands": commands_to, "--timeline": timeline_to, "--plot": plot_to, "--json": json_to}
    )
    if model is not None and shape is not None:
        raise InputError("give a model or a shape, not both", key="--shape")
    if lane is not None and commands_to is None:
        raise InputError("chooses a lane of --commands, which is not given", key="--lane")

    from ndpsim.config import load_hardware
    from ndpsim.moe import parse_shape

    formats = expert_format(bits, group_size, scale_bits, zero_point_bits)
    hardware = load_hardware(hw, sets)
    expert = parse_shape(shape) if shape is not None else "qwen3-235b-a22b" if model is None else model
    if engine == "host-read":
        for option, given in (
            ("--tokens", tokens != 1),
            ("--timeline", timeline_to is not None),
            ("--plot", plot_to is not None),
        ):
            if given:
                raise InputError("belongs to --engine ndp: the host only reads", key=option)
        _host_read(hardware, expert, layout or "striped", formats, json_to, commands_to, lane, exact_check)
        return
    if engine != "ndp":
        raise InputError(one_of(engine, ("ndp", "host-read"), "engine"), key="--engine")
    layout = layout or "localized"

    from ndpsim.layout import parse_layout
    from ndpsim.simulate import simulate_expert

    if plot_to is not None:
        from ndpsim.report import draw  # brings matplotlib, which takes its time

        draw.check_format(plot_to)
    with named_as_options("layout"):
        dimms = max(1, parse_layout(layout)[1])
    if lane is not None and not 0 <= lane < dimms * hardware.lanes:
        of = "the DIMM" if dimms == 1 else f"{dimms} DIMMs"
        raise InputError(f"{lane} is not a lane of {of}, 0 to {dimms * hardware.lanes - 1}", key="--lane")
    with (
        progress_of("simulating", "controller") as progress,
        named_as_options("tokens", "bits", "layout", "model"),
    ):
        result = simulate_expert(
            hardware,
            expert,
            tokens,
            layout,
            formats,
            record_commands=commands_to is not None or plot_to is not None,
            exact_check=exact_check,
            progress=progress,
        )
    if commands_to is not None:
        from ndpsim.report import traces

        traces.write_lanes(commands_to, result, lane)
    if timeline_to is not None:
        from ndpsim.report import timeline

        timeline.write_timeline(timeline_to, result)
    if plot_to is not None:
        draw.draw_expert(plot_to, result)
    if json_to is not None:
        write_json(result.to_dict(), json_to)
    if json_to != "-":
        from ndpsim.report import text

        text.print_expert(result)


def _host_read(
    hardware: Hardware,
    expert: str | Expert,
    layout: str,
    formats: ExpertFormat,
    json_to: str | None,
    commands_to: str | None,
    bus: int | None,
    exact_check: bool,
) -> None:
    """`--engine host-read`."""
    from ndpsim.simulate import simulate_host_read

    with (
        progress_of("reading", "controller") as progress,
        named_as_options("bits", "layout", "model"),
    ):
        result = simulate_host_read(
            hardware,
            expert,
            layout,
            formats,
            record_commands=commands_to is not None,
            exact_check=exact_check,
            progress=progress,
        )
    if commands_to is not None:
        from ndpsim.traces import write_commands

        if bus is not None and not 0 <= bus < result.buses:
            raise InputError(f"{bus} is not a bus that takes part, 0 to {result.buses - 1}", key="--lane")
        write_commands(commands_to, result.command_traces[bus or 0])
    if json_to is not None:
        write_json(result.to_dict(), json_to)
    if json_to != "-":
        from ndpsim.report import text

        text.print_host_read(result)
