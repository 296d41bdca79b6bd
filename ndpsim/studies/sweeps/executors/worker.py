"""A process that runs points for `local`, from tasks on a connection until it closes."""

from __future__ import annotations

import contextlib
import os
import signal
from multiprocessing.connection import Connection
from queue import SimpleQueue
from threading import Thread
from typing import Any


def serve(descriptor: int) -> None:
    """Run tasks from the connection; if the sender ends, this process ends, too, even within a point."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the receiver of Ctrl-C closes the connection
    connection: Connection = Connection(descriptor)
    try:
        from ndpsim.studies.sweeps.executors.attempt import attempt  # noqa: PLC0415 (what fails is answered)

        command = connection.recv()
    except Exception as error:
        connection.send(f"{type(error).__name__}: {error}")
        return
    connection.send(None)
    tasks: SimpleQueue[tuple[Any, ...]] = SimpleQueue()
    Thread(target=_receive, args=(connection, tasks), daemon=True).start()
    while True:
        answer = attempt(command, *tasks.get())
        with contextlib.suppress(OSError):  # no process waits for the result any more
            connection.send(answer)


def _receive(connection: Connection, tasks: SimpleQueue[tuple[Any, ...]]) -> None:
    """Receive a message, or end the process if the sender is gone."""
    try:
        while True:
            tasks.put(connection.recv())
    except (EOFError, OSError):
        os._exit(0)
