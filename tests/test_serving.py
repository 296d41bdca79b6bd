"""Serving: blocks of the KV cache, schedulers step by step, laws of queues, and runs beside `run_moe`."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence as Several
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ndpsim
from builders.small_moe import MODEL
from mistakes import refused
from ndpsim.base.errors import InputError
from ndpsim.base.options.serve import ServeSettings, ServiceLevel
from ndpsim.inference.layers.setup import set_up_machine
from ndpsim.inference.processors.dense import attention_of
from ndpsim.inference.processors.operations import MixedStep, Step
from ndpsim.inference.serving.engine import Arrivals, DoneStep, Engines
from ndpsim.inference.serving.kv import KvCache
from ndpsim.inference.serving.log import writing_serving_log
from ndpsim.inference.serving.scheduler import Chunk, Limits, schedulers
from ndpsim.inference.serving.sequence import Sequence, prompt_hashes
from ndpsim.inference.serving.server import Server, run_serving, set_up
from ndpsim.policies import Assignment, Migration, Placement, Policy
from ndpsim.simulate.results.serving import ServingResult
from ndpsim.workload.requests import Requests, generate_requests
from ndpsim.workload.routing import Routing
from ndpsim.workload.routing.generate import shape_of, shares_of
from ndpsim.workload.routing.sequences import SequenceRouting
from ndpsim.workload.routing.spec import parse_spec

MACHINE = "dali-7532-3090"


class OnGpu(Policy):
    """All experts in the GPU's memory."""

    name = "on-gpu"

    def place(self, view: Any) -> Placement:
        placement = super().place(view)
        placement.resident[:] = True
        return placement

    def assign(self, view: Any) -> Assignment:
        return Assignment(gpu=np.flatnonzero(view.loads).tolist())


def requests(*lengths: tuple[int, int], arrivals: Any = None, **more: Any) -> Requests:
    """Requests of (prompt, output) tokens, all at once where no arrivals are given."""
    prompts, outputs = np.array(lengths).T
    at_ns = np.zeros(len(lengths)) if arrivals is None else np.asarray(arrivals, float)
    return Requests(at_ns, prompts, outputs, **more)


def serve(asked: Requests | str, **more: Any) -> ServingResult:
    return run_serving(MACHINE, MODEL, asked, **{"policy": OnGpu, "max_batch": 8, "max_tokens": 64, **more})


# ---- Blocks of the KV cache --------------------------------------------------------------------------------------


def test_the_kv_cache_on_the_host_has_a_kind_of_transfer_each_way_whatever_its_sizes():
    settings = ServeSettings(
        hw=MACHINE, model=MODEL, requests=requests((10, 9), (30, 5), (3, 7)), policy=OnGpu, kv="host"
    )
    setup = set_up(settings)
    transfers = setup.machine.setup.transfers  # type: ignore[attr-defined]
    Server(settings, setup).serve()
    kinds = [values.copy() for values in transfers.kinds()[1:]]
    Server(settings, setup).serve()
    assert len(transfers.kinds().shared_ns) == len(kinds[0]) == 4  # activations, results, and the cache
    row = transfers.cache(12_345, "down")
    later = [values.copy() for values in transfers.kinds()[1:]]
    transfers._kinds = None
    for kept, anew, before in zip(later, transfers.kinds()[1:], kinds, strict=True):
        assert (kept == anew).all()
        assert (np.delete(kept, row, axis=0) == np.delete(before, row, axis=0)).all()
    assert (later[0][row] != kinds[0][row]).any()


def sequence(number: int, prompt: int, hashes: tuple[int, ...] = ()) -> Sequence:
    return Sequence(number, prompt, 1, 0.0, hashes)


def test_whole_blocks_of_an_equal_prompt_are_found_except_for_the_last_token():
    kv = KvCache(8, 4)
    first = sequence(0, 8, (7, 8))
    assert kv.allocate(first, 8)
    # Both blocks are there, but the last token has to be computed, and so its whole block.
    assert kv.found(sequence(1, 8, (7, 8))) == first.blocks[:1]
    assert kv.found(sequence(2, 9, (7, 8))) == first.blocks
    assert kv.found(sequence(3, 9, (7, 9))) == first.blocks[:1]
    assert kv.found(sequence(4, 9)) == []
    assert KvCache(8, 4, finds_prefixes=False).found(sequence(1, 9, (7, 8))) == []


