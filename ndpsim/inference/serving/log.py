"""Writes the actions of an engine as JSON lines, which `ndpsim check` checks: see docs/serving.md."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from os import PathLike
from typing import IO, Any

from ndpsim.inference.layers.log import opened
from ndpsim.inference.layers.record import LayerRecord, RunRecord
from ndpsim.inference.serving.engine import DoneStep
from ndpsim.inference.serving.sequence import Sequence

# ---- Observers of a run of an engine


class ServingObserver:
    """Receives events of a run in order, and ignores them."""

    def begin(self, header: Mapping[str, Any], ids: tuple[str, ...]) -> None:
        """A run begins; `header` as in the first line of a log, `ids`: names of the requests."""

    def arrived(self, sequence: Sequence) -> None:
        """A request arrived."""

    def layer(self, run: RunRecord, layer: LayerRecord) -> None:
        """A layer of a step was run."""

    def done(self, step: DoneStep) -> None:
        """A step was run, after its layers."""


# ---- The log


LOG_VERSION = 1


@contextmanager
def writing_serving_log(path: str | PathLike[str]) -> Iterator[ServingLog]:
    """A log in a file, packed if its name ends in .gz; it exists only if the block ends without an exception.

    Raises:
        InputError: the file cannot be written.
    """
    with opened(path) as file:
        yield ServingLog(file)


class ServingLog(ServingObserver):
    """Writes a line of each request and of each step."""

    def __init__(self, file: IO[bytes]) -> None:
        self._write = file.write
        self._encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode
        self._ids: tuple[str, ...] = ()
        self._swaps = False

    def begin(self, header: Mapping[str, Any], ids: tuple[str, ...]) -> None:
        """Write the run's header; `ids`: names of the requests."""
        self._ids, self._swaps = ids, header["preemption"] == "swap"
        self._line({"serving_log": LOG_VERSION, **header})

    def arrived(self, sequence: Sequence) -> None:
        """Write a request."""
        line = {
            "request": sequence.number,
            "id": self._ids[sequence.number],
            "arrival_ns": sequence.arrival_ns,
            "prompt_tokens": sequence.prompt_tokens,
            "output_tokens": sequence.output_tokens,
            "engine": sequence.engine,
        }
        self._line({**line, "hashes": list(sequence.hashes)} if len(sequence.hashes) else line)

    def done(self, step: DoneStep) -> None:
        """Write a step."""
        formed, changes = step.formed, step.formed.changes
        scheduled = [
            [chunk.sequence.number, chunk.computed, chunk.tokens, chunk.output_tokens]
            for chunk in formed.chunks
        ]
        moved = [
            {str(number): count for number, count in of.items()} for of in (changes.to_host, changes.to_gpu)
        ]
        rooms = [[one.residents, one.fixed, one.evicted, one.most, one.dropped] for one in formed.rooms]
        left = {"left": _by_request(formed.left)} if formed.left else {}
        self._line(
            {
                "step": step.number,
                "engine": step.engine,
                "formed_ns": formed.formed_ns,
                "start_ns": step.start_ns,
                "end_ns": step.end_ns,
                "scheduled": scheduled,
                "allocated": _by_request(changes.allocated),
                "cached": _by_request(changes.reused),
                "preempted": [one.number for one in formed.preempted],
                "finished": [one.number for one in step.finished],
                "freed": _by_request(changes.freed),
                "waiting": [one.number for one in formed.waiting],
                **({"to_host": moved[0], "to_gpu": moved[1]} if self._swaps else {}),
                **({"rooms": rooms} if rooms else {}),
                **left,
            }
        )

    def _line(self, content: Mapping[str, Any]) -> None:
        self._write(f"{self._encode(content)}\n".encode())


def _by_request(blocks: Mapping[int, list[int]]) -> dict[str, list[int]]:
    return {str(request): numbers for request, numbers in blocks.items()}
