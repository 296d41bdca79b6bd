"""Figures of serving, each computed again from others; their limits; steps that do not grow."""

from __future__ import annotations

import sys
import tracemalloc
from dataclasses import replace
from inspect import signature
from types import FrameType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from builders.small_moe import CACHED_BYTES, EXPERT_BYTES, MODEL
from calls import refused_call
from mistakes import refused
from ndpsim.base.options.serve import FIND, ServeSettings, ServiceLevel
from ndpsim.base.units import percent
from ndpsim.config import load_hardware
from ndpsim.inference.layers.weights import run_weights
from ndpsim.inference.processors import Processors
from ndpsim.inference.serving.engine import DoneStep
from ndpsim.inference.serving.kv import KvCache
from ndpsim.inference.serving.log import ServingObserver
from ndpsim.inference.serving.room import KvRoom, kv_room
from ndpsim.inference.serving.scheduler import Limits
from ndpsim.inference.serving.server import find_rate, run_serving
from ndpsim.inference.serving.summary import _grows
from ndpsim.report.metrics import higher_is_better
from ndpsim.report.pictures.serving import serving_figure
from ndpsim.report.serving import print_found_rate, serving_table
from ndpsim.simulate.results.cache import ResultCache
from ndpsim.simulate.results.serving import FoundRate, ServingResult, TriedRate, percentiles
from ndpsim.workload.models import load_model
from ndpsim.workload.requests import Requests
from ndpsim.workload.routing.sequences import SequenceRouting
from test_serving import MACHINE, OnGpu, engine, requests, sequence, serve


def test_blocks_in_use_are_those_of_the_step_before_requests_end():
    result = serve(requests((32, 1), (33, 1)), block_tokens=16)
    assert (
        result.steps == 2
    )  # of 65 tokens a step computes 64, and request 1 gets its third block in the next one
    assert result.most_kv_blocks == 2 + 2


def test_energy_per_token_is_that_of_all_output_tokens():
    result = serve(requests((20, 3), (10, 5)))
    known = {name: nj for name, nj in result.energy_nj.items() if nj is not None}
    assert known
    for name, nj in known.items():
        assert result.energy_per_token_nj[name] * 8 == pytest.approx(nj)  # type: ignore[operator]


@pytest.mark.parametrize(("waiting", "grows"), [(3, False), (4, True)])
def test_a_queue_grows_if_a_quarter_of_all_requests_wait_when_the_last_one_arrives(waiting, grows):
    admitted = [*range(16 - waiting), *[100] * waiting]
    served: Any = [SimpleNamespace(arrival_ns=at, admitted_ns=then) for at, then in enumerate(admitted)]
    assert _grows(served) == grows


def test_sequences_with_blocks_that_a_step_leaves_out_wait_for_none():
    # A static batch computes its prompts first: those that are done have blocks, and no part in these steps.
    asked = requests(*[(40, 4)] * 6, arrivals=np.arange(6) * 1e4)
    result = serve(asked, scheduler="static", max_batch=4, max_tokens=50)
    assert min(result.over_time["batch"]) < max(result.over_time["running"])
    inside = result.mean_running + result.mean_queue
    assert inside == pytest.approx(result.requests_per_s * result.latency_ns["mean"] / 1e9, rel=1e-6)


def test_free_blocks_that_are_found_again_are_no_room_for_others():
    kv = KvCache(2, 4)
    first, again = sequence(0, 8, (7, 8)), sequence(1, 13, (7, 8))
    assert kv.allocate(first, 8)
    kv.release(first)
    found = kv.found(again)
    assert (len(found), kv.free) == (2, 2)
    assert not kv.allocate(again, 5, found)  # it needs two blocks more
    assert (again.blocks, kv.free) == ([], 2)


