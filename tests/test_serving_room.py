"""Blocks of the KV cache that take the room of experts, or are moved to the host's memory and back."""

from __future__ import annotations

import copy
import io
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import ndpsim
from builders.small_moe import CACHED_BYTES, EXPERT_BYTES, MODEL
from mistakes import refused
from ndpsim.audit import check_serving
from ndpsim.base.options.serve import ServeSettings
from ndpsim.inference.layers.layer_run import LayerRun
from ndpsim.inference.layers.setup import host_room_bytes
from ndpsim.inference.serving.engine import Arrivals, DoneStep, Engines
from ndpsim.inference.serving.kv import HostRoom, KvCache, SharedRoom, SharedSizes
from ndpsim.inference.serving.log import ServingLog, writing_serving_log
from ndpsim.inference.serving.scheduler import Chunk, Limits, schedulers
from ndpsim.inference.serving.sequence import Sequence
from ndpsim.inference.serving.server import set_up
from ndpsim.policies import Policy
from ndpsim.policies.interface import GivesRoom
from ndpsim.policies.published.on_demand import OnDemand
from ndpsim.simulate.results.serving import ServingResult
from ndpsim.workload.models import Expert, LinearAttention, MixedAttention
from ndpsim.workload.requests import Requests

MACHINE = "dali-7532-3090"
EXPERTS = MODEL.moe_layers * MODEL.routed_experts
#: All at once, and one more when they have ended.
ASKED = Requests(np.append(np.zeros(8), 1e9), np.full(9, 32), np.full(9, 60))
BLOCKS = 6  # of 16 tokens, of a request
BLOCK_BYTES = 16 * 4 * CACHED_BYTES


def serve(room: int | None, policy: Any = "on-demand:cache=lru", **more: Any) -> ServingResult:
    """A run on a GPU with so many bytes for experts and KV cache; None: more than enough."""
    asked = dict(requests=ASKED, policy=policy, max_batch=8, max_tokens=64, bits=16) | more
    if room is None:
        return ndpsim.run_serving(MACHINE, MODEL, **asked)
    one = {"requests": "poisson:rate=1,requests=1", "log": None}
    bare = ndpsim.run_serving(MACHINE, MODEL, **asked | one)
    parts = bare.config["gpu_bytes"]
    others = sum(size for name, size in parts.items() if name not in ("kv_cache", "reserved"))
    sets = "gpu.reserved_gb=0", f"gpu.memory_gb={(others + room) / 1e9:.9f}"
    return ndpsim.run_serving(MACHINE, MODEL, sets=sets, **asked)


#: All experts have room, and the longest request, but not all requests.
ALL = EXPERTS * EXPERT_BYTES + BLOCKS * BLOCK_BYTES + 1


def test_experts_leave_before_a_sequence_is_preempted():
    shares, fixed = serve(ALL), serve(ALL, kv="gpu")
    assert (shares.config["shared_bytes"] is None, fixed.config["shared_bytes"]) == (False, None)
    assert (shares.preemptions, fixed.config["kv_blocks"]) == (0, BLOCKS)
    assert fixed.preemptions > 0
    ends = [max(one.end_ns for one in run.per_request[:8]) for run in (shares, fixed)]
    assert ends[0] < ends[1] / 2
    assert shares.most_kv_blocks == 8 * BLOCKS
    assert (
        min(shares.over_time["resident_experts"][10:60]) >= EXPERTS - 8 * BLOCKS * BLOCK_BYTES // EXPERT_BYTES
    )


@pytest.mark.parametrize(
    "policy",
    [
        pytest.param("hobbit", marks=pytest.mark.long),
        "hobbit:prefetch=0",
        pytest.param("hybrimoe:schedule=threshold,threshold=1", marks=pytest.mark.long),
        "hybrimoe:prefetch_size=2",
    ],
)
def test_policies_with_caches_of_their_own_give_room_and_take_it_back(tmp_path: Path, policy: str):
    file = tmp_path / "log.jsonl"
    with writing_serving_log(file) as written:
        shares, fixed = serve(ALL, policy, log=written), serve(ALL, policy, kv="gpu")
    residents = shares.over_time["resident_experts"]
    assert (shares.preemptions, fixed.preemptions > 0) == (0, True)
    assert residents[-1] > min(residents) + 1
    assert check_serving(file, 1000).ok


class TwoExperts:
    """Two of eight experts in the GPU's memory, which stay, as `Residents` says it."""

    most, movable = 8, 0

    def now(self) -> int:
        return 2

    def give_room(self, most: int) -> None:
        self.most = most