def test_blocks_that_have_been_free_longest_are_taken_first_and_of_a_sequence_the_last_one():
    kv = KvCache(5, 4)
    long, short, other = sequence(0, 12), sequence(1, 4), sequence(2, 4)
    assert all(kv.allocate(one, one.prompt_tokens) for one in (long, short, other))
    mine, his = list(long.blocks), list(short.blocks)
    kv.release(long)
    kv.release(short)
    later = sequence(3, 16)
    assert kv.allocate(later, 16)
    assert later.blocks == [*mine[::-1], *his]


def test_blocks_of_requests_are_cut_into_those_of_the_kv_cache():
    asked = requests((1100, 1), (10, 1), block_tokens=512, blocks=(np.array([3, 4, 5]), np.array([6])))
    of = prompt_hashes(asked, 16)
    assert len(of(0)) == 1100 // 16
    assert of(0)[:2] == (3 * 32, 3 * 32 + 1)
    assert of(0)[32] == 4 * 32
    assert of(1) == ()
    for tokens in (100, 1024):
        with refused("conflict block_tokens"):
            prompt_hashes(asked, tokens)


# ---- Schedulers --------------------------------------------------------------------------------------------------


class Clock:
    """Steps that take 10 ns each."""

    residents = None

    def __init__(self, seen: list[list[tuple[int, int]]] | None = None) -> None:
        self.clock_ns, self.seen = 0.0, [] if seen is None else seen

    def wait_until(self, time_ns: float) -> None:
        self.clock_ns = max(self.clock_ns, time_ns)

    def run(self, number: int, parts: Several[Several[Chunk]]) -> None:
        (chunks,) = parts
        self.seen.append([(one.sequence.number, one.tokens) for one in chunks])
        self.clock_ns += 10.0


def engine(
    asked: Requests, scheduler: str, limits: Limits, kv: KvCache, ahead: bool = False
) -> tuple[Engines, Clock, list[DoneStep]]:
    clock, done = Clock(), list[DoneStep]()
    former = schedulers()[scheduler](kv, limits)
    arrivals = Arrivals(asked, prompt_hashes(asked, kv.block_tokens))
    return Engines([former], clock, arrivals, lambda one: None, done.append, ahead), clock, done


def test_the_queue_is_listed_for_observers_alone():
    """A list for each step would take the time of the square of the requests."""
    for observed in (True, False):
        clock, done = Clock(), list[DoneStep]()
        former = schedulers()["vllm"](KvCache(100), Limits(1, 100))
        asked = requests(*[(4, 2)] * 3)
        Engines(
            [former], clock, Arrivals(asked, lambda _: ()), lambda _: None, done.append, observed=observed
        ).run()
        waiting = [len(step.formed.waiting) for step in done]
        assert waiting == ([2, 2, 1, 1, 0, 0] if observed else [0] * 6)


def steps_of(
    asked: Requests, scheduler: str, limits: Limits, blocks: int = 100
) -> list[list[tuple[int, int]]]:
    ran, clock, _ = engine(asked, scheduler, limits, KvCache(blocks, 4))
    ran.run()
    return clock.seen


def test_vllm_decodes_first_and_computes_prompts_in_chunks():
    # 8 tokens a step: request 0 in one step, request 1 in the rest of it and of the next ones.
    assert steps_of(requests((5, 3), (10, 2), (2, 1)), "vllm", Limits(3, 8)) == [
        [(0, 5), (1, 3)],
        [(0, 1), (1, 7)],
        [(0, 1), (1, 1), (2, 2)],
    ]


def test_vllm_takes_in_no_more_sequences_than_its_limit():
    assert steps_of(requests((2, 2), (2, 1), (2, 1)), "vllm", Limits(1, 8)) == [
        [(0, 2)], [(0, 1)], [(1, 2)], [(2, 2)],
    ]  # fmt: skip


def test_vllm_preempts_the_last_sequence_and_computes_it_again_first():
    # 3 blocks of 4 tokens: both prompts have room, and the second block of request 0; request 1 must go.
    asked = requests((4, 4), (4, 4), (4, 1))
    ran, clock, _done = engine(asked, "vllm", Limits(3, 12), KvCache(3, 4, finds_prefixes=False))
    ran.run()
    assert clock.seen[0] == [(0, 4), (1, 4), (2, 4)]
    # Request 2 has ended, so that both have a second block; its third token would need a third one of neither.
    assert [one.preemptions for one in ran.sequences] == [0, 1, 0]
    again = next(
        step for step in clock.seen[1:] if any(number == 1 and tokens > 1 for number, tokens in step)
    )
    assert (1, 5) in again
    assert sorted(one.last_token_ns for one in ran.sequences)[-1] == ran.sequences[1].last_token_ns


