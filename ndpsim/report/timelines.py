"""Timelines for Perfetto and chrome://tracing; those of whole models are written while they run."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from os import PathLike
from typing import IO, Any

from ndpsim.base.files import replacing
from ndpsim.inference.layers.record import JobRecord, LayerRecord, MigrationRecord, Observer, RunRecord
from ndpsim.inference.serving.engine import DoneStep
from ndpsim.inference.serving.log import ServingObserver
from ndpsim.inference.serving.sequence import Sequence
from ndpsim.report.command_slices import CommandSlices
from ndpsim.report.text import title_of
from ndpsim.report.words import unit_of_phase
from ndpsim.simulate import ContentionResult, ExpertResult, RelayoutResult

# ---- Times and rows of the Trace Event Format

_encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False, default=lambda value: value.item()).encode


def span_of(start_ns: float, end_ns: float) -> dict[str, float]:
    """`ts` and `dur` in us of a span, whose ends are cut to whole ns.

    Readers count in whole ns, and drop spans that overlap on a row. Cut in this way, a span that follows
    another still begins at its end.
    """
    start, end = math.floor(start_ns), math.floor(end_ns)
    return {"ts": _us(start), "dur": _us(end - start)}


def moment_of(time_ns: float) -> float:
    """`ts` in us of a time, cut as by `span_of`."""
    return _us(math.floor(time_ns))


def _us(ns: int) -> float:
    """A number of us that multiplied by 1000 and cut gives `ns` again."""
    us = ns / 1000
    return us if int(us * 1000) == ns else math.nextafter(us, math.inf)


@contextmanager
def timeline_file(path: str | PathLike[str]) -> Iterator[TimelineWriter]:
    """A timeline in a file, which exists only if the block ends without an exception.

    Raises:
        InputError: the file cannot be written.
    """
    with replacing(path) as file:
        file.write(b'{"displayTimeUnit":"ns","traceEvents":[\n')
        writer = TimelineWriter(file)
        yield writer
        writer.end()


class TimelineWriter:
    """Writes events: spans on named rows of a process. A name has several rows where its spans overlap.

    Processes and rows are numbered from 1, rows over all processes: 0 is the idle process of viewers.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._process = self._count = 0
        self._held = b""

    def begin_process(self, name: str) -> None:
        """Begin a process of this name, to which all further events belong."""
        self._rows: dict[str, list[tuple[int, float]]] = {}  # numbers of rows, and their last ends
        self._process += 1
        self._describe("process", self._count + 1, name, self._process)

    def _describe(self, kind: str, row: int, name: str, order: int) -> None:
        """Write the name of a process or row, and its place among the others."""
        about = {"ph": "M", "ts": 0, "tid": row}
        self.event({**about, "name": f"{kind}_name", "args": {"name": name}})
        self.event({**about, "name": f"{kind}_sort_index", "args": {"sort_index": order}})

    def row(self, name: str, start_ns: float = -math.inf, end_ns: float = -math.inf) -> int:
        """The number of a row that is free at this time; without times, the row is added if it is new.

        Spans of a name must come in the order of their starts.
        """
        rows = self._rows.setdefault(name, [])
        for index, (number, until) in enumerate(rows):
            if start_ns >= until:
                rows[index] = number, end_ns
                return number
        self._count = number = self._count + 1
        rows.append((number, end_ns))
        self._describe("thread", number, name, number)
        return number

    def span(self, row: str, name: str, start_ns: float, end_ns: float, arguments: dict[str, Any]) -> None:
        """Write a span on a row, or on another of the same name if the row is occupied."""
        number, times = self.row(row, start_ns, end_ns), span_of(start_ns, end_ns)
        self.event({"ph": "X", "tid": number, "name": name, **times, "args": arguments})

    def event(self, event: dict[str, Any]) -> None:
        """Write an event of the process."""
        # An event is written when the next one comes, since the last has no comma after it.
        if self._held:
            self._file.write(self._held + b",\n")
        self._held = _encode({"pid": self._process, **event}).encode()

    def end(self) -> None:
        """Write the last event."""
        self._file.write(self._held + b"\n]}\n")


# ---- Timelines of serving


@contextmanager
def writing_serving_timeline(path: str | PathLike[str]) -> Iterator[ServingObserver]:
    """An observer that writes steps, layers, jobs and migrations on rows, and requests as asynchronous spans.

    Rows of layers and resources are those of `writing_timeline`. A request is a span from its
    arrival to its last token. Within it are spans for waiting, for computing the prompt, and for decoding.

    Raises:
        InputError: the file cannot be written.
    """
    with timeline_file(path) as timeline:
        yield _Timeline(timeline)


