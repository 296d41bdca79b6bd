"""Signals that end a run: ndpsim prints one line, removes temporary files and exits with a status.

A thread waits for them, because Python's own handlers wait for the main thread, which may spend many seconds
in a kernel or a compiler. This module is imported first and imports little, so signals are answered early.
"""

from __future__ import annotations

import _thread
import contextlib
import os
import signal
import sys

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
    temporaries = sys.modules.get("ndpsim.base.temporaries")
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
