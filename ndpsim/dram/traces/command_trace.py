"""Commands of one channel, as arrays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ndpsim.base.arguments import several, text
from ndpsim.base.errors import InputError, shown
from ndpsim.dram.spec import command_names
from ndpsim.dram.traces.chunks import Columns, whole_numbers

#: The columns of a command trace, in order.
HEADER = ("clock", "command", "rank", "bankgroup", "bank", "row", "column")


@dataclass(frozen=True, eq=False, repr=False)
class CommandTrace(Columns):
    """Commands of one channel in the order of issue: seven integer arrays of one length.

    `clock` counts DRAM clocks. `command` is an index of `names`, by default
    `ndpsim.dram.spec.command_names()`; -1 is a coordinate that is not addressed. Traces are equal if all
    their commands are, by name; they have no hash.

    Raises:
        InputError: a column is not an array of whole numbers, or lengths differ.
    """

    clock: NDArray[np.int64]
    command: NDArray[np.int64]
    rank: NDArray[np.int64]
    bankgroup: NDArray[np.int64]
    bank: NDArray[np.int64]
    row: NDArray[np.int64]
    column: NDArray[np.int64]
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", several(self.names, "names", text) or command_names())
        for name in HEADER:
            object.__setattr__(self, name, whole_numbers(getattr(self, name), name))
        lengths = {name: len(getattr(self, name)) for name in HEADER}
        if len(set(lengths.values())) > 1:
            usual = Counter(lengths.values()).most_common(1)[0][0]
            odd = next(name for name, length in lengths.items() if length != usual)
            problem = f"the columns of a command trace differ in length: {lengths}"
            raise InputError(problem, "conflict", key=odd)

    def __len__(self) -> int:
        return len(self.clock)

    @classmethod
    def of(cls, columns: ArrayLike, names: Sequence[str] = ()) -> Self:
        """The trace from an array whose rows are the seven columns, in the order of `HEADER`.

        Args:
            names: the names of commands by their numbers, by default `ndpsim.dram.spec.command_names()`.

        Raises:
            InputError: it is not an array of seven rows of whole numbers.
        """
        rows = whole_numbers(columns, "columns", dimensions=2)
        if len(rows) != len(HEADER):
            problem = f"has {len(rows)} rows, not {len(HEADER)}: {', '.join(HEADER)}"
            raise InputError(problem, "form", key="columns")
        return cls(
            **dict(zip(HEADER, np.ascontiguousarray(rows), strict=True)), names=several(names, "names", text)
        )

    def columns(self) -> NDArray[np.int64]:
        """All columns as one array, (7, commands)."""
        return np.stack([getattr(self, name) for name in HEADER])

    def take(self, places: NDArray[np.int64]) -> Self:
        """The commands at `places`, which is any index of an array, in this order.

        Raises:
            InputError: it cannot index an array, or is out of range.
        """
        try:
            return self.of(self.columns()[:, places], self.names)
        except Exception:  # an object's own error, too
            problem = f"{shown(places)} are not places of {len(self)} commands"
            raise InputError(problem, "range", key="places") from None

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """The columns by name, as in `HEADER`, with commands by name ("ACT").

        A command without a name is given by its number.
        """
        columns = {name: getattr(self, name) for name in HEADER}
        return {**columns, "command": self.names_of(np.arange(len(self)))}

    def names_of(self, places: NDArray[np.int64]) -> NDArray[Any]:
        """The names of the commands at `places`, or numbers of those without a name.

        Raises:
            InputError: `places` is no array of whole numbers, or out of range.
        """
        places = whole_numbers(places, "places")
        if len(places) and not -len(self) <= places.min() <= places.max() < len(self):
            raise InputError(f"{shown(places)} are not places of {len(self)} commands", "range", key="places")
        number = self.command[places]
        named = (number >= 0) & (number < len(self.names))
        names = np.array(self.names)[np.where(named, number, 0)]
        return names if named.all() else np.where(named, names, number.astype(str))

    def numbered(self, names: Sequence[str]) -> NDArray[np.int64]:
        """The commands by their indices in `names`; -1 if a name is missing.

        Raises:
            InputError: `names` are not several texts.
        """
        if (names := several(names, "names", text)) == self.names:
            return np.where((self.command >= 0) & (self.command < len(names)), self.command, -1)
        number_of = {name: number for number, name in enumerate(names)}
        numbers = np.array([*(number_of.get(name, -1) for name in self.names), -1], dtype=np.int64)
        known = (self.command >= 0) & (self.command < len(self.names))
        return numbers[np.where(known, self.command, len(self.names))]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, CommandTrace):
            return NotImplemented
        if self.names != other.names:
            every = np.arange(len(self)), np.arange(len(other))
            if not np.array_equal(self.names_of(every[0]), other.names_of(every[1])):
                return False
            other = replace(other, command=self.command, names=self.names)
        return all(np.array_equal(getattr(self, name), getattr(other, name)) for name in HEADER)

    def _title(self) -> str:
        return f"CommandTrace of {len(self)} commands"

    def _rows(self) -> Iterable[tuple[str, str]]:
        if not len(self):
            return ()
        counts = zip(*np.unique(self.to_arrays()["command"], return_counts=True), strict=True)
        rows = {
            "clock": f"{self.clock.min()} to {self.clock.max()}",
            "rank": f"{self.rank.min()} to {self.rank.max()}",
            "command": ", ".join(f"{count} {name}" for name, count in counts),
        }
        return rows.items()