def test_what_a_preempted_sequence_finds_of_its_own_is_no_reuse():
    asked = requests((4, 4), (4, 4), (4, 1))
    ran, _clock, done = engine(asked, "vllm", Limits(3, 12), KvCache(3, 4))
    ran.run()
    assert [one.preemptions for one in ran.sequences] == [0, 1, 0]
    before = [chunk.computed for step in done for chunk in step.formed.chunks if chunk.sequence.number == 1]
    assert before == [0, 4, 5, 6]  # it finds its first block again
    assert [one.reused_tokens for one in ran.sequences] == [0, 0, 0]


def test_without_a_number_of_blocks_the_longest_requests_have_room_at_once():
    asked = requests((30, 2), (60, 4), (90, 6), (10, 1))
    result = serve(asked, kv="host", max_batch=2, block_tokens=16)
    assert result.config["kv_blocks"] == 4 + 6
    assert result.config["gpu_bytes"]["kv_staging"] == (4 + 6) * 16 * CACHED_BYTES  # of one layer


def room_of(
    model: Any = MODEL,
    limits: tuple[int, int] = (2, 64),
    gpus: int = 1,
    room: int | None = None,
    kv: str = "auto",
) -> KvRoom:
    """The KV cache for requests of 2 to 6 blocks, in a memory with this much for it and for experts, or a large one."""
    asked = Requests(np.zeros(3), np.array([30, 60, 90]), np.array([2, 4, 6]))
    weights = run_weights(model, None, None, None)

    def of_memory(size: float) -> KvRoom:
        hardware = load_hardware("trimoe", ["gpu.reserved_gb=0", f"gpu.memory_gb={size:.9f}"])
        settings = ServeSettings(kv=kv, max_batch=limits[0], max_tokens=limits[1])
        return kv_room(settings, Processors(hardware), model, model, weights, asked, False, gpus)

    if room is None:
        return of_memory(80)
    others = sum(size for name, size in of_memory(80).memory.parts.items() if name != "kv_cache")
    return of_memory((others + room) / 1e9)


BLOCK = 16 * 4 * CACHED_BYTES


def test_a_cache_is_in_the_gpu_if_it_fits_there_to_the_byte():
    fits, lacks = room_of(room=10 * BLOCK), room_of(room=10 * BLOCK - 1)
    assert (fits.memory.kv, fits.blocks) == ("gpu", 4 + 6)
    assert (lacks.memory.kv, lacks.blocks) == ("host", 4 + 6)


def test_a_gpu_has_room_for_as_many_experts_as_any_has_of_a_layer():
    assert room_of(gpus=3, room=3 * 6 * EXPERT_BYTES + 7 * BLOCK).blocks == 7


def test_a_step_has_room_for_all_of_its_tokens():
    sizes = [room_of(limits=(3, tokens)).memory.parts["workspace"] for tokens in (63, 64, 66)]
    assert sizes[0] < sizes[1] == sizes[2]


def test_sequences_keep_their_blocks_and_states():
    """Qwen3-Next: 36 layers with a state of 32 x 128 x 128 values of 4 B, and 3 columns of 8192 channels of 2 B."""
    room = room_of(load_model("qwen3-next-80b-a3b"), kv="host")
    state_bytes = 36 * (32 * 128 * 128 * 4 + 3 * 8192 * 2)
    assert room.kept_bytes([3, 1]) == 4 * room.block_bytes + 2 * state_bytes


@pytest.mark.parametrize(("closed_loop", "batch"), [(2, 2), (None, 5)])
def test_policies_expect_as_many_sequences_as_there_can_be(closed_loop: int | None, batch: int):
    seen = []

    class Watching(OnGpu):
        name = "watching"

        def place(self, view: Any) -> Any:
            seen.append((view.batch, view.trace.ids.shape[2]))
            return super().place(view)

    serve(requests(*[(4, 2)] * 5, closed_loop=closed_loop), policy=Watching)
    assert seen == [(batch, batch)]


def test_percentiles_lie_between_the_values_next_to_them():
    found = percentiles(np.arange(11.0)[::-1])
    assert found == pytest.approx({"mean": 5, "p50": 5, "p90": 9, "p99": 9.9})
    assert percentiles(np.zeros(0)) is None


