"""``ndpsim check``: check a command trace against every rule of its DRAM standard, or a log of a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from ndpsim.base.errors import InputError
from ndpsim.base.options import refuse, table
from ndpsim.base.options.check import CHECK
from ndpsim.cli.command import Given, taking
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
        refreshing = [one for one in standard.commands if one.refreshes or one.manages]
        of_one = [one for one in refreshing if standard.scope_of(one) in per_bank]
        of_banks = (commands.numbered([one.name for one in of_one]) >= 0).any()
        note = NO_ONE_BANK if of_banks else NO_SAME_BANK
    moving = [one.name for one in standard.commands if one.reads or one.writes]
    return {
        "energy_nj": energy,
        "energy_note": note,
        "time_ns": float(max(last_clock(commands, device) - start, 0) * device.clock_ps / 1000),
        "moved_bytes": int((commands.numbered(moving) >= 0).sum()) * device.burst_bytes,
    }


class _Channel(NamedTuple):
    """The channel that a trace is checked against; `hardware`: its file, None: single options."""

    device: Device
    refresh: str
    rfm: tuple[str, int | None]  # the option and its threshold
    power: Mapping[str, float]
    most_lanes: int
    buses: CommandBuses
    hardware: Hardware | None


def _channel_of_hardware(given: Given) -> _Channel:
    from ndpsim.audit import CommandBuses

    described = "standard", "org", "timing", "rules"
    refuse(given, "describes the DRAM, as --hw does; give one of them", *described)
    hardware = hardware_of(given, CHECK)
    dimm, dram = hardware.system.dimm, hardware.system.dram
    return _Channel(
        hardware.bus_device(given.get("ranks", 1)),
        given.get("refresh", dram.refresh),
        (given.get("rfm", dram.rfm), given.get("rfm-threshold", dram.rfm_threshold)),
        hardware.power_changes,
        dimm.count * hardware.lanes,
        CommandBuses(dimm.command_bus, dimm.ranks, dimm.subchannels),
        hardware,
    )


def _channel_of_options(given: Given) -> _Channel:
    from ndpsim.audit import CommandBuses
    from ndpsim.dram.spec import resolve

    if not given.keys() >= {"standard", "org", "timing"}:
        raise InputError("give --standard, --org and --timing, or --hw", key="check", code="missing")
    overrides = timing_overrides(given.get("set", ()))
    with naming(**{name: f"--set {name}" for name in overrides}):
        device = resolve(
            given["standard"],
            given["org"],
            given["timing"],
            CHECK.value(given, "ranks"),
            overrides,
            CHECK.value(given, "rules"),
        )
    refresh = CHECK.value(given, "refresh")
    rfm = CHECK.value(given, "rfm"), CHECK.value(given, "rfm-threshold")
    return _Channel(device, refresh, rfm, {}, _MOST_LANES, CommandBuses(), None)


def _lanes(given: Given, channel: _Channel, commands: CommandTrace) -> int | None:
    """Number of lanes in the rank column; None: the column has ranks."""
    lanes: int | None = given.get("lanes")
    if lanes is not None and lanes > channel.most_lanes:
        problem = f"{lanes} is not a whole number from 1 to {channel.most_lanes}"
        raise InputError(problem, key="lanes", code="range")
    hardware = channel.hardware
    if hardware is None or lanes is not None or "ranks" in given or not (commands.rank > 0).any():
        return lanes
    # The trace has more ranks than a lane: they are lanes of one DIMM, or of all DIMMs if one has too few.
    of_dimm = commands.rank.max() < hardware.lanes * channel.device.ranks
    return hardware.lanes if of_dimm else channel.most_lanes


@taking(
    CHECK,
    table({"Results": (JSON,)}),
    examples=(
        "ndpsim check commands.csv --hw trimoe --energy",
        "ndpsim check commands.csv --standard DDR5 --org DDR5_16Gb_x8 --timing DDR5_4800AN --ranks 4",
    ),
)
def command(given: Given) -> None:
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

    trace, limit = given["trace"], CHECK.value(given, "limit")
    served = is_serving_log(trace)
    if served or is_schedule_log(trace):
        others = (name for name in CHECK if name not in ("trace", "limit"))
        refuse(given, "is of a command trace; a log says itself what was run", *others)
        report = check_serving(trace, limit) if served else check_schedule(trace, limit)
        answer(given, report.to_dict, lambda: _print_outcome(trace, report))
        ok = report.ok
    elif is_unit_commands(trace):
        ok = _check_units(given, trace, limit)
    else:
        ok = _check_commands(given, trace, limit)
    if not ok:
        raise click.exceptions.Exit(1)


def _check_units(given: Given, trace: str, limit: int) -> bool:
    """Check the commands of units in banks and print the outcome; returns whether all are legal."""
    from ndpsim.audit.banks import check_units
    from ndpsim.config.banks import load_bank_hardware
    from ndpsim.dram.traces.unit_commands import read_unit_commands

    others = (name for name in CHECK if name not in ("trace", "limit", "hw", "set", "refresh"))
    refuse(given, "is not of commands of units in banks, whose device is that of --hw", *others)
    if "hw" not in given:
        raise InputError("commands of units in banks need --hw, the device", key="check", code="missing")
    sets = [*given.get("set", ()), *([f"refresh={given['refresh']}"] if "refresh" in given else [])]
    device = load_bank_hardware(given["hw"], sets).device
    commands = read_unit_commands(trace, device)
    if not len(commands):
        raise InputError("holds no commands", "form", file=trace)
    report = check_units(commands, device, limit)
    answer(given, report.to_dict, lambda: _print_outcome(trace, report))
    return report.ok


def _check_commands(given: Given, trace: str, limit: int) -> bool:
    """Check the commands of a trace and print the outcome; returns whether all are legal."""
    from ndpsim.audit import check, check_lanes
    from ndpsim.dram.traces import read_commands
    from ndpsim.report.timings import print_rounded

    if "lanes" in given:
        refuse(given, "is of one channel; each of --lanes is a channel of one rank", "ranks")
    channel = (_channel_of_hardware if "hw" in given else _channel_of_options)(given)
    commands = read_commands(trace, channel.device)
    if not len(commands.clock):
        raise InputError("holds no commands", "form", file=trace)
    _refuse_other_standard(trace, commands, channel.device)
    lanes, start = _lanes(given, channel, commands), CHECK.value(given, "start-clock")
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
    if "energy" in given and report.ok:
        outcome |= _energy(commands, channel.device, lanes, channel.power, start)

    def show() -> None:
        _print_commands(trace, report, lanes, outcome)
        print_rounded(channel.device)

    answer(given, lambda: outcome, show)
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

    for one in outcome.found:
        print_text(one.message, indent="  ")
    if outcome.count > len(outcome.found):
        print_text(f"and {outcome.count - len(outcome.found):,} more, which --limit leaves out")
    print_text(f"{file}: {outcome.summary}{more}", indent="  ")


def _print_commands(trace: str, report: Report, lanes: int | None, outcome: Mapping[str, Any]) -> None:
    from ndpsim.base.reported import label_of
    from ndpsim.report.text import print_energy

    _print_outcome(trace, report, "" if lanes is None else f", {label_of('lanes')} {lanes:,}")
    if "energy_nj" in outcome:
        print_energy(*(outcome[name] for name in ("energy_nj", "energy_note", "time_ns", "moved_bytes")))
