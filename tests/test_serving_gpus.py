"""Serving on GPUs that hold all weights: dense models, whose steps take what their parts take."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import ndpsim
from mistakes import refused
from ndpsim.audit import check_serving
from ndpsim.config import data_path
from ndpsim.results.serving import ServingResult
from ndpsim.serving.log import writing_serving_log
from ndpsim.serving.run import run_serving
from ndpsim.workloads import Requests

DENSE = "llama-3.1-8b"


def requests(*lengths: tuple[int, int], arrivals: Any = None) -> Requests:
    """Requests of (prompt, output) tokens, all at once where no arrivals are given."""
    prompts, outputs = np.array(lengths).T
    return Requests(
        np.zeros(len(lengths)) if arrivals is None else np.asarray(arrivals, float), prompts, outputs
    )


def serve(asked: Requests, **more: Any) -> ServingResult:
    return run_serving("trimoe", asked_model(more), asked, **more)


def asked_model(more: dict[str, Any]) -> Any:
    return more.pop("model", DENSE)


# ---- Dense models ------------------------------------------------------------------------------------------------


def test_a_step_of_a_dense_model_takes_all_layers_and_the_head():
    prompt = 100
    (one,) = serve(requests((prompt, 2))).per_request
    processors, model = ndpsim.load_processors("trimoe"), ndpsim.load_model(DENSE)

    def step_ns(context: int, new: int) -> float:
        time = processors.dense_time(model, 1, context, new)
        return 32 * (time.attention_ns + time.dense_layer_ns) + time.head_ns

    assert one.ttft_ns == pytest.approx(step_ns(prompt, prompt), rel=1e-12)
    assert one.tpot_ns == pytest.approx(step_ns(prompt + 1, 1), rel=1e-12)


def test_the_kv_cache_gets_what_weights_and_work_leave_of_the_share_of_the_memory():
    result = serve(requests((100, 2)), max_batch=128, max_tokens=2048)
    weights = 2 * 8_030_261_248 - 2 * 65 * 4096  # all parameters of the model's card but its norms, 2 B each
    token = 2 * 32 * 8 * 128 * 2  # keys and values of 32 layers
    # In work: of a token two vectors and what is inside a feed-forward network; the logits of each sequence.
    work = 2048 * (2 * 4096 + 3 * 14336) * 2 + 128 * 128256 * 4
    assert result.config["kv_blocks"] == int((80e9 - 8e9 - weights - work) // (16 * token))


def test_a_dense_model_has_no_policy_and_its_log_is_consistent(tmp_path: Path):
    asked = requests(*[(200, 20)] * 12, arrivals=np.arange(12) * 2e7)
    with writing_serving_log(tmp_path / "log.jsonl") as log:
        result = serve(asked, log=log, kv_blocks=50, max_batch=4, max_tokens=256)
    assert (result.config["policy"], result.config["routing"], result.pairs_by_engine) == (None, None, {})
    assert json.loads((tmp_path / "log.jsonl").read_text().splitlines()[0])["policy"] is None
    assert result.preemptions > 0
    report = check_serving(tmp_path / "log.jsonl")
    assert report.ok, report


def test_a_dense_model_needs_only_a_gpu_and_may_be_a_file(tmp_path: Path):
    whole = yaml.safe_load(data_path("hwconfigs", "trimoe").read_text())
    file, model = tmp_path / "gpu.yaml", tmp_path / "own.json"
    file.write_text(yaml.safe_dump({key: whole[key] for key in ("name", "dram", "gpu")}))
    model.write_text(
        json.dumps(
            {
                "model_type": "llama", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
                "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 100,
            }
        )
    )  # fmt: skip
    result = run_serving(file, model, requests((10, 3)))
    assert (result.config["model"], result.steps) == ("own", 3)
    assert result.utilization == {"gpu": pytest.approx(1)}


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"policy": "trimoe"}, "conflict policy"),
        ({"routing": "skewed"}, "conflict routing"),
        ({"bits": 8}, "conflict bits"),
        ({"weights": "q4_k_m"}, "conflict weights"),
        ({"gpu_experts": 1}, "conflict gpu_experts"),
        ({"kv": "host"}, "unsupported kv"),
        ({"kv_blocks": 2}, "too-large requests"),
    ],
)
def test_what_needs_experts_or_other_memory_is_refused(more: dict[str, Any], expected: str):
    with refused(expected):
        serve(requests((100, 2)), **more)


@pytest.mark.parametrize("call", [ndpsim.run_moe, ndpsim.simulate_expert])
def test_commands_on_experts_refuse_a_dense_model(call: Any):
    with refused("unsupported model"):
        call(model=DENSE)
