"""The interface of a multiplier unit. Each is a file of this package, found by its name in hardware files.

A unit takes the bursts of each lane from a FIFO (`dram.sink`), in the order in which they are read. Bursts
belong to groups; what a group is, and which rows of weights are summed when it is done, the unit alone says.
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from fractions import Fraction
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from ndpsim.errors import InputError
from ndpsim.layout import ExpertFormat, ExpertWeights, Geometry, Interleaving, LaneShare, Layout, make_layout

Ints = NDArray[np.int64]


class Run(NamedTuple):
    """Bursts of a lane, one after the other, that hold what they are multiplied by equally long."""

    bursts: int
    parts: int  # of a cycle, for which each holds it
    gap_cycles: int = 0  # that pass behind the last of them before the next burst is taken


@dataclass(frozen=True)
class MultiplierUnit(ABC):
    """A unit as its section of a hardware file says; cycles are of its own clock.

    Attributes:
        PARTS: of a cycle, in which `Run.parts` counts.
        buffer_bytes: activations and intermediate results.
        activation_bytes: bytes of one activation.
        fifo_bursts: bursts each lane's FIFO holds.
    """

    PARTS: ClassVar[int] = 1

    buffer_bytes: int
    activation_bytes: int
    fifo_bursts: int

    @classmethod
    def of(cls, section: Mapping[str, Any]) -> Self:
        """The unit of a section of a hardware file, which has a key for each field."""
        keys = {**section, "buffer_bytes": section["buffer_kib"] * 1024}
        return cls(**{field.name: keys[field.name] for field in fields(cls)})

    # Its capacity, and the locations of its weights.

    @property
    def tokens_at_once(self) -> int | None:
        """The most tokens that it multiplies with weights read once; None: all that its buffer holds."""
        return None

    def tile(self, tokens: int, hidden: int, intermediate: int) -> tuple[int, ...]:
        """The tokens of each tile: the fewest tiles that fit its buffer, as even as they can be.

        The weights are read once a tile. A token needs its `hidden` inputs and its `intermediate` values; its
        `hidden` results then take the place of its inputs, which gate and up have used.

        Raises:
            InputError: not even one token fits.
        """
        per_token = (hidden + intermediate) * self.activation_bytes
        most = self.buffer_bytes // per_token
        if most == 0:
            name = type(self).__module__.rpartition(".")[2]
            problem = (
                f"one token needs {per_token} bytes of activations, the buffer holds {self.buffer_bytes}"
            )
            raise InputError(f"not supported: {problem}", "too-large", key=f"ndp.{name}.buffer_kib")
        count = -(-tokens // min(most, self.tokens_at_once or most))
        share, larger = divmod(tokens, count)
        return (share + 1,) * larger + (share,) * (count - larger)

    def place(self, layout: str, geometry: Geometry, weights: ExpertWeights, base: int) -> Layout:
        """The locations from which it reads an expert; `base`: the first free place of every lane.

        Raises:
            InputError: it cannot read such a layout, or the weights do not fit.
        """
        return make_layout(layout, geometry, weights, base=base)

    def check_format(self, written: ExpertFormat) -> None:
        """Make sure that it can multiply weights of such bits.

        Raises:
            InputError: it cannot.
        """
        return

    # The work of bursts.

    def group_counts(self, interleaving: Interleaving) -> tuple[int, ...]:
        """Groups of each region. By default a group is a row of weights."""
        return tuple(region.rows for region in interleaving.regions)

    def groups(self, interleaving: Interleaving, lanes: range, share: LaneShare) -> tuple[Ints, Ints]:
        """The first and the last group of each burst of a lane with `share`, in any of equal neighbours."""
        return interleaving.rows(lanes, share)

    def reads_of(self, interleaving: Interleaving, lane: int, share: LaneShare) -> object:
        """A key that is equal for lanes that run alike; `share` is read on each of them."""
        return share

    def servers(self, interleaving: Interleaving, region: int) -> int:
        """Bursts of a region that are multiplied at once, of a lane."""
        return 1

    @abstractmethod
    def runs(
        self, interleaving: Interleaving, region: int, lane: int, share: LaneShare, tokens: int
    ) -> Sequence[Run]:
        """How long the bursts of a region on a lane hold the servers."""

    # The end of a job.

    @abstractmethod
    def summed(
        self, interleaving: Interleaving, region: int, tokens: int, done: Ints, cycle_ticks: int
    ) -> Ints:
        """int64[row]: when each row of a region is summed; `done`: when the bursts of each group are done."""

    # Its limit, its energy, and its check.

    @abstractmethod
    def cycles_for_product(self, lanes: int, burst_bytes: int, bits: int) -> Fraction:
        """Cycles of the whole unit for a product with a weight of `bits` bits, at its limit."""

    @abstractmethod
    def native_share(self, bits: int) -> Fraction:
        """Energy of a product with a weight of `bits` bits, as a share of one at native bits."""

    def agrees_with_twin(self, interleaving: Interleaving, tokens: int) -> bool:
        """Whether the unit's timing is that of a readable simulation of it, where there is one."""
        return True


def find_unit(name: str, section: Mapping[str, Any]) -> MultiplierUnit:
    """The unit that a hardware file calls `name`, from the file of this name in the package."""
    unit: MultiplierUnit = importlib.import_module(f"ndpsim.ndp.{name}").UNIT.of(section)
    return unit