class _Timeline(ServingObserver):
    def __init__(self, timeline: TimelineWriter) -> None:
        self._timeline = timeline
        self._ids: tuple[str, ...] = ()

    def begin(self, header: Mapping[str, Any], ids: tuple[str, ...]) -> None:
        self._ids = ids
        names = (header[name] for name in ("model", "policy", "scheduler"))
        self._timeline.begin_process(", ".join(name for name in names if name is not None))

    def layer(self, run: RunRecord, layer: LayerRecord) -> None:
        write_layer(self._timeline, layer)

    def done(self, step: DoneStep) -> None:
        formed, changes = step.formed, step.formed.changes
        arguments = {
            "sequences": len(formed.chunks),
            "tokens": sum(chunk.tokens for chunk in formed.chunks),
            "waiting": len(formed.waiting),
            "preempted": len(formed.preempted),
            "blocks_to_host": sum(changes.to_host.values()),
            "blocks_to_gpu": sum(changes.to_gpu.values()),
        }
        track = f"steps of engine {step.engine}" if step.engine else "steps"
        self._timeline.span(track, f"step {step.number}", step.start_ns, step.end_ns, arguments)
        for sequence in step.finished:
            self._request(sequence)

    def _request(self, sequence: Sequence) -> None:
        """Write a finished request and its parts."""
        arguments = {
            "prompt_tokens": sequence.prompt_tokens,
            "output_tokens": sequence.output_tokens,
            "reused_tokens": sequence.reused_tokens,
            "preemptions": sequence.preemptions,
        }
        name = f"request {self._ids[sequence.number]}"
        self._asynchronous(sequence.number, name, sequence.arrival_ns, sequence.last_token_ns, arguments)
        parts = (
            ("waits", sequence.arrival_ns, sequence.admitted_ns),
            ("prompt", sequence.admitted_ns, sequence.first_token_ns),
            ("decode", sequence.first_token_ns, sequence.last_token_ns),
        )
        for part, start_ns, end_ns in parts:
            if end_ns > start_ns:
                self._asynchronous(sequence.number, part, start_ns, end_ns, {})

    def _asynchronous(
        self, number: int, name: str, start_ns: float, end_ns: float, arguments: dict[str, Any]
    ) -> None:
        common = {"cat": "request", "id": number, "tid": self._timeline.row("requests"), "name": name}
        self._timeline.event({"ph": "b", **common, "ts": moment_of(start_ns), "args": arguments})
        self._timeline.event({"ph": "e", **common, "ts": moment_of(end_ns)})


# ---- Timelines of runs of a whole model


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
    for migration in sorted(layer.migrations, key=lambda migration: migration.start_ns):
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


# ---- Timelines of experts and relayouts


def write_timeline(
    path: str, result: ExpertResult | ContentionResult, lanes: Iterable[tuple[str, CommandSlices]] = ()
) -> None:
    """Write the phases of an expert in us, a row for each unit, or several if phases of DIMMs overlap.

    `lanes`: the commands of lanes, each a process of its own.
    """
    units = unit_of_phase(result.config["hardware"])
    with timeline_file(path) as timeline:
        timeline.begin_process(title_of(result))
        for phase in sorted(result.phases, key=lambda phase: phase.start_ns):
            arguments = {"tile": phase.tile, "tokens": result.token_tiles[phase.tile]}
            timeline.span(units[phase.name], phase.name, phase.start_ns, phase.end_ns, arguments)
        for name, slices in lanes:
            _write_slices(timeline, name, slices, result.config.get("start_clock", 1))


def write_command_timeline(path: str, channels: Iterable[tuple[str, CommandSlices]]) -> None:
    """Write the commands of channels, each a process with a row for each bank and data bus.

    Clock 0 is at 0 us.
    """
    with timeline_file(path) as timeline:
        for name, slices in channels:
            _write_slices(timeline, name, slices, 0)


def _write_slices(timeline: TimelineWriter, name: str, slices: CommandSlices, start_clock: int) -> None:
    timeline.begin_process(name)
    clock_ns = float(slices.device.clock_ps) / 1000
    named = [(slices.bank_name(bank), row) for bank, row in slices.banks.items()]
    named += [(slices.bus_name(rank), row) for rank, row in slices.buses.items()]
    for title, row in named:
        for each in row:
            start_ns, end_ns = ((clock - start_clock) * clock_ns for clock in (each.start, each.end))
            addressed = {"row": each.row, "column": each.column}
            arguments = {"clock": each.start, **{key: n for key, n in addressed.items() if n >= 0}}
            timeline.span(title, each.command, start_ns, end_ns, arguments)


def write_relayout_timeline(path: str, result: RelayoutResult) -> None:
    """Write the times in us at which each DIMM read and wrote, a row for each DIMM."""
    with timeline_file(path) as timeline:
        timeline.begin_process(title_of(result))
        kinds = sorted({(move.dimm, move.name) for move in result.stretches})
        rows = {(dimm, name): f"DIMM {dimm} {name}s" for dimm, name in kinds}
        for row in rows.values():
            timeline.row(row)
        for move in result.stretches:
            timeline.span(rows[move.dimm, move.name], move.name, move.start_ns, move.end_ns, {})
