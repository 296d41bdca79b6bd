"""Refresh policies: when refreshes fall due, what a waiting one holds back, what is postponed."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import numpy as np
import pytest

from builders.one_channel import run_on
from mistakes import refused
from ndpsim.audit import check
from ndpsim.base.errors import InputError
from ndpsim.base.options.dram import ControllerOptions
from ndpsim.config import Dram, load_hardware
from ndpsim.dram import refresh_policies, state
from ndpsim.dram.engines import FastController, ScanController, compare_channels, make_controller
from ndpsim.dram.mapping import MAPPERS, map_addresses
from ndpsim.dram.refresh_policies import Due, Refreshed, Schedule, Turn, make_schedule
from ndpsim.dram.spec import lower, resolve, standards
from ndpsim.dram.spec.standard import ONE_BANK, SAME_BANKS, WHOLE_RANK
from ndpsim.dram.traces import Requests
from ndpsim.simulate import run_trace
from ndpsim.simulate.lane import check_refresh
from ndpsim.simulate.memory import bus_policy
from ndpsim.simulate.timing import Probe

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
    options = ControllerOptions(refresh=reversed_banks, row_policy=row_policy)
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
    policy = state.make_policy(ControllerOptions())
    assert isinstance(make_controller(lower(resolve(*DDR5, 1)), policy), FastController)
    monkeypatch.setattr(state, "make_schedule", lambda *_: many)
    assert isinstance(make_controller(lower(resolve(*DDR5, 1)), policy), ScanController)


# ---- What a waiting refresh holds back, and refreshes that are postponed while requests wait

# A standard of each controller class with refreshes of banks, and the time in us of the case in which a waiting
# REFpb stopped all banks (PC-07): HBM3 none 39.2, all-bank 43.5, per-bank 52.4.
KINDS = {
    "DDR5": ("DDR5_16Gb_x8", "DDR5_4800AN", "same-bank"),
    "LPDDR5": ("LPDDR5_16Gb_x16", "LPDDR5_6400", "per-bank"),
    "LPDDR5X": ("LPDDR5X_16Gb_x16", "LPDDR5X_8533", "per-bank"),
    "HBM3": ("HBM3_16Gb_8hi", "HBM3_6400Mbps", "per-bank"),
    "GDDR6": ("GDDR6_8Gb_x8", "GDDR6_14000_1350mV_double", "per-bank"),
    "GDDR7": ("GDDR7_16Gb_x8", "GDDR7_28000_PAM3", "per-bank"),
}

HBM3_16_HIGH = "HBM3", "HBM3_16Gb_16hi", "HBM3_6400Mbps"


def addresses(device, count):
    """Random bursts of the memory's first half."""
    places = device.capacity_bytes // 2 // device.burst_bytes
    return np.random.default_rng(1).integers(0, places, count) * device.burst_bytes


def run(standard, refresh, count=8000, writes=0.0, **options):
    """Random requests, with a command trace."""
    org, timing, _ = KINDS[standard]
    device = resolve(standard, org, timing, rules=options.get("rules", "standard"))
    write = np.random.default_rng(2).random(count) < writes
    requests = addresses(device, count), write.astype(int)
    return run_trace(
        requests, standard, org, timing, refresh=refresh, record_commands=True, **options
    ), device


def commands_of(result):
    (trace,) = result.command_traces
    return trace


@pytest.mark.parametrize("standard", KINDS)
@pytest.mark.parametrize("writes", [0.0, 0.3])
def test_refreshes_of_banks_cost_less_than_those_of_ranks(standard, writes):
    """Other banks go on: random traffic is slower than without refreshes, and not slower than with REFab."""
    of_banks = KINDS[standard][2]
    (none, _), (ranks, _), (banks, device) = (
        run(standard, refresh, writes=writes) for refresh in ("none", "all-bank", of_banks)
    )
    assert none.time_ns < banks.time_ns <= ranks.time_ns
    # Its own trace is legal without an option, which names its refreshes.
    assert check(commands_of(banks), device, limit=3).violations == ()
    slow, _ = run(standard, of_banks, writes=writes, refresh_control="reference")
    assert banks.time_ns < slow.time_ns
    assert check(commands_of(slow), device, limit=3).violations == ()


