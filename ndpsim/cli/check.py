"""``ndpsim check``: is a command trace legal?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from ndpsim.cli.command import Command
from ndpsim.cli.given import refuse_given
from ndpsim.cli.options import (
    check_outputs,
    json_option,
    named_as_options,
    sets_option,
    write_json,
)
from ndpsim.errors import InputError, one_of
from ndpsim.plugins import options_in_words

if TYPE_CHECKING:
    from ndpsim.spec import Device
    from ndpsim.traces import CommandTrace

_MOST_LANES = 1 << 20  # of the largest machine: 1024 DIMMs of 16 ranks with 64 sub-channels each


def _energy(
    commands: CommandTrace, device: Device, lanes: int | None, power: Mapping[str, float], start: int
) -> dict[str, Any]:
    """What the commands took from the power supply, and for how long, from the clock `start` on."""

    from ndpsim.energy import NO_ONE_BANK, NO_SAME_BANK, explain, find_currents, from_trace, last_clock
    from ndpsim.spec.standard import ONE_BANK

    currents = find_currents(device, power)
    energy, note = from_trace(commands, device, currents, start=start, lanes=lanes), explain(device, currents)
    standard = device.standard
    if currents is not None and energy is None:
        of_one = [one for one in standard.commands if one.refreshes and standard.scope_of(one) == ONE_BANK]
        of_banks = (commands.numbered([one.name for one in of_one]) >= 0).any()
        note = NO_ONE_BANK if of_banks else NO_SAME_BANK
    moving = [one.name for one in standard.commands if one.reads or one.writes]
    return {
        "energy_nj": energy,
        "energy_note": note,
        "time_ns": float(max(last_clock(commands, device) - start, 0) * device.clock_ps / 1000),
        "moved_bytes": int((commands.numbered(moving) >= 0).sum()) * device.burst_bytes,
    }


_OF_COMMANDS = (
    "hw",
    "standard",
    "org",
    "timing",
    "ranks",
    "rules",
    "sets",
    "refresh",
    "lanes",
    "energy",
    "start_clock",
)


def _check_log(log: str, limit: int, json_to: str | None) -> None:
    """What `check_schedule` says of a log.

    Raises:
        InputError: it is no log, or `limit` is out of range.
        Exit: with 1 where something was found.
    """
    from ndpsim.audit import check_schedule

    with named_as_options("limit"):
        report = check_schedule(log, limit)
    if json_to is not None:
        write_json(report.to_dict(), json_to)
    if json_to != "-":
        from ndpsim.report.printing import print_text
        from ndpsim.report.words import counted

        for finding in report.findings:
            print_text(finding.message, indent="  ")
        if report.count > len(report.findings):
            print_text(f"and {report.count - len(report.findings):,} more, which --limit leaves out")
        verdict = "consistent" if report.ok else counted(report.count, "finding")
        parts = ", ".join(
            counted(number, what)
            for what, number in (
                ("run", report.runs),
                ("layer", report.layers),
                ("job", report.jobs),
                ("migration", report.migrations),
            )
        )
        print_text(f"{log}: {parts}, {verdict}", indent="  ")
    if not report.ok:
        raise click.exceptions.Exit(1)


@click.command(
    cls=Command,
    examples=(
        "ndpsim check commands.csv --hw trimoe --energy",
        "ndpsim check commands.csv --standard DDR5 --org DDR5_16Gb_x8 --timing DDR5_4800AN --ranks 4",
    ),
)
@click.argument("trace", metavar="COMMANDS.csv|LOG.jsonl")
@click.option("--hw", metavar="NAME|FILE", help="Take the DRAM of a lane from this hardware.")
@click.option("--standard", help="DDR4, DDR5, ...")
@click.option("--org", help="Organisation preset, e.g. DDR5_16Gb_x8.")
@click.option("--timing", help="Timing preset, e.g. DDR5_4800AN.")
@click.option("--ranks", type=int, help="Ranks on the channel.  [default: 1]")
@click.option("--rules", help="standard, or reference: Ramulator's.  [default: standard]")
@sets_option
@click.option(
    "--refresh",
    help=f"{options_in_words('dram/refresh_policies', 'all-bank')}.  "
    "[default: all-bank, or as the hardware says]",
)
@click.option(
    "--lanes", type=int, metavar="N", help="The rank column holds N lanes, each a channel of its own."
)
@click.option(
    "--start-clock",
    default=0,
    type=int,
    metavar="N",
    help="The trace begins at clock N, not 0: refreshes due before are done.",
)
@click.option("--energy", is_flag=True, help="Say what energy the commands took, when they are legal.")
@click.option("--limit", default=20, show_default=True, type=int, help="Violations or findings to describe.")
@json_option
def command(
    trace: str,
    hw: str | None,
    standard: str | None,
    org: str | None,
    timing: str | None,
    ranks: int | None,
    rules: str | None,
    sets: tuple[str, ...],
    refresh: str | None,
    lanes: int | None,
    start_clock: int,
    energy: bool,
    limit: int,
    json_to: str | None,
) -> None:
    """Check a command trace against every rule of its DRAM standard, or a log of ndpsim moe.

    The channel is given by --standard, --org and --timing, with --set nCL=40 for single timings; or by
    --hw, whose lane it then is, or with --ranks a bus of its host. Where the rank column has more than one
    rank, --hw takes them for the lanes of a DIMM, or of all DIMMs, counted DIMM after DIMM, when they are
    more than a DIMM has, and holds them to its dimm.command_bus. Exit status 1 when a command is illegal.
    --energy counts from clock 0, or --start-clock, to the last command or beat of read data.

    A log of ndpsim moe (.jsonl, .jsonl.gz, or what begins like one) says itself what was run. It is held
    against what is true of every schedule, without anything of what wrote it. Exit status 1 when something
    cannot be.
    """
    check_outputs({"--json": json_to})
    from ndpsim.audit import MOST_DESCRIBED, REFRESH_MODES, CommandBuses, check, check_lanes, is_schedule_log
    from ndpsim.traces import read_commands

    if is_schedule_log(trace):
        refuse_given("is of a command trace; a log says itself what was run", *_OF_COMMANDS)
        _check_log(trace, limit, json_to)
        return
    if lanes is not None:
        refuse_given("is of one channel; each of --lanes is a channel of one rank", "ranks")
    if hw is not None:
        described = "standard", "org", "timing", "rules"
        refuse_given("describes the DRAM, as --hw does; give one of them", *described)
        from ndpsim.config import load_hardware

        with named_as_options("hw"):
            hardware = load_hardware(hw, sets)
        most = hardware.system.dimm.count * hardware.lanes
        with named_as_options("ranks"):
            device = hardware.bus_device(1 if ranks is None else ranks)
        refresh = hardware.system.dram.refresh if refresh is None else refresh
        power, dimm = hardware.power_changes, hardware.system.dimm
        buses = CommandBuses(dimm.command_bus, dimm.ranks, dimm.subchannels)
    else:
        from ndpsim.cli.options import timing_overrides
        from ndpsim.spec import resolve

        if standard is None or org is None or timing is None:
            raise InputError("give --standard, --org and --timing, or --hw", key="check")
        overrides = timing_overrides(sets)
        of_sets = {name: f"--set {name}" for name in overrides}
        with named_as_options("standard", "org", "timing", "ranks", "rules", **of_sets):
            count = 1 if ranks is None else ranks
            device = resolve(standard, org, timing, count, overrides, rules or "standard")
        refresh, power, most = "all-bank" if refresh is None else refresh, {}, _MOST_LANES
        buses = CommandBuses()
    if refresh not in REFRESH_MODES:
        raise InputError(one_of(refresh, REFRESH_MODES, "refresh"), key="--refresh")
    if not 0 <= limit <= MOST_DESCRIBED:
        raise InputError(f"{limit} is not a whole number from 0 to {MOST_DESCRIBED}", key="--limit")
    if lanes is not None and not 1 <= lanes <= most:
        raise InputError(f"{lanes} is not a whole number from 1 to {most}", key="--lanes")
    commands = read_commands(trace, device)
    if not len(commands.clock):
        raise InputError("holds no commands", file=trace)
    if hw is not None and lanes is None and ranks is None and (commands.rank > 0).any():
        # A lane has the ranks of `device`, so these are lanes: of one DIMM, or of all where one has too few.
        lanes = hardware.lanes if commands.rank.max() < hardware.lanes * device.ranks else most
    with named_as_options("start_clock"):
        if lanes is None:
            report = check(commands, device, refresh, limit, start_clock=start_clock)
        else:
            report = check_lanes(
                commands, device, lanes, refresh, limit, buses=buses, start_clock=start_clock
            )
    outcome = report.to_dict()
    if energy and report.ok:
        outcome |= _energy(commands, device, lanes, power, start_clock)
    if json_to is not None:
        write_json(outcome, json_to)
    if json_to != "-":
        from ndpsim.report.printing import print_text
        from ndpsim.report.words import counted

        for violation in report.violations:
            print_text(violation.message, indent="  ")
        if report.count > len(report.violations):
            print_text(f"and {report.count - len(report.violations):,} more, which --limit leaves out")
        verdict = "legal" if report.ok else counted(report.count, "violation")
        of_lanes = "" if lanes is None else f" ({counted(lanes, 'lane')})"
        print_text(f"{trace}: {counted(report.commands, 'command')}, {verdict}{of_lanes}", indent="  ")
        if energy and report.ok:
            from ndpsim.report.text import print_energy

            print_energy(*(outcome[name] for name in ("energy_nj", "energy_note", "time_ns", "moved_bytes")))
    if not report.ok:
        raise click.exceptions.Exit(1)
