"""Locations of experts during a run, and the bytes that they take."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ndpsim.base.errors import InputError
from ndpsim.base.units import shortfall
from ndpsim.inference.layers.location import Location
from ndpsim.inference.processors.devices import weight_bytes
from ndpsim.policies.views import STRIPED, LayerPlacement, Machine, Placement


def check_total(machine: Machine, dimms: int, dimm_bytes: int, kv: int) -> None:
    """Make sure that all DIMMs together have room for the experts and `kv` bytes, before any placement.

    Raises:
        InputError: they have not.
    """
    layers, experts = machine.shape
    needed = kv + layers * experts * machine.expert_bytes
    if needed > dimms * dimm_bytes:
        where = "DIMM 0" if dimms == 1 else f"the memory of all {dimms} DIMMs"
        raise _too_small(machine, where, needed, dimms * dimm_bytes)


def _too_small(machine: Machine, where: str, needed: float, has: int) -> InputError:
    problem = f"{machine.model.name} does not fit: {where} {shortfall(needed, has)}"
    more = "Use more memory, fewer bits or a shorter context"
    return InputError(f"{problem}. {more}", "too-large", key="dimm")


class Places:
    """The placement of all experts, as it changes.

    Attributes:
        now: as policies see it; its arrays cannot be written through it.
        moving: flags [layer, expert]: a migration of it is not done.
        gpu_room: experts that the GPU's memory has room for now, with those that are there.
        gpu_free: experts that it has room for besides.
        gpu_bits: by row and expert, bits of copies with the GPU, or on their way, that are replicas.

    Raises:
        InputError: "not supported": a DIMM has not the bytes for what is to lie on it, or the host's memory
            not for experts and the KV cache.
    """

    def __init__(self, placement: Placement, machine: Machine, dimms: int, dimm_bytes: int, kv: int) -> None:
        self._dimm = placement.dimm.copy()
        self._shards = placement.shards.copy()
        self._resident = placement.resident.copy()
        self._machine, self._dimms, self._capacity = machine, dimms, dimm_bytes
        self._arriving = np.zeros_like(self._resident)
        self._moving = np.zeros_like(self._resident)
        self._layers: dict[int, tuple[LayerPlacement, NDArray[np.bool_]]] = {}
        self._show(placement.replicas)
        self.gpu_room = machine.gpu_experts
        self.gpu_free = self.gpu_room - int(self._resident.sum())
        self.gpu_bits: dict[tuple[int, int], int] = {}
        sizes = [weight_bytes(machine.model.expert, bits) for bits in placement.replicas]
        self._stored_bytes = machine.expert_bytes + sum(sizes)
        self._used = np.full(dimms, kv / dimms)
        for location, count in _experts_by_location(self._dimm, self._shards).items():
            self._take(location, count)
        full = int(np.argmax(self._used))
        if self._used[full] > dimm_bytes:
            raise _too_small(machine, f"DIMM {full}", self._used[full], dimm_bytes)

    def _show(self, replicas: tuple[int, ...]) -> None:
        self.now = Placement(_frozen(self._dimm), _frozen(self._shards), _frozen(self._resident), replicas)
        self.moving = _frozen(self._moving)

    def copy(self) -> Places:
        """Another placement, which changes by itself."""
        other = copy.copy(self)
        for name in ("_dimm", "_shards", "_resident", "_arriving", "_moving", "_used", "gpu_bits", "_layers"):
            setattr(other, name, getattr(self, name).copy())
        other._show(self.now.replicas)
        return other

    def _take(self, location: Location, count: int) -> None:
        dimm, shards = location
        chosen = slice(None) if dimm == STRIPED else slice(dimm, dimm + shards)
        self._used[chosen] += count * self._stored_bytes / (self._dimms if dimm == STRIPED else shards)

    def location(self, row: int, expert: int) -> Location:
        """The location of an expert."""
        return Location(int(self._dimm[row, expert]), int(self._shards[row, expert]))

    def layer(self, row: int) -> tuple[LayerPlacement, NDArray[np.bool_]]:
        """A layer's placement as it is now, for good, and flags of experts on their way to the GPU."""
        found = self._layers.get(row)
        if found is None:
            *parts, arriving = (
                _frozen(of[row].copy()) for of in (self._dimm, self._shards, self._resident, self._arriving)
            )
            found = self._layers[row] = LayerPlacement(*parts), arriving
        return found

    def _change(self, row: int) -> None:
        """Something changes in a layer."""
        self._layers.pop(row, None)

    def start_to_gpu(self, row: int, expert: int, bits: int | None) -> None:
        """A copy is decided, of a replica of this many bits or in full: it takes room from now on."""
        self._change(row)
        if bits is not None:
            self.gpu_bits[row, expert] = bits
        self._moving[row, expert] = self._arriving[row, expert] = True
        self.gpu_free -= 1

    def end_to_gpu(self, row: int, expert: int) -> None:
        """It has arrived."""
        self._change(row)
        self._moving[row, expert] = self._arriving[row, expert] = False
        self._resident[row, expert] = True

    def keep(self, row: int, expert: int) -> None:
        """The copy that a layer has made stays."""
        self._change(row)
        self._resident[row, expert] = True
        self.gpu_free -= 1

    def evict(self, row: int, expert: int) -> int | None:
        """The GPU's copy is given up; its bits, None: in full."""
        self._change(row)
        bits = self.gpu_bits.pop((row, expert), None)
        self._resident[row, expert] = False
        self.gpu_free += 1
        return bits

    def start_move(self, row: int, expert: int, to: int) -> bool:
        """A move to another DIMM, or to all, is decided. False: there is no room."""
        self._take(Location(to), 1)
        if self._used.max() > self._capacity:
            self._take(Location(to), -1)
            return False
        self._moving[row, expert] = True
        return True

    def end_move(self, row: int, expert: int, to: int) -> None:
        """It lies there."""
        self._change(row)
        self._take(self.location(row, expert), -1)
        self._moving[row, expert] = False
        self._dimm[row, expert], self._shards[row, expert] = to, 1


def _frozen(array: NDArray[Any]) -> NDArray[Any]:
    view = array.view()
    view.flags.writeable = False
    return view


def _experts_by_location(dimm: NDArray[np.int16], shards: NDArray[np.int16]) -> dict[Location, int]:
    pairs, counts = np.unique(np.stack([dimm.ravel(), shards.ravel()], axis=1), axis=0, return_counts=True)
    return {Location(int(d), int(s)): int(count) for (d, s), count in zip(pairs, counts, strict=True)}