@pytest.mark.parametrize(("org", "timing"), [("DDR5_16Gb_x8", "DDR5_6400B"), ("DDR5_16Gb_x16", "DDR5_4800B")])
def test_a_queue_with_room_for_requests_that_wait_makes_refreshes_of_banks_the_cheaper_ones(org, timing):
    """With 32 slots the requests for refreshed banks fill the queue, and REFab costs less (docs/memories.md)."""
    requests = addresses(resolve("DDR5", org, timing), 40_000), np.zeros(40_000, int)
    times = {
        (refresh, slots): run_trace(requests, "DDR5", org, timing, refresh=refresh, read_buffer=slots).time_ns
        for refresh in ("none", "same-bank", "all-bank")
        for slots in (32, 64)
    }
    assert times["none", 64] < times["same-bank", 64] < times["all-bank", 64]
    assert times["none", 32] < times["all-bank", 32] < times["same-bank", 32]


# Where the order is the expected one at full load with a queue of 32; docs/memories.md says where it is not.
ORDERED = [
    *(("HBM3", f"HBM3_16Gb_{high}hi", f"HBM3_{rate}Mbps") for high in (8, 16) for rate in (6400, 9600)),
    *(("HBM4", f"HBM4_32Gb_{high}Hi", "HBM4_8000Mbps") for high in (8, 16)),
    *(("LPDDR5", f"LPDDR5_{gb}Gb_x16", "LPDDR5_6400") for gb in (8, 32)),
    ("LPDDR5X", "LPDDR5X_32Gb_x16", "LPDDR5X_8533"),
    ("GDDR7", "GDDR7_16Gb_x8", "GDDR7_28000_PAM3"),
    ("DDR5", "DDR5_16Gb_x8", "DDR5_4800B"),
]


@pytest.mark.parametrize(("standard", "org", "timing"), ORDERED)
def test_refreshes_of_banks_lie_between_none_and_those_of_ranks(standard, org, timing):
    requests = addresses(resolve(standard, org, timing), 20_000), np.zeros(20_000, int)
    of_banks = "same-bank" if standard == "DDR5" else "per-bank"
    none, banks, ranks = (
        run_trace(requests, standard, org, timing, refresh=refresh).time_ns
        for refresh in ("none", of_banks, "all-bank")
    )
    assert none < banks < ranks


def test_most_refreshes_of_a_bank_are_the_last_commands_of_a_window():
    """tRREFD then holds activations back little longer than tFAW does; of one before, up to 12 clocks longer."""
    device = resolve(*HBM3_16_HIGH)
    requests = addresses(device, 8000), np.zeros(8000, int)
    (trace,) = run_trace(requests, *HBM3_16_HIGH, refresh="per-bank", record_commands=True).command_traces
    names, timings = np.array(trace.names)[trace.command], device.timings
    late = (timings["nFAW"] - timings["nRREFD"] + timings["nRRDS"]) * device.standard.ticks_per_clock
    are_last = []
    for rank in range(device.ranks):
        places = np.flatnonzero(np.isin(names, ["ACT", "REFpb"]) & (trace.rank == rank))
        of_four = np.stack((places[:-3], places[3:]), axis=1)
        third_last, refresh = trace.clock[of_four[names[of_four[:, 1]] == "REFpb"]].T
        are_last += (refresh - third_last <= late).tolist()
    assert len(are_last) > 500
    assert np.mean(are_last) > 0.5  # 0.03 where a refresh does not wait


def test_a_refresh_waits_for_further_activations_half_of_a_window_at_most():
    """By hand, in ticks of HBM3, two a clock: tRP behind the PREpb, and half of tFAW, which counts from the last
    of the 4 ticks of an ACT. None comes."""
    device = resolve(*HBM3_16_HIGH)
    due = device.clocks("nREFIpb")
    requests = replace(Requests.of([0, 0], [0, 0]), cycle=np.array([due - 120, 2000]))
    options = {"mapper": "ChRaBaRoCo", "refresh": "per-bank", "record_commands": True}
    trace = commands_of(run_trace(requests, *HBM3_16_HIGH, **options))
    names, own = np.array(trace.names)[trace.command], trace.rank == 0
    closed = trace.clock[(names == "PREpb") & own][0]
    refreshed = trace.clock[(names == "REFpb") & own][0]
    assert closed == due
    assert refreshed - closed == 2 * device.timings["nRP"] + (2 * device.timings["nFAW"] + 3) // 2


