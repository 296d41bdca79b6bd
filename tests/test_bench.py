"""The benchmark: its rows, their fixed work, and the refusal of measurements with a disagreement."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from calls import call, said
from mistakes import refused
from ndpsim.base.errors import InputError, MismatchError
from ndpsim.dram.engines import ScanController
from ndpsim.dram.mapping import MAPPERS, map_addresses
from ndpsim.dram.spec import resolve
from ndpsim.simulate import run_trace, simulate_expert
from ndpsim.studies.bench import ROWS, experts, growth, run_rows, scale, traffic
from ndpsim.studies.bench.experts import (
    ExpertCall,
    FreshProcess,
    PolicyLayers,
    ServedLayers,
    UnlikeCalls,
    WholeRun,
)
from ndpsim.studies.bench.growth import GrowthRow, run_growth
from ndpsim.studies.bench.row import Results, best_seconds
from ndpsim.studies.bench.scale import ScaleRow, run_scale
from ndpsim.studies.bench.table import COLUMNS, cells, markdown
from ndpsim.studies.bench.traces import WholeTrace
from ndpsim.studies.bench.traffic import ChannelCall, Traffic, contiguous, random_bursts
from ndpsim.workload.models import Expert

KEYS = ["name", "requests", "seconds", "rate_mps", "ratio_plain", "ratio_ramulator"]
TRAFFIC = [row for row in ROWS.values() if isinstance(row, Traffic)]


@pytest.fixture(autouse=True)
def without_ramulator(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ramulator takes seconds a run, whether or not it is installed here."""
    monkeypatch.setattr(traffic.ramulator, "is_available", lambda: False)


def small(ranks: int = 2, count: int = 3000, **kind: bool) -> Traffic:
    """A short row, fixed to the result of `run_trace` for the same addresses."""
    unpinned = Traffic("stream_r1", "a short row", Results(count, 0, {}), ranks, **kind)
    requests = unpinned.requests(unpinned.memory().device)
    result = run_trace((requests.address, requests.write), ranks=ranks, rules="reference")
    return replace(unpinned, pinned=Results(count, result.cycles, result.commands))


# The work


EACH_TIME = ("stream_r1", "mixed_r4", "stream_ff")
PINNED = [
    pytest.param(row, marks=[] if row.name.startswith(EACH_TIME) else [pytest.mark.long], id=row.name)
    for row in TRAFFIC
]


@pytest.mark.parametrize("row", PINNED)
def test_the_work_of_the_rows_is_the_pinned_one(row):
    measured = row.run(1)
    assert measured.work == row.pinned
    assert measured.ratio_ramulator is None
    assert (measured.fast_forwarded > 0.5) == row.fast_forward


