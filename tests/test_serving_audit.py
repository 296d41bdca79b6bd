"""The checker of serving logs: it accepts logs of the engine, and finds each planted fault."""

from __future__ import annotations

import copy
import gzip
import io
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calls import call
from mistakes import refused
from ndpsim.audit import check_serving, is_serving_log
from ndpsim.inference.serving.engine import Arrivals, Engines
from ndpsim.inference.serving.kv import HostRoom, KvCache, SharedRoom, SharedSizes
from ndpsim.inference.serving.log import ServingLog
from ndpsim.inference.serving.scheduler import Limits, scheduler_named
from ndpsim.inference.serving.sequence import prompt_hashes
from ndpsim.workload.requests import Requests

HEADER = {
    "serving_log": 1, "policy": "trimoe", "model": "m", "scheduler": "vllm", "engines": 1, "block_tokens": 4,
    "blocks": 5, "max_batch": 3, "max_tokens": 8, "prefix_cache": True, "closed_loop": None
}  # fmt: skip


def request(number: int, arrival_ns: float, prompt: int, output: int, hashes: list[int]) -> dict[str, Any]:
    return {
        "request": number, "id": f"r{number}", "arrival_ns": arrival_ns, "prompt_tokens": prompt,
        "output_tokens": output, "engine": 0, "hashes": hashes
    }  # fmt: skip


def step(number: int, scheduled: list[list[int]], **more: Any) -> dict[str, Any]:
    line = {
        "step": number, "engine": 0, "start_ns": 100.0 * number, "end_ns": 100.0 * number + 100,
        "scheduled": scheduled, "allocated": {}, "cached": {}, "preempted": [], "finished": [], "freed": {},
        "waiting": []
    }  # fmt: skip
    return {**line, **more}


# Five blocks of four tokens, three places, eight tokens a step. Requests 0 and 1 begin with the same block. When
# request 1 finds no fourth block in step 5 it is preempted; in step 9 it finds its first two blocks again, but
# not the third, which request 0 got in step 7.
LOG = [
    HEADER,
    request(0, 0.0, 6, 9, [100]),
    request(1, 0.0, 9, 6, [100, 101]),
    step(0, [[0, 0, 6, 1], [1, 4, 2, 0]], allocated={"0": [0, 1], "1": [2]}, cached={"1": [0]}),
    request(2, 10.0, 3, 1, []),
    step(1, [[0, 6, 1, 2], [1, 6, 3, 1], [2, 0, 3, 1]], allocated={"1": [3], "2": [4]}, finished=[2], freed={"2": [4]}),
    step(2, [[0, 7, 1, 3], [1, 9, 1, 2]]),
    request(3, 250.0, 2, 2, []),
    step(3, [[0, 8, 1, 4], [1, 10, 1, 3]], allocated={"0": [4]}, waiting=[3]),
    step(4, [[0, 9, 1, 5], [1, 11, 1, 4]], waiting=[3]),
    step(5, [[0, 10, 1, 6]], preempted=[1], freed={"1": [3, 2, 0]}, waiting=[1, 3]),
    step(6, [[0, 11, 1, 7]], waiting=[1, 3]),
    step(7, [[0, 12, 1, 8]], allocated={"0": [3]}, waiting=[1, 3]),
    step(8, [[0, 13, 1, 9]], finished=[0], freed={"0": [3, 4, 1, 0]}, waiting=[1, 3]),
    step(9, [[1, 8, 5, 5], [3, 0, 2, 1]], allocated={"1": [3, 4], "3": [1]}, cached={"1": [0, 2]}),
    step(10, [[1, 13, 1, 6], [3, 2, 1, 2]], finished=[1, 3], freed={"1": [4, 3, 2, 0], "3": [1]}),
]  # fmt: skip
STEP = {line["step"]: at for at, line in enumerate(LOG) if "step" in line}
REQUEST = {line["request"]: at for at, line in enumerate(LOG) if "request" in line}

Change = Callable[[list[dict[str, Any]]], object]