def test_the_first_decoded_token_repeats_no_prompt_token():
    prompt, many = 5, 400
    routed = SequenceRouting("skewed:step_stickiness=0.9", MODEL, np.full(many, prompt), 5)
    places = np.arange(prompt - 1, prompt + 2)
    ids = routed.ids(np.repeat(np.arange(many), 3), np.tile(places, many)).reshape(3, many, 3, 2)
    same = (ids[:, :, 1:] == ids[:, :, :-1]).all(-1).mean(axis=(0, 1))
    assert same[0] < 0.1 < 0.85 < same[1]  # by chance, and as often as it sticks


# ---- Levels and rates --------------------------------------------------------------------------------------------


def test_a_level_that_only_the_shortest_prompt_meets_is_not_refused():
    short, long = (serve(requests((prompt, 1))).ttft_ns["mean"] for prompt in (4, 60))
    assert short < long
    asked = requests((60, 1), (4, 1), arrivals=(0, 1e9))
    result = serve(asked, slo=ServiceLevel(ttft_ns=(short + long) / 2))
    assert result.goodput_per_s == pytest.approx(result.requests_per_s / 2)


@pytest.mark.parametrize("output", [2, 4])
def test_a_level_is_refused_if_tokens_of_a_request_alone_follow_each_other_later(output: int):
    asked = requests((4, output))
    tpot = serve(asked).tpot_ns["mean"]
    assert serve(asked, slo=ServiceLevel(tpot_ns=1.01 * tpot)).goodput_per_s
    with refused("range slo"):
        serve(asked, slo=ServiceLevel(tpot_ns=0.99 * tpot))


def test_nine_of_ten_requests_have_to_be_within_the_level_as_in_distserve():
    assert FIND["attainment"].default == 0.9
    assert signature(find_rate).parameters["attainment"].default == 0.9


def test_a_rate_is_found_at_which_all_requests_are_within_the_level():
    asked = requests(*[(8, 2)] * 4, arrivals=np.arange(4) * 1e6)
    limit = 1.5 * serve(asked, rate=1).ttft_ns["p90"]
    found = find_rate(
        ServiceLevel(ttft_ns=limit), 1.0, hw=MACHINE, model=MODEL, requests=asked, policy=OnGpu, max_batch=8,
        max_tokens=64,
    )  # fmt: skip
    assert found.run.goodput_per_s == found.run.requests_per_s


@pytest.mark.parametrize("highest", [0.011, 1.0, 7.9, 8.1, 15.0])
def test_the_highest_rate_is_found_within_the_64th_root_of_two(monkeypatch, highest):
    """On a machine that serves at most 8 requests a second; the level may hold at rates beyond."""

    class Machine:
        def serve(self, rate: float) -> Any:
            good = 8.0 if rate <= highest else 0.0
            return SimpleNamespace(
                requests=4, requests_per_s=8.0, goodput_per_s=good, growing=False, steady_share=1.0,
                ttft_ns=None, tpot_ns=None, offered_per_s=rate,
            )  # fmt: skip

    monkeypatch.setattr("ndpsim.inference.serving.server.set_up", lambda settings: None)
    monkeypatch.setattr("ndpsim.inference.serving.server.Server", lambda settings, setup: Machine())
    found = find_rate(ServiceLevel(ttft_ns=1.0), requests="poisson:rate=2,requests=4")
    assert found.rate_per_s <= highest < found.beyond_per_s
    assert found.run.offered_per_s == found.rate_per_s
    assert found.beyond_per_s / found.rate_per_s == pytest.approx(2 ** (1 / 64))


# ---- Text and pictures -------------------------------------------------------------------------------------------


def test_of_rates_more_is_better_and_of_latencies_less():
    for name in ("requests_per_s", "goodput_per_s", "tokens_per_s"):
        assert higher_is_better(name, (ServingResult,))
    for name in ("ttft_ns.p90", "itl_ns.mean", "mean_queue", "preemptions"):
        assert not higher_is_better(name, (ServingResult,))