def test_static_ends_a_batch_before_it_takes_in_the_next():
    assert steps_of(requests((4, 1), (6, 3), (4, 1)), "static", Limits(2, 8)) == [
        [(0, 4), (1, 4)],
        [(1, 2)],
        [(1, 1)],
        [(1, 1)],
        [(2, 4)],
    ]


def test_static_reserves_room_for_all_tokens_so_that_none_is_preempted():
    seen = steps_of(requests((4, 5), (4, 5)), "static", Limits(2, 8), blocks=4)
    assert seen == [[(0, 4)], *[[(0, 1)]] * 4, [(1, 4)], *[[(1, 1)]] * 4]


def test_the_scheduler_of_the_page_on_adding_one_serves_one_sequence_after_the_other(monkeypatch):
    page = (Path(__file__).parents[1] / "docs" / "adding" / "serving-scheduler.md").read_text()
    found: dict[str, Any] = {}
    exec(page.split("```python\n")[1].split("```")[0], found)
    monkeypatch.setitem(schedulers(), "alone", found["SCHEDULER"])
    assert steps_of(requests((9, 2), (2, 1)), "alone", Limits(8, 8)) == [
        [(0, 8)],
        [(0, 1)],
        [(0, 1)],
        [(1, 2)],
    ]


def test_a_step_that_is_formed_ahead_knows_neither_late_arrivals_nor_free_places():
    # Steps of 10 ns. Step 1 is formed at 0, and does not know request 2; step 2 is formed at 10, and request 0 has
    # its place until 20; step 3 has request 2.
    asked = requests((3, 2), (2, 4), (2, 1), arrivals=[0, 0, 5])
    ran, clock, done = engine(asked, "vllm", Limits(2, 8), KvCache(100, 4), ahead=True)
    ran.run()
    assert clock.seen == [[(0, 3), (1, 2)], [(0, 1), (1, 1)], [(1, 1)], [(1, 1), (2, 2)]]
    assert [step.formed.formed_ns for step in done] == [0, 0, 10, 20]
    assert [one.last_token_ns for one in ran.sequences] == [20, 40, 40]


def test_a_request_goes_to_the_engine_with_the_least_load_where_one_that_waits_counts_as_four():
    class Together(Clock):
        def run(self, number: int, parts: Several[Several[Chunk]]) -> None:
            self.clock_ns += 10.0

    # At 15 ns engine 0 runs three requests; engine 1 runs one with a long prompt, behind which one waits.
    asked = requests((2, 9), (100, 1), (2, 9), (2, 1), (2, 9), (2, 1), arrivals=[0, 0, 0, 0, 0, 15])
    formers = [schedulers()["vllm"](KvCache(100, 4), Limits(4, 8)) for _ in range(2)]
    ran = Engines(formers, Together(), Arrivals(asked, lambda _: ()), lambda one: None, lambda step: None)
    ran.run()
    assert [one.engine for one in ran.sequences] == [0, 1, 0, 1, 0, 0]


def test_an_idle_engine_forms_a_step_when_a_request_arrives():
    asked = requests((3, 2), (3, 1), arrivals=[0, 100])
    ran, _, done = engine(asked, "vllm", Limits(2, 8), KvCache(100, 4), ahead=True)
    ran.run()
    assert [(step.formed.formed_ns, step.start_ns) for step in done] == [(0, 0), (0, 10), (100, 100)]


def test_in_a_closed_loop_as_many_are_there_as_asked():
    asked = requests(*[(4, 3)] * 12, closed_loop=3)
    ran, _clock, done = engine(asked, "vllm", Limits(8, 64), KvCache(100, 4))
    ran.run()
    assert {len(step.formed.chunks) for step in done} == {3}
    assert len(ran.sequences) == 12
    ends = [step.end_ns for step in done for _ in step.finished]
    assert [sequence.arrival_ns for sequence in ran.sequences] == [0, 0, 0, *ends[:9]]
    assert ends[:4] == [30, 30, 30, 60]


