"""Serving worked by hand: steps with the cache in the host's memory, queues, shares of the path, sentences."""

from __future__ import annotations

from array import array
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import ndpsim
from builders.policy_machines import ESTIMATES, EXPERTS, background_view, layer_view
from builders.policy_machines import MACHINE as POLICY_MACHINE
from builders.small_moe import CACHED_BYTES, MODEL
from mistakes import refused
from ndpsim.base.options.serve import ServeSettings, ServiceLevel
from ndpsim.inference.layers.residents import Residents
from ndpsim.inference.processors.parallel import Exchange
from ndpsim.inference.serving.gpus import GpuSteps
from ndpsim.inference.serving.kv import KvCache
from ndpsim.inference.serving.scheduler import Limits
from ndpsim.inference.serving.server import set_up
from ndpsim.inference.serving.summary import _most_waiting, _of_last_steps, _over_time, _steady, served
from ndpsim.policies import OfflineView, Placement, choose_policy, policies
from ndpsim.policies.interface import GivesRoom
from ndpsim.report.serving import found_note, rates_notes, serving_notes, serving_table
from ndpsim.simulate.results.serving import FoundRate, ServedRequest, TriedRate
from ndpsim.workload.requests import Requests
from ndpsim.workload.routing import Routing
from test_serving import MACHINE, OnGpu, engine, requests, serve

TWO = ("gpu.count=2", "gpu.link_gbps=10", "gpu.link_latency_us=5")


# ---- Times


def test_a_decode_step_waits_for_the_cache_that_the_host_has():
    """PCIe carries 1 GB/s, in packets of 256 bytes with headers of 24: each of four layers reads all tokens before."""
    prompt, slow = 1024, ("pcie.gbps=1", "gpu.pcie_gbps=1", "pcie.packet_bytes=256", "pcie.header_bytes=24")
    near, far = (serve(requests((prompt, 2)), max_tokens=prompt, sets=slow, kv=kv) for kv in ("gpu", "host"))
    read_ns = 4 * prompt * CACHED_BYTES / 256 * 280
    (before,), (after,) = near.per_request, far.per_request
    assert read_ns < after.tpot_ns < read_ns + before.tpot_ns < 1.1 * read_ns


@pytest.mark.parametrize("policy", [OnGpu, None])
def test_each_step_has_the_time_of_the_program(policy: Any) -> None:
    """A request alone: its prompt is one step, and each of its other two tokens one more."""
    asked, sets = requests((16, 3)), () if policy else TWO
    (usual,), (slower,) = (
        serve(asked, policy=policy, sets=sets, step_overhead_us=us).per_request for us in (0, 250)
    )
    assert slower.ttft_ns - usual.ttft_ns == pytest.approx(250_000)
    assert slower.tpot_ns - usual.tpot_ns == pytest.approx(250_000)
    assert slower.latency_ns - usual.latency_ns == pytest.approx(750_000)


def test_policies_expect_the_mean_context_of_as_many_sequences_as_can_run():
    """Prompts of 100 and 301 tokens and half of 10 and 20 output tokens: 208 in the mean, and the new one."""
    dense = ndpsim.load_processors(MACHINE).dense_time
    for limit, closed, sequences in ((8, None, 2), (1, None, 1), (8, 1, 1)):
        asked = requests((100, 10), (301, 20), closed_loop=closed)
        settings = ServeSettings(
            hw=MACHINE, model=MODEL, requests=asked, policy=OnGpu, max_batch=limit, kv="gpu"
        )
        estimates = set_up(settings).machine.setup.estimates  # type: ignore[attr-defined]
        time = dense(MODEL, sequences, 209)
        assert estimates.window_ns == pytest.approx(time.attention_ns + time.router_ns, rel=1e-12)


def test_shares_of_the_critical_path_of_engines_are_those_of_the_slower_one():
    """Of two steps on two GPUs the slower GPU counts, and the exchanges before and behind each layer's experts."""
    time = ndpsim.load_processors("trimoe").dense_time(MODEL, 1, 40, 40)
    alone = replace(time, attention=tuple(replace(one, time_ns=0.0) for one in time.attention))
    alone = replace(alone, dense_layer_ns=0.0, shared_ns=0.0, head_ns=0.0)
    by_tokens = {tokens: replace(alone, router_ns=1000.0 * tokens) for tokens in (1, 5)}
    steps = GpuSteps(MODEL, lambda step: by_tokens[step.tokens], 16, None, Exchange(2, 10.0, 700.0), 2)
    sequence = SimpleNamespace(number=0)
    chunks: list[Any] = [
        SimpleNamespace(sequence=sequence, tokens=tokens, computed=0) for tokens in by_tokens
    ]
    for number in range(2):
        steps.run(number, [[one] for one in chunks])
    work_ns, link_ns = 2 * 3 * 5000, 2 * 2 * 3 * (700 + 5 * 512 * 2 / 10)
    found = steps.results(steps.clock_ns)
    assert found["bottleneck"] == pytest.approx(
        {"gpu": work_ns / (work_ns + link_ns), "link": link_ns / (work_ns + link_ns)}
    )
    assert found["utilization"] == pytest.approx(
        {"gpu 0": work_ns / 5 / steps.clock_ns, "gpu 1": work_ns / steps.clock_ns}
    )


