"""Refresh policies: when which refresh falls due, and that a policy is one file."""

from __future__ import annotations

from typing import get_args

import numpy as np
import pytest

from builders.one_channel import run_on
from mistakes import refused
from ndpsim.audit import check
from ndpsim.config import Dram
from ndpsim.dram import refresh_policies, state
from ndpsim.dram.engines import FastController, ScanController, compare_channels, make_controller
from ndpsim.dram.refresh_policies import Due, Refreshed, Schedule, Turn, make_schedule
from ndpsim.dram.spec import lower, resolve, standards
from ndpsim.dram.spec.standard import ONE_BANK, SAME_BANKS, WHOLE_RANK
from ndpsim.simulate.lane import check_refresh

COMMANDS = standards()["DDR5"].by_number

DDR5 = ("DDR5", "DDR5_16Gb_x8", "DDR5_4800AN")

# A channel with commands 21, 22 and 23 that refresh a rank, one bank of every group, and one bank.
REFAB, REFSB, REFPB = 21, 22, 23
CHANNEL = Refreshed(4, 2, 4, {WHOLE_RANK: (REFAB, 1003), SAME_BANKS: (REFSB, 1003), ONE_BANK: (REFPB, 130)})

# By hand, for 4 ranks, 2 groups of 4 banks and these clocks: clock, command, rank and bank.
TURNS = {
    "all-bank": [(1003, REFAB, -1, -1)],
    "elastic": [(1003, REFAB, -1, -1)],
    "none": [],
    "per-bank": [(130 * (bank + 1), REFPB, -1, bank) for bank in range(8)],
    "same-bank": [(250, REFSB, -1, 0), (501, REFSB, -1, 1), (752, REFSB, -1, 2), (1003, REFSB, -1, 3)],
    "staggered": [(250, REFAB, 0, -1), (500, REFAB, 1, -1), (750, REFAB, 2, -1), (1000, REFAB, 3, -1)],
}


def test_the_policies_are_the_modules_of_their_folder():
    names = get_args(Dram.model_fields["refresh"].annotation)
    assert set(TURNS) == set(names)
    assert refresh_policies.NAMES[: len(names)] == names
    assert names[0] == Dram.model_fields["refresh"].default


@pytest.mark.parametrize("name", TURNS)
def test_turns_of_an_interval(name):
    schedule = make_schedule(name, CHANNEL)
    assert [turn[:4] for turn in schedule.turns] == TURNS[name]
    assert schedule.period == {"none": 1, "per-bank": 1040}.get(name, 1003)


@pytest.mark.parametrize(("counts_from", "pause"), [("issue", 40), ("request", 0)])
@pytest.mark.parametrize("order", ["together", "a clock apart", "in turn"])
def test_a_round_ends_with_the_last_rank_of_its_last_bank(order, counts_from, pause):
    channel = CHANNEL._replace(
        ranks=2, orders={ONE_BANK: order}, rounds={ONE_BANK: refresh_policies.Round(4, 40, counts_from)}
    )
    turns = make_schedule("per-bank", channel).turns
    ends = [(turn.rank, turn.bank) for turn in turns if turn.pause]
    rank = {"together": [-1], "a clock apart": [1], "in turn": [0, 1]}[order]
    assert ends == [(one, bank) for one in rank for bank in (3, 7)] * (pause > 0)
    assert {turn.pause for turn in turns} == {0, pause}


def test_a_pause_that_counts_from_requests_makes_the_period_longer_where_it_must():
    # A round of all 8 banks: 7 intervals, a clock to the other rank, and the pause; else 8 intervals.
    for pause, period in ((40, 8 * 130), (129, 8 * 130), (130, 8 * 130 + 1), (1000, 7 * 130 + 1 + 1000)):
        rounds = {ONE_BANK: refresh_policies.Round(8, pause, "request")}
        channel = CHANNEL._replace(ranks=2, orders={ONE_BANK: "a clock apart"}, rounds=rounds)
        assert make_schedule("per-bank", channel).period == period


