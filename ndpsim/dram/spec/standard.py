"""The description of DRAM standards.

A standard is one file in `ndpsim/dram/spec/standards/` that ends in ``STANDARD = Standard(...)``; nothing
else refers to it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cache, cached_property
from math import ceil, floor
from typing import Any

from ndpsim.base.errors import InputError
from ndpsim.base.units import dram_period_ps

#: The numbers of the commands of every standard, which open, close, read or write a bank; the last two also
#: close it afterwards. Standards may use other names.
ACTIVATE, PRECHARGE, READ, WRITE, READ_AP, WRITE_AP = range(6)

#: Scopes of commands: one bank, one bank of every group of a rank, a rank, or two banks, half a rank apart.
ONE_BANK, SAME_BANKS, WHOLE_RANK, BANK_PAIR = range(4)

#: The index of stacks, if a standard has them, in tables by level: after channel, ranks, bank groups and
#: banks.
STACK = 4

#: The time at which the same bank of other ranks is due: at once, a clock later for each rank, or after all
#: banks of this rank.
RANK_ORDERS = ("together", "a clock apart", "in turn")

#: What the pause after a round of refreshes counts from: the issue of the last of them, in any rank, or the
#: clock at which it was due. In the latter case the schedule takes the pause into account.
PAUSES_FROM = ("issue", "request")

_EFFECTS = ("opens", "closes", "reads", "writes", "refreshes")

# Scope and effects by number: first those of the commands of every standard, then those of further commands
# that the fast controller knows. Other commands follow in the order of the standard's page.
_BY_NUMBER = (
    (ONE_BANK, {"opens"}),
    (ONE_BANK, {"closes"}),
    (ONE_BANK, {"reads"}),
    (ONE_BANK, {"writes"}),
    (ONE_BANK, {"reads", "closes"}),
    (ONE_BANK, {"writes", "closes"}),
    (WHOLE_RANK, {"closes"}),
    (WHOLE_RANK, {"refreshes"}),
    (SAME_BANKS, {"closes"}),
    (SAME_BANKS, {"refreshes"}),
)


@dataclass(frozen=True)
class Command:
    """A command and its effect on the addressed banks.

    `scope`: the level of the addressed node, which is the last ("bank") or the second ("rank", with all its
    banks); "same-bank" addresses one bank of every bank group of a rank, "bank-pair" a bank of the first half
    of a rank's bank groups and the one half a rank above.
    `manages`: refresh management (RFM): it gives the addressed banks time for rows that were disturbed by
    many activations, and stands for no refresh.
    `closes_first`: for a refresh or RFM, the command of the same scope that closes its banks; for that of a
    pair, the command that closes one of them.
    `interval`: time between refreshes. `busy`: clocks after it in which its rank cannot be read. Both are
    sums of timings like a rule's `latency`.
    `cycles`: clocks (ticks, if a clock has several) for which it occupies the command bus `bus`. Commands of
    different buses do not wait for each other. `on_any_tick`: it may issue at any tick of a clock, not only
    the first. `ranks`: for the refresh of one bank, the order of ranks (`RANK_ORDERS`).
    `round_of`: for the refresh of one bank, the level whose banks make a round. After a round no bank is
    refreshed for the time `pause`, which counts from what `pause_from` says (`PAUSES_FROM`); refreshes that
    have become due meanwhile follow.
    `completed_by`: the command that opens the row named by this one, at most `complete_within` clocks later.
    `prepared_by`: the command that must precede this one, unless an earlier read or write at the same node of
    `prepared_at` keeps it so, for its `keeps_prepared` clocks; the preparing command keeps the command bus
    for this one. `started_by`, `stopped_by`: for a read, the commands that start and stop the clock of its
    data. Only controllers that state it support these.
    `second_burst`: a read or write moves a second burst, whose data begin this many clocks after those of
    the first. There may be such commands beside those with one burst; no controller issues them.
    """

    name: str
    scope: str
    opens: bool = False
    closes: bool = False
    reads: bool = False
    writes: bool = False
    refreshes: bool = False
    manages: bool = False
    closes_first: str = ""
    interval: str = "nREFI"
    busy: str = ""
    cycles: int = 1
    bus: str = "command"
    on_any_tick: bool = False
    ranks: str = "together"
    round_of: str = ""
    pause: str = ""
    pause_from: str = "issue"
    completed_by: str = ""
    complete_within: str = ""
    prepared_by: str = ""
    prepared_at: str = ""
    keeps_prepared: str = ""
    started_by: str = ""
    stopped_by: str = ""
    second_burst: str = ""


@dataclass(frozen=True)
class Rule:
    """`next` may follow `previous` at the same node of `level` no sooner than `latency` clocks later.

    `latency` is a sum of timing names and whole numbers, as in the standards ("nCL + nBL - nCWL").
    `window`: the distance is from the `window`-th last command of all `previous`, if there are that many (4
    for tFAW). Such a window counts from the last cycle of a command.
    `siblings`: the rule applies to the *other* nodes of the level below the same node instead (rank-to-rank
    switching).
    """

    name: str
    level: str
    previous: tuple[str, ...]
    next: tuple[str, ...]
    latency: str
    window: int = 1
    siblings: bool = False


def with_rfm(
    rules: tuple[Rule, ...], commands: Mapping[str, str], timings: Mapping[str, str]
) -> tuple[Rule, ...]:
    """The rules, and for RFM copies of the rules of refreshes, with RFM's own times.

    Args:
        commands: the RFM command for each refresh. timings: a refresh's timing, and that of RFM.
    """

    def rfm_of(names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(commands[name] for name in names if name in commands)

    extended = []
    for rule in rules:
        delayed = replace(rule, next=rule.next + rfm_of(rule.next))
        if rule.window > 1:
            extended.append(replace(delayed, previous=rule.previous + rfm_of(rule.previous)))
            continue
        extended.append(delayed)
        if rfm_of(rule.previous):
            latency = re.sub(r"\w+", lambda term: timings.get(term[0], term[0]), rule.latency)
            name = rule.name.replace("RFC", "RFM")
            extended.append(replace(delayed, name=name, previous=rfm_of(rule.previous), latency=latency))
    return tuple(extended)


_TERM = re.compile(r"\s*([+-]?)\s*([A-Za-z_]\w*|\d+)")


@cache
def latency_terms(latency: str) -> tuple[tuple[int, str | int], ...]:
    """Split "nCL + nBL + 2 - nCWL" into ((1, "nCL"), (1, "nBL"), (1, 2), (-1, "nCWL")).

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
    return tuple(terms)