# ---- Queues


@pytest.mark.parametrize("ahead", [False, True])
def test_requests_wait_until_the_one_before_has_ended(ahead):
    """One sequence at once, of two steps of 10 ns: requests of 0, 5 and 25 ns run from 0, 20 and 40 ns."""
    asked = requests((4, 2), (4, 2), (4, 2), arrivals=[0.0, 5.0, 25.0])
    ran, _, _ = engine(asked, "vllm", Limits(1, 16), KvCache(20, 4), ahead)
    ran.run()
    done = served(asked, ran.sequences)
    assert [(one.admitted_ns, one.end_ns) for one in done] == [(0, 20), (20, 40), (40, 60)]
    lines, means = _over_time(done, ran.history, 0.0, 60.0)
    assert means == pytest.approx({"running": 1.0, "queue": (15 + 15) / 60})
    # Four tokens and one in turn, of one sequence, in blocks of four; 200 parts of the time.
    assert lines["batch"] == pytest.approx([1.0] * 200)
    assert np.mean(lines["kv_blocks"]) == pytest.approx((1 + 2) / 2)
    assert np.mean(lines["tokens_per_step"]) == pytest.approx((4 + 1) / 2)
    assert _most_waiting(done, ran.history) == 1


def test_the_longest_queue_is_that_at_the_end_of_a_step():
    asked = requests(*[(4, 2)] * 5, arrivals=[0.0, 1.0, 2.0, 3.0, 100.0])
    ran, _, _ = engine(asked, "vllm", Limits(1, 16), KvCache(20, 4))
    ran.run()
    done = served(asked, ran.sequences)
    assert _most_waiting(done, ran.history) == 3
    waits = [20 - 1, 40 - 2, 60 - 3]
    _, means = _over_time(done, ran.history, 0.0, 120.0)
    assert means == pytest.approx({"running": 100 / 120, "queue": sum(waits) / 120})
    # Of two that end together and one that comes before, one has waited.
    asked = requests(*[(4, 2)] * 3, arrivals=[0.0, 0.0, 15.0])
    ran, _, _ = engine(asked, "vllm", Limits(2, 16), KvCache(20, 4))
    ran.run()
    assert _most_waiting(served(asked, ran.sequences), ran.history) == 1


# ---- Room


def test_experts_of_least_worth_leave_for_the_cache_and_none_that_is_moved():
    placement = Placement.striped(2, 3)
    placement.resident[:] = [[True, True, False], [True, True, True]]
    moving = np.zeros((2, 3), bool)
    moving[1, 1] = True

    class Worth(GivesRoom):
        name = "worth"

        def resident_worth(self, placement: Placement) -> Any:
            return np.array([[3.0, 1.0, 0.0], [2.0, 0.5, 1.0]])

    left: list[Any] = []
    places = SimpleNamespace(now=placement, moving=moving, gpu_room=6, gpu_free=1)
    migrations = SimpleNamespace(decide=lambda found, clock: left.extend(found))
    run: Any = SimpleNamespace(
        policy=Worth(),
        state=SimpleNamespace(places=places, migrations=migrations),
        setup=SimpleNamespace(machine=SimpleNamespace(layers=(3, 7), shape=(2, 3))),
        clock_ns=5.0,
    )
    residents = Residents(run)
    assert (residents.now(), residents.movable) == (5, 4)
    residents.evict(3)
    assert [(one.kind, one.layer, one.expert) for one in left] == [
        ("evict", 3, 1),
        ("evict", 7, 2),
        ("evict", 7, 0),
    ]


