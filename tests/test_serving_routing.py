"""Recorded routing of sequences that come and go: each follows a recorded sequence, and its statistics are the trace's."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ndpsim
from builders.small_moe import MODEL
from mistakes import refused
from ndpsim.workload.requests import Requests
from ndpsim.workload.routing import Routing, generate_routing
from ndpsim.workload.routing.sequences import ReplayedRouting, routing_of_sequences

MACHINE = "dali-7532-3090"
SEQUENCES, PROMPT, STEPS = 24, 10, 12
TRACE = generate_routing("skewed:step_stickiness=0.5,token_stickiness=0.3", MODEL, SEQUENCES, STEPS, PROMPT)


def tokens(routed: Any, sequences: int, first: int, last: int) -> Any:
    """Experts of some positions of all sequences: [layer, sequence, position, k]."""
    positions = np.arange(first, last)
    ids = routed.ids(np.repeat(np.arange(sequences), len(positions)), np.tile(positions, sequences))
    return ids.reshape(len(ids), sequences, len(positions), -1)


def replayed(sequences: int, prompt: int = PROMPT, trace: Routing = TRACE) -> ReplayedRouting:
    return ReplayedRouting(trace, np.full(sequences, prompt), 3)


def shares(ids: Any) -> Any:
    """The share of each expert in each layer."""
    return np.array([np.bincount(of_layer.ravel(), minlength=16) / of_layer.size for of_layer in ids])


def test_a_sequence_follows_a_recorded_one_forth_and_back():
    decoded = tokens(replayed(40), 40, PROMPT, PROMPT + 2 * STEPS)
    recorded = TRACE.ids.transpose(1, 2, 0, 3)  # [layer, sequence, step, k]
    followed = []
    for one in range(40):
        (which,) = [n for n in range(SEQUENCES) if np.array_equal(recorded[:, n], decoded[:, one, :STEPS])]
        followed.append(which)
        assert np.array_equal(decoded[:, one, STEPS], recorded[:, which, STEPS - 2])
        assert np.array_equal(decoded[:, one, 2 * STEPS - 2], recorded[:, which, 0])
        assert np.array_equal(decoded[:, one, 2 * STEPS - 1], recorded[:, which, 1])
    assert len(set(followed)) > SEQUENCES / 3


def test_a_prompt_follows_the_recorded_prompt_of_the_same_sequence():
    long = tokens(replayed(30, 15), 30, 0, 16)
    assert TRACE.prefill_ids is not None
    prompts = TRACE.prefill_ids.reshape(3, SEQUENCES, PROMPT, 2)
    for one in range(30):
        (which,) = [n for n in range(SEQUENCES) if np.array_equal(prompts[:, n], long[:, one, :PROMPT])]
        assert np.array_equal(long[:, one, PROMPT], prompts[:, which, PROMPT - 2])
        assert np.array_equal(long[:, one, 15], TRACE.ids[0, :, which])


def test_popularity_of_each_layer_is_the_traces():
    decoded = shares(tokens(replayed(2000), 2000, PROMPT, PROMPT + STEPS))
    assert np.abs(decoded - shares(TRACE.ids.swapaxes(0, 1))).max() < 0.01
    assert TRACE.prefill_ids is not None
    assert np.abs(shares(tokens(replayed(2000), 2000, 0, PROMPT)) - shares(TRACE.prefill_ids)).max() < 0.01
    without = replace(TRACE, prefill_ids=None, prompt_lengths=())
    anywhere = tokens(replayed(2000, trace=without), 2000, 0, PROMPT)
    assert (anywhere[:, :, 1:] == anywhere[:, :, :-1]).all(-1).mean() < 0.2
    prompts = shares(anywhere)
    assert np.abs(prompts - shares(TRACE.ids.swapaxes(0, 1))).max() < 0.01


def test_tokens_repeat_as_often_as_in_the_trace():
    period = 2 * STEPS - 2
    decoded = tokens(replayed(2000), 2000, PROMPT, PROMPT + period + 1)
    found = (decoded[:, :, 1:] == decoded[:, :, :-1]).all(-1).mean(axis=(1, 2))
    recorded = (TRACE.ids[1:] == TRACE.ids[:-1]).all(-1).mean(axis=(0, 2))
    assert recorded.min() > 0.4
    assert found == pytest.approx(recorded, abs=0.01)


def test_a_sequence_is_routed_alike_in_any_batch():
    routed = replayed(9)
    together = routed.ids(np.array([4, 8, 4, 1]), np.array([3, 30, 31, 2]))
    for place, (sequence, position) in enumerate(((4, 3), (8, 30), (4, 31), (1, 2))):
        alone = routed.ids(np.array([sequence]), np.array([position]))
        assert np.array_equal(together[:, place : place + 1], alone)


def test_popularity_drifts_from_step_to_step_where_the_spec_says_so():
    def change(spec: str) -> float:
        routed = routing_of_sequences(spec, MODEL, 1)(np.full(2000, 4))
        first, later = (shares(tokens(routed, 2000, place, place + 1)) for place in (4, 204))
        return float(np.abs(first - later).sum(axis=1).mean())

    assert change("skewed:step_drift=0.05") > 3 * change("skewed")


# ---- Runs --------------------------------------------------------------------------------------------------------


def serve(requests: Requests, **more: Any) -> Any:
    return ndpsim.run_serving(MACHINE, MODEL, requests, **{"policy": "on-demand", **more})


def test_the_first_token_of_a_recorded_prompt_takes_what_moe_says(tmp_path: Path):
    trace = generate_routing("skewed", MODEL, 1, 4, PROMPT, seed=9)
    trace.save(tmp_path / "trace.npz")
    alone = Requests(np.zeros(1), np.array([PROMPT]), np.array([3]))
    result = serve(alone, routing=tmp_path / "trace.npz", policy="on-demand", gpu_experts=0)
    moe = ndpsim.run_moe(
        MACHINE, MODEL, ("on-demand",), routing=trace, prompt=PROMPT, context=PROMPT + 1, gpu_experts=0
    ).runs[0]
    assert result.per_request[0].ttft_ns == moe.prefill_ns
    assert result.config["routing"] == str(tmp_path / "trace.npz")
    assert serve(alone, routing=trace, gpu_experts=0).ttft_ns == result.ttft_ns


def test_policies_that_learn_from_an_offline_trace_serve_recorded_routing():
    requests = Requests(np.zeros(3), np.full(3, PROMPT), np.full(3, 4))
    for policy in ("dali", "hybrimoe"):
        assert serve(requests, routing=TRACE, policy=policy).output_tokens == 12


def test_a_trace_that_does_not_fit_is_refused():
    requests = Requests(np.zeros(1), np.full(1, PROMPT), np.full(1, 4))
    with refused("conflict routing"):
        serve(requests, routing=generate_routing("skewed", "mixtral-8x7b", 2, 2))
    with refused("missing routing"):
        serve(requests, routing=generate_routing("skewed", MODEL, 2, 0, PROMPT))
    with refused("unknown-name routing"):
        serve(requests, routing="none.npz")
