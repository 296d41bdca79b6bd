"""Request traces as streams of blocks, and whole."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from fractions import Fraction
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ndpsim.base.arguments import choice, path_of
from ndpsim.base.errors import InputError, shown
from ndpsim.base.limits import ensure_fits
from ndpsim.dram.traces.reader import TraceFile
from ndpsim.dram.traces.request_format import request_formats
from ndpsim.dram.traces.requests import Requests

_BYTES_OF_A_REQUEST = 64  # bytes of memory for a request that is held, while its column is joined
_LAST_CLOCK = 1 << 62
_BYTES_SKIPPED = 64  # bytes of memory for a line without a request, of which most files have few


class RequestStream:
    """Requests that come in blocks, so that they need not fit into memory; it can be iterated once.

    Args:
        blocks: each `Requests`, or (byte addresses, 1 where a write), or these and the earliest clocks; all
            have the same columns. Empty ones are left out.
        file: their file.
        share_read: computes the share of the blocks that were given.

    Attributes:
        file: as above.
        timed: whether requests have times.
        by_place: whether they have coordinates instead of addresses.
        whole: the requests, if they are one block that is in memory.

    Raises:
        InputError: there are no requests, or the first block is invalid.
    """

    def __init__(
        self,
        blocks: Iterable[Any],
        file: str | None = None,
        share_read: Callable[[], float] | None = None,
    ) -> None:
        self.file, self._share_read = file, share_read
        several = (_block_of(block) for block in blocks)
        self._blocks: Iterator[Requests] = (block for block in several if block is not None)
        first = next(self._blocks, None)
        if first is None:
            raise InputError("there are no requests", "missing", file=file, key=None if file else "requests")
        self.timed, self.by_place = first.cycle is not None, first.address is None
        self.whole = first if isinstance(blocks, list) and len(blocks) == 1 else None
        self._blocks = chain((first,), self._blocks)

    @property
    def count(self) -> int | None:
        """The number of requests, if it is known."""
        return None if self.whole is None else len(self.whole)

    def expected(self, read: int) -> float:
        """The expected number of all requests when so many were read; 0: it is not known."""
        if self.count is not None or self._share_read is None:
            return self.count or 0.0
        share = self._share_read()
        return read / share if share > 0 else 0.0

    def __iter__(self) -> Iterator[Requests]:
        cycle, key = 0, None if self.file else "requests"
        for block in self._blocks:
            if (block.cycle is not None, block.address is None) != (self.timed, self.by_place):
                problem = "a block has other columns than the first one"
                raise InputError(problem, "conflict", key=key)
            if block.cycle is not None:
                if block.cycle[0] < cycle:
                    raise InputError("cycles decrease", "invalid", file=self.file, key=key)
                cycle = int(block.cycle[-1])
            yield block

    def at_clock(self, clocks_per_cycle: Fraction) -> RequestStream:
        """The requests with their cycles converted to clocks of another length, rounded up.

        Raises:
            InputError: they have no times, or, when they are read, a clock is beyond 2^62.
        """
        if not self.timed:
            problem = "the requests have no cycles"
            raise InputError(problem, "conflict", file=self.file, key=None if self.file else "requests")
        blocks = (replace(block, cycle=self._clocks(block, clocks_per_cycle)) for block in self)
        if self.whole is not None:
            return RequestStream(list(blocks), self.file)
        return RequestStream(blocks, self.file, self._share_read)

    def _clocks(self, block: Requests, clocks_per_cycle: Fraction) -> NDArray[np.int64]:
        assert block.cycle is not None
        clocks, cycles = clocks_per_cycle.numerator, clocks_per_cycle.denominator
        if (int(block.cycle[-1]) // cycles + 1) * clocks > _LAST_CLOCK or clocks * cycles > _LAST_CLOCK:
            problem = f"cycle {int(block.cycle[-1])} is beyond {_LAST_CLOCK:.0e} clocks of the memory"
            raise InputError(problem, "range", file=self.file)
        whole, rest = np.divmod(block.cycle, cycles)
        converted: NDArray[np.int64] = whole * clocks - (-rest * clocks // cycles)
        return converted

    def joined(self) -> Requests:
        """All requests, in memory.

        Raises:
            InputError: they do not fit into memory, or a block is invalid.
        """
        if self.whole is not None:
            return self.whole
        parts: dict[str, list[Any]] = {"address": [], "write": [], "cycle": [], "place": []}
        skipped: list[NDArray[np.int64]] = []
        read, lines, format_ = 0, 0, None
        for block in self:
            if block.skipped is not None:  # after the lines between two blocks
                skipped += [np.full(block.first_line - 1 - read - lines, read), block.skipped + read]
                lines += len(skipped[-2]) + len(skipped[-1])
            read, format_ = read + len(block), block.format
            for name, of_column in parts.items():
                if getattr(block, name) is not None:
                    of_column.append(getattr(block, name))
            needed = read * _BYTES_OF_A_REQUEST + lines * _BYTES_SKIPPED
            ensure_fits(needed, f"{read} requests or more in {read + lines} lines", file=self.file)
        columns: dict[str, Any] = {name: _joined(of_column) for name, of_column in parts.items()}
        lines_skipped = np.concatenate(skipped) if skipped else None
        return Requests(**columns, file=self.file, format=format_, skipped=lines_skipped)


def _joined(parts: list[NDArray[Any]]) -> NDArray[Any] | None:
    """The parts as one array; they are freed, so that only one column at a time is held twice."""
    full = parts[:]
    parts.clear()
    if not full:
        return None
    return full[0] if len(full) == 1 else np.concatenate(full)


def _block_of(given: Any) -> Requests | None:
    """A block of `RequestStream`; None if it is empty."""
    if isinstance(given, Requests):
        return given
    if not isinstance(given, (tuple, list)) or len(given) not in (2, 3):
        problem = f"{shown(given)} is neither Requests nor (byte addresses, 1 where a write[, clocks])"
        raise InputError(problem, "type", key="requests")
    if all(np.size(column) == 0 for column in given):
        return None
    address, write, *cycle = given
    try:
        return Requests(address, write, cycle=cycle[0] if cycle else None)
    except InputError as error:
        problem = error.problem if error.key == "requests" else str(error)
        raise InputError(problem, error.code, key="requests") from None


def stream_of(given: Any) -> RequestStream:
    """The requests of an argument: a path, `Requests`, arrays, or an iterator of blocks.

    Raises:
        InputError: it is none of these, or the first block is invalid.
    """
    if isinstance(given, RequestStream):
        return given
    if isinstance(given, Requests):
        return RequestStream([given], given.file)
    if isinstance(given, (str, os.PathLike)):
        return stream_requests(path_of(given, "requests"))
    if isinstance(given, (tuple, list)) and len(given) == 2:
        block = _block_of(given)
        return RequestStream([block] if block is not None else [])
    if isinstance(given, Iterator):
        return RequestStream(given)
    problem = (
        "is neither a path, nor Requests, nor (byte addresses, 1 where a write), nor an iterator of these"
    )
    raise InputError(f"{shown(given)} {problem}", "type", key="requests")


def stream_requests(path: str | os.PathLike[str], format: str | None = None) -> RequestStream:
    """The requests of a trace, as they are read; for arguments and errors see `read_requests`."""
    if format is not None:
        choice(format, "format", request_formats(), "request trace format")
    path = path_of(path, "path")
    file = TraceFile(path, None if format is None else request_formats()[format])
    return RequestStream(file.blocks(), str(path), lambda: file.share_read)


def read_requests(path: str | os.PathLike[str], format: str | None = None) -> Requests:
    """Read a request trace, gzip-compressed or not, in `format` or in its detected format.

    The format is detected from the first line that is neither blank nor a comment. Line ends are LF or CR LF;
    a UTF-8 byte order mark and blank lines at the end are skipped; fields may have any spaces and tabs
    between them. A file of NumPy (``numpy.save``) has an array of records with the columns of
    `Requests.to_arrays`: address, or the six coordinates; write; and cycle if it is timed.

    >>> from pathlib import Path
    >>> _ = Path("two.trace").write_text("LD 0x0\\nST 0x40\\n")
    >>> len(ndpsim.read_requests("two.trace"))
    2

    Raises:
        InputError: `format` is unknown; the file cannot be read, is damaged, or holds no request; or a line
            is bad (the first is named); or there are more requests than fit in the allowed memory
            (`limits.memory_limit`).
    """
    return stream_requests(path, format).joined()
