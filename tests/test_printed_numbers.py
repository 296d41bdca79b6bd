"""The numbers in printed tables are those of the result: every table beside the JSON of the same call."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import fields, replace
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import ndpsim
from calls import call
from ndpsim.studies import ramulator
from ndpsim.studies.bench.row import BenchRow, Results
from ndpsim.studies.bench.rows import ROWS
from ndpsim.studies.bench.table import COLUMNS, cells

TIMES = "\N{MULTIPLICATION SIGN}"
SHAPE = ["--shape", "384,320"]


def printed(*arguments: object, status: int = 0) -> str:
    """What a call prints, with all white space alike."""
    done = call(*arguments)
    assert done.status == status, done.err
    return " ".join(done.out.split())


@pytest.fixture
def both(tmp_path: Path) -> Any:
    """A call's text and JSON."""

    def both(*arguments: object) -> tuple[str, Any]:
        text = printed(*arguments, "--json", tmp_path / "result.json")
        return text, json.loads((tmp_path / "result.json").read_text())

    return both


def figure(value: float, digits: int = 4) -> str:
    """A number of that many digits, also where they are zeros; thousands apart where it has more."""
    rounded = Decimal(f"{value:.{digits - 1}e}")
    places = max(0, digits - 1 - rounded.adjusted())
    return f"{rounded:,.0f}" if rounded.adjusted() >= digits else f"{rounded:.{places}f}"


def scaled(value: float, *units: str) -> str:
    """A number in the first unit that leaves it below 1000 once rounded, each 1000 of the one before."""
    for unit in units:
        if Decimal(f"{value:.3e}") < 1000 or unit == units[-1]:
            return f"{figure(value)} {unit}"
        value /= 1000
    raise AssertionError


def time(ns: float) -> str:
    return scaled(ns, "ns", "µs", "ms", "s") if ns else "0 ns"


def energy(nj: float) -> str:
    return scaled(nj, "nJ", "µJ", "mJ", "J") if nj else "0 nJ"


def power(watts: float) -> str:
    return scaled(watts * 10**6, "µW", "mW", "W") if watts else "0 W"


def size(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} B" if unit == "B" else f"{count:.2f} {unit}"
        count /= 1024
    raise AssertionError


def percent(share: float) -> str:
    return f"{share * 100:.1f}%"


def some(count: int, what: str) -> str:
    return f"1 {what}" if count == 1 else f"{count:,} {'misses' if what == 'miss' else what + 's'}"


