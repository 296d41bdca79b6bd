"""All timings of a preset, under both sets of rules, with their sources."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple

from ndpsim.base.arguments import choice
from ndpsim.base.choices import RULES
from ndpsim.base.errors import InputError
from ndpsim.base.units import dram_period_ps
from ndpsim.dram.spec.device import resolve
from ndpsim.dram.spec.overrides import density_words
from ndpsim.dram.spec.pages import standards
from ndpsim.dram.spec.standard import Organisation, Standard

_NO_CLOCKS = ("rate", "tCK_ps")
_Pair = tuple[int | None, int | None]


class TimingRow(NamedTuple):
    """A timing of a preset.

    Attributes:
        name: its name.
        of: the devices that it is for, if others have another value: "x4, x8", "16Gb", or organisations.
        standard, reference: its clocks under both sets of rules; None: the preset does not exist there.
        ns: the clocks under the rules of the standard, else of the reference, in ns.
        source: the clause, table or data sheet of the value under `standard`; empty if the page names none.
    """

    name: str
    of: str
    standard: int | None
    reference: int | None
    ns: float
    source: str


def standard_of(preset: str, field: str, key: str, what: str) -> Standard:
    """The standard with a preset ("speeds", "organisations") under any rules.

    Raises:
        InputError: none has it.
    """
    known = {
        name: standard
        for standard in standards().values()
        for rules in reversed(RULES)
        for name in getattr(standard.under(rules), field)
    }
    return known[choice(preset, key, known, what)]


def timing_rows(standard: Standard, preset: str, org: str | None, rules: Sequence[str]) -> list[TimingRow]:
    """The timings of a speed preset, for one organisation or for all.

    Args:
        rules: the sets of rules, of those that have the preset.

    Raises:
        InputError: the organisation is unknown, or the standard states no timing for it.
    """
    clocks = {kind: _by_org(standard, preset, org, kind) for kind in rules}
    page = standard.under(rules[0])
    chips = {name: page.organisations[name] for name in clocks[rules[0]]}
    names = dict.fromkeys(name for by_org in clocks.values() for known in by_org.values() for name in known)
    rows = []
    for name in names:
        if name in _NO_CLOCKS:
            continue
        values = [{org: clocks.get(kind, {}).get(org, {}).get(name) for org in chips} for kind in RULES]
        pairs = {org: (values[0][org], values[1][org]) for org in chips}
        for devices, pair in _grouped(chips, pairs):
            if pair != (None, None):
                rows.append(_row(standard, preset, name, devices, pair))
    return rows


def _row(standard: Standard, preset: str, name: str, devices: str, pair: _Pair) -> TimingRow:
    page = standard if pair[0] is not None else standard.under("reference")
    value = next(clocks for clocks in pair if clocks is not None)
    period = dram_period_ps(page.speeds[preset]["rate"], page.transfers_per_clock)
    ns = float(Fraction(value) * period / 1000)
    return TimingRow(name, devices, *pair, ns, standard.source_of(name, preset))


def _by_org(standard: Standard, preset: str, org: str | None, rules: str) -> dict[str, Mapping[str, int]]:
    """The timings of each organisation for which the standard states all of them."""
    page = standard.under(rules)
    if org is not None:
        return {org: resolve(standard.name, org, preset, rules=rules).timings}
    found, problem = {}, None
    for name in page.organisations:
        try:
            found[name] = resolve(standard.name, name, preset, rules=rules).timings
        except InputError as error:
            problem = error
    if not found and problem is not None:
        raise problem
    return found


def _grouped(chips: Mapping[str, Organisation], pairs: Mapping[str, _Pair]) -> Iterable[tuple[str, _Pair]]:
    """The different values, each with the devices that have it, in the fewest words that tell them apart."""
    if len(set(pairs.values())) <= 1:
        return [("", pair) for pair in set(pairs.values())]
    namings: tuple[Callable[[str], str], ...] = (
        lambda org: f"x{chips[org].dq}",
        lambda org: density_words(chips[org].density_mb),
        lambda org: density_words(chips[org].density_mb // chips[org].stacks) + " a stack",
        lambda org: f"{chips[org].stacks} stack{'s' * (chips[org].stacks > 1)}",
        lambda org: org,
    )
    for words in namings:
        by_words: dict[str, set[_Pair]] = {}
        for org, pair in pairs.items():
            by_words.setdefault(words(org), set()).add(pair)
        if all(len(values) == 1 for values in by_words.values()):
            break
    devices: dict[_Pair, list[str]] = {}
    for word, values in by_words.items():
        devices.setdefault(next(iter(values)), []).append(word)
    return [(", ".join(words), pair) for pair, words in devices.items()]