@pytest.mark.parametrize(("blocks", "most"), [(40, (80 - 40) // 10), (41, 2)])
def test_experts_get_no_room_back_when_a_sequence_found_too_little(blocks: int, most: int):
    residents: Any = TwoExperts()  # beside which 60 blocks have room
    shared = SharedRoom(SharedSizes(room=80, block=1, expert=10), 70, residents)
    cache = KvCache(70, shared=shared)
    first, second = (Sequence(number, 16 * size, 1, 0.0) for number, size in enumerate((20, blocks)))
    cache.new_step()
    assert cache.allocate(first, first.tokens)
    assert cache.allocate(second, second.tokens) == (blocks == 40)
    cache.release(first)
    cache.end_step()
    assert residents.most == most


@pytest.mark.parametrize(("blocks", "leaving"), [(60, 0), (61, 1), (70, 1), (71, 0), (80, 0)])
def test_no_expert_leaves_for_more_blocks_than_there_can_be(blocks: int, leaving: int):
    class Movable(TwoExperts):
        movable, evicted = 2, 0

        def evict(self, count: int) -> None:
            self.evicted = count

    residents: Any = Movable()
    shared = SharedRoom(SharedSizes(room=80, block=1, expert=10), 70, residents)
    assert shared.make(blocks) == residents.evicted == leaving


def test_all_experts_have_room_as_long_as_the_longest_request_fits_beside_them_to_the_byte():
    fits, lacks = (serve(ALL - 1 - less, kv="gpu").config for less in (0, 1))
    assert (fits["kv_blocks"], fits["gpu_experts"]) == (BLOCKS, EXPERTS)
    assert lacks["kv_blocks"] == 8 * BLOCKS
    assert lacks["gpu_experts"] < EXPERTS


def test_blocks_are_no_more_than_have_room_without_experts():
    many = Requests(np.zeros(120), np.full(120, 90), np.full(120, 2))
    asked = dict(requests=many, max_batch=120, max_tokens=2048)
    assert serve(ALL, **asked).config["kv_blocks"] == ALL // BLOCK_BYTES < 120 * BLOCKS


@pytest.mark.parametrize(("max_tokens", "each"), [(64, 8), (65, 9)])
def test_the_work_space_is_that_of_as_many_tokens_of_each_sequence(max_tokens: int, each: int):
    settings = ServeSettings(
        hw=MACHINE, model=MODEL, requests=ASKED, policy="on-demand", max_batch=8, max_tokens=max_tokens
    )
    # Of a token two vectors of 512 and three of the networks' 512, of a sequence logits of 4 B.
    of_token = (2 * MODEL.hidden + 3 * MODEL.dense_intermediate) * 2
    assert set_up(settings).room.memory.parts["workspace"] == 8 * (each * of_token + 4 * 1000)


def test_the_cache_is_for_the_longest_requests_that_run_together():
    asked = Requests(np.zeros(10), np.array([32] * 8 + [4] * 2), np.array([60] * 8 + [2] * 2))
    assert serve(20 * EXPERT_BYTES, kv="gpu", requests=asked).config["kv_blocks"] == 8 * BLOCKS


def test_room_beside_blocks_is_kept_for_the_states_of_all_sequences():
    linear = LinearAttention(key_heads=2, value_heads=4, key_size=64, value_size=64, convolution=4)
    model = replace(MODEL, attention=MixedAttention((MODEL.attention, linear), (0, 0, 0, 1)))
    settings = ServeSettings(
        hw=MACHINE, model=model, requests=ASKED, policy="on-demand", max_batch=8, kv_blocks=60
    )
    # A state of 64 x 64 numbers of 32 bits a head, and of three tokens queries, keys and values of 16 bits.
    state = 4 * 64 * 64 * 4 + 3 * (2 * 64 + 2 * 64 + 4 * 64) * 2
    room = set_up(settings).room
    assert room.memory.parts["kv_cache"] == 60 * 16 * 3 * CACHED_BYTES + 8 * state
    assert room.kept_bytes([2, 5]) == 7 * 16 * 3 * CACHED_BYTES + 2 * state


def test_experts_come_back_when_sequences_have_ended():
    residents = serve(ALL).over_time["resident_experts"]
    first = residents[: len(residents) // 10]  # the eight requests, before the GPU waits for the last one
    assert min(first[2:]) == pytest.approx(EXPERTS - 4)
    assert residents[-1] > EXPERTS - 2


def test_where_not_all_experts_have_room_they_have_that_of_blocks_that_nobody_uses():
    room = 20 * EXPERT_BYTES
    shares, fixed = serve(room), serve(room, kv="gpu")
    assert fixed.config["gpu_experts"] == (room - 8 * BLOCKS * BLOCK_BYTES) // EXPERT_BYTES
    assert shares.config["gpu_experts"] == (room - BLOCKS * BLOCK_BYTES) // EXPERT_BYTES
    assert shares.preemptions == fixed.preemptions == 0
    assert shares.time_ns < fixed.time_ns


@pytest.mark.parametrize("more", [{}, {"gpu_experts": 4}, {"kv_blocks": 60}])
def test_a_run_in_which_nothing_runs_out_is_that_of_a_fixed_division(more: dict[str, Any]):
    shares, fixed = serve(None, **more), serve(None, kv="gpu", **more)
    assert (shares.config["shared_bytes"] is None) == bool(more)
    assert shares.per_request == fixed.per_request
    assert shares.over_time == fixed.over_time
    assert shares.energy_nj == fixed.energy_nj


def test_a_policy_that_gives_no_room_has_the_fixed_division():
    shares, fixed = serve(ALL, "fiddler"), serve(ALL, "fiddler", kv="gpu")
    assert shares.config["shared_bytes"] is None
    assert shares.per_request == fixed.per_request


class Worthless(OnDemand):
    name = "worthless"

    def resident_worth(self, placement: Any) -> Any:
        return np.zeros(3)


def test_a_worth_that_orders_no_experts_is_refused():
    with refused("policy policy worthless: resident_worth"):
        serve(ALL, ndpsim.policies.ChosenPolicy(Worthless, Worthless.Parameters(cache="lru")))


@pytest.mark.parametrize("policy", ["balance", "trimoe", "pre-gated:cache=lru", "hobbit", "hybrimoe"])
def test_policies_that_give_room_are_known(policy: str):
    from ndpsim.policies.choose import choose_policies

    ((chosen, _),) = choose_policies((policy,))
    assert issubclass(chosen.policy, GivesRoom)
    assert issubclass(chosen.policy, Policy)


# ---- the log


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    file = tmp_path_factory.mktemp("log") / "log.jsonl"
    with writing_serving_log(file) as written:
        serve(ALL, log=written)
    return [json.loads(line) for line in file.read_text().splitlines()]


def broken(folder: Path, log: list[dict[str, Any]], change: str = "") -> list[str]:
    """The rules that a log breaks after a statement about lines, the fifth step, and rooms of steps."""
    log = copy.deepcopy(log)

    def line(key: str) -> dict[str, Any]:
        return next(line for line in log if line.get(key))

    def room(place: int) -> list[Any]:
        """The first room of a step in which experts leave (place 2), or blocks are dropped (4)."""
        return next(room for line in log for room in line.get("rooms", ()) if room[place])

    fifth = next(line for line in log if line.get("step") == 5)
    exec(change, {"log": log, "line": line, "room": room, "fifth": fifth})
    file = folder / "log.jsonl"
    file.write_text("".join(f"{json.dumps(line)}\n" for line in log))
    return [one.rule for one in check_serving(file, 1000).findings]


def test_the_log_of_a_run_that_shares_room_breaks_no_rule(tmp_path: Path, log: list[dict[str, Any]]):
    assert log[0]["expert_bytes"] == EXPERT_BYTES
    assert log[0]["block_bytes"] == BLOCK_BYTES
    assert broken(tmp_path, log) == []


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ("room(2)[2] = 0", "memory"),  # experts that should leave stay
        ("room(2)[2] += 1", "evicted"),
        ("room(2)[1] = room(2)[0]", "evicted"),
        ("fifth['rooms'][-1][0] += 20", "experts"),
        ("fifth['rooms'][-1][3] += 20", "memory"),
        ("room(4)[4] = []", "memory"),
        ("room(4)[4].reverse()", "dropped"),
        ("room(4)[4] *= 2", "dropped"),
        ("fifth['rooms'] = []", "memory"),
        ("del log[0]['room_bytes']", "memory"),
    ],
)
def test_a_planted_fault_in_the_room_is_found(tmp_path, log, change, rule):
    assert rule in broken(tmp_path, log, change)


# ---- Preempted sequences that are moved to the host's memory and back: nothing is computed again, and the moves take time

BLOCK_TOKENS = 4
#: Keys and values of four heads of 64 values of two bytes, in four layers.
BYTES_OF_BLOCK = BLOCK_TOKENS * 4 * CACHED_BYTES
SHORT = Requests(
    np.arange(8) * 1e5,
    np.full(8, 32),
    np.full(8, 40),
    block_tokens=4,
    blocks=tuple(np.arange(8) for _ in range(8)),
)


class Clock:
    """Steps of 10 ns, which note what is moved."""

    residents = None

    def __init__(self) -> None:
        self.clock_ns = 0.0
        self.moved: list[tuple[int, int]] = []

    def wait_until(self, time_ns: float) -> None:
        self.clock_ns = max(self.clock_ns, time_ns)

    def move_blocks(self, to_gpu: tuple[int, ...], to_host: tuple[int, ...]) -> None:
        self.moved.append((sum(to_gpu), sum(to_host)))

    def run(self, number: int, parts: list[list[Chunk]]) -> None:
        self.clock_ns += 10.0

    def results(self, time_ns: float) -> dict[str, Any]:
        return {}


@pytest.mark.parametrize("reuse", [False, True])
def test_no_token_is_computed_twice_and_all_blocks_come_back(reuse: bool):
    random = np.random.default_rng(3)
    asked = Requests(
        np.cumsum(random.exponential(15, 30)), random.integers(1, 30, 30), random.integers(1, 15, 30)
    )
    kv, clock, done = KvCache(12, 4, reuse), Clock(), list[DoneStep]()
    scheduler = schedulers()["vllm"](kv, Limits(6, 20), swaps=True)
    engine = Engines([scheduler], clock, Arrivals(asked, lambda _: ()), lambda _: None, done.append)
    engine.run()
    computed = dict.fromkeys(range(30), 0)
    for step in done:
        for chunk in step.formed.chunks:
            assert chunk.computed == computed[chunk.sequence.number]
            computed[chunk.sequence.number] += chunk.tokens
    assert [computed[n] for n in range(30)] == (asked.prompt_tokens + asked.output_tokens - 1).tolist()
    assert sum(one.preemptions for one in engine.sequences) == sum(bool(out) for _, out in clock.moved) > 3
    to_gpu, to_host = map(sum, zip(*clock.moved, strict=True))
    assert to_gpu == to_host > 3
    assert (kv.free, {one.on_host for one in engine.sequences}) == (12, {0})


def test_a_full_host_has_sequences_computed_again():
    # Each request ends with 8 blocks, and moves 2 to 7 of 3 bytes; the host has room for one or two of them.
    asked = Requests(np.zeros(12), np.full(12, 8), np.full(12, 24))
    most, there, done = 24, list[int](), list[DoneStep]()
    host = HostRoom(most, lambda blocks: there.append(3 * sum(blocks)) or there[-1])  # type: ignore[func-returns-value]
    kv = KvCache(20, 4, False, host=host)
    scheduler = schedulers()["vllm"](kv, Limits(6, 60), swaps=True)
    engine = Engines([scheduler], Clock(), Arrivals(asked, lambda _: ()), lambda _: None, done.append)
    engine.run()
    on_host, again, most_there = dict[int, int](), 0, 0
    for step in done:
        for one in step.formed.preempted:
            again += one.number not in step.formed.changes.to_host
        on_host.update(step.formed.changes.to_host)
        most_there = max(most_there, 3 * sum(on_host.values()))
        for number in step.formed.changes.to_gpu:
            del on_host[number]
    assert again > 0
    assert 0 < most_there <= most
    assert max(there) > most
    assert all(one.is_over for one in engine.sequences)


def test_the_host_has_the_room_that_experts_leave():
    hardware = ndpsim.load_hardware(MACHINE, (), "moe")
    experts = MODEL.moe_layers * MODEL.routed_experts * EXPERT_BYTES
    own = hardware.host_memory.capacity_bytes
    capacity = own if not hardware.host_reads_dimms else hardware.system.dimm.count * hardware.dimm_bytes
    file = io.BytesIO()
    swapping(preemption="swap", log=ServingLog(file))
    assert json.loads(file.getvalue().splitlines()[0])["host_bytes"] == capacity - experts


def swapping(**more: Any) -> Any:
    asked = dict(kv_blocks=50, block_tokens=BLOCK_TOKENS, max_batch=8, max_tokens=64, policy="on-demand")
    return ndpsim.run_serving(MACHINE, MODEL, SHORT, **asked | more)


def test_moves_take_the_time_of_their_bytes_on_pcie(monkeypatch: pytest.MonkeyPatch):
    moved: list[tuple[int, int, float, float]] = []
    move = LayerRun.move_cache

    def noted(self: LayerRun, to_gpu: int, to_host: int) -> None:
        began = self.clock_ns
        move(self, to_gpu, to_host)
        moved.append((to_gpu, to_host, self.clock_ns - began, self.setup.transfers.pcie_ns(to_gpu + to_host)))

    monkeypatch.setattr(LayerRun, "move_cache", noted)
    result = swapping(preemption="swap")
    assert result.preemptions == sum(to_host > 0 for _, to_host, *_ in moved) > 0
    for to_gpu, to_host, took_ns, alone_ns in moved:
        assert 0 in (to_gpu, to_host)  # one way in a step: none is taken in where another is preempted
        assert (to_gpu + to_host) % BYTES_OF_BLOCK == 0
        assert took_ns >= alone_ns * (1 - 1e-9)
    assert sum(one[0] for one in moved) == sum(one[1] for one in moved)


def test_a_run_that_never_lacks_blocks_is_the_same_by_both_ways():
    ways = ("recompute", "swap")  # steps are never formed ahead where blocks are swapped
    runs = [swapping(preemption=way, kv_blocks=500, async_scheduling=False).to_dict() for way in ways]
    for run in runs:
        for name in ("wall_s", "policy_wall_s", "compile_s"):
            run.pop(name)
        run["config"].pop("preemption")
    assert runs[0] == runs[1]


@pytest.fixture(scope="module")
def log_of_moves(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    file = tmp_path_factory.mktemp("log") / "log.jsonl"
    with writing_serving_log(file) as written:
        swapping(preemption="swap", log=written)
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_the_log_of_a_run_that_moves_blocks_breaks_no_rule(tmp_path, log_of_moves):
    assert log_of_moves[0]["preemption"] == "swap"
    assert sum(len(line.get("to_host", ())) for line in log_of_moves) > 0
    assert broken(tmp_path, log_of_moves) == []


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ("out = line('to_host')['to_host']; out |= {one: count + 1 for one, count in out.items()}", "swap"),
        ("line('to_host')['to_host'] = {}", "swap"),
        ("back = line('to_gpu')['to_gpu']; back |= {one: count - 1 for one, count in back.items()}", "swap"),
        ("log[0]['preemption'] = 'recompute'", "swap"),
        (f"log[0]['host_bytes'] = {2 * BYTES_OF_BLOCK}", "swap"),
    ],
)
def test_a_planted_fault_in_moves_is_found(tmp_path, log_of_moves, change, rule):
    assert rule in broken(tmp_path, log_of_moves, change)


def test_what_comes_back_is_neither_computed_again_nor_reused(tmp_path, log_of_moves):
    place = next(place for place, line in enumerate(log_of_moves) if line.get("to_gpu"))
    number = next(iter(log_of_moves[place]["to_gpu"]))
    again, reused = copy.deepcopy(log_of_moves), copy.deepcopy(log_of_moves)
    row = next(row for row in again[place]["scheduled"] if row[0] == int(number))
    row[1:3] = 0, row[1] + row[2]
    assert "computed" in broken(tmp_path, again)
    line = reused[place]
    line["cached"][number], line["allocated"][number] = (
        line["allocated"][number][:1],
        line["allocated"][number][1:],
    )
    assert "swap" in broken(tmp_path, reused)


def test_experts_and_all_their_replicas_leave_the_host_what_is_left():
    """Six experts of 3 x 64 x 32 weights: 12,288 B in 16 bits, with copies in 4 and in 2 bits 16,896 B."""
    machine = SimpleNamespace(shape=(2, 3), expert_bytes=12_288, model=SimpleNamespace(expert=Expert(64, 32)))
    memory, dimm = SimpleNamespace(capacity_bytes=1_000_000), SimpleNamespace(count=4)
    hardware = SimpleNamespace(
        system=SimpleNamespace(dimm=dimm), dimm_bytes=500_000, host_reads_dimms=False, host_memory=memory
    )
    given: Any = SimpleNamespace(machine=machine, hardware=hardware)
    assert host_room_bytes(given, ()) == 1_000_000 - 6 * 12_288
    assert host_room_bytes(given, (4, 2)) == 1_000_000 - 6 * 16_896
    hardware.host_reads_dimms = True
    assert host_room_bytes(given, (4, 2)) == 2_000_000 - 6 * 16_896
    memory.capacity_bytes, hardware.host_reads_dimms = 100_000, False
    assert host_room_bytes(given, (4, 2)) == 0