def counts(found: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {name}" for name, count in found.items())


def has(text: str, *parts: str) -> None:
    """Each of the parts is in the text, as whole words and numbers."""
    for part in parts:
        whole = rf"(?<![\w.,-]){re.escape(part)}(?!\w|[.,]\d)"
        assert re.search(whole, text), f"{part!r} is not in {text}"


def in_print(component: str) -> str:
    return component.replace("ndp_", "NDP ") if component != "io" else "I/O"


def has_energy(text: str, parts: Mapping[str, float | None], ns: float, moved: float) -> None:
    total = sum(nj for name, nj in parts.items() if name != "total" and nj is not None)
    has(text, f"energy {energy(total)}", power(total / ns), f"{figure(total * 1000 / (moved * 8))} pJ/bit")
    for name, nj in parts.items():
        if name != "total" and nj:
            has(text, f"{in_print(name)} {power(nj / ns)}")
    unknown = [in_print(name) for name, nj in parts.items() if nj is None]
    assert not unknown or f"without {', '.join(unknown)} (not known)" in text


def as_text(name: str, value: float) -> str:
    """A number of a result in the unit that the end of its name says."""
    for end, say in (
        ("_ns", time),
        ("_nj", energy),
        ("bytes", size),
        ("gbps", lambda rate: f"{rate:.2f} GB/s"),
        ("gflops", lambda rate: f"{rate:.1f} GFLOPS"),
        ("fraction", percent),
        ("fast_forwarded", percent),
        ("busy", percent),
        ("slowdown", lambda factor: f"{figure(factor)}{TIMES}"),
        ("speedup", lambda factor: f"{figure(factor)}{TIMES}"),
    ):
        if name.endswith(end):
            return say(value)
    return f"{value:,}" if isinstance(value, int) else figure(value)


def has_quantities(text: str, kind: type, of: Mapping[str, Any]) -> None:
    """Each quantity that a result describes is in the text: its label, and its number or numbers."""
    # A share of a whole stands as "88.7% of 153.60 GB/s", without labels.
    wholes = {one.metadata["quantity"].whole for one in fields(kind) if "quantity" in one.metadata}
    for one in fields(kind):
        value = of.get(one.name)
        if "quantity" not in one.metadata or value is None or one.name in ("energy_nj", "over_refresh"):
            continue
        label = one.metadata["quantity"].label
        if one.name in ("cycles", "clock_ns"):  # told as clocks of a period
            continue
        assert label in text or one.name in wholes or one.name.endswith("peak_fraction"), one.name
        if isinstance(value, int | float):
            has(text, as_text(one.name, value))
        elif isinstance(value, Mapping) and len(value) <= 12:
            for key, part in value.items():
                if isinstance(part, int | float):
                    by_key = f"{one.name}.{key}" if key.endswith(("_ns", "gbps", "busy")) else one.name
                    has(text, as_text(by_key, part))


# ---- gemv ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        ["--tokens", 1],
        ["--tokens", 200],
        ["--hw", "edge", "--layout", "sharded:3", "--bits", "gate=4,up=4,down=8"],
        ["--hw", "cxl", "--tokens", 9, "--bits", 1],
    ],
    ids=str,
)
def test_an_expert(both, options):
    text, of = both("gemv", *SHAPE, *options)
    has_quantities(text, ndpsim.ExpertResult, of)
    has_energy(text, of["energy_nj"], of["time_ns"], of["weight_bytes"] * of["weight_reads"])
    for phase in of["phases"]:
        ends = phase["start_ns"], phase["end_ns"]
        has(text, " ".join((phase["name"], str(phase["tile"]), *map(time, (*ends, ends[1] - ends[0])))))
    assert len(of["phases"]) == 5 * len(of["token_tiles"])


def test_a_terminal_is_told_how_many_phases_it_is_not_shown(monkeypatch, both):
    monkeypatch.setattr("ndpsim.report.text.is_terminal", lambda: True)
    text, of = both("gemv", "--hw", "cxl", *SHAPE, "--tokens", 53)
    assert len(of["phases"]) == 70
    has(text, "result-out 2", "and 55 more phases")
    assert "activations-in 3" not in text


def test_bits_are_said(both):
    for options, words in (
        (["--bits", 1], "1 bit"),
        (["--bits", 4], "4 bits"),
        (["--bits", "gate=4,up=4,down=8"], "gate 4, up 4, down 8 bits"),
    ):
        has(both("gemv", *SHAPE, *options)[0].split(" time ")[0], f"1 token, {words}")


def test_tiles_of_one_size_are_told_together(both):
    text, of = both("gemv", "--hw", "cxl", *SHAPE, "--tokens", 53)
    assert of["token_tiles"] == [4] * 11 + [3] * 3
    has(text, "token tiles 14 11 of 4 tokens, 3 of 3 tokens")
    assert text.count("result-out") == 14  # all of them in a file


@pytest.mark.parametrize(
    "options", [["12"], ["saturate", "--arbitration", "slice", "--slice-clocks", 300], ["0"]], ids=str
)
def test_an_expert_beside_the_host(both, options):
    text, of = both("gemv", *SHAPE, "--host-traffic", *options)
    has_quantities(text, ndpsim.ContentionResult, of)
    for rows in of["rows"].values():
        has(text, *(f"{name} {count:,}" for name, count in rows.items()))
    moved = sum(lane["ndp_bytes"] + lane["host_bytes"] for lane in of["by_lane"])
    has_energy(text, of["energy_nj"], max(of["ndp_time_ns"], of["host_time_ns"]), moved)


