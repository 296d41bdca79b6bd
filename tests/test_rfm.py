"""Refresh management (RFM): counters of activations, RFM commands, and their check."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

import ndpsim
from builders.command_lines import named
from builders.one_channel import run_on
from calls import refused_call, said
from mistakes import refused
from ndpsim.audit import check
from ndpsim.base.errors import InputError
from ndpsim.base.options.dram import ControllerOptions
from ndpsim.config import load_hardware
from ndpsim.dram.energy.channel import counts_of
from ndpsim.dram.engines import FastController, ScanController, compare_channels, make_controller
from ndpsim.dram.spec import Device, resolve, standards
from ndpsim.dram.spec.standard import ACTIVATE, SAME_BANKS, WHOLE_RANK
from ndpsim.dram.state import REFRESH_FROM
from ndpsim.dram.traces import Requests
from ndpsim.simulate import Memory, run_trace
from ndpsim.simulate.memory import policy_of

DDR5 = ("DDR5", "DDR5_16Gb_x8", "DDR5_4800AN")
HBM3 = ("HBM3", "HBM3_8Gb_8hi", "HBM3_6400Mbps")
LPDDR5 = ("LPDDR5", "LPDDR5_32Gb_x16", "LPDDR5_6400")


def hot_requests(device: Device, rows: int = 2, count: int = 600) -> list[np.ndarray]:
    """Reads of some rows of bank 1 of bank group 2 in turn, all of them in different bursts."""
    number, none = np.arange(count), np.zeros(count, dtype=np.int64)
    return [none, none + 2, none + 1, number % rows, number // rows % device.bursts_per_row, none, number]


def commands(device: Device, requests: list[np.ndarray], make=make_controller, **options):
    """The commands for requests of which one is queued at a time, so that each finds its row closed."""
    return run_on(make, device, ControllerOptions(read_buffer=1, **options), requests)[1]


def counters_by_hand(trace, device: Device, threshold: int, by_refresh: int) -> list[int]:
    """The counters of banks at each RFM, replayed by JESD79-5, 4.41, before the RFM lowers them; and at its end.

    Also checks that no bank has more activations than the threshold at any time.
    """
    kinds, counter, at_rfm = device.standard.by_number, Counter(), []
    banks = device.bankgroups * device.banks_per_group
    for _, number, rank, group, bank, _, _ in trace.columns().T.tolist():
        kind = kinds[number]
        if kind.opens:
            counter[rank, group, bank] += 1
            assert counter[rank, group, bank] <= threshold
        elif kind.refreshes or kind.manages:
            scope = device.standard.scope_of(kind)
            of_all = [(rank, *divmod(place, device.banks_per_group)) for place in range(banks)]
            hit = [one for one in of_all if scope == WHOLE_RANK or one[2] == bank]
            hit = hit if scope in (WHOLE_RANK, SAME_BANKS) else [one for one in hit if one[1] == group]
            if kind.manages:
                at_rfm.append(max(counter[one] for one in hit))
            for one in hit:
                counter[one] = max(0, counter[one] - (threshold if kind.manages else by_refresh))
    return at_rfm


@pytest.mark.parametrize(
    ("preset", "rfm"),
    [(DDR5, "same-bank"), (DDR5, "all-bank"), (HBM3, "per-bank"), (HBM3, "all-bank")],
)
def test_rfm_follows_the_activation_that_reaches_the_threshold(preset, rfm):
    device = resolve(*preset)
    options = dict(rfm=rfm, rfm_threshold=8, row_policy="open")
    trace = commands(device, hot_requests(device), refresh="none", **options)
    at_rfm = counters_by_hand(trace, device, 8, 4)
    names = trace.to_arrays()["command"].tolist()
    assert set(at_rfm) == {8}
    assert names.count(device.standard.names[ACTIVATE]) == 600
    assert len(at_rfm) == 599 // 8  # the last one waits when the run ends
    # A refresh takes half a threshold off (MR59 of JESD79-5C), so that fewer RFM are due.
    with_refresh = commands(device, hot_requests(device), refresh="all-bank", **options)
    fewer = counters_by_hand(with_refresh, device, 8, 4)
    assert set(fewer) == {8}
    assert len(fewer) < len(at_rfm)


@pytest.mark.parametrize("make", [ScanController, make_controller])
def test_rfm_delays_others_from_the_clock_after_its_activation(make):
    device = resolve(*DDR5)
    options = ControllerOptions(read_buffer=1, refresh="none", rfm="all-bank", rfm_threshold=8)
    channel, trace = run_on(make, device, options, hot_requests(device, count=9))
    activated = trace.clock[trace.command == ACTIVATE]
    assert trace.to_arrays()["command"].tolist().count("RFMab") == 1
    assert channel.value[REFRESH_FROM] == activated[7] + 1


def test_the_threshold_is_that_of_the_page_unless_it_is_given():
    limits = standards()["DDR5"].management
    # JESD79-5C: RAAIMT 32 to 80 (MR58 OP[4:1]), RAAMMT 3 to 6 times it (OP[7:5]), REF all or half (MR59 OP[7:6]).
    assert (limits.threshold, limits.multiple, limits.refreshes) == (32, 3, 2)
    device = resolve(*DDR5)
    trace = commands(device, hot_requests(device, count=320), refresh="none", rfm="same-bank")
    assert len(counters_by_hand(trace, device, 32, 16)) == 319 // 32
    assert all(one.management.source for one in standards().values() if one.management is not None)


def test_off_there_is_none():
    device = resolve(*DDR5)
    trace = commands(device, hot_requests(device))
    assert not any(name.startswith("RFM") for name in trace.to_arrays()["command"].tolist())


def test_under_the_rules_of_the_reference_counters_are_cleared_and_refreshes_change_nothing():
    # RFMManager of Ramulator 2.1: at the threshold all counters are cleared, and 80 is its default.
    device = resolve(*DDR5, ranks=2, rules="reference")
    assert policy_of(ControllerOptions(rfm="all-bank"), device).rfm.threshold == 80
    requests = hot_requests(device)
    requests[0] = np.arange(600) // 2 % 2  # both ranks in turn
    options = dict(rfm="all-bank", rfm_threshold=8)
    names = commands(device, requests, refresh="none", **options).to_arrays()["command"].tolist()
    every = commands(device, requests, refresh="all-bank", **options).to_arrays()["command"].tolist()
    assert names.count("RFMab") == every.count("RFMab")
    # The first rank to reach 8 clears the counter of the other, which has as many but one.
    assert names.count("RFMab") == pytest.approx(names.count("ACT") / 15, abs=3)


def drawn(device: Device, seed: int, count: int = 1000) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    sizes = (device.ranks, 2, device.banks_per_group, 6, device.bursts_per_row)
    places = [rng.integers(0, size, count) for size in sizes]
    write = (rng.random(count) < 0.3).astype(np.int64)
    return [*places, write, np.ravel_multi_index(places, sizes)]


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize(
    ("preset", "scopes"),
    [
        (DDR5, ["all-bank", "same-bank"]),
        pytest.param(HBM3, ["all-bank", "per-bank"], marks=pytest.mark.long),
        pytest.param(LPDDR5, ["all-bank", "per-bank"], marks=pytest.mark.long),
    ],
)
def test_both_controllers_agree(preset, scopes, seed):
    rng = np.random.default_rng(seed)
    pick = lambda values: values[rng.integers(len(values))]  # noqa: E731
    refreshes = ["all-bank", "none", "same-bank" if preset == DDR5 else "per-bank"]
    options = ControllerOptions(
        rfm=pick(scopes),
        rfm_threshold=pick([1, 2, 5, 16]),
        refresh=pick(refreshes),
        refresh_control=pick([None, "reference"]),
        read_buffer=pick([1, 5, 32]),
    )
    ranks = 1 if preset == HBM3 else pick([1, 2, 4])
    device = resolve(*preset, ranks)
    requests = drawn(device, seed)
    (plain, one), (fast, other) = (
        run_on(make, device, options, requests) for make in (ScanController, make_controller)
    )
    assert isinstance(fast, FastController)
    assert one == other
    assert compare_channels(plain, fast) == []
    if options.rfm_threshold < 16:
        assert sum(name.startswith("RFM") for name in one.to_arrays()["command"].tolist()) > 0
    report = check(one, device, "none", rfm=options.rfm, rfm_threshold=options.rfm_threshold)
    assert report.ok, report


def test_where_rfm_has_other_rules_than_the_refresh_the_plain_controller_runs_it():
    # LPDDR5 of 16 Gb: RFMpb takes 190 ns, REFpb 140 ns.
    device = resolve("LPDDR5", "LPDDR5_16Gb_x16", "LPDDR5_6400")
    assert device.timings["nRFMpb"] > device.timings["nRFCpb"]
    options = ControllerOptions(rfm="per-bank", rfm_threshold=4, refresh="per-bank")
    made, trace = run_on(make_controller, device, options, drawn(device, 1, 200))
    assert isinstance(made, ScanController)
    assert check(trace, device, "none", rfm="per-bank", rfm_threshold=4).ok


# ---- The checker


def test_a_bank_with_too_many_activations_is_reported_once():
    device = resolve(*DDR5)
    trace = commands(device, hot_requests(device, count=200), refresh="none")
    assert check(trace, device, "none").ok
    report = check(trace, device, "none", rfm="same-bank", rfm_threshold=4)
    assert report.count == 1
    assert "refresh management: bankgroup 2 bank 1 has more than 12" in report.violations[0].message
    assert check(trace, device, "none", rfm="same-bank", rfm_threshold=80).ok  # 200 do not exceed 240
    assert check(trace, device, "none", rfm="same-bank").count == 1  # but 96


def test_rfm_obeys_the_rules_of_the_page():
    device = resolve(*DDR5)
    clocks = device.timings
    opened = (2, "ACT", 0, 0, 1, 5, -1)
    closed = 2 + clocks["nRAS"] + 1
    open_still = named(opened, (200, "RFMsb", 0, -1, 1, -1, -1))
    assert [one.rule for one in check(open_still, device, "none").violations] == ["row state"]
    for early in (0, 1):
        at = closed + clocks["nRP"] - early
        trace = named(opened, (closed, "PREpb", 0, 0, 1, -1, -1), (at, "RFMsb", 0, -1, 1, -1, -1))
        assert {one.rule for one in check(trace, device, "none").violations} == (
            {"tRP", "tRC"} if early else set()
        )
    # tRFMsb is tRFCsb (JESD79-5C, Table 169).
    assert clocks["nRFMsb"] == clocks["nRFCsb"]
    for early in (0, 1):
        again = named(
            (2, "RFMsb", 0, -1, 1, -1, -1), (2 + clocks["nRFMsb"] - 1 - early, "ACT", 0, 3, 1, 5, -1)
        )
        rules = {one.rule for one in check(again, device, "none").violations}
        assert rules == ({"tRFMsb"} if early else set())


# ---- What it costs


def test_it_takes_bandwidth_from_hot_rows_and_none_from_a_stream():
    rng = np.random.default_rng(3)
    rows = rng.integers(0, 256, 20_000) << 20
    hot = Requests.of(rows | rng.integers(0, 64, 20_000) << 6, np.zeros(20_000, dtype=np.int64))
    stream = Requests.of(np.arange(20_000) * 64, np.zeros(20_000, dtype=np.int64))
    options = dict(mapper="ChRaBaRoCo")

    def gbps(requests: Requests, rfm: str) -> float:
        return run_trace(requests, rfm=rfm, **options).bandwidth_gbps

    none, of_banks, of_rank = (gbps(hot, rfm) for rfm in ("off", "same-bank", "all-bank"))
    assert none > of_banks > of_rank
    assert of_rank < 0.9 * none
    assert gbps(stream, "same-bank") == gbps(stream, "off")


def test_energy_counts_it_as_the_refresh_of_the_same_banks():
    device = resolve(*DDR5)
    issued = np.arange(1, 1 + len(device.standard.names))
    number = {name: int(issued[place]) for place, name in enumerate(device.standard.names)}
    counts = counts_of(issued, device.standard, 0, 0)
    assert counts.refreshes == number["REFab"] + number["RFMab"]
    assert counts.same_bank_refreshes == number["REFsb"] + number["RFMsb"]


# ---- Bad input


@pytest.mark.parametrize(
    ("standard", "options", "words"),
    [
        (("DDR4", "DDR4_8Gb_x8", "DDR4_3200AA"), dict(rfm="all-bank"), "DDR4 has no refresh management"),
        (HBM3, dict(rfm="same-bank"), "HBM3 has no same-bank RFM; it has all-bank, per-bank"),
        (DDR5, dict(rfm="per-bank"), "DDR5 has no per-bank RFM; it has all-bank, same-bank"),
        (DDR5, dict(rfm="sb"), "rfm"),
        (DDR5, dict(rfm="all-bank", rfm_threshold=0), "rfm_threshold"),
    ],
)
def test_what_a_standard_lacks_is_refused(standard, options, words):
    with pytest.raises(InputError) as error:
        Memory.named(*standard, options=ControllerOptions(**options))
    assert words in str(error.value)


def test_the_command_line_and_hardware_files_have_it(tmp_path):
    trace = tmp_path / "hot.trace"
    trace.write_text("".join(f"LD {(n % 2 << 20) + n // 2 * 64}\n" for n in range(300)))
    channel = ["--standard", "DDR5", "--org", "DDR5_16Gb_x8", "--timing", "DDR5_4800AN"]
    out = tmp_path / "c.csv"
    given = ["--mapper", "ChRaBaRoCo", "--rfm", "same-bank", "--rfm-threshold", 8, "--commands", out]
    assert "RFMsb" in said("dram", trace, *channel, *given)
    said("check", out, *channel)
    said("check", out, *channel, "--rfm", "same-bank", "--rfm-threshold", 8)
    assert "rfm-threshold" in refused_call("dram", trace, *channel, "--rfm-threshold", 8)
    hardware = load_hardware("trimoe", ("dram.rfm=same-bank", "dram.rfm_threshold=8"))
    assert Memory.of_hardware(hardware).options.rfm_threshold == 8
    with refused("unsupported sets dram.rfm"):
        ndpsim.simulate_expert(hardware, "qwen3-235b-a22b", tokens=1)
