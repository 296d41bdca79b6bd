"""The base of schedulers: a scheduler forms the steps of an engine.

A scheduler is one file in `ndpsim.serving.schedulers`, with a class named in ``SCHEDULER``.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections import deque
from dataclasses import dataclass
from typing import ClassVar

from ndpsim.errors import unknown
from ndpsim.plugins import plugins_by_name
from ndpsim.serving.kv import KvCache
from ndpsim.serving.sequence import Sequence


class Chunk:
    """So many tokens of a sequence that a step computes, the next ones that it lacks.

    Attributes:
        computed: tokens of the sequence that are in the KV cache before.
        decodes: the token is the last output token until now.
        produces: an output token comes of it.
        output_tokens: of the sequence, when the step has ended.
    """

    __slots__ = ("computed", "decodes", "output_tokens", "produces", "sequence", "tokens")

    def __init__(self, sequence: Sequence, tokens: int) -> None:
        self.sequence, self.tokens, self.computed = sequence, tokens, sequence.computed
        self.decodes, self.produces = sequence.is_decoding, tokens == sequence.missing
        self.output_tokens = sequence.produced + self.produces


@dataclass(frozen=True)
class Limits:
    """Limits of a step: the number of sequences, and the number of all their tokens."""

    sequences: int
    tokens: int


class Scheduler(ABC):
    """Forms the steps of one engine.

    Args:
        swaps: the blocks of a preempted sequence are moved to the host's memory if there is room, and it goes
            on from there; else it is computed again.

    Attributes:
        waiting: sequences that have no blocks, the first one is next.
        running: sequences that have blocks.
        preempted: those whose blocks the last `schedule` has taken away.
    """

    name: ClassVar[str]
    #: What it is, in a line: the first one of the docstring.
    title: ClassVar[str]
    #: `schedule` passes over running sequences that are over: their last token is being computed.
    works_ahead: ClassVar[bool] = False

    def __init_subclass__(cls) -> None:
        if cls.__doc__:
            cls.title = cls.__doc__.partition("\n")[0].rstrip(".")

    def __init__(self, kv: KvCache, limits: Limits, swaps: bool = False) -> None:
        self.kv, self.limits, self._swaps = kv, limits, swaps
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []
        self.preempted: list[Sequence] = []

    @abstractmethod
    def schedule(self) -> list[Chunk]:
        """Work of the next step; sequences that it takes in are running. Empty: nothing can be done."""

    def finish(self, sequence: Sequence) -> None:
        """A sequence has all of its tokens; it waits if its blocks were taken away during its last step."""
        if sequence in self.running:
            self.running.remove(sequence)
            self.kv.release(sequence)
        else:
            self.waiting.remove(sequence)

    def preempt(self, sequence: Sequence) -> None:
        """Take the blocks of a running sequence away: it is the next one."""
        self.running.remove(sequence)
        if self._swaps and self.kv.fits_host(sequence):
            self.kv.move_to_host(sequence)
        else:
            self.kv.release(sequence)
            sequence.computed = 0
        sequence.preemptions += 1
        self.waiting.appendleft(sequence)
        self.preempted.append(sequence)

    def admit(self, most_tokens: int) -> Chunk | None:
        """Take in the sequence that is next, with at most so many tokens. None: its blocks have no room."""
        sequence = self.waiting[0]
        if sequence.on_host:
            return self._take_back(sequence, min(sequence.missing, most_tokens))
        found = self.kv.found(sequence)
        computed = len(found) * self.kv.block_tokens
        tokens = min(sequence.tokens - computed, most_tokens)
        if not self.kv.allocate(sequence, tokens, found):
            return None
        self.running.append(self.waiting.popleft())
        sequence.computed = computed
        if not sequence.preemptions:
            sequence.reused_tokens = computed
        return Chunk(sequence, tokens)

    def _take_back(self, sequence: Sequence, tokens: int) -> Chunk | None:
        """Take in a sequence whose blocks are in the host's memory. None: they have no room."""
        if not self.kv.allocate(sequence, tokens):
            return None
        self.kv.move_to_gpu(sequence)
        self.running.append(self.waiting.popleft())
        return Chunk(sequence, tokens)


@functools.cache
def schedulers() -> dict[str, type[Scheduler]]:
    """All schedulers by name."""
    from ndpsim.serving import schedulers as folder  # noqa: PLC0415 (its modules import this one)

    return plugins_by_name(folder, "SCHEDULER")


def scheduler_named(name: str) -> type[Scheduler]:
    """The scheduler of this name.

    Raises:
        InputError: there is none.
    """
    if name not in schedulers():
        raise unknown(name, schedulers(), "scheduler", key="scheduler")
    return schedulers()[name]