def test_only_the_requests_for_its_banks_wait():
    """Between the PREsb of a bank number and its REFsb its banks get no ACT; the others do."""
    trace = commands_of(run("DDR5", "same-bank")[0])
    names = np.array(trace.names)[trace.command]
    refreshes, own, others = np.flatnonzero(names == "REFsb"), 0, 0
    closing = np.flatnonzero(names == "PREsb")
    for place in refreshes.tolist():
        begin = closing[closing < place]
        if not len(begin) or trace.bank[begin[-1]] != trace.bank[place]:
            continue
        between = slice(begin[-1] + 1, place)
        acts = trace.bank[between][names[between] == "ACT"]
        own += np.count_nonzero(acts == trace.bank[place])
        others += np.count_nonzero(acts != trace.bank[place])
    assert own == 0
    assert others > len(refreshes)


@pytest.mark.parametrize(("standard", "write"), [*((name, 0) for name in KINDS), ("DDR5", 1), ("HBM3", 1)])
def test_banks_without_requests_are_refreshed_first_and_each_once_in_a_round(standard, write):
    org, timing, of_banks = KINDS[standard]
    device = resolve(standard, org, timing)
    # Requests for one bank: its refresh comes last.
    mapping = MAPPERS["ChRaBaRoCo"]
    address = np.random.default_rng(4).integers(0, device.rows, 4000) * device.bursts_per_row
    address = address * device.burst_bytes
    place = map_addresses(address, mapping, device)
    assert {len(np.unique(place.bank)), len(np.unique(place.bankgroup))} == {1}
    result = run_trace(
        (address, np.full(4000, write)), standard, org, timing, mapper="ChRaBaRoCo", refresh=of_banks,
        record_commands=True,
    )  # fmt: skip
    trace = commands_of(result)
    is_refresh = np.char.startswith(np.array(trace.names), "REF")[trace.command] & (trace.rank == 0)
    number = trace.bankgroup * device.banks_per_group + trace.bank
    if of_banks == "same-bank":
        number = trace.bank
    elif standard.startswith("LPDDR5"):
        number = number % (device.banks_per_rank // 2)
    # JESD238: there is a pause after the 16 banks of a stack, HBM3 of 8 high has two.
    order, of_all = number[is_refresh], len(np.unique(number[is_refresh]))
    of_round = min(of_all, 16)
    rounds = order[: len(order) // of_all * of_all].reshape(-1, of_round)[:: of_all // of_round]
    assert len(rounds) > 1
    assert (np.sort(rounds) == np.arange(of_round)).all()
    assert (rounds[:, -1] == 0).all()
    assert check(trace, device, limit=3).violations == ()


def issued_in(
    of_requests: list[tuple[int, int, int]], name: str, writes: int = 0, ranks: int = 1
) -> list[tuple[int, int]]:
    """The clock and bank number of each command of a name under same-bank refresh of DDR5.

    Requests have a bank number in group 0, a row and a cycle; the first `writes` are writes, the others reads.
    """
    device = resolve(*DDR5, 1)
    bank, row, cycle = np.array(of_requests).T
    burst = (bank * device.rows + row) * device.bursts_per_row  # ChRaBaRoCo: the group is above the bank
    requests = Requests.of(burst * device.burst_bytes, (np.arange(len(bank)) < writes).astype(int))
    options = {"mapper": "ChRaBaRoCo", "refresh": "same-bank", "record_commands": True}
    trace = commands_of(run_trace(replace(requests, cycle=cycle), *DDR5, ranks=ranks, **options))
    places = np.array(trace.names)[trace.command] == name
    return list(zip(trace.clock[places].tolist(), trace.bank[places].tolist(), strict=True))


def test_of_banks_for_which_as_many_requests_wait_the_first_is_refreshed():
    """None waits; then one for each, which has to wait for tRAS of the row that is open."""
    device = resolve(*DDR5, 1)
    due = device.clocks("nREFI2") // device.banks_per_group
    idle = issued_in([(0, 0, 0), (0, 0, 5 * due)], "REFsb")
    assert [bank for _, bank in idle[:4]] == [0, 1, 2, 3]
    banks = range(device.banks_per_group)
    waiting = [(bank, row, due - 60 + 30 * row) for row in (0, 1) for bank in banks]
    assert device.timings["nRAS"] > 60
    assert issued_in([*waiting, (0, 0, 2 * due)], "REFsb")[0][1] == 0


def test_an_activation_issues_if_a_refresh_that_becomes_ready_can_follow_it():
    """By hand: REFsb follows the last of the 2 clocks of an ACT after tRRD_L (JESD79-5)."""
    device = resolve(*DDR5, 1)
    due = device.clocks("nREFI2") // device.banks_per_group
    opened = (0, 0, due - 200)
    (refreshed, bank), *_ = issued_in([opened, (0, 0, 2 * due)], "REFsb")
    assert (refreshed, bank) == (due + device.timings["nRP"], 0)
    for late in (0, 1):
        last = refreshed - device.timings["nRRDL"] - 1
        requests = [opened, (1, 0, last - 1 + late), (0, 0, 2 * due)]
        (_, _), (activated, _), *_ = issued_in(requests, "ACT")
        assert (activated == last) if not late else (activated > refreshed)
        assert issued_in(requests, "REFsb")[0][0] == refreshed


def test_a_refresh_waits_for_earlier_ones_of_its_own_rank_only():
    """A row of rank 0 is opened shortly before both ranks are due."""
    device = resolve(*DDR5, 2)
    due = device.clocks("nREFI2") // device.banks_per_group
    (first, _), (second, _), *_ = issued_in([(0, 0, due - 5), (0, 0, 2 * due)], "REFsb", ranks=2)
    assert first == due
    assert second >= due - 5 + device.timings["nRAS"] + device.timings["nRP"]


def test_the_read_of_a_bank_whose_refresh_waits_comes_before_an_older_one():
    """Both rows are open and wait for tWTR_L of a write when the refresh of bank 0 falls due."""
    device = resolve(*DDR5, 1)
    due = device.clocks("nREFI2") // device.banks_per_group
    for before, order in ((20, [0, 1]), (220, [1, 0])):
        written = due - before
        requests = [(2, 0, written - 42), (1, 0, written + 1), (0, 0, written + 2), (0, 0, 2 * due)]
        opened = [clock for clock, _ in issued_in(requests, "ACT", writes=1)[:3]]
        (read, bank), (next_read, next_bank), *_ = issued_in(requests, "RD", writes=1)
        assert opened[2] < written + 20 < read
        assert ([bank, next_bank], next_read - read) == (order, device.timings["nCCDL"])


def test_activations_let_a_refresh_pass_that_is_ready():
    """ACTs every tRRD_S = 8 clocks would hold a REFsb, tRRD_L = 12 after an ACT, back for ever."""
    result, device = run("DDR5", "same-bank")
    trace = commands_of(result)
    clock = trace.clock[np.array(trace.names)[trace.command] == "REFsb"]
    due = (1 + np.arange(len(clock))) * device.clocks("nREFI2") // device.banks_per_group
    assert (clock - due).max() < 3 * device.clocks("nRC")


@pytest.mark.parametrize("standard", KINDS)
def test_nothing_goes_to_a_rank_while_it_is_refreshed(standard):
    """A PRE of closed-cap whose bank the PREab has closed is dropped (JESD79-5: no command within tRFC).

    The time counts to the last cycle of an activation.
    """
    org, timing, _ = KINDS[standard]
    device = resolve(standard, org, timing)
    count, interval = 600, device.clocks("nREFI")
    rng = np.random.default_rng(3)
    cycle = np.sort(
        np.concatenate([n * interval - rng.integers(0, 90, 60) for n in range(1, count // 60 + 1)])
    )
    requests = replace(Requests.of(addresses(device, count), np.zeros(count, dtype=int)), cycle=cycle)
    options = {"row_policy": "closed-cap", "row_cap": 1, "record_commands": True}
    trace = commands_of(run_trace(requests, standard, org, timing, **options))
    assert check(trace, device, limit=3).violations == ()
    scopes = [device.standard.scope_of(one) for one in device.standard.by_number]
    refreshes = [
        number
        for number, one in enumerate(device.standard.by_number)
        if one.refreshes and scopes[number] == WHOLE_RANK
    ]
    busy = device.clocks(device.standard.by_number[refreshes[0]].busy)
    whole = np.flatnonzero(np.isin(trace.command, refreshes))
    assert len(whole) > 5
    known = {one.name: one.cycles for one in device.standard.by_number}
    lasts = np.array([one.cycles + known.get(one.completed_by, 0) - 1 for one in device.standard.by_number])
    last = trace.clock + lasts[trace.command]
    for place in whole.tolist():
        inside = (trace.clock > trace.clock[place]) & (last < trace.clock[place] + busy)
        assert not (inside & (trace.rank == trace.rank[place])).any()


def test_the_checker_refuses_a_precharge_of_a_rank_that_is_refreshed():
    device = resolve("DDR5", "DDR5_16Gb_x8", "DDR5_4800AN", 1)
    names = device.standard.names
    for name, at, rule in (
        ("PREpb", 9454, "tRFC"),
        ("RD", 9454, "row state"),
        ("ACT", 9453 + device.clocks("nRFC") - 2, "tRFC"),
    ):
        line = np.array(
            [[9453, names.index("REFab"), 0, -1, -1, -1, -1], [at, names.index(name), 0, 1, 2, -1, -1]]
        )
        line[1, 5:] = [(-1, -1), (5, 3), (5, -1)][("PREpb", "RD", "ACT").index(name)]
        trace = commands_of(run("DDR5", "all-bank", count=10)[0])
        report = check(type(trace).of(line.T, names), device, "none")
        assert rule in {one.rule for one in report.violations}, name


@pytest.mark.parametrize("standard", [*KINDS, "HBM4", "LPDDR6"])
def test_no_precharge_goes_to_a_bank_that_is_being_refreshed(standard):
    more = {
        "HBM4": ("HBM4_32Gb_8Hi", "HBM4_8000Mbps", ""),
        "LPDDR6": ("LPDDR6_16Gb_x12", "LPDDR6_10667_BL24", ""),
    }
    org, timing, _ = (KINDS | more)[standard]
    spec = resolve(standard, org, timing).standard
    for command in (one for one in spec.by_number if one.refreshes or one.manages):
        probe = Probe(standard, org, timing)
        bank = {} if spec.scope_of(command) == WHOLE_RANK else {"bank": 0}
        done = probe.issue(command.name, **bank)
        waits = probe.why("PREpb", bank=0)
        assert waits.rule.startswith(("tRFC", "tRFM")), command.name
        assert waits.clock == done + waits.clocks > done + 50, command.name


def test_a_precharge_that_is_not_dropped_waits_for_the_end_of_a_refresh():
    """With `--refresh-control reference` a PRE of closed-cap may wait when the PREab of a refresh comes."""
    org, timing, _ = KINDS["HBM3"]
    overrides = {"nRTP": 40}
    device = resolve("HBM3", org, timing, overrides=overrides)
    write = np.random.default_rng(2).random(3000) < 0.5
    result = run_trace(
        (np.arange(3000) * device.burst_bytes, write.astype(int)), "HBM3", org, timing, row_policy="closed-cap",
        row_cap=2, refresh_control="reference", overrides=overrides, record_commands=True,
    )  # fmt: skip
    trace = commands_of(result)
    assert check(trace, device, limit=3).violations == ()
    busy, names = device.clocks("nRFC"), np.array(trace.names)[trace.command]
    for place in np.flatnonzero(names == "REFab").tolist():
        inside = (trace.clock > trace.clock[place]) & (trace.clock < trace.clock[place] + busy)
        assert "PREpb" not in names[inside & (trace.rank == trace.rank[place])]


# ---- Elastic refresh


def bursty(device, count=6000, of=300, every=6000):
    """Bursts of random reads at once, with idle time between them."""
    requests = Requests.of(addresses(device, count), np.zeros(count, dtype=int))
    return replace(requests, cycle=np.arange(count) // of * every + 5000)


@pytest.mark.parametrize("standard", ["DDR4", "DDR5"])
def test_elastic_refreshes_stay_out_of_the_way_of_bursts(standard):
    preset = ("DDR4_8Gb_x8", "DDR4_3200AA") if standard == "DDR4" else KINDS["DDR5"][:2]
    device = resolve(standard, *preset, 1)
    results = {
        refresh: run_trace(bursty(device), standard, *preset, refresh=refresh, record_commands=True)
        for refresh in ("none", "all-bank", "elastic")
    }
    latency = {name: result.read_latency_ns["mean"] for name, result in results.items()}
    # Nearly all that refreshes cost is gone. What they close no request has to close.
    assert abs(latency["elastic"] - latency["none"]) < 0.3 * (latency["all-bank"] - latency["none"])
    trace = commands_of(results["elastic"])
    assert check(trace, device, "elastic", limit=3).violations == ()
    assert check(trace, device, limit=3).violations == ()


def test_elastic_refreshes_are_postponed_and_pulled_in_as_far_as_allowed():
    """JESD79-5: four in a row may be postponed, and four pulled in."""
    org, timing, _ = KINDS["DDR5"]
    device = resolve("DDR5", org, timing)
    busy = run_trace(
        (addresses(device, 6000), np.zeros(6000, dtype=int)), "DDR5", org, timing,
        refresh="elastic", record_commands=True,
    )  # fmt: skip
    trace = commands_of(busy)
    interval = device.clocks("nREFI")
    clock = trace.clock[np.array(trace.names)[trace.command] == "REFab"]
    assert 4 * interval <= clock[0] < 4 * interval + 400
    assert check(trace, device, limit=3).violations == ()
    idle = Requests.of(addresses(device, 2), np.zeros(2, dtype=int))
    idle = replace(idle, cycle=np.array([0, 3 * interval]))
    trace = commands_of(run_trace(idle, "DDR5", org, timing, refresh="elastic", record_commands=True))
    clock = trace.clock[np.array(trace.names)[trace.command] == "REFab"]
    assert np.count_nonzero(clock < interval) == 4
    assert check(trace, device, limit=3).violations == ()


@pytest.mark.parametrize("owed", range(4))
def test_the_more_refreshes_a_rank_owes_the_less_idle_time_it_waits_for(owed):
    """A read every 100 clocks leaves no idle time; behind the last one it is tRFC, less a quarter for each owed."""
    org, timing, _ = KINDS["DDR5"]
    device = resolve("DDR5", org, timing)
    count = int((owed + 0.5) * device.clocks("nREFI")) // 100
    address = np.arange(count + 1) % 64 * 64
    address[count - 1] = 1 << 30  # its row is closed: it is no idle time either until its RD
    requests = Requests.of(address, np.zeros(count + 1, dtype=int))
    requests = replace(requests, cycle=np.append(np.arange(count), count + 60) * 100)
    trace = commands_of(run_trace(requests, "DDR5", org, timing, refresh="elastic", record_commands=True))
    names = np.array(trace.names)[trace.command]
    last = trace.clock[names == "RD"][count - 1]
    (closed, *_), (refreshed, *_) = (trace.clock[names == name] for name in ("PREab", "REFab"))
    assert closed - last - 1 == device.clocks("nRFC") * (4 - owed) // 4
    assert refreshed - closed == device.clocks("nRP")


def test_options_are_checked():
    with refused("unknown-name refresh_control ? own-bank"):
        run("DDR5", "same-bank", refresh_control="bank")
    with pytest.raises(InputError, match="only ndpsim dram postpones refreshes"):
        hardware = load_hardware("trimoe", ["dram.refresh=elastic"])
        bus_policy(hardware.system.dram, hardware.bus_device(1))