def written(folder: Path, log: list[dict[str, Any]], name: str = "log.jsonl") -> Path:
    path = folder / name
    text = "".join(f"{json.dumps(line)}\n" for line in log).encode()
    path.write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    return path


def found(folder: Path, change: Change) -> list[str]:
    """The rules that a changed log breaks, in the order of the log."""
    log = copy.deepcopy(LOG)
    change(log)
    return [one.rule for one in check_serving(written(folder, log), 1000).findings]


def test_a_consistent_log(tmp_path):
    report = check_serving(written(tmp_path, LOG, "log.jsonl.gz"))
    assert report.findings == ()
    assert (report.ok, report.requests, report.steps) == (True, 4, 11)
    assert report.tokens == 8 + 7 + 2 + 2 + 2 + 1 + 1 + 1 + 1 + 7 + 2


def in_step(number: int, **changed: Any) -> Change:
    return lambda log: log[STEP[number]].update(changed)


def in_request(number: int, **changed: Any) -> Change:
    return lambda log: log[REQUEST[number]].update(changed)


def in_header(**changed: Any) -> Change:
    return lambda log: log[0].update(changed)


FAULTS: list[tuple[str, Change]] = [
    # Tokens
    ("computed", in_step(2, scheduled=[[0, 6, 1, 3], [1, 9, 1, 2]])),  # a token twice
    ("computed", in_step(2, scheduled=[[0, 8, 1, 3], [1, 9, 1, 2]])),  # a token never
    ("computed", in_step(9, scheduled=[[1, 12, 1, 5], [3, 0, 2, 1]])),  # preempted work not done again
    ("tokens", in_step(2, scheduled=[[0, 7, 2, 3], [1, 9, 1, 2]])),
    ("tokens", in_step(2, scheduled=[[0, 7, 0, 2], [1, 9, 1, 2]])),
    ("chunk", in_step(0, scheduled=[[0, 0, 5, 0], [1, 4, 3, 0]])),
    ("output", in_step(2, scheduled=[[0, 7, 1, 2], [1, 9, 1, 2]])),
    ("output", in_step(0, scheduled=[[0, 0, 6, 1], [1, 4, 2, 1]])),
    # Budgets
    ("budget", in_header(max_tokens=7)),
    ("batch", in_header(max_batch=2)),
    ("twice", in_step(2, scheduled=[[0, 7, 1, 3], [1, 9, 1, 2], [1, 9, 1, 2]])),
    ("empty", in_step(6, scheduled=[])),
    # Blocks
    ("in-use", in_step(1, allocated={"1": [1], "2": [4]})),
    ("in-use", in_step(3, allocated={"0": [1]})),
    ("no-block", in_step(3, allocated={"0": [5]})),
    ("no-block", in_step(3, allocated={"0": [-1]})),
    ("room", in_step(3, allocated={})),
    ("room", in_step(2, allocated={"0": [4]})),
    ("eviction", in_step(7, allocated={"0": [2]})),
    ("leak", in_step(1, freed={})),
    ("leak", in_step(8, freed={"0": [3, 4, 1]})),
    ("leak", in_step(5, freed={"1": [3, 2]})),
    ("free-order", in_step(8, freed={"0": [0, 1, 4, 3]})),
    ("unasked", in_step(2, freed={"0": [1, 0]})),
    ("unasked", in_step(4, allocated={"2": [1]})),
    ("too-long", in_request(2, output_tokens=19)),
    # Prefixes
    ("prefix", in_request(1, hashes=[99, 101])),
    ("prefix", in_step(9, cached={"1": [2, 0]})),
    ("prefix", in_step(2, cached={"1": [0]})),
    ("prefix", in_header(prefix_cache=False)),
    ("missed", in_step(0, cached={}, allocated={"0": [0, 1], "1": [2, 3]})),
    ("missed", in_step(9, cached={"1": [0]})),
    # Order of requests
    ("first-come", in_step(9, scheduled=[[3, 0, 2, 1], [1, 8, 5, 5]], allocated={"3": [1], "1": [3, 4]})),
    ("running-first", in_step(2, scheduled=[[1, 9, 1, 2], [0, 7, 1, 3]])),
    ("idle", in_step(2, scheduled=[[0, 7, 1, 3]])),
    ("idle", in_step(1, scheduled=[[0, 6, 1, 2], [1, 6, 3, 1]], allocated={"1": [3]}, finished=[], freed={}, waiting=[2])),
    ("queue", in_step(5, waiting=[3, 1])),
    ("queue", in_step(3, waiting=[])),
    ("preemption", in_step(5, scheduled=[[1, 12, 1, 5]], preempted=[0], freed={"0": [4, 1, 0]}, waiting=[0, 3])),
    ("preemption", in_step(2, scheduled=[[0, 7, 1, 3]], preempted=[1], freed={"1": [3, 2, 0]}, waiting=[1])),
    ("preemption", in_step(7, preempted=[1])),
    # Times
    ("overlap", in_step(4, start_ns=399.0)),
    ("time", in_step(4, end_ns=400.0)),
    ("order", in_step(4, step=3)),
    ("early", in_request(2, arrival_ns=101.0)),
    ("late", in_request(3, arrival_ns=150.0)),
    ("arrival", in_request(3, arrival_ns=9.0)),
    ("length", in_request(2, prompt_tokens=0)),
    # Ends
    ("finish", in_step(1, finished=[], freed={})),
    ("finish", in_request(2, output_tokens=2)),
    ("finish", in_step(2, scheduled=[[0, 7, 1, 3], [1, 9, 1, 2], [2, 3, 1, 2]])),
    ("unfinished", lambda log: log.pop()),
    # Keys
    ("keys", in_header(seed=1)),
    ("keys", in_request(1, priority=1)),
    ("keys", in_step(1, energy_nj=1.0)),
]  # fmt: skip


