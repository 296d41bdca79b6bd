"""Currents of the parts, number by number, and energies of commands, computed by hand.

DDR4: the limits of DRAMsim3's configs/DDR4_8Gb_x*_*.ini (IDD0, IDD2N, IDD3N, IDD4R, IDD4W, IDD5AB, IPP0). DDR5: gem5's DDR5_4400_4x8 quotes IDD2N, IDD3N, IDD5B and IDD5C of the same addendum; the
other numbers stand in `ndpsim/dram/energy/devices/micron_mt60b.py` only, and are pinned here as they are there.
"""

from __future__ import annotations

import math
from dataclasses import fields, replace

import numpy as np
import pytest

from builders.command_lines import NUMBER, named
from mistakes import refused
from ndpsim.dram.energy import (
    Counts,
    Currents,
    Supply,
    UnitEnergy,
    channel_energy,
    count_trace,
    currents_of,
    explain,
    find_currents,
    from_trace,
    power_rows,
    split,
    transfer_nj,
)
from ndpsim.dram.energy.channel import add_up, counts_of
from ndpsim.dram.energy.traces import last_clock
from ndpsim.dram.spec import resolve, standards
from ndpsim.dram.traces import CommandTrace

COMMANDS = standards()["DDR5"].by_number

WORDS = ("part", "source", "assumptions", "further")
LATER = dict.fromkeys(("IDD5PB", "bank_refresh_ns", "IDDQ3N", "IDDQ4R", "standby_banks", "burst_banks"))

DDR4_COMMON = dict(
    VDD=1.2, VDDQ=1.2, VPP=2.5, IDD5B=250, IPP0=3, IPP2N=3, IPP3N=3, IPP4R=None, IPP4W=None, IPP5B=28, IDD5C=None,
    activate_ns=32, refresh_ns=350, same_bank_refresh_ns=None, driver_ohm=240 / 7, termination_ohm=48,
)  # fmt: skip
DDR5_COMMON = dict(
    VDD=1.1, VDDQ=1.1, VPP=1.8, IDD0=103, IDD2N=92, IDD3N=142, IDD4R=377, IDD4W=349, IDD5B=277, IDD5C=135,
    IPP0=8, IPP2N=6, IPP3N=7, IPP4R=9, IPP4W=36, IPP5B=28, activate_ns=32, precharge_ns=16,
    driver_ohm=240 / 7, termination_ohm=48,
)  # fmt: skip


def ddr4(IDD0, IDD2N, IDD3N, IDD4R, IDD4W, precharge_ns):
    loops = dict(IDD0=IDD0, IDD2N=IDD2N, IDD3N=IDD3N, IDD4R=IDD4R, IDD4W=IDD4W)
    return DDR4_COMMON | loops | {"precharge_ns": precharge_ns}


PARTS = {
    ("DDR4_8Gb_x4", 2400): ddr4(43, 34, 38, 110, 103, 14.16),
    ("DDR4_8Gb_x4", 3200): ddr4(52, 37, 47, 143, 130, 13.75),
    ("DDR4_8Gb_x8", 2400): ddr4(48, 34, 43, 135, 123, 14.16),
    ("DDR4_8Gb_x8", 2666): ddr4(51, 35, 46, 146, 132, 14.25),
    ("DDR4_8Gb_x8", 2933): ddr4(54, 36, 49, 157, 141, 14.32),
    ("DDR4_8Gb_x8", 3200): ddr4(57, 37, 52, 168, 150, 13.75),
    ("DDR4_8Gb_x16", 2400): ddr4(80, 34, 47, 243, 228, 14.16) | dict(IDD5B=280, IPP0=4),
    ("DDR4_8Gb_x16", 2666): ddr4(85, 35, 50, 263, 244, 14.25) | dict(IDD5B=280, IPP0=4),
    ("DDR4_8Gb_x16", 2933): ddr4(90, 36, 53, 283, 261, 14.32) | dict(IDD5B=280, IPP0=4),
    ("DDR4_8Gb_x16", 3200): ddr4(95, 37, 56, 302, 278, 13.75) | dict(IDD5B=280, IPP0=4),
    ("DDR5_16Gb_x8", 4800): DDR5_COMMON | dict(refresh_ns=295, same_bank_refresh_ns=130),
    ("DDR5_32Gb_x8", 4800): DDR5_COMMON | dict(refresh_ns=410, same_bank_refresh_ns=190),
    ("DDR5_32Gb_x8", 4000): DDR5_COMMON | dict(refresh_ns=410, same_bank_refresh_ns=190),
}


