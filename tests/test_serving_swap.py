"""Preempted sequences that are moved to the host's memory and back: nothing is computed again, and the moves take time."""

from __future__ import annotations

import copy
import io
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import ndpsim
from builders.small_moe import CACHED_BYTES, EXPERT_BYTES, MODEL
from ndpsim.audit import check_serving
from ndpsim.inference.layers.layer_run import LayerRun
from ndpsim.inference.layers.setup import host_room_bytes
from ndpsim.inference.serving.engine import Arrivals, DoneStep, Engines
from ndpsim.inference.serving.kv import HostRoom, KvCache
from ndpsim.inference.serving.log import ServingLog, writing_serving_log
from ndpsim.inference.serving.scheduler import Chunk, Limits, schedulers
from ndpsim.workload.models import Expert
from ndpsim.workload.requests import Requests

MACHINE = "dali-7532-3090"
BLOCK_TOKENS = 4
#: Keys and values of four heads of 64 values of two bytes, in four layers.
BLOCK_BYTES = BLOCK_TOKENS * 4 * CACHED_BYTES
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
    serve(preemption="swap", log=ServingLog(file))
    assert json.loads(file.getvalue().splitlines()[0])["host_bytes"] == capacity - experts


def serve(**more: Any) -> Any:
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
    result = serve(preemption="swap")
    assert result.preemptions == sum(to_host > 0 for _, to_host, *_ in moved) > 0
    for to_gpu, to_host, took_ns, alone_ns in moved:
        assert 0 in (to_gpu, to_host)  # one way in a step: none is taken in where another is preempted
        assert (to_gpu + to_host) % BLOCK_BYTES == 0
        assert took_ns >= alone_ns * (1 - 1e-9)
    assert sum(one[0] for one in moved) == sum(one[1] for one in moved)


def test_a_run_that_never_lacks_blocks_is_the_same_by_both_ways():
    ways = ("recompute", "swap")  # steps are never formed ahead where blocks are swapped
    runs = [serve(preemption=way, kv_blocks=500, async_scheduling=False).to_dict() for way in ways]
    for run in runs:
        for name in ("wall_s", "policy_wall_s", "compile_s"):
            run.pop(name)
        run["config"].pop("preemption")
    assert runs[0] == runs[1]


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    file = tmp_path_factory.mktemp("log") / "log.jsonl"
    with writing_serving_log(file) as written:
        serve(preemption="swap", log=written)
    return [json.loads(line) for line in file.read_text().splitlines()]


def rules(folder: Path, log: list[dict[str, Any]]) -> list[str]:
    file = folder / "log.jsonl"
    file.write_text("".join(f"{json.dumps(line)}\n" for line in log))
    return [one.rule for one in check_serving(file, 1000).findings]


def test_the_log_of_a_run_that_moves_blocks_breaks_no_rule(tmp_path: Path, log: list[dict[str, Any]]):
    assert log[0]["preemption"] == "swap"
    assert sum(len(line.get("to_host", ())) for line in log) > 0
    assert rules(tmp_path, log) == []


def first(log: list[dict[str, Any]], key: str) -> dict[str, Any]:
    return next(line for line in log if line.get(key))


def _more_out(log: list[dict[str, Any]]) -> None:
    line = first(log, "to_host")
    line["to_host"] = {one: count + 1 for one, count in line["to_host"].items()}


def _not_out(log: list[dict[str, Any]]) -> None:
    first(log, "to_host")["to_host"] = {}


def _fewer_back(log: list[dict[str, Any]]) -> None:
    line = first(log, "to_gpu")
    line["to_gpu"] = {one: count - 1 for one, count in line["to_gpu"].items()}


def _again(log: list[dict[str, Any]]) -> None:
    line = first(log, "to_gpu")
    number = int(next(iter(line["to_gpu"])))
    row = next(row for row in line["scheduled"] if row[0] == number)
    row[1:3] = 0, row[1] + row[2]


def _reuses(log: list[dict[str, Any]]) -> None:
    line = first(log, "to_gpu")
    number = next(iter(line["to_gpu"]))
    line["cached"][number], line["allocated"][number] = (
        line["allocated"][number][:1],
        line["allocated"][number][1:],
    )


def _no_room(log: list[dict[str, Any]]) -> None:
    log[0]["host_bytes"] = 2 * BLOCK_BYTES


def _recomputes(log: list[dict[str, Any]]) -> None:
    log[0]["preemption"] = "recompute"


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        (_more_out, "swap"),
        (_not_out, "swap"),
        (_fewer_back, "swap"),
        (_again, "computed"),
        (_reuses, "swap"),
        (_recomputes, "swap"),
        (_no_room, "swap"),
    ],
)
def test_a_planted_fault_in_moves_is_found(
    tmp_path: Path, log: list[dict[str, Any]], change: Callable[[list[dict[str, Any]]], None], rule: str
):
    changed = copy.deepcopy(log)
    change(changed)
    assert rule in rules(tmp_path, changed)


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
