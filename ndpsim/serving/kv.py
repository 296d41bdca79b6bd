"""The KV cache of an engine: blocks, whose they are, and what is found in them again.

As vLLM 0.19 has it (vllm/v1/core/block_pool.py, kv_cache_manager.py): a whole block is known by a hash of all
tokens up to its end. A block without a sequence stays where it can be found, and new ones are those
that have been free longest. A sequence gives up its last block first. The last token of a sequence is always
computed, even if its block is there. Not modelled: vLLM keeps one block for padding.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from collections.abc import Sequence as Several
from dataclasses import dataclass, field

from ndpsim.serving.sequence import Sequence

Hash = tuple[int, int]


@dataclass
class Changes:
    """Changes of blocks in a step, by the number of the sequence: `allocated` anew, `reused` and `freed`.

    `to_host`, `to_gpu`: how many blocks of it were moved there.
    """

    allocated: dict[int, list[int]] = field(default_factory=dict)
    reused: dict[int, list[int]] = field(default_factory=dict)
    freed: dict[int, list[int]] = field(default_factory=dict)
    to_host: dict[int, int] = field(default_factory=dict)
    to_gpu: dict[int, int] = field(default_factory=dict)


class _Pool:
    """Numbered blocks with reference counts; free ones in the order in which they are taken."""

    def __init__(self, blocks: int) -> None:
        self._blocks = blocks
        self._used = 0  # blocks that were ever taken, the first ones
        self._free: OrderedDict[int, None] = OrderedDict()  # of them; those that never were come before them
        self._uses: dict[int, int] = {}
        self._hash: dict[int, Hash] = {}
        self._known: dict[Hash, dict[int, None]] = {}

    @property
    def free(self) -> int:
        return self._blocks - self._used + len(self._free)

    def is_free(self, block: int) -> bool:
        return self._uses[block] == 0

    def take(self, count: int) -> list[int]:
        """New blocks; what they contained cannot be found any more."""
        new = range(self._used, min(self._used + count, self._blocks))
        self._used = new.stop
        taken = [*new, *(self._free.popitem(last=False)[0] for _ in range(count - len(new)))]
        for block in taken:
            self._forget(block)
            self._uses[block] = 1
        return taken

    def use(self, blocks: Iterable[int]) -> None:
        """Blocks are used once more."""
        for block in blocks:
            if not self._uses[block]:
                del self._free[block]
            self._uses[block] += 1

    def give_up(self, blocks: Iterable[int]) -> None:
        """Blocks are used once less; those that no sequence uses are free, the first of them taken first."""
        for block in blocks:
            self._uses[block] -= 1
            if not self._uses[block]:
                self._free[block] = None

    def find(self, content: Hash) -> int | None:
        """The first block of such a content; None: there is none."""
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
        blocks: how many there are.
        block_tokens: tokens of a block.
        finds_prefixes: whole blocks are found again.

    Attributes:
        changes: since `new_step`.
    """

    def __init__(self, blocks: int, block_tokens: int = 16, finds_prefixes: bool = True) -> None:
        self.blocks, self.block_tokens, self._finds = blocks, block_tokens, finds_prefixes
        self._pool = _Pool(blocks)
        self.changes = Changes()

    @property
    def free(self) -> int:
        """Blocks that no sequence uses."""
        return self._pool.free

    def new_step(self) -> None:
        """Begin to note changes anew."""
        self.changes = Changes()

    def found(self, sequence: Sequence) -> list[int]:
        """Blocks with the first tokens of a sequence that has none, but for its last token."""
        blocks: list[int] = []
        if self._finds:
            for place in range((sequence.tokens - 1) // self.block_tokens):
                block = self._pool.find(sequence.hash_of(place))
                if block is None:
                    break
                blocks.append(block)
        return blocks

    def needed(self, tokens: int) -> int:
        """Blocks of so many tokens."""
        return -(-tokens // self.block_tokens)

    def allocate(self, sequence: Sequence, tokens: int, reused: Several[int] = ()) -> bool:
        """Make room for further tokens of a sequence, behind blocks that were found. False: there is none."""
        computed = sequence.computed + len(reused) * self.block_tokens
        new = max(self.needed(computed + tokens) - len(sequence.blocks) - len(reused), 0)
        if new > self.free - sum(map(self._pool.is_free, reused)):
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

    def release(self, sequence: Sequence) -> None:
        """A sequence gives up its blocks, the last one first."""
        freed = sequence.blocks[::-1]
        self._pool.give_up(freed)
        self.changes.freed[sequence.number] = freed
        sequence.blocks, sequence.remembered = [], 0

    def move_to_host(self, sequence: Sequence) -> None:
        """The blocks of a sequence are moved to the host's memory, and given up here."""
        sequence.on_host = self.changes.to_host[sequence.number] = len(sequence.blocks)
        self.release(sequence)

    def move_to_gpu(self, sequence: Sequence) -> None:
        """The blocks of a sequence come back, into those that it was given."""
        self.changes.to_gpu[sequence.number] = sequence.on_host
        sequence.on_host = 0
