"""Simulated runs of validation/serving.py: dense models on one card or two, and experts on two engines."""

from __future__ import annotations

import csv
import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ndpsim.config import load_hardware
from ndpsim.moe import Attention, MoeShape, load_model
from ndpsim.processors import Processors
from ndpsim.processors.fitted import fitted_values
from ndpsim.processors.operations import MixedStep
from ndpsim.serving.engine import Arrivals, Engine
from ndpsim.serving.kv import KvCache
from ndpsim.serving.scheduler import Chunk, Limits, Scheduler, scheduler_named
from ndpsim.serving.sequence import Sequence as Served
from ndpsim.workloads import Requests

MEASURED = Path(__file__).parent / "serving_measured"
PART, FAMILY = "rtx-pro-6000-blackwell", "blackwell"
BLOCK_TOKENS = 16
LIMITS = Limits(sequences=128, tokens=2048)  # of each engine, in all runs
MEMORY_SHARE = 0.9  # vLLM's default of gpu_memory_utilization
BYTES = 2  # of a weight, an activation and a value of the KV cache: bfloat16
WAITING_WEIGHT = 4  # of a waiting request beside a running one, where vLLM chooses an engine


class Case(NamedTuple):
    """What is assumed of a run.

    Attributes:
        title: in words.
        memory_tbps: bandwidth of a card's memory.
        link_gbps, link_latency_us: between two cards, each way, and the time of a transfer besides its bytes.
    """

    title: str
    memory_tbps: float = 1.597
    link_gbps: float = math.inf
    link_latency_us: float = 0.0

    def moved_ns(self, size: float) -> float:
        """The time of this many bytes over the link."""
        return self.link_latency_us * 1e3 + size / self.link_gbps

    @property
    def card(self) -> Processors:
        """The card."""
        return card(self.memory_tbps)


@dataclass(frozen=True)
class Run:
    """A recorded run.

    Attributes:
        name: of its files; `title` in words.
        part: the model, or with tensor parallelism the half of it that a card has.
        cases: what is assumed, in several ways.
        cards: of tensor parallelism.
        engines: of data parallelism: each has its own requests, and half of the experts.
    """

    name: str
    title: str
    part: MoeShape
    cases: tuple[Case, ...]
    cards: int = 1
    engines: int = 1


class Outcome(NamedTuple):
    """A simulated run: its requests in order of arrival, ends of steps, and sequences that run in them."""

    sequences: Sequence[Served]
    end_ns: np.ndarray
    running: np.ndarray


def dense_model(
    name: str, layers: int, hidden: int, intermediate: int, heads: Sequence[int], vocabulary: int
) -> MoeShape:
    """A model without experts, all of whose layers are dense.

    `heads`: of queries, of keys and values, and their size.
    """
    queries, keys, size = heads
    return MoeShape(
        name=name,
        family="dense",
        source="",
        hidden=hidden,
        expert_intermediate=intermediate,
        layers=layers,
        moe_layers=0,
        dense_layers=tuple(range(layers)),
        dense_intermediate=intermediate,
        routed_experts=1,
        experts_per_token=1,
        shared_experts=0,
        shared_intermediate=0,
        hidden_act="silu",
        attention=Attention(queries, keys, size, size),
        vocabulary=vocabulary,
    )