@pytest.mark.parametrize(("org", "rate"), PARTS)
def test_every_current_of_a_part(org, rate):
    chip = currents_of(org, rate)
    assert chip is not None
    assert {name: value for name, value in vars(chip).items() if name not in WORDS} == PARTS[
        org, rate
    ] | LATER


def test_no_other_part_is_taken_for_one_that_is_not_there():
    for org in ("DDR4_4Gb_x8", "DDR4_8Gb_x4", "DDR4_8Gb_x8", "DDR4_8Gb_x16", "DDR5_8Gb_x8", "DDR5_16Gb_x4", "DDR5_16Gb_x8", "DDR5_16Gb_x16", "DDR5_32Gb_x8"):  # fmt: skip
        for rate in (1600, 1866, 2133, 2400, 2666, 2933, 3200, 4000, 4400, 4800, 5600, 6400):
            assert (currents_of(org, rate) is not None) is ((org, rate) in PARTS), (org, rate)


def test_what_a_part_is_taken_for_is_an_assumption():
    of_32gb, at_4000 = (currents_of("DDR5_32Gb_x8", rate).assumptions for rate in (4800, 4000))
    assert set(of_32gb) == {"all", "IPP0, IPP4R, IPP4W, IPP5B", "driver_ohm", "termination_ohm"}
    assert set(at_4000) == {"rate", *of_32gb}
    assert set(currents_of("DDR5_16Gb_x8", 4800).assumptions) == set(of_32gb) - {"all"}


# By hand, in pJ of a rank; mW x ns. Of a chip in mW: current x VDD + IPP x VPP.

BY_HAND = {
    # 4 chips. Closed 4 x (92 x 1.1 + 6 x 1.8) = 448; open 4 x (142 x 1.1 + 7 x 1.8) = 675.2, so 7.1 a bank of
    # 32; cycling 4 x (103 x 1.1 + 8 x 1.8) = 510.8; reading 4 x (377 x 1.1 + 9 x 1.8) = 1723.6; writing
    # 4 x (349 x 1.1 + 36 x 1.8) = 1794.8; refreshing 4 x (277 x 1.1 + 28 x 1.8) = 1420.4, bank by bank
    # 4 x (135 x 1.1 + 6 x 1.8) = 637.2. A burst takes 8 clocks, 10/3 ns.
    ("DDR5", "DDR5_16Gb_x8", "DDR5_4800AN"): dict(
        activate=(510.8 - 448 - 7.1) * 32 + (510.8 - 448) * 16,  # 2787.2
        read=(1723.6 - 675.2) * 10 / 3, write=(1794.8 - 675.2) * 10 / 3,
        refresh=972.4 * 295,
        same_bank_refresh=189.2 * 130,
        io=4 * 5 * 1210 / (240 / 7 + 48) * 10 / 3,  # four low of eight lines, and one of the strobe
        closed=448 / 2.4, open_bank=7.1 / 2.4,
    ),
    ("DDR5", "DDR5_32Gb_x8", "DDR5_4000AN"): dict(
        activate=2787.2,
        read=1048.4 * 4, write=1119.6 * 4,
        refresh=972.4 * 410,
        same_bank_refresh=189.2 * 190,
        io=4 * 5 * 1210 / (240 / 7 + 48) * 4,
        closed=448 / 2, open_bank=7.1 / 2,
    ),
    # 8 chips, VPP 3 mA x 2.5 V in every loop but refresh, 28 mA. Closed 415.2, open 559.2 (9 a bank of 16), cycling 607.2.
    ("DDR4", "DDR4_8Gb_x8", "DDR4_3200AA"): dict(
        activate=(192 - 9) * 32 + 192 * 13.75, io=8 * 5 * 17.5 * 2.5,  # 8496
        read=8 * (168 - 52) * 1.2 * 2.5, write=8 * (150 - 52) * 1.2 * 2.5,
        refresh=8 * ((250 - 37) * 1.2 + (28 - 3) * 2.5) * 350,
        closed=415.2 * 0.625, open_bank=9 * 0.625,
    ),
    # 16 chips of four data pins: two lines low, and one of the strobe. Closed 830.4, open 1022.4, cycling 1118.4.
    ("DDR4", "DDR4_8Gb_x4", "DDR4_3200AA"): dict(
        activate=(288 - 12) * 32 + 288 * 13.75, io=16 * 3 * 17.5 * 2.5,  # 12792
        read=16 * (143 - 47) * 1.2 * 2.5, write=16 * (130 - 47) * 1.2 * 2.5,
        refresh=16 * ((250 - 37) * 1.2 + (28 - 3) * 2.5) * 350,
        closed=830.4 * 0.625, open_bank=12 * 0.625,
    ),
    # 8 chips: closed 386.4, open 472.8, cycling 520.8; a clock of 5/6 ns.
    ("DDR4", "DDR4_8Gb_x8", "DDR4_2400R"): dict(
        activate=(134.4 - 5.4) * 32 + 134.4 * 14.16, io=8 * 5 * 17.5 * 10 / 3,
        read=8 * (135 - 43) * 1.2 * 10 / 3, write=8 * (123 - 43) * 1.2 * 10 / 3,
        refresh=8 * ((250 - 34) * 1.2 + (28 - 3) * 2.5) * 350,
        closed=386.4 * 5 / 6, open_bank=5.4 * 5 / 6,
    ),
}  # fmt: skip