@pytest.mark.parametrize(
    ("rule", "change"), FAULTS, ids=[f"{at}-{rule}" for at, (rule, _) in enumerate(FAULTS)]
)
def test_a_planted_fault_is_found_by_its_rule(rule, change, tmp_path):
    assert rule in found(tmp_path, change)


def test_without_a_prefix_cache_nothing_is_reused(tmp_path):
    log = [{**HEADER, "prefix_cache": False}, *copy.deepcopy(STATIC[1:])]
    log[0].update(scheduler="static", max_batch=2, blocks=8)
    assert check_serving(written(tmp_path, log)).findings == ()


def test_rules_of_vllm_do_not_hold_for_other_schedulers(tmp_path):
    assert found(tmp_path, in_header(scheduler="other")) == []


# A static batch of two, then one: blocks for all tokens are reserved, prompts come before decodes.
STATIC = [
    {**HEADER, "scheduler": "static", "max_batch": 2, "blocks": 8},
    request(0, 0.0, 6, 2, []),
    request(1, 0.0, 4, 3, []),
    request(2, 0.0, 1, 1, []),
    step(0, [[0, 0, 6, 1], [1, 0, 2, 0]], allocated={"0": [0, 1], "1": [2, 3]}, waiting=[2]),
    step(1, [[1, 2, 2, 1]], waiting=[2]),
    step(2, [[0, 6, 1, 2], [1, 4, 1, 2]], finished=[0], freed={"0": [1, 0]}, waiting=[2]),
    step(3, [[1, 5, 1, 3]], finished=[1], freed={"1": [3, 2]}, waiting=[2]),
    step(4, [[2, 0, 1, 1]], allocated={"2": [4]}, finished=[2], freed={"2": [4]}),
]


def test_a_consistent_log_of_a_static_batch(tmp_path):
    assert check_serving(written(tmp_path, STATIC)).findings == ()


def test_a_static_batch_takes_none_in_while_others_run(tmp_path):
    log = copy.deepcopy(STATIC)
    log[7]["scheduled"].append([2, 0, 1, 1])
    log[7].update(allocated={"2": [4]}, finished=[1, 2], freed={"1": [3, 2], "2": [4]}, waiting=[])
    log.pop()
    assert [one.rule for one in check_serving(written(tmp_path, log)).findings] == [
        "batch-end",
        "running-first",
    ]