@pytest.mark.parametrize("ranks", [1, 4])
def test_a_stream_changes_the_bank_group_with_every_read_and_then_fills_the_row(ranks):
    device = resolve("DDR5", "DDR5_16Gb_x8", "DDR5_4800AN", ranks)
    count = 3 * device.bankgroups * device.bursts_per_row * device.banks_per_group * ranks
    place = map_addresses(contiguous(device, count), MAPPERS["RoBaRaCoCh"], device)
    number = np.arange(count)
    assert np.array_equal(place.bankgroup, number % device.bankgroups)
    assert np.array_equal(place.column, number // device.bankgroups % device.bursts_per_row)
    fields = (place.row, place.rank, place.bank, place.column, place.bankgroup)
    sizes = (device.rows, ranks, device.banks_per_group, device.bursts_per_row, device.bankgroups)
    assert np.array_equal(np.ravel_multi_index(fields, sizes), number)


def test_random_requests_are_everywhere_and_a_third_writes():
    device = resolve("DDR5", "DDR5_16Gb_x8", "DDR5_4800AN", 4)
    address, write = random_bursts(device, 40_000)
    again, _ = random_bursts(device, 40_000)
    assert np.array_equal(address, again)
    assert address.min() >= 0
    assert 0.99 * device.capacity_bytes < address.max() < device.capacity_bytes
    place = map_addresses(address, MAPPERS["RoBaRaCoCh"], device)
    for values in (place.rank, place.bankgroup, place.bank, place.column):
        counts = np.bincount(values)
        assert counts.min() > 0.8 * counts.mean()
    assert abs(write.mean() - 0.33) < 0.01


@pytest.mark.parametrize("kind", [{"random": True, "writes": True}, {"fast_forward": True}])
def test_a_row_has_the_keys_of_the_table(kind):
    row = small(**kind).run(2).to_dict()
    assert list(row)[: len(KEYS)] == KEYS
    assert row["rate_mps"] == pytest.approx(3000 / row["seconds"] / 1e6)
    assert row["ratio_plain"] > 0
    assert json.loads(json.dumps(row, allow_nan=False)) == row


@pytest.mark.parametrize("source", ["arrays", "records", "text"])
@pytest.mark.parametrize("channels", [1, 2])
def test_a_whole_trace_is_the_same_from_arrays_and_files(source, channels):
    row = WholeTrace("trace", "a short row", Results(3000, 0, {}), source, channels, random=channels > 1)
    requests = row.requests(row.memory().device)
    result = run_trace((requests.address, requests.write), channels=channels, rules="reference")
    pinned = Results(3000, result.cycles, result.commands)
    assert replace(row, pinned=pinned).run(1).work == pinned
    with pytest.raises(MismatchError, match="trace: cycles came out as"):
        row.run(1)


# Failures


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"cycles": 1}, "stream_r1: cycles came out as"),
        ({"commands": {"RD": 3000}}, "stream_r1: commands came out as"),
    ],
)
def test_a_changed_number_fails_by_the_name_of_the_row(change, words):
    right = small()
    with pytest.raises(MismatchError, match=words):
        replace(right, pinned=replace(right.pinned, **change)).run(1)


@pytest.mark.parametrize(
    ("what", "words"), [("value", "counters"), ("issued", "commands"), ("latencies", "latencies")]
)
def test_a_controller_that_disagrees_with_the_plain_one_is_an_error(monkeypatch, what, words):
    class Wrong(ScanController):
        def run(self, *arguments):
            outcome = super().run(*arguments)
            getattr(self, what)[3] += 1
            return outcome

    monkeypatch.setattr(traffic, "make_controller", Wrong)
    with pytest.raises(MismatchError, match=f"stream_r1: fast and plain differ in its {words}"):
        small().run(1)


def test_ramulators_counters_must_be_ours_and_its_time_makes_the_ratio(monkeypatch):
    row = small()
    requests = row.requests(row.memory().device)
    accepted = run_trace((requests.address, requests.write), ranks=2, rules="reference").accepted
    theirs = {name: accepted[name] for name in ("cycles", "row_hits", "row_misses", "row_conflicts")}
    runs = []

    def timed_runs(requests, memory, repeat):
        runs.append(repeat)
        return theirs, 60.0

    monkeypatch.setattr(traffic.ramulator, "is_available", lambda: True)
    monkeypatch.setattr(traffic.ramulator, "timed_runs", timed_runs)
    measured = row.run(5)
    assert measured.ratio_ramulator == 60.0 / measured.seconds
    assert runs == [3]
    theirs["row_hits"] += 1
    with pytest.raises(MismatchError, match="stream_r1: row_hits: ours"):
        row.run(1)


# Experts and fresh processes


def test_an_expert_is_compared_with_the_hardware_and_with_its_plain_run():
    result = simulate_expert("trimoe", "qwen3-30b-a3b", 2)
    pinned = Results(result.weight_bursts, result.cycles, result.commands)
    call = ExpertCall("expert_trimoe", "an expert", pinned, "trimoe", "qwen3-30b-a3b", tokens=2)
    row = call.run(1)
    assert row.simulated_s == result.time_ns / 1e9
    assert row.ratio_plain > 0
    assert row.work.requests == row.work.commands["RD"]
    with pytest.raises(MismatchError, match="expert_trimoe: cycles came out as"):
        replace(call, pinned=replace(pinned, cycles=pinned.cycles + 1)).run(1)


