"""``ndpsim serve``: several rates, files and pictures of runs of a small model."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ndpsim
import test_pictures
from builders.small_moe import MODEL
from calls import GIVEN, refused_call, said
from mistakes import refused
from ndpsim.base.reported import with_unit
from ndpsim.policies import policies
from ndpsim.report.pictures.serving import rates_figure, serving_figure
from ndpsim.report.timelines import writing_serving_timeline
from ndpsim.simulate.results import ServingResult
from trace_events import trace_events

MACHINE = "dali-7532-3090"
REQUESTS = "poisson:rate=2,requests=12,input_tokens=24,output_tokens=4"
CALL = (
    *("serve", "--hw", MACHINE, "--model", GIVEN / "small.json", "--policy", "on-demand"),
    *("--requests", REQUESTS, "--max-batch", 4, "--max-tokens", 64, "--kv-blocks", 99),
)


def serve(requests: str = REQUESTS, **more: Any) -> ServingResult:
    asked = {"policy": "on-demand", "max_batch": 4, "max_tokens": 64, **more}
    return ndpsim.run_serving(MACHINE, MODEL, requests, **asked)


def without_wall_times(plain: dict[str, Any]) -> dict[str, Any]:
    return {
        name: value for name, value in plain.items() if not name.endswith("wall_s") and name != "compile_s"
    }


# ---- Several rates -----------------------------------------------------------------------------------------------


def test_several_rates_are_a_list_of_what_each_has_alone(here: Path):
    together = json.loads(said(*CALL, "--rate", "2..4:2,9", "--json", "-"))
    assert isinstance(together, list)
    alone = [json.loads(said(*CALL, "--rate", rate, "--json", "-")) for rate in (2, 4, 9)]
    assert [*map(without_wall_times, together)] == [*map(without_wall_times, alone)]
    assert [one["offered_per_s"] for one in together] == pytest.approx([2, 4, 9])


def test_the_table_of_rates_has_their_latencies_and_throughput(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "300")
    out = said(*CALL, "--rate", "2,20000", "--slo", "ttft=1s")
    runs = json.loads(said(*CALL, "--rate", "2,20000", "--slo", "ttft=1s", "--json", "-"))
    rows = out.splitlines()[-2:]
    for row, run in zip(rows, runs, strict=True):
        for name, part in (("ttft_ns", "p50"), ("ttft_ns", "p99"), ("tpot_ns", "p50"), ("tpot_ns", "p99")):
            assert with_unit(name, run[name][part]) in row
        assert with_unit("tokens_per_s", run["tokens_per_s"]) in row
        assert with_unit("goodput_per_s", run["goodput_per_s"]) in row
    assert [run["growing"] for run in runs] == [False, True]


def test_a_user_gets_a_token_in_the_mean_time_between_them():
    result = serve()
    assert result.tpot_ns is not None
    assert result.user_tokens_per_s == pytest.approx(1e9 / result.tpot_ns["mean"])
    assert serve("poisson:requests=2,input_tokens=4,output_tokens=1").user_tokens_per_s is None


def test_the_picture_of_rates_shows_percentiles_and_the_service_level(here: Path):
    results = [serve(rate=rate, slo="ttft=1s,tpot=50ms") for rate in (1, 10)]
    ttft, tpot, requests = rates_figure(results).axes
    for axes, name, limit_ms in ((ttft, "ttft_ns", 1000), (tpot, "tpot_ns", 50)):
        drawn = {line.get_label(): line for line in axes.lines}
        for part in ("p50", "p90", "p99"):
            values = [getattr(one, name)[part] for one in results]
            ratio = drawn["service level"].get_ydata()[0] / (limit_ms * 1e6)
            assert list(drawn[part].get_ydata()) == pytest.approx([ns * ratio for ns in values])
            assert list(drawn[part].get_xdata()) == pytest.approx([1, 10])
    served = {line.get_label(): list(line.get_ydata()) for line in requests.lines}
    assert served["requests served"] == pytest.approx([one.requests_per_s for one in results])
    said(*CALL, "--rate", "1,10", "--plot", "rates.svg", "--panels", "tpot")
    assert (here / "rates.svg").stat().st_size > 5000


@pytest.mark.parametrize("size", test_pictures.SIZES_RUN)
def test_nothing_overlaps_in_pictures_of_serving(size: str):
    results = [serve(rate=rate, slo="ttft=1s,tpot=1s") for rate in (1, 9, 9e3)]
    drawn = {"serve": serving_figure(results[1], size), "rates": rates_figure(results, size)}
    test_pictures.test_nothing_overlaps_and_nothing_is_cut(lambda size: drawn, size)
    test_pictures.test_all_text_can_be_read(lambda size: drawn, size)


@pytest.mark.parametrize(
    ("given", "mistake"),
    [
        (("--rate", "4..1"), "range --rate"),
        (("--rate", "1,1"), "twice --rate"),
        (("--rate", "0"), "range --rate"),
        (("--rate", "1,fast"), "type --rate"),
        (("--rate", "1,2", "--log", "log.jsonl"), "conflict --log"),
        (("--rate", "1,2", "--timeline", "t.json"), "conflict --timeline"),
        (("--find-rate", "--slo", "ttft=1s", "--timeline", "t.json"), "conflict --timeline"),
        (("--rate", "1,2", "--plot", "a.png", "--panels", "blocks"), "unknown-name --panels"),
    ],
)
def test_rates_that_cannot_be_are_refused(here: Path, given: tuple[str, ...], mistake: str):
    assert refused_call(*CALL, *given) == mistake


# ---- Timelines and reports ---------------------------------------------------------------------------------------


def test_the_timeline_has_each_step_and_each_request(here: Path):
    out = said(*CALL, "--rate", "9000", "--timeline", "t.json", "--log", "log.jsonl", "--json", "-")
    events = trace_events("t.json")
    lines = [json.loads(line) for line in (here / "log.jsonl").read_text().splitlines()]
    steps = [(line["start_ns"], line["end_ns"]) for line in lines if "step" in line]
    spans = [one for one in events if one["ph"] == "X"]
    shown = [(one["ts"], one["ts"] + one["dur"]) for one in spans if one["name"].startswith("step ")]
    assert np.array(shown) * 1000 == pytest.approx(np.array(steps), abs=1)
    for one in spans:  # jobs and layers are within a step
        start, end = one["ts"] * 1000, (one["ts"] + one["dur"]) * 1000
        assert any(begun - 1 <= start and end <= ended + 1 for begun, ended in steps), one
    begun, ended = (
        {(one["id"], one["name"]): one["ts"] * 1000 for one in events if one["ph"] == phase} for phase in "be"
    )
    for number, request in enumerate(json.loads(out)["per_request"]):
        name = f"request {request['id']}"
        assert begun[number, name] == pytest.approx(request["arrival_ns"], abs=1)
        assert ended[number, name] == pytest.approx(request["end_ns"], abs=1)
        assert begun[number, "decode"] == ended[number, "prompt"]
        assert begun[number, "prompt"] == pytest.approx(request["admitted_ns"], abs=1)
    assert any(name == "waits" for _, name in begun)


def test_the_timeline_of_a_dense_model_has_its_steps(here: Path):
    words = {"--model": "llama-3.1-8b", "--hw": "trimoe", "--requests": REQUESTS, "--timeline": "t.json"}
    said("serve", *(word for pair in words.items() for word in pair))
    events = json.loads((here / "t.json").read_text())["traceEvents"]
    assert {one["pid"] for one in events} == {1}
    assert sum(one["ph"] == "b" and one["name"].startswith("request") for one in events) == 12


def is_in_a_column(name: str, value: float, page: str) -> bool:
    """Whether a page has the digits of a value; all cells of a column have one unit."""
    return with_unit(name, value).split()[0].replace(".", "").strip("0") in page.replace(".", "")


def test_the_report_has_latencies_requests_and_the_configuration(here: Path):
    out = said(*CALL, "--slo", "ttft=1s", "--report", "run.html", "--json", "-")
    page, result = (here / "run.html").read_text(), json.loads(out)
    for title in ("Summary", "Run", "Requests: 12", "Configuration", "Provenance"):
        assert f"{title}</" in page, title
    assert page.count("<svg") == 1
    for name in ("ttft_ns", "tpot_ns", "itl_ns", "latency_ns"):
        for value in result[name].values():
            assert is_in_a_column(name, value, page)
    assert with_unit("tokens_per_s", result["tokens_per_s"]) in page
    assert page.count("on-demand") > 1


def test_reports_of_several_rates_and_of_a_search_show_each_rate(here: Path):
    runs = json.loads(said(*CALL, "--rate", "2,900", "--report", "rates.html", "--json", "-"))
    page = (here / "rates.html").read_text()
    for run in runs:
        assert is_in_a_column("ttft_ns", run["ttft_ns"]["p99"], page)
    found = json.loads(
        said(*CALL, "--slo", "ttft=20ms", "--find-rate", "--report", "found.html", "--json", "-")
    )
    page = (here / "found.html").read_text()
    assert f"Search: {len(found['tries'])} rates</" in page
    for tried in found["tries"]:
        assert is_in_a_column("ttft_ns", tried["ttft_ns"]["p90"], page)


def test_an_interrupted_run_leaves_no_timeline(here: Path):
    def interrupt(share: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), writing_serving_timeline(here / "t.json") as observer:
        serve(observer=observer, progress=interrupt)
    assert not list(here.iterdir())


# ---- The model's context -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("output", "fits"), [(4, True), (5, False)])
def test_a_request_may_fill_the_context_of_the_model_to_its_last_token(output: int, fits: bool):
    model = replace(MODEL, context=36)
    asked = {"policy": "on-demand", "requests": f"poisson:requests=2,input_tokens=32,output_tokens={output}"}
    if fits:
        assert ndpsim.run_serving(MACHINE, model, **asked).requests == 2
    else:
        with refused("too-large requests"):
            ndpsim.run_serving(MACHINE, model, **asked)


def test_the_context_of_a_model_is_that_of_its_file(here: Path):
    config = json.loads((GIVEN / "small.json").read_text())
    assert ndpsim.load_model(GIVEN / "small.json").context is None
    (here / "m.json").write_text(json.dumps({**config, "max_position_embeddings": 77}))
    assert ndpsim.load_model(here / "m.json").context == 77
    (here / "zero.json").write_text(json.dumps({**config, "max_position_embeddings": 0}))
    with refused("range zero.json:1 max_position_embeddings"):
        ndpsim.load_model(here / "zero.json")
    assert all(ndpsim.load_model(name).context for name in ndpsim.model_names())


# ---- Policies ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", policies())
def test_the_page_of_each_policy_says_which_of_its_rules_apply_to_mixed_steps(name: str):
    policy = policies()[name]
    assert vars(policy)["mixed_steps"]
    assert policy.mixed_steps in " ".join(said("show", "policy", name).split())
    assert json.loads(said("show", "policy", name, "--json", "-"))["mixed_steps"] == policy.mixed_steps