@pytest.mark.parametrize("layout", ["striped", "localized"])
def test_a_read_by_the_host(both, layout):
    text, of = both("gemv", *SHAPE, "--engine", "host-read", "--layout", layout)
    has_quantities(text, ndpsim.HostReadResult, of)
    has_energy(text, of["energy_nj"], of["time_ns"], of["weight_bytes"])


# ---- relayout --------------------------------------------------------------------------------------------

MOVE = ["relayout", "--shape", "128,32", "--experts", 2]


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["--set", "ndp.relayout.concurrent_experts=1"],
        ["--to", "localized", "--from-dimms", "0,1", "--to-dimms", "0,3"],
    ],
)
def test_a_relayout(both, options):
    text, of = both(*MOVE, *options)
    has_quantities(text, ndpsim.RelayoutResult, of)
    busy = of["link_busy"].values()
    has(text, f"{percent(min(busy))} to {percent(max(busy))}" if len(busy) > 12 else percent(max(busy)))
    has_energy(text, of["energy_nj"], of["time_ns"], of["weight_bytes"])


def test_a_relayout_over_all_topologies(both):
    text, of = both(*MOVE, "--topology", "all")
    for name, one in of.items():
        has(
            text,
            f"{name} {one['bottleneck']} {one['config']['hardware']['link']['ports']} {time(one['time_ns'])} "
            f"{one['bandwidth_gbps']:.2f} GB/s {time(max(one['bounds_ns'].values()))} "
            f"{percent(max(one['link_busy'].values()))} {size(one['transit_bytes'])} "
            f"{figure(one['host']['time_ns'] / one['time_ns'])}{TIMES}",
        )


# ---- dram ------------------------------------------------------------------------------------------------


@pytest.fixture
def requests(tmp_path: Path) -> Path:
    path = tmp_path / "requests.trace"
    # Each burst is written, read while the write waits, and now and then written again.
    kinds = ("ST", "LD", "LD", "LD", "LD", "ST", "LD")
    lines = [
        f"{kinds[n % 7]} {(n // 7 + (7 * n if n % 7 in (2, 3, 4, 6) else 0)) * 4160 // 64 * 64:#x}"
        for n in range(700)
    ]
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize("channels", [1, 2])
def test_a_request_trace(both, requests, channels):
    text, of = both("dram", requests, "--channels", channels, "--ranks", 2)
    assert of["reads_forwarded"] > 0
    assert of["writes_coalesced"] > 0
    has_quantities(text, ndpsim.TraceResult, of)
    has(text, f"{700 / of['run_s']:,.0f} requests/s in the controllers")
    columns = of["commands"]["RD"] + of["commands"]["WR"]
    has_energy(text, of["energy_nj"], of["time_ns"], columns * 64)


def test_a_sweep_of_loads(both, requests):
    text, of = both("dram", requests, "--sweep-load", "--channels", 2)
    assert of["peak_bandwidth_gbps"] == pytest.approx(38.4)
    for point in of["sweep"]:
        assert point["offered_gbps"] == pytest.approx(point["load"] * 38.4)
        has(
            text,
            f"{point['offered_gbps']:.2f} GB/s {point['bandwidth_gbps']:.2f} GB/s {time(point['mean_ns'])} "
            f"{time(point['p99_ns'])}",
        )


def test_the_energy_of_a_checked_trace_is_that_of_the_run(both, requests, tmp_path):
    commands = tmp_path / "c.csv"
    _, ran = both("dram", requests, "--commands", commands)
    ddr5 = ["--standard", "DDR5", "--org", "DDR5_16Gb_x8", "--timing", "DDR5_4800AN"]
    text, of = both("check", commands, *ddr5, "--energy")
    for name, nj in ran["energy_nj"].items():
        assert of["energy_nj"][name] == pytest.approx(nj), name
    columns = ran["commands"]["RD"] + ran["commands"]["WR"]
    assert (of["time_ns"], of["moved_bytes"]) == (pytest.approx(ran["time_ns"]), columns * 64)
    has(text, f"legal; commands {sum(ran['commands'].values()):,}")
    has_energy(text, of["energy_nj"], of["time_ns"], of["moved_bytes"])