@pytest.mark.parametrize("names", BY_HAND, ids=lambda names: names[1] + names[2])
def test_what_each_command_and_clock_costs(names):
    device = resolve(*names)
    energy = vars(channel_energy(device, find_currents(device)))
    by_hand = {"same_bank_refresh": None, "bank_refresh": None} | BY_HAND[names]
    assert energy == {
        name: pj if pj is None else pytest.approx(pj / 1000, rel=1e-12) for name, pj in by_hand.items()
    }


def test_a_device_of_sixteen_pins_has_two_strobes():
    # 2 chips of 16 pins: 8 + 2 lines low, instead of 4 x (4 + 1): no more and no less.
    x8, x16 = resolve("DDR5", "DDR5_16Gb_x8", "DDR5_4800AN"), resolve("DDR5", "DDR5_16Gb_x16", "DDR5_4800AN")
    chip = find_currents(x8)
    assert channel_energy(x16, chip).io == pytest.approx(channel_energy(x8, chip).io)


def test_an_ipp_that_is_not_there_is_that_of_the_standby_beneath():
    device = resolve("DDR5", "DDR5_16Gb_x8", "DDR5_4800AN")
    chip = replace(find_currents(device), IPP4R=None, IPP4W=None, IPP5B=None, IPP2N=1, IPP3N=2)
    energy = channel_energy(device, chip)
    # The same on VPP above and below: nothing of it remains.
    assert energy.read == pytest.approx(4 * (377 - 142) * 1.1 * 10 / 3 / 1000)
    assert energy.write == pytest.approx(4 * (349 - 142) * 1.1 * 10 / 3 / 1000)
    assert energy.refresh == pytest.approx(4 * (277 - 92) * 1.1 * 295 / 1000)
    assert energy.same_bank_refresh == pytest.approx(4 * (135 - 92) * 1.1 * 130 / 1000)


def test_a_burst_costs_by_its_time_and_not_by_the_clocks_that_it_takes():
    """At eight transfers a clock the same bits at the same rate take a quarter of the clocks, four times as long."""
    device = resolve("DDR5", "DDR5_16Gb_x8", "DDR5_4800AN")
    fewer_clocks = replace(device, standard=replace(device.standard, transfers_per_clock=8))
    assert fewer_clocks.clock_ps == 4 * device.clock_ps
    one, other = (channel_energy(which, find_currents(device)) for which in (device, fewer_clocks))
    for name in ("read", "write", "io"):
        assert getattr(other, name) == pytest.approx(getattr(one, name))


