"""The public calls: a channel, or the lanes of an NDP machine, checked against a device."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ndpsim.audit.case import Case, case_of, no_such_lane, violation
from ndpsim.audit.checks import CHECKS
from ndpsim.audit.command_bus import COMMAND_BUSES, CommandBuses, bus_violations
from ndpsim.audit.management import unmanaged
from ndpsim.audit.refresh import refresh_debt
from ndpsim.audit.report import Report
from ndpsim.base.arguments import choice, instance, whole_number
from ndpsim.base.errors import InputError
from ndpsim.base.options.check import CHECK, MOST_DESCRIBED
from ndpsim.base.plugins import option_names
from ndpsim.dram.spec import Device
from ndpsim.dram.spec.management import Managed, managed
from ndpsim.dram.traces import CommandTrace

#: How a trace may be refreshed. With "all-bank" and "staggered" each rank needs a refresh in every interval;
#: with "none" nothing does. With the others each bank, or each bank number of a rank, needs its own.
REFRESH_MODES = option_names("dram/refresh_policies", "all-bank")

_LAST_CLOCK = 10**18  # of a command trace

#: Maximum number of violations to describe; their memory is allocated before the check.


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
        (finding for found in results for finding in found.first), key=lambda finding: finding.place
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
        places = np.flatnonzero(lane_of == lane)
        columns = trace.columns()[:, places]
        columns[2] = rank[places]
        report = _examine(
            case_of(CommandTrace.of(columns, trace.names), device, options.limit, places, lane), options
        )
        count += report.count
        tolerated += report.tolerated_overlaps
        violations += report.violations
    of_buses, shared = bus_violations(trace, device, lanes, buses, options.limit)
    count += of_buses
    violations += shared
    first = sorted(violations, key=lambda one: one.index)[: options.limit]
    return Report(len(trace), count, tuple(first), tolerated)
