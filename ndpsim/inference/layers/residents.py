"""Experts in the GPU's memory between two steps, where a KV cache takes their room and gives it back."""

from __future__ import annotations

import numpy as np

from ndpsim.inference.layers.layer_run import LayerRun
from ndpsim.policies.answers import Answering, checked_worth
from ndpsim.policies.interface import GivesRoom, Migration


class Residents:
    """Experts in the GPU's memory during a run."""

    def __init__(self, run: LayerRun) -> None:
        self._run, self._places = run, run.state.places

    @property
    def most(self) -> int:
        """Experts that the GPU's memory has room for now."""
        return self._places.gpu_room

    def now(self) -> int:
        """Experts in the GPU's memory, and on their way there."""
        return self._places.gpu_room - self._places.gpu_free

    @property
    def movable(self) -> int:
        """Those of them that can be evicted: no migration of them is under way."""
        return int(np.count_nonzero(self._places.now.resident & ~self._places.moving))

    def give_room(self, most: int) -> None:
        """There is room for so many experts from now on, at least for all that are there."""
        self._places.gpu_free += most - self._places.gpu_room
        self._places.gpu_room = most

    def evict(self, count: int) -> None:
        """Take so many movable experts out of the GPU's memory, by the policy's order.

        Raises:
            InputError: the policy's order makes no sense.
        """
        run, policy, places = self._run, self._run.policy, self._places
        assert isinstance(policy, GivesRoom)
        with Answering(policy.name, "resident_worth"):
            worth = policy.resident_worth(places.now)
        worth = checked_worth(policy.name, worth, run.setup.machine)
        rows, experts = np.nonzero(places.now.resident & ~places.moving)
        leaving = np.argsort(worth[rows, experts], kind="stable")[:count]
        layers = run.setup.machine.layers
        evictions = [
            Migration("evict", layers[row], expert)
            for row, expert in zip(rows[leaving].tolist(), experts[leaving].tolist(), strict=True)
        ]
        run.state.migrations.decide(evictions, run.clock_ns)