# Of 2 ranks with 2 banks: clock, rank and bank.
ORDERS = {
    "together": [(130, -1, 0), (260, -1, 1)],
    "a clock apart": [(130, 0, 0), (131, 1, 0), (260, 0, 1), (261, 1, 1)],
    "in turn": [(130, 0, 0), (260, 0, 1), (390, 1, 0), (520, 1, 1)],
}


@pytest.mark.parametrize(("order", "turns"), ORDERS.items())
def test_refreshes_of_a_bank_fall_due_in_the_order_of_the_ranks(order, turns):
    schedule = make_schedule("per-bank", Refreshed(2, 1, 2, {ONE_BANK: (REFPB, 130)}, {ONE_BANK: order}))
    assert [(one.clock, one.rank, one.bank) for one in schedule.turns] == turns
    assert schedule.period == (520 if order == "in turn" else 260)


@pytest.mark.parametrize("name", TURNS)
def test_refreshes_due_before_a_clock_are_those_with_an_earlier_clock(name):
    schedule = make_schedule(name, CHANNEL)
    every = [clock + interval * schedule.period for interval in range(4) for clock, *_ in TURNS[name]]
    for clock in [
        1,
        2,
        *(at + step for at in (250, 500, 501, 752, 1000, 1003) for step in (0, 1, 1003, 1004)),
    ]:
        assert schedule.due_before(clock) == sum(at < clock for at in every)


def test_turns_beyond_an_interval_come_again_after_several(monkeypatch):
    every = [Turn(700, WHOLE_RANK), Turn(2100, WHOLE_RANK)]
    channel = CHANNEL._replace(commands={WHOLE_RANK: (REFAB, 1000)})
    monkeypatch.setattr(
        refresh_policies, "import_module", lambda name: type("", (), {"turns": lambda *_: every})
    )
    schedule = make_schedule("any", channel)
    assert schedule == Schedule((Due(700, REFAB, -1, -1), Due(2100, REFAB, -1, -1)), 3000)
    assert [schedule.due_before(clock) for clock in (700, 701, 2101, 3700, 3701)] == [0, 1, 2, 2, 3]


def test_a_refresh_whose_command_the_standard_lacks_is_refused(reversed_banks):
    with refused("unknown-name refresh"):
        check_refresh(resolve("DDR4", "DDR4_8Gb_x8", "DDR4_2400R", 1), reversed_banks)


def reads(device, count):
    rng = np.random.default_rng(3)
    sizes = (device.ranks, device.bankgroups, device.banks_per_group, 64, 64)
    return [*(rng.integers(0, size, count) for size in sizes), rng.integers(0, 2, count), np.arange(count)]


@pytest.mark.parametrize("row_policy", ["open", "closed-cap"])
@pytest.mark.parametrize("ranks", [1, 2])
def test_a_policy_of_one_file_runs_through_both_controllers(reversed_banks, ranks, row_policy):
    device = resolve(*DDR5, ranks)
    options = state.ControllerOptions(refresh=reversed_banks, row_policy=row_policy)
    (fast, one), (readable, other) = (
        run_on(make, device, options, reads(device, 6000)) for make in (FastController, ScanController)
    )
    assert one.columns().T.tolist() == other.columns().T.tolist()
    assert compare_channels(fast, readable) == []
    assert check(one, device, "same-bank").ok
    refreshed = one.command == [command.name for command in COMMANDS].index("REFsb")
    banks = one.bank[refreshed & (one.rank == ranks - 1)]
    assert len(banks) > 8
    assert banks.tolist() == [3 - number % 4 for number in range(len(banks))]


def test_a_schedule_too_long_for_the_fast_controller_runs_in_the_general_one(monkeypatch):
    many = Schedule(tuple(Due(100 * n, 9, 0, n % 4) for n in range(1, 130)), 12_900)
    policy = state.make_policy(state.ControllerOptions())
    assert isinstance(make_controller(lower(resolve(*DDR5, 1)), policy), FastController)
    monkeypatch.setattr(state, "make_schedule", lambda *_: many)
    assert isinstance(make_controller(lower(resolve(*DDR5, 1)), policy), ScanController)
