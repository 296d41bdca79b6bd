"""Shared parts of formats of recorded requests: checked rows of a file."""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from ndpsim.base.errors import InputError, shown
from ndpsim.base.limits import ensure_fits
from ndpsim.base.text_files import numbered_lines
from ndpsim.workload.requests.requests import LATEST_NS, MOST_TOKENS, Measured, Numbers, Requests

T = TypeVar("T")

_BLOCK = 1 << 16  # requests that a sink takes at a time
_REQUEST_BYTES, _ID_BYTES, _CHAIN_BYTES = 64, 100, 48  # of memory for a request, its name, and a block of it
_LARGEST = 1e300  # of a number of JSON
# As pandas writes numbers: 128.0 for a whole number in a column with gaps, 1e-05 for a small one.
_WHOLE = re.compile(r"([0-9]{1,18})(\.0{1,40})?", re.ASCII)
_DECIMAL = re.compile(r"[0-9]{1,18}(\.[0-9]{0,40})?([eE][+-]?[0-9]{1,2})?", re.ASCII)


@dataclass(frozen=True)
class WorkloadFormat:
    """A format of recorded requests.

    Attributes:
        example: a line of such a file.
        meaning: a phrase that names the program and its file.
        recognises: whether a file has this format, from its path and first bytes.
        read: reads a file, up to a number of requests (None: all), with the sink of `RecordedRequests`. With
            `has_runs`, its fourth argument is the number of a run, from 1; None: the file's only run.
        has_runs: whether a file may have several runs of a load generator.
    """

    example: str
    meaning: str
    recognises: Callable[[Path, bytes], bool]
    read: Callable[..., Requests]
    has_runs: bool = False


#: Takes requests block by block, in the order of the file.
Sink = Callable[[Requests], None]


