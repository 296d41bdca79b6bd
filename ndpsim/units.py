"""Conversions of time and size, all in one place, each saying how it rounds.

A clock's period is a `Fraction` of a picosecond, so that a DDR5-4800 clock is exactly 1250/3 ps and a
billion of them carry no error. Kernels count in *ticks*: the longest time of which every clock in play
is a whole multiple.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import cached_property, lru_cache


@lru_cache(maxsize=1024)
def _of_decimal(text: str) -> Fraction:
    return Fraction(Decimal(text))


def exact(value: int | float | str | Fraction) -> Fraction:
    """`value` as written in decimal, exactly: 0.1 becomes 1/10, not its binary neighbour."""
    return value if isinstance(value, Fraction) else _of_decimal(str(value))


def dram_period_ps(rate_mts: int, transfers_per_clock: int) -> Fraction:
    """Period of the DRAM clock in ps at `rate_mts` mega-transfers a second on each pin."""
    return Fraction(transfers_per_clock * 1_000_000, rate_mts)


def plain_number(value: Fraction) -> int | float:
    """`value` as JSON has it: a whole number where it is one, else the nearest float."""
    return int(value) if value.denominator == 1 else float(value)


def in_decimals(value: Fraction) -> str:
    """`value` exactly: in decimals where they end, 312.5, else as a fraction, 1250/3 = 416.667."""
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


def format_bytes(count: int | float) -> str:
    """`count` bytes in the binary unit that leaves one to four digits: ``36.00 MiB``."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size) < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.2f} {unit}"
        size /= 1024
    return f"{size:.2f} TiB"


def format_time(ns: float) -> str:
    """`ns` nanoseconds in ns, us, ms or s, to four significant digits: ``1.000 us``."""
    return _scaled(ns, ((1.0, "ns"), (1e3, "us"), (1e6, "ms"), (1e9, "s")))


def format_energy(nj: float) -> str:
    """`nj` nanojoules in nJ, uJ, mJ or J, to four significant digits."""
    return _scaled(nj, ((1.0, "nJ"), (1e3, "uJ"), (1e6, "mJ"), (1e9, "J")))


def format_power(watts: float) -> str:
    """`watts` in uW, mW or W, to four significant digits."""
    if watts == 0:
        return "0 W"
    return _scaled(watts, ((1e-6, "uW"), (1e-3, "mW"), (1.0, "W")))


def significant(value: float, digits: int = 4) -> str:
    """`value` to that many significant digits, zeros at the end among them; thousands apart from 10,000."""
    rounded = float(f"{value:.{digits}g}")
    if abs(rounded) >= 10**digits:
        return f"{rounded:,.0f}"
    return f"{value:z#.{digits}g}".rstrip(".")


def _scaled(value: float, units: tuple[tuple[float, str], ...]) -> str:
    """`value` in the largest unit of which it is 1 or more once rounded, else in the first."""
    if value == 0:
        return f"0 {units[0][1]}"
    rounded = abs(float(f"{value:.4g}"))
    scale, unit = max(((scale, unit) for scale, unit in units if rounded >= scale), default=units[0])
    return f"{significant(value / scale)} {unit}"
