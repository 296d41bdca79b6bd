"""Logs of the serving engine on random requests: the checker accepts them, and finds a fault in each changed log."""

from __future__ import annotations

import copy
import io
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ndpsim.audit import check_serving
from ndpsim.inference.serving.engine import Arrivals, Engines
from ndpsim.inference.serving.kv import HostRoom, KvCache, SharedRoom, SharedSizes
from ndpsim.inference.serving.log import ServingLog
from ndpsim.inference.serving.scheduler import Limits, scheduler_named
from ndpsim.inference.serving.sequence import prompt_hashes
from ndpsim.workload.requests import Requests


class RandomSteps:
    """Steps that take any time, after each of which there are other experts."""

    def __init__(self, chance: random.Random, experts: Experts) -> None:
        self.clock_ns, self._chance, self.residents = 0.0, chance, experts

    def wait_until(self, time_ns: float) -> None:
        self.clock_ns = time_ns

    def move_blocks(self, to_gpu: Any, to_host: Any) -> None:
        self.clock_ns += self._chance.uniform(1, 100)

    def run(self, number: int, parts: Any) -> None:
        self.clock_ns += self._chance.uniform(1, 100)
        self.residents.change(self._chance)


class Experts:
    """Experts in the GPU's memory, of which some may be on their way."""

    def __init__(self, most: int) -> None:
        self.most = self.count = most
        self.movable = most

    def now(self) -> int:
        return self.count

    def change(self, chance: random.Random) -> None:
        self.count = chance.choice([self.most, chance.randint(0, self.most)])
        self.movable = chance.choice([self.count, chance.randint(0, self.count)])

    def give_room(self, most: int) -> None:
        assert most >= self.count
        self.most = most

    def evict(self, count: int) -> None:
        assert 0 < count <= self.movable
        self.count -= count
        self.movable -= count


def prompts_that_begin_alike(chance: random.Random, lengths: list[int], size: int) -> tuple[np.ndarray, ...]:
    """Blocks of prompts, of which the first three are one of two."""
    numbers: dict[tuple[int, float], int] = {}
    blocks = []
    for length in lengths:
        ids: list[int] = []
        for place in range(-(-length // size)):
            content = (ids[-1] if ids else -1, chance.randint(0, 1) if place < 3 else chance.random())
            ids.append(numbers.setdefault(content, len(numbers)))
        blocks.append(np.array(ids))
    return tuple(blocks)


#: Schedulers, and what they do with blocks of who is preempted.
WAYS = [("vllm", "recompute"), ("vllm", "swap"), ("static", "recompute")]


def log_of(
    scheduler: str, preemption: str, seed: int, count: int = 25, shares: bool = False
) -> tuple[list[dict[str, Any]], int]:
    """The lines of a run of random requests on a small cache, and how often one was preempted.

    shares: the cache shares its room with experts.
    """
    chance = random.Random(seed)
    prompts, outputs = ([chance.randint(1, most) for _ in range(count)] for most in (90, 40))
    arrivals = np.cumsum([chance.choice([0, 0, chance.uniform(0, 500)]) for _ in range(count)])
    loop, block_tokens = chance.choice([None, None, 4]), chance.choice([1, 4, 16])
    size = block_tokens * chance.choice([1, 3])
    blocks = prompts_that_begin_alike(chance, prompts, size) if chance.random() < 0.7 else None
    requests = Requests(
        np.zeros(count) if loop else arrivals, np.array(prompts), np.array(outputs), (),
        None if blocks is None else size, blocks, loop
    )  # fmt: skip
    longest = max(-(-(one + other) // block_tokens) for one, other in zip(prompts, outputs, strict=True))
    room, reuse = longest + chance.randint(0, 2 * longest), chance.random() < 0.8
    limits = Limits(chance.randint(2, 12), chance.randint(12, 120))
    sizes = SharedSizes(10 * room, 10, chance.choice([7, 25]))
    experts = Experts((room - longest) * sizes.block // sizes.expert if shares else 0)
    steps = RandomSteps(chance, experts)
    shared: Any = SharedRoom(sizes, room, experts) if shares else None  # type: ignore[arg-type]
    host_bytes = chance.choice([0, 5 * room, 100 * room])
    host = HostRoom(host_bytes, lambda blocks: 10 * sum(blocks) + 3 * len(blocks))
    kv = KvCache(room, block_tokens, reuse, shared, host)
    former = scheduler_named(scheduler)(kv, limits, preemption == "swap")
    file = io.BytesIO()
    log = ServingLog(file)
    header = dict(
        policy="p", model="m", scheduler=scheduler, engines=1, block_tokens=block_tokens, blocks=room,
        max_batch=limits.sequences, max_tokens=limits.tokens, prefix_cache=reuse, closed_loop=loop,
        preemption=preemption,
        async_scheduling=former.works_ahead and preemption == "recompute" and chance.random() < 0.7,
    )  # fmt: skip
    if shares:
        header |= {f"{name}_bytes": size for name, size in sizes._asdict().items()}
    if preemption == "swap":
        header |= {"block_bytes": 10, "state_bytes": 3, "host_bytes": host_bytes}
    log.begin(header, requests.ids)
    hashes = prompt_hashes(requests, block_tokens)
    ahead = header["async_scheduling"]
    engine = Engines([former], steps, Arrivals(requests, hashes), log.arrived, log.done, ahead)
    engine.run()
    lines = [json.loads(line) for line in file.getvalue().splitlines()]
    return lines, sum(one.preemptions for one in engine.sequences)


def findings(folder: Path, lines: list[dict[str, Any]]) -> tuple[Any, ...]:
    path = folder / "log.jsonl"
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return check_serving(path).findings


@pytest.mark.parametrize("shares", [False, True])
@pytest.mark.parametrize(("scheduler", "preemption"), WAYS)
def test_logs_of_the_engine_are_consistent(scheduler, preemption, shares, tmp_path):
    preemptions = 0
    for seed in range(12):
        lines, often = log_of(scheduler, preemption, seed, shares=shares)
        preemptions += often
        assert findings(tmp_path, lines) == (), seed
    assert (preemptions > 0) == (scheduler == "vllm")


def changed(line: dict[str, Any], chance: random.Random) -> str:
    """Change one thing of a step; returns what."""
    kinds = [kind for kind in ("allocated", "cached", "freed", "scheduled") if line[kind]]
    kind = chance.choice(kinds)
    if kind == "scheduled":
        row, place = chance.choice(line[kind]), chance.randint(1, 3)
        row[place] += chance.choice([-1, 1])
        return f"{kind} {place}"
    request = chance.choice(list(line[kind]))
    if chance.random() < 0.5:
        del line[kind][request]
        return f"{kind} deleted"
    line[kind][request][chance.randrange(len(line[kind][request]))] += 1
    return f"{kind} moved"


@pytest.mark.parametrize(("scheduler", "preemption"), WAYS)
def test_every_change_of_a_step_is_found(scheduler, preemption, tmp_path):
    chance = random.Random(1)
    for seed in range(4):
        lines, _ = log_of(scheduler, preemption, seed, 12)
        steps = [at for at, line in enumerate(lines) if "step" in line]
        for _ in range(8):
            other, at = copy.deepcopy(lines), chance.choice(steps)
            what = changed(other[at], chance)
            assert findings(tmp_path, other), (seed, at, what)
