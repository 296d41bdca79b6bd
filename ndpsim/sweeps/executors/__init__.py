"""Executors of points: processes of this machine, or a cluster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Task:
    """A point to run.

    Attributes:
        name: the name of its file.
        given: to the command, by key.
        key: `Resolved.key` as the sweep found it.
    """

    name: str
    given: Mapping[str, Any]
    key: str


#: What is to be run, as it is asked for; None: nothing until the next answer has been dealt with.
Tasks = Iterator[Task | None]

#: Tasks with what came of each, `attempt.Attempt`, as they finish.
Answers = Iterator[tuple[Task, dict[str, Any]]]