@pytest.mark.parametrize("name", [name for name, kind in policies().items() if issubclass(kind, GivesRoom)])
def test_an_expert_that_all_tokens_choose_stays_longer_than_one_that_none_does(name):
    """Of layer 1 the GPU has experts 0 to 3; all tokens of three steps choose 0 and 1."""
    tokens = np.arange(101.0)
    timed = replace(
        ESTIMATES,
        sharded_ns=lambda dimms: 5 * tokens / dimms,
        ndp_part_ns=lambda dimms: 0.0,
        sharded_read_ns=lambda dimms: 8.0,
    )
    ids = np.broadcast_to(np.array([[0, 1]], np.int16), (1, 2, 8, 2)).copy()
    asked = f"{name}:cache=lru" if name == "on-demand" else name
    policy = choose_policy(asked).start(POLICY_MACHINE, timed)
    placement = policy.place(OfflineView(POLICY_MACHINE, timed, Routing(EXPERTS, (1, 2), ids), 8))
    placement.resident[:] = [[True] * 4 + [False] * 2, [False] * 6]
    for step in range(3):
        for layer in (1, 2):
            here = range(4) if layer == 1 else ()
            view = layer_view(
                [[0, 1]] * 8, here, experts=EXPERTS, step=step, layer=layer, scores=[[0.6, 0.4]] * 8
            )
            policy.assign(view)
            policy.background(
                background_view(
                    view, placement.resident.copy(), next_layer=3 - layer, next_loads=[8, 8, 0, 0, 0, 0]
                )
            )
    worth = policy.resident_worth(placement)
    assert worth[0, :2].min() > worth[0, 2:4].max()


@pytest.mark.parametrize(("distance", "sign"), [("ahead", 1), ("printed", -1)])
def test_hobbit_counts_layers_from_the_last_one_of_a_step(distance, sign):
    """Of two layers the first comes next: none between, against one of two, with a weight of 0.2."""
    policy = choose_policy(f"hobbit:layer_distance={distance}").start(POLICY_MACHINE, ESTIMATES)
    worth = policy.resident_worth(Placement.striped(2, EXPERTS))
    assert worth[0] - worth[1] == pytest.approx(sign * 0.2 * 0.5)


# ---- Sentences


def test_sentences_on_several_rates_name_the_lowest_that_grows_and_the_highest_served():
    base = serve(requests((8, 2)))
    runs = [
        replace(base, offered_per_s=rate, requests_per_s=done, growing=grows)
        for rate, done, grows in (
            (40.0, 31.0, True),
            (10.0, 10.0, False),
            (20.0, 33.0, True),
            (30.0, 32.0, True),
        )
    ]
    assert rates_notes(runs)[1:] == [
        "more requests arrive than are served from 20.00 requests/s on; at most 33.00 are served"
    ]
    assert len(rates_notes(runs[1:2])) == 1
    assert (
        "more requests arrive than are served: 40.00 requests/s arrive, and 31.00 are served"
        in serving_notes(runs[0])
    )


def at_rate(latencies_ns, spacing_ns=10.0):
    """Requests of one token that arrive evenly, are admitted at once, and end after their latencies."""
    return [
        ServedRequest(
            "", 1, 1, arrival, arrival, arrival + latency, arrival + latency, latency, None, latency, 0, 0
        )
        for arrival, latency in zip(np.arange(len(latencies_ns)) * spacing_ns, latencies_ns, strict=True)
    ]


def test_a_machine_serves_what_arrives_if_latencies_do_not_grow():
    assert _steady(at_rate([100.0] * 60)) == (40, pytest.approx(1.0), False)


def test_the_steady_part_begins_with_a_latency_that_nine_of_ten_have():
    """Of 60 requests, one each 10 ns, every fifth takes 300 ns: arrivals from 300 ns on, and ends until 590 ns."""
    latencies = [300.0 if number % 5 == 0 else 20.0 for number in range(60)]
    ends = sorted(10.0 * number + latency for number, latency in enumerate(latencies))
    assert _steady(at_rate(latencies)).requests == sum(end <= 590 for end in ends) - 30


def test_between_steps_the_gpu_has_the_experts_of_the_last_one():
    """Two experts in a step of 10 us, and until the next one, which has four: 0 to 50 and 50 to 100 us."""
    history: Any = SimpleNamespace(start_ns=array("d", [0, 50e3]), residents=[2, 4])
    assert _of_last_steps(history, np.array([0, 10e3, 40e3, 60e3, 100e3])) == pytest.approx((2, 2, 3, 4))


def test_a_rate_is_too_high_if_latencies_grow_though_no_request_waits():
    """Each request arrives 10 ns after the one before and ends 12.5 ns after it: 80% are served."""
    steady = _steady(at_rate(2.5 * np.arange(200)))
    assert steady.requests > 20
    assert (steady.share, steady.growing) == (pytest.approx(0.8), True)