# ---- Routing and times of steps ----------------------------------------------------------------------------------


def test_a_sequence_is_routed_alike_in_any_batch_and_each_token_to_distinct_experts():
    routed = SequenceRouting("skewed", MODEL, np.full(4, 10), 1)
    together = routed.ids(np.array([0, 1, 2, 3]), np.array([3, 12, 9, 10]))
    assert np.array_equal(together[:, 2:3], routed.ids(np.array([2]), np.array([9])))
    ordered = np.sort(together, axis=-1)
    assert (ordered[..., 1:] != ordered[..., :-1]).all()


@pytest.mark.parametrize("sticks", ["", ",step_stickiness=0.6,token_stickiness=0.3"])
def test_sequences_have_the_popularity_of_the_generator(sticks: str):
    spec = parse_spec(f"skewed:prefill_cosine=0.9{sticks}")
    routed = SequenceRouting(spec, MODEL, np.full(200, 100), 5)
    shares = shares_of(spec, shape_of(spec, MODEL), 5)
    for first, same in ((100, True), (0, False)):
        ids = routed.ids(np.repeat(np.arange(200), 100), np.tile(np.arange(first, first + 100), 200))
        found = np.bincount(ids[1].ravel(), minlength=16) / ids[1].size
        assert (np.abs(found - shares[1]).max() < 0.01) == same


def test_the_first_token_behind_a_prompt_has_the_popularity_of_decoded_ones():
    spec = parse_spec("skewed:prefill_cosine=0.8")
    routed = SequenceRouting(spec, MODEL, np.full(4000, 5), 5)
    shares = shares_of(spec, shape_of(spec, MODEL), 5)
    for position, same in ((4, False), (5, True)):
        ids = routed.ids(np.arange(4000), np.full(4000, position))[1]
        assert (np.abs(np.bincount(ids.ravel(), minlength=16) / ids.size - shares[1]).max() < 0.015) == same


def test_tokens_repeat_as_often_as_the_generator_says():
    routed = SequenceRouting("skewed:step_stickiness=0.6,token_stickiness=0.3", MODEL, np.full(200, 100), 5)
    ids = routed.ids(np.repeat(np.arange(200), 200), np.tile(np.arange(200), 200)).reshape(3, 200, 200, 2)
    same = (ids[:, :, 1:] == ids[:, :, :-1]).all(-1)
    by_chance = 0.03  # two independent tokens choose alike about as often
    assert same[:, :, :99].mean() == pytest.approx(0.3, abs=by_chance)
    assert same[:, :, 100:].mean() == pytest.approx(0.6, abs=by_chance)
    alike = (same[0] == same[1])[:, 100:].mean()  # layers repeat independently of each other
    assert alike == pytest.approx(0.6**2 + 0.4**2, abs=by_chance)


@pytest.mark.parametrize("model", ["deepseek-v2", "gpt-oss-120b", "qwen3-next-80b-a3b", "qwen3-30b-a3b"])
@pytest.mark.parametrize(("new", "context"), [(1, 77), (200, 200), (30, 333)])
def test_a_mixed_step_of_equal_sequences_takes_what_the_step_takes(model: str, new: int, context: int):
    shape, processors = ndpsim.load_model(model), ndpsim.load_processors("trimoe")
    mixed = processors.step_time(shape, MixedStep(((new, context),) * 5))
    assert mixed == processors.step_time(shape, Step(5, context, new))


def test_a_mixed_step_computes_the_pairs_of_each_sequence():
    step = MixedStep(((1, 100), (8, 20)))
    (attention,) = attention_of(MODEL)
    assert step.tokens == 9
    assert step.pairs(attention) == 100 + sum(range(13, 21))
    assert step.attended(attention) == 120


