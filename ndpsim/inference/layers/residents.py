"""Experts in the GPU's memory between two steps, where a KV cache takes their room and gives it back."""

from __future__ import annotations

import numpy as np

from ndpsim.inference.layers.migrations import Migrations
from ndpsim.inference.layers.placement import Places
from ndpsim.policies.answers import Answering, checked_worth
from ndpsim.policies.interface import GivesRoom, Migration, Policy
from ndpsim.policies.views import Machine


class Residents:
    """Experts in the GPU's memory.

    Attributes:
        most: experts that the GPU's memory has room for now.
    """

    def __init__(self, policy: Policy, places: Places, migrations: Migrations, machine: Machine) -> None:
        self._policy, self._places, self._migrations, self._machine = policy, places, migrations, machine
        self.most = machine.gpu_experts

    def now(self) -> int:
        """Experts in the GPU's memory, and on their way there."""
        return self.most - self._places.gpu_free

    @property
    def movable(self) -> int:
        """Those of them that can be evicted: no migration of them is under way."""
        return int(np.count_nonzero(self._places.now.resident & ~self._places.moving))

    def give_room(self, most: int) -> None:
        """There is room for so many experts from now on, at least for all that are there."""
        self._places.gpu_free += most - self.most
        self.most = most

    def evict(self, count: int, now_ns: float) -> None:
        """Take so many movable experts out of the GPU's memory, by the policy's order.

        Raises:
            InputError: the policy's order makes no sense.
        """
        policy, places = self._policy, self._places
        assert isinstance(policy, GivesRoom)
        with Answering(policy.name, "resident_worth"):
            worth = policy.resident_worth(places.now)
        worth = checked_worth(policy.name, worth, self._machine)
        rows, experts = np.nonzero(places.now.resident & ~places.moving)
        leaving = np.argsort(worth[rows, experts], kind="stable")[:count]
        layers = self._machine.layers
        evictions = [
            Migration("evict", layers[row], expert)
            for row, expert in zip(rows[leaving].tolist(), experts[leaving].tolist(), strict=True)
        ]
        self._migrations.decide(evictions, now_ns)
