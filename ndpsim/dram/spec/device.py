"""Resolves a standard, an organisation, a speed and overrides to a `Device`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

from ndpsim.base.annotated import Annotated
from ndpsim.base.arguments import choice, text, whole_number
from ndpsim.base.choices import RULES
from ndpsim.base.errors import InputError, shown
from ndpsim.base.reported import text_table
from ndpsim.base.units import dram_period_ps, format_bytes, plain_number
from ndpsim.dram.spec.overrides import (
    Override,
    changed_organisation,
    check_together,
    density_words,
    overridden_timing,
    split_overrides,
)
from ndpsim.dram.spec.pages import standards
from ndpsim.dram.spec.standard import (
    ACTIVATE,
    PRECHARGE,
    READ,
    WRITE_AP,
    Organisation,
    Standard,
    latency_terms,
)

_MAX_RANKS = 64
_FIXED = ("rate", "tCK_ps")  # these define a speed preset, so changing them means another preset


@dataclass(frozen=True, repr=False)
class Device(Annotated):
    """A channel of DRAM, resolved: every timing in clocks, every size a number.

    Attributes:
        standard, org, timing: the standard, and the names of its presets.
        ranks: number of ranks.
        organisation: the sizes of a chip.
        timings: all timings by name (nCL, nRFC, ...) in clocks, `rate` in MT/s, and `tCK_ps`. JEDEC rounds
            tCK down to whole ps to convert times to clocks; `timing_clock_ps` is the exact period.
        sources: the source of each timing: "preset ...", "derived ..." or "override".
        rounded: how an override in ns became clocks, by timing, in words.
        rules: "standard" or "reference".
    """

    standard: Standard
    org: str
    timing: str
    ranks: int
    organisation: Organisation
    timings: Mapping[str, int]
    sources: Mapping[str, str]
    rounded: Mapping[str, str]
    rules: str = "standard"

    @property
    def parts(self) -> dict[str, int]:
        """Ranks of the channel, or its pseudo-channels, by their names in results."""
        if self.organisation.ranks > 1:
            return {"ranks": 1, f"{self.standard.levels[1]}s": self.ranks}
        return {"ranks": self.ranks}

    @property
    def bankgroups(self) -> int:
        """Number of bank groups in all stacks of a rank."""
        return self.stacks * self.organisation.bankgroups

    @property
    def stacks(self) -> int:
        """Stacks in a rank; 1 if the standard has no such level."""
        return self.organisation.stacks

    @property
    def groups_per_stack(self) -> int:
        """Bank groups in a stack of a rank."""
        return self.organisation.bankgroups

    @property
    def banks_per_group(self) -> int:
        """Banks in a bank group."""
        return self.organisation.banks_per_group

    @property
    def banks_per_rank(self) -> int:
        """Banks in a rank."""
        return self.bankgroups * self.banks_per_group

    @property
    def banks(self) -> int:
        """Banks on the channel, over all ranks."""
        return self.ranks * self.banks_per_rank

    @property
    def rows(self) -> int:
        """Rows in a bank."""
        return self.organisation.rows

    @property
    def bursts_per_row(self) -> int:
        """Bursts in an open row: the columns of a command trace."""
        return self.organisation.columns // self.standard.prefetch

    @property
    def burst_bytes(self) -> int:
        """Bytes of data that one read or write moves over the channel."""
        return self.standard.payload_bytes or self.standard.prefetch * self.standard.channel_bits // 8

    @property
    def devices_per_rank(self) -> int:
        """DRAM chips side by side in a rank of this channel (data only, no ECC)."""
        return self.standard.channel_bits // self.organisation.dq

    @property
    def rank_bytes(self) -> int:
        """Capacity of one rank of this channel in bytes."""
        return self.banks_per_rank * self.rows * self.bursts_per_row * self.burst_bytes

    @property
    def capacity_bytes(self) -> int:
        """Capacity of the channel in bytes."""
        return self.ranks * self.rank_bytes

    @property
    def timing_clock_ps(self) -> Fraction:
        """Exact period in ps of the clock that timings count (tCK)."""
        return dram_period_ps(self.timings["rate"], self.standard.transfers_per_clock)

    @property
    def clock_ps(self) -> Fraction:
        """Exact period in ps of the clock that controllers and command traces count, a tick of tCK."""
        return self.timing_clock_ps / self.standard.ticks_per_clock

    def clocks(self, latency: str) -> int:
        """The latency of a rule, or a timing, in clocks of controllers.

        Raises:
            InputError: it is no sum of timings.
        """
        try:
            return _sum_of(latency, self.timings) * self.standard.ticks_per_clock
        except Exception:  # an object's own error, too
            problem = f"{shown(latency)} is no sum of timings of {self.standard.name}, such as 'nCL + nBL'"
            raise InputError(problem, "unknown-name", key="latency") from None

    @property
    def burst_clocks(self) -> int:
        """Clocks of a burst on the data bus."""
        return self.clocks(self.standard.burst)

    @property
    def read_latency(self) -> int:
        """Clocks from a read to the first beat of its data (nCL)."""
        return self.clocks(self.standard.read_latency)

    @property
    def write_latency(self) -> int:
        """Clocks from a write to the first beat of its data (nCWL)."""
        return self.clocks(self.standard.write_latency)

    @property
    def read_clocks(self) -> int:
        """Clocks from a read to the last beat of its data."""
        return self.read_latency + self.burst_clocks

    @property
    def reported_timings(self) -> dict[str, int | float]:
        """`timings` for results, with an exact `tCK_ps`, not rounded down."""
        return {**self.timings, "tCK_ps": plain_number(self.timing_clock_ps)}

    @property
    def data_buses(self) -> int:
        """Data buses of the channel: one, or one for each of its ranks."""
        return self.ranks if self.standard.own_data_buses else 1

    @property
    def data_pins(self) -> int:
        """Data pins of the channel, on all its data buses."""
        return self.data_buses * self.standard.channel_bits

    @property
    def open_bursts(self) -> int:
        """Bursts in the rows that are read together: in each rank, one of every bank group of a stack."""
        return self.ranks * self.groups_per_stack * self.bursts_per_row

    @property
    def peak_gbps(self) -> float:
        """Limit of the data buses, in GB/s (1e9 bytes a second)."""
        moved = self.data_buses * self.burst_bytes
        return float(Fraction(moved, self.burst_clocks) / self.clock_ps * 1000)

    def __repr__(self) -> str:
        timings = ("nCL", "nRL", "nRCD", "nRCDRD", "nRP", "nRAS", "nRC", "nRFC", "nRFCab", "nREFI")
        known = [name for name in timings if name in self.timings]
        overrides = [name for name, source in self.sources.items() if source == "override"]
        clock = f"{float(self.timing_clock_ps):.6g} ps, {self.timings['rate']} MT/s"
        rows = {
            list(self.parts)[-1]: f"{self.ranks} of {format_bytes(self.rank_bytes)}",
            "banks": f"{self.bankgroups} groups of {self.banks_per_group} in a rank, {self.rows} rows each",
            "row": f"{self.bursts_per_row} bursts of {self.burst_bytes} bytes",
            "clock": f"{clock}, {self.peak_gbps:.2f} GB/s",
            "timings": ", ".join(f"{name} {self.timings[name]}" for name in known) + " clocks, ...",
            "overrides": ", ".join(overrides) or "none",
        }
        title = f"Device: {self.standard.name} channel of {self.org} at {self.timing}"
        return text_table(title, rows.items())


def _sum_of(latency: str, timings: Mapping[str, int]) -> int:
    terms = latency_terms(latency)
    return sum(sign * (term if isinstance(term, int) else timings[term]) for sign, term in terms)


def derived_timings(
    standard: Standard, org: str, timing: str, organisation: Organisation | None = None
) -> dict[str, int | str | None]:
    """The derived timings of presets, or of another organisation than `org`.

    None: the standard's page states none. A text: a sum of other timings.
    """
    speed, transfers = standard.speeds[timing], standard.transfers_per_clock
    rate, chip = speed["rate"], standard.organisations[org] if organisation is None else organisation
    tck_ps = dram_period_ps(rate, transfers) if standard.derives_exactly else speed["tCK_ps"]
    arguments = chip, rate, tck_ps, transfers
    return {name: derivation.clocks(*arguments) for name, derivation in standard.derived.items()}


class _Timings(NamedTuple):
    clocks: dict[str, int]
    sources: dict[str, str]
    rounded: dict[str, str]


def _overrides(standard: Standard, timing: str, overrides: Mapping[str, int | str]) -> dict[str, Override]:
    """The overrides by the name of the timing in clocks; `name` is the name that the user wrote."""
    speed = standard.speeds[timing]
    known = (set(speed) | set(standard.derived)) - set(_FIXED)
    overridden: dict[str, Override] = {}
    for name, value in overrides.items():
        if name in (*_FIXED, "tCK"):
            problem = "is fixed by the speed preset; choose another timing preset"
            raise InputError(problem, "conflict", key=name)
        override = overridden_timing(standard, speed, known, name, value)
        if override.name in overridden:
            raise InputError(f"gives {override.name} again", "twice", key=name)
        overridden[override.name] = override._replace(name=name)
    return overridden


def _timings(
    standard: Standard, org: str, organisation: Organisation, timing: str, overrides: Mapping[str, int | str]
) -> _Timings:
    speed, overridden = dict(standard.speeds[timing]), _overrides(standard, timing, overrides)
    sources, missing = dict.fromkeys(speed, f"preset {timing}"), []
    sums: dict[str, str] = {}
    for name, clocks in derived_timings(standard, org, timing, organisation).items():
        if clocks is None:
            missing += [name] * (name not in overridden)
            continue
        sources[name] = f"derived for {org} at {timing}"
        if isinstance(clocks, str):
            sums[name] = clocks
        else:
            speed[name] = clocks
    if missing:
        _refuse_missing(standard, org, organisation, timing, missing)
    speed |= {name: override.clocks for name, override in overridden.items()}
    sources |= dict.fromkeys(overridden, "override")
    for name, latency in sums.items():
        if name not in overridden:
            multiple = getattr(standard.derived[name], "multiple", 1)
            speed[name] = -(-_sum_of(latency, speed) // multiple) * multiple
    check_together(speed, {name: override.name for name, override in overridden.items()})
    rounded = {name: override.rounded for name, override in overridden.items() if override.rounded}
    return _Timings({name: speed[name] for name in sources}, sources, rounded)


def _refuse_missing(
    standard: Standard, org: str, organisation: Organisation, timing: str, missing: list[str]
) -> None:
    device = f"{density_words(organisation.density_mb)} x{organisation.dq} ({org})"
    reason = f" ({standard.cited[missing[0]]})" if missing[0] in standard.cited else ""
    problem = f"{standard.name} states no {', '.join(missing)} for {device} at {timing}{reason}; override"
    forms = f"{missing[0]}=CLOCKS or t{missing[0][1:]}=TIMEns"
    them = "it" if len(missing) == 1 else "them"
    raise InputError(f"{problem} {them}: {forms}", "missing", key=missing[0])


_PRESETS = {"org": ("organisations", "organisation"), "timing": ("speeds", "timing preset")}


def _preset(standard: Standard, rules: str, name: str, key: str) -> str:
    """The name of a preset, which the standard has under these rules."""
    field, what = _PRESETS[key]
    if isinstance(name, str) and name in standard.under(rules).refused:
        raise InputError(f"{name}: {standard.under(rules).refused[name]}", "unsupported", key=key)
    known = getattr(standard.under(rules), field)
    for named in RULES:
        if isinstance(name, str) and name not in known and name in getattr(standard.under(named), field):
            problem = f"{name} is a preset of --rules {named}, not of --rules {rules}"
            raise InputError(problem, "unsupported", key=key)
    return choice(name, key, known, f"{standard.name} {what}")


def resolve(
    standard: str,
    org: str,
    timing: str,
    ranks: int = 1,
    overrides: Mapping[str, int | str] | None = None,
    rules: str = "standard",
) -> Device:
    """Resolve names to a `Device`.

    >>> ndpsim.resolve("DDR5", "DDR5_16Gb_x8", "DDR5_4800B").clocks("nRCD")
    39

    Args:
        standard: "DDR4", "DDR5", ...
        org: an organisation preset, for instance "DDR5_16Gb_x8".
        timing: a speed preset, for instance "DDR5_4800AN".
        ranks: ranks on the channel, 1 to 64.
        overrides: clocks ("nCL": 40) and times ("tRCD": "14.16ns"), over preset and derived values; and
            sizes of a chip: "bankgroups", "banks_per_group", "banks", "rows", "columns", "width", "density"
            ("16Gb"). Bank groups and banks are those of a rank or stack. Derived timings follow the sizes.
        rules: "standard", or "reference": those of Ramulator 2.1 where it departs from the standard.

    Raises:
        InputError: a name is unknown, a number is out of range, or the standard leaves a value open.
    """
    page = standards()[choice(standard, "standard", standards(), "standard")]
    chosen = page.under(choice(rules, "rules", RULES, "set of rules"))
    org = _preset(page, rules, org, "org")
    timing = _preset(page, rules, timing, "timing")
    ranks = whole_number(ranks, "ranks", 1, _MAX_RANKS, " of ranks")
    if chosen.organisations[org].ranks:
        if ranks > 1:
            raise InputError(f"{ranks} is not 1: a channel of {standard} has no ranks", "range", key="ranks")
        ranks = chosen.organisations[org].ranks
    if overrides is not None and not isinstance(overrides, Mapping):
        raise InputError(f"{shown(overrides)} is not a mapping of timings to clocks", "type", key="overrides")
    changes = split_overrides({text(name, "overrides"): value for name, value in (overrides or {}).items()})
    base = organisation = chosen.organisations[org]
    if changes.sizes:
        organisation = changed_organisation(chosen, base, changes.sizes)
        sizes = ", ".join(f"{name}={str(value).strip()}" for name, value in sorted(changes.sizes.items()))
        org = f"{org} with {sizes}"
    try:
        timings, sources, rounded = _timings(chosen, org, organisation, timing, changes.timings)
    except InputError as error:
        if error.code != "missing" or organisation.density_mb == base.density_mb or "rows" in changes.sizes:
            raise
        rows = organisation.rows * base.density_mb // organisation.density_mb
        problem = f"{error.problem}; or keep {density_words(base.density_mb)} by rows={rows}"
        raise InputError(problem, "missing", key=error.key) from None
    return Device(chosen, org, timing, ranks, organisation, timings, sources, rounded, rules)


class RowTime(NamedTuple):
    """The time from a row's activation to another command, and the sum of timings that determines it."""

    clocks: int
    latency: str


def row_times(device: Device) -> tuple[RowTime, RowTime]:
    """The times from activation to the first column command of a row, and to its earliest precharge.

    If an activation has two halves, the times count from the half that the rules name.
    """
    standard = device.standard
    cycles = {command.name: command.cycles for command in standard.commands}
    first = standard.by_number[ACTIVATE]
    opening, closing = {first.name, first.completed_by}, {standard.names[PRECHARGE]}
    column = set(standard.names[READ : WRITE_AP + 1])

    def ready_for(kinds: set[str]) -> RowTime:
        times = [
            RowTime(device.clocks(rule.latency) + cycles[before] - cycles[after], rule.latency)
            for rule in standard.rules
            if rule.level == standard.levels[-1]
            for before in opening.intersection(rule.previous)
            for after in kinds.intersection(rule.next)
        ]
        return max(times, default=RowTime(0, ""))

    return ready_for(column), ready_for(closing)