def test_a_group_of_resources_is_used_as_much_as_its_resources_in_the_mean():
    result = serve(requests((20, 3)))
    used = {"channel 0": 0.3, "channel 1": 0.1, "gpu": 0.5}
    shown = dict(serving_table(replace(result, utilization=used)))
    shares = [text for label, text in shown.items() if "utilization" in label]
    assert sorted(shares) == sorted([percent(0.2), percent(0.5)])


def test_blocks_in_use_are_of_those_of_all_engines():
    result = serve(requests((20, 3)), block_tokens=16)
    three = replace(result, config=result.config | {"engines": 3, "kv_blocks": 500})
    assert (
        dict(serving_table(three))["most blocks of the KV cache in use"]
        == f"{result.most_kv_blocks} of 1,500"
    )


def test_tried_rates_show_the_percentile_that_their_column_names(capsys: pytest.CaptureFixture[str]):
    times = {"mean": 11e6, "p50": 22e6, "p90": 33e6, "p99": 44e6}
    tried = TriedRate(2.0, 0.9, 0.99, times, {name: ns / 100 for name, ns in times.items()})
    print_found_rate(FoundRate(1.98, 2.0, 0.9, 0.95, (tried,), serve(requests((20, 3)))))
    last = capsys.readouterr().out.splitlines()[-1].split()
    assert last == ["2.000", "90.0%", "99.0%", "33.00", "ms", "330.0", "µs"]


def test_a_picture_begins_with_the_first_arrival():
    late_ns = 1e9
    result = serve(requests((20, 3), (20, 3), arrivals=(late_ns, late_ns + 1e4)))
    assert result.time_ns < late_ns / 10
    drawn = 0
    for axes in serving_figure(result).axes[:3]:
        low, high = axes.get_xlim()
        for line in axes.get_lines():
            x = np.asarray(line.get_xdata(), float)
            if len(x) > 2:
                assert (low <= x.min(), x.max() <= high) == (True, True)
                drawn += 1
    assert drawn >= 3


@pytest.mark.parametrize("option", ["--rate 2", "--plot p.png", "--log log.jsonl"])
def test_the_search_for_a_rate_takes_no_option_of_one_run(option: str):
    words = ("serve", "--requests", "poisson:rate=1", "--slo", "ttft=1s", "--find-rate", *option.split())
    assert refused_call(*words) == f"conflict {option.split(maxsplit=1)[0]}"


# ---- Serving: what a step computes and what it allocates do not grow with the number of steps before it

OUTPUTS = 5, 6, 7, 8


class Counted(ServingObserver):
    """Counts of each step: calls of Python functions, and the bytes that it has allocated at most."""

    def __init__(self) -> None:
        self.calls: list[int] = []
        self.allocated: list[int] = []
        self._calls = self._before = 0

    def profile(self, frame: FrameType, event: str, of: Any) -> None:
        self._calls += event == "call"

    def done(self, step: DoneStep) -> None:
        now, most = tracemalloc.get_traced_memory()
        self.calls.append(self._calls)
        self.allocated.append(most - self._before)
        tracemalloc.reset_peak()
        self._calls, self._before = 0, now


def test_a_step_computes_and_allocates_as_much_late_in_a_run_as_early():
    cache, counted = ResultCache(disk_bytes=0), Counted()

    def serve(requests: int, observer: ServingObserver | None = None) -> None:
        outputs = np.tile(OUTPUTS, requests // len(OUTPUTS))
        asked = Requests(np.zeros(requests), np.full(requests, 16), outputs, closed_loop=4)
        run_serving("dali-7532-3090", MODEL, asked, policy="on-demand", observer=observer, cache=cache)

    serve(8)  # kernels are compiled, and results cached
    tracemalloc.start()
    sys.setprofile(counted.profile)
    try:
        serve(100, counted)
    finally:
        sys.setprofile(None)
        tracemalloc.stop()
    for values, most in ((counted.calls, 1.02), (counted.allocated, 1.05)):
        _, early, _, late = (np.median(part) for part in np.array_split(values, 4))
        assert late < most * early
