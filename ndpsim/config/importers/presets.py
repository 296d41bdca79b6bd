"""Finds the organisation and speed preset of `ndpsim.dram.spec` for given sizes and clocks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ndpsim.base.choices import RULES
from ndpsim.config.importers.sheet import Place, Sheet
from ndpsim.dram.spec import Organisation, Standard, resolve
from ndpsim.dram.spec.device import derived_timings

#: The sizes of an organisation.
SIZES = ("dq", "bankgroups", "banks_per_group", "rows", "columns")

Sizes = Mapping[str, tuple[int, Place]]


@dataclass(frozen=True)
class Clocks:
    """A timing of the imported file, and further words for its source."""

    value: int
    place: Place
    said: str = ""


def rates(standard: Standard) -> list[int]:
    """The data rates of the standard's speed presets, in MT/s."""
    return sorted({speed["rate"] for speed in standard.speeds.values()})


def check_width(standard: Standard, bits: int | None, place: Place) -> None:
    """Make sure that a channel has ndpsim's number of data bits; None: not given.

    Raises:
        InputError: it has another number.
    """
    if bits not in (None, standard.channel_bits):
        problem = (
            f"{bits} is not supported; a channel of {standard.name} has {standard.channel_bits} data bits"
        )
        raise place.error(problem, code="unsupported")


def match_organisation(standard: Standard, sizes: Sizes) -> str:
    """The organisation whose fields have exactly these `sizes`.

    Raises:
        InputError: there is none; the message names the sizes in which the most similar one differs.
    """

    def differing(organisation: Organisation) -> list[str]:
        return [size for size in sizes if getattr(organisation, size) != sizes[size][0]]

    org = min(standard.organisations, key=lambda name: len(differing(standard.organisations[name])))
    nearest = standard.organisations[org]
    wrong = differing(nearest)
    if wrong:
        words = [f"{size} ({getattr(nearest, size)}, not {sizes[size][0]})" for size in wrong]
        raise sizes[wrong[0]][1].error(
            f"no {standard.name} organisation has these sizes; {org} differs in {', '.join(words)}",
            code="conflict",
        )
    return org


def stated_timings(standard: Standard, org: str, timing: str, rules: str = "standard") -> dict[str, int]:
    """The timings of presets, without those that the standard leaves open for this organisation."""
    derived = derived_timings(standard.under(rules), org, timing)
    unstated = {name: 1 for name, clocks in derived.items() if clocks is None}
    known = resolve(standard.name, org, timing, overrides=unstated, rules=rules).timings
    return {name: clocks for name, clocks in known.items() if name not in unstated}


def departures(standard: Standard, org: str, timing: str) -> dict[str, int]:
    """The timings of a preset in which Ramulator departs from the standard; none if it has no such preset."""
    reference = standard.under("reference")
    if org not in reference.organisations or timing not in reference.speeds:
        return {}
    theirs, ours = (stated_timings(standard, org, timing, rules) for rules in reversed(RULES))
    return {name: theirs[name] for name in theirs if name in ours and theirs[name] != ours[name]}


def match_speed(standard: Standard, org: str, rate: int, clocks: Mapping[str, Clocks]) -> str:
    """The speed preset of `rate` with the fewest differences from `clocks`; among equals, Ramulator's."""
    theirs = standard.under("reference").speeds

    def distance(timing: str) -> tuple[int, bool]:
        timings = stated_timings(standard, org, timing)
        differing = sum(timings.get(name) != wanted.value for name, wanted in clocks.items())
        return differing, timing not in theirs

    return min((t for t in standard.speeds if standard.speeds[t]["rate"] == rate), key=distance)


def put_dram(
    sheet: Sheet,
    standard: tuple[Standard, Place],
    org: tuple[str, Place, str],
    timing: tuple[str, Place, str],
    clocks: Mapping[str, Clocks],
) -> None:
    """Put standard, organisation and speed on the sheet, and the clocks that differ from the speed preset."""
    sheet.put("dram.standard", standard[0].name, standard[1])
    sheet.put("dram.org", *org)
    sheet.put("dram.timing", *timing)
    preset = stated_timings(standard[0], org[0], timing[0])
    for name, wanted in clocks.items():
        if preset.get(name) != wanted.value:
            sheet.put(f"dram.overrides.{name}", wanted.value, wanted.place, wanted.said)
    # A file with tRP or tRAS alone: the preset's tRC may be too short for it.
    timings = {**preset, **{name: wanted.value for name, wanted in clocks.items()}}
    row_cycle, stated = timings["nRAS"] + timings["nRP"], clocks.get("nRP") or clocks.get("nRAS")
    if "nRC" not in clocks and stated is not None and timings["nRC"] < row_cycle - 1:
        sheet.put("dram.overrides.nRC", row_cycle, stated.place, ", nRAS + nRP")
