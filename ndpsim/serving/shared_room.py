"""Room in the GPU's memory that the blocks of a KV cache share with experts.

Sequences come first. If a block is lacking, as many experts leave as are needed for it, those of least worth
to the policy first. Nothing is transferred, since their weights are also in the host's memory or on DIMMs. If
all experts that can leave are not enough, none leaves, and the scheduler preempts or waits as without them.
Experts on their way to the GPU cannot leave.

When a step is formed, the policy gets the room that sequences do not use, unless one found too little. Free
blocks whose contents could be found again lose them when an expert takes their room.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from ndpsim.orchestrator.residents import Residents


class SharedSizes(NamedTuple):
    """Bytes of the room, of a block and of an expert."""

    room: int
    block: int
    expert: int


@dataclass
class RoomUse:
    """The room when a step is formed.

    Attributes:
        residents: experts before; `fixed`: those of them that cannot leave.
        dropped: free blocks whose room experts have taken, those that are free longest first.
        evicted: experts that leave for blocks.
        most: experts that there is room for until the next step is formed.
    """

    residents: int
    fixed: int
    dropped: list[int]
    evicted: int = 0
    most: int = 0


class SharedRoom:
    """The room, and what experts have of it.

    Args:
        sizes: the sizes in bytes.
        most_blocks: the most blocks of the KV cache, if there is room.
        now: tells the time.
    """

    def __init__(
        self, sizes: SharedSizes, most_blocks: int, residents: Residents, now: Callable[[], float]
    ) -> None:
        self._sizes, self._residents, self._now = sizes, residents, now
        self._most_blocks, self._most_experts = most_blocks, residents.most

    @property
    def blocks(self) -> int:
        """Blocks that there is room for beside the experts."""
        left = self._sizes.room - self._residents.now() * self._sizes.expert
        return min(left // self._sizes.block, self._most_blocks)

    def begin(self, dropped: list[int]) -> RoomUse:
        """A step is about to be formed."""
        residents = self._residents
        return RoomUse(residents.now(), residents.now() - residents.movable, dropped)

    def make(self, blocks: int) -> int:
        """Evict experts until there is room for so many blocks; how many, 0: it is not enough."""
        leaving = self._residents.now() - self._experts_beside(blocks)
        if blocks > self._most_blocks or leaving > self._residents.movable:
            return 0
        self._residents.evict(leaving, self._now())
        return leaving

    def leave(self, blocks: int, lacks: bool) -> int:
        """The most experts until the next step: beside so many blocks, or if a sequence lacks room as now."""
        residents, left = self._residents, self._experts_beside(blocks)
        residents.give_room(residents.now() if lacks else min(left, self._most_experts))
        return residents.most

    def _experts_beside(self, blocks: int) -> int:
        """Experts that there is room for beside so many blocks."""
        return (self._sizes.room - blocks * self._sizes.block) // self._sizes.expert