def test_latencies_grow_if_their_halves_differ_by_more_than_two_standard_errors():
    """Of n requests, each 10 ns and 12.5 ns behind the one before: the means of the halves of their ends are 2.5 n / 2
    further apart than those of arrivals; the error of the difference of two means of n / 2 is 2 / sqrt(n) of what
    latencies of 0, 2.5, 5, ... differ in the mean."""
    found = set()
    for count in range(20, 60):
        steady, deviation = _steady(at_rate(2.5 * np.arange(count))), 2.5 * ((count**2 - 1) / 12) ** 0.5
        part = steady.requests - steady.requests % 2
        if part == steady.requests:
            assert steady.growing == (2.5 * part / 2 > 2 * 2 * deviation / part**0.5), count
            found.add(steady.growing)
    assert found == {False, True}


def test_latencies_of_few_requests_that_differ_do_not_show_that_more_arrive_than_are_served():
    steady = _steady(at_rate([10.0, 30.0, 10.0, 20.0, 10.0, 10.0, 30.0, 30.0, 10.0, 10.0]))
    assert steady.share is not None
    assert (steady.share < 0.95, steady.growing) == (True, False)


def test_a_run_of_less_than_two_latencies_does_not_tell_whether_its_rate_is_served():
    assert _steady(at_rate([300.0] * 50)) == (0, None, None)


@pytest.mark.parametrize(
    ("beyond", "words"),
    [
        ((0.85, 0.99), "At 20.00 requests/s only 85.0% are within it."),
        ((0.95, 0.85), "At 20.00 requests/s only 85.0% of what arrives is served."),
        ((0.95, None), "too short to have a steady part"),
    ],
)
def test_a_found_rate_tells_its_measured_share_and_what_fails_beyond(beyond, words):
    run = replace(serve(requests((8, 2))), steady_share=0.975, steady_requests=99)
    tries = [
        TriedRate(rate, *figures, {"p90": 1.0}, None)
        for rate, figures in ((10.0, (0.915, 0.975)), (20.0, beyond))
    ]
    note = found_note(FoundRate(10.0, 20.0, 0.9, 0.915, tuple(tries), run))
    assert note.startswith(
        "10.00 requests/s: 91.5% of the requests are within the service level (90.0% asked)"
    )
    assert "97.5% of what arrives" in note
    assert words in note
    assert "has only 99 requests" in note
    assert "Caution" not in found_note(
        FoundRate(10.0, 20.0, 0.9, 0.915, tuple(tries), replace(run, steady_requests=100))
    )


def test_blocks_are_those_of_all_engines():
    result = ndpsim.run_serving(
        "trimoe", MODEL, requests((40, 2), (40, 2)), sets=TWO, kv_blocks=20, max_batch=3, max_tokens=48
    )
    assert result.most_kv_blocks == 2 * 3  # of 16 tokens
    shown = [cell for _, cell in serving_table(result) if " of " in cell and "blocks" not in cell]
    assert "6 of 40" in shown


def test_requests_of_no_rate_are_scaled_by_none():
    asked = Requests(np.zeros(2), np.array([4, 4]), np.array([2, 2]), closed_loop=1)
    result = serve(asked)
    assert result.offered_per_s is None
    assert not result.growing
    assert result.mean_queue == pytest.approx(0)


@pytest.mark.parametrize("ahead", [False, True])
def test_a_step_that_is_formed_ahead_leaves_a_new_request_to_the_one_after_it(ahead):
    """Request 1 comes in the first of three steps of request 0."""
    asked = requests((4, 3), (4, 1), arrivals=[0.0, 1.0])
    first, second = serve(asked, async_scheduling=ahead).per_request
    assert second.admitted_ns == first.first_token_ns
    assert (second.end_ns == first.end_ns) == ahead
    assert second.end_ns > second.admitted_ns


def test_policies_see_which_tokens_of_a_step_are_of_prompts():
    """The second of two prompts of 16 tokens comes within the first step, and is computed beside a decoded token."""
    seen = []

    class Seen(OnGpu):
        def assign(self, view: Any) -> Any:
            seen.append((view.step, view.phase, view.tokens, view.prompt_tokens))
            return super().assign(view)

    serve(requests((16, 3), (16, 3), arrivals=[0.0, 1.0]), policy=Seen, async_scheduling=False)
    assert [step[1:] for step in dict.fromkeys(seen)] == [
        ("mixed", 16, 16), ("mixed", 17, 16), ("decode", 2, 0), ("decode", 1, 0),
    ]  # fmt: skip


