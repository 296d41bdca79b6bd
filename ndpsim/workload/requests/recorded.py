"""Shared parts of formats of recorded requests: checked rows of a file."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path

import numpy as np

from ndpsim.base.errors import InputError
from ndpsim.base.text_files import numbered_lines
from ndpsim.workload.requests.requests import Requests

_WHOLE = re.compile(r"[0-9]{1,18}", re.ASCII)
_DECIMAL = re.compile(r"[0-9]{1,18}(\.[0-9]{0,40})?", re.ASCII)


@dataclass(frozen=True)
class WorkloadFormat:
    """A format of recorded requests.

    Attributes:
        example: a line of such a file.
        meaning: a phrase that names the program and its file.
        recognises: whether a file has this format, from its path and first bytes.
        read: reads a file, up to a number of requests (None: all).
    """

    example: str
    meaning: str
    recognises: Callable[[Path, bytes], bool]
    read: Callable[[Path, int | None], Requests]


@dataclass
class RecordedRequests:
    """Requests as they are read, row by row.

    Attributes:
        file: the file.
        most: maximum number of requests; None: all.
        arrival, prompt, output: the file's names of these columns or keys, for messages.
        failed: number of omitted requests that got no answer.
    """

    file: Path
    most: int | None
    arrival: str
    prompt: str
    output: str
    failed: int = 0
    _ids: list[str] = field(default_factory=list)
    _arrival_ns: list[int | Decimal] = field(default_factory=list)
    _prompt_tokens: list[int] = field(default_factory=list)
    _output_tokens: list[int] = field(default_factory=list)
    _blocks: list[Sequence[int]] = field(default_factory=list)

    def __len__(self) -> int:
        """The number of requests so far."""
        return len(self._arrival_ns)

    @property
    def full(self) -> bool:
        """Whether the maximum number of requests is reached."""
        return self.most is not None and len(self._arrival_ns) >= self.most

    def add(
        self,
        arrival_ns: int | Decimal,
        prompt_tokens: int,
        output_tokens: int,
        line: int | None = None,
        name: str | None = None,
        blocks: Sequence[int] | None = None,
    ) -> None:
        """Add a request. `line` is its line, for messages; the default `name` is its number.

        Raises:
            InputError: it has no tokens, or arrives before the previous one.
        """
        for key, tokens in ((self.prompt, prompt_tokens), (self.output, output_tokens)):
            if tokens < 1:
                problem = f"{tokens} is not a number of tokens from 1"
                raise InputError(problem, "range", file=self.file, line=line, key=key)
        if self._arrival_ns and arrival_ns < self._arrival_ns[-1]:
            problem = "arrives before the request in front of it; sort the file by arrival"
            raise InputError(problem, "range", file=self.file, line=line, key=self.arrival)
        self._ids.append(str(len(self._ids)) if name is None else name)
        self._arrival_ns.append(arrival_ns)
        self._prompt_tokens.append(prompt_tokens)
        self._output_tokens.append(output_tokens)
        if blocks is not None:
            self._blocks.append(blocks)

    def requests(
        self,
        block_tokens: int | None = None,
        closed_loop: int | None = None,
        from_first: bool = True,
    ) -> Requests:
        """All rows as requests.

        Args:
            block_tokens: prompt tokens of a block, if rows have blocks.
            closed_loop: see `Requests`.
            from_first: whether the first request arrives at 0; otherwise arrivals are those of the file.

        Raises:
            InputError: there are no requests.
        """
        if not self._arrival_ns:
            raise InputError("holds no requests", "form", file=self.file)
        first = self._arrival_ns[0] if from_first else 0
        failed = {"failed": self.failed} if self.failed else {}
        try:
            return Requests(
                np.array([float(arrival_ns - first) for arrival_ns in self._arrival_ns]),
                np.array(self._prompt_tokens, np.int64),
                np.array(self._output_tokens, np.int64),
                tuple(self._ids),
                block_tokens,
                None if block_tokens is None else tuple(np.array(ids, np.int64) for ids in self._blocks),
                closed_loop,
                {"files": [self.file.name], **failed},
            )
        except InputError as error:
            raise error.at(self.file) from None


def whole(text: str, file: Path, line: int, key: str) -> int:
    """A whole number from 0 in a text file.

    Raises:
        InputError: it is none.
    """
    if not _WHOLE.fullmatch(text):
        raise InputError(f"'{text[:40]}' is not a whole number from 0", "type", file=file, line=line, key=key)
    return int(text)


def seconds(text: str, file: Path, line: int, key: str) -> Decimal:
    """A time in seconds from 0, as nanoseconds.

    Raises:
        InputError: it is none.
    """
    if not _DECIMAL.fullmatch(text):
        problem = f"'{text[:40]}' is not a number of seconds from 0"
        raise InputError(problem, "type", file=file, line=line, key=key)
    return Decimal(text).scaleb(9)


def cells_of(file: Path, header: Sequence[str]) -> Iterator[tuple[int, list[str]]]:
    """The cells of each row of a CSV file after its header, with the row's line; no cell has quotes.

    Raises:
        InputError: the file has another header, or a row another number of cells.
    """
    begun = False
    for line, text in numbered_lines(file):
        cells = [cell.strip() for cell in text.split(",")]
        if not begun:
            begun = True
            if cells != list(header):
                problem = f"'{text[:80]}' is not the header {','.join(header)}"
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
