"""Blocks of the KV cache that take the room of experts: runs beside those of a fixed division, and planted faults."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ndpsim
from builders.small_moe import CACHED_BYTES, EXPERT_BYTES, MODEL
from mistakes import refused
from ndpsim.audit import check_serving
from ndpsim.inference.serving.kv import KvCache, SharedRoom, SharedSizes
from ndpsim.inference.serving.log import writing_serving_log
from ndpsim.inference.serving.sequence import Sequence
from ndpsim.policies import Policy
from ndpsim.policies.interface import GivesRoom
from ndpsim.policies.published.on_demand import OnDemand
from ndpsim.simulate.results.serving import ServingResult
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


def rules(folder: Path, log: list[dict[str, Any]]) -> list[str]:
    file = folder / "log.jsonl"
    file.write_text("".join(f"{json.dumps(line)}\n" for line in log))
    return [one.rule for one in check_serving(file, 1000).findings]


def test_the_log_of_a_run_that_shares_room_breaks_no_rule(tmp_path: Path, log: list[dict[str, Any]]):
    assert log[0]["expert_bytes"] == EXPERT_BYTES
    assert log[0]["block_bytes"] == BLOCK_BYTES
    assert rules(tmp_path, log) == []


def _with(log: list[dict[str, Any]], place: int) -> list[Any]:
    """The first room of a step in which experts leave (place 2), or blocks are dropped (4)."""
    return next(room for line in log for room in line.get("rooms", ()) if room[place])


def _stay(log: list[dict[str, Any]]) -> None:
    _with(log, 2)[2] = 0


def _leave_for_nothing(log: list[dict[str, Any]]) -> None:
    _with(log, 2)[2] += 1


def _more_than_can(log: list[dict[str, Any]]) -> None:
    room = _with(log, 2)
    room[1] = room[0]


def _too_many(log: list[dict[str, Any]]) -> None:
    next(line for line in log if line.get("step") == 5)["rooms"][-1][0] += 20


def _too_much_room(log: list[dict[str, Any]]) -> None:
    next(line for line in log if line.get("step") == 5)["rooms"][-1][3] += 20


def _not_dropped(log: list[dict[str, Any]]) -> None:
    _with(log, 4)[4] = []


def _another_dropped(log: list[dict[str, Any]]) -> None:
    _with(log, 4)[4].reverse()


def _dropped_for_nothing(log: list[dict[str, Any]]) -> None:
    room = _with(log, 4)
    room[4] = room[4] * 2


def _untold(log: list[dict[str, Any]]) -> None:
    next(line for line in log if line.get("step") == 5)["rooms"] = []


def _of_a_fixed_division(log: list[dict[str, Any]]) -> None:
    del log[0]["room_bytes"]


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        (_stay, "memory"),
        (_leave_for_nothing, "evicted"),
        (_more_than_can, "evicted"),
        (_too_many, "experts"),
        (_too_much_room, "memory"),
        (_not_dropped, "memory"),
        (_another_dropped, "dropped"),
        (_dropped_for_nothing, "dropped"),
        (_untold, "memory"),
        (_of_a_fixed_division, "memory"),
    ],
)
def test_a_planted_fault_in_the_room_is_found(
    tmp_path: Path, log: list[dict[str, Any]], change: Callable[[list[dict[str, Any]]], None], rule: str
):
    changed = copy.deepcopy(log)
    change(changed)
    assert rule in rules(tmp_path, changed)
