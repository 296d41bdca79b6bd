"""``ndpsim moe``: options to `run_moe`, its result to text, JSON and files, mistakes in a line."""

from __future__ import annotations

import json
import re
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from calls import call, refused_call
from ndpsim.base.errors import InputError
from ndpsim.report import moe as moe_report


@pytest.fixture
def given(monkeypatch, moe_by_hand):
    """What `run_moe` is called with; it plays what was made by hand. `fails` and `error` change what it does."""
    seen = SimpleNamespace(arguments=None, fails=None, error=None)

    def run_moe(**arguments):
        seen.arguments = arguments = {"policies": ("trimoe",), **arguments}
        if arguments["observer"] is not None:
            moe_by_hand.play(arguments["observer"], *arguments["policies"])
        if seen.fails is not None:
            raise seen.fails
        return moe_by_hand.result(*arguments["policies"], error=seen.error)

    monkeypatch.setitem(sys.modules, "ndpsim.inference.layers.run", SimpleNamespace(run_moe=run_moe))
    return seen


def test_defaults_are_those_of_the_contract(given):
    status, _, err = call("moe")
    assert (status, err) == (0, "")
    assert callable(given.arguments.pop("progress"))
    assert given.arguments == {
        "policies": ("trimoe",),
        "observer": None,
    }  # for the rest `run_moe` has its own


def test_every_option_reaches_the_run(given):
    line = (
        "--hw edge --model glm-4.5-air --batch 7 --steps 3 --routing skewed:drift=0.1 --seed 5 --prompt 9 --prefix 4 "
        "--layers 1-3,7 --bits 4 --dense-bits 8 --kv host --kv-bits 3 --context 100 --gpu-experts 6 "
        "--arbitration ndp-first --set dimm.ranks=2 --check-layer 1,2 --check-limit 0.02 --policy monde --policy a:b=1"
    )
    assert call("moe", *line.split()).status == 0
    assert {name: given.arguments[name] for name in given.arguments.keys() - {"observer", "progress"}} == {
        **dict(
            hw="edge", model="glm-4.5-air", batch=7, steps=3, routing="skewed:drift=0.1", seed=5, prompt=9
        ),
        **dict(prefix=4, layers=[1, 2, 3, 7], bits=4, dense_bits=8, kv="host", kv_bits=3, context=100),
        **dict(gpu_experts=6, arbitration="ndp-first", sets=("dimm.ranks=2",), check_layer=(1, 2)),
        **dict(check_limit=0.02, policies=("monde", "a:b=1")),
    }


