"""From sizes and clocks to the names of `ndpsim.spec`: organisation, speed preset, and what differs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ndpsim.importers.sheet import Place, Sheet
from ndpsim.spec import Organisation, Standard, resolve

#: What makes an organisation.
SIZES = ("dq", "bankgroups", "banks_per_group", "rows", "columns")

Sizes = Mapping[str, tuple[int, Place]]


@dataclass(frozen=True)
class Clocks:
    """A timing as the imported file has it, and more words for its source."""

    value: int
    place: Place
    said: str = ""


def rates(standard: Standard) -> list[int]:
    """The data rates of the standard's speed presets, in MT/s."""
    return sorted({speed["rate"] for speed in standard.speeds.values()})


def check_width(standard: Standard, bits: int | None, place: Place) -> None:
    """Make sure that a channel has the data bits it has here; None says nothing.

    Raises:
        InputError: it has others.
    """
    if bits not in (None, standard.channel_bits):
        problem = (
            f"{bits} is not supported; a channel of {standard.name} has {standard.channel_bits} data bits"
        )
        raise place.error(problem, code="unsupported")


def match_organisation(standard: Standard, sizes: Sizes) -> str:
    """The organisation of exactly these `SIZES`, or more of its fields.

    Raises:
        InputError: there is none; names the sizes in which the most similar differs.
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


def match_speed(standard: Standard, org: str, rate: int, clocks: Mapping[str, Clocks]) -> str:
    """The speed preset of `rate` from which `clocks` differ in the fewest places."""

    def distance(timing: str) -> int:
        timings = resolve(standard.name, org, timing).timings
        return sum(timings[name] != wanted.value for name, wanted in clocks.items())

    return min((t for t in standard.speeds if standard.speeds[t]["rate"] == rate), key=distance)


def put_dram(
    sheet: Sheet,
    standard: tuple[Standard, Place],
    org: tuple[str, Place, str],
    timing: tuple[str, Place, str],
    clocks: Mapping[str, Clocks],
) -> None:
    """State standard, organisation and speed, each with its place, and the clocks that the speed has not."""
    sheet.put("dram.standard", standard[0].name, standard[1])
    sheet.put("dram.org", *org)
    sheet.put("dram.timing", *timing)
    preset = resolve(standard[0].name, org[0], timing[0]).timings
    for name, wanted in clocks.items():
        if preset[name] != wanted.value:
            sheet.put(f"dram.overrides.{name}", wanted.value, wanted.place, wanted.said)
