"""Timelines of runs of a whole model, for Perfetto and chrome://tracing, written while they run."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from typing import IO, Any

from ndpsim.files import replacing
from ndpsim.orchestrator.record import JobRecord, LayerRecord, MigrationRecord, Observer, RunRecord
from ndpsim.report.trace_events import Rows, span_of

_encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False, default=lambda value: value.item()).encode


@contextmanager
def writing_timeline(path: str | PathLike[str]) -> Iterator[Observer]:
    """An observer that writes all jobs and migrations, a process for each policy and a row for each resource.

    Times are in us. Migrations to the GPU are on the rows of PCIe, those between DIMMs on those of the links.
    What is under way together on a resource, such as copies, has a row each. The file is there when the block
    ends well, else not at all.

    Raises:
        InputError: the file cannot be written.
    """
    with timeline_file(path) as timeline:
        yield _Runs(timeline)


@contextmanager
def timeline_file(path: str | PathLike[str]) -> Iterator[TimelineWriter]:
    """A timeline in a file, which is there when the block ends well, else not at all.

    Raises:
        InputError: the file cannot be written.
    """
    with replacing(path) as file:
        file.write(b'{"displayTimeUnit":"ns","traceEvents":[\n')
        writer = TimelineWriter(file)
        yield writer
        writer.end()


def _row_of(migration: MigrationRecord) -> str:
    """The row of a migration: its resource; its kind if it takes no time."""
    if migration.end_ns == migration.start_ns:
        return migration.kind
    return migration.resource


class _Runs:
    """An observer: a process for each run."""

    def __init__(self, timeline: TimelineWriter) -> None:
        self._timeline = timeline
        self._run: RunRecord | None = None

    def __call__(self, run: RunRecord, layer: LayerRecord) -> None:
        if run is not self._run:
            self._run = run
            self._timeline.begin_process(run.policy)
        self._timeline.layer(layer)


class TimelineWriter:
    """Writes events: spans on rows of a process, among them those of layers, jobs and migrations."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._process = -1
        self._rows = Rows()
        self._held = b""

    def begin_process(self, name: str) -> None:
        """Further events are of a process of this name."""
        self._rows = Rows()
        self._process += 1
        self.event({"ph": "M", "name": "process_name", "args": {"name": name}})

    def layer(self, layer: LayerRecord) -> None:
        """A layer, with its jobs and the migrations that have ended."""
        name = f"{layer.phase} {layer.step}, layer {layer.layer}"
        if layer.window_ns:
            window = layer.start_ns - layer.window_ns, layer.start_ns
            self.span("layers", "attention and dense parts", *window, {"layer": layer.layer})
        self.span("layers", name, layer.start_ns, layer.end_ns, {"bottleneck": layer.bottleneck})
        for job in layer.jobs:
            self._job(job, layer)
        for migration in sorted(layer.migrations, key=lambda one: one.start_ns):
            self._migration(migration)

    def _job(self, job: JobRecord, layer: LayerRecord) -> None:
        arguments = {
            "layer": layer.layer,
            "step": layer.step,
            "bytes": job.bytes,
            "alone_us": job.alone_ns / 1000,
        }
        name = job.kind
        if job.expert >= 0:
            name = f"{job.kind} {job.expert}"
            arguments |= {"tokens": job.tokens, "share": job.share}
        self.span(job.resource, name, job.start_ns, job.end_ns, arguments)

    def _migration(self, migration: MigrationRecord) -> None:
        arguments = {
            "from": migration.source,
            "to": migration.target,
            "bytes": migration.bytes,
            "decided_us": migration.decided_ns / 1000,
            "hidden_us": migration.hidden_ns / 1000,
        }
        name = f"{migration.kind} {migration.expert} of layer {migration.layer}"
        self.span(_row_of(migration), name, migration.start_ns, migration.end_ns, arguments)

    def span(self, row: str, name: str, start_ns: float, end_ns: float, arguments: dict[str, Any]) -> None:
        """Something on a row, or on another of the same name where the row is taken."""
        number, naming = self._rows.place(row, start_ns, end_ns)
        if naming is not None:
            self.event(naming)
        times = span_of(start_ns, end_ns)
        self.event({"ph": "X", "tid": number, "name": name, **times, "args": arguments})

    def event(self, event: dict[str, Any]) -> None:
        """An event of the process."""
        # It is written when the next one comes: the last has no comma behind it.
        if self._held:
            self._file.write(self._held + b",\n")
        self._held = _encode({"pid": self._process, **event}).encode()

    def end(self) -> None:
        """No event follows."""
        self._file.write(self._held + b"\n]}\n")