# ---- Runs --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sets", [(), ("gpu.count=2", "gpu.link_gbps=10", "gpu.link_latency_us=5")])
@pytest.mark.parametrize("kv", ["gpu", "host"])
def test_alone_a_request_takes_what_moe_says_with_one_sequence(sets, kv):
    prompt, output = 20, 3
    (one,) = serve(requests((prompt, output)), sets=sets, kv=kv).per_request
    routed = SequenceRouting("skewed", MODEL, np.array([prompt]), 1)

    def ids(first: int, count: int) -> Any:
        return routed.ids(np.zeros(count, np.int64), np.arange(first, first + count))

    def moe(**more: Any) -> Any:
        return ndpsim.run_moe(MACHINE, MODEL, (OnGpu,), sets=sets, kv=kv, **more).runs[0]

    prefill = Routing(16, (1, 2, 3), ids(prompt, 1)[None], ids(0, prompt), (prompt,))
    assert one.ttft_ns == moe(routing=prefill, prompt=prompt, context=prompt + 1).prefill_ns
    decode_ns = [
        moe(routing=Routing(16, (1, 2, 3), ids(place, 1)[None]), context=place + 1).time_ns
        for place in (prompt, prompt + 1)
    ]
    assert one.tpot_ns == pytest.approx(sum(decode_ns) / 2, rel=1e-12)


def test_a_closed_loop_of_equal_lengths_has_the_throughput_of_moe_at_the_mean_context():
    prompt, output, many = 16, 65, 8
    result = serve(requests(*[(prompt, output)] * 32, closed_loop=many), max_batch=many, max_tokens=512)
    tokens = result.output_tokens - result.requests  # the first ones come of prefills
    step_ns = result.itl_ns["p50"]  # type: ignore[index]
    moe = ndpsim.run_moe(
        MACHINE, MODEL, (OnGpu,), batch=many, steps=16, context=prompt + output // 2 + 1
    ).runs[0]
    assert tokens > 0
    assert many / step_ns * 1e9 == pytest.approx(moe.tokens_per_s, rel=0.03)


@pytest.fixture(scope="module")
def arriving() -> Requests:
    random = np.random.default_rng(1)
    return Requests(
        np.cumsum(random.exponential(3e5, 16)), random.integers(5, 60, 16), random.integers(1, 30, 16)
    )


def test_littles_law_holds(arriving: Requests):
    result = serve(arriving)
    inside = result.mean_running + result.mean_queue
    assert inside == pytest.approx(result.requests_per_s * result.latency_ns["mean"] / 1e9, rel=1e-6)


def test_the_longest_queue_counts_requests_that_arrive_during_a_step():
    result = serve(requests((40, 2), (40, 2), (40, 2), arrivals=[0.0, 1.0, 2.0]), max_batch=2)
    assert (result.most_queue, result.most_running) == (2, 2)


def test_latencies_grow_with_the_rate(arriving: Requests):
    results = [serve(arriving, rate=rate) for rate in (1, 300, 100000)]
    assert all(
        one.latency_ns["mean"] <= other.latency_ns["mean"] for one, other in itertools.pairwise(results)
    )
    assert [one.growing for one in results] == [False, False, True]
    assert results[0].mean_queue == pytest.approx(0, abs=0.01)


def test_the_same_call_has_the_same_result_and_progress_ends_at_one(arriving: Requests):
    shares: list[float] = []
    assert serve(arriving, progress=shares.append) == serve(arriving)
    assert shares[-1] == 1
    assert shares == sorted(shares)


def test_a_machine_that_is_set_up_once_has_the_results_of_runs_for_themselves(arriving: Requests):
    settings = ServeSettings(
        hw=MACHINE, model=MODEL, requests=arriving, policy=OnGpu, max_batch=8, max_tokens=64
    )
    server = Server(settings, set_up(settings))
    for rate in (300, 1, 300, None):
        assert server.serve(rate) == serve(arriving, rate=rate)


def test_a_search_for_a_rate_sets_the_machine_up_once(arriving: Requests, monkeypatch: pytest.MonkeyPatch):
    made: list[Any] = []
    monkeypatch.setattr(
        "ndpsim.inference.serving.server.set_up_machine",
        lambda *args: made.append(1) or set_up_machine(*args),
    )
    ndpsim.find_rate(
        "ttft=1s", hw=MACHINE, model=MODEL, requests=arriving, policy=OnGpu, max_batch=8, max_tokens=64
    )
    assert len(made) == 1


def test_experts_on_their_way_arrive_while_the_engine_waits():
    arriving: dict[tuple[int, int], int] = {}

    class Ahead(OnGpu):
        """Half of a layer's experts set out after each step: first those of the first layer, then the next."""

        def place(self, view: Any) -> Placement:
            return Policy.place(self, view)

        def assign(self, view: Any) -> Assignment:
            arriving[view.step, self.row[view.layer]] = int(view.arriving.sum())
            return super().assign(view)

        def background(self, view: Any) -> list[Migration]:
            if view.layer != self.machine.layers[-1] or view.step > 1:
                return []
            return [Migration("prefetch", self.machine.layers[view.step], expert) for expert in range(8)]

    serve(requests((4, 2), (4, 1), arrivals=[0, 1e9]), policy=Ahead)
    assert arriving[1, 0] > 0  # the step follows at once
    assert arriving[2, 0] == arriving[2, 1] == 0  # the step follows after a second


