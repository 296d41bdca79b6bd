"""Executors of points: processes on this machine, or a cluster."""

from __future__ import annotations

import json
import math
import os
import platform
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, TypeAlias

from ndpsim.base.errors import InputError, MismatchError
from ndpsim.simulate.results.stopwatch import Stopwatch
from ndpsim.studies.sweeps.command import SweptCommand

# ---- Runs a point in a worker


def attempt(command: SweptCommand, settings: Mapping[str, Any], key: str) -> dict[str, Any]:
    """Run a point, and return the part of its record that only the run knows.

    `stored` is False if a file of the point differs from what the sweep read, so that the result is not for
    this point.
    """
    stopwatch = Stopwatch()
    try:
        metrics = _plain(command.measure(settings))
        answer = {"status": "ok", "reason": None, "metrics": metrics}
    except (Exception, SystemExit) as error:  # other points continue after any error
        answer = failure(reason_of(error))
    changed = _what_changed(command, settings, key)
    if changed is not None:
        answer = failure(changed)
    return {
        **answer,
        "stored": changed is None,
        "host": {"name": platform.node(), "cpu": platform.machine(), "cores": os.cpu_count()},
        **stopwatch.times(),
    }


def failure(reason: str) -> dict[str, Any]:
    """The record of a point without a result."""
    return {"status": "failed", "reason": reason, "metrics": {}}


def reason_of(error: BaseException) -> str:
    """The reason of a failure in one line, with the type of error if it is not an `InputError`."""
    text = " ".join(str(error).split())
    if isinstance(error, InputError | MismatchError):
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _plain(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Metrics for JSON, without infinite values and NaN."""
    finite = {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in metrics.items()
    }
    return dict(json.loads(json.dumps(finite, allow_nan=False)))


def _what_changed(command: SweptCommand, settings: Mapping[str, Any], key: str) -> str | None:
    """The reason why the point has changed, which can only be a file; None if it has not."""
    try:
        same = command.resolve(settings).key == key
    except Exception as error:
        return f"a file that is named is not as it was when the sweep began ({reason_of(error)})"
    return None if same else "a file that is named is not as it was when the sweep began"


# ---- Executors of points: processes on this machine, or a cluster


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

#: What `attempt` returns.
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