def test_a_plain_run_that_disagrees_fails_by_the_name_of_the_row(monkeypatch):
    def different(*lanes):
        raise MismatchError("lane 3 differs from its plain run in its counters")

    monkeypatch.setattr("ndpsim.simulate.alone.ensure_same", different)
    call = ExpertCall("expert_trimoe", "an expert", Results(1, 1, {}), "trimoe", "qwen3-30b-a3b")
    with pytest.raises(MismatchError, match="expert_trimoe: lane 3 differs"):
        call.run(1)


@pytest.mark.parametrize("name", ["expert_trimoe", "expert_edge"])
def test_the_work_of_the_experts_is_the_pinned_one(name):
    row = ROWS[name]
    result = simulate_expert(row.hw, row.model, row.tokens)
    assert Results(result.weight_bursts, result.cycles, result.commands) == row.pinned


def test_unlike_calls_are_pinned_together_and_compared_with_the_hardware():
    one, three = (simulate_expert("trimoe", "qwen3-30b-a3b", tokens) for tokens in (1, (1, 2)))
    commands = {name: one.commands[name] + three.commands[name] for name in one.commands}
    pinned = Results(3 * one.weight_bursts, one.cycles + three.cycles, commands)
    calls = UnlikeCalls("unlike_trimoe", "experts", pinned, "trimoe", "qwen3-30b-a3b", [1, (1, 2)])
    row = calls.run(1)
    assert row.simulated_s == pytest.approx((one.time_ns + three.time_ns) / 1e9)
    assert (row.work, row.ratio_plain) == (pinned, None)
    with pytest.raises(MismatchError, match="unlike_trimoe: cycles came out as"):
        replace(calls, pinned=replace(pinned, cycles=pinned.cycles + 1)).run(1)


def test_no_run_of_unlike_calls_finds_what_an_earlier_one_made(monkeypatch):
    made, one = [], simulate_expert("trimoe", Expert(64, 32))
    monkeypatch.setattr(experts, "simulate_expert", lambda hardware, *given: made.append(hardware) or one)
    row = UnlikeCalls("unlike_trimoe", "experts", experts.work_of(one), "trimoe", "qwen3-30b-a3b", [1])
    row.run(3)
    assert len({id(hardware) for hardware in made}) == 4  # one of them is not measured


def test_the_work_of_the_queue_is_the_pinned_one():
    row = ROWS["queue_trimoe"]
    assert row.run(1).work == row.pinned


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(ROWS.keys() - {row.name for row in TRAFFIC} - {"rtl_loop"}))
def test_the_work_of_each_row_is_the_pinned_one(name):
    # In a process of its own: the tests make smaller tables of contention than users do.
    subprocess.run(
        [sys.executable, "-P", "-m", "ndpsim", "bench", "--row", name, "--repeat", "1"], check=True
    )


SIZES = {"RD": 4 * ROWS["expert_trimoe"].pinned.requests, "WR": 4 * ROWS["expert_trimoe"].pinned.requests}


def test_a_relayout_reads_and_writes_every_burst_of_its_experts_once():
    pinned = ROWS["relayout_four"].pinned
    assert {name: pinned.commands[name] for name in SIZES} == SIZES
    assert pinned.requests == sum(SIZES.values())


def test_the_work_beside_the_host_is_the_pinned_one():
    row = ROWS["beside_host"]
    assert row.pinned.commands["RD"] > ROWS["expert_trimoe"].pinned.requests
    assert row.run(1).work == row.pinned


def test_a_layer_takes_the_mean_of_all_steps_but_the_first(monkeypatch):
    """Two layers a step: the first two end at 5 and 9 s, six others a second apart."""
    ends = iter([5.0, 9.0, *(9.0 + n for n in range(1, 7))] * 3)
    asked = []

    def run(hw: str, model: str, policies: list[str], batch: int, steps: int, progress: Any) -> Any:
        asked.append((hw, model, policies, batch))
        for layer in range(2 * steps):
            progress(layer / 8)
        return SimpleNamespace(runs=[SimpleNamespace(pairs=8 * 256, layer_ns={"mean": 700.4})])

    monkeypatch.setattr(experts, "run_moe", run)
    monkeypatch.setattr(experts.time, "process_time", lambda: next(ends))
    row = PolicyLayers("layer_trimoe", "a layer", Results(256, 700, {}), "trimoe", "qwen3-30b-a3b", "balance")
    measured = row.run(2)
    assert asked == [("trimoe", "qwen3-30b-a3b", ["balance"], 128)] * 3
    assert (measured.seconds, measured.work) == (1.0, row.pinned)
    assert measured.simulated_s == pytest.approx(700e-9)
    ends = iter([float(n) for n in range(16)])
    with pytest.raises(MismatchError, match="layer_trimoe: cycles came out as 700"):
        replace(row, pinned=Results(256, 701, {})).run(1)


