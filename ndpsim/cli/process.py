"""The process of a command line: the signals that end it, and its standard input, output and error."""

from __future__ import annotations

import _thread
import contextlib
import io
import os
import signal
import sys

# ---- Signals that end a run: ndpsim prints one line, removes temporary files and exits with a status
#
# A thread waits for them: Python's own handlers wait for the main thread, which may spend many seconds
# in a kernel or a compiler. This module is imported first and imports little, so signals are answered early.


_ENDING: dict[int, str] = {
    signal.SIGINT: "interrupted",
    signal.SIGTERM: "terminated",
    signal.SIGHUP: "hung up",
}


def answer_signals() -> None:
    """From here on a signal ends the process at once; signals that the caller ignores stay ignored."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    _thread.start_new_thread(_wait, (reader,))
    for number in _ENDING:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _leave_to_thread)


def _leave_to_thread(number: int, frame: object) -> None:
    """Python's handler, which does nothing: the system has woken the thread already."""


def _wait(reader: int) -> None:
    number = 0
    while number not in _ENDING:
        number = os.read(reader, 1)[0]
    _say(f"ndpsim: {_ENDING[number]}\n")
    temporaries = sys.modules.get("ndpsim.base.run_files")
    try:
        if temporaries is not None:
            temporaries.remove_temporaries()
    finally:
        os._exit(128 + number)


def _say(line: str) -> None:
    """Write to standard error, past its buffer; on a terminal show the cursor that a progress bar hides."""
    shown = b"\r\x1b[K\x1b[?25h" if "rich.progress" in sys.modules and os.isatty(2) else b""
    with contextlib.suppress(OSError):
        os.write(2, shown + line.encode())


# ---- Standard input, output and error as a command line finds them: closed, on a full disk, without Unicode


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