def test_requests_within_a_level_have_both_times_of_it():
    """The second of two requests waits for the first one; both take as long for a token after that."""
    asked = requests((8, 3), (8, 3))
    one, other = serve(asked, max_batch=1).per_request
    assert (one.ttft_ns < other.ttft_ns, one.tpot_ns) == (True, pytest.approx(other.tpot_ns))
    between = (one.ttft_ns + other.ttft_ns) / 2
    slack = 1.01 * one.tpot_ns
    for ttft_ns, tpot_ns, within in ((between, slack, 1), (2 * other.ttft_ns, slack, 2)):
        result = serve(asked, max_batch=1, slo=ServiceLevel(ttft_ns, tpot_ns))
        assert result.goodput_per_s * result.time_ns / 1e9 == pytest.approx(within)
    asked = requests((8, 8), (64, 3))
    one, other = serve(asked).per_request
    assert one.tpot_ns != pytest.approx(other.tpot_ns, rel=1e-6)
    result = serve(asked, slo=ServiceLevel(tpot_ns=(one.tpot_ns + other.tpot_ns) / 2))
    assert result.goodput_per_s * result.time_ns / 1e9 == pytest.approx(1)
    levels = ServiceLevel(10.0, 5.0), ServiceLevel(ttft_ns=10.0), ServiceLevel(tpot_ns=5.0)
    found = [[level.is_met(*times) for level in levels] for times in ((10, 5), (11, 5), (10, 6), (10, None))]
    assert found == [[True] * 3, [False, False, True], [False, True, False], [True] * 3]


def test_rates_and_times_of_a_run_are_those_of_its_requests():
    """The first arrives after 1 us; a request of one token has no time per further token."""
    asked = requests((4, 9), (64, 30), (40, 2), (9, 1), arrivals=(1e3, 2e3, 3e6, 9e6))
    result = serve(asked, max_batch=2)
    ends = [one.end_ns for one in result.per_request]
    time_ns = max(ends) - 1e3
    assert result.time_ns == pytest.approx(time_ns)
    assert result.tokens_per_s == pytest.approx((9 + 30 + 2 + 1) / time_ns * 1e9)
    assert result.requests_per_s == pytest.approx(4 / time_ns * 1e9)
    each = [
        (one.end_ns - one.first_token_ns) / (tokens - 1)
        for one, tokens in zip(result.per_request, (9, 30, 2, 1), strict=True)
        if tokens > 1
    ]
    assert len(set(each)) == 3
    assert result.user_tokens_per_s == pytest.approx(1e9 / (sum(each) / 3))
    assert result.tpot_ns is not None
    assert result.tpot_ns["p50"] == pytest.approx(sorted(each)[1])
    first = [
        one.first_token_ns - arrival
        for one, arrival in zip(result.per_request, asked.arrival_ns, strict=True)
    ]
    assert result.ttft_ns["mean"] == pytest.approx(sum(first) / 4)


def test_a_level_has_to_hold_for_the_shortest_prompt_alone():
    short, long = (serve(requests((tokens, 1))).per_request[0].ttft_ns for tokens in (4, 64))
    assert short < long
    serve(requests((64, 1), (4, 1)), slo=ServiceLevel((short + long) / 2))
    with refused("range slo"):
        serve(requests((64, 1), (4, 1)), slo=ServiceLevel(0.99 * short))


def test_a_level_has_to_hold_with_the_time_of_the_program_between_steps():
    bare, late = (serve(requests((4, 1)), step_overhead_us=us).per_request[0].ttft_ns for us in (0, 1000))
    assert late == pytest.approx(bare + 1e6)
    serve(requests((4, 1)), slo=ServiceLevel(1.001 * late), step_overhead_us=1000)
    with refused("range slo"):
        serve(requests((4, 1)), slo=ServiceLevel((bare + late) / 2), step_overhead_us=1000)


def test_found_prefixes_are_a_share_of_the_prompts():
    blocks = (np.array([1, 2]), np.array([1, 3]))
    result = serve(requests((32, 8), (32, 8), arrivals=(0, 1e9), block_tokens=16, blocks=blocks))
    assert dict(serving_table(result))["prompt tokens found in the KV cache"] == "25.0%"  # 16 of 64


def test_nobody_waits_where_each_request_comes_to_an_idle_engine():
    arrival_ns = np.arange(20) * 5e7 + 12345.678  # numbers whose sums are rounded
    result = serve(Requests(arrival_ns, np.full(20, 40), np.full(20, 3)))
    assert (result.mean_queue, result.most_queue) == (0, 0)
