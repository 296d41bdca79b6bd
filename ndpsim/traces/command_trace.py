"""Commands of one channel, as arrays."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["HEADER", "CommandTrace"]

#: The columns of a command trace, in order.
HEADER = ("clock", "command", "rank", "bankgroup", "bank", "row", "column")


@dataclass(frozen=True, eq=False)
class CommandTrace:
    """Commands of one channel in the order of issue: seven integer arrays of one length.

    `command` is a place in `ndpsim.spec.COMMANDS`; -1 stands for a coordinate that is not addressed.
    """

    clock: NDArray[np.int64]
    command: NDArray[np.int64]
    rank: NDArray[np.int64]
    bankgroup: NDArray[np.int64]
    bank: NDArray[np.int64]
    row: NDArray[np.int64]
    column: NDArray[np.int64]

    def __post_init__(self) -> None:
        for field in fields(self):
            object.__setattr__(self, field.name, np.asarray(getattr(self, field.name), dtype=np.int64))
        lengths = {field.name: getattr(self, field.name).shape for field in fields(self)}
        if len(set(lengths.values())) > 1 or len(lengths["clock"]) != 1:
            raise ValueError(f"the arrays of a command trace have different shapes: {lengths}")

    def __len__(self) -> int:
        return len(self.clock)

    @classmethod
    def of(cls, columns: ArrayLike) -> Self:
        """The trace whose seven columns, in the order of `HEADER`, are the rows of `columns`."""
        return cls(*np.ascontiguousarray(columns, dtype=np.int64).reshape(len(HEADER), -1))

    def columns(self) -> NDArray[np.int64]:
        """All columns as one array, (7, commands)."""
        return np.stack([getattr(self, name) for name in HEADER])

    def take(self, places: NDArray[np.int64]) -> Self:
        """The commands at `places`, in that order."""
        return self.of(self.columns()[:, places])
