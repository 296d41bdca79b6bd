"""Whether every rank or bank gets its refreshes, neither too late nor too early."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ndpsim.audit.case import Case, Finding, Found, counted, too_early
from ndpsim.spec.standard import BANK_PAIR, ONE_BANK, WHOLE_RANK


def _owed(case: Case, refresh: str) -> list[tuple[str, NDArray[np.int64]]]:
    """The owners (ranks or banks) that need a refresh in every interval, by name, and its commands.

    If banks are refreshed: every bank, if the standard has a command for a single bank or a pair; otherwise
    every bank number of a rank, in all bank groups at once.
    """
    part, device, kinds = case.part, case.device, case.kinds
    refreshes, scope = kinds.refreshes[part.command] == 1, kinds.scope[part.command]
    one_by_one = bool(((kinds.refreshes == 1) & np.isin(kinds.scope, (ONE_BANK, BANK_PAIR))).any())
    groups = range(device.bankgroups) if one_by_one else [-1]
    number = part.bankgroup * device.banks_per_group + part.bank
    pair = np.where(scope == BANK_PAIR, number % (device.banks_per_rank // 2), -1)
    owed = []
    for rank in range(device.ranks):
        of_rank = refreshes & (part.rank == rank)
        whole = scope == WHOLE_RANK
        if refresh in ("all-bank", "staggered"):
            owed.append((case.rank_name(rank), np.flatnonzero(of_rank & whole)))
            continue
        for group in groups:
            of_group = (scope != BANK_PAIR) & ((part.bankgroup == group) | (scope != ONE_BANK))
            for bank in range(device.banks_per_group):
                of_pair = pair == (group * device.banks_per_group + bank) % max(device.banks_per_rank // 2, 1)
                places = np.flatnonzero(of_rank & (whole | of_pair | (of_group & (part.bank == bank))))
                where = f"bankgroup {group} bank {bank}" if one_by_one else f"bank {bank}"
                owed.append((f"{case.rank_name(rank)} {where}", places))
    return owed


def refresh_debt(case: Case, refresh: str, max_postponed: int, max_pulled_in: int, start: int) -> Found:
    """Find owners that do not get one refresh in each interval.

    The n-th refresh, counted from 0, is due at n + 1 intervals. It may be at most `max_postponed` intervals
    late and `max_pulled_in` intervals early. Refreshes that were due before the clock `start` are done.
    Refreshes that are missing at the end of the trace are reported at its last command.
    """
    interval = case.device.clocks("nREFI")
    part, end = case.part, int(case.trace.clock[-1])
    before = max(start - 1, 0) // interval
    late: list[Finding] = []
    early: list[Finding] = []
    for name, places in _owed(case, refresh):
        clock, issued = part.clock[places], before + np.arange(len(places))
        deadline = (issued + max_postponed + 1) * interval
        for n in np.flatnonzero(clock > deadline).tolist():
            short, behind = int(clock[n] - deadline[n]), int((clock[n] - 1) // interval - issued[n])
            owed = _behind(name, behind, interval, max_postponed)
            detail = f"{counted(short, 'clock')} too late, {owed}"
            late.append(Finding(case.origin(places[n]), "refresh debt", short, detail))
        allowed = (issued + 1 - max_pulled_in) * interval
        for n in np.flatnonzero(clock < allowed).tolist():
            short = int(allowed[n] - clock[n])
            ahead = f"more than {max_pulled_in} intervals of {interval} clocks ahead"
            detail = f"{too_early(short)}, {name} is {ahead}"
            early.append(Finding(case.origin(places[n]), "refresh ahead", short, detail))
        done = before + len(places)
        owed_from = (done + max_postponed + 1) * interval
        if end >= owed_from:
            behind = end // interval - done
            since = f"the last was {case.at(case.origin(places[-1]))}" if len(places) else "there was none"
            detail = f"{_behind(name, behind, interval, max_postponed)}; {since}"
            late.append(Finding(len(case.trace) - 1, "refresh debt", end + 1 - owed_from, detail))
    findings = sorted(late + early, key=lambda finding: finding.place)
    return Found(len(findings), findings[: case.limit])


def _behind(who: str, behind: int, interval: int, max_postponed: int) -> str:
    return f"{who} is {behind} intervals of {interval} clocks behind, {max_postponed} may be postponed"
