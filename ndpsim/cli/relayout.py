"""``ndpsim relayout``: move experts from one layout to another over the links between DIMMs."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from ndpsim.base.errors import InputError, one_of
from ndpsim.base.options import refuse, table
from ndpsim.base.options.hardware import SET
from ndpsim.base.options.relayout import MOVED, RELAYOUT
from ndpsim.cli.command import Options, taking
from ndpsim.cli.options import COMMANDS, JSON, REPORT, Plot, answer, picture, plot_of, progress_of, timeline

if TYPE_CHECKING:
    from ndpsim.config import Hardware
    from ndpsim.simulate import RelayoutResult

_ALL = "all"
_TOPOLOGY = dataclasses.replace(
    RELAYOUT["topology"],
    help="Topology of the links: chain, ring, mesh, full, bus or groups; all: each topology.",
    names="link.topology all",
)
_OUTPUTS = table(
    {
        "What is simulated": (SET,),
        "Results": (
            JSON,
            *picture(
                "Draw data over time, utilization of links and DRAM, and energy; all topologies in one "
                "picture.",
                "relayout",
                "topologies",
            ),
            REPORT,
            COMMANDS,
            timeline("reads and writes of the DIMMs"),
        ),
    }
)


@taking(
    RELAYOUT.but(topology=dataclasses.replace(_TOPOLOGY, section="What is simulated")),
    _OUTPUTS,
    examples=(
        "ndpsim relayout --experts 4 --from localized --to striped",
        "ndpsim relayout --topology all --json topologies.json",
    ),
)
def command(options: Options) -> None:
    """Move experts from one layout to another, over the links between DIMMs.

    Each burst is read on a lane of the source DIMM, sent in packets, and written on a lane of the target
    DIMM, DRAM command by DRAM command. With --topology all, DIMMs have the ports that each topology needs. In
    a command trace the column `rank` is the number of the lane, counted over all DIMMs.
    """
    topology = options.get("topology")
    if topology == _ALL:
        refuse(options, "needs one topology, not all", "commands", "timeline")

    from ndpsim.config import load_hardware
    from ndpsim.dimm.link import TOPOLOGIES
    from ndpsim.simulate import simulate_relayout
    from ndpsim.studies.sweeps.command import expert_of, weight_format

    plot = plot_of(options, "topologies" if topology == _ALL else "relayout")
    names = (*TOPOLOGIES, "groups")
    if topology not in (None, _ALL, *names):
        raise InputError(one_of(topology, (*names, _ALL), "topology"), key="topology", code="unknown-name")
    hw, sets = RELAYOUT.value(options, "hw"), options.get("set", ())
    if topology is not None and any(text.partition("=")[0].strip() == "link.topology" for text in sets):
        raise InputError(
            "--set link.topology sets the same key; give one of them", key="topology", code="conflict"
        )
    if "commands" in options:
        _check_at_once(hw, sets, RELAYOUT.value(options, "experts"))
    expert, bits = expert_of(options), weight_format(options)
    results: dict[str, RelayoutResult] = {}
    with progress_of("moving") as progress:
        for name in names if topology == _ALL else (topology,):
            result = simulate_relayout(
                hw,
                expert,
                **RELAYOUT.arguments(options, *MOVED, "other-dimms"),
                bits=bits,
                sets=(*sets, *_topology_settings(hw, sets, name, topology == _ALL)),
                host="no-host" not in options and not results,
                record_commands="commands" in options,
                progress=progress,
            )
            results[result.topology] = _with_host(result, next(iter(results.values()), result))
    result = next(iter(results.values()))
    _write_files(options, result)
    if topology == _ALL:
        _compare(options, results, load_hardware(hw, sets), plot)
    else:
        hardware = load_hardware(hw, (*sets, *_topology_settings(hw, sets, topology, False)))
        _show(options, result, hardware, plot)


def _show(options: Options, result: RelayoutResult, hardware: Hardware, plot: Plot | None) -> None:
    """One relayout."""
    from ndpsim.report.text import print_result

    if plot is not None:
        from ndpsim.report.pictures.relayout import relayout_figure

        plot.draw(relayout_figure, result)
    if "report" in options:
        from ndpsim.report.html.runs import write_run_report

        write_run_report(options["report"], result, hardware)
    answer(options, result.to_dict, lambda: print_result(result))


def _compare(
    options: Options, results: dict[str, RelayoutResult], hardware: Hardware, plot: Plot | None
) -> None:
    """`--topology all`."""
    from ndpsim.report.text import print_topologies

    if plot is not None:
        from ndpsim.report.pictures.relayout import topologies_figure

        plot.draw(topologies_figure, results)
    if "report" in options:
        from ndpsim.report.html.runs import write_topologies_report

        write_topologies_report(options["report"], results, hardware)
    plain = {name: result.to_dict() for name, result in results.items()}
    answer(options, lambda: plain, lambda: print_topologies(results))


def _check_at_once(hw: str, sets: tuple[str, ...], experts: int) -> None:
    """Raises InputError, before a simulation, if not all experts move at once."""
    from ndpsim.config import load_hardware

    at_once = load_hardware(hw, sets).relayout.concurrent_experts
    if experts > at_once:
        problem = f"is for experts that move at once, {at_once} at most, not {experts}"
        raise InputError(problem, key="commands", code="unsupported")


def _with_host(result: RelayoutResult, first: RelayoutResult) -> RelayoutResult:
    """`result` with the host's move of `first`: the host's move does not depend on links."""
    if first.host is None:
        return result
    return dataclasses.replace(result, host=first.host, host_speedup=first.host.time_ns / result.time_ns)


def _topology_settings(hw: str, sets: tuple[str, ...], name: str | None, with_ports: bool) -> tuple[str, ...]:
    """Settings for a topology; `with_ports`: also its ports, and a group size that fits the DIMMs."""
    if name is None:
        return ()
    if not with_ports:
        return (f"link.topology={name}",)
    from ndpsim.config import load_hardware
    from ndpsim.dimm.link import ports_needed

    system = load_hardware(hw, sets, "relayout").system
    assert system.link is not None
    group = min(system.link.group_dimms, system.dimm.count)
    needed = ports_needed(name, system.dimm.count, group)
    ports = max(needed, system.link.ports)
    return f"link.topology={name}", f"link.ports={ports}", f"link.group_dimms={group}"


def _write_files(options: Options, result: RelayoutResult) -> None:
    """Commands and timeline."""
    if "commands" in options:
        from ndpsim.dram.traces import write_commands
        from ndpsim.report.text import all_lanes

        if not result.command_traces:
            raise InputError("no commands: nothing moved", "conflict", key="commands")
        write_commands(options["commands"], all_lanes(result.command_traces[0]))
    if "timeline" in options:
        from ndpsim.report.timelines import write_relayout_timeline

        write_relayout_timeline(options["timeline"], result)