@pytest.mark.parametrize("missing", ["IDD5C", "same_bank_refresh_ns"])
def test_a_same_bank_refresh_needs_its_current_and_its_time(missing):
    device = resolve("DDR5", "DDR5_16Gb_x8", "DDR5_4800AN")
    energy = channel_energy(device, replace(find_currents(device), **{missing: None}))
    assert energy.same_bank_refresh is None
    assert split(Counts(1, 1, 1, 1, 1, 1, 1), energy) is None
    assert split(Counts(1, 1, 1, 1, 0, 1, 1), energy) is not None


def test_a_command_that_costs_nothing_is_no_mistake():
    device = resolve("DDR5", "DDR5_16Gb_x8", "DDR5_4800AN")
    chip = replace(find_currents(device), IDD4R=142, IPP4R=7)
    assert channel_energy(device, chip).read == 0
    with refused("range dram.power"):
        channel_energy(device, replace(chip, IDD4R=141.9))


def test_components_are_counts_times_costs():
    device = resolve("DDR5", "DDR5_16Gb_x8", "DDR5_4800AN")
    cost = {name: pj / 1000 for name, pj in BY_HAND["DDR5", "DDR5_16Gb_x8", "DDR5_4800AN"].items()}
    parts = split(Counts(2, 3, 5, 7, 11, 13, 17), channel_energy(device, find_currents(device)))
    assert parts == {
        "activate": pytest.approx(2 * cost["activate"]),
        "read": pytest.approx(3 * cost["read"]),
        "write": pytest.approx(5 * cost["write"]),
        "refresh": pytest.approx(7 * cost["refresh"] + 11 * cost["same_bank_refresh"]),
        "background": pytest.approx(13 * cost["closed"] + 17 * cost["open_bank"]),
        "io": pytest.approx(8 * cost["io"]),
    }


def test_commands_are_counted_under_what_they_cost():
    issued = np.zeros(len(COMMANDS), dtype=np.int64)
    for name, times in (("ACT", 1), ("PREpb", 2), ("PREab", 4), ("RD", 8), ("WR", 16), ("RDA", 32), ("WRA", 64), ("REFab", 128), ("PREsb", 256), ("REFsb", 512)):  # fmt: skip
        issued[NUMBER[name]] = times
    assert counts_of(issued, standards()["DDR5"], 3, 5) == Counts(1, 8 + 32, 16 + 64, 128, 512, 3, 5)


@pytest.mark.parametrize("standard", ["LPDDR5", "HBM3"])
def test_refreshes_of_a_pair_of_banks_are_counted_as_those_of_one(standard):
    names = standards()[standard].names
    issued = np.array([{"REFpb": 3, "REFab": 5}.get(name, 0) for name in names])
    counts = counts_of(issued, standards()[standard], 0, 0)
    assert (counts.bank_refreshes, counts.refreshes, counts.same_bank_refreshes) == (3, 5, 0)


# From a trace.


