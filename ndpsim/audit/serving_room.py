"""GPU memory that KV cache blocks share with experts, according to a log of `ndpsim serve`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ndpsim.audit.schedule_rules import Fault
from ndpsim.audit.serving_blocks import Blocks


class RoomUse(NamedTuple):
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


class Room:
    """The room of an engine.

    Args:
        room, block, expert: bytes.
    """

    def __init__(self, room: int, block: int, expert: int) -> None:
        self._room, self._block, self._expert = room, block, expert
        self._most = room // expert

    def begin(self, use: RoomUse, blocks: Blocks) -> Iterator[Fault]:
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

    def end(self, use: RoomUse, blocks: Blocks, preempts: bool) -> Iterator[Fault]:
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
