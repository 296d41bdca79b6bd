"""``ndpsim gemv``: one expert on one DIMM."""

from __future__ import annotations

from typing import Any

import click

from ndpsim.cli.host_options import OPTION_OF, host_options, host_traffic
from ndpsim.cli.options import (
    check_outputs,
    exact_check_option,
    json_option,
    named_as_options,
    progress_of,
    sets_option,
    write_json,
)
from ndpsim.errors import InputError

__all__ = ["command"]


@click.command()
@click.option("--hw", default="trimoe", show_default=True, metavar="NAME|FILE", help="The hardware.")
@click.option(
    "--model", metavar="NAME|FILE", help="A bundled model or a config.json.  [default: qwen3-235b-a22b]"
)
@click.option("--shape", metavar="HIDDEN,INTERMEDIATE", help="An expert of this shape, instead of a model's.")
@click.option("--tokens", default=1, show_default=True, type=int, help="Tokens that go through the expert.")
@click.option("--layout", default="localized", show_default=True, help="Where the weights lie.")
@click.option("--bits", default=16, show_default=True, type=int, help="Bits of a weight.")
@sets_option
@json_option
@click.option(
    "--commands", "commands_to", metavar="FILE", help="Write every DRAM command as CSV (.gz compresses)."
)
@click.option("--lane", type=int, help="Of --commands: this lane only.  [default: all lanes]")
@click.option(
    "--timeline", "timeline_to", metavar="FILE", help="Write the phases as a Chrome/Perfetto trace."
)
@exact_check_option
@click.option("--plot", "plot_to", metavar="FILE", help="Draw bandwidth over time and where the time went.")
@host_options
def command(
    hw: str,
    model: str | None,
    shape: str | None,
    tokens: int,
    layout: str,
    bits: int,
    sets: tuple[str, ...],
    json_to: str | None,
    commands_to: str | None,
    lane: int | None,
    timeline_to: str | None,
    exact_check: bool,
    plot_to: str | None,
    **host_given: Any,
) -> None:
    """Simulate one expert's GEMV on one DIMM, from DRAM commands up.

    All weights of the expert (gate, up, down) are read from the DIMM's ranks and multiplied on its buffer
    chip. In a trace of all lanes the column `rank` holds the lane: each lane is a channel of its own.
    With --host-traffic the host reads and writes the DIMM meanwhile, and both slowdowns are the result.
    """
    check_outputs(
        {"--commands": commands_to, "--timeline": timeline_to, "--plot": plot_to, "--json": json_to}
    )
    if model is not None and shape is not None:
        raise InputError("give a model or a shape, not both", key="--shape")
    if lane is not None and commands_to is None:
        raise InputError("chooses a lane of --commands, which is not given", key="--lane")
    beside = host_traffic(host_given)
    if beside is not None and (exact_check or plot_to is not None):
        option = "--exact-check" if exact_check else "--plot"
        raise InputError("is not supported with --host-traffic", key=option)

    from ndpsim.config import load_hardware
    from ndpsim.moe import parse_shape
    from ndpsim.simulate import ExpertResult, simulate_contention, simulate_expert

    if plot_to is not None:
        from ndpsim.report import draw  # brings matplotlib, which takes its time

        draw.check_format(plot_to)
    hardware = load_hardware(hw, sets)
    if lane is not None and not 0 <= lane < hardware.lanes:
        raise InputError(f"{lane} is not a lane of the DIMM, 0 to {hardware.lanes - 1}", key="--lane")
    expert = parse_shape(shape) if shape is not None else "qwen3-235b-a22b" if model is None else model
    recording = commands_to is not None or plot_to is not None
    work = "controller" if beside is None else "sharing"
    with (
        progress_of("simulating", work) as progress,
        named_as_options("tokens", "bits", "layout", "model", **OPTION_OF),
    ):
        result = (
            simulate_expert(
                hardware,
                expert,
                tokens,
                layout,
                bits,
                record_commands=recording,
                exact_check=exact_check,
                progress=progress,
            )
            if beside is None
            else simulate_contention(
                hardware,
                expert,
                tokens,
                layout=layout,
                bits=bits,
                record_commands=recording,
                progress=progress,
                **beside,
            )
        )
    if commands_to is not None:
        from ndpsim.report import traces

        traces.write_lanes(commands_to, result, lane)
    if timeline_to is not None:
        from ndpsim.report import timeline

        timeline.write_timeline(timeline_to, result)
    if plot_to is not None and isinstance(result, ExpertResult):
        draw.draw_expert(plot_to, result)
    if json_to is not None:
        write_json(result.to_dict(), json_to)
    if json_to != "-":
        from ndpsim.report import contention, text

        if isinstance(result, ExpertResult):
            text.print_expert(result)
        else:
            contention.print_contention(result)
