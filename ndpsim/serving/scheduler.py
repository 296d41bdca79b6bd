"""The base of schedulers: a scheduler forms the steps of an engine.

A scheduler is one file in `ndpsim.serving.schedulers`, with a class named in ``SCHEDULER``.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections import deque
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from ndpsim.errors import unknown
from ndpsim.plugins import plugins
from ndpsim.serving.kv import KvCache
from ndpsim.serving.sequence import Sequence


class Chunk(NamedTuple):
    """So many tokens of a sequence that a step computes, the next ones that it lacks."""

    sequence: Sequence
    tokens: int


@dataclass(frozen=True)
class Limits:
    """Of a step: the most sequences, and the most tokens of all of them."""

    sequences: int
    tokens: int


class Scheduler(ABC):
    """Forms the steps of one engine.

    Args:
        swaps: the blocks of a preempted sequence are moved to the host's memory, and it goes on from there;
            else it is computed again.

    Attributes:
        waiting: sequences that have no blocks, the first one is next.
        running: sequences that have blocks.
        preempted: those whose blocks the last `schedule` has taken away.
    """

    name: ClassVar[str]
    #: What it is, in a line: the first one of the docstring.
    title: ClassVar[str]

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
        """A running sequence has all of its tokens."""
        self.running.remove(sequence)
        self.kv.release(sequence)

    def preempt(self, sequence: Sequence) -> None:
        """Take the blocks of a running sequence away: it is the next one."""
        self.running.remove(sequence)
        if self._swaps:
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

    return {one.name: one for one in plugins(folder, "SCHEDULER")}


def scheduler_named(name: str) -> type[Scheduler]:
    """The scheduler of this name.

    Raises:
        InputError: there is none.
    """
    if name not in schedulers():
        raise unknown(name, schedulers(), "scheduler", key="scheduler")
    return schedulers()[name]