def test_a_static_batch_preempts_none(tmp_path):
    log = copy.deepcopy(STATIC)
    log[7].update(preempted=[1], freed={"1": [3, 2]})
    assert "preemption" in [one.rule for one in check_serving(written(tmp_path, log)).findings]


# Two engines, and a closed loop of two requests.
LOOP = [
    {**HEADER, "engines": 2, "closed_loop": 2},
    request(0, 0.0, 2, 1, []),
    {**request(1, 0.0, 3, 1, []), "engine": 1},
    step(0, [[0, 0, 2, 1]], allocated={"0": [0]}, finished=[0], freed={"0": [0]}),
    {**step(0, [[1, 0, 3, 1]], allocated={"1": [0]}, finished=[1], freed={"1": [0]}), "engine": 1, "end_ns": 150.0},
    {**request(2, 100.0, 2, 1, [])},
    step(1, [[2, 0, 2, 1]], allocated={"2": [1]}, finished=[2], freed={"2": [1]}),
]  # fmt: skip


def test_a_consistent_log_of_two_engines_in_a_closed_loop(tmp_path):
    assert check_serving(written(tmp_path, LOOP)).findings == ()


@pytest.mark.parametrize(
    ("at", "changed", "rule"),
    [
        (5, {"arrival_ns": 150.0}, "closed-loop"),
        (0, {"closed_loop": 1}, "closed-loop"),
        (4, {"scheduled": [[0, 2, 1, 1]], "allocated": {}, "finished": [], "freed": {}}, "engine"),
        (4, {"engine": 0}, "overlap"),
    ],
)
def test_faults_of_loops_and_engines(at, changed, rule, tmp_path):
    log = copy.deepcopy(LOOP)
    log[at].update(changed)
    assert rule in [one.rule for one in check_serving(written(tmp_path, log)).findings]


# Asynchronous scheduling: a step is formed when the one before it begins. Request 0 has its place until step 1 ends.
AHEAD = [
    {**HEADER, "async_scheduling": True, "max_batch": 2},
    request(0, 0.0, 3, 2, []),
    request(1, 0.0, 2, 4, []),
    step(0, [[0, 0, 3, 1], [1, 0, 2, 1]], formed_ns=0.0, allocated={"0": [0], "1": [1]}),
    request(2, 50.0, 2, 1, []),
    step(1, [[0, 3, 1, 2], [1, 2, 1, 2]], formed_ns=0.0, finished=[0], freed={"0": [0]}),
    step(2, [[1, 3, 1, 3]], formed_ns=100.0, waiting=[2]),
    step(3, [[1, 4, 1, 4], [2, 0, 2, 1]], formed_ns=200.0, allocated={"1": [2], "2": [3]}, finished=[1, 2],
         freed={"1": [2, 1], "2": [3]}),
]  # fmt: skip
# Two engines that meet: engine 1 has nothing to compute in step 1.
MEETING = [
    {**HEADER, "engines": 2, "lockstep": True},
    request(0, 0.0, 2, 2, []),
    {**request(1, 0.0, 2, 1, []), "engine": 1},
    step(0, [[0, 0, 2, 1]], allocated={"0": [0]}),
    step(0, [[1, 0, 2, 1]], engine=1, allocated={"1": [0]}, finished=[1], freed={"1": [0]}),
    step(1, [[0, 2, 1, 2]], finished=[0], freed={"0": [0]}),
    step(1, [], engine=1),
]


@pytest.mark.parametrize("log", [AHEAD, MEETING])
def test_consistent_logs_of_steps_formed_ahead_and_of_engines_that_meet(log, tmp_path):
    assert check_serving(written(tmp_path, log)).findings == ()