def test_counts_of_a_trace_by_hand():
    device = resolve("DDR5", "DDR5_16Gb_x8", "DDR5_4800AN", ranks=2)
    trace = named(
        (100, "ACT", 0, 0, 0), (140, "RD", 0, 0, 0), (200, "ACT", 1, 7, 3), (250, "WRA", 1, 7, 3), (300, "PREpb", 0, 0, 0),
        (400, "PREab", 1, -1, -1), (500, "REFab", 0, -1, -1), (600, "REFsb", 1, -1, 2), (700, "ACT", 0, 3, 1), (740, "RDA", 0, 3, 1),
    )  # fmt: skip
    # The first is open for 200 clocks; the second is not closed by WRA before 250 + 1 + 32 + 8 + 72 = 363; the
    # third not before tRAS, 700 + 1 + 77 = 778, and RDA asks for no more than 740 + 1 + 18.
    open_clocks = 200 + 163 + 78
    assert count_trace(trace, device, end=1000) == Counts(3, 2, 1, 1, 1, 2000, open_clocks)
    assert count_trace(trace, device, end=1000, start=90) == Counts(3, 2, 1, 1, 1, 2 * 910, open_clocks)
    # Without an end: to the last beat of the last read, 740 + 34 + 8.
    assert last_clock(trace, device) == 782
    assert count_trace(trace, device) == Counts(3, 2, 1, 1, 1, 2 * 782, open_clocks)
    assert last_clock(named((9, "WR", 0, 0, 0), (900, "PREpb", 0, 0, 0)), device) == 900
    assert last_clock(named((9, "RD", 0, 0, 0)), device) == 9 + 34 + 8
    assert last_clock(named((9, "RD", 0, 0, 0), (52, "PREpb", 0, 0, 0)), device) == 52
    assert last_clock(CommandTrace.of(np.empty((7, 0), dtype=np.int64)), device) == 0
    assert count_trace(named((5, "PREpb", 0, 0, 0)), device, start=8).rank_clocks == 0


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ((2, 0, 0), "range rank"),
        ((-1, 0, 0), "range rank"),
        ((0, 8, 0), "range bankgroup"),
        ((0, -2, 0), "range bankgroup"),
        ((0, 0, 4), "range bank"),
    ],
)
def test_what_the_device_does_not_have_is_told(place, words):
    device = resolve("DDR5", "DDR5_16Gb_x8", "DDR5_4800AN", ranks=2)
    with refused(words):
        count_trace(named((0, "ACT", *place)), device)
    assert count_trace(named((0, "ACT", 1, 7, 3)), device, end=10).open_clocks == 10


def test_lanes_are_channels_that_end_together():
    device = resolve("DDR5", "DDR5_16Gb_x8", "DDR5_4800AN")
    cost = {name: pj / 1000 for name, pj in BY_HAND["DDR5", "DDR5_16Gb_x8", "DDR5_4800AN"].items()}
    # Three lanes, of which one has no command: 1000 - 100 clocks each, two banks open for 900 and 500.
    trace = named((100, "ACT", 0, 0, 0), (500, "ACT", 2, 0, 0))
    energy = from_trace(trace, device, end=1000, start=100, lanes=3)
    assert energy["activate"] == pytest.approx(2 * cost["activate"])
    assert energy["background"] == pytest.approx(3 * 900 * cost["closed"] + 1400 * cost["open_bank"])
    assert energy["total"] == pytest.approx(energy["activate"] + energy["background"])


# Around the DRAM.


def test_energy_of_the_units_by_component():
    unit = UnitEnergy(product_pj=2, buffer_pj_per_byte=3, fifo_pj_per_byte=5, value_pj=7, static_mw=11)
    assert unit.split(1000, 10_000, 100_000, 1_000_000, 10_000_000) == {
        "ndp_multiply": 2,
        "ndp_buffer": 30,
        "ndp_fifo": 500,
        "ndp_activation": 7000,
        "ndp_static": 110_000,
    }
    unknown = UnitEnergy(None, None, None, None, None).split(1, 1, 1, 1, 1)
    assert set(unknown.values()) == {None}
    assert add_up({"a": 1.5, "b": None, "c": 2}) == {"a": 1.5, "b": None, "c": 2, "total": 3.5}


def test_a_byte_has_eight_bits_and_nothing_times_nothing_is_not_unknown():
    assert transfer_nj(1000, 2.5) == pytest.approx(20)
    assert transfer_nj(0, 2.5) == 0
    assert transfer_nj(1000, 0.0) == 0
    assert transfer_nj(1000, None) is None


# Several supplies.


