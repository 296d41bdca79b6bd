"""The loop of serving engines: arrivals, steps, tokens.

As in vLLM 0.19 (`EngineCore.step_with_batch_queue` in vllm/v1/engine/core.py, and
vllm/v1/core/sched/async_scheduler.py), an engine may form its next step when a step begins, which is
asynchronous scheduling. That step knows who has arrived until then, and has no sequence whose last token is
being computed; such a sequence keeps its place and its blocks until its step has ended. If nothing can be
formed ahead, the next step is formed when it begins.

Several engines compute their steps together, and meet in them. One that has nothing to compute takes part
with an empty step.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Sequence as Several
from dataclasses import dataclass, field
from typing import NamedTuple

from ndpsim.base.errors import InputError
from ndpsim.inference.serving.kv import Changes, RoomUse
from ndpsim.inference.serving.scheduler import Chunk, Scheduler
from ndpsim.inference.serving.sequence import Sequence
from ndpsim.inference.serving.steps import Steps
from ndpsim.workload.requests import Requests

_WAITING_WEIGHT = 4  # of a waiting request beside a running one in the load of an engine


@dataclass(frozen=True)
class FormedStep:
    """A step that a scheduler has formed.

    Attributes:
        formed_ns: the time at which it was formed.
        preempted: sequences that gave up their blocks for it.
        waiting: sequences that wait behind it, where steps are observed.
        changes: the changes of blocks.
        left: by request, blocks that were taken away when nothing could be formed ahead.
        rooms: use of the room that blocks share with experts: an entry for each try to form a step since the
            last one was formed.
    """

    formed_ns: float
    chunks: Several[Chunk] = ()
    preempted: Several[Sequence] = ()
    waiting: Several[Sequence] = ()
    changes: Changes = field(default_factory=Changes)
    left: Mapping[int, list[int]] = field(default_factory=dict)
    rooms: Several[RoomUse] = ()


class DoneStep(NamedTuple):
    """A step of an engine that is over.

    Attributes:
        formed: what was computed.
        finished: those that have all of their tokens.
    """

    number: int
    engine: int
    start_ns: float
    end_ns: float
    formed: FormedStep
    finished: Several[Sequence]


@dataclass
class History:
    """Events of the run step by step: arrays with one entry a step, and the times between tokens.

    Attributes:
        start_ns, end_ns: the begin and the end of each step.
        running: sequences that have blocks, over all engines.
        tokens: the tokens that it computes; `batch`: the sequences of which it computes some.
        kv_blocks: the blocks in use.
        residents: experts in the GPU's memory, or on their way there; empty: no policy runs.
        between_ns: from each output token to the next one of the same request.
    """

    start_ns: array[float] = field(default_factory=lambda: array("d"))
    end_ns: array[float] = field(default_factory=lambda: array("d"))
    running: array[int] = field(default_factory=lambda: array("q"))
    batch: array[int] = field(default_factory=lambda: array("q"))
    tokens: array[int] = field(default_factory=lambda: array("q"))
    kv_blocks: array[int] = field(default_factory=lambda: array("q"))
    residents: array[int] = field(default_factory=lambda: array("q"))
    between_ns: array[float] = field(default_factory=lambda: array("d"))


class Arrivals:
    """Requests as they arrive, in order.

    In a closed loop the next one arrives when one ends.
    """

    def __init__(self, requests: Requests, hashes: Callable[[int], Several[int]]) -> None:
        self._requests, self._hashes = requests, hashes
        self._next, self._ended = 0, 0

    @property
    def next_ns(self) -> float | None:
        """The arrival of the next request; None: it waits for the end of another, or there is none."""
        if self._next == len(self._requests) or self._next >= self._allowed:
            return None
        return float(self._requests.arrival_ns[self._next])

    @property
    def _allowed(self) -> int:
        limit = self._requests.closed_loop
        return len(self._requests) if limit is None else limit + self._ended

    def until(self, time_ns: float) -> Iterator[Sequence]:
        """Those that have arrived until then."""
        while self.next_ns is not None and self.next_ns <= time_ns:
            number, requests = self._next, self._requests
            self._next += 1
            yield Sequence(
                number,
                int(requests.prompt_tokens[number]),
                int(requests.output_tokens[number]),
                time_ns if requests.closed_loop is not None else float(requests.arrival_ns[number]),
                self._hashes(number),
            )

    def ended(self) -> None:
        """A request has ended."""
        self._ended += 1


class _Engine:
    """One engine: its scheduler, and the step that it computes next.

    Attributes:
        formed: the next step, if it has any chunk.
    """

    def __init__(self, scheduler: Scheduler, observed: bool) -> None:
        self.scheduler, self._observed = scheduler, observed
        self.formed: FormedStep | None = None
        self._left: Mapping[int, list[int]] = {}
        self._rooms: list[RoomUse] = []

    @property
    def load(self) -> int:
        """The load as vLLM counts it (`get_core_engine_for_request` in vllm/v1/engine/core_client.py)."""
        return _WAITING_WEIGHT * len(self.scheduler.waiting) + len(self.scheduler.running)

    @property
    def _waiting(self) -> tuple[Sequence, ...]:
        """Those that wait: as many as all requests, for which each step would take as long."""
        return tuple(self.scheduler.waiting) if self._observed else ()

    def form(self, time_ns: float) -> None:
        """Form the next step, if there is anything to compute."""
        scheduler, kv = self.scheduler, self.scheduler.kv
        kv.new_step()
        chunks = scheduler.schedule() if scheduler.running or scheduler.waiting else []
        kv.end_step()
        changes = kv.changes
        if changes.room is not None:
            self._rooms.append(changes.room)
        if not chunks:
            self._left = {**self._left, **changes.freed}
            return
        self.formed = FormedStep(
            time_ns, chunks, scheduler.preempted, self._waiting, changes, self._left, self._rooms
        )
        self._left, self._rooms = {}, []
        for chunk in chunks:
            if chunk.sequence.admitted_ns < 0:
                chunk.sequence.admitted_ns = time_ns

    def begin(self, time_ns: float) -> FormedStep:
        """Take the next step; its tokens count as computed from now on."""
        step = self.formed or FormedStep(time_ns, waiting=self._waiting)
        self.formed = None
        for chunk in step.chunks:
            chunk.sequence.computed += chunk.tokens
            chunk.sequence.produced += chunk.produces
        return step


class Engines:
    """Serve requests together: an engine for each scheduler.

    Args:
        ahead: a step is formed when the one before it begins: asynchronous scheduling.
        overhead_ns: of each step, before its work: the time of the program outside kernels.
        arrived, done: are told of each sequence that arrives, and of each step of an engine.
        observed: whether `done` looks at the sequences that wait.

    Attributes:
        sequences: all that have arrived, in order.
    """

    def __init__(
        self,
        schedulers: Several[Scheduler],
        steps: Steps,
        arrivals: Arrivals,
        arrived: Callable[[Sequence], None],
        done: Callable[[DoneStep], None],
        ahead: bool = False,
        observed: bool = True,
        overhead_ns: float = 0.0,
    ) -> None:
        self._overhead_ns = overhead_ns
        self._engines = [_Engine(scheduler, observed) for scheduler in schedulers]
        self._steps, self._arrivals, self._ahead = steps, arrivals, ahead
        self._arrived, self._done = arrived, done
        self.sequences: list[Sequence] = []
        self.history = History()
        self._number = 0

    def run(self) -> None:
        """Serve until no request is left.

        Raises:
            InputError: the scheduler leaves requests waiting for ever.
        """
        steps = self._steps
        while True:
            self._take_in(steps.clock_ns)
            for engine in self._engines:
                if engine.formed is None:
                    engine.form(steps.clock_ns)
            if any(engine.formed for engine in self._engines):
                self._step()
            elif self._arrivals.next_ns is not None:
                steps.wait_until(self._arrivals.next_ns)
            else:
                self._check_none_is_left()
                return

    def _check_none_is_left(self) -> None:
        for scheduler in (engine.scheduler for engine in self._engines):
            if scheduler.waiting or scheduler.running:
                problem = f"schedules nothing, and {len(scheduler.waiting)} requests wait"
                raise InputError(problem, "no-progress", key=f"scheduler {scheduler.name}")

    def _take_in(self, time_ns: float) -> None:
        for sequence in self._arrivals.until(time_ns):
            loads = [engine.load for engine in self._engines]
            sequence.engine = loads.index(min(loads))
            self.sequences.append(sequence)
            self._engines[sequence.engine].scheduler.waiting.append(sequence)
            self._arrived(sequence)

    def _step(self) -> None:
        """Run a step of all engines, and see what has come of it."""
        start_ns = self._steps.clock_ns
        current = [engine.begin(start_ns) for engine in self._engines]
        self._count(current)
        if self._ahead:
            for engine, step in zip(self._engines, current, strict=True):
                if step.chunks:
                    engine.form(start_ns)
        if self._overhead_ns:
            self._steps.wait_until(start_ns + self._overhead_ns)
        for step in current:
            moved = step.changes.to_gpu, step.changes.to_host
            if any(moved):
                self._steps.move_blocks(*(tuple(of_sequence.values()) for of_sequence in moved))
        self._steps.run(self._number, [step.chunks for step in current])
        end_ns = self._steps.clock_ns
        self.history.start_ns.append(start_ns)
        self.history.end_ns.append(end_ns)
        for number, (engine, step) in enumerate(zip(self._engines, current, strict=True)):
            engine.scheduler.kv.changes = step.changes
            finished = [chunk.sequence for chunk in step.chunks if self._produces(chunk, end_ns)]
            for sequence in finished:
                engine.scheduler.finish(sequence)
                self._arrivals.ended()
            self._done(DoneStep(self._number, number, start_ns, end_ns, step, finished))
        self._number += 1

    def _count(self, current: Several[FormedStep]) -> None:
        """Note what a step has, before the next one is formed."""
        history, chunks = self.history, [chunk for step in current for chunk in step.chunks]
        caches = [engine.scheduler.kv for engine in self._engines]
        history.running.append(sum(len(engine.scheduler.running) for engine in self._engines))
        history.batch.append(len(chunks))
        history.tokens.append(sum(chunk.tokens for chunk in chunks))
        history.kv_blocks.append(sum(kv.used for kv in caches))
        if (residents := self._steps.residents) is not None:
            history.residents.append(residents.now())

    def _produces(self, chunk: Chunk, end_ns: float) -> bool:
        """Note when a chunk's token comes, if it has one; returns whether that was the last one."""
        sequence = chunk.sequence
        if not chunk.produces:
            return False
        if sequence.first_token_ns < 0:
            sequence.first_token_ns = end_ns
        else:
            self.history.between_ns.append(end_ns - sequence.last_token_ns)
        sequence.last_token_ns = end_ns
        return sequence.is_over