# The authors' configuration of the card, and the part's.
CARDS = (Case("1597 GB/s"), Case("1792 GB/s", 1.792))
# What the authors' simulator has, what 16 lanes of PCIe 5 carry without delay, and a link that costs nothing.
LINKS = (
    Case("link of 16 GB/s, 20 us", link_gbps=16.0, link_latency_us=20.0),
    Case("64 GB/s, 0 us", link_gbps=64.0),
    Case("no link"),
)
# config.json of meta-llama/Llama-3.1-8B and of Qwen/Qwen3-32B.
RUNS = (
    Run(
        "llama-3.1-8b",
        "Llama-3.1-8B on one card",
        dense_model("llama-3.1-8b", 32, 4096, 14336, (32, 8, 128), 128256),
        CARDS,
    ),
    Run(
        "qwen3-32b-tp2",
        "Qwen3-32B, tensor parallel on two cards",
        dense_model("half of qwen3-32b", 64, 5120, 25600 // 2, (64 // 2, 8 // 2, 128), 151936 // 2),
        LINKS,
        cards=2,
    ),
    Run(
        "qwen3-30b-a3b-dp2",
        "Qwen3-30B-A3B, data and expert parallel on two cards",
        load_model("qwen3-30b-a3b"),
        LINKS,
        engines=2,
    ),
)


def table(name: str) -> list[dict[str, str]]:
    """The rows of a measured table; those of requests by when the engine got them."""
    with (MEASURED / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(line for line in file if not line.startswith("#")))
    return sorted(rows, key=lambda row: float(row.get("queued_s", 0)))


def column(rows: Sequence[dict[str, str]], name: str) -> np.ndarray:
    """A column as numbers."""
    return np.array([float(row[name]) for row in rows])


@functools.cache
def card(memory_tbps: float) -> Processors:
    """The card's part, with the values that its family was fitted to; experts of a layer are one call."""
    fitted = [f"gpu.{key}={value:g}" for key, value in fitted_values("gpu", FAMILY).items()]
    sets = [f"gpu.part={PART}", f"gpu.memory_tbps={memory_tbps}", "gpu.expert_calls=fused", *fitted]
    return Processors(load_hardware("trimoe", sets))


class DenseSteps:
    """Steps of a dense model on one card, or on two that add up their halves twice a layer."""

    def __init__(self, run: Run, case: Case) -> None:
        self._part, self._cards, self._case, self._clock_ns = run.part, run.cards, case, 0.0

    @property
    def clock_ns(self) -> float:
        """When the last step has ended, or was waited until."""
        return self._clock_ns

    def wait_until(self, time_ns: float) -> None:
        """Nothing is to be computed until then."""
        self._clock_ns = max(self._clock_ns, time_ns)

    def run(self, number: int, chunks: Sequence[Chunk]) -> None:
        """Run a step."""
        step = step_of(chunks)
        time = self._case.card.step_time(self._part, step)
        layer_ns = time.attention_ns + time.dense_layer_ns
        # Each card sends and receives as many bytes as the activations of the step have.
        if self._cards > 1:
            layer_ns += 2 * self._case.moved_ns(step.tokens * self._part.hidden * BYTES)
        self._clock_ns += self._part.layers * layer_ns + time.head_ns


def step_of(chunks: Sequence[Chunk]) -> MixedStep:
    """New tokens and context of each chunk."""
    return MixedStep(tuple((one.tokens, one.sequence.computed + one.tokens) for one in chunks))


class TwoEngines:
    """Engines that meet in the experts of every layer: each has its requests, and half of the experts.

    An engine without requests computes its experts all the same. Requests go to the engine with the least
    load, as vLLM's client has it: waiting requests count four times.
    """

    def __init__(self, run: Run, case: Case, requests: Requests) -> None:
        self._model, self._case, self._requests = run.part, case, requests
        self._engines = [scheduler_of(run) for _ in range(run.engines)]
        self._sequences: list[Served] = []

    def run(self) -> Outcome:
        """Serve all requests."""
        clock_ns, ends, running = 0.0, [], []
        while True:
            self._arrivals(clock_ns)
            steps = [engine.schedule() for engine in self._engines]
            if any(steps):
                clock_ns += self._step_ns(steps)
                ends.append(clock_ns)
                running.append(sum(len(engine.running) for engine in self._engines))
                for engine, chunks in zip(self._engines, steps, strict=True):
                    finish(engine, chunks, clock_ns)
            elif len(self._sequences) < len(self._requests):
                clock_ns = float(self._requests.arrival_ns[len(self._sequences)])
            else:
                return Outcome(self._sequences, np.array(ends), np.array(running))

    def _arrivals(self, time_ns: float) -> None:
        requests = self._requests
        for number in range(len(self._sequences), len(requests)):
            if requests.arrival_ns[number] > time_ns:
                return
            lengths = int(requests.prompt_tokens[number]), int(requests.output_tokens[number])
            sequence = Served(number, *lengths, float(requests.arrival_ns[number]))
            self._sequences.append(sequence)
            loads = [WAITING_WEIGHT * len(one.waiting) + len(one.running) for one in self._engines]
            self._engines[loads.index(min(loads))].waiting.append(sequence)

    def _step_ns(self, steps: Sequence[Sequence[Chunk]]) -> float:
        """Layer by layer the slower attention, tokens to the other card, all experts, and results back."""
        model = self._model
        times = [self._case.card.step_time(model, step_of(chunks)) for chunks in steps if chunks]
        tokens = [sum(one.tokens for one in chunks) for chunks in steps]
        moved_ns = 2 * self._case.moved_ns(max(tokens) * model.hidden * BYTES)
        gate_ns = max(time.attention_ns + time.router_ns for time in times)
        layer_ns = gate_ns + moved_ns + experts_ns(self._case, model, sum(tokens), len(steps))
        return model.layers * layer_ns + max(time.head_ns for time in times)


def finish(engine: Scheduler, chunks: Sequence[Chunk], end_ns: float) -> None:
    """Count what a step has computed, and let sequences go that have all of their tokens."""
    for chunk in chunks:
        sequence = chunk.sequence
        sequence.computed += chunk.tokens
        if sequence.missing:
            continue
        sequence.produced += 1
        if sequence.first_token_ns < 0:
            sequence.first_token_ns = end_ns
        sequence.last_token_ns = end_ns
        if sequence.is_over:
            engine.finish(sequence)


@functools.cache
def experts_ns(case: Case, model: MoeShape, tokens: int, cards: int) -> float:
    """A layer's experts of a card, if each token chooses evenly: the mean over what an expert gets."""
    gpu, share = case.card.gpu, model.experts_per_token / model.routed_experts
    loads = np.arange(1, tokens + 1)
    ways = [math.lgamma(tokens + 1) - math.lgamma(n + 1) - math.lgamma(tokens - n + 1) for n in loads]
    chances = np.exp(np.array(ways) + loads * math.log(share) + (tokens - loads) * math.log1p(-share))
    likely = chances > 1e-9
    times = [gpu.expert_time(model.expert, int(load)).time_ns for load in loads[likely]]
    return gpu.call_ns + model.routed_experts / cards * float(chances[likely] @ np.array(times))


def scheduler_of(run: Run) -> Scheduler:
    """vLLM's, with the blocks of the KV cache that a card has: what vLLM may use, without the weights."""
    part = run.part
    attention = part.attention
    assert isinstance(attention, Attention)
    assert part.vocabulary is not None
    size, hidden = attention.head_size, part.hidden
    dense = 2 * hidden * (attention.heads + attention.kv_heads) * size + 3 * hidden * part.dense_intermediate
    weights = part.layers * dense + part.expert_parameters // run.engines + 2 * part.vocabulary * hidden
    token_bytes = 2 * part.layers * attention.kv_heads * size * BYTES
    room = MEMORY_SHARE * card(CARDS[0].memory_tbps).gpu.memory_bytes - weights * BYTES
    cache = KvCache(int(room / (token_bytes * BLOCK_TOKENS)), BLOCK_TOKENS)
    return scheduler_named("vllm")(cache, LIMITS)


def served(run: Run, case: Case) -> Outcome:
    """The run, simulated: requests come when vLLM's engine got them."""
    rows = table(run.name)
    requests = Requests(
        column(rows, "queued_s") * 1e9,
        column(rows, "input_tokens").astype(np.int64),
        column(rows, "output_tokens").astype(np.int64),
        tuple(row["id"] for row in rows),
    )
    if run.engines > 1:
        return TwoEngines(run, case, requests).run()
    engine = Engine(
        scheduler_of(run),
        DenseSteps(run, case),
        Arrivals(requests, lambda number: ()),
        lambda sequence: None,
        lambda step: None,
    )
    engine.run()
    history = engine.history
    return Outcome(engine.sequences, np.array(history.end_ns), np.array(history.running))