def test_every_supply_counts_with_its_own_voltage():
    # Of no chip. VDD 1.0 V, VPP 2.0 V, one more supply of 0.5 V; one bank is open in the loop of IDD3N, two in IDD4R.
    chip = Currents(
        part="by hand", source="by hand", VDD=1.0, VDDQ=0.4, VPP=2.0,
        IDD0=50, IDD2N=20, IDD3N=30, IDD4R=240, IDD4W=140, IDD5B=120, IDD5PB=60,
        IPP0=7, IPP2N=2, IPP3N=3, IPP4R=14, IPP5B=22,
        activate_ns=40, precharge_ns=10, refresh_ns=100, bank_refresh_ns=50,
        IDDQ3N=5, IDDQ4R=105, standby_banks=1, burst_banks=2,
        further={"VDD2L": Supply(0.5, IDD0=20, IDD2N=4, IDD3N=8, IDD4W=32, IDD5PB=24)},
    )  # fmt: skip
    device = resolve("LPDDR5", "LPDDR5_16Gb_x16", "LPDDR5_6400")
    # pJ = mW x ns; a burst of 16 bits at 6400 MT/s takes 2.5 ns, a clock 1.25 ns. A bank that is open draws
    # 10 x 1 + 1 x 2 + 4 x 0.5 = 14 mW.
    cost = {name: nj and 1000 * nj for name, nj in vars(channel_energy(device, chip)).items()}
    assert cost == pytest.approx(
        dict(
            activate=(20 * 1 + 4 * 2 + 12 * 0.5) * 40 + (30 * 1 + 5 * 2 + 16 * 0.5) * 10,
            read=(200 * 1 + 10 * 2 + 0 * 0.5) * 2.5,
            write=(100 * 1 + 0 * 2 + 20 * 0.5) * 2.5,
            refresh=(100 * 1 + 20 * 2 + 0 * 0.5) * 100,
            same_bank_refresh=None,
            bank_refresh=(40 * 1 + 0 * 2 + 20 * 0.5) * 50,
            io=100 * 0.4 * 2.5,
            closed=(20 * 1 + 2 * 2 + 4 * 0.5) * 1.25,
            open_bank=14 * 1.25,
        )
    )
    rows = {key: (value, unit) for key, value, unit, _ in power_rows(chip)}
    assert rows["power.VDD2L"] == (0.5, "V")
    assert rows["power.VDD2L.IDD5PB"] == (24, "mA")


def test_currents_of_lpddr5x_by_hand():
    device = resolve("LPDDR5X", "LPDDR5X_16Gb_x16", "LPDDR5X_7500")
    cost = {
        name: nj and 1000 * nj for name, nj in vars(channel_energy(device, find_currents(device))).items()
    }
    # VDD2H of 1.05 V, VDD1 of 1.8 V; VDD2L draws the same in every state, 0.2 mA of 0.9 V.
    burst_ns, clock_ns = 16 / 7.5, 8 / 7.5
    assert cost == pytest.approx(
        dict(
            activate=(13 * 1.05 + 1 * 1.8) * 42 + (20.5 * 1.05 + 2.3 * 1.8) * 18,
            read=(342.5 * 1.05 + 13.9 * 1.8) * burst_ns,
            write=(217.5 * 1.05 + 12.4 * 1.8) * burst_ns,
            refresh=172.5 * 1.05 * 280,
            same_bank_refresh=None,
            bank_refresh=None,
            io=111.3 * 0.5 * burst_ns,
            closed=(32.5 * 1.05 + 1.5 * 1.8 + 0.2 * 0.9) * clock_ns,
            open_bank=(7.5 * 1.05 + 1.3 * 1.8) * clock_ns,
        )
    )
    assert find_currents(resolve("LPDDR5X", "LPDDR5X_16Gb_x16", "LPDDR5X_8533")) is None
    assert find_currents(resolve("LPDDR5X", "LPDDR5X_32Gb_x16", "LPDDR5X_7500")) is None


def test_pins_need_their_current_or_both_resistances():
    device = resolve("HBM3", "HBM3_4Gb", "HBM3_6400Mbps")
    chip = currents_of("DDR5_16Gb_x8", 4800)
    numbers = {
        name: value
        for name, value in vars(chip).items()
        if isinstance(value, int | float) and "_ohm" not in name
    }
    with refused("missing dram.power"):
        find_currents(device, numbers)
    io = channel_energy(device, find_currents(device, numbers | {"IDDQ4R": 300.0})).io
    assert io == pytest.approx(300 * 1.1 * 1.25 / 1000)  # eight beats at 6400 MT/s


# For tables and changes.


def test_currents_are_shown_with_their_units():
    rows = {key: (value, unit) for key, value, unit, _ in power_rows(currents_of("DDR5_16Gb_x8", 4800))}
    units = {"V": "V", "I": "mA"}
    for entry in fields(Currents):
        if entry.name not in WORDS:
            unit = units.get(entry.name[0], entry.name.rpartition("_")[2])
            known = PARTS["DDR5_16Gb_x8", 4800] | LATER
            assert rows[f"power.{entry.name}"] == (known[entry.name], unit)


