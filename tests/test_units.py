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


@given(st.floats(0.001, 1e12))
def test_a_formatted_time_is_right_to_four_digits(ns):
    number, unit = format_time(ns).replace(",", "").split()
    scale = {"ns": 1, "µs": 1e3, "ms": 1e6, "s": 1e9}[unit]
    assert float(number) * scale == pytest.approx(ns, rel=5.1e-4)
