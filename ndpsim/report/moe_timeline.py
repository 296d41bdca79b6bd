"""Timelines of runs of a whole model, for Perfetto and chrome://tracing, written while they run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike

from ndpsim.inference.layers.record import JobRecord, LayerRecord, MigrationRecord, Observer, RunRecord
from ndpsim.report.trace_events import TimelineWriter, timeline_file


@contextmanager
def writing_timeline(path: str | PathLike[str]) -> Iterator[Observer]:
    """An observer that writes all jobs and migrations, a process for each policy and a row for each resource.

    Times are in us. Migrations to the GPU are on the rows of PCIe, migrations between DIMMs on the rows of
    the links. Concurrent jobs of a resource, such as copies, have a row each. The file exists only if the
    block ends without an exception.

    Raises:
        InputError: the file cannot be written.
    """
    with timeline_file(path) as timeline:
        shown: RunRecord | None = None

        def observe(run: RunRecord, layer: LayerRecord) -> None:
            nonlocal shown
            if run is not shown:
                shown = run
                timeline.begin_process(run.policy)
            write_layer(timeline, layer)

        yield observe


def write_layer(timeline: TimelineWriter, layer: LayerRecord) -> None:
    """Write a layer, its jobs and the migrations that have ended."""
    name = f"{layer.phase} {layer.step}, layer {layer.layer}"
    if layer.window_ns:
        window = layer.start_ns - layer.window_ns, layer.start_ns
        timeline.span("layers", "attention and dense parts", *window, {"layer": layer.layer})
    timeline.span("layers", name, layer.start_ns, layer.end_ns, {"bottleneck": layer.bottleneck})
    for job in layer.jobs:
        _write_job(timeline, job, layer)
    for migration in sorted(layer.migrations, key=lambda one: one.start_ns):
        _write_migration(timeline, migration)


def _write_job(timeline: TimelineWriter, job: JobRecord, layer: LayerRecord) -> None:
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
    timeline.span(job.resource, name, job.start_ns, job.end_ns, arguments)


def _write_migration(timeline: TimelineWriter, migration: MigrationRecord) -> None:
    arguments = {
        "from": migration.source,
        "to": migration.target,
        "bytes": migration.bytes,
        "decided_us": migration.decided_ns / 1000,
        "hidden_us": migration.hidden_ns / 1000,
    }
    name = f"{migration.kind} {migration.expert} of layer {migration.layer}"
    # One that takes no time has a row of its kind.
    row = migration.kind if migration.end_ns == migration.start_ns else migration.resource
    timeline.span(row, name, migration.start_ns, migration.end_ns, arguments)