def test_a_number_is_shown_with_the_assumption_that_it_rests_on():
    sheet = {key: origin for key, _, _, origin in power_rows(currents_of("DDR4_8Gb_x8", 3200))}
    assert sheet["power.IPP2N"].startswith("assumption: ")
    assert sheet["power.IDD0"].startswith("Micron MT40A1G8, DDR4-3200: ")
    assert sheet["power.IDD5C"] == "not known"
    stand_in = {key: origin for key, _, _, origin in power_rows(currents_of("DDR5_32Gb_x8", 4800))}
    assert stand_in["power.IDD0"].startswith("assumption: ")
    assert stand_in["power.driver_ohm"].startswith("assumption: RZQ/7")


def test_a_change_replaces_its_number_and_its_assumption_and_nothing_else():
    device = resolve("DDR4", "DDR4_8Gb_x8", "DDR4_3200AA")
    known, changed = find_currents(device), find_currents(device, {"IPP2N": 4.0, "IDD4W": 151.0})
    different = {name for name in vars(known) if getattr(known, name) != getattr(changed, name)}
    assert different == {"IPP2N", "IDD4W", "source", "assumptions"}
    assert changed.source == f"{known.source}; IPP2N, IDD4W as given"
    assert set(known.assumptions) - set(changed.assumptions) == {"IPP2N"}
    assert find_currents(device, {}) == known


def test_currents_are_scaled_on_request_and_err_on_the_high_side():
    device = resolve("DDR4", "DDR4_8Gb_x8", "DDR4_3200AA")
    known, scaled = find_currents(device), find_currents(device, {"scaled_from_mtps": 2400})
    base = currents_of("DDR4_8Gb_x8", 2400)
    for name in ("IDD2N", "IDD3N", "IDD4R", "IDD4W"):
        assert math.isclose(getattr(scaled, name), getattr(base, name) * 3200 / 2400)
        assert 1.06 < getattr(scaled, name) / getattr(known, name) < 1.23
    assert math.isclose(scaled.IDD5B - scaled.IDD2N, base.IDD5B - base.IDD2N)
    assert (scaled.IPP0, scaled.activate_ns) == (base.IPP0, base.activate_ns)
    assert "scaled from 2400 MT/s" in explain(device, scaled)
    changed = find_currents(device, {"scaled_from_mtps": 2400, "IDD4R": 170.0})
    assert (changed.IDD4R, changed.IDD4W) == (170.0, scaled.IDD4W)


def test_ddr5_5600_and_6400_have_energy_from_4800_when_asked():
    for timing, rate in (("DDR5_5600AN", 5600), ("DDR5_6400AN", 6400)):
        device = resolve("DDR5", "DDR5_16Gb_x8", timing)
        assert find_currents(device) is None
        assert "4800 MT/s: dram.power.scaled_from_mtps" in explain(device, None)
        at_4800 = resolve("DDR5", "DDR5_16Gb_x8", "DDR5_4800AN")
        scaled = channel_energy(device, find_currents(device, {"scaled_from_mtps": 4800}))
        there = channel_energy(at_4800, find_currents(at_4800))
        # Bursts are shorter by as much as they draw more; so is a clock.
        assert math.isclose(scaled.read, there.read, rel_tol=0.03)
        assert math.isclose(scaled.refresh, there.refresh)
        assert math.isclose(scaled.activate, there.activate)
        assert scaled.io / there.io == pytest.approx(4800 / rate)


@pytest.mark.parametrize(
    ("org", "timing", "rate"), [("DDR5_16Gb_x8", "DDR5_5600AN", 5000), ("DDR5_8Gb_x8", "DDR5_5600AN", 4800)]
)
def test_only_a_known_data_sheet_is_scaled(org, timing, rate):
    with refused("unknown-name dram.power.scaled_from_mtps"):
        find_currents(resolve("DDR5", org, timing), {"scaled_from_mtps": rate})
