"""Changes of a preset: sizes of its chips, and timings in clocks or ns."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any, NamedTuple

from ndpsim.base.arguments import whole_number
from ndpsim.base.errors import InputError, shown, unknown
from ndpsim.base.units import dram_period_ps
from ndpsim.dram.spec.standard import Organisation, Standard, latency_terms, to_clocks

MAX_CLOCKS = 1_000_000
#: Sizes of a chip that overrides change: bank groups and banks are those of a rank, or of one of its stacks.
SIZES = ("bankgroups", "banks_per_group", "banks", "rows", "columns", "width", "density")
_LARGEST = 1 << 24
_TIME = re.compile(r"\s*([0-9]{1,9}(?:\.[0-9]{1,9})?)\s*(ps|ns|us)\s*", re.ASCII)
_PS = {"ps": 1, "ns": 1000, "us": 1_000_000}
_DENSITY = re.compile(r"\s*([1-9][0-9]{0,8})\s*(Mb|Gb)\s*", re.ASCII)
# JEDEC's names of timings that pages call otherwise, without the first letter and underscores, in lower case.
_OTHER_NAMES = {
    "aa": ("cl",),
    "rl": ("cl",),
    "wl": ("cwl",),
    "rfc1": ("rfc",),
    "rfcab": ("rfc",),
    "rfc": ("rfcab",),
    "rppb": ("rp",),
    "rpab": ("rp",),
    "rbtp": ("rtp",),
}
_ROUNDED = {"up": "rounded up", "down": "rounded down", "JESD79-5C": "rounded by JESD79-5C, 13.2"}


class Overrides(NamedTuple):
    """Overrides, by what they change."""

    sizes: dict[str, Any]
    timings: dict[str, Any]


def split_overrides(overrides: Mapping[str, Any]) -> Overrides:
    """The overrides of sizes, and those of timings."""
    sizes = {name: value for name, value in overrides.items() if name in SIZES}
    return Overrides(sizes, {name: value for name, value in overrides.items() if name not in SIZES})


# Sizes


def changed_organisation(standard: Standard, base: Organisation, sizes: Mapping[str, Any]) -> Organisation:
    """The organisation with other sizes; a density that is not given follows from them.

    Raises:
        InputError: a size is no power of two, does not fit the channel, or the density is not the product.
    """
    new = {name: _size(value, name) for name, value in sizes.items() if name != "density"}
    organisation = replace(base, **_banks(base, new))
    organisation = replace(
        organisation,
        rows=new.get("rows", base.rows),
        columns=new.get("columns", base.columns),
        dq=new.get("width", base.dq),
    )
    for name, size, unit in (("width", "dq", "channel_bits"), ("columns", "columns", "prefetch")):
        whole, part = getattr(standard, unit), getattr(organisation, size)
        if name in new and (whole % part if name == "width" else part % whole):
            need = (
                f"divide the {whole} data pins of a channel" if name == "width" else f"hold bursts of {whole}"
            )
            raise InputError(f"{part} does not {need}", "range", key=name)
    density = Fraction(base.density_mb * _product(organisation), _product(base))
    if "density" in sizes:
        _check_density(sizes["density"], density, organisation)
    if density.denominator > 1:
        raise InputError(f"a chip of {_product(organisation)} bits is less than 1 Mb", "range", key="rows")
    return replace(organisation, density_mb=int(density))


def _size(value: Any, name: str) -> int:
    text = value.strip().removeprefix("x") if name == "width" and isinstance(value, str) else value
    size = int(text) if isinstance(text, str) and re.fullmatch(r"[0-9]{1,9}", text, re.ASCII) else text
    size = whole_number(size, name, 1, _LARGEST)
    if size & (size - 1):
        raise InputError(f"{size} is not a power of two, as addresses need", "range", key=name)
    return size


def _banks(base: Organisation, new: Mapping[str, int]) -> dict[str, int]:
    """Bank groups and banks of a group, whose product is `banks`."""
    groups, per_group = new.get("bankgroups"), new.get("banks_per_group")
    banks = new.get("banks")
    if banks is not None:
        if groups is None and per_group is not None:
            groups = banks // per_group
        groups = base.bankgroups if groups is None else groups
        per_group = banks // groups if per_group is None else per_group
        if groups * per_group != banks:
            problem = (
                f"{banks} is not the product of {groups} bank groups and {max(per_group, 1)} banks in each"
            )
            raise InputError(f"{problem}; give bankgroups or banks_per_group, too", "conflict", key="banks")
    return {
        "bankgroups": base.bankgroups if groups is None else groups,
        "banks_per_group": base.banks_per_group if per_group is None else per_group,
    }


def _product(chip: Organisation) -> int:
    """The bits of a chip, or of the part of it that a channel has."""
    return chip.stacks * chip.bankgroups * chip.banks_per_group * chip.rows * chip.columns * chip.dq


def _check_density(value: Any, made: Fraction, chip: Organisation) -> None:
    match = _DENSITY.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise InputError(f"{shown(value)} is not a density, for instance 16Gb", "form", key="density")
    density = int(match[1]) * (1024 if match[2] == "Gb" else 1)
    if density != made:
        banks = f"{chip.bankgroups} bank groups x {chip.banks_per_group} banks"
        if chip.stacks > 1:
            banks = f"{chip.stacks} stacks x {banks}"
        product = f"{banks} x {chip.rows} rows x {chip.columns} columns x {chip.dq} bits"
        fitting = Fraction(chip.rows * density) / made
        hint = f"; with rows={fitting} it is" if fitting.denominator == 1 and _is_power(int(fitting)) else ""
        problem = f"{value.strip()} is not the product of {product}, {density_words(made)}{hint}"
        raise InputError(problem, "conflict", key="density")


def _is_power(number: int) -> bool:
    return number & (number - 1) == 0


def density_words(megabits: int | Fraction) -> str:
    """A density in Gb or Mb: ``16Gb``."""
    return f"{int(megabits // 1024)}Gb" if megabits % 1024 == 0 else f"{float(megabits):g}Mb"


# Timings


def timing_name(written: str, known: Collection[str]) -> str | None:
    """The timing that a name means: itself, or JEDEC's name in ns ("tCCD_L_WR" for nCCDL_WR); None: none."""
    if written in known:
        return written
    if not written.startswith("t"):
        return None
    folded = {name[1:].replace("_", "").lower(): name for name in known if name.startswith("n")}
    word = written[1:].replace("_", "").lower()
    for alias in (word, *_OTHER_NAMES.get(word, ())):
        if alias in folded:
            return folded[alias]
    return None


