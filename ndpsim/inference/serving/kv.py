"""The KV cache of an engine: its blocks, their sequences, and their reusable contents.

It follows vLLM 0.19 (vllm/v1/core/block_pool.py, kv_cache_manager.py): a whole block is identified by a hash
of all tokens up to its end. A block without a sequence can still be found, and blocks that have been free
longest are allocated first. A sequence frees its last block first. The last token of a sequence is always
computed, even if its block is found. Not modelled: vLLM keeps one block for padding.

The memory may be too small for all blocks, and may change in size: see
`ndpsim.inference.serving.kv`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from collections.abc import Sequence as Several
from dataclasses import dataclass, field
from typing import NamedTuple

from ndpsim.inference.layers.residents import Residents
from ndpsim.inference.serving.sequence import Sequence

# ---- Room in the GPU's memory that the blocks of a KV cache share with experts
#
# Sequences have priority. If a block has no room, the required number of experts is evicted, those of least
# worth to the policy first. Nothing is transferred, since their weights are also in the host's memory or on
# DIMMs. If evicting all experts would not be enough, none is evicted, and the scheduler preempts or waits as
# usual. Experts on their way to the GPU cannot be evicted.
#
# When a step is formed, the policy gets the room that sequences do not use, unless a sequence lacked room.
# Free blocks with reusable contents lose them when an expert takes their room.


class SharedSizes(NamedTuple):
    """Bytes of the shared memory, of a block and of an expert."""

    room: int
    block: int
    expert: int


@dataclass
class RoomUse:
    """The room when a step is formed.

    Attributes:
        residents: experts before the step; `fixed`: number of them that cannot be evicted.
        dropped: free blocks whose room experts took, in the order in which they became free.
        evicted: experts evicted for blocks.
        most: maximum number of experts until the next step is formed.
    """

    residents: int
    fixed: int
    dropped: list[int]
    evicted: int = 0
    most: int = 0


class SharedRoom:
    """The shared memory, and its use by experts.

    Args:
        sizes: the sizes in bytes.
        most_blocks: maximum number of blocks of the KV cache.
    """

    def __init__(self, sizes: SharedSizes, most_blocks: int, residents: Residents) -> None:
        self._sizes, self._residents = sizes, residents
        self._most_blocks, self._most_experts = most_blocks, residents.most

    @property
    def blocks(self) -> int:
        """Number of blocks that have room beside the experts."""
        left = self._sizes.room - self._residents.now() * self._sizes.expert
        return min(left // self._sizes.block, self._most_blocks)

    def begin(self, dropped: list[int]) -> RoomUse:
        """Begin to form a step."""
        residents = self._residents
        return RoomUse(residents.now(), residents.now() - residents.movable, dropped)

    def make(self, blocks: int) -> int:
        """Evict experts until so many blocks have room; returns their number, 0 if it would not be enough."""
        leaving = self._residents.now() - self._experts_beside(blocks)
        if blocks > self._most_blocks or leaving > self._residents.movable:
            return 0
        self._residents.evict(leaving)
        return leaving

    def leave(self, blocks: int, lacks: bool) -> int:
        """Limit experts until the next step to those beside so many blocks, or to those now if `lacks`."""
        residents, left = self._residents, self._experts_beside(blocks)
        residents.give_room(residents.now() if lacks else min(left, self._most_experts))
        return residents.most

    def _experts_beside(self, blocks: int) -> int:
        """Number of experts that have room beside so many blocks."""
        return (self._sizes.room - blocks * self._sizes.block) // self._sizes.expert


# ---- The cache in blocks


Hash = tuple[int, int]


@dataclass
class Changes:
    """Changes of blocks in a step, by the number of the sequence: `allocated` anew, `reused` and `freed`.

    `to_host`, `to_gpu`: numbers of its moved blocks. `room`: use of memory that is shared with experts.
    """

    allocated: dict[int, list[int]] = field(default_factory=dict)
    reused: dict[int, list[int]] = field(default_factory=dict)
    freed: dict[int, list[int]] = field(default_factory=dict)
    to_host: dict[int, int] = field(default_factory=dict)
    to_gpu: dict[int, int] = field(default_factory=dict)
    room: RoomUse | None = None


@dataclass(frozen=True)
class HostRoom:
    """Memory of the host for swapped sequences.

    Attributes:
        kept_bytes: bytes of sequences, from the number of blocks of each.
    """

    bytes: int
    kept_bytes: Callable[[Several[int]], int]


class _Pool:
    """Numbered blocks with reference counts, and free blocks in the order in which they are allocated.

    Attributes:
        room: maximum number of blocks with sequences or reusable contents.
    """

    def __init__(self, blocks: int) -> None:
        self.room = blocks
        self._numbered = 0  # blocks that were ever allocated: the first ones
        self._empty: list[int] = []  # those of them that take no room
        self._free: OrderedDict[int, None] = (
            OrderedDict()
        )  # those that are free; empty ones are allocated first
        self._uses: dict[int, int] = {}
        self._hash: dict[int, Hash] = {}
        self._known: dict[Hash, dict[int, None]] = {}

    @property
    def free(self) -> int:
        return self.room - self.used

    @property
    def used(self) -> int:
        return self._numbered - len(self._empty) - len(self._free)

    def is_free(self, block: int) -> bool:
        return self._uses[block] == 0

    def take(self, count: int) -> list[int]:
        """Allocate blocks, whose former contents can no longer be found."""
        empty = min(count, self.room - self.used - len(self._free))
        again = [self._empty.pop() for _ in range(min(empty, len(self._empty)))]
        new = range(self._numbered, self._numbered + empty - len(again))
        self._numbered = new.stop
        taken = [*again, *new, *(self._free.popitem(last=False)[0] for _ in range(count - empty))]
        for block in taken:
            self._forget(block)
            self._uses[block] = 1
        return taken

    def drop(self) -> list[int]:
        """Drop free blocks that no longer have room, beginning with those that have been free longest."""
        lacking = self.used + len(self._free) - self.room
        dropped = [self._free.popitem(last=False)[0] for _ in range(lacking)]
        for block in dropped:
            self._forget(block)
        self._empty += dropped
        return dropped

    def use(self, blocks: Iterable[int]) -> None:
        """Add a user to each block."""
        for block in blocks:
            if not self._uses[block]:
                del self._free[block]
            self._uses[block] += 1

    def give_up(self, blocks: Iterable[int]) -> None:
        """Remove a user from each block; unused blocks are free, the first of them allocated first."""
        for block in blocks:
            self._uses[block] -= 1
            if not self._uses[block]:
                self._free[block] = None

    def find(self, content: Hash) -> int | None:
        """The first block with this content, if any."""
        return next(iter(self._known.get(content, ())), None)

    def remember(self, block: int, content: Hash) -> None:
        self._hash[block] = content
        self._known.setdefault(content, {})[block] = None

    def _forget(self, block: int) -> None:
        content = self._hash.pop(block, None)
        if content is not None:
            del self._known[content][block]
            if not self._known[content]:
                del self._known[content]


class KvCache:
    """The KV cache of one engine.

    Args:
        blocks: the number of blocks.
        block_tokens: tokens of a block.
        finds_prefixes: whether whole blocks are reused.
        shared: memory shared with experts; None: all blocks have room.
        host: memory of the host for sequences; None: unlimited.

    Attributes:
        changes: changes since `new_step`.
    """

    def __init__(
        self,
        blocks: int,
        block_tokens: int = 16,
        finds_prefixes: bool = True,
        shared: SharedRoom | None = None,
        host: HostRoom | None = None,
    ) -> None:
        self.blocks, self.block_tokens, self._finds = blocks, block_tokens, finds_prefixes
        self._shared, self._host = shared, host
        self._on_host: dict[int, int] = {}  # blocks of each sequence in the host's memory
        self._pool = _Pool(blocks)
        self.changes, self._lacks_room = Changes(), False

    @property
    def free(self) -> int:
        """The number of blocks that no sequence uses and that have room."""
        return self._pool.free

    @property
    def used(self) -> int:
        """The number of blocks that sequences use."""
        return self._pool.used

    def new_step(self) -> None:
        """Begin a step with no changes, and with the room that experts leave."""
        self.changes, self._lacks_room = Changes(), False
        if self._shared is not None:
            self._pool.room = self._shared.blocks
            self.changes.room = self._shared.begin(self._pool.drop())

    def end_step(self) -> None:
        """End a step: experts get the remaining room, unless a sequence lacked room."""
        if self._shared is not None and self.changes.room is not None:
            self.changes.room.most = self._shared.leave(self._pool.used, self._lacks_room)

    def found(self, sequence: Sequence) -> list[int]:
        """Blocks with the first tokens of a sequence without blocks, except its last token."""
        blocks: list[int] = []
        if self._finds:
            for place in range((sequence.tokens - 1) // self.block_tokens):
                block = self._pool.find(sequence.hash_of(place))
                if block is None:
                    break
                blocks.append(block)
        return blocks

    def needed(self, tokens: int) -> int:
        """The number of blocks for a number of tokens."""
        return -(-tokens // self.block_tokens)

    def allocate(self, sequence: Sequence, tokens: int, reused: Several[int] = ()) -> bool:
        """Allocate blocks for further tokens of a sequence, after found ones. False without room for them."""
        computed = sequence.computed + len(reused) * self.block_tokens
        new = max(self.needed(computed + tokens) - len(sequence.blocks) - len(reused), 0)
        if not self._has_room(new + sum(map(self._pool.is_free, reused))):
            return False
        if reused:
            self._pool.use(reused)
            sequence.blocks += reused
            sequence.remembered = len(sequence.blocks)
            self.changes.reused[sequence.number] = list(reused)
        if new:
            taken = self._pool.take(new)
            sequence.blocks += taken
            self.changes.allocated[sequence.number] = taken
        if self._finds:
            whole = (computed + tokens) // self.block_tokens
            for place in range(sequence.remembered, whole):
                self._pool.remember(sequence.blocks[place], sequence.hash_of(place))
            sequence.remembered = max(sequence.remembered, whole)
        return True

    def _has_room(self, blocks: int) -> bool:
        """Whether so many more blocks have room; experts are evicted if that is enough."""
        if blocks <= self.free:
            return True
        if self._shared is None or self.changes.room is None:
            return False
        evicted = self._shared.make(self._pool.used + blocks)
        self.changes.room.evicted += evicted
        self._pool.room = self._shared.blocks
        self._lacks_room |= not evicted
        return evicted > 0

    def release(self, sequence: Sequence) -> None:
        """Free the blocks of a sequence, the last one first."""
        freed = sequence.blocks[::-1]
        self._pool.give_up(freed)
        self.changes.freed[sequence.number] = freed
        sequence.blocks, sequence.remembered = [], 0

    def fits_host(self, sequence: Sequence) -> bool:
        """Whether the host's memory has room for the blocks of a sequence."""
        if self._host is None:
            return True
        return self._host.kept_bytes([*self._on_host.values(), len(sequence.blocks)]) <= self._host.bytes

    def move_to_host(self, sequence: Sequence) -> None:
        """Move the blocks of a sequence to the host's memory, and free them here."""
        sequence.on_host = self.changes.to_host[sequence.number] = len(sequence.blocks)
        self._on_host[sequence.number] = sequence.on_host
        self.release(sequence)

    def move_to_gpu(self, sequence: Sequence) -> None:
        """Move a sequence back into its newly allocated blocks."""
        self.changes.to_gpu[sequence.number] = self._on_host.pop(sequence.number)
        sequence.on_host = 0