class RecordedRequests:
    """Requests as they are read, row by row.

    Args:
        file: the file.
        most: maximum number of requests; None: all.
        arrival, prompt, output: the file's names of these columns or keys, for messages.
        sink: takes blocks of requests as soon as they are read, so that memory does not grow with the file;
            for files whose requests have neither names nor blocks. None: all are kept.
        from_first: whether the first request arrives at 0; otherwise arrivals are those of the file.

    Attributes:
        failed: number of omitted requests that got no answer.
    """

    def __init__(
        self,
        file: Path,
        most: int | None,
        arrival: str,
        prompt: str,
        output: str,
        sink: Sink | None = None,
        from_first: bool = True,
    ) -> None:
        self.file, self.most = file, most
        self.arrival, self.prompt, self.output = arrival, prompt, output
        self.failed = 0
        self._sink, self._from_first = sink, from_first
        self._count = self._given = 0  # requests so far, and those that the sink has taken
        self._first: int | Decimal = 0
        self._last: int | Decimal = 0
        self._ids: list[str] = []
        self._clear()

    def _clear(self) -> None:
        self._arrival_ns, self._tokens = array("d"), (array("q"), array("q"))
        self._chains, self._chain_lengths = array("q"), array("q")
        self._measured = array("d"), array("d")

    def __len__(self) -> int:
        """The number of requests so far."""
        return len(self._arrival_ns)

    @property
    def full(self) -> bool:
        """Whether the maximum number of requests is reached."""
        return self.most is not None and self._count >= self.most

    def add(
        self,
        arrival_ns: int | Decimal,
        prompt_tokens: int,
        output_tokens: int,
        line: int | None = None,
        name: str | None = None,
        blocks: Sequence[int] | None = None,
        measured: tuple[float, float] | None = None,
    ) -> None:
        """Add a request. `line` is its line, for messages; the default `name` is its number.

        measured: its `ttft_ns` and `latency_ns` of `Measured`; given for all requests or for none.

        Raises:
            InputError: it has no tokens or too many, or arrives before the previous one or too late.
        """
        for key, tokens in ((self.prompt, prompt_tokens), (self.output, output_tokens)):
            if not 1 <= tokens <= MOST_TOKENS:
                problem = f"{shown(tokens)} is not a number of tokens from 1 to {MOST_TOKENS}"
                raise InputError(problem, "range", file=self.file, line=line, key=key)
        if not self._count and self._from_first:
            self._first = self._last = arrival_ns
        if arrival_ns < self._last:
            problem = "arrives before the request in front of it; sort the file by arrival"
            raise InputError(problem, "range", file=self.file, line=line, key=self.arrival)
        if arrival_ns - self._first > LATEST_NS:
            problem = f"arrives more than {LATEST_NS:.0e} ns after the beginning"
            raise InputError(problem, "range", file=self.file, line=line, key=self.arrival)
        self._last = arrival_ns
        self._arrival_ns.append(float(arrival_ns - self._first))
        for column, tokens in zip(self._tokens, (prompt_tokens, output_tokens), strict=True):
            column.append(tokens)
        if name is not None and (self._ids or name != str(self._count)):
            self._ids = self._ids or [str(number) for number in range(self._count)]
            self._ids.append(name)
        if blocks is not None:
            self._add_chain(blocks, line)
        for latencies, latency_ns in zip(self._measured, measured or (), strict=False):
            latencies.append(latency_ns)
        self._count += 1
        self._watch_size(line)

    def _add_chain(self, blocks: Sequence[int], line: int | None) -> None:
        try:
            self._chains.extend(blocks)
        except OverflowError:
            problem = "has a block of tokens with a number beyond 2^63"
            raise InputError(problem, "range", file=self.file, line=line) from None
        self._chain_lengths.append(len(blocks))

    def _watch_size(self, line: int | None) -> None:
        """Give a block to the sink, or make sure that all requests fit into memory."""
        if len(self._arrival_ns) % _BLOCK:
            return
        if self._sink is not None and not self._ids and not self._chains:
            if len(self._arrival_ns) > _BLOCK:  # the last block is never empty
                self._sink(self._block(slice(0, _BLOCK), {}))
                self._forget(_BLOCK)
            return
        held = _REQUEST_BYTES * self._count + _ID_BYTES * len(self._ids) + _CHAIN_BYTES * len(self._chains)
        ensure_fits(held, f"{self._count:,} requests or more", file=self.file, line=line)

    def _forget(self, count: int) -> None:
        for column in (self._arrival_ns, *self._tokens, *self._measured):
            del column[:count]
        self._given += count

    def _block(self, part: slice, source: dict[str, Any], **more: Any) -> Requests:
        arrival_ns, prompt, output = (np.array(column[part]) for column in (self._arrival_ns, *self._tokens))
        names = tuple(self._ids) or Numbers(len(arrival_ns), self._given)
        return Requests(arrival_ns, prompt, output, names, source=source, **more)

    def requests(
        self,
        block_tokens: int | None = None,
        closed_loop: int | None = None,
        time_ns: float | None = None,
    ) -> Requests:
        """All rows as requests, except those that the sink has taken.

        Args:
            block_tokens: prompt tokens of a block, if rows have blocks.
            closed_loop: see `Requests`.
            time_ns: see `Measured`; None: from the first arrival to the last end that was measured.

        Raises:
            InputError: there are no requests.
        """
        if not self._count:
            raise InputError("holds no requests", "form", file=self.file)
        failed = {"failed": self.failed} if self.failed else {}
        source = {"files": [self.file.name], **failed}
        chains = None
        if block_tokens is not None:
            ends = np.cumsum(np.array(self._chain_lengths))[:-1]
            chains = tuple(np.split(np.array(self._chains, np.int64), ends))
        try:
            return self._block(
                slice(None),
                source,
                block_tokens=block_tokens,
                blocks=chains,
                closed_loop=closed_loop,
                measured=self._latencies(closed_loop, time_ns),
            )
        except InputError as error:
            raise error.at(self.file) from None

    def _latencies(self, closed_loop: int | None, time_ns: float | None) -> Measured | None:
        ttft_ns, latency_ns = (np.array(column) for column in self._measured)
        if not len(ttft_ns):
            return None
        if time_ns is None and closed_loop is None:
            ends = np.array(self._arrival_ns) + latency_ns  # from the first arrival
            time_ns = None if np.isnan(ends).all() else float(np.nanmax(ends))
        return Measured(ttft_ns, latency_ns, time_ns)


