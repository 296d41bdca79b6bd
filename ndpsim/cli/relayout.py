"""``ndpsim relayout``: experts move from one layout to another."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import click

from ndpsim.cli.command import Command
from ndpsim.cli.options import (
    check_outputs,
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
    from ndpsim.simulate import RelayoutResult

_ALL = "all"


def _dimms(text: str | None, option: str) -> list[int] | None:
    if text is None:
        return None
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() and len(part) < 6 for part in parts):
        raise InputError(f"'{text[:40]}' is not a list of DIMMs, for instance 0,4,8,12", key=option)
    return [int(part) for part in parts]


@click.command(
    cls=Command,
    examples=(
        "ndpsim relayout --experts 4 --from localized --to striped",
        "ndpsim relayout --topology all --json topologies.json",
    ),
)
@click.option("--hw", default="trimoe", show_default=True, metavar="NAME|FILE", help="The hardware.")
@click.option(
    "--model", metavar="NAME|FILE", help="A bundled model or a config.json.  [default: qwen3-235b-a22b]"
)
@click.option("--shape", metavar="HIDDEN,INTERMEDIATE", help="Experts of this shape, instead of a model's.")
@click.option("--experts", default=1, show_default=True, type=int, help="Experts that move.")
@click.option(
    "--from",
    "source",
    default="localized",
    show_default=True,
    metavar="NAME",
    help="Where they lie: localized, striped or sharded:N.",
)
@click.option("--to", "target", default="striped", show_default=True, metavar="NAME", help="Where they go.")
@click.option("--from-dimms", metavar="D,D,...", help="First DIMM of each expert.  [default: spread evenly]")
@click.option("--to-dimms", metavar="D,D,...", help="The same for where they go.")
@click.option(
    "--topology", metavar="NAME", help="Of the links: chain, ring, mesh, full, bus, groups; or all of them."
)
@weight_options
@click.option("--no-host", is_flag=True, help="Do not simulate the same move by the host.")
@click.option(
    "--other-dimms", is_flag=True, help="Simulate the same with experts on neighbouring DIMMs, too."
)
@sets_option
@json_option
@report_option
@click.option(
    "--commands", "commands_to", metavar="FILE", help="Write every DRAM command as CSV (.gz compresses)."
)
@click.option(
    "--timeline", "timeline_to", metavar="FILE", help="Write when DIMMs read and wrote, for Perfetto."
)
@picture_options(
    "Draw data over time, busy links and DRAM, and the energy; of all topologies in one picture.",
    "relayout",
    "topologies",
)
def command(
    hw: str,
    model: str | None,
    shape: str | None,
    experts: int,
    source: str,
    target: str,
    from_dimms: str | None,
    to_dimms: str | None,
    topology: str | None,
    bits: str,
    group_size: int | None,
    scale_bits: int,
    zero_point_bits: int | None,
    weights: str | None,
    no_host: bool,
    other_dimms: bool,
    sets: tuple[str, ...],
    json_to: str | None,
    report_to: str | None,
    commands_to: str | None,
    timeline_to: str | None,
    plot_to: str | None,
    size: str | None,
    panels: str | None,
) -> None:
    """Move experts from one layout to another, over the links between DIMMs.

    Each burst is read on its source DIMM's lanes, sent in packets, and written on its target's lanes, DRAM
    command by DRAM command. With --topology all, DIMMs get the ports that each topology needs. In a command
    trace the column `rank` holds the lane, DIMM after DIMM.
    """
    outputs = {"--commands": commands_to, "--timeline": timeline_to}
    check_outputs({**outputs, "--plot": plot_to, "--report": report_to, "--json": json_to})
    if model is not None and shape is not None:
        raise InputError("give a model or a shape, not both", key="--shape")
    for option, given in outputs.items():
        if topology == _ALL and given is not None:
            raise InputError("needs a topology of its own, not all", key=option)
    formats = expert_format(bits, group_size, scale_bits, zero_point_bits, weights, model)
    first, second = _dimms(from_dimms, "--from-dimms"), _dimms(to_dimms, "--to-dimms")

    from ndpsim.link import TOPOLOGIES
    from ndpsim.moe import parse_shape
    from ndpsim.simulate import simulate_relayout

    plot = plot_of(plot_to, size, panels, "topologies" if topology == _ALL else "relayout")
    names = (*TOPOLOGIES, "groups")
    if topology not in (None, _ALL, *names):
        raise InputError(one_of(topology, (*names, _ALL), "topology"), key="--topology")
    if topology is not None and any(text.partition("=")[0].strip() == "link.topology" for text in sets):
        raise InputError("--set link.topology says it, too; give one of them", key="--topology")
    if commands_to is not None:
        _check_at_once(hw, sets, experts)
    chosen = names if topology == _ALL else (topology,)
    results: dict[str, RelayoutResult] = {}
    with (
        progress_of("moving") as progress,
        named_as_options(
            "hw",
            "experts",
            "model",
            source="--from",
            target="--to",
            source_dimms="--from-dimms",
            target_dimms="--to-dimms",
            other_dimms="--other-dimms",
        ),
    ):
        for name in chosen:
            result = simulate_relayout(
                hw,
                parse_shape(shape) if shape is not None else "qwen3-235b-a22b" if model is None else model,
                experts,
                source,
                target,
                first,
                second,
                formats,
                (*sets, *_of_topology(hw, sets, name, topology == _ALL)),
                host=not no_host and not results,
                other_dimms=other_dimms,
                record_commands=commands_to is not None,
                progress=progress,
            )
            results[result.topology] = _with_host(result, next(iter(results.values()), result))
    if report_to is not None:
        _write_report(
            report_to,
            results,
            hw,
            (*sets, *_of_topology(hw, sets, None if topology == _ALL else topology, False)),
        )
    _write(results, json_to, commands_to, timeline_to, plot)


def _check_at_once(hw: str, sets: tuple[str, ...], experts: int) -> None:
    """Raises InputError where not all experts move at once, before they are simulated."""
    from ndpsim.config import load_hardware

    with named_as_options("hw"):
        at_once = load_hardware(hw, sets).relayout.concurrent_experts
    if experts > at_once:
        problem = f"is for experts that move at once, {at_once} at most, not {experts}"
        raise InputError(problem, key="--commands")


def _with_host(result: RelayoutResult, first: RelayoutResult) -> RelayoutResult:
    """`result` with the host's move of `first`: links make no difference to the host."""
    if first.host is None:
        return result
    return dataclasses.replace(result, host=first.host, host_speedup=first.host.time_ns / result.time_ns)


