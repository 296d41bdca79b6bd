"""From rules to integer tables: the only form in which the engine knows a standard."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ndpsim.errors import InputError
from ndpsim.spec.device import Device
from ndpsim.spec.standard import COMMANDS, LEVELS

__all__ = ["NO_RULE", "Tables", "lower"]

#: Stands in a table where no rule binds two commands: adding it to any clock leaves the past.
NO_RULE = -(1 << 40)

# The scopes of commands that address a single node of a level, or, of the banks, one in every group.
_SCOPES = (
    {"bank", "same-bank", "rank"},
    {"bank", "same-bank", "rank"},
    {"bank"},
    {"bank", "same-bank"},
)

_NUMBER = {command.name: number for number, command in enumerate(COMMANDS)}


class Tables(NamedTuple):
    """A device in integers; all times in clocks.

    `gap[level, previous, next]`: least distance at the same channel, rank, bank group or bank.
    `sibling_gap[previous, next]`: least distance from a command on one rank to one on another.
    `activate_window`: least distance from an ACT to the fifth ACT of the rank after it (tFAW).
    Distances count from and to the first cycle of a command; NO_RULE where nothing binds.
    """

    ranks: int
    bankgroups: int
    banks_per_group: int
    gap: NDArray[np.int64]
    sibling_gap: NDArray[np.int64]
    activate_window: int
    read_latency: int  # RD to the last beat of its data: nCL + nBL
    burst: int  # clocks of data bus per burst: nBL
    refresh_interval: int  # nREFI
    refresh_cycles: int  # nRFC
    same_bank_refresh_cycles: int  # nRFCsb, 0 where the standard has no same-bank refresh


def lower(device: Device) -> Tables:
    """The integer tables of `device`.

    A command of two cycles begins its effect in the second: a distance from it grows by one, a distance
    to it shrinks by one, and it keeps the command bus from every other command (JESD79-5, command truth
    table).

    Raises:
        InputError: a rule of the standard cannot be expressed in the tables.
    """
    standard, timings = device.standard, dict(device.timings)
    if standard.levels != LEVELS:
        raise InputError(f"{standard.name}: no tables for the levels {', '.join(standard.levels)}")
    count = len(COMMANDS)
    gap = np.full((len(LEVELS), count, count), NO_RULE, dtype=np.int64)
    sibling = np.full((count, count), NO_RULE, dtype=np.int64)
    window = NO_RULE
    cycles = [standard.command_cycles.get(command.name, 1) for command in COMMANDS]

    for previous in range(count):
        if cycles[previous] > 1:
            gap[0, previous, :] = cycles[previous]

    for rule in standard.rules:
        nominal = device.clocks(rule.latency)
        level = LEVELS.index(rule.level)
        for before in (_NUMBER[name] for name in rule.previous):
            for after in (_NUMBER[name] for name in rule.next):
                clocks = nominal + cycles[before] - cycles[after]
                if rule.window == 4 and (rule.level, rule.previous, rule.next) == (
                    "rank",
                    ("ACT",),
                    ("ACT",),
                ):
                    window = max(window, clocks)
                elif rule.window != 1:
                    raise InputError(f"{standard.name} {rule.name}: no table for a window of {rule.window}")
                elif rule.siblings and rule.level == "rank":
                    sibling[before, after] = max(sibling[before, after], clocks)
                elif rule.siblings:
                    raise InputError(f"{standard.name} {rule.name}: no table for siblings of a {rule.level}")
                elif not {COMMANDS[before].scope, COMMANDS[after].scope} <= _SCOPES[level]:
                    raise InputError(f"{standard.name} {rule.name}: not every command has a {rule.level}")
                else:
                    gap[level, before, after] = max(gap[level, before, after], clocks)
    return Tables(
        ranks=device.ranks,
        bankgroups=device.bankgroups,
        banks_per_group=device.banks_per_group,
        gap=gap,
        sibling_gap=sibling,
        activate_window=window,
        read_latency=timings["nCL"] + timings["nBL"],
        burst=timings["nBL"],
        refresh_interval=timings["nREFI"],
        refresh_cycles=timings["nRFC"],
        same_bank_refresh_cycles=timings.get("nRFCsb", 0),
    )
