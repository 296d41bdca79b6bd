"""Exact clocks, common ticks, and numbers for people."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ndpsim.base.units import (
    Timebase,
    common_ticks,
    dram_period_ps,
    format_bytes,
    format_energy,
    format_power,
    format_time,
    frequency_period_ps,
)

periods = st.fractions(min_value=Fraction(1, 1000), max_value=10_000, max_denominator=5000)


@pytest.mark.parametrize(
    ("rate", "period"),
    [
        (4800, Fraction(1250, 3)),
        (2400, Fraction(2500, 3)),
        (6400, Fraction(625, 2)),
    ],
)
def test_a_dram_clock_is_two_transfers_long(rate, period):
    assert dram_period_ps(rate, 2) == period


@pytest.mark.parametrize(
    ("mhz", "period"),
    [
        (1000, Fraction(1000)),
        (0.1, Fraction(10_000_000)),
        ("666.667", Fraction(10**9, 666667)),
    ],
)
def test_a_clock_in_mhz_is_taken_as_written_in_decimal(mhz, period):
    assert frequency_period_ps(mhz) == period


@given(st.lists(periods, min_size=1, max_size=4))
def test_ticks_divide_every_period_exactly_and_could_not_be_longer(chosen):
    base = common_ticks(*chosen)
    assert [ticks * base.tick_ps for ticks in base.ticks] == chosen
    assert math.gcd(*base.ticks) == 1
    assert all(isinstance(ticks, int) and ticks > 0 for ticks in base.ticks)


def test_ticks_of_ddr5_4800_beside_a_gigahertz():
    # 1250/3 ps and 3000/3 ps: the longest common measure is 250/3 ps.
    assert common_ticks(Fraction(1250, 3), Fraction(1000)) == Timebase(Fraction(250, 3), (5, 12))


def test_a_billion_clocks_carry_no_error():
    base = common_ticks(dram_period_ps(4800, 2), frequency_period_ps(1000))
    assert base.to_ns(3 * 10**9 * base.ticks[0]) == 1.25e9


@given(st.integers(0, 10**15), periods)
def test_ns_are_rounded_once(ticks, period):
    base = common_ticks(period)
    assert base.to_ns(ticks) == float(ticks * period / 1000)


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.00 KiB"),
        (1 << 35, "32.00 GiB"),
        (3 * 2**41, "6.00 TiB"),
        (1 << 60, "1048576.00 TiB"),
    ],
)
def test_bytes_in_binary_units(count, text):
    assert format_bytes(count) == text


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "0 ns"),
        (0.41667, "0.4167 ns"),
        (-0.0, "0 ns"),
        (999.94, "999.9 ns"),
        (999.96, "1.000 µs"),
        (1000, "1.000 µs"),
        (2.5e6, "2.500 ms"),
        (999_999_999, "1.000 s"),
        (7.2e12, "7200 s"),
        (123_456e9, "123,500 s"),
    ],
)
def test_times_in_the_unit_that_fits(ns, text):
    assert format_time(ns) == text


@given(st.floats(0.001, 1e12))
def test_a_formatted_time_is_right_to_four_digits(ns):
    number, unit = format_time(ns).replace(",", "").split()
    scale = {"ns": 1, "µs": 1e3, "ms": 1e6, "s": 1e9}[unit]
    assert float(number) * scale == pytest.approx(ns, rel=5.1e-4)


@pytest.mark.parametrize(
    ("watts", "text"),
    [
        (0, "0 W"),
        (-0.0, "0 W"),
        (15.3304, "15.33 W"),
        (0.99996, "1.000 W"),
        (0.467, "467.0 mW"),
        (1.574e-5, "15.74 µW"),
    ],
)
def test_power_in_the_unit_that_fits(watts, text):
    assert format_power(watts) == text


@pytest.mark.parametrize(
    ("nj", "text"), [(0, "0 nJ"), (38.57, "38.57 nJ"), (4.2481e6, "4.248 mJ"), (2e9, "2.000 J")]
)
def test_energy_in_the_unit_that_fits(nj, text):
    assert format_energy(nj) == text