class LoadedRequest(NamedTuple):
    """A request of a load generator, whose file has requests in another order than that of their arrivals.

    Attributes:
        arrival_ns: when it was sent, on any clock.
        measured: see `RecordedRequests.add`.
    """

    arrival_ns: int | Decimal
    prompt_tokens: int
    output_tokens: int
    line: int | None
    name: str
    measured: tuple[float, float]


def is_time(value: Any) -> bool:
    """Whether a value of JSON is a finite number."""
    return type(value) in (int, float) and -_LARGEST < value < _LARGEST


def object_in(value: Any, path: Path, key: str, line: int | None = None) -> dict[str, Any]:
    """A value of JSON that is an object.

    Raises:
        InputError: it is none.
    """
    if not isinstance(value, dict):
        raise InputError("is not an object", "type", file=path, line=line, key=key)
    return value


def add_sorted(rows: RecordedRequests, loaded: Sequence[LoadedRequest]) -> None:
    """Add requests in the order of their arrivals, until the maximum number is reached."""
    for request in sorted(loaded, key=lambda request: request.arrival_ns):
        if rows.full:
            break
        rows.add(*request[:5], measured=request.measured)


def single_run(runs: Sequence[T], run: int | None, file: Path) -> T:
    """One of the runs of a file: number `run` from 1, or the only one.

    Raises:
        InputError: there is no such run, or several and no number.
    """
    if run is None and len(runs) > 1:
        problem = f"is needed: the file has {len(runs)} runs of a load generator; give a number from 1"
        raise InputError(problem, "missing", file=file, key="run")
    if not 1 <= (run or 1) <= len(runs):
        problem = f"{run or 1} is not one of the {len(runs)} runs of the file"
        raise InputError(problem, "range", file=file, key="run")
    return runs[(run or 1) - 1]


def whole(text: str, file: Path, line: int, key: str) -> int:
    """A whole number from 0 in a text file.

    Raises:
        InputError: it is none.
    """
    found = _WHOLE.fullmatch(text)
    if found is None:
        raise InputError(f"{shown(text)} is not a whole number from 0", "type", file=file, line=line, key=key)
    return int(found[1])


def seconds(text: str, file: Path, line: int, key: str) -> Decimal:
    """A time in seconds from 0, as nanoseconds.

    Raises:
        InputError: it is none.
    """
    if not _DECIMAL.fullmatch(text):
        problem = f"{shown(text)} is not a number of seconds from 0"
        raise InputError(problem, "type", file=file, line=line, key=key)
    return Decimal(text).scaleb(9)


def cells_of(file: Path, header: Sequence[str]) -> Iterator[tuple[int, list[str]]]:
    """The cells of each row of a CSV file after its header, with the row's line; no cell has quotes.

    Raises:
        InputError: the file has another header, or a row another number of cells.
    """
    begun = False
    for line, text in numbered_lines(file, held=False):
        cells = [cell.strip() for cell in text.split(",")]
        if not begun:
            begun = True
            if cells != list(header):
                problem = f"{shown(text)} is not the header {','.join(header)}"
                raise InputError(problem, "form", file=file, line=line)
        elif len(cells) != len(header):
            problem = f"has {len(cells)} columns, and the header {len(header)}"
            raise InputError(problem, "form", file=file, line=line)
        else:
            yield line, cells


def begins_with(*header: str) -> Callable[[Path, bytes], bool]:
    """Whether a file's first line is this header of CSV."""
    wanted = ",".join(header).encode()

    def recognises(path: Path, head: bytes) -> bool:
        first = head.removeprefix(b"\xef\xbb\xbf").lstrip().partition(b"\n")[0]
        return b",".join(cell.strip() for cell in first.split(b",")) == wanted

    return recognises
