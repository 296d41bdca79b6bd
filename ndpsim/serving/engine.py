"""The loop of an engine: arrivals, steps, tokens."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from collections.abc import Sequence as Several
from dataclasses import dataclass, field
from typing import NamedTuple

from ndpsim.errors import InputError
from ndpsim.serving.scheduler import Chunk, Scheduler
from ndpsim.serving.sequence import Sequence
from ndpsim.serving.steps import Steps
from ndpsim.workloads import Requests


class DoneStep(NamedTuple):
    """A step of an engine that is over.

    Attributes:
        computed: tokens of each chunk's sequence that were in the KV cache before.
        scheduler: of the engine, with what waits and runs behind the step.
        finished: those that have all of their tokens.
    """

    number: int
    start_ns: float
    end_ns: float
    chunks: Several[Chunk]
    computed: Several[int]
    finished: Several[Sequence]
    scheduler: Scheduler


@dataclass
class History:
    """Events of the run step by step: arrays with one entry a step, and the times between tokens.

    Attributes:
        start_ns, end_ns: of each step.
        running: sequences that have blocks.
        tokens: that it computes; `batch`: sequences of which it computes some.
        kv_blocks: in use.
        between_ns: from each output token to the next one of the same request.
    """

    start_ns: array[float] = field(default_factory=lambda: array("d"))
    end_ns: array[float] = field(default_factory=lambda: array("d"))
    running: array[int] = field(default_factory=lambda: array("q"))
    batch: array[int] = field(default_factory=lambda: array("q"))
    tokens: array[int] = field(default_factory=lambda: array("q"))
    kv_blocks: array[int] = field(default_factory=lambda: array("q"))
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
        """When the next one arrives; None: not before another ends, or never."""
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


class Engine:
    """Serves requests on one machine.

    Args:
        arrived, done: are told of each sequence that arrives, and of each step.

    Attributes:
        sequences: all that have arrived, in order.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        steps: Steps,
        arrivals: Arrivals,
        arrived: Callable[[Sequence], None],
        done: Callable[[DoneStep], None],
    ) -> None:
        self._scheduler, self._steps, self._arrivals = scheduler, steps, arrivals
        self._arrived, self._done = arrived, done
        self.sequences: list[Sequence] = []
        self.history = History()
        self._number = 0

    def run(self) -> None:
        """Serve until no request is left.

        Raises:
            InputError: the scheduler leaves requests waiting for ever.
        """
        scheduler, steps = self._scheduler, self._steps
        while True:
            self._take_in(steps.clock_ns)
            scheduler.kv.new_step()
            chunks = scheduler.schedule() if scheduler.running or scheduler.waiting else []
            if chunks:
                self._step(chunks)
            elif self._arrivals.next_ns is not None:
                steps.wait_until(self._arrivals.next_ns)
            elif scheduler.waiting or scheduler.running:
                problem = f"schedules nothing, and {len(scheduler.waiting)} requests wait"
                raise InputError(problem, "no-progress", key=f"scheduler {scheduler.name}")
            else:
                return

    def _take_in(self, time_ns: float) -> None:
        for sequence in self._arrivals.until(time_ns):
            self.sequences.append(sequence)
            self._scheduler.waiting.append(sequence)
            self._arrived(sequence)

    def _step(self, chunks: Several[Chunk]) -> None:
        """Run a step, and see what has come of it."""
        scheduler, start_ns = self._scheduler, self._steps.clock_ns
        for chunk in chunks:
            if chunk.sequence.admitted_ns < 0:
                chunk.sequence.admitted_ns = start_ns
        changes = scheduler.kv.changes
        if changes.to_gpu or changes.to_host:
            self._steps.move_blocks(tuple(changes.to_gpu.values()), tuple(changes.to_host.values()))
        self._steps.run(self._number, chunks)
        end_ns, computed = self._steps.clock_ns, [one.sequence.computed for one in chunks]
        running = len(scheduler.running)
        used = scheduler.kv.blocks - scheduler.kv.free
        finished = [one.sequence for one in chunks if self._produces(one, end_ns)]
        for sequence in finished:
            scheduler.finish(sequence)
            self._arrivals.ended()
        history, tokens = self.history, sum(one.tokens for one in chunks)
        history.start_ns.append(start_ns)
        history.end_ns.append(end_ns)
        counts = (history.running, running), (history.batch, len(chunks)), (history.tokens, tokens)
        for values, count in (*counts, (history.kv_blocks, used)):
            values.append(count)
        self._done(DoneStep(self._number, start_ns, end_ns, chunks, computed, finished, scheduler))
        self._number += 1

    def _produces(self, chunk: Chunk, end_ns: float) -> bool:
        """Count what a chunk has computed, and its token; returns whether that was the last one."""
        sequence = chunk.sequence
        sequence.computed += chunk.tokens
        if sequence.missing:
            return False
        sequence.produced += 1
        if sequence.first_token_ns < 0:
            sequence.first_token_ns = end_ns
        else:
            self.history.between_ns.append(end_ns - sequence.last_token_ns)
        sequence.last_token_ns = end_ns
        return sequence.is_over