def test_goodput_counts_requests_within_the_service_level(arriving: Requests):
    result = serve(arriving, slo="ttft=1ms,tpot=1s")
    within = sum(one.ttft_ns <= 1e6 for one in result.per_request)
    assert 0 < within < result.requests
    assert result.goodput_per_s == pytest.approx(within / result.time_ns * 1e9)


def test_a_service_level_that_no_idle_machine_meets_is_refused(arriving: Requests):
    with refused("range slo"):
        serve(arriving, slo="tpot=1us")


def test_the_found_rate_is_within_the_level_and_the_next_one_beyond_it(arriving: Requests):
    idle = serve(arriving, rate=1)
    limit = 1.5 * idle.ttft_ns["p90"]  # type: ignore[index]
    level = ServiceLevel(ttft_ns=limit)
    found = ndpsim.find_rate(
        level, 0.9, hw=MACHINE, model=MODEL, requests=arriving, policy=OnGpu, max_batch=8, max_tokens=64
    )
    assert found.rate_per_s < found.beyond_per_s < 1.02 * found.rate_per_s
    shares = {one.rate_per_s: one.within_share for one in found.tries}
    assert shares[found.rate_per_s] >= 0.9 > shares[found.beyond_per_s]
    assert max(shares) < 1e6  # the first try, of all requests at once, is none of them
    within = sum(one.ttft_ns <= limit for one in found.run.per_request)
    assert within >= 0.9 * len(arriving)


def test_a_rate_is_found_within_a_service_level_only(arriving: Requests):
    with refused("missing slo"):
        ndpsim.find_rate(None, requests=arriving)


def test_prefixes_that_are_found_are_not_computed():
    blocks = (np.array([1, 2]), np.array([1, 3]))
    asked = requests((32, 2), (32, 2), arrivals=(0, 1e9), block_tokens=16, blocks=blocks)
    shared, alone = serve(asked), serve(asked, prefix_cache=False)
    assert [one.reused_tokens for one in shared.per_request] == [0, 16]
    assert shared.per_request[1].ttft_ns < alone.per_request[1].ttft_ns
    assert alone.reused_tokens == 0


def test_the_log_has_each_request_and_each_step(tmp_path: Path, arriving: Requests):
    with writing_serving_log(tmp_path / "log.jsonl") as log:
        result = serve(arriving, log=log)
    header, *lines = map(json.loads, (tmp_path / "log.jsonl").read_text().splitlines())
    assert (header["serving_log"], header["max_batch"], header["engines"]) == (1, 8, 1)
    assert sum("request" in line for line in lines) == len(arriving)
    steps = [line for line in lines if "step" in line]
    assert len(steps) == result.steps
    assert sorted(number for step in steps for number in step["finished"]) == list(range(len(arriving)))


def test_requests_are_generated_from_a_spec():
    spec = "poisson:rate=1000,requests=6,input_tokens=8,output_tokens=3"
    assert serve(spec, seed=3).per_request == serve(generate_requests(spec, 3), seed=3).per_request


def test_a_log_is_not_there_when_a_run_is_interrupted(tmp_path: Path, arriving: Requests):
    def interrupt(share: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), writing_serving_log(tmp_path / "log.jsonl") as log:
        serve(arriving, log=log, progress=interrupt)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("more", "code", "key"),
    [
        ({"kv_blocks": 3}, "too-large", "requests"),
        ({"max_batch": 65}, "conflict", "max_tokens"),
        ({"policy": "oracle"}, "unsupported", "policy"),
        ({"scheduler": "orca"}, None, "scheduler"),
        ({"slo": "ttft=1"}, "form", "slo"),
        ({"rate": 0}, "range", "rate"),
    ],
)
def test_mistakes_are_refused(arriving: Requests, more: dict[str, Any], code: str | None, key: str):
    with pytest.raises(InputError) as error:
        serve(arriving, **more)
    assert error.value.key == key
    assert code in (None, error.value.code)
