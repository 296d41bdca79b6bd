"""Standard input, output and error as a command line finds them: closed, on a full disk, without Unicode."""

from __future__ import annotations

import contextlib
import io
import os
import sys

_closed: set[int] = set()


class StandardOutputError(Exception):
    """Standard output cannot be written. It is no OSError, because an OSError could be about any file.

    Attributes:
        broken_pipe: its reader has gone.
    """

    def __init__(self, error: OSError) -> None:
        super().__init__(f"cannot write standard output: {error.strerror or error}")
        self.broken_pipe = isinstance(error, BrokenPipeError)


class _Output(io.FileIO):
    """Standard output; its errors are `StandardOutputError`."""

    def write(self, data: bytes) -> int:  # type: ignore[override]
        try:
            return super().write(data)
        except OSError as error:
            raise StandardOutputError(error) from None


class _Messages(io.FileIO):
    """Standard error; its own errors are ignored."""

    def write(self, data: bytes) -> int:  # type: ignore[override]
        with contextlib.suppress(OSError):
            return super().write(data)
        return len(data)


def open_closed() -> None:
    """Open closed descriptors among 0 to 2 on the null device, so that no other file gets their numbers."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            _closed.add(number)
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free


def is_closed(number: int) -> bool:
    """Whether a standard stream was closed when the program began."""
    return number in _closed


def prepare() -> None:
    """Wrap standard output and standard error; both accept every text."""
    out, err = sys.stdout, sys.stderr
    sys.stdout = io.TextIOWrapper(
        io.BufferedWriter(_Output(1, "w", closefd=False)),
        encoding=out.encoding if out is not None else "utf-8",
        errors="backslashreplace",
        line_buffering=os.isatty(1),
    )
    sys.stderr = io.TextIOWrapper(
        io.BufferedWriter(_Messages(2, "w", closefd=False)),
        encoding=err.encoding if err is not None else "utf-8",
        errors="backslashreplace",
        line_buffering=True,
    )


def forget_output() -> None:
    """Discard what is still buffered, so that closing standard output cannot fail again."""
    with contextlib.suppress(OSError):  # standard output may be no file at all
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
