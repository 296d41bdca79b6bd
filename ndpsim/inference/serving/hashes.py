"""Contents of blocks of prompts, from the blocks of requests."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ndpsim.base.errors import InputError
from ndpsim.workload.requests import Requests


def prompt_hashes(requests: Requests, block_tokens: int) -> Callable[[int], Sequence[int]]:
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

    def hashes(number: int) -> Sequence[int]:
        whole = int(requests.prompt_tokens[number]) // block_tokens
        parts = (block * each + part for block in blocks[number].tolist() for part in range(each))
        return tuple(parts)[:whole]

    return hashes
