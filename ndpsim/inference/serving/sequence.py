"""A request in a serving engine: its computed tokens, and the times of its tokens."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Several
from dataclasses import dataclass, field

from ndpsim.base.errors import InputError
from ndpsim.workload.requests import Requests

# ---- Contents of blocks of prompts, from the blocks of requests


def prompt_hashes(requests: Requests, block_tokens: int) -> Callable[[int], Several[int]]:
    """A function of a request's number: a hash of each whole block of its prompt, equal for equal contents.

    Raises:
        InputError: a block of the requests is not a whole number of blocks of the KV cache.
    """
    blocks, size = requests.blocks, requests.block_tokens
    if blocks is None or size is None:
        return lambda number: ()
    each, rest = divmod(size, block_tokens)
    if rest:
        problem = f"{block_tokens} does not divide the {size} tokens of the requests' blocks"
        raise InputError(problem, "conflict", key="block_tokens")

    def hashes(number: int) -> Several[int]:
        whole = int(requests.prompt_tokens[number]) // block_tokens
        parts = (block * each + part for block in blocks[number].tolist() for part in range(each))
        return tuple(parts)[:whole]

    return hashes


# ---- Sequences


@dataclass(eq=False, slots=True)
class Sequence:
    """A request while it is served.

    Attributes:
        number: number of the request, in the order of arrival.
        prompt_tokens, output_tokens: the number of tokens of the request.
        arrival_ns: the time at which it arrived.
        engine: the engine that serves it.
        hashes: hashes of the prompt's whole blocks of the KV cache; empty if the prompt shares no prefix.
        computed: tokens whose keys and values are in the KV cache.
        produced: output tokens so far.
        blocks: its blocks of the KV cache, in order.
        remembered: number of its first blocks that others can find.
        reused_tokens: prompt tokens that were found in the KV cache when it was first admitted.
        on_host: number of its blocks in the host's memory after a preemption.
        preemptions: number of its preemptions.
        admitted_ns, first_token_ns, last_token_ns: times of its first step and of its tokens; -1 before.
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
        """Tokens of the prompt and of the output so far."""
        return self.prompt_tokens + self.produced

    @property
    def missing(self) -> int:
        """Tokens to compute for the next output token."""
        return self.tokens - self.computed

    @property
    def is_decoding(self) -> bool:
        """Whether only the last output token is missing from the KV cache."""
        return self.produced > 0 and self.missing == 1

    @property
    def is_over(self) -> bool:
        """Whether it has all output tokens."""
        return self.produced >= self.output_tokens

    def hash_of(self, block: int) -> tuple[int, int]:
        """A hash of a whole block's content, equal for others only if their prompts are equal."""
        if block < len(self.hashes):
            return -1, self.hashes[block]
        return self.number, block