def _of_topology(hw: str, sets: tuple[str, ...], name: str | None, with_ports: bool) -> tuple[str, ...]:
    """Settings for a topology; `with_ports`, as many ports as it needs, and no group beyond the DIMMs."""
    if name is None:
        return ()
    from ndpsim.config import load_hardware
    from ndpsim.link import ports_needed

    system = load_hardware(hw, sets).system
    if system.link is None or not with_ports:
        return (f"link.topology={name}",)
    group = min(system.link.group_dimms, system.dimm.count)
    needed = ports_needed(name, system.dimm.count, group)
    ports = max(needed, system.link.ports)
    return f"link.topology={name}", f"link.ports={ports}", f"link.group_dimms={group}"


def _write_report(to: str, results: dict[str, RelayoutResult], hw: str, sets: tuple[str, ...]) -> None:
    from ndpsim.config import load_hardware
    from ndpsim.report.html.runs import write_relayout_report, write_topologies_report

    if len(results) > 1:
        write_topologies_report(to, results, load_hardware(hw, sets))
    else:
        write_relayout_report(to, next(iter(results.values())), load_hardware(hw, sets))


def _write(
    results: dict[str, RelayoutResult],
    json_to: str | None,
    commands_to: str | None,
    timeline_to: str | None,
    plot: Plot | None,
) -> None:
    result = next(iter(results.values()))
    if commands_to is not None:
        from ndpsim.report import traces
        from ndpsim.traces import write_commands

        if not result.command_traces:
            raise InputError("nothing moved, so there are no commands", key="--commands")
        write_commands(commands_to, traces.all_lanes(result.command_traces[0]))
    if timeline_to is not None:
        from ndpsim.report import relayout

        relayout.write_relayout_timeline(timeline_to, result)
    if plot is not None:
        from ndpsim.report.pictures.relayout import draw_relayout, draw_topologies

        if len(results) > 1:
            draw_topologies(plot.file, results, plot.size, plot.panels)
        else:
            draw_relayout(plot.file, result, plot.size, plot.panels)
    if json_to is not None:
        plain = {name: one.to_dict() for name, one in results.items()}
        write_json(plain if len(results) > 1 else result.to_dict(), json_to)
    if json_to != "-":
        from ndpsim.report import relayout

        if len(results) > 1:
            relayout.print_topologies(results)
        else:
            relayout.print_relayout(result)
