"""Totals of sweeps, units in messages about numbers, keys that another key decides, values in a wrong unit."""

from __future__ import annotations

import json
import logging
import re
from typing import Any

import numpy as np
import pytest

from calls import call
from ndpsim import InputError, load_hardware, load_model, load_requests, load_routing
from ndpsim.base.options.host import RATE
from ndpsim.base.reported import with_unit
from ndpsim.config.files import data_folder
from ndpsim.config.origins import default_reason
from ndpsim.config.ranges import _report, ranges_text
from ndpsim.report.pictures.expert import phase_bars
from ndpsim.simulate.host_traffic import rate_gbps
from ndpsim.simulate.results.moe import PolicyRun
from ndpsim.simulate.results.serving import ServingResult
from ndpsim.studies.sweeps.command import numbered_part, scalars_of
from ndpsim.studies.sweeps.table import lists_of, rows_of
from ndpsim.studies.sweeps.values import Definition

# ---- Totals of sweeps


@pytest.fixture
def run(moe_by_hand: Any) -> PolicyRun:
    return moe_by_hand.result("trimoe").runs[0]


def test_a_sweep_has_the_total_energy_and_tells_whether_it_is_complete(run: PolicyRun):
    metrics = scalars_of(run)
    assert (metrics["energy_nj.total"], metrics["energy_complete"]) == (3e6, False)


def test_a_sweep_has_the_mean_over_dimms_and_lists_them_apart(run: PolicyRun):
    metrics = scalars_of(run)
    assert metrics["utilization.ndp"] == pytest.approx(np.mean([0.0, 0.1, 0.2, 0.3]))
    assert metrics["bottleneck.ndp"] == 0.75
    definition = Definition("moe", varied={"batch": [1]})
    point = (
        {"batch": 1},
        {"metrics": metrics, "status": "ok", "reason": None, "version": {"ndpsim": "", "digest": ""}},
        "{}",
    )
    (row,) = rows_of(definition, [point])
    assert not [name for name in row if re.search(" [0-9]+$", name)]
    values = [(row["metric"], row["number"], row["value"]) for row in lists_of(definition, [point])]
    values = [value for value in values if value[0] == "utilization.ndp"]
    assert values[:4] == [("utilization.ndp", number, pytest.approx(0.1 * number)) for number in range(4)]


def test_a_name_that_ends_in_a_number_is_no_part_without_a_mean_of_all():
    assert numbered_part("link_busy.dimm 0 to 1", ["link_busy.dimm 0 to 1"]) is None
    assert numbered_part("utilization.ndp 3", ["utilization.ndp 3", "utilization.ndp"]) == (
        "utilization.ndp",
        3,
    )


def test_a_sweep_has_no_columns_of_sentences(run: PolicyRun):
    sentences = [name for name, value in scalars_of(run).items() if isinstance(value, str) and " " in value]
    assert sentences == []


def test_every_ratio_and_throughput_tells_of_which_time_it_is():
    labels = {
        f.name: f.metadata["quantity"].label for f in PolicyRun.__dataclass_fields__.values() if f.metadata
    }
    for name in ("speedup", "speedup_prefill", "speedup_decode", "speedup_moe", "tokens_per_s"):
        assert " of " in labels[name]
    served = {
        f.name: f.metadata["quantity"].label
        for f in ServingResult.__dataclass_fields__.values()
        if f.metadata
    }
    assert " of " in served["tokens_per_s"]
    assert " of " in served["user_tokens_per_s"]


# ---- Numbers with units


def test_a_count_beside_shares_is_no_percentage():
    assert with_unit("prediction.counted.experts", 496, PolicyRun) == "496"
    assert with_unit("prediction.accuracy", 0.78, PolicyRun) == "78.0%"


@pytest.mark.parametrize(("key", "unit"), [("gpu.memory_tbps", "TB/s"), ("ndp.gemv.clock_mhz", "MHz")])
def test_an_error_of_a_number_names_the_unit(key: str, unit: str):
    with pytest.raises(InputError, match=f"{key}: -1 is not a number .*, in {unit}"):
        load_hardware("trimoe", [f"{key}=-1"])


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        (
            "gpu.memory_tbps=2040",
            "gpu.memory_tbps: 2040 TB/s is far from all bundled hardware, which has 0.224 to 8 TB/s",
        ),
        (
            "ndp.gemv.clock_mhz=1.6",
            "ndp.gemv.clock_mhz: 1.6 MHz is far from all bundled hardware, which has 1000 MHz;",
        ),
        ("gpu.memory_tbps=2.04", ""),
    ],
)
def test_a_value_far_from_all_bundled_hardware_has_a_notice(
    setting: str, words: str, caplog: pytest.LogCaptureFixture
):
    _report.cache_clear()
    with caplog.at_level(logging.WARNING):
        load_hardware("trimoe", [setting, "name=far"])
    assert [record.getMessage().startswith(words) for record in caplog.records] == [True] * bool(words)


def test_the_ranges_are_those_of_the_bundled_files():
    text = (data_folder("hwconfigs") / "ranges.json").read_text()
    assert text == ranges_text()
    assert json.loads(text)["gpu.memory_tbps"] == [0.224, 8]


# ---- Keys that another key decides


