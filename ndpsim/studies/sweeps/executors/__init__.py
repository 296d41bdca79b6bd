"""Executors of points: processes on this machine, or a cluster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Task:
    """A point to run.

    Attributes:
        name: the name of its file.
        given: values for the command, by key.
        key: `Resolved.key` in the sweep.
    """

    name: str
    given: Mapping[str, Any]
    key: str


#: Tasks to run; None: no task before the next result has been processed.
Tasks = Iterator[Task | None]

#: Tasks with their results, `attempt.Attempt`, as they finish.
Answers = Iterator[tuple[Task, dict[str, Any]]]
