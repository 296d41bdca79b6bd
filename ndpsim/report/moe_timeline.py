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
    with replacing(path) as file:
        file.write(b'{"displayTimeUnit":"ns","traceEvents":[\n')
        writer = _Writer(file)
        yield writer
        writer.end()


def _row_of(migration: MigrationRecord) -> str:
    """The row of a migration: its resource; its kind if it takes no time."""
    if migration.end_ns == migration.start_ns:
        return migration.kind
    return migration.resource


class _Writer:
    """An observer: an event for each layer, job and migration."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._run: RunRecord | None = None
        self._process = -1
        self._rows = Rows()
        self._held = b""

    def __call__(self, run: RunRecord, layer: LayerRecord) -> None:
        if run is not self._run:
            self._run, self._rows = run, Rows()
            self._process += 1
            self._write({"ph": "M", "name": "process_name", "args": {"name": run.policy}})
        name = f"{layer.phase} {layer.step}, layer {layer.layer}"
        if layer.window_ns:
            window = layer.start_ns - layer.window_ns, layer.start_ns
            self._span("layers", "attention and dense parts", *window, {"layer": layer.layer})
        self._span("layers", name, layer.start_ns, layer.end_ns, {"bottleneck": layer.bottleneck})
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
        self._span(job.resource, name, job.start_ns, job.end_ns, arguments)

    def _migration(self, migration: MigrationRecord) -> None:
        arguments = {
            "from": migration.source,
            "to": migration.target,
            "bytes": migration.bytes,
            "decided_us": migration.decided_ns / 1000,
            "hidden_us": migration.hidden_ns / 1000,
        }
        name = f"{migration.kind} {migration.expert} of layer {migration.layer}"
        self._span(_row_of(migration), name, migration.start_ns, migration.end_ns, arguments)

    def _span(self, row: str, name: str, start_ns: float, end_ns: float, arguments: dict[str, Any]) -> None:
        number, naming = self._rows.place(row, start_ns, end_ns)
        if naming is not None:
            self._write(naming)
        times = span_of(start_ns, end_ns)
        self._write({"ph": "X", "tid": number, "name": name, **times, "args": arguments})

    def _write(self, event: dict[str, Any]) -> None:
        """An event is written when the next one comes: the last has no comma behind it."""
        if self._held:
            self._file.write(self._held + b",\n")
        self._held = _encode({"pid": self._process, **event}).encode()

    def end(self) -> None:
        self._file.write(self._held + b"\n]}\n")