class Override(NamedTuple):
    """A timing that an override gives: its name, its clocks, and how a time was rounded, or nothing."""

    name: str
    clocks: int
    rounded: str


def overridden_timing(
    standard: Standard, timings: Mapping[str, int], known: Collection[str], written: str, value: Any
) -> Override:
    """The clocks of an override.

    Raises:
        InputError: the name is unknown, or the value is neither clocks nor a time.
    """
    name = timing_name(written, known)
    if name is None:
        names = [f"t{timing[1:]}" if written.startswith("t") else timing for timing in known]
        raise unknown(written, [*names, *SIZES], "timing or size", key=written)
    match = _TIME.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        if written != name:
            problem = f"{shown(value)} is not a time, for instance 14.16ns; {name} takes clocks"
            raise InputError(problem, "form", key=written)
        if isinstance(value, str):
            problem = f"{shown(value)} is neither a whole number of clocks nor a time such as 14.16ns"
            raise InputError(problem, "type", key=written)
        return Override(name, whole_number(value, written, 1, MAX_CLOCKS, " of clocks"), "")
    rounding = rounding_of(standard, name)
    period: int | Fraction = timings["tCK_ps"]
    if rounding != "JESD79-5C":
        period = dram_period_ps(timings["rate"], standard.transfers_per_clock)
    clocks = max(1, to_clocks(Fraction(match[1]) * _PS[match[2]], period, rounding))
    whole_number(clocks, written, 1, MAX_CLOCKS, " of clocks")
    return Override(name, clocks, f"{match[1]} {match[2]} -> {clocks} clocks, {_ROUNDED[rounding]}")


def rounding_of(standard: Standard, name: str) -> str:
    """How a time becomes clocks: that of a page's derivation, else that of the standard; maxima go down."""
    stated = getattr(standard.derived.get(name), "rounding", "up")
    if stated != "up":
        return str(stated)
    commands = standard.commands
    most = {term for command in commands if command.refreshes for _, term in latency_terms(command.interval)}
    most |= {term for command in commands for _, term in latency_terms(command.complete_within)}
    return "down" if name in most else standard.rounding


def check_together(timings: Mapping[str, int], changed: Mapping[str, str]) -> None:
    """Check that changed timings agree with the others; `changed`: as the user wrote it, by timing.

    Raises:
        InputError: a row would be closed and opened again sooner than it may.
    """
    key = next((changed[name] for name in ("nRC", "nRAS", "nRP") if name in changed), None)
    least = timings["nRAS"] + timings["nRP"]
    if key is not None and timings["nRC"] < least - 1:  # each of the three may be rounded
        sums = f"nRAS + nRP is {timings['nRAS']} + {timings['nRP']} = {least} clocks, nRC is {timings['nRC']}"
        raise InputError(f"contradicts the others: {sums}; set nRC to {least} or more", "conflict", key=key)
