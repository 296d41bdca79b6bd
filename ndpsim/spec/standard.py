"""The vocabulary in which a DRAM standard is written down.

A standard is one file in `ndpsim/spec/standards/` that ends in ``STANDARD = Standard(...)``; nothing else
has to know of it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import ceil

__all__ = [
    "ACT",
    "COMMANDS",
    "LEVELS",
    "PREAB",
    "PREPB",
    "PRESB",
    "RD",
    "RDA",
    "REFAB",
    "REFSB",
    "WR",
    "WRA",
    "AtLeast",
    "ByDensity",
    "ByRate",
    "ByWidth",
    "ByWidthAndRate",
    "Command",
    "Every",
    "Organisation",
    "Rule",
    "Standard",
    "latency_terms",
]

#: The hierarchy a rule can be bound to, outermost first.
LEVELS = ("channel", "rank", "bankgroup", "bank")


@dataclass(frozen=True)
class Command:
    """What a command does to the banks it addresses."""

    name: str
    scope: str  # "bank": one bank; "rank": every bank of the rank; "same-bank": one bank of every group
    opens: bool = False
    closes: bool = False
    reads: bool = False
    writes: bool = False
    refreshes: bool = False


#: The commands of all standards; the place of one in this list is its number in every table and kernel.
COMMANDS = (
    Command("ACT", "bank", opens=True),
    Command("PREpb", "bank", closes=True),
    Command("PREab", "rank", closes=True),
    Command("RD", "bank", reads=True),
    Command("WR", "bank", writes=True),
    Command("RDA", "bank", reads=True, closes=True),
    Command("WRA", "bank", writes=True, closes=True),
    Command("REFab", "rank", refreshes=True),
    Command("PREsb", "same-bank", closes=True),
    Command("REFsb", "same-bank", refreshes=True),
)
ACT, PREPB, PREAB, RD, WR, RDA, WRA, REFAB, PRESB, REFSB = range(len(COMMANDS))


@dataclass(frozen=True)
class Rule:
    """`next` may follow `previous` at the same node of `level` no sooner than `latency` clocks later.

    `latency` is a sum of timing names and whole numbers, as the standards write it ("nCL + nBL - nCWL").
    `window`: the distance counts from the `window`-th last `previous` (4 for tFAW).
    `siblings`: the rule binds the *other* nodes of the level instead (rank-to-rank switching).
    """

    name: str
    level: str
    previous: tuple[str, ...]
    next: tuple[str, ...]
    latency: str
    window: int = 1
    siblings: bool = False


_TERM = re.compile(r"\s*([+-]?)\s*([A-Za-z_]\w*|\d+)")


def latency_terms(latency: str) -> list[tuple[int, str | int]]:
    """Split "nCL + nBL + 2 - nCWL" into [(1, "nCL"), (1, "nBL"), (1, 2), (-1, "nCWL")].

    Raises:
        ValueError: `latency` is not such a sum.
    """
    terms: list[tuple[int, str | int]] = []
    position = 0
    while position < len(latency.rstrip()):
        match = _TERM.match(latency, position)
        if match is None or (terms and not match[1]):
            raise ValueError(f"not a sum of timings: '{latency}'")
        terms.append((-1 if match[1] == "-" else 1, int(match[2]) if match[2].isdigit() else match[2]))
        position = match.end()
    return terms


@dataclass(frozen=True)
class Organisation:
    """One device of a preset: density in Mb, data pins, and its banks, rows and columns."""

    density_mb: int
    dq: int
    bankgroups: int
    banks_per_group: int
    rows: int
    columns: int


# How a standard derives a clock count that its speed presets do not state.


@dataclass(frozen=True)
class ByWidthAndRate:
    """A table by device width and data rate: the first step whose rate is not exceeded."""

    steps: Mapping[int, tuple[tuple[int, int], ...]]  # dq -> ((highest MT/s, clocks), ...)

    def clocks(self, organisation: Organisation, rate: int, tck_ps: int) -> int | None:
        for highest, clocks in self.steps.get(organisation.dq, ()):
            if rate <= highest:
                return clocks
        return None


@dataclass(frozen=True)
class AtLeast:
    """The larger of `minimum` clocks and a time by device width, at the exact clock."""

    minimum: int
    ns_by_dq: Mapping[int, int]

    def clocks(self, organisation: Organisation, rate: int, tck_ps: int) -> int | None:
        if organisation.dq not in self.ns_by_dq:
            return None
        return max(self.minimum, ceil(Fraction(self.ns_by_dq[organisation.dq] * rate, 2000)))


@dataclass(frozen=True)
class ByWidth:
    """Clocks by device width."""

    by_dq: Mapping[int, int]

    def clocks(self, organisation: Organisation, rate: int, tck_ps: int) -> int | None:
        return self.by_dq.get(organisation.dq)


@dataclass(frozen=True)
class ByRate:
    """A derivation of its own for some data rates, another for the rest."""

    special: Mapping[int, Derivation]
    otherwise: Derivation

    def clocks(self, organisation: Organisation, rate: int, tck_ps: int) -> int | None:
        return self.special.get(rate, self.otherwise).clocks(organisation, rate, tck_ps)


@dataclass(frozen=True)
class ByDensity:
    """Nanoseconds by device density (Mb), rounded up to clocks of the preset's tCK."""

    ns: Mapping[int, int]

    def clocks(self, organisation: Organisation, rate: int, tck_ps: int) -> int | None:
        ns = self.ns.get(organisation.density_mb)
        return None if ns is None else ceil(Fraction(ns * 1000, tck_ps))


@dataclass(frozen=True)
class Every:
    """The same nanoseconds for every device, rounded up to clocks of the preset's tCK."""

    ns: int

    def clocks(self, organisation: Organisation, rate: int, tck_ps: int) -> int | None:
        return ceil(Fraction(self.ns * 1000, tck_ps))


Derivation = ByWidthAndRate | AtLeast | ByWidth | ByRate | ByDensity | Every


@dataclass(frozen=True)
class Standard:
    """A DRAM standard.

    `commands`: the names of those that it has, of `COMMANDS`. `levels`: its hierarchy, outermost first.
    `transfers_per_clock`: on each data pin. `prefetch`: device columns in a burst. `channel_bits`: data pins
    of a channel (DDR5: of a sub-channel).
    `command_cycles`: clocks a command holds the command bus, where not one. `speeds`: clock counts by
    preset, with `rate` in MT/s and `tCK_ps` rounded down to a whole ps. `derived`: what follows from them.
    `rules`: what the controllers obey, as the reference's do. `checked_rules`: what a trace must obey
    besides: the standard says it, and the reference does not.
    `max_postponed_refreshes`, `max_pulled_in_refreshes`: REFab that a rank may owe, or be ahead.
    """

    name: str
    source: str
    commands: tuple[str, ...]
    levels: tuple[str, ...]
    transfers_per_clock: int
    prefetch: int
    channel_bits: int
    command_cycles: Mapping[str, int]
    rules: tuple[Rule, ...]
    organisations: Mapping[str, Organisation]
    speeds: Mapping[str, Mapping[str, int]]
    derived: Mapping[str, Derivation]
    max_postponed_refreshes: int
    max_pulled_in_refreshes: int
    checked_rules: tuple[Rule, ...] = ()
