"""Requests, and the blocks of an engine's KV cache, according to a log of `ndpsim serve`."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ndpsim.audit.schedule_rules import Fault

#: Content of a full block: for a prompt the hash in the log, otherwise the request and the block's index.
Content = tuple[int, int]


@dataclass(eq=False)
class Served:
    """A request, according to the lines of the log so far.

    Attributes:
        number, engine, arrival_ns, prompt_tokens, output_tokens, hashes: as the log says.
        computed: tokens in the KV cache.
        produced: output tokens.
        blocks: its blocks, in order.
        state: "waiting", "running" or "finished".
        on_host: blocks of it in the host's memory.
    """

    number: int
    engine: int
    arrival_ns: float
    prompt_tokens: int
    output_tokens: int
    hashes: Sequence[int] = ()
    computed: int = 0
    produced: int = 0
    blocks: list[int] = field(default_factory=list)
    state: str = "waiting"
    on_host: int = 0

    @property
    def tokens(self) -> int:
        """Tokens of the prompt, and of the output until now."""
        return self.prompt_tokens + self.produced

    @property
    def missing(self) -> int:
        """Tokens that are not in the KV cache."""
        return self.tokens - self.computed

    @property
    def whole(self) -> int:
        """Tokens of the prompt and of all of the output."""
        return self.prompt_tokens + self.output_tokens

    @property
    def is_over(self) -> bool:
        """Whether all of its output tokens are computed, or in the current step."""
        return self.produced >= self.output_tokens

    def content(self, index: int) -> Content:
        """Content of its full block with this index."""
        return (-1, self.hashes[index]) if index < len(self.hashes) else (self.number, index)


def numbers_of(requests: Iterable[Served]) -> list[int]:
    """The numbers of requests, for a message."""
    return [request.number for request in requests]


class BlockPool:
    """The blocks of one engine.

    Args:
        count: the number of blocks.
        tokens: the number of tokens of a block.
        reuse: whether full blocks can be reused.
        shared: whether their room is shared with experts.

    Attributes:
        room: number of blocks that fit: blocks in use, and free blocks whose contents can be reused.
        most: number of blocks that would fit if all experts left that can leave.
    """

    def __init__(self, count: int, tokens: int, reuse: bool, shared: bool = False) -> None:
        self.count, self.tokens, self.reuse, self.shared = count, tokens, reuse, shared
        self.room = self.most = count
        self._users: dict[int, int] = {}
        self._fresh = set(range(count))  # never used, or dropped after use
        self._free: OrderedDict[int, None] = OrderedDict()  # used before, the longest free first
        self._content: dict[int, Content] = {}
        self._holders: dict[Content, int] = {}  # number of blocks with each content

    @property
    def free(self) -> int:
        """Number of blocks that no request uses and that fit, or can be made to fit."""
        return self.most - self.used

    @property
    def used(self) -> int:
        """Blocks that requests use."""
        return len(self._users)

    @property
    def occupied(self) -> int:
        """Number of blocks that occupy memory: in use, or free with contents that can be reused."""
        return self.used + len(self._free)

    def dropped(self, blocks: Sequence[int]) -> Iterator[Fault]:
        """Free blocks lose their room."""
        for block in blocks:
            if next(iter(self._free), None) != block:
                yield "dropped", f"drops block {block}, which is not the one that is free longest"
            if block in self._free:
                self._forget(block)
                del self._free[block]
                self._fresh.add(block)

    def needed(self, tokens: int) -> int:
        """The number of blocks for this many tokens."""
        return -(-tokens // self.tokens)

    def own(self, request: Served) -> int:
        """Blocks that only this request uses."""
        return sum(self._users.get(block) == 1 for block in request.blocks)

    def findable(self, request: Served) -> int:
        """Blocks in the cache with the first tokens of a request, without the block of the last token."""
        most = (request.tokens - 1) // self.tokens if self.reuse else 0
        return next((index for index in range(most) if request.content(index) not in self._holders), most)

    def reused(self, request: Served, blocks: Sequence[int]) -> Iterator[Fault]:
        """A request begins with blocks that were computed before."""
        who = f"request {request.number}"
        if blocks and not self.reuse:
            yield "prefix", f"{who} reuses blocks, and there is no prefix cache"
        if blocks and len(blocks) * self.tokens >= request.tokens:
            yield "last-token", f"{who} reuses all of its {request.tokens} tokens; the last one is computed"
        for index, block in enumerate(blocks):
            if self._content.get(block) != request.content(index):
                yield "prefix", f"{who} reuses block {block} as its block {index}, which has other tokens"
        for block in blocks:
            yield from self._use(request, block)

    def allocated(self, request: Served, blocks: Sequence[int]) -> Iterator[Fault]:
        """A request gets new blocks."""
        for block in blocks:
            who = f"request {request.number} gets block {block}"
            if not 0 <= block < self.count:
                yield "no-block", f"{who}, and there are 0 to {self.count - 1}"
            elif block in self._users:
                yield "in-use", f"{who}, which is in use"
            elif block in self._fresh and self.occupied >= self.room:
                yield "memory", f"{who}, and {self.room} blocks have room"
            elif block not in self._fresh and (
                (self._fresh and not self.shared) or next(iter(self._free)) != block
            ):
                yield "eviction", f"{who}, and another one is free longer"
            self._forget(block)
            yield from self._use(request, block)

    def filled(self, request: Served, tokens: int) -> None:
        """From now on the full blocks among the first tokens of a request can be reused."""
        if not self.reuse:
            return
        for index in range(min(tokens // self.tokens, len(request.blocks))):
            block, content = request.blocks[index], request.content(index)
            if self._content.get(block) != content:
                self._forget(block)
                self._content[block] = content
                self._holders[content] = self._holders.get(content, 0) + 1

    def freed(self, request: Served, blocks: Sequence[int]) -> Iterator[Fault]:
        """A request gives up blocks."""
        who = f"request {request.number}"
        if sorted(blocks) != sorted(request.blocks):
            yield "leak", f"{who} has blocks {request.blocks}, and gives up {list(blocks)}"
        elif list(blocks) != request.blocks[::-1]:
            yield "free-order", f"{who} does not give up its last block first"
        for block in request.blocks[::-1]:
            self._users[block] -= 1
            if not self._users[block]:
                del self._users[block]
                self._free[block] = None
        request.blocks = []

    def _use(self, request: Served, block: int) -> Iterator[Fault]:
        if block in request.blocks:
            yield "in-use", f"request {request.number} has block {block} already"
        self._users[block] = self._users.get(block, 0) + 1
        self._fresh.discard(block)
        self._free.pop(block, None)
        request.blocks.append(block)

    def _forget(self, block: int) -> None:
        content = self._content.pop(block, None)
        if content is not None:
            self._holders[content] -= 1
            if not self._holders[content]:
                del self._holders[content]


# ---- GPU memory that KV cache blocks share with experts, according to a log of `ndpsim serve`


class RoomLine(NamedTuple):
    """The shared memory when a step is formed, or when the engine tries to form one.

    Attributes:
        residents: number of resident experts before; `fixed`: experts that cannot leave.
        evicted: number of experts that are evicted for blocks.
        most: number of experts that fit until the next step is formed.
        dropped: free blocks that lose their memory.
    """

    residents: int
    fixed: int
    evicted: int
    most: int
    dropped: Sequence[int]


class RoomCheck:
    """The room of an engine.

    Args:
        room, block, expert: bytes.
    """

    def __init__(self, room: int, block: int, expert: int) -> None:
        self._room, self._block, self._expert = room, block, expert
        self._most = room // expert

    def begin(self, use: RoomLine, blocks: BlockPool) -> Iterator[Fault]:
        """Before a step is formed: check the number of experts, and drop free blocks that do not fit."""
        if use.residents > self._most:
            yield "experts", f"has {use.residents} experts in the GPU's memory, and room for {self._most}"
        if not 0 <= use.evicted <= use.residents - use.fixed:
            yield "evicted", f"{use.evicted} of {use.residents} experts leave, and {use.fixed} cannot"
        yield from blocks.dropped(use.dropped)
        if use.dropped and self._has_room(blocks.occupied + 1, use.residents):
            yield "dropped", f"drops block {use.dropped[-1]}, and there is room for it"
        yield from self._faults(blocks.occupied, use.residents)
        blocks.room = self._blocks_beside(use.residents - use.evicted, blocks.count)
        blocks.most = self._blocks_beside(use.fixed, blocks.count)

    def end(self, use: RoomLine, blocks: BlockPool, preempts: bool) -> Iterator[Fault]:
        """After a step is formed: everything fits in the GPU's memory until the next step is formed."""
        left = use.residents - use.evicted
        yield from self._faults(blocks.occupied, left)
        yield from self._faults(blocks.used, use.most)
        if use.evicted and not preempts and self._has_room(blocks.used, left + 1):
            yield (
                "evicted",
                f"{use.evicted} experts leave, and {blocks.used} blocks have room beside one more",
            )
        self._most = use.most

    def _faults(self, blocks: int, experts: int) -> Iterator[Fault]:
        if not self._has_room(blocks, experts):
            size = blocks * self._block + experts * self._expert
            yield "memory", f"{blocks} blocks and {experts} experts have {size} bytes, of {self._room}"

    def _has_room(self, blocks: int, experts: int) -> bool:
        return blocks * self._block + experts * self._expert <= self._room

    def _blocks_beside(self, experts: int, most: int) -> int:
        return min((self._room - experts * self._expert) // self._block, most)