@pytest.mark.parametrize("is_cold", [False, True])
def test_a_whole_run_takes_its_processor_time_and_is_cold_with_an_empty_cache(monkeypatch, is_cold):
    ends, caches = iter([0.0, 9.0, 10.0, 14.0, 20.0, 22.5]), []

    def run(*asked: Any, cache: Any) -> Any:
        assert asked == ("trimoe", "deepseek-v2", ["balance"])
        caches.append(cache)
        return SimpleNamespace(runs=[SimpleNamespace(pairs=512, time_ns=3e9, layer_ns={"mean": 700.4})])

    monkeypatch.setattr(experts, "run_moe", run)
    monkeypatch.setattr(experts.time, "process_time", lambda: next(ends))
    row = WholeRun("moe", "a run", Results(512, 700, {}), "trimoe", "deepseek-v2", "balance", is_cold)
    measured = row.run(2)
    assert (measured.seconds, measured.work, measured.simulated_s) == (2.5, row.pinned, 3.0)
    assert len({id(cache) for cache in caches}) == (3 if is_cold else 1)


def test_a_layer_that_is_served_takes_the_mean_of_all_steps_but_the_first(monkeypatch):
    """Of 48 layers each, the first step ends at 5 s, two others 24 s apart."""
    ends = iter([5.0, 29.0, 53.0] * 2)

    def run(hw: str, model: str, requests: str, policy: str, gpu_experts: int, progress: Any) -> Any:
        assert (hw, model, policy, gpu_experts) == ("trimoe", "qwen3-30b-a3b", "balance", 16)
        for step in range(3):
            progress(step / 3)
        return SimpleNamespace(output_tokens=640, time_ns=2101.0, steps=3)

    monkeypatch.setattr(experts, "run_serving", run)
    monkeypatch.setattr(experts.time, "process_time", lambda: next(ends))
    row = ServedLayers("serve", "a layer", Results(640, 700, {}), "trimoe", "qwen3-30b-a3b", "balance", 16)
    measured = row.run(1)
    assert (measured.seconds, measured.work) == (0.5, row.pinned)
    assert measured.simulated_s == pytest.approx(700e-9)


def test_calls_on_channels_are_pinned_and_each_reads_its_hardware_anew():
    asked = []

    def call(hardware, expert):
        asked.append((hardware, expert))
        return {"ACT": 3, "RD": 5, "WRA": 2}, 50.0, 0.5

    pinned = Results(7, 100, {"ACT": 3, "RD": 5, "WRA": 2})
    row = ChannelCall("beside_host", "", pinned, "trimoe", "qwen3-30b-a3b", call)
    measured = row.run(3)
    assert (measured.work, measured.simulated_s, measured.ratio_plain) == (row.pinned, 50e-9, None)
    assert len({id(hardware) for hardware, _ in asked}) == 4  # one of them is not measured
    with pytest.raises(MismatchError, match="beside_host: requests came out as 7, pinned is 8"):
        replace(row, pinned=replace(row.pinned, requests=8)).run(1)


@pytest.mark.parametrize(("name", "runs"), [("import", 4), ("compile", 1)])
def test_a_fresh_process_imports_this_package_and_compiles_only_when_it_should(monkeypatch, name, runs):
    row, folders = ROWS[name], []

    def run(command, env, **options):
        folders.append(env.get("NDPSIM_CACHE_DIR"))
        assert env["PYTHONPATH"].startswith(str(traffic.__file__).partition("/ndpsim/studies/bench")[0])
        return SimpleNamespace(returncode=0, stdout=json.dumps([row.pinned.cycles, row.pinned.commands]))

    monkeypatch.setenv("NDPSIM_CACHE_DIR", "kept")
    monkeypatch.setattr(subprocess, "run", run)
    assert row.run(3).work == row.pinned
    assert len(folders) == runs
    assert ("kept" in folders) == (name == "import")


