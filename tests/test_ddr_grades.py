"""DDR5 and MRDIMM as a whole: bandwidth grows with the grade, and values that no table of one preset shows."""

from __future__ import annotations

import numpy as np
import pytest

from builders.one_channel import run_on
from ndpsim.audit import check
from ndpsim.base.options.dram import ControllerOptions
from ndpsim.dram.engines import FastController, ScanController, compare_channels, make_controller
from ndpsim.dram.spec import Device, lower, resolve, standards
from ndpsim.dram.state import make_policy
from ndpsim.dram.traces import Requests
from ndpsim.simulate import Memory, run_requests

READS = 8000
ANYWHERE = np.random.default_rng(1).integers(0, (1 << 30) // 64, READS) * 64
RATES = range(3200, 8801, 400)


def gbps(standard: str, org: str, timing: str, address: np.ndarray, **channel: object) -> float:
    # Enough reads wait that no grade lacks any; with 32, the fastest rates differ by less than tRC in whole clocks.
    options = ControllerOptions(refresh="none", read_buffer=64)
    memory = Memory.named(standard, org, timing, options=options, **channel)
    return READS * 64 / run_requests(Requests.of(address, np.zeros(READS, dtype=np.int64)), memory).time_ns


@pytest.mark.parametrize("grade", ["AN", "B", "C"])
def test_random_reads_are_faster_with_every_grade(grade):
    """The window of four activates is 32 clocks at every rate (JESD79-5), so 8 clocks of a burst."""
    found = [gbps("DDR5", "DDR5_16Gb_x8", f"DDR5_{rate}{grade}", ANYWHERE) for rate in RATES]
    assert sorted(set(found)) == found
    # A burst of 64 bytes in 8 clocks of 2000 / rate ns is all that a bus of 32 pins moves.
    for rate, one in list(zip(RATES, found, strict=True))[:5]:
        assert 0.9 < one / (rate * 4 / 1000) < 1


def test_every_preset_runs_on_the_fast_controller():
    for rules in ("standard", "reference"):
        for standard in ("DDR4", "DDR5", "MRDIMM"):
            page = standards()[standard].under(rules)
            for org in page.organisations:
                for timing in page.speeds:
                    device = resolve(standard, org, timing, 1 if standard == "MRDIMM" else 2, rules=rules)
                    policy = make_policy(ControllerOptions(), page.controller, page.choices, rules)
                    assert isinstance(make_controller(lower(device), policy), FastController), (org, timing)


def test_banks_of_a_group_that_are_farther_apart_than_one_bank_is_from_itself_take_the_other_controller():
    """20 ns to other banks of a group but 10 ns to the same: no distance of the group has both."""
    page = standards()["DDR5"]
    device = resolve("DDR5", "DDR5_16Gb_x8", "DDR5_4800AN", overrides={"nCCDM_WR": 48})
    policy = make_policy(ControllerOptions(), page.controller, page.choices, "standard")
    assert isinstance(make_controller(lower(device), policy), ScanController)


def requests(device: Device, writes: bool) -> list[np.ndarray]:
    rng, count = np.random.default_rng(5), 3000
    sizes = device.ranks, device.bankgroups, device.banks_per_group, 3, 16, 1 + writes
    return [*(rng.integers(0, size, count) for size in sizes), np.arange(count)]


@pytest.mark.parametrize(
    ("standard", "org", "timing"),
    [
        ("DDR5", "DDR5_16Gb_x8", "DDR5_7200B"),  # shorter distances to other banks of a group
        ("MRDIMM", "MRDIMM_16Gb_x8", "MRDIMM_8800B"),
    ],
)
@pytest.mark.parametrize("refresh", ["all-bank", "same-bank"])
def test_both_controllers_issue_the_same_legal_commands(standard, org, timing, refresh):
    device = resolve(standard, org, timing, 1 if standard == "MRDIMM" else 2)
    options = ControllerOptions(refresh=refresh)
    fast, commands = run_on(FastController, device, options, requests(device, writes=True))
    scan, others = run_on(ScanController, device, options, requests(device, writes=True))
    assert compare_channels(fast, scan) == []
    assert np.array_equal(commands.columns(), others.columns())
    assert check(commands, device, refresh=refresh).violations == ()


# MRDIMM: two pseudo-channels of DDR5 at half the rate.


def test_a_multiplexed_dimm_moves_twice_what_its_dram_does():
    device = resolve("MRDIMM", "MRDIMM_16Gb_x8", "MRDIMM_8800B")
    assert (device.parts, device.peak_gbps) == ({"ranks": 1, "pseudochannels": 2}, 8.8 * 4)
    assert resolve("MRDIMM", "MRDIMM_32Gb_x4", "MRDIMM_12800B").peak_gbps == 12.8 * 4
    anywhere = gbps("MRDIMM", "MRDIMM_16Gb_x8", "MRDIMM_8800B", ANYWHERE)
    assert anywhere > 1.85 * gbps("DDR5", "DDR5_16Gb_x8", "DDR5_4400B", ANYWHERE)
    # Lines in sequence, where the mapping has them on both pseudo-channels.
    stream = gbps("MRDIMM", "MRDIMM_16Gb_x8", "MRDIMM_8800B", np.arange(READS) * 64, mapper="MOP4CLXOR")
    assert stream == pytest.approx(35.2, rel=0.01)


def test_a_pseudo_channel_has_the_distances_of_a_rank_of_its_dram():
    """In ticks of half a clock; a command of two cycles takes three of them on the host's bus."""
    dram, module = (
        lower(resolve(standard, f"{standard}_16Gb_x8", timing, ranks))
        for standard, timing, ranks in (("DDR5", "DDR5_4400B", 1), ("MRDIMM", "MRDIMM_8800B", 1))
    )
    bound = dram.gap > -(1 << 30)
    bound[:2] = False  # of channel and rank: they are one here
    assert (module.gap[bound] == 2 * dram.gap[bound]).all()
    of_rank, of_pseudo = dram.gap[:2].max(axis=0), module.gap[1]
    bound = of_rank > 2  # longer than a command
    assert (of_pseudo[bound] == 2 * of_rank[bound]).all()
