"""A request in a serving engine: what is computed of it, and when its tokens came."""

from __future__ import annotations

from collections.abc import Sequence as Several
from dataclasses import dataclass, field


@dataclass(eq=False, slots=True)
class Sequence:
    """A request while it is served.

    Attributes:
        number: of the request, in the order of arrival.
        prompt_tokens, output_tokens: the number of tokens of the request.
        arrival_ns: the time at which it arrived.
        engine: the engine that serves it.
        hashes: of the prompt's whole blocks of the KV cache; empty: its prompt begins like no other.
        computed: tokens whose keys and values are in the KV cache.
        produced: output tokens that there are.
        blocks: its blocks of the KV cache, in order.
        remembered: those of them, from the first on, that others can find.
        reused_tokens: prompt tokens that were found in the KV cache when it was first admitted.
        on_host: blocks of it in the host's memory, where a preemption has moved them.
        preemptions: how often its blocks were taken away.
        admitted_ns, first_token_ns, last_token_ns: when it was first scheduled, and when tokens came; -1: not
            yet.
    """

    number: int
    prompt_tokens: int
    output_tokens: int
    arrival_ns: float
    hashes: Several[int] = ()
    engine: int = 0
    computed: int = 0
    produced: int = 0
    blocks: list[int] = field(default_factory=list)
    remembered: int = 0
    reused_tokens: int = 0
    on_host: int = 0
    preemptions: int = 0
    admitted_ns: float = -1.0
    first_token_ns: float = -1.0
    last_token_ns: float = -1.0

    @property
    def tokens(self) -> int:
        """Tokens of the prompt and of the output until now."""
        return self.prompt_tokens + self.produced

    @property
    def missing(self) -> int:
        """Tokens that must be computed before the next one comes."""
        return self.tokens - self.computed

    @property
    def is_decoding(self) -> bool:
        """Whether only the last output token is still to be computed."""
        return self.produced > 0 and self.missing == 1

    @property
    def is_over(self) -> bool:
        """Whether all output tokens are there."""
        return self.produced >= self.output_tokens

    def hash_of(self, block: int) -> tuple[int, int]:
        """A mark of a whole block's content: the same for others only where their prompts are the same."""
        if block < len(self.hashes):
            return -1, self.hashes[block]
        return self.number, block