@dataclass(frozen=True)
class Organisation:
    """One device of a preset: density in Mb, data pins, and its banks, rows and columns.

    `bankgroups` are those of a rank, or of a stack if ranks have stacks. `ranks`: number of ranks of a
    channel, or 0 if it is not fixed.
    """

    density_mb: int
    dq: int
    bankgroups: int
    banks_per_group: int
    rows: int
    columns: int
    stacks: int = 1
    ranks: int = 0


#: How a time becomes clocks: rounded up, down (a maximum interval), or by JESD79-5C, 13.2: 0.3% less, in
#: thousandths of a clock, rounded up.
ROUNDINGS = ("up", "down", "JESD79-5C")


#: A time in picoseconds.
Ps = int | Fraction
_Clocks = int | str | None  # a text: a sum of other timings


def to_clocks(ps: Ps, tck_ps: Ps, rounding: str = "up") -> int:
    """A time in clocks, by one of `ROUNDINGS`."""
    if rounding == "JESD79-5C":
        return int((floor(Fraction(ps * 997) / tck_ps) + 1000) // 1000)
    clocks = Fraction(ps) / tck_ps
    return floor(clocks) if rounding == "down" else ceil(clocks)


# Derivations of clock counts that speed presets do not state, from a rate in MT/s, the preset's clock, and
# transfers in a clock.


@dataclass(frozen=True)
class ByWidthAndRate:
    """A table by device width and data rate: the first step whose rate is not exceeded."""

    steps: Mapping[int, tuple[tuple[int, int], ...]]  # dq -> ((highest MT/s, clocks), ...)

    def clocks(self, organisation: Organisation, rate: int, tck_ps: Ps, transfers: int = 2) -> int | None:
        for highest, clocks in self.steps.get(organisation.dq, ()):
            if rate <= highest:
                return clocks
        return None


@dataclass(frozen=True)
class AtLeast:
    """The larger of `minimum` clocks, maybe by device width, and a time by width, at the exact clock."""

    minimum: int | Mapping[int, int]
    ns_by_dq: Mapping[int, int]

    def clocks(self, organisation: Organisation, rate: int, tck_ps: Ps, transfers: int = 2) -> int | None:
        if organisation.dq not in self.ns_by_dq:
            return None
        least = self.minimum if isinstance(self.minimum, int) else self.minimum[organisation.dq]
        return max(least, ceil(Fraction(self.ns_by_dq[organisation.dq] * rate, 1000 * transfers)))


@dataclass(frozen=True)
class ByWidth:
    """Clocks by device width, or a sum of other timings, see `Sum`."""

    by_dq: Mapping[int, int | str]

    def clocks(
        self, organisation: Organisation, rate: int, tck_ps: Ps, transfers: int = 2
    ) -> int | str | None:
        return self.by_dq.get(organisation.dq)


@dataclass(frozen=True)
class Sum:
    """A sum of other timings like a rule's `latency`, with the clocks that overrides give them.

    Its terms are timings of presets, or of earlier lines of `derived`. The sum is rounded up to a `multiple`.
    """

    latency: str
    multiple: int = 1

    def clocks(self, organisation: Organisation, rate: int, tck_ps: Ps, transfers: int = 2) -> str:
        return self.latency


@dataclass(frozen=True)
class ByRate:
    """Separate derivations for some data rates, and another for the rest."""

    special: Mapping[int, Derivation]
    otherwise: Derivation

    def clocks(
        self, organisation: Organisation, rate: int, tck_ps: Ps, transfers: int = 2
    ) -> int | str | None:
        return self.special.get(rate, self.otherwise).clocks(organisation, rate, tck_ps, transfers)


@dataclass(frozen=True)
class ByDensity:
    """Nanoseconds by the density of a device, or of a stack of it, in clocks of the tCK."""

    ns: Mapping[int, int]
    rounding: str = "up"

    def clocks(self, organisation: Organisation, rate: int, tck_ps: Ps, transfers: int = 2) -> int | None:
        ns = self.ns.get(organisation.density_mb // organisation.stacks)
        return None if ns is None else to_clocks(ns * 1000, tck_ps, self.rounding)


@dataclass(frozen=True)
class ByChannelDensity:
    """Nanoseconds by the density in Mb of a channel with fixed ranks (HBM), in clocks of the tCK."""

    ns: Mapping[int, int]

    def clocks(self, organisation: Organisation, rate: int, tck_ps: Ps, transfers: int = 2) -> int | None:
        org = organisation
        banks = org.ranks * org.stacks * org.bankgroups * org.banks_per_group
        ns = self.ns.get(banks * org.rows * org.columns * org.dq >> 20)
        return None if ns is None else to_clocks(ns * 1000, tck_ps)


@dataclass(frozen=True)
class ByStacks:
    """Clocks by the number of stacks."""

    by_stacks: Mapping[int, int]

    def clocks(self, organisation: Organisation, rate: int, tck_ps: Ps, transfers: int = 2) -> int | None:
        return self.by_stacks.get(organisation.stacks)


@dataclass(frozen=True)
class Every:
    """The same nanoseconds for every device, in clocks of the preset's tCK.

    `exact`: in clocks of the exact tCK, as a maximum interval needs: the preset's tCK is rounded down.
    """

    ns: int
    rounding: str = "up"
    exact: bool = False

    def clocks(self, organisation: Organisation, rate: int, tck_ps: Ps, transfers: int = 2) -> int | None:
        clock = dram_period_ps(rate, transfers) if self.exact else tck_ps
        return to_clocks(self.ns * 1000, clock, self.rounding)


@dataclass(frozen=True)
class EveryBank:
    """Nanoseconds that all banks of a rank share, in clocks of the preset's tCK."""

    ns: int
    rounding: str = "up"

    def clocks(self, organisation: Organisation, rate: int, tck_ps: Ps, transfers: int = 2) -> int | None:
        banks = organisation.stacks * organisation.bankgroups * organisation.banks_per_group
        return to_clocks(Fraction(self.ns * 1000, banks), tck_ps, self.rounding)


@dataclass(frozen=True)
class Management:
    """When a bank needs refresh management (RFM), by its counter of activations (RAA).

    A register of the device has these values; they differ by vendor.

    `threshold` (RAAIMT): the counter at which RFM is due; RFM takes as much off the counter of its banks.
    `multiple`: maximum of the counter, in thresholds (RAAMMT).
    `refreshes`: number of refreshes that take as much off the counter as one RFM.
    `source`: the origin of these numbers.
    """

    threshold: int
    multiple: int
    refreshes: int
    source: str


Derivation = (
    ByWidthAndRate
    | AtLeast
    | ByWidth
    | Sum
    | ByRate
    | ByDensity
    | ByChannelDensity
    | ByStacks
    | Every
    | EveryBank
)


@dataclass(frozen=True)
class Standard:
    """A DRAM standard.

    `commands`: all its commands, in their order in results. `levels`: its hierarchy, outermost first:
    channel, ranks, bank groups and banks, by any names; a level of stacks may be between ranks and bank
    groups. `transfers_per_clock`: on each data pin. `prefetch`: device columns in a burst. `channel_bits`:
    data pins of a channel (of a sub-channel or pseudo-channel). `burst`: the clocks of a burst on them, a sum
    of timings; `read_latency`, `write_latency`: those from a read or a write to the first beat of its burst.
    `payload_bytes`: data of a burst, if it also has other bits; 0: it has none.
    `own_data_buses`: each rank has its own data pins (a pseudo-channel). `ticks_per_clock`:
    commands are at whole ticks, counted from 1; timings are in clocks.
    `speeds`: clock counts by preset, with `rate` in MT/s and `tCK_ps` rounded down to a whole ps. `derived`:
    clock counts derived from them, with `derives_exactly` at the exact clock of the rate instead of `tCK_ps`.
    `rules`: rules of controllers, as in the reference. `checked_rules`: further rules of the standard for
    traces, which the reference lacks.
    `max_postponed_refreshes`, `max_pulled_in_refreshes`: refreshes that a rank may owe, or be ahead.
    `controller`: the module of `ndpsim/dram/controllers` with the parts of a step that are not data.
    `rounding`: how a user's time in ns becomes clocks, one of `ROUNDINGS`.
    `choices`: what the standard leaves to a controller, by names that its `controller` knows.
    `refused`: presets without a known source, by name, with the reason.
    `management`: the thresholds of refresh management; None: the standard has none.
    `cited`: the source of each timing, by its name, or by "preset/name" where it is that of one preset only.
    `reference`: differing fields under the rules of the reference (Ramulator 2.1).
    """

    name: str
    source: str
    commands: tuple[Command, ...]
    levels: tuple[str, ...]
    transfers_per_clock: int
    prefetch: int
    channel_bits: int
    rules: tuple[Rule, ...]
    organisations: Mapping[str, Organisation]
    speeds: Mapping[str, Mapping[str, int]]
    derived: Mapping[str, Derivation]
    max_postponed_refreshes: int
    max_pulled_in_refreshes: int
    checked_rules: tuple[Rule, ...] = ()
    controller: str = "one-command"
    burst: str = "nBL"
    read_latency: str = "nCL"
    write_latency: str = "nCWL"
    payload_bytes: int = 0
    derives_exactly: bool = False
    own_data_buses: bool = False
    ticks_per_clock: int = 1
    rounding: str = "up"
    choices: tuple[str, ...] = ()
    refused: Mapping[str, str] = field(default_factory=dict)
    management: Management | None = None
    cited: Mapping[str, str] = field(default_factory=dict)
    reference: Mapping[str, Any] = field(default_factory=dict)

    def under(self, rules: str) -> Standard:
        """The standard under these rules: "standard" or "reference"."""
        return self._as_reference if rules == "reference" else self

    @cached_property
    def _as_reference(self) -> Standard:
        return replace(self, **self.reference, reference={})

    def source_of(self, timing: str, preset: str) -> str:
        """The clause, table or data sheet of a timing of a preset; empty if the page names none."""
        return self.cited.get(f"{preset}/{timing}", self.cited.get(timing, ""))

    @cached_property
    def by_number(self) -> tuple[Command, ...]:
        """The commands by their numbers in tables and kernels."""
        effects = [{name for name in _EFFECTS if getattr(command, name)} for command in self.commands]
        kinds = list(zip(map(self.scope_of, self.commands), effects, strict=True))
        first = [kinds.index(kind) for kind in _BY_NUMBER if kind in kinds]
        rest = [index for index in range(len(kinds)) if index not in first]
        return tuple(self.commands[index] for index in first + rest)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of the commands by their numbers."""
        return tuple(command.name for command in self.by_number)

    def level_of(self, name: str) -> int:
        """The index of a level in tables: channel, rank, bank group, bank, `STACK`."""
        index, inner = self.levels.index(name), len(self.levels) - 4
        return index if index < 2 else STACK if index < 2 + inner else index - inner

    def scope_of(self, command: Command) -> int:
        """`ONE_BANK`, `SAME_BANKS`, `WHOLE_RANK` or `BANK_PAIR`.

        Raises:
            InputError: the standard has no such level, or commands cannot have this scope.
        """
        bank = self.levels[-1]
        scopes = (bank, f"same-{bank}", self.levels[1], f"{bank}-pair")
        if command.scope not in scopes:
            problem = f"{command.name} has the scope {command.scope}; it may be {', '.join(scopes)}"
            raise InputError(problem, "range", key=self.name)
        return scopes.index(command.scope)