@pytest.mark.parametrize(
    ("log", "at", "changed", "rule"),
    [
        (AHEAD, 6, {"formed_ns": 150.0}, "formed"),
        (AHEAD, 7, {"formed_ns": 300.0}, "idle"),  # it could have been formed ahead
        (AHEAD, 5, {"scheduled": [[0, 3, 1, 2], [2, 0, 2, 1]]}, "early"),
        (AHEAD, 6, {"scheduled": [[0, 4, 1, 3], [1, 3, 1, 3]]}, "finish"),
        (AHEAD, 6, {"scheduled": [[1, 3, 1, 3], [2, 0, 2, 1]], "allocated": {"2": [2]}, "waiting": []}, "batch"),
        (AHEAD, 6, {"waiting": []}, "queue"),
        (AHEAD, 6, {"left": {"1": [1]}}, "preemption"),
        (AHEAD, 0, {"async_scheduling": False}, "formed"),
        (MEETING, 6, {"start_ns": 101.0}, "meet"),
        (MEETING, 6, {"end_ns": 201.0}, "meet"),
        (MEETING, 6, {"step": 2, "start_ns": 200.0, "end_ns": 300.0}, "meet"),
        (MEETING, 6, {"step": 2, "start_ns": 200.0, "end_ns": 300.0}, "empty"),
        (MEETING, 0, {"lockstep": False}, "empty"),
        (MEETING, 6, {"scheduled": [[0, 3, 1, 3]]}, "engine"),
        (MEETING, 4, {"scheduled": [], "allocated": {}, "finished": [], "freed": {}}, "idle"),
    ],
)  # fmt: skip
def test_faults_of_steps_formed_ahead_and_of_engines_that_meet(log, at, changed, rule, tmp_path):
    other = copy.deepcopy(log)
    other[at].update(changed)
    assert rule in [one.rule for one in check_serving(written(tmp_path, other)).findings]


def test_a_finding_says_its_line_and_only_so_many_are_told(tmp_path):
    log = copy.deepcopy(LOG)
    log[STEP[4]].update(start_ns=399.0, end_ns=398.0)
    report = check_serving(written(tmp_path, log), 1)
    assert (report.count, len(report.findings)) == (2, 1)
    assert report.findings[0].line == STEP[4] + 1
    assert report.findings[0].message.startswith(f"line {STEP[4] + 1}: step 4 of engine 0: overlap: ")


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda log: log.clear(), "form log.jsonl"),
        (in_header(serving_log=2), "form log.jsonl:1 serving_log"),
        (in_header(blocks=0), "form log.jsonl:1"),
        (lambda log: log[0].pop("blocks"), "form log.jsonl:1"),
        (lambda log: log[1].pop("engine"), "form log.jsonl:2"),
        (in_request(0, engine=1), "form log.jsonl:2"),
        (in_step(0, scheduled=[[7, 0, 6, 1]]), "form log.jsonl:4"),
        (in_step(0, scheduled=[[0, 0, 6]]), "form log.jsonl:4"),
        (in_step(0, start_ns="now"), "form log.jsonl:4"),
    ],
)
def test_what_is_no_log_is_refused(change, expected, tmp_path):
    log = copy.deepcopy(LOG)
    change(log)
    with refused(expected):
        check_serving(written(tmp_path, log))


def test_the_command_finds_out_what_a_log_is_of(tmp_path):
    path = written(tmp_path, LOG)
    assert is_serving_log(path)
    status, out, err = call("check", path)
    assert (status, err) == (0, "")
    assert "consistent; requests 4, steps 11, tokens 34, findings 0" in out
    log = copy.deepcopy(LOG)
    log[STEP[3]]["allocated"] = {"0": [1]}
    status, out, err = call("check", written(tmp_path, log, "other.jsonl.gz"), "--json", "-")
    assert (status, err) == (1, "")
    report = json.loads(out)
    assert (report["ok"], report["requests"]) == (False, 4)
    assert report["findings"][0]["rule"] == "in-use"


# ---- Logs of the serving engine on random requests: the checker accepts them, and finds a fault in each changed log


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
