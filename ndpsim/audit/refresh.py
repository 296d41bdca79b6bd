"""Whether every rank or bank gets its refreshes, neither too late nor too early."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ndpsim.audit.case import Case, Finding, Found, counted, flags, too_early
from ndpsim.dram.spec.standard import BANK_PAIR, ONE_BANK, SAME_BANKS, WHOLE_RANK


class _Owner(NamedTuple):
    """A rank or a bank that is owed refreshes."""

    name: str
    places: NDArray[np.int64]  # its refreshes
    interval: int  # clocks in which it is owed one


def _covered(case: Case) -> NDArray[np.int64]:
    """By command, the clocks for which a refresh serves a bank; 0: it is none.

    A refresh of single banks or pairs serves for tREFI, in which all of them have their turn.
    """
    device, scope = case.device, case.kinds.scope
    alone = np.isin(scope, (ONE_BANK, BANK_PAIR))
    return flags(
        0
        if not (one.refreshes and one.interval)
        else device.clocks("nREFI" if alone[number] else one.interval)
        for number, one in enumerate(device.standard.by_number)
    )


def _owed(case: Case, refresh: str, covered: NDArray[np.int64]) -> Iterator[_Owner]:
    """The owners: ranks, or, where banks are refreshed by `refresh` or in the trace, banks.

    If banks are refreshed: every bank, if the standard has a command for a single bank or a pair; otherwise
    every bank number of a rank, in all bank groups at once. A refresh of the rank is one of each bank.
    """
    part, device, kinds = case.part, case.device, case.kinds
    refreshes, scope = covered[part.command] > 0, kinds.scope[part.command]
    one_by_one = bool(((covered > 0) & np.isin(kinds.scope, (ONE_BANK, BANK_PAIR))).any())
    groups = range(device.bankgroups) if one_by_one else [-1]
    number = part.bankgroup * device.banks_per_group + part.bank
    pair = np.where(scope == BANK_PAIR, number % (device.banks_per_rank // 2), -1)
    whole = scope == WHOLE_RANK
    for rank in range(device.ranks):
        of_rank = refreshes & (part.rank == rank)
        of_banks = of_rank & ~whole
        if refresh in ("all-bank", "elastic", "staggered") and not of_banks.any():
            yield _Owner(case.rank_name(rank), np.flatnonzero(of_rank), device.clocks("nREFI"))
            continue
        in_fine_steps = covered[(kinds.scope == SAME_BANKS) & (covered > 0)]
        interval = (
            device.clocks("nREFI") if one_by_one else int(in_fine_steps.min(initial=device.clocks("nREFI")))
        )
        for group in groups:
            of_group = (scope != BANK_PAIR) & ((part.bankgroup == group) | (scope != ONE_BANK))
            for bank in range(device.banks_per_group):
                of_pair = pair == (group * device.banks_per_group + bank) % max(device.banks_per_rank // 2, 1)
                places = np.flatnonzero(of_rank & (whole | of_pair | (of_group & (part.bank == bank))))
                where = f"bankgroup {group} bank {bank}" if one_by_one else f"bank {bank}"
                yield _Owner(f"{case.rank_name(rank)} {where}", places, interval)


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
    late: list[Finding] = []
    early: list[Finding] = []
    for name, places, interval in _owed(case, refresh, covered):
        clock, serves = part.clock[places], covered[part.command[places]]
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
            late.append(Finding(case.origin(places[n]), "refresh debt", short, detail))
        allowed, pulled_in = served + serves - max_pulled_in * longest, max_pulled_in * longest // interval
        for n in np.flatnonzero(clock < allowed).tolist():
            short = int(allowed[n] - clock[n])
            ahead = f"more than {pulled_in} intervals of {interval} clocks ahead"
            detail = f"{too_early(short)}, {name} is {ahead}"
            early.append(Finding(case.origin(places[n]), "refresh ahead", short, detail))
        done = before + int(serves.sum())
        owed_from = done + interval + max_postponed * longest
        if end >= owed_from:
            behind = end // interval - done // interval
            since = f"the last was {case.at(case.origin(places[-1]))}" if len(places) else "there was none"
            detail = f"{_behind(name, behind, interval, postponed)}; {since}"
            late.append(Finding(len(case.trace) - 1, "refresh debt", end + 1 - owed_from, detail))
    findings = sorted(late + early, key=lambda finding: finding.place)
    return Found(len(findings), findings[: case.limit])


def _behind(who: str, behind: int, interval: int, max_postponed: int) -> str:
    return f"{who} is {behind} intervals of {interval} clocks behind, {max_postponed} may be postponed"
