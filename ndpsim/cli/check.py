"""``ndpsim check``: check a command trace against every rule of its DRAM standard, or a log of a run."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from ndpsim.base.errors import InputError, shown
from ndpsim.base.files import open_plain_or_gzip
from ndpsim.base.options import refuse, table
from ndpsim.base.options.dram import CHECK
from ndpsim.cli.command import Options, taking
from ndpsim.cli.options import JSON, answer, hardware_of, naming, timing_overrides

if TYPE_CHECKING:
    from ndpsim.audit import CommandBuses, Report
    from ndpsim.audit.report import CheckOutcome
    from ndpsim.config import Hardware
    from ndpsim.dram.spec import Device
    from ndpsim.dram.traces import CommandTrace

_MOST_LANES = 1 << 20  # of the largest machine: 1024 DIMMs of 16 ranks with 64 sub-channels each


def _energy(
    commands: CommandTrace, device: Device, lanes: int | None, power: Mapping[str, float], start: int
) -> dict[str, Any]:
    """Energy of the commands from the clock `start` on, and its time."""

    from ndpsim.dram.energy import NO_ONE_BANK, NO_SAME_BANK, explain, find_currents, from_trace, last_clock
    from ndpsim.dram.spec.standard import BANK_PAIR, ONE_BANK

    currents = find_currents(device, power)
    energy, note = from_trace(commands, device, currents, start=start, lanes=lanes), explain(device, currents)
    standard = device.standard
    if currents is not None and energy is None:
        per_bank = ONE_BANK, BANK_PAIR
        refreshing = [command for command in standard.commands if command.refreshes or command.manages]
        single_bank = [command for command in refreshing if standard.scope_of(command) in per_bank]
        per_bank_refresh = (commands.numbered([command.name for command in single_bank]) >= 0).any()
        note = NO_ONE_BANK if per_bank_refresh else NO_SAME_BANK
    moving = [command.name for command in standard.commands if command.reads or command.writes]
    return {
        "energy_nj": energy,
        "energy_note": note,
        "time_ns": float(max(last_clock(commands, device) - start, 0) * device.clock_ps / 1000),
        "moved_bytes": int((commands.numbered(moving) >= 0).sum()) * device.burst_bytes,
    }


class _CheckedChannel(NamedTuple):
    """The channel that a trace is checked against; `hardware`: its file, None: single options."""

    device: Device
    refresh: str
    rfm: tuple[str, int | None]  # the option and its threshold
    power: Mapping[str, float]
    most_lanes: int
    buses: CommandBuses
    hardware: Hardware | None


def _channel_of_hardware(options: Options) -> _CheckedChannel:
    from ndpsim.audit import CommandBuses

    described = "standard", "org", "timing", "rules"
    refuse(options, "cannot be used with --hw, which describes the DRAM", *described)
    hardware = hardware_of(options, CHECK)
    dimm, dram = hardware.system.dimm, hardware.system.dram
    return _CheckedChannel(
        hardware.bus_device(options.get("ranks", 1)),
        options.get("refresh", dram.refresh),
        (options.get("rfm", dram.rfm), options.get("rfm-threshold", dram.rfm_threshold)),
        hardware.power_changes,
        dimm.count * hardware.lanes,
        CommandBuses(dimm.command_bus, dimm.ranks, dimm.subchannels),
        hardware,
    )


def _channel_of_options(options: Options) -> _CheckedChannel:
    from ndpsim.audit import CommandBuses
    from ndpsim.dram.spec import resolve

    if not options.keys() >= {"standard", "org", "timing"}:
        raise InputError("give --standard, --org and --timing, or --hw", key="check", code="missing")
    overrides = timing_overrides(options.get("set", ()))
    with naming(**{name: f"--set {name}" for name in overrides}):
        device = resolve(
            options["standard"],
            options["org"],
            options["timing"],
            CHECK.value(options, "ranks"),
            overrides,
            CHECK.value(options, "rules"),
        )
    refresh = CHECK.value(options, "refresh")
    rfm = CHECK.value(options, "rfm"), CHECK.value(options, "rfm-threshold")
    return _CheckedChannel(device, refresh, rfm, {}, _MOST_LANES, CommandBuses(), None)


def _lanes(options: Options, channel: _CheckedChannel, commands: CommandTrace) -> int | None:
    """Number of lanes in the rank column; None: the column has ranks."""
    lanes: int | None = options.get("lanes")
    if lanes is not None and lanes > channel.most_lanes:
        problem = f"{lanes} is not a whole number from 1 to {channel.most_lanes}"
        raise InputError(problem, key="lanes", code="range")
    hardware = channel.hardware
    if hardware is None or lanes is not None or "ranks" in options or not (commands.rank > 0).any():
        return lanes
    # The trace has more ranks than a lane: they are lanes of one DIMM, or of all DIMMs if one has too few.
    beyond_rank = commands.rank.max() < hardware.lanes * channel.device.ranks
    return hardware.lanes if beyond_rank else channel.most_lanes


@taking(
    CHECK,
    table({"Results": (JSON,)}),
    examples=(
        "ndpsim check commands.csv --hw trimoe --energy",
        "ndpsim check commands.csv --standard DDR5 --org DDR5_16Gb_x8 --timing DDR5_4800AN --ranks 4",
    ),
)
def command(options: Options) -> None:
    """Check a command trace against the rules of its DRAM standard, or a log of ndpsim moe or serve.

    --standard, --org and --timing describe the channel; --set nCL=40 changes a timing. With --hw the channel
    is a lane of that hardware, or, with --ranks, a bus of its host. If a trace with --hw has several ranks,
    each rank is a lane: a lane of one DIMM, or, if one DIMM has fewer lanes, of all DIMMs, numbered DIMM by
    DIMM. Then dimm.command_bus is checked, too. The exit status is 1 if a command is illegal. --energy covers
    the time from clock 0, or --start-clock, to the last command or beat of read data.

    Commands of units in banks (ndpsim pim --commands) need --hw, the device; its idealisations do not count.

    A log of ndpsim moe or ndpsim serve (.jsonl or .jsonl.gz) needs no options. The rules hold for every
    schedule, and the check uses no code of the simulator. The exit status is 1 if a rule is broken.
    """
    from ndpsim.audit import check_schedule, check_serving, is_schedule_log, is_serving_log
    from ndpsim.dram.traces.unit_commands import is_unit_commands

    trace, limit = options["trace"], CHECK.value(options, "limit")
    served = is_serving_log(trace)
    if served or is_schedule_log(trace):
        others = (name for name in CHECK if name not in ("trace", "limit"))
        refuse(options, "needs a command trace; a log states what was run", *others)
        report = check_serving(trace, limit) if served else check_schedule(trace, limit)
        answer(options, report.to_dict, lambda: _print_outcome(trace, report))
        ok = report.ok
    elif is_unit_commands(trace):
        ok = _check_units(options, trace, limit)
    else:
        _refuse_other_files(trace)
        ok = _check_commands(options, trace, limit)
    if not ok:
        raise click.exceptions.Exit(1)


def _refuse_other_files(trace: str) -> None:
    """Refuse a file that is neither a trace of commands nor a log, before its options are judged."""
    from ndpsim.dram.banks.programs import HEADERS

    if not os.path.isfile(trace):
        return
    with open_plain_or_gzip(Path(trace)) as stream:
        begin = stream.read(80).decode("ascii", "replace").partition("\n")[0].strip()
    if begin.startswith("clock"):
        return
    reads = "commands (clock,command,...), and logs of ndpsim moe and serve (.jsonl)"
    start = f"begins with {shown(begin)}" if begin.isascii() and begin.isprintable() else "is not ASCII text"
    problem = f"is no file that ndpsim check reads: {reads}; it {start}"
    if not begin:
        problem = f"begins with an empty line; ndpsim check reads {reads}"
    if tuple(begin.split(",")) in HEADERS.values():
        problem = "is a program of units in banks; ndpsim pim --commands writes commands that can be checked"
    raise InputError(problem, "form", file=trace)


def _check_units(options: Options, trace: str, limit: int) -> bool:
    """Check the commands of units in banks and print the outcome; returns whether all are legal."""
    from ndpsim.audit.banks import check_units
    from ndpsim.config.banks import load_bank_hardware
    from ndpsim.dram.traces.unit_commands import read_unit_commands

    others = (name for name in CHECK if name not in ("trace", "limit", "hw", "set", "refresh"))
    refuse(options, "cannot be used with commands of units in banks; --hw names their device", *others)
    if "hw" not in options:
        raise InputError("commands of units in banks need --hw, the device", key="check", code="missing")
    sets = [*options.get("set", ()), *([f"refresh={options['refresh']}"] if "refresh" in options else [])]
    device = load_bank_hardware(options["hw"], sets).device
    commands = read_unit_commands(trace, device)
    if not len(commands):
        raise InputError("holds no commands", "form", file=trace)
    report = check_units(commands, device, limit)
    answer(options, report.to_dict, lambda: _print_outcome(trace, report))
    return report.ok


def _check_commands(options: Options, trace: str, limit: int) -> bool:
    """Check the commands of a trace and print the outcome; returns whether all are legal."""
    from ndpsim.audit import check, check_lanes
    from ndpsim.dram.traces import read_commands
    from ndpsim.report.timings import print_rounded

    if "lanes" in options:
        refuse(options, "cannot be used with --lanes: each lane is a channel of one rank", "ranks")
    channel = (_channel_of_hardware if "hw" in options else _channel_of_options)(options)
    commands = read_commands(trace, channel.device)
    if not len(commands.clock):
        raise InputError("holds no commands", "form", file=trace)
    _refuse_other_standard(trace, commands, channel.device)
    lanes, start = _lanes(options, channel, commands), CHECK.value(options, "start-clock")
    if lanes is None:
        report = check(commands, channel.device, channel.refresh, limit, None, None, start, *channel.rfm)
    else:
        report = check_lanes(
            commands,
            channel.device,
            lanes,
            channel.refresh,
            limit,
            buses=channel.buses,
            start_clock=start,
            rfm=channel.rfm[0],
            rfm_threshold=channel.rfm[1],
        )
    outcome = report.to_dict()
    if "energy" in options and report.ok:
        outcome |= _energy(commands, channel.device, lanes, channel.power, start)

    def show() -> None:
        _print_commands(trace, report, lanes, outcome)
        print_rounded(channel.device)

    answer(options, lambda: outcome, show)
    return report.ok


def _refuse_other_standard(file: str, commands: CommandTrace, device: Device) -> None:
    """Refuse a trace with commands that another standard has."""
    from ndpsim.dram.traces import other_standards

    lacking, fitting = other_standards(commands, device)
    if fitting:
        problem = f"{device.standard.name} has no {', '.join(lacking)}; it looks like a trace of"
        option = f"--standard {fitting[0]}, or a --hw with {fitting[0]}"
        raise InputError(f"{problem} {' or '.join(fitting)}: {option}", "conflict", file=file)


def _print_outcome(file: str, outcome: CheckOutcome, more: str = "") -> None:
    """Print the findings in a file, and the verdict followed by `more`."""
    from ndpsim.report.printing import print_text

    for finding in outcome.found:
        print_text(finding.message, indent="  ")
    if outcome.count > len(outcome.found):
        print_text(f"and {outcome.count - len(outcome.found):,} more, which --limit leaves out")
    print_text(f"{file}: {outcome.summary}{more}", indent="  ")


def _print_commands(trace: str, report: Report, lanes: int | None, outcome: Mapping[str, Any]) -> None:
    from ndpsim.base.reported import label_of
    from ndpsim.report.text import print_energy

    _print_outcome(trace, report, "" if lanes is None else f", {label_of('lanes')} {lanes:,}")
    if "energy_nj" in outcome:
        print_energy(*(outcome[name] for name in ("energy_nj", "energy_note", "time_ns", "moved_bytes")))