@pytest.mark.parametrize(
    ("setting", "decides"),
    [
        ("link.lane_gbit_s=100", "link.link_gbps = 25"),
        ("link.lanes=16", "link.link_gbps = 25"),
        ("host.cpu_isa=avx2", "host.cpu_tflops = 90.1"),
        ("host.memory_tb=4", "dimm.count = 16"),
    ],
)
def test_a_set_that_changes_nothing_is_refused_with_the_key_that_decides(setting: str, decides: str):
    with pytest.raises(
        InputError, match=f"{setting.partition('=')[0]}: changes nothing by itself.*{decides}"
    ):
        load_hardware("trimoe", [setting])


def test_a_set_beside_the_key_that_decides_is_taken():
    hardware = load_hardware("trimoe", ["link.lane_gbit_s=100", "link.link_gbps=50"])
    assert hardware.system.link is not None
    assert hardware.system.link.link_gbps == 50


def test_the_peak_of_the_cpu_is_not_called_unused():
    assert "cpu_cores" in default_reason(("host", "cpu_tflops"))


# ---- A unit that begins with the values of a file


def test_a_unit_has_the_values_of_its_part_except_its_own():
    hardware = load_hardware("trimoe", ["ndp.gemv={part: edge_gemv, clock_mhz: 1600}"])
    edge = load_hardware("edge").system.ndp
    assert hardware.system.ndp is not None
    assert edge is not None
    assert hardware.system.ndp.gemv.clock_mhz == 1600
    assert hardware.system.ndp.gemv.model_copy(update={"clock_mhz": edge.gemv.clock_mhz}) == edge.gemv
    assert hardware.origins["ndp.gemv.multipliers"].kind != "set"


@pytest.mark.parametrize(
    ("unit", "words"),
    [
        ("{part: 5}", "ndp.gemv.part: 5 is not the name of a file"),
        ("{part: nope}", "unknown file in rtl_params 'nope'"),
        ("{part: edge_gemv, clok: 1}", "ndp.gemv.clok: unknown key"),
    ],
)
def test_a_part_that_is_no_unit_is_refused(unit: str, words: str):
    with pytest.raises(InputError, match=words):
        load_hardware("trimoe", [f"ndp.gemv={unit}"])


# ---- Pictures of phases


def test_many_short_phases_do_not_fill_their_row():
    """1,000 phases that are busy 0.3% of the time fill 0.3% of the row's area, not all of it."""
    starts = np.arange(1000.0)
    shown, lengths, heights = phase_bars([(start, start + 0.003) for start in starts], 1000.0)
    assert (lengths * heights).sum() == pytest.approx(3.0)
    assert len(shown) == len(heights)


def test_a_few_short_phases_have_bars_that_can_be_seen():
    _, lengths, heights = phase_bars([(0.0, 0.1), (50.0, 90.0)], 100.0)
    assert lengths.tolist() == [pytest.approx(100 / 150), 40.0]
    assert heights.tolist() == [1, 1]


def test_lists_are_written_as_a_long_table(tmp_path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    call("gemv", "--shape", "64,32")  # its kernel is compiled then
    status, _, err = call("sweep", "gemv", "--shape", "64,32", "--vary", "tokens=1", "--lists", "l.csv")
    assert (status, err.strip()) == (0, "")
    assert (tmp_path / "l.csv").exists()


# ---- Host traffic as a share


def test_host_traffic_may_be_a_share_of_the_bandwidth():
    assert rate_gbps("30%", 40.0, "host_gbps") == pytest.approx(12.0)
    assert rate_gbps("saturate", 40.0, "host_gbps") is None
    assert RATE.check(" 12.5 % ", "host-traffic") == "12.5 %"


@pytest.mark.parametrize("value", ["101%", "-1%", "%", "30 percent"])
def test_a_share_above_the_whole_or_without_a_number_is_refused(value: str):
    with pytest.raises(InputError, match="a share such as"):
        RATE.check(value, "host-traffic")


# ---- Requests and routing as other programs write them


def test_requests_need_no_ids_and_numbers_are_as_pandas_writes_them(tmp_path):
    file = tmp_path / "r.csv"
    file.write_text("arrival_s,input_tokens,output_tokens\n1e-05,8.0,3\n1e-1,12,2.0\n")
    found = load_requests(file)
    assert list(found.ids) == ["0", "1"]
    assert found.arrival_ns.tolist() == [1e4, 1e8]
    assert (found.prompt_tokens.tolist(), found.output_tokens.tolist()) == ([8, 12], [3, 2])
    file.write_text("arrival_s,input_tokens,output_tokens\n0,8.5,3\n")
    with pytest.raises(InputError, match="'8.5' is not a whole number"):
        load_requests(file)


@pytest.mark.parametrize("name", ["ids.npy", "ids.npz"])
def test_a_routing_may_be_plain_arrays(name: str, tmp_path):
    model = load_model("deepseek-v2-lite")
    ids = np.argsort(np.random.default_rng(1).random((2, model.moe_layers, 3, model.routed_experts)))[
        ..., : model.experts_per_token
    ]
    file = tmp_path / name
    if name.endswith("npy"):
        np.save(file, ids)
    else:
        np.savez(file, ids=ids, prefill_ids=ids[0])
    found = load_routing(file, model)
    assert found.experts == model.routed_experts
    assert found.layers == tuple(layer for layer in range(model.layers) if layer not in model.dense_layers)
    assert (found.ids == ids).all()
    assert found.for_model(model).batch == 3
    assert load_routing(file).layers == tuple(range(model.moe_layers))


def test_an_array_that_is_no_routing_is_refused(tmp_path):
    np.save(tmp_path / "ids.npy", np.zeros((2, 3)))
    with pytest.raises(InputError, match="not expert ids"):
        load_routing(tmp_path / "ids.npy")
