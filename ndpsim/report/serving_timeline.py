"""The timeline of a run of an engine, for Perfetto and chrome://tracing, written while it runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from os import PathLike
from typing import Any

from ndpsim.inference.layers.record import LayerRecord, RunRecord
from ndpsim.inference.serving.engine import DoneStep
from ndpsim.inference.serving.observer import ServingObserver
from ndpsim.inference.serving.sequence import Sequence
from ndpsim.report.moe_timeline import write_layer
from ndpsim.report.trace_events import TimelineWriter, moment_of, timeline_file


@contextmanager
def writing_serving_timeline(path: str | PathLike[str]) -> Iterator[ServingObserver]:
    """An observer that writes steps, layers, jobs and migrations on rows, and requests as asynchronous spans.

    Rows of layers and resources are those of `ndpsim.report.moe_timeline`. A request is a span from its
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
        """See `ServingObserver`."""
        self._ids = ids
        names = (header[name] for name in ("model", "policy", "scheduler"))
        self._timeline.begin_process(", ".join(name for name in names if name is not None))

    def layer(self, run: RunRecord, layer: LayerRecord) -> None:
        """See `ServingObserver`."""
        write_layer(self._timeline, layer)

    def done(self, step: DoneStep) -> None:
        """See `ServingObserver`."""
        formed, changes = step.formed, step.formed.changes
        arguments = {
            "sequences": len(formed.chunks),
            "tokens": sum(one.tokens for one in formed.chunks),
            "waiting": len(formed.waiting),
            "preempted": len(formed.preempted),
            "blocks_to_host": sum(changes.to_host.values()),
            "blocks_to_gpu": sum(changes.to_gpu.values()),
        }
        track = f"steps of engine {step.engine}" if step.engine else "steps"
        self._timeline.span(track, f"step {step.number}", step.start_ns, step.end_ns, arguments)
        for sequence in step.finished:
            self._request(sequence)

    def _request(self, one: Sequence) -> None:
        """Write a finished request and its parts."""
        arguments = {
            "prompt_tokens": one.prompt_tokens,
            "output_tokens": one.output_tokens,
            "reused_tokens": one.reused_tokens,
            "preemptions": one.preemptions,
        }
        name = f"request {self._ids[one.number]}"
        self._asynchronous(one.number, name, one.arrival_ns, one.last_token_ns, arguments)
        parts = (
            ("waits", one.arrival_ns, one.admitted_ns),
            ("prompt", one.admitted_ns, one.first_token_ns),
            ("decode", one.first_token_ns, one.last_token_ns),
        )
        for part, start_ns, end_ns in parts:
            if end_ns > start_ns:
                self._asynchronous(one.number, part, start_ns, end_ns, {})

    def _asynchronous(
        self, number: int, name: str, start_ns: float, end_ns: float, arguments: dict[str, Any]
    ) -> None:
        common = {"cat": "request", "id": number, "name": name}
        self._timeline.event({"ph": "b", **common, "ts": moment_of(start_ns), "args": arguments})
        self._timeline.event({"ph": "e", **common, "ts": moment_of(end_ns)})
