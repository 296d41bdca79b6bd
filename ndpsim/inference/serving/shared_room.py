"""Room in the GPU's memory that the blocks of a KV cache share with experts.

Sequences have priority. If a block has no room, the required number of experts is evicted, those of least
worth to the policy first. Nothing is transferred, since their weights are also in the host's memory or on
DIMMs. If evicting all experts would not be enough, none is evicted, and the scheduler preempts or waits as
usual. Experts on their way to the GPU cannot be evicted.

When a step is formed, the policy gets the room that sequences do not use, unless a sequence lacked room. Free
blocks with reusable contents lose them when an expert takes their room.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from ndpsim.inference.layers.residents import Residents


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
        now: returns the time.
    """

    def __init__(
        self, sizes: SharedSizes, most_blocks: int, residents: Residents, now: Callable[[], float]
    ) -> None:
        self._sizes, self._residents, self._now = sizes, residents, now
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
        self._residents.evict(leaving, self._now())
        return leaving

    def leave(self, blocks: int, lacks: bool) -> int:
        """Limit experts until the next step to those beside so many blocks, or to those now if `lacks`."""
        residents, left = self._residents, self._experts_beside(blocks)
        residents.give_room(residents.now() if lacks else min(left, self._most_experts))
        return residents.most

    def _experts_beside(self, blocks: int) -> int:
        """Number of experts that have room beside so many blocks."""
        return (self._sizes.room - blocks * self._sizes.block) // self._sizes.expert
