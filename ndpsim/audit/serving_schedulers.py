"""Rules of the schedulers `vllm` and `static` for a log of `ndpsim serve`.

Source of the rules of vLLM: its engine V1, `Scheduler.schedule` in vllm/v1/core/sched/scheduler.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ndpsim.audit.schedule_rules import Fault
from ndpsim.audit.serving_blocks import BlockPool, RoomLine, Served, numbers_of

BlocksOf = Mapping[Served, Sequence[int]]


@dataclass(frozen=True)
class LogLimits:
    """The limits in the first line of a log; see docs/serving.md."""

    scheduler: str
    engines: int
    block_tokens: int
    blocks: int
    max_batch: int
    max_tokens: int
    prefix_cache: bool
    closed_loop: int | None
    preemption: str = "recompute"
    async_scheduling: bool = False
    lockstep: bool = False
    room_bytes: int | None = None
    block_bytes: int = 0
    expert_bytes: int = 0
    state_bytes: int = 0
    host_bytes: int | None = None


class Scheduled(NamedTuple):
    """A request in a step.

    Attributes:
        before: its tokens in the KV cache.
        tokens: the number of tokens that are computed.
        produced: output tokens that it has after the step.
    """

    request: Served
    before: int
    tokens: int
    produced: int


@dataclass(frozen=True)
class StepLine:
    """A step, from its line (docs/serving.md); mappings are in the order of the actions."""

    rows: Sequence[Scheduled]
    preempted: Sequence[Served]
    finished: Sequence[Served]
    allocated: BlocksOf
    cached: BlocksOf
    freed: BlocksOf
    to_host: Mapping[Served, int]
    to_gpu: Mapping[Served, int]
    left: BlocksOf = field(default_factory=dict)
    rooms: Sequence[RoomLine] = ()

    @property
    def touched(self) -> list[Served]:
        """All requests that get blocks or are computed."""
        return list(dict.fromkeys((*self.allocated, *self.cached, *(row.request for row in self.rows))))

    @property
    def taken(self) -> list[Served]:
        """The requests among them that waited until now."""
        return [request for request in self.touched if request.state == "waiting"]


@dataclass(frozen=True)
class EngineState:
    """The state of an engine before a step, see `ndpsim.audit.serving_engine.EngineCheck`."""

    limits: LogLimits
    blocks: BlockPool
    waiting: Sequence[Served]
    running: Sequence[Served]


class SchedulerRules:
    """Rules of an unknown scheduler: everything is allowed."""

    def most_blocks(self, engine: EngineState, request: Served, tokens: int) -> int:
        """Maximum number of blocks of a request with this number of tokens in the cache."""
        return engine.blocks.needed(max(tokens, request.whole))

    def filled(self, request: Served, tokens: int) -> int:
        """Tokens of a request that others can reuse after the step has computed this number of tokens."""
        return tokens

    def before(self, engine: EngineState, step: StepLine) -> Iterator[Fault]:
        """Faults of preemptions, before they take effect."""
        return iter(())

    def after(self, engine: EngineState, step: StepLine) -> Iterator[Fault]:
        """Faults of the scheduled requests, after preempted ones have left."""
        return iter(())


class VllmRules(SchedulerRules):
    """Continuous batching: running requests first, then waiting ones while there is room."""

    def most_blocks(self, engine: EngineState, request: Served, tokens: int) -> int:

        return engine.blocks.needed(tokens)

    def before(self, engine: EngineState, step: StepLine) -> Iterator[Fault]:
        """The last running requests are preempted, and only if blocks are lacking."""
        victims = list(step.preempted)
        if not victims:
            return
        last_ones = list(engine.running[::-1][: len(victims)])
        if victims != last_ones:
            order = numbers_of(last_ones)
            yield "preemption", f"preempts {numbers_of(victims)}; the last running are {order}"
            return
        blocks, last = engine.blocks, victims[-1]
        free = blocks.free + sum(map(blocks.own, victims[:-1]))
        allocated = sum(map(len, step.allocated.values()))
        budget = engine.limits.max_tokens - sum(row.tokens for row in step.rows)
        own = blocks.needed(last.computed + min(last.missing, budget)) - len(last.blocks)
        if allocated + (0 if last.is_over else max(own, 0)) <= free:
            yield "preemption", f"preempts request {last.number}, and {free} blocks are free for {allocated}"

    def after(self, engine: EngineState, step: StepLine) -> Iterator[Fault]:
        """Faults in the scheduled requests, their order and their tokens."""
        yield from first_come_faults(engine, step)
        running = [request for request in engine.running if not request.is_over]
        old = [row.request for row in step.rows if row.request.state == "running"]
        if [row.request for row in step.rows[: len(old)]] != running[: len(old)]:
            order = numbers_of(running)
            yield "running-first", f"has not the running requests first, in their order {order}"
        budget = engine.limits.max_tokens
        for request, _, tokens, _ in step.rows:
            lacking = request.missing - len(step.cached.get(request, ())) * engine.limits.block_tokens
            if 0 < tokens < min(lacking, budget):
                who = f"request {request.number}"
                yield "chunk", f"{who} computes {tokens} of {lacking} tokens, and {budget} are left"
            budget -= tokens
        if budget <= 0:
            return
        if len(old) < len(running):
            yield "idle", f"request {running[len(old)].number} runs, and is not in it"
        if step.preempted and step.taken:
            yield "preemption", "takes a waiting request in, and preempts another"
        elif not step.preempted:
            yield from self._idle(engine, step, budget)

    def _idle(self, engine: EngineState, step: StepLine, budget: int) -> Iterator[Fault]:
        """A fault if a request waits although there is a place, tokens and blocks for it."""
        taken, blocks = len(step.taken), engine.blocks
        if taken >= len(engine.waiting) or len(engine.running) + taken >= engine.limits.max_batch:
            return
        request = engine.waiting[taken]
        if step.cached or (blocks.findable(request) and not request.on_host):
            return  # the log does not tell which of the reused blocks were free
        allocated = sum(map(len, step.allocated.values()))
        if blocks.needed(request.computed + min(request.missing, budget)) <= blocks.free - allocated:
            yield "idle", f"request {request.number} waits, and there is room for it"


class StaticRules(SchedulerRules):
    """Static batches: no request is admitted while others run, and none is preempted."""

    def filled(self, request: Served, tokens: int) -> int:
        # A block can be reused as soon as it is reserved: requests that reuse it come later.
        return request.whole

    def before(self, engine: EngineState, step: StepLine) -> Iterator[Fault]:
        """Nothing is preempted."""
        if step.preempted:
            yield "preemption", f"preempts request {step.preempted[0].number}, and a batch runs to its end"

    def after(self, engine: EngineState, step: StepLine) -> Iterator[Fault]:
        """A new batch begins when the last one has ended, and prompts come before decodes."""
        yield from first_come_faults(engine, step)
        if step.taken and engine.running:
            number = step.taken[0].number
            yield "batch-end", f"takes request {number} in, and request {engine.running[0].number} runs"
        decodes = {row.request.produced > 0 for row in step.rows}
        if len(decodes) > 1:
            yield "running-first", "computes prompts and decodes together"


def first_come_faults(engine: EngineState, step: StepLine) -> Iterator[Fault]:
    """First come, first served: waiting requests are admitted in their order."""
    taken = step.taken
    if taken != list(engine.waiting[: len(taken)]):
        due = numbers_of(engine.waiting[: len(taken)])
        yield "first-come", f"takes in {numbers_of(taken)}, and {due} are the first that wait"


_BY_NAME: dict[str, SchedulerRules] = {"vllm": VllmRules(), "static": StaticRules()}


def rules_of(scheduler: str) -> SchedulerRules:
    """The rules of a scheduler, or `SchedulerRules` if it is not known here."""
    return _BY_NAME.get(scheduler, SchedulerRules())