# ---- compare and bench -----------------------------------------------------------------------------------


@pytest.mark.parametrize("identical", [True, False])
def test_a_comparison_with_ramulator(monkeypatch, requests, identical):
    outcome = ramulator.Comparison(identical, 1234, None if identical else "command 7", {}, 12.345, 0.5)
    monkeypatch.setattr(ramulator, "compare", lambda *arguments: outcome)
    text = printed("compare", "ramulator", requests, status=0 if identical else 1)
    has(
        text,
        "identical" if identical else "different: command 7",
        "1,234 commands compared; ours 12.35 million requests/s, Ramulator 2.1 0.5000, 24.7 times",
    )


def test_a_row_of_the_benchmark(monkeypatch, both):
    row = BenchRow("stream_r1", Results(3_000_000, 7, {"RD": 5}), 0.25, 3.456, 123.4, 1e-3, 0.5, 0.625)
    monkeypatch.setitem(ROWS, "stream_r1", replace(ROWS["stream_r1"], about="a row"))
    shown = dict(zip(COLUMNS, cells(row), strict=True))
    assert shown == {
        "row": "stream_r1",
        "work": "a row",
        "requests": "3,000,000",
        "time": "250.0 ms",
        "million requests/s": "12.00",
        "x plain": "3.46",
        "x Ramulator 2.1": "123",
        "x RTL": "0.625",
        "x hardware": "0.00400",
    }
    assert row.to_dict()["rate_mps"] == pytest.approx(12.0)
    stands_in = SimpleNamespace(about="a row", missing="", run=lambda repeat: replace(row, seconds=repeat))
    monkeypatch.setitem(ROWS, "stream_r1", stands_in)
    text, of = both("bench", "--row", "stream_r1")
    has(text, "best of 5", "stream_r1 a row 3,000,000 5.000 s 0.6000 3.46 123 0.625 0.000200")
    assert of["rows"][0]["seconds"] == 5


# ---- show ------------------------------------------------------------------------------------------------


def test_a_layout(both):
    text, of = both(
        "show",
        "layout",
        "sharded:3",
        "--hw",
        "edge",
        "--bits",
        "gate=4,up=4,down=8",
        "--model",
        "mixtral-8x7b",
    )
    sums = {"gate": 0.0, "up": 0.0, "down": 0.0}
    for dimm in of["dimms"]:
        lanes = [sum(lane["matrix_bytes"].values()) for lane in dimm["lanes"]]
        each = dimm["matrix_bytes"]
        has(
            text,
            f"{dimm['dimm']} {dimm['dimm'] % 2} {size(each['gate'])} {size(each['up'])} {size(each['down'])} "
            f"{size(sum(each.values()))} {size(min(lanes))} to {size(max(lanes))}",
        )
        sums = {name: sums[name] + each[name] for name in sums}
        assert (dimm["channel"], len(dimm["lanes"])) == (dimm["dimm"] % 2, 4)
    has(
        text,
        f"all {' '.join(map(size, sums.values()))} {size(of['bytes'])}",
        f"in {of['bursts']:,} bursts",
        "4 lanes on each DIMM",
    )
    assert sum(sums.values()) == of["bytes"] == 4096 * 14336 * (4 + 4 + 8) // 8
    assert of["dimm_capacity_bytes"] == 32 << 30


