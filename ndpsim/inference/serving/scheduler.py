"""The base of schedulers: a scheduler forms the steps of an engine.

A scheduler is one file in `ndpsim.inference.serving.schedulers`, with a class named in ``SCHEDULER``.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections import deque
from dataclasses import dataclass
from typing import ClassVar

from ndpsim.base.errors import unknown
from ndpsim.base.plugins import plugins_by_name
from ndpsim.inference.serving.kv import KvCache
from ndpsim.inference.serving.sequence import Sequence


class Chunk:
    """The next tokens of a sequence, computed in a step.

    Attributes:
        computed: tokens of the sequence that are already in the KV cache.
        decodes: whether the token is the latest output token.
        produces: whether it results in an output token.
        output_tokens: output tokens of the sequence after the step.
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
        swaps: whether the blocks of a preempted sequence are moved to the host's memory if it has room;
            otherwise the sequence is recomputed.

    Attributes:
        waiting: sequences without blocks, in the order of admission.
        running: sequences with blocks.
        preempted: sequences whose blocks were taken by the last `schedule`.
    """

    name: ClassVar[str]
    #: A description in a line: the first one of the docstring.
    title: ClassVar[str]
    #: Whether `schedule` can ignore running sequences whose last token is being computed.
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
        """Chunks of the next step; admitted sequences are then running. Empty if nothing can be done."""

    def finish(self, sequence: Sequence) -> None:
        """Remove a finished sequence, which is waiting if its blocks were taken during its last step."""
        if sequence in self.running:
            self.running.remove(sequence)
            self.kv.release(sequence)
        else:
            self.waiting.remove(sequence)

    def preempt(self, sequence: Sequence) -> None:
        """Take the blocks of a running sequence, which will be the next one to be admitted."""
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
        """Admit the next sequence, with at most so many tokens. None if its blocks have no room."""
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
        """Admit a sequence whose blocks are in the host's memory. None if they have no room."""
        if not self.kv.allocate(sequence, tokens):
            return None
        self.kv.move_to_gpu(sequence)
        self.running.append(self.waiting.popleft())
        return Chunk(sequence, tokens)


@functools.cache
def schedulers() -> dict[str, type[Scheduler]]:
    """All schedulers by name."""
    from ndpsim.inference.serving import schedulers as folder  # noqa: PLC0415 (its modules import this one)

    return plugins_by_name(folder, "SCHEDULER")


def scheduler_named(name: str) -> type[Scheduler]:
    """The scheduler with this name.

    Raises:
        InputError: no scheduler has this name.
    """
    if name not in schedulers():
        raise unknown(name, schedulers(), "scheduler", key="scheduler")
    return schedulers()[name]