def test_policies_stand_side_by_side(given, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    status, out, _ = call("moe", "--policy", "trimoe", "--policy", "monde")
    assert status == 0
    assert max(map(len, out.splitlines())) <= 160
    rows = [re.split(r"\s{2,}", line.strip()) for line in out.splitlines()[2:]]
    cells = {name: values for name, *values in rows}
    assert cells["speed-up of total time"] == [
        "1.000\N{MULTIPLICATION SIGN}",
        "0.8000\N{MULTIPLICATION SIGN}",
    ]
    assert cells["decode time per step"] == ["160.0 µs", "200.0 µs"]
    assert cells["experts' time in decode per step"] == ["120.0 µs", "150.0 µs"]
    assert cells["lower bound on experts' time (% of experts' time)"] == ["51.7%", "41.3%"]
    assert cells["utilization, NDP units"] == ["15.0%", "15.0%"]
    assert cells["pairs, NDP (% of token-expert pairs)"] == ["25.0%", "25.0%"]
    assert cells["migrations, prefetch, exposed (% of their time)"] == ["50.0%", "60.0%"]
    assert cells["bottleneck (share of the critical path)"] == ["ndp 0 75.0%", "ndp 0 75.0%"]
    assert "energy without GPU (not known)" in out
    assert "prediction, accuracy 78.0%: hot experts that were foretold" in out


def test_what_was_counted_as_a_prediction_is_said_of_each_share():
    from ndpsim.report.moe import _prediction_notes

    counted = {"accuracy": "classes", "decision_accuracy": "moves of benefit", "experts": 7}
    assert _prediction_notes({"accuracy": 0.5, "decision_accuracy": 0.25, "counted": counted}) == [
        "prediction, accuracy 50.0%: classes",
        "prediction, decision accuracy 25.0%: moves of benefit",
    ]
    assert _prediction_notes({"accuracy": 0.5, "decision_accuracy": None, "counted": counted})[1:] == []


def test_resources_are_busy_while_any_of_their_jobs_runs_and_of_units_the_longest_counts():
    """GPU from 0 to 20 and from 30 to 40; units for 10 and 15; copies and a migration to the GPU from 0 to 9."""

    def job(resource: str, start: float, end: float, kind: str = "expert") -> Any:
        return SimpleNamespace(resource=resource, kind=kind, start_ns=start, end_ns=end)

    jobs = [job("gpu", 5, 20), job("gpu", 0, 10), job("gpu", 30, 40), job("gpu", 50, 90, "attention")]
    jobs += [job("ndp 0", 0, 10), job("ndp 1", 20, 30), job("ndp 1", 0, 5), job("pcie-down", 0, 5, "copy")]
    moving = [
        SimpleNamespace(target="gpu", start_ns=3, end_ns=9),
        SimpleNamespace(target="dimm 1", start_ns=0, end_ns=99),
    ]
    layer: Any = SimpleNamespace(jobs=jobs, moving=moving)
    assert moe_report._busy(layer) == {"gpu": 30, "cpu": 0, "ndp": 15, "pcie-down": 9}


def test_policies_are_listed_and_shown():
    assert {"trimoe", "monde"} <= set(call("list", "policies")[1].split())
    status, out, _ = call("show", "policy", "trimoe", "--json", "-")
    assert status == 0
    shown = json.loads(out)
    assert shown["name"] == "trimoe"
    of = {one["name"]: one for one in shown["parameters"]}
    assert (of["alpha"]["default"], of["refine"]["default"]) == (0.3, True)
    assert all(set(one) == {"name", "type", "default", "description"} for one in of.values())
    status, out, _ = call("show", "policy", "trimoe")
    line = next(line for line in out.splitlines() if line.startswith("alpha "))
    assert line.split("  ")[-1].endswith("(equation 8)")
    assert " 0.3 " in line
    assert call("show", "policy", "trimo")[2].startswith(
        "ndpsim: error: show policy: unknown policy 'trimo'; did you mean 'trimoe'?"
    )


def test_one_policy_with_other_parameters_has_another_name(given):
    from ndpsim.report.moe import run_names

    runs = [SimpleNamespace(policy="trimoe", parameters={"refine": on, "limit": 4}) for on in (True, False)]
    assert run_names(runs) == ["trimoe:refine=true", "trimoe:refine=false"]
    assert run_names([*runs[:1], SimpleNamespace(policy="monde", parameters={})]) == ["trimoe", "monde"]


def test_json_has_the_keys_of_the_contract(given):
    status, out, _ = call("moe", "--json", "-", "--check-layer", "1,4")
    assert status == 0
    shown = json.loads(out)
    assert list(shown) == ["config", "routing", "runs", "not_run"]
    assert set(shown["runs"][0]) == {
        *("policy", "parameters", "time_ns", "prefill_ns", "decode_ns", "moe_ns", "prefill_moe_ns"),
        *("decode_moe_ns", "shared_ns", "layer_ns", "tokens_per_s", "speedup", "speedup_moe", "bound"),
        *("speedup_prefill", "speedup_decode"),
        *(
            "bound_ns",
            "pairs",
            "experts",
            "pairs_by_engine",
            "weight_bits",
            "utilization",
            "migrations",
            "cache",
        ),
        "prediction",
        *("estimated_ns", "policy_wall_s", "bottleneck", "energy_nj", "energy_note", "wall_s", "check"),
        "best_known_ns",
        "compile_s",
    }


@pytest.mark.parametrize(("error", "status"), [(0.04, 0), (-0.06, 1), (0.06, 1)])
def test_a_layer_beyond_the_limit_is_exit_status_1(given, error, status):
    given.error = error
    found, out, _ = call("moe", "--check-layer", "1,4")
    assert found == status
    assert ("beyond 5.0%" in out) == bool(status)
    assert f"furthest: dimm 0, {100 * error:+.1f}% of the layer, of 1 end" in out
    told = [line for line in out.splitlines() if line.startswith("dimm 0 ends after 55.00 µs by rates")]
    assert len(told) == status


def test_a_result_is_equal_however_long_its_policy_thought(moe_by_hand):
    from dataclasses import replace

    one = moe_by_hand.result("trimoe")
    run = replace(one.runs[0], policy_wall_s=9.0, wall_s=9.0)
    assert replace(one, runs=(run,)) == one
    assert replace(one, runs=(replace(run, pairs=1),)) != one
    assert "trimoe" in repr(one)
    assert "PolicyRun of trimoe" in repr(run)


@pytest.mark.parametrize(
    ("key", "option"),
    [
        ("policy", "invalid --policy"),
        ("gpu_experts", "invalid --gpu-experts"),
        ("check_layer", "invalid --check-layer"),
    ],
)
def test_a_mistake_found_in_the_run_names_its_option_and_leaves_no_file(given, tmp_path, key, option):
    given.fails = InputError("is wrong", key=key)
    given_files = ("--log", tmp_path / "log.jsonl", "--timeline", tmp_path / "t.json")
    assert refused_call("moe", *given_files) == option
    assert list(tmp_path.iterdir()) == []
