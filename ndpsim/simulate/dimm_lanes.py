"""The lanes of a DIMM for the program of an expert."""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np

from ndpsim.dimm import common
from ndpsim.dimm import state as shared
from ndpsim.dimm.engines import SharedDimms
from ndpsim.dimm.layout import ExpertWeights
from ndpsim.simulate.lane import Ints
from ndpsim.simulate.machine import Machine, Placed
from ndpsim.simulate.program import DOWN, Awaited, Job


class QueuedExpert(NamedTuple):
    """An expert in the queue of a DIMM: its weights, and their place in each lane."""

    dimm: int
    weights: ExpertWeights
    placed: Placed


class DimmLanes:
    """The lanes of a DIMM of a channel; see `program.Lanes`.

    Attributes:
        host_bursts: bursts of activations and results of finished tiles.
    """

    def __init__(self, machine: Machine, dimms: SharedDimms, dimm: int) -> None:
        self.machine, self.dimms, self.dimm = machine, dimms, dimm
        self.rows_per_message = machine.values_per_burst
        self.host_bursts = self._step = 0

    @property
    def now(self) -> int:
        """The tick of the next clock."""
        return self.dimms.clock * self.machine.dram_ticks

    def is_reached(self, goal: int) -> bool:
        """Whether the awaited event has happened."""
        agents, dimm = self.dimms.agents, self.dimm
        if goal == common.WEIGHTS_READ:
            return bool(agents.weights.value[dimm, shared.BURSTS_LEFT] == 0)
        return bool((agents.buses.at[:, dimm] >= agents.transfers.value[dimm, shared.TRANSFERS]).all())

    def begin(self, job: Job) -> None:
        """See `program.Lanes`."""
        expert: QueuedExpert = job.expert
        self._placed, self._hidden = expert.placed, expert.weights.hidden

    def write_activations(self, tokens: int, start: int) -> Awaited[list[int]]:
        """See `program.Lanes`."""
        machine, bursts = self.machine, self._activation_bursts(tokens)
        ready = start + machine.device.write_latency * machine.dram_ticks
        self.dimms.put_transfers(self.dimm, shared.WRITE, machine.bus_ticks(bursts), [ready])
        yield common.TRANSFERS_DONE
        return [self._transferred()]

    def multiply(self, region: int, tokens: int, release: list[int]) -> Awaited[list[Ints]]:
        """See `program.Lanes`."""
        machine, placed, dimm, unit = self.machine, self._placed, self.dimm, self.machine.unit
        weights, transfers = self.dimms.agents.weights, self.dimms.agents.transfers
        groups, interleaving = placed.groups[region], placed.interleaving
        summed = functools.partial(unit.summed, interleaving, region, tokens, cycle_ticks=machine.unit_ticks)
        weights.left[dimm, groups] = _bursts_of_groups(placed)[groups]
        last = groups.stop if region == DOWN else groups.start
        weights.value[dimm] = interleaving.regions[region].bursts, groups.start, last, groups.start, 0
        if region == DOWN:
            self.dimms.put_transfers(dimm, shared.READ, machine.bus_ticks(tokens), [])
            transfers.value[dimm, shared.TRANSFER_GROUPS] = self.rows_per_message
            transfers.value[dimm, shared.TRANSFER_LATENCY] = int(summed(np.zeros(1, dtype=np.int64))[0])
        (run,) = unit.runs(interleaving, region, 0, interleaving.share(0), tokens)
        weights.service[dimm, self._step] = run.parts * machine.part_ticks
        weights.release[dimm, self._step] = release[0]
        self._step += 1
        yield common.WEIGHTS_READ
        return [summed(self.dimms.agents.weights.done[dimm, groups].copy())]

    def read_results(self, tokens: int, known: list[Ints]) -> Awaited[int]:
        """See `program.Lanes`."""
        yield common.TRANSFERS_DONE
        hidden, per_burst = self._hidden, self.rows_per_message
        self.host_bursts += self._activation_bursts(tokens) + tokens * -(-hidden // per_burst)
        return self._transferred() + self.machine.device.read_latency * self.machine.dram_ticks

    def _activation_bursts(self, tokens: int) -> int:
        return -(-tokens * self._hidden // self.rows_per_message)

    def _transferred(self) -> int:
        """The end of the last transfer."""
        return int(self.dimms.agents.buses.end[:, self.dimm].max())


@functools.lru_cache(maxsize=16)
def _bursts_of_groups(placed: Placed) -> Ints:
    """Bursts of each group, over all lanes."""
    counts: Ints = np.zeros(placed.groups[-1].stop + 1, dtype=np.int64)
    for stream in placed.streams:
        counts += np.bincount(stream.groups.first_group, minlength=len(counts))
        counts -= np.bincount(stream.groups.last_group + 1, minlength=len(counts))
    return np.cumsum(counts)[:-1]
