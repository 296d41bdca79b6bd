"""The public calls: a channel, or the lanes of an NDP machine, checked against a device."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ndpsim.audit.checks import CHECKS, unmanaged
from ndpsim.audit.report import (
    Breach,
    Case,
    Found,
    Report,
    Violation,
    case_of,
    counted,
    flags,
    no_such_lane,
    too_early,
    violation,
)
from ndpsim.base.annotated import Annotated
from ndpsim.base.arguments import choice, instance, whole_number
from ndpsim.base.errors import InputError
from ndpsim.base.options.dram import CHECK, MOST_DESCRIBED
from ndpsim.base.plugins import option_names
from ndpsim.dram.spec import Device
from ndpsim.dram.spec.management import Managed, managed
from ndpsim.dram.spec.standard import BANK_PAIR, ONE_BANK, SAME_BANKS, WHOLE_RANK
from ndpsim.dram.traces import CommandTrace

# ---- Checks of command buses that several lanes of a DIMM share, in turn or in lock step


#: How the ranks of a sub-channel get their commands: each over its own bus, in turn over one bus, or all
#: ranks the same commands at once.
COMMAND_BUSES = ("private", "shared", "broadcast")

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class CommandBuses(Annotated):
    """The lanes of a trace that share a command bus.

    Lane ``n`` of a DIMM is rank ``n // subchannels`` behind sub-channel ``n % subchannels``; lanes are
    counted DIMM after DIMM.
    """

    kind: str = "private"  # one of `COMMAND_BUSES`
    ranks: int = 1  # of a DIMM
    subchannels: int = 1  # of a DIMM

    def lanes_by_bus(self, lanes: int) -> Iterator[range]:
        """The lanes of each sub-channel of each DIMM, of this many lanes."""
        dimm_lanes = self.ranks * self.subchannels
        for first in range(0, lanes, dimm_lanes):
            for subchannel in range(first, first + self.subchannels):
                yield range(subchannel, min(first + dimm_lanes, lanes), self.subchannels)


def _said(trace: CommandTrace, index: int) -> str:
    kind = int(trace.command[index])
    name = trace.names[kind] if 0 <= kind < len(trace.names) else f"command number {kind}"
    return f"{name} lane {trace.rank[index]}"


def _violation(trace: CommandTrace, index: int, rule: str, shortfall: int, detail: str) -> Violation:
    clock, command = int(trace.clock[index]), _said(trace, index)
    message = f"line {index + 2}: {command} at clock {clock}: {rule}: {detail}"
    return Violation(index, clock, rule, command, shortfall, message)


def _in_turn(trace: CommandTrace, device: Device, lanes: range, limit: int) -> tuple[int, list[Violation]]:
    """Commands of lanes with one bus that overlap on it."""
    order = np.flatnonzero(np.isin(trace.rank, lanes))
    order = order[np.argsort(trace.clock[order], kind="stable")]
    cycles = np.array([*(command.cycles for command in device.standard.by_number), 1])
    clock = trace.clock[order]
    held = cycles[trace.numbered(device.standard.names)[order]]
    short = (clock + held)[:-1] - clock[1:]
    found = np.flatnonzero(short > 0)
    violations = []
    for n in found[:limit].tolist():
        before, index = int(order[n]), int(order[n + 1])
        detail = (
            f"{short[n]} clocks too early, {_said(trace, before)} at clock {clock[n]} (line {before + 2}) "
            f"holds the bus of its sub-channel for {held[n]}"
        )
        violations.append(_violation(trace, index, "shared command bus", int(short[n]), detail))
    return len(found), violations


def _in_lock_step(
    trace: CommandTrace, device: Device, lanes: range, limit: int
) -> tuple[int, list[Violation]]:
    """Commands of lanes that differ from those of the first lane on their bus."""
    columns = trace.columns()[[0, 1, 3, 4, 5, 6]]  # all but the rank, which is the lane
    first = np.flatnonzero(trace.rank == lanes[0])
    count, violations = 0, []
    for lane in lanes[1:]:
        own = np.flatnonzero(trace.rank == lane)
        both = min(len(first), len(own))
        differ = np.flatnonzero((columns[:, first[:both]] != columns[:, own[:both]]).any(axis=0)).tolist()
        longer = own if len(own) > both else first
        count += len(differ) + len(longer) - both
        for n in differ[:limit]:
            theirs = f"{_said(trace, int(first[n]))} at clock {trace.clock[first[n]]} (line {first[n] + 2})"
            detail = f"differs from the command of the bus's first lane, {theirs}"
            violations.append(_violation(trace, int(own[n]), "broadcast command bus", 0, detail))
        for index in longer[both:][:limit].tolist():
            detail = f"lanes {lanes[0]} and {lane} have different numbers of commands"
            violations.append(_violation(trace, index, "broadcast command bus", 0, detail))
    return count, violations


_FIND = {"shared": _in_turn, "broadcast": _in_lock_step}


def bus_violations(
    trace: CommandTrace, device: Device, lanes: int, buses: CommandBuses, limit: int
) -> tuple[int, list[Violation]]:
    """Violations of the buses that lanes share; the trace's rank column has the lanes.

    Returns the number of violations, and the first of them on each bus, at most `limit`.
    """
    if buses.kind not in _FIND:
        return 0, []
    count, violations = 0, list[Violation]()
    for bus_lanes in buses.lanes_by_bus(lanes):
        found, first = _FIND[buses.kind](trace, device, bus_lanes, limit)
        count += found
        violations += first
    return count, violations


# ---- Whether every rank or bank gets its refreshes, neither too late nor too early


class _Owner(NamedTuple):
    """A rank or a bank that is owed refreshes."""

    name: str
    refreshes: NDArray[np.int64]  # their indices
    interval: int  # clocks in which it is owed one


def _covered(case: Case) -> NDArray[np.int64]:
    """By command, the clocks for which a refresh serves a bank; 0: the command is no refresh.

    A refresh of single banks or pairs serves for tREFI, in which all of them have their turn.
    """
    device, scope = case.device, case.kinds.scope
    alone = np.isin(scope, (ONE_BANK, BANK_PAIR))
    return flags(
        0
        if not (command.refreshes and command.interval)
        else device.clocks("nREFI" if alone[number] else command.interval)
        for number, command in enumerate(device.standard.by_number)
    )


def _owed(case: Case, refresh: str, covered: NDArray[np.int64]) -> Iterator[_Owner]:
    """The owners: ranks, or, where banks are refreshed by `refresh` or in the trace, banks.

    If banks are refreshed: every bank, if the standard has a command for a single bank or a pair; otherwise
    every bank number of a rank, in all bank groups at once. A refresh of the rank is one of each bank.
    """
    part, device, kinds = case.part, case.device, case.kinds
    refreshes, scope = covered[part.command] > 0, kinds.scope[part.command]
    single_banks = bool(((covered > 0) & np.isin(kinds.scope, (ONE_BANK, BANK_PAIR))).any())
    groups = range(device.bankgroups) if single_banks else [-1]
    number = part.bankgroup * device.banks_per_group + part.bank
    pair = np.where(scope == BANK_PAIR, number % (device.banks_per_rank // 2), -1)
    whole = scope == WHOLE_RANK
    for rank in range(device.ranks):
        in_rank = refreshes & (part.rank == rank)
        in_banks = in_rank & ~whole
        if refresh in ("all-bank", "elastic", "staggered") and not in_banks.any():
            yield _Owner(case.rank_name(rank), np.flatnonzero(in_rank), device.clocks("nREFI"))
            continue
        in_fine_steps = covered[(kinds.scope == SAME_BANKS) & (covered > 0)]
        interval = (
            device.clocks("nREFI") if single_banks else int(in_fine_steps.min(initial=device.clocks("nREFI")))
        )
        for group in groups:
            in_group = (scope != BANK_PAIR) & ((part.bankgroup == group) | (scope != ONE_BANK))
            for bank in range(device.banks_per_group):
                in_pair = pair == (group * device.banks_per_group + bank) % max(device.banks_per_rank // 2, 1)
                refreshed = np.flatnonzero(in_rank & (whole | in_pair | (in_group & (part.bank == bank))))
                where = f"bankgroup {group} bank {bank}" if single_banks else f"bank {bank}"
                yield _Owner(f"{case.rank_name(rank)} {where}", refreshed, interval)


def refresh_debt(case: Case, refresh: str, max_postponed: int, max_pulled_in: int, start: int) -> Found:
    """Find owners that do not get one refresh in each interval.

    A refresh serves its banks for an interval: that of the rank, tREFI; that of one bank in every group, its
    own (tREFI2 in DDR5's fine granularity mode). It is due at the end of this interval, which begins where
    those of the earlier refreshes end. It may be at most `max_postponed` tREFI late and
    `max_pulled_in` tREFI early. Refreshes that were due before the clock `start` are done. Refreshes that are
    missing at the end of the trace are reported at its last command.
    """
    part, end = case.part, int(case.trace.clock[-1])
    covered, longest = _covered(case), case.device.clocks("nREFI")
    late: list[Breach] = []
    early: list[Breach] = []
    for name, index, interval in _owed(case, refresh, covered):
        clock, serves = part.clock[index], covered[part.command[index]]
        before = max(start - 1, 0) // interval * interval
        served = before + np.cumsum(serves) - serves
        deadline, postponed = served + serves + max_postponed * longest, max_postponed * longest // interval
        for n in np.flatnonzero(clock > deadline).tolist():
            short, behind = (
                int(clock[n] - deadline[n]),
                int((clock[n] - 1) // interval - served[n] // interval),
            )
            owed = _behind(name, behind, interval, postponed)
            detail = f"{counted(short, 'clock')} too late, {owed}"
            late.append(Breach(case.origin(index[n]), "refresh debt", short, detail))
        allowed, pulled_in = served + serves - max_pulled_in * longest, max_pulled_in * longest // interval
        for n in np.flatnonzero(clock < allowed).tolist():
            short = int(allowed[n] - clock[n])
            ahead = f"more than {pulled_in} intervals of {interval} clocks ahead"
            detail = f"{too_early(short)}, {name} is {ahead}"
            early.append(Breach(case.origin(index[n]), "refresh ahead", short, detail))
        done = before + int(serves.sum())
        owed_from = done + interval + max_postponed * longest
        if end >= owed_from:
            behind = end // interval - done // interval
            since = f"the last was {case.text(case.origin(index[-1]))}" if len(index) else "there was none"
            detail = f"{_behind(name, behind, interval, postponed)}; {since}"
            late.append(Breach(len(case.trace) - 1, "refresh debt", end + 1 - owed_from, detail))
    findings = sorted(late + early, key=lambda finding: finding.number)
    return Found(len(findings), findings[: case.limit])


def _behind(who: str, behind: int, interval: int, max_postponed: int) -> str:
    return f"{who} is {behind} intervals of {interval} clocks behind, {max_postponed} may be postponed"


# ---- The report


#: How a trace may be refreshed. With "all-bank" and "staggered" each rank needs a refresh in every interval;
#: with "none" nothing does. With the others each bank, or each bank number of a rank, needs its own.
REFRESH_MODES = option_names("dram/refresh_policies", "all-bank")

_LAST_CLOCK = 10**18  # of a command trace


class _Options(NamedTuple):
    refresh: str
    limit: int
    max_postponed: int
    max_pulled_in: int
    start_clock: int
    managed: Managed | None


def _options(
    trace: CommandTrace,
    device: Device,
    refresh: str,
    limit: int,
    max_postponed: int | None,
    max_pulled_in: int | None,
    start_clock: int,
    rfm: str,
    rfm_threshold: int | None,
) -> _Options:
    """The options; options that are not given have the standard's values.

    Raises:
        InputError: an argument of `check` is unknown, out of range or of another type.
    """
    instance(trace, "trace", CommandTrace)
    standard = instance(device, "device", Device).standard
    postponed = standard.max_postponed_refreshes if max_postponed is None else max_postponed
    pulled_in = standard.max_pulled_in_refreshes if max_pulled_in is None else max_pulled_in
    start = whole_number(start_clock, "start_clock", 0, _LAST_CLOCK)
    first = int(trace.clock.min()) if len(trace) else start
    if start > 0 and first < start:
        raise InputError(f"{start} is behind the first command, at clock {first}", "range", key="start_clock")
    return _Options(
        choice(refresh, "refresh", REFRESH_MODES, "refresh"),
        CHECK["limit"].checked(limit),
        whole_number(postponed, "max_postponed", 0, MOST_DESCRIBED),
        whole_number(pulled_in, "max_pulled_in", 0, MOST_DESCRIBED),
        start,
        managed(device, rfm, rfm_threshold),
    )


def _examine(case: Case, options: _Options) -> Report:
    results = [find(case) for find in CHECKS]
    if options.refresh != "none":
        tolerances = options.max_postponed, options.max_pulled_in
        results.append(refresh_debt(case, options.refresh, *tolerances, options.start_clock))
    if options.managed is not None:
        results.append(unmanaged(case, options.managed))
    first = sorted(
        (finding for found in results for finding in found.first), key=lambda finding: finding.number
    )
    violations = tuple(violation(case, finding) for finding in first[: options.limit])
    count, tolerated = (sum(getattr(found, name) for found in results) for name in ("count", "tolerated"))
    return Report(len(case.trace), count, violations, tolerated)


def check(
    trace: CommandTrace,
    device: Device,
    refresh: str = "all-bank",
    limit: int = 20,
    max_postponed: int | None = None,
    max_pulled_in: int | None = None,
    start_clock: int = 0,
    rfm: str = "off",
    rfm_threshold: int | None = None,
) -> Report:
    """Check every command of one channel against the standard of `device`.

    All banks are closed before the first command. The check covers the order of clocks, command names and
    coordinates, both buses, every timing rule, the state of rows, and the refreshes of every rank.

    >>> result = ndpsim.simulate_expert("trimoe", ndpsim.Expert(256, 128), record_commands=True)
    >>> ndpsim.check(result.command_traces[0], ndpsim.load_hardware("trimoe").lane_device()).ok
    True

    Args:
        trace: the commands.
        device: the channel.
        refresh: one of `REFRESH_MODES`; with "none", refreshes in the trace still obey the timing rules.
        limit: violations to describe; all are counted.
        max_postponed: refreshes by which a rank may be late; by default as its standard allows.
        max_pulled_in: refreshes by which it may be early; by default as its standard allows.
        start_clock: the first clock of the trace, as in a `Session`; refreshes due before are done.
        rfm: whether banks need refresh management: "off", or the scope of the RFM commands, see
            `ControllerOptions`; then no bank may have more activations than RAAMMT without RFM or refresh.
        rfm_threshold: RAAIMT, of which RAAMMT is a multiple; None: as the standard says.

    Raises:
        InputError: an option is unknown or out of range.
    """
    options = _options(
        trace, device, refresh, limit, max_postponed, max_pulled_in, start_clock, rfm, rfm_threshold
    )
    if not len(trace):
        return Report(0, 0, (), 0)
    return _examine(case_of(trace, device, options.limit, np.arange(len(trace))), options)


def check_lanes(
    trace: CommandTrace,
    device: Device,
    lanes: int,
    refresh: str = "all-bank",
    limit: int = 20,
    max_postponed: int | None = None,
    max_pulled_in: int | None = None,
    buses: CommandBuses | None = None,
    start_clock: int = 0,
    rfm: str = "off",
    rfm_threshold: int | None = None,
) -> Report:
    """Check the lanes of an NDP machine: every lane is a channel of its own, `device`.

    The `rank` column of `trace` holds the lane, 0 to `lanes` - 1; where the channel has several ranks, it
    numbers the ranks of all lanes, lane by lane. Refreshes are due until the last command of the lane. The
    other arguments are those of `check`; `limit` holds for all lanes together.

    >>> trace = ndpsim.read_commands("lanes.csv")  # doctest: +SKIP
    >>> ndpsim.check_lanes(trace, ndpsim.load_hardware("trimoe").lane_device(), lanes=8).ok  # doctest: +SKIP
    True

    Args:
        buses: the lanes with a command bus in common, and the way they share it; None: each has its own.

    Raises:
        InputError: lanes of several ranks share command buses, or an option is unknown or out of range.
    """
    options = _options(
        trace, device, refresh, limit, max_postponed, max_pulled_in, start_clock, rfm, rfm_threshold
    )
    lanes = whole_number(lanes, "lanes", 1, MOST_DESCRIBED)
    buses = CommandBuses() if buses is None else instance(buses, "buses", CommandBuses)
    choice(buses.kind, "buses", COMMAND_BUSES, "command bus")
    if device.ranks > 1 and buses.kind != "private":
        problem = f"lanes of {device.ranks} ranks have a command bus each, private"
        raise InputError(problem, "conflict", key="buses")
    lane_of, rank = np.divmod(trace.rank, device.ranks)
    stray = np.flatnonzero((lane_of < 0) | (lane_of >= lanes))
    count, tolerated = len(stray), 0
    violations = [no_such_lane(trace, int(index), lanes) for index in stray[: options.limit]]
    for lane in np.unique(lane_of[(lane_of >= 0) & (lane_of < lanes)]).tolist():
        indices = np.flatnonzero(lane_of == lane)
        columns = trace.columns()[:, indices]
        columns[2] = rank[indices]
        report = _examine(
            case_of(CommandTrace.of(columns, trace.names), device, options.limit, indices, lane), options
        )
        count += report.count
        tolerated += report.tolerated_overlaps
        violations += report.violations
    shared_count, shared = bus_violations(trace, device, lanes, buses, options.limit)
    count += shared_count
    violations += shared
    first = sorted(violations, key=lambda found: found.index)[: options.limit]
    return Report(len(trace), count, tuple(first), tolerated)