def test_a_layout_that_gives_some_lanes_more(both, tmp_path):
    shape = {"hidden_size": 100, "moe_intermediate_size": 31, "num_hidden_layers": 2, "num_experts": 4}
    model = tmp_path / "odd.json"
    model.write_text(json.dumps(shape | {"num_experts_per_tok": 2}))
    text, of = both("show", "layout", "localized", "--model", model)
    (dimm,) = of["dimms"]
    lanes = [sum(lane["matrix_bytes"].values()) for lane in dimm["lanes"]]
    assert len(set(lanes)) > 2
    has(text, f"{size(min(lanes))} to {size(max(lanes))}")
    assert [(lane["lane"], lane["rank"], lane["subchannel"]) for lane in dimm["lanes"]] == [
        (lane, lane // 2, lane % 2) for lane in range(8)
    ]


def test_derived_values_of_hardware():
    text = printed("show", "hw", "trimoe")
    for key, value in (
        ("derived.lanes", "8"),
        ("derived.bankgroups", "8"),
        ("derived.banks_per_group", "4"),
        ("derived.dimm_capacity", "128.0 GiB"),
        ("derived.lane_peak", "19.2 GB/s"),
        ("derived.dimm_peak_inside", "153.6 GB/s"),
        ("derived.dimm_peak_host", "38.4 GB/s"),
        ("derived.gemv_peak", "256.0 GFLOPS"),
        ("timings.nRCD", "36 clocks = 15 ns"),
        ("timings.nRFC", "986 clocks = 410.833 ns"),
    ):
        has(text, f"{key} {value}")
    has(
        printed("show", "hw", "cxl"),
        "derived.systolic_peak 2048.0 GFLOPS",
        "derived.dimm_peak_host 31.508 GB/s",
    )
    areas = [
        f"--set=ndp.{unit}.area_mm2={mm2}"
        for unit, mm2 in (("gemv", 0.5), ("activation", 0.25), ("relayout", 0.125))
    ]
    has(printed("show", "hw", "trimoe", *areas), "derived.ndp_area 0.875 mm2")
    has(printed("show", "hw", "trimoe", *areas[:2]), "derived.ndp_area None mm2")


# ---- Timelines -------------------------------------------------------------------------------------------


def timeline_of(path: Path) -> tuple[dict[int, str], list[dict[str, Any]]]:
    """The rows and spans of the first process; the others are lanes with their commands."""
    events = [event for event in json.loads(path.read_text())["traceEvents"] if event["pid"] == 1]
    names = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    return names, [event for event in events if event["ph"] == "X"]


@pytest.mark.parametrize("hw", ["trimoe", "cxl"])
def test_a_timeline_has_each_phase_in_us_on_the_row_of_its_unit(both, tmp_path, hw):
    options = ["--hw", hw, "--tokens", {"trimoe": 373, "cxl": 10}[hw], "--timeline", tmp_path / "t.json"]
    _, of = both("gemv", *SHAPE, *options)
    assert len(set(of["token_tiles"])) == 2
    names, events = timeline_of(tmp_path / "t.json")
    link, unit = {"trimoe": ("host bus", "GEMV unit"), "cxl": ("CXL link", "systolic arrays")}[hw]
    rows = {
        "activations-in": link,
        "gate-up": unit,
        "activation": "activation unit",
        "down": unit,
        "result-out": link,
    }
    assert len(events) == len(of["phases"])
    for event, phase in zip(events, of["phases"], strict=True):
        assert event["name"] == phase["name"]
        assert names[event["tid"]] == rows[phase["name"]]
        assert event["ts"] == pytest.approx(math.floor(phase["start_ns"]) / 1000)
        assert event["ts"] + event["dur"] == pytest.approx(math.floor(phase["end_ns"]) / 1000)
        assert event["args"] == {"tile": phase["tile"], "tokens": of["token_tiles"][phase["tile"]]}


def test_a_timeline_of_a_relayout_has_each_stretch_in_us_on_the_row_of_its_dimm(both, tmp_path):
    _, of = both(*MOVE, "--timeline", tmp_path / "t.json")
    names, events = timeline_of(tmp_path / "t.json")
    assert len(events) == len(of["stretches"]) > 16
    for event, stretch in zip(events, of["stretches"], strict=True):
        assert names[event["tid"]] == f"DIMM {stretch['dimm']} {stretch['name']}s"
        assert event["ts"] == pytest.approx(math.floor(stretch["start_ns"]) / 1000)
        assert event["ts"] + event["dur"] == pytest.approx(math.floor(stretch["end_ns"]) / 1000)
