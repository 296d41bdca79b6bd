"""Executors of points: processes on this machine, or a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, TypeAlias


@dataclass(frozen=True)
class Task:
    """A point to run.

    Attributes:
        name: the name of its file.
        settings: values for the command, by key.
        key: `Resolved.key` in the sweep.
    """

    name: str
    settings: Mapping[str, Any]
    key: str


#: Tasks to run; None: no task before the next result has been processed.
Tasks = Iterator[Task | None]

#: What `attempt.attempt` returns.
Answer = dict[str, Any]

#: Tasks with their results, as they finish.
Answers = Iterator[tuple[Task, Answer]]

Submitted: TypeAlias = "Future[Answer]"


def run_tasks(
    tasks: Tasks, submit: Callable[[Task], Submitted], at_once: int
) -> Iterator[tuple[Task, Submitted]]:
    """Submit tasks, at most `at_once` before one is done, and return them as they are done."""
    done: SimpleQueue[Submitted] = SimpleQueue()
    running: dict[Submitted, Task] = {}
    while True:
        while len(running) < at_once and (task := next(tasks, None)) is not None:
            future = submit(task)
            running[future] = task
            future.add_done_callback(done.put)
        if not running:
            return
        future = done.get()
        yield running.pop(future), future
