"""Timings and parts that cannot work are refused in one line before anything is simulated; what works is not."""

from __future__ import annotations

import numpy as np
import pytest

from mistakes import refused
from ndpsim.config import load_hardware
from ndpsim.dimm import engines
from ndpsim.dimm.common import STUCK
from ndpsim.dram.spec import resolve, row_times, standards
from ndpsim.simulate import Session, run_trace, simulate_contention
from ndpsim.simulate.lane import check_refresh
from ndpsim.workload.models import Expert

CLOSED = ["dimm.ranks=2", "dram.row_policy=closed-cap"]
DDR5 = ("DDR5", "DDR5_16Gb_x8", "DDR5_4800AN")


def test_a_row_that_may_be_closed_before_it_is_read_is_refused():
    problem = "range sets dram.nRCD"
    with refused(problem):
        simulate_contention("edge", Expert(64, 32), host_gbps=2, sets=[*CLOSED, "dram.nRCD=60"])
    with refused("range sets dram.nRAS"):
        load_hardware("edge", ["dram.row_policy=closed-cap", "dram.nRAS=20"])
    # One clock less, or rows that stay open until something else is asked for, are no trouble.
    load_hardware("edge", [*CLOSED, "dram.nRCD=52"])
    load_hardware("edge", ["dimm.ranks=2", "dram.nRCD=60"])


@pytest.mark.parametrize("standard", sorted(standards()))
def test_rows_of_all_presets_can_be_read_before_they_are_closed(standard):
    known = standards()[standard]
    for timing in known.speeds:
        device = resolve(standard, next(iter(known.organisations)), timing)
        speed, (column, precharge) = device.timings, row_times(device)
        row_to_column = next(name for name in ("nRCD", "nRCDRD", "nRCDr") if name in speed)
        assert (column.latency, precharge.latency) == (row_to_column, "nRAS")
        assert column.clocks <= precharge.clocks
        ticks, (opening, closing, reading) = known.ticks_per_clock, known.by_number[:3]
        late_column, late = (opening.cycles - one.cycles for one in (reading, closing))
        wanted = ticks * speed[row_to_column] + late_column, ticks * speed["nRAS"] + late
        assert (column.clocks, precharge.clocks) == wanted


def test_host_and_job_go_on_where_a_row_is_read_just_before_it_may_be_closed():
    hardware = load_hardware("edge", [*CLOSED, "dram.nRCD=52", "dram.nREFI=2000"])
    session = Session(hardware, arbitration="ndp-first")
    session.host(gbps="saturate", pattern="sequential", read_share=0.67)
    session.expert(Expert(128, 64))
    session.run(until_ns=60_000)
    assert session.result().commands["REFab"] > 0


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        # Four REFsb of tRFCsb each take the whole interval, and one clock less than it.
        ({"nREFI2": 4 * 115}, "no-progress nREFI2"),
        ({"nREFI2": 4 * 115 + 1}, None),
        # tREFSBRD keeps ACT off until the next one: tREFI2, half of 9360 clocks, has one in 1170 clocks. An ACT begins
        # its effect in its second cycle.
        ({"nREFSBRD": 1171}, "no-progress nREFI2"),
        ({"nREFSBRD": 1170}, None),
    ],
)  # fmt: skip
def test_refreshes_of_single_banks_have_to_fit_into_the_interval(overrides, words):
    device = resolve(*DDR5, 2, {"nRFC": 30, "nRFCsb": 115, **overrides})
    for refresh in ("all-bank", "staggered", "none"):
        check_refresh(device, refresh)
    if words is None:
        check_refresh(device, "same-bank")
    else:
        with refused(words):
            check_refresh(device, "same-bank")


def test_what_just_fits_runs_to_its_end():
    address = np.arange(2000) * 4096 % (1 << 24)
    overrides = {"nRFC": 30, "nRFCsb": 115, "nREFI2": 4 * 115 + 1}
    result = run_trace((address, address % 2), *DDR5, overrides=overrides, refresh="same-bank")
    assert result.commands["REFsb"] == pytest.approx(4 * result.cycles / 461, rel=0.01)


@pytest.mark.parametrize("overrides", [{"nRCD": 1_000_000}, {"nCCDS": 1_000_000, "nRRDL": 200_000}])
def test_what_comes_up_only_in_a_run_is_one_line_too(overrides):
    address = np.arange(3000) * 64 * 1031 % (1 << 24)
    with refused("no-progress dram.timing"):
        run_trace((address, address % 2), *DDR5, 4, overrides)


def test_a_channel_of_dimms_that_cannot_go_on_says_so_in_one_line(monkeypatch):
    session = Session("edge")
    session.expert(Expert(64, 32))
    monkeypatch.setattr(engines.FastDimms, "_run", lambda self, goals, until_clock: STUCK)
    with refused("no-progress dram.timing"):
        session.run()


@pytest.mark.parametrize(("hw", "count"), [("trimoe", 3), ("trimoe", 63), ("edge", 6)])
def test_subchannels_are_bits_of_the_hosts_addresses(hw, count):
    with refused("range sets dimm.subchannels"):
        load_hardware(hw, [f"dimm.subchannels={count}"])
    for good in (1, 2, 4, 64):
        assert load_hardware(hw, [f"dimm.subchannels={good}"]).system.dimm.subchannels == good


def test_a_device_on_a_cxl_link_has_as_many_channels_as_it_likes():
    for count in (1, 2, 3, 64):
        assert load_hardware("cxl", [f"dimm.subchannels={count}"]).system.dimm.subchannels == count