def test_a_fresh_process_that_fails_or_errs_is_no_measurement(monkeypatch):
    row = FreshProcess("import", "", Results(1, 5, {"RD": 1}))
    outcome = SimpleNamespace(returncode=0, stdout='[6, {"RD": 1}]', stderr="")
    monkeypatch.setattr(subprocess, "run", lambda *arguments, **options: outcome)
    with pytest.raises(MismatchError, match="import: cycles came out as 6, pinned is 5"):
        row.run(1)
    outcome.returncode, outcome.stderr = 1, "Traceback\nMemoryError: none left\n"
    with pytest.raises(
        MismatchError, match="import: the process ended with status 1: MemoryError: none left"
    ):
        row.run(1)


# The command


@pytest.fixture
def short(monkeypatch):
    """A short first row."""
    monkeypatch.setattr("ndpsim.cli.notices._Notices.emit", lambda self, record: None)
    monkeypatch.setitem(ROWS, "stream_r1", small())


@pytest.mark.usefixtures("short")
def test_json_and_the_table(tmp_path):
    found = json.loads(said("bench", "--row", "stream_r1", "--repeat", "1", "--json", "-"))
    assert [row["name"] for row in found["rows"]] == ["stream_r1"]
    assert list(found["rows"][0])[: len(KEYS)] == KEYS
    assert found["machine"]["cores"] >= 1
    page = tmp_path / "page.md"
    assert "million requests/s" in said(
        "bench", "--row", "stream_r1", "--repeat", "1", "--markdown", str(page)
    )
    text = page.read_text()
    assert "`ndpsim bench --row stream_r1 --repeat 1 --markdown page.md`" in text
    assert "| stream_r1 | a short row | 3,000 |" in text


@pytest.mark.usefixtures("short")
def test_a_row_that_is_wrong_is_one_line_and_exit_status_1(monkeypatch):
    monkeypatch.setitem(ROWS, "stream_r1", replace(ROWS["stream_r1"], pinned=Results(3000, 7, {})))
    done = call("bench", "--row", "stream_r1", "--json", "-")
    assert (done.status, done.out, len(done.err.splitlines())) == (1, "", 1)
    assert "stream_r1: cycles" in done.err


def test_unknown_rows_are_refused_in_python_as_well():
    with refused("unknown-name row"):
        run_rows(["import", "x"])


def test_one_row_of_long_work_is_measured_in_a_process_of_its_own_at_its_share():
    answer = json.loads(
        said("bench", "--only", "scale", "--row", "requests", "--share", "2e-6", "--json", "-")
    )
    (row,) = answer["rows"]
    assert (row["name"], row["count"]) == ("requests", 20)
    assert row["cpu_s"] > 0
    assert row["peak_bytes"] > 10e6
    with refused("unknown-name row ? requests"):
        run_scale(["request"])


def test_growth_is_the_processor_time_of_each_size_and_its_power(monkeypatch, tmp_path):
    def turning(size):
        end = size / 1000

        def turn():
            began = time.process_time()
            while time.process_time() - began < end:
                pass

        return turn

    monkeypatch.setattr(growth, "GROWTH_ROWS", (GrowthRow("turns", "ms of turning", [5, 50], turning),))
    picture = tmp_path / "growth.svg"
    asked = "bench", "--only", "growth", "--row", "turns", "--repeat", "2", "--plot", str(picture)
    answer = json.loads(said(*asked, "--json", "-"))
    (row,) = answer["rows"]
    assert row["sizes"] == [5, 50]
    assert row["cpu_s"] >= [0.005, 0.05]
    assert row["exponents"] == [pytest.approx(1, abs=0.5)]
    assert "processor time (s)" in picture.read_text()
    assert "ms of turning" in said(*asked)
    with refused("unknown-name row ? turns"):
        run_growth(["turn"])


