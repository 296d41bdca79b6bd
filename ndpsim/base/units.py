"""Conversions of time and size, with stated rounding.

A clock's period is a `Fraction` of a picosecond, so that a DDR5-4800 clock is exactly 1250/3 ps, without
errors even for a billion clocks. Kernels count *ticks*, the longest time of which every used clock is a whole
multiple.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import cached_property, lru_cache


@lru_cache(maxsize=1024)
def _decimal(text: str) -> Fraction:
    return Fraction(Decimal(text))


def exact(value: int | float | str | Fraction) -> Fraction:
    """The exact value of `value` in decimal: 0.1 becomes 1/10, not its binary neighbour."""
    return value if isinstance(value, Fraction) else _decimal(str(value))


def dram_period_ps(rate_mts: int, transfers_per_clock: int) -> Fraction:
    """Period of the DRAM clock in ps at `rate_mts` mega-transfers a second on each pin."""
    return Fraction(transfers_per_clock * 1_000_000, rate_mts)


def plain_number(value: Fraction) -> int | float:
    """`value` for JSON: a whole number if it is one, otherwise the nearest float."""
    return int(value) if value.denominator == 1 else float(value)


def in_decimals(value: Fraction) -> str:
    """The exact `value` as text: finite decimals, 312.5, or a fraction, 1250/3 = 416.667."""
    plain = f"{plain_number(value):.12g}"
    return plain if exact(plain) == value else f"{value} = {float(value):.6g}"


def frequency_period_ps(clock_mhz: int | float | str | Fraction) -> Fraction:
    """Period in ps of a clock of `clock_mhz` MHz."""
    return 1_000_000 / exact(clock_mhz)


@dataclass(frozen=True)
class Timebase:
    """Several clocks counted in one unit of time."""

    tick_ps: Fraction
    ticks: tuple[int, ...]  # ticks in a period of each clock

    @cached_property
    def _tick_ns(self) -> tuple[int, int]:
        """Numerator and denominator."""
        return self.tick_ps.numerator, 1000 * self.tick_ps.denominator

    def to_ns(self, ticks: int) -> float:
        """Nanoseconds in `ticks`, rounded once, to the nearest double."""
        numerator, denominator = self._tick_ns
        return int(ticks) * numerator / denominator


def common_ticks(*periods_ps: Fraction) -> Timebase:
    """The longest tick that divides every period, and the periods in it."""
    denominator = math.lcm(*(period.denominator for period in periods_ps))
    whole = [int(period * denominator) for period in periods_ps]
    divisor = math.gcd(*whole)
    return Timebase(Fraction(divisor, denominator), tuple(period // divisor for period in whole))


TIMES = "\N{MULTIPLICATION SIGN}"
PLUS_MINUS = "\N{PLUS-MINUS SIGN}"


@dataclass(frozen=True)
class Scale:
    """A value divided by `divisor` is in `unit`."""

    unit: str
    divisor: float = 1.0


@dataclass(frozen=True)
class Unit:
    """The display of values of a unit: in the largest scale in which they are at least 1.

    Attributes:
        scales: the smallest first.
        decimals: digits after the point; None: four significant digits.
    """

    scales: tuple[Scale, ...]
    decimals: int | None = None


def _thousands(first: float, *names: str) -> tuple[Scale, ...]:
    return tuple(Scale(name, first * 1000.0**power) for power, name in enumerate(names))


_SIZES = tuple(Scale(name, 1024.0**power) for power, name in enumerate(("B", "KiB", "MiB", "GiB", "TiB")))

#: Every unit of a result, by the unit in which the result has it.
UNITS = {
    "ns": Unit(_thousands(1.0, "ns", "µs", "ms", "s")),
    "s": Unit(_thousands(1e-9, "ns", "µs", "ms", "s")),
    "nJ": Unit(_thousands(1.0, "nJ", "µJ", "mJ", "J")),
    "W": Unit(_thousands(1e-6, "µW", "mW", "W")),
    "B": Unit(_SIZES, 2),
    "GB/s": Unit((Scale("GB/s"),), 2),
    "GFLOPS": Unit((Scale("GFLOPS"),), 1),
    "TFLOPS": Unit((Scale("TFLOPS"),), 1),
    "mm²": Unit((Scale("mm²"),)),
    "USD": Unit((Scale("USD"),), 0),
    "tokens/s": Unit((Scale("tokens/s"),)),
    "1/s": Unit((Scale("1/s"),)),
    "%": Unit((Scale("%", 0.01),), 1),
    TIMES: Unit((Scale(TIMES),)),
    "": Unit((Scale(""),)),
}

# Units by endings of names.
_ENDINGS = {
    "_ns": "ns",
    "_nj": "nJ",
    "bytes": "B",
    "gbps": "GB/s",
    "gflops": "GFLOPS",
    "tflops": "TFLOPS",
    "_mm2": "mm²",
    "tokens_per_s": "tokens/s",
    "_per_s": "1/s",
    "_w": "W",
    "_usd": "USD",
    "_s": "s",
    "_fraction": "%",
    "_rate": "%",
    "_share": "%",
    "speedup": TIMES,
    "speedup_moe": TIMES,
    "slowdown": TIMES,
}


def unit_ending(name: str) -> tuple[str, str]:
    """The unit of a value by its name, a key of `UNITS`, and the ending that says so; both "" without one."""
    return next(((unit, end) for end, unit in _ENDINGS.items() if name.endswith(end)), ("", ""))


def scale_for(unit: str, largest: float) -> Scale:
    """The scale of a unit for values up to `largest`."""
    scales = UNITS[unit].scales
    return max(
        (each for each in scales if abs(largest) >= each.divisor), key=lambda s: s.divisor, default=scales[0]
    )


def in_unit(value: float, unit: str) -> str:
    """`value`, which is in `unit` (a key of `UNITS`), as text: ``13.27 µs``, ``36.00 MiB``, ``88.7%``."""
    if not unit:
        return f"{value:,}" if isinstance(value, int) else significant(value)
    decimals = UNITS[unit].decimals
    scale = scale_for(unit, value if decimals is not None else float(f"{value:.4g}"))
    if value == 0 and len(UNITS[unit].scales) > 1:
        return f"0 {'s' if unit == 's' else unit}"
    if decimals is None:
        number = significant(value / scale.divisor)
    else:
        number = f"{value / scale.divisor:z.{0 if scale.unit == 'B' else decimals}f}"
    return number + ("" if unit in ("%", TIMES) else " ") + scale.unit


def format_bytes(count: float) -> str:
    """`count` bytes: ``36.00 MiB``."""
    return in_unit(count, "B")


def shortfall(needed: float, has: float) -> str:
    """Bytes needed, and bytes that are there: ``needs 653.9 GB and has 137.4 GB`` (1 GB = 10^9 B)."""
    words = [_decimal_bytes(count) for count in (needed, has)]
    if words[0] == words[1]:
        words = [f"{count:,.0f} B" for count in (needed, has)]
    return f"needs {words[0]} and has {words[1]}"


def _decimal_bytes(count: float) -> str:
    scale = scale_for("B", 0)
    for power, name in enumerate(("B", "kB", "MB", "GB", "TB", "PB")):
        if count >= 1000**power:
            scale = Scale(name, 1000.0**power)
    return f"{count / scale.divisor:.4g} {scale.unit}"


def format_time(ns: float) -> str:
    """`ns` nanoseconds: ``1.000 µs``."""
    return in_unit(ns, "ns")


def format_energy(nj: float) -> str:
    """`nj` nanojoules: ``4.248 mJ``."""
    return in_unit(nj, "nJ")


def format_power(watts: float) -> str:
    """`watts`: ``15.74 µW``."""
    return in_unit(watts, "W")


def percent(share: float) -> str:
    """A share of 1: ``88.7%``."""
    return in_unit(share, "%")


def times(factor: float) -> str:
    """A factor to four digits and the sign of multiplication."""
    return in_unit(factor, TIMES)


def significant(value: float, digits: int = 4) -> str:
    """`value` to this many significant digits, with final zeros, and commas from 10,000."""
    rounded = float(f"{value:.{digits}g}")
    if abs(rounded) >= 10**digits:
        return f"{rounded:,.0f}"
    return f"{value:z#.{digits}g}".rstrip(".")
