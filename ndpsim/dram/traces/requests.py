"""Request traces: requests of a processor to memory."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ndpsim.base.arguments import path_of
from ndpsim.base.errors import InputError
from ndpsim.dram.traces.chunks import Columns, whole_numbers
from ndpsim.dram.traces.request_format import COORDINATES


@dataclass(frozen=True, eq=False, repr=False)
class Requests(Columns):
    """Requests in their order; every array has an element, or a row, for each of them.

    Attributes:
        address: byte addresses, int64[n]; None if `place` locates the requests.
        write: 1 where a request writes, int8[n].
        cycle: the earliest clock of each request, int64[n], never decreasing; None: there is no limit.
        place: channel, rank, bankgroup, bank, row, column, int32[n, 6]; a column is a burst of the row.
        file: the file that they were read from.
        format: the name of its format.
        skipped: for each line of the file without a request, the number of requests before it; None: there
            are no such lines.
        first_line: the line of the file at which they begin, from 1.

    Equality compares the requests, not their files; they have no hash.

    Raises:
        InputError: an array has another type or length, there are no requests, or they have neither addresses
            nor places.
    """

    address: NDArray[np.int64] | None
    write: NDArray[np.int8]
    file: str | None = None
    cycle: NDArray[np.int64] | None = None
    place: NDArray[np.int32] | None = None
    format: str | None = None
    skipped: NDArray[np.int64] | None = None
    first_line: int = 1

    def __post_init__(self) -> None:
        forms: dict[str, tuple[Any, str, int]] = {
            "address": (np.int64, "iu", 1),
            "write": (np.int8, "iub", 1),
            "cycle": (np.int64, "iu", 1),
            "place": (np.int32, "iu", 2),
            "skipped": (np.int64, "iu", 1),
        }
        for name, form in forms.items():
            if name == "write" or getattr(self, name) is not None:
                object.__setattr__(self, name, whole_numbers(getattr(self, name), name, *form))
        if (self.address is None) == (self.place is None):
            raise InputError("requests have either addresses or places", "conflict", key="address")
        if not len(self):
            problem = "there are no requests"
            raise InputError(problem, "missing", file=self.file, key=None if self.file else "requests")
        if self.write.min() < 0 or self.write.max() > 1:
            raise InputError("a write is neither 0 nor 1", "range", key="write")
        for name in ("address", "cycle", "place"):
            self._check(name, getattr(self, name))

    def _check(self, name: str, values: NDArray[Any] | None) -> None:
        """Raise InputError if a column does not fit the requests."""
        if values is None:
            return
        if len(values) != len(self):
            raise InputError(f"there are {len(values)} for {len(self)} requests", "conflict", key=name)
        if name == "place" and values.shape[1] != len(COORDINATES):
            raise InputError(f"{values.shape[1]} coordinates, not {len(COORDINATES)}", "form", key=name)
        if name != "place" and values.min() < 0:  # the memory checks whether it has the places
            raise InputError(f"{values.min()} is negative", "range", key=name)
        if name == "cycle" and (values[1:] < values[:-1]).any():
            raise InputError("cycles decrease", "invalid", key=name)

    def __len__(self) -> int:
        return len(self.write)

    @classmethod
    def of(cls, address: ArrayLike, write: ArrayLike, file: str | None = None) -> Self:
        """Requests at byte addresses.

        Args:
            address: whole numbers from 0, one for each request.
            write: 1 or True for each write.
            file: their file, for messages.

        Raises:
            InputError: the arrays are empty, have different lengths, or have values other than whole numbers
                from 0.
        """
        return cls(
            whole_numbers(address, "address"),
            whole_numbers(write, "write", np.int8, "iub"),
            None if file is None else str(path_of(file, "file")),
        )

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """The columns by name: `address` in bytes, or the coordinates; `write` as bools; `cycle` if timed."""
        columns: dict[str, NDArray[Any]] = {}
        if self.address is not None:
            columns["address"] = self.address
        if self.place is not None:
            columns |= dict(zip(COORDINATES, self.place.T, strict=True))
        columns["write"] = self.write == 1
        return columns if self.cycle is None else columns | {"cycle": self.cycle}

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Requests):
            return NotImplemented
        ours, theirs = self.to_arrays(), other.to_arrays()
        return ours.keys() == theirs.keys() and all(np.array_equal(ours[name], theirs[name]) for name in ours)

    def _title(self) -> str:
        return f"Requests: {len(self)}"

    def _rows(self) -> Iterable[tuple[str, str]]:
        writes = int(np.count_nonzero(self.write))
        rows = {"reads": str(len(self) - writes), "writes": str(writes)}
        rows |= {
            name: f"{values.min()} to {values.max()}"
            for name, values in self.to_arrays().items()
            if name != "write"
        }
        if self.file is not None:
            rows["file"] = self.file
        return rows.items()

    def line(self, request: int) -> int | None:
        """The line number of a request in its file, from 1."""
        if self.file is None:
            return None
        skipped = 0 if self.skipped is None else int(np.searchsorted(self.skipped, request, side="right"))
        return self.first_line + request + skipped