def test_long_work_that_fails_or_is_wrong_is_no_measurement(monkeypatch):
    wrong = ScaleRow("wrong", "work", 1, "raise SystemExit('no room')")
    monkeypatch.setattr(scale, "SCALE_ROWS", (wrong,))
    with pytest.raises(MismatchError, match="wrong: the process ended with status 1: no room"):
        run_scale()


def test_rows_run_in_the_order_of_the_table(monkeypatch):
    for row in ("stream_r1", "random_r1"):
        monkeypatch.setitem(ROWS, row, replace(small(), name=row))
    shares = []
    rows = run_rows(["random_r1", "stream_r1"], 1, shares.append)
    assert [row.name for row in rows] == ["stream_r1", "random_r1"]
    assert shares == [0, 0.5]


def test_rows_that_cannot_run_here_are_left_out_and_named_when_they_are_wanted(monkeypatch):
    monkeypatch.setattr(experts, "compiler", lambda: None)
    for row in [row for row in ROWS if row != "rtl_loop"][1:]:
        monkeypatch.delitem(ROWS, row)
    monkeypatch.setitem(ROWS, "stream_r1", small())
    assert [row.name for row in run_rows((), 1)] == ["stream_r1"]
    with pytest.raises(InputError, match=r"row: rtl_loop needs .*a C\+\+ compiler|row rtl_loop needs"):
        run_rows(["rtl_loop"], 1)


@pytest.mark.long  # it is compiled
def test_the_unit_in_the_loop_is_at_least_half_as_fast_as_alone():
    row = ROWS["rtl_loop"]
    if row.missing:
        pytest.skip(f"needs {row.missing}")
    assert 0.5 <= row.run(3).ratio_rtl < 1


def test_what_was_not_run_is_a_dash(monkeypatch):
    monkeypatch.setitem(ROWS, "stream_r1", small())
    (row,) = run_rows(["stream_r1"], 1)
    shown = dict(zip(COLUMNS, cells(row), strict=True))
    assert shown["x Ramulator 2.1"] == shown["x RTL"] == shown["x hardware"] == "-"
    assert float(shown["x plain"]) > 0
    lines = markdown([row], "ndpsim bench").splitlines()
    assert {line.count("|") for line in lines if line.startswith("|")} == {len(COLUMNS) + 1}


# Times and ratios


def test_the_fastest_of_the_runs_counts(monkeypatch):
    clock = iter([0.0, 5.0, 10.0, 12.0, 20.0, 23.0])
    monkeypatch.setattr("ndpsim.studies.bench.row.time", SimpleNamespace(perf_counter=lambda: next(clock)))
    assert best_seconds(lambda: None, 3) == 2.0


def test_ratios_of_a_stream_leave_out_the_run_that_may_compile(monkeypatch):
    seconds = iter([0.1, 4.0, 3.0, 0.05, 1.5, 2.0])  # plain runs, then fast ones
    serve = traffic._serve
    monkeypatch.setattr(traffic, "_serve", lambda *run: serve(*run)._replace(seconds=next(seconds)))
    row = small().run(2)
    assert (row.seconds, row.ratio_plain) == (1.5, 2.0)


def test_times_of_an_expert_are_with_and_without_what_earlier_calls_taught_and_beside_the_plain_run(
    monkeypatch,
):
    result = simulate_expert("trimoe", "qwen3-30b-a3b", 2)
    asked = []

    def best(run, repeat):
        asked.append(repeat)
        return {1: 0.25, 2: 1.25}[len(asked)]

    monkeypatch.setattr("ndpsim.studies.bench.experts.best_seconds", best)
    pinned = Results(result.weight_bursts, result.cycles, result.commands)
    row = ExpertCall("expert_trimoe", "an expert", pinned, "trimoe", "qwen3-30b-a3b", tokens=2).run(3)
    assert asked == [20, 3]
    # A checked call is a call and the plain run.
    assert (row.seconds, row.ratio_plain) == (0.25, (1.25 - 0.25) / 0.25)
