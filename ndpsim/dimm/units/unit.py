"""The interface of a multiplier unit. Each is a file of this package, found by its name in hardware files.

A unit takes the bursts of each lane from a FIFO (`dram.sink`), in the order of their reads. Bursts belong to
groups. The unit defines the groups, and the rows of weights that are summed after each group.
"""

from __future__ import annotations

import functools
import importlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from fractions import Fraction
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from ndpsim.base.errors import InputError
from ndpsim.dimm.layout import (
    ExpertFormat,
    ExpertWeights,
    Geometry,
    Interleaving,
    LaneShare,
    Layout,
    make_layout,
)

Ints = NDArray[np.int64]


class Run(NamedTuple):
    """Consecutive bursts of a lane that occupy their servers for equal times."""

    bursts: int
    parts: int  # parts of a cycle for which each burst holds its server
    gap_cycles: int = 0  # cycles after the last of them before the next burst


@dataclass(frozen=True)
class MultiplierUnit(ABC):
    """A multiplier unit; cycles are cycles of its own clock.

    Attributes:
        PARTS: parts of a cycle, the unit of `Run.parts`.
        buffer_bytes: size of the buffer for activations and intermediate results.
        activation_bytes: bytes of one activation.
        fifo_bursts: size of each lane's FIFO in bursts.
    """

    PARTS: ClassVar[int] = 1

    buffer_bytes: int
    activation_bytes: int
    fifo_bursts: int

    @classmethod
    def of(cls, section: Mapping[str, Any]) -> Self:
        """Make the unit from its section of a hardware file, which has a key for each field."""
        keys = {**section, "buffer_bytes": section["buffer_kib"] * 1024}
        return cls(**{field.name: keys[field.name] for field in fields(cls)})

    # Capacity, and locations of weights.

    @property
    def tokens_at_once(self) -> int | None:
        """Maximum number of tokens for one read of the weights; None: as many as fit the buffer."""
        return None

    def tile(self, tokens: int, hidden: int, intermediate: int) -> tuple[int, ...]:
        """The tokens of each tile: the minimum number of tiles that fit the buffer, as equal as possible.

        The weights are read once for each tile. A token needs room for its `hidden` inputs and its
        `intermediate` values; its `hidden` results then replace its inputs, which gate and up do not need any
        more.

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
        """The locations of an expert's weights; `base`: the first free place of every lane.

        Raises:
            InputError: it cannot read such a layout, or the weights do not fit.
        """
        return make_layout(layout, geometry, weights, base=base)

    def check_format(self, written: ExpertFormat) -> None:
        """Make sure that the unit can multiply weights of these formats.

        Raises:
            InputError: it cannot.
        """
        return

    # Time of bursts.

    def group_counts(self, interleaving: Interleaving) -> tuple[int, ...]:
        """Groups of each region. By default a group is a row of weights."""
        return tuple(region.rows for region in interleaving.regions)

    def groups(self, interleaving: Interleaving, lanes: range, share: LaneShare) -> tuple[Ints, Ints]:
        """The first and the last group of each burst of a lane with `share`, in any of equal neighbours."""
        return interleaving.rows(lanes, share)

    def reads_of(self, interleaving: Interleaving, lane: int, share: LaneShare) -> object:
        """A key that is equal for lanes with equal runs; `share` is read on each of them."""
        return share

    def servers(self, interleaving: Interleaving, region: int) -> int:
        """Number of bursts of a region that a lane's multipliers process at once."""
        return 1

    @abstractmethod
    def runs(
        self, interleaving: Interleaving, region: int, lane: int, share: LaneShare, tokens: int
    ) -> Sequence[Run]:
        """The times for which the bursts of a region on a lane occupy the servers."""

    # Time of sums.

    @abstractmethod
    def summed(
        self, interleaving: Interleaving, region: int, tokens: int, done: Ints, cycle_ticks: int
    ) -> Ints:
        """int64[row]: the tick at which each row of a region is summed; `done`: the ends of groups."""

    def row_spacing(self, tokens: int) -> int:
        """Cycles from the sums of a row until those of the next can leave; 0: they leave together."""
        return 0

    # Peak and energy.

    @abstractmethod
    def cycles_for_product(self, lanes: int, burst_bytes: int, bits: int) -> Fraction:
        """Cycles of the whole unit for a product with a weight of `bits` bits, at its peak."""

    @abstractmethod
    def native_share(self, bits: int) -> Fraction:
        """Energy of a product with a weight of `bits` bits, relative to one at native bits."""


def find_unit(name: str, section: Mapping[str, Any]) -> MultiplierUnit:
    """The unit that a hardware file calls `name`, from the file of this name in the package."""
    unit: MultiplierUnit = importlib.import_module(f"ndpsim.dimm.units.{name}").UNIT.of(section)
    return unit


@dataclass(frozen=True)
class ActivationUnit:
    """Pipelined function units in parallel; cycles are cycles of their own clock.

    Attributes:
        units: number of values at once.
        cycles_per_value: cycles between two values of one unit, for which its input register holds a value.
        latency_cycles: cycles from then to the result.
    """

    units: int
    cycles_per_value: int
    latency_cycles: int

    def done(self, ready: Ints, tokens: int, cycle_ticks: int) -> int:
        """The tick at which the last value is activated.

        Args:
            ready: int64[n], the tick at which gate and up of each of n rows are known, in order of
                processing. tokens: values of every row, one for each token.
            cycle_ticks: ticks in a cycle of the unit.
        """
        service = -(-tokens // self.units) * self.cycles_per_value
        # Service takes whole cycles: rounding the end to an edge equals rounding each start.
        end = last_served(ready, service * cycle_ticks)
        return (-(-end // cycle_ticks) + self.latency_cycles) * cycle_ticks


def last_served(ready: Ints, service: int) -> int:
    """The end of the last job, if jobs run one at a time in the given order, each for `service`.

    ``done[n] = max(done[n - 1], ready[n]) + service``. After the last job that finds the server idle there is
    no pause. The end is therefore the maximum, over jobs, of the end without a pause after this job's start.

    Args:
        ready: int64[n], the earliest start of each job; at least one.
        service: the time of each job, in the same unit.
    """
    return int((ready + _served_within(len(ready), service)).max())


@functools.lru_cache(maxsize=16)
def _served_within(jobs: int, service: int) -> Ints:
    """The time from the start of each of some jobs to the end of the last one, without a pause."""
    return service * np.arange(jobs, 0, -1)
