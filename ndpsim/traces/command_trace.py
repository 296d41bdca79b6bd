"""Commands of one channel, as arrays."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ndpsim.arguments import shown
from ndpsim.errors import InputError
from ndpsim.reported import text_table
from ndpsim.spec import COMMANDS
from ndpsim.traces.columns import data_frame, whole_numbers

__all__ = ["HEADER", "CommandTrace"]

#: The columns of a command trace, in order.
HEADER = ("clock", "command", "rank", "bankgroup", "bank", "row", "column")

_NAMES = tuple(command.name for command in COMMANDS)


@dataclass(frozen=True, eq=False, repr=False)
class CommandTrace:
    """Commands of one channel in the order of issue: seven integer arrays of one length.

    `clock` counts DRAM clocks. `command` is a place in `ndpsim.spec.COMMANDS`; -1 stands for a coordinate
    that is not addressed. Traces are equal when all their commands are; they have no hash.

    Raises:
        InputError: a column is no array of whole numbers, or they are of different lengths.
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
            object.__setattr__(self, field.name, whole_numbers(getattr(self, field.name), field.name))
        lengths = {field.name: len(getattr(self, field.name)) for field in fields(self)}
        if len(set(lengths.values())) > 1:
            usual = Counter(lengths.values()).most_common(1)[0][0]
            odd = next(name for name, length in lengths.items() if length != usual)
            raise InputError(f"the columns of a command trace differ in length: {lengths}", key=odd)

    def __len__(self) -> int:
        return len(self.clock)

    @classmethod
    def of(cls, columns: ArrayLike) -> Self:
        """The trace whose seven columns, in the order of `HEADER`, are the rows of `columns`.

        Raises:
            InputError: it is no array of seven rows of whole numbers.
        """
        rows = whole_numbers(columns, "columns", dimensions=2)
        if len(rows) != len(HEADER):
            raise InputError(f"has {len(rows)} rows, not {len(HEADER)}: {', '.join(HEADER)}", key="columns")
        return cls(*np.ascontiguousarray(rows))

    def columns(self) -> NDArray[np.int64]:
        """All columns as one array, (7, commands)."""
        return np.stack([getattr(self, name) for name in HEADER])

    def take(self, places: NDArray[np.int64]) -> Self:
        """The commands at `places`, in that order; `places` is all that indexes an array.

        Raises:
            InputError: it is nothing of the kind, or there are no such places.
        """
        try:
            return self.of(self.columns()[:, places])
        except (IndexError, ValueError):
            raise InputError(
                f"{shown(places)} are not places of {len(self)} commands", key="places"
            ) from None

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """The columns by name, as `HEADER` has them, with commands by their names ("ACT").

        A command that has no name is given as its number.
        """
        number = self.command
        named = (number >= 0) & (number < len(_NAMES))
        names = np.array(_NAMES)[np.where(named, number, 0)]
        names = names if named.all() else np.where(named, names, number.astype(str))
        return {name: names if name == "command" else getattr(self, name) for name in HEADER}

    def to_pandas(self) -> Any:
        """`to_arrays` as a pandas DataFrame, a command a row.

        Raises:
            InputError: pandas is not installed.
        """
        return data_frame(self.to_arrays())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, CommandTrace):
            return NotImplemented
        return all(np.array_equal(getattr(self, name), getattr(other, name)) for name in HEADER)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        if not len(self):
            return "CommandTrace of 0 commands"
        counts = zip(*np.unique(self.to_arrays()["command"], return_counts=True), strict=True)
        rows = {
            "clock": f"{self.clock.min()} to {self.clock.max()}",
            "rank": f"{self.rank.min()} to {self.rank.max()}",
            "command": ", ".join(f"{count} {name}" for name, count in counts),
        }
        return text_table(f"CommandTrace of {len(self)} commands", rows.items())
